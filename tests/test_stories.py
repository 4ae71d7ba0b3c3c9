"""labkit's stories: their chances against every story there is, their relations, a batch."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.models import stories
from labkit.models.stories import (
    NUMBERS,
    RELATIONS,
    VOCABULARY,
    Stories,
    Word,
    decode,
    encode,
    story,
)
from tests.refusing import check_refusal

repeatable = settings(derandomize=True, database=None, max_examples=30)
seeds = st.integers(0, 2**31 - 1)


def tell(script: list[str], n: int) -> tuple[Fraction, list[Word], list[list[str]]]:
    """Tell a story of n words that chooses as scripted, and after that what is first.

    Returns how probable its choices are, its words, and scripts for the choices not taken.
    """
    chosen: list[str] = []
    others: list[list[str]] = []
    probability = Fraction(1)

    def choose(options: dict[str, int]) -> str:
        nonlocal probability
        if len(chosen) < len(script):
            word = script[len(chosen)]
        else:
            word, *rest = options
            others.extend([*chosen, other] for other in rest)
        chosen.append(word)
        probability *= Fraction(options[word], sum(options.values()))
        return word

    words = list(islice(story(choose), n))
    return probability, words, others


def every_story(n: int) -> Iterator[tuple[Fraction, list[Word]]]:
    """Tell every story of n words, each with the probability of the choices that lead to it."""
    scripts: list[list[str]] = [[]]
    while scripts:
        probability, words, others = tell(scripts.pop(), n)
        scripts += others
        yield probability, words


def text_of(words: list[Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def assert_chances_are_exact(told: list[tuple[Fraction, list[Word]]]) -> None:
    """Compare each word's chance and options with what follows from all the stories."""
    level = {text_of(words): probability for probability, words in told}
    assert len(level) == len(told), "the chances of a text that arises twice are not its words'"
    assert sum(level.values()) == 1
    following: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    while () not in level:
        shorter: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
        for text, probability in level.items():
            shorter[text[:-1]] += probability
        for text, probability in level.items():
            following[text[:-1]][text[-1]] = float(probability / shorter[text[:-1]])
        level = shorter
    for _, words in told:
        text = text_of(words)
        for i, word in enumerate(words):
            may = following[text[:i]]
            assert word.options.keys() == may.keys()
            assert math.isclose(word.chance, may[word.text], rel_tol=1e-12)


@pytest.fixture
def small_world(monkeypatch):
    """Leave so few words that stories of three sentences can all be told."""
    monkeypatch.setattr(stories, "PRONOUNS", {"tom": "he", "mia": "she"})
    monkeypatch.setattr(stories, "SURNAMES", ("lake", "hill"))
    monkeypatch.setattr(stories, "THINGS", ("box", "hat"))
    monkeypatch.setattr(stories, "DEEDS", ("sings",))
    monkeypatch.setattr(stories, "MOODS", ("happy", "sad"))
    monkeypatch.setattr(stories, "LOOKS", ("old",))
    monkeypatch.setattr(stories, "NUMBERS", {"dog": ("runs",), "dogs": ("run", "eat")})
    monkeypatch.setattr(stories, "MOST_PEOPLE", 2)
    stories._beginnings.cache_clear()
    stories._nouns.cache_clear()
    yield
    stories._beginnings.cache_clear()
    stories._nouns.cache_clear()


def test_every_story_of_a_small_world_has_its_chance(small_world):
    told = list(every_story(20))
    seen = {word.relation for _, words in told for word in words}
    assert seen == set(RELATIONS)
    assert_chances_are_exact(told)
    entropy = -sum(float(p) * math.log(p) for p, _ in told)
    mean = sum(float(p) * sum(-math.log(word.chance) for word in words) for p, words in told)
    assert mean == pytest.approx(entropy, rel=1e-12)


def test_every_story_of_ten_words_has_its_chance():
    n = 10
    told = list(every_story(n))
    assert_chances_are_exact(told)
    # And what is drawn is drawn with these chances: the floor comes near the entropy.
    chances = [[math.log(word.chance) for word in words[1:]] for _, words in told]
    probabilities = [float(p) for p, _ in told]
    floors = [-sum(one) / (n - 1) for one in chances]
    mean = math.fsum(p * one for p, one in zip(probabilities, floors, strict=True))
    square = math.fsum(p * one**2 for p, one in zip(probabilities, floors, strict=True))
    draws = 3000
    standard_error = math.sqrt((square - mean**2) / draws)
    assert abs(Stories.draw(draws, n, seed=0).floor - mean) < 4 * standard_error


# What the words of a story are tied to


def expected_relation(text: list[str], i: int) -> tuple[str, tuple[int, ...], set[str]]:
    """Find in the text alone what word i hangs on: relation, sources and the words it may be.

    A word that is free or given by grammar is "other".
    """
    word, before = text[i], text[max(i - 1, 0)]
    named = {text[j]: text[j + 1] for j in range(i) if j and text[j - 1] == "suits" and j + 1 < i}
    if i and before in named and word in stories.SURNAMES:
        places = [j for j in range(1, i) if text[j - 1] == before]
        return "surname", tuple(places), {named[before]}
    if word in ("he", "she"):
        return "gender", (i - 4,), {stories.PRONOUNS[text[i - 4]]}
    if before in stories.THINGS and word in named:
        places = [
            j
            for j in range(i)
            if text[j] in named and before in (text[j - 1], text[j - 2]) and j >= 2
        ]
        return "owner", tuple(places), {text[places[0]]}
    if i >= 4 and text[i - 3] == "near":
        return "number", (i - 4,), set(NUMBERS[text[i - 4]])
    return "other", (), {word}


@given(seed=seeds)
@repeatable
def test_every_fixed_word_follows_from_its_sources(seed):
    (words,) = Stories.draw(1, 90, seed).words
    text = text_of(words)
    for i, word in enumerate(words):
        relation, sources, may = expected_relation(text, i)
        if relation == "other":
            assert word.relation in ("free", "grammar")
            assert (len(word.options) > 1) == (word.relation == "free")
        else:
            assert word.relation == relation
            assert set(word.options) == may
        assert word.sources == sources
        assert all(0 <= source < i for source in sources)
        assert word.text in word.options
        assert word.options.keys() <= set(VOCABULARY)


def test_a_kind_of_sentence_has_its_weight_exactly():
    people, things = ["tom", "mia", "ben"], ["box", "hat", "cup"]
    for count in range(4):
        beginnings = stories._beginnings(*people[:count], marked=False)
        nouns = stories._nouns(*things[:count], after="the", marked=False)
        chance = Counter()
        for word, weight in beginnings.items():
            if word != "the":
                chance["deed"] += Fraction(weight, sum(beginnings.values()))
        for word, weight in nouns.items():
            kind = "animals" if word in NUMBERS else "look" if word in things[:count] else "new"
            the = Fraction(beginnings["the"], sum(beginnings.values()))
            chance[kind] += the * Fraction(weight, sum(nouns.values()))
        weights = {"new": 36} if count < 3 else {}
        weights |= {"look": 12, "deed": 12, "animals": 6} if count else {}
        total = sum(weights.values())
        assert chance == {kind: Fraction(weight, total) for kind, weight in weights.items()}
        among = defaultdict(set)
        for word, weight in nouns.items():
            among["animals" if word in NUMBERS else word in things[:count]].add(weight)
        assert all(len(weights) == 1 for weights in among.values())


# A batch of stories


def by_hand(*texts: str) -> Stories:
    """Tell the stories that these texts are."""

    def told(text: str) -> list[Word]:
        found: list[Word] = []
        for word in islice(story(lambda options: text.split()[len(found)]), len(text.split())):
            found.append(word)
        assert " ".join(text_of(found)) == text
        return found

    return Stories([told(text) for text in texts], torch.stack([encode(text) for text in texts]))


FIRST = "the box suits tom lake . tom lake sings and he is happy . the box tom lake has is old ."
SECOND = "the hat suits mia hill . the dogs near the cow run . mia hill waits and she is sad . the"


@pytest.fixture(scope="module")
def two() -> Stories:
    return by_hand(FIRST, SECOND)


def test_relations_are_where_they_are_told(two):
    n = len(FIRST.split())
    assert two.ids.shape == (2, n) == (2, 22)
    places = {"gender": [[10], [17]], "number": [[], [11]], "surname": [[7, 17], [14]]}
    places |= {
        "owner": [[16], []],
        "free": [[1, 3, 4, 6, 8, 12, 14, 15, 20], [1, 3, 4, 6, 7, 10, 13, 15, 19, 21]],
    }
    for relation, expected in places.items():
        found = two.of(relation)
        assert found.shape == (2, n)
        for b, where in enumerate(expected):
            assert found[b].nonzero().flatten().tolist() == where
    assert (sum(two.of(relation).int() for relation in RELATIONS) == 1).all()


def test_sources_stand_in_the_row_of_the_word_before(two):
    looks = {
        "gender": [(0, 9, 6), (1, 16, 13)],
        "number": [(1, 10, 7)],
        "surname": [(0, 6, 4), (0, 16, 4), (0, 16, 7), (1, 13, 4)],
        "owner": [(0, 15, 3)],
        "free": [],
        "grammar": [],
    }
    for relation, expected in looks.items():
        assert two.sources(relation).shape == (2, 22, 22)
        assert [tuple(place) for place in two.sources(relation).nonzero().tolist()] == expected


def test_options_are_the_words_that_may_stand_there(two):
    options = two.options
    assert options.shape == (2, 22, len(VOCABULARY))

    def words_at(b: int, i: int) -> set[str]:
        return {VOCABULARY[j] for j in options[b, i].nonzero().flatten()}

    assert words_at(0, 0) == {"the"}
    assert words_at(0, 1) == set(stories.THINGS)
    assert words_at(0, 10) == {"he"}
    assert words_at(1, 11) == {"run", "sleep", "jump", "eat"}
    assert words_at(1, 21) == {"the", "mia"}
    assert words_at(1, 7) == set(stories.THINGS) | set(NUMBERS)


def test_the_floor_is_the_mean_of_what_each_word_tells(two):
    # A thing, a name, a surname; the beginning and its kind; the rest as the sentence goes.
    first = [6, 8, 4, 66 / 12, 4, 4, 66 / 54, 54 / 12, 4]
    second = [6, 8, 4, 66 / 54, 54 / 6 * 8, 8, 4, 66 / 12, 4, 4, 66 / 54]
    chances = two.chances
    assert chances.dtype == torch.float64
    for b, expected in enumerate((first, second)):
        surprises = 1 / chances[b][chances[b] < 1]
        torch.testing.assert_close(surprises, torch.tensor(expected, dtype=torch.float64))
    nats = sum(map(math.log, first + second))
    assert two.floor == pytest.approx(nats / (2 * 21), rel=1e-12)


def test_what_is_right_is_averaged_over_the_words_of_a_relation(two):
    perfect = two.options.roll(-1, 1).float()
    perfect /= perfect.sum(-1, keepdim=True)
    assert two.right(perfect) == pytest.approx(dict.fromkeys(RELATIONS[1:], 1.0))
    even = torch.full_like(perfect, 1 / len(VOCABULARY))
    right = two.right(even)
    assert right["gender"] == pytest.approx(1 / len(VOCABULARY))
    assert right["number"] == pytest.approx(4 / len(VOCABULARY))
    one = perfect.clone()
    one[0, 9] = even[0, 9]  # what stands before the first of two pronouns
    assert two.right(one)["gender"] == pytest.approx((1 + 1 / len(VOCABULARY)) / 2)
    assert two.right(one)["surname"] == pytest.approx(1)
    one[:, -1] = torch.nan  # which is about a word that is not there
    assert math.isfinite(sum(two.right(one).values()))


def test_divergence_is_cross_entropy_less_entropy_word_by_word(two):
    truth = two.truth
    assert torch.equal(truth > 0, two.options)
    chances = truth.gather(-1, two.ids[..., None])[..., 0]
    torch.testing.assert_close(chances, two.chances)
    wise = truth.log().roll(-1, 1)
    assert two.divergence(wise).abs().max() < 1e-12
    even = two.divergence(torch.zeros_like(truth))
    entropy = -torch.special.xlogy(truth, truth).sum(-1)[:, 1:]
    torch.testing.assert_close(even, math.log(len(VOCABULARY)) - entropy)
    by = two.by_relation(even)
    assert by["gender"] == pytest.approx(math.log(len(VOCABULARY)))
    assert by["number"] == pytest.approx(math.log(len(VOCABULARY) / 4))
    with pytest.raises(ValueError, match=r"logits must have shape .* = \(2, 22, 56\)"):
        two.divergence(wise[:, :-1])


def test_a_seed_gives_the_same_stories():
    one, same, other = (Stories.draw(3, 40, seed) for seed in (5, 5, 6))
    assert one.ids.shape == (3, 40)
    assert one.ids.dtype == torch.long
    assert torch.equal(one.ids, same.ids)
    assert one.words == same.words
    assert not torch.equal(one.ids, other.ids)
    assert [decode(ids) for ids in one.ids] == [" ".join(text_of(words)) for words in one.words]
    assert len({decode(ids) for ids in one.ids}) == 3
    assert torch.equal(Stories.draw(2, 20, 5).ids[0], one.ids[0, :20])
    # On any machine, as the book tells them.
    told = "the map suits eva hill . the key suits ben ford . the cup suits mia ford . the key"
    assert decode(Stories.draw(1, 20, 0).ids[0]) == told


def test_drawing_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    Stories.draw(1, 9, 0)
    assert torch.equal(torch.rand(1), expected)


def test_words_and_numbers_turn_into_each_other():
    assert len(set(VOCABULARY)) == len(VOCABULARY) == 56
    every = torch.arange(56)
    assert decode(every).split() == list(VOCABULARY)
    assert torch.equal(encode(decode(every)), every)
    assert encode("").shape == (0,)
    assert encode("").dtype == torch.long


ERRORS = {
    "a strange word": (
        lambda: encode("the box suits paul and anna"),
        ValueError,
        ["56 words", "anna, paul", "labkit.models.stories.VOCABULARY"],
    ),
    "no stories": (lambda: Stories.draw(0, 9, 0), ValueError, ["count", "at least 1", "0"]),
    "no words": (lambda: Stories.draw(1, 0, 0), ValueError, ["n", "at least 1", "0"]),
    "half a word": (lambda: Stories.draw(1, 2.5, 0), TypeError, ["n", "whole", "2.5"]),
    "no seed": (lambda: Stories.draw(1, 9, None), TypeError, ["seed", "whole", "None"]),
    "a relation to find": (
        lambda: Stories.draw(1, 9, 0).of("verb"),
        ValueError,
        ["relation", ", ".join(RELATIONS), "'verb'"],
    ),
    "a relation to follow": (
        lambda: Stories.draw(1, 9, 0).sources("verb"),
        ValueError,
        ["relation", "gender", "'verb'"],
    ),
    "probabilities of another text": (
        lambda: Stories.draw(2, 9, 0).right(torch.ones(2, 8, 56)),
        ValueError,
        ["(B, n, vocabulary) = (2, 9, 56)", "(2, 8, 56)", "these stories' ids"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)
