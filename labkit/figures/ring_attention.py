"""Positions on several ranks: keys and values go round a ring, and the pairs that each computes."""

from __future__ import annotations

from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.attention import causal_mask
from labkit.figures.base import Choice, LiveFigure, Whole
from labkit.models.parallel import places

ROW, ZIGZAG = "in a row", "in zigzag"
N, D_MODEL = 32, 64  # positions, and the width of the small GPT
BYTES = 4  # of a number
MOST = 8  # ranks
NAMES = [f"rank {rank}" for rank in range(MOST)]  # counted from 0, as PyTorch does
OF_QUERIES = [f"queries of {name}" for name in NAMES]
OF_KEYS = [f"keys of {name}" for name in NAMES]


class RingAttention(LiveFigure):
    """Split 32 positions over W ranks, and let their keys and values go round, causally masked.

    A rank has n/W positions in a row, or in zigzag n/2W from the front and as many as far from the
    end. Its queries stay. After each of W steps it hands the keys and values that it has to the
    next rank; a pair is computed where its query and its key are on the same rank. Keys and values
    have 64 numbers each a position, of four bytes.

    Args:
        state: the traits: ``world``, the number of ranks (2, 4 or 8), ``order`` ("in a row" or "in
            zigzag"), and ``step`` (1 to 8; after the last of W, the last).

    >>> RingAttention(step=4).values()["pairs of a rank"]
    [[0, 36, 36], [0, 100, 100], [0, 164, 164], [64, 228, 228]]
    """

    title = Unicode("Keys and values go round").tag(sync=True)
    caption = Unicode(
        "Each box is a rank with its own queries, which stay, and the keys and values that it has "
        "now. In each step these move on to the next rank. In the grid, with the queries' ranks "
        "to the left and the keys' ranks above, a pair is strongly coloured in the step that "
        "computes it and carries the number of the rank; earlier pairs are grey, later ones "
        "faint, and what the causal mask hides stays empty. A bar in a box shows how much of all "
        "pairs of that rank has been computed; a step takes as long as its busiest rank. You "
        "choose the number of ranks, and whether positions are split in a row or in zigzag."
    ).tag(sync=True)
    axes = Dict(
        {
            "pairs": [OF_QUERIES, OF_KEYS],
            "whose keys a rank has": [NAMES],
            "pairs of a rank": [NAMES, ["this step", "so far", "in all steps"]],
            "pairs of the slowest rank, added up": [["so far", "in all steps"]],
            "bytes a rank sends": [["in a move", "so far", "in all"]],
        }
    ).tag(sync=True)
    world = Choice([2, 4, 8], default_value=4).tag(sync=True)
    order = Choice([ROW, ZIGZAG], default_value=ROW).tag(sync=True)
    step = Whole(1, MOST, default_value=1).tag(sync=True)

    def values(self) -> dict[str, Any]:
        world, ranks = self.world, torch.arange(self.world)
        step = min(self.step, world)
        positions = places(N, world, zigzag=self.order == ZIGZAG)
        sees = causal_mask(N)[positions[:, None, :, None], positions[None, :, None, :]]
        pairs = sees.sum((2, 3))
        has = (ranks - torch.arange(world)[:, None]) % world  # by step: whose keys a rank has
        by_step = pairs[ranks, has]
        shares = [by_step[step - 1], by_step[:step].sum(0), by_step.sum(0)]
        slowest = by_step.amax(1)
        moved = 2 * N // world * D_MODEL * BYTES
        return {
            "pairs": pairs.tolist(),
            "whose keys a rank has": has[step - 1].tolist(),
            "pairs of a rank": torch.stack(shares, dim=1).tolist(),
            "pairs of the slowest rank, added up": [int(slowest[:step].sum()), int(slowest.sum())],
            "bytes a rank sends": [moved, moved * (step - 1), moved * (world - 1)],
        }
