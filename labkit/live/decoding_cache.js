import {
  View, button, choice, coloured, element, numbered, row, shade, show, slider, spoken, toggle,
  write,
} from "./shared.js";

const D_MODEL = 64; // h d_k, with which h leaves every count
const BYTES = 2 * D_MODEL * 2; // of a position's key and value
const PAUSE = 1200; // between two steps, in milliseconds

// What becomes of a pair in a step, and of a position in the cache: sign, words, background.
const PAIRS = [
  ["", "", "none"],
  ["●", "computed now", shade(0.8)],
  ["↻", "computed again", shade(0.8, "orange")],
  ["×", "computed and hidden", "var(--live-faint)"],
  ["○", "done in an earlier step", "none"],
];
const PLACES = [
  PAIRS[0],
  ["■", "held in the cache", shade(0.6, "green")],
  ["+", "added to it", shade(0.8)],
  ["–", "dropped from it", "none"],
];
const [NEW, AGAIN, HIDDEN, EARLIER] = [1, 2, 3, 4];
const [HELD, ADDED, DROPPED] = [1, 2, 3];

// Of four projections and two products.
/** @type {(n_q: number, n_k: number) => number} */
const macs = (n_q, n_k) => 4 * n_q * D_MODEL ** 2 + 2 * n_q * n_k * D_MODEL;

/** @type {(numbers: number[]) => number} */
const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);

const plural = (count, word, words) => (count === 1 ? `one ${word}` : `${count} ${words}`);
const some = (count) => (count === 1 ? "1 comes" : `${count || "none"} come`);
const whole = (x) => x.toLocaleString("en");

// From position `start`, counted from 0, to that before `end`.
/** @typedef {{ start: number, end: number }} Step */
/** @type {(n: number, prompt: number, block: number) => Step[]} */
function walk(n, prompt, block) {
  const steps = [];
  for (let start = 0; start < n; start = steps.at(-1).end) {
    const end = start < prompt ? Math.min(start + block, prompt) : start + 1;
    steps.push({ start, end });
  }
  return steps;
}

/** @type {(i: number, j: number, step: Step, window: number, cached: boolean) => number} */
function pair(i, j, { start, end }, window, cached) {
  const sees = j <= i && j > i - window;
  if (i >= end || j >= end) return 0;
  if (cached && i < start) return sees ? EARLIER : 0;
  if (cached && j <= start - window) return 0;
  if (!sees) return HIDDEN;
  return i < start ? AGAIN : NEW;
}

/** @type {(j: number, step: Step, window: number) => number} */
function place(j, { start, end }, window) {
  if (j >= end) return 0;
  if (j < end - window) return DROPPED;
  return j < start ? HELD : ADDED;
}

/** @type {(step: Step, window: number) => string} */
function leaving({ start, end }, window) {
  const [from, to] = [start, end].map((count) => Math.max(count - window, 0));
  if (from === to) return "";
  if (to - from === 1) return ` Position ${to} leaves it.`;
  return ` Positions ${from + 1} to ${to} leave it.`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el });
  const [grid, table, told] = [coloured(), coloured(), spoken()];
  grid.node.classList.add("live-pairs");
  grid.node.setAttribute("role", "img");
  told.node.classList.add("live-two-lines");
  const legend = [PAIRS, PLACES].flatMap((kinds, place) =>
    kinds.slice(1).map(([sign, words, fill], i) => {
      const item = element("li");
      item.style.background = fill;
      return { item, place, kind: i + 1, text: `${sign} ${words}: ` };
    }),
  );

  // Where the figure stands. Python may set a prompt or a position beyond the text.
  function read() {
    const [n, block, window] = ["n", "block", "window"].map((trait) => view.get(trait));
    const [prompt, at] = ["prompt", "at"].map((trait) => Math.min(view.get(trait), n));
    const steps = walk(n, prompt, Number.isInteger(block) ? block : prompt);
    const now = steps.findIndex(({ end }) => at <= end);
    return { n, prompt, window: Number.isInteger(window) ? window : n, steps, now };
  }

  // The page itself keeps them inside.
  view.body.addEventListener("input", () => {
    for (const trait of ["prompt", "at"]) {
      if (view.get(trait) > view.get("n")) view.set(trait, view.get("n"));
    }
  });

  function go(by) {
    const { steps, now } = read();
    view.set("at", steps[now + by].end);
  }
  const [back, next] = [button("Step back", () => go(-1)), button("Next step", () => go(1))];

  let timer = 0;
  function pause() {
    clearInterval(timer);
    timer = 0;
    write(play, "Play");
  }
  const play = button("Play", () => {
    if (timer) return pause();
    if (next.disabled) view.set("at", 1);
    timer = setInterval(() => go(1), PAUSE);
    write(play, "Pause");
  });

  function draw() {
    const { n, prompt, window, steps, now } = read();
    const [cached, step] = [view.get("cached"), steps[now]];
    const past = steps.slice(0, now + 1);
    const held = past.map(({ start }) => Math.min(start, window - 1));
    const kept = past.map(({ start, end }, s) => macs(end - start, held[s] + end - start));
    const anew = past.map(({ end }) => macs(end, end));
    const counted = [[kept[now], anew[now]], [sum(kept), sum(anew)]];
    const ratios = counted.map(([fewer, more]) => more / fewer);
    const bytes = [Math.min(step.end, window), held[now], sum(held)].map((count) => BYTES * count);
    const positions = numbered(n);
    const pairs = positions.map((_, i) =>
      positions.map((_, j) => pair(i, j, step, window, cached)),
    );
    const places = positions.map((_, j) => (cached ? place(j, step, window) : 0));

    const kind = (i, j) => (i < n ? PAIRS[pairs[i][j]] : PLACES[places[j]]);
    grid.draw({
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
    grid.node.setAttribute("aria-label", `Queries and keys: ${counts}`);
    const lines = [
      ["MACs, this step", ...counted[0].map(whole), show(ratios[0], 2)],
      ["MACs, so far", ...counted[1].map(whole), show(ratios[1], 2)],
      ["Bytes in the cache", whole(bytes[0]), "0", ""],
      ["Bytes read from it, this step", whole(bytes[1]), "0", ""],
      ["Bytes read from it, so far", whole(bytes[2]), "0", ""],
    ];
    table.draw({
      label: "One layer, one sequence",
      rows: lines.map(([what]) => what),
      columns: ["with the cache", "without", "ratio"],
      text: (i, j) => lines[i][j + 1],
    });
    const { start, end } = step;
    const name = `Step ${now + 1} of ${steps.length}${end <= prompt ? ", prefill" : ""}`;
    const [queries, keys] = cached ? [end - start, held[now] + end - start] : [end, end];
    const meet = `${plural(queries, "query", "queries")}, ${plural(keys, "key", "keys")}`;
    told.say(
      cached
        ? `${name}: ${meet}; ${some(held[now])} from the cache.${leaving(step, window)}`
        : `${name}: ${meet}; ${start || "none"} of each had been computed before.`,
    );
    back.disabled = now === 0;
    next.disabled = now === steps.length - 1;
    if (timer && next.disabled) pause();
    view.values({
      "pairs (1 new, 2 again, 3 hidden, 4 earlier)": pairs,
      "cache (1 held, 2 added, 3 dropped)": places,
      MACs: counted,
      "times the MACs without the cache": ratios,
      bytes,
    });
  }

  // Who wants less motion gets steps alone.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  view.add(
    row(
      slider(view, "prompt", { label: "Prompt" }),
      slider(view, "n", { label: "Text n" }),
      choice(view, "block", { label: "Prefill in blocks of" }),
      choice(view, "window", { label: "Window" }),
      toggle(view, "cached", { label: "Keep keys and values in a cache" }),
    ),
    row(slider(view, "at", { label: "Position" }), back, next, ...(still ? [] : [play])),
    told.node,
    row(grid.node, element("div", { class: "live-chart" }, table.node)),
    element("ul", { class: "live-strip" }, ...legend.map(({ item }) => item)),
  );
  view.follow(["prompt", "n", "block", "window", "cached", "at"], draw);
  return () => {
    clearInterval(timer);
    view.close();
  };
}

export default { render };
