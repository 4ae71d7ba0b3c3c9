"""Chapter 5: the split and the merge, the storage that a view walks, and W_Q cut into heads."""

from __future__ import annotations

from collections.abc import Callable

from press.drawings.kit import HEADS, Drawing

Place = Callable[[int, int], tuple[int, int]]  # of a row and a column: token and feature, from 0


def of_token(token: int, feature: int) -> str:
    """Colour the four features of a token by their head."""
    return HEADS[feature // 2]


def number(token: int, feature: int) -> str:
    """Name a number by its token and its feature, counted from 1."""
    return f"{10 * (token + 1) + feature + 1}"


def split(head: int) -> Place:
    """Give the places of a head's numbers, position after position."""
    return lambda t, c: (t, 2 * head + c)


def viewed(head: int) -> Place:
    """Give the places of the six numbers that a view hands to a head."""
    return lambda t, c: divmod(6 * head + 2 * t + c, 4)


def numbers(
    d: Drawing, x: float, y: float, rows: int, place: Place, cell: float, high: float
) -> None:
    """Draw numbers, two in a row, in the colours of the heads that they belong to."""
    d.grid(
        x,
        y,
        rows,
        2,
        cell=cell,
        cell_height=high,
        colour=lambda t, c: of_token(*place(t, c)),
        words=lambda t, c: number(*place(t, c)),
        size=13,
    )


def token_of(t: int, place: Place) -> Place:
    """Give the places of one token alone, as the first row."""
    return lambda _, c: place(t, c)


def split_and_merge() -> Drawing:
    """The queries of three tokens are cut, moved into two heads, attended and joined."""
    d = Drawing(540)
    middle, cell, high = 274, 30, 22
    d.grid(
        middle - 60, 14, 3, 4, cell=cell, cell_height=high, colour=of_token, words=number, size=13
    )
    d.text(middle - 72, 52, "Q = X W_Q", anchor="end")
    shape(d, 42, "(3, 4)", "n, d_{model}")
    step(d, middle, 86, "cut its columns in two")
    for t in range(3):
        y = 118 + 36 * t
        d.box(middle - 76, y, 152, 32, colour="faint", shade=0.06)
        for i in range(2):
            x = middle - 70 + 80 * i
            numbers(d, x, y + 5, 1, token_of(t, split(i)), cell, high)
    shape(d, 168, "(3, 2, 2)", "n, h, d_k")
    step(d, middle, 230, "transpose: heads to the front")
    for i in range(2):
        x = middle - 86 + 100 * i
        d.text(x + 36, 276, f"head {i + 1}", colour=HEADS[i], bold=True)
        d.box(x, 283, 72, 78, colour="faint", shade=0.06)
        numbers(d, x + 6, 289, 3, split(i), cell, high)
        d.arrow((x + 36, 366), (x + 36, 383), colour=HEADS[i])
        d.box(x - 6, 386, 84, 28, "attention", colour=HEADS[i])
        d.arrow((x + 36, 419), (x + 36, 462), colour=HEADS[i])
    shape(d, 318, "(2, 3, 2)", "h, n, d_k")
    d.text(12, 402, "each head by itself", anchor="start", size=12)
    d.text(12, 445, "transpose, join", anchor="start", size=12)
    d.grid(middle - 60, 466, 3, 4, cell=cell, cell_height=high, colour=of_token)
    shape(d, 494, "(3, 4)", "n, d_{model}")
    return d


def shape(d: Drawing, y: float, sizes: str, letters: str) -> None:
    d.text(12, y, sizes, anchor="start", bold=True)
    d.text(12, y + 20, letters, anchor="start", colour="faint")


def step(d: Drawing, x: float, y: float, words: str) -> None:
    d.arrow((x, y), (x, y + 27))
    d.text(x - 12, y + 18, words, anchor="end", size=12)


def storage_in_a_row() -> Drawing:
    """Twelve numbers in a row of storage, and what heads get of them by transpose and by view."""
    d = Drawing(344)
    d.text(210, 22, "twelve numbers, as they lie in storage")
    for t in range(3):
        x = 18 + 128 * t
        for i in range(2):
            numbers(d, x + 64 * i, 34, 1, token_of(t, split(i)), 32, 26)
        d.text(x + 64, 80, f"token {t + 1}", colour="faint", size=12)
    ways = [
        (128, "cut and transposed", "right", split),
        (258, "viewed as (2, 3, 2)", "wrong", viewed),
    ]
    for y, title, verdict, way in ways:
        d.text(12, y + 24, title, anchor="start")
        d.text(12, y + 44, verdict, anchor="start", bold=True)
        for i in range(2):
            x = 190 + 112 * i
            d.text(x + 32, y - 12, f"head {i + 1}", bold=True, size=13)
            numbers(d, x, y, 3, way(i), 32, 24)
    return d


def one_large_matrix() -> Drawing:
    """The columns of W_Q in four blocks of head colours, and the same blocks in X W_Q."""
    d = Drawing(264)
    cell, high, left, right = 20, 15, 16, 216
    for i, colour in enumerate(HEADS):
        x, suffix = right + (2 * cell + 8) * i, "_Q^{(" + str(i + 1) + ")}"
        d.text(x + cell, 24, "W" + suffix)
        d.grid(x, 36, 8, 2, cell=cell, cell_height=high, colour=colour)
        d.arrow((x + cell, 160), (x + cell, 184), colour=colour)
        d.grid(x, 188, 3, 2, cell=cell, cell_height=high, colour=colour)
        d.text(x + cell, 254, suffix[1] + suffix[2:])
    d.grid(left, 188, 3, 8, cell=cell, cell_height=high, shade=0.08)
    d.text(left + 80, 254, "X")
    d.arrow((left + 165, 210), (right - 5, 210))
    d.text(left + 80, 86, "one W_Q of shape (8, 8)")
    d.text(left + 80, 110, "= four of shape (8, 2)")
    return d


DRAWINGS = {
    "split-and-merge": split_and_merge,
    "storage-in-a-row": storage_in_a_row,
    "one-large-matrix": one_large_matrix,
}
