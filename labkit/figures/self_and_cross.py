"""Who asks a note: three questions, the note itself, or a query that the reader turns."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure
from labkit.models import cross
from labkit.models.cross import ANSWERS, QUESTIONS, WORDS

NOTES = tuple(dict.fromkeys(note.text for kind in cross.KINDS for note in cross.notes(kind)))
ASKING = ("who does what", "the note itself", "your own query")
TURNS = range(0, 360, 10)  # degrees, counted from the right, against the clock
LENGTH = 3.5  # of the reader's query, about that of the layer's own
BOTH = ["first", "second"]


class SelfAndCross(LiveFigure):
    """Let three questions ask a note, or the note itself, and watch who attends to whom.

    softmax(X W_Q (C W_K)^T / sqrt(2)) C W_V, where C is the note and X the text that asks, with the
    layer of ``models.cross.load_cross()``. Only the three questions were ever trained to ask.

    Args:
        state: the traits: the ``note``, one of those that ``models.cross.notes`` lists; who is
            ``asking``, "who does what", "the note itself" or "your own query"; and the direction
            of that query, ``turn``, in degrees.

    Raises:
        FileNotFoundError: the layer's weights are not there.

    >>> SelfAndCross(note="mia sees .").values()["shape of the weights"]
    [3, 3]
    """

    title = Unicode("Ask the note").tag(sync=True)
    caption = Unicode(
        "Above is the text that asks, below it the note that is asked. Lines are as thick as the "
        "weights. The plane shows the keys of the note's words as points and the queries as "
        "arrows. A table has the weights: a row for each query, a column for each key. You choose "
        "the note and who asks, and you can turn a query of your own."
    ).tag(sync=True)
    axes = Dict(
        {
            "shape of the weights": [["queries", "keys"]],
            "queries": ["query", BOTH],
            "keys": ["key", BOTH],
            "scaled scores": ["query", "key"],
            "weights": ["query", "key"],
            "outputs": ["query", BOTH],
            "answers": ["query", list(ANSWERS)],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(help="the layer's words, questions, matrices, and the length").tag(
        sync=True
    )
    note = Choice(NOTES, default_value="mia sees the dog .").tag(sync=True)
    asking = Choice(ASKING, default_value=ASKING[0]).tag(sync=True)
    turn = Choice(TURNS, default_value=90).tag(sync=True)

    @default("given")
    def _given(self) -> dict[str, Any]:
        names = {"names": WORDS, "asks": QUESTIONS, "answers": ANSWERS}
        weights = {name: x.tolist() for name, x in layer().items()}
        return {name: list(words) for name, words in names.items()} | weights | {"length": LENGTH}

    def values(self) -> dict[str, Any]:
        w = layer()
        memory = w["words"][cross.encode(self.note)]
        x, q = self._asking(memory)
        k, v = memory @ w["W_K"], memory @ w["W_V"]
        outputs, weights = scaled_dot_product_attention(q, k, v, return_weights=True)
        found = {
            "queries": q,
            "keys": k,
            "scaled scores": q @ k.T / q.shape[-1] ** 0.5,
            "weights": weights,
            "outputs": outputs,
            "answers": ((x + outputs) @ w["U"]).softmax(-1),
        }
        shape = {"shape of the weights": list(weights.shape)}
        return shape | {name: rows.tolist() for name, rows in found.items()}

    def _asking(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Give the vectors that ask and their queries; a query of the reader's has no vector."""
        if self.asking == ASKING[2]:
            angle = math.radians(self.turn)
            query = [[LENGTH * math.cos(angle), LENGTH * math.sin(angle)]]
            return torch.zeros(1, 2).double(), torch.tensor(query, dtype=torch.float64)
        x = layer()["questions"] if self.asking == ASKING[0] else memory
        return x, x @ layer()["W_Q"]


@cache
def layer() -> dict[str, Tensor]:
    """Load the layer's numbers once, with no negative zeros."""
    return {name: x[0] + 0.0 for name, x in cross.load_cross().state_dict().items()}
