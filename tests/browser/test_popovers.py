"""Popovers of terms and papers: by mouse, keyboard and touch, readable, and gone when asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from press import HTML
from tests.browser.looking import COLOURS, PHONE, overflow, serious, set_theme

NAME = "chapters/02_why_sqrt_d_k.html"
TERM, OTHER = "glossary.html#jacobian", "glossary.html#temperature"
ENTRY = re.compile(r'<a [^>]*href="([^"#]*\b(?:glossary|bibliography)\.html#[^"]+)"')
OFFERED = re.compile(r'<template data-card="([^"]+)">')


@pytest.fixture(scope="module")
def phone(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport=PHONE, has_touch=True, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def link(page: Page, target: str) -> Locator:
    return page.locator(f"article a[href$='{target}']").first


def popover(page: Page) -> Locator:
    return page.locator(".hover-card")


def test_every_link_to_an_entry_has_its_popover_and_no_page_has_more():
    linking = 0
    for path in HTML.glob("*/*.html"):
        _, _, article = path.read_text(encoding="utf-8").partition("<article")
        text = article.partition("</article>")[0]
        links = set(ENTRY.findall(re.sub(r"(?s)<template.*?</template>", "", text)))
        assert set(OFFERED.findall(text)) == links, path.name
        linking += bool(links)
    assert linking > 14, "each chapter links to entries"


def test_a_popover_by_mouse_stays_while_one_is_on_it(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    link(page, TERM).hover()
    expect(popover(page)).to_contain_text("The matrix of all partial derivatives")
    assert popover(page).locator(".katex-html").is_visible(), "the formula is not set"
    popover(page).hover()
    page.wait_for_timeout(600)
    expect(popover(page)).to_be_visible()
    page.mouse.move(1, 1)
    expect(popover(page)).to_have_count(0)

    link(page, TERM).hover()
    expect(popover(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(popover(page)).to_have_count(0)


def test_a_popover_by_keyboard_is_told_and_can_be_closed(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    page.keyboard.press("Tab")  # from now on focus is that of a keyboard
    link(page, TERM).focus()
    expect(popover(page)).to_be_visible()
    assert link(page, TERM).get_attribute("aria-describedby") == popover(page).get_attribute("id")
    page.mouse.move(1, 1)
    page.wait_for_timeout(600)
    expect(popover(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(popover(page)).to_have_count(0)
    expect(link(page, TERM)).to_be_focused()

    link(page, OTHER).focus()
    expect(popover(page)).to_contain_text("Temperature")
    page.keyboard.press("Tab")
    expect(popover(page).get_by_text("Temperature")).to_have_count(0)
    link(page, OTHER).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{OTHER}")


def test_a_popover_by_touch_comes_first_and_leads_on(phone: Page, site: str):
    phone.goto(f"{site}/{NAME}")
    link(phone, TERM).tap()
    expect(popover(phone)).to_be_visible()
    assert phone.url.endswith(NAME), "the first tap leads away"
    phone.locator("article h1").tap()
    expect(popover(phone)).to_have_count(0)

    link(phone, OTHER).tap()
    link(phone, TERM).tap()
    expect(popover(phone)).to_have_count(1)
    popover(phone).get_by_role("link").tap()
    phone.wait_for_url(f"**/{TERM}")


def test_an_open_card_is_for_everyone_and_within_the_window(phone: Page, site: str):
    phone.goto(f"{site}/{NAME}")
    link(phone, TERM).tap()
    box = popover(phone).bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    assert overflow(phone) <= 0
    for theme, rules in (("light", None), ("dark", COLOURS)):
        set_theme(phone, theme)
        assert serious(phone, ".hover-card", rules, alone=True) == [], theme


def test_paper_gets_no_popover(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    link(page, TERM).hover()
    expect(popover(page)).to_be_visible()
    page.emulate_media(media="print")
    expect(popover(page)).to_be_hidden()
