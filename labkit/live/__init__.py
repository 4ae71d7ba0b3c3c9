"""Figures that compute where they are shown: in Jupyter, and in the page without a kernel.

One Python class and one ES module of the same name a figure; a new one joins ``FIGURES``.
"""

from labkit.live.attention_by_hand import AttentionByHand
from labkit.live.base import MIME, LiveFigure
from labkit.live.decoding_cache import DecodingCache
from labkit.live.head_viewer import HeadViewer
from labkit.live.layer_cost import LayerCost
from labkit.live.mask_painter import MaskPainter
from labkit.live.output_projection import OutputProjection
from labkit.live.ranks import Ranks
from labkit.live.saturation import Saturation
from labkit.live.self_and_cross import SelfAndCross
from labkit.live.small_gpt import SmallGPT
from labkit.live.split_and_merge import SplitAndMerge
from labkit.live.tiles import Tiles
from labkit.live.trained_heads import TrainedHeads
from labkit.live.turned_query import TurnedQuery

FIGURES = (
    AttentionByHand,
    DecodingCache,
    HeadViewer,
    LayerCost,
    MaskPainter,
    OutputProjection,
    Ranks,
    Saturation,
    SelfAndCross,
    SmallGPT,
    SplitAndMerge,
    Tiles,
    TrainedHeads,
    TurnedQuery,
)

__all__ = [
    "FIGURES",
    "MIME",
    "AttentionByHand",
    "DecodingCache",
    "HeadViewer",
    "LayerCost",
    "LiveFigure",
    "MaskPainter",
    "OutputProjection",
    "Ranks",
    "Saturation",
    "SelfAndCross",
    "SmallGPT",
    "SplitAndMerge",
    "Tiles",
    "TrainedHeads",
    "TurnedQuery",
]
