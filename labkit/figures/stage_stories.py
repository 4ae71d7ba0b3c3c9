"""The story GPT on the stage: one head's view of a story, and what a bug does to its words."""

from __future__ import annotations

from typing import Any

from labkit.figures.broken_gpt import BUGS, run
from labkit.figures.small_gpt import EXAMPLES, RULES, SmallGPT, after, compared, load
from labkit.models import gpt, stories

MOST_WORDS = 16  # of a story that the stage shows
LAYERS, HEADS = 2, 4  # of the model: the stage may be made without its weights
FALL = 0.2  # of a probability, by which a word that the rules fix fails
PARCEL = {"ask": "parcel", "of": SmallGPT.name}
TITLE = "One head reads a story"
CAPTION = (
    "Each word of a story can ask: arcs lead from it to the words that one head of a small GPT "
    "attends to, as thick as the weights. Below each word stand the probability that the model "
    "gave it, its weight, and the query, key and value of that head as strips, a bar for each "
    "dimension, up where it is positive and down where it is negative. Words that the rules of the "
    "stories fix are underlined, and marked where a bug takes more than 0.2 off their probability. "
    "The likeliest next words stand beside what the rules allow. Layers and heads are counted from "
    "0, as in code."
)
COLUMNS = ["without a bug", "with the bug", "rules"]
AXES = {
    "queries of the head": ["word", "dimension"],
    "keys of the head": ["word", "dimension"],
    "values of the head": ["word", "dimension"],
    "next word": [list(stories.VOCABULARY), COLUMNS],
    "words of the story": ["word", COLUMNS[:2]],
}


def given() -> dict[str, Any]:
    """Give what the stage needs to know of the model and of its stories."""
    return {
        "words": list(stories.VOCABULARY),
        "examples": EXAMPLES,
        "rules": RULES,
        "most": MOST_WORDS,
        "shape": [LAYERS, HEADS],
        "bugs": list(BUGS),
        "bytes": len(SmallGPT.parcel()),
        "of": PARCEL["of"],
    }


def values(story: str, bug: str, layer: int, head: int, asking: int) -> dict[str, Any]:
    """Compute what one head does with a story, and what the model says of each word.

    Args:
        bug: one of ``broken_gpt.BUGS``; any other is none.
        asking: the place of the word whose weights are told; behind the end it is the last word.
    """
    model, words, ids = load(gpt.CHECKPOINT), story.split(), stories.encode(story)
    whole, broken = run(model, ids), run(model, ids, bug)
    shown = compared(story, whole.next, broken.next)
    return {
        "weights": broken.weights[layer, head, min(asking, len(words) - 1)].tolist(),
        "queries of the head": broken.q[layer, head].tolist(),
        "keys of the head": broken.k[layer, head].tolist(),
        "values of the head": broken.v[layer, head].tolist(),
        **shown,
        "fixed words that fail": sum(
            before - now > FALL and is_fixed(words, i)
            for i, (before, now) in enumerate(shown["words of the story"])
        ),
    }


def is_fixed(words: list[str], i: int) -> bool:
    """Say whether the rules allow no other word than that at a place.

    >>> [is_fixed("the box suits mia".split(), i) for i in range(4)]
    [False, False, True, False]
    """
    return i > 0 and set(after(words[:i])) == {words[i]}
