"""Chapter 1: one sentence with two questions, all keys on a line, and an attention map."""

from __future__ import annotations

from math import exp, sqrt

from labkit.models import pocket
from press.drawings.block import layer
from press.drawings.kit import KEY, QUERY, Drawing

WORD = 62  # width of a word's box
RAISED = {"bakes"}  # whose name would touch a neighbour's


def two_questions() -> Drawing:
    """The same two words, asked by two last words: what each takes from where, and the answers."""
    d = Drawing(252)
    model = pocket.load_pocket()
    for top, text in ((0, "mia reads and"), (126, "mia reads a")):
        words = text.split()
        logits, weights = model(pocket.encode(text))
        answer = pocket.ANSWERS[int(logits[0].argmax())]
        line = top + 74
        middles = [16 + WORD / 2 + 88 * i for i in range(len(words))]
        for i, (word, weight) in enumerate(zip(words, weights[0].tolist(), strict=True)):
            asks = i == len(words) - 1
            colour = QUERY if asks else KEY if weight > 0.5 else "ink"
            d.box(middles[i] - WORD / 2, line, WORD, 28, word, colour=colour, shade=0.1)
            d.text(middles[i], line + 46, f"{weight:.2f}", size=12, colour="faint")
            if not asks and weight > 0.005:
                high = line - 26 - 12 * (len(words) - 1 - i)
                way = (
                    f"M{middles[-1]} {line - 3}C{middles[-1]} {high} "
                    f"{middles[i]} {high} {middles[i]} {line - 3}"
                )
                d.path(way, "accent", 1 + 5 * weight)
        d.arrow((middles[-1] + WORD / 2 + 6, line + 14), (300, line + 14))
        d.box(304, line - 2, 96, 32, answer, colour="ink", shade=0, dashed=True)
        d.text(
            16,
            top + 24,
            f"“{words[-1]}” asks: which {'person' if top == 0 else 'verb'}?",
            anchor="start",
            bold=True,
        )
        d.text(352, line + 46, "next word", size=12, colour="faint")
    return d


def keys_on_a_line() -> Drawing:
    """The first number of each word's key, and the two queries below."""
    d = Drawing(196)
    model = pocket.load_pocket()
    keys = (model.vectors[0] @ model.W_K[0])[:, 0].tolist()
    queries = {
        w: float((model.vectors[0, pocket.WORDS.index(w)] @ model.W_Q[0])[0]) for w in ("and", "a")
    }

    def at(key: float) -> float:
        return 238 + 25.5 * key

    axis = 100
    d.line((4, axis), (416, axis), colour="faint")
    named: dict[float, list[str]] = {}
    for word, key in zip(pocket.WORDS, keys, strict=True):
        named.setdefault(key, []).append(word)
    for key, words in sorted(named.items()):
        d.line((at(key), axis - 5), (at(key), axis + 5), colour=KEY, width=4)
        d.text(at(key), axis + 22, f"{key:g}".replace("-", "−"), size=12, colour="faint")
        for i, word in enumerate(reversed(words)):
            above = 16 * i
            if word in RAISED:
                above += 18
                d.line((at(key), axis - 9), (at(key), axis - 28), width=1)
            d.text(at(key), axis - 14 - above, word, size=12, colour=KEY)
    d.text(at(-5.7), 22, "verbs", bold=True)
    d.text(at(5), 22, "persons", bold=True)
    for y, (word, query) in zip((148, 176), queries.items(), strict=True):
        d.arrow((at(0), y), (at(query), y), colour=QUERY, width=3)
        anchor, x = ("end", at(0) - 8) if query > 0 else ("start", at(0) + 8)
        d.text(x, y + 5, f"query of “{word}”", colour=QUERY, anchor=anchor, size=13)
    return d


def attention_map() -> Drawing:
    """The weights of the chapter's example: a row for each query, a column for each key."""
    d = Drawing(296)
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
        colour="accent",
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
    "layer-of-one-head": lambda: layer("attention"),
    "two-questions": two_questions,
    "keys-on-a-line": keys_on_a_line,
    "attention-map": attention_map,
}
