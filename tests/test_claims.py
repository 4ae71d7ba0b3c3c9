"""The claims: each complete, compared once, where it says, and shown as the ledger tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from labkit import ledger
from labkit.ledger import MIME, RECORD_MIME, Claim, Compared, Convention, Record, Verdict, rows
from labkit.ledger.nested import rounded
from press.notebooks import AUDITS, NOTEBOOKS, name, outputs, read

CLAIMS = {claim.key: claim for claim in ledger.all_claims()}
KINDS = {MIME: Verdict, RECORD_MIME: Record}
SHOWN = [
    (mime, f"{output.data[mime]['document']}/{output.data[mime]['id']}", name(path), output.data)
    for path in NOTEBOOKS
    for output in outputs(read(path))
    for mime in KINDS
    if mime in output.get("data", {})
]


def demand_none(faults: Iterable[tuple[str, str]]) -> None:
    """Fail with a line for each claim that has a fault."""
    lines = [f"{key}: {fault}" for key, fault in faults]
    assert not lines, "\n".join(["", *lines])


def test_the_four_documents_are_there():
    keys = {"section-2.3", "committee", "subject-17-08", "chapter-11"}
    assert set(ledger.document_keys()) == keys


def test_what_a_page_shows_is_what_the_ledger_says():
    demand_none(
        (key, f"{notebook} shows what the ledger does not say; run `make run NB={notebook}.ipynb`")
        for mime, key, notebook, data in SHOWN
        if key not in CLAIMS or data != KINDS[mime](CLAIMS[key])._repr_mimebundle_()
    )


def test_each_claim_is_compared_once_where_it_says():
    compared = [(key, notebook) for mime, key, notebook, _ in SHOWN if mime == MIME]
    where = {key: [notebook for name, notebook in compared if name == key] for key in CLAIMS}
    expected = {
        key: [claim.notebook] if isinstance(claim, Compared) else []
        for key, claim in CLAIMS.items()
    }
    demand_none(
        (key, f"expected to be compared in {expected[key]}; it is compared in {where[key]}")
        for key in CLAIMS
        if where[key] != expected[key]
    )


def test_what_a_notebook_compares_it_need_not_show_again():
    compared = {(key, notebook) for mime, key, notebook, _ in SHOWN if mime == MIME}
    demand_none(
        (key, f"{notebook} compares it, so that show() there says it twice")
        for mime, key, notebook, _ in SHOWN
        if mime == RECORD_MIME and (key, notebook) in compared
    )


def test_each_claim_is_complete():
    demand_none((key, fault) for key, claim in CLAIMS.items() for fault in faults(claim))


def faults(claim: Claim) -> Iterator[str]:
    """Say what a claim lacks."""
    if claim.verdict not in ledger.VERDICTS:
        yield f"its verdict is {claim.verdict}; one of {ledger.VERDICTS} was expected"
    if claim.verdict not in ("holds", ledger.IN_ONE_READING) and not claim.why:
        yield f"it is {claim.verdict}; say why, and what is right"
    if isinstance(claim, Convention):
        for other in map(CLAIMS.get, claim.against):
            if not isinstance(other, Convention) or claim.key not in other.against:
                yield f"it is against {claim.against}; each of these has to name it too"
            elif not claim.verdict == other.verdict == "conflict":
                yield f"it and {other.key} are against each other; both have to be a conflict"
    if isinstance(claim, Compared):
        stated = [claim.statement]
        if isinstance(claim, ledger.Bound):
            stated = [*claim.statement.values()]
        if any(rounded(figure, claim.places) != figure for figure in stated):
            yield f"it states {stated}, which has more places than the {claim.places} it shows"


def test_every_row_of_a_file_is_a_claim_in_its_order():
    for key in ledger.document_keys():
        data = rows.read(ledger.DOCUMENTS / f"{key}.yml")
        ids = [row["id"] for row in data["claims"]]
        assert ids == list(ledger.open_document(key).claims)
        assert data["document"] == key


@pytest.mark.parametrize("key", ledger.document_keys())
def test_a_documents_audits_tell_every_claim_once_in_its_order(key: str):
    audits = [name(path) for path in AUDITS]
    told = [named for _, named, notebook, _ in SHOWN if notebook in audits]
    of_document = [claim.key for claim in ledger.open_document(key)]
    assert [named for named in told if named.startswith(f"{key}/")] == of_document
