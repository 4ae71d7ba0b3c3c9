"""Chapter 7: what cutting into heads leaves as it is, and where the multiply-adds go."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing


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


DRAWINGS = {"cut-into-heads": cut_into_heads, "where-the-work-goes": where_the_work_goes}
