"""Lab 1's laboratory: what width, number of keys and scale do to a softmax, and to a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labkit.figures import plots as figures
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import Attend, finale, standing, stories, with_heads
from labkit.softmax import softmax_jacobian

DRAWS, BOUND, BINS = 2_000, 0.30, 20
BEGINNINGS, BEGINNING = 40, 24  # stories, and how many words of each the model reads
HARDLY = 0.01  # a norm of the Jacobian under which a softmax hardly reacts
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
    line = {"dash": "dash", "width": 3, "color": figures.ORANGE}
    at = {"xref": "x2", "yref": "paper", "x": BOUND, "y": 1, "xshift": 4}
    return figures.figure(
        [first, {**shares, "xaxis": "x2", "yaxis": "y2"}],
        title=f"d_k = {d_k}, {keys} keys, scale {scale}",
        alt=f"First draw: the scaled scores have a deviation of {scores[0].std():.2f}, the largest "
        f"weight is {peaks[0]:.2f}, and the Jacobian's norm is {norms[0]:.3f}. Of {DRAWS:,} draws, "
        f"{below:.0%} have a largest weight under {BOUND:.2f}; the median norm is "
        f"{norms.median():.3f}.",
        xaxis={"title": "key", "domain": [0, 0.39]},
        yaxis={"title": "weight, first draw", "range": [0, 1.05]},
        xaxis2={"title": "largest weight", "domain": [0.61, 1], "range": [0, 1]},
        yaxis2={"title": "share of draws", "anchor": "x2", "rangemode": "tozero"},
        shapes=[{**bound, "x0": BOUND, "x1": BOUND, "line": line}],
        annotations=[{**at, "text": f"bound {BOUND:.2f}", "xanchor": "left", "showarrow": False}],
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


def heads(weights: Answer, scale: str, told: Callable[[Tensor], None] | None = None) -> Attend:
    """Make heads that weigh the words up to each one by a learner's softmax.

    told : is handed the weights of the last word, (B h, n)
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        scores, (n, d_k), written = q @ k.mT, q.shape[-2:], []
        for seen in range(1, n + 1):
            of_word = scores[..., seen - 1, :seen].flatten(0, 1)
            outcome = weights(scores=of_word, scale=SCALES[scale](d_k))
            p = outcome.tensor(*of_word.shape).to(v)
            written.append(
                torch.einsum("bhk,bhkv->bhv", p.view(*q.shape[:2], seen), v[..., :seen, :])
            )
        if told:
            told(p)
        return torch.stack(written, dim=2)

    return attend


@finale
def in_the_model(weights: Answer) -> None:
    """Print how the small GPT does with a learner's softmax at each scale."""
    for scale in SCALES:
        measured = standing(with_heads(heads(weights, scale)))
        loss, entropy, _, *right = measured.values()
        if scale == next(iter(SCALES)):
            print(f"The entropy of the stories is {entropy:.3f} nats a word.\n")
            print("scale    loss  above it ", *(f"{name:>8}" for name in list(measured)[3:]))
        print(f"{scale:7} {loss:5.3f} {loss - entropy:9.3f} ", *(f"{p:8.2f}" for p in right))


@finale
def reaction(weights: Answer, jacobian_norm: Answer) -> None:
    """Print in which share of the small GPT's rows the softmax hardly reacts, at each scale."""
    beginnings = stories().ids[:BEGINNINGS, :BEGINNING]
    for scale in SCALES:
        norms: list[Tensor] = []

        def measure(p: Tensor, norms: list[Tensor] = norms) -> None:
            norms.append(jacobian_norm(p=p).tensor(len(p)))

        with torch.no_grad():
            with_heads(heads(weights, scale, measure))(beginnings)
        of_all = torch.cat(norms)
        share = (of_all < HARDLY).double().mean()
        print(f"{scale:7} {share:4.0%} of {len(of_all)} rows have a norm under {HARDLY}")
