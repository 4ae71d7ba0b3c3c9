"""Chapter 3: one sequence or two, the maps that come of it, and how far a token sees."""

from __future__ import annotations

from labkit.figures.live import SelfAndCross
from press.drawings.kit import KEY, QUERY, VALUE, Drawing

SIZES = {"Q": QUERY, "K": KEY, "V": VALUE}


def self_and_cross() -> Drawing:
    """Queries, keys and values from one sequence, and below from two, with all shapes."""
    d = Drawing(372)
    panel(d, 0, "self-attention: one sequence", {"X": ("n, d_{model}", "QKV")}, "n", "n")
    d.line((12, 178), (408, 178))
    two = {"X": ("n_q, d_{model}", "Q"), "C": ("n_k, d_{model}", "KV")}
    panel(d, 190, "cross-attention: two sequences", two, "n_q", "n_k")
    return d


def panel(
    d: Drawing, top: float, title: str, sources: dict[str, tuple[str, str]], n_q: str, n_k: str
) -> None:
    d.text(12, top + 24, title, anchor="start", bold=True)
    shapes = {"Q": f"{n_q}, d_k", "K": f"{n_k}, d_k", "V": f"{n_k}, d_v"}
    middles = {letter: top + 58 + 44 * i for i, letter in enumerate(SIZES)}
    for source, (shape, gives) in sources.items():
        ys = [middles[letter] for letter in gives]
        middle = sum(ys) / len(ys)
        sized(d, 12, middle, 88, source, shape)
        for y in ys:
            d.arrow((102, middle), (142, y), curved=True)
    for letter, colour in SIZES.items():
        sized(d, 146, middles[letter], 74, letter, shapes[letter], colour)
    attends = (middles["Q"] + middles["K"]) / 2
    for letter in "QK":
        d.arrow((222, middles[letter]), (252, attends), curved=True, colour=SIZES[letter])
    sized(d, 256, attends, 66, "A", f"{n_q}, {n_k}")
    mixes = (attends + middles["V"]) / 2
    d.arrow((324, attends), (338, mixes), curved=True)
    d.arrow((222, middles["V"]), (338, mixes), curved=True, colour=VALUE)
    sized(d, 342, mixes, 68, "O", f"{n_q}, d_v", VALUE, 0.08)


def sized(
    d: Drawing,
    x: float,
    middle: float,
    width: float,
    letter: str,
    shape: str,
    colour: str = "ink",
    shade: float = 0.12,
) -> None:
    """Draw a matrix as a box with its letter and its shape."""
    d.box(x, middle - 19, width, 38, colour=colour, shade=shade)
    d.text(x + width / 2, middle - 3, letter, bold=True)
    d.text(x + width / 2, middle + 13, f"({shape})", size=12)


def two_maps() -> Drawing:
    """The weights of four words over themselves, a square, and over six others, a rectangle."""
    d = Drawing(322)
    map_of(d, 0, "translation", "self-attention: 4 by 4, a square")
    map_of(d, 160, "source", "cross-attention: 4 by 6, a rectangle")
    return d


def map_of(d: Drawing, top: float, keys_from: str, title: str) -> None:
    figure = SelfAndCross(translation=4, source=6, keys_from=keys_from)
    weights = figure.values()["weights"]
    words = figure.given["words"]
    d.text(12, top + 24, title, anchor="start", bold=True)
    left, cell, high = 62, 57, 24
    for j in range(len(weights[0])):
        d.text(left + cell * (j + 0.5), top + 46, words[keys_from][j], colour=KEY)
    for i in range(len(weights)):
        d.text(left - 10, top + 69 + high * i, words["translation"][i], colour=QUERY, anchor="end")
    d.grid(
        left,
        top + 52,
        len(weights),
        len(weights[0]),
        cell=cell,
        cell_height=high,
        shade=lambda i, j: 0.75 * weights[i][j],
    )


def one_step() -> Drawing:
    """From the first word to the last: four steps through a recurrent network, one in attention."""
    d = Drawing(300)
    across = [52 + 79 * i for i in range(5)]
    d.text(12, 24, "recurrent network: state by state", anchor="start", bold=True)
    for i, x in enumerate(across):
        here = i == 0
        d.box(x - 20, 46, 40, 28, f"h_{i + 1}")
        d.box(x - 20, 102, 40, 28, f"x_{i + 1}", colour=KEY, shade=0.2 if here else 0.06)
        colour = KEY if here else "faint"
        d.arrow((x, 100), (x, 78), colour=colour, width=3 if here else 1.5)
        if i < 4:
            d.arrow((x + 22, 60), (x + 55, 60), colour=KEY, width=3)
    d.line((12, 148), (408, 148))
    d.text(12, 174, "attention: straight from each", anchor="start", bold=True)
    d.box(across[4] - 20, 188, 40, 28, "o_5", colour=QUERY)
    for i, x in enumerate(across):
        here = i == 0
        d.box(x - 20, 258, 40, 28, f"x_{i + 1}", colour=KEY, shade=0.2 if here else 0.06)
        end = (across[4] - 22, 196 + 5 * i) if i < 4 else (across[4], 220)
        d.arrow((x, 256), end, colour=KEY if here else "faint", width=3 if here else 1.5)
    return d


DRAWINGS = {
    "self-and-cross": self_and_cross,
    "two-maps": two_maps,
    "one-step": one_step,
}
