"""Answers to lab 2."""

from __future__ import annotations

import torch

from labkit.checks import causal_mask
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
mask.reject("all open", "6 of the future", lambda n: torch.ones(n, n).bool())
mask.reject("itself only", "up to and including", lambda n: torch.eye(n).bool())
mask.reject("numbers", "is boolean", lambda n: torch.ones(n, n).tril())
mask.reject("form to be added", "is boolean", lambda n: torch.full((n, n), -INF).triu(1))
mask.reject("always six", r"shape \(4, 4\)", lambda n: torch.ones(6, 6).tril().bool())
mask.reject("always four", r"shape \(1, 1\)", lambda n: torch.ones(4, 4).tril().bool())
mask.reject("axis for the batch", "shape", lambda n: torch.ones(1, n, n).tril().bool())
mask.reject("a list of lists", "tensor", lambda n: torch.ones(n, n).tril().bool().tolist())
mask.reject("backwards", "itself|future", lambda n: torch.ones(n, n).tril().bool().flip(1))
mask.reject(
    "the last key for all",
    "future",
    lambda n: (torch.ones(n, n).tril() + (torch.arange(n) == n - 1)).bool(),
)
mask.reject("flat", "shape", lambda n: torch.ones(n, n).tril().bool().flatten())

# What an answer may exploit


def in_bfloat16(n):
    place = torch.arange(n).to(torch.bfloat16)  # 256 and 257 become equal
    return place <= place[:, None]


mask.reject("eight places back", "past's places are hidden", lambda n: mask_by_loop(n).triu(-7))
mask.reject("a buffer of 64", "shape", lambda n: torch.ones(64, 64).tril().bool()[:n, :n])
mask.reject("places in bfloat16", "of the future", in_bfloat16)
mask.reject("one place has no axes", "shape", lambda n: mask_by_loop(n).squeeze())
mask.reject("bytes", "is boolean", lambda n: mask_by_loop(n).byte())


def by_fractions(n):
    place = torch.arange(0, 1, 1 / n)  # 50 places for 49 positions
    return place <= place[:, None]


def by_ways(n):
    step = torch.eye(n) + torch.eye(n).roll(1, dims=0).tril()
    return torch.linalg.matrix_power(step, n) > 0  # inf times 0 is not above 0


def by_decay(n):
    place = torch.arange(n)
    distance = place[:, None] - place
    return 0.5 ** distance.abs() * (distance >= 0) > 0  # 0 from a distance of 150 on


mask.accept("an upper triangle, transposed", lambda n: torch.ones(n, n).bool().triu().T)
mask.reject("positions as fractions", "shape", by_fractions)
mask.reject("numbers of ways overflow", "itself", by_ways)
mask.reject("a decay underflows", "past's places are hidden", by_decay)
mask.reject("a buffer of 500", "shape", lambda n: mask_by_loop(500)[:n, :n])

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
additive.accept("half precision", lambda may: torch.where(may, 0.0, -INF).half())

additive.reject("0 times infinity", "NaN", lambda may: (~may).float() * -INF)
additive.reject("polarity", "0 is added", lambda may: torch.where(may, -INF, 0.0))
additive.reject("-1e9", "−∞ is added", lambda may: torch.where(may, 0.0, -1e9))
additive.reject(
    "lowest number",
    "−∞ is added",
    lambda may: torch.where(may, 0.0, torch.finfo(torch.float32).min),
)
additive.reject("plus infinity", "−∞ is added", lambda may: torch.where(may, 0.0, INF))
additive.reject("1 and −∞", "0 is added", lambda may: torch.where(may, 1.0, -INF))
additive.reject("as numbers", "0 is added", lambda may: may.float())
additive.reject("hidden as 1", "−∞ is added", lambda may: (~may).float())
additive.reject("minus 1", "−∞ is added", lambda may: may.float() - 1)
additive.reject("boolean", "floating", lambda may: ~may)
additive.reject("whole numbers", "floating", lambda may: torch.where(may, 0, -(10**9)))
additive.reject("always causal", "is added", lambda may: torch.full(may.shape, -INF).triu(1))
additive.reject("6 × 6", "shape", lambda may: torch.full((6, 6), -INF).triu(1))
additive.reject("the mask changed", "in place", additive_in_place)
additive.reject("columns only", "shape", lambda may: torch.where(may[0], 0.0, -INF))
additive.reject("infinity into whole numbers", "it runs", lambda may: (~may).long().fill_(-INF))

# What an answer may exploit


def in_memory_order(may):
    flat = may.as_strided((may.numel(),), (1,))
    return torch.where(flat, 0.0, -INF).view(may.shape)


def first_matrix(may):
    return may[(0,) * (may.ndim - 2)].expand(may.shape)


additive.accept("reciprocal", lambda may: 1 - 1 / may.double())
additive.accept("from lists", lambda may: torch.tensor(may.tolist()).float().log())
additive.reject(
    "a row with no key is opened",
    "came .*where the mask is False",
    lambda may: additive_by_loop(may | ~may.any(dim=-1, keepdim=True)),
)
additive.reject("in the order of memory", "is added", in_memory_order)
additive.reject("no axes of size 1", "shape", lambda may: additive_by_loop(may.squeeze()))
additive.reject("two axes at least", "shape", lambda may: additive_by_loop(torch.atleast_2d(may)))
additive.reject(
    "the first matrix for all", "is added", lambda may: additive_by_loop(first_matrix(may))
)
additive.reject(
    "one list of numbers for all rows",
    "is added",
    lambda may: additive_by_loop(may[..., :1, :].expand(may.shape)),
)
additive.reject("one axis at least", "shape", lambda may: additive_by_loop(torch.atleast_1d(may)))
additive.reject(
    "a square of the last axis",
    "shape",
    lambda may: torch.zeros(may.shape[-1:] * 2).masked_fill(~may, -INF),
)
additive.reject(
    "the first keys, as many as are open",
    "is added",
    lambda may: additive_by_loop(
        torch.arange(may.shape[-1]) < may.sum(dim=-1, keepdim=True) if may.ndim else may
    ),
)

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
weights.accept(
    "added mask in float64",
    lambda s, m: (s.double() + m.double().log()).softmax(-1).nan_to_num(0.0),
)

weights.reject(
    "no mask",
    "hidden weight is exactly 0.*mask makes no difference",
    lambda s, m: s.softmax(dim=-1),
)
weights.reject("polarity", "here it hides", lambda s, m: filled(s, ~m).nan_to_num())
weights.reject("NaN in the empty row", "no key left", filled)
weights.reject("uniform in the empty row", "no key left", lambda s, m: filled(s, m, -3.4e38))
weights.reject("-1e9", "very low scores", lambda s, m: filled(s, m, -1e9).masked_fill(~m, 0.0))
weights.reject("-1e4 added", "hidden score has no say", lambda s, m: (s - 1e4 * ~m).softmax(-1))
weights.reject("zeros after the softmax", "left sums to 1.*hidden after the softmax", after)
weights.reject("zeros, then division", "hidden score has no say", after_with_division)
weights.reject("scores set to 0", "a score of 0 is a score", lambda s, m: (s * m).softmax(dim=-1))
weights.reject(
    "over the queries", "runs over the queries", lambda s, m: s.masked_fill(~m, -INF).softmax(-2)
)
weights.reject(
    "the second axis",
    "over the last axis",
    lambda s, m: s.masked_fill(~m, -INF).softmax(dim=min(1, s.ndim - 1)).nan_to_num(),
)
weights.reject(
    "one empty row empties all",
    "other rows stay",
    lambda s, m: filled(s, m) if m.any(dim=-1).all() else torch.zeros(s.shape),
)
weights.reject("in place", "in place", fill_in_place)
weights.reject(
    "always causal",
    "handed over.*a causal mask was used",
    lambda s, m: filled(s, torch.ones(s.shape[-2:]).tril().bool()).nan_to_num(),
)
weights.reject(
    "equal shares",
    "proportions.*open keys share alike",
    lambda s, m: m / m.sum(-1, keepdim=True).clamp(min=1) + 0 * s,
)
weights.reject(
    "not normalised",
    "left sums to 1",
    lambda s, m: (s - s.amax(-1, keepdim=True)).exp().masked_fill(~m, 0.0),
)
weights.reject("one matrix at a time", "it runs", lambda s, m: filled(s.view(3, 3), m).nan_to_num())

# What an answer may exploit


def right_weights(scores, may):
    return filled(scores, may).masked_fill(~may, 0.0)


def by_logsumexp(scores, may):
    hidden = torch.where(may, scores, -INF)
    return (hidden - hidden.logsumexp(dim=-1, keepdim=True)).exp().where(may, 0.0)


def mask_of_first(axis):
    """Use the mask of the first sequence or head for all."""

    def answer(scores, may):
        wide = may.expand(scores.shape)
        return right_weights(scores, wide.narrow(axis, 0, 1) if wide.ndim > 2 else wide)

    return answer


def mended_if_first(scores, may):
    """Mend what comes of rows with no key left only where none comes before the second row."""
    p = filled(scores, may)
    return p if p.ndim > 2 and p[..., 0, :].isnan().any() else p.nan_to_num()


def unshifted(dtype):
    def answer(scores, may):
        e = scores.to(dtype).exp() * may
        return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)

    return answer


def zero_is_hidden(scores, may):
    kept = scores * may
    return kept.masked_fill(kept == 0, -INF).softmax(dim=-1).nan_to_num()


weights.accept("score minus logsumexp", by_logsumexp)
weights.accept(
    "the lowest number, then zeros",
    lambda s, m: filled(s, m, torch.finfo(s.dtype).min).masked_fill(~m, 0.0),
)
weights.reject("the first sequence's mask", "in row .*came as", mask_of_first(0))
weights.reject("the first head's mask", "in row .*came as", mask_of_first(-3))
weights.reject("the first query's mask", "in row .*came as", mask_of_first(-2))
weights.reject("a mask with all axes", "it runs", lambda s, m: right_weights(s, m.view(s.shape)))
weights.reject("mended by the first row", "are NaN", mended_if_first)
weights.reject("exponentials overflow", "no number overflows", unshifted(torch.float32))
weights.reject("overflow in float64", "no number overflows", unshifted(torch.float64))
weights.reject(
    "scores clamped", "no number overflows", lambda s, m: right_weights(s.clamp(-80, 80), m)
)
weights.reject(
    "low scores clamped", "best of low scores", lambda s, m: right_weights(s.clamp(min=-1e3), m)
)
weights.reject("-1e30", "very low", lambda s, m: filled(s, m, -1e30).masked_fill(~m, 0.0))
weights.reject("a score of 0 is hidden", r"proportions.*came \[0, 1\]", zero_is_hidden)
weights.reject(
    "a trace on hidden keys of later heads",
    "in row .*came as",
    lambda s, m: right_weights(s, m) + 1e-6 * ~m * (s.ndim > 2),
)
weights.reject("transposed", "the mask is transposed", lambda s, m: right_weights(s, m.mT))
weights.reject(
    "as many queries as keys",
    r"shape \(1, 3\)",
    lambda s, m: right_weights(s, m | torch.zeros(s.shape[-1], s.shape[-1]).bool()),
)


def shifted_by(top):
    """Take the same number off all scores of a row before they are hidden."""
    return lambda s, m: right_weights(s - top(s, m), m)


def there_and_back(scores, may):
    top = scores.amax(dim=-1, keepdim=True)
    scores.sub_(top)
    p = right_weights(scores, may)
    scores.add_(top)  # what is left of small scores is rounded
    return p


def powers_of_two(scores, may):
    hidden = (scores * 1.4426950408889634).masked_fill(~may, -INF)
    top = hidden.amax(dim=-1, keepdim=True).clamp(min=-3e38)
    power = torch.exp2(hidden - top)
    return power / power.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def shifted_by_all(scores, may):
    hidden = scores.masked_fill(~may, -INF)
    e = (hidden - hidden.max().clamp(min=-3e38)).exp()
    return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)


weights.accept("float64 and logsumexp", lambda s, m: by_logsumexp(s.double(), m))
weights.reject(
    "shifted by a hidden score", "has no say", shifted_by(lambda s, m: s.amax(-1, keepdim=True))
)
weights.reject("shifted by the largest of all", "in row .*came as", shifted_by_all)
weights.reject(
    "the lowest number added",
    "very low",
    lambda s, m: (s + torch.finfo(s.dtype).min * ~m).softmax(dim=-1).masked_fill(~m, 0.0),
)
weights.reject(
    "rounded", "sum over .* keys is off", lambda s, m: right_weights(s, m).round(decimals=4)
)
weights.reject("changed and changed back", "in place", there_and_back)
weights.reject("powers of two", "no number overflows", powers_of_two)
weights.reject("in half precision", "left sums to 1", lambda s, m: right_weights(s.half(), m))

# A test that says whether anything leaks
leaks = Exercise(causal_mask.leaks)


def fresh(part):
    return torch.randn_like(part)


def cut_by_cut(change=fresh, seen=lambda difference, cut: difference[:, :cut], cuts=None):
    """Change the inputs from each cut on, and look at how far the outputs before it move."""

    def answer(network, x):
        before = network(x)
        for cut in range(1, x.shape[1]) if cuts is None else cuts(x.shape[1]):
            other = torch.cat([x[:, :cut], change(x[:, cut:])], dim=1)
            if not seen(network(other) - before, cut).abs().max() <= 1e-5:
                return True
        return False

    return answer


def one_by_one(seen=lambda difference, j: difference[:, :j], size=1.0):
    """Replace each input alone, and look at how far earlier outputs move."""

    def answer(network, x):
        before = network(x)
        for j in range(1, x.shape[1]):
            other = x.clone()
            other[:, j] += size * fresh(x[:, j])
            if not seen(network(other) - before, j).abs().max() <= 1e-5 * size:
                return True
        return False

    return answer


def by_prefix(network, x):
    whole = network(x)
    return any(
        not (network(x[:, :n]) - whole[:, :n]).abs().max().item() <= 1e-5
        for n in range(1, x.shape[1])
    )


def by_jacobian(
    take=lambda network, x: torch.func.jacrev(network)(x),
    fold=lambda j: j.abs().sum((0, 2, 3, 5)),
    sees_nan=lambda out: out.isnan().any(),
):
    """Fold a derivative (B, n, d, B, n, d) to (n, n)."""

    def answer(network, x):
        if sees_nan(network(x)):
            return True
        return not bool((fold(take(network, x)).triu(1) <= 1e-5).all())

    return answer


def by_backward(along):
    """Look at the gradient of a sum of each output's features, each times a number."""

    def answer(network, x):
        if network(x).isnan().any():
            return True
        for i in range(x.shape[1] - 1):
            leaf = x.clone().requires_grad_()
            (network(leaf)[:, i] * along(x.shape[-1])).sum().backward()
            if not leaf.grad[:, i + 1 :].abs().max() <= 1e-5:
                return True
        return False

    return answer


def by_backward_from_squares(network, x):
    return by_backward(torch.ones)(lambda leaf: network(leaf).square(), x)


def calm_prefix(network, x):
    whole = network(x)
    return any(
        ((network(x[:, :n]) - whole[:, :n]).abs() > 1e-5).any() for n in range(1, x.shape[1])
    )


def rounded(network):
    return lambda x: network(x).round(decimals=3)


def relative(network, x):
    before = network(x)
    for cut in range(1, x.shape[1]):
        after = network(torch.cat([x[:, :cut], fresh(x[:, cut:])], dim=1))
        if not torch.allclose(after[:, :cut], before[:, :cut], atol=1e-5):
            return True
    return False


def all_at_once(network, x):
    """Try all cuts as one batch."""
    b, n, d = x.shape
    place = torch.arange(n)
    many = torch.where((place >= place[:, None])[:, None, :, None], torch.randn(n, b, n, d), x)
    moved = network(x=many.flatten(0, 1)).view(n, b, n, d) - network(x=x)
    return torch.tensor([not (moved[cut, :, :cut].abs() <= 1e-5).all() for cut in range(n)]).any()


def spoils_its_argument(network, x):
    before = network(x)
    x[:, -1] = 0
    return bool((network(x) - before)[:, :-1].abs().max() > 1e-6)


leaks.accept("replaced from every cut on", cut_by_cut())
leaks.accept("one input at a time", one_by_one())
leaks.accept("small changes, in float64", lambda net, x: one_by_one(size=1e-3)(net, x.double()))
leaks.accept("each sequence by itself", lambda net, x: any(cut_by_cut()(net, s[None]) for s in x))
leaks.accept("all cuts in one batch", all_at_once)
leaks.accept("Jacobian", by_jacobian(torch.autograd.functional.jacobian))
leaks.accept("Jacobian, vectorised", by_jacobian())
leaks.accept("forward mode", by_jacobian(lambda net, x: torch.func.jacfwd(net)(x)))
leaks.accept("backward along random numbers", by_backward(torch.randn))

UNNOTICED = "True: .*went unnoticed"
ALARM = "a false alarm"
leaks.reject("always calm", UNNOTICED, lambda network, x: False)
leaks.reject("always alarmed", ALARM, lambda network, x: True)
leaks.reject("changes nothing", UNNOTICED, cut_by_cut(change=lambda part: part))
leaks.reject("changes the past", ALARM, one_by_one(seen=lambda moved, j: moved[:, j + 1 :].sum(1)))
leaks.reject("looks at all outputs", ALARM, cut_by_cut(seen=lambda moved, cut: moved))
leaks.reject(
    "one position too many", ALARM, cut_by_cut(seen=lambda moved, cut: moved[:, : cut + 1])
)
leaks.reject("how much instead of whether", "True or False", lambda network, x: 0.5)
leaks.reject(
    "a truth for each position",
    "True or False",
    lambda network, x: (network(x + 1) - network(x)).abs().amax((0, 2)) > 0,
)
leaks.reject("its argument changed", "in place", spoils_its_argument)

# What an answer may exploit
for mistake, cuts in {
    "the cut in the middle only": lambda n: [n // 2],
    "the first cut only": lambda n: [1],
    "the last cut only": lambda n: [n - 1],
    "every second cut": lambda n: range(1, n, 2),
    "cuts up to three": lambda n: range(1, min(n, 4)),
    "all cuts but the last": lambda n: range(1, n - 1),
    "all cuts but the first": lambda n: range(2, n),
}.items():
    leaks.reject(mistake, UNNOTICED, cut_by_cut(cuts=cuts))
for mistake, change in {
    "one is added to all features": lambda part: part + 1,
    "twice the future": lambda part: 2 * part,
    "the sign changed": lambda part: -part,
    "the future set to zero": torch.zeros_like,
    "the future backwards": lambda part: part.flip(1),
    "twice the future and one": lambda part: 2 * part + 1,
    "the features backwards": lambda part: part.flip(-1),
    "the future set to one": torch.ones_like,
    "the future set to its mean": lambda part: part.mean(dim=1, keepdim=True).expand_as(part),
    "a random multiple": lambda part: part * torch.randn(part.shape[:2])[..., None],
    "noise as large as the future": lambda part: part + part.std() * fresh(part),
    "one number for all features": lambda part: fresh(part[..., :1]).expand_as(part),
    "the sequences exchanged": lambda part: part.roll(1, dims=0),
    "only the first feature": lambda part: torch.cat([fresh(part[..., :1]), part[..., 1:]], -1),
    "only the last feature": lambda part: torch.cat([part[..., :-1], fresh(part[..., -1:])], -1),
    "hardly a change": lambda part: part + 1e-3 * fresh(part),
}.items():
    leaks.reject(mistake, UNNOTICED, cut_by_cut(change=change))
for mistake, seen in {
    "the first sequence only": lambda moved, cut: moved[0, :cut],
    "the last sequence only": lambda moved, cut: moved[-1, :cut],
    "the first feature only": lambda moved, cut: moved[:, :cut, 0],
    "the last feature only": lambda moved, cut: moved[:, :cut, -1],
    "the output before the input only": lambda moved, cut: moved[:, cut - 1],
    "the first output only": lambda moved, cut: moved[:, 0],
    "a sum over features": lambda moved, cut: moved[:, :cut].sum(-1),
    "a mean over outputs": lambda moved, j: moved[:, :j].abs().mean(),
    "a sum over outputs": lambda moved, cut: moved[:, :cut].sum(1),
    "NaN taken for 0": lambda moved, cut: moved[:, :cut].nan_to_num(),
    "more than a hundredth": lambda moved, cut: moved[:, :cut] * 1e-3,
    "more than a thousandth": lambda moved, cut: moved[:, :cut] * 1e-2,
}.items():
    leaks.reject(mistake, UNNOTICED, one_by_one(seen=seen))
for mistake, fold in {
    "derivatives added": lambda j: j.sum((0, 2, 3, 5)).abs(),
    "derivatives added over output features": lambda j: j.sum(2).abs().sum((0, 2, 4)),
    "derivatives added over input features": lambda j: j.sum(5).abs().sum((0, 2, 3)),
    "positive derivatives only": lambda j: j.clamp(min=0).sum((0, 2, 3, 5)),
    "each feature with itself": lambda j: torch.einsum("bipcjp->ij", j.abs()),
}.items():
    leaks.reject(mistake, UNNOTICED, by_jacobian(fold=fold))
leaks.reject("backward from a sum of features", UNNOTICED, by_backward(torch.ones))
leaks.reject(
    "any number that is not the same",
    ALARM,
    cut_by_cut(seen=lambda moved, cut: 9.0 * (moved[:, :cut] != 0)),
)
leaks.reject("backward from squares", UNNOTICED, by_backward_from_squares)
leaks.reject("later inputs left out", f"{UNNOTICED}|{ALARM}", by_prefix)
leaks.reject("later inputs left out, calm if NaN", ALARM, calm_prefix)
leaks.reject("NaN of derivatives only", UNNOTICED, by_jacobian(sees_nan=lambda out: False))
leaks.reject(
    "NaN of the first feature only",
    UNNOTICED,
    by_jacobian(sees_nan=lambda out: out[..., 0].isnan().any()),
)
leaks.reject("inputs of its own", UNNOTICED, lambda network, x: cut_by_cut()(network, fresh(x)))
leaks.reject("a relative tolerance", UNNOTICED, relative)
leaks.reject("n up to nine", UNNOTICED, lambda net, x: cut_by_cut()(net, x[:, :9]))
leaks.reject("the last nine", UNNOTICED, lambda net, x: cut_by_cut()(net, x[:, -9:]))
leaks.reject(
    "rounded outputs", f"{UNNOTICED}|{ALARM}", lambda net, x: cut_by_cut()(rounded(net), x)
)
leaks.reject("NaN in the future", ALARM, cut_by_cut(change=lambda part: part * torch.nan))


# A map of what depends on what
def one_vector_for_all(network, x):
    before = network(x)
    for cut in range(1, x.shape[1]):
        other = x.clone()
        other[:, cut:] = torch.randn(x.shape[-1])
        moved = (network(other) - before)[:, cut - 1].abs().max()
        if not moved <= 1e-5:
            return True
    return False


leaks.reject("the same new vector for all later inputs", "came False", one_vector_for_all)


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
depends.accept("Jacobian, as high a bar as may be", map_by_jacobian(bar=1e-4))
depends.accept("change, as high a bar as may be", map_by_change(bar=1e-4))
depends.accept("in float64", lambda net, x: map_by_jacobian()(net, x.double()))


def one_more_each_time(network, x):
    """Replace one more input each time, and compare with the time before."""
    x, columns = x.clone(), []
    before = network(x)
    for j in range(len(x)):
        x[j] = fresh(x[j])
        after = network(x)
        columns.append((after - before).abs().amax(dim=1) > 1e-5)
        before = after
    return torch.stack(columns, dim=1)


def map_relative(network, x):
    before, columns = network(x), []
    for j in range(len(x)):
        other = torch.cat([x[:j], fresh(x[j : j + 1]), x[j + 1 :]])
        columns.append(~network(other).isclose(before, atol=1e-5).all(dim=1))
    return torch.stack(columns, dim=1)


def with_mean(network, x):
    return map_by_change(change=lambda part: x.mean(dim=0))(network, x)


def with_next(network, x):
    """Put the next input in the place of each."""
    following = iter(x.roll(-1, dims=0))
    return map_by_change(change=lambda part: next(following))(network, x)


PAIRS = "pairs of output and input that depend"
depends.reject("transposed", "rows and columns have changed places", then(lambda found: found.T))
depends.reject("only the past", PAIRS, then(torch.tril))
depends.reject("a causal mask", PAIRS, lambda net, x: torch.ones(len(x), len(x)).tril().bool())
depends.reject("everything", "too many", lambda net, x: torch.ones(len(x), len(x)).bool())
depends.reject("nothing", "none are too many", lambda net, x: torch.zeros(len(x), len(x)).bool())
depends.reject("strengths", "boolean", then(torch.Tensor.float))
depends.reject("as lists", "tensor", then(torch.Tensor.tolist))
depends.reject("every feature apart", "shape", map_by_jacobian(fold=torch.abs))
depends.reject("summed over outputs", "shape", map_by_jacobian(fold=lambda j: j.sum((0, 1, 3))))

# What an answer may exploit
depends.reject("no diagonal", PAIRS, then(lambda found: found & ~torch.eye(len(found)).bool()))
depends.reject(
    "the diagonal always", PAIRS, then(lambda found: found | torch.eye(len(found)).bool())
)
depends.reject("both ways", PAIRS, then(lambda found: found | found.T))
depends.reject("five positions", "shape", then(lambda found: found[:5, :5]))
depends.reject("one position has no axes", "shape", then(torch.squeeze))
depends.reject(
    "seven inputs at most",
    "any pairs at all.*are missing",
    then(lambda found: found & (torch.arange(len(found)) < 7)),
)
depends.reject("a staircase", PAIRS, then(lambda found: found.cummax(dim=0).values))
depends.reject("all from each input on", PAIRS, from_each_on)
depends.reject("one more each time", PAIRS, one_more_each_time)
depends.reject("rounded outputs", PAIRS, lambda net, x: map_by_change()(rounded(net), x))
depends.reject("a relative tolerance", PAIRS, map_relative)
depends.reject("the mean in its place", PAIRS, with_mean)
depends.reject("the next in its place", PAIRS, with_next)
depends.reject("an input of its own", PAIRS, lambda net, x: map_by_jacobian()(net, fresh(x)))
depends.reject(
    "backward from squares",
    PAIRS,
    lambda net, x: map_by_backward(torch.ones)(lambda leaf: net(leaf).square(), x),
)
for mistake, fold in {
    "the first output feature": lambda j: j.abs()[:, 0].amax(2),
    "the last output feature": lambda j: j.abs()[:, -1].amax(2),
    "the first input feature": lambda j: j.abs()[..., 0].amax(1),
    "the last input feature": lambda j: j.abs()[..., -1].amax(1),
    "each feature with itself": lambda j: torch.einsum("ipjp->ij", j.abs()),
    "positive derivatives only": lambda j: j.amax((1, 3)),
    "derivatives added": lambda j: j.sum((1, 3)).abs(),
    "derivatives added over output features": lambda j: j.sum(1).abs().amax(2),
    "derivatives added over input features": lambda j: j.sum(3).abs().amax(1),
    "more than a thousandth": lambda j: j.abs().amax((1, 3)) * 1e-2,
    "more than a hundredth of the largest": lambda j: j.abs().amax((1, 3)) / j.abs().max() * 1e-3,
}.items():
    depends.reject(mistake, PAIRS, map_by_jacobian(fold=fold))
for mistake, change in {
    "one is added to all features": lambda part: part + 1,
    "one is added to the first feature": lambda part: torch.cat([part[:1] + 1, part[1:]]),
    "twice the input": lambda part: 2 * part,
    "twice the input and one": lambda part: 2 * part + 1,
    "zero": torch.zeros_like,
    "one": torch.ones_like,
    "the features backwards": lambda part: part.flip(-1),
    "one number for all features": lambda part: fresh(part[:1]).expand_as(part),
    "the sign changed": lambda part: -part,
    "hardly a change": lambda part: part + 1e-3 * fresh(part),
}.items():
    depends.reject(f"change: {mistake}", PAIRS, map_by_change(change=change))
depends.reject(
    "changes added", PAIRS, map_by_change(move=lambda difference: difference.sum(1).abs())
)
depends.reject("any number that is not the same", "too many", map_by_change(bar=0))
depends.reject("backward from a sum of features", PAIRS, map_by_backward(torch.ones))
