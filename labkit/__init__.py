"""The small module that the chapters and the labs share."""

from labkit.attention import (
    MultiHeadAttention,
    Projection,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)

__all__ = [
    "MultiHeadAttention",
    "Projection",
    "causal_mask",
    "merge_heads",
    "scaled_dot_product_attention",
    "split_heads",
]
