"""Claims on the page: an address that stays, a link to the erratum, and a name to search for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from errata import SHOWN, erratum_anchor
from sphinx.application import Sphinx
from sphinx.domains import Domain, ObjType

from labkit import ledger

ERRATA = "book/errata"
VERDICT = re.compile(r"<dt>claim</dt><dd>([^<]+)</dd>(.*?)</dl>", re.DOTALL)
FIRST = 0  # Sphinx's search lists objects of this priority before everything else.


class LedgerDomain(Domain):
    """What the search and the inventory know of the claims."""

    name = "ledger"
    label = "Ledger"
    object_types: ClassVar[dict[str, ObjType]] = {"claim": ObjType("claim")}
    initial_data: ClassVar[dict[str, Any]] = {"claims": {}}

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


def note_claims(app: Sphinx, doctree: nodes.document) -> None:
    """Note the claims of a page, and make their names links that stay."""
    docname = app.env.docname
    domain = app.env.get_domain(LedgerDomain.name)
    errata = app.builder.get_relative_uri(docname, ERRATA)
    for node in doctree.findall(nodes.raw):
        text = node.astext()
        for claim in map(ledger.find_claim, (found[1] for found in VERDICT.finditer(text))):
            domain.note(claim.key, docname, claim.anchor)
        node.children = [nodes.Text(VERDICT.sub(lambda found: linked(found, errata), text))]
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


def linked(verdict: re.Match[str], errata: str) -> str:
    """Link a verdict's name to itself, and to what the errata tell of it."""
    claim = ledger.find_claim(verdict[1])
    at = f"{errata}#{erratum_anchor(claim)}"
    told = f'<dt>at length</dt><dd><a href="{at}">erratum</a></dd>'
    return (
        f'<dt>claim</dt><dd><a href="#{claim.anchor}">{claim.key}</a></dd>'
        f"{verdict[2]}{told if claim.verdict in SHOWN else ''}</dl>"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_domain(LedgerDomain)
    # Before Sphinx lists the headings of the page by their names.
    app.connect("doctree-read", note_claims, priority=100)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
