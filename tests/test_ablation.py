"""Ablation: what a head wrote is what is missing, and a mean or zero stands in its place."""

from __future__ import annotations

import pytest
import torch

from labkit import MultiHeadAttention, split_heads
from labkit.models.ablation import (
    FOUR,
    ablated,
    ablated_heads,
    effects,
    mean_read,
    right_words,
    second_layer_weights,
    specialisation,
    units_of,
    weights_on_sources,
)
from labkit.models.gpt import load_gpt
from labkit.models.stories import VOCABULARY
from labkit.models.training import load_starts, unseen


@torch.no_grad()
def test_what_is_missing_without_a_head_is_what_it_wrote():
    layer, x = MultiHeadAttention(12, 3, d_v=5), torch.randn(2, 7, 12)
    whole, weights = layer(x, return_weights=True)
    values = split_heads(layer.w_v(x), 3)
    for head in range(3):
        with ablated_heads(layer, [head]):
            without = layer(x)
        slab = layer.w_o.weight[:, units_of(layer, [head])]
        written = weights[:, head] @ values[:, head] @ slab.T
        torch.testing.assert_close(whole - without, written)
    torch.testing.assert_close(layer(x), whole)


@torch.no_grad()
def test_a_mean_ablated_layer_says_the_same_everywhere_and_on_average_what_it_said():
    layer, x = MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
    mean = mean_read(layer, layer, x)
    with ablated(layer, range(8), mean):
        output = layer(x)
    torch.testing.assert_close(output, layer(x).mean((0, 1)).expand_as(output))


def test_heads_that_a_layer_does_not_have_are_refused():
    with pytest.raises(ValueError, match=r"heads are numbered 0 to 1; got \[2\]"):
        units_of(MultiHeadAttention(4, 2), [2])


def test_specialisation_ignores_gains_and_small_effects():
    lost = torch.tensor([[0.6, -0.5, 0.2], [0.09, 0.0, 0.0], [0.3, 0.3, 0.3]])
    found = specialisation(lost)
    assert found[[0, 2]].tolist() == pytest.approx([0.75, 1 / 3])
    assert found[1].isnan()


@torch.no_grad()
def test_the_score_is_what_stories_report():
    model, stories = load_gpt(), unseen(20)
    told = stories.right(model(stories.ids).softmax(-1))
    assert right_words(stories)(model).tolist() == pytest.approx([told[name] for name in FOUR])


def test_among_words_of_their_kind_a_model_that_says_all_alike_is_at_chance():
    def all_alike(ids):
        return torch.zeros(*ids.shape, len(VOCABULARY))

    stories = unseen(60)
    chance = [1 / 2, 1 / 2, 1 / 4, 1 / 8]  # verbs of one number, pronouns, surnames, names
    assert right_words(stories, of_their_kind=True)(all_alike).tolist() == pytest.approx(chance)
    assert (right_words(stories)(all_alike) < 0.1).all()


@torch.no_grad()
def test_the_second_layer_undisturbed_looks_where_the_model_looks():
    model, stories = load_gpt(), unseen(5)
    _, weights = model(stories.ids, return_weights=True)
    torch.testing.assert_close(second_layer_weights(model, stories.ids), weights[1])
    assert weights_on_sources(weights, stories).shape == (2, 4, 4)


def test_the_kept_starts_know_what_chapter_8_says():
    score = right_words(unseen(60))
    two, one = ([score(model) for model in load_starts(kind)] for kind in ("rotary", "one layer"))
    assert torch.stack(two).min() > 0.99
    assert torch.stack(one)[:, :2].min() > 0.99
    assert torch.stack(one)[:, 2:].max() < 0.8


def test_an_effect_is_what_a_score_loses():
    layer = MultiHeadAttention(4, 2, bias=False)
    with torch.no_grad():
        lost = effects(lambda: layer.w_o(torch.ones(4)), layer, [[0, 1], range(4)])
    torch.testing.assert_close(lost[1], layer.w_o.weight.sum(-1).detach())
