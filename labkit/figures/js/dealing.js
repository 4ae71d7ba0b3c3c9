// A layer that is dealt to ranks, by heads or by positions: who holds and computes what, and what
// is sent.

import { matmul, normals, range, softmax, sum, transpose } from "./mathematics.js";
import { plural, whole } from "./text.js";

const BYTES = 4; // of a number
const SUMS = [0, 0, 1, 1, 2]; // all-reduces done at a stage

// The small layer, of the numbers that labkit/figures/ranks.py draws.
export const [N, WIDTH] = [3, 4];
const [SEED, D_K, MOST] = [3, 2, 8];
const [X, DY, BIAS, QUERY_HEADS] = [0, 12, 24, 32];
const SLAB = D_K * WIDTH;
const KEY_HEADS = QUERY_HEADS + 2 * SLAB * MOST;
const NUMBERS = [...normals(SEED, 0, KEY_HEADS + 2 * SLAB * MOST)];

/** @type {(start: number, rows: number) => Matrix} */
const drawn = (start, rows) =>
  Array.from({ length: rows }, (_, i) => NUMBERS.slice(start + WIDTH * i, start + WIDTH * (i + 1)));

/** @type {(...all: Matrix[]) => Matrix} */
const add = (...all) => all[0].map((line, i) => line.map((_, j) => sum(all.map((a) => a[i][j]))));

const list = (words, last) =>
  words.length === 1 ? words[0] : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;

// What one head adds to the layer's output, and to dx, at every position.
/** @type {(head: number, keyHead: number) => { out: Matrix, dx: Matrix }} */
function pass(head, keyHead) {
  const [x, dy] = [drawn(X, N), drawn(DY, N)];
  const [wq, wo] = [0, SLAB].map((at) => drawn(QUERY_HEADS + 2 * SLAB * head + at, D_K));
  const [wk, wv] = [0, SLAB].map((at) => drawn(KEY_HEADS + 2 * SLAB * keyHead + at, D_K));
  const [q, k, v] = [wq, wk, wv].map((w) => matmul(x, transpose(w)));
  const scaled = (a) => a.map((line) => line.map((y) => y / Math.sqrt(D_K)));
  const weights = scaled(matmul(q, transpose(k))).map(softmax);
  const dHead = matmul(dy, transpose(wo));
  const dWeights = matmul(dHead, transpose(v));
  const dScores = scaled(
    weights.map((line, i) => {
      const mean = sum(line.map((weight, j) => weight * dWeights[i][j]));
      return line.map((weight, j) => weight * (dWeights[i][j] - mean));
    }),
  );
  const [dq, dk, dv] = [
    matmul(dScores, k),
    matmul(transpose(dScores), q),
    matmul(transpose(weights), dHead),
  ];
  return {
    out: matmul(matmul(weights, v), wo),
    dx: add(matmul(dq, wq), matmul(dk, wk), matmul(dv, wv)),
  };
}

// Why heads cannot be dealt, or "".
/** @type {(world: number, h: number, h_kv: number, counts: number[]) => string} */
function refuseHeads(world, h, h_kv, counts) {
  const fit = list(counts.filter((count) => h % count === 0), "or");
  if (h % h_kv) {
    const why = `${h_kv} heads of keys cannot serve ${plural(h, "head")} in equal groups`;
    return `Refused: ${why}; ${fit} can.`;
  }
  if (h % world) {
    const why = `${world} ranks do not divide ${plural(h, "head")}`;
    return `Refused: ${why}, and one would hold more than another; ${fit} would do.`;
  }
  if (h_kv % world && world % h_kv) {
    const why = `of ${world} ranks and ${h_kv} heads of keys neither divides the other`;
    return `Refused: ${why}, and a rank's heads would share their keys unevenly.`;
  }
  return "";
}

// Why positions cannot be dealt, or "".
/** @type {(world: number, n: number, blocks: number) => string} */
function refusePositions(world, n, blocks) {
  if (n % blocks === 0) return "";
  const what = blocks > world ? `${blocks} blocks, two a rank,` : `${world} ranks`;
  return `Refused: ${what} do not divide ${n} positions.`;
}

// What is told of a stage of heads dealt to ranks.
/** @type {(at: number, sent: number, sizes: Record<string, number>) => string} */
export function tellStage(at, sent, { world, h, h_kv }) {
  if (world === 1) {
    const alone = "There is nothing to add, and nothing is sent.";
    return [
      "One rank has x and all heads.",
      "Forward: the rank's output is the layer's.",
      alone,
      "Backward: the rank's dx is the layer's.",
      alone,
    ][at];
  }
  const copies = world / h_kv;
  const keys = Math.max(h_kv / world, 1);
  const held = `${plural(h / world, "head")} and ${plural(keys, "head")} of keys`;
  const shared = copies > 1 ? `, of which ${copies} ranks hold copies` : "";
  const bytes = `each rank has sent ${plural(sent, "byte", "bytes", whole)}`;
  const more = copies > 1 ? "; gradients of copies have to be added too" : "";
  return [
    `Every rank has all of x, ${held}${shared}; nothing has been sent.`,
    "Forward: each rank's heads write a partial output, and none of them is the layer's.",
    `All-reduce: ${world} partial outputs are added, every rank has the layer's, and ${bytes}.`,
    "Backward: every rank has dy, and its heads turn it into a partial dx.",
    `All-reduce: ${world} partial dx are added, every rank has the layer's, and ${bytes}${more}.`,
  ][at];
}

// What is told of a step of the ring: `now` has each rank's pairs.
/** @type {(moves: number, now: number[]) => string} */
export function tellStep(moves, now) {
  const world = now.length;
  const times = moves === 1 ? "once" : `${moves} times`;
  const come = moves ? `keys and values have moved on ${times}` : "every rank has its own keys";
  const computed = now.every((pairs) => pairs === now[0])
    ? `${world === 1 ? "it" : "each rank"} computes ${plural(now[0], "pair", "pairs", whole)}`
    : `ranks 0 to ${world - 1} compute ${list(now.map(whole), "and")} pairs, and the step lasts ` +
      "as long as the largest share";
  return `Step ${moves + 1} of ${world}: ${come}; ${computed}.`;
}

// Who holds what of h heads, what each rank's heads compute, and what is sent.
/** @type {(sizes: Record<string, number>, at: number, counts: number[]) => any} */
export function dealHeads({ world, h, h_kv, n, d_model }, at, counts) {
  const refused = refuseHeads(world, h, h_kv, counts);
  const ranks = range(world);
  const keyOf = (head) => Math.floor((head * h_kv) / h);
  const own = (r) => range(refused ? 0 : h).filter((head) => Math.floor((head * world) / h) === r);
  const readers = (r, j) => own(r).filter((head) => keyOf(head) === j);
  const heads = ranks.map((r) => range(h).map((head) => Number(own(r).includes(head))));
  const keys = ranks.map((r) => range(h_kv).map((j) => Number(readers(r, j).length > 0)));

  // Rank 0 alone has the bias of W^O.
  const passed = range(refused ? 0 : h).map((head) => pass(head, keyOf(head)));
  const total = (lines) => range(WIDTH).map((j) => sum(lines.map((line) => line[j])));
  const bias = (r) => (r || refused ? [] : [NUMBERS.slice(BIAS, BIAS + WIDTH)]);
  const outputs = ranks.map((r) => total([...own(r).map((i) => passed[i].out.at(-1)), ...bias(r)]));
  const grads = ranks.map((r) => total(own(r).map((i) => passed[i].dx.at(-1))));

  const d_k = d_model / h;
  const count = (queries, ofKeys) =>
    2 * d_k * d_model * (queries + ofKeys) + d_k * (queries + 2 * ofKeys);
  const parameters = ranks.map((r) =>
    refused ? 0 : count(sum(heads[r]), sum(keys[r])) + (r ? 0 : d_model),
  );
  const tensor = refused ? 0 : n * d_model * BYTES;
  const reduced = (2 * (world - 1) * tensor) / world;
  const values = {
    "heads of a rank": heads,
    "heads of keys and values of a rank": keys,
    "parameters of a rank": parameters,
    "partial outputs": outputs,
    "partial dx": grads,
    sums: [outputs, grads].map(total),
    "bytes, by heads": [tensor, reduced, SUMS[at] * reduced],
  };
  return { refused, readers, values, parameters: count(h, h_kv) + d_model };
}

// Which pairs each rank computes in which step, and what is sent.
/** @type {(sizes: Record<string, number>, moves: number, order: string, causal: boolean) => any} */
export function dealPositions({ world, positions: n, d_model }, moves, order, causal) {
  const ranks = range(world);
  const blocks = order === "zigzag" ? [...ranks, ...ranks.toReversed()] : ranks;
  const refused = refusePositions(world, n, blocks.length);
  const block = (i) => Math.floor((i * blocks.length) / n);
  const rank = (i) => blocks[block(i)];
  // A pair's step, counted from 0: as many moves as bring the key to the query's rank. Or -1.
  const step = (i, j) => (causal && j > i ? -1 : (rank(i) - rank(j) + world) % world);
  const steps = range(refused ? 0 : n).map((i) => range(n).map((j) => step(i, j)));

  const now = blocks.map(() => blocks.map(() => 0));
  const pairs = ranks.map(() => ranks.map(() => 0)); // by step, then rank
  steps.forEach((line, i) =>
    line.forEach((at, j) => {
      if (at >= 0) pairs[at][rank(i)] += 1;
      if (at === moves) now[block(i)][block(j)] += 1;
    }),
  );
  const largest = pairs.map((line) => Math.max(...line));
  const thus = (all) => [all[moves], sum(all.slice(0, moves + 1)), sum(all)];
  const moved = refused ? 0 : (2 * n * d_model * BYTES) / world;
  const values = {
    "rank of a block": blocks.map((r) => (refused ? -1 : r)),
    "rank of its keys now": blocks.map((r) => (refused ? -1 : (r + moves) % world)),
    "pairs of this step": now,
    "pairs of a rank": transpose(pairs).map(thus),
    "largest shares, added up": thus(largest).slice(1),
    "bytes, by positions": [moved * moves, moved * (world - 1)],
  };
  return { refused, steps, blocks, rank, largest: thus(largest), moved, values };
}
