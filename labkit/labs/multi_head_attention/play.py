"""Lab 3's laboratory: break one part of a layer at a time, and see who hears from whom."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory

D_MODEL = 8
SPLITS = {
    "cut, then move the axis": split_heads,
    "one view": lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
}
MERGES = {
    "move the axis back, then join": merge_heads,
    "join as it lies": lambda heads: heads.reshape(len(heads), heads.shape[2], -1),
}
SOFTMAXES = {"over the keys": -1, "over the queries": -2}
SCALES = {
    "1/√d_k": lambda d_k: d_k**-0.5,
    "1/√d_model": lambda d_k: D_MODEL**-0.5,
    "none": lambda d_k: 1.0,
}
OUTPUTS = {"used": True, "forgotten": False}


def laboratory() -> Laboratory:
    """Make the controls for the parts of a causal layer, its heads and its positions."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 26em)"}}

    def choose(choices: dict[str, Any], name: str) -> Any:
        return widgets.Dropdown(options=list(choices), description=name, **wide)

    controls = {
        "split": choose(SPLITS, "split"),
        "softmax": choose(SOFTMAXES, "softmax"),
        "scale": choose(SCALES, "scale"),
        "merge": choose(MERGES, "merge"),
        "w_o": choose(OUTPUTS, "W_O"),
        "h": widgets.SelectionSlider(options=[1, 2, 4, 8], value=2, description="h", **wide),
        "n": widgets.IntSlider(value=4, min=2, max=6, description="n", **wide),
    }
    return Laboratory(controls, draw)


def draw(split: str, softmax: str, scale: str, merge: str, w_o: str, h: int, n: int) -> Any:
    """Draw how much each output hears from each input, and tell what PyTorch's layer says."""
    layer, x = make(h, n)
    may = causal_mask(n)

    def run(x: Tensor) -> Tensor:
        q, k, v = (SPLITS[split](part(x), h) for part in (layer.w_q, layer.w_k, layer.w_v))
        scores = (q @ k.mT * SCALES[scale](layer.d_k)).masked_fill(~may, float("-inf"))
        joined = MERGES[merge](scores.softmax(dim=SOFTMAXES[softmax]) @ v)
        return layer.w_o(joined) if OUTPUTS[w_o] else joined

    out = run(x)
    apart = (out - layer.to_torch()(x, x, x, attn_mask=~may)[0]).abs().max()
    # (1, n, d_model, 1, n, d_model): output position and number, then input position and number.
    jacobian = torch.autograd.functional.jacobian(run, x)
    heard = jacobian.square().sum(dim=(0, 2, 3, 5)).sqrt()
    ahead = int((heard > 0).triu(1).sum())
    return figures.heatmap(
        heard / heard.sum(dim=1, keepdim=True),
        rows=[f"output {i + 1}" for i in range(n)],
        columns=[f"input {j + 1}" for j in range(n)],
        title=f"Who hears from whom: {h} heads, {n} positions",
        alt=f"The output has the shape {tuple(out.shape)}; it should be {(1, n, D_MODEL)}. Largest "
        f"difference from PyTorch's layer: {apart:.2f}. Later inputs that an output hears from: "
        f"{ahead} of {n * (n - 1) // 2} pairs; there should be none.",
        height=420,
    )


def make(h: int, n: int) -> tuple[MultiHeadAttention, Tensor]:
    """Make a layer of h heads and an input of n positions, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = MultiHeadAttention(D_MODEL, h, dtype=torch.float64).requires_grad_(False)
        return layer, torch.randn(1, n, D_MODEL, dtype=torch.float64)
