"""Answers to lab 3."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn

from labkit import MultiHeadAttention, merge_heads, split_heads
from labkit.labs.multi_head_attention import check as multi_head_attention
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

project.reject("not transposed", "it runs", lambda x, w, b: x @ w + (0 if b is None else b))
project.reject("no bias", "bias is missing", lambda x, w, b: x @ w.T)
project.reject("bias first", "it runs", lambda x, w, b: (x + b) @ w.T)
project.reject("cannot do without a bias", "it runs.*TypeError", lambda x, w, b: x @ w.T + b)
project.reject("entry by entry", "it runs", lambda x, w, b: x * w + b)
project.reject(
    "first sequence for all",
    "every sequence.*differ",
    lambda x, w, b: projected(x[:1].expand(x.shape), w, b),
)
project.reject("flattened", "shape", lambda x, w, b: projected(x, w, b).flatten(0, 1))
project.reject("a new layer", "230", lambda x, w, b: nn.Linear(w.shape[1], w.shape[0])(x).detach())
project.reject("reshaped", "reshaped", lambda x, w, b: projected(x, w.reshape(w.shape[1], -1).T, b))
project.reject(
    "one axis forgotten",
    "it runs",
    lambda x, w, b: projected(x.flatten(0, -2), w, b).unflatten(0, x.shape[:-1]),
)
project.reject(
    "from the left",
    "it runs",
    lambda x, w, b: (w @ x.mT).mT + (0 if b is None else b),
)
project.reject(
    "einsum over a batch",
    "it runs",
    lambda x, w, b: torch.einsum("b...i,oi->b...o", x, w) + (0 if b is None else b),
)


def with_a_bias_of_its_own(x, weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight.data = weight
    if bias is not None:
        layer.bias.data = bias
    return layer(x).detach()


project.reject("a bias of its own", "bias is None.*differ", with_a_bias_of_its_own)
project.reject("input changed", "in place", project_in_place)
project.reject(
    "turned only if it must be",
    "weight is not transposed",
    lambda x, w, b: projected(x, w if x.shape[-1] != w.shape[0] else w.T, b),
)
project.reject(
    "bias first where it fits",
    "added before the matrix",
    lambda x, w, b: (
        (x + b) @ w.T if b is not None and len(b) == x.shape[-1] else projected(x, w, b)
    ),
)
project.reject("bmm", "it runs", lambda x, w, b: torch.bmm(x, w.T[None].expand(2, -1, -1)))


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
split.accept("permute, a copy", lambda x, h: cut(x, h).permute(0, 2, 1, 3).contiguous())

split.reject(
    "view alone",
    "whole tokens",
    lambda x, h: x.view(x.shape[0], h, x.shape[1], x.shape[2] // h),
)
split.reject("not transposed", r"shape \(1, 2, 4, 3\).*still behind", cut)
split.reject("dealt out", "dealt out", lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
split.reject("d and n exchanged", "shape", lambda x, h: split_heads(x, h).mT)
split.reject("always two heads", "shape", lambda x, h: split_heads(x, 2))
split.reject(
    "h and d exchanged", "taken for the width", lambda x, h: split_heads(x, x.shape[-1] // h)
)
split.reject(
    "the first slice for all",
    "first 3 of every token",
    lambda x, h: split_heads(x, h)[:, :1].expand(-1, h, -1, -1),
)
split.reject("a list", "tensor", lambda x, h: list(x.chunk(h, dim=-1)))
split.reject(
    "batch and heads exchanged",
    "shape",
    lambda x, h: split_heads(x, h).transpose(0, 1),
)
split.reject("opposite order", "opposite order", lambda x, h: split_heads(x, h).flip(1))
split.reject("in half", "digits are lost", lambda x, h: split_heads(x.half(), h))
split.reject("squeezed", "shape", lambda x, h: split_heads(x, h).squeeze(-1))
split.reject("batch folded in", "not all in that sequence", lambda x, h: split_heads(x.flip(0), h))


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
attend.reject("needs a mask", "it runs", lambda q, k, v, m: attended(q, k, v, ~m))
attend.reject("keys as values", "shape", lambda q, k, v, m: attended(q, k, k, m))
attend.reject("two results", "a tuple of 2", lambda q, k, v, m: (attended(q, k, v, m), 0))
attend.reject("no softmax", "ln 16", lambda q, k, v, m: scores_of(q, k, m) @ v)
attend.reject(
    "exponentials by hand",
    "in the thousands.*NaN",
    lambda q, k, v, m: (
        scores_of(q, k, m).exp() / scores_of(q, k, m).exp().sum(-1, keepdim=True)
    ) @ v,
)  # fmt: skip


def root_of(size):
    def answer(q, k, v, may):
        sizes = {"d_v": v.shape[-1], "n_q": q.shape[-2], "n_k": k.shape[-2]}
        sizes["d_model"] = q.shape[1] * q.shape[-1]
        return attended(q, k, v, may, sizes[size] ** -0.5)

    return answer


def renormalised(q, k, v, may):
    weights = scores_of(q, k, None).softmax(-1) * (1 if may is None else may)
    return weights / weights.sum(-1, keepdim=True) @ v


def over_the_largest_of_all(q, k, v, may):
    scores = scores_of(q, k, may)
    e = (scores - scores.max()).exp()
    return e / e.sum(-1, keepdim=True) @ v


attend.reject("mask after the softmax, renormalised", "in the thousands.*NaN", renormalised)
attend.reject("less the largest of all", "in the thousands.*NaN", over_the_largest_of_all)
attend.reject(
    "keys reshaped",
    "keys are reshaped",
    lambda q, k, v, m: attended(q, k.reshape(*k.shape[:2], k.shape[3], -1).mT, v, m),
)
attend.reject(
    "over the heads", "over the heads", lambda q, k, v, m: scores_of(q, k, m).softmax(1) @ v
)
attend.reject(
    "causal always",
    "though no mask",
    lambda q, k, v, m: attended(
        q, k, v, torch.ones(q.shape[-2], k.shape[-2]).tril().bool() if m is None else m
    ),
)
attend.reject(
    "scores times mask",
    "e to the 0",
    lambda q, k, v, m: (scores_of(q, k, None) * (1 if m is None else m)).softmax(-1) @ v,
)
attend.reject(
    "mask added",
    "as ones and zeros",
    lambda q, k, v, m: (scores_of(q, k, None) + (0 if m is None else m)).softmax(-1) @ v,
)
attend.reject(
    "one axis of the mask for the batch",
    "it runs",
    lambda q, k, v, m: attended(
        q, k, v, m.reshape(len(q), -1, *m.shape[2:]) if m is not None and m.dim() > 2 else m
    ),
)
attend.reject("squeezed", "shape", lambda q, k, v, m: attended(q, k, v, m).squeeze(-1))


def with_weights(make):
    """Make attention whose weights come from scores and a mask that is never None."""

    def answer(q, k, v, may):
        may = torch.ones(q.shape[-2], k.shape[-2]).bool() if may is None else may
        return make(scores_of(q, k, None), may) @ v

    return answer


attend.accept("-1e9 added", with_weights(lambda s, m: (s + (~m) * -1e9).softmax(-1)))
attend.reject("scaled by d_model", "the scale is 1/√d_model$", root_of("d_model"))
attend.reject("scaled by d_v", "the scale is 1/√d_v$", root_of("d_v"))
for low in (1_000, 5_000, 10_000):
    attend.reject(
        f"{low} taken off",
        "others can be as low",
        with_weights(lambda s, m, low=low: (s - (~m) * low).softmax(-1)),
    )
    attend.reject(
        f"filled with {-low}",
        "others can be as low",
        with_weights(lambda s, m, low=low: s.masked_fill(~m, -low).softmax(-1)),
    )

attend.reject(
    "keys turned only if they must be",
    "the keys are not transposed",
    lambda q, k, v, m: attended(q, k.mT if k.shape[-2] == k.shape[-1] else k, v, m),
)
attend.reject(
    "causal if square",
    "though no mask",
    lambda q, k, v, m: F.scaled_dot_product_attention(
        q, k, v, m, is_causal=m is None and q.shape[-2] == k.shape[-2]
    ),
)
attend.reject(
    "mask turned if square",
    "rows and columns of the mask",
    lambda q, k, v, m: attended(
        q, k, v, m.mT if m is not None and m.shape[-2] == m.shape[-1] else m
    ),
)


def zero_is_hidden(scores, may):
    scores = scores * may
    return torch.where(scores == 0, -INF, scores).softmax(-1)


attend.reject(
    "a product for a mask, zeros hidden",
    "allowed scores of 0 are hidden too",
    lambda q, k, v, m: (
        attended(q, k, v, m) if m is None else zero_is_hidden(scores_of(q, k, None), m) @ v
    ),
)

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
merge.reject("one below the other", "shape", lambda heads: heads.flatten(1, 2))
merge.reject("added", "shape", lambda heads: heads.sum(1))
merge.reject("not joined", "shape", lambda heads: heads.transpose(1, 2))
merge.reject("flat", "shape", lambda heads: heads.transpose(1, 2).flatten(1))
merge.reject("d before n", "shape", lambda heads: merge_heads(heads).mT)
merge.reject(
    "always two heads", "shape|another place", lambda H: torch.cat([H[:, 0], H[:, 1]], dim=-1)
    if H.shape[1] > 1 else H[:, 0]
)  # fmt: skip
merge.reject("in half", "digits are lost", lambda heads: merge_heads(heads.half()))
merge.reject("squeezed", "shape", lambda heads: merge_heads(heads).squeeze(1))
merge.reject(
    "sequences mixed up", "not all in that sequence", lambda heads: merge_heads(heads.flip(0))
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
output.reject(
    "average over heads",
    "heads are averaged",
    lambda H, w, b: F.linear(merge_heads(H) / H.shape[1], w, b),
)
output.reject(
    "every head through the first block",
    "meet the columns of the first",
    lambda H, w, b: H.sum(1) @ w[:, : H.shape[-1]].T + b,
)
output.reject(
    "opposite order", "opposite order", lambda H, w, b: F.linear(merge_heads(H.flip(1)), w, b)
)
output.reject(
    "weight reshaped",
    "weight is reshaped",
    lambda H, w, b: merge_heads(H) @ w.reshape(w.shape[1], -1) + b,
)
output.reject(
    "turned only if it must be",
    "weight is not transposed",
    lambda H, w, b: merge_heads(H) @ (w if w.shape[0] == w.shape[1] else w.T) + b,
)
output.reject("heads kept apart", "shape", lambda H, w, b: merge_heads(H)[..., None] + b)


def in_a_list(heads, weight, bias, order):
    B, h, n, d = heads.shape
    blocks = order(weight.T.reshape(h, d, -1), B)
    return torch.bmm(heads.reshape(B * h, n, d), blocks).view(B, h, n, -1).sum(1) + bias


def repeated(blocks, B):
    return blocks.repeat(B, 1, 1)


output.accept("a list of products", lambda *given: in_a_list(*given, repeated))

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


def made_by(*names):
    """Make a class whose queries, keys and values come from these maps."""

    class Made(Trimmed):
        def qkv(self, x):
            return [getattr(self, name)(x) for name in names]

    return Made


def viewed(whole_tokens_back):
    """Make a class that splits by one view, and merges by one or rightly."""

    class Viewed(Trimmed):
        def forward(self, x, may=None):
            heads = (part.reshape(len(x), self.h, x.shape[1], -1) for part in self.qkv(x))
            out = attended(*heads, may)
            return self.w_o(out.reshape(x.shape) if whole_tokens_back else merge_heads(out))

    return Viewed


class WidthForHeads(Linears):
    def __init__(self, d_model, h):
        super().__init__(d_model, d_model // h)


class RawValues(Trimmed):
    def qkv(self, x):
        return self.w_q(x), self.w_k(x), x + 0 * self.w_v(x)


class ValuesOfKeys(Trimmed):
    def qkv(self, x):
        return self.w_q(x), self.w_k(x), self.w_v(self.w_k(x))


class OutputTransposed(Trimmed):
    def forward(self, x, may=None):
        return merge_heads(self.heads(x, may)) @ self.w_o.weight + self.w_o.bias


class Squeezed(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may).squeeze()


class OneSequence(Linears):
    def forward(self, x, may=None):
        return super().forward(x[None] if x.dim() == 2 else x, may).squeeze(0)


class ByHand(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        e = scores_of(q, k, may).exp()
        return e / e.sum(-1, keepdim=True) @ v


class Residual(Linears):
    def forward(self, x, may=None):
        return x + super().forward(x, may)


class Dropout(Linears):
    def forward(self, x, may=None):
        return F.dropout(super().forward(x, may), 0.1, self.training)


class Causal(Linears):
    def heads(self, x, may):
        n = x.shape[1]
        return super().heads(x, torch.ones(n, n).tril().bool() if may is None else may)


def hides_by(weigh):
    class Hides(Trimmed):
        def heads(self, x, may):
            return with_weights(weigh)(*(split_heads(part, self.h) for part in self.qkv(x)), may)

    return Hides


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


class Detached(Linears):
    def forward(self, x, may=None):
        return super().forward(x, may).detach()


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
layer.reject("one view", "whole tokens", viewed(whole_tokens_back=False))
layer.reject("two views", "neither split nor merge", viewed(whole_tokens_back=True))
layer.reject("h and d exchanged", "h is taken for the width", WidthForHeads)
layer.reject("keys by w_q", "keys are made by w_q", made_by("w_q", "w_q", "w_v"))
layer.reject("values by w_q", "values are made by w_q", made_by("w_q", "w_k", "w_q"))
layer.reject("queries by w_k", "queries are made by w_k", made_by("w_k", "w_k", "w_v"))
layer.reject("keys as queries", "have changed places", made_by("w_k", "w_q", "w_v"))
layer.reject("values are x", "values are x itself", RawValues)
layer.reject("values of keys", "values are made from the keys", ValuesOfKeys)
layer.reject("W_O the other way round", "W_O is transposed", OutputTransposed)
layer.reject("squeezed", "shape", Squeezed)
layer.reject("an axis added and taken off", "shape", OneSequence)
layer.reject("exponentials by hand", "in the thousands.*NaN", ByHand)
layer.reject("a residual", "x is added", Residual)
layer.reject("dropout", "is there dropout", Dropout)
layer.reject("causal always", "though no mask is given", Causal)
for low in (100, 1_000, 5_000, 10_000):
    layer.reject(
        f"{low} taken off",
        "others can be as low",
        hides_by(lambda s, m, low=low: (s - (~m) * low).softmax(-1)),
    )
    layer.reject(
        f"filled with {-low}",
        "others can be as low",
        hides_by(lambda s, m, low=low: s.masked_fill(~m, -low).softmax(-1)),
    )
layer.accept("filled with -1e9", hides_by(lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)))
layer.accept("-1e9 added", hides_by(lambda s, m: (s + (~m) * -1e9).softmax(-1)))
layer.reject("no bias", "w_q has a bias.*has none", NoBias)
layer.reject("one matrix for three", "four different maps", OneMatrix)
layer.reject("width of one head", "w_q.weight is", Narrow)
layer.reject("other names", "w_q is missing", OtherNames)
layer.reject("detached", "no gradient", Detached)
layer.reject("a layer, not its class", "class itself", Linears(12, 3))


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


class NeedsAMask(Linears):
    def forward(self, x, may):
        return super().forward(x, may)


layer.accept("linear maps of one's own", OfAffines)

layer.reject("needs a mask", "it runs.*missing", NeedsAMask)

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


def without_biases(ours):
    with torch.no_grad():
        for part in (ours.w_q, ours.w_k, ours.w_v, ours.w_o):
            part.bias.zero_()
    return ours


def doubled(ours):
    with torch.no_grad():
        ours.w_q.weight.mul_(2)
    return ours


def emptied(theirs):
    ours = filled(theirs)
    with torch.no_grad():
        theirs.in_proj_bias.zero_()
    return ours


def without_no_grad_for_theirs(theirs):
    theirs.requires_grad_(False)
    return filled(theirs)


def in_another_mode(theirs):
    return filled(theirs.eval())


copying = Exercise(multi_head_attention.from_torch)
on_sentences = Exercise(multi_head_attention.pretrained)
for exercise in (copying, on_sentences):
    exercise.accept("copied", filled)
    exercise.accept("state dictionaries", by_state_dict)
    exercise.accept("new parameters", by_parameters)
    exercise.reject("their own layer", "of your own.*MultiheadAtt", lambda theirs: theirs)
    exercise.reject("labkit's", "not among", MultiHeadAttention.from_torch)
    exercise.reject("without no_grad", "in-place operation", without_no_grad)
    exercise.reject("nothing returned", "None; is there a return", lambda theirs: None)

MASK_UNUSED = "^MultiHead is not.*from_torch copied all.*the mask is not used"

for mistake, told, answer in (
    ("not filled", "nothing was copied", lambda t: Linears(t.embed_dim, t.num_heads)),
    ("keys first", "holds the part of w_k", lambda t: filled(t, (1, 0, 2))),
    ("transposed", "it is transposed", lambda t: filled(t, take=lambda W: W.T)),
    ("biases forgotten", "nothing was copied", lambda t: filled(t, biases=False)),
    ("biases zero", "they are zeros", lambda t: without_biases(filled(t))),
    ("W_O forgotten", "w_o.weight holds.*nothing was copied", output_forgotten),
    ("no gradients for theirs", r"changed: .*requires_grad", without_no_grad_for_theirs),
    ("another mode", "changed: training", in_another_mode),
    ("one part changed", "other numbers are there$", lambda t: doubled(filled(t))),
    ("one head", "3 heads, as PyTorch's layer has.*the copy has 1", lambda t: filled(t, h=1)),
    ("the layer ignores the mask", MASK_UNUSED, lambda t: filled(t, made=NoMask)),
    ("memory shared", "lives by itself", shared_memory),
    ("emptied", "left as it was", emptied),
):
    copying.reject(mistake, told, answer)

for mistake, told, answer in (
    ("keys for values", "holds the part of w_k", lambda t: filled(t, (0, 1, 1))),
    ("one head", "12 heads, as layer 0 of the pretrained.*has 1", lambda t: filled(t, h=1)),
    ("padding seen", MASK_UNUSED, lambda t: filled(t, made=NoMask)),
    ("scaled by the model", "^MultiHead.*1/√d_model", lambda t: filled(t, made=ScaledByModel)),
):
    on_sentences.reject(mistake, told, answer)


copying.accept("from a copy", lambda t: filled(deepcopy(t)))
copying.accept("frozen", lambda t: filled(t).requires_grad_(False))
copying.reject(
    "in float64",
    r"type, torch.float32.*w_q.weight is of torch.float64",
    lambda t: filled(t).double(),
)


def rows_of_each(take):
    """Cut the joint matrix and bias otherwise."""

    def answer(theirs):
        ours = filled(theirs)
        with torch.no_grad():
            for i, part in enumerate((ours.w_q, ours.w_k, ours.w_v)):
                part.weight.copy_(take(theirs.in_proj_weight, i, theirs.num_heads))
                part.bias.copy_(take(theirs.in_proj_bias, i, theirs.num_heads))
        return ours

    return answer


copying.reject("dealt out", "every third row", rows_of_each(lambda W, i, h: W[i::3]))
copying.reject(
    "head by head",
    "cut by heads first",
    rows_of_each(lambda W, i, h: W.unflatten(0, (h, 3, -1))[:, i].flatten(0, 1)),
)
project.reject(
    "a bias only if all of it is not 0",
    "differ; the bias is missing",
    lambda x, w, b: projected(x, w, b if b is not None and b.all() else None),
)
project.reject(
    "bias twice",
    "bias is added twice",
    lambda x, w, b: projected(x, w, None if b is None else 2 * b),
)
split.reject("whole numbers", "digits are lost", lambda x, h: split_heads(x.long().float(), h))
split.reject(
    "the first sequence for all",
    "not all in that sequence",
    lambda x, h: split_heads(x[:1].expand(x.shape), h),
)
split.reject(
    "the first head dealt out if single",
    "some numbers are in another place",
    lambda x, h: split_heads(x.flip(1) if len(x) > 1 else x, h),
)
merge.reject("rounded", "digits are lost", lambda heads: merge_heads(heads.round()))
merge.reject(
    "sequences behind tokens",
    "not all in that sequence",
    lambda H: H.permute(2, 0, 1, 3).reshape(len(H), H.shape[2], -1),
)


def in_type(dtype):
    return lambda q, k, v, may: attended(q.to(dtype), k.to(dtype), v.to(dtype), may).float()


attend.reject("in half", r"query 1 has 0\S+ in place 0, where 0.4\S* belongs", in_type(torch.half))
attend.reject("in bfloat16", r"query \d has \S+ in place \d, where", in_type(torch.bfloat16))


def with_mask(change):
    """Change a mask of four axes."""

    def answer(q, k, v, may):
        return attended(q, k, v, change(may) if may is not None and may.dim() == 4 else may)

    return answer


FIRST = {
    "the mask of the first sequence": lambda m: m[:1],
    "the mask of the first head": lambda m: m[:, :1],
    "one sequence's and one head's mask": lambda m: m[0, 0],
}
for whose, change in FIRST.items():
    attend.reject(whose, f"{whose} hides in all", with_mask(change))


def less(top, fill=-INF):
    """Take off another maximum than that of the row."""

    def weigh(scores, may):
        e = (scores.masked_fill(~may, fill) - top(scores.masked_fill(~may, fill))).exp()
        return (e / e.sum(-1, keepdim=True)).nan_to_num()

    return with_weights(weigh)


attend.reject("less the largest, mended", "the largest of all heads is taken off", less(torch.max))
attend.reject(
    "less the largest of a head",
    "the largest of a head is taken off",
    less(lambda s: s.amax((-1, -2), keepdim=True)),
)


def less_a_hidden_one(scores, may):
    e = (scores - scores.amax(-1, keepdim=True)).exp() * may
    return e / (e.sum(-1, keepdim=True) + 1e-9)


attend.reject("less a hidden one", "sees hidden keys", with_weights(less_a_hidden_one))
attend.reject(
    "scores cut off",
    "scores are cut off at 50",
    with_weights(lambda s, m: s.clamp(-50, 50).masked_fill(~m, -INF).softmax(-1)),
)


class OutputBiasDropped(Trimmed):
    def forward(self, x, may=None):
        return merge_heads(self.heads(x, may)) @ self.w_o.weight.T


class ScaledByHeads(Trimmed):
    def heads(self, x, may):
        q, k, v = (split_heads(part, self.h) for part in self.qkv(x))
        return attended(q, k, v, may, self.h**-0.5)


class TimeFirst(Linears):
    def forward(self, x, may=None):
        return super().forward(x.transpose(0, 1), None).transpose(0, 1)


class OutputFirst(Trimmed):
    def qkv(self, x):
        return self.w_q(x), self.w_k(x), self.w_o(self.w_v(x))

    def forward(self, x, may=None):
        return merge_heads(self.heads(x, may))


class Rectified(Trimmed):
    def forward(self, x, may=None):
        return self.w_o(merge_heads(self.heads(x, may)).relu())


class Short(Trimmed):
    def heads(self, x, may):
        return 0.9995 * super().heads(x, may)


class FirstHeadsMask(Trimmed):
    def heads(self, x, may):
        four = may is not None and may.dim() == 4
        return super().heads(x, may[:, :1] if four else may)


def one_changed(which, change):
    """Change how one of queries, keys and values comes to be heads."""

    class Changed(Trimmed):
        def heads(self, x, may):
            heads = [split_heads(part, self.h) for part in self.qkv(x)]
            heads[which] = change(self, x)
            return attended(*heads, may)

    return Changed


layer.reject("output bias dropped", "the bias of w_o is missing", OutputBiasDropped)
layer.reject("scaled by the heads", "1/√h", ScaledByHeads)
layer.reject("time first", "sequences are taken for tokens", TimeFirst)
layer.reject("W_O before attention", "applied to the values", OutputFirst)
layer.reject("a ReLU", "a ReLU is applied before W_O", Rectified)
layer.reject("the first head's mask", "the mask of the first head hides", FirstHeadsMask)
layer.reject("weights with a sum below 1", "though by little", Short)
layer.reject(
    "the keys split by a view",
    "the keys are split by one view",
    one_changed(1, lambda self, x: self.w_k(x).reshape(len(x), self.h, x.shape[1], -1)),
)
layer.reject(
    "queries by w_q transposed",
    "w_q is transposed",
    one_changed(0, lambda self, x: split_heads(x @ self.w_q.weight + self.w_q.bias, self.h)),
)
