"""Lab 1: how far apart dot products lie, and what the softmax makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.checks.guard import Answer, NotYet, Outcome, exercise, near, right, show
from labkit.softmax import softmax_jacobian

KEYS, BOUND = 10, 0.30
WIDTHS = (8, 64, 512, 4096)


@exercise
def draw_scores(function: Callable[[int, int, int], Tensor]) -> None:
    """Check scores of random queries against random keys: (d_k, keys, draws) to (draws, keys)."""
    answer = Answer("draw_scores", function)
    answer(d_k=4, keys=3, draws=2).tensor(2, 3)
    many = answer(d_k=16, keys=5, draws=4_000)
    scores = many.tensor(4_000, 5)
    mean, variance = scores.mean().item(), scores.var().item()
    many.demand(
        abs(mean) < 0.4,
        "the mean of the scores is near 0, because the entries have mean 0",
        f"it is {mean:.2f}",
    )
    near_d_k = (
        "the variance of the scores is near d_k, because d_k products of variance 1 are added"
    )
    many.demand(4 < variance < 64, near_d_k, f"it is {variance:.2f}")
    many.demand(
        (scores.std(dim=1) > 1e-3).all(),
        "the keys of one draw differ, so its scores differ",
        "there are draws in which all scores are the same",
    )
    # Draws that share a query or keys miss the variance by chance: name the cause first.
    own_query_and_keys(answer)
    many.demand(0.9 < variance / 16 < 1.1, near_d_k, f"it is {variance:.2f}")
    again = answer(d_k=16, keys=5, draws=4_000).tensor(4_000, 5)
    many.demand(
        not torch.equal(scores, again),
        "a second call draws other numbers",
        "it gave the same ones; leave the seed to whoever calls the function",
    )
    right("draw_scores", "Their variance is d_k, and each draw has its own query and keys.")


def own_query_and_keys(answer: Answer) -> None:
    """Tell shared queries and keys from fresh ones, by logarithms of scores of width 1."""
    outcome = answer(d_k=1, keys=5, draws=4_000)
    logs = outcome.tensor(4_000, 5).abs().clamp(min=1e-30).log()
    alike = torch.corrcoef(logs.T)[0, 1].item()
    outcome.demand(
        alike < 0.75,
        "every draw has keys of its own",
        "the scores of all draws go up and down together, as if they shared their keys",
    )
    outcome.demand(
        logs.var() > 1.8,
        "every draw has a query of its own",
        "the scores spread as if one query served all draws",
    )
    outcome.demand(
        alike > 0.25,
        "all keys of a draw meet the same query",
        "the scores of a draw have nothing in common, as if each key had a query of its own",
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
    plain.demand(near(rows, 1), "each row sums to 1", f"the sums are {show(rows)}{hint}")
    plain.demand((p >= 0).all(), "no weight is negative", f"came {show(p)}")
    plain.demand(
        near(p[0, 1] / p[0, 0], 2) and near(p[0, 2] / p[0, 0], 4),
        "the scores ln 1, ln 2, ln 4 get weights in the ratio 1 : 2 : 4",
        f"came {show(p[0])}",
    )
    plain.demand(
        near(p[1], [0.6, 0.2, 0.2]),
        "each row is treated by itself: ln 3, 0, 0 get 3/5, 1/5, 1/5",
        f"came {show(p[1])}",
    )
    double = answer(scores=scores, scale=2.0)
    p = double.tensor(2, 3)
    double.demand(
        near(p[0, 1] / p[0, 0], 4) and near(p.sum(dim=1), 1),
        "the scores are multiplied by the scale, so a gap of ln 2 becomes 2 ln 2, a ratio of 4",
        f"the ratio is {show(p[0, 1] / p[0, 0])}, and the first row sums to {show(p[0].sum())}",
    )
    nothing = answer(scores=scores, scale=0.0)
    p = nothing.tensor(2, 3)
    nothing.demand(near(p, 1 / 3), "with the scale 0 all weights are equal", f"came {show(p)}")
    large = answer(scores=torch.tensor([[1000.0, 1000.0, -1000.0]]), scale=1.0)
    p = large.tensor(1, 3)
    large.demand(
        near(p, [[0.5, 0.5, 0.0]]), "large scores give 1/2, 1/2, 0 as well", f"came {show(p)}"
    )
    right("weights", "Rows sum to one, the scale counts, and large scores do no harm.")


@exercise
def report(function: Callable[[Tensor, float], tuple[Tensor, Tensor]]) -> None:
    """Check the deviation of scaled scores and the largest weight: each (draws,)."""
    answer = Answer("report", function)
    scores = torch.tensor([[1.0, 2.0, 4.0, 1.0], [3.0, 1.0, 1.0, 1.0], [5.0, 5.0, 5.0, 5.0]]).log()
    for scale in (1.0, 0.5):
        outcome = answer(scores=scores, scale=scale)
        spread, largest = outcome.pair("deviation", "largest")
        std, peak = spread.tensor(3), largest.tensor(3)
        scaled = scores.double() * scale
        outcome.demand(
            near(std[2], 0.0),
            "the third row's scores are equal, so its deviation is 0",
            f"the first result is {show(std)}",
        )
        expect_deviation(outcome, std, scaled, scores.double())
        outcome.demand(
            ((peak > 0) & (peak <= 1)).all() and near(peak[2], 0.25),
            "a largest weight lies between 0 and 1, and is 1/4 for four equal scores",
            f"the second result is {show(peak)}",
        )
        outcome.demand(
            near(peak, scaled.softmax(dim=1).amax(dim=1)),
            "the second result is the largest weight of each row, with the scale in the softmax",
            f"came {show(peak)}",
        )
    right("report", "Deviation and largest weight, row by row.")


def expect_deviation(outcome: Outcome, std: Tensor, scaled: Tensor, scores: Tensor) -> None:
    """Demand the sample deviation of the scaled scores, and name the usual confusions."""
    happened = f"came {show(std)}"
    if near(std, scaled.var(dim=1)):
        happened += ", which is the variance"
    elif near(std, scaled.std(dim=1, correction=0)):
        happened += ", which has the divisor keys, not keys − 1"
    elif near(std, scores.std(dim=1)):
        happened += ", the deviation before scaling"
    expected = "the first result is the deviation of each row's scaled scores, divisor keys − 1"
    outcome.demand(near(std, scaled.std(dim=1)), expected, happened)


@exercise
def jacobian_norm(function: Callable[[Tensor], Tensor]) -> None:
    """Check the Frobenius norm of the softmax's Jacobian: (draws, keys) to (draws,)."""
    answer = Answer("jacobian_norm", function)
    halves = answer(p=torch.tensor([[0.5, 0.5]]))
    norm = halves.tensor(1)
    hint = {0.25: ", its square", 0.7071: ", as if the weights did not pull on each other"}
    told = next((words for value, words in hint.items() if near(norm, value)), "")
    halves.demand(
        near(norm, 0.5),
        "for two weights of 1/2 the Jacobian's entries are 1/4, −1/4, −1/4, 1/4, and its norm is "
        "1/2",
        f"came {show(norm)}{told}",
    )
    p = torch.tensor([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    outcome = answer(p=p)
    norm = outcome.tensor(2)
    outcome.demand(
        near(norm[1], math.sqrt(2) / 3),
        "three equal weights give √2 / 3 = 0.471",
        f"came {show(norm[1])}",
    )
    outcome.demand(
        near(norm[0], softmax_jacobian(p[0].double()).norm()),
        "every entry of the Jacobian counts once, squared, whatever the weights are",
        f"came {show(norm[0])} for the first row",
    )
    saturated = answer(p=torch.tensor([[1.0, 0.0, 0.0], [0.999999, 1e-6, 0.0]]))
    norm = saturated.tensor(2)
    saturated.demand(
        (norm >= 0).all() and (norm < 1e-3).all(),
        "a row that gives one key all the weight passes nothing on: its norm is 0",
        f"came {show(norm)}",
    )
    right("jacobian_norm", "A half-and-half row passes on most, a saturated one nothing.")


@exercise
def share_below(function: Callable[[int, float], float]) -> None:
    """Check the share of draws whose largest scaled weight is under a bound."""
    answer = Answer("share_below", function)
    tried = {(d_k, bound): answer(d_k=d_k, bound=bound) for d_k in (1, 64) for bound in (0.3, 0.5)}
    for (d_k, bound), outcome in tried.items():
        share = outcome.number()
        outcome.demand(
            0 <= share <= 1, "a share lies between 0 and 1", f"came {share:g}; is it a count?"
        )
        scores = reference_scores(d_k)
        truth = below(scores * d_k**-0.5, bound)
        happened = f"came {share:.2f}"
        if d_k > 1 and abs(share - below(scores, bound)) < 0.03:
            happened += ", which is about the share without the scale"
        elif abs(share - (1 - truth)) < 0.03:
            happened += ", which is about the share that is not under the bound"
        outcome.demand(
            abs(share - truth) < 0.06,
            f"for {KEYS} keys and scale 1/√d_k the share comes out near {truth:.2f}",
            happened,
        )
    never = answer(d_k=64, bound=0.1)
    never.demand(
        never.number() == 0,
        "ten weights that sum to 1 cannot all be under 1/10, so the share is 0",
        f"came {never.number():g}",
    )
    right("share_below", "Now you can say how often a bound holds.")


def reference_scores(d_k: int, draws: int = 20_000) -> Tensor:
    """Draw unscaled scores: given its query, each is normal, with the query's length as spread."""
    generator = np.random.default_rng(d_k)
    squared_length = generator.chisquare(d_k, size=(draws, 1))
    return torch.from_numpy(squared_length**0.5 * generator.standard_normal((draws, KEYS)))


def below(scores: Tensor, bound: float) -> float:
    """Give the share of rows whose largest weight is under a bound."""
    return (scores.softmax(dim=1).amax(dim=1) < bound).double().mean().item()


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
    each = [below(reference_scores(d_k) * d_k**-0.5, BOUND) for d_k in WIDTHS]
    truth = math.prod(each)
    happened = f"came {share:.2f}"
    if min(each) - 0.05 < share < max(each) + 0.05:
        happened += ", which is about the share for one width"
    elif abs(share - (1 - truth)) < 0.03:
        happened += ", which is about the share of runs that fail"
    outcome.demand(
        abs(share - truth) < 0.025,
        f"a run passes if the largest weights of all {len(WIDTHS)} widths are under {BOUND}; the "
        "widths are drawn independently, and each passes in little more than half of the draws",
        happened,
    )
    right("all_four", "The document's check fails in most runs, and the reader is not to blame.")
