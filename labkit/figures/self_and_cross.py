"""Whose queries, whose keys and values: the score matrix of self- and cross-attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure

# A word's vector says which of these it means.
MEANINGS = ["the", "cat", "black", "sleep", "here", "today"]
WORDS = {
    "translation": ["le", "chat", "noir", "dort", "ici"],
    "source": ["the", "black", "cat", "sleeps", "here", "today"],
}
MEANT = {"translation": [0, 1, 2, 3, 4], "source": [0, 2, 1, 3, 4, 5]}
NOUN, VERB = [0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]
ASKS_NOUN, ASKS_VERB = [4, 0, 4, 4, 0, 0], [0, 2, 0, 0, 4, 4]


def one_hot(places: list[int], factor: int = 1) -> list[list[int]]:
    """Make a vector for each of the places, with the factor there and zeros elsewhere."""
    return [[factor * (place == i) for i in range(len(MEANINGS))] for place in places]


def beside(matrix: list[list[int]], *columns: list[int]) -> list[list[int]]:
    """Add columns to a matrix."""
    return [[*row, *more] for row, *more in zip(matrix, *columns, strict=True)]


VECTORS = {name: one_hot(meant) for name, meant in MEANT.items()}
# A key says what its word means, and whether it is a noun or a verb. A query asks for the word of
# its own meaning most, and also for a noun or a verb. A value is a thing or an event, or neither.
PROJECTIONS = {
    "Q": beside(one_hot([*range(6)], 8), ASKS_NOUN, ASKS_VERB),
    "K": beside(one_hot([*range(6)]), NOUN, VERB),
    "V": [[0, 0], [4, 0], [2, 0], [0, 4], [0, 2], [0, 2]],
}


class SelfAndCross(LiveFigure):
    """Let two sentences attend to themselves or to each other, and watch the score matrix.

    softmax(X W_Q (C W_K)^T / sqrt(d_k)) C W_V, where X is the sentence that asks and C the one
    that is asked. Vectors and projections are made by hand: d_model is 6, d_k is 8 and d_v is 2.

    Args:
        state: the traits: ``translation`` (its first 1 to 5 words) and ``source`` (1 to 6), and of
            which of the two are queries (``queries_from``) and keys and values (``keys_from``).

    >>> SelfAndCross(translation=2, keys_from="source").values()["shape of the scores"]
    [2, 6]
    """

    title = Unicode("Self and cross").tag(sync=True)
    caption = Unicode(
        "Two sentences, a translation and its source, whose lengths you choose, and from which of "
        "them queries, keys and values come. Tables show the scores, the weights, more "
        "strongly coloured where they are larger, and the outputs: a row for each query, and a "
        "column of scores and weights for each key."
    ).tag(sync=True)
    axes = Dict(
        {
            "shape of the scores": [["queries", "keys"]],
            "scaled scores": ["query", "key"],
            "weights": ["query", "key"],
            "outputs": ["query", "entry"],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(
        {"words": WORDS, "vectors": VECTORS, "projections": PROJECTIONS},
        help="the words, their vectors, and the projections",
    ).tag(sync=True)
    translation = Choice(range(1, 6), default_value=4).tag(sync=True)
    source = Choice(range(1, 7), default_value=6).tag(sync=True)
    queries_from = Choice(list(WORDS), default_value="translation").tag(sync=True)
    keys_from = Choice(list(WORDS), default_value="translation").tag(sync=True)

    def values(self) -> dict[str, Any]:
        w_q, w_k, w_v = (
            torch.tensor(self.given["projections"][name], dtype=torch.float64) for name in "QKV"
        )
        x, c = self._vectors(self.queries_from), self._vectors(self.keys_from)
        q, k, v = x @ w_q, c @ w_k, c @ w_v
        outputs, weights = scaled_dot_product_attention(q, k, v, return_weights=True)
        return {
            "shape of the scores": list(weights.shape),
            "scaled scores": (q @ k.T / q.shape[-1] ** 0.5).tolist(),
            "weights": weights.tolist(),
            "outputs": outputs.tolist(),
        }

    def _vectors(self, sentence: str) -> Tensor:
        vectors = self.given["vectors"][sentence][: getattr(self, sentence)]
        return torch.tensor(vectors, dtype=torch.float64)
