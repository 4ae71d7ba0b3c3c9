"""What the tests of the built pages have in common."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from press import HTML

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
# Set by `make pages ALL=1`: the editions have all pages, and the live figures' dice are cast anew.
EVERYTHING = bool(os.environ.get("ALL_PAGES"))
TAKES_LONG = pytest.mark.skipif(not EVERYTHING, reason="done by `make pages ALL=1`")

# What depends on the theme or the width, and not on the page's text alone.
COLOURS, WIDTHS = ["color-contrast", "link-in-text-block"], ["scrollable-region-focusable"]

OPEN_FOLDS = "document.querySelectorAll('details').forEach(fold => { fold.open = true; })"

# Bring each figure near the window, as a reader does, and wait until it is drawn.
DRAW_FIGURES = """async () => {
  const drawn = figure => figure.querySelector(".main-svg")?.checkVisibility();
  const figures = [...document.querySelectorAll("figure.plotly-figure")];
  for (const figure of figures) {
    const end = performance.now() + 20_000;
    figure.scrollIntoView();
    while (!drawn(figure) && performance.now() < end) await new Promise(requestAnimationFrame);
  }
  return figures.filter(figure => !drawn(figure)).map(figure => figure.textContent.slice(-80));
}"""
# Name the figures whose letters keep their colour when the theme changes.
CHANGE_THEME = """async theme => {
  const figures = [...document.querySelectorAll("figure.plotly-figure")];
  const colour = figure => getComputedStyle(figure.querySelector(".main-svg text") ?? figure).fill;
  const before = new Map(figures.map(figure => [figure, colour(figure)]));
  const same = () => figures.filter(figure => colour(figure) === before.get(figure));
  const end = performance.now() + 10_000;
  Object.assign(document.documentElement.dataset, { theme, mode: theme });
  do await new Promise(requestAnimationFrame);
  while (same().length && performance.now() < end);
  return same().map(figure => figure.textContent.slice(-80));
}"""

# The theme looks which code scrolls some time after a window has changed its size; axe judges then.
TAB_STOPS = """async () => {
  const late = () => [...document.querySelectorAll("pre")].some(
    pre => pre.tabIndex < 0 && pre.scrollWidth > pre.clientWidth);
  const end = performance.now() + 3_000;
  while (late() && performance.now() < end) await new Promise(requestAnimationFrame);
}"""

# Scroll down the page, as a reader does: on a phone what is far from the window is not laid out.
PASS_BY = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await frame();
    await frame();
  }
}"""

# Colours look alike where text, size and what lies behind are alike: axe judges some of each kind.
MARK_SAMPLES = """() => {
  const grounds = new Map([[null, ""]]);
  function ground(element) {
    if (!grounds.has(element)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(element);
      const own = [backgroundColor, backgroundImage, opacity].join();
      const behind = ground(element.parentElement);
      grounds.set(element, own === "rgba(0, 0, 0, 0),none,1" ? behind : `${own} ${behind}`);
    }
    return grounds.get(element);
  }
  const isText = node => node.nodeType === Node.TEXT_NODE && node.data.trim();
  const speaks = e => e.matches("input, select, textarea") || [...e.childNodes].some(isText);
  const kinds = new Map();
  for (const old of document.querySelectorAll("[data-sample]")) delete old.dataset.sample;
  for (const element of document.body.querySelectorAll("*")) {
    if (!speaks(element) || !element.checkVisibility({ visibilityProperty: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1 || box.right <= 0) continue;
    const { color, fill, fontSize, fontWeight, textShadow } = getComputedStyle(element);
    const place = element.closest("article") !== null;
    const off = element.matches(":disabled, [aria-disabled=true]");
    const kind = [
      color, fill, fontSize, fontWeight, textShadow, place, off, ground(element),
    ].join();
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    if (kinds.get(kind) <= 3) element.dataset.sample = "";
  }
}"""

# axe walks all elements, most of them the spans of formulas and of coloured code. What screen
# readers skip of a formula, and the colours of code of a kind that is sampled elsewhere, can go.
THIN_OUT = """() => {
  const sampled = element => element.querySelector("[data-sample]");
  for (const formula of document.querySelectorAll(".katex-html"))
    if (!sampled(formula)) formula.replaceChildren();
  for (const code of document.querySelectorAll("pre > code"))
    if (!sampled(code) && !code.querySelector("a")) code.textContent = code.textContent;
}"""

# axe walks the whole page even where it is asked about a part of it.
LEAVE_ALONE = """selector => {
  for (let e = document.querySelector(selector); e !== document.body; e = e.parentElement)
    for (const other of [...e.parentElement.children])
      if (other !== e && !other.matches("script, style, link")) other.remove();
}"""

RUN_AXE = """async ([context, rules]) => {
  const sampled = { id: "color-contrast", selector: "[data-sample]" };
  axe.configure({ rules: [sampled] });
  // What is preloaded would ask the server for style sheets that no page asks for.
  const options = { resultTypes: ["violations"], preload: false, ...(rules && { runOnly: rules }) };
  const { violations } = await axe.run(context ?? document, options);
  return violations
    .filter(rule => ["serious", "critical"].includes(rule.impact))
    .map(({ id, help, nodes }) =>
      `${id}: ${help}: ${nodes.slice(0, 4).map(node => node.html.slice(0, 160)).join(" … ")}`);
}"""


@dataclass
class Heard:
    """What a page has asked for and complained of, since it was listened to."""

    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    def forget(self) -> None:
        """Begin anew, for a tab that goes to another page."""
        for found in (self.foreign, self.failed, self.errors, self.answered):
            found.clear()

    def demands(self) -> dict[str, list[str]]:
        return {
            "asks another host": self.foreign,
            "asks for what is not there": self.failed,
            "logs an error": self.errors,
        }


def listen(page: Page) -> Heard:
    heard = Heard()
    page.on("request", lambda r: heard.foreign.append(r.url) if is_foreign(r.url) else None)
    page.on("requestfailed", lambda request: heard.failed.append(request.url))
    page.on("response", lambda r: (heard.answered if r.ok else heard.failed).append(r.url))
    page.on("console", lambda m: heard.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: heard.errors.append(str(error)))
    return heard


def judge(demands: dict[str, list[Any]]) -> None:
    """Fail if anything breaks a demand, and name it all."""
    broken = [f"{demand}: {one}" for demand, found in demands.items() for one in found]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"


def set_theme(page: Page, theme: str) -> None:
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    page.evaluate(f"document.documentElement.dataset.mode = '{theme}'")


def wait_for_drawing(page: Page) -> None:
    """Wait until what was done to a page is laid out and drawn: two frames."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def serious(
    page: Page,
    context: str | dict[str, list] | None = None,
    rules: list[str] | None = None,
    *,
    thin: bool = False,
    alone: bool = False,
) -> list[str]:
    """List what axe-core finds serious or critical, each with the elements it names.

    context : a selector, or ``{"exclude": [[selector]]}`` for all but what it selects
    rules   : the names of the rules to try, if not all
    thin    : True takes out of the page what looks like a sample, so nothing comes after it
    alone   : True takes out of the page what is outside the context, a selector
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    if alone:
        page.evaluate(LEAVE_ALONE, context)
    page.evaluate(MARK_SAMPLES)
    if thin:
        page.evaluate(THIN_OUT)
    return page.evaluate(RUN_AXE, [context, rules])


def overflow(page: Page) -> int:
    """Say by how many pixels a page is wider than its window, or cut off in a section."""
    return page.evaluate(
        """() => Math.max(
          document.scrollingElement.scrollWidth - innerWidth,
          ...[...document.querySelectorAll("article > section > section")]
            .filter(section => getComputedStyle(section).contentVisibility === "auto")
            .map(section => section.scrollWidth - section.clientWidth),
        )"""
    )


def too_wide(page: Page) -> list[str]:
    """Say by how many pixels a page is too wide, and name what makes it so."""
    pixels = overflow(page)
    return [f"by {pixels} pixels", *widest(page)] if pixels > 0 else []


def widest(page: Page) -> list[str]:
    """Name the elements that reach beyond the window and do not scroll by themselves."""
    return page.evaluate(
        """() => {
          const clips = e => getComputedStyle(e).overflowX !== "visible";
          const scrolls = e => e !== null && (clips(e) || scrolls(e.parentElement));
          return [...document.querySelectorAll(".bd-main *")]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
            .filter(e => !scrolls(e.parentElement))
            .slice(0, 8).map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`);
        }"""
    )


def out_of_reach(page: Page) -> list[str]:
    """Name the formulas that are wider than their box and cannot be scrolled from their start."""
    return page.evaluate(
        """() => [...document.querySelectorAll("article .math")]
          .filter(e => {
            const box = e.getBoundingClientRect();
            const parts = [...e.querySelectorAll(".base")].map(b => b.getBoundingClientRect());
            const scrolls = ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
            return parts.some(b => b.left < box.left - 1 || (b.right > box.right + 1 && !scrolls));
          })
          .map(e => e.querySelector("annotation").textContent)"""
    )


def unseen(page: Page) -> list[str]:
    """Name the formulas that did not render, or that are not visible."""
    return page.evaluate(
        """() => [
          ...document.querySelectorAll(".katex-error"),
          ...[...document.querySelectorAll("article .math .katex-html")]
            .filter(e => e.getClientRects().length === 0),
        ].map(e => e.parentElement.textContent.slice(0, 80))"""
    )


# What is set like the text around it, or looks like another of its kind.
PLAIN = {"b", "i", "sub", "sup", "var", "td.text-left", "th.text-left", "div.highlight-none"}
PLAIN |= {"div.highlight-text", "div.tag_training", "details.verdict-rounding"}
PLAIN |= {"details.verdict-draw", "i.verdict-rounding", "caption"}
# What is set as one thing, whatever is inside.
FIGURES = ('<figure class="live-figure"', '<figure class="plotly-figure')
INNER = ("<pre", "<svg", *FIGURES, "<math", "<script")


def sample(places: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Choose, of (part, page) in the book's order, few that together have every kind of element.

    The pages are taken by how many kinds they add a byte.
    """
    book = list(places)
    texts = {name: (HTML / f"{name}.html").read_text(encoding="utf-8") for _, name in book}
    left = {name: kinds(text) for name, text in texts.items()}
    chosen = set()
    while any(left.values()):
        best = max(left, key=lambda name: len(left[name]) / len(texts[name]))
        chosen.add(best)
        left = {name: kinds - left[best] for name, kinds in left.items()}
    return [(part, name) for part, name in book if name in chosen]


def kinds(text: str) -> set[str]:
    """Name the elements and classes of an article."""
    article = text[text.index("<article") : text.index("</article>")]
    plain = re.sub(rf"(?s)({'|'.join(INNER)}).*?</(pre|svg|figure|math|script)>", r"\1 >", article)
    found = set()
    for tag, attributes in re.findall(r"<(?!span)([a-z]\w*)([^>]*)>", plain):
        classes = re.search(r' class="([^"]*)"', attributes)
        found |= {tag, *(f"{tag}.{name}" for name in (classes[1].split() if classes else ()))}
    return found - PLAIN
