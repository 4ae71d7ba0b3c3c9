"""What chapters 11 and 12 tell of time: one block's linear layers and its attention, as batch and
length grow, and a step through caches of several kinds and with fewer keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.attention import scaled_dot_product_attention
from labkit.cache import KVCache
from labkit.latent import LatentAttention
from labkit.models.economies import HalfCache
from press.timing import FLOAT, Work, whole


class Sizes(NamedTuple):
    """A block of GPT-2 Small's sizes, and as many layers of cache as that model has."""

    d_model: int = 768
    h: int = 12
    layers: int = 12
    n: int = 1024  # of a prompt, and of what a cache holds
    batches: tuple[int, ...] = (1, 4, 16, 64)
    lengths: tuple[int, ...] = (256, 1024, 4096)
    most: int = 16 * 4096  # positions of a batch in all
    least: int = 2**27  # bytes that are read, so that no processor's own memory holds them
    steps: int = 4  # a round, through each kind of cache
    key_heads: tuple[int, ...] = (6, 3, 1)
    latents: tuple[tuple[int, int], ...] = ((320, 64), (64, 64))  # as many numbers as 3 heads and 1
    rounds: int = 9


def decoding_works(sizes: Sizes) -> dict[str, Work]:
    """Linear layers and attention, of steps and of a prompt; steps through caches."""
    torch.manual_seed(0)
    return {**linear_works(sizes), **attention_works(sizes), **cache_works(sizes)}


def linear_works(sizes: Sizes) -> dict[str, Work]:
    """The linear layers of a block, on one row for each text, and on the rows of a prompt."""
    d = sizes.d_model
    parameters = 12 * d * d
    blocks = ceil(sizes.least / (FLOAT * parameters))
    shapes = ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))
    matrices = [[torch.randn(shape) / shape[0] ** 0.5 for shape in shapes] for _ in range(blocks)]
    works = {}
    for rows in (*sizes.batches, sizes.n):
        inputs = torch.randn(rows, d), torch.randn(rows, 4 * d)
        moved = rows * sum(map(sum, shapes))  # what goes in and what comes out
        works[f"linear, {rows}"] = Work(
            whole(partial(multiply_all, inputs, matrices), blocks),
            2 * rows * parameters,
            FLOAT * (parameters + moved),
        )
    return works


def multiply_all(inputs: tuple[Tensor, Tensor], matrices: list[list[Tensor]]) -> None:
    narrow, wide = inputs
    for block in matrices:
        for matrix in block:
            (narrow if matrix.shape[0] == narrow.shape[1] else wide) @ matrix


def attention_works(sizes: Sizes) -> dict[str, Work]:
    """The products of one query a text with its cache, and of a prompt with itself."""
    d, h = sizes.d_model, sizes.h
    pool = torch.randn(max(2 * d * sizes.most, sizes.least // FLOAT))
    works = {}
    for n in sizes.lengths:
        for texts in sizes.batches:
            if texts * n > sizes.most:
                continue
            numbers = 2 * texts * n * d
            layers = max(1, min(ceil(sizes.least / (FLOAT * numbers)), len(pool) // numbers))
            held = pool[: layers * numbers].view(layers, 2, texts, h, n, d // h)
            q = torch.randn(texts, h, 1, d // h)
            works[f"attention, {texts} over {n}"] = Work(
                whole(partial(attend_all, q, held), layers),
                2 * numbers,
                FLOAT * (numbers + 2 * texts * d),
            )
    q, k, v = torch.randn(3, 1, h, sizes.n, d // h)
    pairs = sizes.n * (sizes.n + 1) // 2  # that a causal kernel computes
    works[f"attention, prompt of {sizes.n}"] = Work(
        whole(lambda: scaled_dot_product_attention(q, k, v, is_causal=True)),
        4 * pairs * d,
        FLOAT * 4 * sizes.n * d,
    )
    return works


def attend_all(q: Tensor, held: Tensor) -> None:
    for k, v in held:
        scaled_dot_product_attention(q, k, v)


def cache_works(sizes: Sizes) -> dict[str, Work]:
    """Append a token's keys and values to a cache that holds n, and attend; in all layers."""
    n = sizes.n
    kinds: dict[str, Callable[[], KVCache]] = {
        "whole": KVCache,
        "16 bits": HalfCache,
        "8 bits": partial(KVCache, bits=8),
        "4 bits": partial(KVCache, bits=4),
        "2 bits": partial(KVCache, bits=2),
        "window 2/3": partial(KVCache, window=2 * n // 3),
        "window 1/3": partial(KVCache, window=n // 3),
        "window 1/6": partial(KVCache, window=n // 6),
    }
    shape = 1, sizes.h, sizes.d_model // sizes.h
    works = {}
    for name, make in kinds.items():
        caches = filled(sizes.layers, n, shape[1:], shape[1:], make)
        word = torch.randn(3, *shape[:2], 1, shape[2])
        works[f"step, {name}"] = Work(
            whole(partial(step_all, caches, word, sizes.steps), sizes.steps)
        )
    return works


def step_all(caches: list[KVCache], word: Tensor, steps: int) -> None:
    q, k, v = word
    for _ in range(steps):
        for cache in caches:
            scaled_dot_product_attention(q, *cache.append(k, v), cache.visible(1))


def sharing_works(sizes: Sizes) -> dict[str, Work]:
    """A step as in cache_works: with fewer heads of keys, with latents, and shared by two layers.

    Of a latent layer it is all between the projections of x and W^O: absorbed with the products
    that queries and sums take for it, unpacked with those that make keys and values of all n.
    """
    torch.manual_seed(0)
    n, d = sizes.n, sizes.d_model // sizes.h
    queries = torch.randn(1, sizes.h, 1, d)
    works = {}
    for h_kv in (sizes.h, *sizes.key_heads):
        name = "whole" if h_kv == sizes.h else f"{h_kv} key head{'s' * (h_kv > 1)}"
        caches = filled(sizes.layers, n, (h_kv, d), (h_kv, d))
        step = partial(step_shared, queries, caches, 1, sizes.steps)
        works[f"step, {name}"] = Work(whole(step, sizes.steps))
    caches = filled(sizes.layers // 2, n, (sizes.h, d), (sizes.h, d))
    step = partial(step_shared, queries, caches, 2, sizes.steps)
    works["step, shared by 2 layers"] = Work(whole(step, sizes.steps))
    for d_c, d_rotary in sizes.latents:
        layers = [
            LatentAttention(sizes.d_model, sizes.h, d_c, d_rotary=d_rotary)
            for _ in range(sizes.layers)
        ]
        asks = torch.randn(1, sizes.h, 1, d + d_rotary)
        for absorb in (True, False):
            caches = filled(sizes.layers, n, (1, d_c + d_rotary), (1, 0))
            step = partial(step_latent, asks, layers, caches, absorb, sizes.steps)
            way = "absorbed" if absorb else "unpacked"
            works[f"step, latent {d_c} + {d_rotary}, {way}"] = Work(whole(step, sizes.steps))
    return works


def filled(
    count: int,
    n: int,
    k: tuple[int, int],
    v: tuple[int, int],
    make: Callable[[], KVCache] = KVCache,
) -> list[KVCache]:
    """Make caches that hold n - 1 positions, of so many heads and so wide keys and values."""
    caches = [make() for _ in range(count)]
    for cache in caches:
        cache.append(*(torch.randn(1, heads, n - 1, width) for heads, width in (k, v)))
    return caches


def step_shared(q: Tensor, caches: list[KVCache], layers: int, steps: int) -> None:
    """Append a token to each cache, and attend in so many layers to what it holds."""
    for _ in range(steps):
        for cache in caches:
            k, v = cache.append(cache.k[:, :, -1:], cache.v[:, :, -1:])
            for _ in range(layers):
                scaled_dot_product_attention(q, k, v, enable_gqa=True)


def step_latent(
    q: Tensor, layers: list[LatentAttention], caches: list[KVCache], absorb: bool, steps: int
) -> None:
    for _ in range(steps):
        for layer, cache in zip(layers, caches, strict=True):
            kept, _ = cache.append(cache.k[:, :, -1:], cache.v[:, :, -1:])
            layer.attend(q, kept, absorb=absorb)
