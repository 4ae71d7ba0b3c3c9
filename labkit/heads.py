"""What a head attends to, measured; and what a layer does without it.

A relation weight is the share of its weight that a head gives where a relation holds, averaged over
the queries that have a related key: 1 if the head does nothing else, and the share of related keys
if it spreads evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from labkit.arguments import check_tensor, size, whole
from labkit.attention import MultiHeadAttention

__all__ = [
    "entropy",
    "first_weight",
    "induction_relation",
    "next_weight",
    "offset_relation",
    "previous_weight",
    "relation_weight",
    "self_weight",
    "target_weight",
    "without_heads",
]


def relation_weight(weights: Tensor, relation: Tensor) -> Tensor:
    """Average, over the queries that have a related key, the weight on the related keys.

    mean over {i : R_i is not empty} of sum over j in R_i of A_ij

    Args:
        weights: (..., n_q, n_k), attention weights.
        relation: boolean, broadcastable to that shape, True where key j is related to query i.

    Returns:
        (...), between 0 and 1; NaN where no query has a related key.

    Raises:
        TypeError: weights that are not a floating-point tensor, or a relation that is not a
            boolean one.
        ValueError: fewer than two dimensions, or shapes that do not fit.

    Source: Clark et al. (2019), section 3, for the idea of a head's average weight on a target.

    >>> relation_weight(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.eye(2, dtype=torch.bool))
    tensor(0.7000)
    """
    _check_weights(weights)
    check_tensor("relation", relation, 0, "(..., n_q, n_k)")
    if relation.dtype != torch.bool:
        raise TypeError(
            f"relation must be torch.bool, True where the key is related; got {relation.dtype}."
        )
    try:
        relation = relation.expand(weights.shape)
    except RuntimeError:
        raise ValueError(
            f"relation must broadcast to the weights, {tuple(weights.shape)}; got "
            f"{tuple(relation.shape)}. A relation of each sequence of a batch of heads is "
            "(B, 1, n_q, n_k)."
        ) from None
    n_queries = relation.any(-1).sum(-1)
    return (weights * relation).sum((-2, -1)) / n_queries


def offset_relation(n: int, offset: int, *, device: torch.device | str | None = None) -> Tensor:
    """Relate each position to the one ``offset`` places after it: R_ij = (j - i == offset).

    Args:
        n: positions.
        offset: -1 for the previous position, 0 for the same, 1 for the next.

    Returns:
        (n, n), boolean.

    Raises:
        TypeError: n or an offset that is not a whole number.
        ValueError: n under 1.

    >>> offset_relation(3, -1).int()
    tensor([[0, 0, 0],
            [1, 0, 0],
            [0, 1, 0]], dtype=torch.int32)
    """
    position = torch.arange(size("n", n), device=device)
    return position[None, :] - position[:, None] == whole("offset", offset)


def previous_weight(weights: Tensor) -> Tensor:
    """Average the weight on the position before the query's: (..., n, n) gives (...).

    mean over i > 0 of A_(i, i-1). Raises and source as relation_weight.

    >>> previous_weight(torch.tensor([[1.0, 0.0], [0.75, 0.25]]))
    tensor(0.7500)
    """
    return _offset_weight(weights, -1)


def next_weight(weights: Tensor) -> Tensor:
    """Average the weight on the position after the query's: (..., n, n) gives (...).

    mean over i < n - 1 of A_(i, i+1). Raises and source as relation_weight.

    >>> next_weight(torch.tensor([[0.25, 0.75], [0.0, 1.0]]))
    tensor(0.7500)
    """
    return _offset_weight(weights, 1)


def self_weight(weights: Tensor) -> Tensor:
    """Average the weight on the query's own position: (..., n, n) gives (...).

    mean over i of A_ii. Raises and source as relation_weight.

    >>> self_weight(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor(0.7500)
    """
    return _offset_weight(weights, 0)


def target_weight(weights: Tensor, is_target: Tensor) -> Tensor:
    """Average the weight that goes to marked keys, such as delimiters or special tokens.

    mean over i of sum over marked j of A_ij

    Args:
        weights: (..., n_q, n_k), attention weights.
        is_target: boolean, broadcastable to (..., n_k), True at the marked keys.

    Returns:
        (...), between 0 and 1; NaN where nothing is marked.

    Raises as relation_weight, and has its source.

    >>> target_weight(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([True, False]))
    tensor(0.7500)
    """
    check_tensor("is_target", is_target, 1, "(..., n_k)")
    return relation_weight(weights, is_target[..., None, :])


def first_weight(weights: Tensor) -> Tensor:
    """Average the weight on the first key: (..., n_q, n_k) gives (...).

    mean over i of A_i0. Raises and source as relation_weight.

    >>> first_weight(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor(0.7500)
    """
    _check_weights(weights)
    return target_weight(weights, torch.arange(weights.shape[-1], device=weights.device) == 0)


def induction_relation(tokens: Tensor) -> Tensor:
    """Relate each position to those that follow an earlier copy of its token.

    R_ij = (1 <= j <= i and token_(j-1) == token_i), i and j counted from 0

    Args:
        tokens: (..., n), whole numbers.

    Returns:
        (..., n, n), boolean.

    Raises:
        TypeError: not a tensor.
        ValueError: a tensor without dimensions.

    Source: Olsson et al. (2022), "prefix matching".

    >>> induction_relation(torch.tensor([5, 7, 5])).nonzero()
    tensor([[2, 1]])
    """
    check_tensor("tokens", tokens, 1, "(..., n)")
    n = tokens.shape[-1]
    follows = torch.zeros(*tokens.shape, n, dtype=torch.bool, device=tokens.device)
    follows[..., 1:] = tokens[..., :, None] == tokens[..., None, :-1]
    return follows.tril()


def entropy(weights: Tensor) -> Tensor:
    """Average how many bits a query's weights spread over: 0 on one key, log2(n_k) if even.

    mean over i of -sum over j of A_ij log2 A_ij

    Args:
        weights: (..., n_q, n_k), attention weights.

    Returns:
        (...), in bits.

    Raises:
        TypeError: weights that are not a floating-point tensor.
        ValueError: fewer than two dimensions.

    Source: Clark et al. (2019), section 3.3, who average it over heads' distributions.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor(0.5000)
    """
    _check_weights(weights)
    return torch.special.entr(weights).sum(-1).mean(-1) / math.log(2)


@contextmanager
def without_heads(module: MultiHeadAttention, heads: Iterable[int]) -> Iterator[None]:
    """Silence heads inside a ``with`` block: their slabs of W^O are zero, then as they were.

    The layer's output is then the sum of what the other heads write, and the bias.

    Args:
        module: the layer.
        heads: which of its heads, each from 0 to h - 1.

    Raises:
        TypeError: a head that is not a whole number.
        ValueError: a head that the layer does not have.

    Source: Michel et al. (2019), section 2, where the head's output is multiplied by 0.

    >>> layer = MultiHeadAttention(d_model=4, h=2, bias=False)
    >>> with without_heads(layer, [0, 1]):
    ...     layer(torch.ones(1, 1, 4)).abs().sum().item()
    0.0
    """
    heads = [whole("a head", head) for head in heads]
    outside = [head for head in heads if not 0 <= head < module.h]
    if outside:
        raise ValueError(f"heads are numbered 0 to {module.h - 1}; got {outside}.")
    kept = module.w_o.weight.detach().clone()
    try:
        with torch.no_grad():
            module.w_o.weight.unflatten(1, (module.h, module.d_v))[:, heads] = 0
        yield
    finally:
        with torch.no_grad():
            module.w_o.weight.copy_(kept)


def _offset_weight(weights: Tensor, offset: int) -> Tensor:
    _check_weights(weights)
    n_q, n_k = weights.shape[-2:]
    if n_q != n_k:
        raise ValueError(
            f"weights must be square, (..., n, n), for a position's neighbours; got shape "
            f"{tuple(weights.shape)}. Give relation_weight a relation instead."
        )
    return relation_weight(weights, offset_relation(n_k, offset, device=weights.device))


def _check_weights(weights: Tensor) -> None:
    check_tensor("weights", weights, 2, "(..., n_q, n_k)")
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating point; got {weights.dtype}.")
