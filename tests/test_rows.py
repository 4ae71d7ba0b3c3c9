"""The ledger's files: numbers of all sizes survive a round trip, and nothing else is touched."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.ledger import rows
from labkit.ledger.rows import LedgerError

FILE = """\
document: d
title: "A document"
claims:
  # This remark stays.
  - id: a
    where: "here"
    says: a claim
    value: 1.0
    notebook: chapters/one
  - id: b
    where: "there"
    says: another
    value: 1.0
    why: >-
      A reason in
      two lines.
    notebook: chapters/two
"""
NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2e-05, -2e-05, 1e22, 1e-300, -0.0]),
)
WORDS = st.sampled_from(["horizontal", "0", "2e-05", "-1E9", "true"])
VALUES = st.recursive(NUMBERS | WORDS | st.booleans(), lambda part: st.lists(part, max_size=20))


def file(text: str = FILE) -> Path:
    path = Path(tempfile.mkdtemp(), "d.yml")
    path.write_text(text, encoding="utf-8")
    return path


@given(value=VALUES)
def test_what_is_recorded_is_read_again(value):
    path = file()
    found = {"verdict": "holds", "computed": value, "percentile": None}
    assert rows.record(path, {"a": found, "b": found}) == ["a", "b"]
    for row in rows.read(path)["claims"]:
        assert (row["verdict"], row["computed"]) == ("holds", value)
        assert repr(row["computed"]) == repr(value), "of the same type, and with the same sign"
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= rows.WIDTH or isinstance(
        value, int
    )


def test_a_small_number_is_a_number():
    path = file()
    rows.record(path, {"a": {"verdict": "wrong", "computed": 2.0e-05}})
    assert "\n    computed: 2.0e-05\n    notebook: chapters/one\n" in path.read_text("utf-8")
    assert rows.read(path)["claims"][0]["computed"] == 2e-05


def test_all_other_lines_stay():
    path = file()
    rows.record(path, {"b": {"verdict": "wrong", "computed": 2.0, "draws": 10}})
    kept = path.read_text(encoding="utf-8").splitlines()
    at = kept.index("    verdict: wrong")
    assert kept[at : at + 4] == [
        "    verdict: wrong",
        "    computed: 2.0",
        "    draws: 10",
        "    why: >-",
    ]
    del kept[at : at + 3]
    assert kept == FILE.splitlines()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [1.0, [math.inf]]])
def test_what_is_no_finite_number_is_not_written(value):
    path = file()
    with pytest.raises(LedgerError, match=r"d/a: computed is"):
        rows.record(path, {"a": {"verdict": "holds", "computed": value}})
    assert path.read_text(encoding="utf-8") == FILE


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("value: [1.0, -.inf]", "value is -inf; a finite number"),
        ("at_least: much", "at_least is 'much'; one number was expected"),
        ('at_least: "2e-05"', "at_least is '2e-05'; one number was expected"),
        ("at_least: [0.5]", "at_least is [0.5]; one number was expected"),
        ("computed: .inf", "computed is inf; a finite number"),
        ("places: 1.5", "places is 1.5; a count was expected"),
        ("draws: true", "draws is True; a count was expected"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(line, told):
    path = file(FILE.replace("value: 1.0", line, 1))
    with pytest.raises(LedgerError) as refusal:
        rows.read(path)
    assert f"d/a: {told}" in str(refusal.value)


@pytest.mark.parametrize("written", ["2e-05", "2.0e-05", "+2E-5", "0.00002"])
def test_a_number_is_read_however_it_is_written(written):
    path = file(FILE.replace("value: 1.0", f"value: {written}", 1))
    assert rows.read(path)["claims"][0]["value"] == 2e-05


def test_words_and_truths_are_values_too():
    path = file(FILE.replace("value: 1.0", "value: [horizontal, true]", 1))
    assert rows.read(path)["claims"][0]["value"] == ["horizontal", True]
