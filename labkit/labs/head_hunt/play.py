"""Lab 6's laboratory: read a sentence with a head of the pretrained encoder, or without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from labkit import heads
from labkit.figures import plots as figures
from labkit.figures.tables import Table
from labkit.labs.guard import Answer
from labkit.labs.head_hunt.check import CHOSEN, in_parts
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, stories
from labkit.models.ablation import FOUR, ablated_heads, right_words
from labkit.models.encoder import load_encoder
from labkit.models.gpt import GPT, load_gpt

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
LOOKS = 0.5  # the least weight on a relation of a head that is said to look there


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
                "colorscale": figures.SEQUENTIAL,
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


@finale
@torch.no_grad()
def in_the_model(weight_on: Answer, relations: Answer, held_out: Answer) -> None:
    """Hunt in the small GPT with a learner's measures, then ablate what was found."""
    model, told = load_gpt(), stories()
    _, weights = model(told.ids, return_weights=True)
    each = [(layer, head) for layer in range(len(weights)) for head in range(weights.shape[2])]
    # All heads of all layers, and the queries of all stories below one another.
    asked = weights.permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1, 2)
    n = told.ids.shape[1]
    outcome = relations(tokens=[word.text for word in told.words[0]])
    previous, _ = in_parts(outcome, "previous", "delimiters")
    before = previous.tensor(n, n, boolean=True).repeat(len(told.ids), 1)
    places = {name: told.sources(name).flatten(0, 1) for name in FOUR}
    rows: list[tuple[Any, ...]] = [
        ("looks at the source of", "chosen head", "1st half", "2nd half", "heads, by weight")
    ]
    silenced: dict[tuple[tuple[int, int], ...], str] = {(): "nothing"}
    for name, related in places.items():
        on = weight_on(weights=asked, relation=related).tensor(len(each))
        cases = first_choices(asked, related)
        head, *counts = in_parts(held_out(correct=cases), *CHOSEN)
        chosen = head.number()
        head.demand(
            chosen in range(len(each)), f"a head from 0 to {len(each) - 1}", f"came {chosen}"
        )
        shares = [f"{2 * count.number() / len(cases):.0%}" for count in counts]
        looking = sorted((i for i in range(len(each)) if on[i] >= LOOKS), key=lambda i: -on[i])
        found = ", ".join(f"{each[i]} {on[i]:.2f}" for i in looking)
        rows.append((name, each[int(chosen)], *shares, found))
        for some, words in (([int(chosen)], name), (looking, f"all for {name}")):
            group = tuple(each[i] for i in some)
            if silenced.setdefault(group, words) != words and words == name:
                silenced[group] += f", {name}"
    back = weight_on(weights=asked, relation=before).tensor(len(each))
    silenced[(each[int(back.argmax())],)] = f"the word before: {back.max():.2f}"
    print(Table(*rows))
    print()
    print(Table(("silenced", "because it looks for", *FOUR), *lost(model, silenced)))


def first_choices(asked: Tensor, related: Tensor) -> Tensor:
    """Say for each query with a related key which heads give one of them most weight.

    Returns:
        (queries, heads), boolean, of an even number of queries.
    """
    where = related.any(dim=-1).nonzero().flatten()
    where = where[: len(where) // 2 * 2]
    best = asked[:, where].argmax(dim=-1, keepdim=True)
    return related[where].expand(len(asked), -1, -1).gather(-1, best)[..., 0].T


def lost(
    model: GPT, silenced: Mapping[tuple[tuple[int, int], ...], str]
) -> Iterator[tuple[Any, ...]]:
    """Give the share of right words among words of their kind, each group of heads ablated once."""
    score = right_words(stories(), of_their_kind=True)
    for group, words in silenced.items():
        with ExitStack() as stack:
            for layer, head in group:
                stack.enter_context(ablated_heads(model.stack()[layer].attention, [head]))
            found = score(model)
        names = " ".join(map(str, group))
        yield names, words, *(f"{right:.2f}" for right in found.tolist())
