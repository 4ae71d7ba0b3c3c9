"""Linear attention: the state is the sum over the past, and its size does not grow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import KVCache
from labkit.models import economies
from labkit.models.kept import load_kept
from labkit.models.linear_attention import (
    LinearAttention,
    LinearState,
    linear_attention,
    linear_gpt,
    load_linear,
    phi,
)
from labkit.models.stories import VOCABULARY
from labkit.models.training import unseen
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=60)
sizes = st.integers(1, 6)


def draw(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(h=sizes, d=st.integers(1, 4), pieces=st.lists(sizes, min_size=1, max_size=4),
    base=st.sampled_from((None, 10.0, 1000.0)), seed=st.integers(0, 2**31 - 1))  # fmt: skip
@repeatable
def test_steps_give_what_all_positions_at_once_give(h, d, pieces, base, seed):
    torch.manual_seed(seed)
    layer = LinearAttention(2 * h * d, h, rotary_base=base).double()
    x, state = draw(seed, 2, sum(pieces), 2 * h * d), LinearState()
    steps = torch.cat([layer(part, cache=state) for part in x.split(pieces, 1)], 1)
    torch.testing.assert_close(steps, layer(x), rtol=1e-11, atol=1e-11)
    assert state.n == sum(pieces)
    assert state.nbytes == 8 * 2 * h * (2 * d) * (2 * d + 1)  # of two texts, however long


def test_an_output_is_the_sum_over_pairs_written_out():
    q, k, v = draw(0, 5, 4), draw(1, 5, 4), draw(2, 5, 3)
    out = linear_attention(q, k, v)
    for i in range(5):
        weights = torch.stack([phi(q[i]) @ phi(k[j]) for j in range(i + 1)])
        expected = (weights[:, None] * v[: i + 1]).sum(0) / weights.sum()
        torch.testing.assert_close(out[i], expected)
        assert (weights > 0).all()


def test_rotations_leave_distances_alone():
    q, k, v = draw(0, 7, 4), draw(1, 7, 4), draw(2, 7, 3)
    whole = linear_attention(q, k, v, 10.0)
    state = LinearState()
    state.n = 5  # the same text, begun five positions later
    parts = zip(*(x[None, None].split(1, -2) for x in (q, k, v)), strict=True)
    later = torch.cat([state.step(*part, 10.0) for part in parts], -2)[0, 0]
    torch.testing.assert_close(later, whole)
    assert (linear_attention(q, k, v) - whole).abs().max() > 0.01


def test_a_model_decodes_with_states_and_sees_no_future():
    model = linear_gpt(0).double()
    ids = unseen(2).ids
    states = [LinearState() for _ in model.stack()]
    with torch.no_grad():
        whole = model(ids)
        steps = torch.cat([model(word, caches=states) for word in ids.split([7, 1, 40], 1)], 1)
        other = ids.clone()
        other[:, 20] = (ids[:, 20] + 1) % len(VOCABULARY)
        changed = (model(other) - whole).abs().amax((0, 2)) > 1e-12
    torch.testing.assert_close(steps, whole)
    assert changed.nonzero().min() == 20
    for state in states:
        state.crop(0)
        assert (state.n, state.nbytes) == (0, 0)


X = torch.zeros(1, 3, 8)
ERRORS = {
    "a mask": (lambda layer: layer(X, mask=torch.ones(3, 3) == 1), ValueError, ["no mask"]),
    "no order": (lambda layer: layer(X, is_causal=False), ValueError, ["causal"]),
    "another cache": (lambda layer: layer(X, cache=KVCache()), TypeError, ["LinearState"]),
    "no cache": (lambda layer: layer(X, cache=[]), TypeError, ["KVCache", "list"]),
    "no batch": (lambda layer: layer(X[0]), ValueError, ["(B, n, d_model)", "(3, 8)"]),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected(call, error, says):
    check_refusal(lambda: call(LinearAttention(8, 2)), error, says)


def test_no_position_leaves_a_sum():
    state = LinearState()
    LinearAttention(8, 2)(X, cache=state)
    state.crop(3)
    check_refusal(lambda: state.crop(2), ValueError, ["sums", "2"])


def test_the_kept_row_is_that_of_the_kept_models():
    """Judged again on a few of its stories: the state's size, and about the same divergence."""
    (row,) = economies.table("linear attention")
    assert row.retrained
    assert row.seeds == 5
    numbers = 2 * 4 * 16 * 17  # layers, heads, S and z
    assert row.bytes_a_token == numbers * 4 / 48
    again = economies.judge_caches(load_linear()[0], LinearState, unseen(20))
    first = load_kept("economies")["linear attention"]["starts"][0]
    assert again.nbytes == first["nbytes"]
    assert again.kl == pytest.approx(first["kl"], rel=0.25)
