"""Answers to lab 5."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn

from labkit import counting as reference
from labkit.attention import MultiHeadAttention
from labkit.labs.counting import check as counting
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


def refusing_what_divides(B, n, d_model, h):
    if d_model % h == 0:
        raise ValueError("h divides d_model")
    return unrefusing(B, n, d_model, h)


shapes.accept("arithmetic", shapes_of())
shapes.accept("a layer on the device meta", shapes_by_running)
shapes.accept("products of empty tensors, as lists", shapes_by_product)

shapes.reject("no error", "a ValueError", unrefusing)
shapes.reject(
    "an error returned",
    "raise it",
    lambda B, n, d_model, h: ValueError("no") if d_model % h else unrefusing(B, n, d_model, h),
)
shapes.reject("refuses what divides", "5 divides 20.*line", refusing_what_divides)
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
    r"queries came as \[2, 5, 3, 4\.0\], in which 4\.0 is a float; divide by //",
    shapes_of(lambda q, s, x: ((*q[:3], x[2] / q[1]), s, q, x, x)),
)
shapes.reject(
    "a number left out",
    "in which None is no whole",
    shapes_of(lambda q, s, x: (q, s, q, x, [*x[:2], None])),
)
shapes.reject("heads before scores", "changed places", shapes_of(lambda q, s, x: (q, q, s, x, x)))
shapes.reject("four results", "4 of them", shapes_of(lambda q, s, x: (q, s, q, x)))
shapes.reject("as text", "is a tuple", shapes_of(lambda q, s, x: (str(q), s, q, x, x)))


# Parameters
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
    "W^O of one head",
    "540 in all matrices, no biases, .*came 440, as if W\\^O read one head",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dv, bias) - (h - 1) * dv * d,
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
    "every bias d_model wide",
    "every bias were d_model wide",
    lambda *sizes: matrices_only(*sizes) + (4 * sizes[0] if sizes[4] else 0),
)
parameters.reject(
    "biases as wide as inputs",
    "as wide as the inputs",
    lambda d, h, dk, dv, bias: matrices_only(d, h, dk, dv, bias) + bias * (3 * d + h * dv),
)
parameters.reject(
    "values as wide as keys, joined",
    "W_V were as wide as W_K",
    lambda d, h, dk, dv, bias: d * h * (3 * dk + dv) + bias * (3 * h * dk + d),
)
parameters.reject(
    "W^O by keys",
    "W\\^O had as many rows",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dk, dv, bias) + d * h * (dk - dv),
)
parameters.reject(
    "one number for a bias",
    "one number for a bias",
    lambda *sizes: matrices_only(*sizes) + 4 * sizes[4],
)
parameters.reject(
    "d_k and d_v exchanged",
    "d_k and d_v had changed places",
    lambda d, h, dk, dv, bias: parameters_by_matrix(d, h, dv, dk, bias),
)
parameters.reject(
    "a sum in float32",
    "is rounded",
    lambda *sizes: torch.tensor([float(parameters_by_matrix(*sizes))]).sum(),
)


# A remark and a table
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
    "number of heads",
    "more heads than the row before",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[1] > a[1]]),
)
for mistake, pairs in {
    "the last row left out": lambda rows: itertools.pairwise(rows[:-1]),
    "rows two by two": lambda rows: zip(rows[::2], rows[1::2], strict=False),
}.items():
    audit.reject(
        mistake,
        r"missing: \['\w+'\]\Z",
        lambda rows, pairs=pairs: (odd_names(rows), [b[0] for a, b in pairs(rows) if b[2] > a[2]]),
    )
audit.reject(
    "or for and",
    "every number differs",
    lambda rows: ([r[0] for r in rows if r[2] != 64 or r[2] != 128], wider_names(rows)),
)
audit.reject(
    "compared as text",
    "as text, 64 comes after 160",
    lambda rows: (
        odd_names(rows),
        [b[0] for a, b in itertools.pairwise(rows) if str(b[2]) > str(a[2])],
    ),
)
audit.reject(
    "different, not wider",
    r"too many: \['two', 'six'\]\Z",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[2] != a[2]]),
)
audit.reject(
    "at least as wide",
    "too many",
    lambda rows: (odd_names(rows), [b[0] for a, b in itertools.pairwise(rows) if b[2] >= a[2]]),
)
audit.reject(
    "the row before",
    "rows before the wider ones",
    lambda rows: (odd_names(rows), [a[0] for a, b in itertools.pairwise(rows) if b[2] > a[2]]),
)
audit.reject(
    "the first row too",
    "no row before",
    lambda rows: (odd_names(rows), [r[0] for r in rows[:1]] + wider_names(rows)),
)
audit.reject(
    "wider than all before",
    "wider heads",
    lambda rows: (
        odd_names(rows),
        [r[0] for i, r in enumerate(rows) if i and r[2] > max(x[2] for x in rows[:i])],
    ),
)
for mistake, ordinary in {
    "multiples of 64": lambda d_k: d_k % 64 == 0,
    "powers of 2": lambda d_k: d_k & (d_k - 1) == 0,
}.items():
    audit.reject(
        mistake,
        "not 64 or 128 wide.*missing: .*'third'",
        lambda rows, ordinary=ordinary: (
            [r[0] for r in rows if not ordinary(r[2])],
            wider_names(rows),
        ),
    )
audit.reject(
    "wider ones twice",
    r"not 64 or 128 wide.*missing: \['one', 'five', 'six'\]\Z",
    lambda rows: (wider_names(rows), wider_names(rows)),
)
audit.reject(
    "exchanged",
    "happened  the two lists come in the other order",
    lambda rows: (wider_names(rows), odd_names(rows)),
)
audit.reject(
    "the last row before the first",
    "no row before",
    lambda rows: (odd_names(rows), [r[0] for i, r in enumerate(rows) if r[2] > rows[i - 1][2]]),
)
audit.reject(
    "one name a width",
    "missing: .*four",
    lambda rows: (
        [name for d_k, name in {r[2]: r[0] for r in rows}.items() if d_k not in (64, 128)],
        wider_names(rows),
    ),
)
audit.reject("counts", "has names", lambda rows: tuple(map(len, audit_by_pairs(rows))))
audit.reject("one list", r"one list of names came: \['one', 'four', 'five', 'six'\]", odd_names)
audit.reject("three lists", "2 results.*3 of them", lambda rows: (odd_names(rows), [], []))
audit.reject("each twice", "each once", lambda rows: (odd_names(rows) * 2, wider_names(rows)))


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
operations.reject(
    "one product", "one of the two products", lambda n, d, h: (4 * n * d**2, n**2 * d)
)
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
operations.reject("no n", "of one token", lambda n, d, h: (4 * d**2, 2 * n**2 * d))
operations.reject("n for n²", "of one query", lambda n, d, h: (4 * n * d**2, 2 * n * d))
operations.reject(
    "n for d_model", "had changed places", lambda n, d, h: (4 * n * d**2, 2 * n * d**2)
)
operations.reject("exchanged", "come first", lambda n, d, h: (2 * n**2 * d, 4 * n * d**2))
operations.reject(
    "causal", "every query meets every key", lambda n, d, h: (4 * n * d**2, n * (n + 1) * d)
)
operations.reject("the sum", "2 results", lambda n, d, h: 4 * n * d**2 + 2 * n**2 * d)

operations.accept(
    "a tensor of both", lambda n, d, h: torch.tensor([[n, d, d, 4], [n, n, d, 2]]).prod(dim=1)
)


# Where the two parts are equal
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

crossover.reject("as the document", "as much as one projection", lambda d, causal: d)
crossover.reject("one product", "as much as four projections", lambda d, causal: 4 * d)
crossover.reject(
    "no W^O",
    "as much as three",
    border_of(lambda d: math.ceil(1.5 * d), lambda d: 3 * d - 1),
)
crossover.reject("no mask ever", "without a mask", lambda d, causal: 2 * d)
crossover.reject("always masked", "with the mask", lambda d, causal: 4 * d - 1)
crossover.reject(
    "strictly more", "equal is enough", border_of(lambda d: 2 * d + 1, lambda d: 4 * d)
)
crossover.reject("exactly half", "exactly half", border_of(lambda d: 2 * d, lambda d: 4 * d))
crossover.reject("strictly the past", "i − 1", border_of(lambda d: 2 * d, lambda d: 4 * d + 1))
crossover.reject(
    "one too few", "still cost less", border_of(lambda d: 2 * d - 1, lambda d: 4 * d - 2)
)
crossover.reject(
    "scores masked alone",
    "only one of the two products skipped the hidden pairs",
    border_of(lambda d: 2 * d, lambda d: math.ceil((8 * d - 1) / 3)),
)
crossover.reject("half", "much less than the projections", lambda d, causal: d / 2)
crossover.reject("half with a mask", "halved the length", border_of(lambda d: 2 * d, lambda d: d))
crossover.reject(
    "twice with a mask",
    "as much as one projection",
    border_of(lambda d: 2 * d, lambda d: 2 * d - 1),
)
crossover.reject("with heads", "it takes d_model, causal", lambda d, h, causal: 2 * d)
crossover.reject("whether, not where", "is a number", lambda d, causal: True)

crossover.accept("a tensor", lambda d, causal: torch.tensor([4 * d - 1 if causal else 2 * d]))


# Memory
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
memory.reject("numbers, not bytes", "not bytes", memory_of(lambda B, h, n, size: 1 / size))
memory.reject("n for n²", "as if a matrix had n", memory_of(lambda B, h, n, size: 1 / n))
memory.reject("one matrix", "one matrix", memory_of(lambda B, h, n, size: 1 / (B * h)))
memory.reject("one sequence", "one sequence", memory_of(lambda B, h, n, size: 1 / B))
memory.reject("one head", "one head", memory_of(lambda B, h, n, size: 1 / h))
memory.reject("always float32", "took 4 bytes", memory_of(lambda B, h, n, size: 4 / size))
memory.reject("matrices of a sequence", "those of one sequence", memory_of(matrices=lambda B, h: h))
memory.reject("matrices of a head", "those of one head", memory_of(matrices=lambda B, h: B))
memory.reject("gigabytes", "gigabytes", memory_of(lambda *_: 1e-3))
memory.reject("kilobytes", "kilobytes", memory_of(lambda *_: 1e3))
memory.reject("twice", "twice as much", memory_of(lambda *_: 2))
memory.reject("half", "as if a mask", memory_of(lambda B, h, n, size: (n + 1) / (2 * n)))
memory.reject(
    "no rest", "a whole number", lambda B, h, n, size: (B * h, B * h * n**2 * size // 10**6)
)
for places in (1, 2):
    memory.reject(
        f"{places} after the point",
        f"rounded to {places} after",
        lambda *sizes, p=places: (memory_of()(*sizes)[0], round(memory_of()(*sizes)[1], p)),
    )
memory.reject("an eighth", r"megabytes came [\d.]+\Z", memory_of(lambda *_: 1 / 8))
memory.reject(
    "int32",
    "overflowed int32",
    lambda B, h, n, size: (
        B * h,
        torch.tensor([B * h, n, n, size]).prod(dtype=torch.int32) / 1e6,
    ),
)
memory.reject("bits", "bits", memory_of(lambda *_: 8))
memory.reject("exchanged", "matrices come first", lambda *sizes: memory_of()(*sizes)[::-1])
memory.reject("memory only", "2 results", lambda B, h, n, size: B * h * n**2 * size / 1e6)

memory.accept(
    "a tensor of both",
    lambda B, h, n, size: torch.tensor([B * h, B * h * n**2 * size / 1e6], dtype=torch.float64),
)


# FLOPs of a layer that attends to a context
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

flops.reject("MACs", "half of it", flops_of(lambda a, b, p: (a + b + 2 * p) / 2))
flops.reject("twice", "and no more", flops_of(lambda a, b, p: 2 * (a + b + 2 * p)))
flops.reject(
    "one for K and V", "keys and values together", flops_of(lambda a, b, p: a + b / 2 + 2 * p)
)
flops.reject(
    "one context",
    "one context projected",
    lambda B, *sizes: flops_by_sum(B, *sizes) - (B - 1) * parts(1, *sizes)[1],
)
flops.reject(
    "joined",
    "its context were one",
    lambda B, n_q, n_k, *sizes: flops_by_sum(B, n_q + n_k, n_q + n_k, *sizes),
)
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
flops.reject("no W^O", "leaves out W\\^O", flops_of(lambda a, b, p: a / 2 + b + 2 * p))
flops.reject(
    "W^O at the context's positions",
    "three projections at the context's positions",
    flops_of(lambda a, b, p: a / 2 + b * 3 / 2 + 2 * p),
)
flops.reject(
    "values of the queries' own",
    "three projections at the queries' positions",
    flops_of(lambda a, b, p: a * 3 / 2 + b / 2 + 2 * p),
)
flops.reject(
    "products without h",
    "products of one head",
    lambda B, n_q, n_k, d, h, d_k: flops_of(lambda a, b, p: a + b + 2 * p / h)(
        B, n_q, n_k, d, h, d_k
    ),
)
flops.reject(
    "products without B",
    "products of one sequence",
    lambda B, *sizes: flops_of(lambda a, b, p: a + b + 2 * p / B)(B, *sizes),
)
flops.reject(
    "h times the products",
    "were h·d_k wide",
    lambda B, n_q, n_k, d, h, d_k: (
        sum(parts(B, n_q, n_k, d, h, d_k)[:2]) + 2 * h * parts(B, n_q, n_k, d, h, d_k)[2]
    ),
)
flops.reject(
    "n_q² scores",
    "n_q queries and n_q keys",
    lambda B, n_q, n_k, d, h, d_k: (
        sum(parts(B, n_q, n_k, d, h, d_k)[:2]) + 2 * parts(B, n_q, n_q, d, h, d_k)[2]
    ),
)
flops.reject(
    "a square W^O",
    "W\\^O were d_model",
    lambda B, n_q, n_k, d, h, d_k: (
        flops_by_sum(B, n_q, n_k, d, h, d_k) + 2 * B * n_q * d * (d - h * d_k)
    ),
)


def flops_with(scale):
    """Make an answer that has projections and products, each as `scale` changes them."""

    def answer(*sizes):
        own, other, product = parts(*sizes)
        return sum(scale(own + other, 2 * product, *sizes))

    return answer


for mistake, told, scale in (
    ("FLOPs of products alone", "projections in mult", lambda p, q, *_: (p / 2, q)),
    ("no h", "which is one head", lambda p, q, B, n, m, d, h, d_k: (p / h, q / h)),
    (
        "projections without h",
        "projections of one head",
        lambda p, q, B, n, m, d, h, d_k: (p / h, q),
    ),
    ("projections without B", "projections of one seq", lambda p, q, B, *_: (p / B, q)),
    ("n_k² scores", "n_k queries and n_k", lambda p, q, B, n, m, *_: (p, q * m / n)),
    (
        "four d²",
        "projections of d_model × d_model",
        lambda p, q, B, n, m, d, h, d_k: (4 * B * (n + m) * d * d, q),
    ),
    (
        "products over d_model",
        "add over d_model",
        lambda p, q, B, n, m, d, h, d_k: (p, 4 * B * n * m * d),
    ),
    (
        "as in exercise 4",
        "attended to itself, and",
        lambda p, q, B, n, m, d, h, d_k: (8 * B * n * d * d, 4 * B * n * n * d),
    ),
    (
        "projections of n_q alone",
        "all four projections at the queries'",
        lambda p, q, B, n, m, d, h, d_k: (8 * B * n * d * h * d_k, q),
    ),
    (
        "projections of n_k alone",
        "all four projections at the context's",
        lambda p, q, B, n, m, d, h, d_k: (8 * B * m * d * h * d_k, q),
    ),
):
    flops.reject(mistake, told, flops_with(scale))
flops.reject("in float32", "is rounded", lambda *sizes: torch.tensor(flops_by_sum(*sizes)).float())
