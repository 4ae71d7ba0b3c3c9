"""The drawings: as their functions draw them, shown in a chapter, and told in words."""

from __future__ import annotations

import re

import pytest

from press.drawings import labs
from press.drawings.__main__ import FOLDER, drawings
from press.extension.drawings import inline
from press.notebooks import NOTEBOOKS, read

SHOWN = [
    found
    for path in NOTEBOOKS
    for cell in read(path).cells
    if cell.cell_type == "markdown"
    for found in re.findall(r"!\[([^\]]+)\]\(\.\./book/drawings/([\w-]+)\.svg\)", cell.source)
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in labs.DRAWINGS)) for name in drawings()],
)
def test_the_file_is_what_is_drawn(name: str):
    drawn = drawings()[name]().svg()
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn, "python -m press.drawings"


def test_each_is_shown_once_and_told_in_words():
    assert sorted(name for _, name in SHOWN) == sorted(set(drawings()) - set(labs.DRAWINGS))
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(drawings())
    assert all(len(alt.split()) >= 12 for alt, _ in SHOWN)


def test_in_the_page_it_is_an_image_with_arrow_heads_of_its_own():
    drawing = '<svg ><marker id="head-ink"/><path marker-end="url(#head-ink)"/></svg>'
    page = inline(drawing, 'A "b"', "drawing-1", "a.svg")
    assert 'role="img" aria-label="A &quot;b&quot;"' in page
    assert page.count("drawing-1-ink") == 2
