"""Wrong caches on the trained model: how often the text that it writes shows a slip.

A slip raises no error. What takes longer than a page can is kept in slips.json, which
`make checkpoint` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.cache import KVCache
from labkit.models.gpt import GPT
from labkit.models.kept import load_kept
from labkit.models.stories import Stories, encode
from labkit.models.training import unseen
from labkit.models.writing import follow_all

__all__ = ["SLIPS", "NeverCrops", "OwnKeyUnseen", "PositionsRestart", "Rewound", "Shown",
    "ValuesLate", "decode", "run_all", "shown", "shown_by"]  # fmt: skip

STORIES = 60
BEGUN = 12  # words that are read in one block
EVERY = 6  # words between guesses that are taken back
GUESS = "has"  # the guess: a word that is right nowhere before the second of a sentence
STARTS = range(5)


class OwnKeyUnseen(KVCache):
    """A step sees all keys but its own."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        one_more = k.shape[2] == 1 and self.n > 0
        k, v = super().append(k, v)
        return (k[:, :, :-1], v[:, :, :-1]) if one_more else (k, v)


class PositionsRestart(KVCache):
    """The layer is told that nothing is held, so that each block begins at position 0."""

    held = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.n = self.held
        k, v = super().append(k, v)
        self.held, self.n = self.n, 0
        return k, v

    def crop(self, n: int) -> None:
        self.n = self.held
        super().crop(self.n - 1)  # the only guess
        self.held, self.n = self.n, 0


class ValuesLate(KVCache):
    """Each key gets the value before its own, once something is held."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        later = self.n > 0
        k, v = super().append(k, v)
        return k, torch.cat([v[:, :, :1], v[:, :, :-1]], 2) if later else v


class NeverCrops(KVCache):
    """A rejected guess stays."""

    def crop(self, n: int) -> None:
        pass


class Rewound(KVCache):
    """A rejected guess is taken back, and with it the word before."""

    def crop(self, n: int) -> None:
        super().crop(n - 1)


SLIPS: dict[str, type[KVCache]] = {
    "own key unseen": OwnKeyUnseen,
    "positions restart": PositionsRestart,
    "values late": ValuesLate,
    "never crops": NeverCrops,
    "rewound": Rewound,
}


class Shown(NamedTuple):
    """What a wrong cache does to a model, on 60 stories of 48 words, the first 12 in one block."""

    same: int  # texts of 60 that are word for word those of the sound cache, written greedily
    broken: int  # of the texts written, those that break the rules of the stories
    right: float  # share of the fixed words of true stories that are said likeliest
    kl: float  # of the true stories' words, in nats a word
    off: float  # the largest difference of a logit, in the middle one of the stories
    least: float  # and in the story where it is smallest


@torch.no_grad()
def decode(
    model: GPT, caches: Sequence[KVCache], ids: Tensor, n: int, *, guess: bool = True
) -> tuple[Tensor, Tensor]:
    """Read words in one block and go on one by one, with a guess now and then that is taken back.

    Args:
        model: a GPT.
        caches: one for each block, empty.
        ids: (B, m). Words from BEGUN on are given one by one; those from m on are the likeliest.
        n: words in all.
        guess: read a wrong word behind each sixth one, and crop.

    Returns:
        The text, (B, n), and the logits at all its positions, (B, n, vocabulary).
    """
    ids, new, logits = ids.clone(), ids[:, :BEGUN], []
    wrong = encode(GUESS).expand(len(ids), 1)
    for read in range(BEGUN, n + 1):
        logits.append(model(new, caches=caches))
        if ids.shape[1] == read < n:
            ids = torch.cat([ids, logits[-1][:, -1].argmax(-1, keepdim=True)], 1)
        new = ids[:, read : read + 1]
        if guess and read % EVERY == 0:
            held = [cache.n for cache in caches]
            model(wrong, caches=caches)
            for cache, count in zip(caches, held, strict=True):
                cache.crop(count)
    return ids, torch.cat(logits, 1)


def shown(model: GPT, make: Callable[[], KVCache], stories: Stories | None = None) -> Shown:
    """Compare a cache with a sound one, in float64.

    Args:
        model: a GPT over the stories' vocabulary, in float64.
        make: makes an empty cache.
        stories: read, and begun for writing; 60 unseen ones unless given.

    >>> from labkit.models.training import small_gpt
    >>> shown(small_gpt(0).double(), KVCache, unseen(2)).off < 1e-9
    True
    """
    stories = unseen(STORIES) if stories is None else stories
    n, layers = stories.ids.shape[1], range(len(model.stack()))
    sound, _ = decode(model, [KVCache() for _ in layers], stories.ids[:, :BEGUN], n)
    wrote, _ = decode(model, [make() for _ in layers], stories.ids[:, :BEGUN], n)
    _, logits = decode(model, [make() for _ in layers], stories.ids, n)
    with torch.no_grad():
        off = (model(stories.ids) - logits).abs()[:, BEGUN:].amax((1, 2))
    fixed = stories.options[:, BEGUN + 1 :].sum(-1) == 1
    likeliest = logits[:, BEGUN:-1].argmax(-1) == stories.ids[:, BEGUN + 1 :]
    return Shown(
        same=int((sound == wrote).all(1).sum()),
        broken=int(follow_all(wrote).breaks.any(1).sum()),
        right=likeliest[fixed].double().mean().item(),
        kl=stories.divergence(logits)[:, BEGUN:].mean().item(),
        off=off.median().item(),
        least=off.min().item(),
    )


def run_all(models: Sequence[GPT]) -> Iterator[tuple[str, Any]]:
    """Try each slip, and the sound cache, on each model: "slip seed" and the fields of Shown."""
    kinds: dict[str, type[KVCache]] = {"sound": KVCache, **SLIPS}
    for name, make in kinds.items():
        for seed, model in enumerate(models):
            yield f"{name} {seed}", shown(model.double(), make)._asdict()


def shown_by(slip: str) -> list[Shown]:
    """Give what is kept of a slip, or of the "sound" cache, for five starts.

    >>> [told.same for told in shown_by("sound")]
    [60, 60, 60, 60, 60]
    """
    kept = load_kept("slips")
    return [Shown(**kept[f"{slip} {seed}"]) for seed in STARTS]
