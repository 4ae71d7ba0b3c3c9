"""The GPT on several ranks: heads or positions are dealt to them, and a step of training agrees.

Four schemes. "tensor parallel" deals heads and hidden features, and every rank has all positions;
"sequence parallel" deals them too, and between the dealt layers each rank has its positions alone.
"ring" and "Ulysses" deal positions, and every rank has all weights: keys and values go round, or
an all-to-all changes positions for heads and back. What gradients need is in the collectives
below: each has one way forward, and its mirror backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import divisors, one_of, size, whole
from labkit.attention import (
    MultiHeadAttention,
    check_layer,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    with_heads,
)
from labkit.cache import KVCache
from labkit.latent import LatentAttention
from labkit.models.gpt import GPT, FeedForward
from labkit.positions import rotate
from labkit.ranks import Rank
from labkit.tiles import merge, partial_attention

__all__ = ["SCHEMES", "Across", "Dealt", "copy_to_ranks", "deal", "gather_positions", "places",
    "ring", "scatter_positions", "shard", "shard_feed_forward", "shard_latent", "shift",
    "step", "sum_of_ranks", "swap", "ulysses"]  # fmt: skip

SCHEMES = ("tensor parallel", "sequence parallel", "ring", "Ulysses")
NO_TARGET = -100  # what cross_entropy leaves out

Attend = Callable[[Tensor, Tensor, Tensor, Rank, Tensor, float], Tensor]


# Collectives that a gradient passes


class _Collective(torch.autograd.Function):
    """One call forward, and its mirror backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Any, back: Any) -> Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


def _mirrored(
    x: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
) -> Any:
    return _Collective.apply(x, there, back)


def _as_it_is(x: Tensor) -> Tensor:
    return x.view_as(x)


def copy_to_ranks(x: Tensor, rank: Rank) -> Tensor:
    """Hand x, (...), which all ranks have, to each one's part; backward its gradient is summed.

    Source: Shoeybi et al. (2019), section 3: f.
    """
    return _mirrored(x, _as_it_is, rank.all_reduce)


def sum_of_ranks(x: Tensor, rank: Rank) -> Tensor:
    """Sum what the ranks' parts give, (...); backward each part gets the gradient of the sum.

    Source: Shoeybi et al. (2019), section 3: g.
    """
    return _mirrored(x, rank.all_reduce, _as_it_is)


def gather_positions(x: Tensor, rank: Rank) -> Tensor:
    """All-gather positions, (..., n/W, d) to (..., n, d); backward a reduce-scatter.

    Source: Korthikanti et al. (2022).
    """
    return _mirrored(x, partial(_gathered, rank), partial(_scattered, rank))


def scatter_positions(x: Tensor, rank: Rank) -> Tensor:
    """Sum (..., n, d) over the ranks and keep one's positions, (..., n/W, d): a reduce-scatter.

    Backward an all-gather. Source: Korthikanti et al. (2022).
    """
    return _mirrored(x, partial(_scattered, rank), partial(_gathered, rank))


def swap(x: Tensor, rank: Rank, cut: int, joined: int) -> Tensor:
    """All-to-all: cut one dimension into W pieces, a rank's each, and join what comes in another.

    Backward the same with the two exchanged. From (B, h, n/W, d) to (B, h/W, n, d) cut heads, -3,
    and join positions, -2. Source: Jacobs et al. (2023).
    """
    there, back = partial(_swapped, rank, cut, joined), partial(_swapped, rank, joined, cut)
    return _mirrored(x, there, back)


def shift(x: Tensor, rank: Rank) -> Tensor:
    """Hand x, (...), to the next rank and get the one before's; backward gradients go back."""
    return _mirrored(x, rank.shift, partial(rank.shift, by=-1))


def _gathered(rank: Rank, x: Tensor) -> Tensor:
    return torch.cat(rank.all_gather(x), -2)


def _scattered(rank: Rank, x: Tensor) -> Tensor:
    return rank.reduce_scatter(torch.stack(x.chunk(rank.world, -2)))


def _swapped(rank: Rank, cut: int, joined: int, x: Tensor) -> Tensor:
    came = rank.all_to_all(torch.stack(x.chunk(rank.world, cut)))
    return torch.cat(came.unbind(), joined)


# Heads and hidden features dealt


def shard(layer: MultiHeadAttention, rank: int, world: int) -> MultiHeadAttention:
    """Give one rank's heads as a layer of its own; the outputs of all ranks add up to the whole.

    Rank r takes heads r h/W to (r + 1) h/W - 1: their rows of W^Q, the rows of W^K and W^V that
    they read, and their columns of W^O. Rank 0 alone has W^O's bias. Where fewer heads of keys
    than ranks are, several ranks hold copies of one, whose gradients are to be summed.

    Args:
        layer: any, which is left as it is.
        rank: which part, from 0 on.
        world: number of parts.

    Raises:
        TypeError: not a MultiHeadAttention, or a number that is not whole.
        ValueError: a world that does not divide h, a rank outside it, or heads of keys that the
            parts would read unevenly.

    Source: Shoeybi et al. (2019), section 3.

    >>> shard(MultiHeadAttention(8, 4), 0, 2).h
    2
    """
    check_layer(layer)
    rank, world = _check_part(layer.h, layer.h_kv, rank, world)
    h, readers = layer.h // world, layer.h // layer.h_kv
    mine = torch.arange(rank * h, (rank + 1) * h)
    read = (mine // readers).unique()
    part = with_heads(layer, h, len(read))  # draws none of the random numbers that ranks share
    with torch.no_grad():
        for own, of_all, heads, kept in (
            (part.w_q, layer.w_q, layer.h, mine),
            (part.w_k, layer.w_k, layer.h_kv, read),
            (part.w_v, layer.w_v, layer.h_kv, read),
        ):
            own.weight.copy_(of_all.weight.unflatten(0, (heads, -1))[kept].flatten(0, 1))
            if own.bias is not None and of_all.bias is not None:
                own.bias.copy_(of_all.bias.unflatten(0, (heads, -1))[kept].flatten())
        part.w_o.weight.copy_(layer.w_o.weight.unflatten(1, (layer.h, -1))[:, mine].flatten(1))
        if layer.w_o.bias is not None:
            part.w_o.bias.copy_(layer.w_o.bias)
    if rank:
        part.w_o.register_parameter("bias", None)
    return part


def shard_latent(layer: LatentAttention, rank: int, world: int) -> LatentAttention:
    """Give one rank's heads of a layer with a latent; the outputs of all ranks add up to the whole.

    Each rank has its heads' rows of W_q and W_up and their columns of W^O, and W_down whole: every
    head is rebuilt from the whole latent, so each rank makes it, and caches it, in full.

    Raises:
        ValueError: a world that does not divide h, or a rank outside it.

    >>> shard_latent(LatentAttention(8, 4, 3, d_k=2, d_v=2), 1, 2).w_down.weight.shape
    torch.Size([3, 8])
    """
    rank, world = _check_part(layer.h, layer.h, rank, world)
    h, bias = layer.h // world, layer.w_o.bias is not None
    norm = not isinstance(layer.norm, nn.Identity)
    part = LatentAttention(layer.d_model, h, layer.d_c, d_k=layer.d_k, d_v=layer.d_v,
        d_rotary=layer.d_rotary, rotary_base=layer.rotary_base, bias=bias, norm=norm)  # fmt: skip
    part.to(layer.w_o.weight)
    mine = slice(rank * h, (rank + 1) * h)
    sizes = layer.h * layer.d_k, layer.h * layer.d_v
    with torch.no_grad():
        part.w_down.load_state_dict(layer.w_down.state_dict())
        part.norm.load_state_dict(layer.norm.state_dict())
        for own, of_all in zip(part.w_q.parameters(), layer.w_q.parameters(), strict=True):
            own.copy_(_of_heads(of_all, layer.h, mine))
        up_k, up_v = layer.w_up.weight.split(sizes)
        part.w_up.weight.copy_(torch.cat([_of_heads(x, layer.h, mine) for x in (up_k, up_v)]))
        part.w_o.weight.copy_(_of_heads(layer.w_o.weight.T, layer.h, mine).T)
        if bias:
            part.w_o.bias.copy_(layer.w_o.bias)
    if rank:
        part.w_o.register_parameter("bias", None)
    return part


def shard_feed_forward(layer: FeedForward, rank: int, world: int) -> FeedForward:
    """Give one rank's hidden features; the outputs of all ranks add up to the whole.

    The first matrix is cut by its outputs, the second by its inputs; rank 0 alone has its bias.

    Raises:
        ValueError: a world that does not divide the hidden features, or a rank outside it.

    Source: Shoeybi et al. (2019), section 3.

    >>> shard_feed_forward(FeedForward(4, 16), 1, 2).expand.weight.shape
    torch.Size([8, 4])
    """
    d_ff, d_model = layer.expand.weight.shape
    rank, world = _check_part(d_ff, d_ff, rank, world)
    with torch.device("meta"):
        part = FeedForward(d_model, d_ff // world)
    part.to(layer.expand.weight.dtype).to_empty(device=layer.expand.weight.device)
    with torch.no_grad():
        part.expand.weight.copy_(layer.expand.weight.chunk(world)[rank])
        part.expand.bias.copy_(layer.expand.bias.chunk(world)[rank])
        part.contract.weight.copy_(layer.contract.weight.chunk(world, 1)[rank])
        part.contract.bias.copy_(layer.contract.bias)
    if rank:
        part.contract.register_parameter("bias", None)
    return part


class Dealt(nn.Module):
    """A rank's part of a layer between two collectives: after(part(before(x))).

    Args:
        part: what the rank holds.
        before: takes x to what the part reads, such as ``copy_to_ranks`` or ``gather_positions``.
        after: its counterpart, ``sum_of_ranks`` or ``scatter_positions``.
        rank: which it is.
        copies: how many ranks in a row hold the same heads of keys and values.
    """

    def __init__(
        self, part: nn.Module, before: Any, after: Any, rank: Rank, copies: int = 1
    ) -> None:
        super().__init__()
        self.part, self.before, self.after = part, before, after
        self.rank, self.copies = rank, copies

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return self.after(self.part(self.before(x, self.rank), **options), self.rank)

    def sum_copies(self) -> None:
        """Sum the gradients of keys' and values' rows over the ranks that hold copies of them."""
        if self.copies == 1:
            return
        first = self.rank.rank // self.copies * self.copies
        group = self.rank.group(range(first, first + self.copies))
        part: Any = self.part
        for packed in part.w_qkv.parameters():
            rows = packed.grad[part.h * part.d_k :]
            rows.copy_(group.all_reduce(rows))


# Positions dealt


def places(n: int, world: int, *, zigzag: bool = False) -> Tensor:
    """Deal positions 0 to n - 1 to ranks: (W, n/W), in a row, or in zigzag.

    Raises:
        ValueError: n that W, or in zigzag 2W, does not divide.

    >>> places(8, 2, zigzag=True).tolist()
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    count = (2 if zigzag else 1) * size("world", world)
    if size("n", n) % count:
        raise ValueError(
            f"n must be a multiple of {count}, so that each rank has as many positions; got {n}. "
            "Cut the text, or pad it."
        )
    blocks = torch.arange(n).view(count, -1)
    return torch.cat([blocks[:world], blocks[world:].flip(0)], 1) if zigzag else blocks


def ring(q: Tensor, k: Tensor, v: Tensor, rank: Rank, positions: Tensor, scale: float) -> Tensor:
    """Attend causally while keys and values go round: (B, h, n/W, d_v), for this rank's queries.

    Args:
        q: (B, h, n/W, d_k), of this rank's positions.
        k, v: (B, h_kv, n/W, ...).
        rank: which it is.
        positions: (W, n/W), those of all ranks.
        scale: the factor on the scores.

    Source: Liu et al. (2023).
    """
    readers, row = q.shape[-3] // k.shape[-3], None
    for step in range(rank.world):
        if step:
            k, v = shift(k, rank), shift(v, rank)
        may = positions[rank.rank - step] <= positions[rank.rank][:, None]
        keys, values = (x.repeat_interleave(readers, -3) for x in (k, v))
        part = partial_attention(q, keys, values, mask=may, scale=scale)
        row = part if row is None else merge(row, part)
    assert row is not None
    return row.out


def ulysses(q: Tensor, k: Tensor, v: Tensor, rank: Rank, positions: Tensor, scale: float) -> Tensor:
    """Attend causally with some heads to all positions, between two all-to-alls; as ``ring``.

    Heads of keys that are fewer than the ranks are copied before they are sent.

    Raises:
        ValueError: a world that does not divide the heads, or heads of keys that do not fit.

    Source: Jacobs et al. (2023).
    """
    h, h_kv = q.shape[-3], k.shape[-3]
    _check_part(h, h_kv, rank.rank, rank.world)
    k, v = (x.repeat_interleave(max(rank.world // h_kv, 1), -3) for x in (k, v))
    q, k, v = (swap(x, rank, -3, -2) for x in (q, k, v))
    at = positions.flatten()
    out = scaled_dot_product_attention(q, k, v, at <= at[:, None], scale=scale, enable_gqa=True)
    return swap(out, rank, -2, -3)


class Across(nn.Module):
    """A layer whose weights every rank has, over positions that are dealt to the ranks.

    Args:
        layer: whole.
        attend: ``ring`` or ``ulysses``.
        rank: which it is.
        zigzag: the order in which positions are dealt.
    """

    def __init__(
        self, layer: MultiHeadAttention, attend: Attend, rank: Rank, *, zigzag: bool = False
    ) -> None:
        super().__init__()
        self.layer, self.attend, self.rank, self.zigzag = layer, attend, rank, zigzag

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        is_causal: bool = True,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend causally from this rank's positions, (B, n/W, d_model), to all.

        Raises:
            ValueError: a mask, a cache, or attention that is not causal.
        """
        if mask is not None or cache is not None or not is_causal:
            raise ValueError("positions that are dealt attend causally, with no mask or cache.")
        layer = self.layer
        all_places = places(x.shape[-2] * self.rank.world, self.rank.world, zigzag=self.zigzag)
        q = split_heads(layer.w_q(x), layer.h)
        k, v = (split_heads(part(x), layer.h_kv) for part in (layer.w_k, layer.w_v))
        if layer.rotary_base is not None:
            mine, scaling = all_places[self.rank.rank], layer.rotary_scaling
            q, k = (rotate(part, layer.rotary_base, mine, scaling=scaling) for part in (q, k))
        return layer.w_o(merge_heads(self.attend(q, k, v, self.rank, all_places, layer.scale)))


# A model and its training


def deal(model: GPT, rank: Rank, scheme: str) -> GPT:
    """Make a rank's model of a whole one, which is left as it is.

    Args:
        model: a GPT with rotary positions or none.
        rank: which it is.
        scheme: one of SCHEMES.

    Raises:
        ValueError: another scheme, or heads that the ranks do not divide.
    """
    one_of("scheme", scheme, SCHEMES)
    model, at = deepcopy(model), (rank.rank, rank.world)
    ends = {
        "tensor parallel": (copy_to_ranks, sum_of_ranks),
        "sequence parallel": (gather_positions, scatter_positions),
    }
    for block in model.stack():
        layer, hidden = block.attention, block.feed_forward
        new: Any
        if scheme in ends:
            copies = max(rank.world // layer.h_kv, 1)
            new = Dealt(shard(layer, *at), *ends[scheme], rank, copies)
            narrow: Any = Dealt(shard_feed_forward(hidden, *at), *ends[scheme], rank)
            block.feed_forward = narrow
        elif scheme == "ring":
            new = Across(layer, ring, rank, zigzag=True)
        else:
            new = Across(layer, ulysses, rank)
        block.attention = new
    return model


def step(model: GPT, rank: Rank, scheme: str, ids: Tensor) -> Tensor:
    """Go forward and backward on a batch: each weight that the rank holds has its whole gradient.

    Args:
        model: what ``deal`` made.
        rank, scheme: those of ``deal``.
        ids: (B, n), the whole batch.

    Returns:
        The loss of the batch, without dimensions: that of training.loss_on.
    """
    dealt = scheme != "tensor parallel"
    n = ids.shape[1]
    mine = places(n, rank.world, zigzag=scheme == "ring")[rank.rank] if dealt else torch.arange(n)
    targets = F.pad(ids[:, 1:], (0, 1), value=NO_TARGET)[:, mine]
    logits = model(ids[:, mine])
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    loss = total / ids[:, 1:].numel()
    loss.backward()
    for weight in _of_some_positions(model, scheme):
        if weight.grad is not None:
            weight.grad = rank.all_reduce(weight.grad)
    for part in model.modules():
        if isinstance(part, Dealt):
            part.sum_copies()
    return rank.all_reduce(loss) if dealt else loss.detach()


def _of_some_positions(model: GPT, scheme: str) -> Iterator[nn.Parameter]:
    """Give the weights that saw only this rank's positions, whose gradients are to be summed."""
    for name, weight in model.named_parameters():
        dealt = ".part." in name
        if scheme in ("ring", "Ulysses") or (scheme == "sequence parallel" and not dealt):
            yield weight


def _of_heads(rows: Tensor, h: int, mine: slice) -> Tensor:
    return rows.unflatten(0, (h, -1))[mine].flatten(0, 1)


def _check_part(h: int, h_kv: int, rank: int, world: int) -> tuple[int, int]:
    rank, world = whole("rank", rank), size("world", world)
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie between 0 and world - 1 = {world - 1}; got {rank}.")
    if h % world:
        raise ValueError(
            f"world must divide h, so that each rank takes as many heads; got h={h} and "
            f"world={world}. Choose one of {divisors(h)}."
        )
    if h_kv % world and world % h_kv:
        raise ValueError(
            f"world must divide h_kv or be a multiple of it, so that each rank's heads share keys "
            f"evenly; got h_kv={h_kv} and world={world}."
        )
    return rank, world
