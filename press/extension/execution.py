"""How long each notebook took, and whether it still gives what its page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press import BUILD

REPORT = BUILD / "reports" / "notebooks.xml"  # `make notebooks` leaves it there


@dataclass
class NotebookRun:
    """What one notebook's execution came to."""

    cells: int = 0
    differing: int = 0
    seconds: float = 0.0


class Execution(SphinxDirective):
    """List the notebooks of the book with what the last `make notebooks` found."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(REPORT))
        names = sorted(
            name for name in self.env.found_docs if self.env.doc2path(name).endswith(".ipynb")
        )
        return self.parse_text_to_nodes(table(names, read(REPORT)))


def read(report: Path) -> dict[str, NotebookRun]:
    """Add up a JUnit report by notebook; nothing if none was left."""
    runs: dict[str, NotebookRun] = {}
    if not report.is_file():
        return runs
    for case in ElementTree.parse(report).iter("testcase"):
        name = re.sub(r"\.ipynb$", "", case.get("classname", "")).replace(".", "/")
        run = runs.setdefault(name, NotebookRun())
        run.cells += 1
        run.differing += any(part.tag in ("failure", "error") for part in case)
        run.seconds += float(case.get("time", 0))
    return runs


def table(names: list[str], runs: dict[str, NotebookRun]) -> str:
    """Write the table, a row a notebook."""
    lines = [
        "| notebook | cells executed | compared with the page | seconds |",
        "|---|--:|---|--:|",
    ]
    for name in names:
        if run := runs.get(name):
            agrees = f"cells that differ: {run.differing}" if run.differing else "agrees"
            cells = [str(run.cells), agrees, f"{run.seconds:.1f}"]
        else:
            cells = ["", "not measured in this build", ""]
        lines.append(f"| [{name}](/{name}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("execution", Execution)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
