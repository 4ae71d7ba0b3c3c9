"""Chapter 14: heads dealt to two ranks, keys that go round, and rows that balance the work."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing

RANKS = (0.07, 0.16, 0.25, 0.35)  # shades of ink, for ranks have no colours
CELL = 18


def heads_dealt() -> Drawing:
    """Two ranks: the columns of W_Q, W_K, W_V and the slabs of W_O that each of them holds."""
    d = Drawing(392)
    d.box(150, 10, 120, 28, "x, on both")
    for rank in range(2):
        left = 8 + 206 * rank
        middle = left + 99
        mine = HEADS[2 * rank : 2 * rank + 2]

        def by_column(i: int, j: int, mine: tuple[str, ...] = mine) -> str:
            return mine[j]

        def by_row(i: int, j: int, mine: tuple[str, ...] = mine) -> str:
            return mine[i]

        d.arrow((210 + (30 if rank else -30), 40), (middle, 66))
        d.box(left, 70, 198, 234, shade=0.03)
        d.text(left + 10, 89, f"rank {rank}", anchor="start", bold=True, size=13)
        for i, name in enumerate("QKV"):
            at = left + 16 + 61 * i
            d.text(at + 22, 108, f"W_{name}", size=SMALL)
            d.grid(at, 114, 4, 2, cell=22, cell_height=13, colour=by_column, shade=0.3)
        for j, colour in enumerate(mine):
            x = left + 14 + 88 * j
            d.arrow((x + 41, 168), (x + 41, 184), colour=colour)
            d.box(x, 186, 82, 28, f"head {2 * rank + j + 1}", colour=colour, size=SMALL)
            d.arrow((x + 41, 216), (x + 41, 232), colour=colour)
        d.grid(left + 31, 234, 2, 4, cell=34, cell_height=15, colour=by_row, shade=0.3)
        d.text(left + 24, 254, "W_O", anchor="end", size=SMALL)
        d.text(middle, 290, "what its heads write", size=SMALL)
        d.arrow((middle, 306), (210 + (20 if rank else -20), 338))
    d.text(210, 330, "+", size=20)
    d.box(150, 340, 120, 28, "output")
    d.text(282, 352, "the all-reduce:", size=SMALL, anchor="start", colour="faint")
    d.text(282, 368, "both get the sum", size=SMALL, anchor="start", colour="faint")
    return d


def keys_go_round() -> Drawing:
    """Four ranks in a ring, and which block of keys each of them holds at which step."""
    d = Drawing(210)
    corners = ((20, 36), (124, 36), (124, 126), (20, 126))
    for rank, (x, y) in enumerate(corners):
        d.box(x, y, 70, 44, shade=0.05)
        d.text(x + 35, y + 18, f"rank {rank}", size=13, bold=True)
        d.text(x + 35, y + 35, f"queries {rank}", size=SMALL)
    d.arrow((92, 58), (122, 58))
    d.arrow((159, 82), (159, 124))
    d.arrow((122, 148), (92, 148))
    d.arrow((55, 124), (55, 82))
    d.text(107, 100, "keys and", size=SMALL, colour="faint")
    d.text(107, 116, "values", size=SMALL, colour="faint")
    d.text(330, 22, "whose keys a rank has", size=13)
    for i in range(4):
        d.text(268, 58 + 34 * i + 7, f"rank {i}", anchor="end", size=SMALL)
        d.text(294 + 34 * i, 196, f"{i + 1}", size=SMALL, colour="faint")
    d.text(268, 196, "step", anchor="end", size=SMALL, colour="faint")
    d.grid(277, 44, 4, 4, cell=34, words=lambda i, j: str((i - j) % 4),
        shade=lambda i, j: RANKS[(i - j) % 4], size=13)  # fmt: skip
    return d


def rows_in_zigzag() -> Drawing:
    """A causal triangle of eight blocks, its rows dealt to four ranks in two ways."""
    d = Drawing(252)
    ways = (("blocks in a row", [0, 0, 1, 1, 2, 2, 3, 3]), ("zigzag", [0, 1, 2, 3, 3, 2, 1, 0]))
    for x, (name, order) in zip((64, 264), ways, strict=True):

        def shade(i: int, j: int, order: list[int] = order) -> float:
            return RANKS[order[i]] if j <= i else 0

        d.text(x + 72, 22, name, bold=True)
        d.grid(x, 36, 8, 8, cell=CELL, shade=shade)
        for i, rank in enumerate(order):
            d.text(x - 8, 36 + CELL * i + 13, f"rank {rank}", anchor="end", size=SMALL)
        work = [sum(i + 1 for i, rank in enumerate(order) if rank == r) for r in range(4)]
        d.text(x + 72, 206, "blocks of a rank:", size=SMALL, colour="faint")
        d.text(x + 72, 226, ", ".join(map(str, work)), size=13)
    return d


DRAWINGS = {
    "heads-dealt": heads_dealt,
    "keys-go-round": keys_go_round,
    "rows-in-zigzag": rows_in_zigzag,
}
