"""Lab 3: multi-head attention from its parts, and PyTorch's weights in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit.attention import scaled_dot_product_attention
from labkit.checks.guard import (
    Answer,
    Outcome,
    exercise,
    kind,
    near,
    recognise,
    right,
    show,
)
from labkit.encoder import load_encoder

LINEARS = ("w_q", "w_k", "w_v", "w_o")
SENTENCES = ["The keys to the cabinet are on the table.", "She lost her keys."]


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
    for shape in ((2, 3, 4), (3, 4)):
        x, weight, bias = drawn(*shape), drawn(5, 4), drawn(5)
        for b in (bias, None):
            outcome = answer(x=x, weight=weight, bias=b)
            out = outcome.tensor(*shape[:-1], 5)
            outcome.demand(
                near(out, F.linear(x, weight, b)),
                "every position of every sequence is treated by itself, and alike",
                "some position got other numbers",
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
        "the first head gets the first 2 numbers of every token, the second the next 2",
        f"came {show(heads)}{recognise(heads, mistakes)}",
    )
    for B, n, h, d in ((2, 4, 3, 5), (3, 2, 1, 4)):
        x = drawn(B, n, h * d)
        outcome = answer(x=x, h=h)
        outcome.demand(
            near(outcome.tensor(B, h, n, d), split_heads(x, h)),
            "head i holds the features i·d to i·d + d − 1 of every token, for every sequence",
            "some numbers are in another place",
        )
    right("split", "Each head has its own part of every token.")


@exercise
def attend(function: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> None:
    """Check scaled dot-product attention with an optional boolean mask, for all heads at once."""
    answer = Answer("attend", function)
    q = torch.tensor([9.0, 1, 1, 1]).log().view(1, 1, 1, 4)
    k = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]).view(1, 1, 2, 4)
    v = torch.tensor([[4.0], [0.0]]).view(1, 1, 2, 1)
    small = answer(q=q, k=k, v=v, may=None)
    out = small.tensor(1, 1, 1, 1)
    mistakes = {
        "the scale is missing": torch.tensor(3.6),
        "the scale is 1/d_k": torch.tensor(4 * 3**0.5 / (3**0.5 + 1)),
        "the scores are multiplied by √d_k": torch.tensor(4 * 81 / 82),
    }
    small.demand(
        near(out, 3.0),
        "the scores ln 9 and 0, with d_k = 4, get the weights 3/4 and 1/4, so 4 and 0 give 3",
        f"came {show(out)}{recognise(out.squeeze(), mistakes)}",
    )
    q, k, v = drawn(2, 3, 5, 4), drawn(2, 3, 6, 4), drawn(2, 3, 6, 7)
    outcome = answer(q=q, k=k, v=v, may=None)
    out = outcome.tensor(2, 3, 5, 7)
    over_queries = (q @ k.mT / 2).softmax(dim=-2) @ v
    outcome.demand(
        near(out, scaled_dot_product_attention(q, k, v)),
        "each query's weights over the keys sum to 1, in each sequence and each head",
        "some numbers differ"
        + recognise(out, {"the weights of a key sum to 1 over the queries": over_queries}),
    )
    some = torch.tensor([True, True, False, True, False, True])
    for may in (some.expand(2, 1, 1, 6), causal_mask(5, 6)):
        outcome = answer(q=q, k=k, v=v, may=may)
        out = outcome.tensor(2, 3, 5, 7)
        mistakes = {
            "the mask is not used": scaled_dot_product_attention(q, k, v),
            "True and False have changed places": scaled_dot_product_attention(q, k, v, ~may),
            "weights are set to 0 after the softmax": ((q @ k.mT / 2).softmax(-1) * may) @ v,
        }
        outcome.demand(
            near(out, scaled_dot_product_attention(q, k, v, may)),
            "True means may attend: what is False weighs nothing, and the rest sums to 1",
            f"some numbers differ{recognise(out, mistakes)}",
        )
    loud = answer(q=q * 1000, k=k, v=v, may=None)
    loud.demand(
        near(loud.tensor(2, 3, 5, 7), scaled_dot_product_attention(q * 1000, k, v), 1e-2),
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
        "a token's row is what the first head has for this token, then what the second has",
        f"came {show(out)}{recognise(out, mistakes)}",
    )
    for shape in ((2, 3, 4, 5), (3, 1, 2, 4)):
        heads = drawn(*shape)
        B, h, n, d = shape
        outcome = answer(heads=heads)
        outcome.demand(
            near(outcome.tensor(B, n, h * d), merge_heads(heads)),
            "head i fills the places i·d to i·d + d − 1 of every token, for every sequence",
            "some numbers are in another place",
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
    heads, weight, bias = drawn(2, 3, 5, 4), drawn(7, 12), drawn(7)
    outcome = answer(heads=heads, weight=weight, bias=bias)
    out = outcome.tensor(2, 5, 7)
    not_moved = F.linear(heads.reshape(2, 5, 12), weight, bias)
    outcome.demand(
        near(out, F.linear(merge_heads(heads), weight, bias)),
        "each token's heads are side by side before they meet W_O",
        "some numbers differ" + recognise(out, {"the heads' axis is not moved back": not_moved}),
    )
    right("output", "All heads write, into as many numbers as the model is wide.")


@exercise
def multi_head(function: Callable[[int, int], nn.Module]) -> None:
    """Check a class of layers: (d_model, h) makes one that maps x and a mask to the output."""
    if isinstance(function, nn.Module):
        raise Outcome("MultiHead", {}, function).complaint(
            "the class itself", f"came {kind(function)}; hand over the name, without brackets"
        )
    build = Answer("MultiHead", function)
    for d_model, h in ((12, 3), (8, 1), (8, 8)):
        made = build(d_model=d_model, h=h)
        layer = linears(made, d_model)
        draw_weights(layer)
        expect_output(layer, h)
    outcome = run(layer, drawn(2, 5, d_model), None)
    out = outcome.value
    outcome.demand(out.requires_grad, "the layer can be trained", "the result has no gradient")
    out.square().sum().backward()
    for name in LINEARS:
        outcome.demand(
            getattr(layer, name).weight.grad is not None,
            "every one of the four matrices can be trained",
            f"no gradient arrives in {name}",
        )
    right("MultiHead", "It gives what labkit's layer gives with the same weights.")


@exercise
def from_torch(function: Callable[[nn.MultiheadAttention], nn.Module]) -> None:
    """Check a copy of PyTorch's layer: it gives the same, and lives by itself."""
    answer = Answer("from_torch", function)
    for d_model, h in ((12, 3), (8, 2)):
        with torch.random.fork_rng(devices=[]):
            theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
        draw_weights(theirs)
        before = {name: value.clone() for name, value in theirs.state_dict().items()}
        outcome = answer(theirs=theirs)
        changed = [n for n, value in theirs.state_dict().items() if not value.equal(before[n])]
        outcome.demand(
            not changed, "PyTorch's layer is left as it was", f"changed: {', '.join(changed)}"
        )
        ours = linears(outcome, d_model)
        expect_weights(outcome, ours, theirs)
        x, may = drawn(2, 5, d_model), causal_mask(5)
        for mask in (None, may):
            with torch.no_grad():
                told = theirs(x, x, x, attn_mask=None if mask is None else ~mask)[0]
            got = run(ours, x, mask, "from_torch")
            got.demand(
                near(got.tensor(2, 5, d_model), told),
                "the same weights give PyTorch's output, with a mask and without",
                f"with {'no mask' if mask is None else 'a causal mask'} the outputs differ; does "
                f"MultiHead pass its check, and has it {h} heads?",
            )
        with torch.no_grad():
            theirs.in_proj_weight.zero_()
            theirs.out_proj.weight.zero_()
        alone = all(getattr(ours, name).weight.any() for name in LINEARS)
        outcome.demand(
            alone, "the copy lives by itself", "it changes when PyTorch's layer is changed"
        )
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
    may = read.mask[:, None, None, :]
    for number in (0, len(encoder.blocks) - 1):
        layer, x = encoder.blocks[number].attention, read.hidden[number]
        ours = linears(answer(theirs=layer.to_torch()), layer.d_model)
        outcome = run(ours, x, may, "from_torch")
        with torch.no_grad():
            told = layer(x, mask=may)
        outcome.demand(
            near(outcome.tensor(*x.shape), told, 1e-3),
            f"layer {number + 1} of the pretrained model gives the same in your hands",
            f"the outputs for {len(SENTENCES)} sentences, the second one padded, differ",
        )
    right("from_torch", "Your layer runs the first and the last layer of a pretrained model.")


# Layers, and what they should give


def drawn(*shape: int) -> Tensor:
    """Draw numbers that are the same in every check."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def draw_weights(layer: nn.Module) -> None:
    """Fill all parameters of a layer, biases included, with the same numbers in every check."""
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(layer.named_parameters())):
            generator = torch.Generator().manual_seed(number)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)


def linears(outcome: Outcome, d_model: int) -> Any:
    """Return the layer that came, or raise Wrong if it has not the four linear maps it should."""
    layer = outcome.value
    outcome.demand(isinstance(layer, nn.Module), "an nn.Module", f"came {kind(layer)}")
    for name in LINEARS:
        part: Any = getattr(layer, name, None)
        has = "is missing" if part is None else f"is a {type(part).__name__}"
        outcome.demand(isinstance(part, nn.Linear), f"{name} is an nn.Linear", f"{name} {has}")
        shape = tuple(part.weight.shape)
        square = shape == (d_model, d_model)
        outcome.demand(square, f"{name}.weight is {(d_model, d_model)}", f"came {shape}")
        outcome.demand(part.bias is not None, f"{name} has a bias, as PyTorch's has", "it has none")
    count, wanted = sum(p.numel() for p in layer.parameters()), 4 * (d_model**2 + d_model)
    outcome.demand(
        count == wanted,
        f"four different maps and nothing else: {wanted} parameters",
        f"the layer has {count}",
    )
    return layer


def run(layer: nn.Module, x: Tensor, may: Tensor | None, name: str = "MultiHead") -> Outcome:
    """Call a learner's layer."""
    return Answer(name, layer)(x=x, may=may)


def expect_output(layer: Any, h: int) -> None:
    """Demand the output that these weights and h heads give, and name the usual mistakes."""
    d_model = layer.w_q.in_features
    ours = MultiHeadAttention(d_model, h)
    with torch.no_grad():
        for name in LINEARS:
            part, wanted = getattr(ours, name), getattr(layer, name)
            part.weight.copy_(wanted.weight)
            part.bias.copy_(wanted.bias)
    x = drawn(2, 5, d_model)
    padding = torch.tensor([True, True, False, True, True]).expand(2, 1, 1, 5)
    for may in (None, padding, causal_mask(5)):
        outcome = run(layer, x, may)
        out = outcome.tensor(2, 5, d_model)
        with torch.no_grad():
            mistakes = {} if may is None else {
                "the mask is not used": ours(x),
                "True and False have changed places": ours(x, mask=~may),
            }  # fmt: skip
            mistakes |= dict(wrong_outputs(ours, x, may))
            outcome.demand(
                near(out, ours(x, mask=may)),
                f"project, split into {h}, attend, merge, project"
                + ("" if may is None else "; True in the mask means may attend"),
                f"some numbers differ{recognise(out, mistakes)}",
            )


def wrong_outputs(layer: MultiHeadAttention, x: Tensor, may: Tensor | None) -> Any:
    """Give what comes out when one step of a layer goes wrong, by the words for it."""
    h, d_model = layer.h, layer.d_model
    q, k, v = (part(x) for part in (layer.w_q, layer.w_k, layer.w_v))

    def attended(q: Tensor, k: Tensor, v: Tensor, heads: int = h, **how: Any) -> Tensor:
        q, k, v = (split_heads(part, heads) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, may, **how)

    right_heads = attended(q, k, v)
    yield "W_O is missing", merge_heads(right_heads)
    yield (
        "W_O is applied to the heads before they stand side by side",
        layer.w_o(right_heads.reshape(x.shape)),
    )
    yield "everything is one head", layer.w_o(merge_heads(attended(q, k, v, heads=1)))
    yield (
        "the scale is 1/√d_model",
        layer.w_o(merge_heads(attended(q, k, v, scale=d_model**-0.5))),
    )
    yield "the scale is missing", layer.w_o(merge_heads(attended(q, k, v, scale=1.0)))
    yield "the keys serve as values", layer.w_o(merge_heads(attended(q, k, k)))
    yield "queries and keys have changed places", layer.w_o(merge_heads(attended(k, q, v)))
    yield (
        "the projections are chained",
        layer.w_o(merge_heads(attended(q, layer.w_k(q), layer.w_v(layer.w_k(q))))),
    )
    yield "the input is not projected to values", layer.w_o(merge_heads(attended(q, k, x)))


def expect_weights(outcome: Outcome, ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    """Demand PyTorch's numbers in each of the four maps, and say what is there instead."""
    names = dict(
        zip(LINEARS, [*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight], strict=True)
    )
    biases = dict(zip(LINEARS, [*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias], strict=True))
    for name in LINEARS:
        part = getattr(ours, name)
        weight, bias = part.weight.detach().double(), part.bias.detach().double()
        mistakes = {f"it holds the part of {other}": of for other, of in names.items()}
        mistakes["it is transposed"] = names[name].T
        outcome.demand(
            near(weight, names[name].detach()),
            f"{name}.weight holds its part of PyTorch's weights",
            f"other numbers are there{recognise(weight, mistakes)}",
        )
        mistakes = {f"it holds the part of {other}": of for other, of in biases.items()}
        mistakes["it is zero"] = torch.zeros_like(biases[name])
        outcome.demand(
            near(bias, biases[name].detach()),
            f"{name}.bias holds its part of PyTorch's biases",
            f"other numbers are there{recognise(bias, mistakes)}",
        )
