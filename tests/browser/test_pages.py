"""Every built page in a real browser: no other host, no error, readable, light enough.

A page is opened once, on a phone and then wide; one page of each kind once more as a file. Every
time that is done with the few that together have every kind of element, which are also judged on
whether they are for everyone. The other chapters are weighed, on a phone. All pages are opened and
judged with `make pages ALL=1`. All that a visit finds wrong is told at once, by the demand that it
breaks.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from labkit import ledger
from press import HTML
from press.editions import pages as editions
from press.extension.cells import EXPECTED
from press.extension.claims import LISTED, erratum_anchor
from tests.browser.looking import (
    CHANGE_THEME,
    COLOURS,
    DRAW_FIGURES,
    EVERYTHING,
    OPEN_FOLDS,
    PASS_BY,
    PHONE,
    TAB_STOPS,
    TAKES_LONG,
    WIDE,
    WIDTHS,
    Heard,
    is_foreign,
    judge,
    listen,
    out_of_reach,
    sample,
    serious,
    set_theme,
    too_wide,
    unseen,
    wait_for_drawing,
)
from tests.browser.test_live_pages import PLACED, differing

# The root page only sends the reader on to book/index.html. The largest pages come first, so that
# both workers end together.
PAGES = sorted(
    (
        path.relative_to(HTML).as_posix()
        for path in HTML.rglob("*.html")
        if "_static" not in path.parts and path != HTML / "index.html"
    ),
    key=lambda name: (-(HTML / name).stat().st_size, name),
)
# All pages of a folder have the same template around their article; the smallest is judged.
ONE_OF_EACH_KIND = set({Path(name).parent: name for name in PAGES}.values())
# Together they have every kind of element that an article can have.
SAMPLES = {f"{name}.html" for _, name in sample(editions.order())}
OPENED = [name for name in PAGES if EVERYTHING or name in SAMPLES | ONE_OF_EACH_KIND]
WITH_LIVE_FIGURES = {f"{page}.html" for page, _ in PLACED.values()}
AS_FILES = ONE_OF_EACH_KIND | (WITH_LIVE_FIGURES if EVERYTHING else set())
# The smallest page that has a chart, and the smallest that has one to play.
WITH_CHARTS = [name for name in PAGES if "plotly-figure" in (HTML / name).read_text("utf-8")][-1:]
WITH_FRAMES = [name for name in PAGES if '"frames": [{' in (HTML / name).read_text("utf-8")][-1:]
THEME = "document.documentElement.dataset.theme"
AROUND = {"exclude": [["article"]]}
# What a page asks for as it is opened, before a figure is drawn or a model played.
MOST_BYTES, MOST_REQUESTS = 310_000, 12
SEARCH_BYTES = 480_000  # with all that it knows of the pages


def test_the_book_is_built():
    assert PAGES, f"no pages under {HTML}: run `make book`"


# What plays them is one script for all pages.
@TAKES_LONG
@pytest.mark.parametrize("name", WITH_FRAMES)
def test_frames_take_the_keyboard_and_rest(name: str, page: Page, site: str):
    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{site}/{name}")
    assert page.evaluate(DRAW_FIGURES) == []
    figure = page.locator("figure.plotly-figure", has=page.locator(".plotly-figure-frame")).first
    drawing, frame = (
        figure.locator(".plotly-figure-drawing"),
        figure.locator(".plotly-figure-frame"),
    )
    slider, button = figure.get_by_role("slider"), figure.get_by_role("button")
    drawn = "drawing => JSON.stringify(drawing.data.map(({ z }) => z))"
    at_rest, last = drawing.evaluate(drawn), frame.text_content()
    page.wait_for_timeout(1000)
    assert frame.text_content() == last, "moves unasked"

    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(200)
    first = drawing.evaluate(drawn)
    assert first != at_rest, "the slider changes nothing"
    assert slider.evaluate("slider => slider.ariaValueText") == frame.text_content() != last
    set_theme(page, "dark" if page.evaluate(THEME) == "light" else "light")
    page.wait_for_timeout(200)
    assert drawing.evaluate(drawn) == first, "the frame is lost with the theme"

    button.focus()
    page.keyboard.press("Enter")
    assert button.text_content() == "Stop"
    button.get_by_text("Play").wait_for(timeout=30_000)
    page.wait_for_timeout(200)
    assert (drawing.evaluate(drawn), frame.text_content()) == (at_rest, last)
    page.emulate_media(reduced_motion="reduce")
    assert not button.is_visible(), "offers motion to who asked for none"
    assert slider.is_visible()


@pytest.mark.parametrize("name", WITH_FRAMES)
def test_what_plays_is_for_everyone(name: str, page: Page, site: str):
    page.set_viewport_size(PHONE)
    page.goto(f"{site}/{name}")
    assert page.evaluate(DRAW_FIGURES) == []
    playing = "figure.plotly-figure:has(.plotly-figure-player)"
    assert serious(page, playing, alone=True) == []
    set_theme(page, "dark")
    assert serious(page, playing, COLOURS) == []


# How much has moved that was shown, with nobody's doing.
WATCH_SHIFTS = """window.shifted = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });"""
TOLD = "figure.plotly-figure figcaption"
DRAWING = ".plotly-figure-drawing"


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_plotly_comes_with_a_figure_and_moves_nothing(name: str, page: Page, site: str):
    page.add_init_script(WATCH_SHIFTS)
    page.set_viewport_size(PHONE)
    heard = listen(page)
    page.goto(f"{site}/{name}", wait_until="networkidle")
    assert not [address for address in heard.answered if "plotly" in address]
    box = "figure => figure.getBoundingClientRect().height"
    figures = page.locator("figure.plotly-figure").all()
    heights, before = [each.evaluate(box) for each in figures], page.evaluate("shifted")
    assert page.evaluate(DRAW_FIGURES) == []
    assert [each.evaluate(box) for each in figures] == heights
    assert page.evaluate("shifted") == before


@pytest.mark.parametrize("name", WITH_FRAMES)
def test_a_figure_without_scripts_is_its_text(name: str, browser: Browser, site: str):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{site}/{name}")
    assert page.locator(TOLD).first.is_visible()
    assert not page.locator(f"{DRAWING}, .plotly-figure-player").first.is_visible()
    page.close()


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_a_figure_whose_script_does_not_come_says_what_to_do(name: str, page: Page, site: str):
    page.route("**/plotly.min.js*", lambda route: route.abort())
    page.goto(f"{site}/{name}")
    page.locator(TOLD).first.scroll_into_view_if_needed()
    page.locator(DRAWING, has_text="Reload the page").first.wait_for()
    assert page.locator(TOLD).first.is_visible()


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_the_print_button_waits_for_the_figures(name: str, page: Page, site: str):
    page.add_init_script(
        "window.print = () => { window.printed = document.querySelectorAll('.main-svg').length; };"
    )
    page.goto(f"{site}/{name}")
    page.evaluate("print()")
    page.wait_for_function("() => window.printed > 0")


@pytest.mark.parametrize("name", OPENED)
def test_page(name: str, page: Page, site: str):
    heard = listen(page)
    page.set_viewport_size(PHONE)
    page.goto(f"{site}/{name}", wait_until="networkidle")
    light = weighed(heard, SEARCH_BYTES if name == "search.html" else MOST_BYTES)
    wrong = {f"{demand}, on a phone": found for demand, found in settle(page, "dark").items()}
    judged = EVERYTHING or name in SAMPLES
    if judged:
        page.evaluate(PASS_BY)
        # The other rules depend neither on the colours nor on the width.
        wrong["is not for everyone, on a phone"] = serious(page, rules=[*COLOURS, *WIDTHS])
    one_of_its_kind = name in ONE_OF_EACH_KIND
    if one_of_its_kind:
        set_theme(page, "light")
        wrong["is not for everyone around the article, on a phone"] = serious(page, AROUND)
    page.set_viewport_size(WIDE)
    wrong |= settle(page, "light") | {
        "has no policy, or two": unless(policies(page) == 1, policies(page)),
        "has a figure that keeps its colours": page.evaluate(CHANGE_THEME, "dark"),
    }
    set_theme(page, "light")
    page.evaluate(TAB_STOPS)
    if judged:
        wrong["is not for everyone"] = serious(page, thin=True)
    set_theme(page, "dark")
    if one_of_its_kind:
        wrong["is not for everyone around the article in the dark"] = serious(page, AROUND)
    judge(wrong | heard.demands() | light | said(name))


def test_no_other_chapter_is_heavy_or_logs_an_error(reader: BrowserContext, site: str):
    wrong: dict[str, list[str]] = {}
    for name in PAGES:
        if name not in OPENED and name.startswith("chapters/"):
            page = reader.new_page()  # a tab that has been used asks for more fonts
            heard = listen(page)
            page.set_viewport_size(PHONE)
            page.goto(f"{site}/{name}", wait_until="networkidle")
            found = heard.demands() | weighed(heard, MOST_BYTES)
            wrong |= {f"{name} {demand}": all_found for demand, all_found in found.items()}
            page.close()
    judge(wrong)


# A file has another origin than a page from a server, and no modules: scripts are what may fail.
@pytest.mark.parametrize("name", sorted(AS_FILES))
def test_page_opens_by_double_click(name: str, page: Page, unpacked: str):
    heard = listen(page)
    page.goto(f"{unpacked}/{name}")
    wrong = {"has a live figure with other numbers than labkit's": live_figures_off(page)}
    wrong["has a figure that is not drawn"] = page.evaluate(DRAW_FIGURES)
    wrong["has no fonts"] = unless(page.evaluate("document.fonts.ready.then(f => f.size)"))
    judge(wrong | heard.demands())


def settle(page: Page, theme: str) -> dict[str, list[str]]:
    """Open what is folded, draw every figure, and judge how the page is laid out."""
    set_theme(page, theme)
    page.evaluate(OPEN_FOLDS)
    return {
        "has a figure that is not drawn": page.evaluate(DRAW_FIGURES),
        "has a formula that is not seen": unseen(page),
        "has a formula out of reach": out_of_reach(page),
        "scrolls sideways": too_wide(page),
    }


def unless(met: Any, found: Any = "none") -> list[Any]:
    return [] if met else [found]


def policies(page: Page) -> int:
    return page.locator("meta[http-equiv=Content-Security-Policy]").count()


def weighed(heard: Heard, most: int) -> dict[str, list[str]]:
    """Count what a page has asked for, and add up what a server would send compressed."""
    asked = [unquote(urlsplit(address).path)[1:] for address in heard.answered]
    files = [path for path in asked if path]
    weight = sum(map(compressed, files))
    return {
        f"weighs {most} bytes or more": unless(weight < most, weight),
        f"asks for more than {MOST_REQUESTS} files": unless(len(files) <= MOST_REQUESTS, files),
    }


@cache
def compressed(path: str) -> int:
    content = (HTML / path).read_bytes()
    return len(content if path.endswith((".woff2", ".png")) else gzip.compress(content))


def live_figures_off(page: Page) -> list[str]:
    """Name the live figures that do not show in their first state what labkit computes."""
    figures = page.locator("figure.live-figure").all()
    names = [figure.get_attribute("data-name") for figure in figures]
    return [
        f"{name}: {wrong}"
        for figure, name in zip(figures, names, strict=True)
        if (wrong := differing(figure, name, PLACED[name][1]))
    ]


def said(name: str) -> dict[str, list[str]]:
    """Judge what a page says of itself to those who find or quote it."""
    text = (HTML / name).read_text(encoding="utf-8")
    titles = re.findall("<title>(.+?)</title>", text, re.DOTALL)
    described = re.findall(r'<meta (?:name|property)="(?:og:)?description" content="(.+?)"', text)
    pictures = re.findall(r'<meta property="og:image" content="(.+?)"', text)
    there = ["://" in p or (HTML / name).parent.joinpath(p).is_file() for p in pictures]
    searching = name == "search.html"  # which nobody quotes
    return {
        "has no title, or two": unless(len(titles) == 1, titles),
        "has a title with a formula doubled": [title for title in titles if "\u200b" in title],
        "is not described twice": unless(searching or len(described) == 2, described),
        "has TeX in its description": [each for each in described if "\\" in each],
        "has no picture for sharing": unless(searching or there == [True], pictures),
    }


# Name the verdicts that stand above their own section's heading, or beside or below the next one.
ASTRAY = """() => {
  const headings = "article :is(h1, h2, h3)";
  const all = [...document.querySelectorAll(`${headings}, .cell.tag_margin .verdict`)];
  const { scrollY } = window;
  const top = e => e ? e.getBoundingClientRect().top + scrollY : Infinity;
  return all.filter((verdict, at) => verdict.matches(".verdict") && (
    top(verdict) < top(all.slice(0, at).findLast(e => e.matches(headings)))
    || verdict.getBoundingClientRect().bottom + scrollY
      > top(all.slice(at).find(e => e.matches(headings)))
  )).map(verdict => verdict.id);
}"""


def test_verdicts_stand_beside_their_idea(page: Page, site: str):
    astray = {}
    with_some = [name for name in PAGES if "tag_margin" in (HTML / name).read_text("utf-8")]
    for name in with_some[:: 1 if EVERYTHING else 3]:
        page.goto(f"{site}/{name}")
        page.evaluate("document.fonts.ready")
        for width in (1440, 1200, 992) if EVERYTHING else (1200,):
            page.set_viewport_size({"width": width, "height": 900})
            wait_for_drawing(page)
            astray[name, width] = page.evaluate(ASTRAY)
    assert astray
    assert {where: found for where, found in astray.items() if found} == {}


def test_the_contents_mark_what_is_read_and_a_button_keeps_the_focus(page: Page, site: str):
    page.set_viewport_size(WIDE)
    page.goto(f"{site}/audits/committee.html")
    marked = page.locator("#pst-page-toc-nav [aria-current]")
    for part in ("the-mask", "masking", "the-closing-what-it-stands-for"):
        page.evaluate("name => document.getElementById(name).scrollIntoView()", part)
        expect(marked).to_have_attribute("href", f"#{part}")
        expect(marked).to_be_in_viewport()
    page.goto(f"{site}/chapters/02_why_sqrt_d_k.html#quiz")
    expect(marked).to_have_attribute("href", "#quiz")
    heading = page.locator("#quiz > h2").bounding_box()
    assert heading["y"] < 80, "the stage that is in sight elsewhere is not above it"
    button = page.locator(".bd-header-article .theme-switch-button")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_be_focused()
    expect(button).not_to_have_attribute("aria-describedby", re.compile("tooltip"))
    for skip, place in (("main content", "article"), ("the contents of this page", "nav.page-toc")):
        page.get_by_role("link", name=f"Skip to {skip}").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        reached = page.locator(f"{place} :focus")
        expect(reached).to_have_css("outline", re.compile("solid 2px"))
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="Skip to the contents of this page").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(
        page.locator("dialog nav.page-toc :focus"), "where they are behind a button"
    ).to_be_visible()
    here = page.locator("#pst-primary-sidebar [aria-current=page]")
    expect(here).to_have_text(re.compile("Why divide"))


def test_an_expected_error_says_so(page: Page, site: str):
    page.goto(f"{site}/chapters/02_why_sqrt_d_k.html")
    error = page.locator(".cell_output", has=page.locator(".traceback"))
    assert error.inner_text().startswith(EXPECTED)


CODE = """() => [...document.querySelectorAll("article .cell_input pre")]
  .filter(block => block.checkVisibility())
  .map(block => [block.scrollWidth - block.clientWidth, block.querySelectorAll(".long").length,
    block.textContent, block.cloneNode(true).innerText])"""

# How many lines each long line of code takes.
LINES = """() => [...document.querySelectorAll("article .cell_input .long")]
  .filter(line => line.checkVisibility())
  .map(line => [line.getBoundingClientRect().height, parseFloat(getComputedStyle(line).lineHeight)])
  .map(([height, one]) => Math.round(height / one))"""


# What is written in code, and would be seen without the spaces that begin its line.
COLLAPSED = """() => [...document.querySelectorAll("article .cell_input pre *")]
  .filter(part => getComputedStyle(part).whiteSpaceCollapse !== "preserve")
  .map(part => part.textContent)"""


def test_code_is_read_downwards_on_a_phone_and_copied_as_it_is_written(page: Page, site: str):
    page.set_viewport_size(PHONE)
    page.goto(f"{site}/chapters/05_split_and_merge.html")
    wait_for_drawing(page)
    expect(page.locator("#pst-page-toc-nav a").first).to_be_hidden()  # closed, it takes no focus
    blocks = page.evaluate(CODE)
    assert max(sideways for sideways, *_ in blocks) == 0
    assert sum(long for _, long, *_ in blocks) > 9
    assert [copied for *_, copied in blocks] == [written for *_, written, _ in blocks]
    assert max(page.evaluate(LINES)) > 1
    drawer = page.locator("dialog[open]")
    for choice in (".page-toc a", ".page-toc a", ".drawer-close"):
        page.locator(".secondary-toggle").click()
        drawer.locator(choice).last.click()
        expect(drawer).to_have_count(0)
    page.set_viewport_size(WIDE)
    assert set(page.evaluate(LINES)) == {1}
    assert page.evaluate(COLLAPSED) == []


PLANTED = """
    <script src="https://elsewhere.example/planted.js"></script>
    <script>document.title = "planted"</script>
    <svg onload="document.title = 'planted'"></svg>
    <img alt="" src="https://elsewhere.example/planted.png">
    <iframe src="https://elsewhere.example/"></iframe>
""".split("\n")[1:-1]


@pytest.mark.parametrize("opened", ["from a server", "as a file"])
def test_the_policy_refuses_what_is_planted(opened: str, page: Page, site: str):
    name = "book/cite.html"
    address = f"{site if opened == 'from a server' else HTML.as_uri()}/{name}"
    source = (HTML / name).read_text(encoding="utf-8")
    assert "</h1>" in source
    body = source.replace("</h1>", f"</h1>{''.join(PLANTED)}", 1)
    # The other host would answer: what keeps the page from it is the policy.
    page.route("https://elsewhere.example/**", lambda route: route.fulfill(body="planted"))
    page.route(address, lambda route: route.fulfill(body=body, content_type="text/html"))
    reached, refused = [], []
    page.on("response", lambda r: reached.append(r.url) if is_foreign(r.url) else None)
    page.on("console", lambda m: refused.append(m.text) if m.type == "error" else None)
    with page.expect_event("console", lambda message: len(refused) == len(PLANTED)):
        page.goto(address)
    assert all("Content Security Policy" in message for message in refused)
    assert reached == []
    assert page.title() != "planted"


# Found and quoted


def test_every_claim_has_its_address():
    ids = {page: set(re.findall(r'id="([^"]+)"', (HTML / page).read_text())) for page in PAGES}
    missing = []
    for claim in ledger.all_claims():
        compared = isinstance(claim, ledger.Compared)
        if compared and claim.anchor not in ids[f"{claim.notebook}.html"]:
            missing.append(f"{claim.notebook}.html: {claim.key}")
        if claim.verdict in LISTED and erratum_anchor(claim) not in ids["book/errata.html"]:
            missing.append(f"book/errata.html: {claim.key}")
    assert missing == []


def test_a_chapter_asks_first_in_a_box():
    boxes = {
        page: (HTML / page).read_text(encoding="utf-8").count('class="predict"')
        for page in PAGES
        if re.match(r"chapters/\d", page)
    }
    assert set(boxes.values()) == {1}, boxes


def test_a_verdict_in_a_chapter_names_its_document():
    named = set()
    for path in HTML.glob("chapters/*.html"):
        text = path.read_text(encoding="utf-8")
        lines = re.findall(r'<details class="verdict[^>]*><summary>(.*?)</summary>', text)
        documents = [re.match("<code>(.+?)</code>", line) for line in lines]
        assert None not in documents, path.name
        named |= {document[1] for document in documents if document}
    assert named == set(ledger.document_keys())


def test_the_archive_opens_at_its_first_page(page: Page, unpacked: str):
    page.goto(f"{unpacked}/index.html")
    page.wait_for_url("**/book/index.html")


def test_a_page_prints_light_and_open(page: Page, site: str):
    page.goto(f"{site}/chapters/01_query_key_value.html")
    set_theme(page, "dark")
    folded = page.locator("article details:not([open], .hide)")
    assert folded.count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (folded.count(), page.evaluate(THEME)) == (0, "light")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count()
    assert page.evaluate(THEME) == "dark"
