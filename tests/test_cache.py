"""labkit's cache: a pass in steps equals the causal pass; what it holds, gradients, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit import KVCache, MultiHeadAttention, causal_mask, window_mask
from tests.drawn import draw, draw_layer

repeatable = settings(derandomize=True, database=None, max_examples=60)
PATHS = pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "with weights"])
N = 9
# Blocks in which N positions can come: one by one, evenly, all but one first, all at once.
BLOCKS = {"one by one": [1] * N, "uneven": [2, 1, 4, 2], "prompt": [N - 2, 1, 1], "whole": [N]}

seeds = st.integers(0, 2**31 - 1)


def make_layer(seed: int = 0, **options) -> MultiHeadAttention:
    """A layer in float64 with biases other than 0, and heads of another width than d_model / h."""
    sizes = {"d_model": 6, "h": 2, "d_k": 4, "d_v": 5} | options
    return draw_layer(seed, **sizes)


def by_blocks(layer, x: Tensor, blocks: list[int], mask=None, cache=None, **options) -> Tensor:
    """Run the layer over x block by block; ``mask(n_q, n_k)`` gives the mask of a block."""
    cache, outputs, start = KVCache() if cache is None else cache, [], 0
    for n in blocks:
        block, start = x[:, start : start + n], start + n
        may = None if mask is None else mask(n, start)
        out = layer(block, mask=may, cache=cache, **options)
        outputs.append(out[0] if options.get("return_weights") else out)
    return torch.cat(outputs, 1)


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, check_stride=False)


def padding_before(pads: list[int]):
    """The mask of sequences that are filled up on the left."""
    return lambda n_q, n_k: (torch.arange(n_k) >= torch.tensor(pads)[:, None])[:, None, None, :]


MASKS = {
    "none": None,
    "padding": padding_before([0, 3, 1]),
    "window": lambda n_q, n_k: window_mask(n_q, n_k, 3),
    "both": lambda n_q, n_k: padding_before([0, 3, 1])(n_q, n_k) & window_mask(n_q, n_k, 3),
}
SHARED = {"h": 6, "h_kv": 3, "d_k": 2}
WIDTHS = [{}, {"d_k": 3, "d_v": 3}, {"d_k": 2, "d_v": 7}, {"h": 3, "h_kv": 1, "d_v": 4}, SHARED]


@PATHS
@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("rotary_base", [None, 50.0])
@torch.no_grad()
def test_steps_equal_the_causal_pass(rotary_base, mask, blocks, return_weights):
    x = draw(3, N, 6)
    for widths in WIDTHS if rotary_base is None else WIDTHS[::2]:  # a rotation needs an even d_k
        layer = make_layer(rotary_base=rotary_base, **widths)
        whole = layer(x, mask=mask and mask(N, N), is_causal=True)
        assert_same(by_blocks(layer, x, blocks, mask, return_weights=return_weights), whole)


@given(
    blocks=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    pads=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    w=st.none() | st.integers(1, 6),
    rotary_base=st.sampled_from((None, 10.0)),
    seed=seeds,
)
@repeatable
@torch.no_grad()
def test_any_blocks_equal_the_causal_pass(blocks, pads, w, rotary_base, seed):
    n, layer = sum(blocks), make_layer(seed, rotary_base=rotary_base)
    x = draw(len(pads), n, 6, seed=seed)

    def mask(n_q, n_k):
        may = padding_before(pads)(n_q, n_k)
        return may if w is None else may & window_mask(n_q, n_k, w)

    assert_same(by_blocks(layer, x, blocks, mask), layer(x, mask=mask(n, n), is_causal=True))


@PATHS
@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("h_kv", [1, 2, 4])
@torch.no_grad()
def test_heads_that_share_keys_can_have_a_mask_each(h_kv, blocks, return_weights):
    layer, x = make_layer(h=4, h_kv=h_kv, rotary_base=10.0), draw(3, N, 6)
    may = torch.rand(3, 4, N, N, generator=torch.Generator().manual_seed(0)) < 0.6

    def mask(n_q, n_k):
        return may[..., n_k - n_q : n_k, :n_k]

    whole, cache = layer(x, mask=may, is_causal=True), KVCache()
    assert_same(by_blocks(layer, x, blocks, mask, cache, return_weights=return_weights), whole)
    assert cache.k.shape == (3, h_kv, N, 4)
    assert cache.v.shape == (3, h_kv, N, 5)


@pytest.mark.parametrize("options", [{}, SHARED], ids=["own keys", "shared keys"])
@torch.no_grad()
def test_the_weights_of_a_step_are_rows_of_those_of_the_whole(options):
    layer, x, cache = make_layer(rotary_base=10.0, **options), draw(2, 5, 6), KVCache()
    _, whole = layer(x, is_causal=True, return_weights=True)
    _, first = layer(x[:, :2], cache=cache, return_weights=True)
    _, last = layer(x[:, 2:], cache=cache, return_weights=True)
    assert_same(first, whole[:, :, :2, :2])
    assert_same(last, whole[:, :, 2:])


@torch.no_grad()
def test_the_cache_holds_keys_and_values_in_their_order():
    layer, x, cache = make_layer(), draw(2, 5, 6), KVCache()
    by_blocks(layer, x, [2, 1, 2], cache=cache)
    assert cache.n == 5
    assert cache.k.shape == (2, 2, 5, 4)
    assert cache.v.shape == (2, 2, 5, 5)
    assert_same(cache.k.transpose(1, 2).flatten(2), layer.w_k(x))
    assert_same(cache.v.transpose(1, 2).flatten(2), layer.w_v(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_the_cache_takes_the_type_of_the_layer(dtype):
    layer, x, cache = make_layer(rotary_base=10.0), draw(2, 6, 6), KVCache()
    whole = layer(x, is_causal=True)
    steps = by_blocks(layer.to(dtype), x.to(dtype), [3, 1, 2], cache=cache)
    assert cache.k.dtype == cache.v.dtype == steps.dtype == dtype
    torch.testing.assert_close(steps.double(), whole, rtol=0, atol=0.1)


# What changes the cache


@torch.no_grad()
def test_a_cut_cache_goes_on_as_if_the_rest_had_never_come():
    layer, x = make_layer(rotary_base=10.0), draw(2, N, 6)
    whole, cache = layer(x, is_causal=True), KVCache()
    by_blocks(layer, torch.cat([x[:, :4], draw(2, 3, 6, seed=1)], 1), [4, 2, 1], cache=cache)
    cache.crop(4)
    assert cache.n == cache.k.shape[2] == cache.v.shape[2] == 4
    assert_same(by_blocks(layer, x[:, 4:], [2, 1, 2], cache=cache), whole[:, 4:])
    cache.crop(N)
    assert cache.n == N
    cache.crop(0)
    assert_same(by_blocks(layer, x, [1, N - 1], cache=cache), whole)


@pytest.mark.parametrize("index", [[2, 0, 1], [1, 1, 0], [2], [0, 2, 2, 1, 0]])
@torch.no_grad()
def test_a_reordered_cache_goes_on_with_the_sequences_chosen(index):
    layer, x, cache = make_layer(rotary_base=10.0), draw(3, 5, 6), KVCache()
    by_blocks(layer, x, [3, 2], cache=cache)
    places = torch.tensor(index)
    cache.reorder(places.int() if len(index) == 1 else places)
    assert cache.n == 5
    coming = draw(len(index), 3, 6, seed=1)
    whole = layer(torch.cat([x[places], coming], 1), is_causal=True)
    assert_same(by_blocks(layer, coming, [1, 2], cache=cache), whole[:, 5:])


def test_a_reordered_cache_keeps_the_cut():
    cache = KVCache()
    k = draw(2, 1, 4, 3)
    cache.append(k, k)
    cache.crop(2)
    cache.reorder(torch.tensor([1, 0]))
    assert torch.equal(cache.k, k[[1, 0], :, :2])


@torch.no_grad()
def test_memory_grows_by_doubling():
    cache, places, n = KVCache(), [], 300
    for i in range(n):
        k, v = cache.append(*torch.full((2, 1, 2, 1, 3), float(i)).unbind())
        places.append(k.untyped_storage().data_ptr())
    moves = sum(one != other for one, other in itertools.pairwise(places))
    assert moves <= 9  # 2^9 is over 300
    assert k.untyped_storage().nbytes() <= 2 * k.nbytes
    assert torch.equal(v[0, 0, :, 0], torch.arange(float(n)))


class Shapes(TorchDispatchMode):
    """Note the shapes of all tensors that operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        parts = out if isinstance(out, (tuple, list)) else [out]
        self.seen |= {tuple(part.shape) for part in parts if isinstance(part, Tensor)}
        return out


@pytest.mark.exact("every tensor that is made counts, and moved bits make some")
@torch.no_grad()
def test_a_step_makes_no_tensor_of_queries_by_keys():
    layer, cache = make_layer(rotary_base=10.0), KVCache()
    layer(draw(1, 40, 6), cache=cache)
    with Shapes() as shapes:
        layer(draw(1, 1, 6), cache=cache)
    assert (1, 2, 41, 4) in shapes.seen  # the keys
    assert not [shape for shape in shapes.seen if shape[-1] == 41]


class New(TorchDispatchMode):
    """Note how many numbers the largest tensor has that has memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {
            x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if is_tensor(x)
        }
        for part in filter(is_tensor, tree_leaves(out)):
            if part.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, part.untyped_storage().nbytes() // part.itemsize)
        return out


def is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_a_step_copies_no_keys(h_kv, masked):
    """Not even once: repeated for their readers they would be h / h_kv times as many."""
    layer, cache, n = make_layer(h=4, h_kv=h_kv, d_v=4, rotary_base=10.0), KVCache(), 200
    layer(draw(1, n, 6), cache=cache)
    layer(draw(1, 1, 6), cache=cache)  # for which room is made
    mask = torch.ones(1, 1, 1, n + 2, dtype=torch.bool) if masked else None
    with New() as new:
        layer(draw(1, 1, 6), mask=mask, cache=cache)
    assert cache.k.numel() == h_kv * (n + 2) * 4
    assert new.largest < (n + 2) * 4


# Gradients


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("options", [{}, SHARED], ids=["own keys", "shared keys"])
def test_the_last_step_has_the_gradients_of_the_causal_pass(options, blocks):
    layer, x = make_layer(rotary_base=10.0, **options), draw(2, N, 6).requires_grad_()
    wanted = [x, *layer.parameters()]
    whole = torch.autograd.grad(layer(x, is_causal=True)[:, -1].square().sum(), wanted)
    steps = torch.autograd.grad(by_blocks(layer, x, blocks)[:, -1].square().sum(), wanted)
    for one, other in zip(steps, whole, strict=True):
        assert_same(one, other)


@PATHS
@pytest.mark.parametrize("options", [{"d_v": 4}, {"d_v": 5}, SHARED], ids=["alike", "apart", "few"])
def test_every_step_has_the_gradients_of_the_causal_pass(options, return_weights):
    layer, x = make_layer(rotary_base=10.0, **options), draw(2, N, 6).requires_grad_()
    whole, cache, steps = layer(x, is_causal=True), KVCache(), []
    for i in range(N):
        step = layer(x[:, i : i + 1], cache=cache, return_weights=return_weights)
        steps.append(step[0] if return_weights else step)
    for i, step in enumerate(steps):
        right = torch.autograd.grad(whole[:, i].square().sum(), x, retain_graph=True)
        assert_same(*torch.autograd.grad(step.square().sum(), x, retain_graph=True), *right)


def test_an_append_without_gradients_leaves_those_of_earlier_steps():
    layer, x, cache = make_layer(d_v=4), draw(2, 6, 6).requires_grad_(), KVCache()
    steps = [layer(part, cache=cache) for part in (x[:, :3], x[:, 3:4])]
    with torch.no_grad():
        for i in (4, 5):
            layer(x[:, i : i + 1], cache=cache)
    right = torch.autograd.grad(layer(x[:, :4], is_causal=True).square().sum(), x)
    assert_same(*torch.autograd.grad(torch.cat(steps, 1).square().sum(), x), *right)


@pytest.mark.parametrize("change", ["crop", "reorder"])
def test_what_the_cache_gave_up_gets_no_gradient(change):
    layer, x = make_layer(rotary_base=10.0), draw(2, 6, 6).requires_grad_()
    kept = torch.cat([x[:, :3], x[:, 4:]], 1) if change == "crop" else x[[0]]
    right = torch.autograd.grad(layer(kept, is_causal=True)[:, -1].square().sum(), x)
    cache = KVCache()
    by_blocks(layer, x[:, :4], [2, 1, 1], cache=cache)
    if change == "crop":
        cache.crop(3)
        last = by_blocks(layer, x[:, 4:], [1, 1], cache=cache)
    else:
        cache.reorder(torch.tensor([0]))
        last = by_blocks(layer, x[:1, 4:], [1, 1], cache=cache)
    assert_same(*torch.autograd.grad(last[:, -1].square().sum(), x), *right)


@pytest.mark.parametrize("before", [[2, 1, 1], [4]], ids=["with room", "without room"])
def test_what_was_held_at_a_step_without_gradients_gets_none(before):
    layer, x, cache = make_layer(), draw(2, 6, 6).requires_grad_(), KVCache()
    by_blocks(layer, x[:, :4], before, cache=cache)
    cache.crop(3)
    with torch.no_grad():
        layer(x[:, 4:5], cache=cache)
    out = layer(x[:, 5:], cache=cache)
    kept = torch.cat([x[:, :3], x[:, 4:]], 1)
    assert_same(out, layer(kept, is_causal=True)[:, -1:])
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert not gradient[:, :5].any()
    assert gradient[:, 5].all()


# Errors


def filled() -> KVCache:
    """A cache that holds three positions of two sequences in two heads of widths 4 and 5."""
    cache = KVCache()
    cache.append(draw(2, 2, 3, 4), draw(2, 2, 3, 5, seed=1))
    return cache


X = draw(2, 1, 6)
K, V = draw(2, 2, 1, 4), draw(2, 2, 1, 5)

# What is done to a cache that holds three positions, what it raises, and what its message says.
ERRORS = {
    "not a cache": (
        lambda cache: make_layer()(X, cache=[cache]),
        TypeError,
        ["labkit.KVCache", "list", "cache = KVCache()"],
    ),
    "a context beside it": (
        lambda cache: make_layer()(X, X, cache=cache),
        ValueError,
        ["no context", "both", "Leave one out"],
    ),
    "x as its context": (
        lambda cache: make_layer()(X, context=X, cache=cache),
        ValueError,
        ["no context"],
    ),
    "x a list": (lambda cache: make_layer()([1], cache=cache), TypeError, ["x", "list"]),
    "x without a batch": (
        lambda cache: make_layer()(X[0], cache=cache),
        ValueError,
        ["x", "(B, n, d_model)", "(1, 6)", "x[None]"],
    ),
    "x with two of them": (
        lambda cache: make_layer()(X[None], cache=cache),
        ValueError,
        ["(B, n, d_model)", "(1, 2, 1, 6)", "Merge"],
    ),
    "another batch": (
        lambda cache: make_layer()(X[:1], cache=cache),
        ValueError,
        ["(B, h, n, d_k) = (2, 2, 1, 4)", "(1, 2, 1, 4)", "cache of its own"],
    ),
    "another layer": (
        lambda cache: make_layer(d_v=3)(X, cache=cache),
        ValueError,
        ["(B, h, n, d_v) = (2, 2, 1, 5)", "(2, 2, 1, 3)"],
    ),
    "another type": (
        lambda cache: make_layer().float()(X.float(), cache=cache),
        TypeError,
        ["k", "torch.float64 on cpu", "torch.float32 on cpu", "new cache"],
    ),
    "another device": (
        lambda cache: cache.append(K.to("meta"), V.to("meta")),
        TypeError,
        ["torch.float64 on cpu", "torch.float64 on meta"],
    ),
    "x of another type": (
        lambda cache: make_layer()(X.float(), cache=cache),
        TypeError,
        ["torch.float64", "torch.float32"],
    ),
    "a mask of the new positions alone": (
        lambda cache: make_layer()(X.expand(2, 2, 6), mask=causal_mask(2), cache=cache),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 2, 2, 5)", "(2, 2)"],
    ),
    "a mask without the new position": (
        lambda cache: make_layer()(X, mask=torch.ones(1, 3, dtype=torch.bool), cache=cache),
        ValueError,
        ["(2, 2, 1, 4)", "(1, 3)"],
    ),
    "no positions": (lambda cache: make_layer()(X[:, :0], cache=cache), ValueError, ["one"]),
    "no keys": (
        lambda cache: cache.append(K[:, :, :0], V[:, :, :0]),
        ValueError,
        ["k", "at least one position", "(2, 2, 0, 4)"],
    ),
    "keys a list": (lambda cache: cache.append([1], V), TypeError, ["k", "Tensor", "list"]),
    "values a list": (lambda cache: cache.append(K, [1]), TypeError, ["v", "Tensor", "list"]),
    "keys without a batch": (
        lambda cache: cache.append(K[0], V),
        ValueError,
        ["(B, h, n, d_k)", "(2, 1, 4)"],
    ),
    "keys of five dimensions": (
        lambda cache: cache.append(K[None], V),
        ValueError,
        ["(B, h, n, d_k)", "(1, 2, 2, 1, 4)"],
    ),
    "more keys than values": (
        lambda cache: cache.append(K.expand(2, 2, 3, 4), V),
        ValueError,
        ["k (2, 2, 3, 4)", "v (2, 2, 1, 5)", "Each key needs its value"],
    ),
    "a cut beyond the end": (
        lambda cache: cache.crop(4),
        ValueError,
        ["between 0 and the 3", "got 4", "not stretched"],
    ),
    "a cut below 0": (lambda cache: cache.crop(-1), ValueError, ["between 0 and the 3", "got -1"]),
    "half a position": (lambda cache: cache.crop(1.5), TypeError, ["n", "whole", "1.5"]),
    "an index that is a list": (
        lambda cache: cache.reorder([0, 1]),
        TypeError,
        ["index", "Tensor", "list"],
    ),
    "an index that is a mask": (
        lambda cache: cache.reorder(torch.tensor([True, False])),
        TypeError,
        ["whole numbers", "torch.bool"],
    ),
    "an index of no dimensions": (lambda cache: cache.reorder(torch.tensor(1)), ValueError, ["()"]),
    "an index of two dimensions": (
        lambda cache: cache.reorder(torch.tensor([[1, 0]])),
        ValueError,
        ["(B,)", "(1, 2)"],
    ),
    "an empty index": (
        lambda cache: cache.reorder(torch.tensor([], dtype=torch.long)),
        ValueError,
        ["(B,)", "(0,)"],
    ),
    "an index too high": (
        lambda cache: cache.reorder(torch.tensor([0, 2])),
        ValueError,
        ["from 0 to 1", "[0, 2]"],
    ),
    "an index below 0": (
        lambda cache: cache.reorder(torch.tensor([0, -1])),
        ValueError,
        ["from 0 to 1", "[0, -1]"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_a_refused_call_says_what_came_and_leaves_the_cache_as_it_was(call, error, says):
    cache, same = filled(), filled()
    with pytest.raises(error) as raised:
        call(cache)
    assert raised.type is error
    for words in says:
        assert words in str(raised.value)
    assert cache.n == same.n
    assert torch.equal(cache.k, same.k)
    assert torch.equal(cache.v, same.v)
    layer = make_layer()
    torch.testing.assert_close(layer(X, cache=cache), layer(X, cache=same))


def test_an_empty_cache_says_that_it_is_empty():
    cache = KVCache()
    assert repr(cache) == "KVCache(n=0)"
    for read in (lambda: cache.k, lambda: cache.v):
        with pytest.raises(ValueError, match="an empty cache has no keys and values yet"):
            read()
    with pytest.raises(ValueError, match="an empty cache has nothing to reorder"):
        cache.reorder(torch.tensor([0]))
    with pytest.raises(ValueError, match="Each key needs its value"):
        cache.append(K, V[:1])
    cache.crop(0)
    assert make_layer()(X, cache=cache).shape == X.shape
    assert repr(cache) == "KVCache(n=1, shape of keys (2, 2, 1, 4))"
