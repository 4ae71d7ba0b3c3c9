"""The picture on the editions' title pages and in the README, drawn from the ledger."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from labkit import ledger
from labkit.figures import plots as figures
from labkit.figures.palette import DRAWINGS
from labkit.ledger.nested import show
from press import BOOK

PICTURE = BOOK / "_static" / "third-row.svg"
PAPER, INK, FAINT = (DRAWINGS[name][0] for name in ("paper", "ink", "faint"))
DOCUMENT, COMPUTED = figures.ORANGE, figures.BLUE
WIDTH, BASE, SCALE = 64, 208, 280
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
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 270" '
            'font-family="system-ui, sans-serif" font-size="17" text-anchor="middle">',
            f'<rect width="640" height="270" rx="10" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def bars(title: str, weights: list[float], colour: str, left: int, places: int | None) -> list[str]:
    """Draw one group of three weights."""
    middle = left + 110
    parts = [f'<text x="{middle}" y="34" font-weight="600" fill="{INK}">{title}</text>']
    for i, weight in enumerate(weights):
        x, height = left + i * (WIDTH + 14), weight * SCALE
        parts += [
            f'<rect x="{x}" y="{BASE - height:.1f}" width="{WIDTH}" height="{height:.1f}" '
            f'rx="3" fill="{colour}"/>',
            f'<text x="{x + WIDTH / 2}" y="{BASE - height - 8:.1f}" fill="{INK}">'
            f"{show(weight, places)}</text>",
            f'<text x="{x + WIDTH / 2}" y="{BASE + 26}" fill="{FAINT}">token {i + 1}</text>',
        ]
    return parts


def draw(app: Sphinx) -> None:
    """Bring the picture up to date with the ledger."""
    current = picture()
    if not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != current:
        PICTURE.write_text(current, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
