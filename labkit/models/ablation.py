"""Ablate heads, or any numbers that W_O reads, and measure what each does by what is lost.

An effect is how much of a score is lost without a part, one number for each relation. A part's
specialisation is the share of its effects that falls on one relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from labkit.arguments import whole
from labkit.attention import MultiHeadAttention
from labkit.models.gpt import GPT
from labkit.models.stories import SURNAMES, Stories, encode

__all__ = ["COUNTS", "FOUR", "MATTERS", "SPECIALISED", "ablated", "ablated_heads", "effects",
    "mean_read", "random_groups", "right_words", "second_layer_weights", "specialisation",
    "units_of", "weights_on_sources", "weights_on_word_before"]  # fmt: skip

FOUR = ("number", "gender", "surname", "owner")  # relations of the stories
# The bars of chapter 8, fixed before its models were measured.
MATTERS = 0.1  # the least loss of a score that counts as an effect
SPECIALISED = 0.8  # the least share of a part's effects on one relation
COUNTS = 60  # stories that a page measures on


def units_of(layer: MultiHeadAttention, heads: Sequence[int]) -> list[int]:
    """List the numbers that heads write into W_O.

    Raises:
        ValueError: a head that the layer does not have.

    >>> units_of(MultiHeadAttention(8, 4), [1])
    [2, 3]
    """
    outside = [head for head in heads if not 0 <= whole("a head", head) < layer.h]
    if outside:
        raise ValueError(f"heads are numbered 0 to {layer.h - 1}; got {outside}.")
    return [head * layer.d_v + i for head in heads for i in range(layer.d_v)]


def random_groups(layer: MultiHeadAttention, count: int, seed: int) -> list[list[int]]:
    """Draw groups of a head's width from the units of all heads: the control of units_of.

    >>> [len(group) for group in random_groups(MultiHeadAttention(8, 4), 3, seed=0)]
    [2, 2, 2]
    """
    generator = torch.Generator().manual_seed(whole("seed", seed))
    among = layer.h * layer.d_v
    return [torch.randperm(among, generator=generator)[: layer.d_v].tolist() for _ in range(count)]


@contextmanager
def ablated(
    layer: MultiHeadAttention, units: Sequence[int], values: Tensor | float = 0.0
) -> Iterator[None]:
    """Put values in the place of what W_O reads, inside a ``with`` block.

    Args:
        layer: the layer.
        units: which of the h d_v numbers that W_O reads at each position.
        values: what stands there instead, at every position: 0 in a zero-ablation, in a
            mean-ablation (h d_v,), such as mean_read gives.

    Source: Michel et al. (2019), section 2, for zero.

    >>> layer = MultiHeadAttention(4, 2, bias=False)
    >>> with ablated(layer, range(4)):
    ...     layer(torch.ones(1, 1, 4)).abs().sum().item()
    0.0
    """
    where = list(units)

    def put(_: Any, given: tuple[Tensor, ...]) -> Tensor:
        read = given[0].clone()
        read[..., where] = values[where] if isinstance(values, Tensor) else values
        return read

    hook = layer.w_o.register_forward_pre_hook(put)
    try:
        yield
    finally:
        hook.remove()


def ablated_heads(
    layer: MultiHeadAttention, heads: Sequence[int], values: Tensor | float = 0.0
) -> Any:
    """Ablate heads as ``ablated`` does units."""
    return ablated(layer, units_of(layer, heads), values)


@torch.no_grad()
def mean_read(model: nn.Module, layer: MultiHeadAttention, given: Tensor) -> Tensor:
    """Average what W_O reads of a batch over all its positions: (h d_v,).

    Args:
        model: what the layer is a part of.
        layer: the layer.
        given: what the model is called with.
    """
    read: list[Tensor] = []
    hook = layer.w_o.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(given)
    hook.remove()
    return read[0].flatten(0, -2).mean(0)


def effects(
    score: Callable[[], Tensor],
    layer: MultiHeadAttention,
    groups: Sequence[Sequence[int]],
    values: Tensor | float = 0.0,
) -> Tensor:
    """Measure what is lost of a score without each group of units: (groups, relations).

    Args:
        score: gives (relations,), more being better.
        layer: the layer that has the units.
        groups: of units, such as units_of gives.
        values: as in ablated.
    """
    intact, found = score(), []
    for units in groups:
        with ablated(layer, units, values):
            found.append(intact - score())
    return torch.stack(found)


def specialisation(lost: Tensor) -> Tensor:
    """Give the share of each part's effects that falls on one relation: (parts,).

    Effects below 0 count as 0. It is 1 for a part that does one thing, and 1 / relations for a part
    whose effects are even; NaN for a part without an effect of 0.1, MATTERS, on any relation.

    Args:
        lost: (parts, relations).

    >>> specialisation(torch.tensor([[0.9, 0.0, 0.1], [0.02, 0.0, 0.0]]))
    tensor([0.9000,    nan])
    """
    lost = lost.clamp(min=0)
    most = lost.amax(-1)
    return (most / lost.sum(-1)).where(most >= MATTERS, torch.nan)


def right_words(stories: Stories, *, of_their_kind: bool = False) -> Callable[[GPT], Tensor]:
    """Make a score of models: the mean probability on what is right of each of FOUR relations.

    Args:
        stories: what the models read.
        of_their_kind: give the share among all words that are ever right for the relation (verbs,
            pronouns, surnames, names), for which chance is known. Among all words a model that does
            not see that a verb has to follow is below it.

    >>> from labkit.models.training import small_gpt, unseen
    >>> right_words(unseen(4))(small_gpt(0)).shape
    torch.Size([4])
    """
    options = stories.options[:, 1:]
    asked = [stories.of(name)[:, 1:] for name in FOUR]
    kinds = [options[where].any(0) for where in asked]

    @torch.no_grad()
    def score(model: GPT) -> Tensor:
        found, given = [], model(stories.ids)[:, :-1].softmax(-1)
        on_right = (given * options).sum(-1)
        for where, kind in zip(asked, kinds, strict=True):
            of = given[where][:, kind].sum(-1) if of_their_kind else 1.0
            found.append((on_right[where] / of).mean())
        return torch.stack(found)

    return score


@torch.no_grad()
def weights_on_sources(weights: Tensor, stories: Stories) -> Tensor:
    """Average each head's weight on where the answer can be read: (layers, h, 4).

    Args:
        weights: (layers, B, h, n, n), of a model that reads these stories.
        stories: the stories.
    """
    found = []
    for name in FOUR:
        sources = stories.sources(name)
        asked = sources.any(-1)
        on = (weights * sources[:, None]).sum(-1)  # (layers, B, h, n)
        found.append((on * asked[:, None]).sum((1, 3)) / asked.sum())
    return torch.stack(found, -1)


def weights_on_word_before(weights: Tensor, stories: Stories, *, others: bool = False) -> Tensor:
    """Average each head's weight on the word before, where a surname asks: (layers, h).

    Args:
        weights: (layers, B, h, n, n), of a model that reads these stories.
        stories: the stories.
        others: average where another word asks, and not a surname; the first word is left out.

    >>> from labkit.models.training import unseen
    >>> told = unseen(4)
    >>> even = torch.full((2, 4, 1, 48, 48), 1 / 48)
    >>> weights_on_word_before(even, told).shape
    torch.Size([2, 1])
    """
    asks = torch.isin(stories.ids, encode(" ".join(SURNAMES))) ^ others
    before = weights.diagonal(-1, -2, -1)  # (layers, B, h, n - 1), from the second word on
    return before.transpose(2, 3)[:, asks[:, 1:]].mean(1)


@torch.no_grad()
def second_layer_weights(
    model: GPT,
    ids: Tensor,
    *,
    queries_without: Sequence[int] = (),
    keys_without: Sequence[int] = (),
) -> Tensor:
    """Give the weights of the second layer where its queries, or its keys, hear less of the first.

    Args:
        model: a GPT of two blocks.
        ids: (B, n).
        queries_without: heads of the first layer that are zero-ablated in the stream of which the
            second makes its queries.
        keys_without: and in the stream of which it makes its keys.

    Returns:
        (B, h, n, n).

    Source: Elhage et al. (2021), who call the two Q-composition and K-composition.

    >>> from labkit.models.training import small_gpt
    >>> second_layer_weights(small_gpt(0), torch.tensor([[3, 1]])).shape
    torch.Size([1, 4, 2, 2])
    """
    first, second = model.stack()
    streams = []
    for heads in (queries_without, keys_without):
        with ablated_heads(first.attention, heads):
            streams.append(second.attention_norm(first(model.words(ids))[0]))
    queries, keys = streams
    return second.attention(queries, keys, is_causal=True, return_weights=True)[1]
