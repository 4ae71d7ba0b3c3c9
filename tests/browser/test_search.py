"""The search, as a reader uses it: by its dialog and by its page, with slips, keys and touch."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Locator, Page, expect

from labkit import ledger
from press import BOOK, HTML
from press.extension.claims import erratum_anchor
from press.node import NODE
from tests.browser.looking import (
    COLOURS,
    PHONE,
    WIDE,
    WIDTHS,
    listen,
    overflow,
    serious,
    set_theme,
    wait_for_drawing,
)

FIRST = 3  # results among which the chapter must be
CHAPTER = "chapters/06_output_projection.html"
DIALOG, ON_PAGE = "#pst-search-dialog", ".bd-search-container"
LOADED_BYTES = 275_000

# Written down from the table of contents before there was this search.
WRITTEN_BEFORE = yaml.safe_load(Path(__file__).with_name("queries.yml").read_text("utf-8"))
# Written down as well before the words of questions were left out, for which it found poor pages.
QUESTIONS = {
    "why multiple heads": ["chapters/05_split_and_merge", "chapters/08_heads_that_you_train"],
    "quadratic cost": ["chapters/07_counting", "chapters/13_attention_in_tiles"],
    "what is a token": ["book/glossary", "chapters/01_query_key_value"],
    "multi-head": [
        "book/glossary",
        "chapters/05_split_and_merge",
        "labs/lab_03_multi_head_attention",
    ],
    "transformer": [
        "book/glossary",
        "chapters/10_a_small_gpt",
        "chapters/03_self_and_cross_attention",
    ],
    "explain softmax": ["book/glossary", "chapters/01_query_key_value", "chapters/02_why_sqrt_d_k"],
    "kv cache size": [
        "chapters/11_decoding_with_a_cache",
        "chapters/12_heads_that_share_keys_and_values",
    ],
}
# What Sphinx's search put far down.
ONCE_FAR_DOWN = {"output projection": 6, "causal mask": 4, "scaling": 2}
# Other words: of headings, of students, with other endings, by symbol.
OTHERS = {
    "soft lookup": 1,
    "weighted average": 1,
    "dot product variance": 2,
    "temperature": 2,
    "saturated softmax": 2,
    "vanishing gradients": 2,
    "square root": 2,
    "sqrt": 2,
    "√": 2,
    "d_k": 2,
    "encoder decoder": 3,
    "self-attention": 3,
    "selfattention": 3,
    "future tokens": 4,
    "leaks": 4,
    "padding": 4,
    "tril": 4,
    "reshape": 5,
    "transposed": 5,
    "merge heads": 5,
    "slabs": 6,
    "W_O": 6,
    "how many parameters": 7,
    "flops": 7,
    "multiply-adds": 7,
    "removing heads": 8,
    "redundant heads": 8,
    "bert": 9,
    "pronouns": 9,
    "residual stream": 10,
    "layer norm": 10,
    "kv cache": 11,
    "prefill": 11,
    "sliding window": 11,
    "roofline": 7,
    "arithmetic intensity": 7,
    "HBM": 7,
    "Kullback-Leibler divergence": 10,
    "direct logits": 10,
    "activation patching": 10,
    "attention sink": 11,
    "paged attention": 11,
    "exposure bias": 11,
    "speculative decoding": 11,
    "quantised cache": 11,
    "grouped query attention": 12,
    "mqa": 12,
    "mla": 12,
    "multi-head latent attention": 12,
    "absorption": 12,
    "cross-layer attention": 12,
    "decoupled rotary keys": 12,
    "flash attention": 13,
    "online softmax": 13,
    "sram": 13,
    "flashdecoding": 13,
    "log-sum-exp": 13,
    "flexattention": 13,
    "linear attention": 13,
    "tensor parallel": 14,
    "ring attention": 14,
    "all-reduce": 14,
    "all-to-all": 14,
    "ulysses": 14,
    "sequence parallelism": 14,
    "context parallelism": 14,
    "reduce-scatter": 14,
    "all-gather": 14,
    "zigzag": 14,
}
SLIPS = {
    "quary": 1,
    "embeding": 1,
    "atenttion weigths": 1,
    "temprature": 2,
    "causl mask": 4,
    "maskign": 4,
    "tranpose": 5,
    "projectoin": 6,
    "paramters": 7,
    "pretraind": 9,
    "cahce": 11,
    "flsh attention": 13,
}
# What the glossary says comes first, by whatever name it is asked for.
TERMS = "positional encoding,position encoding,layer norm,layernorm,GQA,MLA,trasformer".split(",")
QUERIES = WRITTEN_BEFORE | QUESTIONS | ONCE_FAR_DOWN | OTHERS | SLIPS | {"positional encoding": 10}
TYPED = {"output projection": 6, "causl mask": 4}  # these by keys as well


def results(place: Locator) -> Locator:
    """Name what a reader sees as results: the sections of a page belong to it."""
    return place.locator(".search-results > section > ul > li")


def first_shown(place: Locator) -> list[str]:
    shown = results(place).evaluate_all("all => all.map(one => one.querySelector('a').href)")
    return shown[:FIRST]


def ask(page: Page, typed: str, inside: str = DIALOG) -> Locator:
    """Type into the search, and wait for what it says."""
    place = page.locator(inside)
    if inside == DIALOG and not place.is_visible():
        page.keyboard.press("Control+k")
    field = place.get_by_role("searchbox")
    field.fill("")
    expect(place.locator(".search-status")).to_contain_text("Type words")
    field.press_sequentially(typed)
    expect(place.locator(".search-status")).to_contain_text(re.compile(r"results?:|Nothing"))
    wait_for_drawing(page)  # what was typed last is shown with the next frame
    return place


def found(texts: list[str]) -> dict[str, list[str]]:
    """Give the addresses that the search finds first for each text, by its own modules."""
    given = {
        "finding": (BOOK / "search" / "finding.js").as_uri(),
        "statics": str(HTML / "_static"),
        "texts": texts,
    }
    command = [NODE, "--no-warnings", Path(__file__).with_name("search.js")]
    answer = subprocess.check_output(command, input=json.dumps(given), encoding="utf-8")
    return dict(zip(texts, json.loads(answer), strict=True))


def leads(addresses: list[str], to: int | list[str]) -> bool:
    """Say whether one of these is a chapter, by its number, or one of some pages."""
    pages = [f"chapters/{to:02}_"] if isinstance(to, int) else to
    return any(page in address for address in addresses for page in pages)


def test_words_lead_to_their_page():
    firsts = found([*QUERIES, *TERMS])
    missed = {typed: firsts[typed] for typed, to in QUERIES.items() if not leads(firsts[typed], to)}
    assert missed == {}
    # A definition, the chapter that introduces the term, then what is alike, in the book's order.
    for place, to in enumerate((["book/glossary"], 1, 2)):
        assert leads(firsts["softmax"][place : place + 1], to), firsts["softmax"]
    second = [typed for typed, to in WRITTEN_BEFORE.items() if not leads(firsts[typed][:1], to)]
    assert len(second) <= 0.1 * len(WRITTEN_BEFORE), second
    assert [typed for typed in TERMS if not leads(firsts[typed][:1], ["book/glossary"])] == []


def test_the_page_shows_what_is_found(page: Page, site: str):
    page.goto(f"{site}/search.html")
    for typed, addresses in found(list(TYPED)).items():
        shown, first = first_shown(ask(page, typed, ON_PAGE)), addresses[:FIRST]
        assert leads(shown[:FIRST], TYPED[typed])
        pages = [one.removeprefix(f"{site}/").partition("#")[0] for one in shown]
        assert pages[: len(first)] == first


@pytest.mark.parametrize(
    ("at", "typed"),
    [("site", "by-hand/weights"), ("unpacked", "section-2.3/by-hand/weights")],
)
def test_the_name_of_a_claim_puts_it_first(
    at: str, typed: str, page: Page, request: pytest.FixtureRequest
):
    heard = listen(page)
    page.goto(f"{request.getfixturevalue(at)}/search.html?q={typed}")
    claim = ledger.find_claim("section-2.3/by-hand/weights")
    first = results(page.locator(ON_PAGE)).first
    link = first.get_by_role("link", name=claim.key, exact=True)
    erratum = first.get_by_role("link", name=f"erratum of {claim.key}")
    expect(link).to_have_attribute("href", re.compile(f"{claim.notebook}.html#{claim.anchor}$"))
    erratum_at = f"book/errata.html#{erratum_anchor(claim)}"
    expect(erratum).to_have_attribute("href", re.compile(f"{erratum_at}$"))
    expect(first).to_contain_text(str(claim.verdict))
    link.click()
    page.locator(f"#{claim.anchor}[open]").wait_for()
    page.locator(f"#{claim.anchor} a", has_text="erratum").click()
    page.locator(f"#{erratum_anchor(claim)}[open] dl").wait_for()
    assert (heard.foreign, heard.errors) == ([], [])


def test_the_dialog_is_led_by_keys(page: Page, site: str):
    page.goto(f"{site}/{CHAPTER}")
    place = ask(page, "masking")
    chapters = place.locator("section", has=page.get_by_role("heading", name="Chapters"))
    first = results(place).first
    expect(first.locator("a").first).to_have_text(re.compile("^4 A causal mask"))
    expect(first.locator("mark").first).to_have_text(re.compile("mask"))
    expect(chapters).to_be_visible()

    page.keyboard.press("ArrowDown")
    expect(first.locator("a").first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(place.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(place).to_be_hidden()

    ask(page, "masking")
    place.get_by_role("button", name="Close").click()
    page.keyboard.press("Control+k")
    page.keyboard.type("slabs")
    expect(place.get_by_role("searchbox")).to_have_value("slabs")
    section = place.get_by_role("link", name="What each head writes, slab by slab")
    expect(section).to_be_visible()
    for _ in range(results(place).locator("a").count()):
        page.keyboard.press("ArrowDown")
        if section.evaluate("link => link === document.activeElement"):
            break
    expect(section).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{CHAPTER}#what-each-head-writes-slab-by-slab")
    expect(place).to_be_hidden()

    ask(page, "masking")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=masking")
    expect(results(page.locator(ON_PAGE)).first).to_contain_text("A causal mask")


def test_the_dialog_is_led_by_touch(browser: Browser, site: str):
    context = browser.new_context(viewport=PHONE, has_touch=True)
    page = context.new_page()
    page.goto(f"{site}/{CHAPTER}")
    page.locator(".search-button").tap()
    place = page.locator(DIALOG)
    place.get_by_role("button", name="Close").tap()
    expect(place).to_be_hidden()
    page.locator(".search-button").tap()
    ask(page, "head")
    claims = place.locator("section", has=page.get_by_role("heading", name="Claims"))
    count = results(place).count()
    claims.get_by_role("button").tap()
    assert results(place).count() > count
    first = results(place).locator("a[href*='/chapters/']").first
    address = first.evaluate("link => link.href")
    assert not address.endswith(CHAPTER), "the tap would lead to the page it is on"
    first.tap()
    page.wait_for_url(address)
    context.close()


def test_what_is_not_found_leads_on(page: Page, site: str):
    page.goto(f"{site}/{CHAPTER}")
    expect(ask(page, "trasformer").locator(".search-status")).to_contain_text(
        "No page has “trasformer”; shown is “transformer”."
    )
    place = ask(page, "xyzzyx")
    expect(place.locator(".search-status")).to_contain_text("Nothing found for “xyzzyx”")
    place.get_by_role("link", name="contents").click()
    page.wait_for_url("**/book/index.html")


def test_without_scripts_the_page_leads_to_the_contents(browser: Browser, site: str):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/search.html?q=mask")
    page.get_by_role("main").get_by_role("link", name="first page").click()
    page.wait_for_url("**/book/index.html")
    context.close()


def test_an_index_that_does_not_come_is_told(page: Page, site: str):
    page.route("**/search-index.js", lambda route: route.abort())
    page.goto(f"{site}/search.html?q=mask")
    expect(page.locator(ON_PAGE).locator(".search-status")).to_contain_text("could not be loaded")


def test_it_is_loaded_when_it_is_opened(page: Page, site: str):
    heard = listen(page)
    page.goto(f"{site}/{CHAPTER}")
    page.wait_for_load_state("networkidle")  # alone, it may come before the scripts have run
    before = set(heard.answered)
    assert not any("search-index" in address or "minisearch" in address for address in before)
    ask(page, "mask")
    loaded = [HTML / address.removeprefix(f"{site}/") for address in set(heard.answered) - before]
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) < LOADED_BYTES
    assert heard.demands() == {demand: [] for demand in heard.demands()}


# All rules are tried once; these depend on the theme or the width.
LOOKS = [
    (WIDE, "light", None),
    (WIDE, "dark", COLOURS),
    (PHONE, "dark", [*COLOURS, *WIDTHS]),
    (PHONE, "light", COLOURS),
]


def test_results_are_for_everyone(page: Page, site: str):
    page.goto(f"{site}/{CHAPTER}")
    ask(page, "output projection")
    for size, theme, rules in LOOKS:
        page.set_viewport_size(size)
        set_theme(page, theme)
        assert serious(page, DIALOG, rules, alone=True) == [], theme
    page.goto(f"{site}/search.html?q=output+projection")
    results(page.locator(ON_PAGE)).first.wait_for()
    for size, theme, rules in LOOKS:
        page.set_viewport_size(size)
        set_theme(page, theme)
        assert serious(page, rules=rules) == [], theme
        assert overflow(page) <= 0
