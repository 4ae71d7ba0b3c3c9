"""The figures: told in words, rounded, refused when their parts do not fit."""

from __future__ import annotations

import re

import pytest
import torch

from labkit.figures import palette, tables
from labkit.figures import plots as figures
from labkit.figures.base import SCRIPTS
from press import BOOK
from press.editions import epub, pdf
from press.editions import pages as editions


def test_the_style_sheets_have_their_colours_from_the_palette():
    printed = [pdf.STYLE, epub.STYLE]
    sheets = [*(BOOK / "_static").glob("*.css"), *SCRIPTS.glob("*.css"), *printed]
    text = {sheet.name: sheet.read_text(encoding="utf-8") for sheet in sheets}
    assert not {
        name: found for name in text if (found := re.findall(r"#[0-9a-f]{3,8}\b", text[name]))
    }
    named = set(re.findall(r"var\(--book-([\w-]+)\)", "".join(text.values())))
    assert set(palette.PAGES) <= named
    assert not any("var(--book" in editions.style(sheet) for sheet in printed)


def test_numbers_are_rounded_and_stored_as_lists():
    drawn = figures.figure([{"type": "scatter", "y": torch.tensor([1 / 3])}], title="t", alt="a")
    assert drawn.to_dict()["data"][0]["y"] == [0.333]


def test_the_text_alternative_is_kept():
    drawn = figures.figure([], title="t", alt="what it shows")
    assert drawn.layout.meta["alt"] == "what it shows"


def test_boxes_place_quantiles_and_marks():
    sample = torch.linspace(0, 1, 101)
    drawn = figures.boxes(
        {"one": [sample]}, categories=["c"], marks={"m": [[0.5]]}, title="t", alt="a"
    ).to_dict()
    box, marks = drawn["data"]
    assert (box["lowerfence"], box["median"], box["upperfence"]) == ([0.05], [0.5], [0.95])
    assert marks["y"] == [0.5]
    assert marks["x"] == box["x"]


def test_dots_have_a_row_for_each_kind_and_a_symbol_for_each_quantity():
    runs = {"one": {"a": [0.5, 1.0], "b": [0.1]}, "two": {"a": [0.2], "b": [0.3]}}
    first, second = figures.dots(runs, title="t", alt="a").to_dict()["data"]
    assert (first["x"], second["x"]) == ([0.5, 1.0, 0.2], [0.1, 0.3])
    assert [round(y) for y in first["y"] + second["y"]] == [0, 0, -1, 0, -1]
    assert first["marker"]["symbol"] != second["marker"]["symbol"]
    with pytest.raises(ValueError, match="needs the same quantities"):
        figures.dots(runs | {"three": {}}, title="t", alt="a")


def test_lines_differ_and_marks_are_labelled():
    curves = {str(i): torch.tensor([0.0, 1 / 3]) for i in range(5)}
    drawn = figures.lines(
        curves, x=range(2), marks={"here": (1, 0.5)}, title="t", alt="a"
    ).to_dict()
    *traces, marks = drawn["data"]
    assert [trace["name"] for trace in traces] == list(curves)
    assert all(trace["x"] == [0, 1] and trace["y"] == [0.0, 0.333] for trace in traces)
    looks = {(trace["line"]["color"], trace["line"]["dash"]) for trace in traces}
    assert len(looks) == len(traces)
    assert (marks["x"], marks["y"], marks["text"]) == ([1], [0.5], ["here"])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.figure([], title="t", alt=" "), "say in `alt` what it shows"),
        (
            lambda: figures.heatmap([[1, 2]], rows=["r"], columns=["c"], title="t", alt="a"),
            r"the matrix is \(1, 2\), its labels are for \(1, 1\)",
        ),
        (
            lambda: figures.boxes({"s": []}, categories=["c"], title="t", alt="a"),
            "'s' has 0 samples for 1 categories",
        ),
        (
            lambda: figures.boxes({key: [] for key in "abcde"}, categories=[], title="t", alt="a"),
            "boxes tells 4 series and 2 marks apart; got 5 and 0",
        ),
        (
            lambda: figures.boxes(
                {}, categories=[], marks=dict.fromkeys("abc"), title="t", alt="a"
            ),
            "boxes tells 4 series and 2 marks apart; got 0 and 3",
        ),
        (
            lambda: figures.lines({"s": [1.0]}, x=[1, 2], title="t", alt="a"),
            "'s' has 1 values for 2 places in x",
        ),
        (
            lambda: figures.animation({"f": [[[1]]]}, panels=["p", "q"], title="t", alt="a"),
            "'f' has 1 matrices for 2 panels",
        ),
    ],
)
def test_what_does_not_fit_is_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_an_animation_rests_on_its_last_frame():
    even, sharp = torch.full((2, 2), 1 / 3), torch.eye(2)
    drawn = figures.animation(
        {"first": [even, even, even], "last": [sharp, even, sharp]},
        panels=["a", "b", "c"],
        title="t",
        alt="a",
    ).to_dict()
    assert drawn["data"][0]["z"] == [[1.0, 0.0], [0.0, 1.0]]
    assert [frame["name"] for frame in drawn["frames"]] == ["first", "last"]
    assert drawn["frames"][0]["data"][2]["z"] == [[0.33, 0.33], [0.33, 0.33]]
    assert [step["label"] for step in drawn["layout"]["sliders"][0]["steps"]] == ["first", "last"]
    assert drawn["layout"]["sliders"][0]["active"] == 1
    assert [drawn["layout"][f"xaxis{i}"]["title"]["text"] for i in ("", 2, 3)] == [
        "a: key",
        "b: key",
        "c: key",
    ]


def test_a_table_is_text_in_columns_and_rows_in_a_page():
    table = tables.Table(("a < b", "loss"), ("one", 0.5), ("four", "10"))
    assert repr(table) == "a < b  loss\none     0.5\nfour     10"
    assert '<th scope="col">a &lt; b</th>' in table._repr_html_()
    assert '<th scope="row">one</th><td>0.5</td>' in table._repr_html_()
    with pytest.raises(ValueError, match=r"one length; got \[2, 1\]"):
        tables.Table(("a", "b"), ("c",))
    captioned = tables.Table(("a",), ("b",), caption="c < d")
    assert repr(captioned) == "c < d\na\nb"
    assert "<table><caption>c &lt; d</caption><thead>" in captioned._repr_html_()
    head = ("without W_O", "in `code`", "$n$ = 4", "by √d_k")
    told = tables.Table(head, ("-0.5 to -1e-3", "x-3", "is_causal=n_q", ""))
    symbols = told._repr_html_()
    assert "without <i>W<sub>O</sub></i></th>" in symbols
    assert "<code>code</code></th>" in symbols
    assert '<th scope="col"><i>n</i> = 4</th>' in symbols
    assert 'by √<span style="text-decoration: overline"><i>d<sub>k</sub></i></span>' in symbols
    assert "<td>is_causal=n_q</td>" in symbols
    assert "n = 4  by √d_k" in repr(told)
    assert "−0.5 to −1e-3</th><td>x-3</td>" in symbols


def test_a_matrix_has_brackets_and_as_many_decimals_as_it_needs():
    numbers = torch.tensor([[-2.0, -0.0], [0.25, 10.0]])
    assert repr(tables.Matrix(numbers)) == "[  -2.00   0.00  ]\n[   0.25  10.00  ]"
    assert repr(tables.Matrix(torch.ones(1, 1) / 3, decimals=2)) == "[  0.33  ]"
    named = tables.Matrix(numbers, "X", rows=["a < b", "c"])
    assert repr(named).splitlines()[:2] == ["X", "a < b  [  -2.00   0.00  ]"]
    start = '<table class="matrix"><caption>X</caption><tbody>'
    first = '<tr><th scope="row">a &lt; b</th><td>−2.00</td><td>0.00</td></tr>'
    assert named._repr_html_().startswith(start + first)
    with pytest.raises(ValueError, match="2 rows need as many names; got 1"):
        tables.Matrix(numbers, rows=["a"])
    with pytest.raises(ValueError, match=r"two dimensions; got shape \(2,\)"):
        tables.Matrix(numbers[0])
