"""The task of chapter 8 and the layers that learn it, from several starts; their weights are kept.

A sequence is 14 tokens of four signs in a ring: before the first comes the last. At every position
a layer has to report the tokens 1, 2, 3 and 5 places back. One attention layer attends, and a
linear read-out reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import check_tensor, one_of, whole
from labkit.attention import MultiHeadAttention
from labkit.heads import relation_weight

__all__ = ["CHECKPOINT", "KINDS", "OFFSETS", "PLACES", "POSITIONS", "SIGNS", "STARTS", "TWINS",
    "Kind", "Reporter", "apart", "as_bytes", "draw", "errors", "learned", "load_reporters",
    "load_twins", "mean_weights", "probe", "relation_weights", "right", "ring", "save_reporters",
    "steps_of", "targets", "train_reporter", "train_twins", "twins"]  # fmt: skip

CHECKPOINT = Path(__file__).with_name("reporters.safetensors")
OFFSETS, POSITIONS, SIGNS, WIDTH = (-1, -2, -3, -5), 14, 4, 32
LOUD = 3.0  # a position beside a token's signs, so that heads find positions first
PLACES = (0.5, 1.0, 1.5, 2.0, LOUD)  # how large positions are, where this is varied
STARTS = range(5)


class Kind(NamedTuple):
    """How a layer and its training differ from others."""

    h: int
    d_k: int | None = None  # 32 / h unless given
    offsets: tuple[int, ...] = OFFSETS
    place: float = LOUD
    hidden: int = 0  # of a feed-forward layer before the read-out
    steps: int = 251
    rate: float = 0.02
    sequences: int = 8  # a step


TWO = (-1, 1)  # what twins are asked for
KINDS = {
    "one head": Kind(1),
    "one narrow head": Kind(1, d_k=8),
    "four heads": Kind(4),
    "eight heads": Kind(8),
    **{f"one head, places of {x}": Kind(1, place=x) for x in PLACES[:-1]},
    **{f"four heads, places of {x}": Kind(4, place=x) for x in PLACES[:-1]},
    "one head, one relation": Kind(1, offsets=(-1,)),
    "one head, then a feed-forward": Kind(1, None, TWO, LOUD, 64, 801, 0.01, 16),
}
TWINS = {  # pairs of heads: whether they begin with one slab of W_O, and in which type
    "float64": torch.float64,
    "float32": torch.float32,
    "nudged": torch.float64,  # one number moved by NUDGE
    "held equal": torch.float64,  # made equal again after each step
    "with slabs of their own": torch.float64,
}
NUDGE = 1e-9
TWIN_STEPS, TWIN_EVERY = 400, 10


class Reporter(nn.Module):
    """Attend over tokens and their positions, and read the reports off.

    Args:
        h: number of heads.
        d_k: width of a head; 32 / h unless given.
        offsets: which tokens are reported.
        place: how large the numbers of a position are, beside a token's signs.
        hidden: width of a feed-forward layer before the read-out; none if 0.
        dtype: of the parameters.

    Raises:
        TypeError, ValueError: h is no whole number, is under 1, or does not divide 32.

    >>> reports, weights = Reporter(4)(draw(1))
    >>> reports.shape, weights.shape
    (torch.Size([1, 14, 4, 4]), torch.Size([1, 4, 14, 14]))
    """

    def __init__(
        self,
        h: int,
        *,
        d_k: int | None = None,
        offsets: Sequence[int] = OFFSETS,
        place: float = LOUD,
        hidden: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.offsets, self.place = tuple(offsets), place
        self.attention = MultiHeadAttention(WIDTH, h, d_k=d_k, dtype=dtype)
        self.widen: nn.Module = nn.Identity()
        if hidden:
            wide = nn.Linear(WIDTH, hidden, dtype=dtype), nn.ReLU()
            self.widen = nn.Sequential(*wide, nn.Linear(hidden, WIDTH, dtype=dtype))
        self.read = nn.Linear(WIDTH, len(self.offsets) * SIGNS, dtype=dtype)

    def inputs(self, tokens: Tensor) -> Tensor:
        """Give what the layer reads, (B, 14, 32): a token's signs, and its position twice.

        Args:
            tokens: (B, 14, 4), signs.
        """
        type_ = self.read.weight.dtype
        place = self.place * torch.eye(POSITIONS, dtype=type_).repeat(1, 2)
        return torch.cat([tokens.to(type_), place.expand(*tokens.shape[:-2], -1, -1)], -1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Report tokens, and say where each head looked.

        Args:
            tokens: (B, 14, 4), signs.

        Returns:
            (B, 14, relations, 4), a sign being that of the number, and (B, h, 14, 14).
        """
        attended, weights = self.attention(self.inputs(tokens), return_weights=True)
        reports = self.read(self.widen(attended))
        return reports.unflatten(-1, (len(self.offsets), SIGNS)), weights


def draw(count: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw tokens, (count, 14, 4), with the global generator unless given: each sign -1 or 1.

    >>> draw(2).shape
    torch.Size([2, 14, 4])
    """
    size = (whole("count", count), POSITIONS, SIGNS)
    return torch.randint(2, size, generator=generator) * 2.0 - 1


def targets(tokens: Tensor, offsets: Sequence[int] = OFFSETS) -> Tensor:
    """Give what has to be reported of tokens, (..., 14, 4): (..., 14, relations, 4).

    >>> targets(torch.arange(14.0)[:, None])[0].flatten().tolist()
    [13.0, 12.0, 11.0, 9.0]
    """
    check_tensor("tokens", tokens, 2, "(..., 14, 4)")
    return torch.stack([tokens.roll(-offset, dims=-2) for offset in offsets], -2)


def ring(offset: int) -> Tensor:
    """Relate each position to the one an offset further, around the ring: (14, 14), boolean.

    >>> ring(-1)[0].nonzero().item()
    13
    """
    return torch.eye(POSITIONS, dtype=torch.bool).roll(offset, dims=1)


@cache
def probe(count: int = 200) -> Tensor:
    """Give tokens that no training is judged by, the same ones each time: (count, 14, 4)."""
    return draw(count, torch.Generator().manual_seed(1))


@torch.no_grad()
def right(model: Reporter) -> Tensor:
    """Say where each relation is reported right, all four signs of it: (500, 14, relations)."""
    tokens = probe(500)
    return (model(tokens)[0].sign() == targets(tokens, model.offsets)).all(-1)


def learned(model: Reporter) -> int:
    """Count the relations that are reported right at more than 0.9 of positions."""
    return int((right(model).double().mean((0, 1)) > 0.9).sum())


@torch.no_grad()
def errors(model: Reporter) -> Tensor:
    """Give each relation's mean squared error: 0 if it is told, 1 if nothing is; (relations,)."""
    tokens = probe()
    reports, _ = model(tokens)
    return (reports - targets(tokens, model.offsets)).square().mean((0, 1, 3))


@torch.no_grad()
def mean_weights(model: Reporter) -> Tensor:
    """Give the weights of each head, averaged over sequences: (h, 14, 14)."""
    return model(probe())[1].mean(0)


def relation_weights(model: Reporter) -> Tensor:
    """Give each head's weight on each relation: (h, relations)."""
    seen = mean_weights(model)
    found = [relation_weight(seen, ring(offset)) for offset in model.offsets]
    return torch.stack(found, -1)


def _steps(model: Reporter, steps: int, rate: float = 0.02, count: int = 8) -> Iterator[int]:
    """Train a model in place, and say before each step which it is, and once after the last."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    for step in range(steps):
        yield step
        tokens = draw(count).to(model.read.weight)
        optimizer.zero_grad()
        F.mse_loss(model(tokens)[0], targets(tokens, model.offsets)).backward()
        optimizer.step()
    yield steps


def _of_kind(kind: Kind) -> Reporter:
    return Reporter(
        kind.h, d_k=kind.d_k, offsets=kind.offsets, place=kind.place, hidden=kind.hidden
    )


def train_reporter(kind: str, seed: int, steps: int | None = None) -> Reporter:
    """Train a layer of one of KINDS: Adam, new sequences in each step.

    >>> train_reporter("four heads", seed=0, steps=1).attention.h
    4
    """
    for model in steps_of(kind, seed, steps):
        last = model
    return last


def steps_of(kind: str, seed: int, steps: int | None = None) -> Iterator[Reporter]:
    """Train as train_reporter does, and give the layer before each step and after the last.

    It is one layer, which the next step changes.

    Raises:
        ValueError: not one of KINDS.
    """
    how = KINDS[one_of("kind", kind, tuple(KINDS))]
    torch.manual_seed(whole("seed", seed))
    model = _of_kind(how)
    for _ in _steps(model, how.steps if steps is None else steps, how.rate, how.sequences):
        yield model


def twins(how: str, seed: int) -> Reporter:
    """Make a layer of two heads for two relations, the second head a copy of the first.

    Args:
        how: one of TWINS.
        seed: of the first head.

    Raises:
        ValueError: not one of TWINS.

    >>> apart(twins("float64", 0)) < 1e-12
    True
    """
    type_ = TWINS[one_of("how", how, tuple(TWINS))]
    torch.manual_seed(whole("seed", seed))
    model = Reporter(2, offsets=TWO, dtype=type_)
    layer = model.attention
    w_o = [(layer.w_o.weight, 1)]
    _for_each_pair(model, lambda one, _: one, [] if how == "with slabs of their own" else w_o)
    if how == "nudged":
        with torch.no_grad():
            layer.w_q.weight[-1, 0] += NUDGE
    return model


@torch.no_grad()
def _for_each_pair(
    model: Reporter,
    both: Callable[[Tensor, Tensor], Tensor],
    more: Sequence[tuple[Tensor, int]] = (),
) -> None:
    """Set the matrices of both heads, and `more` by their axis, to what `both` makes of them."""
    layer = model.attention
    parts = [layer.w_q, layer.w_k, layer.w_v]
    pairs = [(part.weight, 0) for part in parts]
    pairs += [(part.bias, 0) for part in parts if part.bias is not None]
    for weight, axis in (*pairs, *more):
        one, other = weight.chunk(2, dim=axis)
        same = both(one, other).clone()
        one.copy_(same)
        other.copy_(same)


def apart(model: Reporter) -> float:
    """Give the largest difference between the maps of a layer's first two heads, from 0 to 1."""
    one, other = mean_weights(model)[:2]
    return (one - other).abs().max().item()


def train_twins(how: str, seed: int, steps: int = TWIN_STEPS) -> tuple[Reporter, Tensor]:
    """Train twins, and follow how far they are apart and how large their error is.

    Returns:
        The layer, and (steps / 10 + 1, 2): apart and the mean error before each tenth step.

    >>> train_twins("float64", 0, steps=10)[1].shape
    torch.Size([2, 2])
    """
    model, seen = twins(how, seed), []
    for step in _steps(model, steps):
        if how == "held equal":
            w_o = [(model.attention.w_o.weight, 1)]
            _for_each_pair(model, lambda one, other: (one + other) / 2, w_o)
        if step % TWIN_EVERY == 0:
            seen.append((apart(model), errors(model).mean().item()))
    return model, torch.tensor(seen, dtype=torch.float64)


def save_reporters(
    layers: Mapping[str, Sequence[Reporter]], histories: Mapping[str, Tensor], path: str | Path
) -> None:
    """Write layers of each kind, in float16, and the histories of twins.

    Args:
        layers: for each of KINDS its starts.
        histories: for each of TWINS what train_twins saw, (starts, looks, 2).
        path: the file, in the format of safetensors.
    """
    from safetensors.torch import save_file

    tensors = {
        f"{kind}/{start}/{name}": tensor.half()
        for kind, starts in layers.items()
        for start, layer in enumerate(starts)
        for name, tensor in layer.state_dict().items()
    }
    save_file(tensors | {f"twins/{how}": seen for how, seen in histories.items()}, path)


def as_bytes(layers: Mapping[int, Reporter]) -> bytes:
    """Write layers for a figure, by their number of heads, in float16, as a file of safetensors."""
    from safetensors.torch import save

    tensors = {
        f"{h}.{name}": tensor.half()
        for h, layer in layers.items()
        for name, tensor in layer.state_dict().items()
    }
    return bytes(save(tensors))


@cache
def _kept() -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if not CHECKPOINT.is_file():
        raise FileNotFoundError(f"{CHECKPOINT} is missing. `make checkpoint` trains and writes it.")
    return load_file(CHECKPOINT)


def load_reporters(kind: str) -> list[Reporter]:
    """Load the trained layers of one of KINDS, one for each start, in float64.

    Raises:
        FileNotFoundError: their file is missing.
        ValueError: not one of KINDS.

    >>> [layer.attention.h for layer in load_reporters("four heads")]
    [4, 4, 4, 4, 4]
    """
    how = KINDS[one_of("kind", kind, tuple(KINDS))]
    states: dict[int, dict[str, Tensor]] = {}
    for full, tensor in _kept().items():
        of, *rest = full.split("/")
        if of == kind:
            states.setdefault(int(rest[0]), {})[rest[1]] = tensor.double()
    found = []
    for start in sorted(states):
        with torch.device("meta"):  # without memory: the parameters are to be those of the file
            layer = _of_kind(how)
        layer.load_state_dict(states[start], assign=True)
        found.append(layer.requires_grad_(False))
    return found


def load_twins(how: str) -> Tensor:
    """Give what was seen of one of TWINS, (starts, looks, 2): apart, and the mean error.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: not one of TWINS.

    >>> load_twins("float64").shape
    torch.Size([5, 41, 2])
    """
    return _kept()[f"twins/{one_of('how', how, tuple(TWINS))}"]
