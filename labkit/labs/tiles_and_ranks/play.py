"""Lab 9's laboratory: attention in tiles, sound or not, on inputs that show a bug or hide it.

And the learner's tiles and ring in the story GPT.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from labkit.attention import causal_mask
from labkit.figures import plots as figures
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, standing, stories, with_heads
from labkit.labs.tiles_and_ranks.check import Watch
from labkit.models.gpt import load_gpt
from labkit.models.stories import decode
from labkit.ranks import Rank, has_gloo, run
from labkit.tiles import Partial, partial_attention

N_K, QUERIES, D_K, D_V = 12, (8, 12), 4, 3
OFF = 0.005  # from which on a difference is told
SMALLEST = -1e30  # a running largest score before the first tile
DRAWN, HIGH = "drawn", "3,200 higher"
SCORES = (DRAWN, "rising", "falling", "all equal", HIGH)
VALUES = (DRAWN, "all ones")
YOURS, YOUR_MERGE = "your tiled_attention", "labkit's tiles, your merge"
STORY_TILE = 13, 17  # of a story of 48 words
LENGTHS, LONG_TILE = (256, 512, 1024, 2048), 128
ROUNDS = 3  # of which the quickest counts
WORLD, PATIENCE = 4, 20.0  # ranks that share a story, and seconds for one layer
Heads = tuple[Tensor, Tensor, Tensor]  # q, k and v
Tiled = Callable[[Tensor, Tensor, Tensor, int, int, bool], Tensor]
Merge = Callable[[Partial, Partial], Any]


def tiled(
    q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int, is_causal: bool, bug: str = "none"
) -> Tensor:
    """Attend tile by tile with a running largest score, sum and output, with a bug or none."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    may = causal_mask(n_q, n_k) if is_causal else torch.ones(n_q, n_k, dtype=torch.bool)
    i, j = torch.arange(n_q)[:, None], torch.arange(n_k)
    if bug == "the mask begins in the upper left corner":
        may = may & (j <= i)
    elif bug == "the mask begins anew in every tile":
        may = j % block_k <= i % block_q
    elif bug == "the first tile is not masked":
        may = may | (j < block_k)
    elif bug == "the last, smaller tile is left out":
        may = may & (j < max(n_k // block_k * block_k, 1))
    rows = []
    for top in range(0, n_q, block_q):
        x = q[..., top : top + block_q, :]
        acc = x.new_zeros(*x.shape[:-1], v.shape[-1])
        total, largest = torch.zeros_like(acc[..., :1]), torch.full_like(acc[..., :1], SMALLEST)
        for left in range(0, n_k, block_k):
            keys = slice(left, left + block_k)
            s = x @ k[..., keys, :].mT * x.shape[-1] ** -0.5
            s = s.masked_fill(~may[top : top + block_q, keys], -torch.inf)
            new = torch.maximum(largest, s.amax(dim=-1, keepdim=True))
            if bug == "the largest score is not taken off":
                new = 0 * new
            e, less = (s - new).exp(), (largest - new).exp()
            if bug == "the largest score is not taken off":
                less = torch.ones_like(less)
            acc = (acc if bug == "the old output is not scaled down" else acc * less) + (
                e @ v[..., keys, :]
            )
            total, largest = total * less + e.sum(dim=-1, keepdim=True), new
        rows.append(acc / total)
    return torch.cat(rows, dim=-2)


def averaged(
    q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int, is_causal: bool
) -> Tensor:
    """Attend tile by tile, and average what the tiles give in which a query sees something."""
    may = causal_mask(q.shape[-2], k.shape[-2])
    outs = torch.zeros(*q.shape[:-1], v.shape[-1])
    sees = torch.zeros(*q.shape[:-1], 1)
    for left in range(0, k.shape[-2], block_k):
        keys = slice(left, left + block_k)
        part = partial_attention(q, k[..., keys, :], v[..., keys, :], mask=may[:, keys])
        outs, sees = outs + part.out, sees + (part.lse > -torch.inf)[..., None]
    return outs / sees


def by_merge(
    merge: Merge, q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int, is_causal: bool
) -> Tensor:
    """Attend to tiles of keys from the last to the first, and merge what they give."""
    may = causal_mask(q.shape[-2], k.shape[-2])
    rows = []
    for top in range(0, q.shape[-2], block_q):
        x, seen = q[..., top : top + block_q, :], may[top : top + block_q]
        found = Partial(
            x.new_zeros(*x.shape[:-1], v.shape[-1]), x.new_full(x.shape[:-1], -torch.inf)
        )
        for left in reversed(range(0, k.shape[-2], block_k)):
            keys = slice(left, left + block_k)
            part = partial_attention(x, k[..., keys, :], v[..., keys, :], mask=seen[:, keys])
            found = Partial(*merge(found, part))
        rows.append(found.out)
    return torch.cat(rows, dim=-2)


def careless(a: Partial, b: Partial) -> Partial:
    """Merge without care for a query that sees nothing in both."""
    lse = torch.logaddexp(a.lse, b.lse)
    share_a, share_b = ((part.lse - lse).exp()[..., None] for part in (a, b))
    return Partial(share_a * a.out + share_b * b.out, lse)


BUGS: dict[str, Tiled] = {
    bug: partial(tiled, bug=bug)
    for bug in (
        "the old output is not scaled down",
        "the largest score is not taken off",
        "the last, smaller tile is left out",
        "the mask begins in the upper left corner",
        "the mask begins anew in every tile",
        "the first tile is not masked",
    )
} | {
    "the tiles are averaged": averaged,
    "nothing and nothing make NaN": partial(by_merge, careless),
    "none": tiled,
}


def laboratory(tiled_attention: Tiled | None = None, merge: Merge | None = None) -> Laboratory:
    """Make the controls: a bug, what scores and values are like, and the sizes of a tile.

    tiled_attention, merge : the learner's functions; those that run can be chosen too
    """
    import ipywidgets as widgets

    ways = dict(BUGS)
    own = {YOURS: tiled_attention, YOUR_MERGE: None if merge is None else partial(by_merge, merge)}
    ways |= {name: way for name, way in own.items() if way is not None and works(way)}
    wide = {"style": {"description_width": "8em"}, "layout": {"width": "min(100%, 32em)"}}
    controls = {
        "bug": widgets.Dropdown(options=list(ways), description="bug", **wide),
        "scores": widgets.Dropdown(options=SCORES, description="scores", **wide),
        "values": widgets.Dropdown(options=VALUES, description="values", **wide),
        "n_q": widgets.Dropdown(options=QUERIES, description="queries", **wide),
        "block_q": widgets.IntSlider(value=3, min=1, max=N_K, description="block_q", **wide),
        "block_k": widgets.IntSlider(value=5, min=1, max=N_K, description="block_k", **wide),
    }
    return Laboratory(controls, partial(draw, ways))


def works(way: Tiled) -> bool:
    """Say whether a learner's function gives outputs."""
    q, k, v = example(DRAWN, DRAWN, QUERIES[0])
    try:
        return way(q, k, v, 3, 5, True).shape == (*q.shape[:-1], D_V)
    except Exception:
        return False


def example(scores: str, values: str, n_q: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw q, k and v of one head, (1, 1, n, d), whose scores are exact in float32."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    q, k = ((3 * draw(1, 1, N_K, D_K)).round() / 2 for _ in range(2))
    v = draw(1, 1, N_K, D_V) if values == DRAWN else torch.ones(1, 1, N_K, D_V)
    q = q[:, :, :n_q]
    places = torch.arange(N_K, dtype=torch.float32)
    higher = {"rising": 2 * places, "falling": -2 * places, HIGH: 3200 + 0 * places}
    if scores in higher:
        q[..., 0], k[..., 0] = D_K**0.5, higher[scores]
    return (0 * q if scores == "all equal" else q), k, v


@torch.no_grad()
def draw(
    ways: dict[str, Tiled], bug: str, scores: str, values: str, n_q: int, block_q: int, block_k: int
) -> Any:
    """Draw how far each query's output is off."""
    q, k, v = example(scores, values, n_q)
    came = ways[bug](q, k, v, block_q, block_k, True)[0, 0].double()
    s = (q.double() @ k.double().mT / D_K**0.5).masked_fill(~causal_mask(n_q, N_K), -torch.inf)
    off = (came - (s.softmax(dim=-1) @ v.double())[0, 0]).abs().amax(dim=-1)
    lost = ~off.isfinite()
    wrong = lost | (off > OFF)
    rows = [f"{i}" for i in range(n_q)]
    traces = [
        {"type": "bar", "name": "off by", "x": rows, "y": off.masked_fill(lost, 0.0)},
        {
            **{"type": "scatter", "mode": "markers", "name": "not a number"},
            **{"marker": {"symbol": "x", "size": 10}},
            "x": [row for row, none in zip(rows, lost, strict=True) if none],
            "y": [0.0 for none in lost if none],
        },
    ]
    if lost.all():
        told = "none is a number"
    elif lost.any() and torch.equal(lost, wrong):
        told = "no number came there, and all others are right"
    else:
        nans = f", and {int(lost.sum())} are not numbers" if lost.any() else ""
        told = f"off by {off[~lost].max():.2f} at most{nans}"
    return figures.figure(
        traces,
        title="How far the output of each query is off",
        alt=f"Bug: {bug}; scores {scores}, values {values}, {n_q} queries, {N_K} keys, tiles of "
        f"{block_q} by {block_k}. {int(wrong.sum())} of {n_q} outputs are wrong: "
        f"{told}.",
        xaxis={"title": "query", "type": "category"},
        yaxis={"title": "largest difference", "rangemode": "tozero"},
        height=420,
    )


@finale
def tiles_in_the_model(tiled_attention: Answer) -> None:
    """Let the story GPT attend by the learner's tiles, and measure both ways on longer texts."""

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        block_q, block_k = STORY_TILE
        outcome = tiled_attention(
            q=q, k=k, v=v, block_q=block_q, block_k=block_k, is_causal=True
        )  # fmt: skip
        return outcome.tensor(*v.shape).to(v.dtype)

    print(
        compared(
            f"in your tiles of {STORY_TILE[0]} × {STORY_TILE[1]}", standing(with_heads(attend))
        )
    )
    long = heads_of_a_long_text()
    print(f"\nThe first layer alone, {long[0].shape[1]} heads, tiles of {LONG_TILE} × {LONG_TILE}:")
    print(f"{'':>8}{'seconds':>20}{'peak in MB':>24}")
    print(f"{'words':>8}" + 2 * f"{'written out':>14}{'tiles':>8}")
    for n in LENGTHS:
        heads = [x[:, :, :n].contiguous() for x in long]
        ways = [
            partial(written_out, *heads),
            partial(tiled_attention.function, *heads, LONG_TILE, LONG_TILE, True),
        ]
        took = [seconds(way) for way in ways]
        held = [peak(way, heads) / 1e6 for way in ways]
        print(f"{n:8,}{took[0]:14.3f}{took[1]:8.3f}{held[0]:14.1f}{held[1]:8.1f}")


def compared(how: str, came: dict[str, float]) -> str:
    """Say what a model loses beside the chapters' small GPT, and the entropy under both."""
    usual = standing(load_gpt())
    return (
        f"The story GPT's loss with its own attention: {usual['loss']:.4f} nats a word, and KL "
        f"{usual['KL']:.4f}.\n{how[0].upper() + how[1:]}: {came['loss']:.4f}, and KL "
        f"{came['KL']:.4f}. The entropy is {usual['entropy']:.4f}."
    )


@torch.no_grad()
def heads_of_a_long_text() -> Heads:
    """Make q, k and v of the first layer, (1, h, n, d_k), for stories one after another."""
    held: list[Heads] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        held.append((q, k, v))
        return v

    with_heads(attend)(stories().ids.flatten()[None, : LENGTHS[-1]])
    return held[0]


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with all scores at once, under a causal mask."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~causal_mask(q.shape[-2]), -torch.inf)
    return scores.softmax(dim=-1) @ v


@torch.no_grad()
def seconds(way: Callable[[], Any]) -> float:
    """Measure the quickest of some calls: other programs can only slow it down."""
    took = []
    for _ in range(ROUNDS):
        start = perf_counter()
        way()
        took.append(perf_counter() - start)
    return min(took)


@torch.no_grad()
def peak(way: Callable[[], Any], given: Any) -> int:
    """Count the bytes of all tensors that are alive at once, beyond those given."""
    with Watch().beyond(given) as watch:
        way()
    return watch.peak


class Noted:
    """A rank that keeps a copy of each tensor that it hands on; without a real one it is alone."""

    def __init__(self, real: Rank | None = None) -> None:
        self.rank, self.world = (0, 1) if real is None else (real.rank, real.world)
        self.real, self.handed = real, list[Tensor]()

    @property
    def sent(self) -> int:
        return 0 if self.real is None else self.real.sent

    def shift(self, t: Tensor) -> Tensor:
        self.handed.append(t.detach().clone())
        return t if self.real is None else self.real.shift(t)


@finale
def ring_in_the_model(ring_attention: Answer) -> None:
    """Let ranks share the story GPT's positions by the learner's ring, and draw its messages."""
    ring_attention(rank=Noted(), **{name: torch.ones(1, 2, 3, 4) for name in "qkv"})
    if not has_gloo():
        print("This PyTorch was built without the engine gloo, so the ring is not tried.")
        return
    layers: list[tuple[list[Noted], Heads]] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
        blocks = list(zip(*(x.chunk(WORLD, dim=2) for x in (q, k, v)), strict=True))
        ranks: dict[int, Noted] = {}

        def on_rank(rank: Rank) -> Tensor:
            ranks[rank.rank] = Noted(rank)
            out = ring_attention.function(ranks[rank.rank], *blocks[rank.rank])
            return torch.as_tensor(out)

        outs = run(on_rank, WORLD, timeout=PATIENCE)
        layers.append(([ranks[r] for r in range(WORLD)], (q, k, v)))
        return torch.cat(outs, dim=2).to(q)

    model, ids = with_heads(attend), stories().ids
    try:
        came = standing(model)
        layers.clear()
        with torch.no_grad():
            model(ids[:1])
    except (RuntimeError, TimeoutError) as error:
        print(f"The ring did not come to its end: {error}\nIts check says more.")
        return
    print(compared(f"on a ring of {WORLD} ranks", came) + "\n")
    for r, words in enumerate(ids[0].chunk(WORLD)):
        print(f"rank {r}:  {decode(words)}")
    print("\n" + messages(*layers[0]))


def messages(ranks: list[Noted], heads: Heads) -> str:
    """Write what each rank handed on in one layer, a row for each call, and the bytes of it."""
    _, k, v = heads
    (B, h, n, d_k), d_v, world = k.shape, v.shape[-1], len(ranks)
    blocks = list(zip(k.chunk(world, dim=2), v.chunk(world, dim=2), strict=True))
    table = [["call", *(f"{r} → {(r + 1) % world}" for r in range(world)), "bytes, each"]]
    for call, handed in enumerate(zip(*(rank.handed for rank in ranks), strict=True), 1):
        row = [f"{call}"]
        for r, t in enumerate(handed):
            what, source = named(t, blocks)
            row.append(f"({what})" if source > (r + 1) % world else what)
        table.append([*row, f"{handed[0].nbytes:,}"])
    wide = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["   ".join(f"{cell:>{w}}" for cell, w in zip(row, wide, strict=True)) for row in table]
    sent = ranks[0].sent
    formula = (world - 1) * B * h * n // world * (d_k + d_v) * 4
    return "\n".join(
        [
            f"The first layer's messages for this story; a block is of {n // world} words:",
            *lines,
            "(In brackets: all of it lies in the receiver's future.)",
            f"Rank 0 handed on {sent:,} bytes; (W − 1) · B · h · m · (d_k + d_v) · 4 is "
            f"{world - 1} · {B} · {h} · {n // world} · {d_k + d_v} · 4 = {formula:,}.",
        ]
    )


def named(t: Tensor, blocks: list[tuple[Tensor, Tensor]]) -> tuple[str, int]:
    """Say what a tensor holds, in whatever order, and of which rank: -1 where that is not plain."""

    def holds(*parts: Tensor) -> bool:
        own = torch.cat([part.flatten() for part in parts]).sort().values
        return torch.equal(t.flatten().sort().values, own)

    for r, (k, v) in enumerate(blocks):
        for what, parts in (("k", (k,)), ("v", (v,)), ("k, v", (k, v))):
            if holds(*parts):
                return f"{what} of {r}", r
    return f"{tuple(t.shape)}", -1
