"""The ledger: what a document says beside what comes out here.

A claim is a row of ``ledger/documents/<document>.yml``. A notebook computes a value and hands it
to :meth:`Document.compare` or :meth:`Document.draw`. The verdict is worked out from the numbers;
if it, or the computed value, differs from the row, the cell raises. An audit tells of what is
compared elsewhere with :meth:`Document.show`.

The rows keep six rules:

1. A contradiction is decided where it can be: each side is judged by itself.
2. Charity: a sentence is wrong only if every fair reading of it, in its context, fails.
3. One standard: the same quantity, read alike, has one verdict, and a word has one bar
   (``labkit/ledger/readings.yml``).
4. A reason is true: it rests on what was measured, or on what a source says where it is cited.
5. A test can fail; an outcome that follows from its own bound is a proof, and says so.
6. Untested comes last, where neither a laptop nor the cited paper decides.
"""

from labkit.ledger.claims import (
    AboutPaper,
    Bound,
    Claim,
    Compared,
    Convention,
    Draw,
    Figures,
    Untested,
)
from labkit.ledger.claims import read_claim as read_claim
from labkit.ledger.document import DOCUMENTS as DOCUMENTS
from labkit.ledger.document import (
    Document,
    all_claims,
    document_keys,
    find_claim,
    judge,
    open_document,
)
from labkit.ledger.rows import LedgerError
from labkit.ledger.verdicts import IN_ONE_READING as IN_ONE_READING
from labkit.ledger.verdicts import MIME as MIME
from labkit.ledger.verdicts import OF_THE_COPY as OF_THE_COPY
from labkit.ledger.verdicts import RECORD_MIME as RECORD_MIME
from labkit.ledger.verdicts import VERDICTS as VERDICTS
from labkit.ledger.verdicts import Record, Verdict

__all__ = [
    "AboutPaper",
    "Bound",
    "Claim",
    "Compared",
    "Convention",
    "Document",
    "Draw",
    "Figures",
    "LedgerError",
    "Record",
    "Untested",
    "Verdict",
    "all_claims",
    "document_keys",
    "find_claim",
    "judge",
    "open_document",
]
