"""What each economy costs the story GPT: one table, judged by the truth, that chapters go on with.

A row says how many bytes of cache a token takes, and what the model then says: the exact
Kullback-Leibler divergence from the truth, and which relation breaks, of five starts. It is kept
in economies.json, and that of models with fewer keys in fewer_keys.json, which `make checkpoint`
writes.

Another row is another entry of ``ECONOMIES`` (another cache for the same models), of the
dictionary that is given to ``run_all`` (other models), or of another file in ``FILES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.cache import KVCache
from labkit.models.ablation import FOUR
from labkit.models.gpt import GPT
from labkit.models.kept import load_kept
from labkit.models.stories import Stories
from labkit.models.times import load_times
from labkit.models.training import unseen

__all__ = ["ECONOMIES", "STEPS", "Economy", "HalfCache", "Row", "judge", "judge_caches",
    "relative_time", "run_all", "table"]  # fmt: skip


class HalfCache(KVCache):
    """Keys and values kept in float16, and given back in their own type."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        held_k, held_v = super().append(k.half(), v.half())
        return held_k.to(k.dtype), held_v.to(v.dtype)


FILES = ("economies", "fewer_keys")  # that hold rows
Make = Callable[[], KVCache]
ECONOMIES: dict[str, Make] = {
    "whole": KVCache,
    "16 bits": HalfCache,
    "8 bits": lambda: KVCache(bits=8),
    "4 bits": lambda: KVCache(bits=4),
    "2 bits": lambda: KVCache(bits=2),
    "window 32": lambda: KVCache(window=32),
    "window 16": lambda: KVCache(window=16),
    "window 8": lambda: KVCache(window=8),
    "window 16, 1 sink": lambda: KVCache(window=16, sinks=1),
    "window 15, 1 sink": lambda: KVCache(window=15, sinks=1),
    "window 12, 4 sinks": lambda: KVCache(window=12, sinks=4),
    "window 16, 4 bits": lambda: KVCache(window=16, bits=4),
}

# The part of times.json, and the step there, at GPT-2's size over 1,024 tokens, that keeps the same
# share of its cache as a row of the story GPT. (Linear attention keeps a state of one size.)
STEPS = {
    "whole": ("decoding", "whole"),
    "16 bits": ("decoding", "16 bits"),
    "8 bits": ("decoding", "8 bits"),
    "4 bits": ("decoding", "4 bits"),
    "2 bits": ("decoding", "2 bits"),
    "window 32": ("decoding", "window 2/3"),
    "window 16": ("decoding", "window 1/3"),
    "window 8": ("decoding", "window 1/6"),
    "2 key heads": ("sharing", "6 key heads"),
    "1 key head": ("sharing", "3 key heads"),
    "layers share": ("sharing", "shared by 2 layers"),
    "latent 24 + 8": ("sharing", "latent 320 + 64, absorbed"),
    "linear attention": ("tiles", "linear attention"),
}


class Row(NamedTuple):
    """What one model says with one kind of cache."""

    kl: float  # of all words, in nats a word
    kl_by: dict[str, float]  # of the words of each relation
    right: dict[str, float]  # as Stories.right
    nbytes: int  # held for one story at its end
    words: int  # of a story

    @property
    def bytes_a_token(self) -> float:
        """Bytes held at the end of a story, for each of its words."""
        return self.nbytes / self.words


class Economy(NamedTuple):
    """A row of the table: an economy, over its starts."""

    name: str
    bytes_a_token: float
    retrained: bool  # whether the models were trained with it
    seeds: int
    kl: float  # mean over the starts
    least: float  # KL of the best start
    most: float  # and of the worst
    free: float  # KL of the free words
    right: dict[str, float]  # mean probability on what is right, of number, gender, surname, owner
    worst: dict[str, float]  # and of the start that does worst


def judge(
    model: GPT,
    stories: Stories | None = None,
    *,
    window: int | None = None,
    sinks: int = 0,
    bits: int | None = None,
) -> Row:
    """Let a model read stories through caches, word by word, and judge what it says by the truth.

    Args:
        model: a GPT over the stories' vocabulary.
        stories: 200 unseen ones of 48 words unless given.
        window, sinks, bits: as in KVCache.

    >>> from labkit.models.training import small_gpt
    >>> judge(small_gpt(0), unseen(2), window=4).nbytes
    4096
    """
    return judge_caches(model, lambda: KVCache(window, sinks, bits), stories)


@torch.no_grad()
def judge_caches(model: GPT, make: Make, stories: Stories | None = None) -> Row:
    """Judge a model with any kind of cache, as ``judge`` does.

    Args:
        model: a GPT over the stories' vocabulary.
        make: makes an empty cache.
        stories: 200 unseen ones of 48 words unless given.
    """
    stories = unseen() if stories is None else stories
    caches = [make() for _ in model.stack()]
    logits = torch.cat([model(word, caches=caches) for word in stories.ids.split(1, 1)], 1)
    kl = stories.divergence(logits)
    count, n = stories.ids.shape
    return Row(
        kl=kl.mean().item(),
        kl_by=stories.by_relation(kl),
        right=stories.right(logits.softmax(-1)),
        nbytes=sum(cache.nbytes for cache in caches) // count,
        words=n,
    )


def run_all(models: Mapping[str, tuple[Sequence[GPT], Make]], *, retrained: bool) -> Iterator[Any]:
    """Judge rows of the table: their names, and what economies.json keeps of each.

    Args:
        models: by the row's name, its starts and what makes a cache for them.
        retrained: whether they were trained with the economy.
    """
    for name, (starts, make) in models.items():
        rows = [judge_caches(model, make)._asdict() for model in starts]
        yield name, {"retrained": retrained, "starts": rows}


def table(*names: str) -> list[Economy]:
    """Give rows of the table, as they are kept.

    Args:
        names: which, in this order; all unless given.

    Raises:
        KeyError: no such row.

    >>> table("whole")[0].bytes_a_token
    1024.0
    """
    kept = {name: row for file in FILES for name, row in load_kept(file).items()}
    return [_economy(name, kept[name]) for name in names or kept]


def relative_time(name: str) -> float | None:
    """Give a step's time at GPT-2's size with an economy, by that of the same step without one.

    Both were measured in one run, so chapters that were measured apart can stand in one table.

    Args:
        name: a row of the table.

    Returns:
        The ratio of the quickest rounds; None where no step keeps the row's share of the cache.

    >>> relative_time("whole"), relative_time("latent 4 + 4")
    (1.0, None)
    """
    if name not in STEPS:
        return None
    part, step = STEPS[name]
    records = load_times(part).records
    return records[f"step, {step}"].best / records["step, whole"].best


def _economy(name: str, entry: dict[str, Any]) -> Economy:
    rows = [Row(**fields) for fields in entry["starts"]]
    divergences = [row.kl for row in rows]
    return Economy(
        name=name,
        bytes_a_token=rows[0].bytes_a_token,
        retrained=entry["retrained"],
        seeds=len(rows),
        kl=fmean(divergences),
        least=min(divergences),
        most=max(divergences),
        free=fmean(row.kl_by["free"] for row in rows),
        right={relation: fmean(row.right[relation] for row in rows) for relation in FOUR},
        worst={relation: min(row.right[relation] for row in rows) for relation in FOUR},
    )
