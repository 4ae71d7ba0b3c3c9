"""Execute notebooks fresh and write them in canonical form: ``press.execute NOTEBOOK...``.

A notebook is written only if every cell ran. Claims that have no verdict in the ledger yet get
the one that their cell worked out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tqdm import tqdm

from labkit.ledger import document, rows
from labkit.ledger.consistency import (
    both_hold,
    hidden_failures,
    lone_bars,
    other_bars,
    other_statistics,
    read_readings,
    uncontrolled,
    unequal,
)
from press import ROOT
from press.notebooks import outputs, verdicts

CELL_SECONDS = 300
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NAMES = ("document", "id")  # of a verdict's data; all else is recorded
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> nbformat.NotebookNode:
    """Run every cell in a fresh kernel, in the notebook's own folder."""
    notebook = nbformat.read(path, as_version=4)
    bar = tqdm(total=len(notebook.cells), desc=path.stem, unit="cell", leave=False)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        # The kernel talks to this process on this machine only; its warning about that is noise.
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_complete=lambda cell, cell_index: bar.update(cell_index + 1 - bar.n),
    )
    with bar:
        return client.execute()


def canonical(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Keep what a reader and a comparison need: sources, tags, ids, outputs, counts."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
    for output in outputs(notebook):
        if output.output_type == "error":
            # The frames name paths of this machine; the last line is what a reader needs.
            output.traceback = [f"{output.ename}: {output.evalue}"]
        # A widget's model is gone with its kernel, and its name is random.
        output.get("data", {}).pop(WIDGET_VIEW, None)
    return notebook


def record(found: list[dict]) -> list[str]:
    """Write verdicts into the ledger for claims that have none; return them with their keys."""
    new: list[str] = []
    for key in sorted({verdict["document"] for verdict in found}):
        of_document = {verdict["id"]: verdict for verdict in found if verdict["document"] == key}
        fields = {
            claim: {name: value for name, value in verdict.items() if name not in NAMES}
            for claim, verdict in of_document.items()
        }
        for claim in rows.record(document.DOCUMENTS / f"{key}.yml", fields):
            new.append(f"{key}/{claim}: {of_document[claim]['verdict']}")
    return new


def contradictions() -> list[str]:
    """Read the ledger as it is now, and say which of its rows break the one standard."""
    document.open_document.cache_clear()
    claims = document.all_claims()
    readings = read_readings()
    return [
        *both_hold(claims),
        *unequal(claims),
        *other_bars(claims, readings),
        *other_statistics(claims, readings),
        *lone_bars(claims, readings),
        *uncontrolled(claims),
        *hidden_failures(claims),
    ]


def run(path: Path) -> None:
    """Execute one notebook and write it in canonical form."""
    notebook = canonical(execute(path))
    nbformat.write(notebook, path)
    new = record(verdicts(notebook))
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    print(f"{path.relative_to(ROOT)}: {cells} code cells executed", *new, sep="\n  recorded ")
    if new:
        # The outputs were written without what the ledger has just learned.
        print("  new verdicts recorded: write `why` where it does not hold, then run again")
        for contradiction in contradictions():
            print(f"  contradiction: {contradiction}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="+", type=Path)
    failed = 0
    for path in parser.parse_args().notebooks:
        try:
            run(path.resolve())
        except CellExecutionError as error:
            failed += 1
            print(f"{path}: not written, a cell failed:\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
