"""What chapter 13 tells of time: attention of a prompt, plainly, in tiles and on the kernel; a step
through a cache, and through the state of linear attention.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.attention import causal_mask, scaled_dot_product_attention
from labkit.models.linear_attention import LinearState
from labkit.tiles import tiled_attention
from press.decoding_times import filled, step_all
from press.timing import Work, whole


class Sizes(NamedTuple):
    """Heads of GPT-2 Small's sizes, and as many layers of cache as that model has."""

    h: int = 12
    d_k: int = 64
    layers: int = 12
    n: int = 1024  # of a prompt, and of what a cache holds
    block: int = 128
    steps: int = 4
    rounds: int = 9


def tile_works(sizes: Sizes) -> dict[str, Work]:
    """Attend to a prompt in one layer, and step through all layers."""
    torch.manual_seed(0)
    h, d_k, n, layers = sizes.h, sizes.d_k, sizes.n, sizes.layers
    q, k, v = torch.randn(3, 1, h, n, d_k)
    may, block = causal_mask(n), sizes.block
    caches, states = filled(layers, n, (h, d_k), (h, d_k)), [LinearState() for _ in range(layers)]
    word = torch.randn(3, 1, h, 1, d_k)
    ways = {
        "prompt, plain": lambda: (
            (q @ k.mT / d_k**0.5).masked_fill(~may, -torch.inf).softmax(-1) @ v
        ),
        "prompt, tiled": lambda: tiled_attention(
            q, k, v, block_q=block, block_k=block, is_causal=True
        ),
        "prompt, fused": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    works = {name: Work(whole(way)) for name, way in ways.items()}
    step = partial(step_all, caches, word, sizes.steps)
    through_states = partial(step_states, states, word, sizes.steps)
    return works | {
        "step, whole": Work(whole(step, sizes.steps)),
        "step, linear attention": Work(whole(through_states, sizes.steps)),
    }


def step_states(states: list[LinearState], word: Tensor, steps: int) -> None:
    q, k, v = word
    for _ in range(steps):
        for state in states:
            state.step(q, k, v, None)
