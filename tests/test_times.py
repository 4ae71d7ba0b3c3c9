"""The kept times: what `make times` measures, written, loaded and told as shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit import counting
from labkit.models import times
from labkit.models.times import Record, Times, load_times
from press import decoding_times, tile_times
from press import times as measuring
from press.timing import write

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
    write(path, "counting", measured, measuring.machine())
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


def test_the_kept_times_of_decoding_are_of_the_works_that_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    small = decoding_times.Sizes(
        d_model=8, h=2, layers=1, n=6, batches=(1, 2), lengths=(4, 8), most=8, least=64,
        steps=1, rounds=1,
    )  # fmt: skip
    measured = measuring.measure(decoding_times.decoding_works(small), small.rounds)
    path = tmp_path / "times.json"
    write(path, "decoding", measured, measuring.machine())
    kept = load_times("decoding").records
    sizes = decoding_times.Sizes()
    assert "attention, 2 over 8" not in measured, "more positions than may be"
    assert all(len(record.seconds) == sizes.rounds for record in kept.values())
    assert {name for name in measured if name.startswith("step")} == {
        name for name in kept if name.startswith("step")
    }
    step = kept["attention, 16 over 4096"]
    assert step.flops == 2 * counting.product_macs(16, sizes.d_model, sizes.h, n_k=4096)
    assert kept["linear, 4"].flops == 2 * 4 * 12 * sizes.d_model**2
    monkeypatch.setattr(times, "TIMES", path)
    assert load_times("decoding").records == measured


def test_the_kept_times_of_sharing_are_of_the_works_that_are_measured():
    small = decoding_times.Sizes(
        d_model=8, h=4, layers=2, n=6, key_heads=(2, 1), latents=((6, 2),), steps=1, rounds=1
    )
    measured = measuring.measure(decoding_times.sharing_works(small), small.rounds)
    assert {name: len(record.seconds) for name, record in measured.items()} == dict.fromkeys(
        ("step, whole", "step, 2 key heads", "step, 1 key head", "step, shared by 2 layers",
         "step, latent 6 + 2, absorbed", "step, latent 6 + 2, unpacked"), 1,
    )  # fmt: skip
    sizes, kept = decoding_times.Sizes(), load_times("sharing").records
    assert all(len(record.seconds) == sizes.rounds for record in kept.values())
    assert {f"step, {h_kv} key heads" for h_kv in sizes.key_heads if h_kv > 1} <= set(kept)
    for d_c, d_rotary in sizes.latents:
        assert f"step, latent {d_c} + {d_rotary}, absorbed" in kept


def test_the_kept_file_has_the_sizes_that_are_measured():
    records = load_times("counting").records
    sizes = measuring.Sizes()
    assert all(len(record.seconds) == sizes.rounds for record in records.values())
    assert records["prefill"].flops == sizes.n * records["decode"].flops


def test_the_kept_times_of_tiles_are_of_the_works_that_are_measured():
    small = tile_times.Sizes(h=2, d_k=4, layers=1, n=6, block=2, steps=1, rounds=1)
    measured = measuring.measure(tile_times.tile_works(small), small.rounds)
    kept = load_times("tiles").records
    assert kept.keys() == measured.keys()
    assert kept["prompt, fused"].best < kept["prompt, tiled"].best
