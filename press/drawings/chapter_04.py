"""Chapter 4: the mask on a map, a sentence shifted against itself, and two masks at once."""

from __future__ import annotations

from collections.abc import Callable
from math import log

from press.drawings.kit import KEY, QUERY, Drawing

CELL = 28


def causal_mask() -> Drawing:
    """A mask, the scores it leaves, and the weights: nothing above the diagonal."""
    d = Drawing(206)

    def score(i: int, j: int) -> str:
        return f"{log(2**j):.1f}" if j <= i else "−∞"

    def weight(i: int, j: int) -> float:
        return 2**j / (2 ** (i + 1) - 1) if j <= i else 0.0

    def weight_text(i: int, j: int) -> str:
        return f"{w:.2f}"[1:] if 0 < (w := weight(i, j)) < 1 else f"{w:.0f}"

    titled_grid(
        d, 30, "mask", shade=lambda i, j: 0.3 * (j <= i), words=lambda i, j: "T" if j <= i else "F"
    )
    titled_grid(d, 164, "masked scores", shade=lambda i, j: 0.12 * (j <= i), words=score)
    titled_grid(
        d,
        298,
        "weights",
        shade=lambda i, j: 0.35 * weight(i, j),
        words=weight_text,
    )
    for i in range(4):
        d.text(18, 78 + CELL * i, str(i + 1), colour=QUERY, size=12)
    for x in (148, 282):
        d.arrow((x - 3, 116), (x + 13, 116))
    d.text(30, 194, "rows: queries", colour=QUERY, size=12, anchor="start")
    d.text(164, 194, "columns: keys", colour=KEY, size=12, anchor="start")
    d.text(298, 194, "rows sum to 1", colour="faint", size=12, anchor="start")
    return d


def titled_grid(
    d: Drawing,
    x: float,
    title: str,
    *,
    shade: Callable[[int, int], float],
    words: Callable[[int, int], str],
) -> None:
    d.text(x + 2 * CELL, 22, title, bold=True)
    for j in range(4):
        d.text(x + CELL * (j + 0.5), 52, str(j + 1), colour=KEY, size=12)
    d.grid(x, 60, 4, 4, cell=CELL, shade=shade, words=words)


def teacher_forcing() -> Drawing:
    """Five inputs and five targets, the same sentence one word further; position 3 sees three."""
    d = Drawing(236)
    sentence = ["the", "cat", "sat", "on", "the", "mat"]
    across = [114 + 65 * i for i in range(5)]
    d.text(12, 42, "targets", anchor="start", colour="faint")
    d.text(12, 180, "inputs", anchor="start", colour="faint")
    d.text(12, 104, "one pass,", anchor="start", colour="faint")
    d.text(12, 122, "masked", anchor="start", colour="faint")
    for i, x in enumerate(across):
        for j in range(i + 1):
            if i != 2:
                d.line((across[j], 158), (x, 66), width=1)
    for j in range(3):
        d.line((across[j], 158), (across[2], 66), colour=QUERY, width=3)
    for i, x in enumerate(across):
        d.arrow((x, 66), (x, 54), colour=QUERY if i == 2 else "faint")
        d.box(x - 28, 24, 56, 28, sentence[i + 1], colour=QUERY if i == 2 else "ink")
        d.box(x - 28, 160, 56, 28, sentence[i], colour=QUERY if i <= 2 else "ink")
    d.text(210, 220, "position 3 sees “the cat sat” and has to name “on”")
    return d


def causal_and_padding() -> Drawing:
    """The causal triangle and a mask of two padded keys: both together leave two rows empty."""
    d = Drawing(182)

    def causal(i: int, j: int) -> float:
        return 0.45 * (j <= i)

    def real(i: int, j: int) -> float:
        return 0.45 * (j >= 2)

    def both(i: int, j: int) -> float:
        return min(causal(i, j), real(i, j))

    for x, title, may in [(12, "causal", causal), (160, "real keys", real), (308, "both", both)]:
        d.text(x + 50, 22, title, bold=True)
        for j, word in enumerate("··abc"):
            d.text(x + 20 * (j + 0.5), 46, word, colour=KEY)
        d.grid(x, 54, 5, 5, cell=20, shade=may)
    d.text(136, 110, "and")
    d.text(284, 110, "=")
    d.box(305, 51, 106, 46, colour="orange", shade=0)
    d.text(408, 174, "rows with no key", colour="orange", anchor="end")
    return d


DRAWINGS = {
    "causal-mask": causal_mask,
    "teacher-forcing": teacher_forcing,
    "causal-and-padding": causal_and_padding,
}
