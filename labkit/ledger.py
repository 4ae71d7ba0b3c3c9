"""The ledger: what a document says beside what comes out here.

A claim is a row of ``labkit/documents/<document>.yml``. A notebook computes a value and hands
it to :meth:`Document.compare` or :meth:`Document.draw`. The verdict is worked out from the
numbers; if it, or the computed value, differs from the row, the cell raises. An audit tells of what
is compared elsewhere with :meth:`Document.show`.

The rows keep six rules:

1. A contradiction is decided where it can be: each side is judged by itself.
2. Charity: a sentence is wrong only if every fair reading of it, in its context, fails.
3. One standard: the same quantity, read alike, has one verdict, and a word has one bar
   (``labkit/readings.yml``).
4. A reason is true: it rests on what was measured, or on what a source says where it is cited.
5. A test can fail; an outcome that follows from its own bound is a proof, and says so.
6. Untested comes last, where neither a laptop nor the cited paper decides.
"""

from __future__ import annotations

import html
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from labkit.nested import flat, plain, rounded, shape, show

__all__ = [
    "Claim",
    "Document",
    "LedgerError",
    "Record",
    "Verdict",
    "document_keys",
    "find_claim",
    "judge",
    "open_document",
]

DOCUMENTS = Path(__file__).parent / "documents"
VERDICTS = ("holds", "rounding", "draw", "wrong", "conflict", "untested")
MIME = "application/vnd.labkit.verdict+json"
RECORD_MIME = "application/vnd.labkit.record+json"

# A draw is believable unless fewer draws than this, in percent, lie on one side of a figure.
TAIL_PERCENT = 0.05


class LedgerError(ValueError):
    """A claim that the ledger does not know, or that the numbers contradict."""


@dataclass(frozen=True)
class Claim:
    """One row of a document's ledger. The fields are those of the YAML file."""

    document: str
    id: str
    where: str
    says: str
    value: Any = None
    places: int | None = None
    at_least: float | None = None
    at_most: float | None = None
    test: str | None = None
    draw: bool = False
    against: list[str] | None = None
    quantity: str | None = None
    reading: str | None = None
    source: str | None = None
    verdict: str | None = None
    computed: Any = None
    percentile: Any = None
    draws: int | None = None
    why: str | None = None
    notebook: str | None = None

    @property
    def key(self) -> str:
        """Name the claim across documents: ``document/id``."""
        return f"{self.document}/{self.id}"

    @property
    def anchor(self) -> str:
        """Name the HTML element in which the claim is compared."""
        return "claim-" + self.key.replace("/", "-").replace(".", "-")

    @property
    def is_bound(self) -> bool:
        """Say whether the claim bounds a value instead of stating it."""
        return self.at_least is not None or self.at_most is not None

    @property
    def stated(self) -> str:
        """Write what the document states, as text."""
        if not self.is_bound:
            return show(self.value, self.places)
        bounds = [
            f"{words} {show(limit, self.places)}"
            for words, limit in (("at least", self.at_least), ("at most", self.at_most))
            if limit is not None
        ]
        return " and ".join(bounds)

    @property
    def came_out(self) -> str:
        """Write what was computed, as text."""
        text = show(self.computed, self.places)
        if not self.draw:
            return text
        seeded = "no seed named" if self.computed is None else f"seeded run {text}"
        share = show(self.percentile, 0)
        return f"{seeded}; share of {self.draws:,} draws below the printed figure: {share} %"


@dataclass(frozen=True)
class Verdict:
    """A claim beside what came out, as text, as HTML and as data."""

    claim: Claim

    def rows(self) -> list[tuple[str, str]]:
        """List what there is to tell, as pairs of label and text."""
        claim = self.claim
        told = [
            ("claim", claim.key),
            ("where", claim.where),
            ("says", claim.says),
            ("read as", claim.test),
            ("holds if" if claim.is_bound else "document", claim.stated),
            ("computed", claim.came_out),
            ("against", ", ".join(claim.against or ())),
            ("why", claim.why),
        ]
        return [(label, " ".join(text.split())) for label, text in told if text]

    def __repr__(self) -> str:
        claim = self.claim
        lines = [f"  {label:<9} {text}" for label, text in self.rows()]
        return "\n".join([f"{claim.verdict}: {claim.says}", *lines])

    def _repr_html_(self) -> str:
        return self.as_html([(label, html.escape(text)) for label, text in self.rows()])

    @property
    def anchor(self) -> str:
        """Name the HTML element of this verdict."""
        return self.claim.anchor

    def as_html(
        self, rows: Iterable[tuple[str, str]], *, laid_open: bool = False, named: bool = False
    ) -> str:
        """Write the verdict, folded over rows of a label and HTML, or laid open.

        Args:
            named: whether its line names the document, as it must among other things.
        """
        claim = self.claim
        document = f"<code>{claim.document}</code> · " if named else ""
        body = "".join(f"<dt>{label}</dt><dd>{told}</dd>" for label, told in rows)
        state = " open" if laid_open else ""
        return (
            f'<details class="verdict verdict-{claim.verdict}" id="{self.anchor}"{state}>'
            f"<summary>{document}<b>{claim.verdict}</b> {html.escape(claim.says)}</summary>"
            f"<dl>{body}</dl></details>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        claim = self.claim
        recorded = RECORDED if claim.draw else RECORDED[:-1]
        data = {name: getattr(claim, name) for name in ("document", "id", *recorded)}
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: data}


# What a notebook adds to a row. The last is of draws only.
RECORDED = ("verdict", "computed", "percentile", "draws")


@dataclass(frozen=True, repr=False)
class Record(Verdict):
    """A claim as the ledger has it, shown where it is not compared."""

    @property
    def anchor(self) -> str:
        """Name the HTML element of this record: the claim's own name is where it is compared."""
        return f"shown-{self.claim.anchor}"

    def rows(self) -> list[tuple[str, str]]:
        """List what there is to tell, where it is compared or what decides it included."""
        claim = self.claim
        by = [("source", claim.source), ("compared in", claim.notebook)]
        told = [(label, " ".join(text.split())) for label, text in by if text]
        return super().rows() + told

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        data = {"document": self.claim.document, "id": self.claim.id}
        return {"text/plain": repr(self), "text/html": self._repr_html_(), RECORD_MIME: data}


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
        """Count the claims, and on a second line their verdicts."""
        count = Counter(claim.verdict for claim in self)
        told = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict])
        return f"{len(self.claims)} claims\n{told}"

    def compare(self, claim_id: str, computed: Any, *, via: Any = None) -> Verdict:
        """Judge a claim by a computed value.

        Args:
            claim_id: the claim's name in this document.
            computed: what came out, a number, list, tensor, string or truth value.
            via: what comes out when an intermediate is rounded as the document rounds it. It is
                what tells ``rounding`` from ``wrong``.

        Raises:
            LedgerError: the ledger records another verdict or value.
        """
        claim = self.claim(claim_id)
        if claim.draw:
            raise LedgerError(f"{claim.key} is a draw: hand its distribution to draw()")
        if claim.value is None and not claim.is_bound:
            raise LedgerError(f"{claim.key} states no value and no bound to compare with")
        computed = plain(computed)
        verdict = judge(claim, computed, plain(via))
        return settle(claim, verdict=verdict, computed=rounded(computed, claim.places))

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
        if not claim.draw:
            raise LedgerError(f"{claim.key} is not marked `draw: true`; use compare()")
        sample, seeded = plain(sample), plain(seeded)
        if not sample or shape(sample[0]) != shape(claim.value):
            raise LedgerError(
                f"{claim.key}: each draw must have the figures of the claim, {claim.value}; "
                f"got {sample[:1]}"
            )
        printed = rounded(sample, claim.places)
        percentile = percentiles(claim.value, printed)
        if seeded is not None and agrees(claim.value, seeded, claim.places):
            verdict = "holds"
        else:
            least, most = TAIL_PERCENT, 100 - TAIL_PERCENT
            up_to = percentiles(claim.value, printed, operator.le)
            inside = max(flat(percentile)) <= most and min(flat(up_to)) >= least
            verdict = "draw" if inside else "wrong"
        return settle(
            claim,
            verdict=verdict,
            computed=rounded(seeded, claim.places),
            percentile=rounded(percentile, 0),
            draws=len(sample),
        )


@cache
def open_document(key: str) -> Document:
    """Read one document's ledger, for instance ``open_document("section-2.3")``."""
    path = DOCUMENTS / f"{key}.yml"
    if not path.is_file():
        raise LedgerError(f"no ledger for {key!r}; there are {document_keys()}")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
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


def find_claim(key: str) -> Claim:
    """Find a claim by ``document/id``."""
    document, _, claim_id = key.partition("/")
    return open_document(document).claim(claim_id)


def read_claim(document: str, row: dict[str, Any]) -> Claim:
    """Make a claim of a YAML row; raise LedgerError if a field is unknown or missing."""
    known = {field.name for field in fields(Claim)} - {"document"}
    unknown = sorted(set(row) - known)
    missing = sorted({"id", "where", "says"} - set(row))
    if unknown or missing:
        raise LedgerError(
            f"{document}/{row.get('id', '?')}: unknown fields {unknown}, missing fields {missing}"
        )
    return Claim(document=document, **row)


def judge(claim: Claim, computed: Any, via: Any = None) -> str:
    """Work a verdict out from the numbers."""
    if any(find_claim(other).value != claim.value for other in claim.against or ()):
        return "conflict"
    if claim.is_bound:
        numbers = list(flat(computed))
        if not numbers:
            raise LedgerError(f"{claim.key}: nothing was computed, so no bound can hold")
        low = -math.inf if claim.at_least is None else claim.at_least
        high = math.inf if claim.at_most is None else claim.at_most
        return "holds" if all(low <= number <= high for number in numbers) else "wrong"
    if agrees(claim.value, computed, claim.places):
        return "holds"
    if via is not None and claim.places is not None:
        close = agrees(claim.value, computed, claim.places, slack=1)
        if close and agrees(claim.value, via, claim.places):
            return "rounding"
    return "wrong"


def settle(claim: Claim, **found: Any) -> Verdict:
    """Return the verdict, or raise if the ledger records another one.

    A claim that has no verdict yet is new: what was found is taken, and ``make run`` records it.
    """
    if claim.verdict is not None:
        recorded = {name: getattr(claim, name) for name in found}
        if recorded != found:
            raise LedgerError(
                f"{claim.key}: the ledger records {recorded}, the numbers say {found}. "
                "Mend the ledger if the document was misread, the notebook if it was not."
            )
        return Verdict(claim)
    values = {field.name: getattr(claim, field.name) for field in fields(Claim)}
    return Verdict(Claim(**(values | found)))


def agrees(stated: Any, computed: Any, places: int | None, slack: int = 0) -> bool:
    """Say whether a value rounds to what is stated, or within ``slack`` last digits of it."""
    if shape(stated) != shape(computed):
        return False
    if places is None:
        return stated == computed
    # Half a unit of the last digit; the hair keeps a value on the edge on both sides of it.
    reach = (0.5 + slack) * 10.0**-places * (1 + 1e-6)
    return all(abs(a - b) <= reach for a, b in zip(flat(stated), flat(computed), strict=True))


def percentiles(
    stated: Any, sample: list[Any], beside: Callable[[Any, Any], bool] = operator.lt
) -> Any:
    """Give the share of draws, in percent, that print less than each stated figure."""
    if isinstance(stated, list):
        return [
            percentiles(part, [draw[i] for draw in sample], beside) for i, part in enumerate(stated)
        ]
    return 100 * sum(beside(draw, stated) for draw in sample) / len(sample)
