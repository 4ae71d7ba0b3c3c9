import { choice, chosenPlace, pick, toggle } from "./controls.js";
import { STEPS, labels, mark, maskOf, roomFor, weightMap } from "./drawings.js";
import { drawing, element, fold, report, roomy, row, spoken, write } from "./elements.js";
import { mean, range, sum } from "./mathematics.js";
import { buttonGrid } from "./tables.js";
import { decode } from "./tensors.js";
import { show } from "./text.js";
import { View } from "./view.js";

const [SIDE, GAP] = [240, 130]; // of a drawing, in its own units
const FAINT = 0.02; // a weight that is not drawn
const PLACES = ["query", "key"];
const WEAKEST = 0.12; // how opaque a line is at the least

const bits = (line) => -sum(line.map((p) => (p > 0 ? p * Math.log2(p) : 0)));

// Weights that lie a number of places after the query.
/** @type {(weights: Matrix, offset: number) => number[]} */
const beside = (weights, offset) =>
  weights.flatMap((line, i) => (i + offset in line ? [line[i + offset]] : []));

/** @type {Record<string, (weights: Matrix, query: number, key: number) => number>} */
const MEASURES = {
  "previous token": (weights) => mean(beside(weights, -1)),
  "next token": (weights) => mean(beside(weights, 1)),
  itself: (weights) => mean(beside(weights, 0)),
  "chosen key": (weights, _query, key) => mean(weights.map((line) => line[key])),
  "query to key": (weights, query, key) => weights[query][key],
  entropy: (weights) => mean(weights.map(bits)),
};

// ---------------------------------------------------------------- parts

// All heads as small maps, which are buttons.
function overview([layers, h], choose) {
  const { node, buttons } = buttonGrid({
    label: "All heads",
    rows: range(layers).map(String),
    columns: range(h).map(String),
    press: (i, j) => choose(shown[i * h + j]),
  });
  let shown = [];
  const cells = buttons.flat().map((made) => {
    const [map, place, measure] = [element("i"), element("span"), element("span")];
    made.append(map, place, measure);
    return { made, map, place, measure };
  });
  node.classList.add("live-heads", "live-many");
  return {
    node,
    // Heads in the order in which they are to stand, each with its bytes, place and measure.
    draw(all, n, chosen) {
      all.forEach((one, at) => {
        const { made, map, place, measure } = cells[at];
        if (made.dataset.drawn !== one.id) {
          made.dataset.drawn = one.id;
          one.mask ??= maskOf(one.bytes, n);
          map.style.setProperty("--map", one.mask);
        }
        write(place, `${one.layer}, ${one.head}`);
        write(measure, show(one.measure, 2).replace(/^0/, ""));
        made.setAttribute("aria-pressed", String(one === chosen));
        made.setAttribute(
          "aria-label",
          `layer ${one.layer}, head ${one.head}: ${show(one.measure, 2)}`,
        );
      });
      shown = all;
    },
  };
}

// Lines from the queries on the left to the keys on the right.
function lineDrawing(tokens, room, select) {
  const wide = 2 * room + GAP;
  const level = (i) => (SIDE * (i + 0.5)) / tokens.length;
  const left = labels(tokens, (i) => ({ x: room - 6, y: level(i) + 4, "text-anchor": "end" }));
  const right = labels(tokens, (i) => ({ x: room + GAP + 6, y: level(i) + 4 }));
  const ends = { x1: room, x2: room + GAP };
  const lines = tokens.map((_, i) =>
    tokens.map((__, j) => drawing("line", { ...ends, y1: level(i), y2: level(j) })),
  );
  left.forEach((text, i) => text.addEventListener("click", () => select("query", i)));
  right.forEach((text, j) => text.addEventListener("click", () => select("key", j)));
  const size = { viewBox: `0 0 ${wide} ${SIDE}`, width: wide, height: SIDE };
  return {
    node: drawing("svg", { ...size, role: "img" }, ...lines.flat(), ...left, ...right),
    draw(weights, query, key) {
      lines.forEach((line, i) =>
        line.forEach((one, j) => {
          const x = weights[i][j];
          one.setAttribute("stroke-opacity", x < FAINT ? 0 : (WEAKEST + (1 - WEAKEST) * x) / (i === query ? 1 : 2));
          one.setAttribute("class", i === query ? "live-asking" : "");
        }),
      );
      mark(left, query);
      mark(right, key);
    },
  };
}

// The heads of a sentence, decoded once.
function decoder(sentences, [layers, h]) {
  const read = new Map();
  return (sentence) => {
    if (read.has(sentence)) return read.get(sentence);
    const { tokens, weights: stored } = sentences[sentence];
    const n = tokens.length;
    const bytes = decode(stored);
    const heads = range(layers * h).map((at) => {
      const own = bytes.subarray(at * n * n, (at + 1) * n * n);
      const weights = range(n).map((i) =>
        Array.from(own.subarray(i * n, (i + 1) * n), (step) => step / STEPS),
      );
      const [layer, head] = [Math.floor(at / h), at % h];
      return { id: `${sentence} ${at}`, layer, head, bytes: own, weights };
    });
    read.set(sentence, heads);
    return heads;
  };
}

// The chosen head's weights as lines and as a map, made anew where the sentence changes.
function chosenHead(room, select) {
  const [lines, map] = [element("div"), element("div")];
  let drawn = null;
  let parts = [];
  return {
    lines,
    map,
    draw(sentence, tokens, { weights, label, query, key }) {
      if (drawn !== sentence) {
        drawn = sentence;
        parts = [
          lineDrawing(tokens, room, select),
          weightMap(tokens, { side: SIDE, room, select }),
        ];
        [lines, map].forEach((place, i) => place.replaceChildren(parts[i].node));
      }
      parts.forEach(({ draw, node }, i) => {
        draw(weights, query, key);
        node.setAttribute("aria-label", `${label}, ${["lines between words", "a row a query"][i]}, on: ${tokens.join(" ")}`);
      });
    },
  };
}

// The sentences say the same in either order, so the order is told.
function sorting(view) {
  const node = toggle(view, "by_measure", { label: "Sort by measure" });
  node.addEventListener("change", () =>
    report(node, `The maps are sorted by ${view.get("by_measure") ? "the measure" : "layer and head"}.`),
  );
  return node;
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "choose a head");
  const { shape, sentences } = view.get("stored");
  const lengths = sentences.map(({ tokens }) => tokens.length);
  const room = roomFor(sentences.flatMap(({ tokens }) => tokens));
  const headsOf = decoder(sentences, shape);
  const tokensNow = () => sentences[view.get("sentence")].tokens;
  const numbered = () => tokensNow().map((token, i) => `${i + 1} ${token}`);

  function chooseHead({ layer, head }) {
    view.set("layer", layer);
    view.set("head", head);
  }

  // A shorter sentence has no token at the old place: leave that first. It may say what is asked of it.
  function chooseSentence(sentence) {
    const { asked } = sentences[sentence];
    for (const trait of PLACES) view.set(trait, Math.min(view.get(trait), lengths[sentence] - 1));
    view.set("sentence", sentence);
    PLACES.forEach((trait, i) => asked && view.set(trait, asked[i]));
  }

  const all = overview(shape, chooseHead);
  const told = spoken([2, 2, 3]);
  const large = chosenHead(room, (trait, i) => view.set(trait, i));

  function draw() {
    const sentence = view.get("sentence");
    const tokens = tokensNow();
    // While Python changes the sentence, a place may belong to another one.
    const [query, key] = PLACES.map((t) => Math.min(view.get(t), tokens.length - 1));
    const heads = headsOf(sentence);
    const measure = MEASURES[view.get("measure")];
    for (const one of heads) one.measure = measure(one.weights, query, key);
    const ranked = [...heads].sort((a, b) => b.measure - a.measure);
    const chosen = heads[view.get("layer") * shape[1] + view.get("head")];
    const sorted = view.get("by_measure");
    all.draw(sorted ? ranked : heads, tokens.length, chosen);
    const [from, to] = [tokens[query], tokens[key]];
    const line = chosen.weights[query];
    const best = line.indexOf(Math.max(...line));
    const most = `most, ${show(line[best], 2)}, to “${tokens[best]}”`;
    const more = best === key ? "no other token gets more" : most;
    const place = `Head (${chosen.layer}, ${chosen.head})`;
    large.draw(sentence, tokens, { weights: chosen.weights, label: place, query, key });
    told.say(
      `${place} has ${show(chosen.measure, 2)}, place ${ranked.indexOf(chosen) + 1} of ` +
        `${heads.length}. From “${from}” it gives ${show(line[key], 2)} to “${to}”, and ${more}.`,
    );
    view.values({
      weights: chosen.weights,
      measures: Array.from({ length: shape[0] }, (_, i) =>
        heads.slice(i * shape[1], (i + 1) * shape[1]).map((one) => one.measure),
      ),
    }, { weights: [tokens, tokens] });
  }

  const places = PLACES.map((trait) =>
    pick(view, trait, {
      label: { query: "From", key: "To" }[trait],
      texts: numbered,
      follow: ["sentence"],
      choose: (i) => view.set(trait, i),
    }),
  );
  view.add(
    row(
      pick(view, "sentence", {
        label: "Sentence",
        texts: () => sentences.map(({ text }) => text),
        choose: chooseSentence,
      }),
    ),
    row(
      choice(view, "measure", { label: "Measure" }),
      sorting(view),
      chosenPlace(view),
    ),
    told.node,
    all.node,
    row(
      element("div", { class: "live-large" }, large.lines, row(...places)),
      element("div", { class: "live-large" }, roomy() ? large.map : fold("The same weights as a map", false, large.map)),
    ),
  );
  view.follow(["sentence", "layer", "head", "query", "key", "measure", "by_measure"], draw);
  return view.close;
}

export default { render };
