"""A piece of work that is timed: what does it, what it counts, and where its times are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from labkit.models.times import Record

FLOAT = 4  # bytes of a number in float32
DIGITS = 4  # of a number of seconds


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


def write(path: Path, chapter: str, records: Mapping[str, Record], of: str) -> None:
    """Put a chapter's records, of a machine, into the file, and leave those of the others."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    told = {name: record._asdict() for name, record in records.items()}
    kept[chapter] = {"machine": of, "records": told}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
