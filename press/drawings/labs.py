"""What each lab pays with at its end, as its card on the labs page shows it.

Every number is computed here by the book's own functions, as a learner's come to compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import torch
from torch import Tensor

from labkit import counting, scaled_dot_product_attention
from labkit.labs.bug_zoo import play as bug_zoo
from labkit.labs.decoding import play as decoding
from labkit.labs.head_hunt.play import FIRST
from labkit.labs.multi_head_attention.play import FIXED
from labkit.labs.scaling.play import SCALES
from labkit.labs.story_model import standing, with_heads
from labkit.labs.tiles_and_ranks.play import WORLD
from labkit.labs.your_own_gpt.play import PROMPT
from labkit.models.ablation import ablated_heads
from labkit.models.encoder import load_encoder
from labkit.models.gpt import load_gpt
from labkit.models.stories import VOCABULARY, encode
from labkit.models.writing import follow
from labkit.ranks import Rank, run
from press.drawings.kit import HEADS, KEY, QUERY, VALUE, Drawing

WIDTH, HEIGHT = 300, 140
LEFT = 16
FOOT = HEIGHT - 10  # the line that says what is shown
SIZE = 13
EVERY = list(product(range(2), range(4)))  # head of the story GPT: its layer, and its place there


def without(silent: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Measure the story GPT while some of its heads write nothing."""
    model = load_gpt().eval()
    with ExitStack() as stack:
        for i, block in enumerate(model.stack()):
            heads = [head for layer, head in silent if layer == i]
            stack.enter_context(ablated_heads(block.attention, heads))
        return standing(model)


def card(told: str, foot: str) -> Drawing:
    """Begin a picture: what is read out in its place, and the line below it."""
    d = Drawing(HEIGHT, WIDTH, told=told)
    d.text(LEFT, FOOT, foot, anchor="start", size=SIZE, colour="faint")
    return d


def write(d: Drawing, x: float, y: float, words: str, anchor: str = "start", **how: Any) -> None:
    d.text(x, y, words, anchor=anchor, size=SIZE, **how)


def scaling() -> Drawing:
    """The story GPT's loss with three divisors."""

    def above(scale: str) -> float:
        def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
            scores = q @ k.mT * SCALES[scale](q.shape[-1])
            return scores.masked_fill(~may, -torch.inf).softmax(dim=-1) @ v

        measured = standing(with_heads(attend))
        return measured["loss"] - measured["entropy"]

    names = dict(zip(SCALES, ("÷ √d_k", "no divisor", "÷ d_k"), strict=True))
    ways = ("with the divisor √d_k", "without a divisor", "with the divisor d_k")
    came = {names[scale]: above(scale) for scale in SCALES}
    d = card(
        "The story GPT's loss above the entropy, in nats a word: "
        + ", ".join(f"{loss:.3f} {way}" for way, loss in zip(ways, came.values(), strict=True))
        + ".",
        "loss above the entropy, nats a word",
    )
    for i, (name, loss) in enumerate(came.items()):
        y = 12 + 32 * i
        write(d, LEFT, y + 15, name)
        width = 2 + 120 * loss / max(came.values())
        d.box(100, y, width, 20, colour="blue" if i == 0 else "orange", shade=0.7, round_by=2)
        write(d, 108 + width, y + 15, f"{loss:.3f}")
    return d


def causal_mask() -> Drawing:
    """The loss of a model whose future is open, and with the mask."""

    def attend(hides: bool) -> Callable[..., Tensor]:
        return lambda q, k, v, may: scaled_dot_product_attention(q, k, v, may if hides else None)

    losses = [standing(with_heads(attend(hides))) for hides in (False, True)]
    open_, hidden = (measured["loss"] for measured in losses)
    d = card(
        f"A mask of five positions, open on and below its diagonal. With its future open the "
        f"story GPT has a loss of {open_:.2f}, with the mask {hidden:.2f}.",
        "loss of the story GPT, nats a word",
    )
    d.grid(LEFT, 16, 5, 5, cell=17, colour="blue", shade=lambda i, j: 0.6 * (j <= i))
    for x, loss, name in ((130, open_, "future open"), (222, hidden, "your mask")):
        high = 66 * loss / open_
        d.box(x, 92 - high, 44, high, colour="orange" if loss == open_ else "blue", shade=0.7)
        write(d, x + 22, 86 - high, f"{loss:.2f}", "middle")
        write(d, x + 22, 108, name, "middle")
    return d


def multi_head_attention() -> Drawing:
    """What the story GPT knows while its heads come back one after the other."""
    came = [without(EVERY[count:]) for count in range(len(EVERY) + 1)]
    d = card(
        "Five relations of the story GPT, by how many of its eight heads are in: "
        + "; ".join(f"{name} {came[0][name]:.2f} with none, {came[-1][name]:.2f} with all"
                    for name in FIXED) + ".",
        "heads put in: from none to eight",
    )  # fmt: skip
    for i, name in enumerate(FIXED):
        write(d, 84, 25 + 20 * i, name, "end")
    d.grid(
        94, 12, len(FIXED), len(came), cell=21, cell_height=20, colour="blue",
        shade=lambda i, j: 0.05 + 0.85 * round(came[j][FIXED[i]], 1),
    )  # fmt: skip
    return d


def output_projection() -> Drawing:
    """What the story GPT loses with each of its heads."""
    usual = without([])["loss"]
    costs = [without([head])["loss"] - usual for head in EVERY]
    d = card(
        "By how much the story GPT's loss rises when one head writes nothing. Layer 0: "
        + ", ".join(f"{cost:.2f}" for cost in costs[:4])
        + ". Layer 1: "
        + ", ".join(f"{cost:.2f}" for cost in costs[4:])
        + ".",
        "what one silent head costs, nats a word",
    )
    for i, cost in enumerate(costs):
        x, high = 24 + 31 * i + 12 * (i // 4), 72 * cost / max(costs)
        d.box(x, 92 - high, 22, high, colour=HEADS[i % 4], shade=0.7, round_by=2)
        if cost == max(costs):
            write(d, x + 28, 34, f"{cost:.2f}")
    for layer in range(2):
        write(d, 81 + 136 * layer, 109, f"layer {layer}", "middle")
    return d


def counting_() -> Drawing:
    """The share of the two products in the story GPT's multiply-adds, by length."""
    attention = load_gpt().stack()[0].attention
    d_model, h = attention.d_model, attention.h

    def share(n: int) -> float:
        products = counting.product_macs(n, d_model, h)
        return products / (products + counting.projection_macs(n, d_model, h))

    lengths = [2**i for i in range(3, 12)]
    half = next(n for n in lengths if share(n) >= 0.5)
    d = card(
        f"The share of the products with keys and values in a layer's work, by length: "
        f"{share(lengths[0]):.0%} at {lengths[0]} words, half at {half}, "
        f"{share(lengths[-1]):.0%} at {lengths[-1]:,}.",
        "share of QKᵀ and AV in the work",
    )
    at = {n: (20 + 30 * i, 92 - 76 * share(n)) for i, n in enumerate(lengths)}
    d.line((20, 12), (20, 92), (270, 92))
    d.line((20, at[half][1]), (at[half][0], at[half][1]), (at[half][0], 92), dashed=True)
    d.line(*at.values(), colour="blue", width=3)
    write(d, 27, at[half][1] - 5, f"{share(half):.0%}")
    for n in (lengths[0], half, lengths[-1]):
        write(d, at[n][0], 108, f"{n:,}" + " words" * (n == half), "middle")
    return d


def head_hunt() -> Drawing:
    """Where a head looks from a pronoun, in a sentence and in its turn."""
    words, rows = ("animal", "street"), {}
    for ending in ("tired", "wide"):
        sentence = FIRST.replace("tired", ending)
        tokens, weights = load_encoder().encode([sentence]).sentence(0)
        of_it = weights[3, 1, tokens.index("it")]
        rows[ending] = [of_it[tokens.index(word)].item() for word in words]
    d = card(
        "How much of its weight head 1 of layer 3 gives from the word it. "
        + " ".join(
            f"It was too {ending}: {animal:.2f} to the animal, {street:.2f} to the street."
            for ending, (animal, street) in rows.items()
        ),
        "one head's weight from “it”: is it fooled?",
    )
    for i, (ending, found) in enumerate(rows.items()):
        write(d, LEFT + 144 * i, 24, f"… it was too {ending}", bold=True)
        for j, (word, weight) in enumerate(zip(words, found, strict=True)):
            x, y = LEFT + 144 * i, 36 + 32 * j
            d.box(x, y + 17, 2 + 160 * weight, 10, colour=(VALUE, QUERY)[j], shade=0.7, round_by=2)
            write(d, x, y + 13, f"{word} {weight:.2f}")
    return d


def bug_zoo_() -> Drawing:
    """Bugs in all heads of the story GPT: those that its loss shows, and those that it hides."""
    usual, *losses = (standing(with_heads(one.attend))["loss"] for one in bug_zoo.planted())
    moved = sorted((abs(loss - usual) for loss in losses), reverse=True)
    shown = sum(by >= bug_zoo.SEEN for by in moved)
    hidden = len(moved) - shown
    d = card(
        f"{len(moved)} bugs, planted in all heads of the story GPT. Its loss shows {shown}; the "
        f"other {hidden} move it by less than {bug_zoo.SEEN} nats a word.",
        f"{shown} bugs move the loss, {hidden} do not",
    )
    for i, by in enumerate(moved):
        x, high = LEFT + 18 * i, 4 + 76 * by / moved[0]
        colour = "blue" if i < shown else "orange"
        d.box(x, 96 - high, 13, high, colour=colour, shade=0.7, round_by=2)
    left = LEFT + 18 * shown
    d.line((left, 84), (left, 78), (left + 18 * hidden - 5, 78), (left + 18 * hidden - 5, 84))
    write(d, left + 9 * hidden - 2, 70, "left to your tests", "middle")
    return d


def decoding_() -> Drawing:
    """How many positions are read while a story is written, with a cache and without."""
    begun, words = len(decoding.BEGINNING.split()), decoding.LONG
    without, kept = [0], [0]
    for i in range(words):
        without.append(without[-1] + begun + i)
        kept.append(kept[-1] + (begun if i == 0 else 1))
    d = card(
        f"Positions read while {words} words are written: {without[-1]:,} without a cache, "
        f"{kept[-1]:,} with it.",
        f"positions read for {words} words",
    )
    d.line((LEFT, 12), (LEFT, 96), (188, 96))
    for read, colour in ((without, "orange"), (kept, "blue")):
        places = range(0, words + 1, words // 10)
        points = [(LEFT + 172 * i / words, 96 - 80 * read[i] / without[-1]) for i in places]
        d.line(*points, colour=colour, width=3)
    write(d, 196, 20, f"{without[-1]:,}", bold=True)
    write(d, 196, 37, "without")
    write(d, 196, 84, f"{kept[-1]:,}", bold=True)
    write(d, 196, 101, "with a cache")
    return d


def tiles_and_ranks() -> Drawing:
    """Whose keys and values each rank of a ring holds, call by call."""

    def on_rank(rank: Rank) -> list[int]:
        held = [torch.tensor(rank.rank)]
        for _ in range(rank.world - 1):
            held.append(rank.shift(held[-1]))
        return [int(one) for one in held]

    ranks = run(on_rank, WORLD)
    d = card(
        f"Whose keys and values {WORLD} ranks hold as they hand them round a ring: "
        + "; ".join(f"rank {i} those of {', '.join(map(str, held))}"
                    for i, held in enumerate(ranks))
        + f". After {WORLD - 1} calls each has met all.",
        f"after {WORLD - 1} calls each has met all keys",
    )  # fmt: skip
    for i, held in enumerate(ranks):
        write(d, LEFT, 27 + 26 * i, f"rank {i}")
        for call, whose in enumerate(held):
            x, y = 84 + 52 * call, 11 + 26 * i
            d.box(x, y, 34, 20, f"{whose}", colour=HEADS[whose], shade=0.35, size=SIZE)
            if call:
                d.arrow((x - 17, y + 10), (x - 2, y + 10))
    return d


@torch.no_grad()
def your_own_gpt() -> Drawing:
    """What the story GPT says of the next word, beside what the rules of the stories say."""
    begun = PROMPT[: PROMPT.rindex(".") + 1]
    says = load_gpt()(encode(begun)[None])[0, -1].double().softmax(dim=-1)
    *_, entry = follow(begun.split())
    assert entry is not None
    ways = sum(entry.options.values())
    pairs = {
        word: (says[VOCABULARY.index(word)].item(), ways_of / ways)
        for word, ways_of in sorted(entry.options.items(), key=lambda option: -option[1])
    }
    d = card(
        f"The next word after “{begun}”: "
        + ", ".join(
            f"{word} {told:.2f} by the model and {true:.2f} by the stories' rules"
            for word, (told, true) in pairs.items()
        )
        + ".",
        "next word: blue the model, green the rules",
    )
    sentence = begun.split(" . ")[-1].removesuffix(" .")
    write(d, LEFT, 20, f"… {sentence}. …", italic=True)
    for i, (word, pair) in enumerate(pairs.items()):
        x = LEFT + 92 * i
        for j, chance in enumerate(pair):
            high = 1 + 50 * chance
            d.box(x + 36 * j, 94 - high, 32, high, colour=(QUERY, KEY)[j], shade=0.7, round_by=2)
            write(d, x + 16 + 36 * j, 89 - high, f"{chance:.2f}", "middle")
        write(d, x + 34, 110, word, "middle", bold=True)
    return d


# In the order of the labs.
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "lab-scaling": scaling,
    "lab-causal-mask": causal_mask,
    "lab-multi-head-attention": multi_head_attention,
    "lab-output-projection": output_projection,
    "lab-counting": counting_,
    "lab-head-hunt": head_hunt,
    "lab-bug-zoo": bug_zoo_,
    "lab-decoding": decoding_,
    "lab-tiles-and-ranks": tiles_and_ranks,
    "lab-your-own-gpt": your_own_gpt,
}
