"""Answers to lab 6."""

from __future__ import annotations

import string
import unicodedata
from copy import deepcopy

import numpy as np
import torch

from labkit import heads as reference
from labkit.labs.head_hunt import check as head_hunt
from labkit.models.encoder import load_encoder
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
    "over all queries",
    "divides by the 3 queries; 2 queries",
    lambda A, r: on_related(A, r).mean(-1),
)
weight_on.reject("a sum", "that is a sum", lambda A, r: on_related(A, r).sum(-1))
weight_on.reject(
    "over related pairs",
    "divides by the 3 related pairs; 2 queries",
    lambda A, r: on_related(A, r).sum(-1) / r.sum(),
)
weight_on.reject(
    "over all pairs", "divides by the 9 pairs of", lambda A, r: (A * r).mean(dim=(1, 2))
)
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
    "how often the largest weight",
    lambda A, r: (A * r).amax(-1).eq(A.amax(-1)).float()[:, r.any(1)].mean(-1),
)
weight_on.reject(
    "largest related weight",
    "takes the largest weight",
    lambda A, r: (A * r).amax(-1)[:, r.any(1)].mean(-1),
)
weight_on.reject(
    "average related weight",
    "over a query's related keys",
    lambda A, r: (on_related(A, r) / r.sum(1))[:, r.any(1)].mean(-1),
)
weight_on.reject(
    "NaN without a related key",
    "NaN",
    lambda A, r: (on_related(A, r) / r.any(1)).mean(-1),
)


weight_on.reject(
    "over all weight", "divides by the 3", lambda A, r: on_related(A, r).sum(-1) / A.sum(dim=(1, 2))
)
weight_on.reject(
    "over keys",
    "the 2 related keys, as a sum along the queries would; 4 queries",
    lambda A, r: on_related(A, r).sum(-1) / r.any(0).sum(),
)
weight_on.reject(
    "along the queries, over related keys",
    "the 2 related keys, as a sum along the queries would; 4 queries",
    lambda A, r: (A * r).sum(1)[:, r.any(0)].mean(-1),
)
weight_on.reject(
    "over queries that give some",
    "divides by the 3 queries that give some; 4 queries",
    lambda A, r: on_related(A, r).sum(-1) / (on_related(A, r) > 0).sum(-1),
)
weight_on.reject(
    "shares of what a query gives",
    "need not be 1",
    lambda A, r: (on_related(A, r) / A.sum(-1)).nan_to_num()[:, r.any(1)].mean(-1),
)
weight_on.reject(
    "first related key alone",
    "first related key alone",
    lambda A, r: torch.stack(
        [A[:, i, r[i].tolist().index(True)] for i in range(len(r)) if r[i].any()]
    ).mean(0),
)
weight_on.reject("rounded", "is it rounded", lambda A, r: weight_by_loop(A, r).round(decimals=3))


for dtype in (torch.float16, torch.bfloat16):
    weight_on.reject(
        f"in {dtype}",
        r"came \[0\.4[45]\d+, 0\.[45]\d*\], which is close; is it rounded, or in half",
        lambda A, r, dtype=dtype: weight_by_loop(A.to(dtype), r),
    )
weight_on.reject(
    "along the queries", "adds along the queries", lambda A, r: (A * r).sum(1)[:, r.any(1)].mean(-1)
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
relations.reject(
    "rolled", "none before it", lambda t: (torch.eye(len(t)).bool().roll(1, 0), marks_of(t))
)
relations.reject(
    "[CLS] before nothing",
    "the second token has one before it",
    lambda t: (previous_of(t) & (torch.arange(len(t)) > 0), marks_of(t)),
)
relations.reject("delimiters ask", "queries are rows", lambda t: (previous_of(t), marks_of(t).T))
relations.reject("full stops only", "missing", lambda t: (previous_of(t), marks_of(t, ["."])))
relations.reject(
    "[SEP] too", r"too many.*\[SEP\]", lambda t: (previous_of(t), marks_of(t, [*MARKS, "[SEP]"]))
)
relations.reject("words", "too many", lambda t: (previous_of(t), ~marks_of(t)))
relations.reject("earlier ones only", "missing", lambda t: (previous_of(t), marks_of(t).tril()))
relations.reject("numbers", "boolean", lambda t: (previous_of(t).float(), marks_of(t).float()))
relations.reject("keys only", "shape", lambda t: (previous_of(t), marks_of(t)[0]))
relations.reject("exchanged", "delimiters come second", lambda t: (marks_of(t), previous_of(t)))
relations.reject("one relation", "2 results", previous_of)
relations.reject("as lists", "tensor", lambda t: (previous_of(t).tolist(), marks_of(t).tolist()))


def relations_where(is_mark):
    return lambda t: (
        previous_of(t),
        torch.tensor([is_mark(token) for token in t]).expand(len(t), len(t)),
    )


def previous_by_index(tokens):
    previous = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for token in tokens[1:]:
        previous[tokens.index(token), tokens.index(token) - 1] = True
    return previous, marks_of(tokens)


def marks_by_index(tokens):
    marks = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for token in tokens:
        if token in MARKS:
            marks[:, tokens.index(token)] = True
    return previous_of(tokens), marks


for how, answer in {
    "part of the signs": relations_where(lambda token: token in "".join(MARKS)),
    "a sign in it": relations_where(lambda token: any(sign in token for sign in MARKS)),
    "pieces of words": relations_where(lambda token: token.removeprefix("##") in MARKS),
    "wide signs": relations_where(lambda token: unicodedata.normalize("NFKC", token) in MARKS),
    "all punctuation": relations_where(lambda token: token in list(string.punctuation)),
    "no letter": relations_where(lambda token: not any(map(str.isalnum, token))),
}.items():
    relations.reject(how, r"too many, such as query '\[CLS\]' and key", answer)
relations.reject("previous of a word", "'the' occurs more than once", previous_by_index)
relations.reject("first of equal signs", "missing.*'\\.' occurs more than once", marks_by_index)


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


specialists.reject("head first", "layer first", {name: head[::-1] for name, head in NAMED.items()})
specialists.reject(
    "counted from 1",
    "count from 0|0 to",
    {name: (layer + 1, head + 1) for name, (layer, head) in NAMED.items()},
)
specialists.reject(
    "previous and next exchanged",
    "this is the head for next",
    {**NAMED, "previous": NAMED["next"], "next": NAMED["previous"]},
)
specialists.reject(
    "second best, next",
    r"next: the head.*0\.\d+, and one of the others 0\.\d+",
    {**NAMED, "next": (2, 8)},
)
specialists.reject(
    "places divided by 6", "divide its place by 6", {**NAMED, "next": (3, 2), "delimiters": (7, 5)}
)
specialists.reject(
    "one sentence alone", r"0\.\d+, and one of the others 0\.\d+$", {**NAMED, "delimiters": (1, 0)}
)
specialists.reject(
    "numbers of 72", "a pair of layer", {"previous": 2, "next": 20, "delimiters": 47}
)
specialists.reject("one missing", "missing: delimiters", {"previous": (0, 2), "next": (1, 8)})
specialists.reject("a list", "a dictionary", list(NAMED.values()))
specialists.reject("other names", "with the names", {"back": (0, 2), "on": (1, 8), ".": (3, 11)})
specialists.reject("layer 7", "0 to 5", {**NAMED, "next": (7, 8)})
specialists.reject("as text", "a pair", {**NAMED, "next": "(1, 8)"})
specialists.reject("three numbers", "a pair", {**NAMED, "next": (1, 8, 0)})

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
    "shares in float32",
    "is a share",
    lambda c: (
        held_by_loop(c)[0],
        *(part.float().mean(0)[held_by_loop(c)[0]] for part in c.chunk(2)),
    ),
)
held.reject(
    "another head's count",
    "the most that any head has",
    held_changed(lambda head, x, y, a, b, half: (head, x, b.max())),
)
held.reject(
    "all rows",
    "second half.*counts all rows",
    held_changed(lambda head, x, y, a, b, half: (head, x, x + y)),
)
held.reject(
    "all rows, not the first half",
    "first half.*counts all rows",
    held_changed(lambda head, x, y, a, b, half: (head, x + y, y)),
)
held.reject(
    "the first count twice",
    "second half.*on the other half",
    held_changed(lambda head, x, y, *_: (head, x, x)),
)
held.reject(
    "exchanged",
    "first half.*on the other half",
    held_changed(lambda head, x, y, *_: (head, y, x)),
)
held.reject("counts only", "3 results", held_changed(lambda head, x, y, *_: (x, y)))
held.reject(
    "all heads' counts", "is a number", held_changed(lambda head, x, y, a, b, _: (head, a, b))
)
held.reject(
    "every other row",
    "on every other row",
    lambda correct: held_by_loop(torch.cat([correct[::2], correct[1::2]])),
)


def held_of_rows(correct):
    first, second = (part.sum(dim=1) for part in correct.chunk(2))
    return first.argmax(), first.max(), second[first.argmax()]


held.reject("rows for heads", "that is a row", held_of_rows)
held.reject(
    "a row too few, first half",
    "right on the first half.*leaves out a row",
    lambda c: (held_by_loop(c)[0], c[: len(c) // 2 - 1, held_by_loop(c)[0]].sum(), 0),
)
held.reject(
    "a row too few, second half",
    "right on the second half.*leaves out a row",
    lambda c: (*held_by_loop(c)[:2], c[len(c) // 2 + 1 :, held_by_loop(c)[0]].sum()),
)


def held_with_head(choose):
    def answer(correct):
        head = int(choose(correct))
        return head, *(int(part[head]) for part in halves(correct))

    return answer


def longest_run(rows):
    run = most = 0
    for right in rows.tolist():
        run = run + 1 if right else 0
        most = max(most, run)
    return most


def held_with_none(correct):
    first, second = (part.tolist() for part in halves(correct))
    head, most = None, 0
    for i, count in enumerate(first):
        if count > most:
            head, most = i, count
    return head, most, None if head is None else second[head]


def held_squeezed(correct):
    first, second = (part.squeeze().sum(0) for part in correct.chunk(2))
    head = first.argmax()
    return head, first.flatten()[head], second.flatten()[head]


held.reject("no head if none is right", "also where no head is right.*as None", held_with_none)
held.reject(
    "no counts if none is right",
    "first half is a number, also.*as None",
    lambda c: tuple(None if x == 0 and i else x for i, x in enumerate(held_by_loop(c))),
)
held.reject(
    "first head right in row 0",
    "the first that is right in row 0",
    held_with_head(lambda c: c[0].tolist().index(True) if c[0].any() else 0),
)
held.reject(
    "half of the heads",
    "best of the first 6 heads",
    held_with_head(lambda c: c[: len(c) // 2, : len(c) // 2].sum(0).argmax()),
)
held.reject(
    "half of the heads in place of half of the rows",
    "half of the heads over all rows",
    held_with_head(lambda c: c[:, : c.shape[1] // 2].sum(0).argmax()),
)
held.reject(
    "longest run",
    "the longest run",
    held_with_head(lambda c: torch.tensor([longest_run(x) for x in c.chunk(2)[0].T]).argmax()),
)
held.reject(
    "the first half a row longer",
    "right on the first half.*one row of the other half",
    lambda c: (held_by_loop(c)[0], c[: len(c) // 2 + 1, held_by_loop(c)[0]].sum(), 0),
)
held.reject(
    "the second half a row longer",
    "right on the second half.*one row of the other half",
    lambda c: (*held_by_loop(c)[:2], c[len(c) // 2 - 1 :, held_by_loop(c)[0]].sum()),
)
held.reject("a half of one row squeezed", "most often on the first half", held_squeezed)
held.reject(
    "always three rows",
    r"right on the first half.*came \d\Z",
    lambda c: (held_by_loop(c)[0], *(part[:, held_by_loop(c)[0]].sum() for part in (c[:3], c[3:]))),
)

held.accept("one array", lambda correct: np.array(held_by_loop(correct)))


# Without some heads


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


def interleaved(weight, slab):
    width = slab.stop - slab.start
    weight[:, slab.start // width :: weight.shape[1] // width] = 0


silenced.accept("with without", mean_cosine)
silenced.accept("slabs by hand, put back", by_slabs(columns))
silenced.accept("a copy", by_copy)
silenced.accept("hooks", by_hook)


def all_columns_but_one(weight, slab):
    weight[:, slab.start : slab.stop - 1] = 0


silenced.reject("the last column", "the last one still gets", by_slabs(all_columns_but_one))
silenced.reject("not put back", "weights were changed and stayed so", by_slabs(columns, keep=False))
silenced.reject("a hook left", "hook is still in it", lambda h, s: by_hook(h, s, keep=True))
silenced.reject("rows of W_O", "through columns", by_slabs(rows))
silenced.reject(
    "all other heads",
    "all others silent",
    lambda h, s: mean_cosine({(x, y) for x in range(6) for y in range(12)} - set(h), s),
)
silenced.reject("every twelfth column", "side by side", by_slabs(interleaved))
silenced.reject("nothing silenced", "nothing had been silenced", lambda heads, sentences: 1.0)
silenced.reject("one minus", "one minus the cosine", lambda h, s: 1 - mean_cosine(h, s))
silenced.reject(
    "rounded", r": 0\.\d{4}\n.*is it rounded", lambda h, s: round(mean_cosine(h, s).item(), 3)
)
silenced.reject(
    "no sentence twice", "counts a sentence once", lambda h, s: mean_cosine(h, sorted(set(s)))
)
silenced.reject("a sum", "is a sum", lambda h, s: mean_cosine(h, s) * len(s))
silenced.reject("first head only", "only the first", lambda h, s: mean_cosine(h[:1], s))
silenced.reject(
    "head first",
    "layer and head exchanged",
    lambda h, s: mean_cosine([pair[::-1] for pair in h], s),
)
silenced.reject(
    "counted from 1",
    "heads before these silent; count from 0",
    lambda h, s: mean_cosine([(layer, (head - 1) % 12) for layer, head in h], s),
)


def each_sentence(heads, sentences):
    before = vectors(sentences)
    with load_encoder().without(heads):
        return (vectors(sentences) * before).sum(dim=-1)


silenced.reject("each sentence", "is a number", each_sentence)

silenced.reject(
    "counted from 1 the other way",
    "heads after these silent",
    lambda h, s: mean_cosine([(layer, (head + 1) % 12) for layer, head in h], s),
)
silenced.reject(
    "whole layers",
    "all heads of these layers",
    lambda h, s: mean_cosine([(layer, head) for layer, _ in h for head in range(12)], s),
)
silenced.reject(
    "one at a time",
    "one at a time",
    lambda h, s: sum(mean_cosine([head], s) for head in h) / len(h),
)
silenced.reject("first sentence", "one sentence alone", lambda h, s: mean_cosine(h, s[:1]))
silenced.reject("last sentence", "one sentence alone", lambda h, s: mean_cosine(h, s[-1:]))


def compared(compare):
    def answer(heads, sentences):
        before = vectors(sentences)
        with load_encoder().without(heads):
            return compare(before, vectors(sentences))

    return answer


silenced.reject(
    "cosine of averages",
    "cosine of the average vectors",
    compared(lambda a, b: torch.cosine_similarity(a.mean(0), b.mean(0), dim=0)),
)
silenced.reject("all pairs", "every other as well", compared(lambda a, b: (a @ b.T).mean()))
silenced.reject("mean product", "where a cosine adds", compared(lambda a, b: (a * b).mean()))
silenced.reject(
    "distance",
    "that is how far the vectors lie apart",
    compared(lambda a, b: (a - b).norm(dim=1).mean()),
)
silenced.reject(
    "one minus the distance",
    "one minus how far the vectors",
    compared(lambda a, b: 1 - (a - b).norm(dim=1).mean()),
)


def by_layer(edit):
    """Make an answer that changes layers by hand, and puts them back."""

    @torch.no_grad()
    def answer(heads, sentences):
        encoder = load_encoder()
        before, kept = vectors(sentences), deepcopy(encoder.state_dict())
        for layer, head in heads:
            edit(encoder.blocks[layer].attention, slice(32 * head, 32 * head + 32))
        after = vectors(sentences)
        encoder.load_state_dict(kept)
        return (before * after).sum(dim=-1).mean()

    return answer


def values_but_not_their_bias(attention, slab):
    attention.w_v.weight[slab] = 0


def queries(attention, slab):
    attention.w_q.weight[slab] = 0


def values(attention, slab):
    attention.w_v.weight[slab] = 0
    attention.w_v.bias[slab] = 0


def columns_and_bias(attention, slab):
    attention.w_o.weight[:, slab] = 0
    attention.w_o.bias.zero_()


silenced.accept("values and their bias", by_layer(values))
silenced.reject("queries' matrix", "without its queries", by_layer(queries))
silenced.reject("values' matrix", "bias of the values", by_layer(values_but_not_their_bias))
silenced.reject("the output's bias too", "belongs to no head", by_layer(columns_and_bias))


def with_averages(heads, sentences):
    encoder = load_encoder()
    encoded = encoder.encode(sentences)
    with encoder.without(heads, encoder.mean_outputs(encoded)):
        return (encoded.vectors * vectors(sentences)).sum(dim=-1).mean()


silenced.reject("the average in its place", "average in its place", with_averages)


def columns_and_scale(attention, slab):
    attention.w_o.weight[:, slab] = 0
    attention.w_o.weight *= 12 / 11


silenced.reject("the others scaled up", "other heads are scaled up", by_layer(columns_and_scale))
silenced.reject(
    "the first one's layer",
    "first one's layer",
    lambda h, s: mean_cosine([pair for pair in h if pair[0] == h[0][0]], s),
)

silenced.reject("last head only", "only the last", lambda h, s: mean_cosine(h[-1:], s))


silenced.reject(
    "layers and heads from 1",
    "layers and heads counted from 1",
    lambda h, s: mean_cosine([((x - 1) % 6, (y - 1) % 12) for x, y in h], s),
)
silenced.reject(
    "layers from 1",
    "with layers counted from 1",
    lambda h, s: mean_cosine([((x - 1) % 6, y) for x, y in h], s),
)
silenced.reject(
    "product over heads",
    "multiplies what is left",
    lambda h, s: torch.stack([each_sentence([head], s) for head in h]).prod(0).mean(),
)
silenced.reject("median", "one sentence alone", lambda h, s: each_sentence(h, s).median())
silenced.reject(
    "squeezed",
    "it runs.*out of range",
    compared(lambda a, b: (a.squeeze() * b.squeeze()).sum(dim=1).mean()),
)


def with_another_type(heads, sentences):
    result, encoder = mean_cosine(heads, sentences), load_encoder()
    double = next(encoder.parameters()).dtype == torch.float64
    encoder.float() if double else encoder.double()
    return result


silenced.reject("another type stays", "its numbers were torch.float", with_another_type)


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
        "The Truck didn't cross the Bridge because it was too ",
        "Truck",
        "Bridge",
        "heavy.",
        "Weak",
    ),
)

fooling.reject(
    "not fooled",
    "right with either",
    ("The cow didn't eat the grass because it was too", "cow", "grass", "sick", "dry"),
)
fooling.reject(
    "the sentence of the card",
    "a sentence of your own.*came animal, Street",
    ("The animal didn't cross the Street because it was too", "animal", "Street", "tired", "wide"),
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
fooling.reject(
    "it comes first",
    "comes after",
    ("As it was heavy, the truck missed the bridge and", "truck", "bridge", "sank", "shook"),
)
fooling.reject(
    "the last word left on",
    "without its last word",
    (f"{TRUCK} heavy", "truck", "bridge", "heavy", "weak"),
)
fooling.reject("four parts", "five texts", (TRUCK, "truck", "bridge", "heavy"))
fooling.reject("an empty ending", "number 4 of the five", (TRUCK, "truck", "bridge", ".", "weak"))
fooling.reject("two words at the end", "one word", (TRUCK, "truck", "bridge", "very heavy", "weak"))
# ... letters put together of two signs, signs that count as letters
