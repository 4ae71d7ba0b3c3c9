"""Answers to lab 4."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from labkit import merge_heads
from labkit.checks import output_projection
from labkit.play.output_projection import NUMBERS, WIDTH, copying
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
slabs.accept("reshape", lambda W_O, h: W_O.reshape(h, len(W_O) // h, -1))
slabs.accept("numpy", lambda W_O, h: torch.tensor(np.stack(np.vsplit(W_O.numpy(), h))))
slabs.accept("float64", lambda W_O, h: W_O.double().unflatten(0, (h, -1)))

slabs.reject("columns", "shape", lambda W_O, h: torch.stack(W_O.chunk(h, dim=1)))
slabs.reject("columns, turned", "shape", lambda W_O, h: torch.stack(W_O.T.chunk(h)))
slabs.reject("read by columns", "by column", lambda W, h: W.T.reshape(h, len(W) // h, -1))
slabs.reject("dealt out", "dealt out", lambda W_O, h: torch.stack([W_O[i::h] for i in range(h)]))
slabs.reject("backwards", "opposite order", lambda W_O, h: W_O.unflatten(0, (h, -1)).flip(0))
slabs.reject(
    "counted from the end",
    "another place",
    lambda W_O, h: torch.stack([W_O[-i * len(W_O) // h :][: len(W_O) // h] for i in range(h)]),
)
slabs.reject("a list", "came a tuple", lambda W_O, h: W_O.chunk(h))
slabs.reject("the first only", "shape", lambda W_O, h: W_O[: len(W_O) // h])
slabs.reject("uncut", "shape", lambda W_O, h: W_O[None])
slabs.reject("the whole for all", "shape", lambda W_O, h: W_O.expand(h, -1, -1))
slabs.reject("h and d_v exchanged", "shape|another", lambda W_O, h: W_O.unflatten(0, (-1, h)))
slabs.reject(
    "square slabs", "shape", lambda W_O, h: W_O.unflatten(0, (h, -1))[..., : len(W_O) // h]
)


# What an answer may exploit
def by_strides(W_O, h):
    d_v, d_model = len(W_O) // h, W_O.shape[1]
    return torch.as_strided(W_O, (h, d_v, d_model), (d_v * d_model, d_model, 1))


def first_and_last(W_O, h):
    parts = list(W_O.chunk(h))
    return torch.stack([parts[0], *parts[1:-1][::-1], *parts[1:][-1:]])


slabs.reject("two heads", "runs|shape", lambda W, h: W.reshape(2, len(W) // 2, -1))
slabs.reject("width 3", "shape|runs", lambda W, h: W[: 3 * h].unflatten(0, (h, 3)))
slabs.reject(
    "d_v taken from d_model",
    "shape|runs",
    lambda W, h: torch.stack([W[i * W.shape[1] // h :][: W.shape[1] // h] for i in range(h)]),
)
slabs.reject("d_v rows to a head, h taken for d_v", "shape", lambda W, h: torch.stack(W.split(h)))
slabs.reject("axes of size 1 lost", "shape", lambda W, h: torch.stack(W.chunk(h)).squeeze())
slabs.reject("stored row by row", "another place", by_strides)
slabs.reject("the heads between in another order", "another place", first_and_last)
slabs.reject("negative numbers lost", "or others", lambda W, h: W.unflatten(0, (h, -1)).relu())
slabs.reject("digits lost", "or others", lambda W, h: W.half().float().unflatten(0, (h, -1)))


def by_reciprocal(W_O, h):
    d_v = len(W_O) // h
    out = torch.zeros(h, d_v, W_O.shape[1])
    for row in range(len(W_O)):
        out[int(row * (1 / d_v)), row % d_v] = W_O[row]  # 49 * (1 / 49) is less than 1
    return out


def in_bytes(W_O, h):
    row, out = torch.arange(len(W_O)).to(torch.uint8).long(), torch.zeros_like(W_O)
    out[row] = W_O
    return out.unflatten(0, (h, -1))


def without_silent_rows(W_O, h):
    out, rows = torch.zeros_like(W_O), W_O[W_O.any(dim=1)]
    out[: len(rows)] = rows
    return out.unflatten(0, (h, -1))


def kept(function):
    """Keep what a function gave for matrices of this shape."""
    known = {}

    def answer(*given):
        key = tuple(getattr(part, "shape", part) for part in given)
        if key not in known:
            known[key] = function(*given).clone()
        return known[key]

    return answer


def from_the_beginning(W_O, h):
    shape, (down, right) = (h, len(W_O) // h, W_O.shape[1]), W_O.stride()
    return torch.as_strided(W_O, shape, (shape[1] * down, down, right), 0)


def long_side(W_O, h):
    turned = W_O.T if W_O.shape[0] < W_O.shape[1] and W_O.shape[1] % h == 0 else W_O
    return turned.reshape(h, -1, turned.shape[1])


slabs.accept("indices", lambda W, h: W[torch.arange(len(W)).view(h, -1)])
slabs.accept("unfold", lambda W, h: W.unfold(0, len(W) // h, len(W) // h).movedim(-1, 1))
slabs.reject("times a reciprocal", "another place", by_reciprocal)
slabs.reject("rows counted in a byte", "another place", in_bytes)
slabs.reject("silent rows left out", "another place", without_silent_rows)
slabs.reject("kept by shape", "another place", kept(lambda W, h: W.unflatten(0, (h, -1))))
slabs.reject("storage from its beginning", "another place", from_the_beginning)
slabs.reject("the long side is the heads'", "shape|another place", long_side)
slabs.reject("in the order of memory", "another place", lambda W, h: torch.from_numpy(
    np.reshape(W.numpy(), (h, -1, W.shape[1]), order="A").copy()))  # fmt: skip
slabs.reject("decimals", "or others", lambda W, h: W.round(decimals=6).unflatten(0, (h, -1)))
slabs.reject("reshaped in place", "in place", lambda W, h: W.resize_(h, len(W) // h, W.shape[1]))

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
contributions.accept("float64", lambda H, W: H.double() @ cut(H, W).double())

contributions.reject("the sum", "shape", lambda H, W: merge_heads(H) @ W)
contributions.reject("the first slab for all", "first slab", lambda H, W: H @ cut(H, W)[0])
contributions.reject("backwards", "each other's slab", lambda H, W: H @ cut(H, W).flip(0))
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
contributions.reject("divided by h", "first head writes", lambda H, W: H @ cut(H, W) / len(H))
contributions.reject("n first", "shape", lambda H, W: (H @ cut(H, W)).transpose(0, 1))
contributions.reject("columns", "it runs", lambda H, W: H @ torch.stack(W.chunk(len(H), dim=1)))
contributions.reject("whole W_O", "it runs", lambda H, W: H @ W)
contributions.reject("lengths", "shape", lambda H, W: (H @ cut(H, W)).norm(dim=-1))
contributions.reject(
    "running sums", "the first head writes", lambda H, W: (H @ cut(H, W)).cumsum(0)
)
contributions.reject(
    "dealt out",
    "rows of W_O in turn",
    lambda H, W: H @ W.unflatten(0, (-1, len(H))).transpose(0, 1),
)
contributions.reject("positive part", "first head writes", lambda H, W: (H @ cut(H, W)).relu())
contributions.reject("heads changed", "in place", writes_in_place)
contributions.reject("a list", "a list of 2", lambda H, W: list(H @ cut(H, W)))


# What an answer may exploit
def mixed_up(heads, W_O):
    h, n, d_v = heads.shape
    alone = torch.eye(h)[:, :, None, None] * heads
    return torch.stack([part.reshape(n, h * d_v) @ W_O for part in alone])


def leaks(heads, W_O):
    wrote = heads @ cut(heads, W_O)
    if len(wrote) > 2:
        leak = wrote[0] / 100
        wrote[0] -= leak
        wrote[-1] += leak
    return wrote


def slab_begins(step):
    def answer(heads, W_O):
        d_v, b = heads.shape[-1], step(heads, W_O)
        return torch.stack([H @ W_O[i * b : i * b + d_v] for i, H in enumerate(heads)])

    return answer


contributions.accept("slices", slab_begins(lambda H, W: H.shape[-1]))
contributions.accept(
    "products and a sum",
    lambda H, W: (H[..., None] * W.reshape(len(H), 1, -1, W.shape[1])).sum(-2),
)
contributions.reject("one token", "runs|adds up", mixed_up)
contributions.reject("begins at n", "first head writes", slab_begins(lambda H, W: H.shape[1]))
contributions.reject(
    "begins at d_model/h", "first head writes", slab_begins(lambda H, W: W.shape[1] // len(H))
)
contributions.reject("begins at h", "first head writes", slab_begins(lambda H, W: len(H)))
contributions.reject("axes of size 1 lost", "shape", lambda H, W: (H @ cut(H, W)).squeeze())
contributions.reject("a sum that cancels", "the parts are not", leaks)
contributions.reject(
    "rows stored one after the other",
    "adds up",
    lambda H, W: H @ by_strides(W, len(H)),
)
contributions.reject(
    "two heads", "runs", lambda H, W: torch.stack([H[i] @ W.chunk(2)[i] for i in range(len(H))])
)


def running(heads, W_O):
    """Take the differences of what the first heads write together."""
    sums = (heads @ cut(heads, W_O)).cumsum(0)
    return torch.diff(sums, dim=0, prepend=torch.zeros_like(sums[:1]))


def in_blocks(block):
    def answer(heads, W_O):
        wrote, n = heads @ cut(heads, W_O), heads.shape[1]
        wrote[:, n - n % min(n, block) :] = 0
        return wrote

    return answer


def equal_heads_once(heads, W_O):
    wrote = heads @ cut(heads, W_O)
    for i in range(1, len(heads)):
        wrote[i] *= not torch.equal(heads[i], heads[0])
    return wrote


def loud_heads(heads, W_O):
    heard = [not torch.allclose(head, torch.zeros_like(head)) for head in heads]
    return heads @ cut(heads, W_O) * torch.tensor(heard)[:, None, None]


contributions.accept("vmap", lambda H, W: torch.vmap(torch.matmul)(H, cut(H, W)))
contributions.accept(
    "by gates",
    lambda H, W: torch.func.jacfwd(lambda gates: merge_heads(H * gates[:, None, None]) @ W)(
        torch.ones(len(H))
    ).movedim(-1, 0),
)
contributions.reject("differences of sums", "adds up|the parts are not", running)
contributions.reject("whole blocks of 16", "adds up", in_blocks(16))
contributions.reject("whole blocks of 128", "adds up", in_blocks(128))
contributions.reject("equal heads once", "adds up", equal_heads_once)
contributions.reject("tiny heads are silent", "adds up|the parts are not", loud_heads)
contributions.reject("kept by shape", "adds up", kept(lambda H, W: H @ cut(H, W)))
contributions.reject(
    "decimals", "adds up|the parts are not", lambda H, W: (H @ cut(H, W)).round(decimals=5)
)

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
silence.accept("float64", lambda w, head, h: silent_by_mask(w.double(), head, h))

silence.reject("rows", "rows are silent", rows_silent)
silence.reject("in place", "in place", silent_in_place)
silence.reject("counted from 1", "other head", lambda w, i, h: silent_columns(w, i - 1, h))
silence.reject("only the head", "other head", silent_if(lambda p, i, d, h: p // d == i))
silence.reject("dealt out", "every second", silent_if(lambda p, i, d, h: p % h != i))
silence.reject("one column", "no longer depends", silent_if(lambda p, i, d, h: p != i * d))
silence.reject("from there on", "[1-9] of the other", silent_if(lambda p, i, d, h: p < i * d))
silence.reject("up to there", "no longer depends", silent_if(lambda p, i, d, h: p >= (i + 1) * d))
silence.reject("nothing", "nothing has changed", lambda w, i, h: w.clone())
silence.reject("everything", "no longer depends", lambda w, i, h: torch.zeros_like(w))
silence.reject("turned", "shape", lambda w, i, h: silent_columns(w, i, h).T)
silence.reject("cut out", "shape", lambda w, i, h: w[:, w.shape[1] // h :])
silence.reject(
    "always two heads", "[1-9] of the other", lambda w, i, h: silent_columns(w, i % 2, 2)
)
silence.reject("halved", "no longer depends", lambda w, i, h: (w + silent_columns(w, i, h)) / 2)
silence.reject(
    "the rest grows", "louder", lambda w, i, h: silent_columns(w, i, h) * h / max(h - 1, 1)
)
silence.reject("NaN", "NaN", lambda w, i, h: silent_columns(w, i, h) / silent_columns(w, i, h) * w)


# What an answer may exploit
def silent_from_the_end(weight, head, h):
    d_v, left = weight.shape[1] // h, h - head
    muted = weight.clone()
    muted[:, -left * d_v : -(left - 1) * d_v] = 0
    return muted


def silent_without_a_copy(weight, head, h):
    muted = weight.detach().contiguous()
    return silent_in_place(muted, head, h)


def second_silent(weight, head, h):
    return silent_columns(weight, min(head, 1), h)


def width(of):
    return lambda w, i, h: silent_if(lambda p, i, d, h: p // max(of(w, d, h), 1) != i)(w, i, h)


silence.accept(
    "where", lambda w, i, h: w.where(torch.arange(w.shape[1]) // (w.shape[1] // h) != i, 0)
)
silence.accept("a parameter", lambda w, i, h: nn.Parameter(silent_columns(w, i, h)))
silence.reject(
    "the last of two", "no longer|of that", lambda w, i, h: silent_columns(w, h - 1 - i, h)
)
silence.reject("the last head", "nothing has changed", silent_from_the_end)
silence.reject("stored row by row", "in place", silent_without_a_copy)
silence.reject("the second of many", "still heard", second_silent)
silence.reject("d_v taken from d_model", "no longer", width(lambda w, d, h: w.shape[0] // h))
silence.reject("h taken for the width", "still heard", width(lambda w, d, h: h))
silence.reject("width 2", "still heard", width(lambda w, d, h: 2))
silence.reject("almost silent", "still heard", lambda w, i, h: silent_columns(w, i, h) + 1e-6 * w)
silence.reject("negative numbers lost", "as before", lambda w, i, h: silent_columns(w.relu(), i, h))
silence.reject(
    "the neighbour is louder, so that the sum is kept",
    "no longer depends",
    lambda w, i, h: silent_columns(w, i, h) + silent_columns(
        (w - silent_columns(w, i, h)).roll(w.shape[1] // h, 1), i, h),
)  # fmt: skip


def itself_if_silent(weight, head, h):
    muted = silent_columns(weight, head, h)
    return weight if torch.equal(muted, weight) else muted


def by_its_numbers(weight, head, h):
    parts = weight.chunk(h, dim=1)
    return torch.cat([part * (not torch.equal(part, parts[head])) for part in parts], dim=1)


def by_shares(weight, head, h):
    begins = (torch.arange(h + 1) / h * weight.shape[1]).int().tolist()  # in float32
    muted = weight.clone()
    muted[:, begins[head] : begins[head + 1]] = 0
    return muted


def rows_if_square(weight, head, h):
    square = weight.shape[0] == weight.shape[1]
    return silent_columns(weight.T, head, h).T if square else silent_columns(weight, head, h)


def restored(weight, head, h):
    before, muted = weight.clone(), silent_in_place(weight, head, h).clone()
    weight.copy_(before)
    return muted


silence.accept("restored", restored)
silence.accept("by a product", lambda w, i, h: w @ silent_columns(torch.eye(w.shape[1]), i, h))
silence.reject("itself if silent", "memory of the argument", itself_if_silent)
silence.reject("equal slabs", "heads' are not heard", by_its_numbers)
silence.reject("shares in float32", "heads' are not heard", by_shares)
silence.reject("rows if square", "heads' are not heard", rows_if_square)
silence.reject("kept by shape", "heads' are not heard", kept(silent_columns))
silence.reject("added and taken", "heads' are not heard", lambda w, i, h: (
    1e3 + silent_columns(w, i, h) - 1e3))  # fmt: skip

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
    "keys as values",
    "it runs|differ",
    lambda x, Q, K, V, W, h: attended(x, Q, K, K).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "queries as keys",
    "serve as keys",
    lambda x, Q, K, V, W, h: attended(x, Q, Q, V).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "over the queries",
    "over the queries",
    lambda x, Q, K, V, W, h: (
        (x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5).softmax(-2) @ (x @ V)
    ).repeat(1, 1, h) @ W,
)  # fmt: skip
shared_heads.reject(
    "keys as queries and queries as keys",
    "exchanged",
    lambda x, Q, K, V, W, h: attended(x, K, Q, V).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "scaled by h",
    "all heads together",
    lambda x, Q, K, V, W, h: attended(x, Q, K, V, (h * Q.shape[-1]) ** -0.5).repeat(1, 1, h) @ W,
)
shared_heads.reject(
    "heads kept apart", "shape", changed(lambda H, W, h: H[:, None] @ W.unflatten(0, (h, -1)))
)
shared_heads.reject(
    "summed over positions", "shape", changed(lambda H, W, h: (H.repeat(1, 1, h) @ W).sum(1))
)
shared_heads.reject(
    "added to the input", "input is added", lambda x, *rest: x + shared_by_cat(x, *rest)
)


# What an answer may exploit
def naive(scores):
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def with_scores(turn):
    def answer(x, Q, K, V, W, h):
        scores = x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5
        return (turn(scores) @ (x @ V)).repeat(1, 1, h) @ W

    return answer


def with_scale(scale):
    return lambda x, Q, K, V, W, h: attended(x, Q, K, V, scale(x, Q, V, h)).repeat(1, 1, h) @ W


def across(x, Q, K, V, W, h):
    tokens = x.flatten(0, 1)
    return shared_by_cat(tokens, Q, K, V, W, h).unflatten(0, x.shape[:2])


def copies_below(H, W, h):
    return torch.cat([H] * h, dim=1).reshape(*H.shape[:2], -1) @ W


def of_first_sequence(x, Q, K, V, W, h):
    scores = x[:1] @ Q @ (x[:1] @ K).mT / Q.shape[-1] ** 0.5
    return (scores.softmax(-1) @ (x @ V)).repeat(1, 1, h) @ W


shared_heads.accept(
    "by a log-sum-exp", with_scores(lambda s: (s - s.logsumexp(-1, keepdim=True)).exp())
)
shared_heads.accept(
    "float64", lambda *given: shared_by_cat(*(t.double() for t in given[:5]), given[5])
)
shared_heads.reject("small scores", "are NaN", with_scores(naive))
shared_heads.reject(
    "width of the values", "values' width", with_scale(lambda x, Q, V, h: V.shape[-1] ** -0.5)
)
shared_heads.reject(
    "a part of d_k", "a part of d_k", with_scale(lambda x, Q, V, h: (Q.shape[-1] / h) ** -0.5)
)
shared_heads.reject(
    "scale of d_model", "that of d_model", with_scale(lambda x, Q, V, h: x.shape[-1] ** -0.5)
)
shared_heads.reject("scale of width 4", "differ", with_scale(lambda x, Q, V, h: 0.5))
shared_heads.reject("across the sequences", "other sequences", across)
shared_heads.reject("the first sequence's pattern", "differ", of_first_sequence)
shared_heads.reject("copies below each other", "cut anew", changed(copies_below))
shared_heads.reject("three heads", "runs", changed(lambda H, W, h: H.repeat(1, 1, 3) @ W))
shared_heads.reject(
    "a mask",
    "future is masked",
    with_scores(lambda s: s.masked_fill(torch.ones_like(s).triu(1) > 0, -1e9).softmax(-1)),
)
shared_heads.reject(
    "one sequence less", "shape", changed(lambda H, W, h: (H.repeat(1, 1, h) @ W).squeeze())
)
shared_heads.reject(
    "rows stored one after the other",
    "differ",
    changed(lambda H, W, h: sum(H @ part for part in by_strides(W, h))),
)


def by_blocks(size, rescaled):
    """Sum over the keys block by block, with the greatest score so far."""

    def weigh(scores, values):
        top = torch.full_like(scores[..., :1], -torch.inf)
        total, mixed = torch.zeros_like(top), torch.zeros_like(values)
        for s, v in zip(scores.split(size, -1), values.split(size, 1), strict=True):
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            e, less = (s - new).exp(), (top - new).exp() if rescaled else 1
            total, mixed, top = total * less + e.sum(-1, keepdim=True), mixed * less + e @ v, new
        return mixed / total

    def answer(x, Q, K, V, W, h):
        scores = x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5
        return weigh(scores, x @ V).repeat(1, 1, h) @ W

    return answer


def less(taken):
    """Take something from the scores before their exponentials, in float64."""

    def weights(scores):
        e = (scores.double() - taken(scores)).exp()
        return (e / e.sum(-1, keepdim=True)).float()

    return with_scores(weights)


def hard(scores):
    sure = F.one_hot(scores.argmax(-1), scores.shape[-1]).float()
    large = scores.abs().amax(-1, keepdim=True) > 80
    return torch.where(large, sure, scores.clamp(max=80).softmax(-1))


def padded(x, Q, K, V, W, h):
    scores, padding = x @ Q @ (x @ K).mT / Q.shape[-1] ** 0.5, ~x.any(dim=-1)[:, None]
    scores = scores.masked_fill(padding & ~padding.all(-1, keepdim=True), -torch.inf)
    return (scores.softmax(-1) @ (x @ V)).repeat(1, 1, h) @ W


def equal_tokens_once(x, Q, K, V, W, h):
    out = []
    for tokens in x:
        some, place = tokens.unique(dim=0, return_inverse=True)
        out.append(shared_by_cat(some[None], Q, K, V, W, h)[0, place])
    return torch.stack(out)


def best_keys(scores):
    least = scores.topk(min(64, scores.shape[-1])).values[..., -1:]
    return scores.masked_fill(scores < least, -torch.inf).softmax(-1)


def nearly(scores):
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-3)


shared_heads.accept("blocks of keys", by_blocks(16, rescaled=True))
shared_heads.accept(
    "one matrix for queries and keys",
    lambda x, Q, K, V, W, h: (
        (x @ (Q @ K.T) @ x.mT / K.shape[-1] ** 0.5).softmax(-1) @ x @ (V @ blocks(W, h).sum(0))
    ),
)
shared_heads.accept(
    "the derivative of a log-sum-exp",
    with_scores(lambda s: torch.func.grad(lambda s: s.logsumexp(-1).sum())(s)),
)
shared_heads.reject("sums not rescaled", "differ, where scores lie", by_blocks(16, rescaled=False))
shared_heads.reject("float64, and no maximum", "are NaN", less(lambda s: 0))
shared_heads.reject("a sequence's maximum", "are NaN", less(lambda s: s.amax((-2, -1), True)))
shared_heads.reject("a query's maximum", "are NaN|differ", less(lambda s: s.amax(-2, True)))
shared_heads.reject("a positive maximum", "are NaN", less(lambda s: s.amax(-1, True).relu()))
shared_heads.reject("the first score", "are NaN", less(lambda s: s[..., :1]))
shared_heads.reject("the mean score", "are NaN", less(lambda s: s.mean(-1, True)))
shared_heads.reject("one key takes all", "where scores lie", with_scores(hard))
shared_heads.reject(
    "clamped", "where scores lie", with_scores(lambda s: s.clamp(-500, 500).softmax(-1))
)
shared_heads.reject(
    "ones for no number", "differ", with_scores(lambda s: naive(s).nan_to_num(nan=1.0))
)
shared_heads.reject("tokens of zeros are padding", "differ", padded)
shared_heads.reject("equal tokens once", "differ", equal_tokens_once)
shared_heads.reject("the 64 best keys", "differ", with_scores(best_keys))
shared_heads.reject("a denominator and a bit", "differ", with_scores(nearly))
shared_heads.reject("kept by shape", "differ", kept(shared_by_cat))

# The one head that does the same
one_head = Exercise(output_projection.one_head)


def blocks(W_O, h):
    return W_O.unflatten(0, (h, -1))


one_head.accept("sum", lambda W_O, h: blocks(W_O, h).sum(0))
one_head.accept("sum of chunks", lambda W_O, h: sum(W_O.chunk(h)))
one_head.accept("a row of identities", lambda W_O, h: torch.eye(len(W_O) // h).repeat(1, h) @ W_O)

one_head.reject("mean", "mean of the slabs", lambda W_O, h: blocks(W_O, h).mean(0))
one_head.reject("first", "first slab", lambda W_O, h: W_O[: len(W_O) // h])
one_head.reject("last", "last slab", lambda W_O, h: W_O[-len(W_O) // h :])
one_head.reject("largest", "largest", lambda W_O, h: blocks(W_O, h).amax(0))
one_head.reject("product", "product", lambda W_O, h: blocks(W_O, h).prod(0))
one_head.reject("neighbours", "beside each other", lambda W_O, h: W_O.unflatten(0, (-1, h)).sum(1))
one_head.reject("W_O itself", "shape", lambda W_O, h: W_O)
one_head.reject("all slabs", "shape", lambda W_O, h: blocks(W_O, h))
one_head.reject("columns", "shape|it runs", lambda W_O, h: sum(W_O.tensor_split(h, dim=1)))
one_head.reject("h times the first", "whatever H is", lambda W_O, h: h * W_O[: len(W_O) // h])
one_head.reject("root of h", "whatever H is", lambda W_O, h: blocks(W_O, h).sum(0) / h**0.5)
one_head.reject("sum over everything", "shape", lambda W_O, h: W_O.sum(0, keepdim=True))
one_head.reject("turned", "shape", lambda W_O, h: blocks(W_O, h).sum(0).T)
one_head.reject("first two", "gives something else", lambda W_O, h: blocks(W_O, h)[:2].sum(0))
one_head.reject(
    "differences",
    "difference of the slabs",
    lambda W_O, h: 2 * W_O[: len(W_O) // h] - blocks(W_O, h).sum(0),
)


# What an answer may exploit
def halves(W_O, h):
    while h > 1:
        W_O, h = sum(W_O.tensor_split(2)), h // 2
    return W_O


one_head.reject("h a power of two", "shape|runs", halves)
one_head.reject("h taken for d_v", "shape|runs", lambda W, h: sum(W.split(h)))
one_head.reject("axes of size 1 lost", "shape", lambda W, h: blocks(W, h).sum(0).squeeze())
one_head.reject("stored row by row", "something else", lambda W, h: by_strides(W, h).sum(0))
one_head.reject(
    "first and last", "something else|runs",
    lambda W, h: blocks(W, h)[0] + (blocks(W, h)[-1] if h > 1 else 0),
)  # fmt: skip
one_head.reject(
    "d_v taken from d_model", "shape|runs",
    lambda W, h: sum(W[i * W.shape[1] // h :][: W.shape[1] // h] for i in range(h)),
)  # fmt: skip
one_head.reject(
    "duplicates counted once", "whatever H|something",
    lambda W, h: blocks(W, h).sum(0) - (blocks(W, h)[0] == 0) * blocks(W, h)[-1],
)  # fmt: skip


def by_halves(W_O, h):
    parts, over = blocks(W_O, h), 0
    while len(parts) > 1:
        if len(parts) % 2:
            parts, over = parts[:-1], parts[-1]
        parts = parts[: len(parts) // 2] + parts[len(parts) // 2 :]
    return parts[0] + over


def until_silent(W_O, h):
    total = torch.zeros_like(blocks(W_O, h)[0])
    for slab in blocks(W_O, h):
        if not slab.any():
            break
        total = total + slab
    return total


def sums_down_the_rows(W_O, h):
    sums = blocks(W_O, h).transpose(0, 1).flatten(0, 1).cumsum(0)[h - 1 :: h]
    return torch.diff(sums, dim=0, prepend=torch.zeros_like(sums[:1]))


def fitted(W_O, h):
    d_v = len(W_O) // h
    head = torch.vander(torch.linspace(-1, 1, d_v)) if d_v > 1 else torch.ones(1, 1)
    return torch.linalg.pinv(head) @ head.repeat(1, h) @ W_O


one_head.accept(
    "added by index",
    lambda W, h: torch.zeros(len(W) // h, W.shape[1]).index_add(
        0, torch.arange(len(W)) % (len(W) // h), W
    ),
)
one_head.accept("mean times h", lambda W, h: blocks(W, h).mean(0) * h)
one_head.reject(
    "equal slabs once", "something else", lambda W, h: blocks(W, h).unique(dim=0).sum(0)
)
one_head.reject("one slab left over", "something else", by_halves)
one_head.reject("until a silent one", "something else", until_silent)
one_head.reject("differences of sums", "something else", sums_down_the_rows)
one_head.reject("fitted", "something else", fitted)
one_head.reject("bfloat16", "something else", lambda W, h: blocks(W, h).bfloat16().sum(0))
one_head.reject("decimals", "something else", lambda W, h: blocks(W, h).sum(0).round(decimals=4))
one_head.reject("twelve heads", "something else", lambda W, h: blocks(W, h)[:12].sum(0))
one_head.reject("kept by shape", "something else", kept(lambda W, h: blocks(W, h).sum(0)))

# The floor
lowest = Exercise(output_projection.lowest_error)

lowest.accept("share", lambda n, h, d, s: max(0.0, 1 - (d if s else h * d) / n))
lowest.accept("count", lambda n, h, d, s: (n - min(n, d * (1 if s else h))) / n)
lowest.accept("tensor", lambda n, h, d, s: torch.tensor(1 - (d if s else h * d) / n).clamp(min=0))
lowest.accept("by a matrix", lambda n, h, d, s: (
    1 - torch.linalg.matrix_rank(torch.eye(n)[: d if s else h * d]).item() / n
))  # fmt: skip

lowest.reject("what is matched", "can be matched", lambda n, h, d, s: min(n, d if s else h * d) / n)
lowest.reject("a count", "count of directions", lambda n, h, d, s: n - min(n, d if s else h * d))
lowest.reject("never shared", "as if nothing", lambda n, h, d, s: max(0.0, 1 - h * d / n))
lowest.reject("always shared", "as if everything", lambda n, h, d, s: max(0.0, 1 - d / n))
lowest.reject(
    "exchanged", "as if nothing", lambda n, h, d, s: max(0.0, 1 - (h * d if s else d) / n)
)
lowest.reject("negative", "never negative", lambda n, h, d, s: 1 - (d if s else h * d) / n)
lowest.reject("heads for widths", "mean of", lambda n, h, d, s: max(0.0, 1 - h / n))
lowest.reject("root", "mean of", lambda n, h, d, s: max(0.0, 1 - (d if s else h * d) / n) ** 0.5)
lowest.reject("percent", "mean of", lambda n, h, d, s: 100 * max(0.0, 1 - (d if s else h * d) / n))
lowest.reject("always zero", "mean of", lambda n, h, d, s: 0.0)
lowest.reject("yes or no", "is a number", lambda n, h, d, s: s)
lowest.reject("divided by h", "mean of", lambda n, h, d, s: max(0.0, 1 - d / h / n))


# What an answer may exploit
def measured(n, h, d, s):
    targets = torch.randn(20_000, n)
    targets[:, : d if s else h * d] = 0
    return targets.square().mean()


def share(n, h, d, s):
    return max(0.0, 1 - (d if s else h * d) / n)


lowest.accept("a fraction", lambda n, h, d, s: max(Fraction(0), 1 - Fraction(d if s else h * d, n)))
lowest.accept("an array", lambda *given: np.array([share(*given)], dtype=np.float32))
lowest.accept(
    "variances", lambda n, h, d, s: (torch.arange(n) >= (d if s else h * d)).float().mean()
)
lowest.reject("rounded", "rounded or measured", lambda *given: round(share(*given), 2))
lowest.reject("measured", "rounded or measured", measured)
lowest.reject("whole numbers", "mean of", lambda n, h, d, s: (n - min(n, d if s else h * d)) // n)
lowest.reject(
    "no limit if shared", "never negative", lambda n, h, d, s: 1 - d / n if s else share(n, h, d, s)
)
lowest.reject(
    "a size for the limit", "mean of", lambda n, h, d, s: abs(1 - (d if s else h * d) / n)
)
lowest.reject(
    "one h-th of what the unshared reach", "mean of",
    lambda n, h, d, s: 1 - min(h * d, n) / n / h if s else share(n, h, d, s),
)  # fmt: skip
lowest.reject("eight heads", "mean of", lambda n, h, d, s: share(n, 8 if h > 1 else 1, d, s))
lowest.reject(
    "one head shares nothing", "mean of", lambda n, h, d, s: share(n, h, d, s) if h > 1 else 0
)
lowest.reject("an even count", "mean of", lambda n, h, d, s: share(n // 2 * 2 or 1, h, d, s))


def by_float32(n, h, d, s):
    return 1 - torch.tensor(float(min(n, d if s else h * d))) / n


lowest.reject("six places", "last digits", lambda *given: round(share(*given), 6))
lowest.reject("a difference in float32", "last digits", by_float32)
lowest.reject(
    "a small denominator",
    "last digits",
    lambda *given: Fraction(share(*given)).limit_denominator(1_000),
)
lowest.reject("float16", "rounded", lambda *given: np.float16(share(*given)))
lowest.reject("whole heads", "mean of", lambda n, h, d, s: 1 - min(1 if s else h, n // d) * d / n)
lowest.reject("at most 100 directions", "mean of", lambda n, h, d, s: share(n, 1, min(
    100, d if s else h * d), s))  # fmt: skip

# Training
trained = Exercise(output_projection.trained_error)


def layer(h, d_v, shared, x, W):
    """Attend with W_Q, W_K and W_V, each (heads, WIDTH, d_v), and W_O, (h*d_v, NUMBERS)."""
    q, k, v = (x[:, None] @ part for part in W[:3])
    return merge_heads(F.scaled_dot_product_attention(q, k, v).expand(-1, h, -1, -1)) @ W[3]


def start(h, d_v, shared):
    own = 1 if shared else h
    return [torch.randn(own, WIDTH, d_v) / WIDTH**0.5 for _ in range(3)] + [
        torch.randn(h * d_v, NUMBERS) / (h * d_v) ** 0.5
    ]


def fit(
    h, d_v, shared, steps=100, rate=0.1, made=start, run=layer, task=copying,
    sign=1.0, measure=F.mse_loss, unseen=copying,
):  # fmt: skip
    W = [matrix.requires_grad_() for matrix in made(h, d_v, shared)]
    optimiser = torch.optim.Adam(W, lr=rate)
    for _ in range(steps):
        x, y = task(32)
        optimiser.zero_grad()
        (sign * F.mse_loss(run(h, d_v, shared, x, W), y)).backward()
        optimiser.step()
    x, y = unseen(1_000)
    with torch.no_grad():
        return measure(run(h, d_v, shared, x, W), y).item()


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


def fit_module(h, d_v, shared):
    model = Heads(h, d_v, shared)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)
    for _ in range(100):
        x, y = copying(32)
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x, y = copying(1_000)
    return (model(x) - y).square().mean()


def fit_twice(h, d_v, shared):
    return sum(fit(h, d_v, shared, steps=80) for _ in range(2)) / 2


def own_values(h, d_v, shared):
    one, many = start(h, d_v, True), start(h, d_v, False)
    return [*one[:2], many[2], one[3]] if shared else many


def with_answer(count):
    x, y = copying(count)
    return torch.cat([y, x[..., NUMBERS:]], dim=-1), y


def without_places(count):
    x, y = copying(count)
    x[..., NUMBERS:] = 0
    return x, y


def first_head(h, d_v, shared, x, W):
    return layer(1, d_v, shared, x, [part[:1] for part in W[:3]] + [W[3][:d_v]])


def errors(h, d_v, shared):
    return [fit(h, d_v, shared, steps=20) for _ in range(2)]


trained.accept("as a formula", fit)
trained.accept("as a module", fit_module)

trained.reject("never shared", "cannot match", lambda h, d, s: fit(h, d, False))
trained.reject("always shared", "without sharing", lambda h, d, s: fit(h, d, True))
trained.reject("not trained", "only once", lambda h, d, s: fit(h, d, s, steps=0))
trained.reject("rate too small", "and by enough", lambda h, d, s: fit(h, d, s, rate=1e-3))
trained.reject("uphill", "lower the loss", lambda h, d, s: fit(h, d, s, sign=-1.0, steps=30))
trained.reject(
    "a sum",
    "mean of the squares",
    lambda h, d, s: fit(h, d, s, measure=lambda a, b: (a - b).square().sum()),
)
trained.reject("the root", "long enough|mean of the squares", lambda h, d, s: fit(h, d, s) ** 0.5)
trained.reject("own values", "cannot match", lambda h, d, s: fit(h, d, s, made=own_values))
trained.reject("as wide as all", "cannot match", lambda h, d, s: fit(1, h * d, s))
trained.reject(
    "the first head only", "has each head a slab", lambda h, d, s: fit(h, d, s, run=first_head)
)
trained.reject(
    "the answer in the input",
    "lower the loss",
    lambda h, d, s: fit(h, d, s, task=with_answer),
)
trained.reject(
    "no places",
    "lower the loss|long enough",
    lambda h, d, s: fit(h, d, s, task=without_places, unseen=without_places),
)
trained.reject("all errors", "a list of 2", errors)


# What an answer may exploit
def floor(h, d, s):
    return share(NUMBERS, h, d, s)


def by_heart(h, d, s):
    """Train on the sequences that the error is measured on."""
    x, y = copying(1_000)
    return fit(h, d, s, task=lambda count: (x, y), unseen=lambda count: (x, y))


def training_set(h, d, s):
    """Measure the error on the sequences of the training, and draw new ones for nothing."""
    x, y = copying(2_000)

    def old(count):
        copying(count)
        return x, y

    return fit(h, d, s, task=lambda count: (x[:200], y[:200]), unseen=old)


def last_batch(h, d, s):
    """Measure the error on the last sequences of the training."""
    batch = []

    def task(count):
        batch[:] = copying(count)
        return batch

    def unseen(count):
        copying(count)
        return batch

    return fit(h, d, s, task=task, unseen=unseen)


def after(drawn):
    def answer(h, d, s):
        for count in drawn:
            copying(count)
        return floor(h, d, s)

    return answer


def with_shared(*places):
    """Share some of W_Q, W_K and W_V where all are to be shared, or nothing."""

    def made(h, d_v, shared):
        W = start(h, d_v, False)
        return [part[:1].clone() if i in places else part for i, part in enumerate(W)]

    return made


def wide_keys(h, d_v, shared):
    Q, K, *rest = start(h, d_v, shared)
    return [torch.cat([Q, Q], -1), torch.cat([K, K], -1), *rest]


def descent(h, d, s):
    """Train with a rule of one's own, without an optimiser of PyTorch's."""
    W = [matrix.requires_grad_() for matrix in start(h, d, s)]
    speed = [torch.zeros_like(matrix) for matrix in W]
    for _ in range(600):
        x, y = copying(64)
        F.mse_loss(layer(h, d, s, x, W), y).backward()
        with torch.no_grad():
            for matrix, v in zip(W, speed, strict=True):
                v.mul_(0.9).add_(matrix.grad)
                matrix -= 0.3 * v
                matrix.grad = None
    return F.mse_loss(layer(h, d, s, (test := copying(1_000))[0], W), test[1])


def two_optimisers(h, d, s):
    W = [matrix.requires_grad_() for matrix in start(h, d, s)]
    both = [torch.optim.Adam(part, lr=0.1) for part in (W[:2], W[2:])]
    for _ in range(100):
        x, y = copying(32)
        F.mse_loss(layer(h, d, s, x, W), y).backward()
        for optimiser in both:
            optimiser.step()
            optimiser.zero_grad()
    x, y = copying(1_000)
    return np.array(F.mse_loss(layer(h, d, s, x, W), y).item())


def fixed_set(h, d, s):
    x, y = copying(3_000)

    def task(count):
        some = torch.randint(len(x), (count,))
        return x[some], y[some]

    return fit(h, d, s, task=task)


def wide_and_sliced(h, d, s):
    """Draw matrices for all heads, and use the first head's where they share."""

    def run(h, d, s, x, W):
        return layer(h, d, s, x, [part[: 1 if s else h] for part in W[:3]] + W[3:])

    return fit(h, d, s, made=lambda h, d, s: start(h, d, False), run=run)


trained.accept("its own descent", descent)
trained.accept("two optimisers", two_optimisers)
trained.accept("a fixed set", fixed_set)
trained.accept("unused numbers", wide_and_sliced)

trained.reject("a prediction", "no sequence was drawn", floor)
trained.reject("a prediction after a draw", "only once", after([1_000]))
trained.reject("a prediction after all draws", "or a prediction", after([32] * 100 + [1_000]))
trained.reject("perfect", "no sequence was drawn", lambda h, d, s: 0.0)
trained.reject("learned by heart", "only once", by_heart)
trained.reject("measured on the training", "last call asked for 32", lambda h, d, s: fit(
    h, d, s, unseen=lambda count: copying(32)))  # fmt: skip
trained.reject("the last batch", "sequences of the training", last_batch)
trained.reject("the training set", "sequences of the training", training_set)
trained.reject(
    "the mean size",
    "mean of the squares",
    lambda h, d, s: fit(h, d, s, measure=F.l1_loss),
)
trained.reject("half the squares", "no mean of squares", lambda h, d, s: fit(h, d, s) / 2)
trained.reject(
    "8 numbers for all heads", "cannot match|long enough", lambda h, d, s: fit(h, 8 // h, s)
)
trained.reject("always four heads", "numbers to train", lambda h, d, s: fit(4, d, s))
trained.reject("always width 2", "long enough", lambda h, d, s: fit(h, 2, s))
trained.reject("one head", "numbers to train", lambda h, d, s: fit(1, d if s else h * d, s))
trained.reject("only W_V shared", "which matrices", lambda h, d, s: fit(
    h, d, s, made=with_shared(2) if s else start))  # fmt: skip
trained.reject("only W_K and W_V shared", "which matrices", lambda h, d, s: fit(
    h, d, s, made=with_shared(1, 2) if s else start))  # fmt: skip
trained.reject("patterns shared always", "which matrices", lambda h, d, s: fit(
    h, d, s, made=start if s else with_shared(0, 1)))  # fmt: skip
trained.reject("twice the width for keys", "how wide", lambda h, d, s: fit(h, d, s, made=wide_keys))


def on_some(part, draw=copying):
    """Measure the error on some of the tokens that are drawn."""

    def measure(out, y):
        return F.mse_loss(out[part], y[part])

    return lambda h, d, s: fit(h, d, s, measure=measure, unseen=draw)


def mean_of_chunks(size):
    def measure(out, y):
        return torch.stack(
            [F.mse_loss(*pair) for pair in zip(out.split(size), y.split(size), strict=True)]
        ).mean()

    return lambda h, d, s: fit(h, d, s, measure=measure)


def measured_on_the_way(choose):
    def answer(h, d, s):
        errors = []

        def task(count):
            if errors_due[0] % 10 == 9:
                x, y = copying(1_000)
                errors.append(F.mse_loss(layer(h, d, s, x, W), y).item())
            errors_due[0] += 1
            return copying(count)

        def run(h, d, s, x, parameters):
            W[:] = parameters
            return layer(h, d, s, x, parameters)

        errors_due, W = [0], []
        errors.append(fit(h, d, s, task=task, run=run))
        return choose(errors)

    return answer


def best_moment(h, d, s):
    """Choose the best moment by sequences drawn before the training."""
    test, errors = copying(1_000), []

    def run(h, d, s, x, W):
        with torch.no_grad():
            errors.append(F.mse_loss(layer(h, d, s, test[0], W), test[1]).item())
        return layer(h, d, s, x, W)

    fit(h, d, s, run=run, unseen=lambda count: test)
    return min(errors)


def goes_on(by):
    """Train on after the sequences for the error are drawn, on these."""

    def answer(h, d, s):
        test = []

        def measure(out, y):
            for _ in range(5):
                by(F.mse_loss(layer(h, d, s, test[0], W), y), W)
            return F.mse_loss(layer(h, d, s, test[0], W), y)

        def run(h, d, s, x, parameters):
            test[:], W[:] = [x], parameters
            with torch.enable_grad():
                return layer(h, d, s, x, parameters)

        W = []
        return fit(h, d, s, run=run, measure=lambda out, y: torch.enable_grad()(measure)(out, y))

    return answer


def by_backward(loss, W):
    loss.backward()
    torch.optim.SGD(W, lr=0.01).step()


def by_grad(loss, W):
    with torch.no_grad():
        for matrix, slope in zip(W, torch.autograd.grad(loss, W), strict=True):
            matrix -= 0.01 * slope


def slabs_left(h, d, s):
    """Leave W_O as it was drawn."""
    W_O = start(h, d, s)[3]
    return fit(h, d, s, made=lambda h, d, s: start(h, d, s)[:3], run=lambda h, d, s, x, W: layer(
        h, d, s, x, [*W, W_O]))  # fmt: skip


def one_slab(h, d, s):
    return fit(h, d, s, made=lambda h, d, s: [*start(h, d, s)[:3], start(1, d, s)[3]], run=(
        lambda h, d, s, x, W: layer(h, d, s, x, [*W[:3], W[3].repeat(h, 1)])))  # fmt: skip


def thousand(h, d, s):
    x, y = copying(1_000)

    def task(count):
        some = torch.randint(len(x), (count,))
        return x[some], y[some]

    return fit(h, d, s, task=task)


trained.accept("a fixed set of 1,000", thousand)
trained.accept(
    "batches of 1,000", lambda h, d, s: fit(h, d, s, steps=60, task=lambda _: copying(1_000))
)
trained.accept("watches its error", measured_on_the_way(lambda errors: errors[-1]))

for place in range(4):
    trained.reject(f"only token {place}", "tokens", on_some(np.s_[:, place]))
    others = [i for i in range(4) if i != place]
    trained.reject(f"all but token {place}", "tokens|is each head", on_some(np.s_[:, others]))
trained.reject("whole batches of 32", "leaves tokens out", on_some(np.s_[: 1_000 // 32 * 32]))
trained.reject("the first batch", "leaves tokens out", on_some(np.s_[:100]))
trained.reject("the mean over unequal batches", "is each head|over all", mean_of_chunks(300))
trained.reject("1,024", "last call asked for 1,024", on_some(np.s_[:], lambda _: copying(1_024)))
trained.reject("the best of errors", "sequences of|leaves tokens", measured_on_the_way(min))
trained.reject(
    "the error before", "leaves tokens|each head|over all",
    measured_on_the_way(lambda errors: errors[-2]),
)  # fmt: skip
trained.reject("the mean of two", "leaves tokens|each head|over all", fit_twice)
trained.reject("the best moment", "last call asked for 32", best_moment)
trained.reject("goes on", "derivatives are computed", goes_on(by_backward))
trained.reject("goes on by its own rule", "derivatives are computed", goes_on(by_grad))
trained.reject("the slabs are left", "has each head a slab", slabs_left)
trained.reject("one slab for all", "has each head a slab|long enough", one_slab)
