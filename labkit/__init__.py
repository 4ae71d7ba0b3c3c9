"""The small module that the chapters and the labs share."""

from labkit.attention import (
    MultiHeadAttention,
    Projection,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
)
from labkit.cache import KVCache

__all__ = [
    "KVCache",
    "MultiHeadAttention",
    "Projection",
    "causal_mask",
    "merge_heads",
    "scaled_dot_product_attention",
    "split_heads",
    "window_mask",
]
