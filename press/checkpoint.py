"""Train what pages play: ``press.checkpoint``, or `make checkpoint`.

Of the small GPT and its variants it writes what a page has no time for: the trained weights,
stories.safetensors, and what each run had learned after how many steps, training.json. Of chapter
8's layers it writes those that its figure runs, reporters.safetensors; of the pocket model and of
chapter 3's layer their twenty starts, pocket.safetensors and cross.safetensors: all in
labkit/models. On another machine the last digits differ, and so do the files; tests train again to
the same targets.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from labkit.models import cross
from labkit.models.gpt import CHECKPOINT, GPT, load_gpt, save_gpt
from labkit.models.pocket import CHECKPOINT as POCKETS
from labkit.models.pocket import KINDS, STARTS, save_pockets, train_pockets
from labkit.models.reporters import CHECKPOINT as REPORTERS
from labkit.models.reporters import Reporter, save_reporters, train_reporter
from labkit.models.stories import Stories
from labkit.models.training import (
    HISTORIES,
    PARTS,
    WORDS,
    Report,
    report,
    small_gpt,
    train,
    unseen,
    without,
)
from labkit.sharing import share_heads

STEPS, EVERY = 1_000, 25
KEPT = "rotary 0"  # the run whose weights are written
LITTLE_DECAY = 0.01
RUNS = [  # what is told apart, and the seed
    *(f"rotary {seed}" for seed in range(5)),
    *(f"without {part} 0" for part in PARTS),
    *(f"{positions} 0" for positions in ("learned", "sinusoidal", "none")),
    *(f"marked {seed}" for seed in range(5)),
    *(f"little decay {seed}" for seed in range(5)),
    "one layer 0",
    *(f"{kind} {seed}" for kind in ("two key heads", "one key head") for seed in range(5)),
]
KEY_HEADS = {"two key heads": 2, "one key head": 1}
SILENCED = "attention silenced 0"
CONVERTED = [  # the kept model, not trained again
    *(f"{kind} by {how} 0" for how in ("mean", "svd") for kind in KEY_HEADS),
    SILENCED,
]


def model_of(kind: str, seed: int) -> GPT:
    """Make a run's model, untrained."""
    if kind in ("learned", "sinusoidal", "none"):
        return small_gpt(seed, kind)
    layers = 1 if kind == "one layer" else 2
    model = small_gpt(seed, layers=layers, h_kv=KEY_HEADS.get(kind))
    return without(model, kind.removeprefix("without ")) if kind.startswith("without ") else model


def run(name: str) -> tuple[GPT, list[Report]]:
    """Train the model of a run."""
    torch.set_num_threads(1)
    kind, _, seed = name.rpartition(" ")
    model = model_of(kind, int(seed))
    differing: dict[str, dict[str, Any]] = {
        "marked": {"marked": True},
        "little decay": {"decay": LITTLE_DECAY},
    }
    more = differing.get(kind, {})
    return model, list(train(model, STEPS, int(seed), every=EVERY, **more))


def converted(name: str) -> list[Report]:
    """Judge the kept model with its heads made to share keys, or with attention silenced.

    By "svd" directions are weighed by what each layer reads of stories that no run draws.
    """
    model = load_gpt()
    if name == SILENCED:
        without(model, "attention")
    else:
        kind, _, how = name.removesuffix(" 0").partition(" by ")
        read = inputs_of(model) if how == "svd" else [None] * len(model.stack())
        for block, inputs in zip(model.stack(), read, strict=True):
            block.attention = share_heads(block.attention, KEY_HEADS[kind], how, inputs=inputs)
    return [report(model, unseen(), STEPS)]


@torch.no_grad()
def inputs_of(model: GPT) -> list[Tensor]:
    """Return what the attention of each block reads, (64, 48, d_model)."""
    read: list[Tensor] = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        for block in model.stack()
    ]
    model(Stories.draw(64, WORDS, seed=0).ids)
    for hook in hooks:
        hook.remove()
    return read


def reporters() -> dict[int, Reporter]:
    """Train the layers of one head and of four that chapter 8 trains from its first seed."""
    torch.set_num_threads(1)
    return {h: train_reporter(h, seed=0) for h in (1, 4)}


def as_json(histories: dict[str, list[Report]]) -> str:
    """Write the reports as JSON, a run a line, to four places."""
    lines = []
    for name, reports in histories.items():
        short = [
            (report.step, round(report.loss, 4), {k: round(p, 4) for k, p in report.right.items()})
            for report in reports
        ]
        lines.append(f"{json.dumps(name)}: {json.dumps(short)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    save_pockets([train_pockets(STARTS, kind=kind) for kind in KINDS], POCKETS)
    layers = [cross.train_crosses(cross.STARTS, kind=kind) for kind in cross.KINDS]
    cross.save_crosses(layers, cross.CHECKPOINT)
    save_reporters(reporters(), REPORTERS)
    histories: dict[str, list[Report]] = {}
    with ProcessPoolExecutor() as pool:
        waiting = {pool.submit(run, name): name for name in RUNS}
        for done in tqdm(as_completed(waiting), "training", len(RUNS), unit="run"):
            name = waiting[done]
            model, histories[name] = done.result()
            last = histories[name][-1]
            right = ", ".join(f"{relation} {p:.3f}" for relation, p in last.right.items())
            tqdm.write(f"{name}: loss {last.loss:.3f}; {right}")
            if name == KEPT:
                save_gpt(model, CHECKPOINT)
    kept = {name: histories[name] for name in RUNS} | {name: converted(name) for name in CONVERTED}
    HISTORIES.write_text(as_json(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
