"""The first page: its ways into the book, its figure, and what a reader has marked as read."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from press import contents
from tests.browser.looking import PHONE, WIDE, listen, serious, set_theme
from tests.browser.test_live_pages import PLACED, check_values, open_figure, read_state

FIRST = "book/index"
REFUSE = """const { setItem } = Storage.prototype;
Storage.prototype.setItem = function (key, value) {
  if (key === "attention-executed") throw new DOMException("full", "QuotaExceededError");
  setItem.call(this, key, value);
}"""
CHAPTERS = contents.notebooks("chapters")


def tile(page: Page, name: str) -> Locator:
    return page.locator(f'.front-card:has(a[href$="{name}.html"])')


def test_the_first_page_leads_to_every_chapter_lab_and_audit(page: Page, site: str):
    page.goto(f"{site}/{FIRST}.html")
    for folder in ("chapters", "labs", "audits"):
        names = contents.notebooks(folder)
        links = page.locator(f".front-{folder} a").evaluate_all("all => all.map(a => a.href)")
        assert links == [f"{site}/{name}.html" for name in names]
        assert page.locator(f".front-{folder}").get_by_role("listitem").count() == len(names)
    minutes = {}
    for number, name in enumerate(CHAPTERS, 1):
        told = tile(page, name).inner_text()
        assert told.startswith(f"{number}. "), told
        minutes[name] = re.search(r"^\d+ minutes$", told, re.MULTILINE)[0]
        assert tile(page, name).locator("svg").is_visible()
    for number, name in enumerate(contents.notebooks("labs"), 1):
        assert re.match(rf"Lab\s{number}: .+\s+\d+ minutes$", tile(page, name).inner_text())
    page.goto(f"{site}/{CHAPTERS[1]}.html")
    assert page.locator("article h1").inner_text().startswith("2. ")
    assert page.locator(".front-length").inner_text().startswith(minutes[CHAPTERS[1]])


@pytest.mark.parametrize("window", [WIDE, PHONE], ids=["wide", "phone"])
def test_name_promise_start_and_figure_are_on_the_first_screen(
    window: dict[str, int], page: Page, site: str
):
    page.set_viewport_size(window)
    page.goto(f"{site}/{FIRST}.html")
    for part in ("article h1", "article h1 + p", ".front-start a", ".stage-bar", ".stage-chip"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= window["height"], part


def test_what_is_marked_as_read_stays_and_can_be_forgotten(page: Page, site: str):
    heard = listen(page)
    name, following = CHAPTERS[4], CHAPTERS[5]
    page.goto(f"{site}/{FIRST}.html")
    page.evaluate("localStorage.clear()")  # of chapters that other tests have opened
    page.reload()
    expect(page.locator(".front-start a")).to_have_text("Start with chapter 1")
    assert page.locator(".front-forget").count() == 0

    page.goto(f"{site}/{name}.html")
    mark = page.locator(".front-mark button")
    expect(mark).to_have_accessible_name("Mark as read: this chapter")
    mark.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".front-mark [role=status]")).to_contain_text("marked this chapter")
    page.reload()
    ticked = page.locator(".bd-links .front-read")
    assert ticked.evaluate_all("all => all.map(a => a.textContent.trim())") == [
        "5. Split and merge (read)"
    ]
    set_theme(page, "dark")
    assert serious(page, ".front-mark", alone=True) == []

    page.goto(f"{site}/{FIRST}.html")
    expect(tile(page, name).locator("a")).to_have_accessible_name("5. Split and merge (read)")
    expect(page.locator(".front-forget")).to_contain_text(f"1 of {len(CHAPTERS)} chapters")
    onward = page.locator(".front-start a")
    expect(onward).to_have_text("Continue where you were: 6. The output projection")
    assert onward.get_attribute("href") == f"{site}/{following}.html"
    assert serious(page, ".front-forget", alone=True) == []

    page.goto(f"{site}/{name}.html")
    page.get_by_role("button", name="Undo").click()
    page.locator("#what-breaks-in-silence").scroll_into_view_if_needed()
    page.goto(f"{site}/{FIRST}.html")
    assert page.locator(".front-read").count() == 0
    assert onward.get_attribute("href").startswith(f"{site}/{name}.html#")
    page.get_by_role("button", name="Forget my progress").click()
    assert page.locator(".front-forget").is_hidden()
    page.reload()
    expect(onward).to_have_text("Start with chapter 1")
    assert (heard.foreign, heard.errors) == ([], [])


def test_without_storage_nothing_is_offered_and_nothing_fails(page: Page, site: str):
    heard = listen(page)
    page.add_init_script(REFUSE)
    page.goto(f"{site}/{CHAPTERS[0]}.html")
    assert page.locator(".front-mark").count() == 0
    assert heard.errors == []


def middle(handle: Locator) -> tuple[float, float]:
    box = handle.locator(":is(.stage-knob, .stage-dot)").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_query_is_dragged_by_mouse_and_keys(page: Page, site: str):
    shown = open_figure(page, site, "stage")
    shown.get_by_text("Values as a table").click()
    shown.get_by_role("button", name="Step 5: weights").click()
    said, handle = shown.locator(".live-spoken"), shown.get_by_role("slider", name="Query of")
    expect(said).to_contain_text("that of “mia”: > 99%")
    shown.locator(".stage-plane").scroll_into_view_if_needed()
    plane = shown.locator(".stage-frame").bounding_box()
    x, y = plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2
    page.mouse.move(*middle(handle))
    page.mouse.down()
    for target in ((x, y + 60), (x - 90, y - 40)):
        page.mouse.move(*target, steps=5)
        assert middle(handle) == pytest.approx(target, abs=3)
        check_values(shown, "stage", read_state(shown, "stage"))
    page.mouse.up()
    expect(said).to_contain_text("that of “reads”: 100%")
    page.mouse.move(x + 90, y)
    assert middle(handle) == pytest.approx((x - 90, y - 40), abs=3), "it moves when let go"
    query = read_state(shown, "stage")["query"]
    handle.press("ArrowRight")
    assert read_state(shown, "stage")["query"] == [query[0] + 0.5, query[1]]
    shown.get_by_role("button", name="Reset vectors").click()
    assert read_state(shown, "stage")["query"] == []
    check_values(shown, "stage", read_state(shown, "stage"))


def test_a_word_is_dragged_by_a_finger(browser: Browser, site: str):
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    shown = open_figure(page, site, "stage")
    shown.get_by_text("Values as a table").click()
    shown.get_by_role("button", name="Step 2: words").click()
    handle = shown.get_by_role("slider", name="Vector of mia")
    handle.scroll_into_view_if_needed()
    page.wait_for_timeout(600)  # it travels
    reach = handle.locator(".stage-reach").bounding_box()
    assert min(reach["width"], reach["height"]) >= 24
    start, scrolled = middle(handle), page.evaluate("scrollY")
    touch = context.new_cdp_session(page)
    places = [(start[0] + 6 * i, start[1] + 6 * i) for i in range(10)]
    for i, (x, y) in enumerate(places):
        kind = "touchMove" if i else "touchStart"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(600)
    assert middle(handle) == pytest.approx(places[-1], abs=12), "it snaps to halves"
    assert page.evaluate("scrollY") == scrolled, "the page scrolls instead"
    state = read_state(shown, "stage")
    assert state["vectors"] != PLACED["stage"][1]["vectors"]
    check_values(shown, "stage", state)
    context.close()
