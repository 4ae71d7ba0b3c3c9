"""Execute every notebook as other machines would, compare each output, and write the table.

It tries the instruction sets of this processor, one and two threads, and the last bits moved by
chance; ``--oldest`` adds the oldest PyTorch that labkit admits, which is fetched first.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import compress
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from tqdm import tqdm

from press import ROOT
from press.notebooks import NOTEBOOKS
from press.project import settings as project_settings

TABLE = ROOT / "book" / "machines-table.md"
SETS = ("default", "avx2", "avx512")  # of instructions, from the fewest to the most
# Seeds of moved bits, and whether they move anew at each call.
SEEDS = {1: False, 2: False, 3: True}
VERSIONS = ("torch", "numpy", "plotly", "ipykernel", "nbval")
NBVAL = "--nbval --nbval-cell-timeout 600 -n 2 --dist loadfile -p no:cacheprovider".split()
SECONDS = 3600
# Cells that may put out something else, by a line of their source, and why.
WATCHED = {
    "def naive(": "PyTorch leaves its fast path where its functions are watched",
}
OLDER = {
    "scores.half().masked_fill": "PyTorch's own words for an error have changed",
    "torchrun = ": "its engine also prints which ranks are connected",
}
STARTUP = """
from press import jitter
jitter.install({seed}, anew={anew})
del jitter
"""


@dataclass(frozen=True)
class Machine:
    """A way to execute the notebooks."""

    name: str
    python: str = sys.executable
    settings: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    anew: bool = False
    may_differ: dict[str, str] = field(default_factory=dict)


def machines(oldest: bool) -> list[Machine]:
    """List the machines to be."""
    by_instructions = [
        Machine(f"{instructions}, threads: {threads}", settings=environment(instructions, threads))
        for instructions in SETS
        for threads in (1, 2)
    ]
    by_bits = [
        Machine(
            f"last bits moved{', anew at each call' if anew else ''}, seed {seed}",
            sys.executable,
            environment("default", 1),
            seed,
            anew,
            WATCHED,
        )
        for seed, anew in SEEDS.items()
    ]
    return [*by_instructions, *by_bits, *([oldest_torch()] if oldest else [])]


def environment(instructions: str, threads: int) -> dict[str, str]:
    return {"ATEN_CPU_CAPABILITY": instructions, "OMP_NUM_THREADS": str(threads)}


def oldest_torch() -> Machine:
    """Make an environment like this one, but with the oldest PyTorch that labkit admits."""
    (bound,) = (name for name in project_settings()["dependencies"] if name.startswith("torch>="))
    oldest = bound.replace(">=", "==")
    folder = ROOT / ".venv-oldest"
    if not folder.is_dir():
        print(f"Making {folder.name} with {oldest}: some gigabytes.", flush=True)
        venv.create(folder, with_pip=True)
    python = shutil.which("python", path=f"{folder}/bin{os.pathsep}{folder}/Scripts")
    if python is None:
        raise SystemExit(f"{folder.name} has no Python. Remove it, and it is made again.")
    subprocess.run([python, "-m", "pip", "install", "--quiet", oldest, "numpy"], check=True)
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    process = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    # The rest comes from here, behind its own.
    paths = Path(process.stdout.strip(), "rest.pth")
    paths.write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return Machine(oldest.replace("==", " "), python, may_differ=OLDER)


def best() -> str:
    """Name the most instructions that PyTorch finds on this processor."""
    import torch

    return torch.backends.cpu.get_cpu_capability().lower()


def fits_processor(machine: Machine) -> bool:
    """Say whether this processor can be that machine. PyTorch dies of instructions it lacks."""
    instructions = machine.settings.get("ATEN_CPU_CAPABILITY", "default")
    return SETS.index(instructions) <= (SETS.index(best()) if best() in SETS else 0)


def execute(machine: Machine) -> tuple[int, list[tuple[str, str]]]:
    """Execute the notebooks; count the cells, and name those that put out something else."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            **machine.settings,
            "PYTHONPATH": str(ROOT),
        }
        if machine.seed is not None:
            startup = Path(folder, "profile_default", "startup")
            startup.mkdir(parents=True)
            lines = STARTUP.format(seed=machine.seed, anew=machine.anew)
            (startup / "jitter.py").write_text(lines, encoding="utf-8")
            settings["IPYTHONDIR"] = folder
        report = Path(folder, "report.xml")
        subprocess.run(
            [
                machine.python,
                "-m",
                "pytest",
                *NBVAL,
                "--junitxml",
                str(report),
                *map(str, NOTEBOOKS),
            ],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    if not cases:
        raise SystemExit(f"{machine.name}: no cell was executed. Try: make notebooks")
    cells = [(case.attrib["classname"].replace(".", "/", 1), case.attrib["name"]) for case in cases]
    failed = [case.find("failure") is not None or case.find("error") is not None for case in cases]
    return len(cells), list(compress(cells, failed))


def source(notebook: str, cell: str) -> str:
    """Read a cell by nbval's name for it."""
    cells = nbformat.read(ROOT / notebook, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"][int(cell.split()[1])].source


def row(machine: Machine) -> tuple[str, int]:
    """Try a machine; write its row of the table, and count the cells that should not have moved."""
    if not fits_processor(machine):
        return f"| {machine.name} | {today()} | | not on this processor |", 0
    cells, moved = execute(machine)
    differing, unexpected = [], 0
    for notebook, cell in moved:
        code = source(notebook, cell)
        reasons = [why for line, why in machine.may_differ.items() if line in code]
        unexpected += not reasons
        differing.append(f"{notebook}, {cell}" + "".join(f" ({why})" for why in reasons))
    return (
        f"| {machine.name} | {today()} | {cells} | {'; '.join(differing) or 'none'} |",
        unexpected,
    )


def today() -> str:
    return datetime.date.today().isoformat()


def kept() -> dict[str, str]:
    """Read the rows of earlier runs, by the machine's name."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {line.split("|")[1].strip(): line for line in lines if re.match(r"\| .*\| \d{4}-", line)}


def table(rows: Iterable[str]) -> str:
    """Write the page's table, with what the last run was made on."""
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    system = f"{platform.system()} on {platform.machine()}"
    return "\n".join(
        [
            f"Last tried on {today()}, {system}, a processor with {best().upper()}; "
            f"Python {platform.python_version()}, {versions}.",
            "",
            "| machine | tried on | cells compared | cells that put out something else |",
            "|---|---|--:|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oldest", action="store_true", help="also try the oldest PyTorch")
    parser.add_argument(
        "--only", default="", help="try machines of this name, keep the others' rows"
    )
    arguments = parser.parse_args()
    chosen = [part for part in machines(arguments.oldest) if arguments.only in part.name]
    if not chosen:
        raise SystemExit(f"No machine has {arguments.only!r} in its name.")
    rows, total = kept() if arguments.only else {}, 0
    bar = tqdm(chosen, unit="machine", leave=False)
    for machine in bar:
        bar.set_description(machine.name)
        line, unexpected = row(machine)
        bar.write(line)
        rows[machine.name] = line
        total += unexpected
        TABLE.write_text(table(rows.values()), encoding="utf-8")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
