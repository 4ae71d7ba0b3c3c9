"""The pages' colours, as the style sheets know them: custom properties of either theme."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from labkit.figures.palette import PAGES, properties
from press import BUILD

FOLDER = BUILD / "palette"
SHEET = "palette.css"


def write(app: Sphinx, config: Config) -> None:
    """Write the style sheet where Sphinx copies static files from."""
    rules = (
        f"html {{ {properties(PAGES, 'book')} }}\n"
        f'html[data-theme="dark"] {{ {properties(PAGES, "book", dark=True)} }}\n'
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / SHEET).write_text(rules, encoding="utf-8")
    config.html_static_path.append(str(FOLDER))
    app.add_css_file(SHEET)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
