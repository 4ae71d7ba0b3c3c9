"""All heads of a model as one map: what each gives most of its weight, above a line one draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from traitlets import Dict, Unicode, default, validate

from labkit.figures.base import Choice, LiveFigure, Whole, refuse
from labkit.heads import offset_relation

MOST_HEADS = 1000
LINES = [tenth / 10 for tenth in range(1, 10)]
PLACES = 3  # of a stored share
# Each target's sign and colour; "ink" is that of the words.
LOOKS = {
    "previous token": ("←", "blue"),
    "next token": ("→", "orange"),
    "itself": ("=", "green"),
    "[CLS]": ("C", "ink"),
    "[SEP]": ("S", "weight"),
    "punctuation": (".,", "pink"),
}


class HeadMap(LiveFigure):
    """See which target each head gives most of its weight, and count the heads above a line.

    Args:
        shares: for each target of ``LOOKS``, the mean weight that each head gives it, (layers, h);
            a small example unless given.
        tested: for each job that was found in a test, the head that has it.
        state: the traits: ``line`` (0.1 to 0.9), ``layer`` and ``head``, counted from 0.

    Raises:
        ValueError: an unknown target, or shapes that differ.

    >>> from torch import tensor
    >>> figure = HeadMap({"itself": tensor([[0.7, 0.2]]), "[CLS]": tensor([[0.1, 0.6]])}, line=0.6)
    >>> figure.values()["heads above the line"]
    [1, 0, 1]
    """

    title = Unicode("Where each head puts most of its weight").tag(sync=True)
    caption = Unicode(
        "All heads of a model: a row for each layer, layer 0 on top, and a column for each head, "
        "as in the figure of all heads. A colour and a sign tell which plain target gets most of "
        "the head's weight, averaged over many sentences; the number is its share, and the larger "
        "the share, the deeper the colour. The sign appears where the share is above the line "
        "that you draw. A ring with a number marks a head that passed a test of its own. Targets "
        "can overlap: the token before the first word is [CLS]."
    ).tag(sync=True)
    axes = Dict().tag(sync=True)
    stored = Dict(help="targets, with sign, colour and shares; jobs, with layer and head").tag(
        sync=True
    )
    line = Choice(LINES, default_value=0.5).tag(sync=True)
    layer = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)
    head = Whole(0, MOST_HEADS, default_value=0).tag(sync=True)

    def __init__(
        self,
        shares: Mapping[str, Tensor] | None = None,
        tested: Mapping[str, tuple[int, int]] | None = None,
        **state: Any,
    ) -> None:
        if shares is not None:
            state["stored"] = store(shares, tested or {})
        super().__init__(**state)

    @default("stored")
    def _example(self) -> dict[str, Any]:
        looks = {"previous token": -1, "next token": 1, "itself": 0}
        found = {name: offset_relation(3, offset).double() / 2 for name, offset in looks.items()}
        return store(found, {"a job of its own": (1, 2)})

    @default("axes")
    def _axes(self) -> dict[str, Any]:
        layers, h = self._shape()
        names = [[f"layer {i}" for i in range(layers)], [f"head {j}" for j in range(h)]]
        targets = [one["name"] for one in self.stored["targets"]]
        return {
            "heads above the line": [[*targets, "any of them"]],
            "largest share": names,
            "place of its target": names,
        }

    @validate("layer", "head")
    def _fits(self, proposal: Any) -> int:
        size = dict(zip(("layer", "head"), self._shape(), strict=True))[proposal["trait"].name]
        if proposal["value"] >= size:
            refuse(proposal["trait"], f"a whole number from 0 to {size - 1}", proposal["value"])
        return proposal["value"]

    def _shape(self) -> tuple[int, int]:
        shares = self.stored["targets"][0]["shares"]
        return len(shares), len(shares[0])

    def values(self) -> dict[str, Any]:
        layers, h = self._shape()
        shares = [one["shares"] for one in self.stored["targets"]]
        each = [[[one[i][j] for one in shares] for j in range(h)] for i in range(layers)]
        most = [[max(found) for found in row] for row in each]
        above = [sum(x > self.line for row in found for x in row) for found in [*shares, most]]
        return {
            "heads above the line": above,
            "largest share": most,
            "place of its target": [[found.index(max(found)) + 1 for found in row] for row in each],
        }


def store(shares: Mapping[str, Tensor], tested: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Bring shares and jobs to plain JSON."""
    if unknown := sorted(set(shares) - set(LOOKS)):
        raise ValueError(f"targets must be of {list(LOOKS)}; got {unknown}.")
    shapes = {tuple(found.shape) for found in shares.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"shares must have one shape, (layers, h); got {sorted(shapes)}.")
    targets = [
        {
            "name": name,
            "sign": LOOKS[name][0],
            "colour": LOOKS[name][1],
            "shares": [[round(x, PLACES) for x in row] for row in found.tolist()],
        }
        for name, found in shares.items()
    ]
    jobs = [{"name": name, "layer": i, "head": j} for name, (i, j) in tested.items()]
    return {"targets": targets, "jobs": jobs}
