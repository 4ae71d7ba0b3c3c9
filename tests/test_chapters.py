"""The chapters: as long as understanding needs, drawn, with claims only where they teach."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from nbformat import NotebookNode

from press.minutes import DRAWING, text, words
from press.notebooks import NOTEBOOKS, code_cells, name, read, tagged

CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
MOST_WORDS, MOST_CLAIMS, MOST_LINES = 4200, 3, 30

each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=name)


def in_sight(notebook: NotebookNode) -> list[NotebookNode]:
    folded = tagged(notebook, "hide-cell")
    return [cell for cell in notebook.cells if cell not in folded]


def test_what_is_folded_is_not_counted():
    assert words("a <details> b <details> c </details> d </details> e $$f$$") == ["a", "e"]
    assert words("<b>a</b> $n < m$ b > c") == ["a", "$n", "<", "m$", "b", ">", "c"]


@each_chapter
def test_it_is_no_longer_than_it_may_be(path: Path):
    notebook = read(path)
    code = "\n".join(cell.source for cell in in_sight(notebook) if cell.cell_type == "code")
    claims = len(re.findall(r'\.(?:compare|draw)\(\s*"', code))
    assert len(words(text(notebook))) <= MOST_WORDS
    assert claims <= MOST_CLAIMS


@each_chapter
def test_no_code_in_sight_is_a_wall(path: Path):
    notebook = read(path)
    folded = [*tagged(notebook, "hide-input"), *tagged(notebook, "hide-cell")]
    shown = [c for c in code_cells(notebook) if c not in folded + tagged(notebook, "remove-input")]
    assert {c.id: n for c in shown if (n := len(c.source.splitlines())) > MOST_LINES} == {}


@each_chapter
def test_it_is_drawn(path: Path):
    notebook = read(path)
    drawings = len(re.findall(DRAWING, text(notebook)))
    assert drawings or "live.Stage(" in "\n".join(cell.source for cell in notebook.cells)


@each_chapter
def test_a_claim_in_a_folded_cell_stands_in_the_appendix_or_ends_its_section(path: Path):
    for before, after in pairwise(until_the_appendix(read(path))):
        if before in tagged(read(path), "hide-cell") and ".compare(" in before.source:
            assert after.source.startswith("## ")


def until_the_appendix(notebook: NotebookNode) -> list[NotebookNode]:
    starts = (i for i, c in enumerate(notebook.cells) if "## Appendix" in c.source)
    return notebook.cells[: next(starts, len(notebook.cells) - 1) + 1]
