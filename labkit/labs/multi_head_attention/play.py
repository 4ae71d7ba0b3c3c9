"""Lab 3's laboratory and finale: break a part of a layer; put eight heads into a model."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from labkit import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit.figures import plots as figures
from labkit.labs.guard import Answer
from labkit.labs.laboratory import Laboratory
from labkit.labs.story_model import finale, standing
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import RELATIONS, decode, encode
from labkit.positions import rotate

FIXED = RELATIONS[1:]  # those that some earlier word decides
BEGUN = "the box suits tom lake . the hat suits eva wood . the birds near the cow"

D_MODEL = 8
SPLITS = {
    "cut, then move the axis": split_heads,
    "one view": lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
}
MERGES = {
    "move the axis back, then join": merge_heads,
    "join as it lies": lambda heads: heads.reshape(len(heads), heads.shape[2], -1),
}
SOFTMAXES = {"over the keys": -1, "over the queries": -2}
SCALES = {
    "1/√d_k": lambda d_k: d_k**-0.5,
    "1/√d_model": lambda d_k: D_MODEL**-0.5,
    "none": lambda d_k: 1.0,
}
OUTPUTS = {"used": True, "forgotten": False}


def laboratory() -> Laboratory:
    """Make the controls for the parts of a causal layer, its heads and its positions."""
    import ipywidgets as widgets

    wide = {"style": {"description_width": "6em"}, "layout": {"width": "min(100%, 26em)"}}

    def choose(choices: dict[str, Any], name: str) -> Any:
        return widgets.Dropdown(options=list(choices), description=name, **wide)

    controls = {
        "split": choose(SPLITS, "split"),
        "softmax": choose(SOFTMAXES, "softmax"),
        "scale": choose(SCALES, "scale"),
        "merge": choose(MERGES, "merge"),
        "w_o": choose(OUTPUTS, "W_O"),
        "h": widgets.SelectionSlider(options=[1, 2, 4, 8], value=2, description="h", **wide),
        "n": widgets.IntSlider(value=4, min=2, max=6, description="n", **wide),
    }
    return Laboratory(controls, draw)


def draw(split: str, softmax: str, scale: str, merge: str, w_o: str, h: int, n: int) -> Any:
    """Draw how much each output hears from each input, and tell what PyTorch's layer says."""
    layer, x = make(h, n)
    may = causal_mask(n)

    def run(x: Tensor) -> Tensor:
        q, k, v = (SPLITS[split](part(x), h) for part in (layer.w_q, layer.w_k, layer.w_v))
        scores = (q @ k.mT * SCALES[scale](layer.d_k)).masked_fill(~may, float("-inf"))
        joined = MERGES[merge](scores.softmax(dim=SOFTMAXES[softmax]) @ v)
        return layer.w_o(joined) if OUTPUTS[w_o] else joined

    out = run(x)
    apart = (out - layer.to_torch()(x, x, x, attn_mask=~may)[0]).abs().max()
    # (1, n, d_model, 1, n, d_model): output position and number, then input position and number.
    jacobian = torch.autograd.functional.jacobian(run, x)
    heard = jacobian.square().sum(dim=(0, 2, 3, 5)).sqrt()
    ahead = int((heard > 0).triu(1).sum())
    return figures.heatmap(
        heard / heard.sum(dim=1, keepdim=True),
        rows=[f"output {i}" for i in range(n)],
        columns=[f"input {j}" for j in range(n)],
        title=f"Who hears from whom: {h} heads, {n} positions",
        alt=f"The output has the shape {tuple(out.shape)}; it should be {(1, n, D_MODEL)}. Largest "
        f"difference from PyTorch's layer: {apart:.2f}. Later inputs that an output hears from: "
        f"{ahead} of {n * (n - 1) // 2} pairs; there should be none.",
        height=420,
    )


def make(h: int, n: int) -> tuple[MultiHeadAttention, Tensor]:
    """Make a layer of h heads and an input of n positions, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = MultiHeadAttention(D_MODEL, h, dtype=torch.float64).requires_grad_(False)
        return layer, torch.randn(1, n, D_MODEL, dtype=torch.float64)


# The finale


class HeadsOfParts(nn.Module):
    """A layer of the book's model whose every step but the rotation is a learner's function.

    Args:
        layer: whose matrices are used.
        parts: project, split, attend and output, as Answers.
        sounding: the heads that are in; the others return zeros.
    """

    def __init__(self, layer: MultiHeadAttention, parts: dict[str, Answer]) -> None:
        super().__init__()
        self.layer, self.parts = layer, parts
        self.sounding: set[int] = set()

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        layer, parts, (B, n, d_model) = self.layer, self.parts, x.shape
        h, d = layer.h, layer.d_k

        def heads_of(part: Any) -> Tensor:
            flat = parts["project"](x=x, weight=part.weight, bias=part.bias)
            return parts["split"](x=flat.tensor(B, n, h * d).float(), h=h).tensor(B, h, n, d)

        q, k, v = (heads_of(part).float() for part in (layer.w_q, layer.w_k, layer.w_v))
        if layer.rotary_base is not None:
            q, k = rotate(q, layer.rotary_base), rotate(k, layer.rotary_base)
        heads = parts["attend"](q=q, k=k, v=v, may=causal_mask(n)).tensor(B, h, n, d).float()
        silent = [i for i in range(h) if i not in self.sounding]
        heads = heads.index_fill(1, torch.tensor(silent, dtype=torch.long), 0)
        out = parts["output"](heads=heads, weight=layer.w_o.weight, bias=layer.w_o.bias)
        return out.tensor(B, n, d_model).float()


@finale
@torch.no_grad()
def put_heads_in(project: Answer, split: Answer, attend: Answer, output: Answer) -> None:
    """Put the heads of the book's small GPT in one after the other, made of a learner's parts."""
    parts = {"project": project, "split": split, "attend": attend, "output": output}
    model, layers = made_of(parts)
    told, own, without = standing(model), standing(load_gpt()), written_on(model)
    print(f"{'':17}{'loss':>7}" + "".join(f"{relation:>10}" for relation in FIXED))
    print(row("no head", told))
    for (i, layer), head in product(enumerate(layers), range(layers[0].layer.h)):
        layer.sounding.add(head)
        told = standing(model)
        print(row(f"+ head {head}, layer {i}", told))
    print(row("the model's own", own))
    print(f"\nNo loss can be below the entropy of the stories, {own['entropy']:.3f}.\n")
    print(f"{BEGUN} ...\n  no head      {without}\n  eight heads  {written_on(model)}")


def made_of(parts: dict[str, Answer]) -> tuple[GPT, list[HeadsOfParts]]:
    """Load the small GPT with layers made of these parts, in which no head sounds yet."""
    model = load_gpt().eval()
    layers = [HeadsOfParts(block.attention, parts) for block in model.stack()]
    for block, layer in zip(model.stack(), layers, strict=True):
        block.attention = layer  # type: ignore[assignment]
    return model, layers


def row(name: str, told: dict[str, float]) -> str:
    """Write how a model does as a row of the table."""
    return f"{name:17}{told['loss']:7.3f}" + "".join(
        f"{told[relation]:10.2f}" for relation in FIXED
    )


def written_on(model: GPT, least: int = 12, most: int = 24) -> str:
    """Let a model go on with a text that has begun, always with its likeliest word.

    After the least number of words it goes on to the end of the sentence, if that comes soon.
    """
    ids, (full_stop,) = encode(BEGUN)[None], encode(".")
    begun = ids.shape[1]
    for count in range(1, most + 1):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        if count >= least and ids[0, -1] == full_stop:
            return decode(ids[0, begun:])
    return decode(ids[0, begun:]) + " ..."
