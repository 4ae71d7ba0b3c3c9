"""Training: the kept model and the kept histories meet the targets, and so does training again.

Once a week five seeds are trained anew; else one short run shows that it learns.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from labkit.labs.story_model import one_thread
from labkit.models.gpt import load_gpt
from labkit.models.training import (
    PARTS,
    Report,
    histories,
    load_unmasked,
    report,
    small_gpt,
    train,
    unseen,
    without,
)
from press.checkpoint import (
    ASKED,
    CONVERTED,
    EVERY,
    FOLLOWED,
    FOLLOWED_EVERY,
    FOLLOWED_STEPS,
    KEPT,
    KEY_HEADS,
    RUNS,
    SHORT,
    SHORT_EVERY,
    SHORT_STEPS,
    converted,
    run,
    short_model,
    small_steps,
)

LEARNED = 0.99  # mean probability on what is right
ABOVE_FLOOR = 0.02  # nats a word


def check_targets(last: Report) -> None:
    assert {kind: p for kind, p in last.right.items() if p < LEARNED} == {}
    assert 0 < last.loss - unseen().floor < ABOVE_FLOOR


@pytest.fixture(autouse=True)
def on_one_thread():
    with one_thread():
        yield


def test_the_kept_model_meets_the_targets_in_half_precision():
    found = report(load_gpt(), unseen())
    check_targets(found)
    kept = histories()[KEPT][-1]
    assert abs(found.loss - kept.loss) < 1e-3, "the weights are those of the kept history"


def test_the_kept_model_without_a_mask_knows_what_comes_only_where_it_is_shown():
    model, stories = load_unmasked(), unseen()
    assert report(model, stories).loss < 0.01
    for block in model.stack():
        block.is_causal = True
    assert report(model, stories).loss > stories.floor + 0.5


@pytest.mark.parametrize("seed", range(5))
def test_the_kept_histories_meet_the_targets(seed: int):
    check_targets(histories()[f"rotary {seed}"][-1])


def test_the_kept_histories_are_those_that_would_be_made():
    kept = histories()
    assert list(kept) == [*RUNS, *ASKED, *CONVERTED]
    for name in RUNS:
        kind = name.rpartition(" ")[0]
        steps = range(EVERY, 1_001, EVERY)
        if kind in SHORT:
            steps = range(SHORT_EVERY, SHORT_STEPS + 1, SHORT_EVERY)
        if kind in FOLLOWED:
            steps = range(0, FOLLOWED_STEPS + 1, FOLLOWED_EVERY)
        assert [one.step for one in kept[name]] == [*steps]


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


@torch.no_grad()
def test_without_the_divisor_scores_are_plain_dot_products():
    x = torch.randn(1, 5, 64)
    whole, undivided = (small_gpt(0).stack()[0].attention for _ in range(2))
    undivided.w_q.weight.mul_(whole.d_k**-0.5)
    undivided.scale = 1.0
    torch.testing.assert_close(undivided(x), whole(x))
    assert {block.attention.scale for block in without(small_gpt(0), "divisor").stack()} == {1.0}


def test_without_the_mask_a_word_hears_of_later_ones():
    ids = unseen(2).ids
    other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % 56], dim=1)
    for model, hears in ((small_gpt(0), False), (without(small_gpt(0), "mask"), True)):
        assert torch.allclose(model(ids)[:, 0], model(other)[:, 0], atol=1e-4) != hears


@torch.no_grad()
def test_a_small_start_begins_with_the_divided_scores():
    ids = unseen(2).ids
    divided, small = (short_model(SHORT[kind], 0)(ids) for kind in ("one head", "small start"))
    torch.testing.assert_close(small, divided)


def test_small_steps_shorten_what_moves_queries_and_keys_alone():
    moved = []
    for shortened in (False, True):
        model = small_gpt(0, h=1)
        layer = model.stack()[0].attention
        before = layer.w_qkv.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        with small_steps(model) if shortened else nullcontext():
            optimizer.step()
        moved.append((layer.w_qkv.weight.detach() - before).mean(dim=1))
    expected = torch.ones(192)
    expected[:128] = 64**-0.25
    torch.testing.assert_close(moved[1] / moved[0], expected)


@pytest.mark.weekly
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
        without(small_gpt(0), "softmax")
