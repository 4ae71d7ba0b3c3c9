"""Speculative sampling over three words: which guesses are accepted, and what is written then."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from traitlets import Dict, Unicode

from labkit.figures.base import Choice, LiveFigure

LARGE = [3, 2, 1]  # in sixths, as all of them
DRAFTS = {
    "that of the example": [1, 1, 4],
    "as the large model": [3, 2, 1],
    "all words alike": [2, 2, 2],
    "always word 3": [0, 0, 6],
}
LACKING, FROM_P = RULES = ("max(0, p − q)", "p, a slip")
GUESSES = (1, 2, 4, 8)


class CheckedGuesses(LiveFigure):
    """Follow the guesses of a draft through speculative sampling, in exact shares.

    The draft says a word with probability q, the large model with p. A guess is accepted with
    probability min(1, p / q). After a rejection a word is drawn from max(0, p - q), divided by its
    sum, or from p, which is a slip. If each guess is accepted with probability a, a call of the
    large model brings 1 + a + ... + a^g words.

    Args:
        state: the traits: the ``draft``, one of four; what is drawn ``after`` a rejection; and
            ``guesses`` at a time (1, 2, 4 or 8).

    >>> CheckedGuesses(guesses=1).values()["words a call"]
    1.5
    """

    title = Unicode("Guesses that are checked").tag(sync=True)
    caption = Unicode(
        "Two bars for each of three words. The left one is how often the draft guesses the word, "
        "and which part of these guesses is accepted or rejected. The right one is how often the "
        "word is written: the accepted guesses, and on top of them what is drawn after a "
        "rejection. A line is the large model’s probability. The other bars tell how likely it is "
        "that a call gets so far, if all words are as these three: the first word comes always, "
        "and each further one if all guesses before it stand."
    ).tag(sync=True)
    axes = Dict(
        {
            "probabilities": [
                "word",
                ["large model", "draft", "accepted", "drawn after a rejection", "written"],
            ],
            "a call gets so far": ["word"],
        }
    ).tag(sync=True)
    drafts = Dict({"large": LARGE, **DRAFTS}, help="in sixths").tag(sync=True)
    draft = Choice(list(DRAFTS), default_value="that of the example").tag(sync=True)
    after = Choice(RULES, default_value=LACKING).tag(sync=True)
    guesses = Choice(GUESSES, default_value=4).tag(sync=True)

    def values(self) -> dict[str, Any]:
        p, q = ([Fraction(x, 6) for x in of] for of in (LARGE, DRAFTS[self.draft]))
        accepted = [min(pair) for pair in zip(p, q, strict=True)]
        stands = sum(accepted)
        rest = p if self.after == FROM_P else [a - b for a, b in zip(p, accepted, strict=True)]
        again = [x * (1 - stands) / (sum(rest) or 1) for x in rest]
        written = [a + b for a, b in zip(accepted, again, strict=True)]
        reached = [stands**i for i in range(self.guesses + 1)]
        return {
            "probabilities": [
                [float(x) for x in word]
                for word in zip(p, q, accepted, again, written, strict=True)
            ],
            "guesses that are accepted": float(stands),
            "a call gets so far": [float(x) for x in reached],
            "words a call": float(sum(reached)),
        }
