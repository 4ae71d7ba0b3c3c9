import { able, button, slider, sliders } from "./controls.js";
import { bars } from "./drawings.js";
import { element, row, spoken } from "./elements.js";
import { coloured } from "./tables.js";
import { percent, show, whole } from "./text.js";
import { View } from "./view.js";

const BYTES = 4;
const SIZES = ["n", "d_model", "h", "d_k"];
const NAMED = [16, 128, 1024, 8192, 65536];

/** @typedef {{ d_model: number, h: number, d_k: number }} Sizes */
/** @type {(n: number, sizes: Sizes) => { terms: number[], share: number }} */
function count(n, { d_model, h, d_k }) {
  const projections = 8 * n * d_model * h * d_k;
  const product = 2 * n * n * h * d_k;
  return { terms: [projections, product, product], share: product / (product + projections / 2) };
}

/** @type {[number, string][]} */
const UNITS = [[1e15, "quadrillion"], [1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];
/** @type {[number, string][]} */
const MEMORY = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

// A large number as one reads it: 343.60 billion, 16.78 MB.
/** @type {(x: number, units: [number, string][]) => string} */
function readable(x, units) {
  const [size, unit] = units.find(([least]) => x >= least) ?? [1, units === MEMORY ? "bytes" : ""];
  return `${size === 1 ? whole(x) : show(x / size, 2)} ${unit}`.trim();
}

// Models whose sizes a button sets; where the sizes are a model's, its button is pressed.
function offer(view) {
  const byWidth = Object.entries(view.get("models")).sort(([, a], [, b]) => a[1] - b[1]);
  const buttons = byWidth.map(([name, sizes]) =>
    button(name, () => SIZES.forEach((trait, i) => view.set(trait, sizes[i]))),
  );
  const node = row(...buttons);
  node.classList.add("live-models");
  function draw() {
    byWidth.forEach(([, sizes], i) => {
      const isHere = SIZES.every((trait, k) => view.get(trait) === sizes[k]);
      buttons[i].setAttribute("aria-pressed", String(isHere));
    });
  }
  return { node, draw };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "move a size");
  const [lengths, widths, heads] = ["n", "d_k", "h"].map((trait) => view.options(trait));
  const table = coloured();
  const shares = bars({ colour: "orange", touching: true });
  shares.node.classList.add("live-shares");
  const mark = (text, at) => element("span", { "aria-hidden": "true", style: `--at: ${at}` }, text);
  const area = (text, where) => element("span", { "aria-hidden": "true", class: where }, text);
  shares.node.append(mark("0", 0), mark("50%", 0.5), mark("100%", 1), area("four projections", "live-above"), area("two products", "live-under"));
  const told = spoken([2, 3]);
  const models = offer(view);

  function resize(factor) {
    view.set("h", view.get("h") * factor);
    view.set("d_k", view.get("d_k") / factor);
  }
  const cut = button("Cut each head in two", () => resize(2));
  const join = button("Join heads in pairs", () => resize(1 / 2));

  function draw() {
    const [d_model, h, d_k] = ["d_model", "h", "d_k"].map((trait) => view.get(trait));
    const sizes = { d_model, h, d_k };
    const n = view.get("n");
    const { terms, share } = count(n, sizes);
    const scores = h * n * n;
    const parameters = 4 * d_model * h * d_k;
    const lines = [
      ["Parameters", readable(parameters, UNITS)],
      ["FLOPs of the four projections", readable(terms[0], UNITS)],
      ["FLOPs of QKᵀ", readable(terms[1], UNITS)],
      ["FLOPs of AV", readable(terms[2], UNITS)],
      ["Scores, through the softmax", readable(scores, UNITS)],
      ["Memory of the attention weights", readable(BYTES * scores, MEMORY)],
    ];
    table.draw({
      label: "One layer, one sequence",
      rows: lines.map(([what]) => what),
      columns: ["amount"],
      text: (i) => lines[i][1],
    });
    const byLength = lengths.map((length) => count(length, sizes).share);
    const here = lengths.indexOf(n);
    shares.draw(byLength, {
      title: "Share of the FLOPs, by length n",
      most: 1,
      names: lengths.map((length) => (NAMED.includes(length) ? whole(length) : "")),
      texts: byLength.map((one, i) => (i === here ? percent(one) : "")),
      told: `The share rises with the length: ${percent(share)} at ${whole(n)}, half at ${whole(2 * d_model)}.`,
    });
    shares.node.querySelectorAll(".live-bars > div").forEach((bar, i) => bar.classList.toggle("live-here", i === here));
    models.draw();
    able(cut, heads.includes(2 * h) && widths.includes(d_k / 2));
    able(join, heads.includes(h / 2) && widths.includes(2 * d_k));
    const total = h * d_k;
    const relation = total === d_model ? "the width of the model" : `not d_model, ${whole(d_model)}`;
    told.say(
      `The heads together are ${h} · ${whole(d_k)} = ${whole(total)} wide, ${relation}. The two products are ` +
        `${percent(share)} of the FLOPs; they equal the projections at ` +
        `n = ${whole(2 * d_model)}.`,
    );
    view.values({
      parameters,
      "width of all heads": total,
      "FLOPs, in billions": terms.map((flops) => flops / 1e9),
      "scores, in millions": scores / 1e6,
      "memory of the attention weights, in MB": (BYTES * scores) / 1e6,
      "share of the products, by length": byLength,
    });
  }

  view.add(
    models.node,
    sliders(
      slider(view, "n", { label: "Length n" }),
      slider(view, "d_model", { label: "Width d_model" }),
      slider(view, "h", { label: "Heads h" }),
      slider(view, "d_k", { label: "Width of a head d_k" }),
    ),
    row(cut, join),
    told.node,
    row(table.node, shares.node),
  );
  view.follow(SIZES, draw);
  return view.close;
}

export default { render };
