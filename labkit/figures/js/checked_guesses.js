import { choice } from "./controls.js";
import { bars } from "./drawings.js";
import { drawing, element, row, spoken } from "./elements.js";
import { range, sum } from "./mathematics.js";
import { percent, plural, show } from "./text.js";
import { View } from "./view.js";

const SIXTHS = 6;
const WORDS = 3;
const LACKING = "max(0, p − q)";
const TOO_SMALL = 1e-9;

// The drawing, in its units: pairs of bars from the ground up.
const [LEFT, TOP, HIGH, BAR, PAIR, WIDE] = [30, 10, 170, 34, 96, 324];
const GROUND = TOP + HIGH;

// Each step of the sampling, by word.
/** @typedef {{ accepted: number[], again: number[], written: number[] }} Sampled */
/** @type {(p: number[], q: number[], after: string) => Sampled} */
function sample(p, q, after) {
  const accepted = p.map((x, i) => Math.min(x, q[i]));
  const rest = after === LACKING ? p.map((x, i) => x - accepted[i]) : p;
  const rejected = 1 - sum(accepted);
  const total = sum(rest) || 1;
  const again = rest.map((x) => (x * rejected) / total);
  return { accepted, again, written: accepted.map((x, i) => x + again[i]) };
}

// Where the bar of a word's guesses begins, and that of what is written.
/** @type {(word: number, side: number) => number} */
const x = (word, side) => LEFT + 14 + PAIR * word + (BAR + 4) * side;

// Upright parts on top of each other, and a line across at what the large model says.
function stacks() {
  const part = (name, word, side) =>
    drawing("rect", { x: x(word, side), y: TOP, width: BAR, height: HIGH, class: name });
  const made = range(WORDS).map((word) => ({
    accepted: part("live-accepted", word, 0),
    rejected: part("live-rejected", word, 0),
    kept: part("live-accepted", word, 1),
    again: part("live-drawn", word, 1),
    line: drawing("path", { class: "live-large-model" }),
  }));
  const names = range(WORDS).flatMap((word) => [
    drawing("text", { x: x(word, 0) + BAR / 2, y: GROUND + 14 }, "guessed"),
    drawing("text", { x: x(word, 1) + BAR / 2, y: GROUND + 14 }, "written"),
    drawing("text", { x: x(word, 1) - 2, y: GROUND + 31, "font-weight": 600 }, `word ${word + 1}`),
  ]);
  const marks = ["0", "½", "1"].flatMap((text, i) => {
    const y = GROUND - (HIGH * i) / 2;
    return [
      drawing("line", { x1: LEFT, x2: WIDE - 2, y1: y, y2: y, class: "live-axis" }),
      drawing("text", { x: LEFT - 12, y: y + 4 }, text),
    ];
  });
  const size = { viewBox: `0 0 ${WIDE} ${GROUND + 38}`, width: WIDE, height: GROUND + 38 };
  const parts = made.flatMap((one) => Object.values(one));
  const svg = drawing("svg", { ...size, role: "img" }, ...marks, ...parts, ...names);
  const node = element("div", { class: "live-guesses" });
  node.append(svg);

  function set(box, from, to) {
    box.setAttribute("y", String(GROUND - HIGH * to));
    box.setAttribute("height", String(HIGH * (to - from)));
  }
  return {
    node,
    draw(p, q, { accepted, written }) {
      made.forEach((one, i) => {
        set(one.accepted, 0, accepted[i]);
        set(one.rejected, accepted[i], q[i]);
        set(one.kept, 0, accepted[i]);
        set(one.again, accepted[i], written[i]);
        const y = GROUND - HIGH * p[i];
        one.line.setAttribute("d", `M${x(i, 0) - 5} ${y}H${x(i, 1) + BAR + 5}`);
      });
      const told = p.map(
        (own, i) =>
          `word ${i + 1}: large model ${show(own, 2)}, guessed ${show(q[i], 2)}, ` +
          `accepted ${show(accepted[i], 2)}, written ${show(written[i], 2)}`,
      );
      svg.setAttribute("aria-label", `Probabilities of ${told.join("; ")}.`);
    },
  };
}

const LEGEND = [
  ["live-accepted", "a guess that is accepted"],
  ["live-rejected", "a guess that is rejected"],
  ["live-drawn", "drawn after a rejection"],
  ["live-large-model", "p, what the large model says"],
];

// What is told of the draft and the rule.
function sentence({ p, accepted, written, guesses, words }) {
  const off = Math.max(...p.map((x, i) => Math.abs(x - written[i])));
  const same =
    off < TOO_SMALL
      ? "and what is written has exactly the large model’s probabilities"
      : `but what is written differs from p by up to ${show(off, 2)}`;
  return (
    `${percent(sum(accepted))} of the guesses are accepted, ${same}. With ` +
    `${plural(guesses, "guess", "guesses")} at a time, a call of the large model brings ${show(words, 2)} words.`
  );
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "change the draft");
  const [told, drawn, reach] = [spoken([2, 3]), stacks(), bars({ colour: "weight" })];
  const items = LEGEND.map(([name, words]) =>
    element("li", {}, element("i", { class: name }), element("span", {}, words)),
  );

  function draw() {
    const [large, own] = ["large", view.get("draft")].map((name) => view.get("drafts")[name]);
    const [p, q] = [large, own].map((of) => of.map((x) => x / SIXTHS));
    const guesses = view.get("guesses");
    const found = sample(p, q, view.get("after"));
    const stands = sum(found.accepted);
    const reached = range(guesses + 1).map((i) => stands ** i);
    const words = sum(reached);
    drawn.draw(p, q, found);
    const texts = reached.map((x) => show(x, 2));
    reach.draw(reached, {
      title: "How often a call brings at least so many words",
      most: 1,
      names: reached.map((_, i) => String(i + 1)),
      texts,
      told: `A call brings at least 1 word, 2 words and so on with probability ${texts.join(", ")}.`,
    });
    told.say(sentence({ p, ...found, guesses, words }));
    view.values({
      probabilities: p.map((x, i) => [x, q[i], found.accepted[i], found.again[i], found.written[i]]),
      "guesses that are accepted": stands,
      "a call gets so far": reached,
      "words a call": words,
    });
  }

  view.add(
    row(
      choice(view, "draft", { label: "Draft" }),
      choice(view, "after", { label: "If rejected, draw from" }),
      choice(view, "guesses", { label: "Guesses at a time" }),
    ),
    told.node,
    row(
      drawn.node,
      element(
        "div",
        { class: "live-call" },
        element("ul", { class: "live-legend" }, ...items),
        reach.node,
      ),
    ),
  );
  view.follow(["draft", "after", "guesses"], draw);
  return view.close;
}

export default { render };
