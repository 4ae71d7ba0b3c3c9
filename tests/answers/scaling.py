"""Answers to lab 1."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from labkit.checks import scaling
from tests.answers import Exercise

# Scores of random queries and keys
draw = Exercise(scaling.draw_scores)


def by_loop(d_k, keys, draws):
    rows = []
    for _ in range(draws):
        query = torch.randn(d_k)
        rows.append(torch.stack([query.dot(torch.randn(d_k)) for _ in range(keys)]))
    return torch.stack(rows)


def drawn_seed():
    return int(torch.randint(2**62, ()))


def draw_with(generator, d_k, keys, draws):
    queries = torch.randn(draws, d_k, generator=generator)
    return queries, torch.randn(draws, keys, d_k, generator=generator)


def inverted(*shape):
    return torch.special.ndtri(1 - torch.rand(shape, dtype=torch.float64))


def by_numpy(seed, d_k, keys, draws):
    source = np.random.default_rng(seed)
    q = source.standard_normal((draws, d_k, 1))
    return (source.standard_normal((draws, keys, d_k)) @ q)[..., 0]


draw.accept("loops", by_loop)
draw.accept(
    "einsum",
    lambda d, k, b: torch.einsum("bd,bkd->bk", torch.randn(b, d), torch.randn(b, k, d)),
)
draw.accept(
    "batched product in float64",
    lambda d, k, b: (
        torch.randn(b, k, d, dtype=torch.float64) @ torch.randn(b, d, 1, dtype=torch.float64)
    ).squeeze(-1),
)
draw.accept(
    "numpy, seeded by PyTorch",
    lambda d, k, b: torch.from_numpy(by_numpy(drawn_seed(), d, k, b)),
)
draw.accept("length times normal", lambda d, k, b: torch.randn(b, d).norm(dim=1, keepdim=True)
            * torch.randn(b, k))  # fmt: skip
draw.accept("rounded to float16", lambda d, k, b: drawn(d, k, b).half())
draw.accept(
    "a generator with a drawn seed",
    lambda d, k, b: product(*draw_with(torch.Generator().manual_seed(drawn_seed()), d, k, b)),
)
draw.accept(
    "uniform numbers, inverted",
    lambda d, k, b: product(inverted(b, d), inverted(b, k, d)),
)


def product(queries, keys):
    return torch.einsum("bd,bkd->bk", queries, keys)


def drawn(d_k, keys, draws):
    return product(*draw_with(None, d_k, keys, draws))


def seeded(d_k, keys, draws):
    torch.manual_seed(42)
    return drawn(d_k, keys, draws)


draw.reject(
    "a query of one number",
    "the same number",
    lambda d, k, b: (torch.randn(b, 1, 1) * torch.randn(b, k, d)).sum(dim=-1),
)
draw.reject(
    "uniform entries", "mean", lambda d, k, b: product(torch.rand(b, d), torch.rand(b, k, d))
)
draw.reject(
    "scaled already",
    "variance .*d_k",
    lambda d, k, b: drawn(d, k, b) / d**0.5,
)
draw.reject(
    "mean of the products instead of the sum",
    "variance .*d_k",
    lambda d, k, b: (torch.randn(b, 1, d) * torch.randn(b, k, d)).mean(dim=-1),
)
draw.reject("normal numbers without vectors", "variance .*d_k", lambda d, k, b: torch.randn(b, k))
draw.reject(
    "uniform entries around 0",
    "variance .*d_k",
    lambda d, k, b: product(2 * torch.rand(b, d) - 1, 2 * torch.rand(b, k, d) - 1),
)
draw.reject(
    "uniform keys",
    "variance .*d_k",
    lambda d, k, b: product(torch.randn(b, d), 2 * torch.rand(b, k, d) - 1),
)
draw.reject(
    "one query for all draws",
    "query of its own|one query",
    lambda d, k, b: torch.einsum("d,bkd->bk", torch.randn(d), torch.randn(b, k, d)),
)
draw.reject(
    "the same keys in all draws",
    "keys of its own",
    lambda d, k, b: torch.randn(b, d) @ torch.randn(k, d).T,
)
draw.reject(
    "a query for each key",
    "the same query",
    lambda d, k, b: (torch.randn(b, k, d) * torch.randn(b, k, d)).sum(dim=-1),
)
draw.reject(
    "the same key ten times",
    "keys of one draw differ",
    lambda d, k, b: product(torch.randn(b, d), torch.randn(b, 1, d).expand(b, k, d)),
)
draw.reject(
    "the other way round",
    r"shape \(2, 3\)",
    lambda d, k, b: drawn(d, k, b).T,
)
draw.reject("one draw only", r"shape \(2, 3\)", lambda d, k, b: torch.randn(k, d) @ torch.randn(d))
draw.reject(
    "the products not yet added",
    r"shape \(2, 3\)",
    lambda d, k, b: torch.randn(b, 1, d) * torch.randn(b, k, d),
)
draw.reject("a seed inside", "leave the seed", seeded)
draw.reject(
    "sizes without negative sign",
    "mean",
    lambda d, k, b: drawn(d, k, b).abs(),
)
draw.reject("too few arguments", "d_k, keys, draws", lambda d_k, keys: torch.randn(keys))


# What an answer may exploit: sizes over 1, one call at a time, a seed that nobody looks at, a
# variance that other entries have too, wide tolerances, pairs of draws or of keys that nobody
# compares, few draws, one width.
def with_entries(entries):
    return lambda d, k, b: product(entries(b, d), entries(b, k, d))


def keeps_the_seed(d_k, keys, draws):
    with torch.random.fork_rng(devices=[]):
        return drawn(d_k, keys, draws)


def seeds_by_the_clock(d_k, keys, draws):
    torch.seed()
    return drawn(d_k, keys, draws)


def mirrored(d_k, keys, draws):
    half = drawn(d_k, keys, draws)[: (draws + 1) // 2]
    return torch.cat([half, -half])[:draws]


def keys_in_pairs(d_k, keys, draws):
    k = torch.randn(draws, (keys + 1) // 2, d_k).repeat(1, 2, 1)[:, :keys]
    return product(torch.randn(draws, d_k), k)


def keys_and_their_negatives(d_k, keys, draws):
    k = torch.randn(draws, (keys + 1) // 2, d_k)
    return product(torch.randn(draws, d_k), torch.cat([k, -k], dim=1)[:, :keys])


def keys_of_a_vocabulary(d_k, keys, draws):
    k = torch.randn(1_000, d_k)[torch.randint(1_000, (draws, keys))]
    return product(torch.randn(draws, d_k), k)


def queries_that_recur(d_k, keys, draws):
    queries = torch.randn(8, d_k).repeat(draws // 8 + 1, 1)[:draws]
    return product(queries, torch.randn(draws, keys, d_k))


def next_seed(d_k, keys, draws):
    torch.manual_seed(torch.initial_seed() + 1)
    return drawn(d_k, keys, draws)


def seed_afterwards(d_k, keys, draws):
    scores = drawn(d_k, keys, draws)
    torch.manual_seed(0)
    return scores


def made_to_fit(d_k, keys, draws):
    scores = drawn(d_k, keys, draws)
    return scores * (d_k / scores.square().mean()) ** 0.5


draw.reject(
    "lengths of 1 squeezed away",
    r"shape \(1, 5\)",
    lambda d, k, b: (torch.randn(b, k, d) @ torch.randn(b, d, 1)).squeeze(),
)
draw.reject("the generator put back", "second call", keeps_the_seed)
draw.reject("a seed by the clock", "same torch.manual_seed", seeds_by_the_clock)
draw.reject(
    "numpy without a seed",
    "same torch.manual_seed",
    lambda d, k, b: torch.from_numpy(by_numpy(None, d, k, b)),
)
draw.reject(
    "uniform entries of variance 1",
    "standard normal",
    with_entries(lambda *shape: (torch.rand(shape) - 0.5) * 12**0.5),
)
draw.reject(
    "uniform keys of variance 1",
    "standard normal",
    lambda d, k, b: product(torch.randn(b, d), (torch.rand(b, k, d) - 0.5) * 12**0.5),
)
draw.reject(
    "signs as entries", "rounded numbers", with_entries(lambda *shape: torch.randn(shape).sign())
)
draw.reject(
    "keys of length √d_k",
    "standard normal",
    lambda d, k, b: product(torch.randn(b, d), F.normalize(torch.randn(b, k, d), dim=-1)) * d**0.5,
)
draw.reject(
    "positive keys",
    "differ in sign",
    lambda d, k, b: product(torch.randn(b, d), torch.randn(b, k, d).abs()),
)
draw.reject("draws that mirror others", "shared a query", mirrored)
draw.reject("keys that come in pairs", "keys of one draw differ", keys_in_pairs)
draw.reject("keys and their negatives", "the same size", keys_and_their_negatives)
draw.reject("keys of a vocabulary", "from a few", keys_of_a_vocabulary)
draw.reject(
    "rounded entries",
    "rounded numbers",
    with_entries(lambda *shape: torch.randn(shape).mul(2).round() / 2),
)
draw.reject("queries that recur", "query of its own", queries_that_recur)
draw.reject("goes on to the next seed", "set another", next_seed)
draw.reject("sets the seed afterwards", "set another", seed_afterwards)
draw.reject(
    "entries cut off at three deviations",
    "variance .*d_k",
    with_entries(lambda *shape: nn.init.trunc_normal_(torch.empty(shape), a=-3.0, b=3.0)),
)
draw.reject("a variance made to fit", "as they were drawn", made_to_fit)
draw.reject("rows in order", "differ in sign", lambda d, k, b: drawn(d, k, b).sort(dim=1).values)
draw.reject(
    "scaled for one width",
    "variance .*d_k",
    lambda d, k, b: drawn(d, k, b) * 4 / d**0.5,
)

# The softmax of scaled scores
weights = Exercise(scaling.weights)


def stable_by_hand(scores, scale):
    e = torch.exp(scale * scores - (scale * scores).amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


def by_ratios(scores):
    return (scores[:, None, :] - scores[:, :, None]).exp()


def by_rows(scores, scale):
    return torch.stack([torch.softmax(row.double() * scale, dim=0) for row in scores])


weights.accept("softmax", lambda scores, scale: F.softmax(scores * scale, dim=-1))
weights.accept("shifted exponentials", stable_by_hand)
weights.accept("row by row in float64", by_rows)
weights.accept("one over a sum of ratios", lambda s, c: 1 / by_ratios(s * c).sum(dim=2))
weights.accept("log_softmax", lambda s, c: (s * c).log_softmax(dim=1).exp())
weights.accept("log-sum-exp in float32", lambda s, c: (s * c - (s * c).logsumexp(1, True)).exp())
weights.accept("of the opposite", lambda s, c: F.softmin(-c * s, dim=-1))

weights.reject("over the columns", "row sums to 1", lambda s, c: torch.softmax(s * c, dim=0))
weights.reject(
    "over everything",
    "row sums to 1",
    lambda s, c: torch.softmax((s * c).flatten(), dim=0).view_as(s),
)
weights.reject("not normalised", "row sums to 1", lambda s, c: (s * c).exp())
weights.reject("sigmoid", "row sums to 1", lambda s, c: torch.sigmoid(s * c))
weights.reject("logarithms", "row sums to 1", lambda s, c: torch.log_softmax(s * c, dim=1))
weights.reject("scale ignored", "multiplied by the scale", lambda s, c: torch.softmax(s, dim=1))
weights.reject(
    "divided by the scale", "multiplied by the scale", lambda s, c: torch.softmax(s / c, dim=1)
)
weights.reject(
    "scale after the softmax",
    "multiplied by the scale",
    lambda s, c: torch.softmax(s, dim=1) * c,
)
weights.reject(
    "root of the scale", "multiplied by the scale", lambda s, c: torch.softmax(s * c**0.5, dim=1)
)
weights.reject(
    "no care for large scores",
    "NaN",
    lambda s, c: (s * c).exp() / (s * c).exp().sum(dim=1, keepdim=True),
)
weights.reject(
    "NaN mended",
    "1/2, 1/2, 0",
    lambda s, c: ((s * c).exp() / (s * c).exp().sum(dim=1, keepdim=True)).nan_to_num(),
)
weights.reject(
    "moved until they sum to one",
    "negative",
    lambda s, c: s * c - (s * c).mean(dim=1, keepdim=True) + 1 / s.shape[1],
)
weights.reject(
    "no scale taken for none given",
    "scale 0",
    lambda s, c: torch.softmax(s * (c or 1.0), dim=1),
)
weights.reject("scores over their sum", "ratio", lambda s, c: s / s.sum(dim=1, keepdim=True))
weights.reject(
    "all weight on the largest",
    "ratio",
    lambda s, c: F.one_hot(s.argmax(dim=1), s.shape[1]).float(),
)
weights.reject("powers of two", "ratio", lambda s, c: torch.softmax(s * c * math.log(2), dim=1))
weights.reject("opposite sign", "ratio", lambda s, c: torch.softmax(-s * c, dim=1))
weights.reject(
    "first row for all", "by itself", lambda s, c: torch.softmax(s * c, dim=1)[:1].expand_as(s)
)
weights.reject(
    "the row's maximum dropped", r"shape \(2, 3\)", lambda s, c: torch.softmax(s * c, dim=1)[:, :-1]
)


# What an answer may exploit: one row of large scores alone, equal ones, moderate ones, a softmax
# that keeps all weights in reach, contiguous input, scales that are whole or powers of two, sizes
# that come once, square scores, scores without ties.
def shifted_by(shift):
    def answer(scores, scale):
        e = (scores * scale - shift(scores * scale)).exp()
        return e / e.sum(dim=1, keepdim=True)

    return answer


weights.reject("shifted by the largest score of all", "NaN", shifted_by(lambda s: s.max()))
weights.reject(
    "shifted by each key's largest score",
    "ratio",
    shifted_by(lambda s: s.amax(dim=0, keepdim=True)),
)
weights.reject("shifted by the mean", "NaN", shifted_by(lambda s: s.mean(dim=1, keepdim=True)))
weights.reject("shifted by the first score", "NaN", shifted_by(lambda s: s[:, :1]))
weights.reject(
    "large scores cut off",
    "the softmax of each row",
    lambda s, c: F.softmax((s * c).clamp(max=80), 1),
)
weights.reject(
    "very negative scores cut off",
    "the softmax of each row",
    lambda s, c: F.softmax((s * c).clamp(min=-500), 1),
)
weights.reject(
    "far scores lifted",
    "the softmax of each row",
    lambda s, c: F.softmax(torch.maximum(s * c, (s * c).amax(1, keepdim=True) - 10), 1),
)
weights.reject(
    "small weights rounded away",
    "the softmax of each row",
    lambda s, c: F.softmax(s * c, dim=1).mul(1e6).round() / 1e6,
)
weights.reject(
    "something small in the divisor",
    "the softmax of each row",
    lambda s, c: (
        (s * c).clamp(max=80).exp() / ((s * c).clamp(max=80).exp().sum(1, keepdim=True) + 1e-8)
    ),
)
weights.reject(
    "scale as a power of the weights",
    "the softmax of each row",
    lambda s, c: F.normalize(F.softmax(s, dim=1) ** c, p=1, dim=1),
)
weights.reject(
    "divided by one over the scale", "it runs", lambda s, c: torch.softmax(s / (1 / c), dim=1)
)
weights.reject(
    "needs contiguous scores",
    "it runs",
    lambda s, c: F.softmax(s.view(-1).view(s.shape) * c, dim=1),
)
weights.reject(
    "input scaled in place", "left as they were", lambda s, c: F.softmax(s.mul_(c), dim=1)
)
weights.reject(
    "one less the other weights",
    "the softmax of each row",
    lambda s, c: torch.cat([stable_by_hand(s, c)[:, 1:], 1 - stable_by_hand(s, c)[:, 1:]
                            .sum(1, keepdim=True)], 1).roll(1, 1),
)  # fmt: skip
weights.reject("in float16", "the softmax of each row", lambda s, c: F.softmax((s * c).half(), 1))
weights.reject(
    "a scale over 1 rounded down",
    "the softmax of each row",
    lambda s, c: F.softmax(s * (int(c) if c > 1 else c), 1),
)
weights.reject(
    "the scale in hundredths", "the softmax of each row", lambda s, c: F.softmax(s * round(c, 2), 1)
)
weights.reject(
    "cut off at 3,000",
    "the softmax of each row",
    lambda s, c: F.softmax((s * c).clamp(-3000, 3000), 1),
)
weights.reject(
    "kept for scores of the same shape and scale",
    "the softmax of each row",
    (lambda kept: lambda s, c: kept.setdefault((s.shape, c), F.softmax(s * c, 1)))({}),
)
weights.reject(
    "the other axis of a square",
    "the softmax of each row",
    lambda s, c: F.softmax(s * c, dim=0 if len(s) == s.shape[1] else 1),
)
weights.reject(
    "small weights kept from 0",
    "the softmax of each row",
    lambda s, c: F.softmax(s * c, 1).clamp(min=1e-12),
)

# Deviation and largest weight
report = Exercise(scaling.report)


def report_by_rows(scores, scale):
    spreads, peaks = [], []
    for row in scores * scale:
        mean = row.sum() / len(row)
        spreads.append((((row - mean) ** 2).sum() / (len(row) - 1)).sqrt())
        peaks.append(row.softmax(0).max())
    return torch.stack(spreads), torch.stack(peaks)


report.accept(
    "std and amax", lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=1).amax(dim=1))
)
report.accept("loops", report_by_rows)
report.accept(
    "a covariance, and a loss",
    lambda s, c: (
        torch.stack([torch.cov(row).sqrt() for row in s * c]),
        torch.exp(-F.cross_entropy(s * c, s.argmax(dim=1), reduction="none")),
    ),
)
report.accept(
    "from the largest score, as a list",
    lambda s, c: [s.double().std(-1) * c, 1 / ((s - s.amax(1, keepdim=True)) * c).exp().sum(1)],
)
report.accept(
    "root of the variance", lambda s, c: ((s * c).var(1).sqrt(), (s * c).softmax(1).max(1).values)
)
report.accept(
    "log-sum-exp in float32",
    lambda s, c: (s.std(1) * c, ((s * c).amax(dim=1) - (s * c).logsumexp(dim=1)).exp()),
)


def deviation_by_addition(row):
    mean = sum(row) / len(row)
    return (sum((x - mean) ** 2 for x in row) / (len(row) - 1)) ** 0.5


report.accept(
    "mean by addition",
    lambda s, c: (torch.stack([deviation_by_addition(row) for row in s * c]), peak(s, c)),
)

peak = lambda s, c: F.softmax(s * c, dim=1).amax(dim=1)  # noqa: E731
report.reject("swapped", "equal, so its deviation", lambda s, c: (peak(s, c), (s * c).std(dim=1)))
report.reject("deviation before scaling", "before scaling", lambda s, c: (s.std(dim=1), peak(s, c)))
report.reject("variance", "the variance", lambda s, c: ((s * c).var(dim=1), peak(s, c)))
report.reject(
    "divisor n", "divisor keys", lambda s, c: ((s * c).std(dim=1, correction=0), peak(s, c))
)
report.reject(
    "deviation of the weights",
    "row's scaled scores",
    lambda s, c: (F.softmax(s * c, dim=1).std(dim=1), peak(s, c)),
)
report.reject("one deviation for all", r"shape \(3,\)", lambda s, c: ((s * c).std(), peak(s, c)))
report.reject("down the columns", r"shape \(3,\)", lambda s, c: ((s * c).std(dim=0), peak(s, c)))
report.reject(
    "largest weight without scale",
    "scale in the softmax",
    lambda s, c: ((s * c).std(1), peak(s, 1)),
)
report.reject(
    "largest score", "between 0 and 1", lambda s, c: ((s * c).std(1), (s * c).amax(dim=1))
)
report.reject(
    "place of the largest weight",
    "floating",
    lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=1).argmax(dim=1)),
)
report.reject(
    "smallest weight",
    "largest weight",
    lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=1).amin(dim=1)),
)
report.reject(
    "softmax over the draws",
    "largest weight",
    lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=0).amax(dim=1)),
)
report.reject(
    "values and places", "shape|tensor", lambda s, c: ((s * c).std(1), F.softmax(s * c, 1).max(1))
)
report.reject("deviation only", "2 results", lambda s, c: (s * c).std(dim=1))
report.reject(
    "axes kept", r"shape \(3,\)", lambda s, c: ((s * c).std(1, keepdim=True), peak(s, c)[:, None])
)


# What an answer may exploit: moderate scores, positive ones, scores around 0, several rows, as
# many draws as keys, few keys, contiguous scores, large deviations, scores without ties.
def by_squares(s, c):
    n = s.shape[1]
    variance = ((s * c).square().mean(1) - (s * c).mean(1).square()) * n / (n - 1)
    return variance.clamp(min=0).sqrt(), peak(s, c)


def without_shift(s, c):
    e = (s * c).exp()
    return (s * c).std(dim=1), (e / e.sum(dim=1, keepdim=True)).amax(dim=1)


report.reject("mean of squares less square of mean", "deviation of each row", by_squares)
report.reject("large scores overflow", "NaN", without_shift)
report.reject(
    "large scores cut off",
    "largest weight of each row",
    lambda s, c: ((s * c).std(dim=1), F.softmax((s * c).clamp(-50, 50), dim=1).amax(dim=1)),
)
report.reject(
    "weight of the largest score without its sign",
    "largest without its sign",
    lambda s, c: (
        (s * c).std(1),
        F.softmax(s * c, 1).gather(1, s.abs().argmax(1, keepdim=True))[:, 0],
    ),
)
report.reject(
    "divisor draws − 1",
    "deviation of each row",
    lambda s, c: (
        (s * c).std(dim=1, correction=0) * (s.shape[1] / max(len(s) - 1, 1)) ** 0.5,
        peak(s, c),
    ),
)
report.reject(
    "deviation from 0",
    "its deviation is 0",
    lambda s, c: ((s * c).square().sum(1).div(s.shape[1] - 1).sqrt(), peak(s, c)),
)
report.reject(
    "mean absolute deviation",
    "deviation of each row",
    lambda s, c: (((s - s.mean(1, keepdim=True)) * c).abs().mean(1), peak(s, c)),
)
report.reject(
    "an axis too many squeezed",
    r"shape \(1,\)",
    lambda s, c: ((s * c).std(dim=1).squeeze(), peak(s, c).squeeze()),
)
report.reject(
    "largest weight of the first row",
    "between 0 and 1, and is 1/4|largest weight of each row",
    lambda s, c: ((s * c).std(dim=1), peak(s, c)[:1].expand(len(s))),
)

report.reject(
    "something small under the root",
    "its deviation is 0",
    lambda s, c: (((s * c).var(dim=1) + 1e-8).sqrt(), peak(s, c)),
)
report.reject(
    "small deviations rounded away",
    "deviation of each row",
    lambda s, c: ((s * c).std(dim=1).mul(1e4).round() / 1e4, peak(s, c)),
)
report.reject(
    "largest weights rounded",
    "largest weight of each row",
    lambda s, c: ((s * c).std(dim=1), peak(s, c).mul(1e3).round() / 1e3),
)
report.reject(
    "needs contiguous scores",
    "it runs",
    lambda s, c: ((s.view(-1) * c).view(s.shape).std(dim=1), peak(s, c)),
)
report.reject(
    "weights of equal scores added",
    "between 0 and 1, and is 1/4|largest weight of each row",
    lambda s, c: (
        (s * c).std(dim=1),
        (F.softmax(s * c, 1) * (s == s.amax(1, keepdim=True))).sum(dim=1),
    ),
)
report.reject(
    "the first ten keys only",
    "deviation of each row",
    lambda s, c: ((s * c)[:, :10].std(dim=1), peak(s, c)),
)

# The norm of the softmax's Jacobian
norm = Exercise(scaling.jacobian_norm)


def by_matrix(p):
    return (torch.diag_embed(p) - p[:, :, None] * p[:, None, :]).norm(dim=(1, 2))


def by_entries(p):
    norms = []
    for row in p.double():
        total = 0.0
        for i, a in enumerate(row):
            for j, b in enumerate(row):
                total += ((i == j) * a - a * b) ** 2
        norms.append(math.sqrt(total))
    return torch.tensor(norms)


def by_autograd(p):
    rows = []
    for row in p:
        scores = row.clamp(min=1e-30).log()
        rows.append(torch.autograd.functional.jacobian(lambda s: s.softmax(0), scores).norm())
    return torch.stack(rows)


def closed_form(p):
    a = p.double().square().sum(-1)
    return (a - 2 * p.double().pow(3).sum(-1) + a**2).clamp(min=0).sqrt()


def closed_form_in_float32(p):
    a = p.square().sum(1)
    return (a - 2 * p.pow(3).sum(1) + a**2).relu().sqrt()


norm.accept("the matrix", by_matrix)
norm.accept("entry by entry", by_entries)
norm.accept("autograd", by_autograd)
norm.accept("closed form", closed_form)
norm.accept("closed form in float32, kept from below 0", closed_form_in_float32)

norm.reject("the square", "its square", lambda p: by_matrix(p) ** 2)
norm.reject("diagonal without the product", "pull on each other", lambda p: p.norm(dim=1))
norm.reject("diagonal only", "diagonal alone", lambda p: (p * (1 - p)).norm(dim=1))
norm.reject(
    "plus instead of minus",
    "1/2",
    lambda p: (torch.diag_embed(p) + p[:, :, None] * p[:, None, :]).norm(dim=(1, 2)),
)
norm.reject("sum of sizes", "1/2", lambda p: 2 * (p * (1 - p)).sum(dim=1))
norm.reject(
    "spectral norm",
    "largest singular value",
    lambda p: torch.linalg.matrix_norm(torch.diag_embed(p) - p[:, :, None] * p[:, None, :], ord=2),
)
norm.reject("the trace", "0.471|whatever", lambda p: (p * (1 - p)).sum(dim=1))
norm.reject("one norm for all rows", "shape", lambda p: (torch.diag_embed(p) - p.T @ p).norm())
norm.reject(
    "rows mixed",
    "0.471|whatever",
    lambda p: (torch.diag_embed(p) - p.mT @ p / len(p)).norm(dim=(1, 2)),
)
norm.reject(
    "the matrix itself", "shape", lambda p: torch.diag_embed(p) - p[:, :, None] * p[:, None]
)
norm.reject(
    "root of a negative rounding error",
    "NaN",
    lambda p: (p.square().sum(1) - 2 * p.pow(3).sum(1) + p.square().sum(1) ** 2 - 1e-12).sqrt(),
)
norm.reject(
    "as if the weights were equal",
    "passes nothing on",
    lambda p: torch.full(p.shape[:1], (p.shape[1] - 1) ** 0.5 / p.shape[1]),
)
norm.reject(
    "something small under the root",
    "passes nothing on",
    lambda p: (by_matrix(p) ** 2 + 1e-5).sqrt(),
)
norm.reject("two keys only", "0.471", lambda p: 2 * p[:, 0] * (1 - p[:, 0]))


# What an answer may exploit: three keys at most, where all are neighbours; no zeros; weights in
# order; mild rows, where nothing cancels; few keys, so that all weights count; contiguous weights.
def around(p):
    """Count each pair of neighbours in a ring, which are all pairs of three keys."""
    pairs = p * p.roll(1, dims=1)
    off = pairs[:, 1:].square().sum(dim=1) + (p.shape[1] > 2) * pairs[:, 0].square()
    return ((p * (1 - p)).square().sum(dim=1) + 2 * off).sqrt()


norm.reject("neighbours only", "whatever", around)
norm.reject(
    "the two largest weights only",
    "0.471",
    lambda p: 2 * p.sort(dim=1).values[:, -2:].prod(dim=1),
)
norm.reject(
    "the three largest weights only",
    "whatever",
    lambda p: by_matrix(p.sort(dim=1, descending=True).values[:, :3]),
)
norm.reject(
    "closed form that cancels",
    "NaN",
    lambda p: (p.square().sum(1) - 2 * p.pow(3).sum(1) + p.square().sum(1) ** 2).sqrt(),
)
norm.reject(
    "divided by a weight",
    "NaN",
    lambda p: (by_matrix(p) / p.amin(dim=1)) * p.amin(dim=1),
)
norm.reject(
    "at the logarithm, about its mean",
    "NaN",
    lambda p: by_matrix(torch.softmax(p.log() - p.log().mean(dim=1, keepdim=True), dim=1)),
)
norm.reject(
    "weights taken for scores", "0.471|whatever|nothing on", lambda p: by_matrix(p.softmax(dim=1))
)
norm.reject(
    "nuclear norm",
    "0.471|1/2",
    lambda p: torch.linalg.matrix_norm(torch.diag_embed(p) - p[:, :, None] * p[:, None], ord="nuc"),
)
norm.reject(
    "pooled over all rows",
    "nothing on|whatever|0.471",
    lambda p: (by_matrix(p).norm() / len(p) ** 0.5).expand(len(p)),
)
norm.reject("one row squeezed", r"shape \(1,\)", lambda p: by_matrix(p).squeeze())
norm.reject(
    "diagonal and one half of the rest",
    "1/2",
    lambda p: (torch.diag_embed(p) - p[:, :, None] * p[:, None]).tril().norm(dim=(1, 2)),
)
norm.reject("rounded", "whatever", lambda p: by_matrix(p).mul(100).round() / 100)

norm.reject(
    "a hundred keys at most",
    "whatever",
    lambda p: by_matrix(p.sort(dim=1, descending=True).values[:, :64]),
)
norm.reject("needs contiguous weights", "it runs", lambda p: by_matrix(p.view(-1).view(p.shape)))
norm.reject(
    "weights kept from 0 in place", "left as they were", lambda p: by_matrix(p.clamp_(min=1e-8))
)
norm.reject(
    "nothing from a weight over 0.99",
    "whatever",
    lambda p: by_matrix(p) * (p.amax(dim=1) < 0.99),
)
norm.reject(
    "the diagonal told by equal weights",
    "0.471|whatever",
    lambda p: (torch.where(p[:, :, None] == p[:, None, :], p[:, :, None], 0)
               - p[:, :, None] * p[:, None, :]).norm(dim=(1, 2)),
)  # fmt: skip

# How often a bound holds
share = Exercise(scaling.share_below)


def scores_of(d_k, draws=2_000, keys=10):
    return torch.randn(draws, d_k).norm(dim=1, keepdim=True) * torch.randn(draws, keys)


def peaks_of(d_k, scale=None, **sizes):
    return (scores_of(d_k, **sizes) * (d_k**-0.5 if scale is None else scale)).softmax(1).amax(1)


def share_by_loop(d_k, bound):
    hits = 0
    for _ in range(2_000):
        weights = torch.softmax(torch.randn(10, d_k) @ torch.randn(d_k) / math.sqrt(d_k), dim=0)
        hits += weights.max().item() < bound
    return hits / 2_000


share.accept("mean of a comparison", lambda d, b: (peaks_of(d) < b).float().mean())
share.accept("loop and count", share_by_loop)
share.accept("a Python number", lambda d, b: int((peaks_of(d) < b).sum()) / 2_000)
share.accept("a numpy number", lambda d, b: np.mean(peaks_of(d, draws=10_000).numpy() < b))
share.accept("as a fraction", lambda d, b: Fraction(int((peaks_of(d) < b).sum()), 2_000))
share.accept("many draws", lambda d, b: (peaks_of(d, draws=20_000) < b).double().mean())

share.reject("percent", "count", lambda d, b: 100 * (peaks_of(d) < b).float().mean())
share.reject("count", "count", lambda d, b: int((peaks_of(d) < b).sum()))
share.reject("the complement", "not under", lambda d, b: (peaks_of(d) >= b).float().mean())
share.reject("no scale", "without the scale", lambda d, b: (peaks_of(d, 1.0) < b).float().mean())
share.reject(
    "divided by d_k", "with the scale 1/d_k", lambda d, b: (peaks_of(d, 1 / d) < b).float().mean()
)
share.reject("one draw", "near|lies", lambda d, b: float(peaks_of(d, draws=1)[0] < b))
share.reject("twenty keys", "near", lambda d, b: (peaks_of(d, keys=20) < b).float().mean())
share.reject("mean of the largest", "near", lambda d, b: peaks_of(d).mean())
share.reject("is the mean under?", "number", lambda d, b: bool(peaks_of(d).mean() < b))
share.reject("bound not used", "near", lambda d, b: (peaks_of(d) < 0.30).float().mean())
share.reject("width not used", "near", lambda d, b: (peaks_of(64) < b).float().mean())
share.reject(
    "all weights, not the largest",
    "near",
    lambda d, b: ((scores_of(d) * d**-0.5).softmax(1) < b).float().mean(),
)
share.reject("the draws themselves", "number", lambda d, b: peaks_of(d) < b)


# What an answer may exploit: two widths, wide tolerances, one call at a time, many draws that
# nobody counts or that share what they are made of, round bounds, narrow vectors, a first call.
def share_of(scores, d_k, bound):
    return (F.softmax(scores / d_k**0.5, dim=1).amax(dim=1) < bound).float().mean().item()


def share_seeded(d_k, bound):
    torch.manual_seed(1)
    return share_of(scores_of(d_k), d_k, bound)


def share_seeds_the_next(d_k, bound):
    share = share_of(scores_of(d_k), d_k, bound)
    torch.manual_seed(1)
    return share


def share_crossed(d_k, bound):
    lengths = torch.randn(45, 1, d_k).norm(dim=2, keepdim=True)
    return share_of((lengths * torch.randn(1, 45, 10)).flatten(0, 1), d_k, bound)


share.reject(
    "200 draws", "near|1/200|1/100|1/50", lambda d, b: (peaks_of(d, draws=200) < b).float().mean()
)
share.reject(
    "1,000 draws", "1/1000|near|1/500", lambda d, b: (peaks_of(d, draws=1_000) < b).double().mean()
)
share.reject("1,999 draws", "1/1999", lambda d, b: (peaks_of(d, draws=1_999) < b).double().mean())
share.reject("nine keys", "near|off by", lambda d, b: (peaks_of(d, keys=9) < b).float().mean())
share.reject("eleven keys", "near|off by", lambda d, b: (peaks_of(d, keys=11) < b).float().mean())
share.reject("a seed inside", "draws of its own", share_seeded)
share.reject("a seed afterwards", "draws of its own", share_seeds_the_next)
share.reject("queries crossed with keys", "its own query and its own keys|near", share_crossed)
share.reject(
    "always a little more",
    "off by|near",
    lambda d, b: share_of(scores_of(d), d, b + 0.007 * (0.15 < b < 1)),
)
share.reject(
    "fewer draws of wide vectors",
    "1/819",
    lambda d, b: share_of(scores_of(d, draws=min(2_000, 2**22 // (10 * d))), d, b),
)
share.reject("bins of 0.05", "near", lambda d, b: share_of(scores_of(d), d, int(b * 20) / 20))
share.reject(
    "bins of 0.01", "off by|near", lambda d, b: share_of(scores_of(d), d, int(b * 100) / 100)
)
share.reject(
    "half of the draws repeated",
    "1/1000",
    lambda d, b: share_of(scores_of(d, draws=1_000).repeat(2, 1), d, b),
)
share.reject("rounded", "1/100", lambda d, b: round(share_of(scores_of(d), d, b), 2))
share.reject(
    "one query for all draws",
    "near",
    lambda d, b: share_of(torch.randn(2_000, 10, d) @ torch.randn(d), d, b),
)
share.reject(
    "the same keys in all draws",
    "near",
    lambda d, b: share_of(torch.randn(2_000, d) @ torch.randn(d, 10), d, b),
)
share.reject(
    "normal numbers of any width", "near", lambda d, b: share_of(torch.randn(2_000, 10), 1, b)
)
share.reject(
    "a query for each key",
    "near",
    lambda d, b: share_of((torch.randn(2_000, 10, d) * torch.randn(2_000, 10, d)).sum(2), d, b),
)
share.reject(
    "root rounded down",
    "near",
    lambda d, b: (peaks_of(d, 1 / math.isqrt(d)) < b).float().mean(),
)
share.reject(
    "root of d_k + 1", "near|off by", lambda d, b: (peaks_of(d, (d + 1) ** -0.5) < b).float().mean()
)
share.reject(
    "a bound for two weights",
    "near",
    lambda d, b: ((scores_of(d) * d**-0.5).softmax(1).topk(2).values.sum(1) < b).float().mean(),
)
share.reject(
    "too generous at the end",
    "cannot all",
    lambda d, b: max(0.001, share_of(scores_of(d), d, b)),
)
share.reject(
    "never quite all", "no weight is over", lambda d, b: min(0.999, share_of(scores_of(d), d, b))
)

# How often all four widths pass
all_four = Exercise(scaling.all_four)
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    runs = torch.stack([peaks_of(d_k, draws=20_000) < 0.30 for d_k in (8, 64, 512, 512)])

all_four.accept("as a fraction", Fraction(8, 100))
all_four.accept("a counted share", runs.all(dim=0).float().mean().item())
all_four.accept("as a tensor", runs.all(dim=0).double().mean())
all_four.accept("as a numpy number", np.float64(0.083))
all_four.accept("product of the four", math.prod(runs.float().mean(dim=1).tolist()))

all_four.reject("percent", "percent", 8.3)
all_four.reject("a count", "count", int(runs.all(dim=0).sum()))
all_four.reject("one width", "one width", runs[1].float().mean().item())
all_four.reject("mean over widths", "one width", runs.float().mean().item())
all_four.reject("runs that fail", "runs that fail", 1 - runs.all(dim=0).float().mean().item())
all_four.reject("at least one passes", "passes if", runs.any(dim=0).float().mean().item())
all_four.reject("three widths", "passes if", runs[:3].all(dim=0).float().mean().item())
all_four.reject("two widths", "at two widths", runs[:2].all(dim=0).float().mean().item())
all_four.reject("true of no run", "passes if", 0.0)
all_four.reject("yes", "number", True)
all_four.reject("a text", "number", "0.08")
all_four.reject("four shares", "number", runs.float().mean(dim=1))
all_four.reject("a list of runs", "number", runs.all(dim=0).tolist())
all_four.reject("no number", "NaN", float("nan"))
all_four.reject("negative", "between 0 and 1", -0.08)

# What an answer may exploit: a wide tolerance.
all_four.reject("width 512 stands for all", "20,000", 0.0718)
all_four.reject("width 8 stands for all", "20,000", 0.1042)
all_four.reject("counted in 100 runs", "20,000", 0.09)
all_four.reject("widths that share their numbers", "20,000", 0.088)
all_four.reject("eleven keys, all four", "passes if", 0.123)
all_four.reject("nine keys, all four", "passes if", 0.0443)
