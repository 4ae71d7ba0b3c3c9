"""The claims: each complete, compared once, where it says, and shown as the ledger tells it."""

from __future__ import annotations

import pytest
import yaml

from labkit import ledger
from labkit.ledger import MIME, RECORD_MIME, Claim, Record, Verdict
from labkit.nested import rounded
from press.notebooks import AUDITS, NOTEBOOKS, name, outputs, read, verdicts

CLAIMS = [claim for key in ledger.document_keys() for claim in ledger.open_document(key)]
COMPARED = [(verdict, name(path)) for path in NOTEBOOKS for verdict in verdicts(read(path))]
SHOWN = {
    f"{output.data[MIME]['document']}/{output.data[MIME]['id']}": output.data
    for path in NOTEBOOKS
    for output in outputs(read(path))
    if MIME in output.get("data", {})
}

each_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)


def test_the_four_documents_are_there():
    keys = {"section-2.3", "committee", "subject-17-08", "chapter-11"}
    assert set(ledger.document_keys()) == keys


@pytest.mark.parametrize("key", SHOWN)
def test_what_the_page_shows_is_what_the_ledger_says(key: str):
    assert SHOWN[key] == Verdict(ledger.find_claim(key))._repr_mimebundle_()


@each_claim
def test_claim_is_compared_once_where_it_says(claim: Claim):
    where = [nb for v, nb in COMPARED if (v["document"], v["id"]) == (claim.document, claim.id)]
    typed = claim.verdict == "untested" or claim.source is not None
    expected = [] if typed else [claim.notebook]
    assert where == expected


@each_claim
def test_claim_is_complete(claim: Claim):
    assert claim.verdict in ledger.VERDICTS
    assert claim.verdict == "holds" or claim.why, "say why, and what is right"
    assert claim.source is None or claim.computed is None, "a source or a computation, not both"
    for other in map(ledger.find_claim, claim.against or ()):
        assert claim.key in other.against, "claims in conflict name each other"
        assert claim.verdict == other.verdict == "conflict"
    for stated in (claim.value, claim.at_least, claim.at_most):
        if None not in (stated, claim.places):
            assert rounded(stated, claim.places) == stated, "it shows all of its places"


def test_every_row_of_a_file_is_a_claim_in_its_order():
    for key in ledger.document_keys():
        data = yaml.safe_load((ledger.DOCUMENTS / f"{key}.yml").read_text(encoding="utf-8"))
        ids = [row["id"] for row in data["claims"]]
        assert ids == list(ledger.open_document(key).claims)
        assert data["document"] == key


@pytest.mark.parametrize("key", ledger.document_keys())
def test_a_documents_audits_tell_every_claim_once_in_its_order(key: str):
    told = [
        output.data[kind]["id"]
        for path in AUDITS
        for output in outputs(read(path))
        for kind in (MIME, RECORD_MIME)
        if output.get("data", {}).get(kind, {}).get("document") == key
    ]
    assert told == list(ledger.open_document(key).claims)


def test_what_an_audit_shows_of_the_ledger_is_what_it_says():
    for path in AUDITS:
        for output in outputs(read(path)):
            if found := output.get("data", {}).get(RECORD_MIME):
                claim = ledger.find_claim(f"{found['document']}/{found['id']}")
                assert output.data == Record(claim)._repr_mimebundle_()
                assert claim.notebook != name(path), "what it compares itself it need not show"
