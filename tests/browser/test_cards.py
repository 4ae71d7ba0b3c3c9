"""Cards of terms and papers: by mouse, by keyboard and by touch, readable, and gone when asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from press import HTML
from tests.browser.looking import PHONE, overflow, serious, set_theme

NAME = "chapters/02_why_sqrt_d_k.html"
TERM, OTHER = "glossary.html#jacobian", "glossary.html#temperature"
ENTRY = re.compile(r'<a [^>]*href="([^"#]*\b(?:glossary|bibliography)\.html#[^"]+)"')
OFFERED = re.compile(r'<template data-card="([^"]+)">')


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport=PHONE, has_touch=True, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def link(page: Page, target: str) -> Locator:
    return page.locator(f"article a[href$='{target}']").first


def card(page: Page) -> Locator:
    return page.locator(".hover-card")


def test_every_link_to_an_entry_has_its_card_and_no_page_has_more():
    linking = 0
    for path in HTML.glob("*/*.html"):
        _, _, article = path.read_text(encoding="utf-8").partition("<article")
        text = article.partition("</article>")[0]
        links = set(ENTRY.findall(re.sub(r"(?s)<template.*?</template>", "", text)))
        assert set(OFFERED.findall(text)) == links, path.name
        linking += bool(links)
    assert linking > 14, "each chapter links to entries"


def test_a_card_by_mouse_stays_while_one_is_on_it(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    link(page, TERM).hover()
    expect(card(page)).to_contain_text("The matrix of all partial derivatives")
    assert card(page).locator(".katex-html").is_visible(), "the formula is not set"
    card(page).hover()
    page.wait_for_timeout(600)
    expect(card(page)).to_be_visible()
    page.mouse.move(1, 1)
    expect(card(page)).to_have_count(0)

    link(page, TERM).hover()
    expect(card(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(card(page)).to_have_count(0)


def test_a_card_by_keyboard_is_told_and_can_be_closed(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    page.keyboard.press("Tab")  # from now on focus is that of a keyboard
    link(page, TERM).focus()
    expect(card(page)).to_be_visible()
    assert link(page, TERM).get_attribute("aria-describedby") == card(page).get_attribute("id")
    page.mouse.move(1, 1)
    page.wait_for_timeout(600)
    expect(card(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(card(page)).to_have_count(0)
    expect(link(page, TERM)).to_be_focused()

    link(page, OTHER).focus()
    expect(card(page)).to_contain_text("Temperature")
    page.keyboard.press("Tab")
    expect(card(page).get_by_text("Temperature")).to_have_count(0)
    link(page, OTHER).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{OTHER}")


def test_a_card_by_touch_comes_first_and_leads_on(phone: Page, site: str):
    phone.goto(f"{site}/{NAME}")
    link(phone, TERM).tap()
    expect(card(phone)).to_be_visible()
    assert phone.url.endswith(NAME), "the first tap leads away"
    phone.locator("article h1").tap()
    expect(card(phone)).to_have_count(0)

    link(phone, OTHER).tap()
    link(phone, TERM).tap()
    expect(card(phone)).to_have_count(1)
    card(phone).get_by_role("link").tap()
    phone.wait_for_url(f"**/{TERM}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_open_card_is_for_everyone_and_within_the_window(theme: str, phone: Page, site: str):
    phone.goto(f"{site}/{NAME}")
    set_theme(phone, theme)
    link(phone, TERM).tap()
    box = card(phone).bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    assert overflow(phone) <= 0
    assert serious(phone, ".hover-card") == []


def test_paper_gets_no_card(page: Page, site: str):
    page.goto(f"{site}/{NAME}")
    link(page, TERM).hover()
    expect(card(page)).to_be_visible()
    page.emulate_media(media="print")
    expect(card(page)).to_be_hidden()
