// What the live figures share: mathematics, and the parts that a figure is put together from.
// A part's draw functions run whenever a value of the model changes, from the page or from Python.

const LARGEST = 1e6;

// ---------------------------------------------------------------- mathematics

/** @type {<T>(a: T[][]) => T[][]} */
export function transpose(a) {
  return a[0].map((_, j) => a.map((row) => row[j]));
}

/** @type {(a: Matrix, b: Matrix) => Matrix} */
export function matmul(a, b) {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
}

/** @type {(a: number[], b: number[]) => number} */
function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

// With the largest score subtracted, which changes no weight and keeps e^x finite.
/** @type {(row: number[]) => number[]} */
export function softmax(row) {
  const most = Math.max(...row);
  const exponentials = row.map((x) => Math.exp(x - most));
  const total = exponentials.reduce((sum, x) => sum + x, 0);
  return exponentials.map((x) => x / total);
}

// Numbers start, start + 1, ... of a stream of standard normal ones; start and count are even.
// mulberry32 and Box and Muller's method: labkit/live/saturation.py draws the same.
/** @type {(seed: number, start: number, count: number) => Float64Array} */
export function normals(seed, start, count) {
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform(seed, start + i)));
    const angle = 2 * Math.PI * uniform(seed, start + i + 1);
    numbers[i] = radius * Math.cos(angle);
    numbers[i + 1] = radius * Math.sin(angle);
  }
  return numbers;
}

/** @type {(seed: number, place: number) => number} */
function uniform(seed, place) {
  let x = (seed + Math.imul(place + 1, 0x6d2b79f5)) | 0;
  x = Math.imul(x ^ (x >>> 15), x | 1);
  x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
  return (((x ^ (x >>> 14)) >>> 0) + 0.5) / 2 ** 32;
}

// ---------------------------------------------------------------- trained weights

// A number of 16 bits: a sign, five bits of exponent, ten of fraction.
/** @type {(bits: number) => number} */
function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
  return bits >> 15 ? -size : size;
}

// A file of numbers of 16 bits in the format of safetensors: the length of a header, the header in
// JSON, which says where each tensor lies and may tell more about them, and the numbers.
/** @type {(file: DataView) => { about: Record<string, string>, at: Record<string, Tensor> }} */
export function readTensors(file) {
  const start = 8 + Number(file.getBigUint64(0, true));
  const letters = new Uint8Array(file.buffer, file.byteOffset + 8, start - 8);
  const { __metadata__: about, ...tensors } = JSON.parse(new TextDecoder().decode(letters));
  const at = {};
  for (const [name, { shape, data_offsets: ends }] of Object.entries(tensors)) {
    const numbers = new Float64Array((ends[1] - ends[0]) / 2);
    for (let i = 0; i < numbers.length; i += 1) {
      numbers[i] = half(file.getUint16(start + ends[0] + 2 * i, true));
    }
    at[name] = { shape, numbers };
  }
  return { about, at };
}

/** @type {(x: Rows, weight: Tensor, bias?: Tensor) => Rows} */
export function linear(x, { shape: [outputs, inputs], numbers }, bias) {
  return x.map((row) => {
    const y = new Float64Array(outputs);
    for (let i = 0; i < outputs; i += 1) {
      let sum = bias ? bias.numbers[i] : 0;
      for (let j = 0; j < inputs; j += 1) sum += numbers[i * inputs + j] * row[j];
      y[i] = sum;
    }
    return y;
  });
}

// ---------------------------------------------------------------- text

/** @type {(base64: string) => Uint8Array} */
export function decode(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

// A number to some places, with a true minus sign. A count is written out; any other number is in
// powers of ten where it is very long.
/** @type {(x: number, places?: number) => string} */
export function show(x, places = 3) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const text = Math.abs(x) < (places ? 1e6 : 1e21) ? x.toFixed(places) : x.toExponential(places);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// As it was typed: no zeros after the point that nobody asked for.
/** @type {(x: number) => string} */
export function short(x) {
  return String(x).replace("-", "−");
}

const signed = (x, text) => (x < 0 ? `(${text})` : text);

// A dot product, term by term; `say` says how the first factors are written.
/** @type {(a: number[], b: number[], say: (x: number) => string) => string} */
export function terms(a, b, say) {
  const term = (x, i) => `${signed(x, say(x))} · ${signed(b[i], short(b[i]))}`;
  return a.map(term).join(" + ");
}

// A comma is a point, for the numeric keyboards of many phones have no other; not where it may
// part thousands.
const COMMA = /^(-?)(?:(0?),(\d+)|(\d+),(\d{1,2}|\d{4,}))$/;

/** @type {(text: string) => number | null} */
function parse(text) {
  const typed = text.trim().replace("−", "-");
  const plain = COMMA.test(typed) ? typed.replace(",", ".") : typed;
  const x = Number(plain);
  return plain !== "" && Math.abs(x) <= LARGEST ? x : null;
}

// What stands at a place of an axis: `axis` is a word, to be numbered, or all the names.
/** @type {(axis: Axis, i: number) => string} */
export function name(axis, i) {
  if (Array.isArray(axis)) return axis[i];
  return axis ? `${axis} ${i + 1}` : "";
}

// ---------------------------------------------------------------- elements

// Text goes in as text: nothing from a figure's state is read as HTML.
/** @type {Make} */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Changes the text in place: a new text node would have the browser match `:has()` rules again.
/** @type {(node: Element, text: string) => void} */
export function write(node, text) {
  const shown = /** @type {Text | null} */ (node.firstChild);
  if (!shown) node.append(text);
  else if (shown.data !== text) shown.data = text;
}

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

// Where there is room, a fold is open.
export const roomy = () => !matchMedia("(max-width: 599px)").matches;

/** @type {(title: string, open: boolean, ...nodes: Child[]) => HTMLDetailsElement} */
export function fold(title, open, ...nodes) {
  const made = element("details", { class: "live-fold" }, element("summary", {}, title), ...nodes);
  made.open = open;
  return made;
}

// The figure on the page: its title, the parts in their order, its caption, its values.
export class View {
  /** @param {Given} given  @param {string} todo what a reader can do first */
  constructor({ model, el }, todo = "change a number") {
    this.model = model;
    this.undo = [];
    this.body = element("div", { class: "live-body" });
    // Focusable, so that the arrow keys scroll a table that is wider than a phone.
    const region = { role: "region", "aria-label": "Values", tabindex: 0 };
    this.fold = element("div", { class: "live-row", ...region });
    this.tables = new Map();
    this.root = element(
      "div",
      { class: "live", role: "group", "aria-label": model.get("title") },
      element(
        "div",
        { class: "live-head" },
        element("p", { class: "live-title" }, model.get("title")),
        sign(todo),
      ),
      this.body,
      fold("What is shown", roomy(), element("p", { class: "live-caption" }, model.get("caption"))),
      fold("Values as a table", false, this.fold),
    );
    el.replaceChildren(this.root);
    this.close = () => this.undo.forEach((undo) => undo());
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
  /** @type {(quantities: Quantities) => void} */
  values(quantities) {
    for (const [quantity, value] of Object.entries(quantities)) {
      const rows = (Array.isArray(value) ? value : [value]).map((row) =>
        Array.isArray(row) ? row : [row],
      );
      const size = `${rows.length} ${rows[0].length}`;
      let known = this.tables.get(quantity);
      if (known?.size !== size) {
        const made = valuesTable(quantity, rows, this.get("axes")[quantity] ?? []);
        if (known) known.table.replaceWith(made.table);
        else this.fold.append(made.table);
        known = { size, ...made };
        this.tables.set(quantity, known);
      }
      const numbers = rows.flat();
      const places = numbers.every(Number.isInteger) ? 0 : 7;
      known.cells.forEach((cell, i) => write(cell, show(numbers[i], places)));
    }
  }
}

function valuesTable(quantity, rows, axes) {
  const scope = (kind, text) => element("th", { scope: kind }, text);
  const across = axes.length > 1 ? (j) => name(axes[1], j) : () => "value";
  const columns = rows[0].map((_, j) => scope("col", across(j)));
  const cells = rows.map((row) => row.map(() => element("td")));
  const lines = cells.map((row, i) =>
    element("tr", {}, scope("row", name(axes[0], i)), ...row),
  );
  const table = element(
    "table",
    { class: "live-values", "data-values": quantity },
    element("caption", {}, quantity),
    element("thead", {}, element("tr", {}, element("td"), ...columns)),
    element("tbody", {}, ...lines),
  );
  return { table, cells: cells.flat() };
}

// ---------------------------------------------------------------- controls

// A control is marked with the trait it sets, for those who drive the page from outside.

/** @type {() => string} */
export function unique() {
  return `live-${Math.random().toString(36).slice(2)}`;
}

/** @type {Control} */
export function slider(view, trait, { label }) {
  const id = unique();
  const steps = view.options(trait);
  const input = element("input", {
    id,
    type: "range",
    min: 0,
    max: steps.length - 1,
    "data-trait": trait,
    oninput: () => view.set(trait, steps[input.value]),
  });
  const shown = element("output", { for: id });
  view.follow([trait], () => {
    input.value = String(steps.indexOf(view.get(trait)));
    input.setAttribute("aria-valuetext", view.get(trait));
    write(shown, String(view.get(trait)));
  });
  const named = element("label", { for: id }, label);
  return element("div", { class: "live-control" }, named, input, shown);
}

/** @type {Control} */
export function toggle(view, trait, { label }) {
  const input = element("input", {
    type: "checkbox",
    "data-trait": trait,
    onchange: () => view.set(trait, input.checked),
  });
  view.follow([trait], () => {
    input.checked = view.get(trait);
  });
  return element("label", { class: "live-control" }, input, label);
}

/** @type {Control} */
export function choice(view, trait, { label }) {
  const options = view.options(trait);
  const select = element(
    "select",
    { "data-trait": trait, onchange: () => view.set(trait, options[select.selectedIndex]) },
    ...options.map((option) =>
      element("option", { value: JSON.stringify(option) }, String(option)),
    ),
  );
  view.follow([trait], () => {
    select.selectedIndex = options.indexOf(view.get(trait));
  });
  return element("label", { class: "live-control" }, label, select);
}

// A list of texts of which one is chosen by its place.
/** @type {ByPlace} */
export function pick(view, trait, { label, texts, follow = [], choose }) {
  const select = element("select", { "data-trait": trait });
  select.addEventListener("change", () => choose(select.selectedIndex));
  let known = "";
  view.follow([trait, ...follow], () => {
    const now = texts();
    if (JSON.stringify(now) !== known) {
      known = JSON.stringify(now);
      select.replaceChildren(...now.map((text, i) => element("option", { value: i }, text)));
    }
    select.selectedIndex = view.get(trait);
  });
  return element("label", { class: "live-control" }, label, select);
}

/** @type {(label: string, action: () => void) => HTMLButtonElement} */
export function button(label, action) {
  const onclick = () => {
    if (isAble(made)) action();
  };
  const made = element("button", { type: "button", class: "live-button", onclick }, label);
  return made;
}

// A button that has nothing to do says so and keeps the focus, which `disabled` would drop.
/** @type {(made: HTMLButtonElement, can: boolean) => void} */
export function able(made, can) {
  made.setAttribute("aria-disabled", String(!can));
}

const isAble = (made) => made.getAttribute("aria-disabled") !== "true";

// A count that buttons change: it is read as text.
/** @type {Control} */
export function counter(view, trait, { label }) {
  const shown = element("output", { "data-trait": trait });
  view.follow([trait], () => write(shown, String(view.get(trait))));
  return element("span", { class: "live-control" }, label, shown);
}

/** @type {Grid} */
function grid(label, rows, columns, cell) {
  const heads = columns.map((text) => element("th", { scope: "col" }, text));
  const lines = rows.map((text, i) => {
    const head = element("th", { scope: "row" }, text);
    return element("tr", {}, head, ...columns.map((_, j) => cell(i, j)));
  });
  return element(
    "table",
    { class: "live-matrix" },
    element("caption", {}, label),
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...lines),
  );
}

// A button that goes on by itself until it is pressed again or told to stop.
/** @type {(play: { next: HTMLButtonElement, begin: () => void, go: () => void, every: number }) =>
 *   { play: HTMLButtonElement, stop: () => void }} */
export function player({ next, begin, go, every }) {
  let timer = 0;
  function stop() {
    clearInterval(timer);
    timer = 0;
    write(play, "Play");
  }
  const play = button("Play", () => {
    if (timer) return stop();
    if (!isAble(next)) begin();
    timer = setInterval(go, every);
    write(play, "Pause");
  });
  return { play, stop };
}

/** @type {(numbers: number[]) => number} */
export const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);

/** @type {(count: number) => string[]} */
export const numbered = (count) => Array.from({ length: count }, (_, i) => String(i + 1));

// A line that tells what is wrong with what was typed; the control says so too, until all is well.
/** @type {() => Complaint} */
export function complaint() {
  const id = unique();
  const line = element("p", { class: "live-error", id, role: "alert" });
  function tell(control, fault) {
    write(line, fault);
    const said = { "aria-invalid": "true", "aria-describedby": id };
    for (const [name, value] of Object.entries(said)) {
      if (fault) control.setAttribute(name, value);
      else control.removeAttribute(name);
    }
  }
  return { line, tell };
}

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
      const limit = LARGEST.toLocaleString("en");
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

  const table = grid(label, numbered(start.length), numbered(start[0].length), cell);
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

// A grid of buttons. One of them takes the Tab key, arrows move on.
/** @type {ButtonGrid} */
export function buttonGrid({ label, rows, columns, press }) {
  /** @type {HTMLButtonElement[][]} */
  const buttons = rows.map(() => []);

  function move(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const by = step[event.key];
    const at = buttons.findIndex((row) => row.includes(event.target));
    if (!by || at < 0) return;
    event.preventDefault();
    const next = buttons[at + by[0]]?.[buttons[at].indexOf(event.target) + by[1]];
    if (next) reach(next).focus();
  }

  function reach(only) {
    buttons.flat().forEach((other) => other.setAttribute("tabindex", other === only ? "0" : "-1"));
    return only;
  }

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

  const node = grid(label, rows, columns, cell);
  node.addEventListener("keydown", move);
  return { node, buttons };
}

// A matrix of computed numbers, of which one can be chosen.
/** @type {MakeComputed} */
export function computed({ label, quantity, size, axes, choose }) {
  const [rows, columns] = size.map(numbered);
  const { node, buttons } = buttonGrid({ label, rows, columns, press: choose });
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
          made.classList.toggle("live-differs", Boolean(note?.differs));
          write(made, note ? `${text}\n${note.text}` : text);
        }),
      );
    },
  };
}

// ---------------------------------------------------------------- drawings

// Upright bars from 0 to `most` with a title, and told in words for those who do not see them.
/** @type {(given: { colour: Colour, touching?: boolean }) => Bars} */
export function bars({ colour, touching = false }) {
  const label = element("p");
  const kind = touching ? "live-bars live-touching" : "live-bars";
  const drawn = element("div", { class: kind, role: "img" });
  drawn.style.setProperty("--live-bar", `var(--live-${colour})`);
  return {
    node: element("div", { class: "live-chart" }, label, drawn),
    draw(values, { title, told, most, names, texts }) {
      write(label, title);
      if (drawn.children.length !== values.length) {
        const bar = () => element("div", {}, element("b"), element("i"), element("span"));
        drawn.replaceChildren(...values.map(bar));
      }
      drawn.setAttribute("aria-label", told);
      values.forEach((x, i) => {
        const [text, bar, below] = /** @type {HTMLCollectionOf<HTMLElement>} */ (
          drawn.children[i].children
        );
        write(text, texts?.[i] ?? "");
        write(below, names[i]);
        bar.style.setProperty("--share", String(most ? x / most : 0));
      });
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
    // text and fill give, for a row and a column, what a cell says and its CSS background.
    draw({ label, rows, columns, text, fill = () => "none" }) {
      const names = JSON.stringify([rows, columns]);
      if (known?.names !== names) {
        const cells = rows.map(() => columns.map(() => element("td")));
        const table = grid(label, rows, columns, (i, j) => cells[i][j]);
        node.replaceChildren(table);
        known = { names, table, cells };
      }
      write(known.table.caption, label);
      known.cells.forEach((line, i) =>
        line.forEach((cell, j) => {
          write(cell, text(i, j));
          cell.style.background = fill(i, j);
        }),
      );
    },
  };
}

// A background for a share from 0 to 1, light enough to read on in either theme.
/** @type {(share: number, colour?: Colour) => string} */
export function shade(share, colour = "blue") {
  return `color-mix(in srgb, var(--live-${colour}) ${(50 * share).toFixed(1)}%, transparent)`;
}

// Nodes of a drawing, in its own units.
/** @type {(tag: string, attributes?: Record<string, any>, ...children: Child[]) => SVGElement} */
export function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A map of n by n steps of 255, as an image that masks a colour: so the colour follows the theme.
/** @type {(steps: ArrayLike<number>, n: number) => string} */
export function maskOf(steps, n) {
  const canvas = element("canvas", { width: n, height: n });
  const pixels = new ImageData(n, n);
  for (let i = 0; i < n * n; i += 1) pixels.data[4 * i + 3] = steps[i];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.putImageData(pixels, 0, 0);
  return `url(${canvas.toDataURL()})`;
}

// A row of tokens, level or upright, of which one is marked.
/** @type {(tokens: string[], place: (i: number) => object) => SVGElement[]} */
export function labels(tokens, place) {
  return tokens.map((token, i) => drawing("text", place(i), token));
}

/** @type {(texts: SVGElement[], chosen: number) => void} */
export function mark(texts, chosen) {
  texts.forEach((text, i) => text.classList.toggle("live-chosen", i === chosen));
}

// How much room words take beside a drawing.
/** @type {(words: string[]) => number} */
export function roomFor(words) {
  return 7.5 * Math.max(...words.map((word) => word.length)) + 12;
}

// A head's weights as a map, whose cells and words choose a query and a key.
/** @type {MakeWeightMap} */
export function weightMap(tokens, { side, room, select, point = () => {} }) {
  const wide = room + side;
  const step = side / tokens.length;
  const start = (i) => room + step * i;
  const line = (i) => start(i) + step / 2 + 4;
  const left = labels(tokens, (i) => ({ x: room - 6, y: line(i), "text-anchor": "end" }));
  const top = labels(tokens, (j) => ({ transform: `translate(${line(j)} ${room - 6}) rotate(-90)` }));
  const square = { width: step - 1, height: step - 1 };
  const cells = tokens.map((_, i) =>
    tokens.map((__, j) => drawing("rect", { x: start(j), y: start(i), ...square })),
  );
  cells.forEach((across, i) =>
    across.forEach((cell, j) => {
      cell.addEventListener("pointerenter", () => point(i, j));
      cell.addEventListener("click", () => {
        select("query", i);
        select("key", j);
      });
    }),
  );
  left.forEach((text, i) => text.addEventListener("click", () => select("query", i)));
  top.forEach((text, j) => text.addEventListener("click", () => select("key", j)));
  const size = { viewBox: `0 0 ${wide} ${wide}`, width: wide, height: wide };
  return {
    node: drawing("svg", { ...size, role: "img" }, ...cells.flat(), ...left, ...top),
    draw(weights, query, key) {
      cells.forEach((across, i) =>
        across.forEach((cell, j) => {
          cell.setAttribute("fill-opacity", String(weights[i][j]));
          cell.classList.toggle("live-chosen", i === query && j === key);
        }),
      );
      mark(left, query);
      mark(top, key);
    },
  };
}

// A sentence that is read out when it changes.
/** @type {() => Part & { say: (text: string) => void }} */
export function spoken() {
  const node = element("p", { class: "live-spoken", role: "status" });
  return { node, say: (text) => write(node, text) };
}

/** @type {(...nodes: Child[]) => HTMLElement} */
export function row(...nodes) {
  return element("div", { class: "live-row" }, ...nodes);
}
