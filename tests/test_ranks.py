"""labkit's ranks: the parts of a layer against the whole, a ring, failures named in time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import Tensor, nn

from labkit import MultiHeadAttention, causal_mask, scaled_dot_product_attention
from labkit.ranks import Rank, run, shard
from labkit.tiles import merge, partial_attention
from tests.drawn import draw, draw_layer
from tests.refusing import check_refusal

WORLDS = pytest.mark.parametrize("world", [1, 2, 3, 4])
H = 12
# Heads of keys that so many ranks can share evenly.
SHARED = [
    (world, h_kv)
    for world in (1, 2, 3, 4)
    for h_kv in (12, 6, 4, 3, 2, 1)
    if h_kv % world == 0 or world % h_kv == 0
]
UNEVEN = [(2, 3), (3, 4), (3, 2), (4, 6), (4, 3)]
PATIENCE = 20.0  # seconds, far more than a run takes


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


# What passes between ranks


@WORLDS
def test_a_sum_is_the_same_for_all_and_leaves_what_was_given(world):
    given = draw(world, 3, 4).transpose(1, 2)

    def compute(rank: Rank) -> Tensor:
        own = given[rank.rank].clone().requires_grad_()
        total = rank.all_reduce(own)
        assert torch.equal(own, given[rank.rank])
        assert not total.requires_grad
        return total

    for total in run(compute, world):
        assert_same(total, given.sum(0), 1e-12)


@WORLDS
def test_what_is_gathered_stands_in_the_order_of_the_ranks(world):
    given = draw(world, 3, 4).transpose(1, 2)
    for found in run(lambda rank: rank.all_gather(given[rank.rank]), world):
        assert torch.equal(torch.stack(found), given)


@WORLDS
def test_a_shift_hands_on_to_the_next_and_counts_what_it_sends(world):
    given = draw(world, 3, 4).transpose(1, 2)

    def compute(rank: Rank) -> tuple[list[Tensor], int, str]:
        came = [given[rank.rank]]
        for _ in range(world):
            came.append(rank.shift(came[-1]))
        assert rank.world == world
        rank.all_reduce(torch.ones(1))  # which is not counted
        return came, rank.sent, repr(rank)

    for rank, (came, sent, name) in enumerate(run(compute, world)):
        for steps, tensor in enumerate(came):
            assert torch.equal(tensor, given[(rank - steps) % world])
        assert sent == (world * 12 * 8 if world > 1 else 0)
        assert name == f"Rank({rank} of {world})"


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]
)
def test_numbers_of_each_type_can_be_sent(dtype):
    def compute(rank: Rank) -> tuple[Tensor, ...]:
        own = torch.tensor(rank.rank + 1, dtype=dtype)
        return rank.all_reduce(own), *rank.all_gather(own), rank.shift(own)

    for rank, found in enumerate(run(compute, 2)):
        assert [x.item() for x in found] == [3, 1, 2, 2 - rank]
        assert {x.dtype for x in found} == {dtype}


def ring(rank: Rank, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, int]:
    """Attend from one rank's queries, while keys and values go round."""
    n = q.shape[-2] // rank.world
    places = [slice(each * n, (each + 1) * n) for each in range(rank.world)]
    may = causal_mask(q.shape[-2])[places[rank.rank]]
    keys, row = torch.cat([k, v], -1)[..., places[rank.rank], :], None
    for step in range(rank.world):
        came_from = places[(rank.rank - step) % rank.world]
        own_k, own_v = keys.split([k.shape[-1], v.shape[-1]], -1)
        mask = may[:, came_from] if is_causal else None
        part = partial_attention(q[..., places[rank.rank], :], own_k, own_v, mask=mask)
        row = part if row is None else merge(row, part)
        if step + 1 < rank.world:
            keys = rank.shift(keys)
    return row.out, rank.sent


@WORLDS
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_ring_equals_attention_to_all(world, is_causal):
    n = 4 * world
    q, k, v = draw(2, 3, n, 4), draw(2, 3, n, 4, seed=1), draw(2, 3, n, 5, seed=2)
    results = run(lambda rank: ring(rank, q, k, v, is_causal), world)
    whole = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    assert_same(torch.cat([out for out, _ in results], -2), whole, 1e-12)
    assert {sent for _, sent in results} == {(world - 1) * 2 * 3 * 4 * (4 + 5) * 8}


def test_results_stand_in_the_order_of_the_ranks_whoever_is_first():
    def compute(rank: Rank) -> int:
        time.sleep(0.02 * (3 - rank.rank))
        return rank.rank * 10

    assert run(compute, 4) == [0, 10, 20, 30]


def test_ranks_record_gradients_where_the_caller_does():
    weight = torch.ones(1, requires_grad=True)
    assert run(lambda rank: (2 * weight).requires_grad, 2) == [True, True]
    with torch.no_grad():
        assert run(lambda rank: (2 * weight).requires_grad, 2) == [False, False]


# Failures


def collective(rank: Rank) -> None:
    rank.all_reduce(torch.ones(1))


WAITING = {
    "in a sum": collective,
    "in a gathering": lambda rank: rank.all_gather(torch.ones(1)),
    "in a shift": lambda rank: rank.shift(torch.ones(1)),
    "asleep": lambda rank: time.sleep(PATIENCE),
}


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
def test_an_error_is_named_at_once(wait):
    def compute(rank: Rank) -> None:
        if rank.rank == 2:
            raise KeyError("no such head")
        wait(rank)

    start = time.monotonic()
    with pytest.raises(RuntimeError) as raised:
        run(compute, 4, timeout=PATIENCE)
    assert time.monotonic() - start < PATIENCE / 2
    for words in ("rank 2 of 4 failed", "KeyError: 'no such head'", "the others were given up"):
        assert words in str(raised.value)
    assert isinstance(raised.value.__cause__, KeyError)


AT_ODDS = {
    "another size": (
        lambda rank: rank.all_reduce(torch.ones(2 + rank.rank)),
        r"rank 0: all_reduce of \(2,\), torch.float32; rank 1: all_reduce of \(3,\)",
    ),
    "another shape": (
        lambda rank: rank.shift(torch.ones(2, 3).T if rank.rank else torch.ones(2, 3)),
        r"rank 1: shift of \(3, 2\)",
    ),
    "another type": (
        lambda rank: rank.all_gather(torch.ones(1).to([torch.float64, torch.int64][rank.rank])),
        "rank 1: all_gather of .*torch.int64",
    ),
    "another call": (
        lambda rank: (rank.shift if rank.rank else rank.all_reduce)(torch.ones(1)),
        "rank 0: all_reduce of .*rank 1: shift",
    ),
}


@pytest.mark.parametrize(("function", "told"), AT_ODDS.values(), ids=AT_ODDS)
def test_ranks_at_odds_are_told_before_anything_is_sent(function, told):
    with pytest.raises(RuntimeError, match=f"all ranks must make the same call.*{told}"):
        run(function, 2, timeout=PATIENCE)


@pytest.mark.parametrize("world", [1, 3])
def test_a_rank_that_leaves_is_an_error_like_any_other(world):
    def compute(rank: Rank) -> None:
        sys.exit(3)

    with pytest.raises(RuntimeError, match=f"rank 0 of {world} failed.*SystemExit: 3"):
        run(compute, world, timeout=PATIENCE)


def returns_early(rank: Rank) -> None:
    if rank.rank != 1:
        collective(rank)


def hangs(rank: Rank) -> None:
    if rank.rank in (0, 2):
        time.sleep(3)


def calls_another(rank: Rank) -> None:
    if rank.rank == 1:
        return
    time.sleep(3) if rank.rank == 0 else collective(rank)


@pytest.mark.parametrize("function", [returns_early, hangs, calls_another])
def test_ranks_that_are_late_are_named_in_time(function):
    start = time.monotonic()
    with pytest.raises(TimeoutError) as raised:
        run(function, 3, timeout=0.5)
    assert 0.5 <= time.monotonic() - start < 2.5
    for words in ("ranks [0, 2] of 3", "after 0.5 s", "the same calls in the same order"):
        assert words in str(raised.value)


def test_a_run_after_a_failed_one_is_a_run_like_any_other():
    for function in (returns_early, hangs):
        with pytest.raises(TimeoutError):
            run(function, 3, timeout=0.1)
        assert run(lambda rank: rank.all_reduce(torch.tensor(1)).item(), 3) == [3, 3, 3]


def raises(rank: Rank) -> None:
    if rank.rank == 1:
        raise ValueError("lost")
    collective(rank)


@pytest.mark.parametrize("function", [returns_early, raises])
def test_ranks_that_wait_are_let_go(function):
    before = set(threading.enumerate())
    with pytest.raises((TimeoutError, RuntimeError)):
        run(function, 3, timeout=0.5)
    stop = time.monotonic() + PATIENCE
    while set(threading.enumerate()) - before and time.monotonic() < stop:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_a_script_whose_ranks_are_at_odds_ends_by_itself():
    """Threads that wait for gloo when Python ends would make it abort."""
    code = """
import time, torch
from labkit.ranks import run
def at_odds(rank):
    rank.shift(torch.ones(1)) if rank.rank else rank.all_reduce(torch.ones(1))
def lost(rank):
    if rank.rank == 1:
        raise ValueError("lost")
    time.sleep(300) if rank.rank else rank.all_reduce(torch.ones(1))
try:
    run(at_odds, 3, timeout=600)
except RuntimeError as error:
    print(error)
run(lost, 3, timeout=600)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "all ranks must make the same call" in done.stdout
    last = "RuntimeError: rank 1 of 3 failed, and the others were given up: ValueError: lost"
    assert done.stderr.rstrip().endswith(last)
    assert done.returncode == 1


# Errors

ALONE = Rank(0, None, threading.Barrier(1), {})
ERRORS = {
    "not a function": (lambda: run(3, 2), TypeError, ["function", "callable", "int"]),
    "no ranks": (lambda: run(collective, 0), ValueError, ["world", "at least 1", "0"]),
    "half a rank": (lambda: run(collective, 1.5), TypeError, ["world", "whole", "1.5"]),
    "no time": (lambda: run(collective, 1, timeout=0), ValueError, ["timeout", "above 0", "0"]),
    "time gone by": (lambda: run(collective, 1, timeout=-1), ValueError, ["timeout", "above 0"]),
    "time in words": (lambda: run(collective, 1, timeout="a"), TypeError, ["timeout", "str"]),
    "time without end": (
        lambda: run(collective, 1, timeout=float("inf")),
        ValueError,
        ["timeout", "finite"],
    ),
    "a sum of a list": (lambda: ALONE.all_reduce([1]), TypeError, ["t", "torch.Tensor", "list"]),
    "a gathering of a list": (lambda: ALONE.all_gather([1]), TypeError, ["torch.Tensor", "list"]),
    "a shift of a list": (lambda: ALONE.shift([1]), TypeError, ["t", "torch.Tensor", "list"]),
    "not a layer": (
        lambda: shard(nn.Linear(2, 2), 0, 1),
        TypeError,
        ["labkit.MultiHeadAttention", "Linear", "from_torch"],
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


def test_what_the_engine_lacks_is_said(monkeypatch):
    monkeypatch.delattr(torch.distributed, "ProcessGroupGloo")
    with pytest.raises(RuntimeError, match="gloo, which its builds for Linux and macOS have"):
        run(collective, 1)
