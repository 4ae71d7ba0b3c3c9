"""Ways to make the book lie: changes of one place in a notebook or in the ledger."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import yaml

from labkit.ledger import DOCUMENTS, MIME, VERDICTS, Verdict, read_claim
from press import ROOT
from press.notebooks import find

LEDGER = DOCUMENTS.relative_to(ROOT)
FORM = ("tests/test_claims.py", "tests/test_notebooks.py")
SEAL = ("tests/test_seal.py",)
NBVAL = ("--nbval", "--nbval-cell-timeout", "300")


class Project:
    """The notebooks and the ledger of the project, or of a copy, as data."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = [path.relative_to(root).as_posix() for path in find(root)]
        self.notebooks = {name: nbformat.read(root / name, as_version=4) for name in names}
        self.ledgers = {path.stem: load(path) for path in sorted((root / LEDGER).glob("*.yml"))}

    def cells(self, notebook: str) -> list[Any]:
        return [cell for cell in self.notebooks[notebook].cells if cell.cell_type == "code"]

    def rows(self, document: str) -> list[dict[str, Any]]:
        return self.ledgers[document]["claims"]

    def at(self, document: str, claim: str) -> int:
        return [row["id"] for row in self.rows(document)].index(claim)

    def write(self) -> None:
        for name, notebook in self.notebooks.items():
            for cell in self.cells(name):
                cell.outputs = [output for output in cell.outputs if output is not None]
            nbformat.write(notebook, self.root / name)
        for name in self.ledgers:
            self.write_ledger(name, self.root / LEDGER)

    def write_ledger(self, document: str, folder: Path) -> None:
        text = yaml.safe_dump(self.ledgers[document], sort_keys=False)
        (folder / f"{document}.yml").write_text(text, encoding="utf-8")


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Lie:
    """One change, the names by which a check must report it, and the run that holds the check."""

    kind: str
    owners: frozenset[str]
    run: tuple[str, ...]
    tell: Callable[[Project, random.Random], None]
    near: frozenset[str] = frozenset()  # who may be reported because of it, and so is left alone

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(sorted(self.owners))} in {self.run[-1]}"


def altered(value: Any, chance: random.Random) -> Any:
    """Change one digit of a text, of a number, or of anything made of them."""
    text = json.dumps(value, ensure_ascii=False)
    while True:
        at = chance.choice([found.start() for found in re.finditer(r"\d", text)])
        try:
            other = json.loads(text[:at] + chance.choice("0123456789") + text[at + 1 :])
        except ValueError:  # a number with a leading zero
            continue
        if other != value:
            return other


def has_digit(value: Any) -> bool:
    return re.search(r"\d", json.dumps(value, ensure_ascii=False)) is not None


# Lies that the page tells: an execution finds them


def told_by_outputs(project: Project, notebook: str) -> Iterator[Lie]:
    """List what can be changed in a notebook's outputs, and in the ledger alike."""
    for i, cell in enumerate(project.cells(notebook)):
        executed = partial(Lie, owners=frozenset({f"Cell {i}"}), run=(*NBVAL, notebook))
        for j, output in enumerate(cell.outputs):
            place = {"notebook": notebook, "i": i, "j": j}
            lie = executed
            if MIME in output.get("data", {}):
                document, claim = (output.data[MIME][name] for name in ("document", "id"))
                row = project.rows(document)[project.at(document, claim)]
                for name in computed(row):
                    tell = partial(change_both, document=document, claim=claim, name=name, **place)
                    yield executed(f"{name}, in ledger and page", tell=tell)
                # The page alone is contradicted by the ledger: no execution is needed.
                lie = partial(Lie, owners=frozenset({f"{document}/{claim}"}), run=FORM)
            yield lie("an output deleted", tell=partial(delete_output, **place))
            for name, held in shown(output).items():
                if has_digit(held[name]):
                    yield lie(
                        "a digit of an output", tell=partial(change_output, name=name, **place)
                    )


def shown(output: Any) -> dict[str, Any]:
    """Find what a reader sees of an output: under each name, what holds it."""
    held = {name: output for name in ("text", "evalue") if name in output}
    return held | {mime: output.data for mime in output.get("data", {})}


def computed(row: dict[str, Any]) -> list[str]:
    """Name the fields of a claim that the numbers decide.

    The figure of a claim that does not hold is not among them: another figure is as wrong.
    """
    held = row["verdict"] == "holds" and has_digit(row.get("value"))
    found = [name for name in ("computed", "percentile") if has_digit(row.get(name))]
    return ["verdict", *found, *(["value"] if held else [])]


def delete_output(project: Project, chance: random.Random, notebook: str, i: int, j: int) -> None:
    project.cells(notebook)[i].outputs[j] = None  # its neighbours keep their places


def change_output(
    project: Project, chance: random.Random, notebook: str, i: int, j: int, name: str
) -> None:
    held = shown(project.cells(notebook)[i].outputs[j])[name]
    held[name] = altered(held[name], chance)


def change_both(
    project: Project,
    chance: random.Random,
    notebook: str,
    i: int,
    j: int,
    document: str,
    claim: str,
    name: str,
) -> None:
    change_row(project, chance, document, claim, name)
    row = project.rows(document)[project.at(document, claim)]
    told = Verdict(read_claim(document, row))._repr_mimebundle_()
    project.cells(notebook)[i].outputs[j].data.update(told)


# Lies that ledger and page contradict, or that leave a form broken: no execution is needed


def told_by_form(project: Project) -> Iterator[Lie]:
    """List what can be changed in the ledger alone, and in a notebook beside its outputs."""
    lie = partial(Lie, run=FORM)
    for document in project.ledgers:
        yield from told_by_ledger(project, document)
    for notebook in project.notebooks:
        owners = frozenset({notebook.removesuffix(".ipynb")})
        for i, cell in enumerate(project.cells(notebook)):
            tell = partial(blank_count, notebook=notebook, i=i)
            yield lie("an execution count blanked", owners, tell=tell)
            for j, output in enumerate(cell.outputs):
                if has_digit(output.get("traceback")):
                    tell = partial(change_traceback, notebook=notebook, i=i, j=j)
                    yield lie("a digit of a traceback", owners, tell=tell)


def told_by_ledger(project: Project, document: str) -> Iterator[Lie]:
    """List what can be changed in a document's ledger."""
    rows = project.rows(document)
    for row, after in zip(rows, [*rows[1:], rows[0]], strict=True):
        place = {"document": document, "claim": row["id"]}
        pair = {**place, "other": after["id"]}
        key, other = f"{document}/{row['id']}", f"{document}/{after['id']}"
        # What no notebook compares is kept by the seal of its document.
        owner, run = (key, FORM) if "notebook" in row else (document, SEAL)
        near = frozenset(other for each in (row, after) for other in each.get("against", ()))
        lie = partial(Lie, owners=frozenset({owner}), run=run, near=near)
        yield lie("a claim removed", tell=partial(remove_row, **place))
        yield lie("a verdict in the ledger", tell=partial(change_row, name="verdict", **place))
        sealed = partial(Lie, owners=frozenset({document}), run=SEAL)
        for name in row:
            if name not in ("id", "verdict") and has_digit(row[name]):
                kind = sealed if name in ("quantity", "reading") else lie
                yield kind(f"a digit of `{name}`", tell=partial(change_row, name=name, **place))
        moved = partial(Lie, "two claims in another order", frozenset({document}), SEAL)
        yield moved(partial(swap_places, **pair))
        if "notebook" in row and "notebook" in after:
            names = frozenset({key, other})
            yield Lie("two claims' names swapped", names, FORM, partial(swap_ids, **pair), near)


def change_row(
    project: Project, chance: random.Random, document: str, claim: str, name: str
) -> None:
    row = project.rows(document)[project.at(document, claim)]
    if name == "verdict":
        row[name] = chance.choice([verdict for verdict in VERDICTS if verdict != row[name]])
    else:
        row[name] = altered(row[name], chance)


def remove_row(project: Project, chance: random.Random, document: str, claim: str) -> None:
    del project.rows(document)[project.at(document, claim)]


def swap_ids(
    project: Project, chance: random.Random, document: str, claim: str, other: str
) -> None:
    rows = project.rows(document)
    one, two = project.at(document, claim), project.at(document, other)
    rows[one]["id"], rows[two]["id"] = other, claim


def swap_places(
    project: Project, chance: random.Random, document: str, claim: str, other: str
) -> None:
    rows = project.rows(document)
    one, two = project.at(document, claim), project.at(document, other)
    rows[one], rows[two] = rows[two], rows[one]


def blank_count(project: Project, chance: random.Random, notebook: str, i: int) -> None:
    project.cells(notebook)[i].execution_count = None


def change_traceback(
    project: Project, chance: random.Random, notebook: str, i: int, j: int
) -> None:
    output = project.cells(notebook)[i].outputs[j]
    output.traceback = altered(output.traceback, chance)
