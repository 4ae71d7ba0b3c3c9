"""The chapters: short enough to learn from, drawn, and with claims only where they teach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from press.minutes import DRAWING, text, words
from press.notebooks import NOTEBOOKS, name, read, tagged

CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
MOST_WORDS, MOST_CELLS, MOST_CLAIMS = 2000, 45, 12

each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=name)


def in_sight(notebook: NotebookNode) -> list[NotebookNode]:
    folded = tagged(notebook, "hide-cell")
    return [cell for cell in notebook.cells if cell not in folded]


def test_what_is_folded_is_not_counted():
    assert words("a <details> b <details> c </details> d </details> e $$f$$") == ["a", "e"]
    assert words("<b>a</b> $n < m$ b > c") == ["a", "$n", "<", "m$", "b", ">", "c"]


@each_chapter
def test_it_is_short(path: Path):
    notebook = read(path)
    assert len(words(text(notebook))) <= MOST_WORDS
    assert len(in_sight(notebook)) <= MOST_CELLS
    code = "\n".join(cell.source for cell in in_sight(notebook) if cell.cell_type == "code")
    assert len(re.findall(r'\.(?:compare|draw)\(\s*"', code)) <= MOST_CLAIMS


@each_chapter
def test_it_is_drawn(path: Path):
    prose = text(read(path))
    assert 2 <= len(re.findall(DRAWING, prose)) <= 3


@each_chapter
def test_a_claim_in_a_folded_cell_stands_in_the_appendix(path: Path):
    before, _, _ = "\n".join(cell.source for cell in read(path).cells).partition("## Appendix")
    assert not [
        c for c in tagged(read(path), "hide-cell") if ".compare(" in c.source and c.source in before
    ]
