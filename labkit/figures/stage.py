"""The stage: a sentence, attention as arcs over its words, and the plane in which it happens."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, TraitType, Unicode, default

from labkit.figures.base import Choice, LiveFigure, Matrix, is_number, refuse
from labkit.ledger.nested import each, plain
from labkit.models import pocket
from labkit.models.pocket import ANSWERS, WORDS

STEPS = ("question", "words", "query and keys", "scores", "weights", "output", "answer")
WRONG_AXIS = "softmax over the wrong axis"
SWAPPED = "keys and values swapped"
NO_SOFTMAX = "scores without softmax"
NOT_DIVIDED = "not divided by √2"
BUGS = ("none", WRONG_AXIS, SWAPPED, NO_SOFTMAX, NOT_DIVIDED)
LAST = ("and", "a")  # the words that ask
FEWEST, MOST = 2, 6  # words of a sentence
TIE = 1e-9  # a right answer is ahead of all others by more than this
BOTH = ["first", "second"]


class Sentence(TraitType):
    """Words of the pocket model, one space between each two, of which the last one asks."""

    def validate(self, obj: Any, value: Any) -> str:
        words = value.split() if isinstance(value, str) else []
        fits = FEWEST <= len(words) <= MOST and set(words) <= set(WORDS) and words[-1] in LAST
        if not fits:
            known = f"{FEWEST} to {MOST} of the words of labkit.models.pocket.WORDS"
            refuse(self, f'{known}, the last one "and" or "a"', value)
        return " ".join(words)


class Query(TraitType):
    """A row of two numbers, or an empty one where the model computes its own."""

    def validate(self, obj: Any, value: Any) -> list[float]:
        row = plain(value)
        if not isinstance(row, list) or len(row) not in (0, 2) or not all(map(is_number, row)):
            refuse(self, "a row of two numbers, or [] for the one that W_Q gives", value)
        return each(row, float)


class States(TraitType):
    """Named states of a figure, each with the traits that it sets."""

    def validate(self, obj: Any, value: Any) -> dict[str, dict[str, Any]]:
        if not isinstance(value, dict) or not all(map(self._fits, value, value.values())):
            refuse(self, "for each name, of small letters, digits and hyphens, its traits", value)
        return {
            name: {trait: obj.traits()[trait]._validate(obj, to) for trait, to in state.items()}
            for name, state in value.items()
        }

    def _fits(self, name: Any, state: Any) -> bool:
        is_name = isinstance(name, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        return bool(is_name) and isinstance(state, dict) and set(state) <= set(CONTROLS)


CONTROLS = ("model", "sentence", "step", "bug", "vectors", "query")


class Stage(LiveFigure):
    """Follow one question through a layer of attention, step by step, and break the layer.

    The model is that of ``models.pocket.load_pocket()``: the last word of a sentence asks, and its
    answer is the next word.

    Args:
        state: the traits: ``sentence``, two to six words of ``models.pocket.WORDS``, the last one
            "and" or "a"; the ``step`` up to which it is shown; a ``bug`` in the model, or "none";
            the word ``vectors``, a row for each word of the model; the ``query``, [] for the one
            that the model computes; and ``states`` that a text leads to, each a name and the traits
            that it sets.

    Raises:
        FileNotFoundError: the model's weights are not there.

    >>> answers = Stage(sentence="ben sings and").values()["answers"]
    >>> ANSWERS[answers.index(max(answers))]
    'he'
    """

    title = Unicode("One question, step by step").tag(sync=True)
    caption = Unicode(
        "The last word of a sentence asks, and the model answers with the next word. Below each "
        "word stand its vector, its key, its score, its weight and its value; arcs over the words "
        "are as thick as the weights. The plane shows the same vectors as points: first the words, "
        "then the keys with the query as an arrow, then the values with the output among them, and "
        "last where the asking word ends up when the output is added to it. Each answer has a "
        "region of the plane. A bug can be put into the model; the figure counts which of its 74 "
        "sentences then go wrong."
    ).tag(sync=True)
    axes = Dict(
        {
            "vectors": ["word", BOTH],
            "query": [BOTH],
            "keys": ["word", BOTH],
            "scores": ["word"],
            "weights": ["word"],
            "values": ["word", BOTH],
            "output": [BOTH],
            "answers": [list(ANSWERS)],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(help="words, answers, matrices and sentences").tag(sync=True)
    model = Choice(["pocket"], default_value="pocket").tag(sync=True)
    sentence = Sentence("mia reads and").tag(sync=True)
    step = Choice(STEPS, default_value="question").tag(sync=True)
    bug = Choice(BUGS, default_value="none").tag(sync=True)
    vectors = Matrix(len(WORDS), 2).tag(sync=True)
    query = Query([]).tag(sync=True)
    states = States({}).tag(sync=True)

    @default("given")
    def _given(self) -> dict[str, Any]:
        weights = model()
        return {
            "words": list(WORDS),
            "answers": list(ANSWERS),
            "vectors": weights["vectors"].tolist(),
            **{name: weights[name].tolist() for name in ("W_Q", "W_K", "W_V", "U")},
            "sentences": [[one.text, one.answer] for one in pocket.sentences()],
        }

    @default("vectors")
    def _vectors(self) -> list[list[float]]:
        return model()["vectors"].tolist()

    def values(self) -> dict[str, Any]:
        vectors = torch.tensor(self.vectors, dtype=torch.float64)
        query = torch.tensor(self.query, dtype=torch.float64) if self.query else None
        found = attend(vectors[pocket.encode(self.sentence)], self.bug, query)
        wrong = sum(goes_wrong(vectors, one, self.bug) for one in pocket.sentences())
        return {name: x.tolist() for name, x in found.items() if name != "logits"} | {
            "sentences that go wrong": wrong
        }


@cache
def model() -> dict[str, Tensor]:
    """Load the pocket model's numbers once, with no negative zeros."""
    return {name: x[0] + 0.0 for name, x in pocket.load_pocket().state_dict().items()}


def attend(x: Tensor, bug: str = "none", query: Tensor | None = None) -> dict[str, Tensor]:
    """Compute all that the pocket model does with word vectors, (n, 2), with a bug or without.

    Args:
        query: (2,), in place of the one that the last word has.
    """
    w = model()
    queries, keys, values = x @ w["W_Q"], x @ w["W_K"], x @ w["W_V"]
    if query is not None:
        queries = torch.cat([queries[:-1], query[None]])
    if bug == SWAPPED:
        keys, values = values, keys
    scores = queries @ keys.mT / (1 if bug == NOT_DIVIDED else 2**0.5)
    weights = scores if bug == NO_SOFTMAX else scores.softmax(0 if bug == WRONG_AXIS else 1)
    output = weights[-1] @ values
    logits = (x[-1] + output) @ w["U"]
    return {
        "vectors": x,
        "query": queries[-1],
        "keys": keys,
        "scores": scores[-1],
        "weights": weights[-1],
        "values": values,
        "output": output,
        "logits": logits,
        "answers": logits.softmax(0),
    }


def goes_wrong(vectors: Tensor, sentence: pocket.Sentence, bug: str = "none") -> bool:
    """Say whether the right answer of a sentence is not the likeliest one."""
    logits = attend(vectors[pocket.encode(sentence.text)], bug)["logits"]
    right = ANSWERS.index(sentence.answer)
    others = torch.cat([logits[:right], logits[right + 1 :]])
    return bool(logits[right] <= others.max() + TIE)
