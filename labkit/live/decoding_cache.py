"""Decoding step by step: what a cache of keys and values saves, and what it holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit import counting
from labkit.attention import window_mask
from labkit.live.base import Choice, LiveFigure

H, D_K = 4, 16
D_MODEL = H * D_K
DTYPE = torch.float16
LONGEST_PROMPT, LONGEST = 12, 16
AT_ONCE, NO_WINDOW = "the whole prompt", "none"
NEW, AGAIN, HIDDEN, EARLIER = range(1, 5)
HELD, ADDED, DROPPED = range(1, 4)


class DecodingCache(LiveFigure):
    """Follow a prompt and what is written after it, with a cache of keys and values and without.

    The prompt is taken in blocks, the rest position by position: one step each. With the cache a
    step projects its new positions, and multiplies their queries by their own keys and by those
    held. Without it, a step is the causal pass of all positions so far. A window of w keeps the
    last w positions, the newest in the place of the oldest.

    A layer with h = 4, d_k = 16, d_model = 64, without biases; two bytes a number; one sequence.
    Scores that the mask hides are counted, because a product that is written out computes them.

    Args:
        state: the traits: ``n`` positions in all (1 to 16), of which ``prompt`` are the prompt (1
            to 12, n at most); the prompt's ``block`` (1 to 11, or "the whole prompt"); ``window``
            (1 to 15, or "none"); ``cached``, whether the grid is that with the cache; and ``at``,
            a position (1 to 16, n at most), whose step is shown.

    >>> DecodingCache(prompt=4, at=5).values()["MACs"][0]  # this step, with and without
    [17024, 85120]
    """

    title = Unicode("Decoding with a cache").tag(sync=True)
    caption = Unicode(
        "A grid of queries and keys, filled step by step: a prompt in one block or in several, "
        "then one position a step. Signs tell which pairs a step computes, which it computes "
        "again, which it computes and the mask hides, and which an earlier step has left done; "
        "the last row tells which positions lie in the cache. You choose the lengths, the block, "
        "a window and whether there is a cache. A table counts multiply-adds (MACs) of the "
        "projections and of both products, hidden pairs included, and bytes, for one layer with "
        "h = 4, dₖ = 16 and d_model = 64, without biases, in numbers of two bytes."
    ).tag(sync=True)
    axes = Dict(
        {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": ["query", "key"],
            "cache (1 held, 2 added, 3 dropped)": ["position"],
            "MACs": [["this step", "so far"], ["with the cache", "without"]],
            "times the MACs without the cache": [["this step", "so far"]],
            "bytes": [["in the cache", "read from it, this step", "read from it, so far"]],
        }
    ).tag(sync=True)
    prompt = Choice(range(1, LONGEST_PROMPT + 1), default_value=6).tag(sync=True)
    n = Choice(range(1, LONGEST + 1), default_value=12).tag(sync=True)
    block = Choice([AT_ONCE, *range(1, LONGEST_PROMPT)], default_value=AT_ONCE).tag(sync=True)
    window = Choice([NO_WINDOW, *range(1, LONGEST)], default_value=NO_WINDOW).tag(sync=True)
    cached = Choice([False, True], default_value=True).tag(sync=True)
    at = Choice(range(1, LONGEST + 1), default_value=1).tag(sync=True)

    def values(self) -> dict[str, Any]:
        window = self.n if self.window == NO_WINDOW else self.window
        at = min(self.at, self.n)
        steps = [(start, end) for start, end in self._steps() if start < at]
        held = [min(start, window - 1) for start, _ in steps]  # of what is held, all that is read
        cached = [
            macs(end - start, old + end - start)
            for (start, end), old in zip(steps, held, strict=True)
        ]
        without = [macs(end, end) for _, end in steps]
        counted = [[cached[-1], without[-1]], [sum(cached), sum(without)]]
        start, end = steps[-1]
        return {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": self._pairs(start, end, window),
            "cache (1 held, 2 added, 3 dropped)": self._cache(start, end, window),
            "MACs": counted,
            "times the MACs without the cache": [more / fewer for fewer, more in counted],
            "bytes": [held_bytes(n) for n in (min(end, window), held[-1], sum(held))],
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


def macs(n_q: int, n_k: int) -> int:
    """Count a step of n_q new positions whose queries meet n_k keys."""
    projections = counting.projection_macs(n_q, D_MODEL, H)
    return projections + counting.product_macs(n_q, D_MODEL, H, n_k=n_k)


def held_bytes(n: int) -> int:
    """Give the bytes of n positions' keys and values."""
    return counting.cache_bytes(H, D_K, n, dtype=DTYPE) if n else 0
