"""Chapter 7: a small GPT's numbers in scale, one head and four, and where the work goes."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing


def numbers_in_scale() -> Drawing:
    """All matrices of the story GPT, each as large as the numbers that it holds."""
    d, unit, gap = Drawing(346), 0.7, 4.0
    left, right = 20.0, 222.0
    wide, high, table = 64 * unit, 64 * unit, 56 * unit
    middle = (left + right + 4 * wide) / 2
    d.text(middle, 18, "word vectors, 56 × 64", size=SMALL)
    d.box(middle - wide / 2, 24, wide, table, colour="faint", shade=0.3, round_by=0)
    for x, block in ((left, 1), (right, 2)):
        d.text(x + 2 * wide, 84, f"layer {block}", bold=True)
        d.text(x + 2 * wide, 104, "attention, 4 of 64 × 64", size=SMALL)
        for i, name in enumerate(("W_Q", "W_K", "W_V", "W_O")):
            d.box(x + i * wide, 110, wide, high, name, shade=0.12, round_by=0, size=SMALL)
        d.text(x + 2 * wide, 174, "feed-forward, 2 of 64 × 256", size=SMALL)
        for y in (180.0, 180 + high + gap):
            d.box(x, y, 4 * wide, high, shade=0.05, round_by=0)
    d.text(middle, 296, "read-out, 64 × 56", size=SMALL)
    d.box(middle - wide / 2, 302, wide, table, colour="faint", shade=0.3, round_by=0)
    return d


def cut_into_heads() -> Drawing:
    """One head and four: the same four matrices, one map of scores and four."""
    d = Drawing(276)
    for row, h in enumerate((1, 4)):
        top = 36 + 124 * row
        d.text(12, top - 8, "one head" if h == 1 else "four heads", anchor="start", bold=True)
        for i, name in enumerate(("W_Q", "W_K", "W_V", "W_O")):
            x, upright = 12 + 62 * i, name != "W_O"
            columns, rows = (h, 1) if upright else (1, h)

            def colour(i: int, j: int, h: int = h) -> str:
                return "faint" if h == 1 else HEADS[max(i, j)]

            width, height = 48 / columns, 48 / rows
            d.grid(x, top, rows, columns, cell=width, cell_height=height, colour=colour, shade=0.3)
            d.text(x + 24, top + 66, name, size=SMALL)
        for k in range(h):
            x, y = (308, top) if h == 1 else (308 + 48 * (k % 2), top - 8 + 48 * (k // 2))
            d.grid(x, y, 4, 4, cell=10, colour="faint" if h == 1 else HEADS[k], shade=0.3)
    d.text(122, 262, "parameters: as many", colour="faint")
    d.text(344, 262, "scores: times four", colour="faint")
    return d


def where_the_work_goes() -> Drawing:
    """The shares of projections and products, for sequences of four lengths."""
    d = Drawing(214)
    d.text(100, 24, "four projections", anchor="start", bold=True)
    d.text(408, 24, "two products", anchor="end", colour="faint", bold=True)
    for row, (name, n) in enumerate((("n = d/2", 0.5), ("n = d", 1), ("n = 2d", 2), ("n = 8d", 8))):
        y, share = 40 + 42 * row, 4 / (4 + 2 * n)
        d.text(84, y + 20, name, anchor="end")
        for x, part, shade in ((100, share, 0.25), (100 + 308 * share, 1 - share, 0.04)):
            d.box(x, y, 308 * part, 30, f"{part:.0%}", shade=shade, round_by=0)
    return d


DRAWINGS = {
    "numbers-in-scale": numbers_in_scale,
    "cut-into-heads": cut_into_heads,
    "where-the-work-goes": where_the_work_goes,
}
