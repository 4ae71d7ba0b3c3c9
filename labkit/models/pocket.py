"""The pocket model: fifteen words, one head of width 2, and two questions; trained, in halves.

A sentence ends in "and" or in "a", and the layer says the next word from there: after "and" *she*,
*he* or *it*, as the person in the sentence decides; after "a" *book*, *song* or *cake*, as the verb
decides. Word vectors, queries, keys and values all have two numbers, so all can be drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.models.starts import (
    Starts,
    clearest_start,
    in_halves,
    known_words,
    load,
    one_start,
    train,
)

__all__ = ["ANSWERS", "CHECKPOINT", "KINDS", "STARTS", "WORDS", "Judged", "Pocket", "Sentence",
    "batch", "encode", "in_halves", "judge", "load_pocket", "load_pockets", "parted",
    "sentences", "specimen", "train_pockets"]  # fmt: skip

CHECKPOINT = Path(__file__).with_name("pocket.safetensors")
STARTS = range(20)

PRONOUNS = dict(mia="she", eva="she", ann="she", ben="he", tom="he", leo="he")
OBJECTS = dict(reads="book", sings="song", bakes="cake")
ANIMALS = ("dog", "bird")
WORDS = ("the", "and", "a", "sees", *OBJECTS, *ANIMALS, *PRONOUNS)
ANSWERS = ("she", "he", "it", *OBJECTS.values())
WIDTH = 2
STEPS = 4_000
KINDS = ("attention", "average", "one vector")
HELD_OUT = 18  # sentences, a quarter


class Sentence(NamedTuple):
    """A sentence, the word that has to follow, and the place of the word that decides it."""

    text: str
    answer: str
    decides: int | None  # None where no person is there, so that "it" follows


def sentences() -> list[Sentence]:
    """List all sentences of the pocket model.

    >>> len(sentences()), sentences()[0]
    (74, Sentence(text='mia reads and', answer='she', decides=0))
    """
    made = []
    for subject in (*PRONOUNS, *(f"the {animal}" for animal in ANIMALS)):
        made += [f"{subject} {verb} {last}" for verb in OBJECTS for last in ("and", "a")]
    for animal in ANIMALS:
        made += [f"{name} sees the {animal} and" for name in PRONOUNS]
        made += [f"the {animal} sees {name} and" for name in PRONOUNS]
    made += ["the dog sees the bird and", "the bird sees the dog and"]
    return [_judged(text) for text in made]


def _judged(text: str) -> Sentence:
    words = text.split()
    answers, otherwise = (PRONOUNS, "it") if words[-1] == "and" else (OBJECTS, "")
    place = next((i for i, word in enumerate(words) if word in answers), None)
    return Sentence(text, otherwise if place is None else answers[words[place]], place)


def encode(text: str) -> Tensor:
    """Give the numbers of a text's words: (n,), whole numbers.

    Raises:
        ValueError: a word that the model does not have.

    >>> encode("mia reads and")
    tensor([9, 4, 1])
    """
    return known_words(text, WORDS, __name__)


class Pocket(Starts):
    """One layer of attention that reads a sentence and says its next word; several starts at once.

    softmax(q K^T / sqrt(2)) V, where q = x W_Q is made of the last word alone, and K = X W_K and
    V = X W_V of all words; (x + output) U are the logits of the answers.

    Args:
        seeds: one for each start; each draws its weights from a normal distribution, that of the
            word vectors of standard deviation 1, of the matrices 1 / sqrt(2).
        kind: "attention", or a control: "average", which gives all words the same weight whatever
            their scores, or "one vector", whose values are its keys.

    Raises:
        ValueError: another kind.

    >>> model = Pocket([0, 1])
    >>> logits, weights = model(encode("the dog sees mia and"))
    >>> logits.shape, weights.shape
    (torch.Size([2, 6]), torch.Size([2, 5]))
    """

    vectors: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    U: Tensor

    KINDS, VECTORS, DEVIATION = KINDS, ("vectors",), 1.0

    def __init__(self, seeds: Sequence[int], kind: str = "attention") -> None:
        super().__init__(seeds, kind)

    def shapes(self) -> dict[str, tuple[int, int]]:
        d = WIDTH
        return {"vectors": (len(WORDS), d), "W_Q": (d, d), "W_K": (d, d), "W_V": (d, d),
            "U": (d, len(ANSWERS))}  # fmt: skip

    def forward(self, ids: Tensor, is_word: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Give the logits of the answers, (starts, ..., 6), and the weights, (starts, ..., n).

        Args:
            ids: (..., n), the numbers of words; the last one asks.
            is_word: (..., n), False where a shorter sentence was filled up; all are words if None.
        """
        last = self.W_K if self.kind == "one vector" else self.W_V
        w_q, w_k, w_v, u = (self._over(w, ids) for w in (self.W_Q, self.W_K, last, self.U))
        x = self.vectors[:, ids]
        scores = (x[..., -1:, :] @ w_q) @ (x @ w_k).mT / WIDTH**0.5
        if self.kind == "average":
            scores = torch.zeros_like(scores)
        if is_word is not None:
            scores = scores.masked_fill(~is_word.unsqueeze(-2), -torch.inf)
        weights = scores.softmax(-1)
        after = x[..., -1:, :] + weights @ (x @ w_v)
        return (after @ u).squeeze(-2), weights.squeeze(-2)


def batch(given: Sequence[Sentence]) -> tuple[Tensor, Tensor, Tensor]:
    """Give sentences as numbers, filled up at their front, which are words, and the answers.

    >>> ids, is_word, answers = batch(sentences()[:2])
    >>> ids.shape, is_word.shape, answers.tolist()
    (torch.Size([2, 3]), torch.Size([2, 3]), [0, 3])
    """
    rows = [encode(sentence.text) for sentence in given]
    n = max(map(len, rows))
    ids = torch.stack([F.pad(row, (n - len(row), 0), value=-1) for row in rows])
    answers = torch.tensor([ANSWERS.index(sentence.answer) for sentence in given])
    return ids.clamp(min=0), ids >= 0, answers


def parted() -> tuple[list[Sentence], list[Sentence]]:
    """Part the sentences into 56 to train on and 18, drawn at random, that no training sees.

    >>> [len(part) for part in parted()]
    [56, 18]
    """
    every = sentences()
    unseen = random.Random(0).sample(every, HELD_OUT)
    return [sentence for sentence in every if sentence not in unseen], unseen


def train_pockets(seeds: Sequence[int], steps: int = STEPS, kind: str = "attention") -> Pocket:
    """Train several starts at once, each as if alone: AdamW on the sum of their losses.

    The rate is 0.02, the weight decay 0.1, and each step takes all sentences to train on.

    >>> train_pockets([0], steps=1).U.shape
    torch.Size([1, 2, 6])
    """
    ids, is_word, answers = batch(parted()[0])
    return train(Pocket(seeds, kind), (ids, is_word), answers, steps, decay=0.1)


class Judged(NamedTuple):
    """What starts do on all sentences: each field has one number a start."""

    right: Tensor  # sentences whose answer is the likeliest
    surest: Tensor  # the least probability of a right answer
    on_name: Tensor  # the least weight of "and" on the person, where there is one
    on_verb: Tensor  # the least weight of "a" on the verb


@torch.no_grad()
def judge(model: Pocket) -> Judged:
    """Try all sentences on each start of a model.

    >>> judge(load_pocket()).right
    tensor([74])
    """
    every = sentences()
    ids, is_word, answers = batch(every)
    logits, weights = model(ids, is_word)
    p = logits.softmax(-1).gather(-1, answers.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    n = ids.shape[1]
    least = {}
    for last in ("and", "a"):
        asked = [
            (i, n - len(one.text.split()) + one.decides)
            for i, one in enumerate(every)
            if one.decides is not None and one.text.endswith(f" {last}")
        ]
        rows, places = map(list, zip(*asked, strict=True))
        least[last] = weights[:, rows, places].amin(-1)
    right = (logits.argmax(-1) == answers).sum(-1)
    return Judged(right, p.amin(-1), least["and"], least["a"])


def specimen(model: Pocket) -> int:
    """Find the start that, in halves, looks most clearly at the words that decide.

    It answers every sentence with a probability of 0.95 or more. Clearly: by the least weight that
    the deciding word has in any sentence.

    Raises:
        ValueError: no start answers every sentence so.
    """
    judged = judge(in_halves(model))
    return clearest_start(judged.surest, torch.minimum(judged.on_name, judged.on_verb))


def load_pockets(kind: str = "attention") -> Pocket:
    """Load the twenty trained starts of a kind, as training left them.

    Raises:
        FileNotFoundError: their file is missing.
        ValueError: another kind.
    """
    return load(Pocket(STARTS, kind), CHECKPOINT)


def load_pocket() -> Pocket:
    """Load the one start that the book follows, every number rounded to a multiple of one half.

    Raises:
        FileNotFoundError: the file of trained starts is missing.

    >>> load_pocket().W_K[0] + 0.0
    tensor([[-2.,  0.],
            [ 2.,  0.]], dtype=torch.float64)
    """
    starts = load_pockets()
    return one_start(starts, specimen(starts))
