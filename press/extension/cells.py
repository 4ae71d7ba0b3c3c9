"""Cells on the page: verdicts stand beside their idea, an expected error says so, code out of sight
has its height before it is laid out, and a line too long for a phone can hang.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import pairwise, takewhile
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Token
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

TAG = re.compile("<[^>]+>")
EXPECTED = "The error that was expected"
PHONE = 36  # columns of code that the narrowest phones show
NARROWER = 12  # by which code is narrower there in a fold, and behind what hangs
# Where a line may end: behind a bracket or a comma, and where these are too far apart before a dot.
BREAK = re.compile(r"""(?<=[(\[{])(?![)\]}])|(?<=,)""")
DOT = re.compile(r"""(?<=[\w)\]"'])(?=\.[A-Za-z_])""")
# A string, as written and as coloured; a remark's sign with its first word; a line's beginning.
WRITTEN = re.compile(r"""(?<!\w)[bfr]?(["'])(?:(?!\1).)+\1""")
STRING = re.compile(
    r"""<span class="s">[bfr]?(&quot;|&\#39;|["'])(?:<[^>]+>|(?!\1)[^<])+\1</span>"""
)
BEGINNING = re.compile(r"^( +)([^<&\s]|&#?\w+;)")
REMARK = re.compile(r'(<span class="c">)(# ?[^\s<]+)')
UNANSWERED = " is still the stub.\n"  # what an exercise's check says before there is an answer
SOME = 3  # names that a fold's line has
PRINTED = 50  # columns of what is printed that phones show in small type
NUMBER = re.compile(r"""(?<![\w.])[\[('"−-]*\d[\d.,]*""")
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
WHOLE = 42  # characters of code in a sentence that a wide window keeps on one line
TALL = 24  # lines on a phone that are more than half of its screen
# A minus sign or hyphen and what it belongs to; tags, which stay as they are.
HYPHEN = re.compile(r'<[^>]+>|(-(?:\w|&gt;|<span class="m">[^<]*</span>))')
COLOURED = (
    Token.Keyword,
    Token.Literal.String,
    Token.Literal.Number,
    Token.Comment,
    Token.Generic.Prompt,
    Token.Name.Exception,
)
NAME = ' aria-label="Toggle hidden content"'  # by which MyST-NB hides what a fold says


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    cells = [node for node in doctree.findall(nodes.container) if "cell" in node["classes"]]
    folds = [cell for cell in cells if is_fold(cell)]
    for fold in folds:
        count_lines(fold)
    name_rows(folds)
    for code in doctree.findall(nodes.literal):
        if len(code.astext()) <= WHOLE:
            code["classes"] += ["whole"]
    for cell in cells:
        leave_out_unanswered(cell)
        if is_verdict(cell) and "beside" not in cell.parent["classes"]:
            put_beside(cell)
        if "tag_raises-exception" in cell["classes"]:
            label_error(cell)


def leave_out_unanswered(cell: nodes.container) -> None:
    """Leave out what a lab says to who has not begun: a reader of the page cannot."""
    for output in list(cell.children):
        told = output.astext() if "cell_output" in output.get("classes", []) else ""
        if UNANSWERED in f"{told}\n":
            cell.remove(output)


def is_verdict(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and "tag_margin" in node["classes"]


def put_beside(first: nodes.container) -> None:
    """Bind a verdict, and those that follow it, to what stands before them.

    Left to float from where they stand, they begin below their idea, and reach beside the next.
    """
    parent = first.parent
    at = parent.index(first)
    verdicts = list(takewhile(is_verdict, parent[at:]))
    idea = [] if isinstance(parent[at - 1], nodes.title) else [parent[at - 1]]
    start = at - len(idea)
    margin = nodes.container("", *verdicts, classes=["verdicts"])
    bound = nodes.container("", *idea, margin, classes=["beside"])
    parent[start : at + len(verdicts)] = [bound]


def label_error(cell: nodes.container) -> None:
    """Say above an error that it is what the cell shows."""
    for error in list(cell.findall(nodes.literal_block)):
        if "traceback" in error["classes"]:
            label = nodes.paragraph("", EXPECTED, classes=["expected"])
            error.parent.insert(error.parent.index(error), label)


def is_fold(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("hide_mode") in ("input", "all")


def is_line(fold: nodes.container) -> bool:
    """Say whether nothing but the fold is seen of a folded cell."""
    shown = any("cell_output" in part["classes"] for part in fold.findall(nodes.container))
    return fold["hide_mode"] == "all" or not shown


def name_rows(folds: list[nodes.container]) -> None:
    """Let folds that stand in a row, with nothing between, say what each of them is for."""
    following = [fold.next_node(descend=False, siblings=True) for fold in folds]
    pairs = [
        (fold, after)
        for fold, after in zip(folds, following, strict=True)
        if after in folds and is_line(fold)
    ]
    for fold, _ in pairs:
        fold["classes"] += ["folded"]
    for fold in folds:
        if any(fold in pair for pair in pairs):
            fold["prompt_show"] += defined(code_of(fold))


def defined(code: str) -> str:
    """Name what code defines, or say that it imports.

    >>> defined("import torch"), defined("def f(): ..."), defined("f()")
    (': imports', ': f', '')
    """
    tree = ast.parse(code)
    names = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    if any(isinstance(one, ast.Import | ast.ImportFrom) for one in tree.body):
        names = ["imports", *names]
    return ": " * bool(names) + ", ".join([*names[:SOME], *["…"] * (len(names) > SOME)])


def code_of(cell: nodes.container) -> str:
    return next(iter(cell.findall(nodes.literal_block))).astext()


def count_lines(cell: nodes.container) -> None:
    """Let the line that code is folded into say how much there is."""
    lines = len(code_of(cell).splitlines())
    what = f"{lines} lines" if lines > 1 else "a line"
    more = " and what they print" if cell["hide_mode"] == "all" else ""
    cell["prompt_show"], cell["prompt_hide"] = f"Show {what} of code{more}", "Hide the code"


class SizedFormatter(HtmlFormatter[str]):
    """Tell the style sheet the lines and columns of a block of code, and what it colours."""

    def format_unencoded(self, tokens: Iterable[tuple[Any, str]], file: Any) -> None:
        """Mark only what has a colour: most of a chapter's elements were names and signs."""
        told = [(coloured(kind), text) for kind, text in tokens]
        self.is_printed = all(kind is Token.Text for kind, _ in told)
        super().format_unencoded(told, file)

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        lines = list(source)
        texts = [plain(line).rstrip("\n") for _, line in lines]
        wrapped = sum(max(1, -(-len(text) // PHONE)) for text in texts)
        columns = max(map(len, texts))
        size = f"--lines: {len(lines)}; --columns: {columns}; --on-a-phone: {wrapped}"
        rows = rows_of(texts) if self.is_printed else set[int]()
        fine = self.is_printed and (columns <= PRINTED or any(len(texts[i]) > PHONE for i in rows))
        names = " ".join(["tall"] * (wrapped > TALL) + ["fine"] * (fine and columns > PHONE))
        marked = f' class="{names}"' if names else ""
        shown = [
            (kind, f'<span class="aligned">{line}</span>' if i in rows else hanging(line, texts[i]))
            for i, (kind, line) in enumerate(lines)
        ]
        return super().wrap(iter([(0, f'<code{marked} style="{size}">'), *shown, (0, "</code>")]))


def rows_of(texts: list[str]) -> set[int]:
    """Find the lines of an output that stand in columns with a line beside them.

    >>> rows_of(["of 2 runs:  right", "SGD  1:     0.05", "SGD 10:     0.95", "both: 2"])
    {0, 1, 2}
    """
    rows = {i + j for i, pair in enumerate(pairwise(texts)) if are_aligned(*pair) for j in (0, 1)}
    return rows | {i - 1 for i in rows if i and GAP.search(texts[i - 1])}


def are_aligned(line: str, after: str) -> bool:
    numbers, others = (
        {at for found in NUMBER.finditer(text) if found.start() for at in found.span()}
        for text in (line, after)
    )
    gaps, their_gaps = ({gap.end() for gap in GAP.finditer(text)} for text in (line, after))
    return bool(gaps & (their_gaps | others) or their_gaps & numbers or len(numbers & others) > 2)


def plain(html: str) -> str:
    """Give the text of a piece of HTML."""
    return unescape(TAG.sub("", html))


def hanging(line: str, text: str) -> str:
    """Let the rest of a line that is too long for a phone stand under its beginning.

    It breaks between words, where these are long between tokens, and never at a sign of minus.
    """
    if len(text) <= PHONE:
        return line
    indent = len(text) - len(text.lstrip())
    room = PHONE - NARROWER - indent
    line = HYPHEN.sub(joined, breakable(line, text, room))
    line = STRING.sub(lambda match: kept(match, room), line)
    line = BEGINNING.sub(r'<span class="joined">\1\2</span>', line)
    line = REMARK.sub(r'\1<span class="joined">\2</span>', line)
    if not text.lstrip().startswith("#"):
        line = line.replace('<span class="c">', '<span class="c remark">')
    return f'<span class="long" style="--indent: {indent}">{line}</span>'


def joined(match: re.Match[str]) -> str:
    return f'<span class="joined">{match[1]}</span>' if match[1] else match[0]


def kept(match: re.Match[str], room: int) -> str:
    """Keep a string on one line that fits one."""
    fits = len(plain(match[0])) <= room
    return f'<wbr><span class="joined">{match[0]}</span>' if fits else match[0]


def breakable(line: str, text: str, room: int) -> str:
    """Write a line's HTML with the places at which words too long for the room may break.

    >>> breakable("mean(<b>tensor</b>.double().unique())", "mean(tensor.double().unique())", 26)
    'mean(<b><wbr>tensor</b>.double().unique())'
    """
    text = WRITTEN.sub(
        lambda match: "_" * len(match[0]) if len(match[0]) <= room else match[0], text
    )
    words = [match.span() for match in re.finditer(r"\S+", text)]
    places = set[int]()
    for end in (BREAK, DOT):
        here = {place for word in words for place in places_in(text, word, end, room)}
        places |= here
        words = [piece for word in words for piece in cut(word, here)]
    written, at = list[str](), 0
    for piece in re.findall(r"<[^>]+>|&#?\w+;|.|\n", line):
        if not piece.startswith("<"):
            if at in places:
                written.append("<wbr>")
            at += 1
        written.append(piece)
    return "".join(written)


def places_in(text: str, word: tuple[int, int], end: re.Pattern[str], room: int) -> Iterator[int]:
    start, stop = word
    if stop - start > room:
        yield from (at.start() for at in end.finditer(text, *word) if start < at.start() < stop)


def cut(word: tuple[int, int], places: set[int]) -> list[tuple[int, int]]:
    ends = [word[0], *sorted(at for at in places if word[0] < at < word[1]), word[1]]
    return list(pairwise(ends))


def coloured(kind: Any) -> Any:
    """Find the kind by which book.css colours a token, or plain text."""
    if kind in Token.Literal.String.Interpol:
        return Token.Text
    if kind in Token.Operator.Word:
        return Token.Keyword
    return next((one for one in COLOURED if kind in one), Token.Text)


def name_folds(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let folded code be called what its line says."""
    if "body" in context:
        context["body"] = context["body"].replace(NAME, "")


def setup(app: Sphinx) -> dict[str, Any]:
    PygmentsBridge.html_formatter = SizedFormatter
    app.connect("doctree-read", arrange)
    app.connect("html-page-context", name_folds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
