"""Drawings in the page itself, so that they follow the theme."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from press import BUILD, ROOT
from press.drawings.kit import dark

FOLDER = "book/drawings/"
STYLE = BUILD / "drawings"
DARK = 'html[data-theme="dark"] .drawing'


def insert_drawings(app: Sphinx, doctree: nodes.document) -> None:
    """Put each drawing in place of the image that names its file."""
    for number, image in enumerate(doctree.findall(nodes.image)):
        if image["uri"].startswith(FOLDER):
            drawing = (ROOT / image["uri"]).read_text(encoding="utf-8")
            file = Path(image["uri"]).name
            html = inline(drawing, image.get("alt", ""), f"drawing-{number}", file)
            raw = nodes.raw(text=html, format="html")
            image.replace_self(raw)


def inline(drawing: str, alt: str, name: str, file: str) -> str:
    """Write a drawing as part of a page, with its text alternative."""
    label = f'<svg role="img" aria-label="{escape(" ".join(alt.split()))}" '
    svg = prefix_ids(drawing, name).replace("<svg ", label, 1)
    return f'<span class="drawing" data-file="{escape(file)}">{svg}</span>'


def prefix_ids(svg: str, name: str) -> str:
    """Name a drawing's arrow heads apart from those of the page's other drawings."""
    return re.sub(r'(id="|url\(#)head-', rf"\1{name}-", svg)


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
