"""Run a part of `make test`, unless it has passed with all as it is: ``press.stamps PART COMMAND``.

What has passed leaves a stamp, a digest of all that it depends on; a failure leaves none. A book
that is not there is built all the same. Notebooks named in the command are run and stamped one by
one. With FRESH set all is run; with CI set there are no stamps at all.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from press import BUILD, HTML, ROOT
from press.git import git

SITE = HTML.relative_to(ROOT)
STAMPS = BUILD / "stamps"
REPORT = BUILD / "reports" / "notebooks.xml"
SETTINGS = (
    "ALL_PAGES",
    "ATEN_CPU_CAPABILITY",
    "BOOK_ADDRESS",
    "LIVE_SEED",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
)
PYTHON = ("labkit", "press", "pyproject.toml", "requirements.txt")
# The files that each part reads; all others read every file of the project.
READ = {
    "book": (".", ":(exclude)tests"),
    "notebooks": PYTHON,
    "pages": (*PYTHON, "labs", "tests/conftest.py", "tests/browser"),
    "colab": (*PYTHON, "LICENSE", "labs", "tests/colab.py"),
}


def project(root: Path, places: Iterable[str]) -> list[Path]:
    """List the project's files in some places, as git sees them, those not yet committed too."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places)
    return [root / name for name in sorted(set(listed.split("\0"))) if (root / name).is_file()]


def processor() -> str:
    """Name the processor's model: another one may add up in another order."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    return next((line for line in lines if line.startswith("model name")), platform.processor())


def digest(root: Path, files: Iterable[Path], command: list[str]) -> str:
    """Digest the files' names and contents, the command, the machine and its settings."""
    machine = [sys.version, platform.machine(), processor()]
    settings = [f"{name}={os.environ.get(name)}" for name in SETTINGS]
    found = hashlib.sha256(repr([machine, settings, command]).encode())
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(root).as_posix()}: {content}\n".encode())
    return found.hexdigest()


def expected(
    part: str, command: list[str], notebooks: list[str], root: Path = ROOT
) -> dict[str, str]:
    """Digest what a part depends on, or each of its notebooks."""
    files = project(root, READ.get(part, ()))
    if part == "pages":
        # A wheel differs from build to build; what it is made of is digested already.
        built = (path for path in (root / SITE).rglob("*") if path.suffix != ".whl")
        files += sorted(path for path in built if path.is_file())
    if not notebooks:
        return {part: digest(root, files, command)}
    shared = [word for word in command if word not in notebooks]
    return {name: digest(root, [root / name, *files], shared) for name in notebooks}


def passing() -> set[str]:
    """Read in pytest's report which notebooks have passed with all their cells."""
    passed: dict[str, bool] = {}
    for case in ElementTree.parse(REPORT).iter("testcase") if REPORT.is_file() else ():
        name = case.get("classname", "").replace(".", "/", 1)
        passed[name] = passed.get(name, True) and case.find("failure") is case.find("error") is None
    return {name for name, whole in passed.items() if whole}


def run(part: str, command: list[str]) -> int:
    """Run what has no stamp, stamp what passes, and return the command's exit code."""
    notebooks = [word for word in command if word.endswith(".ipynb")]
    digests = expected(part, command, notebooks)
    missing = part == "book" and not (ROOT / SITE / "index.html").is_file()
    again = os.environ.get("FRESH") or missing
    due = [name for name, known in digests.items() if again or read(name) != known]
    if skipped := len(digests) - len(due):
        what = f"{skipped} of {len(digests)} notebooks" if notebooks else part
        print(f"Skipped, since it has passed and nothing has changed: {what}.", end=" ")
        print(f"To run it all the same: make {part} FRESH=1", flush=True)
    if not due:
        return 0
    for name in due:
        (STAMPS / name).unlink(missing_ok=True)
    if notebooks:
        REPORT.unlink(missing_ok=True)
    code = subprocess.call([word for word in command if word not in notebooks or word in due])
    for name in due if code == 0 else passing() & set(due):
        stamp = STAMPS / name
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digests[name], encoding="utf-8")
    return code


def read(name: str) -> str | None:
    """Read the stamp of a part or of a notebook, if there is one."""
    stamp = STAMPS / name
    return stamp.read_text(encoding="utf-8") if stamp.is_file() else None


def main() -> int:
    part, *command = sys.argv[1:]
    return subprocess.call(command) if os.environ.get("CI") else run(part, command)


if __name__ == "__main__":
    sys.exit(main())
