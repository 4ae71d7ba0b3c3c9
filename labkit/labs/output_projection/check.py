"""Lab 4: what each head writes through W_O, and what heads lose that share their projections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.labs.guard import Answer, exercise, near, recognise, right, show
from labkit.labs.output_projection import play

SIZES = ((3, 2, 4), (2, 3, 5), (1, 4, 3), (5, 3, 7))  # h, d_v and d_model
UNSEEN = 1_000  # sequences that an error is measured on
NEAR = 0.05  # of the floor, where an answer of zeros has 1


@exercise
def slabs(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check W_O cut into one slab a head: (h*d_v, d_model) to (h, d_v, d_model)."""
    answer = Answer("slabs", function)
    W_O = torch.arange(12.0).view(6, 2)
    small = answer(W_O=W_O, h=2)
    parts = small.tensor(2, 3, 2)
    mistakes = {
        "the numbers are read column by column": W_O.T.reshape(2, 3, 2),
        "the rows are dealt out in turn": torch.stack([W_O[0::2], W_O[1::2]]),
    }
    small.demand(
        near(parts, torch.stack(W_O.chunk(2))),
        "the first head's 3 numbers meet the first 3 rows of W_O, the second head's the next 3",
        f"came {show(parts)}{recognise(parts, mistakes)}",
    )
    for h, d_v, d_model, W_O in matrices():
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(outcome.tensor(h, d_v, d_model), cut(W_O, h)),
            "slab i holds the rows i·d_v to i·d_v + d_v − 1, whole",
            "some numbers are in another place, or others",
        )
    right("slabs", "One slab a head, each as wide as the model.")


@exercise
def contributions(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check what each head writes: (h, n, d_v) and (h*d_v, d_model) to (h, n, d_model)."""
    answer = Answer("contributions", function)
    heads = torch.tensor([[[1.0, 2, -1]], [[3, -1, 1]]])
    W_O = torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, -1], [3, 0], [0, 2]])
    small = answer(heads=heads, W_O=W_O)
    wrote = small.tensor(2, 1, 2)
    mistakes = {
        "both heads used the first slab": heads @ W_O[:3],
        "each is the sum of all": (merge_heads(heads) @ W_O).expand(2, 1, 2),
        "each is an equal share of the sum": (merge_heads(heads) @ W_O).expand(2, 1, 2) / 2,
        "the heads took the rows of W_O in turn": torch.stack(
            [heads[0] @ W_O[0::2], heads[1] @ W_O[1::2]]
        ),
    }
    small.demand(
        near(wrote, [[[-1, 1]], [[0, -1]]]),
        "the first head writes 1·(1, 0) + 2·(0, 1) − 1·(2, 1), "
        "the second 3·(1, −1) − 1·(3, 0) + 1·(0, 2)",
        f"came {show(wrote)}{recognise(wrote, mistakes)}",
    )
    for n, (h, d_v, d_model, W_O) in zip((5, 4, 2, 6), matrices(), strict=True):
        heads = drawn(n, h, d_v, seed=n).transpose(0, 1)  # stored as by split_heads
        outcome = answer(heads=heads, W_O=W_O)
        wrote, expected = outcome.tensor(h, n, d_model), heads.double() @ cut(W_O, h)
        outcome.demand(
            near(wrote.sum(dim=0), expected.sum(dim=0)),
            "what the heads write adds up to the concatenation times W_O",
            "the sum is another",
        )
        outcome.demand(
            near(wrote, expected),
            "each head writes through its own slab, and nothing else",
            "the sum is right, the parts are not",
        )
    right("contributions", "Heads are added, and you have what each one adds.")


@exercise
def silence(function: Callable[[Tensor, int, int], Tensor]) -> None:
    """Check a stored matrix without one head: (d_model, h*d_v) to the same, counted from 0."""
    answer = Answer("silence", function)
    weight = torch.arange(1.0, 13).view(3, 4)
    small = answer(weight=weight, head=1, h=2)
    muted = small.tensor(3, 4)
    mistakes = {
        "rows are silent, not what the head meets": weight * torch.tensor([[1], [1], [0]]),
        "the other head is silent": weight * torch.tensor([0, 0, 1, 1]),
        "every second column is silent": weight * torch.tensor([1, 0, 1, 0]),
        "nothing has changed": weight,
    }
    small.demand(
        near(muted, weight * torch.tensor([1, 1, 0, 0])),
        "x Wᵀ no longer depends on the last 2 of the 4 numbers in x, and on the others as before",
        f"came {show(muted)}{recognise(muted, mistakes)}",
    )
    for h, d_v, d_model, W_O in matrices():
        for head in range(h):
            outcome = answer(weight=W_O.T, head=head, h=h)
            muted = outcome.tensor(d_model, h * d_v)
            own = torch.arange(h * d_v) // d_v == head
            off = ((muted - W_O.T.double().masked_fill(own, 0)).abs() > 1e-6).any(dim=0)
            heard, lost = int(off[own].sum()), int(off[~own].sum())
            outcome.demand(
                heard == lost == 0,
                f"the layer gives what it gives if head {head}, counted from 0, returns zeros",
                f"{heard} of that head's {d_v} numbers are still heard, and {lost} of the other "
                "heads' are not heard as before",
            )
    right("silence", "The head is silent, and nobody else has noticed.")


@exercise
def shared_heads(function: Callable[..., Tensor]) -> None:
    """Check heads that share W_Q, W_K, W_V: x (B, n, d_model), W_O (h*d_v, d_model)."""
    answer = Answer("shared_heads", function)
    for h, d_k, d_v, B, n, d_model in ((3, 4, 2, 6, 5, 7), (2, 5, 3, 1, 6, 4), (4, 2, 3, 5, 1, 6)):
        x, W_O = drawn(B, n, d_model), drawn(h * d_v, d_model, seed=1)
        W_Q, W_K, W_V = (drawn(d_model, d, seed=2 + i) for i, d in enumerate((d_k, d_k, d_v)))
        outcome = answer(x=x, W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, h=h)
        out = outcome.tensor(B, n, d_model)
        head = scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V)
        told = recognise(out, mistakes_of_sharing(x, W_Q, W_K, W_V, W_O, h))
        outcome.demand(
            near(out, torch.cat([head] * h, dim=-1) @ W_O),
            f"{h} equal heads, side by side, times W_O",
            f"some numbers differ{told}",
        )
    right("shared_heads", "So many heads, and all of them say the same.")


def mistakes_of_sharing(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, h: int
) -> dict[str, Tensor]:
    """Give what comes of the mistakes that are made with shared heads."""
    (B, n, _), d_k, d_v = x.shape, W_Q.shape[1], W_V.shape[1]
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores, head = q @ k.mT / d_k**0.5, scaled_dot_product_attention(q, k, v)

    def written(head: Tensor) -> Tensor:
        return torch.cat([head] * h, dim=-1) @ W_O

    def scaled(scale: float) -> Tensor:
        return written(scaled_dot_product_attention(q, k, v, scale=scale))

    return {
        "only the first slab is used": head @ W_O[:d_v],
        "the head's numbers are repeated one by one, and not head by head": (
            head.repeat_interleave(h, dim=-1) @ W_O
        ),
        "the copies are cut anew, so that tokens mix": (
            torch.cat([head] * h, dim=1).reshape(B, n, h * d_v) @ W_O
        ),
        "the scale is missing": scaled(1.0),
        "the scale is that of all heads together": scaled((h * d_k) ** -0.5),
        "the queries serve as keys": written(scaled_dot_product_attention(q, q, v)),
        "the softmax runs over the queries": written(scores.softmax(-2) @ v),
        "the result is divided by h": written(head) / h,
        "there is no attention": written(v),
    }


@exercise
def one_head(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check the slab of the single head that does what shared heads do: to (d_v, d_model)."""
    answer = Answer("one_head", function)
    W_O = torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, -1], [3, 0], [0, 2]])
    small = answer(W_O=W_O, h=2)
    slab, parts = small.tensor(3, 2), W_O.view(2, 3, 2)
    mistakes = {
        "that is the mean of the slabs": parts.mean(0),
        "that is the first slab": parts[0],
        "rows that lie beside each other are added": W_O.view(3, 2, 2).sum(1),
    }
    small.demand(
        near(slab, parts.sum(0)),
        "H times this slab is what [H H] times W_O is, whatever H is",
        f"came {show(slab)}{recognise(slab, mistakes)}",
    )
    for h, d_v, d_model, W_O in matrices():
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(outcome.tensor(d_v, d_model), cut(W_O, h).sum(0)),
            f"one head gives what {h} shared heads of width {d_v} give",
            "it gives something else",
        )
    right("one_head", "Shared heads are one head, and no wider than each of them.")


@exercise
def lowest_error(function: Callable[[int, int, int, bool], float]) -> None:
    """Check the floor under the error of heads that write in fewer directions than asked for."""
    answer = Answer("lowest_error", function)
    for numbers, h, d_v, shared in (
        (32, 8, 2, True),
        (32, 8, 2, False),
        (12, 3, 5, False),
        (7, 2, 3, True),
        (5, 4, 9, True),
    ):
        outcome = answer(numbers=numbers, h=h, d_v=d_v, shared=shared)
        error, floor = outcome.number(), lowest(numbers, h, d_v, shared)
        happened = f"came {show(error)}"
        if abs(error - (1 - floor)) < 1e-6:
            happened += ", which is the share that can be matched"
        elif abs(error - floor * numbers) < 1e-6:
            happened += ", which is a count of directions, not a mean over the numbers"
        elif abs(error - lowest(numbers, h, d_v, shared=False)) < 1e-6:
            happened += ", as if nothing were shared"
        elif error < 0:
            happened += "; an error of squares is never negative"
        elif abs(error - lowest(numbers, h, d_v, shared=True)) < 1e-6:
            happened += ", as if everything were shared"
        elif abs(error - floor) < 0.05:
            happened += f", which is near {show(floor)}, but rounded or measured"
        outcome.demand(
            abs(error - floor) <= max(1e-6 * floor, 1e-9),
            f"the mean of {numbers} squares, of which those outside of the heads' directions stay "
            "at 1 and the others can reach 0",
            happened,
        )
    right("lowest_error", "A prediction that training can now be held against.")


@exercise
def trained_error(function: Callable[[int, int, bool], float]) -> None:
    """Check the error that is left after training on the copying task."""
    answer = Answer("trained_error", function)
    # The first optimiser imports much; that should not count as the answer's time.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    for h, d_v, shared in ((4, 2, True), (4, 2, False)):
        with play.one_thread(), counted() as counts:
            outcome = answer(h=h, d_v=d_v, shared=shared)
        error, floor = outcome.number(), lowest(play.NUMBERS, h, d_v, shared)
        outcome.demand(
            len(counts) > 0,
            f"an error that is measured, on {UNSEEN:,} sequences from play.copying",
            f"came {show(error)}, and no sequence was drawn",
        )
        outcome.demand(
            counts[-1] == UNSEEN,
            f"the last call of play.copying draws {UNSEEN:,} sequences, those for the error",
            f"its last call asked for {counts[-1]:,}",
        )
        outcome.demand(
            len(counts) > 1,
            f"the {UNSEEN:,} sequences come from a call of their own, after the training",
            "play.copying was called only once; was the layer trained on them, or on nothing?",
        )
        wanted = f"within {NEAR} of the floor {show(floor)}, where an answer of zeros has 1"
        outcome.demand(
            error > floor - NEAR,
            f"{'shared heads' if shared else f'{h} heads'} of width {d_v} cannot match as much as "
            f"that: {wanted}",
            f"came {error:.3f}; have the heads more than they should, does the answer stand in the "
            "input, or is it no mean of squares, or one that leaves tokens out?",
        )
        outcome.demand(
            error < floor + NEAR,
            f"training {'with' if shared else 'without'} sharing brings the error down: {wanted}",
            f"came {error:.3f}{stuck(error)}",
        )
    right("trained_error", "Training ends where the algebra said, and sharing is what decides.")


def lowest(numbers: int, h: int, d_v: int, shared: bool) -> float:
    """Give the error that is left in the directions in which no head can write."""
    return (numbers - min(d_v if shared else h * d_v, numbers)) / numbers


@contextmanager
def counted() -> Iterator[list[int]]:
    """Note how many sequences each call of the copying task hands out."""
    counts: list[int] = []
    usual = play.tokens

    def tokens(count: int) -> Tensor:
        counts.append(count)
        return usual(count)

    with patch.object(play, "tokens", tokens):
        yield counts


def stuck(error: float) -> str:
    """Say what an error that is too large looks like."""
    if error > 0.9:
        return (
            "; is it the mean of the squares, over all tokens, does every step lower the loss, and "
            "by enough, and does the layer see all that the task gives?"
        )
    return "; is each head different, as wide as it should be, and trained long enough?"


def matrices() -> Iterator[tuple[int, int, int, Tensor]]:
    """Give h, d_v, d_model and a W_O."""
    for h, d_v, d_model in SIZES:
        yield h, d_v, d_model, drawn(h * d_v, d_model, seed=h)


def cut(W_O: Tensor, h: int) -> Tensor:
    """Cut a matrix into slabs, in float64."""
    return torch.stack(W_O.double().chunk(h))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw numbers that are the same in every check; other ones for another seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
