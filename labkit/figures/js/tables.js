// Tables: of buttons, of computed numbers, of coloured cells.

import { element, tell, typeset, write } from "./elements.js";
import { name, numbered, show } from "./text.js";

/** @type {Grid} */
export function grid(label, rows, columns, cell, axes = []) {
  // A place that is a bare number to the eye is told with its axis.
  const head = (scope, text, axis, i) =>
    element("th", axis ? { scope, "aria-label": name(axis, i) } : { scope }, ...typeset(text));
  const heads = columns.map((text, j) => head("col", text, axes[1], j));
  const lines = rows.map((text, i) =>
    element("tr", { "aria-label": name(axes[0] || rows, i) }, head("row", text, axes[0], i), ...columns.map((_, j) => cell(i, j))),
  );
  return element(
    "table",
    { class: "live-matrix" },
    element("caption", {}, ...typeset(label)),
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...lines),
  );
}

export const MOVES = "Arrow keys move from one to the next.";

// Of buttons in rows one takes the Tab key. Arrows move on, Home and End to the ends of a row, with
// Ctrl, or where a row that wraps is one, to those of all.
/** @type {(node: HTMLElement, buttonsNow: () => HTMLButtonElement[][], wraps?: boolean) =>
 *   { reach: (only: HTMLButtonElement) => HTMLButtonElement }} */
export function roving(node, buttonsNow, wraps = false) {
  function target({ key, ctrlKey, metaKey }, buttons, i, j) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
    if (step) return ctrlKey || metaKey ? [] : [i + step[0], j + step[1]];
    const all = wraps || ctrlKey || metaKey;
    if (key === "Home") return [all ? 0 : i, 0];
    const line = all ? buttons.length - 1 : i;
    return key === "End" ? [line, buttons[line].length - 1] : [];
  }

  function reach(only) {
    buttonsNow().flat().forEach((other) => other.setAttribute("tabindex", other === only ? "0" : "-1"));
    return only;
  }

  node.addEventListener("keydown", (event) => {
    const buttons = buttonsNow();
    const at = buttons.findIndex((row) => row.includes(/** @type {any} */ (event.target)));
    if (at < 0 || event.altKey) return;
    const [i, j] = target(event, buttons, at, buttons[at].indexOf(/** @type {any} */ (event.target)));
    if (i === undefined) return;
    event.preventDefault(); // or the page scrolls away from the focus
    const line = buttons[i] ?? [];
    const next = line[i === at ? j : Math.min(j, line.length - 1)]; // the last row may be shorter
    if (next) reach(next).focus();
  });
  return { reach };
}

// A grid of buttons. One of them takes the Tab key, arrows move on.
/** @type {ButtonGrid} */
export function buttonGrid({ label, rows, columns, press, axes }) {
  /** @type {HTMLButtonElement[][]} */
  const buttons = rows.map(() => []);

  function cell(i, j) {
    const made = element("button", {
      type: "button",
      "aria-pressed": "false",
      tabindex: i + j ? -1 : 0,
      onclick: (event) => {
        reach(made);
        press(i, j, event);
      },
    });
    buttons[i][j] = made;
    return element("td", {}, made);
  }

  const node = grid(label, rows, columns, cell, axes);
  tellButtonsAlone(node);
  const { reach } = roving(node, () => buttons);
  return { node, buttons };
}

// A button's name has its place: cells and headers would tell it again. What the caption says in
// symbols becomes the name of all, in words.
/** @param {HTMLTableElement} node */
function tellButtonsAlone(node) {
  const parts = [...(node.caption?.childNodes ?? [])];
  const words = parts.map((part) =>
    part instanceof Element ? (part.getAttribute("aria-label") ?? part.textContent) : part.textContent,
  );
  for (const [name, value] of Object.entries({ role: "group", "aria-label": words.join(""), "aria-description": MOVES }))
    node.setAttribute(name, value);
  for (const head of node.querySelectorAll("caption, th")) head.ariaHidden = "true";
  for (const line of node.rows) line.removeAttribute("aria-label");
}

// A matrix of computed numbers, of which one can be chosen.
/** @type {MakeComputed} */
export function computed({ label, quantity, size, axes, choose }) {
  const [rows, columns] = size.map(numbered);
  const { node, buttons } = buttonGrid({ label, rows, columns, press: choose, axes });
  return {
    node,
    cells: buttons,
    // notes: for each cell null, or { text, differs } to set below the number.
    draw(values, notes) {
      buttons.forEach((row, i) =>
        row.forEach((made, j) => {
          const text = show(values[i][j]);
          const note = notes?.[i]?.[j];
          const place = `${quantity}, ${name(axes[0], i)}, ${name(axes[1], j)}: ${text}`;
          made.setAttribute("aria-label", note ? `${place}, ${note.told}` : place);
          made.classList.toggle("live-noted", Boolean(note));
          made.classList.toggle("live-differs", Boolean(note?.differs));
          write(made, note ? `${text}\n${note.text}` : text);
        }),
      );
    },
  };
}

// Numbers or words under the names of their rows and columns, with a colour behind each.
/** @type {() => Coloured} */
export function coloured() {
  const node = element("div", { class: "live-coloured" });
  let known;
  return {
    node,
    // text, told and fill give, for a row and a column, what a cell says, what it says besides to who
    // listens, and its CSS background.
    draw({ label, rows, columns, axes, text, told, fill = () => "none" }) {
      const names = JSON.stringify([rows, columns]);
      if (known?.names !== names) {
        const cells = rows.map(() => columns.map(() => element("td")));
        const table = grid(label, rows, columns, (i, j) => cells[i][j], axes);
        node.replaceChildren(table);
        known = { names, table, cells };
      }
      tell(known.table.caption, label);
      known.cells.forEach((line, i) =>
        line.forEach((cell, j) => {
          write(cell, text(i, j));
          if (told) write(cell.children[0] ?? cell.appendChild(element("span", { class: "live-told" })), told(i, j));
          cell.style.background = fill(i, j);
        }),
      );
    },
  };
}
