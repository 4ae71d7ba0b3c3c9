"""Answers to lab 2."""

from __future__ import annotations

import torch

from labkit.labs.causal_mask import check as causal_mask
from tests.answers import Exercise

INF = float("inf")

# The boolean mask
mask = Exercise(causal_mask.causal_mask)


def mask_by_loop(n):
    may = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        may[i, : i + 1] = True
    return may


mask.accept("tril", lambda n: torch.ones(n, n, dtype=torch.bool).tril())
mask.accept("loop", mask_by_loop)
mask.accept("comparison", lambda n: torch.arange(n) <= torch.arange(n)[:, None])
mask.accept("not triu", lambda n: ~torch.triu(torch.ones(n, n), diagonal=1).bool())
mask.accept("a list", lambda n: torch.tensor([[j <= i for j in range(n)] for i in range(n)]))

mask.reject("True for hidden", "changed places", lambda n: torch.ones(n, n).triu(1).bool())
mask.reject("upper triangle", "rows.*columns", lambda n: torch.ones(n, n).triu().bool())
mask.reject("without the diagonal", "itself", lambda n: torch.ones(n, n).tril(-1).bool())
mask.reject("one step ahead", "3 of the future", lambda n: torch.ones(n, n).tril(1).bool())
mask.reject("itself only", "up to and including", lambda n: torch.eye(n).bool())
mask.reject("numbers", "is boolean", lambda n: torch.ones(n, n).tril())
mask.reject("form to be added", "is boolean", lambda n: torch.full((n, n), -INF).triu(1))
mask.reject("always six", r"shape \(4, 4\)", lambda n: torch.ones(6, 6).tril().bool())
mask.reject(
    "cut from a buffer of 256",
    r"shape \(512, 512\)",
    lambda n: torch.ones(256, 256).tril().bool()[:n, :n],
)
mask.reject(
    "places in one byte",
    "up to and including",
    lambda n: torch.arange(n, dtype=torch.int8) <= torch.arange(n, dtype=torch.int8)[:, None],
)
mask.reject("axis for the batch", "shape", lambda n: torch.ones(1, n, n).tril().bool())
mask.reject("a list of lists", "tensor", lambda n: torch.ones(n, n).tril().bool().tolist())


# The form that is added
additive = Exercise(causal_mask.to_additive)


def additive_by_loop(may):
    added = torch.zeros(may.shape)
    for place in (~may).nonzero().tolist():
        added[tuple(place)] = -INF
    return added


def additive_in_place(may):
    return torch.zeros(may.shape).masked_fill(may.logical_not_(), -INF)


additive.accept("masked_fill", lambda may: torch.zeros(may.shape).masked_fill(~may, -INF))
additive.accept("where, float64", lambda may: torch.where(may, 0.0, -INF).double())
additive.accept("logarithm", lambda may: may.float().log())
additive.accept("loop", additive_by_loop)

additive.reject("0 times infinity", "multiplied by infinity", lambda may: (~may).float() * -INF)
additive.reject(
    "transposed",
    "rows and columns have changed places",
    lambda may: torch.zeros(may.shape).masked_fill(~may, -INF).mT.reshape(may.shape),
)
additive.reject(
    "polarity",
    "0 is added.*True and False have changed places",
    lambda may: torch.where(may, -INF, 0.0),
)
additive.reject("-1e9", "−∞ is added", lambda may: torch.where(may, 0.0, -1e9))
additive.reject(
    "lowest number",
    "−∞ is added",
    lambda may: torch.where(may, 0.0, torch.finfo(torch.float32).min),
)
additive.reject("plus infinity", "−∞ is added", lambda may: torch.where(may, 0.0, INF))
additive.reject(
    "zeros in a row that is False everywhere",
    "rows without a True became zeros",
    lambda may: torch.where(may | ~may.any(-1, True), 0.0, -INF),
)
additive.reject("as numbers", "0 is added", lambda may: may.float())
additive.reject("boolean", "floating", lambda may: ~may)
additive.reject("whole numbers", "floating", lambda may: torch.where(may, 0, -(10**9)))
additive.reject("always causal", "is added", lambda may: torch.full(may.shape, -INF).triu(1))
additive.reject("the mask changed", "in place", additive_in_place)


# Weights over what may be attended to
weights = Exercise(causal_mask.masked_weights)


def filled(scores, may, fill=-INF):
    return scores.masked_fill(~may, fill).softmax(dim=-1)


def weights_by_loop(scores, may):
    flat, masks = (
        scores.reshape(-1, scores.shape[-1]),
        may.expand(scores.shape).reshape(-1, scores.shape[-1]),
    )
    out = torch.zeros(flat.shape)
    for i, (row, open_) in enumerate(zip(flat, masks, strict=True)):
        if open_.any():
            out[i, open_] = row[open_].softmax(0)
    return out.view(scores.shape)


def shifted(scores, may):
    hidden = torch.where(may, scores, -INF)
    top = hidden.amax(-1, keepdim=True)
    e = torch.exp(hidden - torch.where(top.isfinite(), top, 0.0))
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


def fill_in_place(scores, may):
    return scores.masked_fill_(~may, -INF).softmax(dim=-1).nan_to_num()


def after(scores, may):
    return scores.softmax(dim=-1) * may


def after_with_division(scores, may):
    return after(scores, may) / after(scores, may).sum(dim=-1, keepdim=True).clamp(min=1e-30)


weights.accept("fill and mend", lambda s, m: filled(s, m).nan_to_num())
weights.accept("fill and fill", lambda s, m: filled(s, m).masked_fill(~m, 0.0))
weights.accept("row by row", weights_by_loop)
weights.accept("shifted exponentials", shifted)

weights.reject(
    "no mask",
    "hidden weight is exactly 0.*mask makes no difference",
    lambda s, m: s.softmax(dim=-1),
)
weights.reject("polarity", "here it hides", lambda s, m: filled(s, ~m).nan_to_num())
weights.reject("NaN in the empty row", "no key left", filled)
weights.reject("uniform in the empty row", "no key left", lambda s, m: filled(s, m, -3.4e38))
weights.reject(
    "-1e9", "however low the visible scores", lambda s, m: filled(s, m, -1e9).masked_fill(~m, 0.0)
)
weights.reject(
    "-1e30", "only key left gets all", lambda s, m: filled(s, m, -1e30).masked_fill(~m, 0.0)
)
weights.reject(
    "-3e38", "only key left gets all", lambda s, m: filled(s, m, -3e38).masked_fill(~m, 0.0)
)
weights.reject(
    "scores cut off",
    r"however low the visible scores.*came \[\[0.5, 0.5, 0\]\]; scores are cut off",
    lambda s, m: filled(s.clamp(-1e4, 1e4), m).masked_fill(~m, 0.0),
)
weights.reject("zeros after the softmax", "left sums to 1.*hidden after the softmax", after)
weights.reject("zeros, then division", "hidden score still counts", after_with_division)
weights.reject("scores set to 0", "a score of 0 is a score", lambda s, m: (s * m).softmax(dim=-1))
weights.reject(
    "over the queries", "runs over the queries", lambda s, m: s.masked_fill(~m, -INF).softmax(-2)
)
weights.reject(
    "the second axis",
    "over the last axis",
    lambda s, m: s.masked_fill(~m, -INF).softmax(dim=min(1, s.ndim - 1)).nan_to_num(),
)
weights.reject("in place", "in place", fill_in_place)
weights.reject(
    "always causal",
    "which is not causal.*a causal mask was used",
    lambda s, m: filled(s, torch.ones(s.shape[-2:]).tril().bool()).nan_to_num(),
)


def unshifted(dtype):
    def answer(scores, may):
        e = scores.to(dtype).exp() * may
        return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)

    return answer


def zero_is_hidden(scores, may):
    kept = scores * may
    return kept.masked_fill(kept == 0, -INF).softmax(dim=-1).nan_to_num()


def shifted_by_all(scores, may):
    hidden = torch.where(may, scores, -INF)
    e = torch.exp(hidden - hidden.max())
    return e / e.sum(dim=-1, keepdim=True)


weights.accept(
    "the lowest number, then zeros",
    lambda s, m: filled(s, m, torch.finfo(s.dtype).min).masked_fill(~m, 0.0),
)
weights.reject("exponentials overflow", "no number overflows", unshifted(torch.float32))
weights.reject(
    "shifted by the largest score of all",
    "of its own.*came \\[\\[0, 0, 0\\], \\[0.269.*largest score of all rows is taken",
    lambda s, m: shifted_by_all(s, m).nan_to_num(),
)
weights.reject("the same, with NaN", "a largest score of its own.*nan", shifted_by_all)
TAKEN_OFF = r"0.269, 0.731, 0.*came \[\[0.5, 0.5, 0\]\]; what is taken off each score depends"
for what, top in {
    "the row's maximum": lambda s: s.amax(-1, keepdim=True),
    "the maximum of all": torch.max,
    "the mean": lambda s: s.mean(-1, keepdim=True),
}.items():
    weights.reject(
        f"{what}, hidden or not, taken off",
        TAKEN_OFF,
        lambda s, m, top=top: filled(s - top(s), m).nan_to_num(0),
    )
weights.reject(
    "1e9 taken off",
    "hidden score still counts",
    lambda s, m: (s - 1e9 * ~m).softmax(-1).masked_fill(~m, 0.0),
)
weights.reject(
    "1e9 taken off, no zeros",
    "lowered, but not enough",
    lambda s, m: (s - 1e9 * ~m).softmax(-1) * m.any(-1, keepdim=True),
)
weights.reject(
    "in bfloat16", "bfloat16 has", lambda s, m: filled(s.bfloat16(), m).nan_to_num().float()
)


def less_the_visible_mean(scores, may):
    mean = (scores * may).sum(-1, keepdim=True) / may.sum(-1, keepdim=True)
    return filled(scores - mean, may).nan_to_num()


weights.reject("the visible mean taken off", "as large as float32 holds", less_the_visible_mean)


def by_index(scores, may):
    scores = scores.clone()
    scores[~may] = -INF
    return scores.softmax(dim=-1).nan_to_num()


weights.reject("indexed by the mask", "IndexError.*expand", by_index)
weights.reject("a score of 0 is hidden", r"proportions.*came \[0, 1\]", zero_is_hidden)


# A test that says whether anything leaks
leaks = Exercise(causal_mask.leaks)


def fresh(part):
    return torch.randn_like(part)


def cut_by_cut(
    change=fresh, seen=lambda difference, cut: difference[:, :cut], cuts=None, bar=lambda y: 1e-5
):
    """Change the inputs from each cut on, and look at how far the outputs before it move."""

    def answer(network, x):
        before = network(x)
        if before.isnan().any():
            return True
        for cut in range(1, x.shape[1]) if cuts is None else cuts(x.shape[1]):
            other = torch.cat([x[:, :cut], change(x[:, cut:])], dim=1)
            if not seen(network(other) - before, cut).abs().max() <= bar(before):
                return True
        return False

    return answer


def by_move(move, bar=1e-5, sees_nan=True):
    """Replace from each cut on, and judge how new outputs differ from old ones."""

    def answer(network, x):
        before = network(x)
        if sees_nan and before.isnan().any():
            return True
        for cut in range(1, x.shape[1]):
            after = network(torch.cat([x[:, :cut], fresh(x[:, cut:])], dim=1))
            if not (move(after[:, :cut], before[:, :cut]) <= bar).all():
                return True
        return False

    return answer


def by_closeness(**tolerance):
    def answer(network, x):
        before = network(x)
        for cut in range(1, x.shape[1]):
            after = network(torch.cat([x[:, :cut], fresh(x[:, cut:])], dim=1))
            if not torch.allclose(after[:, :cut], before[:, :cut], **tolerance):
                return True
        return False

    return answer


def by_length(network, x):
    """Leave later inputs out."""
    whole = network(x)
    parts = (network(x[:, :k]) - whole[:, :k] for k in range(1, x.shape[1]))
    return not all((moved.abs().max() <= 1e-5) for moved in parts)


def one_by_one(seen=lambda difference, j: difference[:, :j]):
    """Replace each input alone, and look at how far earlier outputs move."""

    def answer(network, x):
        before = network(x)
        if before.isnan().any():
            return True
        for j in range(1, x.shape[1]):
            other = x.clone()
            other[:, j] = fresh(x[:, j])
            if not seen(network(other) - before, j).abs().max() <= 1e-5:
                return True
        return False

    return answer


def by_jacobian(
    take=lambda network, x: torch.func.jacrev(network)(x),
    fold=lambda j: j.abs().amax((0, 2, 3, 5)),
    sees_nan=lambda out: out.isnan().any(),
):
    """Fold a derivative (B, n, d, B, n, d) to (n, n)."""

    def answer(network, x):
        if sees_nan(network(x)):
            return True
        return not bool((fold(take(network, x)).triu(1) <= 1e-5).all())

    return answer


def by_backward(along, fold=lambda y: y):
    """Look at the gradient of a sum of each output's features, each times a number."""

    def answer(network, x):
        if network(x).isnan().any():
            return True
        for i in range(x.shape[1] - 1):
            leaf = x.clone().requires_grad_()
            (fold(network(leaf)[:, i]) * along(x.shape[-1])).sum().backward()
            if not leaf.grad[:, i + 1 :].abs().max() <= 1e-5:
                return True
        return False

    return answer


def spoils_its_argument(network, x):
    before = network(x)
    x[:, -1] = 0
    return bool((network(x) - before)[:, :-1].abs().max() > 1e-6)


leaks.accept("replaced from every cut on", cut_by_cut())
leaks.accept("one input at a time", one_by_one())
leaks.accept("each sequence by itself", lambda net, x: any(cut_by_cut()(net, s[None]) for s in x))
leaks.accept("Jacobian", by_jacobian(torch.autograd.functional.jacobian))
leaks.accept("backward along random numbers", by_backward(torch.randn))
leaks.accept("in float64", lambda net, x: cut_by_cut()(net, x.double()))
leaks.accept("numbers added", cut_by_cut(change=lambda part: part + fresh(part)))

UNNOTICED = "True: .*went unnoticed"
ALARM = "a false alarm"
leaks.reject("changes nothing", UNNOTICED, cut_by_cut(change=lambda part: part))
leaks.reject("changes the past", ALARM, one_by_one(seen=lambda moved, j: moved[:, j + 1 :].sum(1)))
SWAP = "alarm.*True and False have changed places"
leaks.reject("True for sound", SWAP, lambda net, x: not cut_by_cut()(net, x))
leaks.reject("True for sound, by length", SWAP, lambda net, x: not by_length(net, x))
OWN = "own inputs differ"
leaks.reject("looks at all outputs", OWN, cut_by_cut(seen=lambda moved, cut: moved))
leaks.reject("one position too many", OWN, cut_by_cut(seen=lambda moved, cut: moved[:, : cut + 1]))
leaks.reject("how much instead of whether", "True or False", lambda network, x: 0.5)
leaks.reject(
    "a truth for each position",
    "True or False",
    lambda network, x: (network(x + 1) - network(x)).abs().amax((0, 2)) > 0,
)
leaks.reject("its argument changed", "in place", spoils_its_argument)

leaks.reject("the cut in the middle only", UNNOTICED, cut_by_cut(cuts=lambda n: [n // 2]))
leaks.reject("the last cut only", UNNOTICED, cut_by_cut(cuts=lambda n: [n - 1]))
leaks.reject("one is added to all features", UNNOTICED, cut_by_cut(change=lambda part: part + 1))
leaks.reject(
    "the mean of how far features move",
    "a mean over all features",
    cut_by_cut(seen=lambda moved, cut: moved[:, :cut].abs().mean(dim=(0, 2))),
)
leaks.reject(
    "any derivative that is not 0", ALARM, by_jacobian(fold=lambda j: 9 * j.ne(0).sum((0, 2, 3, 5)))
)
ZERO, ONE = "every number of x is 0: .*unnoticed", "every number of x is 1: .*unnoticed"
leaks.reject("later inputs left out", "a false alarm.*left out, not replaced", by_length)
leaks.reject("set to one", ONE, cut_by_cut(change=torch.ones_like))
leaks.reject(
    "set to 100", "up to rounding.*alarm", cut_by_cut(change=lambda p: torch.full_like(p, 100))
)
leaks.reject("each replaced by the next", "unnoticed", cut_by_cut(change=lambda p: p.roll(1, 1)))
leaks.reject("backward from sizes", ZERO, by_backward(torch.ones, fold=torch.abs))
leaks.reject(
    "a bar that grows with the outputs",
    "output 0 is 100 more.*a bar that grows",
    cut_by_cut(bar=lambda y: 1e-4 * y.abs().max()),
)
leaks.reject(
    "very large numbers",
    "up to rounding.*grows with the numbers",
    cut_by_cut(change=lambda p: 1e4 * fresh(p)),
)
leaks.reject(
    "a tolerance relative to each output",
    "false alarm.*a relative tolerance is none",
    by_closeness(rtol=1e-5, atol=1e-8),
)
leaks.reject(
    "a relative tolerance of a thousandth",
    "output 0 is 100 more.*unnoticed",
    by_closeness(rtol=1e-3, atol=1e-5),
)
leaks.reject(
    "each feature by itself",
    "output 0 is 100 more.*not on the same one alone",
    by_jacobian(fold=lambda j: torch.einsum("aidbjd->ijd", j.abs()).sum(2)),
)
leaks.reject("set to zero", ZERO, cut_by_cut(change=torch.zeros_like))
leaks.reject("the sign turned", "does not tell 1 from -1", cut_by_cut(change=torch.neg))
leaks.reject("the first sequence only", UNNOTICED, one_by_one(seen=lambda moved, j: moved[0, :j]))
leaks.reject(
    "NaN taken for 0",
    UNNOTICED,
    by_move(lambda new, old: (new - old).nan_to_num().abs(), sees_nan=False),
)
leaks.reject(
    "NaN before a cut only",
    "last output is NaN in one sequence.*unnoticed$",
    by_move(lambda new, old: (new - old).abs(), sees_nan=False),
)
leaks.reject("backward from a sum of features", "signs, cancel$", by_backward(torch.ones))
leaks.reject(
    "any number that is not the same",
    ALARM,
    cut_by_cut(seen=lambda moved, cut: 9.0 * (moved[:, :cut] != 0)),
)


# A map of what depends on what


depends = Exercise(causal_mask.dependence)


def map_by_jacobian(fold=lambda j: j.abs().amax((1, 3)), bar=1e-5):
    """Fold a derivative (n, d, n, d) to (n, n)."""
    return lambda network, x: fold(torch.autograd.functional.jacobian(network, x)) > bar


def map_by_change(change=fresh, move=lambda difference: difference.abs().amax(1), bar=1e-5):
    """Change each input alone, and fold how far the outputs (n, d) move to (n,)."""

    def answer(network, x):
        before, columns = network(x), []
        for j in range(len(x)):
            other = x.clone()
            other[j] = change(x[j])
            columns.append(move(network(other) - before) > bar)
        return torch.stack(columns, dim=1)

    return answer


def map_by_closeness(**tolerance):
    def answer(network, x):
        before, columns = network(x), []
        for j in range(len(x)):
            after = network(torch.cat([x[:j], fresh(x[j : j + 1]), x[j + 1 :]]))
            columns.append(~torch.isclose(after, before, **tolerance).all(dim=1))
        return torch.stack(columns, dim=1)

    return answer


def map_by_backward(along):
    def answer(network, x):
        rows = []
        for i in range(len(x)):
            leaf = x.clone().requires_grad_()
            (network(leaf)[i] * along(x.shape[1])).sum().backward()
            rows.append(leaf.grad.abs().amax(dim=1) > 1e-5)
        return torch.stack(rows)

    return answer


def map_forward(network, x):
    return torch.func.jacfwd(network)(x).abs().amax((1, 3)) > 1e-5


def then(change):
    """Spoil the right map."""
    return lambda network, x: change(map_by_jacobian()(network, x))


def from_each_on(network, x):
    """Replace all inputs from each on, not it alone."""
    before, columns = network(x), []
    for j in range(len(x)):
        other = torch.cat([x[:j], fresh(x[j:])])
        columns.append((network(other) - before).abs().amax(dim=1) > 1e-5)
    return torch.stack(columns, dim=1)


depends.accept("Jacobian", map_by_jacobian())
depends.accept("change one input", map_by_change())
depends.accept("forward mode", map_forward)
depends.accept("backward along random numbers", map_by_backward(torch.randn))


PAIRS = "pairs of output and input that depend"
depends.reject("transposed", "rows and columns have changed places", then(lambda found: found.T))
depends.reject("only the past", PAIRS, then(torch.tril))
depends.reject(
    "a causal mask",
    "every network gets this map",
    lambda net, x: torch.ones(len(x), len(x)).tril().bool(),
)
depends.reject("strengths", "boolean", then(torch.Tensor.float))
depends.reject("as lists", "tensor", then(torch.Tensor.tolist))
depends.reject("every feature apart", "shape", map_by_jacobian(fold=torch.abs))
depends.reject("summed over outputs", "shape", map_by_jacobian(fold=lambda j: j.sum((0, 1, 3))))


def one_more_each_time(network, x):
    """Replace inputs one after the other, and none back."""
    before, other, columns = network(x), x.clone(), []
    for j in range(len(x)):
        other[j] = fresh(x[j])
        columns.append((network(other) - before).abs().amax(dim=1) > 1e-5)
    return torch.stack(columns, dim=1)


def by_neighbours(network, x):
    """Put each input's neighbour in its place."""
    before, columns = network(x), []
    for j in range(len(x)):
        other = x.clone()
        other[j] = x[j - 1]
        columns.append((network(other) - before).abs().amax(dim=1) > 1e-5)
    return torch.stack(columns, dim=1)


depends.reject("all from each input on", "or on a later one", from_each_on)
depends.reject("changes that stay", "or on an earlier one", one_more_each_time)
depends.reject("each replaced by its neighbour", "every number of x is 1", by_neighbours)
depends.reject("set to one", "every number of x is 1", map_by_change(change=torch.ones_like))
depends.reject(
    "at another input",
    r"the mask is forgotten.*missing: \(0, 1\), \(0, 2\)",
    lambda network, x: map_by_jacobian()(network, fresh(x)),
)
depends.reject(
    "very large numbers",
    "up to rounding.*grows with the numbers",
    map_by_change(change=lambda part: 1e4 * fresh(part)),
)
depends.reject(
    "derivatives added",
    "derivatives added over features, with their signs, cancel$",
    map_by_jacobian(lambda j: j.sum((1, 3)).abs()),
)
depends.reject(
    "a tolerance relative to each output",
    "too many.*a relative tolerance is none",
    map_by_closeness(rtol=1e-5, atol=1e-8),
)
depends.reject(
    "a relative tolerance of a thousandth",
    r"output 0 is 100 more.*missing: \(0, 1\)",
    map_by_closeness(rtol=1e-3, atol=1e-5),
)
depends.reject(
    "each feature by itself",
    r"output 0 is 100 more.*missing: \(0, 1\)",
    map_by_jacobian(lambda j: torch.einsum("idjd->ijd", j).abs().amax(dim=2)),
)
depends.reject("positive derivatives only", PAIRS, map_by_jacobian(lambda j: j.amax((1, 3))))
SHARED = "a LayerNorm forgets what all features share, and how long a vector is$"
depends.reject("one is added to all features", SHARED, map_by_change(change=lambda part: part + 1))
depends.reject("doubled", SHARED, map_by_change(change=lambda part: 2 * part))
depends.reject(
    "any number that is not the same", "too many.*is the bar below 1e-5", map_by_change(bar=0)
)
depends.reject(
    "set to zero",
    "number of x is 0; 0 in place of 0 changes",
    map_by_change(change=torch.zeros_like),
)
depends.reject("the first feature only", PAIRS, map_by_change(move=lambda moved: moved[:, 0].abs()))
depends.reject(
    "only the first feature changed",
    PAIRS,
    map_by_change(change=lambda part: torch.cat([part[:1] + 1, part[1:]])),
)
depends.reject("any derivative that is not 0", "too many", map_by_jacobian(bar=0))
depends.reject(
    "the mean of how far features move",
    PAIRS,
    map_by_change(move=lambda difference: difference.abs().mean(dim=1)),
)
depends.reject(
    "the mean of the derivatives", PAIRS, map_by_jacobian(lambda j: j.abs().mean((1, 3)))
)
depends.reject("backward from a sum of features", PAIRS, map_by_backward(torch.ones))


# What the inputs have to differ in


def rand(part):
    return torch.rand_like(part)


def tied(part):
    """Draw one number for all features of a position."""
    return torch.randn(*part.shape[:-1], 1).expand_as(part)


leaks.accept(
    "one new vector for all later inputs",
    cut_by_cut(change=lambda part: torch.randn(part.shape[-1]).expand_as(part)),
)
ONE_WAY = "normal numbers are all on one side of x"
leaks.reject("moves up only", ONE_WAY, by_move(lambda new, old: new - old))
leaks.reject("moves down only", f"x is (-6|6).*{ONE_WAY}", by_move(lambda new, old: old - new))
COMMON = "what all features have in common"
leaks.reject("one number for all features", f"x is 0.*{COMMON}", cut_by_cut(change=tied))
leaks.reject("rand for randn", "where that is below -0.5", cut_by_cut(change=rand))
leaks.reject("negative numbers", "where that is above 0.5", cut_by_cut(change=lambda p: -rand(p)))
leaks.reject(
    "one sequence at a time, without its axis",
    r"takes inputs of shape \(B, n, d\), and got \(4, 6\)",
    lambda net, x: any(cut_by_cut()(lambda one: net(one[0])[None], s[None]) for s in x),
)
leaks.reject(
    "first and last cut", "output 1 depends on input 2", cut_by_cut(cuts=lambda n: {1, n - 1})
)
leaks.reject(
    "first and last feature changed by the middle one",
    UNNOTICED,
    cut_by_cut(seen=lambda moved, cut: moved[:, :cut, 1:-1]),
)
leaks.reject(
    "the next output only", "far behind them", one_by_one(lambda moved, j: moved[:, [j - 1]])
)
leaks.reject("no tolerance", "is the bar below 1e-5", by_move(lambda a, b: (a - b).abs(), bar=0))
leaks.reject("a bar of 1e-7", "is the bar below 1e-5", cut_by_cut(bar=lambda y: 1e-7))
leaks.reject("a bar of 1e-3", "a move of 1e-4 counts", cut_by_cut(bar=lambda y: 1e-3))
leaks.reject(
    "a hundredth added", "change too small", cut_by_cut(change=lambda p: p + fresh(p) / 100)
)


def overwritten(network, x):
    before = network(x)
    found = bool(before.isnan().any())
    for cut in range(1, x.shape[1]):
        other = torch.cat([x[:, :cut], fresh(x[:, cut:])], dim=1)
        found = bool((network(other) - before)[:, :cut].abs().max() > 1e-5)
    return found


leaks.reject("a verdict overwritten", "verdict kept to the end", overwritten)
leaks.reject(
    "the first sequence replaced by itself",
    "in sequence 1 alone",
    lambda network, x: cut_by_cut()(network, x[:1]),
)

depends.reject("rand for randn", "where that is below -0.5", map_by_change(change=rand))
depends.reject("one number for all features", "what all features share", map_by_change(change=tied))
depends.reject("moves up only", PAIRS, map_by_change(move=lambda moved: moved.amax(1)))
depends.reject(
    "with an axis for the batch",
    r"takes inputs of shape \(n, d\), and got \(1, 5, 6\)",
    lambda network, x: map_by_change()(lambda one: network(one[None])[0], x),
)


# What an answer makes of many numbers at once

PLACE = "something lies above the visible scores, in the place of hidden ones or as a bound"
for fill in (-1e9, -1e38):
    weights.reject(
        f"{fill:g}, then times the mask", PLACE, lambda s, m, fill=fill: filled(s, m, fill) * m
    )
ADDED_UP = "rounding in each of many features.*alarm.*[48]e-06 at most.*or a norm or sum taken"
for bar in (2e-5, 1e-4):
    leaks.reject(f"a norm of all, over {bar}", ADDED_UP, by_move(lambda a, b: (a - b).norm(), bar))
for bar in (5e-5, 1e-4):
    leaks.reject(f"a sum, over {bar}", ADDED_UP, by_move(lambda a, b: (a - b).abs().sum(), bar))
leaks.reject("a bar of 3e-6", "is the bar below 1e-5", cut_by_cut(bar=lambda y: 3e-6))
leaks.accept("a bar of 9e-5", cut_by_cut(bar=lambda y: 9e-5))
SUMMED = "rounding in each derivative.*or a norm or sum taken"
leaks.reject(
    "derivatives added up",
    SUMMED,
    by_jacobian(fold=lambda j: 0.3 * j.abs().sum((0, 2, 3, 5))),  # a bar of 3e-5
)
leaks.reject(
    "later inputs of the sequence before",
    "above 3.*went unnoticed.*in sequence 1 alone",
    cut_by_cut(change=lambda x: torch.cat([torch.randn_like(x[:1]), x[:-1]])),
)
depends.reject(
    "derivatives added up", SUMMED, map_by_jacobian(lambda j: j.abs().sum((1, 3)), bar=3e-5)
)
MANY = "0.0001, in sequence 1 alone; a move of 1e-4 counts.*or a mean taken"
leaks.reject("a mean over sequences", MANY, by_move(lambda a, b: (a - b).abs().mean(0), 9e-5))
leaks.reject(
    "a mean over positions", MANY, by_move(lambda a, b: (a - b).abs().amax(-1).mean(), 9e-5)
)
leaks.reject(
    "a mean over positions before each input",
    "a move of 1e-4 counts.*or a mean taken",
    one_by_one(lambda moved, j: 1e-5 / 9e-5 * moved[:, :j].abs().amax(-1).mean()),
)
leaks.reject("a bar of 2e-4", "is the bar too high", cut_by_cut(bar=lambda y: 2e-4))
leaks.reject(
    "how long outputs are",
    "between two LayerNorms.*forgets .* how long a vector is$",
    by_move(lambda a, b: (a.norm(dim=-1) - b.norm(dim=-1)).abs(), 3e-5),
)
NORMED = "rounding in each of many features.*too many.*or a norm or sum taken"
depends.reject("a norm", NORMED, map_by_change(move=lambda moved: moved.norm(dim=1), bar=3e-5))
depends.reject("a sum", NORMED, map_by_change(move=lambda moved: moved.abs().sum(1), bar=9e-5))
depends.reject(
    "the diagonal presumed",
    "need not depend on its own input",
    then(lambda found: found | torch.eye(len(found), dtype=torch.bool)),
)


# What is told of infinity, of rounded outputs and of small moves


def lowest_added(share):
    """Add the lowest number, or a share of it, to hidden scores."""

    def answer(scores, may):
        lowest = share * torch.finfo(scores.dtype).min
        return (scores + lowest * ~may).softmax(dim=-1) * may

    return answer


def infinite_exponentials(scores, may):
    top = scores.masked_fill(~may, -1e30).amax(-1, keepdim=True)
    e = (scores - top).exp() * may
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


def mean_and_exponentials(scores, may):
    scores = scores.double()
    mean = (scores * may).sum(-1, keepdim=True) / may.sum(-1, keepdim=True)
    e = (scores - mean).masked_fill(~may, -INF).exp()
    return (e / e.sum(-1, keepdim=True)).nan_to_num()


weights.reject("the lowest number added", f"3e.38, -3e.38, -1e.38.*{PLACE}", lowest_added(1))
weights.reject("half of the lowest number added", "lowered too little", lowest_added(0.5))
weights.reject("exponentials times the mask", r"nan, nan, nan\]\]$", infinite_exponentials)
weights.reject(
    "the visible mean taken off in float64",
    r"far apart, and no number overflows.*came \[\[0, 0, 0\]\]$",
    mean_and_exponentials,
)


def rounded(decimals):
    return lambda a, b: (a.round(decimals=decimals) != b.round(decimals=decimals)).float()


SIDES = "close numbers can be rounded to different ones"
for decimals in (3, 4, 5):
    leaks.reject(f"rounded to {decimals} decimals", SIDES, by_move(rounded(decimals)))
for number in (torch.nan, INF):
    leaks.reject(
        f"{number} put in",
        "alarm.*are the new inputs finite",
        cut_by_cut(change=lambda part, number=number: torch.full_like(part, number)),
    )
leaks.reject(
    "fifty times as large",
    "alarm.*grows with the numbers",
    cut_by_cut(change=lambda part: 50 * fresh(part), bar=lambda y: 3e-5),
)
leaks.reject(
    "a tenth added",
    "0.0001.*change too small",
    cut_by_cut(change=lambda part: part + fresh(part) / 10, bar=lambda y: 3e-5),
)
leaks.reject("squares", "is the bar too high", by_move(lambda a, b: (a - b).square(), 3e-5))

for bar in (2e-4, 3e-4, 7e-4, 1e-2):
    depends.reject(f"a bar of {bar}", "a move of 1e-4 counts", map_by_change(bar=bar))
    depends.reject(f"derivatives over {bar}", "a move of 1e-4 counts", map_by_jacobian(bar=bar))
depends.reject("a bar of 1e-30", "too many.*is the bar below 1e-5", map_by_change(bar=1e-30))
depends.reject("a bar of 1e-6", "too many", map_by_change(bar=1e-6))
depends.reject(
    "moves added",
    "added over features, with their signs, cancel$",
    map_by_change(move=lambda moved: moved.sum(1).abs()),
)
depends.reject(
    "NaN put in",
    "too many.*are the new inputs finite",
    map_by_change(
        change=lambda part: torch.full_like(part, torch.nan), move=lambda m: m.isnan().any(1)
    ),
)
depends.reject(
    "a thousandth of a row's largest move",
    r"missing: \(0, 1\).*or with other moves",
    lambda network, x: beside_the_largest(torch.autograd.functional.jacobian(network, x)),
)


def beside_the_largest(jacobian):
    size = jacobian.abs().amax((1, 3))
    return size > (1e-3 * size.amax(1, keepdim=True)).clamp(min=1e-5)


depends.accept("in float64", lambda network, x: map_by_change()(network, x.double()))
depends.accept("a bar of 9e-5", map_by_change(bar=9e-5))


# What an answer takes for a row with no key left, and what it leaves replaced


weights.reject(
    "one empty row empties the matrix",
    "beside a row with no key left, the others keep their weights",
    lambda s, m: torch.where(filled(s, m).isnan().any(-2, keepdim=True), 0, filled(s, m)),
)
weights.reject(
    "key 0 hidden taken for an empty row",
    r"is not causal, leaves the weights \[\[0.714.*first key is hidden became zeros$",
    lambda s, m: filled(s, m).masked_fill(~m[..., :1], 0),
)


def mean_and_bound(scores, may):
    e = (scores - scores.mean(-1, keepdim=True)).clamp(max=80).exp() * may
    return e / e.sum(-1, keepdim=True).clamp(min=1e-9)


weights.reject(
    "the mean of all scores taken off, then a bound",
    "cut off, as they come or after something is taken off",
    mean_and_bound,
)


def signs(part):
    return fresh(part).sign()


def beside_the_run_before(network, x):
    """Replace one input after the other, and none back."""
    before, other = network(x), x.clone()
    if before.isnan().any():
        return True
    for j in range(1, x.shape[1]):
        other[:, j] = fresh(x[:, j])
        after = network(other)
        if (after - before)[:, :j].abs().max() > 1e-5:
            return True
        before = after
    return False


def map_beside_the_run_before(order):
    def answer(network, x):
        before, other = network(x), x.clone()
        found = torch.zeros(len(x), len(x), dtype=torch.bool)
        for j in order(range(len(x))):
            other[j] = fresh(x[j])
            after = network(other)
            found[:, j] = (after - before).abs().amax(dim=1) > 1e-5
            before = after
        return found

    return answer


def relative(sizes):
    """Set aside what is small beside the largest derivative."""
    return sizes * (sizes > 1e-5 * sizes.max())


BACK = "is each input put back"
leaks.reject("each run beside the one before", BACK, beside_the_run_before)
leaks.reject("new numbers of 1 and -1", "does not tell 1 from -1", cut_by_cut(change=signs))
leaks.reject(
    "derivatives beside the largest",
    "100 times input i.*other moves or derivatives",
    by_jacobian(fold=lambda j: relative(j.abs().amax((0, 2, 3, 5)))),
)
LONELY = "one feature of output -2.*in sequence 2 alone.*or a mean taken"
leaks.reject(
    "a mean over sequences and positions", LONELY, by_move(lambda a, b: (a - b).abs().mean((0, 1)))
)
leaks.reject("a root mean square", LONELY, by_move(lambda a, b: (a - b).square().mean().sqrt()))
leaks.reject(
    "a bar of 5e-6",
    "rounding in each of many features.*when this check tried.*below 1e-5 is rounding",
    cut_by_cut(bar=lambda y: 5e-6),
)
depends.reject(
    "each run beside the one before",
    "the mask is forgotten.*missing",
    map_beside_the_run_before(iter),
)
depends.reject(
    "the same from the end",
    rf"the last input begins.*missing: \(1, 2\); too many: none; {BACK}",
    map_beside_the_run_before(reversed),
)
depends.reject("new numbers of 1 and -1", "does not tell 1 from -1", map_by_change(change=signs))
depends.reject(
    "derivatives beside the largest",
    "100 times input i.*other moves or derivatives",
    map_by_jacobian(lambda j: relative(j.abs().amax((1, 3)))),
)
