"""Chapter 14: heads and positions sharded over ranks, and the ways between the two."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing

RANKS = (0.5, 0.6, 0.7, 0.8)  # shades of ink, for ranks have no colours
CELL = 18


def heads_dealt() -> Drawing:
    """Two ranks: the columns of W_Q, W_K, W_V and the slabs of W_O that each of them holds."""
    d = Drawing(392)
    d.box(150, 10, 120, 28, "x, on both")
    for rank in range(2):
        left = 8 + 206 * rank
        middle = left + 99
        mine = HEADS[2 * rank : 2 * rank + 2]

        def by_column(i: int, j: int, mine: tuple[str, ...] = mine) -> str:
            return mine[j]

        def by_row(i: int, j: int, mine: tuple[str, ...] = mine) -> str:
            return mine[i]

        d.arrow((210 + (30 if rank else -30), 40), (middle, 66))
        d.box(left, 70, 198, 234, shade=0.03)
        d.text(left + 10, 89, f"rank {rank}", anchor="start", bold=True, size=13)
        for i, name in enumerate("QKV"):
            at = left + 16 + 61 * i
            d.text(at + 22, 108, f"W_{name}", size=SMALL)
            d.grid(at, 114, 4, 2, cell=22, cell_height=13, colour=by_column, shade=0.3)
        for j, colour in enumerate(mine):
            x = left + 14 + 88 * j
            d.arrow((x + 41, 168), (x + 41, 184), colour=colour)
            d.box(x, 186, 82, 28, f"head {2 * rank + j + 1}", colour=colour, size=SMALL)
            d.arrow((x + 41, 216), (x + 41, 232), colour=colour)
        d.grid(left + 31, 234, 2, 4, cell=34, cell_height=15, colour=by_row, shade=0.3)
        d.text(left + 24, 254, "W_O", anchor="end", size=SMALL)
        d.text(middle, 290, "what its heads write", size=SMALL)
        d.arrow((middle, 306), (210 + (20 if rank else -20), 338))
    d.text(210, 330, "+", size=20)
    d.box(150, 340, 120, 28, "output")
    d.text(282, 352, "the all-reduce:", size=SMALL, anchor="start", colour="faint")
    d.text(282, 368, "both get the sum", size=SMALL, anchor="start", colour="faint")
    return d


def sequence_parallel() -> Drawing:
    """A block on two ranks: own positions between the sharded layers, all of them inside."""
    d = Drawing(434)
    for rank in range(2):
        d.text(110 + 200 * rank, 20, f"rank {rank}", bold=True, size=13)
    at = 30
    for own, sharded in (("LayerNorm", "heads"), ("add, LayerNorm", "features"), ("add", "")):
        for rank in range(2):
            left, half = 20 + 200 * rank, ("first half", "second half")[rank]
            middle = left + 58 + 64 * rank
            d.box(middle - 58, at, 116, 42, shade=0.05, dashed=True)
            d.text(middle, at + 18, own, size=13)
            d.text(middle, at + 35, half, size=SMALL, colour="faint")
            if sharded:
                d.arrow((middle, at + 44), (left + 90, at + 78))
                d.box(left, at + 80, 180, 62, shade=0.05)
                d.text(left + 90, at + 134, "all positions", size=SMALL, colour="faint")
                d.arrow((left + 90, at + 144), (middle, at + 176))
            if sharded == "heads":
                for i in (0, 1):
                    head = 2 * rank + i
                    d.box(left + 14 + 78 * i, at + 88, 74, 28, f"head {head + 1}",
                          colour=HEADS[head], size=SMALL)  # fmt: skip
            elif sharded:
                d.text(left + 90, at + 100, "half of the", size=SMALL)
                d.text(left + 90, at + 116, "hidden features", size=SMALL)
        if sharded:
            d.text(210, at + 66, "all-gather", bold=True, size=13)
            d.text(210, at + 165, "reduce-scatter", bold=True, size=13)
        at += 178
    return d


def positions_for_heads() -> Drawing:
    """Four heads of eight positions: a rank's columns before the all-to-all, its rows after it."""
    d = Drawing(196)
    for x, way in ((54, "positions sharded"), (264, "heads sharded")):
        d.text(x + 64, 18, way, bold=True, size=13)
        d.text(x + 64, 34, "eight positions", size=SMALL, colour="faint")
        d.grid(x, 44, 4, 8, cell=16, cell_height=28, colour=lambda i, j: HEADS[i], shade=0.3)
    d.text(48, 182, "rank", anchor="end", size=SMALL)
    d.text(416, 182, "rank", anchor="end", size=SMALL)
    for i in range(4):
        d.text(48, 62 + 28 * i, f"head {i + 1}", anchor="end", size=SMALL)
        d.box(54 + 32 * i, 44, 32, 112, shade=0, round_by=0)
        d.text(70 + 32 * i, 182, f"{i}", size=SMALL)
        d.box(264, 44 + 28 * i, 128, 28, shade=0, round_by=0)
        d.text(408, 62 + 28 * i, f"{i}", size=SMALL)
    d.text(221, 66, "all-to-all", size=SMALL)
    d.arrow((190, 76), (252, 76))
    d.arrow((252, 130), (190, 130))
    d.text(221, 148, "and back", size=SMALL)
    return d


def rows_in_zigzag() -> Drawing:
    """A causal triangle of eight blocks, its rows shared out to four ranks in two ways."""
    d = Drawing(252)
    ways = (("blocks in a row", [0, 0, 1, 1, 2, 2, 3, 3]), ("zigzag", [0, 1, 2, 3, 3, 2, 1, 0]))
    for x, (name, order) in zip((64, 264), ways, strict=True):

        def shade(i: int, j: int, order: list[int] = order) -> float:
            return RANKS[order[i]] if j <= i else 0

        d.text(x + 72, 22, name, bold=True)
        d.grid(x, 36, 8, 8, cell=CELL, shade=shade)
        for i, rank in enumerate(order):
            d.text(x - 8, 36 + CELL * i + 13, f"rank {rank}", anchor="end", size=SMALL)
        work = [sum(i + 1 for i, rank in enumerate(order) if rank == r) for r in range(4)]
        d.text(x + 72, 206, "blocks of a rank:", size=SMALL, colour="faint")
        d.text(x + 72, 226, ", ".join(map(str, work)), size=13)
    return d


DRAWINGS = {
    "heads-dealt": heads_dealt,
    "positions-for-heads": positions_for_heads,
    "sequence-parallel": sequence_parallel,
    "rows-in-zigzag": rows_in_zigzag,
}
