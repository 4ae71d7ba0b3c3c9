"""How long a chapter or a lab takes, from what stands on its page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nbformat import NotebookNode

from press.labs import cards

FOLD = r"<details>(?:(?!<details>).)*?</details>"
DRAWING = r"!\[[^\]]*\]\(\.\./book/drawings/[\w-]+\.svg(?: \"[^\"]*\")?\)"
EXERCISE = re.compile(r"^\d+\. ", re.MULTILINE)
HIDDEN = {"hide-cell", "remove-input"}  # a folded cell, and one that leaves a verdict alone

# A text with formulas is read at about half the speed of a novel.
WORDS_A_MINUTE = 130
A_CELL, A_QUESTION, AN_EXERCISE = 1, 1, 3
ROUND_TO = 5


@dataclass(frozen=True)
class Minutes:
    """The minutes of a page: without its exercises, and with them."""

    reading: int
    all: int


def text(notebook: NotebookNode) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def words(prose: str) -> list[str]:
    """List the words that a reader sees without opening anything: no formula, no picture."""
    while re.search(FOLD, prose, re.DOTALL):
        prose = re.sub(FOLD, "", prose, flags=re.DOTALL)
    return re.sub(rf"{DRAWING}|</?[a-z][^<>]*>|\$\$.*?\$\$", "", prose, flags=re.DOTALL).split()


def of_chapter(notebook: NotebookNode) -> Minutes:
    """Add up words, cells of code with what they put out, questions of the quiz, and exercises."""
    prose = text(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    visible = [cell for cell in code if HIDDEN.isdisjoint(cell.metadata.get("tags", []))]
    questions = prose.count('class="quiz"')
    reading = len(words(prose)) / WORDS_A_MINUTE + A_CELL * len(visible) + A_QUESTION * questions
    exercises = prose.partition("\n## Exercises\n")[2].partition("\n## ")[0]
    all_exercises = AN_EXERCISE * len(EXERCISE.findall(exercises))
    return Minutes(rounded(reading), rounded(reading + all_exercises))


def of_lab(notebook: NotebookNode) -> int:
    """Add up what the cards of the exercises say."""
    return sum(minutes for _, minutes in cards(notebook))


def rounded(minutes: float) -> int:
    return ROUND_TO * round(minutes / ROUND_TO)
