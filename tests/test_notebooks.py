"""The form of the stored notebooks: executed in order, clean, small, in the book."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from labkit.figures.base import MIME
from press import ROOT
from press.notebooks import NOTEBOOKS, code_cells, name, outputs, read

CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
REASON = r"</summary>\s*(Right|No)[.,] \S.*?</details>"
MAX_BYTES = 320_000
# What differs from machine to machine, or from run to run.
UNSTEADY = {
    "a path": r"(?<![\w.:/])/(?:home|root|tmp|usr|work|mnt|Users|var)/|[A-Z]:\\\\",
    "an address": r"\b0x[0-9a-f]{6,}",
    "a time of day": r"\b\d{1,2}:\d{2}:\d{2}\b",
    "a duration": r"\b\d+(?:\.\d+)? ?(?:ms|µs|us|seconds)\b",
    "a progress bar": r"\d+%\|",
}

# What an output may be: all of it is compared when the notebooks are executed again.
MIME_TYPES = r"text/(plain|html)|application/vnd\.(plotly\.v1|labkit\.[a-z]+)\+json"
# What of HTML only shows, and cannot act.
TAGS = set(
    "a b br caption code dd details div dl dt em figcaption figure i img li ol p pre".split()
) | set("span strong sub summary sup table tbody td th thead tr u ul".split())
LINKS = ("href", "src")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=name)


def test_there_are_notebooks():
    assert NOTEBOOKS


@each_notebook
def test_cells_were_executed_in_order(path: Path):
    counts = [cell.execution_count for cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1)), f"run `make run NB={name(path)}.ipynb`"


@each_notebook
def test_metadata_is_canonical(path: Path):
    notebook = read(path)
    assert set(notebook.metadata) == {"kernelspec"}
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)


@each_notebook
def test_the_call_of_a_live_figure_is_folded(path: Path):
    for cell in code_cells(read(path)):
        if any(MIME in output.get("data", {}) for output in cell.outputs):
            assert "hide-input" in cell.metadata.get("tags", []), cell.source


@each_notebook
def test_nothing_on_stderr(path: Path):
    assert [
        o.text for o in outputs(read(path)) if o.output_type == "stream" and o.name == "stderr"
    ] == []


@each_notebook
def test_errors_are_expected(path: Path):
    failing = [
        c for c in code_cells(read(path)) if any(o.output_type == "error" for o in c.outputs)
    ]
    assert all("raises-exception" in cell.metadata.get("tags", []) for cell in failing)


@each_notebook
def test_an_errors_last_line_is_its_name_and_message(path: Path):
    errors = [output for output in outputs(read(path)) if output.output_type == "error"]
    assert [e.traceback for e in errors] == [[f"{e.ename}: {e.evalue}"] for e in errors]


@each_notebook
@pytest.mark.parametrize("what", UNSTEADY)
def test_outputs_hold_on_any_machine(path: Path, what: str):
    told = [
        text
        for output in outputs(read(path))
        for text in [output.get("text", ""), output.get("evalue", ""), *texts(output)]
    ]
    found = [match for text in told for match in re.findall(UNSTEADY[what], text)]
    assert found == [], f"{what} in an output"


def texts(output) -> list[str]:
    return [part for part in output.get("data", {}).values() if isinstance(part, str)]


class Acts(HTMLParser):
    """Find what of an HTML text would run, or ask another host, where the page shows it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        acts = tag not in TAGS or any(name.startswith("on") for name in given)
        leads = any(re.match(r"\s*(\w+:|//)", given.get(name) or "") for name in LINKS)
        if acts or leads or "url(" in (given.get("style") or ""):
            self.found.append(self.get_starttag_text())


@pytest.mark.parametrize(
    "text",
    [
        "<script>1</script>",
        "<SCRIPT src=x.js>",
        '<b onclick="1">',
        "<svg/onload=1>",
        '<a href=" javascript:1">',
        '<img src="//elsewhere.example/x.png">',
        '<iframe src="x">',
        '<div style="background: url(x)">',
        "<style>@import 'x'</style>",
    ],
)
def test_what_acts_is_found(text: str):
    assert len(Acts(f"<p>before</p>{text}<p>after").found) == 1


@each_notebook
def test_outputs_only_show(path: Path):
    for output in outputs(read(path)):
        assert all(re.fullmatch(MIME_TYPES, mime) for mime in output.get("data", {}))
        assert not output.get("metadata"), "what is here is compared by no test"
        assert Acts(output.get("data", {}).get("text/html", "")).found == []
        figure = output.get("data", {}).get("application/vnd.plotly.v1+json", "")
        assert not re.search(r"\w+://|javascript:|<[a-z]+ ", str(figure)), (
            "a figure that leads away"
        )


@each_notebook
def test_text_only_shows(path: Path):
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            prose = re.sub(
                r"^(`{3,}|~{3,}).*?^\1|`+[^`]*`+", "", cell.source, flags=re.DOTALL | re.M
            )
            assert Acts(prose).found == []
        else:
            assert cell.cell_type == "code", "a raw cell goes into the page unseen"


@pytest.mark.parametrize("path", CHAPTERS, ids=name)
def test_a_quiz_has_reasons_and_one_right_answer_a_question(path: Path):
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    questions = re.findall(r'<div class="quiz".*?</div>', text, re.DOTALL)
    assert 2 <= len(questions) <= 3
    for question in questions:
        reasons = re.findall(REASON, question, re.DOTALL)
        assert len(reasons) == question.count("<details>") >= 3
        assert reasons.count("Right") == 1


@each_notebook
def test_figures_have_a_text_alternative(path: Path):
    mime = "application/vnd.plotly.v1+json"
    figures = [o.data[mime] for o in outputs(read(path)) if mime in o.get("data", {})]
    assert all(figure["layout"].get("meta", {}).get("alt") for figure in figures)


@each_notebook
def test_notebook_is_small(path: Path):
    assert path.stat().st_size < MAX_BYTES


def test_every_notebook_is_in_the_table_of_contents():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = {chapter["file"] for part in toc["parts"] for chapter in part["chapters"]}
    assert {name(path) for path in NOTEBOOKS} <= listed
