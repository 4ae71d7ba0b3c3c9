"""Two heads of the small GPT that need each other: one looks a word back, one finds surnames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default

from labkit.figures import broken_gpt
from labkit.figures.base import Choice, LiveFigure, Whole
from labkit.figures.small_gpt import EXAMPLES, STORED_PLACES, SmallGPT, load
from labkit.heads import without_heads
from labkit.ledger.nested import rounded
from labkit.models import gpt
from labkit.models.ablation import COUNTS, FOUR, weights_on_sources, weights_on_word_before
from labkit.models.stories import PRONOUNS, SURNAMES, VOCABULARY, decode, encode
from labkit.models.training import unseen

STEPS = ("a word back", "into the key", "found", "prediction")
HEADS = 4  # of a layer
OFF = ("no head", *(f"head {i}" for i in range(HEADS)))
PEOPLE = 2  # who are introduced in a story of the figure: each has a surname, which is a key
MOST_WORDS = 16
PARCEL = {"ask": "parcel", "of": SmallGPT.name}
BOTH = ["all heads", "as switched"]
MEANS = [
    "weight on the word before, from a surname",
    "weight on the word before, from another word",
    "keys that fit their own name best",
    "weight on the right surname",
    "probability of the right surname",
]


class Tale(NamedTuple):
    """A story of two people up to the name of one of them, whose surname has to follow."""

    text: str
    surname: str


@cache
def tales() -> list[Tale]:
    """List the small GPT's own example, and all beginnings of unseen stories that fit.

    These are those of the stories of chapter 8 that name two people, and ask for the surname of one
    of them, within 16 words.
    """
    found = [Tale(EXAMPLES["which surname"], "hill")]
    for words in unseen(COUNTS).words:
        for i, word in enumerate(words[: MOST_WORDS + 1]):
            before = [told.text for told in words[:i]]
            if word.relation == "surname" and len(PRONOUNS.keys() & set(before)) == PEOPLE:
                found.append(Tale(" ".join(before), word.text))
    return found


class InductionHeads(LiveFigure):
    """Follow a surname through two layers of the small GPT, and switch heads of the first one off.

    Its weights are those of ``models.gpt.load_gpt()``. They come when the figure is first played;
    until then it shows its first state, which is stored.

    Args:
        state: the traits: the ``step`` that is told; the number of the ``example``, 0 for the one
            of the small GPT's figure and then the stories that ``tales`` lists; the ``surname`` of
            who is asked for in it; and which head of layer 0 is ``off``.

    Raises:
        FileNotFoundError: the weights are not there.
    """

    title = Unicode("Two heads find a surname").tag(sync=True)
    caption = Unicode(
        "The words of a story are in two columns, before and after layer 0. Lines between them are "
        "the weights of one head of layer 0, blue where a surname asks. Beside each surname is the "
        "name whose query fits its key best, with ✗ where it is not the name before it. Orange "
        "arcs are the weights with which the last word asks, of one head of layer 1. Below is the "
        "likeliest next word. The first story is the example of chapter 10. The others are all "
        f"that the {COUNTS} unseen stories have with two people, up to a name whose surname has to "
        f"follow, in at most {MOST_WORDS} words. You can also choose that surname."
    ).tag(sync=True)
    axes = Dict(
        {
            "weights of the previous-word head": ["query", "key"],
            "weight on the word before": ["head", "word"],
            "scores by name": [list(PRONOUNS), ["first surname", "second surname"]],
            "weights from the last word": ["head", "word"],
            "next word": [[*SURNAMES, "other words"], BOTH],
            "mean over unseen stories": [MEANS, BOTH],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(help="words, stories, which heads, and what was measured").tag(
        sync=True
    )
    first: Dict[str, Any] = Dict(help="the state in which it is shown first, and its values").tag(
        sync=True
    )
    step = Choice(STEPS, default_value=STEPS[0]).tag(sync=True)
    example = Whole(0, len(tales()) - 1, default_value=0).tag(sync=True)
    surname = Choice(SURNAMES, default_value="hill").tag(sync=True)
    off = Choice(OFF, default_value=OFF[0]).tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**state)
        self.on_msg(self._answer)

    @default("given")
    def _given(self) -> dict[str, Any]:
        previous, induction = pair()
        return {
            "words": list(VOCABULARY),
            "names": list(PRONOUNS),
            "surnames": list(SURNAMES),
            "tales": [list(tale) for tale in tales()],
            "heads": [previous, induction],
            "h": HEADS,
            "means": {off: measured(off) for off in OFF},
            "counts": [COUNTS, int(unseen(COUNTS).of("surname").sum()), PEOPLE * len(tales())],
            "bytes": len(SmallGPT.parcel()),
            "of": PARCEL["of"],
        }

    @default("first")
    def _first(self) -> dict[str, Any]:
        return {
            "state": {name: getattr(self, name) for name in ("example", "surname", "off")},
            "values": {name: rounded(x, STORED_PLACES) for name, x in self.values().items()},
        }

    def state(self) -> dict[str, Any]:
        # What is stored is shown before any weight is there: it has to be of the state as it is.
        self.first = self._first()
        return super().state()

    def values(self) -> dict[str, Any]:
        ids = encode(retold(tales()[self.example], self.surname))
        whole, now = run(ids), run(ids, self.off)
        return {
            "weights of the previous-word head": now.weights[0, pair()[0]].tolist(),
            "weight on the word before": word_before(now.weights[0]).tolist(),
            "scores by name": name_scores(ids[None], self.off)[0].tolist(),
            "weights from the last word": now.weights[1, :, -1].tolist(),
            "next word": side_by_side(*(surname_chances(one.next[-1]) for one in (whole, now))),
            "mean over unseen stories": side_by_side(measured(OFF[0]), measured(self.off)),
        }

    def _answer(self, widget: Any, content: Any, buffers: Any) -> None:
        if content == PARCEL:
            self.send({"answer": "parcel"}, [SmallGPT.parcel()])


def run(ids: Tensor, off: str = OFF[0]) -> broken_gpt.Run:
    """Let the small GPT read words, (..., n), without a head of layer 0 or with all."""
    model = load(gpt.CHECKPOINT)
    heads = [i for i in range(HEADS) if OFF[i + 1] == off]
    with without_heads(model.stack()[0].attention, heads):
        return broken_gpt.run(model, ids)


def retold(tale: Tale, surname: str) -> str:
    """Give whoever a story asks for another surname.

    >>> retold(Tale("the box suits mia hill . mia", "hill"), "ford")
    'the box suits mia ford . mia'
    """
    words = tale.text.split()
    words[words.index(words[-1]) + 1] = surname
    return " ".join(words)


def surname_places(ids: Tensor) -> list[int]:
    """List where surnames are among words, (n,)."""
    return [i for i, word in enumerate(decode(ids).split()) if word in SURNAMES]


def word_before(weights: Tensor) -> Tensor:
    """Give each query's weight on the word before it: (..., n, n) to (..., n), 0 for the first."""
    return torch.nn.functional.pad(weights.diagonal(-1, -2, -1), (1, 0))


@cache
def pair() -> tuple[int, int]:
    """Find the head of layer 0 that looks back from surnames most, and that of 1 that finds them.

    Both by their mean weight over the unseen stories of chapter 8.
    """
    told = unseen(COUNTS)
    weights = run(told.ids).weights
    found = weights_on_sources(weights, told)[1, :, FOUR.index("surname")]
    return int(weights_on_word_before(weights, told)[0].argmax()), int(found.argmax())


def name_scores(ids: Tensor, off: str) -> Tensor:
    """Score the keys of surnames by the query that each name would have at the end of a story.

    Args:
        ids: (B, n), stories with surnames at the same places.

    Returns:
        (B, names, surnames), of the head of layer 1 that finds surnames.
    """
    asked = ids[:, None].repeat(1, len(PRONOUNS), 1)
    asked[:, :, -1] = encode(" ".join(PRONOUNS))
    told, head = run(asked.flatten(0, 1), off), pair()[1]
    q, k = told.q[1, :, head, -1:], told.k[1, :, head, surname_places(ids[0])]
    return (q @ k.mT / q.shape[-1] ** 0.5).view(*asked.shape[:2], -1)


def surname_chances(next_word: Tensor) -> list[float]:
    """Give the probability of each surname, and of all other words together."""
    each = next_word[encode(" ".join(SURNAMES))].tolist()
    return [*each, 1 - sum(each)]


@cache
def measured(off: str) -> list[float]:
    """Measure what MEANS names, over unseen stories, with a head of layer 0 off or with none."""
    told, (previous, induction) = unseen(COUNTS), pair()
    read = run(told.ids, off)
    looks_back = [
        weights_on_word_before(read.weights, told, others=o)[0, previous] for o in (False, True)
    ]
    found = weights_on_sources(read.weights, told)[1, induction, FOUR.index("surname")]
    right = told.right(read.next)["surname"]
    means = [*map(float, looks_back), own_name_fits(off), float(found), right]
    return rounded(means, STORED_PLACES)


def own_name_fits(off: str) -> float:
    """Give the share of keys, in all tales, whose best query is that of the name before them."""
    fits = []
    for length in {len(tale.text.split()) for tale in tales()}:
        texts = [tale.text.split() for tale in tales() if len(tale.text.split()) == length]
        ids = torch.stack([encode(" ".join(words)) for words in texts])
        best = name_scores(ids, off).argmax(1)
        own = ids[:, [i - 1 for i in surname_places(ids[0])]]
        fits.append(encode(" ".join(PRONOUNS))[best] == own)
    return torch.cat(fits).double().mean().item()


def side_by_side(*columns: Sequence[float]) -> list[list[float]]:
    return [list(line) for line in zip(*columns, strict=True)]
