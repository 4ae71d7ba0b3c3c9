"""What looks other than before: every page in both themes, block by block, by its picture.

`make pages BEFORE=folder` draws the pages of two built books, and keeps of each block that has
changed both pictures and where they differ. A block that has only moved is the same.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import reduce
from io import BytesIO
from itertools import zip_longest
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import Page, sync_playwright
from tqdm import tqdm

from press import BUILD, HTML
from press.browser import ARGUMENTS, OFFLINE, find
from tests.browser.looking import CHANGE_THEME, DRAW_FIGURES, OPEN_FOLDS, set_theme

REPORTS = BUILD / "reports" / "pictures"
WINDOW = {"width": 1200, "height": 900}
# So long that Chromium draws parts of it otherwise each time.
UNSTEADY = Path("book/reference.html")
LEAST = 24  # of 255, by which a colour differs
Block = tuple[str, Image.Image]  # what it says, and how it looks
# The article's parts, from above; a section is as many parts as it has.
BLOCKS = """() => {
  const article = document.querySelector("article");
  const { left, top } = article.getBoundingClientRect();
  const parts = section => [...section.children].flatMap(
    one => one.matches("section, .cell, .cell_output") ? parts(one) : [one]);
  return parts(article).map(one => [one.textContent, one.getBoundingClientRect()])
    .filter(([, box]) => box.width && box.height)
    .map(([text, box]) => [text, [
      box.left - left, box.top - top, box.right - left, box.bottom - top].map(Math.round)]);
}"""
THEMES = ("light", "dark")


def draw(page: Page, path: Path) -> dict[str, list[Block]]:
    """Draw the blocks of a page in each theme, or none where there is no such page."""
    if not path.is_file():
        return {theme: [] for theme in THEMES}
    page.goto(path.as_uri(), wait_until="networkidle")
    page.evaluate(OPEN_FOLDS)
    page.evaluate(DRAW_FIGURES)
    drawn = {}
    for theme in THEMES:
        set_theme(page, "dark" if theme == "light" else "light")
        page.evaluate(CHANGE_THEME, theme)
        page.evaluate("scrollTo(0, 0)")  # what stays in sight covers nothing there
        box = page.locator("article").bounding_box()
        shot = page.screenshot(full_page=True, clip=box, animations="disabled")
        whole = Image.open(BytesIO(shot)).convert("RGB")
        drawn[theme] = [(text, whole.crop(box)) for text, box in page.evaluate(BLOCKS)]
    return drawn


def beside(old: Image.Image, new: Image.Image) -> Image.Image | None:
    """Put two pictures and what differs between them side by side, if anything does.

    Lines of text, and of one dot, are set on whole dots: one more or less is no difference.
    """
    wide, high = (max(sizes) for sizes in zip(old.size, new.size, strict=True))
    before, after = (picture.crop((0, 0, wide, high)) for picture in (old, new))
    moved = [ImageChops.offset(after, 0, by) for by in (-1, 0, 1)]
    marks = reduce(ImageChops.darker, (ImageChops.difference(before, one) for one in moved))
    marks = marks.convert("L").point(lambda x: 255 * (x >= LEAST))
    marks = ImageChops.darker(marks, ImageChops.offset(marks, 0, 1))
    lower = min(old.height, new.height)
    if high - lower <= 1 and not marks.crop((0, 1, wide, lower - 1)).getbbox():
        return None
    shown = Image.new("RGB", (3 * wide, high))
    for i, picture in enumerate((before, after, marks)):
        shown.paste(picture, (i * wide, 0))
    return shown


def changes(before: list[Block], after: list[Block]) -> Iterator[Image.Image]:
    """Show the blocks that differ; what came or went stands beside nothing."""
    texts = [[text for text, _ in blocks] for blocks in (before, after)]
    nothing = ("", Image.new("RGB", (1, 1)))
    for _, a, b, c, d in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        pairs = zip_longest(before[a:b], after[c:d], fillvalue=nothing)
        yield from filter(None, (beside(old, new) for (_, old), (_, new) in pairs))


def main() -> None:
    before, after = (Path(given).resolve() for given in [*sys.argv[1:], HTML][:2])
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    pages = {path.relative_to(b) for b in (before, after) for path in b.glob("[a-z]*/*.html")}
    pages.discard(UNSTEADY)
    found = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find(), args=[*ARGUMENTS, OFFLINE])
        page = chromium.new_page(viewport=WINDOW, reduced_motion="reduce")
        for name in tqdm(sorted(pages)):
            old, new = (draw(page, book / name) for book in (before, after))
            for theme in THEMES:
                for i, picture in enumerate(changes(old[theme], new[theme])):
                    file = f"{name.parent.name}-{name.stem}-{theme}-{i}.png"
                    picture.save(REPORTS / file)
                    tqdm.write(file)
                    found += 1
        chromium.close()
    print(f"{found} blocks look other than before; each stands in {REPORTS}: before, after, where.")


if __name__ == "__main__":
    main()
