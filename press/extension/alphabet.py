"""The glossary's terms in the order of the alphabet, and the row of letters that leads to them."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.extension.popovers import GLOSSARY


class Alphabet(SphinxDirective):
    """Leave room for the letters, or for the terms, until the page is read."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [nodes.container(classes=[f"alphabet-{self.arguments[0]}"])]


def by_letter(doctree: nodes.document) -> dict[str, list[tuple[str, str]]]:
    """Sort the terms, each with its anchor, below their first letters."""
    terms = [
        (section[0].astext(), section["ids"][0])
        for group in doctree[0].findall(nodes.section)
        for section in group.children
        if group.parent is doctree[0] and isinstance(section, nodes.section)
    ]
    terms.sort(key=lambda term: sorted_as(term[0]))
    return {
        letter: list(some) for letter, some in groupby(terms, lambda term: sorted_as(term[0])[0])
    }


def sorted_as(term: str) -> str:
    """Leave out what stands before the first letter.

    >>> sorted_as("[CLS] and [SEP]")
    'CLS] AND [SEP]'
    """
    return re.sub(r"^[^A-Za-z]+", "", term).upper()


def fill(app: Sphinx, doctree: nodes.document) -> None:
    """Write the letters and the terms where the page has room for them."""
    if app.env.docname != GLOSSARY:
        return
    terms = by_letter(doctree)
    letters = "".join(f'<a href="#letter-{letter.lower()}">{letter}</a> ' for letter in terms)
    lines = "".join(
        f'<li id="letter-{letter.lower()}"><b aria-hidden="true">{letter}</b> <span>'
        + ", ".join(f'<a href="#{anchor}">{escape(term)}</a>' for term, anchor in some)
        + "</span></li>"
        for letter, some in terms.items()
    )
    written = {
        "alphabet-letters": f'<nav aria-label="Terms by their first letter">{letters}</nav>',
        "alphabet-terms": f"<ul>{lines}</ul>",
    }
    for room in doctree.findall(nodes.container):
        for name in written.keys() & set(room["classes"]):
            room += nodes.raw(text=written[name], format="html")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("alphabet", Alphabet)
    app.connect("doctree-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
