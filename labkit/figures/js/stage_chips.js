// The sentence as chips, arcs from the word that asks over all of them, and below each word its
// numbers: a row for each quantity, which the steps fill one after the other.

import { drawing, element, still, write } from "./elements.js";
import { sum } from "./mathematics.js";
import { isAnswered } from "./stage_model.js";
import { share, weightTexts } from "./stage_words.js";
import { show } from "./text.js";

// A row, its name, its part, the first step that shows it, and the row that it comes from.
const ROWS = [
  { name: "vector", shown: 1, from: "chip", brings: "the word as two numbers" },
  { name: "query", shown: 2, from: "vector", brings: "what the last word looks for" },
  { name: "key", shown: 2, from: "vector", brings: "what each word can be found by" },
  { name: "score", shown: 3, from: "key", brings: "how well query and key match" },
  { name: "weight", shown: 4, from: "score", brings: "how much of a word is taken" },
  { name: "value", shown: 5, from: "vector", brings: "what each word hands over" },
];
const LONG = 420; // of a flight, in milliseconds
const ASKED = 2; // the first step after the overview that has arcs

// Let an element come from where another one is.
/** @type {(node: Element, from: Element | undefined) => void} */
export function fly(node, from) {
  if (!from || still() || !node.animate) return;
  const [here, there] = [node, from].map((one) => one.getBoundingClientRect());
  if (!there.width || !here.width) return; // a row that the compact form hides
  const [x, y] = [there.x + there.width / 2 - here.x - here.width / 2, there.y - here.y];
  node.animate(
    [{ transform: `translate(${x}px, ${y}px)`, opacity: 0.2 }, { transform: "none", opacity: 1 }],
    { duration: LONG, easing: "cubic-bezier(.3,.7,.3,1)" },
  );
}

const twoNumbers = () => element("span", { class: "stage-pair" }, element("span"), element("span"));

/** @type {(node: Element, vector: number[]) => void} */
function writePair(node, vector) {
  vector.forEach((x, i) => write(node.children[i], show(x, 2)));
}

/** @type {(given: { words: string[] }, place: number, count: number, choose: (word: string) => void) => HTMLSelectElement} */
function wordChip({ words }, place, count, choose) {
  const asks = place === count - 1;
  const known = asks ? ["and", "a"] : words;
  const select = element(
    "select",
    {
      class: "stage-chip",
      "aria-label": `Word ${place + 1} of ${count}${asks ? ", which asks" : ""}`,
      onchange: () => choose(select.value),
    },
    ...known.map((word) => element("option", { value: word }, word)),
  );
  return select;
}

// The path of an arc between two columns, in hundredths of a column; to itself it is a loop.
function arc(from, to, count) {
  const [x, end] = [from, to].map((i) => 100 * i + 50);
  if (from === to) return `M${x - 16} 100C${x - 30} 50 ${x + 30} 50 ${x + 16} 100`;
  const high = 100 - 88 * (0.45 + (0.55 * Math.abs(from - to)) / Math.max(count - 1, 1)) * 1.3;
  return `M${x} 100C${x} ${high} ${end} ${high} ${end} 100`;
}

function drawArcs(count) {
  const paths = Array.from({ length: count }, (_, i) =>
    drawing("path", { class: "stage-arc", d: arc(count - 1, i, count), "vector-effect": "non-scaling-stroke" }),
  );
  const node = drawing(
    "svg",
    {
      class: "stage-arcs", viewBox: `0 0 ${100 * count} 100`, preserveAspectRatio: "none", "aria-hidden": "true",
    },
    ...paths,
  );
  return { node, paths };
}

// One row of cells: a name, a cell for each word, and one for what comes of them.
function makeRow({ name, brings }, count) {
  const isPair = ["vector", "query", "key", "value"].includes(name);
  const cell = () =>
    element("span", { class: "stage-cell", role: "cell" }, isPair ? twoNumbers() : element("b"));
  const cells = Array.from({ length: count }, cell);
  const end = element("span", { class: "stage-cell stage-end", role: "cell" }, name === "value" ? twoNumbers() : element("b"));
  const label = element("span", { class: `stage-label stage-of-${name}`, role: "rowheader" }, name);
  const later = element("span", { class: "stage-brings", role: "cell" }, brings);
  const node = element("div", { class: `stage-line stage-line-${name}`, role: "row" }, label, ...cells, end, later);
  return { node, cells, end };
}

function build(given, count, choose) {
  const arcs = drawArcs(count);
  const chips = Array.from({ length: count }, (_, i) =>
    wordChip(given, i, count, (word) => choose(i, word)),
  );
  const answer = element("div", { class: "stage-answer", "data-part": "answer" }, element("b"), element("span"));
  const heads = chips.map((chip) => element("span", { role: "columnheader", class: "stage-head" }, chip));
  const line = element(
    "div", { class: "stage-line", role: "row" },
    element("span", { class: "stage-label", role: "columnheader" }, "word"), ...heads,
    element("span", { role: "columnheader", class: "stage-head" }, answer),
  );
  const rows = ROWS.map((row) => makeRow(row, count));
  const nodes = [arcs.node, line, ...rows.map((row) => row.node)];
  return { count, arcs, chips, answer, rows, nodes };
}

// Where each row's cells come from, when a step shows them first.
function send(made, words, before, step) {
  const cellsOf = (name) =>
    name === "chip" ? made.chips : made.rows[ROWS.findIndex((row) => row.name === name)].cells;
  ROWS.forEach(({ from, shown }, r) => {
    if (!(before < shown && shown <= step)) return;
    made.rows[r].cells.forEach((cell, i) => fly(cell, cellsOf(from)[i]));
    if (shown === 5) fly(made.rows[r].end, made.rows[r].cells[words.length >> 1]);
  });
  if (before < 6 && step === 6) fly(made.answer.children[0], made.rows[5].end);
}

function drawRows(made, { words, found, step }) {
  const last = words.length - 1;
  const texts = { score: found.scores.map((one) => show(one, 2)), weight: weightTexts(found.weights) };
  const pairs = { vector: found.x, key: found.keys, value: found.values };
  ROWS.forEach(({ name, shown }, r) => {
    const { node, cells, end } = made.rows[r];
    node.classList.toggle("stage-later", step < shown);
    cells.forEach((cell, i) => {
      if (name === "query") {
        cell.classList.toggle("stage-gone", i < last);
        if (i === last) writePair(cell.firstChild, found.query);
        cell.toggleAttribute("data-part", false);
        if (i === last) cell.setAttribute("data-part", "query");
        return;
      }
      cell.setAttribute("data-part", `${name}:${words[i]}`);
      if (name in pairs) writePair(cell.firstChild, pairs[name][i]);
      else write(cell.firstChild, texts[name][i]);
      if (name === "weight") cell.style.setProperty("--share", String(Math.min(Math.abs(found.weights[i]), 1)));
    });
    if (name === "weight") write(end.firstChild, `Σ ${show(sum(found.weights), 2)}`);
    if (name === "value") {
      writePair(end.firstChild, found.output);
      end.setAttribute("data-part", "output");
    }
  });
}

function drawArcsOf(made, { words, found, step }) {
  made.arcs.paths.forEach((path, i) => {
    const weight = step > 0 && step < 4 ? 0 : found.weights[i];
    const size = Math.min(Math.abs(weight), 1.5);
    path.setAttribute("data-part", `weight:${words[i]}`);
    path.classList.toggle("stage-hidden", step > 0 && step < ASKED);
    path.classList.toggle("stage-asking", step > 0 && step < 4);
    path.classList.toggle("stage-negative", weight < 0);
    path.style.setProperty("stroke-width", `${(1.5 + 9 * size).toFixed(2)}px`);
    path.style.setProperty("--share", (0.65 + 0.35 * Math.min(size, 1)).toFixed(3));
    made.chips[i].style.setProperty("--share", String(Math.min(size, 1)));
  });
}

/** @type {(given: import("./stage_model.js").Pocket, choose: (place: number, word: string) => void) =>
 *   Part & { draw(scene: any): void }} */
export function chips(given, choose) {
  const node = element("div", { class: "stage-scene", role: "table", "aria-label": "The sentence, and below each word its numbers" });
  /** @type {ReturnType<typeof build> | undefined} */
  let made;
  let before = 0;
  return {
    node,
    draw(scene) {
      const { words, found, step, right } = scene;
      node.dataset.step = String(step);
      const kept = made && made.count === words.length ? made : build(given, words.length, choose);
      if (kept !== made) {
        made = kept;
        node.replaceChildren(...kept.nodes);
        /** @type {HTMLElement} */ (node.parentElement ?? node).style.setProperty("--n", String(words.length));
      }
      words.forEach((word, i) => {
        kept.chips[i].value = word;
      });
      drawRows(kept, scene);
      drawArcsOf(kept, scene);
      const best = found.answers.indexOf(Math.max(...found.answers));
      const answered = isAnswered(step);
      write(kept.answer.children[0], answered ? given.answers[best] : "?");
      const wrong = answered && right && right !== given.answers[best];
      write(kept.answer.children[1], answered ? `${share(found.answers[best])}${right ? (wrong ? " ✗" : " ✓") : ""}` : "next");
      kept.answer.classList.toggle("stage-wrong", Boolean(wrong));
      kept.answer.classList.toggle("stage-told", answered);
      send(kept, words, before, step);
      before = step;
    },
  };
}
