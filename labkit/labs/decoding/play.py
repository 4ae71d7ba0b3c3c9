"""Lab 8's laboratory and finale: small GPTs write with a cache, a bug's or a learner's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache as remembered
from functools import partial
from textwrap import shorten
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit import KVCache, MultiHeadAttention
from labkit.attention import (
    Projection,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from labkit.figures import plots as figures
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, one_thread
from labkit.models import gpt
from labkit.models.stories import VOCABULARY, decode, encode
from labkit.positions import rotate, sinusoids

PROMPT = "the box suits tom lake . the hat suits"
MORE = 12  # words that are written
MOST = 9  # words that are read at once: the whole prompt
OFF = 0.005  # from which on a difference is told
YOURS = "your step"
RESTARTS, LATE = "positions begin anew with each block", "positions are one late after the prompt"
Step = Callable[[MultiHeadAttention, Tensor, KVCache], Tensor]


def step(layer: MultiHeadAttention, x: Tensor, cache: KVCache, bug: str = "none") -> Tensor:
    """Decode one layer's next positions, x (B, m, d_model), with a bug or none."""
    q, k, v = (split_heads(part(x), layer.h) for part in (layer.w_q, layer.w_k, layer.w_v))
    n = cache.n
    k, v = cache.append(k, v)
    n_q, n_k = q.shape[-2], k.shape[-2]
    may, own = causal_mask(n_q, n_k), torch.arange(n_k) == torch.arange(n, n_k)[:, None]
    if bug == "PyTorch's causal flag":
        may = causal_mask(n_k)[:n_q]
    elif bug == "no mask once there is a past":
        may = may | (n > 0)
    elif bug == "a block hears itself alone":
        may = may & ((torch.arange(n_k) >= n) | (n_q == 1))
    elif bug == "a position does not hear itself":
        may = may & (~own | (torch.arange(n_k) == 0))
    elif bug == "four empty slots weigh in":
        k, v = (torch.nn.functional.pad(held, (0, 0, 0, 4)) for held in (k, v))
        may = torch.nn.functional.pad(may, (0, 4), value=True)
    elif bug == "values of the past are lost":
        v = v * (torch.arange(n_k) >= n)[:, None]
    return layer.w_o(merge_heads(scaled_dot_product_attention(q, k, v, may)))


BUGS: dict[str, Step] = {
    bug: partial(step, bug=bug)
    for bug in (
        "a position does not hear itself",
        "a block hears itself alone",
        "no mask once there is a past",
        "PyTorch's causal flag",
        "values of the past are lost",
        "four empty slots weigh in",
        RESTARTS,
        LATE,
        "none",
    )
}


class Written(NamedTuple):
    """A text, (1, n), and what was said at each position while it was written, (n, vocabulary)."""

    ids: Tensor
    logits: Tensor


def laboratory(step: Step | None = None) -> Laboratory:
    """Make the controls: a bug, and how many words of the prompt are read at once.

    step : the learner's function; if it gives outputs, it can be chosen too
    """
    import ipywidgets as widgets

    ways = dict(BUGS)
    if step is not None and works(step):
        ways[YOURS] = step
    wide = {"style": {"description_width": "8em"}, "layout": {"width": "min(100%, 32em)"}}
    controls = {
        "bug": widgets.Dropdown(options=list(ways), description="bug", **wide),
        "c": widgets.IntSlider(value=4, min=1, max=MOST, description="read at once", **wide),
    }
    return Laboratory(controls, partial(draw, ways))


def works(step: Step) -> bool:
    """Say whether a learner's step writes a text to the end."""
    try:
        return write(step, 4).logits.shape == (len(PROMPT.split()) + MORE, len(VOCABULARY))
    except Exception:
        return False


@remembered
def writer() -> gpt.GPT:
    """Make the model that writes. It was never trained: what counts is that it says the same.

    Its attention speaks low, so that most of a word hangs on the word before it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = gpt.GPT(len(VOCABULARY), 32, 4, 2, positions="sinusoidal").requires_grad_(False)
    for block in model.stack():
        block.attention.w_o.weight *= 0.25
    return model


def read(way: Step, ids: Tensor, caches: list[KVCache], start: int) -> Tensor:
    """Give the logits of new words, (1, m, vocabulary), each layer's attention done by ``way``."""
    model = writer()
    x = model.words(ids)
    x = x + sinusoids(start + ids.shape[1], x.shape[-1])[start:]
    for block, cache in zip(model.blocks, caches, strict=True):
        assert isinstance(block, gpt.Block)
        x = x + way(block.attention, block.attention_norm(x), cache)
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return model.next_word(model.norm(x))


def write(way: Step, c: int, bug: str = "none") -> Written:
    """Read the prompt, c words at once, and write greedily; read the last word as well."""
    text = encode(PROMPT)[None]
    caches, prompt, read_so_far = writer().caches(), text.shape[1], 0
    said: list[Tensor] = []
    while read_so_far < prompt + MORE:
        end = min(read_so_far + c, prompt) if read_so_far < prompt else read_so_far + 1
        late = read_so_far + (read_so_far >= prompt)
        start = {RESTARTS: 0, LATE: late}.get(bug, read_so_far)
        said.append(read(way, text[:, read_so_far:end], caches, start))
        read_so_far = end
        if prompt <= end < prompt + MORE:
            text = torch.cat([text, said[-1][:, -1:].argmax(dim=-1)], dim=1)
    return Written(text, torch.cat(said, dim=1)[0])


@torch.no_grad()
def draw(ways: dict[str, Step], bug: str, c: int) -> Any:
    """Draw how far the logits are off at each position, and tell whether the text shows it."""
    sound, written = write(BUGS["none"], c), write(ways[bug], c, bug)
    whole = writer()(written.ids)[0]
    off = (written.logits - whole).abs().amax(dim=-1)
    prompt, n = len(PROMPT.split()), len(off)
    same = int((written.ids == sound.ids)[0, prompt:].sum())
    wrong = (off > OFF).nonzero().flatten().tolist()
    first = f"first at position {wrong[0]}" if wrong else "at no position"
    words = decode(written.ids[0]).split()
    places = [f"{i} {word}" for i, word in enumerate(words)]
    traces = [
        {"type": "bar", "name": name, "x": places[part], "y": off[part]}
        for name, part in (("prompt", slice(prompt)), ("written", slice(prompt, n)))
    ]
    return figures.figure(
        traces,
        title="How far the logits are off",
        alt=f"Bug: {bug}; {c} words of the prompt are read at once. Written: "
        f"{' '.join(words[prompt:])}. Of {MORE} written words {same} are those of a sound decoder. "
        f"The logits are off by {off.max():.2f} at most, {first} of 0 to {n - 1}.",
        xaxis={"tickangle": -60},
        yaxis={"title": "largest difference of a logit", "rangemode": "tozero"},
        height=460,
    )


# The finale: the learner's cache and step in the story GPT

BEGINNING = "the map suits mia lake . the box suits tom hill ."
LONG = 400  # words that are written
WITHIN = 20.0  # seconds, after which no more words are begun
SENTENCES = 7  # that are printed
WIDTH = 80  # characters of one, which a bug may make as long as the story
GROUP = 10  # words of which the figure shows the median


class Held:
    """What a step is handed as its cache: a learner's own, and how much it holds."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.cache, self.n = make(), 0
        self.k: Tensor = torch.empty(0)
        self.v: Tensor = torch.empty(0)

    def __str__(self) -> str:
        return f"your Cache, which holds {self.n} positions"

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k, self.v = self.cache.append(k, v)
        self.n = self.k.shape[2]
        return self.k, self.v

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


class Rotating(SimpleNamespace):
    """A layer's parts, of which w_q and w_k rotate by position, so that a step need not."""

    def __init__(self, layer: MultiHeadAttention, start: int) -> None:
        super().__init__(h=layer.h, d_k=layer.d_k, d_v=layer.d_v, d_model=layer.d_model)
        self.w_v, self.w_o = layer.w_v, layer.w_o
        self.w_q, self.w_k = (Rotated(part, layer, start) for part in (layer.w_q, layer.w_k))

    def __str__(self) -> str:
        return "a layer of the story GPT"


class Rotated:
    """Project, and rotate each head by its position; positions go on from call to call."""

    def __init__(self, part: Projection, layer: MultiHeadAttention, start: int) -> None:
        self.part, self.layer, self.start = part, layer, start

    def __call__(self, x: Tensor) -> Tensor:
        assert self.layer.rotary_base is not None
        heads = split_heads(self.part(x), self.layer.h)
        heads = rotate(heads, self.layer.rotary_base, self.start)
        self.start += x.shape[-2]
        return merge_heads(heads)

    def __getattr__(self, name: str) -> Any:
        told = f"w_q and w_k rotate here, so they have no {name}: call them, as in layer.w_q(x)"
        raise AttributeError(told)


class ByHand(nn.Module):
    """Attend by a learner's step and cache, called as a block of a GPT calls its layer."""

    def __init__(
        self, layer: MultiHeadAttention, step: Callable[..., Tensor], make: Callable[[], Any]
    ) -> None:
        super().__init__()
        self.layer, self.step, self.make = layer, step, make
        self.clear()

    def clear(self) -> None:
        self.held = Held(self.make)

    def forward(self, x: Tensor, **called: Any) -> Tensor:
        return self.step(Rotating(self.layer, self.held.n), x, self.held)


class Run(NamedTuple):
    """A text, (1, n), what was read for it, and what each of its new words took."""

    ids: Tensor
    read: int  # positions
    seconds: list[float]
    held: list[int]  # bytes, after each word


@torch.no_grad()
def write_by_hand(model: gpt.GPT, hands: list[ByHand], keeps: bool) -> Run:
    """Write greedily, and keep what was read of a text or forget it after each word."""
    for hand in hands:
        hand.clear()
    text = new = encode(BEGINNING)[None]
    run = Run(text, 0, [], [])
    while len(run.seconds) < LONG and sum(run.seconds) < WITHIN:
        begun = time.perf_counter()
        word = model(new)[:, -1:].argmax(dim=-1)
        run.seconds.append(time.perf_counter() - begun)
        run.held.append(sum(hand.held.nbytes for hand in hands))
        text = torch.cat([text, word], dim=1)
        run = run._replace(ids=text, read=run.read + new.shape[1])
        new = word if keeps else text
        for hand in [] if keeps else hands:
            hand.clear()
    return run


@torch.no_grad()
def write_by_labkit(words: int) -> Tensor:
    """Write greedily with labkit's own layers and caches: a text, (1, n)."""
    model = gpt.load_gpt()
    text = new = encode(BEGINNING)[None]
    caches = model.caches()
    for _ in range(words):
        new = model(new, caches=caches)[:, -1:].argmax(dim=-1)
        text = torch.cat([text, new], dim=1)
    return text


def alike(words: int, ids: Tensor, others: Tensor) -> int:
    """Count the new words of two texts, of so many, up to the first that differs."""
    n = encode(BEGINNING).numel()
    same = ids[0, n : n + words] == others[0, n : n + words]
    return int(same.long().cumprod(dim=0).sum())


@finale
def write_story(Cache: Answer, step: Answer) -> Any:
    """Write a story with the learner's cache and without, and draw what each word took.

    If it is not what labkit writes, write it once more with the learner's step and labkit's cache,
    to tell which of the two it is.
    """
    model = gpt.load_gpt()
    first = model.stack()[0].attention
    with torch.no_grad():  # with care, before the thousands of calls that go without
        x = torch.ones(1, 3, first.d_model)
        outcome = step(layer=Rotating(first, 0), x=x, cache=Held(lambda: Cache().value))
        outcome.tensor(*x.shape)
    hands = []
    for block in model.stack():
        hands.append(ByHand(block.attention, step.function, Cache.function))
        block.attention = hands[-1]  # type: ignore[assignment]
    with one_thread():
        runs = {keeps: write_by_hand(model, hands, keeps) for keeps in (True, False)}
        kept, again = runs[True], runs[False]
        words = min(len(run.seconds) for run in runs.values())
        due = write_by_labkit(words)
        same = {keeps: alike(words, run.ids, due) for keeps, run in runs.items()}
        keeps = same[True] < words  # how it is written once more
        if min(same.values()) < words:
            for hand in hands:
                hand.make = KVCache
            other = write_by_hand(model, hands, keeps)
    sentences = decode(kept.ids[0]).split(" . ")[:SENTENCES]
    print(" .\n".join(shorten(one, WIDTH, placeholder=" ...") for one in sentences), ". ...")
    for how, run in (("with", kept), ("without", again)):
        if len(run.seconds) < LONG:
            print(f"After {WITHIN:g} seconds no more words were begun {how} your cache.")
    if min(same.values()) == words:
        told = f"Your cache changes no word: all {words} are those written without it"
        print(f"{told}, and those of labkit's own layer.")
    else:
        how = "with" if keeps else "without"
        print(
            f"Written {how} your cache, only the first {same[keeps]} of {words} words are those "
            "of labkit's own layer."
        )
        words = min(words, len(other.seconds))
        differs = alike(words, other.ids, due) < words
        print(
            "It is your step: with labkit's cache in the place of yours, words differ as well."
            if differs
            else "It is your cache: with labkit's in its place, your step writes the right words."
        )
    print(
        f"Positions read: {again.read:,} for {len(again.seconds)} words without your cache, "
        f"{kept.read:,} for {len(kept.seconds)} with it."
    )
    print(f"At the end it holds {kept.held[-1]:,} bytes of {kept.ids.shape[1] - 1} positions.")
    return curves(kept, again)


def curves(kept: Run, again: Run) -> Any:
    """Draw what the words of two runs took, and what was held, over the length of the text."""
    took, lengths = {}, {}
    for name, run in (("without", again), ("with", kept)):
        size = min(GROUP, len(run.seconds))
        took[name] = 1e3 * torch.tensor(run.seconds).unfold(0, size, size).median(dim=1).values
        n = run.ids.shape[1]
        places = torch.arange(n - len(run.seconds), n).double()
        lengths[name] = places.unfold(0, size, size).mean(dim=1)
    held = torch.tensor(kept.held).unfold(0, size, size).double().mean(dim=1) / 1024
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": f"{name} your cache, ms"}
        | {"x": lengths[name], "y": took[name]}
        for name in took
    ]
    traces.append(
        {"type": "scatter", "mode": "lines", "name": "your cache, KiB", "x": lengths["with"]}
        | {"y": held, "yaxis": "y2", "line": {"color": figures.GREY, "dash": "dot"}}
    )
    told = [
        f"{name} your cache from {part[0]:.1f} ms at {lengths[name][0]:.0f} positions to "
        f"{part[-1]:.1f} ms at {lengths[name][-1]:.0f}"
        for name, part in took.items()
    ]
    return figures.figure(
        traces,
        title="One more word, on this machine",
        alt=f"What one more word takes: {told[0]}, {told[1]}. What the cache "
        f"holds grows from {held[0]:.0f} to {held[-1]:.0f} KiB. All words took "
        f"{sum(again.seconds):.2f} s without it and {sum(kept.seconds):.2f} s with it.",
        xaxis={"title": "positions of the text"},
        yaxis={"title": "milliseconds for one more word", "rangemode": "tozero"},
        yaxis2={
            **{"title": "KiB held", "overlaying": "y", "side": "right", "rangemode": "tozero"},
            **{"automargin": True, "showgrid": False, "tickmode": "auto"},
        },
        height=420,
        legend={"y": -0.25},
    )
