"""Which words a head of the encoder links: chosen on some sentences, counted on others.

What untrained twins get is kept in probes.json, which `make checkpoint` writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.arguments import size, whole
from labkit.heads import offset_relation, relation_weight, target_weight
from labkit.models.encoder import Encoded, Encoder, untrained_encoder
from labkit.models.sentences import NOUNS, SENTENCES, clauses, pronouns, schemas, synonyms

__all__ = [
    "HISTORIES",
    "PASSES",
    "RELATIONS",
    "RULES",
    "TESTED",
    "TWINS",
    "Tried",
    "apart_in_a_layer",
    "best_rule",
    "divergences",
    "first_choices",
    "histories",
    "interval",
    "kinds",
    "plain_weights",
    "run_untrained",
    "schema_margins",
    "try_all",
    "turns",
]

HISTORIES = Path(__file__).with_name("probes.json")
APART = 0.1  # bits of divergence from which two heads are no near twins
TESTED = 60  # sentences of a relation on which the chosen head is counted
PASSES = 50  # of these a head that passes is right in five sixths
TWINS = 5
Row = Sequence[str]  # a sentence, and words of it
Half = tuple[Sequence[Row], Sequence[Row]]  # to choose on, to test on

# In which places of a row the word that asks and its answer stand; both ways where two.
RELATIONS: dict[str, tuple[str, list[tuple[int, int]]]] = {
    "verb to its object": ("clauses", [(2, 3)]),
    "object to its verb": ("clauses", [(3, 2)]),
    "verb to its subject": ("clauses", [(2, 1)]),
    "subject to its verb": ("clauses", [(1, 2)]),
    "synonyms, both ways": ("synonyms", [(1, 2), (2, 1)]),
    "he or she to its noun": ("pronouns", [(1, 2)]),
}


def _beside(away: int, tokens: list[str], at: int) -> int:
    return at + away


# Where a rule without any head would look: given the tokens and the place that asks
RULES: dict[str, Callable[[list[str], int], int | None]] = {
    **{
        f"{abs(away)} {'before' if away < 0 else 'after'}": partial(_beside, away)
        for away in (-4, -3, -2, -1, 1, 2, 3, 4)
    },
    "noun before": lambda tokens, at: max((i for i in _nouns(tokens) if i < at), default=None),
    "noun after": lambda tokens, at: min((i for i in _nouns(tokens) if i > at), default=None),
    "nearest noun": lambda tokens, at: min(
        (i for i in _nouns(tokens) if i != at), key=lambda i: abs(i - at), default=None
    ),
    "first noun": lambda tokens, at: min((i for i in _nouns(tokens) if i != at), default=None),
}


class Tried(NamedTuple):
    """The head that is right most often on the sentences to choose on, and its counts."""

    head: tuple[int, int]
    chosen_on: int
    of: int
    tested_on: int


def halves() -> dict[str, Half]:
    """Make the sentences of each kind: those to choose on, and 60 to test on."""
    pairs = synonyms(seed=0)
    return {
        "clauses": (clauses(TESTED, 0, half=0), clauses(TESTED, 1, half=1)),
        "synonyms": (pairs[:-TESTED], pairs[-TESTED:]),
        "pronouns": (pronouns(TESTED, 0, half=0), pronouns(TESTED, 1, half=1)),
    }


def first_choices(encoder: Encoder, rows: Sequence[Row], asking: int, answer: int) -> Tensor:
    """Say in which rows which heads give most weight, of all other words, to the answer.

    [CLS], [SEP] and the word that asks do not count.

    Args:
        encoder: whose heads.
        rows: each a sentence and words of it.
        asking: where in a row the word stands whose weights are looked at.
        answer: where the word stands that should get most.

    Returns:
        (rows, layers, h), boolean.
    """
    return _first_choices(encoder.encode([row[0] for row in rows]), rows, asking, answer)


def try_all(encoder: Encoder) -> dict[str, Tried]:
    """Choose a head for each of RELATIONS, and count it on sentences that it was not chosen on."""
    rows = halves()
    read = {
        kind: [encoder.encode([row[0] for row in half]) for half in both]
        for kind, both in rows.items()
    }
    found = {}
    for name, (kind, ways) in RELATIONS.items():
        some, rest = (
            torch.stack([_first_choices(encoded, half, *way) for way in ways]).all(0)
            for encoded, half in zip(read[kind], rows[kind], strict=True)
        )
        by_head = some.flatten(1).sum(0)
        best = int(by_head.argmax())
        tested = int(rest.flatten(1)[:, best].sum())
        head = divmod(best, some.shape[-1])
        found[name] = Tried(head, int(by_head[best]), len(some), tested)
    return found


def kinds(encoder: Encoder) -> dict[str, bool]:
    """Say whether a head of each kind is there: positional, syntactic and semantic.

    The first gives the token before nine tenths of its weight. The others pass for a link: between
    a verb and its subject, in the direction that was better on the sentences to choose on, and
    between synonyms.
    """
    tried = try_all(encoder)
    before = plain_weights(encoder.encode(SENTENCES))["previous token"]
    ways = tried["verb to its subject"], tried["subject to its verb"]
    return {
        "positional": before.max().item() >= 0.9,
        "syntactic": max(ways, key=attrgetter("chosen_on")).tested_on >= PASSES,
        "semantic": tried["synonyms, both ways"].tested_on >= PASSES,
    }


def plain_weights(encoded: Encoded) -> dict[str, Tensor]:
    """Give what each head gives to six plain targets, the mean over the words of sentences.

    Args:
        encoded: what an encoder makes of the sentences, such as SENTENCES.

    Returns:
        by the target's name, (layers, h).
    """
    places = {"previous token": -1, "next token": 1, "itself": 0}
    marks = {"[CLS]": {"[CLS]"}, "[SEP]": {"[SEP]"}, "punctuation": set('.,;:?!"')}
    found = []
    for i in range(len(encoded.tokens)):
        tokens, weights = encoded.sentence(i)
        asked = weights[:, :, 1:-1]
        relations = [offset_relation(len(tokens), k)[1:-1] for k in places.values()]
        targets = [torch.tensor([token in mark for token in tokens]) for mark in marks.values()]
        by_place = [relation_weight(asked, relation) for relation in relations]
        found.append(torch.stack(by_place + [target_weight(asked, one) for one in targets]))
    return dict(zip([*places, *marks], torch.stack(found).mean(0), strict=True))


def best_rule(encoder: Encoder, relation: str) -> tuple[str, int]:
    """Choose, as one chooses a head, the best of RULES; return its name and its count.

    Args:
        encoder: whose tokenizer cuts the sentences.
        relation: a name of RELATIONS.
    """
    kind, ways = RELATIONS[relation]
    counts = [
        {name: _follows(encoder, half, ways, name) for name in RULES} for half in halves()[kind]
    ]
    best = max(counts[0], key=lambda name: counts[0][name])
    return best, counts[1][best]


def schema_margins(encoded: Encoded, queries: Sequence[str] = ("it",)) -> Tensor:
    """Give, for each of the schemas, how much more weight goes to the noun meant than to the other.

    Args:
        encoded: what an encoder makes of the schemas' sentences, which may have another clause in
            place of *because it was too ...*
        queries: the words of that clause that ask; "last" for its last word.

    Returns:
        (queries, sentences, layers, h).
    """
    margins = []
    for i, (_, meant, other, _) in enumerate(schemas()):
        tokens, weights = encoded.sentence(i)
        here = [-3 if query == "last" else tokens.index(query) for query in queries]
        given = weights[:, :, here].movedim(2, 0)
        margins.append(given[..., tokens.index(meant)] - given[..., tokens.index(other)])
    return torch.stack(margins, dim=1)


def turns(margins: Tensor) -> tuple[Tensor, Tensor]:
    """Count the pairs of sentences in which a head's choice turns with the last word.

    Args:
        margins: (sentences, layers, h), those of a pair next to each other.

    Returns:
        for each head, in how many pairs it is right both times, and in how many wrong both times.
    """
    right = (margins > 0).unflatten(0, (-1, 2))
    return right.all(1).sum(0), (~right).all(1).sum(0)


@torch.no_grad()
def divergences(encoder: Encoder) -> Tensor:
    """Compare every two heads by the Jensen-Shannon divergence of their weights, in bits.

    It is averaged over the words of twelve sentences; 0 is the same weights, 1 the most possible.

    Returns:
        (layers h, layers h).
    """
    encoded, found = encoder.encode(SENTENCES[::3]), []
    for i in range(len(encoded.tokens)):
        p = encoded.sentence(i)[1][:, :, 1:-1].flatten(0, 1)
        own = _bits(p)
        found.append((_bits((p[:, None] + p) / 2) - (own[:, None] + own) / 2).mean(-1))
    return torch.stack(found).mean(0)


def apart_in_a_layer(encoder: Encoder) -> tuple[float, float]:
    """Give the share of pairs of heads of a layer that are apart, and of heads without a twin.

    Two heads are apart from a divergence of APART on; a near twin is a head of the same layer that
    is not apart.
    """
    h = encoder.blocks[0].attention.h
    apart = (divergences(encoder) >= APART).unflatten(1, (-1, h)).unflatten(0, (-1, h))
    by_layer = apart.diagonal(dim1=0, dim2=2).movedim(-1, 0)  # (layers, h, h)
    first, second = torch.triu_indices(h, h, offset=1)
    alone = (by_layer | torch.eye(h, dtype=torch.bool)).all(-1)
    return by_layer[:, first, second].double().mean().item(), alone.double().mean().item()


def interval(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Give the Clopper-Pearson interval of a share: those shares that the count does not refute.

    Its ends are the shares for which a count as high, or as low, has probability (1 - level) / 2.

    Args:
        count: how often it happened.
        of: of how many independent cases.
        level: how often, at least, such an interval holds the true share.

    Source: Clopper and Pearson (1934).

    >>> [round(end, 3) for end in interval(5, 6)]
    [0.359, 0.996]
    """
    count, of = whole("count", count), size("of", of)
    if not 0 <= count <= of:
        raise ValueError(f"count must lie between 0 and {of}; got {count}.")
    tail = (1 - level) / 2

    ways = [math.comb(of, i) for i in range(of + 1)]

    def at_most(k: int, p: float) -> float:
        return sum(ways[i] * p**i * (1 - p) ** (of - i) for i in range(k + 1))

    low = 0.0 if count == 0 else _root(lambda p: 1 - at_most(count - 1, p) - tail)
    high = 1.0 if count == of else _root(lambda p: tail - at_most(count, p))
    return low, high


def histories() -> dict[str, dict[str, list[int]]]:
    """Read what untrained twins get, a number a seed: by relation, and for the schemas."""
    return json.loads(HISTORIES.read_text("utf-8"))


def run_untrained() -> dict[str, dict[str, list[int]]]:
    """Try all relations, and the schemas, on TWINS untrained twins, which takes a minute."""
    told: dict[str, dict[str, list[int]]] = {"relations": {}, "schemas": {}}
    for seed in range(TWINS):
        twin = untrained_encoder(seed).double()
        for name, tried in try_all(twin).items():
            told["relations"].setdefault(name, []).append(tried.tested_on)
        encoded = twin.encode([sentence for sentence, *_ in schemas()])
        rightly, wrongly = turns(schema_margins(encoded)[0])
        told["schemas"].setdefault("most turns", []).append(int((rightly + wrongly).max()))
        told["schemas"].setdefault("rightly", []).append(int(rightly.sum()))
        told["schemas"].setdefault("wrongly", []).append(int(wrongly.sum()))
    return told


def _first_choices(encoded: Encoded, rows: Sequence[Row], asking: int, answer: int) -> Tensor:
    first = []
    for i, row in enumerate(rows):
        tokens, weights = encoded.sentence(i)
        here = tokens.index(row[asking])
        given = weights[:, :, here].clone()
        given[..., [0, here, -1]] = 0
        first.append(given.argmax(-1) == tokens.index(row[answer]))
    return torch.stack(first)


def _bits(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1) / math.log(2)


def _nouns(tokens: list[str]) -> list[int]:
    return [i for i, token in enumerate(tokens) if token in NOUNS]


def _follows(encoder: Encoder, rows: Sequence[Row], ways: list[tuple[int, int]], rule: str) -> int:
    count = 0
    for row in rows:
        tokens = encoder.tokenizer.encode(row[0]).tokens
        found = (RULES[rule](tokens, tokens.index(row[a])) == tokens.index(row[b]) for a, b in ways)
        count += all(found)
    return count


def _root(rises: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) > 0 else (middle, high)
    return (low + high) / 2
