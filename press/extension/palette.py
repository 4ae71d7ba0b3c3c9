"""The pages' colours, as the style sheets know them: custom properties of either theme."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from labkit.figures.palette import GREY, HEADS, PAGES, ROLES, properties
from press import BUILD

FOLDER = BUILD / "palette"
SHEET = "palette.css"
CHARTS = {"none": PAGES["panel"], "weight": ROLES["weight"], "grey": (GREY, GREY)}


def write(app: Sphinx, config: Config) -> None:
    """Write the style sheet where Sphinx copies static files from."""
    # Charts are stored in the light theme's colours: each is the name of its own.
    charts = {light[1:]: (light, dark) for light, dark in (*HEADS.values(), *CHARTS.values())}
    light, dark = (
        f"{properties(PAGES, 'book', dark=dark)} {properties(charts, 'chart', dark=dark)}"
        for dark in (False, True)
    )
    rules = f'html {{ {light} }}\nhtml[data-theme="dark"] {{ {dark} }}\n'
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / SHEET).write_text(rules, encoding="utf-8")
    config.html_static_path.append(str(FOLDER))
    app.add_css_file(SHEET)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
