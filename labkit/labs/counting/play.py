"""Lab 5's laboratory: what a layer of a known model costs, and what any change does to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from labkit import counting
from labkit.attention import MultiHeadAttention, split_heads
from labkit.figures import plots as figures
from labkit.figures.tables import Table
from labkit.labs.counting.check import results
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, one_thread
from labkit.models.gpt import load_gpt
from labkit.models.published import MODELS
from labkit.models.stories import Stories
from labkit.models.training import UNSEEN_SEED, WORDS

ENCODERS = ("base Transformer", "T5-11B")  # of which only that part is counted
STARTS = {f"{name}, encoder" if name in ENCODERS else name: MODELS[name] for name in MODELS}
SIZES = ("d_model", "h", "d_k", "layers")
MOST = (32_768, 1_024, 1_024, 1_000)
TYPES = {"float32": 4, "bfloat16": 2, "int8": 1}
LONGEST = 1024  # words that the small GPT reads here in a fraction of a second
BETS = (
    "Words from which on the two products have half of the FLOPs",
    "Their share of the six products' seconds there, in percent",
    "The six products' share of a layer's seconds at 48 words, in percent",
)
PATIENCE = 0.1  # seconds for which one piece of work is timed


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


def in_the_model(
    *,
    half_at: float | None = None,
    seconds_there: float | None = None,
    all_six: float | None = None,
    **answers: Callable[..., Any],
) -> None:
    """Hold predictions and bets against the small GPT's attention: its file, a counter, a clock.

    Args:
        half_at: a bet, the words from which on the two products have half of the FLOPs.
        seconds_there: a bet, their percentage of the six products' seconds there.
        all_six: a bet, the six products' percentage of a layer's seconds at 48 words.
        answers: parameters, multiply_adds, crossover, weight_memory and flops.
    """
    bets = {"half_at": half_at, "seconds_there": seconds_there, "all_six": all_six}
    for name, bet in bets.items():  # before the clock runs
        if bet is not None and (isinstance(bet, bool) or not isinstance(bet, Real)):
            raise TypeError(
                f"{name} must be a number or None; got {bet!r}; write it as in {name}=7"
            )
    found = compare(**answers)
    for what, bet, came in zip(BETS, bets.values(), found or (), strict=False):
        if bet is not None:
            print(f"{what}: you bet on {bet:g}, and it is {came:.0f}.")


@finale
@torch.no_grad()
def compare(
    parameters: Answer,
    multiply_adds: Answer,
    crossover: Answer,
    weight_memory: Answer,
    flops: Answer,
) -> tuple[float, float, float]:
    """Print predictions beside what is held, counted and timed; return what the bets are on."""
    model = load_gpt()
    layers = [block.attention for block in model.stack()]
    layer = layers[0]
    d_model, h, d_k = layer.d_model, layer.h, layer.d_k
    own = parameters(d_model=d_model, h=h, d_k=d_k, d_v=layer.d_v, bias=True).number()
    held = sum(map(counting.count_parameters, layers))
    outcome = crossover(d_model=d_model, causal=False)
    border, half_at = outcome.number(), 2 * d_model
    fits = border.is_integer() and 2 <= border <= LONGEST
    outcome.demand(fits, f"a length from 2 to {LONGEST:,}", f"came {border:g}")
    right = {"parameters": len(layers) * own == held, "crossover": border == half_at}
    right |= dict.fromkeys(("multiply_adds", "flops"), True)
    rows: list[tuple[Any, ...]] = [
        ("words", "FLOPs predicted", "counted", "QKᵀ and AV", "in seconds", "all six")
    ]
    timed = {}
    for n in sorted({WORDS, int(border) - 1, int(border), half_at, LONGEST // 4, LONGEST}):
        x = model.words(Stories.draw(1, n, UNSEEN_SEED).ids)
        predicted = len(layers) * flops(B=1, n_q=n, n_k=n, d_model=d_model, h=h, d_k=d_k).number()
        counted = sum(counting.count_flops(each, x, return_weights=True) for each in layers)
        right["flops"] &= predicted == counted
        outcome = multiply_adds(n=n, d_model=d_model, h=h)
        macs = [part.number() for part in results(outcome, "projections", "products")]
        count = counting.projection_macs, counting.product_macs
        right["multiply_adds"] &= macs == [part(n, d_model, h) for part in count]
        first, second, whole = seconds(layer, x)
        timed[n] = (100 * second / (first + second), 100 * (first + second) / whole)
        shares = (f"{macs[1] / sum(macs):.1%}", *(f"{share:.0f}%" for share in timed[n]))
        rows.append((n, f"{predicted:,.0f}", f"{counted:,}", *shares))
    outcome = weight_memory(B=1, h=h, n=LONGEST, bytes_each=4)
    _, megabytes = (part.number() for part in results(outcome, "matrices", "megabytes"))
    weights = layer(x, is_causal=True, return_weights=True)[1].nbytes / 1e6
    right["weight_memory"] = abs(megabytes - weights) < 1e-5 * weights
    print(
        f"The attention of the small GPT: {len(layers)} layers of width {d_model}, {h} heads each. "
        f"Parameters predicted {len(layers) * own:,.0f}, held {held:,}. Weights of one layer at "
        f"{LONGEST:,} words: predicted {megabytes:.3f} MB, held {weights:.3f} MB.\n"
        "QKᵀ and AV: their share of the six products' FLOPs, then of the six products' seconds. "
        "All six: their share of the layer's seconds."
    )
    print(Table(*rows))
    wrong = [name for name, fits in right.items() if not fits]
    print(
        f"Not what is held and counted: {', '.join(wrong)}. The checks above say more."
        if wrong
        else "Every prediction is what is held and counted, to the last digit."
    )
    return half_at, timed[half_at][0], timed[WORDS][1]


def seconds(layer: MultiHeadAttention, x: Tensor) -> tuple[float, float, float]:
    """Time a layer's projections, its products, and the whole of it, on one thread."""
    q, k, v = (split_heads(part(x), layer.h) for part in (layer.w_q, layer.w_k, layer.w_v))
    weights = (q @ k.mT).softmax(-1)
    with one_thread():
        return (
            quickest(lambda: [part(x) for part in (layer.w_q, layer.w_k, layer.w_v, layer.w_o)]),
            quickest(lambda: (q @ k.mT, weights @ v)),
            quickest(lambda: layer(x, is_causal=True, return_weights=True)),
        )


def quickest(work: Callable[[], Any]) -> float:
    """Give the seconds of the quickest of several rounds, the first of which does not count."""
    work()
    rounds: list[float] = []
    while len(rounds) < 3 or sum(rounds) < PATIENCE:
        begun = time.perf_counter()
        work()
        rounds.append(time.perf_counter() - begun)
    return min(rounds)
