"""Ask the small GPT about stories that its training did not have.

They are longer, more people come in, or somebody has a name that nobody had.

What five starts say takes longer than a page can: it is kept in beyond.json, which
`make checkpoint` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.models.ablation import FOUR
from labkit.models.gpt import GPT
from labkit.models.stories import PRONOUNS, SURNAMES, Stories
from labkit.models.training import UNSEEN_SEED, WORDS, small_gpt, train

__all__ = ["KEPT", "LONG", "SPANS", "WAYS", "judged", "long_stories", "more_people", "of_pairs",
    "rescaled", "run_all", "train_without_pairs"]  # fmt: skip

KEPT = "beyond"
LONG, STORIES = 256, 40  # words of a long story, and how many
SPANS = ((1, WORDS), (WORDS, 96), (96, 128), (128, 192), (192, LONG))  # of words, the end left out
# How rotary positions are changed: positions divided by, and the longest wave stretched by.
WAYS: dict[str, tuple[float, float]] = {
    "as trained": (1.0, 1.0),
    "positions divided by 2": (2.0, 1.0),
    "positions divided by 4": (4.0, 1.0),
    "base stretched by 2": (1.0, 2.0),
    "base stretched by 4": (1.0, 4.0),
    "base stretched by 8": (1.0, 8.0),
}


# Each name has a surname that the training with held-out pairs never puts behind it.
NEVER = {name: (SURNAMES[i % len(SURNAMES)],) for i, name in enumerate(PRONOUNS)}
OTHERS = {name: tuple(s for s in SURNAMES if s not in NEVER[name]) for name in PRONOUNS}
STEPS = 600  # of the training with held-out pairs


@contextmanager
def rescaled(model: GPT, divided: float = 1.0, stretched: float = 1.0) -> Iterator[None]:
    """Change a model's rotary positions, inside a ``with`` block.

    Args:
        model: a GPT with rotary positions.
        divided: positions are divided by it, so that all pairs rotate more slowly.
        stretched: the base grows so that the slowest pair rotates so many times more slowly, and
            the fastest as before: base * stretched^(d / (d - 2)).

    Source: Chen et al. (2023), section 2.3, for divided; Peng et al. (2024), section 3.1, for
    stretched, which is known as NTK-aware.
    """
    layers = [block.attention for block in model.stack()]
    before = [(layer.rotary_scaling, layer.rotary_base) for layer in layers]
    for layer, (scaling, base) in zip(layers, before, strict=True):
        layer.rotary_scaling = scaling * divided
        if base is not None:
            layer.rotary_base = base * stretched ** (layer.d_k / (layer.d_k - 2))
    try:
        yield
    finally:
        for layer, (scaling, base) in zip(layers, before, strict=True):
            layer.rotary_scaling, layer.rotary_base = scaling, base


def long_stories() -> Stories:
    """Draw long stories; the same ones each time."""
    return Stories.draw(STORIES, LONG, UNSEEN_SEED)


def more_people(people: int) -> Stories:
    """Draw 200 stories of as many words as those of the training, in which more people come in."""
    return Stories.draw(200, WORDS, UNSEEN_SEED, most_people=people)


def train_without_pairs(seed: int) -> GPT:
    """Train the small GPT on stories that never have the pairs of name and surname in NEVER."""
    model = small_gpt(seed)
    draw = partial(Stories.draw, surnames=OTHERS)
    for _ in train(model, STEPS, seed, every=STEPS, draw=draw):
        pass
    return model.eval()


def of_pairs(held_out: bool) -> Stories:
    """Draw 200 stories in which everybody has the pair that was held out, or nobody has it."""
    surnames = NEVER if held_out else OTHERS
    return Stories.draw(200, WORDS, UNSEEN_SEED, surnames=surnames)


@torch.no_grad()
def judged(
    model: GPT, stories: Stories, spans: Sequence[tuple[int, int]] = ((1, WORDS),)
) -> list[list[float]]:
    """Judge a model within spans of words: a row each of its divergence and the FOUR relations.

    Args:
        model: the model.
        stories: the stories.
        spans: each from a word to before another; word 0 is not asked for.
    """
    logits = model(stories.ids)
    costs = stories.divergence(logits)
    right = (logits[:, :-1].softmax(-1) * stories.options[:, 1:]).sum(-1)
    asked = [stories.of(name)[:, 1:] for name in FOUR]

    def row(start: int, end: int) -> list[float]:
        part = slice(start - 1, end - 1)
        relations: list[Tensor] = [right[:, part][where[:, part]] for where in asked]
        return [costs[:, part].mean().item(), *(found.mean().item() for found in relations)]

    return [row(*span) for span in spans]


def run_all(models: Sequence[GPT]) -> dict[str, Any]:
    """Judge models on long stories in each of WAYS, and on stories of three and four people; and
    train as many again without some pairs, and judge these on both kinds of pair.
    """
    told: dict[str, Any] = {}
    long = long_stories()
    for name, way in WAYS.items():
        told[name] = []
        for model in models:
            with rescaled(model, *way):
                told[name].append(judged(model, long, SPANS))
    for people in (3, 4):
        stories = more_people(people)
        told[f"{people} people"] = [judged(model, stories)[0] for model in models]
    for seed in range(len(models)):
        model = train_without_pairs(seed)
        for name, held_out in (("held-out pairs", True), ("other pairs", False)):
            told.setdefault(name, []).append(judged(model, of_pairs(held_out))[0])
    return told
