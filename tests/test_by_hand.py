"""The GPT written by hand: exact on every story, by the circuit that its module describes."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch import Tensor

from labkit.models import by_hand as module
from labkit.models import stories as language
from labkit.models.ablation import COUNTS, FOUR, effects, right_words, units_of
from labkit.models.by_hand import HEADS, SIZE, WIDTH, by_hand
from labkit.models.comparison import Comparison, compare
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import Stories, encode
from labkit.models.training import UNSEEN_SEED, unseen

FURTHER = 2**50  # the seed of stories that no other page or test draws
NUMBER, GENDER, SURNAME, OWNER = range(len(FOUR))


@pytest.fixture(scope="module")
def model() -> GPT:
    return by_hand()


@pytest.fixture(scope="module")
def told() -> Stories:
    return unseen(COUNTS)


@pytest.fixture(scope="module")
def found(model: GPT, told: Stories) -> Comparison:
    return compare(model, told)


@torch.no_grad()
def said(model: GPT, stories: Stories) -> Tensor:
    """Give what a model says of each word but the first, from the words before it."""
    return model(stories.ids[:, :-1]).double().softmax(-1)


def sure(said: Tensor, stories: Stories, truth: Tensor) -> Tensor:
    """Give the probability on what is right of each fixed word."""
    return (said * (truth > 0)).sum(-1)[~stories.of("free")[:, 1:]]


@pytest.mark.parametrize(
    ("count", "n", "seed"),
    [
        pytest.param(200, 48, UNSEEN_SEED, id="unseen"),
        pytest.param(1_000, 48, FURTHER, id="a thousand further", marks=pytest.mark.weekly),
        pytest.param(5, 500, FURTHER, id="long"),
    ],
)
def test_every_word_gets_its_true_probability(model: GPT, count: int, n: int, seed: int):
    stories = Stories.draw(count, n, seed)
    truth, given = stories.truth[:, 1:], said(model, stories)
    torch.testing.assert_close(given, truth, atol=1e-4, rtol=0)
    assert torch.where(truth > 0, truth * (truth / given).log(), 0.0).sum(-1).max() < 1e-6
    assert sure(given, stories, truth).min() > 1 - 1e-11


@torch.no_grad()
def test_it_knows_the_truth_with_a_word_at_a_time(model: GPT, told: Stories):
    caches = model.caches()
    logits = torch.cat([model(ids, caches=caches) for ids in told.ids.split(1, dim=1)], 1)
    assert told.divergence(logits).max() < 1e-6


@torch.no_grad()
def test_layer_norm_divides_by_a_constant_or_nearly(model: GPT, told: Stories):
    streams: list[Tensor] = []
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    hooks = [n.register_forward_pre_hook(lambda _, given: streams.append(given[0])) for n in norms]
    model(told.ids)
    for hook in hooks:
        hook.remove()
    assert len(streams) == 5
    for x in streams:
        assert x.mean(-1).abs().max() < 1e-5
        off = x.std(-1, unbiased=False) / (SIZE * (2 / WIDTH) ** 0.5) - 1
        assert off.abs().max() < 2e-4


@torch.no_grad()
def test_heads_of_the_first_layer_look_one_two_and_three_words_back(model: GPT, told: Stories):
    _, weights = model(told.ids, return_weights=True)
    places = torch.arange(told.ids.shape[1])
    for head, distance in enumerate((1, 2, 3)):
        at = (places - distance).clamp(min=0)
        assert weights[0, :, head, places, at].min() > 1 - 1e-6


@torch.no_grad()
def test_heads_of_the_second_layer_look_at_all_answers_alike_or_at_a_the(model: GPT, told: Stories):
    _, weights = model(told.ids, return_weights=True)
    sink = weights[1] @ (told.ids == encode("the")).float()[:, None, :, None]
    for head, name in enumerate(("surname", "owner")):
        sources = told.sources(name).float()
        asked = sources.any(-1)
        even = sources / sources.sum(-1, keepdim=True)
        torch.testing.assert_close(weights[1, :, head][asked], even[asked])
        asked[:, -1] = True  # by a word that is not told
        torch.testing.assert_close(sink[:, head, :, 0] * ~asked, (~asked).float())
    for ids, on in zip(told.ids, weights[1, :, 2], strict=True):
        introduced = torch.tensor([False, *(ids[:-1] == encode("suits"))])
        people = introduced.cumsum(0)
        even = (introduced / people.clamp(min=1)[:, None]).tril()
        somebody = people > 0
        torch.testing.assert_close(on[somebody], even[somebody])
        assert on[~somebody][:, ids != encode("the")].max() < 1e-9


def test_what_each_head_is_for_is_what_is_lost_without_it(model: GPT, told: Stories):
    score = right_words(told)
    first, second = (
        effects(
            lambda: score(model),
            block.attention,
            [units_of(block.attention, [i]) for i in (0, 1, 2)],
        )
        for block in model.stack()
    )
    # A surname of four is left to chance without either half of the circuit, and no more is lost.
    torch.testing.assert_close(first[0], torch.tensor([0, 0, 0.75, 0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(second[0], torch.tensor([0, 0, 0.75, 0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(second[1], torch.tensor([0, 0, 0, 1.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(second[2], torch.zeros(4), atol=1e-5, rtol=0)
    # Two words back are near a verb (else "near" is as likely), and the thing of an introduction.
    assert first[1, NUMBER] > 0.99
    assert first[1, OWNER] > 0.5
    assert first[1, [GENDER, SURNAME]].abs().max() < 1e-5
    assert first[2, GENDER].item() == pytest.approx(0.5, abs=1e-5)
    assert 0.4 < first[2, NUMBER] < 0.6
    assert first[2, [SURNAME, OWNER]].abs().max() < 1e-5


def test_the_second_layer_composes_through_its_keys(found: Comparison, told: Stories):
    assert found.found_by == [(0, 2), (0, 2), (1, 0), (1, 1)]
    assert found.weights == pytest.approx([1.0] * 4)
    assert found.whole[SURNAME:] == pytest.approx([1.0, 1.0])
    assert found.queries_cut[SURNAME:] == pytest.approx([1.0, 1.0])
    assert max(found.keys_cut) < 1e-9
    assert (found.wrong, found.fixed) == (0, int((~told.of("free")[:, 1:]).sum()))
    assert found.least > 1 - 1e-11
    assert found.divergence < 1e-7


def test_of_its_numbers_one_in_two_hundred_is_not_zero(model: GPT, found: Comparison):
    assert found.numbers == sum(weight.numel() for weight in model.parameters())
    assert found.used == sum(int((weight != 0).sum()) for weight in model.parameters())
    assert 200 * found.used < found.numbers < 300 * found.used


def test_a_trained_model_is_judged_by_the_same_measure(told: Stories):
    trained = load_gpt()
    found = compare(trained, told)
    with torch.no_grad():
        score, divergence = right_words(told)(trained), told.divergence(trained(told.ids))
    assert found.divergence == pytest.approx(divergence.mean().item())
    assert 0.9 < found.least < 1
    assert (score - found.all_lost).min() >= 0
    assert found.lost.shape == (4, 4)
    assert found.whole[SURNAME] > 0.9 > 0.5 > found.keys_cut[SURNAME]
    assert found.used == found.numbers


def test_a_blind_model_errs_and_the_comparison_counts_it(told: Stories):
    blind = by_hand()
    with torch.no_grad():
        blind.next_word.weight.zero_()
    found = compare(blind, told)
    # All logits are equal, so the first word, ".", is the likeliest everywhere.
    words = chain.from_iterable(row[1:] for row in told.words)
    fixed = [word for word in words if word.relation != "free"]
    assert found.fixed == len(fixed)
    assert found.wrong == sum("." not in word.options for word in fixed)


@torch.no_grad()
def test_the_answer_follows_its_source(model: GPT):
    text = "the map suits {} lake . the hat suits tom ford . the map"
    for name in ("mia", "eva", "max"):
        logits = model(encode(text.format(name))[None])[0, -1]
        assert logits.argmax() == encode(name)


def test_a_fourth_person_is_new_to_its_free_words_and_not_to_its_heads(
    model: GPT, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(language, "MOST_PEOPLE", 4)
    caches = language._beginnings, language._nouns
    for cache in caches:
        cache.cache_clear()
    four = Stories.draw(50, 96, FURTHER)
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()
    truth, given = four.truth[:, 1:], said(model, four)
    assert sure(given, four, truth).min() > 1 - 1e-9
    assert (given - truth).abs().max() > 0.1


def test_writing_it_draws_nothing():
    before = torch.random.get_rng_state()
    by_hand()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_parts_of_the_stream_do_not_overlap():
    parts = (module.WORD, module.ONE_BACK, module.TWO_BACK, module.KNOWN, module.NEXT)
    features = [feature for part in parts for feature in module.at(part, *language.VOCABULARY)]
    assert sorted([*features, *module.ANCHORS]) == list(range(WIDTH))
    assert WIDTH % (2 * HEADS) == 0
