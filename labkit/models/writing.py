"""Let a model write a story, and follow any text by the rules of the stories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.arguments import size
from labkit.models.gpt import GPT
from labkit.models.stories import VOCABULARY, Teller, Word, decode

__all__ = ["Followed", "follow", "follow_all", "sample"]

_INDEX = {word: i for i, word in enumerate(VOCABULARY)}


@torch.no_grad()
def sample(
    model: GPT,
    prompts: Tensor,
    n: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Let a model write on, with a cache, until each text has n words.

    Args:
        model: who writes.
        prompts: (B, fewer than n), numbers of words.
        n: words of each text at the end, those of the prompt included.
        temperature: divides the logits; 0 takes the likeliest word.
        generator: of what is drawn.

    Returns:
        (B, n), the prompts and what was written.

    Raises:
        ValueError: prompts of n words or more.

    >>> from labkit.models.training import small_gpt
    >>> sample(small_gpt(0), torch.tensor([[3, 1]]), 5, temperature=0).shape
    torch.Size([1, 5])
    """
    if prompts.shape[1] >= size("n", n):
        raise ValueError(f"prompts must have fewer than n = {n} words; got {prompts.shape[1]}.")
    ids, new, caches = prompts, prompts, model.caches()
    while ids.shape[1] < n:
        logits = model(new, caches=caches)[:, -1]
        if temperature:
            chances = (logits / temperature).softmax(-1)
            new = chances.multinomial(1, generator=generator)
        else:
            new = logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids


def follow(words: Sequence[str]) -> list[Word | None]:
    """Tell of each word of a text, and of the one after it, what the rules let stand there.

    Where a word breaks the rules, they say nothing of the rest of its sentence. The next sentence
    is followed again, and those who were introduced before are still known.

    Args:
        words: a text, which may have been written by anybody.

    Returns:
        n + 1 entries for n words. An entry is None where the rules say nothing. Else its
        ``options`` hold the words that may stand there, and its ``text`` the word that does, which
        breaks the rules if it is not one of them. The text of the last entry says nothing.

    >>> told = follow("the box suits tom lake . tom hill".split())
    >>> [*told[7].options], told[7].relation, told[8]
    (['lake'], 'surname', None)
    """
    found: list[Word | None] = []

    def choose(options: dict[str, int]) -> str:
        wanted = words[len(found)] if len(found) < len(words) else None
        return wanted if wanted in options else next(iter(options))

    teller = Teller(choose)
    while True:
        for word in teller.sentence():
            if len(found) == len(words):
                return [*found, word]
            found.append(word._replace(text=words[len(found)]))
            if words[len(found) - 1] not in word.options:
                break
        while words[len(found) - 1] != ".":
            if len(found) >= len(words):
                return [*found, None]
            found.append(None)
        teller.place = len(found) - 1


class Followed(NamedTuple):
    """Texts and the rules of the stories, word by word."""

    truth: Tensor  # (B, n + 1, vocabulary), float64, what may stand where; zeros where not told
    told: Tensor  # (B, n + 1), boolean: the rules say what may stand there
    breaks: Tensor  # (B, n), boolean: the rules say so, and the word is another
    relations: list[list[str]]  # B times n + 1 of RELATIONS; "" where not told

    @property
    def intact(self) -> Tensor:
        """Whether no word before breaks the rules: (B, n + 1), boolean."""
        clean = self.breaks.cumsum(1) == 0
        return torch.cat([torch.ones_like(clean[:, :1]), clean], 1)


def follow_all(ids: Tensor) -> Followed:
    """Follow each text of a batch.

    Args:
        ids: (B, n), numbers of words.

    >>> from labkit.models.training import unseen
    >>> follow_all(unseen(3).ids).breaks.any().item()
    False
    """
    count, n = ids.shape
    truth = torch.zeros(count, n + 1, len(VOCABULARY), dtype=torch.float64)
    relations = []
    for b, row in enumerate(ids):
        entries = follow(decode(row).split())
        relations.append(["" if entry is None else entry.relation for entry in entries])
        for i, entry in enumerate(entries):
            if entry is not None:
                weights = torch.tensor([*entry.options.values()], dtype=torch.float64)
                truth[b, i, [_INDEX[word] for word in entry.options]] = weights / weights.sum()
    told = truth.sum(-1) > 0
    allowed = truth[:, :-1].gather(-1, ids[..., None])[..., 0] > 0
    return Followed(truth, told, told[:, :-1] & ~allowed, relations)
