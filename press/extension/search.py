"""The book's search: what can be found, collected from the pages into a script that they can load.

MiniSearch finds and scores in the reader's browser. The script is a classic one, so that the search
works from a disk too, and it is loaded when somebody opens the search.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.config import Config
from sphinx.search.en import english_stopwords, js_porter_stemmer

from labkit import ledger
from press import BOOK, contents
from press.extension.assets import VENDORED
from press.extension.claims import ERRATA, LISTED
from press.extension.popovers import GLOSSARY
from press.node import PACKAGES, esbuild
from press.texts import SKIPPED, numberless, section_of, text_of

# Pages whose sections are not listed: the claims are, and of old versions nobody asks.
WHOLE = (ERRATA, "book/changelog", "book/verdict-history")
TEMPLATES = Path(__file__).parent / "templates"
INDEX = "search-index.js"
BIBLIOGRAPHY = "book/bibliography"
KINDS = {"chapters": "chapter", "labs": "lab", "audits": "audit"}

# What readers call a page that is titled otherwise.
ALSO = {
    ERRATA: "errors mistakes corrections",
    "book/how-to-use": "install setup download",
    "book/machines": "results differ reproducible",
    "book/cite": "citation bibtex",
    "book/changelog": "news updates versions",
    "chapters/07_counting": "quadratic cost complexity",
    "chapters/09_heads_in_a_pretrained_model": "bert",
    "labs/index": "exercises colab download install setup",
}
ALSO_OF_KIND = {"audit": "errors mistakes document"}

PYTHONS = {*keyword.kwlist, *dir(builtins), "self", "torch"}
CODE = (nodes.literal_block, nodes.doctest_block)


@dataclass
class Part:
    """A page before its first section, a section, or an entry of the reference."""

    anchor: str
    heading: str
    paragraphs: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Say what the part says; of an entry of the reference its first sentence is enough."""
        return " ".join(self.paragraphs[:1] if "." in self.anchor else self.paragraphs)

    @property
    def names(self) -> list[str]:
        """List the names in the code: they are found, not shown."""
        code = re.sub(r'(?s)#[^\n]*|""".*?"""|"[^"\n]*"', "", "\n".join(self.code))
        return re.findall(r"[A-Za-z_]\w{3,}", code)


def parts(doctree: nodes.document) -> list[Part]:
    """Cut a page at its headings."""
    page_parts: list[Part] = []
    page = next(doctree.findall(nodes.section))
    collect(page, open_part(page, page_parts), page_parts)
    return page_parts


def open_part(node: nodes.Element, page_parts: list[Part]) -> Part:
    """Open the part that a section, or an entry of the reference, is."""
    if isinstance(node, addnodes.desc):
        signature = node[0]
        part = Part((signature["ids"] or [""])[0], signature.get("fullname", ""))
    else:
        title = next(iter(node.findall(nodes.title)))
        part = Part(node["ids"][0], text_of(title))
    page_parts.append(part)
    return part


def collect(node: nodes.Element, part: Part, page_parts: list[Part]) -> None:
    """Put the text below a node into its part, and into the parts that open there."""
    folds = 0
    for child in node.children:
        if isinstance(child, nodes.raw):
            folds += child.astext().count("<details") - child.astext().count("</details")
        elif folds:  # an answer, which no excerpt gives away
            continue
        elif isinstance(child, (nodes.section, addnodes.desc)):
            collect(child, open_part(child, page_parts), page_parts)
        elif isinstance(child, CODE):
            part.code.append(child.astext())
        elif isinstance(child, (nodes.title, addnodes.desc_signature, *SKIPPED)):
            continue
        elif isinstance(child, nodes.TextElement):
            part.paragraphs.append(text_of(child))
        elif isinstance(child, nodes.Element) and "cell_output" not in child.get("classes", []):
            collect(child, part, page_parts)


def terms(doctree: nodes.document) -> dict[str, str]:
    """Find the terms that a page introduces, in bold, as links to the glossary, by section."""
    found: dict[str, str] = {}
    for text in doctree.findall(nodes.strong):
        for link in text.findall(addnodes.pending_xref):
            if link["reftarget"] == GLOSSARY:
                section = section_of(text)
                assert section is not None  # every page has one
                found.setdefault(link["reftargetid"], section["ids"][0])
    return found


def titles(doctree: nodes.document) -> dict[str, str]:
    """Find the titles of the papers, in italics, by the anchors of their entries."""
    found: dict[str, str] = {}
    for entry in doctree.findall(nodes.section):
        title = next((text_of(text) for text in entry.findall(nodes.emphasis)), "")
        if title and not any(isinstance(child, nodes.section) for child in entry):
            found[entry["ids"][0]] = title.rstrip(".")
    return found


def other_names(text: str) -> list[str]:
    """Find what an entry of the glossary says that its term is called as well.

    >>> other_names("GQA: heads that share."), other_names("The logarithm, lse for short.")
    (['GQA'], ['lse'])
    """
    return re.findall(r"^[A-Z]{2,}(?=:)|(?<=\bAlso called )[^.;]+|\S+(?= for short)", text)


def entries(app: Sphinx) -> dict[str, list[list[Any]]]:
    """List what can be found: pages, their sections, and the claims, in the book's order."""
    pages: list[list[Any]] = []
    sections: list[list[Any]] = []
    places = {name: place for place, (_, name) in enumerate(contents.order())}
    doctrees = {name: app.env.get_doctree(name) for name in places}
    introduced: dict[str, dict[int, str]] = {}
    for name in contents.notebooks("chapters"):
        for term, section in terms(doctrees[name]).items():
            introduced.setdefault(term, {})[places[name]] = section
    for name in places:
        page, *rest = parts(doctrees[name])
        kind = KINDS.get(name.partition("/")[0], "page")
        lead, text = page.paragraphs[:1], page.paragraphs[1:]
        also = ALSO.get(name, ALSO_OF_KIND.get(kind, ""))
        title = numberless(page.heading)
        pages.append([name, kind, title, " ".join(lead), " ".join(text), also])
        known = PYTHONS.copy()
        papers = titles(doctrees[name]) if name == BIBLIOGRAPHY else {}
        for part in rest if name not in WHOLE else ():
            words_here = set(re.findall(r"\w+", f"{part.heading} {part.text}"))
            # A name leads to the section that has it first.
            names = dict.fromkeys(name for name in part.names if name not in known | words_here)
            known.update(names)
            if part.anchor:
                heading = papers.get(part.anchor, part.heading)
                words = [part.heading] if heading != part.heading else list(names)
                row = [places[name], part.anchor, heading, part.text, " ".join(words)]
                if name == GLOSSARY:
                    row += [introduced.get(part.anchor, {}), other_names(part.text)]
                sections.append(row)
    claims = [
        [
            claim.key,
            " ".join(claim.says.split()),
            claim.verdict,
            places.get(claim.notebook, -1) if isinstance(claim, ledger.Compared) else -1,
            int(claim.verdict in LISTED),
        ]
        for claim in ledger.all_claims()
    ]
    return {"pages": pages, "sections": sections, "claims": claims}


def prepare(app: Sphinx, config: Config) -> None:
    """Put what the search is made of where Sphinx copies static files from."""
    VENDORED.mkdir(parents=True, exist_ok=True)
    shutil.copy2(PACKAGES / "minisearch" / "dist" / "umd" / "index.js", VENDORED / "minisearch.js")
    esbuild(BOOK / "search", "search.js", "--format=iife", f"--outdir={VENDORED}")
    (VENDORED / "stemmer.js").write_text(js_porter_stemmer, encoding="utf-8")
    config.templates_path.append(str(TEMPLATES))


def replace(app: Sphinx) -> None:
    """Turn Sphinx's own search off: its index, its page."""
    if isinstance(app.builder, StandaloneHTMLBuilder):
        app.builder.search = False


def write(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Write the index, and the page of the search."""
    index = entries(app) | {"stopwords": sorted(english_stopwords)}
    script = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    (static / INDEX).write_text(f"bookSearch.open({script});\n", encoding="utf-8")
    yield "search", {"title": "Search"}, "search.html"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_js_file("search.js", defer="defer")
    app.add_css_file("search.css")
    app.connect("config-inited", prepare)
    app.connect("builder-inited", replace)
    app.connect("html-collect-pages", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
