"""What all live figures have in common: their state, how they are shown, their ES modules."""

from __future__ import annotations

import html
import json
import math
import reprlib
from collections.abc import Sequence
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import anywidget
from traitlets import Dict, TraitError, TraitType, Unicode, default

from labkit.figures.palette import HEADS, ROLES, properties
from labkit.ledger.nested import each, plain, show

SCRIPTS = Path(__file__).parent / "js"
BUNDLES = Path(__file__).parent / "bundles"
SHEETS = ("live.css", "stage.css", "stage_stories.css")
MIME = "application/vnd.labkit.live+json"
LARGEST = 1_000_000
PLACES = 4  # of the stored first state, which other machines have to reproduce


class LiveFigure(anywidget.AnyWidget):
    """A figure whose numbers follow its controls.

    A subclass ``Name`` in ``name.py`` has its ES module in ``js/name.js``, which draws it
    and computes the same quantities as :meth:`values`. Its state is its public traits, plain JSON.
    Jupyter gets ``bundles/name.js``, the module with all it imports; where that file is missing
    the figure says so, and shows its values as a table.
    """

    name: ClassVar[str]
    missing: ClassVar[str]

    title = Unicode().tag(sync=True)
    caption = Unicode(help="what the figure shows, for those who do not see it").tag(sync=True)
    axes = Dict(
        help="for each quantity what its rows, then its columns stand for: a word, or their names"
    ).tag(sync=True)
    options = Dict(help="for each trait what it can be: a list, or the lowest and highest").tag(
        sync=True
    )

    @default("options")
    def _options(self) -> dict[str, list[Any]]:
        traits = sorted(self.traits().items())
        return {name: trait.options for name, trait in traits if hasattr(trait, "options")}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # ipywidgets makes a subclass of each figure when it adds traits: that one inherits all.
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.rpartition(".")[2]
            bundle = BUNDLES / f"{cls.name}.js"
            cls.missing = "" if bundle.is_file() else told_missing(bundle.name)
            cls._esm = telling(cls.missing) if cls.missing else bundle.read_text(encoding="utf-8")
            cls._css = style()
        super().__init_subclass__(**kwargs)

    def values(self) -> dict[str, Any]:
        """Compute what the figure shows in float64: for each quantity nested lists."""
        raise NotImplementedError(f"{type(self).__name__} must define values()")

    @classmethod
    def parcel(cls) -> bytes:
        """Give what the ES module asks for when the figure is first played, too much for a state.

        Most need nothing, and have b"" here.
        """
        return b""

    @classmethod
    def module(cls, state: dict[str, Any]) -> str:
        """Name the ES module that a page with this state needs, ``name`` or ``name_VARIANT``."""
        return cls.name

    def state(self) -> dict[str, Any]:
        """Give the public traits; ``type(figure)(**figure.state())`` is the same figure."""
        inherited = anywidget.AnyWidget.class_trait_names()
        names = sorted(set(self.trait_names(sync=True)) - set(inherited))
        return {name: getattr(self, name) for name in names if not name.startswith("_")}

    def __repr__(self) -> str:
        common = LiveFigure.class_trait_names()
        controls = [
            f"{name}={value!r}"
            for name, value in self.state().items()
            if name not in common and not isinstance(value, dict)
        ]
        return f"{type(self).__name__}({', '.join(controls)})"

    def _repr_html_(self) -> str:
        tables = "".join(
            table(quantity, value, self.axes.get(quantity, []))
            for quantity, value in self.values().items()
        )
        return (
            f'<div class="live"><p class="live-title">{html.escape(self.title)}</p>'
            f'<p class="live-caption">{html.escape(self.caption)}</p>'
            '<div class="live-row" role="region" aria-label="Values" tabindex="0">'
            f"{tables}</div></div>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        page = self._repr_html_()
        stored = {"figure": self.name, "state": self.state(), "html": page}
        if self.missing:
            # Jupyter would prefer the widget, which cannot be played, to the table.
            data = {"text/plain": repr(self)}
            page = f'<p role="alert">{html.escape(self.missing)}</p>{page}'
        return data | {"text/html": page, MIME: stored}, metadata


def told_missing(bundle: str) -> str:
    """Say which file a figure lacks, and what makes it."""
    return (
        f"This figure needs labkit/figures/bundles/{bundle} to be played, and the file is missing. "
        "Run `make setup` in the book's folder, which makes it, and restart the kernel."
    )


def telling(message: str) -> str:
    """Write an ES module that shows a message in place of a figure."""
    shown = json.dumps(message)
    return f"export default {{ render({{ el }}) {{ el.textContent = {shown}; }} }};\n"


class Matrix(TraitType):
    """Rows of finite numbers, of one given size."""

    entries = f"numbers, none beyond {LARGEST:,}"
    kind: type = float

    def __init__(self, rows: int, columns: int, **kwargs: Any) -> None:
        self.size = (rows, columns)
        super().__init__(**kwargs)

    def validate(self, obj: Any, value: Any) -> list[list[Any]]:
        rows, columns = self.size
        matrix = plain(value)
        fits = isinstance(matrix, list) and len(matrix) == rows
        if not fits or not all(self._is_row(row) for row in matrix):
            refuse(self, f"{rows} rows of {columns} {self.entries}", value)
        return each(matrix, self.kind)

    def _is_row(self, row: Any) -> bool:
        return isinstance(row, list) and len(row) == self.size[1] and all(map(self.fits, row))

    def fits(self, entry: Any) -> bool:
        return is_number(entry)


class Flags(Matrix):
    """Rows of flags, of one given size."""

    entries = "flags, each True or False"
    kind = bool

    def fits(self, entry: Any) -> bool:
        return isinstance(entry, bool)


class Choice(TraitType):
    """One of several values."""

    def __init__(self, options: Sequence[Any], **kwargs: Any) -> None:
        self.options = list(options)
        super().__init__(**kwargs)

    def validate(self, obj: Any, value: Any) -> Any:
        # Of the same type too: 1 is no flag, and True no count.
        if not any(type(value) is type(one) and value == one for one in self.options):
            refuse(self, f"one of {reprlib.repr(self.options)}", value)
        return value


class Whole(TraitType):
    """A whole number between two bounds."""

    def __init__(self, low: int, high: int, **kwargs: Any) -> None:
        self.options = [low, high]
        super().__init__(**kwargs)

    def validate(self, obj: Any, value: Any) -> int:
        low, high = self.options
        if type(value) is not int or not low <= value <= high:
            refuse(self, f"a whole number from {low:,} to {high:,}", value)
        return value


def is_number(value: Any) -> bool:
    """Say whether a value is a finite number that a figure takes."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and math.isfinite(value) and abs(value) <= LARGEST


def refuse(trait: TraitType, expected: str, value: Any) -> None:
    """Raise TraitError; the trait keeps its old value."""
    raise TraitError(
        f"{trait.name} must be {expected}; got {reprlib.repr(value)}. "
        "The figure keeps the old value: assign one that fits."
    )


def table(quantity: str, value: Any, axes: Sequence[Any]) -> str:
    """Write a number, a vector (as a column) or a matrix as an HTML table with headers."""
    rows = as_rows(value)
    row_names = names(axes[0] if axes else "", len(rows))
    columns = names(axes[1], len(rows[0])) if len(axes) > 1 else ["value"]
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{number_text(number)}</td>" for number in row)
        + "</tr>"
        for name, row in zip(row_names, rows, strict=True)
    )
    return (
        f'<table class="live-values"><caption>{html.escape(quantity)}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def number_text(number: float) -> str:
    """Write a count as it is, any other number to a few places."""
    return show(number, PLACES if isinstance(number, float) else None).replace("-", "−")


def as_rows(value: Any) -> list[list[float]]:
    """Bring a number, a vector or a matrix to rows."""
    if not isinstance(value, list):
        return [[value]]
    return value if isinstance(value[0], list) else [[number] for number in value]


def names(axis: str | Sequence[str], count: int) -> list[str]:
    """Name the positions of an axis: by a word and a number, or as given, with names to spare."""
    if not isinstance(axis, str):
        return list(axis[:count])
    return [f"{axis} {i + 1}" for i in range(count)] if axis else [""] * count


@cache
def style() -> str:
    """Give the style sheet of all live figures, in the colours of the other figures."""
    rules = "".join((SCRIPTS / name).read_text(encoding="utf-8") for name in SHEETS)
    dark = 'html[data-theme="dark"], body[data-jp-theme-light="false"]'
    colours = HEADS | ROLES
    return (
        f":root {{ {properties(colours, 'live')} }}\n"
        f"{dark} {{ {properties(colours, 'live', dark=True)} }}\n{rules}"
    )
