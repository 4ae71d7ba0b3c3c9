// Attention in tiles: which tiles there are, what each holds and moves, and the running softmax.

import { matmul, sum } from "./mathematics.js";

// What has become of a pair of query and key.
export const [TO_COME, NOW, DONE, HIDDEN, SKIPPED] = [0, 1, 2, 3, 4];

export const HELD = ["queries", "keys", "values", "scores", "m and l", "outputs"];

// Queries from `top` to before `bottom` and keys from `left` to before `right`, counted from 0.
// It is the `last` of its queries where they meet no further key.
/** @typedef {{ top: number, bottom: number, left: number, right: number, last: boolean }} Tile */
/** @type {(n: number, block_q: number, block_k: number, causal: boolean) => Tile[]} */
export function walk(n, block_q, block_k, causal) {
  const tiles = [];
  for (let top = 0; top < n; top += block_q) {
    const bottom = Math.min(top + block_q, n);
    const end = causal ? bottom : n;
    for (let left = 0; left < end; left += block_k) {
      const right = Math.min(left + block_k, n);
      tiles.push({ top, bottom, left, right, last: right >= end });
    }
  }
  return tiles;
}

// The number, from 1, of the tile that has a pair; 0 where it is skipped.
/** @type {(tiles: Tile[], i: number, j: number) => number} */
export function stepOf(tiles, i, j) {
  return 1 + tiles.findIndex(
    ({ top, bottom, left, right }) => i >= top && i < bottom && j >= left && j < right,
  );
}

// What a tile holds in the small memory, in the order of HELD.
/** @type {(tile: Tile, d: number) => number[]} */
export function held({ top, bottom, left, right }, d) {
  const [n_q, n_k] = [bottom - top, right - left];
  return [n_q * d, n_k * d, n_k * d, n_q * n_k, 2 * n_q, n_q * d];
}

// The numbers that tiles read and write, and both.
/** @type {(tiles: Tile[], d: number) => number[]} */
export function moved(tiles, d) {
  const read = tiles.map((tile) => {
    const [queries, keys, values] = held(tile, d);
    return keys + values + (tile.left === 0 ? queries : 0);
  });
  const written = tiles.map(({ top, bottom, last }) => (last ? (bottom - top) * (d + 1) : 0));
  return [sum(read), sum(written), sum([...read, ...written])];
}

// Of a query: the largest score m so far, the sum l of exp(s - m), and `mixed`, the sum of
// exp(s - m) v. `factor` is what the last tile multiplied the old sums by.
/** @typedef {{ m: number, l: number, mixed: number[], factor: number }} Running */
/** @type {(old: Running, scores: number[], values: Matrix) => Running} */
function meet(old, scores, values) {
  const m = Math.max(old.m, ...scores);
  const factor = Math.exp(old.m - m);
  const shares = scores.map((score) => Math.exp(score - m));
  const mixed = matmul([shares], values)[0];
  return {
    m,
    l: factor * old.l + sum(shares),
    mixed: mixed.map((x, c) => factor * old.mixed[c] + x),
    factor,
  };
}

// Where the queries stand before the last of these tiles, and after it.
/** @type {(tiles: Tile[], scores: Matrix, values: Matrix) => { before: Running[], after: Running[] }} */
export function run(tiles, scores, values) {
  const mixed = values[0].map(() => 0);
  let after = scores.map(() => ({ m: -Infinity, l: 0, mixed, factor: 1 }));
  let before = after;
  for (const { top, bottom, left, right } of tiles) {
    before = after;
    after = before.map((old, i) => {
      if (i < top || i >= bottom) return old;
      return meet(old, scores[i].slice(left, right), values.slice(left, right));
    });
  }
  return { before, after };
}

/** @type {(known: Running) => number[]} */
export const output = ({ l, mixed }) => mixed.map((x) => (l ? x / l : 0));

/** @type {(a: Matrix, b: Matrix) => number} */
export const distance = (a, b) =>
  Math.max(0, ...a.flatMap((line, i) => line.map((x, c) => Math.abs(x - b[i][c]))));
