"""Two needs at one word: who called, and whom; heads of width 2 for a pencil to follow, in halves.

"mia calls ben now and" goes on with two pronouns, "she ... him". Both are needed at one word,
"and": the first follows from the subject, the second from the object, and both are names. So a
plain average of the words does not tell who called whom.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.attention import merge_heads, split_heads
from labkit.models.starts import (
    Starts,
    clearest_start,
    in_halves,
    known_words,
    load,
    one_start,
    train,
)

__all__ = ["ANSWERS", "CHECKPOINT", "D_MODEL", "KINDS", "LENGTH", "STARTS", "WORDS", "Judged",
    "Sentence", "TwoNeeds", "batch", "clearest", "encode", "in_halves", "judge", "load_all_starts",
    "load_two_needs", "parted", "sentences", "specimen",
    "train_two_needs"]  # fmt: skip

CHECKPOINT = Path(__file__).with_name("two_needs.safetensors")
STARTS = range(20)

SUBJECTS = dict(mia="she", eva="she", ann="she", ben="he", tom="he", leo="he")
OBJECTS = dict(mia="her", eva="her", ann="her", ben="him", tom="him", leo="him")
VERBS = ("calls", "thanks")
WORDS = (*SUBJECTS, *VERBS, "now", "and")
ANSWERS = ("she-her", "she-him", "he-her", "he-him")
D_MODEL, LENGTH = 4, 5
STEPS = 6_000
SHAKE = 0.25  # by how much at most every number is shaken while it learns
HEADS = {"two heads": 2, "one head": 1, "average": 2, "two heads and W_O": 2}
KINDS = tuple(HEADS)
VECTORS = ("words", "positions")


class Sentence(NamedTuple):
    """A sentence, the pronouns that follow, and the places of the two names."""

    text: str
    answer: str
    subject: int
    object: int


def sentences() -> list[Sentence]:
    """List all sentences: who calls or thanks whom, with "now" at one of three places.

    >>> len(sentences()), sentences()[0]
    (180, Sentence(text='now mia calls eva and', answer='she-her', subject=1, object=3))
    """
    made = []
    for subject, object_ in permutations(SUBJECTS, 2):
        answer = f"{SUBJECTS[subject]}-{OBJECTS[object_]}"
        for verb in VERBS:
            for place in (0, 1, 3):
                words = [subject, verb, object_]
                words.insert(place, "now")
                said = " ".join((*words, "and"))
                made.append(Sentence(said, answer, words.index(subject), words.index(object_)))
    return made


def encode(text: str) -> Tensor:
    """Give the numbers of a sentence's five words: (5,), whole numbers.

    Raises:
        ValueError: not five words, or a word that the layer does not have.

    >>> encode("mia calls ben now and")
    tensor([0, 6, 3, 8, 9])
    """
    ids = known_words(text, WORDS, __name__)
    if len(ids) != LENGTH:
        raise ValueError(f"a sentence of this layer has {LENGTH} words, got {len(ids)}: {text}")
    return ids


class TwoNeeds(Starts):
    """One layer of attention that reads who calls whom, and says two pronouns; several starts.

    X is the sum of word and position vectors. From the last word e, each head i gives
    H_i = softmax(e W_Q_i (X W_K_i)^T / sqrt(d_k)) X W_V_i, where W_Q_i are the columns of head i;
    (e + [H_1 ... H_h]) U are the logits of the answers, or (e + [H_1 ... H_h] W_O) U.

    Args:
        seeds: one for each start; each draws its weights from a normal distribution, that of the
            vectors of standard deviation 0.3, of the matrices 1 / sqrt(4).
        kind: "two heads" of width 2, without W_O; "one head" of width 4; "average", two heads whose
            weights are all the same; or "two heads and W_O".

    Raises:
        ValueError: another kind.

    >>> logits, weights = TwoNeeds([0, 1])(encode("mia calls ben now and"))
    >>> logits.shape, weights.shape
    (torch.Size([2, 4]), torch.Size([2, 2, 5]))
    """

    words: Tensor
    positions: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    U: Tensor

    KINDS, VECTORS, DEVIATION = KINDS, VECTORS, 0.3

    def __init__(self, seeds: Sequence[int], kind: str = "two heads") -> None:
        super().__init__(seeds, kind)
        self.h = HEADS[kind]

    def shapes(self) -> dict[str, tuple[int, int]]:
        d = D_MODEL
        shapes = {"words": (len(WORDS), d), "positions": (LENGTH, d), "W_Q": (d, d),
            "W_K": (d, d), "W_V": (d, d), "U": (d, len(ANSWERS))}  # fmt: skip
        return shapes | ({"W_O": (d, d)} if self.kind.endswith("W_O") else {})

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits of the answers, (starts, ..., 4), and the weights, (starts, ..., h, 5).

        Args:
            ids: (..., 5), the numbers of a sentence's words; the last one asks.
        """
        last, heads, weights = self.heads(ids)
        attended = merge_heads(heads)
        if "W_O" in self.shapes():
            attended = attended @ self._over(self.W_O, ids)
        after = last + attended
        return (after @ self._over(self.U, ids)).squeeze(-2), weights.squeeze(-2)

    def heads(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give what asks, (starts, ..., 1, 4), each head's output, (starts, ..., h, 1, d_v), and
        its weights, (starts, ..., h, 1, 5)."""
        x = self.words[:, ids] + self._over(self.positions, ids)
        last = x[..., -1:, :]
        q = split_heads(last @ self._over(self.W_Q, ids), self.h)
        k, v = (split_heads(x @ self._over(w, ids), self.h) for w in (self.W_K, self.W_V))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.kind == "average":
            scores = torch.zeros_like(scores)
        weights = scores.softmax(-1)
        return last, weights @ v, weights


def batch(given: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
    """Give sentences as numbers, (count, 5), and their answers, (count,).

    >>> ids, answers = batch(sentences()[:2])
    >>> ids.shape, answers.tolist()
    (torch.Size([2, 5]), [0, 0])
    """
    answers = torch.tensor([ANSWERS.index(sentence.answer) for sentence in given])
    return torch.stack([encode(sentence.text) for sentence in given]), answers


def parted() -> tuple[list[Sentence], list[Sentence]]:
    """Part the sentences: a quarter, drawn at random, that no training sees.

    >>> [len(part) for part in parted()]
    [135, 45]
    """
    every = sentences()
    unseen = random.Random(0).sample(every, len(every) // 4)
    return [sentence for sentence in every if sentence not in unseen], unseen


def train_two_needs(
    seeds: Sequence[int], steps: int = STEPS, kind: str = "two heads", rate: float = 0.02
) -> TwoNeeds:
    """Train several starts at once, each as if alone: AdamW on the sum of their losses.

    The weight decay is 0.01, and each step takes all sentences to train on. All numbers are shaken
    in each step but the last 200, by up to a quarter up or down, so that halves will do.

    >>> train_two_needs([0], steps=1).U.shape
    torch.Size([1, 4, 4])
    """
    ids, answers = batch(parted()[0])
    model = TwoNeeds(seeds, kind)
    return train(model, (ids,), answers, steps, rate=rate, decay=0.01, shake=SHAKE)


class Judged(NamedTuple):
    """What starts do on all sentences: each field has one entry a start."""

    right: Tensor  # sentences whose answer is the likeliest
    unseen: Tensor  # of these, sentences that no training saw
    surest: Tensor  # the least probability of a right answer
    on_subject: Tensor  # (starts, h): of each head the least weight on the subject
    on_object: Tensor  # (starts, h)


@torch.no_grad()
def judge(model: TwoNeeds) -> Judged:
    """Try all sentences on each start of a model.

    >>> judge(load_two_needs()).right
    tensor([180])
    """
    every, (_, unseen) = sentences(), parted()
    ids, answers = batch(every)
    logits, weights = model(ids)
    right = logits.argmax(-1) == answers
    p = logits.softmax(-1).gather(-1, answers.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    on = {
        part: torch.stack([weights[:, i, :, getattr(one, part)] for i, one in enumerate(every)])
        for part in ("subject", "object")
    }
    held_out = [i for i, sentence in enumerate(every) if sentence in unseen]
    least = {part: given.amin(0) for part, given in on.items()}
    return Judged(
        right.sum(1), right[:, held_out].sum(1), p.amin(1), least["subject"], least["object"]
    )


def clearest(judged: Judged) -> Tensor:
    """Of each start of two heads, the least weight of one head on the subject and of the other on
    the object, whichever way round is more: (starts,)."""
    one_way = torch.minimum(judged.on_subject[:, 0], judged.on_object[:, 1])
    other_way = torch.minimum(judged.on_subject[:, 1], judged.on_object[:, 0])
    return torch.maximum(one_way, other_way)


def specimen(model: TwoNeeds) -> int:
    """Find the start whose heads, in halves, look most clearly each at a name of its own.

    It gives every right answer a probability of 0.95 or more. Clearly: by the least weight of one
    head on the subject, and of the other on the object, in any sentence.

    Raises:
        ValueError: no start answers every sentence so.
    """
    judged = judge(in_halves(model))
    return clearest_start(judged.surest, clearest(judged))


def load_all_starts(kind: str = "two heads") -> TwoNeeds:
    """Load the twenty trained starts of a kind, as training left them.

    Raises:
        FileNotFoundError: their file is missing.
        ValueError: another kind.
    """
    return load(TwoNeeds(STARTS, kind), CHECKPOINT)


def load_two_needs(kind: str = "two heads") -> TwoNeeds:
    """Load the one start that the book follows, every number rounded to a multiple of one half.

    Args:
        kind: of two heads that attend: "two heads", or "two heads and W_O".

    Raises:
        FileNotFoundError: the file of trained starts is missing.
        ValueError: another kind.

    >>> load_two_needs().W_V.shape
    torch.Size([1, 4, 4])
    """
    starts = load_all_starts(kind)
    return one_start(starts, specimen(starts))
