"""The values of five words through split, attention and merge, rightly and by a mistake."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure
from labkit.models import two_needs
from labkit.models.two_needs import ANSWERS, D_MODEL, LENGTH

HEADS = 2
STEPS = 6  # as projected, cut, moved, attended, moved back, joined
STRAIGHT, NEVER, NOT_BACK = MISTAKES = ["straight into heads", "never moved", "not moved back"]
SENTENCES = (
    "mia calls ben now and",
    "ben calls mia now and",
    "mia calls eva now and",
    "now tom thanks leo and",
    "ann now thanks tom and",
)
TOO_SMALL = 1e-9  # for a difference


class Layout(NamedTuple):
    """Numbers of five words and two heads in some order, and which two axes hold words and heads.

    Where the numbers are in rows of four, (..., 5, 4), there is no axis of heads.
    """

    parts: Tensor
    words_first: bool = True
    rows: bool = False

    def moved(self) -> Layout:
        return Layout(self.parts.transpose(-3, -2), not self.words_first)

    def by_word(self) -> Tensor:
        """Give the numbers as whoever reads this layout takes them: (..., word, head, 2)."""
        if self.rows:
            return self.parts.unflatten(-1, (HEADS, -1))
        return self.parts if self.words_first else self.parts.transpose(-3, -2)


class SplitAndMerge(LiveFigure):
    """Follow a layer's values from the projection to the joined heads, beside a mistake.

    The layer is that of ``models.two_needs.load_two_needs()``: five words of four numbers, two
    heads. Queries and keys are cut and moved as the values are.

    Args:
        state: the traits: the ``sentence``, one of five; the ``step`` (0 to 5: as projected, cut,
            moved, attended, moved back, joined); and the ``mistake`` ("straight into heads": one
            view in place of cutting and moving; "never moved"; or "not moved back").

    Raises:
        FileNotFoundError: the layer's weights are not there.

    >>> SplitAndMerge(step=1).values()["numbers that are wrong"]
    16
    """

    title = Unicode("Split and merge, step by step").tag(sync=True)
    caption = Unicode(
        "The values of five words, four numbers a word, go through split, attention and merge: "
        "rightly, and beside it with a mistake. The numbers of head 1 are blue, those of head 2 "
        "orange, and × marks a number that is not what it should be there. The strip above has all "
        "twenty numbers as they lie in storage. At the end stand the layer's answers. You choose "
        "the sentence, the step and the mistake."
    ).tag(sync=True)
    axes = Dict(
        {
            "right": ["row", "column"],
            "wrong": ["row", "column"],
            "answers": [["right", "wrong"], list(ANSWERS)],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(help="the sentences' vectors, and the layer's matrices").tag(
        sync=True
    )
    sentence = Choice(SENTENCES, default_value=SENTENCES[0]).tag(sync=True)
    step = Choice(range(STEPS), default_value=0).tag(sync=True)
    mistake = Choice(MISTAKES, default_value=STRAIGHT).tag(sync=True)

    @default("given")
    def _given(self) -> dict[str, Any]:
        inputs = {text: vectors(text).tolist() for text in SENTENCES}
        matrices = {name: layer()[name].tolist() for name in ("W_Q", "W_K", "W_V", "U")}
        return {"inputs": inputs, "answers": list(ANSWERS)} | matrices

    def values(self) -> dict[str, Any]:
        x = vectors(self.sentence)
        right, wrong = walk(x), walk(x, self.mistake)
        here = right[self.step], wrong[self.step]
        differs = (here[0].by_word() - here[1].by_word()).abs() > TOO_SMALL
        ends = torch.stack([(x + steps[-1].parts)[-1] for steps in (right, wrong)])
        return {
            "right": here[0].parts.flatten(0, -2).tolist(),
            "wrong": here[1].parts.flatten(0, -2).tolist(),
            "numbers that are wrong": int(differs.sum()),
            "answers": (ends @ layer()["U"]).softmax(-1).tolist(),
        }


@cache
def layer() -> dict[str, Tensor]:
    """Load the layer's numbers once, with no negative zeros."""
    return {name: x[0] + 0.0 for name, x in two_needs.load_two_needs().state_dict().items()}


def vectors(sentence: str) -> Tensor:
    """Give the vectors of a sentence's words at their positions, (5, 4)."""
    return layer()["words"][two_needs.encode(sentence)] + layer()["positions"]


def walk(x: Tensor, mistake: str | None = None) -> list[Layout]:
    """Give the layout after each step: of values, and from the fourth on of what heads put out."""
    qkv = torch.stack([x @ layer()[name] for name in ("W_Q", "W_K", "W_V")])
    if mistake == STRAIGHT:
        cut = Layout(qkv.view(3, HEADS, LENGTH, -1), words_first=False)
    else:
        cut = Layout(qkv.unflatten(-1, (HEADS, -1)))
    moved = cut if mistake in (STRAIGHT, NEVER) else cut.moved()
    attended = moved._replace(parts=scaled_dot_product_attention(*moved.parts))
    back = attended if mistake in (NEVER, NOT_BACK) else attended.moved()
    joined = Layout(back.parts.reshape(LENGTH, D_MODEL), rows=True)
    values = [layout._replace(parts=layout.parts[2]) for layout in (cut, moved)]
    return [Layout(qkv[2], rows=True), *values, attended, back, joined]
