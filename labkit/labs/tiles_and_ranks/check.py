"""Lab 9: partial results and their merge, tiles, a rank's share of a layer, and a ring of ranks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, wraps
from itertools import combinations
from math import prod
from time import monotonic
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from labkit.attention import MultiHeadAttention, causal_mask
from labkit.labs.examples import Shown, drawing, opened
from labkit.labs.guard import Answer, Outcome, blame, exercise, near, recognise, right, show
from labkit.ranks import Rank, has_gloo, run
from labkit.tiles import Partial

INF = float("inf")
WITHIN = 1e-4  # how far a number may be off, measured by the largest that should come
ROUGHLY = 1e-2  # the same where scores are in the thousands: one lse in float32 is rounded by 2e-4
SHARED = "one largest lse was taken off for several queries or heads, and not each query's own"
NO_SIGN = (
    "out is 0 too where values are 0 or cancel; only an lse of −inf says that nothing was seen"
)
GRACE = 1.0  # seconds for a rank that is late to say so
PATIENCE = 5.0  # seconds that a rank gets for one example
Part = tuple[Tensor, Tensor]  # out, (..., n_q, d_v), and lse, (..., n_q)


# Two parts into one


@exercise
def merge(function: Callable[[Part, Part], Part]) -> None:
    """Check that two partial results (out, lse) become one."""
    answer = Answer("merge", opened(function))
    small = [[[2.0, 7.0], [-1.0, 4.0]], [[5.0, -3.0], [9.0, 0.5]]]
    for lse_a, lse_b in (
        ([0.4, 1.3], [1.7, -0.6]),
        ([0.8, -INF], [-INF, 2.0]),
        ([-INF, 0.25], [-INF, -1.2]),
        ([5000.0, 900.0], [5001.0, 899.5]),
        ([-5000.0, -901.0], [-5000.5, -900.0]),
        ([300.0, -700.0], [-300.0, 800.0]),
        ([-12_000.0, -INF], [-12_001.0, -12_000.0]),
    ):
        a, b = (part(out, lse) for out, lse in zip(small, (lse_a, lse_b), strict=True))
        expect_merged(answer, a, b)
    zeros = [[0.0, 0.0], [0.0, 0.0]]  # of keys that are seen, and whose values are 0 or cancel
    for out_a, out_b in ((zeros, small[1]), (small[0], zeros)):
        expect_merged(answer, part(out_a, [1.5, -0.7]), part(out_b, [0.9, 2.2]))
    # Two heads of one query, thousands apart
    heads = [[[2.0, 7.0, -3.0]], [[-1.0, 4.0, 6.0]]], [[[5.0, 0.5, 8.0]], [[9.0, -2.0, 3.0]]]
    low_and_high = [[5000.0], [0.4]], [[5001.0], [1.7]]
    a, b = (part(out, lse) for out, lse in zip(heads, low_and_high, strict=True))
    expect_merged(answer, a, b)
    # However little a part weighs, its values are large enough to show in the result; and yet small
    # enough for weights s and 1 - s, with the little of 1 - s that rounding leaves.
    for gaps in (torch.tensor([0, 1, 3, 4.5, 6, 7.5, 9, 11, 13]), torch.tensor([12.5, 12.8])):
        draw, n = drawing(4), len(gaps)
        heavy = draw(n, 3), draw(n)
        light = draw(n, 3) * (0.44 * gaps).exp()[:, None], heavy[1] - gaps
        for a, b in ((heavy, light), (light, heavy)):
            expect_merged(answer, a, b)
    for seed, (shape, high) in enumerate(
        (((4, 3), 0.0), ((2, 3, 4, 5), 0.0), ((3, 1, 6, 2), 2000.0), ((2, 5, 4, 3), -2000.0))
    ):
        draw = drawing(seed)
        parts = []
        for _ in range(2):
            lse = 2 * draw(*shape[:-1]) + high
            lse = lse.masked_fill(draw(*shape[:-1]) > 1, -INF)  # a query that sees nothing
            parts.append((draw(*shape).masked_fill((lse == -INF)[..., None], 0.0), lse))
        expect_merged(answer, *parts)
    right("merge", "Parts join into what attention over all of their keys gives.")


def part(out: list[Any], lse: list[Any]) -> Part:
    """Make a part of a few queries by hand; where one sees nothing, its output is zero."""
    held = torch.tensor(lse)
    return torch.tensor(out).masked_fill(held[..., None] == -INF, 0.0), held


def expect_merged(answer: Answer, a: Part, b: Part) -> None:
    """Demand output and lse of a and b together."""
    given = [Partial(*(t.clone() for t in one)) for one in (a, b)]
    told = {
        name: Shown(one, f"({show(of[0])}, {show(of[1])})")
        for name, one, of in zip("ab", given, (a, b), strict=True)
    }
    outcome = answer(**told)
    same = all(
        torch.equal(x, y) for one, of in zip(given, (a, b), strict=True)
        for x, y in zip(one, of, strict=True)
    )  # fmt: skip
    outcome.demand(same, "a and b are left as they were", "one of them was changed in place")
    first, second = outcome.pair("out", "lse")
    came = [getattr(one.value, "shape", None) for one in (first, second)]
    outcome.demand(came != [a[1].shape, a[0].shape], "out first, then lse", "came lse, then out")
    wanted = joined(a, b)
    blind = wanted.lse == -INF
    expect_numbers(first, wanted.out, a, b, blind)
    expect_numbers(second, wanted.lse, a, b, blind)
    out, lse = first.tensor(*wanted.out.shape), second.tensor(*wanted.lse.shape)
    # Of large numbers rounding leaves less.
    off = (lse - wanted.lse).abs() > WITHIN + 4e-7 * wanted.lse.abs()
    off = off | ((lse == -INF) != blind)
    if off.any():
        at = tuple(off.nonzero()[0].tolist())
        outcome.demand(
            False,
            "lse is the logarithm of the sum of the exponentials of all scores, of both parts"
            + ("; −inf where there are none" if off[blind].any() else ""),
            f"of lse {show(a[1][at])} and {show(b[1][at])} came {show(lse[at])}"
            + cause(lse, wanted.lse, wrong_sums(a, b)),
        )
    high = bool((a[1].abs().nan_to_num(posinf=0.0) > 500).any())
    off = differs(out, wanted.out, high).any(dim=-1)
    if off.any():
        at = tuple(off.nonzero()[0].tolist())
        outcome.demand(
            False,
            "out is attention over the keys of both: a part counts by the sum of its exponentials",
            f"{int(off.sum())} of {off.numel()} queries differ, first one for which a has "
            f"{show(a[0][at])} with lse {show(a[1][at])}, b has {show(b[0][at])} with lse "
            f"{show(b[1][at])}, and {show(out[at])} came"
            + cause(out, wanted.out, wrong_outputs(a, b, high, off)),
        )


def expect_numbers(outcome: Outcome, wanted: Tensor, a: Part, b: Part, blind: Tensor) -> None:
    """Demand that no number is NaN, and name where one comes from."""
    got = outcome.value
    if not isinstance(got, Tensor) or got.shape != wanted.shape or not got.isnan().any():
        return
    bad = got.isnan() if wanted.shape == blind.shape else got.isnan().any(dim=-1)
    outcome.demand(
        not bad[blind].any(),
        "a query that sees nothing in a and nothing in b: out 0 and lse −inf",
        f"{outcome.part} has NaN there: −inf − (−inf) is no number, and 0/0 is none",
    )
    one = (a[1] == -INF) | (b[1] == -INF)
    outcome.demand(
        not bad[one].any(),
        "a part in which a query sees nothing, out 0 and lse −inf, changes nothing",
        f"{outcome.part} has NaN for such a query",
    )
    at = tuple(bad.nonzero()[0].tolist())
    first = torch.maximum(a[1], b[1]).argmax()
    outcome.demand(
        bool(bad.flatten()[first]),
        "what is taken off before exp is the largest of each query's own two lse",
        f"{outcome.part} has NaN where lse are {show(a[1][at])} and {show(b[1][at])}, and none for "
        "the query with the largest lse of all",
    )
    outcome.demand(
        False,
        "a constant that is added to both lse changes no output, be it in the thousands",
        f"{outcome.part} has NaN where lse are {show(a[1][at])} and {show(b[1][at])}; in float32 "
        "the exponential of 89 is inf, and that of −104 is 0",
    )


def joined(a: Part, b: Part) -> Partial:
    """Merge two parts in float64."""
    (out_a, lse_a), (out_b, lse_b) = ((out.double(), lse.double()) for out, lse in (a, b))
    lse = torch.logaddexp(lse_a, lse_b)
    share_a, share_b = ((one - lse).exp().nan_to_num(0.0)[..., None] for one in (lse_a, lse_b))
    return Partial(share_a * out_a + share_b * out_b, lse)


def taken_for_nothing(a: Part, b: Part) -> dict[str, tuple[Part, Part]]:
    """Give a and b as a merge takes them that mistakes a part for one that sees nothing."""

    def without(empty: Callable[[Tensor, Tensor], Tensor]) -> tuple[Part, Part]:
        low_a, low_b = (lse.masked_fill(empty(out, lse), -INF) for out, lse in (a, b))
        return (a[0], low_a), (b[0], low_b)

    return {
        NO_SIGN: without(lambda out, _: (out == 0).all(dim=-1)),
        "an lse as low as that was taken for −inf, as if nothing were seen": without(
            lambda _, lse: lse < -1000
        ),
    }


def wrong_outputs(a: Part, b: Part, high: bool, off: Tensor) -> dict[str, Tensor]:
    """Give outputs of merges that go wrong, by the words for it.

    Args:
        off: for which queries the answer's output is wrong.
    """
    (out_a, lse_a), (out_b, lse_b) = ((out.double(), lse.double()) for out, lse in (a, b))
    e_a, e_b, low_a, low_b = (x[..., None] for x in (lse_a.exp(), lse_b.exp(), lse_a, lse_b))
    share_a, share_b = e_a / (e_a + e_b), e_b / (e_a + e_b)
    of_all, right_out = max(low_a.max(), low_b.max()), joined(a, b).out
    less_a, less_b = (low_a - of_all).exp(), (low_b - of_all).exp()
    zero_a, zero_b = (e.where(e > 0, 1.0) for e in (e_a, e_b))
    # An answer that fails only where lse are large does not average: it cannot tell them apart.
    return {told: joined(*pair).out for told, pair in taken_for_nothing(a, b).items()} | {
        "both count alike, as if such lse were equal" if high else "the two were averaged": (
            out_a + out_b
        )
        / 2,
        "0 came for every query: exp of 89 is inf in float32 and exp of −104 is 0, and NaN made 0 "
        "is still wrong": 0 * out_a,
        SHARED: ((less_a * out_a + less_b * out_b) / (less_a + less_b)).nan_to_num(0.0),
        "a part that sees nothing counts as if its lse were 0": (zero_a * out_a + zero_b * out_b)
        / (zero_a + zero_b),
        "the softmax runs over the queries, and not over the two parts": (
            low_a.softmax(dim=-2) * out_a + low_b.softmax(dim=-2) * out_b
        ),
        "a part that sees nothing counts as if its lse were a number, and above −12,000": (
            torch.where(low_a == -INF, out_a, torch.where(low_b == -INF, out_b, right_out))
        ),
        "that is the part with the larger lse alone": torch.where(
            off[..., None], torch.where(low_a > low_b, out_a, out_b), right_out
        ),
        "the two were added as they are": out_a + out_b,
        "each has the other's weight": share_b * out_a + share_a * out_b,
        "they were weighted by lse, and not by its exponential": (low_a * out_a + low_b * out_b)
        / (low_a + low_b),
        "the weights do not add up to 1": e_a * out_a + e_b * out_b,
        "a was not scaled down for the weight that b has": out_a + share_b * out_b,
    }


def wrong_sums(a: Part, b: Part) -> dict[str, Tensor]:
    """Give lse of merges that go wrong, by the words for it."""
    lse_a, lse_b = a[1].double(), b[1].double()
    of_all = max(lse_a.max(), lse_b.max())
    return {told: joined(*pair).lse for told, pair in taken_for_nothing(a, b).items()} | {
        SHARED: of_all + ((lse_a - of_all).exp() + (lse_b - of_all).exp()).log(),
        "that is the larger of the two": torch.maximum(lse_a, lse_b),
        "that is their sum": lse_a + lse_b,
        "that is their mean": (lse_a + lse_b) / 2,
        "that is the logarithm of the mean of the two sums": torch.logaddexp(lse_a, lse_b)
        - torch.tensor(2.0).log(),
        "log(1 + exp b) was added to a, and not log(1 + exp(b − a))": lse_a + F.softplus(lse_b),
        "the exponentials of both lse were added as they are, and that of 89 is inf in float32, "
        "that of 710 in float64 too": (lse_a.float().exp() + lse_b.float().exp()).log().double(),
        "that is the sum, before its logarithm": lse_a.exp() + lse_b.exp(),
        "log(1 + exp(larger − smaller)) was added: the difference has the wrong sign": (
            2 * torch.maximum(lse_a, lse_b) - torch.minimum(lse_a, lse_b)
        )
        + F.softplus(-(lse_a - lse_b).abs()),
        "that is what is left once the larger was taken off": torch.logaddexp(lse_a, lse_b)
        - torch.maximum(lse_a, lse_b),
    }


def differs(out: Tensor, wanted: Tensor, high: bool = False) -> Tensor:
    """Say where numbers are off by more than rounding leaves; high: scores in the thousands."""
    largest = max(float(wanted.abs().max()), 1e-30)
    return (out - wanted).abs() > (ROUGHLY if high else WITHIN) * largest


def cause(out: Tensor, wanted: Tensor, known: dict[str, Tensor], high: bool = False) -> str:
    """Name the mistake that gives this result, among those that this example shows."""
    shown = {
        told: x
        for told, x in known.items()
        if x.shape == wanted.shape and differs(x, wanted, high).any()
    }
    return recognise(out, shown, ROUGHLY if high else WITHIN)


# Tiles

# B, h, n_q, n_k, d_k, d_v, block_q, block_k, causal, and what the scores are like. The numbers of
# an example differ, and so do n_k - n_q and what is left for the last tiles.
Tiles = tuple[int, int, int, int, int, int, int, int, bool, str]
TILES: tuple[Tiles, ...] = (
    (1, 1, 8, 14, 3, 2, 5, 4, False, "any"),
    (1, 1, 9, 21, 6, 3, 7, 5, False, "rise"),
    (1, 1, 8, 17, 5, 6, 3, 4, False, "fall"),
    (1, 1, 17, 24, 3, 2, 4, 9, True, "any"),
    (2, 3, 10, 17, 5, 4, 6, 9, False, "any"),
    (2, 3, 11, 16, 9, 7, 4, 6, True, "any"),
    (1, 2, 10, 17, 4, 6, 3, 5, True, "are 3,200 higher"),
    (2, 1, 7, 12, 4, 6, 3, 5, False, "are 3,200 lower"),
    (2, 1, 9, 16, 4, 6, 5, 3, True, "are 12,000 lower"),
    (1, 3, 10, 10, 5, 2, 4, 7, True, "rise by hundreds"),
    (1, 2, 8, 17, 4, 3, 5, 7, True, "fall by hundreds"),
    (2, 1, 10, 13, 3, 6, 4, 5, False, "rise, then fall"),
    (2, 3, 6, 11, 4, 5, 7, 13, True, "any"),
    (3, 2, 1, 9, 5, 4, 6, 7, True, "any"),
    (2, 3, 7, 12, 1, 1, 1, 5, True, "any"),
    (3, 2, 7, 11, 4, 5, 6, 1, False, "any"),
    (2, 3, 14, 25, 4, 5, 8, 9, True, "lie apart"),
    (1, 2, 13, 23, 6, 7, 8, 4, True, "have values of 0"),
)
# One head, n larger than the widths, and small tiles: rows of tiles would show in memory, even as
# a mask, and so would tiles that are kept, a column of them in the first and a row in the second.
LONG: tuple[Tiles, ...] = (
    (1, 1, 160, 86, 3, 2, 9, 8, False, "any"),
    (1, 1, 69, 170, 2, 3, 7, 9, True, "any"),
)
OPERATORS = ("matmul", "mm", "einsum", "dot", "linear", "inner", "attention")  # in names
PRODUCTS = (*OPERATORS, "sum")
KEPT = 16  # tensors of a tile's shape that may be alive at once: one for each step of the work
ZEROS = "have values of 0"
TURN = "rise, then fall"
AT_ONCE, STEP = ("rise", "fall"), 12.8
REMARKS = {
    "any": "",
    "rise": f"; in this example the later half of the keys have scores that are {STEP} higher, and "
    "the values of the others are hundreds of times as large",
    "fall": f"; in this example the later half of the keys have scores that are {STEP} lower, and "
    "values that are hundreds of times as large",
    "are 3,200 higher": "; in this example 3,200 was added to all scores",
    "are 3,200 lower": "; in this example 3,200 was taken off all scores",
    "are 12,000 lower": "; in this example 12,000 was taken off all scores",
    "rise by hundreds": "; in this example scores rise by 300 from key to key",
    "fall by hundreds": "; in this example scores fall by 300 from key to key",
    TURN: "; in this example scores rise by 300 from key to key for the first half of the "
    "queries, and fall for the others",
    "lie apart": "; in this example the scores of each head are 300 higher than the last head's, "
    "from text to text too",
    ZEROS: "; in this example the values of keys 0 to 3, 8 to 11, and so on are 0",
}
# By how much scores rise from key to key, or at once for the later half; from head to head; and how
# high the first is
RAISED = {
    "rise": (STEP, 0, 0),
    "fall": (-STEP, 0, 0),
    "are 3,200 higher": (0, 0, 3200),
    "are 3,200 lower": (0, 0, -3200),
    "are 12,000 lower": (0, 0, -12_000),
    "rise by hundreds": (300, 0, 0),
    "fall by hundreds": (-300, 0, 0),
    TURN: (300, 0, 0),
    "lie apart": (0, 300, 0),
    ZEROS: (0, 0, 0),
}
NAN = (
    "NaN comes of −inf − (−inf), of 0 · inf and of 0/0, and in float32 the exponential of 89 is "
    "inf, that of −104 is 0"
)
TURNED = "what may be seen is hidden, and what may not is seen"
HIGH = {what for what, remark in REMARKS.items() if "00" in remark}


@exercise
def tiled_attention(function: Callable[[Tensor, Tensor, Tensor, int, int, bool], Tensor]) -> None:
    """Check attention tile by tile: q, k, v (B, h, n, d), sizes of a tile, and whether causal."""
    watch: list[Watch] = []

    answer = Answer("tiled_attention", watched(function, watch))
    for seed, case in enumerate(TILES):
        expect_tiled(answer, seed, case)
    for seed, case in enumerate(LONG):
        *_, n_q, n_k, d_k, d_v, block_q, block_k, _, _ = case
        sides = [{block, n % block} for n, block in ((n_q, block_q), (n_k, block_k))]
        tile = {shape for a in sides[0] for b in sides[1] for shape in ((a, b), (b, a))}
        rows = max(n_q + block_q, n_k + block_k) * (d_k + d_v)
        most = max(rows, block_q * block_k * max(d_k, d_v))
        blocks = {"queries": block_q, "keys": block_k, "values": block_k}
        watch.append(Watch(most, block_q * block_k, d_k + d_v, n_k, tile, blocks))
        outcome = expect_tiled(answer, seed, case)
        seen = watch[-1].seen
        counts = {-(-n_q // block_q), -(-n_k // block_k)}
        outcome.demand(
            seen is None,
            f"no more than {block_q} × {block_k} scores of a head exist at a time, nor a mask "
            f"larger than that: one head, {n_q} queries, {n_k} keys",
            f"a tensor of shape {seen} came about"
            + (
                "; is a block size how large blocks are, or how many there are?"
                if seen and counts & set(seen)
                else ""
            ),
        )
        number, of = watch[-1].read_at_once or (0, "")
        outcome.demand(
            not number,
            f"no more than {block_q} queries meet no more than {block_k} keys at a time",
            f"{number} {of} were read at once"
            + (
                "; have block_q and block_k changed places?"
                if number == (block_k if of == "queries" else block_q)
                else ""
            ),
        )
        outcome.demand(
            watch[-1].most_kept <= KEPT,
            "a tile of scores is let go before the next one is computed",
            f"{watch[-1].most_kept} tensors of the shape of a tile were alive at once",
        )
    right("tiled_attention", "Tiles of any size give what one large softmax gives.")


def watched(function: Any, watch: list[Watch]) -> Any:
    """Let the last of the watches look on, where there is one."""
    if not callable(function):
        return function

    @wraps(function)
    def call(*given: Any) -> Any:
        with watch[-1].beyond(given) if watch else nullcontext():
            return function(*given)

    return call


@cache
def named(maker: str, words: tuple[str, ...]) -> bool:
    """Say whether the name of a function has one of the words in it."""
    return any(word in maker for word in words)


class Watch(TorchFunctionMode):
    """Looks on while tensors come about, and counts those that are alive.

    The shape of the first that is too large is noted in ``seen``.

    Args:
        most: numbers that any may hold.
        scores: numbers that a mask may hold, or a product that has no axis of features.
        width: an axis as short as that holds features.
        keys: how many keys there are; a product of one query and all of them is too large.
        tile: last two dimensions of those that ``most_kept`` counts.
        blocks: what the rows of the first tensors given are, and how many a product may read.
    """

    def __init__(
        self,
        most: float = INF,
        scores: float = INF,
        width: int = 0,
        keys: int = 0,
        tile: Iterable[tuple[int, int]] = (),
        blocks: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.blocks = blocks or {}
        self.most, self.scores, self.width, self.keys = most, scores, width, keys
        self.tile = set(tile)
        self.seen: tuple[int, ...] | None = None
        self.most_kept = self.peak = self.held = 0  # peak and held in bytes
        self.read_at_once: tuple[int, str] | None = None  # how many of what
        self.given: set[int] = set()
        # Of a storage: what its rows are, how many numbers a row has, and how many may be read.
        self.rows: dict[int, tuple[str, int, int]] = {}
        self.alive: dict[int, Any] = {}  # a reference to each tensor
        self.users: dict[int, int] = {}  # how many of them share a storage
        self.kept: set[int] = set()  # storages of tiles

    def beyond(self, given: Iterable[Any]) -> Watch:
        """Leave out what was there before."""
        tensors = [t for t in given if isinstance(t, Tensor)]
        self.given = {t.untyped_storage().data_ptr() for t in tensors}
        self.rows = {
            t.untyped_storage().data_ptr(): (kind, t.shape[-1], most)
            for t, (kind, most) in zip(tensors, self.blocks.items(), strict=False)
        }
        return self

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        # Most of what comes by here is no tensor, but a shape or a type that is asked for.
        maker = getattr(func, "__name__", "")
        if isinstance(out, Tensor):
            if id(out) not in self.alive:
                self.note(out, maker)
        elif isinstance(out, (tuple, list)) and not isinstance(out, torch.Size):
            for t in tree_leaves(out):
                if isinstance(t, Tensor) and id(t) not in self.alive:
                    self.note(t, maker)
        if self.rows and named(maker, OPERATORS):
            for t in tree_leaves(args):
                if isinstance(t, Tensor):
                    self.read(t)
        return out

    def read(self, t: Tensor) -> None:
        """Note the first product that reads too much of what was given at once."""
        kind, width, most = self.rows.get(t.untyped_storage().data_ptr(), ("", 1, t.numel()))
        if t.numel() > width * most:
            self.read_at_once = self.read_at_once or (t.numel() // width, kind)

    def note(self, t: Tensor, maker: str) -> None:
        storage, shape = t.untyped_storage(), tuple(t.shape)
        size, at = storage.nbytes(), storage.data_ptr()
        if at in self.given or not size:
            return
        if self.seen is None and self.too_large(t, size // t.itemsize, maker):
            self.seen = shape
        if shape[-2:] in self.tile:
            self.kept.add(at)
        if at not in self.users:
            self.held += size
        self.users[at] = self.users.get(at, 0) + 1
        self.peak, self.most_kept = max(self.peak, self.held), max(self.most_kept, len(self.kept))
        key = id(t)

        def gone(_: Any) -> None:
            del self.alive[key]
            self.users[at] -= 1
            if not self.users[at]:
                del self.users[at]
                self.held -= size
                self.kept.discard(at)

        self.alive[key] = weakref.ref(t, gone)

    def too_large(self, t: Tensor, held: int, maker: str) -> bool:
        axes = [n for n in t.shape if n > 1]
        product = named(maker, PRODUCTS)
        if any(n <= self.width for n in axes) or not (product or t.dtype == torch.bool):
            return held > self.most
        if len(axes) < 2:
            return product and t.numel() == self.keys
        return min(t.numel(), held) > self.scores  # a tensor that was expanded holds fewer


def drawn(seed: int, sizes: tuple[int, ...], what: str) -> list[Tensor]:
    """Draw q, k and v, as a split gives them: their numbers do not lie in order."""
    B, h, n_q, n_k, d_k, d_v = sizes
    draw = drawing(seed + sum(sizes))
    shapes = ((n_q, d_k), (n_k, d_k), (n_k, d_v))
    q, k, v = (draw(B, n, h, d).transpose(1, 2) for n, d in shapes)
    if not REMARKS[what]:
        return [1.5 * q, k, v]
    q, k = (2 * q).round() / 2, (2 * k).round() / 2
    slope, step, constant = RAISED[what]
    heads = torch.arange(B * h).view(B, h, 1)
    # The scale takes √d_k away again.
    rise = slope * torch.arange(n_k)
    if what in AT_ONCE:  # and alike for every query: whole tiles weigh little
        rise = slope * (torch.arange(n_k) >= n_k // 2)
        q *= 0.0
        v *= torch.where(rise < rise.max(), 300.0, 1.0)[:, None]
    q[..., 0], k[..., 0] = d_k**0.5, constant + rise + step * heads
    if what == TURN:
        q[..., n_q // 2 :, 0] *= -1
    if what == ZEROS:
        v[..., torch.arange(n_k) // 4 % 2 == 0, :] = 0.0
    return [q, k, v]


def expect_tiled(answer: Answer, seed: int, case: Tiles) -> Outcome:
    """Demand what attention without tiles gives."""
    *sizes, block_q, block_k, is_causal, what = case
    q, k, v = drawn(seed, tuple(sizes), what)
    outcome = answer(q=q, k=k, v=v, block_q=block_q, block_k=block_k, is_causal=is_causal)
    n_q, n_k = q.shape[-2], k.shape[-2]
    may = causal_mask(n_q, n_k) if is_causal else torch.ones(n_q, n_k, dtype=torch.bool)
    wanted = attended(q, k, v, may)
    got = outcome.value
    lost = isinstance(got, Tensor) and got.shape == wanted.shape and got.isnan()
    if isinstance(lost, Tensor) and lost.any():
        i, there = int(lost.any(dim=-1).nonzero()[0][-1]), ~lost.any(dim=-1)
        rows, turned = (x.detach().double()[there] for x in (got, attended(q, k, v, ~may)))
        mistaken = is_causal and len(rows) and near(rows, turned)
        at = torch.arange(n_k).expand(n_q, -1) // block_k
        tiles = [at == number for number in range(-(-n_k // block_k))]
        outcome.demand(
            False,
            f"a number in every place{REMARKS[what]}",
            f"{int(lost.sum())} of {lost.numel()} are NaN, first for query {i} of {n_q}; "
            + (TURNED if mistaken else nan_cause(lost.any(dim=-1), q, k, may, tiles, block_q)),
        )
    out = outcome.tensor(*wanted.shape)
    off = differs(out, wanted, what in HIGH).any(dim=-1)
    if off.any():
        b, head, i = off.nonzero()[0].tolist()
        # What leaves light tiles out looks like much else, and the remark says enough.
        known = {} if what in AT_ONCE else wrong_tiles(q, k, v, may, block_q, block_k)
        outcome.demand(
            False,
            f"what softmax(q kᵀ/√d_k) v gives, with tiles of {block_q} × {block_k}"
            + (", and with the last query at the last key" if is_causal else ""),
            f"{int(off.sum())} of {off.numel()} rows differ, first query {i} of {n_q} (text {b}, "
            f"head {head}), in block {i // block_q} of the queries{REMARKS[what]}"
            + cause(out, wanted, known, what in HIGH),
        )
    return outcome


def attended(q: Tensor, k: Tensor, v: Tensor, may: Tensor, scale: float | None = None) -> Tensor:
    """Attend in float64, all at once; a query that sees nothing gets zeros."""
    return weights(q, k, may, scale) @ v.double()


def weights(q: Tensor, k: Tensor, may: Tensor, scale: float | None = None) -> Tensor:
    s = scores(q, k, may, scale)
    return s.softmax(dim=-1).nan_to_num(0.0)


def scores(q: Tensor, k: Tensor, may: Tensor, scale: float | None = None) -> Tensor:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return (q.double() @ k.double().mT * scale).masked_fill(~may, -INF)


def wrong_tiles(
    q: Tensor, k: Tensor, v: Tensor, may: Tensor, block_q: int, block_k: int
) -> dict[str, Tensor]:
    """Give what tiles give that go wrong, by the words for it."""
    n_q, n_k = may.shape
    i, j = torch.arange(n_q)[:, None], torch.arange(n_k)
    top, left = i // block_q * block_q, j // block_k * block_k
    at, right = i + n_k - n_q, (left + block_k).clamp(max=n_k) - 1
    bottom = (top + block_q).clamp(max=n_q) - 1
    masks = {
        "the keys of the last, smaller tile are left out": may & (j < n_k // block_k * block_k),
        "only the first tile of keys counts": may & (left == 0),
        "only the last tile of keys counts": may & (right == n_k - 1),
    }
    if may.all():
        masks |= {"keys are hidden although is_causal is False": j <= at}
    else:
        masks |= {
            "nothing is hidden": torch.ones_like(may),
            "query i sees keys up to i, as if n_q and n_k were equal": j <= i,
            "the mask begins anew in every tile": j - left <= i - top,
            "queries are counted from the top of their tile": j <= at - top,
            "keys are counted from the left of their tile": j - left <= at,
            "the mask is the wrong way round": j >= at,
            TURNED: j > at,
            "a query does not attend to the key at its own position": j < at,
            "a query attends to the key after its own position": j <= at + 1,
            "tiles are skipped as if n_q and n_k were equal": may & (left <= bottom),
            "a tile is skipped if its first query sees nothing of it": (
                may & (left <= top + n_k - n_q)
            ),
            "a tile is skipped of which its last query alone sees a key": (
                may & (left < bottom + n_k - n_q)
            ),
            "tiles are skipped by their numbers, as if there were as many of keys as of queries": (
                may & (j // block_k <= i // block_q)
            ),
            "a tile is skipped whose first key comes after its first query, as if n_q and n_k were "
            "equal": may & (left <= top),
            "only the tiles whose two numbers are equal were masked": (
                may | (j // block_k != i // block_q)
            ),
            "a tile that its last query sees whole counts as seen by all": (
                may | (right <= bottom + n_k - n_q)
            ),
            "the mask was made for the tile alone, its last query at its last key": (
                j - left <= i - top + (right - left) - (bottom - top)
            ),
            "a tile that is seen in part counts whole": left <= bottom + n_k - n_q,
            "a tile that is seen in part is left out": right <= top + n_k - n_q,
        }
    found = {told: attended(q, k, v, mask) for told, mask in masks.items()}
    d_k, d_v = q.shape[-1], v.shape[-1]
    scales = {"1": 1.0, "1/d_k": 1 / d_k, "1/√d_v": d_v**-0.5, "1/√n_k": n_k**-0.5}
    for told, scale in (scales | {"1/√(h d_k)": (q.shape[1] * d_k) ** -0.5}).items():
        found[f"the scale is not 1/√d_k but {told}"] = attended(q, k, v, may, scale)
    whole = scores(q, k, torch.ones_like(may))
    if not may.all():
        found["a hidden key still counts in the sum of exponentials"] = (
            whole.softmax(dim=-1).masked_fill(~may, 0.0) @ v.double()
        )
        found |= finite_fills(q, k, v, may, left <= bottom + n_k - n_q, "tile")
    padded = F.pad(scores(q, k, may), (0, -n_k % block_k)).softmax(dim=-1)
    found["zeros that fill the last tile count as keys"] = padded[..., :n_k] @ v.double()
    last = n_q // block_q * block_q
    found["the last, smaller block of queries is left empty"] = attended(q, k, v, may & (i < last))
    return found | wrong_merges(q, k, v, [may & (left == of) for of in range(0, n_k, block_k)])


def finite_fills(
    q: Tensor, k: Tensor, v: Tensor, may: Tensor, reached: Tensor, name: str
) -> dict[str, Tensor]:
    """Give what comes of a number in place of hidden scores, be it of all or where one reaches."""
    low = bool(scores(q, k, may).amax() < -1e4)
    fill, above = (-1e4, ", above those that are seen,") if low else (0.0, "")
    told = f"what is hidden has a finite score{above} and not −inf"
    s = scores(q, k, torch.ones_like(may)).masked_fill(~may, fill)
    some = s.masked_fill(~may & ~reached, -INF)
    return {
        told: s.softmax(dim=-1) @ v.double(),
        f"in a {name} that is seen in part {told}": some.softmax(dim=-1) @ v.double(),
    }


def wrong_merges(
    q: Tensor, k: Tensor, v: Tensor, tiles: list[Tensor], name: str = "tile"
) -> dict[str, Tensor]:
    """Give what comes of tiles, one after another, when their results are put together wrongly."""
    values = v.double()
    parts = torch.stack([attended(q, k, v, tile) for tile in tiles])
    keys = torch.stack([tile.sum(dim=-1, keepdim=True) for tile in tiles])[:, None, None]
    s = [scores(q, k, tile) for tile in tiles]
    scaled, raw, up, own, each = (
        carried(s, **how) for how in ({}, {"by": 0}, {"by": -1}, {"own": True}, {"each": True})
    )
    late = "scaled down when a larger score comes"
    first_part = "the first tile" if name == "tile" else "the rank's own block"
    alone = [one.logsumexp(dim=-1) for one in s]
    zero = (parts == 0).all(dim=-1) & (torch.stack(alone) > -INF)
    no_zeros = torch.stack(alone).masked_fill(zero, -INF).softmax(dim=0).nan_to_num(0.0)
    largest = torch.stack([one.amax(dim=-1) for one in s]).softmax(dim=0).nan_to_num(0.0)
    first = torch.stack([*alone, alone[0]]).softmax(dim=0).nan_to_num(0.0)
    more = torch.stack([*alone, 0 * alone[0].nan_to_num(0.0, 0.0, 0.0)]).softmax(dim=0)
    return ({NO_SIGN: (no_zeros[..., None] * parts).sum(dim=0)} if zero.any() else {}) | {
        f"the {name}s were weighted by exp of their largest score, and not by exp of lse": (
            (largest[..., None] * parts).sum(dim=0)
        ),
        f"{first_part} counts twice": (
            (first[..., None] * torch.cat([parts, parts[:1]])).sum(dim=0)
        ),
        "one more key counts, with score 0 and value 0: of no keys lse is −inf, and the sum 0": (
            (more[:-1, ..., None] * parts).sum(dim=0)
        ),
        "the lse so far stays that of the first, whatever is merged with it": one_by_one(
            parts, alone, lambda old, _: old
        ),
        "the lse so far is the larger of the two that were merged": one_by_one(
            parts, alone, torch.maximum
        ),
        f"the results of the {name}s were averaged": parts.sum(dim=0)
        / (keys > 0).sum(dim=0).clamp(min=1),
        f"the results of the {name}s were added as they are": parts.sum(dim=0),
        f"the results of the {name}s were weighted by how many keys they have": (keys * parts).sum(
            dim=0
        )
        / keys.sum(dim=0).clamp(min=1),
        f"the output so far is not {late}": raw[0] @ values / scaled[1],
        f"the sum so far is not {late}": scaled[0] @ values / raw[1],
        f"neither output nor sum so far is {late}": raw[0] @ values / raw[1],
        "what there is was scaled by exp(new − old), and not by exp(old − new)": up[0]
        @ values
        / up[1],
        f"the largest score of the {name} alone is taken off, and not the largest so far": own[0]
        @ values
        / own[1],
        f"the output is divided by the sum in every {name}, and not once at the end": each[0]
        @ values,
        "the output is not divided by the sum": scaled[0] @ values,
    }


def nan_cause(
    came: Tensor, q: Tensor, k: Tensor, may: Tensor, tiles: list[Tensor], rows: int
) -> str:
    """Name each wrong maximum with which these queries, (B, h, n_q), get NaN, tile after tile.

    Args:
        tiles: (n_q, n_k) each, True for the scores of that tile, be they hidden or not.
        rows: how many queries a block has.
    """
    raw = [scores(q, k, tile).float() for tile in tiles]
    seen = [s.masked_fill(~may, -INF) for s in raw]

    def tops(of: list[Tensor], *axes: int) -> list[Tensor]:
        """Take the largest of each row, or of a whole block of rows, heads or texts."""
        return [
            torch.cat([x.amax((*axes, 3), True).expand_as(x[..., :1]) for x in s.split(rows, 2)], 2)
            for s in of
        ]

    def total(of: list[Tensor], highest: list[Tensor], floor: float = -1e30) -> Tensor:
        """Carry the sum of exponentials from tile to tile."""
        largest, found = torch.full_like(highest[0], floor), torch.zeros_like(highest[0])
        for s, highest_here in zip(of, highest, strict=True):
            new = torch.maximum(largest, highest_here)
            e = (s - new).exp() * may
            found, largest = found * (largest - new).exp() + e.sum(dim=-1, keepdim=True), new
        return found[..., 0]

    none = [0 * top.nan_to_num(0.0, 0.0, 0.0) for top in tops(seen)]
    skipped = [
        top.where(block > -INF, -INF)
        for top, block in zip(tops(raw), tops(seen, 0, 1, 2), strict=True)
    ]
    several = [axes for n in (1, 2, 3) for axes in combinations(range(3), n)]
    known = {
        "no maximum was taken off, and the exponential of 89 is inf in float32, that of 710 in "
        "float64": [~total(of, none, 0.0).isfinite() for of in (seen, raw)],
        "the running maximum began at a number above all scores": [
            total(seen, tops(seen), floor) == 0 for floor in (0.0, -1e4)
        ],
        "the maximum was taken before the mask, and a hidden key had it": [
            total(seen, highest) == 0 for highest in (tops(raw), skipped)
        ],
        "one maximum was taken off for several queries, heads or texts, and not each query's own": [
            total(seen, tops(seen, *axes)) == 0 for axes in several
        ],
    }
    fits = [told for told, lost in known.items() if any(torch.equal(came, x) for x in lost)]
    return "; or ".join(fits) or NAN


def one_by_one(
    parts: Tensor, alone: list[Tensor], keep: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Merge one result after another, and keep a wrong lse of what there is."""
    out, lse = parts[0], alone[0]
    for part, of_part in zip(parts[1:], alone[1:], strict=True):
        out, lse = joined((out, lse), (part, of_part)).out, keep(lse, of_part)
    return out


def carried(
    tiles: list[Tensor], *, by: int = 1, own: bool = False, each: bool = False
) -> tuple[Tensor, Tensor]:
    """Run through scores of tiles, (..., n_q, n_k), and give what keys weigh, and the sum.

    Args:
        by: scale what there is by exp(by · (old − new)) when a larger score comes.
        own: take the largest score of a tile off, and not the largest so far.
        each: divide by the sum in every tile.
    """
    weigh, total = torch.zeros_like(tiles[0]), torch.zeros_like(tiles[0][..., :1])
    largest = torch.full_like(total, -INF)
    for s in tiles:
        highest = s.amax(dim=-1, keepdim=True)
        new = torch.maximum(largest, highest)
        e = (s - (highest if own else new)).exp().nan_to_num(0.0)
        less = (by * (largest - new)).nan_to_num(0.0, 0.0, 0.0).exp()  # there is nothing at first
        weigh, total, largest = weigh * less + e, total * less + e.sum(dim=-1, keepdim=True), new
        if each:
            weigh = weigh / total
    return weigh, total


# Heads of a rank

# d_model, h, h_kv, d_k, d_v, and how many ranks
SHARES: tuple[tuple[int, int, int, int, int, int], ...] = (
    (11, 6, 6, 4, 5, 2),
    (7, 9, 9, 4, 5, 3),  # in Python, list({6, 7, 8}) is [8, 6, 7]
    (11, 12, 3, 5, 7, 6),
    (13, 6, 2, 4, 5, 6),
    (11, 24, 8, 5, 7, 2),
    (7, 6, 1, 5, 4, 3),
    (9, 12, 4, 5, 1, 2),
    (9, 6, 2, 5, 4, 1),
)
Tensors = tuple[Tensor, Tensor, Tensor, Tensor]


@exercise
def heads_of(function: Callable[[MultiHeadAttention, int, int], Tensors]) -> None:
    """Check one rank's share of a layer: its w_qkv, b_qkv, w_o and b_o."""
    answer = Answer("heads_of", opened(function))
    for case in SHARES:
        d_model, h, h_kv, d_k, d_v, world = case
        layer = filled(d_model, h, h_kv, d_k, d_v)
        sizes = f"d_model {d_model}, h {h}, h_kv {h_kv}, d_k {d_k}, d_v {d_v}"
        bias = torch.zeros(d_model, dtype=torch.float64)
        for rank in range(world):
            before = [parameter.clone() for parameter in layer.parameters()]
            outcome = answer(layer=Shown(layer, f"a layer with {sizes}"), rank=rank, world=world)
            named = zip(before, layer.named_parameters(), strict=True)
            moved = [name for old, (name, new) in named if not torch.equal(old, new)]
            outcome.demand(
                not moved, "the layer is left as it is", f"{', '.join(moved)} changed in place"
            )
            bias = bias + expect_share(outcome, layer, rank, world)
        wanted = layer.w_o.bias.detach().double()
        known = {
            f"each of the {world} ranks adds it": world * wanted,
            "no rank adds it": 0 * wanted,
            f"each of the {world} ranks adds it divided by h": world / h * wanted,
        }
        outcome.demand(
            near(bias, wanted),
            "the outputs of all ranks add up to the layer's: b_o counts once",
            "the b_o of all ranks add up to something else" + recognise(bias, known),
        )
    right("heads_of", "The outputs of all ranks add up to the layer's, with the bias once.")


def filled(d_model: int, h: int, h_kv: int, d_k: int, d_v: int) -> MultiHeadAttention:
    """Make a layer whose numbers are all drawn, biases too."""
    with torch.random.fork_rng(devices=[]):
        layer = MultiHeadAttention(d_model, h, h_kv=h_kv, d_k=d_k, d_v=d_v)
    draw = drawing(prod((d_model, h, h_kv, d_k, d_v)))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw(*parameter.shape))
    return layer.requires_grad_(False)


def expect_share(outcome: Outcome, layer: MultiHeadAttention, rank: int, world: int) -> Tensor:
    """Demand a rank's tensors, as the layer's numbers in the right places, and return its b_o."""
    h, readers = layer.h // world, layer.h // layer.h_kv
    mine = list(range(rank * h, (rank + 1) * h))
    read = sorted({i // readers for i in mine})
    d_k, d_v, g = layer.d_k, layer.d_v, len(read)
    first, second, third, fourth = parts = outcome.pair("w_qkv", "b_qkv", "w_o", "b_o")
    for one in parts:
        told = "a rank returns four tensors, of zeros where it adds nothing"
        one.demand(one.value is not None, told, f"{one.part} is None")
    rows = h * d_k + g * (d_k + d_v)
    came = first.value
    as_wide = isinstance(came, Tensor) and came.dim() == 2 and came.shape[1] == layer.d_model
    if as_wide and len(came) != rows:
        raise first.complaint(
            f"w_qkv has {rows} rows: of {counted(h)} of queries, {counted(g)} of keys and "
            f"{counted(g)} of values, each head once",
            f"came {len(came)}: {places(came, layer.w_qkv.weight)}"
            + recognise(came.detach().double(), known_cuts(layer, rank, world)),
        )
    shape = tuple(getattr(third.value, "shape", ()))
    turned = {
        (h * d_v, layer.d_model): "rows and columns changed places",
        (layer.d_model, h * d_k): "that is d_k columns a head",
        (layer.d_model, g * d_v): "that is as many columns as its heads of values have rows",
    }
    third.demand(
        shape == (layer.d_model, h * d_v) or shape not in turned,
        f"w_o has the shape {(layer.d_model, h * d_v)}",
        f"came {shape}; {turned.get(shape)}",
    )
    w_qkv, w_o = first.tensor(rows, layer.d_model), third.tensor(layer.d_model, h * d_v)
    b_qkv, b_o = second.tensor(rows), fourth.tensor(layer.d_model)
    held = ((layer.w_q, d_k, mine), (layer.w_k, d_k, read), (layer.w_v, d_v, read))
    wanted = [
        torch.cat([of_heads(part.weight, d, at) for part, d, at in held]),
        torch.cat([of_heads(part.bias, d, at) for part, d, at in held if part.bias is not None]),
        of_heads(layer.w_o.weight.T, d_v, mine).T,
    ]
    if all(map(near, (w_qkv, b_qkv, w_o), wanted)):
        return b_o
    by_head = [part.detach() for part in (layer.w_q.weight, layer.w_k.weight, layer.w_v.weight)]
    parts = w_qkv.split([h * d_k, g * d_k, g * d_v])
    names = [
        found(part, of_all, d)
        for part, of_all, d in zip(parts, by_head, (d_k, d_k, d_v), strict=True)
    ]
    columns = found(w_o.T, layer.w_o.weight.detach().T, d_v)
    whole = layer.w_qkv.weight.double()
    told = ", ".join(
        f"{places(part, whole) if None in heads else f'rows of heads {heads}'} as {what}"
        for part, heads, what in zip(parts, names, ("queries", "keys", "values"), strict=True)
    )
    fits = names == [mine, read, read] and columns == mine
    outcome.demand(
        False,
        f"rank {rank} of {world} has heads {mine} of the queries, which read "
        f"{'head' if g == 1 else 'heads'} {read} of keys and values, and their columns of w_o",
        "the rows and columns are right, and the entries of b_qkv are not those of the same rows"
        if fits
        else "w_o was divided by the number of ranks, but a sum over all ranks is no mean"
        if near(w_o * world, wanted[2])
        else f"came {told}; columns of "
        + ("no whole heads" if None in columns else f"heads {columns}")
        + known_cut(w_qkv, wanted[0].double(), layer, rank, world),
    )
    return b_o


def counted(heads: int) -> str:
    return "one head" if heads == 1 else f"{heads} heads"


def of_heads(rows: Tensor, width: int, heads: list[int]) -> Tensor:
    """Take the rows of some heads."""
    return rows.detach().unflatten(0, (-1, width))[heads].flatten(0, 1)


def found(got: Tensor, of_all: Tensor, width: int) -> list[Any]:
    """Name the head of which each block of rows is, or None."""
    heads = of_all.double().unflatten(0, (-1, width))
    return [
        next((i for i, head in enumerate(heads) if torch.equal(head, block)), None)
        for block in got.double().unflatten(0, (-1, width))
    ]


def places(got: Tensor, of_all: Tensor) -> str:
    """Name the rows of the layer's matrix that rows are, as runs."""
    at = [i for one in got.detach() for i, row in enumerate(of_all) if torch.equal(row, one)]
    if not at:
        return "rows that are none of the layer's"
    runs: list[list[int]] = []
    for i in at:
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return "the layer's rows " + ", ".join(f"{a} to {b}" if a < b else f"{a}" for a, b in runs)


def known_cut(
    w_qkv: Tensor, wanted: Tensor, layer: MultiHeadAttention, rank: int, world: int
) -> str:
    """Name the way in which rows were dealt to a rank, as the end of a sentence."""
    came, right_rows = (rows[:, 0].sort().values for rows in (w_qkv, wanted))
    if not near(w_qkv, wanted) and near(came, right_rows):
        order = "than queries, keys, values, each head after head"
        return f"; all rows of w_qkv are there, and in another order {order}"
    return cause(w_qkv, wanted, known_cuts(layer, rank, world))


def known_cuts(layer: MultiHeadAttention, rank: int, world: int) -> dict[str, Tensor]:
    """Give the rows of a rank when they are dealt wrongly, by the words for it."""
    h, readers = layer.h // world, layer.h // layer.h_kv
    mine = list(range(rank * h, (rank + 1) * h))

    def dealt(heads: list[int], read: list[int]) -> Tensor:
        held = ((layer.w_q, layer.d_k, heads), (layer.w_k, layer.d_k, read))
        parts = [of_heads(part.weight, d, at) for part, d, at in held]
        return torch.cat([*parts, of_heads(layer.w_v.weight, layer.d_v, read)]).double()

    apart = list(range(rank, layer.h, world))
    g = max(layer.h_kv // world, 1)
    whole = layer.w_qkv.weight.detach().double()
    return {
        "w_qkv was cut in equal pieces as it lies, and first in it are the rows of all queries": (
            whole.tensor_split(world)[rank]
        ),
        "w_qkv was cut in three equal parts, and those of queries, keys and values differ": (
            torch.cat([third.tensor_split(world)[rank] for third in whole.tensor_split(3)])
        ),
        "the heads were dealt out by turns, and not in a row": dealt(
            apart, sorted({i // readers for i in apart})
        ),
        "head i of the queries does not read head i mod h_kv": dealt(
            mine, list(dict.fromkeys(i % layer.h_kv for i in mine))
        ),
        "heads of keys were chosen by the rank's number, and not by what its queries read": dealt(
            mine, [i % layer.h_kv for i in range(rank * g, (rank + 1) * g)]
        ),
    }


# A ring

# How many ranks, B, h, m positions of each, d_k, d_v, and what the scores are like
Rings = tuple[int, int, int, int, int, int, str]
RINGS: tuple[Rings, ...] = (
    (4, 1, 2, 3, 6, 5, "any"),
    (5, 3, 2, 4, 6, 7, "any"),
    (3, 1, 2, 5, 16, 4, "rise by hundreds"),
    (4, 1, 2, 3, 5, 6, "are 12,000 lower"),
    (2, 3, 1, 5, 4, 6, "fall by hundreds"),
    (1, 2, 3, 4, 6, 5, "any"),
    (4, 2, 3, 5, 16, 7, "lie apart"),
    (5, 1, 2, 4, 3, 6, "have values of 0"),
    (4, 1, 1, 3, 6, 5, "rise"),
    (4, 1, 1, 5, 3, 6, "fall"),
)
LONG_RING = (5, 1, 1, 7, 3, 2, "any")  # m is larger than the widths


@exercise
def ring_attention(function: Callable[[Any, Tensor, Tensor, Tensor], Tensor]) -> None:
    """Check causal attention over blocks of positions, one on each rank, on real gloo."""
    answer = Answer("ring_attention", on_a_ring(function))
    if not has_gloo():
        print(
            "ring_attention: not tried: this PyTorch was built without the engine gloo, which its "
            "builds for Linux and macOS have"
        )
        return
    for seed, case in enumerate((*RINGS, LONG_RING)):
        expect_ring(answer, seed, case)
    right("ring_attention", "Every rank has the rows of the whole, and W − 1 shifts were enough.")


@dataclass
class Ring:
    """What the ranks of one run hold and have done so far; it refuses what could not end."""

    blocks: list[tuple[Tensor, Tensor, Tensor]]
    watches: list[Watch] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)  # in a shift
    errors: dict[int, BaseException] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)  # bytes
    late: bool = False

    def __post_init__(self) -> None:
        self.world = len(self.blocks)
        self.calls = [0 for _ in self.blocks]
        self.most_calls = 2 * (self.world - 1)

    def enter(self, rank: int) -> None:
        """Note that a rank is about to shift a tensor, or refuse it."""
        with self.lock:
            self.calls[rank] += 1
            if self.world == 1:
                raise Refused(
                    "a rank that is alone does not call shift", "it did, with nobody to reach"
                )
            if self.calls[rank] > self.most_calls:
                raise Refused(
                    f"each of {self.world} ranks calls shift {self.most_calls} times at most",
                    f"rank {rank} calls it more often; how many tensors are handed on in a round, "
                    "and after how many rounds has a block been at every rank?",
                )
            for other in self.ended:
                if self.calls[other] < self.calls[rank]:
                    raise self.uneven(other, rank)

    def leave(self, rank: int) -> None:
        """Note that a rank has returned."""
        with self.lock:
            self.ended.add(rank)
            for other, calls in enumerate(self.calls):
                if calls > self.calls[rank]:
                    raise self.uneven(rank, other)

    def uneven(self, done: int, waits: int) -> Refused:
        return Refused(
            "all ranks call shift equally often, or one would wait for ever",
            f"rank {done} of {self.world} returned after {self.calls[done]} shifts, and rank "
            f"{waits} is in shift {self.calls[waits]}",
        )

    def overdue(self, ranks: list[int], still: str = "") -> Refused:
        names = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks}"
        return Refused(
            f"an answer of every rank within {PATIENCE:g} seconds",
            f"{names} of {self.world} gave none, and did not wait for others; is there a loop "
            f"without end?{still}",
        )


class Refused(Exception):  # noqa: N818 (it is a sentence to a learner, not an error of the code)
    """A rank did what the exercise does not allow."""

    def __init__(self, expected: str, happened: str) -> None:
        super().__init__(happened)
        self.expected, self.happened = expected, happened


class OnRing:
    """What a learner's function gets for a rank: it notes what is done, and has shift alone.

    A rank that is late is refused, so that a loop without end comes to an end of its own.
    """

    def __init__(self, real: Rank, ring: Ring) -> None:
        self._real, self._ring, self._until = real, ring, monotonic() + PATIENCE

    def __repr__(self) -> str:
        return repr(self._real)

    @property
    def rank(self) -> int:
        return self.in_time()._real.rank

    @property
    def world(self) -> int:
        return self.in_time()._real.world

    @property
    def sent(self) -> int:
        return self._real.sent

    def in_time(self) -> OnRing:
        if monotonic() > self._until:
            raise self._ring.overdue([self._real.rank])
        return self

    def shift(self, t: Tensor, *others: Any, **named: Any) -> Tensor:
        rank = self.rank
        if others or named:
            raise Refused("shift takes one tensor, and nothing else", "it was called with more")
        self._ring.enter(rank)
        self._ring.waiting.add(rank)
        came = self._real.shift(t)
        self._ring.waiting.discard(rank)
        return came

    def all_gather(self, t: Tensor) -> list[Tensor]:
        raise self.only_shift("all_gather")

    def all_reduce(self, t: Tensor) -> Tensor:
        raise self.only_shift("all_reduce")

    def only_shift(self, name: str) -> Refused:
        return Refused("the ranks reach each other by rank.shift alone", f"{name} was called")


class InTime(TorchFunctionMode):
    """Refuses a rank that still computes when its time is over."""

    def __init__(self, rank: OnRing) -> None:
        super().__init__()
        self.rank = rank

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.rank.in_time()
        return func(*args, **(kwargs or {}))


def on_a_ring(function: Any) -> Any:
    """Make of a rank's function one that runs on all ranks, and returns a list of their results.

    What goes wrong on a rank is noted on the ring.
    """
    if not callable(function):
        return function

    @wraps(function)
    def call(shown: Shown, *_: Any) -> Any:
        ring: Ring = shown.value

        def on_rank(rank: Rank) -> Any:
            given, own = ring.blocks[rank.rank], OnRing(rank, ring)
            watch = ring.watches[rank.rank].beyond(given) if ring.watches else nullcontext()
            try:
                with InTime(own), watch:
                    got = function(own, *given)
                ring.sent[rank.rank] = rank.sent
                ring.leave(rank.rank)
                return got
            except BaseException as error:
                ring.errors[rank.rank] = error
                raise

        try:
            return run(on_rank, ring.world, timeout=PATIENCE + GRACE)
        except TimeoutError:
            ring.late = True
        except RuntimeError:
            if not ring.errors:
                raise

    return call


def expect_ring(answer: Answer, seed: int, case: Rings) -> None:
    """Demand each rank's rows of causal attention over all positions."""
    world, B, h, m, d_k, d_v, what = case
    n = world * m
    q, k, v = drawn(seed, (B, h, n, n, d_k, d_v), what)
    # As a split gives them: the numbers of a block do not lie in order.
    cut = ([t.clone() for t in whole.split(m, dim=-2)] for whole in (q, k, v))
    ring = Ring(list(zip(*cut, strict=True)))
    if case is LONG_RING:
        most = max(2 * m * (d_k + d_v), m * m * max(d_k, d_v))
        ring.watches = [Watch(most, m * m, d_k + d_v) for _ in range(world)]
    shapes = dict(zip("qkv", ((B, h, m, d_k), (B, h, m, d_k), (B, h, m, d_v)), strict=True))
    told = {name: Shown(None, f"a block {shape}") for name, shape in shapes.items()}
    outcome = answer(rank=Shown(ring, f"each of {world}"), **told)
    expect_end(answer, outcome, ring)
    wanted = attended(q, k, v, causal_mask(n, n)).split(m, dim=-2)
    outs = []
    for r, (value, rows) in enumerate(zip(outcome.value, wanted, strict=True)):
        here = slice(r * m, (r + 1) * m)
        of_rank = Outcome(answer.name, {"rank": f"{r} of {world}", **told}, value)
        same = all(
            torch.equal(t, of[..., here, :])
            for t, of in zip(ring.blocks[r], (q, k, v), strict=True)
        )
        of_rank.demand(
            same,
            "each rank leaves its blocks of q, k and v as they were",
            f"one of rank {r} was changed in place",
        )
        if isinstance(value, Tensor) and value.shape == rows.shape:
            unseen = ", even if a query sees nothing of a block"
            # Where the first position has no key, its sum of exponentials is 0 in any case.
            at = torch.arange(n)
            strict = attended(q, k, v, at < at[:, None])[..., here, :]
            of_rank.demand(
                not value.isnan().any() or not near(value.detach().double().nan_to_num(), strict),
                "every position attends to itself too, so that position 0 has a key",
                f"{int(value.isnan().sum())} of {value.numel()} are NaN, for it has none: the "
                "mask hides the key at a query's own position",
            )
            if value.isnan().any():
                fit = [x for x in outcome.value if isinstance(x, Tensor) and x.shape == rows.shape]
                lost = torch.cat(fit, dim=-2).isnan().any(dim=-1)
                steps = (at[:, None] // m - at // m) % world
                tiles = [steps == step for step in range(world)]
                of_rank.demand(
                    False,
                    f"a number in every place{REMARKS[what] or unseen}",
                    f"{int(value.isnan().sum())} of {value.numel()} are NaN; "
                    + nan_cause(lost, q, k, causal_mask(n, n), tiles, m),
                )
        outs.append(of_rank.tensor(*rows.shape))
    for r, (out, rows) in enumerate(zip(outs, wanted, strict=True)):
        off = differs(out, rows, what in HIGH).any(dim=-1)
        if off.any():
            i = int(off.nonzero()[0][-1])
            known = {} if what in AT_ONCE else wrong_rings(q, k, v, world)
            Outcome(answer.name, {"rank": f"{r} of {world}", **told}, out).demand(
                False,
                f"the rows of positions {r * m} to {(r + 1) * m - 1} of causal attention over all "
                f"{n} positions",
                f"{int(off.sum())} of {off.numel()} rows differ, first that of position "
                f"{r * m + i}{REMARKS[what]}"
                + cause(torch.cat(outs, dim=-2), torch.cat(wanted, dim=-2), known, what in HIGH),
            )
    most_sent = (world - 1) * sum(t.nbytes for t in ring.blocks[0][1:])
    outcome.demand(
        max(ring.sent.values()) <= most_sent,
        f"a rank hands on {most_sent:,} bytes at most: {world - 1} times those of k and v",
        f"a rank handed on {max(ring.sent.values()):,}"
        + (
            ": twice as many; were they float64?"
            if max(ring.sent.values()) == 2 * most_sent
            else ""
        ),
    )
    for watch in ring.watches or []:
        outcome.demand(
            watch.seen is None,
            f"no tensor on a rank has more than {m} × {m} scores of a head, those of one block of "
            "keys, and no mask is larger than that",
            f"a tensor of shape {watch.seen} came about",
        )


def expect_end(answer: Answer, outcome: Outcome, ring: Ring) -> None:
    """Demand that every rank came to its end."""
    rank, error = next(iter(ring.errors.items()), (0, None))  # the first in time
    error = None if ring.late else error
    if isinstance(error, NotImplementedError):
        raise answer.unwritten(error, outcome) from error
    if isinstance(error, Refused):
        raise outcome.complaint(error.expected, error.happened) from error
    if error is not None:
        happened = f"on rank {rank} of {ring.world}: {blame(error)}"
        raise outcome.complaint("it runs on every rank", happened) from error
    if ring.late:
        late = [r for r in range(ring.world) if r not in ring.ended | ring.waiting]
        told = ring.overdue(late, " It may run on until you restart the kernel")
        raise outcome.complaint(told.expected, told.happened)


def wrong_rings(q: Tensor, k: Tensor, v: Tensor, world: int) -> dict[str, Tensor]:
    """Give what comes on all ranks when the ring goes wrong, by the words for it."""
    n = k.shape[-2]
    m = n // world
    i, j = torch.arange(n)[:, None], torch.arange(n)
    r, source, local = i // m, j // m, j % m
    causal, step = j <= i, (r - source) % world
    masks = {
        "a block from elsewhere is masked as if it were the rank's own": local <= i - r * m,
        "the rank attends to its own block alone": causal & (source == r),
        "nothing is hidden": torch.ones_like(causal),
        "later blocks are attended to": causal | (source != r),
        "within its own block a rank hides nothing": source <= r,
        "later blocks are attended to, and earlier ones are not": (causal & (source == r))
        | (source > r),
        "within a rank's own block the mask is the wrong way round": (
            (source < r) | ((source == r) & (j >= i))
        ),
        TURNED: j > i,
        "only the block that a rank sees last counts": causal & (source == 0),
        "the rank's own block is left out": causal & (source != r),
        "the block that comes last is left out": causal & (step != world - 1),
        "a position does not attend to itself": j < i,
        "blocks are taken for those that would come if the ring turned the other way": (
            (r + step) % world * m + local <= i
        ),
        "a block is taken for that of the rank before": (source - 1) % world * m + local <= i,
        "a block is taken for that of the rank after": (source + 1) % world * m + local <= i,
        "a block is taken for that of the rank whose number is the step's": step * m + local <= i,
        "queries are counted from the start of their block": j <= i - r * m,
        "keys are counted from the start of their block": local <= i,
    }

    def travelled(**of: Callable[[int, int], int]) -> Tensor:
        """Attend on each rank to the blocks that it has at each step instead of those that came."""
        blocks = [x.double().split(m, dim=-2) for x in (q, k, v)]
        outs = []
        for rank, may in enumerate(causal.split(m)):
            came = [
                [x[of[name](rank, (rank - s) % world) % world] for s in range(world)]
                for name, x in zip("qkv", blocks, strict=True)
            ]
            s = torch.cat([x @ y.mT for x, y, _ in zip(*came, strict=True)], dim=-1)
            s = (s * q.shape[-1] ** -0.5).masked_fill(~may, -INF)
            outs.append(s.softmax(dim=-1) @ torch.cat(came[2], dim=-2))
        return torch.cat(outs, dim=-2)

    def own(rank: int, step: int) -> int:
        return rank

    def passed(rank: int, step: int) -> int:
        return rank - step

    def again(rank: int, step: int) -> int:
        return rank - min(step, 1)

    arriving = [causal & (step == of) for of in range(world)]
    merges = wrong_merges(q, k, v, arriving, "block")
    return {told: attended(q, k, v, mask) for told, mask in masks.items()} | {
        "the scale is not 1/√d_k but 1": attended(q, k, v, causal, 1.0),
        "the scale is not 1/√d_k but 1/d_k": attended(q, k, v, causal, 1 / q.shape[-1]),
        "shift returns what came, but the rank's own block is used again": travelled(
            q=own, k=own, v=own
        ),
        **finite_fills(q, k, v, causal, source <= r, "block"),
        "keys travel, and values stay": travelled(q=own, k=passed, v=own),
        "values travel, and keys stay": travelled(q=own, k=own, v=passed),
        "queries travel, and keys and values stay": travelled(q=passed, k=own, v=own),
        "a rank hands on its own block again, and not what came": travelled(
            q=own, k=again, v=again
        ),
        "the results of all blocks were averaged, even of those that a query does not see": (
            torch.stack([attended(q, k, v, may) for may in arriving]).mean(dim=0)
        ),
        **merges,
    }
