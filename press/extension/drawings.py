"""Drawings in the page itself, so that they follow the theme."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

from press import BUILD, ROOT
from press.drawings.kit import dark

FOLDER = "book/drawings/"
STYLE = BUILD / "drawings"
DARK = 'html[data-theme="dark"] .drawing'

logger = logging.getLogger(__name__)


def insert_drawings(app: Sphinx, doctree: nodes.document) -> None:
    """Put each drawing with its caption in place of the image that names its file."""
    for number, image in enumerate(list(doctree.findall(nodes.image))):
        if not image["uri"].startswith(FOLDER):
            continue
        drawing = (ROOT / image["uri"]).read_text(encoding="utf-8")
        file = Path(image["uri"]).name
        if not (caption := image.get("title", "")):
            logger.warning("%s has no caption: write it behind the file's name", file)
        html = inline(drawing, image.get("alt", ""), f"drawing-{number}", file)
        # Not a figure of Sphinx, which would number it. It cannot stand in a paragraph, which
        # Markdown puts around an image.
        image.parent.replace_self(
            [
                raw(f'<figure class="drawing">{html}<figcaption><p>'),
                nodes.inline("", "", *formulas_apart(caption)),
                raw("</p></figcaption></figure>"),
            ]
        )


def raw(html: str) -> nodes.raw:
    return nodes.raw(text=html, format="html")


def opened(classes: str, role: str) -> nodes.raw:
    """Begin a box that has a role, for which docutils has no container."""
    return raw(f'<div class="{classes} docutils container" role="{role}">')


def closed() -> nodes.raw:
    return raw("</div>")


def inline(drawing: str, alt: str, name: str, file: str) -> str:
    """Write a drawing as part of a page, with its text alternative."""
    label = f'role="img" aria-label="{escape(" ".join(alt.split()))}"'
    tag = f'<svg {label} data-file="{escape(file)}" '
    return within(drawing, name).replace("<svg ", tag, 1)


def formulas_apart(caption: str) -> list[nodes.Node]:
    """Split a caption into words and formulas, which stand between signs of dollar."""
    parts = caption.split("$")
    return [nodes.math(x, x) if i % 2 else nodes.Text(x) for i, x in enumerate(parts) if x]


def within(svg: str, name: str) -> str:
    """Write a drawing for a page: its arrow heads are named apart from those of other drawings.

    Its letters are for the eye, and the name of the whole says more: browsers would tell both.
    """
    apart = re.sub(r'(id="|url\(#)head-', rf"\1{name}-", svg)
    start, _, rest = apart.partition(">")
    inner, _, end = rest.rpartition("</svg>")
    return f'{start}><g aria-hidden="true">{inner}</g></svg>{end}'


def write_style(app: Sphinx, config: Config) -> None:
    """Write the dark theme's colours where Sphinx copies static files from."""
    STYLE.mkdir(parents=True, exist_ok=True)
    Path(STYLE / "drawings.css").write_text(dark(DARK), encoding="utf-8")
    config.html_static_path.append(str(STYLE))
    app.add_css_file("drawings.css")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", write_style)
    app.connect("doctree-read", insert_drawings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
