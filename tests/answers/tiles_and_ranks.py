"""Answers to lab 9."""

from __future__ import annotations

import time
from functools import reduce

import numpy as np
import torch

from labkit import causal_mask, tiles
from labkit.labs.tiles_and_ranks import check as tiles_and_ranks
from labkit.models.parallel import shard
from labkit.tiles import Partial, partial_attention
from tests.answers import Exercise

INF = float("inf")

# A merge
merge = Exercise(tiles_and_ranks.merge)


def by_largest(a, b):
    (out_a, lse_a), (out_b, lse_b) = a, b
    top = torch.maximum(lse_a, lse_b)
    top = torch.where(top == -INF, torch.zeros_like(top), top)
    e_a, e_b = (lse_a - top).exp(), (lse_b - top).exp()
    total = e_a + e_b
    share = torch.where(total > 0, total, torch.ones_like(total))[..., None]
    out = (e_a[..., None] * out_a + e_b[..., None] * out_b) / share
    return out, top + total.log()


def by_sigmoid(a, b):
    share = torch.sigmoid(a.lse - b.lse)
    share = torch.where(share.isnan(), 0.5, share)[..., None]
    return share * a.out + (1 - share) * b.out, torch.logaddexp(a.lse, b.lse)


def by_stack(a, b):
    lse = torch.stack([a[1], b[1]])
    share = lse.softmax(dim=0).nan_to_num(0.0)[..., None]
    return (share * torch.stack([a[0], b[0]])).sum(dim=0), lse.logsumexp(dim=0)


def in_numpy(a, b):
    out_a, lse_a, out_b, lse_b = (x.numpy() for x in (*a, *b))
    lse = np.logaddexp(lse_a, lse_b)
    safe = np.where(np.isneginf(lse), 0, lse)
    out = np.exp(lse_a - safe)[..., None] * out_a + np.exp(lse_b - safe)[..., None] * out_b
    return torch.from_numpy(np.asarray(out)), torch.from_numpy(np.asarray(lse))


def query_by_query(a, b):
    d = a.out.shape[-1]
    out, lse = torch.empty_like(a.out), torch.empty_like(a.lse)
    rows = zip(a.out.reshape(-1, d), a.lse.flatten(), b.out.reshape(-1, d), b.lse.flatten())  # noqa: B905
    for i, (x, s, y, t) in enumerate(rows):
        if s == -INF or t == -INF:
            row, total = (y, t) if s == -INF else (x, s)
        else:
            total = max(s, t) + (1 + (-abs(s - t)).exp()).log()
            row = (s - total).exp() * x + (t - total).exp() * y
        out.view(-1, d)[i], lse.view(-1)[i] = row, total
    return out, lse


merge.accept("the larger taken off", by_largest)
merge.accept("a sigmoid", by_sigmoid)
merge.accept("a softmax of two", by_stack)
merge.accept("numpy", in_numpy)
merge.accept("query by query", query_by_query)


def nan_is_a(a, b):
    lse = torch.logaddexp(a.lse, b.lse)
    x, y = ((part.lse - lse).exp()[..., None] * part.out for part in (a, b))
    return torch.where((x + y).isnan(), a.out, x + y), lse


def by_tanh(a, b):
    half = (a.lse - b.lse).nan_to_num(0.0) / 2
    t = half.tanh()[..., None]
    lse = torch.maximum(a.lse, b.lse) + torch.nn.functional.softplus(-2 * half.abs())
    return [((1 + t) * a.out + (1 - t) * b.out) / 2, lse]


def by_lerp(a, b):
    share = torch.sigmoid(b.lse - a.lse).nan_to_num(0.5)[..., None]
    return torch.lerp(a.out, b.out, share), torch.logaddexp(a.lse, b.lse)


def moved_towards_b(a, b):
    """Take off the share of b of what lies between, as ring attention is often written."""
    share = torch.sigmoid(b.lse - a.lse).nan_to_num(0.5)[..., None]
    return a.out - share * (a.out - b.out), torch.logaddexp(a.lse, b.lse)


ONE_SHARE = {
    "a sigmoid": by_sigmoid,
    "a hyperbolic tangent": by_tanh,
    "lerp": by_lerp,
    "a step towards b": moved_towards_b,
}
merge.accept("lerp", by_lerp)
merge.accept("a step towards b", moved_towards_b)
merge.accept("where NaN comes, a's 0", nan_is_a)
merge.accept("a hyperbolic tangent, and a list", by_tanh)


def blind_to_nan(a, b):
    lse = torch.logaddexp(a.lse, b.lse)
    return (a.lse - lse).exp()[..., None] * a.out + (b.lse - lse).exp()[..., None] * b.out, lse


def relative_to_b(a, b):
    """Add to b's lse, which is no number where b sees nothing."""
    lse = b.lse + (1 + (a.lse - b.lse).exp()).log()
    return (a.lse - lse).exp()[..., None] * a.out + (b.lse - lse).exp()[..., None] * b.out, lse


def overflows(a, b):
    e_a, e_b = a.lse.exp(), b.lse.exp()
    total = e_a + e_b
    safe = torch.where(total > 0, total, torch.ones_like(total))[..., None]
    return (e_a[..., None] * a.out + e_b[..., None] * b.out) / safe, total.log()


def changed(out=None, lse=None):
    """Make a merge of which one result is something else."""

    def change(a, b):
        x, y = tiles.merge(a, b)
        return (x if out is None else out(a, b)), (y if lse is None else lse(a, b))

    return change


def shares(a, b):
    lse = tiles.merge(a, b).lse
    safe = torch.where(lse == -INF, torch.zeros_like(lse), lse)
    return (a.lse - safe).exp()[..., None], (b.lse - safe).exp()[..., None]


def average(a, b):
    return (a.out + b.out) / 2


def larger_alone(a, b):
    return torch.where((a.lse > b.lse)[..., None], a.out, b.out)


def not_rescaled(a, b):
    return a.out + shares(a, b)[1] * b.out


def swapped(a, b):
    s, t = shares(a, b)
    return t * a.out + s * b.out


def by_lse(a, b):
    s, t = (torch.where(p.lse == -INF, 0 * p.lse, p.lse)[..., None] for p in (a, b))
    return (s * a.out + t * b.out) / torch.where(s + t == 0, 1.0, s + t)


def not_normed(a, b):
    return a.lse.exp()[..., None] * a.out + b.lse.exp()[..., None] * b.out


def of_lse(function):
    return lambda a, b: function(a.lse, b.lse)


def lowest_number(a, b):
    low = [Partial(p.out, p.lse.clamp(min=-1e9)) for p in (a, b)]
    return tiles.merge(*low)


def in_place(a, b):
    out, lse = tiles.merge(a, b)
    a.out.copy_(out)
    return a.out, lse


merge.reject("two that see nothing give NaN", "NaN there: −inf − .−inf.", blind_to_nan)
merge.reject("one that sees nothing gives NaN", "out has NaN for such a query", relative_to_b)
merge.reject("the largest is not taken off", "exponential of 89 is inf", overflows)
merge.reject("averaged", "the two were averaged", changed(average))
merge.reject("added", "the two were added as they are", changed(lambda a, b: a.out + b.out))
merge.reject("the larger alone", "the part with the larger lse alone", changed(larger_alone))
merge.reject("the old is not rescaled", "a was not scaled down", changed(not_rescaled))
merge.reject("the other's weight", "each has the other's weight", changed(swapped))
merge.reject("weighted by lse", "weighted by lse, and not by its exp", changed(by_lse))
merge.reject("weights not divided", "weights do not add up to 1", changed(not_normed))
merge.reject("the larger lse", "the larger of the two", changed(lse=of_lse(torch.maximum)))
merge.reject("lse averaged", "their mean", changed(lse=lambda a, b: (a.lse + b.lse) / 2))
merge.reject("lse added", "that is their sum", changed(lse=of_lse(torch.add)))
merge.reject(
    "the sum without its logarithm",
    "that is the sum, before its logarithm",
    changed(lse=lambda a, b: a.lse.exp() + b.lse.exp()),
)
merge.reject(
    "the logarithm as it is written",
    "came inf; the exponentials of both lse were added as they are, and that of 89 is inf",
    changed(lse=lambda a, b: (a.lse.exp() + b.lse.exp()).log()),
)
merge.reject(
    "the largest is not put back",
    "once the larger was taken off",
    changed(lse=lambda a, b: torch.logaddexp(a.lse, b.lse) - torch.maximum(a.lse, b.lse)),
)
merge.reject("−10⁹ for −inf", "−inf where there are none", lowest_number)
merge.reject("changed in place", "one of them was changed in place", in_place)


def clamped(a, b):
    return tiles.merge(*(Partial(p.out, p.lse.clamp(-80, 80)) for p in (a, b)))[0]


def nan_made_0(a, b):
    e_a, e_b = a.lse.exp(), b.lse.exp()
    out = (e_a[..., None] * a.out + e_b[..., None] * b.out) / (e_a + e_b)[..., None]
    return out.nan_to_num(0.0), tiles.merge(a, b).lse


def one_largest(a, b, safe=False):
    """Take off the largest lse of all queries."""
    top = max(a.lse.max(), b.lse.max())
    e_a, e_b = (a.lse - top).exp(), (b.lse - top).exp()
    total = e_a + e_b
    blind = (a.lse == -INF) & (b.lse == -INF)
    divide_by = torch.where((total == 0) if safe else blind, 1.0, total)
    out = (e_a[..., None] * a.out + e_b[..., None] * b.out) / divide_by[..., None]
    return out, tiles.merge(a, b).lse if safe else top + total.log()


def log1p_turned(a, b):
    """Compute lse with the difference turned, and out with this lse."""
    lse = torch.maximum(a.lse, b.lse) + torch.log1p((a.lse - b.lse).abs().exp())
    return (a.lse - lse).exp()[..., None] * a.out + (b.lse - lse).exp()[..., None] * b.out, lse


merge.reject("clamped", "both count alike, as if such lse were equal", changed(clamped))
merge.reject("clamped at −10,000", "lse -12000,.*both count alike", changed(lambda a, b: (
    tiles.merge(*(Partial(p.out, p.lse.clamp(min=-1e4)) for p in (a, b)))[0]
)))  # fmt: skip
merge.reject("lse clamped at −10,000", "of lse -12000 and -12001 came -9999.307", changed(lse=(
    lambda a, b: tiles.merge(a, b).lse.where(
        (a.lse == -INF) & (b.lse == -INF),
        torch.logaddexp(a.lse.clamp(min=-1e4), b.lse.clamp(min=-1e4)),
    )
)))  # fmt: skip
merge.reject("−10,000 for −inf", "as if its lse were a number, and above", changed(lambda a, b: (
    tiles.merge(*(Partial(p.out, p.lse.masked_fill(p.lse == -INF, -1e4)) for p in (a, b)))[0]
)))  # fmt: skip
merge.reject("NaN made 0", "NaN made 0 is still wrong", nan_made_0)
merge.reject("one largest for all", "each query's own two lse", one_largest)
merge.reject("one largest for all, no NaN", "for several queries or heads", lambda a, b: (
    one_largest(a, b, safe=True)
))  # fmt: skip


def one_largest_for_heads(a, b):
    """Take off what is the largest of all heads at a query."""
    both = torch.maximum(a.lse, b.lse)
    top = both.reshape(-1, both.shape[-1]).amax(dim=0).expand_as(both)
    top = top.masked_fill(top == -INF, 0.0)
    e_a, e_b = (a.lse - top).exp(), (b.lse - top).exp()
    total = e_a + e_b
    out = (e_a[..., None] * a.out + e_b[..., None] * b.out) / total.where(total > 0, 1)[..., None]
    return out, top + total.log()


merge.reject("one largest for all heads", "of lse 0.4 and 1.7 came -inf; one largest", (
    one_largest_for_heads
))  # fmt: skip
merge.reject("one largest for all heads, lse right", "7.*several queries or heads", lambda a, b: (
    one_largest_for_heads(a, b)[0], tiles.merge(a, b).lse
))  # fmt: skip


def by_number_0(a, b):
    s, t = (part.lse.nan_to_num(neginf=0.0) for part in (a, b))
    share = torch.sigmoid(s - t)[..., None]
    return share * a.out + (1 - share) * b.out


def over_the_queries(a, b):
    s, t = (part.lse.softmax(dim=-1)[..., None] for part in (a, b))
    return s * a.out + t * b.out


merge.reject(
    "nothing counts as 0", "sees nothing counts as if its lse were 0", changed(by_number_0)
)
merge.reject("over the queries", "softmax runs over the queries", changed(over_the_queries))
merge.reject("the mean of the sums", "logarithm of the mean of the two sums", changed(lse=(
    lambda a, b: torch.logaddexp(a.lse, b.lse) - np.log(2)
)))  # fmt: skip
merge.reject("log1p without a difference", "and not log.1 . exp.b − a", changed(lse=(
    lambda a, b: a.lse + b.lse.exp().log1p()
)))  # fmt: skip
merge.reject("log1p of the larger", "difference has the wrong sign", log1p_turned)


def joined_unless(empty):
    """Make a merge that takes a part for one that sees nothing by a sign of its own."""

    def join(a, b):
        a, b = (Partial(p.out, p.lse.masked_fill(empty(p), -INF)) for p in (a, b))
        return Partial(*by_stack(a, b))

    return join


without_zeros = joined_unless(lambda part: (part.out == 0).all(dim=-1))
without_low = joined_unless(lambda part: part.lse < -1000)


def other_if_zero(a, b):
    if not a.out.any():
        return b
    return a if not b.out.any() else tiles.merge(a, b)


def without_a_maximum(a, b):
    e_a, e_b = a.lse.exp(), b.lse.exp()
    total = e_a + e_b
    return (e_a[..., None] * a.out + e_b[..., None] * b.out) / total[..., None], total.log()


merge.reject("zeros for nothing", "1.5 and 0.9 came 0.9; out is 0 too where values", without_zeros)
merge.reject("a is all zeros", "and 0.9 came 0.9; out is 0 too where values", other_if_zero)
merge.reject("b is all zeros", "and 0.9 came 1.5; out is 0 too", lambda a, b: (
    tiles.merge(a, b) if b.out.any() else a
))  # fmt: skip
merge.reject("zeros for nothing, lse right", "came; out is 0 too where", changed(
    lambda a, b: without_zeros(a, b)[0]
))  # fmt: skip
merge.reject("low for nothing", "came -inf; an lse as low as that", without_low)
merge.reject("low for nothing, lse right", "-5000.5, and .* came; an lse as low as that", changed(
    lambda a, b: without_low(a, b)[0]
))  # fmt: skip
merge.reject("no maximum, and 0/0", "NaN there: .*and 0/0 is none", without_a_maximum)


def lighter_left_out(a, b, gap):
    """Keep the larger part alone where their lse are so far apart."""
    apart = (a.lse - b.lse).abs()[..., None]
    return torch.where(apart > gap, larger_alone(a, b), tiles.merge(a, b).out)


for gap in (2, 5, 8, 12):
    merge.reject(f"lighter by {gap} is left out", "the part with the larger lse alone", changed(
        lambda a, b, gap=gap: lighter_left_out(a, b, gap)
    ))  # fmt: skip
merge.reject("lighter by 8 adds nothing to lse", r"of lse (\S+) and \S+ came \1$", changed(
    lse=lambda a, b: tiles.merge(a, b).lse.where(
        (a.lse - b.lse).abs() < 8, torch.maximum(a.lse, b.lse)
    )
))  # fmt: skip
merge.reject("equal ones are taken for nothing", "and .0, 0, 0. came", changed(
    lambda a, b: tiles.merge(a, b).out.masked_fill((a.lse == b.lse)[..., None], 0.0)
))  # fmt: skip


def if_all_are_light(gap, early):
    """Keep one part alone where the other weighs little for every query."""

    def join(a, b):
        light, heavy = (a, b) if early else (b, a)
        return heavy if (light.lse < heavy.lse - gap).all() else tiles.merge(a, b)

    return join


ALL_LIGHT = [(gap, early) for gap in (2, 5, 8, 12) for early in (True, False)]
for gap, early in ALL_LIGHT:
    merge.reject(f"{'a' if early else 'b'} wholly lighter by {gap}", "with the larger lse alone", (
        if_all_are_light(gap, early)
    ))  # fmt: skip
merge.reject("lse first", "came lse, then out", lambda a, b: tiles.merge(a, b)[::-1])


# Tiles
tiled = Exercise(tiles_and_ranks.tiled_attention)


def by_merge(q, k, v, block_q, block_k, is_causal):
    n_q, n_k = q.shape[2], k.shape[2]
    rows = []
    for top in range(0, n_q, block_q):
        mine = q[:, :, top : top + block_q]
        i = torch.arange(top, top + mine.shape[2])[:, None] + n_k - n_q
        parts = []
        for left in range(0, n_k, block_k):
            j = torch.arange(left, min(left + block_k, n_k))
            may = j <= i if is_causal else torch.ones(len(i), len(j), dtype=torch.bool)
            here = slice(left, left + block_k)
            parts.append(partial_attention(mine, k[:, :, here], v[:, :, here], mask=may))
        rows.append(reduce(tiles.merge, parts).out)
    return torch.cat(rows, dim=2)


def scored(q, k, v, top, left, block_q, block_k, is_causal):
    """Compute the scores of a tile, and its values."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    x, y = q[..., top : top + block_q, :], k[..., left : left + block_k, :]
    s = x @ y.mT / q.shape[-1] ** 0.5
    if is_causal:
        i = torch.arange(top, top + x.shape[-2])[:, None] + n_k - n_q
        j = torch.arange(left, left + y.shape[-2])
        s = s.masked_fill(j > i, -INF)
    return s, v[..., left : left + block_k, :]


def online(q, k, v, block_q, block_k, is_causal, tile=scored, scale_out=True, scale_sum=True,
           subtract=True, order=1, floor=-1e30, own=False, each=False, divide=True, up=False,
           hidden=-INF, skip=lambda *_: False, light=INF):  # fmt: skip
    """Keep a largest score, a sum and an output, and scale them down when a larger score comes."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for top in range(0, n_q, block_q):
        rows = slice(top, top + block_q)
        acc = torch.zeros_like(out[..., rows, :])
        m, total = torch.full_like(acc[..., :1], floor), torch.zeros_like(acc[..., :1])
        for left in list(range(0, n_k, block_k))[::order]:
            s, values = tile(q, k, v, top, left, block_q, block_k, is_causal)
            s = s.masked_fill(s == -INF, hidden)
            if is_causal and skip(left, top + n_k - n_q, top + s.shape[2] - 1 + n_k - n_q):
                continue
            if (s.amax(dim=-1, keepdim=True) < m - light).all():
                continue
            new = torch.maximum(m, s.amax(dim=-1, keepdim=True)) if subtract else 0 * m
            e = (s - (s.amax(dim=-1, keepdim=True) if own else new)).exp()
            scale = (m - new).exp() if subtract else 1.0
            scale = torch.where(m > floor, 1 / scale, 0.0) if up else scale
            acc = (acc * scale if scale_out else acc) + e @ values
            total = (total * scale if scale_sum else total) + e.sum(dim=-1, keepdim=True)
            m = new
            acc = acc / total if each else acc
        out[..., rows, :] = acc / total if divide and not each else acc
    return out


def keys_outside(q, k, v, block_q, block_k, is_causal):
    n_q, n_k = q.shape[-2], k.shape[-2]
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    lse = torch.full(q.shape[:-1], -INF, dtype=q.dtype)
    for left in reversed(range(0, n_k, block_k)):
        for top in range(0, n_q, block_q):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            part = Partial(s.softmax(dim=-1).nan_to_num(0.0) @ values, s.logsumexp(dim=-1))
            rows = slice(top, top + block_q)
            both = by_largest((out[:, :, rows], lse[:, :, rows]), part)
            out[:, :, rows], lse[:, :, rows] = both
    return out


def by_einsum(q, k, v, block_q, block_k, is_causal):
    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        x, y = q[:, :, top : top + block_q], k[:, :, left : left + block_k]
        s = torch.einsum("bhid,bhjd->bhij", x * q.shape[-1] ** -0.5, y)
        if is_causal:
            i = torch.arange(k.shape[2] - q.shape[2], k.shape[2])[top : top + block_q]
            j = torch.arange(left, left + y.shape[2])
            s = torch.where(i[:, None] >= j, s, -INF)
        return s, v[:, :, left : left + block_k]

    return online(q, k, v, block_q, block_k, is_causal, tile)


def numpy_tiles(q, k, v, block_q, block_k, is_causal):
    q, k, v = (x.numpy() for x in (q, k, v))
    n_q, n_k = q.shape[-2], k.shape[-2]
    out = np.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    for top in range(0, n_q, block_q):
        x = q[..., top : top + block_q, :]
        m = np.full((*x.shape[:-1], 1), -1e30)
        total, acc = np.zeros_like(m), 0.0
        for left in range(0, n_k, block_k):
            y = k[..., left : left + block_k, :]
            s = x @ np.swapaxes(y, -1, -2) / np.sqrt(q.shape[-1])
            if is_causal:
                i = np.arange(top, top + x.shape[-2])[:, None] + n_k - n_q
                s = np.where(np.arange(left, left + y.shape[-2]) > i, -np.inf, s)
            new = np.maximum(m, s.max(-1, keepdims=True))
            e, scale = np.exp(s - new), np.exp(m - new)
            total, m = total * scale + e.sum(-1, keepdims=True), new
            acc = acc * scale + e @ v[..., left : left + block_k, :]
        out[..., top : top + block_q, :] = acc / total
    return torch.from_numpy(out)


tiled.accept("parts that are merged", by_merge)
tiled.accept("a running largest score", online)
tiled.accept("keys in the outer loop, from the last", keys_outside)
tiled.accept("einsum", by_einsum)
tiled.accept("numpy", numpy_tiles)


def by_softmax_of_lse(q, k, v, block_q, block_k, is_causal):
    """Keep out and lse of a row of tiles, and weigh them at its end."""
    rows = []
    for top in range(0, q.shape[2], block_q):
        outs, sums = [], []
        for left in range(0, k.shape[2], block_k):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            outs.append(s.softmax(dim=-1).nan_to_num(0.0) @ values)
            sums.append(s.logsumexp(dim=-1))
        share = torch.stack(sums, dim=-1).softmax(dim=-1)
        rows.append((torch.stack(outs, dim=-1) * share[..., None, :]).sum(dim=-1))
    return torch.cat(rows, dim=2)


def blocks_on_an_axis(q, k, v, block_q, block_k, is_causal):
    """Fill the last blocks with zeros, give blocks an axis, and divide at the very end."""
    n_q, n_k = q.shape[2], k.shape[2]
    pad = torch.nn.functional.pad
    q = pad(q, (0, 0, 0, -n_q % block_q)).unflatten(2, (-1, block_q))
    k = pad(k, (0, 0, 0, -n_k % block_k)).unflatten(2, (-1, block_k))
    v = pad(torch.cat([v, torch.ones_like(v[..., :1])], -1), (0, 0, 0, -n_k % block_k))
    v = v.unflatten(2, (-1, block_k))
    acc = q.new_zeros(*q.shape[:-1], v.shape[-1])
    top = torch.full(q.shape[:-1], -1e30)
    for b in range(k.shape[2]):
        for a in range(q.shape[2]):
            s = torch.einsum("bhid,bhjd->bhij", q[:, :, a], k[:, :, b]) * q.shape[-1] ** -0.5
            i = torch.arange(a * block_q, (a + 1) * block_q)[:, None] + n_k - n_q
            j = torch.arange(b * block_k, (b + 1) * block_k)
            s = s.masked_fill((j >= n_k) | ((j > i) if is_causal else (j < 0)), -INF)
            new = torch.maximum(top[:, :, a], s.amax(dim=-1))
            less = (top[:, :, a] - new).exp()[..., None]
            acc[:, :, a] = acc[:, :, a] * less + (s - new[..., None]).exp() @ v[:, :, b]
            top[:, :, a] = new
    out = acc.flatten(2, 3)[:, :, :n_q]
    return out[..., :-1] / out[..., -1:]


tiled.accept("a softmax of all lse", by_softmax_of_lse)
tiled.accept("blocks on an axis, a column of ones", blocks_on_an_axis)


def halves_of_halves(q, k, v, block_q, block_k, is_causal):
    """Cut the keys in two, until a half is small enough."""
    n_q, n_k = q.shape[2], k.shape[2]

    def over(top, a, b):
        if b - a > block_k:
            return tiles.merge(over(top, a, (a + b) // 2), over(top, (a + b) // 2, b))
        mine = q[:, :, top : top + block_q]
        i = torch.arange(top, top + mine.shape[2])[:, None] + (n_k - n_q if is_causal else n_k)
        return partial_attention(mine, k[:, :, a:b], v[:, :, a:b], mask=torch.arange(a, b) <= i)

    return torch.cat([over(top, 0, n_k).out for top in range(0, n_q, block_q)], dim=2)


def in_two_passes(q, k, v, block_q, block_k, is_causal):
    """Find the lse of a block's queries, then compute the scores again."""
    rows = []
    for top in range(0, q.shape[2], block_q):

        def each(top=top):
            for left in range(0, k.shape[2], block_k):
                yield scored(q, k, v, top, left, block_q, block_k, is_causal)

        lse = reduce(torch.logaddexp, (s.logsumexp(dim=-1, keepdim=True) for s, _ in each()))
        rows.append(sum((s - lse).exp() @ values for s, values in each()))
    return torch.cat(rows, dim=2)


def keys_by_queries(q, k, v, block_q, block_k, is_causal):
    """Have keys in rows and queries in columns, and all heads on one axis."""
    (B, h, n_q, d), n_k = q.shape, k.shape[2]
    q, k, v = (x.reshape(B * h, *x.shape[2:]) for x in (q, k, v))
    columns = []
    for top in range(0, n_q, block_q):
        mine = q[:, top : top + block_q].mT
        i = torch.arange(top, top + mine.shape[2]) + n_k - n_q
        largest, total, out = torch.full_like(mine[:, :1], -INF), 0.0, 0.0
        for left in range(0, n_k, block_k):
            s = torch.bmm(k[:, left : left + block_k], mine) / d**0.5
            if is_causal:
                s.masked_fill_(torch.arange(left, left + s.shape[1])[:, None] > i, -INF)
            new = torch.maximum(largest, s.amax(dim=1, keepdim=True))
            e, less, largest = (s - new).exp(), (largest - new).exp(), new
            total = total * less + e.sum(dim=1, keepdim=True)
            out = out * less + torch.bmm(v[:, left : left + block_k].mT, e)
        columns.append((out / total).mT)
    return torch.cat(columns, dim=1).view(B, h, n_q, -1)


tiled.accept("halves of halves", halves_of_halves)
tiled.accept("two passes", in_two_passes)
tiled.accept("keys by queries", keys_by_queries)
tiled.accept("smaller tiles than asked for", lambda q, k, v, a, b, causal: (
    online(q, k, v, (a + 1) // 2, min(a, b), causal)
))  # fmt: skip


def with_(**changes):
    return lambda *arguments: online(*arguments, **changes)


def with_mask(hidden):
    """Make tiles with a mask of one's own: hidden(i, j, top, left, n_q, n_k, bottom, right)."""

    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, False)
        if is_causal:
            i, j = torch.arange(s.shape[-2])[:, None] + top, torch.arange(s.shape[-1]) + left
            ends = top + s.shape[-2], left + s.shape[-1]
            s = s.masked_fill(hidden(i, j, top, left, q.shape[-2], k.shape[-2], *ends), -INF)
        return s, values

    return with_(tile=tile)


def whole_tiles(q, k, v, block_q, block_k, is_causal):
    n_k = max(k.shape[2] // block_k * block_k, 1)
    # The mask still knows how many keys there are.
    keys = torch.arange(k.shape[2]) < n_k

    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
        return s.masked_fill(~keys[left : left + block_k], -INF), values

    return online(q, k, v, block_q, block_k, is_causal, tile)


def parts_of(q, k, v, block_q, block_k, is_causal):
    for top in range(0, q.shape[2], block_q):
        parts = []
        for left in range(0, k.shape[2], block_k):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            parts.append(
                (s.softmax(dim=-1).nan_to_num(0.0) @ values, (s > -INF).sum(-1, keepdim=True))
            )
        yield parts


def joined_by(join):
    return lambda *a: torch.cat([join(parts) for parts in parts_of(*a)], dim=2)


def averaged(parts):
    return sum(out for out, _ in parts) / sum((sees > 0).int() for _, sees in parts)


def added(parts):
    return sum(out for out, _ in parts)


def by_number(parts):
    return sum(sees * out for out, sees in parts) / sum(sees for _, sees in parts)


def overwritten(parts):
    return parts[-1][0]


def first_alone(parts):
    return parts[0][0]


def last_rows_empty(q, k, v, block_q, block_k, is_causal):
    out = online(q, k, v, block_q, block_k, is_causal).clone()
    out[:, :, q.shape[2] // block_q * block_q :] = 0
    return out


def filled_with_zeros(q, k, v, block_q, block_k, is_causal):
    fill = 0, 0, 0, -k.shape[2] % block_k
    k, v = (torch.nn.functional.pad(x, fill) for x in (k, v))
    return online(q, k, v, block_q, block_k, is_causal)


def skipped_too_early(q, k, v, block_q, block_k, is_causal):
    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
        return (s.fill_(-INF) if is_causal and left >= top + s.shape[-2] else s), values

    return online(q, k, v, block_q, block_k, is_causal, tile)


def rows_at_once(q, k, v, block_q, block_k, is_causal):
    """Tile the queries alone."""
    return torch.cat(
        [
            whole_rows(q, k, v, top, min(top + block_q, q.shape[2]), is_causal)
            for top in range(0, q.shape[2], block_q)
        ],
        dim=2,
    )


def whole_rows(q, k, v, top, bottom, is_causal):
    s = q[:, :, top:bottom] @ k.mT / q.shape[-1] ** 0.5
    if is_causal:
        may = torch.arange(top, bottom)[:, None] + k.shape[2] - q.shape[2]
        s = s.masked_fill(torch.arange(k.shape[2]) > may, -INF)
    return s.softmax(dim=-1) @ v


def one_mask_for_all(q, k, v, block_q, block_k, is_causal):
    """Make the whole mask before, and cut each tile's out of it."""
    may = causal_mask(q.shape[2], k.shape[2]) if is_causal else None

    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, False)
        if may is not None:
            s = s.masked_fill(~may[top : top + block_q, left : left + block_k], -INF)
        return s, values

    return online(q, k, v, block_q, block_k, is_causal, tile)


def tiles_kept(q, k, v, block_q, block_k, is_causal):
    """Compute all tiles of a block of queries first, so as to know the largest score."""
    rows = []
    for top in range(0, q.shape[2], block_q):
        held = [
            scored(q, k, v, top, left, block_q, block_k, is_causal)
            for left in range(0, k.shape[2], block_k)
        ]
        most = torch.stack([s.amax(dim=-1, keepdim=True) for s, _ in held]).amax(dim=0)
        total = sum((s - most).exp().sum(dim=-1, keepdim=True) for s, _ in held)
        rows.append(sum((s - most).exp() @ values for s, values in held) / total)
    return torch.cat(rows, dim=2)


def whole(q, k, v, block_q, block_k, is_causal):
    s = q @ k.mT / q.shape[-1] ** 0.5
    if is_causal:
        s = s.masked_fill(~causal_mask(q.shape[2], k.shape[2]), -INF)
    return s.softmax(dim=-1) @ v


def unscaled(q, k, v, *others):
    return online(q * q.shape[-1] ** 0.5, k, v, *others)


def partly_seen_skipped(q, k, v, block_q, block_k, is_causal):
    n_q, n_k = q.shape[2], k.shape[2]
    rows = []
    for top in range(0, n_q, block_q):
        mine = q[:, :, top : top + block_q]
        found = Partial(
            mine.new_zeros(*mine.shape[:3], v.shape[3]), mine.new_full(mine.shape[:3], -INF)
        )
        for left in range(0, n_k, block_k):
            here = slice(left, min(left + block_k, n_k))
            if not is_causal or here.stop - 1 <= n_k - n_q + top:
                part = partial_attention(mine, k[:, :, here], v[:, :, here])
                found = tiles.merge(found, part)
        rows.append(found.out)
    return torch.cat(rows, dim=2)


tiled.reject("the largest is not taken off", "3,200 was added.*no maximum was taken off", with_(
    subtract=False
))  # fmt: skip
for floor, told in ((0.0, "3,200 was taken off"), (-1e4, "12,000 was taken off")):
    tiled.reject(f"the largest begins at {floor}", f"{told}.*began at a number above all", with_(
        floor=floor
    ))  # fmt: skip


def all_at_the_largest_of(*axes):
    """Make tiles that take one largest score off along some axes, as if it were a query's own."""

    def attend(q, k, v, block_q, block_k, is_causal):
        rows = []
        for top in range(0, q.shape[2], block_q):
            acc = q.new_zeros(*q[:, :, top : top + block_q].shape[:-1], v.shape[-1])
            total, m = torch.zeros_like(acc[..., :1]), torch.full_like(acc[..., :1], -1e30)
            for left in range(0, k.shape[2], block_k):
                s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
                new = torch.maximum(m, s.amax(dim=(*axes, -1), keepdim=True))
                e, less = (s - new).exp(), (m - new).exp()
                acc, total, m = acc * less + e @ values, total * less + e.sum(-1, True), new
            rows.append(acc / total)
        return torch.cat(rows, dim=2)

    return attend


def largest_of_the_rows_before(q, k, v, block_q, block_k, is_causal):
    """Begin a block of queries with the largest scores of the block before."""
    rows, kept = [], torch.full_like(q[:, :, :block_q, :1], -1e30)
    for top in range(0, q.shape[2], block_q):
        acc, total, m = 0.0, 0.0, kept[:, :, : q.shape[2] - top]
        for left in range(0, k.shape[2], block_k):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            e, less = (s - new).exp(), (m - new).exp()
            acc, total, m = acc * less + e @ values, total * less + e.sum(-1, True), new
        kept = m
        rows.append(acc / total)
    return torch.cat(rows, dim=2)


def largest_before_the_mask(q, k, v, block_q, block_k, is_causal):
    rows = []
    for top in range(0, q.shape[2], block_q):
        acc, total, m = 0.0, 0.0, torch.full_like(q[:, :, top : top + block_q, :1], -1e30)
        for left in range(0, k.shape[2], block_k):
            where = top, left, block_q, block_k
            new = torch.maximum(m, scored(q, k, v, *where, False)[0].amax(-1, keepdim=True))
            s, values = scored(q, k, v, *where, is_causal)
            e, less = (s - new).exp(), (m - new).exp()
            acc, total, m = acc * less + e @ values, total * less + e.sum(-1, True), new
        rows.append(acc / total)
    return torch.cat(rows, dim=2)


tiled.reject(
    "the largest of the block before",
    "first half of the queries, and fall|NaN comes of",
    largest_of_the_rows_before,
)
for axis, what in enumerate(("texts", "heads")):
    tiled.reject(f"one largest for all {what}", "query 0 of 14; one maximum was taken off for", (
        all_at_the_largest_of(axis)
    ))  # fmt: skip
tiled.reject("one largest a tile", "rise by 300.*one maximum was taken off for several queries", (
    all_at_the_largest_of(-2)
))  # fmt: skip
tiled.reject("the largest before the mask", "before the mask, and a hidden key had it$", (
    largest_before_the_mask
))  # fmt: skip
tiled.reject("NaN where a tile is hidden", "NaN comes of −inf", with_(
    floor=-INF, order=-1
))  # fmt: skip
tiled.reject("out is not rescaled", "the output so far is not scaled", with_(scale_out=False))
tiled.reject("the sum is not rescaled", "the sum so far is not scaled", with_(scale_sum=False))
tiled.reject("nothing is rescaled", "neither output nor sum so far", with_(
    scale_out=False, scale_sum=False
))  # fmt: skip
tiled.reject("the last, smaller tile is skipped", "last, smaller tile are left out", whole_tiles)
tiled.reject("averaged", "of the tiles were averaged", joined_by(averaged))
tiled.reject("nothing hidden", "nothing is hidden", with_mask(lambda i, j, *_: j < 0))
tiled.reject("from the upper left", "as if n_q and n_k were equal", with_mask(
    lambda i, j, *_: j > i
))  # fmt: skip
tiled.reject("the mask anew in every tile", "begins anew in every tile", with_mask(
    lambda i, j, top, left, *_: j - left > i - top
))  # fmt: skip
tiled.reject("a tile whole if in part", "seen in part counts whole", with_mask(
    lambda i, j, top, left, n_q, n_k, bottom, right: (left > n_k - n_q + bottom - 1) | (j < 0)
))  # fmt: skip
tiled.reject("a tile not at all if in part", "in part is left out", partly_seen_skipped)
tiled.reject("skipped by numbers of tiles", "skipped by their numbers", with_mask(
    lambda i, j, top, left, n_q, n_k, bottom, right: (
        (j > i + n_k - n_q) | (left // 9 > top // 4) if n_q == 17 else j > i + n_k - n_q
    )
))  # fmt: skip
tiled.reject("skipped by first ones", "whose first key comes after its first query", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: (j > i + n_k - n_q) | (left > top)
))  # fmt: skip
tiled.reject("masked on the diagonal alone", "two numbers are equal were masked", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: (j > i + n_k - n_q) & (left // 9 == top // 4)
))  # fmt: skip
tiled.reject("whole by its last query", "last query sees whole counts", with_mask(
    lambda i, j, top, left, n_q, n_k, bottom, right: (
        (j > i + n_k - n_q) & (right > bottom + n_k - n_q)
    )
))  # fmt: skip
tiled.reject("a mask of the tile's own", "its last query at its last key", with_mask(
    lambda i, j, top, left, n_q, n_k, bottom, right: j - right > i - bottom
))  # fmt: skip


def of_sizes(sizes):
    """Make tiles of other sizes than those that are asked for."""

    def attend(q, k, v, block_q, block_k, is_causal):
        return online(q, k, v, *sizes(q.shape[2], k.shape[2], block_q, block_k), is_causal)

    return attend


for how, told, sizes in (
    ("as many blocks", "or how many there are", lambda n, m, x, y: (-(-n // x), -(-m // y))),
    ("as many blocks of keys", "how many there are", lambda n, m, x, y: (x, -(-m // y))),
    ("as many blocks of queries", "how many there are", lambda n, m, x, y: (-(-n // x), y)),
    ("tiles of 16", r"a tensor of shape \(1, 1, 16, 16\)", lambda *_: (16, 16)),
    ("tiles of 32", r"a tensor of shape \(1, 1, 32, 32\)", lambda *_: (32, 32)),
    ("twice the queries", r"a tensor of shape \(1, 1, 18, 8\)", lambda n, m, x, y: (2 * x, y)),
    ("twice the keys", r"a tensor of shape \(1, 1, 9, 16\)", lambda n, m, x, y: (x, 2 * y)),
    ("block_q for both", r"a tensor of shape \(1, 1, 9, 9\)", lambda n, m, x, y: (x, x)),
    ("block_k for both", r"a tensor of shape \(1, 1, 9, 9\)", lambda n, m, x, y: (y, y)),
    ("a query and all keys", r"shape \(1, 1, 1, 86\)", lambda n, m, x, y: (1, m)),
    ("sizes that changed places", "9 keys were read.*changed places", lambda n, m, x, y: (y, x)),
    ("the larger for both", r"shape \(1, 1, 9, 9\)", lambda n, m, x, y: (max(x, y), max(x, y))),
    ("half the keys", r"shape \(1, 1, 9, 43\)", lambda n, m, x, y: (x, -(-m // 2))),
):
    tiled.reject(how, told, of_sizes(sizes))
tiled.reject("all at once", r"a tensor of shape \(1, 1, 160, 86\) came about", whole)
tiled.reject("no scale", "scale is not 1/√d_k but 1$", unscaled)
tiled.reject("no root", "but 1/d_k$", lambda q, *a: online(q / q.shape[-1] ** 0.5, *a))
tiled.reject("the width of values", "but 1/√d_v$", lambda q, k, v, *a: online(
    q * (q.shape[-1] / v.shape[-1]) ** 0.5, k, v, *a
))  # fmt: skip
tiled.reject("added", "tiles were added as they are", joined_by(added))
tiled.reject("by the number of keys", "by how many keys they have", joined_by(by_number))
tiled.reject("overwritten", "only the last tile of keys", joined_by(overwritten))
tiled.reject("the first tile alone", "only the first tile of keys", joined_by(first_alone))
tiled.reject("the tile's own largest", "largest score of the tile alone", with_(own=True))
tiled.reject("divided in every tile", "by the sum in every tile", with_(each=True))
tiled.reject("not divided", "not divided by the sum$", with_(divide=False))
tiled.reject("scaled the wrong way", "by exp.new − old., and not", with_(up=True))
tiled.reject("hidden ones 0", "hidden has a finite score", with_(hidden=0.0))
tiled.reject(
    "hidden ones −10,000",
    "taken off all scores; what is hidden has a finite score, above those that are seen,",
    with_(hidden=-1e4),
)
tiled.reject("hidden ones −10,000, and tiles skipped", (
    "12,000.*; in a tile that is seen in part what is hidden has a finite score, above those"
), with_(hidden=-1e4, skip=lambda left, top, bottom: left > bottom))  # fmt: skip
tiled.reject("by the first query", "if its first query sees nothing of it", with_(
    skip=lambda left, first, last: left > first
))  # fmt: skip
tiled.reject("skipped one too early", "of which its last query alone sees a key", with_(
    skip=lambda left, first, last: left >= last
))  # fmt: skip
tiled.reject("the wrong way round", "mask is the wrong way round", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j < i + n_k - n_q
))  # fmt: skip
tiled.reject("filled with zeros", "zeros that fill the last tile", filled_with_zeros)
tiled.reject("the last rows are forgotten", "block of queries is left empty", last_rows_empty)
tiled.reject("causal in any case", "although is_causal is False", lambda *a: online(*a[:-1], True))
tiled.reject("tiles skipped too early", "skipped as if n_q and n_k", skipped_too_early)
tiled.reject("queries by local places", "from the top of their tile", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j > i - top + n_k - n_q
))  # fmt: skip
tiled.reject("keys by local places", "from the left of their tile", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j - left > i + n_k - n_q
))  # fmt: skip
tiled.reject("not its own place", "attend to the key at its own position", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j >= i + n_k - n_q
))  # fmt: skip
tiled.reject("one key too many", "attends to the key after its own position", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j > i + n_k - n_q + 1
))  # fmt: skip
tiled.reject("rows of tiles", r"a tensor of shape \(1, 1, 9, 86\) came about", rows_at_once)
tiled.reject("one mask for all", r"a tensor of shape \(69, 170\) came about", one_mask_for_all)
tiled.reject("tiles in a list", "of the shape of a tile were alive at once", tiles_kept)


def fused_query_by_query(q, k, v, block_q, block_k, is_causal):
    """Leave the scores to PyTorch, which needs no mask for one query."""
    n_q, n_k = q.shape[2], k.shape[2]
    ends = [n_k - n_q + i + 1 if is_causal else n_k for i in range(n_q)]
    fused = torch.nn.functional.scaled_dot_product_attention
    return torch.cat(
        [fused(q[:, :, i : i + 1], k[:, :, :j], v[:, :, :j]) for i, j in enumerate(ends)], dim=2
    )


def merging(*, lse=0.0, weigh=None, keep=None, first=None, turned=False, join=tiles.merge):
    """Merge parts as partial_attention gives them, with something amiss."""

    def attend(q, k, v, block_q, block_k, is_causal):
        rows = []
        for top in range(0, q.shape[2], block_q):
            parts = []
            for left in range(0, k.shape[2], block_k):
                s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
                if turned and is_causal:
                    i = torch.arange(top, top + s.shape[2])[:, None] + k.shape[2] - q.shape[2]
                    seen = torch.arange(left, left + s.shape[3]) <= i
                    s = scored(q, k, v, top, left, block_q, block_k, False)[0]
                    s = s.masked_fill(seen, -INF)
                of_part = s.logsumexp(dim=-1) if weigh is None else weigh(s)
                parts.append(Partial(s.softmax(dim=-1).nan_to_num(0.0) @ values, of_part))
            found = Partial(0 * parts[0].out, torch.full_like(parts[0].lse, lse))
            found, rest = (parts[0], parts[1:]) if first is None else (found, parts)
            if first == "twice":
                found, rest = parts[0], parts
            for part in rest:
                new = join(found, part)
                found = Partial(new.out, keep(found.lse, part.lse) if keep else new.lse)
            rows.append(found.out)
        return torch.cat(rows, dim=2)

    return attend


def counted_though_hidden(q, k, v, block_q, block_k, is_causal):
    """Add up all exponentials, and the values of what is seen."""
    out = []
    for top in range(0, q.shape[2], block_q):
        top_s, total, acc = -1e30, 0.0, 0.0
        for left in range(0, k.shape[2], block_k):
            s = scored(q, k, v, top, left, block_q, block_k, False)[0]
            seen, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            new = torch.clamp(s.amax(dim=-1, keepdim=True), min=top_s)
            less = torch.exp(top_s - new)
            acc = acc * less + (seen - new).exp() @ values
            total, top_s = total * less + (s - new).exp().sum(-1, keepdim=True), new
        out.append(acc / total)
    return torch.cat(out, dim=2)


tiled.reject("fused, query by query", "86 keys were read at once$", fused_query_by_query)
tiled.reject("lse begins at 0", "one more key counts, with score 0", merging(first="empty"))
tiled.reject("lse is not carried on", "stays that of the first", merging(keep=lambda a, _: a))
tiled.reject("the larger lse", "the larger of the two that were merged", merging(
    keep=torch.maximum
))  # fmt: skip
tiled.reject("by the largest score", "exp of their largest score", merging(
    weigh=lambda s: s.amax(dim=-1)
))  # fmt: skip
tiled.reject("zeros for nothing", "keys 0 to 3, 8 to 11.*out is 0 too where values", merging(
    join=without_zeros
))  # fmt: skip
for gap in (8, 10):
    tiled.reject(f"a tile lighter by {gap}", "rows differ", merging(
        join=lambda a, b, gap=gap: Partial(lighter_left_out(a, b, gap), tiles.merge(a, b).lse)
    ))  # fmt: skip


def old_let_go(q, k, v, block_q, block_k, is_causal):
    """Forget what there is when it weighs less than a thousandth."""

    def join(a, b):
        old = Partial(a.out, a.lse.masked_fill(a.lse - b.lse < -7, -INF))
        return tiles.merge(old, b)

    return merging(join=join)(q, k, v, block_q, block_k, is_causal)


for gap, early in ALL_LIGHT:
    tiled.reject(
        f"wholly lighter by {gap}, {early=}",
        "12.8 .* hundreds of times as large$",
        merging(join=if_all_are_light(gap, early)),
    )
for gap in (1, 2, 3, 5, 8, 12):
    tiled.reject(f"scores lower by {gap} are skipped", "12.8 lower, and .* times as large$", with_(
        light=gap
    ))  # fmt: skip
for name, join in ONE_SHARE.items():
    tiled.accept(f"one share: {name}", merging(join=lambda a, b, join=join: Partial(*join(a, b))))
tiled.reject("the old let go", "the values of the others are hundreds of times", old_let_go)
tiled.reject("the first twice", "the first tile counts twice", merging(first="twice"))
tiled.reject("True and False", "differ.*is hidden, and what may not is seen", merging(turned=True))
tiled.reject("True and False, and NaN", "NaN, .*is hidden, and what may not is seen", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j <= i + n_k - n_q
))  # fmt: skip
tiled.reject("hidden ones counted", "still counts in the sum", counted_though_hidden)
tiled.reject("by the number of keys, scaled", "but 1/√n_k$", lambda q, k, *a: (
    online(q * (q.shape[-1] / k.shape[-2]) ** 0.5, k, *a)
))  # fmt: skip
tiled.reject("the width of the model", "but 1/√.h d_k.$", lambda q, *a: (
    online(q / q.shape[1] ** 0.5, *a)
))  # fmt: skip
tiled.reject("scaled twice", "but 1/d_k$", lambda q, *a: by_merge(q / q.shape[-1] ** 0.5, *a))


# Heads of a rank
heads = Exercise(tiles_and_ranks.heads_of)


def pick(part, d, at):
    return part.unflatten(0, (-1, d))[at].flatten(0, 1)


def dealt(layer, rank, world, mine=None, read=None, bias=None, columns=None):
    """Deal heads to a rank, in a row unless others are given."""
    h, readers = layer.h // world, layer.h // layer.h_kv
    mine = list(range(rank * h, (rank + 1) * h)) if mine is None else mine
    read = sorted({i // readers for i in mine}) if read is None else read
    held = (
        (layer.w_q, layer.d_k, mine),
        (layer.w_k, layer.d_k, read),
        (layer.w_v, layer.d_v, read),
    )
    w_qkv = torch.cat([pick(part.weight, d, at) for part, d, at in held])
    b_qkv = torch.cat([pick(part.bias, d, at) for part, d, at in held])
    w_o = pick(layer.w_o.weight.T, layer.d_v, mine if columns is None else columns).T
    return w_qkv, b_qkv, w_o, layer.w_o.bias * (rank == 0 if bias is None else bias)


def by_slices(layer, rank, world):
    d_k, d_v = layer.d_k, layer.d_v
    h, readers = layer.h // world, layer.h // layer.h_kv
    first = rank * h // readers
    g = ((rank + 1) * h - 1) // readers + 1 - first
    q = slice(rank * h * d_k, (rank + 1) * h * d_k)
    k, v = slice(first * d_k, (first + g) * d_k), slice(first * d_v, (first + g) * d_v)
    rows = [(layer.w_q, q), (layer.w_k, k), (layer.w_v, v)]
    w_qkv = torch.cat([part.weight[at] for part, at in rows])
    b_qkv = torch.cat([part.bias[at] for part, at in rows])
    w_o = layer.w_o.weight[:, rank * h * d_v : (rank + 1) * h * d_v]
    b_o = layer.w_o.bias if rank == 0 else torch.zeros(layer.d_model)
    return w_qkv, b_qkv, w_o, b_o


def by_labkit(layer, rank, world):
    part = shard(layer, rank, world)
    b_o = torch.zeros(layer.d_model) if part.w_o.bias is None else part.w_o.bias
    return part.w_qkv.weight, part.w_qkv.bias, part.w_o.weight, b_o


def by_indices(layer, rank, world):
    """Name the rows of the packed matrix."""
    h, h_kv, d_k, d_v = layer.h, layer.h_kv, layer.d_k, layer.d_v
    mine = torch.arange(h).chunk(world)[rank]
    read = torch.arange(h_kv).repeat_interleave(h // h_kv)[mine].unique()
    rows = [i * d_k + j for i in mine.tolist() for j in range(d_k)]
    rows += [(h + i) * d_k + j for i in read.tolist() for j in range(d_k)]
    rows += [(h + h_kv) * d_k + i * d_v + j for i in read.tolist() for j in range(d_v)]
    columns = [i * d_v + j for i in mine.tolist() for j in range(d_v)]
    linear, out = layer.w_qkv, layer.w_o
    return linear.weight[rows], linear.bias[rows], out.weight[:, columns], out.bias * (not rank)


def bias_in_parts(layer, rank, world):
    return dealt(layer, rank, world, bias=1 / world)


heads.accept("heads picked", dealt)
heads.accept("slices", by_slices)
heads.accept("labkit's", by_labkit)
heads.accept("rows by their numbers", by_indices)
heads.accept("a part of the bias on every rank", bias_in_parts)


def packed_rows_cut_always(layer, rank, world):
    w_o, b_o = dealt(layer, rank, world)[2:]
    linear = layer.w_qkv
    return linear.weight.chunk(world)[rank], linear.bias.chunk(world)[rank], w_o, b_o


def repeated(layer, rank, world):
    h = layer.h // world
    mine = range(rank * h, (rank + 1) * h)
    return dealt(layer, rank, world, read=list(dict.fromkeys(i % layer.h_kv for i in mine)))


def keys_dealt_as_queries(layer, rank, world):
    g = max(layer.h_kv // world, 1)
    return dealt(layer, rank, world, read=[i % layer.h_kv for i in range(rank * g, (rank + 1) * g)])


def a_copy_for_each_query(layer, rank, world):
    h, readers = layer.h // world, layer.h // layer.h_kv
    read = [i // readers for i in range(rank * h, (rank + 1) * h)]
    return dealt(layer, rank, world, read=read)


def by_turns(layer, rank, world):
    return dealt(layer, rank, world, mine=list(range(rank, layer.h, world)))


def first_columns(layer, rank, world):
    return dealt(layer, rank, world, columns=list(range(layer.h // world)))


def values_first(layer, rank, world):
    w_qkv, b_qkv, *others = dealt(layer, rank, world)
    return w_qkv.flip(0), b_qkv.flip(0), *others


def bias_of_rank_0(layer, rank, world):
    w_qkv, _, w_o, b_o = dealt(layer, rank, world)
    return w_qkv, dealt(layer, 0, world)[1], w_o, b_o


def rows_of_w_o(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    return w_qkv, b_qkv, w_o.T, b_o


def writes_into_the_layer(layer, rank, world):
    found = [x.clone() for x in dealt(layer, rank, world)]
    layer.w_o.bias.zero_()
    return found


ONE_RANK = r"rank \d of \d has heads"
heads.reject("packed rows cut in any case", "cut in equal pieces", packed_rows_cut_always)
heads.reject("repeated, not interleaved", "does not read head i mod h_kv", repeated)
heads.reject("keys dealt as queries are", "chosen by the rank's number", keys_dealt_as_queries)
heads.reject("a copy for each query", "each head once.*the layer's rows", a_copy_for_each_query)
heads.reject("by turns", "dealt out by turns", by_turns)
heads.reject("the first columns", r"columns of heads \[0, 1, 2\]$", first_columns)
heads.reject("values first", "all rows of w_qkv are there, and in another order", values_first)
heads.reject("biases of rank 0", "entries of b_qkv are not those", bias_of_rank_0)
heads.reject("w_o turned", r"w_o has the shape \(11, 15\).*changed places", rows_of_w_o)
heads.reject("the bias on every rank", "each of the 2 ranks adds it", lambda *a: dealt(*a, bias=1))
heads.reject("the bias on no rank", "no rank adds it", lambda *a: dealt(*a, bias=0))
heads.reject("None on the other ranks", "zeros where it adds nothing.*b_o is None", lambda *a: (
    *dealt(*a)[:3], dealt(*a)[3] if a[1] == 0 else None
))  # fmt: skip
heads.reject("the bias divided by h", "adds it divided by h", lambda layer, *a: (
    dealt(layer, *a, bias=1 / layer.h)
))  # fmt: skip
heads.reject("columns counted in d_k", "d_k columns a head", lambda layer, rank, world: (
    *dealt(layer, rank, world)[:2],
    layer.w_o.weight.split(layer.h // world * layer.d_k, dim=1)[rank],
    dealt(layer, rank, world)[3],
))  # fmt: skip
heads.reject("columns that begin in d_k", "columns of no whole heads", lambda layer, rank, world: (
    *dealt(layer, rank, world)[:2],
    layer.w_o.weight[:, rank * layer.h // world * layer.d_k :][:, : layer.h // world * layer.d_v],
    dealt(layer, rank, world)[3],
))  # fmt: skip
heads.reject("by the rank", "by the rank's number, and not by what", lambda layer, rank, world: (
    dealt(layer, rank, world, read=[rank % layer.h_kv] if world > layer.h_kv else None)
))  # fmt: skip
heads.reject("by the rank, up to the last", "by the rank's number, and", lambda layer, r, world: (
    dealt(layer, r, world, read=[min(r, layer.h_kv - 1)] if world > layer.h_kv else None)
))  # fmt: skip


def copied_values_divided(layer, rank, world):
    rows, biases, *others = dealt(layer, rank, world)
    whole = len(rows) - max(layer.h_kv // world, 1) * layer.d_v
    share = torch.ones(len(rows))
    share[whole:] = 1 / max(world // layer.h_kv, 1)
    return rows * share[:, None], biases * share, *others


def keys_moved_on(layer, rank, world):
    rows, biases, *others = dealt(layer, rank, world)
    first, keys = layer.h // world * layer.d_k, max(layer.h_kv // world, 1) * layer.d_k
    order = torch.arange(len(rows))
    order[first : first + keys] = order[first : first + keys].roll(1)
    return rows[order], biases[order], *others


def bias_divided_in_place(layer, rank, world):
    b_o = layer.w_o.bias.detach()
    b_o /= world
    return *dealt(layer, rank, world)[:3], b_o


heads.reject("rows of keys moved on", "the layer's rows 35, 24 to 34 as keys", keys_moved_on)
heads.reject("a bias divided in place", "w_o.bias changed in place", bias_divided_in_place)
heads.reject("copied values divided", "rows that are none of the layer's as values", (
    copied_values_divided
))  # fmt: skip
heads.reject("w_o divided by the ranks", "divided by the number of ranks", lambda layer, *a: (
    *dealt(layer, *a)[:2], dealt(layer, *a)[2] / a[1], dealt(layer, *a)[3]
))  # fmt: skip


def in_thirds(layer, rank, world):
    """Take a third of w_qkv for the queries, as if all heads were alike."""
    w, b = (
        torch.cat([part.tensor_split(world)[rank] for part in x.tensor_split(3)])
        for x in (layer.w_qkv.weight, layer.w_qkv.bias)
    )
    return w, b, *dealt(layer, rank, world)[2:]


def columns_of_its_keys(layer, rank, world):
    h, readers = layer.h // world, layer.h // layer.h_kv
    read = sorted({i // readers for i in range(rank * h, (rank + 1) * h)})
    return dealt(layer, rank, world, columns=read)


heads.reject("three equal parts", "was cut in three equal parts", in_thirds)
heads.reject("in a set's order", r"heads \[8, 6, 7\] as keys", lambda layer, rank, world: dealt(
    layer, rank, world, read=list({
        i * layer.h_kv // layer.h for i in range(layer.h) if i * world // layer.h == rank
    })
))  # fmt: skip
heads.reject("columns of its keys", "as its heads of values have rows", columns_of_its_keys)
heads.reject("ranks from 1", r"rows of heads \[3, 4, 5\] as queries", lambda layer, rank, world: (
    dealt(layer, (rank - 1) % world, world)
))  # fmt: skip
heads.reject("the layer is written into", "left as it is.*changed in place", writes_into_the_layer)


# A ring
ring = Exercise(tiles_and_ranks.ring_attention)


def placed(rank, source, m):
    at = torch.arange(m)
    return (rank.rank * m + at)[:, None] >= source * m + at


def passing(rank, k, v):
    """Give every block of keys and values that passes, the rank's own first, and its mask."""
    m = k.shape[2]
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        yield k, v, placed(rank, (rank.rank - s) % rank.world, m)


def passed_on(rank, q, k, v, may=placed, source=None):
    """Merge block after block, the rank's own first."""
    m, found = q.shape[2], None
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        of = (rank.rank - s if source is None else source(rank, s)) % rank.world
        part = partial_attention(q, k, v, mask=may(rank, of, m))
        found = part if found is None else tiles.merge(found, part)
    return found.out


def side_by_side(rank, q, k, v):
    """Hand on keys and values in one tensor, and skip what lies in the future."""
    m, d_k = q.shape[2], q.shape[3]
    both = torch.cat([k, v], dim=-1)
    out, lse = torch.zeros_like(v), torch.full_like(v[..., 0], -INF)
    for source in range(rank.rank, rank.rank - rank.world, -1):
        if source >= 0:
            may = None if source < rank.rank else causal_mask(m)
            part = partial_attention(q, both[..., :d_k], both[..., d_k:], mask=may)
            out, lse = tiles.merge(Partial(out, lse), part)
        if source > rank.rank - rank.world + 1:
            both = rank.shift(both)
    return out


def with_running_largest(
    rank, q, k, v, hidden=-INF, axes=(-1,), itself=True, early=False, later=True
):
    m = q.shape[2]
    acc, total = torch.zeros_like(v), torch.zeros_like(v[..., :1])
    top = torch.full_like(total, -1e30)
    i = rank.rank * m + torch.arange(m)[:, None]
    for s in range(rank.world):
        j = (rank.rank - s) % rank.world * m + torch.arange(m)
        whole = q @ k.mT / q.shape[-1] ** 0.5
        fill = hidden if later or s == 0 else -INF
        scores = whole.masked_fill((j > i) if itself else (j >= i), fill)
        new = torch.maximum(top, (whole if early else scores).amax(dim=axes, keepdim=True))
        e, scale = (scores - new).exp(), (top - new).exp()
        acc, total, top = acc * scale + e @ v, total * scale + e.sum(-1, keepdim=True), new
        if s < rank.world - 1:
            k, v = map(rank.shift, (k, v))
    return acc / total


def collected_and_merged_backwards(rank, q, k, v):
    m, blocks = q.shape[2], [(rank.rank, k, v)]
    while len(blocks) < rank.world:
        source, *block = blocks[-1]
        blocks.append(((source - 1) % rank.world, *(rank.shift(t) for t in block)))
    parts = [
        partial_attention(q, k, v, mask=placed(rank, source, m))
        for source, k, v in reversed(blocks)
    ]
    return reduce(tiles.merge, parts).out


def values_first_on(rank, q, k, v):
    m, out, lse = q.shape[2], [], []
    for s in range(rank.world):
        if s:
            v = rank.shift(v)
            k = rank.shift(k.contiguous())
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        out.append(part.out)
        lse.append(part.lse)
    share = torch.stack(lse).softmax(dim=0)
    return (share[..., None] * torch.stack(out)).sum(dim=0)


ring.accept("parts that are merged", passed_on)
ring.accept("one tensor for both", side_by_side)
ring.accept("a running largest score", with_running_largest)
ring.accept("merged from the last that came", collected_and_merged_backwards)
ring.accept("a softmax of all lse", values_first_on)


def block_by_recursion(rank, q, k, v):
    m = q.shape[2]

    def from_step(s, k, v):
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        if s == rank.world - 1:
            return part
        return tiles.merge(part, from_step(s + 1, rank.shift(k), rank.shift(v)))

    return from_step(0, k, v).out


def flat_and_in_numpy(rank, q, k, v):
    """Hand on one axis of numbers, and attend in float64 to what is seen."""
    m, both, shape = q.shape[2], torch.cat([k.flatten(), v.flatten()]), v.shape
    largest, total, out = np.full((*q.shape[:3], 1), -np.inf), 0.0, 0.0
    for s in range(rank.world):
        both = rank.shift(both) if s else both
        source = (rank.rank - s) % rank.world
        if source > rank.rank:
            continue
        k, v = both[: k.numel()].view_as(q), both[k.numel() :].view(shape).numpy()
        held = np.einsum("bhid,bhjd->bhij", q.double().numpy(), k.double().numpy())
        held = np.where(placed(rank, source, m).numpy(), held / q.shape[-1] ** 0.5, -np.inf)
        new = np.maximum(largest, held.max(-1, keepdims=True))
        e, less, largest = np.exp(held - new), np.exp(largest - new), new
        total, out = total * less + e.sum(-1, keepdims=True), out * less + e @ v
    return torch.from_numpy(out / total)


def rank_0_hands_on_its_own(rank, q, k, v):
    """Let rank 0 keep its block: what would come to it lies in everybody's future."""
    m, found = q.shape[2], None
    for s in range(rank.world):
        came = (rank.shift(k), rank.shift(v)) if s else (k, v)
        k, v = came if rank.rank else (k, v)
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        found = part if found is None else tiles.merge(found, part)
    return found.out


ring.accept("recursion", block_by_recursion)
ring.accept("one axis of numbers, and numpy", flat_and_in_numpy)
ring.accept("rank 0 hands on its own again", rank_0_hands_on_its_own)


def score_blocks_in_a_list(rank, q, k, v):
    """Keep the scores of every block, and take their softmax at the end."""
    held, values = [], []
    for keys, of_keys, may in passing(rank, k, v):
        held.append((q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(~may, -INF))
        values.append(of_keys)
    top = torch.stack([s.amax(dim=-1, keepdim=True) for s in held]).amax(dim=0)
    held = [(s - top).exp() for s in held]
    total = sum(e.sum(dim=-1, keepdim=True) for e in held)
    return sum(e @ v for e, v in zip(held, values, strict=True)) / total


ring.accept("score blocks in a list", score_blocks_in_a_list)


def ring_with(**changes):
    return lambda *arguments: passed_on(*arguments, **changes)


def local_places(rank, source, m):
    return causal_mask(m)


def own_alone_masked(rank, source, m):
    return causal_mask(m) | torch.tensor(source != rank.rank)


def own_alone(rank, q, k, v):
    return partial_attention(q, k, v, mask=causal_mask(q.shape[2])).out


def last_forgotten(rank, q, k, v):
    m, found = q.shape[2], None
    for s in range(max(rank.world - 1, 1)):
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        found = part if found is None else tiles.merge(found, part)
        if s < rank.world - 2:
            k, v = rank.shift(k), rank.shift(v)
    return found.out


def shifts_after_all(rank, q, k, v):
    m, found = q.shape[2], None
    for s in range(rank.world):
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        found = part if found is None else tiles.merge(found, part)
        k, v = rank.shift(k), rank.shift(v)
    return found.out


def gathered(rank, q, k, v):
    k, v = (torch.cat(rank.all_gather(x), dim=2) for x in (k, v))
    m = q.shape[2]
    return partial_attention(q, k, v, mask=causal_mask(m * rank.world)[rank.rank * m :][:m]).out


def reduced(rank, q, k, v):
    return rank.all_reduce(own_alone(rank, q, k, v))


def joined_first(rank, q, k, v):
    m, keys, values = q.shape[2], [k], [v]
    for _ in range(1, rank.world):
        keys.append(rank.shift(keys[-1]))
        values.append(rank.shift(values[-1]))
    may = torch.cat([placed(rank, (rank.rank - s) % rank.world, m) for s in range(rank.world)], 1)
    return partial_attention(q, torch.cat(keys, 2), torch.cat(values, 2), mask=may).out


def careless_merge(a, b):
    lse = torch.logaddexp(a.lse, b.lse)
    share = [(part.lse - lse).exp()[..., None] * part.out for part in (a, b)]
    return Partial(sum(share), lse)


def from_the_future_first(rank, q, k, v):
    """Begin with the block that came, and merge without care for what sees nothing."""
    parts = [partial_attention(q, k, v, mask=may) for k, v, may in passing(rank, k, v)]
    return reduce(careless_merge, parts[1:] + parts[:1]).out


def dies_on_the_last(rank, q, k, v):
    if rank.rank == rank.world - 1 and rank.world > 2:
        return [k][rank.rank]
    return passed_on(rank, q, k, v)


def loops(rank, q, k, v):
    while rank.rank == 1:
        pass
    return passed_on(rank, q, k, v)


def loops_over_tensors(rank, q, k, v):
    world, step = rank.world, 0
    while step < world:
        q = q + 0
    return q


def sleeps(rank, q, k, v):
    if rank.rank == 1:
        time.sleep(4)
    return passed_on(rank, q, k, v)


for endless in (loops, loops_over_tensors, sleeps):
    endless.hopeless = True


def leaves_at_once(rank, q, k, v):
    if rank.rank == 0:
        return own_alone(rank, q, k, v)
    time.sleep(0.2)  # so that the first has left
    return passed_on(rank, q, k, v)


def leaves_late(rank, q, k, v):
    if rank.rank == 0:
        time.sleep(0.2)  # so that the others have begun
        return own_alone(rank, q, k, v)
    return passed_on(rank, q, k, v)


def travelling(rank, q, k, v, keys=True, values=True, again=False, join=None, early=False):
    """Hand on keys, values or both, or the rank's own again, and join what the blocks give."""
    m, own, parts = q.shape[2], (k, v), []
    for s in range(rank.world):
        if s:
            came = [rank.shift(t) for t in (own if again else (k, v))]
            k, v = came[0] if keys else k, came[1] if values else v
        may = placed(rank, (rank.rank - s) % rank.world, m)
        parts.append(partial_attention(q, k, v, mask=may))
    if join is None:
        return reduce(tiles.merge, parts).out
    return join([part.out for part in parts if part.lse.isfinite().all()])


def one_waits(rank, q, k, v, late):
    """Attend to keys or values of the step before."""
    m, parts, before = q.shape[2], [], (k, v)
    for s in range(rank.world):
        if s:
            before, (k, v) = (k, v), (rank.shift(k), rank.shift(v))
        x, y = (before[0] if late == "k" else k), (before[1] if late == "v" else v)
        parts.append(partial_attention(q, x, y, mask=placed(rank, (rank.rank - s) % rank.world, m)))
    return reduce(tiles.merge, parts).out


def queries_travel(rank, q, k, v, values):
    m, parts = q.shape[2], []
    for s in range(rank.world):
        if s:
            q, v = rank.shift(q), rank.shift(v) if values else v
        parts.append(partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m)))
    return reduce(tiles.merge, parts).out


def number_too(rank, q, k, v):
    """Hand on, beside keys and values, whose they are."""
    m, parts, source = q.shape[2], [], torch.tensor(rank.rank)
    for s in range(rank.world):
        if s:
            k, v, source = (rank.shift(t) for t in (k, v, source))
        parts.append(partial_attention(q, k, v, mask=placed(rank, int(source), m)))
    return reduce(tiles.merge, parts).out


def carried(rank, q, k, v, rescale=True, floor=-1e30):
    """Carry a largest score, a sum and an output, and forget to scale the output down."""
    acc, total = torch.zeros_like(v), torch.zeros_like(v[..., :1])
    top = torch.full_like(total, floor)
    for keys, values, may in passing(rank, k, v):
        held = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(~may, -INF)
        new = torch.maximum(top, held.amax(dim=-1, keepdim=True))
        e, less = (held - new).exp(), (top - new).exp()
        acc = acc * (less if rescale else 1) + e @ values
        total, top = total * less + e.sum(-1, keepdim=True), new
    return acc / total


def without_maximum(rank, q, k, v):
    out, total = 0.0, 0.0
    for keys, values, may in passing(rank, k, v):
        e = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(~may, -INF).exp()
        out, total = out + e @ values, total + e.sum(dim=-1, keepdim=True)
    return out / total


def in_float64(rank, q, k, v):
    return passed_on(rank, q.double(), k.double(), v.double()).float()


def two_at_a_time(rank, q, k, v):
    """Wait for a second block, and attend to both at once."""
    m, held, parts = q.shape[2], [], []
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        held.append((k, v, placed(rank, (rank.rank - s) % rank.world, m)))
        if len(held) == 2 or s == rank.world - 1:
            keys, values, may = (
                torch.cat(of, dim)
                for of, dim in zip(zip(*held, strict=True), (2, 2, 1), strict=True)
            )
            parts.append(partial_attention(q, keys, values, mask=may))
            held = []
    return reduce(tiles.merge, parts).out


def mean_of_all(rank, q, k, v):
    parts = [partial_attention(q, k, v, mask=may) for k, v, may in passing(rank, k, v)]
    return mean([part.out for part in parts])


def own_left_out(rank, q, k, v):
    """Shift before each block, so that one's own is never at hand."""
    m, out = q.shape[2], Partial(torch.zeros_like(v), torch.full_like(v[..., 0], -INF))
    for s in range(1, rank.world):
        k, v = rank.shift(k), rank.shift(v)
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        out = tiles.merge(out, part)
    return out.out


def with_queries(rank, q, k, v):
    """Hand on queries too, which nobody needs."""
    d = q.shape[-1]
    all_, m, found = torch.cat([q, k, v], dim=-1), q.shape[2], None
    for s in range(rank.world):
        all_ = rank.shift(all_) if s else all_
        k, v = all_[..., d : 2 * d], all_[..., 2 * d :]
        part = partial_attention(q, k, v, mask=placed(rank, (rank.rank - s) % rank.world, m))
        found = part if found is None else tiles.merge(found, part)
    return found.out


def mean(outs):
    return sum(outs) / len(outs)


def not_itself(rank, source, m):
    at = torch.arange(m)
    return (rank.rank * m + at)[:, None] > source * m + at


def changes_its_keys(rank, q, k, v):
    out = passed_on(rank, q, k, v)
    k.mul_(2)
    return out


ring.reject("by local places", "masked as if it were the rank's own", ring_with(may=local_places))
ring.reject("later blocks", "later blocks are attended to", ring_with(may=own_alone_masked))
ring.reject("a shift too few", "block that comes last is left out", last_forgotten)
ring.reject("a shift too many", "calls it more often", shifts_after_all)
ring.reject("the other way round", "if the ring turned the other way", ring_with(
    source=lambda rank, s: rank.rank + s
))  # fmt: skip
ring.reject("gathered", "by rank.shift alone\n.*all_gather was called", gathered)
ring.reject("reduced", "all_reduce was called", reduced)
ring.reject("all keys at once", r"those of one block of keys.*came about", joined_first)
ring.reject(
    "NaN of two that see nothing", "if a query sees nothing of a block", from_the_future_first
)
ring.reject("dies on the last", "on rank 3 of 4: IndexError.*return .k..rank.rank.", (
    dies_on_the_last
))  # fmt: skip
ring.reject("a loop on one rank", "rank 1 of 4 gave none, .*a loop without end.$", loops)
ring.reject("a loop over tensors", r"rank \d of 4 gave none, .*without end.$", loops_over_tensors)
ring.reject("asleep", "rank 1 of 4 gave none.* may run on until you restart the kernel$", sleeps)
for gap in (6, 8, 10):
    ring.reject(f"a block lighter by {gap}", "rows differ", lambda *a, gap=gap: merged_from(
        *a, join=lambda a, b: Partial(lighter_left_out(a, b, gap), tiles.merge(a, b).lse)
    ))  # fmt: skip
ring.reject("one leaves at once", "rank 0 of 4 returned after 0 shifts", leaves_at_once)
ring.reject("one leaves late", "rank 0 of 4 returned after 0 shifts, and rank", leaves_late)
ring.reject("its keys changed", "leaves its blocks.*rank 0 was changed", changes_its_keys)
ring.reject("its own block alone", "attends to its own block alone", own_alone)
ring.reject("nothing hidden", "nothing is hidden", ring_with(may=lambda rank, source, m: (
    torch.ones(m, m, dtype=torch.bool)
)))  # fmt: skip
ring.reject("not itself", "a position does not attend to itself", ring_with(may=not_itself))
ring.reject("the rank before's", "taken for that of the rank before", ring_with(
    source=lambda rank, s: rank.rank - s - 1
))  # fmt: skip
ring.reject("the rank after's", "taken for that of the rank after", ring_with(
    source=lambda rank, s: rank.rank - s + 1
))  # fmt: skip
ring.reject("values stay", "keys travel, and values stay", lambda *a: travelling(*a, values=False))
ring.reject("keys stay", "values travel, and keys stay", lambda *a: travelling(*a, keys=False))
ring.reject("its own again", "its own block again", lambda *a: travelling(*a, again=True))
ring.reject("averaged", "blocks were averaged", lambda *a: travelling(*a, join=mean))
ring.reject("added", "blocks were added as they are", lambda *a: travelling(*a, join=sum))
ring.reject("queries travel", "a rank handed on", with_queries)
ring.reject("its own unmasked", "within its own block a rank hides nothing", ring_with(
    may=lambda rank, source, m: torch.full((m, m), source <= rank.rank)
))  # fmt: skip


def merged_from(
    rank, q, k, v, *, begin=None, keep=None, used=True, last=False, twice=False, join=tiles.merge
):
    """Merge block after block, with something amiss."""
    m, found = q.shape[2], begin and Partial(torch.zeros_like(v), torch.zeros_like(v[..., 0]))
    found = partial_attention(q, k, v, mask=causal_mask(m)) if twice else found
    for s in range(rank.world):
        if s:
            came = rank.shift(k), rank.shift(v)
            k, v = came if used else (k, v)
        source = (rank.rank - s) % rank.world
        part = partial_attention(q, k, v, mask=placed(rank, source, m))
        if found is None or last:
            found = part if source <= rank.rank else found
            continue
        new = join(found, part)
        found = Partial(new.out, keep(found.lse, part.lse) if keep else new.lse)
    return found.out


def merged(**how):
    return lambda *arguments: merged_from(*arguments, **how)


def keys_first_round(rank, q, k, v):
    """Send keys round, keep the scores, then send values round."""
    m, held, out = q.shape[2], [], 0.0
    for s in range(rank.world):
        k = rank.shift(k) if s else k
        may = placed(rank, (rank.rank - s) % rank.world, m)
        held.append((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~may, -INF))
    for s, weights in enumerate(torch.cat(held, dim=-1).softmax(dim=-1).split(m, dim=-1)):
        v = rank.shift(v) if s else v
        out = out + weights @ v
    return out


ring.reject("lse begins at 0", "one more key counts, with score 0", merged(begin=True))
ring.reject("lse is not carried on", "stays that of the first", merged(keep=lambda a, _: a))
ring.reject("the larger lse", "larger of the two that were merged", merged(keep=torch.maximum))
ring.reject("what came is not used", "shift returns what came", merged(used=False))
ring.reject("zeros for nothing", "8 to 11.*out is 0 too where", merged(join=without_zeros))
for gap, early in ALL_LIGHT:
    ring.reject(
        f"wholly lighter by {gap}, {early=}",
        "12.8 .* hundreds of times as large$",
        merged(join=if_all_are_light(gap, early)),
    )
for name, join in ONE_SHARE.items():
    ring.accept(f"one share: {name}", merged(join=lambda a, b, join=join: Partial(*join(a, b))))
ring.reject("the other way, by -1", "shift takes one tensor.*with more", lambda rank, q, k, v: (
    passed_on(rank, q, rank.shift(k, -1), v)
))  # fmt: skip
ring.reject("its own twice", "the rank's own block counts twice", merged(twice=True))
ring.reject("overwritten", "only the block that a rank sees last counts", merged(last=True))
ring.reject("keys go round first", r"a tensor of shape \(1, 1, 7, 35\)", keys_first_round)
ring.reject("scaled twice", "scale is not 1/√d_k but 1/d_k$", lambda rank, q, k, v: passed_on(
    rank, q / q.shape[-1] ** 0.5, k, v
))  # fmt: skip
ring.reject("later, not earlier", "attended to, and earlier ones are not", ring_with(
    may=lambda rank, source, m: causal_mask(m) & (source == rank.rank) | (source > rank.rank)
))  # fmt: skip
ring.reject("its own turned", "own block the mask is the wrong way round", ring_with(
    may=lambda rank, source, m: causal_mask(m).T & (source == rank.rank) | (source < rank.rank)
))  # fmt: skip
ring.reject("True and False", "is hidden, and what may not is seen", ring_with(
    may=lambda *a: ~placed(*a)
))  # fmt: skip
ring.reject("the pair", "it is a tensor.*a Partial of 2", lambda rank, q, k, v: (
    partial_attention(q, k, v)
))  # fmt: skip
ring.reject("its own left out", "the rank's own block is left out", own_left_out)
ring.reject("no scale", "scale is not 1/√d_k but 1$", lambda rank, q, k, v: passed_on(
    rank, q * q.shape[-1] ** 0.5, k, v
))  # fmt: skip
for late in "kv":
    ring.reject(f"{late} waits", "rows differ", lambda *a, late=late: one_waits(*a, late=late))
ring.reject("queries travel alone", "queries travel, and keys and values stay", lambda *a: (
    queries_travel(*a, values=False)
))  # fmt: skip
ring.reject("queries for keys", "rows differ", lambda *a: (
    queries_travel(*a, values=True)
))  # fmt: skip
ring.reject("a number of the source", "how many tensors are handed on in a round", number_too)
ring.reject("the old is not scaled down", "the output so far is not scaled", lambda *a: (
    carried(*a, rescale=False)
))  # fmt: skip
for floor in (0.0, -1e4):
    ring.reject(f"the largest begins at {floor}", "12,000.*NaN; the running maximum began at", (
        lambda *a, floor=floor: carried(*a, floor=floor)
    ))  # fmt: skip
ring.reject(
    "no maximum", "rise by 300.*NaN; no maximum was taken off.*of 710 in float64$", without_maximum
)
ring.reject("the largest before the mask", "NaN; the maximum was taken before the mask.*it$", (
    lambda *a: with_running_largest(*a, early=True)
))  # fmt: skip
# A ring without blocks from the future cannot tell these two apart.
ring.reject("one largest for a block", "before the mask.*; or one maximum was taken", lambda *a: (
    with_running_largest(*a, axes=(-2, -1))
))  # fmt: skip
ring.reject("float64", "twice as many; were they float64", in_float64)
ring.reject("two blocks at a time", r"those of one block of keys.*\(.*7, 14\)", two_at_a_time)
ring.reject("the mean of all", "even of those that a query does not see", mean_of_all)
ring.reject("the step for the source", "whose number is the step's", ring_with(
    source=lambda rank, s: s
))  # fmt: skip
ring.reject("queries from 0", "queries are counted from the start of their block", ring_with(
    may=lambda rank, source, m: torch.arange(m)[:, None] >= source * m + torch.arange(m)
))  # fmt: skip
ring.reject("keys from 0", "keys are counted from the start of their block", ring_with(
    may=lambda rank, source, m: (rank.rank * m + torch.arange(m))[:, None] >= torch.arange(m)
))  # fmt: skip
ring.reject("hidden ones −10,000", "12,000.*; what is hidden has a finite score, above", (
    lambda *a: with_running_largest(*a, hidden=-1e4)
))  # fmt: skip
ring.reject("hidden ones −10,000 in its own block", (
    "12,000.*; in a block that is seen in part what is hidden has a finite score, above those"
), lambda *a: with_running_largest(*a, hidden=-1e4, later=False))  # fmt: skip
for axis, what in enumerate(("texts", "heads")):
    ring.reject(f"one largest for all {what}", "300 higher than .*NaN; one maximum was", (
        lambda *a, axis=axis: with_running_largest(*a, axes=(axis, -1))
    ))  # fmt: skip
ring.reject("not itself, and a sum of 0", "position 0 has a key.*own position$", lambda *a: (
    with_running_largest(*a, itself=False)
))  # fmt: skip
ring.reject("alone, and shifts", "that is alone does not call shift", lambda rank, q, k, v: (
    passed_on(rank, q, rank.shift(k) if rank.world == 1 else k, v)
))  # fmt: skip
