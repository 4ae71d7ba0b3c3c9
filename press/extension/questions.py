"""The question that a chapter asks first stands in a box, with its list and its answer."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from press.extension.drawings import raw

MARK = "Predict first."


def box_questions(app: Sphinx, doctree: nodes.document) -> None:
    for words in list(doctree.findall(nodes.strong)):
        if words.astext() == MARK:
            box(words.parent)


def box(paragraph: nodes.Element) -> None:
    """Put a question, the list behind it and the fold behind that into a box."""
    parent = paragraph.parent
    at = parent.index(paragraph)
    end = at + 1
    if isinstance(paragraph.next_node(descend=False, siblings=True), nodes.enumerated_list):
        end += 1
    if begins_fold(parent[end : end + 1]):
        end += 1 + next(i for i, node in enumerate(parent[end:]) if "</details>" in node.astext())
    parent[at:end] = [raw('<div class="predict">'), *parent[at:end], raw("</div>")]


def begins_fold(found: list[nodes.Node]) -> bool:
    return any(isinstance(x, nodes.raw) and x.astext().startswith("<details>") for x in found)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", box_questions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
