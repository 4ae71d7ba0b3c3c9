"""Answers to lab 1."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F

from labkit.labs.scaling import check as scaling
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


def product(queries, keys):
    return torch.einsum("bd,bkd->bk", queries, keys)


def drawn(d_k, keys, draws):
    return product(*draw_with(None, d_k, keys, draws))


def seeded(d_k, keys, draws):
    torch.manual_seed(42)
    return drawn(d_k, keys, draws)


draw.reject(
    "uniform entries",
    "mean.*evenly between",
    lambda d, k, b: product(torch.rand(b, d), torch.rand(b, k, d)),
)
draw.reject(
    "scaled already",
    "variance .*divided by √d_k already.*or the vectors of a kind had one length",
    lambda d, k, b: drawn(d, k, b) / d**0.5,
)
draw.reject(
    "mean of the products instead of the sum",
    "variance .*averaged",
    lambda d, k, b: (torch.randn(b, 1, d) * torch.randn(b, k, d)).mean(dim=-1),
)
draw.reject(
    "normal numbers without vectors", "without a dot product", lambda d, k, b: torch.randn(b, k)
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
    "one set of keys, shuffled",
    "keys of its own.*one set of keys",
    lambda d, k, b: (
        torch.randn(k, d)[torch.rand(b, k).argsort(dim=1)] @ torch.randn(b, d, 1)
    ).squeeze(-1),
)
draw.reject(
    "the same keys in two draws",
    "keys of its own.*keys of the same number go up and down",
    lambda d, k, b: product(
        torch.randn(b, d), torch.randn((b + 1) // 2, k, d).repeat_interleave(2, 0)[:b]
    ),
)
draw.reject(
    "vectors of one length",
    "vectors of a kind had one length",
    lambda d, k, b: product(
        F.normalize(torch.randn(b, d), dim=-1) * d**0.5, F.normalize(torch.randn(b, k, d), dim=-1)
    ),
)
draw.reject(
    "signs",
    "or all queries one length",
    lambda d, k, b: product(torch.randn(b, d).sign(), torch.randn(b, k, d).sign()),
)
draw.reject(
    "sorted rows", "0 % are, as if each row were", lambda d, k, b: drawn(d, k, b).sort(1)[0]
)


def query_among_keys(d_k, keys, draws):
    vectors = torch.randn(draws, keys, d_k)
    return product(vectors[:, 0], vectors)


def twins(d_k, keys, draws):
    q, k = draw_with(None, d_k, keys, draws)
    return product(q, torch.cat([k[:, : keys - 1], k[:, :1]], dim=1))


draw.reject("the query is a key", "as if the query were one of the keys", query_among_keys)
draw.reject(
    "reshaped, not transposed",
    "a row mixes scores of several queries, as if.*reshaped",
    lambda d, k, b: drawn(d, k, b).T.reshape(b, k),
)
draw.reject("two keys alike", "scores of keys 0 and 11 go together", twins)
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
draw.reject("a seed inside", "leave the seed", seeded)
draw.reject(
    "uniform entries of variance 1",
    "entries of keys are normal.*within a draw.*it is [12].*another distribution, with fewer",
    lambda d, k, b: 12 * product(torch.rand(b, d) - 0.5, torch.rand(b, k, d) - 0.5),
)


def triangular(*shape):
    return (torch.rand(shape) + torch.rand(shape) - 1) * 6**0.5


def laplace(*shape):
    return torch.distributions.Laplace(0.0, 0.5**0.5).sample(shape)


draw.reject(
    "triangular entries",
    "entries of keys are normal.*with fewer|cut off",
    lambda d, k, b: product(triangular(b, d), triangular(b, k, d)),
)
draw.reject(
    "triangular keys",
    "entries of keys are normal.*with fewer",
    lambda d, k, b: product(torch.randn(b, d), triangular(b, k, d)),
)
draw.reject(
    "triangular queries",
    "entries of queries are normal.*with fewer",
    lambda d, k, b: product(triangular(b, d), torch.randn(b, k, d)),
)
draw.reject(
    "keys with more far from 0",
    "entries of keys are normal.*with more",
    lambda d, k, b: product(torch.randn(b, d), laplace(b, k, d)),
)
draw.reject(
    "one draw repeated",
    "one draw were repeated",
    lambda d, k, b: (torch.randn(k, d) @ torch.randn(d)).expand(b, k),
)


def rounded(digits):
    return lambda d, k, b: product(
        torch.randn(b, d).round(decimals=digits), torch.randn(b, k, d).round(decimals=digits)
    )


draw.reject("rounded entries", "exactly 0; are entries rounded", rounded(0))
draw.reject("entries of two digits", "exactly 0; are entries rounded", rounded(2))
draw.reject(
    "lengths of 1 squeezed away",
    r"shape \(1, 5\)",
    lambda d, k, b: (torch.randn(b, k, d) @ torch.randn(b, d, 1)).squeeze(),
)


def in_turn(pool, again):
    return lambda d, k, b: product(again(torch.randn(pool, d), b), torch.randn(b, k, d))


draw.reject("a hundred queries in turn", "lie 100 draws apart.*used again and again", in_turn(
    100, lambda q, b: q[torch.arange(b) % 100]
))  # fmt: skip
draw.reject("each query for 25 draws", "of several draws go up and down", in_turn(
    300, lambda q, b: q.repeat_interleave(25, dim=0)[:b]
))  # fmt: skip
draw.reject("cut off at 2.5", "were cut off or drawn again", lambda d, k, b: product(
    torch.randn(b, d).clamp(-2.5, 2.5), torch.randn(b, k, d).clamp(-2.5, 2.5)
))  # fmt: skip


def within(shape):
    """Draw again what is more than 2.5 from 0."""
    return torch.nn.init.trunc_normal_(torch.empty(shape), a=-2.5, b=2.5)


draw.reject("drawn again beyond 2.5", "another distribution|drawn again$", lambda d, k, b: (
    product(within((b, d)), within((b, k, d)))
))  # fmt: skip
draw.reject(
    "numpy without a seed",
    "same torch.manual_seed",
    lambda d, k, b: torch.from_numpy(by_numpy(None, d, k, b)),
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

weights.reject("over the columns", "row sums to 1", lambda s, c: torch.softmax(s * c, dim=0))
weights.reject(
    "over everything",
    "row sums to 1",
    lambda s, c: torch.softmax((s * c).flatten(), dim=0).view_as(s),
)
weights.reject("not normalised", "row sums to 1", lambda s, c: (s * c).exp())
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
    "no care for large scores",
    "NaN; as if scores were not shifted",
    lambda s, c: (s * c).exp() / (s * c).exp().sum(dim=1, keepdim=True),
)
weights.reject(
    "NaN mended",
    "1/2, 1/2, 0",
    lambda s, c: ((s * c).exp() / (s * c).exp().sum(dim=1, keepdim=True)).nan_to_num(),
)
weights.reject(
    "no scale taken for none given",
    "scale 0",
    lambda s, c: torch.softmax(s * (c or 1.0), dim=1),
)
weights.reject("scores over their sum", "ratio", lambda s, c: s / s.sum(dim=1, keepdim=True))


def shifted_by(shift):
    def answer(scores, scale):
        e = (scores * scale - shift(scores * scale)).exp()
        return e / e.sum(dim=1, keepdim=True)

    return answer


weights.reject(
    "shifted by the largest score of all",
    "NaN; as if all rows.*largest score of all",
    shifted_by(lambda s: s.max()),
)
weights.reject(
    "shifted by the largest size",
    "NaN; as if rows were shifted by their score of largest size",
    shifted_by(lambda s: s.abs().amax(1, keepdim=True)),
)
weights.reject(
    "rounded", "are they rounded", lambda s, c: F.softmax(s * c, dim=1).round(decimals=4)
)
weights.reject(
    "in half precision", "half precision", lambda s, c: F.softmax((s * c).half(), 1).float()
)
weights.reject(
    "shifted before scaling",
    "NaN; as if rows.*before scaling",
    lambda s, c: shifted_by(lambda scaled: s.amax(1, keepdim=True))(s, c),
)
weights.reject(
    "scores of both signs cut off",
    r"row \d, column \d \(both count.*score lay 26 below.*, and not \d{3};.*scores cut off",
    lambda s, c: F.softmax((s * c).clamp(-40, 40), 1),
)
weights.reject(
    "large scores cut off",
    "the softmax of each row.*are scores cut off",
    lambda s, c: F.softmax((s * c).clamp(max=80), 1),
)


def with_a_little_more(scores, scale):
    e = (scores * scale - (scores * scale).amax(dim=1, keepdim=True)).exp() + 1e-9
    return e / e.sum(dim=1, keepdim=True)


weights.reject("a little added", "or is a small number added", with_a_little_more)
weights.reject(
    "axes of length 1 squeezed away", r"shape \(1, 3\)", lambda s, c: F.softmax(s * c, 1).squeeze()
)
weights.reject(
    "input scaled in place", "left as they were", lambda s, c: F.softmax(s.mul_(c), dim=1)
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


peak = lambda s, c: F.softmax(s * c, dim=1).amax(dim=1)  # noqa: E731
report.reject("swapped", "changed places", lambda s, c: (peak(s, c), (s * c).std(dim=1)))
report.reject("deviation before scaling", "before scaling", lambda s, c: (s.std(dim=1), peak(s, c)))
report.reject("variance", "the variance", lambda s, c: ((s * c).var(dim=1), peak(s, c)))
report.reject(
    "divisor n", "divisor keys", lambda s, c: ((s * c).std(dim=1, correction=0), peak(s, c))
)
report.reject(
    "a difference of squares",
    "it cancels: subtract the mean first",
    lambda s, c: (
        ((s * c).square().mean(1) - (s * c).mean(1) ** 2).clamp(min=0).sqrt()
        * (s.shape[1] / (s.shape[1] - 1)) ** 0.5
        * (s.std(dim=1) > 0),
        peak(s, c),
    ),
)
report.reject(
    "third row off",
    "equal, so its deviation is 0",
    lambda s, c: ((s * c).std(dim=1) + 0.1, peak(s, c)),
)
report.reject(
    "scaled twice, both",
    "scaled twice",
    lambda s, c: ((s * c * c).std(dim=1), peak(s, c * c)),
)
report.reject(
    "scaled twice, the weight",
    "the scale applied twice",
    lambda s, c: ((s * c).std(dim=1), peak(s, c * c)),
)
report.reject(
    "the first weight",
    "first weight of each row",
    lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=1)[:, 0]),
)
report.reject(
    "deviation of the weights",
    "deviation of the weights",
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
    "softmax over the draws",
    "largest weight",
    lambda s, c: ((s * c).std(dim=1), F.softmax(s * c, dim=0).amax(dim=1)),
)
report.reject(
    "values and places",
    "largest is a tensor.*came values and indices",
    lambda s, c: ((s * c).std(1), F.softmax(s * c, 1).max(1)),
)


report.reject(
    "an axis too many squeezed",
    r"shape \(1,\)",
    lambda s, c: ((s * c).std(dim=1).squeeze(), peak(s, c).squeeze()),
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


def closed_form_in_float32(p):
    a = p.square().sum(1)
    return (a - 2 * p.pow(3).sum(1) + a**2).relu().sqrt()


norm.accept("the matrix", by_matrix)
norm.accept("entry by entry", by_entries)
norm.accept("autograd", by_autograd)
norm.accept("closed form in float32, kept from below 0", closed_form_in_float32)


def diagonal(p):
    return p * (1 - p)


def outer(p):
    return p[:, :, None] * p[:, None, :]


norm.reject("the square", "norm's square", lambda p: by_matrix(p) ** 2)
norm.reject("diagonal without the product", "pull on each other", lambda p: p.norm(dim=1))
norm.reject("diagonal only", "diagonal alone", lambda p: diagonal(p).norm(dim=1))
norm.reject(
    "half of the pairs",
    "each pair once",
    lambda p: (torch.diag_embed(p) - outer(p)).tril().norm(dim=(1, 2)),
)
norm.reject("first row only", "the first row alone", lambda p: by_matrix(p)[:1].expand(len(p)))
norm.reject("the sum of p (1 - p)", "trace", lambda p: diagonal(p).sum(dim=1))
norm.reject("the product without the diagonal", "a part of it", lambda p: outer(p).norm(dim=(1, 2)))
norm.reject(
    "plus instead of minus",
    "a sign is wrong",
    lambda p: (torch.diag_embed(p) + outer(p)).norm(dim=(1, 2)),
)
norm.reject(
    "sizes added up",
    "sizes, not squares",
    lambda p: (torch.diag_embed(p) - outer(p)).abs().sum(dim=(1, 2)),
)
norm.reject(
    "spectral norm",
    "largest singular value",
    lambda p: torch.linalg.matrix_norm(torch.diag_embed(p) - outer(p), ord=2),
)
norm.reject(
    "nuclear norm",
    "nuclear norm",
    lambda p: torch.linalg.matrix_norm(torch.diag_embed(p) - outer(p), ord="nuc"),
)
norm.reject(
    "p_i p_i by a broadcast",
    "axes it broadcasts",
    lambda p: (torch.diag_embed(p) - p[:, :, None] * p[:, :, None]).norm(dim=(1, 2)),
)
norm.reject(
    "ones on the diagonal",
    "ones on the diagonal",
    lambda p: (torch.eye(p.shape[1]) - outer(p)).norm(dim=(1, 2)),
)
norm.reject(
    "mean of the squares",
    "not of their sum",
    lambda p: (torch.diag_embed(p) - outer(p)).square().mean(dim=(1, 2)).sqrt(),
)
norm.reject("one norm for all rows", "shape", lambda p: (torch.diag_embed(p) - p.T @ p).norm())
norm.reject(
    "rows mixed",
    "the norms are",
    lambda p: (torch.diag_embed(p) - p.mT @ p / len(p)).norm(dim=(1, 2)),
)
norm.reject(
    "the matrix itself", "shape", lambda p: torch.diag_embed(p) - p[:, :, None] * p[:, None]
)


norm.reject(
    "closed form that cancels",
    r"are NaN, first for row \d+, whose weights are 0.99.*a root taken of a number below 0",
    lambda p: (p.square().sum(1) - 2 * p.pow(3).sum(1) + p.square().sum(1) ** 2).sqrt(),
)
norm.reject("weights taken for scores", "weights already", lambda p: by_matrix(p.softmax(dim=1)))
norm.reject("one row squeezed", r"shape \(1,\)", lambda p: by_matrix(p).squeeze())
norm.reject("weights kept off 0", "nothing on", lambda p: by_matrix(p.clamp(min=0.01)))
norm.reject(
    "nearly saturated taken for saturated",
    "whatever",
    lambda p: by_matrix(p) * (p.amax(dim=1) < 0.8),
)
norm.reject("rounded", "the norms are", lambda p: by_matrix(p).mul(100).round() / 100)


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

share.reject("percent", "in percent", lambda d, b: 100 * (peaks_of(d) < b).float().mean())
share.reject("count", "count", lambda d, b: int((peaks_of(d) < b).sum()))
share.reject("the complement", "not under", lambda d, b: (peaks_of(d) >= b).float().mean())
share.reject("no scale", "without the scale", lambda d, b: (peaks_of(d, 1.0) < b).float().mean())
share.reject(
    "divided by d_k", "with the scale 1/d_k", lambda d, b: (peaks_of(d, 1 / d) < b).float().mean()
)
share.reject("one draw", "four more calls", lambda d, b: float(peaks_of(d, draws=1)[0] < b))
share.reject("mean of the largest", "near", lambda d, b: peaks_of(d).mean())
share.reject("is the mean under?", "number", lambda d, b: bool(peaks_of(d).mean() < b))
for keys in (9, 11):
    share.reject(
        f"{keys} keys",
        f"the share of draws with {keys} keys",
        lambda d, b, keys=keys: (peaks_of(d, keys=keys) < b).float().mean(),
    )
share.reject(
    "the root cut off",
    "√d_k made a whole number",
    lambda d, b: (peaks_of(d, 1 / int(d**0.5)) < b).float().mean(),
)
share.reject(
    "one scale for all", "the scale 1/8", lambda d, b: (peaks_of(d, 1 / 8) < b).float().mean()
)
share.reject(
    "deviation under the bound",
    "of draws whose deviation",
    lambda d, b: ((scores_of(d) / d**0.5).std(dim=1) < b).float().mean(),
)
share.reject(
    "first weight",
    "or one key's",
    lambda d, b: ((scores_of(d) * d**-0.5).softmax(1)[:, 0] < b).float().mean(),
)
share.reject(
    "smallest weight",
    "and is it the largest weight",
    lambda d, b: ((scores_of(d) * d**-0.5).softmax(1).amin(1) < b).float().mean(),
)
share.reject(
    "bound not used", "under 0.3, whatever", lambda d, b: (peaks_of(d) < 0.30).float().mean()
)
share.reject("width not used", "near", lambda d, b: (peaks_of(64) < b).float().mean())
share.reject(
    "all weights, not the largest",
    "share of all weights, or one key.s, that are under it",
    lambda d, b: ((scores_of(d) * d**-0.5).softmax(1) < b).float().mean(),
)
share.reject("the draws themselves", "number", lambda d, b: peaks_of(d) < b)


def share_of(scores, d_k, bound):
    return (F.softmax(scores / d_k**0.5, dim=1).amax(dim=1) < bound).float().mean().item()


def share_seeded(d_k, bound):
    torch.manual_seed(1)
    return share_of(scores_of(d_k), d_k, bound)


share.reject(
    "keys and draws exchanged",
    "each softmax run over the 10 keys of one draw, not over more",
    lambda d, b: (peaks_of(d, draws=10, keys=2_000) < b).float().mean(),
)
share.reject(
    "softmax over the draws",
    "run over the 10 keys of one draw, not over more or over the draws",
    lambda d, b: (F.softmax(scores_of(d) * d**-0.5, 0).amax(1) < b).float().mean(),
)


def share_of_one(d_k, bound, queries, owners):
    q, k = torch.randn(queries, d_k), torch.randn(owners, 10, d_k)
    return share_of((k @ q[:, :, None])[..., 0].expand(2_000, 10), d_k, bound)


share.reject("one query", "share a query", lambda d, b: share_of_one(d, b, 1, 2_000))
share.reject("shared keys", "share a query", lambda d, b: share_of_one(d, b, 2_000, 1))
share.reject(
    "200 draws", "near|independent draws", lambda d, b: (peaks_of(d, draws=200) < b).float().mean()
)
share.reject("a seed inside", "draws of its own", share_seeded)

share.reject(
    "rounded to tenths",
    "are they rounded",
    lambda d, b: round((peaks_of(d) < b).float().mean().item(), 1),
)

# How often all four widths pass
all_four = Exercise(scaling.all_four)
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    runs = torch.stack([peaks_of(d_k, draws=20_000) < 0.30 for d_k in (8, 64, 512, 512)])

all_four.accept("as a fraction", Fraction(8, 100))
all_four.accept("a counted share", runs.all(dim=0).float().mean().item())
all_four.accept("as a numpy number", np.float64(0.083))
all_four.accept("as far below the truth as chance may put it", 0.0737)
all_four.accept("as far above it", 0.0854)
all_four.accept("product of the four", math.prod(runs.float().mean(dim=1).tolist()))

all_four.reject("percent", "percent", 8.3)
all_four.reject("a count", "count", int(runs.all(dim=0).sum()))
all_four.reject("one width", "one width", runs[1].float().mean().item())
all_four.reject("mean over widths", "one width", runs.float().mean().item())
all_four.reject("runs that fail", "runs that fail", 1 - runs.all(dim=0).float().mean().item())
all_four.reject("at least one passes", "passes if", runs.any(dim=0).float().mean().item())
all_four.reject("three widths", "passes if", runs[:3].all(dim=0).float().mean().item())
all_four.reject("yes", "number", True)
all_four.reject("four shares", "number", runs.float().mean(dim=1))

all_four.reject("the first width to the fourth", r"the first does\Z", 0.1037)
all_four.reject("two widths", "pass at two widths", runs[:2].all(dim=0).float().mean().item())
all_four.reject(
    "none passes", r"fail at all four widths\Z", (1 - runs[1].float().mean().item()) ** 4
)
all_four.reject("a half to the fourth", "half of the draws", 0.5**4)
all_four.reject("counted in 100 runs", "25,000", 0.09)
all_four.reject("widths that share their numbers", "25,000", 0.088)
all_four.reject("rounded shares multiplied", "if you multiplied rounded shares", 0.55**4)
all_four.reject("no divisor", "without the scale", 0.0)
all_four.reject("divided by d_k", "with the scale 1/d_k", 0.994)
all_four.reject("the first width squared", "first width twice", runs[0].float().mean().item() ** 2)
