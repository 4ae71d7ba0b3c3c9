// A text that is decoded step by step: what each step computes, and what the cache holds of it.

// What becomes of a pair in a step, and of a position in the cache; 0 is nothing.
export const [NEW, AGAIN, HIDDEN, EARLIER] = [1, 2, 3, 4];
const [HELD, ADDED] = [1, 2];

// From position `start`, counted from 0, to that before `end`.
/** @typedef {{ start: number, end: number }} Step */
/** @type {(n: number, prompt: number, piece: number) => Step[]} */
export function walk(n, prompt, piece) {
  const steps = [];
  for (let start = 0; start < n; start = steps.at(-1).end) {
    const end = start < prompt ? Math.min(start + piece, prompt) : start + 1;
    steps.push({ start, end });
  }
  return steps;
}

/** @type {(i: number, j: number, step: Step, cached: boolean) => number} */
export function pair(i, j, { start, end }, cached) {
  if (i >= end || j >= end) return 0;
  if (cached && i < start) return j <= i ? EARLIER : 0;
  if (j > i) return HIDDEN;
  return i < start ? AGAIN : NEW;
}

/** @type {(j: number, step: Step, cached: boolean) => number} */
export function place(j, { start, end }, cached) {
  if (!cached || j >= end) return 0;
  return j < start ? HELD : ADDED;
}
