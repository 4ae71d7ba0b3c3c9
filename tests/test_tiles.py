"""labkit's attention in tiles: the whole from its parts, what is computed, numbers that break."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labkit import causal_mask, scaled_dot_product_attention, tiles, window_mask
from labkit.tiles import Partial, merge, partial_attention, tiled_attention
from tests.refusing import check_refusal
from tests.test_fused import Operations

repeatable = settings(derandomize=True, database=None, max_examples=100)
# Blocks of one, that divide, that do not, of some queries and all keys, larger than all there is.
BLOCKS = [(1, 1), (2, 2), (2, 3), (3, 2), (3, 99), (99, 1), (99, 99)]
LENGTHS = [(6, 6), (3, 7), (1, 6), (7, 3)]
HALF = {torch.float16: 2e-3, torch.bfloat16: 2e-2}  # what rounding the output costs

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**31 - 1)


def draw(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def draw_mask(seed: int, *shape: int) -> Tensor:
    """A mask in which some rows are empty and some are full."""
    generator = torch.Generator().manual_seed(seed)
    threshold = torch.rand(*shape[:-1], 1, generator=generator) * 1.6 - 0.3
    return torch.rand(shape, generator=generator) < threshold


def assert_same(one: Tensor, other: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def nothing_seen(part: Partial) -> Partial:
    return Partial(torch.zeros_like(part.out), torch.full_like(part.lse, -torch.inf))


# The whole from its parts


@given(
    lead=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    each=st.tuples(sizes, sizes, sizes, sizes),
    blocks=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    shared=st.booleans(),
    is_causal=st.booleans(),
    seed=seeds,
)
@repeatable
def test_tiles_equal_the_whole_in_value_and_gradient(lead, each, blocks, shared, is_causal, seed):
    (n_q, n_k, d_k, d_v), (block_q, block_k) = each, blocks
    of_keys = (1,) * len(lead) if shared else lead  # which broadcasts
    shapes = (*lead, n_q, d_k), (*of_keys, n_k, d_k), (*of_keys, n_k, d_v), (*lead, n_q, d_v)
    *qkv, cotangent = draw(seed, *shapes)
    qkv = [x.requires_grad_() for x in qkv]
    tiled = tiled_attention(*qkv, block_q=block_q, block_k=block_k, is_causal=is_causal)
    whole = scaled_dot_product_attention(*qkv, is_causal=is_causal)
    assert_same(tiled, whole)
    ours, theirs = (torch.autograd.grad(out, qkv, cotangent) for out in (tiled, whole))
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one, other)


# What a mask is broadcast over: none of the dimensions, the queries, the heads, or all.
SPREAD = st.sampled_from(("n_q n_k", "n_k", "B h n_q n_k", "h 1 n_k", "B 1 n_q 1", ""))


@given(
    heads=st.sampled_from(((1, 1), (2, 1), (4, 2), (3, 3))),
    each=st.tuples(sizes, sizes, sizes, sizes),
    blocks=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    window=st.none() | st.integers(1, 8),
    spread=st.none() | SPREAD,
    scale=st.sampled_from((None, 0.3, 2)),
    is_causal=st.booleans(),
    seed=seeds,
)
@repeatable
def test_masks_windows_and_shared_keys_in_tiles_are_those_of_the_whole(
    heads, each, blocks, window, spread, scale, is_causal, seed
):
    """In value, in the logarithm of the sum, and in the gradient of both."""
    (h, h_kv), (n_q, n_k, d_k, d_v), B = heads, each, 2
    given = draw(seed, (B, h, n_q, d_k), (B, h_kv, n_k, d_k), (B, h_kv, n_k, d_v))
    q, k, v = (x.requires_grad_() for x in given)
    named, mask = {"B": B, "h": h, "n_q": n_q, "n_k": n_k, "1": 1}, None
    if spread is not None:
        mask = draw_mask(seed, *(named[name] for name in spread.split()), 1)[..., 0]
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": h != h_kv}
    tiled = tiled_attention(q, k, v, mask, window=window, return_lse=True, **options,
        block_q=blocks[0], block_k=blocks[1])  # fmt: skip
    may = torch.ones(n_q, n_k, dtype=torch.bool) if mask is None else mask
    if window is not None or is_causal:
        may = may & window_mask(n_q, n_k, window or n_k)
    assert_same(tiled.out, scaled_dot_product_attention(q, k, v, may, **options))
    every = k.repeat_interleave(h // h_kv, 1), v.repeat_interleave(h // h_kv, 1)
    scores = q @ every[0].transpose(-2, -1) * (d_k**-0.5 if scale is None else scale)
    scores = scores.masked_fill(~may, -torch.inf)
    assert_same(tiled.lse, scores.logsumexp(-1))
    sees = may.expand_as(scores).any(-1)
    cotangent, of_lse = draw(seed, tiled.out.shape, tiled.lse.shape)
    whole = scaled_dot_product_attention(q, k, v, may, **options)
    ours, theirs = (
        torch.autograd.grad((out * cotangent).sum() + (lse * of_lse)[sees].sum(), (q, k, v))
        for out, lse in (tiled, (whole, scores.masked_fill(~sees[..., None], 0).logsumexp(-1)))
    )
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(("n_q", "n_k"), [(3, 3), (2, 4), (4, 2)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_are_those_of_small_steps(n_q, n_k, is_causal):
    qkv = [x.requires_grad_() for x in draw(0, (n_q, 2), (n_k, 2), (n_k, 3))]

    def function(q, k, v):
        return tiled_attention(q, k, v, block_q=2, block_k=1, is_causal=is_causal)

    assert torch.autograd.gradcheck(function, qkv)


@given(
    n_q=sizes,
    parts=st.lists(sizes, min_size=1, max_size=4),
    scale=st.sampled_from((None, 0.3, 2)),
    masked=st.booleans(),
    seed=seeds,
)
@repeatable
def test_parts_of_the_keys_in_any_order_make_the_whole(n_q, parts, scale, masked, seed):
    n_k = sum(parts)
    q, k, v = draw(seed, (2, n_q, 3), (2, n_k, 3), (2, n_k, 4))
    mask = draw_mask(seed, 2, n_q, n_k) if masked else torch.ones(1, dtype=torch.bool)
    every = mask.expand(2, n_q, n_k)
    order = torch.randperm(n_k, generator=torch.Generator().manual_seed(seed))
    merged = None
    for keys in order.split(parts):
        may = every[..., keys] if masked else None
        part = partial_attention(q, k[:, keys], v[:, keys], mask=may, scale=scale)
        merged = part if merged is None else merge(merged, part)
    assert_same(merged.out, scaled_dot_product_attention(q, k, v, every, scale=scale))
    scores = (3**-0.5 if scale is None else scale) * q @ k.transpose(-2, -1)
    assert_same(merged.lse, scores.masked_fill(~every, -torch.inf).logsumexp(-1))


def three_parts() -> list[Partial]:
    """Attention of the same queries to three sets of keys, with rows that see nothing of one."""
    parts = []
    for seed in range(3):
        q, k, v = draw(9, (2, 5, 3))[0], *draw(seed, (2, 4, 3), (2, 4, 2))
        mask = draw_mask(seed, 2, 5, 4)
        mask[0, 0], mask[1, seed] = False, False
        parts.append(partial_attention(q, k, v, mask=mask))
    assert sum(part.lse.isinf().sum() for part in parts) > 5
    return parts


def test_the_order_of_a_merge_does_not_matter():
    a, b, c = three_parts()
    assert all(torch.equal(*pair) for pair in zip(merge(a, b), merge(b, a), strict=True))
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    assert_same(left.out, right.out)
    assert_same(left.lse, right.lse)
    assert (left.lse == -torch.inf).sum() == 1  # the row that sees nothing of all three


def test_what_sees_nothing_changes_nothing():
    for part in three_parts():
        none = nothing_seen(part)
        for merged in (merge(part, none), merge(none, part)):
            assert torch.equal(merged.out, part.out)
            assert torch.equal(merged.lse, part.lse)
        both = merge(none, none)
        assert not both.out.any()
        assert (both.lse == -torch.inf).all()


def test_infinite_sums_make_no_nan():
    """Where one part's sum is infinite it takes all; two of them have no ratio, and share alike."""
    inf = torch.inf
    sums = torch.tensor([[inf, inf, 1.0, -inf, -inf, 2.0], [inf, 1.0, inf, -inf, 2.0, -inf]])
    one, other = (
        Partial(torch.full((6, 1), x), lse) for x, lse in zip((2.0, 4.0), sums, strict=True)
    )
    merged = merge(one, other)
    assert merged.out[:, 0].tolist() == [3, 2, 4, 3, 4, 2]
    assert merged.lse.tolist() == [inf, inf, inf, -inf, 2, 2]
    lost = merge(one, Partial(other.out, torch.full((6,), torch.nan)))
    assert lost.out.isnan().all()  # what is no number is not hidden


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_hidden_rows_give_zeros_and_no_gradient():
    qkv = [x.requires_grad_() for x in draw(0, (2, 3, 4), (2, 5, 4), (2, 5, 2))]
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    mask[0, 1] = False
    mask[1] = False
    with torch.autograd.detect_anomaly(check_nan=True):
        part = partial_attention(*qkv, mask=mask)
        none = nothing_seen(part)
        merged = merge(merge(part, none), merge(none, none))
        gradients = torch.autograd.grad(merged.out.sum(), qkv)
    assert all(x.isfinite().all() for x in gradients)
    assert torch.equal(merged.lse == -torch.inf, ~mask.any(-1))
    for zero in (merged.out[0, 1], merged.out[1], gradients[0][0, 1], *(x[1] for x in gradients)):
        assert not zero.any()
    assert all(x[0].any() for x in gradients)


def test_what_is_hidden_does_not_matter():
    q, k, v = draw(0, (1, 3, 4), (1, 5, 4), (1, 5, 2))
    mask = torch.tensor([True, False, True, True, False])
    kept = partial_attention(q, k[:, mask], v[:, mask])
    for extreme in (1e4, -1e4, 0.0):
        k[:, ~mask], v[:, ~mask] = extreme, extreme
        part = partial_attention(q, k, v, mask=mask)
        assert_same(part.out, kept.out)
        assert_same(part.lse, kept.lse)


# Types


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_sixteen_bits_lose_no_more_than_the_last_rounding(blocks, is_causal, dtype):
    for n_q, n_k in LENGTHS:
        q, k, v = (x.to(dtype) for x in draw(0, (2, n_q, 8), (2, n_k, 8), (2, n_k, 3)))
        out = tiled_attention(q, k, v, block_q=blocks[0], block_k=blocks[1], is_causal=is_causal)
        assert out.dtype == dtype
        whole = scaled_dot_product_attention(*(x.double() for x in (q, k, v)), is_causal=is_causal)
        assert_same(out.double(), whole, HALF[dtype])
    part = partial_attention(q, k, v)
    assert part.out.dtype == part.lse.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_scores_in_the_thousands_stay_finite(blocks, dtype):
    """Rising, falling, and equal at the top: whichever tile has the largest, all are weighed."""
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 5, 1, 5]):
        k = torch.tensor(order, dtype=dtype)[:, None] * 64
        v = torch.arange(1, 7, dtype=dtype)[:, None]
        q = torch.tensor([[30.0], [-30.0], [0.0]], dtype=dtype)  # scores up to 9,600
        out = tiled_attention(q, k, v, block_q=blocks[0], block_k=blocks[1])
        most, least = v[k == k.max()].double(), v[k == k.min()].double()
        expected = torch.stack([most.mean(), least.mean(), v.double().mean()])
        # The sums are in float32, in which neighbours of 9,600 lie 0.001 apart.
        tolerance = 1e-12 if dtype == torch.float64 else HALF.get(dtype, 1e-3)
        assert_same(out[:, 0].double(), expected, tolerance)


@pytest.mark.parametrize("score", [10.0, 9600.0])
def test_shares_add_up_to_one_however_many_tiles_there_are(score):
    """The rounding of a large sum could take a little from each merge, 6 % in a thousand."""
    k, v = torch.full((1024, 1), score), torch.ones(1024, 1)
    out = tiled_attention(torch.ones(1, 1), k, v, block_q=1, block_k=1)
    assert out.item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dtype", HALF)
def test_many_small_tiles_of_sixteen_bits_count_all_keys(dtype):
    """Sums in 16 bits would stop growing at 2,048 or 256, and give 1.0 for 0.5."""
    n = 4096 if dtype == torch.float16 else 512
    k = torch.zeros(n, 1, dtype=dtype)
    v = (torch.arange(n) >= n // 2).to(dtype)[:, None]
    assert tiled_attention(k[:1], k, v, block_q=1, block_k=1).item() == pytest.approx(0.5, abs=1e-3)


# What is computed


class Tiles:
    """Note the queries and keys of each tile, and whether it has a mask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        self.masked = 0
        self.softmax = tiles._online_softmax
        monkeypatch.setattr(tiles, "_online_softmax", self)

    def __call__(self, q, scale, d_v, given):
        given = list(given)
        self.seen += [(q.shape[-2], k.shape[-2]) for k, _, _ in given]
        self.masked += sum(may is not None for _, _, may in given)
        return self.softmax(q, scale, d_v, given)


@pytest.mark.parametrize(("n_q", "n_k"), LENGTHS)
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("hides", [{}, {"is_causal": True}, {"window": 1}, {"window": 3}])
def test_a_tile_is_computed_where_something_may_be_seen(n_q, n_k, blocks, hides, monkeypatch):
    q, k, v = draw(0, (n_q, 2), (n_k, 2), (n_k, 2))
    noted = Tiles(monkeypatch)
    tiled_attention(q, k, v, block_q=blocks[0], block_k=blocks[1], **hides)
    may = causal_mask(n_q, n_k) if hides else torch.ones(n_q, n_k, dtype=torch.bool)
    if "window" in hides:
        may = window_mask(n_q, n_k, hides["window"])
    every = [tile for rows in may.split(blocks[0]) for tile in rows.split(blocks[1], -1)]
    assert noted.seen == [tuple(tile.shape) for tile in every if tile.any()]
    assert noted.masked == sum(bool(tile.any() and not tile.all()) for tile in every)


def test_half_of_the_tiles_lie_in_the_future(monkeypatch):
    q, k, v = draw(0, (64, 2), (64, 2), (64, 2))
    noted = Tiles(monkeypatch)
    tiled_attention(q, k, v, block_q=4, block_k=4, is_causal=True)
    assert len(noted.seen) == 16 * 17 / 2
    assert noted.masked == 16


@pytest.mark.parametrize("is_causal", [False, True])
def test_no_tensor_grows_with_n_squared(is_causal):
    block_q, block_k, d, largest = 32, 64, 8, []
    for n in (256, 512):
        q, k, v = draw(0, (n, d), (n, d), (n, d))
        with torch.no_grad(), Operations() as operations:
            tiled_attention(q, k, v, block_q=block_q, block_k=block_k, is_causal=is_causal)
        largest.append(operations.largest)
    assert largest == [max(block_q * block_k, n * d) for n in (256, 512)]


def test_the_queries_and_their_results_are_as_they_were():
    q, k, v = draw(0, (2, 5, 3), (2, 6, 3), (2, 6, 3))
    before = [x.clone() for x in (q, k, v)]
    tiled_attention(q, k, v, block_q=2, block_k=2)
    a, b = (partial_attention(q, k[:, part], v[:, part]) for part in (slice(2), slice(2, 6)))
    same = [x.clone() for x in (*a, *b)]
    merge(a, b)
    pairs = [*zip((q, k, v), before, strict=True), *zip((*a, *b), same, strict=True)]
    assert all(torch.equal(*pair) for pair in pairs)


# Errors

X = torch.zeros(2, 5, 4)
PART = Partial(torch.zeros(2, 5, 4), torch.zeros(2, 5))


def tiled(q=X, k=X, v=X, mask=None, block_q=2, block_k=2, **options):
    return tiled_attention(q, k, v, mask, block_q=block_q, block_k=block_k, **options)


ERRORS = {
    "no queries a tile": (lambda: tiled(block_q=0), ValueError, ["block_q", "at least 1", "0"]),
    "no keys a tile": (lambda: tiled(block_k=0), ValueError, ["block_k", "at least 1", "0"]),
    "a negative block": (lambda: tiled(block_k=-2), ValueError, ["block_k", "at least 1", "-2"]),
    "half a block": (lambda: tiled(block_q=1.5), TypeError, ["block_q", "whole", "1.5"]),
    "tiles of a list": (lambda: tiled(q=[1.0]), TypeError, ["q", "torch.Tensor", "list"]),
    "tiles of integers": (lambda: tiled(k=X.long()), TypeError, ["k", "floating", "k.float()"]),
    "mixed types": (lambda: tiled(v=X.double()), TypeError, ["one type", "v torch.float64"]),
    "widths of q and k": (lambda: tiled(k=X[..., :3]), ValueError, ["d_k", "k (2, 5, 3)"]),
    "lengths of k and v": (lambda: tiled(v=X[:, :3]), ValueError, ["n_k", "v (2, 3, 4)"]),
    "no keys": (lambda: tiled(X, X[:, :0], X[:, :0]), ValueError, ["k", "at least one position"]),
    "a window of nothing": (lambda: tiled(window=0), ValueError, ["window", "at least 1", "0"]),
    "half a window": (lambda: tiled(window=1.5), TypeError, ["window", "whole", "1.5"]),
    "a mask of some of the keys": (
        lambda: tiled(mask=torch.ones(5, 2, dtype=torch.bool)),
        ValueError,
        ["(..., n_q, n_k) = (2, 5, 5)", "(5, 2)"],
    ),
    "heads that do not share": (
        lambda: tiled(q=torch.zeros(4, 5, 4)),
        ValueError,
        ["leading dimensions", "enable_gqa=True"],
    ),
    "heads that cannot share": (
        lambda: tiled(q=torch.zeros(3, 5, 4), enable_gqa=True),
        ValueError,
        ["h_kv heads, which divides h", "q (3, 5, 4)"],
    ),
    "a part of a list": (
        lambda: partial_attention([1.0], X, X),
        TypeError,
        ["q", "torch.Tensor", "list"],
    ),
    "a scale that is no number": (
        lambda: partial_attention(X, X, X, scale="1"),
        TypeError,
        ["scale", "number", "str"],
    ),
    "a scale without end": (
        lambda: partial_attention(X, X, X, scale=math.inf),
        ValueError,
        ["scale", "finite", "inf"],
    ),
    "a mask of another shape": (
        lambda: partial_attention(X, X, X, mask=torch.ones(5, 4, dtype=torch.bool)),
        ValueError,
        ["(..., n_q, n_k) = (2, 5, 5)", "(5, 4)"],
    ),
    "a mask to be added": (
        lambda: partial_attention(X, X, X, mask=X),
        TypeError,
        ["torch.bool", "True where", "mask == 0"],
    ),
    "parts of other queries": (
        lambda: merge(PART, partial_attention(X[:, :3], X, X)),
        ValueError,
        ["same queries", "out (2, 5, 4) and (2, 3, 4)", "lse (2, 5) and (2, 3)", "along the keys"],
    ),
    "parts with values of another width": (
        lambda: merge(PART, partial_attention(X, X, X[..., :1])),
        ValueError,
        ["out (2, 5, 4) and (2, 5, 1)"],
    ),
    "parts with sums of another shape": (
        lambda: merge(PART, PART._replace(lse=torch.zeros(5))),
        ValueError,
        ["lse (2, 5) and (5,)"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
