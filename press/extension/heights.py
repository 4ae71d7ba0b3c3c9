"""Sections that a phone has not laid out yet have about their height: its scroll bar holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SECTION = re.compile(r"<section\b|</section>")
TAG, SPACE = re.compile(r"<[^>]+>"), re.compile(r"\s+")
# What is not read as text, and how it is counted: what a phone shows of it has a height of its own.
FOLD = re.compile(r"<details(?: class=\"(verdict))?(?:(?!<details).)*?</details>", re.DOTALL)
LIVE = re.compile(r'<figure class="live-figure" data.*?</figure>', re.DOTALL)
CHART = re.compile(r'<figure class="plotly-figure.*?</figure>', re.DOTALL)
FORMULA = re.compile(r'<span class="katex-mathml">.*?</math></span>', re.DOTALL)
CODE = re.compile(
    r'<code(?: class="([^"]*)")? style="[^"]*--on-a-phone: (\d+)".*?</code>', re.DOTALL
)
DRAWING = re.compile(
    r'class="drawing[^>]*><svg[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)".*?</svg>', re.DOTALL
)
CUT = 16  # lines that a phone shows of a block that book.css cuts, with the button for the rest
# Pixels, fitted to all sections of the book at 390 wide: nine of ten are a sixth off at most.
START, SIGN, LINE, DRAWN, PLAYED, CHARTED, FOLDED, VERDICT = 18, 0.75, 17.4, 180, 960, 560, 56, 83
PARTS = {"<li>": 16, "<dt": 80, "<h3": 59, "<tr": 9, "<pre>": 24, "katex-display": 75}


def give(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Tell the style sheet about how tall each section of a page is on a phone."""
    if "body" not in context:
        return
    body = context["body"]
    for start, end in reversed([*sections(body)]):
        opened = body.index(">", start)
        about = f' style="--about: {tall(body[start:end])}px"'
        body = body[:opened] + about + body[opened:]
    context["body"] = body


def sections(body: str) -> Iterator[tuple[int, int]]:
    """Find a page's sections, without their parts.

    >>> [*sections("<section><section id='a'><section></section></section></section>")]
    [(9, 54)]
    """
    depth = start = 0
    for tag in SECTION.finditer(body):
        depth += -1 if tag[0] == "</section>" else 1
        if tag[0] == "<section" and depth == 2:
            start = tag.start()
        elif tag[0] == "</section>" and depth == 1:
            yield start, tag.end()


def tall(html: str) -> int:
    """Guess a section's height from what is in it.

    >>> tall("<p>" + 100 * "word " + "</p>"), tall("<details><p>Folded</p></details>")
    (393, 74)
    """
    html, charts = CHART.subn("", html)
    html, played = LIVE.subn("", html)
    height = START + CHARTED * charts + PLAYED * played
    while folds := FOLD.findall(html):
        html = FOLD.sub("", html)
        height += sum(VERDICT if kind else FOLDED for kind in folds)
    height += sum(each * html.count(part) for part, each in PARTS.items())
    lines = sum(CUT if "tall" in names else int(lines) for names, lines in CODE.findall(html))
    drawn = sum(float(high) / float(wide) for wide, high in DRAWING.findall(html))
    for unread in (FORMULA, DRAWING, CODE, TAG):
        html = unread.sub("", html)
    signs = len(SPACE.sub(" ", unescape(html)))
    return round(height + LINE * lines + DRAWN * drawn + SIGN * signs)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", give, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
