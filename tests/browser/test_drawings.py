"""The drawings in a page's own type: no letter on another, on a line or cut off, none too small."""

from __future__ import annotations

from playwright.sync_api import Page

from press import BOOK
from tests.browser.looking import PHONE, WIDE

LEAST = {"wide": 11, "phone": 9}  # pixels

# What stands on what in a drawing, in its own units. A letter is taken to be as high as a capital.
FAULTS = """svg => {
  const told = [], { width, height } = svg.viewBox.baseVal;
  const words = [...svg.querySelectorAll(":scope > text")].map(text => {
    const { x, width } = text.getBBox();
    const [size, line] = ["font-size", "y"].map(name => Number(text.getAttribute(name)));
    const top = line - 0.7 * size;
    return { said: text.textContent, left: x, right: x + width, top, foot: line };
  });
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.foot && b.top < a.foot;
  const around = ({ x, y }, by) => ({ left: x - by, right: x + by, top: y - by, foot: y + by });
  const lines = [...svg.querySelectorAll(":scope > path")].map(path => {
    const by = Number(path.getAttribute("stroke-width")) / 2;
    const steps = Array.from({ length: path.getTotalLength() }, (_, at) => at);
    return steps.map(at => around(path.getPointAtLength(at), by));
  });
  words.forEach((word, i) => {
    if (word.left < 0 || word.right > width || word.top < 0 || word.foot > height)
      told.push(`${word.said}: cut off`);
    for (const other of words.slice(i + 1))
      if (meet(word, other)) told.push(`${word.said}: on ${other.said}`);
    if (lines.some(line => line.some(dot => meet(word, dot)))) told.push(`${word.said}: on a line`);
  });
  return told;
}"""
SMALLEST = """svg => Math.min(...[...svg.querySelectorAll("text, tspan[font-size]")].map(
  text => Number(text.getAttribute("font-size")) * svg.clientWidth / svg.viewBox.baseVal.width))"""


def test_all_can_be_read(page: Page, site: str):
    page.goto(f"{site}/book/cite.html")
    files = sorted((BOOK / "drawings").glob("*.svg"))
    figures = [f'<figure class="drawing">{file.read_text("utf-8")}</figure>' for file in files]
    page.locator("article section").first.evaluate("(e, x) => e.innerHTML = x", "".join(figures))
    page.evaluate("document.fonts.ready")
    found = {}
    for least, view in ((LEAST["wide"], WIDE), (LEAST["phone"], PHONE)):
        page.set_viewport_size(view)
        for file, svg in zip(files, page.locator("figure.drawing > svg").all(), strict=True):
            smallest = svg.evaluate(SMALLEST)
            small = [] if smallest >= least else [f"letters of {smallest:.1f} pixels"]
            if told := [*svg.evaluate(FAULTS), *small]:
                found[f"{file.stem}, {view['width']} wide"] = told
    assert not found
