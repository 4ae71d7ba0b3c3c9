import { choice, counter, stepper, toggle } from "./controls.js";
import { AGAIN, EARLIER, HIDDEN, NEW, pair, place, walk } from "./decoding_walk.js";
import { drawing, element, row, spoken, write } from "./elements.js";
import { range, sum } from "./mathematics.js";
import { meters } from "./meters.js";
import { plural } from "./text.js";
import { View } from "./view.js";

const PAUSE = 1200; // between two steps, in milliseconds

// Of a pair, and of the keys and values of a word: class, sign, words.
const PAIRS = {
  [NEW]: ["live-new", "●", "computed now"],
  [AGAIN]: ["live-again", "↻", "computed again"],
  [HIDDEN]: ["live-hidden", "×", "computed, then masked"],
  [EARLIER]: ["live-done", "○", "computed in an earlier step"],
};
const NONE = ["", "", ""];

// The drawing, in its units.
const [LEFT, CELL, GAP, SLOT, NAMES, WIDE] = [56, 22, 16, 18, 44, 324];

// The words, and how many of them are the prompt.
/** @type {(view: import("./view.js").View) => { words: string[], prompt: number }} */
function textOf(view) {
  const [given, written] = Object.values(view.get("text")).map((text) => text.split(" "));
  return { words: [...given, ...written], prompt: given.length };
}

// Where the figure stands: Python may set a position within a step.
function read(view) {
  const { words, prompt } = textOf(view);
  const steps = walk(words.length, prompt, view.get("pieces")[view.get("reading")]);
  const now = steps.findIndex(({ end }) => view.get("at") <= end);
  return { words, prompt, steps, now, step: steps[now], cached: view.get("cached") };
}

// A cell and its sign, which change with the step.
function cell(x, y, width, height) {
  const box = drawing("rect", { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 2 });
  const sign = drawing("text", { x: x + width / 2, y: y + height / 2 + 4 });
  const node = drawing("g", {}, box, sign);
  return {
    node,
    /** @type {(kind: string[]) => void} */
    draw([name, text]) {
      node.setAttribute("class", name);
      write(sign, text);
    },
  };
}

// An arrow from the kept keys of a word up to the rows that read them.
/** @type {(x: number, from: number, to: number) => string} */
const arrow = (x, from, to) =>
  `M${x} ${from}V${to + 2}M${x - 3} ${to + 6}L${x} ${to + 2}L${x + 3} ${to + 6}`;

// What becomes of a word's keys and values.
/** @type {(j: number, step: import("./decoding_walk.js").Step, cached: boolean) => string[]} */
function keyOf(j, { start, end }, cached) {
  if (j >= end) return NONE;
  if (j >= start) return ["live-new", cached ? "+" : ""];
  return cached ? ["live-held", ""] : ["live-again", "↻"];
}

/** @type {(words: string[]) => Part & { draw(now: ReturnType<typeof read>): { pairs: Matrix, places: number[] } }} */
function filling(words) {
  const n = words.length;
  const [at, grid] = [range(n), n * CELL];
  const column = (j) => LEFT + CELL * j;
  const slots = grid + GAP;
  const pairs = at.map((i) => at.map((j) => cell(column(j), CELL * i, CELL, CELL)));
  const kept = [0, 1].map((line) => at.map((j) => cell(column(j), slots + SLOT * line, CELL, SLOT)));
  const arrows = drawing("path", { class: "live-kept-arrows" });
  const bottom = slots + 2 * SLOT;
  const side = { x: LEFT - 6, class: "live-aside" };
  const names = at.flatMap((j) => [
    drawing("text", { ...side, y: CELL * (j + 0.5) + 4 }, words[j]),
    drawing("text", { ...side, transform: `translate(${column(j + 0.5) + 4} ${bottom + 5}) rotate(-90)`, x: 0 }, words[j]),
  ]);
  const kinds = ["keys", "values"].map((name, line) =>
    drawing("text", { ...side, y: slots + SLOT * (line + 0.5) + 4, "font-weight": 600 }, name),
  );
  const cells = [...pairs.flat(), ...kept.flat()].map(({ node }) => node);
  const size = { viewBox: `0 0 ${WIDE} ${bottom + NAMES}`, width: WIDE, height: bottom + NAMES };
  const svg = drawing("svg", { ...size, role: "img" }, ...cells, arrows, ...names, ...kinds);
  const node = element("div", { class: "live-filling" });
  node.append(svg);
  return {
    node,
    draw({ step, cached }) {
      const found = at.map((i) => at.map((j) => pair(i, j, step, cached)));
      const places = at.map((j) => place(j, step, cached));
      found.forEach((line, i) => line.forEach((kind, j) => pairs[i][j].draw(PAIRS[kind] ?? NONE)));
      at.forEach((j) => kept.forEach((line) => line[j].draw(keyOf(j, step, cached))));
      const from = cached ? range(step.start) : [];
      const lines = from.map((j) => arrow(column(j + 0.5), slots - 1, CELL * step.end));
      arrows.setAttribute("d", lines.join(""));
      const counts = legendOf(found).map(([words, count]) => `${words}: ${count}`);
      const held = `Of ${n} words the cache holds ${places.filter(Boolean).length}`;
      svg.setAttribute("aria-label", `Queries and keys. ${counts.join(", ")}. ${held}.`);
      return { pairs: found, places };
    },
  };
}

// How many pairs of each kind there are.
/** @type {(pairs: Matrix) => [string, number][]} */
const legendOf = (pairs) =>
  Object.entries(PAIRS).map(([kind, [, , words]]) => [
    words,
    pairs.flat().filter((one) => one === Number(kind)).length,
  ]);

// What the signs mean, and how often each is there.
function legend() {
  const items = Object.values(PAIRS).map(([name, sign, words]) => {
    const count = element("b");
    const box = element("i", { class: name }, sign);
    return { count, node: element("li", {}, box, element("span", {}, words), count) };
  });
  return {
    node: element("ul", { class: "live-legend" }, ...items.map(({ node }) => node)),
    /** @type {(pairs: Matrix) => void} */
    draw(pairs) {
      legendOf(pairs).forEach(([, count], i) => write(items[i].count, String(count)));
    },
  };
}

// What is told of the step.
function sentence({ words, prompt, steps, now, step, cached }) {
  const { start, end } = step;
  const fresh = end - start;
  const prefill = end <= prompt;
  const which = fresh === 1 ? `“${words[start]}”` : `words ${start + 1} to ${end}`;
  const name = `Step ${now + 1} of ${steps.length}${prefill ? ", prefill" : ""}: `;
  if (!start) {
    const then = cached ? "kept" : "thrown away after the step";
    const whose = fresh === 1 ? "Its" : "Their";
    return `${name}the model reads ${which} of the prompt. ${whose} keys and values are ${then}.`;
  }
  if (!cached) {
    const others = start === 1 ? "the word before" : `all ${start} words before`;
    return `${name}the model reads ${which}, and ${others} again. Of ${end} rows, ${plural(fresh, "is", "are")} new.`;
  }
  const meet = `${plural(fresh, "query meets", "queries meet")} ${end} keys`;
  const mask = fresh > 1 ? ` The mask is a rectangle, ${fresh} by ${end}.` : "";
  return `${name}the model reads ${which}. ${meet}, of which ${plural(start, "comes", "come")} from the cache.${mask}`;
}

// Where to go: a step back or on, or on by itself.
function going(view) {
  function go(by) {
    const { steps, now } = read(view);
    view.set("at", steps[now + by].end);
  }
  const begin = () => view.set("at", read(view).steps[0].end);
  const { nodes, draw, stop } = stepper({ go, begin, every: PAUSE });
  return { nodes, stop, draw: ({ steps, now }) => draw(now > 0, now < steps.length - 1) };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const { words } = textOf(view);
  const [grid, signs, told] = [filling(words), legend(), spoken([2, 3])];
  const [counted, steps] = [meters(2), going(view)];
  // As many as can be read, to draw the bars in one scale.
  const most = sum(range(words.length + 1));

  function draw() {
    const now = read(view);
    const { pairs, places } = grid.draw(now);
    signs.draw(pairs);
    const past = now.steps.slice(0, now.now + 1);
    const last = [now.step.end - now.step.start, now.step.end];
    const soFar = [now.step.end, sum(past.map(({ end }) => end))];
    const lines = ["with a cache", "without"].map((name, i) => ({
      name,
      share: soFar[i] / most,
      text: String(soFar[i]),
      shade: `var(--live-${i ? "orange" : "weight"})`,
    }));
    counted.draw(lines, `Positions read so far: ${soFar[0]} with a cache, ${soFar[1]} without.`);
    told.say(sentence(now));
    steps.draw(now);
    view.values({
      "pairs (1 new, 2 again, 3 hidden, 4 earlier)": pairs,
      "cache (1 held, 2 added)": places,
      "positions read": [last, soFar],
    });
  }

  // Steps end elsewhere where the prompt is read otherwise.
  view.body.addEventListener("change", () => view.set("at", read(view).step.end));
  view.add(
    row(
      ...steps.nodes,
      counter(view, "at", { label: "Words read" }),
      toggle(view, "cached", { label: "Keep a cache" }),
      choice(view, "reading", { label: "Read the prompt" }),
    ),
    told.node,
    row(
      grid.node,
      element(
        "div",
        { class: "live-beside" },
        element("p", { class: "live-side-title" }, "Pairs of a query and a key"),
        signs.node,
        element("p", { class: "live-side-title" }, "Positions read so far"),
        counted.node,
      ),
    ),
  );
  view.follow(["at", "reading", "cached"], draw);
  return () => {
    steps.stop();
    view.close();
  };
}

export default { render };
