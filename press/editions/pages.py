"""The built pages as parts of a book that is read elsewhere: in order, still, and unfolded.

The PDF and the EPUB are made of the very pages that the tests have opened. What a page leaves to a
script or to a click is settled here: figures become pictures, verdicts are laid open, and answers
move to the end, so that nobody reads one by accident.
"""

from __future__ import annotations

import copy
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import urldefrag, urlsplit

from bs4 import BeautifulSoup, Tag

from labkit.figures.palette import GREY, HEADS, PAGES
from press import BOOK, HTML, contents
from press.editions import pictures
from press.extension import citation, social

CITED = citation.source(year="", address="")
TITLE, AUTHOR, VERSION = CITED["title"], CITED["author"], CITED["version"]
SUBTITLE = " ".join(social.SUBTITLE)
LICENCE = "Text and figures are under CC BY 4.0, code is under the MIT License."
EDITION = (
    "This edition is made from the book's pages. A verdict stands below the text that it belongs "
    "to and is laid open, answers stand at the end, and a figure that computes is shown in its "
    "first state."
)
ANSWERS = "answers"
# About the project, not about attention.
LEFT_OUT_PARTS = {"For instructors", "For maintainers"}
# What a page has for finding one's way on a screen, and what draws or hides code.
DROPPED = (
    ".headerlink, .toctree-wrapper, .front-cards, .front-start, details.hide, button, template, "
    "p:has(> .report), .verdict summary > code, .tally > details, .tally-bar, .front-told"
)
FOLDED = "details:not([class])"
# What a sheet of an edition names as the pages do, ``var(--book-text)``, in the light theme.
COLOURS = {name: light for name, (light, _) in (HEADS | PAGES).items()} | {"grey": GREY}
FIRST_STATE = "This is its first state; on the book's pages it computes."


@dataclass
class Page:
    """One page of the book, ready to be set."""

    name: str
    part: str
    title: str
    body: Tag
    answers: list[Tag] = field(default_factory=list)

    @property
    def slug(self) -> str:
        """Name the page within one document."""
        return self.name.replace("/", "-")

    @property
    def number(self) -> str:
        """Give the number that the file's name has: a chapter's, or a lab's."""
        match = re.match(r"(lab_)?(\d+)_", PurePosixPath(self.name).name)
        return f"{'Lab ' if match[1] else ''}{int(match[2])}" if match else ""


def style(sheet: Path) -> str:
    """Read a style sheet with its colours written out, for e-readers that know no properties."""
    text = sheet.read_text(encoding="utf-8")
    return re.sub(r"var\(--book-([\w-]+)\)", lambda named: COLOURS[named[1]], text)


def order() -> Iterator[tuple[str, str]]:
    """Run through the pages that are about attention: the part's caption, and the page's name."""
    return (place for place in contents.order() if place[0] not in LEFT_OUT_PARTS)


def read_all(places: Iterable[tuple[str, str]] | None = None) -> list[Page]:
    """Read pages of the book, with their figures as pictures.

    Args:
        places: part and name of each page, as ``order`` gives them for the whole book.
    """
    pages = [read(part, name) for part, name in places or order()]
    figures = {f"{page.name}.html": page.body.select(pictures.FIGURES) for page in pages}
    pictures_by_page = pictures.take({name: list(map(str, tags)) for name, tags in figures.items()})
    for name, tags in figures.items():
        for tag, picture in zip(tags, pictures_by_page[name], strict=True):
            replace_by_picture(tag, picture)
    for page in pages:
        for script in page.body.select("script"):
            script.decompose()
        move_answers(page)
    return pages


def read(part: str, name: str) -> Page:
    """Read one page, and drop what is for the screen only."""
    html = (HTML / f"{name}.html").read_text(encoding="utf-8")
    body = first(BeautifulSoup(html, "html.parser"), "article")
    for appendix in body.select(".tag_hide-cell > details.hide"):
        keep_output(appendix)
    for report in body.select("dd:has(.report)"):
        label = report.find_previous("dt")
        assert isinstance(label, Tag)
        label.decompose()
        report.decompose()
    for tag in body.select(DROPPED):
        tag.decompose()
    for drawing in body.select(".drawing svg[data-file]"):
        show_file(drawing)
    for section in body.select("section"):
        if not section.select("p, pre, ul, ol, dl, table, figure"):
            section.decompose()
    for verdict in body.select("details.verdict"):
        unfold(verdict)
    for quiz in body.select(".quiz"):
        list_choices(quiz)
    body.name = "div"
    if not part:
        first(body, "h1").string = "Introduction"  # the first page is named as the book is
    return Page(name, part, plain_text(first(body, "h1")), body)


def keep_output(fold: Tag) -> None:
    """Leave of a folded cell what it puts out: the claims that are compared there."""
    for part in fold.find_all(True, recursive=False):
        if "cell_output" not in part.get_attribute_list("class"):
            part.decompose()
    fold.unwrap()


def show_file(drawing: Tag) -> None:
    """Show the file of a drawing, which in a page is a part of it."""
    soup = BeautifulSoup("", "html.parser")
    source = (BOOK / "drawings" / str(drawing["data-file"])).as_uri()
    alt = str(drawing["aria-label"])
    drawing.replace_with(soup.new_tag("img", src=source, alt=alt, attrs={"class": "drawing"}))


def first(tag: Tag, selector: str) -> Tag:
    """Return the first part that a selector finds; raise ValueError where there is none."""
    part = tag.select_one(selector)
    if part is None:
        raise ValueError(f"a {tag.name} must have a part {selector}; got {str(tag)[:200]}")
    return part


def plain_text(tag: Tag) -> str:
    """Write an element as text, its formulas as one would type them."""
    copied = copy.copy(tag)
    for formula, tex in formulas(copied):
        formula.replace_with(tex)
    return copied.get_text(" ", strip=True)


def unfold(verdict: Tag) -> None:
    """Lay a verdict open: what it is about and where, then the numbers and the reason."""
    soup = BeautifulSoup("", "html.parser")
    labels = verdict.select("dt")
    definitions = dict(
        zip((label.get_text() for label in labels), verdict.select("dd"), strict=True)
    )
    verdict.name, first(verdict, "summary").name = "aside", "p"
    verdict.attrs.pop("open", None)
    place = soup.new_tag("span", attrs={"class": "place"})
    place.append(f" {definitions['claim'].get_text()} ({definitions['where'].get_text()})")
    first(verdict, "p").append(place)
    for label in labels:
        # The line above tells the first three; the erratum repeats the rest.
        if label.get_text() in ("claim", "where", "says", "at length"):
            definitions[label.get_text()].decompose()
            label.decompose()
    if not verdict.select("dt"):
        first(verdict, "dl").decompose()
    elif came := verdict.select_one(".came"):  # the rows say it
        came.decompose()


def list_choices(quiz: Tag) -> None:
    """List what there is to choose from, and fold the reasons into one answer."""
    soup = BeautifulSoup("", "html.parser")
    choices, reasons = (soup.new_tag("ol", attrs={"type": "a"}) for _ in range(2))
    for fold in quiz.select("details"):
        choice = soup.new_tag("li")
        choice.extend(first(fold, "summary").extract().contents)
        choices.append(choice)
        fold.name = "li"
        reasons.append(fold.extract())
    answer = soup.new_tag("details")
    summary = soup.new_tag("summary")
    summary.string = "Answer"
    answer.extend([summary, reasons])
    quiz.extend([choices, answer])


def replace_by_picture(figure: Tag, picture: pictures.Picture) -> None:
    """Put a picture where the script would draw, with what it shows in words below."""
    soup = BeautifulSoup("", "html.parser")
    if caption := figure.figcaption:
        drawn = json.loads(first(figure, "script").get_text())["layout"]["title"]["text"]
    else:
        drawn = first(figure, ".live-title").get_text()
        caption = soup.new_tag("figcaption")
        caption.string = f"{first(figure, '.live-caption').get_text()} {FIRST_STATE}"
    image = soup.new_tag("img", src=picture.scaling.as_uri(), alt=drawn)
    image["data-dots"] = picture.dots.as_uri()
    # A text's links to states of the figure lead to the picture.
    anchors = [anchor.extract() for anchor in figure.select('span[id^="stage-"]')]
    figure.clear()
    figure.extend([*anchors, image, caption])


def move_answers(page: Page) -> None:
    """Take the folded answers out, and leave a link to each where it stood."""
    soup = BeautifulSoup("", "html.parser")
    folds = page.body.select(FOLDED)
    for fold in [fold for fold in folds if not fold.find_parent("details")]:
        number = f"{page.number or page.slug}.{len(page.answers) + 1}"
        anchor = re.sub(r"[^a-z0-9]+", "-", f"{ANSWERS}-{number}".lower())
        summary = first(fold, "summary").extract().get_text(" ", strip=True)
        link = soup.new_tag("a", href=f"#{anchor}", attrs={"class": "to-answer"})
        link.string = (
            f"{summary} {number}" if summary == "Answer" else f"{summary}: answer {number}"
        )
        left = soup.new_tag("p", id=f"asked-{anchor}")
        left.append(link)
        fold.replace_with(left)
        title = number if summary == "Answer" else f"{number} {summary}"
        page.answers.append(answer(fold, anchor, title))


def answer(fold: Tag, anchor: str, title: str) -> Tag:
    """Write one answer, with the way back to its question."""
    soup = BeautifulSoup("", "html.parser")
    for inner in fold.select("details"):
        inner.name, first(inner, "summary").name, inner["class"] = "div", "p", "fold"
    fold.name = "section"
    fold["id"] = anchor
    heading = soup.new_tag("h3")
    back = soup.new_tag("a", href=f"#asked-{anchor}")
    back.string = title
    heading.append(back)
    fold.insert(0, heading)
    return fold


def relink(page: Page, body: Tag, target: Callable[[str, str], str | None]) -> None:
    """Point the links of a page to where their targets stand in the edition.

    Args:
        target: for a page's name and an anchor in it, the link, or None if the edition has none.
    """
    for link in body.select("a[href]"):
        if urlsplit(str(link["href"])).scheme:
            continue
        address, anchor = urldefrag(str(link["href"]))
        name = page.name
        if address:
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), address))
            name = name.removesuffix(".html")
        if href := target(name, anchor):
            link["href"] = href
        else:
            link.unwrap()


def formulas(body: Tag) -> Iterator[tuple[Tag, str]]:
    """Run through the formulas: the element, and the TeX that it was made of."""
    for formula in body.select("span.katex"):
        yield formula, first(formula, "annotation").get_text(strip=True)
