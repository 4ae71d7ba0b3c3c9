"""Results as tables: aligned text in an output, rows and columns in a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["Table"]


class Table:
    """Show rows as a table.

    Args:
        rows: the first names the columns; the first entry of each names the row.

    Raises:
        ValueError: rows of different lengths.

    >>> Table(("heads", "loss"), ("one", 0.75), ("four", 0.7))
    heads  loss
    one    0.75
    four    0.7
    """

    def __init__(self, *rows: Sequence[object]) -> None:
        if len({len(row) for row in rows}) != 1:
            raise ValueError(
                f"rows of a table must be of one length; got {[len(row) for row in rows]}"
            )
        self.rows = [[str(entry) for entry in row] for row in rows]

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = []
        for first, *others in self.rows:
            entries = zip(others, widths[1:], strict=True)
            lines.append("  ".join([first.ljust(widths[0]), *(x.rjust(w) for x, w in entries)]))
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head, *rows = ([escape(entry) for entry in row] for row in self.rows)
        names = "".join(f'<th scope="col">{entry}</th>' for entry in head)
        lines = (
            f'<tr><th scope="row">{first}</th>{"".join(f"<td>{x}</td>" for x in others)}</tr>'
            for first, *others in rows
        )
        return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
