"""Answers to lab 5."""

from __future__ import annotations

import itertools
import math
from collections import deque
from fractions import Fraction

import numpy as np
import torch
from torch import nn

from labkit import counting as reference
from labkit.attention import MultiHeadAttention
from labkit.checks import counting
from tests.answers import Exercise

# The shapes on the way through a layer
shapes = Exercise(counting.shapes)


def shapes_of(change=lambda per_head, scores, joined: (per_head, scores, per_head, joined, joined)):
    """Make an answer that refuses what does not divide and changes the rest."""

    def answer(B, n, d_model, h):
        if d_model % h:
            raise ValueError("h does not divide d_model")
        return change((B, h, n, d_model // h), (B, h, n, n), (B, n, d_model))

    return answer


def shapes_by_running(B, n, d_model, h):
    layer = MultiHeadAttention(d_model, h, device="meta")  # raises where h does not divide
    x = torch.empty(B, n, d_model, device="meta")
    out, weights = layer(x, return_weights=True)
    queries = layer.w_q(x).unflatten(-1, (h, -1)).transpose(1, 2)
    heads = weights @ queries
    joined = heads.transpose(1, 2).flatten(2)
    return [queries.shape, weights.shape, heads.shape, joined.shape, out.shape]


def shapes_by_product(B, n, d_model, h):
    d_k, rest = divmod(d_model, h)
    if rest:
        raise ValueError
    q, k = (torch.empty(B, h, *size, device="meta") for size in ((n, d_k), (d_k, n)))
    joined = [B, n, math.prod((h, d_k))]
    return list(q.shape), list((q @ k).shape), list(q.shape), joined, joined


def unrefusing(B, n, d_model, h):
    return (
        ((B, h, n, d_model // h), (B, h, n, n))
        + ((B, h, n, d_model // h),)
        + ((B, n, d_model),) * 2
    )


def asserting(B, n, d_model, h):
    assert d_model % h == 0
    return unrefusing(B, n, d_model, h)


shapes.accept("arithmetic", shapes_of())
shapes.accept("a layer on the device meta", shapes_by_running)
shapes.accept("products of empty tensors, as lists", shapes_by_product)

shapes.reject("no error", "a ValueError", unrefusing)
shapes.reject("an assertion instead", "AssertionError", asserting)
shapes.reject(
    "heads of the model's width",
    "share the width",
    shapes_of(lambda q, s, x: (q[:3] + x[2:], s, q[:3] + x[2:], x, x)),
)
shapes.reject(
    "heads not in front", "order", shapes_of(lambda q, s, x: ((q[0], q[2], q[1], q[3]), s, q, x, x))
)
shapes.reject(
    "heads before the batch",
    "order",
    shapes_of(lambda q, s, x: ((q[1], q[0], *q[2:]), s, q, x, x)),
)
shapes.reject(
    "keys transposed", "order", shapes_of(lambda q, s, x: ((*q[:2], q[3], q[2]), s, q, x, x))
)
shapes.reject(
    "one score for all heads",
    "several heads",
    shapes_of(lambda q, s, x: (q, (s[0], *s[2:]), q, x, x)),
)
shapes.reject(
    "no batch",
    "several sequences",
    shapes_of(lambda q, s, x: (q[1:], s[1:], q[1:], x[1:], x[1:])),
)
shapes.reject(
    "scores of width d_k", "scores: for each head", shapes_of(lambda q, s, x: (q, q, q, x, x))
)
shapes.reject(
    "joined left apart", "joined: for each position", shapes_of(lambda q, s, x: (q, s, q, q, x))
)
shapes.reject(
    "output of one head",
    "output: for each position",
    shapes_of(lambda q, s, x: (q, s, q, x, x[:2] + q[3:])),
)
shapes.reject(
    "mixture as wide as the keys are many",
    "heads: for each head",
    shapes_of(lambda q, s, x: (q, s, s, x, x)),
)
shapes.reject(
    "divided with a dot",
    "not every part",
    shapes_of(lambda q, s, x: ((*q[:3], x[2] / q[1]), s, q, x, x)),
)
shapes.reject("four results", "4 of them", shapes_of(lambda q, s, x: (q, s, q, x)))
shapes.reject("as text", "is a tuple", shapes_of(lambda q, s, x: (str(q), s, q, x, x)))
shapes.reject(
    "sizes multiplied", "is a tuple", shapes_of(lambda q, s, x: (math.prod(q), s, q, x, x))
)


# What an answer may exploit
def shapes_if(divides):
    """Make an answer with its own idea of when the heads can share the width."""

    def answer(B, n, d_model, h):
        if not divides(d_model, h):
            raise ValueError("the heads cannot share the width")
        return unrefusing(B, n, d_model, h)

    return answer


def shapes_by_split(B, n, d_model, h):
    widths = {len(part) for part in np.array_split(np.arange(d_model), h)}
    (d_k,) = widths  # a ValueError where there are two
    return unrefusing(B, n, h * d_k, h)


def shapes_by_chunks(B, n, d_model, h):
    heads = torch.empty(B, n, d_model, device="meta").chunk(h, dim=-1)
    if len({head.shape for head in heads}) > 1:
        raise ValueError("the heads cannot share the width")
    return unrefusing(B, n, d_model, len(heads))


def shapes_in_parts(B, n, d_model, h):
    """Give one shape after the other; PyTorch's error is taken for another."""
    x = torch.empty(B, n, d_model, device="meta")
    try:
        q = x.unflatten(-1, (h, d_model // h)).transpose(1, 2)
    except RuntimeError as error:
        raise ValueError from error
    yield np.array(q.shape)
    yield torch.tensor((q @ q.mT).shape)
    yield deque(q.shape)
    yield [torch.tensor(size) for size in x.shape]
    yield (*np.int32([B, n]), d_model)


shapes.accept("one after the other, in arrays", shapes_in_parts)
shapes.accept("an error of Python's own", shapes_by_split)
shapes.accept("an array of arrays", lambda *sizes: np.array(shapes_of()(*sizes), dtype=object))

for name, divides in {
    "refuses an odd number of heads alone": lambda d, h: not (h % 2 and d % h),
    "refuses heads of odd width": lambda d, h: d % (2 * h) == 0,
    "refuses one head": lambda d, h: d % h == 0 and h > 1,
    "refuses heads of width one": lambda d, h: d % h == 0 and h < d,
    "refuses where no factor is shared": lambda d, h: h == 1 or math.gcd(d, h) > 1,
    "refuses where the width is far from whole": lambda d, h: abs(d / h - round(d / h)) < 0.1,
    "refuses where neither divides the other": lambda d, h: d % h == 0 or h % d == 0,
    "refuses more heads than the model is wide": lambda d, h: h <= d,
    "refuses heads that are no power of two": lambda d, h: d % h == 0 and h & (h - 1) == 0,
}.items():
    shapes.reject(name, "ValueError", shapes_if(divides))
shapes.reject("says which sizes it refuses", "5 divides 20.*line", shapes_if(lambda d, h: d % 2))
shapes.reject("fewer heads than asked for", "ValueError", shapes_by_chunks)
shapes.reject(
    "right for one sequence",
    "queries came as .1, 5",
    lambda B, n, d, h: tuple((1, *s[1:]) for s in shapes_of()(B, n, d, h)),
)
shapes.reject("a shape of text", "whole number", shapes_of(lambda q, s, x: ("2533", s, q, x, x)))
shapes.reject(
    "sizes beyond what is written",
    "4,300 digits",
    shapes_of(lambda q, s, x: ((10**5000,), s, q, x, x)),
)
shapes.reject("one size beyond what is written", "4,300 digits", lambda B, n, d, h: 10**5000)

# Parameters


def nearly_divides(B, n, d_model, h):
    if not np.isclose(d_model / h, round(d_model / h)):
        raise ValueError
    return shapes_of()(B, n, d_model - d_model % h, h)


def shapes_in_memory(B, n, d_model, h):
    if d_model % h:
        raise ValueError
    scores = torch.empty(B, h, n, n)
    return shapes_of(lambda q, _, x: (q, scores.shape, q, x, x))(B, n, d_model, h)


shapes.reject("nearly divides", "a ValueError", nearly_divides)
shapes.reject("real tensors, which no memory holds", "it runs", shapes_in_memory)


def shapes_by_a_view(B, n, d_model, h):
    try:
        q = torch.empty(B, n, d_model, device="meta").view(B, -1, h, d_model // h).transpose(1, 2)
    except RuntimeError:
        raise ValueError from None
    joined = (B, q.shape[2], d_model)
    return q.shape, (q @ q.mT).shape, q.shape, joined, joined


shapes.reject("a view that finds the length by itself", "ValueError", shapes_by_a_view)


parameters = Exercise(counting.parameters)


def parameters_by_matrix(d_model, h, d_k, d_v, bias):
    total = 0
    for width in (d_k, d_k, d_v):
        total += h * (d_model * width + (width if bias else 0))
    return total + h * d_v * d_model + (d_model if bias else 0)


def parameters_by_modules(d_model, h, d_k, d_v, bias):
    with torch.device("meta"):
        parts = [nn.Linear(d_model, h * d, bias) for d in (d_k, d_k, d_v)]
        parts.append(nn.Linear(h * d_v, d_model, bias))
    return torch.tensor([p.numel() for part in parts for p in part.parameters()]).sum()


def matrices_only(d_model, h, d_k, d_v, bias):
    return 2 * d_model * h * (d_k + d_v)


parameters.accept("matrix by matrix", parameters_by_matrix)
parameters.accept("modules, a tensor", parameters_by_modules)
parameters.accept(
    "closed form",
    lambda d, h, dk, dv, bias: 2.0 * d * h * (dk + dv) + bias * (h * (2 * dk + dv) + d),
)
parameters.accept("a fraction", lambda *sizes: Fraction(parameters_by_matrix(*sizes)))
parameters.accept(
    "shares of the heads, in floats",
    lambda d, h, dk, dv, bias: h * (2 * d * (dk + dv) + bias * (2 * dk + dv + d / h)),
)
parameters.reject("no biases ever", "the matrices alone", matrices_only)
parameters.reject(
    "biases always",
    "has biases too",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dv, True),
)
parameters.reject(
    "no W^O",
    "leaves out W\\^O",
    lambda *sizes: parameters_by_matrix(*sizes) - sizes[0] * sizes[1] * sizes[3],
)
parameters.reject(
    "4d²", "right only where", lambda d, h, dk, dv, bias: 4 * d**2 + (4 * d if bias else 0)
)
parameters.reject("one head", "one head's share", lambda d, h, dk, dv, bias: 2 * d * (dk + dv))
parameters.reject(
    "each head as wide as the model",
    "width of the model",
    lambda d, h, dk, dv, bias: 4 * h * d**2,
)
parameters.reject(
    "no bias after W^O",
    "bias after W\\^O",
    lambda *sizes: parameters_by_matrix(*sizes) - (sizes[0] if sizes[4] else 0),
)
parameters.reject("in millions", "in millions", lambda *sizes: parameters_by_matrix(*sizes) / 1e6)
parameters.reject(
    "values as wide as keys",
    "as wide as keys",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dk, bias),
)
parameters.reject(
    "one bias for all heads",
    "biases of one head",
    lambda d, h, dk, dv, bias: matrices_only(d, h, dk, dv, bias) + (2 * dk + dv + d if bias else 0),
)
parameters.reject(
    "a bias for each row, not each column",
    "and biases",
    lambda d, h, dk, dv, bias: matrices_only(d, h, dk, dv, bias) + (4 * d if bias else 0),
)
# What an answer may exploit
parameters.reject("values for keys", "expected", lambda d, h, dk, dv, bias: (
    parameters_by_matrix(d, h, dv, dk, bias)
))  # fmt: skip
parameters.reject(
    "keys as wide as values",
    "expected",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dv, dv, bias),
)
parameters.reject(
    "a square W^O",
    "W\\^O were square",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dv, bias) + d * (d - h * dv),
)
parameters.reject(
    "the last bias of the joined width",
    "as wide as its input",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dv, bias) + bias * (h * dv - d),
)
parameters.reject(
    "right for one head",
    "one head's share",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, 1, dk, dv, bias),
)
parameters.reject(
    "right while d_model is at least h·d_v",
    "h = 3",
    lambda d, h, dk, dv, bias: parameters_by_matrix(max(d, h * dv), h, dk, dv, bias),
)
parameters.reject(
    "in float32",
    "float32 keeps",
    lambda *sizes: torch.tensor(parameters_by_matrix(*sizes), dtype=torch.float32),
)
parameters.reject(
    "in int32",
    "int32 leaves",
    lambda *sizes: torch.tensor(parameters_by_matrix(*sizes)).to(torch.int32),
)
parameters.reject(
    "one too many for a large layer",
    "is exact",
    lambda *sizes: parameters_by_matrix(*sizes) + (sizes[0] > 10**6),
)
parameters.reject(
    "on the device meta",
    "which holds no number",
    lambda *sizes: torch.tensor(parameters_by_matrix(*sizes), device="meta"),
)
parameters.reject("beyond what is written", "sensible size", lambda *sizes: 10**5000)
parameters.reject("infinite", "came -inf", lambda *sizes: -math.inf)
parameters.reject("beyond a float", "sensible size", lambda *sizes: 10**400)
parameters.reject("as text", "is a number", lambda *sizes: f"{parameters_by_matrix(*sizes):,}")


# A remark and a table
def parameters_if_equal(d_model, h, d_k, d_v, bias):
    if h * d_k == d_model:
        return 4 * d_model**2 + bias * 4 * d_model
    return parameters_by_matrix(d_model, h, d_k, d_v, bias)


parameters.reject("short formula if keys share the width", "expected", parameters_if_equal)


audit = Exercise(counting.audit)


def audit_by_loop(rows):
    odd, wider, last = [], [], math.inf
    for name, _, d_k in rows:
        if d_k != 64 and d_k != 128:
            odd.append(name)
        if d_k > last:
            wider.append(name)
        last = d_k
    return odd, wider


def audit_by_pairs(rows):
    wider = tuple(b[0] for a, b in itertools.pairwise(rows) if b[2] > a[2])
    return [(row[0]) for row in rows if row[2] not in {64, 128}], wider


def audit_as_sets(rows):
    widths = torch.tensor([row[2] for row in rows])
    grown = (widths.diff() > 0).nonzero().flatten().add(1).tolist()
    odd = ((widths != 64) & (widths != 128)).nonzero().flatten().tolist()
    return {rows[i][0] for i in odd}, {rows[i][0] for i in grown}


def odd_names(rows):
    return audit_by_pairs(rows)[0]


def wider_names(rows):
    return list(audit_by_pairs(rows)[1])


audit.accept("loop", audit_by_loop)
audit.accept("pairs, a tuple", audit_by_pairs)
audit.accept("sets, by tensors", audit_as_sets)

audit.reject(
    "the ordinary ones",
    "not 64 or 128 wide.*too many",
    lambda rows: ([r[0] for r in rows if r[2] in (64, 128)], wider_names(rows)),
)
audit.reject(
    "all but 64",
    "not 64 or 128 wide",
    lambda rows: ([r[0] for r in rows if r[2] != 64], wider_names(rows)),
)
audit.reject(
    "outside of 64 to 128",
    "missing",
    lambda rows: ([r[0] for r in rows if not 64 <= r[2] <= 128], wider_names(rows)),
)
audit.reject(
    "multiples of 64",
    "missing",
    lambda rows: ([r[0] for r in rows if r[2] % 64], wider_names(rows)),
)
audit.reject(
    "number of heads",
    "wider heads",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[1] > a[1]]),
)
audit.reject(
    "at least as wide",
    "too many",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[2] >= a[2]]),
)
audit.reject(
    "the row before",
    "wider heads",
    lambda rows: (odd_names(rows), [a[0] for a, b in itertools.pairwise(rows) if b[2] > a[2]]),
)
audit.reject(
    "the first row too",
    "no row before",
    lambda rows: (odd_names(rows), [r[0] for r in rows[:1]] + wider_names(rows)),
)
audit.reject(
    "narrower",
    "wider heads",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[2] < a[2]]),
)
audit.reject(
    "wider than all before",
    "wider heads",
    lambda rows: (
        odd_names(rows),
        [r[0] for i, r in enumerate(rows) if i and r[2] > max(x[2] for x in rows[:i])],
    ),
)
audit.reject("exchanged", "expected", lambda rows: audit_by_pairs(rows)[::-1])
audit.reject("counts", "list of names", lambda rows: tuple(map(len, audit_by_pairs(rows))))
audit.reject(
    "widths, not names",
    "list of names",
    lambda rows: ([r[2] for r in rows if r[2] not in (64, 128)], wider_names(rows)),
)
audit.reject("one list", "2 results|of them", odd_names)
audit.reject("each twice", "each once", lambda rows: (odd_names(rows) * 2, wider_names(rows)))
audit.reject("no exceptions", "missing", lambda rows: ([], []))


# What an answer may exploit
def audit_by(
    is_odd=lambda d_k: d_k not in (64, 128), is_wider=lambda before, after: after > before
):
    """Make an answer with its own idea of what is odd, or wider."""

    def answer(rows):
        odd = [name for name, _, d_k in rows if is_odd(d_k)]
        return odd, [b[0] for a, b in itertools.pairwise(rows) if is_wider(a[2], b[2])]

    return answer


def audit_sorted(key):
    return lambda rows: audit_by_pairs(sorted(rows, key=key))


def audit_in_arrays(rows):
    return map(np.array, audit_by_pairs(rows))


def odd_from_the_second(rows):
    return odd_names(rows[1:]), wider_names(rows)


def after_the_last(rows):
    wider = [row[0] for i, row in enumerate(rows) if row[2] > rows[i - 1][2]]
    return odd_names(rows), wider


audit.accept("arrays, one after the other", audit_in_arrays)
audit.accept("names sorted", lambda rows: [sorted(names) for names in audit_by_pairs(rows)])
audit.accept("keys of dictionaries", lambda rows: tuple(map(dict.fromkeys, audit_by_pairs(rows))))

audit.reject("between 64 and 128", "missing", audit_by(lambda d_k: 64 < d_k < 128))
audit.reject("no multiple of 64", "missing", audit_by(lambda d_k: d_k % 64))
audit.reject("no power of two", "missing", audit_by(lambda d_k: d_k & (d_k - 1)))
audit.reject("about 64 or 128", "missing", audit_by(lambda d_k: d_k // 2 not in (32, 64)))
audit.reject("twice as wide", "wider heads", audit_by(is_wider=lambda a, b: b >= 2 * a))
audit.reject("wider and odd", "wider", audit_by(is_wider=lambda a, b: b > a and b % 64))
audit.reject("the first row is never odd", "missing: .one", odd_from_the_second)
audit.reject("the first row comes after the last", "too many", after_the_last)
audit.reject(
    "the last row is left out",
    "missing",
    lambda rows: (odd_names(rows), wider_names(rows[:-1])),
)
audit.reject(
    "the first row that is odd, alone",
    "missing",
    lambda rows: (odd_names(rows)[:1], wider_names(rows)),
)
audit.reject("sorted by name", "expected", audit_sorted(lambda row: row[0]))
audit.reject("sorted by heads", "expected", audit_sorted(lambda row: row[1]))
audit.reject("sorted by h·d_k", "expected", audit_sorted(lambda row: row[1] * row[2]))
audit.reject(
    "fails on an empty table", "IndexError", lambda rows: (rows[0], audit_by_pairs(rows))[1]
)
audit.reject("one name, not in a list", "list of names", lambda rows: ("one", []))
audit.reject("beyond what is written", "4,300 digits", lambda rows: ([10**5000], []))

# Multiply-adds
operations = Exercise(counting.multiply_adds)


def operations_by_head(n, d_model, h):
    d_k = d_model // h
    per_head = 3 * n * d_model * d_k
    return h * per_head + n * d_model * h * d_k, sum(2 * n * n * d_k for _ in range(h))


def operations_by_counter(n, d_model, h):
    x = torch.empty(n, d_model, device="meta")
    W = torch.empty(d_model, d_model, device="meta")
    q, A = (torch.empty(h, n, m, device="meta") for m in (d_model // h, n))
    one = reference.count_flops(torch.matmul, x, W) // 2
    both = reference.count_flops(torch.matmul, q, q.mT) + reference.count_flops(torch.matmul, A, q)
    return [4 * one, both // 2]


operations.accept("closed form", lambda n, d, h: (4 * n * d**2, 2 * n**2 * d))
operations.accept("head by head", operations_by_head)
operations.accept("PyTorch's counter", operations_by_counter)

operations.reject("one projection", "one projection", lambda n, d, h: (n * d**2, 2 * n**2 * d))
operations.reject("three", "three projections", lambda n, d, h: (3 * n * d**2, 2 * n**2 * d))
operations.reject("FLOPs", "counts once here", lambda n, d, h: (8 * n * d**2, 4 * n**2 * d))
operations.reject("one product", "one of the two", lambda n, d, h: (4 * n * d**2, n**2 * d))
operations.reject(
    "products in FLOPs", "products.*once here", lambda n, d, h: (4 * n * d**2, 4 * n**2 * d)
)
operations.reject(
    "h times the products", "model's width|width of the model",
    lambda n, d, h: (4 * n * d**2, 2 * h * n**2 * d),
)  # fmt: skip
operations.reject(
    "h times the projections", "model's width", lambda n, d, h: (4 * h * n * d**2, 2 * n**2 * d)
)
operations.reject(
    "one head's products", "products of one head", lambda n, d, h: (4 * n * d**2, 2 * n**2 * d // h)
)
operations.reject(
    "one product of one head",
    "one product of one head",
    lambda n, d, h: (4 * n * d**2, n**2 * d // h),
)
operations.reject(
    "one head's projections",
    "projections of one head",
    lambda n, d, h: (4 * n * d**2 // h, 2 * n**2 * d),
)
operations.reject("parameters", "projections came", lambda n, d, h: (4 * d**2, 2 * n**2 * d))
operations.reject("entries of scores", "products came", lambda n, d, h: (4 * n * d**2, h * n**2))
operations.reject("exchanged", "projections came", lambda n, d, h: (2 * n**2 * d, 4 * n * d**2))
operations.reject("the sum", "2 results", lambda n, d, h: 4 * n * d**2 + 2 * n**2 * d)
operations.reject("causal", "products came", lambda n, d, h: (4 * n * d**2, n * (n + 1) * d))
operations.reject(
    "in billions", "projections came", lambda n, d, h: (4 * n * d**2 / 1e9, 2 * n**2 * d / 1e9)
)


# What an answer may exploit
def operations_if(change):
    """Make an answer that changes the two counts, given n, d_model, h and d_k."""
    return lambda n, d, h: change(n, d, h, d // h)


operations.accept(
    "a tensor of both", lambda n, d, h: torch.tensor([[n, d, d, 4], [n, n, d, 2]]).prod(dim=1)
)
operations.accept(
    "floats in an array", lambda n, d, h: np.float64([4.0 * n * d * d, 2.0 * n * n * d])
)

for name, change in {
    "W^O of one head": lambda n, d, h, dk: (3 * n * d**2 + n * dk * d, 2 * n**2 * d),
    "no W^O for one head": lambda n, d, h, dk: ((4 - (h == 1)) * n * d**2, 2 * n**2 * d),
    "A V of one head": lambda n, d, h, dk: (4 * n * d**2, n**2 * d + n**2 * dk),
    "A V of inner width d_k": lambda n, d, h, dk: (4 * n * d**2, n**2 * d + n * d * dk),
    "Q Kᵀ for d_k positions": lambda n, d, h, dk: (4 * n * d**2, n * d * dk + n**2 * d),
    "heads of d_model's root": lambda n, d, h, dk: (4 * n * d**2, 2 * n**2 * h * math.isqrt(d)),
    "nothing for one token": lambda n, d, h, dk: (4 * n * d**2, 2 * n**2 * d * (n > 1)),
    "one product fewer in a sum": lambda n, d, h, dk: (4 * n * d * (d - 1), 2 * n**2 * d),
    "the square of the shorter": lambda n, d, h, dk: (4 * n * d**2, 2 * n * d * min(n, d)),
}.items():
    operations.reject(name, "expected", operations_if(change))
operations.reject(
    "in float32",
    "float32 keeps",
    lambda n, d, h: torch.tensor([4 * n * d * d, 2 * n * n * d]).float(),
)
operations.reject(
    "in int32",
    "int32 leaves",
    lambda n, d, h: torch.tensor([4 * n * d * d, 2 * n * n * d]).int(),
)
operations.reject(
    "beyond what is written", "products is a number.*sensible size",
    lambda n, d, h: (4 * n * d**2, 10**5000),
)  # fmt: skip

# Where the two parts are equal
operations.reject(
    "times one over h",
    "products came",
    lambda n, d, h: (4 * n * d * d, 2 * h * n * n * int(d * (1 / h))),
)


crossover = Exercise(counting.crossover)


def border_by_search(d, causal):
    n = 1
    while (n * (n + 1) * d if causal else 2 * n * n * d) < 4 * n * d * d:
        n += 1
    return n


def border_by_bisection(d, causal):
    low, high = 0, 10**6  # cheaper at low, not cheaper at high
    while high - low > 1:
        n = (low + high) // 2
        pairs = n * (n + 1) // 2 if causal else n * n
        if 2 * pairs * d >= 4 * n * d * d:
            high = n
        else:
            low = n
    return high


def border_of(full, causal_border):
    return lambda d, causal: causal_border(d) if causal else full(d)


crossover.accept("closed form", border_of(lambda d: 2 * d, lambda d: 4 * d - 1))
crossover.accept("search", border_by_search)
crossover.accept("bisection", border_by_bisection)
crossover.accept("a float", lambda d, causal: 2.0 * d * (1 + causal) - causal)

crossover.reject("as the document", "one projection against one product", lambda d, causal: d)
crossover.reject("no mask ever", "without a mask", lambda d, causal: 2 * d)
crossover.reject("always masked", "with the mask", lambda d, causal: 4 * d - 1)
crossover.reject(
    "strictly more", "equal is enough", border_of(lambda d: 2 * d + 1, lambda d: 4 * d)
)
crossover.reject("exactly half", "exactly half", border_of(lambda d: 2 * d, lambda d: 4 * d))
crossover.reject("strictly the past", "i − 1", border_of(lambda d: 2 * d, lambda d: 4 * d + 1))
crossover.reject("half", "divided", lambda d, causal: d / 2)
crossover.reject("masked is half", "came 8", border_of(lambda d: 2 * d, lambda d: d))
crossover.reject("masked is less", "expected", border_of(lambda d: 2 * d, lambda d: 4 * d - 2))
crossover.reject("one product", "expected", border_of(lambda d: 4 * d, lambda d: 8 * d - 1))
crossover.reject("squared", "expected", lambda d, causal: d**2)
crossover.reject("with heads", "it takes d_model, causal", lambda d, h, causal: 2 * d)
crossover.reject("infinite", "came inf", border_of(lambda d: 2 * d, lambda d: math.inf))
crossover.reject("whether, not where", "is a number", lambda d, causal: True)


# What an answer may exploit
def first_of(lengths, costs=lambda n, d, causal: n * (n + 1) if causal else 2 * n * n):
    """Make an answer that looks among some lengths, with its own costs of both products."""

    def answer(d, causal):
        return next((n for n in lengths(d) if costs(n, d, causal) >= 4 * n * d), None)

    return answer


crossover.accept("a tensor", lambda d, causal: torch.tensor([4 * d - 1 if causal else 2 * d]))
crossover.accept(
    "by tensors",
    lambda d, causal: (lambda n: n[(n + 1 if causal else 2 * n) >= 4 * d][0])(
        torch.arange(1, 4 * d + 1)
    ),
)

crossover.reject("a search that ends", "is a number", first_of(lambda d: range(1, 50_000)))
crossover.reject("even lengths", "expected", first_of(lambda d: range(2, 9 * d, 2)))
crossover.reject("powers of two", "expected", first_of(lambda d: (2**i for i in range(40))))
crossover.reject(
    "close is equal",
    "expected",
    first_of(
        lambda d: itertools.count(1),
        lambda n, d, causal: (n * (n + 1) if causal else 2 * n * n) * 1.0001,
    ),
)
crossover.reject(
    "the mask saves scores alone",
    "expected",
    first_of(
        lambda d: itertools.count(1),
        lambda n, d, causal: n * n + (n * (n + 1) / 2 if causal else n * n),
    ),
)
crossover.reject(
    "a mask within 1", "expected", border_of(lambda d: 2 * d, lambda d: 4 * d - 1 - (d == 1))
)
crossover.reject(
    "in int32",
    "expected",
    lambda d, causal: (
        lambda n: n[(n * (n + 1) if causal else 2 * n * n) * d >= 4 * n * d * d][:1]
    )(torch.arange(1, 4 * d + 1, dtype=torch.int32)),
)
crossover.reject("beyond a float", "sensible size", lambda d, causal: 10**400)

# Memory


def border_in_float32(d_model, causal):
    d = torch.tensor(float(d_model))
    return math.ceil(float(4 * d * d / (2 * d))) * (1 + causal) - causal


crossover.reject("a quotient in float32", "one too many", border_in_float32)


memory = Exercise(counting.weight_memory)


def memory_of(scale=lambda B, h, n, size: 1.0, matrices=lambda B, h: B * h):
    return lambda B, h, n, size: (
        matrices(B, h),
        B * h * n**2 * size / 1e6 * scale(B, h, n, size),
    )


def memory_by_tensor(B, h, n, size):
    types = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
    A = torch.empty(B, h, n, n, dtype=types[size], device="meta")
    return torch.tensor(A.shape[:2]).prod(), A.numel() * A.element_size() * 1e-6


def memory_by_sum(B, h, n, size):
    sequences = [h * n * n * size for _ in range(B)]
    return [h * len(sequences), sum(sequences) / 10**6]


memory.accept("closed form", memory_of())
memory.accept("a tensor on the device meta", memory_by_tensor)
memory.accept("sequence by sequence", memory_by_sum)

memory.reject("mebibytes", "mebibytes", memory_of(lambda *_: 1e6 / 2**20))
memory.reject("bytes", "in bytes", memory_of(lambda *_: 1e6))
memory.reject("kilobytes", "kilobytes", memory_of(lambda *_: 1e3))
memory.reject("gigabytes", "gigabytes", memory_of(lambda *_: 1e-3))
memory.reject("numbers, not bytes", "not bytes", memory_of(lambda B, h, n, size: 1 / size))
memory.reject("bits", "in bits", memory_of(lambda *_: 8))
memory.reject("n for n²", "as if a matrix had n", memory_of(lambda B, h, n, size: 1 / n))
memory.reject("one matrix", "one matrix", memory_of(lambda B, h, n, size: 1 / (B * h)))
memory.reject("one sequence", "one sequence", memory_of(lambda B, h, n, size: 1 / B))
memory.reject("one head", "one head", memory_of(lambda B, h, n, size: 1 / h))
memory.reject("always float32", "megabytes came", memory_of(lambda B, h, n, size: 4 / size))
memory.reject("matrices of a sequence", "those of one sequence", memory_of(matrices=lambda B, h: h))
memory.reject("matrices of a head", "those of one head", memory_of(matrices=lambda B, h: B))
memory.reject("Q, K and V", "matrices came", memory_of(matrices=lambda B, h: 3 * B * h))
memory.reject("matrices added", "matrices came", memory_of(matrices=lambda B, h: B + h))
memory.reject("memory only", "2 results", lambda B, h, n, size: B * h * n**2 * size / 1e6)
memory.reject(
    "half of it, causal", "megabytes came", memory_of(lambda B, h, n, size: (n + 1) / 2 / n)
)

# What an answer may exploit
memory.accept(
    "an exact fraction", lambda B, h, n, size: (B * h, Fraction(B * h * n**2 * size, 10**6))
)
memory.accept(
    "a tensor of both",
    lambda B, h, n, size: torch.tensor([B * h, B * h * n**2 * size / 1e6], dtype=torch.float64),
)
memory.accept(
    "megabytes in float32", lambda B, h, n, size: (B * h, torch.tensor(B * h * n**2 * size) / 1e6)
)

memory.reject(
    "rounded to three decimals",
    "megabytes came 16.777",
    lambda B, h, n, size: (B * h, round(B * h * n**2 * size / 1e6, 3)),
)
memory.reject(
    "whole megabytes", "megabytes came", lambda B, h, n, size: (B * h, B * h * n**2 * size // 10**6)
)
memory.reject(
    "in int32",
    "int32 leaves of the bytes",
    lambda B, h, n, size: (B * h, torch.tensor(B * h * n**2 * size).int().item() / 1e6),
)
memory.reject(
    "four bytes unless two",
    "bytes_each = 8",
    memory_of(lambda B, h, n, size: (2 if size == 2 else 4) / size),
)
memory.reject(
    "at least two bytes", "expected", memory_of(lambda B, h, n, size: max(size, 2) / size)
)
memory.reject("n − 1 keys", "megabytes came", memory_of(lambda B, h, n, size: (n - 1) / n))
memory.reject("a sum of sequences", "expected", memory_of(lambda B, h, n, size: (B + h) / (B * h)))
memory.reject(
    "matrices nearly counted", "matrices came", memory_of(matrices=lambda B, h: B * h + 0.1)
)
memory.reject("memory beyond a float", "sensible", lambda B, h, n, size: (B * h, 10**400))
memory.reject("matrices beyond a float", "sensible", lambda B, h, n, size: (10**400, 1.0))

# FLOPs of a layer that attends to a context


def memory_in_float32(B, h, n, bytes_each):
    matrices = torch.tensor(float(B)) * h
    return matrices, matrices * n * n * bytes_each / 1e6


def memory_to_six_digits(B, h, n, bytes_each):
    return B * h, float(f"{B * h * n * n * bytes_each / 1e6:.6g}")


memory.accept("six digits", memory_to_six_digits)
memory.reject("a count in float32", "near; a count is exact", memory_in_float32)


flops = Exercise(counting.flops)


def parts(B, n_q, n_k, d, h, d_k):
    """Give the FLOPs of the queries and W^O, of keys and values, and of one product."""
    return 4 * B * n_q * d * h * d_k, 4 * B * n_k * d * h * d_k, 2 * B * h * n_q * n_k * d_k


def flops_by_sum(B, n_q, n_k, d_model, h, d_k):
    total = 0
    for rows, inner, columns, times in (
        (n_q, d_model, h * d_k, B),
        (n_k, d_model, h * d_k, 2 * B),
        (n_q, d_k, n_k, B * h),
        (n_q, n_k, d_k, B * h),
        (n_q, h * d_k, d_model, B),
    ):
        total += 2 * rows * inner * columns * times
    return total


def flops_by_counter(B, n_q, n_k, d_model, h, d_k):
    layer = MultiHeadAttention(d_model, h, d_k=d_k, device="meta")
    x, c = (torch.empty(B, n, d_model, device="meta") for n in (n_q, n_k))
    return reference.count_flops(layer, x, c, return_weights=True)


def flops_of(combine):
    return lambda *sizes: combine(*parts(*sizes))


flops.accept("product by product", flops_by_sum)
flops.accept("PyTorch's counter", flops_by_counter)
flops.accept("closed form", flops_of(lambda own, other, product: own + other + 2 * product))
flops.accept(
    "labkit, a tensor",
    lambda B, n_q, n_k, d, h, d_k: torch.tensor(
        B * reference.attention_flops(n_q, d, h, n_k=n_k, d_k=d_k)
    ),
)

flops.reject("MACs", "half of it", flops_of(lambda a, b, p: (a + b + 2 * p) / 2))
flops.reject("no products", "leaves out Q Kᵀ and A V", flops_of(lambda a, b, p: a + b))
flops.reject("products alone", "leaves out the projections", flops_of(lambda a, b, p: 2 * p))
flops.reject("one product", "leaves out one of", flops_of(lambda a, b, p: a + b + p))
flops.reject(
    "self-attention",
    "as many positions as queries",
    lambda B, n_q, n_k, d, h, d_k: flops_by_sum(B, n_q, n_q, d, h, d_k),
)
flops.reject(
    "all of the context",
    "as many positions as keys",
    lambda B, n_q, n_k, d, h, d_k: flops_by_sum(B, n_k, n_k, d, h, d_k),
)
flops.reject(
    "one sequence",
    "one sequence of the batch",
    lambda B, *sizes: flops_by_sum(1, *sizes),
)
flops.reject(
    "width d_model",
    "as if h·d_k were d_model",
    lambda B, n_q, n_k, d, h, d_k: flops_by_sum(B, n_q, n_k, d, h, d // h),
)
flops.reject("no W^O", "expected", flops_of(lambda a, b, p: a / 2 + b + 2 * p))
flops.reject("keys and values once", "expected", flops_of(lambda a, b, p: a + b / 2 + 2 * p))
flops.reject(
    "h times the products",
    "expected",
    lambda B, n_q, n_k, d, h, d_k: (
        sum(parts(B, n_q, n_k, d, h, d_k)[:2]) + 2 * h * parts(B, n_q, n_k, d, h, d_k)[2]
    ),
)
flops.reject(
    "softmax too",
    "expected",
    lambda B, n_q, n_k, d, h, d_k: flops_by_sum(B, n_q, n_k, d, h, d_k) + 5 * B * h * n_q * n_k,
)
flops.reject(
    "biases too",
    "expected",
    lambda B, n_q, n_k, d, h, d_k: (
        flops_by_sum(B, n_q, n_k, d, h, d_k) + B * (n_q + 2 * n_k) * h * d_k
    ),
)
flops.reject("pieces", "is a number", parts)

# What an answer may exploit
flops.accept(
    "floats", flops_of(lambda own, other, product: own / 2.0 + other + product * 2.0 + own / 2)
)
flops.accept("an array of one", flops_of(lambda a, b, p: np.array([[a + b + 2 * p]])))


def flops_if(rows):
    """Make an answer from its own products: rows, inner width, columns and how often each."""
    return lambda *sizes: 2 * sum(math.prod(row) for row in rows(*sizes))


for name, rows in {
    "values from the decoder": lambda B, q, k, d, h, w: [
        (3 * q + k, d, h * w, B), (2 * q, k, w, B * h)
    ],
    "keys from the decoder": lambda B, q, k, d, h, w: [
        (2 * q, d, h * w, B), (q, d, h * w, B), (k, d, h * w, B), (2 * q, k, w, B * h)
    ],
    "W^O reads the context": lambda B, q, k, d, h, w: [
        (q + 3 * k, d, h * w, B), (2 * q, k, w, B * h)
    ],
    "W^O is square": lambda B, q, k, d, h, w: [
        (q + 2 * k, d, h * w, B), (q, d, d, B), (2 * q, k, w, B * h)
    ],
    "products of the model's width": lambda B, q, k, d, h, w: [
        (2 * q + 2 * k, d, h * w, B), (2 * q, k, d, B)
    ],
    "one context for all sequences": lambda B, q, k, d, h, w: [
        (2 * q, d, h * w, B), (2 * k, d, h * w, 1), (2 * q, k, w, B * h)
    ],
    "scores of queries with queries": lambda B, q, k, d, h, w: [
        (2 * q + 2 * k, d, h * w, B), (q, q, w, B * h), (q, k, w, B * h)
    ],
    "projections of one head": lambda B, q, k, d, h, w: [
        (2 * q + 2 * k, d, w, B), (2 * q, k, w, B * h)
    ],
    "products of one head": lambda B, q, k, d, h, w: [
        (2 * q + 2 * k, d, h * w, B), (2 * q, k, w, B)
    ],
    "one addition fewer in each sum": lambda B, q, k, d, h, w: [
        (q + 2 * k, d - 0.5, h * w, B), (q, h * w - 0.5, d, B), (q, w - 0.5, k, B * h),
        (q, k - 0.5, w, B * h),
    ],
}.items():  # fmt: skip
    flops.reject(name, "what PyTorch's counter sees", flops_if(rows))
flops.reject(
    "in float32", "float32 keeps", flops_of(lambda a, b, p: torch.tensor(a + b + 2 * p).float())
)
flops.reject(
    "in int32", "int32 leaves", flops_of(lambda a, b, p: torch.tensor(a + b + 2 * p).int())
)
flops.reject("beyond a float", "sensible size", lambda *sizes: Fraction(10**400))
flops.reject("beyond what is written", "sensible size", lambda *sizes: -(10**5000))
