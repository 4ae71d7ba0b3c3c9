"""The table of contents: its parts, and their pages in the book's order."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from press import ROOT

CONTENTS = ROOT / "_toc.yml"


def order() -> Iterator[tuple[str, str]]:
    """Run through the pages: the part's caption, and the page's name; the first has no part."""
    contents = yaml.safe_load(CONTENTS.read_text(encoding="utf-8"))
    yield "", contents["root"]
    for part in contents["parts"]:
        for chapter in part["chapters"]:
            yield part["caption"], chapter["file"]


def notebooks(folder: str) -> list[str]:
    """List the pages of a folder that are notebooks: chapters, labs or audits."""
    names = [name for _, name in order() if name.startswith(f"{folder}/")]
    return [name for name in names if (ROOT / f"{name}.ipynb").is_file()]
