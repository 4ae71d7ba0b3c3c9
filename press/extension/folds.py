"""Folds that are called alike on a page: to who listens, each says what it belongs to."""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from press.texts import numberless, text_of

PARTS = re.compile(
    r'<section(?: class="[^"]*")? id="([^"]+)"|</section>|<summary>([^<]+)</summary>'
    r'|(?<=(?:collapsed|.expanded) admonition-title">)([^<]+)(?=</p>)'
)
EXERCISES = "exercises"


def name_folds(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Name the folds of a page, such as an answer, after their exercise or section."""
    if doctree is None or "body" not in context:
        return
    titles = {
        name: numberless(text_of(section[0]))
        for section in doctree.findall(nodes.section)
        for name in section["ids"]
    }
    context["body"] = named(context["body"], titles)


def named(body: str, titles: dict[str, str]) -> str:
    """Say, for the ear alone, where folded code is, and of what other folds called alike are.

    >>> fold = "<summary>Answer</summary>"
    >>> named(f'<section id="exercises">{fold}{fold}</section>', {})[24:]
    '<summary>Answer<span class="front-told"> to exercise 1</span></summary>\
<summary>Answer<span class="front-told"> to exercise 2</span></summary></section>'
    """
    alike = Counter(match[2] for match in PARTS.finditer(body))
    within, counts = list[str](), Counter[tuple[str, str]]()

    def labelled(match: re.Match[str]) -> str:
        section, words, code = match.groups()
        if section:
            within.append(section)
        elif code:
            at = within[-1] if within else ""
            counts[at, code] += code.startswith("Show")
            more = f", {counts[at, code]}" if counts[at, code] > 1 else ""
            return f'{code}<span class="front-told">: {escape(titles.get(at, at))}{more}</span>'
        elif not words:
            del within[-1:]
        elif alike[words] > 1 and within:
            at = within[-1]
            counts[at, words] += 1
            count = counts[at, words]
            if at == EXERCISES:
                more = f" to exercise {count}"
            else:
                more = f": {titles.get(at, at)}{f', {count}' if count > 1 else ''}"
            # Of a label, browsers would tell the fold's words again, as its description.
            return f'<summary>{words}<span class="front-told">{escape(more)}</span></summary>'
        return match[0]

    return PARTS.sub(labelled, body)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", name_folds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
