"""A query that is turned by hand among three words, and what its word becomes."""

from __future__ import annotations

from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import LiveFigure, Matrix

WORDS = ["river", "bank", "money"]
# Each is its word's key and its value.
VECTORS = [[-2.0, 1.0], [0.0, -1.7], [2.0, 1.0]]


class TurnedQuery(LiveFigure):
    """Turn the query of one of three words, and watch scores, weights and the mixed value.

    softmax(q K^T / sqrt(2)) V, where K and V hold the same three vectors of two numbers.

    Args:
        state: the trait ``query``, a row of two numbers.

    >>> weights = TurnedQuery(query=[[0, 0]]).values()["weights"]
    >>> [round(weight, 3) for weight in weights]
    [0.333, 0.333, 0.333]
    """

    title = Unicode("What does “bank” mean?").tag(sync=True)
    caption = Unicode(
        "Each of three words has a vector of two numbers, chosen for this drawing: its key and its "
        "value. The query is what the word bank asks for. Its dot product with a key, divided by "
        "√2, is a score; the scores become weights that sum to one; and with these weights the "
        "values are mixed into the new vector of bank. A longer query makes the weights less even."
    ).tag(sync=True)
    axes = Dict({"scores": [WORDS], "weights": [WORDS], "mixed value": [["first", "second"]]}).tag(
        sync=True
    )
    query = Matrix(1, 2, default_value=[[0.3, 1.6]]).tag(sync=True)
    words = Dict(dict(zip(WORDS, VECTORS, strict=True))).tag(sync=True)

    def values(self) -> dict[str, Any]:
        query = torch.tensor(self.query, dtype=torch.float64)
        vectors = torch.tensor(VECTORS, dtype=torch.float64)
        mixed, weights = scaled_dot_product_attention(query, vectors, vectors, return_weights=True)
        scores = query @ vectors.T / vectors.shape[-1] ** 0.5
        return {
            "scores": scores[0].tolist(),
            "weights": weights[0].tolist(),
            "mixed value": mixed[0].tolist(),
        }
