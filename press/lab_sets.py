"""Write the labs for a class, and read what came back: ``press.lab_sets write|marks FOLDER``.

``write`` makes a set for students, which has no solutions, a set for instructors, which has them in
place of the stubs, and labkit's wheel. ``marks`` lists which checks passed in notebooks handed in.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from urllib.parse import urljoin

import nbformat
from nbformat import NotebookNode

from press import wheel
from press.labs import solved, unsolved
from press.notebooks import LABS, tagged
from press.project import pages_address

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)]+)\)")
RIGHT = re.compile(r"^\w+: right\. ", re.MULTILINE)
CHECKPOINTS = ".ipynb_checkpoints"  # Jupyter's own copies


def for_class(notebook: NotebookNode, name: str) -> NotebookNode:
    """Clear the outputs, and let links lead to the published book, or nowhere if there is none."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.source = LINK.sub(lambda found: published(found[1], found[2], name), cell.source)
    return notebook


def published(words: str, target: str, name: str) -> str:
    """Write a link to a page of the book as one that works outside of it."""
    if not pages_address():
        return words
    page = re.sub(r"\.(ipynb|md)(?=#|$)", ".html", target)
    return f"[{words}]({urljoin(urljoin(pages_address(), f'labs/{name}'), page)})"


def write(folder: Path) -> None:
    """Write both sets and the wheel."""
    for path in LABS:
        lab = nbformat.read(path, as_version=4)
        for kind, made in (("student", unsolved(lab)), ("instructor", solved(lab))):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            nbformat.write(for_class(made, path.name), folder / kind / path.name)
    print(f"{len(LABS)} labs in {folder / 'student'} and {folder / 'instructor'}")
    print(f"labkit in {wheel.build(folder)}")


def marks(folder: Path) -> None:
    """List, for each notebook handed in, which of its checks passed."""
    handed = [path for path in sorted(folder.rglob("*.ipynb")) if CHECKPOINTS not in path.parts]
    if not handed:
        raise SystemExit(
            f"{folder} has no notebooks. Say where they are: make marks IN=../handed-in"
        )
    for path in handed:
        try:
            handed_in = nbformat.read(path, as_version=4)
        except ValueError:
            told = "not a notebook"
        else:
            found = [passed(cell) for cell in tagged(handed_in, "check")]
            each = " ".join("passed" if one else "-" for one in found)
            told = f"{sum(found)} of {len(found)}: {each}"
        print(f"{path.relative_to(folder)}: {told}")


def passed(check: NotebookNode) -> bool:
    """Say whether a check's stored output accepts the answer."""
    return any(RIGHT.search(output.get("text", "")) for output in check.outputs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("write", "marks"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    {"write": write, "marks": marks}[options.what](options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
