"""A small GPT that runs in the page: the next word, all heads, and what breaks without some."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, TraitType, Unicode, default, observe, validate

from labkit.figures.base import Choice, Flags, LiveFigure, Whole, refuse
from labkit.figures.head_viewer import STEPS
from labkit.heads import without_heads
from labkit.ledger.nested import rounded
from labkit.models import gpt, stories

MOST_WORDS = 48  # of a story that the model was trained on
MOST_HEADS = 1000
STORED_PLACES = 7  # of the first state, which is shown until the model is loaded

EXAMPLES = {
    "he or she": "the box suits mia hill . the hat suits tom lake . tom lake sings and",
    "one or several": "the box suits mia hill . the hat suits tom lake . the dogs near the cow",
    "which surname": "the box suits mia hill . the hat suits tom lake . mia",
    "whose thing": "the box suits mia hill . the hat suits tom lake . the box",
}
RULES = {
    "people": stories.PRONOUNS,
    "surnames": list(stories.SURNAMES),
    "things": list(stories.THINGS),
    "deeds": list(stories.DEEDS),
    "moods": list(stories.MOODS),
    "looks": list(stories.LOOKS),
    "animals": {animal: list(verbs) for animal, verbs in stories.NUMBERS.items()},
    "kinds": stories.WEIGHTS,
    "most people": stories.MOST_PEOPLE,
}
COLUMNS = ["all heads", "heads left on", "rules"]


class Story(TraitType):
    """Words that the model knows, one space between each two."""

    def __init__(self, *args: Any, most: int = MOST_WORDS, **kwargs: Any) -> None:
        self.most = most
        super().__init__(*args, **kwargs)

    def validate(self, obj: Any, value: Any) -> str:
        words = value.split() if isinstance(value, str) else []
        strange = sorted(set(words) - set(stories.VOCABULARY))
        if strange or not 1 <= len(words) <= self.most:
            known = f"1 to {self.most} of the words of labkit.models.stories.VOCABULARY"
            not_known = f", which does not have {', '.join(strange)}" if strange else ""
            refuse(self, known + not_known, value)
        return " ".join(words)


class HeadFlags(Flags):
    """For each layer a flag for each head of the model."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(0, 0, **kwargs)

    def validate(self, obj: Any, value: Any) -> list[list[bool]]:
        self.size = obj.shape
        return super().validate(obj, value)


class SmallGPT(LiveFigure):
    """Give a small GPT a story, see what it says next and where its heads look, silence some.

    Its weights are those of ``models.gpt.load_gpt()``. The figure asks for them when it is first
    played; until then it shows its first state, which is stored.

    Args:
        state: the traits: ``story``, words of ``models.stories.VOCABULARY``; ``heads_on``, for each
            layer a flag for each head; the ``layer`` and ``head`` that is drawn large, and its
            ``query`` and ``key``, all counted from 0; ``temperature`` of the words that it writes,
            0 for the likeliest.

    Raises:
        FileNotFoundError: the weights are not there.
    """

    title = Unicode("A small GPT, here in the page").tag(sync=True)
    caption = Unicode(
        "A story, each of its words with the probability that the model gave it, and the likeliest "
        "next words beside what the rules of the stories allow. Small maps show the weights of all "
        "heads, a row for each query and a column for each key; the chosen one is drawn large. A "
        "head that is switched off writes nothing, and all probabilities are then shown with and "
        "without it."
    ).tag(sync=True)
    axes = Dict(
        {
            "next word": [list(stories.VOCABULARY), COLUMNS],
            "words of the story": ["word", COLUMNS[:2]],
            "weights": ["query", "key"],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(help="words, examples, rules, layers and h, and the bytes").tag(
        sync=True
    )
    first: Dict[str, Any] = Dict(help="the state in which it is shown first, and all that it shows")
    first.tag(sync=True)
    story = Story(EXAMPLES["he or she"]).tag(sync=True)
    heads_on = HeadFlags().tag(sync=True)
    layer = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    head = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    query = Whole(0, MOST_WORDS - 1).tag(sync=True)
    key = Whole(0, MOST_WORDS - 1, default_value=0).tag(sync=True)
    temperature = Choice([0, 0.5, 0.7, 1, 1.4, 2], default_value=0).tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**state)
        self.on_msg(self._answer)

    @classmethod
    def parcel(cls) -> bytes:
        path = gpt.CHECKPOINT
        load(path)
        return path.read_bytes()

    @property
    def shape(self) -> tuple[int, int]:
        """The layers of the model, and the heads of each."""
        blocks = load(gpt.CHECKPOINT).stack()
        return len(blocks), blocks[0].attention.h

    @default("given")
    def _given(self) -> dict[str, Any]:
        return {
            "words": list(stories.VOCABULARY),
            "examples": EXAMPLES,
            "rules": RULES,
            "most": MOST_WORDS,
            "shape": list(self.shape),
            "bytes": len(self.parcel()),
        }

    @default("heads_on")
    def _all_on(self) -> list[list[bool]]:
        layers, h = self.shape
        return [[True] * h for _ in range(layers)]

    @default("query")
    def _last(self) -> int:
        return len(self.story.split()) - 1

    @default("first")
    def _first(self) -> dict[str, Any]:
        traits = ["story", "heads_on", "layer", "head"]
        _, weights = self._run(self.heads_on)
        steps = (weights * STEPS).round().to(torch.uint8).flatten().tolist()
        return {
            "state": {name: getattr(self, name) for name in traits},
            "values": {name: rounded(x, STORED_PLACES) for name, x in self.values().items()},
            "maps": base64.b64encode(bytes(steps)).decode("ascii"),
        }

    @validate("layer", "head", "query", "key")
    def _fits(self, proposal: Any) -> int:
        layers, h = self.shape
        here = len(self.story.split())
        size = {"layer": layers, "head": h}.get(proposal["trait"].name, here)
        if proposal["value"] >= size:
            refuse(proposal["trait"], f"a whole number from 0 to {size - 1}", proposal["value"])
        return proposal["value"]

    @observe("story")
    def _stay_inside(self, change: Any) -> None:
        last = len(self.story.split()) - 1
        self.query, self.key = min(self.query, last), min(self.key, last)

    def state(self) -> dict[str, Any]:
        # What is stored is shown before any weight is there: it has to be of the state as it is.
        self.first = self._first()
        return super().state()

    def values(self) -> dict[str, Any]:
        everything, _ = self._run(self._all_on())
        left, weights = self._run(self.heads_on)
        shown = compared(self.story, everything, left)
        return shown | {"weights": weights[self.layer, self.head].tolist()}

    @torch.no_grad()
    def _run(self, heads_on: Sequence[Sequence[bool]]) -> tuple[Tensor, Tensor]:
        """Return the next word's probabilities, (n, words), and weights, (layers, h, n, n)."""
        model = load(gpt.CHECKPOINT)
        with ExitStack() as stack:
            for block, flags in zip(model.stack(), heads_on, strict=True):
                silent = [head for head, on in enumerate(flags) if not on]
                stack.enter_context(without_heads(block.attention, silent))
            logits, weights = model(stories.encode(self.story)[None], return_weights=True)
        return logits[0].softmax(-1), weights[:, 0]

    def _answer(self, widget: Any, content: Any, buffers: Any) -> None:
        if content == {"ask": "parcel"}:
            self.send({"answer": "parcel"}, [self.parcel()])


@cache
def load(path: Any) -> gpt.GPT:
    """Load the model once, in float64."""
    return gpt.load_gpt(path).double()


def compared(story: str, *runs: Tensor) -> dict[str, list[list[float]]]:
    """Set side by side what runs of a model say of a story's words, and of its next one.

    Args:
        runs: (n, words) each, the next word's probabilities at each place.
    """
    rules, ids = after(story.split()), stories.encode(story)[1:, None]
    # The first word is given to the model, and counts as certain.
    said = [[1.0, *run[:-1].gather(1, ids)[:, 0].tolist()] for run in runs]
    allowed = [rules.get(word, 0.0) for word in stories.VOCABULARY]
    following = [*(run[-1].tolist() for run in runs), allowed]
    return {
        "next word": [list(line) for line in zip(*following, strict=True)],
        "words of the story": [list(line) for line in zip(*said, strict=True)],
    }


def after(words: Sequence[str]) -> dict[str, float]:
    """Give each word that the rules allow next with its probability; none where they broke.

    >>> after(["the", "box"])
    {'suits': 1.0}
    """
    said: list[str] = []

    def choose(options: dict[str, int]) -> str:
        word = words[len(said)] if len(said) < len(words) else None
        return word if word in options else next(iter(options))

    for word in stories.story(choose):
        if len(said) == len(words):
            total = sum(word.options.values())
            return {option: weight / total for option, weight in word.options.items()}
        if word.text != words[len(said)]:
            break
        said.append(word.text)
    return {}
