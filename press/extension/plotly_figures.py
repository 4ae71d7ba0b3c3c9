"""Plotly figures in the static page: the stored JSON, and a place of the drawing's size."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx
from sphinx.util import logging

MIME = "application/vnd.plotly.v1+json"
MARK = "plotly-figure"
PARTS = ("data", "layout", "frames")
SYMBOL = re.compile(r"\b([A-Za-z])_([A-Za-z]\w*)")

logger = logging.getLogger(__name__)


class PlotlyRenderer:
    """Write a figure's JSON into the page, with its text alternative as the caption."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [("*", MIME, 1)]

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        if data.mime_type != MIME or inline:
            return None
        layout = data.content["layout"]
        alt = layout.get("meta", {}).get("alt")
        if not alt:
            logger.warning("a figure has no text alternative: make it with labkit.figures")
        # A literal "</" would end the script element.
        parts = {key: typeset(data.content[key]) for key in PARTS if key in data.content}
        figure = json.dumps(parts).replace("</", "<\\/")
        page = (
            f'<figure class="{MARK}">'
            f'<div class="{MARK}-drawing" style="min-height:{layout["height"]}px"></div>'
            f"{player(data.content.get('frames'))}"
            f'<script type="application/json">{figure}</script>'
            f"<figcaption>{caption(alt or '')}</figcaption></figure>"
        )
        return [nodes.raw(text=page, format="html", classes=[MARK])]


def typeset(part: Any) -> Any:
    """Set symbols such as d_k as formulas do, with the tags that plotly reads."""
    if isinstance(part, str):
        return SYMBOL.sub(lambda found: symbol(found, "i"), part)
    if isinstance(part, list):
        return [typeset(inner) for inner in part]
    if isinstance(part, dict):
        return {key: typeset(inner) for key, inner in part.items()}
    return part


def caption(text: str) -> str:
    """Write a caption, its symbols as live figures write them."""
    return SYMBOL.sub(
        lambda found: (
            f'<span class="live-symbol" role="math" aria-label="{" ".join(found.groups())}">'
            f"{symbol(found, 'var')}</span>"
        ),
        escape(text),
    )


def symbol(found: re.Match[str], slant: str) -> str:
    """Write a letter and its subscript: a letter slanted, a word upright."""
    letter, below = found.groups()
    script = below if len(below) > 2 else f"<{slant}>{below}</{slant}>"
    return f"<{slant}>{letter}</{slant}><sub>{script}</sub>"


def player(frames: list[dict[str, Any]] | None) -> str:
    """Write the controls of a figure with frames; they are of use when it is drawn."""
    if not frames:
        return ""
    last = len(frames) - 1
    return (
        f'<div class="{MARK}-player"><button type="button" disabled>Play</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="Frame" disabled>'
        f"<output>{escape(frames[last]['name'])}</output></div>"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_css_file("figures.css")
    app.add_js_file("figures.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
