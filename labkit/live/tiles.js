import {
  View, able, button, buttonGrid, choice, coloured, counter, element, fold, matmul, numbered, player,
  roomy, row, shade, short, show, slider, softmax, spoken, sum, toggle, transpose, write,
} from "./shared.js";

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
const HELD = ["queries", "keys", "values", "scores", "m and l", "outputs"];

// ---------------------------------------------------------------- tiles

// Queries from `top` to before `bottom` and keys from `left` to before `right`, counted from 0.
// It is the `last` of its queries where they meet no further key.
/** @typedef {{ top: number, bottom: number, left: number, right: number, last: boolean }} Tile */
/** @type {(n: number, block_q: number, block_k: number, causal: boolean) => Tile[]} */
function walk(n, block_q, block_k, causal) {
  const tiles = [];
  for (let top = 0; top < n; top += block_q) {
    const bottom = Math.min(top + block_q, n);
    const end = causal ? bottom : n;
    for (let left = 0; left < end; left += block_k) {
      const right = Math.min(left + block_k, n);
      tiles.push({ top, bottom, left, right, last: right >= end });
    }
  }
  return tiles;
}

// The number, from 1, of the tile that has a pair; 0 where it is skipped.
/** @type {(tiles: Tile[], i: number, j: number) => number} */
function stepOf(tiles, i, j) {
  return 1 + tiles.findIndex(
    ({ top, bottom, left, right }) => i >= top && i < bottom && j >= left && j < right,
  );
}

// What a tile holds in the small memory, in the order of HELD.
/** @type {(tile: Tile, d: number) => number[]} */
function held({ top, bottom, left, right }, d) {
  const [n_q, n_k] = [bottom - top, right - left];
  return [n_q * d, n_k * d, n_k * d, n_q * n_k, 2 * n_q, n_q * d];
}

// The numbers that tiles read and write, and both.
/** @type {(tiles: Tile[], d: number) => number[]} */
function moved(tiles, d) {
  const read = tiles.map((tile) => {
    const [queries, keys, values] = held(tile, d);
    return keys + values + (tile.left === 0 ? queries : 0);
  });
  const written = tiles.map(({ top, bottom, last }) => (last ? (bottom - top) * (d + 1) : 0));
  return [sum(read), sum(written), sum([...read, ...written])];
}


// ---------------------------------------------------------------- the running softmax

// Of a query: the largest score m so far, the sum l of exp(s - m), and `mixed`, the sum of
// exp(s - m) v. `factor` is what the last tile multiplied the old sums by.
/** @typedef {{ m: number, l: number, mixed: number[], factor: number }} Running */
/** @type {(old: Running, scores: number[], values: Matrix) => Running} */
function meet(old, scores, values) {
  const m = Math.max(old.m, ...scores);
  const factor = Math.exp(old.m - m);
  const shares = scores.map((score) => Math.exp(score - m));
  const mixed = matmul([shares], values)[0];
  return {
    m,
    l: factor * old.l + sum(shares),
    mixed: mixed.map((x, c) => factor * old.mixed[c] + x),
    factor,
  };
}

// Where the queries stand before the last of these tiles, and after it.
/** @type {(tiles: Tile[], scores: Matrix, values: Matrix) => { before: Running[], after: Running[] }} */
function run(tiles, scores, values) {
  const mixed = values[0].map(() => 0);
  let after = scores.map(() => ({ m: -Infinity, l: 0, mixed, factor: 1 }));
  let before = after;
  for (const { top, bottom, left, right } of tiles) {
    before = after;
    after = before.map((old, i) => {
      if (i < top || i >= bottom) return old;
      return meet(old, scores[i].slice(left, right), values.slice(left, right));
    });
  }
  return { before, after };
}

/** @type {(known: Running) => number[]} */
const output = ({ l, mixed }) => mixed.map((x) => (l ? x / l : 0));

/** @type {(a: Matrix, b: Matrix) => number} */
const distance = (a, b) =>
  Math.max(0, ...a.flatMap((line, i) => line.map((x, c) => Math.abs(x - b[i][c]))));

// ---------------------------------------------------------------- words

/** @type {(x: number) => string} */
const exact = (x) => (Number.isFinite(x) ? short(x) : show(x));

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
/** @typedef {{ hidden: number, rises: number[], off: number }} News */
/** @type {(tiles: Tile[], at: number, news: News) => string} */
function sentence(tiles, at, { hidden, rises, off }) {
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
    const equal = off < CLOSE ? "equal to" : "not equal to";
    parts.push(`${all} outputs are written, ${equal} the two-pass softmax`);
  }
  return `Tile ${at} of ${tiles.length}: ${parts.join("; ")}.`;
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a tile");
  const given = model.get("given");
  const d = given.v[0].length;
  const told = spoken();
  told.node.classList.add("live-two-lines", "live-long");
  const [state, outputs, expected, counted] = [coloured(), coloured(), coloured(), coloured()];
  const [holds, off, ratio] = [element("p"), element("p"), element("p")];
  const legend = PAIRS.map(([sign, words, fill]) => {
    const item = element("li");
    item.style.background = fill;
    return { item, text: `${sign} ${words}: ` };
  });

  // Where the figure stands. Python may set a block or a step beyond the end.
  function read() {
    const n = view.get("n");
    const [block_q, block_k] = ["block_q", "block_k"].map((one) => Math.min(view.get(one), n));
    const causal = view.get("is_causal");
    const tiles = walk(n, block_q, block_k, causal);
    return { n, block_q, block_k, causal, tiles, at: Math.min(view.get("at"), tiles.length) };
  }

  // The page itself keeps them inside, after a slider and after a box.
  for (const event of ["input", "change"]) {
    view.body.addEventListener(event, () => {
      const { block_q, block_k, at } = read();
      for (const [trait, value] of Object.entries({ block_q, block_k, at })) {
        if (view.get(trait) !== value) view.set(trait, value);
      }
    });
  }

  const go = (by) => view.set("at", read().at + by);
  const start = button("Start", () => view.set("at", 0));
  const [back, next] = [button("Step back", () => go(-1)), button("Next tile", () => go(1))];
  const end = button("End", () => view.set("at", read().tiles.length));

  const { play, stop } = player({
    next,
    begin: () => view.set("at", 0),
    go: () => go(1),
    every: PAUSE,
  });

  // A grid of n by n, made anew where n changes. A pair leads to the step of its tile.
  const place = element("div");
  let cells = [];
  function gridOf(n) {
    if (cells.length === n) return cells;
    const grid = buttonGrid({
      label: "Queries (rows) and keys (columns)",
      rows: numbered(n),
      columns: numbered(n),
      press(i, j) {
        const step = stepOf(read().tiles, i, j);
        if (step) view.set("at", step);
      },
    });
    grid.node.classList.add("live-tiles");
    place.replaceChildren(grid.node);
    cells = grid.buttons;
    return cells;
  }

  function draw() {
    const { n, block_q, block_k, causal, tiles, at } = read();
    const [q, k, v] = ["q", "k", "v"].map((one) => given[one].slice(0, n));
    const scale = view.get("steepness") / Math.sqrt(q[0].length);
    const scores = matmul(q, transpose(k)).map((line, i) =>
      line.map((product, j) => (causal && j > i ? -Infinity : scale * product)),
    );
    const twoPass = matmul(scores.map(softmax), v);
    const { before, after } = run(tiles.slice(0, at), scores, v);
    const found = after.map(output);
    const tile = tiles[Math.max(at - 1, 0)];
    const { top, bottom, left, right } = tile;
    const written = at > 0 && tile.last;

    const pairs = scores.map((line, i) =>
      line.map((score, j) => {
        const step = stepOf(tiles, i, j);
        if (step === 0) return SKIPPED;
        if (step > at) return TO_COME;
        if (score === -Infinity) return HIDDEN;
        return step === at ? NOW : DONE;
      }),
    );
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
    const counts = PAIRS.map((_, kind) => pairs.flat().filter((one) => one === kind).length);
    legend.forEach(({ item, text }, kind) => write(item, text + counts[kind]));

    // As many rows as a block has, so that a smaller last one moves nothing.
    const places = Array.from({ length: block_q }, (_, r) => top + r);
    const queries = places.filter((i) => i < bottom);
    const ofQueries = (label, columns, text, fill) => ({
      label,
      rows: places.map((i) => (i < bottom ? `query ${i + 1}` : "–")),
      columns,
      text: (r, c) => (places[r] < bottom ? text(places[r], c) : ""),
      fill: (r, c) => (places[r] < bottom ? fill(places[r], c) : "none"),
    });
    const rises = queries.filter((i) => before[i].l && after[i].m > before[i].m);
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
    const done = written ? bottom : top;
    const largest = distance(found.slice(0, done), twoPass);
    const most = largest ? largest.toExponential(1).replace("-", "−") : "0";
    const farthest = done ? `, at most ${most} off the two-pass softmax` : "";
    write(off, `${done} of ${n} outputs are written${farthest}.`);

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

    const inTile = queries.flatMap((i) => scores[i].slice(left, right));
    const hidden = inTile.filter((score) => score === -Infinity).length;
    const skipped = counts[SKIPPED] ? `, and ${counts[SKIPPED]} pairs are skipped` : "";
    told.say(
      at
        ? sentence(tiles, at, { hidden, rises, off: largest })
        : `Nothing has been read: ${tiles.length} tiles are to come${skipped}.`,
    );
    const more = at < tiles.length;
    for (const one of [start, back]) able(one, at > 0);
    for (const one of [next, end]) able(one, more);
    if (!more) stop();
    view.values({
      "pairs (1 now, 2 done, 3 hidden, 4 skipped)": pairs,
      scores,
      "m and l": after.map(({ m, l }) => [m, l]),
      "running output": found,
      "output of the two-pass softmax": twoPass,
      "numbers moved": [0, 1].map((i) => [soFar[i], inAll[i], plain[i]]),
      "numbers in the small memory": [sum(parts), mostHeld],
    });
  }

  // Who wants less motion gets steps alone.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const steps = [start, back, next, end, ...(still ? [] : [play])];
  const rule = "factor = exp(m was − m), and l = factor · l was + the sum of exp(s − m).";
  const beside = (...nodes) => element("div", { class: "live-beside" }, ...nodes);
  off.classList.add("live-narrow");
  view.add(
    row(
      slider(view, "n", { label: "Length n" }),
      slider(view, "block_q", { label: "Queries a tile" }),
      slider(view, "block_k", { label: "Keys a tile" }),
      choice(view, "steepness", { label: "Scores times" }),
      toggle(view, "is_causal", { label: "Causal" }),
    ),
    row(counter(view, "at", { label: "Tiles taken" }), ...steps),
    told.node,
    row(place, beside(state.node, element("p", {}, rule))),
    element("ul", { class: "live-strip" }, ...legend.map(({ item }) => item)),
    row(element("div", {}, outputs.node), element("div", {}, expected.node), off),
    fold("Numbers held and moved", roomy(), holds, row(counted.node, beside(ratio))),
  );
  view.follow(["n", "block_q", "block_k", "is_causal", "steepness", "at"], draw);
  return () => {
    stop();
    view.close();
  };
}

export default { render };
