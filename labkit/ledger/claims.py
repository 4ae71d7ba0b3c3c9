"""What a claim is: one kind for each way in which a document's sentence can be judged."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from labkit.ledger.nested import agrees, flat, percentiles, rounded, shape, show
from labkit.ledger.rows import LedgerError

__all__ = [
    "AboutPaper",
    "Bound",
    "Claim",
    "Compared",
    "Convention",
    "Draw",
    "Figures",
    "Untested",
    "read_claim",
]

PROOF, BAR = "by proof", "by a bar"
OWN = "stated"  # the reading of a bound that is the document's own figure

# A draw is believable unless fewer draws than this, in percent, lie on one side of a figure.
TAIL_PERCENT = 0.05


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What every row of a document's ledger has, under the names of the YAML file."""

    NAME: ClassVar[str]
    FOUND: ClassVar[tuple[str, ...]] = ("verdict",)  # the fields that are not the author's

    document: str
    id: str
    where: str
    says: str
    quantity: str | None = None
    verdict: str | None = None
    fails: str | None = None
    why: str | None = None

    @property
    def key(self) -> str:
        """Name the claim across documents: ``document/id``."""
        return f"{self.document}/{self.id}"

    @property
    def anchor(self) -> str:
        """Name the HTML element in which the claim is compared."""
        return "claim-" + self.key.replace("/", "-").replace(".", "-")

    @property
    def statement(self) -> Any:
        """Give what the document states as data, which is a value, bounds, or None."""
        return None

    @property
    def grounds(self) -> str:
        """Say on what a verdict rests that no printed figure decides: a proof, or a bar of ours."""
        return ""

    def told(self) -> list[tuple[str, str]]:
        """List what is stated and what came out, as pairs of label and text."""
        return []

    def decided(self) -> list[tuple[str, str]]:
        """Name what decides the claim, as a pair of label and text, if anything does."""
        return []


@dataclass(frozen=True, kw_only=True)
class Compared(Claim):
    """A claim that a notebook compares with what it computes."""

    FOUND: ClassVar[tuple[str, ...]] = ("verdict", "computed", "control")
    STATED: ClassVar[str] = "document"  # what the statement is called where it is told

    notebook: str
    places: int | None = None
    test: str | None = None
    computed: Any = None
    control: Any = None
    proof: bool = False
    copy: bool = False
    learned: bool = False

    @property
    def grounds(self) -> str:
        return PROOF if self.proof else ""

    @property
    def stated(self) -> str:
        """Write what the document states, as text."""
        return show(self.statement, self.places)

    @property
    def came_out(self) -> str:
        """Write what was computed, as text."""
        return show(self.computed, self.places)

    def told(self) -> list[tuple[str, str]]:
        control = "" if self.control is None else show(self.control, self.places)
        return [
            ("read as", self.test or ""),
            (self.STATED, self.stated),
            ("computed", self.came_out),
            ("control", control),
        ]

    def decided(self) -> list[tuple[str, str]]:
        return [("compared in", self.notebook)]


@dataclass(frozen=True, kw_only=True)
class Figures(Compared):
    """Printed figures, to which the computed ones must round; without places, an exact value."""

    NAME: ClassVar[str] = "a value"

    value: Any

    @property
    def statement(self) -> Any:
        return self.value

    def judge(self, computed: Any, via: Any = None) -> str:
        """Work the verdict out from a computed value, and from what came out by another route."""
        if agrees(self.value, computed, self.places):
            return "holds"
        if via is not None and self.places is not None:
            close = agrees(self.value, computed, self.places, slack=1)
            if close and agrees(self.value, via, self.places):
                return "rounding"
        return "wrong"


@dataclass(frozen=True, kw_only=True)
class Convention(Figures):
    """A value against which other documents state another, where nothing decides."""

    NAME: ClassVar[str] = "a convention"

    against: list[str]

    def told(self) -> list[tuple[str, str]]:
        return [*super().told(), ("against", ", ".join(self.against))]


@dataclass(frozen=True, kw_only=True)
class Bound(Compared):
    """Bounds between which every computed number must lie, and the word that they read."""

    NAME: ClassVar[str] = "a bound"
    STATED: ClassVar[str] = "holds if"

    at_least: float | None = None
    at_most: float | None = None
    reading: str | None = None
    statistic: str | None = None

    @property
    def grounds(self) -> str:
        return super().grounds or (BAR if self.reading != OWN else "")

    @property
    def statement(self) -> dict[str, float]:
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {side: limit for side, limit in bounds.items() if limit is not None}

    @property
    def stated(self) -> str:
        return " and ".join(
            f"{side.replace('_', ' ')} {show(limit, self.places)}"
            for side, limit in self.statement.items()
        )

    def judge(self, computed: Any, via: Any = None) -> str:
        """Work the verdict out from the computed numbers; another route to them decides nothing."""
        numbers = list(flat(computed))
        if not numbers:
            raise LedgerError(f"{self.key}: nothing was computed, so no bound can hold")
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return "holds" if all(low <= number <= high for number in numbers) else "wrong"


@dataclass(frozen=True, kw_only=True)
class Draw(Compared):
    """Figures that one random draw printed."""

    NAME: ClassVar[str] = "a draw"
    FOUND: ClassVar[tuple[str, ...]] = ("verdict", "computed", "percentile", "draws")

    value: Any
    places: int = field()  # without a default here: a draw is printed to some places
    percentile: Any = None
    draws: int | None = None

    @property
    def statement(self) -> Any:
        return self.value

    @property
    def came_out(self) -> str:
        text = show(self.computed, self.places)
        seeded = "no seed named" if self.computed is None else f"seeded run {text}"
        share = show(self.percentile, 0)
        return f"{seeded}; share of {self.draws:,} draws below the printed figure: {share} %"

    def found(self, sample: list[Any], seeded: Any = None) -> dict[str, Any]:
        """Work out where the figures fall among many draws, and the verdict from that."""
        if not sample or shape(sample[0]) != shape(self.value):
            raise LedgerError(
                f"{self.key}: each draw must have the figures of the claim, {self.value}; "
                f"got {sample[:1]}"
            )
        printed = rounded(sample, self.places)
        percentile = percentiles(self.value, printed)
        if seeded is not None and agrees(self.value, seeded, self.places):
            verdict = "holds"
        else:
            least, most = TAIL_PERCENT, 100 - TAIL_PERCENT
            up_to = percentiles(self.value, printed, operator.le)
            inside = max(flat(percentile)) <= most and min(flat(up_to)) >= least
            verdict = "draw" if inside else "wrong"
        return {
            "verdict": verdict,
            "computed": rounded(seeded, self.places),
            "percentile": rounded(percentile, 0),
            "draws": len(sample),
        }


@dataclass(frozen=True, kw_only=True)
class AboutPaper(Claim):
    """What a document says about a paper: reading the paper decides, and the verdict is typed."""

    NAME: ClassVar[str] = "about a paper"

    source: str
    value: Any = None

    @property
    def statement(self) -> Any:
        return self.value

    def told(self) -> list[tuple[str, str]]:
        return [("document", show(self.value))]

    def decided(self) -> list[tuple[str, str]]:
        return [("source", self.source)]


@dataclass(frozen=True, kw_only=True)
class Untested(Claim):
    """What neither a laptop nor a paper decides."""

    NAME: ClassVar[str] = "not checkable"


# The field by which a row is known to be of a kind. The first that a row has counts.
MARKS: dict[str, type[Claim]] = {
    "draw": Draw,
    "against": Convention,
    "source": AboutPaper,
    "at_least": Bound,
    "at_most": Bound,
    "value": Figures,
}


def read_claim(document: str, row: Mapping[str, Any]) -> Claim:
    """Make a claim of a YAML row; raise LedgerError if its fields are not those of one kind."""
    claim = f"{document}/{row.get('id', '?')}"
    mark = next((name for name in MARKS if name in row), None)
    kind = MARKS[mark] if mark else Untested
    given = {name: value for name, value in row.items() if name != "draw"}
    known = {known.name: known.default for known in fields(kind) if known.name != "document"}
    unknown = sorted(set(given) - set(known))
    missing = [name for name, default in known.items() if default is MISSING and name not in given]
    if unknown or missing:
        why = f"it has `{mark}`" if mark else f"it has none of {list(MARKS)}"
        raise LedgerError(
            f"{claim}: the row is {kind.NAME}, for {why}; unknown fields {unknown}, missing fields "
            f"{missing}. Keep to the fields of one kind: {list(known)}."
        )
    if row.get("draw", True) is not True:
        raise LedgerError(
            f"{claim}: draw is {row['draw']!r}; `true` was expected. Leave it out where nothing "
            "was drawn."
        )
    if kind is Untested and row.get("verdict") != "untested":
        raise LedgerError(
            f"{claim}: the row has none of {list(MARKS)}, so `verdict: untested` was expected; got "
            f"{row.get('verdict')!r}. Add what the document states, or that verdict."
        )
    return kind(document=document, **given)
