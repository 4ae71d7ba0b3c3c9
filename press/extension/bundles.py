"""One style sheet and one script for all pages, and no rule in it that no page could use.

The theme, Sphinx and its extensions name a dozen of each on every page, and two of three rules are
for what other books have. What all pages name is joined when the build ends; what one page needs
for itself stays with it.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import posixpath
import re
import subprocess
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

from press import BOOK
from press.extension.assets import cut
from press.extension.policy import ENCODING
from press.extension.theme import considerate
from press.node import NODE, PACKAGES, minify

PURGE = PACKAGES / "purgecss" / "bin" / "purgecss.js"
# Tags that name a file beside the pages. A script that says when it runs stays as it is.
SHEET = re.compile(
    r'<link(?=[^>]*rel="stylesheet")[^>]*href="([^"]*?_static/)([^"?]+)[^>]*>\n?', re.IGNORECASE
)
SCRIPT = re.compile(
    r'<script(?![^>]*blocking=)[^>]*src="((?:\.\./)*(?:_static/)?)([^"?]+)[^>]*></script>\n?'
)
# The theme's fonts of icons, of which one is cut to what the pages show.
ICON_FONT = "vendor/fontawesome/webfonts/fa-solid-900.woff2"
ICON_FACE = re.compile(r"@font-face\{[^}]*Font Awesome[^}]*\}")
ICON_FAMILY = re.compile(r'"?Font Awesome\\? 6 (?:Free|Brands)"?')
ADDRESS = re.compile(r"""url\((["']?)(?!data:|["'])([^)"']+)\1\)""")
EARLY = re.compile(r'<link rel="preload" as="script"[^>]*>\n?')
SHEETS, SCRIPTS = "site.css", "site.js"
# Of our own rules all are used, some on elements that scripts make and name piece by piece.
KEPT = ("/* purgecss start ignore */", "/* purgecss end ignore */")
OURS = ("live/", "drawings.css", "palette.css")


def bundle(app: Sphinx, exception: Exception | None) -> None:
    """Join what all pages name, and name the whole in the pages."""
    if exception is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    pages = {path: path.read_text("utf-8") for path in sorted(out.rglob("*.html"))}
    pages = {path: page for path, page in pages.items() if ENCODING in page}
    # A build writes the search page each time, and only those others that changed.
    fresh = [page for page in pages.values() if f"_static/{SHEETS}" not in page]
    if not fresh:
        return
    static = out / "_static"
    sheets, scripts = named_by_all(fresh, SHEET), named_by_all(fresh, SCRIPT)
    script = considerate("\n;\n".join(read_without_map(static / name) for name in scripts))
    script = minify(script, "js")
    (static / SCRIPTS).write_text(script, encoding="utf-8")
    sheet = purged("\n".join(rules(static, name) for name in sheets), out)
    sheet = minify(icon_face(sheet, static) + sheet, "css")
    (static / SHEETS).write_text(sheet, encoding="utf-8")
    style = f'<link rel="stylesheet" href="{{}}{SHEETS}?v={version(sheet)}" />\n'
    run = f'<script defer src="{{}}{SCRIPTS}?v={version(script)}"></script>\n'
    for path, page in pages.items():
        changed = replace_tags(EARLY.sub("", page), SHEET, [*sheets, SHEETS], style)
        changed = replace_tags(changed, SCRIPT, [*scripts, SCRIPTS], run)
        if changed != page:
            path.write_text(changed, encoding="utf-8")


def named_by_all(pages: list[str], tag: re.Pattern[str]) -> list[str]:
    """List the files that every page names, in the order in which they are named."""
    names = [[name for _, name in tag.findall(page)] for page in pages]
    return [name for name in names[0] if all(name in others for others in names)]


def replace_tags(page: str, tag: re.Pattern[str], joined: list[str], whole: str) -> str:
    """Put one tag in place of the first of those joined, and take the others out."""
    places = iter([whole])

    def replaced(match: re.Match[str]) -> str:
        if match[2] in joined:
            return next(places, "").format(match[1])
        # What stays may need what was joined, and so waits as that does.
        waits = tag is SHEET or " defer" in match[0]
        return match[0] if waits else match[0].replace("<script", "<script defer", 1)

    return tag.sub(replaced, page)


def read_without_map(path: Path) -> str:
    """Read a file without its pointer to a map, which holds for that file alone."""
    return re.sub(r"(//|/\*)# sourceMappingURL=\S+( \*/)?", "", path.read_text("utf-8"))


def rules(static: Path, name: str) -> str:
    """Read a style sheet, with what it imports, as if it lay in the folder of static files."""
    folder = posixpath.dirname(name)

    def beside(path: str) -> str:
        return posixpath.normpath(posixpath.join(folder, path))

    def address(match: re.Match[str]) -> str:
        path = beside(match[2])
        # With the fonts of its text a page is set once, and not again as each of them comes.
        return f"url({embedded(static / path) if ours and path.endswith('.woff2') else path})"

    ours = name.startswith(OURS) or (BOOK / "_static" / name).is_file()
    text = read_without_map(static / name).replace('@charset "UTF-8";', "")
    text = ICON_FAMILY.sub("Icons", ICON_FACE.sub("", text))
    text = re.sub(ADDRESS, address, text)
    text = re.sub(r'@import "([^"]+)";', lambda match: rules(static, beside(match[1])), text)
    return "\n".join([KEPT[0], text, KEPT[1]]) if ours else text


def embedded(font: Path) -> str:
    """Write a font as an address that holds it."""
    return f"data:font/woff2;base64,{base64.b64encode(font.read_bytes()).decode('ascii')}"


def purged(sheet: str, out: Path) -> str:
    """Leave out the rules about names that stand in no page and in no script."""
    content = ["**/*.html", "_static/*.js", "_static/scripts/*.js", "_static/live/*.js"]
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder, "whole.css"), Path(folder, "cut.css")
        whole.write_text(sheet, encoding="utf-8")
        command = [NODE, str(PURGE), "--css", str(whole), "--output", str(cut)]
        subprocess.run([*command, "--content", *content], cwd=out, check=True, capture_output=True)
        return cut.read_text("utf-8")


def icon_face(sheet: str, static: Path) -> str:
    """Embed the icons that a style sheet names: written as they are, or by their code points."""
    codes = {int(code, 16) for code in re.findall(r"\\([ef][0-9a-f]{3})\b", sheet)}
    codes |= {ord(character) for character in sheet if "\ue000" <= character <= "\uf8ff"}
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # pygments' styles turn notes on
    font = static / "fonts" / "icons.woff2"
    cut(static / ICON_FONT, codes, font)
    face = f"font-family:Icons;font-weight:900;font-display:block;src:url({embedded(font)})"
    return f"@font-face{{{face}}}\n"


def version(text: str) -> str:
    """Name a text by its content, so that no reader's browser shows an older one."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def setup(app: Sphinx) -> dict[str, object]:
    # Behind the theme, which writes the colours of code when the build ends.
    app.connect("build-finished", bundle, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
