"""The first page's ways into the book, how long a page takes, and what its reader has read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from labkit import ledger
from press import ROOT, contents, minutes
from press.drawings.thumbnails import THUMBNAILS
from press.extension.claims import KINDS
from press.extension.drawings import closed, opened, raw, within
from press.extension.lab_list import drawing_of
from press.labs import TOPICS
from press.notebooks import outputs, read, title

WORDS = re.compile(r'<text.*?</text>\n?| role="img" aria-label="[^"]*"', re.DOTALL)
FOOT = 20  # of a lab's picture: a line that says what is shown
SIZE = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
BOX = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"')
LINE = re.compile(r'<path d="(M[^z"]+)"')


class Tiles(SphinxDirective):
    """Lead to each page of a folder, with its picture and minutes, or its claims."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = self.arguments[0]
        tiles: list[nodes.Node] = [opened(f"front-cards front-{folder}", "list")]
        for place, name in enumerate(contents.notebooks(folder)):
            self.env.note_dependency(str(notebook(name)))
            if folder == "labs":
                self.env.note_dependency(str(drawing_of(list(TOPICS)[place])))
            tiles.append(opened("front-card", "listitem"))
            if folder != "audits":
                tiles.append(raw(picture(folder, place)))
            tiles += self.parse_text_to_nodes(f"[{title(notebook(name))}](/{name})")
            told = claims_text(name) if folder == "audits" else duration_text(name)
            tiles += [nodes.paragraph("", told, classes=["front-minutes"]), closed()]
        for path in ledger.DOCUMENTS.glob("*.yml"):
            self.env.note_dependency(str(path))
        self.env.note_dependency(str(contents.CONTENTS))
        return [*tiles, closed()]


class Route(SphinxDirective):
    """List chapters, each with its minutes without the exercises, and their sum."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        lines, total = ["| Minutes | What |", "|--:|---|"], 0
        for name in self.content:
            self.env.note_dependency(str(notebook(name)))
            reading = minutes.of_chapter(read(notebook(name))).reading
            total += reading
            lines.append(f"| {reading} | [{title(notebook(name))}](/{name}) |")
        lines.append(f"| {total} | together |")
        return self.parse_text_to_nodes("\n".join(lines))


class Reckoning(SphinxDirective):
    """Say how the minutes are made."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(
            f"The minutes are reckoned from the page when it is built: {minutes.WORDS_A_MINUTE} "
            f"words outside folds a minute, {minutes.A_CELL} minute for each cell of code with "
            f"what it puts out, {minutes.A_QUESTION} for each question of the quiz, "
            f"{minutes.AN_EXERCISE} for each exercise, rounded to {minutes.ROUND_TO}. A lab's are "
            "the sum of those on its exercises."
        )


def notebook(name: str) -> Path:
    return ROOT / f"{name}.ipynb"


def duration_text(name: str) -> str:
    """Say in two words how long a chapter or a lab takes."""
    if name.startswith("chapters/"):
        return f"{minutes.of_chapter(read(notebook(name))).all} minutes"
    return f"{minutes.of_lab(read(notebook(name)))} minutes"


def claims_text(name: str) -> str:
    """Say how many claims an audit shows, and how many of them are wrong."""
    data = (output.get("data", {}) for output in outputs(read(notebook(name))))
    shown = [told[mime] for told in data for mime in KINDS if mime in told]
    claims = {f"{one['document']}/{one['id']}" for one in shown}
    wrong = sum(ledger.find_claim(key).verdict == "wrong" for key in claims)
    return f"{len(claims)} claims, {wrong or 'none'} wrong"


def full_duration_text(name: str) -> str:
    """Say how long a chapter or a lab takes, and a chapter without its exercises."""
    if not name.startswith("chapters/"):
        return duration_text(name)
    reading = minutes.of_chapter(read(notebook(name))).reading
    return f"{duration_text(name)}, {reading} without the exercises"


def picture(folder: str, place: int) -> str:
    """Draw a chapter's thumbnail, or the picture of a lab's card without its words."""
    if folder == "chapters":
        drawing = THUMBNAILS[place]().svg()
    else:
        drawing = drawing_of(list(TOPICS)[place]).read_text(encoding="utf-8")
        drawing = without_words(drawing)
    svg = within(drawing, f"card-{folder}-{place}")
    return f'<span class="drawing front-picture" aria-hidden="true">{svg}</span>'


def without_words(svg: str) -> str:
    """Leave out a picture's words, and put in the middle what remains."""
    svg = WORDS.sub("", svg)
    boxes = [(float(left), float(wide)) for left, wide in BOX.findall(svg)]
    ends = [x for left, wide in boxes for x in (left, left + wide)]
    ends += [float(x) for line in LINE.findall(svg) for x in re.findall(r"[ML](\S+) ", line)]

    def frame(found: re.Match[str]) -> str:
        width, height = map(int, found.groups())
        left = (min(ends) + max(ends) - width) / 2
        return f'viewBox="{left:g} 0 {width} {height - FOOT}"'

    return SIZE.sub(frame, svg, count=1)


def opening() -> nodes.Element:
    """Lead from a lab to where its notebook is, and how it is opened."""
    to = {"refdomain": "std", "reftype": "doc", "reftarget": "/labs/index"}
    return pending_xref("", nodes.inline("", "download or open it"), refexplicit=True, **to)


def add_minutes(app: Sphinx, doctree: nodes.document) -> None:
    """Write under the title of a chapter or a lab how long it takes, and how a lab is opened."""
    name = app.env.docname
    if name in (*contents.notebooks("chapters"), *contents.notebooks("labs")):
        heading = next(iter(doctree.findall(nodes.title)))
        said = nodes.paragraph("", full_duration_text(name))
        if name.startswith("labs/"):
            said += [nodes.Text("; "), opening()]
        # Not a paragraph of the section: the first of those describes the page.
        line = nodes.container("", said, classes=["front-minutes", "front-length"])
        heading.parent.insert(heading.parent.index(heading) + 1, line)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("tiles", Tiles)
    app.add_directive("route", Route)
    app.add_directive("reckoning", Reckoning)
    app.connect("doctree-read", add_minutes)
    app.add_css_file("front.css")
    app.add_js_file("progress.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
