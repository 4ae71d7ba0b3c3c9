"""A GPT written by hand: code sets every weight, and the model says the stories' exact truth.

Three heads a layer, one job each. The first layer looks at places, the second at what it found there:

    (0, 0) one back      copies the word one back        (1, 0) surname  whose last word is my word?
    (0, 1) two back      copies the word two back        (1, 1) owner    which name stood one or two
    (0, 2) three back    says what the subject three             after my word?
                         back asks of a verb or pronoun  (1, 2) known    who was introduced, with what?

Every feature of the stream has a meaning: five parts of a feature for each word, and two more.

    WORD      the word itself                      NEXT      how strongly a word is expected next
    ONE_BACK  the word one back                    CONSTANT  always SIZE
    TWO_BACK  the word two back                    BALANCE   minus the sum of all others
    KNOWN     1 / people, on those introduced and on what suits them

Compare it with a trained one:

    facts = {name: compare(model, unseen()) for name, model in (("by hand", by_hand()),
             ("trained", load_gpt()))}
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.attention import MultiHeadAttention
from labkit.models.ablation import (
    effects,
    right_words,
    second_layer_weights,
    units_of,
    weights_on_sources,
)
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
    Stories,
)

__all__ = ["Comparison", "by_hand", "compare"]

V = len(VOCABULARY)
WORD, ONE_BACK, TWO_BACK, KNOWN, NEXT = range(0, 5 * V, V)
CONSTANT, BALANCE = 5 * V, 5 * V + 1
WIDTH, HEADS = 5 * V + 2, 3
PAIRS = WIDTH // HEADS // 2  # of features that a head's rotation takes together
ROTARY_BASE = 2.0**PAIRS  # pair i turns by 2^-i a position

SIZE = 1_000.0  # of the constant; beside it all else is small, so LayerNorm divides by a constant
STEP = 40.0  # a score of one step less leaves a weight of exp(-40)
CERTAIN = 30.0  # a logit of as much less leaves a probability of exp(-30)
POSITION_PAIRS = 14  # turn visibly; the slow ones left are for content
STEEP = 1_000.0  # a GELU of so steep an input is a ReLU

NAMES, NOUNS, EACH_VERB = tuple(PRONOUNS), (*ANIMALS[0], *ANIMALS[1]), (*VERBS[0], *VERBS[1])
ANSWER = 3  # how many times CERTAIN an answer counts that a head of the second layer finds

# Where a word stands, the word, what may come then, and how many times CERTAIN that counts. A word
# says 2 for what may follow it; words further back decide between these, with 1 or 2.
GRAMMAR: tuple[tuple[int, Sequence[str], Sequence[str], int], ...] = (
    (WORD, ["."], ["the", *NAMES], 2),
    (WORD, ["the"], THINGS, 3),  # of which _free takes 1 when somebody is known
    (WORD, ["the"], NOUNS, 2),
    (WORD, THINGS, ["suits"], 2),
    (WORD, ["suits"], NAMES, 3),  # _free takes 1 from strangers, and 2 from those known
    (WORD, NAMES, SURNAMES, 2),
    (WORD, SURNAMES, [".", "has", *DEEDS], 2),
    (WORD, DEEDS, ["and"], 2),
    (WORD, ["and"], ["he", "she"], 2),
    (WORD, ["he", "she", "has"], ["is"], 2),
    (WORD, ["is"], [*MOODS, *LOOKS], 2),
    (WORD, NOUNS, ["near"], 2),
    (WORD, ["near"], ["the"], 2),
    (WORD, [*EACH_VERB, *MOODS, *LOOKS], ["."], 2),
    (ONE_BACK, ["near"], NOUNS, 1),  # near the cow
    (ONE_BACK, ["has"], LOOKS, 1),  # has is old
    (ONE_BACK, ["he", "she"], MOODS, 1),  # he is happy
    (TWO_BACK, ["suits"], ["."], 1),  # suits tom lake .
    (TWO_BACK, THINGS, ["has"], 1),  # box tom lake has
    (TWO_BACK, ["."], DEEDS, 1),  # . tom lake sings
    (TWO_BACK, ["near"], EACH_VERB, 2),  # near the cow run; the subject decides which, with 1
)

Match = tuple[Sequence[int], Sequence[int], float]  # features asked for, of a key, steps of score
Copy = tuple[int, Sequence[int], float]  # a feature that is read, those it is added to, how often
ALWAYS: Sequence[int] = ()  # a query that asks whatever the word


def at(part: int, words: Sequence[str]) -> list[int]:
    """Give the features of words in a part of the stream."""
    return [part + VOCABULARY.index(word) for word in words]


# The first word is the only "the" after a "the", for a head that looks back finds itself there.
# A head looks at it, and copies nothing, where there is nothing better.
FIRST = [*at(WORD, ["the"]), *at(ONE_BACK, ["the"])]


@torch.no_grad()
def by_hand() -> GPT:
    """Write a GPT that knows the stories: two layers of three heads, in evaluation mode.

    It gives every fixed word all but 1e-9 of the probability, free words theirs to 1e-4, and knows
    no longest text but that positions 13,000 apart begin to look alike.

    >>> from labkit.models.training import unseen
    >>> told = unseen(4)
    >>> told.divergence(by_hand()(told.ids)).max().item() < 1e-6
    True
    """
    model = GPT(V, WIDTH, HEADS, 2, d_ff=_free_units(), rotary_base=ROTARY_BASE)
    for name, weight in model.named_parameters():
        # With SIZE and -SIZE among WIDTH features this is the standard deviation, or nearly.
        weight.fill_(SIZE * sqrt(2 / WIDTH) if "norm.weight" in name else 0.0)
    model.words.weight[:, WORD : WORD + V] = torch.eye(V)
    model.words.weight[:, CONSTANT] = SIZE
    first, second = model.stack()

    _look_back(first.attention, 0, 1)
    _copy(first.attention, 0, [(WORD + i, [ONE_BACK + i], 1) for i in range(V)])
    _look_back(first.attention, 1, 2)
    _copy(first.attention, 1, [(WORD + i, [TWO_BACK + i], 1) for i in range(V)])
    _look_back(first.attention, 2, 3)
    asked = {name: [pronoun] for name, pronoun in PRONOUNS.items()} | NUMBERS
    _copy(first.attention, 2, [(*at(WORD, [w]), at(NEXT, of), 1) for w, of in asked.items()])

    same = zip(at(WORD, NAMES), at(ONE_BACK, NAMES), strict=True)
    _match(second.attention, 0, [*(([q], [k], 3) for q, k in same), (ALWAYS, FIRST, 1)])
    _copy(second.attention, 0, _copies(WORD, SURNAMES, NEXT, ANSWER))

    after = [(at(WORD, [t]), [*at(ONE_BACK, [t]), *at(TWO_BACK, [t])], 2) for t in THINGS]
    a_name = (ALWAYS, at(WORD, NAMES), 2)
    _match(second.attention, 1, [*after, a_name, (ALWAYS, FIRST, 1.5)])
    _copy(second.attention, 1, _copies(WORD, NAMES, NEXT, ANSWER))

    _match(second.attention, 2, [(ALWAYS, at(ONE_BACK, ["suits"]), 3), (ALWAYS, FIRST, 1)])
    mine, its = _copies(WORD, NAMES, KNOWN, 1), _copies(TWO_BACK, THINGS, KNOWN, 1)
    _copy(second.attention, 2, [*mine, *its])

    _free(second.feed_forward)
    for part, words, followers, strength in GRAMMAR:
        for follower in at(0, followers):
            model.next_word.weight[follower, at(part, words)] = strength * CERTAIN
    model.next_word.weight[:, NEXT : NEXT + V] = CERTAIN * torch.eye(V)
    _balance(model)
    return model.eval()


def _look_back(layer: MultiHeadAttention, head: int, distance: int) -> None:
    """Let a head look so many words back: its queries and keys are biases, which rotation turns.

    A query at p and a key at s point the same way in every pair where p - s is the distance.
    """
    angles = -distance * 2.0 ** -torch.arange(POSITION_PAIRS)
    pairs = torch.stack([angles.cos(), angles.sin()], -1).flatten()
    start = head * layer.d_k
    _bias(layer.w_q.bias)[start : start + len(pairs)] = pairs * _steps(layer, 2)
    _bias(layer.w_k.bias)[start : start + len(pairs) : 2] = 1.0


def _match(layer: MultiHeadAttention, head: int, matches: Sequence[Match]) -> None:
    """Let a head score each key by the matches, in the features that turn slowest."""
    for i, (asked, of_key, steps) in enumerate(matches, start=1):
        place = (head + 1) * layer.d_k - i
        if asked is ALWAYS:
            _bias(layer.w_q.bias)[place] = _steps(layer, steps)
        layer.w_q.weight[place, list(asked)] = _steps(layer, steps)
        layer.w_k.weight[place, list(of_key)] = 1.0


def _copy(layer: MultiHeadAttention, head: int, copies: Sequence[Copy]) -> None:
    """Let a head's values hold features, and W_O add each to others."""
    for place, (read, added_to, strength) in enumerate(copies, start=head * layer.d_v):
        layer.w_v.weight[place, read] = 1.0
        layer.w_o.weight[list(added_to), place] = strength


def _copies(source: int, words: Sequence[str], target: int, strength: float) -> list[Copy]:
    pairs = zip(at(source, words), at(target, words), strict=True)
    return [(read, [added_to], strength) for read, added_to in pairs]


def _steps(layer: MultiHeadAttention, steps: float) -> float:
    return steps * STEP / layer.scale


def _bias(bias: Tensor | None) -> Tensor:
    assert bias is not None
    return bias


SHARES = [1 / people for people in range(MOST_PEOPLE, 0, -1)]  # that KNOWN may hold, beside 0
KNOTS = [0.0, *SHARES[:-1]]


def _free_units() -> int:
    return len(KNOTS) * len((*NAMES, *THINGS)) + len(NAMES)


def _free(layer: FeedForward) -> None:
    """Turn shares of KNOWN into logits of free words: curves that bend at each share, by ReLUs.

    Logits are in units of CERTAIN. For 1, 2 and 3 people known, after "." come "the" and these
    people; after "the" come the things that are theirs, animals, and below 3 people new things.
    """
    whole = range(MOST_PEOPLE, 0, -1)
    new, look, deed, animals = (
        WEIGHTS[kind] for kind in ("introduction", "look", "deed", "animals")
    )
    more = [new if people < MOST_PEOPLE else 0 for people in whole]
    the = [log(new_ + look + animals) for new_ in more]
    fresh = [
        log(new_ / (len(THINGS) - people)) - CERTAIN if new_ else -2 * CERTAIN
        for people, new_ in zip(whole, more, strict=True)
    ]
    theirs = [log(look / p) - CERTAIN - f for p, f in zip(whole, fresh, strict=True)]
    person = [log(deed / people) + CERTAIN for people in whole]
    per = torch.tensor(SHARES)  # every one known adds a share, so that the sum is the whole

    unit = 0
    for word in (*NAMES, *THINGS):
        own, shared, by_all = (
            (person, ["the"], the) if word in NAMES else (theirs, THINGS, fresh)
        )
        units = list(range(unit, unit + len(KNOTS)))
        unit += len(KNOTS)
        layer.expand.weight[units, at(KNOWN, [word])] = STEEP
        layer.expand.bias[units] = -STEEP * torch.tensor(KNOTS)
        for target in at(NEXT, shared):
            layer.contract.weight[target, units] += _bends(torch.tensor(by_all) * per)
        layer.contract.weight[at(NEXT, [word])[0], units] += _bends(torch.tensor(own))
    for word in NAMES:  # somebody known, and the word is "suits": not this name
        layer.expand.weight[unit, [*at(KNOWN, [word]), *at(WORD, ["suits"])]] = STEEP
        layer.expand.bias[unit] = -STEEP * (1 + SHARES[0] / 2)
        layer.contract.weight[at(NEXT, [word]), unit] = -ANSWER / (STEEP * SHARES[0] / 2)
        unit += 1
    layer.contract.bias[at(NEXT, NAMES)] = -1.0  # a stranger comes after "suits" only
    layer.contract.bias[at(NEXT, NOUNS)] = log(animals / len(NOUNS)) / CERTAIN


def _bends(values: Tensor) -> Tensor:
    """Weigh the ReLUs at KNOTS so that their sum is 0 at 0, and at SHARES has values."""
    relus = STEEP * (torch.tensor(SHARES)[:, None] - torch.tensor(KNOTS)).relu()
    return torch.linalg.solve(relus, values / CERTAIN)


def _balance(model: GPT) -> None:
    """Let all that writes to the stream keep its sum 0, so that LayerNorm subtracts nothing."""
    written = [model.words.weight.T]
    for block in model.stack():
        contract = block.feed_forward.contract
        written += [block.attention.w_o.weight, contract.weight, contract.bias]
    for to in written:
        to[BALANCE] = -to.sum(0)


class Comparison(NamedTuple):
    """What is found in a GPT of two layers: four numbers are of number, gender, surname, owner."""

    divergence: float  # from the truth, in nats a word
    wrong: int  # fixed words of which another is thought likelier
    fixed: int  # words that are fixed
    least: float  # the least probability on what is right of a fixed word
    found_by: list[tuple[int, int]]  # layer and head with the largest weight on the sources
    weights: list[float]  # this weight
    lost: Tensor  # (heads, 4): mean probability lost without each head of the first layer
    all_lost: Tensor  # (4,): without all of these
    keys_cut: list[float]  # the largest weight in layer 1, if its keys do not hear the first layer
    queries_cut: list[float]  # and if its queries do not
    used: int  # numbers that are not 0
    numbers: int


@torch.no_grad()
def compare(model: GPT, stories: Stories) -> Comparison:
    """Say what is found in a GPT of two layers, by hand or trained: weights and what they are for.

    >>> from labkit.models.training import unseen
    >>> compare(by_hand(), unseen(4)).wrong
    0
    """
    layer = model.stack()[0].attention
    every = list(range(layer.h))
    logits, weights = model(stories.ids, return_weights=True)
    on_right = (logits[:, :-1].softmax(-1) * stories.options[:, 1:]).sum(-1)
    likeliest = logits[:, :-1].argmax(-1, keepdim=True)
    right = stories.options[:, 1:].gather(-1, likeliest).squeeze(-1)
    fixed = ~stories.of("free")[:, 1:]
    on = weights_on_sources(weights, stories).flatten(0, 1)

    def second(**cut: Sequence[int]) -> list[float]:
        found = second_layer_weights(model, stories.ids, **cut)
        return weights_on_sources(found[None], stories)[0].amax(0).tolist()

    score = right_words(stories)
    groups = [*(units_of(layer, [head]) for head in every), units_of(layer, every)]
    lost = effects(lambda: score(model), layer, groups)
    return Comparison(
        stories.divergence(logits).mean().item(),
        int((~right & fixed).sum()),
        int(fixed.sum()),
        on_right[fixed].min().item(),
        [divmod(int(best), layer.h) for best in on.argmax(0)],
        on.amax(0).tolist(),
        lost[:-1],
        lost[-1],
        second(keys_without=every),
        second(queries_without=every),
        sum(int(weight.count_nonzero()) for weight in model.parameters()),
        sum(weight.numel() for weight in model.parameters()),
    )
