"""Lab 7's laboratory: the weights that a sound implementation gives, beside those of a bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labkit import causal_mask
from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory

N = 4
INF = float("inf")
WIDTHS = [1, 4, 16, 64]
REAL = torch.tensor([True, True, True, False]).expand(N, N)
MASKS = {
    "causal": causal_mask(N),
    "none": torch.ones(N, N, dtype=torch.bool),
    "token 4 is padding": REAL,
    "causal, token 4 is padding": causal_mask(N) & REAL,
}


def sound(s: Tensor, may: Tensor) -> Tensor:
    """Turn scaled scores (h, N, N) into weights."""
    return s.masked_fill(~may, -INF).softmax(dim=-1)


def one_softmax(s: Tensor, may: Tensor) -> Tensor:
    heads = s.masked_fill(~may, -INF).transpose(0, 1)  # (N, h, N)
    return heads.flatten(1).softmax(dim=-1).view_as(heads).transpose(0, 1)


def half(s: Tensor, may: Tensor) -> Tensor:
    low = torch.tensor(-1e9, dtype=torch.float16)
    return (s.half() + (~may).half() * low).softmax(dim=-1)


# From scaled scores (h, N, N), a mask (N, N) and the width of a head to weights.
BUGS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "softmax over the queries": lambda s, may, d_k: s.masked_fill(~may, -INF).softmax(dim=-2),
    "one softmax for all heads": lambda s, may, d_k: one_softmax(s, may),
    "scale forgotten": lambda s, may, d_k: sound(s * d_k**0.5, may),
    "scale of the whole model": lambda s, may, d_k: sound(s / len(s) ** 0.5, may),
    "mask after the softmax": lambda s, may, d_k: s.softmax(dim=-1) * may,
    "mask added as 1 and 0": lambda s, may, d_k: (s + may).softmax(dim=-1),
    "−10⁹ in half precision": lambda s, may, d_k: half(s, may),
    "True and False exchanged": lambda s, may, d_k: sound(s, ~may),
    "mask along the queries": lambda s, may, d_k: sound(s, may.T),
    "none": lambda s, may, d_k: sound(s, may),
}


def laboratory() -> Laboratory:
    """Make the controls: a bug, a mask, the number of heads and their width."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "5em"}, "layout": {"width": "min(100%, 26em)"}}
    controls = {
        "bug": widgets.Dropdown(options=list(BUGS), description="bug", **wide),
        "mask": widgets.Dropdown(options=list(MASKS), description="mask", **wide),
        "h": widgets.SelectionSlider(options=[1, 2, 4], value=2, description="heads", **wide),
        "d_k": widgets.SelectionSlider(options=WIDTHS, value=16, description="d_k", **wide),
    }
    return Laboratory(controls, draw)


def draw(bug: str, mask: str, h: int, d_k: int) -> Any:
    """Draw the first head's weights without and with a bug, and tell what a test could measure."""
    may = MASKS[mask]
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, h, N, d_k, generator=generator)
    s = q @ k.mT / d_k**0.5
    right, wrong = sound(s, may)[0], BUGS[bug](s, may, d_k)[0].float()
    traces = [
        {
            "type": "heatmap",
            "z": weights,
            "x": [str(j + 1) for j in range(N)],
            "y": [f"query {i + 1}" for i in range(N)],
            "texttemplate": "%{z:.2f}",
            "colorscale": "Cividis",
            "zmin": 0,
            "zmax": 1,
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "xaxis": axis,
        }
        for axis, weights in zip(("x", "x2"), (right, wrong), strict=True)
    ]
    return figures.figure(
        traces,
        title=f"Weights of head 1 of {h}",
        alt=f"The bug is: {bug}. {compare(right, wrong, may)}",
        xaxis={"domain": [0, 0.48], "title": "key, sound"},
        xaxis2={"domain": [0.52, 1], "title": "key, with the bug"},
        yaxis={"autorange": "reversed"},
    )


def compare(right: Tensor, wrong: Tensor, may: Tensor) -> str:
    """Say what tells two sets of weights (N, N) apart: their difference, sums and hidden weight."""
    apart = (right - wrong).abs()
    nan = int(wrong.isnan().any(dim=-1).sum())
    ones = int(((wrong.sum(dim=-1) - 1).abs() < 1e-2).sum())
    leak = wrong.nan_to_num()[~may].sum()
    return (
        "Largest difference between the two, where both are numbers: "
        f"{apart.nan_to_num().max():.2f}. With the bug, {ones} of {N} rows sum to one, {nan} are "
        f"not numbers, and all hidden keys together weigh {leak:.2f}."
    )
