"""The layer and its block, as they grow through the chapters: one drawing, read from top to bottom.

What comes in and what goes out is a box in ink, what a head owns has the head's colour, the stream
is a thick line, and what a chapter adds has a frame in the accent and the word "new".
"""

from __future__ import annotations

from press.drawings.kit import HEADS, KEY, QUERY, SMALL, VALUE, Drawing

# In the order of the chapters, 1 to 6.
PARTS = ("attention", "scale", "memory", "mask", "heads", "W_O")
ROLES = {"Q": QUERY, "K": KEY, "V": VALUE}

LEFT, SLOT, WIDE = 4, 75, 300  # of the heads
MIDDLE = LEFT + WIDE / 2
RIGHT = LEFT + WIDE
STREAM, PART, PART_WIDE = 70, 160, 240
TALL = 28  # of a box of one line


def layer(newest: str) -> Drawing:
    """The layer up to a part, which is lit."""
    has = PARTS[: PARTS.index(newest) + 1]
    if "heads" in has:
        return layer_of_heads(newest)
    steps = {
        "scores": "scores: queries times keys",
        "scale": "times the scale" if "scale" in has else "divided by √d_k",
        **({"mask": "the mask hides scores"} if "mask" in has else {}),
        "softmax": "softmax: each row sums to 1",
        "mix": "mixes the values",
    }
    top = 150.0
    bottom = top + 14 + 24 * len(steps)
    d = Drawing(bottom + 66)
    projections(d, newest, has)
    for i in range(3):
        d.arrow((52 + 102 * i, 122), (52 + 102 * i, top - 2), colour=tuple(ROLES.values())[i])
    d.box(LEFT, top, WIDE, bottom - top, shade=0.05)
    for i, (name, words) in enumerate(steps.items()):
        y = top + 7 + 24 * i
        if name == newest:
            mark(d, 52, y + 1, 204, 22)
        d.text(MIDDLE, y + 17, words, size=13)
    d.arrow((MIDDLE, bottom + 2), (MIDDLE, bottom + 26))
    d.box(MIDDLE - 40, bottom + TALL, 80, TALL, "output")
    rows = ("n_q", "n_k") if "memory" in has else ("n", "n")
    shape(d, RIGHT, top + 24, f"({rows[0]}, {rows[1]})")
    shape(d, MIDDLE + 40, bottom + 47, f"({rows[0]}, d_v)")
    return d


def layer_of_heads(newest: str) -> Drawing:
    """The layer with four heads, and with W_O where that is there already."""
    top, steps = 178.0, ("scores", "scale", "mask", "softmax", "mix")
    bottom = top + 32 + 18 * len(steps)
    joined = bottom + 48
    after = joined + 26 + (90 if newest == "W_O" else 0)
    d = Drawing(after + 66)
    projections(d, newest, PARTS)
    if newest == "heads":
        mark(d, 2, top - 5, WIDE + 2, bottom - top + 10, word=top + 12)
    for head, colour in enumerate(HEADS):
        x = LEFT + SLOT * head
        for i in range(3):
            d.line((20.5 + 102 * i + 21 * head, 121), (x + 18 * (i + 1), top - 2), colour=colour)
        d.box(x + 3, top, 67, bottom - top, colour=colour)
        d.text(x + 36, top + 22, f"head {head + 1}", size=SMALL, bold=True)
        for i, name in enumerate(steps):
            d.text(x + 36, top + 44 + 18 * i, name, size=SMALL)
        d.arrow((x + 36, bottom + 2), (91 + 42 * head, joined - 2), colour=colour)
    d.grid(70, joined, 1, 4, cell=42, cell_height=26, colour=lambda _, j: HEADS[j], shade=0.3)
    d.arrow((MIDDLE, joined + 28), (MIDDLE, joined + 54))
    if newest == "W_O":
        mark(d, 26, joined + 52, 218, 64)
        d.grid(70, joined + 56, 4, 1, cell=168, cell_height=14, colour=of_row, shade=0.3)
        d.text(62, joined + 89, "W_O", anchor="end")
        d.arrow((MIDDLE, after), (MIDDLE, after + 26))
        shape(d, RIGHT - 26, joined + 89, "(h d_v, d_{model})")
    d.box(MIDDLE - 40, after + TALL, 80, TALL, "output")
    shape(d, RIGHT, (top + bottom) / 2 + 5, "(B, h, n, d_v)")
    shape(d, 238, joined + 18, "(B, n, h d_v)")
    shape(d, MIDDLE + 40, after + 47, "(B, n, d_{model})")
    d.text(RIGHT + 8, 154, "split", size=13, anchor="start", italic=True)
    d.text(RIGHT + 8, bottom + 30, "side by side", size=13, anchor="start", italic=True)
    return d


def projections(d: Drawing, newest: str, has: tuple[str, ...]) -> None:
    """Draw what comes in, and Q, K and V: of one head in their roles' colours, or of four heads."""
    if "memory" in has:
        d.box(17, 10, 70, TALL, "x")
        if newest == "memory":
            mark(d, 140, 6, 132, 36)
        d.box(144, 10, 124, TALL, "m: memory or x", dashed=True, size=13)
        starts = (52.0, 175.0, 237.0)
    else:
        d.box(MIDDLE - 40, 10, 80, TALL, "x")
        starts = (MIDDLE,) * 3
    for i, (name, colour) in enumerate(ROLES.items()):
        x = 10 + 102 * i
        d.arrow((starts[i], 40), (x + 42, 68))
        source = "m" if "memory" in has and i else "x"
        d.text(x + 42, 86, f"{name} = {source} W_{name}", size=13)
        if "heads" in has:
            d.grid(x, 96, 1, 4, cell=21, cell_height=24, colour=lambda _, j: HEADS[j], shade=0.3)
        else:
            n, width = "n", "d_v" if name == "V" else "d_k"
            if "memory" in has:
                n = "n_k" if i else "n_q"
            d.box(x, 96, 84, 24, f"({n}, {width})", colour=colour, round_by=0, size=SMALL)
    if "heads" in has:
        shape(d, 268, 29, "(B, n, d_{model})")
        shape(d, 298, 113, "(B, n, d_{model})")
    elif "memory" not in has:
        shape(d, MIDDLE + 40, 29, "(n, d_{model})")


def mark(
    d: Drawing, x: float, y: float, width: float, height: float, *, word: float | None = None
) -> None:
    """Light what is new, and say so beside it, in its middle or on another line."""
    d.box(x, y, width, height, colour="accent", shade=0)
    line = y + height / 2 + 4 if word is None else word
    d.text(x + width + 5, line, "new", colour="accent", size=SMALL, anchor="start", bold=True)


def shape(d: Drawing, edge: float, y: float, sizes: str) -> None:
    """Write a shape beside the right edge of what has it."""
    d.text(edge + 8, y, sizes, size=13, anchor="start")


def of_row(row: int, _: int) -> str:
    return HEADS[row]


def block() -> Drawing:
    """The block between what comes in and the next one."""
    d = Drawing(420)
    on_the_stream(d, 10, "x")
    draw_block(d, 38)
    on_the_stream(d, 382, "next block")
    return d


def gpt() -> Drawing:
    """The block as it stands in a GPT: after the word vectors, before what reads the stream."""
    d = Drawing(584)
    on_the_stream(d, 10, "words")
    d.arrow((STREAM, 40), (STREAM, 52))
    on_the_stream(d, 54, "word vectors")
    d.box(6, 98, 408, 338, dashed=True, shade=0)
    d.text(406, 90, "one block; the next is like it", size=SMALL, anchor="end", colour="faint")
    draw_block(d, 82)
    d.line((STREAM, 424), (STREAM, 452), colour="ink", width=5)
    on_the_stream(d, 452, "LayerNorm", shade=0.05)
    d.arrow((STREAM, 482), (STREAM, 496))
    on_the_stream(d, 498, "read-out", shade=0.05)
    d.arrow((STREAM, 528), (STREAM, 542))
    on_the_stream(d, 544, "logits")
    d.text(138, 563, "a number for each word that might come", size=SMALL, anchor="start")
    return d


def on_the_stream(d: Drawing, y: float, words: str, *, shade: float = 0.12) -> None:
    d.box(STREAM - 54, y, 108, TALL, words, size=13, shade=shade)


def draw_block(d: Drawing, top: float) -> None:
    """Draw the stream from top to top + 342, and the two parts that read it and add to it."""
    middle = PART + PART_WIDE / 2
    attention, feed_forward = top + 28, top + 218
    for start, end in ((0, 164), (188, 304), (328, 342)):
        d.line((STREAM, top + start), (STREAM, top + end), colour="ink", width=5)
    for i, words in enumerate(("residual", "stream")):
        d.text(STREAM - 8, top + 80 + 16 * i, words, size=SMALL, colour="faint", anchor="end")
    for y in (attention, feed_forward):
        d.arrow((STREAM, y + 14), (PART - 2, y + 14))
        d.box(PART, y, PART_WIDE, TALL, "LayerNorm", shade=0.05, size=13)
        d.arrow((middle, y + 30), (middle, y + 46))
    for y in (top + 176, top + 316):
        d.arrow((PART - 2, y), (STREAM + 14, y))
        d.path(f"M{STREAM + 12} {y}A12 12 0 1 1 {STREAM - 12} {y}A12 12 0 1 1 {STREAM + 12} {y}",
               "ink", 1.5)  # fmt: skip
        d.text(STREAM, y + 6, "+", size=18)
    y = attention + 48
    d.box(PART, y, PART_WIDE, 128, shade=0.05)
    d.text(middle, y + 19, "attention", size=13, bold=True)
    d.text(middle, y + 36, "looks at other positions", size=SMALL)
    for head, colour in enumerate(HEADS):
        x = PART + 36 + 50 * head
        d.box(x, y + 44, 46, 26, f"head {head + 1}", colour=colour, size=SMALL)
        d.arrow((x + 23, y + 72), (x + 23, y + 92), colour=colour)
    d.grid(PART + 36, y + 94, 4, 1, cell=196, cell_height=7, colour=of_row, shade=0.3)
    d.text(PART + 30, y + 112, "W_O", size=SMALL, anchor="end")
    y = feed_forward + 48
    d.box(PART, y, PART_WIDE, 64, shade=0.05)
    d.text(middle, y + 19, "feed-forward", size=13, bold=True)
    d.text(middle, y + 36, "each position by itself:", size=SMALL)
    d.text(middle, y + 53, "widened, bent, narrowed", size=SMALL)
