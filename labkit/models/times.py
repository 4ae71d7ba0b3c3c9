"""Load how long things took, on the machine where `make times` measured them.

Times differ from machine to machine, and on one of them from minute to minute. So a page tells
ratios of times, and which machine they are of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

__all__ = ["TIMES", "Record", "Times", "load_times"]

TIMES = Path(__file__).with_name("times.json")


class Record(NamedTuple):
    """What one piece of work took."""

    seconds: list[float]  # one number a round
    flops: int = 0  # of its matrix products; 0 where it has none, or nobody counted
    bytes: int = 0  # the least that it has to move to and from memory; 0 where nobody counted
    peak: int = 0  # the most bytes that it held beyond its inputs; 0 where nobody looked

    @property
    def best(self) -> float:
        """The seconds of the quickest round: other programs can only slow a machine down."""
        return min(self.seconds)

    @property
    def rate(self) -> float:
        """FLOPs a second."""
        return self.flops / self.best

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.best

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes


class Times(NamedTuple):
    """What one chapter's pieces of work took, all on one machine."""

    machine: str  # its processor, and with how many threads and in which type it computed
    records: dict[str, Record]

    def shares(self, group: str) -> dict[str, float]:
        """Give the parts of a group, "group: part", each with its share of the group's time."""
        start = f"{group}: "
        parts = {
            name.removeprefix(start): record.best
            for name, record in self.records.items()
            if name.startswith(start)
        }
        if not parts:
            raise ValueError(f"no record's name begins with {start!r}; there are {[*self.records]}")
        return {part: seconds / sum(parts.values()) for part, seconds in parts.items()}


def load_times(chapter: str) -> Times:
    """Give what `make times` kept for a chapter.

    Args:
        chapter: the name under which press.times keeps it.

    Raises:
        ValueError: no such chapter, and which there are.

    >>> load_times("counting").records["product of 1 row"].intensity < 1
    True
    """
    kept = json.loads(TIMES.read_text(encoding="utf-8"))
    if chapter not in kept:
        raise ValueError(f"chapter must be one of {', '.join(kept)}; got {chapter!r}.")
    records = {name: Record(**record) for name, record in kept[chapter]["records"].items()}
    return Times(kept[chapter]["machine"], records)
