"""The picture on the editions' title pages and in the README, drawn from the ledger.

It is shown where no typeface of the book's can be had, so its words are outlines.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fontTools.pens.svgPathPen import SVGPathPen
from fontTools.pens.transformPen import TransformPen
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx

from labkit import ledger
from labkit.figures import plots as figures
from labkit.figures.palette import DRAWINGS
from labkit.ledger.nested import show
from press import BOOK
from press.node import PACKAGES

PICTURE = BOOK / "_static" / "third-row.svg"
PAPER, INK, FAINT = (DRAWINGS[name][0] for name in ("paper", "ink", "faint"))
DOCUMENT, COMPUTED = figures.ORANGE, figures.BLUE
WIDTH, BASE, SCALE, SIZE = 64, 208, 280, 19
CLAIM = "section-2.3/by-hand/weights"


def shown() -> ledger.Figures:
    """Find the claim that the picture shows."""
    claim = ledger.find_claim(CLAIM)
    assert isinstance(claim, ledger.Figures)
    return claim


def alt_text() -> str:
    """Tell in words what the picture shows."""
    claim = shown()
    printed, computed = (
        "{}, {} and {}".format(*(show(weight, claim.places) for weight in row[2]))
        for row in (claim.value, claim.computed)
    )
    return f"Three weights as printed: {printed}. As computed: {computed}."


def picture() -> str:
    """Draw row 3 of the by-hand weights, as printed and as computed, as bars."""
    claim = shown()
    groups = [
        ("as printed", claim.value[2], DOCUMENT, 60),
        ("as computed", claim.computed[2], COMPUTED, 360),
    ]
    parts = [part for group in groups for part in bars(*group, claim.places)]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 270">',
            f'<rect width="640" height="270" rx="10" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def bars(title: str, weights: list[float], colour: str, left: int, places: int | None) -> list[str]:
    """Draw one group of three weights."""
    middle = left + 110
    parts = [outlined(title, middle, 34, INK, weight=600)]
    for i, weight in enumerate(weights):
        x, height = left + i * (WIDTH + 14), weight * SCALE
        parts += [
            f'<rect x="{x}" y="{BASE - height:.1f}" width="{WIDTH}" height="{height:.1f}" '
            f'rx="3" fill="{colour}"/>',
            outlined(show(weight, places), x + WIDTH / 2, BASE - height - 8, INK),
            outlined(f"token {i + 1}", x + WIDTH / 2, BASE + 26, FAINT),
        ]
    return parts


@cache
def face(weight: int) -> TTFont:
    """Open the typeface of the book's tables and labels."""
    files = PACKAGES / "@fontsource" / "source-sans-3" / "files"
    return TTFont(files / f"source-sans-3-latin-{weight}-normal.woff2")


def outlined(words: str, middle: float, base: float, colour: str, weight: int = 400) -> str:
    """Write words as outlines, centred at a place of their baseline."""
    font = face(weight)
    glyphs, names = font.getGlyphSet(), [font.getBestCmap()[ord(letter)] for letter in words]
    scale = SIZE / font["head"].unitsPerEm
    x = middle - scale * sum(glyphs[name].width for name in names) / 2
    pen = SVGPathPen(glyphs, ntos=lambda number: f"{number:.1f}".removesuffix(".0"))
    for name in names:
        glyphs[name].draw(TransformPen(pen, (scale, 0, 0, -scale, x, base)))
        x += scale * glyphs[name].width
    return f'<path d="{pen.getCommands()}" fill="{colour}"/>'


def draw(app: Sphinx) -> None:
    """Bring the picture up to date with the ledger."""
    current = picture()
    if not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != current:
        PICTURE.write_text(current, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
