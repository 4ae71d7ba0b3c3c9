"""Train a small GPT on the stories, and see what it has learned after how many steps.

What takes longer than a page can is kept in training.json, which `make checkpoint` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import one_of, size, whole
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import VOCABULARY, Stories

__all__ = ["HISTORIES", "OF_ATTENTION", "OTHER_STARTS", "PARTS", "STARTS", "UNMASKED", "Report",
    "histories", "load_runs", "load_starts", "load_unmasked", "loss_on", "report", "report_logits",
    "saturated_rows", "save_starts", "small_gpt", "train", "unseen", "without"]  # fmt: skip

HISTORIES = Path(__file__).with_name("training.json")
UNMASKED = Path(__file__).with_name("unmasked.safetensors")
STARTS = Path(__file__).with_name("starts.safetensors")
# The runs whose weights it holds; those of "rotary 0" are the small GPT's own.
OTHER_STARTS = (*(f"rotary {i}" for i in range(1, 5)), *(f"one layer {i}" for i in range(5)))
PARTS = ("feed-forward", "LayerNorm", "residual", "attention")  # of a block
OF_ATTENTION = ("divisor", "mask")

WIDTH, HEADS = 64, 4  # of the small GPT
WORDS = 48  # of a story
STORIES = 32  # of a step
UNSEEN_SEED = 2**40  # the seed of the stories that no training draws
MATRIX_RATE, OTHER_RATE = 0.02, 4e-3
WARM_UP = 50  # steps in which the rate rises
COOL_DOWN = (
    0.4  # the share of the steps in which it falls, and nothing decays: predictions get sharper
)


class Report(NamedTuple):
    """How a model does on unseen stories after some steps."""

    step: int
    loss: float  # cross-entropy, in nats a word
    right: dict[str, float]  # for each relation the mean probability on what is right
    saturated: float | None = None  # the share of saturated_rows, of runs that follow it


def small_gpt(
    seed: int,
    positions: str = "rotary",
    *,
    layers: int = 2,
    h: int = HEADS,
    h_kv: int | None = None,
    attention: Callable[[int], nn.Module] | None = None,
) -> GPT:
    """Make the chapters' GPT, untrained: 2 layers of 4 heads, width 64.

    Args:
        seed: of its weights.
        positions, layers, h, h_kv, attention: as in GPT.

    >>> sum(weight.numel() for weight in small_gpt(0).parameters())
    107264
    """
    torch.manual_seed(whole("seed", seed))
    return GPT(
        len(VOCABULARY), WIDTH, h, layers, h_kv=h_kv, positions=positions, max_length=WORDS,
        attention=attention,
    )  # fmt: skip


class _UpdateAlone(nn.Module):
    """Stand in place of a block's residual sum."""

    def forward(self, x: Tensor, update: Tensor) -> Tensor:
        return update


def without(model: GPT, part: str) -> GPT:
    """Take a part out of every block of a model, in place, and return the model.

    Args:
        model: a GPT.
        part: one of PARTS or OF_ATTENTION. Without the residual, a block passes on its parts'
            output alone; without the divisor, scores are plain dot products; without the mask,
            positions see those after them.

    Raises:
        ValueError: none of these.

    >>> without(small_gpt(0), "LayerNorm").norm
    Identity()
    """
    one_of("part", part, PARTS + OF_ATTENTION)
    if part == "LayerNorm":
        model.norm = nn.Identity()
    for block in model.stack():
        if part == "LayerNorm":
            block.attention_norm = block.feed_forward_norm = nn.Identity()
        elif part == "residual":
            block.residual = _UpdateAlone()
        elif part == "divisor":
            block.attention.scale = 1.0
        elif part == "mask":
            block.is_causal = False
        else:
            silent = block.feed_forward.contract if part == "feed-forward" else block.attention.w_o
            silent.requires_grad_(False)
            silent.weight.zero_()
    return model


def load_unmasked() -> GPT:
    """Load the small GPT that was trained without a mask: the run "without mask 0" of histories.

    Raises:
        ModuleNotFoundError: safetensors is not installed.

    >>> [block.is_causal for block in load_unmasked().stack()]
    [False, False]
    """
    return without(load_gpt(UNMASKED), "mask")


def save_starts(states: Mapping[str, Mapping[str, Tensor]], path: str | Path) -> None:
    """Write the weights of runs, by name, in float16, in the format of safetensors."""
    from safetensors.torch import save_file

    tensors = {
        f"{run}/{name}": tensor.detach().half().contiguous()
        for run, state in states.items()
        for name, tensor in state.items()
    }
    save_file(tensors, path)


def load_runs(path: Path) -> dict[str, dict[str, Tensor]]:
    """Read the weights of runs, by name, as save_starts wrote them, in float32.

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        FileNotFoundError: the file is missing; the message says how to make it.

    >>> "one layer 0" in load_runs(STARTS)
    True
    """
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. `make checkpoint` trains and writes it.")
    states: dict[str, dict[str, Tensor]] = {}
    for full, tensor in load_file(path).items():
        run, _, name = full.partition("/")
        states.setdefault(run, {})[name] = tensor.float()
    return states


def load_starts(kind: str = "rotary") -> list[GPT]:
    """Load the trained models of a kind of run, seeds 0 to 4, in float32 and in evaluation mode.

    Args:
        kind: "rotary", the small GPT, whose seed 0 is what load_gpt loads; or "one layer".

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        FileNotFoundError: their file is missing.
        ValueError: another kind.

    >>> [len(model.stack()) for model in load_starts("one layer")]
    [1, 1, 1, 1, 1]
    """
    one_of("kind", kind, ("rotary", "one layer"))
    states = load_runs(STARTS)
    models = [load_gpt()] if kind == "rotary" else []
    for run in OTHER_STARTS:
        if run.startswith(kind):
            with torch.device("meta"):  # without memory: the parameters are to be those of the file
                model = GPT(len(VOCABULARY), WIDTH, HEADS, 1 if kind == "one layer" else 2)
            model.load_state_dict(states[run], assign=True)
            models.append(model.eval())
    return models


def histories() -> dict[str, list[Report]]:
    """Give the reports of the runs that `make checkpoint` did, by name: "rotary 0" is seed 0.

    Some have one report: "two key heads by mean 0" is "rotary 0" converted, and not trained again.
    """
    runs = json.loads(HISTORIES.read_text(encoding="utf-8"))
    return {name: [Report(*fields) for fields in reports] for name, reports in runs.items()}


def unseen(count: int = 200, *, marked: bool = False) -> Stories:
    """Draw stories that no training sees; the same ones each time."""
    return Stories.draw(count, WORDS, UNSEEN_SEED, marked=marked)


def loss_on(model: GPT, ids: Tensor, *, with_last: bool = False) -> Tensor:
    """Give the mean cross-entropy of each next word, in nats; a tensor without dimensions.

    Args:
        ids: (B, n); positions 0 to n - 2 have to say the words 1 to n - 1.
        with_last: let the model read word n - 1 too, which makes a difference without a mask.
    """
    return _loss(model(ids)[:, :-1] if with_last else model(ids[:, :-1]), ids)


@torch.no_grad()
def report(model: GPT, stories: Stories, step: int = 0) -> Report:
    """Measure how a model does on stories.

    >>> from labkit.models.stories import VOCABULARY
    >>> report(GPT(len(VOCABULARY), 8, 2, 1), unseen(2)).right["gender"] < 0.5
    True
    """
    return report_logits(model(stories.ids), stories, step)


def report_logits(logits: Tensor, stories: Stories, step: int = 0) -> Report:
    """Measure what a model says of stories: (B, n, vocabulary), as it gives it for their ids."""
    loss = _loss(logits[:, :-1], stories.ids).item()
    return Report(step, loss, stories.right(logits.softmax(-1)))


@torch.no_grad()
def saturated_rows(model: GPT, stories: Stories) -> float:
    """Give the share of rows of weights, of all layers and heads, whose largest is above 0.99.

    Rows of the first ten words are left out: they have few words to choose among.

    >>> saturated_rows(small_gpt(0), unseen(2)) < 0.01
    True
    """
    _, weights = model(stories.ids, return_weights=True)
    return (weights[..., 10:, :].amax(-1) > 0.99).float().mean().item()


def train(
    model: GPT,
    steps: int,
    seed: int,
    *,
    every: int = 25,
    marked: bool = False,
    decay: float = 0.2,
    rate: float = 1.0,
    with_last: bool = False,
    draw: Callable[[int, int, int], Stories] | None = None,
    heard: Callable[[GPT, Tensor, float], Tensor] | None = None,
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
        decay: weight decay: until the rate falls, each step takes this share of it off every
            weight.
        rate: how many times the usual learning rate.
        with_last: as in loss_on.
        draw: gives other stories than Stories.draw: so many, of so many words, for a seed.
        heard: gives what the model reads in a story's place, of the model, the story's ids and how
            much of the training is over, from 0 to 1. The words that it has to say stay the
            story's.

    Yields:
        A report every so many steps, and one after the last.

    Raises:
        TypeError, ValueError: a number of steps that is not a whole number, or is under 1.

    Source: Jordan et al. (2024) for Muon; Loshchilov and Hutter (2019) for AdamW.
    """
    steps, judged = size("steps", steps), unseen(marked=marked)
    optimizers = _optimizers(model, decay)
    full = [rate * optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    for step in range(1, steps + 1):
        left = (steps - step + 1) / (COOL_DOWN * steps)
        for optimizer, most in zip(optimizers, full, strict=True):
            optimizer.param_groups[0]["lr"] = most * min(1.0, step / WARM_UP, left)
            optimizer.param_groups[0]["weight_decay"] = decay if left > 1 else 0.0
            optimizer.zero_grad()
        of_step = seed * UNSEEN_SEED + step
        ids = (draw or partial(Stories.draw, marked=marked))(STORIES, WORDS, of_step).ids
        if heard is None:
            loss_on(model, ids, with_last=with_last).backward()
        else:
            _loss(model(heard(model, ids, step / steps)[:, :-1]), ids).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % every == 0 or step == steps:
            yield report(model, judged, step)


def _loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Score (B, n - 1, vocabulary) against the words 1 to n - 1 of ids, (B, n)."""
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def _optimizers(model: GPT, decay: float) -> list[torch.optim.Optimizer]:
    if not hasattr(torch.optim, "Muon"):
        raise ImportError(
            f"training needs torch.optim.Muon, of PyTorch 2.9 or newer; this is {torch.__version__}"
            ". Install a newer one, or load the trained model with labkit.models.gpt.load_gpt()."
        )
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    matrices = [w for w in model.blocks.parameters() if w.ndim == 2 and w.requires_grad]
    known = {id(weight) for weight in matrices}
    others = [weight for weight in trained if id(weight) not in known]
    return [
        torch.optim.Muon(matrices, MATRIX_RATE, decay),
        torch.optim.AdamW(others, OTHER_RATE, (0.9, 0.98), weight_decay=decay),
    ]
