"""Chapter 11: one step with what was kept, a prompt in pieces, and a window as a ring."""

from __future__ import annotations

from press.drawings.kit import SMALL, Drawing

NEW, KEPT, CELL = 0.6, 0.16, 26
UNDER_WORDS = 0.35  # as dark as lets them be read


def cached_step() -> Drawing:
    """The fifth step without a cache and with one: all rows again, or the last alone."""
    d = Drawing(256)
    for x, cached in ((64, False), (264, True)):

        def key(i: int, j: int, cached: bool = cached) -> float:
            return KEPT if cached and j < 4 else NEW

        def score(i: int, j: int, cached: bool = cached) -> float:
            return NEW if j <= i and (i == 4 or not cached) else 0

        d.text(x + 65, 22, "with a cache" if cached else "without a cache", bold=True)
        d.grid(x, 46, 1, 5, cell=CELL, shade=key)
        d.grid(x, 88, 5, 5, cell=CELL, shade=score)
        d.text(x + 65, 242, "one row" if cached else "all rows again", colour="faint", size=SMALL)
    for y, name in ((64, "keys"), (106, "query 1"), (210, "query 5")):
        d.text(56, y, name, anchor="end", size=SMALL, colour="faint")
    d.text(129, 40, "made again", size=SMALL, colour="faint")
    d.text(316, 40, "kept", size=SMALL, colour="faint")
    d.text(381, 40, "new", size=SMALL, colour="faint")
    return d


def prefill_in_pieces() -> Drawing:
    """A causal triangle of seven positions in bands of three, two and two queries."""
    d = Drawing(256)
    top, first = 14, 0
    for rows in (3, 2, 2):

        def may(i: int, j: int, first: int = first) -> float:
            return KEPT if j < first else NEW * (j <= first + i)

        d.grid(24, top, rows, first + rows, cell=CELL, shade=may)
        middle = top + rows * CELL / 2 + 5
        d.text(232, middle, f"{rows} queries, {first + rows} keys", anchor="start")
        top, first = top + rows * CELL + 10, first + rows
    d.box(24, 231, 12, 12, shade=KEPT, round_by=0)
    d.text(44, 241, "keys kept from earlier pieces", anchor="start", colour="faint", size=SMALL)
    return d


def ring_buffer() -> Drawing:
    """Positions under a window of four, and the four slots that hold them, at three steps."""
    d = Drawing(206)
    d.text(105, 22, "the text and its window", bold=True)
    d.text(344, 22, "the four slots", bold=True)
    for row, p in enumerate((3, 4, 5)):
        y = 40 + 54 * row
        holds = [max(q for q in range(p + 1) if q % 4 == slot) for slot in range(4)]

        def position_shade(i: int, j: int, p: int = p) -> float:
            return UNDER_WORDS if j == p else KEPT * (p - 4 < j < p)

        def place(i: int, j: int, p: int = p) -> str:
            return str(j) if j <= p else ""

        def slot(i: int, j: int, p: int = p) -> float:
            return UNDER_WORDS if j == p % 4 else KEPT

        def held(i: int, j: int, holds: list[int] = holds) -> str:
            return str(holds[j])

        d.grid(12, y, 1, 7, cell=CELL, shade=position_shade, words=place)
        d.grid(292, y, 1, 4, cell=CELL, shade=slot, words=held)
        d.arrow((204, y + 13), (282, y + 13))
        d.text(242, y + 7, f"{p} mod 4 = {p % 4}", size=SMALL, colour="faint")
    d.text(344, 198, "slot 0 to slot 3", size=SMALL, colour="faint")
    return d


DRAWINGS = {
    "cached-step": cached_step,
    "prefill-in-pieces": prefill_in_pieces,
    "ring-buffer": ring_buffer,
}
