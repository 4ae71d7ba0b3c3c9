"""Three questions to a note: cross-attention of width 2 for a pencil to follow; trained, in halves.

A note says who does what: "mia sees the dog .", where one of the three may be missing. Another
text, "who does what", asks it: queries are made from the three questions, keys and values from the
note. The layer answers each question by a word of the note, or by "?" where the note does not say.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.arguments import one_of
from labkit.models.starts import (
    Starts,
    clearest_start,
    in_halves,
    known_words,
    load,
    one_start,
    train,
)

__all__ = ["ANSWERS", "CHECKPOINT", "KINDS", "QUESTIONS", "STARTS", "WORDS", "Cross", "Judged",
    "Note", "batch", "encode", "in_halves", "judge", "load_cross", "load_crosses", "notes",
    "parted", "specimen", "train_crosses"]  # fmt: skip

CHECKPOINT = Path(__file__).with_name("cross.safetensors")
STARTS = range(20)

QUESTIONS = ("who", "does", "what")
NAMES, VERBS, ANIMALS = ("mia", "ben"), ("sees", "hears"), ("dog", "bird")
UNSAID = "?"
ANSWERS = (*NAMES, *VERBS, *ANIMALS, UNSAID)
WORDS = ("the", ".", *NAMES, *VERBS, *ANIMALS)
WIDTH, WIDER, LONGEST = 2, 3, 5
STEPS = 8_000
SHAKE = 0.25  # by how much at most every number is shaken while it learns
# "attention" and its controls read notes; the last two sentences of both orders.
KINDS = ("attention", "average", "one query", "average, width 3", "both orders",
    "both orders, positions")  # fmt: skip
VECTORS = ("words", "questions", "positions")


class Note(NamedTuple):
    """A note, the three answers, and of each the place of the word that gives it."""

    text: str
    answers: tuple[str, str, str]
    places: tuple[int | None, ...]  # None where the note does not say


def notes(kind: str = "attention") -> list[Note]:
    """List all notes that a kind of layer is asked about.

    >>> len(notes()), notes()[0]
    (20, Note(text='mia sees the dog .', answers=('mia', 'sees', 'dog'), places=(0, 1, 3)))
    >>> [len(notes(kind)) for kind in KINDS]
    [20, 20, 20, 20, 16, 16]
    """
    made = []
    if _is_ordered(kind):
        for name, verb, animal in product(NAMES, VERBS, ANIMALS):
            made.append(_note([name, verb, f"the {animal}"], (name, verb, animal)))
            made.append(_note([f"the {animal}", verb, name], (animal, verb, name)))
        return made
    for said in product((*NAMES, None), (*VERBS, None), (*ANIMALS, None)):
        if sum(word is not None for word in said) > 1:
            words = [f"the {word}" if word in ANIMALS else word for word in said if word]
            made.append(_note(words, said))
    return made


def _is_ordered(kind: str) -> bool:
    return one_of("kind", kind, KINDS).startswith("both orders")


def _note(parts: Sequence[str], said: Sequence[str | None]) -> Note:
    words = [*" ".join(parts).split(), "."]
    who, does, what = (word or UNSAID for word in said)
    places = tuple(words.index(word) if word else None for word in said)
    return Note(" ".join(words), (who, does, what), places)


def encode(text: str) -> Tensor:
    """Give the numbers of a note's words: (n,), whole numbers.

    Raises:
        ValueError: a word that the layer does not have.

    >>> encode("mia sees .")
    tensor([2, 4, 1])
    """
    return known_words(text, WORDS, __name__)


class Cross(Starts):
    """One layer in which three questions ask a note; several starts at once.

    softmax(X W_Q (C W_K)^T / sqrt(2)) C W_V, where X are the questions and C the words of the note;
    (X + output) U are the logits of the answers.

    Args:
        seeds: one for each start; each draws its weights from a normal distribution, that of the
            vectors of standard deviation 0.3, of the matrices 1 / sqrt(2).
        kind: "attention", or a control: "average", which gives all words the same weight, also of
            "width 3", and "one query", in which all questions ask by the query of the first; or
            "both orders", which reads "the dog sees mia ." too, without positions or with
            "positions" added.

    Raises:
        ValueError: another kind.

    >>> logits, weights = Cross([0, 1])(encode("mia sees the dog ."))
    >>> logits.shape, weights.shape
    (torch.Size([2, 3, 7]), torch.Size([2, 3, 5]))
    """

    words: Tensor
    questions: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    U: Tensor
    positions: Tensor

    KINDS, VECTORS, DEVIATION = KINDS, VECTORS, 0.3

    def __init__(self, seeds: Sequence[int], kind: str = "attention") -> None:
        super().__init__(seeds, kind)

    def shapes(self) -> dict[str, tuple[int, int]]:
        d = WIDER if self.kind.endswith("width 3") else WIDTH
        shapes = {"words": (len(WORDS), d), "questions": (len(QUESTIONS), d), "W_Q": (d, d),
            "W_K": (d, d), "W_V": (d, d), "U": (d, len(ANSWERS))}  # fmt: skip
        return shapes | ({"positions": (LONGEST, d)} if self.kind.endswith("positions") else {})

    def forward(self, ids: Tensor, is_word: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Give the answers' logits, (starts, ..., 3, 7), and the weights, (starts, ..., 3, n).

        Args:
            ids: (..., n), the numbers of a note's words.
            is_word: (..., n), False where a shorter note was filled up; all are words if None.
        """
        memory = self.words[:, ids]
        if "positions" in self.shapes():
            memory = memory + self._over(self.positions, ids)[..., : ids.shape[-1], :]
        x = self._over(self.questions, ids)
        q = x @ self._over(self.W_Q, ids)
        if self.kind == "one query":
            q = q[..., :1, :].expand_as(q)
        scores = q @ (memory @ self._over(self.W_K, ids)).mT / q.shape[-1] ** 0.5
        if self.kind.startswith("average"):
            scores = torch.zeros_like(scores)
        if is_word is not None:
            scores = scores.masked_fill(~is_word.unsqueeze(-2), -torch.inf)
        weights = scores.softmax(-1)
        output = weights @ (memory @ self._over(self.W_V, ids))
        return (x + output) @ self._over(self.U, ids), weights


def batch(given: Sequence[Note]) -> tuple[Tensor, Tensor, Tensor]:
    """Give notes as numbers, filled up at their end, which are words, and the answers, (..., 3).

    >>> ids, is_word, answers = batch(notes()[:2])
    >>> ids.shape, is_word.shape, answers.tolist()
    (torch.Size([2, 5]), torch.Size([2, 5]), [[0, 2, 4], [0, 2, 5]])
    """
    rows = [encode(note.text) for note in given]
    n = max(map(len, rows))
    ids = torch.stack([F.pad(row, (0, n - len(row)), value=-1) for row in rows])
    answers = torch.tensor([[ANSWERS.index(word) for word in note.answers] for note in given])
    return ids.clamp(min=0), ids >= 0, answers


def parted(kind: str = "attention") -> tuple[list[Note], list[Note]]:
    """Part the notes of a kind: a quarter, drawn at random, that no training sees.

    >>> [len(part) for part in parted()]
    [15, 5]
    """
    every = notes(kind)
    unseen = random.Random(0).sample(every, len(every) // 4)
    return [note for note in every if note not in unseen], unseen


def train_crosses(seeds: Sequence[int], steps: int = STEPS, kind: str = "attention") -> Cross:
    """Train several starts at once, each as if alone: AdamW on the sum of their losses.

    The rate is 0.02, the weight decay 0.01, and each step takes all notes to train on. All numbers
    are shaken in each step but the last 200, by up to a quarter up or down, so that halves will do.

    >>> train_crosses([0], steps=1).U.shape
    torch.Size([1, 2, 7])
    """
    ids, is_word, answers = batch(parted(kind)[0])
    model = Cross(seeds, kind)
    return train(model, (ids, is_word), answers, steps, decay=0.01, shake=SHAKE)


class Judged(NamedTuple):
    """What starts do on all questions: each field has one number a start."""

    right: Tensor  # questions whose answer is the likeliest
    unseen: Tensor  # of these, to notes that no training saw
    surest: Tensor  # the least probability of a right answer
    on_word: Tensor  # the least weight of the word that answers, where there is one


@torch.no_grad()
def judge(model: Cross) -> Judged:
    """Ask each start of a model all questions of its kind.

    >>> judge(load_cross()).right
    tensor([60])
    """
    every, (_, unseen) = notes(model.kind), parted(model.kind)
    ids, is_word, answers = batch(every)
    logits, weights = model(ids, is_word)
    right = logits.argmax(-1) == answers
    p = logits.softmax(-1).gather(-1, answers.expand(len(logits), -1, -1).unsqueeze(-1))
    least = torch.stack([
        weights[:, i, question, place]
        for i, note in enumerate(every)
        for question, place in enumerate(note.places)
        if place is not None
    ]).amin(0)  # fmt: skip
    held_out = [i for i, note in enumerate(every) if note in unseen]
    return Judged(right.sum((1, 2)), right[:, held_out].sum((1, 2)), p.flatten(1).amin(1), least)


def specimen(model: Cross) -> int:
    """Find the start that, in halves, looks most clearly at the words that answer.

    It gives every right answer a probability of 0.95 or more. Clearly: by the least weight that a
    word that answers has in any note.

    Raises:
        ValueError: no start answers every question so.
    """
    judged = judge(in_halves(model))
    return clearest_start(judged.surest, judged.on_word)


def load_crosses(kind: str = "attention") -> Cross:
    """Load the twenty trained starts of a kind, as training left them.

    Raises:
        FileNotFoundError: their file is missing.
        ValueError: another kind.
    """
    return load(Cross(STARTS, kind), CHECKPOINT)


def load_cross() -> Cross:
    """Load the one start that the book follows, every number rounded to a multiple of one half.

    Raises:
        FileNotFoundError: the file of trained starts is missing.

    >>> load_cross().questions.shape
    torch.Size([1, 3, 2])
    """
    starts = load_crosses()
    return one_start(starts, specimen(starts))
