import { able, button, choice, toggle } from "./controls.js";
import { shade } from "./drawings.js";
import { editable } from "./editable.js";
import { element, row, spoken } from "./elements.js";
import { matmul, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { short, show, terms } from "./text.js";
import { View } from "./view.js";

/** @type {Colour[]} */
const COLOURS = ["blue", "orange"];
const NUMBERS = ["1", "2", "3", "4"];
const HEADS = ["head 1", "head 2"];
const IDENTITY = NUMBERS.map((_, i) => NUMBERS.map((_, j) => Number(i === j)));

const of = (head) => shade(0.5, COLOURS[head]);
/** @type {(a: number[], b: number[]) => number[]} */
const add = (a, b) => a.map((x, i) => x + b[i]);

// `word` and what the heads write, each times U, are what they add to the logits.
function project(heads, W_O, on, shared, { word, U }) {
  const given = HEADS.map((_, i) => heads[shared ? 0 : i].map((x) => x * on[i]));
  const slabs = HEADS.map((_, i) =>
    W_O.slice(2 * i, 2 * i + 2).map((line) => line.map((x) => x * on[i])),
  );
  const sideBySide = given.flat();
  const written = given.map((head, i) => matmul([head], slabs[i])[0]);
  const reach = (j) => slabs.filter((slab) => slab.some((line) => line[j] !== 0)).length;
  const after = add(word, add(written[0], written[1]));
  const summed = slabs[0].map((line, i) => add(line, slabs[1][i]));
  return {
    "side by side": sideBySide,
    "side by side, times W_O": matmul([sideBySide], W_O)[0],
    written,
    "sum of what is written": add(written[0], written[1]),
    "heads that reach a number": NUMBERS.map((_, j) => reach(j)),
    "sum of the slabs": summed,
    "one head through the sum of the slabs": matmul([shared ? heads[0] : given[0]], summed)[0],
    votes: matmul([word, ...written, after], U),
  };
}

// One number of the output: its products in a row, and head by head.
function arithmetic(j, sideBySide, W_O, found) {
  const column = transpose(W_O)[j];
  const part = (i) => terms(sideBySide.slice(2 * i, 2 * i + 2), column.slice(2 * i, 2 * i + 2), short);
  const [a, b] = found.written.map((line) => show(line[j], 2));
  const total = show(found["side by side, times W_O"][j], 2);
  return (
    `Number ${j + 1} of the output, in a row: ${part(0)} + ${part(1)} = ${total}. ` +
    `Head by head: (${part(0)}) + (${part(1)}), which is ${a} from head 1 and ${b} from head 2.`
  );
}

/** @type {(matrix: ReturnType<Editable>, fill: (i: number) => string) => void} */
function paint(matrix, fill) {
  matrix.cells.forEach((inputs, i) =>
    inputs.forEach((input) => {
      input.style.background = fill(i);
    }),
  );
}

// What would change nothing cannot be typed in, and looks so.
/** @type {(matrix: ReturnType<Editable>, acts: (i: number) => boolean) => void} */
function enable(matrix, acts) {
  matrix.cells.forEach((inputs, i) =>
    inputs.forEach((input) => {
      input.disabled = !acts(i);
      input.style.opacity = input.disabled ? "0.35" : "";
    }),
  );
}

// Do two rows say the same, but for the last bits of their sums?
/** @type {(a: number[], b: number[]) => boolean} */
function same(a, b) {
  const size = Math.max(1, ...a.map(Math.abs), ...b.map(Math.abs));
  return a.every((x, i) => Math.abs(x - b[i]) < 1e-9 * size);
}

// The numbers side by side, each head's part of the output, and what one head would give. `colour`
// says which colour a head has.
function outputTables(answers) {
  const tables = [coloured(), coloured(), coloured(), coloured(), coloured(), coloured()];
  const [sideBySide, product, written, summed, one, votes] = tables;
  const line = (table, label, values, fill) =>
    table.draw({
      label,
      rows: [""],
      columns: NUMBERS,
      text: (_, at) => show(values[at], 2),
      fill,
    });
  function draw(found, colour) {
    line(sideBySide, "Side by side", found["side by side"], (_, at) => colour(Math.floor(at / 2)));
    line(product, "times W_O", found["side by side, times W_O"]);
    const lines = [...found.written, found["sum of what is written"]];
    written.draw({
      label: "Each through its slab",
      rows: [...HEADS, "sum"],
      columns: NUMBERS,
      text: (i, at) => show(lines[i][at], 2),
      fill: (i) => (i < 2 ? colour(i) : "none"),
    });
    summed.draw({
      label: "Sum of the slabs",
      rows: ["1", "2"],
      columns: NUMBERS,
      text: (i, at) => show(found["sum of the slabs"][i][at], 2),
    });
    votes.draw({
      label: "Added to the logits",
      rows: ["the word itself", ...HEADS, "sum"],
      columns: answers,
      text: (i, at) => show(found.votes[i][at], 1),
      fill: (i) => (i === 1 || i === 2 ? colour(i - 1) : "none"),
    });
    line(one, "Head 1 through this sum", found["one head through the sum of the slabs"]);
  }
  return {
    inARow: element("div", {}, sideBySide.node, product.node),
    written: written.node,
    ofOne: element("div", { class: "live-roomy" }, summed.node, one.node),
    votes: votes.node,
    draw,
  };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el });
  const heads = editable(view, "heads", { label: "Heads’ outputs", axes: ["head", "entry"] });
  const W_O = editable(view, "W_O", { label: "W_O", axes: ["row", "number"] });
  const given = view.get("given");
  const tables = outputTables(given.answers);
  const [told, compared] = [spoken([3, 4, 5]), spoken([2, 3, 4])];
  const start = view.get("W_O");
  const sharing = toggle(view, "shared", {
    label: "Shared projections: head 2 gives what head 1 gives",
  });
  const identity = button("W_O as identity", () => view.set("W_O", IDENTITY));
  const back = button("W_O as at first", () => view.set("W_O", start));

  function draw() {
    const shared = view.get("shared");
    const on = [view.get("head_1"), view.get("head_2")].map(Number);
    const found = project(view.get("heads"), view.get("W_O"), on, shared, given);
    const j = view.get("number") - 1;
    // A head that is switched off has no colour, and neither have its rows.
    const colour = (head) => (on[head] ? of(head) : "none");
    tables.draw(found, colour);
    tables.ofOne.classList.toggle("live-away", !shared);
    paint(heads, colour);
    paint(W_O, (at) => colour(Math.floor(at / 2)));
    const acting = [on[0] || (shared && on[1]), on[1] && !shared];
    enable(heads, (head) => Boolean(acting[head]));
    enable(W_O, (line) => Boolean(on[Math.floor(line / 2)]));
    sharing.querySelectorAll("input").forEach((input) => {
      input.disabled = !on[1];
    });
    sharing.style.opacity = on[1] ? "" : "0.5";
    able(identity, String(view.get("W_O")) !== String(IDENTITY));
    able(back, String(view.get("W_O")) !== String(start));
    const sum = found.votes[3];
    const answer = given.answers[sum.indexOf(Math.max(...sum))];
    told.say(arithmetic(j, found["side by side"], view.get("W_O"), found));
    const alone = found["one head through the sum of the slabs"];
    const output = found["side by side, times W_O"];
    const reached = found["heads that reach a number"];
    const asOne =
      " One head of width 2, through the sum of the slabs, " +
      `${same(alone, output) ? "gives" : "does not give"} the same.`;
    compared.say(
      `The largest logit is that of ${answer}. Heads that reach each number of the output: ` +
        `${reached.join(", ")}.${shared ? asOne : ""}`,
    );
    view.values(found);
  }

  view.add(
    row(
      toggle(view, "head_1", { label: "Head 1" }),
      toggle(view, "head_2", { label: "Head 2" }),
      sharing,
    ),
    row(heads.node, W_O.node),
    row(tables.inARow, tables.written),
    row(tables.votes, tables.ofOne),
    row(
      identity,
      back,
      choice(view, "number", { label: "Written out: number" }),
    ),
    told.node,
    compared.node,
  );
  view.follow(["heads", "W_O", "number", "head_1", "head_2", "shared"], draw);
  return view.close;
}

export default { render };
