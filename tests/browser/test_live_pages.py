"""The live figures of the built pages, driven as a reader drives them, against labkit.

A figure's page is opened once; its tests follow each other there, from the wide window to the
phone. How a page opens from a file is tested with the pages.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import re
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from labkit.figures import live, small_gpt
from labkit.figures.base import number_text
from labkit.figures.trained_heads import LETTERS
from labkit.ledger.nested import agrees, flat
from labkit.models.gpt import load_gpt
from labkit.models.reporters import OFFSETS, POSITIONS
from labkit.models.stories import VOCABULARY, encode
from press import BOOK, HTML
from press.notebooks import NOTEBOOKS, name, outputs, read
from tests.browser.looking import (
    EVERYTHING,
    PHONE,
    TAKES_LONG,
    WIDE,
    Heard,
    listen,
    serious,
    set_theme,
    too_wide,
    wait_for_drawing,
)

FIGURES = {figure.name: figure for figure in live.FIGURES}
# Different settings, and turns of the controls to reach them.
SETTINGS, TRIES = (12, 60) if EVERYTHING else (1, 20)
WIDTHS_OF_FIGURES = [390, 1440] if EVERYTHING else [390]
SOME_FIGURES = list(FIGURES)[:: 1 if EVERYTHING else 3]  # for what all have from shared parts
FEWER = {"all_reduce": 4, "shared_keys": 5}  # they have eleven states, and nine
CHANGES_A_SETTING = 6
# What moves a slider, and chooses from a list.
KEYS = ("Home", "End", "PageUp", "PageDown", "ArrowUp", "ArrowDown")
KEYS_A_CHANGE = 3

# The page of each figure, and its first state: from the notebooks, and from the other pages.
PLACED = {
    output.data[live.MIME]["figure"]: (name(path), output.data[live.MIME]["state"])
    for path in NOTEBOOKS
    for output in outputs(read(path))
    if live.MIME in output.get("data", {})
} | {
    figure: (f"book/{path.stem}", FIGURES[figure]().state())
    for path in sorted(BOOK.glob("*.md"))
    for figure in re.findall(r"^```\{live-figure\} (\w+)$", path.read_text("utf-8"), re.MULTILINE)
}

TYPED = ["attention_by_hand", "output_projection"]  # the figures with cells to type in
VALUED = ":is(input, select, textarea):enabled"
# Those in a fold are out of reach, and what plays on would change the state while it is read.
BUTTONS = "button:enabled:not([data-plays]):visible"

READ_CONTROLS = """figure => [...figure.querySelectorAll("[data-trait]")].map(control => {
  const trait = control.dataset.trait;
  const place = JSON.parse(control.dataset.place ?? "null");
  if (control.type === "checkbox") return [trait, place, control.checked];
  if (control.tagName === "TEXTAREA" || trait === "sequence") return [trait, null, control.value];
  if (control.type === "range") return [trait, null, JSON.parse(control.ariaValueText)];
  if (control.tagName === "SELECT") return [trait, null, JSON.parse(control.value)];
  const text = (control.value ?? control.textContent).replace("−", "-");
  return [trait, place, JSON.parse(text)];
})"""

READ_VALUES = """figure => Object.fromEntries(
  [...figure.querySelectorAll("table[data-values]")].map(table => [
    table.dataset.values,
    [...table.querySelectorAll("tbody td")].map(cell => cell.dataset.exact),
  ]),
)"""

# What ipywidgets gives a figure for a model, with the Python side played by the test.
PLAY_PYTHON = """(figure, [name, start, target]) => {
  const state = structuredClone(start);
  const heard = {};
  const saved = [];
  const model = {
    get: trait => state[trait],
    set(trait, value) {
      state[trait] = value;
      for (const listener of heard[`change:${trait}`] ?? []) listener();
    },
    on(event, listener) { (heard[event] ??= []).push(listener); },
    off(event, listener) { heard[event] = heard[event].filter(one => one !== listener); },
    save_changes() { saved.push(structuredClone(state)); },
    send({ of = name }) {
      labkitLive.fetchParcel(of, bytes => {
        for (const listener of heard["msg:custom"]) listener({ answer: "parcel" }, [bytes]);
      });
    },
  };
  const el = document.createElement("div");
  const close = labkitLive.figures[name].render({ model, el });
  figure.querySelector(".live").replaceWith(el);
  for (const [trait, value] of Object.entries(target)) model.set(trait, value);
  const listeners = () => Object.values(heard).flat().length;
  window.python = { state, set: model.set, saved, close, listeners };
}"""

SET_TRAITS = """(figure, target) => {
  for (const [trait, value] of Object.entries(target)) python.set(trait, value);
}"""

# In every frame that has a face of its own for text, be it the one that stands in until the
# book's comes, how far below the figure's top the page goes on.
WATCH_WHAT_FOLLOWS = """window.distances = new Set();
(function look() {
  const faces = [...document.fonts].filter(face => face.status === "loaded");
  const has = weight => faces.some(face => /Sans/.test(face.family) && face.weight === weight);
  const figure = document.querySelector("figure.live-figure");
  const cell = figure?.closest(".cell") ?? figure?.parentElement;
  const next = cell?.nextElementSibling ?? cell?.closest("section")?.nextElementSibling;
  const top = element => element.getBoundingClientRect().top;
  if (next && has("400") && has("600 700")) distances.add(Math.round(top(next) - top(figure)));
  requestAnimationFrame(look);
})();"""

# Note each element that takes the focus, and how it shows that.
WATCH_FOCUS = """figure => {
  figure.addEventListener("focusin", ({ target }) => {
    target.dataset.reached = getComputedStyle(target).outlineStyle;
  });
  figure.tabIndex = -1;
  figure.focus();
}"""
# Where the focus is: outside, on a control, or in a grid of so many rows and columns.
REACHED = """figure => {
  const active = document.activeElement;
  if (!figure.contains(active)) return "outside";
  const grid = active.type === "button" && active.closest(".live-matrix, .tale-story");
  if (!grid) return "control";
  const rows = [...grid.querySelectorAll("tbody tr, .tale-row")];
  return [rows.length, rows[0].querySelectorAll("button").length];
}"""
# Controls that are less than 24 pixels high or wide; a label belongs to its box.
TOO_SMALL = """figure => [...figure.querySelectorAll("input, select, button, summary, textarea")]
  .map(one => one.type === "checkbox" ? one.closest("label") : one)
  .filter(one => one.checkVisibility())
  .map(one => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
  .filter(([, { width, height }]) => Math.min(width, height) < 24)
  .map(([html, { width, height }]) => `${html} ${width} ${height}`)"""
# Where the figure's parts stand, but for what is laid over them.
PLACES = """figure => [...figure.querySelectorAll("*:not(.live-error)")].flatMap(one => {
  const { x, y, width, height } = one.getBoundingClientRect();
  const place = [x + scrollX, y + scrollY, width, height].map(Math.round).join();
  return one.checkVisibility() && width ? [place] : [];
})"""
# Loads the model, and then says that it is loading, until the model is there.
LOADER = re.compile("^Load(ing)? the model")
MOST_STOPS = 200  # of Tab, in a figure
OPEN_FOLDS = """(figure, open) => {
  for (const fold of figure.querySelectorAll("details")) fold.open = open;
}"""
MOVING = """figure => [...figure.querySelectorAll("*")]
  .filter(e => getComputedStyle(e).transitionDuration !== "0s"
    || getComputedStyle(e).animationName !== "none")
  .map(e => e.outerHTML.slice(0, 80))"""

# How many animations of bars run that a script has begun.
RUNNING = """figure => figure.getAnimations({ subtree: true })
  .filter(one => !(one instanceof CSSTransition) && one.playState === "running").length"""


class Opened:
    """A live figure on its page, open for all its tests."""

    def __init__(self, figure: str, page: Page, site: str) -> None:
        self.figure, self.page = figure, page
        self.heard: Heard = listen(page)
        page.add_init_script(WATCH_WHAT_FOLLOWS)
        self.shown = open_figure(page, site, figure)


@pytest.fixture(scope="module", params=FIGURES)
def opened(request: pytest.FixtureRequest, reader: BrowserContext, site: str) -> Iterator[Opened]:
    page = reader.new_page()
    yield Opened(request.param, page, site)
    page.close()


def test_every_figure_is_in_a_page():
    assert set(PLACED) == set(FIGURES), "place the figure, or take it out of FIGURES"


@pytest.fixture
def dice() -> random.Random:
    """Roll dice whose seed is printed: set LIVE_SEED to roll others, or the same again."""
    seed = int(os.environ.get("LIVE_SEED", secrets.randbits(32) if EVERYTHING else 0))
    print(f"LIVE_SEED={seed}")
    return random.Random(seed)


def open_figure(page: Page, site: str, figure: str) -> Locator:
    page.goto(f"{site}/{PLACED[figure][0]}.html")
    shown = page.locator(f'figure.live-figure[data-name="{figure}"]')
    # Playwright's own way would go to where a section out of sight is taken to be.
    shown.evaluate("figure => figure.scrollIntoView({ block: 'nearest' })")
    shown.locator(".live-body").wait_for()  # on a phone a figure is made as it nears the window
    wait_for_drawing(page)  # what comes near the window takes its own height
    load = shown.get_by_role("button", name=LOADER)
    if load.count():
        load.click()
        load.wait_for(state="hidden")
    return shown


def read_controls(shown: Locator, figure: str) -> dict[str, Any]:
    """Read off the controls the traits that they set."""
    read = {}
    for trait, place, value in shown.evaluate(READ_CONTROLS):
        if place is None:
            read[trait] = value
        else:
            i, j = place
            read.setdefault(trait, copy.deepcopy(PLACED[figure][1][trait]))[i][j] = value
    return read


def read_state(shown: Locator, figure: str) -> dict[str, Any]:
    """Read the state off the controls; what has none is as it was stored."""
    return PLACED[figure][1] | read_controls(shown, figure)


def differing(shown: Locator, figure: str, state: dict[str, Any]) -> list[str]:
    """Name the quantities whose table differs from what labkit computes from a state."""
    told = shown.evaluate(READ_VALUES)
    expected = FIGURES[figure](**state).values()
    if list(told) != list(expected):
        return [f"shows {list(told)}, expected {list(expected)}"]
    return [name for name, value in expected.items() if not tell(told[name], list(flat(value)))]


def tell(told: list[str], known: list[float]) -> bool:
    """Say whether texts tell these numbers, to seven digits."""
    numbers = [float(text.replace("Infinity", "inf")) for text in told]
    return len(numbers) == len(known) and all(
        math.isclose(number, float(right), rel_tol=1e-6, abs_tol=1e-6)
        or (math.isnan(number) and math.isnan(float(right)))
        for number, right in zip(numbers, known, strict=True)
    )


def check_values(shown: Locator, figure: str, state: dict[str, Any]) -> None:
    """Compare the page's table of values with what labkit computes from a state."""
    assert differing(shown, figure, state) == [], state


def turn(page: Page, control: Locator, dice: random.Random) -> None:
    """Give a control another value by keyboard."""
    kind = control.evaluate("control => control.type")
    control.focus()
    if kind == "checkbox":
        page.keyboard.press("Space")
    elif kind in ("range", "select-one"):
        for key in dice.choices(KEYS, k=KEYS_A_CHANGE):
            page.keyboard.press(key)
    elif kind == "textarea":
        control.fill(" ".join(dice.choices(VOCABULARY, k=dice.randrange(1, 20))))
    elif control.get_attribute("data-trait") == "sequence":
        control.fill("".join(dice.choices(LETTERS, k=POSITIONS)))
    elif kind == "text":
        page.keyboard.press("Control+A")
        page.keyboard.type(f"{dice.uniform(-4, 4):.2f}")
        page.keyboard.press("Tab")
    else:
        page.keyboard.press("Enter")


def turn_some(page: Page, shown: Locator, dice: random.Random) -> None:
    """Turn a few controls: mostly those that hold a value, sometimes a button."""
    for _ in range(CHANGES_A_SETTING):
        valued, buttons = shown.locator(VALUED), shown.locator(BUTTONS)
        controls = valued if dice.random() < 0.7 or not buttons.count() else buttons
        turn(page, controls.nth(dice.randrange(controls.count())), dice)


def test_it_stands_in_place_of_the_table(opened: Opened):
    assert opened.shown.locator(".live").count() == 1
    distances = opened.page.evaluate("[...distances]")
    assert len(distances) == 1, "what follows it moves as the page loads"
    check_values(opened.shown, opened.figure, PLACED[opened.figure][1])


def test_it_moves_only_where_motion_is_wanted(opened: Opened):
    assert opened.shown.evaluate(MOVING) == []


def test_it_says_that_it_can_be_played(opened: Opened):
    sign = opened.shown.locator(".live-head").get_by_text("Try it:")
    title = opened.shown.locator(".live-title")
    first = opened.shown.locator(".live-body").bounding_box()
    for node in (sign, title):
        assert node.is_visible()
        assert node.bounding_box()["y"] < first["y"]


def test_every_control_is_reached_by_keyboard(opened: Opened):
    shown, press = opened.shown, opened.page.keyboard.press
    shown.evaluate(WATCH_FOCUS)
    shown.evaluate(OPEN_FOLDS, True)
    press("Tab")
    for _ in range(MOST_STOPS):
        if (where := shown.evaluate(REACHED)) == "outside":
            break
        if where != "control":  # one cell of a grid takes Tab; arrows lead to the others
            rows, columns = where
            press("Control+Home")
            for row in range(rows):
                for _ in range(columns - 1):
                    press("ArrowLeft" if row % 2 else "ArrowRight")
                press("ArrowDown")
            for key, count in [("ArrowUp", rows), ("ArrowLeft", columns)]:
                for _ in range(count):  # back to where Tab entered
                    press(key)
        press("Tab")
    else:
        pytest.fail(f"after {MOST_STOPS} times Tab the focus is still in the figure")
    controls = ":is(input, select, textarea, button, summary):not([data-reached]):enabled"
    missed = shown.locator(f"{controls}:visible")
    assert missed.evaluate_all("all => all.map(one => one.outerHTML.slice(0, 120))") == []
    shown.evaluate(OPEN_FOLDS, False)
    outlines = shown.locator("[data-reached]").evaluate_all(
        "all => all.map(e => e.dataset.reached)"
    )
    assert "none" not in outlines, "a control does not show that it has the focus"


def test_what_is_no_number_is_refused(opened: Opened):
    shown, figure = opened.shown, opened.figure
    if figure not in TYPED:
        return
    cell = shown.locator('input[type="text"]').first
    refusal = shown.locator(".live-error:not(:empty)")
    for typed in ("abc", "", "1e9", "NaN", "1,000", "--1", "<b>1</b>"):
        before = read_state(shown, figure)
        cell.fill(typed)
        cell.press("Tab")
        assert "is not a number from −1,000,000 to 1,000,000" in refusal.inner_text()
        assert cell.get_attribute("aria-invalid") == "true"
        assert cell.get_attribute("aria-describedby") == refusal.get_attribute("id")
        check_values(shown, figure, before)
        cell.fill("0,5")  # the only point of some phones' keyboards
        assert cell.get_attribute("aria-invalid") is None
        assert refusal.count() == 0
        cell.press("Tab")
        assert cell.input_value() == "0.5"
    check_values(shown, figure, read_state(shown, figure))


@pytest.fixture(scope="module")
def phone(browser: Browser) -> Iterator[Page]:
    options = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    context = browser.new_context(reduced_motion="reduce", **options)
    yield context.new_page()
    context.close()


def test_on_a_phone_figures_are_made_as_they_near_or_for_paper(page: Page, site: str):
    page.set_viewport_size(PHONE)
    page.goto(f"{site}/{PLACED['decoding_cache'][0]}.html")
    figures = page.locator("figure.live-figure")
    made = figures.filter(has=page.locator(".live-body"))
    expect(made).to_have_count(0)
    figures.first.evaluate("figure => figure.scrollIntoView()")
    expect(made).to_have_count(1)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(made).to_have_count(figures.count())


@pytest.mark.parametrize("figure", SOME_FIGURES)
def test_a_finger_hits_every_control_of_its_own(phone: Page, site: str, figure: str):
    shown = open_figure(phone, site, figure)
    assert shown.evaluate(TOO_SMALL) == []
    keyboards = shown.locator('input[type="text"]').evaluate_all(
        "boxes => boxes.map(box => box.inputMode)"
    )
    assert set(keyboards) <= {"decimal", "text"}


@pytest.mark.parametrize("figure", TYPED)
def test_a_phone_without_a_minus_sign_has_a_button_for_it(phone: Page, site: str, figure: str):
    shown = open_figure(phone, site, figure)
    before = read_state(shown, figure)
    cell = shown.locator('input[type="text"]').nth(1)
    cell.tap()
    sign = shown.get_by_role("button", name="Change the sign of").first
    assert sign.get_attribute("aria-label").endswith(cell.get_attribute("aria-label"))
    for factor in (-1, 1):
        sign.tap()
        assert cell.evaluate("cell => cell === document.activeElement"), "the keyboard would go"
        trait, place = (
            cell.get_attribute("data-trait"),
            json.loads(cell.get_attribute("data-place")),
        )
        i, j = place
        assert read_state(shown, figure)[trait][i][j] == factor * before[trait][i][j]
    check_values(shown, figure, before)


@TAKES_LONG
def test_what_is_no_number_moves_nothing(phone: Page, page: Page, site: str):
    for window in (phone, page):
        for figure in TYPED:
            shown = open_figure(window, site, figure)
            cells = shown.locator('input[type="text"]').all()
            for cell in cells if EVERYTHING else cells[::5]:  # in other rows and columns
                before = shown.evaluate(PLACES)
                cell.fill("abc")
                cell.press("Tab")
                refusal = shown.locator(".live-error:not(:empty)")
                assert shown.evaluate(PLACES) == before
                assert too_wide(window) == []
                box, frame = refusal.bounding_box(), shown.locator(".live").bounding_box()
                assert box["x"] >= frame["x"]
                assert box["x"] + box["width"] <= frame["x"] + frame["width"]
                cell.fill("1")
    shown = open_figure(phone, site, "small_gpt")
    before = shown.evaluate(PLACES)
    shown.locator("textarea").fill("zebra dogz")
    shown.locator("textarea").press("Tab")
    assert "not among" in shown.locator(".live-error").inner_text()
    assert shown.evaluate(PLACES) == before


def test_right_and_wrong_take_turns_on_a_phone(phone: Page, page: Page, site: str):
    shown = open_figure(phone, site, "split_and_merge")
    sides, height = shown.locator(".live-side"), shown.bounding_box()["height"]
    right, mistake = (shown.get_by_role("button", name=which) for which in ("Right", "Mistake"))
    for choose in (mistake.tap, lambda: right.press("Enter"), lambda: mistake.press("Space")):
        choose()
        pressed = [button.get_attribute("aria-pressed") for button in (right, mistake)]
        assert [side.is_visible() for side in sides.all()] == [one == "true" for one in pressed]
        assert shown.bounding_box()["height"] == height
    shown = open_figure(page, site, "split_and_merge")
    assert all(side.is_visible() for side in shown.locator(".live-side").all())
    assert not shown.get_by_role("button", name="Mistake").is_visible()


def test_the_small_gpt_takes_one_screen_and_a_half_of_a_phone(phone: Page, site: str):
    shown = open_figure(phone, site, "small_gpt")
    assert shown.bounding_box()["height"] <= 1.5 * PHONE["height"]
    shown.get_by_text("The chosen head, large").tap()
    assert shown.locator(".live-large").is_visible()


STEPPED = {
    "split_and_merge": "step",
    "decoding_cache": "step",
    "tiles": "tile",
    "all_reduce": "step",
    "ring_attention": "step",
    "induction_heads": "step",
}


@pytest.mark.parametrize("figure", STEPPED if EVERYTHING else ["tiles"])
def test_the_next_step_keeps_the_focus_to_the_end(page: Page, site: str, figure: str):
    shown = open_figure(page, site, figure)
    forth = shown.get_by_role("button", name=f"Next {STEPPED[figure]}")
    back = shown.get_by_role("button", name="Step back")
    for button, key in ((forth, "Enter"), (back, "Space")):
        button.focus()
        for _ in range(30):
            page.keyboard.press(key)
            assert button.evaluate("button => button === document.activeElement")
            if button.is_disabled():
                break
        assert button.is_disabled()
        state = read_state(shown, figure)
        page.keyboard.press(key)
        assert read_state(shown, figure) == state, "there is no further step"
    check_values(shown, figure, state)


def test_a_change_is_read_out_in_one_place(opened: Opened, dice: random.Random):
    if opened.figure not in SOME_FIGURES:
        return
    heard = opened.shown.locator("[role=status], output")
    assert heard.count() == 1
    turn(opened.page, opened.shown.locator(f"{VALUED}:visible").first, dice)
    expect(heard).to_have_text(re.compile(r"\w"))


def test_its_numbers_are_those_of_labkit_on_a_phone_in_the_dark(
    opened: Opened, dice: random.Random
):
    page, shown = opened.page, opened.shown
    page.set_viewport_size(PHONE)
    set_theme(page, "dark")
    shown.get_by_text("Values as a table").press("Enter")
    seen, wanted = set(), min(SETTINGS, FEWER.get(opened.figure, SETTINGS))
    for _ in range(TRIES):
        turn_some(page, shown, dice)
        state = read_state(shown, opened.figure)
        seen.add(json.dumps(state))
        check_values(shown, opened.figure, state)
        assert too_wide(page) == []
        if len(seen) == wanted:
            break
    assert len(seen) == wanted, "the controls hardly change the state"


def test_it_follows_python_and_tells_it(opened: Opened, dice: random.Random):
    page, shown, figure = opened.page, opened.shown, opened.figure
    start = PLACED[figure][1]
    while (target := read_state(shown, figure)) == start:
        turn_some(page, shown, dice)
    shown.evaluate(PLAY_PYTHON, [figure, start, target])
    assert read_state(shown, figure) == target
    check_values(shown, figure, target)
    turn_some(page, shown, dice)
    saved = page.evaluate("python.saved.at(-1)")
    read = read_controls(shown, figure)
    assert {trait: saved[trait] for trait in read} == read
    check_values(shown, figure, saved)
    page.evaluate("python.close()")
    assert page.evaluate("python.listeners()") == 0


def test_its_page_asks_no_other_host_and_logs_no_error(opened: Opened):
    assert (opened.heard.foreign, opened.heard.errors) == ([], [])


# It takes away the rest of the page, which the theme's own script then misses: nothing comes after.
def test_it_is_for_everyone_on_a_phone_in_the_dark(opened: Opened):
    if opened.figure not in SOME_FIGURES:
        return
    opened.page.set_viewport_size(PHONE)
    set_theme(opened.page, "dark")
    assert serious(opened.page, f'figure[data-name="{opened.figure}"]', alone=True) == []


@TAKES_LONG
def test_without_scripts_there_is_a_table(browser: Browser, site: str):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for figure, (address, state) in PLACED.items():
        page.goto(f"{site}/{address}.html")
        shown = page.locator(f'figure.live-figure[data-name="{figure}"]')
        told = [text for text in shown.locator("td").all_inner_texts() if text.strip()]
        values = FIGURES[figure](**state).values()
        assert told == [number_text(number) for number in flat(list(values.values()))], figure
        assert shown.locator("table").first.is_visible(), figure
    context.close()


def test_the_printed_numbers_that_are_wrong_light_up(page: Page, site: str):
    shown = open_figure(page, site, "attention_by_hand")
    assert shown.locator(".live-differs").count() == 0
    shown.locator('[data-trait="show_printed"]').press("Space")
    state = PLACED["attention_by_hand"][1]
    values = live.AttentionByHand(**state).values()
    wrong = set()
    for quantity, claim in state["printed"]["claims"].items():
        row, column = state["axes"][quantity]
        for i, line in enumerate(claim["rows"]):
            for j, printed in enumerate(line):
                if not agrees(printed, values[quantity][i][j], claim["places"]):
                    wrong.add(f"{quantity}, {row} {i + 1}, {column} {j + 1}")
    assert wrong
    lit = shown.locator(".live-differs").all()
    assert {cell.get_attribute("aria-label").split(":")[0] for cell in lit} == wrong
    for cell in lit:
        assert "≠" in cell.inner_text()
        cell.press("Enter")
        assert "which differs" in shown.locator(".live-spoken").first.inner_text()
    summary = shown.locator(".live-spoken").last.inner_text()
    assert summary.startswith(f"{len(wrong)} of the ")
    shown.locator('input[type="text"]').first.fill("2")
    assert shown.locator(".live-differs").count() == 0, "they belong to the example's numbers"
    shown.get_by_role("button", name="Back to the example").press("Enter")
    assert shown.locator(".live-differs").count() == len(wrong)


def test_a_mask_is_painted_with_the_mouse(page: Page, site: str):
    shown = open_figure(page, site, "mask_painter")

    def at(i: int, j: int) -> Locator:
        return shown.locator(f'[data-place="[{i},{j}]"]')

    painted = copy.deepcopy(PLACED["mask_painter"][1]["mask"])
    at(1, 1).hover()
    page.mouse.down()
    for i, j in [(1, 2), (1, 3), (2, 3)]:
        at(i, j).hover()
    page.mouse.up()
    at(0, 0).hover()
    for i, j in [(1, 1), (1, 2), (1, 3), (2, 3)]:
        painted[i][j] = not painted[i][j]
    assert read_state(shown, "mask_painter")["mask"] == painted
    at(4, 0).click()
    at(4, 1).click()
    at(4, 1).click()
    painted[4][0] = not painted[4][0]
    assert read_state(shown, "mask_painter")["mask"] == painted


def test_a_mask_is_painted_with_a_finger(phone: Page, site: str):
    shown = open_figure(phone, site, "mask_painter")
    grid = shown.locator(".live-flags")
    grid.scroll_into_view_if_needed()
    session = phone.context.new_cdp_session(phone)

    def at(i: int, j: int) -> dict[str, float]:
        box = shown.locator(f'[data-place="[{i},{j}]"]').bounding_box()
        return {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}

    def drag(*points: dict[str, float]) -> None:
        for kind, point in zip(["touchStart", *["touchMove"] * len(points)], points, strict=False):
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    painted = copy.deepcopy(PLACED["mask_painter"][1]["mask"])
    before = phone.evaluate("scrollY")
    cells = [(3, 1), (2, 1), (1, 1), (1, 2), (1, 3)]
    drag(*(at(i, j) for i, j in cells))
    for i, j in cells:
        painted[i][j] = not painted[i][j]
    assert read_state(shown, "mask_painter")["mask"] == painted
    assert phone.evaluate("scrollY") == before, "the page scrolls under the finger"
    shown.locator('[data-place="[4,0]"]').tap()
    painted[4][0] = not painted[4][0]
    assert read_state(shown, "mask_painter")["mask"] == painted
    caption = grid.locator("caption").bounding_box()
    above = {"x": caption["x"] + 20, "y": caption["y"] + 8}
    drag(above, *({"x": above["x"], "y": above["y"] - 30 * k} for k in range(1, 6)))
    phone.wait_for_function("before => scrollY > before", arg=before)


def play_to_the_end(page: Page, shown: Locator, figure: str, pause_after: int) -> Locator:
    """Play, pause for as long, and play on; give the button."""
    play = shown.get_by_role("button", name="Play")
    before = read_state(shown, figure)["at"]
    play.press("Enter")
    page.clock.run_for(pause_after)
    shown.get_by_role("button", name="Pause").press("Enter")
    paused = read_state(shown, figure)
    assert paused["at"] > before
    check_values(shown, figure, paused)
    page.clock.run_for(pause_after)
    assert read_state(shown, figure) == paused
    play.press("Enter")
    page.clock.run_for(30_000)
    return play


def test_decoding_plays_to_its_end_and_stops_where_it_is_paused(browser: Browser, site: str):
    context = browser.new_context(viewport=WIDE, reduced_motion="no-preference")
    page = context.new_page()
    page.clock.install()
    shown = open_figure(page, site, "decoding_cache")
    play = play_to_the_end(page, shown, "decoding_cache", pause_after=3000)
    assert read_state(shown, "decoding_cache")["at"] == 12
    assert shown.get_by_role("button", name="Next step").is_disabled()
    play.press("Enter")  # from the start again
    assert read_state(shown, "decoding_cache")["at"] == 6
    context.close()


def test_a_cache_fills_and_without_it_all_is_computed_again(page: Page, site: str):
    shown = open_figure(page, site, "decoding_cache")
    assert shown.get_by_role("button", name="Play").count() == 0, "less motion is asked for"
    reading, cached = (shown.locator(f'[data-trait="{name}"]') for name in ("reading", "cached"))
    forth, told = shown.get_by_role("button", name="Next step"), shown.locator(".live-spoken")
    drawing = shown.locator(".live-filling svg")
    height = shown.bounding_box()["height"]
    for _ in range(6):
        forth.press("Enter")
    assert told.inner_text() == (
        "Step 7 of 7: the model reads “is”. 1 query meets 12 keys, of which 11 come from the cache."
    )
    counts = "computed now: 12, computed again: {}, computed, then masked: {},"
    assert counts.format(0, 0) in drawing.get_attribute("aria-label")
    cached.press("Space")
    assert "and all 11 words before again. Of 12 rows, 1 is new." in told.inner_text()
    assert counts.format(66, 66) in drawing.get_attribute("aria-label")
    assert "holds 0" in drawing.get_attribute("aria-label")
    cached.press("Space")
    reading.select_option(label="in pieces of 3")
    back = shown.get_by_role("button", name="Step back")
    for _ in range(7):
        back.press("Enter")
    forth.press("Enter")
    assert "3 queries meet 6 keys, of which 3 come from the cache" in told.inner_text()
    assert "The mask is a rectangle, 3 by 6." in told.inner_text()
    back.press("Enter")
    reading.select_option(label="in one pass")
    state = read_state(shown, "decoding_cache")
    assert state["at"] == 6, "the step ends with the prompt"
    check_values(shown, "decoding_cache", state)
    assert shown.bounding_box()["height"] == height


def test_heads_that_share_are_drawn_and_told(page: Page, site: str):
    shown = open_figure(page, site, "shared_keys")
    boxes, height = shown.locator(".live-readers rect"), shown.bounding_box()["height"]
    kept = shown.locator(".live-readers g:not(.live-not-kept)")
    for h_kv, who in [("4", "1 reads 1, 2 reads 2,"), ("2", "1 reads 1, 2 reads 1, 3 reads 2,")]:
        shown.locator('[data-trait="h_kv"]').select_option(label=h_kv)
        assert boxes.count() == 4 + int(h_kv) + 16
        assert kept.count() == 4 + int(h_kv) + 4 * int(h_kv)
        assert who in shown.locator(".live-readers").get_attribute("aria-label")
    assert "Heads read keys in pairs: 512 bytes a token, not 1,024." in shown.inner_text()
    shown.locator('[data-trait="how"]').select_option(label="converted: mean")
    rights = live.SharedKeys(**read_state(shown, "shared_keys")).values()
    numbers = [f"{p:.2f}" for p, _ in rights["probability of the right word"]]
    assert shown.locator(".live-meters").inner_text().split()[1::2] == numbers
    assert shown.bounding_box()["height"] == height


def test_heads_meet_in_every_piece_and_nothing_jumps(page: Page, site: str):
    shown = open_figure(page, site, "all_reduce")
    forth = shown.get_by_role("button", name="Next step")
    told, drawn = shown.locator(".live-spoken"), shown.locator("svg.machines")
    assert shown.get_by_role("button", name="Play").count() == 0, "less motion is asked for"
    height = shown.bounding_box()["height"]
    for world in (4, 2, 1):
        shown.locator('[data-trait="world"]').select_option(label=str(world))
        while shown.get_by_role("button", name="Step back").is_enabled():
            shown.get_by_role("button", name="Step back").click()
        for message in range(2 * world - 1):
            state = read_state(shown, "all_reduce")
            assert state["step"] == message
            values = live.AllReduce(**state).values()
            lanes = sum(flat(values["heads in a piece"]))
            assert drawn.locator(".machines-lane").count() == lanes
            assert drawn.locator(".machines-came").count() == (world if message else 0)
            if message:
                assert f"Message {message} of {2 * world - 2}: " in told.inner_text()
                each, so_far, _ = values["bytes a rank sends"]
                assert f"{each if message == 1 else so_far} " in told.inner_text()
            assert shown.bounding_box()["height"] == height
            forth.press("Enter")
        assert forth.is_disabled()


# The squares of each rank's pairs of this step, as query and key.
READ_SQUARES = """figure => {
  const frame = figure.querySelector(".machines-grid svg > .machines-frame");
  const [from, side] = ["x", "width"].map(name => Number(frame.getAttribute(name)));
  const place = text => Math.floor((Number(text) - from) / side * 32);
  return [...figure.querySelectorAll("path[data-rank]")].map(path =>
    [...path.getAttribute("d").matchAll(/M([\\d.]+) ([\\d.]+)/g)]
      .map(([, x, y]) => [place(y), place(x)]));
}"""


@pytest.mark.parametrize("order", ["in zigzag", "in a row"][: 2 if EVERYTHING else 1])
def test_the_ring_computes_every_pair_once(page: Page, site: str, order: str):
    shown = open_figure(page, site, "ring_attention")
    height = shown.bounding_box()["height"]
    shown.locator('[data-trait="order"]').select_option(label=order)
    forth = shown.get_by_role("button", name="Next step")
    seen: dict[int, list[tuple[int, int]]] = {rank: [] for rank in range(4)}
    for step in range(1, 5):
        state = read_state(shown, "ring_attention")
        assert state["step"] == step
        squares = shown.evaluate(READ_SQUARES)
        values = live.RingAttention(**state).values()
        pairs = values["pairs of a rank"]
        assert [len(own) for own in squares] == [now for now, *_ in pairs]
        for rank, own in enumerate(squares):
            seen[rank] += map(tuple, own)
        assert [len(own) for own in seen.values()] == [so_far for _, so_far, _ in pairs]
        assert f"Step {step} of 4: " in shown.locator(".live-spoken").inner_text()
        for rank, of in enumerate(values["whose keys a rank has"]):
            told = shown.locator(".machines-ring svg").get_attribute("aria-label")
            assert f"rank {rank}, keys of {of}, {pairs[rank][0]} pair" in told
        assert shown.bounding_box()["height"] == height
        assert forth.is_disabled() == (step == 4)
        if step < 4:
            forth.press("Enter")
    pairs = sorted(pair for own in seen.values() for pair in own)
    assert pairs == [(i, j) for i in range(32) for j in range(i + 1)]
    queries = [{i for i, _ in own} for own in seen.values()]
    assert sum(map(len, queries)) == 32, "a query stays on its rank"
    shown.locator('[data-trait="world"]').select_option(label="2")
    assert read_state(shown, "ring_attention")["step"] == 2, "fewer ranks have fewer steps"
    shown.locator('[data-trait="world"]').select_option(label="8")
    assert shown.bounding_box()["height"] == height


@TAKES_LONG
@pytest.mark.parametrize("figure", ["ring_attention", "all_reduce"])
def test_messages_move_and_play_stops_at_the_end(browser: Browser, site: str, figure: str):
    context = browser.new_context(viewport=WIDE, reduced_motion="no-preference")
    page = context.new_page()
    shown = open_figure(page, site, figure)
    height = shown.bounding_box()["height"]
    shown.get_by_role("button", name="Next step").click()
    moving = shown.locator(".machines-travels")
    assert moving.count()
    assert shown.bounding_box()["height"] == height
    moving.first.wait_for(state="detached")
    page.clock.install()
    play = shown.get_by_role("button", name="Play")
    play.press("Enter")
    page.clock.run_for(30_000)
    assert shown.get_by_role("button", name="Next step").is_disabled()
    assert play.inner_text() == "Play"
    context.close()


def test_tiles_are_taken_by_buttons_and_scrubber(page: Page, site: str):
    shown = open_figure(page, site, "tiles")
    back, forward = (shown.get_by_role("button", name=name) for name in ("Step back", "Next tile"))
    told, at_control = shown.locator(".live-spoken"), shown.locator('[data-trait="at"]')
    assert shown.get_by_role("button", name="Play").count() == 0, "less motion is asked for"

    def at() -> int:
        state = read_state(shown, "tiles")
        check_values(shown, "tiles", state)
        return state["at"]

    at_control.press("Home")
    assert at() == 0
    assert (back.is_disabled(), forward.is_enabled()) == (True, True)
    assert told.inner_text() == "Nothing has been read: 8 tiles are to come."
    forward.press("Enter")
    assert told.inner_text().startswith("Tile 1 of 8: queries 1 to 4 meet keys 1 and 2; their")
    forward.click()
    assert "m rises for queries 1 and 2, so their old sums shrink" in told.inner_text()
    back.click()
    assert at() == 1
    at_control.press("End")
    assert at() == 8
    shown.locator('[data-trait="is_causal"]').press("Space")
    assert at() == 6, "the last of six"
    assert forward.is_disabled()
    assert "all 8 outputs are written, equal to the two-pass softmax" in told.inner_text()
    at_control.press("Home")
    assert "6 tiles are to come, and 16 pairs are skipped" in told.inner_text()


# Where the tile lies among the cells, and of each query there the bar of l: what it was, the old
# part, all of it, each as a share of the first of these.
DRAWN_TILE = """figure => {
  const box = node => node.getBoundingClientRect();
  const all = (kind, node = figure) => [...node.querySelectorAll(`.tiling-${kind}`)];
  const { left, right, top, bottom } = box(all("frame")[0]);
  const inside = all("pairs span").flatMap((cell, i) => {
    const { x, y, width, height } = box(cell);
    const [across, down] = [x + width / 2, y + height / 2];
    return left < across && across < right && top < down && down < bottom ? [i] : [];
  });
  const sums = all("sum").filter(one => getComputedStyle(one).visibility !== "hidden");
  const bars = sums.map(one => {
    const [was, old, added] = ["was", "old", "added"].map(kind => box(all(kind, one)[0]));
    return [was.width, old.width, added.right - old.left].map(long => long / was.width);
  });
  return { inside, bars };
}"""


@pytest.mark.parametrize("width", WIDTHS_OF_FIGURES)
def test_old_sums_shrink_by_the_factor_and_nothing_moves(page: Page, site: str, width: int):
    page.set_viewport_size({"width": width, "height": 900})
    shown = open_figure(page, site, "tiles")
    height = shown.bounding_box()["height"]
    assert height <= (1.5 * PHONE["height"] if width == PHONE["width"] else 900 - 60)
    shown.locator('[data-trait="at"]').press("Home")
    before = live.Tiles(at=0).values()["m and l"]
    for at in range(1, 9):
        shown.get_by_role("button", name="Next tile").click()
        assert shown.bounding_box()["height"] == height
        values = live.Tiles(at=at).values()
        drawn = shown.evaluate(DRAWN_TILE)
        told = flat(values["pairs (1 now, 2 done, 3 hidden, 4 skipped)"])
        assert drawn["inside"] == [i for i, kind in enumerate(told) if kind == 1]
        queries = sorted({i // 8 for i in drawn["inside"]})
        for query, bar in zip(queries, drawn["bars"], strict=True):
            (m_was, l_was), (m, total) = before[query], values["m and l"][query]
            if l_was:
                known = [1, math.exp(m_was - m), total / l_was]
                assert bar == pytest.approx(known, abs=0.02), (at, query)
        before = values["m and l"]


def test_fewer_tiles_take_the_step_with_them(page: Page, site: str):
    shown = open_figure(page, site, "tiles")
    shown.locator('[data-trait="at"]').press("End")
    for trait, key, expected in [
        ("is_causal", "Space", {"at": 6}),
        ("block_q", "End", {"at": 4, "block_q": 8}),
        ("block_k", "End", {"at": 1, "block_k": 8}),
    ]:
        shown.locator(f'[data-trait="{trait}"]').press(key)
        state = read_state(shown, "tiles")
        assert {name: state[name] for name in expected} == expected
        check_values(shown, "tiles", state)


@TAKES_LONG
def test_tiles_play_to_their_end_and_stop_where_they_are_paused(browser: Browser, site: str):
    context = browser.new_context(viewport=WIDE, reduced_motion="no-preference")
    page = context.new_page()
    page.clock.install()
    shown = open_figure(page, site, "tiles")
    assert shown.evaluate(MOVING) != [], "the tile slides"
    play = play_to_the_end(page, shown, "tiles", pause_after=6000)
    assert shown.get_by_role("button", name="Next tile").is_disabled()
    assert "all 8 outputs are written, equal to" in shown.locator(".live-spoken").inner_text()
    play.press("Enter")  # from the start again
    assert read_state(shown, "tiles")["at"] == 0
    assert shown.evaluate(RUNNING) == 0
    shown.get_by_role("button", name="Next tile").click()
    assert shown.evaluate(RUNNING) == 4 * 5 * 2, "of four queries five bars, each of two parts"
    context.close()


def test_heads_are_sorted_and_tokens_chosen_with_the_mouse(page: Page, site: str):
    shown = open_figure(page, site, "head_viewer")
    sentence = "The agent merged the pull request after review."
    shown.locator('[data-trait="sentence"]').select_option(label=sentence)
    shown.locator('[data-trait="measure"]').select_option(label="previous token")
    shown.locator('[data-trait="by_measure"]').check()
    heads = shown.locator(".live-heads button")
    told = heads.evaluate_all("heads => heads.map(head => head.ariaLabel)")
    found = [float(text.rsplit(": ")[-1]) for text in told]
    assert found == sorted(found, reverse=True)
    heads.first.click()
    shown.locator(".live-large svg").first.get_by_text("agent").first.click()
    shown.locator(".live-large svg").first.get_by_text("[SEP]").last.click()
    state = read_state(shown, "head_viewer")
    assert (state["layer"], state["head"], state["query"], state["key"]) == (0, 2, 2, 10)
    shown.locator(".live-large rect").nth(3 * 11 + 4).click()
    state = read_state(shown, "head_viewer")
    assert (state["query"], state["key"]) == (3, 4)
    weight = live.HeadViewer(**state).values()["weights"][3][4]
    assert f"From “merged” it gives {weight:.2f} to “the”" in shown.inner_text()


def test_both_maps_have_a_head_in_the_same_place(page: Page, site: str):
    shown = open_figure(page, site, "head_map")
    places = "made => made.map(button => button.ariaLabel.match(/layer \\d+, head \\d+/)[0])"
    mapped = shown.locator(".map-heads button")
    viewed = page.locator('figure[data-name="head_viewer"] .live-heads button')
    assert mapped.evaluate_all(places) == viewed.evaluate_all(places)
    mapped.nth(2).click()
    state = read_state(shown, "head_map")
    assert (state["layer"], state["head"]) == (0, 2)
    assert "Head (0, 2) gives 1.00 to previous token" in shown.inner_text()


def test_a_symbol_is_set_as_in_a_formula_and_read_by_its_letters(page: Page, site: str):
    shown = open_figure(page, site, "saturation")
    box = shown.get_by_role("checkbox", name="Divide by root of d k")
    assert box.count() == 1
    assert box.locator("xpath=..").locator("var").all_inner_texts() == ["d", "k"]


IN_VIEW = """node => {
  const { top, bottom } = node.getBoundingClientRect();
  const header = document.querySelector(".bd-header-article, .header-article");
  return top >= (header?.getBoundingClientRect().bottom ?? 0) && bottom <= innerHeight;
}"""


@pytest.mark.parametrize("width", WIDTHS_OF_FIGURES)
def test_a_head_is_chosen_beside_its_drawing(browser: Browser, site: str, width: int):
    touch = width == PHONE["width"]
    window = {"viewport": PHONE if touch else WIDE, "has_touch": touch, "is_mobile": touch}
    page = browser.new_context(reduced_motion="reduce", **window).new_page()
    shown = open_figure(page, site, "head_viewer")
    heads, drawing = shown.locator(".live-heads button"), shown.locator(".live-large svg").first
    shown.locator(".live-heads").evaluate(
        "heads => scrollTo(0, heads.getBoundingClientRect().top + scrollY - 64)"
    )
    scrolled = page.evaluate("scrollY")
    lines = "svg => [...svg.querySelectorAll('line')].map(line => line.attributes[4].value)"
    seen = set()
    for place in (0, 11, 40, 71):
        head = heads.nth(place)
        head.tap() if touch else head.click()
        assert head.get_attribute("aria-pressed") == "true"
        assert head.evaluate(IN_VIEW)
        assert drawing.evaluate(IN_VIEW)
        seen.add(str(drawing.evaluate(lines)))
    assert len(seen) == 4, "the drawing follows"
    assert page.evaluate("scrollY") == scrolled
    page.context.close()


def open_small_gpt(reader: BrowserContext, site: str) -> tuple[Page, Locator, Heard]:
    """Open the page of the small GPT, and leave the model where it is."""
    page = reader.new_page()
    heard = listen(page)
    page.goto(f"{site}/{PLACED['small_gpt'][0]}.html")
    shown = page.locator('figure.live-figure[data-name="small_gpt"]')
    shown.locator(".live-body").wait_for()
    return page, shown, heard


@pytest.mark.parametrize("served", [True, False], ids=["served", "file"])
def test_the_model_comes_when_it_is_played(reader: BrowserContext, site: str, served: bool):
    page, shown, heard = open_small_gpt(reader, site if served else HTML.as_uri())
    state = PLACED["small_gpt"][1]

    def asked() -> int:
        return sum(url.endswith("small_gpt.parcel.js") for url in heard.answered)

    assert asked() == 0
    check_values(shown, "small_gpt", state)
    shown.locator('[data-place="[0,1]"]').press("Space")
    shown.get_by_role("button", name=LOADER).wait_for(state="hidden")
    state = read_state(shown, "small_gpt")
    assert state["heads_on"][0][1] is False
    check_values(shown, "small_gpt", state)
    shown.get_by_role("button", name="All heads on").click()
    check_values(shown, "small_gpt", PLACED["small_gpt"][1])
    assert asked() == 1
    assert (heard.foreign, heard.failed, heard.errors) == ([], [], [])
    page.close()


def test_a_model_that_does_not_come_can_be_asked_for_again(reader: BrowserContext, site: str):
    page, shown, _ = open_small_gpt(reader, site)
    page.route("**/small_gpt.parcel.js", lambda route: route.abort())
    shown.get_by_role("button", name="Load the model").press("Enter")
    again = shown.get_by_role("button", name="The model did not come: try again")
    again.wait_for()
    check_values(shown, "small_gpt", PLACED["small_gpt"][1])
    page.unroute("**/small_gpt.parcel.js")
    again.press("Enter")
    shown.get_by_role("button", name=LOADER).wait_for(state="hidden")
    assert shown.locator("textarea").evaluate("box => box === document.activeElement")
    page.close()


@pytest.mark.parametrize("width", WIDTHS_OF_FIGURES)
def test_without_the_previous_word_head_the_surname_is_lost(page: Page, site: str, width: int):
    page.set_viewport_size(PHONE if width == PHONE["width"] else WIDE)
    shown = open_figure(page, site, "induction_heads")
    told, off = shown.locator(".live-spoken"), shown.locator('[data-trait="off"]')
    steps = shown.get_by_role("group", name="Steps").get_by_role("button").all()
    heights = set()

    def tell() -> list[str]:
        said = []
        for button in steps:
            button.click()
            said.append(told.inner_text())
            heights.add(shown.bounding_box()["height"])
        check_values(shown, "induction_heads", read_state(shown, "induction_heads"))
        return said

    whole = tell()
    off.select_option(label="head 2")
    without = tell()
    assert "writes nothing" not in whole[0]
    assert "writes nothing" in without[0]
    assert "Each key says" in whole[1]
    assert "Neither key says" in without[1]
    assert "and most" not in whole[2]
    assert "and most" in without[2]
    assert whole[3].endswith("That is right.")
    assert "That is wrong" in without[3]
    off.select_option(label="head 0")  # another head is not missed
    assert tell()[3].endswith("That is right.")
    stories = shown.locator('[data-trait="example"] option').all()
    for story in stories[::4] if EVERYTHING else stories[3:4]:
        shown.locator('[data-trait="example"]').select_option(label=story.inner_text())
        assert tell()[3].endswith("That is right.")
    shown.locator('[data-trait="surname"]').select_option(label="ford")
    assert "“ford” with 1.00" in tell()[3]
    assert len(heights) == 1, "the page below moves"


def test_what_the_model_does_not_know_is_named_and_stays(page: Page, site: str):
    shown = open_figure(page, site, "small_gpt")
    state, box = read_state(shown, "small_gpt"), shown.locator("textarea")
    fault = shown.locator(".live-error")
    typed = f"{state['story']} zebra . Dogz"
    box.fill(typed)
    assert "“zebra”, “dogz”: not among" in fault.inner_text()
    assert box.get_attribute("aria-invalid") == "true"
    assert box.get_attribute("aria-describedby") == fault.get_attribute("id")
    shown.get_by_role("button", name="Write a word").click()
    shown.locator("summary").first.press("Enter")
    shown.get_by_role("button", name="calm", exact=True).click()
    assert box.input_value() == f"{typed.lower()} calm"
    check_values(shown, "small_gpt", state)
    box.fill("the box su")
    assert fault.inner_text() == "", "a word that is being typed"
    box.press("Tab")
    assert "“su”: not among" in fault.inner_text()
    for text in (" ", "the " * 49):
        box.fill(text)
        box.press("Tab")
        assert fault.inner_text() != ""
    box.fill("The box  suits Mia.")
    assert (fault.inner_text(), box.get_attribute("aria-invalid")) == ("", None)
    state["story"], state["query"] = "the box suits mia .", 4
    check_values(shown, "small_gpt", state)
    shown.get_by_role("button", name="Take back a word").click()
    assert box.input_value() == "the box suits mia"


@TAKES_LONG
def test_the_model_writes_word_by_word(page: Page, site: str):
    shown = open_figure(page, site, "small_gpt")
    box = shown.locator("textarea")
    start = "the box suits mia"
    box.fill(start)
    model, known = load_gpt(), list(VOCABULARY)
    words = start.split()
    for _ in range(3):
        shown.get_by_role("button", name="Write a word").press("Enter")
        words.append(known[int(model(encode(" ".join(words))[None])[0, -1].argmax())])
        assert box.input_value() == " ".join(words)
    play = shown.locator("[data-plays]")
    assert play.inner_text() == "Play"
    play.press("Enter")
    assert play.inner_text() == "Pause"
    page.wait_for_function(
        "n => document.querySelector('textarea').value.split(' ').length > n", arg=9
    )
    play.press("Enter")
    now = box.input_value()
    page.wait_for_timeout(1_000)
    assert (box.input_value(), play.inner_text()) == (now, "Play")
    box.fill("the " * (small_gpt.MOST_WORDS - 1))
    for _ in range(2):
        shown.get_by_role("button", name="Write a word").press("Enter")
    assert len(box.input_value().split()) == small_gpt.MOST_WORDS
    assert f"The story has {small_gpt.MOST_WORDS} words" in shown.inner_text()


def test_a_weight_is_told_where_the_mouse_is(page: Page, site: str):
    shown = open_figure(page, site, "small_gpt")
    state = read_state(shown, "small_gpt")
    words, n = state["story"].split(), len(state["story"].split())
    cells = shown.locator(".live-scroll rect")
    cells.nth(5 * n + 2).hover()
    weight = live.SmallGPT(**state).values()["weights"][5][2]
    told = f"From “{words[5]}” (6) to “{words[2]}” (3): {weight:.3f}"
    assert told in shown.inner_text()
    cells.nth(5 * n + 2).click()
    state = read_state(shown, "small_gpt")
    assert (state["query"], state["key"]) == (5, 2)
    assert f"{weight:.3f} to “{words[2]}” (3)" in shown.inner_text()


def test_what_is_no_sequence_is_told_and_moves_nothing(page: Page, site: str):
    shown = open_figure(page, site, "trained_heads")
    state, box = read_state(shown, "trained_heads"), shown.locator('[data-trait="sequence"]')
    fault = shown.locator(".live-error")
    for size in (WIDE, PHONE) if EVERYTHING else (PHONE,):
        page.set_viewport_size(size)
        height = shown.bounding_box()["height"]
        for typed, told in [
            ("hello world", "“w”, “r”: not among the letters a to p. Type others instead."),
            ("abc", "A sequence has 14 letters, and here are 3: add 11."),
            ("", "A sequence has 14 letters, and here are 0: add 14."),
            ("a" * 16, "A sequence has 14 letters, and here are 16: take 2 away."),
            ("<b>zyxwvutsrq</b>", "not among the letters a to p."),
        ]:
            box.fill(typed)
            box.press("Tab")
            assert told in fault.inner_text()
            assert f"still shows {state['sequence']}" in fault.inner_text()
            assert (box.input_value(), box.get_attribute("aria-invalid")) == (typed, "true")
            assert box.get_attribute("aria-describedby") == fault.get_attribute("id")
            assert shown.bounding_box()["height"] == height
        check_values(shown, "trained_heads", state)
        box.fill("abc")
        assert fault.inner_text() == "", "letters may be on their way"
        box.fill(" ABCDEFG hijklmn")
        assert (fault.inner_text(), box.get_attribute("aria-invalid")) == ("", None)
        check_values(shown, "trained_heads", state | {"sequence": "abcdefghijklmn"})
        shown.get_by_role("button", name="Another sequence").press("Enter")
        state["sequence"] = box.input_value()
        assert len(state["sequence"]) == POSITIONS
        check_values(shown, "trained_heads", state)


def test_a_head_that_is_cut_takes_its_relation_along(page: Page, site: str):
    shown = open_figure(page, site, "trained_heads")
    height = shown.bounding_box()["height"]
    table = shown.locator(".live-reports").first
    counts = [f"{-offset} back\n{{}} right" for offset in OFFSETS]
    failed = []
    for head in shown.get_by_role("checkbox", name="Head").all()[:4]:
        head.press("Space")
        right = table.locator("tbody th").all_inner_texts()
        (lost,) = (r for r, count in enumerate(counts) if right[r] != count.format(POSITIONS))
        wrong = table.locator("tbody tr").nth(lost).locator("td", has_text="≠").count()
        assert right[lost] == counts[lost].format(POSITIONS - wrong)
        assert wrong > POSITIONS / 2
        assert table.locator("td", has_text="≠").count() == wrong, "no other answer is wrong"
        assert shown.bounding_box()["height"] == height
        failed.append(lost)
        shown.get_by_role("button", name="All heads on").press("Enter")
        assert table.locator("td", has_text="≠").count() == 0
    assert sorted(failed) == [0, 1, 2, 3]
