"""Lab 1's laboratory: what width, number of keys and scale do to a softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory
from labkit.softmax import softmax_jacobian

DRAWS, BOUND, BINS = 2_000, 0.30, 20
SCALES = {
    "1/√d_k": lambda d_k: d_k**-0.5,
    "none": lambda d_k: 1.0,
    "1/d_k": lambda d_k: 1.0 / d_k,
}


def laboratory() -> Laboratory:
    """Make the controls for d_k, the number of keys, the scale and the seed."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 26em)"}}
    controls = {
        "d_k": widgets.SelectionSlider(
            options=[2**power for power in range(13)], value=64, description="d_k", **wide
        ),
        "keys": widgets.IntSlider(value=10, min=2, max=40, description="keys", **wide),
        "scale": widgets.Dropdown(options=list(SCALES), description="scale", **wide),
        "seed": widgets.BoundedIntText(value=0, min=0, max=9_999, description="seed", **wide),
    }
    return Laboratory(controls, draw)


def draw(d_k: int, keys: int, scale: str, seed: int) -> Any:
    """Draw the first row of weights, and the largest weight of all rows as a histogram."""
    scores = draw_scores(d_k, keys, seed) * SCALES[scale](d_k)
    weights = scores.softmax(dim=1)
    peaks = weights.amax(dim=1)
    norms = softmax_jacobian(weights).norm(dim=(1, 2))
    counts = torch.histc(peaks, bins=BINS, min=0, max=1) / DRAWS
    middles = [(place + 0.5) / BINS for place in range(BINS)]
    below = (peaks < BOUND).double().mean()
    first = {"type": "bar", "x": list(range(1, keys + 1)), "y": weights[0], "name": "draw 1"}
    shares = {"type": "bar", "x": middles, "y": counts, "name": f"{DRAWS:,} draws"}
    bound = {"type": "line", "xref": "x2", "yref": "paper", "y0": 0, "y1": 1}
    return figures.figure(
        [first, {**shares, "xaxis": "x2", "yaxis": "y2"}],
        title=f"d_k = {d_k}, {keys} keys, scale {scale}",
        alt=f"First draw: the scaled scores have a deviation of {scores[0].std():.2f}, the largest "
        f"weight is {peaks[0]:.2f}, and the Jacobian's norm is {norms[0]:.3f}. Of {DRAWS:,} draws, "
        f"{below:.0%} have a largest weight under {BOUND:.2f}; the median norm is "
        f"{norms.median():.3f}.",
        xaxis={"title": "key", "domain": [0, 0.44]},
        yaxis={"title": "weight, first draw", "range": [0, 1.05]},
        xaxis2={"title": "largest weight", "domain": [0.58, 1], "range": [0, 1]},
        yaxis2={"title": "share of draws", "anchor": "x2", "rangemode": "tozero"},
        shapes=[
            {**bound, "x0": BOUND, "x1": BOUND, "line": {"dash": "dash", "color": figures.GREY}}
        ],
        bargap=0.05,
        showlegend=False,
    )


def draw_scores(d_k: int, keys: int, seed: int) -> Tensor:
    """Draw unscaled scores of many queries, each against its own keys: (draws, keys)."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(DRAWS, d_k, generator=generator, dtype=torch.float64)
    # Given its query, a score is normal, with the query's length as its deviation.
    normal = torch.randn(DRAWS, keys, generator=generator, dtype=torch.float64)
    return queries.norm(dim=1, keepdim=True) * normal
