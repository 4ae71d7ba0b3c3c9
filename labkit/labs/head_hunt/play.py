"""Lab 6's laboratory: read a sentence with a head of the pretrained encoder, or without it."""

from __future__ import annotations

from typing import Any

from labkit import heads
from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory
from labkit.models.encoder import load_encoder

FIRST = "The animal didn't cross the street because it was too tired."
SILENT = {
    "nothing": lambda layer, head, h: [],
    "this head": lambda layer, head, h: [(layer, head)],
    "the other heads of its layer": lambda layer, head, h: [
        (layer, other) for other in range(h) if other != head
    ],
    "all heads of its layer": lambda layer, head, h: [(layer, other) for other in range(h)],
    "all heads of earlier layers": lambda layer, head, h: [
        (earlier, other) for earlier in range(layer) for other in range(h)
    ],
}
MOST_TOKENS = 40  # that a phone still shows apart
PLACES = 2  # of a weight: more would differ from machine to machine


def laboratory() -> Laboratory:
    """Make the controls for a sentence, a head, and what is silenced."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 40em)"}}
    layers = load_encoder().blocks
    controls = {
        "sentence": widgets.Text(
            value=FIRST, description="sentence", continuous_update=False, **wide
        ),
        "layer": widgets.IntSlider(value=3, max=len(layers) - 1, description="layer", **wide),
        "head": widgets.IntSlider(
            value=1, max=layers[0].attention.h - 1, description="head", **wide
        ),
        "silenced": widgets.Dropdown(options=list(SILENT), description="silenced", **wide),
    }
    return Laboratory(controls, draw)


def draw(sentence: str, layer: int, head: int, silenced: str) -> Any:
    """Draw where a head looks in a sentence; tell its weights, and what is left of the vector."""
    encoder = load_encoder()
    h = encoder.blocks[layer].attention.h
    try:
        whole = encoder.encode([sentence])
        with encoder.without(SILENT[silenced](layer, head, h)):
            encoded = encoder.encode([sentence])
        tokens, weights = encoded.sentence(0)
        if len(tokens) > MOST_TOKENS:
            raise ValueError(f"at most {MOST_TOKENS} tokens can be shown; this has {len(tokens)}.")
    except ValueError as error:
        return figures.figure([], title="Another sentence, please", alt=f"Nothing to show: {error}")
    A = weights[layer, head]
    left = (encoded.vectors * whole.vectors).sum().item()
    places = [f"{i} {token}" for i, token in enumerate(tokens)]
    among_words = A[1:-1, 1:-1]
    query, key = divmod(int(among_words.argmax()), len(tokens) - 2)
    parts = {
        "the token before": heads.previous_weight(A),
        "the token after": heads.next_weight(A),
        "[CLS]": heads.first_weight(A),
        "[SEP]": A[:, -1].mean(),
    }
    told = ", ".join(f"{value:.2f} to {name}" for name, value in parts.items())
    return figures.figure(
        [
            {
                "type": "heatmap",
                "z": A.round(decimals=PLACES),
                "x": places,
                "y": places,
                "zmin": 0,
                "zmax": 1,
                "colorscale": "Cividis",
                "showscale": False,
                "xgap": 1,
                "ygap": 1,
                "hovertemplate": "from %{y} to %{x}: %{z}<extra></extra>",
            }
        ],
        title=f"Where head ({layer}, {head}) looks",
        alt=f"Head ({layer}, {head}), on average over the tokens: {told}. Its largest weight "
        f"between words: {among_words.max():.2f} from {tokens[query + 1]} to {tokens[key + 1]}. "
        f"Silenced: {silenced}. The sentence's vector keeps a cosine of {left:.3f}.",
        yaxis_autorange="reversed",
        xaxis={"title": "to", "tickangle": -60},
        yaxis_title="from",
        height=560,
    )
