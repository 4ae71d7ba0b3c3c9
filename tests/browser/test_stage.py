"""The stage among text that leads it: states, sections, lit parts, and the form that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from labkit.figures.broken_gpt import BUGS as STORY_BUGS
from labkit.figures.live import Stage
from labkit.figures.stage import BUGS
from labkit.models.pocket import sentences
from press import HTML
from press.extension.live_figures import placed
from press.figures import figure_of, page_script
from tests.browser.looking import EVERYTHING, PHONE, WIDE, serious, set_theme
from tests.browser.serving import Quiet
from tests.browser.test_live_pages import PLACED, READ_CONTROLS, TOO_SMALL, check_values

STATES = {
    "who": {"sentence": "ben sings and", "step": "weights"},
    "what": {"sentence": "ben sings a", "step": "weights"},
    "end": {"step": "answer"},
}
LONG = "<p>" + "A text that somebody reads. " * 120 + "</p>"
TEXT = f"""
<section id="first"><h2>Who</h2><p><a href="#stage-who">Ben sings and</a> has a
<span class="stage-part key" data-part="key">key</span>, and so has
<span class="stage-part key" data-part="key:ben">Ben</span>.</p>{LONG}{LONG}</section>
<section id="second"><h2>What</h2><p><span data-stage="what"></span>Here
<a href="#stage-end">the answer</a> comes.</p>{LONG}
<table id="whole"><tr><td>A table</td></tr></table>{LONG}</section>
<section id="third"><h2>Nothing</h2>{LONG}{LONG}</section>"""


TALE = Stage(model="stories", states={"tell": {"bug": "output projection left out", "asking": 2}})
PARCEL = "small_gpt.parcel.js"
ASKED = "performance.getEntriesByType('resource').map(one => one.name.split('/').pop())"


def open_stage(reader: BrowserContext, site: str, size: dict[str, int], stage: Stage) -> Page:
    """Open the stage's page with another stage on it, and a text that leads it."""
    name = PLACED["stage"][0]
    text = (HTML / f"{name}.html").read_text("utf-8")
    start = text.index('<figure class="live-figure" data-name="stage"')
    end = text.index("</figure>", start) + len("</figure>")
    data, _ = stage._repr_mimebundle_()
    figure = placed(next(value for key, value in data.items() if "labkit" in key)).astext()
    # Its section is laid out as it nears, as those of a chapter are on a phone.
    section = f'<section style="content-visibility: auto">{figure}</section>'
    led = text[:start] + section + TEXT + text[end:]

    def other(script: re.Match[str]) -> str:
        modules = [one for one in script[1].split("-and-") if figure_of(one) != "stage"]
        modules.append(stage.module(stage.state()))
        path = f"/_static/live/{'-and-'.join(modules)}.led.js"
        if path not in Quiet.written:
            Quiet.written[path] = page_script(modules)
        return f"..{path}"

    # A page of its own each time, for a browser keeps what it has seen.
    path = f"/book/led-{len(Quiet.written)}.html"
    Quiet.written[path] = re.sub(r"\.\./_static/live/([a-z_-]+)\.js(\?v=\w+)?", other, led)
    page = reader.new_page()
    page.set_viewport_size(size)
    page.goto(f"{site}{path}")
    return page


# Without room for the stage in the margin, and with it, on a page that has no contents there.
NARROW, ROOMY = {"width": 1200, "height": 900}, {"width": 1920, "height": 1000}
SIZES = {"phone": PHONE, "narrow": NARROW} if EVERYTHING else {"phone": PHONE}


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def page(request: pytest.FixtureRequest, reader: BrowserContext, site: str) -> Iterator[Page]:
    page = open_stage(reader, site, request.param, Stage(states=STATES))
    yield page
    page.close()


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def tale(request: pytest.FixtureRequest, reader: BrowserContext, site: str) -> Iterator[Page]:
    page = open_stage(reader, site, request.param, TALE)
    yield page
    page.close()


def state(page: Page) -> tuple[str, str]:
    read = {
        trait: value
        for trait, _, value in page.locator('[data-name="stage"]').evaluate(READ_CONTROLS)
    }
    return read["sentence"], read["step"]


def come_to(page: Page, section: str) -> None:
    """Follow a link to a section, as from the contents."""
    page.evaluate(
        """name => {
          const link = Object.assign(document.createElement("a"), { href: `#${name}` });
          document.body.append(link);
          link.click();
          link.remove();
        }""",
        section,
    )
    page.wait_for_timeout(300)


def test_a_bug_shows_what_goes_wrong(page: Page):
    shown = page.locator('[data-name="stage"]')
    shown.get_by_role("button", name="Step 7: answer").click()
    told, select = shown.locator(".stage-verdict"), shown.locator('[data-trait="bug"]')
    for bug in BUGS:
        select.select_option(label=bug)
        wrong = Stage(bug=bug).values()["sentences that go wrong"]
        if not wrong:
            expect(told).to_contain_text("all 74 sentences")
            shown.locator(".stage-named button").last.click()
            expect(shown.locator(".stage-answer")).to_contain_text("✓")
            continue
        expect(told).to_have_text(f"{wrong} of 74 sentences go wrong. Try one of these:")
        for button in shown.locator(".stage-named button:visible").all():
            button.click()
            assert state(page)[0] == button.inner_text()
            expect(shown.locator(".stage-answer")).to_contain_text("✗")
            expect(shown.locator(".live-spoken")).to_contain_text("That is wrong")


# Whether the asking word and the output end up in the region of an answer, and in which.
REGION = """figure => {
  const box = figure.querySelector(".stage-output").getBoundingClientRect();
  const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
  return [...figure.querySelectorAll(".stage-region:not(.stage-hidden)")].filter(region =>
    region.isPointInFill(middle.matrixTransform(region.getScreenCTM().inverse()))
  ).map(region => region.dataset.part);
}"""


def test_the_output_lies_in_the_region_of_its_answer(page: Page):
    shown = page.locator('[data-name="stage"]')
    shown.get_by_role("button", name="Step 7: answer").click()
    sentence = shown.get_by_role("combobox", name="Sentence")
    for text, answer, _ in sentences()[::9]:
        sentence.select_option(text)
        assert shown.evaluate(REGION) == [f"region:{answer}"], text
        expect(shown.locator(".stage-answer")).to_contain_text(answer)
        expect(shown.locator(".stage-answer")).to_contain_text("✓")


def test_links_set_states(page: Page):
    assert state(page) == ("mia reads and", "question")
    for link, expected in [("Ben sings and", "weights"), ("the answer", "answer")]:
        # Where it is: to scroll to it could bring its section first, which has a state of its own.
        page.get_by_role("link", name=link).dispatch_event("click")
        assert state(page) == ("ben sings and", expected)
        current = page.locator("a[aria-current=true][href^='#stage-']")
        expect(current).to_have_count(1)
        expect(current).to_contain_text(link)
    assert "#" not in page.url
    for name in STATES:
        assert page.locator(f"#stage-{name}").count() == 1, "where there are no scripts"


def test_a_jump_to_the_stage_leads_back(page: Page):
    link, back = page.get_by_role("link", name="the answer"), page.locator(".stage-back")
    page.get_by_role("button", name="Keep in sight").click()
    for leave in (lambda: page.keyboard.press("Enter"), page.go_back):
        link.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        link.focus()
        before = link.bounding_box()["y"]
        page.keyboard.press("Enter")
        expect(page.locator("figure .live")).to_be_focused()
        expect(page).to_have_url(re.compile("#stage-end$"))
        page.keyboard.press("Tab")
        expect(back).to_be_focused()
        leave()
        expect(link).to_be_focused()
        expect(back).to_have_count(0)
        page.wait_for_timeout(300)
        assert link.bounding_box()["y"] == pytest.approx(before, abs=2)
    link.press("Enter")
    page.evaluate("document.getElementById('third').scrollIntoView({ behavior: 'instant' })")
    expect(back).to_have_count(0)


def test_the_plane_says_what_it_shows(page: Page):
    plane = page.locator(".stage-plane")
    for step, told in (
        ("2: words", "vectors: mia"),
        ("3: query", "query"),
        ("7: answer", "region"),
    ):
        page.get_by_role("button", name=f"Step {step}").click()
        expect(plane.get_by_role("img")).to_have_accessible_name(re.compile(told))


def test_a_section_sets_its_state_until_the_reader_plays(page: Page):
    come_to(page, "second")
    assert state(page) == ("ben sings a", "weights")
    come_to(page, "first")
    assert state(page) == ("ben sings and", "weights")
    page.evaluate("document.querySelector('.stage-steps button').click()")
    come_to(page, "second")
    assert state(page) == ("ben sings and", "question")
    page.get_by_role("button", name="Follow the text").click()
    assert state(page) == ("ben sings a", "weights")


def test_words_and_parts_light_each_other_up(page: Page):
    page.get_by_role("link", name="Ben sings and").click()
    key, ben = page.locator(".stage-part").all()
    lit = page.locator("figure .stage-lit")
    ben.focus()
    names = lit.evaluate_all("all => all.map(one => one.dataset.part)")
    assert set(names) == {"key:ben"}
    key.focus()
    assert set(lit.evaluate_all("all => all.map(one => one.dataset.part)")) == {
        f"key:{word}" for word in ("ben", "sings", "and")
    }
    key.evaluate("one => one.blur()")
    assert lit.count() == 0
    ben.click()
    page.evaluate("scrollTo(0, 0)")
    assert lit.count() > 0
    page.locator("figure .stage-line-key .stage-cell").nth(1).hover()
    assert key.evaluate("one => one.classList.contains('stage-lit')")
    assert not ben.evaluate("one => one.classList.contains('stage-lit')")


@pytest.mark.parametrize("page", [WIDE, PHONE], ids=["wide", "phone"], indirect=True)
def test_the_stage_stays_in_sight_and_hides_no_heading(page: Page):
    live, high = page.locator("figure .live"), page.viewport_size["height"]
    most = 220 if page.viewport_size == PHONE else 230
    length = page.evaluate("document.scrollingElement.scrollHeight")
    come_to(page, "third")
    assert live.bounding_box()["y"] < -high / 2, "it stays where the text does not speak of it"
    come_to(page, "second")
    box, heading = live.bounding_box(), page.locator("#second h2").bounding_box()
    assert 0 <= box["y"] < 100
    assert box["y"] + box["height"] <= most + 1
    assert heading["y"] >= box["y"] + box["height"]
    expect(page.locator(".stage-arcs")).to_be_in_viewport()
    assert page.evaluate("document.scrollingElement.scrollHeight") == length
    page.evaluate("scrollBy({ top: whole.getBoundingClientRect().top - 100, behavior: 'instant' })")
    expect(live, "it gives way to a table").not_to_be_in_viewport()
    come_to(page, "second")
    page.emulate_media(media="print")
    assert live.evaluate("one => getComputedStyle(one).position") == "relative"
    page.emulate_media(media="screen")
    come_to(page, "second")
    page.get_by_role("button", name="Keep in sight").dispatch_event("click")
    page.wait_for_timeout(100)
    assert live.bounding_box()["y"] < -high / 2


def test_the_stage_stays_in_a_margin_that_has_room(reader: BrowserContext, site: str):
    page = open_stage(reader, site, ROOMY, Stage(states=STATES))
    live, text = page.locator("figure .live"), page.locator("#second")
    come_to(page, "second")
    expect(text.locator("h2")).to_be_in_viewport()
    for by in (0, 400):
        page.evaluate("by => scrollBy({ top: by, behavior: 'instant' })", by)
        box, beside = live.bounding_box(), text.bounding_box()
        assert box["x"] >= beside["x"] + beside["width"], "it lies over nothing"
        assert box["y"] + box["height"] <= page.viewport_size["height"]
    expect(live.locator(".live-spoken").first).to_be_in_viewport()
    expect(live.locator(".stage-plane")).to_be_in_viewport(ratio=1)
    enter = page.get_by_role("button", name="To the figure")
    enter.press("Enter")
    expect(live, "it is reached from the text").to_be_focused()
    page.get_by_role("button", name="Back to the text").press("Enter")
    expect(enter).to_be_focused()
    page.get_by_role("button", name="Keep in sight").click()
    expect(live).not_to_be_in_viewport()
    page.close()


def test_all_can_use_what_stays_in_sight(page: Page):
    come_to(page, "second")
    set_theme(page, "dark")
    assert serious(page, "article section") == []
    assert page.evaluate("scrollX") == 0


def play(page: Page) -> Locator:
    """Load the story GPT, by another bug and back."""
    shown = page.locator('[data-name="stage"]')
    for bug in (STORY_BUGS[1], "none"):
        shown.locator('[data-trait="bug"]').select_option(label=bug)
    shown.get_by_role("button", name="Load").wait_for(state="hidden")
    return shown


def told(shown: Locator) -> dict[str, Any]:
    return TALE.state() | {trait: value for trait, _, value in shown.evaluate(READ_CONTROLS)}


def test_a_story_is_shown_before_the_weights_come(tale: Page):
    shown = tale.locator('[data-name="stage"]')
    check_values(shown, "stage", TALE.state())
    assert PARCEL not in tale.evaluate(ASKED)
    check_values(play(tale), "stage", TALE.state())
    assert tale.evaluate(ASKED).count(PARCEL) == 1


def test_the_pocket_model_needs_no_weights(page: Page):
    shown = page.locator('[data-name="stage"]')
    shown.locator('[data-trait="bug"]').select_option(label=BUGS[1])
    page.get_by_role("link", name="the answer").click()
    assert not any("parcel" in name for name in page.evaluate(ASKED))


def test_where_the_weights_do_not_come_a_line_says_so(tale: Page):
    tale.route(f"**/{PARCEL}", lambda route: route.abort())
    shown = tale.locator('[data-name="stage"]')
    shown.locator('[data-trait="bug"]').select_option(label=STORY_BUGS[1])
    expect(shown.get_by_role("button", name="The model did not come: try again")).to_be_visible()
    expect(shown.locator(".live-spoken")).to_contain_text("as soon as the model is loaded")
    tale.unroute(f"**/{PARCEL}")
    shown.get_by_role("button", name="try again").click()
    expect(shown.locator(".live-spoken")).to_contain_text("asks")
    check_values(shown, "stage", TALE.state() | {"bug": STORY_BUGS[1]})


def test_all_can_play_a_story(tale: Page):
    shown = play(tale)
    shown.locator('[data-trait="bug"]').select_option(label="heads merged in the wrong order")
    assert tale.evaluate("scrollX") == 0
    assert tale.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert shown.evaluate(TOO_SMALL) == []
    chip = shown.locator(".tale-chip").nth(3)
    chip.press("Enter")
    expect(chip).to_have_attribute("aria-pressed", "true")
    place = chip.bounding_box()
    shown.locator('[data-trait="head"]').select_option("2")
    assert chip.bounding_box() == place
    check_values(shown, "stage", told(shown))
    failed = Stage(**told(shown)).values()["fixed words that fail"]
    assert shown.locator(".tale-fell").count() == failed > 0
    for theme in ("light", "dark"):
        set_theme(tale, theme)
        assert serious(tale, "article section") == []


def test_a_text_leads_from_one_model_to_the_other(reader: BrowserContext, site: str):
    states = {
        "who": {"model": "stories", "asking": 2},
        "end": {"model": "pocket", "step": "answer"},
    }
    page = open_stage(reader, site, WIDE, Stage(states=states))
    shown = page.locator('[data-name="stage"]')
    page.get_by_role("link", name="Ben sings and").click()
    expect(shown.locator(".tale-chip").nth(2)).to_have_attribute("aria-pressed", "true")
    assert shown.locator(".stage-scene").count() == 0
    check_values(shown, "stage", Stage(model="stories", asking=2, states=states).state())
    expect(shown.locator(".stage-follow")).to_be_visible()
    now = shown.locator(".stage").evaluate("one => one.style.getPropertyValue('--now')")
    assert now == '"layer {layer}, head {head}"'.format(**told(shown))
    page.get_by_role("link", name="the answer").click()
    check_values(shown, "stage", Stage(states=states, step="answer").state())
    assert state(page) == ("mia reads and", "answer")
    expect(shown.locator(".stage-follow")).to_be_visible()
    page.close()
