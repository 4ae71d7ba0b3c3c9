"""Print the built pages as one PDF, with the browser that the page tests use: ``pdf.py``.

The pages become one document with a style sheet of its own. It is printed again until the page
numbers in the contents and beside the links to answers are those of the pages. Paged.js 0.4.3 would
count them itself, but takes longer and loses lines of code where a page breaks.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from urllib.parse import urljoin

from bs4 import BeautifulSoup, Tag
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

from press import BUILD, HTML, ROOT
from press.browser import ARGUMENTS, OFFLINE, find
from press.editions import pages as editions
from press.extension import landing
from press.node import PACKAGES

PRINT = BUILD / "print.html"
PDF = BUILD / "attention-executed.pdf"
STYLE = Path(__file__).resolve().parent / "print.css"
FONTS = [
    PACKAGES / "@fontsource" / family / f"{cut}.css"
    for family, cuts in (
        ("source-serif-4", ("400", "400-italic", "600", "600-italic")),
        ("source-sans-3", ("400", "400-italic", "600", "700")),
        ("source-code-pro", ("400", "400-italic", "600")),
    )
    for cut in cuts
]
SHEETS = [
    *FONTS,
    HTML / "_static" / "katex.min.css",
    HTML / "_static" / "pygments.css",
]
PRINTINGS = 4
PATIENCE = 300_000  # milliseconds: a whole book is one page here


def document(pages: list[editions.Page]) -> BeautifulSoup:
    """Put the pages into one document: title, contents, chapters, answers."""
    names = {page.name for page in pages}
    for page in pages:
        for part in (page.body, *page.answers):
            set_for_print(page, part, names)
    sheets = "".join(f'<link rel="stylesheet" href="{sheet.as_uri()}"/>' for sheet in SHEETS)
    heads = "".join(running_head(page.slug, page.title) for page in pages)
    heads += running_head(editions.ANSWERS, "Answers")
    chapters = "".join(
        f'<article id="{page.slug}" style="page: {page.slug}">{opening(page)}{page.body}</article>'
        for page in pages
    )
    return BeautifulSoup(
        f'<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"/>'
        f"<title>{editions.TITLE}</title>{sheets}<style>{editions.style(STYLE)}{heads}</style></head><body>"
        f"{title_page()}{contents(pages)}{chapters}{answers(pages)}</body></html>",
        "html.parser",
    )


def set_for_print(page: editions.Page, part: Tag, names: set[str]) -> None:
    """Make names and links hold in one document, and leave to each formula its printed form."""

    def target(name: str, anchor: str) -> str | None:
        slug = name.replace("/", "-")
        return (f"#{slug}--{anchor}" if anchor else f"#{slug}") if name in names else None

    editions.relink(page, part, target)
    for tag in [part, *part.select("[id]")]:
        if tag.get("id"):
            tag["id"] = f"{page.slug}--{tag['id']}"
    for formula, _ in editions.formulas(part):
        editions.first(formula, ".katex-mathml").decompose()
    for image in part.select("img"):
        image["src"] = urljoin((HTML / page.name).as_uri(), str(image["src"]))
    for link in part.select("a.to-answer"):
        link.insert_after(", page ", page_number(str(link["href"])))


def page_number(link: str) -> Tag:
    """Leave a place for the number of the page that a link leads to."""
    return BeautifulSoup("", "html.parser").new_tag("span", attrs={"data-page-of": link[1:]})


def opening(page: editions.Page) -> str:
    """Write what stands above a chapter's title."""
    kind = f"Chapter {page.number}" if page.number.isdigit() else page.part
    return f'<p class="kind">{escape(kind)}</p>'


def running_head(name: str, text: str) -> str:
    """Say what stands at the top of a chapter's pages."""
    quoted = text.replace("\\", r"\\").replace('"', r"\"")
    return f'@page {name} {{ @top-left {{ content: "{quoted}" }} }}'


def title_page() -> str:
    """Write the first page."""
    picture = landing.PICTURE.as_uri()
    return (
        f'<header class="title"><h1>{editions.TITLE}</h1>'
        f'<p class="says">{editions.SUBTITLE}</p><img src="{picture}" alt="{landing.alt_text()}"/>'
        f'<p class="imprint">Version {editions.VERSION}<br/>{editions.LICENCE}</p></header>'
    )


def contents(pages: list[editions.Page]) -> str:
    """Write the contents: parts and chapters with page numbers."""
    lines = []
    for i, page in enumerate(pages):
        if page.part and page.part != pages[i - 1].part:
            lines.append(f'<li class="part">{escape(page.part)}</li>')
        lines.append(line(page.slug, page.title))
    lines.append(line(editions.ANSWERS, "Answers"))
    return (
        f'<nav class="contents"><h1>Contents</h1><ol>{"".join(lines)}</ol>'
        f'<p class="edition">{editions.EDITION}</p></nav>'
    )


def line(anchor: str, text: str) -> str:
    """Write one line of the contents."""
    return (
        f'<li><a href="#{anchor}"><span>{escape(text)}</span>{page_number(f"#{anchor}")}</a></li>'
    )


def answers(pages: list[editions.Page]) -> str:
    """Gather the answers of all chapters."""
    sections = "".join(
        f"<section><h2>{escape(page.title)}</h2>{''.join(map(str, page.answers))}</section>"
        for page in pages
        if page.answers
    )
    name = editions.ANSWERS
    return f'<article id="{name}" style="page: {name}"><h1>Answers</h1>{sections}</article>'


def number_pages(soup: BeautifulSoup, pdf: Path) -> bool:
    """Write the page numbers that a printing has; say whether any was another before."""
    reader = PdfReader(pdf)
    destinations = reader.named_destinations
    changed = False
    for place in soup.select("[data-page-of]"):
        anchor = place["data-page-of"]
        before = reader.get_destination_page_number(destinations[f"/{anchor}"])
        if before is None:
            raise ValueError(f"{pdf.name} has no page with {anchor}")
        number = str(before + 1)
        changed |= place.string != number
        place.string = number
    return changed


def write(pages: list[editions.Page], path: Path = PDF) -> None:
    """Print the pages."""
    soup = document(pages)
    with sync_playwright() as playwright:
        arguments = [*ARGUMENTS, OFFLINE]
        with playwright.chromium.launch(executable_path=find(), args=arguments) as browser:
            window = browser.new_page()
            window.set_default_timeout(PATIENCE)
            for _ in range(PRINTINGS):
                PRINT.write_text(str(soup), encoding="utf-8")
                window.goto(PRINT.as_uri())
                window.evaluate("document.fonts.ready")
                window.pdf(
                    path=path,
                    prefer_css_page_size=True,
                    print_background=True,
                    outline=True,
                    tagged=True,
                )
                if not number_pages(soup, path):
                    return
    raise RuntimeError(f"the page numbers still move after {PRINTINGS} printings")


def main() -> int:
    write(editions.read_all())
    pages, size = len(PdfReader(PDF).pages), PDF.stat().st_size / 1e6
    print(f"{PDF.relative_to(ROOT)}: {pages} pages, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
