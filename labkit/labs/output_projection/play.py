"""Lab 4's task, laboratory and finale: heads that share, and heads that are silenced."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit import merge_heads, scaled_dot_product_attention, split_heads
from labkit.figures import plots as figures
from labkit.labs.guard import Answer, near
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import HeadsByHand, finale, one_thread, standing, stories, with_heads
from labkit.models.gpt import load_gpt
from labkit.models.stories import RELATIONS

POSITIONS, NUMBERS = 4, 8
WIDTH = NUMBERS + POSITIONS
DRAWN = {"sequences": 0}  # by copying, in this session
STEPS, EVERY, BATCH, RATE = 150, 10, 32, 0.05
SHARED = {  # patterns and sets of values, each either one for all heads or one a head
    "nothing": (False, False),
    "W_Q, W_K": (True, False),
    "W_Q, W_K, W_V": (True, True),
}


def copying(count: int) -> tuple[Tensor, Tensor]:
    """Draw sequences for the copying task.

    Returns the input, (count, 4, 12): a token's 8 random numbers, and 4 that tell its place; and
    the target, (count, 4, 8): the numbers of the token before, for the first token those of the
    last.
    """
    DRAWN["sequences"] += count
    return posed(torch.randn(count, POSITIONS, NUMBERS))


def posed(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Add their places to tokens (count, 4, 8), and say what is to be answered."""
    places = torch.eye(POSITIONS, dtype=numbers.dtype).expand(len(numbers), -1, -1)
    return torch.cat([numbers, places], dim=-1), numbers.roll(1, dims=1)


def evenly(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Make sequences of tokens, (tokens, 8), so that every direction has the variance 1."""
    orthonormal = torch.linalg.qr(numbers).Q * len(numbers) ** 0.5
    return posed(orthonormal.view(-1, POSITIONS, NUMBERS))


# The finale

FIXED = RELATIONS[1:]  # those that some earlier word decides
READ = 20  # stories in which it is looked what each head writes


@finale
@torch.no_grad()
def silence_heads(contributions: Answer, silence: Answer) -> None:
    """Measure what each head of the book's small GPT writes, and what falls if it is silent."""
    model, own = load_gpt(), standing(load_gpt())
    (written, fits), silent = lengths(contributions), True
    print(f"{'':18}{'writes':>7}{'loss':>7}" + "".join(f"{relation:>9}" for relation in FIXED))
    print(row("all heads", "", own))
    for i, block in enumerate(model.stack()):
        weight, h = block.attention.w_o.weight, block.attention.h
        whole = weight.clone()
        for head in range(h):
            muted = silence(weight=whole, head=head, h=h).tensor(*whole.shape)
            heads = torch.arange(whole.shape[1]) // block.attention.d_v
            silent = silent and near(muted, whole.masked_fill(heads == head, 0))
            weight.copy_(muted)
            told = standing(model)
            weight.copy_(whole)
            print(row(f"no head {head}, layer {i}", f"{written[i][head]:.2f}", told))
    if fits and silent:
        print("\nBoth functions are right here, too, so you can rely on the table.")
    if not fits:
        print("\ncontributions is not right yet: the first column is not what the heads write.")
    if not silent:
        print("\nsilence is not right yet: the other columns are not those of a silent head.")


@torch.no_grad()
def lengths(contributions: Answer) -> tuple[list[Tensor], bool]:
    """Measure what each head writes, by layer: its mean length over tokens; and say if it is so."""
    seen: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        seen.append(scaled_dot_product_attention(q, k, v, may))
        return seen[-1]

    model, written, fits = with_heads(attend), [], True
    model(stories().ids[:READ])
    for block, heads in zip(model.stack(), seen, strict=True):
        _, h, n, _ = heads.shape
        w_o = cast(HeadsByHand, block.attention).layer.w_o
        parts = torch.stack(
            [
                contributions(heads=one, W_O=w_o.weight.T).tensor(h, n, len(w_o.weight))
                for one in heads
            ]
        )
        written.append(parts.norm(dim=-1).mean(dim=(0, 2)))
        fits = fits and near(parts, heads.double() @ w_o.weight.T.double().unflatten(0, (h, -1)))
    return written, fits


def row(name: str, writes: str, told: dict[str, float]) -> str:
    """Write how a model does as a row of the table."""
    values = "".join(f"{told[relation]:9.2f}" for relation in FIXED)
    return f"{name:18}{writes:>7}{told['loss']:7.3f}{values}"


# The laboratory


def laboratory() -> Laboratory:
    """Make the controls for the number of heads, their width, what they share, and the seed."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 26em)"}}
    # Each change trains anew, so it waits for the end of a drag.
    later = {"continuous_update": False, **wide}
    controls = {
        "h": widgets.SelectionSlider(options=[1, 2, 4, 8], value=4, description="heads", **later),
        "d_v": widgets.SelectionSlider(options=[2, 4, 8], value=2, description="width", **later),
        "shared": widgets.Dropdown(
            options=list(SHARED), value="W_Q, W_K, W_V", description="shared", **wide
        ),
        "seed": widgets.BoundedIntText(value=0, min=0, max=9_999, description="seed", **wide),
    }
    return Laboratory(controls, draw)


def draw(h: int, d_v: int, shared: str, seed: int) -> Any:
    """Draw the test error while such a layer is trained, above the floor of its directions."""
    errors = train(h, d_v, shared, seed)
    directions = min(d_v if SHARED[shared][1] else h * d_v, NUMBERS)
    floor = 1 - directions / NUMBERS
    line = {"color": figures.GREY, "width": 2, "dash": "dot"}
    return figures.lines(
        {"test error": errors},
        x=range(0, STEPS + 1, EVERY),
        title=f"{h} × width {d_v}, shared: {shared}",
        alt=f"Heads: {h} of width {d_v}; shared: {shared}. The test error falls from "
        f"{errors[0]:.2f} to {errors[-1]:.2f} in {STEPS} steps. The heads write in {directions} of "
        f"{NUMBERS} directions at most, so it cannot fall below {floor:.2f}, the dotted line.",
        xaxis_title="training step",
        yaxis={"title": "mean squared error", "rangemode": "tozero"},
        shapes=[{"type": "line", "x0": 0, "x1": STEPS, "y0": floor, "y1": floor, "line": line}],
    )


def train(h: int, d_v: int, shared: str, seed: int) -> Tensor:
    """Train a layer on the copying task; give its test error every ten steps, to two places."""
    one_pattern, one_set = SHARED[shared]
    patterns, sets = (1 if one_pattern else h), (1 if one_set else h)
    normal = partial(torch.randn, dtype=torch.float64)  # so that every machine draws the same curve
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        into = [(WIDTH, count * d_v) for count in (patterns, patterns, sets)]
        drawn = [normal(s) / s[0] ** 0.5 for s in [*into, (h * d_v, NUMBERS)]]
        W_Q, W_K, W_V, W_O = parameters = [matrix.requires_grad_() for matrix in drawn]

        def run(x: Tensor) -> Tensor:
            parts = zip((W_Q, W_K, W_V), (patterns, patterns, sets), strict=True)
            q, k, v = (split_heads(x @ matrix, count) for matrix, count in parts)
            return merge_heads(scaled_dot_product_attention(q, k, v).expand(-1, h, -1, -1)) @ W_O

        test_x, test_y = evenly(normal(1_000, NUMBERS))
        optimiser, errors = torch.optim.Adam(parameters, lr=RATE), []
        for step in range(STEPS + 1):
            if step % EVERY == 0:
                with torch.no_grad():
                    errors.append(F.mse_loss(run(test_x), test_y))
            x, y = posed(normal(BATCH, POSITIONS, NUMBERS))
            optimiser.zero_grad()
            F.mse_loss(run(x), y).backward()
            optimiser.step()
    return torch.stack(errors).round(decimals=2)
