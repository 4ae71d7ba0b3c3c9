"""Figures that compute where they are shown: in Jupyter, and in the page without a kernel.

One Python class and one ES module of the same name a figure; a new one joins ``FIGURES``.
"""

from labkit.figures.all_reduce import AllReduce
from labkit.figures.attention_by_hand import AttentionByHand
from labkit.figures.base import MIME, LiveFigure
from labkit.figures.decoding_cache import DecodingCache
from labkit.figures.head_viewer import HeadViewer
from labkit.figures.layer_cost import LayerCost
from labkit.figures.mask_painter import MaskPainter
from labkit.figures.output_projection import OutputProjection
from labkit.figures.ring_attention import RingAttention
from labkit.figures.saturation import Saturation
from labkit.figures.self_and_cross import SelfAndCross
from labkit.figures.small_gpt import SmallGPT
from labkit.figures.split_and_merge import SplitAndMerge
from labkit.figures.stage import Stage
from labkit.figures.tiles import Tiles
from labkit.figures.trained_heads import TrainedHeads

FIGURES = (
    AllReduce,
    AttentionByHand,
    DecodingCache,
    HeadViewer,
    LayerCost,
    MaskPainter,
    OutputProjection,
    RingAttention,
    Saturation,
    SelfAndCross,
    SmallGPT,
    SplitAndMerge,
    Stage,
    Tiles,
    TrainedHeads,
)

__all__ = [
    "FIGURES",
    "MIME",
    "AllReduce",
    "AttentionByHand",
    "DecodingCache",
    "HeadViewer",
    "LayerCost",
    "LiveFigure",
    "MaskPainter",
    "OutputProjection",
    "RingAttention",
    "Saturation",
    "SelfAndCross",
    "SmallGPT",
    "SplitAndMerge",
    "Stage",
    "Tiles",
    "TrainedHeads",
]
