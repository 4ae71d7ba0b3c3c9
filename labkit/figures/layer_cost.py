"""What an attention layer costs: its parameters, its operations by term, its memory."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, Unicode

from labkit import counting
from labkit.figures.base import Choice, LiveFigure
from labkit.models.published import MODELS

LENGTHS = [2**i for i in range(4, 18)]
D_MODELS = [64, 128, 256, 512, 768, 1024, 1280, 2048, 4096, 8192, 12288]
# Each can be doubled and halved again, so that heads can be cut in two and joined in pairs.
HEADS = sorted(odd * 2**i for odd in (1, 3, 5) for i in range(9) if odd * 2**i <= 256)
HEAD_WIDTHS = [2**i for i in range(13)]
SHOWN = {
    name: MODELS[name] for name in ("GPT-2 Small", "GPT-2 Large", "T5-11B", "LLaMA-7B", "GPT-3")
}
TERMS = ["projections", "QKᵀ", "AV"]


class LayerCost(LiveFigure):
    """Count one layer of self-attention, for one sequence and without biases.

    Parameters: 4 d_model h d_k. FLOPs: 8 n d_model h d_k of the four projections, and 2 n^2 h d_k
    of each product. Weights: h n^2 numbers, in float32 four bytes each.

    Args:
        state: the traits: ``n`` (a power of two from 16 to 131,072), ``d_model``, ``h`` and
            ``d_k``; d_v is d_k.

    >>> LayerCost(n=2048, d_model=4096, h=32, d_k=128).values()["FLOPs, in billions"]
    [274.877906944, 34.359738368, 34.359738368]
    """

    title = Unicode("What a layer costs").tag(sync=True)
    caption = Unicode(
        "One layer of self-attention on one sequence, without biases; you choose the length, the "
        "width of the model, and the number and width of the heads. A table gives its parameters, "
        "FLOPs by term, scores, and the memory of its attention weights in float32. Bars show, for "
        "each length, which share of the FLOPs is the two products, in orange, over the "
        "projections, in blue."
    ).tag(sync=True)
    axes = Dict(
        {
            "FLOPs, in billions": [TERMS],
            "share of the products, by length": [[f"{n:,}" for n in LENGTHS]],
        }
    ).tag(sync=True)
    models = Dict(
        {name: [model.n, *model[:3]] for name, model in SHOWN.items()},
        help="for each model n, d_model, h and d_k",
    ).tag(sync=True)
    n = Choice(LENGTHS, default_value=1024).tag(sync=True)
    d_model = Choice(D_MODELS, default_value=512).tag(sync=True)
    h = Choice(HEADS, default_value=8).tag(sync=True)
    d_k = Choice(HEAD_WIDTHS, default_value=64).tag(sync=True)

    def values(self) -> dict[str, Any]:
        sizes = {"d_model": self.d_model, "h": self.h, "d_k": self.d_k}
        projections = counting.projection_macs(self.n, **sizes)
        products = counting.product_macs(self.n, **sizes)
        terms = [projections, products / 2, products / 2]
        return {
            "parameters": counting.attention_parameters(**sizes, bias=False),
            "width of all heads": self.h * self.d_k,
            "FLOPs, in billions": [counting.FLOPS_PER_MAC * macs / 1e9 for macs in terms],
            "scores, in millions": counting.score_entries(self.h, self.n) / 1e6,
            "memory of the attention weights, in MB": counting.weight_bytes(self.h, self.n) / 1e6,
            "share of the products, by length": [self._share(n) for n in LENGTHS],
        }

    def _share(self, n: int) -> float:
        """Give the products' share of the FLOPs at a length."""
        sizes = {"d_model": self.d_model, "h": self.h, "d_k": self.d_k}
        products = counting.product_macs(n, **sizes)
        return products / (products + counting.projection_macs(n, **sizes))
