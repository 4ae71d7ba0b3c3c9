// A text that is decoded step by step: what each step computes, and what the cache holds of it.

import { sum } from "./mathematics.js";

const D_MODEL = 64; // h d_k, so that only the share h_kv / h counts
export const BYTES = 2 * D_MODEL * 2; // of a position's keys and values, where no head shares them

// What becomes of a pair in a step, and of a position in the cache; 0 is nothing.
const [NEW, AGAIN, HIDDEN, EARLIER] = [1, 2, 3, 4];
const [HELD, ADDED, DROPPED] = [1, 2, 3];

// Of the two projections of each kind, and the two products. `share` is h_kv / h.
/** @type {(n_q: number, n_k: number, share: number) => number} */
const macs = (n_q, n_k, share) =>
  2 * n_q * (1 + share) * D_MODEL ** 2 + 2 * n_q * n_k * D_MODEL;

// From position `start`, counted from 0, to that before `end`.
/** @typedef {{ start: number, end: number }} Step */
/** @type {(n: number, prompt: number, block: number) => Step[]} */
export function walk(n, prompt, block) {
  const steps = [];
  for (let start = 0; start < n; start = steps.at(-1).end) {
    const end = start < prompt ? Math.min(start + block, prompt) : start + 1;
    steps.push({ start, end });
  }
  return steps;
}

/** @type {(i: number, j: number, step: Step, window: number, cached: boolean) => number} */
export function pair(i, j, { start, end }, window, cached) {
  const sees = j <= i && j > i - window;
  if (i >= end || j >= end) return 0;
  if (cached && i < start) return sees ? EARLIER : 0;
  if (cached && j <= start - window) return 0;
  if (!sees) return HIDDEN;
  return i < start ? AGAIN : NEW;
}

/** @type {(j: number, step: Step, window: number) => number} */
export function place(j, { start, end }, window) {
  if (j >= end) return 0;
  if (j < end - window) return DROPPED;
  return j < start ? HELD : ADDED;
}

// MACs and bytes, with the cache and without one, in this step and so far; `held` by the cache.
export function count({ steps, now, h, h_kv, window, step }) {
  const share = h_kv / h;
  const past = steps.slice(0, now + 1);
  const held = past.map(({ start }) => Math.min(start, window - 1));
  const kept = past.map(({ start, end }, s) => macs(end - start, held[s] + end - start, share));
  const anew = past.map(({ end }) => macs(end, end, share));
  const counted = [[kept[now], anew[now]], [sum(kept), sum(anew)]];
  const each = BYTES * share;
  return {
    counted,
    each,
    held: held[now],
    ratios: counted.map(([fewer, more]) => more / fewer),
    bytes: [Math.min(step.end, window), held[now], sum(held)].map((places) => each * places),
  };
}
