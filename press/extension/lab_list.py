"""The labs in tables, from their notebooks: for learners, and for instructors with hub links.

The site carries what a lab needs, its notebook and labkit's wheel, as files to download.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press import BUILD, wheel
from press.labs import TOPICS, cards
from press.notebooks import LABS, read, tagged, title
from press.project import PROJECT, read_address, wheel_name

HUB = "https://HUB.EXAMPLE.ORG"
LEVELS = ("Easy", "Medium", "Hard")


class Labs(SphinxDirective):
    """List the labs: the exercises of documents that the content names by topic, minutes, level."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        for path in LABS:
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes(overview(named(self.content)))


class Wheel(SphinxDirective):
    """Offer labkit's wheel, which is built with the book."""

    def run(self) -> list[nodes.Node]:
        name = wheel_name()
        return self.parse_text_to_nodes(f"{{download}}`{name} </_build/wheel/{name}>`")


class Classes(SphinxDirective):
    """List the labs: exercises, minutes, and the hub's link if the book has an address."""

    def run(self) -> list[nodes.Node]:
        repository = read_address().repository
        for path in (*LABS, PROJECT):
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes(f"{table(LABS)}\n\n{links(LABS, repository)}")


def named(lines: Iterable[str]) -> dict[str, str]:
    """Read what a lab answers to, by its topic, from lines such as "scaling: Exercise 2.3.1"."""
    return dict(line.split(": ", 1) for line in lines)


def overview(asked: dict[str, str]) -> str:
    """Write what a learner chooses by: what is asked, how long it takes, and how hard it is."""
    lines = [
        "| Lab | Exercise of the document | Minutes | Difficulty | Download |",
        "|---|---|---|---|---|",
    ]
    for topic, path in TOPICS.items():
        levels, minutes = zip(*cards(read(path)), strict=True)
        ordered = sorted(set(levels), key=LEVELS.index)
        hard = " to ".join(dict.fromkeys((ordered[0].lower(), ordered[-1].lower())))
        link = linked(path).replace("[Lab ", "[").replace(":", ".", 1)
        file = f"{{download}}`.ipynb </labs/{path.name}>`"
        lines.append(f"| {link} | {asked[topic]} | {sum(minutes)} | {hard} | {file} |")
    return "\n".join(lines)


def table(labs: list[Path]) -> str:
    """Write what a lab asks of a class."""
    lines = ["| Lab | Exercises | Minutes |", "|---|--:|--:|"]
    for path in labs:
        count, minutes = len(tagged(read(path), "exercise")), sum(m for _, m in cards(read(path)))
        lines.append(f"| {linked(path)} | {count} | {minutes} |")
    return "\n".join(lines)


def linked(path: Path) -> str:
    """Write a lab's title as a link to its page."""
    return f"[{title(path)}](/labs/{path.stem})"


def links(labs: list[Path], repository: str | None) -> str:
    """Write the links by which JupyterHub's nbgitpuller fetches a lab and opens it."""
    if not repository:
        return (
            "This copy of the book has no address that a hub could fetch from. Set `Repository` in "
            "`pyproject.toml` to your class's, build the book again, and the links stand here."
        )
    name = repository.rstrip("/").removesuffix(".git").rpartition("/")[2]
    found = []
    for path in labs:
        asked = {"repo": repository, "urlpath": f"lab/tree/{name}/labs/{path.name}"}
        found.append(f"{HUB}/hub/user-redirect/git-pull?{urlencode(asked)}")
    return "\n".join(["```text", *found, "```"])


def build_wheel(app: Sphinx) -> None:
    if app.builder.format == "html":
        wheel.build(BUILD / "wheel")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", build_wheel)
    app.add_directive("labs", Labs)
    app.add_directive("labkit-wheel", Wheel)
    app.add_directive("classes", Classes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
