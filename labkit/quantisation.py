"""Numbers kept in a few bits each: what a cache saves with, and what that loses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.arguments import check_sequence

__all__ = ["BITS", "dequantise", "quantise"]

BITS = (8, 4, 2)
LARGEST = torch.finfo(torch.float16).max


def check_bits(bits: int) -> int:
    if bits not in BITS:
        raise ValueError(f"bits must be one of {', '.join(map(str, BITS))}; got {bits!r}.")
    return bits


@torch.no_grad()
def quantise(x: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Write each vector as whole numbers from 0 to 2^bits - 1, with an offset and a scale.

    x is near offset + scale * code: offset is the vector's least number, and scale the range of its
    numbers over 2^bits - 1. Both are kept in float16, and the codes are those that fit them.

    Args:
        x: (..., n, d), floating point. Numbers beyond the range of float16 are cut off.
        bits: 8, 4 or 2, of which a byte holds 8 / bits.

    Returns:
        The codes, (..., n, d * bits / 8), uint8, d rounded up to whole bytes, and offset and scale,
        (..., n, 2), float16.

    Raises:
        TypeError: not a floating-point tensor.
        ValueError: fewer than two dimensions, or another number of bits.

    Source: Jacob et al. (2018), section 2.1, for a scale and an offset.

    >>> codes, scales = quantise(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), 2)
    >>> codes.tolist(), scales.tolist()  # 3 2 1 0 in base 4, the first number last
    ([[228]], [[0.0, 1.0]])
    """
    check_sequence("x", x, "(..., n, d)")
    levels = 2 ** check_bits(bits) - 1
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32)).clamp(-LARGEST, LARGEST)
    offset = x.amin(-1, keepdim=True).half()
    scale = ((x.amax(-1, keepdim=True) - offset) / levels).clamp(0, LARGEST).half()
    steps = (x - offset) / scale.to(x.dtype).masked_fill(scale == 0, torch.inf)
    codes = steps.round().clamp(0, levels).to(torch.uint8)
    per_byte = 8 // bits
    codes = F.pad(codes, (0, -codes.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = (codes << _shifts(bits, x.device)).sum(-1, dtype=torch.uint8)
    return packed, torch.cat([offset, scale], -1)


def dequantise(codes: Tensor, scales: Tensor, bits: int, d: int, dtype: torch.dtype) -> Tensor:
    """Read what quantise wrote: (..., n, d), of the type asked for.

    >>> x = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    >>> dequantise(*quantise(x, 2), bits=2, d=4, dtype=x.dtype).tolist()
    [[0.0, 1.0, 2.0, 3.0]]
    """
    if bits < 8:
        codes = (codes[..., None] >> _shifts(bits, codes.device)) & (2**bits - 1)
        codes = codes.flatten(-2)[..., :d]
    exact = torch.promote_types(dtype, torch.float32)
    offset, scale = scales.to(exact).split(1, -1)
    return torch.addcmul(offset, codes.to(exact), scale).to(dtype)


def _shifts(bits: int, device: torch.device) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device)
