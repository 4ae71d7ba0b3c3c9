"""labkit's module and PyTorch's, made of each other: nothing is lost, and nothing is shared.

That they compute the same is compared in test_attention.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from labkit import MultiHeadAttention
from tests.refusing import check_refusal


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


# What is called, what it raises, and what its message says: expected, actual, what to do.
ERRORS = {
    "from another module": (
        lambda: MultiHeadAttention.from_torch(nn.Linear(2, 2)),
        TypeError,
        ["torch.nn.MultiheadAttention", "Linear"],
    ),
    "from one with more keys": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True)),
        ValueError,
        ["add_bias_kv", "keep PyTorch's module"],
    ),
    "from one with a zero key": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_zero_attn=True)),
        ValueError,
        ["add_zero_attn"],
    ),
    "from one of two widths": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, kdim=3)),
        ValueError,
        ["embed_dim=8", "kdim=3", "vdim=8"],
    ),
    "to one of another width": (
        lambda: MultiHeadAttention(8, 2, d_k=4, d_v=3).to_torch(),
        ValueError,
        ["d_k = d_v = d_model / h", "d_v=3", "h=2"],
    ),
    "to one whose heads share keys": (
        lambda: MultiHeadAttention(8, 4, h_kv=2).to_torch(),
        ValueError,
        ["keys and values for each head", "h=4", "h_kv=2", "Keep labkit's module"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
