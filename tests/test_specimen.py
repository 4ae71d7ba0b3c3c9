"""The story GPT with smaller caches, with wrong ones and beyond its training: kept and measured."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from labkit.cache import KVCache
from labkit.models import beyond_training, economies, slips
from labkit.models.beyond_training import (
    HELD_OUT,
    SEEN,
    WAYS,
    crowd,
    crowds,
    held_out_pairs,
    length,
    lengths,
    pairs,
    told_way,
)
from labkit.models.economies import ECONOMIES, judge, judge_caches, relative_time, table
from labkit.models.kept import load_kept, save_kept
from labkit.models.stories import PRONOUNS, SURNAMES, Stories
from labkit.models.times import load_times
from labkit.models.training import load_starts, small_gpt, unseen


def test_a_cache_that_forgets_nothing_is_the_whole_pass():
    model, stories = load_starts()[1], unseen(20)
    row = judge(model, stories)
    with torch.no_grad():
        logits = model(stories.ids)
    assert row.kl == pytest.approx(stories.divergence(logits).mean().item(), abs=1e-6)
    assert row.right == pytest.approx(stories.right(logits.softmax(-1)), abs=1e-6)
    assert row.bytes_a_token == 2 * 2 * 64 * 4


def test_bytes_are_those_held():
    model, stories = small_gpt(0), unseen(2)
    whole = judge(model, stories).nbytes
    assert judge_caches(model, economies.HalfCache, stories).nbytes * 2 == whole
    assert judge(model, stories, window=12).nbytes * 4 == whole
    assert judge(model, stories, window=12, sinks=4).nbytes * 3 == whole


def test_the_table_has_the_rows_that_would_be_made():
    kept = [row.name for row in table()]
    assert kept[: len(ECONOMIES)] == list(ECONOMIES)
    assert all(row.seeds == 5 and row.least <= row.kl <= row.most for row in table())
    with pytest.raises(KeyError):
        table("nothing")


@pytest.mark.parametrize("name", ["16 bits", "window 16"])
def test_the_kept_rows_are_what_is_measured(name: str):
    row = judge_caches(load_starts()[0], ECONOMIES[name])
    kept = economies.Row(**load_kept("economies")[name]["starts"][0])
    assert row.kl == pytest.approx(kept.kl, abs=1e-3)
    assert row.right == pytest.approx(kept.right, abs=1e-3)
    assert row.nbytes == kept.nbytes


def test_each_row_has_the_time_of_a_step_of_its_own_run():
    assert set(economies.STEPS) <= {row.name for row in table()}
    for name, (part, step) in economies.STEPS.items():
        records = load_times(part).records
        ratio = records[f"step, {step}"].best / records["step, whole"].best
        assert relative_time(name) == ratio
    assert relative_time("latent of 16") is None


def test_a_kept_file_has_four_digits_and_a_row_a_line(tmp_path: Path):
    rows = {"a": {"x": 0.123456, "y": [1, (2.00004,)]}, "b": None}
    save_kept("some", rows, tmp_path)
    text = (tmp_path / "some.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": {"x": 0.1235, "y": [1, [2.0]]}, "b": None}
    assert len(text.splitlines()) == 4
    with pytest.raises(FileNotFoundError, match="make checkpoint"):
        load_kept("nothing")


@pytest.mark.parametrize("slip", ["own key unseen", "rewound"])
def test_a_slip_is_found_by_its_logits(slip: str):
    model, stories = load_starts()[0].double(), unseen(6)
    told = slips.shown(model, slips.SLIPS[slip], stories)
    assert told.least > 0.1
    assert told.kl > slips.shown(model, KVCache, stories).kl


def test_kept_slips_are_those_of_the_classes():
    for slip in slips.SLIPS:
        assert min(told.least for told in slips.shown_by(slip)) > 0.1
    assert all(told.same == 60 and told.off < 1e-9 for told in slips.shown_by("sound"))


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_given_back_as_it_was(way: str):
    model, ids = small_gpt(0), unseen(2).ids
    before = model(ids)
    with told_way(model, way, 96):
        changed = model(ids)
    assert torch.equal(model(ids), before)
    assert torch.equal(changed, before) == (way in ("as it is", "window of 48"))


def test_kept_lengths_are_what_is_measured():
    told, kept = length(load_starts()[0], 96), lengths(96)[0]
    assert told.right == pytest.approx(kept.right, abs=1e-3)
    assert told.far == pytest.approx(kept.far, abs=1e-3)
    assert lengths(48)[0].far is None
    with pytest.raises(ValueError, match="way must be one of"):
        length(small_gpt(0), 96, "wrong")


def test_pairs_are_split_among_the_two():
    for name in PRONOUNS:
        assert sorted((*HELD_OUT[name], *SEEN[name])) == sorted(SURNAMES)
    told = Stories.draw(50, 48, 0, surnames=SEEN)
    for words in told.words:
        texts = [word.text for word in words]
        found = [(a, b) for a, b in pairwise(texts) if a in PRONOUNS]
        assert all(b in SEEN[a] for a, b in found)


def test_kept_pairs_and_crowds_are_what_is_measured():
    model = load_starts()[0]
    held = held_out_pairs(model)["held out"]
    assert held == pytest.approx(pairs("all in training")[0]["held out"], abs=1e-3)
    assert crowd(model, 4).owner == pytest.approx(crowds(4)[0].owner, abs=2e-3)
    assert max(map(int, crowds(6)[0].owner)) > 4


@pytest.mark.slow
def test_training_without_pairs_is_training_on_other_stories():
    drawn = partial(Stories.draw, surnames=SEEN)
    assert not torch.equal(drawn(4, 48, 0).ids, Stories.draw(4, 48, 0).ids)
    assert beyond_training.held_out_gpt(0, 2).training is False
