"""A document's ledger: its claims in reading order, opened, compared and shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from labkit.ledger import rows
from labkit.ledger.claims import (
    BAR,
    PROOF,
    Bound,
    Claim,
    Compared,
    Convention,
    Draw,
    Figures,
    read_claim,
)
from labkit.ledger.nested import plain, rounded
from labkit.ledger.rows import LedgerError
from labkit.ledger.verdicts import IN_ONE_READING, OF_THE_COPY, VERDICTS, Record, Verdict

__all__ = ["Document", "all_claims", "document_keys", "find_claim", "judge", "open_document"]

DOCUMENTS = Path(__file__).parent / "documents"


@dataclass(frozen=True)
class Document:
    """One document's ledger, in reading order."""

    key: str
    title: str
    claims: dict[str, Claim]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims.values())

    def claim(self, claim_id: str) -> Claim:
        """Return the claim with this id; raise LedgerError if there is none."""
        if claim_id not in self.claims:
            raise LedgerError(f"{self.key} has no claim {claim_id!r}; it has {list(self.claims)}")
        return self.claims[claim_id]

    def show(self, claim_id: str) -> Record:
        """Show a claim that is compared in another notebook, or in none."""
        return Record(self.claim(claim_id))

    def tally(self) -> str:
        """Count the claims; below, their verdicts, and on what those rest that hold."""
        count = Counter(claim.verdict for claim in self)
        told = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict])
        grounds = Counter(claim.grounds for claim in self if claim.verdict == "holds")
        by = ", ".join(f"{grounds[ground]} {ground}" for ground in (PROOF, BAR) if grounds[ground])
        return f"{len(self.claims)} claims\n{told}" + (f"\nof those that hold, {by}" if by else "")

    def compare(
        self, claim_id: str, computed: Any, *, via: Any = None, control: Any = None
    ) -> Verdict:
        """Judge a claim by a computed value.

        Args:
            claim_id: the claim's name in this document.
            computed: what came out, a number, list, tensor, string or truth value.
            via: what comes out when an intermediate is rounded as the document rounds it. It is
                what tells ``rounding`` from ``wrong``.
            control: the same measure where nothing was learned, or where nothing should be seen. If
                it passes as well, the claim holds in one reading only.

        Raises:
            LedgerError: the ledger records another verdict or value, or the row says that something
                is learned, and no control was handed over.
        """
        claim = self.claim(claim_id)
        if isinstance(claim, Draw):
            raise LedgerError(f"{claim.key} is a draw: hand its distribution to draw()")
        if not isinstance(claim, Figures | Bound):
            raise LedgerError(
                f"{claim.key} is {claim.NAME}, so it states no value and no bound to compare with: "
                "show it with show()"
            )
        if claim.learned and control is None:
            raise LedgerError(
                f"{claim.key} says that something is learned: hand over what an untrained control "
                "gives, as control=..."
            )
        computed, control = plain(computed), plain(control)
        return settle(
            claim,
            verdict=judge(claim, computed, plain(via), control),
            computed=rounded(computed, claim.places),
            control=rounded(control, claim.places),
        )

    def draw(self, claim_id: str, sample: Any, *, seeded: Any = None) -> Verdict:
        """Judge figures that one random draw printed by the distribution they come from.

        Args:
            claim_id: the claim's name in this document.
            sample: (draws, ...), the same figures from many draws, the claim's shape behind.
            seeded: the figures that the seed named in the document gives, if it names one.

        Raises:
            LedgerError: the ledger records another verdict or value, or the sample's shape is not
                the claim's.
        """
        claim = self.claim(claim_id)
        if not isinstance(claim, Draw):
            raise LedgerError(f"{claim.key} is not marked `draw: true`; use compare()")
        return settle(claim, **claim.found(plain(sample), plain(seeded)))


@cache
def open_document(key: str) -> Document:
    """Read one document's ledger, for instance ``open_document("section-2.3")``."""
    path = DOCUMENTS / f"{key}.yml"
    if not path.is_file():
        raise LedgerError(f"no ledger for {key!r}; there are {document_keys()}")
    data = rows.read(path)
    claims: dict[str, Claim] = {}
    for row in data["claims"]:
        claim = read_claim(data["document"], row)
        if claim.id in claims:
            raise LedgerError(f"{claim.key} stands twice in {path.name}")
        claims[claim.id] = claim
    return Document(data["document"], data["title"], claims)


def document_keys() -> list[str]:
    """List the documents that have a ledger."""
    return sorted(path.stem for path in DOCUMENTS.glob("*.yml"))


def all_claims() -> list[Claim]:
    """List the claims of all documents."""
    return [claim for key in document_keys() for claim in open_document(key)]


def find_claim(key: str) -> Claim:
    """Find a claim by ``document/id``."""
    document, _, claim_id = key.partition("/")
    return open_document(document).claim(claim_id)


def judge(claim: Figures | Bound, computed: Any, via: Any = None, control: Any = None) -> str:
    """Work a verdict out from the numbers, and a convention's from what is stated against it.

    What holds is said to hold in one reading where the row tells of a fair one that fails, or where
    the control passes as well; what is wrong is the copy's fault where the row says so.
    """
    if isinstance(claim, Convention) and any(
        find_claim(other).statement != claim.value for other in claim.against
    ):
        return "conflict"
    verdict = claim.judge(computed, via)
    if verdict == "holds":
        passes = control is not None and claim.judge(control) == "holds"
        return IN_ONE_READING if claim.fails or passes else verdict
    return OF_THE_COPY if verdict == "wrong" and claim.copy else verdict


def settle(claim: Compared, **found: Any) -> Verdict:
    """Return the verdict, or raise if the ledger records another one.

    A claim that has no verdict yet is new: what was found is taken, and ``make run`` records it.
    """
    if claim.verdict is None:
        return Verdict(replace(claim, **found))
    recorded = {name: getattr(claim, name) for name in found}
    if recorded != found:
        raise LedgerError(
            f"{claim.key}: the ledger records {recorded}, the numbers say {found}. "
            "Mend the ledger if the document was misread, the notebook if it was not."
        )
    return Verdict(claim)
