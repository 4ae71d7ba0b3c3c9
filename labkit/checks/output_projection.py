"""Lab 4: what each head writes through W_O, and what heads lose that share their projections."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.checks.guard import Answer, exercise, near, recognise, right, show
from labkit.play import output_projection as play

MOST_HEADS, WIDEST, LONGEST = 16, 64, 300  # that the page speaks of
# h, d_v and d_model: all different, each of them 1 once, and d_model below, at and above h*d_v
SIZES = ((2, 3, 5), (3, 2, 4), (1, 4, 3), (4, 1, 6), (5, 3, 1), (3, 4, 12), (7, 2, 17))
UNSEEN = 1_000  # sequences that an error is measured on
STRONG = (0.7, 1.0)  # sizes of the draws of so many, in turn
QUIET, LOUD, LAST = 0.5, 2.5, 8  # sizes of their sequences: the last eight are loud
PLACES = (1.25, 0.8, 0.45, 1.25)  # sizes of the four tokens
NEAR = 0.05  # of the floor, as a share of what an answer of zeros gets


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
        outcome, expected = answer(W_O=W_O, h=h), cut(W_O, h)
        outcome.demand(
            close(outcome.tensor(h, d_v, d_model), expected, expected, 1e-6),
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
    lengths = cycle((4, 5, 2, 3, 7, 1, 6, 17, 2, 40, 1, 3, LONGEST))
    some = islice(matrices(), 200)
    for case, (n, (h, d_v, d_model, W_O)) in enumerate(zip(lengths, some, strict=False)):
        by_token = varied(case // 7, h, n, d_v).transpose(0, 1).contiguous()
        heads = Handed(by_token.transpose(0, 1), case % 3 == 1)  # stored as by split_heads
        outcome, parts = answer(heads=heads, W_O=W_O), cut(W_O, h)
        wrote, expected = outcome.tensor(h, n, d_model), heads.double() @ parts
        terms = heads.double().abs() @ parts.abs()
        outcome.demand(
            close(wrote.sum(dim=0), expected.sum(dim=0), terms.sum(dim=0)),
            "what the heads write adds up to the concatenation times W_O",
            "the sum is another",
        )
        outcome.demand(
            close(wrote, expected, terms),
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
    for case, (h, d_v, d_model, W_O) in enumerate(matrices()):
        for head in range(h)[case % 4 :: 4] if case >= len(SIZES) else range(h):
            weight = Handed(W_O.T, W_O.sliced)
            outcome = answer(weight=weight, head=head, h=h)
            muted = outcome.tensor(d_model, h * d_v)
            own = torch.arange(h * d_v) // d_v == head
            expected = weight.double().masked_fill(own, 0)
            off = ((muted - expected).abs() > 1e-6 * expected.abs()).any(dim=0)
            heard, lost = int(off[own].sum()), int(off[~own].sum())
            outcome.demand(
                heard == lost == 0,
                f"the layer gives what it gives if head {head}, counted from 0, returns zeros",
                f"{heard} of that head's {d_v} numbers are still heard, and {lost} of the other "
                "heads' are not heard as before",
            )
            came = outcome.value.detach().cpu().numpy()
            outcome.demand(
                not np.may_share_memory(came, weight.copies[-1].numpy()),
                "a copy: who writes into one of the two does not change the other",
                "the result lies in the memory of the argument",
            )
    right("silence", "The head is silent, and nobody else has noticed.")


@exercise
def shared_heads(function: Callable[..., Tensor]) -> None:
    """Check heads that share W_Q, W_K, W_V: x (B, n, d_model), W_O (h*d_v, d_model)."""
    answer = Answer("shared_heads", function)
    for h, usual, (x, W_Q, W_K, W_V, W_O) in layers():
        outcome = answer(x=x, W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, h=h)
        out = outcome.tensor(*x.shape[:2], W_O.shape[1])
        tokens, values, slab = x.double(), W_V.double(), cut(W_O, h)
        scores = tokens @ W_Q.double() @ (tokens @ W_K.double()).mT / W_Q.shape[1] ** 0.5
        weights = scores.softmax(-1)
        terms = weights @ (tokens.abs() @ values.abs()) @ slab.abs().sum(0)
        told = f", where scores lie between {scores.min():.3g} and {scores.max():.3g}"
        if usual:
            told = recognise(out, mistakes_of_sharing(x, W_Q, W_K, W_V, W_O, h))
        outcome.demand(
            close(out, weights @ (tokens @ values) @ slab.sum(0), terms),
            f"{h} equal heads, side by side, times W_O",
            f"some numbers differ{told}",
        )
    right("shared_heads", "So many heads, and all of them say the same.")


def mistakes_of_sharing(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, h: int
) -> dict[str, Tensor]:
    """Give what comes of the mistakes that are made with shared heads."""
    (B, n, d_model), d_k, d_v = x.shape, W_Q.shape[1], W_V.shape[1]
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores, head = q @ k.mT / d_k**0.5, scaled_dot_product_attention(q, k, v)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)

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
        "the scale is that of a head that has a part of d_k": scaled((d_k / h) ** -0.5),
        "the scale is that of the values' width": scaled(d_v**-0.5),
        "the scale is that of d_model": scaled(d_model**-0.5),
        "queries and keys are exchanged": written(scaled_dot_product_attention(k, q, v)),
        "the queries serve as keys": written(scaled_dot_product_attention(q, q, v)),
        "the future is masked": written(scores.masked_fill(future, -math.inf).softmax(-1) @ v),
        "tokens attend to other sequences": written(
            scaled_dot_product_attention(*(part.flatten(0, 1) for part in (q, k, v)))
        ).unflatten(0, (B, n)),
        "the input is added": x + written(head),
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
        outcome, parts = answer(W_O=W_O, h=h), cut(W_O, h)
        outcome.demand(
            close(outcome.tensor(d_v, d_model), parts.sum(0), parts.abs().sum(0)),
            f"one head gives what {h} shared heads of width {d_v} give",
            "it gives something else",
        )
    right("one_head", "Shared heads are one head, and no wider than each of them.")


@exercise
def lowest_error(function: Callable[[int, int, int, bool], float]) -> None:
    """Check the floor under the error of heads that write in fewer directions than asked for."""
    answer = Answer("lowest_error", function)
    teaching = [(32, 8, 2, True), (32, 8, 2, False), (32, 1, 8, False), (12, 3, 4, True)]
    every = product((1, 7, 8, 12, 700), (1, 2, 3, 8, 16), (1, 2, 5, 63), (True, False))
    large = [(2_003, 1, 2, True), (997, 1, 996, True), (997, 12, 83, False), (640, 16, 639, True)]
    for numbers, h, d_v, shared in [*teaching, *every, *large]:
        outcome = answer(numbers=numbers, h=h, d_v=d_v, shared=shared)
        error, floor = outcome.number(), lowest(numbers, h, d_v, shared)
        happened = f"came {show(error)}"
        if abs(error - floor) < 1e-5:
            happened = f"came {error:.9g}, which is {floor:.9g} but for the last digits"
        elif abs(error - (1 - floor)) < 1e-6:
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
    asked = ((4, 2, True), (4, 2, False), (3, 3, True), (2, 3, False))
    for case, (h, d_v, shared) in enumerate(asked):
        with play.one_thread(), watched(STRONG if case < 2 else STRONG[::-1]) as training:
            outcome = answer(h=h, d_v=d_v, shared=shared)
        error, counts = outcome.number(), training.counts
        floor = lowest(play.NUMBERS, h, d_v, shared)
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
        outcome.demand(
            training.late == 0,
            f"training is over when the {UNSEEN:,} sequences are drawn",
            "derivatives are computed after that; is the layer trained on these sequences?",
        )
        wanted = f"within {NEAR} of the floor {show(floor)}, where an answer of zeros has 1"
        share = error / training.power
        told = f"came {error:.3f}, where zeros have {training.power:.3f}, so {share:.2f} of that"
        outcome.demand(
            floor == 0 or abs(share - floor) < NEAR or abs(error - floor) > NEAR,
            f"the mean squared error on the {UNSEEN:,} sequences drawn last, {wanted}",
            f"{told}; {error:.3f} would fit sequences of the training, or a prediction",
        )
        outcome.demand(
            share > floor - NEAR,
            f"{'shared heads' if shared else f'{h} heads'} of width {d_v} cannot match as much as "
            f"that: {wanted}",
            f"{told}; have the heads more than they should, does the answer stand in the input, "
            "or is it no mean of squares, or one that leaves tokens out?",
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
    return (numbers - min(d_v if shared else h * d_v, numbers)) / numbers


def numbers_of_a_layer(h: int, d_v: int, shared: bool) -> tuple[int, int]:
    """Count what a layer trains: without biases, and with all of them."""
    into, out = 3 * d_v * (1 if shared else h), h * d_v * play.NUMBERS
    return into * play.WIDTH + out, into * (play.WIDTH + 1) + out + play.NUMBERS


@dataclass
class Training:
    """What is seen of an answer while it trains a layer."""

    counts: list[int] = field(default_factory=list)  # of sequences, call by call
    power: float = math.nan  # mean square of the last draw for an error
    late: int = 0  # derivatives since the last draw
    trained: Counter[int] = field(default_factory=Counter)  # numbers that an optimiser changes

    def fits(self, least: int, most: int) -> bool:
        """Say whether one layer was trained, by one optimiser or several."""
        return self.trained.total() >= least and max(self.trained.values()) <= most


@contextmanager
def watched(strong: tuple[float, ...]) -> Iterator[Training]:
    """Note what the copying task hands out, when derivatives are computed, and what is trained.

    A draw for an error, which is not the first of all, is uneven, and no two in a row are of the
    same size: a prediction does not fit it, nor an error on other sequences or on some tokens.
    """
    training, usual, sizes = Training(), play.tokens, cycle(strong)

    def tokens(count: int) -> Tensor:
        drawn = usual(count)
        training.counts.append(count)
        training.late = 0
        if count == UNSEEN and len(training.counts) > 1:
            drawn = uneven(drawn) * next(sizes)
            training.power = float(drawn.square().mean())
        return drawn

    def noted(derive: Callable[..., Any]) -> Callable[..., Any]:
        def derivative(*arguments: Any, **settings: Any) -> Any:
            training.late += 1
            return derive(*arguments, **settings)

        return derivative

    def stepped(optimiser: Optimizer, *arguments: object) -> None:
        parts = [part.grad for group in optimiser.param_groups for part in group["params"]]
        moved = sum(int(part.count_nonzero()) for part in parts if part is not None)
        training.trained[id(optimiser)] = max(training.trained[id(optimiser)], moved)

    hook = register_optimizer_step_post_hook(stepped)
    try:
        with (
            patch.object(play, "tokens", tokens),
            patch.object(torch.autograd, "backward", noted(torch.autograd.backward)),
            patch.object(torch.autograd, "grad", noted(torch.autograd.grad)),
        ):
            yield training
    finally:
        hook.remove()


def uneven(tokens: Tensor) -> Tensor:
    """Give tokens (count, 4, 8) of which the last sequences are loud, and no place as the other.

    The loud ones are as large in one direction as in any other, as many would be.
    """
    by_place = torch.linalg.qr(torch.randn(len(PLACES), LAST, play.NUMBERS)).Q
    loud = LOUD * play.NUMBERS**0.5 * by_place.transpose(0, 1)
    return torch.cat([QUIET * tokens[:-LAST], loud]) * torch.tensor(PLACES)[:, None]


def stuck(share: float) -> str:
    """Say what an error that is too large looks like."""
    if share > 0.9:
        return (
            "; is it the mean of the squares, over all tokens, does every step lower the loss, and "
            "by enough, and does the layer see all that the task gives?"
        )
    return "; is each head different, as wide as it should be, and trained long enough?"


class Handed(Tensor):
    """An example that keeps the copies of it which answers get; they may be slices of others."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    sliced: bool
    copies: list[Tensor]

    def __new__(cls, tensor: Tensor, sliced: bool) -> Handed:
        self = tensor.as_subclass(cls)
        self.sliced, self.copies = sliced, []
        return self

    def clone(self, **_: Any) -> Tensor:
        """Copy the numbers in the order in which they are stored, with others around them."""
        plain = self.as_subclass(Tensor)
        copy = plain.clone()
        if self.sliced:
            order = sorted(range(plain.ndim), key=plain.stride, reverse=True)
            room = torch.full([plain.shape[axis] + 3 for axis in order], 7.0)
            part = room[tuple(slice(2, -1) for _ in order)]
            copy = part.permute([order.index(axis) for axis in range(plain.ndim)]).copy_(plain)
        self.copies.append(copy)
        return copy


def matrices() -> Iterator[tuple[int, int, int, Handed]]:
    """Give h, d_v, d_model and a W_O: a few small ones twice, then every second pair of h and d_v.

    They are stored by rows or by columns, and each way as a whole and as a slice.
    """
    pairs = product(range(1, MOST_HEADS + 1), range(1, WIDEST + 1))
    every = [(h, d_v) for h, d_v in pairs if (h + d_v) % 2]
    Random(0).shuffle(every)
    other = [
        (h, d_v, min((1, d_v, h, 3, h * d_v, h * (d_v + 1), 2)[case % 7], 66))
        for case, (h, d_v) in enumerate(every)
    ]
    for case, (h, d_v, d_model) in enumerate([*SIZES, *SIZES, *other]):
        W_O = varied(case if case >= len(SIZES) else 0, h, d_v, d_model).flatten(0, 1)
        if case % 2:
            W_O = W_O.T.contiguous().T
        yield h, d_v, d_model, Handed(W_O, case % 4 > 1)


def layers() -> Iterator[tuple[int, bool, tuple[Tensor, ...]]]:
    """Give h, whether the numbers are usual ones, and x, W_Q, W_K, W_V and W_O."""
    usual = ((3, 4, 2, 2, 5, 7), (1, 3, 5, 3, 4, 2), (2, 1, 3, 1, 6, 4), (4, 2, 1, 3, 1, 5))
    for case, (h, d_k, d_v, B, n, d_model) in enumerate([*usual, (3, 2, 4, 4, 3, 12), *usual]):
        shapes = (B, n, d_model), (d_model, d_k), (d_model, d_k), (d_model, d_v), (d_model, h * d_v)
        x, W_Q, W_K, W_V, W_O = (drawn(*s, seed=10 * case + i) for i, s in enumerate(shapes))
        yield h, True, (x, W_Q, W_K, W_V, W_O.T)
    for case in range(60):
        choose = Random(case).choice
        h, d_v, d_model = (choose(range(1, most + 1)) for most in (MOST_HEADS, WIDEST, 40))
        B, n, d_k = choose((1, 2, 3)), choose((1, 2, 3, 5, 17, 40)), choose((1, 5, 16, 64))
        n = LONGEST if case % 20 > 17 else n
        x = varied(choose((0, 0, 2, 3, 4)), B, n, d_model, seed=case)
        x[:, 2::4], x[:, 3::7] = 0, x[:, :1]  # no padding, and equal tokens
        W_Q, W_K = (drawn(d_model, d_k, seed=case + s) / d_model**0.5 for s in (2, 3))
        if case % 2 and d_model > 1:
            x, W_Q, W_K = with_large_scores(x, choose((1, 16)), seed=case)
        W_V = varied(choose(range(5)), d_model, d_v, 1, seed=case + 4)[..., 0]
        W_O = varied(choose(range(5)), h, d_v, d_model, seed=case + 1).flatten(0, 1)
        yield h, False, tuple(Handed(part, case % 3 == 0) for part in (x, W_Q, W_K, W_V, W_O))


def with_large_scores(x: Tensor, d_k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Give tokens and projections with scores up to 1,000 of both signs, some of them close.

    They have few digits, so that float32 holds them exactly.
    """
    (B, n, d_model), source = x.shape, torch.Generator().manual_seed(seed)
    most = int(30 / d_k**0.5)
    asked = torch.randint(-most, most + 1, (B, n), generator=source)
    asked[:, 0], asked[:, -1] = most, -most
    found = 32 + torch.randint(33, (B, n), generator=source) / 32
    found[:, 1::3] *= (-1) ** (seed // 2)
    tokens = torch.cat([asked[..., None], found[..., None], x[..., 2:]], dim=-1)
    ones = torch.eye(d_model)[..., None].expand(-1, -1, d_k)
    return tokens, ones[0], ones[1]


def varied(kind: int, h: int, *shape: int, seed: int | None = None) -> Tensor:
    """Draw numbers for h heads: usual, loud and quiet, tiny, the same for all, or zero for some."""
    x = drawn(h, *shape, seed=kind if seed is None else seed)
    around_one = x.sign() * (1 + x.abs())
    match kind % 5:
        case 1:
            source = torch.Generator().manual_seed(kind)
            return around_one * 10.0 ** torch.randint(-9, 9, (h, shape[0], 1), generator=source)
        case 2:
            return around_one * 1e-9
        case 3:
            return x[:1].expand(x.shape).contiguous()
        case 4:
            x[kind // 5 % 2 :: 2] = 0
    return x


def cut(W_O: Tensor, h: int) -> Tensor:
    """Cut a matrix into slabs, in float64."""
    return torch.stack(W_O.double().chunk(h))


def close(a: Tensor, b: Tensor, terms: Tensor, within: float = 1e-4) -> bool:
    """Say whether all numbers of two tensors are equal but for a part of what they are sums of."""
    return bool(((a - b).abs() <= within * terms.abs()).all())


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw numbers that are the same in every check; other ones for another seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
