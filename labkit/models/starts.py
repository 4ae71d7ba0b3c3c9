"""Small layers trained from several starts at once: what those of chapters 1, 3 and 5 share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import one_of, whole

__all__ = ["RIGHT", "Starts", "clearest_start", "in_halves", "known_words", "load", "one_start",
    "save", "train"]  # fmt: skip

RIGHT = 0.95  # the least probability of a right answer in a start that the book follows
CALM = 200  # the last steps, in which nothing is shaken


class Starts(nn.Module):
    """A layer whose parameters hold several starts, (starts, rows, columns) each, in float64.

    Args:
        seeds: one for each start; each draws its weights from a normal distribution. Those that
            VECTORS names have the standard deviation DEVIATION, the others 1 / sqrt(width).
        kind: one of KINDS.

    Raises:
        ValueError: another kind.
    """

    KINDS: ClassVar[tuple[str, ...]]
    VECTORS: ClassVar[tuple[str, ...]]
    DEVIATION: ClassVar[float]
    U: Tensor

    def __init__(self, seeds: Sequence[int], kind: str) -> None:
        super().__init__()
        self.kind = one_of("kind", kind, self.KINDS)
        starts = [self._start(seed) for seed in seeds]
        for name in self.shapes():
            setattr(self, name, nn.Parameter(torch.stack([start[name] for start in starts])))

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Give the shape of each of the kind's parameters in one start."""
        raise NotImplementedError

    def _start(self, seed: int) -> dict[str, Tensor]:
        """Draw the weights of one start, the same alone and among others."""
        generator = torch.Generator().manual_seed(whole("seed", seed))
        shapes = self.shapes()
        width = shapes["W_Q"][0]
        return {
            name: torch.randn(*shape, generator=generator, dtype=torch.float64)
            * (self.DEVIATION if name in self.VECTORS else width**-0.5)
            for name, shape in shapes.items()
        }

    def _over(self, w: Tensor, ids: Tensor) -> Tensor:
        """Bring (starts, rows, columns) to (starts, ..., rows, columns), to go with (..., n)."""
        return w.view(len(w), *[1] * (ids.dim() - 1), *w.shape[1:])


M = TypeVar("M", bound=Starts)


def known_words(text: str, words: Sequence[str], module: str) -> Tensor:
    """Give the numbers of a text's words: (n,), whole numbers.

    Raises:
        ValueError: a word that the layer does not have.
    """
    said = text.split()
    strange = sorted(set(said) - set(words))
    if strange:
        raise ValueError(
            f"the {len(words)} words of this layer do not include {', '.join(strange)}. "
            f"See {module}.WORDS."
        )
    return torch.tensor([words.index(word) for word in said], dtype=torch.long)


def train(
    model: M,
    given: tuple[Tensor, ...],
    answers: Tensor,
    steps: int,
    *,
    rate: float = 0.02,
    decay: float,
    shake: float = 0.0,
) -> M:
    """Train all starts in place, each as if alone: AdamW on the sum of their losses.

    Each step takes all examples.

    Args:
        model: gives logits, (starts, ..., answers), first.
        given: what the model is called with.
        answers: (...), numbers of the right answers.
        steps: how many.
        rate, decay: of AdamW.
        shake: by how much at most every number is moved, up or down, in each step but the last
            200, so that rounded ones will do.
    """
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    for step in range(whole("steps", steps)):
        by = shake if step < steps - CALM else 0.0
        near = {
            name: x + by * (2 * torch.rand(x.shape[1:], generator=generator, dtype=x.dtype) - 1)
            for name, x in model.named_parameters()
        }
        logits = torch.func.functional_call(model, near, given)[0]
        targets = answers.expand(len(logits), *answers.shape)
        losses = F.cross_entropy(logits.movedim(-1, 1), targets, reduction="none")
        optimizer.zero_grad()
        losses.flatten(1).mean(1).sum().backward()
        optimizer.step()
    return model


def in_halves(model: M) -> M:
    """Round every number of a model to a multiple of one half."""
    rounded = type(model)(range(len(model.U)), model.kind)
    rounded.load_state_dict({name: (2 * x).round() / 2 for name, x in model.state_dict().items()})
    return rounded


def clearest_start(surest: Tensor, clear: Tensor) -> int:
    """Find, of the starts that give every right answer 0.95 or more, the clearest.

    Args:
        surest: (starts,), the least probability of a right answer.
        clear: (starts,), how clearly the start looks where the answer is.

    Raises:
        ValueError: no start answers everything so.

    >>> clearest_start(torch.tensor([0.99, 0.4, 0.98]), torch.tensor([0.1, 0.9, 0.7]))
    2
    """
    fits = surest >= RIGHT
    if not fits.any():
        raise ValueError(f"no start answers everything with {RIGHT} in halves: train more.")
    return int(clear.where(fits, -torch.inf).argmax())


def save(models: Sequence[Starts], path: str | Path) -> None:
    """Write trained starts, one model of each kind, in the format of safetensors."""
    from safetensors.torch import save_file

    tensors = {
        f"{model.kind}.{name}": tensor
        for model in models
        for name, tensor in model.state_dict().items()
    }
    save_file(tensors, path)


def load(model: M, path: Path) -> M:
    """Give an untrained model the trained starts of its kind.

    Raises:
        FileNotFoundError: their file is missing.
    """
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. `make checkpoint` trains and writes it.")
    kept = load_file(path)
    model.load_state_dict({name: kept[f"{model.kind}.{name}"] for name in model.shapes()})
    return model.requires_grad_(False)


def one_start(model: M, chosen: int) -> M:
    """Give one of a model's starts, every number rounded to a multiple of one half."""
    one = type(model)([chosen], model.kind)
    kept = in_halves(model).state_dict()
    one.load_state_dict({name: x[chosen : chosen + 1] for name, x in kept.items()})
    return one.requires_grad_(False)
