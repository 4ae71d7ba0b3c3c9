"""The parts of lab 10 as the book writes them, for whoever leaves one out.

Each has the names and the form that its card asks for, so any of them can stand in for a learner's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import causal_mask, merge_heads, scaled_dot_product_attention, split_heads
from labkit.cache import KVCache
from labkit.models.gpt import load_gpt
from labkit.models.progress import progress
from labkit.models.stories import VOCABULARY, Stories
from labkit.positions import rotate

__all__ = ["GPT", "Attention", "Block", "kl", "loss", "step", "train", "trained", "weights",
    "write"]  # fmt: skip

WIDTH, HEADS, LAYERS = 64, 4, 2
BASE = 1_000  # of the rotation
STORIES, WORDS = 32, 48  # of a step of training
RATE, DECAY, BETAS = 5e-3, 0.2, (0.9, 0.98)
WARM_UP, COOL_DOWN = 50, 0.4  # steps in which the rate rises, and the share in which it falls


class Attention(nn.Module):
    """Causal attention with h heads and rotary positions: (B, n, d_model) to the same."""

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h = h
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split_heads(part(x), self.h) for part in (self.w_q, self.w_k, self.w_v))
        q, k = rotate(q, BASE), rotate(k, BASE)
        heads = scaled_dot_product_attention(q, k, v, causal_mask(x.shape[1]))
        return self.w_o(merge_heads(heads))


class Block(nn.Module):
    """Add attention to the stream, then the feed-forward network."""

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(d_model), Attention(d_model, h)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.expand = nn.Linear(d_model, 4 * d_model)
        self.contract = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.fed(x + self.attention(self.attention_norm(x)))

    def fed(self, x: Tensor) -> Tensor:
        """Add the feed-forward network's output."""
        wide = self.expand(self.feed_forward_norm(x))
        return x + self.contract(F.gelu(wide, approximate="tanh"))


class GPT(nn.Module):
    """Give the logits of each next word: (B, n) to (B, n, vocabulary)."""

    def __init__(self, vocabulary: int, d_model: int, h: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(Block(d_model, h) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model)
        self.next_word = nn.Linear(d_model, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.next_word(self.norm(x))


def loss(model: nn.Module, ids: Tensor) -> Tensor:
    """Give the mean cross-entropy of each next word, in nats."""
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(model: nn.Module, steps: int, seed: int) -> list[float]:
    """Train a model in place, on new stories at every step, and give the losses."""
    losses = []
    optimizer = torch.optim.AdamW(model.parameters(), RATE, BETAS, weight_decay=DECAY)
    for step in progress(range(steps), "training"):
        rate = RATE * min(1.0, (step + 1) / WARM_UP, (steps - step) / (COOL_DOWN * steps))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        of_step = loss(model, Stories.draw(STORIES, WORDS, seed * steps + step).ids)
        of_step.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(of_step.item())
    return losses


@torch.no_grad()
def write(model: nn.Module, ids: Tensor, n: int) -> Tensor:
    """Draw word after word until each text has n of them: (B, m) to (B, n)."""
    while ids.shape[1] < n:
        chances = model(ids)[:, -1].softmax(dim=-1)
        ids = torch.cat([ids, chances.multinomial(1)], dim=1)
    return ids


def kl(truth: Tensor, logits: Tensor) -> Tensor:
    """Give the divergence of what a model says from the truth: (..., V) twice to (...)."""
    each = truth * (truth.log() - logits.double().log_softmax(dim=-1))
    return torch.where(truth > 0, each, 0.0).sum(dim=-1)


@torch.no_grad()
def step(model: GPT, ids: Tensor, caches: Sequence[KVCache], start: int) -> Tensor:
    """Read m new words after ``start`` others: (B, m) to the logits, (B, m, vocabulary)."""
    x, m = model.words(ids), ids.shape[1]
    for block, cache in zip(model.blocks, caches, strict=True):
        assert isinstance(block, Block)
        layer, normed = block.attention, block.attention_norm(x)
        q, k, v = (split_heads(w(normed), layer.h) for w in (layer.w_q, layer.w_k, layer.w_v))
        k, v = cache.append(rotate(k, BASE, start), v)
        may = causal_mask(m, start + m)
        heads = scaled_dot_product_attention(rotate(q, BASE, start), k, v, may)
        x = block.fed(x + layer.w_o(merge_heads(heads)))
    return model.next_word(model.norm(x))


def weights() -> dict[str, Tensor]:
    """Give the weights of the book's small GPT under the names that the lab's GPT has."""
    found: dict[str, Tensor] = {}
    for full, weight in load_gpt().state_dict().items():
        name = full.replace("feed_forward.", "")
        if "w_qkv" in name:  # in one matrix there, the queries' rows first
            each = zip("qkv", weight.chunk(3), strict=True)
            found |= {name.replace("w_qkv", f"w_{one}"): part for one, part in each}
        else:
            found[name] = weight
    return found


def trained(GPT: type[nn.Module] = GPT) -> nn.Module:
    """Make a GPT, a learner's or ours, that has the book's trained weights.

    What a learner keeps as a buffer, such as a mask, stays as it is.
    """
    model = GPT(len(VOCABULARY), WIDTH, HEADS, LAYERS)
    buffers = dict(model.named_buffers(remove_duplicate=False))
    kept = {name: value for name, value in model.state_dict().items() if name in buffers}
    model.load_state_dict(kept | weights())
    return model.eval()
