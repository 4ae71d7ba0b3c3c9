"""Chapter 12: who reads which keys, the wrong groups, a latent, rotations, and two layers."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing

SHADE, WIDE, HIGH = 0.3, 22, 22


def sharing_keys() -> Drawing:
    """Four heads of queries over four, two and one heads of keys, and over a latent."""
    d = Drawing(330)
    ways = (
        ("multi-head", "4 heads of keys", 4),
        ("grouped", "2 heads of keys", 2),
        ("multi-query", "1 head of keys", 1),
        ("latent", "c, and one rotary key", 0),
    )
    for place, (name, kept, h_kv) in enumerate(ways):
        x, y = 16 + 208 * (place % 2), 14 + 162 * (place // 2)
        d.text(x + 90, y + 12, name, bold=True)
        centres = [x + 24 + 44 * i for i in range(4)]
        for i, centre in enumerate(centres):
            d.box(centre - 11, y + 24, WIDE, HIGH, f"q_{i + 1}", colour=HEADS[i], shade=SHADE)
        if h_kv:
            group = 4 // h_kv
            for j in range(h_kv):
                read = centres[j * group : (j + 1) * group]
                middle = sum(read) / group
                colour = HEADS[j] if group == 1 else "ink"
                for centre in read:
                    d.line((centre, y + 46), (middle, y + 88))
                d.box(middle - 17, y + 88, 34, HIGH, "k, v", colour=colour, shade=SHADE, size=SMALL)
        else:
            for i, centre in enumerate(centres):
                d.line((centre, y + 46), (centre, y + 58))
                d.box(centre - 17, y + 58, 34, HIGH, "k, v", colour=HEADS[i], shade=0, dashed=True,
                    size=SMALL)  # fmt: skip
                d.line((centre, y + 80), (x + 90, y + 100))
            d.box(x + 79, y + 100, WIDE, HIGH, "c", shade=SHADE)
            d.box(x + 107, y + 100, WIDE + 4, HIGH, "k^R", shade=SHADE, size=SMALL)
        d.text(x + 90, y + 142, f"kept: {kept}", size=SMALL, colour="faint")
    return d


def repeated_keys() -> Drawing:
    """Four heads over two of keys, by repeat_interleave and by repeat."""
    d = Drawing(178)
    for x, name, order in ((16, "repeat_\u200binterleave", "AABB"), (224, "repeat", "ABAB")):
        d.text(x + 90, 24, name, bold=True)
        for i, letter in enumerate(order):
            left = x + 6 + 44 * i
            wrong = letter != "AABB"[i]
            d.box(left, 42, 36, 26, f"q_{i + 1}", colour=HEADS[i], shade=SHADE)
            d.arrow((left + 18, 70), (left + 18, 100), dashed=wrong)
            d.box(left, 102, 36, 26, letter, shade=0.1 if letter == "A" else SHADE, dashed=wrong)
        caption = "each reads its group's" if order == "AABB" else "2 and 3 read the other's"
        d.text(x + 90, 156, caption, size=SMALL, colour="faint")
    return d


def absorbed() -> Drawing:
    """A score as a chain of factors, without a rotation and with one."""
    d = Drawing(196)
    chains = (
        (16, 30, ("x_i", "W_Q", "U", "c_j"), (1, 2), "one matrix, made once"),
        (16, 126, ("x_i", "W_Q", "R_{i-j}", "U", "c_j"), (1, 3), "another for each distance"),
    )
    for x, y, parts, (first, last), caption in chains:
        for i, part in enumerate(parts):
            left = x + 78 * i
            end = i in (0, len(parts) - 1)
            turn = part.startswith("R")
            d.box(left, y, 62, 30, part, colour="ink", shade=0 if end else SHADE, dashed=turn)
            if i:
                d.text(left - 8, y + 20, "·")
        start, stop = x + 78 * first, x + 78 * last + 62
        d.line((start, y + 36), (start, y + 42), (stop, y + 42), (stop, y + 36), width=1.5)
        d.text((start + stop) / 2, y + 58, caption, size=SMALL, colour="faint")
    d.text(16, 20, "without positions", anchor="start", size=SMALL, bold=True)
    d.text(16, 116, "with rotary positions", anchor="start", size=SMALL, bold=True)
    return d


def rotary_key_apart() -> Drawing:
    """A query and what is kept of a token, each with a part without positions and a rotary part."""
    d = Drawing(230)
    left, middle = 30, 250
    parts = ((left, 210, "no positions"), (middle, 140, "rotated"))
    for x, width, name in parts:
        d.text(x + width / 2, 22, name, bold=True, size=SMALL)
    d.box(left, 36, 210, 30, "U_i^T q_i", colour=HEADS[0], shade=SHADE)
    d.box(middle, 36, 140, 30, "q_i^R", colour=HEADS[0], shade=SHADE)
    d.text(left + 180, 86, "head i asks", size=SMALL, colour="faint")
    for x, width, _ in parts:
        d.arrow((x + width / 2, 70), (x + width / 2, 108))
    d.box(left, 112, 210, 30, "c", shade=SHADE)
    d.box(middle, 112, 140, 30, "k^R", shade=SHADE)
    d.text(left + 180, 160, "kept once, for all heads", size=SMALL, colour="faint")
    # As a formula is set: one part over the other, with a bar between them and one on the root.
    d.text(left + 130, 208, "score  =", anchor="end")
    d.text(left + 200, 194, "U_i^T q_i · c  +  q_i^R · k^R")
    d.line((left + 138, 204), (left + 262, 204), colour="ink", width=1)
    d.text(left + 200, 223, "d_k + d_r")
    root = ((164, 217), (167, 215), (171, 226), (175, 210), (226, 210))
    d.line(*((left + x, y) for x, y in root), colour="ink", width=1)
    return d


def layers_that_share() -> Drawing:
    """Two layers: the second has queries of its own and reads the keys of the first."""
    d = Drawing(170)
    for layer, y in (("first", 24), ("second", 112)):
        d.text(12, y + 20, layer, anchor="start", bold=True)
        for i in range(4):
            d.box(84 + 34 * i, y + 4, 28, HIGH, f"q_{i + 1}", colour=HEADS[i], shade=SHADE)
        d.text(150, y + 46, f"queries of the {layer} layer", size=SMALL, colour="faint")
    d.box(300, 28, 96, HIGH, "k, v", shade=SHADE)
    d.box(300, 116, 96, HIGH, "", shade=0, dashed=True)
    d.text(348, 131, "none made", size=SMALL, colour="faint")
    d.text(348, 70, "kept", size=SMALL, colour="faint")
    d.arrow((222, 39), (296, 39))
    d.arrow((222, 127), (262, 127), (262, 60), (296, 46))
    return d


DRAWINGS = {
    "sharing-keys": sharing_keys,
    "repeated-keys": repeated_keys,
    "absorbed": absorbed,
    "rotary-key-apart": rotary_key_apart,
    "layers-that-share": layers_that_share,
}
