"""The house: which part may import which, that no import runs in a circle, and what is shipped."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from zipfile import ZipFile

import pytest

from labkit.figures.live import FIGURES
from press import ROOT, wheel
from press.git import git

# What a part of labkit may import: other parts of labkit, and packages beside Python's own.
MAY_IMPORT = {
    "labkit": "labkit torch".split(),
    "labkit.models": "labkit labkit.models torch safetensors tokenizers tqdm".split(),
    "labkit.figures": "labkit labkit.models labkit.ledger labkit.figures "
    "torch numpy plotly anywidget traitlets".split(),
    "labkit.labs": "labkit labkit.models labkit.figures labkit.labs torch numpy ipywidgets".split(),
    "labkit.ledger": "labkit.ledger yaml".split(),
}
MOST_MODULES, MOST_LINES = 14, 3_000  # of the mathematics, which is readable in one sitting

# Run in a fresh process: import the modules named, and print each with what else came with it.
FRESH = """
import sys
import torch
for name in sys.argv[1:]:
    before = set(sys.modules)
    __import__(name)
    print(name, *sorted(set(sys.modules) - before))
"""


def sources() -> dict[str, str]:
    """Read labkit and press: the text of each module, by its name."""
    paths = [path for folder in ("labkit", "press") for path in (ROOT / folder).rglob("*.py")]
    return {name_of(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def is_package(name: str, modules: Mapping[str, str]) -> bool:
    return any(module.startswith(f"{name}.") for module in modules)


@cache
def statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """List the imports of a module, also inside a function and for the type checker alone."""
    nodes = ast.walk(ast.parse(text))
    return [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]


def imports(name: str, modules: Mapping[str, str]) -> set[str]:
    """Name the modules that a module imports."""
    found: set[str] = set()
    package = name if is_package(name, modules) else name.rpartition(".")[0]
    for node in statements(modules[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            source = resolve_name("." * node.level + (node.module or ""), package)
            inner = {f"{source}.{alias.name}" for alias in node.names}
            found |= {one if one in modules else source for one in inner}
    return found


def part(name: str, modules: Mapping[str, str]) -> str:
    """Name the part of labkit that a module is in, or the package that it comes with."""
    folder = ".".join(name.split(".")[:2])
    inside = folder.startswith("labkit.") and is_package(folder, modules)
    return folder if inside else name.split(".")[0]


def wrong_directions(modules: Mapping[str, str]) -> Iterator[str]:
    """Run through the imports of labkit that its directions forbid."""
    for name in modules:
        own = part(name, modules)
        if own == "press":
            continue
        for found in sorted(imports(name, modules)):
            other, may = part(found, modules), MAY_IMPORT.get(own, ())
            if other not in sys.stdlib_module_names and other not in may:
                yield f"{name} imports {found}, and {own} may import {', '.join(may) or 'nothing'}"


def circle(modules: Mapping[str, str]) -> list[str]:
    """Name modules that import each other in a circle, none if there is no circle."""
    try:
        TopologicalSorter({name: imports(name, modules) for name in modules}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def borrowed_facts(modules: Mapping[str, str]) -> Iterator[str]:
    """Run through the constants and classes that press imports from one of its command lines."""
    commands = {name for name, text in modules.items() if '__name__ == "__main__"' in text}
    for name, text in modules.items():
        for node in statements(text):
            if isinstance(node, ast.ImportFrom) and node.module in commands:
                for alias in node.names:
                    if alias.name[0].isupper():
                        yield f"{name} imports {alias.name} from the command line {node.module}"


def test_what_labkit_imports_runs_one_way():
    assert list(wrong_directions(sources())) == []


def test_no_module_imports_itself_through_others():
    assert circle(sources()) == []


def test_no_command_line_is_imported_for_its_facts():
    assert list(borrowed_facts(sources())) == []


def test_the_mathematics_is_readable_in_one_sitting():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "labkit").glob("*.py")]
    assert len(texts) <= MOST_MODULES
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES


HOUSE = dict.fromkeys(
    ("labkit", "labkit.attention", "labkit.cache", "labkit.models", "labkit.models.gpt",
     "labkit.figures", "labkit.figures.plots", "labkit.labs", "labkit.labs.guard",
     "labkit.ledger", "labkit.ledger.rows", "press", "press.stamp"), "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("labkit.attention", "from labkit.models import gpt", "labkit.models.gpt"),
        ("labkit.attention", "def f():\n    import yaml", "yaml"),
        ("labkit.models.gpt", "from labkit.figures.plots import lines", "labkit.figures.plots"),
        ("labkit.models", "from ..figures import plots", "labkit.figures.plots"),
        ("labkit.figures.plots", "import labkit.labs.guard", "labkit.labs.guard"),
        ("labkit.labs.guard", "from labkit import ledger", "labkit.ledger"),
        ("labkit.labs.guard", "import anywidget", "anywidget"),
        ("labkit.ledger.rows", "from labkit import cache", "labkit.cache"),
        ("labkit.new.part", "from labkit import cache", "labkit.cache"),
        ("labkit.ledger", "if TYPE_CHECKING:\n    from press.stamp import Address", "press.stamp"),
    ],
)  # fmt: skip
def test_a_wrong_direction_is_found(name: str, text: str, found: str):
    (told,) = wrong_directions(HOUSE | {name: text})
    assert told.startswith(f"{name} imports {found}, and ")


@pytest.mark.parametrize(
    "tree",
    [
        {"labkit.cache": "import labkit.cache"},
        {
            "labkit.cache": "def f():\n    from labkit.attention import g",
            "labkit.attention": "from labkit import cache",
        },
        {
            "labkit": "from labkit.attention import f",
            "labkit.attention": "from labkit.cache import KVCache",
            "labkit.cache": "if TYPE_CHECKING:\n    from labkit import f",
        },
        {"labkit.ledger": "from . import rows", "labkit.ledger.rows": "from . import LedgerError"},
    ],
    ids=["itself", "deferred", "through the package", "relative"],
)
def test_a_circle_is_found(tree: dict[str, str]):
    assert set(circle(HOUSE | tree)) == set(tree)


def test_a_sound_house_is_left_alone():
    sound = HOUSE | {
        "labkit": "from labkit.attention import f",
        "labkit.attention": "import math\nimport torch.nn\nfrom labkit import cache",
        "labkit.labs": "from labkit.labs import guard",
        "labkit.labs.guard": "from labkit import f\nfrom labkit.figures import plots",
        "press": "import yaml\nfrom labkit import ledger",
    }
    assert list(wrong_directions(sound)) == circle(sound) == list(borrowed_facts(sound)) == []


def test_a_fact_from_a_command_line_is_found():
    tree = {
        "press.stamp": 'GITHUB = 1\nif __name__ == "__main__":\n    main()',
        "press.publish": "from press.stamp import GITHUB, write",
    }
    told = "press.publish imports GITHUB from the command line press.stamp"
    assert list(borrowed_facts(tree)) == [told]


def imported_afresh(*names: str) -> dict[str, list[str]]:
    """Import modules in a fresh process: for each, the modules that came with it."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *names], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name: came for name, *came in map(str.split, done.stdout.splitlines())}


@pytest.mark.slow
def test_a_lab_imports_nothing_that_colab_lacks():
    found = sorted((ROOT / "labkit" / "labs").glob("*/*.py"))
    labs = [name_of(path.relative_to(ROOT)) for path in found if path.stem in ("check", "play")]
    imported = imported_afresh(*labs)
    assert list(imported) == labs
    for name, modules in imported.items():
        others = {module.split(".")[0] for module in modules} - sys.stdlib_module_names
        others = {other for other in others if not other.startswith("_sysconfigdata")}
        assert others <= {"labkit", "torch"}, name
        assert not [one for one in modules if one.startswith("labkit.ledger")], name


@pytest.mark.slow
def test_folders_of_labkit_import_nothing_by_themselves():
    imported = imported_afresh("labkit", "labkit.figures", "labkit.models")
    assert imported["labkit.figures"] == ["labkit.figures"]
    assert imported["labkit.models"] == ["labkit.models"]


@pytest.mark.slow
def test_the_wheel_holds_labkit_and_nothing_else(tmp_path: Path):
    with ZipFile(wheel.build(tmp_path)) as built:
        held = {name for name in built.namelist() if ".dist-info/" not in name}
    known = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "labkit")
    needed = {name for name in known.splitlines() if not name.endswith((".js", ".d.ts"))}
    assert held == needed | {f"labkit/figures/bundles/{figure.name}.js" for figure in FIGURES}
