"""The errata page, made from the ledger when the book is built."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from labkit import ledger
from labkit.ledger import AboutPaper, Compared, Draw, Figures
from labkit.ledger.nested import agrees, shape, show
from press import ROOT
from press.extension import report
from press.notebooks import read, title
from press.project import Address

# Letters with what stands below and above them, a number before them. "a" and "I" are words.
SYMBOL = r"(?![aI]\b)[A-Za-z](?:_(?:model|ff|[A-Za-z0-9]))?(?:\^[0-9A-Z])?"
FORMULA = re.compile(rf"(?<![\w./$])(?:\d+ )?{SYMBOL}(?: {SYMBOL})*(?![\w(/^]|\.\w)")
OF_THE_AUTHOR = ("wrong", "conflict", "draw", "rounding")
SHOWN = (*OF_THE_AUTHOR, ledger.OF_THE_COPY)  # told at length
LISTED = (*SHOWN, ledger.IN_ONE_READING, "untested")  # told on the page of errata at all
FIGURES = ("document", "holds if", "computed")  # rows that hold figures, and no text


class Errata(SphinxDirective):
    """List the claims that did not come out as stated, by document."""

    def run(self) -> list[nodes.Node]:
        for path in ledger.DOCUMENTS.glob("*.yml"):
            self.env.note_dependency(str(path))
        for claim in ledger.all_claims():
            if isinstance(claim, Compared):
                self.env.note_dependency(str(ROOT / f"{claim.notebook}.ipynb"))
        documents = [ledger.open_document(key) for key in ledger.document_keys()]
        sections = [section(document, self.config.lives_at) for document in documents]
        parts = [summary(documents), *sections, untested(documents)]
        text = "\n".join(parts)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def summary(documents: list[ledger.Document]) -> str:
    """Count the claims of each verdict by document, as a table that fits a phone."""
    counts = [Counter(claim.verdict for claim in document) for document in documents]
    rows = [
        ["verdict", *(f"`{document.key}`" for document in documents)],
        ["---", *("--:" for _ in documents)],
        *([verdict, *(str(count[verdict]) for count in counts)] for verdict in ledger.VERDICTS),
        ["all", *(str(count.total()) for count in counts)],
    ]
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(["## All claims by verdict", "", *lines, ""])


def section(document: ledger.Document, address: Address) -> str:
    """Write what to correct in one document, what to reword, and what its copy got wrong."""

    def entries(verdicts: tuple[str, ...]) -> list[str]:
        return [entry(claim, address) for claim in document if claim.verdict in verdicts]

    correct = entries(OF_THE_AUTHOR) or ["Nothing that was judged is wrong.\n"]
    parts = [f"## {document.title}", "", "### What to correct", "", *correct, *reword(document)]
    if faults := entries((ledger.OF_THE_COPY,)):
        parts += ["### Faults of the copy", "", *faults]
    return "\n".join(parts)


def reword(document: ledger.Document) -> list[str]:
    """List what holds in one reading only, with the reading that fails."""
    claims = [claim for claim in document if claim.verdict == ledger.IN_ONE_READING]
    if not claims:
        return []
    return ["### What to reword", "", *(in_a_line(claim, claim.fails) for claim in claims), ""]


def in_a_line(claim: ledger.Claim, told: str | None) -> str:
    """Write a claim, its place and one remark as an item of a list, under its own address."""
    says, told = (set_formulas(one_line(text or "")) for text in (claim.says, told))
    return f"- {says} ({claim.where}). *{told}* [`{claim.key}`]{{#{erratum_anchor(claim)}}}"


def untested(documents: list[ledger.Document]) -> str:
    """List what no computation decides, with the reasons."""
    lines = ["## What was not tested", ""]
    for document in documents:
        claims = [claim for claim in document if claim.verdict == "untested"]
        lines += [f"### In {document.title}", ""] if claims else []
        lines += [in_a_line(claim, claim.why) for claim in claims]
        lines.append("")
    return "\n".join(lines)


@cache
def title_of(notebook: str) -> str:
    return title(ROOT / f"{notebook}.ipynb")


def erratum_anchor(claim: ledger.Claim) -> str:
    """Name the element of the errata page that tells of a claim, if it is one of LISTED."""
    return f"{claim.anchor}-erratum"


def one_line(text: str) -> str:
    """Join a folded text."""
    return " ".join(text.split())


def verbatim(figure: str) -> str:
    """Keep Markdown from reading a figure: one keyed answer is the opening of a code block."""
    return figure.replace("`", r"\`")


def set_formulas(text: str) -> str:
    """Set what the ledger writes as plain text, such as d_model^2, as a formula."""
    parts = text.split("`")  # what stands between two of them is code
    parts[::2] = [FORMULA.sub(as_tex, part) for part in parts[::2]]
    return "`".join(parts)


def as_tex(found: re.Match[str]) -> str:
    formula = found[0]
    if not set(formula) & set("_^"):
        return formula
    return (
        "$"
        + re.sub(r"_(model|ff)", r"_{\\text{\1}}", formula)
        .replace(" x ", r"\times ")
        .replace(" ", r"\,")
        + "$"
    )


def are_matrices(stated: Any, computed: Any) -> bool:
    """Say whether two values are matrices of numbers that can be laid beside each other."""
    return (
        isinstance(stated, list)
        and all(isinstance(row, list) for row in stated)
        and all(isinstance(number, (int, float)) for row in stated for number in row)
        and shape(stated) == shape(computed)
    )


def matrices(claim: Figures | Draw) -> str:
    """Write two matrices row by row, and mark the rows that differ."""
    lines = ["| row | document | computed |", "|--:|:--|:--|"]
    for i, (stated, computed) in enumerate(zip(claim.value, claim.computed, strict=True), 1):
        cells = [str(i), *(show(row, claim.places) for row in (stated, computed))]
        if not agrees(stated, computed, claim.places):
            cells = [f"**{cell}**" for cell in (f"≠ {i}", *cells[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def place(claim: Compared) -> str:
    """Name the page that compares a claim, and its section, as Markdown."""
    path = ROOT / f"{claim.notebook}.ipynb"
    headings = []
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            headings += re.findall(r"^#+ (.+)", cell.source, re.MULTILINE)
        shown = [output.get("data", {}).get(ledger.MIME, {}) for output in cell.get("outputs", [])]
        if (claim.document, claim.id) in [(one.get("document"), one.get("id")) for one in shown]:
            break
    return f"{title(path)} · {headings[-1]}"


def entry(claim: ledger.Claim, address: Address) -> str:
    """Write one erratum: what it says, what came out, why, and where to see it."""
    told, table = claim.told(), []
    if isinstance(claim, Figures | Draw) and are_matrices(claim.value, claim.computed):
        table = [matrices(claim)]
        told = [(label, text) for label, text in told if label not in FIGURES]
    rows = [("Where", claim.where)]
    rows += [
        (label.capitalize(), verbatim(text) if label in FIGURES else text) for label, text in told
    ]
    rows += [("But", claim.fails or ""), ("Why", claim.why or "")]
    if isinstance(claim, AboutPaper):
        rows.append(("Source", claim.source))
    rows.append(("Claim", f"`{claim.key}`"))
    rows = [(label, set_formulas(one_line(text))) for label, text in rows if text]
    if isinstance(claim, Compared):  # its headings are Markdown already
        cell = f"../{claim.notebook}.html#{claim.anchor}"
        rows.insert(-1, ("Shown in", f'<a href="{cell}">{place(claim)}</a>'))
    lines = [f"{label}\n: {text}\n" for label, text in rows]
    if reported := report.of_claim(address, claim):
        lines.append(f"Mistaken?\n: {reported}\n")
    title = f"#### {str(claim.verdict).capitalize()}: {set_formulas(one_line(claim.says))}"
    body = [":::{container} erratum", *table, *lines, ":::", ""]
    return "\n".join([f"({erratum_anchor(claim)})=", title, "", *body])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("errata", Errata)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
