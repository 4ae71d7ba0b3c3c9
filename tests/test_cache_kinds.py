"""Caches with a window, sinks and bits against the whole pass; what they hold, give and refuse."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labkit import KVCache, MultiHeadAttention, causal_mask, merge_heads, split_heads, window_mask
from labkit.models.gpt import GPT
from labkit.models.sharing import RotatedLatent, latent
from labkit.positions import rotate
from labkit.quantisation import dequantise, quantise
from tests.drawn import draw, draw_layer
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=120)
seeds = st.integers(0, 2**31 - 1)
BASE = 10.0
WIDTHS = [{"h": 2, "d_k": 4, "d_v": 5}, {"h": 4, "h_kv": 2, "d_k": 2, "d_v": 3}]


@st.composite
def kinds(draw_from) -> dict:
    """What KVCache is made with."""
    window = draw_from(st.sampled_from((None, 1, 2, 3, 5, 40)))
    sinks = draw_from(st.integers(0, 6)) if window else 0
    return {
        "window": window,
        "sinks": sinks,
        "bits": draw_from(st.sampled_from((None, None, 8, 4, 2))),
    }


# What is done to a cache: so many positions read, so many of the last block taken back, its texts
# in another order, a new beginning.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("crop"), st.integers(0, 6)),
        st.tuples(st.just("reorder"), st.permutations([0, 1, 2]).map(tuple)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    min_size=1,
    max_size=9,
)


def assert_same(one: Tensor, other: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, check_stride=False)


def make_layer(seed: int = 0, **sizes) -> MultiHeadAttention:
    return draw_layer(seed, d_model=6, rotary_base=BASE, **({"h": 2, "d_k": 4, "d_v": 5} | sizes))


def make_model(**options) -> GPT:
    torch.manual_seed(0)
    model = GPT(11, 8, 4, 3, h_kv=2, **options).double().requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def may_see(n: int, window: int | None, sinks: int) -> Tensor:
    """The mask, (n, n), of what a cache with a window and sinks shows."""
    causal = causal_mask(n)
    if window is None:
        return causal
    return causal & (window_mask(n, n, window) | (torch.arange(n) < sinks))


def through(x: Tensor, bits: int | None) -> Tensor:
    """What is read again of what is kept in so many bits."""
    if bits is None:
        return x
    return dequantise(*quantise(x, bits), bits=bits, d=x.shape[-1], dtype=x.dtype)


def whole_pass(layer, x: Tensor, window: int | None, sinks: int, bits: int | None, mask=None):
    """The layer's output and weights over all of x, with attention written out."""
    h, h_kv, n = layer.h, layer.h_kv, x.shape[1]
    q, k, v = split_heads(layer.w_q(x), h), split_heads(layer.w_k(x), h_kv), layer.w_v(x)
    k, v = rotate(k, BASE), split_heads(v, h_kv)
    k, v = (through(part, bits).repeat_interleave(h // h_kv, 1) for part in (k, v))
    may = may_see(n, window, sinks)
    may = may if mask is None else may & mask
    scores = (rotate(q, BASE) @ k.mT * layer.d_k**-0.5).masked_fill(~may, -1e30)
    weights = scores.softmax(-1) * may
    return layer.w_o(merge_heads(weights @ v)), weights


# Against the whole pass


@given(
    kind=kinds(), steps=steps, sizes=st.sampled_from(WIDTHS), seed=seeds, with_weights=st.booleans()
)
@repeatable
@torch.no_grad()
def test_a_cache_equals_the_whole_pass_whatever_is_done_to_it(
    kind, steps, sizes, seed, with_weights
):
    layer, cache, x = make_layer(seed % 1000, **sizes), KVCache(**kind), draw(3, 0, 6)
    gave, last = [], 0
    for i, (what, much) in enumerate(steps):
        if what == "read":
            x = torch.cat([x, draw(3, much, 6, seed=seed + i)], 1)
            out, weights = layer(x[:, -much:], cache=cache, return_weights=True)
            if not with_weights:
                twin = copy.deepcopy(cache)
                twin.crop(cache.n - much)
                out = layer(x[:, -much:], cache=twin)
            wanted, wanted_weights = whole_pass(layer, x, **kind)
            assert_same(out, wanted[:, -much:])
            assert_same(weights, wanted_weights[..., -much:, :])
            gave += [(part, part.clone()) for part in (cache.k, cache.v)]
            last = much
        elif what == "crop":
            much = min(much, last)  # as far as before the last block
            x = x[:, : x.shape[1] - much]
            cache.crop(x.shape[1])
            last -= much
        elif what == "clear":
            x, last = x[:, :0], 0
            cache.crop(0)
        elif x.shape[1]:
            x = x[list(much)]
            cache.reorder(torch.tensor(much))
        assert cache.n == x.shape[1]
        for part, was in gave:
            assert torch.equal(part, was)


@given(kind=kinds(), back=st.integers(1, 12), blocks=st.lists(st.integers(1, 4), max_size=4))
@repeatable
@torch.no_grad()
def test_a_crop_goes_on_rightly_or_is_refused(kind, back, blocks):
    layer, cache, x = make_layer(), KVCache(**kind), draw(2, 20, 6)
    for block in x[:, : sum(blocks)].split(blocks, 1):
        layer(block, cache=cache)
    n = max(0, cache.n - back)
    first = max(0, n - cache.window + 1) if cache.window else 0
    needed = {*range(min(n, cache.sinks)), *range(first, min(n + 1, cache.n))}
    if n == 0 or needed <= {*cache.positions.tolist()}:
        cache.crop(n)
        wanted, _ = whole_pass(layer, x, **kind)
        assert_same(layer(x[:, n:], cache=cache), wanted[:, n:])
    else:
        held, before = cache.n, cache.k.clone()
        check_refusal(lambda: cache.crop(n), ValueError, ["at least", "let go", str(n), "widen"])
        assert cache.n == held
        assert torch.equal(cache.k, before)


@pytest.mark.parametrize("kind", [{"window": 3, "sinks": 2}, {"window": 4}, {"bits": 4}, {}])
@pytest.mark.parametrize("form", ["of all positions", "of each head", "of queries alone"])
@torch.no_grad()
def test_a_mask_beside_a_window_is_of_all_positions(kind, form):
    layer, x, cache = make_layer(), draw(2, 12, 6), KVCache(**kind)
    shape = {"of each head": (2, 2, 12, 12), "of queries alone": (12, 1)}.get(form, (2, 1, 1, 12))
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    wanted, _ = whole_pass(
        layer, x, **({"window": None, "sinks": 0, "bits": None} | kind), mask=mask
    )
    start = 0
    for end in (5, 6, 7, 12):
        part = mask[..., start:end, :] if mask.shape[-2] > 1 else mask
        part = part[..., :end] if mask.shape[-1] > 1 else part
        assert_same(layer(x[:, start:end], mask=part, cache=cache), wanted[:, start:end])
        start = end


@given(window=st.sampled_from((1, 3, 4, 30)), sinks=st.integers(0, 5), seed=seeds)
@settings(repeatable, max_examples=25)
@torch.no_grad()
def test_a_model_equals_its_whole_pass_under_the_same_mask(window, sinks, seed):
    model, ids = make_model(), torch.randint(11, (2, 17), generator=torch.manual_seed(seed))
    whole, weights = model(ids, may_see(17, window, sinks), return_weights=True)
    caches, start = model.caches(window, sinks), 0
    for part in ids.split([1, 1, 5, 1, 1, 1, 7], 1):
        end = start + part.shape[1]
        logits, seen = model(part, caches=caches, return_weights=True)
        assert_same(logits, whole[:, start:end])
        assert_same(seen, weights[..., start:end, :end])
        start = end


@given(kind=kinds(), blocks=st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(repeatable, max_examples=40)
@torch.no_grad()
def test_a_latent_layer_equals_its_whole_pass(kind, blocks):
    small, x = latent(make_layer(), 3), draw(2, sum(blocks), 6)
    assert type(small) is RotatedLatent
    may, cache, start = may_see(x.shape[1], kind["window"], kind["sinks"]), KVCache(**kind), 0
    outs = [small(part, cache=cache, return_weights=True) for part in x.split(blocks, 1)]
    down = small.w_down.forward
    small.w_down.forward = lambda x: through(down(x), kind["bits"])
    wanted, weights = small(x, may, return_weights=True)
    assert_same(torch.cat([out for out, _ in outs], 1), wanted)
    for n, (_, seen) in zip(itertools.accumulate(blocks), outs, strict=True):
        assert_same(seen, weights[..., start:n, :n])
        start = n


# What is held


@pytest.mark.parametrize(
    ("kind", "n", "held"),
    [
        ({}, 30, list(range(30))),
        ({"window": 4}, 3, [0, 1, 2]),
        ({"window": 4}, 30, [26, 27, 28, 29]),
        ({"window": 1}, 30, [29]),
        ({"window": 4, "sinks": 2}, 6, [0, 1, 2, 3, 4, 5]),
        ({"window": 4, "sinks": 2}, 30, [0, 1, 26, 27, 28, 29]),
        ({"window": 2, "sinks": 5}, 30, [0, 1, 2, 3, 4, 28, 29]),
        ({"window": 40, "sinks": 5}, 30, list(range(30))),
    ],
)
@torch.no_grad()
def test_after_single_steps_a_cache_holds_the_sinks_and_the_window(kind, n, held):
    for bits, a_vector in ((None, 8 * 10), (8, 10 + 4), (4, 5 + 4), (2, 3 + 4)):
        cache = KVCache(**kind, bits=bits)
        for i in range(n):
            k, v = cache.append(*draw(2, 3, 2, 1, 10, seed=i))
        assert cache.positions.tolist() == held
        assert k.shape == v.shape == cache.k.shape == (3, 2, len(held), 10)
        assert cache.nbytes == 2 * 3 * 2 * len(held) * a_vector
        stored = sum(part.untyped_storage().nbytes() for part in (*cache._parts, *cache._sunk))
        assert stored <= 2 * cache.nbytes


def test_a_block_is_held_until_the_next_is_appended():
    cache, x = KVCache(3, sinks=1), draw(2, 1, 1, 9, 4)
    cache.append(*x)
    assert cache.positions.tolist() == list(range(9))
    cache.append(*x[..., :2, :])
    assert cache.positions.tolist() == [0, 7, 8, 9, 10]
    assert KVCache().positions.tolist() == []
    assert KVCache().nbytes == 0


@torch.no_grad()
def test_a_window_copies_each_position_about_once():
    cache, places = KVCache(16), []
    for i in range(400):
        k, _ = cache.append(*draw(2, 1, 1, 1, 4, seed=i))
        places.append(k.untyped_storage().data_ptr())
    moves = sum(one != other for one, other in itertools.pairwise(places))
    assert moves <= 4 + 400 // 15


@torch.no_grad()
def test_what_append_gave_stays_after_a_crop():
    cache, rows = KVCache(), torch.arange(4.0).view(1, 1, 4, 1)
    k, v = cache.append(rows, rows)
    cache.crop(2)
    cache.append(rows[..., :2, :] + 10, rows[..., :2, :] + 10)
    assert k.flatten().tolist() == v.flatten().tolist() == [0, 1, 2, 3]
    assert cache.k.flatten().tolist() == [0, 1, 10, 11]


@pytest.mark.parametrize("kind", [{}, {"window": 3, "sinks": 2}, {"bits": 4}], ids=str)
def test_a_cache_moves_to_a_device(kind):
    cache = KVCache(**kind)
    for _ in range(9):
        cache.append(*draw(2, 1, 1, 1, 4))
    held = cache.k
    assert cache.to("cpu") is cache
    assert torch.equal(cache.k, held)
    assert cache.to(torch.device("meta")).k.device.type == "meta"
    assert cache.positions.device.type == "meta"
    k, _ = cache.append(*draw(2, 1, 1, 1, 4).to("meta"))
    assert (k.device.type, cache.n) == ("meta", 10)
    assert KVCache().to("meta").n == 0


@torch.no_grad()
def test_what_was_filled_in_inference_mode_is_continued_outside_of_it():
    layer, x, cache = make_layer(), draw(1, 6, 6), KVCache()
    with torch.inference_mode():
        layer(x[:, :2], cache=cache)
        layer(x[:, 2:3], cache=cache)
    assert_same(layer(x[:, 3:], cache=cache), layer(x, is_causal=True)[:, 3:])


def test_it_says_what_it_is():
    assert repr(KVCache()) == "KVCache(n=0)"
    cache = KVCache(4, sinks=1, bits=8)
    cache.append(*draw(2, 1, 2, 3, 4))
    assert repr(cache) == "KVCache(n=3, shape of keys (1, 2, 3, 4), window=4, sinks=1, bits=8)"


# A pass that fails


class BrokenError(Exception):
    pass


@given(kind=kinds(), before=st.lists(st.integers(1, 4), max_size=3), m=st.integers(1, 5))
@settings(repeatable, max_examples=60)
@torch.no_grad()
def test_a_pass_that_fails_leaves_all_caches_as_they_were(kind, before, m):
    model, ids = make_model(), torch.randint(11, (2, 20), generator=torch.manual_seed(m))
    caches, n = model.caches(**kind), sum(before)
    for part in ids[:, :n].split(before, 1):
        model(part, caches=caches)
    if before and before[-1] > 1:
        n -= 1
        for cache in caches:
            cache.crop(n)
    twins = copy.deepcopy(caches)

    def fail(*_: object) -> None:
        raise BrokenError

    for block, part in itertools.product((0, 1, 2), ("attention", "feed_forward")):
        broken = getattr(model.stack()[block], part).register_forward_hook(fail)
        with pytest.raises(BrokenError):
            model(ids[:, n : n + m], caches=caches)
        broken.remove()
        for cache, twin in zip(caches, twins, strict=True):
            assert (cache.n, cache.nbytes) == (twin.n, twin.nbytes)
            if n:
                assert torch.equal(cache.positions, twin.positions)
                assert torch.equal(cache.k, twin.k)
                assert torch.equal(cache.v, twin.v)
    for part in ids[:, n:].split([m, 20 - n - m], 1):
        assert torch.equal(model(part, caches=caches), model(part, caches=twins))


@torch.no_grad()
def test_a_refusal_in_the_second_block_leaves_the_first_as_it_was():
    model, ids = make_model(), torch.randint(11, (1, 4))
    caches = model.caches()
    model(ids, caches=caches)
    caches[1].reorder(torch.tensor([0, 0]))  # now it holds another batch
    with pytest.raises(ValueError, match="what the cache holds"):
        model(ids[:, :1], caches=caches)
    assert [cache.n for cache in caches] == [4, 4, 4]


# Gradients


@pytest.mark.parametrize("blocks", [[1] * 9, [4, 1, 4], [9]], ids=str)
@pytest.mark.parametrize("kind", [{"window": 3}, {"window": 3, "sinks": 2}], ids=str)
def test_a_window_has_the_gradients_of_the_masked_pass(kind, blocks):
    layer, x, cache = make_layer(), draw(2, 9, 6).requires_grad_(), KVCache(**kind)
    steps = torch.cat([layer(part, cache=cache) for part in x.split(blocks, 1)], 1)
    whole = layer(x, mask=may_see(9, kind["window"], kind.get("sinks", 0)))
    wanted = [x, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad(steps.square().sum(), wanted),
        torch.autograd.grad(whole.square().sum(), wanted),
        strict=True,
    ):
        assert_same(one, other)


@pytest.mark.parametrize("return_weights", [False, True])
def test_a_backward_pass_through_quantised_keys_is_refused(return_weights):
    layer, x, cache = make_layer(), draw(2, 4, 6).requires_grad_(), KVCache(bits=4)
    layer(x[:, :3], cache=cache)
    out = layer(x[:, 3:], cache=cache, return_weights=return_weights)
    for part in out if return_weights else [out]:
        check_refusal(
            lambda part=part: part.square().sum().backward(retain_graph=True),
            RuntimeError,
            ["no gradient", "4 bits", "torch.no_grad()"],
        )


# Quantised numbers


@given(
    bits=st.sampled_from((8, 4, 2)),
    d=st.integers(1, 9),
    scale=st.sampled_from((1e-3, 1.0, 300.0)),
    dtype=st.sampled_from((torch.float64, torch.float32, torch.bfloat16, torch.float16)),
    seed=seeds,
)
@repeatable
def test_a_quantised_number_is_half_a_step_away(bits, d, scale, dtype, seed):
    x = (draw(2, 3, d, seed=seed % 10_000) * scale + scale).to(dtype)
    codes, scales = quantise(x, bits)
    assert (codes.dtype, codes.shape) == (torch.uint8, (2, 3, -(-d * bits // 8)))
    assert (scales.dtype, scales.shape) == (torch.float16, (2, 3, 2))
    read = dequantise(codes, scales, bits, d, dtype)
    assert (read.dtype, read.shape) == (dtype, x.shape)
    off = (read.double() - x.double()).abs()
    least, most = x.double().amin(-1, keepdim=True), x.double().amax(-1, keepdim=True)
    rounded = 2.0**-10 * (least.abs() + most.abs()) + 2.0 ** (bits - 24)  # in float16
    rounded = rounded + 2 * torch.finfo(dtype).eps * x.double().abs()
    assert (off <= (most - least) / (2**bits - 1) / 2 + rounded).all()


def test_codes_are_packed_least_first():
    codes, scales = quantise(torch.tensor([[0.0, 3.0, 1.0, 2.0, 3.0]]), 2)
    assert codes.tolist() == [[0 + 3 * 4 + 1 * 16 + 2 * 64, 3]]
    assert scales.tolist() == [[0.0, 1.0]]


def test_equal_numbers_and_numbers_beyond_float16_have_codes_too():
    same = torch.full((1, 5), 0.5)
    assert torch.equal(through(same, 4), same)
    wide = through(torch.tensor([[-1e9, 0.0, 1e9]]), 8)
    assert wide.isfinite().all()
    assert wide.tolist()[0][0] == -65504


# Errors

HELD = KVCache(2)
for _ in range(5):
    HELD.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))

ERRORS = {
    "no window": (lambda: KVCache(0), ValueError, ["window", "at least 1", "0"]),
    "half a window": (lambda: KVCache(1.5), TypeError, ["window", "whole", "1.5"]),
    "sinks alone": (lambda: KVCache(sinks=2), ValueError, ["sinks", "window=None", "got 2"]),
    "sinks below 0": (lambda: KVCache(4, sinks=-1), ValueError, ["sinks", "0 or more", "-1"]),
    "half a sink": (lambda: KVCache(4, sinks=0.5), TypeError, ["sinks", "whole", "0.5"]),
    "three bits": (lambda: KVCache(bits=3), ValueError, ["bits", "8, 4, 2", "3"]),
    "a model's bits": (lambda: make_model().caches(bits="4"), ValueError, ["bits", "'4'"]),
    "a crop before the window": (
        lambda: HELD.crop(2),
        ValueError,
        ["0 or at least 4", "window of 2", "before position 3", "got 2", "Read the text again"],
    ),
    "whole numbers in bits": (lambda: quantise(torch.ones(2, 2).long(), 4), TypeError, ["int64"]),
    "bits of nothing": (lambda: quantise(torch.ones(2, 0), 4), ValueError, ["one feature"]),
    "one bit": (lambda: quantise(torch.ones(2, 2), 1), ValueError, ["8, 4, 2", "1"]),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
