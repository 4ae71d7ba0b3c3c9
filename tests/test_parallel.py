"""The GPT on several ranks: parts against the whole, each scheme's training against one rank's.

What is sent is counted, and compared with the formulas of chapter 14.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from labkit import KVCache, MultiHeadAttention, scaled_dot_product_attention
from labkit.latent import LatentAttention
from labkit.models import parallel
from labkit.models.gpt import GPT, FeedForward, load_gpt
from labkit.models.parallel import (
    SCHEMES,
    Across,
    deal,
    places,
    ring,
    shard,
    shard_feed_forward,
    shard_latent,
    step,
    ulysses,
)
from labkit.models.sharing import latent
from labkit.models.training import loss_on, small_gpt, unseen
from labkit.ranks import Rank, run
from tests.drawn import draw, draw_layer
from tests.refusing import check_refusal

WORLDS = pytest.mark.parametrize("world", [1, 2, 3, 4])
EACH_SCHEME = pytest.mark.parametrize("scheme", SCHEMES)
H = 12
# Heads of keys that so many ranks can share evenly.
SHARED = [
    (world, h_kv)
    for world in (1, 2, 3, 4)
    for h_kv in (12, 6, 4, 3, 2, 1)
    if h_kv % world == 0 or world % h_kv == 0
]
UNEVEN = [(2, 3), (3, 4), (3, 2), (4, 6), (4, 3)]
PATIENCE = 60.0  # seconds, far more than a run takes


def make_layer(h_kv: int = H, seed: int = 0, **options) -> MultiHeadAttention:
    """A layer in float64 with biases other than 0, and values of another width than keys."""
    sizes = {"d_model": 7, "h": H, "h_kv": h_kv, "d_k": 4, "d_v": 3} | options
    return draw_layer(seed, **sizes)


def assert_same(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, check_stride=False)


# A layer in parts


def heads_of(layer: MultiHeadAttention, rank: int, world: int) -> tuple[list[int], list[int]]:
    """Count out the heads of a rank, and the heads of keys that they read."""
    mine = [head for head in range(layer.h) if head * world // layer.h == rank]
    return mine, sorted({head * layer.h_kv // layer.h for head in mine})


def gradients_of_the_whole(
    layer: MultiHeadAttention, parts: list[dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Put the gradients of the parts in their places; those of copies of a head add up."""
    whole = {name: torch.zeros_like(parameter) for name, parameter in layer.named_parameters()}
    sizes = layer.h * layer.d_k, layer.h_kv * layer.d_k, layer.h_kv * layer.d_v
    for rank, part in enumerate(parts):
        mine, read = heads_of(layer, rank, len(parts))
        pieces = (mine, layer.d_k), (read, layer.d_k), (read, layer.d_v)
        for name in ("w_qkv.weight", "w_qkv.bias"):
            if name not in part:
                continue
            found = part[name].split([len(heads) * d for heads, d in pieces])
            for place, own, (heads, d) in zip(whole[name].split(sizes), found, pieces, strict=True):
                for index, head in enumerate(heads):
                    place[head * d : (head + 1) * d] += own[index * d : (index + 1) * d]
        for index, head in enumerate(mine):
            d = layer.d_v
            slab = part["w_o.weight"][:, index * d : (index + 1) * d]
            whole["w_o.weight"][:, head * d : (head + 1) * d] += slab
        if "w_o.bias" in part:
            whole["w_o.bias"] += part["w_o.bias"]
    return whole


def assert_parts_make_the_whole(layer, world, x, context=None, mask=None, **options):
    """Compare the output, and the gradients in the inputs and in all parameters."""
    cotangent = draw(*x.shape, seed=9)
    inputs = [x] if context is None else [x, context]

    def compute(rank: Rank) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
        part = shard(layer, rank.rank, world)
        own = [each.clone().requires_grad_() for each in inputs]
        mine, _ = heads_of(layer, rank.rank, world)
        may = mask[:, mine] if mask is not None and mask.shape[1] == layer.h else mask
        out = part(*own, mask=may, **options)
        names, parameters = zip(*part.named_parameters(), strict=True)
        found = torch.autograd.grad(out, [*own, *parameters], cotangent)
        into_inputs = [rank.all_reduce(each) for each in found[: len(own)]]
        return rank.all_reduce(out), into_inputs, dict(zip(names, found[len(own) :], strict=True))

    results = run(compute, world, timeout=PATIENCE)
    inputs = [each.clone().requires_grad_() for each in inputs]
    whole = layer(*inputs, mask=mask, **options)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    right = torch.autograd.grad(whole, [*inputs, *parameters], cotangent)
    for out, into_inputs, _ in results:
        assert_same(out, whole.detach())
        for one, other in zip(into_inputs, right, strict=False):
            assert_same(one, other)
    ours = gradients_of_the_whole(layer, [part for _, _, part in results])
    for name, other in zip(names, right[len(inputs) :], strict=True):
        assert_same(ours[name], other)


@pytest.mark.parametrize(("world", "h_kv"), SHARED)
def test_the_sum_of_the_parts_is_the_whole_in_value_and_gradient(world, h_kv):
    assert_parts_make_the_whole(make_layer(h_kv), world, draw(2, 5, 7))


MANY = torch.rand(2, H, 5, 6, generator=torch.Generator().manual_seed(0)) < 0.6
VARIANTS = {
    "without biases": ({"bias": False}, {}),
    "rotary, causal": ({"rotary_base": 10.0}, {"is_causal": True}),
    "a context": ({"d_v": 4}, {"context": draw(2, 6, 7, seed=1)}),
    "a mask for each head": ({}, {"context": draw(2, 6, 7, seed=1), "mask": MANY}),
    "a mask for all": ({}, {"context": draw(2, 6, 7, seed=1), "mask": MANY[:, :1]}),
}


@pytest.mark.parametrize(("options", "call"), VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize(("world", "h_kv"), [(3, 12), (2, 6), (4, 2)])
def test_the_parts_do_what_the_layer_does(world, h_kv, options, call):
    assert_parts_make_the_whole(make_layer(h_kv, **options), world, draw(2, 5, 7), **call)


def test_the_weights_of_a_part_are_those_of_its_heads():
    layer, x = make_layer(6), draw(2, 5, 7)
    _, whole = layer(x, return_weights=True)
    parts = run(lambda rank: shard(layer, rank.rank, 3)(x, return_weights=True)[1], 3)
    assert_same(torch.cat(parts, 1), whole, 1e-12)


@WORLDS
@pytest.mark.parametrize("h_kv", [12, 1])
def test_each_number_has_its_rank_and_the_bias_has_one(world, h_kv):
    layer = make_layer(h_kv)
    parts = [shard(layer, rank, world) for rank in range(world)]
    assert [part.w_o.bias is not None for part in parts] == [True] + [False] * (world - 1)
    assert [(part.h, part.h_kv) for part in parts] == [(H // world, max(h_kv // world, 1))] * world
    copies = (world - 1) * (4 + 3) * (7 + 1) if h_kv == 1 else 0
    counted = sum(parameter.numel() for part in parts for parameter in part.parameters())
    assert counted == sum(parameter.numel() for parameter in layer.parameters()) + copies


def test_a_part_has_the_layers_type_mode_and_dropout_and_its_own_memory():
    layer = make_layer(dropout=0.25, rotary_base=50.0).to(torch.bfloat16).eval()
    before, random = [p.clone() for p in layer.parameters()], torch.get_rng_state()
    for rank in range(2):
        part = shard(layer, rank, 2)
        assert (part.dropout, part.rotary_base, part.training) == (0.25, 50.0, False)
        assert {p.dtype for p in part.parameters()} == {torch.bfloat16}
        assert all(p.requires_grad for p in part.parameters())
        for parameter in part.parameters():
            nn.init.zeros_(parameter)
    assert shard(layer.train(), 0, 2).training
    assert all(torch.equal(*pair) for pair in zip(layer.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_parts_of_a_layer_with_a_latent_make_the_whole_and_cache_it_each(world, bias):
    sizes = {"d_model": 6, "h": 4, "d_c": 5, "d_k": 4, "d_v": 3, "d_rotary": 2}
    layer, x = LatentAttention(**sizes, bias=bias).double(), draw(2, 5, 6)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    parts = [shard_latent(layer, rank, world) for rank in range(world)]
    assert_same(sum(part(x, is_causal=True) for part in parts), layer(x, is_causal=True))
    assert all(torch.equal(part.w_down.weight, layer.w_down.weight) for part in parts)
    assert {part.h for part in parts} == {4 // world}


@WORLDS
def test_parts_of_a_feed_forward_make_the_whole(world):
    layer, x = FeedForward(5, 12).double(), draw(2, 3, 5)
    parts = [shard_feed_forward(layer, rank, world) for rank in range(world)]
    assert_same(sum(part(x) for part in parts), layer(x))
    assert [part.contract.bias is not None for part in parts] == [True] + [False] * (world - 1)


# Positions dealt


@st.composite
def cases(draw_one):
    """A world, heads of queries and of keys that it can share, positions, widths."""
    world = draw_one(st.integers(1, 4))
    h_kv = world * draw_one(st.integers(1, 2))
    if world > 1 and draw_one(st.booleans()):
        h_kv = draw_one(st.sampled_from([i for i in range(1, world) if world % i == 0]))
    each = draw_one(st.integers(1, 2)) * (1 if h_kv % world == 0 else world // h_kv)
    n = 2 * world * draw_one(st.integers(1, 3))
    return world, h_kv * each, h_kv, n, draw_one(st.integers(1, 4)), draw_one(st.integers(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("attend", [ring, ulysses])
@settings(max_examples=15, derandomize=True, database=None)
@given(case=cases(), zigzag=st.booleans(), seed=st.integers(0, 2**16))
def test_positions_on_ranks_give_what_one_rank_gives_forward_and_backward(
    attend, case, zigzag, seed
):
    world, h, h_kv, n, d_k, d_v = case
    shapes = [(2, h, n, d_k), (2, h_kv, n, d_k), (2, h_kv, n, d_v)]
    qkv = [draw(*shape, seed=seed + i).requires_grad_() for i, shape in enumerate(shapes)]
    dy = draw(2, h, n, d_v, seed=seed + 3)
    whole = scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)
    right = torch.autograd.grad(whole, qkv, dy)
    positions = places(n, world, zigzag=zigzag)

    def compute(rank: Rank) -> list[Tensor]:
        mine = positions[rank.rank]
        own = [x.detach()[..., mine, :].requires_grad_() for x in qkv]
        out = attend(*own, rank, positions, d_k**-0.5)
        return [out.detach(), *torch.autograd.grad(out, own, dy[..., mine, :])]

    for mine, results in zip(positions, run(compute, world, timeout=PATIENCE), strict=True):
        for found, wanted in zip(results, [whole.detach(), *right], strict=True):
            assert_same(found, wanted[..., mine, :], 1e-12)


def test_zigzag_gives_each_a_block_from_the_front_and_one_as_far_from_the_end():
    assert places(12, 3, zigzag=True).tolist() == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    assert places(6, 3).tolist() == [[0, 1], [2, 3], [4, 5]]


# A step of training

KINDS = {
    "the story GPT": load_gpt,
    "two key heads": partial(small_gpt, 0, h_kv=2),
    "one key head": partial(small_gpt, 0, h_kv=1),
}


def as_parameters(model: GPT) -> GPT:
    """Write a model's gradients in the places of its weights, to be dealt like them."""
    gradients = deepcopy(model)
    for name, weight in model.named_parameters():
        gradients.get_parameter(name).data.copy_(weight.grad)
    return gradients


@EACH_SCHEME
@pytest.mark.parametrize(("kind", "world"), [(kind, 4) for kind in KINDS] + [("one key head", 2)])
def test_a_step_on_ranks_is_a_step_on_one(scheme, kind, world):
    model, ids = KINDS[kind]().double(), unseen(3).ids
    before = [weight.detach().clone() for weight in model.parameters()]
    alone = deepcopy(model)
    loss_on(alone, ids).backward()
    gradients = as_parameters(alone)

    def compute(rank: Rank) -> tuple[float, float]:
        part, right = deal(model, rank, scheme), deal(gradients, rank, scheme)
        loss = step(part, rank, scheme, ids)
        pairs = zip(part.parameters(), right.parameters(), strict=True)
        return loss.item(), max((a.grad - b).abs().max().item() for a, b in pairs)

    for loss, off in run(compute, world, timeout=PATIENCE):
        assert loss == pytest.approx(loss_on(alone, ids).item(), abs=1e-12)
        assert off < 1e-12
    assert all(map(torch.equal, model.parameters(), before))


@pytest.mark.weekly
@EACH_SCHEME
def test_training_on_ranks_gives_the_weights_of_one(scheme):
    batches, model = [unseen(8).ids[i : i + 2] for i in (0, 2, 4)], load_gpt().double()

    def optimizer(of: GPT) -> torch.optim.Optimizer:
        return torch.optim.AdamW(of.parameters(), 1e-3, foreach=False)

    alone = deepcopy(model)
    adam = optimizer(alone)
    for ids in batches:
        adam.zero_grad()
        loss_on(alone, ids).backward()
        adam.step()

    def compute(rank: Rank) -> float:
        part, right = deal(model, rank, scheme), deal(alone, rank, scheme)
        own = optimizer(part)
        for ids in batches:
            own.zero_grad()
            step(part, rank, scheme, ids)
            own.step()
        pairs = zip(part.parameters(), right.parameters(), strict=True)
        return max((a - b).abs().max().item() for a, b in pairs)

    assert max(run(compute, 4, timeout=PATIENCE)) < 1e-10
    assert (alone.words.weight - model.words.weight).abs().max() > 1e-4


SLIPS = {
    "no sum backward": ("tensor parallel", "copy_to_ranks", lambda x, rank: x),
    "summed twice": (
        "tensor parallel",
        "sum_of_ranks",
        lambda x, rank: parallel._mirrored(x, rank.all_reduce, rank.all_reduce),
    ),
    "no reduce-scatter backward": (
        "sequence parallel",
        "gather_positions",
        lambda x, rank: parallel._mirrored(
            x, partial(parallel._gathered, rank), lambda g: g.chunk(rank.world, -2)[rank.rank]
        ),
    ),
}


@pytest.mark.parametrize(("scheme", "name", "slip"), SLIPS.values(), ids=SLIPS)
def test_a_collective_whose_mirror_is_wrong_leaves_the_loss_and_spoils_gradients(
    scheme, name, slip, monkeypatch
):
    model, ids = small_gpt(0).double(), unseen(2).ids
    alone = deepcopy(model)
    loss_on(alone, ids).backward()
    gradients = as_parameters(alone)
    monkeypatch.setattr(parallel, name, slip)

    def compute(rank: Rank) -> tuple[float, float]:
        part, right = deal(model, rank, scheme), deal(gradients, rank, scheme)
        loss = step(part, rank, scheme, ids)
        pairs = zip(part.parameters(), right.parameters(), strict=True)
        return loss.item(), max((a.grad - b).abs().max().item() for a, b in pairs)

    for loss, off in run(compute, 2, timeout=PATIENCE):
        assert loss == pytest.approx(loss_on(alone, ids).item(), abs=1e-12)
        assert off > 1e-4


@EACH_SCHEME
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_an_error_in_any_rank_ends_all_and_is_named(scheme, way):
    model, ids = load_gpt(), unseen(2).ids

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    def compute(rank: Rank) -> None:
        part = deal(model, rank, scheme)
        if rank.rank == 1 and way == "forward":
            part.blocks[1].attention.register_forward_pre_hook(fail)
        if rank.rank == 1 and way == "backward":
            part.blocks[1].feed_forward_norm.weight.register_hook(fail)
        step(part, rank, scheme, ids)

    with pytest.raises(RuntimeError, match=r"rank 1 of 4 failed.*MemoryError: no room"):
        run(compute, 4, timeout=PATIENCE)


@pytest.mark.parametrize("h_kv", [4, 2, 1])
def test_a_cache_on_ranks_holds_the_heads_of_its_rank(h_kv):
    model, ids = small_gpt(0, h_kv=h_kv).double(), unseen(2).ids[:, :7]

    def compute(rank: Rank) -> tuple[Tensor, int]:
        part = deal(model, rank, "tensor parallel")
        caches = part.caches()
        logits = [part(word, caches=caches) for word in ids.split([4, 1, 2], 1)]
        return torch.cat(logits, 1), sum(cache.nbytes for cache in caches)

    with torch.inference_mode():
        for world in (1, 2, 4):
            held = 2 * 2 * max(h_kv // world, 1) * 16 * 2 * 7 * 8
            for logits, nbytes in run(compute, world, timeout=PATIENCE):
                assert_same(logits, model(ids), 1e-11)
                assert nbytes == held


# Bytes


def numbers_sent(scheme: str, world: int, n: int, d: int, h: int, h_kv: int) -> float:
    """Give how many numbers a rank sends in one block, forward: the formulas of the chapter."""
    share = (world - 1) / world
    by_heads = 2 * 2 * share * n * d  # two all-reduces, or two all-gathers and reduce-scatters
    one_pass = 2 * share * n * d * h_kv / h
    copies = max(h_kv, world)  # heads of keys that are fewer than the ranks are copied
    swaps = (2 + 2 * copies / h) * share * n / world * d
    return {"ring": one_pass, "Ulysses": swaps}.get(scheme, by_heads)


@EACH_SCHEME
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(("h", "h_kv"), [(16, 16), (16, 2), (8, 1)])
def test_bytes_sent_are_those_of_the_formulas_and_a_ring_s_twice_backward(scheme, world, h, h_kv):
    B, n, d = 2, 16, 32
    model = GPT(11, d, h, 1, h_kv=h_kv).double()
    x = draw(B, n, d)
    mine = places(n, world) if scheme != "tensor parallel" else torch.arange(n).repeat(world, 1)

    def compute(rank: Rank) -> tuple[int, int]:
        block = deal(model, rank, scheme).stack()[0]
        own = x[:, mine[rank.rank]].requires_grad_()
        out, _ = block(own)
        forward = rank.sent
        out.sum().backward()
        return forward, rank.sent - forward

    wanted = B * 8 * numbers_sent(scheme, world, n, d, h, h_kv)
    backward = wanted * (2 if scheme == "ring" else 1)  # keys, values, and their gradients
    assert run(compute, world, timeout=PATIENCE) == [(wanted, backward)] * world


def test_tensor_parallel_sends_twice_and_sixteen_times_what_a_ring_does():
    for h_kv, ratio in ((16, 2), (2, 16)):
        heads, one_pass = (
            numbers_sent(scheme, 4, 16, 32, 16, h_kv) for scheme in ("tensor parallel", "ring")
        )
        assert heads == ratio * one_pass


def test_a_ring_keeps_nothing_of_the_blocks_that_came_by():
    kept: list[int] = []

    def compute(rank: Rank) -> None:
        q, k, v = (draw(1, 2, 16 // rank.world, 3).requires_grad_() for _ in range(3))
        if rank.rank == 0:
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: (kept.append(t.numel()), t)[1], lambda t: t
            ):
                ring(q, k, v, rank, places(16, rank.world), 1.0)
        else:
            ring(q, k, v, rank, places(16, rank.world), 1.0)

    for world in (2, 4):
        kept.clear()
        run(compute, world, timeout=PATIENCE)
        assert sum(kept) == (4 * 3 + 1) * 2 * 16 // world  # q, k, v and the output; lse


# Errors

ERRORS = {
    "not a layer": (
        lambda: shard(nn.Linear(2, 2), 0, 1),
        TypeError,
        ["labkit.MultiHeadAttention", "Linear", "from_torch"],
    ),
    "a latent whose rebuilt keys are rotated": (
        lambda: shard_latent(latent(make_layer(rotary_base=10.0, d_v=4), 3), 0, 2),
        TypeError,
        ["LatentAttention itself", "RotatedLatent"],
    ),
    "heads that ranks do not divide": (
        lambda: shard(make_layer(), 0, 5),
        ValueError,
        ["world must divide h", "h=12", "world=5", "[1, 2, 3, 4, 6, 12]"],
    ),
    "more ranks than heads": (lambda: shard(make_layer(), 0, 24), ValueError, ["world=24"]),
    "a part of no ranks": (lambda: shard(make_layer(), 0, 0), ValueError, ["world", "at least 1"]),
    "a rank too high": (
        lambda: shard(make_layer(), 4, 4),
        ValueError,
        ["between 0 and world - 1 = 3", "got 4"],
    ),
    "a rank below 0": (lambda: shard(make_layer(), -1, 4), ValueError, ["between 0", "got -1"]),
    "half a part": (lambda: shard(make_layer(), 0.5, 4), TypeError, ["rank", "whole", "0.5"]),
    "positions that ranks do not divide": (
        lambda: places(10, 4),
        ValueError,
        ["n must be a multiple of 4", "got 10"],
    ),
    "positions that zigzag does not divide": (
        lambda: places(12, 4, zigzag=True),
        ValueError,
        ["n must be a multiple of 8", "got 12"],
    ),
    "another scheme": (
        lambda: deal(small_gpt(0), None, "pipeline"),
        ValueError,
        ["scheme", "ring", "pipeline"],
    ),
    "a cache where positions are dealt": (
        lambda: Across(make_layer(), ring, None)(draw(1, 2, 7), cache=KVCache()),
        ValueError,
        ["attend causally", "no mask or cache"],
    ),
} | {
    f"{h_kv} heads of keys on {world} ranks": (
        lambda world=world, h_kv=h_kv: shard(make_layer(h_kv), 0, world),
        ValueError,
        ["share keys evenly", f"h_kv={h_kv}", f"world={world}"],
    )
    for world, h_kv in UNEVEN
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
