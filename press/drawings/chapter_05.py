"""Chapter 5: two needs at one word, the split and the merge, storage, and W_Q cut into heads."""

from __future__ import annotations

from collections.abc import Callable

from labkit.figures.split_and_merge import SENTENCES, Layout, vectors, walk
from labkit.models import two_needs
from press.drawings.block import layer
from press.drawings.kit import HEADS, Drawing

SENTENCE = SENTENCES[0]
WORDS = SENTENCE.split()
Table = list[list[float]]


def two_heads() -> Drawing:
    """The last word asks twice: one head leads to the subject, the other to the object."""
    d = Drawing(196)
    across = [38 + 76 * i for i in range(len(WORDS))]
    _, weights = two_needs.load_two_needs()(two_needs.encode(SENTENCE))
    line = 132
    for i, row in enumerate(weights[0].tolist()):
        for place, weight in enumerate(row):
            if weight > 0.05:
                start = across[-1] - 6 + 12 * i
                high = line - 20 - (96 if place == 0 else 58)
                end, low = across[place], line - 18
                path = f"M{start} {low}C{start} {high} {end} {high} {end} {low}"
                d.path(path, HEADS[i], 1 + 4 * weight)
    for x, word in zip(across, WORDS, strict=True):
        d.text(x, line, word, size=16, bold=word == "and")
    d.text(84, 30, "head 1: who?", colour=HEADS[0], bold=True, anchor="start")
    d.text(278, 110, "head 2: whom?", colour=HEADS[1], bold=True)
    d.text(across[-1] + 20, 174, "she … him", anchor="end", bold=True)
    d.text(across[-1] - 70, 174, "the answer:", anchor="end", colour="faint")
    return d


def numbers(d: Drawing, x: float, y: float, rows: Table, columns: int, *, cell: float = 44) -> None:
    """Draw rows of values; their first two columns belong to head ``columns``, the rest to 2."""
    d.grid(
        x,
        y,
        len(rows),
        len(rows[0]),
        cell=cell,
        cell_height=20,
        colour=lambda _, c: HEADS[columns + c // 2],
        words=lambda t, c: shown(rows[t][c]),
        size=12,
    )


def shown(x: float) -> str:
    return f"{round(x, 2) + 0.0:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def table(layout: Layout, block: int | None = None) -> Table:
    parts = layout.parts if block is None else layout.parts[block]
    return parts.tolist()


def split_and_merge() -> Drawing:
    """The values of five words are cut, moved into two heads, attended and joined."""
    d = Drawing(624)
    steps = walk(vectors(SENTENCE))
    left = 190
    numbers(d, left, 14, table(steps[0]), 0)
    d.text(12, 30, "V = X W_V", anchor="start", bold=True)
    shape(d, 56, "(5, 4)", "n, d_{model}")
    row_names(d, left - 8, 14)
    step(d, left + 88, 118, "cut, transpose")
    for i in range(2):
        x = left - 8 + 104 * i
        d.text(x + 44, 168, f"head {i + 1}", colour=HEADS[i], bold=True)
        numbers(d, x, 176, table(steps[2], i), i)
        d.arrow((x + 44, 280), (x + 44, 300), colour=HEADS[i])
        d.box(x - 4, 303, 96, 28, "attention", colour=HEADS[i])
        d.arrow((x + 44, 335), (x + 44, 355), colour=HEADS[i])
        numbers(d, x, 360, table(steps[3], i), i)
    row_names(d, left - 16, 176)
    row_names(d, left - 16, 360)
    shape(d, 200, "(2, 5, 2)", "h, n, d_k")
    step(d, left + 88, 466, "transpose, join")
    numbers(d, left, 506, table(steps[5]), 0)
    row_names(d, left - 8, 506)
    shape(d, 534, "(5, 4)", "n, d_{model}")
    return d


def row_names(d: Drawing, x: float, y: float) -> None:
    for i, word in enumerate(WORDS):
        d.text(x, y + 15 + 20 * i, word, anchor="end", size=12)


def shape(d: Drawing, y: float, sizes: str, letters: str) -> None:
    d.text(12, y, sizes, anchor="start", bold=True)
    d.text(12, y + 20, letters, anchor="start", colour="faint")


def step(d: Drawing, x: float, y: float, words: str) -> None:
    d.arrow((x, y), (x, y + 27))
    d.text(x - 12, y + 18, words, anchor="end", size=12)


def storage_in_a_row() -> Drawing:
    """Twenty values in a row of storage, and what heads get of them by transpose and by view."""
    d = Drawing(390)
    d.text(210, 20, "twenty values, word after word, as they are in storage")
    for half in range(10):
        d.grid(
            10 + 40 * half, 32, 1, 2, cell=20, cell_height=24, colour=HEADS[half % 2], shade=0.35
        )
    for i, named in enumerate(WORDS):
        d.text(50 + 80 * i, 74, named, size=13)
        d.line((10 + 80 * i, 28), (10 + 80 * i, 60))
    right, wrong = walk(vectors(SENTENCE))[2], walk(vectors(SENTENCE), "straight into heads")[2]
    origins: list[Callable[[int, int], tuple[int, int]]] = [
        lambda head, row: (row, head),
        lambda head, row: divmod(5 * head + row, 2),
    ]
    ways = [(104, "cut, transposed", "right", right), (256, "one view", "wrong", wrong)]
    for (y, title, verdict, layout), origin in zip(ways, origins, strict=True):
        d.text(12, y + 34, title, anchor="start")
        d.text(12, y + 54, verdict, anchor="start", bold=True)
        for i in range(2):
            x = 184 + 146 * i
            d.text(x + 40, y + 10, f"head {i + 1}", bold=True, size=13)
            for row in range(5):
                word, half = origin(i, row)
                d.text(x - 6, y + 33 + 22 * row, WORDS[word], anchor="end", size=12)
                cells = Layout(layout.parts[i : i + 1, row])
                numbers(d, x, y + 18 + 22 * row, table(cells), half, cell=42)
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
    "layer-with-heads": lambda: layer("heads"),
    "two-heads": two_heads,
    "split-and-merge": split_and_merge,
    "storage-in-a-row": storage_in_a_row,
    "one-large-matrix": one_large_matrix,
}
