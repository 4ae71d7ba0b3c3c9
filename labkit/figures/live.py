"""Figures that compute where they are shown: in Jupyter, and in the page without a kernel.

One Python class and one ES module of the same name a figure; a new one joins ``FIGURES``.
"""

from labkit.figures.all_reduce import AllReduce
from labkit.figures.attention_by_hand import AttentionByHand
from labkit.figures.base import MIME, LiveFigure
from labkit.figures.checked_guesses import CheckedGuesses
from labkit.figures.decoding_cache import DecodingCache
from labkit.figures.head_map import HeadMap
from labkit.figures.head_viewer import HeadViewer
from labkit.figures.induction_heads import InductionHeads
from labkit.figures.layer_cost import LayerCost
from labkit.figures.mask_painter import MaskPainter
from labkit.figures.output_projection import OutputProjection
from labkit.figures.ring_attention import RingAttention
from labkit.figures.saturation import Saturation
from labkit.figures.self_and_cross import SelfAndCross
from labkit.figures.shared_keys import SharedKeys
from labkit.figures.small_gpt import SmallGPT
from labkit.figures.split_and_merge import SplitAndMerge
from labkit.figures.stage import Stage
from labkit.figures.step_time import StepTime
from labkit.figures.tiles import Tiles
from labkit.figures.trained_heads import TrainedHeads

FIGURES = (
    AllReduce,
    AttentionByHand,
    CheckedGuesses,
    DecodingCache,
    HeadMap,
    HeadViewer,
    InductionHeads,
    LayerCost,
    MaskPainter,
    OutputProjection,
    RingAttention,
    Saturation,
    SelfAndCross,
    SharedKeys,
    SmallGPT,
    SplitAndMerge,
    Stage,
    StepTime,
    Tiles,
    TrainedHeads,
)

__all__ = [
    "FIGURES",
    "MIME",
    "AllReduce",
    "AttentionByHand",
    "CheckedGuesses",
    "DecodingCache",
    "HeadMap",
    "HeadViewer",
    "InductionHeads",
    "LayerCost",
    "LiveFigure",
    "MaskPainter",
    "OutputProjection",
    "RingAttention",
    "Saturation",
    "SelfAndCross",
    "SharedKeys",
    "SmallGPT",
    "SplitAndMerge",
    "Stage",
    "StepTime",
    "Tiles",
    "TrainedHeads",
]
