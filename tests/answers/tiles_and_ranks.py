"""Answers to lab 9."""

from __future__ import annotations

import time
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F

from labkit import causal_mask, ranks, tiles
from labkit.checks import tiles_and_ranks
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


def as_list(a, b):
    return list(tiles.merge(a, b))


merge.accept("the larger taken off", by_largest)
merge.accept("a sigmoid", by_sigmoid)
merge.accept("a softmax of two", by_stack)
merge.accept("numpy", in_numpy)
merge.accept("query by query", query_by_query)
merge.accept("a list", as_list)
merge.accept("labkit's", tiles.merge)


def blind_to_nan(a, b):
    lse = torch.logaddexp(a.lse, b.lse)
    return (a.lse - lse).exp()[..., None] * a.out + (b.lse - lse).exp()[..., None] * b.out, lse


def one_blind_is_nan(a, b):
    top = torch.maximum(a.lse, b.lse)
    gap = torch.minimum(a.lse, b.lse) - top
    lse = torch.where(top == -INF, top, top + (1 + gap.exp()).log())
    e_a, e_b = (a.lse / lse.abs()) * lse.abs(), (b.lse / lse.abs()) * lse.abs()
    share = (e_a - lse).exp()[..., None], (e_b - lse).exp()[..., None]
    out = share[0] * a.out + share[1] * b.out
    blind = (top == -INF)[..., None]
    one = (gap == -INF)[..., None]
    return torch.where(blind, 0 * a.out, torch.where(one, 0 * out / 0, out)), lse


def overflows(a, b):
    e_a, e_b = a.lse.exp(), b.lse.exp()
    total = e_a + e_b
    safe = torch.where(total > 0, total, torch.ones_like(total))[..., None]
    return (e_a[..., None] * a.out + e_b[..., None] * b.out) / safe, total.log()


def changed(out=None, lse=None):
    """Make a merge of which one result is something else."""

    def change(a, b):
        x, y = tiles.merge(a, b)
        with np.errstate(all="ignore"):
            return (x if out is None else out(a, b)), (y if lse is None else lse(a, b))

    return change


def shares(a, b):
    lse = tiles.merge(a, b).lse
    safe = torch.where(lse == -INF, torch.zeros_like(lse), lse)
    return (a.lse - safe).exp()[..., None], (b.lse - safe).exp()[..., None]


def average(a, b):
    return (a.out + b.out) / 2


def average_of_those_that_see(a, b):
    sees = (a.lse > -INF).int() + (b.lse > -INF).int()
    return (a.out + b.out) / sees.clamp(min=1)[..., None]


def not_rescaled(a, b):
    return a.out + shares(a, b)[1] * b.out


def swapped(a, b):
    s, t = shares(a, b)
    return t * a.out + s * b.out


def larger(a, b):
    return torch.where((a.lse > b.lse)[..., None], a.out, b.out)


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


def nan_in_one_row(a, b):
    out, lse = tiles.merge(a, b)
    return out, torch.where((a.lse == -INF) & (b.lse == -INF), lse - lse, lse)


def ones_for_blind(a, b):
    out, lse = tiles.merge(a, b)
    return torch.where((lse == -INF)[..., None], 1.0, out), lse


def blind_by_zeros(a, b):
    """Take a part whose out is zero for one that sees nothing."""
    blind = [(p.out == 0).all(dim=-1) for p in (a, b)]
    return tiles.merge(
        *(Partial(p.out, p.lse.masked_fill(z, -INF)) for p, z in zip((a, b), blind, strict=True))
    )


merge.reject("an out of zeros is blind", "counts by the sum of its exponentials", blind_by_zeros)
merge.reject("two that see nothing give NaN", "NaN there: −inf − .−inf.", blind_to_nan)
merge.reject("NaN in lse alone", "lse has NaN there", nan_in_one_row)
merge.reject("one that sees nothing gives NaN", "out has NaN for such a query", one_blind_is_nan)
merge.reject("the largest is not taken off", "exponential of 89 is inf", overflows)
merge.reject("averaged", "the two were averaged", changed(average))
merge.reject("averaged where both see", "the two were averaged", changed(average_of_those_that_see))
merge.reject("added", "the two were added as they are", changed(lambda a, b: a.out + b.out))
merge.reject("the old is not rescaled", "a was not scaled down", changed(not_rescaled))
merge.reject("the other's weight", "each has the other's weight", changed(swapped))
merge.reject("the larger alone", "larger lse was taken alone", changed(larger))
merge.reject("weighted by lse", "weighted by lse, and not by its exp", changed(by_lse))
merge.reject("weights not divided", "weights do not add up to 1", changed(not_normed))
merge.reject("b alone", "only b is there", changed(lambda a, b: b.out))
merge.reject("a alone", "only a is there", changed(lambda a, b: a.out))
merge.reject("something else", "came$|came\n*$", changed(lambda a, b: 3 * a.out - b.out))
merge.reject("blind queries get ones", "out is 0 where a query sees none", ones_for_blind)
merge.reject("the larger lse", "the larger of the two", changed(lse=of_lse(torch.maximum)))
merge.reject("lse added", "lse.*the two were added", changed(lse=lambda a, b: a.lse + b.lse))
merge.reject(
    "the sum without its logarithm",
    "that is the sum, before its logarithm",
    changed(lse=lambda a, b: a.lse.exp() + b.lse.exp()),
)
merge.reject(
    "the mean of lse", "the mean of the two", changed(lse=lambda a, b: (a.lse + b.lse) / 2)
)
merge.reject("b's lse", "that is b's alone", changed(lse=lambda a, b: b.lse))
merge.reject("a's lse", "that is a's alone", changed(lse=lambda a, b: a.lse))
merge.reject(
    "the largest is not put back",
    "once the larger was taken off",
    changed(lse=lambda a, b: torch.logaddexp(a.lse, b.lse) - torch.maximum(a.lse, b.lse)),
)
merge.reject("−10⁹ for −inf", "−inf where there are none", lowest_number)
merge.reject("changed in place", "one of them was changed in place", in_place)
merge.reject("float32", "type of what came in, torch.float64", lambda a, b: [
    x.float() for x in tiles.merge(a, b)
])  # fmt: skip
merge.reject("out alone", "2 results: out, lse", lambda a, b: tiles.merge(a, b).out)
merge.reject("lse with an axis", r"lse has the shape \(2,\)", lambda a, b: (
    tiles.merge(a, b).out, tiles.merge(a, b).lse[..., None]
))  # fmt: skip
merge.reject("four arguments", "it takes a, b, in this order", lambda a, s, b, t: (a, s))


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
           subtract=True, order=1, floor=-1e30):  # fmt: skip
    """Keep a largest score, a sum and an output, and scale them down when a larger score comes."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for top in range(0, n_q, block_q):
        rows = slice(top, top + block_q)
        acc = torch.zeros_like(out[..., rows, :])
        m, total = torch.full_like(acc[..., :1], floor), torch.zeros_like(acc[..., :1])
        for left in list(range(0, n_k, block_k))[::order]:
            s, values = tile(q, k, v, top, left, block_q, block_k, is_causal)
            new = torch.maximum(m, s.amax(dim=-1, keepdim=True)) if subtract else 0 * m
            e, scale = (s - new).exp(), (m - new).exp() if subtract else 1.0
            acc = (acc * scale if scale_out else acc) + e @ values
            total = (total * scale if scale_sum else total) + e.sum(dim=-1, keepdim=True)
            m = new
        out[..., rows, :] = acc / total
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


def head_by_head(q, k, v, block_q, block_k, is_causal):
    out = [
        [online(*of_head, block_q, block_k, is_causal) for of_head in zip(*of_text, strict=True)]
        for of_text in zip(q, k, v, strict=True)
    ]
    return torch.stack([torch.stack(heads) for heads in out])


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


def future_skipped(q, k, v, block_q, block_k, is_causal):
    return tiles.tiled_attention(q, k, v, block_q=block_q, block_k=block_k, is_causal=is_causal)


tiled.accept("parts that are merged", by_merge)
tiled.accept("a running largest score", online)
tiled.accept("keys in the outer loop, from the last", keys_outside)
tiled.accept("head by head", head_by_head)
tiled.accept("einsum", by_einsum)
tiled.accept("numpy", numpy_tiles)
tiled.accept("labkit's", future_skipped)


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


def last_tile_forgotten(q, k, v, block_q, block_k, is_causal):
    n_k = k.shape[2]
    keys = torch.arange(n_k) < max(n_k - block_k, 1)

    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
        return s.masked_fill(~keys[left : left + block_k], -INF), values

    return online(q, k, v, block_q, block_k, is_causal, tile)


def rows_left_out(q, k, v, block_q, block_k, is_causal):
    whole = q.shape[2] // block_q * block_q
    out = online(q, k, v, block_q, block_k, is_causal)
    out[:, :, whole:] = 0
    return out


def parts_of(q, k, v, block_q, block_k, is_causal):
    for top in range(0, q.shape[2], block_q):
        parts = []
        for left in range(0, k.shape[2], block_k):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            parts.append(
                (s.softmax(dim=-1).nan_to_num(0.0) @ values, (s > -INF).any(-1, keepdim=True))
            )
        yield parts


def joined_by(join):
    return lambda *a: torch.cat([join(parts) for parts in parts_of(*a)], dim=2)


def averaged(parts):
    return sum(out for out, _ in parts) / sum(sees.int() for _, sees in parts)


def averaged_over_all(parts):
    return sum(out for out, _ in parts) / len(parts)


def whole(q, k, v, block_q, block_k, is_causal):
    s = q @ k.mT / q.shape[-1] ** 0.5
    if is_causal:
        s = s.masked_fill(~causal_mask(q.shape[2], k.shape[2]), -INF)
    return s.softmax(dim=-1) @ v


def fused(q, k, v, block_q, block_k, is_causal):
    may = causal_mask(q.shape[2], k.shape[2]) if is_causal else None
    return F.scaled_dot_product_attention(q, k, v, may)


def in_rows(q, k, v, block_q, block_k, is_causal):
    return online(q, k, v, block_q, k.shape[2], is_causal)


def in_columns(q, k, v, block_q, block_k, is_causal):
    return online(q, k, v, q.shape[2], block_k, is_causal)


def whole_mask(q, k, v, block_q, block_k, is_causal):
    may = torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]) > 0

    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        s, values = scored(q, k, v, top, left, block_q, block_k, False)
        if is_causal:
            s = s.masked_fill(~may[top : top + block_q, left : left + block_k], -INF)
        return s, values

    return online(q, k, v, block_q, block_k, is_causal, tile)


def with_scale(factor):
    def tile(q, k, v, *others):
        return scored(q * factor(q, v), k, v, *others)

    return with_(tile=tile)


def in_float32(q, k, v, *others):
    return online(q.float(), k.float(), v.float(), *others)


def largest_of_first_tile(q, k, v, block_q, block_k, is_causal):
    """Take the largest score of the first tile off all scores."""
    out = []
    for top in range(0, q.shape[2], block_q):
        m = acc = total = None
        for left in range(0, k.shape[2], block_k):
            s, values = scored(q, k, v, top, left, block_q, block_k, is_causal)
            if m is None:
                m, acc, total = s.amax(-1, keepdim=True), 0.0, 0.0
            e = (s - m).exp()
            acc, total = acc + e @ values, total + e.sum(-1, keepdim=True)
        out.append(acc / total)
    return torch.cat(out, dim=2)


def first_tile_unmasked(q, k, v, block_q, block_k, is_causal):
    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        return scored(q, k, v, top, left, block_q, block_k, is_causal and left > 0)

    return online(q, k, v, block_q, block_k, is_causal, tile)


def first_tile_masked(q, k, v, block_q, block_k, is_causal):
    def tile(q, k, v, top, left, block_q, block_k, is_causal):
        return scored(q, k, v, top, left, block_q, block_k, is_causal and left == 0)

    return online(q, k, v, block_q, block_k, is_causal, tile)


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


def in_place_on_q(q, k, v, block_q, block_k, is_causal):
    q *= q.shape[-1] ** -0.5
    return online(q * q.shape[-1] ** 0.5, k, v, block_q, block_k, is_causal)


def one_block_for_both(q, k, v, block_q, block_k, is_causal):
    """Take block_q for the keys too, and mask by the tile's number."""
    return with_mask(lambda i, j, *_: j // block_q > i // block_q)(
        q, k, v, block_q, block_k, is_causal
    )


PLACE = "with the last query at the last key"
tiled.reject("the largest is not taken off", "a number in every place: scores in the thou", with_(
    subtract=False
))  # fmt: skip
tiled.reject("NaN where a tile is hidden", "tile of which a query sees nothing", with_(
    floor=-INF, order=-1
))  # fmt: skip
tiled.reject("the first tile's largest", "are NaN", largest_of_first_tile)
tiled.reject("out is not rescaled", "the output so far is not scaled", with_(scale_out=False))
tiled.reject("the sum is not rescaled", "the sum so far is not scaled", with_(scale_sum=False))
tiled.reject("nothing is rescaled", "neither output nor sum so far", with_(
    scale_out=False, scale_sum=False
))  # fmt: skip
tiled.reject("the last, smaller tile is skipped", "last, smaller tile are not", whole_tiles)
tiled.reject("the last tile is skipped", "only whole tiles of keys|rows differ|smaller tile", (
    last_tile_forgotten
))  # fmt: skip
tiled.reject("the last rows are left out", "rows differ, first query 6 of 7", rows_left_out)
tiled.reject("averaged", "of each tile were averaged", joined_by(averaged))
tiled.reject("averaged over all", "averaged", joined_by(averaged_over_all))
tiled.reject("added", "of each tile were added", joined_by(lambda p: sum(x for x, _ in p)))
tiled.reject("the last tile alone", "only the last tile counts", joined_by(lambda p: p[-1][0]))
tiled.reject("the first tile alone", "only the first tile counts", joined_by(lambda p: p[0][0]))
tiled.reject("nothing hidden", "nothing is hidden", with_mask(lambda i, j, *_: j < 0))
tiled.reject("from the upper left", "as if n_q and n_k were equal", with_mask(
    lambda i, j, *_: j > i
))  # fmt: skip
tiled.reject("itself unheard", "does not see its own|sees nothing", with_mask(
    lambda i, j, top, left, n_q, n_k, *_: (j >= i + n_k - n_q) & (j > 0)
))  # fmt: skip
tiled.reject("the mask anew in every tile", "begins anew in every tile", with_mask(
    lambda i, j, top, left, *_: j - left > i - top
))  # fmt: skip
tiled.reject("a tile whole if in part", "seen in part is heard whole", with_mask(
    lambda i, j, top, left, n_q, n_k, bottom, right: (left > n_k - n_q + bottom - 1) | (j < 0)
))  # fmt: skip
tiled.reject("a tile not at all if in part", "not heard at all", partly_seen_skipped)
tiled.reject("the first tile is not masked", "first tile of keys is not", first_tile_unmasked)
tiled.reject("the first tile alone is masked", "only the first tile of keys is", first_tile_masked)
tiled.reject("masked by a tile's number", "rows differ", one_block_for_both)
tiled.reject("the last query one too early", PLACE, with_mask(
    lambda i, j, top, left, n_q, n_k, *_: j > i + max(n_k - n_q - 1, 0)
))  # fmt: skip
tiled.reject("all at once", r"a tensor of shape \(1, 2, 50, 60\) came about", whole)
tiled.reject("PyTorch's attention", "called with 50 queries and 60 keys", fused)
tiled.reject("rows of tiles", r"a tensor of shape \(1, 2, 6, 60\)", in_rows)
tiled.reject("columns of tiles", r"a tensor of shape \(1, 2, 50, 5\)", in_columns)
tiled.reject("a whole mask", r"a tensor of shape \(50, 60\)|\(48, 56\) came", whole_mask)
tiled.reject("no scale", "scale is not 1/√d_k but 1$", with_scale(lambda q, v: q.shape[-1] ** 0.5))
tiled.reject("1/d_k", "scale is not 1/√d_k but 1/d_k", with_scale(
    lambda q, v: q.shape[-1] ** -0.5
))  # fmt: skip
tiled.reject("1/√d_v", "rows differ.*but 1", with_scale(
    lambda q, v: (q.shape[-1] / v.shape[-1]) ** 0.5
))  # fmt: skip
tiled.reject("float32", "it has the type of q, torch.float64", in_float32)
tiled.reject("q changed", "q was changed in place", in_place_on_q)
tiled.reject("heads merged", "it has the shape", lambda *a: online(*a).transpose(1, 2).flatten(2))


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
    part = ranks.shard(layer, rank, world)
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


def backwards_within(layer, rank, world):
    """Take a rank's heads in another order, if each has keys of its own."""
    h = layer.h // world
    mine = list(range(rank * h, (rank + 1) * h))
    if layer.h_kv < layer.h:
        return dealt(layer, rank, world)
    return dealt(layer, rank, world, mine[::-1], mine[::-1])


heads.accept("heads picked", dealt)
heads.accept("slices", by_slices)
heads.accept("labkit's", by_labkit)
heads.accept("rows by their numbers", by_indices)
heads.accept("a part of the bias on every rank", bias_in_parts)
heads.accept("the last head first", backwards_within)


def packed_rows_cut(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    cut = torch.tensor_split(layer.w_qkv.weight, world)[rank]
    bias = torch.tensor_split(layer.w_qkv.bias, world)[rank]
    return (cut, bias, w_o, b_o) if cut.shape == w_qkv.shape else (w_qkv, b_qkv, w_o, b_o)


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


def first_keys_for_all(layer, rank, world):
    g = max(layer.h_kv // world, 1)
    return dealt(layer, rank, world, read=list(range(g)))


def a_copy_for_each_query(layer, rank, world):
    h, readers = layer.h // world, layer.h // layer.h_kv
    read = [i // readers for i in range(rank * h, (rank + 1) * h)]
    return dealt(layer, rank, world, read=read)


def by_turns(layer, rank, world):
    return dealt(layer, rank, world, mine=list(range(rank, layer.h, world)))


def turned_by_one(layer, rank, world):
    h = layer.h // world
    mine = [(i + 1) % layer.h for i in range(rank * h, (rank + 1) * h)]
    return dealt(layer, rank, world, mine=mine)


def columns_of_rank_0(layer, rank, world):
    return dealt(layer, rank, world, columns=list(range(layer.h // world)))


def cut_across(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    return w_qkv.roll(1, dims=0), b_qkv.roll(1, dims=0), w_o, b_o


def summed_rows(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    return torch.cat([w_qkv, 2 * w_qkv[:1]]), b_qkv, w_o, b_o


def bias_of_rank_0(layer, rank, world):
    w_qkv, _, w_o, b_o = dealt(layer, rank, world)
    return w_qkv, dealt(layer, 0, world)[1], w_o, b_o


def bias_zero(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    return w_qkv, 0 * b_qkv, w_o, b_o


def all_keys(layer, rank, world):
    return dealt(layer, rank, world, read=list(range(layer.h_kv)))


def all_heads(layer, rank, world):
    return dealt(layer, rank, world, mine=list(range(layer.h)))


def values_first(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    at = layer.h // world * layer.d_k
    return (
        *(torch.cat([x[:at], x[at:].flip(0)]) for x in (w_qkv, b_qkv)),
        w_o,
        b_o,
    )


def rows_of_w_o(layer, rank, world):
    w_qkv, b_qkv, w_o, b_o = dealt(layer, rank, world)
    return w_qkv, b_qkv, w_o.T, b_o


def turned_weights(layer, rank, world):
    w_qkv, *others = dealt(layer, rank, world)
    return w_qkv.T, *others


def writes_into_the_layer(layer, rank, world):
    found = [x.clone() for x in dealt(layer, rank, world)]
    layer.w_o.bias.zero_()
    return found


def none_for_zeros(layer, rank, world):
    *others, b_o = dealt(layer, rank, world)
    return (*others, None if rank else b_o)


ONE_RANK = r"rank \d of \d has heads"
heads.reject("packed rows cut", "cut in equal pieces as it lies, and first", packed_rows_cut)
heads.reject("packed rows cut in any case", "cut in equal pieces", packed_rows_cut_always)
heads.reject("repeated, not interleaved", "does not read head i mod h_kv", repeated)
heads.reject("keys dealt as queries are", ONE_RANK, keys_dealt_as_queries)
heads.reject("the first keys for all", ONE_RANK, first_keys_for_all)
heads.reject("a copy for each query", "each head once.*the layer's rows", a_copy_for_each_query)
heads.reject("by turns", "dealt out by turns", by_turns)
heads.reject("one too far", r"rows of heads \[1, 2\] as queries", turned_by_one)
heads.reject("columns of rank 0", r"columns of heads \[0, 1\]", columns_of_rank_0)
heads.reject("cut across heads", "rows of heads .*none", cut_across)
heads.reject("a row of its own", "some are no rows of the layer's", summed_rows)
heads.reject("biases of rank 0", "entries of b_qkv are not those", bias_of_rank_0)
heads.reject("biases are zero", "entries of b_qkv are not those", bias_zero)
heads.reject("all keys", r"one head of keys.*the layer's rows|heads of keys.*rows", all_keys)
heads.reject("all heads", "each head once", all_heads)
heads.reject("keys and values mixed", ONE_RANK, values_first)
heads.reject("w_o turned", r"w_o has the shape \(5, 6\)", rows_of_w_o)
heads.reject("w_qkv turned", r"w_qkv has the shape|w_qkv has 14 rows", turned_weights)
heads.reject("the bias on every rank", "each of the 2 ranks adds it", lambda *a: dealt(*a, bias=1))
heads.reject("the bias on no rank", "no rank adds it", lambda *a: dealt(*a, bias=0))
heads.reject(
    "the bias twice", "add up to something else$", lambda *a: dealt(*a, bias=3 * (a[1] == 0))
)
heads.reject("the layer is written into", "its parameters changed", writes_into_the_layer)
heads.reject("None for zeros", "b_o is a tensor", none_for_zeros)
heads.reject("weights alone", "4 results: w_qkv, b_qkv, w_o, b_o", lambda *a: dealt(*a)[::2])
heads.reject("a layer", "4 results.*came a layer", ranks.shard)


# A ring
ring = Exercise(tiles_and_ranks.ring_attention)


def placed(rank, source, m):
    at = torch.arange(m)
    return (rank.rank * m + at)[:, None] >= source * m + at


def passed_on(rank, q, k, v, may=placed, take=tiles.merge, source=None, parts=partial_attention):
    """Merge block after block, the rank's own first."""
    m, found = q.shape[2], None
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        of = (rank.rank - s if source is None else source(rank, s)) % rank.world
        part = parts(q, k, v, mask=may(rank, of, m))
        found = part if found is None else take(found, part)
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


def with_running_largest(rank, q, k, v):
    m = q.shape[2]
    acc, total = torch.zeros_like(v), torch.zeros_like(v[..., :1])
    top = torch.full_like(total, -1e30)
    i = rank.rank * m + torch.arange(m)[:, None]
    for s in range(rank.world):
        j = (rank.rank - s) % rank.world * m + torch.arange(m)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(j > i, -INF)
        new = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
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


def ring_with(**changes):
    return lambda *arguments: passed_on(*arguments, **changes)


def local_places(rank, source, m):
    return causal_mask(m)


def local_if_earlier(rank, source, m):
    return causal_mask(m) & torch.tensor(source <= rank.rank)


def own_alone_masked(rank, source, m):
    return causal_mask(m) | torch.tensor(source != rank.rank)


def open_(rank, source, m):
    return torch.ones(m, m, dtype=torch.bool)


def itself_unheard(rank, source, m):
    return placed(rank, source, m) & ~(torch.eye(m) > 0) if source == rank.rank else (
        placed(rank, source, m)
    )  # fmt: skip


def own_forgotten(rank, q, k, v):
    m = q.shape[2]
    found = Partial(torch.zeros_like(v), torch.full_like(v[..., 0], -INF))
    for s in range(1, rank.world):
        k, v = rank.shift(k), rank.shift(v)
        may = placed(rank, (rank.rank - s) % rank.world, m)
        found = tiles.merge(found, partial_attention(q, k, v, mask=may))
    return found.out


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


def masks_too(rank, q, k, v):
    m, found = q.shape[2], None
    at = (rank.rank * m + torch.arange(m)).to(q.dtype)
    mine = at[:, None]
    both = torch.cat([k, v, at.expand(*k.shape[:2], m)[..., None]], dim=-1)
    for s in range(rank.world):
        if s:
            both = rank.shift(both)
        k, v, at = both.split([k.shape[-1], v.shape[-1], 1], dim=-1)
        part = partial_attention(q, k, v, mask=at[0, 0, :, 0] <= mine)
        found = part if found is None else tiles.merge(found, part)
    return found.out


def q_goes_round(rank, q, k, v):
    for _ in range(rank.world - 1):
        rank.shift(q)
    return own_alone(rank, q, k, v)


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


def mean_of_two(a, b):
    return Partial((a.out + b.out) / 2, a.lse)


def averaged_blocks(rank, q, k, v):
    m, outs, sees = q.shape[2], 0.0, 0
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        source = (rank.rank - s) % rank.world
        if source <= rank.rank:
            outs = outs + partial_attention(q, k, v, mask=placed(rank, source, m)).out
            sees += 1
    return outs / sees


def block_added(a, b):
    return Partial(a.out + b.out, a.lse)


def only_the_last(a, b):
    return b


def only_if_later(a, b):
    """Expect the parts in the order of their positions: the old is scaled by the new alone."""
    lse = torch.logaddexp(a.lse, b.lse)
    return Partial(a.out + (b.lse - lse).exp().nan_to_num(0.0)[..., None] * b.out, lse)


def not_scaled(rank, q, k, v, scale_out=False, scale_sum=False):
    m = q.shape[2]
    acc, total = torch.zeros_like(v), torch.zeros_like(v[..., :1])
    top = torch.full_like(total, -1e30)
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        may = placed(rank, (rank.rank - s) % rank.world, m)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~may, -INF)
        new = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        e, scale = (scores - new).exp(), (top - new).exp()
        acc = acc * (scale if scale_out else 1) + e @ v
        total = total * (scale if scale_sum else 1) + e.sum(-1, keepdim=True)
        top = new
    return acc / total


def largest_not_taken_off(q, k, v, *, mask):
    e = (q @ k.mT / q.shape[-1] ** 0.5).exp().masked_fill(~mask, 0.0)
    total = e.sum(dim=-1)
    return Partial(e @ v / total.clamp(min=1e-30)[..., None], total.log())


def careless_merge(a, b):
    lse = torch.logaddexp(a.lse, b.lse)
    share = [(part.lse - lse).exp()[..., None] * part.out for part in (a, b)]
    return Partial(sum(share), lse)


def from_the_future_first(rank, q, k, v):
    """Begin with the block that came, and merge without care for what sees nothing."""
    m, parts = q.shape[2], []
    for s in range(rank.world):
        if s:
            k, v = rank.shift(k), rank.shift(v)
        may = placed(rank, (rank.rank - s) % rank.world, m)
        parts.append(partial_attention(q, k, v, mask=may))
    return reduce(careless_merge, parts[1:] + parts[:1]).out


def dies_on_the_last(rank, q, k, v):
    if rank.rank == rank.world - 1 and rank.world > 2:
        return [k][rank.rank]
    return passed_on(rank, q, k, v)


def loops(rank, q, k, v):
    while rank.rank == 1:
        pass
    return passed_on(rank, q, k, v)


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


def other_shapes(rank, q, k, v):
    if rank.rank == 1:
        v = rank.shift(v)
        k = rank.shift(k)
        return own_alone(rank, q, k, v)
    return passed_on(rank, q, k, v)


def changes_its_keys(rank, q, k, v):
    out = passed_on(rank, q, k, v)
    k.mul_(2)
    return out


def prints(rank, q, k, v):
    print("here " * 1000)
    return passed_on(rank, q, k, v)


def all_rows(rank, q, k, v):
    out = passed_on(rank, q, k, v)
    return torch.cat([out] * rank.world, dim=2)


def shifts_a_number(rank, q, k, v):
    rank.shift(3)


def float32_alone(rank, q, k, v):
    return passed_on(rank, q.float(), k.float(), v.float())


ring.reject("by local places", "masked as if it were the rank's own", ring_with(may=local_places))
ring.reject("local places, the future hidden", "an earlier block is heard as if", ring_with(
    may=local_if_earlier
))  # fmt: skip
ring.reject("later blocks", "blocks of later positions are heard", ring_with(may=own_alone_masked))
ring.reject("nothing hidden", "nothing is hidden", ring_with(may=open_))
ring.reject("itself unheard", "does not hear itself", ring_with(may=itself_unheard))
ring.reject("its own block forgotten", "own block is not heard", own_forgotten)
ring.reject("its own block alone", "only its own block is heard", own_alone)
ring.reject("a shift too few", "block that comes last is not heard", last_forgotten)
ring.reject("a shift too many", "calls it once more", shifts_after_all)
ring.reject("places handed on", "hands on .* bytes at most.*would make it", masks_too)
ring.reject("queries handed on", "only its own block|bytes at most", q_goes_round)
ring.reject("the other way round", "if the ring turned the other way", ring_with(
    source=lambda rank, s: rank.rank + s
))  # fmt: skip
ring.reject("taken for the next", "but its own is taken for that of the next", ring_with(
    source=lambda rank, s: rank.rank - s + (s > 0)
))  # fmt: skip
ring.reject("taken for the one before", "but its own is taken for that of the rank before", (
    ring_with(source=lambda rank, s: rank.rank - s - (s > 0))
))  # fmt: skip
ring.reject("all taken for the one before", "each block is taken for that of the rank before|NaN", (
    ring_with(source=lambda rank, s: rank.rank - s - 1)
))  # fmt: skip
ring.reject("all taken for the next", "each block is taken for that of the next", ring_with(
    source=lambda rank, s: rank.rank - s + 1
))  # fmt: skip
ring.reject("gathered", "by rank.shift alone\n.*all_gather was called", gathered)
ring.reject("reduced", "all_reduce was called", reduced)
ring.reject("all keys at once", "no tensor of the keys of all 5.*came about", joined_first)
ring.reject("the mean of two", "rows differ", ring_with(take=mean_of_two))
ring.reject("averaged", "of each block were averaged", averaged_blocks)
ring.reject("added", "of each block were added", ring_with(take=block_added))
ring.reject("the last alone", "its own block is not heard", ring_with(take=only_the_last))
ring.reject("the old is not rescaled", "rows differ", ring_with(take=only_if_later))
ring.reject("nothing is rescaled", "neither output nor sum so far", not_scaled)
ring.reject("the output is not rescaled", "the output so far is not scaled", (
    lambda *a: not_scaled(*a, scale_sum=True)
))  # fmt: skip
ring.reject("the sum is not rescaled", "the sum so far is not scaled", (
    lambda *a: not_scaled(*a, scale_out=True)
))  # fmt: skip
ring.reject("the largest is not taken off", "scores in the thousands too", ring_with(
    parts=largest_not_taken_off
))  # fmt: skip
ring.reject("NaN of two that see nothing", "where a query sees nothing", from_the_future_first)
ring.reject("dies on the last", "on rank 2 of 3: IndexError.*return .k..rank.rank.", (
    dies_on_the_last
))  # fmt: skip
ring.reject("a loop on one rank", r"ranks \[1\] of 3 gave none", loops)
ring.reject("one leaves at once", "rank 0 of 3 returned after 0 shifts", leaves_at_once)
ring.reject("one leaves late", "rank 0 of 3 returned after 0 shifts, and rank", leaves_late)
ring.reject("in another order", "hand on tensors of the same shape", other_shapes)
ring.reject("its keys changed", "leaves its blocks.*rank 0 was changed", changes_its_keys)
ring.reject("prints", "more than 2000 characters", prints)
ring.reject("all rows", r"it has the shape \(1, 1, 2, 1\)", all_rows)
ring.reject("a number handed on", "on rank . of 3: TypeError", shifts_a_number)
ring.reject("float32", "type of q, torch.float64", float32_alone)
ring.reject("without the rank", "it takes rank, q, k, v, in this order", lambda q, k, v: q)
