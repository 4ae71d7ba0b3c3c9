"""Chapter 3's layer: what the kept starts answer, and that training again finds as much."""

from __future__ import annotations

import pytest
import torch

from labkit import scaled_dot_product_attention
from labkit.models import cross
from labkit.models.cross import ANSWERS, KINDS, STARTS, UNSAID, WORDS, encode, notes


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_notes_are_alike_and_every_word_is_used(kind: str):
    texts = [note.text for note in notes(kind)]
    assert len(set(texts)) == len(texts)
    assert {word for text in texts for word in text.split()} == set(WORDS)
    seen, unseen = cross.parted(kind)
    assert not set(seen) & set(unseen)
    assert len(seen) + len(unseen) == len(texts)


def test_an_answer_is_a_word_of_the_note_or_that_it_does_not_say():
    for text, answers, places in notes():
        for answer, place in zip(answers, places, strict=True):
            assert answer == (UNSAID if place is None else text.split()[place])
    assert {answer for note in notes() for answer in note.answers} == set(ANSWERS)


def test_who_is_whoever_stands_before_the_verb():
    for text, (who, does, what), _ in notes("both orders"):
        words = text.split()
        assert words.index(who) < words.index(does) < words.index(what)


def test_the_kept_start_is_in_halves_and_answers_every_question():
    model = cross.load_cross()
    assert all(torch.equal(2 * x, (2 * x).round()) for x in model.parameters())
    judged = cross.judge(model)
    assert judged.right.item() == 60
    assert min(judged.surest, judged.on_word) > 0.95


def test_it_is_attention():
    model = cross.load_cross()
    w = {name: x[0] for name, x in model.state_dict().items()}
    for text, *_ in notes():
        memory = w["words"][encode(text)]
        asked = (w["questions"] @ w["W_Q"], memory @ w["W_K"], memory @ w["W_V"])
        output, expected = scaled_dot_product_attention(*asked, return_weights=True)
        logits, weights = model(encode(text))
        torch.testing.assert_close(weights[0], expected)
        torch.testing.assert_close(logits[0], (w["questions"] + output) @ w["U"])


def test_notes_of_different_length_do_not_disturb_each_other():
    model = cross.load_crosses()
    together, _ = model(*cross.batch(notes())[:2])
    alone = torch.stack([model(encode(text))[0] for text, *_ in notes()], 1)
    torch.testing.assert_close(together, alone)


def test_a_start_is_the_same_alone_and_among_others():
    both, one = cross.train_crosses([3, 4], steps=220), cross.train_crosses([4], steps=220)
    for together, alone in zip(both.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(together[1:], alone)


def test_the_controls_are_what_their_names_say():
    ids = encode("mia sees the dog .")
    _, weights = cross.Cross([0], "average")(ids)
    torch.testing.assert_close(weights, torch.full_like(weights, 0.2))
    _, weights = cross.Cross([0], "one query")(ids)
    torch.testing.assert_close(weights, weights[:, :1].expand_as(weights))
    with pytest.raises(ValueError, match="kind must be one of attention, average, one query"):
        cross.Cross([0], "none")


def test_only_positions_tell_the_orders_apart():
    one, other = encode("mia sees the dog ."), encode("the dog sees mia .")
    same = [torch.allclose(*(cross.load_crosses(kind)(ids)[0] for ids in (one, other)))
            for kind in KINDS]  # fmt: skip
    assert same == [True] * 5 + [False]


@pytest.mark.weekly
def test_nearly_every_start_learns_all_questions_also_of_notes_that_it_never_saw():
    judged = cross.judge(cross.train_crosses(STARTS))
    assert (judged.right == 60).sum() > 15
    assert cross.judge(cross.train_crosses(STARTS, kind="average")).right.max() < 60


def test_a_strange_word_is_named():
    with pytest.raises(ValueError, match="do not include cat"):
        encode("the cat sees mia")


def test_a_missing_file_names_what_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(cross, "CHECKPOINT", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="make checkpoint"):
        cross.load_cross()
