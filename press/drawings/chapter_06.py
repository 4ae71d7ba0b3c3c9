"""Chapter 6: multi-head attention whole, the sum of slabs, and a Transformer block."""

from __future__ import annotations

from labkit.figures.output_projection import HEADS_BY_HAND, layer
from press.drawings.kit import HEADS, SMALL, Drawing


def multi_head_attention() -> Drawing:
    """From x to the output for four heads, the shape of each step beside it."""
    d = Drawing(482)
    slot, middle = 75, 154
    d.box(114, 10, 80, 28, "x")
    for i, name in enumerate("QKV"):
        x = 10 + 102 * i
        d.arrow((middle, 40), (x + 42, 68))
        d.text(x + 42, 86, f"{name} = x W_{name}", size=13)
        d.grid(x, 96, 1, 4, cell=21, cell_height=24, colour=lambda _, j: HEADS[j], shade=0.3)
    for head, colour in enumerate(HEADS):
        for i in range(3):
            start = 10 + 102 * i + 21 * head + 10.5
            d.line((start, 121), (4 + slot * head + 18 * (i + 1), 178), colour=colour)
    for head, colour in enumerate(HEADS):
        x = 4 + slot * head
        d.box(x + 3, 180, 67, 66, colour=colour)
        d.text(x + 36, 204, f"head {head + 1}", size=SMALL, bold=True)
        d.text(x + 36, 222, "softmax,", size=SMALL)
        d.text(x + 36, 238, "mix", size=SMALL)
        d.arrow((x + 36, 248), (70 + 42 * head + 21, 296), colour=colour)
    d.grid(70, 298, 1, 4, cell=42, cell_height=26, colour=lambda _, j: HEADS[j], shade=0.3)
    d.arrow((middle, 326), (middle, 352))
    d.grid(70, 354, 4, 1, cell=168, cell_height=14, colour=lambda i, _: HEADS[i], shade=0.3)
    d.text(60, 387, "W_O", anchor="end")
    d.arrow((middle, 412), (middle, 440))
    d.box(114, 442, 80, 28, "output")
    for y, shape in (
        (29, "(B, n, d_{model})"),
        (113, "(B, n, d_{model})"),
        (218, "(B, h, n, d_v)"),
        (316, "(B, n, h d_v)"),
        (387, "(h d_v, d_{model})"),
        (461, "(B, n, d_{model})"),
    ):
        d.text(412, y, shape, size=13, anchor="end", colour="faint")
    d.text(412, 154, "split", size=13, anchor="end", italic=True)
    d.text(412, 276, "side by side", size=13, anchor="end", italic=True)
    d.text(412, 346, "h d_v = d_{model}", size=13, anchor="end", italic=True)
    return d


def sum_of_slabs() -> Drawing:
    """Two heads by hand: one product with W_O, or each head through its own slab, and the sum."""
    d = Drawing(366)
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


def transformer_block() -> Drawing:
    """The residual stream, and the two parts that read it and add to it."""
    d = Drawing(432)
    stream = 70
    d.box(stream - 40, 10, 80, 28, "x")
    for start, end in ((40, 186), (210, 352), (376, 390)):
        d.line((stream, start), (stream, end), colour="ink", width=5)
    d.box(stream - 40, 392, 80, 30, "next block", size=13)

    def branch(top, bottom):
        d.arrow((stream, top), (158, top))
        d.box(160, top - 14, 240, 28, "LayerNorm", shade=0.05)
        d.arrow((280, top + 16), (280, top + 34))
        d.arrow((158, bottom), (stream + 14, bottom))
        d.path(f"M{stream + 12} {bottom}A12 12 0 1 1 {stream - 12} {bottom}"
               f"A12 12 0 1 1 {stream + 12} {bottom}", "ink", 1.5)  # fmt: skip
        d.text(stream, bottom + 6, "+", size=18)

    branch(66, 198)
    d.box(160, 102, 240, 116, shade=0.05)
    d.text(280, 122, "multi-head attention", size=13, bold=True)
    for head, colour in enumerate(HEADS):
        x = 170 + 56 * head
        d.box(x, 132, 52, 26, f"head {head + 1}", colour=colour, size=SMALL)
        d.arrow((x + 26, 160), (x + 26, 182), colour=colour)
    d.box(170, 184, 220, 26, "W_O adds what they write", shade=0.05, size=SMALL)
    branch(252, 364)
    d.box(160, 288, 240, 96, shade=0.05)
    d.text(280, 310, "feed-forward layer", size=13, bold=True)
    for y, label in ((330, "a linear map"), (348, "a non-linear function"), (366, "a linear map")):
        d.text(280, y, label, size=SMALL)
    d.text(62, 108, "residual", size=SMALL, colour="faint", anchor="end")
    d.text(62, 124, "stream", size=SMALL, colour="faint", anchor="end")
    return d


DRAWINGS = {
    "multi-head-attention": multi_head_attention,
    "sum-of-slabs": sum_of_slabs,
    "transformer-block": transformer_block,
}
