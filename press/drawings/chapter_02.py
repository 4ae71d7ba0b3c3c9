"""Chapter 2: what spread does to a softmax, and what width does to dot products."""

from __future__ import annotations

from math import exp, sqrt

from press.drawings.block import layer
from press.drawings.kit import Drawing

SCORES = (0.3, 1.3, -0.2, 0.8, -1.1)


def softmax_sharpening() -> Drawing:
    """The weights of the same five scores, spread by growing factors."""
    d = Drawing(226)
    base, high = 168, 110
    for panel, factor in enumerate((0.25, 1, 4, 16)):
        x = 18 + 100 * panel
        line = [exp(factor * score) for score in SCORES]
        weights = [value / sum(line) for value in line]
        for i, weight in enumerate(weights):
            d.box(x + 17 * i, base - high * weight, 13, high * weight, shade=0.3, round_by=0)
        d.line((x - 4, base), (x + 85, base))
        d.text(x + 24, base - high * max(weights) - 8, f"{max(weights):.2f}", bold=True)
        d.text(x + 41, base + 20, f"scores × {factor:g}")
    d.text(18, 28, "weights of five scores", anchor="start", colour="faint")
    d.arrow((150, 207), (268, 207))
    d.text(140, 212, "nearly even", anchor="end", colour="faint")
    d.text(278, 212, "one takes all", anchor="start", colour="faint")
    return d


def dot_product_spread() -> Drawing:
    """How dot products are spread at three widths, before the division and after it."""
    d = Drawing(336)
    middle = 210
    d.text(16, 26, "q · k", anchor="start", bold=True)
    for d_k, x, y in ((8, 24, 66), (64, 46, 124), (512, 104, 142)):
        d.path(bell(middle, 160, 3.1 * sqrt(d_k), 110 * sqrt(8 / d_k)), "ink", 2)
        d.text(middle + x, y, f"d_k = {d_k}", anchor="start")
    axis(d, middle, 160, 3.1, (-50, 0, 50))
    d.text(16, 222, "q · k ÷ √d_k", anchor="start", bold=True)
    d.path(bell(middle, 300, 40, 80), "ink", 2)
    d.text(middle + 56, 246, "all three widths", anchor="start")
    axis(d, middle, 300, 40, (-4, -2, 0, 2, 4))
    return d


def bell(middle: float, base: float, deviation: float, height: float) -> str:
    """Draw a normal density from side to side of the drawing."""
    places = [16 + 2 * i for i in range(195)]
    heights = [height * exp(-(((x - middle) / deviation) ** 2) / 2) for x in places]
    points = (f"{x} {base - y:.1f}" for x, y in zip(places, heights, strict=True))
    return "M" + "L".join(points)


def axis(d: Drawing, middle: float, base: float, unit: float, ticks: tuple[int, ...]) -> None:
    """Draw a line under a density, with numbers."""
    d.line((16, base), (404, base))
    for tick in ticks:
        x = middle + unit * tick
        d.line((x, base), (x, base + 5))
        d.text(x, base + 20, str(tick).replace("-", "−"), size=12, colour="faint")


DRAWINGS = {
    "layer-with-scale": lambda: layer("scale"),
    "softmax-sharpening": softmax_sharpening,
    "dot-product-spread": dot_product_spread,
}
