// A matrix whose entries can be typed.

import { complaint } from "./controls.js";
import { element } from "./elements.js";
import { grid } from "./tables.js";
import { LARGEST, name, numbered, parse, short, whole } from "./text.js";

// A matrix whose entries can be typed. What is no number is refused beside it; the old one stays.
/** @type {Editable} */
export function editable(view, trait, { label, axes }) {
  const error = complaint();
  const start = view.get(trait);
  /** @type {HTMLInputElement[][]} */
  const inputs = start.map(() => []);

  function accept(input) {
    if (input.hasAttribute("aria-invalid")) error.tell(input, "");
  }

  function read(i, j, leaving) {
    const input = inputs[i][j];
    const x = parse(input.value);
    if (x !== null) {
      accept(input);
      const next = view.get(trait).map((row) => [...row]);
      next[i][j] = x;
      view.set(trait, next);
      if (leaving) input.value = short(x);
    } else if (leaving) {
      const typed = input.value.trim() === "" ? "An empty cell" : `“${input.value.slice(0, 20)}”`;
      const limit = whole(LARGEST);
      const old = short(view.get(trait)[i][j]);
      error.tell(input, `${typed} is not a number from −${limit} to ${limit}: it stays ${old}.`);
    }
  }

  function cell(i, j) {
    const input = element("input", {
      type: "text",
      size: 4,
      inputmode: "decimal",
      autocomplete: "off",
      "aria-label": `${trait}, ${name(axes[0], i)}, ${name(axes[1], j)}`,
      "data-trait": trait,
      "data-place": JSON.stringify([i, j]),
      oninput: () => read(i, j, false),
      onchange: () => read(i, j, true),
      onfocus: () => choose(i, j),
    });
    inputs[i][j] = input;
    return element("td", {}, input);
  }

  // The numeric keyboards of some phones have no minus sign: this button gives it to the last cell.
  let [row, column] = [0, 0];
  const minus = element(
    "button",
    {
      type: "button",
      class: "live-minus",
      // The cell keeps the focus, so that the keyboard stays.
      onmousedown: (event) => event.preventDefault(),
      onclick: () => {
        const input = inputs[row][column];
        if (input.disabled) return;
        const old = input.value.trim();
        input.value = /^[-−]/.test(old) ? old.slice(1) : `−${old}`;
        read(row, column, false);
      },
    },
    "±",
  );
  function choose(i, j) {
    [row, column] = [i, j];
    minus.setAttribute("aria-label", `Change the sign of ${inputs[i][j].getAttribute("aria-label")}`);
  }

  // A list has the names, a word alone is numbered.
  const [rows, columns] = [start, start[0]].map((all, k) => (Array.isArray(axes[k]) ? axes[k] : numbered(all.length)));
  const table = grid(label, rows, columns, cell, axes);
  view.follow([trait], () => {
    view.get(trait).forEach((row, i) =>
      row.forEach((x, j) => {
        // What is being typed is left alone as long as it says the same.
        const input = inputs[i][j];
        if (parse(input.value) === x) return;
        input.value = short(x);
        accept(input);
      }),
    );
  });
  choose(0, 0);
  const above = element("div", { class: "live-signed" }, table, minus);
  return { node: element("div", { class: "live-typed" }, above, error.line), cells: inputs };
}
