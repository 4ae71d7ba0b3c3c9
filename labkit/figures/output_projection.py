"""The output projection seen twice: as one product, and as a sum of what the heads write."""

from __future__ import annotations

from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.attention import merge_heads
from labkit.figures.base import Choice, LiveFigure, Matrix

HEADS, WIDTH = 2, 2
D_MODEL = HEADS * WIDTH
AXES = {
    "side by side": ["entry"],
    "side by side, times W_O": ["number"],
    "written": ["head", "number"],
    "sum of what is written": ["number"],
    "heads that reach a number": ["number"],
    "sum of the slabs": ["row", "number"],
    "one head through the sum of the slabs": ["number"],
}


class OutputProjection(LiveFigure):
    """Put two heads side by side and multiply by W_O, or send each through its slab and add.

    [H1 H2] W_O = H1 W_O1 + H2 W_O2 for one token, two heads of width 2 and W_O of shape (4, 4).

    Args:
        state: the traits: ``heads`` (a row of two numbers a head), ``W_O``, ``number`` (the one of
            the output that is written out), ``head_1`` and ``head_2`` (whether they are switched
            on), and ``shared`` (head 2 gives what head 1 gives).

    >>> OutputProjection(shared=True).values()["one head through the sum of the slabs"]
    [6.0, 3.0, 4.0, 0.0]
    """

    title = Unicode("Concatenate and project, or add what the heads write").tag(sync=True)
    caption = Unicode(
        "The outputs of two heads for one token, and W_O, all of which you can change. Head 1 and "
        "its two rows of W_O are blue, head 2 and its two rows orange. Tables show the heads side "
        "by side and their product with W_O, what each head writes and the sum, and, where the "
        "heads share, one head through the sum of both slabs. What would change nothing is faint "
        "and locked."
    ).tag(sync=True)
    axes = Dict(AXES).tag(sync=True)
    heads = Matrix(HEADS, WIDTH, default_value=[[1, 2], [3, -1]]).tag(sync=True)
    W_O = Matrix(
        D_MODEL,
        D_MODEL,
        default_value=[[1, 0, 2, 0], [0, 1, 0, -1], [1, 1, 0, 0], [2, 0, 1, 1]],
    ).tag(sync=True)
    number = Choice(range(1, D_MODEL + 1), default_value=1).tag(sync=True)
    head_1 = Choice([False, True], default_value=True).tag(sync=True)
    head_2 = Choice([False, True], default_value=True).tag(sync=True)
    shared = Choice([False, True], default_value=False).tag(sync=True)

    def values(self) -> dict[str, Any]:
        heads, W_O = (torch.tensor(x, dtype=torch.float64) for x in (self.heads, self.W_O))
        on = torch.tensor([[self.head_1], [self.head_2]])
        given = (heads[:1].expand(HEADS, -1) if self.shared else heads) * on
        slabs = W_O.unflatten(0, (HEADS, WIDTH)) * on[..., None]
        side_by_side = merge_heads(given[:, None])
        written = torch.einsum("hv,hvm->hm", given, slabs)
        computed = (
            side_by_side[0],
            (side_by_side @ W_O)[0],
            written,
            written.sum(0),
            slabs.any(1).sum(0),
            slabs.sum(0),
            (heads if self.shared else given)[0] @ slabs.sum(0),
        )
        return {name: x.tolist() for name, x in zip(AXES, computed, strict=True)}
