"""Take a circuit of a small GPT apart: what each part writes, and what an answer depends on.

A direct logit is what a part of the model adds to the logits by itself. A splice is a pass over one
text in which queries, keys or values of some heads are those of another text.

What five trained models and the one written by hand get takes longer than a page can: it is kept in
circuits.json, which `make checkpoint` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.arguments import one_of
from labkit.attention import merge_heads, split_heads
from labkit.models.ablation import FOUR, units_of, weights_on_sources
from labkit.models.gpt import GPT, Block
from labkit.models.kept import load_kept
from labkit.models.stories import (
    ANIMALS,
    NUMBERS,
    PRONOUNS,
    SURNAMES,
    THINGS,
    VOCABULARY,
    Stories,
    Word,
)

__all__ = ["CIRCUITS", "COPIED", "KEPT", "SWAPS", "Swaps", "direct_logits", "follow", "kept",
    "looking", "measure", "run_all", "spliced", "swaps"]  # fmt: skip

KEPT = "circuits"
COPIED = {"surname": SURNAMES, "owner": tuple(PRONOUNS)}  # what may be copied
SWAPS = ("answer", "cue")
# What some heads of layer 1 get from the other text: which part, of which heads, at which places.
CIRCUITS = {
    "values": ("values", "looking", "places"),
    "keys": ("keys", "looking", "places"),
    "queries": ("queries", "looking", "asking"),
    "values of other heads": ("values", "others", "places"),
    "keys of other heads": ("keys", "others", "places"),
    "values elsewhere": ("values", "looking", "elsewhere"),
    "keys elsewhere": ("keys", "looking", "elsewhere"),
}
_ID = {word: i for i, word in enumerate(VOCABULARY)}


@torch.no_grad()
def direct_logits(model: GPT, ids: Tensor) -> dict[str, Tensor]:
    """Divide the logits among the parts of a model: each (B, n, vocabulary), and they sum to them.

    The last LayerNorm divides by what the whole stream is worth, so that what is left is linear.

    Args:
        model: a GPT without learned or sinusoidal positions.
        ids: (B, n).

    Returns:
        By name: "words"; "head (0, 0)", ..., and "feed-forward 0", ..., counted from 0;
        and "biases", of W_O and of the last LayerNorm.

    Source: Elhage et al. (2021), who call it direct logit attribution.

    >>> from labkit.models.training import small_gpt
    >>> sorted(direct_logits(small_gpt(0, layers=1, h=2), torch.tensor([[3, 1]])))
    ['biases', 'feed-forward 0', 'head (0, 0)', 'head (0, 1)', 'words']
    """
    x = model.words(ids)
    parts, biases = {"words": x}, torch.zeros_like(x)
    for number, block in enumerate(model.stack()):
        layer, normed = block.attention, block.attention_norm(x)
        read = _read(block, normed, normed, normed)
        for head in range(layer.h):
            units = units_of(layer, [head])
            written = read[..., units] @ layer.w_o.weight[:, units].T
            parts[f"head ({number}, {head})"] = written
        biases = biases + layer.w_o.bias
        x = x + layer.w_o(read)
        update = block.feed_forward(block.feed_forward_norm(x))
        parts[f"feed-forward {number}"] = update
        x = x + update
    parts["biases"] = biases
    norm = model.norm
    if not isinstance(norm, nn.LayerNorm):
        return {name: model.next_word(part) for name, part in parts.items()}
    spread = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    found = {}
    for name, part in parts.items():
        normed = norm.weight * (part - part.mean(-1, keepdim=True)) / spread
        found[name] = model.next_word(normed + norm.bias if name == "biases" else normed)
    return found


@torch.no_grad()
def looking(model: GPT, stories: Stories, relation: str, least: float = 0.5) -> list[int]:
    """List the heads of the last layer that put at least so much weight on a relation's sources."""
    _, weights = model(stories.ids, return_weights=True)
    on = weights_on_sources(weights[-1:], stories)[0, :, FOUR.index(relation)]
    return (on >= least).nonzero().flatten().tolist()


class Swaps(NamedTuple):
    """Beginnings of stories, each of which asks for a word, and the same with words exchanged."""

    ids: Tensor  # (C, n), of the stories
    other: Tensor  # (C, n), of the same with words exchanged
    at: Tensor  # (C,), the position that has to say the answer; what is after it does not count
    places: Tensor  # (C, n), boolean, where an answer can be read, the one or the other
    answer: Tensor  # (C, vocabulary), boolean, the answers that the story asks for
    new: Tensor  # and that the other asks for

    def says(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Give the probability of the story's answer and of the other's: (C,) each.

        Args:
            logits: (C, n, vocabulary), of the ids or of the other.
        """
        said = logits[torch.arange(len(self.at)), self.at].softmax(-1)
        return (said * self.answer).sum(-1), (said * self.new).sum(-1)


def swaps(stories: Stories, relation: str, what: str = "answer") -> Swaps:
    """Exchange words of stories before each word of a relation, so that another answer is right.

    Args:
        stories: the stories.
        relation: one of FOUR; for "cue" it is "surname" or "owner".
        what: "answer" puts another word in the place of all sources: of the same gender and not in
            the story for an owner, of the other gender for a pronoun, in the other number for a
            verb. "cue" leaves the sources, and exchanges with those of somebody else in the story
            the words by which they are found: things for an owner, names for a surname.

    Raises:
        ValueError: another relation, or another exchange.

    >>> from labkit.models.stories import decode
    >>> from labkit.models.training import unseen
    >>> found = swaps(unseen(8), "owner")
    >>> changed = (found.ids != found.other)[0].nonzero().flatten()
    >>> decode(found.ids[0, changed]), decode(found.other[0, changed])
    ('tom', 'max')
    """
    one_of("relation", relation, FOUR if one_of("what", what, SWAPS) == "answer" else FOUR[2:])
    exchange = _answers if what == "answer" else _cues
    cases = []
    for words, ids in zip(stories.words, stories.ids, strict=True):
        for i, word in enumerate(words):
            if word.relation == relation and (changed := exchange(words[:i], word)):
                texts, places, new = changed
                other = ids.clone()
                other[list(texts)] = torch.tensor([_ID[text] for text in texts.values()])
                at = torch.tensor(i - 1)
                where = _flags(len(words), places)
                told = (
                    _flags(len(VOCABULARY), (_ID[text] for text in some))
                    for some in (word.options, new)
                )
                cases.append((ids, other, at, where, *told))
    return Swaps(*map(torch.stack, zip(*cases, strict=True)))


@torch.no_grad()
def spliced(
    model: GPT,
    ids: Tensor,
    other: Tensor,
    part: str,
    heads: Sequence[int],
    at: Tensor,
    through: Sequence[int] | None = None,
) -> Tensor:
    """Read ids, but some heads of the second layer get a part of what they work with from other.

    Args:
        model: a GPT of two blocks.
        ids, other: (B, n) each.
        part: "queries", "keys" or "values".
        heads: of the second layer.
        at: (B, n), boolean, the positions whose queries, keys or values are the other's.
        through: heads of the first layer, if the other's part is to differ by no more than what
            these heads write at those positions; unless given, by all.

    Returns:
        The logits, (B, n, vocabulary).

    Source: Wang et al. (2023), section 3.1, who call this path patching.
    """
    one_of("part", part, ("queries", "keys", "values"))
    first, second = model.stack()
    words, new_words = model.words(ids), model.words(other)
    x, changed = first(words)[0], first(new_words)[0]
    if through is not None:
        read, new_read = (_read(first, *[first.attention_norm(w)] * 3) for w in (words, new_words))
        units = units_of(first.attention, through)
        read[..., units] = new_read[..., units]
        changed = _finish(first, words, read)
    normed, mixed = second.attention_norm(x), second.attention_norm(changed)
    mixed = torch.where(at[..., None], mixed, normed)
    streams = {name: mixed if name == part else normed for name in ("queries", "keys", "values")}
    read, new_read = _read(second, *[normed] * 3), _read(second, *streams.values())
    units = units_of(second.attention, heads)
    read[..., units] = new_read[..., units]
    return model.next_word(model.norm(_finish(second, x, read)))


def follow(model: GPT, told: Swaps, row: str, heads: Sequence[int]) -> float:
    """Give the mean probability of the other text's answer where one row of CIRCUITS is swapped.

    Args:
        model: a GPT of two blocks.
        told: the swaps.
        row: of CIRCUITS.
        heads: of the second layer that look at the answer.
    """
    part, whose, where = CIRCUITS[row]
    others = [i for i in range(model.stack()[1].attention.h) if i not in heads]
    i = torch.arange(told.ids.shape[1])
    at = {
        "places": told.places,
        "asking": i == told.at[:, None],
        "elsewhere": ~told.places & (i < told.at[:, None]),
    }[where]
    chosen = heads if whose == "looking" else others
    return told.says(spliced(model, told.ids, told.other, part, chosen, at))[1].mean().item()


@torch.no_grad()
def measure(model: GPT, stories: Stories, relation: str) -> dict[str, Any]:
    """Follow a relation's circuit through a model of two blocks, in the three ways of chapter 10.

    Args:
        model: the model.
        stories: that ask for it.
        relation: "surname" or "owner".

    Returns:
        "looking", the heads of layer 1 that look at the answer; "direct", for these, all other
        heads and all else the share of cases where what they write favours the right word among
        those that can be copied; for "answer" and "cue" what follow gives for each of CIRCUITS, and
        "text" for the whole other text; and in "through" for the cue what the keys give where a
        single head of layer 0 has read the other text.
    """
    heads = looking(model, stories, relation)
    found: dict[str, Any] = {"looking": heads}
    for what in SWAPS:
        told = swaps(stories, relation, what)
        found[what] = {"text": told.says(model(told.other))[1].mean().item()}
        found[what] |= {row: follow(model, told, row, heads) for row in CIRCUITS}
        found[what]["cases"] = len(told.at)
        if what == "answer":
            found["direct"] = _favoured(model, told, relation, heads)
    found["through"] = []
    for head in range(model.stack()[0].attention.h):
        logits = spliced(model, told.ids, told.other, "keys", heads, told.places, [head])
        found["through"].append(told.says(logits)[1].mean().item())
    return found


def kept() -> dict[str, dict[str, dict[str, Any]]]:
    """Give what measure says of each relation and model: "0" to "4" are starts, and "by hand"."""
    return load_kept(KEPT)


def run_all(
    models: Mapping[str, GPT], stories: Stories
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Measure models by name, a relation at a time, as kept returns them."""
    for relation in COPIED:
        yield relation, {name: measure(model, stories, relation) for name, model in models.items()}


def _favoured(model: GPT, told: Swaps, relation: str, heads: Sequence[int]) -> dict[str, float]:
    """Say how often parts of a model favour the right word among those that can be copied."""
    where, among = torch.arange(len(told.at)), [_ID[word] for word in COPIED[relation]]
    right = told.answer[:, among].float().argmax(-1)
    parts = {
        name: part[where, told.at][:, among]
        for name, part in direct_logits(model, told.ids).items()
    }
    groups: dict[str, list[Tensor]] = {"looking": [], "other heads": [], "all else": []}
    looks = {f"head (1, {head})" for head in heads}
    for name, part in parts.items():
        group = "looking" if name in looks else "other heads" if "head" in name else "all else"
        groups[group].append(part)
    return {
        name: (torch.stack(some).sum(0).argmax(-1) == right).float().mean().item()
        for name, some in groups.items()
    }


def _read(block: Block, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Give what W_O reads, (B, n, h d_v), of streams after the norm."""
    layer = block.attention
    _, weights = layer(queries, keys, is_causal=block.is_causal, return_weights=True)
    return merge_heads(weights @ split_heads(layer.w_v(values), layer.h))


def _finish(block: Block, x: Tensor, read: Tensor) -> Tensor:
    """Add to the stream what W_O makes of what it reads, and what the feed-forward makes of it."""
    x = x + block.attention.w_o(read)
    return x + block.feed_forward(block.feed_forward_norm(x))


# New texts by place; where an answer can be read; the new answers.
Exchange = tuple[dict[int, str], Sequence[int], Sequence[str]]


def _answers(before: Sequence[Word], word: Word) -> Exchange:
    """Put another word in the place of a word's sources."""
    old = before[word.sources[0]].text
    if word.relation == "surname":
        new = SURNAMES[SURNAMES.index(old) - 1]
        answers: Sequence[str] = [new]
    elif word.relation == "number":
        one, several = ANIMALS
        new = several[one.index(old)] if old in one else one[several.index(old)]
        answers = NUMBERS[new]
    else:
        used = {told.text for told in before}
        other_gender = word.relation == "gender"
        new = next(
            name
            for name in PRONOUNS
            if name not in used and (PRONOUNS[name] != PRONOUNS[old]) == other_gender
        )
        answers = [PRONOUNS[new] if other_gender else new]
    return dict.fromkeys(word.sources, new), word.sources, answers


def _cues(before: Sequence[Word], word: Word) -> Exchange | None:
    """Exchange what two people are found by, up to the last word, which asks."""
    answers, cues = {}, {}  # by place
    for i, told in enumerate(before[:-1]):
        if word.relation == "owner" and told.text in THINGS:
            name = i + 2 if before[i + 1].text == "suits" else i + 1
            answers[name], cues[i] = before[name].text, told.text
        elif word.relation == "surname" and told.text in PRONOUNS and told.relation != "gender":
            answers[i + 1], cues[i] = before[i + 1].text, told.text
    asked, answer = before[-1].text, next(iter(word.options))
    pairs = dict(zip(cues.values(), answers.values(), strict=True))
    others = [cue for cue, told in pairs.items() if told != answer]
    if not others:
        return None
    exchange = {asked: others[0], others[0]: asked}
    texts = {place: exchange[cue] for place, cue in cues.items() if cue in exchange}
    known = {answer, pairs[others[0]]}
    places = [
        place
        for (place, told), cue in zip(answers.items(), cues.values(), strict=True)
        if cue in exchange and told in known
    ]
    return texts, places, [pairs[others[0]]]


def _flags(n: int, where: Iterable[int]) -> Tensor:
    flags = torch.zeros(n, dtype=torch.bool)
    flags[list(where)] = True
    return flags
