"""Reports of mistakes: at each page, verdict and erratum of a book that has an address."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from sphinx.application import Sphinx

from labkit import ledger
from labkit.ledger import Verdict
from press.extension.claims import LISTED
from press.project import Address

GITHUB = "https://github.com/example/attention"
ELSEWHERE = "https://git.example.org/attention"
PARTS = ("errata", "claims", "report")
CLAIM = ledger.find_claim("section-2.3/by-hand/weights")
NOT_AS_STATED = [claim for claim in ledger.all_claims() if claim.verdict in LISTED]


def built(folder: Path, repository: str | None) -> dict[str, list[str]]:
    """Build a chapter with a verdict and the errata, and list their reports by page."""
    source = folder / "source"
    for name in ("book", "chapters"):
        (source / name).mkdir(parents=True)
    (source / "index.md").write_text("# Home\n\n```{toctree}\nchapters/one\nbook/errata\n```\n")
    (source / "book" / "errata.md").write_text("# Errata\n\n```{errata}\n```\n")
    shown = nbformat.v4.new_output("display_data", data=Verdict(CLAIM)._repr_mimebundle_())
    cells = [nbformat.v4.new_markdown_cell("# One & two"), nbformat.v4.new_code_cell("weights")]
    cells[1].outputs = [shown]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source / "chapters" / "one.ipynb")
    settings = {
        "extensions": ["myst_nb", *(f"press.extension.{name}" for name in PARTS)],
        "myst_enable_extensions": ["colon_fence", "deflist", "dollarmath"],
        "nb_execution_mode": "off",
        "lives_at": Address(repository, "1.2"),
    }
    out = folder / "out"
    Sphinx(source, None, out, folder / "trees", "html", settings, status=None).build()
    return {
        page: [
            unescape(target)
            for target in re.findall(
                r'<a class="report" href="([^"]+)"',
                (out / f"{page}.html").read_text(encoding="utf-8"),
            )
        ]
        for page in ("chapters/one", "book/errata")
    }


def asked(link: str) -> tuple[str, str]:
    """Give the title and the text of the issue that a link opens."""
    parts = urlsplit(link)
    assert link.startswith(f"{GITHUB}/issues/new?")
    filled = parse_qs(parts.query)
    return filled["title"][0], filled["body"][0]


def test_with_an_address_each_page_and_claim_has_a_report(tmp_path: Path):
    reports = built(tmp_path, GITHUB)
    of_claim, of_page = map(asked, reports["chapters/one"])
    assert of_claim[0] == f"Mistake: {CLAIM.key}"
    assert CLAIM.where in of_claim[1]
    assert of_page[0] == "Mistake: One & two"
    assert "Page: chapters/one\nVersion: 1.2" in of_page[1]
    titles = [asked(report)[0] for report in reports["book/errata"]]
    assert titles[-1] == "Mistake: Errata"
    assert sorted(titles[:-1]) == sorted(f"Mistake: {claim.key}" for claim in NOT_AS_STATED)


@pytest.mark.parametrize(("repository", "targets"), [(None, set()), (ELSEWHERE, {ELSEWHERE})])
def test_elsewhere_it_leads_to_the_repository_and_without_one_there_is_none(
    repository: str | None, targets: set[str], tmp_path: Path
):
    reports = built(tmp_path, repository)
    assert {report for links in reports.values() for report in links} == targets
