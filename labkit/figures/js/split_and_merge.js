import { able, button, choice, slider } from "./controls.js";
import { COLOURS, shade } from "./drawings.js";
import { element, row, spoken, write } from "./elements.js";
import { mean, sum, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { numbered, show } from "./text.js";
import { View } from "./view.js";

const [TOKENS, WIDTH] = [4, 6];
const TOO_SMALL = 1e-9;
const [STRAIGHT, NEVER, NOT_BACK] = ["straight into heads", "never moved", "not moved back"];
const NAMES = ["as projected", "cut", "move", "attend", "move back", "join"];
const RIGHT = [
  "A row is a token.",
  "view: each row is cut into heads, and no number moves.",
  "transpose: heads stand before tokens, so that each head holds all tokens.",
  "attention: in each head a token becomes the mean of itself and of those before it.",
  "transpose: tokens stand before heads again.",
  "reshape: the heads of each token are joined.",
];
// Where a mistake does something else than the right way.
/** @type {Record<string, Record<number, string>>} */
const WRONG = {
  [STRAIGHT]: {
    1: "view: the storage is cut straight into heads of four rows, which are taken for tokens.",
    2: "No transpose: the shape is right already.",
  },
  [NEVER]: {
    2: "No transpose: tokens stay before heads.",
    3: "attention: the rows that attend to each other are the heads of one token.",
    4: "No transpose: tokens are in front already.",
  },
  [NOT_BACK]: {
    4: "No transpose: heads stay before tokens.",
    5: "reshape: the numbers are joined as they lie, so that a row comes from a single head.",
  },
};

// A number remembers what it holds of each token.
/** @typedef {{ x: number, shares: number[] }} Entry */
/** @type {Entry[][]} */
const start = Array.from({ length: TOKENS }, (_, t) =>
  Array.from({ length: WIDTH }, (_, c) => ({
    x: 10 * (t + 1) + c + 1,
    shares: COLOURS.map((_, token) => Number(token === t)),
  })),
);

/** @type {(rows: Entry[][]) => Entry[][]} */
function meanOfPast(rows) {
  return rows.map((line, i) =>
    line.map((_, c) => {
      const past = rows.slice(0, i + 1).map((earlier) => earlier[c]);
      const shares = COLOURS.map((_, token) => mean(past.map((one) => one.shares[token])));
      return { x: mean(past.map(({ x }) => x)), shares };
    }),
  );
}

/** @type {<T>(list: T[], size: number) => T[][]} */
function chunk(list, size) {
  const count = list.length / size;
  return Array.from({ length: count }, (_, i) => list.slice(i * size, (i + 1) * size));
}

// Blocks of rows: `first` says whether the blocks are tokens or heads. Without it, there is one.
/** @typedef {{ first?: string, blocks: Entry[][][] }} Layout */
/** @type {(h: number, mistake: string | null) => Layout[]} */
function walk(h, mistake) {
  const width = WIDTH / h;
  const move = ({ first, blocks }) => ({
    first: first === "token" ? "head" : "token",
    blocks: transpose(blocks),
  });
  const cut =
    mistake === STRAIGHT
      ? { first: "head", blocks: chunk(chunk(start.flat(), width), TOKENS) }
      : { first: "token", blocks: start.map((line) => chunk(line, width)) };
  const moved = mistake === STRAIGHT || mistake === NEVER ? cut : move(cut);
  const attended = { first: moved.first, blocks: moved.blocks.map(meanOfPast) };
  const back = mistake === NEVER || mistake === NOT_BACK ? attended : move(attended);
  const joined = { blocks: [chunk(back.blocks.flat(2), WIDTH)] };
  return [{ blocks: [start] }, cut, moved, attended, back, joined];
}

// Does a number hold some of a token beyond the position where it stands?
/** @type {(layout: Layout, block: number, row: number, column: number) => boolean} */
function fromFuture({ first, blocks }, b, i, c) {
  const position = first === "token" ? b : i;
  return blocks[b][i][c].shares.some((share, token) => token > position && share > TOO_SMALL);
}

/** @type {(layout: Layout) => number} */
function countFuture(layout) {
  const each = layout.blocks.map((rows, b) =>
    rows.map((line, i) => line.filter((_, c) => fromFuture(layout, b, i, c)).length),
  );
  return sum(each.flat());
}

// Bands as wide as the shares.
/** @type {(shares: number[]) => string} */
function bands(shares) {
  let from = 0;
  const stops = shares.map((share, token) => {
    const to = from + 100 * share;
    const stop = `${shade(0.7, COLOURS[token])} ${from}% ${to}%`;
    from = to;
    return stop;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

/** @type {(layout: Layout) => string} */
function sizes({ first, blocks }) {
  const shape = [blocks.length, blocks[0].length, blocks[0][0].length];
  return `(${shape.slice(first ? 0 : 1).join(", ")})`;
}

/** @type {() => Part & { draw(layout: Layout, title: string, text: string): void }} */
function side() {
  const [heading, note] = [element("p", { class: "live-side-title" }), element("p")];
  const tables = Array.from({ length: TOKENS }, coloured);
  const shown = element("div", { class: "live-row live-blocks" });
  return {
    node: element("div", { class: "live-side" }, heading, note, shown),
    draw(layout, title, text) {
      const { first, blocks } = layout;
      write(heading, `${title} ${sizes(layout)}`);
      write(note, text);
      const second = first === "token" ? "head" : "token";
      blocks.forEach((rows, b) => {
        tables[b].draw({
          label: first ? `${first} ${b + 1}` : "all tokens",
          rows: rows.map((_, i) => `${second} ${i + 1}`),
          columns: numbered(rows[0].length),
          text(i, c) {
            const { x } = rows[i][c];
            const number = show(x, Number.isInteger(x) ? 0 : 1);
            return fromFuture(layout, b, i, c) ? `${number}×` : number;
          },
          fill: (i, c) => bands(rows[i][c].shares),
        });
      });
      const nodes = tables.slice(0, blocks.length).map(({ node }) => node);
      if (shown.children.length !== nodes.length) shown.replaceChildren(...nodes);
    },
  };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const [rightSide, wrongSide] = [side(), side()];
  const told = spoken();
  const last = NAMES.length - 1;
  const by = (change) => () => {
    view.set("step", Math.min(Math.max(view.get("step") + change, 0), last));
  };
  const [back, next] = [button("Step back", by(-1)), button("Next step", by(1))];

  function draw() {
    const [h, step, mistake] = ["h", "step", "mistake"].map((trait) => view.get(trait));
    const [right, wrong] = [walk(h, null), walk(h, mistake)];
    const here = [right[step], wrong[step]];
    rightSide.draw(here[0], "Right:", RIGHT[step]);
    wrongSide.draw(here[1], `Mistake, ${mistake}:`, WRONG[mistake][step] ?? RIGHT[step]);
    able(back, step > 0);
    able(next, step < last);
    const future = here.map(countFuture);
    const ends = [right, wrong].map((steps) => steps[last].blocks.flat(2));
    const differing = ends[0].filter(({ x }, i) => Math.abs(x - ends[1][i].x) > TOO_SMALL).length;
    told.say(
      `Step ${step} of ${last}: ${NAMES[step]}. With the mistake, ${future[1]} of ` +
        `${ends[0].length} numbers now hold something from their future, and ${differing} will ` +
        "end up wrong.",
    );
    const flat = ({ blocks }) => blocks.flat().map((line) => line.map(({ x }) => x));
    view.values({
      right: flat(here[0]),
      wrong: flat(here[1]),
      "numbers from the future": future,
      "numbers that end up wrong": differing,
    });
  }

  const legend = COLOURS.map((colour, t) => {
    const item = element("li", {}, `token ${t + 1}`);
    item.style.background = shade(0.7, colour);
    return item;
  });
  view.add(
    row(choice(view, "mistake", { label: "Mistake" }), choice(view, "h", { label: "Heads" })),
    row(slider(view, "step", { label: "Step" }), back, next),
    told.node,
    element("ul", { class: "live-strip" }, ...legend),
    row(rightSide.node, wrongSide.node),
  );
  view.follow(["h", "step", "mistake"], draw);
  return view.close;
}

export default { render };
