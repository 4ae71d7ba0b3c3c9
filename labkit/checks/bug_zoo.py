"""Lab 7: tests that tell sound implementations of attention from unsound ones, and a zoo of both.

Every implementation runs without an error and gives the right shapes. The docstring of a sound one
says how it goes about its task, that of an unsound one what an observer could notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from labkit.checks.guard import Answer, exercise, right

Test = Callable[[Callable[..., Any]], bool]
INF = float("inf")
D_MODEL, HEADS = 8, 2  # of the layer that reads padded sequences


@exercise
def weights_are_sound(function: Test) -> None:
    """Check a test of weights(q, k): (h, n_q, d_k) and (h, n_k, d_k) to (h, n_q, n_k)."""
    answer = Answer("weights_are_sound", function)
    sound = (product_and_softmax, one_einsum, head_by_head, identity_as_values)
    unsound = (over_queries, over_heads, unscaled, scaled_by_model)
    judge(answer, "weights", sound, unsound)


@exercise
def hidden_is_hidden(function: Test) -> None:
    """Check a test of attend(q, k, v, may), whose boolean mask is True where a query may attend."""
    answer = Answer("hidden_is_hidden", function)
    sound = (filled, logarithm_added, only_what_is_open, by_pytorch)
    unsound = (masked_afterwards, not_kept, truth_added, product_in_own_type)
    judge(answer, "attend", sound, unsound)


@exercise
def padding_is_ignored(function: Test) -> None:
    """Check a test of encode(x, real): x is (B, n, 8), real (B, n), True for a token."""
    answer = Answer("padding_is_ignored", function)
    sound = (by_module, by_function, by_labkit, each_alone, mask_for_each_head)
    unsound = (as_it_came, turned_round, between_documents, hides_queries, tiled)
    judge(answer, "encode", sound, unsound)


@exercise
def past_is_kept(function: Test) -> None:
    """Check a test of attend(q, k, v), causal, whose n_q queries are the last of n_k positions."""
    answer = Answer("past_is_kept", function)
    sound = (last_rows, by_position, query_by_query)
    unsound = (flagged, upper_triangle, one_too_many)
    judge(answer, "attend", sound, unsound)


@exercise
def heads_keep_apart(function: Test) -> None:
    """Check a test of in_heads(work, x, h), which splits x, works on all heads, and merges."""
    answer = Answer("heads_keep_apart", function)
    sound = (moved_and_moved_back, slice_by_slice, permuted)
    unsound = (split_by_view, merged_by_view, viewed_twice, batch_and_heads_swapped)
    judge(answer, "in_heads", sound, unsound)


@exercise
def layer_is_sound(function: Test) -> None:
    """Check a test of layer(x, w_q, w_k, w_v, w_o, h), without biases and without a mask."""
    answer = Answer("layer_is_sound", function)
    sound = (step_by_step, one_head_at_a_time, module_with_weights)
    unsound = (key_twice, in_a_chain, roles_swapped, side_by_side_only, one_set_for_all)
    judge(answer, "layer", sound, unsound)


@exercise
def dropout_is_sound(function: Test) -> None:
    """Check a test of make(p), which makes a layer for x of shape (B, n, 8) with dropout."""
    answer = Answer("dropout_is_sound", function)
    sound = (DropoutPart, DropoutFunction, DropoutInKernel)
    unsound = (NeverSwitchedOff, SwitchedOffForGood)
    judge(answer, "make", sound, unsound)


def judge(
    answer: Answer,
    argument: str,
    sound: Sequence[Callable[..., Any]],
    unsound: Sequence[Callable[..., Any]],
) -> None:
    """Hand over every implementation under a number; demand True for sound ones, False for others.

    Prints that the answer is right, or raises Wrong.
    """
    for number, implementation in enumerate((*sound, *unsound), start=1):
        outcome = answer(**{argument: numbered(implementation, number)})
        told, seen = outcome.truth(), implementation.__doc__
        if number <= len(sound):
            outcome.demand(
                told,
                f"True: it is sound, {seen}",
                "came False, a false alarm; print what it compares, and how closely",
            )
        else:
            outcome.demand(not told, f"False: {seen}", "came True: the bug went unnoticed")
    right(
        answer.name, f"It accepts {len(sound)} sound implementations and tells {len(unsound)} bugs."
    )


def numbered(implementation: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Wrap a function so that its name, which a message shows, gives nothing away."""

    def anonymous(*arguments: Any) -> Any:
        return implementation(*arguments)

    anonymous.__name__ = f"implementation {number}"
    return anonymous


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


# Masks: (..., n_q, d_k), (..., n_k, d_k), (..., n_k, d_v) and (n_q, n_k) to (..., n_q, d_v)


def filled(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """scores are filled with minus infinity"""
    return scores(q, k).masked_fill(~may, -INF).softmax(dim=-1) @ v


def logarithm_added(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """the logarithm of 1 and 0 is added"""
    return (scores(q, k) + may.to(q.dtype).log()).softmax(dim=-1) @ v


def only_what_is_open(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """a loop over queries that takes only the keys they may see"""
    rows = [
        product_and_softmax(q[..., i : i + 1, :], k[..., row, :]) @ v[..., row, :]
        for i, row in enumerate(may)
    ]
    return torch.cat(rows, dim=-2)


def by_pytorch(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """PyTorch's function"""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may)


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


# Padding: x (B, n, D_MODEL) and real (B, n), True for a token, to (B, n, D_MODEL)


@cache
def reader() -> MultiHeadAttention:
    """Make the layer that all implementations share."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return MultiHeadAttention(D_MODEL, HEADS, bias=False).requires_grad_(False)


@cache
def module() -> nn.MultiheadAttention:
    return reader().to_torch()


def project(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (split_heads(part(x), HEADS) for part in (reader().w_q, reader().w_k, reader().w_v))
    return q, k, v


def by_module(x: Tensor, real: Tensor) -> Tensor:
    """PyTorch's module"""
    return module()(x, x, x, key_padding_mask=~real)[0]


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
    return module()(x, x, x, attn_mask=blocked.repeat_interleave(HEADS, dim=0))[0]


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
    q, k, v = project(x)
    heads = scores(q, k).masked_fill(mask == 0, -1e9).softmax(dim=-1) @ v  # as in committee
    return reader().w_o(merge_heads(heads))


def hides_queries(x: Tensor, real: Tensor) -> Tensor:
    """tokens hear from everybody, padding included"""
    q, k, v = project(x)
    heads = scores(q, k).masked_fill(~real[:, None, :, None], -1e4).softmax(dim=-1) @ v
    return reader().w_o(merge_heads(heads))


def tiled(x: Tensor, real: Tensor) -> Tensor:
    """what a sequence gives depends on how long the others in its batch are"""
    blocked = ~real[:, None].expand(-1, x.shape[1], -1)
    return module()(x, x, x, attn_mask=blocked.repeat(HEADS, 1, 1))[0]


# Causal, with a past: (..., n_q, d_k), (..., n_k, d_k), (..., n_k, d_v) to (..., n_q, d_v)


def last_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """the last rows of the square mask"""
    return by_pytorch(q, k, v, causal_mask(k.shape[-2])[-q.shape[-2] :])


def by_position(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a comparison of positions"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return filled(q, k, v, torch.arange(n_k) <= torch.arange(n_k - n_q, n_k)[:, None])


def query_by_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a loop over queries, each with the keys up to its own"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    ends = range(n_k - n_q + 1, n_k + 1)
    rows = [
        product_and_softmax(q[..., i : i + 1, :], k[..., :end, :]) @ v[..., :end, :]
        for i, end in enumerate(ends)
    ]
    return torch.cat(rows, dim=-2)


def flagged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """right for all positions at once, but a query that comes alone hears one key only"""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def upper_triangle(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """queries hear from the future"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    ahead = torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q + 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=ahead)


def one_too_many(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a query hears from the position after its own"""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return filled(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q + 1))


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


# Layers: x (B, n, d_model), four matrices as nn.Linear stores them, and h to (B, n, d_model)


def attended(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    return merge_heads(scaled_dot_product_attention(*(split_heads(part, h) for part in (q, k, v))))


def step_by_step(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int) -> Tensor:
    """one step after the other"""
    return attended(x @ w_q.T, x @ w_k.T, x @ w_v.T, h) @ w_o.T


def one_head_at_a_time(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """a sum over heads, each with its own block of every matrix"""
    blocks = zip(*(w.chunk(h) for w in (w_q, w_k, w_v)), w_o.chunk(h, dim=1), strict=True)
    return sum(attended(x @ a.T, x @ b.T, x @ c.T, 1) @ d.T for a, b, c, d in blocks)


def module_with_weights(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, h: int
) -> Tensor:
    """PyTorch's module with these weights"""
    theirs = nn.MultiheadAttention(x.shape[-1], h, bias=False, batch_first=True, dtype=x.dtype)
    theirs.requires_grad_(False)
    theirs.in_proj_weight.copy_(torch.cat([w_q, w_k, w_v]))
    theirs.out_proj.weight.copy_(w_o)
    return theirs(x, x, x)[0]


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


# Dropout: p to a layer from (B, n, D_MODEL) to the same


class DropoutPart(nn.Module):
    """dropout is a part of the layer"""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.drop = p, nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = project(x)
        return merge_heads(self.drop(product_and_softmax(q, k)) @ v)


class DropoutFunction(DropoutPart):
    """dropout is a function that is told the mode"""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = project(x)
        return merge_heads(F.dropout(product_and_softmax(q, k), self.p, self.training) @ v)


class DropoutInKernel(DropoutPart):
    """PyTorch's function drops, and is told to only in training"""

    def forward(self, x: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        return merge_heads(F.scaled_dot_product_attention(*project(x), dropout_p=p))


class NeverSwitchedOff(DropoutPart):
    """in use, the same input gives another output each time"""

    def forward(self, x: Tensor) -> Tensor:
        return merge_heads(F.scaled_dot_product_attention(*project(x), dropout_p=self.p))


class SwitchedOffForGood(DropoutPart):
    """after it has been used once, it trains without dropout"""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.p = 0.0
        return merge_heads(F.scaled_dot_product_attention(*project(x), dropout_p=self.p))
