"""What is found in a GPT of two layers, trained or written by hand: where its heads look, and why.

facts = {"by hand": compare(by_hand(), unseen()), "trained": compare(load_gpt(), unseen())}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.models.ablation import (
    effects,
    right_words,
    second_layer_weights,
    units_of,
    weights_on_sources,
)
from labkit.models.gpt import GPT
from labkit.models.stories import Stories

__all__ = ["Comparison", "compare"]


class Comparison(NamedTuple):
    """What was found. Each four numbers are of number, gender, surname, owner, as in FOUR."""

    divergence: float  # from the truth, in nats a word
    wrong: int  # fixed words where a word that may not come is the likeliest
    fixed: int  # words that are fixed
    least: float  # the least probability on what is right of a fixed word
    found_by: list[tuple[int, int]]  # layer and head with the largest weight on the sources
    weights: list[float]  # this weight
    lost: Tensor  # (h, 4): mean probability on what is right lost without a head of layer 0
    all_lost: Tensor  # (4,): without all of layer 0's heads
    whole: list[float]  # the largest weight on the sources in layer 1
    keys_cut: list[float]  # the same, if layer 1's keys do not hear the heads of layer 0
    queries_cut: list[float]  # and if its queries do not
    used: int  # numbers that are not 0
    numbers: int


@torch.no_grad()
def compare(model: GPT, stories: Stories) -> Comparison:
    """Say what is found in a GPT of two blocks and rotary positions, or none.

    >>> from labkit.models.training import small_gpt, unseen
    >>> compare(small_gpt(0), unseen(4)).numbers
    107264
    """
    every = range(model.stack()[0].attention.h)
    logits, weights = model(stories.ids, return_weights=True)
    options, said = stories.options[:, 1:], logits[:, :-1]
    fixed = ~stories.of("free")[:, 1:]
    may_come = options.gather(-1, said.argmax(-1, keepdim=True)).squeeze(-1)
    on_right = stories.on_right(logits.double().softmax(-1))
    on_sources = weights_on_sources(weights, stories)
    best = on_sources.flatten(0, 1).max(0)

    def largest(**cut: Sequence[int]) -> list[float]:
        weights = second_layer_weights(model, stories.ids, **cut)
        return weights_on_sources(weights[None], stories)[0].amax(0).tolist()

    score, layer = right_words(stories), model.stack()[0].attention
    groups = [*(units_of(layer, [head]) for head in every), units_of(layer, every)]
    lost = effects(lambda: score(model), layer, groups)
    return Comparison(
        divergence=stories.divergence(logits).mean().item(),
        wrong=int((~may_come & fixed).sum()),
        fixed=int(fixed.sum()),
        least=on_right[fixed].min().item(),
        found_by=[divmod(head, layer.h) for head in best.indices.tolist()],
        weights=best.values.tolist(),
        lost=lost[:-1],
        all_lost=lost[-1],
        whole=on_sources[1].amax(0).tolist(),
        keys_cut=largest(keys_without=every),
        queries_cut=largest(queries_without=every),
        used=sum(int(weight.count_nonzero()) for weight in model.parameters()),
        numbers=sum(weight.numel() for weight in model.parameters()),
    )
