"""A GPT written by hand: code sets every weight, and the model says the stories' exact truth.

Two layers of three heads, one job each. The first layer looks at places:

    (0, 0) copies the word one back
    (0, 1) copies the word two back
    (0, 2) looks three words back: a name there says its pronoun next, an animal its verbs

The second looks at words by what the first has copied to them (K-composition):

    (1, 0) surname: which words have mine one back? Copies the surname
    (1, 1) owner: which names have my thing one or two back? Copies the name
    (1, 2) known: which words have "suits" one back? Copies all names and things introduced

A head of the second layer that finds nothing looks at "the", its sink, and copies nothing.
Every feature of the stream has a meaning. Five parts have one for each word:

    WORD      the word itself
    ONE_BACK  the word one back
    TWO_BACK  the word two back
    KNOWN     1 / people if somebody of this name, or with this thing, was introduced
    NEXT      how strongly the word is expected next

and two features, ANCHORS, keep the mean 0 and the variance constant, or nearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import torch
from torch import Tensor

from labkit.attention import MultiHeadAttention
from labkit.models.gpt import GPT, FeedForward
from labkit.models.stories import (
    ANIMALS,
    DEEDS,
    LOOKS,
    MOODS,
    MOST_PEOPLE,
    NUMBERS,
    PRONOUNS,
    SURNAMES,
    THINGS,
    VERBS,
    VOCABULARY,
    WEIGHTS,
)

__all__ = ["by_hand"]

V = len(VOCABULARY)
WORD, ONE_BACK, TWO_BACK, KNOWN, NEXT = range(0, 5 * V, V)
ANCHORS = [5 * V, 5 * V + 1]
WIDTH, HEADS = 5 * V + 2, 3
PAIRS = WIDTH // HEADS // 2  # of features that rotate together, in a head
ROTARY_BASE = 2.0**PAIRS  # so that pair i rotates by 2^-i a position

SIZE = 1_000.0  # of the anchors; beside them all else is small: LayerNorm divides by a constant
STEP = 40.0  # a score lower by a step leaves a weight of exp(-40)
CERTAIN = 30.0  # a logit lower by as much leaves a probability of exp(-30)
ANSWER = 3  # how many times CERTAIN an answer of (1, 0) and (1, 1) counts
NOT_AGAIN = 3  # and at least, that somebody known is not introduced again
LOOK_BACK_PAIRS = 14  # these rotate fast enough to tell places; the slowest are for content
STEEP = 1_000.0  # a GELU of an input so steep is a ReLU

NAMES, BEASTS, ALL_VERBS = tuple(PRONOUNS), (*ANIMALS[0], *ANIMALS[1]), (*VERBS[0], *VERBS[1])
AGREE: dict[str, Sequence[str]] = {**{name: [PRONOUNS[name]] for name in NAMES}, **NUMBERS}
OF_KNOWN = (*NAMES, *THINGS)  # the features of KNOWN that are used
CROWDS = range(MOST_PEOPLE, 0, -1)
SHARES = torch.tensor([1 / people for people in CROWDS])  # what KNOWN holds if it does not hold 0
BENDS = torch.cat([torch.zeros(1), SHARES[:-1]])  # where the curves of _free bend
UNITS = len(BENDS) * len(OF_KNOWN) + len(NAMES)  # of the feed-forward

# A part, words in it, what may then come next, and how many times CERTAIN that counts. The word
# itself gives 2 to all that may follow it; words further back decide among these.
GRAMMAR: tuple[tuple[int, Sequence[str], Sequence[str], int], ...] = (
    (WORD, ["."], ["the"], 2),
    (WORD, ["."], NAMES, 1),  # _free adds 1 for those known
    (WORD, ["the"], THINGS, 3),  # _free takes 1 away where somebody is known
    (WORD, ["the"], BEASTS, 2),
    (WORD, THINGS, ["suits"], 2),
    (WORD, ["suits"], NAMES, 2),  # _free takes it from those known
    (WORD, NAMES, SURNAMES, 2),
    (WORD, SURNAMES, [".", "has", *DEEDS], 2),
    (WORD, DEEDS, ["and"], 2),
    (WORD, ["and"], ["he", "she"], 2),
    (WORD, ["he", "she", "has"], ["is"], 2),
    (WORD, ["is"], [*MOODS, *LOOKS], 2),
    (WORD, BEASTS, ["near"], 2),
    (WORD, ["near"], ["the"], 2),
    (WORD, [*ALL_VERBS, *MOODS, *LOOKS], ["."], 2),
    (ONE_BACK, ["near"], BEASTS, 1),  # near the COW
    (ONE_BACK, ["has"], LOOKS, 1),  # has is OLD
    (ONE_BACK, ["he", "she"], MOODS, 1),  # he is HAPPY
    (TWO_BACK, ["suits"], ["."], 1),  # suits tom lake .
    (TWO_BACK, THINGS, ["has"], 1),  # box tom lake HAS
    (TWO_BACK, ["."], DEEDS, 1),  # . tom lake SINGS
    (TWO_BACK, ["near"], ALL_VERBS, 2),  # near the cow RUN: (0, 2) adds 1 for the right number
)


def at(part: int, *words: str) -> list[int]:
    """Give the features of words in a part of the stream."""
    return [part + VOCABULARY.index(word) for word in words]


# Which features a query asks for, which of a key answer, and how many steps of score that adds.
Match = tuple[Sequence[int], Sequence[int], float]
ALWAYS: Sequence[int] = ()  # asked for whatever the word, by a bias
SINK = at(WORD, "the")
Copy = tuple[int, Sequence[int], float]  # the feature read, those it is added to, how many times


@torch.no_grad()
def by_hand() -> GPT:
    """Write a GPT that knows the stories, in evaluation mode.

    All words, free ones too, get their true probabilities to within 1e-4, and what is right of a
    fixed word at least 1 - 1e-11. Its heads would tell places in texts of up to 30,000 words.

    >>> from labkit.models.training import unseen
    >>> told = unseen(4)
    >>> told.divergence(by_hand()(told.ids)).max().item() < 1e-6
    True
    """
    with torch.random.fork_rng(devices=[]):  # whatever is drawn here is replaced
        model = GPT(V, WIDTH, HEADS, 2, d_ff=UNITS, rotary_base=ROTARY_BASE)
    for name, weight in model.named_parameters():
        # SIZE and -SIZE among WIDTH features have this standard deviation.
        weight.fill_(SIZE * sqrt(2 / WIDTH) if "norm.weight" in name else 0.0)
    model.words.weight[:, WORD : WORD + V] = torch.eye(V)

    first, second = (block.attention for block in model.stack())
    _look_back(first, 0, 1)
    _copy(first, 0, _same(WORD, VOCABULARY, ONE_BACK))
    _look_back(first, 1, 2)
    _copy(first, 1, _same(WORD, VOCABULARY, TWO_BACK))
    _look_back(first, 2, 3)
    _copy(first, 2, [(at(WORD, word)[0], at(NEXT, *forms), 1) for word, forms in AGREE.items()])

    # Scores in steps: a surname 2 and the sink 1; a name beside the thing 4, the sink 3, others 2.
    its_surname: list[Match] = [(at(WORD, name), at(ONE_BACK, name), 2) for name in NAMES]
    _match(second, 0, [*its_surname, (ALWAYS, SINK, 1)])
    _copy(second, 0, _same(WORD, SURNAMES, NEXT, ANSWER))
    after_it: list[Match] = [
        (at(WORD, thing), [*at(ONE_BACK, thing), *at(TWO_BACK, thing)], 2) for thing in THINGS
    ]
    _match(second, 1, [*after_it, (ALWAYS, at(WORD, *NAMES), 2), (ALWAYS, SINK, 3)])
    _copy(second, 1, _same(WORD, NAMES, NEXT, ANSWER))
    _match(second, 2, [(ALWAYS, at(ONE_BACK, "suits"), 2), (ALWAYS, SINK, 1)])
    _copy(second, 2, [*_same(WORD, NAMES, KNOWN), *_same(TWO_BACK, THINGS, KNOWN)])

    _free(model.stack()[1].feed_forward)
    for part, words, followers, times in GRAMMAR:
        for follower in at(0, *followers):
            model.next_word.weight[follower, at(part, *words)] = times * CERTAIN
    model.next_word.weight[:, NEXT : NEXT + V] = CERTAIN * torch.eye(V)
    _anchor(model)
    return model.eval()


def _look_back(layer: MultiHeadAttention, head: int, distance: int) -> None:
    """Let a head look so many words back, or at the first: queries and keys are biases, which
    rotation turns so that they point the same way in all pairs at this distance alone.
    """
    angles = -distance * 2.0 ** -torch.arange(LOOK_BACK_PAIRS)
    pairs = torch.stack([angles.cos(), angles.sin()], -1).flatten()
    q, k, _ = layer.w_qkv.bias.view(3, HEADS, -1)[:, head]
    q[: len(pairs)] = 2 * STEP / layer.scale * pairs
    k[: len(pairs) : 2] = 1.0


def _match(layer: MultiHeadAttention, head: int, matches: Sequence[Match]) -> None:
    """Let a head score keys by matches, each in a feature of those that rotate most slowly."""
    q, k, _ = layer.w_qkv.weight.view(3, HEADS, -1, WIDTH)[:, head]
    q_bias = layer.w_qkv.bias.view(3, HEADS, -1)[0, head]
    for i, (asked, of_key, steps) in enumerate(matches, start=1):
        score = steps * STEP / layer.scale
        q[-i, list(asked)] = score
        q_bias[-i] = 0.0 if asked else score
        k[-i, list(of_key)] = 1.0


def _copy(layer: MultiHeadAttention, head: int, copies: Sequence[Copy]) -> None:
    """Let a head's values hold features of the stream, and W_O add each to others."""
    for place, (read, added_to, times) in enumerate(copies, start=head * layer.d_v):
        layer.w_v.weight[place, read] = 1.0
        layer.w_o.weight[list(added_to), place] = times


def _same(source: int, words: Sequence[str], target: int, times: float = 1) -> list[Copy]:
    """Copy words from one part of the stream to another."""
    return [(at(source, word)[0], at(target, word), times) for word in words]


def _free(layer: FeedForward) -> None:
    """Turn what KNOWN holds into logits of free words, by curves that ReLUs draw."""
    person, the, owned, new = torch.tensor([_logits(people) for people in CROWDS]).T
    units = torch.arange(UNITS).split([len(BENDS)] * len(OF_KNOWN) + [1] * len(NAMES))
    for word, some in zip(OF_KNOWN, units, strict=False):
        layer.expand.weight[some, at(KNOWN, word)] = STEEP
        layer.expand.bias[some] = -STEEP * BENDS
        own, together, said_of = (person, the, ["the"]) if word in NAMES else (owned, new, THINGS)
        for target in at(NEXT, *said_of):  # each of those known adds its share
            layer.contract.weight[target, some] += _curve(together * SHARES)
        layer.contract.weight[at(NEXT, word)[0], some] += _curve(own)
    for name, one in zip(NAMES, units[len(OF_KNOWN) :], strict=True):  # known AND now "suits"
        layer.expand.weight[one, [*at(KNOWN, name), *at(WORD, "suits")]] = STEEP
        layer.expand.bias[one] = -STEEP * (1 + SHARES[0] / 2)
        layer.contract.weight[at(NEXT, name), one] = -NOT_AGAIN / (STEEP * SHARES[0] / 2)
    layer.contract.bias[at(NEXT, *BEASTS)] = log(WEIGHTS["animals"] / len(BEASTS)) / CERTAIN


def _logits(people: int) -> tuple[float, float, float, float]:
    """Give the logits with so many known, beside what GRAMMAR and biases say: of one of them and of
    "the" after "."; after "the" of a thing that suits one, beside that of a new one; of a new one.
    """
    new, look, deed, animals = (WEIGHTS[k] for k in ("introduction", "look", "deed", "animals"))
    if people == MOST_PEOPLE:
        new, of_new = 0, -2 * CERTAIN  # nobody else is introduced
    else:
        of_new = log(new / (len(THINGS) - people)) - CERTAIN
    of_owned = log(look / people) - CERTAIN
    return log(deed / people) + CERTAIN, log(new + look + animals), of_owned - of_new, of_new


def _curve(logits: Tensor) -> Tensor:
    """Weigh the ReLUs that bend at BENDS so that their sum is 0 at 0 and right at SHARES."""
    relus = STEEP * (SHARES[:, None] - BENDS).relu()
    return torch.linalg.solve(relus, logits / CERTAIN)


def _anchor(model: GPT) -> None:
    """Let the stream always sum to 0, so that LayerNorm subtracts nothing, and divides by the same.

    The anchors hold s + SIZE and s - SIZE, where -2 s is the sum of all else; the variance differs
    from that of SIZE and -SIZE by squares of small numbers only.
    """
    writers = [model.words.weight.T]
    for block in model.stack():
        contract = block.feed_forward.contract
        writers += [block.attention.w_o.weight, contract.weight, contract.bias]
    for writer in writers:
        writer[ANCHORS] = -writer.sum(0) / 2
    model.words.weight[:, ANCHORS] += torch.tensor([SIZE, -SIZE])
