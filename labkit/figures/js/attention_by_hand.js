import { able, button, toggle } from "./controls.js";
import { editable } from "./editable.js";
import { report, row, spoken } from "./elements.js";
import { matmul, softmax, sum, transpose } from "./mathematics.js";
import { computed } from "./tables.js";
import { name, short, show, terms } from "./text.js";
import { View } from "./view.js";

const LABELS = {
  scores: "Scores QKᵀ",
  "scaled scores": "Scaled: ÷ √2",
  exponentials: "Exponentials",
  weights: "Weights",
  outputs: "Outputs",
};

/** @type {(Q: Matrix, K: Matrix, V: Matrix) => Record<string, Matrix>} */
function attend(Q, K, V) {
  const scores = matmul(Q, transpose(K));
  const scaled = scores.map((line) => line.map((x) => x / Math.sqrt(2)));
  const exponentials = scaled.map((line) => line.map(Math.exp));
  const weights = scaled.map(softmax);
  const outputs = matmul(weights, V);
  return { scores, "scaled scores": scaled, exponentials, weights, outputs };
}

// What is shown of a number is it, or is near it: a sum of rounded terms need not give its total.
/** @type {(...numbers: number[]) => string} */
function sign(...numbers) {
  const exact = (x) => Math.abs(Number(show(x).replace("−", "-")) - x) <= 1e-12 * Math.abs(x);
  return numbers.every(exact) ? "=" : "≈";
}

// One computed number, from the numbers it is made of.
function arithmetic(quantity, i, j, { Q, K, V }, found) {
  const x = found[quantity][i][j];
  const result = show(x);
  const score = found.scores[i][j];
  const scaled = found["scaled scores"][i][j];
  switch (quantity) {
    case "scores":
      return `${terms(Q[i], K[j], short)} ${sign(x)} ${result}`;
    case "scaled scores": {
      const root = `${show(score)} ÷ √2 ≈ ${show(score)} ÷ ${show(Math.SQRT2)}`;
      return `${root} ${sign(score, x)} ${result}`;
    }
    case "exponentials":
      return `e to the power ${show(scaled)} ${sign(scaled, x)} ${result}`;
    case "weights": {
      const line = found.exponentials[i];
      const total = sum(line);
      if (!Number.isFinite(total) || total === 0) {
        return (
          `${result}. The exponentials of this row leave the range of the numbers, so its largest ` +
          "score is subtracted first, which changes no weight"
        );
      }
      const added = line.map((y) => show(y)).join(" + ");
      const share = `${show(line[j])} ÷ (${added}) ${sign(...line)} ${show(line[j])} ÷ ${show(total)}`;
      return `${share} ${sign(...line, x)} ${result}`;
    }
    default: {
      const weights = found.weights[i];
      const mix = terms(weights, transpose(V)[j], (y) => show(y));
      return `${mix} ${sign(...weights, x)} ${result}`;
    }
  }
}

// The cells that a computed number is made of: [matrix, row, column], -1 for all of them.
/** @type {Record<string, (i: number, j: number) => [string, number, number][]>} */
const SOURCES = {
  scores: (i, j) => [["Q", i, -1], ["K", j, -1]],
  "scaled scores": (i, j) => [["scores", i, j]],
  exponentials: (i, j) => [["scaled scores", i, j]],
  weights: (i) => [["exponentials", i, -1]],
  outputs: (i, j) => [["weights", i, -1], ["V", -1, j]],
};

// What typed numbers have changed: the rows of the weights, or else those of the outputs.
/** @type {(before: Record<string, Matrix>, now: Record<string, Matrix>) => string} */
function changes(before, now) {
  for (const quantity of ["weights", "outputs"]) {
    const told = (found, i) => found[quantity][i].map((x) => show(x)).join(", ");
    const rows = now[quantity].flatMap((_, i) =>
      told(before, i) === told(now, i) ? [] : [`query ${i + 1} are now ${told(now, i)}`],
    );
    if (rows.length) return `The ${quantity} of ${rows.join("; those of ")}.`;
  }
  return "No weight and no output has changed.";
}

// Tells them, when other numbers come than the last ones.
function teller(node) {
  let [before, typed] = [/** @type {any} */ (null), ""];
  return (input, found) => {
    const now = JSON.stringify(input);
    if (before && typed !== now) report(node, changes(before, found));
    [before, typed] = [found, now];
  };
}

// Does a number round to what is printed? The hair keeps a value on the edge on both sides of it.
function agrees(printed, x, places) {
  return Math.abs(printed - x) <= 0.5 * 10 ** -places * (1 + 1e-6);
}

/** @type {(claim: { rows: Matrix, places: number }, values: Matrix) => Note[][]} */
function compare({ rows, places }, values) {
  return rows.map((line, i) =>
    line.map((printed, j) => {
      const differs = !agrees(printed, values[i][j], places);
      const told = `printed ${show(printed, places)}, which ${differs ? "differs" : "agrees"}`;
      return { differs, told, text: `${differs ? "≠" : "="} ${show(printed, places)}` };
    }),
  );
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el });
  const matrices = {};
  for (const trait of ["Q", "K", "V"]) {
    const role = { Q: "query", K: "key", V: "value" }[trait];
    const label = { Q: "Queries Q", K: "Keys K", V: "Values V" }[trait];
    matrices[trait] = editable(view, trait, { label, axes: [role, "entry"] });
  }
  for (const [quantity, label] of Object.entries(LABELS)) {
    matrices[quantity] = computed({
      label,
      quantity,
      size: [3, quantity === "outputs" ? 2 : 3],
      axes: model.get("axes")[quantity],
      choose: (i, j) => view.set("chosen", `${quantity} ${i + 1} ${j + 1}`),
    });
  }
  const [told, compared] = [spoken([2, 4]), spoken([1, 2])];
  const news = teller(told.node);
  const { given, claims, document: source } = model.get("printed");
  const back = button("Back to the example", () => {
    for (const trait of ["Q", "K", "V"]) view.set(trait, given[trait]);
  });

  const same = (trait) => JSON.stringify(view.get(trait)) === JSON.stringify(given[trait]);

  // What a document prints belongs to its own numbers, and is laid over no others.
  function overlay(found) {
    const own = ["Q", "K", "V"].every(same);
    able(back, !own);
    if (!view.get("show_printed")) return { notes: {}, text: "" };
    if (!own) {
      const text = `What ${source} prints belongs to its own Q, K and V.`;
      return { notes: {}, text: `${text} Go back to the example to compare.` };
    }
    const notes = {};
    for (const [quantity, claim] of Object.entries(claims)) {
      notes[quantity] = compare(claim, found[quantity]);
    }
    const all = Object.values(notes).flat(2);
    const wrong = all.filter((note) => note.differs).length;
    const text = `${wrong} of the ${all.length} numbers that ${source} prints differ`;
    return { notes, text: `${text} from what comes out.` };
  }

  function draw() {
    const input = { Q: view.get("Q"), K: view.get("K"), V: view.get("V") };
    const found = attend(input.Q, input.K, input.V);
    const { notes, text } = claims ? overlay(found) : { notes: {}, text: "" };
    for (const quantity of Object.keys(LABELS)) {
      matrices[quantity].draw(found[quantity], notes[quantity]);
    }
    const [, quantity, ...counted] = view.get("chosen").match(/^(.*) (\d) (\d)$/);
    const [i, j] = counted.map((digit) => digit - 1);
    mark(quantity, i, j);
    const chosen = matrices[quantity].cells[i][j];
    const note = notes[quantity]?.[i]?.[j];
    const [down, across] = view.get("axes")[quantity];
    const place = `${quantity}, ${name(down, i)}, ${name(across, j)}`;
    chosen.setAttribute("aria-pressed", "true");
    const printed = note ? `; ${note.told}` : "";
    told.say(`Chosen: ${place}: ${arithmetic(quantity, i, j, input, found)}${printed}.`);
    compared.say(text);
    news(input, found);
    view.values(found);
  }

  function mark(quantity, i, j) {
    const sources = SOURCES[quantity](i, j);
    for (const [matrix, { cells }] of Object.entries(matrices)) {
      cells.forEach((line, a) =>
        line.forEach((cell, b) => {
          const used = sources.some(
            ([from, r, c]) => from === matrix && (r < 0 || r === a) && (c < 0 || c === b),
          );
          cell.classList.toggle("live-source", used);
          if (matrix in LABELS) cell.setAttribute("aria-pressed", "false");
        }),
      );
    }
  }

  const nodes = Object.values(matrices).map(({ node }) => node);
  view.add(row(...nodes.slice(0, 3)), row(...nodes.slice(3)));
  view.add(told.node);
  if (claims) {
    const overlaid = toggle(view, "show_printed", { label: `Lay over what ${source} prints` });
    view.add(row(overlaid, back), compared.node);
  }
  view.follow(["Q", "K", "V", "chosen", "show_printed"], draw);
  return view.close;
}

export default { render };
