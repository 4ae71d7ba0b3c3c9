"""labkit's latent attention: its two ways, the published code, caches, counts, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from labkit import KVCache, MultiHeadAttention, causal_mask, counting, window_mask
from labkit.latent import LatentAttention
from labkit.positions import rotate
from tests.drawn import draw
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=60)
D_MODEL = 7
SIZES = {"d_k": 4, "d_v": 5, "d_rotary": 6, "rotary_base": 20.0}
ROTARY = pytest.mark.parametrize("d_rotary", [0, 6])
WAY = pytest.mark.parametrize("absorb", [True, False], ids=["absorbed", "unpacked"])


def make_layer(seed: int = 0, *, h: int = 3, d_c: int = 4, **options) -> LatentAttention:
    """A layer in float64 whose parameters are all drawn."""
    torch.manual_seed(seed)
    layer = LatentAttention(D_MODEL, h, d_c, **(SIZES | options)).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def written_out(layer: LatentAttention, x: Tensor, may: Tensor) -> Tensor:
    """One score after another, from the formula; x (n, d_model), may (n, n)."""
    n, h, d_k, d_v, d_r = len(x), layer.h, layer.d_k, layer.d_v, layer.d_rotary
    up_k, up_v = layer.w_up.weight[: h * d_k], layer.w_up.weight[h * d_k :]
    down, turned = layer.w_down(x)[:, : layer.d_c], layer.w_down(x)[:, layer.d_c :]
    c = layer.norm(down)
    heads = []
    for i in range(h):
        q = layer.w_q(x)[:, i * (d_k + d_r) : (i + 1) * (d_k + d_r)]
        scores = torch.empty(n, n, dtype=x.dtype)
        for s, t in itertools.product(range(n), range(n)):
            score = q[s, :d_k] @ (up_k[i * d_k : (i + 1) * d_k] @ c[t])
            if d_r:
                asks = rotate(q[s : s + 1, d_k:], layer.rotary_base, s)[0]
                score = score + asks @ rotate(turned[t : t + 1], layer.rotary_base, t)[0]
            scores[s, t] = score / (d_k + d_r) ** 0.5
        weights = scores.masked_fill(~may, -torch.inf).softmax(-1)
        heads.append(weights @ (c @ up_v[i * d_v : (i + 1) * d_v].T))
    return layer.w_o(torch.cat(heads, -1))


# Two ways of one layer


@given(
    n=st.integers(1, 6),
    h=st.integers(1, 3),
    d_c=st.sampled_from((1, 3, 9)),
    d_rotary=st.sampled_from((0, 2, 6)),
    norm=st.booleans(),
    bias=st.booleans(),
    seed=st.integers(0, 2**20),
)
@settings(repeatable)
@torch.no_grad()
def test_absorbed_and_unpacked_it_is_the_formula(n, h, d_c, d_rotary, norm, bias, seed):
    layer = make_layer(seed, h=h, d_c=d_c, d_rotary=d_rotary, norm=norm, bias=bias)
    x, may = draw(n, D_MODEL, seed=seed), draw(n, n, seed=seed + 1) > -0.5
    may |= torch.eye(n, dtype=torch.bool)
    for is_causal in (False, True):
        wanted = written_out(layer, x, may & causal_mask(n) if is_causal else may)
        for absorb in (True, False, None):
            assert_same(layer(x, may, is_causal=is_causal, absorb=absorb), wanted)


@given(
    blocks=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    window=st.sampled_from((None, 1, 3, 30)),
    d_rotary=st.sampled_from((0, 6)),
    seed=st.integers(0, 2**20),
)
@settings(repeatable)
@torch.no_grad()
def test_through_a_cache_in_any_pieces_it_is_the_whole_pass(blocks, window, d_rotary, seed):
    layer, n = make_layer(seed, d_rotary=d_rotary), sum(blocks)
    x = draw(2, n, D_MODEL, seed=seed)
    may = causal_mask(n) if window is None else window_mask(n, n, window)
    whole, weights = layer(x, may, return_weights=True)
    for absorb in (True, False, None):
        cache, other, start = KVCache(window), KVCache(window), 0
        for part in x.split(blocks, 1):
            rows = slice(start, start + part.shape[1])
            assert_same(layer(part, cache=cache, absorb=absorb), whole[:, rows])
            out, seen = layer(part, cache=other, absorb=absorb, return_weights=True)
            assert_same(out, whole[:, rows])
            assert_same(seen, weights[..., rows, : rows.stop])
            start = rows.stop
        assert cache.n == n


@WAY
@ROTARY
@torch.no_grad()
def test_weights_are_given_and_a_row_that_sees_nothing_is_zero(d_rotary, absorb):
    layer, x = make_layer(d_rotary=d_rotary), draw(2, 5, D_MODEL)
    may = causal_mask(5).clone()
    may[2] = False
    out, weights = layer(x, may, return_weights=True, absorb=absorb)
    assert_same(layer(x, may, absorb=absorb), out)
    assert weights.shape == (2, 3, 5, 5)
    assert not weights[..., 2, :].any()
    assert_same(out[:, 2], layer.w_o.bias.expand(2, -1))


def test_both_ways_have_the_same_gradients():
    x, found = draw(2, 5, D_MODEL), []
    for absorb in (True, False):
        layer = make_layer()
        layer(x, is_causal=True, absorb=absorb).square().sum().backward()
        found.append([parameter.grad for parameter in layer.parameters()])
        assert all(gradient.any() for gradient in found[-1])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# Against other code


@pytest.mark.slow
@torch.no_grad()
def test_it_is_what_transformers_has_as_deepseek_v2():
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as theirs

    h, d_c, d_k, d_v, d_r = 3, 8, 4, 6, 2
    config = DeepseekV2Config(hidden_size=12, num_attention_heads=h, num_key_value_heads=h,
        q_lora_rank=None, kv_lora_rank=d_c, qk_nope_head_dim=d_k, v_head_dim=d_v,
        qk_rope_head_dim=d_r, attn_implementation="eager", max_position_embeddings=32,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0})  # fmt: skip
    other = theirs.DeepseekV2Attention(config, layer_idx=0)
    torch.manual_seed(0)
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.5)
    layer = LatentAttention(12, h, d_c, d_k=d_k, d_v=d_v, d_rotary=d_r, bias=False)
    layer.w_q.weight.copy_(other.q_proj.weight)
    layer.w_down.weight.copy_(other.kv_a_proj_with_mqa.weight)
    layer.norm.weight.copy_(other.kv_a_layernorm.weight)
    layer.w_o.weight.copy_(other.o_proj.weight)
    of_heads = other.kv_b_proj.weight.unflatten(0, (h, d_k + d_v))  # there the keys' part and the
    parts = of_heads[:, :d_k], of_heads[:, d_k:]  # values' take turns
    layer.w_up.weight.copy_(torch.cat([part.flatten(0, 1) for part in parts]))
    x = torch.randn(2, 9, 12)
    places = theirs.DeepseekV2RotaryEmbedding(config)(x, torch.arange(9)[None])
    hidden = torch.zeros(9, 9).masked_fill(~causal_mask(9), -torch.inf)
    wanted, weights = other(x, hidden[None, None], position_embeddings=places)
    for absorb in (True, False):
        out, mine = layer(x, is_causal=True, absorb=absorb, return_weights=True)
        torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mine, weights, rtol=1e-5, atol=1e-5)


@WAY
@torch.no_grad()
def test_with_nothing_but_rotary_keys_it_weighs_as_multi_query_attention_does(absorb):
    layer, other = make_layer(), MultiHeadAttention(
        D_MODEL, 3, h_kv=1, d_k=6, d_v=1, rotary_base=20.0, dtype=torch.float64
    )  # fmt: skip
    layer.w_up.weight.zero_()
    asks, bias = (part.unflatten(0, (3, 10))[:, 4:].flatten(0, 1) for part in
        (layer.w_q.weight, layer.w_q.bias))  # fmt: skip
    other.w_q.weight.copy_(asks)
    other.w_q.bias.copy_(bias)
    other.w_k.weight.copy_(layer.w_down.weight[4:])
    layer.scale = other.scale
    x = draw(2, 5, D_MODEL)
    _, weights = layer(x, is_causal=True, return_weights=True, absorb=absorb)
    assert_same(weights, other(x, is_causal=True, return_weights=True)[1])


# What is kept, and what it takes


@ROTARY
@torch.no_grad()
def test_a_cache_holds_the_latent_and_one_rotary_key(d_rotary):
    layer, cache, x = make_layer(d_rotary=d_rotary), KVCache(), draw(2, 5, D_MODEL)
    for word in x.split(1, 1):
        layer(word, cache=cache)
    assert cache.k.shape == (2, 1, 5, 4 + d_rotary)
    assert cache.nbytes == 2 * 5 * (4 + d_rotary) * 8
    assert_same(cache.k[:, 0, :, :4], layer.norm(layer.w_down(x)[..., :4]))
    cache.crop(3)
    whole = layer(x, is_causal=True)
    assert_same(layer(x[:, 3:], cache=cache), whole[:, 3:])


@given(
    n_q=st.integers(1, 9), n_k=st.integers(1, 9), d_c=st.integers(1, 9), d_rotary=st.integers(0, 2)
)
@settings(repeatable)
def test_the_counts_are_those_of_the_products(n_q, n_k, d_c, d_rotary):
    n_k = max(n_q, n_k)
    layer, x = make_layer(d_c=d_c, d_rotary=2 * d_rotary), draw(1, n_k, D_MODEL)
    of_input = D_MODEL * (3 * (4 + 2 * d_rotary) + d_c + 2 * d_rotary)
    for absorb in (True, False):
        cache = KVCache()
        if n_k > n_q:
            layer(x[:, n_q:], cache=cache)
        flops = counting.count_flops(
            layer, x[:, :n_q], cache=cache, absorb=absorb, return_weights=True
        )
        projections = n_q * (of_input + D_MODEL * 3 * 5)
        assert flops == 2 * (projections + layer.macs(n_q, n_k, absorb=absorb))
    least = min((True, False), key=lambda absorb: layer.macs(n_q, n_k, absorb=absorb))
    tie = layer.macs(n_q, n_k, absorb=True) == layer.macs(n_q, n_k, absorb=False)
    assert layer.absorbs(n_q, n_k) == (least and not tie)


@torch.no_grad()
def test_it_takes_the_way_that_costs_less():
    layer, x = make_layer(d_c=9), draw(1, 19, D_MODEL)
    cache, found = KVCache(), []
    for part in x.split([8, 1, 10], 1):
        free = copy_of(cache)
        count = counting.count_flops(layer, part, cache=free, return_weights=True)
        both = [
            counting.count_flops(layer, part, cache=copy_of(cache), return_weights=True, absorb=way)
            for way in (True, False)
        ]
        assert count == min(both)
        found.append(both.index(count))
        layer(part, cache=cache)
    assert found == [1, 0, 1]


def copy_of(cache: KVCache) -> KVCache:
    other = KVCache()
    if cache.n:
        other.append(cache.k, cache.v)
    return other


# Errors

LAYER, X = make_layer(), draw(2, 5, D_MODEL)
ERRORS = {
    "no latent": (lambda: LatentAttention(8, 2, 0), ValueError, ["d_c", "at least 1", "0"]),
    "half a latent": (lambda: LatentAttention(8, 2, 2.5), TypeError, ["d_c", "whole", "2.5"]),
    "an odd rotary key": (
        lambda: LatentAttention(8, 2, 3, d_rotary=3),
        ValueError,
        ["d_rotary", "even", "3"],
    ),
    "less than no rotary key": (
        lambda: LatentAttention(8, 2, 3, d_rotary=-2),
        ValueError,
        ["d_rotary", "0 or more", "-2"],
    ),
    "no base": (
        lambda: LatentAttention(8, 2, 3, d_rotary=2, rotary_base=0),
        ValueError,
        ["rotary_base", "above 0"],
    ),
    "heads that do not divide": (
        lambda: LatentAttention(8, 3, 3),
        ValueError,
        ["d_model=8", "h=3"],
    ),
    "x of another width": (lambda: LAYER(X[..., :6]), ValueError, ["d_model=7", "(2, 5, 6)"]),
    "a mask of another shape": (
        lambda: LAYER(X, mask=torch.ones(5, 4, dtype=torch.bool)),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 3, 5, 5)", "(5, 4)"],
    ),
    "something else than a cache": (
        lambda: LAYER(X, cache=[]),
        TypeError,
        ["labkit.KVCache", "list"],
    ),
    "no queries": (lambda: LAYER.macs(0, 3, absorb=True), ValueError, ["n_q", "at least 1"]),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
