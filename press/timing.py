"""How work is timed, and where the times are kept: what all of ``press.times`` shares.

Everything is measured by the time that the processor spends on it, which other programs hardly
disturb.
"""

from __future__ import annotations

import json
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from labkit.models.times import Record

DIGITS = 4  # of a number of seconds
FLOAT = 4  # bytes of a number in float32


class Work(NamedTuple):
    """A piece of work: what does it and gives the seconds of each of its parts, and its counts."""

    do: Callable[[], Mapping[str, float]]
    flops: int = 0
    bytes: int = 0


def machine() -> str:
    return f"{processor()}, one thread, float32"


def processor() -> str:
    """Name the processor's model."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def write(path: Path, chapter: str, records: Mapping[str, Record]) -> None:
    """Put a chapter's records into the file, and leave those of the others."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    told = {name: record._asdict() for name, record in records.items()}
    kept[chapter] = {"machine": machine(), "records": told}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def measure(works: Mapping[str, Work], rounds: int) -> dict[str, Record]:
    """Do all works in each round, after one round that is not kept."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with torch.no_grad():
        for round_ in tqdm(range(rounds + 1), desc="rounds", leave=False):
            for name, work in works.items():
                for part, took in work.do().items():
                    if round_:
                        full = f"{name}: {part}" if part else name
                        seconds[full].append(float(f"{took:.{DIGITS}g}"))
    return {
        name: Record(each, works[name].flops, works[name].bytes) if name in works else Record(each)
        for name, each in seconds.items()
    }


def whole(work: Callable[[], object]) -> Callable[[], Mapping[str, float]]:
    """Time a piece of work as one."""

    def do() -> Mapping[str, float]:
        start = time.process_time()
        work()
        return {"": time.process_time() - start}

    return do
