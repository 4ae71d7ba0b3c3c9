"""Training: the kept model and the kept histories meet the targets, and so does training again.

Once a week five seeds are trained anew; else one short run shows that it learns.
"""

from __future__ import annotations

import pytest
import torch

from labkit.models.gpt import load_gpt
from labkit.models.training import (
    PARTS,
    Report,
    histories,
    report,
    small_gpt,
    train,
    unseen,
    without,
)
from press.checkpoint import CONVERTED, EVERY, KEPT, KEY_HEADS, RUNS, converted, run

LEARNED = 0.99  # mean probability on what is right
ABOVE_FLOOR = 0.02  # nats a word


def check_targets(last: Report) -> None:
    assert {kind: p for kind, p in last.right.items() if p < LEARNED} == {}
    assert 0 < last.loss - unseen().floor < ABOVE_FLOOR


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_kept_model_meets_the_targets_in_half_precision():
    found = report(load_gpt(), unseen())
    check_targets(found)
    kept = histories()[KEPT][-1]
    assert abs(found.loss - kept.loss) < 1e-3, "the weights are those of the kept history"


@pytest.mark.parametrize("seed", range(5))
def test_the_kept_histories_meet_the_targets(seed: int):
    check_targets(histories()[f"rotary {seed}"][-1])


def test_the_kept_histories_are_those_that_would_be_made():
    kept = histories()
    assert list(kept) == RUNS + CONVERTED
    assert {tuple(one.step for one in kept[name]) for name in RUNS} == {
        tuple(range(EVERY, 1_001, EVERY))
    }


@pytest.mark.parametrize("name", CONVERTED)
def test_the_kept_conversions_are_what_is_computed(name: str):
    [kept], [found] = histories()[name], converted(name)
    assert (found.step, found.loss) == (kept.step, pytest.approx(kept.loss, abs=2e-4))
    assert found.right == pytest.approx(kept.right, abs=2e-4)


@pytest.mark.parametrize("kind", KEY_HEADS)
@pytest.mark.parametrize("seed", range(5))
def test_with_fewer_heads_of_keys_the_targets_are_met_as_well(kind: str, seed: int):
    check_targets(histories()[f"{kind} {seed}"][-1])


@pytest.mark.weekly
@pytest.mark.parametrize("seed", range(5))
def test_training_again_meets_the_targets(seed: int):
    _, reports = run(f"rotary {seed}")
    check_targets(reports[-1])


@pytest.mark.slow
@pytest.mark.parametrize("marked", [False, True])
def test_a_hundred_steps_learn_the_gender(marked: bool):
    *_, last = train(small_gpt(0), 100, seed=0, marked=marked)
    assert last.step == 100
    assert last.right["gender"] > 0.9
    assert last.loss < 1.2


@pytest.mark.parametrize("part", PARTS)
def test_what_is_taken_out_is_not_trained(part: str):
    model = without(small_gpt(0), part)
    whole = small_gpt(0)
    ids = unseen(2).ids
    assert not torch.equal(model(ids), whole(ids))
    list(train(model, 1, seed=0))
    for block in model.stack():
        silent = {"attention": block.attention.w_o, "feed-forward": block.feed_forward.contract}
        if part in silent:
            assert not silent[part].weight.any()


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="part must be one of feed-forward, LayerNorm"):
        without(small_gpt(0), "mask")
