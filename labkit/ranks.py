"""Ranks that work together, each in a thread of its own, on PyTorch's engine gloo.

The messages between them are real: gloo sends them through sockets, as it would between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from labkit.arguments import above_zero, check_tensor, divisors, size, whole
from labkit.attention import MultiHeadAttention, check_layer, with_heads

Result = TypeVar("Result")
Said = dict[int, list[str]]  # for each call, what every rank is about to send

__all__ = ["Rank", "has_gloo", "run", "shard"]

JOINING = timedelta(seconds=60)  # for ranks to find each other, and for a message


class Rank:
    """One of several that run the same function: which one it is, and how it reaches the others.

    Every rank has to make the same calls in the same order, with tensors of one shape and type;
    before a message is sent they compare. Tensors are copied as numbers: no gradient passes from
    one rank to another.
    """

    def __init__(self, rank: int, group: Any, meeting: Barrier, said: Said) -> None:
        self.rank = rank
        self.world = meeting.parties
        self.sent = 0  # bytes that this rank has handed on by shift
        self._group = group
        self._meeting = meeting
        self._said = said
        self._calls = 0

    def __repr__(self) -> str:
        return f"Rank({self.rank} of {self.world})"

    def all_reduce(self, t: Tensor) -> Tensor:
        """Sum a tensor over the ranks: each gives its own, (...), and gets the sum, (...).

        Raises:
            TypeError: not a tensor.
            ValueError: another rank makes another call, or with another shape or type.
        """
        total = self._ready("all_reduce", t)
        self._group.allreduce([total]).wait()
        return total

    def all_gather(self, t: Tensor) -> list[Tensor]:
        """Collect every rank's tensor, all of one shape: a list in the order of the ranks.

        Raises:
            TypeError: not a tensor.
            ValueError: another rank makes another call, or with another shape or type.
        """
        own = self._ready("all_gather", t)
        found = [torch.empty_like(own) for _ in range(self.world)]
        self._group.allgather([found], [own]).wait()
        return found

    def shift(self, t: Tensor) -> Tensor:
        """Hand a tensor to the next rank, and return what the one before handed on, of its shape.

        The last rank hands on to the first. Alone, a rank gets its own tensor back.

        Raises:
            TypeError: not a tensor.
            ValueError: another rank makes another call, or with another shape or type.
        """
        own = self._ready("shift", t)
        if self.world == 1:
            return own
        came = torch.empty_like(own)
        sending = self._group.send([own], (self.rank + 1) % self.world, 0)
        self._group.recv([came], (self.rank - 1) % self.world, 0).wait()
        sending.wait()
        self.sent += own.nbytes
        return came

    def _ready(self, call: str, t: Tensor) -> Tensor:
        """Return a copy that gloo can send, once all ranks are about to make this call.

        Two calls or two sizes that do not fit would end the process, or never end.
        """
        check_tensor("t", t, 0, "(...)")
        said = self._said.setdefault(self._calls, [""] * self.world)
        said[self.rank] = f"{call} of {tuple(t.shape)}, {t.dtype}"
        self._meeting.wait()
        self._said.pop(self._calls - 1, None)
        self._calls += 1
        if len(set(said)) > 1:
            told = "; ".join(f"rank {rank}: {one}" for rank, one in enumerate(said))
            raise ValueError(
                "all ranks must make the same call, with tensors of one shape and type; got "
                f"{told}."
            )
        return t.detach().clone(memory_format=torch.contiguous_format)


def run(function: Callable[[Rank], Result], world: int, *, timeout: float = 60.0) -> list[Result]:
    """Call function(rank) in each of so many ranks at once, and return what each returned.

    Args:
        function: what every rank calls; ``rank.rank`` says which one it is. Ranks share the memory
            of this process, so a rank must not write into what others read, nor draw from the
            random numbers they share: give each a generator or draw before.
        world: number of ranks.
        timeout: seconds, above 0, after which the run is given up.

    Returns:
        The results, in the order of the ranks.

    Raises:
        TypeError: a function that cannot be called, or a size that is not a whole number.
        ValueError: a world under 1, or a timeout that is not above 0.
        RuntimeError: a rank failed, which is named with its error.
        TimeoutError: ranks that had not returned in time, which are named.

    >>> run(lambda rank: rank.all_reduce(torch.tensor(rank.rank + 1)).item(), 3)
    [6, 6, 6]
    """
    if not callable(function):
        raise TypeError(f"function must be callable; got a {type(function).__name__}.")
    world, timeout = size("world", world), above_zero("timeout", timeout)
    ranks = _connect(world)
    gradients = torch.is_grad_enabled()  # a thread does not inherit it

    def call(rank: Rank, result: Future[Result]) -> None:
        try:
            with torch.set_grad_enabled(gradients):
                result.set_result(function(rank))
        except BaseException as error:
            result.set_exception(error)

    results: list[Future[Result]] = [Future() for _ in range(world)]
    for each in zip(ranks, results, strict=True):
        Thread(target=call, args=each, daemon=True).start()
    try:
        wait(results, timeout, FIRST_EXCEPTION)
        _check(results, timeout)
    finally:
        ranks[0]._meeting.abort()  # or those that wait there would wait for ever
    return [result.result() for result in results]


def has_gloo() -> bool:
    """Say whether this PyTorch was built with the engine that ``run`` needs."""
    return distributed.is_available() and hasattr(distributed, "ProcessGroupGloo")


def shard(layer: MultiHeadAttention, rank: int, world: int) -> MultiHeadAttention:
    """Give one rank's heads as a layer of its own; the outputs of all ranks add up to the whole.

    Rank r takes heads r h/W to (r + 1) h/W - 1: their rows of W^Q, the rows of W^K and W^V that
    they read, and their columns of W^O. Rank 0 alone has W^O's bias. Where fewer heads of keys
    than ranks are, several ranks hold copies of one, whose gradients are to be summed.

    Args:
        layer: any, which is left as it is.
        rank: which part, from 0 on.
        world: number of parts.

    Raises:
        TypeError: not a MultiHeadAttention, or a number that is not whole.
        ValueError: a world that does not divide h, a rank outside it, or heads of keys that the
            parts would read unevenly.

    Source: Shoeybi et al. (2019), section 3.

    >>> shard(MultiHeadAttention(8, 4), 0, 2).h
    2
    """
    rank, world = _check_part(layer, rank, world)
    h, readers = layer.h // world, layer.h // layer.h_kv
    mine = torch.arange(rank * h, (rank + 1) * h)
    read = (mine // readers).unique()
    part = with_heads(layer, h, len(read))  # draws none of the random numbers that ranks share
    with torch.no_grad():
        for own, of_all, heads, kept in (
            (part.w_q, layer.w_q, layer.h, mine),
            (part.w_k, layer.w_k, layer.h_kv, read),
            (part.w_v, layer.w_v, layer.h_kv, read),
        ):
            own.weight.copy_(of_all.weight.unflatten(0, (heads, -1))[kept].flatten(0, 1))
            if own.bias is not None and of_all.bias is not None:
                own.bias.copy_(of_all.bias.unflatten(0, (heads, -1))[kept].flatten())
        part.w_o.weight.copy_(layer.w_o.weight.unflatten(1, (layer.h, -1))[:, mine].flatten(1))
        if layer.w_o.bias is not None:
            part.w_o.bias.copy_(layer.w_o.bias)
    if rank:
        part.w_o.register_parameter("bias", None)
    return part


def _connect(world: int) -> list[Rank]:
    """Return ranks, each with a ProcessGroupGloo that is joined to the others'."""
    if not has_gloo():
        raise RuntimeError(
            "this PyTorch was built without the engine gloo, which its builds for Linux and macOS "
            "have. On Windows run this in WSL or in Colab."
        )
    store, meeting, said = distributed.HashStore(), Barrier(world), Said()

    def join(rank: int) -> Any:
        return distributed.ProcessGroupGloo(store, rank, world, JOINING)

    with ThreadPoolExecutor(world) as pool:
        groups = list(pool.map(join, range(world)))
    return [Rank(rank, group, meeting, said) for rank, group in enumerate(groups)]


def _check(results: list[Future[Result]], timeout: float) -> None:
    """Raise for the first rank that failed, or for those that are late."""
    world = len(results)
    for rank, result in enumerate(results):
        error = result.exception(0) if result.done() else None
        if error is not None:
            raise RuntimeError(
                f"rank {rank} of {world} failed, and the others were given up: "
                f"{type(error).__name__}: {error}"
            ) from error
    late = [rank for rank, result in enumerate(results) if not result.done()]
    if late:
        raise TimeoutError(
            f"ranks {late} of {world} had not returned after {timeout:g} s; every rank must make "
            "the same calls in the same order. Mend that, or give the run a longer timeout."
        )


def _check_part(layer: MultiHeadAttention, rank: int, world: int) -> tuple[int, int]:
    check_layer(layer)
    rank, world = whole("rank", rank), size("world", world)
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie between 0 and world - 1 = {world - 1}; got {rank}.")
    if layer.h % world:
        raise ValueError(
            f"world must divide h, so that each rank takes as many heads; got h={layer.h} and "
            f"world={world}. Choose one of {divisors(layer.h)}."
        )
    if layer.h_kv % world and world % layer.h_kv:
        raise ValueError(
            f"world must divide h_kv or be a multiple of it, so that each rank's heads share keys "
            f"evenly; got h_kv={layer.h_kv} and world={world}."
        )
    return rank, world
