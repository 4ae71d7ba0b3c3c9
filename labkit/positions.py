"""Position information: attention does not see where a word is, so a model has to be given it."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.arguments import above_zero, check_sequence, even, size, whole

__all__ = ["rotate", "sinusoids"]


def sinusoids(n: int, d_model: int, *, base: float = 10_000.0) -> Tensor:
    """Make the vectors that are added to the words' in order to tell positions apart.

    row p holds, for each pair i, sin(p / base^(2i/d_model)) and its cosine.

    Args:
        n: positions.
        d_model: width, even.
        base: the longest wave is 2 pi base positions, or nearly.

    Returns:
        (n, d_model).

    Raises:
        TypeError, ValueError: a size that is not a whole number or is under 1, an odd width, or a
            base that is not a number above 0.

    Source: Vaswani et al. (2017), section 3.5.

    >>> sinusoids(2, 2).tolist()[0]
    [0.0, 1.0]
    """
    d_model = even("d_model", size("d_model", d_model))
    angles = _angles(0, size("n", n), d_model, base, torch.device("cpu"))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).float()


def rotate(x: Tensor, base: float = 10_000.0, start: int = 0) -> Tensor:
    """Rotate each pair of features by an angle that grows with the position.

    Features 2i and 2i + 1 at position p are rotated by p / base^(2i/d). The product of a rotated
    query and a rotated key depends on their positions only through the distance between the two.

    Args:
        x: (..., n, d), queries or keys, d even.
        base: the slowest pair rotates by about 1 / base a position.
        start: the position of the first of the n.

    Returns:
        (..., n, d), of the type of x; the angles are computed in float64.

    Raises:
        TypeError: not a floating-point tensor, or a start that is not a whole number.
        ValueError: fewer than two dimensions, an odd width, or a base that is not above 0.

    Source: Su et al. (2021), section 3.2.2, equations 14 and 15.

    >>> rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))[0].tolist()
    [1.0, 0.0]
    """
    check_sequence("x", x, "(..., n, d)")
    *_, n, d = x.shape
    angles = _angles(whole("start", start), n, even("d", d), base, x.device)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even_part, odd_part = x[..., 0::2], x[..., 1::2]
    rotated = even_part * cos - odd_part * sin, even_part * sin + odd_part * cos
    return torch.stack(rotated, -1).flatten(-2)


def _angles(start: int, n: int, d: int, base: float, device: torch.device) -> Tensor:
    """Return (n, d / 2), position times the speed of each pair, in radians, float64."""
    places = torch.arange(start, start + n, dtype=torch.float64, device=device)
    pairs = torch.arange(0, d, 2, dtype=torch.float64, device=device)
    return places[:, None] * above_zero("base", base) ** (-pairs / d)
