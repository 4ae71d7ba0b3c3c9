"""Position information: attention does not see where a word is, so a model has to be given it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from labkit.arguments import above_zero, check_sequence, even, one_of, size, whole

__all__ = ["neighbours_to_halves", "one_pass", "rotate", "sinusoids"]

PAIRS = ("neighbours", "halves")

Tables = dict[tuple[object, ...], tuple[Tensor, Tensor]]
_tables: ContextVar[Tables | None] = ContextVar("tables", default=None)  # of the pass that runs


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
    angles = _angles(torch.arange(size("n", n)), d_model, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).float()


def rotate(
    x: Tensor,
    base: float = 10_000.0,
    start: int | Tensor = 0,
    *,
    scaling: float = 1.0,
    pairs: str = "neighbours",
) -> Tensor:
    """Rotate each pair of features by an angle that grows with the position.

    Features 2i and 2i + 1 at position p are rotated by p / base^(2i/d). The product of a rotated
    query and a rotated key depends on their positions only through the distance between the two.

    Args:
        x: (..., n, d), queries or keys, d even.
        base: the slowest pair rotates by about 1 / base a position.
        start: the position of the first of the n, or all positions, (n,).
        scaling: positions are divided by it, so that a text that is so many times longer than
            those of the training has the same angles (position interpolation).
        pairs: "neighbours" are features 2i and 2i + 1, as in the paper; "halves" are features i
            and i + d/2, as in Llama's weights in transformers. ``neighbours_to_halves`` gives the
            order that leads from one to the other.

    Returns:
        (..., n, d), of the type of x; the angles are computed in float64.

    Raises:
        TypeError: not a floating-point tensor, or a start that is not a whole number.
        ValueError: fewer than two dimensions, an odd width, a base or a scaling that is not above
            0, another number of positions than n, or other pairs.

    Source: Su et al. (2021), section 3.2.2, equations 14 and 15; Chen et al. (2023), section 2.3,
    for scaling.

    >>> rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))[0].tolist()
    [1.0, 0.0]
    """
    check_sequence("x", x, "(..., n, d)")
    one_of("pairs", pairs, PAIRS)
    cos, sin = _cos_and_sin(x, base, start, scaling)
    if pairs == "halves":
        one, other = x.chunk(2, -1)
        return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)
    one, other = x[..., 0::2], x[..., 1::2]
    return torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2)


def neighbours_to_halves(d: int) -> Tensor:
    """Order a head's features so that those that rotate together lie d/2 apart, not side by side.

    With the order o, ``rotate(x)[..., o]`` is ``rotate(x[..., o], pairs="halves")``. Of weights,
    the rows of each head of W^Q and of W^K take that order; o.argsort() leads back.

    Args:
        d: width of a head's queries and keys, even.

    Returns:
        (d,), whole numbers.

    Raises:
        TypeError, ValueError: a width that is not a whole number, is under 1, or is odd.

    >>> neighbours_to_halves(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return torch.arange(even("d", size("d", d))).view(-1, 2).T.flatten()


@contextmanager
def one_pass() -> Iterator[None]:
    """Within it, rotate makes the table of cosines and sines of some positions once.

    All layers of a model rotate by the same angles, and queries by those of the keys.
    """
    if _tables.get() is not None:
        yield
        return
    token = _tables.set({})
    try:
        yield
    finally:
        _tables.reset(token)


def _cos_and_sin(
    x: Tensor, base: float, start: int | Tensor, scaling: float
) -> tuple[Tensor, Tensor]:
    """Return (n, d / 2) twice, of the type of x: those of the pass, if they are made already."""
    *_, n, d = x.shape
    even("d", d)
    if isinstance(start, Tensor):
        if start.shape != (n,):
            raise ValueError(
                f"start must be a whole number or positions of shape (n,) = ({n},); got shape "
                f"{tuple(start.shape)}. Each of the n needs a position."
            )
        return _made(start.to(x.device), x, base, scaling)
    start, tables = whole("start", start), _tables.get()
    key = start, n, d, base, scaling, x.dtype, x.device
    if tables is None or key not in tables:
        made = _made(torch.arange(start, start + n, device=x.device), x, base, scaling)
        if tables is None:
            return made
        tables[key] = made
    return tables[key]


def _made(places: Tensor, x: Tensor, base: float, scaling: float) -> tuple[Tensor, Tensor]:
    angles = _angles(places.double() / above_zero("scaling", scaling), x.shape[-1], base)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _angles(places: Tensor, d: int, base: float) -> Tensor:
    """Return (n, d / 2), position times the speed of each pair, in radians, float64."""
    pairs = torch.arange(0, d, 2, dtype=torch.float64, device=places.device)
    return places.double()[:, None] * above_zero("base", base) ** (-pairs / d)
