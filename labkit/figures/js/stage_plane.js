// The plane: words as points that move with the step, to their vectors, keys and values; the query
// as an arrow, the output, and last the regions of the answers.

import { drawing, write } from "./elements.js";
import { dot } from "./mathematics.js";
import { area, largest, region } from "./stage_model.js";
import { place as placeLabels } from "./stage_labels.js";
import { pair } from "./stage_words.js";
import { short } from "./text.js";

const SIDE = 320;
const MIDDLE = SIDE / 2;
const HALF = 152; // from the middle to the frame
const EDGE = (MIDDLE - 1) / HALF; // how much farther the frame itself is
const RANGES = [4, 6, 9, 12, 16, 24, 40, 80];
const STEP = 0.5; // of an arrow key
const [LETTERS, SMALLEST] = [14, 12]; // of names, in the drawing's units and in pixels
const KINDS = ["", "vector", "key", "key", "key", "value", "vector"]; // of points, at each step
const CROWDED = 18; // the size from which only names are drawn that have room

/** @type {(node: Element, attributes: Record<string, string | number>) => void} */
function put(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
}

const path = (name, more = {}) => drawing("path", { class: name, ...more });
/** @type {(node: SVGElement, spot: number[]) => void} */
const moveTo = (node, [x, y]) => {
  node.style.transform = `translate(${x.toFixed(2)}px, ${y.toFixed(2)}px)`;
};
/** @type {(...spots: number[][]) => string} */
const line = (...spots) => `M${spots.map((spot) => spot.map((part) => part.toFixed(1)).join(" ")).join("L")}`;
const show = (node, shown) => node.classList.toggle("stage-hidden", !shown);

// All that is drawn, once; `draw` moves it.
function makeNodes(given) {
  const dots = given.words.map((word) =>
    drawing(
      "g", { class: "stage-word", "data-word": word },
      drawing("circle", { class: "stage-reach", r: 15 }), drawing("circle", { class: "stage-dot", r: 6 }),
    ),
  );
  const names = given.words.map(() => drawing("text", { class: "stage-name" }));
  const pulls = given.words.map(() => path("stage-pull"));
  const drops = given.words.map(() => path("stage-drop"));
  const regions = given.answers.map((answer) => path("stage-region", { "data-part": `region:${answer}` }));
  const regionNames = given.answers.map((answer) => drawing("text", { class: "stage-region-name" }, answer));
  const tip = drawing(
    "g", { class: "stage-tip", "data-part": "query", role: "slider" },
    drawing("circle", { class: "stage-reach", r: 22 }), drawing("circle", { class: "stage-knob", r: 9 }),
  );
  const one = {
    axes: path("stage-axes", { d: `M4 ${MIDDLE}H${SIDE - 4}M${MIDDLE} 4V${SIDE - 4}` }), line: path("stage-query-line"), query: path("stage-query", { "data-part": "query" }),
    asking: path("stage-asking-arrow"), adding: path("stage-adding", { "data-part": "output" }),
    output: drawing("path", { class: "stage-output", d: "M0 -10L10 0L0 10L-10 0Z", "data-part": "output" }),
    queryName: drawing("text", { class: "stage-name stage-query-name" }, "query"),
    outputName: drawing("text", { class: "stage-name stage-output-name" }, "output"),
    scale: drawing("text", { class: "stage-scale" }),
    frame: drawing("rect", { class: "stage-frame", x: 1, y: 1, width: SIDE - 2, height: SIDE - 2, rx: 2, role: "img" }),
  };
  const node = drawing(
    "svg", { class: "stage-plane", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "group", "aria-label": "The plane" },
    one.frame, ...regions, one.axes, one.scale, ...regionNames, ...pulls, one.line, ...drops, one.query, one.asking, one.adding,
    ...dots, one.output, ...names, one.queryName, one.outputName, tip,
  );
  return { node, dots, names, pulls, drops, regions, regionNames, tip, ...one };
}

// Where a step has the words: at their vectors, keys or values. The overview has what the last one has.
const pointsOf = ({ found, step }) => ({ vector: found.x, key: found.keys, value: found.values })[KINDS[step]];

function neededRange(scene) {
  const { found, step } = scene;
  const others = step === 6 ? [found.after] : step === 5 ? [found.output] : step >= 2 ? [found.query] : [];
  const shown = step === 6 ? found.x.slice(-1) : pointsOf(scene);
  const most = Math.max(...[...shown, ...others].flat().map(Math.abs)) * 1.12;
  return RANGES.find((range) => most <= range) ?? Math.ceil(most);
}

// Drag with mouse or finger; `held` names what is under it, or nothing.
function draggable(node, { held, move }) {
  function start(event) {
    const what = held(event.target);
    if (event.button || !what) return;
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    node.classList.add("stage-dragging");
    what.focus({ preventScroll: true });
    const drag = (now) => {
      const box = node.getBoundingClientRect();
      const scale = SIDE / box.width;
      move(what, (now.clientX - box.left) * scale - MIDDLE, MIDDLE - (now.clientY - box.top) * scale);
    };
    const stop = () => {
      node.removeEventListener("pointermove", drag);
      for (const name of ["pointerup", "pointercancel"]) node.removeEventListener(name, stop);
      node.classList.remove("stage-dragging");
    };
    node.addEventListener("pointermove", drag);
    for (const name of ["pointerup", "pointercancel"]) node.addEventListener(name, stop);
  }
  node.addEventListener("pointerdown", start);
  // `touch-action` is not heeded on parts of a drawing.
  node.addEventListener("touchstart", (event) => held(event.target) && event.preventDefault(), { passive: false });
}

const BY_KEY = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-Infinity, 0], End: [Infinity, 0] };

function handle(node, on, label, vector) {
  if (!on) {
    for (const name of ["tabindex", "role", "aria-label", "aria-valuenow", "aria-valuetext"]) node.removeAttribute(name);
    return;
  }
  put(node, {
    tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": -1e6, "aria-valuemax": 1e6,
    "aria-valuenow": vector[0], "aria-valuetext": pair(vector),
  });
}

/** @type {(given: import("./stage_model.js").Pocket, heard: { word(word: string, to: number[]): void, query(to: number[]): void }) =>
 *   { node: SVGElement, draw(scene: any): void }} */
export function plane(given, heard) {
  const made = makeNodes(given);
  let [range, key, scene, size] = [4, "", /** @type {any} */ (null), LETTERS];
  const at = ([x, y]) => [MIDDLE + (HALF * x) / range, MIDDLE - (HALF * y) / range];
  const isTip = (what) => what === made.tip;
  const holds = (vector) => vector.map((x) => Math.max(-range, Math.min(range, x)));

  function set(what, vector) {
    if (isTip(what)) heard.query(holds(vector));
    else heard.word(what.dataset.word, holds(vector));
  }
  draggable(made.node, {
    held: (target) => target.closest('[role="slider"]'),
    move: (what, x, y) =>
      set(what, [x, y].map((part) => {
        const fine = isTip(what) ? 10 : 1 / STEP;
        return Math.round((part / HALF) * range * fine) / fine;
      })),
  });
  made.node.addEventListener("keydown", (event) => {
    const what = /** @type {any} */ (event.target).closest('[role="slider"]');
    const by = BY_KEY[event.key];
    if (!what || !by) return;
    event.preventDefault();
    const old = isTip(what) ? scene.found.query : scene.found.x[scene.words.indexOf(what.dataset.word)];
    set(what, old.map((x, i) => x + STEP * by[i]));
  });

  function draw(next) {
    scene = next;
    const { step, words } = scene;
    const needed = neededRange(scene);
    const now = JSON.stringify([words, step, scene.bug]);
    if (now !== key || needed > range) range = needed;
    key = now;
    made.node.dataset.step = String(step);
    const points = pointsOf(scene).map(at);
    put(made.frame, { "aria-label": picture(scene) });
    const groups = drawWords(made, given, scene, points, at);
    drawQuery(made, scene, at);
    const named = drawRegions(made, given, scene, range, at);
    const more = drawOutput(made, scene, points, at);
    nameAll(made, scene, { ...groups, ...more, named, range, size }, at);
  }
  // However small the plane is, its names can be read.
  new ResizeObserver(([{ contentRect }]) => {
    const needed = Math.max(LETTERS, (SMALLEST * SIDE) / (contentRect.width || SIDE));
    made.node.style.fontSize = `${needed}px`;
    if (needed === size) return;
    size = needed;
    draw(scene);
  }).observe(made.node);
  return { node: made.node, draw };
}

// What a step shows, in words.
function picture(scene) {
  const { words, found, step, given } = scene;
  const points = pointsOf(scene).map((point, i) => `${words[i]} ${pair(point)}`);
  if (step === 6) return `${points.pop()}, with the output ${pair(found.after)}, region of ${given.answers[largest(found.answers)]}`;
  const more = step === 5 ? `, output ${pair(found.output)}` : step > 1 ? `, query ${pair(found.query)}` : "";
  return `${KINDS[step]}s: ${points.join(", ")}${more}`;
}

// Dots of the sentence, and faint ones of the words that it does not have.
function drawWords(made, given, { words, found, step, vectors }, points, at) {
  const last = words.length - 1;
  const isMine = given.words.map((word) => words.indexOf(word));
  const weightOf = (word) => words.reduce((total, one, i) => total + (one === word ? Math.abs(found.weights[i]) : 0), 0);
  const kind = KINDS[step];
  given.words.forEach((word, i) => {
    const [dot, mine] = [made.dots[i], isMine[i]];
    const place = mine >= 0 ? points[mine] : at(vectors[i]);
    const shown = mine >= 0 ? step < 6 || word === words[last] : step === 1;
    moveTo(dot, place);
    show(dot, shown);
    dot.classList.toggle("stage-faint", mine < 0);
    dot.classList.toggle("stage-asks", word === words[last]);
    if (mine >= 0) dot.setAttribute("data-part", `${kind}:${word}`);
    else dot.removeAttribute("data-part");
    const radius = mine < 0 ? 3 : step === 4 || step === 5 ? 4 + 9 * Math.min(weightOf(word), 1) : 6;
    dot.lastElementChild.setAttribute("r", String(radius));
    handle(dot, mine >= 0 && step === 1, `Vector of ${word}: arrow keys move it`, found.x[mine]);
  });
  return { isMine, points };
}

function drawQuery(made, { words, found, step }, at) {
  const on = step >= 2 && step <= 4;
  const end = at(found.query);
  put(made.query, { d: line(at([0, 0]), end) });
  moveTo(made.tip, end);
  for (const node of [made.query, made.tip]) show(node, on);
  handle(made.tip, on, `Query of ${words[words.length - 1]}: arrow keys move it`, found.query);
  const square = dot(found.query, found.query);
  const along = on && step >= 3 && square > 0;
  const far = found.query.map((part) => (part * 1e3) / Math.sqrt(square || 1));
  put(made.line, { d: line(at(far), at(far.map((part) => -part))) });
  show(made.line, along);
  made.drops.forEach((drop, i) => {
    const word = made.dots[i].dataset.word;
    const mine = words.indexOf(word);
    show(drop, along && mine >= 0);
    if (mine < 0) return;
    const vector = found.keys[mine];
    const share = dot(vector, found.query) / (square || 1);
    const foot = at(found.query.map((part) => part * share));
    put(drop, { d: line(at(vector), foot), "data-part": `score:${word}` });
  });
}

function drawRegions(made, given, { found, step }, range, at) {
  const best = largest(found.answers);
  /** @type {any[]} */
  const wanted = [];
  given.answers.forEach((_, i) => {
    const corners = region(given.U, i, EDGE * range);
    const big = corners.length > 2 && area(corners) > range * range * 0.02;
    show(made.regions[i], step === 6 && corners.length > 2);
    show(made.regionNames[i], false);
    made.regions[i].classList.toggle("stage-best", i === best);
    made.regionNames[i].classList.toggle("stage-best", i === best);
    if (!big || step < 6) return;
    put(made.regions[i], { d: `${line(...corners.map(at))}Z` });
    const edges = corners.flatMap((corner, k) => along(at(corners.at(k - 1)), at(corner)));
    wanted.push({ node: made.regionNames[i], words: [given.answers[i]], spots: within(corners).map(at), must: i === best, edges });
  });
  return wanted;
}

// Places in a region for its name, from its middle on.
function within(corners) {
  const middle = [0, 1].map((j) => corners.reduce((sum, corner) => sum + corner[j], 0) / corners.length);
  const towards = (corner, share) => middle.map((x, j) => x + share * (corner[j] - x));
  const spots = [0.25, 0.4, 0.55].flatMap((share) => corners.map((corner) => towards(corner, share)));
  return [middle, ...spots];
}

// Points along a line, which names keep clear of.
function along([a, b], [c, d]) {
  return [0.15, 0.3, 0.45, 0.6, 0.75, 0.9].map((share) => ({ spot: [a + share * (c - a), b + share * (d - b)], radius: 4 }));
}

function drawOutput(made, { words, found, step }, points, at) {
  const to = at(step === 6 ? found.after : found.output);
  const last = at(found.x[words.length - 1]);
  moveTo(made.output, to);
  show(made.output, step >= 5);
  made.pulls.forEach((pull, i) => {
    const mine = words.indexOf(made.dots[i].dataset.word);
    show(pull, step === 5 && mine >= 0);
    if (mine < 0) return;
    put(pull, { d: line(points[mine], to) });
    pull.style.strokeWidth = `${1 + 6 * Math.min(Math.abs(found.weights[mine]), 1)}px`;
  });
  put(made.asking, { d: line(at([0, 0]), last) });
  put(made.adding, { d: line(last, at(found.after)) });
  for (const node of [made.asking, made.adding]) show(node, step === 6);
  return { output: to };
}

// Words at one place share a name; names keep clear of points and of each other.
function nameAll(made, { words, step, found, vectors }, { isMine, points, output, named, range, size }, at) {
  const last = words[words.length - 1];
  const hasRoom = size < CROWDED;
  const wanted = [];
  const dots = [];
  made.names.forEach((name, i) => {
    const word = made.dots[i].dataset.word;
    const mine = isMine[i];
    const shown = mine >= 0 ? step < 6 || word === last : step === 1;
    name.classList.toggle("stage-faint", mine < 0);
    show(name, false);
    if (!shown) return;
    const spot = mine >= 0 ? points[mine] : at(vectors[i]);
    const faint = mine < 0;
    const near = wanted.find((one) => one.faint === faint && Math.hypot(one.spot[0] - spot[0], one.spot[1] - spot[1]) < 7);
    if (near) near.words.push(word);
    else wanted.push({ node: name, spot, words: [word], faint, must: !faint });
    if (!near) dots.push({ spot, radius: Number(made.dots[i].lastElementChild.getAttribute("r")) });
  });
  wanted.sort((a, b) => Number(a.faint) - Number(b.faint));
  const query = step >= 2 && step <= 4 ? at(found.query) : null;
  if (query) {
    wanted.unshift({ node: made.queryName, spot: query, words: ["query"], must: true });
    dots.push({ spot: query, radius: 9 }, ...along(at([0, 0]), query));
  }
  show(made.queryName, Boolean(query));
  if (step >= 5) {
    wanted.unshift({ node: made.outputName, spot: output, words: [step === 6 ? `${last} + output` : "output"], must: true });
    dots.push({ spot: output, radius: 10 });
  }
  if (step === 5) dots.push(...points.flatMap((point) => along(point, output)));
  if (step === 6) dots.push(...along(points[words.length - 1], output), ...named.flatMap(({ edges }) => edges));
  // Beside the axis across a name would read as if it had a minus.
  dots.push(...along([0, MIDDLE], [SIDE, MIDDLE]), ...along([MIDDLE, MIDDLE], [0, MIDDLE]));
  show(made.outputName, step >= 5);
  const scale = `axes to ±${short(range)}`;
  wanted.unshift({ node: made.scale, spots: [[SIDE - 8 - scale.length * size * 0.23, SIDE - 1.6 * size]], words: [scale], must: hasRoom });
  for (const one of named) one.must ||= hasRoom;
  placeLabels([...wanted, ...named], dots, SIDE, size, ({ node, words: texts }, spot) => {
    show(node, Boolean(spot));
    if (!spot) return;
    write(node, texts.join(", "));
    moveTo(node, spot);
  });
}
