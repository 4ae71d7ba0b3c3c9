"""Lab 2: masks, the weights that they leave, and tests that nothing leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor

from labkit.attention import causal_mask as reference_mask
from labkit.labs.guard import Answer, Outcome, exercise, near, recognise, right, show

INF = float("inf")
SILENT = "a hidden score has no say, however large it is"
Function = Callable[[Tensor], Tensor]
Reach = Callable[[int], Tensor]


@exercise
def causal_mask(function: Callable[[int], Tensor]) -> None:
    """Check the boolean mask that lets a position see itself and its past: n to (n, n)."""
    answer = Answer("causal_mask", function)
    for n in (4, 1, 6, 512):
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
        else:
            happened += f"; {int((~may & reference_mask(n)).sum())} of the past's places are hidden"
        outcome.demand(torch.equal(may, reference_mask(n)), expected, happened)
    right("causal_mask", "Each position sees itself and its past.")


@exercise
def to_additive(function: Callable[[Tensor], Tensor]) -> None:
    """Check the form of a mask that is added to scores: 0 where True, −∞ where False."""
    answer = Answer("to_additive", function)
    odd = torch.tensor([[True, False, True], [False, True, False]])
    tossed = tosses(2)
    for may in (
        reference_mask(3),
        odd,
        odd[:, None],
        torch.zeros(2, 3, dtype=torch.bool),
        tossed((3, 4, 5)),
        tossed((2, 3, 4, 5)),
    ):
        outcome = answer(may=may)
        added = outcome.value
        if isinstance(added, Tensor) and added.shape == may.shape and added.isnan().any():
            happened = f"came {show(added)}; is something multiplied by infinity?"
            raise outcome.complaint("a number in every place", happened)
        added = outcome.tensor(*may.shape)
        told = recognise(
            added,
            {
                "rows without a True became zeros": (may | ~may.any(-1, True)).double().log(),
                "True and False have changed places": (~may).double().log(),
                "rows and columns have changed places": may.mT.double().log(),
            },
        )
        moved, seen = added[may & (added != 0)], added[~may & (added != -INF)]
        outcome.demand(
            len(moved) == 0,
            "0 is added where the mask is True, so that the score stays",
            f"came {show(added)}, with {show(moved[:8])} where the mask is True{told}",
        )
        outcome.demand(
            len(seen) == 0,
            "−∞ is added where the mask is False, so that the weight is exactly 0",
            f"came {show(added)}, with {show(seen[:8])} where the mask is False{told}",
        )
    right("to_additive", "Zero keeps a score, minus infinity hides it.")


@exercise
def masked_weights(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check weights over what may be attended to: scores (..., n_q, n_k) and a boolean mask."""
    answer = Answer("masked_weights", function)
    scores = torch.tensor([[5.0, 2.0, 4.0], [1.0, 2.0, 6.0], [2.0, 5.0, 1.0]]).log()
    causal = answer(scores=scores, may=reference_mask(3))
    p = causal.tensor(3, 3)
    known = recognise(p, mistakes(scores, reference_mask(3)))
    causal.demand(
        (p.triu(1) == 0).all(),
        "a hidden weight is exactly 0",
        f"the weights above the diagonal are {show(p[0, 1:])} and {show(p[1, 2:])}{known}",
    )
    rows = p.sum(dim=-1)
    sums = "what is left sums to 1"
    told = ", ".join(f"{row:.6g}" for row in rows.tolist())
    causal.demand(near(rows, 1), sums, f"the rows sum to {told}{known}")
    causal.demand(
        near(p[1, :2], [1 / 3, 2 / 3]) and near(p[2], [1 / 4, 5 / 8, 1 / 8]),
        "what is left keeps its proportions: row 1 gets 1/3, 2/3 and row 2 gets 1/4, 5/8, 1/8",
        f"came {show(p[1, :2])} and {show(p[2])}{known}",
    )
    may = torch.tensor([[True, True, False], [False, True, True], [True, False, True]])
    outcome, left = answer(scores=scores, may=may), left_over(scores, may)
    p = outcome.tensor(3, 3)
    outcome.demand(
        near(p, left),
        f"this mask, which is not causal, leaves the weights {show(left)}",
        f"came {show(p)}{recognise(p, mistakes(scores, may))}",
    )
    for scores_of_rows, open_keys, shares, because in (
        (
            [[5000, 1000, 5]],
            [0, 1],
            [1, 0, 0],
            "scores may be large and far apart, and no number overflows",
        ),
        (
            [[3, 4, 7], [2000, 2001, 5]],
            [0, 1],
            [0.2689, 0.7311, 0],
            "one row may lie far below another, and each has a largest score of its own",
        ),
        ([[0, 1, 1e12]], [0, 1], [0.2689, 0.7311, 0], SILENT),
        ([[3e38, 1, 0]], [1, 2], [0, 0.7311, 0.2689], SILENT),
        ([[3e38, 7, 3e38]], [0, 2], [0.5, 0, 0.5], "scores may be as large as float32 holds"),
        (
            [[-2e9, -3e9, 0]],
            [0, 1],
            [1, 0, 0],
            "however low the visible scores are, they alone share the weight",
        ),
        ([[-3e38, 7, -4]], [0], [1, 0, 0], "the only key left gets all, however low its score"),
        ([[3e38, -3e38, -1e38]], [1, 2], [0, 0, 1], SILENT),
    ):
        far, may_of_row = torch.tensor(scores_of_rows).float(), torch.zeros(1, 3, dtype=torch.bool)
        may_of_row[:, open_keys] = True
        extreme = answer(scores=far, may=may_of_row)
        p = extreme.value
        if isinstance(p, Tensor) and p.shape == far.shape:
            told = f"{because}: the weights are {show(shares)}"
            p = p.detach().double()
            known = recognise(p, far_mistakes(far, may_of_row))
            extreme.demand(near(p, [shares]), told, f"came {show(p)}{known}")
        extreme.tensor(*far.shape)
    left[1] = 0
    blind = answer(scores=scores, may=may & torch.tensor([[True], [False], [True]]))
    expected = "a row with no key left gets zero weights, on purpose"
    p = blind.value if isinstance(blind.value, Tensor) else torch.zeros(0)
    blind.demand(p.shape == (3, 3) and bool((p[1] == 0).all()), expected, f"came {show(p)}")
    expected = f"beside a row with no key left, the others keep their weights: {show(left)}"
    blind.demand(near(p.detach().double(), left), expected, f"came {show(p)}")
    for scores, may in masked_scores():
        judge_weights(answer(scores=scores, may=may), scores, may)
    right("masked_weights", "Hidden is hidden, the rest sums to one, and no row turns into NaN.")


def judge_weights(outcome: Outcome, scores: Tensor, may: Tensor) -> None:
    """Compare weights with those that a mask leaves, and tell the first row that differs."""
    p, expected = outcome.tensor(*scores.shape), left_over(scores, may)
    wide = may.expand(scores.shape)
    wrong = ~torch.isclose(p, expected, rtol=1e-4, atol=1e-4) | (~wide & (p != 0))
    if wrong.any():
        at = tuple(wrong.any(dim=-1).nonzero()[0].tolist())
        raise outcome.complaint(
            "each sequence, head and query has its own weights, over the last axis: in row "
            f"{show(at)} the scores {show(scores[at])} and the mask {show(wide[at].int())} give "
            f"{show(expected[at])}",
            f"that row came as {show(p[at])}",
        )


def left_over(scores: Tensor, may: Tensor) -> Tensor:
    """Compute the weights that a mask leaves, in float64; zeros where it leaves no key."""
    return scores.double().masked_fill(~may, -INF).softmax(dim=-1).masked_fill(~may, 0)


def far_mistakes(scores: Tensor, may: Tensor) -> dict[str, Tensor]:
    """Compute what known mistakes give where scores are far apart."""
    e = scores.masked_fill(~may, -INF).sub(scores[may.expand_as(scores)].max()).exp()
    known = {
        "scores are cut off, as they come or after something is taken off them, and those beyond "
        "the bound are alike": scores.clamp(-100, 100),
        "what is taken off each score depends on hidden ones": scores - scores.max(),
    }
    told = {words: left_over(far, may) for words, far in known.items()}
    shared = (e / e.sum(-1, keepdim=True)).nan_to_num()
    told["the largest score of all rows is taken off every row"] = shared
    if not may.expand_as(scores).gather(-1, scores.argmax(-1, keepdim=True)).all():
        low = scores[may.expand_as(scores)].max() < -1
        cause = (
            "something lies above the visible scores, in the place of hidden ones or as a bound; "
            "or the row was taken for an empty one"
        )
        counts = (
            "a hidden score still counts: in a maximum, or in the softmax, lowered too little or "
            "not at all"
        )
        told[cause if low else counts] = 0 * e
        told["the hidden score was lowered, but not enough"] = scores.softmax(dim=-1)
    return told


def masked_scores() -> Iterator[tuple[Tensor, Tensor]]:
    """Make scores with masks in which every sequence, head and row differs."""
    generator, tossed = torch.Generator().manual_seed(3), tosses(3)
    for size, of_mask in (
        ((4, 6), (4, 6)),
        ((3, 4, 6), (3, 4, 6)),
        ((2, 3, 4, 5), (4, 5)),
        ((2, 3, 4, 5), (2, 1, 1, 5)),
        ((2, 3, 5, 4), (3, 5, 4)),
    ):
        yield 3 * torch.randn(size, generator=generator), tossed(of_mask)


def tosses(seed: int) -> Callable[[tuple[int, ...]], Tensor]:
    """Make a source of boolean tensors, half of them True."""
    generator = torch.Generator().manual_seed(seed)
    return lambda size: torch.rand(size, generator=generator) < 0.5


def mistakes(scores: Tensor, may: Tensor) -> dict[str, Tensor]:
    """Compute what known mistakes give."""
    p, causal = scores.double().softmax(dim=-1), reference_mask(len(scores))
    known = {
        "a causal mask was used": left_over(scores, causal),
        "a row whose first key is hidden became zeros": left_over(scores, may) * may[:, :1],
    }
    return ({} if torch.equal(may, causal) else known) | {
        "the mask makes no difference": p,
        "True means may attend, and here it hides": left_over(scores, ~may),
        "weights were hidden after the softmax, not scores before it": p * may,
        "a score of 0 is a score like any other": (scores * may).softmax(dim=-1),
        "the softmax runs over the queries": scores.masked_fill(~may, -INF).softmax(dim=-2),
        "bfloat16 has too few digits": left_over(scores.bfloat16().double(), may).bfloat16(),
    }


@exercise
def leaks(function: Callable[[Function, Tensor], bool]) -> None:
    """Check a test that says whether an output depends on a later input: x is (B, n, d)."""
    answer = Answer("leaks", function)
    inputs = [some_inputs(*size) for size in ((2, 4, 6), (3, 5, 4), (1, 7, 5))]
    cases = [*product((*NETWORKS, *BATCHED), inputs)]
    cases += [*alike(2, 3, 60), (WIDE, some_inputs(2, 3, 600)), (ROUGH, some_inputs(1, 6, 600))]
    cases += [(ALONE, some_inputs(3, 5, 40)), *product(SINGLE, inputs)]
    going_on_alike = some_inputs(3, 5, 4).clone()
    going_on_alike[:, 1:] = going_on_alike[0, 1:]
    cases += [(CARELESS, going_on_alike), (TURNED, some_inputs(2, 4, LONGEST))]
    opened, low = some_inputs(2, 5, 6).clone(), some_inputs(3, 7, 40).clone()
    opened[0, 1, 0], low[2, -1, 0] = 8, -6
    cases += [(STEEP, some_inputs(2, 4, 20)), (GATES[0], opened), (LONELY, low)]
    caught = 0

    def mistaken(network: Network, x: Tensor) -> bool:
        leaking = bool(network.reach(x.shape[1]).triu(1).any())
        return answer(network=network, x=x).truth() != leaking

    for network, x in cases:
        outcome = answer(network=replace(network, axes=3), x=x)
        later = network.reach(x.shape[1]).triu(1).nonzero().tolist()
        says = outcome.truth()
        caught += bool(later)
        if says == bool(later):
            continue
        told, why = where(x), network.suspicion(partial(mistaken, x=x))
        outcome.demand(
            not says,
            "False: each output depends on its own input and earlier ones at most",
            f"came True, a false alarm{told}: when this check tried, normal numbers for later "
            f"inputs moved earlier outputs by {moves(network, x).max():.1g} at most, and any move "
            "below 1e-5 is rounding"
            f"{(says and told_swap(mistaken, x)) or network.caution or why}",
        )
        outcome.demand(
            says,
            f"True: {network.because or told_pairs(later)}",
            f"came False{told}: the leak went unnoticed{told_move(network, x)}{why}",
        )
    right("leaks", f"It caught {caught} leaks and raised no false alarm.")


def alike(*size: int) -> list[tuple[Network, Tensor]]:
    """Pair networks with inputs that are all the same number."""
    return [
        (network, torch.full(size, float(x)))
        for x, networks in ALIKE.items()
        for network in networks
    ]


def told_swap(mistaken: Callable[[Network, Tensor], bool], x: Tensor) -> str:
    """Say so where two sound networks and two leaking ones are all answered the other way round."""
    swapped = all(mistaken(network, x) for network in NETWORKS[:4])
    return "; True and False have changed places: a layer without a mask comes False" * swapped


def where(x: Tensor) -> str:
    """Say so where all inputs are the same number."""
    number = x.flatten()[0]
    return f", where every number of x is {show(number.item())}" if (x == number).all() else ""


def moves(network: Network, x: Tensor) -> Tensor:
    """Measure how far later inputs move outputs before them, at most, in each sequence."""
    generator, before, farthest = torch.Generator().manual_seed(5), network(x), torch.zeros(len(x))
    for cut in range(1, x.shape[1]):
        other = torch.randn(x.shape, generator=generator)
        other[:, :cut] = x[:, :cut]
        moved = (network(other) - before)[:, :cut].abs().amax(dim=(1, 2))
        farthest = farthest.maximum(moved)
    return farthest


def told_move(network: Network, x: Tensor) -> str:
    """Tell how far a leak moves outputs, and in which sequence if it is not in all."""
    if network.because:
        return ""
    moved = moves(network, x)
    told = f", though new numbers for later inputs move an earlier output by {moved.max():.1g}"
    alone = (moved > 1e-5).sum() == 1 < len(x)
    return told + (f", in sequence {int(moved.argmax())} alone" if alone else "")


def told_pairs(pairs: list[list[int]]) -> str:
    """Tell the first pairs of output and input."""
    told = [f"output {i} depends on input {j}" for i, j in pairs[:2]]
    return ", ".join(told) + (f", and {len(pairs) - 2} more" if len(pairs) > 2 else "")


@exercise
def dependence(function: Callable[[Function, Tensor], Tensor]) -> None:
    """Check a map of which output depends on which input: x (n, d) to boolean (n, n)."""
    answer = Answer("dependence", function)
    inputs = some_inputs(5, 6), some_inputs(7, 4)
    cases = [(network, x) for x in inputs for network in NETWORKS]
    open_eyed = some_inputs(4, 5).clone()
    open_eyed[0, 0] = 4
    cases += [(CARELESS, open_eyed), *alike(4, 60), (WIDE, some_inputs(3, 600))]
    cases += [(ROUGH, some_inputs(4, 600)), *product(SINGLE, inputs), (QUIET, some_inputs(4, 40))]
    opened = some_inputs(5, 6).clone()
    opened[-1, 0] = 8
    cases += [(TURNED, some_inputs(4, LONGEST)), (STEEP, some_inputs(4, 20))]
    cases += [(GATES[1], opened)]

    def mistaken(network: Network, x: Tensor) -> bool:
        found = answer(network=network, x=x).tensor(len(x), len(x), boolean=True)
        return not torch.equal(found, network.reach(len(x)))

    for network, x in cases:
        n = len(x)
        depends = network.reach(n)
        outcome = answer(network=replace(network, axes=2), x=x)
        found = outcome.tensor(n, n, boolean=True)
        if torch.equal(found, depends):
            continue
        later, earlier = depends.flip(1).int().cummax(1)[0].flip(1), depends.int().cummax(1)[0]
        mistaken_for = {
            "; rows and columns have changed places": depends.T,
            "; that is what depends on an input or on a later one": later.bool(),
            "; that is what depends on an input or on an earlier one": earlier.bool(),
            "; an output need not depend on its own input": depends | itself(n),
        }
        told = [
            w for w, map_ in mistaken_for.items() if torch.equal(found, map_) and not map_.all()
        ]
        maps = [answer(network=other, x=some_inputs(n, 6)).value for other in NETWORKS[:7]]
        if found.any() and all(torch.equal(found, map_) for map_ in maps):
            told = ["; every network gets this map: is network called?"]
        missing, too_many = depends & ~found, found & ~depends
        if not told:
            leaking = bool(depends.triu(1).any())
            if leaking and missing.any():
                told = [network.suspicion(partial(mistaken, x=x))]
            elif too_many.any():
                told = [(NETWORKS[0] if leaking else network).suspicion(partial(mistaken, x=x))]
        outcome.demand(
            False,
            f"True for exactly the {int(depends.sum())} pairs of output and input that depend",
            f"missing: {listed(missing)}; too many: {listed(too_many)}{where(x)}"
            f"{''.join(told[:1])}",
        )
    right("dependence", "Rows are outputs, columns inputs, and no pair is missing.")


def listed(pairs: Tensor) -> str:
    """List the first of the True places."""
    places = [tuple(place) for place in pairs.nonzero().tolist()]
    return (", ".join(map(str, places[:4])) or "none") + (" …" if len(places) > 4 else "")


@cache
def some_inputs(*size: int) -> Tensor:
    """Draw inputs; of a batch only one sequence begins with a number above 3.

    An answer draws with small seeds: it must not draw the same numbers again.
    """
    x = torch.randn(size, generator=torch.Generator().manual_seed(1_000_000 + sum(size)))
    if len(size) == 3:
        x[:, 0, 0] = 1
        x[size[0] // 2, 0, 0] = 4
    return x


# Networks with a known flow of information: (..., n, d) to (..., n, d), of any type and smooth.
# They are made of steps that have every kind of derivative.


@dataclass(frozen=True)
class Network:
    """A function of a sequence, its name, and which output depends on which input."""

    words: str
    reach: Reach
    function: Function
    because: str = ""  # why it leaks, where the pairs do not tell
    caution: str = ""  # what a false alarm about it suggests
    # What a wrong answer suggests: the first words whose probe, if there is one, it is wrong on.
    causes: tuple[tuple[str, Network | None], ...] = ()
    axes: int = 0  # that inputs have, if not any number

    def __call__(self, x: Tensor) -> Tensor:
        if self.axes and x.dim() != self.axes:
            takes = "(n, d)" if self.axes == 2 else "(B, n, d)"
            raise ValueError(f"network takes inputs of shape {takes}, and got {tuple(x.shape)}")
        return self.function(x)

    def suspicion(self, mistaken: Callable[[Network], bool]) -> str:
        """Tell what a wrong answer suggests, by whether it is mistaken about others."""
        sound = not self.reach(4).triu(1).any()
        causes = self.causes or (ROUNDING if sound else ())
        told = (words for words, probe in causes if probe is None or mistaken(probe))
        return next(told, "")

    def __str__(self) -> str:
        return self.words


def everything(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


def nothing(n: int) -> Tensor:
    return torch.zeros(n, n, dtype=torch.bool)


def itself(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.bool)


def before(n: int) -> Tensor:
    return everything(n).tril(-1) & ~everything(n).tril(-2)


def first(n: int) -> Tensor:
    return (torch.arange(n) == 0).expand(n, n)


def ahead(n: int) -> Tensor:
    return everything(n).tril(1)


def future(n: int) -> Tensor:
    return everything(n).triu()


def open_end(n: int) -> Tensor:
    late = torch.arange(n) >= n // 2
    return reference_mask(n) | (late & late[:, None])


def look(i: int, j: int) -> Reach:
    """Let output i also depend on input j; both may count from the end."""

    def reach(n: int) -> Tensor:
        place = torch.arange(n)
        return reference_mask(n) | ((place == i % n)[:, None] & (place == j % n))

    return reach


def numbers(*size: int) -> Tensor:
    """Draw numbers between 0.3 and 1.3 of both signs, always the same."""
    generator = torch.Generator().manual_seed(1)
    sign = torch.randint(2, size, generator=generator) * 2 - 1
    return sign * (0.3 + torch.rand(size, generator=generator))


LONGEST = 64  # sequence or width
NUMBERS = numbers(3, LONGEST, LONGEST)
TURN = torch.linalg.qr(NUMBERS[0])[0]


def mix(may: Tensor, x: Tensor) -> Tensor:
    n = len(may)
    return (may * NUMBERS[0, :n, :n]).to(x) @ x


def mixture(words: str, reach: Reach) -> Network:
    """Add up inputs times numbers of both signs."""
    return Network(words, reach, lambda x: mix(reach(x.shape[-2]), x))


def attend(may: Tensor, x: Tensor) -> Tensor:
    """Attend from a sequence to itself, and keep what was there."""
    d = x.shape[-1]
    q, k, v = (x @ weight.to(x) / d**0.5 for weight in NUMBERS[:, :d, :d])
    scores = (q @ k.mT / d**0.5).masked_fill(~may, -INF)
    return x + scores.softmax(dim=-1) @ v


def attention(words: str, *layers: Reach, reach: Reach | None = None) -> Network:
    """Attend once for each layer; what the last sees counts unless reach is given."""

    def network(x: Tensor) -> Tensor:
        for may in layers:
            x = attend(may(x.shape[-2]), x)
        return x

    return Network(words, reach or layers[-1], network)


def layer_norm(x: Tensor) -> Tensor:
    """Norm each vector, with so small an epsilon that scale and shift leave no trace."""
    x = x - x.mean(dim=-1, keepdim=True)
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-12).sqrt()


def normed(words: str, reach: Reach) -> Network:
    """Attend between two LayerNorms."""

    def network(x: Tensor) -> Tensor:
        return layer_norm(attend(reach(x.shape[-2]), layer_norm(x)))

    return Network(f"{words} between two LayerNorms", reach, network)


def to_come(x: Tensor) -> Tensor:
    """Add up each input and those behind it."""
    return x.flip(-2).cumsum(dim=-2).flip(-2)


def forth_and_back(x: Tensor) -> Tensor:
    """Add up what came so far as all there is less what is to come, and the same of a mean.

    Rounding is left, of the output and of its derivative. Of the first feature only that is left.
    """
    mean = x.mean(dim=-2, keepdim=True)
    tanh_by_hand = 1 - 2 / (1 + (2 * mean).exp())
    later = to_come(x) - x
    y = x.sum(dim=-2, keepdim=True) - later + (mean.tanh() - tanh_by_hand)
    return torch.cat([(y - x.cumsum(dim=-2))[..., :1], y[..., 1:]], dim=-1)


def rough(x: Tensor) -> Tensor:
    """Add up what came so far, by way of numbers near 40, which float32 has in steps of 4e-6."""
    later = to_come(x) - x
    return (x.sum(dim=-2, keepdim=True) + 40) - later - 40


def turned(x: Tensor) -> Tensor:
    """Add up what came, and what is to come, turned and turned back, less itself: rounding."""
    later, turn = to_come(x), TURN.to(x)
    return x.cumsum(dim=-2) + later @ turn @ turn.mT - later


def by_place(x: Tensor) -> Tensor:
    """Scale each input by how far in the sequence it is."""
    n = x.shape[-2]
    return x * (torch.arange(1, n + 1).to(x) / n)[:, None]


def hears(
    words: str,
    i: int,
    j: int,
    heard: Function,
    loud: float = 0.1,
    start: float = 0,
    causes: tuple[tuple[str, Network | None], ...] = (),
) -> Network:
    """Mix causally, and let output i, which begins at start, hear a function of input j, too."""

    def network(x: Tensor) -> Tensor:
        n = x.shape[-2]
        place = torch.zeros(n, 1)
        place[i % n] = 1
        more = start + loud * heard(x[..., [j % n], :])
        return mix(reference_mask(n), x) + place.to(x) * more

    return Network(f"a causal mixture, but {words}", look(i, j), network, causes=causes)


def gated(name: str, k: int) -> Network:
    """Mix causally, and let output 1 hear input 2 if the first number of input k is above 5."""

    def network(x: Tensor) -> Tensor:
        n = x.shape[-2]
        place = torch.zeros(n, 1)
        place[1] = 1
        opened = torch.nn.functional.softplus(x[..., [k], :1] - 5, beta=20)
        return mix(reference_mask(n), x) + place.to(x) * opened * x[..., [2], :]

    return Network(
        f"a causal mixture, but output 1 hears input 2 where {name} begins with a number above 5",
        lambda n: look(1, 2)(n) | look(1, k)(n),
        network,
        causes=(("; is each input put back before the next one is replaced?", None),),
    )


def one_feature(feature: int) -> Function:
    """Keep one feature, which may count from the end."""

    def keep(x: Tensor) -> Tensor:
        kept = torch.zeros(x.shape[-1])
        kept[feature] = 1
        return x * kept.to(x)

    return keep


def next_feature(x: Tensor) -> Tensor:
    return x.roll(1, dims=-1)


def beyond_2(x: Tensor) -> Tensor:
    """Give x + 2 where x is negative and 0 where it is positive, smoothly."""
    return (x + 2) * (-40 * (x + 0.5)).sigmoid()


def unheard(heard: Function) -> Network:
    """Give a number for each feature, and of all inputs so little that it passes for rounding."""
    return Network(
        "rounding", nothing, lambda x: heard(x.sum(dim=-2, keepdim=True)) + torch.zeros_like(x)
    )


def halves(total: Tensor) -> Tensor:
    """Give numbers halfway between two of two to five decimals, up to rounding."""
    decimals = 2 + torch.arange(total.shape[-1]) % 4
    return 0.5 * 0.1 ** decimals.to(total) + 4e-6 * total.sin()


ROUNDING: tuple[tuple[str, Network | None], ...] = (
    (
        "; 0 times NaN or infinity is NaN: are the new inputs finite?",
        unheard(lambda total: 1 + 0 * total),
    ),
    (
        "; each number is rounded: is the bar below 1e-5, or a norm or sum taken?",
        unheard(lambda total: 1 + 4e-6 * total.sin()),
    ),
    (
        "; beside an output near 0 a relative tolerance is none",
        unheard(lambda total: 2e-6 * (1.2 + total.sin())),
    ),
    ("; that is rounding, and close numbers can be rounded to different ones", unheard(halves)),
    (
        "; rounding grows with the numbers that are put in",
        unheard(lambda total: 2e-7 * total),
    ),
)


def faint(x: Tensor) -> Tensor:
    """Let only output 0 hear anything: input 1, a little."""
    place = torch.zeros(x.shape[-2], 1)
    place[0] = 1.5e-4
    return place.to(x) * x[..., [1], :]


CANCEL = "; outputs or derivatives added over features, with their signs, cancel"
FIXED = "; a LayerNorm forgets what all features share, and how long a vector is"
SHARED = "; what all features have in common comes to nothing here"
ZERO = "; 0 in place of 0 changes nothing, and any multiple of 0 is 0"
ONE_SIDE = "; normal numbers are all on one side of x, so that the output moves in one direction"
LOW = "; a move of 1e-4 counts: is the bar too high, the change too small, or a mean taken?"
FAINT = Network("faint", lambda n: look(0, 1)(n) & ~reference_mask(n), faint)
OPPOSED = hears(
    "feature 0 of input 1 moves features 0 and 1 of output 0 as far, in opposite directions",
    *(0, 1, lambda x: one_feature(0)(x) - one_feature(0)(x).roll(1, dims=-1)),
)
ACROSS = hears("output 0 hears the feature before each of input 1", 0, 1, next_feature)
WIDE = hears(
    "five of many features of output 0 also see the last input a little",
    0,
    -1,
    lambda x: x * (torch.arange(x.shape[-1]) >= x.shape[-1] - 5).to(x),
    5e-4,
    causes=(
        (LOW, FAINT),
        ("; a mean over all features is smaller than what five of them do", None),
    ),
)
TURNED = Network("a causal sum, with rounding in each derivative", reference_mask, turned)
ROUGH = Network("a causal sum, with rounding in each of many features", reference_mask, rough)
QUIET = hears(
    "output 0 hears input 2 a little",
    *(0, 2, lambda x: next_feature(2 * x).tanh(), 6e-5),
    causes=((LOW, None),),
)
GROWS: tuple[tuple[str, Network | None], ...] = (
    ("; a bar that grows with outputs, or with other moves or derivatives, is too high", None),
)
STEEP = Network(
    "output i is 100 times input i, but output 0 also hears input 1 a little",
    lambda n: itself(n) | FAINT.reach(n),
    lambda x: 100 * x + 2 * faint(x),
    causes=GROWS,
)
LONELY = hears(
    "one feature of output -2 also hears a little whether that of input -1 is above -6",
    *(-2, -1, lambda x: one_feature(0)((20 * (x + 6)).tanh()), 1.2e-4),
    causes=((LOW, None),),
)
GATES = gated("input 1", 1), gated("the last input", -1)

NETWORKS = (
    Network(
        "each output is its own input",
        itself,
        lambda x: 1.0 * x,
        caution="; are outputs compared whose own inputs differ?",
    ),
    attention("a layer without a mask", everything),
    attention("a layer with a causal mask", reference_mask),
    attention("a mask whose diagonal is one place too far to the right", ahead),
    attention("a causal mask whose rows and columns are exchanged", future),
    mixture("each output is made of the input before it, the first is zero", before),
    attention(
        "three layers, the middle one without a mask",
        *(reference_mask, everything, reference_mask),
        reach=everything,
    ),
    attention("three layers, each with a causal mask", *3 * [reference_mask]),
    replace(
        attention("a causal mask, but output 0 also sees input 1", look(0, 1)),
        causes=(
            ("; only input 1 shows it: is it replaced, and is its verdict kept to the end?", None),
        ),
    ),
    replace(
        attention("a causal mask, but output 0 also sees the last input", look(0, -1)),
        causes=(("; outputs may depend on inputs far behind them, not on the next alone", None),),
    ),
    mixture("every output is made of input 0", first),
    attention("a causal mask, but the last output but one sees the last input", look(-2, -1)),
    attention("a causal mask, but the second half sees each other freely", open_end),
    mixture("a causal mixture", reference_mask),
    Network(
        "a causal sum, up to rounding; its first feature is 0, up to rounding",
        reference_mask,
        forth_and_back,
    ),
    hears(
        "output 0 is 100 more, and each of its features also hears the feature before it of "
        "input 1 a little",
        *(0, 1, next_feature, 3e-4, 100),
        causes=(
            ("; any feature may depend on any other, not on the same one alone", ACROSS),
            (LOW, FAINT),
            *GROWS,
        ),
    ),
    Network(
        "output i of n is input i times (i + 1)/n",
        itself,
        by_place,
        caution="; are later inputs left out, not replaced?",
    ),
    replace(
        normed("a layer without a mask", everything), causes=((CANCEL, OPPOSED), (FIXED, None))
    ),
    normed("a layer with a causal mask", reference_mask),
)

# Tried last, as by chance these move in one direction only.
SINGLE = (
    hears("feature 0 of output 1 hears that of input 2", 1, 2, one_feature(0), 3),
    hears("the last feature of output -2 hears that of input -1", -2, -1, one_feature(-1), 3),
)

# What is also tried on inputs that are all the same number.
PLAIN, NORMED = NETWORKS[1:3], NETWORKS[-2:]
HEARD = hears("output 0 hears input 1", 0, 1, lambda x: x, causes=((ONE_SIDE, None),))
ALIKE = {
    1: (
        *PLAIN,
        hears(
            "output 0 hears the square of input 1",
            *(0, 1, torch.square),
            causes=(("; a square does not tell 1 from -1", None),),
        ),
    ),
    0: (
        *(replace(PLAIN[0], causes=((ZERO, None),)), PLAIN[1], *NORMED),
        hears(
            "output 0 hears how far features of input 1 are apart",
            *(0, 1, lambda x: x - next_feature(x)),
            causes=((CANCEL, OPPOSED), (SHARED, None)),
        ),
    ),
    6: (HEARD,),
    -6: (HEARD,),
    -2: (hears("output 0 hears input 1 where that is below -0.5", 0, 1, beyond_2),),
    2: (hears("output 0 hears input 1 where that is above 0.5", 0, 1, lambda x: beyond_2(-x)),),
}


def careless(x: Tensor) -> Tensor:
    n = x.shape[-2]
    opened = (20 * (x[..., :1, :1] - 3)).sigmoid()
    return opened * attend(everything(n), x) + (1 - opened) * attend(reference_mask(n), x)


CARELESS = Network(
    "the mask is forgotten where the first number of a sequence is above 3", everything, careless
)

ALONE = Network(
    f"{QUIET}, in a sequence whose first number is above 3",
    look(0, 2),
    lambda x: torch.where(x[..., :1, :1] > 3, QUIET(x), mix(reference_mask(x.shape[-2]), x)),
    causes=QUIET.causes,
)


def first_not_a_number(x: Tensor) -> Tensor:
    """Attend to the past without oneself: the first row has no key."""
    may = everything(x.shape[-2]).tril(-1)
    return (x @ x.mT).masked_fill(~may, -INF).softmax(dim=-1) @ x


def last_not_a_number(x: Tensor) -> Tensor:
    """Mix causally, and lose the last number of a sequence that begins above 3."""
    lost = torch.zeros(x.shape[-2:])
    lost[-1, -1] = 1
    return mix(reference_mask(x.shape[-2]), x).where(lost.to(x) * x[..., :1, :1] < 3, torch.nan)


# What only a test of a batch is tried on.
BATCHED = (
    CARELESS,
    Network(
        "a layer that sees only the past",
        everything,
        first_not_a_number,
        "row 0 has no key left, and output 0 is NaN",
    ),
    Network(
        "a causal mixture with NaN in it",
        everything,
        last_not_a_number,
        "the last feature of the last output is NaN in one sequence",
    ),
)
