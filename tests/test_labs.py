"""The labs as a learner gets them, and with their own solutions filled in."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager

from labkit import labs, ledger
from labkit.labs import Wrong, zoo
from labkit.labs.decoding import check as decoding
from labkit.labs.your_own_gpt import check as your_own_gpt
from labkit.labs.your_own_gpt import ours
from labkit.models.encoder import load_encoder
from labkit.models.stories import VOCABULARY
from press import ROOT
from press.drawings import labs as pictures
from press.extension import lab_list
from press.lab_sets import for_class, marks
from press.labs import CARD, SOLUTION, TOPICS, cards, solutions, solved, unsolved
from press.notebooks import LABS, code_cells, name, read, tagged
from press.project import Address
from tests import answers
from tests.answers import Exercise

HINT = re.compile(r"<details><summary>Hint \d</summary>")
END = re.compile(r"play\.(?!laboratory\()")
TASK = re.compile(r"where: \"?((?:Exercise|Example|Practice Problem) [\d.]*\d)")

COUNTS = "No One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve".split()

each_lab = pytest.mark.parametrize("path", LABS, ids=name)


def test_there_are_labs():
    assert LABS


def submodules(package: ModuleType) -> set[str]:
    return {found.name for found in pkgutil.iter_modules(package.__path__)}


def test_every_lab_has_its_check_its_laboratory_and_its_answers():
    folders = {found.name for found in pkgutil.iter_modules(labs.__path__) if found.ispkg}
    assert folders == submodules(answers) == set(TOPICS)
    for topic in TOPICS:
        more = submodules(import_module(f"labkit.labs.{topic}")) - {"check", "play"}
        assert more <= {"ours"}, "the parts that a learner may leave out"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_lab_uses_what_has_its_name(topic: str):
    code = "\n".join(cell.source for cell in code_cells(read(TOPICS[topic])))
    assert re.search(rf"from labkit\.labs\.{topic} import check, (ours, )?play$", code, re.M)
    assert "play.laboratory(" in code


@pytest.mark.parametrize("topic", TOPICS)
def test_every_check_of_a_lab_has_answers(topic: str):
    used = [cell.source.partition("(")[0] for cell in tagged(read(TOPICS[topic]), "check")]
    answered = import_module(f"tests.answers.{topic}")
    tried = {value.name for value in vars(answered).values() if isinstance(value, Exercise)}
    assert {check.replace("check", topic) for check in used} == tried


@each_lab
def test_every_exercise_has_a_check_hints_and_a_solution(path: Path):
    cells = read(path).cells
    begun = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
    assert begun
    for i in begun:
        card, check, help_ = cells[i - 1], cells[i + 1], cells[i + 2]
        assert re.match(r"## \d+\. ", card.source)
        assert CARD.match(card.source.split("\n\n")[1])
        assert "check" in check.metadata.tags
        assert len(HINT.findall(help_.source)) >= 2
        assert len(SOLUTION.findall(help_.source)) == 1


@each_lab
def test_the_opening_adds_up_the_cards(path: Path):
    minutes = sum(m for _, m in cards(read(path)))
    count = COUNTS[len(cards(read(path)))]
    assert f"\n\n{count} exercises, about {minutes} minutes. " in read(path).cells[0].source


@each_lab
def test_every_stub_gets_an_invitation(path: Path):
    for cell in tagged(read(path), "check"):
        assert [output.output_type for output in cell.outputs] == ["stream"]
        assert " is still the stub.\nWrite your answer into the cell" in cell.outputs[0].text


@each_lab
def test_the_setup_cell_is_silent(path: Path):
    setup = tagged(read(path), "setup")
    assert len(setup) == 1
    assert setup[0].outputs == []
    assert setup[0] == code_cells(read(path))[0], "it is the first that runs"


@each_lab
def test_a_page_without_a_kernel_shows_the_laboratory(path: Path):
    shown = [output.get("data", {}) for cell in code_cells(read(path)) for output in cell.outputs]
    assert any("application/vnd.plotly.v1+json" in data for data in shown)
    assert "The controls need Jupyter or Colab" in "".join(c.source for c in read(path).cells)


@pytest.fixture
def a_fresh_session() -> Iterator[None]:
    """Undo what a lab sets for a whole session."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    load_encoder.cache_clear()  # a lab turns the one encoder to float64


@pytest.fixture
def each_bug_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let zoos ask about each implementation once: what is right stays so."""
    monkeypatch.setattr(zoo, "TIMES", 1)


def work(path: Path, capsys: pytest.CaptureFixture[str], *, shortened: bool) -> None:
    """Run a lab with its solutions; each check has to accept them."""
    python = TransformerManager().transform_cell
    names = {"find_spec": find_spec}  # from the setup cell
    for cell in code_cells(solved(read(path))):
        tags = cell.metadata.get("tags", [])
        source = shorter(cell.source) if shortened and "training" in tags else cell.source
        # A lab's ends take long; tests/test_play.py tries them, most once a week.
        if "setup" not in tags and not END.match(source):
            exec(python(source), names)  # the book's own code, as a kernel runs it
        told = capsys.readouterr().out
        assert "check" not in tags or re.fullmatch(r"\w+: right\. .*\n", told)


def shorter(training: str) -> str:
    """Let a training of minutes take three steps, and go on with the book's weights."""
    assert "steps=2_000" in training
    shortened = training.replace("steps=2_000", "steps=3")
    return f"{shortened}\nyour_model.load_state_dict(ours.weights())"


@pytest.mark.slow
@pytest.mark.usefixtures("a_fresh_session", "each_bug_once")
@each_lab
def test_the_solutions_pass_their_checks(path: Path, capsys: pytest.CaptureFixture[str]):
    work(path, capsys, shortened=True)


@pytest.mark.slow
@pytest.mark.usefixtures("a_fresh_session")
def test_each_part_of_a_gpt_stands_alone(capsys: pytest.CaptureFixture[str]):
    lab = read(TOPICS["your_own_gpt"])
    begin = code_cells(lab)[1].source
    parts = "from labkit.labs.your_own_gpt.ours import *\nyour_model = ours.trained()"
    for stub, right, check in zip(
        tagged(lab, "exercise"), tagged(solved(lab), "exercise"), tagged(lab, "check"), strict=True
    ):
        answer = shorter(right.source) if "training" in stub.metadata.tags else right.source
        exec("\n".join([begin, parts, answer, check.source]), {})
        assert re.fullmatch(r"\w+: right\. .*\n", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.usefixtures("a_fresh_session")
def test_the_training_of_a_gpt_reaches_its_bars(capsys: pytest.CaptureFixture[str]):
    work(TOPICS["your_own_gpt"], capsys, shortened=False)


PATIENTS = {  # by the check that each has to fail, which does not name the bug
    "first_patient": "FirstPatient",
    "second_patient": "second_patient",
    "third_patient": "ThirdPatient",
}


def patients() -> dict[str, Any]:
    """Make the patients of lab 10 as its cells do."""
    lab = read(TOPICS["your_own_gpt"])
    names: dict[str, Any] = {}
    for source in (code_cells(lab)[1].source, *(cell.source for cell in tagged(lab, "exercise"))):
        exec(source, names)
    return names


@pytest.mark.usefixtures("a_fresh_session")
def test_the_patients_of_the_cards_are_ill_as_planted():
    found = patients()
    for check, patient in PATIENTS.items():
        with pytest.raises(Wrong, match="the patient gives the same"):
            getattr(your_own_gpt, check)(found[patient])


def test_the_line_that_a_patient_is_asked_for_is_one_of_its_own():
    cells = "\n".join(cell.source for cell in tagged(read(TOPICS["your_own_gpt"]), "exercise"))
    for patient, parts in zip(PATIENTS.values(), your_own_gpt.BUGS.values(), strict=True):
        own = re.search(rf"^(class|def) {patient}\(.*?\n\n\n", cells, re.DOTALL | re.MULTILINE)
        lines = ["".join(line.split()) for line in own[0].splitlines()]
        assert [sum(part in line for line in lines) for part in parts] == [1] * len(parts)


@pytest.mark.weekly
@pytest.mark.usefixtures("a_fresh_session")
def test_the_second_patient_does_what_its_card_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ours, "loss", patients()["second_patient"])
    for seed in range(3):
        torch.manual_seed(seed)
        losses = ours.train(ours.GPT(len(VOCABULARY), 64, 4, 2), 300, seed)
        assert round(losses[0], 1) == 4.0
        assert round(sum(losses[-20:]) / 20, 1) == 3.5


@each_lab
def test_students_get_hints_and_no_solution(path: Path):
    lab, given = read(path), for_class(unsolved(read(path)), path.name)
    told = "\n".join(cell.source for cell in given.cells)
    assert len(HINT.findall(told)) == sum(len(HINT.findall(cell.source)) for cell in lab.cells)
    assert ">Solution<" not in told
    assert "solution" not in given.cells[0].source, "offers one; see OFFERED in press/labs.py"
    assert not any(solution.strip() in told for solution in solutions(lab))
    stubs = tagged(given, "exercise")
    assert [stub.source for stub in stubs] == [stub.source for stub in tagged(lab, "exercise")]


@each_lab
def test_instructors_get_a_solution_for_every_stub(path: Path):
    given = for_class(solved(read(path)), path.name)
    assert [cell.source for cell in tagged(given, "exercise")] == solutions(read(path))


@each_lab
@pytest.mark.parametrize("address", ["", "https://example.org/book/"])
def test_links_of_a_class_set_lead_to_the_published_book_or_nowhere(
    path: Path, address: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BOOK_ADDRESS", address)
    given = for_class(read(path), path.name)
    told = "\n".join(cell.source for cell in given.cells if cell.cell_type == "markdown")
    assert "](../" not in told
    assert ("](https://example.org/book/chapters/" in told) == bool(address)
    assert not any(cell.get("outputs") for cell in given.cells)


def test_marks_are_read_from_the_checks(tmp_path: Path, capsys: pytest.CaptureFixture):
    def check(*outputs: nbformat.NotebookNode) -> nbformat.NotebookNode:
        return nbformat.v4.new_code_cell(metadata={"tags": ["check"]}, outputs=list(outputs))

    right = nbformat.v4.new_output("stream", text="as printed\nmask: right. Rows sum to 1.\n")
    wrong = nbformat.v4.new_output("error", ename="Wrong", evalue="not right", traceback=[])
    handed_in = nbformat.v4.new_notebook(cells=[check(right), check(wrong), check()])
    for folder in (tmp_path / "ada", tmp_path / "ada" / ".ipynb_checkpoints"):
        folder.mkdir()
        nbformat.write(handed_in, folder / "lab.ipynb")
    (tmp_path / "cut.ipynb").write_text('{"cells": [')
    with pytest.raises(SystemExit, match="has no notebooks"):
        marks(tmp_path / "ada" / ".ipynb_checkpoints")
    marks(tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert told == ["ada/lab.ipynb: 1 of 3: passed - -", "cut.ipynb: not a notebook"]


def test_a_hub_gets_links_if_the_book_has_an_address():
    assert "has no address" in lab_list.links(LABS, None)
    told = lab_list.links(LABS, "https://github.com/owner/name.git")
    assert told.count("git-pull?repo=https%3A%2F%2Fgithub.com%2Fowner%2Fname.git&") == len(LABS)
    assert f"urlpath=lab%2Ftree%2Fname%2Flabs%2F{LABS[0].name}" in told


def test_the_labs_page_says_what_one_builds_in_every_lab():
    page = (ROOT / "labs" / "index.md").read_text(encoding="utf-8")
    lines = re.search(r"```\{labs\}\n(.*?)```", page, re.DOTALL)[1].splitlines()
    assert list(lab_list.named(lines)) == list(TOPICS)


def test_a_labs_card_takes_minutes_levels_and_needs_from_the_notebook(tmp_path: Path):
    first, second = "[a](../chapters/01_a.ipynb)", "[b](../chapters/02_b.ipynb)"
    needs = f"You need [lab 3](lab_03_x.ipynb), {first} and {second}."
    sources = (
        f"# Lab 9: Beads\n\n{needs} Not [c](../chapters/03_c.ipynb).",
        "## 1. Count\n\n*Hard, 15 minutes.* Go.",
        "*Easy, 5 minutes.* Go.",
    )
    written = tmp_path / "lab_09_beads.ipynb"
    cells = [nbformat.v4.new_markdown_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), written)
    after = "[lab 3](/labs/lab_03_x), [chapter 1](/chapters/01_a) and [2](/chapters/02_b)"
    nowhere = lab_list.told(written, "You count.", Address(None, "1.0")).split("\n\n")
    assert nowhere == [
        "[9. Beads](/labs/lab_09_beads)",
        "You count.",
        f"20 minutes, easy to hard; after {after}",
        "{download}`Download the notebook of lab 9 </labs/lab_09_beads.ipynb>`",
    ]
    address = Address("https://github.com/owner/name", "1.0")
    assert "[![Open in Colab]" in lab_list.told(written, "You count.", address)


def test_every_lab_has_a_picture_that_is_told_in_words():
    assert [lab_list.drawing_of(topic).stem for topic in TOPICS] == list(pictures.DRAWINGS)
    assert all("aria-label" in lab_list.drawing_of(topic).read_text("utf-8") for topic in TOPICS)


def test_the_lab_on_decoding_counts_its_bugs():
    opening = read(TOPICS["decoding"]).cells[0].source
    assert f"the test that finds {len(decoding.UNSOUND)} bugs" in opening
    zoo = f"{len(decoding.SOUND)} sound decoders and {len(decoding.UNSOUND)} with one bug each"
    assert any(zoo in cell.source for cell in read(TOPICS["decoding"]).cells)


def test_every_task_that_the_ledger_names_is_done_somewhere():
    page = (ROOT / "labs" / "index.md").read_text(encoding="utf-8")
    tasks = {
        found
        for path in sorted(ledger.DOCUMENTS.glob("*.yml"))
        for found in TASK.findall(path.read_text(encoding="utf-8"))
    }
    done = re.findall(
        r"^\| ((?:Exercise|Example|Practice Problem) [\d.]*\d), .* \|.*\]\(", page, re.M
    )
    assert sorted(done) == sorted(tasks)
