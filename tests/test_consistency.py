"""One standard: rows agree with each other, and a word is read at one bar."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit import ledger
from labkit.ledger import AboutPaper, Bound, Claim, Convention, Figures
from labkit.ledger.consistency import both_hold, other_bars, read_readings, unequal

CLAIMS = ledger.all_claims()


def test_every_row_names_its_quantity():
    assert [claim.key for claim in CLAIMS if not claim.quantity] == []


def test_no_two_rows_contradict_each_other_and_both_hold():
    assert both_hold(CLAIMS) == []


def test_one_quantity_has_one_verdict():
    assert unequal(CLAIMS) == []


def test_a_word_is_read_at_one_bar():
    assert other_bars(CLAIMS, read_readings()) == []


# Planted

COMMON = {"document": "d", "where": "w", "says": "s", "notebook": "n", "verdict": "holds"}
ROW = Figures(**COMMON, id="a", quantity="q", value=1.0, places=1)
BOUND = Bound(**COMMON, id="a", quantity="q", at_least=0.9, reading="always")
PAPER = AboutPaper(
    document="d", id="a", where="w", says="s", quantity="q", verdict="holds", source="p", value=1.0
)
TABLE = [{"words": ["always"], "bars": [{"at_least": 0.9}]}]


@pytest.mark.parametrize(
    "other",
    [
        replace(ROW, id="b", value=2.0),
        Convention(**COMMON, id="b", quantity="another", value=1.0, against=["d/a"]),
    ],
)
def test_a_contradiction_that_holds_is_found(other: Claim):
    assert both_hold([ROW, other])
    assert both_hold([ROW, replace(other, verdict="wrong")]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"value": "rows", "places": None}, {"value": "columns", "places": None}),
        ({"value": [1.0, 2.0], "places": 1}, {"value": [1.0, 2.3], "places": 1}),
    ],
)
def test_figures_that_cannot_both_be_right_are_found(one, other):
    assert both_hold([replace(ROW, **one), replace(ROW, id="b", **other)])
    assert both_hold([replace(ROW, **one), replace(ROW, id="b", **one)]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ROW, replace(ROW, id="b", value=[2.0])),
        (ROW, replace(ROW, id="b", value=1.095, places=3)),
        (replace(ROW, places=0), replace(ROW, id="b", value=2.0, places=0)),
        (ROW, replace(BOUND, id="b", reading=None)),
        (BOUND, replace(BOUND, id="b", at_least=0.95)),
        (PAPER, replace(PAPER, id="b", value=None)),
    ],
)
def test_what_is_stated_otherwise_is_no_contradiction(one: Claim, other: Claim):
    assert both_hold([one, other]) == []


def test_figures_that_round_to_each_other_are_no_contradiction():
    assert both_hold([ROW, replace(ROW, id="b", value=1.04, places=2)]) == []


def test_what_has_no_verdict_yet_contradicts_nothing():
    new = replace(BOUND, id="b", verdict=None)
    assert unequal([BOUND, new]) == []
    assert both_hold([ROW, replace(ROW, id="b", value=2.0, verdict=None)]) == []


def test_unequal_verdicts_are_found():
    assert unequal([BOUND, replace(BOUND, id="b", verdict="wrong")])
    assert unequal([BOUND, replace(BOUND, id="b", verdict="wrong", quantity="another")]) == []
    assert unequal([BOUND, replace(BOUND, id="b", verdict="wrong", reading="never")]) == []


def test_a_word_at_two_bars_is_found():
    assert other_bars([BOUND], TABLE) == []
    assert other_bars([replace(BOUND, at_least=0.99)], TABLE)
    assert other_bars([replace(BOUND, reading=None)], TABLE)
    assert other_bars([BOUND], [*TABLE, {"words": ["always"], "bars": []}])
