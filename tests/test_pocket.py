"""The pocket model: what the kept starts answer, and that training again finds as much."""

from __future__ import annotations

import pytest
import torch

from labkit import scaled_dot_product_attention
from labkit.models import pocket
from labkit.models.pocket import ANSWERS, STARTS, WORDS, encode, sentences


def test_every_sentence_has_one_answer_and_no_two_are_alike():
    texts = [sentence.text for sentence in sentences()]
    assert len(set(texts)) == len(texts) == 74
    assert {sentence.answer for sentence in sentences()} == set(ANSWERS)
    assert {word for text in texts for word in text.split()} == set(WORDS)
    seen, unseen = pocket.parted()
    assert not set(seen) & set(unseen)


def test_the_word_that_decides_is_the_person_or_the_verb():
    assert pocket.sentences()[0] == ("mia reads and", "she", 0)
    for text, answer, place in sentences():
        words = text.split()
        decides = None if place is None else words[place]
        assert answer == {**pocket.PRONOUNS, **pocket.OBJECTS, None: "it"}[decides]


def test_the_kept_start_is_in_halves_and_answers_every_sentence():
    model = pocket.load_pocket()
    assert all(torch.equal(2 * x, (2 * x).round()) for x in model.parameters())
    judged = pocket.judge(model)
    assert judged.right.item() == 74
    assert min(judged.surest, judged.on_name, judged.on_verb) > 0.95


def test_it_is_attention():
    model = pocket.load_pocket()
    for text, *_ in sentences():
        ids = encode(text)
        x = model.vectors[0, ids]
        asked = (x[-1:] @ model.W_Q[0], x @ model.W_K[0], x @ model.W_V[0])
        output, expected = scaled_dot_product_attention(*asked, return_weights=True)
        logits, weights = model(ids)
        torch.testing.assert_close(weights, expected)
        torch.testing.assert_close(logits, (x[-1:] + output) @ model.U[0])


def test_sentences_of_different_length_do_not_disturb_each_other():
    model = pocket.load_pockets()
    together, _ = model(*pocket.batch(sentences())[:2])
    alone = torch.stack([model(encode(text))[0] for text, *_ in sentences()], 1)
    torch.testing.assert_close(together, alone)


def test_a_start_is_the_same_alone_and_among_others():
    both, one = pocket.train_pockets([3, 4], steps=20), pocket.train_pockets([4], steps=20)
    for together, alone in zip(both.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(together[1:], alone)


def test_the_controls_are_what_their_names_say():
    ids = encode("mia sees the dog and")
    _, weights = pocket.Pocket([0], "average")(ids)
    torch.testing.assert_close(weights, torch.full_like(weights, 0.2))
    one, both = pocket.Pocket([0], "one vector"), pocket.Pocket([0])
    both.load_state_dict(one.state_dict())
    with torch.no_grad():
        both.W_V.copy_(both.W_K)
    torch.testing.assert_close(one(ids), both(ids))
    with pytest.raises(ValueError, match="kind must be one of attention, average, one vector"):
        pocket.Pocket([0], "none")


@pytest.mark.weekly
def test_every_start_learns_all_sentences_also_those_that_it_never_saw():
    judged = pocket.judge(pocket.train_pockets(STARTS))
    assert judged.right.tolist() == [74] * len(STARTS)


def test_a_strange_word_is_named():
    with pytest.raises(ValueError, match="do not include cat"):
        encode("the cat reads and")


def test_a_missing_file_names_what_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(pocket, "CHECKPOINT", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="make checkpoint"):
        pocket.load_pocket()
