"""Keys and values of the positions that a layer has seen, kept for those that come."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.arguments import check_tensor, shapes, whole

__all__ = ["KVCache"]


class KVCache:
    """The keys and values of one layer's past, (B, h, n, d_k) and (B, h, n, d_v).

    It starts empty and takes its sizes from what is appended first. Memory for it grows by
    doubling, so that appending n positions one by one copies O(n) numbers and not O(n^2).
    ``layer(x, cache=cache)`` appends to it. Decode under ``torch.no_grad()``: appending writes in
    place, after which PyTorch refuses a backward pass through an earlier step that needs what lay
    there. What was held when something was appended under it gets no gradient, as with
    ``torch.cat``.

    Source: Shazeer (2019), section 2.4.1, for keys and values kept from step to step.

    >>> import torch
    >>> cache = KVCache()
    >>> k, v = cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> cache.n
    3
    """

    def __init__(self) -> None:
        self.n = 0  # positions held
        self._k: Tensor | None = None  # (B, h, room, d_k), of which n positions count
        self._v: Tensor | None = None

    def __repr__(self) -> str:
        shape = "" if self._k is None else f", shape of keys {tuple(self.k.shape)}"
        return f"KVCache(n={self.n}{shape})"

    @property
    def k(self) -> Tensor:
        """The keys held, (B, h, n, d_k), a view."""
        return self._held(self._k)

    @property
    def v(self) -> Tensor:
        """The values held, (B, h, n, d_v), a view."""
        return self._held(self._v)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions behind those held.

        Args:
            k: (B, h, n, d_k), keys of n new positions, one or more.
            v: (B, h, n, d_v), their values.

        Returns:
            All keys and all values, (B, h, cache.n, d_k) and (B, h, cache.n, d_v), views.

        Raises:
            TypeError: not tensors, or not of the type and device of those held.
            ValueError: shapes that fit neither each other nor what is held. Nothing is added then.
        """
        _check_new(k, v, self._k, self._v)
        start, end = self.n, self.n + k.shape[2]
        self._k, self._v = self._with_room(self._k, k, end), self._with_room(self._v, v, end)
        self._k[..., start:end, :] = k
        self._v[..., start:end, :] = v
        self.n = end
        return self.k, self.v

    def crop(self, n: int) -> None:
        """Keep the first n positions and forget the rest, such as rejected guesses.

        Raises:
            TypeError: not a whole number.
            ValueError: under 0, or more than are held.
        """
        n = whole("n", n)
        if not 0 <= n <= self.n:
            raise ValueError(
                f"n must lie between 0 and the {self.n} positions held; got {n}. "
                "A cache can be cut, not stretched."
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
        _check_index(index, self._k)
        index = index.to(self.k.device)
        self._k, self._v = self.k.index_select(0, index), self.v.index_select(0, index)

    def _held(self, stored: Tensor | None) -> Tensor:
        if stored is None:
            raise ValueError("an empty cache has no keys and values yet. Append some first.")
        return stored[..., : self.n, :]

    def _with_room(self, stored: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Return a tensor with room for ``end`` positions that holds what was stored."""
        if stored is None:
            return new.new_empty(*new.shape[:2], end, new.shape[-1])
        if stored.shape[2] >= end:
            # What is written without a graph must not pass gradients to what stood there before.
            without_graph = stored.requires_grad and not torch.is_grad_enabled()
            return stored.detach() if without_graph else stored
        wider = stored.new_empty(*stored.shape[:2], max(end, 2 * self.n), stored.shape[-1])
        wider[..., : self.n, :] = self._held(stored)
        return wider


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
