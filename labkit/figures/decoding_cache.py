"""Decoding step by step: what a cache of keys and values saves, and what it holds."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from traitlets import Dict, Unicode, default

from labkit import counting
from labkit.attention import window_mask
from labkit.figures.base import Choice, LiveFigure
from labkit.models.training import Report, histories

D_MODEL = 64
HEADS = (1, 2, 4, 8)
DTYPE = torch.float16
LONGEST_PROMPT, LONGEST = 12, 16
AT_ONCE, NO_WINDOW = "the whole prompt", "none"
NEW, AGAIN, HIDDEN, EARLIER = range(1, 5)
HELD, ADDED, DROPPED = range(1, 4)

# The small GPT's heads of keys, and the runs of models.training.histories() that have as many.
SEEDS = range(5)
TRAINED = {"4 key heads": "rotary", "2 key heads": "two key heads", "1 key head": "one key head"}
WAYS = ("mean", "svd")
SILENCED, WITHOUT = "attention silenced 0", "without attention 0"
MEASURES = ("loss", "grammar", "number", "gender", "surname", "owner")
PLACES = 4  # as the runs are kept


class DecodingCache(LiveFigure):
    """Follow a prompt and what is written after it, with a cache of keys and values and without.

    The prompt is taken in blocks, the rest position by position: one step each. With the cache a
    step projects its new positions, and multiplies their queries by their own keys and by those
    held. Without it, a step is the causal pass of all positions so far. A window of w keeps the
    last w positions, the newest in the place of the oldest. Neighbouring heads of queries may share
    a head of keys and values, of which the cache then holds fewer.

    A layer with d_model = 64 and h d_k = 64, without biases; two bytes a number; one sequence.
    Scores that the mask hides are counted, because a product that is written out computes them.

    What sharing costs is measured on another model, whatever the layer's h: the chapters' small
    GPT, of 4 heads, on unseen stories. It was trained with 4, 2 and 1 heads of keys (the mean of
    five runs; one without attention), or trained with 4, which then were made to share.

    Args:
        state: the traits: ``n`` positions in all (1 to 16), of which ``prompt`` are the prompt (1
            to 12, n at most); the prompt's ``block`` (1 to 11, or "the whole prompt"); ``window``
            (1 to 15, or "none"); ``cached``, whether the grid is that with the cache; ``at``, a
            position (1 to 16, n at most), whose step is shown; ``h`` heads of queries and ``h_kv``
            of keys and values (1, 2, 4 or 8, h at most); and ``measure``, "loss", in nats a word,
            or a relation of the stories, whose right words' mean probability is shown.

    >>> DecodingCache(prompt=4, at=5).values()["MACs"][0]  # this step, with and without
    [17024, 85120]
    """

    title = Unicode("Decoding with a cache").tag(sync=True)
    caption = Unicode(
        "A grid of queries and keys, filled step by step: signs tell which pairs a step computes, "
        "the last row which positions lie in the cache. A drawing tells which head of keys and "
        "values each head of queries reads. Counted is one layer with d_model = h dₖ = 64, without "
        "biases: multiply-adds (MACs) of projections and products, hidden pairs included, and "
        "bytes, two a number. The last table is about another model, whatever h is: the small GPT "
        "of chapter 10, of 4 heads, on 200 unseen stories. “Trained so” is from scratch, the mean "
        "of five runs. “Converted” takes, without further training, the mean of the heads that "
        "share, or their SVD. The last row is one run without attention, and attention silenced."
    ).tag(sync=True)
    axes = Dict(
        {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": ["query", "key"],
            "cache (1 held, 2 added, 3 dropped)": ["position"],
            "MACs": [["this step", "so far"], ["with the cache", "without"]],
            "times the MACs without the cache": [["this step", "so far"]],
            "bytes": [["in the cache", "read from it, this step", "read from it, so far"]],
            "head of keys that is read": ["head of queries"],
            "bytes a position": [["h_kv heads", "h heads"]],
            "small GPT": [
                [*TRAINED, "no attention"],
                ["trained so", "converted: mean", "converted: SVD"],
            ],
        }
    ).tag(sync=True)
    prompt = Choice(range(1, LONGEST_PROMPT + 1), default_value=6).tag(sync=True)
    n = Choice(range(1, LONGEST + 1), default_value=12).tag(sync=True)
    block = Choice([AT_ONCE, *range(1, LONGEST_PROMPT)], default_value=AT_ONCE).tag(sync=True)
    window = Choice([NO_WINDOW, *range(1, LONGEST)], default_value=NO_WINDOW).tag(sync=True)
    cached = Choice([False, True], default_value=True).tag(sync=True)
    at = Choice(range(1, LONGEST + 1), default_value=1).tag(sync=True)
    h = Choice(HEADS, default_value=4).tag(sync=True)
    h_kv = Choice(HEADS, default_value=4).tag(sync=True)
    measure = Choice(MEASURES, default_value="loss").tag(sync=True)
    measured: Dict[str, Any] = Dict(help="for each measure the table of the small GPT").tag(
        sync=True
    )

    @default("measured")
    def _measured(self) -> dict[str, list[list[float]]]:
        last = {name: reports[-1] for name, reports in histories().items()}
        return {measure: quality(last, measure) for measure in MEASURES}

    def values(self) -> dict[str, Any]:
        h_kv = min(self.h_kv, self.h)
        window = self.n if self.window == NO_WINDOW else self.window
        at = min(self.at, self.n)
        steps = [(start, end) for start, end in self._steps() if start < at]
        held = [min(start, window - 1) for start, _ in steps]  # of what is held, all that is read
        cached = [
            macs(end - start, old + end - start, self.h, h_kv)
            for (start, end), old in zip(steps, held, strict=True)
        ]
        without = [macs(end, end, self.h, h_kv) for _, end in steps]
        counted = [[cached[-1], without[-1]], [sum(cached), sum(without)]]
        start, end = steps[-1]
        return {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": self._pairs(start, end, window),
            "cache (1 held, 2 added, 3 dropped)": self._cache(start, end, window),
            "MACs": counted,
            "times the MACs without the cache": [more / fewer for fewer, more in counted],
            "bytes": [held_bytes(n, self.h, h_kv) for n in (min(end, window), held[-1], sum(held))],
            "head of keys that is read": [i * h_kv // self.h + 1 for i in range(self.h)],
            "bytes a position": [held_bytes(1, self.h, heads) for heads in (h_kv, self.h)],
            "small GPT": self.measured[self.measure],
        }

    def _steps(self) -> list[tuple[int, int]]:
        """Give for each step its first position, from 0, and the one behind its last."""
        prompt = min(self.prompt, self.n)
        block = prompt if self.block == AT_ONCE else self.block
        return list(pairwise([*range(0, prompt, block), *range(prompt, self.n + 1)]))

    def _pairs(self, start: int, end: int, window: int) -> list[list[int]]:
        """Say for each query and key what a step does with the pair; 0 where nothing."""
        sees = window_mask(self.n, self.n, window)
        pairs = torch.zeros(self.n, self.n, dtype=torch.int64)
        first = max(start - window + 1, 0)
        new, past = slice(start, end), slice(0, start)
        if self.cached:
            pairs[new, first:end] = HIDDEN
            pairs[past][sees[past]] = EARLIER
        else:
            pairs[:end, :end] = HIDDEN
            pairs[past][sees[past]] = AGAIN
        pairs[new][sees[new]] = NEW
        return pairs.tolist()

    def _cache(self, start: int, end: int, window: int) -> list[int]:
        """Say for each position what the cache has of it after a step; 0 where nothing."""
        if not self.cached:
            return [0] * self.n
        places = [HELD] * start + [ADDED] * (end - start) + [0] * (self.n - end)
        dropped = max(end - window, 0)
        return [DROPPED] * dropped + places[dropped:]


def macs(n_q: int, n_k: int, h: int, h_kv: int) -> int:
    """Count a step of n_q new positions whose queries meet n_k keys."""
    projections = counting.projection_macs(n_q, D_MODEL, h, h_kv=h_kv)
    return projections + counting.product_macs(n_q, D_MODEL, h, n_k=n_k)


def held_bytes(n: int, h: int, h_kv: int) -> int:
    """Give the bytes of n positions' keys and values."""
    return counting.cache_bytes(h_kv, D_MODEL // h, n, dtype=DTYPE) if n else 0


def quality(last: dict[str, Report], measure: str) -> list[list[float]]:
    """Give for 4, 2 and 1 heads of keys, and for none, a measure: trained so, and converted."""

    def read(name: str) -> float:
        return last[name].loss if measure == "loss" else last[name].right[measure]

    def line(kind: str) -> list[float]:
        trained = round(fmean(read(f"{kind} {seed}") for seed in SEEDS), PLACES)
        own = kind == "rotary"  # nothing to convert
        return [trained, *(read("rotary 0" if own else f"{kind} by {way} 0") for way in WAYS)]

    silenced = read(SILENCED)
    return [*map(line, TRAINED.values()), [read(WITHOUT), silenced, silenced]]
