import { able, button, choice, counter, player, slider, toggle } from "./controls.js";
import { shade } from "./drawings.js";
import { element, fold, roomy, row, spoken, write } from "./elements.js";
import { matmul, softmax, sum, transpose } from "./mathematics.js";
import { buttonGrid, coloured } from "./tables.js";
import { numbered, short, show } from "./text.js";
import { HELD, distance, held, moved, output, run, stepOf, walk } from "./tile_walk.js";
import { View } from "./view.js";

const PAUSE = 1500; // between two tiles, in milliseconds
const CLOSE = 1e-12; // what rounding may leave between two ways to add the same numbers
const HATCHED =
  "repeating-linear-gradient(135deg, var(--live-faint) 0 3px, transparent 3px 7px)";

// What has become of a pair: sign, words, background. In the tile now, its score is its sign.
const PAIRS = [
  ["", "to come", "none"],
  ["", "in the tile now", shade(0.4)],
  ["✓", "done, not kept", "var(--live-faint)"],
  ["×", "hidden", "none"],
  ["–", "skipped", HATCHED],
];
const [TO_COME, NOW, DONE, HIDDEN, SKIPPED] = [0, 1, 2, 3, 4];

// ---------------------------------------------------------------- what is shown

// Where the figure stands. Python may set a block or a step beyond the end.
function read(view) {
  const n = view.get("n");
  const [block_q, block_k] = ["block_q", "block_k"].map((one) => Math.min(view.get(one), n));
  const causal = view.get("is_causal");
  const tiles = walk(n, block_q, block_k, causal);
  return { n, block_q, block_k, causal, tiles, at: Math.min(view.get("at"), tiles.length) };
}

// What the tiles taken so far have computed, and what has become of each pair.
function compute(view) {
  const now = read(view);
  const { n, causal, tiles, at } = now;
  const [q, k, v] = ["q", "k", "v"].map((one) => view.get("given")[one].slice(0, n));
  const scale = view.get("steepness") / Math.sqrt(q[0].length);
  const scores = matmul(q, transpose(k)).map((line, i) =>
    line.map((product, j) => (causal && j > i ? -Infinity : scale * product)),
  );
  const { before, after } = run(tiles.slice(0, at), scores, v);
  const tile = tiles[Math.max(at - 1, 0)];
  const queries = Array.from({ length: tile.bottom - tile.top }, (_, r) => tile.top + r);
  const written = at > 0 && tile.last;
  const [found, twoPass] = [after.map(output), matmul(scores.map(softmax), v)];
  const done = written ? tile.bottom : tile.top;
  const pairs = scores.map((line, i) =>
    line.map((score, j) => {
      const step = stepOf(tiles, i, j);
      if (step === 0) return SKIPPED;
      if (step > at) return TO_COME;
      if (score === -Infinity) return HIDDEN;
      return step === at ? NOW : DONE;
    }),
  );
  return {
    ...now, scores, before, after, tile, written, found, twoPass, done, pairs,
    d: v[0].length,
    rises: queries.filter((i) => before[i].l && after[i].m > before[i].m),
    hidden: queries.flatMap((i) => scores[i].slice(tile.left, tile.right))
      .filter((score) => score === -Infinity).length,
    farthest: distance(found.slice(0, done), twoPass),
  };
}

// ---------------------------------------------------------------- words

// Places from `start`, counted from 0, to before `end`.
/** @type {(one: string, more: string, start: number, end: number) => string} */
function span(one, more, start, end) {
  if (end - start === 1) return `${one} ${end}`;
  return `${more} ${start + 1} ${end - start === 2 ? "and" : "to"} ${end}`;
}

/** @type {(queries: number[]) => string} */
function list(queries) {
  const told = queries.map((i) => String(i + 1));
  if (told.length === 1) return `query ${told[0]}`;
  return `queries ${told.slice(0, -1).join(", ")} and ${told.at(-1)}`;
}

// Told of a tile: how many of its scores are hidden, for which queries m rises, and how far the
// outputs that are written with it are from those of the two-pass softmax.
/** @typedef {{ hidden: number, rises: number[], farthest: number }} News */
/** @type {(tiles: import("./tile_walk.js").Tile[], at: number, news: News) => string} */
function sentence(tiles, at, { hidden, rises, farthest }) {
  const { top, bottom, left, right, last } = tiles[at - 1];
  const verb = bottom - top === 1 ? "meets" : "meet";
  const who = `${span("query", "queries", top, bottom)} ${verb} ${span("key", "keys", left, right)}`;
  const of = (bottom - top) * (right - left);
  const parts = [hidden ? `${who}, ${hidden} of ${of} scores hidden` : who];
  if (left === 0) parts.push("their first scores give m and l");
  else if (rises.length) parts.push(`m rises for ${list(rises)}, which scales the old sums`);
  else parts.push("m stays");
  if (last) {
    const all = at === tiles.length ? `all ${bottom}` : "their";
    const equal = farthest < CLOSE ? "equal to" : "not equal to";
    parts.push(`${all} outputs are written, ${equal} the two-pass softmax`);
  }
  return `Tile ${at} of ${tiles.length}: ${parts.join("; ")}.`;
}

// ---------------------------------------------------------------- parts

// A grid of n by n, made anew where n changes. A pair leads to the step of its tile.
function pairGrid(view) {
  const node = element("div");
  let cells = [];
  function gridOf(n) {
    if (cells.length === n) return cells;
    const grid = buttonGrid({
      label: "Queries (rows) and keys (columns)",
      rows: numbered(n),
      columns: numbered(n),
      press(i, j) {
        const step = stepOf(read(view).tiles, i, j);
        if (step) view.set("at", step);
      },
    });
    grid.node.classList.add("live-tiles");
    node.replaceChildren(grid.node);
    cells = grid.buttons;
    return cells;
  }
  return {
    node,
    draw({ n, block_q, block_k, tiles, at, scores, after, pairs }) {
      gridOf(n).forEach((line, i) =>
        line.forEach((cell, j) => {
          const [sign, words, fill] = PAIRS[pairs[i][j]];
          const now = pairs[i][j] === NOW;
          const score = short(scores[i][j]);
          write(cell, now ? score : sign);
          cell.style.background = now ? shade(Math.exp(scores[i][j] - after[i].m)) : fill;
          const about = now ? `score ${score}` : words;
          cell.setAttribute("aria-label", `query ${i + 1}, key ${j + 1}: ${about}`);
          cell.setAttribute("aria-pressed", String(at > 0 && stepOf(tiles, i, j) === at));
          cell.setAttribute("aria-disabled", String(pairs[i][j] === SKIPPED));
          cell.parentElement?.classList.toggle("live-cut-above", i % block_q === 0);
          cell.parentElement?.classList.toggle("live-cut-before", j % block_k === 0);
        }),
      );
    },
  };
}

/** @type {(x: number) => string} */
const exact = (x) => (Number.isFinite(x) ? short(x) : show(x));

// Of the tile's queries: m and l before the tile and after it, and the outputs, ours and theirs.
function queryTables() {
  const [state, outputs, expected] = [coloured(), coloured(), coloured()];
  const off = element("p", { class: "live-narrow" });
  function draw({ n, d, block_q, tile, before, after, rises, written, found, twoPass, done, farthest }) {
    // As many rows as a block has, so that a smaller last one moves nothing.
    const places = Array.from({ length: block_q }, (_, r) => tile.top + r);
    const ofQueries = (label, columns, text, fill) => ({
      label,
      rows: places.map((i) => (i < tile.bottom ? `query ${i + 1}` : "–")),
      columns,
      text: (r, c) => (places[r] < tile.bottom ? text(places[r], c) : ""),
      fill: (r, c) => (places[r] < tile.bottom ? fill(places[r], c) : "none"),
    });
    const columns = {
      "m was": (i) => exact(before[i].m),
      m: (i) => exact(after[i].m),
      factor: (i) => show(after[i].factor, 2),
      "l was": (i) => show(before[i].l, 2),
      l: (i) => show(after[i].l, 2),
    };
    const newMaximum = (i, c) =>
      rises.includes(i) && (c === 1 || c === 2) ? shade(0.6, "orange") : "none";
    const running = (i, c) => Object.values(columns)[c](i);
    state.draw(ofQueries("Maximum m and sum l", Object.keys(columns), running, newMaximum));
    const [ours, theirs] = [found, twoPass].map((rows) => (i, c) => show(rows[i][c], 2));
    const fill = () => (written ? shade(0.6, "green") : "none");
    const label = written ? "Output, written" : "Running output";
    outputs.draw(ofQueries(label, numbered(d), ours, fill));
    expected.draw(ofQueries("Two-pass softmax", numbered(d), theirs, fill));
    const most = farthest ? farthest.toExponential(1).replace("-", "−") : "0";
    const told = done ? `, at most ${most} off the two-pass softmax` : "";
    write(off, `${done} of ${n} outputs are written${told}.`);
  }
  return { state, outputs, expected, off, draw };
}

// Numbers that the small memory holds, and that are moved, beside those of the plain way.
function traffic() {
  const counted = coloured();
  const [holds, ratio] = [element("p"), element("p")];
  // Gives the numbers that it shows.
  function draw({ n, d, tiles, at, tile }) {
    const [soFar, inAll] = [tiles.slice(0, at), tiles].map((some) => moved(some, d));
    const plain = [2 * n * n + 3 * n * d, 2 * n * n + n * d];
    const totals = [soFar, inAll, [...plain, sum(plain)]];
    counted.draw({
      label: "Numbers moved",
      rows: ["read", "written", "both"],
      columns: ["tiles, so far", "tiles, in all", "plain way"],
      text: (i, j) => String(totals[j][i]),
    });
    write(
      ratio,
      `In all the tiles move ${show(inAll[2] / sum(plain), 2)} times as many numbers as the ` +
        `plain way, which writes out ${n * n} scores and ${n * n} weights.`,
    );
    const parts = at ? held(tile, d) : [0];
    const mostHeld = Math.max(...tiles.map((one) => sum(held(one, d))));
    const each = at ? `: ${parts.map((x, part) => `${HELD[part]} ${x}`).join(", ")}` : "";
    write(holds, `The small memory holds ${sum(parts)} numbers${each}. At most: ${mostHeld}.`);
    return {
      "numbers moved": [0, 1].map((i) => [soFar[i], inAll[i], plain[i]]),
      "numbers in the small memory": [sum(parts), mostHeld],
    };
  }
  return { counted, holds, ratio, draw };
}

// Where to go: by one tile, to either end, or on by itself.
function steps(view) {
  const go = (by) => view.set("at", read(view).at + by);
  const start = button("Start", () => view.set("at", 0));
  const [back, next] = [button("Step back", () => go(-1)), button("Next tile", () => go(1))];
  const end = button("End", () => view.set("at", read(view).tiles.length));
  const { play, stop } = player({
    next,
    begin: () => view.set("at", 0),
    go: () => go(1),
    every: PAUSE,
  });
  // Who wants less motion gets steps alone.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return {
    nodes: [start, back, next, end, ...(still ? [] : [play])],
    stop,
    draw({ at, tiles }) {
      const more = at < tiles.length;
      for (const one of [start, back]) able(one, at > 0);
      for (const one of [next, end]) able(one, more);
      if (!more) stop();
    },
  };
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a tile");
  const told = spoken();
  told.node.classList.add("live-two-lines", "live-long");
  const [grid, ofQueries, memory, going] = [pairGrid(view), queryTables(), traffic(), steps(view)];
  const legend = PAIRS.map(([sign, words, fill]) => {
    const item = element("li");
    item.style.background = fill;
    return { item, text: `${sign} ${words}: ` };
  });

  // The page itself keeps them inside, after a slider and after a box.
  for (const event of ["input", "change"]) {
    view.body.addEventListener(event, () => {
      const { block_q, block_k, at } = read(view);
      for (const [trait, value] of Object.entries({ block_q, block_k, at })) {
        if (view.get(trait) !== value) view.set(trait, value);
      }
    });
  }

  function draw() {
    const found = compute(view);
    const { tiles, at, pairs, scores } = found;
    grid.draw(found);
    const counts = PAIRS.map((_, kind) => pairs.flat().filter((one) => one === kind).length);
    legend.forEach(({ item, text }, kind) => write(item, text + counts[kind]));
    ofQueries.draw(found);
    const numbers = memory.draw(found);
    const skipped = counts[SKIPPED] ? `, and ${counts[SKIPPED]} pairs are skipped` : "";
    told.say(
      at
        ? sentence(tiles, at, found)
        : `Nothing has been read: ${tiles.length} tiles are to come${skipped}.`,
    );
    going.draw(found);
    view.values({
      "pairs (1 now, 2 done, 3 hidden, 4 skipped)": pairs,
      scores,
      "m and l": found.after.map(({ m, l }) => [m, l]),
      "running output": found.found,
      "output of the two-pass softmax": found.twoPass,
      ...numbers,
    });
  }

  const rule = "factor = exp(m was − m), and l = factor · l was + the sum of exp(s − m).";
  const beside = (...nodes) => element("div", { class: "live-beside" }, ...nodes);
  const { state, outputs, expected, off } = ofQueries;
  view.add(
    row(
      slider(view, "n", { label: "Length n" }),
      slider(view, "block_q", { label: "Queries a tile" }),
      slider(view, "block_k", { label: "Keys a tile" }),
      choice(view, "steepness", { label: "Scores times" }),
      toggle(view, "is_causal", { label: "Causal" }),
    ),
    row(counter(view, "at", { label: "Tiles taken" }), ...going.nodes),
    told.node,
    row(grid.node, beside(state.node, element("p", {}, rule))),
    element("ul", { class: "live-strip" }, ...legend.map(({ item }) => item)),
    row(element("div", {}, outputs.node), element("div", {}, expected.node), off),
    fold("Numbers held and moved", roomy(), memory.holds, row(memory.counted.node, beside(memory.ratio))),
  );
  view.follow(["n", "block_q", "block_k", "is_causal", "steepness", "at"], draw);
  return () => {
    going.stop();
    view.close();
  };
}

export default { render };
