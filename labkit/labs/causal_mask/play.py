"""Lab 2's laboratory: paint a mask, see what it leaves of the weights, and put it into a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.figures import plots as figures
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, standing, with_heads
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import encode
from labkit.models.training import HEADS, load_unmasked
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
TEXTS = ("the box suits mia hill . mia hill", "the hat suits tom ford . tom ford")
YOURS = "your masked_weights"
NOTHING = torch.full((N, N), torch.nan)
PATTERNS = {
    "causal": torch.ones(N, N).tril(),
    "all open": torch.ones(N, N),
    "strictly the past": torch.ones(N, N).tril(-1),
    "one step ahead": torch.ones(N, N).tril(1),
    "two neighbours": torch.ones(N, N).tril(1).triu(-1),
    "causal, keys 0 and 1 are padding": torch.ones(N, N).tril() * (torch.arange(N) > 1),
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
        for i in range(N)
        for j in range(N)
    }
    for name, switch in switches.items():
        label(name, switch)
        switch.observe(partial(relabel, name), names="value")
    rows = [
        widgets.HBox(
            [widgets.Label(f"query {i}", layout={"width": "4.5em"})]
            + [switches[f"q{i}k{j}"] for j in range(N)]
        )
        for i in range(N)
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
    broken = [str(i) for i, total in enumerate(sums) if not abs(total - 1) < 1e-4]
    rows = ", ".join(broken) or "none"
    told = [f"query {i} (sum {total:.2f})" for i, total in enumerate(sums)]
    return figures.heatmap(
        weights,
        rows=told,
        columns=[f"key {j}" for j in range(N)],
        title="Weights after masking",
        alt=f"{int(may.sum())} of {N * N} places are open, {int(may.triu(1).sum())} of them in the "
        f"future. Weight on hidden keys, over all rows: {hidden:.2f}. Rows that do not sum to "
        f"one: {rows}. Rows with no key left: {int((~may.any(dim=-1)).sum())}.",
        height=420,
    )


@finale
def in_the_model(causal_mask: Answer, masked_weights: Answer) -> None:
    """Print how two models do with an open future and with a learner's mask."""

    def attend(hides: bool, q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        n, d_k = q.shape[-2:]
        causal = causal_mask(n=n).tensor(n, n, boolean=True)
        mask = causal if hides else torch.ones_like(may)
        scores = (q @ k.mT / d_k**0.5).detach()
        return masked_weights(scores=scores, may=mask).tensor(*scores.shape).to(v) @ v

    for load, trained in ((load_unmasked, "without a mask"), (load_gpt, "with a mask")):
        for hides, now in ((False, "open"), (True, "your mask")):
            measured = standing(with_heads(partial(attend, hides), load()))
            loss, entropy, kl, *right = measured.values()
            if trained == "without a mask" and not hides:
                print(f"The entropy of the stories is {entropy:.3f} nats a word.\n")
                names = "".join(f"{name:>9}" for name in list(measured)[3:])
                print(f"trained         the future   loss  above it     KL{names}")
            told = "".join(f"{p:9.2f}" for p in right)
            print(f"{trained:15} {now:10} {loss:6.3f} {loss - entropy:9.3f} {kl:6.3f}{told}")


@finale
def search(leaks: Answer) -> None:
    """Let one head after the other see one word too far, and print the loss and the verdict."""
    x = load_gpt().words(torch.stack([encode(text) for text in TEXTS])).detach()
    for layer, head in (None, None), *((i, j) for i in range(2) for j in range(HEADS)):
        model = peeking(layer, head)
        verdict = leaks(network=stream(model), x=x).truth()
        if layer is None:
            print("sees one word too far    loss  leaks says")
        told = "no head" if layer is None else f"head {head} of layer {layer}"
        print(f"{told:22} {standing(model)['loss']:6.3f}  {verdict}")


@finale
def map_of(dependence: Answer) -> None:
    """Print which word's output depends on which word, in a sound model and two that leak."""
    words = encode(TEXTS[0])
    maps = {}
    for told, model in {
        "a sound mask": peeking(),
        "head 0 of layer 1": peeking(1, 0),
        "no mask": with_heads(weigh, load_unmasked()),
    }.items():
        x = model.words(words).detach()
        found = dependence(network=stream(model), x=x).tensor(len(x), len(x), boolean=True)
        maps[told] = [" ".join("x" if depends else "." for depends in row) for row in found]
    print("       " + "".join(f"{told:20}" for told in maps).rstrip())
    for word, *rows in zip(TEXTS[0].split(), *maps.values(), strict=True):
        print(f"{word:7}" + "".join(f"{row:20}" for row in rows).rstrip())


def weigh(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """Attend by the formula, which has every kind of derivative."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~may, -torch.inf).softmax(dim=-1) @ v


def peeking(layer: int | None = None, head: int | None = None) -> GPT:
    """Load the small GPT, and let one head see one word too far."""
    model = with_heads(weigh)

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        too_far = torch.ones_like(may).tril(1)
        return weigh(q, k, v, torch.stack([too_far if i == head else may for i in range(HEADS)]))

    if layer is not None:
        model.stack()[layer].attention.attend = attend  # type: ignore[assignment]
    return model


def stream(model: GPT) -> Callable[[Tensor], Tensor]:
    """Give the network between a model's word vectors and its logits: (..., n, d) to the same."""

    def network(x: Tensor) -> Tensor:
        whole = x.to(model.words.weight)
        whole = whole if x.ndim == 3 else whole[None]
        for block in model.stack():
            whole, _ = block(whole)
        return model.norm(whole).view_as(x).to(x)

    return network
