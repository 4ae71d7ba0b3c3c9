"""A mask to paint, two ways to read it, and six ways to hide a score."""

from __future__ import annotations

from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.figures.base import Choice, Flags, LiveFigure
from labkit.softmax import WAYS_TO_MASK

POSITIONS = 5
METHODS = [way for way in WAYS_TO_MASK if way != "zero the scores"]


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
        "attends to the past or to itself, orange where it attends to the future; and the future's "
        "share of all weight that there is. You choose what True means and how a score is hidden."
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
        masked, weights = WAYS_TO_MASK[self.method](scores, may)
        counted = weights.nan_to_num()
        return {
            "scores after the mask": masked.tolist(),
            "weights": weights.tolist(),
            "sums of the rows": weights.sum(-1).tolist(),
            "share on the future": (counted.triu(1).sum() / counted.sum()).item(),
        }
