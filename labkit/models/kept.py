"""Results that a page has no time for: written by `make checkpoint`, a file of JSON each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["load_kept", "save_kept"]

HERE = Path(__file__).parent
DIGITS = 4  # that count, of a number


def load_kept(name: str) -> dict[str, Any]:
    """Give what labkit/models/<name>.json holds.

    Raises:
        FileNotFoundError: there is no such file; the message says how to make it.

    >>> load_kept("economies")["whole"]["retrained"]
    False
    """
    path = HERE / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. `make checkpoint` measures and writes it.")
    return json.loads(path.read_text(encoding="utf-8"))


def save_kept(name: str, rows: dict[str, Any], folder: Path = HERE) -> None:
    """Write rows, one a line, their numbers to four digits that count."""
    lines = [f"{json.dumps(row)}: {json.dumps(_rounded(value))}" for row, value in rows.items()]
    (folder / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value
