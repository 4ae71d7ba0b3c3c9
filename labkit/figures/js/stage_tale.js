// A story as chips in rows, of which one asks: arcs in the room over each row, and below each chip
// what the head makes of its word.

import { drawing, element, write } from "./elements.js";
import { share } from "./stage_words.js";
import { MOVES, roving } from "./tables.js";

const COLUMNS = 8; // of chips in a row
const LEAST = 0.005; // a weight that has an arc
const PARTS = [
  { part: "query", quantity: "queries of the head" },
  { part: "key", quantity: "keys of the head" },
  { part: "value", quantity: "values of the head" },
];

const rowOf = (i) => Math.floor(i / COLUMNS);
const middle = (i) => 100 * (i % COLUMNS) + 50;

// An arc stays in the room over the lower one of its two rows, so that it crosses no word.
/** @type {(from: number, to: number) => string} */
function arc(from, to) {
  const [x, end] = [middle(from), middle(to)];
  if (from === to) return `M${x - 14} 100C${x - 28} 50 ${x + 28} 50 ${x + 14} 100`;
  if (rowOf(from) !== rowOf(to)) {
    const [y, there] = rowOf(from) > rowOf(to) ? [100, 0] : [0, 100];
    return `M${x} ${y}C${x} 50 ${end} 50 ${end} ${there}`;
  }
  const high = 100 - 52 - (60 * Math.abs(x - end)) / (100 * COLUMNS);
  return `M${x} 100C${x} ${high} ${end} ${high} ${end} 100`;
}

// A bar for each number, up or down from the middle, as long as its share of the largest.
/** @type {(numbers: number[], largest: number) => string} */
const bars = (numbers, largest) =>
  numbers.map((x, i) => `M${4 * i + 2} 10V${(10 - (9.5 * x) / largest).toFixed(2)}`).join("");

function makeWord(choose) {
  const chip = element("button", { type: "button", class: "tale-chip", onclick: choose });
  // The word's name tells them, too.
  const [said, weight] = ["said", "weight"].map((kind) => element("span", { class: `tale-${kind}`, "aria-hidden": "true" }));
  const strips = PARTS.map(({ part }) => drawing("svg", { class: `tale-strip tale-${part}`, preserveAspectRatio: "none", "aria-hidden": "true" }, drawing("path", { d: "" })));
  return { node: element("li", { role: "listitem" }, chip, said, weight, ...strips), chip, said, weight, strips };
}

function build(count, choose) {
  const words = Array.from({ length: count }, (_, i) => makeWord(() => choose(i)));
  const arcs = Array.from({ length: count }, () => drawing("path", { class: "stage-arc", "vector-effect": "non-scaling-stroke" }));
  const rooms = Array.from({ length: rowOf(count - 1) + 1 }, () =>
    drawing("svg", { class: "tale-arcs", viewBox: `0 0 ${100 * COLUMNS} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }),
  );
  const nodes = rooms.flatMap((room, r) => [
    room,
    element("ol", { class: "tale-row", role: "presentation" }, ...words.slice(COLUMNS * r, COLUMNS * (r + 1)).map(({ node }) => node)),
  ]);
  return { count, words, arcs, rooms, nodes };
}

function drawArcs({ arcs, rooms }, { words, values, asking }) {
  arcs.forEach((path, i) => {
    const weight = values.weights[i];
    rooms[Math.max(rowOf(i), rowOf(asking))].append(path);
    path.setAttribute("d", arc(asking, i));
    path.setAttribute("data-part", `weight:${words[i]}`);
    path.classList.toggle("stage-hidden", weight < LEAST);
    path.style.setProperty("stroke-width", `${(1.2 + 8 * weight).toFixed(2)}px`);
    path.style.setProperty("--share", (0.6 + 0.4 * weight).toFixed(3));
  });
}

function drawStrips({ strips }, i, { words, values, asking }, largest) {
  PARTS.forEach(({ part, quantity }, k) => {
    const numbers = values[quantity][i];
    strips[k].setAttribute("viewBox", `0 0 ${4 * numbers.length} 20`);
    strips[k].setAttribute("data-part", part === "query" && i === asking ? "query" : `${part}:${words[i]}`);
    strips[k].firstElementChild?.setAttribute("d", bars(numbers, largest[k]));
  });
}

/** @type {(choose: (place: number) => void) => Part & { draw(scene: any): void }} */
export function tale(choose) {
  const legend = PARTS.map(({ part }) => element("span", { class: `stage-label stage-of-${part}` }, part));
  const story = element("div", { class: "tale-story", role: "list", "aria-label": "The story; a word that is pressed asks", "aria-description": MOVES });
  const said = element("span", { class: "stage-label" }, "probability");
  const weight = element("span", { class: "stage-label stage-of-weight" }, "weight");
  const node = element(
    "div", { class: "tale" },
    element("p", { class: "tale-legend", "aria-hidden": "true" }, "Below each word: ", said, weight, ...legend, "(a bar for each number, up or down from 0)"),
    story,
  );
  /** @type {ReturnType<typeof build> | undefined} */
  let made;
  const rows = () => {
    const chips = (made?.words ?? []).map(({ chip }) => chip);
    return Array.from({ length: Math.ceil(chips.length / COLUMNS) }, (_, r) => chips.slice(COLUMNS * r, COLUMNS * (r + 1)));
  };
  const { reach } = roving(story, rows, true);
  return {
    node,
    draw(scene) {
      const { words, values, said: chances, fixed, fell, asking } = scene;
      const kept = made && made.count === words.length ? made : build(words.length, choose);
      if (kept !== made) {
        made = kept;
        story.replaceChildren(...kept.nodes);
      }
      const largest = PARTS.map(({ quantity }) => Math.max(...values[quantity].flat().map(Math.abs)));
      kept.words.forEach((one, i) => {
        const now = i ? share(chances[i][1]) : "given";
        const weight = i > asking && !values.weights[i] ? "–" : share(values.weights[i]); // hidden
        write(one.chip, words[i]);
        one.chip.setAttribute("aria-pressed", String(i === asking));
        const mark = fell[i] ? ", which fails" : fixed[i] ? ", which the rules fix" : "";
        one.chip.setAttribute("aria-label", `${words[i]}: probability ${now}${mark}, weight ${weight}`);
        one.chip.classList.toggle("tale-fixed", fixed[i]);
        one.chip.classList.toggle("tale-fell", fell[i]);
        write(one.said, fell[i] ? `↓ ${now}` : now);
        write(one.weight, weight);
        one.weight.setAttribute("data-part", `weight:${words[i]}`);
        one.weight.style.setProperty("--share", String(values.weights[i]));
        one.node.classList.toggle("tale-asks", i === asking);
        drawStrips(one, i, scene, largest);
      });
      reach(kept.words[asking].chip);
      drawArcs(kept, scene);
    },
  };
}
