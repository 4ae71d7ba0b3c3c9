"""labkit's counts: the closed forms against modules, counters and loops; errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from labkit import KVCache, MultiHeadAttention, counting

repeatable = settings(derandomize=True, database=None, max_examples=40)
sizes = st.integers(1, 7)


def on_meta(d_model: int, h: int, **options) -> MultiHeadAttention:
    return MultiHeadAttention(d_model, h, device="meta", **options)


@repeatable
@given(d_model=sizes, h=sizes, d_k=sizes, d_v=sizes, bias=st.booleans())
def test_parameters_are_those_of_the_module(d_model, h, d_k, d_v, bias):
    module = on_meta(d_model, h, d_k=d_k, d_v=d_v, bias=bias)
    formula = counting.attention_parameters(d_model, h, d_k=d_k, d_v=d_v, bias=bias)
    assert formula == counting.count_parameters(module)


@repeatable
@given(d_model=sizes, h_kv=sizes, readers=sizes, d_k=sizes, d_v=sizes, bias=st.booleans())
def test_parameters_are_those_of_heads_that_share(d_model, h_kv, readers, d_k, d_v, bias):
    options = {"h_kv": h_kv, "d_k": d_k, "d_v": d_v, "bias": bias}
    module = on_meta(d_model, h_kv * readers, **options)
    formula = counting.attention_parameters(d_model, h_kv * readers, **options)
    assert formula == counting.count_parameters(module)


@pytest.mark.parametrize("h", [1, 2, 8, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_those_of_pytorch(h: int, bias: bool):
    theirs = nn.MultiheadAttention(64, h, bias=bias)
    formula = counting.attention_parameters(64, h, bias=bias)
    assert formula == counting.count_parameters(theirs) == 4 * 64**2 + bias * 4 * 64


def test_a_shared_parameter_counts_once_and_a_buffer_never():
    layer = nn.Linear(4, 4, bias=False)
    assert counting.count_parameters(nn.Sequential(layer, layer, nn.BatchNorm1d(3))) == 16 + 6


@repeatable
@given(n_q=sizes, n_k=sizes, d_model=sizes, h=sizes, d_k=sizes, d_v=sizes)
def test_flops_are_those_that_a_counter_finds(n_q, n_k, d_model, h, d_k, d_v):
    module = on_meta(d_model, h, d_k=d_k, d_v=d_v)
    x, context = (torch.empty(1, n, d_model, device="meta") for n in (n_q, n_k))
    counted = counting.count_flops(module, x, context, return_weights=True)
    assert counted == counting.attention_flops(n_q, d_model, h, n_k=n_k, d_k=d_k, d_v=d_v)


@repeatable
@given(n_q=sizes, n_k=sizes, d_model=sizes, h_kv=sizes, readers=sizes, d_k=sizes, d_v=sizes)
def test_flops_are_those_of_heads_that_share(n_q, n_k, d_model, h_kv, readers, d_k, d_v):
    h, sizes = h_kv * readers, {"d_k": d_k, "d_v": d_v}
    module = on_meta(d_model, h, h_kv=h_kv, **sizes)
    x, context = (torch.empty(1, n, d_model, device="meta") for n in (n_q, n_k))
    counted = counting.count_flops(module, x, context, return_weights=True)
    assert counted == counting.attention_flops(n_q, d_model, h, n_k=n_k, h_kv=h_kv, **sizes)
    projected = counting.projection_macs(n_q, d_model, h, n_k=n_k, h_kv=h_kv, **sizes)
    products = counting.product_macs(n_q, d_model, h, n_k=n_k, **sizes)
    assert counted == 2 * (projected + products)


@pytest.mark.parametrize(("n", "d_model", "h"), [(2048, 4096, 32), (2048, 4096, 1), (16, 512, 4)])
def test_flops_have_two_terms_and_no_h(n: int, d_model: int, h: int):
    x = torch.empty(1, n, d_model, device="meta")
    counted = counting.count_flops(on_meta(d_model, h), x, return_weights=True)
    assert counted == counting.attention_flops(n, d_model, h)
    assert counted == 8 * n * d_model**2 + 4 * n**2 * d_model
    assert counting.projection_macs(n, d_model, h) == 4 * n * d_model**2
    assert counting.product_macs(n, d_model, h) == 2 * n**2 * d_model


def test_macs_are_those_of_three_loops():
    n, d_model, h, d_k, d_v, steps = 3, 4, 2, 3, 1, 0
    matrices = [(n, d_model, d_k), (n, d_model, d_k), (n, d_model, d_v), (n, d_v, d_model)]
    for rows, inner, columns in h * [*matrices, (n, d_k, n), (n, n, d_v)]:
        steps += sum(1 for _ in range(rows) for _ in range(columns) for _ in range(inner))
    assert counting.attention_flops(n, d_model, h, d_k=d_k, d_v=d_v) == 2 * steps


def test_the_number_of_sequences_multiplies():
    module, x = on_meta(8, 2), torch.empty(5, 3, 8, device="meta")
    counted = counting.count_flops(module, x, return_weights=True)
    assert counted == 5 * counting.attention_flops(3, 8, 2)


@repeatable
@given(B=sizes, h=sizes, n_q=sizes, n_k=sizes)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_bytes_are_those_of_the_weights(dtype, B, h, n_q, n_k):
    module = on_meta(4, h, d_k=2, dtype=dtype)
    x, context = (torch.empty(B, n, 4, dtype=dtype, device="meta") for n in (n_q, n_k))
    _, weights = module(x, context, return_weights=True)
    assert counting.score_entries(h, n_q, n_k, B=B) == weights.numel()
    assert counting.weight_bytes(h, n_q, n_k, B=B, dtype=dtype) == weights.nbytes


@repeatable
@given(B=sizes, h_kv=sizes, readers=sizes, d_k=sizes, d_v=sizes, n=sizes, layers=st.integers(1, 3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_bytes_are_those_that_caches_hold(dtype, B, h_kv, readers, d_k, d_v, n, layers):
    caches = [KVCache() for _ in range(layers)]
    for cache in caches:
        on_meta(4, h_kv * readers, h_kv=h_kv, d_k=d_k, d_v=d_v, dtype=dtype)(
            torch.empty(B, n, 4, dtype=dtype, device="meta"), cache=cache
        )
    held = sum(cache.k.nbytes + cache.v.nbytes for cache in caches)
    counted = counting.cache_bytes(h_kv, d_k, n, layers=layers, d_v=d_v, B=B, dtype=dtype)
    assert counted == held


def test_bytes_of_a_token_are_those_of_known_models():
    def of_a_token(h_kv: int, d_k: int, layers: int) -> int:
        return counting.cache_bytes(h_kv, d_k, 1, layers=layers, dtype=torch.float16)

    assert of_a_token(12, 64, 12) == 36_864  # GPT-2
    assert of_a_token(96, 128, 96) == 4_718_592  # GPT-3
    assert of_a_token(8, 128, 80) == 327_680  # Llama 2 70B, whose heads share keys and values


def test_one_sequence_is_counted_unless_more_are_named():
    assert counting.cache_bytes(2, 3, 5) == 4 * 2 * 5 * (3 + 3)
    assert counting.score_entries(2, 3, 4) == 2 * 3 * 4
    assert counting.weight_bytes(2, 3, 4) == 4 * 2 * 3 * 4


def test_count_flops_passes_its_arguments_on():
    x = torch.ones(2, 3, 4)
    assert counting.count_flops(torch.einsum, "bij,bkj->bik", x, x) == 2 * 2 * 3 * 3 * 4
    assert counting.count_flops(torch.softmax, x, dim=-1) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_gradient_mode_does_not_matter(mode):
    module = MultiHeadAttention(8, 2).eval()
    with mode():
        counted = counting.count_flops(module, torch.ones(1, 3, 8), return_weights=True)
    assert counted == counting.attention_flops(3, 8, 2)


def torch_in_eval_mode(x: Tensor) -> Tensor:
    with torch.no_grad():
        return nn.MultiheadAttention(4, 2, batch_first=True).eval()(x, x, x)[0]


@pytest.mark.parametrize(
    "hidden",
    [
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: MultiHeadAttention(4, 2)(x),
        torch_in_eval_mode,
        lambda x: x[0] @ x[0, 0],
        lambda x: x[0, 0] @ x[0, 0],
        lambda x: torch.addbmm(torch.zeros(3, 3), x, x.mT),
        lambda x: torch.addr(torch.zeros(3, 4), x[0, :, 0], x[0, 0]),
        lambda x: F.bilinear(x, x, torch.ones(2, 4, 4)),
        lambda x: torch._int_mm(*[torch.ones(32, 32, dtype=torch.int8)] * 2),
        lambda x: nn.LSTM(4, 2)(x),
    ],
    ids=[
        "fused",
        "labkit's fused path",
        "PyTorch's fast path",
        "matrix by vector",
        "dot",
        "sum of products",
        "outer product",
        "bilinear",
        "whole numbers",
        "LSTM",
    ],
)
@pytest.mark.exact("PyTorch leaves its fast path where its functions are watched")
def test_what_the_counter_would_leave_out_raises(hidden):
    x = torch.ones(1, 3, 4)
    products = FlopCounterMode(display=False)
    with products:
        hidden(x)
    assert products.get_total_flops() < counting.attention_flops(3, 4, 2)
    with pytest.raises(ValueError, match=r"products of matrices; got \w+.*Write attention out"):
        counting.count_flops(hidden, x)


def test_counting_goes_on_after_a_refusal():
    with pytest.raises(ValueError, match="got dot"):
        counting.count_flops(torch.dot, torch.ones(2), torch.ones(2))
    assert counting.count_flops(torch.mm, torch.ones(1, 2), torch.ones(2, 1)) == 4


FORMULAS = [
    lambda d_model, h: counting.attention_parameters(d_model, h),
    lambda d_model, h: counting.projection_macs(3, d_model, h),
    lambda d_model, h: counting.product_macs(3, d_model, h),
    lambda d_model, h: counting.attention_flops(3, d_model, h),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_bad_widths_are_refused(formula):
    with pytest.raises(ValueError, match=r"d_model=10 and h=4. Choose an h that divides 10"):
        formula(10, 4)
    with pytest.raises(ValueError, match="h must be at least 1; got 0"):
        formula(8, 0)
    with pytest.raises(TypeError, match=r"d_model must be a whole number; got 8.0, a float"):
        formula(8.0, 2)


def test_bad_positions_are_refused():
    for formula in (counting.projection_macs, counting.product_macs, counting.attention_flops):
        with pytest.raises(ValueError, match="n_q must be at least 1; got 0"):
            formula(0, 8, 2)
        with pytest.raises(TypeError, match=r"n_k must be a whole number; got 2.5"):
            formula(3, 8, 2, n_k=2.5)
    with pytest.raises(ValueError, match="B must be at least 1; got -1"):
        counting.score_entries(8, 3, B=-1)
    for name in ("h_kv", "d_k", "n", "layers", "d_v", "B"):
        sizes = {"h_kv": 2, "d_k": 3, "n": 5}
        with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
            counting.cache_bytes(**(sizes | {name: 0}))
        with pytest.raises(TypeError, match=f"{name} must be a whole number; got 1.5"):
            counting.cache_bytes(**(sizes | {name: 1.5}))


def test_bad_types_are_refused():
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module; got Tensor"):
        counting.count_parameters(torch.ones(2))
    with pytest.raises(TypeError, match=r"must be a torch.dtype; got 'float32', a str"):
        counting.weight_bytes(8, 3, dtype="float32")
    with pytest.raises(TypeError, match=r"must be a torch.dtype; got 2, a int"):
        counting.cache_bytes(8, 3, 1, dtype=2)
    with pytest.raises(TypeError, match="function must be callable; got a Tensor"):
        counting.count_flops(torch.ones(2))
