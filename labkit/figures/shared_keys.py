"""Heads of queries that share keys and values: what is kept, and what it costs the story GPT."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, Unicode, default

from labkit.figures.base import Choice, LiveFigure
from labkit.models.ablation import FOUR
from labkit.models.economies import Economy, table
from labkit.models.training import HEADS

TRAINED, MEAN, SVD = WAYS = ("trained so", "converted: mean", "converted: SVD")
ROWS = {TRAINED: "", MEAN: " by mean", SVD: " by svd"}  # how a row of the table's name ends
KEY_HEADS = {4: "whole", 2: "2 key heads", 1: "1 key head"}
WITHOUT = "attention at its mean"
PLACES = 4


class SharedKeys(LiveFigure):
    """See which heads of keys and values four heads of queries read, and what sharing costs.

    The story GPT has two layers of four heads. It was trained with 4, 2 and 1 heads of keys and
    values, or trained with 4 and then converted. All numbers are means of five starts.

    Args:
        state: the traits: ``h_kv`` heads of keys and values (4, 2 or 1); and ``how`` they came to
            share ("trained so", "converted: mean" or "converted: SVD").

    >>> SharedKeys(h_kv=2).values()["head of keys that is read"]
    [1, 1, 2, 2]
    """

    title = Unicode("Heads that share, and what it costs").tag(sync=True)
    caption = Unicode(
        "A drawing tells which head of keys and values each of four heads of queries reads, in "
        "both layers of the story GPT, and what the cache keeps of a token. Bars tell the mean "
        "probability of the right word, by relation, on 200 unseen stories: means of five starts. "
        "A mark on each bar is what models give it whose attention is ablated to its mean. "
        "“Trained so” shared from the first step of training. “Converted” was trained with four "
        "heads of keys and then made to share, without further training."
    ).tag(sync=True)
    axes = Dict(
        {
            "head of keys that is read": ["head of queries"],
            "KL to the truth, in nats": [["mean", "least", "most"]],
            "probability of the right word": [list(FOUR), ["this model", "attention ablated"]],
        }
    ).tag(sync=True)
    h_kv = Choice(list(KEY_HEADS), default_value=4).tag(sync=True)
    how = Choice(WAYS, default_value=TRAINED).tag(sync=True)
    measured: Dict[str, Any] = Dict(
        help="for each way and number of key heads: bytes, KL, its least and most, relations; and "
        "the relations where attention is ablated to its mean"
    ).tag(sync=True)

    @default("measured")
    def _measured(self) -> dict[str, Any]:
        return {
            how: {
                str(h_kv): row(name if name == "whole" else name + end)
                for h_kv, name in KEY_HEADS.items()
            }
            for how, end in ROWS.items()
        } | {"ablated": right(table(WITHOUT)[0])}

    def values(self) -> dict[str, Any]:
        held, kl, probabilities = self.measured[self.how][str(self.h_kv)]
        return {
            "head of keys that is read": [i * self.h_kv // HEADS + 1 for i in range(HEADS)],
            "bytes a token": held,
            "KL to the truth, in nats": kl,
            "probability of the right word": [
                list(pair) for pair in zip(probabilities, self.measured["ablated"], strict=True)
            ],
        }


def row(name: str) -> list[Any]:
    """Give a row of the table of economies: bytes a token, KL with its span, relations."""
    (one,) = table(name)
    kl = [round(x, PLACES) for x in (one.kl, one.least, one.most)]
    return [int(one.bytes_a_token), kl, right(one)]


def right(one: Economy) -> list[float]:
    return [round(one.right[relation], PLACES) for relation in FOUR]
