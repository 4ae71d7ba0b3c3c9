"""Lab 10's rewards: how a model is judged, how it decodes, and a story that it continues."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from labkit.cache import KVCache
from labkit.figures import plots as figures
from labkit.figures.tables import Table
from labkit.labs.guard import Answer, NotYet
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import standing, stories
from labkit.labs.your_own_gpt.check import of_model as answer_of
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import RELATIONS, VOCABULARY, decode, encode
from labkit.models.training import Report, report
from labkit.models.writing import follow

PROMPT = "the map suits mia lake . the key suits ben hill . the map"
MOST = 40  # words of a prompt
SHOWN = 8  # next words in a figure
WORDS = 48  # of the texts that are decoded, as many as a story of the training has
TEXTS = 16
FOUR = ("number", "gender", "surname", "owner")
EVERY, FEW = 50, 40  # steps between looks at a training, and stories of a look
LEARNED = 0.9
SEEN: WeakKeyDictionary[nn.Module, list[Report]] = WeakKeyDictionary()


def watch(model: nn.Module) -> None:
    """Note how a model does while it trains: now and then, in a pass with gradients, it is asked.

    What is noted, ``curves`` draws.
    """
    seen: list[Report] = []
    count = 0

    def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        nonlocal count
        if torch.is_grad_enabled():
            if count % EVERY == 0:
                seen.append(report(cast(GPT, module), stories(FEW), count))
            count += 1

    model.register_forward_pre_hook(note)
    SEEN[model] = seen


def curves(model: Any) -> Any:
    """Draw what a watched model learned when."""
    try:
        own = answer_of(model).function
    except NotYet as invitation:
        print(invitation)
        return None
    seen = SEEN.get(cast(nn.Module, own), [])
    if not seen:
        print("This model was not watched. Call play.watch(your_model) before you train it.")
        return None
    first = {
        name: next((f"step {one.step}" for one in seen if one.right[name] > LEARNED), "no step")
        for name in FOUR
    }
    told = ", ".join(f"{name} at {step}" for name, step in first.items())
    return figures.lines(
        {name: [one.right[name] for one in seen] for name in FOUR},
        x=[one.step for one in seen],
        title="What your model learned when",
        xaxis_title="training step",
        yaxis_title="probability on what is right",
        alt=f"Asked every {EVERY} steps, the right words have {LEARNED} and more first: {told}.",
    )


def judge(model: Any, kl: Any) -> Table | None:
    """Set a learner's model beside the book's: the loss, and the learner's KL by kind of word."""
    try:
        own, divergence = answer_of(model).function, Answer("kl", kl)
        judged = stories()
        rows: list[tuple[object, ...]] = [("nats a word, and probabilities", "yours", "the book's")]
        both = [of_model(one, divergence) for one in (own, load_gpt())]
        rows += [(name, *(f"{found[name]:.3f}" for found in both)) for name in both[0]]
        rows.insert(2, ("entropy, below which no loss gets", *2 * (f"{judged.floor:.3f}",)))
    except NotYet as invitation:
        print(invitation)
        return None
    return Table(*rows)


@torch.no_grad()
def of_model(model: Any, divergence: Answer) -> dict[str, float]:
    """Measure a model's loss, its KL by the learner's function, and each relation."""
    judged = stories()
    found = standing(model, judged)
    truth, logits = judged.truth[:, 1:], model(judged.ids)[:, :-1]
    each = divergence(truth=truth, logits=logits).tensor(*truth.shape[:2])
    kinds = judged.by_relation(each)
    return {
        "loss": found["loss"],
        "KL, all words": each.mean().item(),
        "KL, free words": kinds["free"],
        **{f"right in {name}": found[name] for name in RELATIONS[1:]},
    }


def decoding(model: Any, step: Any, cache: Any = KVCache) -> None:
    """Let a model write with a learner's step and without, and compare words, work and time.

    cache : makes an empty one, such as the class of lab 8
    """
    try:
        model = answer_of(model).function
        answer = Answer("step", step)
        prompts = stories().ids[:TEXTS, :6]
        answer(model=model, ids=prompts, caches=[cache() for _ in model.blocks], start=0)
    except NotYet as invitation:
        print(invitation)
        return
    (whole, read, slow), (kept, fewer, fast) = (
        written(model, prompts, way, cache) for way in (None, step)
    )
    print(f"{TEXTS} texts of {WORDS} words, drawn with the same random numbers.")
    print(f"Without a cache {read:,} words are read, with it {fewer:,}.")
    print(f"The same words: {'yes' if torch.equal(whole, kept) else 'no'}.")
    print(f"Seconds here: {slow:.2f} without, {fast:.2f} with.")
    print(f"The first: {decode(kept[0])}")


@torch.no_grad()
def written(model: Any, ids: Tensor, step: Any, cache: Any) -> tuple[Tensor, int, float]:
    """Write on with words drawn by one seed, and tell how many words were read, and the seconds."""
    caches, read, began = [cache() for _ in model.blocks], 0, time.perf_counter()
    new, generator = ids, torch.Generator().manual_seed(0)
    while ids.shape[1] < WORDS:
        if step is None:
            logits, count = model(ids), ids.numel()
        else:
            logits, count = step(model, new, caches, ids.shape[1] - new.shape[1]), new.numel()
        read += count
        new = logits[:, -1].softmax(dim=-1).multinomial(1, generator=generator)
        ids = torch.cat([ids, new], dim=1)
    return ids, read, time.perf_counter() - began


def laboratory(model: nn.Module | None = None) -> Laboratory:
    """Make the controls: a text to type, and how many words are drawn to continue it.

    model : who writes; the book's small GPT unless given
    """
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 46em)"}}
    controls = {
        "text": widgets.Text(value=PROMPT, description="text", continuous_update=False, **wide),
        "more": widgets.IntSlider(value=0, min=0, max=24, description="write on", **wide),
        "seed": widgets.IntSlider(value=0, min=0, max=9, description="seed", **wide),
    }
    whose = "the book's model" if model is None else "your model"
    return Laboratory(controls, partial(draw, load_gpt() if model is None else model, whose))


@torch.no_grad()
def draw(model: Any, whose: str, text: str, more: int, seed: int) -> Any:
    """Draw the next word's probabilities beside the true ones, after so many words drawn."""
    words = text.lower().replace(".", " . ").split()[:MOST]
    strange = sorted(set(words) - set(VOCABULARY))
    if strange or not words:
        told = f"The stories do not have the words {', '.join(strange)}" if strange else "No text"
        some = ", ".join(word for word in VOCABULARY if word != ".")
        return bars([], [], [], f"{told}. They have: {some}, and the full stop.")
    ids = encode(" ".join(words))[None]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(more):
        chances = model(ids)[:, -1].softmax(dim=-1)
        ids = torch.cat([ids, chances.multinomial(1, generator=generator)], dim=1)
    says = model(ids)[0, -1].double().softmax(dim=-1)
    written = decode(ids[0])
    *_, entry = follow(written.split())
    truth = torch.zeros(len(VOCABULARY), dtype=torch.float64)
    for word, weight in entry.options.items() if entry else ():
        truth[VOCABULARY.index(word)] = weight / sum(entry.options.values()) if entry else 0
    best = (says + truth).topk(SHOWN).indices.tolist()
    names = [VOCABULARY[i] for i in best]
    first = names[int(says[best].argmax())]
    alt = f"{written} … The next word by {whose}: {first}, with {says.max():.2f}. "
    if entry is None:
        alt += "The rules say nothing here, because a word of this sentence breaks them."
    else:
        count, most = len(entry.options), truth.max()
        which = names[int(truth[best].argmax())]
        alt += (
            f"By the rules only {which} can follow."
            if count == 1
            else f"By the rules {count} words can follow, the likeliest with {most:.2f}."
        )
    return bars(names, says[best].tolist(), truth[best].tolist() if entry else [], alt, whose)


def bars(names: list[str], says: list[float], truth: list[float], alt: str, whose: str = "") -> Any:
    """Draw two rows of bars, what a model says and what is true."""
    traces = [
        {"type": "bar", "name": name, "x": names, "y": chances}
        for name, chances in ((whose, says), ("the truth", truth))
        if chances
    ]
    return figures.figure(
        traces,
        title="The next word",
        alt=alt,
        barmode="group",
        yaxis={"title": "probability", "range": [0, 1]},
        height=400,
    )
