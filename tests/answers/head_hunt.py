"""Answers to lab 6."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, UserDict
from copy import deepcopy
from types import MappingProxyType

import numpy as np
import torch

from labkit import heads as reference
from labkit.checks import head_hunt
from labkit.encoder import load_encoder
from tests.answers import Exercise

# The average weight on a relation
weight_on = Exercise(head_hunt.weight_on)


def on_related(weights, relation):
    """Give each query's weight on its related keys: (h, n_q)."""
    return (weights * relation).sum(dim=-1)


def weight_by_loop(weights, relation):
    out = []
    for A in weights:
        given = [A[i, relation[i]].sum() for i in range(len(relation)) if relation[i].any()]
        out.append(sum(given) / len(given))
    return torch.stack(out)


weight_on.accept("loop", weight_by_loop)
weight_on.accept("labkit", reference.relation_weight)
weight_on.accept(
    "einsum, float64",
    lambda A, r: torch.einsum("hij,ij->h", A.double(), r.double()) / r.any(dim=1).sum(),
)
weight_on.accept(
    "rows without a related key left out", lambda A, r: on_related(A, r)[:, r.any(1)].mean(-1)
)

weight_on.reject(
    "over all queries", "divides by all queries", lambda A, r: on_related(A, r).mean(-1)
)
weight_on.reject("a sum", "that is a sum", lambda A, r: on_related(A, r).sum(-1))
weight_on.reject(
    "over related pairs",
    "not over queries",
    lambda A, r: on_related(A, r).sum(-1) / r.sum(),
)
weight_on.reject("over all pairs", "came", lambda A, r: (A * r).mean(dim=(1, 2)))
weight_on.reject("transposed", "from key to query", lambda A, r: weight_by_loop(A, r.T))
weight_on.reject(
    "one number for all heads",
    "one number for all",
    lambda A, r: weight_by_loop(A, r).mean().expand(len(A)),
)
weight_on.reject("a single number", "shape", lambda A, r: weight_by_loop(A, r).mean())
weight_on.reject("each query", "shape", on_related)
weight_on.reject(
    "how often it is the first choice",
    "came",
    lambda A, r: (A * r).amax(-1).eq(A.amax(-1)).float()[:, r.any(1)].mean(-1),
)
weight_on.reject("related to nothing", "came", lambda A, r: on_related(A, ~r)[:, r.any(1)].mean(-1))
weight_on.reject("first head only", "shape|came", lambda A, r: weight_by_loop(A[:1], r))
weight_on.reject(
    "NaN without a related key",
    "NaN",
    lambda A, r: (on_related(A, r) / r.any(1)).mean(-1),
)

# What an answer may exploit: sizes that coincide (square weights, one head, one query), a relation
# with one key a query, a related key for every query, weights above zero, contiguous memory
weight_on.accept(
    "numpy", lambda A, r: torch.from_numpy((A * r).numpy().sum(-1)[:, r.any(1).numpy()].mean(1))
)
weight_on.accept(
    "NaN left out", lambda A, r: (on_related(A, r) / r.any(1)).nan_to_num(nan=torch.nan).nanmean(-1)
)
weight_on.reject(
    "weights above zero only",
    "leaves out queries",
    lambda A, r: on_related(A, r).sum(-1) / (on_related(A, r) > 0).sum(-1),
)
weight_on.reject(
    "the first related key",
    "came",
    lambda A, r: A.gather(2, r.int().argmax(1).expand(len(A), -1)[..., None])[:, r.any(1), 0].mean(
        1
    ),
)
weight_on.reject(
    "the largest related weight",
    "takes one related key",
    lambda A, r: (A * r).amax(-1).sum(-1) / r.any(1).sum(),
)
weight_on.reject("one head is squeezed away", "shape", lambda A, r: weight_by_loop(A, r).squeeze())
weight_on.reject("never the first query", "came", lambda A, r: weight_by_loop(A[:, 1:], r[1:]))
weight_on.reject(
    "never the last query", "came|runs|NaN", lambda A, r: weight_by_loop(A[:, :-1], r[:-1])
)
weight_on.reject(
    "a view of weights that lie otherwise in memory",
    "view",
    lambda A, r: (A.view(len(A), -1) * r.reshape(-1)).sum(-1) / r.any(1).sum(),
)
weight_on.reject(
    "the first head's share for all heads",
    "came",
    lambda A, r: weight_by_loop(A, r)[:1].expand(len(A)),
)

# ... rows that add up to 1, an asking query that some head gives weight to, few keys, each shape or
# relation once, no two queries alike, a tolerance
ASKED = {}


def remembered(key):
    """Make an answer that gives for what has the same key what it gave before."""

    def answer(weights, relation):
        known = key(weights, relation)
        if known not in ASKED:
            ASKED[known] = weight_by_loop(weights, relation)
        return ASKED[known]

    return answer


def asked_by_weight(weights, relation):
    given = on_related(weights, relation)
    return given[:, (given > 0).any(0)].mean(-1)


weight_on.reject("asked if any head answers", "came", asked_by_weight)
weight_on.reject(
    "one less the weight elsewhere",
    "need not add up to 1",
    lambda A, r: 1 - on_related(A, ~r)[:, r.any(1)].mean(-1),
)
weight_on.reject(
    "made to add up to 1",
    "came",
    lambda A, r: weight_by_loop((A / A.sum(-1, keepdim=True)).nan_to_num(), r),
)
weight_on.reject(
    "at most 1", "came", lambda A, r: on_related(A, r).clamp(max=1)[:, r.any(1)].mean(-1)
)
weight_on.reject(
    "keys counted in a byte",
    "came",
    lambda A, r: on_related(A, r)[:, r.sum(1, dtype=torch.uint8) > 0].mean(-1),
)
weight_on.reject(
    "keys counted in a byte with a sign",
    "came",
    lambda A, r: on_related(A, r)[:, r.sum(1, dtype=torch.int8) > 0].mean(-1),
)
weight_on.reject(
    "queries that are alike count once",
    "came",
    lambda A, r: torch.stack([x.unique().mean() for x in on_related(A, r)[:, r.any(1)]]),
)
weight_on.reject(
    "one query squeezed away",
    "shape",
    lambda A, r: on_related(A, r)[:, r.any(1)].squeeze().mean(-1),
)
weight_on.reject("remembered by shape", "came", remembered(lambda A, r: (A.shape, r.shape)))
weight_on.reject(
    "remembered by relation", "came", remembered(lambda A, r: (len(A), str(r.tolist())))
)
weight_on.reject("four decimals", "came", lambda A, r: weight_by_loop(A, r).round(decimals=4))
weight_on.reject("half precision", "came", lambda A, r: weight_by_loop(A.half(), r).float())
weight_on.reject(
    "a small number against division by zero",
    "came",
    lambda A, r: on_related(A, r).sum(-1) / (r.any(1).sum() + 1e-4),
)

# Two relations
relations = Exercise(head_hunt.relations)
MARKS = list(".,;:?!")


def previous_of(tokens):
    return torch.ones(len(tokens) - 1).diag(-1).bool()


def marks_of(tokens, marks=MARKS):
    return torch.tensor([token in marks for token in tokens]).expand(len(tokens), len(tokens))


def relations_by_loop(tokens):
    n = len(tokens)
    previous, delimiters = (torch.zeros(n, n, dtype=torch.bool) for _ in range(2))
    for i in range(n):
        for j in range(n):
            previous[i, j] = j + 1 == i
            delimiters[i, j] = tokens[j] in MARKS
    return previous, delimiters


def relations_by_arange(tokens):
    place = torch.arange(len(tokens))
    open_ = torch.zeros(len(tokens), len(tokens))
    open_[:, [j for j, token in enumerate(tokens) if token in set(MARKS)]] = 1
    return [place[:, None] - place == 1, open_ > 0]


relations.accept("loops", relations_by_loop)
relations.accept("arange and columns, a list", relations_by_arange)
relations.accept("diag and expand", lambda t: (previous_of(t), marks_of(t)))
relations.accept("one tensor of both", lambda t: torch.stack([previous_of(t), marks_of(t)]))

relations.reject("next", "token after", lambda t: (previous_of(t).T, marks_of(t)))
relations.reject("itself", "to no other", lambda t: (torch.eye(len(t)).bool(), marks_of(t)))
relations.reject(
    "all before",
    "to no other",
    lambda t: (torch.ones(len(t), len(t)).tril(-1).bool(), marks_of(t)),
)
relations.reject(
    "rolled", "none before it", lambda t: (torch.eye(len(t)).bool().roll(1, 0), marks_of(t))
)
relations.reject("delimiters ask", "queries are rows", lambda t: (previous_of(t), marks_of(t).T))
relations.reject("full stops only", "missing", lambda t: (previous_of(t), marks_of(t, ["."])))
relations.reject("stops and commas", "missing", lambda t: (previous_of(t), marks_of(t, [".", ","])))
relations.reject(
    "[SEP] too", r"too many.*\[SEP\]", lambda t: (previous_of(t), marks_of(t, [*MARKS, "[SEP]"]))
)
relations.reject("words", "too many", lambda t: (previous_of(t), ~marks_of(t)))
relations.reject(
    "words do not ask delimiters",
    "missing",
    lambda t: (previous_of(t), marks_of(t) & marks_of(t).T),
)
relations.reject("earlier ones only", "missing", lambda t: (previous_of(t), marks_of(t).tril()))
relations.reject(
    "not itself", "missing", lambda t: (previous_of(t), marks_of(t) & ~torch.eye(len(t)).bool())
)
relations.reject("numbers", "boolean", lambda t: (previous_of(t).float(), marks_of(t).float()))
relations.reject("keys only", "shape", lambda t: (previous_of(t), marks_of(t)[0]))
relations.reject("exchanged", "expected", lambda t: (marks_of(t), previous_of(t)))
relations.reject("one relation", "2 results", previous_of)
relations.reject(
    "without the marks at the ends", "shape", lambda t: (previous_of(t[1:-1]), marks_of(t[1:-1]))
)
relations.reject("as lists", "tensor", lambda t: (previous_of(t).tolist(), marks_of(t).tolist()))

# What an answer may exploit: each token stands once, no look-alikes of delimiters, [CLS] and [SEP]
# at the ends, never one token
relations.reject(
    "parts of the text of delimiters",
    r"too many.*'\?!'",
    lambda t: (previous_of(t), marks_of(t, ".,;:?! ?! .,")),
)
relations.reject(
    "runs of signs",
    "too many",
    lambda t: (
        previous_of(t),
        torch.tensor([not set(x) - set(MARKS) for x in t]).expand(len(t), -1),
    ),
)
relations.reject(
    "whatever is no word",
    "too many",
    lambda t: (
        previous_of(t),
        torch.tensor([not x.strip("[]").isalnum() for x in t]).expand(len(t), -1),
    ),
)
relations.reject(
    "any sign of one character",
    "too many",
    lambda t: (
        previous_of(t),
        torch.tensor([unicodedata.category(x[0]) == "Po" and len(x) == 1 for x in t]).expand(
            len(t), -1
        ),
    ),
)
relations.reject(
    "ends in a delimiter",
    "too many",
    lambda t: (previous_of(t), torch.tensor([x[-1] in MARKS for x in t]).expand(len(t), -1)),
)
relations.reject(
    "the place where a token stands first",
    "to no other",
    lambda t: (torch.tensor([[t.index(a) == t.index(b) + 1 for b in t] for a in t]), marks_of(t)),
)


def ends_closed(tokens, first=True, last=True):
    open_ = torch.ones(len(tokens), dtype=torch.bool)
    open_[:1], open_[-1:] = not first, not last
    return open_


relations.reject(
    "the first token is no delimiter",
    "missing",
    lambda t: (previous_of(t), marks_of(t) & ends_closed(t, last=False)),
)
relations.reject(
    "the last token is no delimiter",
    "missing",
    lambda t: (previous_of(t), marks_of(t) & ends_closed(t, first=False)),
)
relations.reject(
    "none looks back at [CLS]",
    "to no other",
    lambda t: (previous_of(t) & ends_closed(t, last=False), marks_of(t)),
)
relations.reject(
    "one token too few",
    "shape|runs",
    lambda t: (torch.eye(len(t) - 1).bool() if len(t) == 1 else previous_of(t), marks_of(t)),
)


# ... few tokens, pieces of words, signs that only look like delimiters, each length once, a list
# that nobody looks at afterwards
def marks_by(is_delimiter):
    return lambda tokens: (
        previous_of(tokens),
        torch.tensor([is_delimiter(token) for token in tokens]).expand(len(tokens), -1),
    )


relations.accept("regular expression", marks_by(lambda x: bool(re.fullmatch("[.,;:?!]", x))))
relations.reject("pieces", "too many.*##", marks_by(lambda x: x.removeprefix("##") in MARKS))
relations.reject(
    "signs of full width",
    "too many",
    marks_by(lambda x: unicodedata.normalize("NFKC", x) in MARKS),
)
relations.reject(
    "whatever is left in ASCII",
    "too many",
    marks_by(lambda x: x.encode("ascii", "ignore").decode() in MARKS),
)
relations.reject(
    "one sign several times", "too many", marks_by(lambda x: set(x) <= {x[0]} & set(MARKS))
)
relations.reject("up to 128 tokens", "shape", lambda t: (previous_of(t[:128]), marks_of(t[:128])))


def places_in(dtype):
    def answer(tokens):
        place = torch.arange(len(tokens)).to(dtype)
        return place[:, None] - place == 1, marks_of(tokens)

    return answer


def relations_in_place(tokens):
    found = previous_of(tokens), marks_of(tokens)
    tokens.pop()
    return found


def by_length(tokens):
    return TABLES.setdefault(len(tokens), (previous_of(tokens), marks_of(tokens)))


TABLES = {}
relations.reject("places in a byte", "to no other", places_in(torch.uint8))
relations.reject("tokens taken off the list", "the list tokens was changed", relations_in_place)
relations.reject("remembered by length", "missing|too many", by_length)

# Three heads with a name
specialists = Exercise(head_hunt.specialists)
NAMED = {"previous": (0, 2), "next": (1, 8), "delimiters": (3, 11)}


def hunted():
    tables = head_hunt.measured(load_encoder())
    return {name: divmod(table.argmax().item(), table.shape[1]) for name, table in tables.items()}


def with_numpy_numbers():
    return {name: tuple(torch.tensor(head).numpy()) for name, head in NAMED.items()}


specialists.accept("pairs", NAMED)
specialists.accept("hunted", hunted())
specialists.accept("lists", {name: list(head) for name, head in NAMED.items()})
specialists.accept("numbers of numpy", with_numpy_numbers())
specialists.accept("tensors of two", {name: torch.tensor(head) for name, head in NAMED.items()})
specialists.accept(
    "tensors of one number",
    {name: tuple(map(torch.tensor, head)) for name, head in NAMED.items()},
)

specialists.accept("a mapping that cannot be changed", MappingProxyType(NAMED))
specialists.accept("a mapping of arrays", UserDict({k: np.array(v) for k, v in NAMED.items()}))

specialists.reject("head first", "layer first", {name: head[::-1] for name, head in NAMED.items()})
specialists.reject(
    "counted from 1",
    "count from 0|0 to",
    {name: (layer + 1, head + 1) for name, (layer, head) in NAMED.items()},
)
specialists.reject(
    "previous and next exchanged",
    "another head more",
    {**NAMED, "previous": NAMED["next"], "next": NAMED["previous"]},
)
specialists.reject("second best, previous", "0.5", {**NAMED, "previous": (2, 11)})
specialists.reject("second best, next", "next: the head", {**NAMED, "next": (2, 8)})
specialists.reject("delimiters: [CLS]", "delimiters: the head", {**NAMED, "delimiters": (4, 5)})
specialists.reject(
    "numbers of 72", "a pair of layer", {"previous": 2, "next": 20, "delimiters": 47}
)
specialists.reject("one missing", "with the names", {"previous": (0, 2), "next": (1, 8)})
specialists.reject("a list", "a dictionary", list(NAMED.values()))
specialists.reject("other names", "with the names", {"back": (0, 2), "on": (1, 8), ".": (3, 11)})
specialists.reject("layer 7", "0 to 5", {**NAMED, "next": (7, 8)})
specialists.reject("negative", "0 to 5", {**NAMED, "previous": (-6, 2)})
specialists.reject("as text", "a pair", {**NAMED, "next": "(1, 8)"})
specialists.reject("floats", "a pair", {**NAMED, "next": (1.0, 8.0)})
specialists.reject("three numbers", "a pair", {**NAMED, "next": (1, 8, 0)})
# What an answer may exploit: nothing but the three pairs themselves
specialists.reject("true and false", "a pair", {**NAMED, "previous": (False, 2)})
specialists.reject("places cut at 6", "another head more|0 to", {
    name: divmod(12 * layer + head, 6) for name, (layer, head) in NAMED.items()
})  # fmt: skip
specialists.reject("the same for all", "another head more", dict.fromkeys(NAMED, (0, 2)))

# Choose on some, count on others
held = Exercise(head_hunt.held_out)


def halves(correct):
    first, second = correct.chunk(2)
    return first.sum(dim=0), second.sum(dim=0)


def held_by_loop(correct):
    half, best, most = len(correct) // 2, 0, -1
    for head in range(correct.shape[1]):
        count = sum(bool(row[head]) for row in correct[:half])
        if count > most:
            best, most = head, count
    return best, most, sum(bool(row[best]) for row in correct[half:])


def held_by_argmax(correct):
    first, second = halves(correct)
    best = first.argmax()
    return best, first[best], second[best]


def held_by_max(correct):
    first, second = (part.float() for part in halves(correct))
    most, best = first.max(dim=0)
    return [int(best), float(most), float(second[best])]


held.accept("loop", held_by_loop)
held.accept("argmax, tensors", held_by_argmax)
held.accept("max, a list", held_by_max)


def held_with(choose):
    def answer(correct):
        first, second = halves(correct)
        best = choose(first, second)
        return int(best), int(first[best]), int(second[best])

    return answer


held.reject("best over all", "best over all rows", held_with(lambda a, b: (a + b).argmax()))
held.reject(
    "best on the second half", "best on the second half", held_with(lambda a, b: b.argmax())
)
held.reject(
    "last of equals", "take the first", held_with(lambda a, b: len(a) - 1 - a.flip(0).argmax())
)


def held_changed(change):
    return lambda correct: change(*held_by_loop(correct), *halves(correct), len(correct) // 2)


held.reject(
    "counted from 1", "from 0", held_changed(lambda head, x, y, a, b, half: (head + 1, x, y))
)
held.reject(
    "shares", "is a share", held_changed(lambda head, x, y, a, b, half: (head, x / half, y / half))
)
held.reject(
    "another head's count",
    "on the second half",
    held_changed(lambda head, x, y, a, b, half: (head, x, b.max())),
)
held.reject(
    "all rows",
    "on the second half",
    held_changed(lambda head, x, y, a, b, half: (head, x, x + y)),
)
held.reject(
    "all rows, not the first half",
    "counts all rows",
    held_changed(lambda head, x, y, a, b, half: (head, x + y, y)),
)
held.reject(
    "the first count twice", "second half", held_changed(lambda head, x, y, *_: (head, x, x))
)
held.reject("exchanged", "first half", held_changed(lambda head, x, y, *_: (head, y, x)))
held.reject(
    "mistakes", "came", held_changed(lambda head, x, y, a, b, half: (head, half - x, half - y))
)
held.reject("counts only", "3 results", held_changed(lambda head, x, y, *_: (x, y)))
held.reject(
    "all heads' counts", "is a number", held_changed(lambda head, x, y, a, b, _: (head, a, b))
)
held.reject(
    "true or false", "is a number", held_changed(lambda head, x, y, *_: (head, x > 0, y > 0))
)
held.reject(
    "every other row",
    "came",
    lambda correct: held_by_loop(torch.cat([correct[::2], correct[1::2]])),
)

# What an answer may exploit: as many rows as heads, few ties, somebody right, counts below 256,
# shares that a float holds
held.accept("one array", lambda correct: np.array(held_by_loop(correct)))
held.accept("one tensor", lambda correct: torch.tensor(held_by_loop(correct)))
held.reject(
    "of equals the better on the second half",
    "take the first",
    held_with(lambda a, b: (a * (len(b) * 1000) + b).argmax()),
)
held.reject(
    "sorted, in any order of equals",
    "take the first",
    held_with(lambda a, b: a.argsort(descending=True)[0]),
)
held.reject(
    "the last head if none is right",
    "take the first",
    held_with(lambda a, b: a.argmax() if a.any() else len(a) - 1),
)
held.reject(
    "halves by the number of heads",
    "came",
    lambda correct: held_with(lambda a, b: a.argmax())(correct[: correct.shape[1] // 2 * 2]),
)
held.reject(
    "counts in a byte", "came", held_changed(lambda head, x, y, *_: (head, x % 256, y % 256))
)
held.reject(
    "counts made of shares, cut off",
    "came 26",
    held_changed(lambda head, x, y, a, b, half: (head, int(x / half * half), int(y / half * half))),
)
held.reject(
    "whether the next row is right",
    "came",
    lambda correct: (
        *held_by_loop(correct)[:2],
        correct[len(correct) // 2, held_by_loop(correct)[0]] * 1,
    ),
)
held.reject(
    "until the first miss",
    "came",
    lambda correct: (
        *held_by_loop(correct)[:2],
        int(correct[len(correct) // 2 :, held_by_loop(correct)[0]].int().cumprod(0).sum()),
    ),
)

# ... few heads, counts that lie far apart, more than one row in a half
held.reject(
    "shares of two decimals", "came", held_with(lambda a, b: (a / 400).round(decimals=2).argmax())
)
held.reject(
    "shares in half precision", "came", held_with(lambda a, b: (a / 400).bfloat16().argmax())
)
held.reject(
    "head 0 of one row",
    "came",
    lambda correct: held_with(lambda a, b: a.argmax() if len(correct) > 2 else 0)(correct),
)
held.reject("heads in a byte", "came", held_changed(lambda head, x, y, *_: (head % 256, x, y)))
held.reject(
    "a penalty for later heads",
    "came",
    held_with(lambda a, b: (a - torch.arange(len(a)) / 100).argmax()),
)


# Without some heads
def first_met(correct):
    half = len(correct) // 2
    hits = Counter(correct[:half].nonzero()[:, 1].tolist())
    head = hits.most_common(1)[0][0] if hits else 0
    return head, int(correct[:half, head].sum()), int(correct[half:, head].sum())


held.reject("of equals the one met first", "of several equals take the first", first_met)


silenced = Exercise(head_hunt.cosine_without)


def vectors(sentences):
    return load_encoder().encode(sentences).vectors


def mean_cosine(heads, sentences):
    before = vectors(sentences)
    with load_encoder().without(heads):
        return (vectors(sentences) * before).sum(dim=-1).mean()


def slabs(encoder, heads, silence):
    for layer, head in heads:
        attention = encoder.blocks[layer].attention
        silence(attention.w_o.weight, slice(head * attention.d_v, (head + 1) * attention.d_v))


def columns(weight, slab):
    weight[:, slab] = 0


def by_slabs(silence, keep=True):
    """Make an answer that changes W_O by hand, and puts it back or not."""

    @torch.no_grad()
    def answer(heads, sentences):
        encoder = load_encoder()
        before, kept = (
            vectors(sentences),
            [block.attention.w_o.weight.clone() for block in encoder.blocks],
        )
        slabs(encoder, heads, silence)
        after = vectors(sentences)
        if keep:
            for block, weight in zip(encoder.blocks, kept, strict=True):
                block.attention.w_o.weight.copy_(weight)
        return torch.cosine_similarity(before, after).mean().item()

    return answer


@torch.no_grad()
def by_copy(heads, sentences):
    other = deepcopy(load_encoder())
    slabs(other, heads, columns)
    after = other.encode(list(sentences)).vectors
    return sum(float(a @ b) for a, b in zip(vectors(sentences), after, strict=True)) / len(after)


def by_hook(heads, sentences, keep=False):
    encoder, before, hooks = load_encoder(), vectors(sentences), []
    for layer, head in heads:
        attention = encoder.blocks[layer].attention

        def silence(module, given, head=head, width=attention.d_v):
            joined = given[0].clone()
            joined[..., head * width : (head + 1) * width] = 0
            return (joined,)

        hooks.append(attention.w_o.register_forward_pre_hook(silence))
    try:
        return (vectors(sentences) * before).sum(dim=-1).mean().double()
    finally:
        for hook in hooks[keep:]:
            hook.remove()


def rows(weight, slab):
    weight[slab] = 0


def others(weight, slab):
    kept = weight[:, slab].clone()
    weight.zero_()
    weight[:, slab] = kept


def halved(weight, slab):
    weight[:, slab] *= 0.5


def interleaved(weight, slab):
    width = slab.stop - slab.start
    weight[:, slab.start // width :: weight.shape[1] // width] = 0


silenced.accept("with without", mean_cosine)
silenced.accept("slabs by hand, put back", by_slabs(columns))
silenced.accept("a copy", by_copy)
silenced.accept("hooks", by_hook)


def after_all(change):
    """Make an answer that leaves something in the encoder."""

    def answer(heads, sentences):
        found = mean_cosine(heads, sentences)
        change(load_encoder())
        return found

    return answer


def inert_hook(encoder):
    encoder.blocks[2].attention.register_forward_hook(lambda *_: None)


def coarse(encoder):
    encoder.half().double()


def other_heads(encoder):
    encoder.blocks[4].attention.h = 5


def a_layer_less(encoder):
    del encoder.blocks[5]


def another_forward(encoder):
    block = encoder.blocks[5]
    block.forward = lambda x, mask: (x, type(block).forward(block, x, mask)[1])


silenced.accept("in double precision from here on", after_all(lambda encoder: encoder.double()))

silenced.reject("not put back", "stayed so", by_slabs(columns, keep=False))
silenced.reject("a hook left", "hook is still in it", lambda h, s: by_hook(h, s, keep=True))
silenced.reject("rows of W_O", "expected", by_slabs(rows))
silenced.reject("all other heads of the layer, one by one", "expected", by_slabs(others))
silenced.reject(
    "all other heads",
    "all others silent",
    lambda h, s: mean_cosine({(x, y) for x in range(6) for y in range(12)} - set(h), s),
)
silenced.reject("halved", "expected", by_slabs(halved))
silenced.reject(
    "the next head",
    "next heads silent; count from 0",
    lambda h, s: mean_cosine([(layer, (head + 1) % 12) for layer, head in h], s),
)
silenced.reject("every twelfth column", "expected", by_slabs(interleaved))
silenced.reject("nothing silenced", "nothing had been silenced", lambda heads, sentences: 1.0)
silenced.reject(
    "0 without a head to silence",
    "without none, it is 1",
    lambda h, s: mean_cosine(h, s) if h else 0.0,
)
silenced.reject("one minus", "one minus", lambda h, s: 1 - mean_cosine(h, s))
silenced.reject("a sum", "is a sum", lambda h, s: mean_cosine(h, s) * len(s))
silenced.reject("first sentence", "first sentence alone", lambda h, s: mean_cosine(h, s[:1]))
silenced.reject("last sentence", "last sentence alone", lambda h, s: mean_cosine(h, s[-1:]))
silenced.reject("first head only", "only the first", lambda h, s: mean_cosine(h[:1], s))
silenced.reject(
    "head first", "it runs|expected", lambda h, s: mean_cosine([pair[::-1] for pair in h], s)
)
silenced.reject(
    "counted from 1",
    "heads before these silent; count from 0",
    lambda h, s: mean_cosine([(layer, (head - 1) % 12) for layer, head in h], s),
)
silenced.reject("layer 0 always", "expected", lambda h, s: mean_cosine([(0, j) for _, j in h], s))


def each_sentence(heads, sentences):
    before = vectors(sentences)
    with load_encoder().without(heads):
        return (vectors(sentences) * before).sum(dim=-1)


def distance(heads, sentences):
    before = vectors(sentences)
    with load_encoder().without(heads):
        return (vectors(sentences) - before).norm(dim=-1).mean()


def between_sentences(heads, sentences):
    before = vectors(sentences)
    with load_encoder().without(heads):
        return (vectors(sentences) @ before.T).mean()


silenced.reject("each sentence", "is a number", each_sentence)
silenced.reject("distance", "expected", distance)
silenced.reject("every sentence with every other", "expected", between_sentences)

# What an answer may exploit: a head a layer, each pair once, all pairs in order, never none or all;
# two sentences, none twice; an encoder that nobody looks at afterwards
silenced.reject(
    "one head of a layer", "expected", lambda h, s: mean_cosine(list(dict(h).items()), s)
)
silenced.reject("last head only", "only the last", lambda h, s: mean_cosine(h[-1:], s))
silenced.reject(
    "a pair twice is heard again",
    "expected",
    lambda h, s: mean_cosine([pair for pair in h if h.count(pair) == 1], s),
)
silenced.reject(
    "the last layer never", "expected", lambda h, s: mean_cosine([x for x in h if x[0] < 5], s)
)
silenced.reject(
    "one after the other",
    "expected",
    lambda h, s: sum(mean_cosine([x], s) for x in h) / len(h) if h else 1,
)
silenced.reject("the middle one", "the middle one", lambda h, s: each_sentence(h, s).median())
silenced.reject("each sentence once", "expected", lambda h, s: mean_cosine(h, sorted(set(s))))
silenced.reject(
    "the sentences' mean",
    "expected",
    lambda h, s: torch.cosine_similarity(*means_of(h, s), dim=0),
)
silenced.reject("two decimals", "expected", lambda h, s: round(float(mean_cosine(h, s)), 2))


def means_of(heads, sentences):
    before = vectors(sentences).mean(dim=0)
    with load_encoder().without(heads):
        return before, vectors(sentences).mean(dim=0)


def with_zero(part):
    """Make an answer that makes something else zero in the layers of the silent heads."""

    @torch.no_grad()
    def answer(heads, sentences):
        other = deepcopy(load_encoder())
        for layer, head in heads:
            part(other.blocks[layer].attention, head)
        return (other.encode(sentences).vectors * vectors(sentences)).sum(dim=-1).mean()

    return answer


def values(attention, head, *, bias=True):
    attention.w_qkv.weight.unflatten(0, (3, 12, -1))[2, head] = 0
    if bias:
        attention.w_qkv.bias.unflatten(0, (3, 12, -1))[2, head] = 0


def bias_of_output(attention, head):
    columns(attention.w_o.weight, slice(32 * head, 32 * head + 32))
    attention.w_o.bias.zero_()


def scores(attention, head):
    attention.w_qkv.weight.unflatten(0, (3, 12, -1))[:2, head] = 0


silenced.accept("four decimals", lambda h, s: round(float(mean_cosine(h, s)), 4))
silenced.accept("no values", with_zero(values))
silenced.reject(
    "the values' bias stays", "expected", with_zero(lambda a, head: values(a, head, bias=False))
)
silenced.reject("the output's bias too", "expected", with_zero(bias_of_output))
silenced.reject("even weights", "expected", with_zero(scores))


@torch.no_grad()
def put_back_in_order(heads, sentences):
    encoder, before, kept = load_encoder(), vectors(sentences), []
    for layer, head in heads:
        weight = encoder.blocks[layer].attention.w_o.weight
        kept.append((weight, weight.clone()))
        columns(weight, slice(32 * head, 32 * head + 32))
    after = vectors(sentences)
    for weight, value in kept:
        weight.copy_(value)
    return (before * after).sum(dim=-1).mean()


def silent_for_good(heads, sentences):
    """Leave the encoder without its heads by an error on the way."""
    slabs(load_encoder().requires_grad_(False), [(5, 3)], columns)
    raise KeyError(heads)


silenced.reject("put back in the order of taking", "stayed so", put_back_in_order)
silenced.reject("an error on the way", "KeyError", silent_for_good)
silenced.reject("a hook that does nothing", "hook is still in it", after_all(inert_hook))
silenced.reject(
    "no gradients from here on", "requires_grad", after_all(lambda e: e.requires_grad_(False))
)
silenced.reject("half precision on the way", "stayed so", after_all(coarse))
silenced.reject("fewer heads", "other vectors than before", after_all(other_heads))
silenced.reject("a layer less", "other vectors than before", after_all(a_layer_less))
silenced.reject("another forward", "other vectors than before", after_all(another_forward))
silenced.reject(
    "another W_O",
    "other vectors than before",
    after_all(lambda e: setattr(e.blocks[1].attention, "w_o", torch.nn.Linear(384, 96))),
)
silenced.reject(
    "taken apart",
    "other vectors than before",
    after_all(lambda encoder: delattr(encoder, "blocks")),
)


# ... each list of heads once, few sentences, lists that nobody looks at afterwards
def remembered_vectors(heads, sentences):
    """Keep what vectors were, by the first sentence and how many there are."""
    before = KEPT.setdefault((len(sentences), sentences[0]), vectors(sentences))
    with load_encoder().without(heads):
        return (vectors(sentences) * before).sum(dim=-1).mean()


def in_order(heads, sentences):
    heads.sort()
    return mean_cosine(heads, sentences)


def gradients(encoder):
    for parameter in encoder.parameters():
        parameter.grad = torch.zeros_like(parameter)


KEPT = {}
silenced.reject(
    "remembered by heads",
    "expected",
    lambda h, s: KEPT.setdefault(tuple(h), mean_cosine(h, s)),
)
silenced.reject("remembered by the first sentence", "expected", remembered_vectors)
silenced.reject("eight sentences", "expected", lambda h, s: mean_cosine(h, s[:8]))
silenced.reject("heads sorted in place", "the list heads was changed", in_order)
silenced.reject("gradients left", "gradients are still in it", after_all(gradients))
silenced.reject("half precision from here on", "no longer in", after_all(lambda e: e.half()))

# A sentence that fools a head
fooling = Exercise(head_hunt.fooling)
TRUCK = "The truck didn't cross the bridge because it was too"

fooling.accept("truck", (TRUCK, "truck", "bridge", "heavy", "weak"))
fooling.accept(
    "horse, a list",
    [TRUCK.replace("truck", "horse"), "horse", "bridge", "heavy", "weak"],
)
fooling.accept(
    "the second noun both times",
    ("The fish was left by the cat because it was too", "fish", "cat", "salty", "full"),
)
fooling.accept(
    "wrong both times",
    ("The shelf couldn't take the book because it was too", "book", "shelf", "tall", "low"),
)
fooling.accept(
    "capital letters, full stops",
    (
        "The Animal didn't cross the Street because it was too ",
        "Animal",
        "Street",
        "tired.",
        "Wide",
    ),
)

fooling.reject(
    "not fooled",
    "right with either",
    ("The cow didn't eat the grass because it was too", "cow", "grass", "sick", "dry"),
)
fooling.reject(
    "not fooled, in the other order",
    "right with either",
    ("The field couldn't take the plane because it was too", "plane", "field", "fast", "soft"),
)
fooling.reject(
    "a hair's breadth",
    "differ by",
    ("The cat didn't eat the fish because it was too", "cat", "fish", "full", "salty"),
)
fooling.reject("the same ending", "two different last", (TRUCK, "truck", "bridge", "weak", "weak"))
fooling.reject("the same noun", "two different nouns", (TRUCK, "truck", "truck", "heavy", "weak"))
fooling.reject(
    "no it", "the word 'it'", (TRUCK.replace(" it ", " that "), "truck", "bridge", "heavy", "weak")
)
fooling.reject("it twice", "once", (f"It rained. {TRUCK}", "truck", "bridge", "heavy", "weak"))
fooling.reject("a noun missing", "'lorry'", (TRUCK, "lorry", "bridge", "heavy", "weak"))
fooling.reject(
    "a noun in pieces",
    "one token",
    (TRUCK.replace("truck", "hippogriff"), "hippogriff", "bridge", "heavy", "weak"),
)
# What an answer may exploit: letters in lower case and without accents, no signs at the end, nouns
# that are looked for as text
fooling.accept(
    "an accent and white space",
    ("The  truck didn't cross\nthe café because it was too", "truck ", "Café", "heavy", "weak"),
)
fooling.accept(
    "clear with one of the last words",
    ("The cat didn't pass the horse because it was too", "cat", "horse", "small", "heavy"),
)
fooling.accept("an array", np.array([TRUCK, "truck", "bridge", "worn-out", "weak"]))
fooling.reject(
    "a noun within a word",
    "as one token, once",
    (TRUCK.replace("bridge", "drawbridge"), "truck", "bridge", "heavy", "weak"),
)
fooling.reject(
    "a sign for a noun", "as one token, once", (TRUCK + ",", ",", "bridge", "heavy", "weak")
)
fooling.reject(
    "an exclamation mark", "one word and nothing else", (TRUCK, "truck", "bridge", "heavy!", "weak")
)
fooling.reject(
    "the same ending in capitals", "two different last", (TRUCK, "truck", "bridge", "WEAK", "weak")
)
fooling.reject("no words", "can read", (TRUCK, "\u200b", "bridge", "heavy", "weak"))
fooling.reject("too long", "can read", ("so " * 600 + TRUCK, "truck", "bridge", "heavy", "weak"))
fooling.reject(
    "its in place of it",
    "the word 'it'",
    (TRUCK.replace(" it was", " its load was"), "truck", "bridge", "heavy", "weak"),
)
fooling.reject(
    "a dictionary", "five texts", dict(zip("abcde", (TRUCK, "a", "b", "c", "d"), strict=True))
)
fooling.reject(
    "a noun twice",
    "once",
    (f"The truck met a truck. {TRUCK}", "truck", "bridge", "heavy", "weak"),
)
fooling.reject(
    "it comes first",
    "comes after",
    ("As it was heavy, the truck missed the bridge and", "truck", "bridge", "sank", "shook"),
)
fooling.reject("the sentence alone", "five texts", f"{TRUCK} heavy.")
fooling.reject(
    "the last word left on",
    "without its last word",
    (f"{TRUCK} heavy", "truck", "bridge", "heavy", "weak"),
)
fooling.reject("four parts", "five texts", (TRUCK, "truck", "bridge", "heavy"))
fooling.reject("an empty ending", "five texts", (TRUCK, "truck", "bridge", "", "weak"))
fooling.reject("two words at the end", "one word", (TRUCK, "truck", "bridge", "very heavy", "weak"))
fooling.reject(
    "a noun at the end", "as one token, once", (TRUCK, "truck", "bridge", "truck", "weak")
)
fooling.reject("numbers", "five texts", (TRUCK, "truck", "bridge", 1, 2))
# ... letters put together of two signs, signs that count as letters
fooling.accept(
    "letters of two signs",
    (TRUCK, "truck", "bridge", "heavy", unicodedata.normalize("NFD", "naïve")),
)
fooling.reject(
    "two words in one",
    "one word and nothing else",
    (TRUCK, "truck", "bridge", "very_heavy", "weak"),
)
fooling.reject(
    "the same ending with an accent",
    "two different last",
    (TRUCK, "truck", "bridge", "weak", "wéak"),
)
