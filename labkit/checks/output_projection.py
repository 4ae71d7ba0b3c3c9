"""Lab 4: what each head writes through W_O, and what heads lose that share their projections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.checks.guard import Answer, exercise, near, recognise, right, show
from labkit.play import output_projection as play

UNSEEN = 1_000  # sequences that an error is measured on
NEAR = 0.05  # of the floor, as a share of what an answer of zeros gets
# h, d_v and d_model: all different, each of them 1 once, and d_model below, at and above h*d_v
SIZES = ((2, 3, 5), (3, 2, 4), (1, 4, 3), (4, 1, 6), (5, 3, 1), (3, 4, 12), (7, 2, 17))


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
        "the slabs are in the opposite order": W_O.view(2, 3, 2).flip(0),
    }
    small.demand(
        near(parts, torch.stack(W_O.chunk(2))),
        "the first head's 3 numbers meet the first 3 rows of W_O, the second head's the next 3",
        f"came {show(parts)}{recognise(parts, mistakes)}",
    )
    for h, d_v, d_model, W_O in matrices():
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(outcome.tensor(h, d_v, d_model), torch.stack(W_O.chunk(h)), 1e-6),
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
        "the heads used each other's slab": torch.stack([heads[0] @ W_O[3:], heads[1] @ W_O[:3]]),
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
    for n, (h, d_v, d_model, W_O) in zip((4, 5, 2, 3, 7, 1, 6), matrices(), strict=True):
        heads = drawn(n, h, d_v, seed=n).transpose(0, 1)  # as they come from split_heads
        outcome = answer(heads=heads, W_O=W_O)
        wrote = outcome.tensor(h, n, d_model)
        outcome.demand(
            near(wrote.sum(dim=0), merge_heads(heads) @ W_O),
            "what the heads write adds up to the concatenation times W_O",
            "the sum is another",
        )
        outcome.demand(
            near(wrote, heads @ torch.stack(W_O.chunk(h))),
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
        "the other head has been made louder": weight * torch.tensor([2, 2, 0, 0]),
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
            heard = int(muted[:, own].any(dim=0).sum())
            kept = muted.isclose(W_O.T.double(), rtol=1e-6, atol=1e-6)
            lost = int((~kept)[:, ~own].any(dim=0).sum())
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
    for h, d_k, d_v, B, n, d_model, size in (
        (3, 4, 2, 2, 5, 7, 1),
        (1, 3, 5, 3, 4, 2, 1),
        (2, 1, 3, 1, 6, 4, 1),
        (4, 2, 1, 3, 1, 5, 1),
        (3, 2, 4, 4, 3, 12, 1),
        (2, 5, 3, 3, 4, 6, 20),  # scores whose exponentials no float32 holds
    ):
        x, W_Q, W_K = drawn(B, n, d_model), drawn(d_model, d_k, seed=2), drawn(d_model, d_k, seed=3)
        W_V, W_O, W_Q = drawn(d_model, d_v, seed=4), drawn(d_model, h * d_v, seed=1).T, size * W_Q
        outcome = answer(x=x, W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, h=h)
        out = outcome.tensor(B, n, d_model)
        q, k, v = x @ W_Q, x @ W_K, x @ W_V
        scores = q @ k.mT / d_k**0.5
        head = scaled_dot_product_attention(q, k, v)

        def written(head: Tensor, h: int = h, W_O: Tensor = W_O) -> Tensor:
            return torch.cat([head] * h, dim=-1) @ W_O

        def scaled(
            scale: float, q: Tensor = q, k: Tensor = k, v: Tensor = v, write: Callable = written
        ) -> Tensor:
            return write(scaled_dot_product_attention(q, k, v, scale=scale))

        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        mistakes = {
            "only the first slab is used": head @ W_O[:d_v],
            "the head's numbers are repeated one by one, and not head by head": (
                head.repeat_interleave(h, dim=-1) @ W_O
            ),
            "the copies are cut anew, so that tokens mix": (
                torch.cat([head] * h, dim=1).reshape(B, n, h * d_v) @ W_O
            ),
            "the scale is missing": scaled(1.0),
            "the scale is that of all heads together": scaled((h * d_k) ** -0.5),
            "the scale is that of a head that has a part of d_k": scaled((d_k / h) ** -0.5),
            "the scale is that of the values' width": scaled(d_v**-0.5),
            "the scale is that of d_model": scaled(d_model**-0.5),
            "queries and keys are exchanged": written(scaled_dot_product_attention(k, q, v)),
            "the queries serve as keys": written(scaled_dot_product_attention(q, q, v)),
            "the future is masked": written(
                scores.masked_fill(future, float("-inf")).softmax(-1) @ v
            ),
            "tokens attend to other sequences": written(
                scaled_dot_product_attention(*(part.flatten(0, 1) for part in (q, k, v)))
            ).unflatten(0, (B, n)),
            "the input is added": x + written(head),
            "the softmax runs over the queries": written(scores.softmax(-2) @ v),
            "the result is divided by h": written(head) / h,
            "there is no attention": written(v),
        }
        outcome.demand(
            near(out, written(head)),
            f"{h} equal heads, side by side, times W_O",
            f"some numbers differ{recognise(out, mistakes)}",
        )
    right("shared_heads", "So many heads, and all of them say the same.")


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
        "that is the last slab": parts[1],
        "that is the largest of the slabs": parts.amax(0),
        "that is the product of the slabs": parts.prod(0),
        "that is the difference of the slabs": parts[0] - parts[1],
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
            near(outcome.tensor(d_v, d_model), torch.stack(W_O.chunk(h)).sum(0)),
            f"one head gives what {h} shared heads of width {d_v} give",
            "it gives something else",
        )
    right("one_head", "Shared heads are one head, and no wider than each of them.")


@exercise
def lowest_error(function: Callable[[int, int, int, bool], float]) -> None:
    """Check the floor under the error of heads that write in fewer directions than asked for."""
    answer = Answer("lowest_error", function)
    teaching = [(32, 8, 2, True), (32, 8, 2, False), (32, 1, 8, False), (12, 3, 4, True)]
    every = product((1, 7, 8, 12, 1_000), (1, 2, 3, 8), (1, 2, 5, 16), (True, False))
    for numbers, h, d_v, shared in [*teaching, *every]:
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
            abs(error - floor) < 1e-6,
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
    for h, d_v, shared in ((4, 2, True), (4, 2, False), (3, 3, True), (2, 3, False)):
        with play.one_thread(), watched() as training:
            outcome = answer(h=h, d_v=d_v, shared=shared)
        error, drawn = outcome.number(), training.counts
        floor = lowest(play.NUMBERS, h, d_v, shared)
        outcome.demand(
            max(drawn, default=0) >= UNSEEN,
            f"an error that is measured, on {UNSEEN:,} sequences from one call of play.copying",
            f"its calls asked for {max(drawn)} sequences at most"
            if drawn
            else f"came {show(error)}, and no sequence was drawn",
        )
        outcome.demand(
            len(drawn) > 1,
            f"the {UNSEEN:,} sequences come from a call of their own, after the training",
            "play.copying was called only once; was the layer trained on them, or on nothing?",
        )
        wanted = f"within {NEAR} of the floor {show(floor)}, where an answer of zeros has 1"
        # An answer may average several measurements; the usual one is the last.
        of_zeros = [training.powers[-1], sum(training.powers) / len(training.powers)]
        share = min((error / power for power in of_zeros), key=lambda share: abs(share - floor))
        told = f"came {error:.2f}, where zeros have {of_zeros[0]:.2f}, so {share:.2f} of that"
        outcome.demand(
            floor == 0 or abs(share - floor) < NEAR or abs(error - floor) > NEAR,
            f"the mean squared error on the {UNSEEN:,} sequences drawn last, {wanted}",
            f"{told}; {error:.2f} would fit sequences of the training, or a prediction",
        )
        outcome.demand(
            share > floor - NEAR,
            f"{'shared heads' if shared else f'{h} heads'} of width {d_v} cannot match as much as "
            f"that: {wanted}",
            f"{told}; have the heads more than they should, does the answer stand in the input, "
            "or is it no mean of squares?",
        )
        outcome.demand(
            share < floor + NEAR,
            f"training {'with' if shared else 'without'} sharing brings the error down: {wanted}",
            f"{told}{stuck(share)}",
        )
        if not training.trained:  # by a rule of the learner's own, which is not seen
            continue
        least, most = numbers_of_a_layer(h, d_v, shared)
        outcome.demand(
            training.fits(least, most),
            f"{h} heads of width {d_v} that share {'all three matrices' if shared else 'nothing'} "
            f"have {least} numbers to train, and at most {most} if there are biases",
            f"{max(training.trained.values())} are trained; which matrices are shared, how wide "
            "are queries, keys and values, and has each head a slab?",
        )
    right("trained_error", "Training ends where the algebra said, and sharing is what decides.")


def lowest(numbers: int, h: int, d_v: int, shared: bool) -> float:
    """Give the error that is left in the directions in which no head can write."""
    return 1 - min(d_v if shared else h * d_v, numbers) / numbers


def numbers_of_a_layer(h: int, d_v: int, shared: bool) -> tuple[int, int]:
    """Count what a layer trains: without biases, and with all of them."""
    into, out = 3 * d_v * (1 if shared else h), h * d_v * play.NUMBERS
    return into * play.WIDTH + out, into * (play.WIDTH + 1) + out + play.NUMBERS


@dataclass
class Training:
    """What is seen of an answer while it trains a layer."""

    counts: list[int] = field(default_factory=list)  # of sequences, call by call
    powers: list[float] = field(default_factory=list)  # mean squares of the large draws
    trained: Counter[int] = field(default_factory=Counter)  # numbers that an optimiser changes

    def fits(self, least: int, most: int) -> bool:
        """Say whether one layer was trained, by one optimiser or several."""
        return self.trained.total() >= least and max(self.trained.values()) <= most


@contextmanager
def watched() -> Iterator[Training]:
    """Note what the copying task hands out and what is trained.

    Draws as large as that of the unseen sequences get smaller numbers, and no two in a row the
    same: a prediction, or an error on the sequences of the training, does not fit them.
    """
    training, usual = Training(), play.tokens

    def tokens(count: int) -> Tensor:
        drawn = usual(count)
        training.counts.append(count)
        if count >= UNSEEN:
            drawn = drawn * (0.6, 0.9)[len(training.powers) % 2]
            training.powers.append(float(drawn.square().mean()))
        return drawn

    def stepped(optimiser: Optimizer, *arguments: object) -> None:
        parts = [part.grad for group in optimiser.param_groups for part in group["params"]]
        moved = sum(int(part.count_nonzero()) for part in parts if part is not None)
        training.trained[id(optimiser)] = max(training.trained[id(optimiser)], moved)

    hook = register_optimizer_step_post_hook(stepped)
    try:
        with patch.object(play, "tokens", tokens):
            yield training
    finally:
        hook.remove()


def stuck(share: float) -> str:
    """Say what an error that is too large looks like."""
    if share > 0.9:
        return (
            "; is it the mean of the squares, does every step lower the loss, and by enough, and "
            "does the layer see all that the task gives?"
        )
    return "; is each head different, as wide as it should be, and trained long enough?"


def matrices() -> Iterator[tuple[int, int, int, Tensor]]:
    """Give h, d_v, d_model and a W_O for each of the sizes; every second is stored transposed."""
    for seed, (h, d_v, d_model) in enumerate(SIZES):
        if seed % 2:
            yield h, d_v, d_model, drawn(d_model, h * d_v, seed=seed).T
        else:
            yield h, d_v, d_model, drawn(h * d_v, d_model, seed=seed)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw numbers that are the same in every check; other ones for another seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
