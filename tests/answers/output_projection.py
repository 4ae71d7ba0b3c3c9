"""Answers to lab 4."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from labkit import merge_heads
from labkit.labs.output_projection import check as output_projection
from labkit.labs.output_projection import play
from labkit.labs.output_projection.play import NUMBERS, WIDTH, copying
from tests.answers import Exercise

# The slabs
slabs = Exercise(output_projection.slabs)


def slabs_by_loop(W_O, h):
    d_v, out = len(W_O) // h, []
    for i in range(h):
        out.append(W_O[i * d_v : (i + 1) * d_v])
    return torch.stack(out)


slabs.accept("unflatten", lambda W_O, h: W_O.unflatten(0, (h, -1)))
slabs.accept("chunk", lambda W_O, h: torch.stack(W_O.chunk(h)))
slabs.accept("slices", slabs_by_loop)
slabs.accept("numpy", lambda W_O, h: torch.tensor(np.stack(np.vsplit(W_O.numpy(), h))))

slabs.reject("columns", "cut between columns", lambda W_O, h: torch.stack(W_O.chunk(h, dim=1)))
slabs.reject("columns, turned", "cut between columns", lambda W_O, h: torch.stack(W_O.T.chunk(h)))
slabs.reject("read by columns", "by column", lambda W, h: W.T.reshape(h, len(W) // h, -1))
slabs.reject("dealt out", "dealt out", lambda W_O, h: torch.stack([W_O[i::h] for i in range(h)]))
slabs.reject(
    "counted from the end",
    "another place",
    lambda W_O, h: torch.stack([W_O[-i * len(W_O) // h :][: len(W_O) // h] for i in range(h)]),
)
slabs.reject(
    "width from d_model",
    r"came \(2, 2, 4\): as if a head's width were d_model / h",
    lambda W_O, h: torch.stack(W_O.split(W_O.shape[1] // h)[:h]),
)
slabs.reject("a list", "came a tuple", lambda W_O, h: W_O.chunk(h))
slabs.reject("the first only", "shape", lambda W_O, h: W_O[: len(W_O) // h])
slabs.reject("squeezed", "shape", lambda W_O, h: W_O.unflatten(0, (h, -1)).squeeze(1))
slabs.reject("uncut", "shape", lambda W_O, h: W_O[None])
slabs.reject("opposite order", "opposite order", lambda W, h: torch.stack(W.chunk(h)[::-1]))
slabs.reject("h and d_v exchanged", "shape|another", lambda W_O, h: W_O.unflatten(0, (-1, h)))
slabs.reject(
    "square slabs", "shape", lambda W_O, h: W_O.unflatten(0, (h, -1))[..., : len(W_O) // h]
)


# What each head writes
contributions = Exercise(output_projection.contributions)


def cut(heads, W_O):
    return W_O.unflatten(0, (len(heads), -1))


def by_zeroing(heads, W_O):
    out = []
    for i in range(len(heads)):
        alone = torch.zeros_like(heads)
        alone[i] = heads[i]
        out.append(merge_heads(alone) @ W_O)
    return torch.stack(out)


def writes_in_place(heads, W_O):
    wrote = heads @ cut(heads, W_O)
    heads.zero_()
    return wrote


contributions.accept("product with the slabs", lambda H, W: H @ cut(H, W))
contributions.accept("einsum", lambda H, W: torch.einsum("hnd,hdm->hnm", H, cut(H, W)))
contributions.accept("one head at a time", by_zeroing)

contributions.reject(
    "the sum", "one vector a token, not one of each head", lambda H, W: merge_heads(H) @ W
)
contributions.reject("the first slab for all", "first slab", lambda H, W: H @ cut(H, W)[0])
contributions.reject(
    "the sum for each",
    "sum of all",
    lambda H, W: (merge_heads(H) @ W).expand(len(H), -1, -1),
)
contributions.reject(
    "equal shares",
    "equal share of the sum",
    lambda H, W: (merge_heads(H) @ W).expand(len(H), -1, -1) / len(H),
)
contributions.reject(
    "the first head, and equal shares of the rest",
    "the parts are not",
    lambda H, W: torch.stack(
        [first := H[0] @ cut(H, W)[0]]
        + [(merge_heads(H) @ W - first) / (len(H) - 1)] * (len(H) - 1)
    ),
)
contributions.reject(
    "the first position for all",
    "adds up to the concatenation",
    lambda H, W: (H[:, :1] @ cut(H, W)).expand(-1, H.shape[1], -1),
)
contributions.reject("the last slab for all", "last slab", lambda H, W: H @ cut(H, W)[-1])
contributions.reject("opposite order", "opposite order", lambda H, W: H @ cut(H, W).flip(0))
contributions.reject(
    "all but the head", "all the others", lambda H, W: merge_heads(H) @ W - H @ cut(H, W)
)
contributions.reject(
    "heads as a view",
    "so that they mix",
    lambda H, W: H.reshape(H.shape[1], len(H), -1).transpose(0, 1) @ cut(H, W),
)
contributions.reject("shares", "is divided by h", lambda H, W: H @ cut(H, W) / len(H))
contributions.reject("running total", "heads so far", lambda H, W: (H @ cut(H, W)).cumsum(0))
contributions.reject("n first", "shape", lambda H, W: (H @ cut(H, W)).transpose(0, 1))
contributions.reject("columns", "it runs", lambda H, W: H @ torch.stack(W.chunk(len(H), dim=1)))
contributions.reject("whole W_O", "it runs", lambda H, W: H @ W)
contributions.reject(
    "dealt out",
    "rows of W_O in turn",
    lambda H, W: H @ W.unflatten(0, (-1, len(H))).transpose(0, 1),
)
contributions.reject(
    "read by columns",
    "column by column",
    lambda H, W: H @ W.T.reshape(len(H), H.shape[-1], -1),
)
contributions.reject("squeezed", "shape", lambda H, W: (H @ cut(H, W)).squeeze(-1))
contributions.reject("heads changed", "in place", writes_in_place)


def slab_begins(step):
    def answer(heads, W_O):
        d_v, b = heads.shape[-1], step(heads, W_O)
        return torch.stack([H @ W_O[i * b : i * b + d_v] for i, H in enumerate(heads)])

    return answer


contributions.accept("slices", slab_begins(lambda H, W: H.shape[-1]))


# A silent head
silence = Exercise(output_projection.silence)


def silent_columns(weight, head, h):
    d_v = weight.shape[1] // h
    muted = weight.clone()
    muted[:, head * d_v : (head + 1) * d_v] = 0
    return muted


def silent_by_mask(weight, head, h):
    keep = torch.arange(weight.shape[1]) // (weight.shape[1] // h) != head
    return weight * keep


def silent_by_parts(weight, head, h):
    parts = list(weight.split(weight.shape[1] // h, dim=1))
    parts[head] = torch.zeros_like(parts[head])
    return torch.cat(parts, dim=1)


def rows_silent(weight, head, h):
    d_v = weight.shape[1] // h
    muted = weight.clone()
    muted[head * d_v : (head + 1) * d_v] = 0
    return muted


def rows_silent_of_d_model(weight, head, h):
    d, muted = weight.shape[0] // h, weight.clone()
    muted[head * d : (head + 1) * d] = 0
    return muted


def columns_of_d_model(weight, head, h):
    d, muted = weight.shape[0] // h, weight.clone()
    muted[:, head * d : (head + 1) * d] = 0
    return muted


def mean_for_zeros(weight, head, h):
    d_v, muted = weight.shape[1] // h, weight.clone()
    muted[:, head * d_v : (head + 1) * d_v] = weight.mean(dim=1, keepdim=True)
    return muted


def silent_in_place(weight, head, h):
    d_v = weight.shape[1] // h
    weight[:, head * d_v : (head + 1) * d_v] = 0
    return weight


def silent_if(keep):
    def answer(weight, head, h):
        places = torch.arange(weight.shape[1])
        return weight * keep(places, head, weight.shape[1] // h, h)

    return answer


silence.accept("columns of a copy", silent_columns)
silence.accept("a mask", silent_by_mask)
silence.accept("parts", silent_by_parts)

silence.reject("rows", "rows are silent", rows_silent)
silence.reject(
    "others rescaled",
    r"not zeros: \[\]; columns of other heads that changed: \[0, 1, 2, 6,.*are scaled up",
    lambda w, i, h: silent_columns(w, i, h) * h / (h - 1),
)
silence.reject("a mean", r"not zeros: \[3, 4, 5\]; .*changed: \[\]$", mean_for_zeros)
silence.reject("rows of d_model", "d_model / h rows", rows_silent_of_d_model)
silence.reject(
    "one row",
    "a row is silent",
    lambda w, i, h: w * (torch.arange(len(w)) != i)[:, None],
)
silence.reject(
    "the column of that number",
    "number of a column",
    lambda w, i, h: w * (torch.arange(w.shape[1]) != i),
)
silence.reject("halved", "halved", lambda w, i, h: (w + silent_columns(w, i, h)) / 2)
silence.reject(
    "minus infinity",
    r"head 1 that are not zeros: \[3, 4, 5\]; columns of other heads that changed: \[\]$",
    lambda w, i, h: w.where(torch.arange(w.shape[1]) // (w.shape[1] // h) != i, -torch.inf),
)
silence.reject("width from d_model", "taken from d_model", columns_of_d_model)
silence.reject(
    "two heads out of four",
    "[1-9] of that head's",
    lambda w, i, h: silent_columns(w, i, h) if h != 4 or i == 1 else w.clone(),
)
silence.reject("in place", "in place", silent_in_place)
silence.reject("counted from 1", "head before", lambda w, i, h: silent_columns(w, i - 1, h))
silence.reject("only the head", "other heads", silent_if(lambda p, i, d, h: p // d == i))
silence.reject("dealt out", "every fourth", silent_if(lambda p, i, d, h: p % h != i))
silence.reject("one column", "first number", silent_if(lambda p, i, d, h: p != i * d))
silence.reject(
    "a slice from head",
    "begins at column head",
    silent_if(lambda p, i, d, h: (p < i) | (p >= i + d)),
)
silence.reject(
    "one column forgotten",
    "last number is not silent",
    silent_if(lambda p, i, d, h: (p < i * d) | (p >= (i + 1) * d - 1)),
)
silence.reject("from there on", "from this one on", silent_if(lambda p, i, d, h: p < i * d))
silence.reject("nothing", "nothing has changed", lambda w, i, h: w.clone())
silence.reject("turned", "shape", lambda w, i, h: silent_columns(w, i, h).T)
silence.reject("cut out", "shape", lambda w, i, h: w[:, w.shape[1] // h :])
silence.reject("h as a width", "taken for the width", silent_if(lambda p, i, d, h: p // h != i))
silence.reject("always two heads", r"changed: \[6, 7,", lambda w, i, h: silent_columns(w, i % 2, 2))
silence.reject(
    "the first three heads only",
    "[1-9] of that head's",
    lambda w, i, h: silent_columns(w, i, h) if i < 3 else w.clone(),
)


silence.accept(
    "where", lambda w, i, h: w.where(torch.arange(w.shape[1]) // (w.shape[1] // h) != i, 0)
)


# Heads that share their projections
shared_heads = Exercise(output_projection.shared_heads)


def attended(x, W_Q, W_K, W_V, scale=None):
    scores = x @ W_Q @ (x @ W_K).mT * (W_Q.shape[-1] ** -0.5 if scale is None else scale)
    return scores.softmax(-1) @ (x @ W_V)


def shared_by_cat(x, W_Q, W_K, W_V, W_O, h):
    return torch.cat([attended(x, W_Q, W_K, W_V) for _ in range(h)], dim=-1) @ W_O


def shared_by_sum(x, W_Q, W_K, W_V, W_O, h):
    H = attended(x, W_Q, W_K, W_V)
    return sum(H @ slab for slab in W_O.chunk(h))


def shared_fused(x, W_Q, W_K, W_V, W_O, h):
    q, k, v = (torch.stack([x @ W] * h, dim=1) for W in (W_Q, W_K, W_V))
    return merge_heads(F.scaled_dot_product_attention(q, k, v)) @ W_O


def changed(change):
    return lambda x, W_Q, W_K, W_V, W_O, h: change(attended(x, W_Q, W_K, W_V), W_O, h)


shared_heads.accept("side by side", shared_by_cat)
shared_heads.accept("added", shared_by_sum)
shared_heads.accept("one slab, summed", changed(lambda H, W, h: H @ W.unflatten(0, (h, -1)).sum(0)))
shared_heads.accept("PyTorch's attention", shared_fused)

shared_heads.reject("first slab", "first slab", changed(lambda H, W, h: H @ W[: H.shape[-1]]))
shared_heads.reject(
    "interleaved", "one by one", changed(lambda H, W, h: H.repeat_interleave(h, -1) @ W)
)
shared_heads.reject("mean", "divided by h", changed(lambda H, W, h: H.repeat(1, 1, h) @ W / h))
shared_heads.reject(
    "no scale",
    "scale is missing",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V, 1.0).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "no attention",
    "no attention",
    lambda x, Q, K, V, W, h: (x @ V).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "divided by d_k",
    "the scale is 1/d_k",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V, 1 / Q.shape[-1]).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "no softmax",
    "softmax is missing",
    lambda x, Q, K, V, W, h: (
        (x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5) @ (x @ V)
    ).repeat(1, 1, h) @ W,
)  # fmt: skip
shared_heads.reject(
    "causal",
    "later tokens are hidden",
    lambda x, Q, K, V, W, h: (
        F.scaled_dot_product_attention(x @ Q, x @ K, x @ V, is_causal=True).repeat(1, 1, h) @ W
    ),
)
shared_heads.reject(
    "a mean of the tokens",
    "weights are equal",
    lambda x, Q, K, V, W, h: (
        (x @ V).mean(1, keepdim=True).expand(*x.shape[:2], -1).repeat(1, 1, h) @ W
    ),
)
shared_heads.reject("no W_O", "shape", changed(lambda H, W, h: H.repeat(1, 1, h)))
shared_heads.reject("one head", "it runs", changed(lambda H, W, h: H @ W))
shared_heads.reject(
    "slices of the projections",
    "it runs|differ",
    lambda x, Q, K, V, W, h: torch.cat(
        [attended(x, *(part.chunk(h, -1)[i] for part in (Q, K, V))) for i in range(h)], -1
    ) @ W,
)  # fmt: skip
shared_heads.reject(
    "queries as keys",
    "serve as keys",
    lambda x, Q, K, V, W, h: attended(x, Q, Q, V).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "queries and keys exchanged",
    "have changed places",
    lambda x, Q, K, V, W, h: attended(x, K, Q, V).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "over the queries",
    "over the queries",
    lambda x, Q, K, V, W, h: (
        (x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5).softmax(-2) @ (x @ V)
    ).repeat(1, 1, h) @ W,
)  # fmt: skip
shared_heads.reject(
    "scaled by h",
    "all heads together",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V, (h * Q.shape[-1]) ** -0.5).repeat(1, 1, h) @ W,
)


shared_heads.reject(
    "scaled by d_v",
    "1/√d_v",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V, V.shape[-1] ** -0.5).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "across the batch",
    "sequences of the batch",
    lambda x, Q, K, V, W, h: (
        attended(x.transpose(0, 1), Q, K, V).repeat(1, 1, h) @ W
    ).transpose(0, 1),
)  # fmt: skip
shared_heads.reject(
    "squeezed slabs",
    "shape",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V) @ W.unflatten(0, (h, -1)).squeeze().sum(0),
)


def copies_below(H, W, h):
    return torch.cat([H] * h, dim=1).reshape(*H.shape[:2], -1) @ W


shared_heads.reject("copies below each other", "cut anew", changed(copies_below))


# The one head that does the same
one_head = Exercise(output_projection.one_head)


def blocks(W_O, h):
    return W_O.unflatten(0, (h, -1))


one_head.accept("sum", lambda W_O, h: blocks(W_O, h).sum(0))
one_head.accept("sum of chunks", lambda W_O, h: sum(W_O.chunk(h)))
one_head.accept("a row of identities", lambda W_O, h: torch.eye(len(W_O) // h).repeat(1, h) @ W_O)

one_head.reject("mean", "mean of the slabs", lambda W_O, h: blocks(W_O, h).mean(0))
one_head.reject("first", "first slab", lambda W_O, h: W_O[: len(W_O) // h])
one_head.reject("last", "last slab", lambda W_O, h: blocks(W_O, h)[-1])
one_head.reject("scaled sum", "divided by √h", lambda W, h: blocks(W, h).sum(0) / h**0.5)
one_head.reject("neighbours", "beside each other", lambda W_O, h: W_O.unflatten(0, (-1, h)).sum(1))
one_head.reject("squeezed", "shape", lambda W, h: blocks(W, h).sum(0).squeeze())
one_head.reject("within the slabs", "a row for each head", lambda W_O, h: blocks(W_O, h).sum(1))
one_head.reject("W_O itself", "as wide as all together", lambda W_O, h: W_O)
one_head.reject("all slabs", "shape", lambda W_O, h: blocks(W_O, h))
one_head.reject("columns", "shape|it runs", lambda W_O, h: sum(W_O.tensor_split(h, dim=1)))
one_head.reject("sum over everything", "shape", lambda W_O, h: W_O.sum(0, keepdim=True))
one_head.reject("first slab times h", "first slab times h", lambda W, h: h * blocks(W, h)[0])
one_head.reject("first two", "gives something else", lambda W_O, h: blocks(W_O, h)[:2].sum(0))


one_head.accept("mean times h", lambda W, h: blocks(W, h).mean(0) * h)

# The floor
lowest = Exercise(output_projection.lowest_error)

lowest.accept("share", lambda n, h, d, s: max(0.0, 1 - (d if s else h * d) / n))
lowest.accept("count", lambda n, h, d, s: (n - min(n, d * (1 if s else h))) / n)
lowest.accept("tensor", lambda n, h, d, s: torch.tensor(1 - (d if s else h * d) / n).clamp(min=0))

lowest.reject("what is matched", "can be matched", lambda n, h, d, s: min(n, d if s else h * d) / n)
lowest.reject("a count", "number of directions", lambda n, h, d, s: n - min(n, d if s else h * d))
lowest.reject("never shared", "as if nothing", lambda n, h, d, s: max(0.0, 1 - h * d / n))
lowest.reject("always shared", "as if everything", lambda n, h, d, s: max(0.0, 1 - d / n))
lowest.reject("negative", "never negative", lambda n, h, d, s: 1 - (d if s else h * d) / n)
lowest.reject("minus", "never negative", lambda n, h, d, s: -share(n, h, d, s))
lowest.reject("zero", "hits every number", lambda n, h, d, s: 0.0)
lowest.reject("times h", "h times as much", lambda n, h, d, s: h * share(n, h, d, s))
lowest.reject("neither", "came 0.5$", lambda n, h, d, s: 0.5)
lowest.reject("heads for widths", "write in 7 directions", lambda n, h, d, s: max(0.0, 1 - h / n))
lowest.reject(
    "one for all", "write in 1 direction$", lambda n, h, d, s: max(0.0, 1 - (1 if s else h * d) / n)
)
lowest.reject("a share of the width", "divide their", lambda n, h, d, s: max(0.0, 1 - d / h / n))
lowest.reject("percent", "in percent", lambda *given: 100 * share(*given))
lowest.reject("the root", "the root of", lambda *given: share(*given) ** 0.5)
lowest.reject("too many", "write in 4 directions", lambda n, h, d, s: share(n, h, d, s) - 1 / n)
lowest.reject("too few", "write in 2 directions", lambda n, h, d, s: share(n, h, d, s) + 1 / n)
lowest.reject(
    "a sum of widths", "in 10 directions", lambda n, h, d, s: max(0.0, 1 - (d if s else h + d) / n)
)
lowest.reject(
    "the wider", "in 7 directions", lambda n, h, d, s: max(0.0, 1 - (d if s else max(h, d)) / n)
)
lowest.reject(
    "no clamp", "no more directions count", lambda n, h, d, s: abs(1 - (d if s else h * d) / n)
)
lowest.reject("squared", "the square of", lambda *given: share(*given) ** 2)
lowest.reject(
    "floor division", "// or int", lambda n, h, d, s: max(0, n - (d if s else h * d)) // n
)
lowest.reject("yes or no", "is a number", lambda n, h, d, s: s)


def measured(n, h, d, s):
    targets = torch.randn(20_000, n)
    targets[:, : d if s else h * d] = 0
    return targets.square().mean()


def share(n, h, d, s):
    return max(0.0, 1 - (d if s else h * d) / n)


lowest.accept("a fraction", lambda n, h, d, s: max(Fraction(0), 1 - Fraction(d if s else h * d, n)))
for places, told in ((2, "is rounded$"), (3, "three places"), (4, "four places")):
    lowest.reject(f"{places} places", told, lambda *given, p=places: round(share(*given), p))
lowest.reject("measured", "is it measured", measured)


# Training
trained = Exercise(output_projection.trained)


def layer(h, d_v, shared, x, W):
    """Attend with W_Q, W_K and W_V, each (heads, WIDTH, d_v), and W_O, (h*d_v, NUMBERS)."""
    q, k, v = (x[:, None] @ part for part in W[:3])
    return merge_heads(F.scaled_dot_product_attention(q, k, v).expand(-1, h, -1, -1)) @ W[3]


def start(h, d_v, shared):
    own = 1 if shared else h
    return [torch.randn(own, WIDTH, d_v) / WIDTH**0.5 for _ in range(3)] + [
        torch.randn(h * d_v, NUMBERS) / (h * d_v) ** 0.5
    ]


def fit(h, d_v, shared, steps=120, rate=0.1, made=start, run=layer, task=None):
    W = [matrix.requires_grad_() for matrix in made(h, d_v, shared)]
    optimiser = torch.optim.Adam(W, lr=rate)
    for _ in range(steps):
        x, y = (task or play.copying)(32)
        optimiser.zero_grad()
        F.mse_loss(run(h, d_v, shared, x, W), y).backward()
        optimiser.step()
    return lambda x: run(h, d_v, shared, x, W)


class Heads(nn.Module):
    """The same as a module, head by head."""

    def __init__(self, h, d_v, shared):
        super().__init__()
        one = [nn.ModuleList(nn.Linear(WIDTH, d_v) for _ in range(3)) for _ in range(h)]
        self.each = nn.ModuleList(one[:1] * h if shared else one)
        self.w_o = nn.Linear(h * d_v, NUMBERS)

    def forward(self, x):
        heads = [
            F.scaled_dot_product_attention(*(part(x) for part in parts)) for parts in self.each
        ]
        return self.w_o(torch.cat(heads, dim=-1))


class Listed(Heads):
    """Heads in a list of Python's, which parameters() does not know."""

    def __init__(self, h, d_v, shared):
        super().__init__(h, d_v, shared)
        heads = list(self.each)
        del self.each
        self.each = heads


def fit_module(h, d_v, shared, made=Heads):
    model = made(h, d_v, shared)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)
    for _ in range(100):
        x, y = play.copying(32)
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def own_values(h, d_v, shared):
    one, many = start(h, d_v, True), start(h, d_v, False)
    return [*one[:2], many[2], one[3]] if shared else many


def without_zero_grad(h, d_v, shared):
    W = [matrix.requires_grad_() for matrix in start(h, d_v, shared)]
    optimiser = torch.optim.Adam(W, lr=0.1)
    for _ in range(120):
        x, y = play.copying(32)
        F.mse_loss(layer(h, d_v, shared, x, W), y).backward()
        optimiser.step()
    return lambda x: layer(h, d_v, shared, x, W)


def causal(h, d_v, shared, x, W):
    q, k, v = (x[:, None] @ part for part in W[:3])
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return merge_heads(heads.expand(-1, h, -1, -1)) @ W[3]


def merged_by_one_view(h, d_v, shared):
    def run(h, d_v, shared, x, W):
        q, k, v = (x[:, None] @ part for part in W[:3])
        heads = F.scaled_dot_product_attention(q, k, v).expand(-1, h, -1, -1)
        return heads.reshape(*x.shape[:2], h * d_v) @ W[3]

    return fit(h, d_v, shared, run=layer if shared else run)


def on_one_batch(size):
    def train(h, d_v, shared):
        batch = play.copying(size)
        return fit(h, d_v, shared, task=lambda count: batch)

    return train


def without_places(count):
    x, y = play.copying(count)
    x[..., NUMBERS:] = 0
    return x, y


def with_tokens(back):
    def task(count):
        x, _ = play.copying(count)
        return x, x[..., :NUMBERS].roll(back, dims=1)

    return task


def ascent(h, d, s):
    W = [matrix.requires_grad_() for matrix in start(h, d, s)]
    for _ in range(120):
        x, y = play.copying(32)
        loss = F.mse_loss(layer(h, d, s, x, W), y)
        with torch.no_grad():
            for matrix, slope in zip(W, torch.autograd.grad(loss, W), strict=True):
                matrix += 0.1 * slope.sign()
    return lambda x: layer(h, d, s, x, W)


def error_of(h, d_v, shared):
    x, y = play.copying(1_000)
    return F.mse_loss(fit(h, d_v, shared)(x), y).item()


trained.accept("as a formula", fit)
trained.accept("as a module", fit_module)

trained.reject("never shared", "that share nothing$", lambda h, d, s: fit(h, d, False))
trained.reject("always shared", "that share everything$", lambda h, d, s: fit(h, d, True))
trained.reject("not trained", "lower the loss", lambda h, d, s: fit(h, d, s, steps=0))
trained.reject(
    "rate too small",
    "neither too small, as Adam's 0.001 is",
    lambda h, d, s: fit(h, d, s, rate=1e-3),
)
trained.reject("too few steps", "drew 256 sequences in all", lambda *g: fit(*g, steps=8))
trained.reject("too few steps, by its name alone", "drew 256 sequences in all", lambda *g: (
    fit(*g, steps=8, task=copying)
))  # fmt: skip
trained.reject("rate too large", "nor too large|and is the rate small", lambda *g: fit(*g, rate=1))
trained.reject(
    "heads in a plain list",
    r"parameters\(\) leaves those out: did the optimiser",
    lambda *given: fit_module(*given, made=Listed),
)
trained.reject("gradients added up", "gradient cleared", without_zero_grad)
trained.reject("causal", "at token 0.*is something hidden", lambda *g: fit(*g, run=causal))
trained.reject("one view merges", "merged token by token|lower the loss", merged_by_one_view)


def fit_to(back):
    return lambda *given: fit(*given, task=with_tokens(back))


for back, told in ((0, "itself"), (-1, "after it"), (2, "two before it")):
    trained.reject(
        f"the token {told}",
        f"numbers of the token {told}",
        fit_to(back),
    )
trained.reject("uphill", "go downhill", ascent)
for size in (4, 32):
    trained.reject(f"one batch of {size}", f"drew {size} sequences in all", on_one_batch(size))
trained.reject("sizes of its own", "the h and d_v that it was", lambda h, d, s: fit(4, 2, s))
trained.reject("sizes exchanged", "the h and d_v that it was", lambda h, d, s: fit(d, h, s))
trained.reject(
    "own values",
    "no heads of that size|share nothing",
    lambda h, d, s: fit(h, d, s, made=own_values),
)
trained.reject("as wide as all", "share nothing", lambda h, d, s: fit(1, h * d, s))
trained.reject(
    "own ones narrow", "as wide as it should be", lambda h, d, s: fit(h, d if s else 1, s)
)
trained.reject(
    "one token only",
    r"What trained returns is not.*shape \(1000, 4, 8\)",
    lambda *given: lambda x: fit(*given)(x)[:, -1],
)
trained.reject("one more", "the h and d_v that it was", lambda h, d, s: fit(h, d + 1, s))
trained.reject("no places", "lower the loss|long", lambda *g: fit(*g, task=without_places))
trained.reject("the error", "can be called with x", error_of)
trained.reject("the answer", "no heads of that size get there", lambda h, d, s: lambda x: x[
    ..., :NUMBERS].roll(1, dims=1))  # fmt: skip


def descent(h, d, s):
    """Train with a rule of one's own, without an optimiser of PyTorch's."""
    W = [matrix.requires_grad_() for matrix in start(h, d, s)]
    speed = [torch.zeros_like(matrix) for matrix in W]
    for _ in range(600):
        x, y = play.copying(64)
        F.mse_loss(layer(h, d, s, x, W), y).backward()
        with torch.no_grad():
            for matrix, v in zip(W, speed, strict=True):
                v.mul_(0.9).add_(matrix.grad)
                matrix -= 0.3 * v
                matrix.grad = None
    return lambda x: layer(h, d, s, x, W)


def fixed_set(h, d, s):
    x, y = play.copying(3_000)

    def task(count):
        some = torch.randint(len(x), (count,))
        return x[some], y[some]

    return fit(h, d, s, task=task)


trained.accept("its own descent", descent)
trained.accept("a fixed set", fixed_set)
