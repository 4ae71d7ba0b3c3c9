// The small GPT: its weights as labkit/models/gpt.py stores them, and what it computes with them.

import { softmax } from "./mathematics.js";
import { linear, readTensors } from "./tensors.js";

const EPS = 1e-5; // of LayerNorm

/** @typedef {{ h: number, layers: number, base: number, at: Record<string, Tensor> }} GPT */
// For each position the next word's probabilities; weights by layer, head, query and key.
/** @typedef {{ next: number[][], weights: number[][][][] }} Run */

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
const gelu = (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

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

// What the heads find, side by side, and their weights. A head that is off leaves zeros.
/** @type {(qkv: Rows, gpt: GPT, on: boolean[]) => { found: Rows, weights: number[][][] }} */
function attend(qkv, { h, base }, on) {
  const d_model = qkv[0].length / 3;
  const d_k = d_model / h;
  const found = qkv.map(() => new Float64Array(d_model));
  const weights = on.map((isOn, head) => {
    const part = (which) => (row) => {
      const start = which * d_model + head * d_k;
      return row.subarray(start, start + d_k);
    };
    const [q, k] = [0, 1].map((which) =>
      qkv.map((row, i) => rotate(part(which)(row), i, base)),
    );
    const v = qkv.map(part(2));
    return q.map((query, i) => {
      const scores = k.slice(0, i + 1).map((key) => {
        let sum = 0;
        for (let c = 0; c < d_k; c += 1) sum += query[c] * key[c];
        return sum / Math.sqrt(d_k);
      });
      const line = softmax(scores);
      if (isOn) {
        for (let c = 0; c < d_k; c += 1) {
          found[i][head * d_k + c] = line.reduce((sum, weight, j) => sum + weight * v[j][c], 0);
        }
      }
      return [...line, ...new Array(q.length - i - 1).fill(0)];
    });
  });
  return { found, weights };
}

/** @type {(gpt: GPT, ids: number[], on: boolean[][]) => Run} */
export function run(gpt, ids, on) {
  const { numbers: words, shape } = gpt.at["words.weight"];
  let x = ids.map((id) => words.slice(id * shape[1], (id + 1) * shape[1]));
  const weights = on.map((flags, layer) => {
    const own = (part) => ["weight", "bias"].map((kind) => gpt.at[`blocks.${layer}.${part}.${kind}`]);
    const through = (part, input) => linear(input, own(part)[0], own(part)[1]);
    const norm = (part) => layerNorm(x, own(part)[0], own(part)[1]);
    const { found, weights: seen } = attend(
      through("attention.w_qkv", norm("attention_norm")), gpt, flags,
    );
    x = add(x, through("attention.w_o", found));
    const wide = through("feed_forward.expand", norm("feed_forward_norm"));
    x = add(x, through("feed_forward.contract", wide.map((row) => row.map(gelu))));
    return seen;
  });
  const last = layerNorm(x, gpt.at["norm.weight"], gpt.at["norm.bias"]);
  const logits = linear(last, gpt.at["next_word.weight"]);
  return { next: logits.map((row) => softmax([...row])), weights };
}
