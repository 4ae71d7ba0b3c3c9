"""What a lab's notebook holds: its topic, the cards of its exercises, its solutions."""

from __future__ import annotations

import re

import nbformat
from nbformat import NotebookNode

from press.notebooks import LABS, tagged

TOPICS = {path.stem.split("_", 2)[2]: path for path in LABS}  # lab_01_scaling.ipynb is on scaling
CARD = re.compile(r"^\*(Easy|Medium|Hard), (\d+) minutes\.\*", re.MULTILINE)
SOLUTION = re.compile(
    r"<details><summary>Solution</summary>\n\n```python\n(.*?)\n```\n\n</details>\s*", re.DOTALL
)
OFFERED = ("a check, hints and a solution", "a check and hints")


def cards(notebook: NotebookNode) -> list[tuple[str, int]]:
    """List how hard each exercise of a lab is, and its minutes."""
    found = [card for cell in notebook.cells for card in CARD.findall(cell.source)]
    return [(level, int(minutes)) for level, minutes in found]


def solutions(notebook: NotebookNode) -> list[str]:
    """List the solutions that a lab holds, in the order of its exercises."""
    return [found for cell in notebook.cells for found in SOLUTION.findall(cell.source)]


def solved(notebook: NotebookNode) -> NotebookNode:
    """Put each solution in place of its stub."""
    notebook = nbformat.from_dict(notebook)
    for cell, solution in zip(tagged(notebook, "exercise"), solutions(notebook), strict=True):
        cell.source = solution
    return notebook


def unsolved(notebook: NotebookNode) -> NotebookNode:
    """Take the solutions out; the hints stay."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        cell.source = SOLUTION.sub("", cell.source).replace(*OFFERED).rstrip()
    return notebook
