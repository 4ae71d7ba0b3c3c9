"""The drawings: as their functions draw them, shown in a chapter, and told in words."""

from __future__ import annotations

import re

import pytest

from press.drawings import labs
from press.drawings.__main__ import FOLDER, drawings
from press.drawings.kit import scripts
from press.extension.drawings import inline
from press.notebooks import NOTEBOOKS, read

SHOW = r'!\[([^\]]+)\]\(\.\./book/drawings/([\w-]+)\.svg "([^"]+)"\)'
SHOWN = [
    found
    for path in NOTEBOOKS
    for cell in read(path).cells
    if cell.cell_type == "markdown"
    for found in re.findall(SHOW, cell.source)
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in labs.DRAWINGS)) for name in drawings()],
)
def test_the_file_is_what_is_drawn(name: str):
    drawn = drawings()[name]().svg()
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn, "python -m press.drawings"


def test_each_is_shown_once_and_told_in_words():
    assert sorted(name for _, name, _ in SHOWN) == sorted(set(drawings()) - set(labs.DRAWINGS))
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(drawings())
    assert all(len(alt.split()) >= 12 for alt, _, _ in SHOWN)


def test_each_has_a_caption_of_one_sentence():
    assert all(re.fullmatch(r"\S[^.]+\.", re.sub(r"\$.*?\$", "x", said)) for _, _, said in SHOWN)
    assert len({said for _, _, said in SHOWN}) == len(SHOWN)


def test_in_the_page_it_is_an_image_with_arrow_heads_of_its_own():
    drawing = '<svg ><marker id="head-ink"/><path marker-end="url(#head-ink)"/></svg>'
    page = inline(drawing, 'A "b"', "drawing-1", "a.svg")
    assert 'role="img" aria-label="A &quot;b&quot;"' in page
    assert page.count("drawing-1-ink") == 2


@pytest.mark.parametrize(
    ("words", "slanted"),
    [
        ("d_k = 8", "dk"),
        ("(B, n, d_{model})", "Bnd"),
        ("W_Q^{(1)}", "WQ"),
        ("U_i^T q_i · c", "Uiqic"),
        ("k, v", "kv"),
        ("mia reads a dog", ""),
        ("T", ""),
    ],
)
def test_variables_are_slanted_and_words_are_not(words: str, slanted: str):
    assert "".join(re.findall(r'italic" font-weight="400">(.)<', scripts(words, 14))) == slanted
