"""Claims on the page: an address that stays, and a link to the erratum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from labkit import ledger
from labkit.ledger import MIME, RECORD_MIME, Record, Verdict
from press.extension import report
from press.extension.errata import SHOWN, erratum_anchor

ERRATA = "book/errata"
AUDITS = "audits/"


class VerdictRenderer:
    """Leave a place for a verdict, under its claim's name; the page it is on writes it."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [
        ("*", MIME, 1),
        ("*", RECORD_MIME, 1),
    ]

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        kinds = {MIME: Verdict, RECORD_MIME: Record}
        if data.mime_type not in kinds or inline:
            return None
        key = f"{data.content['document']}/{data.content['id']}"
        classes = ["output", "text_html"]
        return [nodes.raw(format="html", classes=classes, claim=key, kind=kinds[data.mime_type])]


def write_verdicts(app: Sphinx, doctree: nodes.document) -> None:
    """Write the verdicts of a page."""
    docname = app.env.docname
    laid_open = docname.startswith(AUDITS)
    for node in doctree.findall(nodes.raw):
        if key := node.get("claim"):
            verdict = node["kind"](ledger.find_claim(key))
            rows = list(linked(verdict, lambda to: app.builder.get_relative_uri(docname, to)))
            if reported := report.of_claim(app.config.lives_at, verdict.claim):
                rows.append(("mistaken?", reported))
            if laid_open:  # the line above them says it
                rows = [row for row in rows if row[0] != "says"]
            written = verdict.as_html(rows, laid_open=laid_open, named=not laid_open)
            node.append(nodes.Text(written))
    if docname == ERRATA:
        name_errata(doctree)


def name_errata(doctree: nodes.document) -> None:
    """Let the heading of an erratum link to itself by its claim's name, not by its words."""
    for document in map(ledger.open_document, ledger.document_keys()):
        for anchor in map(erratum_anchor, document):
            if anchor in doctree.ids:
                # An element's own link gives the first of its names.
                doctree.ids[anchor]["ids"].sort(key=lambda name: name != anchor)


def linked(verdict: Verdict, address: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Write the rows of a verdict, with links to itself, to where it is compared, to its erratum.

    Args:
        address: gives for a page's name the way to it.
    """
    claim = verdict.claim
    for label, text in verdict.rows():
        targets = {
            "claim": f"#{verdict.anchor}",
            "compared in": f"{address(claim.notebook or '')}#{claim.anchor}",
        }
        told = escape(text)
        yield label, f'<a href="{targets[label]}">{told}</a>' if label in targets else told
    if claim.verdict in SHOWN:
        yield "at length", f'<a href="{address(ERRATA)}#{erratum_anchor(claim)}">erratum</a>'


def setup(app: Sphinx) -> dict[str, Any]:
    # Before Sphinx lists the headings of the page by their names.
    app.connect("doctree-read", write_verdicts, priority=100)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
