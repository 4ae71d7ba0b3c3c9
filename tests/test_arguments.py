"""labkit's errors: what was expected, what came, what to do."""

from __future__ import annotations

import pytest
import torch

from labkit import (
    MultiHeadAttention,
    causal_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
)
from tests.refusing import check_refusal

X = torch.zeros(2, 5, 8)
HEADS = torch.zeros(1, 4, 5, 8)
MASK = torch.ones(5, 5, dtype=torch.bool)


def attend(q=X, k=X, v=X, mask=None, **options):
    return scaled_dot_product_attention(q, k, v, mask, **options)


def module(x=X, context=None, mask=None, **options):
    return MultiHeadAttention(8, 2, **options)(x, context, mask)


# What is called, what it raises, and what its message says: expected, actual, what to do.
ERRORS = {
    "q a list": (lambda: attend([1.0]), TypeError, ["q", "torch.Tensor", "list"]),
    "q of one dimension": (
        lambda: attend(X[0, 0]),
        ValueError,
        ["(..., n_q, d_k)", "at least 2", "(8,)", "q[None]"],
    ),
    "k of integers": (
        lambda: attend(k=X.long()),
        TypeError,
        ["k", "floating point", "torch.int64", "k.float()"],
    ),
    "v complex": (lambda: attend(v=X.cfloat()), TypeError, ["v", "floating", "complex64"]),
    "mixed types": (
        lambda: attend(v=X.double()),
        TypeError,
        ["one type", "q torch.float32", "v torch.float64", ".to(torch.float32)"],
    ),
    "widths of q and k": (
        lambda: attend(k=X[..., :3]),
        ValueError,
        ["d_k", "q (2, 5, 8)", "k (2, 5, 3)", "same width"],
    ),
    "lengths of k and v": (
        lambda: attend(v=X[:, :3]),
        ValueError,
        ["n_k", "k (2, 5, 8)", "v (2, 3, 8)"],
    ),
    "no queries": (lambda: attend(X[:, :0]), ValueError, ["q", "at least one", "(2, 0, 8)"]),
    "no keys": (lambda: attend(X, X[:, :0], X[:, :0]), ValueError, ["k", "one", "(2, 0, 8)"]),
    "no features": (lambda: attend(X[..., :0]), ValueError, ["one feature", "(2, 5, 0)"]),
    "batches": (
        lambda: attend(X.expand(3, 2, 5, 8), X.expand(4, 2, 5, 8), X),
        ValueError,
        ["equal or 1", "(3, 2)", "(4, 2)"],
    ),
    "fewer heads of keys without the flag": (
        lambda: attend(HEADS, HEADS[:, :2], HEADS[:, :2]),
        ValueError,
        ["q (1, 4, 5, 8)", "k (1, 2, 5, 8)", "enable_gqa=True"],
    ),
    "heads of keys that do not divide those of q": (
        lambda: attend(HEADS, HEADS[:, :3], HEADS[:, :3], enable_gqa=True),
        ValueError,
        ["(..., h, n_q, d_k)", "divides h", "k (1, 3, 5, 8)"],
    ),
    "as many heads of keys as not of values": (
        lambda: attend(HEADS, HEADS[:, :2], HEADS[:, :1], enable_gqa=True),
        ValueError,
        ["k (1, 2, 5, 8)", "v (1, 1, 5, 8)"],
    ),
    "no heads to share": (
        lambda: attend(X[0], X[0], X[0], enable_gqa=True),
        ValueError,
        ["(..., h, n_q, d_k)", "q (5, 8)"],
    ),
    "mask of the heads of keys": (
        lambda: attend(HEADS, HEADS[:, :2], HEADS[:, :2], MASK.expand(2, 5, 5), enable_gqa=True),
        ValueError,
        ["(1, 4, 5, 5)", "(2, 5, 5)"],
    ),
    "mask a list": (lambda: attend(mask=[True]), TypeError, ["mask", "Tensor", "list"]),
    "mask of integers": (
        lambda: attend(mask=MASK.long()),
        TypeError,
        ["torch.bool", "may attend", "torch.int64", "mask == 1", "mask == 0"],
    ),
    "mask to be added": (
        lambda: attend(mask=MASK.float()),
        TypeError,
        ["torch.bool", "True where", "torch.float32", "-inf", "mask == 0"],
    ),
    "mask of another shape": (
        lambda: attend(mask=MASK[:, :4]),
        ValueError,
        ["(..., n_q, n_k)", "(2, 5, 5)", "(5, 4)"],
    ),
    "mask that would enlarge": (
        lambda: attend(mask=MASK.expand(3, 1, 5, 5)),
        ValueError,
        ["(2, 5, 5)", "(3, 1, 5, 5)"],
    ),
    "dropout of 1": (lambda: attend(dropout_p=1), ValueError, ["dropout_p", "less than 1", "1.0"]),
    "dropout under 0": (lambda: attend(dropout_p=-0.1), ValueError, ["at least 0", "-0.1"]),
    "dropout a word": (lambda: attend(dropout_p="a"), TypeError, ["dropout_p", "number", "str"]),
    "scale not a number": (lambda: attend(scale=X), TypeError, ["scale", "number", "Tensor"]),
    "scale not finite": (
        lambda: attend(scale=float("nan")),
        ValueError,
        ["scale", "finite", "nan"],
    ),
    "mask of size 0": (lambda: causal_mask(0), ValueError, ["n_q", "at least 1", "0"]),
    "mask of size 2.5": (lambda: causal_mask(2, 2.5), TypeError, ["n_k", "whole", "2.5", "float"]),
    "window of size 0": (lambda: window_mask(2, 2, 0), ValueError, ["w", "at least 1", "0"]),
    "window of size 1.5": (lambda: window_mask(2, 2, 1.5), TypeError, ["w", "whole", "1.5"]),
    "window for no query": (lambda: window_mask(0, 2, 2), ValueError, ["n_q", "at least 1", "0"]),
    "window on no key": (lambda: window_mask(2, 0, 2), ValueError, ["n_k", "at least 1", "0"]),
    "split, not a tensor": (lambda: split_heads(3, 1), TypeError, ["x", "Tensor", "int"]),
    "split, one dimension": (lambda: split_heads(X[0, 0], 2), ValueError, ["n, h*d", "(8,)"]),
    "split, h": (lambda: split_heads(X, 3), ValueError, ["h=3", "(2, 5, 8)", "divides 8"]),
    "split, h of 0": (lambda: split_heads(X, 0), ValueError, ["h", "at least 1", "0"]),
    "merge, two dimensions": (lambda: merge_heads(X[0]), ValueError, ["h, n, d", "(5, 8)"]),
    "h that does not divide": (
        lambda: MultiHeadAttention(8, 3),
        ValueError,
        ["d_model=8", "h=3", "divides 8", "give d_k"],
    ),
    "no heads": (lambda: MultiHeadAttention(8, 0), ValueError, ["h", "at least 1", "0"]),
    "half a head": (lambda: MultiHeadAttention(8, 0.5), TypeError, ["h", "whole", "0.5"]),
    "no width": (lambda: MultiHeadAttention(-8, 2), ValueError, ["d_model", "at least 1", "-8"]),
    "no width of a head": (lambda: module(d_k=0), ValueError, ["d_k", "at least 1", "0"]),
    "no width of a value": (lambda: module(d_v=0), ValueError, ["d_v", "at least 1", "0"]),
    "heads of keys that do not divide": (
        lambda: MultiHeadAttention(12, 6, h_kv=4),
        ValueError,
        ["h_kv must divide h", "h=6", "h_kv=4", "[1, 2, 3, 6]"],
    ),
    "more heads of keys than heads": (
        lambda: module(h_kv=4),
        ValueError,
        ["h_kv must divide h", "h=2", "h_kv=4", "[1, 2]"],
    ),
    "no heads of keys": (lambda: module(h_kv=0), ValueError, ["h_kv", "at least 1", "0"]),
    "half a head of keys": (lambda: module(h_kv=0.5), TypeError, ["h_kv", "whole", "0.5"]),
    "a mask for each head of keys": (
        lambda: MultiHeadAttention(8, 4, h_kv=2)(X, mask=MASK.expand(2, 2, 5, 5)),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 4, 5, 5)", "(2, 2, 5, 5)"],
    ),
    "a mask for each head of keys in a step": (
        lambda: MultiHeadAttention(8, 4, h_kv=2)(X[:, :1], X, mask=MASK[:1].expand(2, 2, 1, 5)),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 4, 1, 5)", "(2, 2, 1, 5)"],
    ),
    "module's dropout": (lambda: module(dropout=1.5), ValueError, ["dropout", "less", "1.5"]),
    "x a list": (lambda: module([1]), TypeError, ["x", "(B, n, d_model)", "list"]),
    "x of one dimension": (lambda: module(X[0, 0]), ValueError, ["(B, n, d_model)", "(8,)"]),
    "x of another width": (
        lambda: module(X[..., :7]),
        ValueError,
        ["d_model=8", "(2, 5, 7)", "last dimension"],
    ),
    "x of another type": (
        lambda: module(X.double()),
        TypeError,
        ["torch.float32", "torch.float64", "x.to(torch.float32)"],
    ),
    "x of integers": (lambda: module(X.long()), TypeError, ["torch.float32", "torch.int64"]),
    "x empty": (lambda: module(X[:, :0]), ValueError, ["x", "at least one", "(2, 0, 8)"]),
    "context of another width": (
        lambda: module(X, X[..., :7]),
        ValueError,
        ["context", "d_model=8", "(2, 5, 7)"],
    ),
    "context empty": (lambda: module(X, X[:, :0]), ValueError, ["context", "(2, 0, 8)"]),
    "context of another batch": (
        lambda: module(X, X[:1]),
        ValueError,
        ["leading", "x (2, 5, 8)", "context (1, 5, 8)", "Expand"],
    ),
    "module's mask": (
        lambda: module(mask=torch.ones(2, 5, dtype=torch.bool)),
        ValueError,
        ["(B, h, n_q, n_k) = (2, 2, 5, 5)", "(2, 5)", "mask[:, None, None, :]"],
    ),
    "module's mask to be added": (lambda: module(mask=X), TypeError, ["torch.bool", "mask == 0"]),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
