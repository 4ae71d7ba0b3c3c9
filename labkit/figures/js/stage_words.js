// What the stage says in words of each step.

import { largest, rightAnswer } from "./stage_model.js";
import { dot, sum } from "./mathematics.js";
import { percent, show } from "./text.js";

const NEARLY = 1e-6;

/** @type {(vector: number[]) => string} */
export const pair = (vector) => `(${vector.map((x) => show(x, 2)).join(", ")})`;

// A weight or a probability. What is nearly all or nearly nothing is not called all or nothing.
/** @type {(weight: number) => string} */
export function share(weight) {
  if (weight > 0.995 && weight < 1 - 1e-12) return ">\u00a099%";
  return weight < 0.005 && weight > 0 ? "<\u00a01%" : percent(weight);
}

// Where one of the weights can be no share, all are written as numbers.
/** @type {(weights: number[]) => string[]} */
export const weightTexts = (weights) =>
  weights.map(weights.some((one) => one < 0 || one > 1 + NEARLY) ? (one) => show(one, 2) : share);

// Of weights that are no shares.
/** @type {(found: { weights: number[] }) => string} */
function uneven({ weights }) {
  const total = sum(weights);
  return Math.abs(total - 1) < NEARLY ? "" : `The weights sum to ${show(total, 2)} and not to 1. `;
}

/** @type {(words: string[], found: { weights: number[] }) => string} */
function mostOf(words, { weights }) {
  const i = largest(weights);
  return `The largest one is that of “${words[i]}”: ${weightTexts(weights)[i]}.`;
}

// Beside the title, what controls say that are hidden where the stage is pinned.
/** @type {(stage: HTMLElement, text: string) => void} */
export const sayNow = (stage, text) => stage.style.setProperty("--now", `"${text}"`);

/** @typedef {{ words: string[], found: import("./stage_model.js").Found, bug: string,
 *   given: import("./stage_model.js").Pocket, set: boolean }} Scene */

/** @type {Record<string, (scene: Scene) => string>} */
const TELL = {
  question({ words, found, given }) {
    const [i, best] = [largest(found.weights), largest(found.answers)];
    const told = uneven(found);
    const taken = told ? `${told}${mostOf(words, found)} The` : `It takes ${share(found.weights[i])} of what it adds from “${words[i]}”, and the`;
    return `The last word, “${words[words.length - 1]}”, asks. ${taken} model says “${given.answers[best]}”. In the plane each region is one answer. The next steps show how.`;
  },
  words: ({ words, found }) =>
    `Every word is a vector of two numbers. That of “${words[0]}” is ${pair(found.x[0])}. In the plane you can move each word, and with it its vector.`,
  "query and keys": ({ words, found, set }) => {
    const i = largest(found.scores);
    return (
      `“${words[words.length - 1]}” asks with the query ${pair(found.query)}${set ? ", which you have set" : ""}. ` +
      `Every word offers a key; that of “${words[i]}” is ${pair(found.keys[i])}.`
    );
  },
  scores({ words, found, bug }) {
    const i = largest(found.scores);
    const product = dot(found.query, found.keys[i]);
    const divided =
      bug === "not divided by √2"
        ? "The bug leaves out the division by √2, so this is the score"
        : `Divided by √2 it is ${show(found.scores[i], 2)}`;
    return `The dot product of the query and the key of “${words[i]}” is ${show(product, 2)}. ${divided}, the highest of all.`;
  },
  weights({ words, found }) {
    return (uneven(found) || "Softmax turns the scores into weights that sum to 1. ") + mostOf(words, found);
  },
  output({ words, found }) {
    const i = largest(found.weights);
    return (
      `The weights mix the values into the output ${pair(found.output)}. ` +
      `The value with the largest weight is that of “${words[i]}”, ${pair(found.values[i])}.`
    );
  },
  answer({ words, found, given, bug }) {
    const i = largest(found.answers);
    const right = rightAnswer(given, words.join(" "));
    const said = `“${words[words.length - 1]}” plus the output is ${pair(found.after)}, in the region of “${given.answers[i]}”, whose probability is ${share(found.answers[i])}.`;
    if (!right) return `${said} This is none of the model's 74 sentences, so no answer is known.`;
    const isRight = bug === "none" ? " That is right." : " That is right in spite of the bug.";
    return said + (right === given.answers[i] ? isRight : ` That is wrong: the right answer is “${right}”.`);
  },
};

/** @type {(step: string, scene: Scene) => string} */
export const tell = (step, scene) => TELL[step](scene);

// What a bug does to all sentences; `changed` where the reader has moved words.
/** @type {(bug: string, wrong: number, all: number, changed: boolean) => string} */
export function verdict(bug, wrong, all, changed) {
  if (wrong) return `${wrong} of ${all} sentences go wrong. Try one of these:`;
  if (bug === "none")
    return changed
      ? `Nothing breaks: with your vectors all ${all} sentences still come out right.`
      : `Without a bug all ${all} sentences come out right. Try one of these:`;
  return `Nothing breaks: all ${all} sentences still come out right. This model does not need that part.`;
}
