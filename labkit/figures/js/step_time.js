import { choice, slider } from "./controls.js";
import { drawing, element, row, spoken, write } from "./elements.js";
import { range, sum } from "./mathematics.js";
import { percent, plural, show, whole } from "./text.js";
import { View } from "./view.js";

// Of one block: its width, parameters, and what goes into its products and comes out, a row.
const D_MODEL = 768;
const [PARAMETERS, WIDTHS] = [12 * D_MODEL ** 2, 16 * D_MODEL];
const FLOAT = 4; // bytes

// The drawing, in its units: of words to the right, of milliseconds upwards.
const [LEFT, TOP, ACROSS, HIGH, WIDE, BELOW] = [34, 10, 380, 220, 424, 38];
const [MOST_WORDS, MOST_TIME] = [4096, 4];
const [RIGHT, GROUND] = [LEFT + ACROSS, TOP + HIGH];
const ZERO = LEFT + 16; // clear of the axis, which a steep line would be taken for
const END = RIGHT - 10; // of the lengths, so that what was measured there stands whole in the frame
const right = (n) => ZERO + ((END - ZERO) * n) / MOST_WORDS;
const up = (time) => GROUND - (HIGH * time) / MOST_TIME;

// FLOPs, and the bytes that they have to move.
/** @typedef {{ flops: number, moved: number }} Work */
/** @type {(rows: number) => Work} */
const linear = (rows) => ({
  flops: 2 * rows * PARAMETERS,
  moved: FLOAT * (PARAMETERS + rows * WIDTHS),
});
/** @type {(texts: number, n: number, n_q?: number) => Work} */
const attention = (texts, n, n_q = 1) => ({
  flops: 4 * texts * n_q * n * D_MODEL,
  moved: 2 * FLOAT * texts * (n + n_q) * D_MODEL,
});

// Milliseconds of work for all texts, for each of them, by the roof.
/** @type {(work: Work, texts: number, machine: { peak: number, bandwidth: number }) => number} */
const timeOf = ({ flops, moved }, texts, { peak, bandwidth }) =>
  (1000 * Math.max(flops / peak, moved / bandwidth)) / texts;

// Of a step with a cache and without, the linear layers and attention.
function count(n, texts, machine) {
  const step = [linear(texts), attention(texts, n)];
  const anew = [linear(texts * n), attention(texts, n, n)];
  const times = [step, anew].map((works) => works.map((work) => timeOf(work, texts, machine)));
  const [work, more] = [step, anew].map((works) => sum(works.map(({ flops }) => flops)));
  return { step, times, ratios: [more / work, sum(times[1]) / sum(times[0])] };
}

// Axes with their numbers.
function axes() {
  const line = (x1, y1, x2, y2) => drawing("line", { x1, y1, x2, y2, class: "live-axis" });
  const text = (x, y, words, anchor) => drawing("text", { x, y, "text-anchor": anchor }, words);
  return [
    line(LEFT, TOP, LEFT, GROUND),
    ...range(MOST_TIME + 1).flatMap((time) => [
      line(LEFT, up(time), RIGHT, up(time)),
      text(LEFT - 6, up(time) + 4, String(time), "end"),
    ]),
    ...range(5).map((i) => {
      const n = i * 1024;
      return text(right(n), GROUND + 16, whole(n), "middle");
    }),
    text((LEFT + RIGHT) / 2, GROUND + 33, "words in the cache of each text", "middle"),
  ];
}

// Of all lengths, and a mark at this one.
/** @typedef {{ n: number, texts: number, times: Matrix, measured: Record<string, number[]> }} Shown */
/** @type {(machine: { peak: number, bandwidth: number }) => { node: SVGElement, draw(given: Shown): void }} */
function chart(machine) {
  // For each text attention takes as long, however many there are: the wedge rises and sinks whole.
  const own = (n) => timeOf(attention(1, n), 1, machine);
  const wedge = `M${ZERO} ${GROUND}V${up(own(0))}L${END} ${up(own(MOST_WORDS))}V${GROUND}Z`;
  const weights = drawing("rect", { x: ZERO, y: TOP, width: END - ZERO, height: HIGH, class: "live-weights" });
  const caches = drawing("path", { d: wedge, class: "live-caches" });
  const without = drawing("path", { class: "live-without" });
  const off = drawing("text", { class: "live-off", x: ZERO + 12, y: TOP + 16 }); // the line leaves the drawing at once
  const here = drawing("path", { class: "live-here" });
  const circles = range(6).map((i) => drawing("circle", i % 2 ? { r: 4.5, class: "live-both" } : { r: 4.5 }));
  const size = { viewBox: `0 0 ${WIDE} ${GROUND + BELOW}`, width: WIDE, height: GROUND + BELOW };
  const clip = { x: LEFT, y: TOP, width: ACROSS, height: HIGH, viewBox: `${LEFT} ${TOP} ${ACROSS} ${HIGH}` };
  const inside = drawing("svg", clip, weights, caches, without);
  const node = drawing("svg", { ...size, role: "img" }, ...axes(), inside, off, here, ...circles);
  return {
    node,
    draw({ n, texts, times, measured }) {
      const [first] = times[0];
      weights.style.transform = `scaleY(${first / MOST_TIME})`;
      weights.style.transformOrigin = `0 ${GROUND}px`;
      caches.style.transform = `translateY(${(-HIGH * first) / MOST_TIME}px)`;
      const anew = range(65).map((i) => [i, sum(count(i || 1, texts, machine).times[1])]);
      const points = anew.map(([i, time]) => `${right(i)} ${Math.max(up(time), -HIGH)}`);
      without.setAttribute("d", `M${points.join("L")}`);
      const [together, alone] = times.map(sum);
      write(off, `↑ without a cache: ${show(alone, alone < 10 ? 1 : 0)} ms at ${whole(n)} words`);
      here.setAttribute("d", `M${right(n)} ${GROUND}V${up(first)}m-5 0h10m-5 0V${up(together)}m-5 0h10`);
      const seen = Object.entries(measured).flatMap(([words, [one, other]]) => [
        [Number(words), one],
        [Number(words), one + other],
      ]);
      circles.forEach((circle, i) => {
        circle.setAttribute("visibility", seen[i] ? "visible" : "hidden");
        if (!seen[i]) return;
        circle.setAttribute("cx", String(right(seen[i][0])));
        circle.setAttribute("cy", String(up(seen[i][1])));
      });
      const told = seen.map(([words, time]) => `${show(time, 2)} at ${whole(words)} words`);
      node.setAttribute(
        "aria-label",
        `Milliseconds of a step for each text, over the words in its cache. By the roof ` +
          `${show(first, 2)} for the linear layers at every length, and ${show(together, 2)} with ` +
          `attention at ${whole(n)} words. Measured: ${told.join(", ")}.`,
      );
    },
  };
}

// What the colours mean; of the two bands, how much is computed for each byte.
function legend() {
  const items = ["live-caches", "live-weights", "live-without", "live-measured", "live-measured live-both"].map((name) => {
    const words = element("span");
    return { words, node: element("li", {}, element("i", { class: name }), words) };
  });
  return {
    node: element("ul", { class: "live-legend" }, ...items.map(({ node }) => node)),
    draw(step) {
      const [weights, own] = step.map(({ flops, moved }) => `${show(flops / moved, 1)} FLOPs a byte`);
      const texts = [
        `attention, each text’s own cache: ${own}`,
        `linear layers, weights for all texts: ${weights}`,
        "a step without a cache",
        "measured: the linear layers",
        "measured: both together",
      ];
      texts.forEach((text, i) => write(items[i].words, text));
    },
  };
}

// What is told of a step at this length.
function sentence({ n, texts, times, ratios }) {
  const [first, together] = [times[0][0], sum(times[0])];
  const each = texts > 1 ? " for each" : "";
  return (
    `${plural(texts, "text")} of ${whole(n)} words: by the roof a step takes ${show(together, 2)} ms${each}, ` +
    `${percent(first / together)} of it for the linear layers. Without a cache it has ` +
    `${whole(n)} times the work, and takes ${whole(Math.round(ratios[1]))} times as long.`
  );
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "let texts grow");
  const [told, signs, machine] = [spoken([2, 3]), legend(), view.get("machine")];
  const drawn = chart(machine);
  const title = element("p", { class: "live-side-title" }, "Milliseconds of a step, for each text");
  const shown = element("div", { class: "live-steps" }, title);
  shown.append(drawn.node);

  function draw() {
    const [n, texts] = [view.get("n"), view.get("texts")];
    const counted = count(n, texts, machine);
    drawn.draw({ n, texts, ...counted, measured: view.get("measured")[texts] });
    signs.draw(counted.step);
    told.say(sentence({ n, texts, ...counted }));
    view.values({
      "kB moved, for each text": counted.step.map(({ moved }) => moved / texts / 1e3),
      "FLOPs for each byte": counted.step.map(({ flops, moved }) => flops / moved),
      "milliseconds by the roof, for each text": counted.times,
      "without a cache, times as much": counted.ratios,
    });
  }

  view.add(
    row(
      slider(view, "n", { label: "Words in each text" }),
      choice(view, "texts", { label: "Texts at once" }),
    ),
    told.node,
    row(shown, signs.node),
  );
  view.follow(["n", "texts"], draw);
  return view.close;
}

export default { render };
