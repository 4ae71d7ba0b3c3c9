"""Answers to lab 7: tests, some that tell and some that do not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from labkit import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit import scaled_dot_product_attention as reference
from labkit.labs.bug_zoo import check as bug_zoo
from tests.answers import Exercise

FALSE_ALARM, MISSED = "Sound, and refused", "got away"
KINDS = ("usual", "high", "low")  # of scores: about one, hundreds above zero, hundreds below


def close(a, b, atol=1e-5):
    return torch.allclose(a, b, atol=atol, rtol=0)


def pair(kind, *shapes):
    """Draw queries and keys that give scores of a kind."""
    q, k = (torch.randn(shape) for shape in shapes)
    return (q, k) if kind == "usual" else (10 * q.abs(), 10 * k.abs() * (-1) ** (kind == "low"))


def reuse(implementation):
    """Hand over the same tensors in all calls with the same shapes, holding other numbers."""
    kept = {}

    def held(place, x):
        if not isinstance(x, torch.Tensor):
            return x
        known = place, x.shape, x.dtype, x.stride()
        if known not in kept:
            kept[known] = x.mT.clone().mT if x.ndim > 1 and not x.is_contiguous() else x.clone()
        return kept[known].copy_(x)

    def call(*given, **named):
        given = [held(place, x) for place, x in enumerate(given)]
        return implementation(*given, **{name: held(name, x) for name, x in named.items()})

    return call


# Weights
weights = Exercise(bug_zoo.weights_are_sound)
SIZES = ((2, 3, 5, 7), (3, 6, 2, 5), (1, 1, 4, 3), (2, 4, 1, 6), (2, 3, 40, 5))  # h, n_q, n_k, d_k


MORE_SIZES = (*SIZES, (2, 4, 4, 3), (2, 3, 70, 5))


def qk(n_q=3, n_k=5):
    return torch.randn(2, n_q, 7), torch.randn(2, n_k, 7)


def softmaxed(q, k, scale=None):
    return (q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(dim=-1)


def weights_by_formula(weights, sizes=SIZES, kinds=KINDS):
    for h, n_q, n_k, d in sizes * 5:
        for kind in kinds:
            q, k = pair(kind, (h, n_q, d), (h, n_k, d))
            if not close(weights(q, k), softmaxed(q, k), 1e-3):
                return False
    return True


def weights_by_hand(weights):
    # Scores ln 9 and 0 with d_k = 16 give 3/4 and 1/4; with another thousand for all, the same.
    for more in (0.0, 900.0, -900.0):
        for n_q in (2, 3):
            q = torch.zeros(3, n_q, 16)
            q[..., :2] = torch.arange(1.0, n_q + 1)[:, None]
            k = torch.zeros(3, 2, 16)
            k[:, 0, 0] = 4 * torch.tensor(3.0).log() * torch.arange(1, 4)
            k[..., 1] = 4 * more / n_q
            odds = 3.0 ** (torch.arange(1, 4)[:, None] * torch.arange(1, n_q + 1))  # of the first
            expected = torch.stack([odds / (odds + 1), 1 / (odds + 1)], dim=-1)
            many = torch.cat(
                [k[:, 1:].expand(-1, 39, -1), k[:, :1]], dim=1
            )  # 3/42, and 39 times 1/42
            of_many = (1 / (odds + 39))[..., None].expand(-1, -1, 39)
            if not (
                close(weights(q, k), expected, 2e-3)
                and close(weights(q, k[:, 1:]), torch.ones(3, n_q, 1))
                and close(weights(q, many)[..., :-1], of_many, 2e-3)
            ):
                return False
    return True


BEYOND = torch.arange(8) == 7


def weights_by_properties(weights):
    q, k = qk()
    p = weights(q, k)
    alone = torch.stack([weights(q[i : i + 1, :1], k[i : i + 1])[0] for i in range(2)])
    twice = weights(q.repeat(1, 1, 4) / 2, k.repeat(1, 1, 4))  # the same scaled scores
    # One more feature adds a number to all scores of a query, hundreds, and another for each.
    far = weights(
        F.pad(q, (0, 1)) + 30 * torch.randn(2, 3, 1) * BEYOND, F.pad(k, (0, 1), value=40.0)
    )
    pairs = softmaxed(q, k)[..., 0] / softmaxed(q, k)[..., 1]
    crowd = weights(3 * q, torch.cat([torch.randn(2, 40, 7), k], dim=1))
    return torch.tensor(
        close(crowd.sum(-1), torch.ones(2, 3))
        and close(weights(q, k[:, 1:2]), torch.ones(2, 3, 1))
        and close(p.sum(-1), torch.ones(2, 3))
        and close(alone, p[:, :1])
        and close(twice, p)
        and close(p[..., 0] / p[..., 1], pairs, 1e-3)
        and close(far, softmaxed(q, k, 8**-0.5), 2e-3)
    )


def weights_in_numpy(weights):
    draw = np.random.default_rng()
    good = []
    for h, n_q, n_k, d in MORE_SIZES * 2:
        for size, sign in ((1, 1), (15, 1), (12, -1)):
            q, k = size * draw.normal(size=(h, n_q, d)), size * draw.normal(size=(h, n_k, d))
            if sign < 0:  # all scores are far below zero
                q, k = -abs(q), abs(k)
            s = np.einsum("hid,hjd->hij", q, k) / np.sqrt(d)
            e = np.exp(s - s.max(axis=-1, keepdims=True))
            got = weights(k=torch.from_numpy(k).float(), q=torch.from_numpy(q).float()).numpy()
            good.append(np.allclose(got, e / e.sum(axis=-1, keepdims=True), atol=2e-3))
    return np.all(good)


def sums_to_one(weights):
    return close(weights(*qk()).sum(-1), torch.ones(2, 3))


def weights_of_one_tensor(weights):
    x = torch.randn(2, 5, 7)
    return close(weights(x, x), softmaxed(x, x), 1e-3)


weights.accept(
    "the formula",
    lambda w: weights_of_one_tensor(w) and weights_by_formula(reuse(w), MORE_SIZES),
)
weights.accept(
    "numpy, by the names of the arguments",
    lambda w: weights_of_one_tensor(w) and weights_in_numpy(reuse(w)),
)
weights.reject(
    "always two tensors",
    f"found 15 .*{MISSED}.*if q and k are one tensor",
    lambda w: weights_by_formula(reuse(w), MORE_SIZES),
)

weights.reject("a few sizes", f"found 12 .*{MISSED}.*as many queries as keys", weights_by_formula)
weights.reject("by hand", f"{MISSED}.*d_k of an earlier call.*the same tensors", weights_by_hand)
weights.reject("properties", f"{MISSED}.*keys beyond the 64th", weights_by_properties)
weights.reject(
    "scores up to twelve",
    f"{MISSED}.*above a hundred.*some percent",
    lambda w: weights_by_formula(w, MORE_SIZES, kinds=("usual",)),
)

weights.reject("accepts all", f"{MISSED}.*another query", lambda weights: True)
weights.reject("refuses all", f"{FALSE_ALARM}.*ever return True", lambda weights: False)
weights.reject("True for a bug", "meaning reversed", lambda w: not weights_by_formula(w))
weights.reject(
    "the scale of the model",
    f"{FALSE_ALARM}.*it accepted 1, such as: with several heads, .*that what it trusts",
    lambda weights: close(weights(*(x := qk())), softmaxed(*x, scale=14**-0.5)),
)
weights.reject("without a head", "it runs", lambda weights: close(weights(*qk()[0]), None))
weights.reject("a truth for each weight", "True or False", lambda weights: weights(*qk()) > 0)

weights.reject("rows sum to one", f"{MISSED}.*further from even", sums_to_one)
weights.reject(
    "one head", f"{MISSED}.*another head", lambda w: weights_by_formula(w, ((1, 3, 5, 7),))
)
weights.reject(
    "one head, and sums of two",
    f"{MISSED}.*several heads, its weights are closer",
    lambda weights: weights_by_formula(weights, ((1, 3, 5, 7),)) and sums_to_one(weights),
)
weights.reject(
    "width four",
    f"{MISSED}.*right for d_k = 4",
    lambda w: weights_by_formula(w, ((2, 3, 5, 4), (3, 6, 2, 4))),
)
weights.reject(
    "small scores",
    f"{MISSED}.*large scores",
    lambda w: weights_by_formula(w, kinds=("usual",)),
)
weights.reject(
    "several keys", f"{MISSED}.*with one key", lambda w: weights_by_formula(w, SIZES[:3])
)
weights.reject(
    "few keys", f"{MISSED}.*more than 16 keys", lambda w: weights_by_formula(w, SIZES[:4])
)
weights.reject(
    "large scores for one query alone",
    f"{MISSED}.*far below another's",
    lambda w: weights_by_formula(w, kinds=("usual",)) and weights_by_formula(w, ((1, 1, 5, 7),)),
)
weights.reject(
    "exactly one's own rounding",
    FALSE_ALARM,
    lambda w: torch.equal(w(*(x := qk(n_q=30, n_k=40))), softmaxed(*x)),
)

# Masks
hidden = Exercise(bug_zoo.hidden_is_hidden)
BOTH = ((torch.float32, 1e-5), (torch.float16, 2e-2))
SQUARE, LONG, WIDE, ONE = (5, 5), (3, 7), (6, 4), (1, 6)


def qkv(n_q=4, n_k=5):
    return tuple(torch.randn(n, 3) for n in (n_q, n_k, n_k))


def chance(n_q, n_k):
    may = torch.rand(n_q, n_k) < 0.5
    may[range(n_q), torch.randint(n_k, (n_q,))] = True
    return may


def far_apart(may, open_score=-200.0, hidden_score=200.0):
    """Make queries and keys whose open products are one number, and the hidden ones another."""
    low, high = torch.tensor(open_score), torch.tensor(hidden_score)
    return 200 * torch.eye(len(may)), torch.where(may.T, low, high)


def far_and_causal(may):
    """Make the first key open for all, as in a causal mask with holes."""
    may.copy_(may.tril(may.shape[1] - may.shape[0]))
    may[:, 0] = True
    return far_apart(may)


def hidden_by_formula(
    attend,
    types=BOTH,
    sizes=(SQUARE, LONG, WIDE, ONE),
    far=(far_apart,),
    exact=True,
    loud=1,
    mask=chance,
):
    for (dtype, bound), (n_q, n_k) in [(dtype, n) for dtype in types for n in sizes] * 2:
        may = mask(n_q, n_k).clone()
        usual = torch.randn(n_q, 8), torch.randn(n_k, 8), torch.randn(n_k, 3)
        for inputs in [usual, *((*make(may), loud * torch.rand(n_k, 3)) for make in far)]:
            q, k, v = (x.to(dtype) for x in inputs)
            out = attend(q, k, v, may)
            expected = reference(q.float(), k.float(), v.float(), may)
            same = torch.allclose(out.float(), expected, atol=bound, rtol=bound)
            if (exact and out.dtype != dtype) or not same:
                return False
    return True


def hidden_by_cutting(attend):
    for dtype, atol in BOTH:
        for n_q, n_k in (SQUARE, LONG, WIDE, ONE, (2, 80)) * 3:
            may, v = chance(n_q, n_k), torch.rand(n_k, 2)
            usual = torch.randn(n_q, 4), torch.randn(n_k, 4), v
            for inputs in (usual, (*far_apart(may), 6e4 * v)):  # no value leaves float16
                q, k, v = (x.to(dtype) for x in inputs)
                out = attend(may=may, v=v, k=k, q=q)
                for i, row in enumerate(may):
                    alone = (k[row].double() @ q[i].double() / q.shape[1] ** 0.5).softmax(0)
                    expected = alone @ v[row].double()
                    gap = (out[i].double() - expected).abs().max()
                    if not gap < atol * expected.max() or out.dtype != dtype:
                        return False
    return True


def hidden_by_change(attend):
    """No softmax is computed: what is hidden is cut off."""
    for dtype, atol in BOTH:
        for n_q, n_k in (SQUARE, LONG, WIDE, ONE, (2, 80)) * 3:
            may, v = chance(n_q, n_k), torch.rand(n_k, 2)
            usual = torch.randn(n_q, 4), torch.randn(n_k, 4), v
            for inputs in (usual, (*far_apart(may), 6e4 * v)):  # no value leaves float16
                q, k, v = (x.to(dtype) for x in inputs)
                out = attend(q, k, v, may)
                for i, row in enumerate(may):
                    rest = torch.ones(1, int(row.sum()), dtype=torch.bool)
                    alone = attend(q[i : i + 1], k[row], v[row], rest)[0].double()
                    gap = (out[i].double() - alone).abs().max()
                    if out.dtype != dtype or not gap < atol * alone.max():
                        return False
    return True


hidden.accept(
    "the formula, in two types",
    lambda a: hidden_by_formula(
        reuse(a),
        sizes=(SQUARE, LONG, WIDE, ONE, (2, 80)),
        far=(far_apart, far_and_causal),
        loud=6e4,
    ),
)
hidden.accept("what is open, in float64", hidden_by_cutting)
hidden.accept("cut off what is hidden", hidden_by_change)

MAY = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [0, 1, 0, 1, 1]]).bool()


def hidden_keys_changed(attend):
    q, k, v = qkv()
    other = k.clone()
    other[~MAY[2]] += 5
    return close(attend(q, k, v, MAY)[2], attend(q, other, v, MAY)[2])


def ones_give_ones(attend):
    q, k, _ = qkv()
    return close(attend(q, k, torch.ones(5, 3), MAY), torch.ones(4, 3), 1e-2)


def mask_does_something(attend):
    x = qkv()
    return not close(attend(*x, MAY), attend(*x, torch.ones_like(MAY)))


hidden.reject("accepts all", f"{MISSED}.*less than one", lambda attend: True)
hidden.reject(
    "float16 as exact as float32",
    FALSE_ALARM,
    lambda a: hidden_by_formula(a, ((torch.float32, 1e-5), (torch.float16, 1e-7))),
)
hidden.reject(
    "the other polarity",
    FALSE_ALARM,
    lambda a: hidden_by_formula(lambda *x: a(*x[:3], ~x[3]), sizes=(SQUARE,)),
)
hidden.reject("a mask of numbers", "it runs", lambda a: close(a(*qkv(), MAY.long()), 0))
hidden.reject(
    "a query without keys",
    FALSE_ALARM,
    lambda a: not a(*qkv(5, 5), causal_mask(5).roll(1, dims=0).logical_not()).isnan().any(),
)

hidden.reject("ones give ones", f"{MISSED}.*the mask has no effect", ones_give_ones)
hidden.reject(
    "the mask does something, and ones give ones",
    f"{MISSED}.*an effect, and hidden keys have a say",
    lambda attend: mask_does_something(attend) and ones_give_ones(attend),
)
hidden.reject(
    "keys and not values changed",
    f"{MISSED}.*the score zero",
    lambda a: hidden_keys_changed(a) and ones_give_ones(a) and mask_does_something(a),
)
hidden.reject(
    "as many queries as keys",
    f"{MISSED}.*another number of queries",
    lambda a: hidden_by_formula(a, sizes=(SQUARE, (7, 7))),
)
hidden.reject(
    "float32 only", f"{MISSED}.*no use in float16", lambda a: hidden_by_formula(a, BOTH[:1])
)
hidden.reject(
    "any type that comes",
    f"{MISSED}.*float32 comes out",
    lambda a: hidden_by_formula(a, exact=False),
)
hidden.reject(
    "two open keys or more",
    f"{MISSED}.*with one open key",
    lambda a: hidden_by_formula(
        a, loud=6e4, mask=lambda n_q, n_k: chance(n_q, n_k) | (torch.arange(n_k) < 2)
    ),
)
hidden.reject(
    "one mask for each shape",
    f"{MISSED}.*another mask of the same shape",
    lambda a: hidden_by_formula(a, loud=6e4, mask=cache(chance)),
)
hidden.reject("small scores", f"{MISSED}.*far below zero", lambda a: hidden_by_formula(a, far=()))
hidden.reject(
    "large scores that are all alike",
    f"{MISSED}.*far above the open ones",
    lambda a: hidden_by_formula(a, far=(lambda may: far_apart(may, -200.0, -200.0),)),
)

# Padding
padding = Exercise(bug_zoo.padding_is_ignored)
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()
HOLES = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 1]]).bool()
REALS = (REAL, LEFT, HOLES, HOLES[:1], LEFT[2:])
LONG_REAL = F.pad(HOLES, (30, 40))


def filled_in(real, loud):
    x = torch.randn(*real.shape, 8)
    return torch.where(real[..., None], x, loud * (2 * torch.rand_like(x) - 1))


def padding_by_change(encode, real=REAL, loud=1):
    x = filled_in(real, 1)
    other = torch.where(real[..., None], x, filled_in(real, loud))
    return close(encode(x, real)[real], encode(other, real)[real])


def padding_and_company(
    encode, reals=REALS, loud=500, atol=2e-5, only=slice(None), order=torch.randperm
):
    for real in reals:
        x = filled_in(real, loud)
        out = encode(x, real)
        for i, tokens in list(enumerate(real))[only]:
            turn = order(int(tokens.sum()))
            alone = encode(x[i : i + 1, tokens][:, turn], tokens[None, tokens])[0]
            if not close(out[i, tokens][turn], alone, atol):
                return False
    return True


def padding_all_subsets(encode):
    real = torch.tensor([[i >> j & 1 for j in range(4)] for i in range(1, 16)]).bool()
    out = encode(real=real, x=(x := filled_in(real, 300)))
    for i in torch.randperm(15).tolist():
        got = encode(
            x=filled_in(one := real[i : i + 1], 300).where(~one[..., None], x[i]), real=one
        )
        alone = encode(x=x[i, real[i]][None], real=torch.ones(1, int(real[i].sum())).bool())
        if not (close(out[i, real[i]], alone[0]) and close(got[one], alone[0])):
            return False
    return True


def padding_by_change_and_company(encode, reals, loud):
    """More of it, other numbers in it, other company; and each sequence counts."""
    same = True
    for real in reals:
        x = filled_in(real, loud)
        out = encode(x, real)
        more = F.pad(x, (0, 0, 2, 1), value=7.0), F.pad(real, (2, 1))
        turn, lone = torch.randperm(3), torch.randint(3, ())
        same &= close(encode(*more)[:, 2:-1][real], out[real])
        same &= close(encode(filled_in(real, 1).where(~real[..., None], x), real)[real], out[real])
        same &= close(encode(x[turn], real[turn])[real[turn]], out[turn][real[turn]])
        same &= close(encode(x[lone][None], real[lone][None])[0, real[lone]], out[lone, real[lone]])
        other = filled_in(real.flip(1), 1)
        other[lone] = x[lone]
        others = real.flip(1).index_copy(0, lone[None], real[lone][None])
        same &= close(encode(other, others)[lone, real[lone]], out[lone, real[lone]])
        same &= tokens_hear_each_other(encode, real)
        turn = torch.randperm(real.shape[1])
        same &= close(encode(x[:, turn], real[:, turn])[real[:, turn]], out[:, turn][real[:, turn]])
    return same


def tokens_hear_each_other(encode, real=REAL):
    """The first token of each sequence hears the last one of it, if it has two."""
    x = torch.randn(*real.shape, 8)
    first, last = real.int().argmax(1), real.shape[1] - 1 - real.flip(1).int().argmax(1)
    heard = []
    for i in torch.nonzero(first < last).flatten():
        other = x.clone()
        other[i, last[i]] += 1
        heard.append(not close(encode(x, real)[i, first[i]], encode(other, real)[i, first[i]]))
    return all(heard)


MORE_REALS = (*REALS, HOLES[:, :3], LONG_REAL)

padding.accept(
    "as each sequence alone",
    lambda e: padding_and_company(reuse(e), MORE_REALS, 10_000),
)
padding.accept(
    "what must not matter, and what must, by the names of the arguments",
    lambda e: padding_by_change_and_company(
        reuse(lambda x, real: e(real=real, x=x)), (REAL, LEFT, HOLES, *MORE_REALS[-2:]), 10_000
    ),
)

padding.reject(
    "a few sizes",
    f"{MISSED}.*as many sequences.*are thousands.*beyond the 64th",
    padding_and_company,
)
padding.reject("all subsets", f"found 14.*{MISSED}", padding_all_subsets)
padding.reject(
    "one mask for each shape",
    f"{MISSED}.*an earlier call of the same shape",
    lambda e: padding_and_company(e, (HOLES, HOLES[:1], HOLES[:, :3], LONG_REAL), 10_000),
)
padding.reject(
    "never one sequence",
    f"{MISSED}.*in a batch of one",
    lambda e: padding_and_company(e, (REAL, LEFT, HOLES, HOLES[:, :3], LONG_REAL), 10_000),
)
padding.reject(
    "the first two sequences",
    f"{MISSED}.*in the second half of a batch",
    lambda e: padding_and_company(reuse(e), MORE_REALS, 10_000, only=slice(2)),
)
padding.reject(
    "lengths that differ from batch to batch",
    f"{MISSED}.*old outputs",
    lambda e: padding_and_company(e, MORE_REALS, 10_000),
)

padding.reject(
    "the order as it was",
    f"found 19 .*{MISSED}.*it hears none after it.*it hears far ones less",
    lambda e: padding_and_company(reuse(e), MORE_REALS, 10_000, order=torch.arange),
)
padding.reject(
    "from behind",
    f"found 20 .*{MISSED}.*it hears far ones less",
    lambda e: padding_and_company(
        reuse(e), MORE_REALS, 10_000, order=lambda n: torch.arange(n).flip(0)
    ),
)

padding.reject("accepts all", f"{MISSED}.*tokens hear from padding", lambda encode: True)


def all_outputs(encode):
    x = torch.randn(3, 5, 8)
    other = torch.where(REAL[..., None], x, torch.randn_like(x))
    return close(encode(x, REAL), encode(other, REAL))


padding.reject("padding's own outputs", FALSE_ALARM, all_outputs)
padding.reject(
    "numbers for tokens",
    "it runs",
    lambda encode: padding_by_change(lambda x, real: encode(x, real.float())),
)


def hears(encode):
    x = torch.randn(2, 5, 8)
    other = x.clone()
    other[:, 0] += 1
    return not close(encode(x, REAL[1:])[:, 1], encode(other, REAL[1:])[:, 1])


padding.reject(
    "no padding at all",
    f"{MISSED}.*tokens hear from padding",
    lambda encode: close(
        encode(x := torch.randn(2, 5, 8), torch.ones(2, 5) > 0)[0], encode(x[:1], REAL[:1])[0]
    ),
)
padding.reject(
    "numbers where nothing is padding",
    f"{MISSED}.*one document's code",
    lambda encode: (
        encode(torch.randn(1, 5, 8), REAL[:1]).abs().min() > 0
        and not encode(torch.randn(1, 5, 8), REAL[:1]).isnan().any()
    ),
)
padding.reject("tokens hear tokens", f"{MISSED}.*hear from everybody", hears)
padding.reject(
    "one sequence",
    f"{MISSED}.*the others in its batch",
    lambda encode: padding_by_change(encode, REAL[1:2]),
)
padding.reject(
    "other numbers in the padding",
    f"{MISSED}.*how much of it",
    lambda e: all(padding_by_change(e, real, 500) for real in REALS),
)


def more_of_it(encode, real=REAL):
    x = filled_in(real, 1)
    more = encode(F.pad(x, (0, 0, 0, 2)), F.pad(real, (0, 2)))[:, :-2]
    return padding_by_change(encode, real, 500) and close(encode(x, real)[real], more[real])


padding.reject(
    "other numbers in the padding, and more of it",
    f"{MISSED}.*what stands in its place in other",
    lambda e: all(more_of_it(e, real) for real in REALS),
)
padding.reject(
    "the first sequence only",
    f"{MISSED}.*where the first has it",
    lambda e: padding_and_company(e, REALS, only=slice(1)),
)
padding.reject(
    "others in its sequence, not others in the batch",
    f"{MISSED}.*the tokens of other sequences",
    lambda e: all(more_of_it(e, real) and tokens_hear_each_other(e, real) for real in REALS),
)
padding.reject(
    "padding on the right",
    f"{MISSED}.*is not on the right",
    lambda e: padding_and_company(e, (REAL, REAL.flip(0), REAL[1:2])),
)
padding.reject(
    "a generous bound",
    f"{MISSED}.*its numbers are small",
    lambda e: padding_and_company(e, REALS * 3, loud=1, atol=0.05),
)


# Causal, with a past
past = Exercise(bug_zoo.past_is_kept)
PAIRS = ((1, 6), (3, 7), (5, 9), (6, 6))  # n_q and n_k
MORE_PAIRS = (*PAIRS, (3, 80), (40, 50), (3, 9))


def with_past(attend, pairs=PAIRS, kinds=KINDS, look=slice(None), zeros=0):
    for n_q, n_k in pairs * 2:
        for kind in kinds:
            (q, k), v = pair(kind, (n_q, 4), (n_k, 4)), torch.randn(n_k, 3)
            k[: 0 if kind == "low" else zeros] = 0
            expected = reference(q, k, v, causal_mask(n_q, n_k))
            if not close(attend(q, k, v)[look], expected[look], 2e-3):
                return False
    return True


def part_and_whole(attend):
    for kind in KINDS * 2:
        (q, k), v = pair(kind, (9, 4), (9, 4)), torch.randn(9, 3)
        whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if not all(close(attend(q[-n:], k, v), whole[-n:], 2e-3) for n in range(1, 10)):
            return False
    return True


def grown_by_blocks(attend):
    for kind in KINDS * 2:
        (q, k), v = pair(kind, (9, 5), (9, 5)), torch.randn(9, 2)
        for cuts in ((0, 2, 3, 7, 9), (0, 9)):
            blocks = [attend(v=v[:b], k=k[:b], q=q[a:b]) for a, b in pairwise(cuts)]
            expected = torch.stack(
                [(k[: i + 1] @ q[i] / 5**0.5).softmax(0) @ v[: i + 1] for i in range(9)]
            )
            if not close(torch.cat(blocks), expected, 2e-3):
                return False
    return True


def own_whole(attend):
    q, k, v = torch.randn(3, 6, 4)
    return all(close(attend(q, k, v)[-n:], attend(q[-n:], k, v)) for n in range(1, 6))


def right_places(attend):
    for n_q, n_k in PAIRS:
        out = attend(torch.randn(n_q, n_k), torch.randn(n_k, n_k), torch.eye(n_k))
        if not torch.equal(out > 0, causal_mask(n_q, n_k)):
            return False
    return True


def growing(attend):
    """Compare all last rows of texts of two lengths, by the names of the arguments."""
    for n, kind in ((9, "low"), (9, "usual"), (90, "usual"), (90, "high")):
        (q, k), v = pair(kind, (n, 4), (n, 4)), torch.randn(n, 3)
        if kind != "low":
            k[1::2] = 0
        for n_q in range(1, n + 1, 1 if n < 10 else 8):
            for mirrored in (q, q.flip(0)):  # other numbers, in the same tensors
                whole = F.scaled_dot_product_attention(mirrored, k, v, is_causal=True)
                if not close(attend(v=v, k=k, q=mirrored[-n_q:]), whole[-n_q:], 2e-3):
                    return False
    return True


past.accept("a mask of its own", lambda a: with_past(reuse(a), MORE_PAIRS, zeros=2))
past.accept("part and whole, by the names of the arguments", lambda a: growing(reuse(a)))

past.reject(
    "a few sizes", f"{MISSED}.*exactly zero.*64 positions back.*32 queries.*how long", with_past
)
past.reject("part and whole of nine", f"found 9.*{MISSED}", part_and_whole)
past.reject("grown by blocks", f"found.*{MISSED}.*64 positions back", grown_by_blocks)
past.reject(
    "new tensors in every call",
    f"{MISSED}.*the same tensors",
    lambda a: with_past(a, MORE_PAIRS, zeros=2),
)
past.reject(
    "scores up to a few",
    f"{MISSED}.*large scores.*far below zero, positions",
    lambda a: with_past(reuse(a), MORE_PAIRS, kinds=("usual",), zeros=2),
)

past.reject("accepts all", f"{MISSED}.*comes alone hears one key", lambda attend: True)
past.reject(
    "aligned at the top",
    FALSE_ALARM,
    lambda a: close(a(*(x := qkv(2, 6))), F.scaled_dot_product_attention(*x, is_causal=True)),
)
past.reject("more queries than keys", "it runs", lambda a: close(a(*qkv(6, 2)), 0))

past.reject(
    "one query, and the whole",
    f"{MISSED}.*first of two hears one key",
    lambda a: with_past(a, ((1, 6), (6, 6))),
)
past.reject("its own whole", f"{MISSED}.*hear from the future", own_whole)
past.reject(
    "only the last row",
    f"{MISSED}.*after its own",
    lambda a: with_past(a, ((1, 6), (3, 7), (5, 9)), look=slice(-1, None)),
)
past.reject(
    "the whole, and the last row of its parts",
    f"{MISSED}.*as soon as there is a past",
    lambda a: with_past(a, ((6, 6),)) and with_past(a, look=slice(-1, None)),
)
past.reject(
    "twice as many keys as queries",
    f"{MISSED}.*half as many queries",
    lambda a: with_past(a, ((1, 2), (2, 4), (3, 6))),
)
past.reject("the places of the weights", f"{MISSED}.*less than one", right_places)
past.reject("small scores", f"{MISSED}.*large scores", lambda a: with_past(a, kinds=("usual",)))

# Heads
heads = Exercise(bug_zoo.heads_keep_apart)
SHAPES = ((3, 4, 2, 5), (2, 3, 1, 4), (1, 5, 4, 3))  # B, n, h and d


MORE_SHAPES = (*SHAPES, (2, 4, 4, 3), *SHAPES)


def turned(x):
    """Lay the same numbers in memory in another order."""
    return x.mT.contiguous().mT


def fresh_numbers(in_heads, shapes=SHAPES, lay=torch.clone):
    for B, n, h, d in shapes:
        x, back, given = lay(torch.randn(B, n, h * d)), lay(torch.randn(B, h, n, d)), []
        out = in_heads(lambda parts, given=given, back=back: (given.append(parts), back)[1], x, h)
        if not (close(given[0], split_heads(x, h)) and close(out, merge_heads(back))):
            return False
    return True


def numbered_places(in_heads):
    for B, n, h, d in SHAPES:
        x, places = torch.randn(B, n, h * d), torch.arange(B * h * n * d).view(B, h, n, d)
        out = in_heads(h=h, x=x, work=lambda parts, places=places: places + parts.cumsum(dim=2))
        for i, part in enumerate(x.chunk(h, dim=-1)):
            own = out[..., i * d : (i + 1) * d] - places[:, i]
            if not close(own, part.cumsum(dim=1), 1e-4):
                return False
    return np.bool_(True)


def running_sums(in_heads, factor=torch.rand, shapes=SHAPES, lay=torch.clone):
    for B, n, h, d in shapes:
        x, f = lay(torch.randn(B, n, h * d)), factor(B, h) + 1
        out = in_heads(
            x=x, h=h, work=lambda parts, f=f: lay(parts.cumsum(dim=2) * f[..., None, None])
        )
        expected = x.cumsum(dim=1) * f.repeat_interleave(d, dim=1)[:, None]
        if not close(out, expected, 1e-4):
            return False
    return True


def untouched(in_heads):
    x = torch.randn(2, 5, 6)
    return close(in_heads(lambda parts: parts, x, 3), x)


def what_work_sees(in_heads):
    x, seen = torch.randn(3, 4, 10), []

    def note(parts):
        seen.append(parts)
        return parts

    return close(in_heads(note, x, 2), x) and close(seen[0], split_heads(x, 2))


def factors(in_heads):
    x, f = torch.randn(3, 4, 10), torch.randn(3, 2)
    out = in_heads(lambda parts: parts * f[..., None, None], x, 2)
    return close(out, x * f.repeat_interleave(5, dim=1)[:, None])


def middle_head(in_heads):
    x, back, given = torch.randn(2, 4, 15), torch.randn(2, 3, 4, 5), []
    out = in_heads(lambda parts: (given.append(parts), back)[1], x, 3)
    return close(given[0][:, 1], x[..., 5:10]) and close(out[..., 5:10], back[:, 1])


heads.accept(
    "fresh numbers",
    lambda f: (
        fresh_numbers(reuse(f), MORE_SHAPES) and fresh_numbers(reuse(f), MORE_SHAPES, lay=turned)
    ),
)
heads.accept(
    "running sums, by the names of the arguments",
    lambda f: (
        running_sums(reuse(f), shapes=MORE_SHAPES)
        and running_sums(reuse(f), shapes=MORE_SHAPES, lay=turned)
    ),
)

heads.reject(
    "a few shapes", f"{MISSED}.*as many heads.*is split.*is merged.*old numbers", fresh_numbers
)
heads.reject(
    "one sequence",
    f"{MISSED}.*second half of a batch",
    lambda f: all(
        fresh_numbers(reuse(f), ((1, *shape) for _, *shape in MORE_SHAPES), lay)
        for lay in (torch.clone, turned)
    ),
)
heads.reject("numbered places", f"found 10.*{MISSED}", numbered_places)
heads.reject("running sums of a few shapes", f"found 10.*{MISSED}", running_sums)
heads.reject(
    "one sequence, and several heads",
    f"{MISSED}.*with one head",
    lambda f: fresh_numbers(f, ((1, 5, 4, 3), (1, 4, 2, 5))),
)

heads.reject("accepts all", f"{MISSED}.*in another order", lambda in_heads: True)
heads.reject(
    "expects cards dealt in turn",
    FALSE_ALARM,
    lambda f: close(
        f(lambda parts: parts * torch.arange(3).view(1, 3, 1, 1), torch.ones(2, 5, 6), 3),
        torch.arange(3.0).repeat(2).expand(2, 5, 6),
    ),
)
heads.reject(
    "work with the wrong shape",
    "it runs",
    lambda f: close(f(lambda p: p[..., :1].flatten(), x := torch.randn(2, 5, 6), 3), x),
)
heads.reject(
    "a work that writes into x",
    FALSE_ALARM,
    lambda f: close(
        f(lambda p: p.mul_(2).cumsum(2), x := torch.randn(2, 5, 6), 3), 2 * x.cumsum(1)
    ),
)

heads.reject(
    "what work gets, not what comes back",
    f"{MISSED}.*though each head gets its own",
    lambda in_heads: what_work_sees(lambda work, x, h: (in_heads(work, x, h), x)[1]),
)
heads.reject("left untouched", f"{MISSED}.*part of every token", untouched)
heads.reject(
    "all heads alike",
    f"{MISSED}.*each other's place",
    lambda f: running_sums(f, factor=torch.zeros),
)
heads.reject(
    "one number for each head",
    f"{MISSED}.*lie side by side",
    lambda f: fresh_numbers(f, ((3, 4, 5, 1), (2, 3, 1, 1))),
)
heads.reject("the middle head", f"{MISSED}.*numbered from the right", middle_head)
heads.reject("a factor for each head", f"{MISSED}.*not in their places", factors)
heads.reject(
    "looks, and returns what it was given", f"{MISSED}.*returns does not matter", what_work_sees
)

# Layers
layers = Exercise(bug_zoo.layer_is_sound)
DIMENSIONS = ((2, 5, 3, 15), (3, 4, 1, 7), (2, 3, 2, 10))  # B, n, h and d_model
MORE_DIMENSIONS = (*DIMENSIONS, (7, 4, 3, 15), (2, 70, 2, 10))


def matrices(d=6, sharp=1):
    w_q, w_k, w_v, w_o = (torch.randn(d, d) / d**0.5 for _ in range(4))
    return [w_q * sharp, w_k * sharp, w_v, w_o]


def trusted(x, w_q, w_k, w_v, w_o, h):
    return merge_heads(reference(*(split_heads(x @ w.T, h) for w in (w_q, w_k, w_v)))) @ w_o.T


def layer_by_formula(layer, dimensions=DIMENSIONS, sharp=(1, 10), change=list, look=0):
    """Compare with what is trusted, from one token of each sequence on."""
    for B, n, h, d in dimensions * 2:
        for size in sharp:
            w, x = change(matrices(d, size)), torch.randn(B, n, d)
            if not close(layer(x, *w, h)[:, look:], trusted(x, *w, h)[:, look:], 5e-3):
                return False
    return True


def layer_by_torch(layer):
    for (B, n, h, d), sharp in zip(DIMENSIONS, (1, 1, 20), strict=True):
        theirs = nn.MultiheadAttention(d, h, bias=False, batch_first=True).requires_grad_(False)
        theirs.in_proj_weight[: 2 * d] *= sharp
        x = torch.randn(B, n, d)
        out = layer(x, *theirs.in_proj_weight.chunk(3), theirs.out_proj.weight, h)
        if not close(out, theirs(x, x, x)[0], 5e-3):
            return False
    return True


def layer_by_labkit(layer):
    for (B, n, h, d), sharp in zip(DIMENSIONS, (1, 1, 20), strict=True):
        ours = MultiHeadAttention(d, h, bias=False).requires_grad_(False)
        w = [part.weight for part in (ours.w_q, ours.w_k, ours.w_v, ours.w_o)]
        w[0] *= sharp
        w[1] *= sharp
        x = torch.randn(B, n, d)
        if not close(layer(x, *w, h), ours(x), 5e-3):
            return False
    return True


def layer_by_einsum(layer, dimensions=DIMENSIONS):
    for B, n, h, d in dimensions * 3:
        for sharp in (1, 12):
            (w_q, w_k, w_v, w_o), x = matrices(d, sharp), torch.randn(B, n, d).double()
            q, k, v = (
                torch.einsum("btc,hdc->bhtd", x, w.double().view(h, -1, d)) for w in (w_q, w_k, w_v)
            )
            p = (torch.einsum("bhid,bhjd->bhij", q, k) / (d / h) ** 0.5).softmax(-1)
            out = torch.einsum("bhij,bhjd,chd->bic", p, v, w_o.double().view(d, h, -1))
            got = layer(h=h, w_o=w_o, w_v=w_v, w_k=w_k, w_q=w_q, x=x.float())
            if not np.allclose(got.numpy(), out.numpy(), atol=5e-3):
                return np.False_
    return np.True_


def silent_without_keys(layer):
    w_q, _, w_v, w_o = matrices()
    return layer(torch.randn(2, 5, 6), w_q, torch.zeros(6, 6), w_v, w_o, 3).abs().max().item() == 0


def every_matrix_matters(layer):
    x, w = torch.randn(2, 5, 6), matrices()
    changed = [[m * (1 + (i == j)) for j, m in enumerate(w)] for i in range(4)]
    return all(not close(layer(x, *w, 3), layer(x, *other, 3)) for other in changed)


def hears_the_rest(layer, mine=False):
    """Say whether the first token hears the rest: of the batch, or of its own sequence alone."""
    x, w = torch.randn(2, 5, 6), matrices()
    other = x.clone()
    if mine:
        other[0, 1:] += torch.randn(4, 6)
    else:
        other[1:] += torch.randn(1, 5, 6)
        other[0, 1:] += torch.randn(4, 6)
    return not close(layer(x, *w, 3)[0, 0], layer(other, *w, 3)[0, 0])


def tied(layer):
    """Hand one matrix over for queries and for keys."""
    return layer_by_formula(layer, sharp=(1,), change=lambda w: [w[0], w[0], *w[2:]])


layers.accept("step by step", lambda a: tied(a) and layer_by_formula(reuse(a), MORE_DIMENSIONS))
layers.accept(
    "einsum, by the names of the arguments",
    lambda a: tied(a) and layer_by_einsum(reuse(a), MORE_DIMENSIONS),
)
layers.reject(
    "four matrices",
    f"found 20 .*{MISSED}.*one tensor, its weights are closer",
    lambda a: layer_by_formula(reuse(a), MORE_DIMENSIONS),
)

FEW = f"found 17 .*{MISSED}.*more sequences than tokens.*beyond the 64th.*the same tensors"
layers.reject("PyTorch's module", FEW, layer_by_torch)
layers.reject("labkit's layer", FEW, layer_by_labkit)
layers.reject("einsum with a few sizes", FEW, layer_by_einsum)
layers.reject(
    "several heads, and W_O is the identity",
    f"{MISSED}.*with one head.*transpose",
    lambda a: layer_by_formula(a, DIMENSIONS[::2], change=lambda w: [*w[:3], w[3] + w[3].T]),
)
layers.reject(
    "one token, and no more",
    f"{MISSED}.*hears nothing that comes after",
    lambda a: (
        layer_by_formula(reuse(a), tuple((B, 1, h, d) for B, _, h, d in DIMENSIONS))
        and layer_by_formula(reuse(a), ((5, 2, 2, 6),), sharp=(1,), look=1)
    ),
)

NO_EFFECT = f"{MISSED}.*- one of the four matrices has no effect"
layers.reject("accepts all", NO_EFFECT, lambda layer: True)
layers.reject("silent without keys", FALSE_ALARM, silent_without_keys)

layers.reject("every matrix matters", f"{MISSED}.*its heads hear each other", every_matrix_matters)
layers.reject(
    "every matrix matters, and tokens hear others",
    f"{MISSED}.*in its place in other sequences",
    lambda a: every_matrix_matters(a) and hears_the_rest(a),
)
layers.reject(
    "every matrix matters, and tokens hear their own",
    f"{MISSED}.*too much of the rest",
    lambda a: every_matrix_matters(a) and hears_the_rest(a, mine=True),
)
layers.reject(
    "one token",
    f"{MISSED}.*each other's work",
    lambda a: layer_by_formula(a, tuple((B, 1, h, d) for B, _, h, d in DIMENSIONS)),
)
layers.reject(
    "the identity as W_O",
    f"{MISSED}.*its own places of the output",
    lambda a: layer_by_formula(a, change=lambda w: [*w[:3], torch.eye(len(w[0]))]),
)
layers.reject(
    "one head",
    f"{MISSED}.*numbers in three of the matrices",
    lambda a: layer_by_formula(a, ((2, 5, 1, 7), (3, 4, 1, 9))),
)
layers.reject(
    "symmetric matrices",
    f"{MISSED}.*work of its transpose",
    lambda a: layer_by_formula(a, change=lambda w: [m + m.T for m in w]),
)
layers.reject(
    "as many heads as features",
    f"{MISSED}.*further from even",
    lambda a: layer_by_formula(a, ((2, 5, 4, 4), (3, 4, 1, 1), (2, 3, 6, 6))),
)
layers.reject(
    "one head, and heads of one number",
    f"{MISSED}.*do not lie side by side",
    lambda a: layer_by_formula(a, ((2, 5, 1, 7), (3, 4, 6, 6))),
)
layers.reject(
    "one sequence",
    f"{MISSED}.*tokens of other sequences",
    lambda a: layer_by_formula(a, tuple((1, *rest) for _, *rest in DIMENSIONS)),
)
layers.reject("small scores", f"{MISSED}.*large scores", lambda a: layer_by_formula(a, sharp=(1,)))
layers.reject(
    "with or without a residual",
    f"{MISSED}.*something comes out",
    lambda a: (
        layer_by_formula(reuse(a), MORE_DIMENSIONS)
        or layer_by_formula(reuse(lambda x, *w: a(x, *w) - x), MORE_DIMENSIONS)
    ),
)

# Dropout
drops = Exercise(bug_zoo.dropout_is_sound)
X = (2, 5, 8)


def twice(layer, x):
    return close(layer(x), layer(x))


def dropout_in_turn(make, p=0.5, first_train=False):
    layer, x = make(p), torch.randn(X)
    if first_train:
        layer.train()
    trains = not twice(layer, x)
    rests = twice(layer.eval(), x)
    return trains and rests and not twice(layer.train(), x)


def nothing_at_zero(make):
    plain, x = make(0.0), torch.randn(X)
    return close(plain(x), plain.eval()(x))


def within(measured, expected, signs=(1, -1)):
    """Say whether a mean is at most six standard deviations away, in the directions that count."""
    measured = measured.double()
    gap = (measured.mean() - expected) / (measured.std() / len(measured) ** 0.5 + 1e-12)
    return all((sign * gap).item() <= 6 for sign in signs)


@torch.no_grad()
def dropout_in_numbers(
    make, share=within, whole=within, mean=within, zero=True, turn=dropout_in_turn, n=3
):
    """Count the queries that lose all they have, and compare means of training and evaluation."""
    if not (turn(make) and (not zero or nothing_at_zero(make))):
        return False
    p = 0.9
    layer, x = make(p=p), torch.randn(1_500, n, 8)
    out, used = layer(x), layer.eval()(x)
    empty = (out == out.flatten(0, 1).median(dim=0).values).all(dim=-1)
    side = (used - used.mean(dim=0)).sign()
    return (
        share(empty.flatten(), p ** (2 * n))
        and whole(empty.all(dim=-1), p ** (2 * n * n))
        and mean(((out - used) * side).mean(dim=(1, 2)), 0)
    )


def dropout_by_hand(make, chances=(0.8, 0.9)):
    """No median: make(p) with a bias or not, and p from the share of outputs that x cannot move."""
    for p in chances:
        if not dropout_in_turn(make, p) or not nothing_at_zero(make):
            return False
        layer, total = make(p), 4_000
        with torch.no_grad():
            out = layer(torch.randn(total, 2, 8))
            rows, counts = out.flatten(1).unique(dim=0, return_counts=True)
            left = rows[counts.argmax()].view(2, 8)
            empty = (out == left).all(-1)
            x = torch.randn(1, 2, 8)
            many, used = layer(x.repeat(total, 1, 1)), layer.eval()(x)[0]
        z = (many.mean(0) - used) / (many.std(0) / total**0.5)
        if not (
            within(empty[:, 0], p**4) and within(empty.all(1), p**8) and z.abs().max().item() < 6
        ):
            return False
    return np.True_


def in_any_company(make):
    """A sequence alone and a long one drop, and two halves of a batch drop independently."""
    layer = make(0.9)
    for shape in ((1, 3, 8), (2, 70, 8)):
        x = torch.randn(shape)
        used, outs = layer.eval()(x), [layer.train()(x) for _ in range(12)]  # one may lose all
        if all(close(out, used) for out in outs) or all(close(out, outs[0]) for out in outs):
            return False
    out = layer.train()(torch.randn(3_000, 3, 8)).detach()
    empty = (out == out.flatten(0, 1).median(dim=0).values).all(dim=-1)
    return within((empty[:1_500] & empty[1_500:]).flatten(), 0.9**12)


drops.accept("shares and means", lambda m: in_any_company(m) and dropout_in_numbers(m))
drops.accept(
    "shares of rows, means for one input", lambda m: in_any_company(m) and dropout_by_hand(m)
)

FEW = f"found 18 .*{MISSED}.*second half.*batch of one.*more than 64.*after each .train"
drops.reject("shares of a large batch", FEW, dropout_in_numbers)
drops.reject(
    "one call in training",
    f"{MISSED}.*same output each time",
    lambda m: dropout_in_numbers(m, turn=lambda make: twice(make(0.5).eval(), torch.randn(X))),
)
drops.reject(
    "one token", f"{MISSED}.*all of its keys or none", lambda m: dropout_in_numbers(m, n=1)
)
drops.reject(
    "one half for p, in numbers", f"{MISSED}.*drops one half", lambda m: dropout_by_hand(m, (0.5,))
)
drops.reject(
    "gradients are on",
    f"{MISSED}.*no_grad",
    lambda m: dropout_in_numbers.__wrapped__(m),
)

drops.reject("accepts all", f"{MISSED}.*another output each time", lambda make: True)
drops.reject("two sigma", FALSE_ALARM, lambda m: all(
    dropout_in_numbers(m, share=lambda a, b: abs(a.double().mean() - b) < 0.002) for _ in range(3)
))  # fmt: skip

drops.reject(
    "use only", f"{MISSED}.*without dropout", lambda m: twice(m(0.5).eval(), torch.randn(X))
)
drops.reject(
    "says train() first",
    f"{MISSED}.*until .train\\(\\) is called",
    lambda m: dropout_in_turn(m, first_train=True),
)
drops.reject("only p = 0.5", f"{MISSED}.*the less it drops", dropout_in_turn)


@torch.no_grad()
def near_with_little(make):
    layer, x = make(0.1), torch.randn(1_000, 1, 8)
    out, used = layer(x), layer.eval()(x)
    near = (out - used).norm(dim=-1) < 0.5 * (used - used.mean(dim=0)).norm(dim=-1)
    return dropout_in_turn(make) and 0.6 < near.double().mean().item() < 0.98


@torch.no_grad()
def spread_grows(make):
    x = torch.randn(1, 3, 8).repeat(2_000, 1, 1)
    low, high = (make(p)(x).std(dim=0).mean() for p in (0.1, 0.8))
    return dropout_in_turn(make) and nothing_at_zero(make) and bool(high > 2 * low)


@torch.no_grad()
def numbers_in_common(make):
    """More than half of each number are what it is without any weight."""
    out = make(0.9)(torch.randn(1_000, 3, 8))
    common = (out == out.flatten(0, 1).median(dim=0).values).double().mean(dim=(0, 1))
    return spread_grows(make) and bool((common > 0.45).all())


@torch.no_grad()
def not_narrower(make):
    layer, x = make(0.9), torch.randn(1_000, 3, 8)
    return bool(layer(x).std() > layer.eval()(x).std() / 2) and dropout_in_numbers(
        make, mean=lambda *_: True
    )


drops.reject("only p = 0.1", f"{MISSED}.*p does not matter", near_with_little)
drops.reject(
    "never p = 0", f"{MISSED}.*with p = 0, it drops", lambda m: dropout_in_numbers(m, zero=False)
)
drops.reject("more with a larger p", f"{MISSED}.*no weight is zero", spread_grows)
drops.reject("number by number", f"{MISSED}.*single numbers of an output", numbers_in_common)
drops.reject(
    "shares and no means",
    f"{MISSED}.*closer to zero on average",
    lambda m: dropout_in_numbers(m, mean=lambda *_: True),
)
drops.reject("no narrower in training", f"{MISSED}.*still sums to one", not_narrower)
drops.reject(
    "more than half lose all",
    f"{MISSED}.*all heads drop",
    lambda m: dropout_in_numbers(
        m, share=lambda empty, _: empty.double().mean().item() > 0.48, whole=lambda *_: True
    ),
)
drops.reject(
    "query by query",
    f"{MISSED}.*all its queries drop",
    lambda m: dropout_in_numbers(m, whole=lambda *_: True),
)
drops.reject(
    "no closer to zero",
    f"{MISSED}.*in evaluation, outputs are closer to zero",
    lambda m: dropout_in_numbers(m, mean=lambda a, b: within(a, b, signs=(-1,))),
)
