"""The output projection seen twice: as one product, and as a sum of what the heads write."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default

from labkit.attention import merge_heads
from labkit.figures.base import Choice, LiveFigure, Matrix
from labkit.models import two_needs
from labkit.models.two_needs import ANSWERS

HEADS, WIDTH = 2, 2
D_MODEL = HEADS * WIDTH
SENTENCE = "mia calls ben now and"
HEADS_BY_HAND = [[-1.0, -2.5], [4.5, 3.0]]  # what they give there, rounded to halves
AXES: dict[str, Any] = {
    "side by side": ["entry"],
    "side by side, times W_O": ["number"],
    "written": ["head", "number"],
    "sum of what is written": ["number"],
    "heads that reach a number": ["number"],
    "sum of the slabs": ["row", "number"],
    "one head through the sum of the slabs": ["number"],
    "votes": [["the word itself", "head 1", "head 2", "sum"], list(ANSWERS)],
}


class OutputProjection(LiveFigure):
    """Put two heads side by side and multiply by W_O, or send each through its slab and add.

    [H1 H2] W_O = H1 W_O1 + H2 W_O2 for one word, two heads of width 2 and W_O of shape (4, 4); each
    part times U is what it adds to the logits of the answers. The numbers are those of
    ``models.two_needs.load_two_needs("two heads and W_O")`` at the last word of a sentence.

    Args:
        state: the traits: ``heads`` (a row of two numbers a head), ``W_O``, ``number`` (the one of
            the output that is written out), ``head_1`` and ``head_2`` (whether they are switched
            on), and ``shared`` (head 2 gives what head 1 gives).

    Raises:
        FileNotFoundError: the layer's weights are not there.

    >>> OutputProjection().values()["written"][0]
    [-2.5, 7.25, 0.0, 1.25]
    """

    title = Unicode("Concatenate and project, or add what the heads write").tag(sync=True)
    caption = Unicode(
        "The outputs of two heads for one word, and W_O, all of which you can change. Head 1 and "
        "its two rows of W_O are blue, head 2 and its two rows orange. Tables show the heads side "
        "by side and their product with W_O, what each head writes and the sum, what each part "
        "adds to the logits of the four answers, and, where the heads share, one head through the "
        "sum of both slabs. What would change nothing is faint and locked."
    ).tag(sync=True)
    axes = Dict(AXES).tag(sync=True)
    heads = Matrix(HEADS, WIDTH, default_value=HEADS_BY_HAND).tag(sync=True)
    W_O = Matrix(D_MODEL, D_MODEL).tag(sync=True)
    given: Dict[str, Any] = Dict(help="the last word's vector, U, and the answers").tag(sync=True)
    number = Choice(range(1, D_MODEL + 1), default_value=1).tag(sync=True)
    head_1 = Choice([False, True], default_value=True).tag(sync=True)
    head_2 = Choice([False, True], default_value=True).tag(sync=True)
    shared = Choice([False, True], default_value=False).tag(sync=True)

    @default("W_O")
    def _trained(self) -> list[list[float]]:
        return layer()["W_O"].tolist()

    @default("given")
    def _given(self) -> dict[str, Any]:
        return {"word": word().tolist(), "U": layer()["U"].tolist(), "answers": list(ANSWERS)}

    def values(self) -> dict[str, Any]:
        heads, W_O = (torch.tensor(x, dtype=torch.float64) for x in (self.heads, self.W_O))
        on = torch.tensor([[self.head_1], [self.head_2]])
        given = (heads[:1].expand(HEADS, -1) if self.shared else heads) * on
        slabs = W_O.unflatten(0, (HEADS, WIDTH)) * on[..., None]
        side_by_side = merge_heads(given[:, None])
        written = torch.einsum("hv,hvm->hm", given, slabs)
        parts = [word(), *written]
        computed = (
            side_by_side[0],
            (side_by_side @ W_O)[0],
            written,
            written.sum(0),
            slabs.any(1).sum(0),
            slabs.sum(0),
            (heads if self.shared else given)[0] @ slabs.sum(0),
            torch.stack([*parts, sum(parts)]) @ layer()["U"],
        )
        return {name: x.tolist() for name, x in zip(AXES, computed, strict=True)}


@cache
def layer() -> dict[str, Tensor]:
    """Load the layer's numbers once, with no negative zeros."""
    model = two_needs.load_two_needs("two heads and W_O")
    return {name: x[0] + 0.0 for name, x in model.state_dict().items()}


def word() -> Tensor:
    """Give the vector of the sentence's last word at its position, (4,)."""
    return layer()["words"][two_needs.encode(SENTENCE)[-1]] + layer()["positions"][-1]
