"""A verdict as a cell shows it: text for Jupyter, and the claim's name for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.ledger.claims import Claim

__all__ = ["IN_ONE_READING", "MIME", "OF_THE_COPY", "RECORD_MIME", "VERDICTS", "Record", "Verdict"]

IN_ONE_READING = "holds in one reading"
OF_THE_COPY = "fault of the copy"
VERDICTS = (
    "holds",
    IN_ONE_READING,
    "rounding",
    "draw",
    "wrong",
    OF_THE_COPY,
    "conflict",
    "untested",
)
MIME = "application/vnd.labkit.verdict+json"
RECORD_MIME = "application/vnd.labkit.record+json"


@dataclass(frozen=True)
class Verdict:
    """A claim beside what came out, as text and as data."""

    MIME: ClassVar[str] = MIME

    claim: Claim

    @property
    def anchor(self) -> str:
        """Name the HTML element of this verdict."""
        return self.claim.anchor

    @property
    def data(self) -> dict[str, Any]:
        """Name the claim, and what was found."""
        names = ("document", "id", *self.claim.FOUND)
        found = {name: getattr(self.claim, name) for name in names}
        return {
            name: value for name, value in found.items() if name != "control" or value is not None
        }

    def rows(self) -> list[tuple[str, str]]:
        """List what there is to tell, as pairs of label and text."""
        claim = self.claim
        told = [
            ("claim", claim.key),
            ("where", claim.where),
            ("says", claim.says),
            *claim.told(),
            ("but", claim.fails or ""),
            ("why", claim.why or ""),
        ]
        return [(label, " ".join(text.split())) for label, text in told if text]

    def __repr__(self) -> str:
        claim = self.claim
        lines = [f"  {label:<9} {text}" for label, text in self.rows()]
        return "\n".join([f"{claim.verdict}: {claim.says}", *lines])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), self.MIME: self.data}


@dataclass(frozen=True, repr=False)
class Record(Verdict):
    """A claim as the ledger has it, shown where it is not compared."""

    MIME: ClassVar[str] = RECORD_MIME

    @property
    def anchor(self) -> str:
        """Name the HTML element of this record: the claim's own name is where it is compared."""
        return f"shown-{self.claim.anchor}"

    @property
    def data(self) -> dict[str, Any]:
        """Name the claim; what was found is told where it is compared."""
        return {"document": self.claim.document, "id": self.claim.id}

    def rows(self) -> list[tuple[str, str]]:
        """List what there is to tell, where it is compared or what decides it included."""
        told = [(label, " ".join(text.split())) for label, text in self.claim.decided()]
        return super().rows() + told
