"""What builds the book: canonical form, recorded verdicts, errata, pages for maintainers."""

from __future__ import annotations

import doctest
import json
import pkgutil
import re
import sys
from html import unescape
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import nbformat
import pytest
import yaml
from docutils import nodes
from pygments import highlight
from pygments.lexers import PythonLexer, TextLexer
from sphinx.errors import ExtensionError

import labkit
from labkit import ledger
from labkit.figures import plots
from labkit.figures.tables import Table
from press import BOOK, breaks, execute
from press.extension import (
    cells,
    citation,
    claims,
    errata,
    execution,
    folds,
    formulas,
    history,
    landing,
    plotly_figures,
    readings,
    social,
    symbols,
    tables,
    theme,
)
from press.project import Address, pages_address

# What they ask or do stands with the functions that call them.
INTERNAL = {"arguments", "conversion", "fused"}
NOT_AS_STATED = {*claims.LISTED} - {"untested"}  # what is untested has a section of its own
NOWHERE = Address(None, "0")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    row = {"id": "new", "where": "w", "says": "s", "value": [1.5], "places": 1, "notebook": "n"}
    old = row | {"id": "old", "verdict": "holds", "computed": [1.5]}
    ledger_file = tmp_path / "d.yml"
    ledger_file.write_text(yaml.safe_dump({"document": "d", "title": "t", "claims": [row, old]}))
    monkeypatch.setattr(execute.document, "DOCUMENTS", tmp_path)
    return execute


def found(claim_id: str, verdict: str) -> dict:
    fields = {"verdict": verdict, "computed": [2.5]}
    return {"document": "d", "id": claim_id, **fields}


def test_a_new_verdict_is_recorded(tool: ModuleType):
    assert tool.record([found("new", "wrong")]) == ["d/new: wrong"]
    row = yaml.safe_load((tool.document.DOCUMENTS / "d.yml").read_text())["claims"][0]
    assert (row["verdict"], row["computed"]) == ("wrong", [2.5])


def test_a_recorded_verdict_is_never_overwritten(tool: ModuleType):
    before = (tool.document.DOCUMENTS / "d.yml").read_text()
    assert tool.record([found("old", "wrong")]) == []
    assert (tool.document.DOCUMENTS / "d.yml").read_text() == before


def test_a_contradiction_is_told_at_once_and_what_was_recorded_stays(
    tool: ModuleType, tmp_path: Path, monkeypatch, capsys
):
    row = {"where": "w", "says": "s", "quantity": "q", "value": 1, "notebook": "chapters/n"}
    rows = [row | {"id": "old", "verdict": "wrong", "computed": 2}, row | {"id": "new"}]
    ledger_file = {"document": "d", "title": "t", "claims": rows}
    (tmp_path / "d.yml").write_text(yaml.safe_dump(ledger_file, sort_keys=False))
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    data = {ledger.MIME: found("new", "holds") | {"computed": 1}}
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data=data)])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    monkeypatch.setattr(tool, "execute", lambda path: notebook)
    tool.run(tmp_path / "n.ipynb")
    told = "d/old and d/new say the same of q, and one is wrong, the other holds"
    assert f"  contradiction: {told}\n" in capsys.readouterr().out
    assert ledger.find_claim("d/new").verdict == "holds"


def test_canonical_form_keeps_what_a_reader_needs(tool: ModuleType):
    cell = nbformat.v4.new_code_cell("1", execution_count=1, metadata={"tags": ["t"], "x": 1})
    cell.outputs = [nbformat.v4.new_output("error", ename="E", evalue="e", traceback=["/a/b.py"])]
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "w"}
    cell.outputs.append(nbformat.v4.new_output("display_data", data=widget))
    metadata = {"language_info": {"name": "python"}, "widgets": {}, "y": 2}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=metadata)
    result = tool.canonical(notebook)
    assert set(result.metadata) == {"kernelspec"}
    assert result.cells[0].metadata == {"tags": ["t"]}
    assert result.cells[0].outputs[0].traceback == ["E: e"]
    assert result.cells[0].outputs[1].data == {"text/plain": "w"}


def test_a_failing_notebook_is_left_as_it_was(tool: ModuleType, tmp_path: Path, monkeypatch):
    path = tmp_path / "n.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    monkeypatch.setattr(sys, "argv", ["execute", str(path)])
    assert tool.main() == 1
    assert path.read_bytes() == before


def test_the_picture_is_drawn_from_the_ledger():
    assert landing.PICTURE.read_text(encoding="utf-8") == landing.picture(), "run `make book`"


def test_a_tally_links_to_every_verdict_of_its_page():
    shown = [ledger.Verdict(claim) for claim in ledger.open_document("section-2.3")]
    told = claims.tally(shown)
    linked = re.findall(r'href="#([^"]+)"', told)
    assert sorted(linked) == sorted(verdict.anchor for verdict in shown)
    counts = [int(count) for count in re.findall(r"<summary><b>(\d+)</b>", told)]
    assert sum(counts) == len(shown)
    assert told.index("</b> wrong<") < told.index("</b> holds<")


def test_symbols_of_a_chart_are_set_as_in_a_formula():
    chart = {"ticktext": ["d_k = 8", 2], "name": "W_O, d_model"}
    assert plotly_figures.typeset(chart) == {
        "ticktext": ["<i>d</i><sub><i>k</i></sub> = 8", 2],
        "name": "<i>W</i><sub><i>O</i></sub>, <i>d</i><sub>model</sub>",
    }
    told = plotly_figures.caption("as d_k < 9 grows, by_measure")
    assert 'aria-label="d k"><var>d</var><sub><var>k</var></sub></span> &lt; 9' in told
    assert told.endswith("by_measure")


def test_a_chart_has_a_key_where_it_tells_things_apart():
    drawn = plots.lines({"d_k = 8": [1, 2], "more": [2, 1]}, x=[0, 1], title="T", alt="a")
    told = plotly_figures.key(drawn.to_plotly_json())
    assert told.count("<li>") == 2
    assert "<var>d</var>" in told
    assert f"--chart-{plots.COLOURS[1][1:].lower()}" in told
    alone = plots.lines({"one": [1, 2]}, x=[0, 1], title="T", alt="a")
    assert plotly_figures.key(alone.to_plotly_json()) == ""


@pytest.mark.parametrize("key", ledger.document_keys())
def test_the_errata_are_the_claims_that_did_not_hold(key: str):
    document = ledger.open_document(key)
    told = errata.section(document, NOWHERE)
    for claim in document:
        is_told = f'id="{claims.erratum_anchor(claim)}"' in told
        assert is_told == (claim.verdict in NOT_AS_STATED), claim.key


def test_the_readings_are_told_with_their_bars_and_rows():
    groups = [
        {"name": "same", "words": ["like", "as"], "bars": [{"at_least": 0.95, "at_most": 1.05}]},
        {"name": "none", "words": ["no"], "bars": [{"at_most": 1e-5}, {"at_most": 0}]},
        {"name": "stated", "words": ["stated"], "bars": []},
    ]
    rest = {"statistic": "mean", "of": "o", "why": "w"}
    told = readings.table([group | rest for group in groups], ["as", "no", None])
    assert told.splitlines()[2:] == [
        "| same | like, as | at least 0.95 and at most 1.05 | mean | o | w | 1 |",
        "| none | no | at most 0.00001 or at most 0 | mean | o | w | 1 |",
        "| stated | stated | as stated | mean | o | w | 0 |",
    ]


def test_the_examples_of_verdicts_are_what_the_ledger_says():
    page = (BOOK / "how-we-judge.md").read_text(encoding="utf-8")
    known = ledger.all_claims()
    compared = [claim for claim in known if isinstance(claim, ledger.Compared)]
    told = re.findall(r'^\| `([^`]+)`.*?href="([^"]+)', page, re.MULTILINE)
    for verdict, link in told:
        places = {f"../{claim.notebook}.html#{claim.anchor}": claim for claim in compared}
        places |= {f"errata.html#{claims.erratum_anchor(claim)}": claim for claim in known}
        assert places[link].verdict == verdict, link
    assert {verdict for verdict, _ in told} == set(ledger.VERDICTS)


def test_a_matrix_lights_the_digits_that_differ():
    verdict = ledger.Verdict(ledger.find_claim("section-2.3/by-hand/weights"))
    rows = dict(claims.linked(verdict, str))
    told = claims.in_rows(rows["computed"], "computed")
    assert told.count("<tr>") == 3
    assert "<td>0.401</td><td>0.198</td><td>0.401</td>" in told
    assert "<td>0.2<u>48</u></td>" in told


def test_a_verdict_says_beside_its_figures_what_they_count():
    verdict = ledger.Verdict(ledger.find_claim("section-2.3/shared-projections/one-wider-head"))
    rows = dict(claims.linked(verdict, str))
    assert rows["quantity"] == "directions in which the heads write"
    assert list(rows).index("quantity") < list(rows).index("document")


def test_a_change_of_verdict_has_its_colours():
    told = "".join(map(str, history.coloured("x (holds, now holds in one reading): y (so)")))
    assert told.count("verdict-word") == 2
    assert "→" in told
    assert "verdict-holds-in-one-reading" in told
    assert told.endswith(": y (so)")


# Citation, social previews


def test_the_citation_reads_back_in_every_format():
    cited = citation.source("2026", "https://example.org/book/")
    assert cited["title"] in citation.as_text(cited)
    assert f"author = {{{{{cited['author']}}}}}" in citation.as_bibtex(cited)
    [item] = json.loads(citation.as_csl(cited))
    assert item["author"] == [{"literal": cited["author"]}]
    assert item["URL"] == "https://example.org/book/"
    assert "URL" not in citation.as_csl(cited | {"url": ""})


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"dividing by \sqrt{d_k}", "dividing by √d_k"),
        (r"all of d_{\text{model}}", "all of d_model"),
        ("two\n lines", "two lines"),
    ],
)
def test_descriptions_are_plain_text(tex: str, text: str):
    assert social.without_tex(tex) == text


def tags(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the tags of a page of a book published at an address, or at none."""
    monkeypatch.setenv("BOOK_ADDRESS", address)
    config = SimpleNamespace(root_doc="index", project="Book", html_baseurl=pages_address())
    app = SimpleNamespace(
        config=config,
        env=SimpleNamespace(titles={"a/b": nodes.title("", "Title")}),
        builder=SimpleNamespace(get_target_uri=lambda name: f"{name}.html"),
    )
    context = {"metatags": "", "pathto": lambda name, resource: f"../{name}"}
    page = nodes.document("", "", "", nodes.section("", nodes.paragraph("", 'Say "this".')))
    social.add_tags(app, "a/b", "page.html", context, page)
    return context["metatags"]


def test_tags_name_an_address_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch):
    alone = tags("", monkeypatch)
    assert 'content="Say &quot;this&quot;."' in alone
    assert "og:url" not in alone
    assert 'content="../_static/card.png"' in alone
    published = tags("https://example.org/book/", monkeypatch)
    assert 'property="og:url" content="https://example.org/book/a/b.html"' in published
    assert 'content="https://example.org/book/_static/card.png"' in published


# Pages for maintainers

REPORT = """<testsuites><testsuite>
<testcase classname="chapters.01_a.ipynb" name="Cell 0" time="1.25"/>
<testcase classname="chapters.01_a.ipynb" name="Cell 1" time="0.5"><failure/></testcase>
<testcase classname="chapters.02_b.ipynb" name="Cell 0" time="2"/>
</testsuite></testsuites>"""


def test_execution_is_told_from_the_report(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    names = ["chapters/01_a", "chapters/02_b", "chapters/03_c"]
    rows = execution.table(names, execution.read(report)).splitlines()[2:]
    assert rows[0].endswith("| 2 | cells that differ: 1 | 1.8 |")
    assert rows[1].endswith("| 1 | agrees | 2.0 |")
    assert rows[2].endswith("|  | not measured in this build |  |")
    assert execution.read(tmp_path / "none.xml") == {}


def test_what_touches_a_formula_stays_on_its_line():
    line = nodes.paragraph("", "", nodes.Text("so ("), nodes.math("", "n"), nodes.Text("), then"))
    page = nodes.document(None, None, "", line)
    formulas.keep_together(None, page)
    before, bound, after = line
    assert (before.astext(), bound.astext(), after.astext()) == ("so ", "(n),", " then")


def test_an_error_is_announced_where_it_stands():
    printed = nodes.literal_block("", "1", classes=["output", "stream"])
    error = nodes.literal_block("", "no", classes=["output", "traceback"])
    outputs = nodes.container("", printed, error, classes=["cell_output"])
    cells.label_error(nodes.container("", outputs, classes=["cell"]))
    assert [part.astext() for part in outputs] == ["1", cells.EXPECTED, "no"]


def test_code_has_an_element_for_what_is_coloured_and_no_other():
    code = 'for x in names[1:]:  # all\n    print(f"{x} is not", "so")\n'
    written = highlight(code, PythonLexer(), cells.SizedFormatter())
    marked = re.findall(r'<span class="(\w+)">(.*?)</span>', unescape(written))
    assert marked == [
        *[("k", "for"), ("k", "in"), ("m", "1"), ("c", "# all")],
        *[("s", 'f"'), ("s", ' is not"'), ("s", '"so"')],
    ]
    assert unescape(re.sub("<[^>]+>", "", written)).strip() == code.strip()


@pytest.mark.parametrize("module", [breaks, cells, claims, folds, formulas, symbols, tables])
def test_what_is_written_into_pages(module: ModuleType):
    examples = doctest.testmod(module)
    assert (examples.failed, examples.attempted > 0) == (0, True)


def test_a_long_line_breaks_before_what_follows_a_call_and_not_in_numbers():
    line = "x = scores.masked_fill(~mask,-torch.inf).double().unique() >= 1e-12"
    written = cells.hanging(line, line)
    parts = [re.sub("<[^>]+>", "", part) for part in written.split("<wbr>")]
    ends = [".double()", ".unique() >= 1e-12"]
    assert parts == ["x = scores.masked_fill(", "~mask,-torch.inf)", *ends]
    assert re.findall(r'"joined">(.+?)<', written) == ["~mask,", "-t", ">= 1e", "-1"]
    behind = 'with torch.device("meta"):  # no memory: it is counted'
    shown = highlight(behind, PythonLexer(), cells.SizedFormatter())
    assert re.findall(r'class="(long remarked|code|c remark)"', shown) == [
        "long remarked",
        "code",
        "c remark",
    ]


def test_tables_of_cells_and_text_tell_what_they_hold():
    table = Table(("five starts", "KL", "breaks"), ("whole", "0.005 (0.004–0.006)", "nothing"))
    written = tables.printed(table._repr_html_(), "What heads share")
    assert written.startswith('<table aria-label="What heads share"><thead><tr><th scope="col">')
    assert '<td class="numbers">0.005 (<span class="joined">0.004–0.006</span>)</td>' in written
    assert '<td class="words">nothing</td>' in written
    counted = tables.printed(Table(("width", "kept"), (8, 64), (64, 4224))._repr_html_(), "")
    assert 'class="numbers">width</th>' in counted
    assert ">4,224</td>" in counted


def test_tables_too_wide_for_a_phone_keep_what_they_say():
    head = ("five starts", "KL (least–most)", "number", "gender", "surname", "owner")
    row = ("layers share", "0.0050 (0.0046–0.0053)", *["1.00"] * 4)
    written = tables.printed(Table(head, row)._repr_html_(), "Layers")
    assert written.startswith('<table class="wide" aria-label="Layers" role="table"')
    assert re.findall(r'role="(\w+header)"', written) == ["columnheader"] * 6 + ["rowheader"]
    assert "role" not in tables.printed(Table(head[:3], row[:3])._repr_html_(), "Layers")


def test_names_in_two_cells_are_heads_both():
    entries = [(8, "divided", 0.1), (8, "undivided", 0.2)]
    written = tables.printed(Table(("width", "rows", "KL"), *entries)._repr_html_(), "")
    assert written.count('<th scope="row"') == 4


def test_a_printed_number_stays_with_what_it_counts():
    counts = "right in the sentences of both halves: 19 of 20"
    shown = highlight(counts, TextLexer(), cells.SizedFormatter())
    assert '<span class="joined">19 of 20</span>' in shown


def test_another_theme_is_noticed():
    with pytest.raises(ExtensionError, match="no longer holds"):
        theme.decided("<html></html>", "book/index")


def test_the_reference_has_every_module():
    page = (BOOK / "reference.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\.\. automodule:: labkit\.([\w.]+)$", page, re.MULTILINE))
    assert told == modules_of(labkit) - INTERNAL


def modules_of(package: ModuleType) -> set[str]:
    """Name the modules that a notebook may import."""
    found = {module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
    found |= {"labs", "labs.laboratory", "ledger", "figures.live", "figures.plots"}
    models = pkgutil.iter_modules(import_module("labkit.models").__path__)
    return found | {f"models.{module.name}" for module in models}
