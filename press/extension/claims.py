"""Claims on the page: an address that stays, a link to the erratum, and a name to search for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx
from sphinx.domains import Domain, ObjType

from labkit import ledger
from labkit.ledger import MIME, RECORD_MIME, Record, Verdict
from press.extension import report
from press.extension.errata import SHOWN, erratum_anchor

ERRATA = "book/errata"
AUDITS = "audits/"
FIRST = 0  # Sphinx's search lists objects of this priority before everything else.


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


class LedgerDomain(Domain):
    """What the search and the inventory know of the claims."""

    name = "ledger"
    label = "Ledger"
    # Sphinx declares these as variables of the instance.
    object_types = {"claim": ObjType("claim")}  # noqa: RUF012
    initial_data: dict[str, Any] = {"claims": {}}  # noqa: RUF012

    def note(self, key: str, docname: str, anchor: str) -> None:
        """Remember where a claim stands."""
        self.data["claims"][key, docname] = anchor

    def clear_doc(self, docname: str) -> None:
        claims = self.data["claims"]
        self.data["claims"] = {at: anchor for at, anchor in claims.items() if at[1] != docname}

    def resolve_any_xref(self, *reference: Any) -> list[tuple[str, nodes.Element]]:
        """Find nothing: pages link to claims by their address."""
        return []

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        for (key, docname), anchor in sorted(self.data["claims"].items()):
            yield key, key, "claim", docname, anchor, FIRST


def write_verdicts(app: Sphinx, doctree: nodes.document) -> None:
    """Write the verdicts of a page, and note their claims."""
    docname = app.env.docname
    domain = app.env.get_domain(LedgerDomain.name)
    assert isinstance(domain, LedgerDomain)
    laid_open = docname.startswith(AUDITS)
    for node in doctree.findall(nodes.raw):
        if key := node.get("claim"):
            verdict = node["kind"](ledger.find_claim(key))
            if not isinstance(verdict, Record):
                domain.note(key, docname, verdict.anchor)
            rows = list(linked(verdict, lambda to: app.builder.get_relative_uri(docname, to)))
            if reported := report.of_claim(app.config.lives_at, verdict.claim):
                rows.append(("mistaken?", reported))
            if laid_open:  # the line above them says it
                rows = [row for row in rows if row[0] != "says"]
            written = verdict.as_html(rows, laid_open=laid_open, named=not laid_open)
            node.append(nodes.Text(written))
    if docname == ERRATA:
        note_errata(doctree, domain)


def note_errata(doctree: nodes.document, domain: LedgerDomain) -> None:
    """Note the claims that the errata page tells of."""
    for document in map(ledger.open_document, ledger.document_keys()):
        for claim in document:
            anchor = erratum_anchor(claim)
            if anchor in doctree.ids:
                domain.note(claim.key, ERRATA, anchor)
                # An element's own link gives the first of its names: not the one made of its words.
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
    app.add_domain(LedgerDomain)
    # Before Sphinx lists the headings of the page by their names.
    app.connect("doctree-read", write_verdicts, priority=100)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
