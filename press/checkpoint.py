"""Train what pages play: ``press.checkpoint``, or `make checkpoint`.

Of the small GPT and its variants it writes what a page has no time for: the trained weights,
stories.safetensors, unmasked.safetensors of the one without a mask, and starts.safetensors of its
other starts and of those of one layer; and what each run had learned after how many steps,
training.json. Of chapter 8's layers it writes all that its page shows, reporters.safetensors; of
the pocket model and of the layers of chapters 3 and 5 their twenty starts, pocket.safetensors,
cross.safetensors and two_needs.safetensors; and of chapter 9's encoder what untrained twins get,
probes.json, and what it finds without heads, retrieval.json; of chapter 13's linear attention five
starts, linear.safetensors. What the small GPT's five starts do
with smaller caches, with wrong ones, with their own words, with a draft and beyond their training,
and what their answers depend on, is measured in parts, each of which has a file: see PARTS_OF_GPT.
One of them trains models with fewer keys, fewer_keys.safetensors. All lies in labkit/models. On
another machine the last digits differ, and so do the files; tests train again to the same targets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from tqdm import tqdm

from labkit import attention
from labkit.cache import KVCache
from labkit.models import (
    beyond_training,
    circuits,
    cross,
    economies,
    exposure,
    fewer_keys,
    pocket,
    probes,
    reporters,
    retrieval,
    slips,
    speculative,
    starts,
    two_needs,
)
from labkit.models.by_hand import by_hand
from labkit.models.gpt import CHECKPOINT, GPT, load_gpt, save_gpt
from labkit.models.kept import load_kept, save_kept
from labkit.models.linear_attention import LINEAR, LinearState, linear_gpt, load_linear
from labkit.models.sharing import share_heads
from labkit.models.training import (
    HISTORIES,
    OTHER_STARTS,
    PARTS,
    STARTS,
    UNMASKED,
    Report,
    histories,
    load_starts,
    loss_on,
    report,
    saturated_rows,
    save_starts,
    small_gpt,
    train,
    unseen,
    without,
)

STEPS, EVERY = 1_000, 25
KEPT = "rotary 0"
WRITTEN = {KEPT: CHECKPOINT, "without mask 0": UNMASKED}  # the runs whose weights are kept
LITTLE_DECAY = 0.01


class Short(NamedTuple):
    """How a model of chapters 2, 4, 5 and 6 differs from the small GPT; it reads fewer stories."""

    h: int = 4
    part: str | None = None  # what is left out, one of OF_ATTENTION
    small_start: bool = False  # queries and keys begin smaller, each by d_k^(1/4)
    small_steps: bool = False  # and every step moves their matrices less by as much
    fixed_w_o: bool = False  # W_O is the identity, and is not trained
    layout: str | None = None  # of the heads' axes, one of LAYOUTS
    with_last: bool = False  # it reads the last word too, and sees all answers without a mask
    rate: float = 1.0  # the best of those tried, each half the next, on a seed that is not told of


SHORT_STEPS, SHORT_EVERY = 600, 100
SHORT = {
    "one head": Short(h=1, rate=0.5),
    "without divisor": Short(h=1, part="divisor", rate=4),
    "small start": Short(h=1, part="divisor", small_start=True, rate=0.25),
    "small steps": Short(h=1, part="divisor", small_steps=True, rate=2),
    "small start and steps": Short(
        h=1, part="divisor", small_start=True, small_steps=True, rate=0.5
    ),
    "two heads": Short(h=2),
    "four heads": Short(),
    "eight heads": Short(h=8),
    "identity as W_O": Short(fixed_w_o=True),
    "four heads without divisor": Short(part="divisor", rate=0.25),
    "heads by a view": Short(layout="straight into heads"),
    "heads never moved": Short(layout="never moved"),
    "heads not moved back": Short(layout="not moved back"),
    "without mask": Short(part="mask"),
    "without mask, all shown": Short(part="mask", with_last=True),
}
# How rows saturate in the first steps, at one rate for all.
FOLLOWED_STEPS, FOLLOWED_EVERY, FOLLOWED_RATE = 200, 20, 0.5
FOLLOWED = {
    f"{kind}, followed": SHORT[kind]._replace(rate=FOLLOWED_RATE)
    for kind in (
        "one head",
        "without divisor",
        "small start",
        "small steps",
        "small start and steps",
    )
}
FOLLOWED["small start at its rate, followed"] = SHORT["small start"]
HONESTLY = {
    kind: f"{kind}, asked honestly"
    for kind, how in SHORT.items()
    if how.part == "mask" or how.layout is not None
}
RUNS = [  # what is told apart, and the seed
    *(f"rotary {seed}" for seed in range(5)),
    *(f"without {part} 0" for part in PARTS),
    *(f"{positions} 0" for positions in ("learned", "sinusoidal", "none")),
    *(f"marked {seed}" for seed in range(5)),
    *(f"little decay {seed}" for seed in range(5)),
    *(f"one layer {seed}" for seed in range(5)),
    *(f"{kind} {seed}" for kind in ("two key heads", "one key head") for seed in range(5)),
    *(f"{kind} {seed}" for kind in (*SHORT, *FOLLOWED) for seed in range(5)),
]
ASKED = [f"{kind} {seed}" for kind in HONESTLY.values() for seed in range(5)]  # with the mask
KEY_HEADS = {"two key heads": 2, "one key head": 1}
SILENCED = "attention silenced 0"
ENCODER = "encoder"  # not trained here, but tried
LINEAR_KIND = "linear"  # attention, of chapter 13
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
    if kind in SHORT:
        return short_run(SHORT[kind], int(seed))
    if kind in FOLLOWED:
        return followed_run(FOLLOWED[kind], int(seed))
    model = model_of(kind, int(seed))
    differing: dict[str, dict[str, Any]] = {
        "marked": {"marked": True},
        "little decay": {"decay": LITTLE_DECAY},
    }
    more = differing.get(kind, {})
    return model, list(train(model, STEPS, int(seed), every=EVERY, **more))


def short_model(kind: Short, seed: int) -> GPT:
    """Make a model of chapters 2, 4, 5 or 6, untrained."""
    model = small_gpt(seed, h=kind.h)
    if kind.part is not None:
        without(model, kind.part)
    if kind.fixed_w_o:
        for layer in (block.attention for block in model.stack()):
            nn.init.eye_(layer.w_o.requires_grad_(False).weight)
    if kind.small_start:
        with torch.no_grad():
            for share, weight in queries_and_keys(model):
                weight.mul_(share)
    return model


def short_run(kind: Short, seed: int) -> tuple[GPT, list[Report]]:
    """Train a model of chapters 2, 4, 5 or 6."""
    model = short_model(kind, seed)
    with small_steps(model) if kind.small_steps else nullcontext(), heads_laid_out(kind.layout):
        rate, last = kind.rate, kind.with_last
        reports = train(model, SHORT_STEPS, seed, every=SHORT_EVERY, rate=rate, with_last=last)
        if kind.layout is None:
            return model, list(reports)
        # A wrong layout depends on how many words are read: as many here as in training.
        ids = unseen().ids
        return model, [told._replace(loss=loss_on(model, ids).item()) for told in reports]


def followed_run(kind: Short, seed: int) -> tuple[GPT, list[Report]]:
    """Train a model of chapter 2 for a few steps, and count its saturated rows from the start."""
    model, stories = short_model(kind, seed), unseen()
    reports = [report(model, stories)._replace(saturated=saturated_rows(model, stories))]
    with small_steps(model) if kind.small_steps else nullcontext():
        for told in train(model, FOLLOWED_STEPS, seed, every=FOLLOWED_EVERY, rate=kind.rate):
            reports.append(told._replace(saturated=saturated_rows(model, stories)))
    return model, reports


def queries_and_keys(model: GPT) -> Iterator[tuple[float, Tensor]]:
    """Give each matrix of queries and of keys, and d_k^(-1/4), of which two divide a score."""
    for layer in (block.attention for block in model.stack()):
        for part in (layer.w_q, layer.w_k):
            yield layer.d_k**-0.25, part.weight


@contextmanager
def small_steps(model: GPT) -> Iterator[None]:
    """Let every step move the matrices of queries and keys less, by d_k^(1/4)."""
    before: list[Tensor] = []

    @torch.no_grad()
    def keep(*_: Any) -> None:
        before[:] = [weight.clone() for _, weight in queries_and_keys(model)]

    @torch.no_grad()
    def shorten(*_: Any) -> None:
        for (share, weight), old in zip(queries_and_keys(model), before, strict=True):
            weight.copy_(old.lerp(weight, share))

    hooks = [register_optimizer_step_pre_hook(keep), register_optimizer_step_post_hook(shorten)]
    yield
    for hook in hooks:
        hook.remove()


def straight_into_heads(x: Tensor, heads: tuple[int, ...], widths: tuple[int, ...]) -> list[Tensor]:
    """Cut the features into parts and view each as (..., heads, n, width), which is wrong."""
    parts = x.split([h * width for h, width in zip(heads, widths, strict=True)], -1)
    return [
        part.reshape(*part.shape[:-2], h, part.shape[-2], width)
        for part, h, width in zip(parts, heads, widths, strict=True)
    ]


def never_moved(x: Tensor, heads: tuple[int, ...], widths: tuple[int, ...]) -> list[Tensor]:
    """Cut the features into parts and leave heads behind positions: (..., n, heads, width)."""
    parts = x.split([h * width for h, width in zip(heads, widths, strict=True)], -1)
    return [part.unflatten(-1, (h, -1)) for part, h in zip(parts, heads, strict=True)]


def join_in_place(heads: Tensor) -> Tensor:
    return heads.flatten(-2)


def join_as_it_lies(heads: Tensor) -> Tensor:
    """Join (..., h, n, d_v) to (..., n, h d_v) without moving an axis, which is wrong."""
    *lead, h, n, d_v = heads.shape
    return heads.reshape(*lead, n, h * d_v)


LAYOUTS = {
    "straight into heads": (straight_into_heads, attention.merge_heads),
    "never moved": (never_moved, join_in_place),
    "not moved back": (attention._cut, join_as_it_lies),
}


def heads_laid_out(layout: str | None) -> AbstractContextManager[Any]:
    """Let labkit's layers split and merge by one of LAYOUTS; rightly if None."""
    if layout is None:
        return nullcontext()
    cut, merge = LAYOUTS[layout]
    return patch.multiple(attention, _cut=cut, merge_heads=merge)


def converted(name: str) -> list[Report]:
    """Judge the kept model with its heads made to share keys, or with attention silenced.

    By "svd" directions are weighed by what each layer reads of stories that no run draws.
    """
    model = load_gpt()
    if name == SILENCED:
        without(model, "attention")
    else:
        kind, _, how = name.removesuffix(" 0").partition(" by ")
        read = fewer_keys.inputs_of(model) if how == "svd" else [None] * len(model.stack())
        for block, inputs in zip(model.stack(), read, strict=True):
            block.attention = share_heads(block.attention, KEY_HEADS[kind], how, inputs=inputs)
    return [report(model, unseen(), STEPS)]


def train_reporters() -> tuple[dict[str, list[reporters.Reporter]], dict[str, Tensor]]:
    """Train the layers of chapter 8, five starts of each kind, and follow its twins."""
    torch.set_num_threads(1)
    layers = {
        kind: [reporters.train_reporter(kind, seed) for seed in reporters.STARTS]
        for kind in tqdm(reporters.KINDS, "chapter 8's layers", unit="kind")
    }
    twins = {
        how: torch.stack([reporters.train_twins(how, seed)[1] for seed in reporters.STARTS])
        for how in tqdm(reporters.TWINS, "its twins", unit="pair")
    }
    return layers, twins


def kept_starts() -> dict[str, dict[str, Tensor]]:
    """Give the weights that starts.safetensors holds, for those runs that are not done again."""
    models = [*load_starts("rotary")[1:], *load_starts("one layer")]
    pairs = zip(OTHER_STARTS, models, strict=True)
    return {name: model.state_dict() for name, model in pairs}


def rows_of_caches() -> Iterator[tuple[str, Any]]:
    models = load_starts("rotary")
    rows = {name: (models, make) for name, make in economies.ECONOMIES.items()}
    yield from economies.run_all(rows, retrained=False)
    yield from row_of_linear()


def row_of_linear() -> Iterator[tuple[str, Any]]:
    states = {"linear attention": (load_linear(), LinearState)}
    return economies.run_all(states, retrained=True)


def linear() -> None:
    """Train five starts of the small GPT with linear attention, and write their row."""
    torch.set_num_threads(1)
    weights = {}
    for seed in tqdm(range(5), LINEAR_KIND, unit="start"):
        model = linear_gpt(seed)
        (last,) = train(model, STEPS, seed, every=STEPS)
        tqdm.write(f"{LINEAR_KIND} {seed}: loss {last.loss:.3f}; {last.right}")
        weights[f"{LINEAR_KIND} {seed}"] = model.state_dict()
    save_starts(weights, LINEAR)
    save_kept("economies", load_kept("economies") | dict(row_of_linear()))


def readings() -> Iterator[tuple[str, Any]]:
    scheduled = [exposure.scheduled_gpt(seed) for seed in exposure.SCHEDULED]
    return exposure.run_all({"rotary": load_starts("rotary"), "scheduled": scheduled})


def beyond() -> Iterator[tuple[str, Any]]:
    without_pairs = [beyond_training.held_out_gpt(seed) for seed in beyond_training.STARTS]
    return beyond_training.run_all(load_starts("rotary"), without_pairs)


def answers() -> Iterator[tuple[str, Any]]:
    models = {str(seed): model for seed, model in enumerate(load_starts("rotary"))}
    return circuits.run_all(models | {"by hand": by_hand()}, unseen())


def with_fewer_keys() -> Iterator[tuple[str, Any]]:
    """Train the kinds of chapter 12, five starts each, convert the small GPT, and judge all."""
    starts = load_starts("rotary")
    kept = {}
    with ProcessPoolExecutor() as pool:
        for name in fewer_keys.RETRAINED:
            states, rows = zip(*pool.map(partial(retrained, name), range(len(starts))), strict=True)
            if name in fewer_keys.KEPT:
                kept[name] = states[0]
            yield name, {"retrained": True, "starts": rows}
    save_starts(kept, fewer_keys.WEIGHTS)
    for name in (*fewer_keys.CONVERSIONS, *fewer_keys.ABLATIONS):
        rows = [judged(fewer_keys.converted(model, name)) for model in starts]
        if name in fewer_keys.ABLATIONS:  # whose caches nobody needs
            rows = [row | {"nbytes": 0} for row in rows]
        yield name, {"retrained": False, "starts": rows}
    for name in fewer_keys.CONTINUED:
        models = [fewer_keys.continued(model, name, i) for i, model in enumerate(starts)]
        yield name, {"retrained": True, "starts": [judged(model) for model in models]}


def retrained(name: str, seed: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Train a model of chapter 12, and judge it with the weights that a file keeps, in float16."""
    torch.set_num_threads(1)
    model = fewer_keys.fresh(name, seed)
    list(train(model, STEPS, seed, every=STEPS))
    state = {name: weight.half() for name, weight in model.state_dict().items()}
    model.load_state_dict(state)
    return state, judged(model.eval())


def judged(model: GPT) -> dict[str, Any]:
    return economies.judge_caches(model, KVCache)._asdict()


# The name of a file in labkit/models, and of the part that is made again alone.
PARTS_OF_GPT: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "economies": rows_of_caches,
    "fewer_keys": with_fewer_keys,
    "slips": lambda: slips.run_all(load_starts("rotary")),
    "exposure": readings,
    "speculative": lambda: speculative.run_all(load_starts("rotary"), load_starts("one layer")),
    "beyond_training": beyond,
    "circuits": answers,
}


def parts_of_gpt(kinds: list[str]) -> None:
    """Measure those of PARTS_OF_GPT that are named, or all, and write their files."""
    torch.set_num_threads(1)
    for name, rows in PARTS_OF_GPT.items():
        if not kinds or name in kinds:
            save_kept(name, dict(tqdm(rows(), name, unit="row")))


def encoder() -> None:
    """Try untrained twins of chapter 9's encoder, and ablate its heads."""
    torch.set_num_threads(1)
    for module, told in ((probes, probes.run_untrained()), (retrieval, retrieval.run_all())):
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in told.items()]
        module.HISTORIES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def as_json(histories: dict[str, list[Report]]) -> str:
    """Write the reports as JSON, a run a line, to four places."""
    lines = []
    for name, reports in histories.items():
        short = [
            (report.step, round(report.loss, 4), {k: round(p, 4) for k, p in report.right.items()})
            + (() if report.saturated is None else (round(report.saturated, 4),))
            for report in reports
        ]
        lines.append(f"{json.dumps(name)}: {json.dumps(short)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def honestly(model: GPT, kind: Short) -> list[Report]:
    """Judge a model that saw its answers in training where it sees the past alone.

    Without a mask this is one pass with the mask. With a wrong layout it takes a pass for each
    beginning of a story.
    """
    if kind.layout is None:
        for block in model.stack():
            block.is_causal = True
        return [report(model, unseen(), SHORT_STEPS)]
    stories = unseen()
    with heads_laid_out(kind.layout), torch.no_grad():
        each = [model(stories.ids[:, :n])[:, -1] for n in range(1, stories.ids.shape[1] + 1)]
    logits = torch.stack(each, 1)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), stories.ids[:, 1:].flatten()).item()
    return [Report(SHORT_STEPS, loss, stories.right(logits.softmax(-1)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="of runs or parts to make again; all unless given")
    kinds = parser.parse_args().kinds
    names = [name for name in RUNS if not kinds or name.rpartition(" ")[0] in kinds]
    if not kinds:
        pockets = [pocket.train_pockets(pocket.STARTS, kind=kind) for kind in pocket.KINDS]
        starts.save(pockets, pocket.CHECKPOINT)
        layers = [cross.train_crosses(cross.STARTS, kind=kind) for kind in cross.KINDS]
        starts.save(layers, cross.CHECKPOINT)
        needs = [two_needs.train_two_needs(two_needs.STARTS, kind=kind) for kind in two_needs.KINDS]
        starts.save(needs, two_needs.CHECKPOINT)
        reporters.save_reporters(*train_reporters(), reporters.CHECKPOINT)
    if not kinds or ENCODER in kinds:
        encoder()
    if not kinds or LINEAR_KIND in kinds:
        linear()
    if kinds and not names:
        parts_of_gpt(kinds)
        return
    told = histories() if kinds else {}
    weights = kept_starts() if kinds else {}
    with ProcessPoolExecutor() as pool:
        waiting = {pool.submit(run, name): name for name in names}
        for done in tqdm(as_completed(waiting), "training", len(names), unit="run"):
            name = waiting[done]
            model, told[name] = done.result()
            last = told[name][-1]
            right = ", ".join(f"{relation} {p:.3f}" for relation, p in last.right.items())
            tqdm.write(f"{name}: loss {last.loss:.3f}; {right}")
            if name in WRITTEN:
                save_gpt(model, WRITTEN[name])
            if name in OTHER_STARTS:
                weights[name] = model.state_dict()
            kind, _, seed = name.rpartition(" ")
            if kind in HONESTLY:
                told[f"{HONESTLY[kind]} {seed}"] = honestly(model, SHORT[kind])
    save_starts({name: weights[name] for name in OTHER_STARTS}, STARTS)
    told |= {name: converted(name) for name in CONVERTED if not kinds}
    order = [*RUNS, *ASKED, *CONVERTED]
    HISTORIES.write_text(as_json({n: told[n] for n in order if n in told}), encoding="utf-8")
    parts_of_gpt(kinds)


if __name__ == "__main__":
    main()
