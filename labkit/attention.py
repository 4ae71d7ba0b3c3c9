"""Scaled dot-product attention and multi-head attention, as the chapters derive them.

Letters: B batch, n positions (n_q of queries, n_k of keys), d_model width of the model, h heads,
h_kv heads of keys and values, d_k and d_v widths of a head. A mask is boolean and True means may
attend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import arguments, conversion
from labkit.cache import KVCache, check_cache
from labkit.fused import fused_attention
from labkit.positions import one_pass, rotate

__all__ = [
    "MultiHeadAttention",
    "Projection",
    "causal_mask",
    "merge_heads",
    "scaled_dot_product_attention",
    "split_heads",
    "window_mask",
]

# q, (..., h, n, d), k and v, (..., h_kv, n, d), and which keys a query may attend to
Heads = tuple[Tensor, Tensor, Tensor, Tensor | None]


@overload
def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    is_causal: bool = False, scale: float | None = None, dropout_p: float = 0.0,
    enable_gqa: bool = False, return_weights: Literal[False] = False) -> Tensor: ...  # fmt: skip


@overload
def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    is_causal: bool = False, scale: float | None = None, dropout_p: float = 0.0,
    enable_gqa: bool = False, return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values by how well each query matches each key.

    softmax(scale * q k^T) v, where scale is 1 / sqrt(d_k) unless given. Hidden positions weigh
    nothing; a query with nothing to attend to gets zero weights and a zero output. Unless the
    weights are asked for, PyTorch's fused kernel does the work, and no n_q x n_k tensor is made
    but for dropout or a mask of that size.

    Args:
        q: (..., n_q, d_k), floating point. Leading dimensions broadcast.
        k: (..., n_k, d_k), of the type of q.
        v: (..., n_k, d_v), of the type of q.
        mask: boolean, broadcastable to (..., n_q, n_k), True where the query may attend.
        is_causal: also hide the future, as ``causal_mask(n_q, n_k)`` does, but without its memory.
        scale: the factor on the scores, a number without unit.
        dropout_p: probability in [0, 1) of dropping a weight; the kept ones grow by 1 / (1 - p).
        enable_gqa: let heads share keys and values (chapter 12), as PyTorch's flag of that name
            does: q has h heads, (..., h, n_q, d_k), k and v have h_kv, and h / h_kv heads of q in
            a row read one of them. No key is copied for it, unless the weights are asked for.
        return_weights: also return the weights, as they were applied.

    Returns:
        The output, (..., n_q, d_v); with ``return_weights`` also the weights, (..., n_q, n_k).

    Raises:
        TypeError: not a tensor, not floating point, mixed types, or a mask that is not boolean.
        ValueError: shapes that do not fit, an empty sequence, or a probability outside [0, 1).

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.

    >>> x = torch.eye(2)
    >>> scaled_dot_product_attention(x, x, x, causal_mask(2))[0]
    tensor([1., 0.])
    """
    q, k, v = arguments.same_leading(q, k, v, enable_gqa)
    if mask is not None:
        arguments.check_mask(mask, (*q.shape[:-1], k.shape[-2]), "(..., n_q, n_k)")
    dropout_p = arguments.probability("dropout_p", dropout_p)
    scale = q.shape[-1] ** -0.5 if scale is None else arguments.number("scale", scale)
    if return_weights:
        return _step_by_step(q, k, v, mask, is_causal, scale, dropout_p)
    return fused_attention(q, k, v, mask, is_causal, scale, dropout_p)


def causal_mask(
    n_q: int, n_k: int | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """Make the mask that lets a position attend to itself and to what came before it.

    mask[i, j] = (j <= i + n_k - n_q): the last query is the last position and sees every key, so
    that a block of new queries fits the end of a longer past.

    Args:
        n_q: number of queries.
        n_k: number of keys; n_q unless given.
        device: where to make it.

    Returns:
        (n_q, n_k), boolean, True on and below the diagonal that ends in the last corner.

    Raises:
        TypeError, ValueError: a size that is not a whole number, or is under 1.

    Source: Vaswani et al. (2017), section 3.2.3.

    >>> causal_mask(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    n_q, n_k = arguments.positions(n_q, n_k)
    return torch.ones(n_q, n_k, dtype=torch.bool, device=device).tril(n_k - n_q)


def window_mask(
    n_q: int, n_k: int | None, w: int, *, device: torch.device | str | None = None
) -> Tensor:
    """Make the mask that lets a position attend to itself and to the w - 1 before it.

    mask[i, j] = (p - w < j <= p) with p = i + n_k - n_q, the query's own position: the causal mask
    without what is w or more places back. Through L layers a position reaches L (w - 1) back.

    Args:
        n_q: number of queries, the last of the positions.
        n_k: number of keys; n_q where it is None.
        w: width of the window, in keys, the query's own included.
        device: where to make it.

    Returns:
        (n_q, n_k), boolean, True for the last w keys up to the query's own.

    Raises:
        TypeError, ValueError: a size that is not a whole number, or is under 1.

    Source: Beltagy et al. (2020), section 3.1, the sliding window; here its causal half.

    >>> window_mask(2, 4, 2).int().tolist()
    [[0, 1, 1, 0], [0, 0, 1, 1]]
    """
    w = arguments.size("w", w)
    return causal_mask(n_q, n_k, device=device).triu((n_q if n_k is None else n_k) - n_q - w + 1)


def split_heads(x: Tensor, h: int) -> Tensor:
    """Give each head its own slice of the features.

    heads[..., i, t, :] = x[..., t, i*d : (i+1)*d]. No number is copied.

    Args:
        x: (..., n, h*d), any type.
        h: number of heads.

    Returns:
        (..., h, n, d), a view of x.

    Raises:
        TypeError: x is not a tensor, or h is not a whole number.
        ValueError: fewer than two dimensions, or a width that h does not divide.

    Source: Vaswani et al. (2017), section 3.2.2.

    >>> split_heads(torch.arange(4.0).view(1, 4), 2).tolist()
    [[[0.0, 1.0]], [[2.0, 3.0]]]
    """
    h, d = arguments.head_width(x, h)
    return x.unflatten(-1, (h, d)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads' features side by side again: the inverse of split_heads.

    out[..., t, i*d : (i+1)*d] = x[..., i, t, :].

    Args:
        x: (..., h, n, d), any type.

    Returns:
        (..., n, h*d).

    Raises:
        TypeError: x is not a tensor.
        ValueError: fewer than three dimensions.

    Source: Vaswani et al. (2017), section 3.2.2, the concatenation.

    >>> merge_heads(torch.tensor([[[0.0, 1.0]], [[2.0, 3.0]]])).tolist()
    [[0.0, 1.0, 2.0, 3.0]]
    """
    arguments.check_tensor("x", x, 3, "(..., h, n, d)")
    return x.transpose(-3, -2).flatten(-2)


class Projection(NamedTuple):
    """One of the matrices that w_qkv holds, as a view: writing into it writes into w_qkv.

    x W^T + b, from (..., d_model) to (..., h*d) or (..., h_kv*d). Gradients arrive in w_qkv.

    >>> Projection(torch.eye(2) * 3, None)(torch.ones(1, 2)).tolist()
    [[3.0, 3.0]]
    """

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class MultiHeadAttention(nn.Module):
    """Attend h times in parallel, each time in a projection of its own, and mix the results.

    Concat(head_1, ..., head_h) W^O with head_i = attention(x W_i^Q, c W_i^K, c W_i^V), where c is
    the context, or x itself in self-attention.

    W^Q, W^K and W^V of all heads lie in one matrix, ``w_qkv``, because one matrix product is
    faster than three. ``w_q``, ``w_k`` and ``w_v`` are its parts (views, to read or to fill in
    place); ``w_o`` is W^O. The weights start as those of ``torch.nn.MultiheadAttention``.

    Args:
        d_model: width of the input, of the context and of the output.
        h: number of heads.
        h_kv: number of heads of keys and values (n_kv_heads, num_key_value_heads in other code),
            each of which h / h_kv heads of queries in a row read (chapter 12): 1 is multi-query
            attention; h unless given, a head of keys each.
        d_k: width of a head's queries and keys; d_model / h unless given.
        d_v: width of a head's values; d_k unless given.
        bias: add a bias after each projection.
        dropout: probability in [0, 1) of dropping a weight, in training mode only.
        rotary_base: turn queries and keys by their position (chapter 10), as ``rotate`` does with
            this base; without it, which is what chapters 1 to 9 describe, a layer has no notion
            of order.
        rotary_scaling: divide positions by it before they are turned into angles, for texts that
            are longer than those of the training. It may be set later: ``layer.rotary_scaling``.
        device, dtype: where the parameters live and their type.

    Raises:
        TypeError: a size that is not a whole number, or a base that is not a number.
        ValueError: a size under 1, h that does not divide d_model where d_k is left out, h_kv that
            does not divide h, a probability outside [0, 1), a rotation of heads of an odd width
            d_k, or a scaling that is not above 0 or scales nothing.

    Source: Vaswani et al. (2017), section 3.2.2; Ainslie et al. (2023) for h_kv.

    >>> MultiHeadAttention(d_model=6, h=2)(torch.ones(1, 4, 6)).shape
    torch.Size([1, 4, 6])
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        *,
        h_kv: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary_base: float | None = None,
        rotary_scaling: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.h, self.d_k, self.d_v = arguments.widths(d_model, h, d_k, d_v)
        self.h_kv = arguments.key_heads(self.h, h_kv)
        self.dropout = arguments.probability("dropout", dropout)
        rotary = arguments.rotary(rotary_base, rotary_scaling, self.d_k)
        self.rotary_base, self.rotary_scaling = rotary
        self.scale = self.d_k**-0.5  # chapter 2 takes it away, to show what it is for
        packed = self.h * self.d_k + self.h_kv * (self.d_k + self.d_v)
        self.w_qkv = nn.Linear(self.d_model, packed, bias, device, dtype)
        self.w_o = nn.Linear(self.h * self.d_v, self.d_model, bias, device, dtype)
        nn.init.xavier_uniform_(self.w_qkv.weight)
        if bias:
            nn.init.zeros_(self.w_qkv.bias)
            nn.init.zeros_(self.w_o.bias)

    @overload
    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, *,
        is_causal: bool = False, return_weights: Literal[False] = False,
        cache: KVCache | None = None) -> Tensor: ...  # fmt: skip

    @overload
    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, *,
        is_causal: bool = False, return_weights: Literal[True],
        cache: KVCache | None = None) -> tuple[Tensor, Tensor]: ...  # fmt: skip

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        return_weights: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from x to the context, to x itself, or to x and what the cache holds.

        Args:
            x: (B, n_q, d_model), or with any other leading dimensions.
            context: (B, n_k, d_model); x unless given.
            mask: boolean, broadcastable to (B, h, n_q, n_k), True where a query may attend.
            is_causal: also hide the future, as ``causal_mask(n_q, n_k)`` does.
            return_weights: also return each head's weights, as they were applied.
            cache: keys and values of earlier positions. Those of x are appended, and attention is
                causal over all, or over the cache's window: n_k = cache.n, after the call. What a
                window hides has the weight 0, and a mask that hides more is of all n_k positions.

        Returns:
            The output, (B, n_q, d_model); with ``return_weights`` also (B, h, n_q, n_k).

        Raises:
            TypeError: not a tensor, a type other than the module's, a mask not boolean, or a cache
                that is no KVCache.
            ValueError: shapes that do not fit, an empty sequence, or a cache beside a context. The
                cache then holds what it held.
        """
        scale, p = self.scale, self.dropout if self.training else 0.0
        is_causal = is_causal or cache is not None
        if return_weights:
            qkv = self._qkv(x, context, mask, cache)
            heads, weights = _step_by_step(*qkv, is_causal, scale, p)
            weights = weights if cache is None else cache.at_positions(weights)
            return self.w_o(merge_heads(heads)), weights
        heads = fused_attention(*self._qkv(x, context, mask, cache), is_causal, scale, p)
        return self.w_o(merge_heads(heads))

    if TYPE_CHECKING:
        __call__ = forward

    @property
    def w_q(self) -> Projection:
        """W^Q of all heads: weight (h*d_k, d_model)."""
        return self._parts()[0]

    @property
    def w_k(self) -> Projection:
        """W^K of all heads of keys: weight (h_kv*d_k, d_model)."""
        return self._parts()[1]

    @property
    def w_v(self) -> Projection:
        """W^V of all heads of values: weight (h_kv*d_v, d_model)."""
        return self._parts()[2]

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Copy a ``torch.nn.MultiheadAttention``, its weights, type, device and mode.

        The copy takes (B, n, d_model) whatever the module's ``batch_first``.

        Args:
            module: any, but for the variants that add keys (``add_bias_kv``, ``add_zero_attn``)
                or whose context has another width (``kdim``, ``vdim``).

        Raises:
            TypeError: not a ``torch.nn.MultiheadAttention``.
            ValueError: one of those variants.

        >>> MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2)).d_k
        3
        """
        conversion.check_convertible(module)
        bias = module.in_proj_bias is not None
        width, h, dropout = module.embed_dim, module.num_heads, module.dropout
        copy = cls(width, h, bias=bias, dropout=dropout, device="meta")
        copy.load_state_dict(conversion.from_torch(module.state_dict()), assign=True)
        return copy.train(module.training)

    def to_torch(self, *, batch_first: bool = True) -> nn.MultiheadAttention:
        """Copy into a ``torch.nn.MultiheadAttention``: the inverse of from_torch.

        Args:
            batch_first: whether the copy takes (B, n, d_model) or (n, B, d_model).

        Raises:
            ValueError: heads of a width other than d_model / h, shared heads of keys, or rotary
                positions, which that module cannot have.

        >>> MultiHeadAttention(d_model=6, h=2).to_torch().head_dim
        3
        """
        conversion.check_fits_torch(
            self.d_model, self.h, self.h_kv, self.d_k, self.d_v, self.rotary_base
        )
        bias = self.w_qkv.bias is not None
        copy = nn.MultiheadAttention(
            self.d_model, self.h, self.dropout, bias, batch_first=batch_first, device="meta"
        )
        copy.load_state_dict(conversion.to_torch(self.state_dict()), assign=True)
        return copy.train(self.training)

    def _parts(self) -> list[Projection]:
        """Cut w_qkv into W^Q, W^K and W^V."""
        sizes = self.h * self.d_k, self.h_kv * self.d_k, self.h_kv * self.d_v
        weights = self.w_qkv.weight.split(sizes)
        bias = self.w_qkv.bias
        biases = (None, None, None) if bias is None else bias.split(sizes)
        return [Projection(*pair) for pair in zip(weights, biases, strict=True)]

    def _qkv(
        self, x: Tensor, context: Tensor | None, mask: Tensor | None, cache: KVCache | None
    ) -> Heads:
        """Return q, (B, h, n, d), k and v, (B, h_kv, n, d), and the mask: one product, or two."""
        h, h_kv, d_k, d_v, w_qkv = self.h, self.h_kv, self.d_k, self.d_v, self.w_qkv
        weight, bias = w_qkv.weight, w_qkv.bias
        past = check_cache(cache, x, context)
        context = x if context is None else context
        arguments.check_inputs(x, context, mask, weight, h, past)
        if context is x:
            q, k, v = _cut(F.linear(x, weight, bias), (h, h_kv, h_kv), (d_k, d_k, d_v))
        else:
            sizes = h * d_k, h_kv * (d_k + d_v)
            w_q, w_kv = weight.split(sizes)
            b_q, b_kv = (None, None) if bias is None else bias.split(sizes)
            q = split_heads(F.linear(x, w_q, b_q), h)
            k, v = _cut(F.linear(context, w_kv, b_kv), (h_kv, h_kv), (d_k, d_v))
        if self.rotary_base is not None:
            start = past + k.shape[-2] - q.shape[-2]  # the last query stands at the last key
            with one_pass():
                q = rotate(q, self.rotary_base, start, scaling=self.rotary_scaling)
                k = rotate(k, self.rotary_base, past, scaling=self.rotary_scaling)
        if cache is None:
            return q, k, v, mask
        return q, *cache.append(k, v), cache.visible(q.shape[-2], mask)


def check_layer(layer: MultiHeadAttention) -> None:
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(
            f"layer must be a labkit.MultiHeadAttention; got {type(layer).__name__}. "
            "Copy one of PyTorch's with MultiHeadAttention.from_torch."
        )


def with_heads(layer: MultiHeadAttention, h: int, h_kv: int) -> MultiHeadAttention:
    """Make a layer like another but for its heads: room for numbers, none of which is drawn."""
    where = layer.w_o.weight
    bias, base = layer.w_qkv.bias is not None, layer.rotary_base
    other = type(layer)(layer.d_model, h, h_kv=h_kv, d_k=layer.d_k, d_v=layer.d_v, bias=bias,
        dropout=layer.dropout, rotary_base=base, rotary_scaling=layer.rotary_scaling,
        device="meta", dtype=where.dtype)  # fmt: skip
    return other.to_empty(device=where.device).train(layer.training)


def _cut(x: Tensor, heads: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut the features into parts, each of so many heads of a width: (..., heads, n, width)."""
    if len({*zip(heads, widths, strict=True)}) > 1:
        sizes = [h * d for h, d in zip(heads, widths, strict=True)]
        parts = x.split(sizes, -1)
        return tuple(split_heads(part, h) for part, h in zip(parts, heads, strict=True))
    alike = x.unflatten(-1, (len(heads), heads[0], -1)).unbind(-3)
    return tuple([part.transpose(-3, -2) for part in alike])


def _step_by_step(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float, p: float
) -> tuple[Tensor, Tensor]:
    """Write attention out, p the probability of dropping a weight: the mixtures and the weights."""
    if q.shape[:-2] != k.shape[:-2]:  # several heads of q in a row read one of k and v
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = (q * scale) @ k.transpose(-2, -1)
    if is_causal:
        causal = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
        mask = causal if mask is None else mask & causal
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The lowest number and not -inf: a row of nothing but -inf has no softmax, nor a gradient.
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)
    if p:
        weights = F.dropout(weights, p)
    return weights @ v, weights
