"""Answers to lab 8."""

from __future__ import annotations

import re
from collections import deque
from functools import cache as remembered

import numpy as np
import torch
import torch.nn.functional as F

from labkit import (
    KVCache,
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    split_heads,
    window_mask,
)
from labkit.labs.decoding import check as decoding
from tests.answers import Exercise

INF = float("inf")
FALSE_ALARM, MISSED = "Sound, and refused", "got away"

# The cache
cache = Exercise(decoding.cache)


class Joins:
    def __init__(self):
        self.k = self.v = None

    def append(self, k, v):
        if self.k is None:
            self.k, self.v = k.clone(), v.clone()
        else:
            self.k, self.v = self.joined(self.k, k), self.joined(self.v, v)
        return self.k, self.v

    def joined(self, old, new):
        return torch.cat([old, new], dim=2)


class KeepsParts:
    def __init__(self):
        self.parts = []

    def append(self, k, v):
        self.parts.append((k.clone(), v.clone()))
        return [torch.cat(side, dim=2) for side in zip(*self.parts, strict=True)]


class HasRoom:
    room = 500

    def __init__(self):
        self.n, self.held = 0, None

    def append(self, keys, values):
        m = keys.shape[2]
        if self.held is None:
            self.held = [x.new_empty(*x.shape[:2], self.room, x.shape[3]) for x in (keys, values)]
        for store, new in zip(self.held, (keys, values), strict=True):
            store[:, :, self.n : self.n + m] = new
        self.n += m
        return tuple(store[:, :, : self.n] for store in self.held)


class InNumpy:
    def __init__(self):
        self.rows = [[], []]

    def append(self, k, v):
        for rows, new in zip(self.rows, (k, v), strict=True):
            rows += [new[:, :, i].numpy().copy() for i in range(new.shape[2])]
        return [torch.from_numpy(np.stack(rows, axis=2)) for rows in self.rows]


cache.accept("cat", Joins)
cache.accept("a list of parts", KeepsParts)
cache.accept("room from the start", HasRoom)
cache.accept("rows in numpy", InNumpy)
cache.accept("labkit's", KVCache)


class KeepsTheCallersParts(KeepsParts):
    def append(self, k, v):
        self.parts.append((k, v))
        return [torch.cat(side, dim=2) for side in zip(*self.parts, strict=True)]


class InFront(Joins):
    def joined(self, old, new):
        return torch.cat([new, old], dim=2)


class AlongTheHeads(Joins):
    def joined(self, old, new):
        return torch.cat([old, new], dim=1)


class AlongTheLast(Joins):
    def joined(self, old, new):
        return torch.cat([old, new], dim=-1)


class LittleRoom(HasRoom):
    room = 256


class OnlyTheNew(Joins):
    def joined(self, old, new):
        return new.clone()


class ForgetsValues(Joins):
    def append(self, k, v):
        return super().append(k, v)[0], v


class OneForAllCaches(KeepsParts):
    kept = []  # noqa: RUF012 (that is the mistake)

    def __init__(self):
        self.parts = self.kept


class DefaultList(KeepsParts):
    def __init__(self, parts=[]):  # noqa: B006 (that is the mistake)
        self.parts = parts


class DefaultListOfTheCallers(KeepsTheCallersParts):
    def __init__(self, parts=[]):  # noqa: B006 (that is the mistake)
        self.parts = parts


class ReturnsOne(Joins):
    def append(self, k, v):
        return super().append(k, v)[0]


class InFloat32(Joins):
    def append(self, k, v):
        return super().append(k.float(), v.float())


class FillsTheFirstRows(HasRoom):
    def append(self, k, v):
        self.n = 0
        return super().append(k, v)


class Adds:
    def add(self, k, v):
        return k, v


GONE = "last positions are there, and those before them are gone"
cache.reject("the caller's tensors in a list", "the caller wrote −77", KeepsTheCallersParts)
cache.reject("new ones in front", r"came as \[\[\[\[30, 31.*stand before the old", InFront)
cache.reject("along the heads", "joined along axis 1", AlongTheHeads)
cache.reject("along the last axis", "joined along axis 3", AlongTheLast)
cache.reject("new ones only", rf"shape \(1, 1, 4, 4\).*{GONE}", OnlyTheNew)
cache.reject("values are not kept", rf"all values have the shape.*{GONE}", ForgetsValues)
cache.reject("one list for all caches", r"another Cache\(\) was filled", OneForAllCaches)
cache.reject("a list as a default", r"another Cache\(\) was filled", DefaultList)
cache.reject("a list as a default, and no copies", r"another Cache\(\)", DefaultListOfTheCallers)
cache.reject("room for 256", "it runs.*must match the existing size", LittleRoom)
cache.reject("keys alone", "2 results: all keys, all values.*a tensor", ReturnsOne)
cache.reject("float32", "have the type of what is appended, torch.float64", InFloat32)
cache.reject("room is written from the start", "shape", FillsTheFirstRows)
cache.reject("another name", "a method append.*an? Adds|a method append", Adds)


class FirstText(Joins):
    def joined(self, old, new):
        return torch.cat([old[:1].expand_as(old), new], dim=2)


class ValuesFirst(KeepsParts):
    def append(self, k, v):
        return super().append(k, v)[::-1]


class AllRoom(HasRoom):
    def append(self, keys, values):
        super().append(keys, values)
        return tuple(store.nan_to_num() for store in self.held)


class SeveralBeginAText(Joins):
    def append(self, k, v):
        if k.shape[2] > 1:
            self.k = None
        return super().append(k, v)


class ReshapedBack(Joins):
    def append(self, k, v):
        return [x.transpose(1, 2).reshape(x.shape) for x in super().append(k, v)]


class RoomAsWideAsKeys(HasRoom):
    def append(self, keys, values):
        if self.held is None:
            self.held = [keys.new_empty(*keys.shape[:2], self.room, keys.shape[3])] * 2
        return super().append(keys, values)


class Linked:
    before = None

    def append(self, k, v):
        self.before = node = (self.before, k.clone(), v.clone())
        keys, values = [], []
        while node:
            keys.insert(0, node[1])
            values.insert(0, node[2])
            node = node[0]
        return torch.concat(keys, dim=-2), torch.concat(values, dim=-2)


cache.accept("a chain of parts", Linked)
cache.reject("values first", "keys and values have changed places", ValuesFirst)
cache.reject("the whole room", r"came \(1, 1, 500, 4\); all are there, and more", AllRoom)
cache.reject("several begin a text", GONE, SeveralBeginAText)
cache.reject("reshaped back", "a reshape mixes positions and heads", ReshapedBack)
cache.reject("room as wide as keys", "it runs.*must match the existing size", RoomAsWideAsKeys)


class KeepsTheLast(KeepsParts):
    most = 64

    def append(self, k, v):
        self.parts = self.parts[-self.most + 1 :]
        return super().append(k, v)


class KeepsMoreOfTheLast(KeepsTheLast):
    most = 256


class RoomInFloat32(Joins):
    def append(self, k, v):
        return tuple(x.to(k.dtype) for x in super().append(k.float(), v.float()))


class ValuesInBfloat16(Joins):
    def append(self, k, v):
        return super().append(k, v.bfloat16().to(v.dtype))


cache.reject("the last 64 appends", rf"came \(1, 1, 64, 1\); the {GONE}", KeepsTheLast)
cache.reject("the last 256 appends", rf"came \(1, 1, 256, 1\); the {GONE}", KeepsMoreOfTheLast)
cache.reject("room in float32", r"at \[0, 0, 0, 0\] came.*rounded to torch.float32$", RoomInFloat32)
cache.reject("values in bfloat16", "rounded to torch.bfloat16$", ValuesInBfloat16)
cache.reject("the first text's past for all", "at .* came [-.0-9]*, and not", FirstText)

# A step
step = Exercise(decoding.step)


def heads_of(layer, x):
    return [split_heads(part(x), layer.h) for part in (layer.w_q, layer.w_k, layer.w_v)]


def mixed(layer, q, k, v, may, scale=None):
    scale = layer.d_k**-0.5 if scale is None else scale
    s = (q @ k.mT * scale).masked_fill(~may, -INF)
    return layer.w_o(merge_heads(s.softmax(dim=-1) @ v))


def lower(n_q, n_k, offset):
    return torch.ones(n_q, n_k, dtype=torch.bool).tril(offset)


def stepped(may=None, scale=None):
    """Make a step with a mask and a scale of one's own."""

    def step(layer, x, cache):
        q, k, v = heads_of(layer, x)
        k, v = cache.append(k, v)
        n_q, n_k = q.shape[2], k.shape[2]
        return mixed(
            layer,
            *(q, k, v),
            causal_mask(n_q, n_k) if may is None else may(n_q, n_k),
            scale and scale(layer),
        )

    return step


def step_by_loop(layer, x, cache):
    out = []
    for one in x.split(1, dim=1):
        q, k, v = heads_of(layer, one)
        k, v = cache.append(k, v)
        out.append(layer.w_o(merge_heads(F.scaled_dot_product_attention(q, k, v))))
    return torch.cat(out, dim=1)


def step_by_einsum(layer, x, cache):
    q, k, v = (
        part(x).reshape(*x.shape[:2], layer.h, -1) for part in (layer.w_q, layer.w_k, layer.w_v)
    )
    past = cache.n
    cache.append(k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3))
    s = torch.einsum("bihd,bhjd->bhij", q, cache.k) / layer.d_k**0.5
    places = torch.arange(cache.n)
    s += torch.where(places <= places[past:, None], 0.0, -1e9)
    e = s.exp()
    o = torch.einsum("bhij,bhjd->bihd", e / e.sum(-1, keepdim=True), cache.v)
    return layer.w_o(o.flatten(2))


@torch.no_grad()
def step_past_and_block(layer, x, cache):
    q, k, v = heads_of(layer, x)
    old = (cache.k.clone(), cache.v.clone()) if cache.n else (k[:, :, :0], v[:, :, :0])
    cache.append(k, v)
    past = q @ old[0].mT
    block = (q @ k.mT).masked_fill(~causal_mask(q.shape[2]), -INF)
    weights = (torch.cat([past, block], dim=-1) / layer.d_k**0.5).softmax(-1)
    n = past.shape[-1]
    return layer.w_o(merge_heads(weights[..., :n] @ old[1] + weights[..., n:] @ v))


step.accept("the mask at the end", stepped())
step.accept("one by one", step_by_loop)
step.accept("einsum, and −10⁹ added", step_by_einsum)
step.accept("past and block apart", step_past_and_block)
step.accept("the layer's own", lambda layer, x, cache: layer(x, cache=cache))


def step_by_flag(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    return layer.w_o(merge_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def flag_if_several(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    several = x.shape[1] > 1
    return layer.w_o(merge_heads(F.scaled_dot_product_attention(q, k, v, is_causal=several)))


def block_alone(layer, x, cache):
    q, k, v = heads_of(layer, x)
    cache.append(k, v)
    return mixed(layer, q, k, v, causal_mask(q.shape[2]))


def own_unheard_later(layer, x, cache):
    q, k, v = heads_of(layer, x)
    past = cache.n
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, lower(q.shape[2], k.shape[2], past - (past > 0)))


def not_appended(layer, x, cache):
    q, k, v = heads_of(layer, x)
    if cache.n:
        k, v = torch.cat([cache.k, k], dim=2), torch.cat([cache.v, v], dim=2)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def last_only(layer, x, cache):
    return stepped()(layer, x, cache)[:, -1:]


def scaled_keys_kept(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k / layer.d_k**0.5, v)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]), 1.0)


def bias_added_later(layer, x, cache):
    q, k, _ = heads_of(layer, x)
    v = split_heads(x @ layer.w_v.weight.T, layer.h)
    k, v = cache.append(k, v)
    v = v + split_heads(layer.w_v.bias[None], layer.h)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def open_onto_past(n_q, n_k):
    return causal_mask(n_q, n_k) | (n_k > n_q)


def new_first(n_q, n_k):
    return causal_mask(n_q, n_k).roll(n_q, dims=-1)


UPPER_LEFT = "the mask begins in the upper left corner"
step.reject("PyTorch's flag", UPPER_LEFT, step_by_flag)
step.reject("PyTorch's flag for a block", UPPER_LEFT, flag_if_several)
step.reject(
    "no mask", "later positions of the block", stepped(lambda n_q, n_k: lower(n_q, n_k, n_k))
)
step.reject("no mask onto a past", "text 0 at new position 0.*later pos", stepped(open_onto_past))
step.reject("the block alone", "the past is not heard", block_alone)
step.reject("not itself, once there is a past", "does not hear itself", own_unheard_later)
step.reject("new ones first in the mask", "outputs differ", stepped(new_first))
step.reject("not appended", "holds 4 positions.*it holds 0", not_appended)
step.reject("the last output alone", r"shape \(2, 4, 10\).*\(2, 1, 10\)", last_only)
step.reject(
    "scaled keys are kept",
    "keys as w_k gives them.*numbers; they are those times 1/√d_k$",
    scaled_keys_kept,
)
step.reject("the bias is added later", "holds values as w_v gives them", bias_added_later)
SCALES = {
    "1": lambda layer: 1.0,
    "1/d_k": lambda layer: 1 / layer.d_k,
    "√d_k": lambda layer: layer.d_k**0.5,
    "1/√d_v": lambda layer: layer.d_v**-0.5,
    "1/√d_model": lambda layer: layer.d_model**-0.5,
    "1/√(d_model/h)": lambda layer: (layer.d_model / layer.h) ** -0.5,
    "1/√(d_model // h)": lambda layer: max(layer.d_model // layer.h, 1) ** -0.5,
}
for told, scale in SCALES.items():
    step.reject(f"scale {told}", f"not 1/√d_k but {re.escape(told)}$", stepped(scale=scale))
step.reject(
    "one later", "hears the one after it as well", stepped(lambda a, b: lower(a, b, b - a + 1))
)


def step_with(attend=None, split=split_heads, join=merge_heads, bias=True, residual=False):
    """Make a step with a part of one's own; ``attend`` is handed scaled scores and a mask."""

    def step(layer, x, cache):
        parts = (layer.w_q, layer.w_k, layer.w_v)
        q, k, v = (split(part(x) if bias else x @ part.weight.T, layer.h) for part in parts)
        k, v = cache.append(k, v)
        may = causal_mask(q.shape[2], k.shape[2])
        s = q @ k.mT / layer.d_k**0.5
        weights = attend(s, may) if attend else s.masked_fill(~may, -INF).softmax(dim=-1)
        out = layer.w_o(join(weights @ v))
        return x + out if residual else out

    return step


def view_alone(x, h):
    return x.reshape(len(x), h, x.shape[1], -1)


def join_as_it_lies(heads):
    return heads.reshape(len(heads), heads.shape[2], -1)


def appends_twice(layer, x, cache):
    _, k, v = heads_of(layer, x)
    cache.append(k, v)
    return stepped()(layer, x, cache)


def joins_once_more(layer, x, cache):
    q, k, v = heads_of(layer, x)
    cache.append(k, v)
    k, v = torch.cat([cache.k, k], dim=2), torch.cat([cache.v, v], dim=2)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


step.reject("appended twice", "holds 4 positions.*it holds 8", appends_twice)
step.reject("joined once more", "joined to the past twice", joins_once_more)
step.reject(
    "softmax over the queries",
    "over the queries",
    step_with(lambda s, may: s.masked_fill(~may, -INF).softmax(dim=-2)),
)
step.reject(
    "mask after the softmax", "after the softmax", step_with(lambda s, may: s.softmax(-1) * may)
)
step.reject("scores times the mask", "set to 0", step_with(lambda s, may: (s * may).softmax(-1)))
step.reject(
    "softmax over the heads",
    "over the heads",
    step_with(lambda s, may: s.masked_fill(~may, -1e9).softmax(dim=1)),
)
step.reject(
    "True for hidden",
    "hides what it should leave",
    step_with(lambda s, may: s.masked_fill(may, -1e9).softmax(dim=-1)),
)


def own_and_past(n_q, n_k):
    return lower(n_q, n_k, n_k - n_q) & ~lower(n_q, n_k, n_k - n_q - 1) | (
        torch.arange(n_k) < n_k - n_q
    )


step.reject("of its block itself alone", "hears itself alone", stepped(own_and_past))
for low, told in (
    (-100.0, "49.84.*; hidden scores are lowered by 100 and no more$"),
    (-50.0, "49.84.*at new position 0 of 3$"),
    (-20.0, "outputs differ"),
):
    step.reject(
        f"{low:.0f} is added",
        told,
        step_with(lambda s, may, low=low: (s + torch.where(may, 0.0, low)).softmax(dim=-1)),
    )
for low in (-50.0, -60.0, -70.0):
    step.reject(
        f"hidden scores are {low:.0f}",
        f"at new position 0 of 3; hidden scores are set to −{-low:.0f}$",
        step_with(lambda s, may, low=low: s.masked_fill(~may, low).softmax(dim=-1)),
    )
step.reject(
    "hidden scores are -65",
    "at new position 0 of 3$",
    step_with(lambda s, may: s.masked_fill(~may, -65.0).softmax(dim=-1)),
)
step.accept(
    "hidden scores are −100",
    step_with(lambda s, may: s.masked_fill(~may, -100.0).softmax(dim=-1)),
)


def softmax_by_hand(largest=lambda s, may: 0.0, more=0.0):
    """Make a step that divides exponentials by their sum."""

    def attend(s, may):
        e = (s - largest(s, may)).exp().masked_fill(~may, 0.0)
        return e / (e.sum(dim=-1, keepdim=True) + more)

    return step_with(attend)


def largest_seen(s, may):
    return s.masked_fill(~may, -INF).amax(dim=-1, keepdim=True)


BEFORE_THE_MASK = "at new position 1 of 3; the largest score is taken before the mask"
step.accept("exponentials by hand", softmax_by_hand())
step.accept("less the largest seen", softmax_by_hand(largest_seen, 1e-9))
step.reject("less the largest of all", BEFORE_THE_MASK, softmax_by_hand(lambda s, may: s.max()))
step.reject(
    "less the largest of the row",
    BEFORE_THE_MASK,
    softmax_by_hand(lambda s, may: s.amax(dim=-1, keepdim=True)),
)
step.reject(
    "more than the sum", "something is added to the sum of the exp", softmax_by_hand(more=1e-9)
)
step.reject("float64 comes out", "type of x.*came torch.float64", lambda *a: stepped()(*a).double())


class CountsBeside:
    """A step that counts what it read of a cache beside it."""

    def __init__(self):
        self.read = {}

    def __call__(self, layer, x, cache):
        past = self.read.setdefault(cache, 0)
        self.read[cache] += x.shape[1]
        return stepped(lambda m, n: lower(m, n, past))(layer, x, cache)


step.reject("a count beside the cache", "one for a longer text, as if nothing", CountsBeside())


class RemembersItself:
    """A step that keeps keys and values of its own beside the cache."""

    def __call__(self, layer, x, cache):
        q, k, v = heads_of(layer, x)
        if cache.n == 0:
            self.k, self.v = k, v
        else:
            self.k, self.v = torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2)
        cache.append(k, v)
        return mixed(layer, q, self.k, self.v, causal_mask(q.shape[2], self.k.shape[2]))


step.reject(
    "a memory of its own", "since its texts were reordered.*outputs differ", RemembersItself()
)


class JoinsBeside:
    """A step that joins keys and values on the cache, and trusts them while their number fits."""

    def __call__(self, layer, x, cache):
        q, k, v = heads_of(layer, x)
        n = cache.n
        old = (cache.mine if n and cache.mine[0].shape[2] == n else (cache.k, cache.v)) if n else ()
        mine = [torch.cat(both, dim=2) for both in zip(old, (k, v), strict=True)] if n else [k, v]
        cache.append(k, v)
        cache.mine = mine
        return mixed(layer, q, *mine, causal_mask(q.shape[2], n + q.shape[2]))


step.reject("joined beside the cache", "since its texts were reordered.*differ", JoinsBeside())


def causal_within(n_seen):
    return lambda n_q, n_k: causal_mask(n_q, n_k) & window_mask(n_q, n_k, n_seen)


TRIANGLE = {n: torch.ones(n, n, dtype=torch.bool).tril() for n in (32, 256)}

for seen in (16, 64, 128, 256):
    step.reject(f"the last {seen}", r"\(1, 295, 4\).*outputs differ", stepped(causal_within(seen)))
step.reject(
    "a triangle of 256", "it runs.*Error", stepped(lambda m, n: TRIANGLE[256][n - m : n, :n])
)
step.reject("split by a view", "mixes positions and heads$", step_with(split=view_alone))
step.reject("joined as it lies", "without moving the axis", step_with(join=join_as_it_lies))
step.reject("two views", "joined by another", step_with(split=view_alone, join=join_as_it_lies))
step.reject("no biases", "biases of w_q", step_with(bias=False))
step.reject("a residual", "x is added", step_with(residual=True))


@torch.no_grad()
def exponentials(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    e = (q.double() @ k.double().mT / layer.d_k**0.5).exp()
    e = e * causal_mask(q.shape[2], k.shape[2])
    return layer.w_o(merge_heads((e / e.sum(dim=-1, keepdim=True) @ v.double()).float()))


def by_head_and_bmm(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    m, n = q.shape[2], k.shape[2]
    hidden = torch.full((m, n), -INF).triu(n - m + 1).expand(len(x), m, n)
    heads = [
        torch.baddbmm(hidden, q[:, i], k[:, i].mT, alpha=layer.d_k**-0.5).softmax(-1).bmm(v[:, i])
        for i in range(layer.h)
    ]
    return layer.w_o(torch.cat(heads, dim=-1))


def several_hear_their_block(layer, x, cache):
    q, k, v = heads_of(layer, x)
    past = cache.append(k, v)
    k, v = (k, v) if x.shape[1] > 1 else past
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def appends_the_last(layer, x, cache):
    q, k, v = heads_of(layer, x)
    if cache.n:
        k, v = torch.cat([cache.k, k], dim=2), torch.cat([cache.v, v], dim=2)
    cache.append(k[:, :, -1:], v[:, :, -1:])
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def first_past_for_all(layer, x, cache):
    q, k, v = heads_of(layer, x)
    n = cache.n
    k, v = (
        torch.cat([one[:1, :, :n].expand_as(one[:, :, :n]), one[:, :, n:]], dim=2)
        for one in cache.append(k, v)
    )
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def without_bias_of_w_o(layer, x, cache):
    return stepped()(layer, x, cache) - layer.w_o.bias


def places_in_the_block(n_q, n_k):
    return torch.arange(n_k) % n_q <= torch.arange(n_q)[:, None]


def weights_in_bfloat16(s, may):
    return s.masked_fill(~may, -INF).bfloat16().softmax(dim=-1).float()


step.accept("exponentials, no maximum taken off", exponentials)
step.accept("head by head, baddbmm", by_head_and_bmm)
step.reject("several hear their block", "the past is not heard", several_hear_their_block)
step.reject("the last alone is appended", "holds 4 positions.*it holds 1", appends_the_last)
step.reject("the first past for all", "all texts hear the past of the first", first_past_for_all)
step.reject("no bias of w_o", "the bias of w_o is left out", without_bias_of_w_o)
step.reject("places in the block", "outputs differ", stepped(places_in_the_block))
step.reject("weights in bfloat16", r"by up to 0\.00\d+ times", step_with(weights_in_bfloat16))


# Writing
writing = Exercise(decoding.generate)


def read(model, pieces, caches):
    """Read pieces of texts one after the other, and give the logits of the last."""
    for piece in pieces:
        logits = model(piece, caches=caches)
    return logits


def generated(model, ids, more, c, caches=None):
    caches = model.caches() if caches is None else caches
    logits = read(model, ids.split(c, dim=1), caches)
    for _ in range(more):
        word = logits[:, -1:].argmax(dim=-1)
        ids = torch.cat([ids, word], dim=1)
        logits = model(word, caches=caches)
    return ids


def in_lists(model, ids, more, c):
    caches, text = model.caches(), ids.tolist()
    read = 0
    while len(text[0]) < ids.shape[1] + more:
        while read < len(text[0]):
            piece = [one[read : read + c] for one in text]
            logits = model(torch.tensor(piece), None, caches)
            read += len(piece[0])
        for one, word in zip(text, logits[:, -1].max(dim=-1).indices.tolist(), strict=True):
            one.append(word)
    return torch.tensor(text)


@torch.inference_mode()
def into_room(model, ids, more, c):
    B, n = ids.shape
    text, caches = ids.new_zeros(B, n + more), model.caches()
    text[:, :n] = ids
    for start in range(0, n, c):
        logits = model(text[:, start : min(start + c, n)], caches=caches)
    for place in range(n, n + more):
        text[:, place] = logits[:, -1].softmax(dim=-1).argsort(dim=-1)[:, -1]
        if place < n + more - 1:
            logits = model(text[:, place : place + 1], caches=caches)
    return text.int()


def text_by_text(model, ids, more, c):
    return torch.cat([generated(model, one, more, c) for one in ids.split(1)])


def by_recursion(model, ids, more, c, caches=None, new=None):
    caches = caches or model.caches()
    new = ids if new is None else new
    for piece in new.split(c, dim=1):
        word = model(piece, caches=caches)[:, -1].topk(1).indices
    ids = torch.cat([ids, word], dim=1)
    return ids if more == 1 else by_recursion(model, ids, more - 1, c, caches, word)


writing.accept("pieces, then words", generated)
writing.accept("lists of numbers", in_lists)
writing.accept("room from the start, int32", into_room)
writing.accept("recursion", by_recursion)
writing.accept("text by text", text_by_text)


def without_cache(model, ids, more, c):
    for _ in range(more):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def whole_prompt(model, ids, more, c):
    return generated(model, ids, more, ids.shape[1])


def fresh_for_each_piece(model, ids, more, c):
    for piece in ids.split(c, dim=1):
        caches = model.caches()
        logits = model(piece, caches=caches)
    for _ in range(more):
        word = logits[:, -1:].argmax(dim=-1)
        ids = torch.cat([ids, word], dim=1)
        logits = model(word, caches=caches)
    return ids


def words_alone(model, ids, more, c):
    for _ in range(more):
        ids = torch.cat([ids, model(ids[:, -1:])[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def one_word_lost(model, ids, more, c):
    caches = model.caches()
    logits = read(model, ids.split(c, dim=1), caches)
    for _ in range(more):
        logits = model(logits[:, -1:].argmax(dim=-1), caches=caches)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def generated_on(model, ids, more, caches, word):
    for _ in range(more):
        ids = torch.cat([ids, word], dim=1)
        word = model(word, caches=caches)[:, -1:].argmax(dim=-1)
    return ids


def whole_pieces_only(model, ids, more, c):
    caches, n = model.caches(), ids.shape[1]
    for i in range(max(n // c, 1)):
        logits = model(ids[:, i * c : (i + 1) * c], caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def last_twice(model, ids, more, c):
    caches = model.caches()
    for piece in ids.split(c, dim=1):
        model(piece, caches=caches)
    text = ids
    for _ in range(more):
        text = torch.cat([text, model(text[:, -1:], caches=caches)[:, -1:].argmax(dim=-1)], dim=1)
    return text


def all_again_but_fresh(model, ids, more, c):
    for _ in range(more):
        caches = model.caches()
        logits = read(model, ids.split(c, dim=1), caches)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def pieces_for_texts(model, ids, more, c):
    caches = model.caches()
    logits = read(model, ids.chunk(c, dim=1), caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def last_piece_lost(model, ids, more, c):
    """Leave the last piece out where c divides n."""
    caches, n, i = model.caches(), ids.shape[1], 0
    while i + c < n:
        logits = model(ids[:, i : i + c], caches=caches)
        i += c
    if n % c or not i:
        logits = model(ids[:, i:], caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


writing.reject("where c divides n", "last piece was left out", last_piece_lost)
writing.reject("no cache", "at most 3 words|each word once", without_cache)
writing.reject("the prompt at once", "at most 3 words of a text.*with 5", whole_prompt)
writing.reject("a cache for each piece", "only the last piece", fresh_for_each_piece)
writing.reject("each word alone", "each word is read alone", words_alone)


def kept_nowhere(model, ids, more, c):
    for piece in ids.split(c, dim=1):
        logits = model(piece)
    for _ in range(more):
        word = logits[:, -1:].argmax(dim=-1)
        ids = torch.cat([ids, word], dim=1)
        logits = model(word)
    return ids


def all_fed_again(model, ids, more, c):
    caches = model.caches()
    logits = read(model, ids.split(c, dim=1), caches)
    for _ in range(more):
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
        logits = model(ids, caches=caches)
    return ids


def for_all(choose):
    """Write the same word into all texts."""

    def answer(model, ids, more, c):
        caches = model.caches()
        logits = read(model, ids.split(c, dim=1), caches)
        for _ in range(more):
            word = choose(logits[:, -1]).expand(len(ids), 1)
            ids = torch.cat([ids, word], dim=1)
            logits = model(word, caches=caches)
        return ids

    return answer


writing.reject("the text is fed again", "more than the prompt has: the text", all_fed_again)
SAME = "all texts go on with the same words"
writing.reject("the largest logit's", SAME, for_all(lambda at: at.argmax() % at.shape[-1]))
writing.reject("the first text's word for all", SAME, for_all(lambda at: at[0].argmax()))
writing.reject("no caches at all", "kept from one call to the next", kept_nowhere)
writing.reject("one word is lost", "goes on one word later", one_word_lost)
writing.reject("the rest of the prompt is left out", "piece was left out", whole_pieces_only)
writing.reject("the last word is read twice", "last word was read twice", last_twice)
writing.reject("all is read again, with fresh caches", "each word once", all_again_but_fresh)
writing.reject(
    "one word less", "it has the shape", lambda m, i, more, c: generated(m, i, more - 1, c)
)
writing.reject("c pieces", "at most|each new word", pieces_for_texts)
writing.reject(
    "the prompt behind",
    "the prompt stands in front",
    lambda m, i, more, c: generated(m, i, more, c).roll(more, dims=1),
)


def picked(pick):
    """Make an answer that takes the next word from logits in a way of its own."""

    def generate(model, ids, more, c):
        caches = model.caches()
        logits = read(model, ids.split(c, dim=1), caches)
        for _ in range(more):
            word = pick(logits)
            ids = torch.cat([ids, word], dim=1)
            logits = model(word, caches=caches)
        return ids

    return generate


def fresh_for_each_word(model, ids, more, c):
    caches = model.caches()
    logits = read(model, ids.split(c, dim=1), caches)
    for _ in range(more):
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
        logits = model(ids[:, -1:], caches=model.caches())
    return ids


def last_piece_filled_up(model, ids, more, c):
    caches = model.caches()
    logits = read(model, F.pad(ids, (0, -ids.shape[1] % c)).split(c, dim=1), caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def overlapping_pieces(model, ids, more, c):
    caches = model.caches()
    for i in range(0, ids.shape[1], max(c - 1, 1)):
        logits = model(ids[:, i : i + c], caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def split_along_the_texts(model, ids, more, c):
    caches = model.caches()
    logits = read(model, ids.split(c), caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


class OneForAllCalls:
    """A function that makes caches for a model once."""

    def __init__(self):
        self.caches = {}

    def __call__(self, model, ids, more, c):
        return generated(model, ids, more, c, self.caches.setdefault(id(model), model.caches()))


def as_a_generator(model, ids, more, c):
    def words():
        caches, unread = model.caches(), list(ids.split(c, dim=1))
        while True:
            while unread:
                logits = model(unread.pop(0), caches=caches)
            unread = [torch.stack([one[-1].argmax() for one in logits])[:, None]]
            yield unread[0]

    return torch.cat([ids, *(word for word, _ in zip(words(), range(more), strict=False))], dim=1)


writing.accept("a generator", as_a_generator)
writing.reject("the first row", "first row of logits", picked(lambda x: x[:, :1].argmax(dim=-1)))
writing.reject(
    "the second choice", "each new word", picked(lambda x: x[:, -1:].topk(2).indices[..., 1])
)
writing.reject("fresh caches for each word", "is read into empty caches", fresh_for_each_word)
writing.reject(
    "the last piece is filled up",
    "each word once.*it read 10.*filled up to 3",
    last_piece_filled_up,
)
writing.reject(
    "no call", "each new word", lambda m, i, more, c: torch.cat([i, *[i[:, :1]] * more], 1)
)
writing.reject("overlapping pieces", "each word once.*it read 11, in 7 calls$", overlapping_pieces)
writing.reject("split along the texts", "called with 5, the whole prompt$", split_along_the_texts)
writing.reject("caches of the call before", "the text of the call before$", OneForAllCalls())
writing.reject(
    "the new words alone", "it has the shape", lambda m, i, *a: generated(m, i, *a)[:, i.shape[1] :]
)


def ends_at(end):
    """Make an answer that goes on with one word once it was written."""

    def generate(model, ids, more, c):
        text = generated(model, ids, more, c)
        for one in text:
            for i in range(ids.shape[1] + 1, len(one)):
                if one[i - 1] == end:
                    one[i] = end
        return text

    return generate


for last in (32, 128):
    writing.reject(
        f"the last {last} words",
        r"1, 150\).*each new word",
        lambda model, ids, more, c, last=last: torch.cat(
            [ids[:, :-last], generated(model, ids[:, -last:], more, c)], dim=1
        ),
    )
for end in (2, 9):
    writing.reject(f"{end} ends a text", "each new word is the one with the largest", ends_at(end))

# A window
window = Exercise(decoding.slide)


def slid(layer, x, kept, w, keep=None, may=window_mask):
    q, k, v = heads_of(layer, x)
    if kept is not None:
        k, v = torch.cat([kept[0], k], dim=2), torch.cat([kept[1], v], dim=2)
    out = mixed(layer, q, k, v, may(q.shape[2], k.shape[2], w))
    keep = w if keep is None else keep(w)
    first = max(k.shape[2] - keep, 0)
    return out, (k[:, :, first:], v[:, :, first:])


def ring(layer, x, kept, w):
    """Keep slots in a circle; a slot knows the place of what lies in it."""
    if kept is None:
        B, h = len(x), layer.h
        kept = {
            "k": torch.zeros(B, h, w, layer.d_k),
            "v": torch.zeros(B, h, w, layer.d_v),
            "place": torch.full((w,), -1),
            "n": 0,
        }
    out = []
    for one in x.split(1, dim=1):
        q, k, v = heads_of(layer, one)
        slot = kept["n"] % w
        kept["k"][:, :, slot], kept["v"][:, :, slot] = k[:, :, 0], v[:, :, 0]
        kept["place"][slot] = kept["n"]
        kept["n"] += 1
        out.append(mixed(layer, q, kept["k"], kept["v"], kept["place"] >= 0))
    return torch.cat(out, dim=1), kept


class Line:
    """What is kept, as a queue of columns."""

    def __init__(self, w):
        self.columns = deque(maxlen=w)


def in_a_queue(layer, x, kept, w):
    line = kept or Line(w)
    out = []
    for i in range(x.shape[1]):
        q, k, v = heads_of(layer, x[:, i : i + 1])
        line.columns.append((k, v))
        k, v = (torch.cat(side, dim=2) for side in zip(*line.columns, strict=True))
        out.append(layer.w_o(merge_heads(F.scaled_dot_product_attention(q, k, v))))
    return [torch.cat(out, dim=1), line]


def cut_for_each(layer, x, kept, w):
    q, k, v = heads_of(layer, x)
    m = q.shape[2]
    if kept:
        k, v = (torch.cat([old, new], dim=-2) for old, new in zip(kept, (k, v), strict=True))
    n = k.shape[2]
    rows = []
    for i in range(m):
        seen = slice(max(0, n - m + i + 1 - w), n - m + i + 1)
        weights = (q[:, :, i : i + 1] @ k[:, :, seen].mT / layer.d_k**0.5).softmax(-1)
        rows.append(weights @ v[:, :, seen])
    return layer.w_o(merge_heads(torch.cat(rows, dim=2))), (k[:, :, -w:], v[:, :, -w:])


window.accept("the mask, and a cut", slid)
window.accept("w − 1 are enough", lambda la, x, kept, w: slid(la, x, kept, w, lambda w: w - 1))
window.accept("a ring", ring)
window.accept("a queue", in_a_queue)
window.accept("cut for each query", cut_for_each)


def cut_before(layer, x, kept, w):
    """Cut to w before attending, which is right one by one."""
    q, k, v = heads_of(layer, x)
    if kept is not None:
        k, v = torch.cat([kept[0], k], dim=2), torch.cat([kept[1], v], dim=2)
    k, v = k[:, :, -w:], v[:, :, -w:]
    m, n = q.shape[2], k.shape[2]
    return mixed(layer, q, k, v, causal_mask(m, n) if m <= n else lower(m, n, n - 1)), (k, v)


def only_cut(layer, x, kept, w):
    q, k, v = heads_of(layer, x)
    if kept is not None:
        k, v = torch.cat([kept[0], k], dim=2), torch.cat([kept[1], v], dim=2)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2])), (k[:, :, -w:], v[:, :, -w:])


def empty_slots(layer, x, kept, w):
    """A ring whose empty slots weigh in."""
    if kept is None:
        kept = (
            torch.zeros(len(x), layer.h, w, layer.d_k),
            torch.zeros(len(x), layer.h, w, layer.d_v),
        )
    out = []
    for one in x.split(1, dim=1):
        q, k, v = heads_of(layer, one)
        kept = tuple(
            torch.cat([old, new], 2)[:, :, 1:] for old, new in zip(kept, (k, v), strict=True)
        )
        out.append(mixed(layer, q, *kept, torch.ones(1, w, dtype=torch.bool)))
    return torch.cat(out, dim=1), kept


def minus_zero(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w, lambda w: 10_000)
    return out, (k[:, :, -(w - 1) :], v[:, :, -(w - 1) :])


def not_causal(n_q, n_k, w):
    return torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q - w + 1)


def masked(may, keep=None):
    return lambda layer, x, kept, w: slid(layer, x, kept, w, keep, may)


def all_kept(n_k):
    return 10_000


def in_labkits_cache(layer, x, kept, w):
    cache = kept or KVCache()
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, window_mask(q.shape[2], k.shape[2], w)), cache


window.reject("labkit's cache, which grows", "numbers are kept", in_labkits_cache)
TOO_MANY, TOO_FEW = "one position too many is heard", "one position too few is heard"
window.reject(
    "all is kept",
    "9 positions at most are kept, .* numbers are kept, the keys and values of 11 positions",
    masked(window_mask, all_kept),
)
window.reject("the output alone", "2 results", lambda la, x, kept, w: slid(la, x, kept, w)[0][0])
window.reject(
    "no window", "all that was kept is heard", masked(lambda a, b, w: causal_mask(a, b), all_kept)
)
window.reject(
    "w + 1 are heard, w kept",
    TOO_MANY,
    masked(lambda a, b, w: window_mask(a, b, w + 1), lambda w: w),
)
window.reject("w − 1 are heard", TOO_FEW, masked(lambda a, b, w: window_mask(a, b, max(w - 1, 1))))
window.reject("cut, and no mask", "all that was kept is heard", only_cut)
window.reject("cut before attending", "the window is that of the block's last", cut_before)
window.reject("empty slots", "empty slots of zeros", empty_slots)
window.reject("minus nought", "1 position at most.*a slice from −0 on", minus_zero)


def without_past(layer, x, kept, w):
    return slid(layer, x, None, w)


def keeps_its_block(layer, x, kept, w):
    out, _ = slid(layer, x, kept, w)
    _, k, v = heads_of(layer, x)
    return out, (k[:, :, -w:], v[:, :, -w:])


def keeps_the_first(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w, all_kept)
    return out, (k[:, :, :w], v[:, :, :w])


def keeps_one_number_more(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w)
    return out, (k, v, torch.zeros(1))


window.reject("the first w are kept", "past the first w positions are kept", keeps_the_first)
window.reject("a number more", "after 11 positions, 595 numbers are kept$", keeps_one_number_more)


def keeps_inputs(more):
    def slide(layer, x, kept, w):
        text = x if kept is None else torch.cat([kept, x], dim=1)
        out, _ = slid(layer, text, None, w)
        return out[:, -x.shape[1] :], text[:, max(0, text.shape[1] - w - more) :]

    return slide


window.reject("w − 1 inputs are kept", "180 numbers are kept; what is kept is x", keeps_inputs(-1))
window.reject("w inputs are kept", "10 numbers are kept; what is kept is x", keeps_inputs(0))
window.reject(
    "the upper left corner", "upper left", masked(lambda a, b, w: window_mask(b, b, w)[:a])
)
window.reject("the past is not joined", "the past is not heard", without_past)
window.reject("its block alone is kept", "past only the last block", keeps_its_block)
window.reject("the future is heard", "later positions of the block are heard", masked(not_causal))


def keeps_what_was_kept(layer, x, kept, w):
    out, new = slid(layer, x, kept, w)
    return out, kept or new


def keeps_all_but_its_block(layer, x, kept, w):
    out, new = slid(layer, x, kept, w, all_kept)
    if kept is not None:
        new = [one[:, :, : -x.shape[1]] for one in new]
    return out, [one[:, :, -w:] for one in new]


class Chunks:
    """A window that is a chunk of w positions."""

    def __call__(self, layer, x, kept, w):
        held, n = kept or (None, 0)

        def may(n_q, n_k, w):
            place = torch.arange(n + n_q - n_k, n + n_q)
            return causal_mask(n_q, n_k) & (place // w == place[-n_q:, None] // w)

        out, new = slid(layer, x, held, w, may=may)
        return out, (new, n + x.shape[1])


def both_sides(n_q, n_k, w):
    return (torch.arange(n_k) - torch.arange(n_k - n_q, n_k)[:, None]).abs() < w


def past_open(n_q, n_k, w):
    return window_mask(n_q, n_k, w) | (torch.arange(n_k) < n_k - n_q)


def ring_filled_first(layer, x, kept, w):
    """Write a block into the ring, over what its first queries should still see."""
    q, k, v = heads_of(layer, x)
    k_ring, v_ring, place, n = kept or (
        *(torch.zeros(*one.shape[:2], w, one.shape[3]) for one in (k, v)),
        torch.full((w,), -1),
        0,
    )
    own = torch.arange(n, n + x.shape[1])
    for i, at in enumerate(own.tolist()):
        k_ring[:, :, at % w], v_ring[:, :, at % w], place[at % w] = k[:, :, i], v[:, :, i], at
    may = (place >= 0) & (place <= own[:, None]) & (place > own[:, None] - w)
    s = (q @ k_ring.mT / layer.d_k**0.5).masked_fill(~may, -1e9)
    out = layer.w_o(merge_heads(s.softmax(dim=-1) @ v_ring))
    return out, (k_ring, v_ring, place, n + x.shape[1])


def rows_in_a_list(layer, x, kept, w):
    kept, out = kept or [], []
    for one in x.split(1, dim=1):
        q, *new = heads_of(layer, one)
        kept = [*kept, torch.cat(new, dim=-1)][-w:]
        k, v = torch.cat(kept, dim=2).split([layer.d_k, layer.d_v], dim=-1)
        out.append(F.scaled_dot_product_attention(q, k, v))
    return layer.w_o(merge_heads(torch.cat(out, dim=2))), kept


NOT_KEPT = "the block before this one is not kept"
window.accept("rows in a list", rows_in_a_list)
window.reject("what is kept is never renewed", NOT_KEPT, keeps_what_was_kept)
window.reject("its block is not kept", NOT_KEPT, keeps_all_but_its_block)
window.reject("chunks", "cut into chunks of w", Chunks())
window.reject("both sides", "later positions of the block", masked(both_sides))
window.reject("the past is open", "all that was kept is heard", masked(past_open))
window.reject(
    "a ring that is filled first", "window is that of the block's last", ring_filled_first
)


def from_below_zero(layer, x, kept, w):
    """Slice from n - w on, which is negative while the text is short."""
    out, held = slid(layer, x, kept, w, all_kept)
    return out, [one[:, :, one.shape[2] - w :] for one in held]


class OnTheLayer:
    """Keep keys and values on the layer, and begin anew with a text or not."""

    def __init__(self, anew):
        self.anew = anew

    def __call__(self, layer, x, kept, w):
        old = None if self.anew and kept is None else getattr(layer, "kept", None)
        out, layer.kept = slid(layer, x, old, w)
        return out, "on the layer"


class InGlobals:
    def __init__(self):
        self.kept = None

    def __call__(self, layer, x, kept, w):
        out, self.kept = slid(layer, x, None if kept is None else self.kept, w, all_kept)
        return out, True


def held_in(pack, unpack):
    """Make an answer that keeps all, in some form."""

    def slide(layer, x, kept, w):
        out, new = slid(layer, x, kept and unpack(kept), w, all_kept)
        return out, pack(new)

    return slide


class CountsTheRead:
    """Count the positions of the text, and forget that there are two."""

    def __call__(self, layer, x, kept, w):
        if kept is None:
            self.n = 0
        else:
            kept = [one[:, :, -min(self.n, w) :] for one in kept]
        self.n += x.shape[1]
        return slid(layer, x, kept, w)


window.reject("a count beside what is kept", "outputs differ", CountsTheRead())
window.reject(
    "a triangle of 256",
    "it runs.*Error",
    masked(lambda m, n, w: TRIANGLE[256][n - m : n, :n] & window_mask(m, n, w)),
)
ANOTHER = "another text, of the call before, is heard: something is kept beside what is returned$"
window.reject("on the layer", f"kept = None.*{ANOTHER}", OnTheLayer(anew=False))
window.reject("on the layer, anew", f"after 5 positions.*{ANOTHER}", OnTheLayer(anew=True))
window.reject("in a global", f"after 5 positions.*{ANOTHER}", InGlobals())
window.reject(
    "below zero", "the slice from 5 − 9 on is kept, which counts from the end$", from_below_zero
)
FORMS = {
    "numpy": (
        lambda new: [one.detach().numpy() for one in new],
        lambda kept: [torch.from_numpy(one) for one in kept],
    ),
    "lists of numbers": (
        lambda new: [one.tolist() for one in new],
        lambda kept: [torch.tensor(one) for one in kept],
    ),
}
for form, (pack, unpack) in FORMS.items():
    told = "numbers are kept, the keys and values of 11 positions$"
    window.reject(f"all is kept in {form}", told, held_in(pack, unpack))

# Padding on the left
padding = Exercise(decoding.padded)


def by_sums(real, m):
    n = real.shape[1]
    return (real.cumsum(dim=1) - 1)[:, -m:], causal_mask(m, n) & real[:, None, None, :]


def by_loops(real, m):
    B, n = real.shape
    places, may = torch.zeros(B, m, dtype=torch.int32), torch.zeros(B, 1, m, n, dtype=torch.bool)
    for b in range(B):
        first = real[b].tolist().index(True)
        for i in range(m):
            p = n - m + i
            places[b, i] = max(p - first, 0)
            may[b, 0, i, first : p + 1] = True
    return places, may


def by_lengths(real, m):
    n = real.shape[1]
    place = torch.arange(n) - (n - real.sum(dim=1, keepdim=True))
    new = place[:, -m:]
    seen = (place[:, None, :] <= new[:, :, None]) & (place >= 0)[:, None, :]
    return [new.clamp(min=0), seen.unsqueeze(1)]


def by_first_place(real, m):
    n = real.shape[1]
    first = real.int().argmax(dim=1)
    at = torch.arange(n)
    may = torch.stack([(at <= p) & (at >= first[:, None]) for p in range(n - m, n)], dim=1)
    return at[n - m :] - first[:, None], may[:, None]


padding.accept("sums", by_sums)
padding.accept("loops", by_loops)
padding.accept("lengths", by_lengths)
padding.accept("the first word's place", by_first_place)


def padded_with(places=None, may=None):
    """Make an answer with one part of one's own; both are functions of real and m."""

    def padded(real, m):
        right = by_sums(real, m)
        return (
            right[0] if places is None else places(real, m),
            right[1] if may is None else may(real, m),
        )

    return padded


def of_block_only(real, m):
    return real[:, -m:].long().cumsum(dim=1) - 1


def from_the_edge(real, m):
    n = real.shape[1]
    return torch.arange(n - m, n).expand(len(real), m)


def shifted(real, m):
    return real.long().cumsum(dim=1)[:, -m:]


def upper_left(real, m):
    n = real.shape[1]
    return causal_mask(n)[:m] & real[:, None, None, :]


def no_padding_hidden(real, m):
    n = real.shape[1]
    return causal_mask(m, n).expand(len(real), 1, m, n)


def no_future_hidden(real, m):
    B, n = real.shape
    return real[:, None, None, :].expand(B, 1, m, n)


def own_hidden(real, m):
    n = real.shape[1]
    return lower(m, n, n - m - 1) & real[:, None, None, :]


def right_padding(real, m):
    n = real.shape[1]
    return causal_mask(m, n) & (torch.arange(n) < real.sum(1, keepdim=True))[:, None, None]


padding.reject("from 1", "has place 0.*counted from 1", padded_with(shifted))
padding.reject("padding counted", "the padding was counted", padded_with(from_the_edge))
padding.reject("the block's words", "only the words of the block", padded_with(of_block_only))
padding.reject(
    "a sum along the texts",
    "the sum runs along the texts",
    padded_with(lambda real, m: (real.cumsum(dim=0) - 1)[:, -m:]),
)
padding.reject(
    "places of the block",
    "the block's first position has place 0",
    padded_with(lambda real, m: torch.arange(m).expand(len(real), m)),
)
padding.reject(
    "places as floats", "whole numbers", padded_with(lambda real, m: by_sums(real, m)[0].float())
)
padding.reject(
    "places as a list",
    "places is a tensor",
    padded_with(lambda real, m: by_sums(real, m)[0].tolist()),
)
padding.reject(
    "the upper left corner", "begins in the upper left corner", padded_with(may=upper_left)
)
padding.reject(
    "padding open", "padding: .*|padding is not hidden", padded_with(may=no_padding_hidden)
)
padding.reject(
    "the future open", "a later word.*future is not hidden", padded_with(may=no_future_hidden)
)
padding.reject(
    "True for hidden", "changed places", padded_with(may=lambda real, m: ~by_sums(real, m)[1])
)
padding.reject("not itself", "itself or a word before it", padded_with(may=own_hidden))
padding.reject("padding on the right", "stand on the right", padded_with(may=right_padding))


def by_clamped_places(real, m):
    """Compare places, and give padding the place 0."""
    place = (real.cumsum(dim=1) - 1).clamp(min=0)
    return place[:, None, None, :] <= place[:, None, -m:, None]


def padding_sees_all(real, m):
    return by_sums(real, m)[1] | ~real[:, None, -m:, None]


def place_against_position(real, m):
    places = (real.cumsum(dim=1) - 1)[:, -m:, None]
    return ((torch.arange(real.shape[1]) <= places) & real[:, None])[:, None]


def one_padding_open(real, m):
    n = real.shape[1]
    first = (~real).sum(dim=1)[:, None, None, None]
    return causal_mask(m, n) & (torch.arange(n) >= first - 1)


def in_numpy(real, m):
    words, n = real.numpy(), real.shape[1]
    may = np.tri(m, n, n - m, dtype=bool) & words[:, None, None]
    return torch.from_numpy((words.cumsum(axis=1) - 1)[:, n - m :]), torch.from_numpy(may)


padding.accept("numpy", in_numpy)
padding.reject(
    "the first m",
    "first positions, not of the last",
    padded_with(lambda r, m: (r.cumsum(1) - 1)[:, :m]),
)
padding.reject(
    "from the end",
    "counted from the end",
    padded_with(lambda real, m: torch.arange(m).flip(0).expand(len(real), m)),
)
padding.reject(
    "places against positions",
    "places are compared with positions",
    padded_with(may=place_against_position),
)
padding.reject(
    "the first text's padding",
    "all texts are padded as text 0 is",
    padded_with(may=lambda real, m: by_sums(real[:1].expand_as(real), m)[1]),
)
padding.reject(
    "the first text's places",
    "all texts are padded as text 0 is",
    padded_with(lambda real, m: by_sums(real[:1].expand_as(real), m)[0]),
)
padding.reject(
    "real as a column",
    "padding is hidden as a query, along the rows",
    padded_with(may=lambda real, m: no_padding_hidden(real, m) & real[:, None, -m:, None]),
)
padding.reject("one padding open", "position 1, padding", padded_with(may=one_padding_open))
padding.reject(
    "the block's square",
    r"may has the shape \(3, 1, 5, 9\)",
    padded_with(may=lambda real, m: by_sums(real[:, -m:], m)[1]),
)
padding.accept("padding sees all", padded_with(may=padding_sees_all))
padding.reject(
    "padded as the longest",
    r"\[6, 7, 1\].*; all texts are padded as the longest is$",
    padded_with(lambda real, m: (real.cumsum(1).amax(0) - 1).expand(real.shape)[:, -m:]),
)
padding.reject("clamped places", "padding", padded_with(may=by_clamped_places))


padding.reject(
    "a triangle of 32",
    "it runs.*Error",
    padded_with(
        may=lambda real, m: (
            TRIANGLE[32][real.shape[1] - m : real.shape[1], : real.shape[1]] & real[:, None, None]
        )
    ),
)

# Guesses
guesses_ = Exercise(decoding.accept)


def accepted(model, caches, last, guesses, standing=None):
    past = caches[0].n
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmax(dim=-1)
    fits = own[:, :-1] == guesses
    a = int((fits.long().cumprod(dim=1) if standing is None else standing(fits)).sum())
    for cache in caches:
        cache.crop(past + 1 + a)
    return own[:, : a + 1]


def accepted_by_loop(model, caches, last, guesses):
    logits = model(torch.hstack((last, guesses)), None, caches)[0]
    best = logits.max(dim=1).indices.tolist()
    words = []
    for guess, word in zip([*guesses[0].tolist(), None], best, strict=True):
        words.append(word)
        if guess != word:
            break
    spare = guesses.shape[1] + 1 - len(words)
    for cache in caches:
        cache.crop(cache.n - spare)
    return torch.tensor([words])


def accepted_by_first_miss(model, caches, last, guesses):
    read = torch.cat([last, guesses], dim=1)
    own = model(read, caches=caches).argmax(-1)
    misses = (own[0, :-1] != guesses[0]).nonzero().flatten()
    stands = misses[0].item() if len(misses) else guesses.numel()
    [cache.crop(cache.n - guesses.numel() + stands) for cache in caches]
    return torch.cat([guesses[:, :stands], own[:, stands : stands + 1]], dim=1).int()


guesses_.accept("running product", accepted)
guesses_.accept("loop", accepted_by_loop)
guesses_.accept("the first miss", accepted_by_first_miss)


def cropped_by(more):
    """Make an answer that cuts elsewhere."""

    def accept(model, caches, last, guesses):
        past = caches[0].n
        out = not_cropped(model, caches, last, guesses)
        for cache in caches:
            cache.crop(min(past + out.shape[1] + more, cache.n))
        return out

    return accept


def not_cropped(model, caches, last, guesses):
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmax(dim=-1)
    a = int((own[:, :-1] == guesses).long().cumprod(dim=1).sum())
    return own[:, : a + 1]


def cropped_where_all_stand(model, caches, last, guesses):
    past, out = caches[0].n, not_cropped(model, caches, last, guesses)
    for cache in caches:
        cache.crop(past + min(out.shape[1], guesses.shape[1]))
    return out


def first_cache_alone(model, caches, last, guesses):
    return accepted(model, [caches[0], *(_Deaf(cache) for cache in caches[1:])], last, guesses)


class _Deaf(KVCache):
    """A cache that is appended to and never cut."""

    def __init__(self, cache):
        self.cache = cache

    @property
    def n(self):
        return self.cache.n

    def append(self, k, v):
        return self.cache.append(k, v)

    def crop(self, n):
        pass


def without_last(model, caches, last, guesses):
    past = caches[0].n
    own = model(guesses, caches=caches).argmax(dim=-1)
    a = int((own[:, :-1] == guesses[:, 1:]).long().cumprod(dim=1).sum())
    for cache in caches:
        cache.crop(past + a)
    return own[:, : a + 1]


def all_own(model, caches, last, guesses):
    past = caches[0].n
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmax(dim=-1)
    for cache in caches:
        cache.crop(past + 1)
    return own


def one_by_one(model, caches, last, guesses):
    words, word = [], last
    for guess in [*guesses[0].tolist(), None]:
        word = model(word, caches=caches)[:, -1:].argmax(dim=-1)
        words.append(word)
        if word.item() != guess:
            break
    return torch.cat(words, dim=1)


def reads_again(model, caches, last, guesses):
    past = caches[0].n
    out = not_cropped(model, caches, last, guesses)
    for cache in caches:
        cache.crop(past)
    model(torch.cat([last, out[:, :-1]], dim=1), caches=caches)
    return out


def shifted_by_one(model, caches, last, guesses):
    past = caches[0].n
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmax(dim=-1)
    a = int((own[:, 1:] == guesses).long().cumprod(dim=1).sum())
    for cache in caches:
        cache.crop(past + 1 + a)
    return own[:, : a + 1]


def guess_kept(model, caches, last, guesses):
    out = accepted(model, caches, last, guesses)
    a = out.shape[1] - 1
    return torch.cat([out[:, :a], guesses[:, a : a + 1]], 1) if a < guesses.shape[1] else out


def misses_by_argmax(fits):
    return (~fits).long().argmax(dim=1)  # 0 where none misses


guesses_.reject(
    "a miss by argmax",
    r"came \[\[6\]\]; where none differs, none counts$",
    lambda *a: accepted(*a, misses_by_argmax),
)
guesses_.reject("not cut", "afterwards each cache holds.*it is not cropped$", not_cropped)
guesses_.reject("one too few", "holds 2; last, which was read", cropped_by(-1))
guesses_.reject(
    "the last guess is cut off where all stand",
    r"each cache holds (\d+).*, and (\d) of the guesses.*cache 0 of 2 holds \d+$",
    cropped_where_all_stand,
)
guesses_.reject("one left in", "afterwards each cache holds", cropped_by(1))
guesses_.reject("the first cache alone", "cache 1 of 2 holds", first_cache_alone)
guesses_.reject("without the last word", "called once.*called with 2$", without_last)
guesses_.reject(
    "a sum for the first miss",
    r"agrees after the wrong guess.*; after last and each of the guesses the model says \[\[",
    lambda *a: accepted(*a, lambda fits: fits.sum()),
)
guesses_.reject("all its own words", "nothing is thrown away", all_own)
guesses_.reject("one by one", "called once, with last.*called with 1$", one_by_one)
guesses_.reject("read again", "called once", reads_again)
guesses_.reject("compared one later", "with the model's word after it", shifted_by_one)
guesses_.reject("the wrong guess is kept", "one by one.*the guess that differs is in", guess_kept)


def judged_by(stands):
    """Make an answer that counts guesses by a function of logits, own words and guesses."""

    def accept(model, caches, last, guesses):
        past = caches[0].n
        logits = model(torch.cat([last, guesses], dim=1), caches=caches)[0]
        own = logits.argmax(dim=-1)
        a = stands(logits, own.tolist(), guesses[0].tolist())
        for cache in caches:
            cache.crop(past + 1 + a)
        return own[None, : a + 1]

    return accept


def by_index_of_the_wrong_guess(logits, own, guesses):
    wrong = [guess for guess, word in zip(guesses, own, strict=False) if guess != word]
    return guesses.index(wrong[0]) if wrong else len(guesses)


def at_its_first_place(logits, own, guesses):
    return [*(own[guesses.index(guess)] == guess for guess in guesses), False].index(False)


def among_the_best(count):
    def stands(logits, own, guesses):
        best = logits.topk(count).indices.tolist()
        fits = [guess in row for guess, row in zip(guesses, best, strict=False)]
        return [*fits, False].index(False)

    return stands


guesses_.accept("judged by lists", judged_by(among_the_best(1)))
guesses_.reject(
    "the wrong guess's first place",
    r"came \[\[\d+\]\]; the guess that differs stands earlier.*there$",
    judged_by(by_index_of_the_wrong_guess),
)
guesses_.reject(
    "each guess at its first place",
    r"\]\]; a guess that stands earlier, too, is compared with the model's word there$",
    judged_by(at_its_first_place),
)
guesses_.reject("among the best two", "the model's second choice$", judged_by(among_the_best(2)))
guesses_.reject(
    "all or nothing",
    r"came \[\[15\]\]; once a guess differs, those before it are thrown away as well$",
    judged_by(lambda logits, own, guesses: len(guesses) * (own[:-1] == guesses)),
)
guesses_.reject(
    "no word of its own",
    "the model's word after them is missing",
    lambda *a: accepted(*a)[:, :-1],
)


def no_word_on_top(model, caches, last, guesses):
    return accepted(model, caches, last, guesses)[:, : guesses.shape[1]]


guesses_.reject(
    "no word on top",
    "came [^;]*; where all stand, the model's word on top is missing$",
    no_word_on_top,
)


def anywhere(logits, own, guesses):
    return [*(guess in own for guess in guesses), False].index(False)


def likely(least):
    def stands(logits, own, guesses):
        p = logits.softmax(dim=-1)
        fits = [bool(p[i, guess] > least) for i, guess in enumerate(guesses)]
        return [*fits, False].index(False)

    return stands


def with_guesses(judge):
    """Return the guesses themselves where they count, and the model's word after them."""

    def accept(model, caches, last, guesses):
        own = judge(model, caches, last, guesses)
        a = own.shape[1] - 1
        return torch.cat([guesses[:, :a], own[:, a:]], dim=1)

    return accept


def cropped_to(n):
    """Make an answer that crops caches as a function of past and accepted says."""

    def accept(model, caches, last, guesses):
        past, out = caches[0].n, not_cropped(model, caches, last, guesses)
        for cache in caches:
            cache.crop(n(past, out.shape[1] - 1) or cache.n)
        return out

    return accept


def word_after_all(model, caches, last, guesses):
    past = caches[0].n
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmax(dim=-1)
    a = int((own[:, :-1] == guesses).long().cumprod(dim=1).sum())
    for cache in caches:
        cache.crop(past + 1 + a)
    return torch.cat([own[:, :a], own[:, -1:]], dim=1)


def without_caches(model, caches, last, guesses):
    own = model(torch.cat([last, guesses], dim=1)).argmax(dim=-1)
    return own[:, : int((own[:, :-1] == guesses).long().cumprod(dim=1).sum()) + 1]


def with_last(model, caches, last, guesses):
    return torch.cat([last, accepted(model, caches, last, guesses)], dim=1)


guesses_.accept("the guesses themselves", with_guesses(accepted))
SECOND = "a guess counts that is the model's second choice$"
guesses_.reject("guesses among the best two", SECOND, with_guesses(judged_by(among_the_best(2))))
guesses_.reject("guesses that are likely", SECOND, with_guesses(judged_by(likely(0.1))))
for least in (0.3, 0.5):
    told = r"\d\]\]; a guess counts only where its probability is above a bound$"
    guesses_.reject(f"guesses above {least}", told, with_guesses(judged_by(likely(least))))
for least in (0.75, 0.9):
    guesses_.reject(f"guesses above {least}", told, with_guesses(judged_by(likely(least))))
guesses_.reject("anywhere", "stands anywhere among the model's words$", judged_by(anywhere))
guesses_.reject(
    "one at most",
    "one guess at most counts$",
    judged_by(lambda logits, own, guesses: int(own[0] == guesses[0])),
)
guesses_.reject("the word after all", "after all guesses comes after those", word_after_all)
guesses_.reject("no caches", "without what the caches hold$", without_caches)
guesses_.reject("last comes back", "last is returned as well$", with_last)
guesses_.reject("cut to the guesses", "each cache holds 3.*holds 1", cropped_to(lambda n, a: a + 1))
guesses_.reject(
    "not cut where none counts",
    "and 0 of the guesses",
    cropped_to(lambda n, a: n + 1 + a if a else 0),
)
guesses_.reject("one axis", r"it has the shape \(1, 1\)", lambda *given: accepted(*given)[0])

# Heads that share keys
sharing = Exercise(decoding.grouped)


def attended(q, k, v, may=None, scale=None):
    m, n = q.shape[-2], k.shape[-2]
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s.masked_fill(~(causal_mask(m, n) if may is None else may), -INF)
    return s.softmax(dim=-1) @ v


def repeated(q, k, v, **more):
    r = q.shape[1] // k.shape[1]
    return attended(q, k.repeat_interleave(r, 1), v.repeat_interleave(r, 1), **more)


def in_groups(q, k, v):
    B, h, m, d_k = q.shape
    q = q.reshape(B, k.shape[1], -1, m, d_k)
    return attended(q, k[:, :, None], v[:, :, None]).reshape(B, h, m, -1)


def folded(q, k, v):
    B, h, m, d_k = q.shape
    h_kv, n = k.shape[1:3]
    may = causal_mask(m, n).repeat(h // h_kv, 1)
    return attended(q.reshape(B, h_kv, -1, d_k), k, v, may).reshape(B, h, m, -1)


def by_head(q, k, v):
    heads, r = [], q.shape[1] // k.shape[1]
    for i in range(q.shape[1]):
        heads.append(attended(q[:, i], k[:, i // r], v[:, i // r]))
    return torch.stack(heads, dim=1)


def by_pytorch(q, k, v):
    may = causal_mask(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, may, enable_gqa=True)


sharing.accept("repeated", repeated)
sharing.accept("in groups", in_groups)
sharing.accept("folded", folded)
sharing.accept("head by head", by_head)
sharing.accept("PyTorch's flag", by_pytorch)


def tiled(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q, k.repeat(1, r, 1, 1), v.repeat(1, r, 1, 1))


def values_tiled(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q, k.repeat_interleave(r, 1), v.repeat(1, r, 1, 1))


def groups_last(q, k, v):
    """Take the group for the outer axis, which is the other way round."""
    return attended(q.unflatten(1, (-1, k.shape[1])), k[:, None], v[:, None]).flatten(1, 2)


def fold_without_its_mask(q, k, v):
    B, h, m, d_k = q.shape
    rows = q.reshape(B, k.shape[1], -1, d_k)
    n = k.shape[2]
    may = lower(rows.shape[2], n, n - m)
    return attended(rows, k, v, may).reshape(B, h, m, -1)


def upper_left_flag(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def every(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)


def first_head(q, k, v):
    return attended(q, k[:, :1], v[:, :1])


def mean_head(q, k, v):
    return attended(q, k.mean(1, keepdim=True), v.mean(1, keepdim=True))


def one_per_group(q, k, v):
    return attended(q[:, :: q.shape[1] // k.shape[1]], k, v)


TURN = "dealt out in turn"
sharing.reject("tiled", TURN, tiled)
sharing.reject("the group outside", TURN, groups_last)
sharing.reject("values tiled", "and values in turn", values_tiled)


def fold_with(mask):
    def fold(q, k, v):
        B, h, m, d_k = q.shape
        rows = q.reshape(B, k.shape[1], -1, d_k)
        may = mask(m, rows.shape[2], k.shape[2])
        return attended(rows, k, v, may).reshape(B, h, m, -1)

    return fold


sharing.reject("a fold under one triangle", "one triangle covers them all", fold_without_its_mask)
sharing.reject(
    "a fold, the mask at its end",
    "from the lower right corner",
    fold_with(lambda m, r, n: lower(r, n, n - r)),
)
sharing.reject(
    "a fold, each row of the mask repeated",
    "each row of the mask is repeated",
    fold_with(lambda m, r, n: causal_mask(m, n).repeat_interleave(r // m, dim=0)),
)
sharing.reject("PyTorch's causal flag", "upper left corner", upper_left_flag)
sharing.reject("no mask", "later positions", lambda q, k, v: repeated(q, k, v, may=every(q, k)))
sharing.reject("the first head for all", "read the first head", first_head)
sharing.reject(
    "a triangle of 32",
    "it runs.*Error",
    lambda q, k, v: repeated(
        q, k, v, may=TRIANGLE[32][k.shape[2] - q.shape[2] : k.shape[2], : k.shape[2]]
    ),
)
for seen in (16, 256):
    sharing.reject(
        f"the last {seen}",
        "outputs differ",
        lambda q, k, v, seen=seen: repeated(q, k, v, may=window_mask(q.shape[2], k.shape[2], seen)),
    )
sharing.reject("the mean", "outputs differ", mean_head)
sharing.reject("one head a group", "it has the shape", one_per_group)
sharing.reject("not scaled", "not 1/√d_k but 1$", lambda q, k, v: repeated(q, k, v, scale=1.0))
sharing.reject(
    "not itself",
    "does not hear itself",
    lambda q, k, v: repeated(
        q, k, v, may=lower(q.shape[2], k.shape[2], k.shape[2] - q.shape[2] - 1)
    ),
)
sharing.reject("no shared keys", "it runs", lambda q, k, v: attended(q, k, v))


def einsum_in_groups(q, k, v):
    (B, _, m, d_k), (h_kv, n) = q.shape, k.shape[1:3]
    s = torch.einsum("bgrid,bgjd->bgrij", q.view(B, h_kv, -1, m, d_k), k) / d_k**0.5
    s = s + torch.full((m, n), -INF).triu(n - m + 1)
    return torch.einsum("bgrij,bgje->bgrie", s.softmax(dim=-1), v).flatten(1, 2)


def softmax_over_a_group(q, k, v):
    (B, h, m, d_k), (h_kv, n) = q.shape, k.shape[1:3]
    s = q.reshape(B, h_kv, -1, m, d_k) @ k[:, :, None].mT / d_k**0.5
    e = s.masked_fill(~causal_mask(m, n), -INF).exp()
    return (e / e.sum(dim=(2, 4), keepdim=True) @ v[:, :, None]).reshape(B, h, m, -1)


def mean_of_a_group(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q.unflatten(1, (-1, r)).mean(dim=2), k, v).repeat_interleave(r, dim=1)


def divided_by_h_kv(q, k, v):
    i = (torch.arange(q.shape[1]) // k.shape[1]).clamp(max=k.shape[1] - 1)
    return attended(q, k[:, i], v[:, i])


sharing.accept("einsum in groups", einsum_in_groups)
sharing.reject("a softmax over a group", "120 of 120 outputs differ", softmax_over_a_group)
sharing.reject("the mean of a group", "outputs differ", mean_of_a_group)
sharing.reject("divided by h_kv", "head 2 of 6 reads head 0", divided_by_h_kv)

# The zoo
decoders = Exercise(decoding.decoder_is_sound)


@torch.no_grad()
def layer_of(d_model=6, h=4, h_kv=2, d_k=4, d_v=3, base=100.0, biases=True):
    """Make a layer whose numbers are all drawn, biases too."""
    layer = MultiHeadAttention(d_model, h, h_kv=h_kv, d_k=d_k, d_v=d_v, rotary_base=base)
    for parameter in layer.parameters():
        if biases or parameter.dim() > 1:
            parameter.normal_(std=0.7)
    return layer


# What is done: "r" reads so many, "c" crops to so many, "o" reorders, "x" clears for so many texts.
READS = (("r", 3), ("r", 1), ("r", 2), ("r", 2))
CUT, CUT_TO_0 = (("c", 5), ("r", 1), ("r", 3)), (("c", 0), ("r", 2), ("r", 1))
ORDERS = (("o", (1, 2, 0)), ("r", 2), ("o", (2, 2, 0, 1)), ("r", 1))
CLEARS, LONG = (("x", 4), ("r", 2)), (("r", 32), ("r", 1))
ALL = (*READS, *CUT, *CUT_TO_0, *ORDERS, *CLEARS, *LONG)


def look_at_all(out, expected, within):
    return (out - expected).abs().max() <= within * expected.abs().max()


@remembered
@torch.no_grad()
def played(script, **sizes):
    """Return a layer, what a script has its decoders read, and what should come."""
    torch.manual_seed(0)
    layer, parts = layer_of(**sizes), []
    text = torch.zeros(3, 0, layer.d_model)
    for what, much in script:
        x = expected = None
        if what == "r":
            x = torch.randn(len(text), much, layer.d_model)
            text = torch.cat([text, x], dim=1)
            expected = layer(text, is_causal=True)[:, -much:]
        elif what == "c":
            text = text[:, :much]
        elif what == "o":
            text = text[torch.tensor(much)]
        else:
            text = torch.zeros(much, 0, layer.d_model)
        parts.append((what, much, x, expected))
    return layer, parts


@torch.no_grad()
def by_script(
    make, script=ALL, two=True, spoil=True, again=True, within=2e-4, look=look_at_all, **sizes
):
    """Do what a script says, and compare with whole texts; another decoder is used meanwhile."""
    layer, parts = played(script, **sizes)
    decoder, came = make(layer), []
    for what, much, x, expected in parts:
        if what == "r":
            x = x.clone()
            out = decoder.read(x)
            came.append((out, out.clone()))
            if spoil:
                x.fill_(5.0)
            if not look(out, expected, within):
                return False
            if two and len(came) == 1:
                make(layer).read(torch.randn(3, 2, layer.d_model))
        elif what == "c":
            decoder.crop(much)
        elif what == "o":
            decoder.reorder(torch.tensor(much))
        else:
            decoder.clear()
    return not again or all(torch.equal(out, then) for out, then in came)


def against_labkits(make):
    """Compare with labkit's layer and its cache, by names of arguments."""
    layer = layer_of(h=6, h_kv=3, d_k=2, d_v=5).requires_grad_(False)
    decoder, other, ours = make(layer), make(layer), KVCache()
    memory, came = torch.empty(4, 40, 6), []

    def agree(m):
        x = memory[: len(ours.k) if ours.n else 4, :m].normal_()
        wanted, out = layer(x, cache=ours), decoder.read(x=x)
        came.append((out, out.clone()))
        memory.fill_(-4.0)
        return torch.allclose(out, wanted, rtol=1e-3, atol=1e-3)

    for order in ([2, 0, 3, 1], [3, 3, 1, 0], [3, 1, 1]):
        if not (agree(2) and agree(1)):
            return False
        other.read(x=torch.ones(4, 3, 6))
        if not agree(3):
            return False
        decoder.crop(n=ours.n - 4)
        ours.crop(ours.n - 4)
        if not agree(1):
            return False
        decoder.reorder(index=torch.tensor(order))
        ours.reorder(torch.tensor(order))
        if not (agree(1) and agree(32 if order[0] == 2 else 1)):
            return False
        decoder.clear()
        ours = KVCache()
    decoder.read(torch.ones(4, 2, 6))
    decoder.crop(0)
    return np.bool_(agree(1) and all(torch.equal(out, before) for out, before in came))


def twice_by_script(make):
    return torch.tensor(by_script(make, h=6, d_k=2) and by_script(make, READS, d_v=6, d_model=5))


decoders.accept("a script", by_script)
decoders.accept("labkit's cache beside it", against_labkits)
decoders.accept("two scripts", twice_by_script)
decoders.accept("no size twice in a row", lambda make: by_script(make, (*READS[:3], *ALL[4:])))


def with_(**changes):
    return lambda make: by_script(make, **changes)


def last_row(out, expected, within):
    return look_at_all(out[:, -1:], expected[:, -1:], within)


def first_text(out, expected, within):
    return look_at_all(out[:1], expected[:1], within)


SWAP = (("o", (1, 0, 2)), ("r", 2))
decoders.reject("accepts all", MISSED, lambda make: True)
decoders.reject("one by one", "one by one all is right", with_(script=(("r", 1),) * 7))
decoders.reject(
    "the last output", "once there is a past, a position hears those after", with_(look=last_row)
)
decoders.reject("not turned", "takes the first position of every block", with_(base=None))
decoders.reject("the first text", "the past of the first", with_(look=first_text))
decoders.reject(
    "no crop", "what was cut off is still", with_(script=(*READS, *ORDERS, *CLEARS, *LONG))
)
decoders.reject("no crop to 0", "a crop to 0", with_(script=(*READS, *CUT)))
decoders.reject("no reorder", "keeps the number of texts", with_(script=(*READS, *CUT, *CUT_TO_0)))
decoders.reject(
    "two texts swap", "the other way round", with_(script=(*READS, *CUT, *CUT_TO_0, *SWAP))
)
decoders.reject("own keys for each head", "where several heads share", with_(h_kv=4))
decoders.reject("no clear", "after clear", with_(script=(*READS, *CUT, *CUT_TO_0, *ORDERS)))
decoders.reject("x is left alone", "the caller writes into x", with_(spoil=False))
decoders.reject("no look back", "another block of its size", with_(again=False))
decoders.reject("one decoder", "of two decoders", with_(two=False))
decoders.reject("exact", FALSE_ALARM, with_(within=0.0))


def sum_alone(out, expected, within):
    return (out.sum() - expected.sum()).abs() <= 0.01


def direction_alone(out, expected, within):
    return F.cosine_similarity(out, expected, dim=-1).min() > 0.9999


ONE_ORDER = (("o", (1, 2, 0)), ("r", 2), ("x", 3), ("r", 2))
THREES = (("r", 3), *((what, 3 if what == "r" else much) for what, much in ALL))
decoders.reject("biases of zero", "the layer's biases are left out", with_(biases=False))
decoders.reject(
    "as many texts after each reorder",
    "changes the number of texts",
    with_(script=(*READS, *CUT, *CUT_TO_0, *ONE_ORDER, *LONG)),
)
decoders.reject("blocks of three", "a position that is read alone", with_(script=THREES))
decoders.reject("sums", "in the reverse order of the texts", with_(look=sum_alone))
decoders.reject("directions", "a tenth too long", with_(look=direction_alone))
decoders.reject("a tenth may be off", "in bfloat16", with_(within=0.1))


def least(out, expected, within):
    return (out - expected).abs().min() <= within * expected.abs().max()


SHORT = tuple((what, 3) if (what, much) == LONG[0] else (what, much) for what, much in ALL)
decoders.reject("the least difference", "the past of the first", with_(look=least))
decoders.reject("short texts", "of more than 32 positions", with_(script=SHORT))
TOO_LONG = (("r", 3), ("r", 130))
decoders.reject("longer texts than said", "need not hold over 100", with_(script=TOO_LONG))
