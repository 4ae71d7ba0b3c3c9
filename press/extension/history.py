"""How the verdicts changed: each change tells its claim in words, its verdicts in colour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from labkit import ledger
from press.extension.claims import ERRATA, LISTED, erratum_anchor, named
from press.extension.symbols import typeset

PAGE = "book/verdict-history"
# The longest first: "holds" is a part of "holds in one reading".
VERDICT = re.compile(f"({'|'.join(sorted(ledger.VERDICTS, key=len, reverse=True))})")
CHANGE = re.compile(rf"\((?:new, |now )?{VERDICT.pattern}[^)]*\)")


def tell(app: Sphinx, doctree: nodes.document) -> None:
    """Put what a claim says in place of its name, and colour what it was and what it is."""
    if app.env.docname != PAGE:
        return
    known = {claim.key: claim for claim in ledger.all_claims()}
    for item in list(doctree.findall(nodes.list_item)):
        around = item.parent.parent
        if not isinstance(around, nodes.list_item):
            continue
        document = next(iter(around.findall(nodes.literal))).astext()
        words = next(iter(item.findall(nodes.paragraph)))
        join_texts(words)
        is_reason = False
        for part in list(words.children):
            if isinstance(part, nodes.literal) and "/" in part.astext():
                key = f"{document}/{part.astext()}"
                words.replace(part, claim_in_words(app, key, known.get(key), brief=is_reason))
            elif isinstance(part, nodes.Text) and not is_reason:
                words.replace(part, list(coloured(part.astext())))
                is_reason = bool(re.search(r"\):|\)\.", part.astext()))


def join_texts(words: nodes.Element) -> None:
    """Make one text of what line breaks have cut."""
    joined: list[nodes.Node] = []
    for part in words.children:
        if joined and isinstance(part, nodes.Text) and isinstance(joined[-1], nodes.Text):
            part = nodes.Text(f"{joined.pop().astext()}{part.astext()}".replace("\n", " "))
        joined.append(part)
    words.children = []
    words.extend(joined)


def claim_in_words(
    app: Sphinx, key: str, claim: ledger.Claim | None, *, brief: bool
) -> nodes.Element:
    """Write what a claim says, as a link to it; of one that is gone, the words of its name."""
    name = key.partition("/")[2]
    if claim is None:
        said = name.rpartition("/")[2].replace("-", " ")
        return nodes.inline("", said, classes=["claim-gone"])
    address = None
    if claim.verdict in LISTED:
        address = f"{app.builder.get_relative_uri(PAGE, ERRATA)}#{erratum_anchor(claim)}"
    elif isinstance(claim, ledger.Compared):
        address = f"{app.builder.get_relative_uri(PAGE, claim.notebook)}#{claim.anchor}"
    told: nodes.Element = nodes.literal("", name)
    if not brief:
        told = nodes.raw("", typeset(escape(" ".join(claim.says.split()))), format="html")
    if address is None:
        return told
    return nodes.reference("", "", told, internal=True, refuri=address, reftitle=key)


def coloured(text: str) -> Iterator[nodes.Node]:
    """Write a text whose brackets say what a verdict was and is."""
    at = 0
    for change in CHANGE.finditer(text):
        yield nodes.Text(text[at : change.start()])
        for piece in VERDICT.split(change[0].replace(", now ", " \u2192 ")):
            if VERDICT.fullmatch(piece):
                yield nodes.inline("", piece, classes=["verdict-word", named(piece)])
            else:
                yield nodes.Text(piece)
        at = change.end()
    yield nodes.Text(text[at:])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", tell)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
