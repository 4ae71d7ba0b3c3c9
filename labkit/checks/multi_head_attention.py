"""Lab 3: multi-head attention from its parts, and PyTorch's weights in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import merge_heads, split_heads
from labkit.attention import scaled_dot_product_attention
from labkit.checks.guard import (
    Answer,
    Outcome,
    exercise,
    kind,
    near,
    recognise,
    right,
    same,
    show,
)
from labkit.encoder import load_encoder

LINEARS = ("w_q", "w_k", "w_v", "w_o")
SENTENCES = ["The keys to the cabinet are on the table.", "She lost her keys."]
# (B, h, n, d) of heads: all different, then one head, one token, width one, sizes that are alike.
HEADS = ((2, 3, 4, 5), (3, 1, 2, 4), (1, 4, 5, 2), (2, 3, 1, 4), (3, 2, 4, 1), (2, 2, 2, 2))


@exercise
def project(function: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> None:
    """Check x W^T + b: (..., d_in), (d_out, d_in) and (d_out,) or None to (..., d_out)."""
    answer = Answer("project", function)
    x, weight = torch.tensor([[[1.0, 10.0]]]), torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    bias = torch.tensor([100.0, 200.0])
    small = answer(x=x, weight=weight, bias=bias)
    out = small.tensor(1, 1, 2)
    mistakes = {
        "the matrix multiplies the other way round": x @ weight + bias,
        "the bias is missing": x @ weight.T,
        "the bias goes through the matrix": (x + bias) @ weight.T,
    }
    small.demand(
        near(out, [[[121, 230]]]),
        "each row of weight makes one number: 1·1 + 2·10 + 100 = 121, 0·1 + 3·10 + 200 = 230",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    draw = drawing()
    shapes = ((2, 3, 4), (3, 4), (4,), (1, 3, 1), (2, 1, 5, 3, 4))
    for shape, d_out, arrange in product(shapes, (5, 4, 1), (as_it_lies, turned)):
        x, weight, bias = draw(*shape), draw(d_out, shape[-1]), draw(d_out)
        bias[:-1:2] = 0
        for b in (bias, None):
            outcome = answer(x=arrange(x), weight=arrange(weight), bias=b)
            out = outcome.tensor(*shape[:-1], d_out)
            outcome.demand(
                near(out, F.linear(x, weight, b)),
                "every position of every sequence is treated by itself, and alike",
                f"some numbers differ{recognise(out, {'the bias is missing': x @ weight.T})}",
            )
    right("project", "Every position gets its new numbers, with a bias or without.")


@exercise
def split(function: Callable[[Tensor, int], Tensor]) -> None:
    """Check the cut into heads: (B, n, h*d) to (B, h, n, d)."""
    answer = Answer("split", function)
    x = torch.arange(12.0).view(1, 3, 4)
    small = answer(x=x, h=2)
    heads = small.tensor(1, 2, 3, 2)
    mistakes = {
        "each head got whole tokens, and not a part of every token": x.view(1, 2, 3, 2),
        "the features are dealt out in turn": x.view(1, 3, 2, 2).permute(0, 3, 1, 2),
        "the heads are in the opposite order": split_heads(x, 2).flip(1),
    }
    small.demand(
        near(heads, split_heads(x, 2)),
        "head 0 gets the first 2 numbers of every token, head 1 the next 2",
        f"came {show(heads)}{recognise(heads, mistakes)}",
    )
    draw = drawing()
    for (B, h, n, d), arrange in product(HEADS, (as_it_lies, turned)):
        x = draw(B, n, h * d).double() / 3
        expect_places(
            answer(x=arrange(x), h=h),
            split_heads(x, h),
            "head i holds the features i·d to i·d + d − 1 of every token, for every sequence",
        )
    right("split", "Each head has its own part of every token.")


@exercise
def attend(function: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> None:
    """Check scaled dot-product attention with an optional boolean mask, for all heads at once."""
    answer = Answer("attend", function)
    # Five sizes that differ, B and h apart: then a scale tells what it was made of.
    q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 3)
    q[0, 0, :, 0], k[0, 0, 0, 0] = torch.tensor([16.0, 256.0]).log(), 1
    v[0, 0, 0, 0], v[0, 0, 1, 1], v[0, 0, 4, 2] = 8, 16, 24
    small = answer(q=q, k=k, v=v, may=None)
    out = small.tensor(1, 1, 2, 3)
    small.demand(
        near(out, [[[[4, 2, 3], [6.4, 0.8, 1.2]]]]),
        "the first query's scores, ln 16 for key 0 and 0 for the four others, with d_k = 4 get "
        "the weights 1/2 and four times 1/8, so that 4, 2, 3 comes out",
        f"came {show(out)}{recognise(out, misattended(q, k, v, None))}",
    )
    draw = drawing()
    sizes = ((2, 3, 5, 6, 8, 7), (3, 2, 4, 4, 3, 3), (2, 4, 7, 3, 16, 5), (1, 2, 1, 6, 2, 1))
    for B, h, n_q, n_k, d_k, d_v in (*sizes, (2, 1, 3, 1, 1, 2)):
        # As a split gives them: views of (B, n, h, d).
        q, k, v = (
            draw(B, *s).transpose(1, 2) for s in ((n_q, h, d_k), (n_k, h, d_k), (n_k, h, d_v))
        )
        q[:, 0, -1] = 0  # a query that scores 0 with every key
        for may in masks(B, h, n_q, n_k):
            outcome = answer(q=q, k=k, v=v, may=may)
            out = outcome.tensor(B, h, n_q, d_v)
            outcome.demand(
                near(out, scaled_dot_product_attention(q, k, v, may)),
                "each query's weights over the keys sum to 1, in each sequence and each head"
                if may is None
                else "True means may attend: what is False weighs nothing, and the rest sums to 1",
                f"some numbers differ{recognise(out, misattended(q, k, v, may))}",
            )
    # Whole numbers, so that the scores are exact; loud and quiet queries side by side.
    q, k, v = (3 * draw(2, 3, 5, 4)).round(), (3 * draw(2, 3, 6, 4)).round(), draw(2, 3, 6, 7)
    loudness = torch.tensor([[256, 1, 0, 64, 256], [1, 256, 64, 1, 1], [64, 1, 1, 256, 128]])
    q = q * loudness[..., None]
    for may in masks(2, 3, 5, 6):
        loud = answer(q=q, k=k, v=v, may=may)
        loud.demand(
            near(loud.tensor(2, 3, 5, 7), scaled_dot_product_attention(q, k, v, may), 1e-2),
            "large scores do no harm",
            "some numbers differ",
        )
    right("attend", "Scale, mask and softmax are right, in every head.")


@exercise
def merge(function: Callable[[Tensor], Tensor]) -> None:
    """Check the heads side by side: (B, h, n, d) to (B, n, h*d)."""
    answer = Answer("merge", function)
    heads = torch.arange(12.0).view(1, 2, 3, 2)
    small = answer(heads=heads)
    out = small.tensor(1, 3, 4)
    mistakes = {
        "the heads' axis is not moved back": heads.reshape(1, 3, 4),
        "the features are dealt out in turn": heads.permute(0, 2, 3, 1).reshape(1, 3, 4),
        "the heads are in the opposite order": merge_heads(heads.flip(1)),
    }
    small.demand(
        near(out, merge_heads(heads)),
        "a token's row is what head 0 has for this token, then what head 1 has",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    draw = drawing()
    for shape, arrange in product(HEADS, (as_it_lies, turned)):
        heads = draw(*shape).double() / 3
        expect_places(
            answer(heads=arrange(heads)),
            merge_heads(heads),
            "head i fills the places i·d to i·d + d − 1 of every token, for every sequence",
        )
    right("merge", "Token by token, the heads stand side by side.")


@exercise
def output(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Check the heads, merged and projected: (B, h, n, d) to (B, n, d_model)."""
    answer = Answer("output", function)
    heads = torch.tensor([[[[1.0, 2.0]], [[3.0, -1.0]]]])
    weight = torch.tensor([[1.0, 0, 1, 2], [0, 1, 1, 0], [2, 0, 0, 1]])
    bias = torch.tensor([10.0, 20, 30])
    small = answer(heads=heads, weight=weight, bias=bias)
    out = small.tensor(1, 1, 3)
    side_by_side = merge_heads(heads)
    mistakes = {
        "the bias is missing": side_by_side @ weight.T,
        "the bias is added once for each head": side_by_side @ weight.T + 2 * bias,
        "the heads are in the opposite order": merge_heads(heads.flip(1)) @ weight.T + bias,
        "only the first head counts": heads[:, 0] @ weight[:, :2].T + bias,
    }
    small.demand(
        near(out, [[[12, 25, 31]]]),
        "the heads side by side are 1, 2, 3, −1; with the bias they give 12, 25, 31",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    draw = drawing()
    arranged = (as_it_lies, turned)
    for (B, h, n, d), more, arrange in product(HEADS, (4, 0, -1), arranged):
        d_model = h * d + more
        heads, weight, bias = draw(B, h, n, d), draw(d_model, h * d), draw(d_model)
        outcome = answer(heads=arrange(heads), weight=arrange(weight), bias=bias)
        out = outcome.tensor(B, n, d_model)
        dealt = heads.permute(0, 2, 3, 1).flatten(-2)
        mistakes = {
            "the heads' axis is not moved back": F.linear(heads.reshape(B, n, -1), weight, bias),
            "the features are dealt out in turn": F.linear(dealt, weight, bias),
        }
        outcome.demand(
            near(out, F.linear(merge_heads(heads), weight, bias)),
            "each token's heads are side by side before they meet W_O",
            f"some numbers differ{recognise(out, mistakes)}",
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
    for d_model, h in ((12, 3), (16, 2), (7, 1), (6, 6)):
        layer = linears(build(d_model=d_model, h=h), d_model)
        fill(layer, draw)
        for B, n, arrange in ((2, 5, as_it_lies), (3, 3, turned), (1, 1, as_it_lies)):
            x = arrange(draw(B, n, d_model))
            layer.train(B != 3)
            for may in masks(B, h, n, n):
                expect_output(layer, h, x, may)
        expect_gradients(layer, h, draw(2, 5, d_model), draw(2, 5, d_model))
    right("MultiHead", "It gives what labkit's functions give with the same weights.")


@exercise
def from_torch(function: Callable[[nn.MultiheadAttention], nn.Module]) -> None:
    """Check a copy of PyTorch's layer: it gives the same, and lives by itself."""
    answer, draw = Answer("from_torch", function), drawing()
    for d_model, h in ((12, 3), (8, 2), (7, 1), (6, 6)):
        for how in ("trained", "fresh", "frozen"):
            with torch.random.fork_rng(devices=[]):
                theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
            if how != "fresh":
                fill(theirs, draw)
            theirs.train(how != "frozen").requires_grad_(how != "frozen")
            expect_copy(answer, theirs, draw(2, 5, d_model), [*masks(2, h, 5, 5)])
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
    """Return what draws sevenths, zeros and twins among them: in every check the same."""
    generator = torch.Generator().manual_seed(3)
    return lambda *shape: (7 * torch.randn(shape, generator=generator)).round() / 7 + 0.0  # no −0


def as_it_lies(x: Tensor) -> Tensor:
    """Give a tensor whose numbers lie in order."""
    return x


def turned(x: Tensor) -> Tensor:
    """Give the same numbers in another order in memory, as a transpose leaves them."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def masks(B: int, h: int, n_q: int, n_k: int) -> Iterator[Tensor | None]:
    """Draw masks that broadcast to (B, h, n_q, n_k) and leave every query a key; first none.

    The next one also hides a key from every query: turned round, it still leaves something.
    """
    generator = torch.Generator().manual_seed(5)
    yield None
    whole = (B, h, n_q, n_k)
    for shape in (whole, (n_q, n_k), (B, 1, 1, n_k), (h, 1, n_k), (B, 1, n_q, n_k), (1, n_k)):
        may = torch.rand(shape, generator=generator) < 0.5
        kept = torch.randint(n_k, (*shape[:-1], 1), generator=generator)
        if shape == whole:
            may.scatter_(-1, (kept + 1) % n_k, value=False)
        yield may.scatter(-1, kept, value=True)


def for_any(may: Tensor | None) -> Tensor | None:
    """Take the mask of the first head, which serves any number of them."""
    return may if may is None or may.dim() < 3 else may.narrow(-3, 0, 1)


def fill(layer: nn.Module, draw: Callable[..., Tensor]) -> None:
    """Fill all parameters of a layer, biases included, with numbers of many digits."""
    with torch.no_grad():
        for _, parameter in sorted(layer.named_parameters()):
            parameter.copy_(draw(*parameter.shape) / 1.7)


# What should come, and what comes by mistake


def expect_places(outcome: Outcome, wanted: Tensor, told: str) -> None:
    """Demand float64 numbers in their places, to the last digit."""
    got = outcome.tensor(*wanted.shape)
    outcome.demand(near(got, wanted), told, "some numbers are in another place")
    outcome.demand(
        near(got, wanted, 0.0),
        "numbers only change places, and float64 ones keep all their digits",
        f"they were rounded; what came is {outcome.value.dtype}",
    )


def misattended(q: Tensor, k: Tensor, v: Tensor, may: Tensor | None) -> dict[str, Tensor]:
    """Give what comes out when attention goes wrong, by the words for it."""
    (_, h, n_q, d_k), (n_k, d_v) = q.shape, v.shape[-2:]
    sizes = {"d_model": h * d_k, "d_v": d_v, "n_q": n_q, "n_k": n_k}
    scales = {
        "the scale is missing": 1.0,
        "the scale is 1/d_k": 1 / d_k,
        "the scores are multiplied by √d_k": d_k**0.5,
        "the root of d_k is cut to a whole number": 1 / int(d_k**0.5),
        **{f"the scale is 1/√{name}": size**-0.5 for name, size in sizes.items()},
    }
    right_one = scaled_dot_product_attention
    mistakes = {told: right_one(q, k, v, may, scale=s) for told, s in scales.items()}
    weights = q @ k.mT / d_k**0.5
    mistakes["the weights of a key sum to 1 over the queries"] = weights.softmax(-2) @ v
    if may is None:
        return mistakes
    mistakes |= {
        "the mask is not used": right_one(q, k, v),
        "True and False have changed places": right_one(q, k, v, ~may),
        "weights are set to 0 after the softmax": (weights.softmax(-1) * may) @ v,
    }
    every = may.expand(weights.shape)
    for axis, one in enumerate(("sequence", "head", "query")):
        first = right_one(q, k, v, every.narrow(axis, 0, 1))
        mistakes[f"the mask of the first {one} serves for all"] = first
    return mistakes


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


def wrong_outputs(layer: Any, h: int, x: Tensor, may: Tensor | None) -> dict[str, Tensor]:
    """Give what comes out when one step of a layer goes wrong, by the words for it."""
    q, k, v = projected(layer, x)
    _, chained, _ = projected(layer, q)

    def attended(q: Tensor, k: Tensor, v: Tensor, heads: int = h) -> Tensor:
        q, k, v = (split_heads(part, heads) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, may if heads == h else for_any(may))

    right_heads = attended(q, k, v)
    joined = {
        "the heads' axis is not moved back before W_O": right_heads.reshape(x.shape),
        "everything is one head": merge_heads(attended(q, k, v, heads=1)),
        "the keys serve as values": merge_heads(attended(q, k, k)),
        "queries and keys have changed places": merge_heads(attended(k, q, v)),
        "the projections are chained": merge_heads(
            attended(q, chained, projected(layer, chained)[2])
        ),
        "the input is not projected to values": merge_heads(attended(q, k, x)),
    }
    q, k, v = (split_heads(part, h) for part in (q, k, v))
    in_heads = misattended(q, k, v, may)
    joined |= {told: merge_heads(heads) for told, heads in in_heads.items()}
    mistakes = {told: written(layer, heads) for told, heads in joined.items()}
    return {"W_O is missing": merge_heads(right_heads), **mistakes}


# Layers, and what is demanded of them


def linears(outcome: Outcome, d_model: int) -> Any:
    """Return the layer that came, or raise Wrong if it has not the four linear maps it should."""
    layer = outcome.value
    outcome.demand(isinstance(layer, nn.Module), "an nn.Module", f"came {kind(layer)}")
    for name, (part, shape) in product(
        LINEARS, {"weight": (d_model, d_model), "bias": (d_model,)}.items()
    ):
        linear: Any = getattr(layer, name, None)
        value: Any = getattr(linear, part, None)
        has = "is missing" if linear is None else f"is a {type(linear).__name__}, which has none"
        outcome.demand(
            isinstance(value, Tensor), f"{name} has a {part}, as nn.Linear has", f"{name} {has}"
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


def expect_output(layer: Any, h: int, x: Tensor, may: Tensor | None) -> None:
    """Demand the output that these weights and h heads give, and name the usual mistakes."""
    outcome = run(layer, x, may)
    out = outcome.tensor(*x.shape)
    with torch.no_grad():
        outcome.demand(
            near(out, expected(layer, h, x, may)),
            f"project with the present weights, split into {h}, attend, merge, project"
            + ("" if may is None else "; True in the mask means may attend"),
            f"some numbers differ{recognise(out, wrong_outputs(layer, h, x, may))}",
        )


def run(layer: nn.Module, x: Tensor, may: Tensor | None) -> Outcome:
    """Call a learner's layer, with a mask if there is one."""
    return Answer("MultiHead", layer)(x=x, **({} if may is None else {"may": may}))


def expect_gradients(layer: Any, h: int, x: Tensor, toward: Tensor) -> None:
    """Demand that all parameters of a layer learn, and its input passes gradients on."""
    *_, may = masks(len(x), h, x.shape[1], x.shape[1])

    def learned(x: Tensor, call: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        layer.zero_grad()
        out = call(x.requires_grad_())
        if out.requires_grad:
            out.backward(toward)
        return {name: p.grad for name, p in layer.named_parameters()} | {"x": x.grad}

    outcome = Answer("MultiHead", lambda x: learned(x, lambda x: layer(x, may)))(x=x)
    layer.requires_grad_(True)
    for name, wanted in learned(x.clone(), lambda x: expected(layer, h, x, may)).items():
        came = outcome.value[name]
        outcome.demand(
            near((torch.zeros(()) if came is None else came).double(), wanted, 1e-3),
            "the layer can be trained: gradients arrive in all its parameters, and in x",
            f"{'no' if came is None else 'a wrong'} gradient arrives in {name}",
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
    before = condition(theirs)
    outcome = answer(theirs=theirs)
    after = condition(theirs)
    changed = ", ".join(name for name, value in before.items() if not same(value, after[name]))
    outcome.demand(not changed, "PyTorch's layer is left as it was", f"changed: {changed}")
    ours, h = linears(outcome, theirs.embed_dim), theirs.num_heads
    expect_weights(outcome, ours, theirs)
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
                + recognise(out, wrong_outputs(ours, h, x, may)),
            )
    copied = condition(ours)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(1)
    alone = all(same(value, copied[name]) for name, value in condition(ours).items())
    again = run(ours, x, mays[-1]).tensor(*x.shape)
    outcome.demand(
        alone and near(again, out), "the copy lives by itself", "it changes when theirs is changed"
    )


def condition(layer: nn.Module) -> dict[str, Tensor]:
    """Note a layer's numbers, whether each may learn, and its mode."""
    told = {"the mode, training or not": torch.tensor(layer.training)}
    for name, parameter in layer.named_parameters():
        told[name] = parameter.detach().clone()
        told[f"{name}.requires_grad"] = torch.tensor(parameter.requires_grad)
    return told


def divisors(number: int) -> list[int]:
    return [g for g in range(1, number + 1) if number % g == 0]


def expect_weights(outcome: Outcome, ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    """Demand PyTorch's numbers in each of the four maps, and say what is there instead."""
    parts = {
        "weight": (*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight),
        "bias": (*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias),
    }
    for (part, values), (i, name) in product(parts.items(), enumerate(LINEARS)):
        value = getattr(getattr(ours, name), part).detach().double()
        mistakes = {f"it holds the part of {n}": v for n, v in zip(LINEARS, values, strict=True)}
        mistakes |= {"it is transposed": values[i].T} if part == "weight" else {}
        mistakes["it is zero"] = torch.zeros_like(value)
        outcome.demand(
            near(value, values[i].detach(), 0.0),
            f"{name}.{part} holds its part of PyTorch's numbers",
            f"other numbers are there{recognise(value, mistakes)}",
        )
