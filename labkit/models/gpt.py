"""A small GPT: labkit's layer in a block, blocks in a stack, and a prediction of the next word.

The order of a block is that of GPT-2: normalise, attend, add; normalise, feed forward, add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.arguments import check_tensor, one_of, size
from labkit.attention import MultiHeadAttention
from labkit.cache import KVCache, all_or_none, check_caches
from labkit.positions import one_pass, sinusoids

__all__ = ["CHECKPOINT", "GPT", "Block", "FeedForward", "load_gpt", "save_gpt"]

CHECKPOINT = Path(__file__).with_name("stories.safetensors")  # trained on labkit.models.stories

POSITIONS = ("rotary", "learned", "sinusoidal", "none")


class FeedForward(nn.Module):
    """Treat each position by itself: widen, bend, narrow; (B, n, d_model) to the same.

    contract(gelu(expand(x)))

    Source: Vaswani et al. (2017), section 3.3; Radford et al. (2018) for the GELU.

    >>> FeedForward(4, 16)(torch.ones(1, 3, 4)).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff)
        self.contract = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(F.gelu(self.expand(x), approximate="tanh"))


class Residual(nn.Module):
    """Add to the stream what a part of a block has made of it."""

    def forward(self, x: Tensor, update: Tensor) -> Tensor:
        return x + update


class Block(nn.Module):
    """Add the attention's output to the residual stream, then the feed-forward's.

    y = x + attention(norm(x)); y + feed_forward(norm(y))

    Source: Radford et al. (2019), section 2.3, for the order.

    >>> Block(d_model=8, h=2)(torch.ones(1, 3, 8))[0].shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        *,
        h_kv: int | None = None,
        d_ff: int | None = None,
        rotary_base: float | None = None,
        rotary_scaling: float = 1.0,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm: nn.Module = nn.LayerNorm(d_model)
        # Another layer is called as a MultiHeadAttention is.
        self.attention = cast(MultiHeadAttention, attention) or MultiHeadAttention(
            d_model, h, h_kv=h_kv, rotary_base=rotary_base, rotary_scaling=rotary_scaling
        )
        self.feed_forward_norm: nn.Module = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(
            d_model, 4 * d_model if d_ff is None else size("d_ff", d_ff)
        )
        self.residual: nn.Module = Residual()
        self.is_causal = True  # chapter 4 shows what for

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
        *,
        return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend causally, within the mask, and over what the cache holds.

        Returns:
            The stream, (B, n, d_model), and the heads' weights, (B, h, n, n_k), or None.
        """
        normed, weights = self.attention_norm(x), None
        if return_weights:
            attended, weights = self.attention(
                normed, mask=mask, is_causal=self.is_causal, cache=cache, return_weights=True
            )
        else:
            attended = self.attention(normed, mask=mask, is_causal=self.is_causal, cache=cache)
        x = self.residual(x, attended)
        return self.residual(x, self.feed_forward(self.feed_forward_norm(x))), weights


class GPT(nn.Module):
    """Say for each position which word comes next.

    Args:
        vocabulary: number of words, or of other tokens.
        d_model: width of the residual stream.
        h: heads of a layer.
        layers: blocks.
        h_kv: heads of keys and values of a layer, elsewhere n_kv_heads; h unless given.
        d_ff: width inside the feed-forward; 4 d_model unless given.
        positions: how a word's place is given: "rotary" rotates queries and keys, "learned" and
            "sinusoidal" add a vector to the word's, "none" leaves it out.
        max_length: the longest text that "learned" positions are made for.
        rotary_base: the base of "rotary".
        rotary_scaling: what "rotary" divides positions by.
        tied: let the last layer share the words' vectors, as GPT-2 does.
        attention: makes the attention of block i, 0 to layers - 1, which is called as a
            MultiHeadAttention is (chapter 12); then h, h_kv and the rotation are its own affair.

    Raises:
        TypeError, ValueError: a size that is not a whole number or does not fit, or positions that
            are not one of the four.

    Source: Radford et al. (2019), section 2.3; Su et al. (2021) for "rotary".

    >>> GPT(56, d_model=8, h=2, layers=1)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 56])
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        h: int,
        layers: int,
        *,
        h_kv: int | None = None,
        d_ff: int | None = None,
        positions: str = "rotary",
        max_length: int = 1024,
        rotary_base: float = 1_000.0,
        rotary_scaling: float = 1.0,
        tied: bool = False,
        attention: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.positions = one_of("positions", positions, POSITIONS)
        base = rotary_base if positions == "rotary" else None
        self.words = nn.Embedding(size("vocabulary", vocabulary), size("d_model", d_model))
        rows = size("max_length", max_length)
        self.places = nn.Embedding(rows, d_model) if positions == "learned" else None
        blocks = (
            Block(
                d_model, h, h_kv=h_kv, d_ff=d_ff, rotary_base=base, rotary_scaling=rotary_scaling,
                attention=None if attention is None else attention(i),
            )
            for i in range(size("layers", layers))
        )  # fmt: skip
        self.blocks = nn.ModuleList(blocks)
        self.norm: nn.Module = nn.LayerNorm(d_model)
        self.next_word = nn.Linear(d_model, vocabulary, bias=False)
        if tied:
            self.next_word.weight = self.words.weight
        self.apply(_init_weights)

    @overload
    def forward(self, ids: Tensor, mask: Tensor | None = None,
        caches: Sequence[KVCache] | None = None, *, return_weights: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip

    @overload
    def forward(self, ids: Tensor, mask: Tensor | None = None,
        caches: Sequence[KVCache] | None = None, *, return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        *,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Give the logits of the next word at each position.

        Args:
            ids: (B, n), numbers of words.
            mask: boolean, broadcastable to (B, h, n, n_k), True where a query may attend, such as
                to hide padding; attention is causal in any case.
            caches: one for each block. Then ids continue what they hold. If a block fails, all
                caches are as they were before the call.
            return_weights: also return the weights of all heads.

        Returns:
            (B, n, vocabulary); with ``return_weights`` also (layers, B, h, n, n_k).

        Raises:
            TypeError: ids that are no tensor, or something other than a KVCache among the caches.
            ValueError: shapes that do not fit, too long a text for learned positions, another
                number of caches than of blocks, or caches that hold different numbers of positions.
        """
        check_tensor("ids", ids, 1, "(B, n)")
        past = check_caches(caches, len(self.blocks))
        x = self.words(ids) + self._position_vectors(past, ids.shape[-1])
        each: Sequence[KVCache | None] = caches or [None] * len(self.blocks)
        all_weights = []
        with one_pass(), all_or_none(caches or []):
            for block, cache in zip(self.blocks, each, strict=True):
                x, weights = block(x, mask, cache, return_weights=return_weights)
                all_weights.append(weights)
        logits = self.next_word(self.norm(x))
        return (logits, torch.stack(all_weights)) if return_weights else logits

    if TYPE_CHECKING:
        __call__ = forward

    def stack(self) -> list[Block]:
        """List the blocks, from the words up."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def caches(
        self, window: int | None = None, sinks: int = 0, bits: int | None = None
    ) -> list[KVCache]:
        """Make an empty cache for each block, with a window, sinks and bits as KVCache has them."""
        return [KVCache(window, sinks, bits) for _ in self.blocks]

    def _position_vectors(self, past: int, n: int) -> Tensor:
        """Return what is added to the words' vectors, (n, d_model) or a single 0."""
        if self.places is not None:
            max_length = self.places.num_embeddings
            if past + n > max_length:
                raise ValueError(
                    f"positions are learned up to {max_length}; got a text of {past + n}. "
                    "Cut it, or build the model with a larger max_length."
                )
            return self.places.weight[past : past + n]
        weight = self.words.weight
        if self.positions == "sinusoidal":
            return sinusoids(past + n, weight.shape[1])[past:].to(weight)
        return weight.new_zeros(())


def _init_weights(module: nn.Module) -> None:
    """Draw weights so that what goes through a matrix keeps its size; words have variance 1."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def load_gpt(path: str | Path | None = None) -> GPT:
    """Load a GPT that save_gpt wrote: in evaluation mode, and in float32.

    Args:
        path: the file; that of the GPT trained on labkit's stories unless given.

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        FileNotFoundError: a file that is not there; the message says how to make labkit's own.
        ValueError: a file that cannot be read as such a GPT.
    """
    path = CHECKPOINT if path is None else Path(path)
    _need_safetensors()
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        remedy = "`make checkpoint` trains that GPT and writes it." if path == CHECKPOINT else ""
        raise FileNotFoundError(f"{path} is missing. {remedy}".rstrip())
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            state = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        vocabulary, d_model = state["words.weight"].shape
        # Without memory: the parameters are about to be those of the file.
        with torch.device("meta"):
            model = GPT(
                vocabulary,
                d_model,
                int(about["h"]),
                len({name.split(".")[1] for name in state if name.startswith("blocks.")}),
                d_ff=len(state["blocks.0.feed_forward.expand.bias"]),
                h_kv=int(about.get("h_kv", about["h"])),
                rotary_base=float(about["rotary_base"]),
                rotary_scaling=float(about.get("rotary_scaling", 1)),
            )
        model.load_state_dict(state, assign=True)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} cannot be read as a GPT with rotary positions: {error}. Write one with "
            "labkit.models.gpt.save_gpt."
        ) from error
    return model.eval()


def save_gpt(model: GPT, path: str | Path) -> None:
    """Write a GPT's tensors in float16, and beside them what no shape tells.

    That is h, h_kv and rotary_base, and rotary_scaling where there is one.

    Args:
        model: a GPT with rotary positions.
        path: the file, in the format of safetensors.

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        ValueError: other positions.
    """
    _need_safetensors()
    from safetensors.torch import save_file

    if model.positions != "rotary":
        raise ValueError(f"positions must be 'rotary' to be written; got {model.positions!r}.")
    attention = model.stack()[0].attention
    names = ["h", "h_kv", "rotary_base", *["rotary_scaling"] * (attention.rotary_scaling != 1)]
    about = {name: str(getattr(attention, name)) for name in names}
    # Each a copy, for a file cannot hold one tensor under two names, as a tied model has.
    tensors = {
        name: tensor.detach().to("cpu", torch.float16, copy=True).contiguous()
        for name, tensor in model.state_dict().items()
    }
    save_file(tensors, path, metadata=about)


def _need_safetensors() -> None:
    if util.find_spec("safetensors") is None:
        raise ModuleNotFoundError(
            "a GPT's file needs the package safetensors, which is not installed. "
            "Run: pip install safetensors"
        )
