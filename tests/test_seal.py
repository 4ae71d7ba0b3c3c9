"""What no notebook computes in the ledger is sealed: ``python -m tests.test_seal`` seals it anew.

The order of the claims, by what quantity and word each is judged, and the rows that are typed from
reading, have nothing that would contradict a slip. Their digest does: whoever changes them on
purpose seals them again, so that the change stands in two places.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from labkit.ledger import DOCUMENTS, document_keys, rows

TYPED = ("id", "quantity", "reading")  # of a row that a notebook compares
SEALS = Path(__file__).parent / "seals.yml"


def seal(document: str, folder: Path = DOCUMENTS) -> str:
    """Digest a document's claims in order: a typed row whole, of a computed one what is typed."""
    data = rows.read(folder / f"{document}.yml")
    kept = [
        {name: row.get(name) for name in TYPED} if "notebook" in row else row
        for row in data["claims"]
    ]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def seals() -> dict[str, str]:
    return yaml.safe_load(SEALS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", document_keys())
def test_seal_is_whole(document: str):
    assert seal(document) == seals().get(document), (
        "claims were added, removed or moved, or one that no notebook computes was changed: if all "
        "of it is meant, run `make seal`"
    )


if __name__ == "__main__":
    SEALS.write_text(yaml.safe_dump({key: seal(key) for key in document_keys()}), encoding="utf-8")
