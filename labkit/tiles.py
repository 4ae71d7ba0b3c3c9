"""Attention in tiles: partial results over some of the keys, and how to merge them.

Written to be read. ``scaled_dot_product_attention`` uses PyTorch's fused kernel, which does this
in the processor's fast memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labkit.arguments import check_mask, number, same_leading, size

__all__ = ["Partial", "merge", "partial_attention", "tiled_attention"]


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

    Source: Milakov and Gimelshein (2018), section 3; Dao et al. (2022), section 3.1.

    >>> part = partial_attention(torch.zeros(1, 1), torch.zeros(4, 1), torch.ones(4, 1))
    >>> part.out.item(), round(part.lse.exp().item(), 3)
    (1.0, 4.0)
    """
    q, k, v = same_leading(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else number("scale", scale)
    kind = torch.promote_types(q.dtype, torch.float32)
    q, k, v = q.to(kind), k.to(kind), v.to(kind)
    scores = (q * scale) @ k.transpose(-2, -1)
    if mask is None:
        return Partial(scores.softmax(-1) @ v, scores.logsumexp(-1))
    check_mask(mask, tuple(scores.shape), "(..., n_q, n_k)")
    # The lowest number and not -inf: a row of nothing but -inf has no gradient.
    scores = scores.masked_fill(~mask, torch.finfo(kind).min)
    weights, lse = scores.softmax(-1).masked_fill(~mask, 0.0), scores.logsumexp(-1)
    blind = ~mask.any(-1).expand_as(lse)
    return Partial(weights @ v, lse.masked_fill(blind, -torch.inf))


def merge(a: Partial, b: Partial) -> Partial:
    """Join attention over two sets of keys into attention over both.

    lse = log(exp(a.lse) + exp(b.lse)); out = exp(a.lse - lse) a.out + exp(b.lse - lse) b.out. The
    order does not matter, and (0, -inf) changes nothing. The two shares are computed as sigmoids
    of the difference, so that they add up to 1 where a large lse is rounded.

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
    blind = (a.lse == -torch.inf) & (b.lse == -torch.inf)  # where -inf - -inf would be NaN
    of_a, of_b = (part.lse.masked_fill(blind, 0) for part in (a, b))
    share_a, share_b = ((x - y).sigmoid()[..., None] for x, y in ((of_a, of_b), (of_b, of_a)))
    lse = torch.logaddexp(of_a, of_b).masked_fill(blind, -torch.inf)
    return Partial(share_a * a.out + share_b * b.out, lse)


def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, *, block_q: int, block_k: int, is_causal: bool = False
) -> Tensor:
    """Attend tile by tile: some queries, and for them one block of keys after another.

    No more than block_q x block_k scores exist at a time without gradients; tiles that lie wholly
    in the future are skipped.

    Args:
        q: (..., n_q, d_k), floating point. Leading dimensions broadcast.
        k: (..., n_k, d_k).
        v: (..., n_k, d_v).
        block_q: queries of a tile; the last one may be smaller.
        block_k: keys of a tile; the last one may be smaller.
        is_causal: hide the future, as ``causal_mask(n_q, n_k)`` does.

    Returns:
        (..., n_q, d_v), of the type of q.

    Raises:
        TypeError, ValueError: as scaled_dot_product_attention; a block under 1.

    Source: Dao et al. (2022), algorithm 1; Dao (2023), section 3.1, for the order of the loops.

    >>> x = torch.eye(3)
    >>> tiled_attention(x, x, x, block_q=2, block_k=2, is_causal=True)[0]
    tensor([1., 0., 0.])
    """
    q, k, v = same_leading(q, k, v)
    block_q, block_k = size("block_q", block_q), size("block_k", block_k)
    n_q, n_k = q.shape[-2], k.shape[-2]
    rows = []
    for top in range(0, n_q, block_q):
        queries = q[..., top : top + block_q, :]
        bottom = top + queries.shape[-2]
        # What the last of these queries sees, and no tile beyond it.
        n_visible = n_k - n_q + bottom if is_causal else n_k
        zeros = queries.new_zeros(*queries.shape[:-1], v.shape[-1])
        row = Partial(zeros, zeros.new_full(zeros.shape[:-1], -torch.inf))
        for left in range(0, n_visible, block_k):
            keys = slice(left, min(left + block_k, n_k))
            mask = _causal_tile(n_k - n_q + top, queries, keys) if is_causal else None
            part = partial_attention(queries, k[..., keys, :], v[..., keys, :], mask=mask)
            row = merge(row, part)
        rows.append(row.out)
    return torch.cat(rows, -2).to(q.dtype)


def _causal_tile(last: int, queries: Tensor, keys: slice) -> Tensor | None:
    """Mask a tile whose first query sees keys up to ``last``; None where all see all of it."""
    if keys.stop <= last + 1:
        return None
    shape = queries.shape[-2], keys.stop - keys.start
    return torch.ones(shape, dtype=torch.bool, device=queries.device).tril(last - keys.start)
