"""Layers made from others: copies of ``torch.nn.MultiheadAttention``, and layers of other heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from torch import nn

from labkit.arguments import check_convertible, check_fits_torch

if TYPE_CHECKING:
    from labkit.attention import MultiHeadAttention

    Ours = TypeVar("Ours", bound=MultiHeadAttention)

TORCH_NAMES = {  # our parameters in torch.nn.MultiheadAttention
    "w_qkv.weight": "in_proj_weight",
    "w_qkv.bias": "in_proj_bias",
    "w_o.weight": "out_proj.weight",
    "w_o.bias": "out_proj.bias",
}


def from_torch(kind: type[Ours], theirs: nn.MultiheadAttention) -> Ours:
    """Copy a ``torch.nn.MultiheadAttention``, as ``MultiHeadAttention.from_torch`` tells."""
    check_convertible(theirs)
    bias = theirs.in_proj_bias is not None
    width, h, dropout = theirs.embed_dim, theirs.num_heads, theirs.dropout
    ours = kind(width, h, bias=bias, dropout=dropout, device="meta")
    state = theirs.state_dict()
    names = [(name, other) for name, other in TORCH_NAMES.items() if other in state]
    ours.load_state_dict({name: state[other].clone() for name, other in names}, assign=True)
    return ours.train(theirs.training)


def with_heads(layer: Ours, h: int, h_kv: int) -> Ours:
    """Make a layer like another but for its heads: room for numbers, none of which is drawn."""
    where = layer.w_o.weight
    bias, base = layer.w_qkv.bias is not None, layer.rotary_base
    other = type(layer)(layer.d_model, h, h_kv=h_kv, d_k=layer.d_k, d_v=layer.d_v, bias=bias,
        dropout=layer.dropout, rotary_base=base, device="meta", dtype=where.dtype)  # fmt: skip
    return other.to_empty(device=where.device).train(layer.training)


def to_torch(ours: MultiHeadAttention, batch_first: bool) -> nn.MultiheadAttention:
    """Copy into a ``torch.nn.MultiheadAttention``, as ``MultiHeadAttention.to_torch`` tells."""
    check_fits_torch(ours.d_model, ours.h, ours.h_kv, ours.d_k, ours.d_v, ours.rotary_base)
    bias = ours.w_qkv.bias is not None
    theirs = nn.MultiheadAttention(
        ours.d_model, ours.h, ours.dropout, bias, batch_first=batch_first, device="meta"
    )
    state = {TORCH_NAMES[name]: value.clone() for name, value in ours.state_dict().items()}
    theirs.load_state_dict(state, assign=True)
    return theirs.train(ours.training)
