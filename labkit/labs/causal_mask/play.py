"""Lab 2's laboratory: paint a mask, and see what it leaves of the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory
from labkit.softmax import WAYS_TO_MASK

N = 6
NAMES = {
    "fill scores with −∞": "fill with -inf",
    "fill scores with −10⁹": "fill with -1e9",
    "multiply scores by the mask": "zero the scores",
    "multiply weights by the mask": "zero the weights",
}


def weights_left(way: str, scores: Tensor, may: Tensor) -> Tensor:
    return WAYS_TO_MASK[way](scores, may)[1]


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: partial(weights_left, way) for name, way in NAMES.items()
}
YOURS = "your masked_weights"
NOTHING = torch.full((N, N), torch.nan)
PATTERNS = {
    "causal": torch.ones(N, N).tril(),
    "all open": torch.ones(N, N),
    "strictly the past": torch.ones(N, N).tril(-1),
    "one step ahead": torch.ones(N, N).tril(1),
    "two neighbours": torch.ones(N, N).tril(1).triu(-1),
    "causal, keys 1 and 2 are padding": torch.ones(N, N).tril() * (torch.arange(N) > 1),
}


def laboratory(masked_weights: Callable[[Tensor, Tensor], Tensor] | None = None) -> Laboratory:
    """Make a grid of switches, one for each query and key, with patterns to start from.

    masked_weights : the learner's function; if it gives weights, it can be chosen too
    """
    import ipywidgets as widgets

    ways = dict(WAYS)
    if masked_weights is not None:
        yours = partial(weights_of, masked_weights)
        if yours(torch.zeros(N, N), torch.ones(N, N, dtype=torch.bool)) is not NOTHING:
            ways = {YOURS: yours, **ways}
    wide = {"style": {"description_width": "5em"}, "layout": {"width": "min(100%, 26em)"}}
    pattern = widgets.Dropdown(options=list(PATTERNS), description="pattern", **wide)
    way = widgets.Dropdown(options=list(ways), description="way", **wide)
    switches = {
        f"q{i}k{j}": widgets.ToggleButton(layout={"width": "2.6em", "margin": "1px"})
        for i in range(1, N + 1)
        for j in range(1, N + 1)
    }
    for name, switch in switches.items():
        label(name, switch)
        switch.observe(partial(relabel, name), names="value")
    rows = [
        widgets.HBox(
            [widgets.Label(f"query {i}", layout={"width": "4.5em"})]
            + [switches[f"q{i}k{j}"] for j in range(1, N + 1)]
        )
        for i in range(1, N + 1)
    ]
    arranged = widgets.VBox([pattern, way, widgets.Label("1: may attend, 0: hidden"), *rows])
    lay(pattern.value, switches)
    lab = Laboratory({"way": way, **switches}, partial(draw, ways), arranged)

    def start_from(change: Any) -> None:
        with lab.at_once():
            lay(change.new, switches)

    pattern.observe(start_from, names="value")
    return lab


def weights_of(function: Callable[[Tensor, Tensor], Any], scores: Tensor, may: Tensor) -> Tensor:
    """Ask a learner's function for weights; NaN in every place if none come."""
    try:
        weights = function(scores.clone(), may.clone())
    except Exception:
        return NOTHING
    fits = isinstance(weights, Tensor) and weights.shape == (N, N)
    return weights.detach().float() if fits else NOTHING


def lay(pattern: str, switches: dict[str, Any]) -> None:
    """Set all switches to a pattern."""
    for switch, may in zip(switches.values(), PATTERNS[pattern].flatten(), strict=True):
        switch.value = bool(may)


def relabel(name: str, change: Any) -> None:
    label(name, change.owner)


def label(name: str, switch: Any) -> None:
    """Write a switch's state on it, and its place where a pointer or a screen reader finds it."""
    query, key = name.removeprefix("q").split("k")
    switch.description = str(int(switch.value))
    switch.tooltip = f"query {query}, key {key}"


def draw(ways: dict[str, Callable[[Tensor, Tensor], Tensor]], way: str, **switches: bool) -> Any:
    """Draw the weights that a mask leaves, with the sum of each row."""
    may = torch.tensor(list(switches.values())).view(N, N)
    scores = torch.randn(N, N, generator=torch.Generator().manual_seed(0))
    weights = ways[way](scores, may)
    sums = weights.sum(dim=-1)
    hidden = weights.nan_to_num()[~may].sum()
    broken = [str(i + 1) for i, total in enumerate(sums) if not abs(total - 1) < 1e-4]
    rows = ", ".join(broken) or "none"
    told = [f"query {i + 1} (sum {total:.2f})" for i, total in enumerate(sums)]
    return figures.heatmap(
        weights,
        rows=told,
        columns=[f"key {j + 1}" for j in range(N)],
        title="Weights after masking",
        alt=f"{int(may.sum())} of {N * N} places are open, {int(may.triu(1).sum())} of them in the "
        f"future. Weight on hidden keys, over all rows: {hidden:.2f}. Rows that do not sum to "
        f"one: {rows}. Rows with no key left: {int((~may.any(dim=-1)).sum())}.",
        height=420,
    )
