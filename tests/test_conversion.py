"""labkit's module and PyTorch's, made of each other: nothing is lost, and nothing is shared.

That they compute the same is compared in test_attention, and what is refused in test_arguments.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from labkit import MultiHeadAttention


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_round_trip_through_pytorch(bias, batch_first, training):
    theirs = nn.MultiheadAttention(
        12, 3, dropout=0.1, bias=bias, batch_first=batch_first, dtype=torch.float64
    ).train(training)
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch(batch_first=batch_first)
    assert (ours.d_model, ours.h, ours.h_kv, ours.d_k, ours.d_v) == (12, 3, 3, 4, 4)
    assert ours.training == back.training == training
    assert ours.dropout == back.dropout == 0.1
    assert back.batch_first == batch_first
    assert ours.to_torch().batch_first
    state, copied = theirs.state_dict(), back.state_dict()
    assert state.keys() == copied.keys()
    assert all(torch.equal(state[name], copied[name]) for name in state)
    assert all(p.requires_grad and p.dtype == torch.float64 for p in ours.parameters())
    nn.init.zeros_(ours.w_qkv.weight)
    assert theirs.in_proj_weight.any()
    assert back.in_proj_weight.any()
