"""Tiny stories, in which every word is free, or fixed by earlier words that can be named.

    the box suits tom lake . tom lake sings and he is happy . the dogs near the cow run .
    the box tom lake has is old .

A verb takes its number from the animal before the distractor, a pronoun its gender from the name. A
surname is free at its first mention and fixed after it. Whom a thing suits is free as well; from
then on that person has it. What may stand at a place, and how likely, follows from the words before
it alone. So the entropy of the text is known exactly, and for each word that is fixed, where a
model has to look.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.arguments import size, whole

__all__ = ["NUMBERS", "RELATIONS", "VOCABULARY", "Stories", "Teller", "Word", "decode", "encode",
    "story"]  # fmt: skip

MEN, WOMEN = ("tom", "max", "ben", "sam"), ("mia", "ann", "eva", "liz")
PRONOUNS = dict.fromkeys(MEN, "he") | dict.fromkeys(WOMEN, "she")
SURNAMES = ("lake", "hill", "wood", "ford")
THINGS = ("box", "hat", "cup", "key", "pen", "map")
DEEDS = ("sings", "reads", "waits", "plays")
MOODS = ("happy", "sad", "tired", "calm")
LOOKS = ("old", "new", "big", "red")
ANIMALS = (("dog", "cat", "bird", "cow"), ("dogs", "cats", "birds", "cows"))  # one, several
VERBS = (("runs", "sleeps", "jumps", "eats"), ("run", "sleep", "jump", "eat"))
NUMBERS = {animal: VERBS[number] for number in (0, 1) for animal in ANIMALS[number]}
FIXED = (".", "the", "a", "suits", "has", "is", "and", "near")
VOCABULARY = (
    *FIXED, *PRONOUNS, "he", "she", *SURNAMES, *THINGS, *DEEDS, *MOODS, *LOOKS,
    *ANIMALS[0], *ANIMALS[1], *VERBS[0], *VERBS[1],
)  # fmt: skip
RELATIONS = ("free", "grammar", "number", "gender", "surname", "owner")
MOST_PEOPLE = 3
WEIGHTS = {"introduction": 36, "look": 12, "deed": 12, "animals": 6}  # of the kinds of sentence
SHARES = 120  # divides evenly among as many nouns as can come

_INDEX = {word: i for i, word in enumerate(VOCABULARY)}


class Word(NamedTuple):
    """A word of a story, what it depends on, and what else might have stood there."""

    text: str
    relation: str  # one of RELATIONS
    sources: tuple[int, ...]  # where in the story its answer can be read; none where it is free
    options: dict[str, int]  # every word that may stand here, with its weight

    @property
    def chance(self) -> float:
        """The probability of this word after the words before it."""
        return self.options[self.text] / sum(self.options.values())


Choose = Callable[[dict[str, int]], str]


class _Person(NamedTuple):
    surname: str
    thing: str
    surnames: list[int]  # where the surname stood
    names: list[int]  # where the name stood with the thing


def story(
    choose: Choose,
    *,
    marked: bool = False,
    most_people: int | None = None,
    surnames: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Word]:
    """Tell a story without end, word by word.

    Args:
        choose: returns one of the words of a dictionary of weights.
        marked: begin with "a" and not with "the" where a thing is new.
        most_people: how many can be introduced; MOST_PEOPLE unless given.
        surnames: which a name may have; SURNAMES, each of them, unless given.

    >>> [word.text for word in islice(story(min), 6)]
    ['the', 'box', 'suits', 'ann', 'ford', '.']
    """
    teller = Teller(choose, marked, most_people, surnames)
    while True:
        yield from teller.sentence()


class Teller:
    """The state of a story: who was named, and how many words were said.

    >>> len(list(Teller(min).sentence()))
    6
    """

    def __init__(
        self,
        choose: Choose,
        marked: bool = False,
        most_people: int | None = None,
        surnames: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.choose = choose
        self.marked = marked
        self.surnames = dict.fromkeys(PRONOUNS, SURNAMES) if surnames is None else surnames
        self.most_people = most_people
        self.place = -1  # of the word said last
        self.people: dict[str, _Person] = {}

    def sentence(self) -> Iterator[Word]:
        beginnings = _beginnings(*self.people, marked=self.marked, most=self.most_people)
        first = self.say("free" if self.people else "grammar", beginnings)
        yield first
        if first.text in self.people:
            yield from self.deed(first.text)
        else:
            owners = {person.thing: name for name, person in self.people.items()}
            nouns = _nouns(*owners, after=first.text, marked=self.marked, most=self.most_people)
            noun = self.say("free", nouns)
            yield noun
            if noun.text in NUMBERS:
                yield from self.animals(noun.text)
            elif noun.text in owners:
                yield from self.look(owners[noun.text])
            else:
                yield from self.introduction(noun.text)
        yield self.grammar(".")

    def introduction(self, thing: str) -> Iterator[Word]:
        yield self.grammar("suits")
        strangers = [name for name in PRONOUNS if name not in self.people]
        name = self.say("free", _equal(*strangers))
        yield name
        surname = self.say("free", _equal(*self.surnames[name.text]))
        yield surname
        person = _Person(surname.text, thing, [self.place], [self.place - 1])
        self.people[name.text] = person

    def look(self, owner: str) -> Iterator[Word]:
        person = self.people[owner]
        yield self.say("owner", _equal(owner), person.names)
        person.names.append(self.place)
        yield self.surname(person)
        yield self.grammar("has")
        yield self.grammar("is")
        yield self.say("free", _equal(*LOOKS))

    def deed(self, name: str) -> Iterator[Word]:
        name_at = self.place
        yield self.surname(self.people[name])
        yield self.say("free", _equal(*DEEDS))
        yield self.grammar("and")
        yield self.say("gender", _equal(PRONOUNS[name]), [name_at])
        yield self.grammar("is")
        yield self.say("free", _equal(*MOODS))

    def animals(self, subject: str) -> Iterator[Word]:
        subject_at = self.place
        yield self.grammar("near")
        yield self.grammar("the")
        yield self.say("free", _equal(*NUMBERS))
        yield self.say("number", _equal(*NUMBERS[subject]), [subject_at])

    def surname(self, person: _Person) -> Word:
        word = self.say("surname", _equal(person.surname), person.surnames)
        person.surnames.append(self.place)
        return word

    def grammar(self, text: str) -> Word:
        return self.say("grammar", _equal(text))

    def say(self, relation: str, options: dict[str, int], sources: Sequence[int] = ()) -> Word:
        self.place += 1
        text = self.choose(options) if len(options) > 1 else next(iter(options))
        return Word(text, relation, tuple(sources), options)


@cache
def _equal(*words: str) -> dict[str, int]:
    return dict.fromkeys(words, 1)


@cache
def _beginnings(*people: str, marked: bool, most: int | None = None) -> dict[str, int]:
    """Weigh the words that can begin a sentence, for those named so far."""
    weights: dict[str, int] = {}
    for kind, weight in _kinds(len(people), most).items():
        if kind == "deed":
            weights |= dict.fromkeys(people, weight // len(people))
        else:
            first = "a" if marked and kind == "introduction" else "the"
            weights[first] = weights.get(first, 0) + weight
    return weights


@cache
def _nouns(*owned: str, after: str, marked: bool, most: int | None = None) -> dict[str, int]:
    """Weigh the nouns that can follow a first word, for the things owned so far."""
    new = [thing for thing in THINGS if thing not in owned]
    words = {"introduction": new, "look": owned, "animals": list(NUMBERS)}
    return {
        word: weight * SHARES // len(words[kind])
        for kind, weight in _kinds(len(owned), most).items()
        if kind != "deed" and (not marked or (kind == "introduction") == (after == "a"))
        for word in words[kind]
    }


def _kinds(people: int, most: int | None) -> dict[str, int]:
    """Weigh the kinds of sentence that can come when so many people are known."""
    most = MOST_PEOPLE if most is None else most
    left_out = {0: {"look", "animals", "deed"}, most: {"introduction"}}.get(people, set())
    return {kind: weight for kind, weight in WEIGHTS.items() if kind not in left_out}


def encode(text: str) -> Tensor:
    """Give the numbers of the words of a text: (n,), whole numbers.

    Raises:
        ValueError: a word that the stories do not have.

    >>> decode(encode("the box suits mia"))
    'the box suits mia'
    """
    words = text.split()
    strange = sorted(set(words) - set(_INDEX))
    if strange:
        raise ValueError(
            f"the stories' {len(VOCABULARY)} words do not include {', '.join(strange)}. "
            "See labkit.models.stories.VOCABULARY."
        )
    return torch.tensor([_INDEX[word] for word in words], dtype=torch.long)


def decode(ids: Tensor) -> str:
    """Give the text of numbers of words, (n,): the inverse of encode."""
    return " ".join(VOCABULARY[i] for i in ids.tolist())


@dataclass(frozen=True)
class Stories:
    """A batch of stories, each cut after n words. Position i holds the words 0 to i, and a model
    that reads it has to say word i + 1.
    """

    words: list[list[Word]]  # B stories of n words
    ids: Tensor  # (B, n), their numbers

    @classmethod
    def draw(
        cls,
        count: int,
        n: int,
        seed: int,
        *,
        marked: bool = False,
        most_people: int | None = None,
        surnames: Mapping[str, Sequence[str]] | None = None,
    ) -> Stories:
        """Draw stories.

        Args:
            count: how many, B.
            n: words of each.
            seed: a whole number; the same one gives the same stories.
            marked: begin with "a" and not with "the" where a thing is new.
            most_people: as in story.
            surnames: as in story.

        >>> Stories.draw(2, 8, seed=0).ids.shape
        torch.Size([2, 8])
        """
        count, n = size("count", count), size("n", n)
        rng = random.Random(whole("seed", seed))

        def choose(options: dict[str, int]) -> str:
            return rng.choices(tuple(options), tuple(options.values()))[0]

        def tell() -> Iterator[Word]:
            return story(choose, marked=marked, most_people=most_people, surnames=surnames)

        words = [list(islice(tell(), n)) for _ in range(count)]
        ids = torch.tensor([[_INDEX[word.text] for word in row] for row in words])
        return cls(words, ids)

    @property
    def chances(self) -> Tensor:
        """The probability of each word after those before it, (B, n), float64."""
        chances = [[word.chance for word in words] for words in self.words]
        return torch.tensor(chances, dtype=torch.float64)

    @property
    def floor(self) -> float:
        """The least cross-entropy that any model can have here on average, in nats a word.

        The first word is given, so it does not count.
        """
        return -self.chances[:, 1:].log().mean().item()

    @property
    def options(self) -> Tensor:
        """Which words may stand where, (B, n, vocabulary), boolean."""
        may = torch.zeros(*self.ids.shape, len(VOCABULARY), dtype=torch.bool)
        for b, words in enumerate(self.words):
            for i, word in enumerate(words):
                may[b, i, [_INDEX[option] for option in word.options]] = True
        return may

    @property
    def truth(self) -> Tensor:
        """The true distribution of each word after those before it: (B, n, vocabulary), float64."""
        p = torch.zeros(*self.ids.shape, len(VOCABULARY), dtype=torch.float64)
        for b, words in enumerate(self.words):
            for i, word in enumerate(words):
                may = [_INDEX[option] for option in word.options]
                weights = torch.tensor([*word.options.values()], dtype=torch.float64)
                p[b, i, may] = weights / weights.sum()
        return p

    def divergence(self, logits: Tensor) -> Tensor:
        """Give the Kullback-Leibler divergence of what a model says from the truth, in nats.

        Args:
            logits: (B, n, vocabulary); [b, i] is about word i + 1, so the last is not used.

        Returns:
            (B, n - 1), float64, each from 0 up: what the model's distribution of word i + 1 costs
            above the entropy of that word. Its mean is the cross-entropy of a model less the floor,
            without the luck of which words were drawn.

        Raises:
            ValueError: another shape.

        >>> told = Stories.draw(2, 8, seed=0)
        >>> wise = told.truth.log().roll(-1, dims=1)
        >>> told.divergence(wise).abs().max().item() < 1e-12
        True
        """
        self._check_form("logits", logits)
        truth = self.truth[:, 1:]
        said = logits[:, :-1].double().log_softmax(-1)
        return torch.where(truth > 0, truth * (truth.log() - said), 0.0).sum(-1)

    def by_relation(self, values: Tensor) -> dict[str, float]:
        """Average values over the words of each relation.

        Args:
            values: (B, n - 1), such as divergences; [b, i] is about word i + 1.

        >>> told = Stories.draw(2, 8, seed=0)
        >>> told.by_relation(torch.ones(2, 7))["free"]
        1.0
        """
        found = {name: values[self.of(name)[:, 1:]] for name in RELATIONS}
        return {name: of.mean().item() for name, of in found.items() if len(of)}

    def of(self, relation: str) -> Tensor:
        """Say which words are of a relation, (B, n), boolean.

        Raises:
            ValueError: not one of RELATIONS.
        """
        _check(relation)
        return torch.tensor([[word.relation == relation for word in words] for words in self.words])

    def sources(self, relation: str) -> Tensor:
        """Say where the answer can be read, (B, n, n), boolean, for a relation's words.

        [b, i, j] is True where word i + 1 is of the relation and word j is one of its sources: what
        the query at position i has to look at, directly or through other positions.

        Raises:
            ValueError: not one of RELATIONS.
        """
        _check(relation)
        looks = torch.zeros(*self.ids.shape, self.ids.shape[1], dtype=torch.bool)
        for b, words in enumerate(self.words):
            for i, word in enumerate(words[1:]):
                if word.relation == relation:
                    looks[b, i, list(word.sources)] = True
        return looks

    def on_right(self, probabilities: Tensor) -> Tensor:
        """Give what a model gives to the words that may stand there, all together: (B, n - 1).

        Args:
            probabilities: as in right.

        Raises:
            ValueError: another shape.

        >>> told = Stories.draw(2, 8, seed=0)
        >>> told.on_right(told.truth.roll(-1, dims=1)).shape
        torch.Size([2, 7])
        """
        self._check_form("probabilities", probabilities)
        return (probabilities[:, :-1] * self.options[:, 1:]).sum(-1)

    def right(self, probabilities: Tensor) -> dict[str, float]:
        """Average what a model gives to the words that may stand where a relation fixes them.

        Args:
            probabilities: (B, n, vocabulary); [b, i] is about word i + 1, so the last is not used.

        Returns:
            For each relation but "free", a number from 0 to 1. For a verb it is the sum over the
            verbs of the right number.

        Raises:
            ValueError: another shape.
        """
        on_right = self.on_right(probabilities)
        return {name: on_right[self.of(name)[:, 1:]].mean().item() for name in RELATIONS[1:]}

    def _check_form(self, name: str, values: Tensor) -> None:
        form = (*self.ids.shape, len(VOCABULARY))
        if values.shape != form:
            raise ValueError(
                f"{name} must have shape (B, n, vocabulary) = {form}; got {tuple(values.shape)}. "
                "Give the model these stories' ids."
            )


def _check(relation: str) -> None:
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}; got {relation!r}.")
