import { able, button, choice, counter, slider, toggle } from "./controls.js";
import { bars } from "./drawings.js";
import { row, spoken } from "./elements.js";
import { normals, softmax } from "./mathematics.js";
import { plural, show } from "./text.js";
import { View } from "./view.js";

const BINS = 20;
const NEARLY_ONE = 0.99;

// The numbers of one draw that every setting shares: one a key, and the query's length by width.
/** @typedef {{ keys: number[], lengths: Map<number, number> }} Draw */
/** @type {(seed: number, place: number, widths: number[], keys: number[]) => Draw} */
function drawOnce(seed, place, widths, keys) {
  const [width, most] = [widths, keys].map((sizes) => Math.max(...sizes));
  const numbers = normals(seed, place * (most + width), most + width);
  const lengths = new Map();
  let squares = 0;
  for (let c = 1; c <= width; c += 1) {
    squares += numbers[most + c - 1] ** 2;
    if (widths.includes(c)) lengths.set(c, Math.sqrt(squares));
  }
  return { keys: [...numbers.slice(0, most)], lengths };
}

// The largest of the weights alone, without a list of them: there may be a thousand draws.
/** @type {(keys: number[], n_k: number, factor: number) => number} */
function largestWeight(keys, n_k, factor) {
  let most = -Infinity;
  for (let i = 0; i < n_k; i += 1) most = Math.max(most, keys[i]);
  let total = 0;
  for (let i = 0; i < n_k; i += 1) total += Math.exp(factor * (keys[i] - most));
  return 1 / total;
}

// The norm of diag(p) - p p^T, entry by entry: a closed form would cancel where p is nearly one.
/** @type {(p: number[]) => number} */
function jacobianNorm(p) {
  let squares = 0;
  p.forEach((a, i) =>
    p.forEach((b, j) => {
      squares += ((i === j ? a : 0) - a * b) ** 2;
    }),
  );
  return Math.sqrt(squares);
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "draw again");
  const weightsChart = bars({ colour: "blue" });
  const histogram = bars({ colour: "orange", touching: true });
  const told = spoken([2, 3]);
  const [widths, allKeys] = [view.options("d_k"), view.options("n_k")];
  const [, mostDraws] = view.options("draws");
  const more = [1, 100].map((count) =>
    button(count === 1 ? "Draw again" : `Draw ${count} more`, () =>
      view.set("draws", Math.min(view.get("draws") + count, mostDraws)),
    ),
  );
  const restart = button("Start again", () => view.set("draws", 1));
  let made = [];
  let madeFrom = null;

  function draw() {
    const [d_k, n_k, draws, seed] = ["d_k", "n_k", "draws", "seed"].map((t) => view.get(t));
    const divisor = view.get("divided") ? Math.sqrt(d_k) : 1;
    if (seed !== madeFrom) [made, madeFrom] = [[], seed];
    while (made.length < draws) made.push(drawOnce(seed, made.length, widths, allKeys));
    const counts = new Array(BINS).fill(0);
    let above = 0;
    for (const { keys, lengths } of made.slice(0, draws)) {
      const x = largestWeight(keys, n_k, lengths.get(d_k) / divisor);
      counts[Math.min(Math.floor(x * BINS), BINS - 1)] += 1;
      if (x > NEARLY_ONE) above += 1;
    }
    const { keys, lengths } = made[draws - 1];
    const factor = lengths.get(d_k) / divisor;
    const latest = softmax(keys.slice(0, n_k).map((x) => factor * x));
    const largest = Math.max(...latest);
    const norm = jacobianNorm(latest);
    const most = Math.max(...counts);

    weightsChart.draw(latest, {
      title: "Weights of the latest draw",
      most: 1,
      names: latest.map((_, i) => String(i + 1)),
      texts: n_k <= 10 ? latest.map((x) => show(x, 2)) : [],
      told: `Weights of ${n_k} keys, the largest ${show(largest)}.`,
    });
    histogram.draw(counts, {
      title: `Largest weight in ${plural(draws, "draw")} (tallest bar: ${most})`,
      most,
      names: counts.map((_, i) => ({ 0: "0", 10: "0.5", 19: "1" })[i] ?? ""),
      told: `Histogram of the largest weight; the tallest of ${BINS} bars counts ${most}.`,
    });
    for (const one of more) able(one, draws < mostDraws);
    told.say(
      `Latest draw: largest weight ${show(largest)}, norm of the Jacobian ` +
        `${show(norm)} (0.5 at most). Largest weight above ${NEARLY_ONE} in ${above} of ${plural(draws, "draw")}.`,
    );
    view.values({
      weights: latest,
      "largest weight": largest,
      "norm of the Jacobian": norm,
      [`draws above ${NEARLY_ONE}`]: above,
      "draws by largest weight": counts,
    });
  }

  view.add(
    row(
      slider(view, "d_k", { label: "Width d_k" }),
      choice(view, "n_k", { label: "Keys" }),
      toggle(view, "divided", { label: "Divide by √d_k" }),
    ),
    row(...more, restart, counter(view, "draws", { label: "Draws so far" })),
    row(weightsChart.node, histogram.node),
    told.node,
  );
  view.follow(["d_k", "n_k", "divided", "draws", "seed"], draw);
  return view.close;
}

export default { render };
