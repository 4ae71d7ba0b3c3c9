"""Lab 2: masks, the weights that they leave, and tests that nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from labkit.attention import MultiHeadAttention
from labkit.attention import causal_mask as reference_mask
from labkit.checks.guard import Answer, exercise, near, right, show

Network = Callable[[Tensor], Tensor]


@exercise
def causal_mask(function: Callable[[int], Tensor]) -> None:
    """Check the boolean mask that lets a position see itself and its past: n to (n, n)."""
    answer = Answer("causal_mask", function)
    for n in (4, 1, 6):
        outcome = answer(n=n)
        may = outcome.tensor(n, n, boolean=True)
        expected = "True means may attend: row i is True up to and including column i"
        happened = f"came {show(may.int())}, with 1 for True"
        if torch.equal(~may, reference_mask(n)):
            happened += "; True and False have changed places"
        elif n > 1 and torch.equal(may, reference_mask(n).T):
            happened += "; rows, the queries, and columns, the keys, have changed places"
        elif not may.diagonal().all():
            happened += "; the diagonal is not all True, and a position sees itself"
        elif may.triu(1).any():
            happened += f"; {int(may.triu(1).sum())} of the future's places are open"
        outcome.demand(torch.equal(may, reference_mask(n)), expected, happened)
    right("causal_mask", "Each position sees itself and its past.")


@exercise
def to_additive(function: Callable[[Tensor], Tensor]) -> None:
    """Check the form of a mask that is added to scores: 0 where True, −∞ where False."""
    answer = Answer("to_additive", function)
    odd = torch.tensor([[True, False, True], [False, True, False]])
    for may in (reference_mask(3), odd, odd[:, None], torch.ones(2, 2, dtype=torch.bool)):
        outcome = answer(may=may)
        added = outcome.tensor(*may.shape)
        outcome.demand(
            (added[may] == 0).all(),
            "0 is added where the mask is True, so that the score stays",
            f"came {show(added)}",
        )
        outcome.demand(
            (added[~may] == float("-inf")).all(),
            "−∞ is added where the mask is False, so that the weight is exactly 0",
            f"came {show(added)}",
        )
    right("to_additive", "Zero keeps a score, minus infinity hides it.")


@exercise
def masked_weights(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check weights over what may be attended to: scores (..., n_q, n_k) and a boolean mask."""
    answer = Answer("masked_weights", function)
    scores = torch.tensor([1.0, 2.0, 4.0]).log().repeat(3, 1)
    causal = answer(scores=scores, may=reference_mask(3))
    p = causal.tensor(3, 3)
    causal.demand(
        (p.triu(1) == 0).all(),
        "a hidden weight is exactly 0",
        f"the weights above the diagonal are {show(p[0, 1:])} and {show(p[1, 2:])}",
    )
    rows = p.sum(dim=-1)
    causal.demand(near(rows, 1), "what is left sums to 1", f"the rows sum to {show(rows)}")
    causal.demand(
        near(p[1, :2], [1 / 3, 2 / 3]) and near(p[2], [1 / 7, 2 / 7, 4 / 7]),
        "what is left keeps its proportions: row 2 gets 1/3, 2/3 and row 3 gets 1/7, 2/7, 4/7",
        f"came {show(p[1, :2])} and {show(p[2])}",
    )
    may = torch.tensor([[True, True, False], [False, True, True], [True, False, True]])
    outcome = answer(scores=scores, may=may)
    p = outcome.tensor(3, 3)
    outcome.demand(
        near(p, [[1 / 3, 2 / 3, 0], [0, 1 / 3, 2 / 3], [1 / 5, 0, 4 / 5]]),
        "the mask that is handed over decides, causal or not",
        f"came {show(p)}",
    )
    loud = answer(scores=torch.tensor([[0.0, 0.0, 1e6]]), may=may[:1])
    p = loud.tensor(1, 3)
    loud.demand(
        near(p, [[0.5, 0.5, 0.0]]),
        "a hidden score has no say, however large it is: the weights are 1/2, 1/2, 0",
        f"came {show(p)}",
    )
    low = answer(scores=torch.tensor([[-1e12, -1e12, 0.0]]), may=may[:1])
    p = low.tensor(1, 3)
    low.demand(
        near(p, [[0.5, 0.5, 0.0]]),
        "a hidden key weighs 0 even beside very low scores: the weights are 1/2, 1/2, 0",
        f"came {show(p)}",
    )
    many = answer(scores=scores.expand(2, 2, 3, 3).clone(), may=reference_mask(3))
    p = many.tensor(2, 2, 3, 3)
    many.demand(
        near(p.sum(dim=-1), 1) and near(p[:, :, 2], torch.tensor([1, 2, 4]) / 7),
        "each sequence and head is treated alike, along the keys, the last axis",
        f"the rows sum to {show(p.sum(dim=-1))}",
    )
    blind = answer(scores=scores, may=may & torch.tensor([[True], [False], [True]]))
    expected = "a row with no key left gets zero weights, on purpose"
    p = blind.value if isinstance(blind.value, Tensor) else torch.zeros(0)
    blind.demand(p.shape == (3, 3) and bool((p[1] == 0).all()), expected, f"came {show(p)}")
    p = blind.tensor(3, 3)
    blind.demand(near(p[0], [1 / 3, 2 / 3, 0]), "the other rows stay", f"came {show(p)}")
    right("masked_weights", "Hidden is hidden, the rest sums to one, and no row turns into NaN.")


@exercise
def leaks(function: Callable[[Network, Tensor], bool]) -> None:
    """Check a test that says whether an output depends on a later input: x is (B, n, d)."""
    answer = Answer("leaks", function)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 4, generator=generator)
    for network in (honest_layer, honest_stack, each_by_itself, running_mean, one_step_back):
        outcome = answer(network=network, x=x)
        outcome.demand(
            not outcome.truth(),
            f"no alarm: {network.__doc__}",
            "came True, although only an input's own and later outputs depend on it",
        )
    for network in (
        no_mask,
        one_step_ahead,
        wrong_polarity,
        one_careless_layer,
        first_sees_second,
        first_sees_last,
        last_but_one_sees_last,
        faint_mean,
        second_sequence_only,
        last_feature_only,
        open_end,
        not_a_number,
    ):
        outcome = answer(network=network, x=x)
        outcome.demand(
            outcome.truth(), f"an alarm: {network.__doc__}", "came False: the leak went unnoticed"
        )
    right("leaks", "It caught twelve planted leaks and raised no false alarm.")


@exercise
def dependence(function: Callable[[Network, Tensor], Tensor]) -> None:
    """Check a map of which output depends on which input: x (n, d) to boolean (n, n)."""
    answer = Answer("dependence", function)
    generator = torch.Generator().manual_seed(0)
    n = 5
    x = torch.randn(n, 3, generator=generator)
    eye, all_pairs = torch.eye(n, dtype=torch.bool), torch.ones(n, n, dtype=torch.bool)
    first = torch.zeros(n, n, dtype=torch.bool)
    first[:, 0] = True
    for network, depends in (
        (each_by_itself, eye),
        (one_step_back, eye.roll(1, dims=0) & reference_mask(n)),
        (running_mean, reference_mask(n)),
        (no_mask, all_pairs),
        (faint_mean, all_pairs),
        (copies_first, first),
        (opposite_features, eye | eye.flip(0)),
    ):
        outcome = answer(network=network, x=x)
        found = outcome.tensor(n, n, boolean=True)
        happened = f"came {show(found.nonzero().add(1).tolist())} as pairs of output and input"
        if torch.equal(found, depends.T):
            happened += "; outputs (rows) and inputs (columns) have changed places"
        outcome.demand(
            torch.equal(found, depends),
            f"True for exactly the {int(depends.sum())} pairs that depend: {network.__doc__}",
            happened,
        )
    right("dependence", "Rows are outputs, columns inputs, and no pair is missing.")


# Networks with a known flow of information: (..., n, d) to (..., n, d).


def attend(x: Tensor, may: Tensor | None) -> Tensor:
    """Attend from a sequence to itself, and keep what was there."""
    return x + layer(x.shape[-1])(x, mask=may)


@cache
def layer(d_model: int) -> MultiHeadAttention:
    """Make the layer that all networks share."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MultiHeadAttention(d_model, h=1)


def honest_layer(x: Tensor) -> Tensor:
    """one layer with a causal mask"""
    return attend(x, reference_mask(x.shape[-2]))


def honest_stack(x: Tensor) -> Tensor:
    """three layers, each with a causal mask"""
    return honest_layer(honest_layer(honest_layer(x)))


def each_by_itself(x: Tensor) -> Tensor:
    """each output is made from the input at its own position"""
    return x.roll(1, dims=-1) * 2 + x


def running_mean(x: Tensor) -> Tensor:
    """each output is the mean of the inputs so far"""
    count = torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)
    return x.cumsum(dim=-2) / count[:, None]


def one_step_back(x: Tensor) -> Tensor:
    """each output is the input before it, the first is zero"""
    return torch.cat([torch.zeros_like(x[..., :1, :]), x[..., :-1, :]], dim=-2)


def copies_first(x: Tensor) -> Tensor:
    """every output is the first input"""
    return x[..., :1, :] + torch.zeros_like(x)


def opposite_features(x: Tensor) -> Tensor:
    """the first feature comes from the same position, the last from its mirror image"""
    return torch.cat([x[..., :-1], x[..., -1:].flip(-2)], dim=-1)


def no_mask(x: Tensor) -> Tensor:
    """one layer without a mask, so every output sees every input"""
    return attend(x, None)


def one_step_ahead(x: Tensor) -> Tensor:
    """a mask whose diagonal is one place too far to the right"""
    n = x.shape[-2]
    return attend(x, torch.ones(n, n, dtype=torch.bool).tril(1))


def wrong_polarity(x: Tensor) -> Tensor:
    """a causal mask with True and False exchanged"""
    return attend(x, ~reference_mask(x.shape[-2]))


def one_careless_layer(x: Tensor) -> Tensor:
    """three layers, the middle one without a mask"""
    return honest_layer(no_mask(honest_layer(x)))


def first_sees_second(x: Tensor) -> Tensor:
    """only the first output looks ahead, by one place"""
    return spill(honest_layer(x), to=0, source=x[..., 1:2, :].sum(dim=-2))


def first_sees_last(x: Tensor) -> Tensor:
    """only the first output looks ahead, at the last input"""
    return spill(honest_layer(x), to=0, source=x[..., -1, :])


def last_but_one_sees_last(x: Tensor) -> Tensor:
    """only the last output but one looks ahead, by one place"""
    return spill(honest_layer(x), to=-2, source=x[..., -1, :])


def faint_mean(x: Tensor) -> Tensor:
    """a thousandth of the mean over all positions is added to every output"""
    return x + 1e-3 * x.mean(dim=-2, keepdim=True)


def second_sequence_only(x: Tensor) -> Tensor:
    """only the second sequence of the batch is treated without a mask"""
    return torch.cat([honest_layer(x[:1]), no_mask(x[1:])])


def last_feature_only(x: Tensor) -> Tensor:
    """only the last feature looks ahead, by one place"""
    return torch.cat([x[..., :-1], x[..., -1:].roll(-1, dims=-2)], dim=-1)


def open_end(x: Tensor) -> Tensor:
    """the second half of the outputs see each other freely"""
    may, half = reference_mask(x.shape[-2]).clone(), x.shape[-2] // 2
    may[half:, half:] = True
    return attend(x, may)


def not_a_number(x: Tensor) -> Tensor:
    """two layers that see only the future: no key is left for the last row, and all becomes NaN"""
    for _ in range(2):
        scores = (x @ x.mT).masked_fill(reference_mask(x.shape[-2]), -torch.inf)
        x = scores.softmax(dim=-1) @ x
    return x


def spill(out: Tensor, to: int, source: Tensor) -> Tensor:
    """Add a tenth of an input to one position of the output."""
    place = torch.zeros(out.shape[-2], 1, dtype=out.dtype)
    place[to % len(place)] = 0.1
    return out + place * source.unsqueeze(-2)
