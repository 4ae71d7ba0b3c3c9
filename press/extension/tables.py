"""Tables on the page, printed by a cell or written in the text: one look, and names to listen to.

Numbers stand to the right, a range is never torn, the first entry names its row, and a table
without a caption is called after its columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from press.extension.cells import plain
from press.texts import section_of, text_of

RANGE = re.compile(r"\d[\d.,]*(?:–| to )\d[\d.,]*")
ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<(t[dh])\b([^>]*)>(.*?)</\1>", re.DOTALL)
WRITTEN = re.compile(r'<table class="table|<th class="(head|stub)')
NUMBERS = re.compile(r"(?!.*=)(?:[\W\d]|(?<![a-z])(?:[KMGT]?B|ms|inf|nan|to|of)(?![a-z]))*")
MATRIX = '<table class="matrix">'
SOME = 8  # words that name a table
THOUSANDS = re.compile(r"[1-9]\d{3,}")
WIDE = re.compile(r'<table aria-label="[^"]*" class="table wide\b.*?</table>', re.DOTALL)
ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}
TAG = re.compile(r"<(table|thead|tbody|tr|t[dh])\b([^>]*)>")
PHONE = 345  # pixels that a table has there; a character has LETTER, a column GAP beside it
LETTER, GAP, NAMES, LEAST_COLUMN, SENTENCE = 7.3, 10, 80, 46, 150
SHORT = 8  # characters of names that stay beside their numbers
LONG = 16  # characters of words that need a column of their own width, of numbers that break
NAME = 24  # characters of a row's name that a wide window keeps on one line
MARK = 7  # characters of a word that is one of a few answers
NONE = {"–", "none", "not measured"}  # in a column of numbers
DATE = re.compile(r"\d{4}-\d\d-\d\d")
COUNTED = re.compile(r"[\w<>/]+ (?:= )?\d[\d,.]*(?= |$)|\b[A-Z]+-\d\S*")  # a word with its number


def dress(app: Sphinx, doctree: nodes.document) -> None:
    """Let the columns of each table know what they hold."""
    for table in doctree.findall(nodes.table):
        dress_written(table)
    tables = list(doctree.findall(is_table))
    names = dict(called([table for table in tables if not is_captioned(table)]))
    for table in tables:
        if isinstance(table, nodes.table):
            table["called"] = names[table]
        else:
            table.children[:] = [nodes.Text(dressed(table.astext(), names.get(table, "")))]


def is_table(node: nodes.Node) -> bool:
    if isinstance(node, nodes.raw):
        return node.astext().startswith(("<table>", MATRIX))
    return isinstance(node, nodes.table)


def is_captioned(node: nodes.Node) -> bool:
    return isinstance(node, nodes.raw) and "<caption>" in node.astext()


def dressed(table: str, name: str) -> str:
    if table.startswith("<table>"):
        return printed(table, name)
    if name:
        table = table.replace(MATRIX, f'{MATRIX[:-1]} aria-label="{escape(name)}">', 1)
    return numbered(table) if "<thead>" not in table and 'scope="row"' in table else table


def numbered(matrix: str) -> str:
    """Number a matrix's columns for who hears it: beside a row's name its numbers have no place."""
    columns = ROW.findall(matrix)[0].count("<td>")
    heads = "".join(f'<th scope="col">{column + 1}</th>' for column in range(columns))
    head = f'<thead class="front-told"><tr><td></td>{heads}</tr></thead>'
    return matrix.replace("<tbody>", f"{head}<tbody>", 1)


def called(tables: list[nodes.Element]) -> Iterator[tuple[nodes.Element, str]]:
    """Call each table after its columns, and after its section where these are not enough.

    That is where several share them, or nothing stands above the names of the rows.
    """
    columns = list(map(columns_of, tables))
    counts = Counter[str]()
    for table, name in zip(tables, columns, strict=True):
        if columns.count(name) > 1 or not "".join(heads_of(table)[:1]).strip():
            name = ": ".join(filter(None, [title_of(table), name]))
        counts[name] += 1
        yield table, name if counts[name] == 1 else f"{name}, table {counts[name]}"


def columns_of(table: nodes.Element) -> str:
    """Say what names a table's rows, and what is compared of them, in few words.

    >>> columns_of(nodes.raw("", "<tr><th>kind</th><th>width</th><th>learned</th></tr>"))
    'kind: width, learned'
    >>> columns_of(nodes.raw("", "<tr><td>0.5</td></tr>"))
    ''
    """
    first, *others = heads_of(table) or [""]
    return ": ".join(filter(None, [in_few_words(first), few_of([*filter(None, others)])]))


def few_of(names: Sequence[str]) -> str:
    """List the first of many names, and count the rest.

    >>> few_of(["right both times", "wrong both times", "first alone right", "second alone right"])
    'right both times, wrong both times and 2 more'
    """
    words = accumulate(len(name.split()) for name in names)
    shown = max(1, sum(count <= SOME for count in words))
    more = len(names) - shown
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {more} more"


def title_of(table: nodes.Element) -> str:
    section = section_of(table)
    return in_few_words(re.split(r"[,:?;…(]", text_of(section[0]))[0] if section else "Table")


def in_few_words(text: str) -> str:
    words = text.split()
    return " ".join(words[:SOME]).rstrip(",:") + "…" if len(words) > SOME else " ".join(words)


def heads_of(table: nodes.Element) -> list[str]:
    if isinstance(table, nodes.table):
        group = next(iter(table.findall(nodes.thead)), None)
        return [text_of(entry) for entry in group.findall(nodes.entry)] if group else []
    first = next(iter(ROW.findall(table.astext())), "")
    heads = [plain(text) for tag, _, text in CELL.findall(first) if tag == "th"]
    return heads if len(heads) > 1 else []  # one is the row's name


def kind(texts: Iterable[str]) -> str:
    """Say what a column holds: numbers, few words, or many.

    >>> kind(["0.5 (0.4–0.6)", "–"]), kind(["right", "wrong"]), kind(["4 KB", "nothing is right"])
    ('numbers', 'words', 'words')
    """
    told = [text for text in texts if text]
    numbers = [text for text in told if NUMBERS.fullmatch(text) and re.search(r"\d", text)]
    if 2 * len(numbers) > sum(text not in NONE for text in told):
        return "numbers"
    return "words long" if max(map(len, told), default=0) > LONG else "words"


def of_column(at: int, texts: Sequence[str]) -> str:
    """Say what a column holds; of the first, which names the rows, only whether that is numbers.

    >>> of_column(1, ["right", "wrong", "right"]), of_column(0, ["none", "half"])
    ('words marks', '')
    """
    what = kind(texts)
    told = [text for text in texts if text]
    if at and what == "words" and len({*told}) < min(len(told), 4):
        what += " marks" * all(len(text) <= MARK and " " not in text for text in told)
    return what if at or what == "numbers" else ""


def is_whole(text: str) -> bool:
    """Say whether an entry is short enough to stay on its line: numbers, or a date."""
    is_numbers = NUMBERS.fullmatch(text) or DATE.fullmatch(text)
    return len(text) <= LONG and is_numbers is not None


def on_a_phone(rows: Sequence[Sequence[str]]) -> str:
    """Say whether a phone is too narrow for the columns, and whether short names stay beside them.

    >>> on_a_phone([["KL", "owner"], ["0.01", "0.5"]]), on_a_phone([["a phone"] * 9])
    ('', 'wide abreast')
    """
    columns = list(zip(*rows, strict=False))
    least = [max(map(least_width, column)) for column in columns]
    least[1:] = [
        max(width, SENTENCE if kind(column[1:]) == "words long" else 0)
        for width, column in zip(least[1:], columns[1:], strict=True)
    ]
    if max(least[0], NAMES) + sum(least[1:]) + GAP * len(least) <= PHONE:
        return ""
    return "wide abreast" if max(map(len, columns[0])) <= SHORT else "wide"


def least_width(text: str) -> float:
    words = [text] if is_whole(text) else RANGE.sub(lambda found: "0" * len(found[0]), text).split()
    return max(LEAST_COLUMN, LETTER * max(map(len, words), default=0))


def for_a_phone(table: str) -> str:
    """Let a phone put the name of each row above its numbers; what that undoes is said in roles."""
    columns = len(re.findall(r"<t[dh]\b", table[: table.index("</tr>")]))

    def tag(match: re.Match[str]) -> str:
        role = ROLES.get(match[1]) or ("columnheader" if "col" in match[2] else "rowheader")
        style = f' style="--columns: {columns}"' if match[1] == "table" else ""
        return f'<{match[1]}{match[2]} role="{role}"{style}>'

    return TAG.sub(tag, table)


def dress_written(table: nodes.table) -> None:
    """Name the rows of a table of the text by their first entries, and mark its columns."""
    group = next(iter(table.findall(nodes.tgroup)))
    specs = [node for node in group if isinstance(node, nodes.colspec)]
    if len(specs) > 1:
        specs[0]["stub"] = 1
    rows = [list(row) for row in table.findall(nodes.row)]
    table["wide"] = on_a_phone([list(map(text_of, row)) for row in rows])
    for i, column in enumerate(zip(*rows, strict=False)):
        aligned = any("text-" in name for entry in column for name in entry["classes"])
        what = of_column(i, [*map(text_of, column[1:])]).split()
        if i and len(text_of(column[0])) > LONG:
            column[0]["classes"] += ["long"]
        for entry in [] if i else column[1:]:
            entry["classes"] += ["named"] if len(text_of(entry)) <= NAME else []
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
    two = names_in_two(rows)
    at = iter([cell for row in rows for cell in enumerate(heads if row is rows[0] else kinds)])

    def cell(match: re.Match[str]) -> str:
        column, what = next(at)
        held = RANGE.sub(r'<span class="joined">\g<0></span>', match[3])
        held = f"{int(held):,}" if THOUSANDS.fullmatch(held) else held.replace(" - ", " − ")
        if "col" in match[2]:
            held = COUNTED.sub(r'<span class="counted">\g<0></span>', held)
        if not column and "row" in match[2] and len(plain(match[3])) <= NAME:
            what += " named"
        what = " ".join([*what.split(), *(["joined"] if is_whole(plain(match[3])) else [])])
        mark = f' class="{what}"' if what else ""
        if two and column == 1 and match[1] == "td":
            return f'<th scope="row"{match[2]}{mark}>{held}</th>'
        return f"<{match[1]}{match[2]}{mark}>{held}</{match[1]}>"

    label = "" if "<caption>" in table else f' aria-label="{escape(name)}"'
    shape = on_a_phone(rows)
    names = f' class="{shape}"' if shape else ""
    written = CELL.sub(cell, table).replace("<table>", f"<table{names}{label}>", 1)
    return for_a_phone(written) if shape else written


def names_in_two(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether a row is told from the others only by its first two entries together.

    >>> names_in_two([["width", "rows", "KL"], ["8", "raw", "1"], ["8", "divided", "2"]])
    True
    """
    entries = rows[1:]
    firsts, pairs = {row[0] for row in entries}, {tuple(row[:2]) for row in entries}
    seconds = kind(row[1] for row in entries if len(row) > 2)
    return len(firsts) < len(pairs) == len(entries) and seconds == "words"


def name_tables(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write what docutils leaves out: what a table is called, and what a head is the head of."""
    if doctree is None or "body" not in context:
        return
    tables = list(doctree.findall(nodes.table))
    context["body"] = WRITTEN.sub(named(iter(tables)), context["body"])
    context["body"] = WIDE.sub(lambda found: for_a_phone(found[0]), context["body"])


def named(tables: Iterator[nodes.table]) -> Callable[[re.Match[str]], str]:
    def tag(match: re.Match[str]) -> str:
        if match[1]:
            scope = "col" if match[1] == "head" else "row"
            return match[0].replace("<th", f'<th scope="{scope}"')
        table = next(tables)
        names = f"table {table['wide']}".strip()
        return f'<table aria-label="{escape(table["called"])}" class="{names}'

    return tag


def setup(app: Sphinx) -> dict[str, Any]:
    # Before formulas are bound to what touches them.
    app.connect("doctree-read", dress, priority=550)
    app.connect("html-page-context", name_tables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
