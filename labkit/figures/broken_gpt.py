"""The small GPT with a bug in its layers, for the stage: js/gpt.js computes the same."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.attention import causal_mask, merge_heads, split_heads
from labkit.models.gpt import GPT
from labkit.positions import rotate

LATER = "later words seen"
NOT_DIVIDED = "not divided by √dₖ"
WRONG_ORDER = "heads merged in the wrong order"
NO_W_O = "output projection left out"
BUGS = ("none", LATER, NOT_DIVIDED, WRONG_ORDER, NO_W_O)


class Run(NamedTuple):
    """What a GPT computes for a text of n words; the heads' parts by layer and head."""

    next: Tensor  # (n, words), probabilities
    weights: Tensor  # (layers, h, n, n)
    q: Tensor  # (layers, h, n, d_k), and so are k and v
    k: Tensor
    v: Tensor


@torch.no_grad()
def run(model: GPT, ids: Tensor, bug: str = "none") -> Run:
    """Compute what a GPT with rotary positions says next, with a bug in every layer or without.

    Args:
        ids: (n,), the numbers of the words, or (B, n); then all parts have B before h and n.
        bug: one of ``BUGS``.
    """
    x, parts = model.words(ids), []
    for block in model.stack():
        layer, normed = block.attention, block.attention_norm(x)
        q, k, v = (
            split_heads(F.linear(normed, *part), layer.h)
            for part in (layer.w_q, layer.w_k, layer.w_v)
        )
        if layer.rotary_base is not None:
            q, k = rotate(q, layer.rotary_base), rotate(k, layer.rotary_base)
        scores = q @ k.mT / (1 if bug == NOT_DIVIDED else layer.d_k**0.5)
        if bug != LATER:
            scores = scores.masked_fill(~causal_mask(ids.shape[-1]), -torch.inf)
        weights = scores.softmax(-1)
        heads = weights @ v
        merged = heads.reshape(*ids.shape, -1) if bug == WRONG_ORDER else merge_heads(heads)
        x = x + (merged if bug == NO_W_O else layer.w_o(merged))
        x = x + block.feed_forward(block.feed_forward_norm(x))
        parts.append((weights, q, k, v))
    said = model.next_word(model.norm(x)).softmax(-1)
    return Run(said, *(torch.stack(part) for part in zip(*parts, strict=True)))
