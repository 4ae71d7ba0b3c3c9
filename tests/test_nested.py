"""Nested lists: what becomes one, how two are told apart, how one is rounded and written."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch

from labkit.ledger.nested import agrees, each, flat, percentiles, plain, rounded, shape, show


@pytest.mark.parametrize(
    "value",
    [torch.tensor([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]), ((1, 2), [3, 4])],
    ids=["tensor", "array", "tuples"],
)
def test_whatever_holds_numbers_becomes_lists(value):
    assert plain(value) == [[1, 2], [3, 4]]
    assert plain([torch.zeros(2).shape, "words", None]) == [[2], "words", None]


def test_leaves_are_reached_in_order():
    nested = [[1, [2]], 3]
    assert list(flat(nested)) == [1, 2, 3]
    assert each(nested, str) == [["1", ["2"]], "3"]
    assert list(flat([[]])) == []


def test_unlike_lists_have_unlike_shapes():
    values = [1, [1], [1, 1], [[1]], [[1], 1], []]
    shapes = [shape(value) for value in values]
    assert all(shapes.count(one) == 1 for one in shapes)
    assert shape([[1, 2]]) == shape([[3.5, "x"]])


@pytest.mark.parametrize(
    ("computed", "places", "slack", "agree"),
    [
        ([1.0, 2.0], None, 0, True),
        ([1.0, 2.04], None, 0, False),
        ([1.0, 2.04], 1, 0, True),
        ([1.0, 2.05], 1, 0, True),
        ([1.0, 1.95], 1, 0, True),
        ([1.0, 2.06], 1, 0, False),
        ([1.0, 2.06], 1, 1, True),
        ([1.0, 2.16], 1, 1, False),
        ([1.0], 1, 0, False),
        (1.0, 1, 0, False),
    ],
)
def test_figures_agree_to_their_last_digit(computed, places, slack, agree):
    assert agrees([1.0, 2.0], computed, places, slack) == agree


def test_a_percentile_is_the_share_of_draws_below():
    sample = [[0.1, 0.9], [0.2, 0.9], [0.3, 0.9], [0.4, 0.9]]
    assert percentiles([0.3, 0.9], sample) == [50.0, 0.0]
    assert percentiles([0.3, 0.9], sample, operator.le) == [75.0, 100.0]


def test_numbers_are_left_alone_without_places():
    assert rounded([0.125, None], None) == [0.125, None]
    assert rounded(None, 2) is None


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        ([[0.5, -0.0]], 2, "[[0.50 0.00]]"),
        ([2, 4, 64], None, "[2, 4, 64]"),
        (1048576, None, "1,048,576"),
        (True, None, "true"),
        ("horizontal", None, "horizontal"),
        (None, None, ""),
    ],
)
def test_values_are_written_plainly(value, places, text):
    assert show(rounded(value, places), places) == text
