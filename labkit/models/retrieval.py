"""What the encoder finds without some of its heads: a scored task, and a history of it.

The task: of 300 paraphrases, find that of each of 300 sentences by their vectors. What takes longer
than a page can is kept in retrieval.json, which `make checkpoint` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.models.encoder import Encoded, Encoder, load_encoder, mean_pool
from labkit.models.sentences import SENTENCES, paraphrases

__all__ = [
    "ABLATION",
    "COUNTS",
    "HISTORIES",
    "ITEMS",
    "Found",
    "Task",
    "as_found",
    "histories",
    "run_all",
]

HISTORIES = Path(__file__).with_name("retrieval.json")
ITEMS, SEED = 300, 0
ABLATION = ("zero", "mean")
COUNTS = (6, 12, 24, 36, 48, 60, 72)  # of heads that are ablated together


class Found(NamedTuple):
    """For each sentence, whether its own paraphrase is nearest, and how much nearer it is."""

    right: Tensor  # (items,), boolean
    margin: Tensor  # (items,), cosine to its own less that to the nearest other


class Task:
    """The task, and the sentences as the encoder's layers read them.

    Args:
        encoder: who has to find them.
        items: how many pairs.
    """

    def __init__(self, encoder: Encoder, items: int = ITEMS) -> None:
        self.encoder = encoder
        pairs = paraphrases(items, SEED)
        self.sides = [encoder.encode([pair[side] for pair in pairs]) for side in (0, 1)]
        # Other sentences than the task's, so that a mean knows nothing of it.
        self.means = encoder.mean_outputs(encoder.encode(SENTENCES))

    def without(self, heads: Iterable[tuple[int, int]] = (), how: str = "zero") -> Found:
        """Find the paraphrases with some heads ablated, by ``how`` of ABLATION."""
        heads = list(heads)
        means = {"zero": None, "mean": self.means}[how]
        with self.encoder.without(heads, means):
            start = min((layer for layer, _ in heads), default=len(self.encoder.blocks))
            a, b = (self._vectors(side, start) for side in self.sides)
        return as_found(a @ b.T)

    @torch.no_grad()
    def _vectors(self, side: Encoded, start: int) -> Tensor:
        x = side.hidden[start]  # below the first ablated head nothing changes
        for block in self.encoder.blocks[start:]:
            x, _ = block(x, side.mask[:, None, None, :])
        return mean_pool(x, side.mask)


def as_found(cosines: Tensor) -> Found:
    """Judge a table of cosines whose diagonal is what is sought.

    >>> as_found(torch.tensor([[0.9, 0.5], [0.8, 0.7]])).right
    tensor([ True, False])
    """
    own = cosines.diagonal()
    others = cosines.masked_fill(torch.eye(len(own), dtype=torch.bool), -1)
    margin = own - others.amax(1)
    return Found(margin > 0, margin)


def histories() -> dict[str, Any]:
    """Read what was found without each head, each layer and many heads."""
    return json.loads(HISTORIES.read_text("utf-8"))


def run_all() -> dict[str, Any]:
    """Ablate each head, each layer, and more and more heads, which takes minutes.

    Heads are ranked by what the first half of the items loses without each; what is lost without
    many is counted on the second half.

    Returns:
        right, of all items, for "whole", "none" and, by kind of ablation, "heads" and "layers";
        how many items each head's ablation loses, "lost"; and "many", right of the second half.
    """
    task = Task(load_encoder().float())
    layers, h = len(task.encoder.blocks), task.encoder.blocks[0].attention.h
    heads = [(i, j) for i in range(layers) for j in range(h)]
    whole = task.without()
    told: dict[str, Any] = {"whole": _right(whole)}
    half = ITEMS // 2
    for how in ABLATION:
        alone = [task.without([head], how) for head in heads]
        missed = torch.stack([(whole.margin - one.margin)[:half].mean() for one in alone])
        least = [heads[i] for i in missed.argsort().tolist()]
        many = {"least": least, "most": least[::-1]}
        told[how] = {
            "heads": [_right(one) for one in alone],
            "lost": [(whole.right & ~one.right).sum().item() for one in alone],
            "layers": [
                _right(task.without([(i, j) for j in range(h)], how)) for i in range(layers)
            ],
            "none": _right(task.without(heads, how)),
            "order": least,
            "many": {
                name: [
                    task.without(order[:count], how).right[half:].sum().item() for count in COUNTS
                ]
                for name, order in many.items()
            },
        }
    told["whole, second half"] = whole.right[half:].sum().item()
    return told


def _right(found: Found) -> int:
    return int(found.right.sum())
