"""The book's notebooks, what their stored outputs hold, and the parts of a lab.

A notebook of the book is one that lies in a folder of the root. Whatever runs over all of them
takes them from here, or from the same pattern, ``*/*.ipynb``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from labkit.ledger import MIME
from press import ROOT


def find(root: Path) -> list[Path]:
    """List the notebooks of this copy of the book, or of another."""
    return sorted(root.glob("[!._]*/*.ipynb"))


NOTEBOOKS = find(ROOT)
AUDITS = [path for path in NOTEBOOKS if path.parent.name == "audits"]
LABS = [path for path in NOTEBOOKS if path.parent.name == "labs"]


@cache
def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def name(path: Path) -> str:
    """Name a notebook as the ledger and the table of contents do."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def title(path: Path) -> str:
    """Read a notebook's title, as Markdown."""
    return str(read(path).cells[0].source).splitlines()[0].removeprefix("# ")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook: NotebookNode, tag: str) -> list[NotebookNode]:
    """List the cells that have a tag."""
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Run through all outputs of a notebook."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def verdicts(notebook: NotebookNode) -> list[dict[str, Any]]:
    """List the verdicts that a notebook's cells worked out, in order."""
    return [output.data[MIME] for output in outputs(notebook) if MIME in output.get("data", {})]
