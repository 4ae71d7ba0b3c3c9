"""Cells on the page: verdicts stand beside their idea, an expected error says so, code out of sight
has its height before it is laid out, and a line too long for a phone can hang.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import takewhile
from textwrap import wrap
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Token
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

from press import breaks

TAG = re.compile("<[^>]+>")
EXPECTED = "The error that was expected"
PHONE = 36  # columns of code that the narrowest phones show
PRINTED = 46  # of what cells print, which is smaller
NARROWER = 6  # by which code is narrower there in a fold, and behind what hangs
# Code in a sentence, and what Sphinx puts round each of its words.
LITERAL = re.compile(r'(<code class="[^"]*\bliteral\b[^"]*"[^>]*>)(.*?)</code>', re.DOTALL)
PRE = re.compile(r'<span class="pre">|</span>')
UNANSWERED = " is still the stub.\n"  # what an exercise's check says before there is an answer
SOME = 3  # names that a fold's line has
SENTENCE = 33  # characters of code in a sentence that the narrowest phones show
FEW = 16  # characters of code in a sentence that any window keeps on one line
WHOLE = 42  # characters of code in a sentence that a wide window keeps on one line
USUAL = 45  # columns that a phone of the usual width shows
TALL = 20  # lines on such a phone that are more than half of its screen
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
YOURS = '<p class="yours">Yours to write</p>'  # of a lab's code all else is given
OUTPUT = '<div class="cell_output docutils container">'
TOLD = '<div class="cell_output docutils container" role="group" aria-label="Output">'
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
        if "tag_exercise" in cell["classes"]:
            cell[0].insert(0, nodes.raw("", YOURS, format="html"))


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
        wrapped = sum(map(height, texts))
        columns = max(map(len, texts))
        size = f"--lines: {len(lines)}; --columns: {columns}; --on-a-phone: {wrapped}"
        names = "tall" if wrapped > TALL else ""
        marked = f' class="{names}"' if names else ""
        shown = [
            (kind, hanging(line, text, is_code=not self.is_printed))
            for (kind, line), text in zip(lines, texts, strict=True)
        ]
        return super().wrap(iter([(0, f'<code{marked} style="{size}">'), *shown, (0, "</code>")]))


def height(text: str) -> int:
    """Count the lines that a line takes on a phone of the usual width.

    >>> height(""), height("    " + "word " * 20)
    (1, 3)
    """
    hangs = " " * (len(text) - len(text.lstrip()) + 2)
    return max(1, len(wrap(text, USUAL, subsequent_indent=hangs, break_on_hyphens=False)))


def plain(html: str) -> str:
    """Give the text of a piece of HTML."""
    return unescape(TAG.sub("", html))


def hanging(line: str, text: str, *, is_code: bool = True) -> str:
    """Let the rest of a line that is too long for a phone stand under its beginning.

    It never breaks at a sign of minus. A remark behind code is told apart: it stands above, where
    there is no room.
    """
    columns = PHONE if is_code else PRINTED
    if len(text) <= columns:
        return line
    indent = len(text) - len(text.lstrip())
    line = breaks.marked(line, text, columns - NARROWER - indent, is_code=is_code)
    line = HYPHEN.sub(joined, line)
    code, mark, remark = line.rpartition('<span class="c">')
    if mark and breaks.is_whole(code) and not text.lstrip().startswith("#"):
        line = f'<span class="code">{code}</span><span class="c remark">{remark}'
        return f'<span class="long remarked" style="--indent: {indent}">{line}</span>'
    return f'<span class="long" style="--indent: {indent}">{line}</span>'


def joined(match: re.Match[str]) -> str:
    return f'<span class="joined">{match[1]}</span>' if match[1] else match[0]


def coloured(kind: Any) -> Any:
    """Find the kind by which book.css colours a token, or plain text."""
    if kind in Token.Literal.String.Interpol:
        return Token.Text
    if kind in Token.Operator.Word:
        return Token.Keyword
    return next((one for one in COLOURED if kind in one), Token.Text)


def in_sentence(match: re.Match[str]) -> str:
    """Let code in a sentence break as in a block."""
    tag, inner = match.groups()
    html = PRE.sub("", inner)
    text = plain(html)
    if len(text) <= FEW:
        return f'{tag}<span class="pre">{html}</span></code>'
    return tag + breaks.marked(html, text, SENTENCE, name="pre") + "</code>"


def write(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Tell outputs as such, call folded code by its line, and let code in sentences break."""
    if "body" in context:
        body = context["body"].replace(NAME, "").replace(OUTPUT, TOLD)
        context["body"] = LITERAL.sub(in_sentence, body)


def setup(app: Sphinx) -> dict[str, Any]:
    PygmentsBridge.html_formatter = SizedFormatter
    app.connect("doctree-read", arrange)
    app.connect("html-page-context", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
