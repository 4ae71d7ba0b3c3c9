"""Chapter 8's layers: trained again they do the same, and a cut head takes one relation along."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from labkit.figures import live
from labkit.figures.trained_heads import LETTERS, encode
from labkit.heads import without_heads
from labkit.labs.story_model import one_thread
from labkit.models import reporters
from labkit.models.reporters import (
    KINDS,
    OFFSETS,
    STARTS,
    TWINS,
    Reporter,
    apart,
    draw,
    load_reporters,
    load_twins,
    relation_weights,
    targets,
    train_reporter,
    train_twins,
    twins,
)

LEARNED, GUESSED = 0.99, 0.15  # of positions; a guess is right at one of sixteen


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@torch.no_grad()
def right(model: Reporter) -> Tensor:
    """Give for each relation the share of unseen positions at which it is reported right."""
    torch.manual_seed(1)
    tokens = draw(500)
    return (model(tokens)[0].sign() == targets(tokens)).all(-1).double().mean((0, 1))


def check_kind(kind: str, model: Reporter) -> None:
    shares = right(model)
    if KINDS[kind].h == 1:
        assert (shares > 0.9).sum() <= 1, "as chapter 8 reports of every start"
    else:
        assert shares.min() > LEARNED


@pytest.mark.parametrize("kind", [kind for kind, how in KINDS.items() if how.offsets == OFFSETS])
def test_the_kept_layers_have_learned_what_the_chapter_says(kind: str):
    kept = load_reporters(kind)
    assert len(kept) == len(STARTS)
    for layer in kept:
        check_kind(kind, layer)
        assert reporters.learned(layer) == (right(layer) > 0.9).sum()


def test_before_training_nothing_is_learned():
    assert reporters.learned(train_reporter("four heads", 0, steps=0)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one head", "four heads"])
def test_training_again_gives_the_kept_layers(kind: str):
    made, kept = train_reporter(kind, 0), load_reporters(kind)[0]
    check_kind(kind, made)
    for again, stored in zip(made.parameters(), kept.parameters(), strict=True):
        torch.testing.assert_close(again, stored, atol=0.01, rtol=0)


def test_a_head_that_is_cut_takes_one_relation_along_and_no_other():
    model, taken = load_reporters("four heads")[0], []
    for head in range(4):
        with without_heads(model.attention, [head]):
            shares = right(model)
        lost = int(shares.argmin())
        assert shares[lost] < GUESSED
        assert all(share > LEARNED for r, share in enumerate(shares) if r != lost)
        taken.append(lost)
    # As the chapter's answer says: heads 1 to 4 carry the tokens 3, 1, 2 and 5 back.
    assert [OFFSETS[relation] for relation in taken] == [-3, -1, -2, -5]
    assert relation_weights(model).argmax(-1).tolist() == taken


@pytest.mark.parametrize("how", TWINS)
def test_twins_begin_alike(how: str):
    begin = apart(twins(how, 0))
    assert begin < (1e-6 if how in ("float32", "nudged") else 1e-12)
    kept = load_twins(how)
    assert kept.shape == (len(STARTS), reporters.TWIN_STEPS // reporters.TWIN_EVERY + 1, 2)


def test_twins_that_are_held_equal_stay_so():
    assert load_twins("held equal")[:, :, 0].max() < 1e-12
    assert train_twins("held equal", 0, steps=20)[1][:, 0].max() < 1e-12


def test_the_single_head_is_right_where_all_tokens_are_one():
    for letter in LETTERS:
        figure = live.TrainedHeads(sequence=14 * letter)
        alone = [one for _, one in figure.values()["positions that are right"]]
        assert alone[:3] == [14] * 3
        assert alone[3] < 14


def test_without_its_heads_a_layer_says_the_same_everywhere():
    off = {name: False for name in ("head_1", "head_2", "head_3", "head_4", "only_head")}
    values = live.TrainedHeads(**off).values()
    for name in ("answers of four heads, a is 1", "answers of one head, a is 1"):
        assert all(len(set(line)) == 1 for line in values[name])


def test_the_first_sequence_is_the_first_that_the_task_draws():
    torch.manual_seed(0)
    assert torch.equal(encode(live.TrainedHeads().sequence), draw(1)[0].double())


def test_loading_draws_no_number(monkeypatch: pytest.MonkeyPatch):
    state = torch.get_rng_state()
    [layer, *_] = load_reporters("one head")
    assert {weight.dtype for weight in layer.parameters()} == {torch.float64}
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(reporters, "CHECKPOINT", reporters.CHECKPOINT.with_name("none"))
    reporters._kept.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"none is missing\. `make checkpoint` trains"):
        load_reporters("one head")


@pytest.mark.weekly
@pytest.mark.parametrize("seed", reporters.STARTS)
def test_small_positions_make_heads_pure_late(seed: int):
    layer = reporters.train_reporter("four heads, places of 0.5", seed, steps=3_000)
    best = reporters.relation_weights(layer).amax(-1)
    assert best.min() > 0.75
    assert best.mean() > 0.85
