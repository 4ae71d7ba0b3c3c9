"""Live figures in the static page: their stored state, and classic scripts that compute."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

from labkit.figures.base import style
from labkit.figures.live import FIGURES, MIME
from press import BUILD
from press.figures import figure_of, page_script

FILES = BUILD / "live"
MARK = "live-figure"
MOUNT = "labkitLive.mount(document.currentScript.parentElement)"


class LiveRenderer:
    """Write a figure's first state into the page, as a table for readers and as data."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [("*", MIME, 1)]

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        if data.mime_type != MIME or inline:
            return None
        return [placed(data.content)]


class Placed(SphinxDirective):
    """Place a live figure in a page that is no notebook, by its name, in its first state."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        figure = next(figure for figure in FIGURES if figure.name == self.arguments[0])
        data, _ = figure()._repr_mimebundle_()
        return [placed(data[MIME])]


def placed(stored: dict[str, Any]) -> nodes.raw:
    """Write a figure as its page has it: told in a table, its state as data, its mount."""
    # A literal "</" would end the script element.
    state = json.dumps(stored["state"]).replace("</", "<\\/")
    # What the text links to: without scripts, too.
    anchors = "".join(
        f'<span id="stage-{escape(name)}"></span>' for name in stored["state"].get("states", {})
    )
    page = (
        f'<figure class="{MARK}" data-name="{escape(stored["figure"])}">{stored["html"]}{anchors}'
        f'<script type="application/json">{state}</script>'
        f"<script>{MOUNT}</script></figure>"
    )
    return nodes.raw(text=page, format="html", classes=[MARK], live=module(stored))


def module(stored: dict[str, Any]) -> str:
    """Name the module that a stored figure needs."""
    found = (one for one in FIGURES if one.name == stored["figure"])
    return next((one.module(stored["state"]) for one in found), stored["figure"])


def parcels() -> dict[str, str]:
    """Write what a figure asks for when it is first played, as the script that its page adds."""
    packed = {figure.name: base64.b64encode(figure.parcel()) for figure in FIGURES}
    return {
        f"{name}.parcel": f'labkitLive.parcels["{name}"] = "{code.decode("ascii")}";\n'
        for name, code in packed.items()
        if code
    }


def write_files(app: Sphinx, config: Config) -> None:
    """Put the figures' parcels and style sheet where Sphinx copies static files from."""
    (FILES / "live").mkdir(parents=True, exist_ok=True)
    for name, script in parcels().items():
        (FILES / "live" / f"{name}.js").write_text(script, encoding="utf-8")
    (FILES / "live" / "live.css").write_text(style(), encoding="utf-8")
    config.html_static_path.append(str(FILES))


def add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write and name, for a page that has live figures, the one script of these."""
    found = {node.get("live") for node in doctree.findall(nodes.raw)} if doctree else set()
    # A variant stands behind the whole module, which takes its place.
    whole = {figure_of(name): name for name in sorted(found - {None}, reverse=True)}
    if names := sorted(whole.values()):
        script = f"live/{'-and-'.join(names)}.js"
        (Path(app.outdir) / "_static" / script).write_text(page_script(names), encoding="utf-8")
        # A figure is mounted as the page is read, so nothing moves after it was shown.
        app.add_js_file(script, blocking="render")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_css_file("live/live.css")
    app.add_directive(MARK, Placed)
    app.connect("config-inited", write_files)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
