"""Lab 7: tests that tell sound implementations of attention from unsound ones, and a zoo of both.

Every implementation runs without an error and gives the right shapes. The docstring of a sound one
says how it goes about its task, that of an unsound one what an observer could notice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import (
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from labkit.labs.guard import Answer, exercise
from labkit.labs.zoo import Implementation, Test, Zoo, judge, with_memory

INF = float("inf")
D_MODEL, HEADS = 8, 2  # of the layers that read padded sequences and that drop


@exercise
def weights_are_sound(function: Test) -> None:
    """Check a test of weights(q, k): (h, n_q, d_k) and (h, n_k, d_k) to (h, n_q, n_k)."""
    answer = Answer("weights_are_sound", function)
    sound = (product_and_softmax, one_einsum, three_axes, head_by_head, identity_as_values)
    unsound: Zoo = (over_queries, over_heads, unscaled, scaled_by_model, half_the_width)
    unsound += (without_maximum, one_maximum, squeezed, block_by_block)
    unsound += (over_queries_if_square, sixty_four_keys, cut_scores, in_half, first_scale)
    unsound += (weights_of_tensors, twice_in_place)
    judge(answer, "weights", sound, unsound)


@exercise
def hidden_is_hidden(function: Test) -> None:
    """Check a test of attend(q, k, v, may), whose boolean mask is True where a query may attend."""
    answer = Answer("hidden_is_hidden", function)
    sound = (filled, logarithm_added, in_blocks, by_pytorch, in_float32)
    unsound: Zoo = (masked_afterwards, not_kept, truth_added, scores_times_mask, filled_with_little)
    unsound += (only_if_square, product_in_own_type, wider_type, filled_too_high, divided_again)
    unsound += (filled_not_low_enough, divided_last, one_key_is_none, masked_up_to_64, first_mask)
    unsound += (taken_for_causal,)
    judge(answer, "attend", sound, unsound)


@exercise
def padding_is_ignored(function: Test) -> None:
    """Check a test of encode(x, real): x is (B, n, 8), real (B, n), True for a token."""
    answer = Answer("padding_is_ignored", function)
    sound = (by_module, by_function, by_labkit, each_alone, mask_for_each_head, nothing_at_padding)
    unsound: Zoo = (as_it_came, turned_round, between_documents, hides_queries, tiled)
    unsound += (zeros_for_padding, batch_first_forgotten, mask_of_the_first, one_long_row, counted)
    unsound += (small_weights, unless_the_first_is_full, halves_alike, alone_unmasked)
    unsound += (mask_as_square, added_little, real_up_to_64, first_real, output_of_tensors)
    unsound += (hears_what_came, nearer_is_louder)
    judge(answer, "encode", sound, unsound)


@exercise
def past_is_kept(function: Test) -> None:
    """Check a test of attend(q, k, v), causal, whose n_q queries are the last of n_k positions."""
    answer = Answer("past_is_kept", function)
    sound = (last_rows, by_position, block_of_queries, filled_up_in_front)
    unsound: Zoo = (flagged, flagged_if_several, upper_triangle, one_too_many, causal_if_square)
    unsound += (moved_by_queries, future_divides, causal_without_maximum)
    unsound += (zeros_hidden, past_of_64, blocks_of_32, future_at_minus_100, first_past)
    unsound += (causal_of_tensors,)
    judge(answer, "attend", sound, unsound)


@exercise
def heads_keep_apart(function: Test) -> None:
    """Check a test of in_heads(work, x, h), which splits x, works on all heads, and merges."""
    answer = Answer("heads_keep_apart", function)
    sound = (moved_and_moved_back, slice_by_slice, permuted)
    unsound: Zoo = (split_by_view, merged_by_view, viewed_twice, batch_and_heads_swapped)
    unsound += (dealt_in_turn, last_head_first, features_first, thrown_away)
    unsound += (one_head_not_asked, not_moved_if_square, read_as_it_lies, written_as_it_lies)
    unsound += (half_of_the_batch, heads_of_tensors)
    judge(answer, "in_heads", sound, unsound)


@exercise
def layer_is_sound(function: Test) -> None:
    """Check a test of layer(x, w_q, w_k, w_v, w_o, h), without biases and without a mask."""
    answer = Answer("layer_is_sound", function)
    sound = (step_by_step, blocks_of_matrices, function_of_weights)
    unsound: Zoo = (key_twice, heads_to_heads, sequence_and_batch_swapped, in_a_chain)
    unsound += (roles_swapped, side_by_side_only, one_set_for_all, not_transposed, never_scaled)
    unsound += (heads_dealt_in_turn, batch_in_one_row, exponentials_alone)
    unsound += (one_head_is_joined, output_not_transposed, residual, causal_unasked, longest_first)
    unsound += (sixty_four_tokens, cut_layer, matrices_of_tensors, scaled_in_place)
    judge(answer, "layer", sound, unsound)


@exercise
def dropout_is_sound(function: Test) -> None:
    """Check a test of make(p), which makes a layer for x of shape (B, n, 8) with dropout."""
    answer = Answer("dropout_is_sound", function)
    sound = (DropoutPart, DropoutFunction, DropoutInKernel, DropoutInModule)
    unsound: Zoo = (
        NeverSwitchedOff,
        OneMaskForAllSequences,
        SwitchedOffForGood,
        OffAsItComes,
        KeepsInPlaceOfDropping,
    )
    unsound += (AlwaysATenth, ATenthForNone, BeforeTheSoftmax, OnTheOutput, NotRescaled)
    unsound += (Renormalised, OneMaskForAllHeads, OneMaskForAllQueries, RescaledInEvaluation)
    unsound += (OneMaskForBothHalves, OneMaskForAllKeys, OneMaskForAllCalls)
    unsound += (NeverAlone, AtMostHalf, OnlyWithGradients, NeverInLongOnes, SeededByTrain)
    judge(answer, "make", sound, unsound)


def looks_at_tensors(sound: Implementation, noticed: str) -> Implementation:
    """Give what the same tensors gave before, whatever is in them by now."""

    @with_memory
    def remembered(memory: dict[Any, Any], *given: Any, **named: Any) -> Any:
        known = tuple(map(id, (*given, *named.values())))
        if known not in memory:
            memory[known] = given, named, sound(*given, **named)  # held: no other gets their id
        return memory[known][2]

    remembered.__doc__ = noticed
    return remembered


# Weights: (..., h, n_q, d_k) and (..., h, n_k, d_k) to (..., h, n_q, n_k)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


def product_and_softmax(q: Tensor, k: Tensor) -> Tensor:
    """a product, a division and a softmax"""
    return scores(q, k).softmax(dim=-1)


def one_einsum(q: Tensor, k: Tensor) -> Tensor:
    """an einsum, and exponentials that are divided by their sum"""
    s = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    e = (s - s.amax(dim=-1, keepdim=True)).exp()
    return e / e.sum(dim=-1, keepdim=True)


def three_axes(q: Tensor, k: Tensor) -> Tensor:
    """a product of three axes, no more"""
    return torch.bmm(q * q.shape[2] ** -0.5, k.transpose(1, 2)).softmax(dim=2)


def head_by_head(q: Tensor, k: Tensor) -> Tensor:
    """a loop over the heads"""
    return torch.stack([product_and_softmax(*head) for head in zip(q, k, strict=True)])


def identity_as_values(q: Tensor, k: Tensor) -> Tensor:
    """PyTorch's function, with the identity as values"""
    n_k = k.shape[-2]
    unit = torch.eye(n_k, dtype=k.dtype).expand(*k.shape[:-1], n_k)
    return F.scaled_dot_product_attention(q, k, unit)


def over_queries(q: Tensor, k: Tensor) -> Tensor:
    """a query's weights change when another query is added"""
    return scores(q, k).softmax(dim=-2)


def over_heads(q: Tensor, k: Tensor) -> Tensor:
    """a head's weights change when another head is added"""
    of_a_query = scores(q, k).movedim(-3, -2)
    return of_a_query.flatten(-2).softmax(dim=-1).view_as(of_a_query).movedim(-2, -3)


def unscaled(q: Tensor, k: Tensor) -> Tensor:
    """its weights are further from even than they should be"""
    return (q @ k.mT).softmax(dim=-1)


def scaled_by_model(q: Tensor, k: Tensor) -> Tensor:
    """with several heads, its weights are closer to even than they should be"""
    d_model = q.shape[-3] * q.shape[-1]
    return (q @ k.mT / d_model**0.5).softmax(dim=-1)


def half_the_width(q: Tensor, k: Tensor) -> Tensor:
    """its weights are right for d_k = 4, and closer to even than they should be above that"""
    return (q @ k.mT / (q.shape[-1] ** 1 / 2)).softmax(dim=-1)


def without_maximum(q: Tensor, k: Tensor) -> Tensor:
    """large scores give weights that are not numbers"""
    e = scores(q, k).exp()
    return e / e.sum(dim=-1, keepdim=True)


def one_maximum(q: Tensor, k: Tensor) -> Tensor:
    """a query whose scores are far below another's gets weights that are not numbers"""
    s = scores(q, k)
    e = (s - s.max()).exp()
    return e / e.sum(dim=-1, keepdim=True)


def squeezed(q: Tensor, k: Tensor) -> Tensor:
    """with one key, a query's weights change when another query is added"""
    return scores(q, k).squeeze().softmax(dim=-1).view(*q.shape[:-1], k.shape[-2])


def block_by_block(q: Tensor, k: Tensor) -> Tensor:
    """with more than 16 keys, a query's weights need not sum to one"""
    blocks = scores(q, k).split(16, dim=-1)
    tops = torch.stack([block.amax(dim=-1, keepdim=True) for block in blocks]).cummax(dim=0).values
    parts = [(block - top).exp() for block, top in zip(blocks, tops, strict=True)]
    total = torch.zeros_like(tops[0])
    for part, top in zip(parts, tops, strict=True):
        total += part.sum(dim=-1, keepdim=True) * (top - tops[-1]).exp()
    return torch.cat(parts, dim=-1) / total  # the earlier parts have other maxima


def twice_in_place(q: Tensor, k: Tensor) -> Tensor:
    """if q and k are one tensor, its weights are closer to even than they should be"""
    scaled = q * q.shape[-1] ** -0.5
    return (scaled @ (scaled if k is q else k).mT).softmax(dim=-1)


def over_queries_if_square(q: Tensor, k: Tensor) -> Tensor:
    """with as many queries as keys, its weights change when another query is added"""
    s = scores(q, k)
    return s.softmax(dim=-1 if q.shape[-2] != k.shape[-2] else -2)


def sixty_four_keys(q: Tensor, k: Tensor) -> Tensor:
    """keys beyond the 64th get no weight"""
    p = scores(q, k[..., :64, :]).softmax(dim=-1)
    return F.pad(p, (0, k.shape[-2] - p.shape[-1]))


def cut_scores(q: Tensor, k: Tensor) -> Tensor:
    """of two scores above a hundred, the larger one gets no more weight"""
    return scores(q, k).clamp(-100, 100).softmax(dim=-1)


def in_half(q: Tensor, k: Tensor) -> Tensor:
    """where scores are hundreds, weights are off by some percent"""
    return scores(q, k).half().float().softmax(dim=-1)


@with_memory
def first_scale(memory: dict[Any, Any], q: Tensor, k: Tensor) -> Tensor:
    """what it gives depends on the d_k of an earlier call"""
    return (q @ k.mT / memory.setdefault("d_k", q.shape[-1]) ** 0.5).softmax(dim=-1)


weights_of_tensors = looks_at_tensors(
    product_and_softmax, "it gives old weights when q and k are the same tensors with new numbers"
)


# Masks: (..., n_q, d_k), (..., n_k, d_k), (..., n_k, d_v) and (n_q, n_k) to (..., n_q, d_v)


def filled(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """scores are filled with minus infinity"""
    return scores(q, k).masked_fill(~may, -INF).softmax(dim=-1) @ v


def logarithm_added(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """the logarithm of 1 and 0 is added"""
    return (scores(q, k) + may.to(q.dtype).log()).softmax(dim=-1) @ v


def in_blocks(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """blocks of 32 keys, one after the other, in float32"""
    top = torch.full((*q.shape[:-1], 1), torch.finfo(torch.float32).min)
    total, out = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    for keys, values, open_ in zip(
        k.split(32, -2), v.split(32, -2), may.split(32, -1), strict=True
    ):
        s = scores(q.float(), keys.float()).masked_fill(~open_, -INF)
        higher = torch.maximum(top, s.amax(dim=-1, keepdim=True))
        e, shrink = (s - higher).exp(), (top - higher).exp()
        total = total * shrink + e.sum(dim=-1, keepdim=True)
        out, top = out * shrink + e @ values.float(), higher
    return (out / total).to(q.dtype)


def by_pytorch(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """PyTorch's function"""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may)


def in_float32(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """float32 within, whatever comes"""
    low = torch.finfo(torch.float32).min
    s = torch.where(may, scores(q.float(), k.float()), low)
    return (s.softmax(dim=-1) @ v.float()).to(q.dtype)


def masked_afterwards(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """with all values equal to one, some outputs are less than one"""
    return (product_and_softmax(q, k) * may) @ v


def not_kept(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """the mask has no effect"""
    s = scores(q, k)
    s.masked_fill(~may, -INF)
    return s.softmax(dim=-1) @ v


def truth_added(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """the mask has an effect, and hidden keys have a say"""
    return (scores(q, k) + may).softmax(dim=-1) @ v


def product_in_own_type(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """right in float32, and of no use in float16"""
    low = torch.tensor(-1e9, dtype=q.dtype)
    return (scores(q, k) + (~may).to(q.dtype) * low).softmax(dim=-1) @ v


def scores_times_mask(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """a hidden key counts like an open one with the score zero"""
    return (scores(q, k) * may).softmax(dim=-1) @ v


def filled_with_little(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """a hidden key counts like an open one with the score zero"""
    return scores(q, k).masked_fill(~may, 1e-9).softmax(dim=-1) @ v


def only_if_square(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """with another number of queries than of keys, the mask has no effect"""
    return filled(q, k, v, may if q.shape[-2] == k.shape[-2] else torch.ones_like(may))


def wider_type(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """float16 goes in and float32 comes out"""
    return filled(q.float(), k.float(), v.float(), may)


def filled_too_high(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """where open scores are far below zero, hidden keys have a say"""
    return scores(q, k).masked_fill(~may, -100).softmax(dim=-1) @ v


def divided_again(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """where a hidden score is far above the open ones, what comes out are no numbers"""
    weights = product_and_softmax(q, k) * may
    return weights / weights.sum(dim=-1, keepdim=True) @ v


def filled_not_low_enough(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """where open scores are below −10,000, hidden keys have a say"""
    return scores(q, k).masked_fill(~may, -1e4).softmax(dim=-1) @ v


def divided_last(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """in float16, large values give outputs that are not numbers"""
    s = scores(q, k).masked_fill(~may, -INF)
    e = (s - s.amax(dim=-1, keepdim=True)).exp()
    return e @ v / e.sum(dim=-1, keepdim=True)


def one_key_is_none(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """a query with one open key hears hidden ones"""
    return filled(q, k, v, may | (may.sum(dim=-1, keepdim=True) == 1))


def masked_up_to_64(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """beyond the 64th, hidden keys have a say"""
    return filled(q, k, v, may | (torch.arange(may.shape[-1]) >= 64))


def taken_for_causal(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """if a mask hides all that is ahead, its holes among what is behind are open"""
    causal = causal_mask(may.shape[-1])[-may.shape[-2] :]  # has fewer rows if queries are more
    hides = causal.shape == may.shape and not (may & ~causal).any()
    return filled(q, k, v, causal if hides else may)


@with_memory
def first_mask(memory: dict[Any, Any], q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """another mask of the same shape has no effect"""
    return filled(q, k, v, memory.setdefault(may.shape, may.clone()))


# Padding: x (B, n, D_MODEL) and real (B, n), True for a token, to (B, n, D_MODEL)


@cache
def reader(size: float = 1.0) -> MultiHeadAttention:
    """Make the layer that all implementations share, its weights times a number."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        layer = MultiHeadAttention(D_MODEL, HEADS, bias=False).requires_grad_(False)
    for weight in layer.parameters():
        weight.mul_(size)
    return layer


@cache
def module(batch_first: bool = True) -> nn.MultiheadAttention:
    return reader().to_torch(batch_first=batch_first)


@cache
def joint() -> Tensor:
    """Stack the three matrices that project what the shared layer reads."""
    return torch.cat([part.weight for part in (reader().w_q, reader().w_k, reader().w_v)])


def project(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    heads = (x @ joint().T).unflatten(-1, (3, HEADS, -1))  # (B, n, 3, h, d_k)
    q, k, v = heads.movedim(1, -2).unbind(dim=1)
    return q, k, v


def by_module(x: Tensor, real: Tensor) -> Tensor:
    """PyTorch's module"""
    return module()(x, x, x, key_padding_mask=~real, need_weights=False)[0]


def by_function(x: Tensor, real: Tensor) -> Tensor:
    """PyTorch's function between two projections"""
    heads = F.scaled_dot_product_attention(*project(x), attn_mask=real[:, None, None])
    return reader().w_o(merge_heads(heads))


def by_labkit(x: Tensor, real: Tensor) -> Tensor:
    """labkit's layer"""
    return reader()(x, mask=real[:, None, None])


def each_alone(x: Tensor, real: Tensor) -> Tensor:
    """each sequence by itself, without its padding"""
    out = torch.zeros_like(x)
    for i, tokens in enumerate(real):
        out[i, tokens] = reader()(x[i, tokens])
    return out


def mask_for_each_head(x: Tensor, real: Tensor) -> Tensor:
    """PyTorch's module, with a mask for each head of each sequence"""
    blocked = ~real[:, None].expand(-1, x.shape[1], -1)
    blocked = blocked.repeat_interleave(HEADS, dim=0)
    return module()(x, x, x, attn_mask=blocked, need_weights=False)[0]


def padded(x: Tensor, may: Tensor, fill: float = -INF) -> Tensor:
    """Attend where the mask is True; it broadcasts to (B, HEADS, n, n)."""
    q, k, v = project(x)
    return reader().w_o(merge_heads(scores(q, k).masked_fill(~may, fill).softmax(dim=-1) @ v))


def nothing_at_padding(x: Tensor, real: Tensor) -> Tensor:
    """at padding, where queries are hidden too, what comes out are no numbers"""
    return padded(x, real[:, None, :, None] & real[:, None, None, :])


def as_it_came(x: Tensor, real: Tensor) -> Tensor:
    """in PyTorch's module, tokens hear from padding and not from each other"""
    return module()(x, x, x, key_padding_mask=real)[0]


def turned_round(x: Tensor, real: Tensor) -> Tensor:
    """in PyTorch's function, tokens hear from padding and not from each other"""
    heads = F.scaled_dot_product_attention(*project(x), attn_mask=~real[:, None, None])
    return reader().w_o(merge_heads(heads))


def between_documents(x: Tensor, real: Tensor) -> Tensor:
    """a mask goes from one document's code to another's, and tokens hear from padding"""
    mask = ~real[:, None, None]  # True blocks, as in section-2.3
    return padded(x, mask != 0, -1e9)  # zero blocks, as in committee


def hides_queries(x: Tensor, real: Tensor) -> Tensor:
    """tokens hear from everybody, padding included"""
    return padded(x, real[:, None, :, None], -1e4)


def tiled(x: Tensor, real: Tensor) -> Tensor:
    """what a sequence gives depends on how long the others in its batch are"""
    blocked = ~real[:, None].expand(-1, x.shape[1], -1)
    return module()(x, x, x, attn_mask=blocked.repeat(HEADS, 1, 1))[0]


def zeros_for_padding(x: Tensor, real: Tensor) -> Tensor:
    """what padding holds does not matter, but how much of it there is does"""
    return padded(x * real[..., None], torch.ones_like(real)[:, None, None])


def batch_first_forgotten(x: Tensor, real: Tensor) -> Tensor:
    """a token hears what stands in its place in other sequences, and not its own sequence"""
    return module(batch_first=False)(x, x, x, key_padding_mask=~real.mT)[0]


def mask_of_the_first(x: Tensor, real: Tensor) -> Tensor:
    """in all sequences, padding is where the first has it"""
    return padded(x, real[:1, None, None])


def one_long_row(x: Tensor, real: Tensor) -> Tensor:
    """tokens hear the tokens of other sequences"""
    return padded(x.flatten(0, 1)[None], real.flatten()[None, None, None]).view_as(x)


def counted(x: Tensor, real: Tensor) -> Tensor:
    """where padding is not on the right, it is taken for tokens and tokens for padding"""
    right_side = torch.arange(x.shape[1]) < real.sum(dim=1, keepdim=True)
    return padded(x, right_side[:, None, None])


def small_weights(x: Tensor, real: Tensor) -> Tensor:
    """its numbers are small; tokens hear from padding and not from each other"""
    return reader(size=0.1)(x, mask=~real[:, None, None])


def unless_the_first_is_full(x: Tensor, real: Tensor) -> Tensor:
    """if the first sequence has no padding, the tokens of the others hear from theirs"""
    return padded(x, (real | real[0].all())[:, None, None])


def halves_alike(x: Tensor, real: Tensor) -> Tensor:
    """in the second half of a batch, padding is where the first half has it"""
    half = real[: (len(real) + 1) // 2]
    return padded(x, torch.cat([half, half])[: len(real), None, None])


def alone_unmasked(x: Tensor, real: Tensor) -> Tensor:
    """in a batch of one, tokens hear from padding"""
    return padded(x, (real | (len(real) == 1))[:, None, None])


def mask_as_square(x: Tensor, real: Tensor) -> Tensor:
    """with as many sequences as positions, padding is taken from other sequences"""
    square = real.shape[0] == real.shape[1]
    return padded(x, real[None, None] if square else real[:, None, None], -1e9)


def added_little(x: Tensor, real: Tensor) -> Tensor:
    """padding whose numbers are thousands has a say"""
    q, k, v = project(x)
    s = scores(q, k) - 1e3 * (~real[:, None, None]).float()
    return reader().w_o(merge_heads(s.softmax(dim=-1) @ v))


def real_up_to_64(x: Tensor, real: Tensor) -> Tensor:
    """tokens hear from padding that is beyond the 64th place"""
    return padded(x, (real | (torch.arange(x.shape[1]) >= 64))[:, None, None])


def hears_what_came(x: Tensor, real: Tensor) -> Tensor:
    """what comes out at a token depends on the order of the tokens: it hears none after it"""
    may = real[:, None, None] & causal_mask(x.shape[1])
    return padded(x, may, torch.finfo(x.dtype).min)


def nearer_is_louder(x: Tensor, real: Tensor) -> Tensor:
    """what comes out at a token depends on the order of the tokens: it hears far ones less"""
    q, k, v = project(x)
    place = real.cumsum(dim=1)  # padding is not counted
    far = (place[:, :, None] - place[:, None]).abs()[:, None]
    s = (scores(q, k) - 0.25 * far).masked_fill(~real[:, None, None], -INF)
    return reader().w_o(merge_heads(s.softmax(dim=-1) @ v))


@with_memory
def first_real(memory: dict[Any, Any], x: Tensor, real: Tensor) -> Tensor:
    """padding is where an earlier call of the same shape had it"""
    return padded(x, memory.setdefault(real.shape, real.clone())[:, None, None], -1e9)


output_of_tensors = looks_at_tensors(
    by_labkit, "it gives old outputs when x and real are the same tensors with new numbers"
)


# Causal, with a past: (..., n_q, d_k), (..., n_k, d_k), (..., n_k, d_v) to (..., n_q, d_v)


def last_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """the last rows of the square mask"""
    return by_pytorch(q, k, v, causal_mask(k.shape[-2])[-q.shape[-2] :])


def by_position(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a comparison of positions"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return filled(q, k, v, torch.arange(n_k) <= torch.arange(n_k - n_q, n_k)[:, None])


def block_of_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """blocks of 32 queries, each with the keys up to its last"""
    end, blocks = k.shape[-2] - q.shape[-2], []
    for block in q.split(32, dim=-2):
        end += block.shape[-2]
        blocks.append(by_position(block, k[..., :end, :], v[..., :end, :]))
    return torch.cat(blocks, dim=-2)


def filled_up_in_front(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """queries of zeros are put in front, and what they give is cut off"""
    past = len(k) - len(q)
    q = torch.cat([q.new_zeros(past, q.shape[1]), q])
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[past:]


def flagged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """right for all positions at once, but a query that comes alone hears one key only"""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flagged_if_several(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """right for one query and for all, but the first of two hears one key only"""
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[-2] > 1)


def upper_triangle(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """queries hear from the future"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    ahead = torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=ahead)


def one_too_many(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a query hears from the position after its own"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return filled(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q + 1))


def causal_if_square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """as soon as there is a past, queries hear from positions after their own"""
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[-2] == k.shape[-2])


def moved_by_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """right for half as many queries as keys, but not for all positions at once"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return filled(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool).tril(n_q))


def future_divides(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """with all values equal to one, some outputs are less than one"""
    return masked_afterwards(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


def causal_without_maximum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """large scores give outputs that are not numbers"""
    e = scores(q, k).exp().tril(k.shape[-2] - q.shape[-2])
    return e / e.sum(dim=-1, keepdim=True) @ v


def zeros_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a key whose score is exactly zero is not heard"""
    s = scores(q, k).tril(k.shape[-2] - q.shape[-2])
    return s.masked_fill(s == 0, torch.finfo(s.dtype).min).softmax(dim=-1) @ v


def past_of_64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """what is 64 positions back or more is not heard"""
    may = causal_mask(q.shape[-2], k.shape[-2])
    return filled(q, k, v, may & ~may.tril(k.shape[-2] - q.shape[-2] - 64))


def blocks_of_32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """with more than 32 queries, some hear positions after their own"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    own = torch.arange(n_q)
    seen = torch.minimum((own // 32 + 1) * 32, own.new_tensor(n_q)) if n_q > 32 else own + 1
    may = torch.arange(n_k) < (seen + n_k - n_q)[:, None]
    return filled(q, k, v, may)


def future_at_minus_100(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """where scores are far below zero, positions after a query's own have a say"""
    return filled_too_high(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


@with_memory
def first_past(memory: dict[Any, Any], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """what a query hears depends on how long the past was in an earlier call"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    past = memory.setdefault(n_q, n_k - n_q)
    return filled(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool).tril(past))


causal_of_tensors = looks_at_tensors(
    last_rows, "it gives old outputs when q, k and v are the same tensors with new numbers"
)


# Heads: work on (B, h, n, d), x (B, n, h*d) and h to (B, n, h*d)

Work = Callable[[Tensor], Tensor]


def moved_and_moved_back(work: Work, x: Tensor, h: int) -> Tensor:
    """the heads' axis is moved and moved back"""
    return merge_heads(work(split_heads(x, h)))


def slice_by_slice(work: Work, x: Tensor, h: int) -> Tensor:
    """slices are stacked, and joined again"""
    heads = work(torch.stack(x.chunk(h, dim=-1), dim=1))
    return torch.cat(heads.unbind(dim=1), dim=-1)


def permuted(work: Work, x: Tensor, h: int) -> Tensor:
    """axes are permuted and permuted back"""
    B, n, width = x.shape
    heads = work(x.reshape(B, n, h, width // h).permute(0, 2, 1, 3).contiguous())
    return heads.permute(0, 2, 1, 3).reshape(B, n, width)


def split_by_view(work: Work, x: Tensor, h: int) -> Tensor:
    """left alone, the numbers come back in another order"""
    B, n, width = x.shape
    return merge_heads(work(x.reshape(B, h, n, width // h)))


def merged_by_view(work: Work, x: Tensor, h: int) -> Tensor:
    """left alone, the numbers come back in another order, though each head gets its own"""
    return work(split_heads(x, h)).reshape(x.shape)


def viewed_twice(work: Work, x: Tensor, h: int) -> Tensor:
    """left alone, everything comes back as it was; yet a head does not get a part of every token"""
    B, n, width = x.shape
    return work(x.reshape(B, h, n, width // h)).reshape(B, n, width)


def batch_and_heads_swapped(work: Work, x: Tensor, h: int) -> Tensor:
    """whatever is done to all heads alike comes out right, but heads stand in each other's place"""
    in_front = torch.cat(x.chunk(h, dim=-1))  # (h*B, n, d)
    heads = work(in_front.unflatten(0, (len(x), h)))
    return torch.cat(heads.flatten(0, 1).chunk(h), dim=-1)


def dealt_in_turn(work: Work, x: Tensor, h: int) -> Tensor:
    """left alone, everything comes back as it was; yet a head's numbers do not lie side by side"""
    heads = work(x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
    return heads.permute(0, 2, 3, 1).flatten(2)


def last_head_first(work: Work, x: Tensor, h: int) -> Tensor:
    """left alone, everything comes back as it was; yet heads are numbered from the right"""
    return merge_heads(work(split_heads(x, h).flip(1)).flip(1))


def features_first(work: Work, x: Tensor, h: int) -> Tensor:
    """each head gets its own numbers, and not in their places"""
    B, n, width = x.shape
    heads = work(x.mT.reshape(B, h, n, width // h))
    return heads.reshape(B, width, n).mT


def thrown_away(work: Work, x: Tensor, h: int) -> Tensor:
    """what `work` returns does not matter"""
    heads = split_heads(x, h)
    work(heads)
    return merge_heads(heads)


def one_head_not_asked(work: Work, x: Tensor, h: int) -> Tensor:
    """with one head, what `work` returns does not matter"""
    return moved_and_moved_back(work, x, h) if h > 1 else thrown_away(work, x, h)


def not_moved_if_square(work: Work, x: Tensor, h: int) -> Tensor:
    """with as many heads as positions, each head gets whole tokens"""
    return (viewed_twice if x.shape[1] == h else moved_and_moved_back)(work, x, h)


def as_it_lies(x: Tensor) -> Tensor:
    """Read the numbers of a tensor in the order of memory, if nothing else lies between them."""
    dense = x.untyped_storage().nbytes() == x.numel() * x.element_size()
    return x.as_strided((x.numel(),), (1,)).view(x.shape) if dense else x


def read_as_it_lies(work: Work, x: Tensor, h: int) -> Tensor:
    """what is not contiguous is split in the order of memory"""
    return moved_and_moved_back(work, as_it_lies(x), h)


def written_as_it_lies(work: Work, x: Tensor, h: int) -> Tensor:
    """what `work` returns, if it is not contiguous, is merged in the order of memory"""
    return moved_and_moved_back(lambda heads: as_it_lies(work(heads)), x, h)


def half_of_the_batch(work: Work, x: Tensor, h: int) -> Tensor:
    """what `work` returns for the second half of a batch does not matter"""
    out = moved_and_moved_back(work, x, h)
    half = out[: (len(out) + 1) // 2]
    return torch.cat([half, half])[: len(out)]


@with_memory
def heads_of_tensors(memory: dict[Any, Any], work: Work, x: Tensor, h: int) -> Tensor:
    """`work` gets old numbers when x is the same tensor with new ones"""
    if (id(x), h) not in memory:
        memory[id(x), h] = x, split_heads(x, h).clone()
    return merge_heads(work(memory[id(x), h][1].clone()))


# Layers: x (B, n, d_model), four matrices as nn.Linear stores them, and h to (B, n, d_model)


def attended(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    return merge_heads(scaled_dot_product_attention(*(split_heads(part, h) for part in (q, k, v))))


def step_by_step(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """one step after the other"""
    return attended(x @ w_q.T, x @ w_k.T, x @ w_v.T, h) @ w_o.T


def blocks_of_matrices(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """a sum over heads, each with its own block of every matrix"""
    q, k, v = (torch.einsum("bnc,hdc->bhnd", x, w.unflatten(0, (h, -1))) for w in (w_q, w_k, w_v))
    heads = product_and_softmax(q, k) @ v
    return torch.einsum("bhnd,chd->bnc", heads, w_o.unflatten(1, (h, -1)))


def function_of_weights(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """what PyTorch's module calls, with these weights"""
    rows, w_in = x.transpose(0, 1), torch.cat([w_q, w_k, w_v])
    out, _ = F.multi_head_attention_forward(
        rows, rows, rows, x.shape[-1], h, w_in, None, None, None, False, 0.0, w_o, None,
        need_weights=False,
    )  # fmt: skip
    return out.transpose(0, 1)


def key_twice(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """one of the four matrices has no effect on what comes out"""
    return attended(x @ w_q.T, x @ w_k.T, x @ w_k.T, h) @ w_o.T


def in_a_chain(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """when one matrix is zero, too much of the rest falls silent"""
    q = x @ w_q.T
    k = q @ w_k.T
    return attended(q, k, k @ w_v.T, h) @ w_o.T


def roles_swapped(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """two of the matrices do each other's work"""
    return attended(x @ w_k.T, x @ w_q.T, x @ w_v.T, h) @ w_o.T


def side_by_side_only(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """what one head gives stays in its own places of the output"""
    return attended(x @ w_q.T, x @ w_k.T, x @ w_v.T, h)


def one_set_for_all(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """most of the numbers in three of the matrices have no effect"""
    w_q, w_k, w_v = (w.chunk(h)[0].repeat(h, 1) for w in (w_q, w_k, w_v))
    return step_by_step(x, w_q, w_k, w_v, w_o, h)


def not_transposed(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """a matrix does the work of its transpose"""
    return step_by_step(x, w_q.T, w_k.T, w_v.T, w_o.T, h)


def never_scaled(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """its weights are further from even than they should be"""
    return step_by_step(x, w_q * (x.shape[-1] // h) ** 0.5, w_k, w_v, w_o, h)


def heads_to_heads(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """a token hears no other token: its heads hear each other"""
    heads = (part.unflatten(-1, (h, -1)) for part in (x @ w_q.T, x @ w_k.T, x @ w_v.T))
    return scaled_dot_product_attention(*heads).flatten(2) @ w_o.T


def heads_dealt_in_turn(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """the numbers of a head do not lie side by side"""
    turn = torch.arange(len(w_q)).view(-1, h).mT.flatten()  # 0, h, 2h, ...
    return step_by_step(x, w_q[turn], w_k[turn], w_v[turn], w_o[:, turn], h)


def batch_in_one_row(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """tokens hear the tokens of other sequences"""
    row = x.flatten(0, 1)[None]
    return step_by_step(row, w_q, w_k, w_v, w_o, h).view_as(x)


def sequence_and_batch_swapped(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """a token hears what stands in its place in other sequences"""
    return step_by_step(x.transpose(0, 1), w_q, w_k, w_v, w_o, h).transpose(0, 1)


def exponentials_alone(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """large scores give outputs that are not numbers"""
    q, k, v = (split_heads(x @ w.T, h) for w in (w_q, w_k, w_v))
    return merge_heads(without_maximum(q, k) @ v) @ w_o.T


def one_head_is_joined(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """with one head, one of the four matrices has no effect"""
    return (step_by_step if h > 1 else side_by_side_only)(x, w_q, w_k, w_v, w_o, h)


def output_not_transposed(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """the last matrix does the work of its transpose"""
    return step_by_step(x, w_q, w_k, w_v, w_o.T, h)


def residual(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """with zeros for the last matrix, something comes out"""
    return x + step_by_step(x, w_q, w_k, w_v, w_o, h)


def causal_unasked(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """a token hears nothing that comes after it"""
    q, k, v = (split_heads(x @ w.T, h) for w in (w_q, w_k, w_v))
    return merge_heads(last_rows(q, k, v)) @ w_o.T


def longest_first(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """with more sequences than tokens, a token hears what stands in its place in others"""
    swaps = x.shape[0] > x.shape[1]
    return (sequence_and_batch_swapped if swaps else step_by_step)(x, w_q, w_k, w_v, w_o, h)


def sixty_four_tokens(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """tokens beyond the 64th are not heard"""
    heard = x[:, :64]
    return attended(x @ w_q.T, heard @ w_k.T, heard @ w_v.T, h) @ w_o.T


def cut_layer(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """of two scores above a hundred, the larger one counts no more"""
    q, k, v = (split_heads(x @ w.T, h) for w in (w_q, w_k, w_v))
    return merge_heads(cut_scores(q, k) @ v) @ w_o.T


@with_memory
def matrices_of_tensors(
    memory: dict[Any, Any], x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """it uses old numbers when the matrices are the same tensors with new ones"""
    matrices = (w_q, w_k, w_v, w_o)
    known = tuple(map(id, matrices))
    if known not in memory:
        memory[known] = matrices, [matrix.clone() for matrix in matrices]
    w_q, w_k, w_v, w_o = memory[known][1]
    return step_by_step(x, w_q, w_k, w_v, w_o, h)


def scaled_in_place(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """if w_q and w_k are one tensor, its weights are closer to even than they should be"""
    q = x @ w_q.T
    k = q if w_k is w_q else x @ w_k.T
    q *= (x.shape[-1] // h) ** -0.5
    p = (split_heads(q, h) @ split_heads(k, h).mT).softmax(dim=-1)
    return merge_heads(p @ split_heads(x @ w_v.T, h)) @ w_o.T


# Dropout: p to a layer from (B, n, D_MODEL) to the same


class Dropping(nn.Module):
    """A layer that drops, by functions that others change."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def _get_name(self) -> str:
        return "Layer"  # when it is printed

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.p, self.training)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.drop(product_and_softmax(q, k)) @ v

    def forward(self, x: Tensor) -> Tensor:
        return reader().w_o(merge_heads(self.attend(*project(x))))


class DropoutPart(Dropping):
    """dropout is a part of the layer"""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.part = nn.Dropout(p)

    def drop(self, weights: Tensor) -> Tensor:
        return self.part(weights)


class DropoutFunction(Dropping):
    """dropout is a function that is told the mode"""


class DropoutInKernel(Dropping):
    """PyTorch's function drops, and is told to only in training"""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p)


class DropoutInModule(Dropping):
    """PyTorch's module, with biases, and with new weights in every layer that is made"""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.theirs = nn.MultiheadAttention(D_MODEL, HEADS, dropout=p, batch_first=True)
        nn.init.normal_(self.theirs.in_proj_bias)
        nn.init.normal_(self.theirs.out_proj.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.theirs(x, x, x, need_weights=False)[0]


class NeverSwitchedOff(Dropping):
    """in use, the same input gives another output each time"""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)


class SwitchedOffForGood(NeverSwitchedOff):
    """after it has been used once, it trains without dropout"""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.p = 0.0
        return super().forward(x)


class OffAsItComes(Dropping):
    """it does not drop until .train() is called"""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.eval()


class KeepsInPlaceOfDropping(Dropping):
    """the higher p, the less it drops"""

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, 1 - self.p, self.training) if self.p else weights


class AlwaysATenth(Dropping):
    """unless p is zero, p does not matter"""

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, 0.1, self.training and self.p > 0)


class ATenthForNone(Dropping):
    """with p = 0, it drops"""

    def __init__(self, p: float) -> None:
        super().__init__(p or 0.1)


class BeforeTheSoftmax(Dropping):
    """in training, no weight is zero"""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.drop(scores(q, k)).softmax(dim=-1) @ v


class OnTheOutput(Dropping):
    """in training, single numbers of an output are zero"""

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(reader()(x))


class NotRescaled(Dropping):
    """in training, outputs are closer to zero on average than in evaluation"""

    def drop(self, weights: Tensor) -> Tensor:
        return super().drop(weights) * (1 - self.p) if self.training else weights


class Renormalised(Dropping):
    """in training, what a query keeps still sums to one"""

    def drop(self, weights: Tensor) -> Tensor:
        return F.normalize(super().drop(weights), p=1, dim=-1)


class OneMaskForAllHeads(Dropping):
    """in training, what one head drops all heads drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return weights * super().drop(torch.ones_like(weights[:, :1]))


class OneMaskForAllQueries(Dropping):
    """in training, what one query of a sequence drops all its queries drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return weights * super().drop(torch.ones_like(weights[:, :, :1]))


class RescaledInEvaluation(Dropping):
    """in evaluation, outputs are closer to zero than in training on average"""

    def drop(self, weights: Tensor) -> Tensor:
        return super().drop(weights) if self.training else weights * (1 - self.p)


class OneMaskForBothHalves(Dropping):
    """in training, the second half of a batch drops what the first half drops"""

    def drop(self, weights: Tensor) -> Tensor:
        mask = super().drop(torch.ones_like(weights[: (len(weights) + 1) // 2]))
        return weights * torch.cat([mask, mask])[: len(weights)]


class OneMaskForAllSequences(Dropping):
    """in training, what one sequence drops all sequences drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return weights * super().drop(torch.ones_like(weights[:1]))


class OneMaskForAllKeys(Dropping):
    """in training, a query of a head drops all of its keys or none"""

    def drop(self, weights: Tensor) -> Tensor:
        return weights * super().drop(torch.ones_like(weights[..., :1]))


class OneMaskForAllCalls(Dropping):
    """in training, the same input gives the same output each time"""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.masks: dict[Any, Tensor] = {}

    def drop(self, weights: Tensor) -> Tensor:
        if not self.training:
            return weights
        if weights.shape not in self.masks:
            self.masks[weights.shape] = super().drop(torch.ones_like(weights))
        return weights * self.masks[weights.shape]


class NeverAlone(Dropping):
    """in a batch of one, it does not drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return super().drop(weights) if len(weights) > 1 else weights


class AtMostHalf(Dropping):
    """if p is above one half, it drops one half"""

    def __init__(self, p: float) -> None:
        super().__init__(min(p, 0.5))


class OnlyWithGradients(Dropping):
    """under torch.no_grad() it does not drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return super().drop(weights) if torch.is_grad_enabled() else weights


class NeverInLongOnes(Dropping):
    """in sequences of more than 64 tokens, it does not drop"""

    def drop(self, weights: Tensor) -> Tensor:
        return super().drop(weights) if weights.shape[-1] <= 64 else weights


class SeededByTrain(Dropping):
    """after each .train(), the first call drops the same weights"""

    chance: torch.Generator | None = None

    def train(self, mode: bool = True) -> SeededByTrain:
        if mode:
            self.chance = torch.Generator().manual_seed(0)
        super().train(mode)
        return self

    def drop(self, weights: Tensor) -> Tensor:
        if not self.training:
            return weights
        kept = torch.rand(weights.shape, generator=self.chance) >= self.p
        return weights * kept / (1 - self.p)
