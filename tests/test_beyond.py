"""Stories that the training did not have: what is kept of them is what a model says again."""

from __future__ import annotations

import pytest
import torch

from labkit.models import beyond
from labkit.models.ablation import FOUR
from labkit.models.gpt import load_gpt
from labkit.models.kept import load_kept
from labkit.models.stories import Stories
from labkit.models.training import WORDS, unseen


@torch.no_grad()
def test_rotary_positions_are_changed_and_put_back():
    model, ids = load_gpt(), unseen(2).ids
    before = model(ids)
    with beyond.rescaled(model, divided=2.0):
        divided = model(ids)
    with beyond.rescaled(model, stretched=2.0):
        stretched = model(ids)
        assert model.stack()[0].attention.rotary_base == pytest.approx(1_000 * 2 ** (16 / 14))
    assert torch.equal(model(ids), before)
    assert min((divided - before).abs().max(), (stretched - before).abs().max()) > 0.1


def test_the_slowest_pair_is_stretched_and_the_fastest_is_not():
    d, base, stretched = 16, 1_000.0, 8.0
    other = base * stretched ** (d / (d - 2))
    assert base ** (-(d - 2) / d) / other ** (-(d - 2) / d) == pytest.approx(stretched)


def test_a_span_is_judged_as_a_whole_text_is():
    model, stories = load_gpt(), unseen(20)
    (row,) = beyond.judged(model, stories)
    with torch.no_grad():
        logits = model(stories.ids)
    right = stories.right(logits.softmax(-1))
    assert row[0] == pytest.approx(stories.divergence(logits).mean().item())
    assert row[1:] == pytest.approx([right[name] for name in FOUR])


def test_spans_follow_each_other():
    ends = [end for _, end in beyond.SPANS]
    assert [start for start, _ in beyond.SPANS[1:]] == ends[:-1]
    assert (beyond.SPANS[0], ends[-1]) == ((1, WORDS), beyond.LONG)


def test_what_is_kept_is_what_is_measured():
    kept, long = load_kept(beyond.KEPT), beyond.long_stories()
    assert list(kept) == [*beyond.WAYS, "3 people", "4 people"]
    few = Stories(long.words[:8], long.ids[:8])
    model = load_gpt()
    for name, way in beyond.WAYS.items():
        assert len(kept[name]) == 5
        with beyond.rescaled(model, *way):
            found = beyond.judged(model, few, beyond.SPANS)
        first, *_, last = ((a[0], b[0]) for a, b in zip(found, kept[name][0], strict=True))
        assert first[0] == pytest.approx(first[1], rel=0.5)
        assert last[0] == pytest.approx(last[1], rel=0.5)
    four = beyond.more_people(4)
    few = Stories(four.words[:60], four.ids[:60])
    found = beyond.judged(model, few)[0]
    assert found == pytest.approx(kept["4 people"][0], abs=0.06)
