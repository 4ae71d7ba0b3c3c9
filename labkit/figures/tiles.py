"""Attention in tiles: a running maximum, a running sum, and what is moved to and fro."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from traitlets import Dict, Unicode

from labkit.attention import causal_mask, scaled_dot_product_attention
from labkit.figures.base import Choice, LiveFigure
from labkit.tiles import Partial, merge, partial_attention

LENGTH = 8
# Made so that the largest score of a query comes early, late, or rises step by step. No value is
# negative, so that sums of them can be drawn as bars.
QUERIES = [
    *([2, 0, -1, 2], [-1, -1, -2, 1], [0, 2, -1, 0], [-2, 1, 2, -2]),
    *([0, -2, 2, 1], [1, -2, 0, -2], [1, -1, -2, 1], [2, 2, -2, 1]),
]
KEYS = [
    *([2, 1, 2, -1], [0, -2, 1, -1], [1, -2, 2, 1], [2, -2, 0, 1]),
    *([0, -1, 0, 0], [2, 1, 1, 2], [2, 2, -2, -2], [0, 1, -1, 1]),
]
VALUES = [
    *([4, 0, 1, 7], [0, 6, 3, 2], [8, 1, 5, 0], [2, 9, 0, 4]),
    *([6, 3, 8, 1], [1, 5, 2, 9], [9, 2, 6, 3], [3, 7, 4, 5]),
]
TO_COME, NOW, DONE, HIDDEN, SKIPPED = range(5)


class Tile(NamedTuple):
    """Queries from ``top`` to the one before ``bottom``, keys from ``left`` to before ``right``."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def sizes(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left


class Tiles(LiveFigure):
    """Step through the tiles of a grid of scores, none of which is ever written out.

    The queries come in blocks of ``block_q``; each meets the keys in blocks of ``block_k``, as in
    ``labkit.tiles.tiled_attention``. For each query a tile's scores s change the maximum m so far,
    the sum l of exp(s - m), and the output, the mixture of the values met so far. Tiles that lie
    wholly in the future are skipped.

    Counted are numbers that move between a large memory and a small one. Tiles read their queries
    once for each block, and keys and values for each tile; they write the outputs and, for a
    backward pass, one logarithm of the sum for each query. The plain way makes the scores, then
    the weights, then the outputs, and reads and writes all of them: 2n^2 + 3nd numbers and
    2n^2 + nd. The small memory holds a tile's queries, keys, values and scores, and m, l and
    output of each of its queries. Queries, keys and values have d = 4 numbers each.

    Args:
        state: the traits: the sizes ``block_q`` and ``block_k`` (1 to 8), ``is_causal``, and
            ``at``, how many tiles are taken (0 to 64; after the last, the last).

    >>> Tiles(block_q=2, block_k=3, at=3).values()["numbers moved"]  # so far, in all, plain
    [[72, 288, 224], [10, 40, 160]]
    """

    title = Unicode("Attention in tiles").tag(sync=True)
    caption = Unicode(
        "A grid of eight queries and eight keys, over which a tile slides. Only the tile at hand "
        "has scores s, more strongly coloured where exp(s − m) is larger. Beside each of its "
        "queries stand the maximum m, the sum l as a bar, and the sum a as four bars. Where m "
        "rises, the old sums shrink by the factor exp(m was − m) from the dashed length, and "
        "then the tile’s part is added. Folded below are all numbers, the outputs a / l beside "
        "those of the two-pass softmax, and how many numbers a small memory holds and a large "
        "one gives and takes."
    ).tag(sync=True)
    axes = Dict(
        {
            "pairs (1 now, 2 done, 3 hidden, 4 skipped)": ["query", "key"],
            "scores": ["query", "key"],
            "m and l": ["query", ["m", "l"]],
            "a": ["query", "entry"],
            "running output": ["query", "entry"],
            "output of the two-pass softmax": ["query", "entry"],
            "numbers moved": [["read", "written"], ["so far", "in all", "the plain way"]],
            "numbers in the small memory": [["now", "at most"]],
        }
    ).tag(sync=True)
    given: Dict[str, Any] = Dict(
        {"q": QUERIES, "k": KEYS, "v": VALUES}, help="the queries, keys and values"
    ).tag(sync=True)
    block_q = Choice(range(1, LENGTH + 1), default_value=4).tag(sync=True)
    block_k = Choice(range(1, LENGTH + 1), default_value=2).tag(sync=True)
    is_causal = Choice([False, True], default_value=False).tag(sync=True)
    at = Choice(range(LENGTH**2 + 1), default_value=1).tag(sync=True)

    def values(self) -> dict[str, Any]:
        q, k, v = (torch.tensor(self.given[name]).double() for name in "qkv")
        n, d = q.shape
        sees = causal_mask(n) if self.is_causal else torch.ones(n, n).bool()
        tiles = self._tiles()
        taken = tiles[: self.at]
        scores = (q @ k.T / d**0.5).masked_fill(~sees, -torch.inf)
        met = torch.zeros_like(sees)
        row = Partial(torch.zeros_like(v), torch.full((n,), -torch.inf).double())
        for tile in taken:
            here = torch.zeros_like(sees)
            here[tile.top : tile.bottom, tile.left : tile.right] = True
            met |= here
            row = merge(row, partial_attention(q, k, v, mask=here & sees))
        m = scores.masked_fill(~met, -torch.inf).amax(-1)
        total = torch.where(m == -torch.inf, 0, (row.lse - m).exp())
        plain = [2 * n**2 + 3 * n * d, 2 * n**2 + n * d]
        moved = zip(self._moved(taken, d), self._moved(tiles, d), plain, strict=True)
        return {
            "pairs (1 now, 2 done, 3 hidden, 4 skipped)": pairs(taken, tiles, sees).tolist(),
            "scores": scores.tolist(),
            "m and l": torch.stack([m, total], -1).tolist(),
            "a": (total[:, None] * row.out).tolist(),
            "running output": row.out.tolist(),
            "output of the two-pass softmax": scaled_dot_product_attention(
                q, k, v, is_causal=self.is_causal
            ).tolist(),
            "numbers moved": [list(line) for line in moved],
            "numbers in the small memory": [
                held(*taken[-1].sizes, d) if taken else 0,
                max(held(*tile.sizes, d) for tile in tiles),
            ],
        }

    def _tiles(self) -> list[Tile]:
        """Give the tiles in their order: all keys that a block of queries sees, then the next."""
        tiles = []
        for top in range(0, LENGTH, self.block_q):
            bottom = min(top + self.block_q, LENGTH)
            for left in range(0, bottom if self.is_causal else LENGTH, self.block_k):
                tiles.append(Tile(top, bottom, left, min(left + self.block_k, LENGTH)))
        return tiles

    def _moved(self, tiles: list[Tile], d: int) -> list[int]:
        """Count the numbers that tiles read, and those that they write."""
        read = written = 0
        for tile in tiles:
            n_q, n_k = tile.sizes
            read += 2 * n_k * d + (n_q * d if tile.left == 0 else 0)
            last = tile.right >= (tile.bottom if self.is_causal else LENGTH)
            written += n_q * (d + 1) if last else 0
        return [read, written]


def pairs(taken: list[Tile], tiles: list[Tile], sees: Tensor) -> Tensor:
    """Say for each query and key what has become of the pair."""
    told = torch.full(sees.shape, SKIPPED)
    for tile in tiles:
        told[tile.top : tile.bottom, tile.left : tile.right] = TO_COME
    for tile in taken:
        here = told[tile.top : tile.bottom, tile.left : tile.right]
        here[:] = NOW if tile == taken[-1] else DONE
        here[~sees[tile.top : tile.bottom, tile.left : tile.right]] = HIDDEN
    return told


def held(n_q: int, n_k: int, d: int) -> int:
    """Count what the small memory holds for a tile: inputs, scores, m, l and outputs."""
    return 2 * n_q * d + 2 * n_k * d + n_q * n_k + 2 * n_q
