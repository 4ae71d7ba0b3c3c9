"""What comes after the scores: the softmax's derivative, and the ways to hide a score from it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from labkit.attention import scaled_dot_product_attention

__all__ = ["WAYS_TO_MASK", "softmax_jacobian"]


def softmax_jacobian(p: Tensor) -> Tensor:
    """Give the softmax's derivative at the weights p: diag(p) - p p^T.

    Args:
        p: (..., n), weights that sum to 1.

    Returns:
        (..., n, n), the derivative of weight i by score j at [..., i, j].

    >>> softmax_jacobian(torch.tensor([0.5, 0.5]))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    return torch.diag_embed(p) - p[..., :, None] * p[..., None, :]


def _mask_by_filling(number: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def mask(scores: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
        masked = scores.masked_fill(~may, number)
        return masked, masked.softmax(-1)

    return mask


def _mask_by_adding(number: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def mask(scores: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
        masked = scores + torch.zeros_like(scores).masked_fill(~may, number)
        return masked, masked.softmax(-1)

    return mask


def _zero_scores(scores: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
    return scores * may, (scores * may).softmax(-1)


def _zero_weights(scores: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
    return scores, scores.softmax(-1) * may


def _as_labkit(scores: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
    unit = torch.eye(len(scores), dtype=scores.dtype)
    _, weights = scaled_dot_product_attention(
        scores, unit, unit, may, scale=1.0, return_weights=True
    )
    return scores.masked_fill(~may, -inf), weights


# Each takes scores and a mask, (n, n) both, and gives the scores after the mask and the weights.
# Not all of them are right.
WAYS_TO_MASK: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "fill with -inf": _mask_by_filling(-inf),
    "fill with -1e9": _mask_by_filling(-1e9),
    "add -inf": _mask_by_adding(-inf),
    "add -10000": _mask_by_adding(-1e4),
    "zero the scores": _zero_scores,
    "zero the weights": _zero_weights,
    "as labkit": _as_labkit,
}
