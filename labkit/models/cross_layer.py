"""Keys and values shared across layers: an upper layer reads those that a lower one has made.

small_gpt(0, attention=across_layers(lambda: KeyValueProducer(64, 4, rotary_base=1_000.0)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from labkit import arguments
from labkit.attention import (
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from labkit.cache import KVCache, check_cache
from labkit.positions import rotate

__all__ = ["CrossLayerAttention", "KeyValueProducer", "across_layers"]


class KeyValueProducer(MultiHeadAttention):
    """A MultiHeadAttention whose keys and values of the last call are there for layers above.

    They are those that it attended to: rotated, and with those that a cache held before.

    >>> KeyValueProducer(8, 4, h_kv=1).made is None
    True
    """

    made: tuple[Tensor, Tensor] | None = None  # k and v, each (B, h_kv, n_k, width)

    def _qkv(self, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, mask = super()._qkv(*args)
        self.made = k, v
        return q, k, v, mask

    def __getstate__(self) -> dict[str, Any]:
        """Copy and write the layer without what its last call has made."""
        return {**self.__dict__, "made": None}


class CrossLayerAttention(nn.Module):
    """Attend with queries of its own to the keys and values of a lower layer.

    head_i = attention(x W_i^Q, K, V) with the producer's K and V; W^K and W^V are not there.

    Args:
        producer: the lower layer. It runs first in each pass, on the same positions; its sizes and
            its rotation are taken over.

    Raises:
        TypeError: another kind of layer.

    Source: Brandon et al. (2024), section 2.

    >>> CrossLayerAttention(KeyValueProducer(8, 4)).w_q
    Linear(in_features=8, out_features=8, bias=True)
    """

    def __init__(self, producer: KeyValueProducer) -> None:
        super().__init__()
        if not isinstance(producer, KeyValueProducer):
            raise TypeError(
                f"producer must be a KeyValueProducer; got {type(producer).__name__}. Only that "
                "keeps its keys and values for layers above."
            )
        self._producer = (producer,)  # in a tuple, so that its weights are not this layer's
        self.h, self.d_k, self.d_model = producer.h, producer.d_k, producer.d_model
        bias = producer.w_o.bias is not None
        self.w_q = nn.Linear(self.d_model, self.h * self.d_k, bias)
        self.w_o = nn.Linear(self.h * producer.d_v, self.d_model, bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        return_weights: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from x to what the producer has made in this pass.

        Args:
            x: (B, n_q, d_model).
            mask: boolean, broadcastable to (B, h, n_q, n_k), True where a query may attend.
            is_causal: also hide the future.
            return_weights: also return each head's weights.
            cache: counts positions, as the producer's does, and holds no numbers.

        Returns:
            The output, (B, n_q, d_model); with ``return_weights`` also (B, h, n_q, n_k).

        Raises:
            TypeError: as MultiHeadAttention.
            ValueError: shapes that do not fit, or a producer that has not just read as many
                positions.
        """
        past = check_cache(cache, x, None)
        arguments.check_inputs(x, x, mask, self.w_q.weight, self.h, past)
        (producer,) = self._producer
        q = split_heads(self.w_q(x), self.h)
        if producer.rotary_base is not None:
            q = rotate(q, producer.rotary_base, past, scaling=producer.rotary_scaling)
        n = x.shape[-2]
        if cache is not None:
            nothing = q[..., :1, :, :0]
            cache.append(nothing, nothing)
            mask, n = cache.visible(n, mask), len(cache.positions)
        k, v = _fitting(producer.made, q, n)
        causal = is_causal or cache is not None
        form = {"is_causal": causal, "scale": producer.scale, "enable_gqa": True}
        if not return_weights:
            heads = scaled_dot_product_attention(q, k, v, mask, **form)
            return self.w_o(merge_heads(heads))
        heads, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True, **form)
        weights = weights if cache is None else cache.at_positions(weights)
        return self.w_o(merge_heads(heads)), weights


def _fitting(made: tuple[Tensor, Tensor] | None, q: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the producer's keys and values if they are of this pass."""
    wanted = (*q.shape[:-3], n)
    found = None if made is None else (*made[0].shape[:-3], made[0].shape[-2])
    if made is None or found != wanted:
        raise ValueError(
            f"the producer must have made keys for (..., n_k) = {wanted}; got {found}. Let it read "
            "the same positions first, with a cache of its own where this layer has one."
        )
    return made


def across_layers(
    make: Callable[[], KeyValueProducer], factor: int = 2
) -> Callable[[int], nn.Module]:
    """Let neighbouring layers share keys and values, as ``attention`` of a GPT.

    Args:
        make: makes the attention of the lowest of each group.
        factor: so many layers share; 2 is called CLA2.

    Raises:
        TypeError, ValueError: a factor that is not a whole number, or is under 1.

    Source: Brandon et al. (2024), section 2.

    >>> from labkit.models.gpt import GPT
    >>> gpt = GPT(5, 8, 4, 3, attention=across_layers(lambda: KeyValueProducer(8, 4)))
    >>> [type(block.attention).__name__ for block in gpt.blocks]
    ['KeyValueProducer', 'CrossLayerAttention', 'KeyValueProducer']
    """
    factor = arguments.size("factor", factor)
    lowest: list[KeyValueProducer] = []

    def of_layer(layer: int) -> nn.Module:
        if layer % factor == 0:
            lowest[:] = [make()]
            return lowest[0]
        return CrossLayerAttention(lowest[0])

    return of_layer
