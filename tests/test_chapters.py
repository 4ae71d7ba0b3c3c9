"""The chapters: short enough to learn from, drawn, and with claims only where they teach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from press.notebooks import NOTEBOOKS, name, read, tagged

CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
MOST_WORDS, MOST_CELLS, MOST_CLAIMS = 2000, 45, 12
FOLD = r"<details>(?:(?!<details>).)*?</details>"
DRAWING = r"!\[[^\]]*\]\(\.\./book/drawings/[\w-]+\.svg\)"

each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=name)


def text(notebook: NotebookNode) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def words(prose: str) -> list[str]:
    """List the words that a reader sees without opening anything: no formula, no picture."""
    while re.search(FOLD, prose, re.DOTALL):
        prose = re.sub(FOLD, "", prose, flags=re.DOTALL)
    return re.sub(rf"{DRAWING}|<[^>]+>|\$\$.*?\$\$", "", prose, flags=re.DOTALL).split()


def in_sight(notebook: NotebookNode) -> list[NotebookNode]:
    folded = tagged(notebook, "hide-cell")
    return [cell for cell in notebook.cells if cell not in folded]


def test_what_is_folded_is_not_counted():
    assert words("a <details> b <details> c </details> d </details> e $$f$$") == ["a", "e"]


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
def test_what_no_reader_opens_stands_at_the_end(path: Path):
    cells = read(path).cells
    folded = [i for i, cell in enumerate(cells) if "hide-cell" in cell.metadata.get("tags", [])]
    appendix = [i for i, cell in enumerate(cells) if "## Appendix" in cell.source]
    assert not folded or appendix == [min(folded) - 1]
    assert all(cell.cell_type == "code" for cell in cells[len(cells) - len(folded) :])
