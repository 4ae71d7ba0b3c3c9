"""Chapter 13: one tile at a time, two parts made one, two orders of loops, and causal tiles."""

from __future__ import annotations

from press.drawings.kit import KEY, QUERY, SMALL, VALUE, Drawing

NOW, DONE = 0.65, 0.14
MASKED, WHOLE = 0.8, 0.3  # of tiles that are told apart beside empty ones


def one_tile_at_a_time() -> Drawing:
    """The whole square of weights, and the same square with one tile of it in the fast memory."""
    d = Drawing(262)
    d.text(88, 22, "all at once", bold=True)
    d.grid(20, 56, 8, 8, cell=17, shade=NOW)
    d.text(88, 212, "64 weights, written down", colour="faint", size=SMALL)
    d.text(88, 228, "and read again", colour="faint", size=SMALL)

    def now(i: int, j: int) -> float:
        if i // 2 == 1 and j // 2 == 2:
            return NOW
        return DONE * (i // 2 < 1 or (i // 2 == 1 and j // 2 < 2))

    d.text(300, 22, "tile by tile", bold=True)
    d.grid(
        *(232, 44, 1, 8),
        cell=17,
        cell_height=7,
        colour=KEY,
        shade=lambda i, j: NOW * (j // 2 == 2),
    )
    d.text(224, 51, "keys", anchor="end", colour=KEY, size=SMALL)
    d.grid(
        *(220, 56, 8, 1),
        cell=7,
        cell_height=17,
        colour=QUERY,
        shade=lambda i, j: NOW * (i // 2 == 1),
    )
    d.text(212, 112, "queries", anchor="end", colour=QUERY, size=SMALL)
    d.grid(232, 56, 8, 8, cell=17, shade=now)
    d.box(300, 90, 34, 34, shade=0, round_by=0)
    d.grid(384, 56, 8, 1, cell=17, shade=lambda i, j: NOW if i // 2 == 1 else DONE * (i < 2))
    d.text(392.5, 51, "m, l, a", size=SMALL, colour="faint")
    d.text(300, 212, "4 scores exist; of the keys before,", colour="faint", size=SMALL)
    d.text(300, 228, "each row keeps what they came to", colour="faint", size=SMALL)
    d.box(242, 240, 12, 12, shade=DONE, round_by=0)
    d.text(262, 250, "done, and gone", anchor="start", colour="faint", size=SMALL)
    return d


def two_parts_one_softmax() -> Drawing:
    """The sums of two pairs of keys, and how they share the whole."""
    d = Drawing(236)
    unit, left = 23, 26
    d.text(left + 5 * unit, 24, "keys 1 and 2", bold=True)
    d.text(left + 13 * unit, 24, "keys 3 and 4", bold=True)
    x = left
    for i, power in enumerate((2, 8, 4, 2)):
        d.box(x, 36, power * unit, 32, str(power), shade=0.3 if i < 2 else 0.12, round_by=0)
        x += power * unit
    for start, parts, out in ((0, 10, "24/5"), (10, 6, "8/3")):
        middle = left + (start + parts / 2) * unit
        d.text(middle, 88, f"sum {parts}, output {out}", size=SMALL)
        d.arrow((middle, 98), (middle, 130))
    d.box(left, 136, 10 * unit, 32, "share 10/16", shade=0.3, round_by=0)
    d.box(left + 10 * unit, 136, 6 * unit, 32, "share 6/16", shade=0.12, round_by=0)
    d.text(left + 8 * unit, 190, "10/16 · 24/5 + 6/16 · 8/3 = 3 + 1 = 4")
    d.text(left + 8 * unit, 218, "all four keys: sum 16, output 4", bold=True)
    return d


def two_loop_orders() -> Drawing:
    """Sixteen tiles, numbered in two orders; dark is what stays in SRAM, pale what travels."""
    d = Drawing(244)
    loops(d, 34, True, "keys outside", "keys and values stay;", "all else comes and goes")
    loops(d, 248, False, "queries outside", "queries, m, l, a stay;", "keys and values come")
    return d


def loops(d: Drawing, left: float, keys_outside: bool, title: str, *told: str) -> None:
    """One order of the loops, at its sixth tile."""
    cell, top, thin = 28, 66, 9

    def of_keys(_: int, j: int) -> float:
        return (NOW if keys_outside else DONE) * (j == 1)

    def of_queries(i: int, _: int) -> float:
        return (DONE if keys_outside else NOW) * (i == 1)

    def order(i: int, j: int) -> int:
        return 4 * j + i + 1 if keys_outside else 4 * i + j + 1

    d.text(left + 2 * cell, 20, title, bold=True)
    d.text(left + 2 * cell, 40, "k, v", size=SMALL, colour="faint")
    for i, colour in enumerate((KEY, VALUE)):
        d.grid(
            *(left, top - 20 + 8 * i, 1, 4), cell=cell, cell_height=8, colour=colour, shade=of_keys
        )
    d.text(left - 24, top + 2 * cell + 4, "q", size=SMALL, colour=QUERY)
    d.grid(*(left - 16, top, 4, 1), cell=thin, cell_height=cell, colour=QUERY, shade=of_queries)
    d.grid(left, top, 4, 4, cell=cell, shade=0, words=lambda i, j: f"{order(i, j)}")
    d.box(left + cell, top + cell, cell, cell, shade=0.3, round_by=0)
    d.grid(left + 4 * cell + 7, top, 4, 1, cell=thin, cell_height=cell, shade=of_queries)
    d.text(
        left + 4 * cell + 22,
        top + 4 * cell + 14,
        "m, l, a",
        size=SMALL,
        colour="faint",
        anchor="end",
    )
    for y, line in zip((210, 228), told, strict=True):
        d.text(left + 2 * cell, y, line, size=SMALL)


def causal_tiles() -> Drawing:
    """Twelve queries and keys in tiles of three by three: whole, masked, and never computed."""
    d = Drawing(228)
    cell, left, top = 17, 12, 12

    def may(i: int, j: int) -> float:
        if j // 3 == i // 3:
            return MASKED * (j <= i)
        return WHOLE * (j < i)

    d.grid(left, top, 12, 12, cell=cell, colour="faint", shade=may)
    for i in range(4):
        for j in range(i + 1):
            at = left + 3 * cell * j, top + 3 * cell * i
            d.box(*at, 3 * cell, 3 * cell, shade=0, round_by=0)
    for y, shade, words, more in (
        (24, WHOLE, "6 tiles with no mask", "every query sees every key"),
        (94, MASKED, "4 tiles with a mask", "the diagonal passes through"),
        (164, 0, "6 tiles skipped", "no query sees a key"),
    ):
        d.box(234, y, 18, 18, colour="faint", shade=shade, round_by=0)
        d.text(260, y + 14, words, anchor="start", size=SMALL, bold=True)
        d.text(234, y + 36, more, anchor="start", size=SMALL, colour="faint")
    return d


DRAWINGS = {
    "one-tile-at-a-time": one_tile_at_a_time,
    "two-parts-one-softmax": two_parts_one_softmax,
    "two-loop-orders": two_loop_orders,
    "causal-tiles": causal_tiles,
}
