"""Head scores on patterns whose score is known, and heads that are silenced."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit import MultiHeadAttention
from labkit.heads import (
    entropy,
    first_weight,
    induction_relation,
    next_weight,
    offset_relation,
    previous_weight,
    relation_weight,
    self_weight,
    target_weight,
    without_heads,
)

SCORES = {-1: previous_weight, 0: self_weight, 1: next_weight}
sizes = st.integers(2, 9)


def shifted(n: int, offset: int) -> torch.Tensor:
    """Weights of a head that looks ``offset`` places on, and at itself where there is none."""
    target = torch.arange(n) + offset
    target = torch.where((target < 0) | (target >= n), torch.arange(n), target)
    return torch.eye(n)[target]


@given(n=sizes, offset=st.sampled_from([-1, 0, 1]))
def test_a_head_of_one_offset_scores_one_there_and_nothing_elsewhere(n, offset):
    weights = shifted(n, offset)
    for place, score in SCORES.items():
        # At the end where the neighbour is missing this head looks at itself.
        expected = 1.0 if place == offset else float(place == 0) / n
        assert score(weights).item() == pytest.approx(expected)


@given(n=sizes)
def test_an_even_head_scores_the_share_of_related_keys(n):
    even = torch.full((n, n), 1 / n)
    for score in (*SCORES.values(), first_weight):
        assert score(even).item() == pytest.approx(1 / n)
    marked = torch.arange(n) % 2 == 0
    assert target_weight(even, marked).item() == pytest.approx(marked.float().mean().item())
    assert entropy(even).item() == pytest.approx(math.log2(n), abs=1e-6)


@given(n=sizes)
def test_a_head_on_the_first_key(n):
    first = torch.zeros(n, n)
    first[:, 0] = 1
    assert first_weight(first) == 1
    assert self_weight(first).item() == pytest.approx(1 / n)
    assert entropy(first) == 0


def test_only_queries_with_a_related_key_count():
    weights = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    relation = torch.tensor([[False, True], [False, False]])
    assert relation_weight(weights, relation).item() == pytest.approx(0.8)


def test_entropy_is_a_mean_over_queries():
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]], dtype=torch.float64)
    assert entropy(weights).item() == pytest.approx((1 + 1.5) / 2, rel=1e-15)


def test_a_relation_of_one_truth_holds_everywhere():
    assert relation_weight(torch.eye(2), torch.tensor(True)) == 1


def test_a_relation_that_holds_nowhere_has_no_score():
    assert relation_weight(torch.eye(2), torch.zeros(2, 2, dtype=torch.bool)).isnan()


def test_each_sequence_and_head_gets_its_own_score():
    weights = torch.stack([shifted(4, -1), shifted(4, 1)]).expand(3, 2, 4, 4)
    assert torch.equal(previous_weight(weights), torch.tensor([[1.0, 0.0]]).expand(3, 2))
    relation = torch.stack([offset_relation(4, offset) for offset in (-1, 1, 0)])[:, None]
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.25, 0.25]])
    assert torch.allclose(relation_weight(weights, relation), expected)


@pytest.mark.parametrize("score", [first_weight, entropy])
def test_a_batch_is_scored_head_by_head(score):
    weights = torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    one_by_one = torch.stack([torch.stack([score(head) for head in heads]) for heads in weights])
    assert torch.allclose(score(weights), one_by_one)


def test_induction_looks_behind_earlier_copies_only():
    tokens = torch.tensor([3, 1, 4, 3, 1, 3])
    relation = induction_relation(tokens)
    assert relation.dtype == torch.bool
    found = {tuple(pair) for pair in relation.nonzero().tolist()}
    expected = {
        (i, j) for i in range(6) for j in range(1, i + 1) if tokens[j - 1] == tokens[i] and j <= i
    }
    assert found == expected == {(3, 1), (4, 2), (5, 1), (5, 4)}


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: relation_weight(torch.ones(3), torch.ones(3).bool()), ValueError, "n_q, n_k"),
        (lambda: relation_weight(torch.eye(2).int(), torch.eye(2).bool()), TypeError, "int32"),
        (lambda: relation_weight(torch.eye(2), torch.eye(2)), TypeError, "float32"),
        (lambda: relation_weight(torch.eye(2), torch.eye(3).bool()), ValueError, r"\(3, 3\)"),
        (lambda: previous_weight(torch.ones(2, 3)), ValueError, r"square.+\(2, 3\)"),
        (lambda: previous_weight(torch.ones(3)), ValueError, r"\(3,\)"),
        (lambda: first_weight(torch.tensor(1.0)), ValueError, r"\(\)"),
        (lambda: entropy(torch.ones(3)), ValueError, r"\(3,\)"),
        (lambda: entropy([[1.0]]), TypeError, "weights must be a torch.Tensor"),
        (lambda: relation_weight(torch.eye(2), [[True]]), TypeError, "relation must be a torch.T"),
        (lambda: target_weight(torch.eye(2), [True]), TypeError, "is_target must be a torch.T"),
        (lambda: target_weight(torch.eye(2), torch.tensor(True)), ValueError, r"\(\)"),
        (lambda: induction_relation([1, 1]), TypeError, "tokens must be a torch.Tensor"),
        (lambda: induction_relation(torch.tensor(1)), ValueError, r"\(\)"),
        (lambda: offset_relation(0, 1), ValueError, "n must be at least 1; got 0"),
        (lambda: offset_relation(2.5, 0), TypeError, "n must be a whole number; got 2.5"),
        (lambda: offset_relation(3, 0.5), TypeError, "offset must be a whole number; got 0.5"),
    ],
)
def test_bad_input_is_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


@given(
    h=st.integers(1, 4),
    d_v=st.integers(1, 3),
    silenced=st.sets(st.integers(0, 3)),
)
def test_silenced_heads_write_nothing(h, d_v, silenced):
    silenced = {head for head in silenced if head < h}
    layer = MultiHeadAttention(6, h, d_k=2, d_v=d_v)
    torch.nn.init.normal_(layer.w_o.bias)
    x = torch.randn(2, 5, 6)
    _, weights = layer(x, return_weights=True)
    values = layer.w_v(x).unflatten(-1, (h, d_v)).transpose(-3, -2)
    slabs = layer.w_o.weight.unflatten(-1, (h, d_v))
    expected = layer.w_o.bias + sum(
        (
            weights[:, head] @ values[:, head] @ slabs[:, head].T
            for head in range(h)
            if head not in silenced
        ),
        torch.zeros(2, 5, 6),
    )
    before = layer.w_o.weight.clone()
    with without_heads(layer, silenced):
        assert torch.allclose(layer(x), expected, atol=1e-5)
    assert torch.equal(layer.w_o.weight, before)


def test_heads_come_back_after_an_error():
    layer = MultiHeadAttention(4, 2)
    before = layer.w_o.weight.clone()
    with pytest.raises(RuntimeError), without_heads(layer, [0]):
        raise RuntimeError
    assert torch.equal(layer.w_o.weight, before)


def test_a_head_that_is_not_there():
    with (
        pytest.raises(ValueError, match="0 to 1; got \\[2\\]"),
        without_heads(MultiHeadAttention(4, 2), [0, 2]),
    ):
        pass
