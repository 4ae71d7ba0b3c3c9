"""Cells on the page: verdicts stand beside their idea, and an error that was expected says so."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

EXPECTED = "The error that was expected"
NAME = ' aria-label="Toggle hidden content"'  # by which MyST-NB hides what a fold says


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    cells = [node for node in doctree.findall(nodes.container) if "cell" in node["classes"]]
    for cell in cells:
        if is_verdict(cell) and "beside" not in cell.parent["classes"]:
            put_beside(cell)
        if "tag_raises-exception" in cell["classes"]:
            label_error(cell)


def is_verdict(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and "tag_margin" in node["classes"]


def put_beside(first: nodes.container) -> None:
    """Bind a verdict, and those that follow it, to what stands before them.

    Left to float from where they stand, they begin below their idea, and reach beside the next.
    """
    parent = first.parent
    at = parent.index(first)
    verdicts = list(takewhile(is_verdict, parent[at:]))
    idea = [] if isinstance(parent[at - 1], nodes.title) else [parent[at - 1]]
    start = at - len(idea)
    margin = nodes.container("", *verdicts, classes=["verdicts"])
    bound = nodes.container("", *idea, margin, classes=["beside"])
    parent[start : at + len(verdicts)] = [bound]


def label_error(cell: nodes.container) -> None:
    """Say above an error that it is what the cell shows."""
    for output in cell.findall(nodes.container):
        if "cell_output" in output["classes"]:
            output.insert(0, nodes.paragraph("", EXPECTED, classes=["expected"]))


def name_folds(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let folded code be called what its line says: "Show code cell source"."""
    if "body" in context:
        context["body"] = context["body"].replace(NAME, "")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", arrange)
    app.connect("html-page-context", name_folds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
