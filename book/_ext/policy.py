"""A content security policy on every page: no other host, and no script but the book's own.

What a notebook puts out is part of the page. If it held a script, or asked another host for
something, the browser would refuse: the policy allows files that lie beside the page, and by their
digests the inline scripts that the theme writes around the article. Inside the article nothing runs
but the line that mounts a live figure.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

from live import MOUNT
from sphinx.application import Sphinx

SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.DOTALL)
NAMED = re.compile(r"\b(?:src|type)=")  # another file, or data
HANDLER = re.compile(r'\son[a-z]+="([^"]*)"')
ARTICLE = re.compile(r"<article\b.*</article>", re.DOTALL)
# The theme's settings for thebe, which no page uses: one of its two scripts would be refused.
THEBE = re.compile(
    r'<script type="text/x-thebe-config">.*?</script>\s*<script>kernelName.*?</script>', re.DOTALL
)
# Browsers look for the encoding in the first bytes, and for the policy before the first script.
ENCODING = '<meta charset="utf-8" />'
META = '<meta http-equiv="Content-Security-Policy" content="'


def policy(page: str, handlers: Iterable[str]) -> str:
    """Write the policy of a page: what it may load, and which inline scripts may run."""
    around = ARTICLE.sub("", page)
    inline = [code for attributes, code in SCRIPT.findall(around) if not NAMED.search(attributes)]
    digests = sorted({digest(code) for code in (*inline, *handlers, MOUNT)})
    # A page that is opened as a file is of no origin: 'self' is then nothing, file: its neighbours.
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", "file:", *digests, "'unsafe-hashes'"]),
        # Formulas and figures are placed by style attributes, which have no digest.
        "style-src": "'self' file: 'unsafe-inline'",
        "img-src": "'self' file: data:",
        "font-src": "'self' file:",
        "connect-src": "'self'",
        "form-action": "'self' file:",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def digest(code: str) -> str:
    """Name an inline script as a policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def protect(app: Sphinx, exception: Exception | None) -> None:
    """Write the policy into the pages that this build has written."""
    if exception is not None or app.builder.name != "html":
        return
    pages = {path: path.read_text("utf-8") for path in Path(app.outdir).rglob("*.html")}
    # The search reads other pages for its excerpts, and so meets their handlers too.
    handlers = {
        unescape(code) for page in pages.values() for code in HANDLER.findall(ARTICLE.sub("", page))
    }
    for path, page in pages.items():
        if ENCODING in page and META not in page:
            page = THEBE.sub("", page)
            head = f'{ENCODING}\n    {META}{policy(page, handlers)}">'
            path.write_text(page.replace(ENCODING, head, 1), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", protect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
