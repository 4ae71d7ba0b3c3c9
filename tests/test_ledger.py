"""The ledger: how a verdict follows from numbers, and how it is told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch
import yaml

from labkit import ledger
from labkit.ledger import Document, LedgerError, read_claim
from labkit.ledger import document as documents
from labkit.ledger.claims import MARKS

# How a verdict follows from numbers


ROW = {"id": "claim", "where": "here", "says": "this"}


def document(**fields) -> Document:
    claim = read_claim("test", ROW | {"notebook": "chapters/one"} | fields)
    return Document("test", "A test", {"claim": claim})


def typed(**fields) -> Document:
    return Document("test", "A test", {"claim": read_claim("test", ROW | fields)})


def verdict_of(computed, *, via=None, **fields) -> str:
    return document(**fields).compare("claim", computed, via=via).claim.verdict


@pytest.mark.parametrize(
    ("stated", "places", "computed", "expected"),
    [
        (0.401, 3, 0.4011, "holds"),
        (0.401, 3, 0.4016, "wrong"),
        (0.4, 1, 0.35, "holds"),
        (0.4, 1, 0.34, "wrong"),
        ([[1, 2], [3, 4]], None, torch.tensor([[1, 2], [3, 4]]), "holds"),
        ([[1, 2], [3, 4]], None, torch.tensor([[1, 2], [3, 5]]), "wrong"),
        ([1.0, 2.0], 1, torch.tensor([[1.0, 2.0]]), "wrong"),
        ([2, 4, 64], None, torch.zeros(2, 4, 64).shape, "holds"),
        ("horizontal", None, "vertical", "wrong"),
        (True, None, False, "wrong"),
        (0.5, 2, float("nan"), "wrong"),
    ],
)
def test_a_figure_is_judged_by_its_digits(stated, places, computed, expected):
    assert verdict_of(computed, value=stated, places=places) == expected


def test_rounding_needs_the_route_that_reproduces_the_figure():
    exact, stated = 3.983, 3.99
    assert verdict_of(exact, value=stated, places=2) == "wrong"
    assert verdict_of(exact, value=stated, places=2, via=3.9901) == "rounding"
    assert verdict_of(exact, value=stated, places=2, via=3.98) == "wrong"
    assert verdict_of(3.974, value=stated, places=2, via=3.99) == "wrong", "two digits off"


@pytest.mark.parametrize(
    ("bounds", "computed", "expected"),
    [
        ({"at_least": 0.99}, 1.0, "holds"),
        ({"at_least": 0.99}, 0.5, "wrong"),
        ({"at_most": 0.3}, [0.1, 0.2], "holds"),
        ({"at_most": 0.3}, [0.1, 0.31], "wrong"),
        ({"at_least": 0.2, "at_most": 0.3}, 0.25, "holds"),
        ({"at_least": 0.2, "at_most": 0.3}, [0.2, 0.3], "holds"),
        ({"at_least": 0.2}, float("nan"), "wrong"),
    ],
)
def test_a_bound_holds_for_every_number(bounds, computed, expected):
    claim = document(**bounds).claim("claim")
    assert ledger.judge(claim, computed) == expected


def test_a_draw_is_judged_by_its_distribution():
    sample = (torch.arange(100, dtype=torch.float64) / 100).repeat(100)
    fields = {"value": 0.25, "places": 2, "draw": True}
    believable = document(**fields).draw("claim", sample, seeded=0.7012).claim
    assert (believable.verdict, believable.computed, believable.percentile) == ("draw", 0.7, 25.0)
    assert document(**fields).draw("claim", sample, seeded=0.2501).claim.verdict == "holds"
    beyond = document(**(fields | {"value": 1.5})).draw("claim", sample)
    assert beyond.claim.verdict == "wrong"


def test_a_draw_tells_the_size_of_its_sample():
    fields = {"value": 0.25, "places": 2, "draw": True}
    verdict = document(**fields).draw("claim", torch.linspace(0, 1, 2_500))
    assert "share of 2,500 draws below the printed figure: 25 %" in repr(verdict)
    assert verdict._repr_mimebundle_()[ledger.MIME]["draws"] == 2_500
    recorded = {"verdict": "draw", "percentile": 25.0, "draws": 10_000}
    with pytest.raises(LedgerError, match="'draws': 10000"):
        document(**fields, **recorded).draw("claim", torch.linspace(0, 1, 2_500))


@pytest.mark.parametrize(
    ("below", "expected"), [(4, "wrong"), (5, "draw"), (9_995, "draw"), (9_996, "wrong")]
)
def test_a_draw_is_wrong_where_all_but_one_in_two_thousand_lie_on_one_side(below, expected):
    sample = [0.0] * below + [1.0] * (10_000 - below)
    claim = document(value=0.5, places=1, draw=True).draw("claim", sample).claim
    assert claim.verdict == expected


@pytest.mark.parametrize("stated", [0.0, 1.0])
def test_a_figure_that_most_draws_print_is_a_draw(stated):
    sample = [stated + 0.04] * 9_999 + [1 - stated]
    assert document(value=stated, places=1, draw=True).draw("claim", sample).claim.verdict == "draw"


@pytest.mark.parametrize(
    ("sample", "got"),
    [([], "[]"), ([[0.5, 0.5], [0.1, 0.2]], "[[0.5, 0.5]]"), ([[[0.5]], [[0.1]]], "[[[0.5]]]")],
)
def test_a_sample_of_another_shape_is_refused(sample, got):
    with pytest.raises(LedgerError) as refusal:
        document(value=[0.5], places=1, draw=True).draw("claim", sample)
    told = "each draw must have the figures of the claim, [0.5]; got "
    assert str(refusal.value).endswith(told + got)


def test_one_draw_is_a_sample():
    assert document(value=[0.5], places=1, draw=True).draw("claim", [[0.5]]).claim.draws == 1


def test_no_bound_holds_for_nothing():
    with pytest.raises(LedgerError, match="nothing was computed"):
        ledger.judge(document(at_least=0.9).claim("claim"), [[]])


def test_a_contradiction_is_a_conflict(monkeypatch):
    monkeypatch.setattr(documents, "find_claim", lambda key: document(value=4096).claim("claim"))
    assert verdict_of(12288, value=12288, against=["other/claim"]) == "conflict"
    assert verdict_of(4096, value=4096, against=["other/claim"]) == "holds"


def test_what_one_fair_reading_refutes_holds_in_one_reading():
    assert verdict_of(0.4, value=0.4, fails="Counted by heads it is 0.6.") == "holds in one reading"
    assert verdict_of(0.5, value=0.4, fails="Counted by heads it is 0.6.") == "wrong"


def test_what_a_control_passes_too_holds_in_one_reading():
    row = document(at_least=0.9, learned=True)
    assert row.compare("claim", 0.95, control=0.5).claim.verdict == "holds"
    assert row.compare("claim", 0.95, control=0.92).claim.verdict == "holds in one reading"
    assert row.compare("claim", 0.95, control=0.92).claim.control == 0.92
    with pytest.raises(LedgerError, match="hand over what an untrained control gives"):
        row.compare("claim", 0.95)


def test_what_only_the_copy_has_wrong_is_its_fault():
    assert verdict_of(0.5, value=0.4, copy=True) == "fault of the copy"
    assert verdict_of(0.4, value=0.4, copy=True) == "holds"


def test_a_tally_tells_on_what_verdicts_rest():
    rows = {
        "a": {"value": 1, "proof": True},
        "b": {"at_least": 0.9, "reading": "always"},
        "c": {"at_least": 0.9, "reading": "stated"},
    }
    common = {"where": "w", "says": "s", "notebook": "n", "verdict": "holds"}
    claims = {i: read_claim("d", {"id": i, **common, **row}) for i, row in rows.items()}
    told = documents.Document("d", "D", claims).tally()
    assert told == "3 claims\n3 holds\nof those that hold, 1 by proof, 1 by a bar"


@pytest.mark.parametrize(
    "recorded", [{"verdict": "wrong", "computed": 0.4}, {"verdict": "holds", "computed": 0.5}]
)
def test_a_record_that_the_numbers_contradict_raises(recorded):
    with pytest.raises(LedgerError, match="the numbers say"):
        document(value=0.4, places=1, **recorded).compare("claim", 0.41)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ledger.open_document("nowhere"), "no ledger for 'nowhere'"),
        (lambda: document(value=1).compare("other", 1), "no claim 'other'"),
        (
            lambda: document(value=1, places=1, draw=True).compare("claim", 1),
            "is a draw: hand its distribution to draw",
        ),
        (lambda: document(value=1).draw("claim", [1]), "not marked"),
        (lambda: typed(verdict="untested").compare("claim", 1), "states no value"),
        (lambda: typed(source="s", value=1).compare("claim", 1), "is about a paper"),
        (lambda: read_claim("d", {"id": "x", "says": "y"}), r"missing fields \['where'\]"),
        (lambda: typed(vlaue=1), r"unknown fields \['vlaue'\]"),
        (lambda: typed(), "`verdict: untested` was expected; got None. Add what"),
        (
            lambda: typed(value=1),
            r"is a value, for it has `value`; .* missing fields \['notebook'\]",
        ),
        (lambda: document(at_most=1, value=1), r"is a bound, for .* unknown fields \['value'\]"),
        (lambda: document(value=1, reading="all"), r"is a value, .* unknown fields \['reading'\]"),
        (lambda: document(value=1, draw=True), r"is a draw, .* missing fields \['places'\]"),
        (lambda: document(value=1, places=1, draw=False), "draw is False; `true` was expected"),
        (lambda: document(source="s"), r"is about a paper, .* unknown fields \['notebook'\]"),
        (lambda: document(verdict="untested"), r"has none of .* unknown fields \['notebook'\]"),
    ],
)
def test_misuse_is_named(call, message):
    with pytest.raises(LedgerError, match=message):
        call()


# How a verdict is told


def test_a_verdict_is_told_as_text_and_data():
    verdict = document(value=0.448, places=3, why="one <row> & more").compare("claim", 0.5031)
    bundle = verdict._repr_mimebundle_()
    assert bundle["text/plain"].splitlines()[0] == "wrong: this"
    assert "0.448" in bundle["text/plain"]
    assert "0.503" in bundle["text/plain"]
    assert "one <row> & more" in bundle["text/plain"]
    facts = {"document": "test", "id": "claim", "verdict": "wrong", "computed": 0.503}
    assert bundle[ledger.MIME] == facts


def test_what_is_typed_is_told_with_what_decides_it():
    read = typed(source="Somebody, section 3", value=1024, verdict="wrong", why="It says 512.")
    told = dict(read.show("claim").rows())
    assert (told["document"], told["source"]) == ("1,024", "Somebody, section 3")
    assert ("compared in", "chapters/one") in document(value=1).show("claim").rows()
    assert {label for label, _ in typed(verdict="untested", why="w").show("claim").rows()} == {
        *("claim", "where", "says", "why")
    }
    convention = document(value=1, against=["a/b", "c/d"]).show("claim")
    assert ("against", "a/b, c/d") in convention.rows()


def test_a_bound_is_told_as_a_bound():
    both = document(at_least=0.2, at_most=0.3, places=2).compare("claim", 0.25)
    assert ("holds if", "at least 0.20 and at most 0.30") in both.rows()
    assert document(at_most=0.3).claim("claim").stated == "at most 0.3"
    assert ("document", "0.3") in document(value=0.3).compare("claim", 0.3).rows()


def test_a_draw_is_told_with_its_place_among_the_draws():
    fields = {"value": 0.75, "places": 2, "draw": True}
    sample = [0.0] * 7_540 + [1.0] * 2_460
    below = "share of 10,000 draws below the printed figure: 75 %"
    seeded = document(**fields).draw("claim", sample, seeded=0.7).claim
    assert (seeded.came_out, seeded.percentile) == (f"seeded run 0.70; {below}", 75.0)
    unseeded = document(**fields).draw("claim", sample).claim
    assert unseeded.came_out == f"no seed named; {below}"


def test_nothing_of_the_ledger_can_be_changed_in_passing():
    verdict = document(value=1).compare("claim", 1)
    for part, name in (
        (verdict.claim, "verdict"),
        (verdict, "claim"),
        (document(value=1), "claims"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, None)


@pytest.mark.parametrize("kind", [ledger.Claim, *MARKS.values(), ledger.Untested, ledger.Compared])
def test_a_claim_is_made_by_its_fields_names_alone(kind):
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        kind("test")


def test_a_claim_is_linked_to_by_its_name():
    claim = read_claim("a/b", ROW | {"id": "c.d", "verdict": "untested"})
    assert claim.anchor == "claim-a-b-c-d"


def test_an_id_that_stands_twice_is_refused(tmp_path, monkeypatch):
    row = ROW | {"id": "a", "verdict": "untested"}
    for name, second in (("right", "b"), ("wrong", "a")):
        rows = {"document": name, "title": "t", "claims": [row, row | {"id": second}]}
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(rows))
    monkeypatch.setattr(documents, "DOCUMENTS", tmp_path)
    assert list(ledger.open_document("right").claims) == ["a", "b"]
    with pytest.raises(LedgerError, match=r"wrong/a stands twice in wrong\.yml"):
        ledger.open_document("wrong")
