"""Lab 6: find heads of the pretrained encoder, take them away, and fool one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from labkit import heads
from labkit.attention import MultiHeadAttention
from labkit.labs.guard import (
    Answer,
    NotYet,
    Outcome,
    apart,
    exercise,
    kind,
    near,
    recognise,
    right,
    show,
    single,
)
from labkit.models.encoder import Encoder, load_encoder

DELIMITERS = tuple(".,;:?!")
SENTENCES = (
    "The children, who were tired, went home.",
    "Every map leaves something out.",
    "She opened the door, took the letter and left.",
    "If it rains, we stay; if not, we go.",
)
COMPARED = (
    "Who left the door open?",
    "Rain fell.",
    "Rain fell.",
    "The old clock in the hall had stopped, and nobody knew why.",
)
EVERY = [(layer, head) for layer in range(6) for head in range(12)]
FOOLED = (3, 1)  # the head with the fine picture in chapter 9
KNOWN = ("animal", "street")  # the nouns of that picture's sentence
HALF = 4e-3  # by which bfloat16 may be off
LEAST = 0.02  # difference between two weights that is more than a whim
COINS, TOSSES, TRIES = 72, 28, 100  # as many coins as the encoder has heads; rows in each half
TABLES = (  # rows of a table, a head a column, 1 where it is right
    # Best on the first half is head 7, on the second 1, over all rows 10, on every other row 11. Of
    # the first six heads it is 4, over all rows 3. Head 9 has the longest run, row 2 most heads
    # that are right, and head 0 is the first in row 0.
    "1010110100011 0010110110100 1001011011111 0000000101001 0001100111110 0001101111110 "
    "0110101111111 0101010010001 1101001001111 1111000100110 1111011110111 1101011010100",
    "110 000 001 101",  # two heads are equally good
    "010 011",  # one row is half
    "000 000 011 101",  # no head is right on the first half
)
CHOSEN = ("head", "count on the first half", "count on the second half")
MOST_TOLD = 14  # heads whose counts a message tells
NOISE = 6e-5  # by which cosines may differ: half of the fourth decimal, and single precision


@exercise
def weight_on(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check the average weight on a relation: (h, n_q, n_k) and (n_q, n_k) to (h,)."""
    answer = Answer("weight_on", function)
    one = torch.tensor([[[1.0, 0.0, 0.0], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]])
    two = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], [[0.1, 0.3, 0.6], [0.6, 0.3, 0.1]]])
    less = torch.tensor([[[0.5, 0.3, 0.0], [0.0, 0.0, 0.0], [0.25, 0.6, 0.1], [0.1, 0.2, 0.3]]])
    of_less = torch.tensor([[True, False, False]] * 3 + [[True, False, True]])
    for A, relation, told in (
        (
            one,
            heads.offset_relation(3, -1),
            "two queries have a related key and give it 0.7 and 0.8: on average 0.75",
        ),
        (
            two,
            torch.tensor([[True, True, False], [True, False, False]]),
            "the weights on all related keys of a query add up, and each head has its own "
            "average: of 0.8 and 0.1, and of 0.4 and 0.6",
        ),
        (
            less,
            of_less,
            "four queries have a related key and give there 0.5, 0, 0.25 and 0.1 + 0.3: on average "
            "0.2875",
        ),
    ):
        outcome = answer(weights=A, relation=relation)
        came, wanted = outcome.tensor(len(A)), heads.relation_weight(A, relation)
        cause = f"{show(came)}{recognise(came, mistaken_weights(A, relation))}"
        if near(came, wanted, HALF):
            digits = ", ".join(f"{x:.6g}" for x in came.tolist())
            cause = f"[{digits}], which is close; is it rounded, or in half precision?"
        outcome.demand(near(came, wanted, 5e-6), told, f"came {cause}")
    right("weight_on", "A head that does nothing else has 1.")


def mistaken_weights(A: Tensor, relation: Tensor) -> dict[str, Tensor]:
    """Compute what may be taken for the average weight on a relation."""
    related, asked = A * relation, relation.any(dim=1).sum()
    given = related.sum(dim=-1)
    wanted = given.sum(dim=-1) / asked
    first = A.gather(-1, relation.int().argmax(dim=1)[None, :, None].expand(len(A), -1, 1))[..., 0]
    mistakes = {
        "that is a sum": given.sum(dim=-1),
        "that is one number for all heads": wanted.mean().expand(len(A)),
        "that takes a query's first related key alone": (first * relation.any(dim=1)).sum(-1)
        / asked,
        "that takes the largest weight on related keys, where they add up": related.amax(
            dim=-1
        ).sum(dim=-1)
        / asked,
        "that averages over a query's related keys, where they add up": (
            given / relation.sum(dim=1).clamp(min=1)
        ).sum(dim=-1)
        / asked,
        "that divides by all that a query gives, which need not be 1": (
            given / A.sum(dim=-1).clamp(min=LEAST)
        ).sum(dim=-1)
        / asked,
        "that counts how often the largest weight is on a related key": (
            relation.gather(1, A.argmax(dim=-1).T).double().sum(dim=0) / asked
        ),
    }
    for what, count in {
        "related pairs": int(relation.sum()),
        "queries": len(relation),
        "pairs of a query and a key": relation.numel(),
        "related keys, as a sum along the queries would": int(relation.any(dim=0).sum()),
        "queries that give some": int((given[0] > 0).sum()),
    }.items():
        words = f"that divides by the {count} {what}; {asked} queries have a related key"
        mistakes[words] = given.sum(dim=-1) / count
    if A.shape[1] == A.shape[2]:
        mistakes["that adds along the queries, where a query's weights are a row"] = related.sum(
            dim=1
        )[:, relation.any(dim=1)].mean(dim=-1)
        turned = heads.relation_weight(A, relation.T)
        mistakes["the relation is taken from key to query"] = turned
    return mistakes


@exercise
def relations(function: Callable[[list[str]], tuple[Tensor, Tensor]]) -> None:
    """Check the relations to the previous token and to delimiters: two of (n, n), boolean."""
    answer = Answer("relations", function)
    lists = [
        "[CLS] no , she left . [SEP]".split(),
        "[CLS] why ? [SEP]".split(),
        "[CLS] stop ! wait : now ; or not . [SEP]".split(),
        "[CLS] the cat saw the dog . so did we . [SEP]".split(),
        "[CLS] what ?! ##. ！ ' ) . [SEP]".split(),
    ]
    for tokens in lists:
        n = len(tokens)
        marks = torch.tensor([token in DELIMITERS for token in tokens]).expand(n, n)
        first, second = in_parts(answer(tokens=tokens), "previous", "delimiters")
        found = first.tensor(n, n, boolean=True)
        wanted = heads.offset_relation(n, -1)
        told = f"previous is True at (query, key) = {show(found.nonzero().tolist())[:200]}"
        if torch.equal(found, wanted.T):
            told += "; that is the token after"
        elif torch.equal(found, wanted | heads.offset_relation(n, n - 1)):
            told += "; the first token has none before it"
        elif torch.equal(found, wanted & (torch.arange(n) > 0)):
            told += "; the second token has one before it, the first"
        elif torch.equal(found, marks):
            told += "; delimiters come second"
        told += repeated(found != wanted, tokens)
        first.demand(
            torch.equal(found, wanted),
            "each token but the first is related to the one before it, and to no other",
            told,
        )
        found = second.tensor(n, n, boolean=True)
        wanted = marks
        missed, extra = wanted & ~found, found & ~wanted
        told = f"of the pairs, {int(missed.sum())} are missing and {int(extra.sum())} too many"
        if torch.equal(found, wanted.T):
            told += "; queries are rows, keys are columns"
        elif extra.any():
            told += f", such as query {show(place(extra, tokens))}"
        elif missed.any():
            told += f", such as query {show(place(missed, tokens))}"
        told += repeated(found != wanted, tokens)
        second.demand(
            torch.equal(found, wanted),
            f"every query is related to every key that is one of {' '.join(DELIMITERS)}",
            told,
        )
    right("relations", "Rows ask, columns are asked.")


def repeated(differ: Tensor, tokens: list[str]) -> str:
    """Say so if two relations differ only at tokens that occur more than once."""
    twice = torch.tensor([tokens.count(token) > 1 for token in tokens])
    if not differ.any() or differ[~twice][:, ~twice].any():
        return ""
    often = (differ.sum(dim=0) + differ.sum(dim=1)) * twice
    word = tokens[int(often.argmax())]
    return f"; {word!r} occurs more than once, and every place counts, not every word"


def place(where: Tensor, tokens: list[str]) -> str:
    """Name the first pair of query and key at which a table is True."""
    query, key = where.nonzero()[0].tolist()
    return f"{tokens[query]!r} and key {tokens[key]!r}"


def in_parts(outcome: Outcome, *names: str) -> list[Outcome]:
    """Take several results apart, also if they came as one tensor or array."""
    if getattr(outcome.value, "ndim", 0) and len(outcome.value) == len(names):
        outcome = replace(outcome, value=tuple(outcome.value))
    return outcome.pair(*names)


@exercise
def specialists(value: Any) -> None:
    """Check three heads of the encoder, each (layer, head), by name of what they look at."""
    outcome = begun("specialists", value)
    tables = measured(sound())
    expected = f"a dictionary with the names {', '.join(tables)}"
    outcome.demand(isinstance(value, Mapping), expected, f"came {kind(value)}")
    missing = [name for name in tables if name not in value]
    outcome.demand(not missing, expected, f"missing: {', '.join(missing)}")
    first = {divmod(int(table.argmax()), table.shape[1]): name for name, table in tables.items()}
    for name, table in tables.items():
        layers, h = table.shape
        given = value[name]
        head = tuple(map(single, items(given)))
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
        less, more = apart(float(table[head]), float(table[best])) if head != best else ("", "")
        told = f"head {head} gives {less}, and one of the others {more}"
        if head[::-1] == best:
            told += swapped
        elif (layer - 1, number - 1) == best:
            told += "; count from 0"
        elif 6 * layer + number == h * best[0] + best[1]:
            told += "; did you divide its place by 6? A layer has 12 heads"
        elif head in first:
            told += f"; this is the head for {first[head]}"
        outcome.demand(
            head == best,
            f"{name}: the head that gives most weight there, averaged over words and sentences",
            told,
        )
    right("specialists", "Three heads of 72 that can be named.")


def items(value: Any) -> list[Any]:
    """List what a tuple, a list, an array or a tensor holds; nothing if it is none of these."""
    value = value.tolist() if hasattr(value, "tolist") else value
    fits = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return list(value) if fits else []


@cache
def sound() -> Encoder:
    """Load an encoder of the checks' own, in double precision, that no answer can change."""
    return load_encoder.__wrapped__().double()


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
    for correct in (*map(boolean, TABLES), coins()[0]):
        first, second = (half.sum(dim=0) for half in correct.chunk(2))
        best = largest(first)
        head, *counts = parts = in_parts(answer(correct=correct), *CHOSEN)
        for part in parts:
            part.demand(
                part.value is not None,
                f"{part.part} is a number, also where no head is right",
                f"{part.part} came as None",
            )
        half_rows = len(correct) // 2
        came = head.number()
        told: dict[str, float] = {
            "that one is best over all rows, but the second half has no say": largest(
                first + second
            ),
            "that one is best on the second half": largest(second),
            "that one is best on every other row; the first half is the rows above": largest(
                correct[::2].sum(dim=0)
            ),
            "that is a row; heads are columns": largest(correct.chunk(2)[0].sum(dim=1)),
            "that one is the first that is right in row 0": largest(correct[0].int()),
            f"that is the best of the first {half_rows} heads; halve the rows alone": largest(
                first[:half_rows]
            ),
            "that is the best of half of the heads over all rows; halve the rows instead": largest(
                (first + second)[:half_rows]
            ),
            "that one has the longest run; count all rows in which a head is right": largest(
                torch.tensor([longest_run(column) for column in correct.chunk(2)[0].T])
            ),
            "heads are counted from 0": best + 1,
        }
        if came in range(len(first)) and first[int(came)] == first[best]:
            told = {"it is as good there, but of several equals take the first": came}
        few = len(first) < MOST_TOLD
        head.demand(
            came == best,
            "the head that is right most often on the first half"
            + f"; there the heads are right {first.tolist()} times" * few,
            f"head came {came:g}{meaning(came, told)}",
        )
        rows = correct[:, best].int().tolist()
        for part, where, half, wider, narrower in zip(
            counts,
            ("first", "second"),
            (first, second),
            (sum(rows[: half_rows + 1]), sum(rows[half_rows - 1 :])),
            (sum(rows[: half_rows - 1]), sum(rows[half_rows + 1 :])),
            strict=True,
        ):
            came, truth = part.number(), int(half[best])
            told = {
                "that is a share, but count": truth / half_rows,
                "that counts all rows": int(correct[:, best].sum()),
                "that is its count on the other half": int(correct[:, best].sum()) - truth,
                "that is the most that any head has there": int(half.max()),
                "that counts one row of the other half too": wider,
                "that leaves out a row at the middle": narrower,
            }
            part.demand(
                came == truth,
                f"how often head {best} is right on the {where} half",
                f"came {came:g}{meaning(came, told)}",
            )
    first, second = coins().double().chunk(2, dim=1)
    first, second = first.sum(dim=1), second.sum(dim=1)
    luck, rest = first.amax(1).mean(), second.gather(1, first.argmax(1, keepdim=True)).mean()
    right(
        "held_out",
        f"The best of {COINS} coins is right {luck:.0f} times of {TOSSES}, and {rest:.0f} times "
        f"once it is chosen, on average over {TRIES} tries.",
    )


def boolean(rows: str) -> Tensor:
    """Make a boolean table of rows that are written with 0 and 1."""
    return torch.tensor([[sign == "1" for sign in row] for row in rows.split()])


def largest(counts: Tensor) -> int:
    """Give the place of the largest count, the first of several; PyTorch may give any."""
    return counts.tolist().index(counts.max())


def longest_run(rows: Tensor) -> int:
    """Give the length of the longest run of rows that are right."""
    return max(map(len, "".join(str(int(right)) for right in rows).split("0")))


def coins() -> Tensor:
    """Let coins guess: (tries, rows, coins), half of the rows to choose on and half to test."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (TRIES, 2 * TOSSES, COINS), generator=generator).bool()


def meaning(came: float, meanings: Mapping[str, float]) -> str:
    """Say what a number would be right for, if there is just one such thing."""
    found = [words for words, value in meanings.items() if abs(value - came) < 1e-6]
    return f"; {found[0]}" if len(found) == 1 else ""


@exercise
def cosine_without(function: Callable[[list, list[str]], float]) -> None:
    """Check the mean cosine of sentence vectors with and without some heads."""
    answer = Answer("cosine_without", function)
    encoder = load_encoder()
    mend(encoder)  # what a learner tried before is no part of the answer
    dtype = next(encoder.parameters()).dtype
    for silent, sentences in (
        ([(5, 1), (5, 4)], COMPARED),
        ([(2, 4), (0, 11), (2, 9), (5, 0)], COMPARED[1:]),
        ([(5, 11), (1, 8), (4, 0)], COMPARED[3:1:-1]),
        ([(3, 7), (5, 2)], COMPARED[:1]),
    ):
        try:
            outcome = answer(heads=silent, sentences=sentences)
        finally:
            changed = mend(encoder, dtype)
        outcome.demand(
            not changed,
            "the encoder is as it was before",
            f"{changed}; it has been put back",
        )
        came, truth = outcome.number(), cosines(silent, sentences).mean().item()
        if abs(came - truth) < NOISE:
            continue
        wanted, given = apart(truth, came)
        raise outcome.complaint(
            "the cosine between a sentence's vector with all heads and without these, averaged "
            f"over the sentences: {wanted}",
            f"came {given}{mistaken_cosine(came, silent, sentences)}",
        )
    named = [divmod(int(t.argmax()), t.shape[1]) for t in measured(sound()).values()]
    left = cosines(named, COMPARED).mean()
    right("cosine_without", f"Without the three heads of exercise 3 it is still {left:.2f}.")


def cosines(silent: Iterable[tuple[int, int]], sentences: Sequence[str]) -> Tensor:
    """Compare the vectors without some heads with those of all heads: (sentences,)."""
    texts = tuple(sentences)
    return (vectors_without(tuple(silent), texts) * vectors_without((), texts)).sum(dim=-1)


@cache
def vectors_without(silent: tuple[tuple[int, int], ...], sentences: tuple[str, ...]) -> Tensor:
    """Encode sentences without some heads: (sentences, d_model)."""
    with sound().without(silent):
        return sound().encode(sentences).vectors


@cache
def loaded(dtype: torch.dtype) -> dict[str, Tensor]:
    """List the tensors of an encoder that nobody has changed."""
    return {name: x.to(dtype) for name, x in sound().state_dict().items()}


def mistaken_cosine(came: float, silent: list[tuple[int, int]], sentences: Sequence[str]) -> str:
    """Name the mistake that gives this number, as the end of a sentence; nothing if none does."""
    if abs(came - round(cosines(silent, sentences).mean().item(), 3)) < NOISE / 100:
        return "; is it rounded?"
    told = (told for told, x in mistaken_cosines(silent, sentences) if abs(came - x) < NOISE)
    return next((f"; {words}" for words in told), "")


def mistaken_cosines(
    silent: list[tuple[int, int]], sentences: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Compute what may be taken for the mean cosine without some heads, the quickest first."""
    before, after = (vectors_without(tuple(some), tuple(sentences)) for some in ((), silent))
    each = (before * after).sum(dim=-1)
    numbers = {
        "as if nothing had been silenced": torch.ones(()),
        "that is one minus the cosine": 1 - each.mean(),
        "that is a sum": each.sum(),
        "that is the cosine of the average vectors": torch.cosine_similarity(
            before.mean(0), after.mean(0), dim=0
        ),
        "that compares every sentence with every other as well": (before @ after.T).mean(),
        "that averages over the numbers of a vector, where a cosine adds": (before * after).mean(),
        "that is how far the vectors lie apart": (before - after).norm(dim=-1).mean(),
        "that is one minus how far the vectors lie apart": 1 - (before - after).norm(dim=-1).mean(),
        "that counts a sentence once that occurs twice": each[
            [sentences.index(one) for one in set(sentences)]
        ].mean(),
    }
    yield from ((told, x.item()) for told, x in numbers.items())
    yield from (("that is one sentence alone", x.item()) for x in each)
    sets: dict[str, Iterable[tuple[int, int]]] = {
        "that is with only the first of these heads silent": silent[:1],
        "that is with only the last of these heads silent": silent[-1:],
        "that is with only the heads in the first one's layer silent": [
            pair for pair in silent if pair[0] == silent[0][0]
        ],
        "that is with only these heads left, and all others silent": set(EVERY) - set(silent),
        "that is with all heads of these layers silent": {
            (x, y) for x, y in EVERY if x in dict(silent)
        },
        "that is with the heads before these silent; count from 0": [
            (x, (y - 1) % 12) for x, y in silent
        ],
        "that is with layers and heads counted from 1; count from 0": [
            ((x - 1) % 6, (y - 1) % 12) for x, y in silent
        ],
        "that is with layers counted from 1; count from 0": [((x - 1) % 6, y) for x, y in silent],
        "that is with the heads after these silent; they are counted from 0": [
            (x, (y + 1) % 12) for x, y in silent
        ],
    }
    if all(y < 6 for _, y in silent):
        sets["that is with layer and head exchanged"] = [(y, x) for x, y in silent]
    yield from ((told, cosines(wrong, sentences).mean().item()) for told, wrong in sets.items())
    alone = torch.stack([cosines([head], sentences) for head in silent])
    yield "that silences the heads one at a time", alone.mean().item()
    yield "that multiplies what is left without each of them", alone.prod(dim=0).mean().item()
    for told, edit in EDITS.items():
        with edited(silent, edit) as encoder:
            after = encoder.encode(list(sentences)).vectors
        yield told, (before * after).sum(dim=-1).mean().item()
    means = sound().mean_outputs(sound().encode(list(sentences)))
    with sound().without(silent, means):
        after = sound().encode(list(sentences)).vectors
    yield (
        "that puts a head's average in its place, not zero",
        (before * after).sum(-1).mean().item(),
    )


def zero_rows_of_w_o(layer: MultiHeadAttention, head: int) -> None:
    layer.w_o.weight[head * layer.d_v : (head + 1) * layer.d_v] = 0


def zero_every_column(layer: MultiHeadAttention, head: int) -> None:
    layer.w_o.weight[:, head :: layer.h] = 0


def zero_all_columns_but_one(layer: MultiHeadAttention, head: int) -> None:
    layer.w_o.weight[:, head * layer.d_v : (head + 1) * layer.d_v - 1] = 0


def zero_matrix_of_queries(layer: MultiHeadAttention, head: int) -> None:
    layer.w_q.weight[head * layer.d_k : (head + 1) * layer.d_k] = 0


def zero_matrix_of_values(layer: MultiHeadAttention, head: int) -> None:
    layer.w_v.weight[head * layer.d_v : (head + 1) * layer.d_v] = 0


def enlarge_the_others(layer: MultiHeadAttention, head: int) -> None:
    layer.w_o.weight[:, head * layer.d_v : (head + 1) * layer.d_v] = 0
    layer.w_o.weight *= layer.h / (layer.h - 1)


def zero_bias_too(layer: MultiHeadAttention, head: int) -> None:
    layer.w_o.weight[:, head * layer.d_v : (head + 1) * layer.d_v] = 0
    layer.w_o.bias.zero_()


EDITS = {
    "rows of w_o.weight are outputs; heads enter through columns": zero_rows_of_w_o,
    "a head's columns lie side by side": zero_every_column,
    "a head has 32 columns, and here the last one still gets through": zero_all_columns_but_one,
    "a head without its queries still passes values on": zero_matrix_of_queries,
    "the bias of the values still gets through": zero_matrix_of_values,
    "the other heads are scaled up, and should stay as they are": enlarge_the_others,
    "the bias of W_O belongs to no head": zero_bias_too,
}


@contextmanager
def edited(
    silent: Iterable[tuple[int, int]], edit: Callable[[MultiHeadAttention, int], None]
) -> Iterator[Encoder]:
    """Change layers of the checks' own encoder inside a ``with`` block."""
    encoder = sound()
    layers = {layer: encoder.blocks[layer].attention for layer, _ in silent}
    kept = {layer: deepcopy(attention.state_dict()) for layer, attention in layers.items()}
    try:
        with torch.no_grad():
            for layer, head in silent:
                edit(layers[layer], head)
        yield encoder
    finally:
        for layer, attention in layers.items():
            attention.load_state_dict(kept[layer])


def mend(encoder: Encoder, dtype: torch.dtype | None = None) -> str:
    """Make an encoder what it was when it was loaded; say what it was not, if anything."""
    told = ""
    for module in encoder.modules():
        for name, table in vars(module).items():
            if name.endswith("_hooks") and table:
                told = "a hook is still in it"
                table.clear()
    now = next(encoder.parameters()).dtype
    if dtype not in (None, now):
        told = f"its numbers were {dtype} and are {now}"
        encoder.to(dtype)
    own, state = encoder.state_dict(), loaded(dtype or now)
    if any(not torch.equal(own[name].cpu(), state[name]) for name in state):
        told = told or "some of its weights were changed and stayed so"
        encoder.load_state_dict(state)
    return told


@exercise
def fooling(value: Any) -> None:
    """Check a sentence whose last word turns its pronoun round, and a head that gets it wrong."""
    outcome = begun("fooling", value)
    texts = [" ".join(part.split()).strip(" .") for part in items(value) if isinstance(part, str)]
    parts = "the beginning, two nouns, and the last word that fits each"
    fits = len(items(value)) == len(texts) == 5
    outcome.demand(fits, f"five texts: {parts}", f"came {value!r}"[:200])
    empty = [str(place) for place, text in enumerate(texts, start=1) if not text]
    outcome.demand(
        not empty, f"five texts: {parts}", f"number {', '.join(empty)} of the five is empty"
    )
    beginning, *nouns, first, second = texts
    known = [noun for noun in nouns if noun.lower() in KNOWN]
    outcome.demand(
        not known,
        "a sentence of your own, with other nouns than the one about the animal",
        f"came {', '.join(known)}",
    )
    outcome.demand(
        all(re.fullmatch(r"[\w'’-]+", word) for word in (first, second)),
        "two last words, each one word and nothing else",
        f"came {first!r} and {second!r}",
    )
    outcome.demand(
        beginning.lower().split()[-1] not in (first.lower(), second.lower()),
        "the sentence without its last word",
        f"came {beginning!r}",
    )
    outcome.demand(
        first.lower() != second.lower(),
        "two different last words",
        f"came {first!r} and {second!r}",
    )
    encoded = sound().encode([f"{beginning} {word}." for word in (first, second)])
    given = []
    for i in range(2):
        tokens, weights = encoded.sentence(i)
        places = expect_words(outcome, tokens, nouns)
        from_it = weights[(*FOOLED, tokens.index("it"))]
        given.append(from_it[places].tolist())
    told = "; ".join(
        f"... {word}: {nouns[0]} {written[0]}, {nouns[1]} {written[1]}"
        for word, written in zip((first, second), [apart(*pair) for pair in given], strict=True)
    )
    (a, b), (c, d) = given
    wrong = max(b - a, c - d)
    outcome.demand(
        wrong > 0,
        f"head {FOOLED} prefers the wrong noun at least once",
        f"it is right with either last word: {told}",
    )
    outcome.demand(
        wrong >= LEAST, f"a clear preference: weights that differ by {LEAST} or more", told
    )
    misled = "It is wrong both times" if a < b and c > d else "It likes one noun, either way"
    right("fooling", f"{misled}: {told}.")


def expect_words(outcome: Outcome, tokens: Sequence[str], nouns: Sequence[str]) -> list[int]:
    """Demand one 'it', after two different nouns that are one token each; say where these are."""
    told = f"its tokens are {' '.join(tokens)}"[:400]
    outcome.demand(tokens.count("it") == 1, "the word 'it', once", told)
    places = []
    for noun in nouns:
        _, *token, _ = sound().encode([noun]).tokens[0]  # in lower case, without accents
        once = len(token) == 1 and tokens.count(token[0]) == 1
        outcome.demand(once, f"the noun {noun!r} as one token, once", told)
        places.append(tokens.index(token[0]))
        after = places[-1] < tokens.index("it")
        outcome.demand(after, f"'it' comes after {noun!r}, to point back at it", told)
    outcome.demand(places[0] != places[1], "two different nouns", f"came {nouns[0]!r} twice")
    return places


def begun(name: str, value: Any) -> Outcome:
    """Take a value to be judged; raise NotYet if there is none."""
    if value is None or value is ...:
        raise NotYet(name)
    return Outcome(name, {}, value)
