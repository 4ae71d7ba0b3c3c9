// The small GPT: its weights as labkit/models/gpt.py stores them, and what it computes with them.

import { softmax } from "./mathematics.js";
import { linear, readTensors } from "./tensors.js";

const EPS = 1e-5; // of LayerNorm

/** @typedef {{ h: number, layers: number, base: number, at: Record<string, Tensor> }} GPT */
// For each position the next word's probabilities; weights by layer, head, query and key; and each
// head's queries, keys and values by layer, head and position.
/** @typedef {Float64Array[][][]} Parts */
/** @typedef {{ next: number[][], weights: number[][][][], q: Parts, k: Parts, v: Parts }} Run */

/** @type {(file: DataView) => GPT} */
export function read(file) {
  const { about, at } = readTensors(file);
  const layers = Object.keys(at).filter((name) => name.endsWith("w_qkv.weight")).length;
  return { h: Number(about.h), layers, base: Number(about.rotary_base), at };
}

/** @type {(x: Rows, gain: Tensor, shift: Tensor) => Rows} */
function layerNorm(x, gain, shift) {
  return x.map((row) => {
    const mean = row.reduce((sum, one) => sum + one, 0) / row.length;
    const variance = row.reduce((sum, one) => sum + (one - mean) ** 2, 0) / row.length;
    const spread = Math.sqrt(variance + EPS);
    return row.map((one, i) => ((one - mean) / spread) * gain.numbers[i] + shift.numbers[i]);
  });
}

/** @type {(x: number) => number} */
const gelu = (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));

// Features 2i and 2i + 1 are turned by an angle that grows with the position.
/** @type {(x: Float64Array<ArrayBuffer>, position: number, base: number) => Float64Array} */
function rotate(x, position, base) {
  const turned = new Float64Array(x.length);
  for (let i = 0; i < x.length; i += 2) {
    const angle = position * base ** (-i / x.length);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    turned[i] = x[i] * cos - x[i + 1] * sin;
    turned[i + 1] = x[i] * sin + x[i + 1] * cos;
  }
  return turned;
}

/** @type {(a: Rows, b: Rows) => Rows} */
const add = (a, b) => a.map((row, i) => row.map((one, j) => one + b[i][j]));

// What the heads find, side by side, and their weights and parts. A head that is off leaves zeros.
// Of the words before these, each head has its keys and values.
/** @type {(qkv: Rows, gpt: GPT, on: boolean[], bug: string, cache: { k: Rows, v: Rows }[]) =>
 *   { found: Rows, seen: any[] }} */
function attend(qkv, { h, base }, on, bug, cache) {
  const d_model = qkv[0].length / 3;
  const d_k = d_model / h;
  const found = qkv.map(() => new Float64Array(d_model));
  const divisor = bug === "not divided by √dₖ" ? 1 : Math.sqrt(d_k);
  const seen = on.map((isOn, head) => {
    const { k: keys, v: values } = cache[head];
    const start = keys.length;
    const part = (which) => (row) => {
      const first = which * d_model + head * d_k;
      return row.subarray(first, first + d_k);
    };
    const [q, own] = [0, 1].map((which) =>
      qkv.map((row, i) => rotate(part(which)(row), start + i, base)),
    );
    const k = [...keys, ...own];
    const v = [...values, ...qkv.map(part(2))];
    const weights = q.map((query, i) => {
      const scores = k.slice(0, bug === "later words seen" ? k.length : start + i + 1).map((key) => {
        let sum = 0;
        for (let c = 0; c < d_k; c += 1) sum += query[c] * key[c];
        return sum / divisor;
      });
      const line = softmax(scores);
      if (isOn) {
        for (let c = 0; c < d_k; c += 1) {
          found[i][head * d_k + c] = line.reduce((sum, weight, j) => sum + weight * v[j][c], 0);
        }
      }
      return [...line, ...new Array(k.length - line.length).fill(0)];
    });
    return { weights, q, k, v };
  });
  return { found: bug === "heads merged in the wrong order" ? misread(found, d_k) : found, seen };
}

// All of head 1, position after position, then all of head 2, cut into rows as if they were merged.
/** @type {(found: Rows, d_k: number) => Rows} */
function misread(found, d_k) {
  const [n, d_model] = [found.length, found[0].length];
  return found.map((_, i) =>
    Float64Array.from({ length: d_model }, (_, c) => {
      const place = i * d_model + c;
      const head = Math.floor(place / (n * d_k));
      return found[Math.floor(place / d_k) % n][head * d_k + (place % d_k)];
    }),
  );
}

// A bug, named as in labkit/figures/broken_gpt.py, is in every layer. Of a run over the words before
// these, as many as `start` says, the keys and values are a cache.
/** @type {(gpt: GPT, ids: number[], on: boolean[][], bug?: string, before?: Run, start?: number) => Run} */
export function run(gpt, ids, on, bug = "none", before = undefined, start = 0) {
  const { numbers: words, shape } = gpt.at["words.weight"];
  let x = ids.map((id) => words.slice(id * shape[1], (id + 1) * shape[1]));
  const layers = on.map((flags, layer) => {
    const own = (part) => ["weight", "bias"].map((kind) => gpt.at[`blocks.${layer}.${part}.${kind}`]);
    const through = (part, input) => linear(input, own(part)[0], own(part)[1]);
    const norm = (part) => layerNorm(x, own(part)[0], own(part)[1]);
    const cached = (parts, head) => parts?.[layer][head].slice(0, start) ?? [];
    const cache = flags.map((_, head) => ({ k: cached(before?.k, head), v: cached(before?.v, head) }));
    const { found, seen } = attend(
      through("attention.w_qkv", norm("attention_norm")), gpt, flags, bug, cache,
    );
    x = add(x, bug === "output projection left out" ? found : through("attention.w_o", found));
    const wide = through("feed_forward.expand", norm("feed_forward_norm"));
    x = add(x, through("feed_forward.contract", wide.map((row) => row.map(gelu))));
    return seen;
  });
  const last = layerNorm(x, gpt.at["norm.weight"], gpt.at["norm.bias"]);
  const logits = linear(last, gpt.at["next_word.weight"]);
  const [weights, q, k, v] = ["weights", "q", "k", "v"].map((part) =>
    layers.map((heads) => heads.map((head) => head[part])),
  );
  return { next: logits.map((row) => softmax([...row])), weights, q, k, v };
}

// Runs over words, of which the last few are kept: a figure draws the same story many times.
/** @type {(model: () => GPT, known: string[], most?: number) =>
 *   (words: string[], on: boolean[][], bug?: string) => Run} */
export function keptRuns(model, known, most = 3) {
  const kept = new Map();
  return (words, on, bug) => {
    const key = JSON.stringify([words, on, bug]);
    if (!kept.has(key)) {
      if (kept.size > most) kept.clear();
      kept.set(key, run(model(), words.map((word) => known.indexOf(word)), on, bug));
    }
    return kept.get(key);
  };
}
