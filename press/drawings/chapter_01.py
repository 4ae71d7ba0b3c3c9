"""Chapter 1: three ways to read a sentence, the three roles of a token, and the attention map."""

from __future__ import annotations

from math import exp, sqrt

from press.drawings.kit import KEY, QUERY, VALUE, Drawing

WORDS = ("the", "river", "bank", "was", "wide")
READ = (0.05, 0.7, 0.1, 0.05, 0.1)  # what "bank" takes of each word, in the third panel
HIGH = 24  # of a word's box


def three_ways_to_read() -> Drawing:
    """A summary that forgets, an average that does not choose, and attention."""
    d = Drawing(406)
    for y, title in (
        (0, "A summary of fixed size forgets"),
        (132, "An average does not choose"),
        (264, "Attention chooses: “bank” asks, “river” answers"),
    ):
        d.text(16, y + 24, title, anchor="start", bold=True)
        for i, word in enumerate(WORDS):
            colour = VALUE if word == "river" else QUERY if word == "bank" and y == 264 else "ink"
            d.box(left(i), y + 38, 64, HIGH, word, colour=colour, shade=0.06)
    for i, kept in enumerate((0, 0.35, 0.2, 0.1, 0.04)):
        d.arrow((left(i) + 32, 63), (left(i) + 32, 82))
        d.box(left(i), 84, 64, HIGH, "summary" if i == 4 else "", colour=VALUE, shade=kept, size=12)
        if i:
            d.arrow((left(i) - 16, 96), (left(i) - 2, 96))
    for y, weights, label in ((132, (0.2,) * 5, "a fifth of each"), (264, READ, "mostly “river”")):
        for i, weight in enumerate(weights):
            ends = (left(i) + 32, y + 63), (208 + 14 * (i - 2), y + 100)
            d.line(*ends, colour=VALUE if i == 1 else "faint", width=0.6 + 5 * weight)
        share = 0.35 * weights[1] / READ[1]
        d.box(138, y + 100, 140, HIGH, label, colour=VALUE, shade=share, size=12)
    return d


def left(i: int) -> float:
    """Place the box of a word."""
    return 14 + 82 * i


def three_roles() -> Drawing:
    """Three tokens make keys and values, and the third asks: its query weighs the values."""
    d = Drawing(286)
    tokens, weights = ("the", "river", "bank"), (0.1, 0.6, 0.3)
    for i, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        x = 76 + 104 * i
        middle = x + (64 if token == "bank" else 42)
        d.text(middle, 22, token, italic=True)
        d.arrow((middle, 30), (middle, 50))
        d.box(x, 52, 38, 28, f"k_{i + 1}", colour=KEY)
        d.box(x + 46, 52, 38, 28, f"v_{i + 1}", colour=VALUE)
        d.arrow((395, 80), (395, 116), (x + 19, 116), (x + 19, 84), colour=QUERY)
        d.text(x + 54, 166, f"{weight:.1f}", bold=True, anchor="end")
        d.line((x + 65, 81), (x + 65, 191), colour=VALUE, width=1 + 6 * weight)
        d.arrow((x + 65, 186), (x + 65, 198), colour=VALUE)
    d.box(376, 52, 38, 28, "q_3", colour=QUERY)
    for y, label in ((71, "roles"), (120, "match"), (166, "weights"), (220, "mix")):
        d.text(10, y, label, anchor="start", colour="faint")
    d.box(76, 200, 292, 30, "0.1 v_1 + 0.6 v_2 + 0.3 v_3", colour=VALUE, shade=0.08)
    d.arrow((222, 232), (222, 252))
    d.text(222, 272, "what “bank” takes from the three")
    return d


def attention_map() -> Drawing:
    """The weights of the chapter's example: a row for each query, a column for each key."""
    d = Drawing(318)
    x, y, wide, high = 110, 62, 66, 44
    weights = by_hand()
    d.text(x + 1.5 * wide, 24, "keys: who is read", colour=KEY, bold=True)
    d.text(x - 12, 50, "queries", colour=QUERY, bold=True, anchor="end")
    d.text(x - 12, y + 3 * high + 28, "sum", colour="faint", anchor="end")
    d.text(x + 3 * wide + 38, 50, "sum", colour="faint")
    for i in range(3):
        d.text(x - 12, y + (i + 0.5) * high + 5, f"token {i + 1}", colour=QUERY, anchor="end")
        d.text(x + (i + 0.5) * wide, 50, f"token {i + 1}", colour=KEY)
        column = sum(row[i] for row in weights)
        d.text(x + (i + 0.5) * wide, y + 3 * high + 28, f"{column:.2f}", colour="faint")
        row = sum(weights[i])
        d.text(x + 3 * wide + 38, y + (i + 0.5) * high + 5, f"{row:.2f}", colour="faint")
    d.grid(
        x,
        y,
        3,
        3,
        cell=wide,
        cell_height=high,
        shade=lambda i, j: 0.6 * weights[i][j],
        words=lambda i, j: f"{weights[i][j]:.2f}",
        size=14,
    )
    d.box(x - 4, y + 2 * high + 3, 3 * wide + 8, high - 6, colour=QUERY, shade=0)
    d.box(x + 3, y - 4, wide - 6, 3 * high + 8, colour=KEY, shade=0)
    d.text(210, 258, "a row: how one query spreads its attention", colour=QUERY)
    d.text(210, 282, "a column: how much one key is read", colour=KEY)
    return d


def by_hand() -> list[list[float]]:
    """Compute the weights of the example that the chapter works out."""
    tokens = ((1, 0), (0, 1), (1, 1))
    rows = []
    for q in tokens:
        line = [exp(sum(a * b for a, b in zip(q, k, strict=True)) / sqrt(2)) for k in tokens]
        rows.append([x / sum(line) for x in line])
    return rows


DRAWINGS = {
    "three-ways-to-read": three_ways_to_read,
    "three-roles": three_roles,
    "attention-map": attention_map,
}
