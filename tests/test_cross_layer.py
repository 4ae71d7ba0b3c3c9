"""Keys and values shared across layers: against layers of the same weights, caches, errors."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from labkit import KVCache, MultiHeadAttention, split_heads, window_mask
from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.models.cross_layer import CrossLayerAttention, KeyValueProducer, across_layers
from labkit.models.gpt import GPT
from labkit.positions import rotate
from tests.drawn import draw
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=30)
D_MODEL, H, BASE = 8, 4, 20.0


def drawn(module: nn.Module, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def make_model(h_kv: int = 2, factor: int = 2, layers: int = 4) -> GPT:
    def lowest() -> KeyValueProducer:
        return KeyValueProducer(D_MODEL, H, h_kv=h_kv, rotary_base=BASE)

    return drawn(GPT(11, D_MODEL, H, layers, attention=across_layers(lowest, factor)))


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


IDS = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rotary_base", [None, BASE])
@pytest.mark.parametrize("h_kv", [4, 2, 1])
@torch.no_grad()
def test_queries_are_its_own_and_the_rest_is_the_producers(h_kv, rotary_base):
    low = drawn(KeyValueProducer(D_MODEL, H, h_kv=h_kv, rotary_base=rotary_base))
    high, x, y = (
        drawn(CrossLayerAttention(low), 1),
        draw(2, 5, D_MODEL),
        draw(2, 5, D_MODEL, seed=1),
    )
    plain = MultiHeadAttention(D_MODEL, H, h_kv=h_kv, rotary_base=rotary_base).double()
    plain.load_state_dict(low.state_dict())
    assert_same(low(x, is_causal=True), plain(x, is_causal=True))
    q, k, v = (
        split_heads(part(z), h)
        for part, z, h in ((high.w_q, y, H), (plain.w_k, x, h_kv), (plain.w_v, x, h_kv))
    )
    if rotary_base is not None:
        q, k = rotate(q, rotary_base), rotate(k, rotary_base)
    heads, weights = scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True, return_weights=True
    )
    out, seen = high(y, is_causal=True, return_weights=True)
    assert_same(high(y, is_causal=True), high.w_o(merge_heads(heads)))
    assert_same(out, high.w_o(merge_heads(heads)))
    assert_same(seen, weights)


@given(
    blocks=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    kind=st.sampled_from(({}, {"window": 3}, {"window": 3, "sinks": 1})),
    factor=st.integers(1, 4),
    h_kv=st.sampled_from((1, 2, 4)),
)
@settings(repeatable)
@torch.no_grad()
def test_a_model_with_caches_equals_its_whole_pass(blocks, kind, factor, h_kv):
    model, n = make_model(h_kv, factor), sum(blocks)
    ids = torch.randint(11, (2, n), generator=torch.manual_seed(n))
    may = window_mask(n, n, 3) if kind else None
    if "sinks" in kind:
        may[:, 0] = True
    whole, weights = model(ids, may, return_weights=True)
    caches, start = model.caches(**kind), 0
    for part in ids.split(blocks, 1):
        rows = slice(start, start + part.shape[1])
        logits, seen = model(part, caches=caches, return_weights=True)
        assert_same(logits, whole[:, rows])
        assert_same(seen, weights[..., rows, : rows.stop])
        start = rows.stop


@torch.no_grad()
def test_only_the_lowest_of_each_group_keeps_numbers():
    model, plain = make_model(), drawn(GPT(11, D_MODEL, H, 4, h_kv=2))
    for bits in (None, 4):
        held = []
        for each in (model, plain):
            caches = each.caches(bits=bits)
            each(IDS, caches=caches)
            held.append([cache.nbytes for cache in caches])
        shared, whole = held
        assert shared == [whole[0], 0, whole[2], 0]
    caches = model.caches()
    for part in IDS.split([4, 3, 2], 1):
        model(part, caches=caches)
    for cache in caches:
        cache.crop(7)
        cache.reorder(torch.tensor([1, 0]))
    assert_same(model(IDS[[1, 0], 7:], caches=caches), model(IDS)[[1, 0], 7:])


def test_both_layers_train_the_shared_matrices():
    model = make_model(layers=2)
    low, high = (block.attention for block in model.blocks)
    names = [name for name, _ in high.named_parameters()]
    assert names == ["w_q.weight", "w_q.bias", "w_o.weight", "w_o.bias"]
    assert len(list(model.parameters())) == len(model.state_dict())
    low.w_o.weight.requires_grad_(False).zero_()  # its own output is gone: all comes from above
    model(IDS).square().sum().backward()
    of_keys_and_values = low.w_qkv.weight.grad[D_MODEL:]
    assert of_keys_and_values.abs().sum(1).all()
    assert high.w_q.weight.grad.any()


def test_a_copy_has_a_producer_of_its_own():
    model = make_model()
    before = model(IDS)
    other = copy.deepcopy(model)
    assert_same(other(IDS), before)
    nn.init.zeros_(model.blocks[0].attention.w_qkv.weight)
    assert_same(other(IDS), before)
    assert not torch.allclose(model(IDS), before)


# Errors


def stale() -> Tensor:
    low = drawn(KeyValueProducer(D_MODEL, H))
    high = drawn(CrossLayerAttention(low))
    low(draw(2, 5, D_MODEL))
    return high(draw(2, 4, D_MODEL))


def without_a_cache_below() -> Tensor:
    low = drawn(KeyValueProducer(D_MODEL, H))
    high, cache = drawn(CrossLayerAttention(low)), KVCache()
    for word in draw(2, 2, D_MODEL).split(1, 1):
        low(word)
        out = high(word, cache=cache)
    return out


ERRORS = {
    "another layer": (
        lambda: CrossLayerAttention(MultiHeadAttention(8, 4)),
        TypeError,
        ["KeyValueProducer", "MultiHeadAttention"],
    ),
    "nothing made": (
        lambda: CrossLayerAttention(KeyValueProducer(8, 4)).double()(draw(2, 5, 8)),
        ValueError,
        ["(2, 5)", "None", "first"],
    ),
    "of another pass": (stale, ValueError, ["(2, 4)", "(2, 5)"]),
    "a cache above only": (without_a_cache_below, ValueError, ["(2, 2)", "(2, 1)", "cache"]),
    "no layers to share": (
        lambda: across_layers(lambda: KeyValueProducer(8, 4), 0),
        ValueError,
        ["factor", "at least 1"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
