"""The book's notebooks, and the verdicts that their stored outputs hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import nbformat

from labkit.ledger import MIME

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("labs/*.ipynb")])


@cache
def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def name(path: Path) -> str:
    """Name a notebook as the ledger and the table of contents do."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def outputs(path: Path) -> list[nbformat.NotebookNode]:
    return [output for cell in code_cells(path) for output in cell.outputs]


def verdicts(path: Path) -> list[dict]:
    """List the verdicts that a notebook's cells worked out, in order."""
    return [output.data[MIME] for output in outputs(path) if MIME in output.get("data", {})]
