"""A piece of work that is timed: what does it, and what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

FLOAT = 4  # bytes of a number in float32


class Work(NamedTuple):
    """A piece of work: what does it and gives the seconds of each of its parts, and its counts."""

    do: Callable[[], Mapping[str, float]]
    flops: int = 0
    bytes: int = 0


def whole(work: Callable[[], object], times: int = 1) -> Callable[[], Mapping[str, float]]:
    """Time a piece of work as one, where it does the same so many times: the seconds of one."""

    def do() -> Mapping[str, float]:
        start = time.process_time()
        work()
        return {"": (time.process_time() - start) / times}

    return do
