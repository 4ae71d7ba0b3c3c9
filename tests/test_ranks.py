"""labkit's ranks: what passes between them, what is sent, failures named in time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import Tensor

from labkit import causal_mask, scaled_dot_product_attention
from labkit.ranks import Rank, run
from labkit.tiles import merge, partial_attention
from tests.drawn import draw
from tests.refusing import check_refusal

WORLDS = pytest.mark.parametrize("world", [1, 2, 3, 4])
PATIENCE = 20.0  # seconds, far more than a run takes


def assert_same(one: Tensor, other: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, check_stride=False)


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
def test_a_sum_is_scattered_by_rows(world):
    given = draw(world, world, 3, 4).transpose(2, 3)
    rows = run(lambda rank: rank.reduce_scatter(given[rank.rank]), world)
    assert_same(torch.stack(rows), given.sum(0), 1e-12)


@WORLDS
def test_all_to_all_transposes_rows_and_ranks(world):
    given = draw(world, world, 3, 4).transpose(2, 3)
    came = run(lambda rank: rank.all_to_all(given[rank.rank]), world)
    assert torch.equal(torch.stack(came), given.transpose(0, 1))


CALLS = {
    "all_reduce": (lambda rank, t: rank.all_reduce(t), lambda W: 2 * (W - 1) / W),
    "reduce_scatter": (lambda rank, t: rank.reduce_scatter(t), lambda W: (W - 1) / W),
    "all_gather": (lambda rank, t: rank.all_gather(t), lambda W: W - 1),
    "all_to_all": (lambda rank, t: rank.all_to_all(t), lambda W: (W - 1) / W),
    "shift": (lambda rank, t: rank.shift(t), lambda W: min(W - 1, 1)),
    "shift back": (lambda rank, t: rank.shift(t, -1), lambda W: min(W - 1, 1)),
}


@WORLDS
@pytest.mark.parametrize(("call", "share"), CALLS.values(), ids=CALLS)
def test_what_is_counted_is_what_was_handed_to_the_engine(world, call, share):
    class Watched:
        """The engine, and the bytes that it is given to send."""

        def __init__(self, engine) -> None:
            self.engine, self.sent, self.recv = engine, 0, engine.recv

        def send(self, tensors, *where):
            self.sent += sum(t.nbytes for t in tensors)
            return self.engine.send(tensors, *where)

    def compute(rank: Rank) -> tuple[int, int]:
        rank._engine = Watched(rank._engine)
        call(rank, torch.ones(world, 3, 5))
        return rank.sent, rank._engine.sent

    bytes_given = world * 3 * 5 * 4
    assert run(compute, world) == [(share(world) * bytes_given,) * 2] * world


def test_a_tensor_that_ranks_do_not_divide_is_summed_all_the_same():
    for shape in ((), (1,), (5,), (7, 2)):
        given = draw(3, *shape)
        for total in run(lambda rank, given=given: rank.all_reduce(given[rank.rank]), 3):
            assert_same(total, given.sum(0), 1e-12)


def test_a_sum_has_the_same_bits_on_all_ranks():
    given = draw(4, 1000).float()
    totals = run(lambda rank: rank.all_reduce(given[rank.rank]), 4)
    assert all(torch.equal(total, totals[0]) for total in totals)


def test_a_group_calls_itself_alone_in_its_own_order():
    def compute(rank: Rank) -> tuple[list[int], int, str, int]:
        pair = rank.group([3, 1] if rank.rank % 2 else [0, 2])
        for _ in range(rank.rank % 2):  # one group makes more calls than the other
            pair.all_reduce(torch.ones(1))
        found = [t.item() for t in pair.all_gather(torch.tensor([rank.rank], dtype=torch.int64))]
        everybody = rank.group(range(4)).all_reduce(torch.tensor(1)).item()
        alone = rank.group([rank.rank]).all_reduce(torch.tensor(rank.rank)).item()
        assert (everybody, alone) == (4, rank.rank)
        return found, pair.sent, repr(pair), rank.sent

    assert run(compute, 4) == [
        ([0, 2], 8, "Rank(0 of 2)", 0),
        ([3, 1], 12, "Rank(1 of 2)", 0),
        ([0, 2], 8, "Rank(1 of 2)", 0),
        ([3, 1], 12, "Rank(0 of 2)", 0),
    ]


def test_a_group_of_a_group():
    def compute(rank: Rank) -> list[int]:
        if rank.rank == 3:
            return []
        three = rank.group([2, 1, 0])
        return [t.item() for t in three.group([2, 0, 1]).all_gather(torch.tensor(rank.rank))]

    assert run(compute, 4) == [[0, 2, 1]] * 3 + [[]]


@WORLDS
def test_a_shift_hands_on_to_the_next_and_counts_what_it_sends(world):
    given = draw(world, 3, 4).transpose(1, 2)

    def compute(rank: Rank) -> tuple[list[Tensor], int, str]:
        came = [given[rank.rank]]
        for _ in range(world):
            came.append(rank.shift(came[-1]))
        assert rank.world == world
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


def test_ranks_are_in_inference_mode_where_the_caller_is():
    def compute(rank: Rank) -> tuple[bool, bool]:
        total = rank.all_reduce(torch.ones(2))
        return torch.is_inference_mode_enabled(), total.is_inference()

    assert run(compute, 2) == [(False, False)] * 2
    with torch.inference_mode():
        assert run(compute, 2) == [(True, True)] * 2


# Failures


def collective(rank: Rank) -> None:
    rank.all_reduce(torch.ones(1))


WAITING = {
    "in a sum": collective,
    "in a scattered sum": lambda rank: rank.reduce_scatter(torch.ones(4)),
    "in an exchange": lambda rank: rank.all_to_all(torch.ones(4)),
    "in a group": lambda rank: (
        rank.group([0, 1, 2]).all_reduce(torch.ones(1)) if rank.rank < 3 else None
    ),
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
        r"rank 1: shift by 1 of \(3, 2\)",
    ),
    "another type": (
        lambda rank: rank.all_gather(torch.ones(1).to([torch.float64, torch.int64][rank.rank])),
        "rank 1: all_gather of .*torch.int64",
    ),
    "another way": (
        lambda rank: rank.shift(torch.ones(1), 1 - 2 * rank.rank),
        "rank 0: shift by 1 of .*rank 1: shift by -1",
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


def waits_in_a_group(rank: Rank) -> None:
    if rank.rank != 1:
        rank.group([0, 1] if rank.rank == 0 else [1, 2]).all_reduce(torch.ones(1))


def joins_late(rank: Rank) -> None:
    if rank.rank == 1:
        raise ValueError("lost")
    time.sleep(1)  # the run is over when this group is made
    rank.group([0, 1, 2]).group([rank.rank, 1]).all_reduce(torch.ones(1))


@pytest.mark.parametrize("function", [returns_early, raises, waits_in_a_group, joins_late])
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

ALONE = Rank(0, (0,), None, {})
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
    "half a shift": (
        lambda: ALONE.shift(torch.ones(1), 0.5),
        TypeError,
        ["by", "whole", "0.5"],
    ),
    "a row too many": (
        lambda: ALONE.all_to_all(torch.ones(2)),
        ValueError,
        ["a row for each of 1 ranks", "got 2"],
    ),
    "no rows": (lambda: ALONE.reduce_scatter(torch.tensor(1)), ValueError, ["(W, ...)"]),
    "a group without oneself": (
        lambda: ALONE.group([]),
        ValueError,
        ["members", "0 among them", "[]"],
    ),
    "a group of strangers": (lambda: ALONE.group([0, 1]), ValueError, ["members", "[0, 1]"]),
    "a group with one twice": (lambda: ALONE.group([0, 0]), ValueError, ["each once", "[0, 0]"]),
    "a shift of a list": (lambda: ALONE.shift([1]), TypeError, ["t", "torch.Tensor", "list"]),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)


def test_what_the_engine_lacks_is_said(monkeypatch):
    monkeypatch.delattr(torch.distributed, "ProcessGroupGloo")
    with pytest.raises(RuntimeError, match="gloo, which its builds for Linux and macOS have"):
        run(collective, 1)
