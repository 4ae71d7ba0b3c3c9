"""The labs, from their notebooks: on cards for learners, in a table with hub links for instructors.

The site carries what a lab needs, its notebook and labkit's wheel, as files to download.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press import BUILD, ROOT, wheel
from press.extension.drawings import closed, opened, raw, within
from press.labs import TOPICS, cards
from press.notebooks import LABS, read, tagged, title
from press.project import PROJECT, Address, read_address, wheel_name
from press.stamp import badges

HUB = "https://HUB.EXAMPLE.ORG"
LEVELS = ("Easy", "Medium", "Hard")
NEEDS = re.compile(r"You need .*?\.(?= [A-Z]|$)", re.MULTILINE)
PAGE = re.compile(r"\]\((?:\.\./chapters/)?((?:lab_)?(\d+)_\w+)\.ipynb")


class Labs(SphinxDirective):
    """Show a card for each lab: what its end looks like, what one builds, how long, after what."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        built, address = named(self.content), read_address()
        listed: list[nodes.Node] = [opened("lab-cards", "list")]
        for topic, path in TOPICS.items():
            drawing = drawing_of(topic)
            for file in (path, drawing, PROJECT):
                self.env.note_dependency(str(file))
            svg = within(drawing.read_text(encoding="utf-8"), f"lab-{topic}")
            words = nodes.container(classes=["lab-words"])
            name, *rest = self.parse_text_to_nodes(told(path, built[topic], address))
            heading = nodes.rubric("", "", *name.children, classes=["lab-name"])
            heading["heading-level"] = 2
            words += [heading, *rest]
            # The style sheet sets the picture first.
            picture = raw(f'<span class="drawing">{svg}</span>')
            listed += [opened("front-card lab-card", "listitem"), words, picture, closed()]
        return [*listed, closed()]


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
    """Read what one builds in a lab, by its topic, from lines such as "scaling: You build ..."."""
    return dict(line.split(": ", 1) for line in lines)


def drawing_of(topic: str) -> Path:
    """Name the file of a lab's picture."""
    return ROOT / "book" / "drawings" / f"lab-{topic.replace('_', '-')}.svg"


def told(path: Path, built: str, address: Address) -> str:
    """Write a card: the lab, what one builds, how long, after what, and how it is opened."""
    levels, minutes = zip(*cards(read(path)), strict=True)
    ordered = sorted(set(levels), key=LEVELS.index)
    hard = " to ".join(dict.fromkeys((ordered[0].lower(), ordered[-1].lower())))
    link = linked(path).replace("[Lab ", "[").replace(":", ".", 1)
    number = int(path.stem.split("_")[1])
    download = f"{{download}}`Download the notebook of lab {number} </labs/{path.name}>`"
    if badge := badges(address, f"labs/{path.name}"):
        download = f"{badge} {download}"
    return "\n\n".join(
        [
            link,
            built,
            f"{sum(minutes)} minutes, {hard}{after(path)}",
            download,
        ]
    )


def after(path: Path) -> str:
    """Name the labs and chapters that a lab says one needs."""
    sentence = NEEDS.search(read(path).cells[0].source)
    names, before = list[str](), ""
    for file, number in PAGE.findall(sentence[0] if sentence else ""):
        kind = "lab" if file.startswith("lab_") else "chapter"
        names.append(f"[{'' if kind == before else f'{kind} '}{int(number)}](/{kind}s/{file})")
        before = kind
    *most, last = names or [""]
    return f"; after {', '.join(most)}{' and ' if most else ''}{last}" if last else ""


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
