"""What a model writes is followed by the rules, and read again as the truth allows."""

from __future__ import annotations

import pytest
import torch

from labkit.models import exposure
from labkit.models.exposure import heard, planted, read, readings, texts
from labkit.models.stories import encode
from labkit.models.training import load_starts, small_gpt, train, unseen
from labkit.models.writing import follow, follow_all, sample

KEPT = "the box suits tom lake ."


def test_true_stories_are_followed_to_their_end():
    stories = unseen(20)
    followed = follow_all(stories.ids)
    assert torch.equal(followed.truth[:, :-1], stories.truth)
    assert followed.told.all()
    assert followed.intact.all()
    assert not followed.breaks.any()
    assert followed.relations[0][:-1] == [word.relation for word in stories.words[0]]


@pytest.mark.parametrize(
    ("text", "breaks", "silent"),
    [
        ("the box is", [2], [3]),
        (f"{KEPT} tom hill sings . tom lake", [7], [8, 9]),
        (f"{KEPT} mia lake sings . the", [6], [7, 8, 9]),
        (f"{KEPT} the box suits mia hill .", [8], [9, 10, 11]),
        (f"{KEPT} . tom lake", [6], []),
        (f"{KEPT} tom lake sings and she is happy . tom wood", [10, 15], [11, 12, 13, 16]),
        ("has", [0], [1]),
    ],
)
def test_a_broken_rule_silences_the_rest_of_its_sentence(
    text: str, breaks: list[int], silent: list[int]
):
    followed = follow_all(encode(text)[None])
    assert followed.breaks[0].nonzero()[:, 0].tolist() == breaks
    assert (~followed.told[0]).nonzero()[:, 0].tolist() == silent
    assert followed.intact[0].tolist() == [i <= breaks[0] for i in range(len(text.split()) + 1)]


def test_what_comes_after_a_text_is_told():
    told = follow(f"{KEPT} the box".split())
    assert told[-1] is not None
    assert list(told[-1].options) == ["tom"]
    assert told[-1].sources == (3,)


def test_places_are_counted_through_a_broken_sentence():
    told = follow(f"{KEPT} the hat hat . tom lake sings and".split())
    assert told[-1] is not None
    assert told[-1].sources == (10,)


def test_writing_with_a_cache_is_writing_without():
    model, ids = load_starts()[0], unseen(3).ids[:, :8]
    written = sample(model, ids, 20, temperature=0)
    while ids.shape[1] < 20:
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    assert torch.equal(written, ids)
    again = [sample(model, ids, 30, 1.0, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*again)


def test_prompts_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="fewer than n = 4 words; got 4"):
        sample(small_gpt(0), torch.zeros(1, 4, dtype=torch.long), 4)


def test_one_surname_is_planted():
    stories = unseen(30)
    ids = planted(stories, torch.Generator().manual_seed(0))
    changed = ids != stories.ids
    assert changed.sum(1).amax() == 1
    assert changed[:, : exposure.BEGUN].sum() == 0
    assert stories.of("surname")[changed].all()
    with pytest.raises(ValueError, match="mode must be one of"):
        texts(small_gpt(0), "wrong", 0)


def test_a_reading_of_true_text_is_the_divergence():
    model, stories = load_starts()[0], unseen(20)
    told = read(model, stories.ids)
    with torch.no_grad():
        kl = stories.divergence(model(stories.ids))[:, exposure.BEGUN - 1 :]
    assert sum(told.kl) / len(told.kl) == pytest.approx(
        kl[:, : len(told.kl) * exposure.PIECE].mean().item(), abs=1e-6
    )
    assert (told.broken, told.kl_after) == (0, None)


@pytest.mark.parametrize("mode", ["true", "planted"])
def test_what_is_kept_is_what_is_measured(mode: str):
    model = load_starts()[0]
    told, kept = read(model, texts(model, mode, 0)), readings("rotary", mode)[0]
    assert told.kl == pytest.approx(kept.kl, abs=1e-3)
    assert told.kl_after == pytest.approx(kept.kl_after, abs=1e-2)


def test_scheduled_sampling_grows_and_keeps_what_has_to_be_said():
    model, ids = small_gpt(0), unseen(64).ids
    torch.manual_seed(0)
    shares = [(heard(model, ids, over) != ids).float().mean().item() for over in (0, 0.5, 1)]
    assert shares[0] == 0
    assert shares[1] == pytest.approx(exposure.MOST_HEARD / 2, abs=0.02)
    assert shares[2] == pytest.approx(exposure.MOST_HEARD, abs=0.02)
    seen = []

    def listen(model, ids, over):
        seen.append(over)
        return ids

    first, second = small_gpt(0), small_gpt(0)
    list(train(first, 2, 0, every=2, heard=listen))
    list(train(second, 2, 0, every=2))
    assert seen == [0.5, 1.0]
    assert torch.equal(first.words.weight, second.words.weight)
