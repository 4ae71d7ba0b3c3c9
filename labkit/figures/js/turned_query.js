import { shade } from "./drawings.js";
import { drawing, element, row, spoken, write } from "./elements.js";
import { matmul, softmax, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { percent, show } from "./text.js";
import { View } from "./view.js";

// The plane: where its middle lies in the drawing, and how long one is.
const [WIDE, HIGH, X, Y, UNIT] = [340, 340, 170, 170, 56];
const LONGEST = 2.5;
const ASKING = "bank";
// Where a word stands beside its point, clear of the lines.
const BESIDE = {
  river: { dx: 0, dy: -22 },
  bank: { dx: 20, dy: 14, "text-anchor": "start" },
  money: { dx: 0, dy: -22 },
};

/** @type {(vector: number[]) => number[]} */
const place = ([x, y]) => [X + UNIT * x, Y - UNIT * y];
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/** @type {(node: Element, attributes: Record<string, string | number>) => void} */
function put(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
}

/** @type {(label: string, given: object, heard: (x: number) => void) => any} */
function range(label, given, heard) {
  const input = element("input", { type: "range", ...given });
  input.addEventListener("input", () => heard(Number(input.value)));
  return { input, node: element("label", { class: "live-control" }, label, input) };
}

// The drawing: the words as points, the query as an arrow whose end can be dragged, and the new word.
// `move` takes where the end is dragged to, `turn` what an arrow key adds to direction and length.
function drawPlane(words, vectors, { move, turn }) {
  const lines = words.map(() => drawing("line", { class: "live-pull" }));
  const keys = vectors.map((vector) => {
    const [cx, cy] = place(vector);
    return drawing("circle", { class: "live-key", cx, cy });
  });
  const names = words.map((word, i) => {
    const [x, y] = place(vectors[i]);
    const { dx, dy, ...more } = BESIDE[word];
    return drawing("text", { x: x + dx, y: y + dy, "text-anchor": "middle", ...more }, word);
  });
  const arrow = drawing("line", { class: "live-query", x1: X, y1: Y });
  const mixed = drawing("circle", { class: "live-mixed", r: 9 });
  const becomes = drawing("text", { class: "live-becomes", "text-anchor": "middle" }, `new ${ASKING}`);
  const label = drawing("text", { class: "live-asks-for", "text-anchor": "middle" }, "drag me");
  const handle = drawHandle();
  const node = drawing(
    "svg",
    { class: "live-plane", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH },
    drawing("circle", { class: "live-dial", cx: X, cy: Y, r: UNIT * LONGEST }),
    ...lines, arrow, drawing("circle", { class: "live-middle", cx: X, cy: Y, r: 3 }),
    ...keys, ...names, mixed, becomes, label, handle,
  );
  makeDraggable(node, handle, move);
  handle.addEventListener("keydown", (event) => {
    const step = {
      ArrowLeft: [5, 0], ArrowRight: [-5, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1],
    }[event.key];
    if (!step) return;
    event.preventDefault();
    turn(step);
  });
  return {
    node,
    handle,
    // Somebody has played: the handle asks for it no more.
    touch() {
      handle.classList.remove("live-untouched");
      write(label, "query");
    },
    draw(query, weights, mix) {
      const [tip, at] = [place(query), place(mix)];
      put(arrow, { x2: tip[0], y2: tip[1] });
      put(handle, { transform: `translate(${tip[0]} ${tip[1]})` });
      put(label, { x: clamp(tip[0], 40, WIDE - 40), y: tip[1] > Y ? tip[1] + 30 : tip[1] - 22 });
      put(mixed, { cx: at[0], cy: at[1] });
      put(becomes, { x: clamp(at[0], 50, WIDE - 50), y: at[1] + 26 });
      weights.forEach((weight, i) => {
        const [x1, y1] = place(vectors[i]);
        put(keys[i], { r: 6 + 8 * weight });
        put(lines[i], { x1, y1, x2: at[0], y2: at[1], "stroke-width": 1 + 8 * weight });
      });
    },
  };
}

function drawHandle() {
  return drawing(
    "g",
    {
      class: "live-handle live-untouched", tabindex: 0, role: "slider",
      "aria-label": `Query of ${ASKING}: left and right turn it, up and down make it longer and shorter`,
      "aria-valuemin": 0, "aria-valuemax": 359,
    },
    drawing("circle", { class: "live-reach", r: 24 }),
    drawing("circle", { class: "live-ripple", r: 13 }),
    drawing("circle", { class: "live-knob", r: 13 }),
  );
}

/** @type {(plane: SVGElement, handle: SVGElement, move: (x: number, y: number) => void) => void} */
function makeDraggable(plane, handle, move) {
  function drag(event) {
    const box = plane.getBoundingClientRect();
    const scale = WIDE / box.width;
    move(
      ((event.clientX - box.left) * scale - X) / UNIT,
      (Y - (event.clientY - box.top) * scale) / UNIT,
    );
  }
  // `touch-action` is not heeded on parts of a drawing.
  handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
  // A finger that lands beside the handle scrolls the page; a mouse can take hold anywhere.
  plane.addEventListener("pointerdown", (event) => {
    const held = handle.contains(/** @type {Node} */ (event.target));
    if (event.button || !(held || event.pointerType === "mouse")) return;
    event.preventDefault();
    handle.focus({ preventScroll: true });
    plane.setPointerCapture(event.pointerId);
    if (!held) drag(event);
    plane.addEventListener("pointermove", drag);
  });
  for (const end of ["pointerup", "pointercancel"])
    plane.addEventListener(end, () => plane.removeEventListener("pointermove", drag));
}

/** @type {(table: Coloured, words: string[], scores: number[], weights: number[]) => void} */
function drawTable(table, words, scores, weights) {
  table.draw({
    label: `What “${ASKING}” asks for`,
    rows: words,
    columns: ["score", "weight"],
    text: (i, j) => (j ? percent(weights[i]) : show(scores[i], 2)),
    fill: (i, j) =>
      j ? `linear-gradient(90deg, ${shade(1, "orange")} ${100 * weights[i]}%, transparent 0)` : "none",
  });
}

/** @type {(words: string[], weights: number[]) => string} */
function sentence(words, weights) {
  const most = weights.indexOf(Math.max(...weights));
  return weights[most] < 0.5
    ? `The query finds none of the words: the new “${ASKING}” is a bit of all.`
    : `The query finds “${words[most]}”: ${percent(weights[most])} of the new “${ASKING}” comes from there.`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "drag the query");
  const words = Object.keys(view.get("words"));
  const vectors = Object.values(view.get("words"));
  const told = spoken();
  const table = coloured();
  table.node.classList.add("live-turned-table");
  let [direction, length] = [0, 0];

  // As an angle from 0 to 359 degrees, and a length: a query of length 0 keeps its direction.
  function read() {
    const [x, y] = view.get("query")[0];
    length = Math.hypot(x, y);
    if (length) direction = Math.round((Math.atan2(y, x) * 180) / Math.PI + 360) % 360;
  }

  function point(x, y) {
    plane.touch();
    const most = Math.max(Math.hypot(x, y) / LONGEST, 1);
    view.set("query", [[x, y].map((part) => Number((part / most).toFixed(2)))]);
  }

  function turn(degrees, long) {
    const angle = (degrees * Math.PI) / 180;
    point(long * Math.cos(angle), long * Math.sin(angle));
    [direction, length] = [(degrees + 360) % 360, long];
    placeSliders();
  }

  const plane = drawPlane(words, vectors, {
    move: point,
    turn: ([degrees, long]) => turn(direction + degrees, clamp(length + long, 0, LONGEST)),
  });
  const directions = range("Turn", { min: 0, max: 359 }, (degrees) => turn(degrees, length));
  const lengths = range("Length", { min: 0, max: LONGEST, step: 0.1 }, (long) => turn(direction, long));
  const parts = [0, 1].map((j) =>
    element("data", { "data-trait": "query", "data-place": JSON.stringify([0, j]) }),
  );

  function placeSliders() {
    directions.input.value = String(direction);
    put(directions.input, { "aria-valuetext": `${direction} degrees` });
    lengths.input.value = String(length);
    const text = `${direction} degrees, length ${show(length, 1)}`;
    put(plane.handle, { "aria-valuenow": direction, "aria-valuetext": text });
  }

  function draw() {
    const query = view.get("query");
    read();
    const scores = matmul(query, transpose(vectors))[0].map((x) => x / Math.SQRT2);
    const weights = softmax(scores);
    const [mix] = matmul([weights], vectors);
    plane.draw(query[0], weights, mix);
    parts.forEach((part, j) => {
      put(part, { value: query[0][j] });
      write(part, show(query[0][j], 2));
    });
    placeSliders();
    drawTable(table, words, scores, weights);
    told.say(sentence(words, weights));
    view.values({ scores, weights, "mixed value": mix });
  }

  const help = element(
    "p",
    { class: "live-help" },
    "Drag the blue handle: turn what the word asks for, and see what it becomes.",
  );
  const asked = element("p", { class: "live-turned-query" }, "Query (", parts[0], ", ", parts[1], ")");
  view.add(
    help,
    row(
      plane.node,
      element(
        "div",
        { class: "live-side live-turned" },
        table.node, told.node, asked, directions.node, lengths.node,
      ),
    ),
  );
  view.follow(["query"], draw);
  return view.close;
}

export default { render };
