"""One layer on several ranks: its heads dealt to them, or its positions, passed on in a ring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from traitlets import Dict, Unicode

from labkit import counting
from labkit.attention import MultiHeadAttention, causal_mask
from labkit.figures.base import Choice, LiveFigure
from labkit.figures.saturation import normals
from labkit.models.parallel import shard

HEADS, POSITIONS = "heads", "positions"
ROW, ZIGZAG = "blocks in a row", "zigzag"
STAGES = [
    "x on every rank",
    "partial outputs",
    "sum of the outputs",
    "partial dx",
    "sum of the dx",
]
SUMS = [0, 0, 1, 1, 2]  # all-reduces done at a stage
COUNTS = [1, 2, 3, 4, 6, 8]  # of ranks and of heads
BYTES = 4  # of a number
NAMES = [f"rank {rank}" for rank in range(COUNTS[-1])]  # counted from 0, as PyTorch does

# A layer small enough to show what its ranks compute; a head's numbers do not depend on the others.
SEED, N, D_MODEL, D_K = 3, 3, 4, 2
X, DY, BIAS, QUERY_HEADS = 0, 12, 24, 32
KEY_HEADS = QUERY_HEADS + 2 * D_K * D_MODEL * COUNTS[-1]
NUMBERS = KEY_HEADS + 2 * D_K * D_MODEL * COUNTS[-1]


class Ranks(LiveFigure):
    """Deal a layer to W ranks, by heads or by positions, and follow what they hold and send.

    By heads, rank r has heads r h/W to (r + 1) h/W - 1, as
    :func:`labkit.models.parallel.shard` deals them. Its output is a part of the layer's, and so is
    its dx: an all-reduce adds up either. As a ring it sends 2 (W - 1)/W of the tensor, n d_model
    numbers. What the ranks compute is shown for a small layer: 3 positions, d_model = 4, d_k = 2,
    with a bias of W^O.

    By positions, each rank has its block of n/W in a row, or in zigzag one of n/2W from the front
    and one as far from the end. Its queries stay; in W steps all keys and values come by, h_kv = h,
    and a pair is computed where query and key lie on the same rank.

    Numbers have four bytes. A deal that is refused holds, computes and sends nothing: all
    zeros, and -1 in place of a rank.

    Args:
        state: the traits: what is ``dealt`` ("heads" or "positions"), ``world``, the number of
            ranks (1, 2, 3, 4, 6 or 8), and ``d_model`` (24 times a power of two, to 12,288). Of
            heads: ``h`` and ``h_kv`` (as the ranks), ``n`` (a power of two to 131,072) and the
            ``stage``. Of positions: ``positions`` (8, 12, 16, 24 or 32), the ``order`` ("blocks in
            a row" or "zigzag"), ``causal``, and the ``step`` (1 to 8, the ranks at most).

    >>> Ranks(step=4).values()["pairs of a rank"]
    [[0, 36, 36], [0, 100, 100], [0, 164, 164], [64, 228, 228]]
    """

    title = Unicode("Heads or positions, dealt to ranks").tag(sync=True)
    caption = Unicode(
        "A layer is dealt to several ranks, by heads or by positions; you choose which, and the "
        "sizes. By heads: which heads of queries, and which of keys and values, each rank holds; "
        "then stage by stage its part of the output and of dx for one position of a small layer, "
        "their sums, and the bytes that a ring all-reduce moves. By positions: a grid of queries "
        "and keys. Keys and values move from rank to rank, a step at a time; the pairs of a step "
        "are full squares in the shade of the rank that computes them, earlier ones small squares. "
        "Tables count pairs, and the bytes of keys and values where each head has its own."
    ).tag(sync=True)
    axes = Dict(
        {
            "heads of a rank": [NAMES, "head"],
            "heads of keys and values of a rank": [NAMES, "head of keys"],
            "parameters of a rank": [NAMES],
            "partial outputs": [NAMES, "number"],
            "partial dx": [NAMES, "number"],
            "sums": [["output", "dx"], "number"],
            "bytes, by heads": [["the tensor", "sent in an all-reduce", "sent so far"]],
            "rank of a block": ["block"],
            "rank of its keys now": ["block"],
            "pairs of this step": ["queries of block", "keys of block"],
            "pairs of a rank": [NAMES, ["this step", "so far", "in all steps"]],
            "largest shares, added up": [["so far", "in all steps"]],
            "bytes, by positions": [["sent so far", "sent in the whole ring"]],
        }
    ).tag(sync=True)
    dealt = Choice([HEADS, POSITIONS], default_value=HEADS).tag(sync=True)
    world = Choice(COUNTS, default_value=4).tag(sync=True)
    d_model = Choice([24 * 2**i for i in range(10)], default_value=768).tag(sync=True)
    h = Choice(COUNTS, default_value=4).tag(sync=True)
    h_kv = Choice(COUNTS, default_value=4).tag(sync=True)
    n = Choice([2**i for i in range(18)], default_value=1024).tag(sync=True)
    stage = Choice(STAGES, default_value=STAGES[1]).tag(sync=True)
    positions = Choice([8, 12, 16, 24, 32], default_value=32).tag(sync=True)
    order = Choice([ROW, ZIGZAG], default_value=ROW).tag(sync=True)
    causal = Choice([False, True], default_value=True).tag(sync=True)
    step = Choice(range(1, COUNTS[-1] + 1), default_value=1).tag(sync=True)

    def values(self) -> dict[str, Any]:
        return self._heads() | self._positions()

    def _heads(self) -> dict[str, Any]:
        """Compute what is shown of heads dealt to ranks."""
        parts = self._parts()
        outputs, grads = torch.zeros(2, self.world, D_MODEL, dtype=torch.float64)
        heads, keys = torch.zeros(self.world, self.h), torch.zeros(self.world, self.h_kv)
        parameters, tensor = [0] * self.world, 0
        if parts:
            outputs, grads = through(parts)
            mine = torch.arange(self.h).view(self.world, -1)
            heads.scatter_(1, mine, 1.0)
            keys.scatter_(1, mine * self.h_kv // self.h, 1.0)
            parameters = [self._parameters(rank) for rank in range(self.world)]
            tensor = self.n * self.d_model * BYTES
        reduced = 2 * (self.world - 1) * tensor // self.world
        return {
            "heads of a rank": heads.long().tolist(),
            "heads of keys and values of a rank": keys.long().tolist(),
            "parameters of a rank": parameters,
            "partial outputs": outputs.tolist(),
            "partial dx": grads.tolist(),
            "sums": [outputs.sum(0).tolist(), grads.sum(0).tolist()],
            "bytes, by heads": [tensor, reduced, SUMS[STAGES.index(self.stage)] * reduced],
        }

    def _parts(self) -> list[MultiHeadAttention]:
        """Deal the small layer to the ranks; give no part where labkit refuses."""
        with torch.random.fork_rng(devices=[]):  # a new layer draws its first weights
            try:
                layer = small_layer(self.h, self.h_kv)
                return [shard(layer, rank, self.world) for rank in range(self.world)]
            except ValueError:
                return []

    def _parameters(self, rank: int) -> int:
        """Count a rank's parameters; the first alone has the bias of W^O."""
        h, h_kv = self.h // self.world, max(self.h_kv // self.world, 1)
        d_k = self.d_model // self.h
        count = counting.attention_parameters(self.d_model, h, h_kv=h_kv, d_k=d_k)
        return count - (self.d_model if rank else 0)

    def _positions(self) -> dict[str, Any]:
        """Compute what is shown of positions dealt to ranks."""
        world, step = self.world, min(self.step, self.world)
        ranks = torch.arange(world)
        blocks = torch.cat([ranks, ranks.flip(0)]) if self.order == ZIGZAG else ranks
        dealt = int(self.positions % len(blocks) == 0)
        pairs = torch.zeros(world, len(blocks), len(blocks), dtype=torch.int64)
        if dealt:
            pairs = self._pairs(blocks)
        of_rank = torch.zeros(world, world, dtype=torch.int64).index_add_(1, blocks, pairs.sum(-1))
        shares = [of_rank[step - 1], of_rank[:step].sum(0), of_rank.sum(0)]
        largest = of_rank.amax(1)
        moved = dealt * 2 * self.positions // world * self.d_model * BYTES  # by a rank, in a step
        return {
            "rank of a block": (blocks if dealt else 0 * blocks - 1).tolist(),
            "rank of its keys now": (
                (blocks + step - 1) % world if dealt else 0 * blocks - 1
            ).tolist(),
            "pairs of this step": pairs[step - 1].tolist(),
            "pairs of a rank": torch.stack(shares, dim=1).tolist(),
            "largest shares, added up": [int(largest[:step].sum()), int(largest.sum())],
            "bytes, by positions": [moved * (step - 1), moved * (world - 1)],
        }

    def _pairs(self, blocks: Tensor) -> Tensor:
        """Count the pairs of each step, by the block of the query and that of the key."""
        n, size = self.positions, self.positions // len(blocks)
        sees = causal_mask(n) if self.causal else torch.ones(n, n, dtype=torch.bool)
        rank = blocks.repeat_interleave(size)
        # After so many moves the keys of rank r lie on rank r + moves.
        steps = [
            sees & (rank[:, None] == (rank + moves) % self.world) for moves in range(self.world)
        ]
        return torch.stack(steps).view(-1, len(blocks), size, len(blocks), size).sum((2, 4))


def through(parts: list[MultiHeadAttention]) -> tuple[Tensor, Tensor]:
    """Run x and dy through each rank's part: its output and its dx at the last position."""
    numbers = torch.from_numpy(normals(SEED, NUMBERS))
    x, dy = (numbers[i : i + N * D_MODEL].view(1, N, D_MODEL) for i in (X, DY))
    outputs, grads = [], []
    with torch.enable_grad():
        for part in parts:
            own = x.clone().requires_grad_()
            out = part(own)
            outputs.append(out[0, -1].detach())
            grads.append(torch.autograd.grad(out, own, dy)[0][0, -1])
    return torch.stack(outputs), torch.stack(grads)


def small_layer(h: int, h_kv: int) -> MultiHeadAttention:
    """Make the layer whose numbers are shown, in float64, of numbers that the page draws too."""
    layer = MultiHeadAttention(D_MODEL, h, h_kv=h_kv, d_k=D_K, d_v=D_K).double()
    numbers = torch.from_numpy(normals(SEED, NUMBERS))
    q, o = numbers[QUERY_HEADS:KEY_HEADS].view(COUNTS[-1], 2, D_K, D_MODEL)[:h].unbind(1)
    k, v = numbers[KEY_HEADS:].view(COUNTS[-1], 2, D_K, D_MODEL)[:h_kv].unbind(1)
    with torch.no_grad():
        for projection, weight in zip((layer.w_q, layer.w_k, layer.w_v), (q, k, v), strict=True):
            projection.weight.copy_(weight.reshape(-1, D_MODEL))
        nn.init.zeros_(layer.w_qkv.bias)
        layer.w_o.weight.copy_(o.reshape(-1, D_MODEL).T)
        layer.w_o.bias.copy_(numbers[BIAS : BIAS + D_MODEL])
    return layer
