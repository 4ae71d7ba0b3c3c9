"""Lab 8's laboratory: a small GPT writes with a cache, sound or not, beside what it would say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remembered
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit import KVCache, MultiHeadAttention
from labkit.attention import causal_mask, merge_heads, scaled_dot_product_attention, split_heads
from labkit.figures import plots as figures
from labkit.labs.laboratory import Laboratory
from labkit.models import gpt
from labkit.models.stories import VOCABULARY, decode, encode
from labkit.positions import sinusoids

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
