"""What chapters 12 and 13 tell of a GPU: ``press.gpu_times``, `make gpu-times` where there is one.

Writes the part "gpu" of labkit/models/times.json: attention over a prompt, written out, in tiles
and by PyTorch's kernels, with the most memory each held; and a step of decoding, its keys in one
piece or in several, in heads of their own, shared, or made from a latent. A step is captured as a
CUDA graph, so that what is timed is the GPU and not Python, and steps go through copies of the
cache that together are larger than the GPU's own fast memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from math import ceil
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from tqdm import tqdm

from labkit.models.times import TIMES, Record
from labkit.tiles import tiled_attention
from press.timing import DIGITS, write

TYPE, BYTES = torch.bfloat16, 2
WINDOW, SINKS = 1024, 4


class Sizes(NamedTuple):
    """A layer of 16 heads over a prompt; layers of Llama 2 70B's and DeepSeek-V2's sizes."""

    h: int = 16
    d: int = 128
    lengths: tuple[int, ...] = (1024, 4096, 16_384, 65_536)
    written_out: int = 16_384  # the longest prompt whose weights are written out
    block: int = 1024  # of a tile of labkit's loop
    held: int = 65_536  # keys of a step
    pieces: tuple[int, ...] = (1, 4, 16, 64, 256)
    queries: int = 64  # heads of queries, of Llama 2 70B
    key_heads: tuple[int, ...] = (64, 8, 1)
    latent_held: int = 16_384
    latent_heads: int = 128  # of DeepSeek-V2
    d_c: int = 512
    d_rotary: int = 64
    square: int = 8192  # a product that is as fast as any
    least: int = 2**30  # bytes that steps read before they read any again
    rounds: int = 9


class Timed(NamedTuple):
    """A piece of work: what does it, how often at a time, and what it counts."""

    do: Callable[[], object]
    times: int = 1
    flops: int = 0
    bytes: int = 0
    graph: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=TIMES, help="the file; labkit's own unless given"
    )
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here that PyTorch can use. Run this where there is one.")
    torch.set_default_device("cuda")
    torch.manual_seed(0)
    sizes = Sizes()
    write(out, "gpu", measure(sizes), machine())
    print(f"{out} has the times of {machine()}.")


def machine() -> str:
    return f"{torch.cuda.get_device_name()}, bfloat16, PyTorch {torch.__version__.split('+')[0]}"


@torch.no_grad()
def measure(sizes: Sizes) -> dict[str, Record]:
    """Time each piece of work, and note the most memory that it held beyond what was there."""
    records = {}
    for make in (machine_works, prompt_works, window_works, piece_works, head_works, latent_works):
        for name, work in tqdm(make(sizes).items(), desc=make.__name__, leave=False):
            records[name] = timed(work, sizes.rounds)
        torch.cuda.empty_cache()
    return records


def timed(work: Timed, rounds: int) -> Record:
    for _ in range(2):
        work.do()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work.do()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    do = captured(work.do) if work.graph else work.do
    seconds = []
    for _ in range(rounds + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        do()
        end.record()
        torch.cuda.synchronize()
        took = start.elapsed_time(end) / 1000 / work.times
        seconds.append(float(f"{took:.{DIGITS}g}"))
    return Record(seconds[1:], work.flops, work.bytes, peak)


def captured(do: Callable[[], object]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        do()
    return graph.replay


def machine_works(sizes: Sizes) -> dict[str, Timed]:
    a, b = torch.randn(2, sizes.square, sizes.square, dtype=TYPE)
    numbers = torch.randn(2**30, dtype=TYPE)
    other = torch.empty_like(numbers)
    return {
        "large product": Timed(lambda: a @ b, 1, 2 * sizes.square**3, 3 * a.nbytes),
        "copy": Timed(lambda: other.copy_(numbers), 1, 0, 2 * numbers.nbytes),
    }


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q / q.shape[-1] ** 0.5) @ k.mT).softmax(-1) @ v


def kernel(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # this one, or an error
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def trained(way: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> None:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        torch.autograd.grad(way(*leaves).sum(), leaves)


def prompt_works(sizes: Sizes) -> dict[str, Timed]:
    """A prompt without a mask: written out, labkit's loop over tiles, and the kernel."""
    works = {}
    in_tiles = partial(tiled_attention, block_q=sizes.block, block_k=sizes.block)
    for n in sizes.lengths:
        qkv = torch.randn(3, 1, sizes.h, n, sizes.d, dtype=TYPE)
        flops, moved = 4 * sizes.h * n * n * sizes.d, 4 * BYTES * sizes.h * n * sizes.d
        ways: dict[str, Callable[..., Tensor]] = {"kernel": kernel}
        if n <= sizes.written_out:
            ways |= {"written out": written_out, "tiles": in_tiles}
        for name, way in ways.items():
            works[f"{name}, {n}"] = Timed(partial(way, *qkv), 1, flops, moved)
            if name != "tiles":
                both = partial(trained, way, *qkv)
                works[f"{name}, {n}, with gradients"] = Timed(both, 1, 3 * flops)
    return works


def window_works(sizes: Sizes) -> dict[str, Timed]:
    """A window with sinks: FlexAttention, compiled, beside the kernel that sees all of the past."""
    compiled = torch.compile(flex_attention)
    works = {}
    for n in sizes.lengths[1:]:
        q, k, v = torch.randn(3, 1, sizes.h, n, sizes.d, dtype=TYPE)
        blocks = create_block_mask(_seen, None, None, n, n, device="cuda")
        works[f"causal kernel, {n}"] = Timed(partial(kernel, q, k, v, is_causal=True))
        works[f"window, {n}"] = Timed(partial(compiled, q, k, v, block_mask=blocks))
        if n <= sizes.written_out:
            at = torch.arange(n)
            mask = _seen(0, 0, at[:, None], at)
            with_mask = partial(F.scaled_dot_product_attention, q, k, v, attn_mask=mask)
            works[f"window by a mask, {n}"] = Timed(with_mask)
    return works


def _seen(_batch: object, _head: object, query: Tensor, key: Tensor) -> Tensor:
    return (key <= query) & ((key > query - WINDOW) | (key < SINKS))


def in_pieces(q: Tensor, k: Tensor, v: Tensor, pieces: int) -> Tensor:
    """Attend from (h, r, d) queries to (h, n, d) keys cut into pieces, and merge the pieces.

    This kernel goes through all keys of a query in one block of threads.
    """
    k, v = (x.unflatten(1, (pieces, -1)) for x in (k, v))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        q[:, None].expand(-1, pieces, -1, -1), k, v, None, True
    )
    shares = lse[..., : q.shape[1]].softmax(1)[..., None].to(q.dtype)
    return (shares * out).sum(1)


def as_the_kernel_likes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend by the kernel that cuts the keys by itself, where there are few queries."""
    return kernel(q[None], k[None], v[None])


Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def steps(h: int, h_kv: int, n: int, sizes: Sizes, way: Way = as_the_kernel_likes) -> Timed:
    numbers = 2 * h_kv * n * sizes.d
    copies = max(2, ceil(sizes.least / (BYTES * numbers)))
    held = torch.randn(copies, 2, h_kv, n, sizes.d, dtype=TYPE)
    q = torch.randn(h_kv, h // h_kv, sizes.d, dtype=TYPE)
    return Timed(
        lambda: [way(q, k, v) for k, v in held],
        copies, 4 * h * n * sizes.d, BYTES * numbers, graph=True,
    )  # fmt: skip


def piece_works(sizes: Sizes) -> dict[str, Timed]:
    """A step of 64 query heads over 8 heads of keys: the keys in more and more pieces."""
    make = partial(steps, sizes.queries, sizes.key_heads[1], sizes.held, sizes)
    works = {
        f"step, {pieces} piece{'s' * (pieces > 1)}": make(partial(in_pieces, pieces=pieces))
        for pieces in sizes.pieces
    }
    return {**works, "step, pieces by the kernel": make()}


def head_works(sizes: Sizes) -> dict[str, Timed]:
    """A step of 64 query heads over fewer and fewer heads of keys."""
    return {
        f"step, {h_kv} key head{'s' * (h_kv > 1)}": steps(
            sizes.queries, h_kv, sizes.latent_held, sizes
        )
        for h_kv in sizes.key_heads
    }


def latent_works(sizes: Sizes) -> dict[str, Timed]:
    """A step of DeepSeek-V2's attention: keys for each head, a latent unpacked, and absorbed."""
    h, n, d, d_c, d_r = (
        sizes.latent_heads, sizes.latent_held, sizes.d, sizes.d_c, sizes.d_rotary,
    )  # fmt: skip
    copies = ceil(sizes.least / (BYTES * n * (d_c + d_r)))
    held = torch.randn(copies, n, d_c + d_r, dtype=TYPE)
    w_up = torch.randn(d_c, 2 * h * d, dtype=TYPE) / d_c**0.5
    up_k, up_v = w_up.view(d_c, 2, h, d).permute(1, 2, 0, 3)  # (h, d_c, d) each
    q, q_rotary = torch.randn(h, 1, d, dtype=TYPE), torch.randn(h, d_r, dtype=TYPE)
    scale = (d + d_r) ** -0.5

    def absorbed(kept: Tensor) -> Tensor:
        queries = torch.cat([(q @ up_k.mT)[:, 0], q_rotary], -1)  # (h, d_c + d_r)
        weights = (scale * queries @ kept.T).softmax(-1)
        return (weights @ kept[:, :d_c])[:, None] @ up_v

    def unpacked(kept: Tensor) -> Tensor:
        k, v = (kept[:, :d_c] @ w_up).view(n, 2, h, d).permute(1, 2, 0, 3)
        rotary = q_rotary @ kept[:, d_c:].T  # (h, n)
        weights = (scale * ((q @ k.mT)[:, 0] + rotary)).softmax(-1)
        return weights[:, None] @ v

    gap = (absorbed(held[0]) - unpacked(held[0])).abs().max() / unpacked(held[0]).abs().max()
    assert gap < 0.05, gap
    moved = BYTES * n * (d_c + d_r)
    few = held[:4]
    return {
        "step, keys for each of 128 heads": steps(h, h, n, sizes),
        "step, latent absorbed": Timed(
            lambda: [absorbed(kept) for kept in held], copies,
            2 * h * n * (2 * d_c + d_r) + 4 * h * d * d_c, moved, graph=True,
        ),
        "step, latent unpacked": Timed(
            lambda: [unpacked(kept) for kept in few], len(few),
            4 * n * d_c * h * d + 2 * h * n * (2 * d + d_r), moved, graph=True,
        ),
    }  # fmt: skip


if __name__ == "__main__":
    main()
