"""All heads of a model on a few sentences: which of them look where."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from traitlets import Dict, Unicode, default, observe, validate

from labkit.figures.base import Choice, LiveFigure, Whole, refuse
from labkit.heads import entropy, next_weight, offset_relation, previous_weight, self_weight

Sentence = tuple[Sequence[str], Tensor] | tuple[Sequence[str], Tensor, tuple[int, int]]

FEWEST_TOKENS, MOST_TOKENS = 2, 48
MOST_HEADS = 1000
STEPS = 255  # a stored weight is one of 256 steps from 0 to 1

# How far each head keeps to a relation: of its weights, and the chosen query and key.
MEASURES: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "previous token": lambda weights, query, key: previous_weight(weights),
    "next token": lambda weights, query, key: next_weight(weights),
    "itself": lambda weights, query, key: self_weight(weights),
    "chosen key": lambda weights, query, key: weights[..., key].mean(-1),
    "query to key": lambda weights, query, key: weights[..., query, key],
    "entropy": lambda weights, query, key: entropy(weights),
}


class HeadViewer(LiveFigure):
    """See the weights of every head on a sentence, as lines and as a grid, sorted by a measure.

    The weights are stored to the nearest 1/255, so one is off by 1/510 at most.

    Args:
        sentences: for each sentence its n tokens and its weights, (layers, h, n, n), which is what
            ``Encoded.sentence`` returns, and if you like the places of the query and the key that
            its list chooses with it; a small example unless given.
        state: the traits: ``sentence``, ``layer``, ``head``, ``query`` and ``key``, all counted
            from 0, ``measure`` (what is measured) and ``by_measure`` (sort them by it).

    Raises:
        ValueError: no sentence, tokens too few or too many, or weights that do not fit them.

    >>> weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]]).view(1, 1, 2, 2)
    >>> HeadViewer({"It slept.": (["it", "slept"], weights)}).values()["measures"]
    [[0.25098039215686274]]
    """

    title = Unicode("Where each head looks").tag(sync=True)
    caption = Unicode(
        "Every head of a model on one sentence, as a small map: a row for each query, a column for "
        "each key, and the more weight, the more colour. The chosen head is drawn large, as lines "
        "from each query on the left to the keys on the right, and as a map. Below each small map "
        "stand its layer and number, and its measure."
    ).tag(sync=True)
    axes = Dict().tag(sync=True)
    stored = Dict(help="layers and h, and sentences with their weights").tag(sync=True)
    sentence = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    layer = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    head = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    query = Whole(0, MOST_TOKENS - 1, default_value=0).tag(sync=True)
    key = Whole(0, MOST_TOKENS - 1, default_value=0).tag(sync=True)
    measure = Choice(list(MEASURES), default_value="previous token").tag(sync=True)
    by_measure = Choice([False, True], default_value=False).tag(sync=True)

    def __init__(
        self,
        sentences: Mapping[str, Sentence] | None = None,
        **state: Any,
    ) -> None:
        if sentences is not None:
            state["stored"] = store(sentences)
        super().__init__(**state)

    @default("stored")
    def _example(self) -> dict[str, Any]:
        tokens = ["one", "two", "three"]
        looks = [offset_relation(len(tokens), offset) for offset in (-1, 0, 1)]
        sharp = torch.tensor([1.0, 4.0]).view(2, 1, 1, 1)
        return store({" ".join(tokens): (tokens, (sharp * torch.stack(looks)).softmax(-1))})

    @default("axes")
    def _axes(self) -> dict[str, Any]:
        layers, h = self.stored["shape"]
        named = [[f"layer {i}" for i in range(layers)], [f"head {j}" for j in range(h)]]
        return {"weights": ["query", "key"], "measures": named}

    @validate("sentence", "layer", "head", "query", "key")
    def _fits(self, proposal: Any) -> int:
        layers, h = self.stored["shape"]
        lengths = [len(one["tokens"]) for one in self.stored["sentences"]]
        sizes = {"sentence": len(lengths), "layer": layers, "head": h}
        # A sentence that is not there is refused by itself.
        here = max(lengths[self.sentence : self.sentence + 1] or lengths)
        size = sizes.get(proposal["trait"].name, here)
        if proposal["value"] >= size:
            refuse(proposal["trait"], f"a whole number from 0 to {size - 1}", proposal["value"])
        return proposal["value"]

    @observe("sentence")
    def _stay_inside(self, change: Any) -> None:
        last = len(self._read()["tokens"]) - 1
        self.query, self.key = min(self.query, last), min(self.key, last)

    def _read(self) -> dict[str, Any]:
        return self.stored["sentences"][self.sentence]

    def values(self) -> dict[str, Any]:
        read, n = self._read(), len(self._read()["tokens"])
        steps = torch.frombuffer(bytearray(base64.b64decode(read["weights"])), dtype=torch.uint8)
        weights = steps.view(*self.stored["shape"], n, n).double() / STEPS
        return {
            "weights": weights[self.layer, self.head].tolist(),
            "measures": MEASURES[self.measure](weights, self.query, self.key).tolist(),
        }


def store(sentences: Mapping[str, Sentence]) -> dict[str, Any]:
    """Bring sentences to plain JSON: each weight one byte, the bytes in base64."""
    if not sentences:
        raise ValueError("sentences must hold at least one sentence; got none.")
    stored, shapes = list[dict[str, Any]](), set()
    for text, given in sentences.items():
        tokens, weights = given[:2]
        n = len(tokens)
        if not FEWEST_TOKENS <= n <= MOST_TOKENS:
            raise ValueError(
                f"a sentence must have {FEWEST_TOKENS} to {MOST_TOKENS} tokens, which can be read "
                f"in a figure; got {n} in {text!r}. Take a part of it, and encode that."
            )
        if weights.ndim != 4 or weights.shape[2:] != (n, n):
            raise ValueError(
                f"weights must have shape (layers, h, n, n), here with n = {n}; got "
                f"{tuple(weights.shape)} for {text!r}. Leave the padding out."
            )
        if not ((weights >= 0) & (weights <= 1)).all():
            raise ValueError(f"weights must lie between 0 and 1; those of {text!r} do not.")
        shapes.add(tuple(weights.shape[:2]))
        steps = (weights * STEPS).round().to(torch.uint8).flatten()
        code = base64.b64encode(bytes(steps.tolist())).decode("ascii")
        stored.append({"text": text, "tokens": list(tokens), "weights": code})
        if len(given) == 3:
            stored[-1]["asked"] = list(given[2])
    if len(shapes) > 1:
        raise ValueError(
            f"all sentences must be read by one model; got layers and heads {sorted(shapes)}."
        )
    return {"shape": list(shapes.pop()), "sentences": stored}
