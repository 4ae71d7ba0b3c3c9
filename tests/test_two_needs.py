"""The layer of chapters 5 and 6: who calls whom, two needs at one word."""

import pytest
import torch

from labkit.models import two_needs
from labkit.models.two_needs import ANSWERS, KINDS, WORDS, encode, sentences


def test_no_two_sentences_are_alike_and_every_word_is_used():
    texts = [sentence.text for sentence in sentences()]
    assert len(set(texts)) == len(texts)
    assert {word for text in texts for word in text.split()} == set(WORDS)
    assert {sentence.answer for sentence in sentences()} == set(ANSWERS)


def test_names_stand_where_a_sentence_says_and_decide_its_answer():
    for text, answer, subject, object_ in sentences():
        words = text.split()
        assert words[-1] == "and"
        assert subject < object_
        first, second = answer.split("-")
        assert two_needs.SUBJECTS[words[subject]] == first
        assert two_needs.OBJECTS[words[object_]] == second


@pytest.mark.parametrize("kind", ["two heads", "two heads and W_O"])
def test_the_kept_start_is_in_halves_and_each_head_looks_at_one_name(kind: str):
    one = two_needs.load_two_needs(kind)
    assert all(torch.equal(2 * x, (2 * x).round()) for x in one.parameters())
    judged = two_needs.judge(one)
    assert judged.right.item() == len(sentences())
    assert judged.surest.item() > 0.95
    assert two_needs.clearest(judged).item() > 0.9


def test_nearly_every_start_learns_all_but_not_by_an_average():
    right = {kind: two_needs.judge(two_needs.load_all_starts(kind)).right for kind in KINDS}
    for kind in KINDS:
        all_of_them = (right[kind] == len(sentences())).sum()
        assert all_of_them == 0 if kind == "average" else all_of_them > 15


def test_a_start_is_the_same_alone_and_among_others():
    among = two_needs.train_two_needs([4, 7], steps=3)
    alone = two_needs.train_two_needs([7], steps=3)
    torch.testing.assert_close(alone.W_Q[0], among.W_Q[1])


def test_w_o_projects_the_joined_heads():
    model = two_needs.load_two_needs("two heads and W_O")
    ids = encode("mia calls ben now and")
    last, heads, _ = model.heads(ids)
    writes = heads[:, 0] @ model.W_O[:, :2] + heads[:, 1] @ model.W_O[:, 2:]
    torch.testing.assert_close(((last + writes) @ model.U).squeeze(1), model(ids)[0])


def test_sentences_that_it_cannot_read_are_named():
    with pytest.raises(ValueError, match="do not include sees"):
        encode("mia sees ben now and")
    with pytest.raises(ValueError, match="5 words, got 4"):
        encode("mia calls ben and")
