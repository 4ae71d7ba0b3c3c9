"""Formulas in the text: a sign that touches one stays on its line, a title says it in words.

Pairs of numbers, and a number with its sign of comparison, stay on one line too.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

BEFORE = re.compile(r"[(\[“‘]+$")
AFTER = re.compile(r"^(?:[,.;:!?)\]”’]|-\w+)+")
# What a line does not end behind: in "(3, 1)", "< 1%", "head 2" and "of 200".
TIED = re.compile(
    r"(\(\d\d?,(?= \d+\))|[<>≤≥≈]"
    r"|\b(?:[Hh]eads?|[Ll]ab|[Ll]ayer|[Cc]hapter|[Ee]xercise|[Ss]ection|of)) (?=\d)"
)

LONG = 30  # characters of a formula that may be wider than a phone

# What names something by its words: a title, a link.
NAMES = re.compile(r"<(h[1-6]|a)\b[^>]*>.*?</\1>", re.DOTALL)
MATHML = re.compile(
    r'(<span class="katex-mathml">)<math\b(.*?<annotation encoding="application/x-tex">(.*?)'
    r"</annotation></semantics></math>)",
    re.DOTALL,
)
NO_LETTERS = re.compile(r"\\[A-Za-z]+|[\\_{}^,]")  # commands and marks of TeX


def told_in_words(page: str) -> str:
    """Let the names of titles and links have their formulas, which browsers leave out, as words.

    The formulas stay, unheard, for the editions.

    >>> tex = '<annotation encoding="application/x-tex">d_k</annotation></semantics>'
    >>> told = told_in_words(f'<h2><span class="katex-mathml"><math>{tex}</math></span></h2>')
    >>> told.replace(tex, "...")
    '<h2><span class="katex-mathml">d k<math aria-hidden="true">...</math></span></h2>'
    """

    def words(match: re.Match[str]) -> str:
        start, formula, tex = match.groups()
        tex = tex.replace("^T", " transposed").replace("^2", " squared")
        told = " ".join(NO_LETTERS.sub(" ", tex).split())
        return f'{start}{told}<math aria-hidden="true"{formula}'

    return NAMES.sub(lambda name: MATHML.sub(words, name[0]), page)


def keep_together(app: Sphinx, doctree: nodes.document) -> None:
    """Bind a formula to the signs that touch it: it is a box, beside which browsers break lines."""
    for formula in list(doctree.findall(nodes.math)):
        before, after = take(formula, -1, BEFORE), take(formula, 1, AFTER)
        if before or after:
            bound = nodes.inline(classes=["touched"])
            formula.replace_self(bound)
            bound += [*before, formula, *after]
            if len(NO_LETTERS.sub("", formula.astext())) > LONG:
                bound["classes"] += ["long"]


def tie(app: Sphinx, doctree: nodes.document) -> None:
    for text in list(doctree.findall(nodes.Text)):
        line = text.parent
        if (
            line
            and TIED.search(text)
            and not isinstance(line, nodes.literal | nodes.FixedTextElement)
        ):
            line.replace(text, nodes.Text(TIED.sub("\\1\N{NO-BREAK SPACE}", text)))


def take(formula: nodes.math, step: int, signs: re.Pattern[str]) -> list[nodes.Text]:
    """Cut off the signs at which the text beside a formula touches it."""
    line = formula.parent
    at = line.index(formula) + step
    text = line[at] if 0 <= at < len(line) else None
    if not isinstance(text, nodes.Text) or not (match := signs.search(text)):
        return []
    line[at] = nodes.Text(text[: match.start()] + text[match.end() :])
    return [nodes.Text(match[0])]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", keep_together, priority=600)  # in captions of drawings too
    app.connect("doctree-read", tie, priority=600)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
