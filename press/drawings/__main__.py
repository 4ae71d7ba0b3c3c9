"""Write all drawings: ``python -m press.drawings``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import press.drawings
from press import BOOK
from press.drawings.kit import Drawing

FOLDER = BOOK / "drawings"


def drawings() -> dict[str, Callable[[], Drawing]]:
    """Gather the drawings of all modules, by the names of their files."""
    functions: dict[str, Callable[[], Drawing]] = {}
    for module in pkgutil.iter_modules(press.drawings.__path__):
        if module.name.startswith(("chapter", "labs")):
            functions |= importlib.import_module(f"press.drawings.{module.name}").DRAWINGS
    return functions


def main() -> None:
    for name, draw in drawings().items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
        print(f"book/drawings/{name}.svg")


if __name__ == "__main__":
    main()
