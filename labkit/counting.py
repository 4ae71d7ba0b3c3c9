"""What multi-head attention costs: parameters, operations and bytes, by formula and counted.

A multiply-add (MAC) is one multiplication and the addition that follows; it is two FLOPs. Names
that end in ``_macs`` count the former, names that end in ``_flops`` the latter. All formulas are
for one sequence; B sequences cost B times as much.

Letters: B batch, n positions (n_q of queries, n_k of keys), d_model width of the model, h heads,
h_kv heads of keys and values, d_k and d_v widths of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from labkit.arguments import key_heads, number_bytes, positions, size, widths

__all__ = [
    "FLOPS_PER_MAC",
    "attention_flops",
    "attention_parameters",
    "cache_bytes",
    "count_flops",
    "count_parameters",
    "product_macs",
    "projection_macs",
    "score_entries",
    "weight_bytes",
]

FLOPS_PER_MAC = 2

# Operations whose products PyTorch's counter does not see, and would count as 0.
UNCOUNTED = (
    "_int_mm",
    "_native_multi_head_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_transformer_encoder_layer_fwd",
    "_trilinear",
    "addbmm",
    "addmv",
    "addr",
    "dot",
    "mkldnn_rnn_layer",
    "mv",
    "vdot",
)


def attention_parameters(
    d_model: int,
    h: int,
    *,
    h_kv: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
    bias: bool = True,
) -> int:
    """Give the number of parameters of a multi-head attention layer.

    d_model (h + h_kv) (d_k + d_v), and with biases h d_k + h_kv (d_k + d_v) + d_model more. Where
    h_kv = h and h d_k = h d_v = d_model that is 4 d_model^2, and 4 d_model more.

    Args:
        d_model: width of the input and of the output.
        h: number of heads.
        h_kv: number of heads of keys and values; h unless given.
        d_k: width of a head's queries and keys; d_model / h unless given.
        d_v: width of a head's values; d_k unless given.
        bias: count a bias after each of the four projections.

    Returns:
        A number of parameters.

    Raises:
        TypeError: a size that is not a whole number.
        ValueError: a size under 1, h that does not divide d_model where d_k is left out, or h_kv
            that does not divide h.

    Source: Vaswani et al. (2017), section 3.2.2, the shapes of the projections.

    >>> attention_parameters(512, 8, bias=False), attention_parameters(512, 8)
    (1048576, 1050624)
    """
    d_model, h, d_k, d_v = widths(d_model, h, d_k, d_v)
    h_kv = key_heads(h, h_kv)
    matrices = d_model * (h + h_kv) * (d_k + d_v)
    return matrices + (h * d_k + h_kv * (d_k + d_v) + d_model if bias else 0)


def count_parameters(module: nn.Module) -> int:
    """Count a module's parameters, each shared one once.

    Args:
        module: any; buffers are not counted.

    Returns:
        A number of parameters.

    Raises:
        TypeError: not a module.

    >>> count_parameters(nn.Linear(4, 3))
    15
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module; got {type(module).__name__}.")
    return sum(parameter.numel() for parameter in module.parameters())


def projection_macs(
    n_q: int,
    d_model: int,
    h: int,
    *,
    n_k: int | None = None,
    h_kv: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
) -> int:
    """Give the multiply-adds of the four projections.

    n_q d_model h (d_k + d_v) for queries and W^O, n_k d_model h_kv (d_k + d_v) for keys and
    values. In self-attention with h_kv = h and h d_k = h d_v = d_model that is 4 n d_model^2.

    Args:
        n_q: number of queries.
        d_model: width of the input and of the output.
        h: number of heads.
        n_k: number of keys; n_q unless given.
        h_kv: number of heads of keys and values; h unless given.
        d_k: width of a head's queries and keys; d_model / h unless given.
        d_v: width of a head's values; d_k unless given.

    Returns:
        A number of multiply-adds, for one sequence. Biases are not counted.

    Raises:
        TypeError: a size that is not a whole number.
        ValueError: a size under 1, h that does not divide d_model where d_k is left out, or h_kv
            that does not divide h.

    Source: Vaswani et al. (2017), section 3.2.2, the shapes of the projections.

    >>> projection_macs(3, 4, 2)
    192
    """
    n_q, n_k = positions(n_q, n_k)
    d_model, h, d_k, d_v = widths(d_model, h, d_k, d_v)
    return d_model * (d_k + d_v) * (n_q * h + n_k * key_heads(h, h_kv))


def product_macs(
    n_q: int,
    d_model: int,
    h: int,
    *,
    n_k: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
) -> int:
    """Give the multiply-adds of Q K^T and A V, all heads together.

    h n_q n_k (d_k + d_v). In self-attention with h d_k = h d_v = d_model that is 2 n^2 d_model,
    whatever h is. A causal mask saves none of them where the products are written out.

    Args:
        n_q: number of queries.
        d_model: width of the model, from which d_k follows where it is left out.
        h: number of heads.
        n_k: number of keys; n_q unless given.
        d_k: width of a head's queries and keys; d_model / h unless given.
        d_v: width of a head's values; d_k unless given.

    Returns:
        A number of multiply-adds, for one sequence. The softmax is not counted.

    Raises:
        TypeError: a size that is not a whole number.
        ValueError: a size under 1, or h that does not divide d_model where d_k is left out.

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.

    >>> product_macs(3, 4, 2), product_macs(3, 4, 1)
    (72, 72)
    """
    n_q, n_k = positions(n_q, n_k)
    _, h, d_k, d_v = widths(d_model, h, d_k, d_v)
    return h * n_q * n_k * (d_k + d_v)


def attention_flops(
    n_q: int,
    d_model: int,
    h: int,
    *,
    n_k: int | None = None,
    h_kv: int | None = None,
    d_k: int | None = None,
    d_v: int | None = None,
) -> int:
    """Give the FLOPs of a layer's matrix products: two for each multiply-add.

    2 (projection_macs + product_macs). In self-attention with h_kv = h and h d_k = h d_v = d_model
    that is 8 n d_model^2 + 4 n^2 d_model.

    Args:
        n_q, d_model, h, n_k, h_kv, d_k, d_v: as in projection_macs.

    Returns:
        A number of FLOPs, for one sequence. Biases and softmax are not counted.

    Raises:
        TypeError: a size that is not a whole number.
        ValueError: a size under 1, h that does not divide d_model where d_k is left out, or h_kv
            that does not divide h.

    Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.2.

    >>> attention_flops(3, 4, 2)
    528
    """
    sizes = {"n_k": n_k, "d_k": d_k, "d_v": d_v}
    projections = projection_macs(n_q, d_model, h, h_kv=h_kv, **sizes)
    return FLOPS_PER_MAC * (projections + product_macs(n_q, d_model, h, **sizes))


def count_flops(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Call a function and count the FLOPs of the matrix products in it.

    PyTorch's counter reads them from the shapes, so tensors on the device "meta" will do. It knows
    products of matrices and convolutions. A softmax, a sum or a bias count as nothing.

    Args:
        function: what to call, with explicit matrix products.
        args, kwargs: what to call it with.

    Returns:
        A number of FLOPs: two for each multiply-add.

    Raises:
        TypeError: the function cannot be called.
        ValueError: it uses an operation whose products the counter would leave out, such as a
            fused attention kernel or a product with a vector.

    >>> count_flops(torch.matmul, torch.ones(3, 4), torch.ones(4, 5))
    120
    """
    if not callable(function):
        raise TypeError(f"function must be callable; got a {type(function).__name__}.")
    refusals = {getattr(torch.ops.aten, name): _refusal(name) for name in UNCOUNTED}
    gradients = torch.is_grad_enabled()
    with (
        torch.inference_mode(False),  # under which older versions of PyTorch count nothing
        torch.set_grad_enabled(gradients),
        FlopCounterMode(display=False, custom_mapping=refusals) as counter,
    ):
        function(*args, **kwargs)
    return counter.get_total_flops()


def score_entries(h: int, n_q: int, n_k: int | None = None, *, B: int = 1) -> int:
    """Give how many scores, and so how many weights, there are: what the softmax works on.

    B h n_q n_k, the entries of a tensor (B, h, n_q, n_k).

    Args:
        h: number of heads.
        n_q: number of queries.
        n_k: number of keys; n_q unless given.
        B: number of sequences.

    Returns:
        A number of entries.

    Raises:
        TypeError: a size that is not a whole number.
        ValueError: a size under 1.

    Source: Vaswani et al. (2017), section 3.2.2.

    >>> score_entries(8, 128, B=32)
    4194304
    """
    n_q, n_k = positions(n_q, n_k)
    return size("B", B) * size("h", h) * n_q * n_k


def weight_bytes(
    h: int, n_q: int, n_k: int | None = None, *, B: int = 1, dtype: torch.dtype = torch.float32
) -> int:
    """Give the bytes that the attention weights take where they are written out.

    B h n_q n_k times the size of a number. A fused kernel never holds them all.

    Args:
        h, n_q, n_k, B: as in score_entries.
        dtype: type of a weight.

    Returns:
        A number of bytes; a megabyte (MB) is 10^6 of them, a mebibyte (MiB) 2^20.

    Raises:
        TypeError: a size that is not a whole number, or not a type of PyTorch's.
        ValueError: a size under 1.

    >>> weight_bytes(8, 128, B=32), weight_bytes(8, 128, B=32, dtype=torch.float16)
    (16777216, 8388608)
    """
    return score_entries(h, n_q, n_k, B=B) * number_bytes(dtype)


def cache_bytes(
    h_kv: int,
    d_k: int,
    n: int,
    *,
    layers: int = 1,
    d_v: int | None = None,
    B: int = 1,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Give the bytes that keys and values take which are kept for n positions.

    B layers h_kv n (d_k + d_v) times the size of a number.

    Args:
        h_kv: heads of keys and values in a layer; h, unless heads share them.
        d_k: width of a head's keys.
        n: positions held.
        layers: layers, each with a cache of its own.
        d_v: width of a head's values; d_k unless given.
        B: sequences.
        dtype: type of a number.

    Returns:
        A number of bytes.

    Raises:
        TypeError: a size that is not a whole number, or not a type of PyTorch's.
        ValueError: a size under 1.

    Source: Shazeer (2019), section 2.4.1, the tensors K and V of incremental decoding.

    >>> cache_bytes(12, 64, 1, layers=12, dtype=torch.float16)
    36864
    """
    d_k = size("d_k", d_k)
    d_v = d_k if d_v is None else size("d_v", d_v)
    numbers = size("h_kv", h_kv) * size("n", n) * (d_k + d_v)
    return size("B", B) * size("layers", layers) * numbers * number_bytes(dtype)


def _refusal(name: str) -> Callable[..., int]:
    """Make the formula of an operation that cannot be counted: it raises."""

    def refuse(*args: Any, **kwargs: Any) -> int:
        raise ValueError(
            f"count_flops expects products of matrices; got {name}, which PyTorch's counter leaves "
            "out. Write attention out, as with return_weights=True, and a vector as a matrix with "
            "one row."
        )

    return refuse
