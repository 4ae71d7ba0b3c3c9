"""The story GPT with fewer keys and values: trained so from the start, or converted afterwards.

What each costs is kept in fewer_keys.json, a part of the table of economies, and start 0 of what
was trained so from the start in fewer_keys.safetensors. `make checkpoint` writes both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.arguments import one_of
from labkit.attention import MultiHeadAttention
from labkit.latent import LatentAttention
from labkit.models.cross_layer import KeyValueProducer, across_layers
from labkit.models.gpt import GPT
from labkit.models.sharing import latent, share_heads
from labkit.models.stories import Stories
from labkit.models.training import HEADS, WIDTH, WORDS, load_runs, small_gpt, train

__all__ = [
    "CONTINUED",
    "CONVERSIONS",
    "RETRAINED",
    "WEIGHTS",
    "continued",
    "converted",
    "fresh",
    "inputs_of",
    "load_retrained",
]  # fmt: skip

WEIGHTS = Path(__file__).with_name("fewer_keys.safetensors")
BASE, HEAD = 1_000.0, WIDTH // HEADS
FURTHER_STEPS, FURTHER_SEED = 60, 10  # for stories that no start has read

Attention = Callable[[int], nn.Module]  # makes the attention of a layer


def _one_head(layer: int) -> nn.Module:
    return MultiHeadAttention(WIDTH, 1, d_k=HEAD, rotary_base=BASE)


def _latent(d_c: int, d_rotary: int) -> Attention:
    return lambda layer: LatentAttention(
        WIDTH, HEADS, d_c, d_k=HEAD, d_rotary=d_rotary, rotary_base=BASE
    )


def _across(h_kv: int, factor: int = 2) -> Attention:
    return across_layers(
        lambda: KeyValueProducer(WIDTH, HEADS, h_kv=h_kv, rotary_base=BASE), factor
    )


# What makes an untrained model of each kind, of its seed; "latent 24 + 8" is d_c + d_rotary.
RETRAINED: dict[str, Callable[[int], GPT]] = {
    "2 key heads": partial(small_gpt, h_kv=2),
    "1 key head": partial(small_gpt, h_kv=1),
    "latent 24 + 8": lambda seed: small_gpt(seed, attention=_latent(24, 8)),
    "latent 8 + 8": lambda seed: small_gpt(seed, attention=_latent(8, 8)),
    "latent 4 + 4": lambda seed: small_gpt(seed, attention=_latent(4, 4)),
    "layers share": lambda seed: small_gpt(seed, attention=_across(HEADS)),
    "layers share, 1 key head": lambda seed: small_gpt(seed, attention=_across(1)),
    "3 layers, all share": lambda seed: small_gpt(seed, layers=3, attention=_across(HEADS, 3)),
    "3 layers, 2 share": lambda seed: small_gpt(seed, layers=3, attention=_across(HEADS)),
    "1 head in all": lambda seed: small_gpt(seed, attention=_one_head),
}

KEPT = ("2 key heads", "1 key head", "latent 24 + 8", "latent 8 + 8", "layers share",
    "layers share, 1 key head")  # of whose start 0 the weights are kept  # fmt: skip

Convert = Callable[[MultiHeadAttention, Tensor], Any]  # of a layer and of what it reads
CONVERSIONS: dict[str, Convert] = {
    "2 key heads by mean": lambda layer, x: share_heads(layer, 2, "mean"),
    "2 key heads by svd": lambda layer, x: share_heads(layer, 2, "svd", inputs=x),
    "1 key head by mean": lambda layer, x: share_heads(layer, 1, "mean"),
    "1 key head by svd": lambda layer, x: share_heads(layer, 1, "svd", inputs=x),
    "latent of 32": lambda layer, x: latent(layer, 32, inputs=x),
    "latent of 16": lambda layer, x: latent(layer, 16, inputs=x),
}
ABLATIONS = ("attention at zero", "attention at its mean")
# Trained on for FURTHER_STEPS.
CONTINUED = {
    "mean, 60 steps": "1 key head by mean",
    "svd, 60 steps": "1 key head by svd",
    "new keys, 60 steps": "1 key head by mean",  # which are then drawn anew
    "all new, 60 steps": None,
}


def fresh(name: str, seed: int) -> GPT:
    """Make an untrained model of a kind of RETRAINED.

    >>> from labkit.counting import count_parameters
    >>> count_parameters(fresh("1 key head", 0)), count_parameters(fresh("latent 8 + 8", 0))
    (94784, 98896)
    """
    one_of("name", name, tuple(RETRAINED))
    return RETRAINED[name](seed)


def load_retrained(name: str) -> GPT:
    """Load start 0 of one of KEPT, trained for 1,000 steps; in evaluation mode.

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        FileNotFoundError: the file is missing; the message says how to make it.
        ValueError: another kind.

    >>> load_retrained("1 key head").stack()[0].attention.h_kv
    1
    """
    one_of("name", name, KEPT)
    state = load_runs(WEIGHTS)[name]
    with torch.device("meta"):  # without memory: the parameters are to be those of the file
        model = fresh(name, 0)
    model.load_state_dict(state, assign=True)
    return model.eval()


def converted(model: GPT, name: str) -> GPT:
    """Convert a copy of a trained GPT by one of CONVERSIONS, or ablate its attention.

    Directions are weighed by what each layer reads of stories that no training draws. Of these
    stories is also the mean output of each layer's attention, to which it can be ablated.

    Args:
        model: a GPT over the stories' vocabulary, which is left as it is.
        name: one of CONVERSIONS or of ABLATIONS.

    >>> converted(small_gpt(0), "latent of 16").stack()[1].attention.d_c
    16
    """
    one_of("name", name, (*CONVERSIONS, *ABLATIONS))
    changed, inputs = copy.deepcopy(model), inputs_of(model)
    for block, x in zip(changed.stack(), inputs, strict=True):
        if name in CONVERSIONS:
            block.attention = CONVERSIONS[name](block.attention, x)
        else:
            _ablate(block.attention, x, to_mean=name == ABLATIONS[1])
    return changed


@torch.no_grad()
def _ablate(layer: MultiHeadAttention, x: Tensor, *, to_mean: bool) -> None:
    """Let a layer put out a constant: zero, or the mean of what it puts out for x."""
    constant = layer(x, is_causal=True).mean((0, 1)) if to_mean else 0.0
    layer.w_o.weight.zero_()
    layer.w_o.bias.copy_(torch.as_tensor(constant))


@torch.no_grad()
def inputs_of(model: GPT) -> list[Tensor]:
    """Give what the attention of each block reads, (64, 48, d_model), of stories not trained on.

    >>> [tuple(x.shape) for x in inputs_of(small_gpt(0))]
    [(64, 48, 64), (64, 48, 64)]
    """
    read: list[Tensor] = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        for block in model.stack()
    ]
    model(Stories.draw(64, WORDS, seed=0).ids)
    for hook in hooks:
        hook.remove()
    return read


def continued(model: GPT, name: str, start: int) -> GPT:
    """Convert a trained GPT and train it on for 60 steps, by one of CONTINUED.

    Beside the two conversions: with keys and values drawn anew, and with all weights drawn anew.

    Args:
        model: the GPT of that start, which is left as it is.
        name: one of CONTINUED.
        start: its number, of which the stories depend, and what is drawn.
    """
    one_of("name", name, tuple(CONTINUED))
    how, untrained = CONTINUED[name], fresh("1 key head", start)
    changed = untrained if how is None else converted(model, how)
    if name.startswith("new keys"):
        with torch.no_grad():
            for block, other in zip(changed.stack(), untrained.stack(), strict=True):
                for part in ("w_k", "w_v"):
                    mine, theirs = getattr(block.attention, part), getattr(other.attention, part)
                    mine.weight.copy_(theirs.weight)
                    mine.bias.copy_(theirs.bias)
    *_, _ = train(changed.train(), FURTHER_STEPS, FURTHER_SEED + start, every=FURTHER_STEPS)
    return changed.eval()
