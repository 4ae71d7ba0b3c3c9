"""Chapter 4: two heads on one story, the mask on a map, a story against itself, two masks."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import torch

from labkit.models import gpt, stories, training
from press.drawings.block import layer
from press.drawings.kit import KEY, QUERY, Drawing

STORY = "the box suits mia hill . mia hill reads and she".split()
LAYER, HEAD = 1, 2  # of both models, counted from 0
SEEN = 0.25  # smaller weights are left out
CELL = 29


@torch.no_grad()
def copying() -> Drawing:
    """One head of the model without a mask, and one of the usual model, on the same words."""
    d = Drawing(236)
    ids = stories.encode(" ".join(STORY))[None]
    across = [20 + 38 * i for i in range(len(STORY))]
    models = {
        "trained without a mask": training.load_unmasked(),
        "trained with the mask": gpt.load_gpt(),
    }
    for (top, line), (name, model) in zip(((24, 84), (122, 216)), models.items(), strict=True):
        weights = model(ids, return_weights=True)[1][LAYER, 0, HEAD].tolist()
        d.text(12, top, name, anchor="start", bold=True)
        for i, row in enumerate(weights):
            d.text(across[i], line, STORY[i], size=13)
            for j, weight in enumerate(row):
                if weight >= SEEN:
                    d.path(arc(across[i], across[j], line - 17), "accent", 0.5 + 4 * weight)
    return d


def arc(start: float, end: float, y: float) -> str:
    """Lead from one word to another, or in a loop to itself."""
    if start == end:
        return f"M{start - 4} {y}C{start - 14} {y - 22} {start + 14} {y - 22} {start + 4} {y}"
    high = y - min(76, 14 + abs(start - end) / 3)
    return f"M{start} {y}C{start} {high} {end} {high} {end} {y}"


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
        d, 42, "mask", shade=lambda i, j: 0.3 * (j <= i), words=lambda i, j: "T" if j <= i else "F"
    )
    titled_grid(d, 168, "masked scores", shade=lambda i, j: 0.12 * (j <= i), words=score)
    titled_grid(
        d,
        294,
        "weights",
        colour="accent",
        shade=lambda i, j: 0.35 * weight(i, j),
        words=weight_text,
    )
    for i, word in enumerate(STORY[:4]):
        d.text(36, 79 + CELL * i, word, colour=QUERY, size=12, anchor="end")
    d.text(42, 196, "rows: queries", colour=QUERY, size=12, anchor="start")
    d.text(168, 196, "columns: keys", colour=KEY, size=12, anchor="start")
    d.text(294, 196, "rows sum to 1", colour="faint", size=12, anchor="start")
    return d


def titled_grid(
    d: Drawing,
    x: float,
    title: str,
    *,
    colour: str = "ink",
    shade: Callable[[int, int], float],
    words: Callable[[int, int], str],
) -> None:
    d.text(x + 2 * CELL, 22, title, bold=True)
    for j, word in enumerate(STORY[:4]):
        d.text(x + CELL * (j + 0.5), 52, word, colour=KEY, size=12)
    d.grid(x, 60, 4, 4, cell=CELL, colour=colour, shade=shade, words=words)


def teacher_forcing() -> Drawing:
    """Five inputs and five targets, the same story one word further; position 3 sees three."""
    d = Drawing(236)
    across = [114 + 65 * i for i in range(5)]
    d.text(12, 42, "inputs", anchor="start", colour="faint")
    d.text(12, 180, "targets", anchor="start", colour="faint")
    d.text(12, 104, "one pass,", anchor="start", colour="faint")
    d.text(12, 122, "masked", anchor="start", colour="faint")
    for i, x in enumerate(across):
        for j in range(i + 1):
            if i != 2:
                d.line((across[j], 54), (x, 146), width=1)
    for j in range(3):
        d.line((across[j], 54), (across[2], 146), colour=QUERY, width=3)
    for i, x in enumerate(across):
        d.arrow((x, 146), (x, 158), colour=QUERY if i == 2 else "faint")
        d.box(x - 28, 24, 56, 28, STORY[i], colour=QUERY if i <= 2 else "ink")
        d.box(x - 28, 160, 56, 28, STORY[i + 1], colour=QUERY if i == 2 else "ink")
    d.text(210, 220, "position 3 sees “the box suits” and has to name “mia”")
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

    for x, title, may in [(48, "causal", causal), (184, "real keys", real), (312, "both", both)]:
        d.text(x + 50, 22, title, bold=True)
        for j, word in enumerate("··mhr"):
            d.text(x + 20 * (j + 0.5), 46, word, colour=KEY, is_word=True)
        d.grid(x, 54, 5, 5, cell=20, shade=may)
    for i, word in enumerate(["·", "·", "mia", "hill", "reads"]):
        d.text(40, 69 + 20 * i, word, colour=QUERY, size=13, anchor="end")
    d.text(166, 110, "and")
    d.text(298, 110, "=")
    d.box(309, 51, 106, 46, colour="pink", shade=0)
    d.text(412, 174, "rows with no key", colour="pink", anchor="end")
    return d


DRAWINGS = {
    "layer-with-mask": lambda: layer("mask"),
    "copying": copying,
    "causal-mask": causal_mask,
    "teacher-forcing": teacher_forcing,
    "causal-and-padding": causal_and_padding,
}
