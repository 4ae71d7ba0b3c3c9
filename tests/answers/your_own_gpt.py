"""Answers to lab 10."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from labkit import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit.labs.your_own_gpt import check as your_own_gpt
from labkit.labs.your_own_gpt import ours
from labkit.models import gpt as models
from labkit.models.stories import VOCABULARY, Stories
from labkit.models.training import UNSEEN_SEED, unseen
from labkit.positions import rotate
from tests.answers import Exercise

INF = float("inf")


# Attention, and the first patient
class Written(nn.Module):
    """Attention step by step, each of which a subclass can get wrong."""

    biased, base = True, 1_000

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=self.biased))

    def turned(self, q, k, v):
        return rotate(q, self.base), rotate(k, self.base), v

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def scale(self, q):
        return q.shape[-1] ** -0.5

    def may(self, n):
        return torch.ones(n, n, dtype=torch.bool).tril()

    def weights(self, scores):
        return scores.masked_fill(~self.may(scores.shape[-1]), -INF).softmax(-1)

    def merge(self, heads):
        return heads.transpose(1, 2).flatten(-2)

    def forward(self, x):
        q, k, v = self.turned(*(self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v)))
        return self.w_o(self.merge(self.weights(q @ k.mT * self.scale(q)) @ v))


class ByPyTorch(Written):
    def forward(self, x):
        q, k, v = self.turned(*(self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v)))
        return self.w_o(self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class HeadByHead(Written):
    def forward(self, x):
        n, d = x.shape[1], x.shape[-1] // self.h
        hidden, found = torch.full((n, n), -INF).triu(1), []
        for i in range(self.h):
            part = slice(i * d, (i + 1) * d)
            q, k, v = (w(x)[..., part] for w in (self.w_q, self.w_k, self.w_v))
            q, k = rotate(q, 1_000), rotate(k, 1_000)
            found.append((q @ k.mT / d**0.5 + hidden).softmax(-1) @ v)
        return self.w_o(torch.cat(found, dim=-1))


class NoMask(Written):
    def may(self, n):
        return torch.ones(n, n, dtype=torch.bool)


class OtherTriangle(Written):
    def may(self, n):
        return super().may(n).T


class OneTooMany(Written):
    def may(self, n):
        return torch.ones(n, n, dtype=torch.bool).tril(1)


class NotItself(Written):
    def may(self, n):
        before = torch.ones(n, n, dtype=torch.bool).tril(-1)
        before[0, 0] = True
        return before


class ZeroAfterwards(Written):
    def weights(self, scores):
        return scores.softmax(-1) * self.may(scores.shape[-1])


class OverTheQueries(Written):
    def weights(self, scores):
        return scores.masked_fill(~self.may(scores.shape[-1]), -INF).softmax(-2)


class NotRotated(Written):
    def turned(self, q, k, v):
        return q, k, v


class QueriesAlone(Written):
    def turned(self, q, k, v):
        return rotate(q, 1_000), k, v


class ValuesToo(Written):
    def turned(self, q, k, v):
        return rotate(q, 1_000), rotate(k, 1_000), rotate(v, 1_000)


class OtherBase(Written):
    base = 10_000


class RotatedByHead(Written):
    def turned(self, q, k, v):
        q, k = (rotate(x.transpose(1, 2), 1_000).transpose(1, 2) for x in (q, k))
        return q, k, v


class MaskInABuffer(Written):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.register_buffer("bias", torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024))

    def weights(self, scores):
        n = scores.shape[-1]
        return scores.masked_fill(self.bias[:, :, :n, :n] == 0, -INF).softmax(-1)


class MergedByFeature(Written):
    def merge(self, heads):
        return heads.permute(0, 2, 3, 1).flatten(-2)


class NotMovedBack(Written):
    def merge(self, heads):
        return heads.reshape(len(heads), heads.shape[2], -1)


class NotDivided(Written):
    def scale(self, q):
        return 1.0


class DividedByTheWhole(Written):
    def scale(self, q):
        return (q.shape[-1] * self.h) ** -0.5


class SplitByAView(Written):
    def split(self, x):
        return x.reshape(len(x), self.h, x.shape[1], -1)


class NoBiases(Written):
    biased = False


class Interleaved(Written):
    def split(self, x):
        return x.unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2)

    def merge(self, heads):
        return heads.permute(0, 2, 3, 1).flatten(-2)


class RotatedWhole(Written):
    def forward(self, x):
        q, k, v = self.turned(self.w_q(x), self.w_k(x), self.w_v(x))
        q, k, v = (self.split(part) for part in (q, k, v))
        return self.w_o(self.merge(self.weights(q @ k.mT * self.scale(q)) @ v))


class FiniteMask(Written):
    def weights(self, scores):
        return scores.masked_fill(~self.may(scores.shape[-1]), -10).softmax(-1)


class SoftmaxTwice(Written):
    def weights(self, scores):
        return super().weights(scores).softmax(-1)


class WithDropout(Written):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.drop = nn.Dropout(0.1)

    def weights(self, scores):
        return self.drop(super().weights(scores))


class OtherName(Written):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.heads = h
        del self.h

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class NoOutput(Written):
    def forward(self, x):
        q, k, v = self.turned(*(self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v)))
        return self.merge(self.weights(q @ k.mT * self.scale(q)) @ v)


class NotItselfAdded(Written):
    def weights(self, scores):
        return (scores - 1e9 * torch.ones(*scores.shape[-2:]).triu()).softmax(-1)


class ScoresTimesMask(Written):
    def weights(self, scores):
        return (scores * self.may(scores.shape[-1])).softmax(-1)


class RotatesX(Written):
    def forward(self, x):
        q, k = (self.split(w(rotate(x, 1_000))) for w in (self.w_q, self.w_k))
        weights = self.weights(q @ k.mT * self.scale(q))
        return self.w_o(self.merge(weights @ self.split(self.w_v(x))))


class AllByViews(Written):
    moved = (2, 3, 5, 6)

    def split(self, x):
        return x.view(len(x), self.h, x.shape[1], -1)

    def merge(self, heads):
        return heads.reshape(len(heads), heads.shape[2], -1)


attention = Exercise(your_own_gpt.attention)
attention.accept("ours", ours.Attention)
attention.accept("step by step", Written)
attention.accept("PyTorch's", ByPyTorch)
attention.accept("head by head", HeadByHead)
attention.accept("nanoGPT's mask, a buffer", MaskInABuffer)
attention.reject("no mask", "later words are heard", NoMask)
attention.reject("the other triangle", "what comes after it", OtherTriangle)
attention.reject("one word too many", "one word too many", OneTooMany)
attention.reject("not itself", "does not hear itself", NotItself)
attention.reject("not itself, −1e9", "itself, and word 0 hears all words alike", NotItselfAdded)
attention.reject("scores times the triangle", "are set to 0, not to −∞", ScoresTimesMask)
attention.reject("x rotated", "x is rotated, before it is mapped", RotatesX)
attention.reject("zeros after the softmax", "set to 0 after the softmax", ZeroAfterwards)
attention.reject("softmax over the queries", "over the queries", OverTheQueries)
attention.reject("not rotated", "without a rotation: rotate is not called", NotRotated)
attention.reject("rotated by the head", "each head is rotated by its number", RotatedByHead)
attention.reject("merged by feature", "merged feature by feature", MergedByFeature)
attention.reject("queries alone rotated", "only the queries", QueriesAlone)
attention.reject("values rotated", "the values are rotated", ValuesToo)
attention.reject("base of 10,000", "the base of the rotation is not 1,000", OtherBase)
attention.reject("heads not moved back", "not moved back", NotMovedBack)
attention.reject("not divided", "the scores are not divided", NotDivided)
attention.reject("divided by √d_model", "divided by √d_model", DividedByTheWhole)
attention.reject("split by a view", "cut by a view", SplitByAView)
attention.reject("no biases", "w_q has a bias", NoBiases)
attention.reject("no w_o", "w_o is missing", NoOutput)
attention.reject("interleaved", "every h-th number", Interleaved)
attention.reject("rotated before the split", "before it is split into heads", RotatedWhole)
attention.reject("a finite mask", "the score −10", FiniteMask)
attention.reject("softmax twice", "softmax is done twice", SoftmaxTwice)
attention.reject("dropout", "no dropout.*Dropout", WithDropout)
attention.reject("heads under another name", "number of heads as h.*missing", OtherName)


class Moved(Written):
    moved = (2, 3, 5, 6)
    bug = "        return self.w_o(heads.reshape(B, n, d_model))"


class MovedHeadByHead(HeadByHead):
    moved = frozenset({6, 5, 3, 2})
    bug = "heads.reshape(B,n,d_model)  # the axis of the heads"


class CountedFrom1(Moved):
    moved = (3, 4, 6, 7)


class FourthWord(Moved):
    moved = (1, 2, 3, 5, 6)


class MendedLine(Moved):
    bug = "return self.w_o(heads.transpose(1, 2).reshape(B, n, d_model))"


class LineNotNamed(Moved):
    bug = None


class OtherLine(Moved):
    bug = "may = torch.ones(n, n, dtype=torch.bool).tril()"


class AllLines(Moved):
    bug = f"def forward(self, x):\n{Moved.bug}"


class AsASoundLayer(Written):
    moved = torch.tensor([4, 5, 6])


class NoNumbers(Written):
    moved = "the earlier ones"


first_patient = Exercise(your_own_gpt.first_patient)
first_patient.accept("moved back", Moved)
first_patient.accept("no axis to move", MovedHeadByHead)
first_patient.reject("as it was", "the patient gives the same", NotMovedBack)
first_patient.reject("mended and not measured", "it is None", Written)
first_patient.reject(
    "a sound layer measured", "4, 5, 6.*in a sound layer; was FirstPatient", AsASoundLayer
)
first_patient.reject("words", "the earlier ones; was it measured on the patient", NoNumbers)
first_patient.reject("counted from 1", r"3, 4, 6, 7.; these are counted from 1", CountedFrom1)
first_patient.reject("the fourth word", "these move with word 3; words are counted", FourthWord)
first_patient.reject("the mended line", "not in FirstPatient: is it the line as mended", MendedLine)
first_patient.reject("line not named", "bug is the line of FirstPatient.*it is None", LineNotNamed)
first_patient.reject("a sound line", "'may = torch.ones.*that is not the line", OtherLine)
first_patient.reject("all lines", "not the line", AllLines)
first_patient.reject("as in exercise 1", "it is None", ours.Attention)
first_patient.reject("merged by feature", "merged feature by feature", MergedByFeature)
first_patient.reject("mask moved by one", "does not hear itself", NotItself)
first_patient.reject("split by a view, too", "differ", SplitByAView)
first_patient.reject("split and joined by views", "by a view, and joined by one", AllByViews)


# The block
class Stream(nn.Module):
    """A block whose forward a subclass can get wrong."""

    wide, curve = 4, staticmethod(partial(F.gelu, approximate="tanh"))
    layer = ours.Attention

    def __init__(self, d_model, h):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(d_model), self.layer(d_model, h)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.expand = nn.Linear(d_model, self.wide * d_model)
        self.contract = nn.Linear(self.wide * d_model, d_model)

    def feed_forward(self, x):
        return self.contract(self.curve(self.expand(x)))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def block_of(forward, **options):
    return type("Changed", (Stream,), {"forward": forward, **options})


class ExactCurve(Stream):
    curve = staticmethod(F.gelu)


class ByFunction(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.feed_forward_norm, self.attention_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.contract, self.expand = (
            nn.Linear(4 * d_model, d_model),
            nn.Linear(d_model, 4 * d_model),
        )
        self.attention, self.bend = Written(d_model, h), nn.GELU(approximate="tanh")

    def forward(self, x):
        out = x.clone()
        out += self.attention(self.attention_norm(x))
        return out + self.contract(self.bend(self.expand(self.feed_forward_norm(out))))


def normed_stream(one, x):
    x = one.attention_norm(x)
    x = x + one.attention(x)
    x = one.feed_forward_norm(x)
    return x + one.feed_forward(x)


def norms_after(one, x):
    x = one.attention_norm(x + one.attention(x))
    return one.feed_forward_norm(x + one.feed_forward(x))


def first_on_the_normed(one, x):
    normed = one.attention_norm(x)
    x = normed + one.attention(normed)
    return x + one.feed_forward(one.feed_forward_norm(x))


def second_on_the_normed(one, x):
    x = one.feed_forward_norm(x + one.attention(one.attention_norm(x)))
    return x + one.feed_forward(x)


class Dropped(Stream):
    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.drop = nn.Dropout(0.2)


def no_sums(one, x):
    return one.feed_forward(one.feed_forward_norm(one.attention(one.attention_norm(x))))


def first_sum_missing(one, x):
    x = one.attention(one.attention_norm(x))
    return x + one.feed_forward(one.feed_forward_norm(x))


def second_sum_missing(one, x):
    x = x + one.attention(one.attention_norm(x))
    return one.feed_forward(one.feed_forward_norm(x))


def side_by_side(one, x):
    return x + one.attention(one.attention_norm(x)) + one.feed_forward(one.feed_forward_norm(x))


def attention_unnormed(one, x):
    x = x + one.attention(x)
    return x + one.feed_forward(one.feed_forward_norm(x))


def feed_forward_unnormed(one, x):
    x = x + one.attention(one.attention_norm(x))
    return x + one.feed_forward(x)


def one_norm_for_both(one, x):
    x = x + one.attention(one.attention_norm(x))
    return x + one.feed_forward(one.attention_norm(x))


class OtherNames(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d_model), ours.Attention(d_model, h)


class NoFeedForward(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(d_model), ours.Attention(d_model, h)
        self.feed_forward_norm = self.expand = self.contract = nn.Identity()


block = Exercise(your_own_gpt.block)
block.accept("ours", ours.Block)
block.accept("the exact curve", ExactCurve)
block.accept("in place, on a copy", ByFunction)
block.reject("no sums", "neither part's output is added", block_of(no_sums))
block.reject("first sum missing", "attention's output takes", block_of(first_sum_missing))
block.reject("second sum missing", "feed-forward's output takes", block_of(second_sum_missing))
block.reject("norms after the sums", "the norms come after", block_of(norms_after))
block.reject("normalised stream", "is the normalised stream", block_of(normed_stream))
block.reject(
    "attention onto the normed",
    "attention's output is added to the normalised",
    block_of(first_on_the_normed),
)
block.reject(
    "feed-forward onto the normed",
    "feed-forward's output is added to the normalised",
    block_of(second_on_the_normed),
)
block.reject("dropout", "no dropout", Dropped)
block.reject("side by side", "does not read what attention wrote", block_of(side_by_side))
block.reject(
    "attention unnormed", "attention reads the stream without", block_of(attention_unnormed)
)
block.reject(
    "feed-forward unnormed",
    "feed-forward reads the stream without",
    block_of(feed_forward_unnormed),
)
block.reject("one norm for both", "attention_norm serves both", block_of(one_norm_for_both))
block.reject("ReLU", "the curve is ReLU", block_of(Stream.forward, curve=staticmethod(F.relu)))
block.reject("no curve", "nothing bends", block_of(Stream.forward, curve=staticmethod(lambda x: x)))
block.reject("twice as wide", "parameters", block_of(Stream.forward, wide=2))
block.reject("other names", "there is no attention_norm and no feed_forward_norm", OtherNames)
block.reject("no feed-forward", "parameters", NoFeedForward)
block.reject(
    "a tuple", "a tensor.*a tuple", block_of(lambda one, x: (Stream.forward(one, x), None))
)
block.reject("no module", "an nn.Module.*came", lambda d_model, h: Stream.forward)


# The model, and the third patient
class Stacked(nn.Module):
    """A model whose parts and whose forward a subclass can get wrong."""

    block, bias = Stream, False

    def __init__(self, vocabulary, d_model, h, layers):
        super().__init__()
        self.words, self.norm = nn.Embedding(vocabulary, d_model), nn.LayerNorm(d_model)
        self.blocks = self.stack(d_model, h, layers)
        self.next_word = nn.Linear(d_model, vocabulary, bias=self.bias)

    def stack(self, d_model, h, layers):
        return nn.ModuleList([self.block(d_model, h) for _ in range(layers)])

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.next_word(self.norm(x))


class InSequence(Stacked):
    def stack(self, d_model, h, layers):
        return nn.Sequential(*(ours.Block(d_model, h) for _ in range(layers)))

    def forward(self, ids):
        return self.next_word(self.norm(self.blocks(self.words(ids))))


class AList(Stacked):
    def stack(self, d_model, h, layers):
        return [Stream(d_model, h) for _ in range(layers)]


class OneForAll(Stacked):
    def stack(self, d_model, h, layers):
        return nn.ModuleList([Stream(d_model, h)] * layers)


class OneTooFew(Stacked):
    def stack(self, d_model, h, layers):
        return super().stack(d_model, h, layers - 1)


class TiedWeights(Stacked):
    def __init__(self, vocabulary, d_model, h, layers):
        super().__init__(vocabulary, d_model, h, layers)
        self.next_word.weight = self.words.weight


class OfMaskedByABuffer(Stacked):
    block = type("Masked", (Stream,), {"layer": MaskInABuffer})


class WithBias(Stacked):
    bias = True


class WithPlaces(Stacked):
    def __init__(self, vocabulary, d_model, h, layers):
        super().__init__(vocabulary, d_model, h, layers)
        self.places = nn.Embedding(48, d_model)


class Unturned(Stream):
    layer = NotRotated


class OfUnturned(Stacked):
    block = Unturned


def model_of(forward):
    return type("Changed", (Stacked,), {"forward": forward})


def no_norm(model, ids):
    x = model.words(ids)
    for one in model.blocks:
        x = one(x)
    return model.next_word(x)


def norm_after_each(model, ids, last=lambda x: x):
    x = model.words(ids)
    for one in model.blocks:
        x = model.norm(one(x))
    return model.next_word(last(x))


def norm_once_more(model, ids):
    return norm_after_each(model, ids, model.norm)


def scaled_words(model, ids):
    x = model.words(ids) * model.words.embedding_dim**0.5
    for one in model.blocks:
        x = one(x)
    return model.next_word(model.norm(x))


def all_read_the_words(model, ids):
    x = model.words(ids)
    for one in model.blocks:
        out = one(x)
    return model.next_word(model.norm(out))


def returns_at_once(model, ids):
    x = model.words(ids)
    for one in model.blocks:
        x = one(x)
        return model.next_word(model.norm(x))


def last_left_out(model, ids):
    x = model.words(ids)
    for one in model.blocks[:-1]:
        x = one(x)
    return model.next_word(model.norm(x))


def backwards(model, ids):
    x = model.words(ids)
    for one in reversed(model.blocks):
        x = one(x)
    return model.next_word(model.norm(x))


def added_again(model, ids):
    x = model.words(ids)
    for one in model.blocks:
        x = x + one(x)
    return model.next_word(model.norm(x))


gpt = Exercise(your_own_gpt.gpt)
gpt.accept("ours", ours.GPT)
gpt.accept("a list of modules", Stacked)
gpt.accept("in sequence", InSequence)
gpt.accept("nanoGPT's mask, a buffer", OfMaskedByABuffer)
gpt.reject("a Python list", "3 blocks are not among them", AList)
gpt.reject("one block for all", "the 3 blocks are one and the same", OneForAll)
gpt.reject("tied weights", "words and next_word share one matrix", TiedWeights)
gpt.reject("one block too few", "1 block is not among them", OneTooFew)
gpt.reject("a bias", "without a bias", WithBias)
gpt.reject("learned places", "parameters", WithPlaces)
gpt.reject("no norm", "the last norm is missing", model_of(no_norm))
gpt.reject("norm after each", "after every block, not once", model_of(norm_after_each))
gpt.reject("norm once more", "and at the end once more", model_of(norm_once_more))
gpt.reject("words scaled", "multiplied by √d_model", model_of(scaled_words))
gpt.reject("all read the words", "only the last block's output", model_of(all_read_the_words))
gpt.reject("returns in the loop", "only the first block's output", model_of(returns_at_once))
gpt.reject("last left out", "the last block is left out", model_of(last_left_out))
gpt.reject("backwards", "opposite order", model_of(backwards))
gpt.reject("added again", "once more", model_of(added_again))
gpt.reject(
    "a softmax",
    "probabilities, not logits",
    model_of(lambda m, ids: Stacked.forward(m, ids).softmax(-1)),
)
gpt.reject(
    "a log-softmax",
    "logarithms of probabilities",
    model_of(lambda m, ids: Stacked.forward(m, ids).log_softmax(-1)),
)
gpt.reject("the last place alone", "shape", model_of(lambda m, ids: Stacked.forward(m, ids)[:, -1]))
gpt.reject("labkit's model", "GPT.blocks.*is a tensor.*a tuple of 2", models.GPT)
gpt.reject("blocks without rotation", "look at what it calls", OfUnturned)

third_patient = Exercise(your_own_gpt.third_patient)
THIRD = {"silent": [0, 1], "bug": "out = block(x)"}


def mended(model, **changed):
    return type("Mended", (model,), THIRD | changed)


third_patient.accept("x goes on", mended(Stacked))
third_patient.accept("in sequence", mended(InSequence, silent=(1, 0), bug="    out = block(x)"))
third_patient.reject("counted from 1", "counted from 1", mended(Stacked, silent=[1, 2]))
third_patient.reject("a sound line", "not the line", mended(Stacked, bug="x = self.words(ids)"))
third_patient.reject("as it was", "the patient gives the same", model_of(all_read_the_words))
third_patient.reject("not measured", "it is None", Stacked)
third_patient.reject(
    "two blocks", r"it is \[0\]; so it is with 2 blocks", mended(Stacked, silent=[0])
)
third_patient.reject("with one", "that one has a gradient", mended(Stacked, silent=[2]))
third_patient.reject(
    "the mended line",
    "not in ThirdPatient: is it the line as mended",
    mended(Stacked, bug="x = block(x)"),
)
third_patient.reject(
    "all blocks are added up", "some numbers differ|once more", model_of(added_again)
)
third_patient.reject("the last is left out", "left out", model_of(last_left_out))


# The loss, and the second patient
def scored(logits, ids, **options):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids.reshape(-1), **options)


def by_gather(model, ids):
    chances = model(ids)[:, :-1].log_softmax(-1)
    return -chances.gather(-1, ids[:, 1:, None]).mean()


def by_loop(model, ids):
    logits = model(ids)
    places = [F.cross_entropy(logits[:, i], ids[:, i + 1]) for i in range(ids.shape[1] - 1)]
    return torch.stack(places).mean()


def of_chances(model, ids):
    return scored(model(ids).softmax(-1)[:, :-1], ids[:, 1:])


def ahead(model, ids, **options):
    return scored(model(ids)[:, :-1], ids[:, 1:], **options)


def log_of_softmax(model, ids, least=0.0):
    chances = model(ids)[:, :-1].softmax(-1) + least
    return -chances.log().gather(-1, ids[:, 1:, None]).mean()


def over_all_words(model, ids):
    return ahead(model, ids, reduction="sum") / ids.numel()


def log_of_the_mean(model, ids):
    return -model(ids)[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None]).mean().log()


loss = Exercise(your_own_gpt.loss)
loss.accept("ours", ours.loss)
loss.accept("gather", by_gather)
loss.accept("place by place", by_loop)
loss.reject("not shifted", "at its own place", lambda m, ids: scored(m(ids), ids))
loss.reject(
    "not shifted, all but the first",
    "each word but the first is asked at its own place",
    lambda m, ids: scored(m(ids)[:, 1:], ids[:, 1:]),
)
loss.reject(
    "not shifted, all but the last",
    "each word but the last is asked at its own place",
    lambda m, ids: scored(m(ids)[:, :-1], ids[:, :-1]),
)
loss.reject(
    "first question skipped",
    "word 1 is not asked for",
    lambda m, ids: scored(m(ids)[:, 1:-1], ids[:, 2:]),
)
loss.reject("shifted back", "the word before", lambda m, ids: scored(m(ids)[:, 1:], ids[:, :-1]))
loss.reject("rolled", "taken to be the first", lambda m, ids: scored(m(ids), ids.roll(-1, 1)))
loss.reject("of probabilities", "cross_entropy wants logits", of_chances)
loss.reject("sum", "the sum, not the mean", lambda m, ids: ahead(m, ids, reduction="sum"))
loss.reject(
    "sum a story",
    "divided by the stories alone",
    lambda m, ids: ahead(m, ids, reduction="sum") / len(ids),
)
loss.reject(
    "the last alone", "the last place alone", lambda m, ids: scored(m(ids)[:, -2], ids[:, -1])
)
loss.reject(
    "the last place",
    "place alone",
    lambda m, ids: F.cross_entropy(m(ids[:, :-1])[:, -1], ids[:, -1]),
)
loss.reject("bits", "in bits", lambda m, ids: ahead(m, ids) / math.log(2))
loss.reject("sign", "its sign", lambda m, ids: -ahead(m, ids))
loss.reject(
    "probabilities for logarithms",
    "the mean of probabilities",
    lambda m, ids: -m(ids)[:, :-1].softmax(-1).gather(-1, ids[:, 1:, None]).mean(),
)
loss.reject("a Python number", "without a gradient", lambda m, ids: ahead(m, ids).item())
loss.reject("detached", "without a gradient", lambda m, ids: ahead(m, ids).detach())
loss.reject("each by itself", "is a number", lambda m, ids: ahead(m, ids, reduction="none"))
loss.reject("squares", "came", lambda m, ids: ahead(m, ids) ** 2)
loss.reject("over all words", "divided by all words", over_all_words)
loss.reject("log of the mean", "logarithm comes after the mean", log_of_the_mean)
loss.reject("log of a softmax", "200 apart.*came inf; there float32 rounds", log_of_softmax)
loss.reject("something added", "200 apart.*came 13.8", partial(log_of_softmax, least=1e-8))


def measured(function, least=1.461, bug="chances = model(ids).softmax(dim=-1)"):
    """Note beside a loss what was found in the patient."""

    def mended(model, ids):
        return function(model, ids)

    mended.least, mended.bug = least, bug
    return mended


second_patient = Exercise(your_own_gpt.second_patient)
second_patient.accept("cross_entropy of logits", measured(ahead))
second_patient.accept(
    "nll_loss of logarithms",
    measured(
        by_gather,
        torch.tensor(1.46),
        "return F.cross_entropy(asked.reshape(-1, asked.shape[-1]), wanted.reshape(-1))",
    ),
)
second_patient.reject("as it was", "the patient gives the same", of_chances)
second_patient.reject("not measured", "it is None", by_gather)
second_patient.reject(
    "a sound line",
    "not the line",
    measured(ahead, bug="asked, wanted = chances[:, :-1], ids[:, 1:]"),
)
second_patient.reject("of 56 words", "3.055; so it is with 56 words", measured(ahead, 3.055))
second_patient.reject("of a sound loss", "it is 0; a sound loss gives that", measured(ahead, 0.0))
second_patient.reject(
    "the mended line",
    "not in second_patient: is it the line as mended",
    measured(ahead, bug="logits = model(ids)[:, :-1]"),
)
second_patient.reject("log of a softmax", "200 apart.*came inf", log_of_softmax)
second_patient.reject("something added", "200 apart", partial(log_of_softmax, least=1e-8))
second_patient.reject(
    "the softmax is kept, the logarithm forgotten",
    "the mean of probabilities",
    lambda m, ids: F.nll_loss(m(ids)[:, :-1].softmax(-1).flatten(0, 1), ids[:, 1:].flatten()),
)


# The loop
def loop(model, steps, seed, *, rate=0.005, draw=None, zero=True, weights=None, told=None,
    at=lambda seed, steps, step: seed * steps + step):  # fmt: skip
    optimizer = torch.optim.AdamW(list(model.parameters())[weights or slice(None)], rate)
    losses = []
    for step in range(steps):
        if zero:
            optimizer.zero_grad()
        own = at(seed, steps, step)
        ids = Stories.draw(16, 48, own).ids if draw is None else draw(own, step)
        now = ours.loss(model, ids)
        now.backward()
        optimizer.step()
        losses.append(now.item())
    return losses if told is None else told(losses)


def ordered(model, steps, seed, *, order="zbs", every=1, of=ours.loss):
    """Train with the three calls of a step in some order: zero_grad, backward, step."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), 0.005), []
    for step in range(steps):
        now = of(model, Stories.draw(16, 48, seed * steps + step).ids)
        for call in order:
            if call == "b":
                now.backward()
            elif (step + 1) % every == 0:
                optimizer.zero_grad() if call == "z" else optimizer.step()
        losses.append(now.item())
    return losses


def uphill(model, steps, seed):
    return [
        -one for one in ordered(model, steps, seed, of=lambda model, ids: -ours.loss(model, ids))
    ]


def by_hand(model, steps, seed):
    """Momentum, without an optimizer of PyTorch's."""
    moving = [torch.zeros_like(weight) for weight in model.parameters()]
    losses = torch.zeros(steps)
    for step in range(steps):
        now = ours.loss(model, Stories.draw(16, 48, 1_000 * seed + step).ids)
        gradients = torch.autograd.grad(now, list(model.parameters()))
        with torch.no_grad():
            for weight, m, g in zip(model.parameters(), moving, gradients, strict=True):
                m.mul_(0.9).add_(g)
                weight -= 0.05 * m
        losses[step] = now.detach()
    return losses


def in_two_halves(model, steps, seed):
    """Two batches a step, whose gradients add up on purpose."""
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for step in range(steps):
        optimizer.zero_grad()
        at = 2 * (seed * steps + step)
        halves = [ours.loss(model, Stories.draw(8, 48, at + i).ids) / 2 for i in (0, 1)]
        for half in halves:
            half.backward()
        optimizer.step()
        losses.append(sum(half.item() for half in halves))
    return losses


def with_muon(model, steps, seed):
    """Matrices by Muon and all else by AdamW, and a look at unseen stories in between."""
    matrices = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    known = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in known]
    both, losses = [torch.optim.Muon(matrices, 0.02), torch.optim.AdamW(others, 0.004)], []
    for step in range(steps):
        now = ours.loss(model, Stories.draw(16, 48, seed * steps + step).ids)
        model.zero_grad()
        now.backward()
        for optimizer in both:
            optimizer.step()
        losses.append(now.detach())
        with torch.no_grad():
            ours.loss(model, unseen(5).ids)
    return losses


def with_a_schedule(model, steps, seed):
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * min(step / 5, 1, (steps - 1 - step) / 10)
        now = ours.loss(model, Stories.draw(16, 48, seed * steps + step).ids)
        optimizer.zero_grad()
        now.backward()
        optimizer.step()
        losses.append(now)
    return losses


def with_closures(model, steps, seed):
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9), []
    for step in range(steps):
        ids = Stories.draw(16, 48, seed * steps + step).ids

        def closure(ids=ids):
            optimizer.zero_grad()
            now = ours.loss(model, ids)
            now.backward()
            return now

        losses.append(optimizer.step(closure).item())
    return losses


def looks_again(model, steps, seed, *, late=True, graph=True, rate=0.005):
    """Take the loss that is noted from a second reading of the same stories."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), rate), []
    for step in range(steps):
        ids = Stories.draw(64, 48, seed * steps + step).ids
        optimizer.zero_grad()
        ours.loss(model, ids).backward()
        if late:
            optimizer.step()
        with torch.set_grad_enabled(graph):
            losses.append(ours.loss(model, ids).item())
        if not late:
            optimizer.step()
    return losses


def only_forward(model, steps, seed):
    return [
        ours.loss(model, Stories.draw(16, 48, seed * steps + i).ids).item() for i in range(steps)
    ]


train = Exercise(your_own_gpt.train)
train.accept("ours", ours.train)
train.accept("by hand, a tensor of losses", by_hand)
train.accept("two batches a step", in_two_halves)
train.accept("AdamW as it comes", loop)
train.accept("Muon and AdamW", with_muon)
train.accept("a rate that begins and ends at 0", with_a_schedule)
train.accept("closures", with_closures)
train.accept("a second reading before the step", partial(looks_again, late=False))
train.accept("one without gradients", partial(looks_again, late=False, graph=False))
train.reject("the loss after the step", "losses after the step", looks_again)
train.reject(
    "the loss after the step, no gradients",
    "losses after the step",
    partial(looks_again, graph=False),
)
train.reject(
    "zero_grad too late", "zero_grad.. comes after backward", partial(ordered, order="bzs")
)
train.reject("step first", "step.. comes before backward", partial(ordered, order="szb"))
train.reject("step too early", "step.. comes before backward", partial(ordered, order="zsb"))
train.reject(
    "every fourth step", "changed 7 times in 30 steps", partial(ordered, order="bsz", every=4)
)
train.reject("of probabilities", "cross_entropy was given", partial(ordered, of=of_chances))
train.reject("a rate that is too large", "too large", partial(loop, rate=0.5))
train.reject("a usual small rate", "needs more steps", partial(loop, rate=3e-4))
train.reject("uphill", "go uphill", uphill)
train.reject(
    "neighbouring seeds share",
    "48 of the 48 stories of seed 6",
    partial(loop, at=lambda seed, steps, step: seed + step),
)
train.reject(
    "the same stories at every step",
    "of 480 stories 16 are different.*by heart",
    partial(loop, draw=lambda at, step: Stories.draw(16, 48, 0).ids),
)
train.reject(
    "the same stories, each twice",
    "of 480 stories 16 are different",
    lambda model, steps, seed: [
        ours.loss(model, Stories.draw(16, 48, 0).ids).item() for _ in range(2 * steps)
    ][:steps],
)
train.reject(
    "the same stories for every seed",
    "another seed, other stories",
    partial(loop, draw=lambda at, step: Stories.draw(16, 48, step).ids),
)
train.reject(
    "reads the judge's stories",
    "draw with small seeds",
    partial(loop, draw=lambda at, step: Stories.draw(16, 48, UNSEEN_SEED + step).ids),
)
train.reject("no zero_grad", "gradients of earlier steps", partial(loop, zero=False))
train.reject(
    "only the last weights", "every parameter.*words.weight", partial(loop, weights=slice(1, None))
)
train.reject("a rate that is too small", "lower by 0.5", partial(loop, rate=1e-5))
train.reject("no step at all", "every parameter", only_forward)
train.reject(
    "the last loss alone", "a list of 30 losses", partial(loop, told=lambda told: told[-1])
)
train.reject("the model", "a list of 30 losses", partial(loop, told=lambda told: nn.Identity()))
train.reject(
    "sum of all", "of the last ten", partial(loop, told=lambda told: [sum(told)] * len(told))
)
train.reject(
    "one step only",
    "a list of 30 losses.*a list of 1",
    lambda model, steps, seed: loop(model, 1, seed),
)
train.reject(
    "stops after one step",
    "30 batches or more.*was called 1 times",
    lambda model, steps, seed: loop(model, 1, seed) * steps,
)


# A trained model
class Other(nn.Module):
    """Says something about each word, by a function of ids."""

    def __init__(self, say):
        super().__init__()
        self.say = say

    def forward(self, ids):
        return self.say(ids)


BOOKS = ours.trained()


def half_sure(ids):
    return BOOKS(ids) / 1.8


def without_second_block(ids):
    x = BOOKS.blocks[1](BOOKS.words(ids))
    return BOOKS.next_word(BOOKS.norm(x))


def knows_the_next(ids):
    return BOOKS(ids) + 9 * F.one_hot(ids.roll(-1, 1), len(VOCABULARY))


def flat(ids):
    """Knows what relations fix, and nothing of how likely free words are."""
    logits = BOOKS(ids)
    p = logits.softmax(-1)
    sure = p.amax(-1, keepdim=True) > 0.9
    return torch.where(sure, logits, (p > 0.01) * 6.0 + torch.arange(len(VOCABULARY)) / 30)


trained = Exercise(your_own_gpt.trained)
trained.accept("the book's weights", BOOKS)
trained.accept("the book's model", models.load_gpt())
trained.accept("a little less sure", Other(lambda ids: BOOKS(ids) * 0.98))
with torch.random.fork_rng(devices=[]):
    torch.default_generator.manual_seed(0)
    trained.reject(
        "untrained",
        "owner 0.0.*an untrained model's: equal guesses have 4.03",
        ours.GPT(len(VOCABULARY), 64, 4, 2),
    )
trained.reject("the losses", "a list of 2; train returns the losses", [4.2, 4.1])
trained.reject("the class", "came the class", ours.GPT)
trained.reject(
    "one block",
    "in every relation.*owner 0.*is the lowest, and hint 2",
    Other(without_second_block),
)
trained.reject("knows the next word", "reads its answers", Other(knows_the_next))
trained.reject(
    "probabilities", "between 0 and 1: are they prob", Other(lambda ids: BOOKS(ids).softmax(-1))
)
trained.reject("half sure", "is nearly there.*hint 3", Other(half_sure))
trained.reject("flat over what is free", "an exact KL under 0.03", Other(flat))
trained.reject("the last place alone", "shape", Other(lambda ids: BOOKS(ids)[:, -1]))


# Writing
def drawn(model, ids, n, *, ask=lambda logits: logits[:, -1], read=lambda ids: ids,
    pick=lambda logits: logits.softmax(-1).multinomial(1)):  # fmt: skip
    while ids.shape[1] < n:
        ids = torch.cat([ids, pick(ask(model(read(ids))))], dim=1)
    return ids


def by_race(logits):
    return (logits - torch.rand_like(logits).log().neg().log()).argmax(-1, keepdim=True)


def room_first(model, ids, n):
    out = torch.zeros(len(ids), n, dtype=torch.long)
    out[:, : ids.shape[1]] = ids
    for i in range(ids.shape[1], n):
        out[:, i] = torch.distributions.Categorical(logits=model(out[:, :i])[:, -1]).sample()
    return out


def only_the_prompt(model, ids, n):
    return drawn(model, ids, n, read=lambda text: text[:, : ids.shape[1]])


write = Exercise(your_own_gpt.write)
write.accept("ours", ours.write)
write.accept("room for all", room_first)
write.accept("Gumbel's race", partial(drawn, pick=by_race))
write.reject(
    "the likeliest",
    "as often as.*the likeliest word always comes",
    partial(drawn, pick=lambda x: x.argmax(-1, keepdim=True)),
)
write.reject("asks the first place", "first place", partial(drawn, ask=lambda x: x[:, 0]))
write.reject(
    "reads the last word", "only the last word", partial(drawn, read=lambda ids: ids[:, -1:])
)
write.reject("reads the prompt", "only the prompt", only_the_prompt)
write.reject(
    "n more words", r"whole numbers \(3, 9\)", lambda m, ids, n: drawn(m, ids, n + ids.shape[1])
)
write.reject(
    "new words alone", "whole numbers", lambda m, ids, n: drawn(m, ids, n)[:, ids.shape[1] :]
)
write.reject("NaN", "NaN", lambda m, ids, n: drawn(m, ids, n) * float("nan"))
write.reject(
    "one draw for all texts",
    "one word is drawn for all texts",
    partial(drawn, pick=lambda x: x[:1].softmax(-1).multinomial(1).expand(len(x), 1)),
)


def seeded(model, ids, n, inside=False):
    if not inside:
        torch.manual_seed(0)

    def pick(logits):
        if inside:
            torch.manual_seed(0)
        return logits.softmax(-1).multinomial(1)

    return drawn(model, ids, n, pick=pick)


def one_number_for_all(logits):
    """Draw each text's word by the same random number."""
    return (logits.softmax(-1).cumsum(-1) < torch.rand(1)).sum(-1, keepdim=True)


def with_temperature(t):
    return partial(drawn, pick=lambda x: (x / t).softmax(-1).multinomial(1))


def nucleus(logits):
    p, order = logits.softmax(-1).sort(descending=True)
    p = p.masked_fill(p.cumsum(-1) - p > 0.9, 0.0)
    return order.gather(-1, p.multinomial(1))


write.reject("colder", "temperature of about 0.7", with_temperature(0.7))
write.reject("hotter", "temperature of about 1.5", with_temperature(1.5))
write.reject("top-p", "rare words never come", partial(drawn, pick=nucleus))
write.reject("one number", "one word is drawn for all", partial(drawn, pick=one_number_for_all))
write.reject("40 words", "only the last 40", partial(drawn, read=lambda ids: ids[:, -40:]))
write.reject("48 words", "only the last 48", partial(drawn, read=lambda ids: ids[:, -48:]))
write.reject("16 words", "only the last 16", partial(drawn, read=lambda ids: ids[:, -16:]))
write.reject("a seed at the start", "a seed is set inside", seeded)
write.reject("a seed in the loop", "a seed is set inside", partial(seeded, inside=True))
write.reject(
    "squares", "as often as", partial(drawn, pick=lambda x: (2 * x).softmax(-1).multinomial(1))
)
write.reject(
    "flat",
    "is sure of every word",
    partial(drawn, pick=lambda x: torch.ones_like(x).multinomial(1)),
)
write.reject("in front", "begin as they were given", lambda m, ids, n: drawn(m, ids, n).flip(1))
write.reject("logits as weights", "it runs", partial(drawn, pick=lambda x: (x - 70).multinomial(1)))


# The divergence
def taken(truth, logits, change=lambda terms: terms.sum(-1), log=None):
    terms = truth * (truth.log() - (logits.log_softmax(-1) if log is None else log))
    return change(torch.where(truth > 0, terms, 0.0))


def by_xlogy(p, logits):
    return (torch.special.xlogy(p, p) - p * logits.double().log_softmax(-1)).sum(-1)


def by_kl_div(p, logits):
    return F.kl_div(logits.double().log_softmax(-1), p, reduction="none").sum(-1)


kl = Exercise(your_own_gpt.kl)
kl.accept("ours", ours.kl)
kl.accept("in float32", lambda p, x: taken(p.float(), x))
kl.accept("xlogy", by_xlogy)
kl.accept("kl_div", by_kl_div)
kl.reject("cross-entropy", "cross-entropy", lambda p, x: -(p * x.double().log_softmax(-1)).sum(-1))
kl.reject(
    "places changed",
    "changed places",
    lambda p, x: (x.double().softmax(-1) * (x.double().log_softmax(-1) - p.clamp(1e-12).log())).sum(
        -1
    ),
)


def reversed_kl(p, x):
    q = x.double().log_softmax(-1)
    return q.exp() * (q - p.log())


kl.reject("reversed", "changed places", lambda p, x: reversed_kl(p, x).sum(-1))
kl.reject(
    "reversed, where p > 0",
    "changed places",
    lambda p, x: torch.where(p > 0, reversed_kl(p, x), 0.0).sum(-1),
)
kl.reject(
    "reversed, by kl_div",
    "changed places",
    lambda p, x: F.kl_div(p.log(), x.double().softmax(-1), reduction="none").sum(-1),
)
kl.reject(
    "nan_to_num",
    "is what nan_to_num makes of ∞; somewhere the logarithm of 0",
    lambda p, x: (p * (p.log() - x.softmax(-1).log())).nan_to_num().sum(-1),
)
kl.reject("bits", "in bits", lambda p, x: taken(p, x) / math.log(2))
kl.reject("mean", "the mean over the words", partial(taken, change=lambda terms: terms.mean(-1)))
kl.reject("sign", "its sign", lambda p, x: -taken(p, x))
kl.reject(
    "no softmax",
    "taken for logarithms",
    lambda p, x: torch.where(p > 0, p * (p.log() - x), 0.0).sum(-1),
)
kl.reject(
    "0 times infinity", "are NaN", lambda p, x: (p * (p.log() - x.double().log_softmax(-1))).sum(-1)
)
kl.reject("one number", "shape", partial(taken, change=lambda terms: terms.sum()))
kl.reject("first axis", "shape|differ", partial(taken, change=lambda terms: terms.sum(0)))
kl.reject(
    "log of a softmax",
    "351.*inf; somewhere the logarithm of 0",
    lambda p, x: torch.where(p > 0, p * (p.log() - x.softmax(-1).log()), 0.0).sum(-1),
)
for e, as_e in ((1e-9, "1e-09"), (1e-12, "1e-12"), (torch.finfo(torch.float32).eps, "1.19e-07")):
    kl.reject(
        f"{e:.3g} added to a softmax",
        f"as if {as_e} were added to q before",
        lambda p, x, e=e: taken(p, x, log=(x.softmax(-1) + e).log()),
    )
kl.reject(
    "a softmax held above 1e-10",
    "1e-10 were added to q before its logarithm, or q held",
    lambda p, x: taken(p, x, log=x.softmax(-1).clamp(1e-10).log()),
)
kl.reject(
    "something small added",
    "add nothing: .*0.43, 0.365",
    lambda p, x: (p * ((p + 1e-2).log() - (x.double().softmax(-1) + 1e-2).log())).sum(-1),
)


# Decoding
def stepped(model, ids, caches, start, *, turn=None, may=None, turn_q=None, at_end=False,
    divide=True, swap=False):  # fmt: skip
    turn = turn or (lambda x, start: rotate(x, 1_000, start))
    x, m = model.words(ids), ids.shape[1]
    may = causal_mask(m, start + m) if may is None else may(m, start)
    for one, cache in zip(model.blocks, caches, strict=True):
        layer, normed = one.attention, one.attention_norm(x)
        q, k, v = (split_heads(w(normed), layer.h) for w in (layer.w_q, layer.w_k, layer.w_v))
        k, v = cache.append(turn(k, start), v)
        k, v = (v, k) if swap else (k, v)
        q = (turn_q or turn)(q, start)
        scores = (q @ k.mT / (q.shape[-1] ** 0.5 if divide else 1)).masked_fill(~may, -INF)
        x = one.fed(x + layer.w_o(merge_heads(scores.softmax(-1) @ v)))
    logits = model.next_word(model.norm(x))
    return logits[:, -1:] if at_end else logits


def word_by_word(model, ids, caches, start):
    each = [stepped(model, ids[:, i : i + 1], caches, start + i) for i in range(ids.shape[1])]
    return torch.cat(each, dim=1)


def rotates_all_late(model, ids, caches, start, first=0):
    """Keep keys as they are, and rotate all of them in every step."""
    x, m = model.words(ids), ids.shape[1]
    for one, cache in zip(model.blocks, caches, strict=True):
        layer, normed = one.attention, one.attention_norm(x)
        q, k, v = (split_heads(w(normed), layer.h) for w in (layer.w_q, layer.w_k, layer.w_v))
        k, v = cache.append(k, v)
        scores = rotate(q, 1_000, start) @ rotate(k, 1_000, first).mT / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~causal_mask(m, start + m), -INF).softmax(-1)
        x = one.fed(x + layer.w_o(merge_heads(weights @ v)))
    return model.next_word(model.norm(x))


def all_from_start(model, ids, caches, start):
    """Keep keys as they are, and rotate all of them as if they were new."""
    return rotates_all_late(model, ids, caches, start, first=start)


def keys_from_0(model, ids, caches, start):
    return stepped(
        model, ids, caches, start,
        turn=lambda x, start: rotate(x, 1_000), turn_q=lambda x, start: rotate(x, 1_000, start),
    )  # fmt: skip


READ = []


def reads_all_again(model, ids, caches, start):
    """Keep the words, and read the whole text."""
    if start == 0:
        READ[:] = [ids]
    else:
        READ.append(ids)
    stepped(model, ids, caches, start)
    return model(torch.cat(READ, dim=1))[:, start:]


def does_not_keep(model, ids, caches, start):
    return stepped(model, ids, [type(cache)() for cache in caches], start)


def one_cache(model, ids, caches, start, **options):
    return stepped(model, ids, caches[:1] * len(caches), start, **options)


def rotated_by_head(x, start):
    return rotate(x.transpose(1, 2), 1_000, start).transpose(1, 2)


def from_the_last(m, start):
    """Hide nothing of what one cache holds."""
    return torch.ones(m, 1, dtype=torch.bool)


def forgets_to_append(model, ids, caches, start):
    if start == 0:
        return model(ids)
    return stepped(model, ids, caches, start)


def first_call_not_kept(model, ids, caches, start):
    return model(ids) if start == 0 else does_not_keep(model, ids, caches, start)


step = Exercise(your_own_gpt.step)
step.accept("ours", ours.step)
step.accept("word by word", word_by_word)
step.accept("keys rotated late", rotates_all_late)
step.reject(
    "rotation from 0",
    "begins at 0 again",
    partial(stepped, turn=lambda x, start: rotate(x, 1_000)),
)
step.reject(
    "rotation one late",
    "one place late",
    partial(stepped, turn=lambda x, start: rotate(x, 1_000, start + (start > 0))),
)
step.reject("not divided", "scores are not divided", partial(stepped, divide=False))
step.reject("swapped", "have changed places", partial(stepped, swap=True))
step.reject(
    "queries from 0",
    "queries are rotated from 0",
    partial(stepped, turn_q=lambda x, start: rotate(x, 1_000)),
)
step.reject("all keys from start", "the queries and all keys, the old ones too", all_from_start)
step.reject("keys from 0", "keys are rotated from 0", keys_from_0)
step.reject("not rotated", "without a rotation", partial(stepped, turn=lambda x, start: x))
step.reject("rotated by head", "rotated by its number", partial(stepped, turn=rotated_by_head))
step.reject(
    "no mask",
    "hear all of each other",
    partial(stepped, may=lambda m, start: torch.ones(m, start + m, dtype=torch.bool)),
)
step.reject(
    "upper left corner",
    "upper left corner",
    partial(stepped, may=lambda m, start: causal_mask(start + m)[:m]),
)
step.reject(
    "past not heard",
    "the past is not heard",
    partial(
        stepped,
        may=lambda m, start: causal_mask(m, start + m) & (torch.arange(start + m) >= start),
    ),
)
step.reject("the last place alone", "shape", partial(stepped, at_end=True))
step.reject("reads all again", "only the new words.*places did", reads_all_again)
step.reject("one cache for all", r"cache of its own, once.*hold \[10, 0\] places", one_cache)
step.reject("and no mask", "cache of its own", partial(one_cache, may=from_the_last))
step.reject("new caches in every call", "it runs|every cache holds", does_not_keep)
step.reject("the first call keeps nothing", "every cache holds 5 places", forgets_to_append)
step.reject(
    "labkit's layer", "it runs", lambda model, ids, caches, start: MultiHeadAttention(4, 2)(ids)
)
