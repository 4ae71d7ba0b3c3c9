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

weights.reject("no mask", "hidden weight is exactly 0", lambda s, m: s.softmax(dim=-1))
weights.reject("polarity", "hidden weight|left sums", lambda s, m: filled(s, ~m).nan_to_num())
weights.reject("NaN in the empty row", "no key left", filled)
weights.reject("uniform in the empty row", "no key left", lambda s, m: filled(s, m, -1e30))
weights.reject("-1e9", "very low scores", lambda s, m: filled(s, m, -1e9).masked_fill(~m, 0.0))
weights.reject("-1e4 added", "hidden score has no say", lambda s, m: (s - 1e4 * ~m).softmax(-1))
weights.reject("zeros after the softmax", "left sums to 1", after)
weights.reject("zeros, then division", "hidden score has no say", after_with_division)
weights.reject("scores set to 0", "hidden weight", lambda s, m: (s * m).softmax(dim=-1))
weights.reject(
    "over the queries", "left sums to 1", lambda s, m: s.masked_fill(~m, -INF).softmax(0)
)
weights.reject(
    "the second axis",
    "the last axis",
    lambda s, m: s.masked_fill(~m, -INF).softmax(dim=1).nan_to_num(),
)
weights.reject(
    "one empty row empties all",
    "other rows stay",
    lambda s, m: filled(s, m) if m.any(dim=-1).all() else torch.zeros(s.shape),
)
weights.reject("in place", "in place", fill_in_place)
weights.reject(
    "always causal",
    "handed over",
    lambda s, m: filled(s, torch.ones(s.shape[-2:]).tril().bool()).nan_to_num(),
)
weights.reject(
    "equal shares", "proportions", lambda s, m: m / m.sum(-1, keepdim=True).clamp(min=1) + 0 * s
)
weights.reject(
    "not normalised",
    "left sums to 1",
    lambda s, m: (s - s.amax(-1, keepdim=True)).exp().masked_fill(~m, 0.0),
)
weights.reject("one matrix at a time", "it runs", lambda s, m: filled(s.view(3, 3), m).nan_to_num())

# A test that says whether anything leaks
leaks = Exercise(causal_mask.leaks)


def replaced(x, cut):
    other = x.clone()
    other[:, cut:] = torch.randn_like(x[:, cut:])
    return other


def at_every_cut(network, x):
    before = network(x)
    for cut in range(1, x.shape[1]):
        if not torch.allclose(network(replaced(x, cut))[:, :cut], before[:, :cut], atol=1e-6):
            return True
    return False


def by_jacobian(network, x):
    jacobian = torch.autograd.functional.jacobian(network, x).abs()
    reach = torch.einsum("bipcjq->ij", jacobian)
    return bool(reach.triu(1).ne(0).any())


def by_backward(network, x):
    for i in range(x.shape[1] - 1):
        leaf = x.clone().requires_grad_()
        network(leaf)[:, i].square().sum().backward()
        if leaf.grad[:, i + 1 :].any():
            return True
    return torch.tensor(False)


def by_prefix(network, x):
    whole = network(x)
    return any(
        not (network(x[:, :n]) - whole[:, :n]).abs().max().item() <= 1e-5
        for n in range(1, x.shape[1])
    )


def only_middle(network, x):
    half = x.shape[1] // 2
    return bool((network(replaced(x, half)) - network(x))[:, :half].abs().max() > 1e-6)


def changed_at(x, position):
    other = x.clone()
    other[:, position] += 1
    return other


def spoils_its_argument(network, x):
    before = network(x)
    x[:, -1] = 0
    return bool((network(x) - before)[:, :-1].abs().max() > 1e-6)


leaks.accept("replaced from every cut on", at_every_cut)
leaks.accept("prefixes", by_prefix)
leaks.accept("Jacobian", by_jacobian)
leaks.accept("backward, as a tensor", by_backward)

leaks.reject("always calm", "an alarm", lambda network, x: False)
leaks.reject("always alarmed", "no alarm", lambda network, x: True)
leaks.reject("cut in the middle only", "an alarm: only the first", only_middle)
leaks.reject(
    "last input only",
    "an alarm",
    lambda network, x: bool((network(changed_at(x, -1)) - network(x))[:, :-1].abs().max() > 1e-6),
)
leaks.reject(
    "second input only",
    "an alarm",
    lambda network, x: bool((network(changed_at(x, 1)) - network(x))[:, :1].abs().max() > 1e-6),
)
leaks.reject(
    "looks at all outputs",
    "no alarm",
    lambda network, x: bool((network(changed_at(x, -1)) - network(x)).abs().max() > 1e-6),
)
leaks.reject(
    "changes the past",
    "no alarm",
    lambda network, x: bool((network(changed_at(x, 0)) - network(x))[:, 1:].abs().max() > 1e-6),
)
leaks.reject(
    "bar too high",
    "an alarm",
    lambda network, x: any(
        (network(replaced(x, cut)) - network(x))[:, :cut].abs().max() > 0.5
        for cut in range(1, x.shape[1])
    ),
)
leaks.reject(
    "changes nothing", "an alarm", lambda network, x: bool((network(x) - network(x)).any())
)
leaks.reject(
    "first sequence only",
    "second sequence",
    lambda network, x: any(
        (network(replaced(x, cut)) - network(x))[0, :cut].abs().max() > 1e-6
        for cut in range(1, x.shape[1])
    ),
)
leaks.reject(
    "first feature only",
    "last feature",
    lambda network, x: any(
        (network(replaced(x, cut)) - network(x))[:, :cut, 0].abs().max() > 1e-6
        for cut in range(1, x.shape[1])
    ),
)
leaks.reject(
    "deaf to NaN",
    "all becomes NaN",
    lambda network, x: any(
        (network(replaced(x, cut)) - network(x))[:, :cut].abs().max() > 1e-6
        for cut in range(1, x.shape[1])
    ),
)
leaks.reject(
    "next position only",
    "an alarm",
    lambda network, x: any(
        (network(changed_at(x, i + 1)) - network(x))[:, i].abs().max() > 1e-6
        for i in range(1, x.shape[1] - 1)
    ),
)
leaks.reject("how much instead of whether", "True or False", lambda network, x: 0.5)
leaks.reject(
    "a truth for each position",
    "True or False",
    lambda network, x: (network(changed_at(x, -1)) - network(x)).abs().amax((0, 2)) > 0,
)
leaks.reject("its argument changed", "in place", spoils_its_argument)
leaks.reject("one position too many", "no alarm", lambda network, x: any(
    (network(replaced(x, cut)) - network(x))[:, : cut + 1].abs().max() > 1e-6
    for cut in range(1, x.shape[1])
))  # fmt: skip

# A map of what depends on what
depends = Exercise(causal_mask.dependence)


def map_by_jacobian(network, x):
    return torch.autograd.functional.jacobian(network, x).abs().sum(dim=(1, 3)) > 0


def map_by_change(network, x):
    before, columns = network(x), []
    for j in range(len(x)):
        other = x.clone()
        other[j] = torch.randn(x.shape[1])
        columns.append(((network(other) - before).abs() > 1e-7).any(dim=1))
    return torch.stack(columns, dim=1)


def map_by_backward(network, x):
    rows = []
    for i in range(len(x)):
        leaf = x.clone().requires_grad_()
        (network(leaf)[i] * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        rows.append(leaf.grad.abs().sum(dim=1) > 0)
    return torch.stack(rows)


def jacobian(network, x):
    return torch.autograd.functional.jacobian(network, x)


depends.accept("Jacobian", map_by_jacobian)
depends.accept("change one input", map_by_change)
depends.accept("backward from each output", map_by_backward)

depends.reject("transposed", "changed places", lambda net, x: map_by_jacobian(net, x).T)
depends.reject("only the past", "pairs that depend", lambda net, x: map_by_jacobian(net, x).tril())
depends.reject("a causal mask", "pairs that depend", lambda net, x: torch.ones(5, 5).tril().bool())
depends.reject("everything", "pairs that depend", lambda net, x: torch.ones(5, 5).bool())
depends.reject("nothing", "pairs that depend", lambda net, x: torch.zeros(5, 5).bool())
depends.reject(
    "first output feature",
    "mirror|pairs that depend",
    lambda net, x: jacobian(net, x)[:, 0].abs().sum(2) > 0,
)
depends.reject(
    "same feature in and out",
    "pairs that depend",
    lambda net, x: torch.einsum("ipjp->ij", jacobian(net, x).abs() * (torch.arange(3) == 0)) > 0,
)
depends.reject(
    "positive only", "pairs that depend", lambda net, x: jacobian(net, x).sum((1, 3)) > 0
)
depends.reject("strengths", "boolean", lambda net, x: jacobian(net, x).abs().sum((1, 3)))
depends.reject("every feature apart", "shape", lambda net, x: jacobian(net, x) != 0)
depends.reject(
    "bar too high", "pairs that depend", lambda net, x: jacobian(net, x).abs().sum((1, 3)) > 0.1
)
depends.reject(
    "summed over outputs", "shape", lambda net, x: jacobian(net, x).abs().sum((0, 1, 3)) > 0
)
depends.reject("as lists", "tensor", lambda net, x: map_by_jacobian(net, x).tolist())
depends.reject(
    "no diagonal",
    "pairs that depend",
    lambda net, x: map_by_jacobian(net, x) & ~torch.eye(5).bool(),
)
