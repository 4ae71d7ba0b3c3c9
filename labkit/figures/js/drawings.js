// What is drawn: bars, and weights as a map. A head keeps its colour.

import { drawing, element, tell, write } from "./elements.js";

// Of heads 1 to 4, or of what else is told apart.
/** @type {Colour[]} */
export const COLOURS = ["blue", "orange", "green", "pink"];

// A background for a share from 0 to 1, light enough to read on in either theme.
/** @type {(share: number, colour?: Colour) => string} */
export function shade(share, colour = "blue") {
  return `color-mix(in srgb, var(--live-${colour}) ${(50 * share).toFixed(1)}%, transparent)`;
}

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
      tell(label, title);
      if (drawn.children.length !== values.length) {
        const bar = () => element("div", {}, element("b"), element("i"), element("span"));
        drawn.replaceChildren(...values.map(bar));
      }
      drawn.setAttribute("aria-label", told);
      values.forEach((x, i) => {
        const column = /** @type {HTMLElement} */ (drawn.children[i]);
        const [text, , below] = column.children;
        write(text, texts?.[i] ?? "");
        write(below, names[i]);
        column.style.setProperty("--share", String(most ? x / most : 0));
      });
    },
  };
}

// Of a weight that is drawn in a map.
export const STEPS = 255;

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

// Where names would lie on each other, the chosen one and every so many are shown.
/** @type {(texts: SVGElement[], chosen: number, every?: number) => void} */
export function mark(texts, chosen, every = 1) {
  texts.forEach((text, i) => {
    const isCrowded = i % every > 0 || Math.abs(i - chosen) < every;
    text.classList.toggle("live-chosen", i === chosen);
    text.classList.toggle("live-crowded", i !== chosen && isCrowded);
  });
}

// How much room words take beside a drawing.
/** @type {(words: string[]) => number} */
export function roomFor(words) {
  return 7.5 * Math.max(...words.map((word) => word.length)) + 12;
}

const LINE = 11; // the least height of a cell beside which each word stands

// A head's weights as a map, whose cells and words choose a query and a key.
/** @type {MakeWeightMap} */
export function weightMap(tokens, { side, room, select, point = () => {} }) {
  const wide = room + side;
  const step = side / tokens.length;
  const start = (i) => room + step * i;
  const line = (i) => start(i) + step / 2 + 4;
  const every = Math.ceil(LINE / step);
  const left = labels(tokens, (i) => ({ x: room - 6, y: Math.min(line(i), wide - 2), "text-anchor": "end" }));
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
  const size = { class: every > 1 ? "live-dense" : "", viewBox: `0 0 ${wide} ${wide}`, width: wide, height: wide };
  return {
    node: drawing("svg", { ...size, role: "img" }, ...cells.flat(), ...left, ...top),
    draw(weights, query, key) {
      cells.forEach((across, i) =>
        across.forEach((cell, j) => {
          cell.setAttribute("fill-opacity", String(weights[i][j]));
          cell.classList.toggle("live-chosen", i === query && j === key);
        }),
      );
      mark(left, query, every);
      mark(top, key, every);
    },
  };
}
