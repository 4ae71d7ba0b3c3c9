"""How a softmax saturates as the width of queries and keys grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from traitlets import Dict, Unicode

from labkit.figures.base import Choice, LiveFigure, Whole
from labkit.softmax import softmax_jacobian

WIDTHS = [2**i for i in range(11)]
KEYS = [2, 3, 5, 10, 20]
MOST_DRAWS = 1000
NEARLY_ONE = 0.99
BINS = 20
EDGES = [f"{i / BINS:.2f} to {(i + 1) / BINS:.2f}" for i in range(BINS)]
NUMBERS_PER_DRAW = KEYS[-1] + WIDTHS[-1]


class Saturation(LiveFigure):
    """Draw a query and keys again and again, and watch the largest of the weights.

    A draw is one query and its keys, entries standard normal. Given the query, the scores are
    exactly normal with deviation ‖q‖, so a draw takes one number a key and d_k for the query.
    The numbers of a draw depend on the seed and its place alone: moving a control shows the same
    draws at another setting.

    Args:
        state: the traits: ``d_k`` (a power of two to 1024), ``n_k`` keys (2, 3, 5, 10 or 20),
            ``divided`` (by the root of d_k), ``draws`` (at most 1000) and ``seed``.

    >>> Saturation(d_k=4, n_k=2, draws=7).values()["draws by largest weight"][:10]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    """

    title = Unicode("The largest weight, draw after draw").tag(sync=True)
    caption = Unicode(
        "A query and its keys are drawn at random. Bars show the weights of the latest draw; a "
        "histogram shows the largest weight of every draw so far. You choose the width, the number "
        "of keys, and whether the scores are divided by the root of the width. The norm of the "
        "Jacobian, the table of the weights' derivatives, tells how much a small change of the "
        "scores can still change the weights."
    ).tag(sync=True)
    axes = Dict({"weights": ["key"], "draws by largest weight": [EDGES]}).tag(sync=True)
    d_k = Choice(WIDTHS, default_value=64).tag(sync=True)
    n_k = Choice(KEYS, default_value=10).tag(sync=True)
    divided = Choice([False, True], default_value=False).tag(sync=True)
    draws = Whole(1, MOST_DRAWS, default_value=1).tag(sync=True)
    seed = Whole(0, 2**32 - 1, default_value=0).tag(sync=True)

    def values(self) -> dict[str, Any]:
        count = self.draws * NUMBERS_PER_DRAW
        numbers = torch.from_numpy(normals(self.seed, count)).view(self.draws, -1)
        length = numbers[:, KEYS[-1] : KEYS[-1] + self.d_k].norm(dim=1, keepdim=True)
        scores = length * numbers[:, : self.n_k]
        weights = (scores / self.d_k**0.5 if self.divided else scores).softmax(-1)
        largest = weights.amax(-1)
        bins = (largest * BINS).long().clamp(max=BINS - 1)
        return {
            "weights": weights[-1].tolist(),
            "largest weight": largest[-1].item(),
            "norm of the Jacobian": softmax_jacobian(weights[-1]).norm().item(),
            f"draws above {NEARLY_ONE}": int((largest > NEARLY_ONE).sum()),
            "draws by largest weight": bins.bincount(minlength=BINS).tolist(),
        }


def normals(seed: int, count: int) -> NDArray[np.float64]:
    """Draw standard normal numbers that a browser can draw too, by Box and Muller's method.

    Each pair takes two uniform numbers: r = sqrt(-2 ln u), then r cos(2 pi v) and r sin(2 pi v).
    """
    u, v = uniforms(seed, count).reshape(-1, 2).T
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """Draw uniform numbers between 0 and 1 by mulberry32, which counts and scrambles 32 bits."""
    steps = np.arange(1, count + 1, dtype=np.uint32)
    x = np.uint32(seed) + steps * np.uint32(0x6D2B79F5)
    x = (x ^ (x >> np.uint32(15))) * (x | np.uint32(1))
    x ^= x + (x ^ (x >> np.uint32(7))) * (x | np.uint32(61))
    return ((x ^ (x >> np.uint32(14))) + 0.5) / 2**32
