"""The layers that chapter 8's figure runs: those of its training in kind, and what a cut takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from labkit.figures import live
from labkit.figures.trained_heads import LETTERS, encode
from labkit.heads import without_heads
from labkit.models import reporters
from labkit.models.reporters import OFFSETS, Reporter, draw, load_reporters, targets
from press.checkpoint import reporters as train_again

LEARNED, GUESSED = 0.99, 0.15  # of positions; a guess is right at one of sixteen


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@torch.no_grad()
def right(model: Reporter) -> Tensor:
    """Give for each relation the share of unseen positions at which it is reported right."""
    torch.manual_seed(1)
    tokens = draw(500)
    return (model(tokens)[0].sign() == targets(tokens)).all(-1).double().mean((0, 1))


def check_kind(found: dict[int, Reporter]) -> None:
    assert list(found) == [1, 4]
    assert right(found[4]).min() > LEARNED
    assert (right(found[1]) > 0.9).sum() <= 1, "as chapter 8 reports of every start"


def test_the_kept_layers_have_learned_what_the_chapters_have():
    check_kind(load_reporters())


@pytest.mark.slow
def test_training_again_gives_the_kept_layers():
    made, kept = train_again(), load_reporters()
    check_kind(made)
    for h in kept:
        pairs = zip(made[h].parameters(), kept[h].parameters(), strict=True)
        for again, stored in pairs:
            torch.testing.assert_close(again, stored, atol=0.01, rtol=0)


def test_a_head_that_is_cut_takes_one_relation_along_and_no_other():
    model, taken = load_reporters()[4], []
    for head in range(4):
        with without_heads(model.attention, [head]):
            shares = right(model)
        lost = int(shares.argmin())
        assert shares[lost] < GUESSED
        assert all(share > LEARNED for r, share in enumerate(shares) if r != lost)
        taken.append(lost)
    assert sorted(taken) == [0, 1, 2, 3]
    # As the chapter's answer says: heads 1 to 4 carry the tokens 3, 1, 2 and 5 back.
    assert [OFFSETS[relation] for relation in taken] == [-3, -1, -2, -5]


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
    assert {weight.dtype for weight in load_reporters()[1].parameters()} == {torch.float64}
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(reporters, "CHECKPOINT", reporters.CHECKPOINT.with_name("none"))
    with pytest.raises(FileNotFoundError, match=r"none is missing\. `make checkpoint` trains"):
        load_reporters()
