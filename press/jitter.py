"""Stand in for machines that are not here: move the last bit of what PyTorch rounds.

A sum of floating-point numbers depends on its order, and the order on the processor, its vector
instructions and the number of threads: each moves results by units in the last place. While this is
on, every operation that rounds has two thirds of its results moved by such a unit, up or down; what
needs no rounding stays as it is.

Equal results stay equal, as on most machines, or bits move anew at each call: on some processors
the same product differs with the place of its operands in memory.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# What a processor adds up in one order here and another there, so that two calls may differ.
PRODUCTS = set(
    "__matmul__ __rmatmul__ matmul mm bmm mv addmm linear einsum softmax "
    "scaled_dot_product_attention".split()
)
ROUNDING = PRODUCTS | set(
    "log_softmax cross_entropy exp log sum mean std var norm logsumexp tanh gelu layer_norm".split()
)
# A number of so few bits, such as a count or a quarter, was most likely not rounded. Half precision
# has no more, and is left alone. So is a DTensor, whose bits lie elsewhere.
EXACT = 2.0**12
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SPREAD = 2654435761  # Knuth's multiplier: neighbours go different ways


class Jitter(TorchFunctionMode):
    """Move the results of operations that round, each seed in another way.

    Args:
        anew: whether each call moves them in a way of its own, and not one that their bits decide.
            Then only products and what is made of them move: two calls of the rest are equal.
    """

    def __init__(self, seed: int, *, anew: bool = False) -> None:
        super().__init__()
        self.seed = seed
        self.rounding = PRODUCTS if anew else ROUNDING
        self.random = numpy.random.default_rng(seed) if anew else None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        rounds = name in self.rounding and type(result) is Tensor
        # The way back keeps a softmax, and notices who changes it: no other may take its place.
        kept = self.random is not None and name == "softmax" and result.requires_grad
        if not rounds or kept or not result.is_floating_point() or result.device.type != "cpu":
            return result
        # Adding the difference, and not setting the value, lets the gradient through.
        return result + self.step(result.detach())

    def step(self, value: Tensor) -> Tensor:
        """Give the way to a neighbour, or 0."""
        if self.random is None:
            bits = value.contiguous().view(BITS[value.element_size()]).to(torch.int64)
            way = ((bits + self.seed) * SPREAD >> 16) % 3
        else:
            way = torch.from_numpy(self.random.integers(3, size=tuple(value.shape)))
        scaled = value * EXACT
        stays = (way == 0) | (scaled == scaled.round()) | ~value.isfinite()
        towards = torch.where(way == 1, torch.inf, -torch.inf).to(value.dtype)
        return torch.where(stays, 0.0, value.nextafter(towards) - value)


def install(seed: int, *, anew: bool) -> None:
    """Turn it on for the rest of the process."""
    Jitter(seed, anew=anew).__enter__()
