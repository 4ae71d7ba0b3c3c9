"""Lab 8: keys and values that are kept, what is built on them, and a zoo of decoders.

Every decoder of the zoo runs without an error and gives the right shapes. The docstring of a sound
one says how it goes about its task, that of an unsound one what an observer could notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache as remembered
from functools import wraps
from itertools import accumulate
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from labkit.attention import (
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
)
from labkit.cache import KVCache
from labkit.labs.examples import Shown, drawing, opened
from labkit.labs.guard import MOST_SHOWN, Answer, Outcome, apart, exercise, kind, near, right, show
from labkit.labs.zoo import judge
from labkit.models import gpt
from labkit.positions import one_pass, rotate

INF = float("inf")
WITHIN = 1e-4  # how far a number may be off, measured by the largest that should come
LONGEST = 500  # positions that a cache has to hold
FAR = 300  # positions of the longest text elsewhere: beyond 256, and other usual sizes of a buffer
SPOILED = -77.0  # what a caller writes into tensors that were handed over before


@exercise
def cache(function: Callable[[], Any]) -> None:
    """Check a class that keeps keys (B, h, n, d_k) and values (B, h, n, d_v) and gives all back."""
    make = Answer("Cache", function)
    small = Kept(make())
    beside = Kept(make(), small)
    for first, cache in ((1, small), (7, beside), (3, small)):
        k = 10.0 * torch.arange(first, first + 2)[:, None] + torch.arange(4)
        cache.append(k[None, None], -k[None, None, :, :3])
    for sizes, dtype, counts in (
        ((2, 3, 4, 5), torch.float32, (7, 1, 1, 6)),
        ((3, 2, 5, 1), torch.float64, (1, 4, 6)),
        ((1, 4, 2, 3), torch.float32, (5, 6)),
        ((4, 1, 1, 2), torch.float64, (1, 6, 3)),
        ((2, 1, 3, 4), torch.float32, (60, 1, LONGEST - 61)),
        ((1, 1, 1, 2), torch.float32, (1,) * LONGEST),
    ):
        B, h, d_k, d_v = sizes
        draw = drawing(sum(sizes))
        one, other = Kept(make()), Kept(make())
        one_by_one = len(counts) == LONGEST
        for m, n in zip(counts, accumulate(counts), strict=True):
            # A transpose, as a split gives it: its numbers do not lie in order.
            k, v = (draw(B, m, h, d).to(dtype).transpose(1, 2) / 3 for d in (d_k, d_v))
            one.append(k, v, look=not one_by_one or n == LONGEST)
            if not one_by_one:
                other.append(-k.flip(0), -v.flip(0))
    right("Cache", "Everything is there, in order, and each cache is its own.")


class Kept:
    """A learner's cache, and what it should hold; another may have been filled before it."""

    def __init__(self, made: Outcome, beside: Kept | None = None) -> None:
        self.cache, self.beside = made.value, beside
        made.demand(
            callable(getattr(self.cache, "append", None)),
            "Cache() gives an object with a method append",
            f"came {kind(self.cache)}",
        )
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []

    def append(self, k: Tensor, v: Tensor, look: bool = True) -> None:
        """Append, judge what comes back if it is looked at, write into what was handed over."""
        given: list[tuple[Tensor, Tensor]] = []

        @wraps(self.cache.append)
        def append(k: Tensor, v: Tensor) -> Any:
            given.append((k, v))
            return self.cache.append(k, v)

        outcome = Answer("Cache.append", append)(k=k, v=v)
        self.k.append(k)
        self.v.append(v)
        outcomes = outcome.pair("all keys", "all values")
        others = (self.beside.k, self.beside.v) if self.beside else ([], [])
        for part, held, other in zip(outcomes, (self.k, self.v), others, strict=True):
            if look:
                self.judge(part, held, other)
        for tensor in given[0]:
            tensor.fill_(SPOILED)

    def judge(self, part: Outcome, held: list[Tensor], other: list[Tensor]) -> None:
        wanted = torch.cat(held, dim=-2)
        if isinstance(part.value, Tensor) and part.value.shape != wanted.shape:
            swapped = torch.cat(self.v if held is self.k else self.k, dim=-2)
            known = {"keys and values have changed places": swapped}
            B, h, n, d = wanted.shape
            m = part.value.shape[-2] if part.value.dim() == 4 else 0
            if part.value.shape == (B, h, m, d):
                last, more = wanted[..., n - m :, :], part.value[..., n:, :]
                known["the last positions are there, and those before them are gone"] = last
                known["all are there, and more behind them"] = torch.cat([wanted, more], dim=-2)
            if other:
                told = "another Cache() was filled before this one, and its content came first"
                # What came of the caller's own tensors has been written over by now.
                spoiled = [torch.full_like(one, SPOILED) for one in other]
                stale = bool((part.value == SPOILED).any())
                known[told] = torch.cat([*(spoiled if stale else other), *held], dim=-2)
            elif len({one.shape for one in held}) == 1:
                axes = {f"they are joined along axis {axis}": axis for axis in (0, 1, 3)}
                known |= {told: torch.cat(held, dim=axis) for told, axis in axes.items()}
            part.demand(
                False,
                f"{part.part} have the shape {tuple(wanted.shape)}",
                f"came {tuple(part.value.shape)}{cause(part.value.double(), known)}",
            )
        got = part.tensor(*wanted.shape)
        part.demand(
            part.value.dtype == wanted.dtype,
            f"{part.part} have the type of what is appended, {wanted.dtype}",
            f"came {part.value.dtype}",
        )
        if torch.equal(got, wanted.double()):
            return
        part.demand(
            not (got == SPOILED).any(),
            "what the cache holds is its own, and stays when the caller writes into his tensors",
            "after an append the caller wrote −77 into the k and v that he had handed over, and "
            f"now there are −77 among {part.part}",
        )
        mistakes = {"the new positions stand before the old ones": torch.cat(held[::-1], dim=-2)}
        mixed = wanted.transpose(1, 2).reshape(wanted.shape)
        mistakes["a reshape mixes positions and heads, where an axis has to be moved"] = mixed
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            mistakes[f"they are rounded to {dtype}"] = wanted.to(dtype).double()
        found = [told for told, one in mistakes.items() if torch.equal(one.double(), got)]
        place = (got != wanted.double()).nonzero()[0].tolist()
        came, due = apart(float(got[tuple(place)]), float(wanted[tuple(place)]))
        small = got.numel() <= MOST_SHOWN and show(got) != show(wanted)
        told = f"they came as {show(got)}" if small else f"at {place} came {came}, and not {due}"
        part.demand(
            False,
            f"{part.part} so far, {show(wanted)}: the old positions first and unchanged, in each "
            "text and each head",
            "; ".join([told, *found]),
        )


@exercise
def step(function: Callable[[MultiHeadAttention, Tensor, KVCache], Tensor]) -> None:
    """Check one decoding step: a layer, x (B, m, d_model) and a cache to (B, m, d_model)."""
    answer = Answer("step", opened(function))
    for sizes, counts in (
        ((10, 3, 6, 5, 2), (4, 7, 1)),
        ((7, 2, 5, 4, 3), (1, 1, 6)),
        ((3, 1, 1, 2, 1), (4, 5)),
        ((12, 2, 6, 6, 4), (3, 8, 1)),
        ((5, 4, 2, 1, 1), (6, 3)),
        ((4, 2, 1, 3, 1), (FAR - 5, 3, 1)),
    ):
        *of_layer, B = sizes
        layer, cache = made_layer(*of_layer), KVCache()
        x = drawing(B)(B, sum(counts), sizes[0])
        for m, n in zip(counts, accumulate(counts), strict=True):
            expect_step(answer, layer, x[:, :n], m, cache)
        index, left = torch.arange(B).flip(0), n - 2 * (B % 2)  # cropped only if B is odd
        cache.crop(left)
        cache.reorder(index)
        x = torch.cat([x[index, :left], drawing(n)(B, 3, sizes[0])], dim=1)
        told = " since it was cropped and its texts reordered"
        told = told if left < n else " since its texts were reordered"
        expect_step(answer, layer, x, 3, cache, told, uncropped if left < n else wrong_steps)
    # No query attends to the last value, so that it shows only where a hidden position weighs in.
    x = torch.tensor([[[7.0, 1.0], [7.05, -1.0], [-7.07, 8e5]]])
    told = (
        "; the scaled score of inputs (a, b) and (c, d) is −a·c, the value of (c, d) is d; so "
        "position 1 has the scores −49.35 and −49.7, and a hidden one of 49.84"
    )
    expect_step(answer, steep_layer(), x, 3, KVCache(), told, mistakes=wrong_exponentials)
    right("step", "Every new position hears all before it and itself, and is kept for those after.")


def expect_step(
    answer: Answer,
    layer: MultiHeadAttention,
    x: Tensor,
    m: int,
    cache: KVCache,
    told: str = "",
    mistakes: Callable[[MultiHeadAttention, Tensor, int], dict] | None = None,
) -> None:
    """Demand the outputs of the last m positions, and that the cache has them all afterwards."""
    B, n, _ = x.shape
    shown = Shown(cache, f"a KVCache that holds {counted(n - m, 'position')}{told}")
    outcome = answer(layer=layer, x=x[:, n - m :], cache=shown)
    out, came = outcome.tensor(B, m, x.shape[-1]), outcome.value.dtype
    outcome.demand(came == x.dtype, f"it has the type of x, {x.dtype}", f"came {came}")
    outcome.demand(
        cache.n == n,
        f"afterwards the cache holds {n} positions: the {n - m} from before and the {m} new ones",
        f"it holds {cache.n}",
    )
    expect_rows(
        outcome,
        out,
        attended(layer, x, m, causal_mask(m, n)),
        "each new position attends to all that the cache holds, to those before it in its block, "
        "and to itself",
        lambda: (mistakes or wrong_steps)(layer, x, m),
    )
    for name, part, held in (("keys", layer.w_k, cache.k), ("values", layer.w_v, cache.v)):
        wanted = split_heads(part(x), layer.h)
        fits = held.shape == wanted.shape and near(held.double(), wanted)
        known = {"they are those times 1/√d_k": wanted / layer.d_k**0.5}
        outcome.demand(
            fits,
            f"the cache holds {name} as w_{name[0]} gives them, split into heads, "
            f"{tuple(wanted.shape)}",
            "it holds other numbers"
            + f", {tuple(held.shape)}" * (held.shape != wanted.shape)
            + cause(held.double(), known),
        )


@exercise
def generate(function: Callable[[gpt.GPT, Tensor, int, int], Tensor]) -> None:
    """Check greedy writing: a model, ids (B, n), how many more, and how many to read at once."""
    answer = Answer("generate", function)
    heard: dict[int, Tensor] = {}  # what each model read in the call before
    for seed, options, (B, n), more, c in WRITING:
        model = made_model(seed, **options)
        ids = torch.randint(WORDS, (B, n), generator=torch.Generator().manual_seed(seed))
        model.calls.clear()
        outcome = answer(model=model, ids=ids, more=more, c=c)
        calls = list(model.calls)
        wanted = greedy(model, ids, more)
        got = whole_numbers(outcome, B, n + more)
        outcome.demand(
            torch.equal(got[:, :n], ids),
            f"the prompt stands in front, {show(ids)}",
            f"the first {n} of each text came as {show(got[:, :n])}",
        )
        longest = max((one.shape[-1] for one in calls), default=0)
        outcome.demand(
            longest <= c,
            f"the model reads at most {counted(c, 'word')} of a text at once",
            f"it was called with {longest}"
            + ", the whole prompt" * (longest == n)
            + ", more than the prompt has: the text is read again" * (longest > n),
        )
        words, pieces = sum(one.numel() for one in calls), calls[: -(-n // c)]
        filled = words and n % c and all(one.shape == (B, c) for one in pieces)
        filled = filled and torch.equal(torch.cat(pieces, dim=1)[:, :n], ids)
        outcome.demand(
            words <= B * (n + more),
            f"the model reads each word once: {B} × ({n} + {more}) at most",
            f"it read {words}, in {counted(len(calls), 'call')}"
            + f"; the prompt's last piece is filled up to {c} words" * bool(filled),
        )
        if not torch.equal(got, wanted):
            b = int((got != wanted).any(dim=1).nonzero()[0])
            outcome.demand(
                False,
                "each new word is the one with the largest logit, once the model has read all "
                f"before it: after {show(ids[b])} come {show(wanted[b, n:])}",
                f"came {show(got[b, n:])}" + known_text(model, ids, more, c, got, heard.get(seed)),
            )
        heard[seed] = wanted[:, : words // B]
    right("generate", "It writes what the model would write without a cache, and reads all once.")


@exercise
def slide(function: Callable[[MultiHeadAttention, Tensor, Any, int], tuple[Tensor, Any]]) -> None:
    """Check a step that keeps w positions: a layer, x (B, m, d_model), what was kept, and w."""
    answer = Answer("slide", opened(function))
    for sizes, w, counts in (
        ((10, 3, 6, 5, 2), 9, (5, 6, 1, 11)),
        ((7, 2, 4, 5, 1), 3, (1, 1, 1, 1, 1, 1)),
        ((6, 2, 5, 4, 3), 7, (9, 1, 8, 1)),
        ((5, 1, 3, 1, 1), 2, (1, 4, 1, 3)),
        ((20, 2, 1, 4, 3), 4, (5, 1, 2)),
        ((8, 4, 3, 2, 5), 1, (6, 1, 7)),
        ((4, 2, 1, 3, 1), FAR - 40, (FAR - 5, 3, 2)),
    ):
        *of_layer, B = sizes
        layer, left = made_layer(*of_layer), None
        draw = drawing(B + w)
        texts, kept = [draw(B, sum(counts), sizes[0]) for _ in range(2)], [None, None]
        n, before = [0, 0], [0, 0]
        # The texts are in step nowhere, so that what is counted for one shows in the other.
        for turn in zip(counts, (*counts[1:], counts[0]), strict=True):
            for i, m in enumerate(turn):
                n[i] += m
                x = texts[i][:, : n[i]]
                kept[i] = expect_slide(answer, layer, x, (before[i], m), kept[i], w, left)
                left, before[i] = x[:, -m:], m
    right("slide", "It hears the last w positions, and keeps no more of them.")


def expect_slide(
    answer: Answer,
    layer: MultiHeadAttention,
    x: Tensor,
    blocks: tuple[int, int],
    kept: Any,
    w: int,
    left: Tensor | None,
) -> Any:
    """Demand the outputs of the last block in a window, and return what was kept.

    What was read by the call before is left, a block of another text.
    """
    B, n, _ = x.shape
    before, m = blocks
    shown = None if n == m else Shown(kept, f"what was returned after {counted(n - m, 'position')}")
    outcome = answer(layer=layer, x=x[:, n - m :], kept=shown, w=w)
    out, keeps = outcome.pair("the output", "what is kept")
    expect_rows(
        outcome,
        out.tensor(B, m, x.shape[-1]),
        attended(layer, x, m, window_mask(m, n, w)),
        f"each position attends to the last {w} up to and including itself, or to as many as "
        "there are",
        lambda: wrong_windows(layer, x, m, w, before, left),
    )
    found = numbers_in(keeps.value)
    held, each = sum(one.numel() for one in found), B * layer.h * (layer.d_k + layer.d_v)
    told = f", the keys and values of {counted(held // each, 'position')}" * (held % each == 0)
    told += "; a slice from −0 on holds all" * (w == 1 and not held % each)
    for one in (one for one in found if one.dim() == 3):
        inputs = f"what is kept is x, {x.shape[2]} numbers a position and text, where keys and "
        known = {f"{inputs}values have {each // B}": x[:, n - one.shape[1] :]}
        told = cause(one.double(), known) or told
    outcome.demand(
        held <= w * each,
        f"keys and values of {counted(w, 'position')} at most are kept, {w * each} numbers",
        f"after {counted(n, 'position')}, {held} numbers are kept{told}",
    )
    return keeps.value


@exercise
def padded(function: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> None:
    """Check places and masks of texts padded on the left: real (B, n) and m new positions."""
    answer = Answer("padded", function)
    for n, lengths, m in (
        (9, (7, 8, 2), 5),
        (7, (3, 5), 7),
        (7, (3, 5), 1),
        (6, (6, 1, 3), 2),
        (8, (3, 5, 4, 7, 2), 6),
        (5, (4,), 2),
        (FAR, (FAR - 11, 7), 4),
    ):
        B = len(lengths)
        real = torch.arange(n) >= n - torch.tensor(lengths)[:, None]
        outcome = answer(real=real, m=m)
        first, second = outcome.pair("places", "may")
        places, words = whole_numbers(first, B, m), real[:, n - m :]
        wanted = (torch.arange(n - m, n) - n + torch.tensor(lengths)[:, None]) * words
        outcome.demand(
            torch.equal(places * words, wanted),
            f"the first word of each text has place 0, so the last ones have {show(wanted[:, -1])}",
            f"came {show(places)}" + known_places(places, words, real),
        )
        may = second.tensor(B, 1, m, n, boolean=True)
        open_ = causal_mask(m, n) & real[:, None, None, :]
        asked = words[:, None, :, None]
        if not torch.equal(may & asked, open_ & asked):
            b, _, i, j = ((may != open_) & asked).nonzero()[0].tolist()
            which = "a later word" if real[b, j] else "padding"
            told = f"may not attend to position {j}, {which}"
            if open_[b, 0, i, j]:
                told = f"may attend to position {j}, itself or a word before it"
            outcome.demand(
                False,
                f"a word sees itself and the words before it: row {i} of text {b} {told}",
                f"that row came as {show(may[b, 0, i].int())}, with 1 for True"
                + known_mask(may, real, m, asked),
            )
    right("padded", "Places are counted from each text's first word, and padding is hidden.")


@exercise
def accept(function: Callable[[gpt.GPT, list[KVCache], Tensor, Tensor], Tensor]) -> None:
    """Check guesses that are judged in one call: a model, caches, last (1, 1), guesses (1, g)."""
    answer = Answer("accept", opened(function))
    refuted: set[str] = set()
    stood = [0.9]  # a higher bound is no human's
    for seed, options, n, rounds in GUESSING:
        model = made_model(seed, logits=4.0, **options)
        ids = torch.randint(WORDS, (1, n), generator=torch.Generator().manual_seed(seed))
        caches = model.caches()
        if n > 1:
            model(ids[:, :-1], caches=caches)
        for pattern in rounds:
            guesses = guess(model, ids, pattern)
            ids = expect_accepted(answer, model, caches, ids, guesses, refuted, stood)
    right("accept", "It writes the model's own words, several a call, and the caches follow.")


BOUND = "a guess counts only where its probability is above a bound"
LATE = "a guess that agrees after the wrong guess counts too"


def expect_accepted(
    answer: Answer,
    model: Model,
    caches: list[KVCache],
    ids: Tensor,
    guesses: Tensor,
    refuted: set[str],
    stood: list[float],
) -> Tensor:
    """Demand the words that stand, one call, and caches that hold all but the last word.

    Mistakes that would have shown by now are put among the refuted, and named no more. A bound
    on probabilities would have shown if a guess that stood has less.
    """
    own = greedy(model, ids, guesses.shape[1] + 1)[:, ids.shape[1] :]
    fits = (own[:, :-1] == guesses).long().cumprod(dim=1)
    a, n = int(fits.sum()), ids.shape[1]
    wanted = own[:, : a + 1]
    model.calls.clear()
    shown = Shown(caches, f"{len(caches)} caches that hold {counted(n - 1, 'position')}")
    outcome = answer(model=model, caches=shown, last=ids[:, -1:], guesses=guesses)
    calls = list(model.calls)
    came = outcome.value
    logits = model(torch.cat([ids, guesses], dim=1))[:, n - 1 :]
    best = logits.topk(2).indices
    alone = model(torch.cat([ids[:, -1:], guesses], dim=1)).argmax(dim=-1)
    mistakes = wrong_words(best, ids[:, -1:], guesses, a)
    mistakes["the model reads them without what the caches hold"] = alone[
        :, : int((alone[:, :-1] == guesses).long().cumprod(dim=1).sum()) + 1
    ]
    p = logits[0, :-1].softmax(dim=-1).gather(-1, guesses[0, :, None])[:, 0].tolist()
    # where a bound that has not shown yet lets none further
    ends = [i for i in range(a) if p[i] == min(*stood, *p[: i + 1])]
    if ends:
        count = came.shape[-1] - 1 if isinstance(came, Tensor) and came.dim() else 0
        mistakes[BOUND] = own[:, : (count if count in ends else ends[-1]) + 1]
    asked, read = [one.shape[-1] for one in calls], guesses.shape[1] + 1
    outcome.demand(
        not isinstance(came, Tensor) or asked == [read],
        f"the model is called once, with last and all guesses, {read} words",
        f"it was called with {' and '.join(map(str, asked)) or 'none'}",
    )
    alive = {told: words for told, words in mistakes.items() if told not in refuted}
    told = ""
    if isinstance(came, Tensor) and came.dim() == 2:
        own_words, c = best[..., 0], came.shape[1] - 1
        as_guessed = torch.cat([guesses[:, :c], own_words[:, c : c + 1]], dim=1)
        told = cause(
            (own_words[:, : c + 1] if torch.equal(came, as_guessed) else came).double(), alive
        )
        row = f"; after last and each of the guesses the model says {show(own_words)}"
        told += row * (LATE in told)
    outcome.demand(
        not isinstance(came, Tensor) or came.dim() != 2 or came.shape == wanted.shape,
        f"the model's own words go on as {show(own)}, so {a} of the {guesses.shape[1]} guesses "
        f"stand, and one word of the model's follows: {counted(a + 1, 'word')}",
        f"came {show(came)}{told}",
    )
    got = whole_numbers(outcome, 1, a + 1)
    outcome.demand(
        torch.equal(got, wanted),
        f"the words that the model would have written one by one, {show(wanted)}",
        f"came {show(got)}{told}",
    )
    for i, cache in enumerate(caches):
        outcome.demand(
            cache.n == n + a,
            f"afterwards each cache holds {counted(n + a, 'position')}: the text, which has "
            f"{counted(n, 'word')}, and {a} of the guesses, and not "
            "the word after them, which nobody has read",
            f"cache {i} of {len(caches)} holds {cache.n}"
            + "; it is not cropped" * (cache.n == n + guesses.shape[1])
            + "; last, which was read as well, is not counted" * (a == 0 and cache.n == n - 1),
        )
    mistakes.pop(BOUND, None)
    refuted |= {told for told, words in mistakes.items() if not torch.equal(words, wanted)}
    stood += p[:a]
    return torch.cat([ids, wanted], dim=1)


@exercise
def grouped(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Check attention over shared keys: q (B, h, m, d_k), k and v (B, h_kv, n, d) to q's places."""
    answer = Answer("grouped", function)
    for sizes in (
        (5, 6, 2, 4, 13, 10, 7),
        (3, 8, 2, 1, 9, 5, 7),
        (1, 6, 3, 4, 4, 2, 5),
        (3, 4, 1, 2, 7, 6, 5),
        (2, 5, 5, 3, 9, 4, 6),
        (1, 8, 2, 5, 9, 1, 3),
        (3, 9, 3, 4, 6, 2, 1),
        (1, 6, 2, 3, FAR, 4, 5),
    ):
        B, h, h_kv, m, n, d_k, d_v = sizes
        draw = drawing(100 * h + n)
        q, k, v = (draw(B, *shape) for shape in ((h, m, d_k), (h_kv, n, d_k), (h_kv, n, d_v)))
        wanted = over_shared(q, k, v)
        outcome = answer(q=q, k=k, v=v)
        out = outcome.tensor(B, h, m, d_v)
        largest = float(wanted.abs().max())
        off = ((out - wanted) / largest).abs().amax(dim=-1) > WITHIN
        if off.any():
            b, head, i = off.nonzero()[0].tolist()
            reads = head // (h // h_kv)
            known = {told: one / largest for told, one in wrong_groups(q, k, v).items()}
            outcome.demand(
                False,
                f"head {head} of {h} reads head {reads} of the {h_kv} heads of keys and values; a "
                "new position attends to all up to itself",
                f"{int(off.sum())} of {off.numel()} outputs differ, first that of text {b}, head "
                f"{head}, new position {i}{cause(out / largest, known)}",
            )
    right("grouped", "Neighbouring heads read the same keys and values.")


@exercise
def decoder_is_sound(function: Callable[[Any], bool]) -> None:
    """Check a test of make(layer), which makes a decoder with read, crop, reorder and clear."""
    answer = Answer("decoder_is_sound", function)
    judge(answer, "make", SOUND, UNSOUND, times=1)


# What is handed over


def made_layer(d_model: int, h: int, d_k: int, d_v: int) -> MultiHeadAttention:
    """Make a layer with biases, all of its numbers drawn, and weights that are far from even."""
    with torch.random.fork_rng(devices=[]):
        layer = MultiHeadAttention(d_model, h, d_k=d_k, d_v=d_v).requires_grad_(False)
    draw = drawing(d_model)
    for parameter in layer.parameters():
        parameter.copy_(1.3 * draw(*parameter.shape) * parameter.shape[-1] ** -0.5)
    return layer


def steep_layer() -> MultiHeadAttention:
    """Make a layer whose queries are minus its keys: x's first numbers. Values are the second."""
    layer = made_layer(2, 1, 1, 1)
    for parameter, numbers in (
        (layer.w_qkv.weight, [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        (layer.w_qkv.bias, [0.0, 0.0, 0.0]),
        (layer.w_o.weight, [[1.0], [1.0]]),
        (layer.w_o.bias, [0.0, 0.0]),
    ):
        parameter.copy_(torch.tensor(numbers))
    return layer


WORDS = 23  # of a model's vocabulary


class Model(gpt.GPT):
    """A GPT that notes what it is called with."""

    calls: list[Tensor]

    def forward(self, ids: Tensor, *others: Any, **named: Any) -> Any:
        self.calls.append(ids.clone())
        return super().forward(ids, *others, **named)


Model.__name__ = "GPT"  # as a message shows it


@remembered
def made_model(seed: int, layers: int = 2, positions: str = "rotary", logits: float = 1.0) -> Model:
    """Make a small GPT in which attention has a say, and stretch its logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(WORDS, 12, 3, layers, positions=positions, max_length=64).requires_grad_(
            False
        )
    model.calls = []
    for name, parameter in model.named_parameters():
        if name.endswith("attention.w_qkv.weight"):
            parameter.mul_(3)
        elif name.endswith("attention.w_o.weight"):
            parameter.mul_(6)
    model.next_word.weight.mul_(logits)
    return model


# A seed, the model, the prompt's batch and length, how many words more, how many are read at once.
# In each text the largest logit leads the next by a hundredth or more. Of all new words, each word
# has another behind it somewhere: none ends a text.
WRITING: tuple[tuple[int, dict[str, Any], tuple[int, int], int, int], ...] = (
    (17, {}, (1, 5), 4, 3),
    (17, {}, (1, 8), 5, 3),
    (8, {}, (2, 8), 3, 4),
    (12, {"positions": "learned"}, (3, 7), 5, 4),
    (3, {"layers": 1}, (2, 6), 9, 1),
    (4, {"layers": 3, "positions": "none"}, (1, 8), 6, 20),
    (12, {"positions": "sinusoidal"}, (4, 1), 8, 2),
    (1, {}, (2, 4), 3, 4),
    (1, {"layers": 1}, (1, 150), 5, 40),
    (122, {"layers": 1}, (12, 3), 4, 2),
)
# A seed, the model, the text's length, and guesses: y is what the model says there, s what it says
# second, r the first of the guesses again, e a word that it says right after that word, f what it
# says first, n another. The first four rounds are to tell mistakes apart: in the last of them the
# model says one word three times and then three others, of which the first is the least likely.
GUESSING: tuple[tuple[int, dict[str, Any], int, tuple[str, ...]], ...] = (
    (23, {}, 3, ("nn",)),
    (31, {}, 3, ("efn",)),
    (1352, {}, 8, ("yyyyn",)),
    (1170, {}, 4, ("yyyyyy",)),
    (20, {}, 5, ("yyyny", "yye", "yyyyyn", "yyr", "ysyn", "yyyyyy", "y", "n", "yynyy")),
    (21, {"layers": 3, "positions": "learned"}, 1, ("yyy", "nn", "ynny")),
    (22, {"layers": 1}, 8, ("syn", "yyyyy", "yn")),
)


def guess(model: Model, ids: Tensor, pattern: str) -> Tensor:
    """Make guesses after a text, each the model's own word after those before it, or another."""
    text, n = ids, ids.shape[1]
    for letter in pattern:
        own, second = model(text)[:, -1:].topk(2).indices.unbind(dim=-1)
        other = {"y": own, "s": second, "r": text[:, n : n + 1], "n": (own + 5) % WORDS}
        other["f"] = model(ids)[:, -1:].argmax(dim=-1)
        if letter == "e":
            words = torch.arange(WORDS)[:, None]
            after = model(torch.cat([text.expand(WORDS, -1), words], dim=1))[:, -1:].argmax(dim=-1)
            other["e"] = words[(after == words) & (words != own) & (words != second)][:1, None]
        text = torch.cat([text, other[letter]], dim=1)
    return text[:, n:]


# What should come, and what comes by mistake


def greedy(model: Model, ids: Tensor, more: int) -> Tensor:
    """Write words, each the most likely, and read the whole text for each."""
    for _ in range(more):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def counted(count: int, what: str) -> str:
    """Write a number of things."""
    return f"{count} {what}" + "s" * (count != 1)


def whole_numbers(outcome: Outcome, *shape: int) -> Tensor:
    """Return the result as a tensor of whole numbers, or raise Wrong."""
    x, part = outcome.value, outcome.part
    outcome.demand(isinstance(x, Tensor), f"{part} is a tensor", f"came {kind(x)}")
    came = tuple(x.shape)
    outcome.demand(came == shape, f"{part} has the shape {shape}", f"came {came}")
    fits = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
    outcome.demand(fits, f"{part} holds whole numbers", f"came {x.dtype}: {show(x)}")
    return x.detach().cpu().long()


def attended(layer: MultiHeadAttention, x: Tensor, m: int, may: Tensor) -> Tensor:
    """Compute what a layer gives at the last m positions of x; may is (m, n)."""
    q, k, v = heads_of(layer, x)
    return layer.w_o(merge_heads(scaled_dot_product_attention(q[..., -m:, :], k, v, may)))


def cause(x: Tensor, mistakes: Mapping[str, Tensor]) -> str:
    """Name what gives this result, as the end of a sentence: all that do, or nothing."""
    found = [told for told, y in mistakes.items() if y.shape == x.shape and near(x, y)]
    return "; " * bool(found) + ", or ".join(found)


def expect_rows(
    outcome: Outcome, out: Tensor, wanted: Tensor, told: str, mistakes: Callable[[], dict]
) -> None:
    """Demand outputs (B, m, d_model) that are off by little; name the first, and the mistake."""
    largest = float(wanted.abs().max())
    by = ((out - wanted) / largest).abs().amax(dim=-1)
    off = by > WITHIN
    if off.any():
        b, i = off.nonzero()[0].tolist()
        known = {mistake: came / largest for mistake, came in mistakes().items()}
        outcome.demand(
            False,
            told,
            f"{int(off.sum())} of {off.numel()} outputs differ, by up to {float(by.max()):.2g} "
            f"times the largest, first that of text {b} at new position {i} of {off.shape[1]}"
            + cause(out / largest, known),
        )


def wrong_steps(layer: MultiHeadAttention, x: Tensor, m: int) -> dict[str, Tensor]:
    """Give what comes out of a step that goes wrong, by the words for it."""
    n = x.shape[1]
    found = {told: attended(layer, x, m, may) for told, may in wrong_masks(m, n).items()}
    twice = torch.cat([x, x[:, -m:]], dim=1)
    found["the new positions are joined to the past twice"] = attended(
        layer, twice, m, causal_mask(m, n + m)
    )
    if m < n:
        past = x[:1, :-m].expand(len(x), -1, -1)
        found["all texts hear the past of the first"] = attended(
            layer, torch.cat([past, x[:, -m:]], dim=1), m, causal_mask(m, n)
        )
    return found | wrong_layers(layer, x, m, causal_mask(m, n))


def uncropped(layer: MultiHeadAttention, x: Tensor, m: int) -> dict[str, Tensor]:
    """Give what comes of a mask for a longer past, by the words for it."""
    told = "the mask is one for a longer text, as if nothing had been cropped"
    return {told: attended(layer, x, m, torch.ones(m, x.shape[1], dtype=torch.bool))}


def wrong_exponentials(layer: MultiHeadAttention, x: Tensor, m: int) -> dict[str, Tensor]:
    """Give what comes of weights that are right where all scores are close together."""
    q, k, v = heads_of(layer, x)
    s, may = q @ k.mT, causal_mask(m)
    low, bare = (s - s.amax(dim=-1, keepdim=True)).exp() * may, s.exp() * may
    before = "the largest score is taken before the mask, and low exponentials lose their digits"
    added = "something is added to the sum of the exponentials, which can be far smaller"
    weights = {before: low / low.sum(-1, True), added: bare / (bare.sum(-1, True) + 1e-9)}
    for fill in (50, 60, 70):
        weights[f"hidden scores are set to −{fill}"] = s.masked_fill(~may, -fill).softmax(-1)
    weights["hidden scores are lowered by 100 and no more"] = (s - 100 * ~may).softmax(-1)
    return {told: layer.w_o(merge_heads(one @ v)) for told, one in weights.items()}


def wrong_masks(m: int, n: int) -> dict[str, Tensor]:
    """Give masks (m, n) that are not the causal one, by the words for them."""
    every = torch.ones(m, n, dtype=torch.bool)
    place, own = torch.arange(n), torch.arange(n - m, n)[:, None]
    return {
        "later positions of the block are heard": every,
        "each position hears the one after it as well": every.tril(n - m + 1),
        "the past is not heard": causal_mask(m, n) & (place >= n - m),
        "of its block a position hears itself alone": (place < n - m) | (place == own),
        "the mask begins in the upper left corner, as if nothing came before": every.tril(),
        "a position does not hear itself": every.tril(n - m - 1),
    }


def wrong_layers(layer: MultiHeadAttention, x: Tensor, m: int, may: Tensor) -> dict[str, Tensor]:
    """Give what comes out if something other than the mask is wrong, by the words for it."""
    B, n, _ = x.shape
    q, k, v = heads_of(layer, x)
    q = q[..., -m:, :]
    heads = scaled_dot_product_attention(q, k, v, may)
    wrong = wrong_heads(q, k, v, may, layer.d_model)
    found = {told: layer.w_o(merge_heads(one)) for told, one in wrong.items()}
    found["the heads are joined without moving the axis of positions first"] = layer.w_o(
        heads.reshape(B, m, -1)
    )
    out = layer.w_o(merge_heads(heads))
    found["x is added to the output"] = x[:, -m:] + out
    found["the bias of w_o is left out"] = out - layer.w_o.bias
    bare = deepcopy(layer)
    bare.w_qkv.bias.zero_()
    found["the biases of w_q, w_k and w_v are left out"] = attended(bare, x, m, may)
    if m == n:
        lie = [part(x).reshape(B, layer.h, n, -1) for part in (layer.w_q, layer.w_k, layer.w_v)]
        heads = scaled_dot_product_attention(lie[0], lie[1], lie[2], may)
        told = "heads are split by one reshape, which mixes positions and heads"
        found[told] = layer.w_o(merge_heads(heads))
        found[f"{told}, and joined by another"] = layer.w_o(heads.reshape(B, m, -1))
    return found


def wrong_heads(
    q: Tensor, k: Tensor, v: Tensor, may: Tensor, d_model: int | None = None
) -> dict[str, Tensor]:
    """Give what heads come to if something other than the mask is wrong, by the words for it."""
    d_k, d_v, s = q.shape[-1], v.shape[-1], q @ k.mT
    scales = {"1": 1.0, "1/d_k": 1 / d_k, "√d_k": d_k**0.5, "1/√d_v": d_v**-0.5}
    if d_model is not None:
        h = q.shape[1]
        scales["1/√d_model"] = d_model**-0.5
        scales["1/√(d_model/h)"] = (d_model / h) ** -0.5
        scales["1/√(d_model // h)"] = max(d_model // h, 1) ** -0.5
    found = {
        f"the scale is not 1/√d_k but {told}": (scale * s).masked_fill(~may, -INF).softmax(-1) @ v
        for told, scale in scales.items()
    }
    s = s / d_k**0.5
    return found | {
        "the softmax is over the heads": s.masked_fill(~may, -1e9).softmax(1) @ v,
        "the softmax is over the queries": s.masked_fill(~may, -INF).softmax(-2) @ v,
        "the mask comes after the softmax": s.softmax(-1) * may @ v,
        "the mask hides what it should leave": s.masked_fill(may, -1e9).softmax(-1) @ v,
        "hidden scores are set to 0, and e⁰ is 1": (s * may).softmax(-1) @ v,
    }


def over_shared(q: Tensor, k: Tensor, v: Tensor, may: Tensor | None = None) -> Tensor:
    """Attend where neighbours share keys and values: (B, h, m, d_v)."""
    k, v = expanded(k, v, q.shape[1])
    may = causal_mask(q.shape[2], k.shape[2]) if may is None else may
    return scaled_dot_product_attention(q, k, v, may)


def expanded(k: Tensor, v: Tensor, h: int) -> tuple[Tensor, Tensor]:
    """Repeat keys and values for each of the heads that read them."""
    k, v = (x.repeat_interleave(h // x.shape[1], dim=1) for x in (k, v))
    return k, v


def wrong_groups(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    """Give what comes of shared keys that are read wrongly, by the words for it."""
    (B, h, m, d_k), (h_kv, n) = q.shape, k.shape[1:3]
    shared_k, shared_v = expanded(k, v, h)
    tiled_k, tiled_v = (x.repeat(1, h // x.shape[1], 1, 1) for x in (k, v))
    found = {
        "it is as if the heads of keys were dealt out in turn: head 0 to the first, head 1 to the "
        "second, and head 0 again": over_shared(q, tiled_k, tiled_v),
        "keys are read rightly, and values in turn": over_shared(q, shared_k, tiled_v),
        "all heads read the first head of keys": over_shared(q, k[:, :1], v[:, :1]),
    }
    rows = m * h // h_kv
    folded = "where the queries of a group are the rows of one matrix, "
    for told, may in (
        ("one triangle covers them all", torch.ones(rows, n, dtype=torch.bool).tril(n - m)),
        ("one triangle covers them all, from the lower right corner", causal_mask(rows, n)),
        ("each row of the mask is repeated", causal_mask(m, n).repeat_interleave(h // h_kv, 0)),
    ):
        heads = scaled_dot_product_attention(q.reshape(B, h_kv, rows, d_k), k, v, may)
        found[folded + told] = heads.reshape(B, h, m, -1)
    found |= {told: over_shared(q, k, v, may) for told, may in wrong_masks(m, n).items()}
    return found | wrong_heads(q, shared_k, shared_v, causal_mask(m, n))


def heads_of(layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Project x, and split queries, keys and values into heads."""
    q, k, v = layer.w_q(x), layer.w_k(x), layer.w_v(x)
    return split_heads(q, layer.h), split_heads(k, layer.h_kv), split_heads(v, layer.h_kv)


def wrong_windows(
    layer: MultiHeadAttention, x: Tensor, m: int, w: int, before: int, left: Tensor | None
) -> dict[str, Tensor]:
    """Give what comes out of a window that goes wrong, by the words for it."""
    n = x.shape[1]
    causal, may = causal_mask(m, n), window_mask(m, n, w)
    place, own = torch.arange(n), torch.arange(n - m, n)[:, None]
    masks = {
        "all that was kept is heard, and the block up to the position itself": causal
        & (place >= n - m - w),
        "one position too many is heard": window_mask(m, n, w + 1),
        "one position too few is heard": window_mask(m, n, max(w - 1, 1)),
        "the window is that of the block's last position": causal & (place >= n - w),
        "later positions of the block are heard": place > own - w,
        "the mask begins in the upper left corner, as if nothing came before": window_mask(n, n, w)[
            :m
        ],
        "the past is not heard": may & (place >= n - m),
        "of the past only the last block is heard": may & (place >= n - m - before),
        "the text is cut into chunks of w, and a position hears its own": causal
        & (place // w == own // w),
    }
    kept = {"of the past the first w positions are kept": place[: min(w, n - m)]}
    if n - m > before:
        kept["the block before this one is not kept"] = place[: n - m - before][-w:]
    if n - m < w:
        told = f"of the past the slice from {n - m} − {w} on is kept, which counts from the end"
        kept[told] = place[: n - m][n - m - w :]
    for told, old in kept.items():
        joined = torch.cat([old, place[n - m :]])
        masks[told] = torch.zeros(m, n, dtype=torch.bool)
        masks[told][:, joined] = window_mask(m, len(joined), w)
    found = {told: attended(layer, x, m, one) for told, one in masks.items()}
    if left is not None:
        told = (
            "another text, of the call before, is heard: something is kept beside what is returned"
        )
        joined = torch.cat([left, x[:, n - m :]], dim=1)
        found[told] = attended(layer, joined, m, window_mask(m, joined.shape[1], w))
    q, k, v = heads_of(layer, x)
    k, v = (nn.functional.pad(one, (0, 0, 0, w)) for one in (k, v))
    with_room = torch.cat([may, torch.arange(w) < w - 1 - own], dim=1)
    found["empty slots of zeros are heard"] = layer.w_o(
        merge_heads(scaled_dot_product_attention(q[..., -m:, :], k, v, with_room))
    )
    return found | wrong_layers(layer, x, m, may)


def numbers_in(kept: Any) -> list[Tensor]:
    """List all floating-point numbers that an object holds, as tensors."""
    found: list[Tensor] = []
    todo, seen = [kept], set()
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, nn.Module):
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            found += [one] * one.is_floating_point()
        elif isinstance(one, float):
            found.append(torch.tensor([one]))
        elif hasattr(one, "__array__"):
            todo.append(torch.as_tensor(one))
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, (list, tuple, set, deque)):
            todo += one
        else:
            todo += vars(one).values() if hasattr(one, "__dict__") else []
    return found


def known_text(
    model: Model, ids: Tensor, more: int, c: int, got: Tensor, heard: Tensor | None
) -> str:
    """Name the mistake by which a model writes this text, as the end of a sentence."""
    n = ids.shape[1]
    start = (n - 1) // c * c  # of the prompt's last piece
    alone, forgets = ids, greedy(model, ids[:, start:], 1)
    first, fresh = model(ids)[:, start : start + 1].argmax(dim=-1), greedy(model, ids, 1)
    for _ in range(more):
        alone = torch.cat([alone, greedy(model, alone[:, -1:], 1)[:, 1:]], dim=1)
        forgets = torch.cat([forgets, greedy(model, forgets[:, -1:], 1)[:, 1:]], dim=1)
        fresh = torch.cat([fresh, greedy(model, fresh[:, -1:], 1)[:, 1:]], dim=1)
    texts = {
        "where only the last piece of the prompt was read": greedy(model, ids[:, start:], more),
        "where each word is read alone": alone,
        "where nothing is kept from one call to the next": forgets[:, :-1],
        "where each new word is read into empty caches": fresh[:, :-1],
        "where the last piece's first row of logits says the first word": greedy(
            model, torch.cat([ids, first], dim=1), more - 1
        ),
        "one word later": greedy(model, ids, more + 1),
        "where the prompt's last word was read twice": greedy(
            model, torch.cat([ids, ids[:, -1:]], dim=1), more
        ),
    }
    if heard is not None and len(heard) == len(ids):
        told = "where the caches still hold the text of the call before"
        texts[told] = greedy(model, torch.cat([heard, ids], dim=1), more)
    if len(ids) > 1 and (got[:, n:] == got[:1, n:]).all():
        return "; all texts go on with the same words"
    if start:
        texts["where the prompt's last piece was left out"] = greedy(model, ids[:, :start], more)
    mistakes = {f"so it goes on {told}": text[:, -more:].double() for told, text in texts.items()}
    return cause(got[:, n:].double(), mistakes)


def wrong_words(best: Tensor, last: Tensor, guesses: Tensor, a: int) -> dict[str, Tensor]:
    """Give words that come by mistake, where the model says most and second most so much."""
    said, g = best[..., 0], guesses.shape[1]
    all_stand, fits = a == g, said[:, :-1] == guesses
    late = (said[:, 1:] == guesses).long().cumprod(dim=1).sum()
    second = (best[:, :-1] == guesses[..., None]).any(dim=-1).long().cumprod(dim=1).sum()
    anywhere = torch.isin(guesses, said).long().cumprod(dim=1).sum()
    own, others = said[0].tolist(), guesses[0].tolist()
    firsts = [*(own[others.index(word)] == word for word in others), False]
    counts = {
        LATE: int(fits.sum()),
        "as if each guess were compared with the model's word after it": int(late),
        "a guess counts that is the model's second choice": int(second),
        "a guess counts that stands anywhere among the model's words": int(anywhere),
        "a guess that stands earlier, too, is compared with the model's word there": firsts.index(
            False
        ),
        "one guess at most counts": min(a, 1),
        "nothing is thrown away": g,
        "once a guess differs, those before it are thrown away as well": a if all_stand else 0,
        "where none differs, none counts": 0 if all_stand else a,
        "where all stand, the model's word on top is missing": min(a, g - 1),
    }
    if not all_stand:
        told = "the guess that differs stands earlier, too, and is looked up there"
        counts[told] = others.index(others[a])
    mistakes = {told: said[:, : count + 1] for told, count in counts.items()}
    mistakes["the model's word after them is missing"] = said[:, :a]
    mistakes["last is returned as well"] = torch.cat([last, said[:, : a + 1]], dim=1)
    mistakes["the model's word after all guesses comes after those that stand"] = torch.cat(
        [said[:, :a], said[:, -1:]], dim=1
    )
    if not all_stand:
        mistakes["the guess that differs is in the place of the model's word"] = torch.cat(
            [said[:, :a], guesses[:, a : a + 1]], dim=1
        )
    return mistakes


def known_places(places: Tensor, words: Tensor, real: Tensor) -> str:
    """Name the mistake in places, at words, as the end of a sentence."""
    n, m = real.shape[1], words.shape[1]
    mistakes = {
        "they are counted from 1": real.cumsum(dim=1)[:, n - m :],
        "the padding was counted": torch.arange(n - m, n),
        "all texts are padded as text 0 is": torch.arange(n - m, n) - (~real[0]).sum(),
        "all texts are padded as the longest is": torch.arange(m) + real.sum(dim=1).max() - m,
        "the block's first position has place 0": torch.arange(m),
        "only the words of the block were counted": words.cumsum(dim=1) - 1,
        "the sum runs along the texts": real.cumsum(dim=0)[:, n - m :] - 1,
        "they are those of the first positions, not of the last": real.cumsum(dim=1)[:, :m] - 1,
        "they are counted from the end": torch.arange(m).flip(0),
    }
    return cause((places * words).double(), {told: one * words for told, one in mistakes.items()})


def known_mask(may: Tensor, real: Tensor, m: int, asked: Tensor) -> str:
    """Name the mistake in a mask, at words, as the end of a sentence."""
    n = real.shape[1]
    causal, words = causal_mask(m, n), real[:, None, None, :]
    places = (real.cumsum(dim=1) - 1)[:, None, n - m :, None]
    told, rows = "padding is not hidden", may.masked_fill(asked, False)
    if not asked.all() and not rows.any():
        told = "padding is hidden as a query, along the rows, and not as a key, along the columns"
    mistakes = {
        told: causal.expand(may.shape),
        "the future is not hidden": words.expand(may.shape),
        "True and False have changed places": ~(causal & words),
        "the mask begins in the upper left corner": causal_mask(n)[:m] & words,
        "places are compared with positions, which count the padding": words
        & (torch.arange(n) <= places),
        "all texts are padded as text 0 is": causal & words[:1].expand(may.shape),
        "padding is hidden where it would stand on the right": causal
        & (torch.arange(n) < real.sum(dim=1, keepdim=True))[:, None, None, :],
    }
    return cause((may & asked).double(), {told: one & asked for told, one in mistakes.items()})


# Decoders: make(layer) gives one, with read(x), crop(n), reorder(index) and clear()


class Concatenates:
    """new keys and values are put behind those that are held"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        self.layer = layer
        self.k: Tensor | None = None  # (B, h_kv, n, d_k)
        self.v: Tensor | None = None  # (B, h_kv, n, d_v)

    @property
    def n(self) -> int:
        return 0 if self.k is None else self.k.shape[-2]

    def read(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        return self.mixed(q, *self.kept(k, v))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of new positions, turned."""
        layer, start = self.layer, self.start()
        q, k, v = heads_of(layer, x)
        return self.turned(q, start), self.turned(k, start), v

    def start(self) -> int:
        return self.n

    def turned(self, x: Tensor, start: int) -> Tensor:
        return x if self.layer.rotary_base is None else rotate(x, self.layer.rotary_base, start)

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new keys and values, and return all."""
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], dim=-2), torch.cat([self.v, v], dim=-2)
        self.k, self.v = k, v
        return k, v

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        may = self.may(q.shape[-2], k.shape[-2])
        k, v = self.read_by(k, v)
        s = (q @ k.mT * self.layer.d_k**-0.5).masked_fill(~may, -INF)
        return self.layer.w_o(merge_heads(s.softmax(dim=-1) @ v))

    def read_by(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each head of queries reads, (B, h, n, d)."""
        return expanded(k, v, self.layer.h)

    def may(self, n_q: int, n_k: int) -> Tensor:
        return causal_mask(n_q, n_k)

    def crop(self, n: int) -> None:
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[..., :n, :], self.v[..., :n, :]

    def reorder(self, index: Tensor) -> None:
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[index], self.v[index]

    def clear(self) -> None:
        self.k = self.v = None


class LabkitsOwn(Concatenates):
    """labkit's layer and its cache"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.clear()

    def read(self, x: Tensor) -> Tensor:
        return self.layer(x, cache=self.cache)

    def crop(self, n: int) -> None:
        self.cache.crop(n)

    def reorder(self, index: Tensor) -> None:
        self.cache.reorder(index)

    def clear(self) -> None:
        self.cache = KVCache()


class ReadsAllAgain(Concatenates):
    """nothing but the inputs is kept, and all is computed anew"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.x: Tensor | None = None

    def read(self, x: Tensor) -> Tensor:
        self.x = x.clone() if self.x is None else torch.cat([self.x, x], dim=1)
        return self.layer(self.x, is_causal=True)[:, -x.shape[1] :]

    def crop(self, n: int) -> None:
        self.x = None if self.x is None else self.x[:, :n]

    def reorder(self, index: Tensor) -> None:
        self.x = None if self.x is None else self.x[index]

    def clear(self) -> None:
        self.x = None


class CountsFromSeven(Concatenates):
    """positions are counted from 7: turned vectors tell distances alone"""

    def start(self) -> int:
        return 7 + self.n


class CountsOnAfterClear(Concatenates):
    """a new text's positions are counted on from the last: turned vectors tell distances alone"""

    before = 0

    def start(self) -> int:
        return self.before + self.n

    def clear(self) -> None:
        self.before += self.n
        super().clear()


class OneByOne(Concatenates):
    """a block is read position by position"""

    def read(self, x: Tensor) -> Tensor:
        return torch.cat([super(OneByOne, self).read(one) for one in x.split(1, dim=1)], dim=1)


class BackToFront(Concatenates):
    """the last key comes first, so that sums have another order"""

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().mixed(q, k.flip(-2), v.flip(-2))

    def may(self, n_q: int, n_k: int) -> Tensor:
        return causal_mask(n_q, n_k).flip(-1)


class InTwoParts(Concatenates):
    """past and block are mixed apart, and joined by the sums of their exponentials"""

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n_k = k.shape[-2]
        n = n_k - q.shape[-2]
        k, v = self.read_by(k, v)
        s = (q @ k.mT * self.layer.d_k**-0.5).masked_fill(~self.may(n_k - n, n_k), -INF)
        e = (s - s.amax(dim=-1, keepdim=True)).exp()
        past, new = e[..., :n], e[..., n:]
        total = past.sum(dim=-1, keepdim=True) + new.sum(dim=-1, keepdim=True)
        heads = (past @ v[..., :n, :] + new @ v[..., n:, :]) / total
        return self.layer.w_o(merge_heads(heads))


class TurnsLate(Concatenates):
    """keys are kept as they are, and turned whenever they are used"""

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        layer, start = self.layer, self.start()
        q, k, v = heads_of(layer, x)
        return self.turned(q, start), k, v

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().mixed(q, self.turned(k, 0), v)


ROOM = 128  # positions, for texts of up to 100


class WithRoom(Concatenates):
    """keys and values lie in memory with room for more, and empty slots are hidden"""

    filled = 0

    @property
    def n(self) -> int:
        return self.filled

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.k is None or self.v is None:
            self.k, self.v = (x.new_zeros(*x.shape[:2], ROOM, x.shape[-1]) for x in (k, v))
        end = self.n + k.shape[-2]
        if end > ROOM:
            raise ValueError(f"a text has {end} positions, and a decoder need not hold over 100")
        self.k[..., self.n : end, :], self.v[..., self.n : end, :] = k, v
        self.filled = end
        return self.k, self.v

    def may(self, n_q: int, n_k: int) -> Tensor:
        return torch.ones(n_q, n_k, dtype=torch.bool).tril(self.n - n_q)

    def crop(self, n: int) -> None:
        self.filled = n

    def clear(self) -> None:
        super().clear()
        self.filled = 0


class Restarts(Concatenates):
    """turned, it takes the first position of every block for the text's first"""

    def start(self) -> int:
        return 0


class OneLate(Concatenates):
    """turned, a block's distance to what was read before is one too large"""

    def start(self) -> int:
        return self.n + (self.n > 0)


class QueriesAtOnePlace(Concatenates):
    """turned, all queries of a block stand at its first position"""

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, k, v = super().projected(x)
        q, start = split_heads(self.layer.w_q(x), self.layer.h), self.start()
        return torch.cat([self.turned(one, start) for one in q.split(1, dim=-2)], dim=-2), k, v


class TurnsAgain(Concatenates):
    """turned, keys are turned once more whenever more is read"""

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.k is not None and self.n:
            self.k = self.turned(self.k, 0)
        return super().kept(k, v)


class CountsOnAfterCrop(Concatenates):
    """turned, what is read after a crop stands as far back as if nothing had been cut"""

    read_so_far = 0

    def read(self, x: Tensor) -> Tensor:
        out = super().read(x)
        self.read_so_far += x.shape[1]
        return out

    def start(self) -> int:
        return self.read_so_far

    def clear(self) -> None:
        super().clear()
        self.read_so_far = 0


class OwnUnheard(Concatenates):
    """once there is a past, a position does not hear itself"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        return causal_mask(n_q, n_k).tril(n_k - n_q - (n_k > n_q))


class UpperLeft(Concatenates):
    """once there is a past, a block hears too little of it"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        return torch.ones(n_q, n_k, dtype=torch.bool).tril()


class OpenOntoPast(Concatenates):
    """once there is a past, a position hears those after it in its block"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        return causal_mask(n_q, n_k) | (n_k > n_q)


class OpenAtFirst(Concatenates):
    """in a text's first block, a position hears those after it"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        return causal_mask(n_q, n_k) | (n_k == n_q)


class ValuesNotKept(Concatenates):
    """once there is a past, its values are lost"""

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = super().kept(k, v)
        self.v = torch.zeros_like(v)
        return k, v


class NewFirst(Concatenates):
    """one by one all is right; a block onto a past is not, nor is what follows a crop"""

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.k is not None and self.v is not None:
            k, v = torch.cat([k, self.k], dim=-2), torch.cat([v, self.v], dim=-2)
        self.k, self.v = k, v
        return k, v


class EmptySlotsWeigh(Concatenates):
    """unless the number of positions is a multiple of 4, it is as if zeros were heard as well"""

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        room = -k.shape[-2] % 4
        k, v = (nn.functional.pad(x, (0, 0, 0, room)) for x in (k, v))
        self.room = room
        return super().mixed(q, k, v)

    def may(self, n_q: int, n_k: int) -> Tensor:
        n = n_k - self.room
        return torch.cat([causal_mask(n_q, n), torch.ones(n_q, self.room, dtype=torch.bool)], 1)


class StaleSlots(WithRoom):
    """after a crop, what was cut is heard until something is written over it"""

    most = 0

    def may(self, n_q: int, n_k: int) -> Tensor:
        self.most = max(self.most, self.n)
        open_ = super().may(n_q, n_k)
        open_[:, self.n : self.most] = True
        return open_

    def clear(self) -> None:
        super().clear()
        self.most = 0


class OldestFallOut(Concatenates):
    """of more than 32 positions, the oldest are no longer heard"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        return window_mask(n_q, n_k, 32)


class FirstTextForAll(Concatenates):
    """all texts hear the past of the first"""

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = k.shape[-2] - q.shape[-2]
        k, v = (torch.cat([x[:1, :, :n].expand_as(x[:, :, :n]), x[:, :, n:]], -2) for x in (k, v))
        return super().mixed(q, k, v)


class KeepsTheCallersInput(ReadsAllAgain):
    """what the caller writes into x afterwards changes the past"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.parts: list[Tensor] = []

    def read(self, x: Tensor) -> Tensor:
        self.parts.append(x)
        return self.layer(torch.cat(self.parts, dim=1), is_causal=True)[:, -x.shape[1] :]

    def crop(self, n: int) -> None:
        self.parts = [torch.cat(self.parts, dim=1)[:, :n]] if self.parts else []

    def reorder(self, index: Tensor) -> None:
        self.parts = [part[index] for part in self.parts]

    def clear(self) -> None:
        self.parts = []


class OneOutput(Concatenates):
    """what came out changes when another block of its size is read"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.outs: dict[torch.Size, Tensor] = {}

    def read(self, x: Tensor) -> Tensor:
        out = super().read(x)
        return self.outs.setdefault(out.shape, out).copy_(out)


class OneForAll(Concatenates):
    """of two decoders of a layer that are used in turns, one hears the other's text"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        ONE_FOR_ALL.pop(layer, None)

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k, self.v = ONE_FOR_ALL.get(self.layer, (self.k, self.v))
        if self.k is not None and len(self.k) != len(k):
            self.k = self.v = None
        return self.shared(*super().kept(k, v))

    def shared(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        ONE_FOR_ALL[self.layer] = k, v
        return k, v

    def crop(self, n: int) -> None:
        super().crop(n)
        if self.k is not None and self.v is not None:
            self.shared(self.k, self.v)

    def reorder(self, index: Tensor) -> None:
        super().reorder(index)
        if self.k is not None and self.v is not None:
            self.shared(self.k, self.v)

    def clear(self) -> None:
        super().clear()
        ONE_FOR_ALL.pop(self.layer, None)


ONE_FOR_ALL: WeakKeyDictionary[MultiHeadAttention, tuple[Tensor, Tensor]] = WeakKeyDictionary()


class DealtInTurn(Concatenates):
    """where several heads share several heads of keys, they read one another's"""

    def read_by(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (x.repeat(1, self.layer.h // x.shape[1], 1, 1) for x in (k, v))
        return k, v


class KeepsACopy(Concatenates):
    """keeps a copy of the layer, as it is when the decoder is made"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(deepcopy(layer))


class WithoutBiases(Concatenates):
    """the layer's biases are left out"""

    def __init__(self, layer: MultiHeadAttention) -> None:
        bare = deepcopy(layer)
        for part in (bare.w_qkv, bare.w_o):
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        super().__init__(bare)


class SinglesHearTheFirst(Concatenates):
    """a position that is read alone hears the text's first and itself, and nothing between"""

    def may(self, n_q: int, n_k: int) -> Tensor:
        between = (torch.arange(n_k) > 0) & (torch.arange(n_k) < n_k - 1)
        return causal_mask(n_q, n_k) & ~(between & (n_q == 1))


class TextsBackwards(Concatenates):
    """outputs are right, but come in the reverse order of the texts"""

    def read(self, x: Tensor) -> Tensor:
        return super().read(x).flip(0)


class TooLarge(Concatenates):
    """outputs point where they should, and are a tenth too long"""

    def read(self, x: Tensor) -> Tensor:
        return 1.1 * super().read(x)


class InBfloat16(Concatenates):
    """keys and values are kept in bfloat16, which has two to three digits"""

    def kept(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().kept(*(x.bfloat16().float() for x in (k, v)))


class NotCleared(Concatenates):
    """after clear, a batch of the same size hears the texts before"""

    cleared = False

    def read(self, x: Tensor) -> Tensor:
        if self.cleared and self.k is not None and len(self.k) != len(x):
            super().clear()
        self.cleared = False
        return super().read(x)

    def clear(self) -> None:
        self.cleared = True


class NotReordered(Concatenates):
    """a reorder that keeps the number of texts changes nothing"""

    def reorder(self, index: Tensor) -> None:
        if self.k is not None and len(index) != len(self.k):
            super().reorder(index)


class RegroupedInOrder(Concatenates):
    """a reorder that changes the number of texts takes them in the order in which they were"""

    def reorder(self, index: Tensor) -> None:
        if self.k is not None and len(index) != len(self.k):
            index = torch.arange(len(index)) % len(self.k)
        super().reorder(index)


class ReorderedBackwards(Concatenates):
    """a reorder without repetition is done the other way round, which shows from three texts on"""

    def reorder(self, index: Tensor) -> None:
        turned_round = index.argsort()
        once = torch.equal(index[turned_round], torch.arange(len(index)))
        super().reorder(turned_round if once else index)


class ReorderedOneByOne(Concatenates):
    """in a reorder, a text is written over before it has been copied for others"""

    def reorder(self, index: Tensor) -> None:
        if self.k is None or self.v is None or len(index) != len(self.k):
            super().reorder(index)
            return
        for held in (self.k, self.v):
            for b, source in enumerate(index.tolist()):
                held[b] = held[source]


class NotCropped(Concatenates):
    """what was cut off is still heard"""

    def crop(self, n: int) -> None:
        pass


class CroppedOneShort(Concatenates):
    """of what was cut off, the first position is still heard"""

    def crop(self, n: int) -> None:
        super().crop(n + 1)


class CropsToNothing(Concatenates):
    """a crop to 0 positions leaves all"""

    def crop(self, n: int) -> None:
        if n:
            super().crop(n)


def made(sort: type[Concatenates]) -> Callable[[MultiHeadAttention], SimpleNamespace]:
    """Make decoders of a sort, whose names give nothing away."""

    def make(layer: MultiHeadAttention) -> SimpleNamespace:
        behind = sort(layer)
        methods = (behind.read, behind.crop, behind.reorder, behind.clear)
        calls = {one.__name__: one_pass()(torch.no_grad()(one)) for one in methods}
        return SimpleNamespace(**calls)

    make.__doc__ = sort.__doc__
    return make


SOUND = tuple(
    made(sort)
    for sort in (
        *(Concatenates, LabkitsOwn, ReadsAllAgain, CountsFromSeven, CountsOnAfterClear),
        *(OneByOne, BackToFront, InTwoParts, TurnsLate, WithRoom, KeepsACopy),
    )
)
UNSOUND = tuple(
    made(sort)
    for sort in (
        *(NewFirst, OpenOntoPast, OpenAtFirst, UpperLeft, ValuesNotKept, OwnUnheard),
        *(Restarts, OneLate, TurnsAgain, QueriesAtOnePlace, FirstTextForAll),
        *(NotCropped, CroppedOneShort, CountsOnAfterCrop, StaleSlots, CropsToNothing),
        *(NotReordered, ReorderedOneByOne, ReorderedBackwards, NotCleared, EmptySlotsWeigh),
        *(OldestFallOut, OneOutput, KeepsTheCallersInput, OneForAll, DealtInTurn),
        *(WithoutBiases, SinglesHearTheFirst, TextsBackwards, TooLarge, InBfloat16),
        RegroupedInOrder,
    )
)
