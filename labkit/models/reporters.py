"""The task of chapter 8 and a layer that learns it; two of them, trained, are kept for a page.

A sequence is 14 tokens of four signs in a ring: before the first comes the last. At every position
a layer has to report the tokens 1, 2, 3 and 5 places back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import check_tensor, whole
from labkit.attention import MultiHeadAttention

__all__ = ["CHECKPOINT", "OFFSETS", "POSITIONS", "SIGNS", "Reporter", "draw",
    "load_reporters", "save_reporters", "targets", "train_reporter"]  # fmt: skip

CHECKPOINT = Path(__file__).with_name("reporters.safetensors")
OFFSETS, POSITIONS, SIGNS, WIDTH = (-1, -2, -3, -5), 14, 4, 32
LOUD = 3.0  # a position beside a token's signs, so that heads find positions first


class Reporter(nn.Module):
    """Attend over tokens and their positions, and read the four reports off, in float64.

    Args:
        h: number of heads, together 32 wide.

    Raises:
        TypeError, ValueError: h is no whole number, is under 1, or does not divide 32.

    >>> reports, weights = Reporter(4)(draw(1))
    >>> reports.shape, weights.shape
    (torch.Size([1, 14, 4, 4]), torch.Size([1, 4, 14, 14]))
    """

    def __init__(self, h: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(WIDTH, h, dtype=torch.float64)
        self.read = nn.Linear(WIDTH, len(OFFSETS) * SIGNS, dtype=torch.float64)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Report tokens, and say where each head looked.

        Args:
            tokens: (B, 14, 4), signs.

        Returns:
            (B, 14, relations, 4), a sign being that of the number, and (B, h, 14, 14).
        """
        place = LOUD * torch.eye(POSITIONS, dtype=torch.float64).repeat(1, 2)
        x = torch.cat([tokens, place.expand(*tokens.shape[:-2], -1, -1)], -1)
        attended, weights = self.attention(x, return_weights=True)
        return self.read(attended).unflatten(-1, (len(OFFSETS), SIGNS)), weights


def draw(count: int) -> Tensor:
    """Draw tokens, (count, 14, 4), with the global generator: each sign -1 or 1.

    >>> draw(2).shape
    torch.Size([2, 14, 4])
    """
    return torch.randint(2, (whole("count", count), POSITIONS, SIGNS)) * 2.0 - 1


def targets(tokens: Tensor) -> Tensor:
    """Give what has to be reported of tokens, (..., 14, 4): (..., 14, relations, 4).

    >>> targets(torch.arange(14.0)[:, None])[0].flatten().tolist()
    [13.0, 12.0, 11.0, 9.0]
    """
    check_tensor("tokens", tokens, 2, "(..., 14, 4)")
    return torch.stack([tokens.roll(-offset, dims=-2) for offset in OFFSETS], -2)


def train_reporter(h: int, seed: int, steps: int = 251) -> Reporter:
    """Train a layer of h heads as chapter 8 does: Adam, 8 drawn sequences a step.

    >>> train_reporter(4, seed=0, steps=1).attention.h
    4
    """
    torch.manual_seed(whole("seed", seed))
    model = Reporter(h)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, fused=True)
    for _ in range(steps):
        tokens = draw(8).double()
        optimizer.zero_grad()
        F.mse_loss(model(tokens)[0], targets(tokens)).backward()
        optimizer.step()
    return model


def save_reporters(reporters: Mapping[int, Reporter], path: str | Path) -> None:
    """Write layers in float16, by their number of heads, in the format of safetensors."""
    from safetensors.torch import save_file

    tensors = {
        f"{h}.{name}": tensor.half()
        for h, reporter in reporters.items()
        for name, tensor in reporter.state_dict().items()
    }
    save_file(tensors, path)


def load_reporters() -> dict[int, Reporter]:
    """Load the trained layers, by their number of heads, in float64.

    Raises:
        FileNotFoundError: their file is missing.

    >>> list(load_reporters())
    [1, 4]
    """
    from safetensors.torch import load_file

    if not CHECKPOINT.is_file():
        raise FileNotFoundError(f"{CHECKPOINT} is missing. `make checkpoint` trains and writes it.")
    states: dict[int, dict[str, Tensor]] = {}
    for full, tensor in load_file(CHECKPOINT).items():
        count, _, name = full.partition(".")
        states.setdefault(int(count), {})[name] = tensor
    with torch.device("meta"):  # without memory: the parameters are about to be those of the file
        reporters = {h: Reporter(h) for h in sorted(states)}
    for h, reporter in reporters.items():
        reporter.load_state_dict(states[h], assign=True)
    return {h: reporter.double() for h, reporter in reporters.items()}
