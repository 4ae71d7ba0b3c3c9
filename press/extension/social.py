"""What a page says of itself where it is shared or found: title, description, picture."""

from __future__ import annotations

import re
from html import escape
from typing import Any
from urllib.parse import urljoin

import resvg_py
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from press.extension import landing
from press.extension.assets import VENDORED
from press.node import PACKAGES
from press.project import pages_address

SUBTITLE = ("Four documents explain multi-head attention.", "This book computes what they say.")
PREVIEW = "card.png"
LENGTH = 200  # characters of a description that search engines and messengers show


def prepare(app: Sphinx, config: Config) -> None:
    """Draw the preview, and tell Sphinx the address, from which it makes canonical links."""
    config.html_baseurl = config.html_baseurl or pages_address()
    VENDORED.mkdir(parents=True, exist_ok=True)
    (VENDORED / PREVIEW).write_bytes(preview())


def preview() -> bytes:
    """Draw the picture that stands beside a shared link."""
    drawing = landing.picture().replace("<svg ", '<svg x="150" y="225" width="900" height="380" ')
    return render(
        '<text x="600" y="112" font-size="76" font-weight="bold">Attention, Executed</text>'
        f'<text x="600" y="172" font-size="32">{" ".join(SUBTITLE)}</text>{drawing}',
        width=1200,
        height=630,
    )


def render(drawing: str, *, width: int, height: int) -> bytes:
    """Make a PNG of parts of an SVG, with fonts that come with the formulas on every machine."""
    fonts = PACKAGES / "katex" / "dist" / "fonts"
    return resvg_py.svg_to_bytes(
        svg_string=(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" text-anchor="middle" fill="{landing.INK}">'
            f'<rect width="{width}" height="{height}" fill="{landing.PAPER}"/>{drawing}</svg>'
        ),
        font_files=[str(fonts / f"KaTeX_SansSerif-{cut}.ttf") for cut in ("Regular", "Bold")],
        sans_serif_family="KaTeX_SansSerif",
        skip_system_fonts=True,
    )


def without_tex(text: str) -> str:
    """Write formulas without TeX's marks, and white space as one space."""
    text = re.sub(r"\\(?:text|operatorname|mathrm|mathbf)\b", "", text.replace(r"\sqrt", "√"))
    return " ".join(re.sub(r"[\\{}$]", "", text).split())


def describe(doctree: nodes.document) -> str:
    """Take a page's first paragraph as its description, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            text = without_tex(paragraph.astext()).rstrip(":")
            return text if len(text) <= LENGTH else text[:LENGTH].rsplit(" ", 1)[0] + " …"
    return ""


def add_tags(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write the tags of a page; what needs an address only where there is one."""
    if doctree is None:
        return
    title = without_tex(app.env.titles[pagename].astext())
    context["title"] = escape(title)
    if pagename == app.config.root_doc:
        context["docstitle"] = ""  # the first page has the book's own title
    description = describe(doctree)
    picture = f"_static/{PREVIEW}"
    properties = {
        "og:title": title,
        "og:description": description,
        "og:type": "website" if pagename == app.config.root_doc else "article",
        "og:site_name": app.config.project,
        "og:image": context["pathto"](picture, resource=True),
        "og:image:alt": landing.alt_text(),
    }
    if site := app.config.html_baseurl:
        properties["og:image"] = urljoin(site, picture)
        properties["og:url"] = urljoin(site, app.builder.get_target_uri(pagename))
    names = {"description": description, "twitter:card": "summary_large_image"}
    context["metatags"] += "".join(
        f'<meta {kind}="{name}" content="{escape(text)}" />\n'
        for kind, group in (("property", properties), ("name", names))
        for name, text in group.items()
        if text
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", prepare)
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
