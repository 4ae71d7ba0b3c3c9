"""Lab 7's finale, bugs planted in the book's model, and its laboratory, the weights of a bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit import causal_mask
from labkit.figures import plots as figures
from labkit.labs.bug_zoo import check
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import Attend, finale, standing, with_heads
from labkit.labs.zoo import Implementation, unnamed

N = 4
INF = float("inf")
WIDTHS = [1, 4, 16, 64]
SEEN = 0.01  # nats a word by which a loss has to differ, or nobody would ask why
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
            "colorscale": figures.SEQUENTIAL,
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


# The finale: attend takes (..., n_q, d_k), (..., n_k, d_k), (..., n_k, d_v) and a mask (n_q, n_k)


def masked(q: Tensor, k: Tensor, may: Tensor) -> Tensor:
    return check.scores(q, k).masked_fill(~may, -INF)


def along_queries(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    return masked(q, k, may).softmax(dim=-2) @ v


def bare_exponentials(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    e = masked(q, k, may).exp()
    return e / e.sum(dim=-1, keepdim=True) @ v


def cut(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    return check.scores(q, k).clamp(-100, 100).masked_fill(~may, -INF).softmax(dim=-1) @ v


def as_weights(attend: Attend) -> Implementation:
    """Make weights(q, k) of an attend, with the identity as values and nothing hidden."""

    def weights(q: Tensor, k: Tensor) -> Tensor:
        n_q, n_k = q.shape[-2], k.shape[-2]
        unit = torch.eye(n_k).expand(*k.shape[:-1], n_k)
        return attend(q, k, unit, torch.ones(n_q, n_k, dtype=torch.bool))

    return weights


def causal(attend: Implementation) -> Attend:
    """Make of a causal attend(q, k, v) one that is handed a mask, and does without."""
    return lambda q, k, v, may: attend(q, k, v)


class Planted(NamedTuple):
    """A bug: in words, whose promise it breaks, as all heads of the model have it, and tested."""

    bug: str
    test: str
    attend: Attend
    tested: Implementation


def planted() -> list[Planted]:
    """List the bugs that the model gets, one at a time; the first is none."""
    in_weights: dict[str, Attend] = {
        "none": check.filled,
        "scale forgotten": lambda q, k, v, may: check.filled(q * q.shape[-1] ** 0.5, k, v, may),
        "scale of the whole model": lambda q, k, v, may: check.filled(
            q / q.shape[-3] ** 0.5, k, v, may
        ),
        "softmax over the queries": along_queries,
        "exponentials without maximum": bare_exponentials,
        "scores cut at 100": cut,
    }
    in_masks: dict[str, Attend] = {
        "mask after the softmax": check.masked_afterwards,
        "a fill that nobody keeps": check.not_kept,
        "True and False added": check.truth_added,
        "a fill of 10⁻⁹": check.filled_with_little,
        "a fill of −100": check.filled_too_high,
        "−10⁹ in half precision": check.product_in_own_type,
        "a mask only where square": check.only_if_square,
    }
    in_pasts: dict[str, Implementation] = {
        "one position too many": check.one_too_many,
        "diagonal from the top left": check.flagged,
        "past of 64 positions": check.past_of_64,
    }
    return [
        *(Planted(bug, "weights_are_sound", a, as_weights(a)) for bug, a in in_weights.items()),
        *(Planted(bug, "hidden_is_hidden", a, a) for bug, a in in_masks.items()),
        *(Planted(bug, "past_is_kept", causal(a), a) for bug, a in in_pasts.items()),
    ]


@finale
def in_the_model(**tests: Answer) -> None:
    """Plant bugs in all heads of the story GPT; print its loss, and what the tests say of each."""
    said = [tests[one.test](implementation=unnamed(one.tested)).truth() for one in planted()]
    rows = [
        (one, sound, standing(with_heads(one.attend)))
        for one, sound in zip(planted(), said, strict=True)
    ]
    usual = rows[0][2]["loss"]
    silent = [sound for _, sound, measured in rows[1:] if abs(measured["loss"] - usual) < SEEN]
    print(f"{'bug in all heads':30}{'loss':>6}  {'in the loss':13}your test")
    for one, sound, measured in rows:
        seen = "to be seen" if abs(measured["loss"] - usual) >= SEEN else "nothing"
        print(
            f"{one.bug:30}{measured['loss']:6.3f}  {seen:13}"
            f"{'sound' if sound else 'a bug'}, says {one.test}"
        )
    print(
        f"\nThe stories' entropy is {rows[0][2]['entropy']:.3f} nats a word. The loss shows "
        f"{len(rows) - 1 - len(silent)} of {len(rows) - 1} bugs. Of the {len(silent)} that it does "
        f"not show, your tests find {silent.count(False)}."
    )
