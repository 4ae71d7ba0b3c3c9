// A story before and after layer 0: the lines of one head of layer 0 between its words, and the arcs
// with which the last word asks in layer 1. What a step is about is drawn from that step on.

import { drawing } from "./elements.js";
import { range } from "./mathematics.js";
import { show } from "./text.js";

const [WIDE, HIGH, TOP, BOTTOM] = [400, 412, 40, 380]; // of the drawing, and of its rows of words
const [BEFORE, FROM, TO, AFTER, FITS, KEY] = [58, 64, 156, 166, 210, 274]; // from left to right
const SEEN = 0.1; // the least weight that has a line
const FOUND = 2; // the step at which the last word asks

/** @typedef {{ words: string[], places: number[], back: Matrix, arcs: number[], fits: boolean[],
 *   names: string[], predicted: string, chance: number, right: boolean, silent: boolean,
 *   heads: number[], step: number, steps: string[] }} Scene */

/** @type {(x: number, y: number, said: string, kind?: string, anchor?: string) => SVGElement} */
const text = (x, y, said, kind = "", anchor = "start") =>
  drawing("text", { x, y, class: kind, "text-anchor": anchor }, said);

// What each step is about: its place in the drawing, and its name there. Those to come are outlined.
/** @type {(scene: Scene) => SVGElement[]} */
function regions({ heads, step, steps }) {
  const boxes = [[FROM - 3, 2, TO + 4], [TO + 6, 2, KEY + 8], [KEY + 10, 2, WIDE - 1], [TO + 6, BOTTOM + 2, WIDE - 1]];
  const where = [`layer 0, head ${heads[0]}`, "after layer 0", `layer 1, head ${heads[1]}`];
  return boxes.flatMap(([left, top, right], i) => {
    const coming = i > step ? " pair-coming" : "";
    const height = top === 2 ? BOTTOM - 2 : HIGH - BOTTOM - 3;
    const box = { rx: 6, x: left, y: top, width: right - left, height };
    const kind = `pair-title pair-title-${i + 1}${coming}`;
    const name = `${i + 1} ${steps[i]}`;
    return [
      ...(i < step ? [] : [drawing("rect", { class: `pair-region${coming}`, ...box })]),
      ...(where[i]
        ? [
            text((left + right) / 2, 17, name, `${kind} pair-step`, "middle"),
            text((left + right) / 2, 32, where[i], kind, "middle"),
          ]
        : [text(TO - 2, BOTTOM + 21, name, `${kind} pair-step`, "end")]),
    ];
  });
}

/** @type {(scene: Scene) => SVGElement[]} */
export function parts(scene) {
  const { words, places, back, arcs, fits, names, predicted, chance, right, silent, step } = scene;
  const high = (BOTTOM - TOP) / words.length;
  const level = (i) => TOP + high * (i + 0.5);
  const last = words.length - 1;
  const lines = back.flatMap((line, i) =>
    line.flatMap((weight, j) => {
      if (j > i || weight < SEEN) return [];
      const kind = places.includes(i) ? `pair-back${silent ? " pair-silent" : ""}` : "pair-else";
      const ends = { x1: FROM, y1: level(j), x2: TO, y2: level(i) };
      const width = (kind === "pair-else" ? 1.5 : 5) * weight;
      return [drawing("line", { class: kind, ...ends, "stroke-width": Math.max(1, width).toFixed(2) })];
    }),
  );
  const curves = arcs.flatMap((weight, j) => {
    if (weight < SEEN) return [];
    const out = KEY + 6 + 40 + (110 * (last - j)) / last;
    const d = `M${KEY + 6} ${level(last)}C${out} ${level(last)} ${out} ${level(j)} ${KEY + 6} ${level(j)}`;
    return [drawing("path", { class: "pair-found", d, "stroke-width": (1 + 5 * weight).toFixed(2) })];
  });
  const asks = (i) => (i === last && step >= FOUND ? "pair-asks" : places.includes(i) ? "pair-key" : "");
  const columns = words.flatMap((word, i) => [
    text(BEFORE, level(i) + 5, word, "", "end"),
    text(AFTER, level(i) + 5, word, asks(i)),
  ]);
  const dots = range(words.length).map((i) =>
    drawing("circle", { class: places.includes(i) ? "pair-dot pair-full" : "pair-dot", cx: KEY, cy: level(i), r: places.includes(i) ? 4.5 : 2 }),
  );
  const tags = places.map((i, k) =>
    text(FITS, level(i) + 5, fits[k] ? names[k] : `✗ ${names[k]}`, "pair-tag"),
  );
  const said = text(AFTER, BOTTOM + 21, `${predicted}  ${show(chance, 2)}  ${right ? "✓" : "✗"}`, "pair-next");
  const brought = [[...lines, ...columns], [...dots, ...tags], curves, [said]];
  return [...regions(scene), ...brought.slice(0, step + 1).flat()];
}

/** @type {() => { node: SVGElement, draw(scene: Scene, told: string): void }} */
export function pairDrawing() {
  const node = drawing("svg", { class: "pair-drawing", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
  return {
    node,
    draw(scene, told) {
      node.replaceChildren(...parts(scene));
      node.setAttribute("aria-label", told);
    },
  };
}
