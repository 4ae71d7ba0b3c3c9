"""Conversions of a trained layer: what shares or is small enough is kept, biases, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from labkit import KVCache, MultiHeadAttention, window_mask
from labkit.latent import LatentAttention
from labkit.models.sharing import WAYS, RotatedLatent, latent, share_heads
from tests.drawn import draw, draw_layer
from tests.refusing import check_refusal

EACH_WAY = pytest.mark.parametrize("how", WAYS)
ROTARY = pytest.mark.parametrize("rotary_base", [None, 10.0])
BIAS = pytest.mark.parametrize("bias", [True, False])
D_MODEL, H, D_K, D_V = 22, 6, 4, 5


def make_layer(h_kv: int | None = None, seed: int = 0, **options) -> MultiHeadAttention:
    """A layer in float64 with biases other than 0, and values of another width than keys."""
    sizes = {"d_model": D_MODEL, "h": H, "h_kv": h_kv, "d_k": D_K, "d_v": D_V} | options
    return draw_layer(seed, **sizes)


X = draw(2, 7, D_MODEL)


def gap(one: nn.Module, other: nn.Module, x: Tensor = X) -> float:
    """Say how far two layers are from each other, masked and causal."""
    mask = torch.rand(2, H, 7, 7, generator=torch.Generator().manual_seed(2)) < 0.7
    masked = one(x, mask=mask) - other(x, mask=mask)
    causal = one(x, is_causal=True) - other(x, is_causal=True)
    return max(masked.abs().max().item(), causal.abs().max().item())


# Heads that share


@EACH_WAY
@ROTARY
@BIAS
@pytest.mark.parametrize("h_kv", [6, 3, 1])
def test_a_layer_that_shares_no_more_than_before_is_the_same(h_kv, bias, rotary_base, how):
    layer = make_layer(h_kv, bias=bias, rotary_base=rotary_base)
    for inputs in (None, X):
        same = share_heads(layer, h_kv, how, inputs=inputs)
        assert (same.h, same.h_kv) == (H, h_kv)
        assert gap(same, layer) < 1e-10
        if how != "svd":
            pairs = zip(same.parameters(), layer.parameters(), strict=True)
            assert all(torch.equal(*pair) for pair in pairs)


def related(h_kv: int, rotary: bool, change: bool, **options) -> MultiHeadAttention:
    """A layer in which the keys and values of each group are the same up to an invertible map.

    With a rotation the map of the keys turns and stretches each pair of features.
    """
    layer = make_layer(rotary_base=10.0 if rotary else None, **options)
    readers = H // h_kv

    def invertible(head: int, d: int, pairwise: bool) -> Tensor:
        if not change:
            return torch.eye(d, dtype=torch.float64)
        if not pairwise:
            return draw(d, d, seed=head) + 2 * torch.eye(d)
        blocks = [torch.tensor([[a, -b], [b, a]]) for a, b in draw(d // 2, 2, seed=head).tolist()]
        return torch.block_diag(*blocks).double()

    with torch.no_grad():
        for part, d, pairwise in ((layer.w_k, D_K, rotary), (layer.w_v, D_V, False)):
            for head in range(H):
                rows = slice(head * d, (head + 1) * d)
                first = slice(head // readers * readers * d, (head // readers * readers + 1) * d)
                if first != rows:
                    into = invertible(head, d, pairwise)
                    part.weight[rows] = into @ part.weight[first]
                    if part.bias is not None:
                        part.bias[rows] = into @ part.bias[first]
    return layer


@EACH_WAY
@ROTARY
@pytest.mark.parametrize("h_kv", [3, 2, 1])
def test_every_way_keeps_what_is_shared_already(h_kv, rotary_base, how):
    layer = related(h_kv, rotary_base is not None, change=False)
    assert gap(share_heads(layer, h_kv, how), layer) < 1e-10


@ROTARY
@BIAS
@pytest.mark.parametrize("h_kv", [3, 2, 1])
@pytest.mark.parametrize("inputs", [None, X], ids=["by weights", "by inputs"])
def test_svd_keeps_what_is_shared_in_other_coordinates_and_a_mean_does_not(
    inputs, h_kv, bias, rotary_base
):
    layer = related(h_kv, rotary_base is not None, change=True, bias=bias)
    assert gap(share_heads(layer, h_kv, "svd", inputs=inputs), layer) < 1e-10
    for how in ("mean", "first"):
        assert gap(share_heads(layer, h_kv, how, inputs=inputs), layer) > 0.1


def test_heads_that_share_already_can_share_with_more():
    layer = make_layer(2)  # three heads read each head of keys
    with torch.no_grad():
        for part, d in ((layer.w_k, D_K), (layer.w_v, D_V)):
            into = draw(d, d) + 2 * torch.eye(d)
            part.weight[d:] = into @ part.weight[:d]
            part.bias[d:] = into @ part.bias[:d]
    assert gap(share_heads(layer, 1, "svd"), layer) < 1e-10
    assert gap(share_heads(layer, 1, "mean"), layer) > 0.1


def test_a_rotation_keeps_no_map_that_mixes_its_pairs():
    layer = related(3, rotary=False, change=True)
    assert gap(share_heads(layer, 3, "svd"), layer) < 1e-10
    layer.rotary_base = 10.0
    assert gap(share_heads(layer, 3, "svd"), layer) > 0.1


def of_rank(rank: int, n: int = 400) -> Tensor:
    """Inputs that lie in so many directions."""
    return draw(n, rank, seed=3) @ draw(rank, D_MODEL, seed=4)


def test_directions_that_the_inputs_do_not_have_cost_nothing():
    layer, inputs = make_layer(), of_rank(D_K - 1)  # and one for the bias
    x = inputs[:14].unflatten(0, (2, 7))
    assert gap(share_heads(layer, 1, "svd", inputs=inputs.unflatten(0, (4, 100))), layer, x) < 1e-10
    assert gap(share_heads(layer, 1, "svd"), layer, x) > 0.1


def test_the_mean_and_the_first_are_what_they_are_called():
    layer = make_layer()
    mean, first = share_heads(layer, 2), share_heads(layer, 2, "first")
    for name, d in (("w_k", D_K), ("w_v", D_V)):
        weight, bias = getattr(layer, name)
        for one, of_group in ((mean, lambda g: g.mean(1)), (first, lambda g: g[:, 0])):
            heads, biases = weight.view(2, 3, d, D_MODEL), bias.view(2, 3, d)
            torch.testing.assert_close(getattr(one, name).weight, of_group(heads).flatten(0, 1))
            torch.testing.assert_close(getattr(one, name).bias, of_group(biases).flatten())
    assert torch.equal(mean.w_q.weight, layer.w_q.weight)
    assert torch.equal(mean.w_o.weight, layer.w_o.weight)


@ROTARY
def test_the_bias_of_the_keys_does_nothing_without_a_rotation(rotary_base):
    for h_kv in (6, 2):
        layer, other = (make_layer(h_kv, rotary_base=rotary_base) for _ in range(2))
        with torch.no_grad():
            other.w_k.bias.normal_(generator=torch.Generator().manual_seed(5))
        assert (gap(other, layer) < 1e-12) == (rotary_base is None)
        (gradient,) = torch.autograd.grad(layer(X).square().sum(), layer.w_qkv.bias)
        of_keys = gradient.split([H * D_K, h_kv * D_K, h_kv * D_V])[1]
        assert (of_keys.abs().max() < 1e-11) == (rotary_base is None)


# A latent


def widths_that_lose_nothing(h_kv: int) -> list[int]:
    return [D_MODEL, h_kv * (D_K + D_V)] if h_kv <= 2 else [D_MODEL]


EXACT = [(h_kv, c) for h_kv in (6, 2, 1) for c in widths_that_lose_nothing(h_kv)]


@pytest.mark.parametrize(("h_kv", "c"), EXACT)
@ROTARY
@BIAS
def test_a_latent_that_is_wide_enough_loses_nothing(bias, rotary_base, h_kv, c):
    layer = make_layer(h_kv, bias=bias, rotary_base=rotary_base)
    small = latent(layer, c)
    assert gap(small, layer) < 1e-10
    assert gap(latent(layer, c, inputs=of_rank(D_MODEL)), layer) < 1e-10
    for options in ({}, {"is_causal": True}, {"mask": window_mask(7, None, 3)}):
        out, weights = small(X, return_weights=True, **options)
        expected, expected_weights = layer(X, return_weights=True, **options)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(small(X[0]), layer(X)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("c", [1, 2 * (D_K + D_V) - 1])
def test_a_latent_that_is_too_narrow_loses_something(c):
    layer = make_layer(2)
    assert gap(latent(layer, c), layer) > 1e-3


@ROTARY
def test_a_latent_needs_no_more_directions_than_the_inputs_have(rotary_base):
    layer, inputs = make_layer(rotary_base=rotary_base), of_rank(3)
    x = inputs[:14].unflatten(0, (2, 7))
    assert gap(latent(layer, 3, inputs=inputs), layer, x) < 1e-10
    assert gap(latent(layer, 2, inputs=inputs), layer, x) > 0.01
    assert gap(latent(layer, 3), layer, x) > 0.01


@pytest.mark.parametrize("c", [3, 9, 17])
def test_what_a_latent_loses_is_the_least_that_can_be(c):
    layer, inputs = make_layer(), draw(300, D_MODEL) * torch.linspace(0.1, 2, D_MODEL)
    small, both = latent(layer, c, inputs=inputs), layer.w_qkv.weight[H * D_K :]
    wanted = inputs @ both.T
    lost = wanted - inputs @ (small.w_up.weight @ small.w_down.weight).T
    least = torch.linalg.svdvals(wanted)[c:].square().sum()
    torch.testing.assert_close(lost.square().sum(), least, rtol=1e-9, atol=0)


@pytest.mark.parametrize("seen", [3, 50], ids=["inputs that show little", "inputs that show all"])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_latent_as_wide_as_the_model_loses_nothing(seen: int, dtype, within: float):
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 4, dtype=dtype)
    shown, x = torch.randn(1, seen, 24, dtype=dtype), torch.randn(2, 9, 24, dtype=dtype)
    for inputs in (shown, None):
        assert (latent(layer, 24, inputs=inputs)(x) - layer(x)).abs().max() < within


def test_a_latent_may_be_wider_than_all_keys_and_values():
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 2, d_k=2, d_v=3, dtype=torch.float64)
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    assert (latent(layer, 24)(x) - layer(x)).abs().max() < 1e-12


@ROTARY
@pytest.mark.parametrize("blocks", [[1] * 7, [3, 1, 2, 1], [7]], ids=["steps", "pieces", "whole"])
@pytest.mark.parametrize("return_weights", [False, True])
@torch.no_grad()
def test_the_cache_of_a_latent_holds_c_numbers_a_position(return_weights, blocks, rotary_base):
    small = latent(make_layer(2, rotary_base=rotary_base), 11)
    mask = window_mask(7, None, 4)
    whole, cache, start = small(X, mask=mask, is_causal=True), KVCache(), 0
    for end in itertools.accumulate(blocks):
        rows = slice(start, end)
        out = small(X[:, rows], mask=mask[rows, :end], cache=cache, return_weights=return_weights)
        out = out[0] if return_weights else out
        torch.testing.assert_close(out, whole[:, rows], rtol=1e-12, atol=1e-12)
        start = end
    assert cache.k.shape == (2, 1, 7, 11)
    assert cache.k.numel() + cache.v.numel() == 2 * 7 * 11
    cache.crop(4)
    again = small(X[:, 4:], mask=mask[4:], cache=cache)
    torch.testing.assert_close(again, whole[:, 4:], rtol=1e-12, atol=1e-12)


def test_a_latent_layer_can_be_trained():
    small = latent(make_layer(rotary_base=10.0), 5)
    small(X, is_causal=True).square().sum().backward()
    assert all(parameter.grad.any() for parameter in small.parameters())
    bare = RotatedLatent(D_MODEL, H, 5, d_k=D_K, d_v=D_V, bias=False)
    assert [name for name, _ in bare.named_parameters()] == [
        f"w_{part}.weight" for part in ("q", "down", "up", "o")
    ]


def test_of_a_layer_without_positions_a_latent_can_be_absorbed():
    layer = make_layer(2)
    small = latent(layer, 9)
    assert type(small) is LatentAttention
    absorbed, unpacked = (small(X, is_causal=True, absorb=way) for way in (True, False))
    torch.testing.assert_close(absorbed, unpacked, rtol=1e-12, atol=1e-12)
    whole = latent(layer, D_MODEL)(X, is_causal=True, absorb=True)
    torch.testing.assert_close(whole, layer(X, is_causal=True), rtol=1e-10, atol=1e-10)


def test_a_row_that_sees_nothing_has_the_constant_that_values_add():
    layer, mask = make_layer(), torch.ones(7, 7, dtype=torch.bool).tril()
    mask[2] = False
    with torch.no_grad():
        out = latent(layer, D_MODEL)(X, mask)[:, 2]
        constant = layer.w_o(layer.w_v.bias)
    torch.testing.assert_close(out, constant.expand(2, -1), rtol=1e-10, atol=1e-10)


# Both

CONVERSIONS = {how: lambda layer, how=how, **o: share_heads(layer, 2, how, **o) for how in WAYS} | {
    "latent": lambda layer, **options: latent(layer, 9, **options)
}
EACH = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


@EACH
def test_what_is_made_is_new_and_like_the_layer(convert):
    layer = make_layer(rotary_base=50.0, dropout=0.25)
    before, random = [p.clone() for p in layer.parameters()], torch.get_rng_state()
    for mode in (True, False):
        made = convert(layer.train(mode), inputs=X)
        assert made.training == mode
        assert (made.rotary_base, getattr(made, "dropout", 0.25)) == (50.0, 0.25)
        assert all(p.requires_grad and p.dtype == torch.float64 for p in made.parameters())
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    assert all(torch.equal(*pair) for pair in zip(layer.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


@EACH
@ROTARY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.filterwarnings("error")
def test_a_layer_of_each_type_becomes_one_of_its_type(dtype, rotary_base, convert):
    layer = make_layer(rotary_base=rotary_base).to(dtype)
    made, right = convert(layer), convert(layer.double())
    assert {p.dtype for p in made.parameters()} == {dtype}
    assert gap(made.double(), right) < {torch.float16: 0.05, torch.bfloat16: 0.4}.get(dtype, 1e-4)


# Errors

LAYER = make_layer()
ERRORS = {
    "not a layer": (
        lambda: share_heads(nn.Linear(2, 2), 1),
        TypeError,
        ["labkit.MultiHeadAttention", "Linear", "from_torch"],
    ),
    "a latent of no layer": (
        lambda: latent(nn.MultiheadAttention(8, 2), 1),
        TypeError,
        ["labkit.MultiHeadAttention", "MultiheadAttention", "from_torch"],
    ),
    "heads that do not divide": (
        lambda: share_heads(LAYER, 4),
        ValueError,
        ["h_kv must divide h", "h=6", "h_kv=4", "[1, 2, 3, 6]"],
    ),
    "more heads than there are": (lambda: share_heads(LAYER, 12), ValueError, ["h_kv=12"]),
    "more than are shared already": (
        lambda: share_heads(make_layer(2), 3),
        ValueError,
        ["h_kv=3", "[1, 2]"],
    ),
    "no heads": (lambda: share_heads(LAYER, 0), ValueError, ["h_kv", "at least 1", "0"]),
    "half a head": (lambda: share_heads(LAYER, 1.5), TypeError, ["h_kv", "whole", "1.5"]),
    "another way": (
        lambda: share_heads(LAYER, 2, "median"),
        ValueError,
        ["how", "mean, first, svd", "'median'"],
    ),
    "no latent": (lambda: latent(LAYER, 0), ValueError, ["d_c", "at least 1", "0"]),
    "half a latent": (lambda: latent(LAYER, 2.5), TypeError, ["d_c", "whole", "2.5"]),
    "a latent too wide": (
        lambda: latent(LAYER, D_MODEL + 1),
        ValueError,
        ["c", "at most d_model=22", "got 23"],
    ),
    "inputs that are wider": (
        lambda: share_heads(LAYER, 2, "svd", inputs=draw(4, 23)),
        ValueError,
        ["inputs", "d_model=22", "(4, 23)", "itself reads"],
    ),
    "inputs that are narrower": (
        lambda: latent(LAYER, 3, inputs=draw(2, 4, 21)),
        ValueError,
        ["inputs", "d_model=22", "(2, 4, 21)"],
    ),
    "no inputs": (
        lambda: share_heads(LAYER, 2, "svd", inputs=draw(0, D_MODEL)),
        ValueError,
        ["inputs", "at least one", "(0, 22)"],
    ),
    "inputs in a list": (lambda: latent(LAYER, 3, inputs=[1.0]), TypeError, ["inputs", "list"]),
    "an odd width to rotate": (
        lambda: RotatedLatent(8, 2, 3, d_k=3, d_v=2),
        ValueError,
        ["d_k", "even", "3"],
    ),
    "rotated keys to absorb": (
        lambda: latent(make_layer(rotary_base=10.0), 3)(X, absorb=True),
        ValueError,
        ["cannot be absorbed", "d_rotary"],
    ),
    "x of another width": (
        lambda: latent(LAYER, 3)(X[..., :21]),
        ValueError,
        ["d_model=22", "(2, 7, 21)"],
    ),
    "a mask of another shape": (
        lambda: latent(LAYER, 3)(X, mask=torch.ones(7, 6, dtype=torch.bool)),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 6, 7, 7)", "(7, 6)"],
    ),
    "something else than a cache": (
        lambda: latent(LAYER, 3)(X, cache=[]),
        TypeError,
        ["labkit.KVCache", "list"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
