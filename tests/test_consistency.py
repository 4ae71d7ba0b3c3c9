"""One standard: rows agree with each other, and a word is read at one bar."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit import ledger
from labkit.ledger import AboutPaper, Bound, Claim, Convention, Figures
from labkit.ledger.consistency import (
    both_hold,
    hidden_failures,
    lone_bars,
    other_bars,
    other_statistics,
    read_readings,
    uncontrolled,
    unequal,
)

CLAIMS = ledger.all_claims()


def test_every_row_names_its_quantity():
    assert [claim.key for claim in CLAIMS if not claim.quantity] == []


def test_no_two_rows_contradict_each_other_and_both_hold():
    assert both_hold(CLAIMS) == []


def test_one_quantity_has_one_verdict():
    assert unequal(CLAIMS) == []


def test_a_word_is_read_at_one_bar():
    assert other_bars(CLAIMS, read_readings()) == []


def test_a_bar_for_one_row_says_so():
    assert lone_bars(CLAIMS, read_readings()) == []


def test_a_word_is_read_by_one_statistic():
    assert other_statistics(CLAIMS, read_readings()) == []


def test_what_is_said_to_be_learned_has_a_control():
    assert uncontrolled(CLAIMS) == []


def test_what_holds_hides_no_reading_that_fails():
    assert hidden_failures(CLAIMS) == []


# Planted

COMMON = {"document": "d", "where": "w", "says": "s", "notebook": "n", "verdict": "holds"}
ROW = Figures(**COMMON, id="a", quantity="q", value=1.0, places=1)
BOUND = Bound(**COMMON, id="a", quantity="q", at_least=0.9, reading="always")
PAPER = AboutPaper(
    document="d", id="a", where="w", says="s", quantity="q", verdict="holds", source="p", value=1.0
)
TABLE = [
    {"name": "all", "words": ["always"], "bars": [{"at_least": 0.9}], "statistic": "share of cases"}
]


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


def test_a_word_at_two_statistics_is_found():
    shares = replace(BOUND, statistic="share of cases")
    assert other_statistics([shares], TABLE) == []
    assert other_statistics([shares, replace(shares, id="b", statistic="median")], TABLE)
    assert other_statistics([BOUND], TABLE), "a statistic that is not stated"
    assert other_statistics([replace(BOUND, reading="stated")], TABLE) == []


def test_a_bar_for_one_row_is_found():
    silent, told = ([TABLE[0] | {"why": why}] for why in ("A tenth.", "It serves one row alone."))
    assert lone_bars([BOUND], silent)
    assert lone_bars([BOUND], told) == []
    assert lone_bars([BOUND, replace(BOUND, id="b")], told)


def test_what_is_learned_without_a_control_is_found():
    learned = replace(BOUND, learned=True)
    assert uncontrolled([learned])
    assert uncontrolled([BOUND, replace(learned, control=0.1)]) == []


def test_a_failure_behind_a_badge_is_found():
    assert hidden_failures([replace(BOUND, why="Without exception it fails.")])
    assert hidden_failures([replace(BOUND, verdict="holds in one reading")])
    fair = replace(BOUND, verdict="holds in one reading", fails="Without exception: a twin.")
    assert hidden_failures([fair, replace(BOUND, why="In one small model.")]) == []
