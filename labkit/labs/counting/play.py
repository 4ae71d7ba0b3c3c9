"""Lab 5's laboratory: what a layer of a known model costs, and what any change does to it."""

from __future__ import annotations

from typing import Any

from labkit import counting
from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory
from labkit.models.published import MODELS

ENCODERS = ("base Transformer", "T5-11B")  # of which only that part is counted
STARTS = {f"{name}, encoder" if name in ENCODERS else name: MODELS[name] for name in MODELS}
SIZES = ("d_model", "h", "d_k", "layers")
MOST = (32_768, 1_024, 1_024, 1_000)
TYPES = {"float32": 4, "bfloat16": 2, "int8": 1}


def laboratory() -> Laboratory:
    """Make the controls for a model, the sequence, the batch and the type of a number."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 26em)"}}
    model = widgets.Dropdown(options=list(STARTS), description="model", **wide)
    sizes = {
        name: widgets.BoundedIntText(value=value, min=1, max=most, description=name, **wide)
        for name, value, most in zip(SIZES, STARTS[model.value], MOST, strict=False)
    }
    controls = {
        **sizes,
        "n": widgets.SelectionSlider(
            options=[2**power for power in range(18)], value=1024, description="n", **wide
        ),
        "B": widgets.BoundedIntText(value=1, min=1, max=4096, description="B", **wide),
        "number": widgets.Dropdown(options=list(TYPES), description="number", **wide),
    }
    lab = Laboratory(controls, draw, widgets.VBox([model, *controls.values()]))

    def start_from(change: Any) -> None:
        with lab.at_once():
            for name, value in zip(SIZES, STARTS[change.new], strict=False):
                sizes[name].value = value

    model.observe(start_from, names="value")
    return lab


def draw(d_model: int, h: int, d_k: int, layers: int, n: int, B: int, number: str) -> Any:
    """Draw the FLOPs and the bytes of all layers, part by part."""
    size = TYPES[number]
    parameters = counting.attention_parameters(d_model, h, d_k=d_k, bias=False)
    flops, memory = (
        {part: layers * amount for part, amount in parts.items()}
        for parts in (layer_flops(d_model, h, d_k, n, B), layer_bytes(d_model, h, d_k, n, B, size))
    )
    total = sum(flops.values())
    share = (flops["QKᵀ"] + flops["A V"]) / total
    bars = [
        {"type": "bar", "orientation": "h", "x": [amount / unit for amount in parts.values()],
         "y": list(parts), "xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        for parts, unit, axis in ((flops, 1e9, ""), (memory, 1e6, 2))
    ]  # fmt: skip
    first, second = {"domain": [0.58, 1]}, {"domain": [0, 0.4]}
    return figures.figure(
        bars,
        title="What the attention of a model costs",
        alt=f"{layers} layers of width {d_model:,} with {h} heads of width {d_k} have "
        f"{told(layers * parameters)} parameters in matrices. For B = {B:,} and n = {n:,} they "
        f"take {told(total)} FLOPs, {share:.0%} of them in the products QKᵀ and A V, which catch "
        f"up with the projections at n = {2 * d_model:,}. In {number}, parameters take "
        f"{told(memory['parameters'])}B, the keys and values of all positions "
        f"{told(memory['keys, values'])}B, and all weights, if they were kept, "
        f"{told(memory['weights'])}B.",
        height=460,
        xaxis={"title": "billions of FLOPs", "anchor": "y"},
        yaxis={"autorange": "reversed", **first},
        xaxis2={"title": "megabytes", "anchor": "y2"},
        yaxis2={"autorange": "reversed", "anchor": "x2", "automargin": True, **second},
        showlegend=False,
    )


def layer_flops(d_model: int, h: int, d_k: int, n: int, B: int) -> dict[str, int]:
    """Give the FLOPs of one layer, product by product."""
    one_projection = counting.projection_macs(n, d_model, h, d_k=d_k) // 4
    one_product = counting.product_macs(n, d_model, h, d_k=d_k) // 2
    macs = dict.fromkeys(("Q", "K", "V", "QKᵀ", "A V", "W_O"), one_projection)
    macs |= {"QKᵀ": one_product, "A V": one_product}
    return {part: counting.FLOPS_PER_MAC * B * amount for part, amount in macs.items()}


def layer_bytes(d_model: int, h: int, d_k: int, n: int, B: int, size: int) -> dict[str, int]:
    """Give the bytes of one layer's matrices, keys and values, and weights."""
    return {
        "parameters": size * counting.attention_parameters(d_model, h, d_k=d_k, bias=False),
        "keys, values": size * 2 * B * n * h * d_k,
        "weights": size * counting.score_entries(h, n, B=B),
    }


def told(amount: float) -> str:
    """Write a number with four digits and a prefix: 2.359 M."""
    power = (len(str(round(amount))) - 1) // 3
    return f"{amount / 1000**power:.4g} {('', *'kMGTPEZY')[power]}"
