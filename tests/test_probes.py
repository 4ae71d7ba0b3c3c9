"""What heads link, by grammar, rule and interval; and what the encoder finds without heads."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Binomial

from labkit.models import probes, retrieval
from labkit.models.encoder import load_encoder
from labkit.models.sentences import (
    NOUNS,
    SCHEMAS,
    SENTENCES,
    clauses,
    paraphrases,
    pronouns,
    schemas,
)


@pytest.mark.parametrize("of", [6, 60])
def test_an_interval_is_where_the_count_is_not_refuted(of: int):
    counts = torch.arange(of + 1, dtype=torch.float64)
    for count in range(of + 1):
        ends = torch.tensor(probes.interval(count, of), dtype=torch.float64)
        low, high = Binomial(of, ends[:, None]).log_prob(counts).exp()
        tails = [float(low[count:].sum()), float(high[: count + 1].sum())]
        assert tails == pytest.approx([0.025 if count else 1, 0.025 if count < of else 1])
    assert probes.interval(0, of)[0] == 0
    assert probes.interval(of, of)[1] == 1


def test_an_interval_of_more_than_all_is_refused():
    with pytest.raises(ValueError, match="between 0 and 6; got 7"):
        probes.interval(7, 6)


def test_the_halves_of_the_grammar_share_no_word_that_counts():
    for make in (clauses, pronouns):
        some, rest = make(60, 0, half=0), make(60, 1, half=1)
        assert len(set(some)) == len(set(rest)) == 60
        who = [{row[-2] if make is pronouns else row[1] for row in rows} for rows in (some, rest)]
        assert make is pronouns or not who[0] & who[1]
    assert not {row[2] for row in clauses(60, 0, 0)} & {row[2] for row in clauses(60, 1, 1)}


def test_every_noun_that_counts_is_one_token_and_stands_once():
    encoder = load_encoder()
    for kind, (some, rest) in probes.halves().items():
        for text, *words in [*some, *rest]:
            tokens = encoder.tokenizer.encode(text).tokens
            assert all(tokens.count(word) == 1 for word in words), (kind, text)
    assert {row[1] for row in clauses(60, 0, 0)} <= NOUNS


def test_schemas_hold_a_head_that_ignores_the_last_word_to_one_half():
    rows = schemas()
    assert len(rows) == 4 * len(SCHEMAS) == 200
    assert sum(first for *_, first in rows) == 100
    for (a, meant, *_), (b, other, *_) in zip(rows[::2], rows[1::2], strict=True):
        assert a.rpartition(" ")[0] == b.rpartition(" ")[0]
        assert meant != other


def test_turns_are_counted_by_pairs():
    margins = torch.tensor([1.0, 1, -1, -1, 1, -1]).view(6, 1, 1)
    assert [count.item() for count in probes.turns(margins)] == [1, 1]


def test_marks_share_a_heads_weight():
    weights = probes.plain_weights(load_encoder().encode(SENTENCES))
    assert all(one.shape == (6, 12) for one in weights.values())
    assert weights["previous token"].max() > 0.9
    marks = torch.stack([weights[name] for name in ("[CLS]", "[SEP]", "punctuation")])
    assert marks.sum(0).max() <= 1 + 1e-4  # no token is two of these


def test_paraphrases_share_no_content_word():
    for a, b in paraphrases(50, 0):
        shared = set(a.lower().strip(".").split()) & set(b.lower().strip(".").split())
        assert shared <= {"the", "in", "on", "at", "was", "by", "after"}


def test_the_history_of_ablation_is_complete():
    told = retrieval.histories()
    for how in retrieval.ABLATION:
        assert len(told[how]["heads"]) == 72
        assert len(told[how]["layers"]) == 6
        assert sorted(map(tuple, told[how]["order"])) == [
            (i, j) for i in range(6) for j in range(12)
        ]
        assert told[how]["many"]["least"][-1] == told[how]["many"]["most"][-1]


def test_a_task_without_nothing_is_the_task():
    encoder = load_encoder()
    task = retrieval.Task(encoder, 20)
    whole, same = task.without(), task.without([], "mean")
    assert torch.equal(whole.right, same.right)
    vectors = [encoder.encode([pair[i] for pair in paraphrases(20, 0)]).vectors for i in (0, 1)]
    nearest = (vectors[0] @ vectors[1].T).argmax(1)
    assert torch.equal(whole.right, nearest == torch.arange(20))
