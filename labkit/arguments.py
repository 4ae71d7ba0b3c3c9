"""What labkit asks of its arguments: errors that name what was expected, what came, what to do."""

from __future__ import annotations

import math
import operator
from numbers import Real

import torch
from torch import Tensor


def shapes(**tensors: Tensor) -> str:
    return ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())


def check_tensor(name: str, x: Tensor, ndim: int, form: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor of shape {form}; got {type(x).__name__}.")
    if x.ndim < ndim:
        raise ValueError(
            f"{name} must have shape {form}, at least {ndim} dimensions; got shape "
            f"{tuple(x.shape)}. Add what is missing with {name}[None]."
        )


def check_sequence(name: str, x: Tensor, form: str) -> None:
    check_tensor(name, x, 2, form)
    if not x.is_floating_point():
        raise TypeError(
            f"{name} must be floating point; got {x.dtype}. Convert it: {name}.float()."
        )
    if 0 in x.shape[-2:]:
        raise ValueError(
            f"{name} must have shape {form} with at least one position and one feature; got shape "
            f"{tuple(x.shape)}."
        )


def same_leading(
    q: Tensor, k: Tensor, v: Tensor, shared: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Check q, k and v, and give them the same leading dimensions, without a copy.

    Where keys are shared, k and v keep a number of heads that divides that of q.
    """
    check_sequence("q", q, "(..., n_q, d_k)")
    check_sequence("k", k, "(..., n_k, d_k)")
    check_sequence("v", v, "(..., n_k, d_v)")
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        raise TypeError(
            f"q, k and v must have one type; got q {q.dtype}, k {k.dtype}, v {v.dtype}. "
            f"Convert them: .to({q.dtype})."
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k must have the same last dimension, d_k; got {shapes(q=q, k=k)}. "
            "Project both to the same width."
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must have the same number of positions, n_k; got {shapes(k=k, v=v)}. "
            "Each key needs its value."
        )
    inner = -3 if shared else -2  # from here on, sizes are not broadcast
    if shared:
        _check_shared_heads(q, k, v)
    leads = q.shape[:inner], k.shape[:inner], v.shape[:inner]
    if leads[0] == leads[1] == leads[2]:
        return q, k, v
    try:
        lead = torch.broadcast_shapes(*leads)
    except RuntimeError:
        raise ValueError(
            f"the leading dimensions of q, k and v must be equal or 1; got {shapes(q=q, k=k, v=v)}"
            f", so leading dimensions {', '.join(str(tuple(lead)) for lead in leads)}."
            f"{_remedy_of_heads(q, k, v)}"
        ) from None
    q, k, v = (x.expand(*lead, *x.shape[inner:]) for x in (q, k, v))
    return q, k, v


def _check_shared_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    heads = [x.shape[-3] if x.ndim > 2 else 0 for x in (q, k, v)]
    if 0 in heads or heads[1] != heads[2] or heads[0] % heads[1]:
        raise ValueError(
            "with enable_gqa, q must have shape (..., h, n_q, d_k), and k and v h_kv heads, which "
            f"divides h; got {shapes(q=q, k=k, v=v)}."
        )


def _remedy_of_heads(q: Tensor, k: Tensor, v: Tensor) -> str:
    h, h_k, h_v = (x.shape[-3] if x.ndim > 2 else 0 for x in (q, k, v))
    shared = h_k == h_v > 0 and h % h_k == 0
    return " If heads share keys and values, pass enable_gqa=True." if shared else ""


def check_input(name: str, x: Tensor, weight: Tensor) -> None:
    check_tensor(name, x, 2, "(B, n, d_model)")
    *_, n, width = x.shape
    d_model = weight.shape[1]
    if width != d_model:
        raise ValueError(
            f"{name} must have shape (B, n, d_model) with d_model={d_model}; got shape "
            f"{tuple(x.shape)}. Its last dimension is the one to change."
        )
    if n == 0:
        raise ValueError(f"{name} must have at least one position; got shape {tuple(x.shape)}.")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"{name} must have the type of the weights, {weight.dtype}; got {x.dtype}. "
            f"Convert one: {name}.to({weight.dtype}), or the module with .to({x.dtype})."
        )


def rotary(base: float | None, scaling: float, d_k: int) -> tuple[float | None, float]:
    """Check rotary_base and rotary_scaling."""
    scaling = above_zero("rotary_scaling", scaling)
    if base is not None:
        even("d_k", d_k)
        return above_zero("rotary_base", base), scaling
    if scaling != 1:
        raise ValueError(
            f"rotary_scaling scales rotary positions, and there are none; got {scaling}. "
            "Give a rotary_base."
        )
    return None, scaling


def check_inputs(
    x: Tensor, context: Tensor, mask: Tensor | None, weight: Tensor, h: int, past: int = 0
) -> None:
    check_input("x", x, weight)
    if context is not x:
        check_input("context", context, weight)
        if x.shape[:-2] != context.shape[:-2]:
            raise ValueError(
                "x and context must have the same leading dimensions; got "
                f"{shapes(x=x, context=context)}. Expand the one that serves several."
            )
    if mask is not None:
        shape = (*x.shape[:-2], h, x.shape[-2], past + context.shape[-2])
        check_mask(mask, shape, "(B, h, n_q, n_k)")


def check_mask(mask: Tensor, shape: tuple[int, ...], form: str) -> None:
    check_tensor("mask", mask, 0, form)
    if mask.dtype != torch.bool:
        advice = (
            "If it is added to the scores (0 to attend, -inf to hide), pass mask == 0."
            if mask.is_floating_point()
            else "Pass mask == 1 if 1 means may attend, mask == 0 if 1 means hidden."
        )
        raise TypeError(
            f"mask must be torch.bool, True where a query may attend; got {mask.dtype}. {advice}"
        )
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > len(shape) or any(size not in (1, full) for size, full in pairs):
        raise ValueError(
            f"mask must broadcast to {form} = {shape}: each dimension equal or 1; got shape "
            f"{tuple(mask.shape)}. Pass a (B, n_k) padding mask as mask[:, None, None, :], and a "
            "(B, n_q, n_k) mask as mask[:, None]."
        )


def whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number; got {value!r}, a {type(value).__name__}."
        ) from None


def size(name: str, value: int) -> int:
    size = whole(name, value)
    if size < 1:
        raise ValueError(f"{name} must be at least 1; got {size}.")
    return size


def head_width(x: Tensor, h: int) -> tuple[int, int]:
    """Check x and h, and give h and the width of a head."""
    check_tensor("x", x, 2, "(..., n, h*d)")
    h, width = size("h", h), x.shape[-1]
    if width % h:
        raise ValueError(
            f"the last dimension of x must be h*d, a multiple of h={h}; got x of shape "
            f"{tuple(x.shape)}, whose last dimension is {width}. Choose an h that divides {width}."
        )
    return h, width // h


def divisors(number: int) -> list[int]:
    return [i for i in range(1, number + 1) if number % i == 0]


def key_heads(h: int, h_kv: int | None) -> int:
    """Check h_kv, which is h unless given."""
    h_kv = h if h_kv is None else size("h_kv", h_kv)
    if h % h_kv:
        raise ValueError(
            f"h_kv must divide h, so that as many heads read each head of keys; got h={h} and "
            f"h_kv={h_kv}. Choose one of {divisors(h)}."
        )
    return h_kv


def number(name: str, value: float) -> float:
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number; got a {type(value).__name__}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value}.")
    return float(value)


def number_bytes(dtype: torch.dtype) -> int:
    """Check a type, and give the bytes of one number of it."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype; got {dtype!r}, a {type(dtype).__name__}.")
    return dtype.itemsize


def above_zero(name: str, value: float) -> float:
    value = number(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be above 0; got {value}.")
    return value


def even(name: str, width: int) -> int:
    if width % 2:
        raise ValueError(f"{name} must be even, because features go in pairs; got {width}.")
    return width


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")
    return value


def probability(name: str, value: float) -> float:
    value = number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1; got {value}.")
    return value


def positions(n_q: int, n_k: int | None) -> tuple[int, int]:
    """Check n_q and n_k, which is n_q unless given."""
    n_q = size("n_q", n_q)
    return n_q, n_q if n_k is None else size("n_k", n_k)


def widths(d_model: int, h: int, d_k: int | None, d_v: int | None) -> tuple[int, int, int, int]:
    """Check d_model, h, d_k and d_v. Unless given, d_k is d_model / h and d_v is d_k."""
    d_model, h = size("d_model", d_model), size("h", h)
    if d_k is None and d_model % h:
        raise ValueError(
            f"d_model must be a multiple of h where d_k is left out; got d_model={d_model} and "
            f"h={h}. Choose an h that divides {d_model}, or give d_k."
        )
    d_k = d_model // h if d_k is None else size("d_k", d_k)
    return d_model, h, d_k, d_k if d_v is None else size("d_v", d_v)
