"""Ranks that work together, each in a thread of its own, on PyTorch's engine gloo.

The messages between them are real: gloo sends them through sockets, as it would between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Barrier, Thread
from time import monotonic
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from labkit.arguments import above_zero, check_tensor, size, whole

Result = TypeVar("Result")
Members = tuple[int, ...]
# For each group of ranks, that of all first: where they meet, and what each is about to send.
Meetings = dict[Members, tuple[Barrier, list[str]]]

__all__ = ["Rank", "has_gloo", "run"]

JOINING = timedelta(seconds=60)  # for ranks to find each other, and for a message
LEAVING = 0.5  # seconds for those that wait for a rank that failed to come to their end


class Rank:
    """One of several that run the same function: which one it is, and how it reaches the others.

    Every rank has to make the same calls in the same order, with tensors of one shape and type;
    before a message is sent they compare. Tensors are copied as numbers: no gradient passes from
    one rank to another.

    Each collective is made of messages between two ranks, and ``sent`` counts the bytes that this
    rank has sent. Of W ranks and a tensor of so many bytes they are, where W divides the tensor:
    2 (W - 1)/W in all_reduce, (W - 1)/W in reduce_scatter and all_to_all, W - 1 in all_gather, and
    once in shift. All but all_to_all pass on to a neighbour alone, in a ring.

    Raises:
        TypeError: each collective, for what is no tensor.
        ValueError: each, where another rank makes another call, or with another shape or type, or
            where there is no row for each rank and (W, ...) is asked for.

    Source: Patarasuk and Yuan (2009) for the ring.
    """

    def __init__(self, me: int, members: Members, engine: Any, meetings: Meetings) -> None:
        self.rank, self.world = members.index(me), len(members)
        self.sent = 0
        self._me, self._members, self._engine, self._meetings = me, members, engine, meetings
        new = Barrier(self.world), [""] * self.world
        self._meeting, self._said = meetings.setdefault(members, new)
        if next(iter(meetings.values()))[0].broken:  # that of all ranks: the run is over
            self._meeting.abort()

    def __repr__(self) -> str:
        return f"Rank({self.rank} of {self.world})"

    def all_reduce(self, t: Tensor) -> Tensor:
        """Sum a tensor over the ranks: each gives its own, (...), and gets the sum, (...)."""
        own = self._ready("all_reduce", t)
        pieces = list(own.flatten().tensor_split(self.world))
        pieces[self.rank] = self._sum_round(pieces)
        return torch.cat(self._hand_round(pieces)).view_as(own)

    def reduce_scatter(self, t: Tensor) -> Tensor:
        """Sum a tensor over the ranks, and give each its row: each gives (W, ...), gets (...)."""
        return self._sum_round(list(self._ready("reduce_scatter", t, rows=True)))

    def all_gather(self, t: Tensor) -> list[Tensor]:
        """Collect every rank's tensor, all of one shape: a list in the order of the ranks."""
        return self._hand_round([self._ready("all_gather", t)] * self.world)

    def all_to_all(self, t: Tensor) -> Tensor:
        """Give row r of (W, ...) to rank r; return (W, ...), whose row r came from rank r."""
        own = self._ready("all_to_all", t, rows=True)
        came = own.clone()
        for step in range(1, self.world):
            came[self.rank - step] = self._pass(own[(self.rank + step) % self.world], step)
        return came

    def shift(self, t: Tensor, by: int = 1) -> Tensor:
        """Hand a tensor to the next rank, and return what the one before handed on, of its shape.

        The last rank hands on to the first. Alone, a rank gets its own tensor back.

        Args:
            t: (...).
            by: how many ranks further; -1 hands back to the one before.
        """
        return self._pass(self._ready(f"shift by {whole('by', by)}", t), by)

    def group(self, members: Sequence[int]) -> Rank:
        """Give this rank's place among some of the ranks, numbered in this order from 0.

        What is sent there is counted there.

        Raises:
            ValueError: members that are not some of the ranks, each once, or lack this one.
        """
        known = [self._members[i] for i in members if i in range(self.world)]
        if not len(members) == len(known) == len(set(known)) or self._me not in known:
            raise ValueError(
                f"members must be some of the ranks 0 to {self.world - 1}, each once, with "
                f"{self.rank} among them; got {list(members)}."
            )
        return Rank(self._me, tuple(known), self._engine, self._meetings)

    def _sum_round(self, pieces: list[Tensor]) -> Tensor:
        """Let the sum of each piece grow from rank to rank; return that of this rank's piece."""
        for at in range(self.rank - 1, self.rank - self.world, -1):
            pieces[at - 1] = pieces[at - 1] + self._pass(pieces[at], like=pieces[at - 1])
        return pieces[self.rank]

    def _hand_round(self, pieces: list[Tensor]) -> list[Tensor]:
        """Pass the pieces on, this rank's own first, until every rank has all of them."""
        for at in range(self.rank, self.rank - self.world + 1, -1):
            pieces[at - 1] = self._pass(pieces[at], like=pieces[at - 1])
        return pieces

    def _pass(self, t: Tensor, by: int = 1, like: Tensor | None = None) -> Tensor:
        """Send a tensor so many ranks further, and return what comes from as far behind."""
        if by % self.world == 0:
            return t
        came = torch.empty_like(t if like is None else like)
        to, source = (self._members[(self.rank + step) % self.world] for step in (by, -by))
        sending = self._engine.send([t], to, 0)
        self._engine.recv([came], source, 0).wait()
        sending.wait()
        self.sent += t.nbytes
        return came

    def _ready(self, call: str, t: Tensor, *, rows: bool = False) -> Tensor:
        """Return a copy that gloo can send, once all ranks are about to make this call.

        Two calls or two sizes that do not fit would end the process, or never end.
        """
        check_tensor("t", t, int(rows), "(W, ...)" if rows else "(...)")
        if rows and len(t) != self.world:
            raise ValueError(f"t must have a row for each of {self.world} ranks; got {len(t)}.")
        self._said[self.rank] = f"{call} of {tuple(t.shape)}, {t.dtype}"
        self._meeting.wait()
        said = list(self._said)
        self._meeting.wait()  # or the next call would be written where this one is read
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
    engines, everybody = _connect(world), tuple(range(world))
    meetings: Meetings = {}
    ranks = [Rank(me, everybody, engine, meetings) for me, engine in enumerate(engines)]
    # A thread inherits neither.
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def call(rank: Rank, result: Future[Result]) -> None:
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
                result.set_result(function(rank))
        except BaseException as error:
            result.set_exception(error)

    results: list[Future[Result]] = [Future() for _ in range(world)]
    pairs = zip(ranks, results, strict=True)
    threads = [Thread(target=call, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    try:
        wait(results, timeout, FIRST_EXCEPTION)
        _check(results, timeout)
    finally:
        ranks[0]._meeting.abort()  # or those that wait there would wait for ever
        for meeting, _ in list(meetings.values()):
            meeting.abort()
        until = monotonic() + LEAVING
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))
        for rank in ranks:
            rank._engine = None
        # To close one takes some hundredths of a second, for which nobody has to wait.
        Thread(target=engines.clear).start()
    return [result.result() for result in results]


def has_gloo() -> bool:
    """Say whether this PyTorch was built with the engine that ``run`` needs."""
    return distributed.is_available() and hasattr(distributed, "ProcessGroupGloo")


def _connect(world: int) -> list[Any]:
    """Return a ProcessGroupGloo for each rank, joined to the others'."""
    if not has_gloo():
        raise RuntimeError(
            "this PyTorch was built without the engine gloo, which its builds for Linux and macOS "
            "have. On Windows run this in WSL or in Colab."
        )
    store = distributed.HashStore()

    def join(rank: int) -> Any:
        return distributed.ProcessGroupGloo(store, rank, world, JOINING)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(join, range(world)))


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
