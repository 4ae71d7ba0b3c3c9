import { button, choice } from "./controls.js";
import { shade } from "./drawings.js";
import { element, report, row, spoken, write } from "./elements.js";
import { softmax, sum } from "./mathematics.js";
import { buttonGrid, coloured } from "./tables.js";
import { name, numbered, show } from "./text.js";
import { View } from "./view.js";

// What becomes of a hidden score. What is not here leaves it alone.
/** @type {Record<string, (score: number) => number>} */
const HIDE = {
  "fill with -inf": () => -Infinity,
  "fill with -1e9": () => -1e9,
  "add -inf": (score) => score - Infinity,
  "add -10000": (score) => score - 10000,
  "as labkit": () => -Infinity,
};

/** @type {(may: boolean[][], method: string) => { masked: Matrix, weights: Matrix }} */
function attend(may, method) {
  const masked = may.map((line) =>
    line.map((open, j) => {
      const score = Math.log(2 ** j);
      return open || !(method in HIDE) ? score : HIDE[method](score);
    }),
  );
  const weights = masked.map((line, i) => {
    if (method === "as labkit" && !may[i].includes(true)) return line.map(() => 0);
    const left = method === "zero the weights" ? may[i] : line.map(() => true);
    return softmax(line).map((weight, j) => (left[j] ? weight : 0));
  });
  return { masked, weights };
}

// A score, however low, in the room of a cell.
/** @type {(score: number) => string} */
const long = (score) => (score < -1e6 && Number.isFinite(score) ? "−1e9" : show(score, score < -1000 ? 0 : 2));

// Flags that a key paints, or a stroke of mouse, finger or pen.
/** @type {(view: View, trait: string, given: { label: string, axes: Axis[] }) => HTMLElement} */
function paintable(view, trait, { label, axes }) {
  /** @type {boolean | null} */
  let stroke = null; // what is painted until the pointer is lifted
  let painted = false; // by the pointer, before its click

  function paint(i, j, flag) {
    const next = view.get(trait).map((line) => [...line]);
    next[i][j] = flag;
    view.set(trait, next);
  }

  const rows = numbered(view.get(trait).length);
  const { node, buttons } = buttonGrid({
    label,
    rows,
    columns: numbered(view.get(trait)[0].length),
    axes,
    press(i, j, { detail }) {
      // A pointer has painted as it went down; keys count no clicks.
      if (painted && detail !== 0) return;
      paint(i, j, !view.get(trait)[i][j]);
      report(node, `${buttons[i][j].ariaLabel}.`);
    },
  });
  buttons.forEach((line, i) =>
    line.forEach((cell, j) => {
      cell.append("", element("span")); // a phone shows T and F
      cell.dataset.trait = trait;
      cell.dataset.place = JSON.stringify([i, j]);
      cell.addEventListener("pointerdown", ({ pointerId, isPrimary, button: which }) => {
        if (!isPrimary || which !== 0) return;
        // A finger would be heard by its first cell alone.
        if (cell.hasPointerCapture(pointerId)) cell.releasePointerCapture(pointerId);
        painted = true;
        stroke = !view.get(trait)[i][j];
        paint(i, j, stroke);
      });
      cell.addEventListener("pointerenter", ({ isPrimary }) => {
        if (stroke !== null && isPrimary) paint(i, j, stroke);
      });
    }),
  );
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
    node.addEventListener(end, () => {
      stroke = null;
    });
  }
  node.addEventListener("click", () => {
    painted = false;
  });
  view.follow([trait], () => {
    view.get(trait).forEach((line, i) =>
      line.forEach((flag, j) => {
        const cell = buttons[i][j];
        cell.value = flag;
        cell.removeAttribute("aria-pressed"); // what is told is True or False: either may hide
        const text = flag ? "True" : "False";
        cell.setAttribute("aria-label", `${name(axes[0], i)}, ${name(axes[1], j)}: ${text}`);
        write(cell, text[0]);
        write(cell.children[0], text.slice(1));
      }),
    );
  });
  node.classList.add("live-flags");
  return node;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "paint a cell");
  const mask = paintable(view, "mask", { label: "Mask", axes: ["query", "key"] });
  const [scoresTable, weightsTable] = [coloured(), coloured()];
  const told = spoken([2, 4]);
  const positions = numbered(model.get("mask").length);
  const repaint = (flag) => () =>
    view.set("mask", view.get("mask").map((line, i) => line.map((old, j) => flag(i, j, old))));

  function draw() {
    const attends = view.get("true_means") === "may attend";
    const may = view.get("mask").map((line) => line.map((flag) => flag === attends));
    const { masked, weights } = attend(may, view.get("method"));
    const sums = weights.map(sum);
    const counted = weights.map((line) => line.map((weight) => weight || 0)); // without NaN
    const ahead = counted.flatMap((line, i) => line.slice(i + 1));
    const share = sum(ahead) / sum(counted.flat()); // NaN where no weight is left
    scoresTable.draw({
      label: "Scores after the mask",
      rows: positions,
      columns: positions,
      axes: ["query", "key"],
      text: (i, j) => long(masked[i][j]),
      fill: (i, j) => (may[i][j] ? "none" : "var(--live-faint)"),
    });
    weightsTable.draw({
      label: "Weights and their sums",
      rows: positions,
      columns: [...positions, "sum"],
      axes: ["query", [...positions.map((_, j) => name("key", j)), "sum"]],
      text: (i, j) => show(j < weights.length ? weights[i][j] : sums[i], 2),
      fill(i, j) {
        if (j < weights.length) return shade(weights[i][j] || 0, j > i ? "orange" : "blue");
        return "none";
      },
    });
    const open = may.flat().filter(Boolean).length;
    const empty = may.flatMap((line, i) => (line.includes(true) ? [] : [i]));
    const which = empty.map((i) => i + 1).join(", ");
    const blind = empty.length
      ? ` ${empty.length > 1 ? `Queries ${which} have` : `Query ${which} has`} no key left, ` +
        `and ${empty.length > 1 ? "their" : "its"} weights sum to ${show(sums[empty[0]], 2)}.`
      : "";
    const future = Number.isNaN(share)
      ? "no weight is left"
      : `${show(share, 2)} of all weight lies on the future`;
    told.say(`${open} of ${may.flat().length} pairs may attend; ${future}.${blind}`);
    view.values({
      "scores after the mask": masked,
      weights,
      "sums of the rows": sums,
      "share on the future": share,
    });
  }

  const tables = row(mask, scoresTable.node, weightsTable.node);
  tables.classList.add("mask-tables");
  view.add(
    row(
      button("All True", repaint(() => true)),
      button("Lower triangle", repaint((i, j) => j <= i)),
      button("Swap True and False", repaint((_i, _j, old) => !old)),
    ),
    row(
      choice(view, "true_means", { label: "True means" }),
      choice(view, "method", { label: "To hide a score" }),
    ),
    told.node,
    tables,
  );
  view.follow(["mask", "true_means", "method"], draw);
  return view.close;
}

export default { render };
