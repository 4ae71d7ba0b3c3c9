"""What becomes of a model that reads its own words: exposure bias, where the truth is known.

In training a model reads true text; when it writes, its own. Here both are judged by the exact
distribution of each next word, as long as a text keeps the rules, and after it broke them. What
takes longer than a page can is kept in exposure.json, which `make checkpoint` writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.arguments import one_of, whole
from labkit.models.gpt import GPT
from labkit.models.kept import load_kept
from labkit.models.stories import SURNAMES, Stories, encode
from labkit.models.training import WORDS, small_gpt, train, unseen
from labkit.models.writing import follow_all, sample

__all__ = ["BEGUN", "MODES", "PIECE", "Reading", "heard", "read", "readings", "run_all",
    "scheduled_gpt", "texts"]  # fmt: skip

MODES = ("true", "sampled", "greedy", "planted")
BEGUN = 12  # true words at the beginning, which all texts share
PIECE = 6  # words over which a curve is averaged
TEXTS = 400
STEPS = 1_000
MOST_HEARD = 0.25  # share of a story's words that are the model's own, at the end of training
STARTS = range(5)
SCHEDULED = range(3)  # starts that were trained with scheduled sampling


class Reading(NamedTuple):
    """How a model does on texts, from word BEGUN on, in pieces of PIECE words."""

    kl: list[float]  # exact, in nats a word, of texts that have kept the rules so far
    wrong: list[float]  # the probability that the next word breaks them, of the same texts
    broken: float  # the share of texts that break them somewhere
    breaks: dict[str, int]  # how many words first broke the rules of a text, by relation
    kl_after: float | None  # after a text broke the rules, where they say something again
    wrong_after: float | None


def texts(model: GPT, mode: str, seed: int, count: int = TEXTS) -> Tensor:
    """Give texts of 48 words whose first 12 are those of unseen stories: (count, 48).

    Args:
        model: who writes, where somebody writes.
        mode: one of MODES: "true" stories; "sampled" or "greedy", what the model writes itself;
            "planted", true stories in which one surname that was fixed is another.
        seed: of what is drawn.

    Raises:
        ValueError: another mode.
    """
    one_of("mode", mode, MODES)
    stories = unseen(count)
    generator = torch.Generator().manual_seed(whole("seed", seed))
    if mode == "planted":
        return planted(stories, generator)
    if mode == "true":
        return stories.ids
    return sample(model, stories.ids[:, :BEGUN], WORDS, float(mode == "sampled"), generator)


def planted(stories: Stories, generator: torch.Generator) -> Tensor:
    """Replace the first surname after word BEGUN that is fixed, in each story that has one."""
    ids, surnames = stories.ids.clone(), encode(" ".join(SURNAMES))
    for b, fixed in enumerate(stories.of("surname")):
        at = [i for i in fixed.nonzero()[:, 0].tolist() if i >= BEGUN]
        if at:
            others = surnames[surnames != ids[b, at[0]]]
            ids[b, at[0]] = others[torch.randint(len(others), (), generator=generator)]
    return ids


@torch.no_grad()
def read(model: GPT, ids: Tensor) -> Reading:
    """Judge what a model says of each word from BEGUN on, whoever wrote the text.

    Args:
        model: a GPT over the stories' vocabulary.
        ids: (B, n).

    >>> from labkit.models.training import unseen
    >>> read(small_gpt(0), unseen(2).ids).broken
    0.0
    """
    followed = follow_all(ids)
    said = model(ids)[:, BEGUN - 1 : -1].double().log_softmax(-1)
    truth, told = followed.truth[:, BEGUN:-1], followed.told[:, BEGUN:-1]
    kl = torch.where(truth > 0, truth * (truth.log() - said), 0.0).sum(-1)
    wrong = (said.exp() * (truth == 0)).sum(-1)
    intact = followed.intact[:, BEGUN:-1]
    after = told & ~intact

    def curve(values: Tensor) -> list[float]:
        pieces = zip(values.split(PIECE, 1), intact.split(PIECE, 1), strict=True)
        return [each[where].mean().item() for each, where in pieces]

    def late(values: Tensor) -> float | None:
        return values[after].mean().item() if after.any() else None

    first = followed.breaks & followed.intact[:, :-1]
    breaks = Counter(followed.relations[b][i] for b, i in first.nonzero().tolist())
    broken = first.any(1).double().mean().item()
    return Reading(curve(kl), curve(wrong), broken, dict(breaks), late(kl), late(wrong))


@torch.no_grad()
def heard(model: GPT, ids: Tensor, over: float) -> Tensor:
    """Replace words of a story by what the model would have said: scheduled sampling.

    A word is replaced with a probability that grows from 0 to MOST_HEARD. What replaces it is drawn
    from what the model says after the true words before it, so that one pass does for all.

    Args:
        model: a GPT.
        ids: (B, n).
        over: how much of the training is over, from 0 to 1.

    Source: Bengio et al. (2015); Mihaylova and Martins (2019) for the one pass.

    >>> heard(small_gpt(0), torch.tensor([[3, 1, 4]]), 0.0).tolist()
    [[3, 1, 4]]
    """
    said = model(ids[:, :-1]).softmax(-1).flatten(0, 1).multinomial(1).view(ids.shape[0], -1)
    own = torch.rand(said.shape) < MOST_HEARD * over
    return torch.cat([ids[:, :1], said.where(own, ids[:, 1:])], 1)


def scheduled_gpt(seed: int, steps: int = STEPS) -> GPT:
    """Train the small GPT as ever, but for scheduled sampling."""
    model = small_gpt(seed)
    for _ in train(model, steps, seed, every=steps, heard=heard):
        pass
    return model.eval()


def run_all(models: dict[str, list[GPT]]) -> Iterator[tuple[str, Any]]:
    """Judge models in each mode: "kind seed, mode" and the fields of its Reading.

    Args:
        models: by kind, one for each start.
    """
    for kind, starts in models.items():
        for seed, model in enumerate(starts):
            for mode in MODES:
                yield f"{kind} {seed}, {mode}", read(model, texts(model, mode, seed))._asdict()


def readings(kind: str, mode: str) -> list[Reading]:
    """Give the kept readings of five starts, or of the three with scheduled sampling.

    Args:
        kind: "rotary", the small GPT, or "scheduled", trained with scheduled sampling.
        mode: one of MODES.

    >>> [reading.broken for reading in readings("rotary", "true")]
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    kept = load_kept("exposure")
    starts = SCHEDULED if kind == "scheduled" else STARTS
    return [Reading(**kept[f"{kind} {seed}, {mode}"]) for seed in starts]
