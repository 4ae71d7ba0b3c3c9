"""Answers to lab 8."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
import torch.nn.functional as F

from labkit import (
    KVCache,
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
)
from labkit.checks import decoding
from tests.answers import Exercise

INF = float("inf")
FALSE_ALARM, MISSED = "a false alarm", "went unnoticed"

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
    def __init__(self, room=500):
        self.room, self.n, self.held = room, 0, None

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


class SideBySide:
    def __init__(self):
        self.both = None

    def append(self, k, v):
        new = torch.cat([k, v], dim=-1)
        self.both = new if self.both is None else torch.cat([self.both, new], dim=-2)
        return self.both.split([k.shape[-1], v.shape[-1]], dim=-1)


cache.accept("cat", Joins)
cache.accept("a list of parts", KeepsParts)
cache.accept("room from the start", HasRoom)
cache.accept("rows in numpy", InNumpy)
cache.accept("one tensor for both", SideBySide)
cache.accept("labkit's", KVCache)


class KeepsTheCallers(Joins):
    def append(self, k, v):
        if self.k is None:
            self.k, self.v = k, v
            return k, v
        return super().append(k, v)


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


class AlongTheBatch(Joins):
    def joined(self, old, new):
        return torch.cat([old, new], dim=0)


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


class OneForAllIfTheyFit(Joins):
    held = {}  # noqa: RUF012 (that is the mistake)

    def __init__(self):
        self.seen = False

    def append(self, k, v):
        name = (k.shape[0], k.shape[1], k.shape[3], v.shape[3])
        if not self.seen and len(self.held.get(name, "..")) == 2:
            self.held.pop(name, None)
        self.seen = True
        old = self.held.get(name)
        self.held[name] = (
            (k.clone(), v.clone(), self)
            if old is None
            else (torch.cat([old[0], k], 2), torch.cat([old[1], v], 2), self)
        )
        return self.held[name][:2]


class ReturnsKeysTwice(Joins):
    def append(self, k, v):
        super().append(k, v)
        return self.k, self.k


class ReturnsOne(Joins):
    def append(self, k, v):
        return super().append(k, v)[0]


class ReturnsNothing(Joins):
    def append(self, k, v):
        super().append(k, v)


class OneAtATime(Joins):
    def append(self, k, v):
        return super().append(k[:, :, -1:], v[:, :, -1:])


class ReturnsTheOld(Joins):
    def append(self, k, v):
        old = k[:, :, :0], v[:, :, :0]
        if self.k is not None:
            old = self.k, self.v
        super().append(k, v)
        return old


class InFloat32(Joins):
    def append(self, k, v):
        return super().append(k.float(), v.float())


class TextsInARow(Joins):
    def append(self, k, v):
        k, v = super().append(k, v)
        return k.mT.reshape(k.shape), v


class SortsByTurns(Joins):
    def append(self, k, v):
        return tuple(x.flip(2) for x in super().append(k, v))


class LastForAll(Joins):
    def append(self, k, v):
        return tuple(x[:, :, -1:].expand(x.shape) for x in super().append(k, v))


class ChangesItsInput(Joins):
    def append(self, k, v):
        return super().append(k.mul_(1.0), v.mul_(2.0))


class FillsTheFirstRows(HasRoom):
    def append(self, k, v):
        self.n = 0
        return super().append(k, v)


class CountsCallsForPositions(HasRoom):
    def append(self, k, v):
        out = super().append(k, v)
        self.n -= k.shape[2] - 1
        return out


class TakesOne:
    def append(self, kv):
        return kv


class Adds:
    def add(self, k, v):
        return k, v


cache.reject("the caller's tensors", "the caller wrote −77", KeepsTheCallers)
cache.reject("the caller's tensors in a list", "the caller wrote −77", KeepsTheCallersParts)
cache.reject("new ones in front", r"5, 6\].*stand before the old", InFront)
cache.reject("along the heads", "it runs.*Expected size 2 but got size 1", AlongTheHeads)
cache.reject("along the batch", "it runs.*Expected size 2 but got size 1", AlongTheBatch)
cache.reject("new ones only", r"all keys has the shape \(1, 1, 3, 2\)", OnlyTheNew)
cache.reject("values are not kept", r"all values has the shape \(1, 1, 3, 1\)", ForgetsValues)
cache.reject("one list for all caches", "shape", OneForAllCaches)
cache.reject("caches of a size share", "shape", OneForAllIfTheyFit)
cache.reject("keys twice", r"all values has the shape", ReturnsKeysTwice)
cache.reject("keys alone", "2 results: all keys, all values.*a tensor", ReturnsOne)
cache.reject("returns nothing", "None; is there a return", ReturnsNothing)
cache.reject("the last of each block", r"shape \(1, 1, 2, 2\)", OneAtATime)
cache.reject("what was there before", "shape", ReturnsTheOld)
cache.reject("float32", "have the type of what is appended, torch.float64", InFloat32)
cache.reject("read along another axis", "some of all keys differ|they came as", TextsInARow)
cache.reject("backwards", "opposite order", SortsByTurns)
cache.reject("the last in all places", "the new positions stand in all places", LastForAll)
cache.reject("its input changed", "v was changed in place", ChangesItsInput)
cache.reject("room is written from the start", "shape", FillsTheFirstRows)
cache.reject("a call is a position", "shape", CountsCallsForPositions)
cache.reject("room for 64", "it runs|shape", lambda: HasRoom(64))
cache.reject("room for 256", "it runs|shape", lambda: HasRoom(256))
cache.reject("room for 400", "it runs|shape", lambda: HasRoom(400))
cache.reject("takes one argument", "it takes k, v, in this order", TakesOne)
cache.reject("another name", "a method append.*an? Adds|a method append", Adds)
cache.reject("an instance", "hand over the name", KVCache())


class AddsUp(Joins):
    def joined(self, old, new):
        return torch.cat([old[:, :1].expand_as(old), new], dim=2)


class FirstText(Joins):
    def joined(self, old, new):
        return torch.cat([old[:1].expand_as(old), new], dim=2)


cache.reject("the first head's past for all", "some of all keys differ", AddsUp)
cache.reject("the first text's past for all", "some of all keys differ", FirstText)

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


def step_head_by_head(layer, x, cache):
    q, k, v = heads_of(layer, x.double()) if x.dtype == torch.float64 else heads_of(layer, x)
    k, v = cache.append(k, v)
    may = causal_mask(q.shape[2], k.shape[2])
    parts = [scaled_dot_product_attention(q[:, i], k[:, i], v[:, i], may) for i in range(layer.h)]
    return torch.cat(parts, dim=-1) @ layer.w_o.weight.T + layer.w_o.bias


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
step.accept("head by head", step_head_by_head)
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


def own_unheard(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    n_q, n_k = q.shape[2], k.shape[2]
    return layer.w_o(
        merge_heads(scaled_dot_product_attention(q, k, v, lower(n_q, n_k, n_k - n_q - 1)))
    )


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


def appended_twice(layer, x, cache):
    q, k, v = heads_of(layer, x)
    cache.append(k, v)
    out = mixed(layer, q, cache.k, cache.v, causal_mask(q.shape[2], cache.n))
    cache.append(k, v)
    return out


def last_only(layer, x, cache):
    return stepped()(layer, x, cache)[:, -1:]


def without_w_o(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    return merge_heads(scaled_dot_product_attention(q, k, v, is_causal=True))


def scaled_keys_kept(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k / layer.d_k**0.5, v)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]), 1.0)


def without_bias(layer, x, cache):
    q, k, _ = heads_of(layer, x)
    v = split_heads(x @ layer.w_v.weight.T, layer.h)
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def bias_added_later(layer, x, cache):
    q, k, _ = heads_of(layer, x)
    v = split_heads(x @ layer.w_v.weight.T, layer.h)
    k, v = cache.append(k, v)
    v = v + split_heads(layer.w_v.bias[None], layer.h)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def over_queries(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    s = (q @ k.mT / layer.d_k**0.5).masked_fill(~causal_mask(q.shape[2], k.shape[2]), -1e9)
    return layer.w_o(merge_heads(s.softmax(dim=-2) @ v))


def merged_by_view(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)
    return layer.w_o(heads.reshape(*x.shape[:2], -1))


def split_by_view(layer, x, cache):
    B, m, _ = x.shape
    q, k, v = (part(x).reshape(B, layer.h, m, -1) for part in (layer.w_q, layer.w_k, layer.w_v))
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, causal_mask(m, k.shape[2]))


def counts_itself(layer, x, cache, seen={}):  # noqa: B006 (that is the mistake)
    past = seen.get(cache, 0)
    seen[cache] = past + x.shape[1]
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, lower(q.shape[2], k.shape[2], past))


def keeps_its_own(layer, x, cache, kept={}):  # noqa: B006 (that is the mistake)
    q, k, v = heads_of(layer, x)
    cache.append(k, v)
    if cache.n > x.shape[1] and layer in kept:
        k, v = torch.cat([kept[layer][0], k], dim=2), torch.cat([kept[layer][1], v], dim=2)
    kept[layer] = k, v
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def open_onto_past(n_q, n_k):
    return causal_mask(n_q, n_k) | (n_k > n_q)


def window_of_32(n_q, n_k):
    return window_mask(n_q, n_k, 32)


def new_first(n_q, n_k):
    return causal_mask(n_q, n_k).roll(n_q, dims=-1)


def past_of_one(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    k = torch.cat([k[:1, :, : -x.shape[1]].expand(len(x), -1, -1, -1), k[:, :, -x.shape[1] :]], 2)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


def swapped(layer, x, cache):
    q, k, v = heads_of(layer, x)
    v, k = cache.append(v, k)
    return mixed(layer, q, k, v, causal_mask(q.shape[2], k.shape[2]))


UPPER_LEFT = "the mask begins in the upper left corner"
step.reject("PyTorch's flag", UPPER_LEFT, step_by_flag)
step.reject("PyTorch's flag for a block", UPPER_LEFT, flag_if_several)
step.reject("tril", UPPER_LEFT, stepped(lambda n_q, n_k: lower(n_q, n_k, 0)))
step.reject(
    "no mask", "later positions of the block", stepped(lambda n_q, n_k: lower(n_q, n_k, n_k))
)
step.reject("no mask onto a past", "text 0 at new position 0.*later pos", stepped(open_onto_past))
step.reject("the block alone", "the past is not heard", block_alone)
step.reject("not itself", "a position does not hear itself", own_unheard)
step.reject("not itself, once there is a past", "does not hear itself", own_unheard_later)
step.reject("not itself, NaN", "NaN", stepped(lambda n_q, n_k: lower(n_q, n_k, n_k - n_q - 1)))
step.reject(
    "new ones first in the mask", "takes the new positions for the oldest", stepped(new_first)
)
step.reject("not appended", "holds 2 positions.*it holds 0", not_appended)
step.reject("appended twice", "holds 2 positions.*it holds 4", appended_twice)
step.reject("the last output alone", r"shape \(2, 2, 7\).*\(2, 1, 7\)", last_only)
step.reject("no W_O", "shape", without_w_o)
step.reject("scaled keys are kept", "holds keys as w_k gives them", scaled_keys_kept)
step.reject("no bias", "outputs differ", without_bias)
step.reject("the bias is added later", "holds values as w_v gives them", bias_added_later)
step.reject("not scaled", "the scale is not 1/√d_k but 1", stepped(scale=lambda layer: 1.0))
step.reject("d_model", "the scale is 1/√d_model", stepped(scale=lambda layer: layer.d_model**-0.5))
step.reject("d_v", "the scale is 1/√d_v", stepped(scale=lambda layer: layer.d_v**-0.5))
step.reject("softmax over the queries", "outputs differ", over_queries)
step.reject("merged by a view", "outputs differ", merged_by_view)
step.reject("split by a view", "outputs differ|other numbers", split_by_view)
step.reject("counts for itself", "outputs differ", counts_itself)


def small_number_added(layer, x, cache):
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    weights = (q @ k.mT / layer.d_k**0.5).exp() * causal_mask(q.shape[2], k.shape[2])
    return layer.w_o(merge_heads(weights / (weights.sum(-1, keepdim=True) + 1e-9) @ v))


step.reject("1e-9 is added to the sum", "outputs differ", small_number_added)
step.reject("keeps for itself", "outputs differ|it runs", keeps_its_own)
step.reject("a window of 32", "outputs differ", stepped(window_of_32))
step.reject("the first text's keys", "outputs differ", past_of_one)
step.reject("keys for values", "outputs differ|it runs|other numbers", swapped)
step.reject("the cache comes first", "it runs", lambda cache, layer, x: stepped()(layer, x, cache))
step.reject("two arguments", "it takes layer, x, cache, in this order", lambda layer, x: x)

# Writing
writing = Exercise(decoding.generate)


def generated(model, ids, more, c, caches=None):
    caches = model.caches() if caches is None else caches
    for piece in ids.split(c, dim=1):
        logits = model(piece, caches=caches)
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
writing.accept("always one word", lambda m, i, more, c: generated(m, i, more, 1))


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
    out = generated(model, ids, more + 1, c)
    return torch.cat([out[:, : ids.shape[1]], out[:, ids.shape[1] + 1 :]], dim=1)


def from_the_first(model, ids, more, c):
    caches = model.caches()
    for piece in ids.split(c, dim=1):
        logits = model(piece, caches=caches)
    word = logits[:, :1].argmax(dim=-1)
    return generated_on(model, ids, more, caches, word)


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


def all_again(model, ids, more, c):
    caches = model.caches()
    for _ in range(more):
        for piece in ids.split(c, dim=1):
            logits = model(piece, caches=caches)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def all_again_but_fresh(model, ids, more, c):
    for _ in range(more):
        caches = model.caches()
        for piece in ids.split(c, dim=1):
            logits = model(piece, caches=caches)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def cropped_each_time(model, ids, more, c):
    caches = model.caches()
    for _ in range(more):
        for cache in caches:
            cache.crop(0)
        for piece in ids.split(c, dim=1):
            logits = model(piece, caches=caches)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def new_ones_alone(model, ids, more, c):
    return generated(model, ids, more, c)[:, ids.shape[1] :]


def one_less(model, ids, more, c):
    return generated(model, ids, more - 1, c)


def first_text_for_all(model, ids, more, c):
    out = generated(model, ids, more, c)
    out[1:, ids.shape[1] :] = out[:1, ids.shape[1] :]
    return out


def over_all_texts(model, ids, more, c):
    caches = model.caches()
    for piece in ids.split(c, dim=1):
        logits = model(piece, caches=caches)
    word = logits[:, -1].argmax().expand(len(ids), 1) % logits.shape[-1]
    return generated_on(model, ids, more, caches, word)


def least_likely(model, ids, more, c):
    caches = model.caches()
    for piece in ids.split(c, dim=1):
        logits = model(piece, caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmin(dim=-1))


def drawn(model, ids, more, c):
    caches = model.caches()
    for piece in ids.split(c, dim=1):
        logits = model(piece, caches=caches)
    for _ in range(more):
        word = logits[:, -1].softmax(dim=-1).multinomial(1)
        ids = torch.cat([ids, word], dim=1)
        logits = model(word, caches=caches)
    return ids


def pieces_for_texts(model, ids, more, c):
    caches = model.caches()
    for piece in ids.chunk(c, dim=1):
        logits = model(piece, caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def one_cache_for_all(model, ids, more, c):
    return generated(model, ids, more, c, caches=[model.caches()[0]] * len(model.blocks))


def kept_between_calls(model, ids, more, c, kept={}):  # noqa: B006 (that is the mistake)
    caches = kept.setdefault((model, len(ids)), model.caches())
    return generated(model, ids, more, c, caches)


def kept_for_all(model, ids, more, c, kept=[]):  # noqa: B006 (that is the mistake)
    if not kept:
        kept.extend(model.caches())
    return generated(model, ids, more, c, kept)


def last_piece_lost(model, ids, more, c):
    """Leave the last piece out where c divides n."""
    caches, n, i = model.caches(), ids.shape[1], 0
    while i + c < n:
        logits = model(ids[:, i : i + c], caches=caches)
        i += c
    if n % c or not i:
        logits = model(ids[:, i:], caches=caches)
    return generated_on(model, ids, more, caches, logits[:, -1:].argmax(dim=-1))


def until_word_0(model, ids, more, c):
    out, n = generated(model, ids, more, c), ids.shape[1]
    ends = (out[:, n:] == 0).all(dim=0).nonzero()
    return out[:, : n + int(ends[0]) + 1] if len(ends) else out


writing.reject("where c divides n", "each new word is", last_piece_lost)
writing.reject("stops at word 0", "it has the shape", until_word_0)
writing.reject("no cache", "at most 3 words|each word once", without_cache)
writing.reject("the prompt at once", "at most 3 words of a text.*with 5", whole_prompt)
writing.reject("a cache for each piece", "only the last piece", fresh_for_each_piece)
writing.reject("each word alone", "each word is read alone", words_alone)
writing.reject("one word is lost", "goes on one word later", one_word_lost)
writing.reject("the first logits of the piece", "each new word is the one", from_the_first)
writing.reject("the rest of the prompt is left out", "each new word is", whole_pieces_only)
writing.reject("the last word is read twice", "each new word is", last_twice)
writing.reject("all is read again", "each word once|each new word is", all_again)
writing.reject("all is read again, with fresh caches", "each word once", all_again_but_fresh)
writing.reject("all is read again, cropped to nothing", "it runs|once", cropped_each_time)
writing.reject("the new words alone", r"it has the shape \(1, 9\)", new_ones_alone)
writing.reject("one word less", "it has the shape", one_less)
writing.reject("the first text's words for all", "each new word is", first_text_for_all)
writing.reject("the largest of all texts", "each new word|it runs", over_all_texts)
writing.reject("the smallest logit", "each new word is", least_likely)
writing.reject("words are drawn", "each new word is", drawn)
writing.reject("c pieces", "at most|each new word", pieces_for_texts)
writing.reject("one cache for all blocks", "it runs", one_cache_for_all)
writing.reject("caches kept for the next text", "it runs|each new word", kept_for_all)
writing.reject("a list", "it is a tensor", lambda m, i, more, c: generated(m, i, more, c).tolist())
writing.reject("floats", "whole numbers", lambda m, i, more, c: generated(m, i, more, c).double())
writing.reject("as logits", "shape", lambda m, i, more, c: m(generated(m, i, more, c)))
writing.reject(
    "the prompt behind",
    "the prompt stands in front",
    lambda m, i, more, c: generated(m, i, more, c).roll(more, dims=1),
)

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


def keeps_inputs(layer, x, kept, w):
    text = x if kept is None else torch.cat([kept, x], dim=1)
    m, n = x.shape[1], text.shape[1]
    out = layer(text[:, -m:], text, window_mask(m, n, w))
    keep = w - 1
    return out, text[:, n - keep :].clone() if keep < n else text


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


def keeps_the_first(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w, lambda w: 10_000)
    return out, (k[:, :, :w], v[:, :, :w])


def keeps_new_alone(layer, x, kept, w):
    out, _ = slid(layer, x, kept, w)
    _, k, v = heads_of(layer, x)
    return out, (k[:, :, -w:], v[:, :, -w:])


def keeps_the_old_if_full(layer, x, kept, w):
    out, new = slid(layer, x, kept, w)
    full = kept is not None and kept[0].shape[2] == w
    return out, kept if full else new


def one_slot_for_a_block(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w)
    if kept is None or x.shape[1] == 1:
        return out, (k, v)
    return out, (torch.cat([kept[0], k[:, :, -1:]], 2)[:, :, -w:],
                 torch.cat([kept[1], v[:, :, -1:]], 2)[:, :, -w:])  # fmt: skip


def kept_in_a_global(layer, x, kept, w, held=[None]):  # noqa: B006 (that is the mistake)
    out, held[0] = slid(layer, x, None if kept is None else held[0], w)
    return out, ()


def one_kept_one_lost(layer, x, kept, w):
    out, (k, v) = slid(layer, x, kept, w)
    return out, (k, torch.zeros_like(v))


def blocks(n_q, n_k, w):
    """Let a position see its block of w, and not the last w."""
    block = torch.arange(n_k) // w
    return causal_mask(n_q, n_k) & (block[n_k - n_q :, None] == block)


def not_causal(n_q, n_k, w):
    return torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q - w + 1)


def masked(may, keep=None):
    return lambda layer, x, kept, w: slid(layer, x, kept, w, keep, may)


def upper_left_window(n_q, n_k, w):
    return lower(n_q, n_k, 0).triu(1 - w) | (torch.arange(n_k) == 0)


def unscaled_window(layer, x, kept, w):
    q, k, v = heads_of(layer, x)
    if kept is not None:
        k, v = torch.cat([kept[0], k], dim=2), torch.cat([kept[1], v], dim=2)
    may = window_mask(q.shape[2], k.shape[2], w)
    return mixed(layer, q, k, v, may, 1.0), (k[:, :, -w:], v[:, :, -w:])


def all_kept(n_k):
    return 10_000


def in_python(layer, x, kept, w):
    out, held = slid(layer, x, kept and [torch.tensor(part) for part in kept], w, all_kept)
    return out, [part.tolist() for part in held]


def all_in_numpy(layer, x, kept, w):
    out, held = slid(layer, x, kept and [torch.from_numpy(part) for part in kept], w, all_kept)
    return out, [part.numpy() for part in held]


def in_labkits_cache(layer, x, kept, w):
    cache = kept or KVCache()
    q, k, v = heads_of(layer, x)
    k, v = cache.append(k, v)
    return mixed(layer, q, k, v, window_mask(q.shape[2], k.shape[2], w)), cache


def in_bfloat16(layer, x, kept, w):
    out, held = slid(layer, x, kept, w)
    return out, [part.bfloat16().float() for part in held]


window.reject("the inputs are kept", "numbers are kept", keeps_inputs)
window.reject("all in Python's lists", "numbers are kept", in_python)
window.reject("all in numpy", "numbers are kept", all_in_numpy)
window.reject("labkit's cache, which grows", "numbers are kept", in_labkits_cache)
window.reject("bfloat16", "outputs differ", in_bfloat16)
TOO_MANY, TOO_FEW = "one position too many is heard", "one position too few is heard"
window.reject(
    "all is kept",
    "3 positions at most are kept, .* numbers are kept",
    masked(window_mask, all_kept),
)
window.reject("w + 1 are kept", "numbers are kept", masked(window_mask, lambda w: w + 1))
window.reject(
    "no window", "all of the past is heard", masked(lambda a, b, w: causal_mask(a, b), all_kept)
)
window.reject("w + 1 are heard", TOO_MANY, masked(lambda a, b, w: window_mask(a, b, w + 1)))
window.reject(
    "w + 1 are heard, w kept",
    TOO_MANY,
    masked(lambda a, b, w: window_mask(a, b, w + 1), lambda w: w),
)
window.reject("w − 1 are heard", TOO_FEW, masked(lambda a, b, w: window_mask(a, b, max(w - 1, 1))))
window.reject("cut, and no mask", "outputs differ", only_cut)
window.reject("cut before attending", "the window is that of the block's last|NaN", cut_before)
window.reject("w − 2 are kept", "outputs differ", masked(window_mask, lambda w: max(w - 2, 0)))
window.reject("empty slots", "outputs differ", empty_slots)
window.reject("minus nought", "1 positions at most.*numbers are kept", minus_zero)
window.reject("the first are kept", "outputs differ", keeps_the_first)
window.reject("the block alone is kept", "outputs differ", keeps_new_alone)
window.reject("the ring is full", "outputs differ", keeps_the_old_if_full)
window.reject("one slot for a block", "outputs differ", one_slot_for_a_block)
window.reject("a global", "outputs differ", kept_in_a_global)
window.reject("values are lost", "outputs differ", one_kept_one_lost)
window.reject("blocks for a window", "outputs differ", masked(blocks))
window.reject("the future is heard", "later positions of the block are heard", masked(not_causal))
window.reject("the upper left corner", "outputs differ", masked(upper_left_window))
window.reject("not scaled", "outputs differ", unscaled_window)
window.reject("the output alone", "2 results", lambda la, x, kept, w: slid(la, x, kept, w)[0][0])
window.reject(
    "in the other order", "is a tensor", lambda la, x, kept, w: slid(la, x, kept, w)[::-1]
)
window.reject(
    "a window of 3 always",
    "outputs differ|numbers are kept",
    lambda la, x, kept, w: slid(la, x, kept, 3),
)

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


def by_longest(real, m):
    n = real.shape[1]
    return torch.arange(n - m, n).expand(len(real), m) - (n - real.sum(dim=1).max())


def by_first_text(real, m):
    return by_sums(real[:1].expand_as(real), m)[0]


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


def padding_of_first(real, m):
    return by_sums(real[:1].expand_as(real), m)[1]


def hides_queries(real, m):
    n = real.shape[1]
    return causal_mask(m, n) & real[:, None, -m:, None]


def own_hidden(real, m):
    n = real.shape[1]
    return lower(m, n, n - m - 1) & real[:, None, None, :]


def first_hidden(real, m):
    return by_sums(real.long().cumsum(dim=1) > 1, m)[1]


def one_padding_open(real, m):
    return by_sums(real | real.roll(-1, dims=1), m)[1]


def right_padding(real, m):
    n = real.shape[1]
    return causal_mask(m, n) & (torch.arange(n) < real.sum(1, keepdim=True))[:, None, None]


padding.reject("from 1", "the first word of each text has place 0", padded_with(shifted))
padding.reject("padding counted", "the padding was counted", padded_with(from_the_edge))
padding.reject("the block's words", "only the words of the block", padded_with(of_block_only))
padding.reject("the longest text's", "has place 0", padded_with(by_longest))
padding.reject("the first text's", "has place 0", padded_with(by_first_text))
padding.reject(
    "places of the block",
    "the block's first position has place 0",
    padded_with(lambda real, m: torch.arange(m).expand(len(real), m)),
)
padding.reject("all places", "shape", padded_with(lambda real, m: real.cumsum(dim=1) - 1))
padding.reject(
    "the first m places",
    "has place 0",
    padded_with(lambda real, m: (real.cumsum(dim=1) - 1)[:, :m]),
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
padding.reject(
    "all open", "nothing hides", padded_with(may=lambda real, m: by_sums(real, m)[1] | True)
)
padding.reject("the first text's padding", "that row came", padded_with(may=padding_of_first))
padding.reject("queries hidden", "that row came", padded_with(may=hides_queries))
padding.reject("not itself", "itself or a word before it", padded_with(may=own_hidden))
padding.reject("the first word hidden", "itself or a word before it", padded_with(may=first_hidden))
padding.reject("one place of padding open", "padding", padded_with(may=one_padding_open))
padding.reject("padding on the right", "that row came", padded_with(may=right_padding))
padding.reject(
    "no axis for heads", "shape", padded_with(may=lambda real, m: by_sums(real, m)[1].squeeze(1))
)
padding.reject(
    "for the words so far", "shape", padded_with(may=lambda real, m: by_sums(real, m)[1][..., -m:])
)
padding.reject(
    "a mask of numbers", "boolean", padded_with(may=lambda real, m: by_sums(real, m)[1].float())
)
padding.reject("the mask alone", "2 results", lambda real, m: by_sums(real, m)[1])


def by_clamped_places(real, m):
    """Compare places, and give padding the place 0."""
    place = (real.cumsum(dim=1) - 1).clamp(min=0)
    return place[:, None, None, :] <= place[:, None, -m:, None]


def padding_sees_all(real, m):
    return by_sums(real, m)[1] | ~real[:, None, -m:, None]


padding.accept("padding sees all", padded_with(may=padding_sees_all))
padding.accept(
    "places in bytes", padded_with(lambda real, m: by_sums(real, m)[0].clamp(min=0).to(torch.uint8))
)
padding.reject("clamped places", "padding", padded_with(may=by_clamped_places))


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


def guesses_alone(model, caches, last, guesses):
    out = accepted(model, caches, last, guesses)
    return out[:, :-1]


def corrected_alone(model, caches, last, guesses):
    return accepted(model, caches, last, guesses)[:, -1:]


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


def all_or_nothing(fits):
    return fits.all() * fits.shape[1]


def nothing_after_all(model, caches, last, guesses):
    out = accepted(model, caches, last, guesses)
    return out[:, : guesses.shape[1]]


def guess_kept(model, caches, last, guesses):
    out = accepted(model, caches, last, guesses)
    a = out.shape[1] - 1
    return torch.cat([out[:, :a], guesses[:, a : a + 1]], 1) if a < guesses.shape[1] else out


def from_nothing(model, caches, last, guesses):
    a = accepted(model, model.caches(), last, guesses)
    model(torch.cat([last, a[:, :-1]], 1), caches=caches)
    return a


def least(model, caches, last, guesses):
    past = caches[0].n
    own = model(torch.cat([last, guesses], dim=1), caches=caches).argmin(dim=-1)
    a = int((own[:, :-1] == guesses).long().cumprod(dim=1).sum())
    for cache in caches:
        cache.crop(past + 1 + a)
    return own[:, : a + 1]


def past_counted(model, caches, last, guesses, seen={}):  # noqa: B006 (that is the mistake)
    out = not_cropped(model, caches, last, guesses)
    for cache in caches:
        seen[cache] = seen.get(cache, 0) + out.shape[1]
        cache.crop(min(seen[cache], cache.n))
    return out


def misses_by_argmax(fits):
    return (~fits).long().argmax(dim=1)  # 0 where none misses


def if_likely(model, caches, last, guesses):
    past = caches[0].n
    logits = model(torch.cat([last, guesses], dim=1), caches=caches)
    chance = logits.softmax(dim=-1)[:, :-1].gather(-1, guesses[..., None])[..., 0]
    a = int((chance > 0.2).long().cumprod(dim=1).sum())
    for cache in caches:
        cache.crop(past + 1 + a)
    return torch.cat([guesses[:, :a], logits[:, a : a + 1].argmax(dim=-1)], dim=1)


STAND = "guesses stand"
guesses_.reject("a miss by argmax", "guesses stand", lambda *a: accepted(*a, misses_by_argmax))
guesses_.reject("likely guesses", "guesses stand|one by one", if_likely)
guesses_.reject("not cut", "afterwards each cache holds", not_cropped)
guesses_.reject("one left in", "afterwards each cache holds", cropped_by(1))
guesses_.reject("one too many cut", "afterwards each cache holds", cropped_by(-1))
guesses_.reject("the first cache alone", "cache 1 of 2 holds", first_cache_alone)
guesses_.reject("without the last word", STAND, without_last)
guesses_.reject("a sum for the first miss", STAND, lambda *a: accepted(*a, lambda fits: fits.sum()))
guesses_.reject("no word of its own", STAND, guesses_alone)
guesses_.reject("its own word alone", STAND, corrected_alone)
guesses_.reject("all its own words", STAND, all_own)
guesses_.reject("one by one", "called once, with 4 words.*1 and 1", one_by_one)
guesses_.reject("read again", "called once", reads_again)
guesses_.reject("compared one later", STAND, shifted_by_one)
guesses_.reject("all or nothing", STAND, lambda *a: accepted(*a, all_or_nothing))
guesses_.reject("no word after all stand", STAND, nothing_after_all)
guesses_.reject("the wrong guess is kept", "one by one", guess_kept)
guesses_.reject("new caches", STAND, from_nothing)
guesses_.reject("the smallest logit", f"{STAND}|one by one", least)
guesses_.reject("counts from its first call", "afterwards each cache holds", past_counted)
guesses_.reject("a list", "it is a tensor", lambda *a: accepted(*a).tolist())
guesses_.reject("one axis", "it has the shape", lambda *a: accepted(*a)[0])
guesses_.reject("floats", "whole numbers", lambda *a: accepted(*a).float())
guesses_.reject("guesses for its own", "one by one", lambda *a: accepted(*a) * 0 + a[3][0, 0])

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


def by_einsum_in_groups(q, k, v):
    groups = q.unflatten(1, (k.shape[1], -1))
    s = torch.einsum("bgrid,bgjd->bgrij", groups, k) / q.shape[-1] ** 0.5
    s = s - 1e9 * ~causal_mask(*s.shape[-2:])
    return torch.einsum("bgrij,bgje->bgrie", s.softmax(-1), v).flatten(1, 2)


sharing.accept("repeated", repeated)
sharing.accept("in groups", in_groups)
sharing.accept("folded", folded)
sharing.accept("head by head", by_head)
sharing.accept("PyTorch's flag", by_pytorch)
sharing.accept("einsum", by_einsum_in_groups)


def tiled(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q, k.repeat(1, r, 1, 1), v.repeat(1, r, 1, 1))


def values_tiled(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q, k.repeat_interleave(r, 1), v.repeat(1, r, 1, 1))


def modulo(q, k, v):
    heads = [
        attended(q[:, i], k[:, i % k.shape[1]], v[:, i % k.shape[1]]) for i in range(q.shape[1])
    ]
    return torch.stack(heads, dim=1)


def groups_last(q, k, v):
    """Take the group for the outer axis, which is the other way round."""
    return attended(q.unflatten(1, (-1, k.shape[1])), k[:, None], v[:, None]).flatten(1, 2)


def folded_by_position(q, k, v):
    """Fold the group behind the positions, and merge as if it stood before them."""
    B, h, m, _ = q.shape
    h_kv, n = k.shape[1:3]
    q = q.unflatten(1, (h_kv, -1)).transpose(2, 3).flatten(2, 3)
    may = causal_mask(m, n).repeat_interleave(h // h_kv, 0)
    return attended(q, k, v, may).reshape(B, h, m, -1)


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


def one_by_one_only(q, k, v):
    return by_pytorch(q[:, :, -1:], k, v).expand(*q.shape[:-1], v.shape[-1])


def weights_averaged(q, k, v):
    """Average the weights of a group, so that its heads look alike."""
    r, (m, n) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    s = q @ k.repeat_interleave(r, 1).mT / q.shape[-1] ** 0.5
    A = s.masked_fill(~causal_mask(m, n), -INF).softmax(-1)
    A = A.unflatten(1, (-1, r)).mean(2).repeat_interleave(r, 1)
    return A @ v.repeat_interleave(r, 1)


def queries_summed(q, k, v):
    r = q.shape[1] // k.shape[1]
    return attended(q.unflatten(1, (-1, r)).mean(2), k, v).repeat_interleave(r, 1)


def one_per_group(q, k, v):
    return attended(q[:, :: q.shape[1] // k.shape[1]], k, v)


TURN = "dealt out in turn"
sharing.reject("tiled", TURN, tiled)
sharing.reject("modulo", TURN, modulo)
sharing.reject("the group outside", TURN, groups_last)
sharing.reject("values tiled", "and values in turn", values_tiled)
sharing.reject("folded by position", "outputs differ", folded_by_position)
sharing.reject("a fold under one triangle", "outputs differ", fold_without_its_mask)
sharing.reject("PyTorch's causal flag", "upper left corner", upper_left_flag)
sharing.reject("no mask", "later positions", lambda q, k, v: repeated(q, k, v, may=every(q, k)))
sharing.reject(
    "itself unheard",
    "itself|NaN",
    lambda q, k, v: repeated(q, k, v, may=every(q, k).tril(k.shape[2] - q.shape[2] - 1)),
)
sharing.reject("the first head for all", "read the first head", first_head)
sharing.reject("the mean", "the mean of the heads", mean_head)
sharing.reject("the last position for all", "outputs differ", one_by_one_only)
sharing.reject("weights averaged", "outputs differ", weights_averaged)
sharing.reject("queries averaged", "outputs differ", queries_summed)
sharing.reject("one head a group", "it has the shape", one_per_group)
sharing.reject("not scaled", "not 1/√d_k but 1", lambda q, k, v: repeated(q, k, v, scale=1.0))
sharing.reject(
    "scaled by d_v",
    "1/√d_v",
    lambda q, k, v: repeated(q, k, v, scale=v.shape[-1] ** -0.5),
)
sharing.reject(
    "scaled by all heads",
    "1/√.h·d_k",
    lambda q, k, v: repeated(q, k, v, scale=(q.shape[1] * q.shape[-1]) ** -0.5),
)
sharing.reject("no shared keys", "it runs", lambda q, k, v: attended(q, k, v))
sharing.reject("merged", "it has the shape", lambda q, k, v: merge_heads(repeated(q, k, v)))

# The zoo
decoders = Exercise(decoding.decoder_is_sound)


EXACTLY, LOOSELY = 0.0, 0.03  # how far numbers may be off, measured by the largest


@torch.no_grad()
def layer_of(d_model=6, h=4, h_kv=2, d_k=4, d_v=3, base=100.0, bias=True):
    """Make a layer whose numbers are all drawn, biases too if they are to matter."""
    layer = MultiHeadAttention(d_model, h, h_kv=h_kv, d_k=d_k, d_v=d_v, rotary_base=base)
    for name, parameter in layer.named_parameters():
        if bias or "bias" not in name:
            parameter.normal_(std=0.7)
    return layer


# What is done: "r" reads so many, "c" crops to so many, "o" reorders, "x" clears for so many texts.
READS = [("r", 3), ("r", 1), ("r", 2), ("r", 2)]
CUT, CUT_TO_0 = [("c", 5), ("r", 1), ("r", 3)], [("c", 0), ("r", 2), ("r", 1)]
ORDERS = [("o", [1, 2, 0]), ("r", 2), ("o", [2, 2, 0, 1]), ("r", 1)]
CLEARS, LONG = [("x", 4), ("r", 2)], [("r", 40), ("r", 1)]
ALL = [*READS, *CUT, *CUT_TO_0, *ORDERS, *CLEARS, *LONG]


def look_at_all(out, expected, within):
    return (out - expected).abs().max() <= within * expected.abs().max()


@torch.no_grad()
def by_script(
    make, script=ALL, B=3, two=True, spoil=True, late=True, within=2e-4, look=look_at_all, **layer
):
    """Do what a script says, and compare with whole texts; another decoder is used meanwhile."""
    layer = layer_of(**layer)
    decoder, came = make(layer), []
    text = torch.zeros(B, 0, layer.d_model)
    for what, much in script:
        if what == "r":
            x = torch.randn(len(text), much, layer.d_model)
            text = torch.cat([text, x], dim=1)
            out = decoder.read(x)
            came.append((out, out.clone()))
            if spoil:
                x.fill_(5.0)
            if not look(out, layer(text, is_causal=True)[:, -much:], within):
                return False
            if two and len(came) == 1:
                make(layer).read(torch.randn(B, 2, layer.d_model))
        elif what == "c":
            decoder.crop(much)
            text = text[:, :much]
        elif what == "o":
            decoder.reorder(torch.tensor(much))
            text = text[much]
        else:
            decoder.clear()
            text = torch.zeros(much, 0, layer.d_model)
    return not late or all(torch.equal(out, then) for out, then in came)


def against_labkits(make):
    """Compare with labkit's layer and its cache, by names of arguments."""
    layer = layer_of(h=6, h_kv=3, d_k=2, d_v=5).requires_grad_(False)
    decoder, other, ours = make(layer), make(layer), KVCache()
    memory = torch.empty(4, 40, 6)

    def agree(m):
        x = memory[: len(ours.k) if ours.n else 4, :m].normal_()
        wanted, out = layer(x, cache=ours), decoder.read(x=x)
        before = out.clone()
        memory.fill_(-4.0)
        other.read(x=torch.ones(4, m, 6))
        again = torch.randn(len(x), m, 6)
        same = torch.allclose(decoder.read(x=again), layer(again, cache=ours), rtol=1e-3, atol=1e-3)
        return same and torch.equal(before, out) and torch.allclose(out, wanted, 1e-3, 1e-3)

    for order in ([2, 0, 3, 1], [3, 3, 1, 0]):
        if not (agree(2) and agree(1)):
            return False
        decoder.crop(n=ours.n - 3)
        ours.crop(ours.n - 3)
        if not agree(1):
            return False
        decoder.reorder(index=torch.tensor(order))
        ours.reorder(torch.tensor(order))
        if not (agree(1) and agree(18 if order[0] == 2 else 1)):
            return False
        decoder.clear()
        ours = KVCache()
    decoder.read(torch.ones(4, 2, 6))
    decoder.crop(0)
    return np.bool_(agree(1))


def twice_by_script(make):
    return torch.tensor(by_script(make, h=6, d_k=2) and by_script(make, READS, d_v=6, d_model=5))


decoders.accept("a script", by_script)
decoders.accept("labkit's cache beside it", against_labkits)
decoders.accept("two scripts", twice_by_script)


@torch.no_grad()
def dependence(make, base=100.0):
    """Map which output (row) of a text that is read in blocks depends on which input (column)."""
    layer, x = layer_of(base=base), torch.randn(1, 5, 6)

    def outputs(x):
        decoder = make(layer)
        return torch.cat([decoder.read(block) for block in x.split([2, 1, 2], dim=1)], dim=1)

    before, moved = outputs(x), []
    for j in range(5):
        other = x.clone()
        other[:, j] = torch.randn(6)
        moved.append((outputs(other) - before)[0].abs().amax(dim=-1) > 1e-5)
    return torch.stack(moved, dim=1)


def nothing_leaks(make):
    return not dependence(make).triu(1).any()


def the_first_is_heard(make):
    moved = dependence(make)
    return not moved.triu(1).any() and moved[:, 0].all()


def all_is_heard(make):
    return torch.equal(dependence(make), lower(5, 5, 0))


@torch.no_grad()
def equal_inputs(make):
    """Read the same vector five times: the values are equal, and so is their mixture."""
    x = torch.randn(1, 1, 6).expand(1, 5, 6)
    decoder = make(layer_of(base=None))
    out = torch.cat([decoder.read(block) for block in x.split([2, 1, 2], dim=1)], dim=1)
    return all_is_heard(make) and look_at_all(out, out[:, :1], 2e-4)


@torch.no_grad()
def not_restarted(make):
    """Look for one bug by name."""
    layer, came = layer_of(), []
    x = torch.randn(3, 4, 6)
    for decoder in (make(layer), decoding.Restarts(layer)):
        decoder.read(x[:, :3])
        came.append(decoder.read(x[:, 3:]))
    return by_script(make, base=None) and not look_at_all(*came, 2e-4)


@torch.no_grad()
def what_is_cut_is_not_heard(make):
    """Read two texts that differ at the end, which is cut; what comes then must not differ."""
    layer = layer_of()
    texts = torch.randn(3, 5, 6)[None].repeat(2, 1, 1, 1)
    texts[1, :, -1] = torch.randn(3, 6)
    new, came = torch.randn(3, 2, 6), []
    for text in texts:
        decoder = make(layer)
        decoder.read(text)
        decoder.crop(3)
        came.append(decoder.read(new))
    return torch.equal(*came) and by_script(make, READS)


def with_(**changes):
    return lambda make: by_script(make, **changes)


def first_row(out, expected, within):
    return look_at_all(out[:, :1], expected[:, :1], within)


def last_row(out, expected, within):
    return look_at_all(out[:, -1:], expected[:, -1:], within)


def first_text(out, expected, within):
    return look_at_all(out[:1], expected[:1], within)


def turned_without_cuts(make):
    return by_script(make, [*READS, *ORDERS, *CLEARS, *LONG]) and by_script(make, base=None)


SWAP = [("o", [1, 0, 2]), ("r", 2)]
REPEAT = [("o", [1, 2, 2]), ("r", 2)]
FOURS = [("r", 4), ("r", 4), ("c", 4), ("r", 4), ("r", 4), ("c", 0), ("r", 4)]
FOURS += [("o", [1, 2, 0]), ("r", 4), ("x", 3), ("r", 4)]
WRONG = {
    "accepts all": (MISSED, lambda make: True),
    "refuses all": (FALSE_ALARM, lambda make: False),
    "one block": (MISSED, with_(script=[("r", 5)])),
    "one by one": ("one by one all is right", with_(script=[("r", 1)] * 7)),
    "the last output": ("once there is a past, a position hears those after", with_(look=last_row)),
    "begins with one": ("first block", with_(script=[("r", 1), ("r", 3), ("r", 2)])),
    "nothing leaks": ("block of several positions does not hear", nothing_leaks),
    "the first is heard": ("a block hears too little of it", the_first_is_heard),
    "all is heard": ("its values are lost", all_is_heard),
    "equal inputs, and all is heard": ("a position does not hear itself", equal_inputs),
    "not turned": ("takes the first position of every block", with_(base=None)),
    "not restarted": ("one too large", not_restarted),
    "blocks of one and three": (
        "turned once more",
        with_(script=[("r", 3), ("x", 3), ("r", 1), ("r", 3)]),
    ),
    "one block after single ones": (
        "counts blocks",
        with_(script=[("r", 3), ("x", 3), ("r", 1), ("r", 1), ("r", 3)]),
    ),
    "the first output": ("stand at its first position", with_(look=first_row)),
    "the first text": ("the past of the first", with_(look=first_text)),
    "no crop": ("what was cut off is still", with_(script=[*READS, *ORDERS, *CLEARS, *LONG])),
    "what is cut last": ("of what was cut off, the first", what_is_cut_is_not_heard),
    "crops to 0 alone": (
        "after a crop, the first positions are gone",
        with_(script=[*READS, *CUT_TO_0]),
    ),
    "turned without cuts": ("as far back as if nothing had been cut", turned_without_cuts),
    "as much is read again": (
        "until something is written over it",
        with_(script=[*READS, ("c", 5), ("r", 3)]),
    ),
    "no crop to 0": ("a crop to 0", with_(script=[*READS, *CUT])),
    "no reorder": ("keeps the number of texts", with_(script=[*READS, *CUT, *CUT_TO_0])),
    "texts are repeated": ("written over", with_(script=[*READS, *CUT, *CUT_TO_0, *REPEAT])),
    "two texts swap": ("the inverse", with_(script=[*READS, *CUT, *CUT_TO_0, *SWAP])),
    "one head": ("with several heads of keys", with_(h=1, h_kv=1)),
    "own keys for each head": ("where several heads share", with_(h_kv=4)),
    "one head of keys": ("with several heads of keys, a reorder", with_(h_kv=1)),
    "no clear": ("after clear", with_(script=[*READS, *CUT, *CUT_TO_0, *ORDERS])),
    "multiples of 4": ("a multiple of 4", with_(script=FOURS)),
    "short": ("more than 32", with_(script=ALL[: -len(LONG)])),
    "loose": ("two or three digits", with_(within=LOOSELY)),
    "biases of 0": ("the bias of the values", with_(bias=False)),
    "what came is not looked at again": ("what came out changes", with_(late=False)),
    "x is left alone": ("the caller writes into x", with_(spoil=False)),
    "one decoder": ("of two decoders", with_(two=False)),
    "exact": (FALSE_ALARM, with_(within=EXACTLY)),
    "without a text": ("it runs", lambda make: make().read(torch.ones(1, 1, 6)) is not None),
    "a number": ("True or False", lambda make: 1.0),
}
for mistake, (told, test) in WRONG.items():
    decoders.reject(mistake, told, test)
