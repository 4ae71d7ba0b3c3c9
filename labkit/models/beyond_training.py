"""The story GPT where its training did not go: longer texts, names it never saw together, a crowd.

What takes longer than a page can is kept in beyond_training.json, which `make checkpoint` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.arguments import one_of
from labkit.attention import window_mask
from labkit.models.ablation import FOUR
from labkit.models.gpt import GPT
from labkit.models.kept import load_kept
from labkit.models.stories import PRONOUNS, SURNAMES, Stories, encode
from labkit.models.training import UNSEEN_SEED, WORDS, small_gpt, train

__all__ = ["HELD_OUT", "LENGTHS", "SEEN", "WAYS", "Crowd", "Length", "crowd", "crowds",
    "held_out_gpt", "held_out_pairs", "length", "lengths", "pairs", "run_all", "told_way",
]  # fmt: skip

LENGTHS = (48, 96, 128, 256)
WAYS = ("as it is", "scaled", "larger base", "base for 8 times", "window of 48")
LAST = 24  # words at the end of a text, which a length is judged on
NEAR = WORDS - 1  # the largest distance of training
STORIES = 100
STEPS = 600
PEOPLE = (3, 4, 6)
STARTS = range(5)
# Each name is held out with one surname: 8 of 32 pairs.
HELD_OUT = {name: (SURNAMES[i % len(SURNAMES)],) for i, name in enumerate(PRONOUNS)}
SEEN = {name: tuple(s for s in SURNAMES if s not in HELD_OUT[name]) for name in PRONOUNS}


class Length(NamedTuple):
    """How a model does on the last 24 words of longer texts."""

    kl: float  # exact, in nats a word
    right: dict[str, float]  # mean probability on what is right, by relation
    near: float  # of the owner, where a source is no farther than any of training
    far: float | None  # and where all are farther


class Crowd(NamedTuple):
    """How a model does where more people than ever are known: by their number, the owner's name."""

    kl: float  # of all words; the model cannot know that more people come
    right: dict[str, float]
    owner: dict[str, float]  # by the number of people who are known at that word


@contextmanager
def told_way(model: GPT, way: str, n: int) -> Iterator[Tensor | None]:
    """Let a model read texts of n words in one of WAYS; gives the mask to read them with.

    Args:
        model: a GPT with rotary positions.
        way: "scaled" divides positions by n / 48; "larger base" makes the slowest rotation slower
            by as much and leaves the quickest, "base for 8 times" the same for 8 in place of
            n / 48; "window of 48" hides what is farther than any word of training.
        n: words of a text.

    Raises:
        ValueError: another way.

    Source: Chen et al. (2023), section 2.3, for "scaled"; Peng et al. (2024), section 3.1, for a
        larger base, which is known as NTK-aware.
    """
    one_of("way", way, WAYS)
    layers, share = [block.attention for block in model.stack()], n / WORDS
    before = [(layer.rotary_base, layer.rotary_scaling) for layer in layers]
    for layer in layers:
        if way == "scaled":
            layer.rotary_scaling *= share
        elif "base" in way and layer.rotary_base is not None:
            slower = share if way == "larger base" else 8.0
            layer.rotary_base *= slower ** (layer.d_k / (layer.d_k - 2))
    try:
        yield window_mask(n, n, WORDS) if way == "window of 48" else None
    finally:
        for layer, (base, scaling) in zip(layers, before, strict=True):
            layer.rotary_base, layer.rotary_scaling = base, scaling


@torch.no_grad()
def length(model: GPT, n: int, way: str = "as it is", count: int = STORIES) -> Length:
    """Judge a model on the end of longer stories.

    Args:
        model: a GPT with rotary positions, trained on texts of 48 words.
        n: words of a text.
        way: one of WAYS.
        count: texts.

    >>> length(small_gpt(0), 48, count=2).kl > 1
    True
    """
    stories = Stories.draw(count, n, UNSEEN_SEED)
    with told_way(model, way, n) as mask:
        logits = model(stories.ids, mask)
    kl, right = stories.divergence(logits), stories.on_right(logits.softmax(-1))
    last = torch.zeros_like(right, dtype=torch.bool)
    last[:, -LAST:] = True
    sources = stories.sources("owner")
    nearest = torch.arange(n) - torch.where(sources, torch.arange(n), -1).amax(-1)
    owner = sources.any(-1)[:, :-1] & last
    near = owner & (nearest[:, :-1] <= NEAR)
    far = right[owner & ~near]
    return Length(
        kl[last].mean().item(),
        {name: right[stories.of(name)[:, 1:] & last].mean().item() for name in FOUR},
        right[near].mean().item(),
        far.mean().item() if len(far) else None,
    )


def held_out_gpt(seed: int, steps: int = STEPS) -> GPT:
    """Train the small GPT on stories in which nobody has the surname of HELD_OUT."""
    model = small_gpt(seed)
    for _ in train(model, steps, seed, every=steps, draw=partial(Stories.draw, surnames=SEEN)):
        pass
    return model.eval()


@torch.no_grad()
def held_out_pairs(model: GPT, count: int = 200) -> dict[str, dict[str, float]]:
    """Judge a model on stories of names and surnames that were held out, and of the others.

    Returns:
        For "held out" and for "seen" the mean probability on what is right of each relation, and
        under "first" that of a surname where it is free.

    >>> [*held_out_pairs(small_gpt(0), 2)]
    ['held out', 'seen']
    """
    found = {}
    for name, surnames in (("held out", HELD_OUT), ("seen", SEEN)):
        stories = Stories.draw(count, WORDS, UNSEEN_SEED, surnames=surnames)
        logits = model(stories.ids)
        said = logits[:, :-1].softmax(-1).gather(-1, stories.ids[:, 1:, None])[..., 0]
        free = stories.of("free")[:, 1:] & torch.isin(
            stories.ids[:, 1:], encode(" ".join(SURNAMES))
        )
        told = stories.right(logits.softmax(-1))
        found[name] = {one: told[one] for one in FOUR} | {"first": said[free].mean().item()}
    return found


@torch.no_grad()
def crowd(model: GPT, most_people: int, count: int = 400) -> Crowd:
    """Judge a model on stories of 48 words in which more people than three can be introduced.

    >>> [*crowd(small_gpt(0), 4, 8).owner][:1]
    ['1']
    """
    stories = Stories.draw(count, WORDS, UNSEEN_SEED, most_people=most_people)
    logits = model(stories.ids)
    right, owner = stories.on_right(logits.softmax(-1)), stories.of("owner")[:, 1:]
    known = (stories.ids == encode("suits")).cumsum(1)[:, :-1]
    told = stories.right(logits.softmax(-1))
    return Crowd(
        stories.divergence(logits).mean().item(),
        {name: told[name] for name in FOUR},
        {
            str(people): right[owner & (known == people)].mean().item()
            for people in range(1, most_people + 1)
            if (owner & (known == people)).any()
        },
    )


def run_all(models: Sequence[GPT], without_pairs: Sequence[GPT]) -> Iterator[tuple[str, Any]]:
    """Measure all of it: "length 96, scaled 0", "pairs, held out 0", "people 4 0".

    Args:
        models: the small GPT, one for each start.
        without_pairs: those of held_out_gpt.
    """
    for seed, model in enumerate(models):
        for n in LENGTHS:
            for way in WAYS if n > WORDS else ("as it is", "base for 8 times"):
                yield f"length {n}, {way} {seed}", length(model, n, way)._asdict()
        for people in PEOPLE:
            yield f"people {people} {seed}", crowd(model, people)._asdict()
        yield f"pairs, all in training {seed}", held_out_pairs(model)
    for seed, model in enumerate(without_pairs):
        yield f"pairs, some held out {seed}", held_out_pairs(model)


def lengths(n: int, way: str = "as it is") -> list[Length]:
    """Give what is kept of a length and a way, for five starts.

    >>> min(told.right["owner"] for told in lengths(48)) > 0.99
    True
    """
    kept = load_kept("beyond_training")
    return [Length(**kept[f"length {n}, {way} {seed}"]) for seed in STARTS]


def crowds(most_people: int) -> list[Crowd]:
    """Give what is kept of stories with so many people, for five starts.

    >>> len(crowds(4))
    5
    """
    kept = load_kept("beyond_training")
    return [Crowd(**kept[f"people {most_people} {seed}"]) for seed in STARTS]


def pairs(training: str = "some held out") -> list[dict[str, dict[str, float]]]:
    """Give what is kept of pairs of name and surname, for five starts.

    Args:
        training: "some held out", or "all in training", the control.

    >>> len(pairs())
    5
    """
    kept = load_kept("beyond_training")
    return [kept[f"pairs, {training} {seed}"] for seed in STARTS]
