"""Results as tables and matrices: aligned text in an output, rows and columns in a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import torch

__all__ = ["Matrix", "Table"]

MINUS = re.compile(r"(?<![\w.,)\]])-(?=\d|inf\b)")
ROOT = re.compile(r"√([A-Za-z]_[A-Za-z]|\d+)")
SYMBOL = re.compile(r"\$([A-Za-z])\$|(?<![\w.=])([A-Za-z])_([A-Za-z])\b")


class Table:
    """Show rows as a table.

    Args:
        rows: the first names the columns; the first entry of each names the row; ``$n$`` is set as
            a symbol.
        caption: what the table shows, where its columns do not say it.

    Raises:
        ValueError: rows of different lengths.

    >>> Table(("heads", "loss"), ("one", 0.75), ("four", 0.7))
    heads  loss
    one    0.75
    four    0.7
    """

    def __init__(self, *rows: Sequence[object], caption: str = "") -> None:
        if len({len(row) for row in rows}) != 1:
            raise ValueError(
                f"rows of a table must be of one length; got {[len(row) for row in rows]}"
            )
        self.rows = [[str(entry) for entry in row] for row in rows]
        self.caption = caption

    def __repr__(self) -> str:
        return in_columns(self.rows, self.caption)

    def _repr_html_(self) -> str:
        head, *rows = self.rows
        names = "".join(f'<th scope="col">{typeset(entry)}</th>' for entry in head)
        body = "".join(map(row_html, rows))
        head_html = f"<thead><tr>{names}</tr></thead>"
        return f"<table>{caption_html(self.caption)}{head_html}<tbody>{body}</tbody></table>"


class Matrix:
    """Show a matrix between brackets, with as many decimals as it needs.

    Args:
        numbers: (rows, columns).
        caption: what the matrix is called.
        rows: what each row is called.
        columns: what each column is called, where the rows have names.
        decimals: the most that are shown.

    Raises:
        ValueError: numbers that are not in two dimensions, or not a name for each row or column.

    >>> Matrix(torch.tensor([[-2.0, 0.5], [0.0, 1.0]]), "X", rows=["mia", "sees"])
    X
    mia   [  -2.0  0.5  ]
    sees  [   0.0  1.0  ]
    >>> Matrix(torch.eye(2), rows=["mia", "sees"], columns=["mia", "sees"])
             mia  sees
    mia   [  1.0   0.0  ]
    sees  [  0.0   1.0  ]
    """

    def __init__(
        self,
        numbers: torch.Tensor,
        caption: str = "",
        *,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        decimals: int = 4,
    ) -> None:
        if numbers.ndim != 2:
            raise ValueError(f"a matrix has two dimensions; got shape {tuple(numbers.shape)}")
        if rows and len(rows) != len(numbers):
            raise ValueError(f"{len(numbers)} rows need as many names; got {len(rows)}")
        if columns and not (rows and len(columns) == numbers.shape[1]):
            raise ValueError(
                f"{numbers.shape[1]} columns need as many names, and the rows theirs; "
                f"got {len(columns)} and {len(rows)}"
            )
        self.caption = caption
        self.names, self.columns = list(rows), list(columns)
        rounded = [[round(x, decimals) + 0.0 for x in row] for row in numbers.double().tolist()]
        needed = max(len(repr(x).partition(".")[2]) for row in rounded for x in row)
        self.numbers = [[f"{x:.{min(needed, decimals)}f}" for x in row] for row in rounded]

    def __repr__(self) -> str:
        names = self.names or [""] * len(self.numbers)
        rows = [[name, "[", *row, "]"] for name, row in zip(names, self.numbers, strict=True)]
        rows[:0] = [["", "", *self.columns, ""]] if self.columns else []
        return in_columns(rows if self.names else [row[1:] for row in rows], self.caption)

    def _repr_html_(self) -> str:
        if self.names:
            rows = zip(self.names, self.numbers, strict=True)
            body = "".join(row_html([name, *row]) for name, row in rows)
        else:
            body = "".join(f"<tr>{cells_html(row)}</tr>" for row in self.numbers)
        heads = "".join(f'<th scope="col">{typeset(name)}</th>' for name in self.columns)
        head = f"<thead><tr><td></td>{heads}</tr></thead>" if heads else ""
        caption = caption_html(self.caption)
        return f'<table class="matrix">{caption}{head}<tbody>{body}</tbody></table>'


def in_columns(rows: Sequence[Sequence[str]], caption: str) -> str:
    rows = [[entry.replace("$", "") for entry in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [caption] if caption else []
    for first, *others in rows:
        entries = zip(others, widths[1:], strict=True)
        lines.append("  ".join([first.ljust(widths[0]), *(x.rjust(w) for x, w in entries)]))
    return "\n".join(line.rstrip() for line in lines)


def caption_html(caption: str) -> str:
    return f"<caption>{typeset(caption)}</caption>" if caption else ""


def typeset(text: str) -> str:
    """Set code between backticks, symbols such as W_O and $n$, roots, and minus signs as such."""
    parts = re.split(r"`(.+?)`", escape(text))
    parts[::2] = [SYMBOL.sub(symbol, ROOT.sub(root, MINUS.sub("−", part))) for part in parts[::2]]
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def symbol(match: re.Match[str]) -> str:
    alone, letter, below = match.groups()
    return f"<i>{alone}</i>" if alone else f"<i>{letter}<sub>{below}</sub></i>"


def root(match: re.Match[str]) -> str:
    under = SYMBOL.sub(symbol, match[1])
    return f'√<span style="text-decoration: overline">{under}</span>'


def row_html(row: Sequence[str]) -> str:
    first, *others = row
    return f'<tr><th scope="row">{typeset(first)}</th>{cells_html(others)}</tr>'


def cells_html(row: Sequence[str]) -> str:
    return "".join(f"<td>{typeset(entry)}</td>" for entry in row)
