"""Lab 4: what each head writes through W_O, and what heads lose that share their projections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from labkit.attention import merge_heads, scaled_dot_product_attention
from labkit.labs.guard import Answer, Outcome, exercise, kind, near, recognise, right, show
from labkit.labs.output_projection import play
from labkit.labs.story_model import one_thread

SIZES = ((3, 2, 4), (2, 3, 5), (1, 4, 3), (5, 3, 7), (4, 1, 1))  # h, d_v and d_model
FEW = 1_000  # sequences; the page's recipe draws 4,800
NEAR = 0.05  # of the lowest error, where an answer of zeros has 1


@exercise
def slabs(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check W_O cut into one slab a head: (h*d_v, d_model) to (h, d_v, d_model)."""
    answer = Answer("slabs", function)
    W_O = torch.arange(24.0).view(6, 4)
    small = answer(W_O=W_O, h=2)
    columns = "cut between columns, and a head's numbers meet rows"
    short = "as if a head's width were d_model / h; it is the number of rows of W_O / h"
    expect_shape(small, (2, 3, 4), {(2, 6, 2): columns, (2, 2, 6): columns, (2, 2, 4): short})
    parts = small.tensor(2, 3, 4)
    mistakes = {
        "the numbers are read column by column": W_O.T.reshape(2, 3, 4),
        "the rows are dealt out in turn": torch.stack([W_O[0::2], W_O[1::2]]),
        "the slabs are in the opposite order": torch.stack(W_O.chunk(2)[::-1]),
    }
    small.demand(
        near(parts, torch.stack(W_O.chunk(2))),
        "the numbers of W_O count from 0, four a row; head 0 meets its first 3 rows, head 1 the "
        "next 3",
        f"slab 0 is {show(parts[0])}{recognise(parts, mistakes)}",
    )
    for h, d_v, d_model, W_O in matrices():
        outcome = answer(W_O=W_O, h=h)
        outcome.demand(
            near(outcome.tensor(h, d_v, d_model), cut(W_O, h)),
            "slab i holds the rows i·d_v to i·d_v + d_v − 1, whole",
            "some numbers are in another place, or others",
        )
    right("slabs", "One slab a head, each as wide as the model.")


def expect_shape(outcome: Outcome, shape: tuple[int, ...], known: dict[Any, str]) -> None:
    """Demand a shape, where one came that tells the mistake."""
    came = tuple(getattr(outcome.value, "shape", ()))
    outcome.demand(
        came not in known, f"it has the shape {shape}", f"came {came}: {known.get(came)}"
    )


@exercise
def contributions(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check what each head writes: (h, n, d_v) and (h*d_v, d_model) to (h, n, d_model)."""
    answer = Answer("contributions", function)
    heads = torch.tensor([[[1.0, 2, -1]], [[3, -1, 1]]])
    W_O = torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, -1], [3, 1], [0, 2]])
    small = answer(heads=heads, W_O=W_O)
    expect_shape(small, (2, 1, 2), {(1, 2): "that is one vector a token, not one of each head"})
    wrote = small.tensor(2, 1, 2)
    small.demand(
        near(wrote, [[[-1, 1]], [[0, -2]]]),
        "the first head writes 1·(1, 0) + 2·(0, 1) − 1·(2, 1), "
        "the second 3·(1, −1) − 1·(3, 1) + 1·(0, 2)",
        f"came {show(wrote)}{recognise(wrote, miswritten(heads, W_O))}",
    )
    for n, (h, d_v, d_model, W_O) in zip((5, 4, 2, 6, 1), matrices(), strict=True):
        heads = drawn(n, h, d_v, seed=n).transpose(0, 1)  # stored as by split_heads
        outcome = answer(heads=heads, W_O=W_O)
        wrote, expected = outcome.tensor(h, n, d_model), heads.double() @ cut(W_O, h)
        told = recognise(wrote, miswritten(heads, W_O))
        outcome.demand(
            near(wrote.sum(dim=0), expected.sum(dim=0)),
            "what the heads write adds up to the concatenation times W_O",
            f"the sum is another{told}",
        )
        outcome.demand(
            near(wrote, expected),
            "each head writes through its own slab, and nothing else",
            f"the sum is right, the parts are not{told}",
        )
    right("contributions", "Heads are added, and you have what each one adds.")


def miswritten(heads: Tensor, W_O: Tensor) -> dict[str, Tensor]:
    """Give what heads seem to write when a step goes wrong, by the words for it."""
    (h, n, d_v), slabs = heads.shape, W_O.unflatten(0, (len(heads), -1))
    whole = (merge_heads(heads) @ W_O).expand(h, -1, -1)
    return {
        "all heads used the first slab": heads @ slabs[0],
        "all heads used the last slab": heads @ slabs[-1],
        "the slabs are in the opposite order": heads @ slabs.flip(0),
        "each is the sum of all": whole,
        "each is an equal share of the sum": whole / h,
        "each is what all the others write": whole - heads @ slabs,
        "each is divided by h": heads @ slabs / h,
        "each is the sum of the heads so far": (heads @ slabs).cumsum(0),
        "the heads took the rows of W_O in turn": heads @ W_O.unflatten(0, (-1, h)).transpose(0, 1),
        "the numbers of W_O are read column by column": heads @ W_O.T.reshape(h, d_v, -1),
        "one view turned heads into tokens, so that they mix": (
            heads.reshape(n, h, d_v).transpose(0, 1) @ slabs
        ),
    }


@exercise
def silence(function: Callable[[Tensor, int, int], Tensor]) -> None:
    """Check a stored matrix without one head: (d_model, h*d_v) to the same, counted from 0."""
    answer = Answer("silence", function)
    weight = torch.arange(1.0, 109).view(9, 12)
    small = answer(weight=weight, head=1, h=4)
    muted, row, column = small.tensor(9, 12), torch.arange(9)[:, None], torch.arange(12)
    mistakes = {
        "rows are silent, not what the head meets": weight * (row // 3 != 1),
        "d_model / h rows are silent, not what the head meets": weight * (row // 2 != 1),
        "a row is silent, not what the head meets": weight * (row != 1),
        "the width of a head is taken from d_model": weight * (column // 2 != 1),
        "head is taken for the number of a column": weight * (column != 1),
        "the head's numbers are halved": weight * (1 - 0.5 * (column // 3 == 1)),
        "the other heads are silent": weight * (column // 3 == 1),
        "the head before is silent; heads count from 0": weight * (column // 3 != 0),
        "every fourth column is silent": weight * (column % 4 != 1),
        "only the head's first number is silent": weight * (column != 3),
        "the head's last number is not silent": weight * ((column < 3) | (column > 4)),
        "the slice begins at column head, and not at head·d_v": weight * ((column - 2).abs() > 1),
        "the other heads are scaled up": weight * (column // 3 != 1) * 4 / 3,
        "all heads from this one on are silent": weight * (column < 3),
        "h is taken for the width of a head": weight * (column // 4 != 1),
        "nothing has changed": weight,
    }
    own = [i for i in (3, 4, 5) if muted[:, i].any()]
    others = [i for i in range(12) if i // 3 != 1 and not near(muted[:, i], weight[:, i])]
    small.demand(
        near(muted, weight * (column // 3 != 1)),
        "4 heads of 3 numbers each; x Wᵀ no longer depends on those of head 1, and on the others "
        "as before",
        f"columns of head 1 that are not zeros: {show(own)}; columns of other heads that "
        f"changed: {show(others)}" + recognise(muted, mistakes),
    )
    for h, d_v, d_model, W_O in matrices():
        for head in range(h):
            outcome = answer(weight=W_O.T, head=head, h=h)
            muted = outcome.tensor(d_model, h * d_v)
            its = torch.arange(h * d_v) // d_v == head
            off = ((muted - W_O.T.double().masked_fill(its, 0)).abs() > 1e-6).any(dim=0)
            heard, lost = int(off[its].sum()), int(off[~its].sum())
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
    for h, d_k, d_v, B, n, d_model in (
        (3, 4, 2, 6, 5, 9), (2, 5, 3, 1, 6, 7), (4, 2, 3, 5, 1, 9), (1, 3, 4, 2, 6, 7)
    ):  # fmt: skip
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
        "the scale is 1/d_k": scaled(1 / d_k),
        "the softmax is missing": written(scores @ v),
        "later tokens are hidden": written(scaled_dot_product_attention(q, k, v, is_causal=True)),
        "the scale is that of all heads together": scaled((h * d_k) ** -0.5),
        "the scale is 1/√d_v, and queries are d_k wide": scaled(d_v**-0.5),
        "tokens attend across the sequences of the batch": (
            written(scaled_dot_product_attention(*(part.transpose(0, 1) for part in (q, k, v))))
        ).transpose(0, 1),
        "queries and keys have changed places": written(scaled_dot_product_attention(k, q, v)),
        "the queries serve as keys": written(scaled_dot_product_attention(q, q, v)),
        "the softmax runs over the queries": written(scores.softmax(-2) @ v),
        "the result is divided by h": written(head) / h,
        "there is no attention": written(v),
        "all weights are equal": written(v.mean(1, keepdim=True).expand(B, n, d_v)),
    }


@exercise
def one_head(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check the slab of the single head that does what shared heads do: to (d_v, d_model)."""
    answer = Answer("one_head", function)
    W_O = torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, -1], [3, 0], [0, 2]])
    small = answer(W_O=W_O, h=2)
    sizes = {
        (6, 2): "that is as wide as all together",
        (2, 2): "that is a row for each head, and not one for each number of a head",
    }
    expect_shape(small, (3, 2), sizes)
    slab, parts = small.tensor(3, 2), W_O.view(2, 3, 2)
    mistakes = {
        "that is the mean of the slabs": parts.mean(0),
        "that is the first slab": parts[0],
        "that is the last slab": parts[1],
        "that is the first slab times h": 2 * parts[0],
        "the sum is divided by √h": parts.sum(0) / 2**0.5,
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
        (37, 7, 3, True),
        (37, 7, 3, False),
        (13, 3, 5, False),
        (11, 4, 3, True),
        (5, 4, 9, True),
    ):
        outcome, again = (answer(numbers=numbers, h=h, d_v=d_v, shared=shared) for _ in range(2))
        error, least = outcome.number(), lowest(numbers, h, d_v, shared)
        if abs(error - least) > max(1e-6 * least, 1e-9):
            if error < 0:
                told = "; an error of squares is never negative"
            elif again.number() != error:
                told = "; a second call gives another number: is it measured?"
            else:
                told = cause(error, miscounted(numbers, h, d_v, shared))
            outcome.demand(
                False,
                "the least mean squared error that is possible, where an answer of zeros has 1",
                f"came {error:.6g}{told}",
            )
    right("lowest_error", "A prediction that training can now be held against.")


def miscounted(numbers: int, h: int, d_v: int, shared: bool) -> dict[str, float]:
    """Give what comes of the mistakes that are made with the lowest error."""
    least = lowest(numbers, h, d_v, shared)
    return {
        "that is the share that can be matched": 1 - least,
        "that is a number of directions, not a mean over the numbers": least * numbers,
        "that is in percent": 100 * least,
        "that is the root of a mean of squares": least**0.5,
        "as if everything were shared": lowest(numbers, h, d_v, True),
        "as if nothing were shared": lowest(numbers, h, d_v, False),
        "that is the square of a mean of squares": least**2,
        "0 needs an answer that hits every number; does // or int round it down?": 0.0,
        "that is h times as much": h * least,
        "the heads divide their width among themselves": max(0.0, 1 - d_v / h / numbers),
        "no more directions count than there are numbers": (
            (d_v if shared else h * d_v) / numbers - 1
        ),
        "it is rounded": round(least, 2),
        "it is rounded to three places": round(least, 3),
        "it is rounded to four places": round(least, 4),
    } | {
        f"that is the lowest error where heads write in {some} direction{'s' * (some > 1)}": (
            1 - some / numbers
        )
        for some in range(1, numbers)
    }


def cause(number: float, mistakes: dict[str, float]) -> str:
    """Name the mistake that gives this number, as the end of a sentence; nothing if none does."""
    close = (told for told, came in mistakes.items() if abs(number - came) < 1e-6)
    return next((f"; {told}" for told in close), "")


@exercise
def trained(function: Callable[[int, int, bool], Callable[[Tensor], Tensor]]) -> None:
    """Check the error of a layer that was trained on the copying task."""
    answer = Answer("trained", function)
    # The first optimiser imports much; that should not count as the answer's time.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    x, y = play.evenly(drawn(4_000, play.NUMBERS))
    ends = []
    for h, d_v, shared in ((3, 2, True), (3, 2, False)):
        before = play.DRAWN["sequences"]
        with one_thread():
            outcome = answer(h=h, d_v=d_v, shared=shared)
        seen = play.DRAWN["sequences"] - before
        outcome.demand(
            callable(outcome.value),
            "the layer itself, a function or a module that can be called with x",
            f"came {kind(outcome.value)}",
        )
        out = Answer("What trained returns", outcome.value)(x=x).tensor(*y.shape)
        by_token = (out - y).square().mean(dim=(0, 2))
        error = float(by_token.mean())
        least, other = (lowest(play.NUMBERS, h, d_v, s) for s in (shared, not shared))
        outcome.demand(
            abs(error - least) < NEAR,
            f"an error within {NEAR} of the lowest for {h} heads of width {d_v} that share "
            f"{'W_Q, W_K and W_V' if shared else 'nothing'}; an answer of zeros has 1",
            f"on new sequences the layer's error is {error:.3f}"
            + (meant(out, x, least) or ended(by_token, least, other, shared, seen, outcome.value)),
        )
        ends.append(error)
    right(
        "trained",
        f"Heads that share end at {ends[0]:.2f}, heads of their own at {ends[1]:.2f}, where the "
        "algebra said.",
    )


def meant(out: Tensor, x: Tensor, least: float) -> str:
    """Name the token whose numbers the layer gives, if it is another than that before."""
    tokens = {"itself": 0, "after it": -1, "two before it": 2}
    for told, back in tokens.items():
        wanted = x[..., : play.NUMBERS].roll(back, dims=1)
        if float((out - wanted).square().mean()) < least + NEAR:
            return f"; it gives the numbers of the token {told}, and not of the one before it"
    return ""


def ended(by_token: Tensor, least: float, other: float, shared: bool, seen: int, layer: Any) -> str:
    """Say what an error looks like that lies too far from the lowest."""
    error, first, rest = (float(e) for e in (by_token.mean(), by_token[0], by_token[1:].max()))
    if abs(error - other) < NEAR / 4:
        return f", where heads end that share {'nothing' if shared else 'everything'}"
    if error < least:
        return (
            ", and no heads of that size get there: is the layer built from the h and d_v that it "
            "was given?"
        )
    if 0 < seen < FEW:
        return f"; it drew {seen:,} sequences in all to learn from, and these are too few"
    if error > 2:
        return (
            ", more than zeros have; does each step go downhill, is the gradient cleared before "
            "it, and is the rate small?"
        )
    if first > rest + 0.1:
        return f": {first:.2f} at token 0, at most {rest:.2f} at the others; is something hidden?"
    if error > 0.85 and isinstance(layer, nn.Module) and listed(layer):
        return (
            "; the layer holds modules or tensors in a plain list, and its parameters() leaves "
            "those out: did the optimiser get them?"
        )
    if error > 0.9:
        return (
            "; does every step lower the loss, at a rate neither too small, as Adam's 0.001 is for "
            "some hundred steps, nor too large, and does the layer see all that the task gives?"
        )
    return (
        "; is it trained for long enough, on ever new sequences, each head as wide as it should "
        "be, and are the heads merged token by token?"
    )


def listed(layer: nn.Module) -> bool:
    """Say whether a module keeps modules or tensors in a list, where it does not find them."""
    parts = (part for module in layer.modules() for part in vars(module).values())
    lists = (part for part in parts if isinstance(part, (list, tuple)))
    return any(isinstance(one, (nn.Module, Tensor)) for part in lists for one in part)


def lowest(numbers: int, h: int, d_v: int, shared: bool) -> float:
    """Give the error that is left in the directions in which no head can write."""
    return (numbers - min(d_v if shared else h * d_v, numbers)) / numbers


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
