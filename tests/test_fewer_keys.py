"""The story GPT with fewer keys: what its rows hold, what is kept of them, how it is converted."""

from __future__ import annotations

import copy

import pytest
import torch

from labkit.cache import KVCache
from labkit.models import economies, fewer_keys
from labkit.models.economies import judge_caches, table
from labkit.models.fewer_keys import (
    ABLATIONS,
    CONTINUED,
    CONVERSIONS,
    RETRAINED,
    continued,
    converted,
    fresh,
    inputs_of,
    load_retrained,
)
from labkit.models.gpt import load_gpt
from labkit.models.kept import load_kept
from labkit.models.training import small_gpt, unseen
from tests.refusing import check_refusal

BYTES = {
    "2 key heads": 512, "1 key head": 256, "latent 24 + 8": 256, "latent 8 + 8": 128,
    "latent 4 + 4": 64, "layers share": 512, "layers share, 1 key head": 128,
    "3 layers, all share": 512, "3 layers, 2 share": 1024, "1 head in all": 256,
    "2 key heads by mean": 512, "2 key heads by svd": 512,
    "1 key head by mean": 256, "1 key head by svd": 256, "latent of 32": 256, "latent of 16": 128,
}  # fmt: skip


def test_the_table_has_a_row_for_each():
    kept = load_kept("fewer_keys")
    assert list(kept) == [*RETRAINED, *CONVERSIONS, *ABLATIONS, *CONTINUED]
    rows = {row.name: row for row in table(*kept)}
    trained = {name for name, row in rows.items() if row.retrained}
    assert trained == {*RETRAINED, *CONTINUED}
    assert {name: rows[name].bytes_a_token for name in BYTES} == BYTES
    assert {rows[name].bytes_a_token for name in ABLATIONS} == {0}
    assert all(row.seeds == 5 and row.least <= row.kl <= row.most for row in rows.values())
    assert set(kept).isdisjoint(load_kept("economies"))


@pytest.mark.parametrize("name", RETRAINED)
def test_each_kind_keeps_its_bytes_and_equals_its_whole_pass(name: str):
    model, stories = fresh(name, 0), unseen(3)
    row = judge_caches(model, KVCache, stories)
    assert row.bytes_a_token == BYTES[name]
    with torch.no_grad():
        whole = stories.divergence(model(stories.ids)).mean().item()
    assert row.kl == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("name", ["1 key head", "latent 8 + 8", "layers share, 1 key head"])
def test_the_kept_weights_are_those_that_were_judged(name: str):
    row = judge_caches(load_retrained(name), KVCache)
    kept = economies.Row(**load_kept("fewer_keys")[name]["starts"][0])
    assert row.kl == pytest.approx(kept.kl, abs=1e-3)
    assert row.right == pytest.approx(kept.right, abs=1e-3)


@pytest.mark.parametrize(
    "name", ["2 key heads by svd", "1 key head by svd", "latent of 16", ABLATIONS[1]]
)
def test_the_kept_conversions_are_what_is_measured(name: str):
    row = judge_caches(converted(load_gpt(), name), KVCache)
    kept = economies.Row(**load_kept("fewer_keys")[name]["starts"][0])
    assert row.kl == pytest.approx(kept.kl, abs=3e-3)


def test_the_model_that_is_converted_is_left_alone():
    model = small_gpt(0)
    before = copy.deepcopy(model.state_dict())
    for name in (*CONVERSIONS, *ABLATIONS):
        assert converted(model, name) is not model
    assert all(torch.equal(before[name], part) for name, part in model.state_dict().items())


@torch.no_grad()
def test_ablated_attention_puts_out_a_constant():
    model, ids = load_gpt(), unseen(2).ids
    for name in ABLATIONS:
        layer = converted(model, name).stack()[1].attention
        out = layer(torch.randn(1, 3, 64), is_causal=True)
        assert torch.equal(out[0, 0], out[0, 2])
        assert out.any() == (name == ABLATIONS[1])
    means = [x.mean((0, 1)) for x in inputs_of(converted(model, ABLATIONS[0]))]
    assert not torch.equal(*means)
    assert converted(model, ABLATIONS[0])(ids).isfinite().all()


def test_new_keys_are_drawn_anew_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fewer_keys, "train", lambda *_, **__: iter([None]))
    model = load_gpt()
    layer, drawn = (
        made.stack()[0].attention
        for made in (continued(model, "new keys, 60 steps", 0), fresh("1 key head", 0))
    )
    kept = converted(model, "1 key head by mean").stack()[0].attention
    assert torch.equal(layer.w_k.weight, drawn.w_k.weight)
    assert torch.equal(layer.w_v.weight, drawn.w_v.weight)
    assert torch.equal(layer.w_q.weight, kept.w_q.weight)
    assert torch.equal(layer.w_o.weight, kept.w_o.weight)


@pytest.mark.weekly
def test_a_few_steps_bring_much_of_it_back():
    model, stories = load_gpt(), unseen(20)
    before = judge_caches(converted(model, "1 key head by svd"), KVCache, stories).kl
    after = judge_caches(continued(model, "svd, 60 steps", 0), KVCache, stories).kl
    assert after < before / 2


ERRORS = {
    "another kind": (lambda: fresh("3 key heads", 0), ValueError, ["name", "1 key head"]),
    "another to load": (lambda: load_retrained("whole"), ValueError, ["name", "'whole'"]),
    "another conversion": (lambda: converted(small_gpt(0), "2"), ValueError, ["latent of 32"]),
    "another to go on with": (lambda: continued(small_gpt(0), "mean", 0), ValueError, ["60 steps"]),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
