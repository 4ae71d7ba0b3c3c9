"""Lab 3: multi-head attention from its parts, and PyTorch's weights in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from labkit import merge_heads, split_heads
from labkit.attention import scaled_dot_product_attention
from labkit.labs.guard import (
    Answer,
    Outcome,
    apart,
    exercise,
    kind,
    near,
    recognise,
    right,
    same,
    show,
)
from labkit.models.encoder import load_encoder

Mistakes = list[tuple[str, Tensor]]  # what goes wrong, in words, and what comes then
LINEARS = ("w_q", "w_k", "w_v", "w_o")
SENTENCES = ["The keys to the cabinet are on the table.", "She lost her keys."]
HEADS = ((2, 3, 5, 4), (3, 1, 4, 2), (1, 4, 2, 3), (2, 3, 1, 1))  # (B, h, n, d)
MOST = 10_000.0  # that a score can be, above zero or below
BOUNDS = (50, 80, 100, 1_000, 5_000)  # at which people cut scores off
LOW = (100, 1_000, 5_000, 10_000)  # what people hide a score by, and what is too little


@exercise
def project(function: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> None:
    """Check x W^T + b: (..., d_in), (d_out, d_in) and (d_out,) or None to (..., d_out)."""
    answer = Answer("project", function)
    x, weight = torch.tensor([[[1.0, 10.0]]]), torch.tensor([[1.0, 2], [0, 3], [4, -1]])
    bias = torch.tensor([100.0, 200.0, 300.0])
    small = answer(x=x, weight=weight, bias=bias)
    out = small.tensor(1, 1, 3)
    mistakes = {
        "weight is reshaped, which moves no number, and not transposed": (
            x @ weight.reshape(2, 3) + bias
        ),
        "the bias is missing": x @ weight.T,
        "the bias is added twice": x @ weight.T + 2 * bias,
    }
    small.demand(
        near(out, [[[121, 230, 294]]]),
        "each row of weight makes one number, the first 1·1 + 2·10 + 100 = 121, so that "
        "121, 230, 294 comes out",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    draw = drawing()
    for shape, d_in, d_out in (
        ((2, 5), 4, 3), ((3,), 6, 2), ((2, 3, 4), 5, 7), ((), 8, 9), ((2, 3), 6, 6)
    ):  # fmt: skip
        x, weight, bias = (draw(*s) for s in ((*shape, d_in), (d_out, d_in), (d_out,)))
        bias[d_out // 2] = 0  # which is a bias like any other
        for b in (bias, None):
            expect(
                answer(x=x, weight=weight, bias=b),
                F.linear(x, weight, b),
                "the same matrix and the same bias for every position of every sequence"
                if b is not None
                else "bias is None, so that only the matrix counts, the same for every position",
                partial(misprojected, x, weight, b),
            )
    right("project", "Every position gets its new numbers, with a bias or without.")


@exercise
def split(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check the cut into heads: (B, n, h*d) to (B, h, n, d)."""
    answer = Answer("split", function)
    x = torch.arange(24.0).view(1, 4, 6)
    small = answer(x=x, h=2)
    for shape, told in {
        (1, 4, 2, 3): "the axis of the heads is still behind that of the tokens",
        (1, 3, 4, 2): "h is taken for the width of a head",
    }.items():
        came = getattr(small.value, "shape", None)
        small.demand(came != shape, "it has the shape (1, 2, 4, 3)", f"came {shape}; {told}")
    heads = small.tensor(1, 2, 4, 3)
    mistakes = {
        "the heads are in the opposite order": split_heads(x, 2).flip(1),
        "each head got whole tokens, and not a part of every token": x.view(1, 2, 4, 3),
        "the features are dealt out in turn": x.view(1, 4, 3, 2).permute(0, 3, 1, 2),
    }
    small.demand(
        near(heads, split_heads(x, 2)),
        "the numbers of x count from 0; head 0 gets the first 3 of every token, 0, 1, 2 and "
        "6, 7, 8 and so on, and head 1 the next 3",
        f"head 0 has {show(heads[0, 0])}{recognise(heads, mistakes)}",
    )
    draw = drawing()
    for B, h, n, d in HEADS:
        x = draw(B, n, h * d)
        told = "head i holds the features i·d to i·d + d − 1 of every token, for every sequence"
        expect_places(answer(x=x, h=h), split_heads(x, h), told)
    right("split", "Each head has its own part of every token.")


@exercise
def attend(function: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> None:
    """Check scaled dot-product attention with an optional boolean mask, for all heads at once."""
    answer = Answer("attend", function)
    # Five sizes that differ, B and h apart: then a scale tells what it was made of.
    q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 3)
    q[0, 0, :, 0], k[0, 0, 1, 0] = torch.tensor([16.0, 256.0]).log(), 1
    v[0, 0, 0, 0], v[0, 0, 1, 1], v[0, 0, 4, 2] = 8, 16, 24
    small = answer(q=q, k=k, v=v, may=None)
    out = small.tensor(1, 1, 2, 3)
    wanted = torch.tensor([[[[1, 8, 3], [0.4, 12.8, 1.2]]]]).double()
    small.demand(
        near(out, wanted),
        "the first query's scores, ln 16 for key 1 and 0 for the four others, with d_k = 4 get "
        "the weights 1/2 and four times 1/8, so that 1, 8, 3 comes out",
        f"came {show(out)}{misdone(out, wanted, misattended(q, k, v, None))}",
    )
    k[0, 0, 2, 0] = 0.5
    some = torch.tensor([[False, True, False, False, True], [False, True, False, False, False]])
    small = answer(q=q, k=k, v=v, may=some)
    out = small.tensor(1, 1, 2, 3)
    wanted = torch.tensor([[[[0, 12.8, 4.8], [0, 16, 0]]]]).double()
    small.demand(
        near(out, wanted),
        "the first query may attend to keys 1 and 4: their scores, ln 16 and 0, with d_k = 4 get "
        "the weights 4/5 and 1/5, so that 0, 12.8, 4.8 comes out",
        f"came {show(out)}{misdone(out, wanted, misattended(q, k, v, some))}",
    )
    draw = drawing()
    for B, h, n_q, n_k, d_k, d_v in (
        (2, 3, 5, 6, 8, 7), (3, 1, 4, 2, 5, 6), (1, 2, 1, 3, 4, 1), (2, 3, 12, 12, 12, 5)
    ):  # fmt: skip
        # As a split gives them: views of (B, n, h, d).
        q, k, v = (
            draw(B, *s).transpose(1, 2) for s in ((n_q, h, d_k), (n_k, h, d_k), (n_k, h, d_v))
        )
        for may in masks(B, h, n_q, n_k):
            expect(
                answer(q=q, k=k, v=v, may=may),
                scaled_dot_product_attention(q, k, v, may),
                "scaled dot-product attention, for each sequence and each head by itself"
                + ("" if may is None else ", over the keys where the mask is True"),
                partial(misattended, q, k, v, may),
            )
    # Queries that read their scores from the keys: whole numbers, so that they are exact.
    q, loud = 2 * torch.eye(5, 4).expand(2, 3, 5, 4), torch.tensor([1.0, 100, 5_000, 1e5])
    scores = (draw(2, 3, 6, 4) * loud).round().clamp(-MOST, MOST)
    v = draw(2, 3, 6, 7)
    for may in masks(2, 3, 5, 6):
        expect(
            no_nan(answer(q=q, k=scores, v=v, may=may)),
            scaled_dot_product_attention(q, scores, v, may),
            "large scores do no harm, those of hidden keys neither",
            partial(misattended, q, scores, v, may),
            within=1e-2,
        )
    right("attend", "Scale, mask and softmax are right, in every head.")


@exercise
def merge(function: Callable[[Tensor], Tensor]) -> None:
    """Check the heads side by side: (B, h, n, d) to (B, n, h*d)."""
    answer = Answer("merge", function)
    heads = torch.arange(24.0).view(1, 2, 4, 3)
    small = answer(heads=heads)
    out = small.tensor(1, 4, 6)
    mistakes = {
        "the heads' axis is not moved back": heads.reshape(1, 4, 6),
        "the features are dealt out in turn": heads.permute(0, 2, 3, 1).reshape(1, 4, 6),
    }
    small.demand(
        near(out, merge_heads(heads)),
        "head 0 has the numbers from 0 to 11, head 1 those from 12 to 23; a token's row is what "
        "head 0 has for it, then what head 1 has, for token 1 3, 4, 5, 15, 16, 17",
        f"token 1 has {show(out[0, 1])}{recognise(out, mistakes)}",
    )
    draw = drawing()
    for B, h, n, d in HEADS:
        heads = draw(B, h, n, d)
        told = "head i fills the places i·d to i·d + d − 1 of every token, for every sequence"
        expect_places(answer(heads=heads), merge_heads(heads), told)
    right("merge", "Token by token, the heads stand side by side.")


@exercise
def output(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Check the heads, merged and projected: (B, h, n, d) to (B, n, d_model)."""
    answer = Answer("output", function)
    heads = torch.tensor([[[[1.0, 2.0]], [[3.0, -1.0]]]])
    weight = torch.tensor([[1.0, 0, 1, 2], [0, 1, 2, 0], [2, 0, 0, 1]])
    bias = torch.tensor([10.0, 20, 30])
    small = answer(heads=heads, weight=weight, bias=bias)
    out = small.tensor(1, 1, 3)
    side_by_side = merge_heads(heads)
    mistakes = {
        "the bias is missing": side_by_side @ weight.T,
        "the bias is added once for each head": side_by_side @ weight.T + 2 * bias,
        "only the first head counts": heads[:, 0] @ weight[:, :2].T + bias,
        "all heads meet the columns of the first": heads.sum(1) @ weight[:, :2].T + bias,
        "the heads are averaged": side_by_side @ weight.T / 2 + bias,
        "the heads are in the opposite order": merge_heads(heads.flip(1)) @ weight.T + bias,
        "weight is reshaped, which moves no number, and not transposed": (
            side_by_side @ weight.reshape(4, 3) + bias
        ),
    }
    small.demand(
        near(out, [[[12, 28, 31]]]),
        "the heads side by side are 1, 2, 3, −1; with the bias they give 12, 28, 31",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    draw = drawing()
    for (B, h, n, d), more in zip(HEADS, (3, 3, 0, 3), strict=True):
        heads, weight, bias = draw(B, h, n, d), draw(h * d + more, h * d), draw(h * d + more)
        unmoved = F.linear(heads.reshape(B, n, h * d), weight, bias)
        wrong = misprojected(merge_heads(heads), weight, bias)
        expect(
            answer(heads=heads, weight=weight, bias=bias),
            F.linear(merge_heads(heads), weight, bias),
            "each token's heads are side by side before they meet W_O",
            partial(list, [("the heads' axis is not moved back", unmoved), *wrong]),
        )
    right("output", "All heads write, into as many numbers as the model is wide.")


@exercise
def multi_head(function: Callable[[int, int], nn.Module]) -> None:
    """Check a class of layers: (d_model, h) makes one that maps x and a mask to the output."""
    if isinstance(function, nn.Module):
        raise Outcome("MultiHead", {}, function).complaint(
            "the class itself", f"came {kind(function)}; hand over the name, without brackets"
        )
    build, draw = Answer("MultiHead", function), drawing()
    for d_model, h in ((12, 3), (10, 2), (7, 1)):
        layer = linears(build(d_model=d_model, h=h), d_model)
        fill(layer, draw)
        expect_no_chance(layer, draw(6, 8, d_model))
        for B, n in ((6, 8), (8, 11), (1, 5)):
            for may in masks(B, h, n, n):
                expect_output(layer, h, draw(B, n, d_model), may)
        expect_gradients(layer, draw(6, 8, d_model))
        x = at_the_bounds(layer, d_model // h, draw(6, 8, d_model))
        for may in masks(6, h, 8, 8):
            expect_output(layer, h, x, may, loud=True)
    right("MultiHead", "It gives what labkit's functions give with the same weights.")


@exercise
def from_torch(function: Callable[[nn.MultiheadAttention], nn.Module]) -> None:
    """Check a copy of PyTorch's layer: it gives the same, and lives by itself."""
    answer, draw = Answer("from_torch", function), drawing()
    for d_model, h in ((12, 3), (10, 2), (7, 1)):
        with torch.random.fork_rng(devices=[]):
            theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
        fill(theirs, draw)
        expect_copy(answer, theirs, draw(6, 8, d_model), [*masks(6, h, 8, 8)])
    right("from_torch", "Your layer and PyTorch's give the same.")


@exercise
def pretrained(function: Callable[[nn.MultiheadAttention], nn.Module]) -> None:
    """Check that a copy of a pretrained layer gives what that layer gives, on real sentences."""
    answer = Answer("from_torch", function)
    # Once without the model, so that a stub is told first.
    linears(answer(theirs=nn.MultiheadAttention(8, 2, batch_first=True)), 8)
    try:
        encoder = load_encoder()
    except ModuleNotFoundError as error:
        print(f"from_torch: not tried on the pretrained model: {error}")
        return
    read = encoder.encode(SENTENCES)
    for number in (0, len(encoder.blocks) - 1):
        theirs = encoder.blocks[number].attention.to_torch()
        whose = f"layer {number} of the pretrained model"
        expect_copy(answer, theirs, read.hidden[number], [read.mask[:, None, None, :]], whose, 1e-3)
    right("from_torch", "Your layer runs the first and the last layer of a pretrained model.")


# What is drawn


def drawing() -> Callable[..., Tensor]:
    """Return what draws normal numbers: in every check the same."""
    generator = torch.Generator().manual_seed(3)
    return lambda *shape: torch.randn(shape, generator=generator)


def masks(B: int, h: int, n_q: int, n_k: int) -> Iterator[Tensor | None]:
    """Draw masks of two or four axes that leave every query a key; first none."""
    generator = torch.Generator().manual_seed(5)
    yield None
    for shape in ((B, h, n_q, n_k), (n_q, n_k), (B, 1, 1, n_k), (1, h, n_q, n_k)):
        may = torch.rand(shape, generator=generator) < 0.5
        hidden = torch.randint(n_k, (*shape[:-1], 1), generator=generator)
        may.scatter_(-1, hidden, value=False)
        yield may.scatter(-1, (hidden + 1) % n_k, value=True)


def for_any(may: Tensor | None) -> Tensor | None:
    """Take the mask of the first head, which serves any number of them."""
    return may if may is None or may.dim() < 3 else may.narrow(-3, 0, 1)


def fill(layer: nn.Module, draw: Callable[..., Tensor]) -> None:
    """Fill all parameters of a layer, biases included, with numbers of many digits."""
    with torch.no_grad():
        for _, parameter in sorted(layer.named_parameters()):
            parameter.copy_(draw(*parameter.shape) / 1.7)


def at_the_bounds(layer: Any, d: int, x: Tensor) -> Tensor:
    """Fill queries and keys so that all scores lie near MOST or −MOST, by the first of x's numbers.

    They differ from it by a few, so that neither bound can stand for "hidden".
    """
    x = x.clone()
    x[..., 0] = torch.where(x[..., 0] < 0.5, -1, 1)  # more low ones: some rows see no other
    size = ((MOST - 3) / d**0.5) ** 0.5
    with torch.no_grad():
        for part in (layer.w_q, layer.w_k):
            part.weight.clamp_(-1, 1).mul_(0.003)
        layer.w_q.bias.fill_(size)
        layer.w_k.weight[:, 0] = size
        layer.w_k.bias.zero_()
    return x


# What should come, and what comes by mistake


def expect(
    outcome: Outcome,
    wanted: Tensor,
    told: str,
    mistakes: Callable[[], Mistakes] = list,
    within: float = 1e-4,
) -> None:
    """Demand numbers that are off by little, measured by the largest; name a usual mistake."""
    out, largest = outcome.tensor(*wanted.shape), float(wanted.abs().max()) or 1.0
    if not near(out / largest, wanted.detach() / largest, within):
        known = [(mistake, came / largest) for mistake, came in mistakes()]
        why = cause(out / largest, known, within)
        if not why and near(out / largest, wanted.detach() / largest, 20 * within):
            why = ", though by little"
        outcome.demand(False, told, f"some numbers differ{why}")


def expect_places(outcome: Outcome, wanted: Tensor, told: str) -> None:
    """Demand numbers that have only changed places."""
    out = outcome.tensor(*wanted.shape)
    whole = near(out, wanted, 1.0) and torch.equal(out, out.round())
    in_each, wanted_in_each = (x.flatten(1).sort().values for x in (out, wanted))
    if whole or near(out, wanted, 1e-2):
        happened = "digits are lost"
    elif near(in_each, wanted_in_each):
        happened = "some numbers are in another place"
    else:
        happened = "the numbers of a sequence are not all in that sequence"
    outcome.demand(near(out, wanted), told, happened)


def no_nan(outcome: Outcome) -> Outcome:
    """Demand numbers where scores are large, and say that they are: the example is not shown."""
    bad = int(outcome.value.isnan().sum()) if isinstance(outcome.value, Tensor) else 0
    outcome.demand(
        not bad,
        "numbers, although scores here are in the thousands, and the largest may be hidden",
        f"{bad} are NaN: an exponential is too large, or a sum of weights is 0",
    )
    return outcome


def cause(out: Tensor, mistakes: Mistakes, within: float = 1e-4) -> str:
    """Name the mistake that gives this output; several outputs may have the same name."""
    named = (recognise(out, {told: came}, within) for told, came in mistakes)
    return next(filter(None, named), "")


def misdone(out: Tensor, wanted: Tensor, mistakes: Mistakes) -> str:
    """Name the mistake, or tell the first number of a query that is off."""
    off, told = ~torch.isclose(out, wanted, rtol=1e-4, atol=1e-4), cause(out, mistakes)
    if told or not off.any():
        return told
    at = tuple(off.nonzero()[0].tolist())
    came, should = apart(out[at].item(), wanted[at].item())
    return f"; query {at[-2]} has {came} in place {at[-1]}, where {should} belongs"


def misprojected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Mistakes:
    """Give what comes out without a bias, and of mistakes that need a square matrix."""
    known = [] if bias is None else [("the bias is missing", x @ weight.T)]
    if weight.shape[0] != weight.shape[1]:
        return known
    b = torch.zeros(()) if bias is None else bias
    return [
        *known,
        ("weight is not transposed", x @ weight + b),
        ("the bias is added before the matrix", (x + b) @ weight.T),
    ]


def misattended(q: Tensor, k: Tensor, v: Tensor, may: Tensor | None) -> Mistakes:
    """Give what comes out when attention goes wrong, by the words for it."""
    (_, h, n_q, d_k), n_k = q.shape, k.shape[-2]
    scales = {
        "the scale is missing": 1.0,
        "the scale is 1/d_k": 1 / d_k,
        "the scores are multiplied by √d_k": d_k**0.5,
        "the scale is 1/√d_model": (h * d_k) ** -0.5,
        "the scale is 1/√d_v": v.shape[-1] ** -0.5,
        "the scale is 1/√h": h**-0.5,
    }
    right_one = scaled_dot_product_attention
    mistakes = {told: right_one(q, k, v, may, scale=s) for told, s in scales.items()}
    scores = q @ k.mT / d_k**0.5
    hidden = scores if may is None else scores.masked_fill(~may, -torch.inf)
    for whose, axes in {"a head": (-1, -2), "all heads": (0, 1, 2, 3)}.items():
        e = (hidden - hidden.amax(axes, keepdim=True)).exp()
        shares = (e / e.sum(-1, keepdim=True)).nan_to_num()
        mistakes[f"from each query's scores the largest of {whose} is taken off"] = shares @ v
    if scores.abs().max() > min(BOUNDS):
        for most in BOUNDS:
            told = f"scores are cut off at {most:,}"
            mistakes[told] = hidden.clamp(-most, most).masked_fill(hidden.isinf(), -torch.inf)
            mistakes[told] = mistakes[told].softmax(-1) @ v
    if may is None:
        reshaped = q @ k.reshape(*k.shape[:-2], d_k, n_k) / d_k**0.5
        earlier = torch.ones(n_q, n_k).tril().bool()
        mistakes |= {
            "the weights of a key sum to 1 over the queries": scores.softmax(-2) @ v,
            "the weights sum to 1 over the heads": scores.softmax(1) @ v,
            "the keys are not transposed"
            if n_k == d_k
            else "the keys are reshaped, which moves no number, and not transposed": (
                reshaped.softmax(-1) @ v
            ),
            "later tokens are hidden, though no mask is given": right_one(q, k, v, earlier),
        }
        return list(mistakes.items())
    mistakes |= {
        "the mask is not used": right_one(q, k, v),
        "True and False have changed places": right_one(q, k, v, ~may),
        "weights are set to 0 after the softmax": (scores.softmax(-1) * may) @ v,
        "hidden scores are set to 0, and e to the 0 is 1": (scores * may).softmax(-1) @ v,
        "the mask is added, as ones and zeros": (scores + may.float()).softmax(-1) @ v,
        "allowed scores of 0 are hidden too": (
            scores.masked_fill(~may | (scores == 0), -torch.inf).softmax(-1) @ v
        ),
    }
    if n_q == n_k:
        turned = scores.masked_fill(~may.mT, -torch.inf)
        mistakes["rows and columns of the mask have changed places"] = turned.softmax(-1) @ v
    if may.dim() == 4:
        mistakes |= {
            "the mask of the first sequence hides in all": right_one(q, k, v, may[:1]),
            "the mask of the first head hides in all": right_one(q, k, v, may[:, :1]),
            "one sequence's and one head's mask hides in all": right_one(q, k, v, may[:1, :1]),
        }
    e = scores.softmax(-1) * may
    told = "the softmax or its maximum sees hidden keys"
    mistakes[told] = e / (e.sum(-1, keepdim=True) + 1e-9) @ v
    lowered = [scores.masked_fill(~may, -low) for low in LOW]
    lowered += [scores - low * ~may for low in LOW]
    told = "hidden scores are low, but others can be as low"
    # At the bounds a low score and a score of 0 can give the same, so the low ones come first.
    return [*((told, low.softmax(-1) @ v) for low in lowered), *mistakes.items()]


def expected(layer: Any, h: int, x: Tensor, may: Tensor | None) -> Tensor:
    """Compute what a layer with these weights and h heads gives."""
    q, k, v = (split_heads(part, h) for part in projected(layer, x))
    return written(layer, merge_heads(scaled_dot_product_attention(q, k, v, may)))


def projected(layer: Any, x: Tensor) -> list[Tensor]:
    """Map x to queries, keys and values."""
    return [F.linear(x, part.weight, part.bias) for part in (layer.w_q, layer.w_k, layer.w_v)]


def written(layer: Any, x: Tensor) -> Tensor:
    """Map what the heads have, side by side, to the output."""
    return F.linear(x, layer.w_o.weight, layer.w_o.bias)


def wrong_outputs(layer: Any, h: int, x: Tensor, may: Tensor | None) -> Mistakes:
    """Give what comes out when one step of a layer goes wrong, by the words for it."""
    q, k, v = projected(layer, x)

    def attended(
        q: Tensor, k: Tensor, v: Tensor, heads: int = h, may: Tensor | None = may
    ) -> Tensor:
        q, k, v = (split_heads(part, heads) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, may)

    right_heads = attended(q, k, v)
    q_, k_, v_ = (part.reshape(len(x), h, x.shape[1], -1) for part in (q, k, v))
    of_whole_tokens = scaled_dot_product_attention(q_, k_, v_, may)
    joined = {
        "each head got whole tokens, and not a part of every token": merge_heads(of_whole_tokens),
        "neither split nor merge moves an axis": of_whole_tokens.reshape(x.shape),
        "the heads' axis is not moved back before W_O": right_heads.reshape(x.shape),
        "h is taken for the width of a head": merge_heads(
            attended(q, k, v, x.shape[-1] // h, for_any(may))
        ),
        "everything is one head": merge_heads(attended(q, k, v, 1, for_any(may))),
        "the keys serve as values": merge_heads(attended(q, k, k)),
        "the keys are made by w_q": merge_heads(attended(q, q, v)),
        "the queries are made by w_k": merge_heads(attended(k, k, v)),
        "the values are made by w_q": merge_heads(attended(q, k, q)),
        "the values are made from the keys": merge_heads(
            attended(q, k, F.linear(k, layer.w_v.weight, layer.w_v.bias))
        ),
        "the values are x itself, without w_v": merge_heads(attended(q, k, x)),
        "queries and keys have changed places": merge_heads(attended(k, q, v)),
    }
    q, k, v = (split_heads(part, h) for part in (q, k, v))
    in_heads = misattended(q, k, v, may)
    three = {"queries": q, "keys": k, "values": v}

    def instead(name: str, part: Tensor) -> Tensor:
        q, k, v = ({**three, name: part}).values()
        return merge_heads(scaled_dot_product_attention(q, k, v, may))

    for name, viewed in zip(three, (q_, k_, v_), strict=True):
        part = getattr(layer, f"w_{name[0]}")
        turned = split_heads(F.linear(x, part.weight.T, part.bias), h)
        joined[f"the {name} are split by one view, in which heads get whole tokens"] = instead(
            name, viewed
        )
        joined[f"w_{name[0]} is transposed"] = instead(name, turned)
    side_by_side = [*joined.items(), *((told, merge_heads(heads)) for told, heads in in_heads)]
    w_o, done = layer.w_o, merge_heads(right_heads)
    early = instead("values", split_heads(written(layer, merge_heads(v)), h))
    of_tokens = expected(layer, h, x.transpose(0, 1), None).transpose(0, 1)
    return [
        ("W_O is missing", done),
        ("the bias of w_o is missing", done @ w_o.weight.T),
        ("W_O is applied to the values", early),
        ("a ReLU is applied before W_O", written(layer, done.relu())),
        ("sequences are taken for tokens", of_tokens),
        ("W_O is transposed", done @ w_o.weight + w_o.bias),
        ("x is added at the end", x + written(layer, done)),
        *((told, written(layer, heads)) for told, heads in side_by_side),
    ]


# Layers, and what is demanded of them


def linears(outcome: Outcome, d_model: int) -> Any:
    """Return the layer that came, or raise Wrong if it has not the four linear maps it should."""
    layer = outcome.value
    own = isinstance(layer, nn.Module) and not isinstance(layer, nn.MultiheadAttention)
    outcome.demand(own, "an nn.Module of your own", f"came {kind(layer)}")
    for name, (part, shape) in product(
        LINEARS, {"weight": (d_model, d_model), "bias": (d_model,)}.items()
    ):
        linear: Any = getattr(layer, name, None)
        value: Any = getattr(linear, part, None)
        has = "is missing" if linear is None else f"is a {type(linear).__name__}, which has none"
        outcome.demand(
            isinstance(value, Tensor) and not is_lazy(value),
            f"{name} has a {part}, as nn.Linear has",
            f"{name} {has}",
        )
        outcome.demand(
            any(value is parameter for parameter in layer.parameters()),
            f"{name}.{part} is a parameter of the layer",
            "it is not among the layer's parameters()",
        )
        came = tuple(value.shape)
        outcome.demand(came == shape, f"{name}.{part} is {shape}", f"came {came}")
    count, wanted = sum(p.numel() for p in layer.parameters()), 4 * (d_model**2 + d_model)
    outcome.demand(
        count == wanted,
        f"four different maps and nothing else: {wanted} parameters",
        f"the layer has {count}",
    )
    return layer


def expect_output(layer: Any, h: int, x: Tensor, may: Tensor | None, loud: bool = False) -> None:
    """Demand the output that these weights and h heads give, and name the usual mistakes."""
    outcome = run(layer, x, may)
    if loud:
        no_nan(outcome)
    with torch.no_grad():
        expect(
            outcome,
            expected(layer, h, x, may),
            f"project with the present weights, split into {h}, attend, merge, project"
            + ("" if may is None else "; True in the mask means may attend"),
            lambda: wrong_outputs(layer, h, x, may),
            within=1e-2 if loud else 1e-4,
        )


def run(layer: nn.Module, x: Tensor, may: Tensor | None) -> Outcome:
    """Call a learner's layer, with a mask if there is one."""
    return Answer("MultiHead", layer)(x=x, **({} if may is None else {"may": may}))


def expect_no_chance(layer: nn.Module, x: Tensor) -> None:
    """Demand that a second call gives what the first gave: what draws numbers is dropout."""
    answer = Answer("MultiHead", layer)
    first, again = (answer(x=x) for _ in range(2))
    again.demand(
        near(again.tensor(*x.shape), first.tensor(*x.shape)),
        "the same x gives the same output, in training too",
        "a second call gave other numbers; is there dropout?",
    )


def expect_gradients(layer: nn.Module, x: Tensor) -> None:
    """Demand that all parameters of a layer learn."""
    outcome = run(layer, x, None)
    if outcome.value.requires_grad:
        outcome.value.square().sum().backward()
    missing = ", ".join(name for name, p in layer.named_parameters() if p.grad is None)
    outcome.demand(
        not missing,
        "the layer can be trained: gradients arrive in all its parameters",
        f"no gradient arrives in {missing}",
    )


def expect_copy(
    answer: Answer,
    theirs: nn.MultiheadAttention,
    x: Tensor,
    mays: list[Tensor | None],
    whose: str = "PyTorch's layer",
    within: float = 1e-4,
) -> None:
    """Demand a copy that gives what PyTorch's layer gives, and say where a mistake lies."""
    before, training = deepcopy(dict(theirs.named_parameters())), theirs.training
    outcome = answer(theirs=theirs)
    changed = ["training"] if theirs.training != training else []
    for name, value in theirs.named_parameters():
        changed += [name] * (not same(value, before[name]))
        changed += [f"{name}.requires_grad"] * (value.requires_grad != before[name].requires_grad)
    told = f"changed: {', '.join(changed)}"
    outcome.demand(not changed, "PyTorch's layer is left as it was", told)
    ours, h = linears(outcome, theirs.embed_dim), theirs.num_heads
    expect_weights(outcome, ours, theirs, answer)
    for may in mays:
        hide = None if may is None else ~may.expand(len(x), h, *2 * x.shape[1:2]).flatten(0, 1)
        got = run(ours, x, may)
        out = got.tensor(*x.shape)
        with torch.no_grad():
            if near(out, theirs(x, x, x, attn_mask=hide)[0], within):
                continue
            for g in divisors(x.shape[-1]):
                same_as = near(out, expected(ours, g, x, for_any(may)), within)
                outcome.demand(not same_as, f"{h} heads, as {whose} has", f"the copy has {g}")
            got.demand(
                False,
                f"with these weights, those of {whose}, MultiHead gives what that layer gives",
                "from_torch copied all of them, but the output differs"
                + cause(out, wrong_outputs(ours, h, x, may)),
            )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(1)
    again = run(ours, x, mays[-1]).tensor(*x.shape)
    outcome.demand(
        near(again, out),
        "the copy lives by itself",
        "it changes when theirs is changed",
    )


def divisors(number: int) -> list[int]:
    return [g for g in range(1, number + 1) if number % g == 0]


def expect_weights(
    outcome: Outcome, ours: nn.Module, theirs: nn.MultiheadAttention, answer: Answer
) -> None:
    """Demand PyTorch's numbers in each of the four maps, and say what is there instead."""
    parts = {
        "weight": (*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight),
        "bias": (*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias),
    }
    for (part, values), (i, name) in product(parts.items(), enumerate(LINEARS)):
        came = getattr(getattr(ours, name), part)
        value = came.detach().double()
        mistakes = {f"it holds the part of {n}": v for n, v in zip(LINEARS, values, strict=True)}
        outcome.demand(
            came.dtype == values[i].dtype,
            f"the copy's numbers are of PyTorch's type, {values[i].dtype}",
            f"{name}.{part} is of {came.dtype}",
        )
        if name != "w_o":
            joint, h = getattr(theirs, f"in_proj_{part}"), theirs.num_heads
            mistakes["it holds every third row"] = joint[i::3]
            by_head = joint.unflatten(0, (h, 3, -1))[:, i].flatten(0, 1)
            mistakes["rows are cut by heads first, and then into three"] = by_head
        if part == "weight":
            mistakes["it is transposed"] = values[i].T
        else:
            mistakes["they are zeros"] = torch.zeros_like(value)
        if not near(value, values[i].detach(), 0.0):
            told = recognise(value, mistakes)
            again = getattr(getattr(linears(answer(theirs=theirs), len(value)), name), part)
            if not told and not near(value, again.detach().double()):
                told = "; nothing was copied there: a second call gives other numbers"
            expected = f"{name}.{part} holds its part of PyTorch's numbers"
            outcome.demand(False, expected, f"other numbers are there{told}")
