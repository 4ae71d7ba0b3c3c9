import { quiet, slider, sliders, stepper, toggle } from "./controls.js";
import { shade } from "./drawings.js";
import { element, fold, phrase, row, spoken, still, typeset, unique, write } from "./elements.js";
import { matmul, range, softmax, sum, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { numbered, short, show } from "./text.js";
import { STEP, tiling } from "./tile_drawing.js";
import { DONE, HELD, HIDDEN, NOW, SKIPPED, TO_COME, distance, held, moved, output, run, stepOf, walk } from "./tile_walk.js";
import { View } from "./view.js";

const PAUSE = STEP + 900; // between two tiles, in milliseconds
const CLOSE = 1e-12; // what rounding may leave between two ways to add the same numbers

// ---------------------------------------------------------------- what is shown

// Where the figure stands. Python may set a step beyond the end.
function read(view) {
  const n = view.get("given").q.length;
  const [block_q, block_k, causal] = ["block_q", "block_k", "is_causal"].map((one) => view.get(one));
  const tiles = walk(n, block_q, block_k, causal);
  return { n, block_q, block_k, causal, tiles, at: Math.min(view.get("at"), tiles.length) };
}

// What full bars stand for, so that a length means the same in all cuts: the largest sums of all,
// which keys that come one by one pass, with room for a number behind that of l.
function largest(scores, v) {
  const oneByOne = walk(scores.length, scores.length, 1, false);
  const met = oneByOne.flatMap((_, j) => run(oneByOne.slice(0, j + 1), scores, v).after);
  return { l: 1.3 * Math.max(...met.map(({ l }) => l)), a: Math.max(...met.flatMap(({ mixed }) => mixed)) };
}

// What the tiles taken so far have computed, and what has become of each pair.
function compute(view) {
  const now = read(view);
  const { causal, tiles, at } = now;
  const { q, k, v } = view.get("given");
  const all = matmul(q, transpose(k)).map((line) => line.map((x) => x / Math.sqrt(q[0].length)));
  const scores = all.map((line, i) => line.map((x, j) => (causal && j > i ? -Infinity : x)));
  const { before, after } = run(tiles.slice(0, at), scores, v);
  const tile = tiles[Math.max(at - 1, 0)];
  const queries = range(tile.bottom - tile.top).map((r) => tile.top + r);
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
    most: largest(all, v),
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
  if (told.length > 4) return `${told.length} queries`;
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
  if (left === 0) parts.push("their first scores give m and the first parts of the sums");
  else if (rises.length) {
    const whose = rises.length === 1 ? "its" : "their";
    parts.push(`m rises for ${list(rises)}, so ${whose} old sums shrink before the new parts are added`);
  } else parts.push("m stays, so the old sums keep their length");
  if (last) {
    const all = at === tiles.length ? `all ${bottom}` : "their";
    const equal = farthest < CLOSE ? "equal to" : "not equal to";
    parts.push(`${all} outputs are written, ${equal} the two-pass softmax`);
  }
  return `Tile ${at} of ${tiles.length}: ${parts.join("; ")}.`;
}

// ---------------------------------------------------------------- parts

/** @type {(x: number) => string} */
const exact = (x) => (Number.isFinite(x) ? short(x) : show(x));

// Of the tile's queries: m and l before the tile and after it, and the outputs, ours and theirs.
function queryTables() {
  const [state, outputs, expected] = [coloured(), coloured(), coloured()];
  const off = element("p");
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
      rises.includes(i) && (c === 1 || c === 2) ? shade(0.6, "weight") : "none";
    const running = (i, c) => Object.values(columns)[c](i);
    state.draw(ofQueries("Maximum m and sum l", Object.keys(columns), running, newMaximum));
    const [ours, theirs] = [found, twoPass].map((rows) => (i, c) => show(rows[i][c], 2));
    const plain = () => "none";
    const label = written ? "Output a / l, written" : "Running output a / l";
    outputs.draw(ofQueries(label, numbered(d), ours, plain));
    expected.draw(ofQueries("Two-pass softmax", numbered(d), theirs, plain));
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

// Where to go: by one tile, on by itself, or to any.
function steps(view) {
  const going = stepper({
    go: (by) => view.set("at", read(view).at + by),
    begin: () => view.set("at", 0),
    every: PAUSE,
    next: "Next tile",
  });
  const id = unique();
  const scrubber = element("input", {
    id,
    type: "range",
    min: 0,
    "data-trait": "at",
    oninput: () => view.set("at", Number(scrubber.value)),
  });
  const shown = quiet();
  const control = element("div", { class: "live-control" }, element("label", { for: id }, "Tile"), scrubber, shown);
  return {
    buttons: going.nodes,
    control,
    stop: going.stop,
    draw({ at, tiles }) {
      scrubber.max = String(tiles.length);
      scrubber.value = String(at);
      scrubber.setAttribute("aria-valuetext", String(at));
      write(shown, `${at} of ${tiles.length}`);
      going.draw(at > 0, at < tiles.length);
    },
  };
}

// What the colours and signs of the drawing say.
function legend() {
  const items = [
    ["now", "in the tile, stronger where exp(s − m) is larger"],
    ["done", "done, its score is gone", "·"],
    ["hidden", "hidden", "×"],
    ["skipped", "skipped"],
    ["old", "old sum times its factor"],
    ["was", "before that"],
    ["new", "what the tile adds, a part for each key"],
  ];
  return element(
    "ul",
    { class: "tiling-legend" },
    ...items.map(([kind, text, sign = ""]) =>
      element("li", {}, element("i", { class: `tiling-sample tiling-${kind}` }, sign), phrase(text)),
    ),
  );
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a tile");
  const told = spoken([2, 4, 5]);
  const { q, v } = view.get("given");
  const [drawn, ofQueries, memory, going] = [tiling(q.length, v[0].length), queryTables(), traffic(), steps(view)];
  let known = { key: "", at: -1 };

  // The page itself keeps the step inside.
  view.body.addEventListener("input", () => {
    const { at } = read(view);
    if (view.get("at") !== at) view.set("at", at);
  });

  function draw() {
    const found = compute(view);
    const { tiles, at, pairs, scores, block_q, block_k, causal } = found;
    const key = JSON.stringify([block_q, block_k, causal]);
    drawn.draw(found, key === known.key && at === known.at + 1 && !still());
    known = { key, at };
    ofQueries.draw(found);
    const numbers = memory.draw(found);
    const skipped = pairs.flat().filter((one) => one === SKIPPED).length;
    const never = skipped ? `, and ${skipped} pairs are skipped` : "";
    told.say(at ? sentence(tiles, at, found) : `Nothing has been read: ${tiles.length} tiles are to come${never}.`);
    going.draw(found);
    view.values({
      "pairs (1 now, 2 done, 3 hidden, 4 skipped)": pairs,
      scores,
      "m and l": found.after.map(({ m, l }) => [m, l]),
      a: found.after.map(({ mixed }) => mixed),
      "running output": found.found,
      "output of the two-pass softmax": found.twoPass,
      ...numbers,
    });
  }

  const rule = "factor = exp(m was − m), and l = factor · l was + the sum of exp(s − m).";
  const { state, outputs, expected, off } = ofQueries;
  view.add(
    row(...going.buttons, toggle(view, "is_causal", { label: "Causal" })),
    sliders(
      going.control,
      slider(view, "block_q", { label: "Queries a tile" }),
      slider(view, "block_k", { label: "Keys a tile" }),
    ),
    told.node,
    legend(),
    drawn.node,
    fold("m, l and outputs in numbers", false, state.node, element("p", {}, ...typeset(rule)), row(outputs.node, expected.node), off),
    fold("Numbers held and moved", false, memory.holds, memory.counted.node, memory.ratio),
  );
  view.follow(["block_q", "block_k", "is_causal", "at"], draw);
  return () => {
    going.stop();
    view.close();
  };
}

export default { render };
