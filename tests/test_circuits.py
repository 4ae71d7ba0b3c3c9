"""A circuit taken apart: parts sum to the logits, and a splice changes what it says and no more."""

from __future__ import annotations

import pytest
import torch

from labkit.models import circuits
from labkit.models.ablation import FOUR
from labkit.models.circuits import direct_logits, follow, looking, spliced, swaps
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import (
    NUMBERS,
    PRONOUNS,
    SURNAMES,
    THINGS,
    VOCABULARY,
    Stories,
    decode,
    encode,
)
from labkit.models.training import small_gpt, unseen, without
from labkit.models.writing import follow as by_rules

EVERY = range(4)


@pytest.fixture(scope="module")
def model() -> GPT:
    return load_gpt()


@pytest.fixture(scope="module")
def told() -> Stories:
    return unseen(20)


@torch.no_grad()
@pytest.mark.parametrize("part", ["", "LayerNorm", "feed-forward"])
def test_direct_logits_sum_to_the_logits(told: Stories, part: str):
    model = small_gpt(0).double()
    for block in model.stack():  # as drawn, biases are 0
        torch.nn.init.normal_(block.attention.w_o.bias)
    torch.nn.init.normal_(model.norm.bias)
    if part:
        without(model, part)
    parts = direct_logits(model, told.ids[:3])
    assert len(parts) == 1 + 2 * 5 + 1
    torch.testing.assert_close(sum(parts.values()), model(told.ids[:3]))


@pytest.mark.parametrize("relation", FOUR)
def test_another_answer_is_right_where_the_source_is_another(told: Stories, relation: str):
    found = swaps(told, relation)
    assert len(found.at) == told.of(relation).sum()
    kinds = {"number": NUMBERS, "gender": PRONOUNS, "surname": SURNAMES, "owner": PRONOUNS}
    for ids, other, at, places, old, new in zip(*found, strict=True):
        assert ((ids != other) == places).all()
        assert places.nonzero().max() <= at
        assert not (old & new).any()
        assert {decode(other[i, None]) for i in places.nonzero().flatten()} <= set(kinds[relation])
        assert new.sum() == old.sum()
        assert old[ids[at + 1]]


@pytest.mark.parametrize("relation", ["surname", "owner"])
def test_a_cue_is_exchanged_with_that_of_somebody_else(told: Stories, relation: str):
    found = swaps(told, relation, "cue")
    cues = encode(" ".join(PRONOUNS if relation == "surname" else THINGS))
    for ids, other, at, places, old, new in zip(*found, strict=True):
        changed = ids != other
        assert changed.any()
        assert not changed[at:].any()
        assert torch.isin(ids[changed], cues).all()
        assert torch.equal(ids[changed].sort().values, other[changed].sort().values) or (
            ids[changed].unique().numel() == 2
        )
        assert not (changed & places).any()  # what is said stays
        assert (old.sum(), new.sum()) == (1, 1)
        answers = ids[places].unique()
        assert torch.equal(answers, (old | new).nonzero().flatten())


def test_an_example_of_each_exchange():
    text = "the map suits mia lake . the key suits ben hill . the map mia"
    words = [[word for word in by_rules(text.split())[:-1] if word is not None]]
    story = Stories(words, encode(text)[None])
    (answer,) = swaps(story, "owner").other
    assert decode(answer) == "the map suits ann lake . the key suits ben hill . the map mia"
    cue = swaps(story, "owner", "cue")
    assert decode(cue.other[0]) == "the key suits mia lake . the map suits ben hill . the map mia"
    assert cue.places[0].nonzero().flatten().tolist() == [3, 9]
    assert VOCABULARY[int(cue.new[0].nonzero())] == "ben"


@torch.no_grad()
def test_a_splice_of_nothing_changes_nothing(model: GPT, told: Stories):
    ids, other = told.ids[:4], told.ids[4:8]
    plain = model(ids)
    nowhere, everywhere = (torch.full(ids.shape, at) for at in (False, True))
    for part in ("queries", "keys", "values"):
        for given in (
            spliced(model, ids, other, part, EVERY, nowhere),
            spliced(model, ids, other, part, [], everywhere),
            spliced(model, ids, ids, part, EVERY, everywhere),
            spliced(model, ids, other, part, EVERY, everywhere, []),
        ):
            torch.testing.assert_close(given, plain, atol=1e-4, rtol=1e-4)
    changed = spliced(model, ids, other, "values", EVERY, everywhere)
    assert (changed - plain).abs().max() > 1


@torch.no_grad()
def test_through_all_heads_is_the_whole_but_for_the_words(model: GPT, told: Stories):
    found = swaps(told, "owner", "cue")
    whole, all_heads = (
        spliced(model, found.ids, found.other, "keys", EVERY, found.places, through)
        for through in (None, EVERY)
    )
    # The words at these places are the same in both texts.
    torch.testing.assert_close(whole, all_heads, atol=1e-3, rtol=1e-3)


def test_an_answer_follows_the_values_and_a_cue_the_keys(model: GPT, told: Stories):
    for relation in circuits.COPIED:
        heads = looking(model, told, relation)
        assert heads == circuits.kept()[relation]["0"]["looking"]
        for what, carries in (("answer", "values"), ("cue", "keys")):
            found = swaps(told, relation, what)
            for row in circuits.CIRCUITS:
                says = follow(model, found, row, heads)
                assert says > 0.97 if row == carries else says < 0.03, (relation, what, row)


def test_what_is_kept_is_what_is_measured(model: GPT, told: Stories):
    kept = circuits.kept()
    assert list(kept) == list(circuits.COPIED)
    assert all(list(models) == [*"01234", "by hand"] for models in kept.values())
    found, before = circuits.measure(model, told, "owner"), kept["owner"]["0"]
    assert found.keys() == before.keys()
    assert found["through"] == pytest.approx(before["through"], abs=0.02)
    for key in ("answer", "cue", "direct"):
        less = {name: value for name, value in found[key].items() if name != "cases"}
        assert less == pytest.approx({name: before[key][name] for name in less}, abs=0.06)


def test_an_untrained_model_follows_nothing(told: Stories):
    model = small_gpt(0)
    found = swaps(told, "owner")
    assert looking(model, told, "owner") == []
    for row in circuits.CIRCUITS:
        assert follow(model, found, row, [0, 1]) < 0.2


def test_what_is_no_swap_is_refused(told: Stories):
    with pytest.raises(ValueError, match="relation must be one of surname, owner; got 'gender'"):
        swaps(told, "gender", "cue")
    with pytest.raises(ValueError, match="what must be one of"):
        swaps(told, "owner", "name")
