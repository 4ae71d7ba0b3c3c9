"""Lab 5: the shapes, parameters, operations and bytes of a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from numbers import Integral

import torch

from labkit import counting
from labkit.attention import MultiHeadAttention
from labkit.labs.guard import (
    Answer,
    NotYet,
    Outcome,
    Wrong,
    blame,
    exercise,
    right,
    show,
    single,
)
from labkit.models.published import MODELS

# In the order of chapter-11's table of configurations.
TABLE = ("GPT-2 Small", "GPT-2 Medium", "GPT-2 Large", "GPT-3", "LLaMA-7B")
MODELS_OF_TABLE = {name: MODELS[name] for name in TABLE}
# Name, h and d_k of the models of Brown et al. (2020), table 2.1, in its order.
GPT_3 = [
    ("Small", 12, 64),
    ("Medium", 16, 64),
    ("Large", 16, 96),
    ("XL", 24, 128),
    ("2.7B", 32, 80),
    ("6.7B", 32, 128),
    ("13B", 40, 128),
    ("175B", 96, 128),
]
# No two mistakes name the same: of the number of heads, of h·d_k, of widths compared as text.
MADE_UP = [
    ("one", 4, 160),
    ("two", 2, 64),
    ("three", 8, 64),
    ("four", 9, 96),
    ("five", 6, 96),
    ("six", 7, 80),
]
# Multiples of 64 and powers of 2 that are neither 64 nor 128.
FAR = [("first", 3, 32), ("second", 5, 192), ("third", 4, 256)]

LARGEST = MODELS["GPT-3"]
READS = 2048  # tokens, of GPT-3

ROUNDING = 1e-9  # relative, of a count in float64
SIX_DIGITS = 5e-6  # relative, of a number that begins with a 1
FLOAT32 = 1e-6  # relative, what a few sums in float32 lose


@exercise
def shapes(function: Callable[[int, int, int, int], Sequence[Sequence[int]]]) -> None:
    """Check the five shapes on the way through a layer: B, n, d_model and h to five tuples."""
    answer = Answer("shapes", function)
    models = [(1, 7, model.d_model, model.h) for model in MODELS_OF_TABLE.values()]
    first = [(2, 3, 20, 5), (1, 4, 10, 3), (1, 128, 768, 12), (4, 16, 512, 4)]
    # Heads of width 1, one head, and heads that cannot have equal shares.
    more = [(3, 9, 6, 6), (5, 2, 36, 1), (2, 7, 4, 6), (3, 5, 70, 4)]
    for B, n, d_model, h in (*first, *models, *more):
        expect_shapes(answer, B=B, n=n, d_model=d_model, h=h)
    scores = counting.score_entries(LARGEST.h, READS) / (READS * LARGEST.d_model)
    right(
        "shapes",
        f"In a layer of GPT-3 that reads {READS:,} tokens, the scores are {scores:g} times as many "
        "numbers as the queries.",
    )


def expect_shapes(answer: Answer, *, B: int, n: int, d_model: int, h: int) -> None:
    """Demand five shapes, or a ValueError if h does not divide d_model."""
    sizes = {"B": B, "n": n, "d_model": d_model, "h": h}
    divides = d_model % h == 0
    refusal = "a ValueError, because the heads cannot have equal shares of the width"
    outcome = Outcome(answer.name, sizes, None)
    try:
        outcome = listed(answer(**sizes))
    except NotYet:
        raise
    except Wrong as error:
        raised = error.__cause__ or error
        refused = isinstance(raised, ValueError)
        if divides and not refused:
            raise
        expected = f"five shapes, because {h} divides {d_model}" if divides else refusal
        outcome.demand(refused != divides, expected, blame(raised))
        return
    came = f"no error, and came {show(outcome.value)}"
    if isinstance(outcome.value, Exception) or outcome.value is ValueError:
        came = "the error came as a result; raise it"
    outcome.demand(divides, refusal, came)
    per_head = (B, h, n, d_model // h)
    wanted = {
        "queries": (per_head, "for each head and position, a vector of that head's width"),
        "scores": ((B, h, n, n), "for each head, one number a query and key"),
        "heads": (per_head, "for each head and position, a mixture of that head's values"),
        "joined": ((B, n, d_model), "for each position, the vectors of all heads in a row"),
        "output": ((B, n, d_model), "for each position, a vector of the model's width"),
    }
    parts = results(outcome, *wanted)
    exchanged = [listed(part).value for part in parts[1:3]]
    outcome.demand(
        exchanged != [list(per_head), [B, h, n, n]],
        "the scores come second, the outputs of the heads third",
        "these two have changed places",
    )
    for part in parts:
        expect_shape(part, *wanted[part.part], d_model=d_model, h=h)


def expect_shape(
    part: Outcome, shape: tuple[int, ...], meaning: str, *, d_model: int, h: int
) -> None:
    """Demand one shape, and name the usual confusions."""
    came = listed(part).value
    expected = f"{part.part}: {meaning}"
    happened = f"{part.part} came as {show(part.value)}"
    part.demand(isinstance(came, list), f"{part.part} is a tuple of whole numbers", happened)
    came = [single(size) for size in came]
    broken = [size for size in came if not isinstance(size, Integral)]
    if broken:
        what = "a float; divide by //" if isinstance(broken[0], float) else "no whole number"
        happened = f"{part.part} came as {came}, in which {broken[0]} is {what}"
    part.demand(not broken, expected, happened)
    if sorted(came) == sorted(shape):
        happened += "; the sizes are right, their order is not"
    elif len(came) < len(shape):
        happened += "; a batch holds several sequences, and a layer several heads"
    elif len(shape) == 4 and len(came) == 4 and came[-1] == d_model != shape[-1]:
        happened += f"; the {h} heads share the width of the model"
    part.demand(came == list(shape), expected, happened)


@exercise
def parameters(function: Callable[[int, int, int, int, bool], int]) -> None:
    """Check the number of parameters of a layer: d_model, h, d_k, d_v and bias to a number."""
    answer = Answer("parameters", function)
    sizes = [(10, 3, 4, 5), (7, 3, 5, 2), (5, 1, 2, 9), (6, 5, 1, 4), (512, 8, 64, 64)]
    sizes += [(10_007, 33, 67, 63)]  # more than float32 counts
    sizes += [(m.d_model, m.h, m.d_k, m.d_k) for m in MODELS_OF_TABLE.values()]
    for d_model, h, d_k, d_v in sizes:
        for bias in (False, True):
            outcome = answer(d_model=d_model, h=h, d_k=d_k, d_v=d_v, bias=bias)
            expect_parameters(outcome, d_model, h, d_k, d_v, bias)
    held = LARGEST.layers * counting.attention_parameters(LARGEST.d_model, LARGEST.h)
    right(
        "parameters",
        f"The {LARGEST.layers} attention layers of GPT-3 have {held / 1e9:.0f} of its 175 billion "
        "parameters.",
    )


def expect_parameters(
    outcome: Outcome, d_model: int, h: int, d_k: int, d_v: int, bias: bool
) -> None:
    """Demand the number of parameters, and name the usual confusions."""
    count = partial(counting.attention_parameters, d_model, h, d_k=d_k, d_v=d_v)
    matrices, both = count(bias=False), count(bias=True)
    truth, other = (both, matrices) if bias else (matrices, both)
    confusions = {
        "which is the matrices alone" if bias else "which has biases too": other,
        "which leaves out W^O": matrices - h * d_v * d_model,
        "as if W^O read one head; it reads all of them side by side": (
            truth - (h - 1) * d_v * d_model
        ),
        "which is one head's share": matrices / h,
        "as if each head had the width of the model": 4 * h * d_model**2,
        "which is right only where h·d_k and h·d_v are d_model": (
            4 * d_model**2 + (4 * d_model if bias else 0)
        ),
        "as if values were as wide as keys": counting.attention_parameters(
            d_model, h, d_k=d_k, bias=bias
        ),
        "as if W_V were as wide as W_K, or W^O had as many rows; both go by d_v": (
            matrices + h * (d_k - d_v) * d_model
        ),
        "as if W^O were square": truth + d_model * (d_model - h * d_v),
        "in millions, it seems; the number itself is asked for": truth / 1e6,
    }
    if bias:
        confusions["which leaves out the bias after W^O"] = both - d_model
        confusions["as if the bias after W^O were as wide as its input"] = both + h * d_v - d_model
        confusions["which has the biases of one head"] = matrices + 2 * d_k + d_v + d_model
        confusions["as if every projection had one number for a bias"] = matrices + 4
        confusions["as if d_k and d_v had changed places"] = both + h * (d_v - d_k)
        confusions["as if every bias were d_model wide"] = matrices + 4 * d_model
        confusions["as if biases were as wide as the inputs"] = matrices + 3 * d_model + h * d_v
    expect_number(
        outcome,
        truth,
        f"{truth:,} in all matrices{' and biases' if bias else ', no biases'}, of which one head's "
        f"W^Q has d_model·d_k = {d_model * d_k:,}",
        confusions,
    )


def expect_number(
    outcome: Outcome,
    truth: float,
    expected: str,
    confusions: Mapping[str, float],
    *,
    within: float = ROUNDING,
) -> None:
    """Demand a number, up to rounding; say which confusion gives what came."""
    came = outcome.number()
    remarks = [
        words for words, wrong in confusions.items() if math.isclose(came, wrong, rel_tol=within)
    ]
    if math.isclose(came, truth, rel_tol=FLOAT32):
        remarks.append("which is rounded; count in whole numbers, or in float64")
    part = "" if outcome.part == "it" else f"{outcome.part} "
    written = f"{came:,.0f}" if came.is_integer() and abs(came) < 1e16 else f"{came:,.10g}"
    happened = ", ".join([f"{part}came {written}", *remarks[:1]])
    outcome.demand(math.isclose(came, truth, rel_tol=within), expected, happened)


def results(outcome: Outcome, *names: str) -> list[Outcome]:
    """Take several results apart, in whatever they come in order."""
    return listed(outcome).pair(*names)


def listed(outcome: Outcome) -> Outcome:
    """Make a list of what holds several things in order: a sequence or a tensor."""
    value = outcome.value
    if getattr(value, "ndim", 0) == 1:
        value = value.tolist()
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        value = list(value)
    return replace(outcome, value=value)


@exercise
def audit(function: Callable[[list], tuple[list[str], list[str]]]) -> None:
    """Check two lists of a table's exceptions: rows (name, h, d_k) to two lists of names."""
    answer = Answer("audit", function)
    by_width = sorted(TABLE, key=lambda name: MODELS[name].d_model)
    ours = [(name, MODELS[name].h, MODELS[name].d_k) for name in by_width]
    for rows in (MADE_UP, FAR, ours, GPT_3):
        odd, wider = exceptions(rows)
        outcome = listed(answer(rows=list(rows)))
        names = outcome.value if isinstance(outcome.value, list) else []
        one = bool(names) and all(isinstance(name, str) for name in names)
        outcome.demand(not one, "two lists of names", f"one list of names came: {names}")
        first, second = results(outcome, "the first list", "the second list")
        outcome.demand(
            [sorted_names(first), sorted_names(second)] != [sorted(wider), sorted(odd)],
            "first the models of other widths, then those with wider heads than the row before",
            "the two lists come in the other order",
        )
        expect_names(
            first,
            odd,
            "the names of the models whose heads are not 64 or 128 wide",
            {"every number differs from 64 or from 128": [name for name, *_ in rows]},
        )
        pairs = list(pairwise(rows))
        expect_names(
            second,
            wider,
            "the names of the models with wider heads than the row before",
            {
                "these are the rows before the wider ones": [a[0] for a, b in pairs if a[2] < b[2]],
                "these have more heads than the row before": [
                    b[0] for a, b in pairs if a[1] < b[1]
                ],
                "as text, 64 comes after 160": [b[0] for a, b in pairs if str(a[2]) < str(b[2])],
                "the first row has no row before it": [rows[0][0], *wider],
            },
        )
    (own, _), (theirs, uneven) = (
        (len({*odd, *wider}), len(odd)) for odd, wider in map(exceptions, (ours, GPT_3))
    )
    right(
        "audit",
        f"Your lists name {own} of the document's {len(ours)} models and {theirs} of the "
        f"{len(GPT_3)} in GPT-3's table, of which {uneven} have heads that are not 64 or 128 wide.",
    )


def sorted_names(part: Outcome) -> list[str]:
    """List what came as names in alphabetical order."""
    came = listed(part).value
    return sorted(map(str, came)) if isinstance(came, Collection) else []


def exceptions(rows: Sequence[tuple[str, int, int]]) -> tuple[list[str], list[str]]:
    """Name the models of other widths than 64 and 128, and those wider than the row before."""
    odd = [name for name, _, d_k in rows if d_k not in (64, 128)]
    return odd, [after[0] for before, after in pairwise(rows) if after[2] > before[2]]


def expect_names(
    part: Outcome, names: list[str], expected: str, confusions: Mapping[str, list[str]]
) -> None:
    """Demand a list of names, and name the usual confusions."""
    came = listed(part).value
    fits = isinstance(came, Collection) and not isinstance(came, str)
    fits = fits and all(isinstance(name, str) for name in came)
    part.demand(fits, f"{part.part} has names", f"{part.part} came as {show(came)}")
    missed = [name for name in names if name not in came]
    extra = [name for name in came if name not in names]
    happened = [f"missing: {missed}"] * bool(missed) + [f"too many: {extra}"] * bool(extra)
    # A list that is only too short may be one of these by chance.
    happened += [words for words, wrong in confusions.items() if extra and list(came) == wrong]
    part.demand(not (missed or extra), expected, "; ".join(happened))
    part.demand(len(came) == len(names), f"{expected}, each once", f"came {list(came)}")


@exercise
def multiply_adds(function: Callable[[int, int, int], tuple[int, int]]) -> None:
    """Check the multiply-adds of projections and of products: n, d_model and h to two numbers."""
    answer = Answer("multiply_adds", function)
    for n, d_model, h in ((5, 21, 7), (13, 33, 3), (7, 5, 5), (100, 64, 8), (2048, 4096, 32)):
        outcome = answer(n=n, d_model=d_model, h=h)
        first, second = results(outcome, "projections", "products")
        projections = counting.projection_macs(n, d_model, h)
        products = counting.product_macs(n, d_model, h)
        expect_number(
            first,
            projections,
            f"one entry of Q takes {d_model} multiply-adds, one for each number of a token",
            {
                "which is the products; projections come first": products,
                "which is one projection": projections / 4,
                "which is three projections": projections * 3 / 4,
                "twice as many; a multiply-add counts once here": 2 * projections,
                "as if each head had projections of the model's width": h * projections,
                "which is the projections of one head": projections / h,
                "which is the projections of one token": projections / n,
            },
        )
        expect_number(
            second,
            products,
            f"Q Kᵀ and A V of all heads; one score of a head takes {d_model // h} multiply-adds",
            {
                "which is one of the two products, or both for half of the pairs": products / 2,
                "as if a mask hid later keys; here every query meets every key": (
                    products * (n + 1) / (2 * n)
                ),
                "twice as many; a multiply-add counts once here": 2 * products,
                "as if each head had the width of the model": h * products,
                "which is the products of one head": products / h,
                "which is one product of one head": products / 2 / h,
                "which is the products of one query": products / n,
                "as if n and d_model had changed places": projections / 2,
            },
        )
    right(
        "multiply_adds",
        f"For {n:,} tokens in a layer of width {d_model:,}, the projections take "
        f"{projections / products:g} times as many as the products.",
    )


@exercise
def crossover(function: Callable[[int, bool], int]) -> None:
    """Check from which length on the products cost as much: d_model and causal to n."""
    answer = Answer("crossover", function)
    for d_model in (10, 1, 3, 64, 4096, 12288):
        borders = {False: 2 * d_model, True: 4 * d_model - 1}
        three = {False: math.ceil(1.5 * d_model), True: 3 * d_model - 1}
        for causal, border in borders.items():
            meets = "query i meets i keys" if causal else "every query meets every key"
            confusions = (
                {
                    "as if the mask left exactly half of all pairs": border + 1,
                    "as if query i met i − 1 keys": border + 2,
                    "as if only one of the two products skipped the hidden pairs": -(
                        (1 - 8 * d_model) // 3
                    ),
                    "the border without a mask": borders[False],
                    "as if the mask halved the length, and it halves the products": d_model,
                    "where one product costs as much as one projection": 2 * d_model - 1,
                }
                if causal
                else {
                    "one too many: at the border, equal is enough": border + 1,
                    "the border with the mask": borders[True],
                    "where one product costs as much as four projections": 4 * d_model,
                    "where one product costs as much as one projection": d_model,
                }
            )
            expect_number(
                answer(d_model=d_model, causal=causal),
                border,
                "the smallest n at which the two products take at least as many multiply-adds as "
                f"the four projections, where {meets}",
                {
                    **confusions,
                    "one too few: there the products still cost less": border - 1,
                    "where the two products cost as much as three projections": three[causal],
                    "where the products cost much less than the projections": d_model / 2,
                },
            )
    right(
        "crossover",
        f"GPT-3 reads {READS:,} tokens; under a causal mask its products catch up at {border:,}.",
    )


@exercise
def weight_memory(function: Callable[[int, int, int, int], tuple[int, float]]) -> None:
    """Check matrices of weights and their megabytes: B, h, n and bytes_each to two numbers."""
    answer = Answer("weight_memory", function)
    for B, h, n, bytes_each in (
        (5, 3, 70, 4),
        (32, 8, 128, 4),
        (1, 96, 2048, 2),
        (3, 96, 2048, 4),  # more bytes than int32 counts
        (5, 1, 11, 8),
        (1, 7, 9, 1),
        (6, 13, 77, 8),
    ):
        outcome = answer(B=B, h=h, n=n, bytes_each=bytes_each)
        matrices, megabytes = results(outcome, "matrices", "megabytes")
        held = B * h * n**2 * bytes_each
        truth = held / 1e6
        expect_number(
            matrices,
            B * h,
            "one matrix for each head of each sequence",
            {
                "which is those of one sequence": h,
                "which is those of one head": B,
                "which is the megabytes; the matrices come first": truth,
            },
        )
        expect_number(
            megabytes,
            truth,
            f"all matrices together, if a number takes {bytes_each} bytes and a megabyte has 10⁶",
            {
                "which is in mebibytes, of 2²⁰ bytes": truth * 1e6 / 2**20,
                "which is in bytes": truth * 1e6,
                "which is in kilobytes": truth * 1e3,
                "which is in gigabytes": truth / 1e3,
                "as if a mask halved them; the hidden weights are stored too": (
                    truth * (n + 1) / (2 * n)
                ),
                "which is cut off or rounded to a whole number": truth // 1,
                **{f"which is rounded to {p} after the point": round(truth, p) for p in (1, 2)},
                "which is in millions of bits; a byte has eight": truth * 8,
                "which counts numbers, not bytes": truth / bytes_each,
                "as if every number took 4 bytes": truth * 4 / bytes_each,
                "which is twice as much": truth * 2,
                "as if a matrix had n numbers": truth / n,
                "which is one matrix": truth / (B * h),
                "which is one sequence": truth / B,
                "which is one head": truth / h,
                "which has overflowed int32; count in int64": (
                    ((held + 2**31) % 2**32 - 2**31) / 1e6
                ),
            },
            within=SIX_DIGITS,
        )
    written = LARGEST.layers * counting.weight_bytes(LARGEST.h, READS, dtype=torch.float16)
    right(
        "weight_memory",
        f"For one text of {READS:,} tokens, {LARGEST.layers} layers of GPT-3's size write out "
        f"weights of {written / 1e9:.0f} GB, at 2 bytes each.",
    )


@exercise
def flops(function: Callable[[int, int, int, int, int, int], int]) -> None:
    """Check predicted FLOPs of a layer that attends to a context against a counter."""
    answer = Answer("flops", function)
    for B, n_q, n_k, d_model, h, d_k in (
        (3, 4, 11, 65, 5, 6),
        (7, 9, 5, 12, 3, 10),
        (4, 5, 9, 6, 1, 11),
        (4, 5, 1, 6, 3, 11),
        (3, 1, 100, 64, 4, 16),
        (8, 6, 3, 9, 7, 1),
        (1, 1, 4095, 4096, 32, 128),  # more than float32 counts
    ):
        outcome = answer(B=B, n_q=n_q, n_k=n_k, d_model=d_model, h=h, d_k=d_k)
        seen = measured(B, n_q, n_k, d_model, h, d_k)
        count = partial(counting.attention_flops, d_model=d_model, h=h, d_k=d_k)
        macs = counting.projection_macs(n_q, d_model, h, n_k=n_k, d_k=d_k)
        projections = counting.FLOPS_PER_MAC * B * macs
        products = seen - projections
        per_position = counting.FLOPS_PER_MAC * B * d_model * h * d_k  # of one projection
        expect_number(
            outcome,
            seen,
            f"what PyTorch's counter sees in such a layer: {seen:,} FLOPs",
            {
                "half of it; a multiply-add is two FLOPs": seen / 2,
                "twice as many; a multiply-add is two FLOPs, and no more": seen * 2,
                "with the projections in multiply-adds; they count double too": (
                    projections / 2 + products
                ),
                "which leaves out Q Kᵀ and A V": projections,
                "which leaves out the projections": products,
                "which leaves out one of Q Kᵀ and A V, or counts a multiply-add of both once": (
                    projections + products / 2
                ),
                "which leaves out W^O": seen - n_q * per_position,
                "with one projection for keys and values together": seen - n_k * per_position,
                "with one context projected, and every sequence has its own": (
                    seen - (B - 1) / B * 2 * n_k * per_position
                ),
                "as if the sequence and its context were one": B * count(n_q + n_k),
                "with three projections at the context's positions, and there are two": seen
                + (n_k - n_q) * per_position,
                "with three projections at the queries' positions, and there are two": seen
                - (n_k - n_q) * per_position,
                "with all four projections at the queries' positions": (
                    4 * n_q * per_position + products
                ),
                "with all four projections at the context's positions": (
                    4 * n_k * per_position + products
                ),
                "which is one head": seen / h,
                "with the projections of one head": projections / h + products,
                "with the projections of one sequence": projections / B + products,
                "with the products of one head": projections + products / h,
                "with the products of one sequence": projections + products / B,
                "as if a head's products were h·d_k wide": projections + h * products,
                "with the products of n_q queries and n_q keys": projections + products * n_q / n_k,
                "with the products of n_k queries and n_k keys": projections + products * n_k / n_q,
                "with projections of d_model × d_model, where they are as wide as the heads": (
                    projections * d_model / (h * d_k) + products
                ),
                "with products that add over d_model, where heads are d_k wide": (
                    projections + products * d_model / (h * d_k)
                ),
                "as if the layer attended to itself, and h·d_k were d_model": (
                    B * count(n_q) * d_model / (h * d_k)
                ),
                "as if W^O were d_model × d_model": (
                    seen + (d_model - h * d_k) * n_q * per_position // (h * d_k)
                ),
                "as if keys and values had as many positions as queries": B * count(n_q),
                "as if queries had as many positions as keys": B * count(n_k),
                "which is one sequence of the batch": seen / B,
                "as if h·d_k were d_model": seen * d_model / (h * d_k),
            },
        )
    right(
        "flops",
        f"In the last layer that was tried, {2 * n_k * per_position / seen:.2%} of the FLOPs make "
        "keys and values, all for a single query.",
    )


def measured(B: int, n_q: int, n_k: int, d_model: int, h: int, d_k: int) -> int:
    """Count the FLOPs of labkit's layer, by shapes alone."""
    layer = MultiHeadAttention(d_model, h, d_k=d_k, device="meta")
    x, context = (torch.empty(B, n, d_model, device="meta") for n in (n_q, n_k))
    return counting.count_flops(layer, x, context, return_weights=True)
