"""The theme's code where it makes a page wait: each page is styled once and measured once."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# The theme colours a page anew when its scripts run, if nobody has chosen light or dark: all its
# elements are styled a second time. The head can ask the system as well.
UNDECIDED = 'localStorage.getItem("theme") || "auto";'
DECIDED = (
    '({ light: "light", dark: "dark" })[document.documentElement.dataset.mode]'
    ' || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");'
)
# What scrolls by itself is given a place in the order of the keyboard. Written at once, each asks
# for a new layout before the next is measured. A stop says what it is for.
IN_TURN = "e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1"
AT_LAST = (
    "whenLaidOut(e,()=>{"
    "const scrolls=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight;"
    "queueMicrotask(()=>{e.tabIndex=scrolls?0:-1;e.role=scrolls?'group':null;"
    "e.ariaLabel=scrolls?'Scrolls by the arrow keys':null})})"
)
# A pressed button gives up the focus, so that its tooltip goes. By keyboard that loses one's place.
DROPS_FOCUS = "(()=>{t.blur()})"
KEEPS_FOCUS = '(()=>{t.matches(":focus-visible")||t.blur()})'
# All buttons that copy are called the same.
COPIES = 'data-clipboard-target="#${id}">'
COPIES_THIS = (
    'data-clipboard-target="#${id}" aria-label="Copy'
    " ${codeCell.closest('.cell_output') ? 'output' : 'code'} ${index + 1}:"
    """ ${codeCell.textContent.trim().split('\\n')[0]"""
    """.replace(/^(.{1,40}(?!\\w)).*/, '$1').replace(/["&<]/g, '')}">"""
)
# Who has copied by keyboard stays on the button, and hears that it is done.
COPIED = "  clipboard.on('success', event => {\n    clearSelection()"
COPIED_HERE = (
    "  clipboard.on('success', event => {\n    clearSelection()\n"
    "    event.trigger.focus({ preventScroll: true })\n    announce('Copied.')"
)
NOT_COPIED = "  clipboard.on('error', event => {"
NOT_COPIED_HERE = f"{NOT_COPIED}\n    announce('It could not be copied.')"
# Such a button has a name, which its icon is told beside.
COPY_ICON = ' class="icon icon-tabler'
# Icons are characters of a font, which have no name.
ICON = re.compile(r'<(i|span) class="(?=[^"]*\bfa-)')
# The theme folds a page's contents where a verdict stands in the upper two thirds of the window.
# They give way to one that would lie below them.
AT_TWO_THIRDS = '"0px 0px -33% 0px"'
BELOW_CONTENTS = (
    '`0px 0px ${Math.min(0, (document.querySelector("#pst-secondary-sidebar")?.offsetHeight ?? 0)'
    " - innerHeight)}px 0px`"
)
# Of the twenty-eight names by which the theme looks for what stands there, the book has one.
LOOKS_FOR_ALL, LOOKS_FOR_OURS = 'querySelectorAll(n.join(", "))', 'querySelectorAll(".tag_margin")'
# On a phone its contents have left that column for a dialog while they are read.
FOLDED = 'document.querySelector("div.bd-sidebar-secondary").classList'
FOLDED_ANYWHERE = 'document.getElementById("pst-secondary-sidebar").classList'
# A heading's mark, which links to it, is for the mouse: the page's contents have the same links.
MARK = '<a class="headerlink" '
UNTOLD = f'{MARK}tabindex="-1" aria-hidden="true" '
# Who skips to the text skips the buttons above it, too.
SKIP, ARTICLE = ' href="#main-content"', '<article class="bd-article"'
# The page's contents come before its text in the order of the keyboard, too, and a second link
# leads to them. Where the window has no room beside the text they are behind a button.
CONTENTS = re.compile(r'<dialog id="pst-secondary.*?(?=</div>\s*<footer class="bd-f)', re.DOTALL)
BESIDE_TEXT = '<div class="bd-article-container">'
SKIPS = "Skip to main content</a>"
SKIPS_TO_CONTENTS = f'{SKIPS} <a href="#pst-page-toc-nav">Skip to the contents of this page</a>'
# The text's tools come behind the list of the book's pages.
SKIPS_TO_TOOLS = f'{SKIPS} <a href="#tools">Skip to the tools</a>'
HERE = 'class="current reference internal" href="#"'
# What the theme names twice, by its parts alone, or tells though it is empty.
NAMES = [
    (' title="previous page"', ""),
    (' title="next page"', ""),
    ('title="Toggle primary sidebar"', 'title="Contents of the book"'),
    ('title="Toggle secondary sidebar"', 'title="Contents of this page"'),
    ('<header class="bd-header ', '<header role="presentation" class="bd-header '),
    ('<footer class="bd-footer"', '<footer role="presentation" class="bd-footer"'),
    ('aria-label="Search..."', 'aria-label="Search the book"'),
    # The page one is on, in the book's contents.
    (HERE, f'{HERE} aria-current="page"'),
    # What groups the book's contents is no part of the page's outline.
    ('<p aria-level="2" class="caption" role="heading">', '<p class="caption">'),
    (
        '<div id="pst-primary-sidebar" ',
        '<div id="pst-primary-sidebar" role="complementary" aria-label="The book" ',
    ),
]
# Where there is a text, this alone is the page's main part: tools and footer stand beside it.
AROUND = [
    (
        '<main id="main-content" class="bd-main" role="main"',
        '<div id="main-content" class="bd-main"',
    ),
    ("</main>", "</div>"),
    (ARTICLE, f'{ARTICLE} id="bd-article" role="main"'),
    (
        '<div class="bd-header-article ',
        '<div id="tools" role="region" aria-label="Tools" class="bd-header-article ',
    ),
    (
        '<footer class="prev-next-footer ',
        '<footer role="navigation" aria-label="Before and after" class="prev-next-footer ',
    ),
]
KINDS = {".ipynb": "Notebook", ".md": "Text", ".pdf": "Print, or save"}
# Bootstrap marks in the contents what comes into a strip of the window, contents.js what is read.
# Style sheets find a page by its name there: asked what it holds, the browser would style all that
# it holds anew with each element that comes.
SPY = ' data-bs-spy="scroll"'


def decided(page: str, name: str) -> str:
    """Let a page know early if it is light or dark, and its name, and leave untold what repeats."""
    page = put(put(page, UNDECIDED, DECIDED), SPY, f' data-page="{name}"').replace(MARK, UNTOLD)
    if ARTICLE in page:
        page = put(page, SKIP, ' href="#bd-article"')
        page = put(page, SKIPS, SKIPS_TO_TOOLS)
        for old, new in AROUND:
            page = page.replace(old, new)
    if contents := CONTENTS.search(page):
        page = put(page.replace(contents[0], ""), BESIDE_TEXT, contents[0] + BESIDE_TEXT)
        page = put(page, SKIPS, SKIPS_TO_CONTENTS)
    for old, new in NAMES:
        page = page.replace(old, new)
    return ICON.sub(r'<\1 aria-hidden="true" class="', page)


def considerate(script: str) -> str:
    """Let the scripts of others measure before they write, keep the focus, and name buttons."""
    for old, new in [
        (IN_TURN, AT_LAST),
        (DROPS_FOCUS, KEEPS_FOCUS),
        (COPIES, COPIES_THIS),
        (COPIED, COPIED_HERE),
        (NOT_COPIED, NOT_COPIED_HERE),
        (AT_TWO_THIRDS, BELOW_CONTENTS),
        (LOOKS_FOR_ALL, LOOKS_FOR_OURS),
        (FOLDED, FOLDED_ANYWHERE),
        (COPY_ICON, f' aria-hidden="true"{COPY_ICON}'),
    ]:
        script = put(script, old, new)
    return script


def name_downloads(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Say what each download is: of its ending alone one hears no more than a word."""
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            ending = button["text"]
            button |= {"text": f"{KINDS[ending]} ({ending})", "tooltip": None}


def put(text: str, old: str, new: str) -> str:
    if old not in text:
        raise ExtensionError(f"the theme no longer holds {old!r}: see press/extension/theme.py")
    return text.replace(old, new)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", name_downloads, priority=900)  # behind the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
