"""Convert a trained layer to one that caches less: fewer heads of keys and values, or a latent."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import arguments
from labkit.attention import MultiHeadAttention, Projection, check_layer, with_heads
from labkit.latent import LatentAttention
from labkit.positions import rotate

__all__ = ["RotatedLatent", "latent", "share_heads"]

WAYS = ("mean", "first", "svd")


class RotatedLatent(LatentAttention):
    """A latent layer whose rebuilt keys are rotated, as those of the layer that it was made from.

    It has no rotary keys of their own, d_rotary is 0. The rotation comes between a query and the
    matrix that unpacks, so that nothing can be absorbed: each step unpacks and rotates all keys.

    Args:
        d_model, h, d_c, d_k, d_v, rotary_base, bias: as in LatentAttention.
        rotary_scaling: as in MultiHeadAttention.

    >>> RotatedLatent(8, 4, 3).absorbs(1, 100)
    False
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        d_c: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        rotary_base: float = 10_000.0,
        rotary_scaling: float = 1.0,
        bias: bool = True,
    ) -> None:
        super().__init__(
            d_model, h, d_c, d_k=d_k, d_v=d_v, rotary_base=rotary_base, bias=bias, norm=False
        )
        arguments.even("d_k", self.d_k)
        self.rotary_scaling = arguments.above_zero("rotary_scaling", rotary_scaling)
        # A key bias, which without a rotation would change no weight.
        self.key_bias = nn.Parameter(torch.zeros(self.h * self.d_k)) if bias else None

    def absorbs(self, n_q: int, n_k: int) -> bool:
        """Say that it does not."""
        return False

    def forward(self, x: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
        """Attend as LatentAttention does, unpacked.

        Raises:
            ValueError: absorb=True.
        """
        if options.get("absorb"):
            raise ValueError(
                "rebuilt keys that are rotated cannot be absorbed: for each distance there is "
                "another matrix between a query and a latent. Leave absorb out, or give rotary "
                "positions to keys of their own, LatentAttention(..., d_rotary=...)."
            )
        return super().forward(x, mask, **options)

    def _queries(self, x: Tensor, start: int) -> Tensor:
        q = super()._queries(x, start)
        return rotate(q, self.rotary_base, start, scaling=self.rotary_scaling)

    def _unpacked(self, kept: Tensor, places: int | Tensor) -> tuple[Tensor, Tensor]:
        k, v = super()._unpacked(kept, places)
        if self.key_bias is not None:
            k = k + self.key_bias.unflatten(0, (self.h, 1, self.d_k))
        return rotate(k, self.rotary_base, places, scaling=self.rotary_scaling), v


@torch.no_grad()
def share_heads(
    layer: MultiHeadAttention, h_kv: int, how: str = "mean", *, inputs: Tensor | None = None
) -> MultiHeadAttention:
    """Make a layer with fewer heads of keys and values out of a trained one.

    Neighbours share. With "mean" or "first" they get the mean of their matrices, or the first of
    them. With "svd" the shared keys s are the d_k directions in which the keys k_i of the group
    vary most, k_i ~ U_i s; since q . U_i s = U_i^T q . s, each head's U_i^T goes into its queries,
    and likewise, for the values, into W^O. Under a rotation U_i may only turn and stretch each
    pair of features, which are then treated as one complex number.

    Args:
        layer: any, which is left as it is.
        h_kv: heads of keys and values of the new layer, a divisor of the layer's.
        how: "mean", "first" or "svd".
        inputs: (..., d_model), what the layer reads, for "svd" to weigh directions by; without it
            every direction of x counts as much.

    Returns:
        A layer with all the heads of queries. Its biases are those that follow from the above.

    Raises:
        TypeError: not a MultiHeadAttention, or an h_kv that is not a whole number.
        ValueError: an h_kv that does not divide the layer's, another way, or inputs of another
            width.

    Source: Ainslie et al. (2023), section 2.1, for "mean" and "first".

    >>> share_heads(MultiHeadAttention(8, 4), 2).w_k.weight.shape
    torch.Size([4, 8])
    """
    check_layer(layer)
    arguments.one_of("how", how, WAYS)
    h_kv = arguments.key_heads(layer.h_kv, h_kv)
    _check_inputs(inputs, layer.d_model)
    queries = _with_bias(layer.w_q).unflatten(0, (layer.h, layer.d_k))
    keys = _with_bias(layer.w_k).unflatten(0, (h_kv, -1, layer.d_k))
    values = _with_bias(layer.w_v).unflatten(0, (h_kv, -1, layer.d_v))
    slabs = layer.w_o.weight.to(values).unflatten(1, (layer.h, layer.d_v)).transpose(0, 1)
    if how == "svd":
        moment = _second_moment(keys, inputs)
        common = _common if layer.rotary_base is None else _common_turned
        readers = layer.h // layer.h_kv
        keys, into_queries = common(keys, moment)
        values, into_slabs = _common(values, moment)
        queries = into_queries.repeat_interleave(readers, 0).mT @ queries
        slabs = slabs @ into_slabs.repeat_interleave(readers, 0)
    else:
        keys, values = (g.mean(1) if how == "mean" else g[:, 0] for g in (keys, values))
    shared = with_heads(layer, layer.h, h_kv)
    shared.w_o.load_state_dict(layer.w_o.state_dict())
    shared.w_o.weight.copy_(slabs.transpose(0, 1).flatten(1))
    for part, rows in ((shared.w_q, queries), (shared.w_k, keys), (shared.w_v, values)):
        part.weight.copy_(rows.flatten(0, 1)[:, : layer.d_model])
        if part.bias is not None:
            part.bias.copy_(rows.flatten(0, 1)[:, -1])
    return shared


@torch.no_grad()
def latent(layer: MultiHeadAttention, d_c: int, *, inputs: Tensor | None = None) -> LatentAttention:
    """Make a layer that caches d_c numbers a position out of a trained one.

    The keys and values of all heads, M x with M = (W_K; W_V), become U U^T M x, where U holds
    the d_c directions in which they vary most: W_down = U^T M and W_up = U. Nothing is lost with
    d_c = d_model, nor with d_c = h_kv (d_k + d_v). Weights sum to 1, so the value bias adds the
    same to every output, and moves into the bias of W_O; the key bias changes no weight, unless
    keys are rotated.

    Args:
        layer: any, which is left as it is.
        d_c: width of the latent, at most d_model.
        inputs: (..., d_model), what the layer reads, to weigh directions by; without it every
            direction of x counts as much.

    Returns:
        A LatentAttention without rotary keys; of a rotary layer a RotatedLatent.

    Raises:
        TypeError: not a MultiHeadAttention, or a d_c that is not a whole number.
        ValueError: a d_c under 1 or above d_model, or inputs of another width.

    Source: DeepSeek-AI (2024), section 2.1.2, for the form; the conversion is the book's.

    >>> latent(MultiHeadAttention(8, 4), 3).w_down.weight.shape
    torch.Size([3, 8])
    """
    check_layer(layer)
    if arguments.size("d_c", d_c) > layer.d_model:
        raise ValueError(
            f"d_c must be at most d_model={layer.d_model}, with which nothing is lost; got {d_c}."
        )
    _check_inputs(inputs, layer.d_model)
    small = _latent_like(layer, d_c)
    readers = layer.h // layer.h_kv
    keys, values = (
        rows.unflatten(0, (layer.h_kv, -1)).repeat_interleave(readers, 0).flatten(0, 1)
        for rows in (_with_bias(layer.w_k), _with_bias(layer.w_v))
    )
    both = torch.cat([keys, values])
    matrix = both[:, : layer.d_model]
    up = _directions(matrix, _second_moment(matrix, inputs), d_c)
    small.w_down.weight.copy_(up.mT @ matrix)
    small.w_up.weight.copy_(up)
    small.w_q.weight.copy_(layer.w_q.weight)
    small.w_o.load_state_dict(layer.w_o.state_dict())
    if layer.w_q.bias is not None:
        small.w_q.bias.copy_(layer.w_q.bias)
        added = small.w_o.weight.to(values) @ values[:, -1]
        small.w_o.bias.copy_(small.w_o.bias.to(added) + added)
        if isinstance(small, RotatedLatent) and small.key_bias is not None:
            small.key_bias.copy_(keys[:, -1])
    return small.train(layer.training)


def _latent_like(layer: MultiHeadAttention, d_c: int) -> LatentAttention:
    """Make a latent layer of a layer's sizes, type and device: room for numbers."""
    bias, where = layer.w_qkv.bias is not None, layer.w_o.weight
    sizes = layer.d_model, layer.h, d_c
    small: LatentAttention
    with torch.device("meta"):
        if layer.rotary_base is None:
            small = LatentAttention(*sizes, d_k=layer.d_k, d_v=layer.d_v, bias=bias, norm=False)
        else:
            small = RotatedLatent(*sizes, d_k=layer.d_k, d_v=layer.d_v, bias=bias,
                rotary_base=layer.rotary_base, rotary_scaling=layer.rotary_scaling)  # fmt: skip
    return small.to(where.dtype).to_empty(device=where.device)


def _check_inputs(inputs: Tensor | None, d_model: int) -> None:
    """Check what a layer reads, where a sample of it is given."""
    if inputs is None:
        return
    arguments.check_tensor("inputs", inputs, 1, "(..., d_model)")
    if inputs.shape[-1] != d_model or inputs.numel() == 0:
        raise ValueError(
            f"inputs must have shape (..., d_model) with d_model={d_model} and at least one "
            f"position; got shape {tuple(inputs.shape)}. Pass what the layer itself reads."
        )


def _with_bias(part: Projection) -> Tensor:
    """Return (rows, d_model), or (rows, d_model + 1) with the bias as what a feature of 1 adds.

    In float32 at least: there are no eigenvectors in 16 bits.
    """
    weight, bias = part
    rows = weight if bias is None else torch.cat([weight, bias[:, None]], 1)
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _second_moment(rows: Tensor, inputs: Tensor | None) -> Tensor:
    """Return the mean of x x^T over the inputs, with a last feature of 1 if the rows have one."""
    width = rows.shape[-1]
    if inputs is None:
        return torch.eye(width, dtype=torch.float64, device=rows.device)
    x = inputs.reshape(-1, inputs.shape[-1]).to(rows.device, torch.float64)
    x = F.pad(x, (0, width - x.shape[-1]), value=1.0)
    return x.mT @ x / len(x)


def _directions(rows: Tensor, moment: Tensor, kept: int) -> Tensor:
    """Return the directions, (..., m, kept), in which rows x varies most; rows (..., m, width).

    Only those that rows x can have are ordered, whether the inputs show them or not, so that all of
    them are there when kept is large enough. In float64, for in float32 what varies little drowns.
    """
    exact = rows.to(torch.complex128 if rows.is_complex() else torch.float64)
    basis, *_ = torch.linalg.svd(exact, full_matrices=False)
    within = basis.mH @ exact
    order = torch.linalg.eigh(within @ moment.to(exact.dtype) @ within.mH).eigenvectors
    found = basis @ order[..., -kept:]
    return F.pad(found, (0, kept - found.shape[-1])).to(rows.dtype)


def _common(groups: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Share the rows of each group: (h_kv, r, d, width) gives (h_kv, d, width) and U.

    U is (h_kv * r, d, d): what belongs to head i is nearly U_i times what is shared.
    """
    _, r, d, _ = groups.shape
    rows = groups.flatten(1, 2)
    up = _directions(rows, moment, d)
    return up.mT @ rows, up.unflatten(1, (r, d)).flatten(0, 1)


def _common_turned(groups: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Do as _common does, with a U_i that commutes with every rotation of pairs of features."""
    rows = torch.complex(groups[..., 0::2, :], groups[..., 1::2, :]).transpose(1, 2)
    up = _directions(rows, moment, 1)  # (h_kv, d / 2, r, 1)
    shared = torch.view_as_real((up.mH @ rows).squeeze(2))  # (h_kv, d / 2, width, 2)
    factors = up.squeeze(-1).transpose(1, 2).flatten(0, 1)  # (h_kv * r, d / 2)
    one, i = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]]).to(groups)
    maps = factors.real.diag_embed().kron(one) + factors.imag.diag_embed().kron(i)
    return shared.transpose(-2, -1).flatten(1, 2), maps
