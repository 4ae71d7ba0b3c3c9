"""Train a small GPT on the stories, and see what it has learned after how many steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import size
from labkit.gpt import GPT
from labkit.stories import Stories

__all__ = ["Report", "loss_on", "report", "train", "unseen"]

WORDS = 48  # of a story
STORIES = 32  # of a step
UNSEEN = 2**40  # the seed of the stories that no training draws
MATRIX_RATE, OTHER_RATE, DECAY = 0.02, 4e-3, 0.2
WARM_UP = 50  # steps in which the rate rises; over the last 40 % it falls


class Report(NamedTuple):
    """What a model makes of unseen stories after some steps."""

    step: int
    loss: float  # cross-entropy, in nats a word
    right: dict[str, float]  # for each relation the mean probability on what is right


def unseen(count: int = 200, *, marked: bool = False) -> Stories:
    """Draw stories that no training sees; the same ones each time."""
    return Stories.draw(count, WORDS, UNSEEN, marked=marked)


def loss_on(model: GPT, ids: Tensor) -> Tensor:
    """Give the mean cross-entropy of each next word, in nats; a tensor without dimensions.

    Args:
        ids: (B, n); positions 0 to n - 2 have to say the words 1 to n - 1.
    """
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def report(model: GPT, stories: Stories, step: int = 0) -> Report:
    """Say what a model makes of stories.

    >>> from labkit.stories import VOCABULARY
    >>> report(GPT(len(VOCABULARY), 8, 2, 1), unseen(2)).right["gender"] < 0.5
    True
    """
    probabilities = model(stories.ids).softmax(-1)
    loss = loss_on(model, stories.ids).item()
    return Report(step, loss, stories.right(probabilities))


def train(
    model: GPT, steps: int, seed: int, *, every: int = 25, marked: bool = False
) -> Iterator[Report]:
    """Train a model in place, and report now and then.

    The matrices of the blocks follow Muon, which makes the update of a matrix orthogonal: all its
    directions move alike, rare ones too. All else follows AdamW.

    Args:
        model: a GPT over the stories' vocabulary.
        steps: how many batches of 32 new stories of 48 words.
        seed: of the stories; the model has its own start already.
        every: steps between reports on 200 unseen stories.
        marked: train on stories that begin with "a" where a thing is new.

    Yields:
        A report every so many steps, and one after the last.

    Raises:
        TypeError, ValueError: a number of steps that is not a whole number, or is under 1.

    Source: Jordan et al. (2024) for Muon; Loshchilov and Hutter (2019) for AdamW.
    """
    steps, judged = size("steps", steps), unseen(marked=marked)
    optimizers = _optimizers(model)
    full = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    for step in range(1, steps + 1):
        share = min(1.0, step / WARM_UP, (steps - step + 1) / (0.4 * steps))
        for optimizer, rate in zip(optimizers, full, strict=True):
            optimizer.param_groups[0]["lr"] = share * rate
            optimizer.zero_grad()
        stories = Stories.draw(STORIES, WORDS, seed * UNSEEN + step, marked=marked)
        loss_on(model, stories.ids).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % every == 0 or step == steps:
            yield report(model, judged, step)


def _optimizers(model: GPT) -> list[torch.optim.Optimizer]:
    if not hasattr(torch.optim, "Muon"):
        raise ImportError(
            f"training needs torch.optim.Muon, of PyTorch 2.9 or newer; this is {torch.__version__}"
            ". Install a newer one, or load the trained model with labkit.gpt.load_gpt()."
        )
    matrices = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    known = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in known]
    return [
        torch.optim.Muon(matrices, MATRIX_RATE, DECAY),
        torch.optim.AdamW(others, OTHER_RATE, (0.9, 0.98), weight_decay=DECAY),
    ]
