// The pocket model: all that it computes for a sentence, with a bug or without.

import { matmul, softmax, transpose } from "./mathematics.js";

const TIE = 1e-9; // a right answer is ahead of all others by more than this

/** @typedef {{ words: string[], answers: string[], vectors: Matrix, sentences: string[][],
 *   W_Q: Matrix, W_K: Matrix, W_V: Matrix, U: Matrix }} Pocket */
/** @typedef {{ x: Matrix, query: number[], keys: Matrix, scores: number[], weights: number[],
 *   values: Matrix, output: number[], after: number[], logits: number[], answers: number[] }} Found */

// At its first and last step the stage shows the answer.
/** @type {(step: number) => boolean} */
export const isAnswered = (step) => step === 0 || step === LAST;
export const LAST = 6;

/** @type {(a: number[], b: number[]) => number[]} */
export const add = (a, b) => a.map((one, i) => one + b[i]);

// `query` takes the place of the one that the last word has; empty, it leaves that one.
/** @type {(given: Pocket, x: Matrix, bug: string, query?: number[]) => Found} */
export function attend(given, x, bug, query = []) {
  const queries = matmul(x, given.W_Q);
  if (query.length) queries[queries.length - 1] = query;
  let [keys, values] = [matmul(x, given.W_K), matmul(x, given.W_V)];
  if (bug === "keys and values swapped") [keys, values] = [values, keys];
  const divisor = bug === "not divided by √2" ? 1 : Math.SQRT2;
  const all = matmul(queries, transpose(keys)).map((row) => row.map((score) => score / divisor));
  const scores = all[all.length - 1];
  let weights = softmax(scores);
  if (bug === "scores without softmax") weights = scores;
  if (bug === "softmax over the wrong axis") {
    weights = transpose(all).map((column) => softmax(column)[column.length - 1]);
  }
  const [output] = matmul([weights], values);
  const after = add(x[x.length - 1], output);
  const [logits] = matmul([after], given.U);
  const asked = queries[queries.length - 1];
  return {
    x, query: asked, keys, scores, weights, values, output, after, logits, answers: softmax(logits),
  };
}

/** @type {(given: Pocket, vectors: Matrix, text: string) => Matrix} */
export function lookUp(given, vectors, text) {
  return text.split(" ").map((word) => vectors[given.words.indexOf(word)]);
}

// The sentences whose right answer is not the likeliest one.
/** @type {(given: Pocket, vectors: Matrix, bug: string) => string[]} */
export function wrongOnes(given, vectors, bug) {
  /** @type {(one: string[]) => boolean} */
  const fails = ([text, answer]) => {
    const { logits } = attend(given, lookUp(given, vectors, text), bug);
    const right = given.answers.indexOf(answer);
    return logits.some((logit, i) => i !== right && logits[right] <= logit + TIE);
  };
  return given.sentences.filter(fails).map(([text]) => text);
}

// The right answer of a sentence, or nothing where it is none of the model's.
/** @type {(given: Pocket, text: string) => string | undefined} */
export const rightAnswer = (given, text) => given.sentences.find(([one]) => one === text)?.[1];

/** @type {(numbers: number[]) => number} */
export const largest = (numbers) => numbers.indexOf(Math.max(...numbers));

// The part of a square around the middle, of half its side, in which one answer is ahead.
/** @type {(U: Matrix, answer: number, half: number) => Matrix} */
export function region(U, answer, half) {
  let corners = [[-half, -half], [half, -half], [half, half], [-half, half]];
  const columns = transpose(U);
  columns.forEach((column, other) => {
    if (other === answer) return;
    const [a, b] = column.map((x, i) => columns[answer][i] - x);
    corners = clip(corners, ([x, y]) => a * x + b * y);
  });
  return corners;
}

// What is left of a polygon where a linear function is not negative.
/** @type {(corners: Matrix, at: (place: number[]) => number) => Matrix} */
function clip(corners, at) {
  return corners.flatMap((here, i) => {
    const next = corners[(i + 1) % corners.length];
    const [mine, its] = [at(here), at(next)];
    const kept = mine >= 0 ? [here] : [];
    if (mine < 0 === its < 0) return kept;
    const share = mine / (mine - its);
    return [...kept, here.map((x, j) => x + share * (next[j] - x))];
  });
}

/** @type {(corners: Matrix) => number} */
export function area(corners) {
  const parts = corners.map(([x, y], i) => {
    const [u, v] = corners[(i + 1) % corners.length];
    return (x * v - u * y) / 2;
  });
  return Math.abs(parts.reduce((sum, part) => sum + part, 0));
}
