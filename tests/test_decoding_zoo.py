"""Lab 8's zoo: every decoder runs on all that the page allows, and the sound ones are right."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from labkit import MultiHeadAttention
from labkit.labs.decoding.check import SOUND, UNSOUND

ROUNDS, CALLS, LONGEST = 6, 20, 100

pytestmark = pytest.mark.slow


def some_layer(rng: random.Random) -> MultiHeadAttention:
    turned = rng.random() < 0.7
    h = rng.choice([1, 2, 3, 4])
    layer = MultiHeadAttention(
        rng.choice([1, 5, 6]),
        h,
        h_kv=rng.choice([i for i in range(1, h + 1) if h % i == 0]),
        d_k=rng.choice([2, 4] if turned else [1, 3]),
        d_v=rng.choice([1, 3]),
        bias=rng.random() < 0.7,
        rotary_base=50.0 if turned else None,
    ).requires_grad_(False)
    for parameter in layer.parameters():
        parameter.normal_(std=0.8)
    return layer


def places(rng: random.Random, B: int) -> torch.Tensor:
    """Draw an order of texts, or some of them with repetitions."""
    if rng.random() < 0.4:
        return torch.tensor(rng.sample(range(B), B))
    return torch.tensor(rng.choices(range(B), k=rng.choice([1, B, B + 1])))


@pytest.mark.parametrize("make", [*SOUND, *UNSOUND], ids=lambda make: make.__doc__[:40])
def test_a_decoder_runs_on_whatever_may_come(make: Callable):
    torch.manual_seed(0)
    rng = random.Random(make.__doc__)
    for _ in range(ROUNDS):
        layer = some_layer(rng)
        decoders = [make(layer) for _ in range(2)]
        texts = [torch.zeros(rng.choice([1, 2, 3]), 0, layer.d_model) for _ in decoders]
        begun = [False, False]
        for _ in range(CALLS):
            i = rng.randrange(2)
            decoder, (B, n, d_model) = decoders[i], texts[i].shape
            what = rng.choice("rrrrcoox" if begun[i] else "r")
            m = min(rng.choice([1, 1, 2, 3, 40]), LONGEST - n)
            if what == "r" and m:
                x = torch.randn(B, m, d_model)
                texts[i] = torch.cat([texts[i], x], dim=1)
                out, begun[i] = decoder.read(x), True
                assert out.shape == x.shape
                assert out.isfinite().all()
                if make in SOUND:
                    whole = layer(texts[i], is_causal=True)[:, -m:]
                    assert (out - whole).abs().max() <= 1e-4 * whole.abs().max() + 1e-6
                x.fill_(7.0)
            elif what == "c":
                kept = rng.choice([0, n, rng.randint(0, n)])
                decoder.crop(kept)
                texts[i] = texts[i][:, :kept]
            elif what == "o":
                index = places(rng, B)
                decoder.reorder(index)
                texts[i] = texts[i][index]
            elif what == "x":
                decoder.clear()
                texts[i], begun[i] = torch.zeros(rng.choice([1, 2, 3]), 0, d_model), False
