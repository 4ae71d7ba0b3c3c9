"""One small tensor through split, attention and merge, rightly and by a mistake."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from traitlets import Dict, Unicode

from labkit.attention import scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure

TOKENS, WIDTH = 4, 6
STEPS = 6  # as projected, cut, moved, attended, moved back, joined
STRAIGHT, NEVER, NOT_BACK = MISTAKES = ["straight into heads", "never moved", "not moved back"]
TOO_SMALL = 1e-9  # for a difference or a share


class Layout(NamedTuple):
    """The numbers and what they hold of each token, (1 + TOKENS, ...), and the tokens' axis."""

    parts: Tensor
    tokens: int

    def moved(self) -> Layout:
        return Layout(self.parts.transpose(-3, -2), 1 - self.tokens)


class SplitAndMerge(LiveFigure):
    """Follow 24 numbers from the projection to the joined heads, beside a mistake with the axes.

    Number 23 is token 2, feature 3. Attention is causal, with queries of zero: all that a query
    may see weighs the same, and a number becomes the mean of itself and of what came before.

    Args:
        state: the traits: ``h`` heads (1, 2 or 3), ``step`` (0 to 5: as projected, cut, moved,
            attended, moved back, joined) and ``mistake`` ("straight into heads": one view in place
            of cutting and moving; "never moved"; or "not moved back").

    >>> SplitAndMerge(step=5).values()["numbers from the future"]
    [0, 9]
    """

    title = Unicode("Split and merge, step by step").tag(sync=True)
    caption = Unicode(
        "The numbers of four tokens with six features go through split, causal attention and "
        "merge: correctly, and beside it with a mistake. Colours show of which tokens a number is "
        "made, and × that some of it comes from the future of the position where it stands. You "
        "choose the step, the mistake and the number of heads."
    ).tag(sync=True)
    axes = Dict(
        {
            "right": ["row", "column"],
            "wrong": ["row", "column"],
            "numbers from the future": [["right", "wrong"]],
        }
    ).tag(sync=True)
    h = Choice([1, 2, 3], default_value=2).tag(sync=True)
    step = Choice(range(STEPS), default_value=0).tag(sync=True)
    mistake = Choice(MISTAKES, default_value=STRAIGHT).tag(sync=True)

    def values(self) -> dict[str, Any]:
        right, wrong = walk(self.h), walk(self.h, self.mistake)
        here = right[self.step], wrong[self.step]
        differs = (right[-1].parts[0] - wrong[-1].parts[0]).abs() > TOO_SMALL
        return {
            "right": here[0].parts[0].flatten(0, -2).tolist(),
            "wrong": here[1].parts[0].flatten(0, -2).tolist(),
            "numbers from the future": [from_future(layout) for layout in here],
            "numbers that end up wrong": int(differs.sum()),
        }


def walk(h: int, mistake: str | None = None) -> list[Layout]:
    """Give the layout after each step."""
    token, feature = torch.meshgrid(
        torch.arange(1, TOKENS + 1), torch.arange(1, WIDTH + 1), indexing="ij"
    )
    shares = (token == torch.arange(1, TOKENS + 1)[:, None, None]).double()
    start = torch.cat([(10 * token + feature)[None].double(), shares])
    if mistake == STRAIGHT:
        cut = Layout(start.view(-1, h, TOKENS, WIDTH // h), tokens=1)
    else:
        cut = Layout(start.view(-1, TOKENS, h, WIDTH // h), tokens=0)
    moved = cut if mistake in (STRAIGHT, NEVER) else cut.moved()
    attended = moved._replace(parts=mean_of_past(moved.parts))
    back = attended if mistake in (NEVER, NOT_BACK) else attended.moved()
    joined = back.parts.reshape(start.shape)
    return [Layout(start, 0), cut, moved, attended, back, Layout(joined, 0)]


def mean_of_past(x: Tensor) -> Tensor:
    """Attend causally with scores of zero: (..., n, d) to (..., n, d)."""
    zeros = torch.zeros_like(x)
    return scaled_dot_product_attention(zeros, zeros, x, is_causal=True)


def from_future(layout: Layout) -> int:
    """Count the numbers that hold a share of a token beyond the position where they stand."""
    held = layout.parts[1:].movedim(1 + layout.tokens, 1).flatten(2) > TOO_SMALL
    later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(-1)  # token, position
    return int((held & later[:, :, None]).any(0).sum())
