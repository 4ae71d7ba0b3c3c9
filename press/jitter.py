"""Stand in for machines that are not here: move the last bit of what PyTorch rounds.

A sum of floating-point numbers depends on its order, and the order on the processor, its vector
instructions and the number of threads: each moves results by units in the last place. While this is
on, every operation that rounds has two thirds of its results moved by such a unit, up or down. As
on a real machine, equal results stay equal, and what needs no rounding stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROUNDING = set(
    "__matmul__ __rmatmul__ matmul mm bmm mv addmm linear einsum softmax log_softmax cross_entropy "
    "exp log sum mean std var norm logsumexp tanh gelu layer_norm scaled_dot_product_attention"
    "".split()
)
# A number of so few bits, such as a count or a quarter, was most likely not rounded. Half precision
# has no more, and is left alone. So is a DTensor, whose bits lie elsewhere.
EXACT = 2.0**12
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SPREAD = 2654435761  # Knuth's multiplier: neighbours go different ways


class Jitter(TorchFunctionMode):
    """Move the results of operations that round, each seed in another way."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        rounds = getattr(function, "__name__", "") in ROUNDING and type(result) is Tensor
        if not rounds or not result.is_floating_point() or result.device.type != "cpu":
            return result
        value = result.detach()
        # Adding the difference, and not setting the value, lets the gradient through.
        return result + (self.moved(value) - value) if result.requires_grad else self.moved(value)

    def moved(self, value: Tensor) -> Tensor:
        """Move numbers to a neighbour, which one their bits decide."""
        bits = value.contiguous().view(BITS[value.element_size()]).to(torch.int64)
        way = ((bits + self.seed) * SPREAD >> 16) % 3
        scaled = value * EXACT
        stays = (way == 0) | (scaled == scaled.round()) | ~value.isfinite()
        towards = torch.where(way == 1, torch.inf, -torch.inf).to(value.dtype)
        return torch.where(stays, value, value.nextafter(towards))


def install(seed: int) -> None:
    """Turn it on for the rest of the process."""
    Jitter(seed).__enter__()
