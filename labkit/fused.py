"""Attention on PyTorch's fused kernel, which holds no n_q x n_k tensor, whatever is asked of it.

The kernel takes (B, h, n, d) alone, with one d for keys and values and the features side by side,
and its causal flag fits sequences of one length and no mask. The rest is brought to that form.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

CAUSAL_BLOCK = 256  # queries at a time where the kernel's causal flag does not fit


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Mix the values by softmax(scale * q k^T), with the arguments that attention has checked.

    Leading dimensions are equal, but that several heads of q in a row may read one of k and v; the
    mask broadcasts. A query with nothing to see gets zeros.
    """
    q, k, v = [x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)]
    if q.shape[-2] == 1 and q.shape[:-2] != k.shape[:-2]:
        return _one_query_by_groups(q, k, v, mask, scale, dropout_p)
    is_causal = is_causal and q.shape[-2] > 1  # one query is the last position, and sees them all
    if is_causal and (mask is not None or q.shape[-2] != k.shape[-2]):
        return _causal_by_blocks(q, k, v, mask, scale, dropout_p)
    return _on_kernel(q, k, v, mask, is_causal, scale, dropout_p)


def _one_query_by_groups(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout_p: float
) -> Tensor:
    """Let the heads that read the same keys be the queries of one head: keys are read once."""
    h, h_kv = q.shape[-3], k.shape[-3]
    if mask is not None and mask.ndim > 2 and mask.shape[-3] == h:
        mask = mask.squeeze(-2).unflatten(-2, (h_kv, h // h_kv))
    folded = q.squeeze(-2).unflatten(-2, (h_kv, h // h_kv))
    out = _on_kernel(folded, k, v, mask, False, scale, dropout_p)
    return out.flatten(-3, -2).unsqueeze(-2)


def _causal_by_blocks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout_p: float
) -> Tensor:
    """Hide the future for one block of queries after another, so that no mask is n_q x n_k."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], n_q, n_k)
    blind = max(n_q - n_k, 0)  # these queries come before every key
    blocks = []
    for start in range(blind, n_q, CAUSAL_BLOCK):
        stop = min(start + CAUSAL_BLOCK, n_q)
        n_visible = n_k - n_q + stop
        may = torch.ones(stop - start, n_visible, dtype=torch.bool, device=q.device)
        may = may.tril(n_visible - stop + start)
        if mask is not None:
            may = may & mask[..., start:stop, :n_visible]
        past = k[..., :n_visible, :], v[..., :n_visible, :]
        blocks.append(_on_kernel(q[..., start:stop, :], *past, may, False, scale, dropout_p))
    return F.pad(torch.cat(blocks, -2), (0, 0, blind, 0))


def _on_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    *lead, n_q, d_k = q.shape
    d_v = v.shape[-1]
    if mask is not None:
        mask = _four_dimensional(mask, lead)
    if len(lead) != 2:
        q, k, v = (_four_dimensional(x, lead) for x in (q, k, v))
    if d_k != d_v:  # a feature of zeros changes no score, and no output but its own
        q, k, v = (F.pad(x, (0, max(d_k, d_v) - x.shape[-1])) for x in (q, k, v))
    shared = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(
        q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=shared
    )
    if d_k != d_v:
        out = out[..., :d_v]
    return out if len(lead) == 2 else out.reshape(*lead, n_q, d_v)


def _four_dimensional(x: Tensor, lead: list[int]) -> Tensor:
    """Add leading dimensions of size 1, or merge all but the last of them."""
    x = x[(None,) * (max(len(lead), 2) + 2 - x.ndim)]
    if x.ndim == 4:
        return x
    if math.prod(x.shape[:-3]) > 1:
        x = x.expand(*lead[:-1], *x.shape[-3:])
    return x.flatten(0, -4)
