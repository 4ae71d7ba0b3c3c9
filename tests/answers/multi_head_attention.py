"""Answers to lab 3."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn

from labkit import MultiHeadAttention, merge_heads, split_heads
from labkit.checks import multi_head_attention
from tests.answers import Exercise

INF = float("inf")

# The projection
project = Exercise(multi_head_attention.project)


def project_by_loop(x, weight, bias):
    rows = [torch.stack([(row * w).sum() for w in weight]) for row in x.reshape(-1, x.shape[-1])]
    out = torch.stack(rows).reshape(*x.shape[:-1], len(weight))
    return out if bias is None else out + bias


def projected(x, weight, bias, change=lambda out: out):
    return change(x @ weight.T) + (0 if bias is None else bias)


def project_in_place(x, weight, bias):
    out = projected(x, weight, bias)
    x.zero_()
    return out


project.accept("F.linear", lambda x, weight, bias: F.linear(x, weight, bias))
project.accept("product", projected)
project.accept(
    "einsum in float64",
    lambda x, w, b: (
        torch.einsum("...i,oi->...o", x.double(), w.double()) + (0 if b is None else b.double())
    ),
)
project.accept("loops", project_by_loop)

project.reject("not transposed", "other way round", lambda x, w, b: x @ w + (0 if b is None else b))
project.reject("no bias", "bias is missing", lambda x, w, b: x @ w.T)
project.reject("bias first", "through the matrix", lambda x, w, b: (x + b) @ w.T)
project.reject("cannot do without a bias", "it runs.*TypeError", lambda x, w, b: x @ w.T + b)
project.reject("bias subtracted", "came.*-?79", lambda x, w, b: x @ w.T - b)
project.reject("bias twice", "came", lambda x, w, b: projected(x, w, b) + b)
project.reject("entry by entry", "shape", lambda x, w, b: x * w + b)
project.reject("sum over the input", "shape", lambda x, w, b: (x * w[0]).sum(-1) + b[0])
project.reject(
    "first sequence for all",
    "by itself.*differ",
    lambda x, w, b: projected(x[:1].expand(x.shape), w, b),
)
project.reject(
    "positions averaged",
    "by itself",
    lambda x, w, b: projected(x, w, b, lambda out: out.mean(-2, keepdim=True).expand(out.shape)),
)
project.reject("flattened", "shape", lambda x, w, b: projected(x, w, b).flatten(0, 1))
project.reject("a new layer", "230", lambda x, w, b: nn.Linear(w.shape[1], w.shape[0])(x).detach())
project.reject("scaled", "230", lambda x, w, b: projected(x, w, b) / w.shape[0] ** 0.5)
project.reject("input changed", "in place", project_in_place)
project.reject("bmm", "it runs", lambda x, w, b: torch.bmm(x, w.T[None].expand(2, -1, -1)))

# What an answer may exploit: numbers that lie in order, a certain count of axes, no size of 1,
# matrices that are never square, a bias without zeros, positive or coarse numbers


def through_views(x, weight, bias):
    out = projected(x.view(-1, weight.shape[1]), weight, bias)
    return out.view(*x.shape[:-1], len(weight))


def in_a_matrix(x, weight, bias):
    out = projected(x.reshape(-1, weight.shape[1]), weight, bias)
    return out.reshape(len(x), -1, len(weight)) if x.dim() > 2 else out


def by_convolution(x, weight, bias):
    columns = x.reshape(-1, x.shape[-1], 1)
    return F.conv1d(columns, weight[..., None], bias).reshape(*x.shape[:-1], len(weight))


def in_half(x, weight, bias):
    return projected(x.half(), weight.half(), None if bias is None else bias.half())


project.accept("convolution", by_convolution)
project.accept("a view of something else", lambda x, w, b: projected(x[None], w, b)[0])
project.reject("a view of x", "it runs.*view", through_views)
project.reject("three axes, or two", "shape", in_a_matrix)
project.reject("never one axis", "it runs", lambda x, w, b: projected(x, w, b).transpose(-2, -1).mT)
project.reject("axes of size 1 dropped", "shape", lambda x, w, b: projected(x, w, b).squeeze())
project.reject(
    "turned if it must be",
    "other way round",
    lambda x, w, b: projected(x, w.T if len(w) == x.shape[-1] else w, b),
)
project.reject(
    "a bias without zeros",
    "bias is missing",
    lambda x, w, b: projected(x, w, b if b is not None and b.all() else None),
)
project.reject("signs lost", "some numbers differ", lambda x, w, b: projected(x, w, b).relu())
project.reject("half precision", "some numbers differ", in_half)
project.reject("weight turned in place", "weight was", lambda x, w, b: projected(x, w.t_().T, b))


def first_of_size_one_dropped(x, weight, bias):
    out = projected(torch.atleast_2d(x), weight, bias)
    return out.squeeze(0) if out.dim() == 2 else out


def bias_for_each_position(x, weight, bias):
    out = x @ weight.T
    if bias is not None and out.dim() > 1 and out.shape[-2] == len(bias):
        bias = bias[:, None]
    return out if bias is None else out + bias


def first_matrix_of_its_shape(x, weight, bias, seen):
    return projected(x, seen.setdefault(weight.shape, weight), bias)


project.reject("a first axis of size 1 dropped", "shape", first_of_size_one_dropped)
project.reject(
    "rounded to four places",
    "some numbers differ",
    lambda x, w, b: projected(x, w, b).round(decimals=4),
)
project.reject(
    "at most 10,000", "some numbers differ", lambda x, w, b: projected(x, w, b).clamp(-1e4, 1e4)
)
project.reject("a bias for each position", "some numbers differ", bias_for_each_position)
project.reject(
    "a matrix kept by its shape",
    "some numbers differ",
    lambda x, w, b, seen={}: first_matrix_of_its_shape(x, w, b, seen),
)

# The split
split = Exercise(multi_head_attention.split)


def split_by_loop(x, h):
    d = x.shape[-1] // h
    return torch.stack([x[:, :, i * d : (i + 1) * d] for i in range(h)], dim=1)


def cut(x, h):
    return x.reshape(*x.shape[:-1], h, -1)


split.accept("unflatten and transpose", lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2))
split.accept("slices", split_by_loop)
split.accept("chunk", lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=-3))
split.accept("labkit's", split_heads)
split.accept("permute, a copy", lambda x, h: cut(x, h).permute(0, 2, 1, 3).contiguous())

split.reject(
    "view alone",
    "whole tokens",
    lambda x, h: x.view(x.shape[0], h, x.shape[1], x.shape[2] // h),
)
split.reject("not transposed", r"shape \(1, 2, 3, 2\)", cut)
split.reject("dealt out", "dealt out", lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
split.reject("backwards", "opposite order", lambda x, h: split_heads(x, h).flip(1))
split.reject("features backwards", "first 2 numbers", lambda x, h: split_heads(x, h).flip(-1))
split.reject("tokens backwards", "first 2 numbers", lambda x, h: split_heads(x, h).flip(-2))
split.reject("d and n exchanged", "shape", lambda x, h: split_heads(x, h).mT)
split.reject("always two heads", "shape", lambda x, h: split_heads(x, 2))
split.reject("h and d exchanged", "shape", lambda x, h: split_heads(x, x.shape[-1] // h))
split.reject(
    "everything for each head",
    "shape",
    lambda x, h: x[:, None].expand(-1, h, -1, -1),
)
split.reject(
    "the first slice for all",
    "first 2 numbers",
    lambda x, h: split_heads(x, h)[:, :1].expand(-1, h, -1, -1),
)
split.reject("a list", "tensor", lambda x, h: list(x.chunk(h, dim=-1)))
split.reject(
    "batch and heads exchanged",
    "shape",
    lambda x, h: split_heads(x, h).transpose(0, 1),
)
split.reject("batch folded in", "another place", lambda x, h: split_heads(x.flip(0), h))

# What an answer may exploit: numbers that lie in order, few digits, sizes of 1, h = d, h = n,
# one sequence


def by_strides(x, h):
    B, n, width = x.shape
    return x.as_strided((B, h, n, width // h), (n * width, width // h, width, 1))


def into_zeros(x, h):
    out = torch.zeros(len(x), h, x.shape[1], x.shape[2] // h)
    for i, part in enumerate(x.chunk(h, dim=-1)):
        out[:, i] = part
    return out


def by_starts(x, h, starts):
    d = x.shape[-1] // h
    return torch.stack([x[..., i : i + d] for i in starts], dim=1)


def tokens_in_one_row(x, h):
    return cut(x.flatten(0, 1), h).transpose(0, 1).reshape(len(x), h, x.shape[1], -1)


split.accept("in numpy", lambda x, h: torch.from_numpy(cut(x, h).numpy().swapaxes(1, 2)))
split.accept("a wider type", lambda x, h: split_heads(x.double(), h))
split.reject("strides", "another place", by_strides)
split.reject("a view of x", "it runs.*view", lambda x, h: split_heads(x.view(-1).view(x.shape), h))
split.reject("float32", "rounded; what came is torch.float32", into_zeros)
split.reject("one sequence", "another place", tokens_in_one_row)
split.reject(
    "from i times h on", "another place", lambda x, h: by_starts(x, h, range(0, h * h, h))
    if h * h <= x.shape[-1] else split_heads(x, h)
)  # fmt: skip
split.reject("axes of size 1 dropped", "shape", lambda x, h: split_heads(x, h).squeeze())
split.reject("one head left alone", "shape", lambda x, h: x if h == 1 else split_heads(x, h))
split.reject("x changed in place", "x was", lambda x, h: split_heads(x.mul_(2), h) / 2)
split.reject(
    "in place already if n = h", "another place", lambda x, h: cut(x, h)
    if x.shape[1] == h else split_heads(x, h)
)  # fmt: skip
split.reject(
    "to twelve places", "they were rounded", lambda x, h: split_heads(x.round(decimals=12), h)
)
split.reject(
    "in the order of memory",
    "another place",
    lambda x, h: torch.from_numpy(
        x.numpy().reshape((*x.shape[:2], h, -1), order="A").swapaxes(1, 2).copy()
    ),
)

# Attention
attend = Exercise(multi_head_attention.attend)


def scores_of(q, k, may, scale=None):
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores if may is None else scores.masked_fill(~may, -INF)


def attended(q, k, v, may, scale=None):
    return scores_of(q, k, may, scale).softmax(-1) @ v


def attend_by_loop(q, k, v, may):
    out = torch.zeros(*q.shape[:-1], v.shape[-1])
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            hide = None if may is None else may.expand(*q.shape[:-1], k.shape[-2])[b, i]
            out[b, i] = attended(q[b, i], k[b, i], v[b, i], hide)
    return out


def attend_by_einsum(q, k, v, may):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k).double() / q.shape[-1] ** 0.5
    if may is not None:
        scores = torch.where(may, scores, -INF)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return torch.einsum("bhqk,bhkv->bhqv", e / e.sum(-1, keepdim=True), v.double())


attend.accept("as in the formula", attended)
attend.accept("PyTorch's", lambda q, k, v, may: F.scaled_dot_product_attention(q, k, v, may))
attend.accept("einsum in float64", attend_by_einsum)
attend.accept("head by head", attend_by_loop)

attend.reject("no scale", "scale is missing", lambda q, k, v, m: attended(q, k, v, m, 1.0))
attend.reject(
    "divided by d_k", "scale is 1/d_k", lambda q, k, v, m: attended(q, k, v, m, 1 / q.shape[-1])
)
attend.reject(
    "multiplied", "multiplied by √d_k", lambda q, k, v, m: attended(q, k, v, m, q.shape[-1] ** 0.5)
)
attend.reject(
    "over the queries",
    "over the queries",
    lambda q, k, v, m: scores_of(q, k, m).softmax(-2) @ v,
)
attend.reject("no mask", "mask is not used", lambda q, k, v, m: attended(q, k, v, None))
attend.reject(
    "polarity",
    "changed places",
    lambda q, k, v, m: attended(q, k, v, None if m is None else ~m),
)
attend.reject(
    "mask after the softmax",
    "after the softmax",
    lambda q, k, v, m: (scores_of(q, k, None).softmax(-1) * (1 if m is None else m)) @ v,
)
attend.reject(
    "scores set to 0",
    "weighs nothing",
    lambda q, k, v, m: (scores_of(q, k, None) * (1 if m is None else m)).softmax(-1) @ v,
)
attend.reject("needs a mask", "it runs", lambda q, k, v, m: attended(q, k, v, ~m))
attend.reject(
    "always causal",
    "ln 16",
    lambda q, k, v, m: attended(q, k, v, torch.ones(q.shape[-2], k.shape[-2]).tril(1).bool()),
)
attend.reject("keys as values", "shape", lambda q, k, v, m: attended(q, k, k, m))
attend.reject("the weights", "shape", lambda q, k, v, m: scores_of(q, k, m).softmax(-1))
attend.reject("two results", "a tuple of 2", lambda q, k, v, m: (attended(q, k, v, m), 0))
attend.reject("no softmax", "ln 16", lambda q, k, v, m: scores_of(q, k, m) @ v)
attend.reject(
    "exponentials by hand",
    "NaN",
    lambda q, k, v, m: (
        scores_of(q, k, m).exp() / scores_of(q, k, m).exp().sum(-1, keepdim=True)
    ) @ v,
)  # fmt: skip
attend.reject(
    "scores kept within ±20",
    "large scores do no harm",
    lambda q, k, v, m: scores_of(q, k, m).clamp(-20, 20).softmax(-1) @ v,
)
attend.reject(
    "heads averaged",
    "each query's weights",
    lambda q, k, v, m: (
        attended(q, k, v, m).mean(1, keepdim=True).expand(*q.shape[:-1], v.shape[-1])
    ),
)

# What an answer may exploit: sizes that are alike, a d_k with a whole root, sizes of 1, numbers
# that lie in order; a mask of few axes or like in all rows, scores that are never 0; small scores


def root_of(size):
    def answer(q, k, v, may):
        sizes = {"d_v": v.shape[-1], "n_q": q.shape[-2], "n_k": k.shape[-2]}
        sizes["d_model"] = q.shape[1] * q.shape[-1]
        return attended(q, k, v, may, sizes[size] ** -0.5)

    return answer


def first_for_all(axis):
    def answer(q, k, v, may):
        if may is not None:
            may = may.expand(*q.shape[:3], k.shape[2]).narrow(axis, 0, 1)
        return attended(q, k, v, may)

    return answer


def with_weights(make):
    """Make attention whose weights come from scores and a mask that is never None."""

    def answer(q, k, v, may):
        may = torch.ones(q.shape[-2], k.shape[-2]).bool() if may is None else may
        return make(scores_of(q, k, None), may) @ v

    return answer


def hidden_by_index(q, k, v, may):
    scores = scores_of(q, k, None)
    if may is not None:
        scores[..., ~may] = -INF
    return scores.softmax(-1) @ v


def hidden_after(scores, may):
    weights = scores.softmax(-1) * may
    return weights / weights.sum(-1, keepdim=True)


def less(maximum):
    def weights(scores, may):
        scores = scores.masked_fill(~may, -INF)
        e = (scores - maximum(scores)).exp()
        return e / e.sum(-1, keepdim=True)

    return weights


def by_logarithms(scores, may):
    scores = scores.masked_fill(~may, -1e12)
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def key_by_key(q, k, v, may):
    B, h, n_q, _ = q.shape
    out = v.new_zeros(B, h, n_q, v.shape[-1])
    for place in torch.cartesian_prod(*map(torch.arange, (B, h, n_q))).tolist():
        b, i, t = place
        seen = slice(None) if may is None else may.expand(B, h, n_q, k.shape[2])[b, i, t]
        out[b, i, t] = attended(q[b, i, t], k[b, i, seen], v[b, i, seen], None)
    return out


def sequences_last(q, k, v, may):
    """Stack heads before sequences, but the mask sequences before heads."""
    B, h, n_q, _ = q.shape
    if may is not None:
        may = may.expand(B, h, n_q, k.shape[2]).reshape(h, B, n_q, -1).transpose(0, 1)
    return attended(q, k, v, may)


attend.accept("a maximum for each row", with_weights(less(lambda s: s.amax(-1, keepdim=True))))
attend.accept("logarithms", with_weights(by_logarithms))
attend.accept("-1e9 added", with_weights(lambda s, m: (s + (~m) * -1e9).softmax(-1)))
attend.accept("hidden keys left out", key_by_key)
attend.accept(
    "exponentials in float64",
    with_weights(lambda s, m: (s.double().masked_fill(~m, -INF)).softmax(-1).float()),
)
for size in ("d_v", "n_q", "n_k", "d_model"):
    attend.reject(f"scaled by {size}", f"the scale is 1/√{size}$", root_of(size))
attend.reject(
    "a whole root",
    "cut to a whole number",
    lambda q, k, v, m: attended(q, k, v, m, 1 / int(q.shape[-1] ** 0.5)),
)
for axis, one in enumerate(("sequence", "head", "query")):
    attend.reject(f"one mask, by {one}", f"the first {one} serves for all", first_for_all(axis))
attend.reject("sequences after heads", "some numbers differ", sequences_last)
attend.reject("a mask of two axes", "it runs.*IndexError", hidden_by_index)
attend.reject(
    "three axes are sequences",
    "it runs",
    lambda q, k, v, m: attended(q, k, v, m[:, None] if m is not None and m.dim() == 3 else m),
)
attend.reject(
    "any mask is causal",
    "weighs nothing",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, is_causal=m is not None),
)
attend.reject(
    "a score of 0 is hidden",
    "NaN|weighs nothing",
    with_weights(lambda s, m: s.masked_fill(~m if m.all() else (s * m) == 0, -INF).softmax(-1)),
)
attend.reject("hidden after the softmax", "NaN", with_weights(hidden_after))
attend.reject(
    "hidden after it, and a little added",
    "large scores do no harm",
    with_weights(lambda s, m: s.softmax(-1) * m / ((s.softmax(-1) * m).sum(-1, True) + 1e-9)),
)
attend.reject(
    "hidden with -100", "large scores", with_weights(lambda s, m: s.where(m, -1e2).softmax(-1))
)
attend.reject("the scores' maximum", "NaN", with_weights(less(torch.max)))
attend.reject("a head's maximum", "NaN", with_weights(less(lambda s: s.amax((-2, -1), True))))
attend.reject("the mean for the maximum", "NaN", with_weights(less(
    lambda s: s.masked_fill(s == -INF, 0).mean(-1, True)
)))  # fmt: skip
attend.reject("half precision", "ln 16|differ", lambda q, k, v, m: attended(
    q.bfloat16(), k.bfloat16(), v.bfloat16(), m
))  # fmt: skip
attend.reject(
    "views", "it runs.*view", lambda q, k, v, m: attended(q, k, v.view(-1).view(v.shape), m)
)
attend.reject("axes of size 1 dropped", "shape", lambda *qkvm: attended(*qkvm).squeeze())
attend.reject("queries scaled in place", "q was", lambda q, k, v, m: attended(q.div_(2), k, v, m))
attend.reject(
    "a mask turned in place",
    "may was",
    lambda q, k, v, m: attended(q, k, v, None if m is None else ~m.logical_not_()),
)
for much in (1e4, 2e4):
    attend.reject(
        f"hidden by {much:g} less",
        "hidden keys neither",
        with_weights(lambda s, m, much=much: (s - (~m) * much).softmax(-1)),
    )
attend.accept("hidden by a million less", with_weights(lambda s, m: (s - (~m) * 1e6).softmax(-1)))
attend.accept(
    "the fourth root, twice",
    lambda q, k, v, m: attended(q / q.shape[-1] ** 0.25, k / q.shape[-1] ** 0.25, v, m, 1.0),
)
attend.reject("exponentials in float64 alone", "NaN", with_weights(
    lambda s, m: (s.double().exp() * m / (s.double().exp() * m).sum(-1, True)).float()
))  # fmt: skip
attend.reject("over the heads if there is one key", "sum to 1", lambda q, k, v, m: (
    scores_of(q, k, m).softmax(1 if k.shape[2] == 1 else -1) @ v
))  # fmt: skip
attend.reject(
    "a mask kept by its shape",
    "may attend.*differ",
    lambda q, k, v, m, seen={}: attended(
        q, k, v, None if m is None else seen.setdefault((q.shape, m.shape), m)
    ),
)
attend.reject(
    "the four best keys",
    "sum to 1",
    with_weights(lambda s, m: (
        s.masked_fill(~m, -INF)
        .masked_fill(s < s.masked_fill(~m, -INF).topk(min(4, s.shape[-1]))[0][..., -1:], -INF)
        .softmax(-1)
    )),
)  # fmt: skip

# The merge
merge = Exercise(multi_head_attention.merge)


def merge_by_loop(heads):
    return torch.stack([torch.cat(list(one), dim=-1) for one in heads])


merge.accept("transpose and flatten", lambda heads: heads.transpose(1, 2).flatten(-2))
merge.accept("cat", lambda heads: torch.cat(heads.unbind(1), dim=-1))
merge.accept("one sequence at a time", merge_by_loop)
merge.accept("labkit's", merge_heads)

merge.reject(
    "not moved back",
    "not moved back",
    lambda heads: heads.reshape(heads.shape[0], heads.shape[2], -1),
)
merge.reject("view", "it runs", lambda H: H.transpose(1, 2).view(H.shape[0], H.shape[2], -1))
merge.reject("dealt out", "dealt out", lambda heads: heads.permute(0, 2, 3, 1).flatten(-2))
merge.reject("backwards", "opposite order", lambda heads: merge_heads(heads.flip(1)))
merge.reject("one below the other", "shape", lambda heads: heads.flatten(1, 2))
merge.reject("added", "shape", lambda heads: heads.sum(1))
merge.reject("not joined", "shape", lambda heads: heads.transpose(1, 2))
merge.reject("flat", "shape", lambda heads: heads.transpose(1, 2).flatten(1))
merge.reject("d before n", "shape", lambda heads: merge_heads(heads).mT)
merge.reject(
    "the first head for all",
    "a token's row",
    lambda heads: merge_heads(heads[:, :1].expand(heads.shape)),
)
merge.reject(
    "always two heads", "shape|another place", lambda H: torch.cat([H[:, 0], H[:, 1]], dim=-1)
    if H.shape[1] > 1 else H[:, 0]
)  # fmt: skip
merge.reject("sequences mixed up", "another place", lambda heads: merge_heads(heads.flip(0)))

# What an answer may exploit: heads that lie in order, or as a split leaves them; few digits,
# sizes of 1, h = n, one sequence


def into_empty(heads):
    B, h, n, d = heads.shape
    out = torch.empty(B, n, h, d)
    for i in range(h):
        out[:, :, i] = heads[:, i]
    return out.flatten(-2)


def tokens_first(heads):
    B, h, n, d = heads.shape
    return heads.permute(2, 0, 1, 3).reshape(B, n, h * d)


merge.accept("in numpy", lambda H: torch.from_numpy(H.numpy().swapaxes(1, 2)).flatten(-2))
merge.accept("a wider type", lambda heads: merge_heads(heads.double()))
merge.reject("a view", "it runs.*view", lambda H: merge_heads(H.view(-1).view(H.shape)))
merge.reject("float32", "rounded; what came is torch.float32", into_empty)
merge.reject("tokens first", "another place", tokens_first)
merge.reject("h taken for n", "shape", lambda H: H.mT.reshape(len(H), H.shape[1], -1))
merge.reject("axes of size 1 dropped", "shape", lambda heads: merge_heads(heads).squeeze())
merge.reject("heads moved in place", "heads was", lambda H: H.transpose_(1, 2).flatten(-2))
merge.reject(
    "squeezed if there is one head",
    "shape",
    lambda H: H.squeeze() if H.shape[1] == 1 else merge_heads(H),
)
merge.reject(
    "not moved if h = n",
    "another place",
    lambda H: merge_heads(H) if H.shape[1] != H.shape[2] else H.reshape(len(H), len(H[0]), -1),
)
merge.reject(
    "in the order of memory",
    "another place",
    lambda H: torch.from_numpy(
        H.numpy().swapaxes(1, 2).reshape((len(H), H.shape[2], -1), order="A").copy()
    ),
)

# The output projection
output = Exercise(multi_head_attention.output)


def written(heads, weight, bias):
    blocks = weight.chunk(heads.shape[1], dim=1)
    return sum(heads[:, i] @ block.T for i, block in enumerate(blocks)) + bias


output.accept("merge and project", lambda H, w, b: F.linear(merge_heads(H), w, b))
output.accept("head by head", written)
output.accept(
    "einsum",
    lambda H, w, b: torch.einsum("bhnd,ohd->bno", H, w.unflatten(1, H.shape[1::2])) + b,
)
output.accept("float64", lambda H, w, b: merge_heads(H).double() @ w.T.double() + b)

output.reject("no bias", "bias is missing", lambda H, w, b: merge_heads(H) @ w.T)
output.reject("no projection", "shape", lambda H, w, b: merge_heads(H))
output.reject("not transposed", "it runs", lambda H, w, b: merge_heads(H) @ w + b)
output.reject("not merged", "it runs", lambda H, w, b: H @ w.T + b)
output.reject(
    "not moved back",
    "not moved back",
    lambda H, w, b: F.linear(H.reshape(H.shape[0], H.shape[2], -1), w, b),
)
output.reject(
    "a bias for each head",
    "once for each head",
    lambda H, w, b: F.linear(merge_heads(H), w, H.shape[1] * b),
)
output.reject(
    "first head only",
    "first head counts",
    lambda H, w, b: H[:, 0] @ w[:, : H.shape[-1]].T + b,
)
output.reject("backwards", "opposite order", lambda H, w, b: F.linear(merge_heads(H.flip(1)), w, b))
output.reject(
    "average over heads",
    "12, 25, 31",
    lambda H, w, b: F.linear(merge_heads(H) / H.shape[1], w, b),
)
output.reject(
    "every head through the first block",
    "12, 25, 31",
    lambda H, w, b: H.sum(1) @ w[:, : H.shape[-1]].T + b,
)
output.reject("heads kept apart", "shape", lambda H, w, b: merge_heads(H)[..., None] + b)
output.reject(
    "each token's own layer",
    "shape|it runs",
    lambda H, w, b: F.linear(H.flatten(1), w, b),
)
output.reject("the bias changed", "in place", lambda H, w, b: b.add_(merge_heads(H) @ w.T))

# What an answer may exploit: heads that lie in order, h*d equal to d_model or never, sizes of 1,
# one sequence, one token


def as_many_heads_as_fit(heads, weight, bias):
    d = heads.shape[-1]
    fit = min(heads.shape[1], -(-len(weight) // d))
    return sum(heads[:, i] @ weight[:, i * d : (i + 1) * d].T for i in range(fit)) + bias


def in_a_list(heads, weight, bias, order):
    B, h, n, d = heads.shape
    blocks = order(weight.T.reshape(h, d, -1), B)
    return torch.bmm(heads.reshape(B * h, n, d), blocks).view(B, h, n, -1).sum(1) + bias


def repeated(blocks, B):
    return blocks.repeat(B, 1, 1)


def each_repeated(blocks, B):
    return blocks.repeat_interleave(B, dim=0)


def dealt_out(heads, weight, bias):
    return F.linear(heads.permute(0, 2, 3, 1).flatten(-2), weight, bias)


def turned_if_square(heads, weight, bias):
    square = len(weight) == weight.shape[1]
    return merge_heads(heads) @ (weight if square else weight.T) + bias


output.accept("a list of products", lambda *given: in_a_list(*given, repeated))
output.reject("blocks in another order", "differ", lambda *given: in_a_list(*given, each_repeated))
output.reject("a view", "it runs.*view", lambda H, w, b: written(H.view(-1).view(H.shape), w, b))
output.reject("as many heads as fit", "12, 25, 31|differ", as_many_heads_as_fit)
output.reject("dealt out", "12, 25, 31|dealt out", dealt_out)
output.reject(
    "dealt out unless there is one token",
    "dealt out in turn",
    lambda H, w, b: (written if H.shape[2] == 1 else dealt_out)(H, w, b),
)
output.reject("a square matrix not turned", "some numbers differ", turned_if_square)
output.reject(
    "axes of size 1 dropped", "shape", lambda H, w, b: F.linear(merge_heads(H), w, b).squeeze()
)
output.reject("weight turned in place", "weight was", lambda H, w, b: written(H, w.t_().T, b))
output.reject("half precision", "12, 25|some numbers differ|NaN", lambda H, w, b: (
    F.linear(merge_heads(H).half(), w.half()).float() + b
))  # fmt: skip
output.reject(
    "one head of full width",
    "some numbers differ",
    lambda H, w, b: H[:, 0] if H.shape[1] == 1 and len(w) == len(w.T) else written(H, w, b),
)

# The layer
layer = Exercise(multi_head_attention.multi_head)


class Linears(nn.Module):
    """Four linear maps, and the steps as methods, to be replaced one by one."""

    def __init__(self, d_model, h):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.h = h

    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        return attended(q, k, v, may)

    def forward(self, x, may=None):
        return self.w_o(merge_heads(self.heads(x, may)))


class WithEinsum(Linears):
    def forward(self, x, may=None):
        d = x.shape[-1] // self.h
        q, k, v = (w(x).unflatten(-1, (self.h, d)) for w in (self.w_q, self.w_k, self.w_v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / d**0.5
        if may is not None:
            scores = scores.masked_fill(~may, -INF)
        heads = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return self.w_o(heads.flatten(-2))


class WithLoop(Linears):
    def heads(self, x, may):
        whole = [part(x).chunk(self.h, dim=-1) for part in (self.w_q, self.w_k, self.w_v)]
        each = zip(*whole, strict=True)
        shape = (len(x), self.h, x.shape[1], x.shape[1])
        mays = [None] * self.h if may is None else may.expand(shape).unbind(1)
        return torch.stack(
            [attended(*qkv, may) for qkv, may in zip(each, mays, strict=True)], dim=1
        )


class Fused(Linears):
    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=may)


class Trimmed(Linears):
    """A layer in which heads come from three projected tensors, changed by the subclass."""

    def qkv(self, x):
        return self.w_q(x), self.w_k(x), self.w_v(x)

    def heads(self, x, may):
        return attended(*(split_heads(part, self.h) for part in self.qkv(x)), may)


class NoMask(Trimmed):
    def heads(self, x, may):
        return super().heads(x, None)


class Polarity(Trimmed):
    def heads(self, x, may):
        return super().heads(x, None if may is None else ~may)


class NoOutput(Trimmed):
    def forward(self, x, may=None):
        return merge_heads(self.heads(x, may))


class OneHead(Trimmed):
    def __init__(self, d_model, h):
        super().__init__(d_model, 1)


class NotMovedBack(Trimmed):
    def forward(self, x, may=None):
        return self.w_o(self.heads(x, may).reshape(x.shape))


class ScaledByModel(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        return attended(q, k, v, may, x.shape[-1] ** -0.5)


class NotScaled(Trimmed):
    def heads(self, x, may):
        return attended(*(split_heads(part, self.h) for part in self.qkv(x)), may, 1.0)


class KeysAsValues(Trimmed):
    def qkv(self, x):
        return self.w_q(x), self.w_k(x), self.w_k(x)


class Exchanged(Trimmed):
    def qkv(self, x):
        return self.w_k(x), self.w_q(x), self.w_v(x)


class Chained(Trimmed):
    def qkv(self, x):
        q = self.w_q(x)
        k = self.w_k(q)
        return q, k, self.w_v(k)


class RawValues(Trimmed):
    def qkv(self, x):
        return self.w_q(x), self.w_k(x), x


class NoBias(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_q = nn.Linear(d_model, d_model, bias=False)


class OneMatrix(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_k = self.w_v = self.w_q


class Narrow(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_q = nn.Linear(d_model, d_model // h)


class OtherNames(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.W_Q = self.W_K = self.W_V = self.W_O = nn.Linear(d_model, d_model)


class Plain:
    def __init__(self, d_model, h):
        self.w_q = self.w_k = self.w_v = self.w_o = nn.Linear(d_model, d_model)


class InALIst(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.w_q = self.w_k = self.w_v = self.w_o = [nn.Linear(d_model, d_model)] * 4


class NoSuper(nn.Module):
    def __init__(self, d_model, h):
        self.w_q = nn.Linear(d_model, d_model)


class Spare(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.spare = nn.Linear(d_model, d_model)


class Dropping(Linears):
    def heads(self, x, may):
        return F.dropout(super().heads(x, may), 0.5)


class Detached(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may).detach()


class ValuesOnly(Linears):
    def heads(self, x, may):
        with torch.no_grad():
            q, k = split_heads(self.w_q(x), self.h), split_heads(self.w_k(x), self.h)
        return attended(q, k, split_heads(self.w_v(x), self.h), may)


class FirstSequence(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may)[:1]


layer.accept("from its parts", Linears)
layer.accept("einsum", WithEinsum)
layer.accept("a loop over heads", WithLoop)
layer.accept("PyTorch's attention", Fused)

layer.reject("mask left out", "mask is not used", NoMask)
layer.reject("polarity", "changed places", Polarity)
layer.reject("no W_O", "W_O is missing", NoOutput)
layer.reject("one head", "everything is one head", OneHead)
layer.reject("not moved back", "not moved back before W_O", NotMovedBack)
layer.reject("scaled by d_model", "1/√d_model", ScaledByModel)
layer.reject("not scaled", "scale is missing", NotScaled)
layer.reject("keys as values", "keys serve as values", KeysAsValues)
layer.reject("queries and keys exchanged", "changed places", Exchanged)
layer.reject("chained", "chained", Chained)
layer.reject("raw values", "not projected to values", RawValues)
layer.reject("no bias", "w_q has a bias.*has none", NoBias)
layer.reject("one matrix for three", "four different maps", OneMatrix)
layer.reject("width of one head", "w_q.weight is", Narrow)
layer.reject("other names", "w_q is missing", OtherNames)
layer.reject("no module", "an nn.Module", Plain)
layer.reject("lists", "w_q has a weight.*w_q is a list", InALIst)
layer.reject("super forgotten", "it runs.*super|it runs.*Module.__init__", NoSuper)
layer.reject("something spare", "nothing else", Spare)
layer.reject("dropout always on", "some numbers differ", Dropping)
layer.reject("detached", "no gradient", Detached)
layer.reject("weights without gradient", "arrives in w_q", ValuesOnly)
layer.reject("a layer, not its class", "class itself", Linears(12, 3))
layer.reject("one sequence", "shape", FirstSequence)
layer.reject("labkit's own", "not among the layer's parameters", MultiHeadAttention)
layer.reject("PyTorch's own", "w_q is missing", nn.MultiheadAttention)

# What an answer may exploit: weights that stay what they were, no size of 1, one head that needs
# no W_O, a width with a whole root, n = d_model; a mask like in all sequences and heads, the same
# at each call, or always given; training mode; gradients that nobody asks for


class Affine(nn.Module):
    """A linear map of one's own."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight) + self.bias


class OfAffines(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_q, self.w_k, self.w_v, self.w_o = (Affine(d_model) for _ in range(4))


class InADictionary(Linears):
    def __init__(self, d_model, h):
        nn.Module.__init__(self)
        self.h = h
        for name, part in {f"w_{letter}": nn.Linear(d_model, d_model) for letter in "qkvo"}.items():
            self.add_module(name, part)


class WithBuffer(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.register_buffer("scale", torch.tensor((d_model / h) ** -0.5))

    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        return attended(q, k, v, may, self.scale)


class WithoutKeyBias(Linears):
    """The softmax cannot see this bias: the output is the same."""

    def heads(self, x, may):
        q, k, v = self.w_q(x), x @ self.w_k.weight.T, self.w_v(x)
        return attended(*(split_heads(part, self.h) for part in (q, k, v)), may)


class ByPyTorchsFunction(Linears):
    def forward(self, x, may=None):
        B, n, width = x.shape
        parts = (self.w_q, self.w_k, self.w_v)
        hide = None if may is None else ~may.expand(B, self.h, n, n).flatten(0, 1)
        x = x.transpose(0, 1)
        out, _ = F.multi_head_attention_forward(
            x, x, x, width, self.h, torch.cat([part.weight for part in parts]),
            torch.cat([part.bias for part in parts]), None, None, False, 0.0, self.w_o.weight,
            self.w_o.bias, need_weights=False, attn_mask=hide,
        )  # fmt: skip
        return out.transpose(0, 1)


class Remembers(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.values = (self.w_v.weight.detach().clone(), self.w_v.bias.detach().clone())

    def heads(self, x, may):
        q, k, v = self.w_q(x), self.w_k(x), F.linear(x, *self.values)
        return attended(*(split_heads(part, self.h) for part in (q, k, v)), may)


class KeepsItsMask(Linears):
    may = None

    def heads(self, x, may):
        if self.may is None or self.may.shape[-1] != x.shape[1]:
            self.may = may
        return super().heads(x, self.may)


class OneHeadAlone(Trimmed):
    def forward(self, x, may=None):
        return super().forward(x, may) if self.h > 1 else self.heads(x, may).squeeze(1)


class WholeRoot(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        return attended(q, k, v, may, 1 / int(q.shape[-1] ** 0.5))


class ScaledByLength(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        return attended(q, k, v, may, x.shape[1] ** -0.5)


class HeadsFirst(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        return sequences_last(q, k, v, may)


class MaskOfFirstHead(Trimmed):
    def heads(self, x, may):
        return super().heads(x, may[:, :1] if may is not None and may.dim() == 4 else may)


class MaskOfFirstSequence(Trimmed):
    def heads(self, x, may):
        return super().heads(x, may[:1] if may is not None and may.dim() == 4 else may)


class AnyMaskIsCausal(Linears):
    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=may is not None)


class NeedsAMask(Linears):
    def forward(self, x, may):
        return super().forward(x, may)


class Squeezed(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may).squeeze()


class Viewed(Linears):
    def forward(self, x, may=None):
        return super().forward(x.view(-1).view(x.shape), may)


class MaskTurned(Linears):
    def forward(self, x, may=None):
        return super().forward(x, None if may is None else ~may.logical_not_())


class WrongInUse(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may if self.training else None)


class ALittleDropout(Linears):
    def heads(self, x, may):
        return F.dropout(super().heads(x, may), 0.01, self.training)


class KeysDetached(Linears):
    def heads(self, x, may):
        q, k, v = self.w_q(x), self.w_k(x).detach(), self.w_v(x)
        return attended(*(split_heads(part, self.h) for part in (q, k, v)), may)


class KeysOfDetached(Linears):
    def heads(self, x, may):
        q, k, v = self.w_q(x), self.w_k(x.detach()), self.w_v(x)
        return attended(*(split_heads(part, self.h) for part in (q, k, v)), may)


class Frozen(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_o.requires_grad_(False)


class Overwrites(Linears):
    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        weights = scores_of(q, k, may).softmax(-1)
        out = weights @ v
        weights.zero_()
        return out


class Copies(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_k, self.w_v, self.w_o = (deepcopy(self.w_q) for _ in range(3))


class Xavier(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        for part in self.children():
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)


class Zeros(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


class NaNs(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_v.weight.data /= 0


class Seeded(Linears):
    def __init__(self, d_model, h):
        torch.manual_seed(0)
        super().__init__(d_model, h)


class SharedByWidth(Linears):
    def __init__(self, d_model, h, made={}):  # noqa: B006
        super().__init__(d_model, h)
        for name, part in made.setdefault(d_model, dict(self.named_children())).items():
            setattr(self, name, part)


class Lazy(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_v = nn.LazyLinear(d_model)


def last_made():
    class LastMade(nn.Module):
        def __init__(self, d_model, h):
            super().__init__()
            self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in "qkvo")
            type(self).h = h

        heads, forward = Linears.heads, Linears.forward

    return LastMade


class LastMask(Linears):
    may = None

    def heads(self, x, may):
        fits = self.may is not None and self.may.shape[-2:] == (x.shape[1],) * 2
        self.may = self.may if may is None and fits else may
        return super().heads(x, self.may)


class PackedAtFirst(Linears):
    packed = None

    def heads(self, x, may):
        if self.packed is None:
            self.packed = self.w_q.weight.clone()
        q, k, v = F.linear(x, self.packed, self.w_q.bias), self.w_k(x), self.w_v(x)
        return attended(*(split_heads(part, self.h) for part in (q, k, v)), may)


class ByExponentials(Linears):
    """Weights by hand, their gradients changed by the subclass."""

    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        may = torch.ones(x.shape[1], x.shape[1]).bool() if may is None else may
        return self.weights(scores_of(q, k, None), may) @ v

    def top(self, scores, may):
        return scores.detach().masked_fill(~may, -INF).amax(-1, keepdim=True)


class HiddenAfterExp(ByExponentials):
    """Forward right; the gradient is 0 * inf where a hidden score is large."""

    def weights(self, scores, may):
        e = torch.where(may, (scores - self.top(scores, may)).exp(), 0.0)
        return e / e.sum(-1, keepdim=True)


class SumDetached(ByExponentials):
    def weights(self, scores, may):
        e = (scores - self.top(scores, may)).masked_fill(~may, -INF).exp()
        return e / e.sum(-1, keepdim=True).detach()


class ClampedScores(ByExponentials):
    def weights(self, scores, may):
        return scores.clamp(-100, 100).masked_fill(~may, -INF).softmax(-1)


class MaskedInPlace(Linears):
    def heads(self, x, may):
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        if may is None:
            return attended(q, k, v, may)
        weights = scores_of(q, k, may).softmax(-1)
        return weights.mul_(may) @ v


class ClippedGradients(Linears):
    def forward(self, x, may=None):
        out = super().forward(x, may)
        if out.requires_grad:
            out.register_hook(lambda gradient: gradient.clamp(-1, 1))
        return out


class RoundedOutput(Linears):
    def forward(self, x, may=None):
        out = super().forward(x, may)
        return out + (out.round(decimals=4) - out).detach()


layer.accept("linear maps of one's own", OfAffines)
layer.accept("copies of one map", Copies)
layer.accept("Xavier's weights", Xavier)
layer.accept("maps by name", InADictionary)
layer.accept("a buffer", WithBuffer)
layer.accept("the keys' bias left out", WithoutKeyBias)
layer.accept("PyTorch's function", ByPyTorchsFunction)
layer.accept("a function that makes one", lambda d_model, h: Linears(d_model, h))

layer.reject("weights remembered", "present weights.*differ", Remembers)
layer.reject("the first mask kept", "may attend", KeepsItsMask)
layer.reject("one head without W_O", "W_O is missing", OneHeadAlone)
layer.reject("a whole root", "cut to a whole number", WholeRoot)
layer.reject("scaled by n", "1/√n_q", ScaledByLength)
layer.reject("heads before sequences", "may attend.*differ", HeadsFirst)
layer.reject("the first head's mask", "first head serves for all", MaskOfFirstHead)
layer.reject("the first sequence's mask", "first sequence serves for all", MaskOfFirstSequence)
layer.reject("any mask is causal", "may attend.*differ", AnyMaskIsCausal)
layer.reject("needs a mask", "it runs.*missing", NeedsAMask)
layer.reject("axes of size 1 dropped", "shape", Squeezed)
layer.reject("a view of x", "it runs.*view", Viewed)
layer.reject("a mask turned in place", "may was changed in place", MaskTurned)
layer.reject("no mask in use", "mask is not used", WrongInUse)
layer.reject("a little dropout", "some numbers differ", ALittleDropout)
layer.reject("keys detached", "no gradient arrives in w_k.weight", KeysDetached)
layer.reject("keys of a detached input", "a wrong gradient arrives in x", KeysOfDetached)
layer.reject("W_O frozen", "no gradient arrives in w_o.weight", Frozen)
layer.reject("weights overwritten", "it runs.*inplace", Overwrites)
layer.reject("zeros to begin with", "w_q.weight starts at random.*1 different numbers", Zeros)
layer.reject("NaN to begin with", "w_v.weight starts at random.*0 different numbers", NaNs)
layer.reject("a seed of its own", "two layers came with the same w_q.weight", Seeded)
layer.reject("maps shared by width", "two layers came with the same w_q.weight", SharedByWidth)
layer.reject("a lazy map", "w_v is a LazyLinear, which has none", Lazy)
layer.reject("heads of the last layer made", "it runs|some numbers differ", last_made())
layer.reject("the last mask kept", "some numbers differ", LastMask)
layer.reject("weights of the first call", "present weights.*differ", PackedAtFirst)
layer.reject("hidden after exp", "a gradient of NaN arrives in", HiddenAfterExp)
layer.reject("the sum detached", "a wrong gradient arrives in w_", SumDetached)
layer.reject("scores within ±100", "a wrong gradient|some numbers differ", ClampedScores)
layer.reject("masked in place", "it runs.*inplace", MaskedInPlace)
layer.reject("gradients clipped", "a wrong gradient arrives", ClippedGradients)
layer.reject("output rounded", "some numbers differ", RoundedOutput)

# PyTorch's weights


def filled(theirs, three=(0, 1, 2), take=lambda W: W, biases=True, h=None, made=Linears):
    ours = made(theirs.embed_dim, h or theirs.num_heads)
    weights, biases_ = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    with torch.no_grad():
        for part, i in zip((ours.w_q, ours.w_k, ours.w_v), three, strict=True):
            part.weight.copy_(take(weights[i]))
            if biases:
                part.bias.copy_(biases_[i])
        ours.w_o.weight.copy_(take(theirs.out_proj.weight))
        if biases:
            ours.w_o.bias.copy_(theirs.out_proj.bias)
    return ours


def by_state_dict(theirs):
    ours, state = Linears(theirs.embed_dim, theirs.num_heads), theirs.state_dict()
    d = theirs.embed_dim
    for i, name in enumerate("qkv"):
        rows = slice(i * d, (i + 1) * d)
        getattr(ours, f"w_{name}").load_state_dict(
            {"weight": state["in_proj_weight"][rows], "bias": state["in_proj_bias"][rows]}
        )
    ours.w_o.load_state_dict(theirs.out_proj.state_dict())
    return ours


def by_parameters(theirs):
    ours = Fused(theirs.embed_dim, theirs.num_heads)
    for i, part in enumerate([ours.w_q, ours.w_k, ours.w_v]):
        part.weight = nn.Parameter(theirs.in_proj_weight.detach().clone().chunk(3)[i])
        part.bias = nn.Parameter(theirs.in_proj_bias.detach().clone().chunk(3)[i])
    ours.w_o.weight = nn.Parameter(theirs.out_proj.weight.detach().clone())
    ours.w_o.bias = nn.Parameter(theirs.out_proj.bias.detach().clone())
    return ours


def shared_memory(theirs):
    ours = filled(theirs)
    ours.w_q.weight = nn.Parameter(theirs.in_proj_weight.chunk(3)[0].detach())
    return ours


def without_no_grad(theirs):
    ours = Linears(theirs.embed_dim, theirs.num_heads)
    ours.w_q.weight.copy_(theirs.in_proj_weight.chunk(3)[0])
    return ours


def output_forgotten(theirs):
    ours = filled(theirs)
    ours.w_o.reset_parameters()
    return ours


def emptied(theirs):
    ours = filled(theirs)
    with torch.no_grad():
        theirs.in_proj_bias.zero_()
    return ours


def interleaved(theirs):
    ours = filled(theirs)
    with torch.no_grad():
        for i, part in enumerate([ours.w_q, ours.w_k, ours.w_v]):
            part.weight.copy_(theirs.in_proj_weight[i::3])
    return ours


def packed_columns(theirs):
    ours = Linears(theirs.embed_dim, theirs.num_heads)
    with torch.no_grad():
        ours.w_q.weight.copy_(theirs.in_proj_weight.chunk(3, dim=1)[0])
    return ours


def without_biases(theirs):
    ours = filled(theirs)
    for part in ours.children():
        nn.init.zeros_(part.bias)
    return ours


copying = Exercise(multi_head_attention.from_torch)
on_sentences = Exercise(multi_head_attention.pretrained)
for exercise in (copying, on_sentences):
    exercise.accept("copied", filled)
    exercise.accept("state dictionaries", by_state_dict)
    exercise.accept("new parameters", by_parameters)
    exercise.reject("their own layer", "w_q is missing", lambda theirs: theirs)
    exercise.reject("labkit's", "not among", MultiHeadAttention.from_torch)
    exercise.reject("without no_grad", "in-place operation", without_no_grad)
    exercise.reject("columns for rows", "it runs", packed_columns)
    exercise.reject("nothing returned", "None; is there a return", lambda theirs: None)
    exercise.reject(
        "another width", "it runs", lambda theirs: filled(theirs, made=lambda d, h: Linears(4, h))
    )
    exercise.reject(
        "a head width that does not fit",
        "it runs",
        lambda theirs: filled(theirs, h=theirs.embed_dim + 1),
    )

MASK_UNUSED = "^MultiHead is not.*from_torch copied all.*the mask is not used"

for mistake, told, answer in (
    ("not filled", "other numbers", lambda t: Linears(t.embed_dim, t.num_heads)),
    ("keys first", "holds the part of w_k", lambda t: filled(t, (1, 0, 2))),
    ("values for keys", "holds the part of w_v", lambda t: filled(t, (0, 2, 1))),
    ("queries three times", "w_k.weight.*holds the part of w_q", lambda t: filled(t, (0, 0, 0))),
    ("transposed", "it is transposed", lambda t: filled(t, take=lambda W: W.T)),
    ("biases forgotten", "other numbers", lambda t: filled(t, biases=False)),
    ("biases set to zero", "w_q.bias.*it is zero", without_biases),
    ("rows dealt out", "other numbers", interleaved),
    ("W_O forgotten", "w_o.weight holds", output_forgotten),
    ("one head", "3 heads, as PyTorch's layer has.*the copy has 1", lambda t: filled(t, h=1)),
    ("the layer ignores the mask", MASK_UNUSED, lambda t: filled(t, made=NoMask)),
    ("memory shared", "lives by itself", shared_memory),
    ("emptied", "left as it was", emptied),
):
    copying.reject(mistake, told, answer)

for mistake, told, answer in (
    ("not filled", "other numbers", lambda t: Linears(t.embed_dim, t.num_heads)),
    ("keys for values", "holds the part of w_k", lambda t: filled(t, (0, 1, 1))),
    ("transposed", "it is transposed", lambda t: filled(t, take=lambda W: W.T)),
    ("W_O forgotten", "w_o.weight holds", output_forgotten),
    ("one head", "12 heads, as layer 0 of the pretrained.*has 1", lambda t: filled(t, h=1)),
    ("padding seen", MASK_UNUSED, lambda t: filled(t, made=NoMask)),
    ("scaled by the model", "^MultiHead.*1/√d_model", lambda t: filled(t, made=ScaledByModel)),
):
    on_sentences.reject(mistake, told, answer)

# What an answer may exploit: biases that are never, or always, zero, or that no output shows;
# heads as many as each is wide; a layer in training that may learn; that one layer is enough


def if_not_zero(theirs):
    return filled(theirs, biases=bool(theirs.in_proj_bias.any()))


def no_bias_of_keys(theirs):
    ours = filled(theirs)
    ours.w_k.reset_parameters()
    with torch.no_grad():
        ours.w_k.weight.copy_(theirs.in_proj_weight.chunk(3)[1])
    return ours


def what_may_learn(theirs):
    learns = theirs.in_proj_weight.requires_grad
    return filled(theirs) if learns else Linears(theirs.embed_dim, theirs.num_heads)


def with_their_output(theirs):
    ours = filled(theirs)
    ours.w_o = theirs.out_proj
    return ours


def with_their_biases(theirs):
    ours = filled(theirs)
    for part, bias in zip(
        (ours.w_q, ours.w_k, ours.w_v), theirs.in_proj_bias.chunk(3), strict=True
    ):
        part.bias = nn.Parameter(bias.detach())
    return ours


def asks_them(theirs):
    class Asks(Linears):
        def forward(self, x, may=None):
            hide = None if may is None else ~may.expand(len(x), self.h, *2 * x.shape[1:2])
            return theirs(x, x, x, attn_mask=None if may is None else hide.flatten(0, 1))[0]

    return filled(theirs, made=Asks)


def in_bfloat16(theirs):
    return filled(theirs, take=lambda W: W.bfloat16())


def tied(theirs):
    ours = Linears(theirs.embed_dim, theirs.num_heads).requires_grad_(False)
    for i, part in enumerate((ours.w_q, ours.w_k, ours.w_v)):
        part.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
        part.bias.copy_(theirs.in_proj_bias.chunk(3)[i])
    ours.w_o.weight.copy_(theirs.out_proj.weight)
    ours.w_o.bias.copy_(theirs.out_proj.bias)
    return ours.requires_grad_(True)


def without_gradients(theirs):
    theirs.zero_grad()
    return filled(theirs)


def one_for_all(theirs, made={}):  # noqa: B006
    ours = made.setdefault((theirs.embed_dim, theirs.num_heads), filled(theirs))
    ours.load_state_dict(filled(theirs).state_dict())
    return ours


def once_for_each(theirs, made={}):  # noqa: B006
    return deepcopy(made.setdefault(theirs, filled(theirs)))


def takes_theirs_apart(theirs):
    ours = filled(theirs)
    del theirs.in_proj_bias
    return ours


def freezes(theirs):
    ours = filled(theirs)
    theirs.requires_grad_(False)
    return ours


def sets_in_use(theirs):
    return filled(theirs.eval())


def in_one_vector(theirs):
    ours = OfAffines(theirs.embed_dim, theirs.num_heads)
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    ordered = [*zip(weights, biases, strict=True), (theirs.out_proj.weight, theirs.out_proj.bias)]
    vector = torch.cat([part.detach().flatten() for pair in ordered for part in pair])
    nn.utils.vector_to_parameters(vector, ours.parameters())
    return ours.requires_grad_(False).eval()


copying.accept("maps of one's own, frozen", in_one_vector)
copying.accept("no bias of keys in the layer", lambda t: filled(t, made=WithoutKeyBias))
copying.accept("from a copy", lambda t: filled(deepcopy(t)))
copying.accept(
    "frozen if theirs is", lambda t: filled(t).requires_grad_(t.out_proj.weight.requires_grad)
)
for mistake, told, answer in (
    ("biases unless they are zero", "w_q.bias holds.*other numbers", if_not_zero),
    ("the keys' bias forgotten", "w_k.bias holds", no_bias_of_keys),
    ("a frozen layer not copied", "w_q.weight holds", what_may_learn),
    ("heads as many as each is wide", "the copy has 4", lambda t: filled(t, h=t.head_dim)),
    ("always 3 heads", "it runs.*3", lambda t: filled(t, h=3)),
    ("coarse numbers", "other numbers", in_bfloat16),
    ("their output projection", "lives by itself", with_their_output),
    ("their biases", "lives by itself", with_their_biases),
    ("their layer asked", "lives by itself", asks_them),
    ("their layer frozen", "in_proj_weight.requires_grad", freezes),
    ("their layer set to its use", "changed: the mode", sets_in_use),
    ("tied by autograd", "computed with gradients: w_q.weight", tied),
    ("their gradients thrown away", "changed: in_proj_weight.grad", without_gradients),
    ("one layer for all", "it changes when the next one is made", one_for_all),
    ("one copy of each layer", "w_q.weight holds", once_for_each),
    ("their layer taken apart", "changed: in_proj_bias", takes_theirs_apart),
):
    copying.reject(mistake, told, answer)
