"""Lab 6: find heads of the pretrained encoder, take them away, and fool one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit import heads
from labkit.checks.guard import (
    Answer,
    NotYet,
    Outcome,
    exercise,
    kind,
    near,
    recognise,
    right,
    show,
    single,
)
from labkit.encoder import Encoder, load_encoder

DELIMITERS = tuple(".,;:?!")
SENTENCES = (
    "The children, who were tired, went home.",
    "Every map leaves something out.",
    "She opened the door, took the letter and left.",
    "If it rains, we stay; if not, we go.",
)
COMPARED = ("Rain fell.", "The old clock in the hall had stopped, and nobody knew why.")
FOOLED = (3, 1)  # the head with the fine picture in chapter 9
LEAST = 0.02  # difference between two weights that is more than a whim
COINS, TOSSES, TRIES = 72, 28, 100  # as many coins as the encoder has heads; rows in each half
NOISE = 1e-4  # by which cosines in single precision may differ


@exercise
def weight_on(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check the average weight on a relation: (h, n_q, n_k) and (n_q, n_k) to (h,)."""
    answer = Answer("weight_on", function)
    A = torch.tensor([[[1.0, 0.0, 0.0], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]])
    previous = heads.offset_relation(3, -1)
    outcome = answer(weights=A, relation=previous)
    came = outcome.tensor(1)
    mistakes = {
        "that divides by all queries, also the one with no related key": torch.tensor([0.5]),
        "that is a sum": torch.tensor([1.5]),
        "the relation is taken from key to query": heads.relation_weight(A, previous.T),
    }
    outcome.demand(
        near(came, 0.75),
        "two queries have a related key and give it 0.7 and 0.8: on average 0.75",
        f"came {show(came)}{recognise(came, mistakes)}",
    )
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6], [0.6, 0.3, 0.1]]])
    outcome = answer(
        weights=weights, relation=torch.tensor([[True, True, False], [True, False, False]])
    )
    came = outcome.tensor(2)
    wanted = torch.tensor([0.45, 0.5])
    mistakes = {
        "that is the average over related keys, and not over queries": wanted * 2 / 3,
        "that is one number for all heads": wanted.mean().expand(2),
    }
    outcome.demand(
        near(came, wanted),
        "the weights on all related keys of a query add up, and each head has its own average: "
        "of 0.8 and 0.1, and of 0.4 and 0.6",
        f"came {show(came)}{recognise(came, mistakes)}",
    )
    right("weight_on", "A head that does nothing else has 1.")


@exercise
def relations(function: Callable[[list[str]], tuple[Tensor, Tensor]]) -> None:
    """Check the relations to the previous token and to delimiters: two of (n, n), boolean."""
    answer = Answer("relations", function)
    for tokens in (
        "[CLS] no , she left . [SEP]".split(),
        "[CLS] why ? [SEP]".split(),
        "[CLS] stop ! wait : now ; or not . [SEP]".split(),
    ):
        n = len(tokens)
        outcome = answer(tokens=tokens)
        first, second = outcome.pair("previous", "delimiters")
        found = first.tensor(n, n, boolean=True)
        wanted = heads.offset_relation(n, -1)
        told = f"previous is True at (query, key) = {show(found.nonzero().tolist())[:200]}"
        if torch.equal(found, wanted.T):
            told += "; that is the token after"
        elif torch.equal(found, wanted | heads.offset_relation(n, n - 1)):
            told += "; the first token has none before it"
        first.demand(
            torch.equal(found, wanted),
            "each token but the first is related to the one before it, and to no other",
            told,
        )
        found = second.tensor(n, n, boolean=True)
        wanted = torch.tensor([token in DELIMITERS for token in tokens]).expand(n, n)
        missed, extra = wanted & ~found, found & ~wanted
        told = f"{int(missed.sum())} pairs are missing and {int(extra.sum())} too many"
        if torch.equal(found, wanted.T):
            told += "; queries are rows, keys are columns"
        elif extra.any():
            told += f", such as query {show(place(extra, tokens))}"
        elif missed.any():
            told += f", such as query {show(place(missed, tokens))}"
        second.demand(
            torch.equal(found, wanted),
            f"every query is related to every key that is one of {' '.join(DELIMITERS)}",
            told,
        )
    right("relations", "Rows ask, columns are asked.")


def place(where: Tensor, tokens: list[str]) -> str:
    """Name the first pair of query and key at which a table is True."""
    query, key = where.nonzero()[0].tolist()
    return f"{tokens[query]!r} and key {tokens[key]!r}"


@exercise
def specialists(value: Any) -> None:
    """Check three heads of the encoder, each (layer, head), by name of what they look at."""
    outcome = begun("specialists", value)
    tables = measured(load_encoder())
    fits = isinstance(value, dict) and set(value) == set(tables)
    outcome.demand(fits, f"a dictionary with the names {', '.join(tables)}", f"came {kind(value)}")
    for name, table in tables.items():
        layers, h = table.shape
        given = value[name]
        parts = given.tolist() if hasattr(given, "tolist") else given
        head = tuple(map(single, parts)) if isinstance(parts, (tuple, list)) else ()
        outcome.demand(
            len(head) == 2 and all(type(part) is int for part in head),
            f"{name}: a pair of layer, 0 to {layers - 1}, and head, 0 to {h - 1}",
            f"came {given!r}",
        )
        layer, number = head
        swapped = "; layer first, then head"
        outcome.demand(
            0 <= layer < layers and 0 <= number < h,
            f"{name}: a layer from 0 to {layers - 1} and a head from 0 to {h - 1}",
            f"came {head}" + swapped * (0 <= number < layers and 0 <= layer < h),
        )
        best = divmod(int(table.argmax()), h)
        told = f"head {head} gives {table[head]:.2f}, and another head more"
        if head[::-1] == best:
            told += swapped
        elif (layer - 1, number - 1) == best:
            told += "; count from 0"
        outcome.demand(
            head == best,
            f"{name}: the head that gives most weight there, averaged over words and sentences",
            told,
        )
    right("specialists", "Three heads of 72 that can be named.")


def measured(encoder: Encoder) -> dict[str, Tensor]:
    """Score each head on three relations, words and signs as queries: (layers, h) each."""
    found = []
    encoded = encoder.encode(SENTENCES)
    for i in range(len(SENTENCES)):
        tokens, weights = encoded.sentence(i)
        asked, n = weights[:, :, 1:-1], len(tokens)
        marks = torch.tensor([token in DELIMITERS for token in tokens])
        related = [heads.offset_relation(n, offset)[1:-1] for offset in (-1, 1)]
        tables = [heads.relation_weight(asked, relation) for relation in related]
        found.append(torch.stack([*tables, heads.target_weight(asked, marks)]))
    return dict(
        zip(("previous", "next", "delimiters"), torch.stack(found).mean(dim=0), strict=True)
    )


@exercise
def held_out(function: Callable[[Tensor], tuple[int, int, int]]) -> None:
    """Check the choice of a head on half of the rows: (rows, heads) to head and two counts."""
    answer = Answer("held_out", function)
    # Best on the first half is head 1, on the second head 0, and over all rows head 3.
    table = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1]]).bool()
    tied = torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1]]).bool()
    early = torch.tensor([[0, 1, 1], [0, 1, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0]]).bool()
    for correct in (table, tied, early, coins()[0]):
        first, second = (half.sum(dim=0) for half in correct.chunk(2))
        best = int(first.argmax())
        head, *counts = answer(correct=correct).pair("head", "chosen_on", "tested_on")
        came = head.number()
        meanings = {
            "that one is best over all rows, but the second half has no say": first + second,
            "that one is best on the second half": second,
        }
        told: dict[str, float] = {words: int(half.argmax()) for words, half in meanings.items()}
        told["heads are counted from 0"] = best + 1
        if came in range(len(first)) and first[int(came)] == first[best]:
            told = {"it is as good there, but of several equals take the first": came}
        head.demand(
            came == best,
            "the head that is right most often on the first half",
            f"head came {came:g}{meaning(came, told)}",
        )
        for part, where, half in zip(counts, ("first", "second"), (first, second), strict=True):
            came, truth = part.number(), int(half[best])
            told = {
                "that is a share, but count": truth / (len(correct) // 2),
                "that counts all rows": int(correct[:, best].sum()),
            }
            if came in (first[best], half.max()):  # a count that may as well be another one
                told = {}
            part.demand(
                came == truth,
                f"how often that head is right on the {where} half",
                f"{part.part} came {came:g}{meaning(came, told)}",
            )
    first, second = coins().double().chunk(2, dim=1)
    first, second = first.sum(dim=1), second.sum(dim=1)
    luck, rest = first.amax(1).mean(), second.gather(1, first.argmax(1, keepdim=True)).mean()
    right(
        "held_out",
        f"The best of {COINS} coins is right {luck:.0f} times of {TOSSES}, and {rest:.0f} times "
        f"once it is chosen, on average over {TRIES} tries.",
    )


def coins() -> Tensor:
    """Let coins guess: (tries, rows, coins), half of the rows to choose on and half to test."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (TRIES, 2 * TOSSES, COINS), generator=generator).bool()


def meaning(came: float, meanings: Mapping[str, float]) -> str:
    """Say what a number would be right for, if there is just one such thing."""
    found = [words for words, value in meanings.items() if value == came]
    return f"; {found[0]}" if len(found) == 1 else ""


@exercise
def cosine_without(function: Callable[[list, list[str]], float]) -> None:
    """Check the mean cosine of sentence vectors with and without some heads."""
    answer = Answer("cosine_without", function)
    encoder, sentences = load_encoder(), list(COMPARED)
    kept = [parameter.detach().clone() for parameter in encoder.parameters()]
    before = encoder.encode(sentences).vectors
    for silent in (
        [(0, head) for head in range(6)],
        [(3, 1)],
        [(1, 8), (4, 2), (5, 0), (5, 3)],
        [],
    ):
        each = cosines(encoder, silent, before)
        try:
            outcome = answer(heads=silent, sentences=sentences)
        finally:
            changed = put_back(encoder, kept)
        outcome.demand(
            not changed,
            "the encoder is as it was before",
            f"{changed} of its tensors were changed and stayed so; they have been put back",
        )
        if not near(encoder.encode(sentences).vectors.double(), before.double(), NOISE / 10):
            load_encoder.cache_clear()
            raise outcome.complaint(
                "the encoder is as it was before",
                "it makes other vectors than before; is a hook still in it? Run the cell that "
                "loads the encoder again: you will get a fresh one",
            )
        came, truth = outcome.number(), each.mean().item()
        mistakes = {
            "that is one minus the cosine": 1 - truth,
            "that is a sum": each.sum().item(),
            "that is the first sentence alone": each[0].item(),
            "that is the last sentence alone": each[-1].item(),
            "as if nothing had been silenced": 1.0,
        }
        told = [f"; {words}" for words, wrong in mistakes.items() if abs(came - wrong) < NOISE]
        outcome.demand(
            abs(came - truth) < 3 * NOISE,
            "the cosine between a sentence's vector with all heads and without these, averaged "
            "over the sentences" + "; without none, it is 1" * (not silent),
            f"came {came:.4f}{''.join(told[:1])}",
        )
    named = [divmod(int(t.argmax()), t.shape[1]) for t in measured(encoder).values()]
    left = cosines(encoder, named, before).mean()
    right("cosine_without", f"Without the three heads of exercise 3 it is still {left:.2f}.")


def cosines(encoder: Encoder, silent: list[tuple[int, int]], before: Tensor) -> Tensor:
    """Compare the vectors without some heads with those before: (sentences,)."""
    with encoder.without(silent):
        return (encoder.encode(COMPARED).vectors * before).sum(dim=-1).double()


def put_back(encoder: Encoder, kept: Iterable[Tensor]) -> int:
    """Undo what an answer changed in the encoder; say how many tensors that were."""
    changed = 0
    with torch.no_grad():
        for parameter, value in zip(encoder.parameters(), kept, strict=True):
            if not torch.equal(parameter, value):
                parameter.copy_(value)
                changed += 1
    return changed


@exercise
def fooling(value: Any) -> None:
    """Check a sentence whose last word turns its pronoun round, and a head that gets it wrong."""
    outcome = begun("fooling", value)
    fits = isinstance(value, (tuple, list)) and len(value) == 5
    fits = fits and all(isinstance(part, str) and part.strip(" .") for part in value)
    parts = "the beginning, two nouns, and the last word that fits each"
    outcome.demand(fits, f"five texts: {parts}", f"came {value!r}"[:200])
    beginning, *words = (part.strip(" .") for part in value)
    *nouns, first, second = (word.lower() for word in words)
    outcome.demand(
        first != second and not {first, second} & set(nouns) and " " not in first + second,
        "two different last words, each one word and neither a noun of the sentence",
        f"came {first!r} and {second!r}",
    )
    outcome.demand(
        beginning.lower().split()[-1] not in (first, second),
        "the sentence without its last word",
        f"came {beginning!r}",
    )
    encoded = load_encoder().encode([f"{beginning} {word}." for word in (first, second)])
    given = []
    for i in range(2):
        tokens, weights = encoded.sentence(i)
        expect_words(outcome, tokens, nouns)
        from_it = weights[(*FOOLED, tokens.index("it"))]
        given.append([from_it[tokens.index(noun)].item() for noun in nouns])
    told = "; ".join(
        f"... {word}: {nouns[0]} {a:.2f}, {nouns[1]} {b:.2f}"
        for word, (a, b) in zip((first, second), given, strict=True)
    )
    clear = all(abs(a - b) >= LEAST for a, b in given)
    outcome.demand(clear, f"a clear preference: weights that differ by {LEAST} or more", told)
    (a, b), (c, d) = given
    outcome.demand(
        a < b or c > d,
        f"head {FOOLED} prefers the wrong noun at least once",
        f"it is right with either last word: {told}",
    )
    misled = "It is wrong both times" if a < b and c > d else "It likes one noun, either way"
    right("fooling", f"{misled}: {told}.")


def expect_words(outcome: Outcome, tokens: Sequence[str], nouns: Sequence[str]) -> None:
    """Demand one 'it', after two different nouns that are one token each."""
    told = f"its tokens are {' '.join(tokens)}"
    outcome.demand(nouns[0] != nouns[1], "two different nouns", f"came {nouns[0]!r} twice")
    outcome.demand(tokens.count("it") == 1, "the word 'it', once", told)
    for noun in nouns:
        once = tokens.count(noun) == 1
        outcome.demand(once, f"the noun {noun!r} as one token, once", told)
        after = tokens.index(noun) < tokens.index("it")
        outcome.demand(after, f"'it' comes after {noun!r}, to point back at it", told)


def begun(name: str, value: Any) -> Outcome:
    """Take a value to be judged; raise NotYet if there is none."""
    if value is None or value is ...:
        raise NotYet(name)
    return Outcome(name, {}, value)
