"""Linear attention: without the softmax, all that a head keeps of the past is a sum of fixed size.

Chapter 13 ends with it, and economies.json has its row.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.arguments import check_tensor
from labkit.attention import MultiHeadAttention, merge_heads, split_heads
from labkit.cache import KVCache, check_cache
from labkit.models.gpt import GPT
from labkit.models.training import load_runs, small_gpt
from labkit.positions import rotate

__all__ = ["LINEAR", "LinearAttention", "LinearState", "linear_attention", "linear_gpt",
    "load_linear", "phi"]  # fmt: skip

LINEAR = Path(__file__).with_name("linear.safetensors")  # five starts, in float16
STARTS = 5


def phi(x: Tensor) -> Tensor:
    """Make features that are above 0, in place of an exponential: elu(x) + 1; any shape.

    Source: Katharopoulos et al. (2020), equation 7.

    >>> phi(torch.tensor([0.0, 1.0])).tolist()
    [1.0, 2.0]
    """
    return F.elu(x) + 1


def linear_attention(q: Tensor, k: Tensor, v: Tensor, base: float | None = None) -> Tensor:
    """Mix the values of the past by products of features, all positions at once, as in training.

    out_i = sum_j (R_i phi(q_i)) . (R_j phi(k_j)) v_j / sum_j phi(q_i) . phi(k_j), j <= i, with the
    rotations R of rotary positions in the numerator alone, so that the divisor stays above 0.

    Args:
        q, k: (..., n, d_k).
        v: (..., n, d_v).
        base: of the rotation; none unless given.

    Returns:
        (..., n, d_v).

    Source: Katharopoulos et al. (2020), section 3.2; Su et al. (2021), section 3.3, for rotations.

    >>> linear_attention(*torch.ones(3, 1, 2, 4)).shape
    torch.Size([1, 2, 4])
    """
    q, k = phi(q), phi(k)
    total = (q @ k.mT).tril().sum(-1, keepdim=True)
    if base is not None:
        q, k = rotate(q, base), rotate(k, base)
    return (q @ k.mT).tril() @ v / total


class LinearState(KVCache):
    """All that linear attention keeps of the past: S, (B, h, d_k, d_v), and z, (B, h, d_k).

    S = sum_j R_j phi(k_j) v_j^T and z = sum_j phi(k_j). It is a cache whose size does not grow, so
    nothing can be taken out of it again: ``crop`` knows 0 alone.

    >>> state = LinearState()
    >>> _ = LinearAttention(8, 2)(torch.ones(1, 3, 8), cache=state)
    >>> state.n, state.nbytes  # 2 heads of 4 x 4 + 4 numbers
    (3, 160)
    """

    S: Tensor | None = None
    z: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()

    @property
    def nbytes(self) -> int:
        """The bytes of S and z, whatever n is."""
        return sum(part.nbytes for part in (self.S, self.z) if part is not None)

    def crop(self, n: int) -> None:
        """Forget everything, n = 0.

        Raises:
            ValueError: any other n, for what is in a sum cannot be told apart.
        """
        if n not in (0, self.n):
            raise ValueError(f"a state holds sums, of which no position can be taken out; got {n}.")
        if n == 0:
            self.S, self.z, self.n = None, None, 0

    def step(self, q: Tensor, k: Tensor, v: Tensor, base: float | None) -> Tensor:
        """Add one position to the sums and let its query read them: (B, h, 1, d) to (B, h, 1, d_v).

        S' = S + R phi(k) v^T, z' = z + phi(k), out = S'^T R phi(q) / (z' . phi(q)).
        """
        q, k = phi(q), phi(k)
        z = k.squeeze(-2) + (0 if self.z is None else self.z)
        total = (q * z.unsqueeze(-2)).sum(-1, keepdim=True)
        if base is not None:
            q, k = rotate(q, base, self.n), rotate(k, base, self.n)
        S = k.mT @ v + (0 if self.S is None else self.S)
        self.S, self.z, self.n = S, z, self.n + 1
        return q @ S / total


class LinearAttention(MultiHeadAttention):
    """A layer of labkit whose heads mix values by linear attention, causally; the same parameters.

    >>> LinearAttention(8, 2, rotary_base=100.0)(torch.ones(1, 3, 8), is_causal=True).shape
    torch.Size([1, 3, 8])
    """

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        is_causal: bool = True,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend causally, and to what a state holds.

        Args:
            x: (B, n, d_model).
            mask: None; there are no weights to hide.
            is_causal: True.
            cache: a LinearState of this layer's past, or None.

        Returns:
            (B, n, d_model).

        Raises:
            TypeError: a cache that is no LinearState.
            ValueError: a mask, attention that is not causal, or x of another shape.
        """
        check_tensor("x", x, 3, "(B, n, d_model)")
        if mask is not None or not is_causal:
            raise ValueError("linear attention is causal here, and takes no mask; got another.")
        check_cache(cache, x, None)
        q, k, v = (split_heads(w(x), self.h) for w in (self.w_q, self.w_k, self.w_v))
        if cache is None:
            return self.w_o(merge_heads(linear_attention(q, k, v, self.rotary_base)))
        if not isinstance(cache, LinearState):
            raise TypeError(f"cache must be a LinearState; got {type(cache).__name__}.")
        steps = zip(q.split(1, -2), k.split(1, -2), v.split(1, -2), strict=True)
        out = torch.cat([cache.step(*step, self.rotary_base) for step in steps], -2)
        return self.w_o(merge_heads(out))


def linear_gpt(seed: int) -> GPT:
    """Make the chapters' GPT, untrained, with linear attention in its blocks.

    >>> sum(weight.numel() for weight in linear_gpt(0).parameters())
    107264
    """
    model = small_gpt(seed)
    for block in model.stack():
        layer = block.attention
        other = LinearAttention(layer.d_model, layer.h, rotary_base=layer.rotary_base)
        other.load_state_dict(layer.state_dict())
        block.attention = other
    return model


def load_linear() -> list[GPT]:
    """Load five starts of the small GPT that were trained with linear attention.

    Raises:
        FileNotFoundError: their file is missing.

    >>> [len(model.stack()) for model in load_linear()]
    [2, 2, 2, 2, 2]
    """
    states, models = load_runs(LINEAR), []
    for seed in range(STARTS):
        model = linear_gpt(seed)
        model.load_state_dict(states[f"linear {seed}"])
        models.append(model.eval())
    return models
