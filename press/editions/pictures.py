"""Still pictures of the figures that a page draws itself, for editions that run no script.

A picture is taken once, in the browser that the page tests use, and kept under a name made of what
it shows.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page, ViewportSize, sync_playwright

from press import BUILD, HTML
from press.browser import ARGUMENTS, OFFLINE, find

PICTURES = BUILD / "pictures"
FIGURES = "figure.plotly-figure, figure.live-figure"
# Taller than any figure: the browser cuts off what is below its window.
VIEW: ViewportSize = {"width": 1000, "height": 2000}
WIDTH = 720
PLOTLY = HTML / "_static" / "plotly.min.js"
# Without what stands below the picture in words or needs a hand to open, and without the room
# that a figure keeps for its later states.
STILL = """
  .live-caption, .live details { display: none !important; }
  .live { margin: 0 !important; }
  .live-side, .live-spoken { min-height: 0 !important; }
"""
PATIENCE = 120_000  # milliseconds, for a busy machine
# Drawn from the figure's own data and layout, on white, without what only a hand can use.
DRAW = """(figure, width) => {
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const { sliders, ...still } = layout;
  const drawn = { data, layout: { ...still, paper_bgcolor: "white", plot_bgcolor: "white" } };
  const size = { width, height: layout.height ?? 400, imageDataOnly: true };
  return Promise.all([
    Plotly.toImage(drawn, { ...size, format: "svg" }),
    Plotly.toImage(drawn, { ...size, format: "png", scale: 2 }),
  ]);
}"""


class Picture(NamedTuple):
    """A figure as files: one that scales, for print, and one that every e-reader shows."""

    scaling: Path
    dots: Path


def take(pages: dict[str, list[str]]) -> dict[str, list[Picture]]:
    """Give the pictures of each page's figures, in order, and take those not taken before.

    Args:
        pages: for each page, the HTML of its figures.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    pictures_by_page = {
        page: [name(figure) for figure in figures] for page, figures in pages.items()
    }
    missing = [
        page for page, pictures in pictures_by_page.items() if not all(map(exists, pictures))
    ]
    if missing:
        with sync_playwright() as playwright:
            arguments = [*ARGUMENTS, OFFLINE]
            with playwright.chromium.launch(executable_path=find(), args=arguments) as browser:
                # plotly draws dots by way of an address that the pages' policy has no room for.
                context = browser.new_context(
                    viewport=VIEW, device_scale_factor=2, color_scheme="light", bypass_csp=True
                )
                for page in missing:
                    photograph(context.new_page(), page, pictures_by_page[page])
    return pictures_by_page


def name(figure: str) -> Picture:
    """Name a picture by what it shows and by what draws it."""
    drawn_by = [
        PLOTLY,
        *sorted(HTML.glob("_static/live/*")),
        Path(__file__),
    ]
    content = hashlib.sha256(figure.encode())
    for script in drawn_by:
        content.update(script.read_bytes())
    stem = PICTURES / content.hexdigest()[:20]
    scaling = stem.with_suffix(".svg" if "plotly-figure" in figure else ".png")
    return Picture(scaling, stem.with_suffix(".png"))


def exists(picture: Picture) -> bool:
    """Say whether a picture is there."""
    return picture.scaling.is_file() and picture.dots.is_file()


def photograph(page: Page, address: str, pictures: list[Picture]) -> None:
    """Take the pictures of one page."""
    page.set_default_timeout(PATIENCE)
    page.goto((HTML / address).as_uri())
    page.add_style_tag(content=STILL)
    figures = page.locator(FIGURES).all()
    if len(figures) != len(pictures):
        raise RuntimeError(f"{address} shows {len(figures)} figures, its HTML has {len(pictures)}")
    page.add_script_tag(path=PLOTLY)
    for figure, picture in zip(figures, pictures, strict=True):
        if picture.scaling != picture.dots:
            scaling, dots = figure.evaluate(DRAW, WIDTH)
            picture.scaling.write_text(scaling, encoding="utf-8")
            picture.dots.write_bytes(base64.b64decode(dots))
        else:
            figure.scroll_into_view_if_needed()
            figure.screenshot(path=picture.dots, animations="disabled")
    page.close()
