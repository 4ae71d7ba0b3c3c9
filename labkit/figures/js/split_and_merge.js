import { able, beside, button, choice, slider } from "./controls.js";
import { COLOURS, shade } from "./drawings.js";
import { element, keepLines, row, spoken, tell, write } from "./elements.js";
import { matmul, softmax, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { numbered, show } from "./text.js";
import { View } from "./view.js";

const [HEADS, WIDTH] = [2, 2];
const TOO_SMALL = 1e-9;
const [STRAIGHT, NEVER, NOT_BACK] = ["straight into heads", "never moved", "not moved back"];
const NAMES = ["as projected", "cut", "move", "attend", "move back", "join"];
const RIGHT = [
  "The values X W_V: a row is a word.",
  "unflatten: each row is cut into its two heads, and no number moves.",
  "transpose: heads stand before words, so that each head has all five words.",
  "attention: each head by itself, with its own weights.",
  "transpose: words stand before heads again.",
  "flatten: the two heads of each word are joined.",
];
// Where a mistake does something else than the right way.
/** @type {Record<string, Record<number, string>>} */
const WRONG = {
  [STRAIGHT]: {
    1: "view: the storage is cut straight into two heads of five rows, which are taken for words.",
    2: "No transpose: the shape is right already.",
  },
  [NEVER]: {
    2: "No transpose: words stay before heads.",
    3: "attention: the rows that attend to each other are the two heads of one word.",
    4: "No transpose: words are in front already.",
  },
  [NOT_BACK]: {
    4: "No transpose: heads stay before words.",
    5: "reshape: the numbers are joined as they lie, two rows of one head to a word.",
  },
};

// A number, the column of the projection that it comes from, and its place in storage.
/** @typedef {{ x: number, from: number, place: number }} Entry */
// Blocks of rows; `first` says whether blocks are words or heads. Without it, a row is a word.
/** @typedef {{ first?: "word" | "head", blocks: Entry[][][] }} Layout */

/** @type {<T>(list: T[], size: number) => T[][]} */
function chunk(list, size) {
  const count = list.length / size;
  return Array.from({ length: count }, (_, i) => list.slice(i * size, (i + 1) * size));
}

/** @type {(layout: Layout) => Layout} */
const move = ({ first, blocks }) => ({
  first: first === "word" ? "head" : "word",
  blocks: transpose(blocks),
});

/** @type {(rows: number[][], mistake: string | null) => { cut: Layout, moved: Layout }} */
function split(rows, mistake) {
  const entries = rows.map((line, i) =>
    line.map((x, j) => ({ x, from: j, place: i * line.length + j + 1 })),
  );
  /** @type {Layout} */
  const cut =
    mistake === STRAIGHT
      ? { first: "head", blocks: chunk(chunk(entries.flat(), WIDTH), rows.length) }
      : { first: "word", blocks: entries.map((line) => chunk(line, WIDTH)) };
  return { cut, moved: mistake === STRAIGHT || mistake === NEVER ? cut : move(cut) };
}

// The layout after each step: of values, and from the fourth on of what heads put out.
/** @type {(given: Record<string, any>, x: Matrix, mistake: string | null) => Layout[]} */
function walk(given, x, mistake) {
  const [q, k, v] = ["W_Q", "W_K", "W_V"].map((name) => split(matmul(x, given[name]), mistake));
  const numbers = (rows) => rows.map((line) => line.map((entry) => entry.x));
  const attended = {
    first: v.moved.first,
    blocks: v.moved.blocks.map((rows, b) => {
      const [queries, keys] = [q, k].map(({ moved }) => numbers(moved.blocks[b]));
      const scores = matmul(queries, transpose(keys));
      const weights = scores.map((line) => softmax(line.map((score) => score / Math.sqrt(WIDTH))));
      return matmul(weights, numbers(rows)).map((line, i) =>
        line.map((sum, j) => ({ ...rows[i][j], x: sum })),
      );
    }),
  };
  const back = mistake === NEVER || mistake === NOT_BACK ? attended : move(attended);
  const joined = { blocks: [chunk(back.blocks.flat(2), HEADS * WIDTH)] };
  const start = { blocks: [v.cut.blocks.flat(2)].map((all) => chunk(all, HEADS * WIDTH)) };
  return [start, v.cut, v.moved, attended, back, joined];
}

// What whoever reads a layout takes for column `c` of a head of a word.
/** @type {(layout: Layout, word: number, head: number, c: number) => Entry} */
function taken({ first, blocks }, word, head, c) {
  if (!first) return blocks[0][word][head * WIDTH + c];
  return first === "word" ? blocks[word][head][c] : blocks[head][word][c];
}

/** @type {(layout: Layout, block: number, row: number, column: number) => [number, number, number]} */
function read({ first }, b, i, c) {
  if (!first) return [i, Math.floor(c / WIDTH), c % WIDTH];
  return first === "word" ? [b, i, c] : [i, b, c];
}

/** @type {(layout: Layout) => string} */
function sizes({ first, blocks }) {
  const shape = [blocks.length, blocks[0].length, blocks[0][0].length];
  return `(${shape.slice(first ? 0 : 1).join(", ")})`;
}

/** @type {(words: number) => Part & { draw(layout: Layout, right: Layout, words: string[], title: string, text: string): void }} */
function side(most) {
  const [heading, note] = [element("p", { class: "live-side-title" }), keepLines(element("p"), 4)];
  const tables = Array.from({ length: most }, coloured);
  const shown = element("div", { class: "live-row live-blocks" });
  return {
    node: element("div", { class: "live-side" }, heading, note, shown),
    draw(layout, right, words, title, text) {
      const { first, blocks } = layout;
      const heads = numbered(HEADS).map((i) => `head ${i}`);
      write(heading, `${title} ${sizes(layout)}`);
      tell(note, text);
      blocks.forEach((rows, b) => {
        tables[b].draw({
          label: first ? (first === "word" ? words : heads)[b] : "all words",
          rows: first === "word" ? heads : words,
          columns: numbered(rows[0].length),
          text(i, c) {
            const { x } = rows[i][c];
            const isWrong = Math.abs(x - taken(right, ...read(layout, b, i, c)).x) > TOO_SMALL;
            return `${show(x, 2)}${isWrong ? "×" : ""}`;
          },
          fill: (i, c) => shade(0.6, COLOURS[Math.floor(rows[i][c].from / WIDTH)]),
        });
      });
      const nodes = tables.slice(0, blocks.length).map(({ node }) => node);
      if (shown.children.length !== nodes.length) shown.replaceChildren(...nodes);
    },
  };
}

// Of the cut storage: which places each head reads, in its order.
/** @type {(layout: Layout) => string} */
function reads(layout) {
  const { blocks, first } = layout;
  if (first !== "head") return "";
  const each = blocks.map((rows, i) => `head ${i + 1} reads ${rows.flat().map(({ place }) => place).join(", ")}`);
  return ` Of storage, ${each.join("; ")}.`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const given = view.get("given");
  const [rightSide, wrongSide] = [side(5), side(5)];
  const [told, storage] = [spoken([2, 4]), element("ul", { class: "live-strip" })];
  const last = NAMES.length - 1;
  const by = (change) => () => {
    view.set("step", Math.min(Math.max(view.get("step") + change, 0), last));
  };
  const [back, next] = [button("Step back", by(-1)), button("Next step", by(1))];

  function draw() {
    const [sentence, step, mistake] = ["sentence", "step", "mistake"].map((trait) => view.get(trait));
    const [x, words] = [given.inputs[sentence], sentence.split(" ")];
    const [right, wrong] = [walk(given, x, null), walk(given, x, mistake)];
    const here = [right[step], wrong[step]];
    const note = (layout, text) => (step === 1 || step === 2 ? text + reads(layout) : text);
    rightSide.draw(here[0], here[0], words, "Right:", note(here[0], RIGHT[step]));
    wrongSide.draw(here[1], here[0], words, `Mistake, ${mistake}:`, note(here[1], WRONG[mistake][step] ?? RIGHT[step]));
    able(back, step > 0);
    able(next, step < last);
    const items = right[0].blocks[0].flatMap((line, i) =>
      line.map((entry, j) => {
        const item = element("li", {}, `${j ? "" : `${words[i]} `}${show(entry.x, 2)}`);
        item.style.background = shade(0.6, COLOURS[Math.floor(j / WIDTH)]);
        return item;
      }),
    );
    storage.replaceChildren(...items);
    const places = words.flatMap((_, word) => numbered(HEADS).flatMap((_, head) => numbered(WIDTH).map((_, c) => [word, head, c])));
    const count = places.filter(([word, head, c]) =>
      Math.abs(taken(here[0], word, head, c).x - taken(here[1], word, head, c).x) > TOO_SMALL,
    ).length;
    const answers = [right, wrong].map((steps) => {
      const sum = x[x.length - 1].map((one, i) => one + steps[last].blocks[0][x.length - 1][i].x);
      return softmax(matmul([sum], given.U)[0]);
    });
    const says = answers.map((p) => {
      const most = Math.max(...p);
      return `${given.answers[p.indexOf(most)]} with ${show(most, 2)}`;
    });
    told.say(
      `Step ${step} of ${last}: ${NAMES[step]}. With the mistake, ${count} of ${places.length} numbers ` +
        `are not what they should be. In the end the layer answers ${says[1]}, and rightly ${says[0]}.`,
    );
    const flat = ({ blocks }) => blocks.flat().map((line) => line.map((entry) => entry.x));
    view.values({
      right: flat(here[0]), wrong: flat(here[1]), "numbers that are wrong": count, answers,
    });
  }

  view.add(
    row(choice(view, "sentence", { label: "Sentence" }), choice(view, "mistake", { label: "Mistake" })),
    row(slider(view, "step", { label: "Step" }), back, next),
    told.node,
    element("p", {}, "The values as they lie in storage, word after word:"),
    storage,
    ...beside(["Right", "Mistake"], [rightSide.node, wrongSide.node]),
  );
  view.follow(["sentence", "step", "mistake"], draw);
  return view.close;
}

export default { render };
