"""The stage: a sentence, attention as arcs over its words, and the plane in which it happens."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, TraitType, Unicode, default, observe

from labkit.figures import broken_gpt, stage_stories
from labkit.figures.base import Choice, LiveFigure, Matrix, Whole, is_number, refuse
from labkit.figures.small_gpt import EXAMPLES, STORED_PLACES, SmallGPT, Story
from labkit.ledger.nested import each, plain, rounded
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


MODELS = ("pocket", "stories")
MOST_PLACE = stage_stories.MOST_WORDS - 1  # the last word of any story
OF_STORIES = ("story", "layer", "head", "asking")
CONTROLS = ("model", "sentence", "step", "bug", "vectors", "query", *OF_STORIES)
CAPTION = (
    "The last word of a sentence asks, and the model answers with the next word. Below each "
    "word stand its vector, its key, its score, its weight and its value; arcs over the words "
    "are as thick as the weights. The plane shows the same vectors as points: first the words, "
    "then the keys with the query as an arrow, then the values with the output among them, and "
    "last where the asking word ends up when the output is added to it. Each answer has a "
    "region of the plane. A bug can be put into the model; the figure counts which of its 74 "
    "sentences then go wrong."
)
POCKET_AXES = {
    "vectors": ["word", BOTH],
    "query": [BOTH],
    "keys": ["word", BOTH],
    "scores": ["word"],
    "weights": ["word"],
    "values": ["word", BOTH],
    "output": [BOTH],
    "answers": [list(ANSWERS)],
}


class Stage(LiveFigure):
    """Follow one question through a layer of attention, step by step, and break the layer.

    The model "pocket" is that of ``models.pocket.load_pocket()``: the last word of a sentence asks,
    and its answer is the next word. The model "stories" is that of ``models.gpt.load_gpt()``: every
    word of a story asks, and one head is shown. Its weights come when the figure is first played.
    Each model has traits and bugs of its own; those of the other one do nothing.

    Args:
        state: the traits: ``model``; of the pocket model ``sentence``, two to six words of
            ``models.pocket.WORDS``, the last one "and" or "a"; the ``step`` up to which it is
            shown; a ``bug`` in the model, or "none"; the word ``vectors``, a row for each word of
            the model; the ``query``, [] for the one that the model computes; of the other one
            ``story``, at most 16 words of ``models.stories.VOCABULARY``; the ``layer`` and
            ``head``, and the place of the word that is ``asking``, all counted from 0 (behind the
            end it is the last word); and ``states`` that a text leads to, each a name and the
            traits that it sets.

    Raises:
        FileNotFoundError: the model's weights are not there.

    >>> answers = Stage(sentence="ben sings and").values()["answers"]
    >>> ANSWERS[answers.index(max(answers))]
    'he'
    """

    title = Unicode().tag(sync=True)
    caption = Unicode(help=LiveFigure.caption.help).tag(sync=True)
    axes = Dict(help=LiveFigure.axes.help).tag(sync=True)
    given: Dict[str, Any] = Dict(help="words, answers, matrices and sentences").tag(sync=True)
    first: Dict[str, Any] = Dict(help="of a story, the state in which it is shown first").tag(
        sync=True
    )
    model = Choice(MODELS, default_value="pocket").tag(sync=True)
    sentence = Sentence("mia reads and").tag(sync=True)
    step = Choice(STEPS, default_value="question").tag(sync=True)
    bug = Choice((*BUGS, *broken_gpt.BUGS[1:]), default_value="none").tag(sync=True)
    vectors = Matrix(len(WORDS), 2).tag(sync=True)
    query = Query([]).tag(sync=True)
    story = Story(EXAMPLES["he or she"], most=stage_stories.MOST_WORDS).tag(sync=True)
    layer = Whole(0, stage_stories.LAYERS - 1, default_value=0).tag(sync=True)
    head = Whole(0, stage_stories.HEADS - 1, default_value=0).tag(sync=True)
    asking = Whole(0, MOST_PLACE, default_value=MOST_PLACE).tag(sync=True)
    states = States({}).tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**state)
        self.on_msg(self._answer)

    @property
    def tells_stories(self) -> bool:
        """Whether the story GPT is shown, or a state leads to it."""
        models = [self.model, *(state.get("model") for state in self.states.values())]
        return "stories" in models

    @observe("model", "states")
    def _learn_stories(self, change: Any) -> None:
        if self.tells_stories and "stories" not in self.given:
            self.given, self.axes = self._given(), self._axes()

    @default("title")
    def _title(self) -> str:
        return stage_stories.TITLE if self.model == "stories" else "One question, step by step"

    @default("caption")
    def _caption(self) -> str:
        both = [CAPTION, stage_stories.CAPTION]
        return " ".join(both[self.model == "stories" : 1 + self.tells_stories])

    @default("options")
    def _options(self) -> dict[str, list[Any]]:
        # The bugs of the stories are given with them.
        return {**super()._options(), "bug": list(BUGS)}

    @default("axes")
    def _axes(self) -> dict[str, Any]:
        return POCKET_AXES | (stage_stories.AXES if self.tells_stories else {})

    @default("given")
    def _given(self) -> dict[str, Any]:
        weights = model()
        about = {"stories": stage_stories.given()} if self.tells_stories else {}
        return about | {
            "words": list(WORDS),
            "answers": list(ANSWERS),
            "vectors": weights["vectors"].tolist(),
            **{name: weights[name].tolist() for name in ("W_Q", "W_K", "W_V", "U")},
            "sentences": [[one.text, one.answer] for one in pocket.sentences()],
        }

    @default("vectors")
    def _vectors(self) -> list[list[float]]:
        return model()["vectors"].tolist()

    @classmethod
    def module(cls, state: dict[str, Any]) -> str:
        return cls.name if "stories" in state["given"] else f"{cls.name}_pocket"

    def state(self) -> dict[str, Any]:
        # What is stored is shown before any weight is there: it has to be of the state as it is.
        self.first = self._first()
        return super().state()

    @default("first")
    def _first(self) -> dict[str, Any]:
        if self.model != "stories":
            return {}
        values = {name: rounded(x, STORED_PLACES) for name, x in self.values().items()}
        state = {name: getattr(self, name) for name in ("bug", *OF_STORIES)}
        return {"state": state, "values": values}

    def _answer(self, widget: Any, content: Any, buffers: Any) -> None:
        if content == stage_stories.PARCEL:
            self.send({"answer": "parcel"}, [SmallGPT.parcel()])

    def values(self) -> dict[str, Any]:
        if self.model == "stories":
            traits = [getattr(self, name) for name in OF_STORIES]
            return stage_stories.values(traits[0], self.bug, *traits[1:])
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
