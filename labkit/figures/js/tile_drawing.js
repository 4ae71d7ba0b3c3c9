// Attention in tiles, drawn: a tile that slides over queries and keys, and beside each query its
// sums, of which the old part shrinks where m rises, before the tile's part is added.

import { shade } from "./drawings.js";
import { element, tell, typeset, write } from "./elements.js";
import { range } from "./mathematics.js";
import { numbered, short, show } from "./text.js";
import { NOW } from "./tile_walk.js";

// One after the other, in milliseconds: the tile slides, old sums shrink, new parts are added.
const [SLIDE, SHRINK, ADD] = [450, 650, 450];
export const STEP = SLIDE + SHRINK + ADD;

// Of each pair: the sign in its cell, and the class.
const KINDS = [["", "to-come"], ["", "score"], ["·", "done"], ["×", "hidden"], ["", "skipped"]];

const shown = (factor) => show(factor, factor < 0.01 ? 4 : 2);
const share = (x, most) => `${(100 * x) / most}%`;

// A sum: dashed what it was, full what the factor leaves of it, and then the tile's parts.
function sumBar(count) {
  const [was, old] = ["was", "old"].map((kind) => element("i", { class: `tiling-${kind}` }));
  const parts = range(count).map(() => element("i"));
  const added = element("div", { class: "tiling-added" }, ...parts);
  return {
    node: element("div", { class: "tiling-bar" }, was, old, added),
    /** @type {(sum: { before: number, factor: number, terms: number[], total: number, most: number }) => void} */
    draw({ before, factor, terms, total, most }) {
      const left = before ? factor * before : 0;
      was.style.width = share(before, most);
      was.style.visibility = before && factor < 1 ? "" : "hidden";
      old.style.width = share(before, most);
      old.style.transform = `scaleX(${before ? factor : 0})`;
      added.style.left = share(left, most);
      added.style.width = share(Math.max(0, total - left), most); // rounding may leave less than 0
      parts.forEach((part, i) => {
        part.style.flexGrow = String(terms[i] ?? 0);
      });
    },
    /** @type {(factor: number, shrink: number) => Animation[]} */
    play: (factor, shrink) => [
      old.animate(
        { transform: ["scaleX(1)", `scaleX(${factor})`] },
        { delay: SLIDE, duration: shrink, easing: "ease-in-out", fill: "backwards" },
      ),
      added.animate(
        { transform: ["scaleX(0)", "scaleX(1)"] },
        { delay: SLIDE + shrink, duration: ADD, easing: "ease-out", fill: "backwards" },
      ),
    ],
  };
}

// A query's m, l and a: in words and bars while the tile is there, later as written.
function sums(n, d) {
  const [m, factor, l] = ["m", "factor", "l"].map((what) => element("span", { class: `tiling-${what}` }));
  const [bar, ...mixed] = [sumBar(n), ...range(d).map(() => sumBar(1))];
  const ofSum = element("div", { class: "tiling-sum" }, element("p", {}, m, factor), bar.node);
  bar.node.append(l);
  const ofValues = element("div", { class: "tiling-mix" }, ...mixed.map(({ node }) => node));
  const written = element("p", { class: "tiling-written" });
  return {
    nodes: [ofSum, ofValues, written],
    draw({ before, after, terms, here, done, most }) {
      for (const node of [ofSum, ofValues]) node.style.visibility = here ? "visible" : "hidden";
      tell(written, done && !here ? "✓ output a / l is written" : "");
      if (!here) return;
      const rises = before.l > 0 && after.m > before.m;
      tell(m, rises ? `m ${short(before.m)} → ${short(after.m)}` : `m ${short(after.m)}`);
      write(factor, rises ? `× ${shown(after.factor)}` : "");
      write(l, show(after.l, 2));
      l.style.left = share(Math.max(before.l, after.l), most.l);
      bar.draw({ before: before.l, factor: after.factor, terms, total: after.l, most: most.l });
      mixed.forEach((one, c) =>
        one.draw({
          before: before.mixed[c], factor: after.factor, terms: [1], total: after.mixed[c], most: most.a,
        }),
      );
    },
    play: ({ factor }, shrink) => [bar, ...mixed].flatMap((one) => one.play(factor, shrink)),
  };
}

function words({ tile, at, before, after }) {
  if (at === 0) return "Eight queries and eight keys; no tile has been taken.";
  const { top, bottom, left, right } = tile;
  const told = range(bottom - top).map((r) => {
    const [was, is] = [before[top + r], after[top + r]];
    const shrinks = was.l > 0 && is.m > was.m ? `, old sums times ${shown(is.factor)}` : "";
    return `query ${top + r + 1}: m ${short(is.m)}, l ${show(is.l, 2)}${shrinks}`;
  });
  return `The tile covers queries ${top + 1} to ${bottom} and keys ${left + 1} to ${right}. ${told.join("; ")}.`;
}

// Rows are queries; their sums stand beside them.
/** @type {(n: number, d: number) => Part & { draw(found: any, forward: boolean): void }} */
export function tiling(n, d) {
  const frame = element("div", { class: "tiling-frame" });
  const cells = range(n).map(() => range(n).map(() => element("span")));
  const pairs = element("div", { class: "tiling-pairs" }, ...cells.flat(), frame);
  const [queries, keys] = [numbered(n), numbered(n)].map((all) => all.map((i) => element("span", {}, i)));
  const rows = range(n).map(() => sums(n, d));
  const most = element("i"); // that a bar of a can show
  const node = element(
    "div",
    { class: "tiling", role: "img" },
    element("p", { class: "tiling-of-pairs" }, "Queries down, keys across"),
    element("p", {}, ...typeset("Maximum m, sum l")),
    element("p", {}, ...typeset(`Sum a, entries 1 to ${d} ↓`)),
    element("div", { class: "tiling-keys" }, ...keys),
    element("div", { class: "tiling-scale" }, element("i", {}, "0"), most),
    pairs,
    ...rows.flatMap(({ nodes }, i) => [queries[i], ...nodes]),
  );
  rows.forEach(({ nodes }, i) =>
    [queries[i], ...nodes].forEach((one) => one.style.setProperty("--row", String(i + 3))),
  );
  /** @type {Animation[]} */
  let playing = [];

  function draw(found, forward) {
    const { block_q, block_k, at, tile, scores, pairs: kinds, before, after, done, rises } = found;
    const { top, bottom, left, right } = tile;
    playing.forEach((one) => one.cancel());
    playing = [];
    const place = { x: left, y: top, wide: right - left, tall: bottom - top };
    for (const [name, x] of Object.entries(place)) frame.style.setProperty(`--${name}`, String(x));
    frame.style.visibility = at ? "visible" : "hidden";
    node.setAttribute("aria-label", words(found));
    write(most, show(found.most.a, 1));
    cells.forEach((line, i) =>
      line.forEach((cell, j) => {
        const [sign, kind] = KINDS[kinds[i][j]];
        const now = kinds[i][j] === NOW;
        const cuts = `${i % block_q ? "" : "tiling-above"} ${j % block_k ? "" : "tiling-before"}`;
        cell.className = `tiling-${kind} ${cuts}`;
        cell.style.backgroundColor = now ? shade(Math.exp(scores[i][j] - after[i].m), "weight") : "";
        write(cell, now ? short(scores[i][j]) : sign);
      }),
    );
    keys.forEach((one, j) => one.classList.toggle("tiling-here", at > 0 && j >= left && j < right));
    const shrink = rises.length ? SHRINK : 0;
    rows.forEach((row, i) => {
      const here = at > 0 && i >= top && i < bottom;
      queries[i].classList.toggle("tiling-here", here);
      const terms = scores[i].slice(left, right).map((score) => Math.exp(score - after[i].m));
      row.draw({ before: before[i], after: after[i], terms, here, done: i < done, most: found.most });
      if (here && forward) playing.push(...row.play(after[i], shrink));
    });
  }
  return { node, draw };
}
