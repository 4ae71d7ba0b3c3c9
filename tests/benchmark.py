"""Time and memory of labkit's attention as ratios to PyTorch's module and to a loop over heads;
a decoding step with labkit's cache as a ratio to the whole pass and to transformers' cache, and
with a window or quantised numbers as a ratio to the plain cache; a step of heads that share keys as
a ratio to PyTorch's other ways; attention in tiles as a ratio to the
products written out and to PyTorch's kernel.

Run with `make bench`, or `python -m tests.benchmark`; it takes about five minutes. Speed differs
from machine to machine and from minute to minute, so every figure is a ratio within one run: the
contestants take turns, in a new order each round, and each round gives one ratio. The tables show
the median of the rounds and, in brackets, the quartiles. Under 1, labkit needs less.

A decoding step gives the output of the last of n positions. With a cache it projects that one,
appends its key and value to the n - 1 held, and attends. Then the cache is as before, for each step
is given a shallow copy of it, which writes into the same room; transformers' cache is cut, which
moves no number. So what labkit's copies when it doubles is left out: over a whole text, less than
two more writes of each number. transformers' copies all at each step. A cache with a window is
ahead where n is far above the window, one with sinks copies its window at each step, and a
quantised one reads all its codes back into floating point, which PyTorch does slowly on a CPU: it
saves memory, not time.

Where heads share keys, one query of each is attended: labkit folds the heads that read the same
keys into the queries of one head, inside its attention function too, whose checks are then counted;
PyTorch has a flag for it, or every key is repeated for each of
its readers, as is done where the flag is not known.

One thread is measured by its CPU time, which other programs hardly disturb. `--threads 2` measures
two by the clock on the wall; leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler reports each start and stop

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from labkit import KVCache, MultiHeadAttention, counting, scaled_dot_product_attention
from labkit.fused import fused_attention
from labkit.tiles import tiled_attention

SIZES = [  # B, n, d_model, h
    (8, 32, 64, 4),
    (8, 128, 512, 8),
    (2, 512, 512, 8),
    (1, 1024, 768, 12),
    (1, 2048, 512, 8),
]
MODES = ("inference", "training, forward", "forward + backward")
COMPARISONS = {  # column: one contestant over the other
    "labkit / PyTorch": ("labkit", "PyTorch"),
    "labkit / PyTorch weights": ("labkit", "PyTorch weights"),
    "labkit / loop": ("labkit", "loop"),
    "labkit weights / PyTorch weights": ("labkit weights", "PyTorch weights"),
}
GROWTH = (
    ("labkit", "inference"),
    ("labkit", "forward + backward"),
    ("labkit causal", "forward + backward"),
    ("PyTorch", "inference"),
    ("PyTorch", "forward + backward"),
    ("labkit weights", "inference"),
)
DECODED = (128, 1024, 4096)  # positions, the new one among them
STEP_COMPARISONS = {
    "cached / whole pass": ("cached", "whole pass"),
    "cached / transformers": ("cached", "transformers"),
}
WINDOW, SINKS = 256, 4
KINDS = {  # what a cache is made with
    "window": {"window": WINDOW},
    "window and sinks": {"window": WINDOW, "sinks": SINKS},
    "8 bits": {"bits": 8},
    "4 bits": {"bits": 4},
}
KIND_COMPARISONS = {f"{kind} / plain": (kind, "plain") for kind in KINDS}
SHARED = [(n, 32, h_kv, 64) for n in (1024, 4096) for h_kv in (8, 4, 1)]  # n, h, h_kv, d_k
SHARED_COMPARISONS = {
    "folded / enable_gqa": ("folded", "enable_gqa"),
    "folded / repeat_interleave": ("folded", "repeat_interleave"),
    "labkit's function / enable_gqa": ("labkit's function", "enable_gqa"),
}
TILED = [(n, is_causal) for n in (256, 1024, 2048) for is_causal in (False, True)]
BLOCK = 128  # queries, and keys, of a tile
TILED_COMPARISONS = {
    "tiled / plain": ("tiled", "plain"),
    "tiled / fused": ("tiled", "fused"),
}
LENGTHS = (256, 512, 1024, 2048, 4096)
MATMUL = 1024
SECONDS_PER_CELL = 4.0
SHORTEST_TURN = 0.004
FEWEST_ROUNDS, MOST_ROUNDS = 7, 100
IMPORTS = 5

Call = Callable[[Tensor], Tensor]
Step = Callable[[], object]


class LoopOverHeads(nn.Module):
    """Each head on its own and with its weights, on the parameters of labkit's module."""

    def __init__(self, module: MultiHeadAttention) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        module, heads = self.module, []
        parts = (module.w_q, module.d_k), (module.w_k, module.d_k), (module.w_v, module.d_v)
        for i in range(module.h):
            rows = [(part, slice(i * d, (i + 1) * d)) for part, d in parts]
            q, k, v = (F.linear(x, part.weight[r], part.bias[r]) for part, r in rows)
            weights = (q @ k.transpose(-2, -1) / module.d_k**0.5).softmax(-1)
            heads.append(weights @ v)
        return module.w_o(torch.cat(heads, -1))


class WithDynamicCache(nn.Module):
    """labkit's layer as transformers would write it, with its cache and on the same parameters."""

    def __init__(self, module: MultiHeadAttention) -> None:
        super().__init__()
        from transformers import DynamicCache  # which takes seconds to import

        self.module, self.cache = module, DynamicCache()

    def forward(self, x: Tensor) -> Tensor:
        heads = self.module.w_qkv(x).unflatten(-1, (3, self.module.h, -1)).transpose(1, 3)
        q, k, v = heads.unbind(2)
        k, v = self.cache.update(k, v, 0)
        is_causal = q.shape[-2] > 1
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.module.w_o(out.transpose(1, 2).flatten(2))


def contestants(d_model: int, h: int) -> dict[str, tuple[nn.Module, Call]]:
    """Return, under its name, each module and how it is called. All have the same parameters."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
    ours = MultiHeadAttention.from_torch(theirs)
    loop = LoopOverHeads(ours)
    per_head = {"need_weights": True, "average_attn_weights": False}
    return {
        "labkit": (ours, ours),
        "labkit weights": (ours, lambda x: ours(x, return_weights=True)[0]),
        "PyTorch": (theirs, lambda x: theirs(x, x, x, need_weights=False)[0]),
        "PyTorch weights": (theirs, lambda x: theirs(x, x, x, **per_head)[0]),
        "loop": (loop, loop),
    }


def make_step(module: nn.Module, call: Call, x: Tensor, mode: str) -> Step:
    """Return what is measured: one call in the given mode."""
    if mode == "inference":
        return torch.no_grad()(lambda: call(x))
    if mode == "training, forward":
        return lambda: call(x)
    wanted, cotangent = [x.requires_grad_(), *module.parameters()], torch.randn_like(x)
    return lambda: torch.autograd.grad(call(x), wanted, cotangent)


def make_steps(size: tuple[int, int, int, int], mode: str) -> dict[str, Step]:
    """Return a step for each contestant, once their outputs have been seen to agree."""
    batch, n, d_model, h = size
    x = torch.randn(batch, n, d_model)
    steps, outputs = {}, []
    for name, (module, call) in contestants(d_model, h).items():
        module.train(mode != "inference")
        outputs.append(call(x).detach())
        torch.testing.assert_close(outputs[-1], outputs[0], rtol=1e-3, atol=1e-4)
        steps[name] = make_step(module, call, x.clone(), mode)
    return steps


def make_decoding_steps(n: int, d_model: int = 768, h: int = 12) -> dict[str, Step]:
    """Return ways to the output of the last of n positions, once they have been seen to agree."""
    torch.manual_seed(0)
    module, cache = MultiHeadAttention(d_model, h).eval(), KVCache()
    theirs = WithDynamicCache(module)
    x = torch.randn(1, n, d_model)
    last = x[:, -1:]

    def cached() -> Tensor:
        return module(last, cache=copy(cache))

    def with_dynamic_cache() -> Tensor:
        out = theirs(last)
        theirs.cache.crop(-1)
        return out

    steps = {
        "cached": cached,
        "whole pass": lambda: module(x, is_causal=True)[:, -1:],
        "transformers": with_dynamic_cache,
    }
    with torch.no_grad():
        fill(module, x, cache)
        theirs(x[:, :-1])
        for step in steps.values():
            torch.testing.assert_close(step(), cached(), rtol=1e-3, atol=1e-4)
    return {name: torch.no_grad()(step) for name, step in steps.items()}


def fill(module: MultiHeadAttention, x: Tensor, cache: KVCache) -> None:
    """Let a cache hold all positions but the last, and have room for that one."""
    module(x[:, :-2], cache=cache)
    module(x[:, -2:-1], cache=cache)


def make_kind_steps(n: int, d_model: int = 768, h: int = 12) -> dict[str, Step]:
    """Return a decoding step with each kind of cache."""
    torch.manual_seed(0)
    module, x = MultiHeadAttention(d_model, h).eval(), torch.randn(1, n, d_model)
    steps, last = {}, x[:, -1:]
    with torch.no_grad():
        for kind, options in {"plain": {}, **KINDS}.items():
            cache = KVCache(**options)
            fill(module, x, cache)
            steps[kind] = lambda cache=cache: module(last, cache=copy(cache))
        torch.testing.assert_close(steps["8 bits"](), steps["plain"](), rtol=0.02, atol=0.02)
    return {name: torch.no_grad()(step) for name, step in steps.items()}


def make_shared_steps(n: int, h: int, h_kv: int, d_k: int) -> dict[str, Step]:
    """Return ways to attend from one query a head, once they have been seen to agree."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, h, 1, d_k), *torch.randn(2, 1, h_kv, n, d_k)

    def repeated() -> Tensor:
        k_of_each, v_of_each = (x.repeat_interleave(h // h_kv, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k_of_each, v_of_each)

    steps = {
        "folded": lambda: fused_attention(q, k, v, None, False, d_k**-0.5, 0.0),
        "enable_gqa": lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        "repeat_interleave": repeated,
        "labkit's function": lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True),
    }
    for step in steps.values():
        torch.testing.assert_close(step(), repeated(), rtol=1e-3, atol=1e-4)
    return {name: torch.no_grad()(step) for name, step in steps.items()}


def make_tiled_steps(n: int, is_causal: bool, h: int = 8, d_k: int = 64) -> dict[str, Step]:
    """Return attention in tiles, written out and on the kernel, once they were seen to agree."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, h, n, d_k)
    attend, causal = scaled_dot_product_attention, {"is_causal": is_causal}
    blocks = {"block_q": BLOCK, "block_k": BLOCK}
    steps = {
        "tiled": lambda: tiled_attention(q, k, v, **blocks, **causal),
        "plain": lambda: attend(q, k, v, return_weights=True, **causal)[0],
        "fused": lambda: attend(q, k, v, **causal),
    }
    for step in steps.values():
        torch.testing.assert_close(step(), steps["fused"](), rtol=1e-3, atol=1e-4)
    return {name: torch.no_grad()(step) for name, step in steps.items()}


def seconds(step: Step, times: int) -> float:
    """Return the seconds a step takes, the mean of several in a row."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(times):
        step()
    return (clock() - start) / times


def time_in_turns(steps: dict[str, Step]) -> dict[str, list[float]]:
    """Return the seconds that each step took, one figure a round."""
    order, shuffle = list(steps), random.Random(0).shuffle
    times = {}
    for name, step in steps.items():
        step()
        times[name] = max(1, round(SHORTEST_TURN / seconds(step, 1)))
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    stop = time.perf_counter() + SECONDS_PER_CELL
    for count in range(MOST_ROUNDS):
        if count >= FEWEST_ROUNDS and time.perf_counter() > stop:
            break
        shuffle(order)
        for name in order:
            rounds[name].append(seconds(steps[name], times[name]))
    return rounds


def peak_bytes(step: Step) -> int:
    """Return the most bytes that a step holds at once beyond what was there before.

    PyTorch's profiler notes every allocation of its CPU allocator, a kernel's own buffers among
    them; the peak is the largest running sum.
    """
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = step()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event["args"] for event in events if event["name"] == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda change: change["Ev Idx"]):
        held += change["Bytes"]
        peak = max(peak, held)
    return peak


def flops(size: tuple[int, int, int, int], mode: str) -> int:
    """Count two for each multiply-add of the matrix products; the way back costs twice as much."""
    batch, n, d_model, h = size
    forward = batch * counting.attention_flops(n, d_model, h)
    return forward * (3 if mode == "forward + backward" else 1)


def ratios(
    rounds: dict[str, list[float]], comparisons: dict[str, tuple[str, str]], places: int = 2
) -> list[str]:
    """Give for each comparison the quartiles of the rounds' ratios."""
    pairs = [zip(rounds[one], rounds[other], strict=True) for one, other in comparisons.values()]
    return [quartiles([one / other for one, other in pair], places) for pair in pairs]


def quartiles(values: list[float], places: int = 2) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{places}f} [{low:.{places}f} {high:.{places}f}]"


def import_seconds() -> float:
    """Return what importing labkit adds to importing torch, in a process of its own."""
    code = (
        "import time, torch; t = time.perf_counter(); import labkit; print(time.perf_counter() - t)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    print(f"\n{title}")
    for row in table:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def compare_speed(progress: tqdm) -> None:
    rate = 2 * MATMUL**3
    a, b = torch.randn(2, MATMUL, MATMUL)
    matmuls, tables = [], {}
    for mode in MODES:
        tables[mode] = []
        for size in SIZES:
            progress.set_description(f"time, {mode}, {size}")
            rounds = time_in_turns(make_steps(size, mode) | {"matmul": lambda: a @ b})
            matmuls += [rate / t / 1e9 for t in rounds["matmul"]]
            both = zip(rounds["labkit"], rounds["matmul"], strict=True)
            share = statistics.median(flops(size, mode) / t / (rate / m) for t, m in both)
            count = str(len(rounds["labkit"]))
            found = ratios(rounds, COMPARISONS)
            tables[mode].append([str(size), *found, f"{share:.0%}", count])
            progress.update()
    print(f"\nMatmul of two {MATMUL} x {MATMUL} matrices, GFLOP/s: {quartiles(matmuls)}.")
    print("It is timed in every round; the share is what labkit's rate is of it, without weights.")
    header = ["B, n, d_model, h", *COMPARISONS, "share of matmul", "rounds"]
    for mode, rows in tables.items():
        print_table(f"Time, {mode}", header, rows)


def compare_memory(progress: tqdm) -> None:
    tables = {}
    for mode in MODES:
        tables[mode] = []
        for size in SIZES:
            progress.set_description(f"memory, {mode}, {size}")
            peak = {name: peak_bytes(step) for name, step in make_steps(size, mode).items()}
            found = [f"{peak[one] / peak[other]:.2f}" for one, other in COMPARISONS.values()]
            tables[mode].append([str(size), *found])
            progress.update()
    print("\nPeak memory counts every allocation of PyTorch's CPU allocator during a call, a")
    print("kernel's own buffers among them, as PyTorch's profiler notes them.")
    for mode, rows in tables.items():
        print_table(f"Peak memory, {mode}", ["B, n, d_model, h", *COMPARISONS], rows)


def compare_decoding(progress: tqdm) -> None:
    rows = []
    for n in DECODED:
        progress.set_description(f"decoding at n = {n}")
        rounds = time_in_turns(make_decoding_steps(n))
        count = str(len(rounds["cached"]))
        rows.append([str(n), *ratios(rounds, STEP_COMPARISONS, places=3), count])
        progress.update()
    header = ["n", *STEP_COMPARISONS, "rounds"]
    print_table("Time of a decoding step, B = 1, d_model = 768, h = 12", header, rows)


def compare_kinds(progress: tqdm) -> None:
    rows = []
    for n in DECODED:
        progress.set_description(f"kinds of caches at n = {n}")
        rounds = time_in_turns(make_kind_steps(n))
        rows.append([str(n), *ratios(rounds, KIND_COMPARISONS), str(len(rounds["plain"]))])
        progress.update()
    title = f"Time of a decoding step with other caches, window {WINDOW}, sinks {SINKS}"
    print_table(title, ["n", *KIND_COMPARISONS, "rounds"], rows)


def compare_sharing(progress: tqdm) -> None:
    rows = []
    for size in SHARED:
        progress.set_description(f"shared keys, {size}")
        rounds = time_in_turns(make_shared_steps(*size))
        rows.append([str(size), *ratios(rounds, SHARED_COMPARISONS), str(len(rounds["folded"]))])
        progress.update()
    header = ["n, h, h_kv, d_k", *SHARED_COMPARISONS, "rounds"]
    print_table("Time of attention from one query, B = 1", header, rows)


def compare_tiles(progress: tqdm) -> None:
    rows = []
    for n, is_causal in TILED:
        progress.set_description(f"tiles, n = {n}")
        steps = make_tiled_steps(n, is_causal)
        rounds = time_in_turns(steps)
        peak = {name: peak_bytes(step) for name, step in steps.items()}
        found = [f"{peak[one] / peak[other]:.2f}" for one, other in TILED_COMPARISONS.values()]
        form, count = "causal" if is_causal else "whole", str(len(rounds["tiled"]))
        rows.append([f"{n}, {form}", *ratios(rounds, TILED_COMPARISONS), *found, count])
        progress.update()
    columns = [f"{what}, {name}" for what in ("time", "peak") for name in TILED_COMPARISONS]
    title = f"Attention in tiles of {BLOCK} x {BLOCK}, B = 1, h = 8, d_k = 64, inference"
    print_table(title, ["n", *columns, "rounds"], rows)


def show_growth(progress: tqdm) -> None:
    """Print peak bytes per token at growing n: level without weights, in proportion to n with."""
    rows = []
    for n in LENGTHS:
        progress.set_description(f"memory at n = {n}")
        modules = contestants(256, 8)
        ours = modules["labkit"][0]
        modules["labkit causal"] = ours, lambda x, ours=ours: ours(x, is_causal=True)
        row = [str(n)]
        for name, mode in GROWTH:
            module, call = modules[name]
            module.train(mode != "inference")
            step = make_step(module, call, torch.randn(1, n, 256), mode)
            row.append(f"{peak_bytes(step) / n:,.0f}")
        rows.append(row)
        progress.update()
    header = ["n", *(f"{name}, {mode}" for name, mode in GROWTH)]
    print_table("Peak bytes per token, B = 1, d_model = 256, h = 8", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="for PyTorch to use (default: 1)")
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    clock = "CPU time" if threads == 1 else "wall-clock time"
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {capability}, threads: {threads}, {clock}, float32.")
    print("PyTorch is torch.nn.MultiheadAttention(batch_first=True), with or without its weights;")
    print("loop computes head after head; transformers is labkit's layer with its DynamicCache and")
    print("PyTorch's function. The parameters are the same, and the outputs agree.")
    more = 2 * len(DECODED) + len(SHARED) + len(TILED) + len(LENGTHS) + IMPORTS
    total = 2 * len(MODES) * len(SIZES) + more
    with tqdm(total=total, file=sys.stderr, leave=False) as progress:
        compare_speed(progress)
        compare_decoding(progress)
        compare_kinds(progress)
        compare_sharing(progress)
        compare_tiles(progress)
        compare_memory(progress)
        show_growth(progress)
        progress.set_description("import")
        added = []
        for _ in range(IMPORTS):
            added.append(import_seconds())
            progress.update()
    print(f"\nImporting labkit adds to importing torch: {statistics.median(added) * 1000:.0f} ms.")


if __name__ == "__main__":
    main()
