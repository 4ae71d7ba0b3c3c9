"""Keys and values of the positions that a layer has seen, kept for those that come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from labkit.arguments import check_tensor, shapes, size, whole
from labkit.quantisation import check_bits, dequantise, quantise

__all__ = ["KVCache"]

Parts = tuple[Tensor, ...]  # what is kept of keys and values, each (B, h, positions, width)


class KVCache:
    """The keys and values of one layer's past, (B, h, n, d_k) and (B, h, n, d_v).

    It starts empty and takes its sizes from what is appended first. Memory for it grows by
    doubling, so that appending n positions one by one copies O(n) numbers and not O(n^2). What
    ``append`` gave is never written over: the first append after a crop moves what is held.
    ``layer(x, cache=cache)`` appends to it.

    Decode under ``torch.no_grad()``. Where gradients are asked for, they are those of the causal
    pass, for every step, but each append then copies all that is held. What was held when something
    was appended under ``no_grad`` gets no gradient, as with ``torch.cat``.

    Args:
        window: a query sees the last ``window`` positions, its own included, and no earlier ones;
            all of them unless given. What no coming query sees is let go when the next positions
            are appended, so that the positions of the last call can still be taken back.
        sinks: so many first positions are kept and seen beside the window.
        bits: keep each number in 8, 4 or 2 bits, with an offset and a scale in float16 for each
            vector of a head. Keys are quantised as they are appended, that is after their
            rotation, and what a layer attends to is what is kept, new positions included. A
            backward pass through such a cache is refused.

    Raises:
        TypeError: a window or a number of sinks that is not a whole number.
        ValueError: a window under 1, sinks under 0 or without a window, or other bits.

    Source: Shazeer (2019), section 2.4.1, for keys and values kept from step to step; Xiao et al.
    (2023), section 3.2, for sinks, whose positions are there counted within the cache.

    >>> import torch
    >>> cache = KVCache()
    >>> k, v = cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> cache.n
    3
    """

    window: int | None = None  # for a subclass that begins otherwise

    def __init__(self, window: int | None = None, sinks: int = 0, bits: int | None = None) -> None:
        self.window = None if window is None else size("window", window)
        self.sinks = _checked_sinks(sinks, window)
        self.bits = None if bits is None else check_bits(bits)
        self.n = 0  # positions seen
        self._first = 0  # the first position held, but for the sinks
        self._begin = 0  # the position in the first row of the parts
        self._written = 0  # the position behind the last that was ever written there
        self._parts: Parts = ()  # with room for more positions than are held
        self._sunk: Parts = ()  # the same of the sinks, once positions behind them are let go
        self._like: Parts = ()  # no keys and no values, of the sizes, type and device of all

    def __repr__(self) -> str:
        shape = f", shape of keys {tuple(self.k.shape)}" if self._like else ""
        kept = {"window": self.window, "sinks": self.sinks, "bits": self.bits}
        return f"KVCache(n={self.n}{shape}{''.join(f', {x}={y}' for x, y in kept.items() if y)})"

    @property
    def k(self) -> Tensor:
        """The keys held, (B, h, len(cache.positions), d_k): a view where nothing is let go."""
        return self._read(0)

    @property
    def v(self) -> Tensor:
        """The values held, (B, h, len(cache.positions), d_v)."""
        return self._read(1)

    @property
    def positions(self) -> Tensor:
        """The positions held: all n, or the sinks and those that a window still needs."""
        device = self._like[0].device if self._like else None
        last = torch.arange(self._first, self.n, device=device)
        return torch.cat([torch.arange(self.sinks, device=device), last]) if self._sunk else last

    @property
    def nbytes(self) -> int:
        """The bytes of what is held. The room to grow, at most as much again, does not count."""
        return sum(part.nbytes for part in (*self._rows(), *self._sunk))

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions behind those held.

        Args:
            k: (B, h, n, d_k), keys of n new positions, one or more.
            v: (B, h, n, d_v), their values.

        Returns:
            All keys and all values, (B, h, cache.n, d_k) and (B, h, cache.n, d_v). With a window,
            those of ``cache.positions``: the new ones, and what the first of them sees.

        Raises:
            TypeError: not tensors, or not of the type and device of those held.
            ValueError: shapes that fit neither each other nor what is held. Nothing is added then.
        """
        _check_new(k, v, *(self._like or (None, None)))
        end = self.n + k.shape[2]
        new = (*self._written_as(k), *self._written_as(v))
        self._like = self._like or (_none_of(k), _none_of(v))
        self._let_go()
        self._make_room(new, end)
        for part, rows in zip(self._parts, new, strict=True):
            part[..., self.n - self._begin : end - self._begin, :] = rows
        self.n = self._written = end
        if self.bits is None or not torch.is_grad_enabled():
            return self.k, self.v
        return _without_gradient(k, self.k, self.bits), _without_gradient(v, self.v, self.bits)

    def crop(self, n: int) -> None:
        """Keep the first n positions and forget the rest, such as rejected guesses.

        Raises:
            TypeError: not a whole number.
            ValueError: under 0, more than are held, or so far back that a window is gone.
        """
        n = whole("n", n)
        if not 0 <= n <= self.n:
            raise ValueError(
                f"n must lie between 0 and the {self.n} positions held; got {n}. "
                "A cache can be cut, not stretched."
            )
        if n == 0:
            self._first, self._begin, self._sunk = 0, 0, ()
        elif self.window is not None and max(0, n - self.window + 1) < self._first:
            raise ValueError(
                f"n must be 0 or at least {self._first + self.window - 1}: the window of "
                f"{self.window} that ends at position n would begin before position {self._first}, "
                f"and what came before that was let go; got {n}. Read the text again, or widen the "
                "window."
            )
        self.n = n

    def reorder(self, index: Tensor) -> None:
        """Give place b of the batch what place index[b] held, as beam search asks.

        Args:
            index: (B',), whole numbers from 0 to B - 1; B' may differ from B.

        Raises:
            TypeError: not a tensor of whole numbers.
            ValueError: an empty cache, another shape, or a place that the batch does not have.
        """
        _check_index(index, self._like[0] if self._like else None)
        index = index.to(self._like[0].device)
        self._change(lambda part: part.index_select(0, index))

    def to(self, device: torch.device | str) -> KVCache:
        """Move what is held to a device, and give the cache itself."""
        self._change(lambda part: part.to(device))
        return self

    def visible(self, n_q: int, mask: Tensor | None = None) -> Tensor | None:
        """Say which of the keys that append gave the last n_q positions may attend to.

        Args:
            n_q: number of queries, the last positions.
            mask: boolean, broadcastable to (B, h, n_q, cache.n), what else is asked.

        Returns:
            A mask of (..., n_q, len(cache.positions)), or None where causal attention hides enough.
        """
        if self.window is None:
            return mask
        held = self.positions
        if mask is not None and mask.ndim and mask.shape[-1] > 1:
            mask = mask[..., held]
        if n_q == 1:
            return mask
        own = torch.arange(self.n - n_q, self.n, device=held.device)[:, None]
        may = (held <= own) & ((held > own - self.window) | (held < self.sinks))
        return may if mask is None else mask & may

    def at_positions(self, weights: Tensor) -> Tensor:
        """Give weights on the keys held, (..., n_q, held), their places among all n: the rest 0."""
        if self.window is None:
            return weights
        everywhere = weights.new_zeros(*weights.shape[:-1], self.n)
        return everywhere.index_copy(-1, self.positions, weights)

    def _written_as(self, x: Tensor) -> Parts:
        """Return what is kept of keys or values."""
        return (x,) if self.bits is None else quantise(x, self.bits) if x.shape[-1] else (x, x)

    def _read(self, which: int) -> Tensor:
        """Return all keys (0) or all values (1) held."""
        if not self._like:
            raise ValueError("an empty cache has no keys and values yet. Append some first.")
        half = len(self._parts) // 2  # the codes and the scales, or the numbers as they came
        mine = slice(which * half, which * half + half)
        rows = self._rows()[mine]
        if self._sunk:
            rows = tuple(torch.cat(both, 2) for both in zip(self._sunk[mine], rows, strict=True))
        like = self._like[which]
        if self.bits is None or not like.shape[-1]:
            return rows[0]
        codes, scales = rows
        return dequantise(codes, scales, self.bits, like.shape[-1], like.dtype)

    def _rows(self) -> Parts:
        """Return of each part the positions from the first to the last."""
        begin, end = self._first - self._begin, self.n - self._begin
        return tuple(part[..., begin:end, :] for part in self._parts)

    def _let_go(self) -> None:
        """Forget what the next position does not see."""
        first = 0 if self.window is None else self.n - self.window + 1
        if first > max(self.sinks, self._first):
            if self.sinks and not self._sunk:
                self._sunk = tuple(part[..., : self.sinks, :].clone() for part in self._rows())
            self._first = first

    def _make_room(self, new: Parts, end: int) -> None:
        """Let the parts have rows up to position ``end`` that nobody was ever given."""
        held, parts = self.n - self._first, self._parts
        enough = end - self._begin <= parts[0].shape[2] if parts else False
        writable = self._written == self.n and not any(map(_is_needed, parts))
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in new)
        if enough and writable and not recorded:
            return
        if not torch.is_grad_enabled():
            self._sunk = tuple(part.detach() for part in self._sunk)
        room = max(end - self._first, 0 if recorded else 2 * held)
        wider = tuple(x.new_empty(*x.shape[:2], room, x.shape[-1]) for x in new)
        for part, rows in zip(wider, self._rows(), strict=False):
            part[..., :held, :] = rows
        self._parts, self._begin = wider, self._first

    def _change(self, change: Any) -> None:
        """Change all that is held in one way."""
        self._parts = tuple(change(rows) for rows in self._rows())
        self._begin, self._written = self._first, self.n
        self._sunk = tuple(map(change, self._sunk))
        self._like = tuple(map(change, self._like))


class _NoGradient(torch.autograd.Function):
    """Give what was quantised in place of what came, and refuse to pass a gradient to that."""

    @staticmethod
    def forward(ctx: Any, came: Tensor, held: Tensor, bits: int) -> Tensor:
        ctx.bits = bits
        return held.view_as(held)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        raise RuntimeError(
            f"there is no gradient through a cache of {ctx.bits} bits, because rounding has none. "
            "Decode under torch.no_grad(), and take gradients from a cache without bits."
        )


def _without_gradient(came: Tensor, held: Tensor, bits: int) -> Tensor:
    without: Tensor = _NoGradient.apply(came, held, bits)
    return without


@contextmanager
def all_or_none(caches: Sequence[KVCache]) -> Iterator[None]:
    """Put caches back as they were if an error comes out of what is done with them."""
    before = [vars(cache).copy() for cache in caches]
    try:
        yield
    except BaseException:
        for cache, was in zip(caches, before, strict=True):
            vars(cache).clear()
            vars(cache).update(was)
        raise


def check_cache(cache: KVCache | None, x: Tensor, context: Tensor | None) -> int:
    """Return how many positions the cache holds: none where there is no cache."""
    if cache is None:
        return 0
    if not isinstance(cache, KVCache):
        raise TypeError(
            f"cache must be a labkit.KVCache; got {type(cache).__name__}. Make one for each layer: "
            "cache = KVCache()."
        )
    if context is not None:
        raise ValueError(
            "a cache holds the keys and values of x, so there can be no context beside it; got "
            "both. Leave one out."
        )
    check_tensor("x", x, 3, "(B, n, d_model)")
    if x.ndim > 3:
        raise ValueError(
            "with a cache, x must have shape (B, n, d_model); got shape "
            f"{tuple(x.shape)}. Merge the leading dimensions."
        )
    return cache.n


def check_caches(caches: Sequence[KVCache] | None, blocks: int) -> int:
    """Return how many positions each of the caches holds: none where there are no caches."""
    if caches is None:
        return 0
    remedy = "Make them with caches = model.caches()."
    kinds = [type(cache).__name__ for cache in caches if not isinstance(cache, KVCache)]
    if kinds:
        raise TypeError(f"caches must be of labkit.KVCache; got {', '.join(kinds)}. {remedy}")
    different = len({id(cache) for cache in caches})
    if not len(caches) == different == blocks:
        raise ValueError(
            f"each of the {blocks} blocks needs a cache of its own; got {len(caches)}, of which "
            f"{different} different. {remedy}"
        )
    held = {cache.n for cache in caches}
    if len(held) > 1:
        raise ValueError(
            f"the caches must hold the same positions; got {sorted(held)} of them. "
            "Crop each to the same length."
        )
    return held.pop()


def _checked_sinks(sinks: int, window: int | None) -> int:
    sinks = whole("sinks", sinks)
    if sinks < 0 or (sinks and window is None):
        raise ValueError(
            f"sinks must be first positions that are kept beside a window, 0 or more; got {sinks} "
            f"with window={window}. Give a window, or leave them out."
        )
    return sinks


def _is_needed(part: Tensor) -> bool:
    """Say whether a backward pass may need what is there, or whether it may not be written to."""
    frozen = part.is_inference() and not torch.is_inference_mode_enabled()
    return part.requires_grad or frozen


def _none_of(x: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], 0, x.shape[-1])


def _check_new(k: Tensor, v: Tensor, held_k: Tensor | None, held_v: Tensor | None) -> None:
    for name, new, held in (("k", k, held_k), ("v", v, held_v)):
        form = f"(B, h, n, d_{name})"
        check_tensor(name, new, 4, form)
        if new.ndim > 4 or new.shape[-2] == 0:
            raise ValueError(
                f"{name} must have shape {form} with at least one position; got {tuple(new.shape)}."
            )
        if held is None:
            continue
        if new.dtype != held.dtype or new.device != held.device:
            raise TypeError(
                f"{name} must have the type and device of what the cache holds, {held.dtype} on "
                f"{held.device}; got {new.dtype} on {new.device}. Convert it, or begin a new cache."
            )
        sizes = held.shape[0], held.shape[1], new.shape[2], held.shape[3]
        if new.shape != sizes:
            raise ValueError(
                f"{name} must fit what the cache holds: {form} = {sizes}; got {tuple(new.shape)}. "
                "Another batch or another layer needs a cache of its own."
            )
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(
            f"k and v must agree in all but the last dimension; got {shapes(k=k, v=v)}. "
            "Each key needs its value."
        )


def _check_index(index: Tensor, held: Tensor | None) -> None:
    if held is None:
        raise ValueError("an empty cache has nothing to reorder. Append some positions first.")
    check_tensor("index", index, 1, "(B,)")
    if index.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"index must hold whole numbers, torch.int64; got {index.dtype}.")
    batch = held.shape[0]
    if index.ndim > 1 or len(index) == 0 or bool(((index < 0) | (index >= batch)).any()):
        raise ValueError(
            f"index must have shape (B,) and name places from 0 to {batch - 1}; got shape "
            f"{tuple(index.shape)} with {index.tolist()}."
        )
