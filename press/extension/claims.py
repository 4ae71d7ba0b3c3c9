"""Claims on the page: an address that stays, and a link to the erratum."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from labkit import ledger
from labkit.ledger import Record, Verdict
from press.extension import report
from press.extension.errata import LISTED, erratum_anchor
from press.extension.symbols import typeset

ERRATA = "book/errata"
AUDITS = "audits/"
NUMBER = re.compile(r"(\d(?:[\d.,]*\d)?|true|false)")
KINDS = {kind.MIME: kind for kind in (Verdict, Record)}


class VerdictRenderer:
    """Leave a place for a verdict, under its claim's name; the page it is on writes it."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [
        ("*", mime, 1) for mime in KINDS
    ]

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        if data.mime_type not in KINDS or inline:
            return None
        key = f"{data.content['document']}/{data.content['id']}"
        classes = ["output", "text_html"]
        return [nodes.raw(format="html", classes=classes, claim=key, kind=KINDS[data.mime_type])]


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
            node.append(nodes.Text(as_html(verdict, rows, laid_open=laid_open)))
    if docname == ERRATA:
        name_errata(doctree)


def name_errata(doctree: nodes.document) -> None:
    """Let the heading of an erratum link to itself by its claim's name, not by its words."""
    for anchor in map(erratum_anchor, ledger.all_claims()):
        if anchor in doctree.ids:
            # An element's own link gives the first of its names.
            doctree.ids[anchor]["ids"].sort(key=lambda name: name != anchor)


def linked(verdict: Verdict, address: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Write the rows of a verdict, with links to itself, to where it is compared, to its erratum.

    Args:
        address: gives for a page's name the way to it.
    """
    claim, rows = verdict.claim, dict(verdict.rows())
    beside = {"document": rows.get("computed"), "computed": rows.get("document")}
    for label, text in rows.items():
        its = beside.get(label)
        if label == "computed" and text == its:
            continue
        told = differing(text, its or text)
        match label:
            case "document" if text == its:
                label = "document, computed"
            case "claim":
                told = f'<a href="#{verdict.anchor}">{told}</a>'
            case "compared in":
                told = f'<a href="{address(text)}#{claim.anchor}">{told}</a>'
        yield label, told
    if claim.verdict in LISTED:
        yield "at length", f'<a href="{address(ERRATA)}#{erratum_anchor(claim)}">erratum</a>'


def differing(text: str, other: str) -> str:
    """Write a text whose numbers another text has, too, with the digits lit that differ.

    >>> differing("loss 0.231 of 3", "loss 0.229 of 3")
    'loss 0.2<mark>31</mark> of 3'
    """
    pieces, others = NUMBER.split(text), NUMBER.split(other)
    if len(pieces) != len(others):
        lists = not re.search("[a-z]", text + other)
        return f"<mark>{escape(text)}</mark>" if lists else escape(text)
    written = []
    for piece, its in zip(pieces, others, strict=True):
        if piece == its or not NUMBER.fullmatch(piece):
            written.append(escape(piece))
            continue
        apart = [i for i, (a, b) in enumerate(zip(piece, its, strict=False)) if a != b]
        alike = apart[0] if apart and len(piece) == len(its) and piece[0].isdigit() else 0
        written.append(f"{piece[:alike]}<mark>{piece[alike:]}</mark>")
    return "".join(written)


def as_html(verdict: Verdict, rows: Iterable[tuple[str, str]], *, laid_open: bool) -> str:
    """Write a verdict over rows of a label and HTML: laid open, or folded and with its document.

    Folded it stands in a chapter, where other documents are told of too.
    """
    claim = verdict.claim
    document = "" if laid_open else f"<code>{claim.document}</code> · "
    body = "".join(f"<dt>{label}</dt><dd>{typeset(told)}</dd>" for label, told in rows)
    state = " open" if laid_open else ""
    kind = str(claim.verdict).replace(" ", "-")
    says = typeset(escape(claim.says))
    grounds = f" {claim.grounds}" if claim.verdict == "holds" and claim.grounds else ""
    return (
        f'<details class="verdict verdict-{kind}" id="{verdict.anchor}"{state}>'
        f"<summary>{document}<b>{claim.verdict}</b>{grounds} · {says}</summary>"
        f"<dl>{body}</dl></details>"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    # Before Sphinx lists the headings of the page by their names.
    app.connect("doctree-read", write_verdicts, priority=100)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
