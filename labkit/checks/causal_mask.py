"""Lab 2: masks, the weights that they leave, and tests that nothing leaks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from labkit.attention import causal_mask as reference_mask
from labkit.checks.guard import Answer, Outcome, exercise, near, recognise, right, show

INF = float("inf")
Function = Callable[[Tensor], Tensor]
Reach = Callable[[int], Tensor]


@exercise
def causal_mask(function: Callable[[int], Tensor]) -> None:
    """Check the boolean mask that lets a position see itself and its past: n to (n, n)."""
    answer = Answer("causal_mask", function)
    every = (torch.randperm(64, generator=torch.Generator().manual_seed(1)) + 1).tolist()
    for n in (4, 1, 6, 300, *every, 100, 512, 3):
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
        torch.ones(2, 2, dtype=torch.bool),
        torch.zeros(2, 3, dtype=torch.bool),
        *map(tossed, [(9,), (1, 1), (4, 1), (5, 7), (3, 4, 5), (2, 3, 4, 5), (2, 1, 2, 3, 1)]),
        tossed((6, 4)).T,
        tossed((3, 2, 5, 4)).transpose(0, 2),
        reference_mask(12),
        torch.tensor(True),
        torch.tensor(False),
    ):
        outcome = answer(may=may)
        added = outcome.tensor(*may.shape)
        moved, seen = added[may & (added != 0)], added[~may & (added != -INF)]
        outcome.demand(
            len(moved) == 0,
            "0 is added where the mask is True, so that the score stays",
            f"came {show(added)}, with {show(moved[:8])} where the mask is True",
        )
        outcome.demand(
            len(seen) == 0,
            "−∞ is added where the mask is False, so that the weight is exactly 0",
            f"came {show(added)}, with {show(seen[:8])} where the mask is False",
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
    outcome = answer(scores=scores, may=may)
    p = outcome.tensor(3, 3)
    outcome.demand(
        near(p, left_over(scores, may)),
        "the mask that is handed over decides, causal or not",
        f"came {show(p)}{recognise(p, mistakes(scores, may))}",
    )
    for row, shares, because in (
        ([200, 201, 5], [0.2689, 0.7311], "scores may be large, and no number overflows"),
        ([1e4, -1e4, 7], [1, 0], "scores may be large, and no number overflows"),
        ([-1e4, -2e4, -1e5], [1, 0], "the best of low scores takes all the weight"),
        ([0, 0, 1e6], [0.5, 0.5], "a hidden score has no say, however large it is"),
        ([0, 1, 1e8], [0.2689, 0.7311], "a hidden score has no say, however large it is"),
        ([-1e3, -999, 3e38], [0.2689, 0.7311], "a hidden score has no say, however large it is"),
        ([3e38, -3e38, -1e38], [1, 0], "scores may be large, and no number overflows"),
        ([-3e38, -1e38, 3e38], [0, 1], "a hidden key weighs 0 even beside very low scores"),
        ([-2e9, -3e9, 0], [1, 0], "a hidden key weighs 0 even beside very low scores"),
        ([-1e35, -2e35, 7], [1, 0], "a hidden key weighs 0 even beside very low scores"),
    ):
        extreme = answer(scores=torch.tensor([row]).float(), may=may[:1])
        p = extreme.value
        if isinstance(p, Tensor) and p.shape == (1, 3):
            told = f"{because}: the weights are {show([*shares, 0])}"
            extreme.demand(near(p.detach().double(), [[*shares, 0]]), told, f"came {show(p)}")
        extreme.tensor(1, 3)
    blind = answer(scores=scores, may=may & torch.tensor([[True], [False], [True]]))
    expected = "a row with no key left gets zero weights, on purpose"
    p = blind.value if isinstance(blind.value, Tensor) else torch.zeros(0)
    blind.demand(p.shape == (3, 3) and bool((p[1] == 0).all()), expected, f"came {show(p)}")
    p = blind.tensor(3, 3)
    blind.demand(near(p[0], [5 / 7, 2 / 7, 0]), "the other rows stay", f"came {show(p)}")
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
    off = (p.sum(dim=-1) - expected.sum(dim=-1)).abs().max()
    told = f"the sum over {scores.shape[-1]} keys is off by {show(float(off))}"
    outcome.demand(off <= 2e-4, "the weights of many keys, too, sum to 1 or to 0", told)


def left_over(scores: Tensor, may: Tensor) -> Tensor:
    """Compute the weights that a mask leaves, in float64; zeros where it leaves no key."""
    return scores.double().masked_fill(~may, -INF).softmax(dim=-1).masked_fill(~may, 0)


def masked_scores() -> Iterator[tuple[Tensor, Tensor]]:
    """Make scores with masks in which every sequence, head and row differs.

    They are of ordinary size, or on a level of their own in each row, or far apart, or huge.
    """
    generator, tossed = torch.Generator().manual_seed(3), tosses(3)
    for size, of_mask in (
        ((4, 6), (4, 6)),
        ((5, 2), (5, 2)),
        ((3, 4, 6), (3, 4, 6)),
        ((2, 3, 4, 5), (4, 5)),
        ((2, 3, 4, 5), (2, 1, 1, 5)),
        ((2, 3, 5, 4), (3, 5, 4)),
        ((2, 3, 3, 3), (2, 3, 3, 3)),
        ((2, 2, 2, 2), (2, 1, 2, 2)),
        ((4, 3, 1, 5), (4, 1, 1, 5)),
        ((3, 6), (6,)),
        ((3, 2, 5, 4), (5, 1)),
        ((2, 1, 4, 1), (2, 1, 4, 1)),
        ((2, 3, 2, 4, 3), (3, 1, 4, 3)),
    ):
        scores = 3 * torch.randn(size, generator=generator)
        scores[tossed(size) & tossed(size)] = 0  # some are equal
        level = 1_960 * tossed((*size[:-1], 1)) - 980
        for made in (scores, scores + level, 300 * scores, 1e37 * scores):
            yield made if made.abs().max() > 1e6 else made.clamp(-1e3, 1e3), tossed(of_mask)
    yield torch.randn((5, 3), generator=generator).T, tossed((3, 5))
    yield torch.zeros(2, 700), tossed((2, 700))


def tosses(seed: int) -> Callable[[tuple[int, ...]], Tensor]:
    """Make a source of boolean tensors, half of them True."""
    generator = torch.Generator().manual_seed(seed)
    return lambda size: torch.rand(size, generator=generator) < 0.5


def mistakes(scores: Tensor, may: Tensor) -> dict[str, Tensor]:
    """Compute what known mistakes give."""
    p, causal = scores.double().softmax(dim=-1), reference_mask(len(scores))
    known = (
        {} if torch.equal(may, causal) else {"a causal mask was used": left_over(scores, causal)}
    )
    return known | {
        "the mask makes no difference": p,
        "True means may attend, and here it hides": left_over(scores, ~may),
        "weights were hidden after the softmax, not scores before it": p * may,
        "a score of 0 is a score like any other": (scores * may).softmax(dim=-1),
        "the softmax runs over the queries": scores.masked_fill(~may, -INF).softmax(dim=-2),
        "the mask is transposed": left_over(scores, may.mT),
        "open keys share alike, whatever their scores": may / may.sum(dim=-1, keepdim=True),
    }


@exercise
def leaks(function: Callable[[Function, Tensor], bool]) -> None:
    """Check a test that says whether an output depends on a later input: x is (B, n, d)."""
    answer = Answer("leaks", function)
    inputs = [some_inputs(*size) for size in ((2, 4, 6), (3, 5, 4), (1, 7, 5), (3, 12, 4))]
    cases = [(network, x) for network in (*NETWORKS, *BATCHED) for x in inputs]
    cases += [
        (make(words, reach), x)
        for words, reach in (*one_place(4), ("a causal mask", reference_mask))
        for make in (attention, contrast)
        for x in special_inputs(2, 4, 3)
    ]
    cases += [(network, x) for network in (FAINT, APART) for x in special_inputs(2, 4, 3)]
    cases += [
        (mixture(words, reach), some_inputs(b, 2, 1))
        for b in (1, 3)
        for words, reach in (*one_place(2), ("a causal mixture", reference_mask))
    ]
    caught = 0
    for network, x in cases:
        outcome = answer(network=network, x=x)
        later = network.reach(x.shape[1]).triu(1).nonzero().tolist()
        says = outcome.truth()
        outcome.demand(
            bool(later) or not says,
            "False: each output depends on its own input and earlier ones at most",
            "came True, a false alarm",
        )
        outcome.demand(
            says or not later,
            f"True: {network.because or told_pairs(later)}",
            "came False: the leak went unnoticed",
        )
        caught += bool(later)
    right("leaks", f"It caught {caught} leaks and raised no false alarm.")


def one_place(n: int) -> list[tuple[str, Reach]]:
    """List the masks that are causal but for one place of the future."""
    return [
        (f"a causal mask, but output {i} also sees input {j}", look(i, j))
        for i, j in itertools.combinations(range(n), 2)
    ]


def told_pairs(pairs: list[list[int]]) -> str:
    """Tell the first pairs of output and input."""
    told = [f"output {i} depends on input {j}" for i, j in pairs[:2]]
    return ", ".join(told) + (f", and {len(pairs) - 2} more" if len(pairs) > 2 else "")


@exercise
def dependence(function: Callable[[Function, Tensor], Tensor]) -> None:
    """Check a map of which output depends on which input: x (n, d) to boolean (n, n)."""
    answer = Answer("dependence", function)
    tossed = tosses(5)
    cases = [(network, some_inputs(*size)) for size in ((5, 6), (7, 4)) for network in NETWORKS]
    for n in (2, 3, 6, 8):
        cases += [
            (make("any pairs at all", fixed(tossed((n, n)))), x)
            for make in (mixture, contrast)
            for x in (some_inputs(n, 3 + n % 3), *special_inputs(n, 4))
        ]
    cases += [(mixture("a causal mixture", reference_mask), some_inputs(n, 1)) for n in (4, 1)]
    cases += [(FAINT, x) for x in special_inputs(4, 5)]
    cases += [(CARELESS, some_inputs(1, *size)[0]) for size in ((5, 3), (7, 4), (4, 6))]
    for network, x in cases:
        n = len(x)
        depends = network.reach(n)
        outcome = answer(network=network, x=x)
        found = outcome.tensor(n, n, boolean=True)
        outcome.demand(
            torch.equal(found, depends),
            f"True for exactly the {int(depends.sum())} pairs of output and input that depend",
            f"{listed(depends & ~found)} are missing, {listed(found & ~depends)} are too many"
            + ("; rows and columns have changed places" if torch.equal(found, depends.T) else ""),
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


def special_inputs(*size: int) -> list[Tensor]:
    """Make inputs that are all zero, all one, all equal, and some of this."""
    mixed = some_inputs(*size).clone()
    mixed[..., -2, :], mixed[..., -1, :] = mixed[..., 0, :], 0
    equal = mixed[..., :1, :].expand(size).contiguous()
    return [torch.zeros(size), torch.ones(size), equal, mixed]


# Networks with a known flow of information: (..., n, d) to (..., n, d), of any type and smooth.
# They are made of steps that have every kind of derivative.


@dataclass(frozen=True)
class Network:
    """A function of a sequence, its name, and which output depends on which input."""

    words: str
    reach: Reach
    function: Function
    because: str = ""  # why it leaks, where the pairs do not tell

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)

    def __str__(self) -> str:
        return self.words


def fixed(may: Tensor) -> Reach:
    return lambda n: may


def everything(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


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


def late(n: int) -> Tensor:
    return reference_mask(n) | (ahead(n) & (torch.arange(n) >= 9)[:, None])


def mirror(n: int) -> Tensor:
    return itself(n) | itself(n).flip(0)


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


def mix(may: Tensor, x: Tensor) -> Tensor:
    n = len(may)
    return (may * NUMBERS[0, :n, :n]).to(x) @ x


def mixture(words: str, reach: Reach) -> Network:
    """Add up inputs times numbers of both signs."""
    return Network(words, reach, lambda x: mix(reach(x.shape[-2]), x))


def contrast(words: str, reach: Reach) -> Network:
    """Mix contrasts of features: they stay if all features grow alike, and they sum to 0."""
    return Network(
        f"{words}, of contrasts between features",
        reach,
        lambda x: mix(reach(x.shape[-2]), x - x.mean(dim=-1, keepdim=True)),
    )


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


def energy(words: str, reach: Reach) -> Network:
    """Multiply each input by the squares in reach: their signs and order do not matter."""

    def network(x: Tensor) -> Tensor:
        may = reach(x.shape[-2]).to(x)
        return 4 * x * (may @ x.square().mean(dim=-1, keepdim=True))

    return Network(words, reach, network)


def forth_and_back(x: Tensor) -> Tensor:
    """Add a number that depends on all inputs, and take it off again: rounding is left."""
    number = 8 + x.mean(dim=(-2, -1), keepdim=True).tanh()
    return (mix(reference_mask(x.shape[-2]), x) + number) - number


def last_to_last(x: Tensor) -> Tensor:
    """Take the last feature from the mirror image."""
    return torch.cat([x[..., :-1], x[..., -1:].flip(-2)], dim=-1)


def weigh(n: int, *entries: tuple[int, int, float]) -> Tensor:
    """Make a matrix that is the identity but for a few entries (output, input, number)."""
    place = torch.arange(n)
    extra = [((place == i % n)[:, None] & (place == j % n)) * number for i, j, number in entries]
    return torch.stack([torch.eye(n), *extra]).sum(dim=0)


def weighed(words: str, *entries: tuple[int, int, float], plus: float = 0) -> Network:
    return Network(
        words,
        lambda n: weigh(n, *entries) != 0,
        lambda x: weigh(x.shape[-2], *entries).to(x) @ x + plus,
    )


FAINT = weighed("a little of input 1 is added to output 0", (0, 1, 2.5e-4))

APART = weighed("the difference of inputs 1 and 2 is added to output 0", (0, 1, 1), (0, 2, -1))


def feature(source: int, target: int) -> Network:
    """Add one feature of input 1 to one feature of output 0."""

    def network(x: Tensor) -> Tensor:
        features = torch.arange(x.shape[-1])
        later = weigh(x.shape[-2], (0, 1, 1)).triu(1).to(x) @ x[..., source, None]
        return x + later * (features == target % len(features))

    words = f"feature {source} of input 1 is added to feature {target} of output 0"
    return Network(words, lambda n: weigh(n, (0, 1, 1)) != 0, network)


NETWORKS = (
    attention("a layer without a mask", everything),
    attention("a layer with a causal mask", reference_mask),
    attention("a mask whose diagonal is one place too far to the right", ahead),
    mixture("each output is made of its own input", itself),
    attention("a causal mask whose rows and columns are exchanged", future),
    mixture("each output is made of the input before it, the first is zero", before),
    attention(
        "three layers, the middle one without a mask",
        *(reference_mask, everything, reference_mask),
        reach=everything,
    ),
    attention("three layers, each with a causal mask", *3 * [reference_mask]),
    attention("a causal mask, but output 0 also sees input 1", look(0, 1)),
    attention("a causal mask, but output 0 also sees the last input", look(0, -1)),
    mixture("every output is made of input 0", first),
    attention("a causal mask, but the last output but one sees the last input", look(-2, -1)),
    attention("a causal mask, but the second half sees each other freely", open_end),
    mixture("a causal mixture", reference_mask),
    weighed("a little of the last input is taken off output 1", (1, -1, -3e-4)),
    mixture("a causal mixture, but from output 9 on each also sees the next input", late),
    weighed("100 is added to all, and a little of input 1 to output 0", (0, 1, 2.5e-4), plus=100),
    Network(
        "a causal mixture divided by the number of positions",
        reference_mask,
        lambda x: mix(reference_mask(x.shape[-2]), x) / x.shape[-2],
    ),
    Network("a causal mixture, up to rounding", reference_mask, forth_and_back),
    Network("the last feature comes from the mirror image", mirror, last_to_last),
    *(feature(source, target) for source, target in ((-1, 0), (0, -1), (1, 2))),
    contrast("a causal mixture", reference_mask),
    contrast("a mixture without a mask", everything),
    contrast("a causal mixture in which output 1 also sees input 2", look(1, 2)),
    normed("a layer with a causal mask", reference_mask),
    normed("a layer without a mask", everything),
    energy("each input is multiplied by the mean square of all so far", reference_mask),
    energy("each input is multiplied by the mean square of all", everything),
    weighed("the last input is added to output 0 and taken off output 1", (0, -1, 1), (1, -1, -1)),
    weighed("the difference of the last two is added to output 0", (0, -1, 1), (0, -2, -1)),
)


def careless(x: Tensor) -> Tensor:
    n = x.shape[-2]
    opened = (20 * (x[..., :1, :1] - 3)).sigmoid()
    return opened * attend(everything(n), x) + (1 - opened) * attend(reference_mask(n), x)


CARELESS = Network(
    "the mask is forgotten where the first number of a sequence is above 3", everything, careless
)


def faintly_careless(x: Tensor) -> Tensor:
    """Add a little of the last input to the output before, in sequences that begin above 3."""
    opened = (20 * (x[..., :1, :1] - 3)).sigmoid()
    return x + opened * (weigh(x.shape[-2], (-2, -1, 2.5e-4)).triu(1).to(x) @ x)


def not_a_number(x: Tensor) -> Tensor:
    """Attend twice without oneself and the past: the last row has no key."""
    for _ in range(2):
        scores = (x @ x.mT).masked_fill(reference_mask(x.shape[-2]), -INF)
        x = scores.softmax(dim=-1) @ x
    return x


def first_not_a_number(x: Tensor) -> Tensor:
    """Attend to the past without oneself: the first row has no key."""
    may = everything(x.shape[-2]).tril(-1)
    return (x @ x.mT).masked_fill(~may, -INF).softmax(dim=-1) @ x


def filled_with_nan(x: Tensor) -> Tensor:
    """Mix causally, and put NaN in one place of the sequences that begin above 3."""
    n, d = x.shape[-2:]
    place = torch.zeros(n, d, dtype=torch.bool)
    place[(n - 1) // 2, -1] = True
    return torch.where(place & (x[..., :1, :1] > 3), torch.nan, mix(reference_mask(n), x))


# What only a test of a batch is tried on.
BATCHED = (
    CARELESS,
    Network(
        "where a sequence begins above 3, a little of the last input is added to the output before",
        look(-2, -1),
        faintly_careless,
    ),
    Network(
        "two layers that see only the future",
        everything,
        not_a_number,
        "the last row has no key left, and every output becomes NaN",
    ),
    Network(
        "a layer that sees only the past",
        everything,
        first_not_a_number,
        "row 0 has no key left, and output 0 is NaN",
    ),
    Network(
        "a causal mixture, but NaN is filled in where the first number is above 3",
        everything,
        filled_with_nan,
        "one feature of an output before the last is NaN",
    ),
)
