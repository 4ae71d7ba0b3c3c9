"""The book's model with a part of a learner's in it, and how it does: how the labs end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from labkit.attention import MultiHeadAttention, causal_mask, merge_heads, split_heads
from labkit.labs.guard import Answer, NotYet
from labkit.models.gpt import GPT, load_gpt
from labkit.models.stories import Stories
from labkit.models.training import report_logits, unseen
from labkit.positions import rotate

__all__ = ["HeadsByHand", "finale", "one_thread", "standing", "stories", "with_heads"]

JUDGED = 200  # stories, as in the chapters
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def finale(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make of a function what a lab's last cell calls: a stub among its answers gets an invitation.

    Each argument is a learner's answer, and is handed on as a guard's Answer named as there. What
    the function returns, such as a figure, is what the cell shows.
    """

    @wraps(function)
    def shown(**answers: Any) -> Any:
        try:
            return function(**{name: Answer(name, answer) for name, answer in answers.items()})
        except NotYet as invitation:
            print(invitation)
            return None

    return shown


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: models as small as the labs' take longer on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class HeadsByHand(nn.Module):
    """Attend with a layer's matrices and somebody's own heads, called as the layer is.

    Args:
        layer: whose projections and rotation are used.
        attend: is handed queries, keys and values, (B, h, n, d_k), and a boolean mask, (n, n), True
            where a query may attend; returns (B, h, n, d_k).
    """

    def __init__(self, layer: MultiHeadAttention, attend: Attend) -> None:
        super().__init__()
        self.layer, self.attend = layer, attend

    def forward(self, x: Tensor, *, mask: None = None, is_causal: bool = True,
        cache: None = None) -> Tensor:  # fmt: skip
        layer, n = self.layer, x.shape[-2]
        q, k, v = (split_heads(part(x), layer.h) for part in (layer.w_q, layer.w_k, layer.w_v))
        if layer.rotary_base is not None:
            q, k = rotate(q, layer.rotary_base), rotate(k, layer.rotary_base)
        may = causal_mask(n) if is_causal else torch.ones(n, n, dtype=torch.bool)
        return layer.w_o(merge_heads(self.attend(q, k, v, may)))


def with_heads(attend: Attend, model: GPT | None = None) -> GPT:
    """Let all heads of a model attend by somebody's own function, in place, and return the model.

    Args:
        attend: as HeadsByHand takes it.
        model: the small GPT of the chapters, loaded anew, unless given.
    """
    model = load_gpt() if model is None else model
    for block in model.stack():
        block.attention = HeadsByHand(block.attention, attend)  # type: ignore[assignment]
    return model.eval()


def stories(count: int | None = None) -> Stories:
    """Draw stories that no training has seen: those that the chapters judge by unless given."""
    return _unseen(JUDGED if count is None else count)


_unseen = cache(unseen)


@torch.no_grad()
def standing(model: GPT, judged: Stories | None = None) -> dict[str, float]:
    """Measure a model: its loss, the entropy below it, the exact KL, and each relation.

    Returns:
        "loss", "entropy" and "KL" in nats a word, then for each relation the mean probability that
        the model gives to what is right.
    """
    judged = stories() if judged is None else judged
    logits = model(judged.ids)
    told = report_logits(logits, judged)
    measured = {
        "loss": told.loss,
        "entropy": judged.floor,
        "KL": judged.divergence(logits).mean().item(),
    }
    return measured | told.right
