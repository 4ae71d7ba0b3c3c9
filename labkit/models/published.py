"""Published models, for whatever counts what they cost."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MODELS", "Model"]


class Model(NamedTuple):
    """The sizes of a model's attention: its layers, and the longest sequence it was trained on."""

    d_model: int
    h: int
    d_k: int
    layers: int
    n: int | None = None  # None where positions have no limit


# Vaswani et al. (2017), table 3; Devlin et al. (2019), section 3; Radford et al. (2019), table 2,
# with the heads of the released models; Brown et al. (2020), table 2.1; Raffel et al. (2020),
# section 3.7; Touvron et al. (2023), table 2. Lengths: the same papers.
MODELS = {
    "GPT-2 Small": Model(768, 12, 64, 12, 1024),
    "GPT-2 Medium": Model(1024, 16, 64, 24, 1024),
    "GPT-2 Large": Model(1280, 20, 64, 36, 1024),
    "LLaMA-7B": Model(4096, 32, 128, 32, 2048),
    "GPT-3": Model(12288, 96, 128, 96, 2048),
    "base Transformer": Model(512, 8, 64, 6),
    "BERT base": Model(768, 12, 64, 12, 512),
    "T5-11B": Model(1024, 128, 128, 24, 512),
}
