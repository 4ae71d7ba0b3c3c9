"""Attention in tiles, by an online softmax; partial results over some of the keys, and their merge.

Written to be read. ``scaled_dot_product_attention`` uses PyTorch's fused kernel (FlashAttention),
which does this in the processor's fast memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from labkit.arguments import check_mask, number, same_leading, size

__all__ = ["Partial", "merge", "partial_attention", "tiled_attention"]


Tile = tuple[Tensor, Tensor, "Tensor | None"]  # keys, values, and which of them a query may see


class Partial(NamedTuple):
    """Attention over some of the keys, and how much weight there was to share out.

    out: (..., n_q, d_v), the mixture of those keys' values; zeros where a query sees none.
    lse: (..., n_q), the logarithm of the sum of exp(score); -inf where a query sees none.
    """

    out: Tensor
    lse: Tensor


def partial_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, scale: float | None = None
) -> Partial:
    """Attend to some of the keys, and keep what is needed to merge the result with others.

    out = softmax(s) v and lse = log sum_j exp(s_j), with s = scale * q k^T. Types of 16 bits are
    worked on in float32, and the result stays in it.

    Args:
        q: (..., n_q, d_k), floating point. Leading dimensions broadcast.
        k: (..., n_k, d_k), the keys of this part.
        v: (..., n_k, d_v), their values.
        mask: boolean, broadcastable to (..., n_q, n_k), True where the query may attend.
        scale: the factor on the scores; 1 / sqrt(d_k) unless given.

    Raises:
        TypeError, ValueError: as scaled_dot_product_attention.

    Source: Milakov and Gimelshein (2018), section 3, for m and l; Dao (2023), section 3.1, for a.

    >>> part = partial_attention(torch.zeros(1, 1), torch.zeros(4, 1), torch.ones(4, 1))
    >>> part.out.item(), round(part.lse.exp().item(), 3)
    (1.0, 4.0)
    """
    q, k, v = same_leading(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else number("scale", scale)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.shape[-2]), "(..., n_q, n_k)")
    return _online_softmax(q, scale, v.shape[-1], [(k, v, mask)])


def merge(a: Partial, b: Partial) -> Partial:
    """Join attention over two sets of keys into attention over both.

    lse = log(exp(a.lse) + exp(b.lse)); out = exp(a.lse - lse) a.out + exp(b.lse - lse) b.out. The
    order does not matter, and (0, -inf) changes nothing. The two shares are computed as sigmoids
    of the difference, so that they add up to 1 where a large lse is rounded. Two sums that are
    both 0 or both infinite have no ratio: each part gets one half.

    Args:
        a, b: the same queries over different keys.

    Raises:
        ValueError: shapes that do not fit.

    Source: Dao et al. (2022), section 3.1, with the two sums in one logarithm.

    >>> one = Partial(torch.tensor([[2.0]]), torch.tensor([0.0]))
    >>> none = Partial(torch.tensor([[0.0]]), torch.tensor([-torch.inf]))
    >>> merge(one, none).out.item(), merge(none, none).out.item()
    (2.0, 0.0)
    """
    if a.out.shape != b.out.shape or a.lse.shape != b.lse.shape:
        raise ValueError(
            f"a and b must be of the same queries; got out {tuple(a.out.shape)} and "
            f"{tuple(b.out.shape)}, lse {tuple(a.lse.shape)} and {tuple(b.lse.shape)}. "
            "Merge along the keys, not along the queries."
        )
    alike = (a.lse == b.lse) & a.lse.isinf()  # where their difference would be NaN
    of_a, of_b = (part.lse.masked_fill(alike, 0) for part in (a, b))
    share_a, share_b = ((x - y).sigmoid()[..., None] for x, y in ((of_a, of_b), (of_b, of_a)))
    lse = torch.where(alike, a.lse, torch.logaddexp(of_a, of_b))
    return Partial(share_a * a.out + share_b * b.out, lse)


@overload
def tiled_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    is_causal: bool = False, window: int | None = None, scale: float | None = None,
    enable_gqa: bool = False, block_q: int = 64, block_k: int = 64,
    return_lse: Literal[False] = False) -> Tensor: ...  # fmt: skip


@overload
def tiled_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    is_causal: bool = False, window: int | None = None, scale: float | None = None,
    enable_gqa: bool = False, block_q: int = 64, block_k: int = 64,
    return_lse: Literal[True]) -> Partial: ...  # fmt: skip


def tiled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    block_q: int = 64,
    block_k: int = 64,
    return_lse: bool = False,
) -> Tensor | Partial:
    """Attend tile by tile: some queries, and for them one block of keys after another.

    No more than block_q x block_k scores of a head exist at a time without gradients. Tiles that
    lie wholly in the future, or wholly outside the window, are skipped. The arguments are those of
    ``scaled_dot_product_attention``, with these besides:

    Args:
        q: (..., n_q, d_k), floating point. Leading dimensions broadcast.
        k: (..., n_k, d_k).
        v: (..., n_k, d_v).
        mask: boolean, broadcastable to (..., n_q, n_k), True where the query may attend.
        is_causal: hide the future, as ``causal_mask(n_q, n_k)`` does.
        window: see the last so many positions alone, as ``window_mask(n_q, n_k, window)`` does.
        scale: the factor on the scores; 1 / sqrt(d_k) unless given.
        enable_gqa: let h / h_kv heads of q in a row read one head of k and v.
        block_q: queries of a tile; the last one may be smaller.
        block_k: keys of a tile; the last one may be smaller.
        return_lse: give a Partial, whose lse is (..., n_q), in place of the output alone.

    Returns:
        (..., n_q, d_v), of the type of q. A query that sees nothing gets zeros.

    Raises:
        TypeError, ValueError: as scaled_dot_product_attention; a block or a window under 1.

    Source: Dao et al. (2022), algorithm 1; Dao (2023), section 3.1, for the order of the loops,
        the one division at the end, and the one logarithm that is kept.

    >>> x = torch.eye(3)
    >>> tiled_attention(x, x, x, block_q=2, block_k=2, is_causal=True)[0]
    tensor([1., 0., 0.])
    """
    q, k, v = same_leading(q, k, v, enable_gqa)
    block_q, block_k = size("block_q", block_q), size("block_k", block_k)
    scale = q.shape[-1] ** -0.5 if scale is None else number("scale", scale)
    (*lead, n_q, _), (*_, n_k, d_v) = q.shape, v.shape
    if mask is not None:
        check_mask(mask, (*lead, n_q, n_k), "(..., n_q, n_k)")
        mask = mask.expand(*lead, n_q, n_k)
    if enable_gqa:  # the heads that read the same keys get a dimension, over which keys broadcast
        h_kv = k.shape[-3]
        q, k, v = q.unflatten(-3, (h_kv, -1)), k.unsqueeze(-3), v.unsqueeze(-3)
        mask = None if mask is None else mask.unflatten(-3, (h_kv, -1))
    reach = n_k if window is None else size("window", window)
    hides = is_causal or window is not None
    rows = []
    for top in range(0, n_q, block_q):
        bottom = min(top + block_q, n_q)
        own = range(n_k - n_q + top, n_k - n_q + bottom)  # the queries' own positions
        may = None if mask is None else mask[..., top:bottom, :]
        tiles = _tiles(k, v, may, block_k, own, reach if hides else None)
        rows.append(_online_softmax(q[..., top:bottom, :], scale, d_v, tiles))
    out, lse = torch.cat([row.out for row in rows], -2), torch.cat([row.lse for row in rows], -1)
    out, lse = out.to(q.dtype).reshape(*lead, n_q, d_v), lse.reshape(*lead, n_q)
    return Partial(out, lse) if return_lse else out


def _tiles(
    k: Tensor, v: Tensor, mask: Tensor | None, block_k: int, own: range, reach: int | None
) -> Iterator[Tile]:
    """Give the tiles in which some query may see something, by its position and its reach back."""
    n_k = k.shape[-2]
    first, end = (0, n_k) if reach is None else (max(0, own[0] - reach + 1), own[-1] + 1)
    for left in range(first // block_k * block_k, end, block_k):
        keys = slice(left, min(left + block_k, n_k))
        may = None if mask is None else mask[..., keys]
        if reach is not None and (keys.stop - 1 > own[0] or left <= own[-1] - reach):
            i = torch.arange(own.start, own.stop, device=k.device)[:, None]
            j = torch.arange(left, keys.stop, device=k.device)
            near = (j <= i) & (j > i - reach)
            may = near if may is None else may & near
        yield k[..., keys, :], v[..., keys, :], may


def _online_softmax(q: Tensor, scale: float, d_v: int, tiles: Iterable[Tile]) -> Partial:
    """Run through tiles of keys with a maximum m, a sum l and an output a, divided once at the end.

    m' = max(m, s), l' = exp(m - m') l + sum exp(s - m'), a' = exp(m - m') a + exp(s - m') v.
    """
    kind = torch.promote_types(q.dtype, torch.float32)
    q = q.to(kind) * scale
    m = q.new_full((*q.shape[:-1], 1), -torch.inf)
    l, a = torch.zeros_like(m), q.new_zeros(*q.shape[:-1], d_v)
    for k, v, may in tiles:
        s = q @ k.to(kind).transpose(-2, -1)
        if may is not None:
            s = s.masked_fill(~may, -torch.inf)
        new = torch.maximum(m, s.detach().amax(-1, keepdim=True))
        base = new.clamp(min=torch.finfo(kind).min)  # finite, too, before a query's first key
        keep, p = (m - base).exp(), (s - base).exp()
        m, l, a = new, keep * l + p.sum(-1, keepdim=True), keep * a + p @ v.to(kind)
    l = l.clamp(min=1)  # the largest score counts 1, so less is a query that sees nothing
    return Partial(a / l, (m + l.log()).squeeze(-1))
