"""The parameters of ``torch.nn.MultiheadAttention`` under labkit's names, and the other way."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

TORCH_NAMES = {  # our parameters in torch.nn.MultiheadAttention
    "w_qkv.weight": "in_proj_weight",
    "w_qkv.bias": "in_proj_bias",
    "w_o.weight": "out_proj.weight",
    "w_o.bias": "out_proj.bias",
}


def from_torch(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy the parameters of a ``torch.nn.MultiheadAttention`` under labkit's names."""
    return {name: state[other].clone() for name, other in TORCH_NAMES.items() if other in state}


def to_torch(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy the parameters of a layer under the names of ``torch.nn.MultiheadAttention``."""
    return {TORCH_NAMES[name]: value.clone() for name, value in state.items()}


def check_convertible(module: nn.MultiheadAttention) -> None:
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"module must be a torch.nn.MultiheadAttention; got {type(module).__name__}."
        )
    variants = {
        "add_bias_kv": module.bias_k is not None,
        "add_zero_attn": module.add_zero_attn,
        f"kdim={module.kdim}, vdim={module.vdim}": module.in_proj_weight is None,
    }
    found = "; ".join(name for name, present in variants.items() if present)
    if found:
        raise ValueError(
            f"module must attend to its context alone, of width embed_dim={module.embed_dim}; got "
            f"{found}. Build and train it without that, or keep PyTorch's module."
        )


def check_fits_torch(
    d_model: int, h: int, h_kv: int, d_k: int, d_v: int, rotary_base: float | None
) -> None:
    if h_kv != h:
        raise ValueError(
            f"torch.nn.MultiheadAttention has keys and values for each head; got h={h} and "
            f"h_kv={h_kv}. Keep labkit's module."
        )
    if rotary_base is not None:
        raise ValueError(
            f"torch.nn.MultiheadAttention has no rotary positions; got rotary_base={rotary_base}. "
            "Keep labkit's module."
        )
    if not h * d_k == h * d_v == d_model:
        raise ValueError(
            f"torch.nn.MultiheadAttention needs d_k = d_v = d_model / h; got d_k={d_k}, "
            f"d_v={d_v}, d_model={d_model} and h={h}. Keep labkit's module."
        )
