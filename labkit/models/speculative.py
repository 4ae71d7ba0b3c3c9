"""Speculative decoding: a small model drafts words, the large one reads them all at once.

A drafted word x is kept with probability min(1, p(x) / q(x)), p being what the large model says and
q what the small one says. The first that is not kept is drawn anew from what p has over q. Then the
text has exactly the large model's distribution. What takes longer than a page can is kept in
speculative.json, which `make checkpoint` writes.

Source: Leviathan et al. (2023), section 2.3 and appendix A.1; Chen et al. (2023), theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.arguments import size
from labkit.models.gpt import GPT
from labkit.models.kept import load_kept
from labkit.models.stories import Stories
from labkit.models.training import WORDS, small_gpt, unseen

__all__ = ["Drafted", "acceptance", "drafted_by", "next_distribution", "residual", "run_all",
    "speculate", "speculative_step"]  # fmt: skip

STORIES, BEGUN = 30, 12
DRAFTS = (1, 2, 4, 8)  # words that are drafted for one pass of the large model
STARTS = range(5)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Give what p has over q, made a distribution: max(0, p - q) / sum.

    Args:
        p, q: (..., vocabulary), distributions. Where they are equal nothing is ever rejected, and p
            is given.

    >>> residual(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25]))
    tensor([0., 1.])
    """
    over = (p - q).clamp(min=0)
    total = over.sum(-1, keepdim=True)
    return torch.where(total > 0, over / total.clamp(min=torch.finfo(p.dtype).tiny), p)


def next_distribution(p: Tensor, q: Tensor) -> Tensor:
    """Add up, over all drafts, how likely each word comes out of one step: it is p.

    q(x) min(1, p(x) / q(x)) + (1 - sum of min(p, q)) residual(x)

    Args:
        p, q: (..., vocabulary), distributions.

    >>> next_distribution(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25]))
    tensor([0.5000, 0.5000])
    """
    kept = torch.minimum(p, q)
    return kept + (1 - kept.sum(-1, keepdim=True)) * residual(p, q)


def speculative_step(
    p: Tensor, q: Tensor, drafted: Tensor, generator: torch.Generator | None = None
) -> tuple[int, Tensor]:
    """Accept drafted words or reject them, and draw one more.

    Args:
        p: (k + 1, vocabulary), what the large model says before each drafted word and after all.
        q: (k, vocabulary), what they were drawn from.
        drafted: (k,), numbers of words.
        generator: of what is drawn.

    Returns:
        How many of the drafted words are kept, and the word that follows them, (1,).

    >>> sure = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> speculative_step(sure, torch.tensor([[0.5, 0.5]]), torch.tensor([1]))
    (1, tensor([0]))
    """
    places = torch.arange(len(drafted))
    chances = p[places, drafted] / q[places, drafted]
    rejected = torch.rand(len(drafted), generator=generator) >= chances
    kept = int((rejected.cumsum(0) == 0).sum())
    after = p[kept] if kept == len(drafted) else residual(p[kept], q[kept])
    return kept, after.multinomial(1, generator=generator)


@torch.no_grad()
def speculate(
    model: GPT,
    draft: GPT,
    prompt: Tensor,
    n: int,
    k: int = 4,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, int]:
    """Write a text as the large model would, by drafts of the small one, with caches.

    Args:
        model: the large model.
        draft: the small one, of the same vocabulary.
        prompt: (1, m), numbers of words.
        n: words of the text at the end, more than m.
        k: words that are drafted at a time.
        generator: of what is drawn.

    Returns:
        (1, n), the text, and how many passes the large model made, that over the prompt included.

    >>> from labkit.models.training import small_gpt
    >>> speculate(small_gpt(0), small_gpt(0), torch.tensor([[3, 1]]), 8)[0].shape
    torch.Size([1, 8])
    """
    size("k", k)
    ids, caches, drafts, passes = prompt, model.caches(), draft.caches(), 0
    while ids.shape[1] < n:
        q, guessed = [], ids
        for _ in range(k):
            logits = draft(guessed[:, drafts[0].n :], caches=drafts)[:, -1]
            q.append(logits.softmax(-1))
            guessed = torch.cat([guessed, q[-1].multinomial(1, generator=generator)], 1)
        # The large model has not read the last word yet; it answers for that and for each guess.
        p = model(guessed[:, caches[0].n :], caches=caches)[0, -k - 1 :].softmax(-1)
        passes += 1
        drafted = guessed[0, -k:]
        kept, word = speculative_step(p, torch.cat(q), drafted, generator)
        ids = torch.cat([ids, drafted[None, :kept], word[None]], 1)
        for cache in (*caches, *drafts):
            cache.crop(min(cache.n, ids.shape[1] - 1))  # what was rejected, and no more
    return ids[:, :n], passes


class Drafted(NamedTuple):
    """How well a draft does for a large model."""

    accepted: float  # mean probability that a drafted word is kept, over true stories
    accepted_by: dict[str, float]  # by the relation of the word
    off: float  # the largest difference of next_distribution from the large model's own
    careless: float  # KL in nats a word from p to what comes out if a rejected word is drawn from p
    words_a_pass: dict[str, float]  # written for each pass of the large model, by words drafted


@torch.no_grad()
def acceptance(model: GPT, draft: GPT, stories: Stories, seed: int = 0) -> Drafted:
    """Measure a draft: exactly over true stories, and by writing with it.

    Args:
        model: the large model.
        draft: the small one.
        stories: read, and begun for writing; the first STORIES of them.
        seed: of what is drawn.
    """
    p, q = (each(stories.ids).double().softmax(-1) for each in (model, draft))
    kept = torch.minimum(p, q)
    total = kept.sum(-1)
    careless = kept + (1 - total[..., None]) * p
    written = {}
    generator = torch.Generator().manual_seed(seed)
    for k in DRAFTS:
        passes = sum(
            speculate(model, draft, row[None, :BEGUN], WORDS, k, generator)[1]
            for row in stories.ids[:STORIES]
        )
        written[str(k)] = (WORDS - BEGUN) * min(STORIES, len(stories.ids)) / passes
    return Drafted(
        accepted=total[:, :-1].mean().item(),
        accepted_by=stories.by_relation(total[:, :-1]),
        off=(next_distribution(p, q) - p).abs().max().item(),
        careless=(p * (p.log() - careless.log())).sum(-1)[:, :-1].mean().item(),
        words_a_pass=written,
    )


def run_all(models: Sequence[GPT], small: Sequence[GPT]) -> Iterator[tuple[str, Any]]:
    """Try the models of one layer as drafts of the small GPT, and untrained ones as a control."""
    for seed, (model, draft) in enumerate(zip(models, small, strict=True)):
        untrained = small_gpt(seed, layers=1)
        for kind, each in (("one layer", draft), ("untrained", untrained), ("itself", model)):
            yield f"{kind} {seed}", acceptance(model, each, unseen(), seed)._asdict()


def drafted_by(kind: str) -> list[Drafted]:
    """Give what is kept of five starts.

    Args:
        kind: "one layer", "untrained" or "itself".

    >>> all(told.accepted > 0.999 for told in drafted_by("itself"))
    True
    """
    kept = load_kept("speculative")
    return [Drafted(**kept[f"{kind} {seed}"]) for seed in STARTS]
