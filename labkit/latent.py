"""Multi-head latent attention: all heads' keys and values from one narrow vector a position."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit import arguments
from labkit.attention import merge_heads, scaled_dot_product_attention, split_heads
from labkit.cache import KVCache, check_cache
from labkit.positions import rotate

__all__ = ["LatentAttention"]


class LatentAttention(nn.Module):
    """Make the keys and values of all heads from a latent, and cache the latent alone.

    c_t = norm(W_down x_t) is the latent of a position. Head i has the keys U_i^K c_t and the values
    U_i^V c_t. Where a word stands is told by other features, the decoupled rotary keys: one rotated
    key k_t^R of d_rotary numbers for all heads, cached beside c_t, and a rotated query of each:

    score = (q_i . U_i^K c_t + q_i^R . k_t^R) / sqrt(d_k + d_rotary).

    There are two ways to compute it. *Unpacked*, keys and values are made from all latents, and the
    rest is multi-head attention. *Absorbed*, U_i^K goes into the query, for q . U c = (U^T q) . c,
    and U_i^V behind the weighted sum; the rest is multi-query attention over the latents, which are
    keys and values at once, with queries of d_c + d_rotary numbers and the scale as it was.

    Args:
        d_model: width of the input and of the output.
        h: number of heads.
        d_c: width of the latent (kv_lora_rank in other code).
        d_k: width of a head's keys without the rotary part (qk_nope_head_dim); d_model / h unless
            given.
        d_v: width of a head's values (v_head_dim); d_k unless given.
        d_rotary: width of the rotary key (qk_rope_head_dim), even; with 0 a layer has no notion of
            order.
        rotary_base: the base of its rotation.
        bias: add a bias to queries and to the output.
        norm: bring each latent to a mean square of 1, and scale its features (RMSNorm).

    Raises:
        TypeError: a size that is not a whole number, or a base that is not a number.
        ValueError: a size under 1, h that does not divide d_model where d_k is left out, an odd
            d_rotary or one under 0, or a base that is not above 0.

    Source: DeepSeek-AI (2024), sections 2.1.2 and 2.1.3, and 3.1.2 for the norm. Queries have no
    latent of their own, as in the paper's Lite model.

    >>> LatentAttention(d_model=8, h=4, d_c=3, d_rotary=2)(torch.ones(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        d_c: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        d_rotary: int = 0,
        rotary_base: float = 10_000.0,
        bias: bool = True,
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.d_model, self.h, self.d_k, self.d_v = arguments.widths(d_model, h, d_k, d_v)
        self.d_c = arguments.size("d_c", d_c)
        self.d_rotary = arguments.even("d_rotary", arguments.whole("d_rotary", d_rotary))
        if self.d_rotary < 0:
            raise ValueError(f"d_rotary must be 0 or more; got {d_rotary}.")
        self.rotary_base = arguments.above_zero("rotary_base", rotary_base)
        self.scale = (self.d_k + self.d_rotary) ** -0.5
        self.w_q = nn.Linear(self.d_model, self.h * (self.d_k + self.d_rotary), bias)
        self.w_down = nn.Linear(self.d_model, self.d_c + self.d_rotary, bias=False)
        self.norm = nn.RMSNorm(self.d_c, eps=1e-6) if norm else nn.Identity()
        self.w_up = nn.Linear(self.d_c, self.h * (self.d_k + self.d_v), bias=False)
        self.w_o = nn.Linear(self.h * self.d_v, self.d_model, bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        return_weights: bool = False,
        cache: KVCache | None = None,
        absorb: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from x to itself, and to what the cache holds.

        Args:
            x: (B, n_q, d_model), or with any other leading dimensions.
            mask: boolean, broadcastable to (B, h, n_q, n_k), True where a query may attend.
            is_causal: also hide the future.
            return_weights: also return each head's weights.
            cache: of earlier positions the latents and the rotary keys side by side, as its keys,
                (B, 1, n, d_c + d_rotary); its values have no width. Those of x are appended, and
                attention is causal over all, or over the cache's window.
            absorb: compute absorbed (True) or unpacked (False); unless given, as ``absorbs`` says.

        Returns:
            The output, (B, n_q, d_model); with ``return_weights`` also (B, h, n_q, n_k).

        Raises:
            TypeError, ValueError: as MultiHeadAttention.
        """
        past = check_cache(cache, x, None)
        arguments.check_inputs(x, x, mask, self.w_q.weight, self.h, past)
        q, kept = self._queries(x, past), self._kept(x, past)
        places: int | Tensor = 0
        if cache is not None:
            kept, _ = cache.append(kept, kept[..., :0])
            mask = cache.visible(q.shape[-2], mask)
            places = 0 if cache.window is None else cache.positions
        if absorb is None:
            absorb = self.absorbs(q.shape[-2], kept.shape[-2])
        causal = is_causal or cache is not None
        heads, weights = self.attend(
            q, kept, mask, is_causal=causal, absorb=absorb, places=places,
            return_weights=return_weights,
        )  # fmt: skip
        out = self.w_o(merge_heads(heads))
        if weights is None:
            return out
        return out, weights if cache is None else cache.at_positions(weights)

    def attend(
        self,
        q: Tensor,
        kept: Tensor,
        mask: Tensor | None = None,
        *,
        absorb: bool,
        is_causal: bool = False,
        return_weights: bool = False,
        places: int | Tensor = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Do what lies between the projections of x and W_O.

        Args:
            q: (B, h, n_q, d_k + d_rotary), rotary parts rotated.
            kept: (B, 1, n_k, d_c + d_rotary), latents beside rotary keys, as a cache holds them.
            mask, is_causal, return_weights, absorb: as in forward.
            places: the positions of what is kept, for a subclass that needs them.

        Returns:
            The heads' outputs, (B, h, n_q, d_v), and their weights or None.
        """
        up_k, up_v = self._up()
        if absorb:
            q, k = torch.cat([q[..., : self.d_k] @ up_k, q[..., self.d_k :]], -1), kept
            v = kept[..., : self.d_c] if return_weights else kept  # as wide as k: nothing is copied
        else:
            k, v = self._unpacked(kept, places)
        form = {"is_causal": is_causal, "scale": self.scale, "enable_gqa": True}
        weights = None
        if return_weights:
            out, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True, **form)
        else:
            out = scaled_dot_product_attention(q, k, v, mask, **form)
        return (out[..., : self.d_c] @ up_v.mT if absorb else out), weights

    def macs(self, n_q: int, n_k: int, *, absorb: bool) -> int:
        """Count the multiply-adds between the projections of x and W_O.

        h n_q n_k (d_k + d_rotary + d_v) + h n_k d_c (d_k + d_v) unpacked, and
        h n_q n_k (2 d_c + d_rotary) + h n_q d_c (d_k + d_v) absorbed.

        >>> LatentAttention(8, 4, 3).macs(1, 10, absorb=True)
        288
        """
        n_q, n_k = arguments.positions(n_q, n_k)
        content = 2 * self.d_c if absorb else self.d_k + self.d_v
        through = (n_q if absorb else n_k) * self.d_c * (self.d_k + self.d_v)
        return self.h * (n_q * n_k * (content + self.d_rotary) + through)

    def absorbs(self, n_q: int, n_k: int) -> bool:
        """Say whether n_q queries over n_k positions take fewer multiply-adds absorbed.

        >>> with torch.device("meta"):  # DeepSeek-V2's sizes
        ...     layer = LatentAttention(5120, 128, 512, d_k=128, d_v=128, d_rotary=64)
        >>> layer.absorbs(1, 4096), layer.absorbs(4096, 4096)
        (True, False)
        """
        return self.macs(n_q, n_k, absorb=True) < self.macs(n_q, n_k, absorb=False)

    def _up(self) -> tuple[Tensor, Tensor]:
        """Return U^K, (h, d_k, d_c), and U^V, (h, d_v, d_c)."""
        up_k, up_v = self.w_up.weight.split([self.h * self.d_k, self.h * self.d_v])
        return up_k.unflatten(0, (self.h, self.d_k)), up_v.unflatten(0, (self.h, self.d_v))

    def _queries(self, x: Tensor, start: int) -> Tensor:
        q = split_heads(self.w_q(x), self.h)
        content, turned = q.split([self.d_k, self.d_rotary], -1)
        return self._beside(content, turned, start)

    def _kept(self, x: Tensor, start: int) -> Tensor:
        latents, turned = self.w_down(x).unsqueeze(-3).split([self.d_c, self.d_rotary], -1)
        return self._beside(self.norm(latents), turned, start)

    def _beside(self, content: Tensor, turned: Tensor, start: int) -> Tensor:
        """Rotate what is to be rotated, and put it beside the rest."""
        if not self.d_rotary:
            return content
        return torch.cat([content, rotate(turned, self.rotary_base, start)], -1)

    def _unpacked(self, kept: Tensor, places: int | Tensor) -> tuple[Tensor, Tensor]:
        """Return k and v of all heads, (B, h, n, width)."""
        latents, turned = kept.squeeze(-3).split([self.d_c, self.d_rotary], -1)
        k, v = self.w_up(latents).split([self.h * self.d_k, self.h * self.d_v], -1)
        k, v = split_heads(k, self.h), split_heads(v, self.h)
        if self.d_rotary:
            k = torch.cat([k, turned.unsqueeze(-3).expand(*k.shape[:-1], self.d_rotary)], -1)
        return k, v
