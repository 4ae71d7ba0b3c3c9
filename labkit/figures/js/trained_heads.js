import { button, complaint, toggle } from "./controls.js";
import { COLOURS, STEPS, maskOf, shade } from "./drawings.js";
import { element, keepLines, report, row, spoken, unique, write } from "./elements.js";
import { softmax, sum } from "./mathematics.js";
import { coloured } from "./tables.js";
import { decode, linear, readTensors } from "./tensors.js";
import { show } from "./text.js";
import { View } from "./view.js";

const LETTERS = "abcdefghijklmnop"; // one for each token
const DIGITS = [8, 4, 2, 1]; // of its number, one for each sign
const LOUD = 3; // a position beside a token's signs
const LOOKS = 0.25; // the weight from which an answer has the colour of a head
const GREY = "color-mix(in srgb, currentcolor 28%, transparent)";
/** @type {(head: number, h: number) => Colour} */
const colourOf = (head, h) => (h > 1 ? COLOURS[head] : "weight"); // the only head is not head 1
const LAYERS = [
  { title: "Four heads of 8", name: "four heads", switches: ["head_1", "head_2", "head_3", "head_4"] },
  { title: "One head of 32", name: "one head", switches: ["only_head"] },
];

/** @typedef {{ wanted: number[][], answers: number[][], right: number[], weights: Matrix[] }} Run */

// ---------------------------------------------------------------- the layers

// The token that is meant at each position, around the ring.
/** @type {(n: number, offset: number) => number[]} */
const ring = (n, offset) => Array.from({ length: n }, (_, i) => (i + offset + n) % n);

// Each letter's signs and its position, which fills the width twice.
/** @type {(sequence: string) => Rows} */
function inputs(sequence) {
  const places = [...sequence].map((_, i) => i);
  return [...sequence].map((letter, i) => {
    const token = LETTERS.indexOf(letter);
    const place = places.map((j) => (i === j ? LOUD : 0));
    const signs = DIGITS.map((digit) => (token & digit ? 1 : -1));
    return new Float64Array([...signs, ...place, ...place]);
  });
}

// What labkit/models/reporters.py computes. A head that is off leaves zeros.
/** @type {(at: Record<string, Tensor>, x: Rows, on: boolean[]) => { reports: Rows, weights: Matrix[] }} */
function layer(at, x, on) {
  const through = (part, rows) =>
    linear(rows, at[`${on.length}.${part}.weight`], at[`${on.length}.${part}.bias`]);
  const qkv = through("attention.w_qkv", x);
  const width = x[0].length;
  const d_k = width / on.length;
  const found = x.map(() => new Float64Array(width));
  const weights = on.map((isOn, head) => {
    const [q, k, v] = [0, 1, 2].map((part) => {
      const start = part * width + head * d_k;
      return qkv.map((line) => line.subarray(start, start + d_k));
    });
    return q.map((query, i) => {
      const line = softmax(
        k.map((key) => query.reduce((score, one, c) => score + one * key[c], 0) / Math.sqrt(d_k)),
      );
      for (let c = 0; isOn && c < d_k; c += 1) {
        found[i][head * d_k + c] = sum(line.map((weight, j) => weight * v[j][c]));
      }
      return line;
    });
  });
  return { reports: through("read", through("attention.w_o", found)), weights };
}

/** @type {(at: Record<string, Tensor>, sequence: string, offsets: number[], on: boolean[]) => Run} */
function run(at, sequence, offsets, on) {
  const { reports, weights } = layer(at, inputs(sequence), on);
  const tokens = [...sequence].map((letter) => LETTERS.indexOf(letter));
  const wanted = offsets.map((offset) => ring(tokens.length, offset).map((j) => tokens[j]));
  const answers = offsets.map((_, relation) =>
    reports.map((line) =>
      sum(DIGITS.map((digit, sign) => (line[relation * DIGITS.length + sign] > 0 ? digit : 0))),
    ),
  );
  const right = answers.map((line, r) => line.filter((one, i) => one === wanted[r][i]).length);
  return { wanted, answers, right, weights };
}

// ---------------------------------------------------------------- parts

// A head's map, with the switch that cuts it, and what it looks at most.
function headPart(view, trait, { label, colour }) {
  const map = element("i", { role: "img" });
  map.style.setProperty("--live-head", `var(--live-${colour})`);
  const most = element("span");
  const frame = element("div", {}, map);
  const node = element("div", {}, frame, toggle(view, trait, { label }), most);
  return {
    node,
    draw(weights, { on, names, shares }) {
      const best = shares.indexOf(Math.max(...shares));
      const told = `${names[best]}: ${show(shares[best], 2)}`;
      map.style.maskImage = maskOf(weights.flat().map((x) => Math.round(STEPS * x)), weights.length);
      map.setAttribute("aria-label", `${label}, weight ${told}`);
      node.classList.toggle("live-off", !on);
      write(most, on ? told : "cut");
    },
  };
}

// A layer: its heads, and what it answers below each token.
function layerPart(view, { title, name, switches }) {
  const heads = switches.map((trait, i) =>
    headPart(view, trait, {
      label: switches.length > 1 ? `Head ${i + 1}` : "Only head",
      colour: colourOf(i, switches.length),
    }),
  );
  const table = coloured();
  table.node.classList.add("live-reports");
  const maps = element("div", { class: "live-maps" }, ...heads.map(({ node }) => node));
  const head = element("p", { class: "live-side-title" }, title);
  return {
    node: element("div", { class: "live-half" }, head, maps, table.node),
    /** @param {Run} found */
    draw({ wanted, answers, right, weights }, { sequence, names, offsets, on, shares }) {
      const n = sequence.length;
      heads.forEach((head, i) => head.draw(weights[i], { on: on[i], names, shares: shares[i] }));
      const isRight = (r, i) => answers[r][i] === wanted[r][i];
      // The colour of the head left on that looks there most, if one does.
      const filled = (r, i) => {
        const there = weights.map((map, head) => (on[head] ? map[i][ring(n, offsets[r])[i]] : 0));
        const most = Math.max(...there);
        return most < LOOKS ? GREY : shade(1, colourOf(there.indexOf(most), on.length));
      };
      table.draw({
        label: `Answers of ${name}, below each token`,
        rows: names.map((one, r) => `${one}\n${right[r]} right`),
        columns: [...sequence],
        text(r, i) {
          const answer = LETTERS[answers[r][i]];
          return isRight(r, i) ? answer : `${answer}\n≠${LETTERS[wanted[r][i]]}`;
        },
        fill: (r, i) => (isRight(r, i) ? filled(r, i) : "none"),
      });
    },
  };
}

// A sequence as text. What is none is told below it and left as it is; the old one stays.
function sequenceBox(view) {
  const id = unique();
  const n = view.get("sequence").length;
  const error = complaint();
  const hint = element("p", {}, `${n} letters from a to p: each is a token. Before the first comes the last.`);
  const count = element("span", { class: "live-control" });
  const box = element("input", {
    id,
    type: "text",
    class: "live-letters",
    inputmode: "text",
    "data-trait": "sequence",
    autocapitalize: "none",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => read(false),
    onchange: () => read(true),
  });
  const typed = () => box.value.toLowerCase().replaceAll(/\s/g, "");

  // Too few letters are a fault when the box is left: until then they may be on their way.
  function wrongWith(letters, leaving) {
    const strange = [...new Set(letters)].filter((letter) => !LETTERS.includes(letter));
    if (strange.length) {
      const told = strange.slice(0, 5).map((letter) => `“${letter}”`);
      return `${told.join(", ")}: not among the letters a to p. Type others instead.`;
    }
    const off = letters.length - n;
    if (off > 0) return `A sequence has ${n} letters, and here are ${letters.length}: take ${off} away.`;
    if (off < 0 && leaving) return `A sequence has ${n} letters, and here are ${letters.length}: add ${-off}.`;
    return "";
  }

  function read(leaving) {
    const letters = [...typed()];
    const told = wrongWith(letters, leaving);
    write(count, `${letters.length} of ${n}`);
    hint.hidden = Boolean(told);
    error.tell(box, told && `${told} The figure still shows ${view.get("sequence")}.`);
    if (!told && letters.length === n) view.set("sequence", letters.join(""));
  }

  view.follow(["sequence"], () => {
    if (typed() === view.get("sequence")) return;
    box.value = view.get("sequence");
    read(true);
  });
  const label = element("label", { for: id, class: "live-control" }, "Sequence");
  return {
    nodes: [label, box, count],
    fault: keepLines(element("div", { class: "live-fault" }, hint, error.line), 2, 3),
  };
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "cut a head");
  const { offsets, layers } = view.get("given");
  const { at: tensors } = readTensors(new DataView(decode(layers).buffer));
  const names = offsets.map((offset) => `${-offset} back`);
  const switches = LAYERS.flatMap((one) => one.switches);
  const parts = LAYERS.map((one) => layerPart(view, one));
  const box = sequenceBox(view);
  const told = spoken([2, 3]);

  function draw() {
    const sequence = view.get("sequence");
    const n = sequence.length;
    const runs = LAYERS.map((one, at) => {
      const on = one.switches.map((trait) => view.get(trait));
      const found = run(tensors, sequence, offsets, on);
      const shares = found.weights.map((map) =>
        offsets.map((offset) => sum(ring(n, offset).map((j, i) => map[i][j])) / n),
      );
      parts[at].draw(found, { sequence, names, offsets, on, shares });
      const cut = on.flatMap((isOn, i) => (isOn ? [] : [i + 1]));
      const which = on.length > 1 ? `without ${cut.length === 1 ? "head" : "heads"} ${cut.join(", ")}` : "once it is cut";
      const score = `of ${one.name} ${sum(found.right)}${cut.length ? ` ${which}` : ""}`;
      return { ...found, shares, score };
    });
    told.say(
      `Of ${n * offsets.length} answers are right: ${runs.map(({ score }) => score).join(", and ")}. ` +
        `A right answer is grey where no head puts ${LOOKS} of its weight on that place.`,
    );
    const [four, one] = runs;
    const numbers = ({ answers }) => answers.map((line) => line.map((answer) => answer + 1));
    view.values({
      "positions that are right": names.map((_, r) => [four.right[r], one.right[r]]),
      "answers of four heads, a is 1": numbers(four),
      "answers of one head, a is 1": numbers(one),
      "weight on each relation": [...four.shares, ...one.shares],
    });
  }

  view.add(
    row(
      ...box.nodes,
      button("Another sequence", () => {
        const letter = () => LETTERS[Math.floor(Math.random() * LETTERS.length)];
        const letters = Array.from(view.get("sequence"), letter);
        view.set("sequence", letters.join(""));
        report(told.node, `The sequence is now ${letters.join(" ")}.`);
      }),
      button("All heads on", () => switches.forEach((trait) => view.set(trait, true))),
    ),
    box.fault,
    told.node,
    row(...parts.map(({ node }) => node)),
  );
  view.follow(["sequence", ...switches], draw);
  return view.close;
}

export default { render };
