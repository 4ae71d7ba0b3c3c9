"""Filling a cache of keys and values, a step at a time: what is computed, kept, done again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from traitlets import Dict, Unicode

from labkit.attention import causal_mask
from labkit.figures.base import Choice, LiveFigure

PROMPT = "the map suits mia lake ."
WRITTEN = "the map mia lake has is"  # by the story GPT after this prompt, the likeliest words
WORDS = f"{PROMPT} {WRITTEN}".split()
LENGTH, OF_PROMPT = len(WORDS), len(PROMPT.split())
PIECES = {"in one pass": OF_PROMPT, "in pieces of 3": 3, "word by word": 1}
NEW, AGAIN, HIDDEN, EARLIER = range(1, 5)
HELD, ADDED = 1, 2


class DecodingCache(LiveFigure):
    """Follow a prompt and what the story GPT writes after it, with a cache and without.

    The prompt of six words is read in pieces, one a step; the words that follow one by one. With
    the cache a step computes the rows of its new words. Without it, a step is the causal pass
    over all words so far.

    Args:
        state: the traits: ``at``, a word (1 to 12), whose step is shown; ``reading``, how the
            prompt is read ("in one pass", "in pieces of 3" or "word by word"); and ``cached``,
            whether the grid is that with a cache.

    >>> DecodingCache(at=7).values()["positions read"]  # this step, and so far: with and without
    [[1, 7], [7, 13]]
    """

    title = Unicode("A cache that fills").tag(sync=True)
    caption = Unicode(
        "Rows are queries, columns are keys, each of one word: six of a prompt, then six that the "
        "story GPT of chapter 10 writes. Signs tell which pairs of a query and a key this step "
        "computes. Below the grid are the keys and values of each word: kept from earlier steps, "
        "new, or, without a cache, made again. Bars count the positions that the model has read so "
        "far, as the first cell of this chapter does."
    ).tag(sync=True)
    axes = Dict(
        {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": ["query", "key"],
            "cache (1 held, 2 added)": ["position"],
            "positions read": [["this step", "so far"], ["with the cache", "without"]],
        }
    ).tag(sync=True)
    text = Dict({"prompt": PROMPT, "written": WRITTEN}).tag(sync=True)
    pieces = Dict(PIECES, help="how many words of the prompt a step reads").tag(sync=True)
    at = Choice(range(1, LENGTH + 1), default_value=OF_PROMPT).tag(sync=True)
    reading = Choice(list(PIECES), default_value="in one pass").tag(sync=True)
    cached = Choice([False, True], default_value=True).tag(sync=True)

    def values(self) -> dict[str, Any]:
        steps = [(start, end) for start, end in self._steps() if start < self.at]
        start, end = steps[-1]
        read = [[end - start, end] for start, end in steps]
        return {
            "pairs (1 new, 2 again, 3 hidden, 4 earlier)": self._pairs(start, end),
            "cache (1 held, 2 added)": self._cache(start, end),
            "positions read": [read[-1], [sum(each) for each in zip(*read, strict=True)]],
        }

    def _steps(self) -> list[tuple[int, int]]:
        """Give for each step its first position, from 0, and the one behind its last."""
        pieces = range(0, OF_PROMPT, PIECES[self.reading])
        return list(pairwise([*pieces, *range(OF_PROMPT, LENGTH + 1)]))

    def _pairs(self, start: int, end: int) -> list[list[int]]:
        """Say for each query and key what a step does with the pair; 0 where nothing."""
        sees = causal_mask(LENGTH)
        pairs = torch.zeros(LENGTH, LENGTH, dtype=torch.int64)
        new, past = slice(start, end), slice(0, start)
        pairs[new if self.cached else slice(0, end), :end] = HIDDEN
        pairs[past][sees[past]] = EARLIER if self.cached else AGAIN
        pairs[new][sees[new]] = NEW
        return pairs.tolist()

    def _cache(self, start: int, end: int) -> list[int]:
        """Say for each position what the cache has of it after a step; 0 where nothing."""
        places = [HELD] * start + [ADDED] * (end - start) + [0] * (LENGTH - end)
        return places if self.cached else [0] * LENGTH
