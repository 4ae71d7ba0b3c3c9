import {
  View, able, button, choice, coloured, drawing, element, numbered, player, row, shade, show, slider,
  spoken, sum, toggle, write,
} from "./shared.js";

const D_MODEL = 64; // h d_k, so that only the share h_kv / h counts
const BYTES = 2 * D_MODEL * 2; // of a position's keys and values, where no head shares them
const SMALL_GPT = 4; // heads
const PAUSE = 1200; // between two steps, in milliseconds

// What becomes of a pair in a step, and of a position in the cache: sign, words, background.
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
const [NEW, AGAIN, HIDDEN, EARLIER] = [1, 2, 3, 4];
const [HELD, ADDED, DROPPED] = [1, 2, 3];

// The colours of heads 1 to 4; heads 5 to 8 have them again, and dashed outlines.
/** @type {Colour[]} */
const COLOURS = ["blue", "orange", "green", "pink"];
const [DRAWN, LEFT, HIGH, GAP] = [300, 76, 22, 4]; // of the drawing of heads, in its units

// Of the two projections of each kind, and the two products. `share` is h_kv / h.
/** @type {(n_q: number, n_k: number, share: number) => number} */
const macs = (n_q, n_k, share) =>
  2 * n_q * (1 + share) * D_MODEL ** 2 + 2 * n_q * n_k * D_MODEL;


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

// Which head of keys each head of queries reads, from 0: neighbours share.
/** @type {(h: number, h_kv: number) => number[]} */
const readers = (h, h_kv) => Array.from({ length: h }, (_, i) => Math.floor((i * h_kv) / h));

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

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const [grid, table, told] = [coloured(), coloured(), spoken()];
  const [quality, shared] = [coloured(), spoken()];
  const size = { viewBox: `0 0 ${DRAWN} ${4 * HIGH}`, width: DRAWN, height: 4 * HIGH };
  const who = drawing("svg", { ...size, role: "img", class: "live-readers" });
  grid.node.classList.add("live-pairs");
  grid.node.setAttribute("role", "img");
  for (const { node } of [told, shared]) node.classList.add("live-two-lines");
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
    const h = view.get("h");
    const h_kv = Math.min(view.get("h_kv"), h);
    return { n, prompt, window: Number.isInteger(window) ? window : n, steps, now, h, h_kv };
  }

  // The page itself keeps them inside.
  function keep() {
    for (const [trait, most] of [["prompt", "n"], ["at", "n"], ["h_kv", "h"]]) {
      if (view.get(trait) > view.get(most)) view.set(trait, view.get(most));
    }
  }
  view.body.addEventListener("input", keep);
  view.body.addEventListener("change", keep);

  function go(by) {
    const { steps, now } = read();
    view.set("at", steps[now + by].end);
  }
  const [back, next] = [button("Step back", () => go(-1)), button("Next step", () => go(1))];

  const { play, stop } = player({
    next,
    begin: () => view.set("at", 1),
    go: () => go(1),
    every: PAUSE,
  });

  function draw() {
    const { n, prompt, window, steps, now, h, h_kv } = read();
    const share = h_kv / h;
    const [cached, step] = [view.get("cached"), steps[now]];
    const past = steps.slice(0, now + 1);
    const held = past.map(({ start }) => Math.min(start, window - 1));
    const kept = past.map(({ start, end }, s) => macs(end - start, held[s] + end - start, share));
    const anew = past.map(({ end }) => macs(end, end, share));
    const counted = [[kept[now], anew[now]], [sum(kept), sum(anew)]];
    const ratios = counted.map(([fewer, more]) => more / fewer);
    const each = BYTES * share;
    const bytes = [Math.min(step.end, window), held[now], sum(held)].map((count) => each * count);
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
    const reads = readers(h, h_kv);
    who.replaceChildren(...heads(h, h_kv));
    const pairing = reads.map((j, i) => `${i + 1} reads ${j + 1}`).join(", ");
    who.setAttribute("aria-label", `Heads of queries and the head of keys of each: ${pairing}`);
    shared.say(
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
    const { start, end } = step;
    const name = `Step ${now + 1} of ${steps.length}${end <= prompt ? ", prefill" : ""}`;
    const [queries, keys] = cached ? [end - start, held[now] + end - start] : [end, end];
    const meet = `${plural(queries, "query", "queries")}, ${plural(keys, "key", "keys")}`;
    told.say(
      cached
        ? `${name}: ${meet}; ${some(held[now])} from the cache.${leaving(step, window)}`
        : `${name}: ${meet}; ${start || "none"} of each had been computed before.`,
    );
    const more = now < steps.length - 1;
    able(back, now > 0);
    able(next, more);
    if (!more) stop();
    view.values({
      "pairs (1 new, 2 again, 3 hidden, 4 earlier)": pairs,
      "cache (1 held, 2 added, 3 dropped)": places,
      MACs: counted,
      "times the MACs without the cache": ratios,
      bytes,
      "head of keys that is read": reads.map((j) => j + 1),
      "bytes a position": [each, BYTES],
      "small GPT": measured[measure],
    });
  }

  // Who wants less motion gets steps alone.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const keyHeads = choice(view, "h_kv", { label: "Heads of keys h_kv" });
  view.follow(["h"], () => {
    for (const option of keyHeads.querySelectorAll("option")) {
      option.disabled = Number(option.value) > view.get("h");
    }
  });
  view.add(
    row(
      slider(view, "prompt", { label: "Prompt" }),
      slider(view, "n", { label: "Text n" }),
      choice(view, "block", { label: "Prefill in blocks of" }),
      choice(view, "window", { label: "Window" }),
      toggle(view, "cached", { label: "Keep a cache" }),
    ),
    row(slider(view, "at", { label: "Position" }), back, next, ...(still ? [] : [play])),
    told.node,
    row(
      element(
        "div",
        { class: "live-decoding" },
        grid.node,
        element("ul", { class: "live-strip" }, ...legend.map(({ item }) => item)),
      ),
      element(
        "div",
        { class: "live-decoding" },
        row(choice(view, "h", { label: "Heads h" }), keyHeads),
        who,
        shared.node,
        table.node,
        row(choice(view, "measure", { label: "Small GPT, 4 heads:" })),
        quality.node,
      ),
    ),
  );
  view.follow(
    ["prompt", "n", "block", "window", "cached", "at", "h", "h_kv", "measure", "measured"],
    draw,
  );
  return () => {
    stop();
    view.close();
  };
}

export default { render };
