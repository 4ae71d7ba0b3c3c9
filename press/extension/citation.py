"""How to cite the book, from CITATION.cff, in the formats that reference managers read."""

from __future__ import annotations

import json
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press import ROOT
from press.project import PROJECT, settings

CITATION = ROOT / "CITATION.cff"


class Citation(SphinxDirective):
    """Write the citation as text, as BibTeX and as CSL-JSON."""

    def run(self) -> list[nodes.Node]:
        for path in (CITATION, PROJECT):
            self.env.note_dependency(str(path))
        cited = source(self.config.copyright, self.config.html_baseurl)
        text = "\n".join(
            [
                f"As text\n: {as_text(cited)}\n",
                f"BibTeX\n: ```bibtex\n{indented(as_bibtex(cited))}\n  ```\n",
                f"CSL-JSON, for Zotero and others\n: ```json\n{indented(as_csl(cited))}\n  ```\n",
            ]
        )
        return self.parse_text_to_nodes(text)


def source(year: str, address: str) -> dict[str, str]:
    """Collect what a citation names; the address only if there is one."""
    cff = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    return {
        "author": " and ".join(author["name"] for author in cff["authors"]),
        "title": cff["title"],
        "year": year,
        "version": settings()["version"],
        "url": address,
    }


def as_text(cited: dict[str, str]) -> str:
    """Write the citation as a sentence of a list of references."""
    end = f" {cited['url']}" if cited["url"] else ""
    return "{author} ({year}). *{title}* (version {version}).".format(**cited) + end


def as_bibtex(cited: dict[str, str]) -> str:
    """Write the citation for BibTeX; double braces keep names with commas whole."""
    fields = {
        "author": f"{{{cited['author']}}}",
        "title": f"{{{cited['title']}}}",
        "year": cited["year"],
        "note": f"Version {cited['version']}",
        "url": cited["url"],
    }
    lines = [f"  {name} = {{{text}}}," for name, text in fields.items() if text]
    return "\n".join(["@misc{attention-executed,", *lines, "}"])


def as_csl(cited: dict[str, str]) -> str:
    """Write the citation as CSL-JSON, in which a name need not be a person's."""
    item = {
        "id": "attention-executed",
        "type": "software",
        "title": cited["title"],
        "author": [{"literal": cited["author"]}],
        "issued": {"date-parts": [[int(cited["year"])]]},
        "version": cited["version"],
        "URL": cited["url"],
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in item.items() if value]
    return "[{\n" + ",\n".join(lines) + "\n}]"


def indented(text: str) -> str:
    """Indent lines, as part of a definition."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("citation", Citation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
