"""A content security policy on every page: no other host, and no script but the book's own.

What a notebook puts out is part of the page. If it held a script, or asked another host for
something, the browser would refuse: the policy allows files that lie beside the page, and by their
digests the inline scripts that the theme writes around the article. Inside the article nothing runs
but the line that mounts a live figure.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from sphinx.application import Sphinx
from sphinx.jinja2glue import BuiltinTemplateLoader

from press.extension.formulas import told_in_words
from press.extension.live_figures import MOUNT
from press.extension.theme import decided

# Browsers look for the encoding in the first bytes, and for the policy before the first script.
ENCODING = '<meta charset="utf-8" />'
META = '<meta http-equiv="Content-Security-Policy" content="{}">'


class AroundArticle(HTMLParser):
    """Collect the inline scripts and the handlers that a page has outside of its article."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.handlers: set[str] = set()
        self.in_article = self.in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "article":
            self.in_article = True
        if self.in_article:
            return
        self.handlers |= {code for name, code in attrs if name.startswith("on") and code}
        # With a source it is another file, with a type data.
        self.in_script = tag == "script" and not dict(attrs).keys() & {"src", "type"}

    def handle_endtag(self, tag: str) -> None:
        self.in_article &= tag != "article"
        self.in_script &= tag != "script"

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts.append(data)


def policy(codes: Iterable[str]) -> str:
    """Write a policy: what a page may load, and which inline code may run."""
    digests = sorted({digest(code) for code in codes})
    # A page that is opened as a file is of no origin: 'self' is then nothing, file: its neighbours.
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", "file:", *digests, "'unsafe-hashes'"]),
        # Formulas and figures are placed by style attributes, which have no digest.
        "style-src": "'self' file: 'unsafe-inline'",
        "img-src": "'self' file: data:",
        "font-src": "'self' file: data:",
        "connect-src": "'self'",
        "form-action": "'self' file:",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def digest(code: str) -> str:
    """Name an inline script as a policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


class Protected(BuiltinTemplateLoader):
    """Write the policy into each page as it is rendered; _config.yml names this class."""

    def render(self, template: str, context: dict[str, Any]) -> str:  # type: ignore[override]
        page = super().render(template, context)
        if ENCODING not in page:
            return page
        page = told_in_words(decided(page, context["pagename"]))
        around = AroundArticle(page)
        rules = policy([*around.scripts, *around.handlers, MOUNT])
        return page.replace(ENCODING, f"{ENCODING}\n    {META.format(rules)}", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    return {"parallel_read_safe": True, "parallel_write_safe": True}
