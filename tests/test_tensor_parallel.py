"""Heads over processes: chapter 14's script agrees with one rank, and ends when a rank dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.models.tensor_parallel import separate_gpt, spread

BOUND = 120  # seconds, on a busy machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux alone"),
]


def start(world: int, *more: str) -> subprocess.Popen[str]:
    torchrun = "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)
    return subprocess.Popen(
        [sys.executable, "-m", *torchrun, "-m", "labkit.models.tensor_parallel", *more],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Two ranks are started by chapter 14, each time that it is executed.
@pytest.mark.weekly
@pytest.mark.parametrize("world", [2, 4])
def test_training_on_ranks_gives_the_weights_of_one(world: int):
    said, errors = start(world, "--steps", "3").communicate(timeout=BOUND)
    assert f"ranks: {world}; heads of a rank: {4 // world} of 4" in said, errors
    assert said.rstrip().endswith("True")


def test_ranks_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(ValueError, match="the ranks must divide the 4 heads; got 3"):
        spread(separate_gpt(0), 3)


@pytest.mark.weekly
def test_it_ends_by_itself_when_a_rank_is_killed():
    run = start(2, "--steps", "100000")
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("training"):
            break
    # torchrun starts its ranks in their order.
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    try:
        _, errors = run.communicate(timeout=BOUND)
    finally:
        run.kill()
    assert run.returncode
    cause = errors.partition("Root Cause")[2]
    assert "Signal 9 (SIGKILL)" in cause
    assert "(local_rank: 1)" in cause
    with pytest.raises(ProcessLookupError):  # the other one is gone, too
        os.kill(int(children[0]), 0)
