"""labkit's attention against PyTorch's: values, gradients, masks, types, errors."""

from __future__ import annotations

import itertools
import subprocess
import sys
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from labkit import (
    MultiHeadAttention,
    causal_mask,
    fused,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
)
from labkit.conversion import TORCH_NAMES

repeatable = settings(derandomize=True, database=None, max_examples=150)

# How far a result may lie from the same computation in float64 on the same inputs.
# Half precision keeps 11 bits (float16) or 8 (bfloat16), so about 1e-3 or 8e-3 of values near 1.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).split(".")[1])
PATHS = pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "with weights"])

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**31 - 1)


def draw_normal(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]


def draw_mask(seed: int, *shape: int) -> Tensor:
    """A mask in which some rows are empty and some are full."""
    generator = torch.Generator().manual_seed(seed)
    threshold = torch.rand(*shape[:-1], 1, generator=generator) * 1.6 - 0.3
    return torch.rand(*shape, generator=generator) < threshold


def value_and_gradients(function, *tensors: Tensor) -> list[Tensor]:
    """Return the output, and its gradients in the tensors for one fixed cotangent."""
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    out = function(*tensors)
    cotangent = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad(out, tensors, cotangent.to(out.dtype))]


def assert_all_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            one.double(), other.double(), rtol=tolerance, atol=tolerance, check_stride=False
        )


def pytorch_in_float64(q, k, v, mask=None, scale=None) -> list[Tensor]:
    """Value and gradients of PyTorch's function in float64, by its step-by-step backend."""

    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])

    def function(q, k, v):
        q = q.expand(*lead, *q.shape[-2:])  # PyTorch's mask broadcasts against q and k alone
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)

    return value_and_gradients(function, q.double(), k.double(), v.double())


@st.composite
def problems(draw):
    """q, k, v, a mask that broadcasts or none, whether causal, and a scale or none."""
    lead = draw(st.lists(st.integers(1, 3), max_size=3).map(tuple))
    n_q, n_k, d_k, d_v, seed = draw(st.tuples(sizes, sizes, sizes, sizes, seeds))
    shapes = [(*lead, n_q, d_k), (*lead, n_k, d_k), (*lead, n_k, d_v)]
    for index in draw(st.sets(st.integers(0, 2), max_size=2)):  # these broadcast
        shapes[index] = (
            tuple(draw(st.sampled_from((1, size))) for size in lead) + shapes[index][-2:]
        )
    q, k, v = draw_normal(seed, *shapes)
    lead = torch.broadcast_shapes(*(shape[:-2] for shape in shapes))
    mask = None
    if draw(st.booleans()):
        shape = [draw(st.sampled_from((1, size))) for size in (*lead, n_q, n_k)]
        missing = draw(st.integers(0, len(shape)))
        mask = draw_mask(seed, *shape)[(0,) * missing]
    return q, k, v, mask, draw(st.booleans()), draw(st.sampled_from((None, 0.3, 2)))


@PATHS
@given(problem=problems(), block=st.sampled_from((2, 256)))
@repeatable
def test_attention_equals_pytorch_in_value_and_gradient(problem, block, return_weights):
    q, k, v, mask, is_causal, scale = problem

    def function(q, k, v):
        out = scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, scale=scale, return_weights=return_weights
        )
        return out[0] if return_weights else out

    with mock.patch.object(fused, "CAUSAL_BLOCK", block):
        ours = value_and_gradients(function, q, k, v)
    if is_causal:
        causal = causal_mask(q.shape[-2], k.shape[-2])
        mask = causal if mask is None else mask & causal
    assert_all_close(ours, pytorch_in_float64(q, k, v, mask, scale), TOLERANCE[torch.float32])


@given(problem=problems())
@repeatable
def test_weights_are_shares_of_what_may_be_seen(problem):
    q, k, v, mask, is_causal, scale = problem
    out, weights = scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal, scale=scale, return_weights=True
    )
    fused = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale)
    torch.testing.assert_close(out, fused)
    assert weights.shape == (*out.shape[:-1], k.shape[-2])
    may = torch.ones_like(weights, dtype=torch.bool)
    may = may if mask is None else may & mask
    may = may & causal_mask(*weights.shape[-2:]) if is_causal else may
    assert (weights >= 0).all()
    assert (weights[~may] == 0).all()
    torch.testing.assert_close(weights.sum(-1), may.any(-1).float())
    torch.testing.assert_close(weights @ v, out)


@DTYPES
@PATHS
@given(seed=seeds, masked=st.booleans())
@settings(repeatable, max_examples=40)
def test_every_type_stays_within_its_tolerance(dtype, return_weights, seed, masked):
    q, k, v = draw_normal(seed, (2, 3, 9, 16), (2, 3, 17, 16), (2, 3, 17, 16), dtype=dtype)
    mask = draw_mask(seed, 2, 1, 9, 17) if masked else None

    def function(q, k, v):
        out = scaled_dot_product_attention(q, k, v, mask, return_weights=return_weights)
        return out[0] if return_weights else out

    ours = value_and_gradients(function, q, k, v)
    assert all(x.dtype == dtype for x in ours)
    assert_all_close(ours, pytorch_in_float64(q, k, v, mask), TOLERANCE[dtype])


@DTYPES
@PATHS
@pytest.mark.parametrize("d_v", [8, 5])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_query_with_nothing_to_see_gives_zeros_and_no_gradient(
    dtype, return_weights, d_v, is_causal
):
    q, k, v = draw_normal(0, (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, d_v), dtype=dtype)
    mask = torch.ones(2, 1, 5, 6, dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False

    def function(q, k, v):
        out = scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, return_weights=return_weights
        )
        return out[0] if return_weights else out

    with torch.autograd.detect_anomaly(check_nan=True):
        out, *gradients = value_and_gradients(function, q, k, v)
    assert all(x.isfinite().all() for x in (out, *gradients))
    for zero in (out[0, :, 2], out[1], gradients[0][0, :, 2], *(x[1] for x in gradients)):
        assert (zero == 0).all()
    assert all((x[0] != 0).any() for x in (out, *gradients))


@PATHS
@pytest.mark.parametrize(("n_q", "n_k"), [(6, 6), (3, 6), (1, 6), (6, 4)])
def test_no_query_sees_the_future(n_q, n_k, return_weights):
    q, k, v = draw_normal(1, (2, n_q, 4), (2, n_k, 4), (2, n_k, 4))

    def function(k, v):
        out = scaled_dot_product_attention(q, k, v, is_causal=True, return_weights=return_weights)
        return out[0] if return_weights else out

    k, v = k.requires_grad_(), v.requires_grad_()
    out = function(k, v)
    for i in range(n_q):
        future = max(i + n_k - n_q + 1, 0)
        changed_k, changed_v = k.detach().clone(), v.detach().clone()
        changed_k[:, future:] = 1e4
        changed_v[:, future:] = -1e4
        torch.testing.assert_close(function(changed_k, changed_v)[:, i], out[:, i].detach())
        in_k, in_v = torch.autograd.grad(out[:, i].sum(), (k, v), retain_graph=True)
        assert not in_k[:, future:].any()
        assert not in_v[:, future:].any()
        assert in_v[:, :future].all()


def test_module_does_not_see_the_future_by_gradient():
    module = MultiHeadAttention(8, 2)
    (x,) = draw_normal(2, (1, 6, 8))
    jacobian = torch.autograd.functional.jacobian(lambda x: module(x, is_causal=True), x)
    reach = jacobian.abs().sum((0, 2, 3, 5))
    assert torch.equal(reach > 0, causal_mask(6))


@given(seed=seeds, return_weights=st.booleans())
@repeatable
def test_attention_does_not_know_the_order(seed, return_weights):
    q, k, v, x = draw_normal(seed, (2, 5, 4), (2, 6, 4), (2, 6, 3), (2, 6, 8))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    permuted = scaled_dot_product_attention(q, k[:, order], v[:, order])
    torch.testing.assert_close(permuted, scaled_dot_product_attention(q, k, v))
    module = MultiHeadAttention(8, 2)
    ours = module(x[:, order], return_weights=return_weights)
    theirs = module(x, return_weights=return_weights)
    if return_weights:
        torch.testing.assert_close(ours[1], theirs[1][..., order, :][..., order])
        ours, theirs = ours[0], theirs[0]
    torch.testing.assert_close(ours, theirs[:, order])


@given(seed=seeds, is_causal=st.booleans())
@repeatable
def test_the_items_of_a_batch_do_not_meet(seed, is_causal):
    x, context = draw_normal(seed, (3, 5, 8), (3, 7, 8))
    module, mask = MultiHeadAttention(8, 2), draw_mask(seed, 3, 1, 5, 7)
    together = module(x, context, mask, is_causal=is_causal)
    for item in range(3):
        alone = module(x[item], context[item], mask[item], is_causal=is_causal)
        torch.testing.assert_close(together[item], alone)


@PATHS
@pytest.mark.parametrize("lead", [(0,), (0, 2), (2, 0, 3)])
def test_an_empty_batch_gives_an_empty_batch(lead, return_weights):
    x, mask = torch.zeros(*lead, 4, 8), torch.ones(*lead, 1, 4, dtype=torch.bool)
    out = scaled_dot_product_attention(x, x, x, mask, return_weights=return_weights)
    assert (out[0] if return_weights else out).shape == x.shape


@PATHS
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("d_v", [4, 3])
def test_an_empty_batch_of_a_module_gives_an_empty_batch(n, d_v, return_weights):
    for h_kv in (2, 1):
        x, module = torch.zeros(0, n, 8), MultiHeadAttention(8, 2, h_kv=h_kv, d_v=d_v)
        out = module(x, return_weights=return_weights)
        assert (out[0] if return_weights else out).shape == x.shape


def test_causal_mask_ends_in_the_last_corner():
    for n_q, n_k in itertools.product(range(1, 5), repeat=2):
        expected = [[j <= i + n_k - n_q for j in range(n_k)] for i in range(n_q)]
        assert causal_mask(n_q, n_k).tolist() == expected
    assert torch.equal(causal_mask(4), causal_mask(4, 4))
    assert causal_mask(3, device="meta").device.type == "meta"


def test_window_mask_ends_in_the_last_corner_and_is_w_wide():
    for n_q, n_k, w in itertools.product(range(1, 5), range(1, 5), range(1, 6)):
        places = [i + n_k - n_q for i in range(n_q)]
        expected = [[p - w < j <= p for j in range(n_k)] for p in places]
        assert window_mask(n_q, n_k, w).tolist() == expected
    assert torch.equal(window_mask(4, None, 2), window_mask(4, 4, 2))
    assert torch.equal(window_mask(3, 5, 5), causal_mask(3, 5))
    assert window_mask(3, None, 2, device="meta").device.type == "meta"


@pytest.mark.parametrize(("layers", "w"), [(1, 3), (2, 3), (3, 2), (3, 1)])
def test_through_a_window_layers_reach_w_less_one_each(layers, w):
    torch.manual_seed(0)
    modules = [MultiHeadAttention(8, 2, dtype=torch.float64) for _ in range(layers)]
    (x,) = draw_normal(0, (1, 9, 8), dtype=torch.float64)
    out = x.requires_grad_()
    for module in modules:
        out = module(out, mask=window_mask(9, None, w))
    (gradient,) = torch.autograd.grad(out[:, -1].sum(), x)
    reached = gradient[0].any(-1).nonzero()
    assert 8 - reached.min() == layers * (w - 1)


@given(st.lists(sizes, max_size=2), sizes, sizes, sizes, seeds)
@repeatable
def test_splitting_is_slicing_and_merging_undoes_it(lead, n, h, d, seed):
    (x,) = draw_normal(seed, (*lead, n, h * d))
    heads = split_heads(x, h)
    assert heads.shape == (*lead, h, n, d)
    assert heads.data_ptr() == x.data_ptr()
    for i in range(h):
        assert torch.equal(heads[..., i, :, :], x[..., i * d : (i + 1) * d])
    assert torch.equal(merge_heads(heads), x)


# Dropout


def test_dropout_scales_the_weights_it_keeps():
    q, k, v = draw_normal(3, (4, 16, 8), (4, 16, 8), (4, 16, 8))
    _, plain = scaled_dot_product_attention(q, k, v, return_weights=True)
    torch.manual_seed(0)
    out, dropped = scaled_dot_product_attention(q, k, v, dropout_p=0.25, return_weights=True)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], plain[kept] / 0.75)
    assert 0.7 < kept.float().mean() < 0.8
    torch.testing.assert_close(out, dropped @ v)


@PATHS
def test_dropout_keeps_the_expectation(return_weights):
    q, k, v = draw_normal(4, (1, 4, 8), (1, 6, 8), (1, 6, 8))
    draws = 4000
    many = (x.expand(draws, -1, -1) for x in (q, k, v))
    torch.manual_seed(0)
    out = scaled_dot_product_attention(*many, dropout_p=0.5, return_weights=return_weights)
    out = out[0] if return_weights else out
    plain = scaled_dot_product_attention(q, k, v)[0]
    standard_error = out.std(0) / draws**0.5
    assert ((out.mean(0) - plain).abs() < 5 * standard_error).all()


def test_module_drops_in_training_mode_only():
    (x,) = draw_normal(5, (2, 6, 8))
    module, plain = MultiHeadAttention(8, 2, dropout=0.5), MultiHeadAttention(8, 2)
    plain.load_state_dict(module.state_dict())
    assert not torch.allclose(module(x), plain(x))
    assert (module(x, return_weights=True)[1] == 0).any()
    module.eval()
    torch.testing.assert_close(module(x), plain(x))
    assert (module(x, return_weights=True)[1] > 0).all()


def test_dropout_of_a_step_keeps_the_expectation_where_heads_share():
    module = MultiHeadAttention(8, 4, h_kv=2, dropout=0.5)
    x, context = draw_normal(4, (1, 1, 8), (1, 6, 8))
    torch.manual_seed(0)
    with torch.no_grad():
        out = module(x.expand(4000, -1, -1), context.expand(4000, -1, -1))
        plain = module.eval()(x, context)[0]
    standard_error = out.std(0) / 4000**0.5
    assert (standard_error > 0).all()
    assert ((out.mean(0) - plain).abs() < 5 * standard_error).all()


# The module against torch.nn.MultiheadAttention


def named_gradients(module: nn.Module, out: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """Return the gradients in the parameters, under PyTorch's names, and in the inputs."""
    parameters = {TORCH_NAMES.get(name, name): p for name, p in module.named_parameters()}
    wanted = parameters | {str(index): x for index, x in enumerate(inputs)}
    cotangent = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    return dict(
        zip(wanted, torch.autograd.grad(out, list(wanted.values()), cotangent), strict=True)
    )


@PATHS
@pytest.mark.parametrize("batch_first", [True, False])
@given(
    h=st.integers(1, 4),
    d_k=st.integers(1, 4),
    n_q=sizes,
    n_k=st.none() | sizes,
    bias=st.booleans(),
    masking=st.sampled_from(("none", "padding", "causal", "both")),
    seed=seeds,
)
@repeatable
def test_module_equals_pytorch_module(
    h, d_k, n_q, n_k, bias, masking, seed, batch_first, return_weights
):
    torch.manual_seed(seed)
    theirs = nn.MultiheadAttention(h * d_k, h, bias=bias, batch_first=batch_first)
    for parameter in theirs.parameters():  # biases start at zero, which would hide them
        nn.init.normal_(parameter, std=0.5)
    ours = MultiHeadAttention.from_torch(theirs)
    x = torch.randn(2, n_q, h * d_k, requires_grad=True)
    context = None if n_k is None else torch.randn(2, n_k, h * d_k, requires_grad=True)
    inputs = [x] if context is None else [x, context]
    n_k = n_k or n_q
    may, hidden = {}, {}
    if masking in ("padding", "both"):
        visible = torch.arange(n_k) < torch.tensor([[1], [n_k]])
        may["mask"], hidden["key_padding_mask"] = visible[:, None, None, :], ~visible
    if masking in ("causal", "both") and n_q <= n_k:  # else PyTorch's module gives nan
        may["is_causal"], hidden["attn_mask"] = True, ~causal_mask(n_q, n_k)

    def layout(x):
        return x if batch_first else x.transpose(0, 1)

    out = ours(x, context, **may, return_weights=return_weights)
    out, weights = out if return_weights else (out, None)
    query, key = layout(inputs[0]), layout(inputs[-1])
    expected, expected_weights = theirs(
        query, key, key, **hidden, need_weights=return_weights, average_attn_weights=False
    )
    torch.testing.assert_close(out, layout(expected), rtol=1e-4, atol=1e-5)
    if return_weights:
        torch.testing.assert_close(weights, expected_weights)
    gradients = named_gradients(ours, out, *inputs)
    torch.testing.assert_close(
        gradients, named_gradients(theirs, layout(expected), *inputs), rtol=1e-4, atol=1e-5
    )


@given(
    st.integers(1, 3),
    sizes,
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    seeds,
)
@repeatable
def test_module_equals_a_loop_over_heads_of_any_width(h, d_model, d_k, d_v, bias, cross, seed):
    torch.manual_seed(seed)
    module = MultiHeadAttention(d_model, h, d_k=d_k, d_v=d_v, bias=bias)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 4, d_model)
    context = torch.randn(2, 5, d_model) if cross else x
    mask = draw_mask(seed, 2, h, 4, context.shape[1])
    q, k, v = module.w_q(x), module.w_k(context), module.w_v(context)
    heads = []
    for i in range(h):
        keys, values = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        heads.append(
            scaled_dot_product_attention(q[..., keys], k[..., keys], v[..., values], mask[:, i])
        )
    expected = module.w_o(torch.cat(heads, -1))
    out, weights = module(x, context, mask, return_weights=True)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(module(x, context, mask), expected, rtol=1e-4, atol=1e-4)
    assert weights.shape == (2, h, 4, context.shape[1])
    gradients = named_gradients(module, module(x, context, mask))
    torch.testing.assert_close(gradients, named_gradients(module, expected), rtol=1e-3, atol=1e-3)


# Heads that share keys and values, against a layer in which each has a copy of its own


def with_copies(layer: MultiHeadAttention):
    """Call the layer with every row of W^K and W^V repeated; gradients arrive in the layer."""
    full = MultiHeadAttention(
        layer.d_model,
        layer.h,
        d_k=layer.d_k,
        d_v=layer.d_v,
        bias=layer.w_qkv.bias is not None,
        rotary_base=layer.rotary_base,
        device="meta",
    )
    readers, q, parameters = layer.h // layer.h_kv, layer.w_q, dict(layer.named_parameters())
    for name in ("weight", "bias"):
        if getattr(q, name) is None:
            continue
        rows = [getattr(q, name)]
        for part, d in ((layer.w_k, layer.d_k), (layer.w_v, layer.d_v)):
            for head in getattr(part, name).split(d):
                rows += [head] * readers
        parameters[f"w_qkv.{name}"] = torch.cat(rows)
    return lambda *args, **options: functional_call(full, parameters, args, options)


@PATHS
@given(
    heads=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pairs=st.tuples(st.integers(1, 2), st.integers(1, 4)),
    lead=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    lengths=st.tuples(st.sampled_from((1, 1, 2, 5)), st.none() | st.integers(1, 7)),
    bias=st.booleans(),
    rotary_base=st.sampled_from((None, 10.0)),
    masking=st.sampled_from(("none", "all heads", "each head", "queries and keys", "keys")),
    is_causal=st.booleans(),
    seed=seeds,
)
@settings(repeatable, max_examples=80)
def test_shared_heads_equal_copies_in_value_and_gradient(
    heads, pairs, lead, lengths, bias, rotary_base, masking, is_causal, seed, return_weights
):
    (h_kv, readers), (half, d_v), (n_q, n_k) = heads, pairs, lengths
    h, d_k = h_kv * readers, 2 * half
    torch.manual_seed(seed)
    layer = MultiHeadAttention(6, h, h_kv=h_kv, d_k=d_k, d_v=d_v, bias=bias,
        rotary_base=rotary_base, dtype=torch.float64)  # fmt: skip
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    shapes = [(*lead, n_q, 6)] if n_k is None else [(*lead, n_q, 6), (*lead, n_k, 6)]
    inputs = draw_normal(seed, *shapes, dtype=torch.float64)
    n_k = n_k or n_q
    shape = {"all heads": (*lead, 1, n_q, n_k), "each head": (*lead, h, n_q, n_k),
        "queries and keys": (n_q, n_k), "keys": (*lead, 1, 1, n_k)}.get(masking)  # fmt: skip
    mask = None if shape is None else draw_mask(seed, *shape)
    found = []
    for function in (layer, with_copies(layer)):
        own = [each.clone().requires_grad_() for each in inputs]
        out = function(*own, mask=mask, is_causal=is_causal, return_weights=return_weights)
        out, *weights = out if return_weights else (out,)
        cotangent = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
        gradients = torch.autograd.grad(out, [*own, *layer.parameters()], cotangent)
        found.append([out.detach(), *weights, *gradients])
    assert_all_close(*found, TOLERANCE[torch.float64])


@given(
    lead=st.sampled_from(((), (2,), (2, 1), (0,))),
    h_kv=st.integers(1, 3),
    readers=st.integers(1, 3),
    n_q=st.integers(1, 5),
    n_k=st.integers(1, 5),
    d=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    masked=st.sampled_from((None, "keys", "heads")),
    is_causal=st.booleans(),
    return_weights=st.booleans(),
    seed=seeds,
)
@repeatable
def test_attention_with_fewer_heads_of_keys_equals_pytorch(
    lead, h_kv, readers, n_q, n_k, d, masked, is_causal, return_weights, seed
):
    h, (d_k, d_v) = h_kv * readers, d
    shapes = (*lead, h, n_q, d_k), (*lead, h_kv, n_k, d_k), (*lead, h_kv, n_k, d_v)
    q, k, v = draw_normal(seed, *shapes, dtype=torch.float64)
    rows = {"keys": (1, n_k), "heads": (h, n_q, n_k)}.get(masked)
    mask = None if rows is None else draw_mask(seed, *rows) | (torch.arange(n_k) == 0)
    is_causal = is_causal and n_q <= n_k

    def ours(q, k, v):
        out = scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, enable_gqa=True, return_weights=return_weights
        )
        return out[0] if return_weights else out

    def theirs(q, k, v):
        may = causal_mask(n_q, n_k) if is_causal else torch.ones(n_q, n_k, dtype=torch.bool)
        may = may if mask is None else may & mask
        return F.scaled_dot_product_attention(q, k, v, may, enable_gqa=True)

    assert_all_close(
        value_and_gradients(ours, q, k, v), value_and_gradients(theirs, q, k, v), 1e-12
    )


def test_shared_heads_broadcast_over_the_batch_and_give_weights_of_all_heads():
    q, k, v = draw_normal(0, (3, 4, 5, 2), (1, 2, 6, 2), (2, 6, 2), dtype=torch.float64)
    out, weights = scaled_dot_product_attention(q, k, v, enable_gqa=True, return_weights=True)
    assert weights.shape == (3, 4, 5, 6)
    each = (x.expand(3, 2, 6, 2).repeat_interleave(2, 1) for x in (k, v))
    torch.testing.assert_close(out, scaled_dot_product_attention(q, *each))
    torch.testing.assert_close(out, scaled_dot_product_attention(q, k, v, enable_gqa=True))


@PATHS
@pytest.mark.parametrize("n", [1, 4])
def test_neighbours_read_the_same_head_of_keys(n, return_weights):
    """Heads 0 and 1 read the first, heads 2 and 3 the second: turns would be 0 and 2, 1 and 3."""
    module = MultiHeadAttention(4, 4, h_kv=2, d_k=1, d_v=1, bias=False)
    with torch.no_grad():
        module.w_v.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [5.0, 0, 0, 0]]))
        module.w_o.weight.copy_(torch.eye(4))
    out = module(torch.ones(1, n, 4), return_weights=return_weights)
    out = out[0] if return_weights else out
    torch.testing.assert_close(out, torch.tensor([1.0, 1, 5, 5]).expand(1, n, 4))


@DTYPES
@pytest.mark.parametrize("h_kv", [4, 2, 1])
@pytest.mark.parametrize("n", [5, 1])
def test_module_runs_in_every_type(n, h_kv, dtype):
    torch.manual_seed(0)
    module = MultiHeadAttention(16, 4, h_kv=h_kv, dtype=dtype)
    x, context = draw_normal(6, (2, n, 16), (2, 5, 16), dtype=dtype)
    out = module(x, context, is_causal=True)
    expected = module.double()(x.double(), context.double(), is_causal=True)
    assert out.dtype == dtype
    assert_all_close([out], [expected], TOLERANCE[dtype])


@pytest.mark.parametrize("h_kv", [4, 2])
def test_module_runs_under_autocast(h_kv):
    module = MultiHeadAttention(16, 4, h_kv=h_kv)
    (x,) = draw_normal(7, (2, 5, 16))
    with torch.autocast("cpu", torch.bfloat16):
        assert_all_close([module(x), module(x.bfloat16())], [module.float()(x)] * 2, 4e-2)


def test_the_parts_of_w_qkv_are_views_where_heads_share():
    module = MultiHeadAttention(6, 4, h_kv=2, d_k=3, d_v=5)
    shapes = [tuple(part.weight.shape) for part in (module.w_q, module.w_k, module.w_v)]
    assert shapes == [(12, 6), (6, 6), (10, 6)]
    nn.init.ones_(module.w_k.bias)
    assert module.w_qkv.bias.tolist() == [0.0] * 12 + [1.0] * 6 + [0.0] * 10
    nn.init.zeros_(module.w_v.weight)
    assert module.w_qkv.weight.any(1).tolist() == [True] * 18 + [False] * 10


def test_the_parts_of_w_qkv_are_views():
    module = MultiHeadAttention(6, 2, d_k=4, d_v=5)
    shapes = [tuple(part.weight.shape) for part in (module.w_q, module.w_k, module.w_v)]
    assert shapes == [(8, 6), (8, 6), (10, 6)]
    assert torch.equal(
        torch.cat([module.w_q.weight, module.w_k.weight, module.w_v.weight]), module.w_qkv.weight
    )
    nn.init.ones_(module.w_k.weight)
    nn.init.ones_(module.w_v.bias)
    assert (module.w_qkv.weight[8:16] == 1).all()
    assert module.w_qkv.bias.tolist() == [0.0] * 16 + [1.0] * 10
    module.w_q(torch.ones(1, 6)).sum().backward()
    assert module.w_qkv.weight.grad.any(1).tolist() == [True] * 8 + [False] * 18
    with pytest.raises(AttributeError):
        module.w_q.weight = torch.ones(8, 6)


def test_module_starts_as_pytorch_module_does():
    torch.manual_seed(0)
    ours, theirs = MultiHeadAttention(64, 4), nn.MultiheadAttention(64, 4)
    for name, parameter in ours.named_parameters():
        other = theirs.get_parameter(TORCH_NAMES[name])
        torch.testing.assert_close(parameter.std(), other.std(), rtol=0.05, atol=0)


def test_import_adds_nothing_heavy_to_torch():
    code = (
        "import sys, torch; before = set(sys.modules); import labkit;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    added = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(added.stdout.split()) <= {"labkit", *sys.stdlib_module_names}
