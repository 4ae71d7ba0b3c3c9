"""The table of readings, made when the book is built: at which bar a word is read, and why."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from labkit import ledger
from labkit.ledger.consistency import READINGS, read_readings


class Readings(SphinxDirective):
    """List the readings: words, bar, statistic, what it counts, why it is fair, how many rows."""

    def run(self) -> list[nodes.Node]:
        for path in (READINGS, *ledger.DOCUMENTS.glob("*.yml")):
            self.env.note_dependency(str(path))
        bounds = [claim for claim in ledger.all_claims() if isinstance(claim, ledger.Bound)]
        read = [bound.reading for bound in bounds]
        return self.parse_text_to_nodes(table(read_readings(), read))


def table(groups: list[dict[str, Any]], readings: list[str | None]) -> str:
    """Write the groups of words that are read alike, and count the claims that each is for."""
    heads = ["Reading", "Words", "Bar", "Statistic", "Of", "Why", "Rows"]
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|---|--:|"]
    for group in groups:
        words, rows = group["words"], sum(reading in group["words"] for reading in readings)
        bars = " or ".join(map(bar_text, group["bars"])) or "as stated"
        named = [group[name] for name in ("statistic", "of", "why")]
        cells = [group["name"], ", ".join(words), bars, *named, str(rows)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def bar_text(bar: dict[str, float]) -> str:
    """Write a bar, such as {"at_least": 0.95, "at_most": 1.05}, in words."""
    sides = [f"{side.replace('_', ' ')} {Decimal(str(limit)):f}" for side, limit in bar.items()]
    return " and ".join(sides)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("readings", Readings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
