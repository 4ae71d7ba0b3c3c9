"""Two trained layers on a sequence that is typed: one head against four, some of them cut."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, TraitType, Unicode, default

from labkit.figures.base import Choice, LiveFigure, refuse
from labkit.heads import relation_weight, without_heads
from labkit.models.reporters import (
    OFFSETS,
    POSITIONS,
    Reporter,
    as_bytes,
    load_reporters,
    targets,
)

DIGITS = torch.tensor([8, 4, 2, 1])
LETTERS = "abcdefghijklmnop"  # one for each token, whose signs are its number's binary digits
SWITCHES = {4: ["head_1", "head_2", "head_3", "head_4"], 1: ["only_head"]}
RELATIONS = [f"{-offset} back" for offset in OFFSETS]
RINGS = [torch.eye(POSITIONS, dtype=torch.bool).roll(offset, 1) for offset in OFFSETS]
AXES = {
    "positions that are right": [RELATIONS, ["four heads", "one head"]],
    "answers of four heads, a is 1": [RELATIONS, "position"],
    "answers of one head, a is 1": [RELATIONS, "position"],
    "weight on each relation": [["head 1", "head 2", "head 3", "head 4", "only head"], RELATIONS],
}


class Sequence(TraitType):
    """As many letters as there are positions, each a token."""

    def validate(self, obj: Any, value: Any) -> str:
        if not isinstance(value, str) or len(value) != POSITIONS or not set(value) <= set(LETTERS):
            refuse(self, f"{POSITIONS} letters from a to {LETTERS[-1]}", value)
        return value


class TrainedHeads(LiveFigure):
    """Type a sequence, see what a layer of four heads and one of one head report, and cut heads.

    They are start 0 of two kinds of ``models.reporters.load_reporters``. A head that is cut
    writes nothing: its slab of W^O is zero.

    Args:
        state: the traits: ``sequence``, 14 letters from a to p; and whether a head is left on:
            ``head_1`` to ``head_4`` of the layer of four, ``only_head`` of the other.

    Raises:
        FileNotFoundError: the trained layers are not there.

    >>> TrainedHeads(head_2=False).values()["positions that are right"]
    [[0, 1], [14, 9], [14, 6], [14, 0]]
    """

    title = Unicode("Four heads and one, trained alike").tag(sync=True)
    caption = Unicode(
        "A letter is one of the 16 tokens. At every position each layer names the tokens 1, 2, 3 "
        "and 5 places back, around the ring. An answer that is right is filled with the colour of "
        "the head that looks there most; one that is wrong is not filled, and says after ≠ what is "
        "right. The maps show the weights of each head, a row for each query and a column for each "
        "key, and below them the relation that gets most. A head that is cut writes nothing."
    ).tag(sync=True)
    axes = Dict(AXES).tag(sync=True)
    given: Dict[str, Any] = Dict(help="the relations, and the layers as a file in base64").tag(
        sync=True
    )
    # What the task of chapter 8 draws first, with seed 0.
    sequence = Sequence("gpoebghklgfpfo").tag(sync=True)
    head_1 = Choice([False, True], default_value=True).tag(sync=True)
    head_2 = Choice([False, True], default_value=True).tag(sync=True)
    head_3 = Choice([False, True], default_value=True).tag(sync=True)
    head_4 = Choice([False, True], default_value=True).tag(sync=True)
    only_head = Choice([False, True], default_value=True).tag(sync=True)

    @default("given")
    def _given(self) -> dict[str, Any]:
        code = base64.b64encode(as_bytes(layers())).decode("ascii")
        return {"offsets": list(OFFSETS), "layers": code}

    def values(self) -> dict[str, Any]:
        tokens = encode(self.sequence)
        right, answers, on_relations = [], [], []
        for h, switches in SWITCHES.items():
            layer = layers()[h]
            cut = [i for i, switch in enumerate(switches) if not getattr(self, switch)]
            with torch.no_grad(), without_heads(layer.attention, cut):
                reports, weights = (found[0] for found in layer(tokens[None]))
            right.append((reports.sign() == targets(tokens)).all(-1).sum(0).tolist())
            answers.append(((reports > 0).long() @ DIGITS + 1).T.tolist())
            on_relations += [
                [relation_weight(one, relation).item() for relation in RINGS] for one in weights
            ]
        pairs = [list(pair) for pair in zip(*right, strict=True)]
        return dict(zip(AXES, [pairs, *answers, on_relations], strict=True))


def encode(sequence: str) -> Tensor:
    """Give the signs of letters, (n, 4).

    >>> encode("ap").tolist()
    [[-1.0, -1.0, -1.0, -1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    places = torch.tensor([LETTERS.index(letter) for letter in sequence])
    return ((places[:, None] & DIGITS > 0) * 2.0 - 1).double()


@cache
def layers() -> dict[int, Reporter]:
    """Load the trained layers once, by their number of heads."""
    return {h: load_reporters(kind)[0] for h, kind in {1: "one head", 4: "four heads"}.items()}
