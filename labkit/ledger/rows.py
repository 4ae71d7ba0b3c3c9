"""The ledger's files: read with every field typed, and written without touching any other line."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from labkit.ledger.nested import flat

__all__ = ["LedgerError", "read", "record"]

WIDTH = 100
# The fields that hold numbers, and those of them that hold one number only. A field that is not
# named here is text, a list of texts, or true or false, as YAML reads it.
NUMBERS = ("value", "computed", "control", "percentile", "at_least", "at_most", "places", "draws")
ONE_NUMBER = ("at_least", "at_most", "places", "draws")
WHOLE = ("places", "draws")


class LedgerError(ValueError):
    """A claim that the ledger does not know, or that the numbers contradict."""


class Loader(yaml.SafeLoader):
    """PyYAML's loader, for which 2e-05 is a number too, as YAML 1.2 has it."""


class Dumper(yaml.SafeDumper):
    """Its counterpart, which puts the text 2e-05 into quotes."""


for side in (Loader, Dumper):
    side.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), [*"-+0123456789"]
    )


def read(path: Path) -> dict[str, Any]:
    """Read a document's file; raise LedgerError where a field has the wrong type."""
    data = yaml.load(path.read_text(encoding="utf-8"), Loader)
    for row in data["claims"]:
        for field in NUMBERS:
            if row.get(field) is not None:
                typed(f"{path.stem}/{row.get('id', '?')}", field, row[field])
    return data


def typed(claim: str, field: str, value: Any) -> None:
    """Raise LedgerError if a field that holds numbers holds what cannot be compared as one."""
    for part in flat(value):
        if isinstance(part, float) and not math.isfinite(part):
            raise LedgerError(f"{claim}: {field} is {part}; a finite number was expected")
        if field in WHOLE and not (type(part) is int and part >= 0):
            raise LedgerError(f"{claim}: {field} is {part!r}; a count was expected")
    if field in ONE_NUMBER and type(value) not in (int, float):
        raise LedgerError(f"{claim}: {field} is {value!r}; one number was expected")


def record(path: Path, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write what was found into rows that have no verdict yet; return the ids of these rows.

    Args:
        path: a document's file.
        found: fields and their values, by the claim's id; those that are None are left out.

    Raises:
        LedgerError: a value is not of its field's type. Nothing is written.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    document = yaml.compose(text)
    assert isinstance(document, yaml.MappingNode)
    (claims,) = (rows for key, rows in document.value if key.value == "claims")
    written = []
    for row in reversed(claims.value):  # from the end, so that the lines before stay where they are
        keys = {key.value: key.start_mark for key, _ in row.value}
        claim = next(part.value for key, part in row.value if key.value == "id")
        if claim not in found or "verdict" in keys:
            continue
        fields = {name: value for name, value in found[claim].items() if value is not None}
        for name in set(NUMBERS) & set(fields):
            typed(f"{path.stem}/{claim}", name, fields[name])
        # Before `why`, which is the author's to write once the verdict is known.
        at = keys.get("why") or keys["notebook"]
        new = [line for name, value in fields.items() for line in entry(name, value, at.column)]
        lines[at.line : at.line] = new
        written.append(claim)
    if written:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return written[::-1]


def entry(name: str, value: Any, indent: int) -> list[str]:
    """Write a field as lines of YAML, lists within brackets."""
    told = yaml.dump(value, None, Dumper, default_flow_style=True, width=math.inf)
    return textwrap.wrap(
        f"{name}: {told.removesuffix(chr(10)).removesuffix('...').strip()}",
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
