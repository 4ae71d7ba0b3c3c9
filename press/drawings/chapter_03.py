"""Chapter 3: three questions in the plane, one text or two, and how far a word sees."""

from __future__ import annotations

from labkit.models import cross
from press.drawings.block import layer
from press.drawings.kit import KEY, QUERY, VALUE, Drawing

SIZES = {"Q": QUERY, "K": KEY, "V": VALUE}
NAMED = {"who": [-1.7, 4.4], "does": [-2.9, -0.9], "what": [3.9, -1.7]}  # where names stand
# Of a word's name from its point, and where it ends there: "start", "middle" or "end".
BESIDE = {
    "the": (-12, 5, "end"),
    ".": (-12, 6, "end"),
    "mia": (12, 5, "start"),
    "ben": (12, 5, "start"),
    "sees": (14, 8, "start"),
    "hears": (14, 5, "start"),
    "dog": (0, 22, "middle"),
    "bird": (12, 5, "start"),
}


def three_directions() -> Drawing:
    """The keys of all words as points, and the three queries as arrows."""
    d = Drawing(392)
    state = {name: x[0] for name, x in cross.load_cross().state_dict().items()}
    keys = (state["words"] @ state["W_K"]).tolist()
    queries = (state["questions"] @ state["W_Q"]).tolist()

    def at(point: list[float]) -> tuple[float, float]:
        return 186 + 17.5 * point[0], 214 - 17.5 * point[1]

    d.line((10, 214), (410, 214))
    d.line((186, 12), (186, 380))
    for word, query in zip(cross.QUESTIONS, queries, strict=True):
        d.arrow(at([0, 0]), at(query), colour=QUERY, width=4)
        x, y = at(NAMED[word])
        d.text(x, y + 6, word, colour=QUERY, bold=True, size=16)
    for word, key in zip(cross.WORDS, keys, strict=True):
        x, y = at(key)
        d.path(f"M{x - 4} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", KEY, 8)
        right, down, anchor = BESIDE[word]
        d.text(x + right, y + down, "full stop" if word == "." else word, anchor=anchor)
    d.text(14, 30, "queries: arrows", anchor="start", colour=QUERY)
    d.text(14, 50, "keys: points", anchor="start", colour=KEY)
    return d


def self_and_cross() -> Drawing:
    """Queries, keys and values from one sequence, and beside it from two, with all shapes."""
    d = Drawing(316)
    panel(d, 4, "self-attention: one text", {"X": ("n, d_{model}", "QKV")}, "n", "n")
    d.line((210, 12), (210, 304))
    two = {"X": ("n_q, d_{model}", "Q"), "C": ("n_k, d_{model}", "KV")}
    panel(d, 216, "cross-attention: two texts", two, "n_q", "n_k")
    return d


def panel(
    d: Drawing, left: float, title: str, sources: dict[str, tuple[str, str]], n_q: str, n_k: str
) -> None:
    d.text(left + 100, 24, title, bold=True)
    shapes = {"Q": f"{n_q}, d_k", "K": f"{n_k}, d_k", "V": f"{n_k}, d_v"}
    middles = {letter: left + 32 + 68 * i for i, letter in enumerate(SIZES)}
    for source, (shape, gives) in sources.items():
        xs = [middles[letter] for letter in gives]
        middle = left + {"X": 100 if len(sources) == 1 else 43, "C": 146}[source]
        sized(d, middle, 60, 86, source, shape)
        for x in xs:
            d.arrow((middle + (x - middle) / 4, 81), (x, 110))
    for letter, colour in SIZES.items():
        sized(d, middles[letter], 132, 62, letter, shapes[letter], colour)
    attends = (middles["Q"] + middles["K"]) / 2
    for letter, beside in (("Q", -12), ("K", 12)):
        d.arrow((middles[letter], 153), (attends + beside, 182), colour=SIZES[letter])
    sized(d, attends, 204, 66, "A", f"{n_q}, {n_k}", "accent")
    mixes = (attends + middles["V"]) / 2
    d.arrow((attends, 225), (mixes - 14, 254), colour="accent")
    d.arrow((middles["V"], 153), (middles["V"], 222), (mixes + 14, 254), colour=VALUE)
    sized(d, mixes, 276, 66, "O", f"{n_q}, d_v", VALUE, 0.08)


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
    d.box(x - width / 2, middle - 19, width, 38, colour=colour, shade=shade)
    d.text(x, middle - 3, letter, bold=True)
    d.text(x, middle + 13, f"({shape})", size=12)


def encoder_and_decoder() -> Drawing:
    """A source that is read once, and a translation whose last word asks it for the next one."""
    d = Drawing(316)
    source, target = ["mia", "sees", "the", "dog"], ["mia", "voit", "le"]
    top, low = 54, 196
    across = [58 + 80 * i for i in range(4)]
    d.text(12, 24, "encoder: reads the source, once", anchor="start", bold=True, colour=KEY)
    d.text(12, 304, "decoder: writes, word by word", anchor="start", bold=True, colour=QUERY)
    for x, word in zip(across, source, strict=True):
        d.text(x, top + 2, word)
        d.box(x - 34, top + 12, 68, 28, "K, V", colour=KEY)
    for i, (x, word) in enumerate(zip(across, target, strict=False)):
        asks = i == len(target) - 1
        d.text(x, low + 62, word)
        d.box(x - 34, low + 14, 68, 28, "Q" if asks else "", colour=QUERY if asks else "ink")
    asking = across[2]
    for i, x in enumerate(across):
        width = 6 if i == 3 else 1.5
        d.path(
            f"M{asking} {low + 12}C{asking} {low - 40} {x} {low - 30} {x} {top + 42}",
            "accent",
            width,
        )
    d.arrow((asking + 38, low + 28), (asking + 62, low + 28))
    d.box(asking + 66, low + 12, 84, 32, "chien", shade=0, dashed=True)
    d.text(asking + 108, low + 62, "next word", size=12, colour="faint")
    return d


def one_step() -> Drawing:
    """From the first word to the last: four steps through a recurrent network, one in attention."""
    d = Drawing(300)
    across = [52 + 79 * i for i in range(5)]
    d.text(12, 24, "recurrent network: state by state", anchor="start", bold=True)
    for i, x in enumerate(across):
        here = i == 0
        d.box(x - 20, 42, 40, 28, f"x_{i + 1}", colour=KEY, shade=0.2 if here else 0.06)
        d.box(x - 20, 98, 40, 28, f"h_{i + 1}")
        colour = KEY if here else "faint"
        d.arrow((x, 72), (x, 95), colour=colour, width=3 if here else 1.5)
        if i < 4:
            d.arrow((x + 22, 112), (x + 55, 112), colour=KEY, width=3)
    d.line((12, 148), (408, 148))
    d.text(12, 174, "attention: straight from each", anchor="start", bold=True)
    d.box(across[4] - 20, 260, 40, 28, "o_5", colour=QUERY)
    for i, x in enumerate(across):
        here = i == 0
        d.box(x - 20, 190, 40, 28, f"x_{i + 1}", colour=KEY, shade=0.2 if here else 0.06)
        end = (across[4] - 22, 280 - 5 * i) if i < 4 else (across[4], 257)
        d.arrow((x, 220), end, colour=KEY if here else "faint", width=3 if here else 1.5)
    return d


DRAWINGS = {
    "layer-with-memory": lambda: layer("memory"),
    "three-directions": three_directions,
    "self-and-cross": self_and_cross,
    "encoder-and-decoder": encoder_and_decoder,
    "one-step": one_step,
}
