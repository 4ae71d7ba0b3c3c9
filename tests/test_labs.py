"""The labs as a learner gets them, and with their own solutions filled in."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from notebooks import NOTEBOOKS, ROOT, code_cells, name, read

from labkit import ledger

LABS = [path for path in NOTEBOOKS if path.name.startswith("lab_")]
FENCE = re.compile(
    r"<details><summary>Solution</summary>\n\n```python\n(.*?)```\n\n</details>", re.S
)
HINT = re.compile(r"<details><summary>Hint \d</summary>")
TASK = re.compile(r"where: \"?((?:Exercise|Example|Practice Problem) [\d.]*\d)")

each_lab = pytest.mark.parametrize("path", LABS, ids=name)


def tagged(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def solutions(notebook: nbformat.NotebookNode) -> list[str]:
    return [found for cell in notebook.cells for found in FENCE.findall(cell.source)]


def solved(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Put each solution in place of its stub; let a check that fails stop the lab."""
    notebook = nbformat.from_dict(notebook)
    for cell, solution in zip(tagged(notebook, "exercise"), solutions(notebook), strict=True):
        cell.source = solution
    for cell in tagged(notebook, "raises-exception"):
        cell.metadata.tags.remove("raises-exception")
    return notebook


def test_there_are_labs():
    assert LABS


@each_lab
def test_every_exercise_has_a_check_hints_and_a_solution(path: Path):
    cells = read(path).cells
    begun = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
    assert begun
    for i in begun:
        card, check, help_ = cells[i - 1], cells[i + 1], cells[i + 2]
        assert re.search(r"^## \d+\. .*\n\n\*(Easy|Harder|Hard), \d+ minutes\.\*", card.source)
        assert "check" in check.metadata.tags
        assert "raises-exception" in check.metadata.tags
        assert len(HINT.findall(help_.source)) >= 2
        assert len(FENCE.findall(help_.source)) == 1


@each_lab
def test_every_stub_fails_its_check_kindly(path: Path):
    checks = tagged(read(path), "check")
    errors = [output.ename for cell in checks for output in cell.outputs]
    assert errors == ["NotYet"] * len(checks)


@each_lab
def test_the_setup_cell_is_silent(path: Path):
    setup = tagged(read(path), "setup")
    assert len(setup) == 1
    assert setup[0].outputs == []
    assert setup[0] == code_cells(path)[0], "it is the first that runs"


@each_lab
def test_a_page_without_a_kernel_shows_the_laboratory(path: Path):
    shown = [output.get("data", {}) for cell in code_cells(path) for output in cell.outputs]
    assert any("application/vnd.plotly.v1+json" in data for data in shown)
    assert "The controls need Jupyter or Colab" in "".join(c.source for c in read(path).cells)


@each_lab
def test_the_solutions_pass_their_checks(path: Path):
    notebook = solved(read(path))
    NotebookClient(
        notebook,
        timeout=120,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    for cell in tagged(notebook, "check"):
        assert [output.output_type for output in cell.outputs] == ["stream"]
        assert re.fullmatch(r"\w+: right\. .*\n", cell.outputs[0].text)


def test_the_labs_page_lists_every_lab():
    page = (ROOT / "labs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[\d+\. .*?\]\((lab_\w+\.ipynb)\)", page, re.M)
    assert listed == [path.name for path in LABS]


def test_every_task_that_the_ledger_names_is_done_somewhere():
    page = (ROOT / "labs" / "index.md").read_text(encoding="utf-8")
    tasks = {
        found
        for path in sorted(ledger.DOCUMENTS.glob("*.yml"))
        for found in TASK.findall(path.read_text(encoding="utf-8"))
    }
    done = re.findall(
        r"^\| ((?:Exercise|Example|Practice Problem) [\d.]*\d), .* \|.*\]\(", page, re.M
    )
    assert sorted(done) == sorted(tasks)
