"""Try to make the book lie, and see that the checks notice.

A digit of a stored output, a value or a verdict of the ledger, an execution count, an operator of
labkit: each is changed in a copy of the project, and the checks that should notice run there. By
default a fresh sample is tried; ``--all`` tries every place. Many lies are told at once, each with
a cell, a notebook or a claim to itself, and each must be reported under that name.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tqdm import tqdm

from tests.lies import FORM, SEAL, Lie, Project, told_by_form, told_by_outputs
from tests.mutants import EQUIVALENT, LABKIT, Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (".*", "_build", "node_modules", "__pycache__", "*.egg-info")
SAMPLE = {"notebooks": 1, "mutants": 10}
# The code that decides what is right. What the rest of labkit shows stands in the stored outputs,
# and its tests compare it with what these modules, PyTorch or transformers compute.
MODULES = (
    "arguments",
    "attention",
    "cache",
    "conversion",
    "counting",
    "fused",
    "heads",
    "ledger/claims",
    "ledger/consistency",
    "ledger/document",
    "ledger/nested",
    "ledger/verdicts",
    "tiles",
)
FOLDERS = ("*.py", "ledger/*.py", "models/*.py")  # whose modules can be neighbours of one another
SECONDS = 900
FAULT = "a fault in labkit"

# A server that has loaded what loads slowly starts each run in a moment. Windows has none.
FORKS = "forkserver" in get_all_start_methods()
CONTEXT = get_context("forkserver" if FORKS else "spawn")
SLOW = ["torch", "nbformat", "nbval.plugin", "pytest", "hypothesis"]
if FORKS:
    CONTEXT.set_forkserver_preload(SLOW)


# Running checks in a copy


def copy_project(folder: str) -> Path:
    """Copy what the checks need."""
    root = Path(folder).resolve()
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    return shutil.copytree(ROOT, root, ignore=ignored, dirs_exist_ok=True)


def run_in(root: Path, arguments: list[str]) -> None:
    """Run pytest on a copy, silently. The process must be one of its own."""
    os.chdir(root)
    os.environ["PYTHONPATH"] = str(root)  # for the kernels
    sys.path[:] = [str(root), *(path for path in sys.path if not is_ours(path))]
    for name, module in list(sys.modules.items()):
        if is_ours(getattr(module, "__file__", None)):
            del sys.modules[name]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    # What pytest would load by itself takes longer than most of the tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ["-p", "nbval.plugin"] if "--nbval" in arguments else []
    import hypothesis
    import pytest

    # A failure is enough: the smallest example of it is not looked for.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("brief", phases=phases)
    hypothesis.settings.load_profile("brief")
    options = [*plugins, "-p", "no:cacheprovider", "--junitxml", "report.xml"]
    code = pytest.main([*arguments, *options])
    import labkit

    assert Path(labkit.__file__).is_relative_to(root), "another labkit was tested"
    sys.exit(code)


def is_ours(path: str | None) -> bool:
    """Say whether a path is of the project itself, of which the copy is made."""
    return bool(path) and Path(path).resolve().is_relative_to(ROOT) and ".venv" not in path


class Failure(NamedTuple):
    """A test that failed: its file, its name, and the lines that it says."""

    file: str
    test: str
    says: tuple[str, ...]


def check(root: Path, arguments: list[str]) -> tuple[bool, list[Failure]]:
    """Run pytest on a copy; say whether all is well, and else which tests failed."""
    process = CONTEXT.Process(target=run_in, args=(root, arguments))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    report = root / "report.xml"
    cases = ElementTree.parse(report).getroot().iter("testcase") if report.is_file() else ()
    failed = [
        Failure(case.get("classname"), case.get("name"), tuple((found.text or "").splitlines()))
        for case in cases
        for found in case
        if found.tag in ("failure", "error")
    ]
    return process.exitcode == 0, failed


# What is tried


def rounds(lies: list[Lie]) -> Iterator[list[Lie]]:
    """Sort lies into rounds in which each has its cell, notebook or claim to itself."""
    while lies:
        owners: set[str] = set()
        near: set[str] = set()
        told, later = [], []
        for lie in lies:
            free = owners.isdisjoint(lie.owners | lie.near) and near.isdisjoint(lie.owners)
            (told if free else later).append(lie)
            if free:
                owners |= lie.owners
                near |= lie.near
        yield told
        lies = later


def try_lies(told: list[Lie], seed: int) -> list[Lie]:
    """Tell lies in a copy, run the checks, and return the lies that were not reported."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(copy_project(folder))
        chance = random.Random(seed)
        for lie in told:
            lie.tell(project, chance)
        project.write()
        _, failed = check(project.root, list(told[0].run))
    # A test that goes through many claims begins a line of its error, after an E, with each name.
    lines = (line.partition(": ")[0].lstrip("E ") for failure in failed for line in failure.says)
    reported = {*lines, *(failure.test for failure in failed)}
    return [lie for lie in told if not all(is_named(owner, reported) for owner in lie.owners)]


def is_named(owner: str, reported: set[str]) -> bool:
    return any(name == owner or name.endswith(f"[{owner}]") for name in reported)


def try_mutant(mutant: Mutant) -> list[str] | None:
    """Break labkit in a copy, and return the tests that failed; None if none did."""
    with tempfile.TemporaryDirectory() as folder:
        root = copy_project(folder)
        (root / "labkit" / f"{mutant.module}.py").write_text(mutant.source, encoding="utf-8")
        well, failed = check(root, ["-x", *tests_of(mutant.module)])
    return None if well else [node(failure.file, failure.test) for failure in failed]


def node(classname: str, name: str) -> str:
    """Write a test as pytest takes it; of a file that could not be read, the file."""
    if not classname:
        return name.replace(".", "/") + ".py"
    return f"{classname.replace('.', '/')}.py::{name}"


def tests_of(module: str) -> list[str]:
    """Find the checks of a module of labkit: its doctests and tests, and its neighbours' tests."""
    paths = [path for folder in FOLDERS for path in sorted(LABKIT.glob(folder))]
    code = {
        f"{path.relative_to(LABKIT).with_suffix('')}": path.read_text("utf-8") for path in paths
    }
    near = [name for name in code if imports(code[name], module) or imports(code[module], name)]
    dotted = [name.replace("/", ".").removesuffix(".__init__") for name in (module, *near)]
    names = [name.rpartition(".")[2] for name in dotted]
    found = [ROOT.glob(f"tests/test_{name}{more}.py") for name in names for more in ("", "_*")]
    files = dict.fromkeys(f"tests/{path.name}" for each in found for path in sorted(each))
    return [f"labkit/{module}.py", *files]


def imports(code: str, module: str) -> bool:
    """Say whether code imports a module of labkit."""
    dotted = module.replace("/", ".").removesuffix(".__init__")
    folder, _, name = f"labkit.{dotted}".rpartition(".")
    words = rf"^from ({folder}\.{name} import|{folder} import .*\b{name}\b)"
    return bool(re.search(words, code, re.M))


class Trial:
    """The count of what was tried, and what nothing noticed."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.slipped: Counter[str] = Counter()
        self.failing: set[str] = set()  # the tests that noticed a fault

    def count(self, tried: list[Lie] | Mutant, outcome: list[Lie] | list[str] | None) -> list[str]:
        """Count what was tried at once, and name what slipped through."""
        if isinstance(tried, Mutant):
            self.tried[FAULT] += 1
            self.slipped[FAULT] += outcome is None
            self.failing.update(outcome or ())
            return [str(tried)] if outcome is None else []
        self.tried.update(lie.kind for lie in tried)
        self.slipped.update(lie.kind for lie in outcome)
        return [str(lie) for lie in outcome]

    def table(self) -> str:
        rows = [(kind, count, count - self.slipped[kind]) for kind, count in self.tried.items()]
        total = self.tried.total()
        rows = [*sorted(rows), ("all", total, total - self.slipped.total())]
        lines = [f"{kind:<36}{tried:>8}{caught:>8}" for kind, tried, caught in rows]
        return "\n".join([f"{'what was changed':<36}{'tried':>8}{'caught':>8}", *lines])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="try every place, not a sample")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    groups = ("form", "outputs", *MODULES)
    parser.add_argument("--only", choices=groups, help="only this group, or this module of labkit")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"Repeat this run with --seed {options.seed}.", flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # the runs share the processor already

    told, faults = plan(Project(ROOT), chance, options.all, options.only)
    trial = Trial()
    unsound: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = [pool.submit(check_sound, list(run)) for run in {lies[0].run for lies in told}]
        jobs = {pool.submit(try_lies, lies, options.seed): lies for lies in told}
        jobs |= {pool.submit(try_mutant, fault): fault for fault in faults}
        everything = as_completed([*sound, *jobs])
        for job in tqdm(everything, total=len(sound) + len(jobs), unit="run", leave=False):
            if job in jobs:
                for what in trial.count(jobs[job], job.result()):
                    tqdm.write(f"SLIPPED  {what}")
            else:
                unsound += job.result()
    # A test that fails without the fault has not noticed it.
    unsound += check_sound(sorted(trial.failing)) if trial.failing else []
    print(trial.table())
    for what in unsound:
        print(f"UNSOUND  {what} fails where nothing was changed")
    return 1 if trial.slipped.total() or unsound else 0


def plan(
    project: Project, chance: random.Random, everything: bool, only: str | None
) -> tuple[list[list[Lie]], list[Mutant]]:
    """Choose what to try: rounds of lies, and faults."""
    lies = [*told_by_form(project)]
    for notebook in project.notebooks:
        lies += told_by_outputs(project, notebook)
    chance.shuffle(lies)
    cheap, runs = (FORM, SEAL), sorted({lie.run for lie in lies} - {FORM, SEAL})
    if not everything:
        runs = chance.sample(runs, SAMPLE["notebooks"])
    runs = {None: [*cheap, *runs], "form": cheap, "outputs": runs}.get(only, [])
    told = [list(rounds([lie for lie in lies if lie.run == run])) for run in runs]
    modules = {None: MODULES, "form": (), "outputs": ()}.get(only, (only,))
    faults = [mutant for name in modules for mutant in mutants(name)]
    faults = [mutant for mutant in faults if mutant.name not in EQUIVALENT]
    chance.shuffle(faults)
    if everything:
        return [told_at_once for each in told for told_at_once in each], faults
    return [each[0] for each in told], faults[: SAMPLE["mutants"]]


def check_sound(arguments: list[str]) -> list[str]:
    """Run checks where nothing was changed, and name those that fail."""
    with tempfile.TemporaryDirectory() as folder:
        well, failed = check(copy_project(folder), arguments)
    return (
        []
        if well
        else [f"{failure.file} {failure.test}" for failure in failed] or [" ".join(arguments)]
    )


if __name__ == "__main__":
    sys.exit(main())
