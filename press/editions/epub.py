"""Write the built pages as an EPUB, with formulas as MathML, figures as pictures."""

from __future__ import annotations

import sys
import uuid
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urljoin, urlsplit
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from bs4 import Tag

from press import BUILD, HTML, ROOT
from press.editions import pages as editions
from press.extension import landing, social

EPUB = BUILD / "attention-executed.epub"
STYLE = Path(__file__).resolve().parent / "epub.css"
TYPES = {
    ".css": "text/css",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".xhtml": "application/xhtml+xml",
}
CONTAINER = """<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
ACCESSIBILITY = {
    "accessMode": ["textual", "visual"],
    "accessModeSufficient": ["textual"],
    "accessibilityFeature": ["MathML", "alternativeText", "structuralNavigation"],
    "accessibilityHazard": ["none"],
    "accessibilitySummary": ["Formulas are MathML, figures are described in words."],
}


def files(pages: list[editions.Page]) -> dict[str, bytes]:
    """Make the files of the book, the texts in reading order."""
    # The title page has a picture that no other page shows.
    pictures = {landing.PICTURE.name: landing.PICTURE.read_bytes()}
    names = {page.name for page in pages}
    for page in pages:
        for part in (page.body, *page.answers):
            set_for_reading(page, part, names, pictures)
    texts = {"title": title_page()}
    texts |= {page.slug: text(page.title, str(page.body)) for page in pages}
    texts[editions.ANSWERS] = text("Answers", answers(pages))
    entries = {f"{name}.xhtml": xhtml.encode() for name, xhtml in texts.items()}
    entries["nav.xhtml"] = contents(pages).encode()
    entries |= {"style.css": editions.style(STYLE).encode(), "cover.png": cover(), **pictures}
    return entries | {"book.opf": package(entries).encode()}


def set_for_reading(
    page: editions.Page, part: Tag, names: set[str], pictures: dict[str, bytes]
) -> None:
    """Leave what an e-reader can show: MathML, plain code, pictures that the book brings."""

    def target(name: str, anchor: str) -> str | None:
        if anchor.startswith(f"{editions.ANSWERS}-"):
            return f"{editions.ANSWERS}.xhtml#{anchor}"
        file = f"{name.replace('/', '-')}.xhtml"
        return (f"{file}#{anchor}" if anchor else file) if name in names else None

    editions.relink(page, part, target)
    for formula, tex in editions.formulas(part):
        editions.first(formula, "annotation").decompose()
        math = editions.first(formula, "math")
        math["alttext"] = tex
        math.attrs.pop("aria-hidden", None)
        mend_mathml(math)
        formula.replace_with(math)
    for code in part.select("pre"):
        code.string = code.get_text()
    for image in part.select("img"):
        address = urljoin((HTML / page.name).as_uri(), str(image["src"]))
        path = Path(unquote(urlsplit(str(image.attrs.pop("data-dots", address))).path))
        image["src"] = path.name
        pictures[path.name] = path.read_bytes()


def mend_mathml(formula: Tag) -> None:
    """Mend what KaTeX writes and the standard does not allow, though browsers do."""
    for token in formula.select("mi, mn, mo"):
        if token.find(True):
            token.string = token.get_text()
        if token.get_text() == "\N{FUNCTION APPLICATION}":
            token.decompose()


def text(title: str, body: str) -> str:
    """Write one text of the book."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
        f'lang="en" xml:lang="en"><head><title>{escape(title)}</title>'
        f'<link rel="stylesheet" type="text/css" href="style.css"/></head>'
        f"<body>{body}</body></html>"
    )


def title_page() -> str:
    """Write the first page."""
    body = (
        f'<div class="title"><h1>{editions.TITLE}</h1><p>{editions.SUBTITLE}</p>'
        f'<p><img src="{landing.PICTURE.name}" alt="{landing.alt_text()}"/></p>'
        f"<p>Version {editions.VERSION}. {editions.LICENCE}</p><p>{editions.EDITION}</p></div>"
    )
    return text(editions.TITLE, body)


def cover() -> bytes:
    """Draw the picture under which a reader's library shows the book."""
    drawing = landing.picture().replace("<svg ", '<svg x="100" y="800" width="1000" height="430" ')
    return social.render(
        '<text x="600" y="380" font-size="120" font-weight="bold">Attention,</text>'
        '<text x="600" y="520" font-size="120" font-weight="bold">Executed</text>'
        f'<text x="600" y="1480" font-size="46">{social.SUBTITLE[0]}</text>'
        f'<text x="600" y="1550" font-size="46">{social.SUBTITLE[1]}</text>{drawing}',
        width=1200,
        height=1800,
    )


def answers(pages: list[editions.Page]) -> str:
    """Gather the answers of all chapters."""
    sections = (
        f"<section><h2>{escape(page.title)}</h2>{''.join(map(str, page.answers))}</section>"
        for page in pages
        if page.answers
    )
    return f"<h1>Answers</h1>{''.join(sections)}"


def contents(pages: list[editions.Page]) -> str:
    """Write the table of contents, by part."""
    lines = []
    for part, chapters in groupby(pages, key=lambda page: page.part):
        links = "".join(
            f'<li><a href="{page.slug}.xhtml">{escape(page.title)}</a></li>' for page in chapters
        )
        lines.append(f"<li><span>{escape(part)}</span><ol>{links}</ol></li>" if part else links)
    lines.append(f'<li><a href="{editions.ANSWERS}.xhtml">Answers</a></li>')
    navigation = f'<nav epub:type="toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'
    return text("Contents", navigation)


def package(entries: dict[str, bytes]) -> str:
    """Write the list of files, their order, and what the book says of itself."""
    texts = [name for name in entries if name.endswith(".xhtml")]
    items = "".join(item(name, content) for name, content in entries.items())
    spine = "".join(f'<itemref idref="{manifest_id(name)}"/>' for name in texts)
    accessibility = "".join(
        f'<meta property="schema:{name}">{escape(value)}</meta>'
        for name, values in ACCESSIBILITY.items()
        for value in values
    )
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"attention-executed/{editions.VERSION}")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" '
        'xml:lang="en"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">urn:uuid:{name}</dc:identifier>'
        f"<dc:title>{editions.TITLE}</dc:title><dc:language>en</dc:language>"
        f"<dc:creator>{editions.AUTHOR}</dc:creator><dc:rights>{editions.LICENCE}</dc:rights>"
        f'<meta property="dcterms:modified">{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}</meta>'
        f"{accessibility}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    )


def item(name: str, content: bytes) -> str:
    """Write one line of the list of files."""
    kinds = {"nav.xhtml": ["nav"], "cover.png": ["cover-image"]}.get(name, [])
    if name.endswith(".xhtml"):
        tags = {b"<math": "mathml", b"<svg": "svg"}
        kinds += [kind for tag, kind in tags.items() if tag in content]
    properties = f' properties="{" ".join(kinds)}"' if kinds else ""
    kind = TYPES[PurePosixPath(name).suffix]
    return f'<item id="{manifest_id(name)}" href="{name}" media-type="{kind}"{properties}/>'


def manifest_id(name: str) -> str:
    """Name a file within the list; a name there begins with a letter."""
    return f"file-{name}"


def write(entries: dict[str, bytes], path: Path = EPUB) -> None:
    """Write the file; the first entry says what it is, and is not compressed."""
    with ZipFile(path, "w") as packed:
        packed.writestr("mimetype", "application/epub+zip", ZIP_STORED)
        packed.writestr("META-INF/container.xml", CONTAINER, ZIP_DEFLATED)
        for name, content in entries.items():
            packed.writestr(name, content, ZIP_DEFLATED)


def main() -> int:
    entries = files(editions.read_all())
    write(entries)
    size = EPUB.stat().st_size / 1e6
    print(f"{EPUB.relative_to(ROOT)}: {len(entries)} files, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
