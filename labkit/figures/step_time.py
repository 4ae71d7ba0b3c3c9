"""What a step of decoding waits for, by the roof and as measured: its weights, or its caches."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, Unicode, default

from labkit import counting
from labkit.figures.base import Choice, LiveFigure
from labkit.models.published import MODELS
from labkit.models.times import load_times

MODEL = MODELS["GPT-2 Small"]
D_MODEL = MODEL.d_model
FLOAT = 4  # bytes
PARAMETERS = 12 * D_MODEL**2  # of a block's projections and feed-forward
WIDTHS = 16 * D_MODEL  # of all that goes into those products and comes out, a row
LENGTHS = range(64, 4097, 64)
TEXTS = (1, 4, 16, 64)
DIGITS = 4  # of what was measured
PARTS = ["linear layers", "attention"]


class StepTime(LiveFigure):
    """Tell what a step takes for each text, by the roof, as texts grow and get more.

    One block of GPT-2 Small's width in float32. Its linear layers read 12 d^2 parameters once for
    all texts, and attention the keys and values of each. A part takes as long as its FLOPs at the
    machine's peak, or as its bytes at the speed of its memory, whichever is longer. Without a
    cache a step is the pass over all words, with a whole square of scores.

    Args:
        state: the traits: ``n`` words of each text (64 to 4,096, in steps of 64) and the number of
            ``texts`` (1, 4, 16 or 64).

    >>> StepTime(n=1024).values()["without a cache, times as much"][0]  # the work
    1024.0
    """

    title = Unicode("What a step waits for").tag(sync=True)
    caption = Unicode(
        "The time of one step for each text, by the roof of our machine, over the number of words "
        "in its cache: of one block of GPT-2’s width, in float32. The lower band is the linear "
        "layers, whose weights all texts read together, and the wedge on it is attention, which "
        "reads each text’s own cache. The steep line is a step without a cache. Circles are what "
        "we measured: the linear layers, and both together. Measured times are longer, because a "
        "roof is a bound."
    ).tag(sync=True)
    axes = Dict(
        {
            "kB moved, for each text": [PARTS],
            "FLOPs for each byte": [PARTS],
            "milliseconds by the roof, for each text": [["with a cache", "without"], PARTS],
            "without a cache, times as much": [["work", "time by the roof"]],
        }
    ).tag(sync=True)
    n = Choice(LENGTHS, default_value=1024).tag(sync=True)
    texts = Choice(TEXTS, default_value=1).tag(sync=True)
    machine: Dict[str, Any] = Dict(help="its peak, FLOPs a second; bytes a second").tag(sync=True)
    measured: Dict[str, Any] = Dict(
        help="for each number of texts, by length, milliseconds of both parts, for each text"
    ).tag(sync=True)

    @default("machine")
    def _machine(self) -> dict[str, float]:
        records = load_times("counting").records
        peak, bandwidth = records["large product"].rate, records["product of 1 row"].bandwidth
        return {"peak": rounded(peak), "bandwidth": rounded(bandwidth)}

    @default("measured")
    def _measured(self) -> dict[str, dict[str, list[float]]]:
        took = load_times("decoding").records
        return {
            str(texts): {
                str(n): [
                    rounded(1000 * took[name].best / texts)
                    for name in (f"linear, {texts}", f"attention, {texts} over {n}")
                ]
                for n in LENGTHS
                if f"attention, {texts} over {n}" in took
            }
            for texts in TEXTS
        }

    def values(self) -> dict[str, Any]:
        step = [linear(self.texts), attention(self.texts, self.n)]
        anew = [linear(self.texts * self.n), attention(self.texts, self.n, n_q=self.n)]
        times = [[self._time(*work) for work in works] for works in (step, anew)]
        work, more = (sum(flops for flops, _ in works) for works in (step, anew))
        return {
            "kB moved, for each text": [moved / self.texts / 1e3 for _, moved in step],
            "FLOPs for each byte": [flops / moved for flops, moved in step],
            "milliseconds by the roof, for each text": times,
            "without a cache, times as much": [more / work, sum(times[1]) / sum(times[0])],
        }

    def _time(self, flops: float, moved: float) -> float:
        """Give the milliseconds of work for all texts, for each of them, by the roof."""
        seconds = max(flops / self.machine["peak"], moved / self.machine["bandwidth"])
        return 1000 * seconds / self.texts


def linear(rows: int) -> tuple[int, int]:
    """Give the FLOPs of a block's linear layers, and the bytes that they have to move."""
    return 2 * rows * PARAMETERS, FLOAT * (PARAMETERS + rows * WIDTHS)


def attention(texts: int, n: int, n_q: int = 1) -> tuple[int, int]:
    """Give the FLOPs of n_q queries a text that meet n keys, and the bytes they have to move."""
    macs = texts * counting.product_macs(n_q, D_MODEL, MODEL.h, n_k=n)
    return counting.FLOPS_PER_MAC * macs, FLOAT * 2 * texts * (n + n_q) * D_MODEL


def rounded(x: float) -> float:
    return float(f"{x:.{DIGITS}g}")
