"""The errata page, made from the ledger when the book is built."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from labkit import ledger
from labkit.ledger import OF_THE_COPY, Record
from press.extension import report
from press.extension.claims import (
    BY_WEIGHT,
    as_html,
    erratum_anchor,
    in_order,
    linked,
    named,
    outcome,
)
from press.extension.symbols import typeset
from press.project import Address

OF_THE_AUTHOR = ("wrong", "conflict", "draw", "rounding")
SENTENCE = re.compile(r".+?(?<! al)\.(?= [A-Z]|$)")


@dataclass(frozen=True, repr=False)
class Erratum(Record):
    """A claim as the page of errata tells of it."""

    @property
    def anchor(self) -> str:
        return erratum_anchor(self.claim)


class Errata(SphinxDirective):
    """List the claims that did not come out as stated, by document."""

    def run(self) -> list[nodes.Node]:
        for path in ledger.DOCUMENTS.glob("*.yml"):
            self.env.note_dependency(str(path))
        documents = [ledger.open_document(key) for key in ledger.document_keys()]
        sections = [section(document, self.config.lives_at) for document in documents]
        parts = [summary(documents), *sections, untested(documents, self.config.lives_at)]
        text = "\n".join(parts)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def summary(documents: list[ledger.Document]) -> str:
    """Count the claims of each verdict by document, as a table that fits a phone."""
    counts = [Counter(claim.verdict for claim in document) for document in documents]
    rows = [
        ["verdict", *(f"`{document.key}`" for document in documents)],
        ["---", *("--:" for _ in documents)],
        *([word(kind), *(str(count[kind]) for count in counts)] for kind in BY_WEIGHT),
        ["all", *(str(count.total()) for count in counts)],
    ]
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(["## All claims by verdict", "", *lines, ""])


def word(verdict: str) -> str:
    """Write a verdict's name in its colour."""
    return f'<span class="verdict-word {named(verdict)}">{verdict}</span>'


def section(document: ledger.Document, address: Address) -> str:
    """Write what to correct in one document, what to reword, and what its copy got wrong."""
    told = {
        "What to correct": OF_THE_AUTHOR,
        "What to reword": (ledger.IN_ONE_READING,),
        "Faults of the copy": (OF_THE_COPY,),
    }
    title = document.title.replace(" - ", "\N{NO-BREAK SPACE}- ")  # its hyphen begins no line
    parts = [f"## {title}", ""]
    for heading, verdicts in told.items():
        entries = [entry(claim, address) for claim in document if claim.verdict in verdicts]
        if not entries and verdicts == OF_THE_AUTHOR:
            entries = ["Nothing that was judged is wrong.\n"]
        parts += [f"### {heading}", "", *entries] if entries else []
    return "\n".join(parts)


def untested(documents: list[ledger.Document], address: Address) -> str:
    """List what no computation decides, with the reasons."""
    lines = ["## What was not tested", ""]
    for document in documents:
        claims = [claim for claim in document if claim.verdict == "untested"]
        lines += [f"### In {document.title}", ""] if claims else []
        lines += [entry(claim, address) for claim in claims]
    return "\n".join(lines)


def entry(claim: ledger.Claim, address: Address) -> str:
    """Write one erratum: a line of what is said and what came out, over why and where to see it."""
    erratum = Erratum(claim)
    rows = list(linked(erratum, lambda to: f"../{to}.html"))
    if reported := report.of_claim(address, claim):
        rows.append(("mistaken?", reported))
    why = " ".join((claim.fails or claim.why or "").split())
    reason = SENTENCE.match(why)
    told = f'<span class="came reason">{typeset(escape(reason[0] if reason else why))}</span>'
    came = outcome(claim) if claim.verdict != ledger.IN_ONE_READING else ""
    return f"{as_html(erratum, in_order(rows), audited=True, came=came or told)}\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("errata", Errata)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
