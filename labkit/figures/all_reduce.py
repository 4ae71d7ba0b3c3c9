"""Heads on several ranks: the partial output of each, and the ring all-reduce that adds them up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default

from labkit.figures.base import Choice, LiveFigure, Whole
from labkit.models.gpt import load_gpt
from labkit.models.parallel import shard
from labkit.models.stories import encode

HEADS, D_MODEL = 4, 64  # of the small GPT
BYTES = 4  # of a number
NAMES = [f"rank {rank}" for rank in range(HEADS)]  # counted from 0, as PyTorch does
STORY = "the map suits mia lake . the box suits tom hill . the key suits ann lake . the map"
LAYER = 1  # the second and last
PLACES = 4  # of a stored number, so that other machines store the same


class AllReduce(LiveFigure):
    """Split the heads of a layer over W ranks, and send message by message until all have the sum.

    Shown is the output at one position of the small GPT's second layer. Rank r has heads r h/W to
    (r + 1) h/W - 1, as :func:`labkit.models.parallel.shard` deals them, and computes a part of the
    output: 64 numbers, in W pieces. In the first W - 1 messages each rank hands a piece to the
    next, which adds it to its own (reduce-scatter). In the other W - 1 it hands on a piece that is
    whole, and the next one copies it (all-gather). Numbers have four bytes.

    Args:
        state: the traits: ``world``, the number of ranks (1, 2 or 4), and ``step``, how many
            messages were sent (0 to 6; after the last, the last).

    >>> AllReduce(step=2).values()["heads in a piece"]
    [[1, 3, 2, 1], [1, 1, 3, 2], [2, 1, 1, 3], [3, 2, 1, 1]]
    """

    title = Unicode("Heads on machines, and their sum").tag(sync=True)
    caption = Unicode(
        "Each box is a rank with its heads, in their colours. Below them is its row of 64 numbers "
        "for one word, cut into as many pieces as there are ranks, the numbers as bars. Digits and "
        "colours under a piece say which heads are in it. With each message every rank sends one "
        "piece to the next rank, and the last one to the first: the piece leaves a dashed frame "
        "and arrives in a thick one. The word is the last “map” of a story, in the second layer of "
        "the small GPT. Rank 0 also adds the bias of W_O."
    ).tag(sync=True)
    axes = Dict(
        {
            "heads in a piece": [NAMES, "piece"],
            "numbers of a rank": [NAMES, "number"],
            "bytes a rank sends": [["in a message", "so far", "in all"]],
        }
    ).tag(sync=True)
    world = Choice([1, 2, 4], default_value=4).tag(sync=True)
    step = Whole(0, 2 * (HEADS - 1), default_value=0).tag(sync=True)
    given = Dict(help="the story, and the part of the output of each of four ranks").tag(sync=True)

    @default("given")
    def _given(self) -> dict[str, Any]:
        parts = [[round(x, PLACES) for x in part] for part in partial_outputs(HEADS).tolist()]
        return {"story": STORY, "parts": parts}

    def values(self) -> dict[str, Any]:
        world, ranks = self.world, torch.arange(self.world)
        parts = torch.tensor(self.given["parts"], dtype=torch.float64)
        numbers = parts.view(world, -1, world, D_MODEL // world).sum(1)
        heads = torch.full((world, world), HEADS // world)
        messages, following = 2 * (world - 1), (ranks + 1) % world
        done = min(self.step, messages)
        for message in range(done):
            adds = message < world - 1
            piece = (ranks - 1 - message + world * (not adds)) % world
            for held in (numbers, heads):
                sent = held[ranks, piece]
                held[following, piece] = held[following, piece] + sent if adds else sent
        each = D_MODEL // world * BYTES if messages else 0
        return {
            "heads in a piece": heads.tolist(),
            "numbers of a rank": numbers.flatten(1).tolist(),
            "bytes a rank sends": [each, done * each, messages * each],
        }


def partial_outputs(world: int) -> Tensor:
    """Give each rank's part of the output at the story's last position, (W, 64), in float64."""
    model = load_gpt().double()
    layer = model.stack()[LAYER].attention
    read: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: read.extend(given))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a new layer draws its weights
        model(encode(STORY)[None])
        hook.remove()
        parts = [shard(layer, rank, world)(read[0], is_causal=True) for rank in range(world)]
    return torch.cat(parts)[:, -1]
