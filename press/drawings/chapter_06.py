"""Chapter 6: multi-head attention whole, the sum of slabs, and a Transformer block."""

from __future__ import annotations

from labkit.figures.output_projection import HEADS_BY_HAND, layer
from press.drawings import block
from press.drawings.kit import HEADS, SMALL, Drawing


def sum_of_slabs() -> Drawing:
    """Two heads by hand: one product with W_O, or each head through its own slab, and the sum."""
    d = Drawing(350)
    row = [x for head in HEADS_BY_HAND for x in head]
    W_O = layer()["W_O"].tolist()
    high = 24
    x_heads, x_slab, x_written = 4, 134, 276

    def of(index: int) -> str:
        return HEADS[index // 2]

    def numbers(x, y, rows, colour):
        d.grid(
            x,
            y,
            len(rows),
            len(rows[0]),
            cell={x_slab: 30, x_written: 34}.get(x, 28),
            cell_height=high,
            colour=colour,
            shade=0.18,
            words=lambda i, j: shown(rows[i][j]),
            size=12,
        )

    def times(row, slab):
        return [sum(a * line[j] for a, line in zip(row, slab, strict=True)) for j in range(4)]

    d.text(64, 22, "heads side by side", size=SMALL)
    d.text(194, 22, "W_O", size=SMALL)
    d.text(344, 22, "output", size=SMALL)
    middle = 32 + 2 * high
    numbers(x_heads, middle - high / 2, [row], lambda _, j: of(j))
    d.text(125, middle + 5, "×", size=18)
    numbers(x_slab, 32, W_O, lambda i, _: of(i))
    d.text(265, middle + 5, "=", size=18)
    numbers(x_written, middle - high / 2, [times(row, W_O)], "ink")

    d.text(4, 162, "the same, head by head", size=SMALL, anchor="start", colour="faint")
    d.line((164, 158), (416, 158))
    for head in range(2):
        y = 176 + 64 * head
        slab = W_O[2 * head : 2 * head + 2]
        mine = row[2 * head : 2 * head + 2]
        colour = HEADS[head]
        d.text(4, y + high + 5, f"head {head + 1}", size=13, anchor="start")
        numbers(x_heads + 56, y + high / 2, [mine], colour)
        d.text(125, y + high + 5, "×", size=18)
        numbers(x_slab, y, slab, colour)
        d.text(265, y + high + 5, "=", size=18)
        numbers(x_written, y + high / 2, [times(mine, slab)], colour)
    d.text(344, 237, "+", size=16)
    d.line((276, 302), (412, 302), colour="ink")
    d.text(260, 330, "sum", size=13, anchor="end")
    numbers(x_written, 314, [times(row, W_O)], "ink")
    return d


def shown(x: float) -> str:
    return f"{x + 0.0:.2f}".rstrip("0").rstrip(".").replace("-", "−")


DRAWINGS = {
    "multi-head-attention": lambda: block.layer("W_O"),
    "sum-of-slabs": sum_of_slabs,
    "transformer-block": block.block,
}
