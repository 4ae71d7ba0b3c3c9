// Machines that send messages: steps back and forth, boxes, arrows, and what moves along them.

import { counter, stepper } from "./controls.js";
import { drawing, element } from "./elements.js";
import { sum } from "./mathematics.js";

const STEP = 2000; // when it plays, in milliseconds
const TRAVEL = 1000; // of a message

/** @typedef {[number, number]} Point */
// Left, top, width and height.
/** @typedef {[number, number, number, number]} Frame */

// Buttons that go to the step before, to the next, and on by itself. `span` gives the first step
// and the last, `now` the one that is shown.
/** @type {(view: View, given: { label: string, now(): number, span(): number[] }) =>
 *   { nodes: HTMLElement[], draw(): void, stop(): void }} */
export function steps(view, { label, now, span }) {
  const { nodes, draw, stop } = stepper({
    go: (by) => view.set("step", now() + by),
    begin: () => view.set("step", span()[0]),
    every: STEP,
  });
  // The page itself keeps the step inside.
  view.body.addEventListener("change", () => {
    if (view.get("step") !== now()) view.set("step", now());
  });
  return {
    nodes: [
      counter(view, "step", { label }),
      element("span", { class: "live-control" }, ...nodes),
    ],
    draw: () => draw(now() > span()[0], now() < span()[1]),
    stop,
  };
}

/** @type {(...nodes: Node[]) => HTMLElement} */
export const controls = (...nodes) =>
  element("div", { class: "live-row machines-controls" }, ...nodes);

/** @type {(kind: string, x: number, y: number, width: number, height: number, rx?: number) => SVGElement} */
export function box(kind, x, y, width, height, rx = 3) {
  return drawing("rect", { class: kind, x, y, width, height, rx });
}

/** @type {(text: string, x: number, y: number, kind?: string) => SVGElement} */
export function word(text, x, y, kind = "") {
  return drawing("text", { class: kind, x, y }, text);
}

// A line through points with a head at its end.
/** @type {(points: Point[]) => SVGElement} */
export function arrow(points) {
  const [[x0, y0], [x, y]] = points.slice(-2);
  const long = Math.hypot(x - x0, y - y0) || 1;
  const [u, v] = [(x - x0) / long, (y - y0) / long];
  const tip = (side) => `${x - 7 * u - 4.5 * side * v} ${y - 7 * v + 4.5 * side * u}`;
  const shaft = [...points.slice(0, -1), [x - 5 * u, y - 5 * v]];
  return drawing(
    "g",
    { class: "machines-arrow" },
    drawing("path", { d: `M${shaft.map((point) => point.join(" ")).join("L")}`, class: "machines-shaft" }),
    drawing("path", { d: `M${tip(1)}L${x} ${y}L${tip(-1)}z` }),
  );
}

// Let a part come along points to its place, the last of them; then it is taken away. Between the
// first point and the last it is as small as `scale` says.
/** @type {(node: SVGElement, points: Point[], scale?: number) => void} */
export function travel(node, points, scale = 1) {
  const [x0, y0] = points[points.length - 1];
  const lengths = points.map(([x, y], i) => {
    const [before, above] = points[Math.max(i - 1, 0)];
    return Math.hypot(x - before, y - above);
  });
  const gone = points.map((_, i) => sum(lengths.slice(0, i + 1)));
  const whole = gone[gone.length - 1] || 1;
  const frames = points.map(([x, y], i) => {
    const size = i % (points.length - 1) ? scale : 1;
    return {
      transform: `translate(${x - x0}px, ${y - y0}px) scale(${size})`,
      offset: i === points.length - 1 ? 1 : gone[i] / whole,
    };
  });
  node.classList.add("machines-travels");
  node.animate(frames, { duration: TRAVEL, easing: "ease-in-out" }).onfinish = () => node.remove();
}

// Let a part that depends on a message appear when the message has come.
/** @type {(node: SVGElement) => void} */
export function appear(node) {
  node.animate([{ opacity: 0 }, { opacity: 0, offset: 0.75 }, { opacity: 1 }], TRAVEL / 0.75);
}
