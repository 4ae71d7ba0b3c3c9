"""What has passed is skipped while all that it depends on stays the same, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from press import stamps
from press.git import git

NOTEBOOK, OTHER, MODULE = "chapters/01.ipynb", "chapters/02.ipynb", "labkit/heads.py"
RUN_NBVAL = ["pytest", "--nbval"]
PASS, FAIL = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 1))
REPORTED = """<testsuites><testsuite>
<testcase classname="chapters.01.ipynb" name="Cell 0" />
<testcase classname="chapters.01.ipynb" name="Cell 1" />
<testcase classname="chapters.02.ipynb" name="Cell 0"><failure /></testcase>
<testcase classname="chapters.02.ipynb" name="Cell 1" />
</testsuite></testsuites>"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a small project: two notebooks and a module, and a page that is built."""
    for name in (NOTEBOOK, OTHER, MODULE, "tests/browser/looking.py", "_build/html/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("_build/\n")
    git(tmp_path, "init", "--quiet")
    return tmp_path


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "STAMPS", tmp_path / "stamps")
    monkeypatch.setattr(stamps, "REPORT", tmp_path / "notebooks.xml")
    for name in ("CI", "FRESH", *stamps.SETTINGS):
        monkeypatch.delenv(name, raising=False)


def digests(project: Path, part: str = "notebooks") -> dict[str, str]:
    notebooks = [NOTEBOOK, OTHER] if part == "notebooks" else []
    return stamps.expected(part, [*RUN_NBVAL, *notebooks], notebooks, project)


def change(project: Path, name: str) -> None:
    (project / name).write_text("changed")


def test_nothing_changed_is_the_same_digest(project: Path):
    assert digests(project) == digests(project)


def test_a_changed_cell_changes_its_notebook_alone(project: Path):
    before = digests(project)
    change(project, NOTEBOOK)
    after = digests(project)
    assert after[NOTEBOOK] != before[NOTEBOOK]
    assert after[OTHER] == before[OTHER]


@pytest.mark.parametrize("part", ["notebooks", "unit", "pages", "colab"])
def test_a_changed_module_changes_every_digest(project: Path, part: str):
    before = digests(project, part)
    change(project, MODULE)
    after = digests(project, part)
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize("name", ["tests/browser/looking.py", "_build/html/index.html"])
def test_a_changed_page_or_its_test_changes_the_pages(project: Path, name: str):
    before, notebooks = digests(project, "pages"), digests(project)
    change(project, name)
    assert digests(project, "pages") != before
    assert digests(project) == notebooks


def test_a_wheel_built_again_leaves_the_pages_as_they_are(project: Path):
    before = digests(project, "pages")
    (project / "_build/html/labkit.whl").write_text("built again")
    assert digests(project, "pages") == before


@pytest.mark.parametrize("setting", ["ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS"])
def test_another_setting_changes_the_digest(project: Path, setting: str, monkeypatch):
    before = digests(project)
    monkeypatch.setenv(setting, "1")
    assert digests(project)[NOTEBOOK] != before[NOTEBOOK]


def test_another_processor_changes_the_digest(project: Path, monkeypatch):
    before = digests(project)
    monkeypatch.setattr(stamps, "processor", lambda: "another")
    assert digests(project)[NOTEBOOK] != before[NOTEBOOK]


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing change."""
    told = lambda part, command, notebooks: dict.fromkeys(notebooks or [part], "same")  # noqa: E731
    monkeypatch.setattr(stamps, "expected", told)


@pytest.mark.usefixtures("same")
def test_what_has_passed_is_skipped_and_says_how_to_run_it(monkeypatch, capfd):
    assert stamps.run("unit", PASS) == 0
    assert capfd.readouterr().out == ""
    assert stamps.run("unit", FAIL) == 0, "it was run"
    assert "make unit FRESH=1" in capfd.readouterr().out
    monkeypatch.setenv("FRESH", "1")
    assert stamps.run("unit", FAIL) == 1
    monkeypatch.delenv("FRESH")
    assert stamps.run("unit", FAIL) == 1, "a failure leaves no stamp"


@pytest.mark.usefixtures("same")
def test_a_book_that_is_not_there_is_built_again(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(stamps, "ROOT", tmp_path)
    assert stamps.run("book", PASS) == 0
    assert stamps.run("book", FAIL) == 1, "it was run"
    (tmp_path / stamps.SITE).mkdir(parents=True)
    (tmp_path / stamps.SITE / "index.html").touch()
    assert stamps.run("book", PASS) == 0
    assert stamps.run("book", FAIL) == 0, "it was skipped"


def test_a_changed_test_leaves_the_book_as_it_is(project: Path):
    before = digests(project, "book")
    change(project, "tests/browser/looking.py")
    assert digests(project, "book") == before
    change(project, NOTEBOOK)
    assert digests(project, "book") != before


@pytest.mark.usefixtures("same")
def test_a_notebook_that_fails_is_run_again_alone(capfd):
    write = f"open({str(stamps.REPORT)!r}, 'w').write({REPORTED!r}); raise SystemExit(1)"
    assert stamps.run("notebooks", [sys.executable, "-c", write, NOTEBOOK, OTHER]) == 1
    asked = "import sys; print(sys.argv[1:])"
    assert stamps.run("notebooks", [sys.executable, "-c", asked, NOTEBOOK, OTHER]) == 0
    told = capfd.readouterr().out
    assert "1 of 2 notebooks" in told
    assert str([OTHER]) in told


@pytest.mark.usefixtures("same")
def test_ci_neither_reads_nor_writes_stamps(monkeypatch):
    assert stamps.run("unit", PASS) == 0
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr("sys.argv", ["stamps", "unit", *FAIL])
    assert stamps.main() == 1
    monkeypatch.setattr("sys.argv", ["stamps", "bits", *PASS])
    assert stamps.main() == 0
    assert stamps.read("bits") is None
