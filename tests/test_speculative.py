"""Speculative decoding: by exact enumeration of all that can be drawn, the text is the model's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.models import speculative
from labkit.models.speculative import (
    drafted_by,
    next_distribution,
    residual,
    speculate,
    speculative_step,
)
from labkit.models.training import load_starts, small_gpt, unseen

VOCABULARY, DRAFTED = 3, 2
Text = tuple[int, ...]
Says = dict[Text, list[Fraction]]  # after each text, the chance of each word


@st.composite
def language(draw: st.DrawFn) -> Says:
    """Draw a model of all texts of up to three words, of three words."""
    says: Says = {}
    for n in range(DRAFTED + 1):
        for text in product(range(VOCABULARY), repeat=n):
            weights = draw(
                st.lists(st.integers(0, 5), min_size=VOCABULARY, max_size=VOCABULARY).filter(any)
            )
            says[text] = [Fraction(weight, sum(weights)) for weight in weights]
    return says


def by_drafts(p: Says, q: Says) -> dict[Text, Fraction]:
    """Follow every draft of two words, every rejection and every word drawn after it."""
    chances: dict[Text, Fraction] = defaultdict(Fraction)
    for drafted in product(range(VOCABULARY), repeat=DRAFTED):
        here = Fraction(1)
        for i, word in enumerate(drafted):
            here *= q[drafted[:i]][word]
        for kept in range(DRAFTED + 1 if here else 0):
            before = drafted[:kept]
            if kept == DRAFTED:
                after = p[before]
                lost = Fraction(1)
            else:
                q_word, p_word = q[before][drafted[kept]], p[before][drafted[kept]]
                accepted = min(Fraction(1), p_word / q_word)
                lost = 1 - accepted
                over = [max(Fraction(0), a - b) for a, b in zip(p[before], q[before], strict=True)]
                after = [each / sum(over) for each in over] if lost else p[before]
            for word, chance in enumerate(after):
                chances[(*before, word)] += here * lost * chance
            here *= 1 - lost if kept < DRAFTED else 1
    return chances


def completed(chances: dict[Text, Fraction], p: Says) -> dict[Text, Fraction]:
    """Let the large model write each text on, up to three words."""
    while any(len(text) < DRAFTED + 1 for text in chances):
        longer: dict[Text, Fraction] = defaultdict(Fraction)
        for text, chance in chances.items():
            if len(text) > DRAFTED:
                longer[text] += chance
            else:
                for word, more in enumerate(p[text]):
                    longer[(*text, word)] += chance * more
        chances = longer
    return chances


@settings(max_examples=40)
@given(language(), language())
def test_texts_by_drafts_have_exactly_the_models_chances(p: Says, q: Says):
    found = completed(by_drafts(p, q), p)
    for text in product(range(VOCABULARY), repeat=DRAFTED + 1):
        wanted = Fraction(1)
        for i, word in enumerate(text):
            wanted *= p[text[:i]][word]
        assert found.get(text, Fraction(0)) == wanted


@settings(max_examples=30)
@given(st.lists(st.integers(0, 6), min_size=8, max_size=8), st.integers(0, 10_000))
def test_the_step_of_the_code_does_what_is_enumerated(weights: Sequence[int], seed: int):
    p, q = (torch.tensor(w, dtype=torch.float64) + 0.1 for w in (weights[:4], weights[4:]))
    p, q = p / p.sum(), q / q.sum()
    torch.testing.assert_close(next_distribution(p, q), p, rtol=0, atol=1e-15)
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(4)
    for _ in range(300):
        drafted = q.multinomial(1, generator=generator)
        kept, word = speculative_step(torch.stack([p, p]), q[None], drafted, generator)
        counts[drafted if kept else word] += 1
    assert (counts / 300 - p).abs().max() < 0.15


def test_a_residual_of_equals_is_the_distribution_itself():
    p = torch.tensor([0.25, 0.75])
    assert torch.equal(residual(p, p), p)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_model_that_drafts_for_itself_is_never_rejected(k: int):
    model = small_gpt(0)
    text, passes = speculate(model, model, unseen(1).ids[:, :4], 22, k)
    assert text.shape == (1, 22)
    assert passes == -(-18 // (k + 1))


def test_what_is_written_greedily_is_what_the_model_writes():
    model, draft = load_starts("rotary")[1], load_starts("one layer")[1]
    for each in (model, draft):
        each.next_word.weight.data *= 1e4  # so sure that nothing is left to chance
    ids = unseen(1).ids[:, :6]
    text, _ = speculate(model, draft, ids, 30, 3)
    while ids.shape[1] < 30:
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    assert torch.equal(text, ids)


def test_what_is_kept_is_what_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(speculative, "DRAFTS", ())
    model, draft = load_starts("rotary")[0], load_starts("one layer")[0]
    told, kept = speculative.acceptance(model, draft, unseen()), drafted_by("one layer")[0]
    assert told.accepted == pytest.approx(kept.accepted, abs=1e-3)
    assert told.careless == pytest.approx(kept.careless, abs=1e-3)
    assert told.off < 1e-12
