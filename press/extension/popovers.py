"""Popovers: the entries of glossary and bibliography that a page links to, written into it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

GLOSSARY, BIBLIOGRAPHY = "book/glossary", "book/bibliography"
PLACES = {GLOSSARY: "In the glossary", BIBLIOGRAPHY: "In the bibliography"}
AUTHORS = 3  # more are "others"


def add_popovers(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write the popovers behind the text of a page, where nothing shows them but the script."""
    assert isinstance(app.builder, StandaloneHTMLBuilder)
    if templates := "".join(popovers(app.builder, pagename, doctree) if doctree else ()):
        context["body"] += templates
        app.add_js_file("cards.js")


def popovers(
    builder: StandaloneHTMLBuilder, pagename: str, doctree: nodes.document
) -> Iterator[str]:
    """Write the popovers of a page's links, each once, in their order."""
    links = [link.get("refuri", "") for link in doctree.findall(nodes.reference)]
    addresses = {docname: builder.get_relative_uri(pagename, docname) for docname in PLACES}
    entries = {
        f"{address}#{name}": (docname, section)
        for docname, address in addresses.items()
        if any(link.startswith(f"{address}#") for link in links)
        for section in builder.env.get_doctree(docname).findall(nodes.section)
        for name in (*section["ids"], section.get("slug"))
    }
    for link in dict.fromkeys(links):
        if link in entries:
            docname, section = entries[link]
            parts = term(section) if docname == GLOSSARY else paper(section)
            text = "".join(builder.render_partial(part)["fragment"] for part in parts)
            # By keyboard one is on the link that shows the popover, and that leads there too.
            more = f'<p><a href="{escape(link)}" tabindex="-1">{PLACES[docname]}</a></p>'
            yield f'<template data-card="{escape(link)}">{text}{more}</template>'


def term(section: nodes.section) -> list[nodes.paragraph]:
    """Give a term with its definition."""
    title, definition = section.children[:2]
    return [heading(title.astext()), without_links(definition)]


def paper(section: nodes.section) -> list[nodes.paragraph]:
    """Give a paper's title, its first authors, its year, and why it is here."""
    key = section.children[0].astext()
    cited, *why = (part for part in section.children if isinstance(part, nodes.paragraph))
    [title, *_] = cited.findall(nodes.emphasis)
    names = cited.astext().partition(title.astext())[0].strip().rstrip(".").split(", ")
    authors = names if len(names) <= AUTHORS else [*names[:AUTHORS], "and others"]
    by = nodes.paragraph("", ", ".join([*authors, *re.findall(r"\d{4}", key)]))
    return [heading(title.astext().rstrip(".")), by, *map(without_links, why)]


def heading(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.strong("", text))


def without_links(paragraph: nodes.Node) -> nodes.paragraph:
    """Copy a paragraph without its links: a popover has one, to the entry."""
    assert isinstance(paragraph, nodes.paragraph)
    copied = paragraph.deepcopy()
    for kind in (nodes.reference, addnodes.pending_xref):
        for link in list(copied.findall(kind)):
            link.replace_self(nodes.Text(link.astext()))
    return copied


def note_entries(app: Sphinx, doctree: nodes.document) -> None:
    """Write a page anew when the entries change that it links to."""
    for docname in {link.get("reftarget") for link in doctree.findall(addnodes.pending_xref)}:
        if docname in PLACES:
            app.env.note_dependency(str(app.env.doc2path(docname)))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_css_file("cards.css")
    app.connect("doctree-read", note_entries)
    app.connect("html-page-context", add_popovers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
