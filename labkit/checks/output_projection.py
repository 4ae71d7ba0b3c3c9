"""Lab 4: what each head writes through W_O, and what heads lose that share their projections."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.checks.guard import Answer, exercise, near, recognise, right, show
from labkit.play.output_projection import NUMBERS, one_thread


@exercise
def slabs(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check W_O cut into one slab a head: (h*d_v, d_model) to (h, d_v, d_model)."""
    answer = Answer("slabs", function)
    W_O = torch.arange(16.0).view(4, 4)
    small = answer(W_O=W_O, h=2)
    parts = small.tensor(2, 2, 4)
    mistakes = {
        "these are columns, turned": torch.stack(W_O.T.chunk(2)),
        "the rows are dealt out in turn": torch.stack([W_O[0::2], W_O[1::2]]),
        "the slabs are in the opposite order": W_O.view(2, 2, 4).flip(0),
    }
    small.demand(
        near(parts, torch.stack(W_O.chunk(2))),
        "the first head's 2 numbers meet the first 2 rows of W_O, the second head's the next 2",
        f"came {show(parts)}{recognise(parts, mistakes)}",
    )
    for h, d_v, d_model in ((3, 2, 5), (1, 4, 3), (4, 1, 6)):
        W_O = drawn(h * d_v, d_model)
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(outcome.tensor(h, d_v, d_model), torch.stack(W_O.chunk(h))),
            "slab i holds the rows i·d_v to i·d_v + d_v − 1, whole",
            "some numbers are in another place",
        )
    right("slabs", "One slab a head, each as wide as the model.")


@exercise
def contributions(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check what each head writes: (h, n, d_v) and (h*d_v, d_model) to (h, n, d_model)."""
    answer = Answer("contributions", function)
    heads = torch.tensor([[[1.0, 2.0]], [[3.0, -1.0]]])
    W_O = torch.tensor([[1.0, 0, 2], [0, 1, 0], [1, 1, 0], [2, 0, 1]])
    small = answer(heads=heads, W_O=W_O)
    wrote = small.tensor(2, 1, 3)
    mistakes = {
        "both heads used the first slab": heads @ W_O[:2],
        "the heads used each other's slab": torch.stack([heads[0] @ W_O[2:], heads[1] @ W_O[:2]]),
        "each is the sum of all": (merge_heads(heads) @ W_O).expand(2, 1, 3),
    }
    small.demand(
        near(wrote, [[[1, 2, 2]], [[1, 3, -1]]]),
        "the first head writes 1·(1, 0, 2) + 2·(0, 1, 0), the second 3·(1, 1, 0) − 1·(2, 0, 1)",
        f"came {show(wrote)}{recognise(wrote, mistakes)}",
    )
    heads, W_O = drawn(3, 5, 4), drawn(12, 7, seed=1)
    outcome = answer(heads=heads, W_O=W_O)
    wrote = outcome.tensor(3, 5, 7)
    outcome.demand(
        near(wrote.sum(dim=0), merge_heads(heads) @ W_O),
        "what the heads write adds up to the concatenation times W_O",
        "the sum is another",
    )
    outcome.demand(
        near(wrote, heads @ torch.stack(W_O.chunk(3))),
        "each head writes through its own slab, and nothing else",
        "the sum is right, the parts are not",
    )
    right("contributions", "Heads are added, and you have what each one adds.")


@exercise
def silence(function: Callable[[Tensor, int, int], Tensor]) -> None:
    """Check a stored matrix without one head: (d_model, h*d_v) to the same, counted from 0."""
    answer = Answer("silence", function)
    weight = torch.arange(1.0, 17).view(4, 4)
    small = answer(weight=weight, head=1, h=2)
    muted = small.tensor(4, 4)
    mistakes = {
        "rows are silent, not what the head meets": weight * torch.tensor([[1], [1], [0], [0]]),
        "the other head is silent": weight * torch.tensor([0, 0, 1, 1]),
        "every second column is silent": weight * torch.tensor([1, 0, 1, 0]),
        "the matrix has been turned": weight.T * torch.tensor([[1], [1], [0], [0]]),
        "nothing has changed": weight,
    }
    small.demand(
        near(muted, weight * torch.tensor([1, 1, 0, 0])),
        "x Wᵀ no longer depends on the last 2 of the 4 numbers in x, and on the others as before",
        f"came {show(muted)}{recognise(muted, mistakes)}",
    )
    weight = drawn(5, 12)
    for head, h in ((0, 3), (2, 3), (1, 6), (0, 1)):
        heads = drawn(h, 7, 12 // h, seed=1)
        outcome = answer(weight=weight, head=head, h=h)
        muted = outcome.tensor(5, 12)
        without = heads.clone()
        without[head] = 0
        own = torch.arange(12) // (12 // h) == head
        heard = int(muted[:, own].any(dim=0).sum())
        lost = int((muted != weight)[:, ~own].any(dim=0).sum())
        outcome.demand(
            near(merge_heads(heads).double() @ muted.T, merge_heads(without) @ weight.T),
            f"the layer gives what it gives if head {head}, counted from 0, returns zeros",
            f"{heard} of that head's {12 // h} numbers are still heard, and {lost} of the other "
            "heads' are not heard as before",
        )
    right("silence", "The head is silent, and nobody else has noticed.")


@exercise
def shared_heads(function: Callable[..., Tensor]) -> None:
    """Check heads that share W_Q, W_K, W_V: x (B, n, d_model), W_O (h*d_v, d_model)."""
    answer = Answer("shared_heads", function)
    for h, d_k, d_v in ((3, 4, 3), (1, 4, 5), (2, 3, 2)):
        x, W_O = drawn(2, 5, 6), drawn(h * d_v, 6, seed=1)
        W_Q, W_K, W_V = drawn(6, d_k, seed=2), drawn(6, d_k, seed=3), drawn(6, d_v, seed=4)
        outcome = answer(x=x, W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, h=h)
        out = outcome.tensor(2, 5, 6)
        q, k, v = x @ W_Q, x @ W_K, x @ W_V
        head = scaled_dot_product_attention(q, k, v)

        def repeated(head: Tensor, h: int = h, W_O: Tensor = W_O) -> Tensor:
            return torch.cat([head] * h, dim=-1) @ W_O

        mistakes = {
            "only the first slab is used": head @ W_O[:d_v],
            "the head's numbers are repeated one by one, and not head by head": (
                head.repeat_interleave(h, dim=-1) @ W_O
            ),
            "the scale is missing": repeated(scaled_dot_product_attention(q, k, v, scale=1.0)),
            "the scale is that of all heads together": repeated(
                scaled_dot_product_attention(q, k, v, scale=(h * d_k) ** -0.5)
            ),
            "queries and keys are exchanged": repeated(scaled_dot_product_attention(k, q, v)),
            "the queries serve as keys": repeated(scaled_dot_product_attention(q, q, v)),
            "the input is added": x + repeated(head),
            "the softmax runs over the queries": repeated((q @ k.mT / d_k**0.5).softmax(-2) @ v),
            "the result is divided by h": repeated(head) / h,
            "there is no attention": repeated(v),
        }
        outcome.demand(
            near(out, repeated(head)),
            f"{h} equal heads, side by side, times W_O",
            f"some numbers differ{recognise(out, mistakes)}",
        )
    right("shared_heads", "So many heads, and all of them say the same.")


@exercise
def one_head(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check the slab of the single head that does what shared heads do: to (d_v, d_model)."""
    answer = Answer("one_head", function)
    W_O = torch.tensor([[1.0, 0, 2], [0, 1, 0], [1, 1, 0], [2, 0, 1]])
    small = answer(W_O=W_O, h=2)
    slab = small.tensor(2, 3)
    mistakes = {
        "that is the mean of the slabs": W_O.view(2, 2, 3).mean(0),
        "that is the first slab": W_O[:2],
        "that is the last slab": W_O[2:],
        "that is the largest of the slabs": W_O.view(2, 2, 3).amax(0),
        "that is the product of the slabs": W_O.view(2, 2, 3).prod(0),
        "rows that lie beside each other are added": W_O.view(2, 2, 3).sum(1),
    }
    H = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    both = torch.cat([H, H], dim=1) @ W_O
    small.demand(
        near(slab, both),
        "H times this slab is what [H H] times W_O is, whatever H is",
        f"came {show(slab)}{recognise(slab, mistakes)}",
    )
    for h, d_v, d_model in ((4, 3, 5), (1, 2, 6), (3, 1, 4)):
        W_O, H = drawn(h * d_v, d_model), drawn(6, d_v, seed=1)
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(H.double() @ outcome.tensor(d_v, d_model), torch.cat([H] * h, dim=1) @ W_O),
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
        (32, 1, 8, False),
        (32, 1, 8, True),
        (12, 3, 4, False),
        (12, 3, 4, True),
        (8, 4, 4, False),
        (8, 2, 16, True),
    ):
        outcome = answer(numbers=numbers, h=h, d_v=d_v, shared=shared)
        error, floor = outcome.number(), 1 - min(d_v if shared else h * d_v, numbers) / numbers
        happened = f"came {show(error)}"
        if abs(error - (1 - floor)) < 1e-6:
            happened += ", which is the share that can be matched"
        elif abs(error - floor * numbers) < 1e-6:
            happened += ", which is a count of directions, not a mean over the numbers"
        elif abs(error - (1 - min(h * d_v, numbers) / numbers)) < 1e-6:
            happened += ", as if nothing were shared"
        elif error < 0:
            happened += "; an error of squares is never negative"
        elif abs(error - max(0.0, 1 - d_v / numbers)) < 1e-6:
            happened += ", as if everything were shared"
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
    for h, d_v, shared in ((4, 2, True), (4, 2, False), (2, 4, True)):
        with one_thread():
            outcome = answer(h=h, d_v=d_v, shared=shared)
        error = outcome.number()
        floor = 1 - min(d_v if shared else h * d_v, NUMBERS) / NUMBERS
        if shared:
            outcome.demand(
                error > floor - 0.08,
                f"{h} heads of width {d_v} that share everything cannot match as much as that",
                f"came {error:.2f}; have the heads a W_Q, W_K or W_V of their own, does the answer "
                "stand in the input, or were too few sequences measured?",
            )
            outcome.demand(
                abs(error - floor) > 1e-9,
                "an error that was measured, on sequences not seen in training",
                "came the floor to the last digit, which no measurement gives",
            )
        outcome.demand(
            error < floor + 0.12,
            f"training {'with' if shared else 'without'} sharing brings the error down, close to "
            "its floor",
            f"came {error:.2f}{stuck(error)}",
        )
    right("trained_error", "Training ends where the algebra said, and sharing is what decides.")


def stuck(error: float) -> str:
    """Say what an error that is too large looks like."""
    if error > 1.5:
        return (
            ", more than an answer of zeros gets, which is 1; is it a sum, or was nothing learned?"
        )
    if error > 0.9:
        return (
            ", about what an answer of zeros gets, which is 1; does every step change the layer, "
            "and by enough, and does the layer see all that the task gives?"
        )
    return "; is each head different, as wide as it should be, and trained long enough?"


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw numbers that are the same in every check; other ones for another seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
