"""What the labs' examples are made of: numbers that are always the same, and values in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shown:
    """A value, and how a message writes it: as it was before the call."""

    value: Any
    words: str

    def __str__(self) -> str:
        return self.words


def opened(function: Any) -> Any:
    """Hand a learner's function the values themselves, without the words for a message."""
    if not callable(function):
        return function

    @wraps(function)
    def call(*given: Any) -> Any:
        return function(*(one.value if isinstance(one, Shown) else one for one in given))

    return call


def drawing(seed: int) -> Callable[..., Tensor]:
    """Return a function that draws numbers, always the same."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    return lambda *shape: torch.randn(shape, generator=generator)
