"""The figure of two heads that need each other: what it shows is the small GPT's, head by head."""

from __future__ import annotations

import math

import pytest
import torch

from labkit.figures import live
from labkit.figures.induction_heads import (
    MOST_WORDS,
    OFF,
    PEOPLE,
    measured,
    name_scores,
    pair,
    retold,
    surname_places,
    tales,
)
from labkit.models import ablation, circuits, gpt
from labkit.models.stories import PRONOUNS, SURNAMES, VOCABULARY, encode
from labkit.models.training import unseen

SWITCHED = f"head {pair()[0]}"


@pytest.mark.parametrize("off", OFF)
@torch.no_grad()
def test_what_is_shown_is_the_model_without_the_head(off: str):
    model = gpt.load_gpt().double()
    layer = model.stack()[0].attention
    for example, tale in enumerate(tales()):
        surname = SURNAMES[example % len(SURNAMES)]
        values = live.InductionHeads(example=example, surname=surname, off=off).values()
        ids = encode(retold(tale, surname))
        whole = model(ids[None])[0, -1].softmax(-1)
        with ablation.ablated_heads(layer, [OFF.index(off) - 1][: off != OFF[0]]):
            logits, weights = model(ids[None], return_weights=True)
        chances = logits[0, -1].softmax(-1)
        for word, told in zip(SURNAMES, values["next word"], strict=False):
            known = [float(one[VOCABULARY.index(word)]) for one in (whole, chances)]
            assert told == pytest.approx(known)
        assert [sum(column) for column in zip(*values["next word"], strict=True)] == pytest.approx(
            [1, 1]
        )
        shown = torch.tensor(values["weights of the previous-word head"], dtype=torch.float64)
        torch.testing.assert_close(shown, weights[0, 0, pair()[0]])
        last = torch.tensor(values["weights from the last word"], dtype=torch.float64)
        torch.testing.assert_close(last, weights[1, 0, :, -1])
        before = torch.tensor(values["weight on the word before"], dtype=torch.float64)
        torch.testing.assert_close(before[:, 1:], weights[0, 0].diagonal(-1, -2, -1))


def test_scores_are_those_that_the_weights_come_from():
    for example, tale in enumerate(tales()):
        values = live.InductionHeads(example=example, surname=tale.surname).values()
        words = tale.text.split()
        scores = values["scores by name"][list(PRONOUNS).index(words[-1])]
        weights = values["weights from the last word"][pair()[1]]
        first, second = (weights[i] for i in surname_places(encode(tale.text)))
        assert scores[0] - scores[1] == pytest.approx(math.log(first / second))


def test_the_heads_are_those_that_path_patching_finds():
    found = circuits.kept()["surname"]["0"]
    through = found["through"]
    assert pair()[0] == through.index(max(through))
    assert pair()[1] in found["looking"]


def test_the_stories_are_all_that_fit():
    beginnings = {tale.text: tale.surname for tale in tales()[1:]}
    seen = 0
    for words in unseen(ablation.COUNTS).words:
        for i, word in enumerate(words):
            said = [one.text for one in words[:i]]
            people = len({one for one in said if one in PRONOUNS})
            if word.relation == "surname" and people == PEOPLE and i <= MOST_WORDS:
                assert beginnings[" ".join(said)] == word.text
                seen += 1
    assert seen == len(beginnings) == len(tales()) - 1
    for tale in tales():
        words = tale.text.split()
        assert words[words.index(words[-1]) + 1] == tale.surname
        assert len(surname_places(encode(tale.text))) == PEOPLE


def test_the_chapter_tells_what_was_measured():
    keys = PEOPLE * len(tales())
    whole, without = measured(OFF[0]), measured(SWITCHED)
    assert [round(keys * told[2]) for told in (whole, without)] == [26, 5]
    assert [round(told[3], 2) for told in (whole, without)] == [0.98, 0.25]
    assert [round(told[4], 2) for told in (whole, without)] == [1.00, 0.59]
    assert int(unseen(ablation.COUNTS).of("surname").sum()) == 197
    right = 0
    for example, tale in enumerate(tales()):
        told = live.InductionHeads(example=example, surname=tale.surname, off=SWITCHED).values()
        now = [line[1] for line in told["next word"]]
        right += now.index(max(now)) == SURNAMES.index(tale.surname)
    assert (right, len(tales())) == (8, 13)
    for off in set(OFF) - {OFF[0], SWITCHED}:
        assert round(measured(off)[4], 2) == 1.00


def test_each_key_fits_the_name_before_it():
    for tale in tales():
        ids = encode(tale.text)
        best = name_scores(ids[None], OFF[0])[0].argmax(0)
        own = [ids[i - 1] for i in surname_places(ids)]
        assert [VOCABULARY.index(list(PRONOUNS)[i]) for i in best] == own


def test_the_weight_on_the_word_before_is_averaged_over_surnames():
    told = unseen(3)
    weights = torch.rand(2, 3, 4, *[told.ids.shape[1]] * 2)
    for others in (False, True):
        found = [
            weights[:, b, :, i, i - 1]
            for b, words in enumerate(told.words)
            for i, word in enumerate(words)
            if i and (word.text in SURNAMES) != others
        ]
        mean = ablation.weights_on_word_before(weights, told, others=others)
        torch.testing.assert_close(mean, torch.stack(found).mean(0))


def test_it_gets_the_weights_of_the_small_gpt(monkeypatch: pytest.MonkeyPatch):
    figure, sent = live.InductionHeads(), []
    monkeypatch.setattr(figure, "send", lambda *message: sent.append(message))
    figure._handle_custom_msg({"ask": "parcel"}, [])
    assert sent == []
    figure._handle_custom_msg({"ask": "parcel", "of": "small_gpt"}, [])
    assert sent == [({"answer": "parcel"}, [live.SmallGPT.parcel()])]
    assert live.InductionHeads.parcel() == b""
