"""The kept times: what `make times` measures, written, loaded and told as shares."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from labkit import counting
from labkit.models import times
from labkit.models.gpt import Block
from labkit.models.times import Record, Times, load_times
from press import decoding_times, timing
from press import times as measuring

SMALL = measuring.Sizes(
    d_model=8, h=2, layers=1, n=6, square=4, copied=8, rows=(1, 2), heads=(1, 2), rounds=1
)


def test_a_record_tells_speed_and_intensity():
    record = Record([3.0, 2.0], flops=8, bytes=4)
    assert (record.best, record.rate, record.bandwidth, record.intensity) == (2.0, 4.0, 2.0, 2.0)


def test_shares_are_of_the_group():
    records = {"a: x": Record([1.0]), "a: y": Record([3.0]), "b": Record([9.0])}
    told = Times("a machine", records)
    assert told.shares("a") == {"x": 0.25, "y": 0.75}
    with pytest.raises(ValueError, match="begins with 'c: '"):
        told.shares("c")


def test_another_chapter_is_refused():
    with pytest.raises(ValueError, match="must be one of counting"):
        load_times("nothing")


def test_what_is_kept_is_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "SHORT", 1)
    measured = measuring.measure(measuring.counting_works(SMALL), SMALL.rounds)
    path = tmp_path / "times.json"
    measuring.write(path, "counting", measured)
    monkeypatch.setattr(times, "TIMES", path)
    again = load_times("counting")
    assert again.records == measured
    assert again.machine == measuring.machine()
    assert {name for name in again.records if name.startswith("prefill by part")} == {
        f"prefill by part: {part}"
        for part in (
            "LayerNorm", "scale, mask and copies", "projections", "products", "softmax", "sums",
            "feed-forward", "GELU",
        )
    }  # fmt: skip


TINY = decoding_times.Sizes(
    d_model=8, h=2, batches=(1, 2), lengths=(3, 4), most=6, memory=1, past=6, window=5, steps=2,
    layers=1, rounds=1,
)  # fmt: skip


def test_work_of_decoding_is_counted_and_fits_the_memory():
    works = decoding_times.decoding_works(TINY)
    told = timing.measure(works, TINY.rounds)
    assert "decode attention, batch 2, 4" not in told
    one, two = (works[f"decode linear, batch {batch}"] for batch in (1, 2))
    assert two.flops == 2 * one.flops
    layer = Block(TINY.d_model, TINY.h)
    matrices = sum(weight.numel() for weight in layer.parameters() if weight.ndim == 2)
    assert one.flops == 2 * matrices
    assert one.bytes == 4 * (matrices + 16 * TINY.d_model)
    attention = works["decode attention, batch 1, 3"]
    assert attention.flops == 2 * counting.product_macs(1, TINY.d_model, TINY.h, n_k=3)
    assert attention.bytes == 4 * (2 * 3 + 2) * TINY.d_model
    held = {name: work.bytes for name, work in works.items() if name.startswith("step, ")}
    assert held["step, whole"] == 2 * held["step, 16 bits"] == 2 * 6 * 8 * 4
    assert held["step, window"] == held["step, window, 4 sinks"] == 2 * 5 * 8 * 4
    assert all(record.best >= 0 for record in told.values())


def test_caches_stay_as_they_are_however_often_they_are_timed():
    work = dict(decoding_times.steps(TINY))["step, 4 bits"]
    caches = work.do.args[2]
    before = caches[0].k.clone()
    with torch.no_grad():
        work.do()
    assert torch.equal(caches[0].k, before)


def test_kept_times_of_decoding_are_of_the_sizes_that_are_measured():
    records, sizes = load_times("decoding").records, decoding_times.Sizes()
    assert all(len(record.seconds) == sizes.rounds for record in records.values())
    one, four = (records[f"decode linear, batch {batch}"] for batch in (1, 4))
    assert four.flops == 4 * one.flops == 4 * 24 * sizes.d_model**2


def test_the_kept_file_has_the_sizes_that_are_measured():
    records = load_times("counting").records
    sizes = measuring.Sizes()
    assert all(len(record.seconds) == sizes.rounds for record in records.values())
    assert records["prefill"].flops == sizes.n * records["decode"].flops
