"""A mask to paint, two ways to read it, and six ways to hide a score."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode

from labkit.attention import scaled_dot_product_attention
from labkit.live.base import Choice, Flags, LiveFigure

POSITIONS = 5
FILLS = {"fill with -inf": -inf, "fill with -1e9": -1e9}
ADDED = {"add -inf": -inf, "add -10000": -1e4}
METHODS = [*FILLS, *ADDED, "zero the weights", "as labkit"]


class MaskPainter(LiveFigure):
    """Paint a mask and see which weights are left.

    The scores are 0, ln 2, 2 ln 2, ... in every row, whose exponentials are 1, 2, 4, 8 and 16:
    rows differ by their masks alone.

    Args:
        state: the traits: ``mask`` (5 rows of 5 flags), ``true_means`` ("may attend" or "hidden")
            and ``method``: hidden scores are replaced ("fill with -inf", "fill with -1e9"), or a
            number is added to them ("add -inf", "add -10000"), or their weights become zero
            afterwards ("zero the weights"), or labkit masks ("as labkit").

    >>> MaskPainter(mask=torch.eye(5) > 0).values()["weights"][1]
    [0.0, 1.0, 0.0, 0.0, 0.0]
    """

    title = Unicode("Paint a mask").tag(sync=True)
    caption = Unicode(
        "A mask of five queries and five keys, each entry True or False, which you paint; the "
        "scores after the mask; and the weights with the sum of each row, blue where a query "
        "attends to the past or to itself, orange where it attends to the future. You choose what "
        "True means and how a score is hidden."
    ).tag(sync=True)
    axes = Dict(
        {
            "scores after the mask": ["query", "key"],
            "weights": ["query", "key"],
            "sums of the rows": ["query"],
        }
    ).tag(sync=True)
    mask = Flags(POSITIONS, POSITIONS, default_value=[[True] * POSITIONS] * POSITIONS).tag(
        sync=True
    )
    true_means = Choice(["may attend", "hidden"], default_value="may attend").tag(sync=True)
    method = Choice(METHODS, default_value="fill with -inf").tag(sync=True)

    def values(self) -> dict[str, Any]:
        may = torch.tensor(self.mask) == (self.true_means == "may attend")
        scores = torch.arange(POSITIONS, dtype=torch.float64).exp2().log().repeat(POSITIONS, 1)
        masked, weights = attend(scores, may, self.method)
        return {
            "scores after the mask": masked.tolist(),
            "weights": weights.tolist(),
            "sums of the rows": weights.sum(-1).tolist(),
            "share on the future": weights.nan_to_num().triu(1).sum().item() / POSITIONS,
        }


def attend(scores: Tensor, may: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """Give the scores after the mask, and the weights, by one of the methods."""
    if method in FILLS:
        masked = scores.masked_fill(~may, FILLS[method])
        return masked, masked.softmax(-1)
    if method in ADDED:
        masked = scores + torch.zeros_like(scores).masked_fill(~may, ADDED[method])
        return masked, masked.softmax(-1)
    if method == "zero the weights":
        return scores, scores.softmax(-1) * may
    unit = torch.eye(len(scores), dtype=scores.dtype)
    _, weights = scaled_dot_product_attention(
        scores, unit, unit, may, scale=1.0, return_weights=True
    )
    return scores.masked_fill(~may, -inf), weights
