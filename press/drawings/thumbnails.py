"""Thumbnails: a small picture without words for each chapter's tile on the first page."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin

from press.drawings.kit import HEADS, KEY, QUERY, VALUE, Drawing

WIDTH, HEIGHT = 160, 84


def blank() -> Drawing:
    return Drawing(HEIGHT, WIDTH)


def lookup() -> Drawing:
    """One query meets three keys, and their values are mixed by how well they match."""
    d = blank()
    d.box(14, 34, 16, 16, colour=QUERY, shade=0.9)
    for i, width in enumerate((1, 5, 2)):
        y = 17 + 25 * i
        d.line((32, 42), (68, y), colour=QUERY, width=width)
        d.box(70, y - 7, 14, 14, colour=KEY, shade=0.35)
        d.line((86, y), (126, 42), colour=VALUE, width=width)
    d.box(128, 34, 16, 16, colour=VALUE, shade=0.9)
    return d


def sharpening() -> Drawing:
    """The same weights twice: nearly all on one, and shared out."""
    d = blank()
    for left, shares in ((14, (4, 60, 8, 3)), (88, (20, 38, 26, 16))):
        for i, high in enumerate(shares):
            d.box(left + 15 * i, 72 - high, 11, high, colour="blue", shade=0.7, round_by=2)
    d.line((10, 72), (76, 72))
    d.line((84, 72), (150, 72))
    return d


def two_sources() -> Drawing:
    """A sequence that asks itself, and one that asks another."""
    d = blank()
    for i in range(4):
        d.box(12 + 17 * i, 12, 12, 12, colour=QUERY, shade=0.35)
        d.box(12 + 17 * i, 60, 12, 12, colour=QUERY, shade=0.35)
        d.box(86 + 17 * i, 12, 12, 12, colour=QUERY, shade=0.35)
    for i in range(3):
        d.box(94 + 17 * i, 60, 12, 12, colour=KEY, shade=0.35)
        d.line((92 + 34, 26), (100 + 17 * i, 58), colour="ink", width=(1, 3.5, 1.5)[i])
    for i in range(4):
        d.line((18 + 17, 26), (18 + 17 * i, 58), colour="ink", width=(1.5, 1, 3.5, 1)[i])
    return d


def triangle() -> Drawing:
    """A causal mask: below the diagonal it is open."""
    d = blank()
    d.grid(45, 7, 5, 5, cell=14, colour="blue", shade=lambda i, j: 0.6 if j <= i else 0)
    return d


def cut() -> Drawing:
    """A row is cut into heads, which come to lie apart."""
    d = blank()
    head = [HEADS[j // 3] for j in range(9)]
    d.grid(26, 12, 1, 9, cell=12, colour=lambda _, j: head[j], shade=0.6)
    for h in range(3):
        d.arrow((44 + 36 * h, 27), (32 + 48 * h, 48))
        d.grid(14 + 48 * h, 52, 2, 3, cell=12, colour=HEADS[h], shade=0.6)
    return d


def slabs() -> Drawing:
    """What each head writes, summed."""
    d = blank()
    for h in range(3):
        d.box(14, 10 + 24 * h, 52, 16, colour=HEADS[h], shade=0.6)
        d.arrow((68, 18 + 24 * h), (106, 42))
    d.box(110, 30, 38, 24, colour="ink", shade=0.15)
    return d


def growth() -> Drawing:
    """Two costs as the length grows: one in a straight line, one that overtakes it."""
    d = blank()
    d.line((18, 8), (18, 72), (148, 72), colour="faint")
    d.line((18, 66), (146, 34), colour="green", width=3)
    d.path("M18 71C90 70 126 50 142 8", colour="orange", width=3)
    return d


def jobs() -> Drawing:
    """Four heads of one position, each looking another number of places back."""
    d = blank()
    for i in range(6):
        d.box(12 + 24 * i, 58, 15, 15, shade=0.3 if i == 5 else 0.06)
    for head, offset in enumerate((1, 2, 3, 5)):
        there, high, start = 139 - 24 * offset, 46 - 12 * head, 134 + 4 * head
        d.arrow((start, 56), (start, high), (there, high), (there, 56), colour=HEADS[head], width=2)
    return d


def many_heads() -> Drawing:
    """72 heads, of which some can be named."""
    d = blank()
    named = {3, 8, 17, 22, 26, 31, 40, 44, 45, 53, 58, 66, 70}
    d.grid(
        14,
        9,
        6,
        12,
        cell=11,
        colour=lambda i, j: "orange" if 12 * i + j in named else "blue",
        shade=lambda i, j: 0.8 if 12 * i + j in named else 0.12,
    )
    return d


def stack() -> Drawing:
    """Blocks beside the stream that they read and write."""
    d = blank()
    d.arrow((14, 62), (148, 62), colour="ink", width=3)
    for i in range(3):
        left = 24 + 40 * i
        d.box(left, 16, 26, 24, colour=("blue", "green")[i % 2], shade=0.5)
        d.line((left + 5, 60), (left + 5, 42))
        d.arrow((left + 21, 42), (left + 21, 59))
    return d


def cache() -> Drawing:
    """Rows that are kept, and the one that is new."""
    d = blank()
    for left, colour in ((16, KEY), (88, VALUE)):
        d.grid(left, 7, 5, 4, cell=14, colour=colour, shade=lambda i, _: 0.9 if i == 4 else 0.2)
    return d


def sharing() -> Drawing:
    """Four heads of queries read two of keys and values."""
    d = blank()
    for h in range(4):
        d.box(16 + 36 * h, 10, 20, 18, colour=QUERY, shade=0.5)
        d.line((26 + 36 * h, 30), (44 + 72 * (h // 2), 54))
    for h in range(2):
        d.box(34 + 72 * h, 56, 20, 18, colour=KEY, shade=0.6)
    return d


def tiles() -> Drawing:
    """A square of weights, of which one tile is at hand."""
    d = blank()

    def shade(i: int, j: int) -> float:
        return 0.9 if (i, j) == (1, 2) else 0.35 if (i, j) < (1, 2) else 0.06

    d.grid(38, 8, 3, 4, cell=21, cell_height=22, colour="blue", shade=shade)
    return d


def ring() -> Drawing:
    """Four machines pass their part on, round a ring."""
    d = blank()
    at = [(80 + 44 * cos(pi * i / 2), 42 + 28 * sin(pi * i / 2)) for i in range(4)]
    for i, (x, y) in enumerate(at):
        (x2, y2) = at[(i + 1) % 4]
        d.arrow(
            (x + 0.33 * (x2 - x), y + 0.33 * (y2 - y)), (x + 0.66 * (x2 - x), y + 0.66 * (y2 - y))
        )
        d.box(x - 11, y - 9, 22, 18, colour=HEADS[i], shade=0.6)
    return d


# In the order of the chapters.
THUMBNAILS: tuple[Callable[[], Drawing], ...] = (
    lookup,
    sharpening,
    two_sources,
    triangle,
    cut,
    slabs,
    growth,
    jobs,
    many_heads,
    stack,
    cache,
    sharing,
    tiles,
    ring,
)
