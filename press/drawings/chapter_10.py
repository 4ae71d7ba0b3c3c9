"""Chapter 10: what fixes which word, a block in its stream, and a pair that is turned."""

from __future__ import annotations

from math import cos, radians, sin

from press.drawings.block import gpt
from press.drawings.kit import HEADS, SMALL, Drawing

STORY = [
    sentence.split()
    for sentence in (
        "the map suits mia lake .",
        "mia lake sings and she is calm .",
        "the dogs near the cow run .",
        "the map mia lake has is old .",
    )
]
FIXED = {(1, 1), (1, 4), (2, 5), (3, 2), (3, 3)}  # row and place


def fixed_words() -> Drawing:
    """Four sentences; from each fixed word an arrow to where its answer can be read.

    A relation has the colour of its curve in the charts of `plots.lines`.
    """
    d = Drawing(316)
    at: dict[tuple[int, int], tuple[float, float]] = {}
    for row, words in enumerate(STORY):
        x, y = 30.0, 28.0 + 84 * row
        for i, word in enumerate(words):
            wide = 11 + 8.4 * len(word)
            at[row, i] = (x + wide / 2, y)
            d.box(x, y - 14, wide, 26, word, shade=0.22 if (row, i) in FIXED else 0.03, size=13)
            x += wide + 5

    def above(place: tuple[int, int], high: float) -> tuple[float, float]:
        return at[place][0], at[place][1] - high

    def arrow(start: tuple[int, int], end: tuple[int, int], high: float, head: int) -> None:
        down = -15.0 if start[0] != end[0] else 16.0
        way = above(start, 16), above(start, high), (at[end][0], at[start][1] - high)
        d.arrow(*way, above(end, down), colour=HEADS[head], width=2)

    arrow((1, 1), (0, 4), 46, 1)
    arrow((1, 4), (1, 0), 30, 2)
    arrow((2, 5), (2, 1), 30, 3)
    x, y = at[0, 3]
    around = above((3, 2), 16), above((3, 2), 40), (17, at[3, 2][1] - 40), (17, y + 25)
    d.arrow(*around, (x, y + 25), (x, y + 15), colour=HEADS[0], width=2)
    d.text(at[0, 4][0] + 8, 66, "surname", colour=HEADS[1], size=SMALL, anchor="start")
    d.text(268, 92, "gender", colour=HEADS[2], size=SMALL, anchor="start")
    d.text(304, 176, "number", colour=HEADS[3], size=SMALL, anchor="start")
    d.text(68, 233, "owner", colour=HEADS[0], size=SMALL)
    return d


def turned_pair() -> Drawing:
    """A query and a key as arrows, both moved on by three places: the angle between them stays."""
    d = Drawing(196)
    step, key, query = 24.0, 6.0, 30.0  # degrees: a place, and the arrows at position 0

    def end(x: float, degrees: float, length: float) -> tuple[float, float]:
        return x + length * cos(radians(degrees)), 140 - length * sin(radians(degrees))

    for x, places in ((100.0, (1, 0)), (312.0, (4, 3))):
        low, high = key + step * places[1], query + step * places[0]
        for degrees, colour, name in ((high, "blue", "query"), (low, "green", "key")):
            d.arrow((x, 140), end(x, degrees, 78), colour=colour, width=3)
            across, up = end(x, degrees, 96)
            d.text(across, up + 4, name, colour=colour, size=SMALL)
        (x1, y1), (x2, y2) = end(x, low, 40), end(x, high, 40)
        d.path(f"M{x1:.1f} {y1:.1f}A40 40 0 0 0 {x2:.1f} {y2:.1f}", colour="ink", width=2)
        d.line((x - 80, 140), (x + 80, 140), dashed=True)
        d.text(x, 166, f"positions {places[0]} and {places[1]}", size=13)
        d.text(x, 184, "one apart", size=SMALL, colour="faint")
    return d


DRAWINGS = {
    "fixed-words": fixed_words,
    "block-and-stream": gpt,
    "turned-pair": turned_pair,
}
