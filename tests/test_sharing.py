"""Layers made to share: what is lost where nothing has to be."""

from __future__ import annotations

import pytest
import torch

from labkit import MultiHeadAttention
from labkit.sharing import latent


@pytest.mark.parametrize("seen", [3, 50], ids=["inputs that show little", "inputs that show all"])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_latent_as_wide_as_the_model_loses_nothing(seen: int, dtype, within: float):
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 4, dtype=dtype)
    shown, x = torch.randn(1, seen, 24, dtype=dtype), torch.randn(2, 9, 24, dtype=dtype)
    for inputs in (shown, None):
        assert (latent(layer, 24, inputs=inputs)(x) - layer(x)).abs().max() < within


def test_a_latent_may_be_wider_than_all_keys_and_values():
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 2, d_k=2, d_v=3, dtype=torch.float64)
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    assert (latent(layer, 24)(x) - layer(x)).abs().max() < 1e-12
