"""Plotly figures in the static page: the stored JSON, and a place of the drawing's size."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from itertools import cycle
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx
from sphinx.util import logging

MIME = "application/vnd.plotly.v1+json"
MARK = "plotly-figure"
PARTS = ("data", "layout", "frames")
HOVER = "row %{y}, column %{x}: %{z:.2f}<extra></extra>"
# What the page writes above the drawing, and plotly leaves out: pixels of height.
TITLE, KEY = 44, 40
LINE = 20  # pixels from name to name at the ends of curves
DASHES = {
    "dash": "6 4",
    "dot": "1.5 3",
    "dashdot": "6 3 1.5 3",
    "longdash": "10 4",
    "longdashdot": "10 3 1.5 3",
}
SHAPES = {
    "diamond": "M10 1l5 5-5 5-5-5Z",
    "square": "M6 2h8v8h-8Z",
    "triangle-up": "M10 1l5.5 9.5h-11Z",
    "x": "M5.5 3.5l2-2 2.5 2.5 2.5-2.5 2 2-2.5 2.5 2.5 2.5-2 2-2.5-2.5-2.5 2.5-2-2 2.5-2.5Z",
    "x-thin": "M6 2l8 8M14 2l-8 8",
}
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
        for trace in parts["data"]:
            if trace["type"] == "heatmap":  # plotly would name its own parts: x, y, z and "trace 0"
                trace.setdefault("hovertemplate", HOVER)
        figure = json.dumps(parts).replace("</", "<\\/")
        names = key(data.content)
        height = f"{layout['height'] - TITLE - (KEY if names else 0)}px"
        if "grid" in layout:  # squares side by side, which a narrow window makes lower
            height = f"min({height}, 115vw)"
        look = f'"{MARK} {MARK}-curves" data-line="{LINE}"' if are_curves(data.content) else MARK
        title = caption(layout["title"]["text"])
        page = (
            f'<figure class={look}><p class="{MARK}-title">{title}</p>'
            f'{names}<div class="{MARK}-drawing" style="min-height:{height}"></div>'
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


def key(figure: dict[str, Any]) -> str:
    """Write what the lines, marks and areas of a drawing stand for, each beside a sample of it."""
    layout = figure["layout"]
    named = [
        (trace, colour)
        for trace, colour in zip(figure["data"], cycle(layout["colorway"]), strict=False)
        if trace.get("name") and trace.get("showlegend", True)
    ]
    if not layout.get("showlegend", len(named) > 1):
        return ""
    items = "".join(
        f"<li>{sample(trace, colour)}{caption(trace['name'])}</li>" for trace, colour in named
    )
    return f'<ul class="{MARK}-key">{items}</ul>'


def are_curves(figure: dict[str, Any]) -> bool:
    """Say whether a figure has named curves alone, whose ends are apart enough for their names."""
    traces, layout = figure["data"], figure["layout"]
    if len(traces) < 2 or not all(
        trace["type"] == "scatter" and trace["mode"] == "lines" and trace.get("name")
        for trace in traces
    ):
        return False
    heights = [y for trace in traces for y in trace["y"]]
    low, high = layout["yaxis"].get("range", (min(heights), max(heights)))
    pixels = (layout["height"] - TITLE - KEY) / (high - low)
    ends = sorted(trace["y"][-1] * pixels for trace in traces)
    # Two may share a place: their names stand one above the other.
    return all(third - first >= LINE for first, third in zip(ends, ends[2:], strict=False))


def sample(trace: dict[str, Any], colour: str) -> str:
    """Draw a sample of a trace's line, mark or area in its own colour, or else in this one."""
    line, marker = trace.get("line", {}), trace.get("marker", {})
    own = [given["color"] for given in (marker, line) if isinstance(given.get("color"), str)]
    shape = marker.get("symbol", "circle")
    if trace["type"] != "scatter":
        look = ' fill-opacity="0.5" stroke="currentColor"' if trace["type"] == "box" else ""
        drawn = f'<rect x="4" y="1" width="12" height="10"{look}/>'
    elif "markers" not in trace["mode"]:
        width, dash = line.get("width", 3), DASHES.get(line.get("dash", ""), "none")
        drawn = (
            f'<path class="outline" d="M0 6h28" stroke-width="{width}" stroke-dasharray="{dash}"/>'
        )
    elif shape == "circle":
        drawn = '<circle cx="10" cy="6" r="5"/>'
    else:
        outline = ' class="outline" stroke-width="2"' if shape.endswith(("-thin", "-open")) else ""
        drawn = f'<path{outline} d="{SHAPES[shape.removesuffix("-open")]}"/>'
    width = 28 if "M0 6" in drawn else 20
    return (
        f'<svg viewBox="0 0 {width} 12" width="{width}" height="12" aria-hidden="true" '
        f'style="color:var(--chart-{[*own, colour][0][1:].lower()})">{drawn}</svg>'
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
    name = frames[last]["name"]
    return (
        f'<div class="{MARK}-player"><button type="button" disabled>Play</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="Frame" '
        f'aria-valuetext="{escape(name)}" disabled>'
        f'<span class="{MARK}-frame">{escape(name)}</span></div>'
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_css_file("figures.css")
    app.add_js_file("figures.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
