"""Claims on the page: an address that stays, and a link to the erratum."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from html import escape
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx

from labkit import ledger
from labkit.ledger import (
    IN_ONE_READING,
    OF_THE_COPY,
    Bound,
    Claim,
    Draw,
    Figures,
    Record,
    Verdict,
)
from labkit.ledger.nested import flat, show
from press import ROOT
from press.extension import report
from press.extension.cells import plain
from press.extension.symbols import typeset
from press.notebooks import title

ERRATA = "book/errata"
AUDITS = "audits/"
# What is wrong first; of an audit's rows those stand open that a reader comes for.
FAILING = ("wrong", "conflict", OF_THE_COPY, "rounding", "draw")
BY_WEIGHT = (*FAILING, IN_ONE_READING, "untested", "holds")
LISTED_OPEN = FAILING[:3]
LISTED = (*FAILING, IN_ONE_READING, "untested")  # told on the page of errata
SEEDED, BELOW = "seeded run", "draws below"
FIGURES = ("document", "holds if", "computed", "document, computed", SEEDED, BELOW, "control")
LAST = ("where", "compared in", "at length", "claim", "mistaken?")
NUMBER = re.compile(r"(\d(?:[\d.,]*\d)?|true|false)")
ROW = re.compile(r"\[[^\[\]]+\]")  # of a matrix, or a list
MATRIX = re.compile(r"\[(\[[^\[\],]+\](?: \[[^\[\],]+\])+)\]")  # a list of shapes has commas
# A claim's words may end with what is counted or measured, and with sizes, which say nothing of it.
OF_WHAT = re.compile(r"[^()]*\((?!\w+ \d)([A-Za-z]{3,}\b(?:[^()]|\([^()]*\))*)\)")
MANY = 6  # numbers, of which a part is lit and never most
LEAD = 60  # characters of what an audit's list item begins with
NARROW = 36  # characters of one that phones show in a line
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
    audited = docname.startswith(AUDITS)
    for node in doctree.findall(nodes.raw):
        if key := node.get("claim"):
            verdict = node["kind"](ledger.find_claim(key))
            rows = list(linked(verdict, lambda to: app.builder.get_relative_uri(docname, to)))
            if reported := report.of_claim(app.config.lives_at, verdict.claim):
                rows.append(("mistaken?", reported))
            if audited:
                rows = in_order(rows)
            node.append(nodes.Text(as_html(verdict, rows, audited=audited)))
    if audited:
        write_tally(doctree)
        mark_leads(doctree)


def in_order(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what the line above the rows says, and put addresses last."""
    told = [row for row in rows if row[0] != "says"]
    return sorted(told, key=lambda row: row[0] in LAST and 1 + LAST.index(row[0]))


@cache
def title_of(notebook: str) -> str:
    """Give a notebook's title, its symbols as the ledger writes them.

    >>> title_of("chapters/02_why_sqrt_d_k")
    '2. Why divide by the square root of d_k'
    """
    return title(ROOT / f"{notebook}.ipynb").replace("$", "")


def erratum_anchor(claim: Claim) -> str:
    """Name the element of the errata page that tells of a claim, if it is one of LISTED."""
    return f"{claim.anchor}-erratum"


def write_tally(doctree: nodes.document) -> None:
    """Write an audit's tally under its first words, and in place of a printed one."""
    shown = [
        node["kind"](ledger.find_claim(node["claim"]))
        for node in doctree.findall(nodes.raw)
        if node.get("claim")
    ]
    whole = ""
    document = ledger.open_document(shown[0].claim.document)
    for printed in list(doctree.findall(nodes.literal_block)):
        if printed.astext().strip() == document.tally():
            if len(shown) < len(list(document)):
                whole = counted(document, "in the whole document")
            printed.parent.remove(printed)
    top = next(doctree.findall(nodes.section))
    words = [at for at, part in enumerate(top) if isinstance(part, nodes.paragraph)]
    told = tally({verdict.claim.key: verdict for verdict in shown}.values(), whole)
    top.insert(words[0] + 1, nodes.raw(text=told, format="html"))


def mark_leads(doctree: nodes.document) -> None:
    """Set off, in an audit's lists of what to change, the words of the document or their place.

    They stand before the first colon: what comes after it is ours.
    """
    for section in doctree.findall(nodes.section):
        if not section[0].astext().startswith("What to"):
            continue
        for item in section.findall(nodes.list_item):
            words = item[0]
            texts = [part.astext() if isinstance(part, nodes.Text) else "" for part in words]
            at = next((i for i, text in enumerate(texts) if ": " in text), None)
            if at is None:
                continue
            ends = texts[at].index(": ") + 1
            lead = [*words[:at], nodes.Text(texts[at][:ends])]
            if sum(len(part.astext()) for part in lead) <= LEAD:
                rest = nodes.Text(texts[at][ends:])
                words[: at + 1] = [nodes.strong("", "", *lead), rest]


def tally(shown: Collection[Verdict], whole: str = "") -> str:
    """Write how many claims of a page have which verdict, with a list of links under each.

    Args:
        shown: the verdicts of a page.
        whole: the count of the whole document, as HTML.
    """
    kinds = []
    for kind in BY_WEIGHT:
        rows = [verdict for verdict in shown if verdict.claim.verdict == kind]
        items = "".join(
            f'<li><a href="#{row.anchor}">{typeset(escape(row.claim.says))}</a></li>'
            for row in rows
        )
        style = f'class="tally-kind {named(kind)}"{" open" if kind in LISTED_OPEN else ""}'
        count = f"<summary><b>{len(rows)}</b> {kind}</summary>"
        if rows:
            kinds.append(f"<details {style}>{count}<ol>{items}</ol></details>")
    claims = [verdict.claim for verdict in shown]
    return (
        f'<nav class="tally" aria-label="Verdicts of this page">{counted(claims, "on this page")}'
        f"{''.join(kinds)}{whole}</nav>"
    )


def counted(claims: Iterable[Claim], where: str) -> str:
    """Write how many claims there are, and a bar of their verdicts."""
    count = Counter(claim.verdict for claim in claims)
    told = [(kind, count[kind]) for kind in BY_WEIGHT if count[kind]]
    parts = "".join(
        f'<i class="{named(kind)}" style="flex-grow:{many}">{many}</i>' for kind, many in told
    )
    words = ", ".join(f"{many} {kind}" for kind, many in told)
    return (
        f"<p><b>{count.total()} claims</b> {where}<span>: {words}</span></p>"
        f'<div class="tally-bar" aria-hidden="true">{parts}</div>'
    )


def named(kind: str | None) -> str:
    """Name the style of a verdict."""
    return f"verdict-{str(kind).replace(' ', '-')}"


def linked(verdict: Verdict, address: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Write the rows of a verdict, with links to itself, to where it is compared, to its erratum.

    Args:
        address: gives for a page's name the way to it.
    """
    claim, rows = verdict.claim, dict(rows_of(verdict))
    came = SEEDED if SEEDED in rows else "computed"
    beside = {"document": rows.get(came), came: rows.get("document")}
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
            case "against":
                others = {key: erratum_anchor(ledger.find_claim(key)) for key in text.split(", ")}
                links = (
                    f'<a href="{address(ERRATA)}#{at}">{key}</a>' for key, at in others.items()
                )
                told = ", ".join(links)
            case "compared in":
                told = f'<a href="{address(text)}#{claim.anchor}">{title_of(text)}</a>'
        yield label, told
    if claim.verdict in LISTED and verdict.anchor != erratum_anchor(claim):
        whose = f'erratum<span class="front-told"> of {claim.key}</span>'
        yield "at length", f'<a href="{address(ERRATA)}#{erratum_anchor(claim)}">{whose}</a>'


def rows_of(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """List the rows of a verdict: of figures first what they count, of a draw its run by itself."""
    claim = verdict.claim
    for label, text in verdict.rows():
        if label in ("document", "holds if") and (what := OF_WHAT.fullmatch(claim.says.strip())):
            yield "quantity", " ".join(what[1].split())
        if isinstance(claim, Draw) and label == "computed":
            yield SEEDED, show(claim.computed, claim.places) or "none, for no seed is named"
            share = show(claim.percentile, 0)
            yield BELOW, f"{share} % of {claim.draws:,} draws"
        else:
            yield label, text


def differing(text: str, other: str) -> str:
    """Write a text whose numbers another text has, too, with the digits lit that differ.

    The light is for the eye alone: a `mark` would tear the number for who hears it.

    >>> differing("loss 0.231 of 3", "loss 0.229 of 3")
    'loss 0.2<u>31</u> of 3'
    """
    pieces, others = NUMBER.split(text), NUMBER.split(other)
    if len(pieces) != len(others):
        lists = not re.search("[a-z]", text + other)
        return f"<u>{escape(text)}</u>" if lists else escape(text)
    numbers = [(a, b) for a, b in zip(pieces, others, strict=True) if NUMBER.fullmatch(a)]
    if len(numbers) >= MANY and 2 * sum(a != b for a, b in numbers) > len(numbers):
        return escape(text)  # where most is lit, nothing is
    written = []
    for piece, its in zip(pieces, others, strict=True):
        if piece == its or not NUMBER.fullmatch(piece):
            written.append(escape(piece))
            continue
        apart = [i for i, (a, b) in enumerate(zip(piece, its, strict=False)) if a != b]
        alike = apart[0] if apart and len(piece) == len(its) and piece[0].isdigit() else 0
        written.append(f"{piece[:alike]}<u>{piece[alike:]}</u>")
    return "".join(written)


def outcome(claim: Claim) -> str:
    """Write the figures of a claim in a few words: one where the document's is what came out.

    A line has none whose figures are long, only say that it is true, or are of what it does not
    name.
    """
    if not isinstance(claim, Figures | Bound) or not are_numbers(claim.computed):
        return ""
    if claim.test and not claim.says.endswith(")"):
        return ""
    stated, came = claim.stated, claim.came_out
    if isinstance(claim, Bound):
        bar = between(claim)
        told = (
            f"{came}\N{NO-BREAK SPACE}{bar}"
            if claim.verdict != "wrong"
            else f"computed {came}, holds if {bar}"
        )
    elif stated == came:
        told = came
    else:
        lit = (differing(one, other) for one, other in ((stated, came), (came, stated)))
        told = "document {}, computed {}".format(*lit)
    is_short = len(came) <= NARROW
    return f"<span class=came>: <strong>{ROW.sub(whole_row, told)}</strong></span>" * is_short


def are_numbers(value: Any) -> bool:
    return {type(one) for one in flat(value)} <= {int, float}


def between(claim: Bound) -> str:
    """Write the bar of a claim, such as "≥ 0.90" or "between 0.95 and 1.05"."""
    least, most = (show(side, claim.places) for side in (claim.at_least, claim.at_most))
    if least and most:
        return f"between {least} and\N{NO-BREAK SPACE}{most}"
    return f"≥\N{NO-BREAK SPACE}{least}" if least else f"≤\N{NO-BREAK SPACE}{most}"


def in_rows(html: str, label: str) -> str:
    """Set matrices as such, give each of several shapes its line, and keep short lists whole.

    >>> in_rows("[[1 <u>0</u>] [0 1]]", "computed")[:70]
    '<table class=matrix aria-label="computed"><tr><td>1</td><td><u>0</u></'
    >>> in_rows("[[4, 2], [4, 3]]", "computed")
    '<span class="joined">[4, 2]</span><br><span class="joined">[4, 3]</span>'
    """
    if "[[" in html:
        html = MATRIX.sub(lambda found: matrix(found[1], label), html)
        html = re.sub(r"\[(\[.+\])\]", lambda found: found[1].replace("], [", "]<br>["), html)
    return ROW.sub(whole_row, html)


def matrix(html: str, label: str) -> str:
    rows = (row[1:-1].split(" ") for row in ROW.findall(html))
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<table class=matrix aria-label="{label}">{lines}</table>'


def whole_row(match: re.Match[str]) -> str:
    is_short = len(plain(match[0])) <= NARROW
    return f'<span class="joined">{match[0]}</span>' if is_short else match[0]


def as_html(
    verdict: Verdict, rows: Iterable[tuple[str, str]], *, audited: bool, came: str | None = None
) -> str:
    """Write a verdict over rows of a label and HTML, folded to one line.

    In an audit the line ends with the figures, and is laid open where the claim fails. In a
    chapter it names its document, because other documents are told of too. Among errata it ends
    with what ``came``, and stays folded.
    """
    claim = verdict.claim
    says = typeset(escape(claim.says))
    document = "" if audited else f"<code>{claim.document}</code> · "
    body = "".join(
        f"<dt>{label}</dt><dd class=figures>{in_rows(typeset(told), label)}</dd>"
        if label in FIGURES
        else f"<dt>{label}</dt><dd>{typeset(told)}</dd>"
        for label, told in rows
    )
    state = " open" if audited and came is None and claim.verdict in FAILING else ""
    grounds = f" {claim.grounds}" if claim.verdict == "holds" and claim.grounds else ""
    if came is None:
        came = outcome(claim) if audited else ""
    return (
        f'<details class="verdict {named(claim.verdict)}" id="{verdict.anchor}"{state}>'
        f"<summary>{document}<b>{claim.verdict}</b>{grounds} · {says}{came}</summary>"
        f"<dl>{body}</dl></details>"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    # Before Sphinx lists the headings of the page by their names.
    app.connect("doctree-read", write_verdicts, priority=100)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
