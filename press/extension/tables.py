"""Tables on the page, printed by a cell or written in the text: one look, and names to listen to.

Numbers stand to the right, a range is never torn, the first entry names its row, and a table
without a caption is called after its section.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import accumulate
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from press.extension.cells import plain
from press.extension.search import text_of

RANGE = re.compile(r"\d[\d.,]*(?:–| to )\d[\d.,]*")
ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<(t[dh])\b([^>]*)>(.*?)</\1>", re.DOTALL)
WRITTEN = re.compile(r'<table class="table|<th class="(head|stub)')
NUMBERS = re.compile(r"(?!.*=)(?:[\W\d]|(?<![a-z])(?:[KMGT]?B|ms|inf|nan|to|of)(?![a-z]))*")
MATRIX = '<table class="matrix">'
SOME = 8  # words that name a table
THOUSANDS = re.compile(r"[1-9]\d{3,}")
LONG = 16  # characters of words that need a column of their own width, of numbers that break


def dress(app: Sphinx, doctree: nodes.document) -> None:
    """Let the columns of each table know what they hold."""
    for table in doctree.findall(nodes.table):
        dress_written(table)
    for table, name in called(list(doctree.findall(is_table))):
        if isinstance(table, nodes.table):
            table["called"] = name
        else:
            table.children[:] = [nodes.Text(dressed(table.astext(), name))]


def is_table(node: nodes.Node) -> bool:
    if isinstance(node, nodes.raw):
        return node.astext().startswith(("<table>", MATRIX))
    return isinstance(node, nodes.table)


def dressed(table: str, name: str) -> str:
    if table.startswith("<table>"):
        return printed(table, name)
    if "<caption>" in table:
        return table
    return table.replace(MATRIX, f'{MATRIX[:-1]} aria-label="{escape(name)}">', 1)


def called(tables: list[nodes.Element]) -> Iterator[tuple[nodes.Element, str]]:
    """Call each table after its section, and those that share one by their columns."""
    titles = [title_of(table) for table in tables]
    columns = [holds(table) for table in tables]
    counts = Counter[str]()
    for table, title, held in zip(tables, titles, columns, strict=True):
        name = held if titles.count(title) > 1 and held and columns.count(held) == 1 else title
        counts[name] += 1
        yield table, name if counts[name] == 1 else f"{name}, table {counts[name]}"


def title_of(table: nodes.Element) -> str:
    section = section_of(table)
    words = text_of(section[0]).split() if section else ["Table"]
    return " ".join(words[:SOME]) + ("…" if len(words) > SOME else "")


def section_of(node: nodes.Element) -> nodes.Element | None:
    section = node.parent
    while section and not isinstance(section, nodes.section):
        section = section.parent
    return section


def holds(table: nodes.Element) -> str:
    """List the heads of a table's columns, or of its rows where these have none."""
    if isinstance(table, nodes.table):
        group = next(iter(table.findall(nodes.thead)), None)
        heads = [text_of(entry) for entry in group.findall(nodes.entry)] if group else []
    else:
        rows = [CELL.findall(row) for row in ROW.findall(table.astext())]
        first = rows[0] if all(tag == "th" for tag, *_ in rows[0]) else [row[0] for row in rows]
        heads = [plain(text) for tag, _, text in first if tag == "th"]
    known = [text for text in heads if text.strip()]
    words = list(accumulate(len(text.split()) for text in known))
    some = [text for text, count in zip(known, words, strict=True) if count <= SOME] or known[:1]
    return ", ".join([*some, *(["…"] if len(some) < len(known) else [])])


def kind(texts: Iterable[str]) -> str:
    """Say what a column holds: numbers, few words, or many.

    >>> kind(["0.5 (0.4–0.6)", "–"]), kind(["right", "wrong"]), kind(["4 KB", "nothing is right"])
    ('numbers', 'words', 'words')
    """
    told = [text for text in texts if text]
    numbers = [text for text in told if NUMBERS.fullmatch(text) and re.search(r"\d", text)]
    if 2 * len(numbers) > sum(text != "–" for text in told):
        return "numbers"
    return "words long" if max(map(len, told), default=0) > LONG else "words"


def of_column(at: int, texts: Iterable[str]) -> str:
    """Say what a column holds; of the first, which names the rows, only whether that is numbers."""
    what = kind(texts)
    return what if at or what == "numbers" else ""


def is_whole(text: str) -> bool:
    """Say whether an entry is short enough to stay on its line."""
    return len(text) <= LONG and NUMBERS.fullmatch(text) is not None


def dress_written(table: nodes.table) -> None:
    """Name the rows of a table of the text by their first entries, and mark its columns."""
    group = next(iter(table.findall(nodes.tgroup)))
    specs = [node for node in group if isinstance(node, nodes.colspec)]
    if len(specs) > 1:
        specs[0]["stub"] = 1
    rows = [list(row) for row in table.findall(nodes.row)]
    for i, column in enumerate(zip(*rows, strict=False)):
        aligned = any("text-" in name for entry in column for name in entry["classes"])
        what = of_column(i, map(text_of, column[1:])).split()
        if i and len(text_of(column[0])) > LONG:
            column[0]["classes"] += ["long"]
        for entry in column:
            entry["classes"] += [name for name in what if not (aligned and name == "numbers")]
            entry["classes"] += ["joined"] if is_whole(text_of(entry)) else []
    for text in list(table.findall(nodes.Text)):
        if RANGE.search(text):
            pieces = re.split(f"({RANGE.pattern})", text)
            text.parent.replace(
                text,
                [
                    nodes.inline("", piece, classes=["joined"]) if i % 2 else nodes.Text(piece)
                    for i, piece in enumerate(pieces)
                ],
            )


def printed(table: str, name: str) -> str:
    """Write a table that a cell has printed with what its columns hold, and with its name."""
    rows = [[plain(cell[2]) for cell in CELL.findall(row)] for row in ROW.findall(table)]
    kinds = [of_column(i, texts[1:]) for i, texts in enumerate(zip(*rows, strict=True))]
    heads = [
        f"{what} long" if i and len(text) > LONG and "long" not in what else what
        for i, (what, text) in enumerate(zip(kinds, rows[0], strict=True))
    ]
    at = iter([what for row in rows for what in (heads if row is rows[0] else kinds)])

    def cell(match: re.Match[str]) -> str:
        held = RANGE.sub(r'<span class="joined">\g<0></span>', match[3])
        held = f"{int(held):,}" if THOUSANDS.fullmatch(held) else held
        what = " ".join([next(at), *(["joined"] if is_whole(plain(match[3])) else [])]).strip()
        mark = f' class="{what}"' if what else ""
        return f"<{match[1]}{match[2]}{mark}>{held}</{match[1]}>"

    label = "" if "<caption>" in table else f' aria-label="{escape(name)}"'
    return CELL.sub(cell, table).replace("<table>", f"<table{label}>", 1)


def name_tables(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write what docutils leaves out: what a table is called, and what a head is the head of."""
    if doctree is None or "body" not in context:
        return
    names = iter([table["called"] for table in doctree.findall(nodes.table)])
    context["body"] = WRITTEN.sub(named(names), context["body"])


def named(names: Iterator[str]) -> Callable[[re.Match[str]], str]:
    def tag(match: re.Match[str]) -> str:
        if match[1]:
            scope = "col" if match[1] == "head" else "row"
            return match[0].replace("<th", f'<th scope="{scope}"')
        return match[0].replace("<table", f'<table aria-label="{escape(next(names))}"')

    return tag


def setup(app: Sphinx) -> dict[str, Any]:
    # Before formulas are bound to what touches them.
    app.connect("doctree-read", dress, priority=550)
    app.connect("html-page-context", name_tables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
