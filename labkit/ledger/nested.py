"""Nested lists of numbers: made of tensors, compared leaf by leaf, rounded and written."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["agrees", "each", "flat", "percentiles", "plain", "rounded", "shape", "show"]


def plain(value: Any) -> Any:
    """Turn tensors, arrays, shapes and tuples into numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of nested lists."""
    if isinstance(value, list):
        return [each(part, change) for part in value]
    return change(value)


def flat(value: Any) -> Iterator[Any]:
    """Run through the leaves of nested lists."""
    if isinstance(value, list):
        for part in value:
            yield from flat(part)
    else:
        yield value


def shape(value: Any) -> Any:
    """Give the lengths of nested lists, so that unlike shapes never agree."""
    return [shape(part) for part in value] if isinstance(value, list) else None


def rounded(value: Any, places: int | None) -> Any:
    """Round every number of a value; leave it alone where no places are given."""
    if places is None or value is None:
        return value
    # Adding zero turns -0.0 into 0.0.
    return each(value, lambda number: round(float(number), places) + 0.0)


def show(value: Any, places: int | None = None) -> str:
    """Write a value as text, every number to the same places."""
    if value is None:
        return ""
    if isinstance(value, list):
        separator = ", " if places is None else " "
        return "[" + separator.join(show(part, places) for part in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and places is not None:
        return f"{value:.{places}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def agrees(stated: Any, computed: Any, places: int | None, slack: int = 0) -> bool:
    """Say whether a value rounds to what is stated, or within ``slack`` last digits of it."""
    if shape(stated) != shape(computed):
        return False
    if places is None:
        return stated == computed
    # Half a unit of the last digit; the hair keeps a value on the edge on both sides of it.
    reach = (0.5 + slack) * 10.0**-places * (1 + 1e-6)
    return all(abs(a - b) <= reach for a, b in zip(flat(stated), flat(computed), strict=True))


def percentiles(
    stated: Any, sample: list[Any], beside: Callable[[Any, Any], bool] = operator.lt
) -> Any:
    """Give the share of draws, in percent, that print less than each stated figure."""
    if isinstance(stated, list):
        return [
            percentiles(part, [draw[i] for draw in sample], beside) for i, part in enumerate(stated)
        ]
    return 100 * sum(beside(draw, stated) for draw in sample) / len(sample)
