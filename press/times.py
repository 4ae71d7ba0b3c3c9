"""Measure how long what the chapters count takes: ``press.times``, or `make times`.

Writes labkit/models/times.json: for each chapter the machine, and for each piece of work its
seconds, one number a round. In each round all work of a chapter is done once, so that a slow minute
meets all of it. Everything runs on one thread and is measured by the time that the processor spends
on it, which other programs hardly disturb.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from labkit import counting
from labkit.cache import KVCache
from labkit.models.gpt import GPT, Block, load_gpt
from labkit.models.times import TIMES, Record
from labkit.models.training import unseen
from press.decoding_times import Sizes as DecodingSizes
from press.decoding_times import decoding_works, sharing_works
from press.tile_times import Sizes as TileSizes
from press.tile_times import tile_works
from press.timing import DIGITS, FLOAT, Work, whole, write

SHORT = 100  # times that a short piece of work is repeated within a round
BMM = ("bmm", "baddbmm")
WITH_PARAMETERS = ("mm", "addmm")


class Sizes(NamedTuple):
    """What is timed: blocks of GPT-2 Small's sizes, and single products that show the machine."""

    d_model: int = 768
    h: int = 12
    layers: int = 12
    n: int = 1024
    square: int = 2048  # a product that is as fast as any
    copied: int = 2**26  # numbers
    rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
    heads: tuple[int, ...] = (1, 3, 12, 48)
    rounds: int = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, tuple[Callable[[], dict[str, Work]], int]] = {
        "counting": (lambda: counting_works(Sizes()), Sizes().rounds),
        "decoding": (lambda: decoding_works(DecodingSizes()), DecodingSizes().rounds),
        "sharing": (lambda: sharing_works(DecodingSizes()), DecodingSizes().rounds),
        "tiles": (lambda: tile_works(TileSizes()), TileSizes().rounds),
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(parts)}")
    torch.set_num_threads(1)
    for name in parser.parse_args().parts or parts:
        make, rounds = parts[name]
        write(TIMES, name, measure(make(), rounds), machine())
    print(f"{TIMES.name} has the times of {machine()}.")


def machine() -> str:
    return f"{processor()}, one thread, float32"


def processor() -> str:
    """Name the processor's model."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def measure(works: Mapping[str, Work], rounds: int) -> dict[str, Record]:
    """Do all works in each round, after one round that is not kept."""
    seconds: dict[str, list[float]] = defaultdict(list)
    with torch.no_grad():
        for round_ in tqdm(range(rounds + 1), desc="rounds", leave=False):
            for name, work in works.items():
                for part, took in work.do().items():
                    if round_:
                        full = f"{name}: {part}" if part else name
                        seconds[full].append(float(f"{took:.{DIGITS}g}"))
    return {
        name: Record(each, works[name].flops, works[name].bytes) if name in works else Record(each)
        for name, each in seconds.items()
    }


def counting_works(sizes: Sizes) -> dict[str, Work]:
    """What chapter 7 tells of: the machine, GPT-2 Small's blocks, and the story GPT."""
    torch.manual_seed(0)
    return {
        **machine_works(sizes),
        **block_works(sizes),
        **head_works(sizes),
        "story GPT": Work(story_gpt()),
        "1 story": Work(stories_read(1)),
        "16 stories": Work(stories_read(16)),
    }


def machine_works(sizes: Sizes) -> dict[str, Work]:
    """A large product, a copy, and products of few and of many rows with many large matrices."""
    a, b = torch.randn(2, sizes.square, sizes.square)
    numbers = torch.randn(sizes.copied)
    other = torch.empty_like(numbers)
    out = torch.empty_like(a)
    works = {
        "large product": Work(
            whole(lambda: torch.mm(a, b, out=out)), 2 * sizes.square**3, 3 * a.nbytes
        ),
        "copy": Work(whole(lambda: other.copy_(numbers)), 0, 2 * numbers.nbytes),
    }
    d, d_ff = sizes.d_model, 4 * sizes.d_model
    matrices = torch.randn(sizes.layers, d, d_ff) / d**0.5
    for rows in sizes.rows:
        x = torch.randn(rows, d)
        moved = FLOAT * sizes.layers * (d * d_ff + rows * (d + d_ff))
        works[f"product of {rows} row{'s' * (rows > 1)}"] = Work(
            whole(partial(multiply_each, x, matrices)),
            2 * sizes.layers * rows * d * d_ff,
            moved,
        )
    return works


def block_works(sizes: Sizes) -> dict[str, Work]:
    """Blocks that read a prompt, as a whole and by part, and that read one token after it."""
    d, n = sizes.d_model, sizes.n
    model = GPT(2, d, sizes.h, sizes.layers, positions="none").eval()
    blocks, prompt, token = model.stack(), torch.randn(1, n, d), torch.randn(1, 1, d)
    caches = model.caches()
    for block, cache in zip(blocks, caches, strict=True):
        block(prompt[:, :-2], cache=cache)
        block(prompt[:, -2:-1], cache=cache)  # for which room is made, and for more
    parameters = FLOAT * sum(counting.count_parameters(block) for block in blocks)
    numbers = FLOAT * sizes.layers * n * d  # of one vector for each position and layer

    def macs(n_q: int) -> int:
        feed_forward = 8 * n_q * d**2
        attention = counting.projection_macs(n_q, d, sizes.h)
        return attention + feed_forward + counting.product_macs(n_q, d, sizes.h, n_k=n)

    return {
        "prefill": Work(
            whole(lambda: through(blocks, prompt)),
            2 * sizes.layers * macs(n),
            parameters + 4 * numbers,  # input and output, keys and values
        ),
        "prefill by part": Work(partial(timed_by_part, blocks, prompt)),
        "decode": Work(
            whole(lambda: step(blocks, caches, token)),
            2 * sizes.layers * macs(1),
            parameters + 2 * numbers,
        ),
    }


def head_works(sizes: Sizes) -> dict[str, Work]:
    """One block with its width cut into more or fewer heads."""
    prompt, works = torch.randn(1, sizes.n, sizes.d_model), {}
    for h in sizes.heads:
        block = Block(sizes.d_model, h).eval()
        works[f"{h} head{'s' * (h > 1)}"] = Work(partial(timed_by_part, [block], prompt))
    return works


def multiply_each(x: Tensor, matrices: Tensor) -> None:
    for matrix in matrices:
        x @ matrix


def through(blocks: list[Block], x: Tensor) -> Tensor:
    """Read a text with attention written out, so that every step of it is an operation."""
    for block in blocks:
        x, _ = block(x, return_weights=True)
    return x


def step(blocks: list[Block], caches: list[KVCache], x: Tensor) -> Tensor:
    """Read one token after those that the caches hold, and leave these as they are.

    The copies share the memory: a step writes into the room behind what is held, as each step of a
    text does. (A crop would let the next step move all of it.)
    """
    for block, cache in zip(blocks, caches, strict=True):
        x, _ = block(x, cache=copy(cache), return_weights=True)
    return x


def _call(noted: Callable[[str], object], name: str, *_: object) -> None:
    noted(name)


@contextmanager
def clocks(
    parts: Mapping[nn.Module, str], begin: Callable[[str], None], end: Callable[[str], object]
) -> Iterator[None]:
    """Call begin and end, with the part's name, before and after each part of a model."""
    handles = []
    for module, name in parts.items():
        handles += [
            module.register_forward_pre_hook(partial(_call, begin, name)),
            module.register_forward_hook(partial(_call, end, name)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def parts_of(block: Block) -> dict[nn.Module, str]:
    norms = (block.attention_norm, block.feed_forward_norm)
    return {
        block.attention: "attention",
        block.feed_forward: "feed-forward",
        **dict.fromkeys(norms, "LayerNorm"),
    }


class Operations(TorchDispatchMode):
    """Add up the seconds of each operation by what it does, and in which part of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.inside: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.process_time()
        out = func(*args, **(kwargs or {}))
        self.seconds[self.kind(func.overloadpacket.__name__)] += time.process_time() - start
        return out

    def kind(self, operation: str) -> str:
        """Name what an operation does."""
        part = self.inside[-1] if self.inside else "sums"
        if part == "attention":
            if operation in WITH_PARAMETERS:
                return "projections"
            if operation in BMM:
                return "products"
            return "softmax" if operation == "_softmax" else "scale, mask and copies"
        return "GELU" if operation == "gelu" else part


def timed_by_part(blocks: list[Block], x: Tensor) -> Mapping[str, float]:
    """Read a text, and give the seconds by what was done."""
    operations = Operations()
    parts = {module: name for block in blocks for module, name in parts_of(block).items()}
    with clocks(parts, operations.inside.append, lambda _: operations.inside.pop()), operations:
        through(blocks, x)
    return operations.seconds


def stories_read(count: int) -> Callable[[], Mapping[str, float]]:
    """Read so many stories at once: the work grows with them, and the number of calls does not."""
    model, stories = load_gpt(), unseen(count).ids

    def do() -> Mapping[str, float]:
        start = time.process_time()
        for _ in range(SHORT):
            model(stories)
        return {"": (time.process_time() - start) / SHORT}

    return do


def story_gpt() -> Callable[[], Mapping[str, float]]:
    """Read one story with the story GPT, and give the seconds by part of the model."""
    model, story = load_gpt(), unseen(1).ids
    parts = {model.words: "words", model.next_word: "read-out", model.norm: "LayerNorm"}
    for block in model.stack():
        parts |= parts_of(block)
    # Kept apart from the clocks on its parts: sums, and the calls that Python makes.
    seconds: dict[str, float] = defaultdict(float)

    def begin(name: str) -> None:
        seconds[name] -= time.process_time()

    def end(name: str) -> None:
        seconds[name] += time.process_time()

    def do() -> Mapping[str, float]:
        seconds.clear()
        with clocks(parts, begin, end):
            start = time.process_time()
            for _ in range(SHORT):
                model(story)
            took = time.process_time() - start
        rest = took - sum(seconds.values())
        return {name: each / SHORT for name, each in {**seconds, "sums and the rest": rest}.items()}

    return do


if __name__ == "__main__":
    main()
