"""Numbers and layers in float64 for tests that compare to the last digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit import MultiHeadAttention


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def draw_layer(seed: int = 0, **sizes) -> MultiHeadAttention:
    """Make a layer whose parameters are all drawn, the biases too."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(**sizes, dtype=torch.float64)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer
