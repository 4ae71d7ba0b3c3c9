"""Lab 1: how far apart dot products lie, and what the softmax makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.labs.guard import Answer, NotYet, Outcome, exercise, near, recognise, right, show
from labkit.softmax import softmax_jacobian

KEYS, BOUND, DRAWS = 10, 0.30, 2_000
WIDTHS = (8, 64, 512, 4096)
# Widths and bounds, and how far from the truth a share of 2,000 draws may come out.
TRIED = ((3, 0.41), (64, 0.3), (1, 0.3), (17, 0.279))
BY_CHANCE = 0.05
THOUSANDTH = 1e-3  # how far off a number may be, relative to itself
MILLIONTH = 1e-6  # how far off a deviation may be, relative to the largest score
SPREAD_OF_LOG = math.pi**2 / 8  # the variance of ln |x|, for a standard normal x
KURTOSIS = 3  # the mean of x^4, for standard normal x
FAR = 6.5  # about 55 of 120,000 products of two normal numbers are farther than that from 0
TINY = 1e-30  # a weight below it may come as 0


@exercise
def draw_scores(function: Callable[[int, int, int], Tensor]) -> None:
    """Check scores of random queries against random keys: (d_k, keys, draws) to (draws, keys)."""
    answer = Answer("draw_scores", function)
    for d_k, keys, draws in ((4, 3, 2), (2, 5, 1), (3, 1, 4), (1, 2, 6), (5, 1, 1), (1, 1, 1)):
        answer(d_k=d_k, keys=keys, draws=draws).tensor(draws, keys)
    outcomes = [answer(d_k=d_k, keys=keys, draws=6_007) for d_k, keys in ((20, 12), (2, 3))]
    scores = outcomes[0].tensor(6_007, 12)
    outcomes[0].demand(
        scores.std(dim=0).max() > 1e-6,
        "the draws differ, so their scores do",
        "all draws have the same scores, as if one draw were repeated",
    )
    for outcome in outcomes:
        expect_moments(outcome, 4)
    steps = scores.diff(dim=1).sign().mean().item()
    outcomes[0].demand(
        abs(steps) < 0.2,
        "the keys of a draw come in any order, so half of its scores are above the one before",
        f"{50 + 50 * steps:.0f} % are, as if each row were sorted",
    )
    alike = torch.corrcoef(scores.T).nan_to_num().fill_diagonal_(0).abs()
    one, other = divmod(int(alike.argmax()), len(alike))
    outcomes[0].demand(
        alike.max() < 0.95,
        "the keys of one draw differ, so its scores do",
        f"the scores of keys {one} and {other} go together in all draws, as if the keys were alike",
    )
    leaves_the_seed(function)
    # Draws that share a query or keys miss the variance by chance: name the cause first.
    own_query_and_keys(function)
    expect_no_round(outcomes[0], scores)
    expect_normal(answer)
    for outcome in outcomes:
        expect_moments(outcome, 1.1)
    right("draw_scores", "Their variance is d_k, and each draw has its own query and keys.")


def expect_no_round(outcome: Outcome, scores: Tensor) -> None:
    """Demand that queries do not come round: their length would come back in the scores' size."""
    size = scores.square().mean(dim=1).clamp(min=1e-30).log()
    size, draws = (size - size.mean()) / size.std(), len(size)
    # How sizes go together that lie so many draws apart. The zeros keep the end from the beginning.
    together = torch.fft.irfft(torch.fft.rfft(size, n=2 * draws).abs().square())[: draws // 2]
    apart = int(together[1:].argmax()) + 1
    outcome.demand(
        together[apart] < 0.12 * draws,
        "every draw has a query of its own, however many draws there are",
        f"scores that lie {apart} draws apart are large and small together, as if a few queries "
        "were used again and again",
    )


def expect_moments(outcome: Outcome, times: float) -> None:
    """Demand scores of mean 0, and a variance of d_k but for a factor."""
    d_k, keys, draws = outcome.arguments.values()
    scores = outcome.tensor(draws, keys)
    mean, variance = scores.mean().item(), scores.var().item()
    outcome.demand(
        abs(mean) < 0.1 * times * d_k**0.5,
        "the mean of the scores is near 0, because the entries have mean 0",
        f"it is {mean:.2f}"
        + ", as if the entries lay evenly between 0 and 1" * near_by(mean, d_k / 4)
        + ", as if the query were one of the keys" * near_by(scores.mean(dim=0).max().item(), d_k),
    )
    told = {
        1.0: ", as if they were divided by √d_k already, or drawn without a dot product, or the "
        "vectors of a kind had one length",
        1 / d_k: ", as if the products were averaged, or the vectors had length 1",
    }
    cause = next((words for value, words in told.items() if near_by(variance, value)), "")
    outcome.demand(
        d_k / times < variance < d_k * times,
        "the variance of the scores is near d_k, because d_k products of variance 1 are added",
        f"it is {show(variance)}{cause}",
    )


def near_by(drawn: float, expected: float) -> bool:
    """Say whether a number that depends on chance comes close to another."""
    return abs(drawn - expected) < 0.1 * expected


def leaves_the_seed(function: Callable[[int, int, int], Tensor]) -> None:
    """Demand other scores from a second call, and the same ones after the same seed."""

    def thrice(d_k: int, keys: int, draws: int) -> Tensor:
        calls = []
        for seeded in (True, False, True):
            if seeded:
                torch.manual_seed(7)
            calls.append(function(d_k, keys, draws))
        return torch.stack(calls)

    outcome = Answer("draw_scores", thrice)(d_k=3, keys=4, draws=5)
    first, second, seeded_again = outcome.tensor(3, 5, 4)
    outcome.demand(
        not near(first, second),
        "a second call draws other numbers",
        "it gave the same ones; leave the seed to whoever calls the function",
    )
    outcome.demand(
        near(first, seeded_again),
        "after the same torch.manual_seed come the same numbers",
        "other ones came; draw with PyTorch's generator, and leave its seed alone",
    )


def own_query_and_keys(function: Callable[[int, int, int], Tensor]) -> None:
    """Tell shared queries and keys from fresh ones, by how the scores of many calls vary together.

    A score of width 1 is a product, so its logarithm is one of the query plus one of the key.
    """

    def many(d_k: int, keys: int, draws: int, calls: int) -> Tensor:
        return torch.stack([function(d_k, keys, draws) for _ in range(calls)])

    keys, draws, calls = 3, 12, 1_500
    outcome = Answer("draw_scores", many)(d_k=1, keys=keys, draws=draws, calls=calls)
    scores = outcome.tensor(calls, draws, keys).flatten(1)
    draw, key = torch.arange(draws).repeat_interleave(keys), torch.arange(keys).repeat(draws)
    same_draw, same_key = draw[:, None] == draw, key[:, None] == key
    ratios = scores.abs().view(calls, draws, keys).sort(dim=2).values
    ratios = ratios / ratios[..., -1:].clamp(min=1e-30)
    zeros = (scores == 0).double().mean().item()
    outcome.demand(
        zeros < 0.001,
        "an entry from the normal distribution is hardly ever exactly 0, nor is a score",
        f"{100 * zeros:.2g} % of the scores are exactly 0; are entries rounded, or left out?",
    )
    outcome.demand(
        ratios.std(dim=1).mean() > 0.01 or ratios.std() < 0.01,
        "every draw has keys of its own",
        "the scores of all draws are in the same ratios, as if all had one set of keys",
    )
    together = torch.cov(scores.abs().clamp(min=1e-30).log().T) / SPREAD_OF_LOG
    number = torch.arange(draws * keys)
    reshaped = (number[:, None] - number) % draws == 0  # one query, if (keys, draws) was reshaped
    outcome.demand(
        together[reshaped].min() < 0.6 or together[~reshaped].abs().max() > 0.4,
        "the scores of a row are those of one query",
        "a row mixes scores of several queries, as if a tensor of shape (keys, draws) was reshaped "
        "to (draws, keys), which moves no number, and not transposed",
    )
    outcome.demand(
        together[~same_draw & ~same_key].abs().max() < 0.4,
        "every draw has a query of its own",
        "the scores of several draws go up and down together, as if they shared a query",
    )
    outcome.demand(
        together[~same_draw & same_key].abs().max() < 0.4,
        "every draw has keys of its own",
        "keys of the same number go up and down together in several draws, as if these shared them",
    )
    outcome.demand(
        together[same_draw & ~same_key].min() > 0.6,
        "all keys of a draw meet the same query",
        "the scores of a draw have little in common, as if each key had a query of its own, or all "
        "queries one length",
    )


def expect_normal(answer: Answer) -> None:
    """Demand normal entries, of keys and of queries, by their kurtosis.

    Scores of width 1 are keys times their query. A row that is divided by its root mean square
    tells of the keys alone; the mean square of a row tells of its query.
    """
    keys, draws = 8, 15_000
    outcome = answer(d_k=1, keys=keys, draws=draws)
    squares = outcome.tensor(draws, keys).square()
    size, more = squares.mean(dim=1).clamp(min=1e-30), (keys + 2) / keys
    of_keys = more * (squares.square().mean(dim=1) / size.square()).mean().item()
    of_queries = size.square().mean().item() / size.mean().item() ** 2 / more
    # With normal entries these scatter about 3 by 0.008, and by 0.07, the second mostly upward.
    for what, where, kurtosis, low, high in (
        ("keys", "within a draw", of_keys, 2.9, 3.1),
        ("queries", "over all draws", of_queries, 2.6, 4),
    ):
        outcome.demand(
            low < kurtosis < high,
            f"the entries of {what} are normal: a measure of how often they are far from 0, the "
            f"kurtosis {where}, is then near {KURTOSIS}",
            f"it is {kurtosis:.3g}, as if they had another distribution, with "
            f"{'fewer' if kurtosis < KURTOSIS else 'more'} entries far from 0",
        )
    largest = squares.max().item() ** 0.5
    outcome.demand(
        largest > FAR,
        f"of {squares.numel():,} products of two entries some are more than {FAR:g} away from 0: a "
        "normal distribution has no end",
        f"the largest is {largest:.2f} away, as if entries far from 0 were cut off or drawn again",
    )


@exercise
def weights(function: Callable[[Tensor, float], Tensor]) -> None:
    """Check the softmax of scaled scores: (draws, keys) and a scale to (draws, keys)."""
    answer = Answer("weights", function)
    scores = torch.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 1.0]]).log()
    plain = answer(scores=scores, scale=1.0)
    p = plain.tensor(2, 3)
    rows = p.sum(dim=1)
    hint = "; each column does" if near(p.sum(dim=0), 1) else ""
    plain.demand(
        near(rows, 1, THOUSANDTH), "each row sums to 1", f"the sums are {show(rows)}{hint}"
    )
    plain.demand(
        near(p[0], [1 / 7, 2 / 7, 4 / 7], THOUSANDTH),
        "the scores ln 1, ln 2, ln 4 get weights in the ratio 1 : 2 : 4",
        f"came {show(p[0])}",
    )
    double = answer(scores=scores, scale=2.0)
    p = double.tensor(2, 3)
    double.demand(
        near(p[0], [1 / 21, 4 / 21, 16 / 21], THOUSANDTH),
        "the scores are multiplied by the scale, so a gap of ln 2 becomes 2 ln 2, a ratio of 4",
        f"the ratio is {show(p[0, 1] / p[0, 0])}, and the first row sums to {show(p[0].sum())}",
    )
    nothing = answer(scores=scores, scale=0.0)
    p = nothing.tensor(2, 3)
    nothing.demand(
        near(p, 1 / 3, THOUSANDTH), "with the scale 0 all weights are equal", f"came {show(p)}"
    )
    large = answer(scores=torch.tensor([[1000.0, 1000.0, -1000.0]]), scale=1.0)
    expect_no_nan(large, torch.tensor([[1000.0, 1000.0, -1000.0]]), 1.0)
    p = large.tensor(1, 3)
    large.demand(
        near(p, [[0.5, 0.5, 0.0]], THOUSANDTH),
        "large scores give 1/2, 1/2, 0 as well",
        f"came {show(p)}",
    )
    of_one_key = torch.tensor([[0.4], [-3.0], [700.0], [5.0]])
    for scores, scale in ((of_one_key, 0.7), *scores_of_all_kinds()):
        outcome = answer(scores=scores, scale=scale)
        expect_no_nan(outcome, scores, scale)
        p, expected = outcome.tensor(*scores.shape), (scores.double() * scale).softmax(dim=1)
        wrong = ~torch.isclose(p, expected, rtol=THOUSANDTH, atol=TINY)
        off = ((p.clamp(TINY).log() - expected.clamp(TINY).log()).abs() * wrong).argmax()
        row, column = divmod(int(off), scores.shape[1])
        due, came = expected[row, column], p[row, column]
        true = (expected[row].max() / due).log()
        gap = (p[row].max() / came.clamp(TINY)).log()
        doubt = "are scores cut off, or is a small number added to exponentials or weights?"
        cut = (
            f", as if this scaled score lay {gap:.0f} below the largest of its row, and not "
            f"{true:.0f}; {doubt}"
        )
        if came <= TINY or gap >= true - 1:
            close = (p - expected).abs().max() < THOUSANDTH
            cut = "; all are close: are they rounded, or in half precision?" if close else ""
        outcome.demand(
            not wrong.any(),
            "the softmax of each row by itself, of large, small and negative scores alike: "
            f"{f'the weight {due:.5g}' if due > TINY else 'a weight below 1e-30'} in row {row}, "
            f"column {column} (both count from 0)",
            f"came {came:.5g} there{cut}",
        )
    right("weights", "Rows sum to one, the scale counts, and large scores do no harm.")


def expect_no_nan(outcome: Outcome, scores: Tensor, scale: float) -> None:
    """Say what NaN comes from, where the scores were shifted by too much or too little."""
    p, scaled = outcome.value, scores * scale
    if isinstance(p, Tensor) and p.shape == scores.shape and p.isnan().any():
        shifts = {
            "as if rows were shifted by their score of largest size": scaled.abs().amax(1)[:, None],
            "as if all rows were shifted by the largest score of all": scaled.max(),
            "as if rows were shifted by their largest score before scaling": scores.amax(1)[
                :, None
            ],
            "as if scores were not shifted, or by too little, so exponentials overflow": 0 * scaled,
        }
        of_shifts = {told: (scaled - shift).exp() for told, shift in shifts.items()}
        by_mistake = {told: e / e.sum(dim=1, keepdim=True) for told, e in of_shifts.items()}
        told = recognise(
            p.detach().double().nan_to_num(-1),
            {told: mistaken.double().nan_to_num(-1) for told, mistaken in by_mistake.items()},
        )
        happened = f"{int(p.isnan().sum())} of {p.numel()} are NaN{told}"
        raise outcome.complaint("a number in every place", happened)


def scores_of_all_kinds() -> Iterator[tuple[Tensor, float]]:
    """Make scores of many shapes and of sizes up to 4,000, each with a scale."""
    generator = torch.Generator().manual_seed(0)
    for draws, keys, spread, scale in (
        (5, 3, 1.0, 1.0),
        (3, 7, 4.0, 0.3),
        (1, 6, 1.0, 3.0),
        (2, 5, 300.0, 1.7),
        (7, 40, 300.0, 512**-0.5),
    ):
        yield spread * torch.randn(draws, keys, generator=generator), scale
    # Rows far apart, so that none can be shifted by another's largest score.
    far = torch.tensor([[2000.0], [-3990.0], [100.0]])
    yield far + torch.randn(3, 4, generator=generator), 1.0


@exercise
def report(function: Callable[[Tensor, float], tuple[Tensor, Tensor]]) -> None:
    """Check the deviation of scaled scores and the largest weight: each (draws,)."""
    answer = Answer("report", function)
    scores = torch.tensor([[1.0, 2.0, 4.0, 1.0], [3.0, 1.0, 1.0, 1.0], [5.0, 5.0, 5.0, 5.0]]).log()
    for scale in (1.0, 0.5):
        outcome, std, peak = deviation_and_largest(answer, scores, scale)
        scaled = scores.double() * scale
        swapped = near(peak, scaled.std(dim=1)) and near(std, scaled.softmax(dim=1).amax(dim=1))
        outcome.demand(
            not swapped,
            "the deviation is the first result, the largest weight the second",
            "the two have changed places",
        )
        outcome.demand(
            abs(std[2]) < MILLIONTH,
            "the third row's scores are equal, so its deviation is 0",
            f"the third number of the first result is {std[2]:.2g}",
        )
        expect_deviation(outcome, std, scores.double(), scale)
        outcome.demand(
            ((peak > 0) & (peak <= 1 + THOUSANDTH)).all() and near(peak[2], 0.25, THOUSANDTH),
            "a largest weight lies between 0 and 1, and is 1/4 for four equal scores",
            f"the second result is {show(peak)}",
        )
        expect_largest(outcome, peak, scores.double(), scale)
    for scores, scale in scores_of_all_kinds():
        outcome, std, peak = deviation_and_largest(answer, scores, scale)
        expect_deviation(outcome, std, scores.double(), scale)
        expect_largest(outcome, peak, scores.double(), scale)
    right("report", "Deviation and largest weight, row by row.")


def deviation_and_largest(
    answer: Answer, scores: Tensor, scale: float
) -> tuple[Outcome, Tensor, Tensor]:
    """Call an answer and take its two results apart."""
    outcome = answer(scores=scores, scale=scale)
    spread, largest = outcome.pair("deviation", "largest")
    return outcome, spread.tensor(len(scores)), largest.tensor(len(scores))


def expect_deviation(outcome: Outcome, std: Tensor, scores: Tensor, scale: float) -> None:
    """Demand the sample deviation of the scaled scores, and name the usual confusions."""
    scaled = scores * scale
    wrong = recognise(
        std,
        {
            "that is the variance": scaled.var(dim=1),
            "that has the divisor keys, not keys − 1": scaled.std(dim=1, correction=0),
            "that is the deviation before scaling": scores.std(dim=1),
            "that is scaled twice": scaled.std(dim=1) * scale,
            "that is the deviation of the weights": scaled.softmax(dim=1).std(dim=1),
        },
    )
    expected, size = scaled.std(dim=1), scaled.abs().amax(dim=1)
    off = (std - expected).abs() > THOUSANDTH * expected + MILLIONTH * size
    if off.any() and (size > 100 * expected)[off].all():
        wrong = "; if that is a difference of squares, it cancels: subtract the mean first"
    outcome.demand(
        not off.any(),
        "the first result is the deviation of each row's scaled scores, divisor keys − 1: "
        f"{digits(expected)}",
        f"came {digits(std)}{wrong}",
    )


def expect_largest(outcome: Outcome, peak: Tensor, scores: Tensor, scale: float) -> None:
    """Demand the largest weight of each row."""
    p = (scores * scale).softmax(dim=1)
    mistakes = {
        "that is without the scale": scores.softmax(dim=1).amax(dim=1),
        "that is with the scale applied twice": (scores * scale**2).softmax(dim=1).amax(dim=1),
        "that is the first weight of each row": p[:, 0],
    }
    expected = p.amax(dim=1)
    outcome.demand(
        ((peak - expected).abs() <= THOUSANDTH * expected).all(),
        "the second result is the largest weight of each row, with the scale in the softmax: "
        f"{digits(expected)}",
        f"came {digits(peak)}{recognise(peak, mistakes)}",
    )


def digits(x: Tensor) -> str:
    """Write numbers so that a thousandth of each is seen."""
    return ", ".join(f"{number:.4g}" for number in x.tolist())


@exercise
def jacobian_norm(function: Callable[[Tensor], Tensor]) -> None:
    """Check the Frobenius norm of the softmax's Jacobian: (draws, keys) to (draws,)."""
    answer = Answer("jacobian_norm", function)
    p = torch.tensor([[0.1, 0.3, 0.6], [0.2, 0.35, 0.45]])
    outcome, expected = answer(p=p), softmax_jacobian(p.double()).norm(dim=(1, 2))
    norm = norms_of(outcome)
    outcome.demand(
        near(norm, expected, THOUSANDTH),
        f"the norms are {digits(expected)}",
        f"came {digits(norm)}{recognise(norm, norms_by_mistake(p.double()))}",
    )
    saturated = answer(p=torch.tensor([[1.0, 0.0, 0.0], [0.999999, 1e-6, 0.0]]))
    norm = norms_of(saturated)
    saturated.demand(
        norm.abs().max() < THOUSANDTH,
        "a row that gives one key all the weight passes nothing on: its norm is 0",
        f"came {show(norm)}",
    )
    for p in weights_of_all_kinds():
        outcome = answer(p=p)
        norm, expected = norms_of(outcome), softmax_jacobian(p.double()).norm(dim=(1, 2))
        off = (norm - expected).abs().argmax()
        outcome.demand(
            (norm - expected).abs().max() < THOUSANDTH,
            "every entry of the Jacobian counts once, squared, whatever the weights are: "
            f"{show(expected[off])} for row {off}, whose weights are {show(p[off])}",
            f"came {show(norm[off])}",
        )
    right("jacobian_norm", "A half-and-half row passes on most, a saturated one nothing.")


def norms_of(outcome: Outcome) -> Tensor:
    """Take the norms; where one is NaN, show the weights of its row."""
    norm, p = outcome.value, outcome.arguments["p"]
    if isinstance(norm, Tensor) and norm.shape == p.shape[:1] and norm.isnan().any():
        row = int(norm.isnan().nonzero()[0])
        happened = (
            f"{int(norm.isnan().sum())} of {len(norm)} are NaN, first for row {row}, whose weights "
            f"are {', '.join(f'{one:.7g}' for one in p[row].tolist())}; is a root taken of a "
            "number below 0, which rounding can leave, or 0 divided by 0?"
        )
        raise outcome.complaint("a number in every place", happened)
    return outcome.tensor(len(p))


def norms_by_mistake(p: Tensor) -> dict[str, Tensor]:
    """Compute what known mistakes give."""
    alone, product, slope = p.diag_embed(), p[:, :, None] * p[:, None, :], p * (1 - p)
    jacobian, again = alone - product, softmax_jacobian(p.softmax(dim=1))
    ones = torch.eye(p.shape[1]).to(p)
    return {
        "that is the norm's square": jacobian.square().sum(dim=(1, 2)),
        "that is the norm of p, as if the weights did not pull on each other": p.norm(dim=1),
        "that is the diagonal alone": slope.norm(dim=1),
        "that has each pair once, and J holds it twice": jacobian.triu().norm(dim=(1, 2)),
        "that is of the first row alone": jacobian[:1].norm(dim=(1, 2)).expand(len(p)),
        "that is the trace, or the nuclear norm": slope.sum(dim=1),
        "the product has one index twice: see along which axes it broadcasts": (
            alone - p.square()[:, :, None]
        ).norm(dim=(1, 2)),
        "there are ones on the diagonal of the first part": (ones - product).norm(dim=(1, 2)),
        "that is the root of the mean of the squares, not of their sum": jacobian.norm(dim=(1, 2))
        / p.shape[1],
        "that is the norm of p pᵀ, which is a part of it": product.norm(dim=(1, 2)),
        "a sign is wrong": (alone + product).norm(dim=(1, 2)),
        "that adds up sizes, not squares": jacobian.abs().sum(dim=(1, 2)),
        "that is the largest singular value": torch.linalg.matrix_norm(jacobian, 2),
        "that is of the softmax of p, and p holds weights already": again.norm(dim=(1, 2)),
    }


def weights_of_all_kinds() -> Iterator[Tensor]:
    """Make rows of weights: flat and peaked ones, with zeros and without, of several lengths."""
    yield torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0]])
    generator = torch.Generator().manual_seed(0)
    for draws, keys, spread in ((4, 6, 1.0), (1, 7, 2.0)):
        yield (spread * torch.randn(draws, keys, generator=generator)).softmax(dim=1)
    first = torch.linspace(0, 12, 99).sigmoid()
    yield torch.stack([first, 1 - first], dim=1)


@exercise
def share_below(function: Callable[[int, float], float]) -> None:
    """Check the share of draws whose largest scaled weight is under a bound."""
    answer = Answer("share_below", function)
    outcomes = [answer(d_k=d_k, bound=bound) for d_k, bound in TRIED]
    shares = [outcome.number() for outcome in outcomes]
    for outcome, share in zip(outcomes, shares, strict=True):
        outcome.demand(
            0 <= share <= 1,
            "a share lies between 0 and 1",
            f"came {share:g}; is it in percent, or a count?",
        )
    for outcome, share, (d_k, bound) in zip(outcomes, shares, TRIED, strict=True):
        truth = below(d_k, bound)
        if abs(share - truth) >= BY_CHANCE:
            expected = f"for {KEYS} keys and scale 1/√d_k the share comes out near {truth:.2f}"
            again = [answer(d_k=d_k, bound=bound).number() for _ in range(4)]
            told = taken_for(shares)
            if max(again) - min(again) > 2 * BY_CHANCE:
                told = (
                    f", and {', '.join(f'{one:.2f}' for one in again)} in four more calls; are "
                    "there too few draws, or do they share a query or keys?"
                )
            raise outcome.complaint(expected, f"came {share:.2f}{told}")
    draws_anew(function)
    right("share_below", "Now you can say how often a bound holds.")


def draws_anew(function: Callable[[int, float], float]) -> None:
    """Demand new draws in each call, each with its own query and keys, and not too few."""

    def many(d_k: int, bound: float, calls: int) -> list[float]:
        return [function(d_k, bound) for _ in range(calls)]

    d_k, bound, calls = 64, 0.31, 10
    outcome = Answer("share_below", many)(d_k=d_k, bound=bound, calls=calls)
    shares = [Outcome(outcome.name, outcome.arguments, share).number() for share in outcome.value]
    rounded = max(abs(share - round(share, 1)) for share in shares) < MILLIONTH
    outcome.demand(
        not rounded, f"shares of {DRAWS:,} draws", f"came {show(shares)}; are they rounded?"
    )
    outcome.demand(
        len(set(shares)) > 1,
        "every call makes draws of its own",
        f"the calls gave {show(shares)}; leave the seed to whoever calls the function",
    )
    truth = below(d_k, bound)
    chance = (truth * (1 - truth) / DRAWS) ** 0.5
    off = (sum((share - truth) ** 2 for share in shares) / calls) ** 0.5
    outcome.demand(
        off < 2 * chance,
        f"the shares of {calls} calls scatter about {truth:.3f} as those of {DRAWS:,} independent "
        f"draws do: the root of their mean squared error is near {chance:.3f}",
        f"it is {off:.3f}, as with {truth * (1 - truth) / off**2:.0f} independent draws; are there "
        "fewer, or do draws share a query or keys?",
    )


@cache
def below(
    d_k: int,
    bound: float,
    scale: float | None = None,
    times: int = 1,
    which: str = "largest",
    keys: int = KEYS,
) -> float:
    """Give the share of draws whose largest weight is under a bound, or of something else.

    Given its query, each score is normal, with the query's length as deviation.
    """
    generator, shares = np.random.default_rng(d_k), []
    for _ in range(times):
        length = generator.chisquare(d_k, size=(100_000, 1)) ** 0.5
        scores = torch.from_numpy(length * generator.standard_normal((100_000, keys)))
        scores *= d_k**-0.5 if scale is None else scale
        if which == "deviation":
            compared = scores.std(dim=1)
        else:
            p = scores.softmax(dim=1)
            compared = p if which == "all" else p.amax(dim=1)
        shares.append((compared < bound).double().mean().item())
    return sum(shares) / times


def taken_for(shares: list[float]) -> str:
    """Name the mistake that gives about these shares, as the end of a sentence; or nothing."""
    mistakes = {
        "without the scale": lambda d_k, bound: below(d_k, bound, 1.0),
        "with the scale 1/d_k": lambda d_k, bound: below(d_k, bound, 1 / d_k),
        "with the scale 1/8 for all widths": lambda d_k, bound: below(d_k, bound, 1 / 8),
        "with √d_k made a whole number": lambda d_k, bound: below(d_k, bound, 1 / int(d_k**0.5)),
        f"of draws with {KEYS - 1} keys": lambda d_k, bound: below(d_k, bound, keys=KEYS - 1),
        f"of draws with {KEYS + 1} keys": lambda d_k, bound: below(d_k, bound, keys=KEYS + 1),
        f"under {BOUND}, whatever the bound": lambda d_k, bound: below(d_k, BOUND),
        "of draws whose deviation, not largest weight, is under the bound": (
            lambda d_k, bound: below(d_k, bound, which="deviation")
        ),
        "that is not under the bound": lambda d_k, bound: 1 - below(d_k, bound),
        "of all weights, or one key's, that are under it, not of draws whose largest weight is": (
            lambda d_k, bound: below(d_k, bound, which="all")
        ),
        f"of everything: does each softmax run over the {KEYS} keys of one draw, not over more or "
        "over the draws, and is it the largest weight?": lambda d_k, bound: 1.0,
    }
    off = {
        told: max(abs(s - mistaken(*at)) for s, at in zip(shares, TRIED, strict=True))
        for told, mistaken in mistakes.items()
    }
    nearest = min(off, key=lambda told: off[told])
    return f", which is about the share {nearest}" if off[nearest] < BY_CHANCE else ""


@exercise
def all_four(value: Any) -> None:
    """Check the share of runs in which all four widths stay under 0.30."""
    if value is None or value is ...:
        raise NotYet("all_four")
    outcome = Outcome("all_four", {}, value, "the share of runs")
    share = outcome.number()
    outcome.demand(
        0 <= share <= 1,
        "a share lies between 0 and 1",
        f"came {share:g}; is it in percent, or a count?",
    )
    each = [below(d_k, BOUND, times=10) for d_k in WIDTHS]
    truth = math.prod(each)
    unscaled, rootless = (math.prod(below(d, BOUND, d**-i) for d in WIDTHS) for i in (0, 1))
    mistakes = {
        "draws that pass at one width": (sum(each) / len(each), 0.04),
        "runs that fail": (1 - truth, 0.02),
        "runs that pass at one width or more": (1 - math.prod(1 - one for one in each), 0.02),
        "runs that pass at three widths": (truth**0.75, 0.02),
        "runs that pass at two widths": (truth**0.5, 0.02),
        "runs that fail at all four widths": (math.prod(1 - one for one in each), 0.0075),
        "runs whose widths all pass as often as the first does": (each[0] ** len(each), 0.004),
        "runs whose widths all pass in half of the draws": (0.5 ** len(each), 0.001),
        "runs that pass at the first width twice": (each[0] ** 2, 0.01),
        "runs without the scale, and of a single run that fails": (unscaled, 0.001),
        "runs with the scale 1/d_k": (rootless, 0.003),
    }
    named = [told for told, (value, by) in mistakes.items() if abs(share - value) < by]
    told = f", which is about the share of {named[0]}" if named else ""
    if not named and abs(share - truth) < 0.02:
        told = (
            "; chance alone can do that: count 25,000 runs or more, or multiply shares of 10,000 "
            "draws or more. So can rounding, if you multiplied rounded shares"
        )
    outcome.demand(
        abs(share - truth) < 0.0065,  # the truth is drawn too, a million times
        f"a run passes if the largest weights of all {len(WIDTHS)} widths are under {BOUND}; the "
        "widths are drawn independently",
        f"came {share:.3f}{told}",
    )
    right("all_four", "The document's check fails in most runs, and the reader is not to blame.")
