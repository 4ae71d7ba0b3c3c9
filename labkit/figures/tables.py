"""Results as tables and matrices: aligned text in an output, rows and columns in a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import torch

__all__ = ["Matrix", "Table"]


class Table:
    """Show rows as a table.

    Args:
        rows: the first names the columns; the first entry of each names the row.
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
        decimals: the most that are shown.

    Raises:
        ValueError: numbers that are not in two dimensions, or not a name for each row.

    >>> Matrix(torch.tensor([[-2.0, 0.5], [0.0, 1.0]]), "X", rows=["mia", "sees"])
    X
    mia   [  -2.0  0.5  ]
    sees  [   0.0  1.0  ]
    """

    def __init__(
        self,
        numbers: torch.Tensor,
        caption: str = "",
        *,
        rows: Sequence[str] = (),
        decimals: int = 4,
    ) -> None:
        if numbers.ndim != 2:
            raise ValueError(f"a matrix has two dimensions; got shape {tuple(numbers.shape)}")
        if rows and len(rows) != len(numbers):
            raise ValueError(f"{len(numbers)} rows need as many names; got {len(rows)}")
        self.caption = caption
        self.names = list(rows)
        rounded = [[round(x, decimals) + 0.0 for x in row] for row in numbers.double().tolist()]
        needed = max(len(repr(x).partition(".")[2]) for row in rounded for x in row)
        self.numbers = [[f"{x:.{min(needed, decimals)}f}" for x in row] for row in rounded]

    def __repr__(self) -> str:
        names = self.names or [""] * len(self.numbers)
        rows = [[name, "[", *row, "]"] for name, row in zip(names, self.numbers, strict=True)]
        return in_columns(rows if self.names else [row[1:] for row in rows], self.caption)

    def _repr_html_(self) -> str:
        if self.names:
            rows = zip(self.names, self.numbers, strict=True)
            body = "".join(row_html([name, *row]) for name, row in rows)
        else:
            body = "".join(f"<tr>{cells_html(row)}</tr>" for row in self.numbers)
        caption = caption_html(self.caption)
        return f'<table class="matrix">{caption}<tbody>{body}</tbody></table>'


def in_columns(rows: Sequence[Sequence[str]], caption: str) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [caption] if caption else []
    for first, *others in rows:
        entries = zip(others, widths[1:], strict=True)
        lines.append("  ".join([first.ljust(widths[0]), *(x.rjust(w) for x, w in entries)]))
    return "\n".join(line.rstrip() for line in lines)


def caption_html(caption: str) -> str:
    return f"<caption>{typeset(caption)}</caption>" if caption else ""


def typeset(text: str) -> str:
    """Set code between backticks, matrices such as W_O as symbols, and minus signs as such."""
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))
    text = re.sub(r"(?<![\w.,)\]])-(?=\d|inf\b)", "−", text)
    return re.sub(r"\b([A-Z])_([A-Z])\b", r"<i>\1</i><sub>\2</sub>", text)


def row_html(row: Sequence[str]) -> str:
    first, *others = row
    return f'<tr><th scope="row">{typeset(first)}</th>{cells_html(others)}</tr>'


def cells_html(row: Sequence[str]) -> str:
    return "".join(f"<td>{typeset(entry)}</td>" for entry in row)
