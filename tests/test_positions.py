"""labkit's positions: sinusoids against the paper, rotation against complex numbers; errors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labkit import MultiHeadAttention, positions, scaled_dot_product_attention, split_heads
from labkit.positions import neighbours_to_halves, one_pass, rotate, sinusoids
from tests.drawn import draw
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=60)
seeds = st.integers(0, 2**31 - 1)
starts = st.integers(-50, 5000)
bases = st.sampled_from((0.5, 10.0, 10_000.0))


def assert_same(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


# Sinusoids


@pytest.mark.parametrize(("n", "d_model", "base"), [(5, 6, 1e4), (700, 8, 100), (1, 2, 3.5)])
def test_sinusoids_are_those_of_the_paper(n, d_model, base):
    expected = torch.empty(n, d_model)
    for p in range(n):
        for i in range(d_model // 2):
            angle = p / base ** (2 * i / d_model)
            expected[p, 2 * i], expected[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    ours = sinusoids(n, d_model, base=base)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_sinusoids_have_the_base_of_the_paper():
    assert torch.equal(sinusoids(9, 4), sinusoids(9, 4, base=10_000))


# Rotation


@given(start=starts, base=bases, pairs=st.integers(1, 5), seed=seeds)
@repeatable
def test_rotation_is_multiplication_by_a_complex_number(start, base, pairs, seed):
    x = draw(2, 3, 7, 2 * pairs, seed=seed)
    places = torch.arange(start, start + 7, dtype=torch.float64)
    speeds = base ** (-2 * torch.arange(pairs, dtype=torch.float64) / (2 * pairs))
    turn = torch.polar(torch.ones(7, pairs).double(), places[:, None] * speeds)
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn)
    assert_same(rotate(x, base, start), expected.flatten(-2))


@given(start=starts, base=bases, seed=seeds)
@repeatable
def test_rotation_keeps_lengths(start, base, seed):
    x = draw(2, 5, 8, seed=seed)
    assert_same(rotate(x, base, start).norm(dim=-1), x.norm(dim=-1))


@given(first=starts, second=starts, base=bases, seed=seeds)
@repeatable
def test_products_depend_on_the_offset_alone(first, second, base, seed):
    q, k = draw(2, 6, 8, seed=seed)
    products = rotate(q, base, first) @ rotate(k, base, first).T
    assert_same(rotate(q, base, second) @ rotate(k, base, second).T, products)
    same = q[:1].expand(6, -1), k[:1].expand(6, -1)
    of_one = rotate(same[0], base, first) @ rotate(same[1], base, first).T
    for offset in range(-5, 6):
        diagonal = of_one.diagonal(offset)
        assert_same(diagonal, diagonal[:1].expand_as(diagonal))


def test_rotation_starts_where_it_is_told():
    x = draw(2, 9, 4)
    assert_same(rotate(x)[:, 3:], rotate(x[:, 3:], start=3))
    assert torch.equal(rotate(x), rotate(x, 10_000, 0))
    assert torch.equal(rotate(x)[:, 0], x[:, 0])


def test_positions_may_be_given_one_by_one():
    x, order = draw(2, 9, 4), torch.tensor([3, 0, 7, 7, 1])
    assert_same(rotate(x)[:, order], rotate(x[:, order], start=order))


@given(start=starts, base=bases, scaling=st.sampled_from((0.5, 2.0, 8.0)), seed=seeds)
@repeatable
def test_scaling_divides_positions(start, base, scaling, seed):
    x = draw(2, 7, 8, seed=seed)
    places = torch.arange(start, start + 7) / scaling
    expected = rotate(x, base, places)
    assert_same(rotate(x, base, start, scaling=scaling), expected)
    assert_same(rotate(x, base, torch.arange(start, start + 7), scaling=scaling), expected)
    assert torch.equal(rotate(x, base, start, scaling=1), rotate(x, base, start))


def llama(x: Tensor, base: float, start: int) -> Tensor:
    """Rotate as transformers does for Llama: x cos + rotate_half(x) sin, tables side by side."""
    *_, n, d = x.shape
    places = torch.arange(start, start + n, dtype=torch.float64)
    angles = places[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = (torch.cat([table, table], -1) for table in (angles.cos(), angles.sin()))
    return x * cos + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * sin


@given(start=starts, base=bases, pairs=st.integers(1, 5), seed=seeds)
@repeatable
def test_one_order_of_features_leads_from_neighbours_to_halves(start, base, pairs, seed):
    x, order = draw(2, 7, 2 * pairs, seed=seed), neighbours_to_halves(2 * pairs)
    assert_same(rotate(x, base, start, pairs="halves"), llama(x, base, start))
    halves = rotate(x[..., order], base, start, pairs="halves")
    assert_same(halves, rotate(x, base, start)[..., order])
    assert_same(halves[..., order.argsort()], rotate(x, base, start))


def test_weights_of_one_convention_are_wrong_in_the_other():
    """Their rows take the order head by head; read as they are, the scores are others."""
    w_q, w_k, x, order = draw(12, 6), draw(12, 6, seed=1), draw(5, 6), neighbours_to_halves(4)

    def scores(w_q: Tensor, w_k: Tensor, pairs: str) -> Tensor:
        q, k = (rotate(split_heads(x @ w.T, 3), 10.0, pairs=pairs) for w in (w_q, w_k))
        return q @ k.mT

    ordered = [w.unflatten(0, (3, 4))[:, order].flatten(0, 1) for w in (w_q, w_k)]
    right = scores(w_q, w_k, "neighbours")
    assert_same(scores(*ordered, "halves"), right)
    mixed = scores(w_q, w_k, "halves")
    assert not torch.allclose(mixed, right, atol=0.1)
    assert_same(mixed.diagonal(0, 1, 2), right.diagonal(0, 1, 2))  # at distance 0 nothing shows


def test_a_pass_makes_its_tables_once(monkeypatch):
    made, angles = [], positions._angles

    def counted(*arguments):
        made.append(arguments)
        return angles(*arguments)

    monkeypatch.setattr(positions, "_angles", counted)
    x = draw(2, 9, 4)
    with one_pass():
        once = [rotate(x), rotate(x), rotate(x, start=3), rotate(x.float())]
        with one_pass():
            rotate(x)
        rotate(x, start=3)
    assert len(made) == 3
    assert_same(once[0], rotate(x))
    assert_same(once[2], rotate(x, start=3))
    assert once[3].dtype == torch.float32
    made.clear()
    rotate(x)
    rotate(x)
    assert len(made) == 2  # nothing is kept behind a pass
    made.clear()
    layer = make_layer(rotary_base=7.0)
    layer(draw(2, 5, 6))
    assert len(made) == 1  # queries and keys stand at the same places


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rotation_keeps_the_type_and_the_angle_far_out(dtype):
    x = draw(3, 8)
    ours = rotate(x.to(dtype), start=30_001)  # a number that bfloat16 and float16 do not have
    assert ours.dtype == dtype
    tolerance = 4 * torch.finfo(dtype).eps
    expected = rotate(x.to(dtype).double(), start=30_001)
    torch.testing.assert_close(ours.double(), expected, rtol=tolerance, atol=tolerance)


# In the layer


def make_layer(**options) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(6, 3, d_k=4, d_v=5, dtype=torch.float64, **options)


def test_a_rotation_has_no_parameters_and_is_off_unless_asked_for():
    plain, rotary, x = make_layer(), make_layer(rotary_base=10.0), draw(2, 5, 6)
    plain.load_state_dict(rotary.state_dict())
    order = torch.tensor([3, 0, 4, 1, 2])
    assert_same(plain(x[:, order]), plain(x)[:, order])
    assert not torch.allclose(rotary(x[:, order]), rotary(x)[:, order])


@pytest.mark.parametrize("n_k", [None, 5, 8, 3])
@pytest.mark.parametrize("return_weights", [False, True])
def test_the_layer_turns_queries_and_keys_and_not_values(n_k, return_weights):
    layer, x = make_layer(rotary_base=7.0), draw(2, 5, 6)
    context = None if n_k is None else draw(2, n_k, 6, seed=1)
    keys = x if context is None else context
    q, k, v = (
        split_heads(w(y), 3) for w, y in [(layer.w_q, x), (layer.w_k, keys), (layer.w_v, keys)]
    )
    last = k.shape[-2] - 5  # so that the last query stands at the last key
    heads = scaled_dot_product_attention(rotate(q, 7.0, last), rotate(k, 7.0), v)
    out = layer(x, context, return_weights=return_weights)
    out = out[0] if return_weights else out
    assert_same(out, layer.w_o(heads.transpose(1, 2).flatten(2)))


def test_a_layer_scales_its_positions():
    layer, plain, x = make_layer(rotary_base=7.0, rotary_scaling=2.5), make_layer(), draw(2, 5, 6)
    plain.load_state_dict(layer.state_dict())
    q, k, v = (split_heads(w(x), 3) for w in (layer.w_q, layer.w_k, layer.w_v))
    q, k = (rotate(part, 7.0, torch.arange(5).double() / 2.5) for part in (q, k))
    expected = layer.w_o(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    assert_same(layer(x), expected)
    layer.rotary_scaling = 1.0
    assert not torch.allclose(layer(x), expected)


def test_padding_on_the_left_changes_nothing():
    layer, x = make_layer(rotary_base=10.0), draw(2, 5, 6)
    padded = torch.cat([draw(2, 3, 6, seed=1), x], 1)
    may = torch.arange(8) >= 3
    assert_same(layer(padded, mask=may, is_causal=True)[:, 3:], layer(x, is_causal=True))


# Errors

ERRORS = {
    "an odd width of sinusoids": (lambda: sinusoids(3, 5), ValueError, ["d_model", "even", "5"]),
    "no positions": (lambda: sinusoids(0, 4), ValueError, ["n", "at least 1", "0"]),
    "half a position": (lambda: sinusoids(2.5, 4), TypeError, ["n", "whole", "2.5"]),
    "a width of no number": (lambda: sinusoids(2, "4"), TypeError, ["d_model", "whole", "'4'"]),
    "sinusoids' base": (lambda: sinusoids(2, 4, base=0), ValueError, ["base", "above 0", "0.0"]),
    "a list": (lambda: rotate([1.0]), TypeError, ["x", "(..., n, d)", "list"]),
    "one dimension": (lambda: rotate(draw(4)), ValueError, ["at least 2", "(4,)", "x[None]"]),
    "an odd width": (lambda: rotate(draw(2, 3)), ValueError, ["d", "even", "pairs", "3"]),
    "whole numbers": (lambda: rotate(torch.ones(2, 2).long()), TypeError, ["floating", "int64"]),
    "a start between two": (lambda: rotate(draw(2, 4), start=0.5), TypeError, ["start", "0.5"]),
    "positions of another number": (
        lambda: rotate(draw(2, 4), start=torch.arange(3)),
        ValueError,
        ["start", "(n,) = (2,)", "(3,)"],
    ),
    "pairs of another kind": (
        lambda: rotate(draw(2, 4), pairs="thirds"),
        ValueError,
        ["pairs", "neighbours, halves", "'thirds'"],
    ),
    "a scaling of 0": (
        lambda: rotate(draw(2, 4), scaling=0),
        ValueError,
        ["scaling", "above 0", "0.0"],
    ),
    "a layer's scaling": (
        lambda: make_layer(rotary_base=7.0, rotary_scaling=-1),
        ValueError,
        ["rotary_scaling", "above 0", "-1.0"],
    ),
    "a scaling of nothing": (
        lambda: make_layer(rotary_scaling=2),
        ValueError,
        ["rotary_scaling", "2", "Give a rotary_base"],
    ),
    "halves of an odd width": (lambda: neighbours_to_halves(3), ValueError, ["d", "even", "3"]),
    "a base of 0": (lambda: rotate(draw(2, 4), 0.0), ValueError, ["base", "above 0", "0.0"]),
    "a base below 0": (lambda: rotate(draw(2, 4), -1), ValueError, ["base", "above 0", "-1.0"]),
    "a base of no number": (lambda: rotate(draw(2, 4), "a"), TypeError, ["base", "number", "str"]),
    "a base without end": (
        lambda: rotate(draw(2, 4), math.inf),
        ValueError,
        ["base", "finite", "inf"],
    ),
    "heads of an odd width": (
        lambda: MultiHeadAttention(6, 2, rotary_base=10.0),
        ValueError,
        ["d_k", "even", "3"],
    ),
    "a layer's base": (
        lambda: MultiHeadAttention(8, 2, rotary_base=-1),
        ValueError,
        ["rotary_base", "above 0"],
    ),
    "a layer's base of no number": (
        lambda: MultiHeadAttention(8, 2, rotary_base="a"),
        TypeError,
        ["rotary_base", "number", "str"],
    ),
    "a copy into PyTorch's module": (
        lambda: MultiHeadAttention(8, 2, rotary_base=10.0).to_torch(),
        ValueError,
        ["no rotary positions", "rotary_base=10.0", "Keep labkit's module"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
