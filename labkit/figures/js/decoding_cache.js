import { able, button, choice, player, slider, toggle } from "./controls.js";
import { BYTES, count, pair, place, walk } from "./decoding_walk.js";
import { COLOURS, shade } from "./drawings.js";
import { drawing, element, row, spoken, write } from "./elements.js";
import { coloured } from "./tables.js";
import { numbered, plural, show, whole } from "./text.js";
import { View } from "./view.js";

const SMALL_GPT = 4; // heads
const PAUSE = 1200; // between two steps, in milliseconds

// A kind of pair in a step, and of place in the cache: sign, words, background.
const PAIRS = [
  ["", "", "none"],
  ["●", "computed now", shade(0.8)],
  ["↻", "computed again", shade(0.8, "orange")],
  ["×", "computed, hidden", "var(--live-faint)"],
  ["○", "done earlier", "none"],
];
const PLACES = [
  PAIRS[0],
  ["■", "held in cache", shade(0.6, "green")],
  ["+", "added", shade(0.8)],
  ["–", "dropped", "none"],
];
const [DRAWN, LEFT, HIGH, GAP] = [300, 76, 22, 4]; // of the drawing of heads, in its units

const some = (count) => (count === 1 ? "1 comes" : `${count || "none"} come`);

/** @type {(step: import("./decoding_walk.js").Step, window: number) => string} */
function leaving({ start, end }, window) {
  const [from, to] = [start, end].map((count) => Math.max(count - window, 0));
  if (from === to) return "";
  if (to - from === 1) return ` Position ${to} leaves it.`;
  return ` Positions ${from + 1} to ${to} leave it.`;
}

// Which head of keys each head of queries reads, from 0: neighbours share.
/** @type {(h: number, h_kv: number) => number[]} */
const readers = (h, h_kv) => Array.from({ length: h }, (_, i) => Math.floor((i * h_kv) / h));

// Heads 5 to 8 have the colours of 1 to 4 again, and dashed outlines.
// A box has the width of its head, so that those below are as wide as what the cache holds.
/** @type {(h: number, h_kv: number) => SVGElement[]} */
function heads(h, h_kv) {
  const slot = (DRAWN - LEFT) / h;
  const low = 3 * HIGH - 2;
  const middle = (i) => LEFT + slot * (i + 0.5);
  const below = (j) => (middle((j * h) / h_kv) + middle(((j + 1) * h) / h_kv - 1)) / 2;
  const of = (i) => `--live-head: var(--live-${COLOURS[i % COLOURS.length]})`;
  const box = (x, y, i, style, dashed) => [
    drawing("rect", {
      x: x - slot / 2 + GAP / 2, y, width: slot - GAP, height: HIGH, rx: 4, style,
      "stroke-dasharray": dashed ? "4 3" : "none",
    }),
    drawing("text", { x, y: y + 15, "text-anchor": "middle" }, String(i + 1)),
  ];
  // Shared keys are nobody's, and have no colour.
  const shared = "--live-head: currentcolor";
  return [
    drawing("text", { x: 0, y: 17 }, "queries"),
    drawing("text", { x: 0, y: low + 15 }, "keys, values"),
    ...readers(h, h_kv).map((j, i) => {
      const [x1, x2] = [middle(i), below(j)];
      return drawing("line", { x1, y1: 2 + HIGH, x2, y2: low, style: of(i) });
    }),
    ...numbered(h).flatMap((_, i) => box(middle(i), 2, i, of(i), i >= COLOURS.length)),
    ...numbered(h_kv).flatMap((_, j) =>
      h === h_kv
        ? box(middle(j), low, j, of(j), j >= COLOURS.length)
        : box(below(j), low, j, shared, false),
    ),
  ];
}

// Where the figure stands. Python may set a prompt or a position beyond the text.
function read(view) {
  const [n, block, window] = ["n", "block", "window"].map((trait) => view.get(trait));
  const [prompt, at] = ["prompt", "at"].map((trait) => Math.min(view.get(trait), n));
  const steps = walk(n, prompt, Number.isInteger(block) ? block : prompt);
  const now = steps.findIndex(({ end }) => at <= end);
  const h = view.get("h");
  const h_kv = Math.min(view.get("h_kv"), h);
  return {
    n, prompt, steps, now, h, h_kv,
    window: Number.isInteger(window) ? window : n,
    cached: view.get("cached"),
    step: steps[now],
  };
}

// Pairs of query and key, below them the places of the cache, and what the signs mean.
function pairGrid() {
  const { node, draw } = coloured();
  node.classList.add("live-pairs");
  node.setAttribute("role", "img");
  const legend = [PAIRS, PLACES].flatMap((kinds, place) =>
    kinds.slice(1).map(([sign, words, fill], i) => {
      const item = element("li");
      item.style.background = fill;
      return { item, place, kind: i + 1, text: `${sign} ${words}: ` };
    }),
  );
  const list = element("ul", { class: "live-strip" }, ...legend.map(({ item }) => item));
  return {
    node: element("div", { class: "live-decoding" }, node, list),
    // Gives what has become of each pair, and of each place.
    draw({ n, step, window, cached }) {
      const positions = numbered(n);
      const pairs = positions.map((_, i) =>
        positions.map((__, j) => pair(i, j, step, window, cached)),
      );
      const places = positions.map((_, j) => (cached ? place(j, step, window) : 0));
      const kind = (i, j) => (i < n ? PAIRS[pairs[i][j]] : PLACES[places[j]]);
      draw({
        label: "Queries (rows) and keys (columns)",
        rows: [...positions, "cache"],
        columns: positions,
        text: (i, j) => kind(i, j)[0],
        fill: (i, j) => kind(i, j)[2],
      });
      for (const { item, place: inCache, kind: one, text } of legend) {
        const all = inCache ? places : pairs.flat();
        write(item, text + all.filter((other) => other === one).length);
      }
      const counts = legend.map(({ item }) => item.textContent).join(", ");
      node.setAttribute("aria-label", `Queries and keys: ${counts}`);
      return { pairs, places };
    },
  };
}

/** @type {(table: Coloured, counts: ReturnType<typeof count>) => void} */
function drawCounts(table, { counted, ratios, bytes }) {
  const lines = [
    ["MACs, this step", ...counted[0].map(whole), show(ratios[0], 2)],
    ["MACs, so far", ...counted[1].map(whole), show(ratios[1], 2)],
    ["Bytes held", whole(bytes[0]), "0", ""],
    ["Bytes read, this step", whole(bytes[1]), "0", ""],
    ["Bytes read, so far", whole(bytes[2]), "0", ""],
  ];
  table.draw({
    label: "One layer, one sequence",
    rows: lines.map(([what]) => what),
    columns: ["cache", "no cache", "ratio"],
    text: (i, j) => lines[i][j + 1],
  });
}

// Who reads whose keys, what that costs, and how well a small GPT that shares them does.
function sharing(view) {
  const [quality, told] = [coloured(), spoken()];
  const size = { viewBox: `0 0 ${DRAWN} ${4 * HIGH}`, width: DRAWN, height: 4 * HIGH };
  const who = drawing("svg", { ...size, role: "img", class: "live-readers" });
  told.node.classList.add("live-two-lines");
  function draw({ h, h_kv }, each) {
    who.replaceChildren(...heads(h, h_kv));
    const pairing = readers(h, h_kv).map((j, i) => `${i + 1} reads ${j + 1}`).join(", ");
    who.setAttribute("aria-label", `Heads of queries and the head of keys of each: ${pairing}`);
    told.say(
      h === h_kv
        ? `Each head has its own keys and values: ${BYTES} bytes a position.`
        : `Every ${h / h_kv} heads share keys and values: ${each} bytes a position, not ${BYTES}.`,
    );
    const [rows, columns] = view.get("axes")["small GPT"];
    const [measure, measured] = [view.get("measure"), view.get("measured")];
    // The small GPT has 4 heads: its line is marked where the layer has as many.
    const marked = h === SMALL_GPT ? rows.findIndex((name) => name.startsWith(`${h_kv} `)) : -1;
    quality.draw({
      label: measure === "loss" ? "Loss, nats a word" : "Probability of the right word",
      rows: rows.map((name, i) => (i === marked ? `▸ ${name}` : name)),
      columns,
      text: (i, j) => show(measured[measure][i][j], 3),
      fill: (i) => (i === marked ? shade(0.6, "green") : "none"),
    });
  }
  return { who, told, quality, draw };
}

// What is told of the step; `held` positions come from the cache.
function sentence({ steps, now, step, prompt, window, cached }, held) {
  const { start, end } = step;
  const name = `Step ${now + 1} of ${steps.length}${end <= prompt ? ", prefill" : ""}`;
  const [queries, keys] = cached ? [end - start, held + end - start] : [end, end];
  const one = (count) => (count === 1 ? "one" : String(count));
  const meet =
    `${plural(queries, "query", "queries", one)}, ${plural(keys, "key", "keys", one)}`;
  return cached
    ? `${name}: ${meet}; ${some(held)} from the cache.${leaving(step, window)}`
    : `${name}: ${meet}; ${start || "none"} of each had been computed before.`;
}

// Where to go: a step back or on, or on by itself.
function going(view) {
  function go(by) {
    const { steps, now } = read(view);
    view.set("at", steps[now + by].end);
  }
  const [back, next] = [button("Step back", () => go(-1)), button("Next step", () => go(1))];
  const { play, stop } = player({
    next,
    begin: () => view.set("at", 1),
    go: () => go(1),
    every: PAUSE,
  });
  // Who wants less motion gets steps alone.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return {
    nodes: [back, next, ...(still ? [] : [play])],
    stop,
    draw({ steps, now }) {
      const more = now < steps.length - 1;
      able(back, now > 0);
      able(next, more);
      if (!more) stop();
    },
  };
}

// The numbers of heads of keys: there are no more than heads.
function keyHeads(view) {
  const node = choice(view, "h_kv", { label: "Heads of keys h_kv" });
  view.follow(["h"], () => {
    for (const option of node.querySelectorAll("option")) {
      option.disabled = Number(option.value) > view.get("h");
    }
  });
  return node;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const [grid, table, told] = [pairGrid(), coloured(), spoken()];
  const [shared, steps] = [sharing(view), going(view)];
  told.node.classList.add("live-two-lines");

  // The page itself keeps them inside.
  function keep() {
    for (const [trait, most] of [["prompt", "n"], ["at", "n"], ["h_kv", "h"]]) {
      if (view.get(trait) > view.get(most)) view.set(trait, view.get(most));
    }
  }
  view.body.addEventListener("input", keep);
  view.body.addEventListener("change", keep);

  function draw() {
    const now = read(view);
    const counts = count(now);
    const { pairs, places } = grid.draw(now);
    drawCounts(table, counts);
    shared.draw(now, counts.each);
    told.say(sentence(now, counts.held));
    steps.draw(now);
    view.values({
      "pairs (1 new, 2 again, 3 hidden, 4 earlier)": pairs,
      "cache (1 held, 2 added, 3 dropped)": places,
      MACs: counts.counted,
      "times the MACs without the cache": counts.ratios,
      bytes: counts.bytes,
      "head of keys that is read": readers(now.h, now.h_kv).map((j) => j + 1),
      "bytes a position": [counts.each, BYTES],
      "small GPT": view.get("measured")[view.get("measure")],
    });
  }

  view.add(
    row(
      slider(view, "prompt", { label: "Prompt" }),
      slider(view, "n", { label: "Text n" }),
      choice(view, "block", { label: "Prefill in blocks of" }),
      choice(view, "window", { label: "Window" }),
      toggle(view, "cached", { label: "Keep a cache" }),
    ),
    row(slider(view, "at", { label: "Position" }), ...steps.nodes),
    told.node,
    row(
      grid.node,
      element(
        "div",
        { class: "live-decoding" },
        row(choice(view, "h", { label: "Heads h" }), keyHeads(view)),
        shared.who,
        shared.told.node,
        table.node,
        row(choice(view, "measure", { label: "Small GPT, 4 heads:" })),
        shared.quality.node,
      ),
    ),
  );
  view.follow(
    ["prompt", "n", "block", "window", "cached", "at", "h", "h_kv", "measure", "measured"],
    draw,
  );
  return () => {
    steps.stop();
    view.close();
  };
}

export default { render };
