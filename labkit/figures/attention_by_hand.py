"""Attention of three tokens, with every number in sight."""

from __future__ import annotations

from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure, Matrix
from labkit.ledger import Document, Figures

TOKENS, WIDTH = 3, 2
COLUMNS = {"scores": TOKENS, "scaled scores": TOKENS, "exponentials": TOKENS, "weights": TOKENS}
COLUMNS |= {"outputs": WIDTH}
CELLS = [
    f"{quantity} {i + 1} {j + 1}"
    for quantity, columns in COLUMNS.items()
    for i in range(TOKENS)
    for j in range(columns)
]
# What a document prints of its example. Of the exponentials it may print the first rows only.
CLAIMS = {
    "scores": "by-hand/scores",
    "scaled scores": "by-hand/scaled-scores",
    "exponentials": "by-hand/row-1-exponentials",
    "weights": "by-hand/weights",
    "outputs": "by-hand/outputs",
}


class AttentionByHand(LiveFigure):
    """Follow three queries, keys and values to the outputs, and check what a document prints.

    softmax(Q K^T / sqrt(d_k)) V for Q, K and V of shape (3, 2).

    Args:
        document: the ledger whose printed figures can be laid over the computed ones.
        state: the traits: ``Q``, ``K``, ``V``, ``chosen`` (a cell such as ``"outputs 1 2"``,
            counted from 1) and ``show_printed``.

    >>> AttentionByHand(K=torch.zeros(3, 2)).values()["outputs"][0]
    [5.0, 5.0]
    """

    title = Unicode("Attention of three tokens, by hand").tag(sync=True)
    caption = Unicode(
        "Queries, keys and values of three tokens, which you can change, and what follows from "
        "them: scores; scaled scores and exponentials, the two steps from scores to weights; "
        "weights; outputs. Choose a computed number, and its arithmetic is written out."
    ).tag(sync=True)
    axes = Dict({name: ["query", "key"] for name in COLUMNS} | {"outputs": ["token", "entry"]}).tag(
        sync=True
    )
    Q = Matrix(TOKENS, WIDTH, default_value=[[1, 0], [0, 1], [1, 1]]).tag(sync=True)
    K = Matrix(TOKENS, WIDTH, default_value=[[1, 0], [0, 1], [1, 1]]).tag(sync=True)
    V = Matrix(TOKENS, WIDTH, default_value=[[10, 0], [0, 10], [5, 5]]).tag(sync=True)
    chosen = Choice(CELLS, default_value="weights 3 1").tag(sync=True)
    show_printed = Choice([False, True], default_value=False).tag(sync=True)
    printed = Dict(help="of a document: its Q, K and V, and what it prints").tag(sync=True)

    def __init__(self, *, document: Document | None = None, **state: Any) -> None:
        super().__init__(**state)
        if document is not None:
            self.printed = {
                "document": document.key,
                "given": {"Q": self.Q, "K": self.K, "V": self.V},
                "claims": {name: as_printed(document, id_) for name, id_ in CLAIMS.items()},
            }

    def values(self) -> dict[str, Any]:
        q, k, v = (torch.tensor(x, dtype=torch.float64) for x in (self.Q, self.K, self.V))
        scores = q @ k.T
        scaled = scores / WIDTH**0.5
        outputs, weights = scaled_dot_product_attention(q, k, v, return_weights=True)
        computed = (scores, scaled, scaled.exp(), weights, outputs)
        return {name: x.tolist() for name, x in zip(COLUMNS, computed, strict=True)}


def as_printed(document: Document, claim_id: str) -> dict[str, Any]:
    """Give what a document prints: its first rows, and to how many places."""
    claim = document.claim(claim_id)
    assert isinstance(claim, Figures)
    rows = claim.value if isinstance(claim.value[0], list) else [claim.value]
    return {"rows": rows, "places": claim.places}
