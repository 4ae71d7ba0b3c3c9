"""Front-end files: fetched by pinned version from packages, cut to what the pages use."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sphinxcontrib.katex
from fontTools import subset
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

from press import BUILD
from press.node import NODE, PACKAGES

VENDORED = BUILD / "vendored"

SETTLE_SECONDS = 0.5

# The text's typefaces: the cuts that book.css names. What is rarer in the text than these
# characters, a fallback shows.
FACES = {
    "source-serif-4": ("400-normal", "400-italic", "600-normal"),
    "source-sans-3": ("400-normal", "600-normal"),
    "source-code-pro": ("400-normal",),
}
TEXT = "".join(map(chr, range(0x20, 0x7F))) + "\u00a0°±²³·×÷−–—‘’“”…äèéóöü"
# What they lack is in the typeface of the formulas.
SIGNS = "→←↑↓√≤≥≈∞∈∥⇒"

# What marks the words that Sphinx's own search has found, and the page's name, for which only a
# choice of versions asks.
UNUSED = ("sphinx_highlight.js", "DOCUMENTATION_OPTIONS.pagename")


def vendor(app: Sphinx, config: Config) -> None:
    """Put the front-end files where Sphinx copies static files from."""
    if not PACKAGES.is_dir():
        raise ExtensionError(f"{PACKAGES} is missing: run `make setup`, which fetches it")
    VENDORED.mkdir(parents=True, exist_ok=True)
    plotly = PACKAGES / "plotly.js-cartesian-dist-min" / "plotly-cartesian.min.js"
    shutil.copy2(plotly, VENDORED / "plotly.min.js")
    dist = PACKAGES / "katex" / "dist"
    shutil.copy2(dist / "katex.min.css", VENDORED / "katex.min.css")
    shutil.copytree(
        dist / "fonts",
        VENDORED / "fonts",
        ignore=shutil.ignore_patterns("*.ttf", "*.woff"),
        dirs_exist_ok=True,
    )
    cut_text_fonts(VENDORED / "fonts")
    config.html_static_path.append(str(VENDORED))
    config.katex_css_path = "katex.min.css"
    katex = sphinxcontrib.katex
    katex.NODEJS_BINARY = NODE
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0
    katex.socket_timeout = settle(katex.socket_timeout)


def settle(socket_timeout: Callable[..., Any]) -> Callable[..., Any]:
    """Let the formula server settle before it is connected to.

    Its socket exists a moment before it listens, and on a busy machine the connection fell into
    that moment.
    """

    def settled(*arguments: Any) -> Any:
        time.sleep(SETTLE_SECONDS)
        return socket_timeout(*arguments)

    return settled


def cut_text_fonts(folder: Path) -> None:
    """Write the typefaces of the text and of its signs, with their licences.

    A cut typeface may not bear the name that its licence reserves: book.css names them anew.
    """
    for family, cuts in FACES.items():
        package = PACKAGES / "@fontsource" / family
        shutil.copy2(package / "LICENSE", folder / f"{family}-LICENSE.txt")
        for face in cuts:
            source = package / "files" / f"{family}-latin-{face}.woff2"
            cut(source, set(map(ord, TEXT)), folder / f"{family}-{face}.woff2")
    signs = PACKAGES / "katex" / "dist" / "fonts" / "KaTeX_Main-Regular.woff2"
    cut(signs, set(map(ord, SIGNS)), folder / "signs.woff2")


def cut(source: Path, characters: set[int], target: Path) -> None:
    """Write a typeface with some characters only, under no name."""
    options = subset.Options()
    options.layout_features = ["kern", "liga"]
    options.name_IDs = [0, 13, 14]
    options.hinting = False
    font = subset.load_font(source, options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    font.flavor = "woff2"
    font.save(target)


def drop_unused(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Leave out scripts that no page uses."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if not any(name in f"{script.filename} {script.attributes.get('body')}" for name in UNUSED)
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", vendor)
    app.connect("html-page-context", drop_unused, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
