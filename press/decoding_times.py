"""The work of chapter 11 that is timed: linear layers against attention, and kinds of caches.

A layer has GPT-2 Small's sizes. Linear layers are its four products with weights; attention is what
its heads do with keys and values, by PyTorch's fused function. Seconds are of one layer. So much is
read one after the other that it cannot lie in the processor's cache from the time before.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.attention import MultiHeadAttention
from labkit.cache import KVCache
from labkit.models.economies import HalfCache
from press.timing import FLOAT, Work


class Sizes(NamedTuple):
    """What is timed."""

    d_model: int = 768
    h: int = 12
    batches: tuple[int, ...] = (1, 4, 16, 64)
    lengths: tuple[int, ...] = (256, 1024, 4096)
    most: int = 2**16  # positions that all caches of a batch hold
    memory: int = 2**27  # bytes that are read before any of them is read again
    past: int = 2048  # positions that each kind of cache has seen
    window: int = 256
    steps: int = 16
    layers: int = 4  # with a cache of each kind
    rounds: int = 9


def decoding_works(sizes: Sizes) -> dict[str, Work]:
    """Give all of it: "decode linear, batch 4", "prefill attention, 1024", "step, 4 bits"."""
    torch.manual_seed(0)
    works = {f"decode linear, batch {batch}": linear(sizes, batch) for batch in sizes.batches}
    for batch in sizes.batches:
        for n in sizes.lengths:
            if batch * n <= sizes.most:
                works[f"decode attention, batch {batch}, {n}"] = attention(sizes, batch, n)
    for n in sizes.lengths:
        works[f"prefill linear, {n}"] = linear(sizes, n)
        works[f"prefill attention, {n}"] = causal_attention(sizes, n)
    return works | dict(steps(sizes))


def linear(sizes: Sizes, rows: int) -> Work:
    """Multiply rows by all weights of a layer: W_QKV, W_O and the two of the feed-forward."""
    d = sizes.d_model
    shapes = ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))
    # Of many rows the products count, and not where the weights lie.
    layers = _enough(sizes, FLOAT * 12 * d**2) if rows <= max(sizes.batches) else 1
    weights = [[torch.randn(shape) / shape[0] ** 0.5 for shape in shapes] for _ in range(layers)]
    inputs = [torch.randn(rows, width) for width, _ in shapes]

    def work() -> None:
        for layer in weights:
            for x, weight in zip(inputs, layer, strict=True):
                x @ weight

    moved = sum(i * o + rows * (i + o) for i, o in shapes)
    return Work(_each(work, layers), 24 * rows * d**2, FLOAT * moved)


def attention(sizes: Sizes, batch: int, n: int) -> Work:
    """Let one query of each text attend to its n keys."""
    layers = _enough(sizes, 2 * FLOAT * batch * n * sizes.d_model)
    heads = batch, sizes.h, n, sizes.d_model // sizes.h
    kept = [(torch.randn(heads), torch.randn(heads)) for _ in range(layers)]
    q = torch.randn(batch, sizes.h, 1, heads[-1])

    def work() -> None:
        for k, v in kept:
            F.scaled_dot_product_attention(q, k, v)

    numbers = batch * sizes.d_model
    return Work(_each(work, layers), 4 * n * numbers, FLOAT * (2 * n + 2) * numbers)


def causal_attention(sizes: Sizes, n: int) -> Work:
    """Let all n queries of a text attend causally. Hidden pairs are not counted."""
    q, k, v = torch.randn(3, 1, sizes.h, n, sizes.d_model // sizes.h)

    def work() -> None:
        F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Work(_each(work, 1), 2 * n * (n + 1) * sizes.d_model, 4 * q.nbytes)


def steps(sizes: Sizes) -> Iterator[tuple[str, Work]]:
    """Let attention layers read one word after the other with caches of each kind."""
    kinds: Mapping[str, Callable[[], KVCache]] = {
        "whole": KVCache,
        "16 bits": HalfCache,
        **{f"{bits} bits": partial(KVCache, bits=bits) for bits in (8, 4, 2)},
        "window": partial(KVCache, sizes.window),
        "window, 4 sinks": partial(KVCache, sizes.window - 4, 4),
        "window, 4 bits": partial(KVCache, sizes.window, bits=4),
    }
    layers = [MultiHeadAttention(sizes.d_model, sizes.h).eval() for _ in range(sizes.layers)]
    prompt, word = torch.randn(1, sizes.past, sizes.d_model), torch.randn(1, 1, sizes.d_model)
    with torch.no_grad():
        for name, make in kinds.items():
            caches = [make() for _ in layers]
            for layer, cache in zip(layers, caches, strict=True):
                layer(prompt[:, 1:], cache=cache)
                layer(word, cache=cache)  # upon which a window lets go of what it does not see
            held = sum(cache.nbytes for cache in caches) // len(caches)
            yield f"step, {name}", Work(partial(_steps, sizes, layers, caches, word), 0, held)


def _steps(
    sizes: Sizes, layers: list[MultiHeadAttention], caches: list[KVCache], word: Tensor
) -> Mapping[str, float]:
    """Read words after those that the caches hold, which stay as they are: seconds a step."""
    caches = copy.deepcopy(caches)

    def step() -> None:
        for layer, cache in zip(layers, caches, strict=True):
            layer(word, cache=cache)

    step()  # which makes room
    start = time.process_time()
    for _ in range(sizes.steps):
        step()
    return {"": (time.process_time() - start) / sizes.steps / len(layers)}


def _enough(sizes: Sizes, nbytes: int) -> int:
    """Say how many layers of so many bytes fill more than the processor's cache."""
    return math.ceil(sizes.memory / nbytes)


def _each(work: Callable[[], object], layers: int) -> Callable[[], Mapping[str, float]]:
    """Time work on several layers: the seconds of one."""

    def do() -> Mapping[str, float]:
        start = time.process_time()
        work()
        return {"": (time.process_time() - start) / layers}

    return do
