"""A small GPT whose heads are spread over processes, by PyTorch's DTensor.

Chapter 14's script, which `make ranks` starts: ``torchrun --standalone --nproc-per-node 2 -m
labkit.models.tensor_parallel``. Each rank trains its part, and also the whole model, alone; rank 0
says whether both end with the same weights.
"""

from __future__ import annotations

import argparse
from datetime import timedelta

import torch
from torch import Tensor, nn

from labkit.attention import merge_heads, scaled_dot_product_attention, split_heads
from labkit.cache import KVCache
from labkit.models.gpt import GPT
from labkit.models.stories import VOCABULARY, Stories
from labkit.models.training import loss_on
from labkit.positions import rotate

__all__ = ["SeparateAttention", "separate_gpt", "spread", "train"]

H, D_MODEL, LAYERS, ROTARY_BASE = 4, 64, 2, 1_000.0
WORDS, STORIES = 48, 8
RATE = 1e-3
PATIENCE = timedelta(seconds=60)  # for a rank that does not come
CLOSE = 1e-10  # in float64


class SeparateAttention(nn.Module):
    """Multi-head attention with a linear layer for each projection, as a reader builds it first.

    The heads are counted from the width that comes out of W^Q: on a rank they are its own.

    >>> SeparateAttention(8, 2)(torch.ones(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, d_model: int, h: int, rotary_base: float | None = None) -> None:
        super().__init__()
        self.d_k = d_model // h
        self.rotary_base = rotary_base
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend within x, (B, n, d_model); a cache is not supported."""
        if cache is not None:
            raise ValueError("this layer keeps no cache. Use labkit.MultiHeadAttention.")
        q, k, v = (projection(x) for projection in (self.w_q, self.w_k, self.w_v))
        q, k, v = (split_heads(part, part.shape[-1] // self.d_k) for part in (q, k, v))
        if self.rotary_base is not None:
            q, k = rotate(q, self.rotary_base), rotate(k, self.rotary_base)
        heads = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        return self.w_o(merge_heads(heads))


def separate_gpt(seed: int) -> GPT:
    """Make the chapters' small GPT in float64, its attention in separate projections."""
    torch.manual_seed(seed)
    return GPT(
        len(VOCABULARY), D_MODEL, H, LAYERS,
        attention=lambda i: SeparateAttention(D_MODEL, H, ROTARY_BASE),
    ).double()  # fmt: skip


def spread(model: GPT, world: int) -> GPT:
    """Spread the blocks of a model over the ranks of the process group, in place.

    W^Q, W^K, W^V and the first layer of the feed-forward are cut by columns of the output, W^O and
    the second by columns of the input, and their outputs are summed.

    Args:
        model: a GPT with separate projections.
        world: number of ranks, a divisor of h.
    """
    from torch.distributed import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    if H % world:
        raise ValueError(f"the ranks must divide the {H} heads; got {world}. Start 1, 2 or {H}.")
    # Declared once for the input of three projections, so that its gradient is summed once.
    one_input = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {
        "attention": one_input,
        "attention.w_q": ColwiseParallel(),
        "attention.w_k": ColwiseParallel(),
        "attention.w_v": ColwiseParallel(),
        "attention.w_o": RowwiseParallel(),
        "feed_forward.expand": ColwiseParallel(),
        "feed_forward.contract": RowwiseParallel(),
    }
    mesh = init_device_mesh("cpu", (world,))
    for block in model.stack():
        parallelize_module(block, mesh, plan)
    return model


def train(model: GPT, steps: int) -> list[float]:
    """Train on stories, the same on every rank, and return the loss before each step."""
    optimizer = torch.optim.AdamW(model.parameters(), RATE, foreach=False)
    losses = []
    for step in range(steps):
        loss = loss_on(model, Stories.draw(STORIES, WORDS, step).ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    from torch import distributed
    from torch.distributed.tensor import DTensor

    parser = argparse.ArgumentParser(description="Train a small GPT, its heads over the ranks.")
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=PATIENCE)
    rank, world = distributed.get_rank(), distributed.get_world_size()

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    parts = spread(separate_gpt(0), world)
    mine = sum((w.to_local() if isinstance(w, DTensor) else w).numel() for w in parts.parameters())
    whole = separate_gpt(0)
    say(f"ranks: {world}; heads of a rank: {H // world} of {H}")
    say(f"parameters of a rank: {mine:,} of {sum(w.numel() for w in whole.parameters()):,}")
    say(f"training for {steps} steps")
    losses = train(parts, steps)
    train(whole, steps)
    pairs = zip(parts.parameters(), whole.parameters(), strict=True)
    gathered = [(a.full_tensor() if isinstance(a, DTensor) else a, b) for a, b in pairs]
    same = all((a - b).abs().max() < CLOSE for a, b in gathered)
    say(f"loss lower at the end: {losses[-1] < losses[0]}")
    say(f"weights as on one rank, to {CLOSE:g}: {same}")
    distributed.destroy_process_group()
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
