// The figure on the page: its title, the parts in their order, its caption, its values.
// A part's draw functions run whenever a value of the model changes, from the page or from Python.

import { byKeyboard, drawing, element, fold, typeset, write } from "./elements.js";
import { name, show } from "./text.js";

// Of what is read out, in milliseconds: until a change is over, and until it is taken away again,
// so that nobody comes upon it a second time.
const [SETTLED, KEPT] = [300, 5000];
const RESTED = 1500; // of what is wrong with a text, until typing has rested

// A figure that can be played says so before anything else: with a pointer, and what to do.
/** @type {(todo: string) => HTMLElement} */
function sign(todo) {
  const pointer = drawing(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true" },
    drawing("path", { d: "M5 4.5v10l2.6-2.3 1.7 3.3 1.8-.9-1.7-3.3 3.4-.4z" }),
    drawing("path", { d: "M1 4.5h2M5 0.5v2M1.8 1.3l1.5 1.5M8.2 1.3L6.7 2.8", class: "live-rays" }),
  );
  return element("p", { class: "live-sign" }, pointer, element("b", {}, "Try it: "), todo);
}

// What a change has altered is read out once, when the change is over: its sentences, or the first
// of all where none is another one. While a figure plays, only its start and its end are. Faults and
// news go first. What is called begins a change.
/** @type {(root: HTMLElement) => () => void} */
function hear(root) {
  const told = element("p", { class: "live-told", role: "status" });
  root.append(told);
  const changed = new Set();
  let [timer, pending, wrong, news] = [0, false, "", ""];
  function sentences() {
    if (wrong || root.querySelector("[data-playing]")) return [];
    const said = [...root.querySelectorAll(".live-lines")].filter((node) => changed.has(node));
    const first = root.querySelector(".live-spoken");
    const all = said.length || news || !first ? said : [first];
    return all.map((node) => node.textContent);
  }
  function speak() {
    const text = [wrong, news, ...sentences()].filter(Boolean).join(" ");
    if (text) write(told, text);
    [pending, wrong, news] = [false, "", ""];
    timer = setTimeout(() => write(told, ""), KEPT);
  }
  function begin(wait = SETTLED) {
    if (!pending) changed.clear(); // of what nobody here has done
    pending = true;
    clearTimeout(timer);
    write(told, ""); // what is said again is another text, and is heard
    timer = setTimeout(speak, wait);
  }
  root.addEventListener("said", ({ target }) => changed.add(target));
  root.addEventListener("played", () => begin());
  root.addEventListener("news", (event) => {
    news = /** @type {CustomEvent} */ (event).detail;
    begin();
  });
  root.addEventListener("refused", (event) => {
    wrong = /** @type {CustomEvent} */ (event).detail;
    if (wrong) begin(RESTED);
  });
  root.addEventListener("focusout", () => {
    if (wrong) begin();
  });
  return begin;
}

// A finger that lands on a slider sets it at once, also where it then scrolls the page: then the
// slider goes back to where it was.
function scrollsPast(body) {
  let before = "";
  /** @type {(event: any) => HTMLInputElement | null} */
  const slider = ({ target }) => target.closest("[type=range]");
  body.addEventListener("pointerdown", (event) => {
    before = slider(event)?.value ?? "";
  });
  body.addEventListener("pointercancel", (event) => {
    const input = slider(event);
    if (!input || input.value === before) return;
    input.value = before;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

// A drawing is told by its name: browsers would tell its letters, too, those that come later as well.
function untell(body) {
  const letters = "[role=img] > *, svg[role=group] > text";
  new MutationObserver((changes) => {
    for (const target of new Set(changes.map((change) => /** @type {Element} */ (change.target))))
      for (const one of target.querySelectorAll(letters)) one.ariaHidden = "true";
  }).observe(body, { childList: true, subtree: true });
}

// The figure on the page: its title, the parts in their order, its caption, its values.
export class View {
  /** @param {Given} given  @param {string} todo what a reader can do first */
  constructor({ model, el }, todo = "change a number") {
    this.model = model;
    this.undo = [];
    this.body = element("div", { class: "live-body" });
    scrollsPast(this.body);
    untell(this.body);
    this.fold = element("div", { class: "live-row", role: "group", "aria-label": `Values: ${model.get("title")}` });
    byKeyboard(this.fold);
    this.tables = new Map();
    this.root = element(
      "div",
      { class: "live", role: "group", "aria-label": model.get("title") },
      element(
        "div",
        { class: "live-head" },
        element("p", { class: "live-title" }, ...typeset(model.get("title"))),
        sign(todo),
      ),
      this.body,
      this.named("What is shown", false, element("p", { class: "live-caption" }, ...typeset(model.get("caption")))),
      this.named("Values as a table", false, this.fold),
    );
    this.heard = hear(this.root);
    el.replaceChildren(this.root);
    this.close = () => this.undo.forEach((undo) => undo());
  }

  // A fold that every figure has says to who listens of which one it is.
  /** @type {(title: string, open: boolean, node: HTMLElement) => HTMLDetailsElement} */
  named(title, open, node) {
    const made = fold(title, open, node);
    made.firstElementChild?.append(element("span", { class: "live-told" }, `: ${this.get("title")}`));
    return made;
  }

  // Take away all that was added, to begin anew.
  clear() {
    this.close();
    this.undo = [];
    this.tables.clear();
    for (const node of [this.body, this.fold]) node.replaceChildren();
  }

  /** @type {(trait: string) => any} */
  get(trait) {
    return this.model.get(trait);
  }

  // What a trait can be: a list, or the lowest and the highest number.
  /** @type {(trait: string) => any[]} */
  options(trait) {
    return this.get("options")[trait];
  }

  /** @type {(trait: string, value: unknown) => void} */
  set(trait, value) {
    this.heard();
    this.model.set(trait, value);
    this.model.save_changes();
  }

  /** @type {(...nodes: Child[]) => void} */
  add(...nodes) {
    this.body.append(...nodes);
  }

  // Run a draw function now, and again when one of these traits changes.
  /** @type {(traits: string[], draw: () => void) => void} */
  follow(traits, draw) {
    for (const trait of traits) {
      this.model.on(`change:${trait}`, draw);
      this.undo.push(() => this.model.off(`change:${trait}`, draw));
    }
    draw();
  }

  // Write quantities, each a number, a list or a matrix, into the table of values.
  // Places are named as stored, or by `axes`, where their names change with what is shown.
  /** @type {(quantities: Quantities, axes?: Record<string, Axis[]>) => void} */
  values(quantities, axes = {}) {
    for (const [quantity, value] of Object.entries(quantities)) {
      const rows = (Array.isArray(value) ? value : [value]).map((row) =>
        Array.isArray(row) ? row : [row],
      );
      const names = axes[quantity] ?? this.get("axes")[quantity] ?? [];
      const size = `${rows.length} ${rows[0].length} ${names}`;
      let known = this.tables.get(quantity);
      if (known?.size !== size) {
        const made = valuesTable(quantity, rows, names);
        if (known) known.table.replaceWith(made.table);
        else this.fold.append(made.table);
        known = { size, ...made };
        this.tables.set(quantity, known);
      }
      const numbers = rows.flat();
      const places = placesOf(numbers);
      known.cells.forEach((cell, i) => {
        cell.dataset.exact = String(numbers[i]);
        write(cell, show(numbers[i], places));
      });
    }
  }
}

// As many places as give the largest number four digits; what is far larger than all has more.
/** @type {(numbers: number[]) => number} */
function placesOf(numbers) {
  if (numbers.every(Number.isInteger)) return 0;
  const largest = Math.max(1, ...numbers.map(Math.abs).filter((x) => x < 1e4));
  return 3 - Math.floor(Math.log10(largest));
}

function valuesTable(quantity, rows, axes) {
  const scope = (kind, text) => element("th", { scope: kind }, ...typeset(text));
  const across = axes.length > 1 ? (j) => name(axes[1], j) : () => "value";
  const columns = rows[0].map((_, j) => scope("col", across(j)));
  const heads = axes.length ? [element("thead", {}, element("tr", {}, element("td"), ...columns))] : [];
  const cells = rows.map((row) => row.map(() => element("td")));
  const lines = cells.map((row, i) =>
    element("tr", {}, scope("row", axes.length ? name(axes[0], i) : "value"), ...row),
  );
  const table = element(
    "table",
    { class: "live-values", "data-values": quantity },
    element("caption", {}, ...typeset(quantity)),
    ...heads,
    element("tbody", {}, ...lines),
  );
  return { table, cells: cells.flat() };
}
