import { choice } from "./controls.js";
import { COLOURS } from "./drawings.js";
import { drawing, element, row, spoken } from "./elements.js";
import { range } from "./mathematics.js";
import { meters } from "./meters.js";
import { show, whole } from "./text.js";
import { View } from "./view.js";

const HEADS = 4;
const LAYERS = 2;

// The drawing, in its units: heads of queries above those of keys and values, and what is kept.
const [WIDE, LEFT, HIGH, GAP] = [330, 66, 26, 6];
const [KEYS, KEPT, BOX] = [80, 142, 22];
const SLOT = (WIDE - LEFT) / HEADS;

// Which head of keys each head of queries reads, from 0: neighbours share.
/** @type {(h_kv: number) => number[]} */
const readers = (h_kv) => range(HEADS).map((i) => Math.floor((i * h_kv) / HEADS));
const middle = (i) => LEFT + SLOT * (i + 0.5);

// Where head j of the keys is drawn: below the middle of its readers.
/** @type {(j: number, h_kv: number) => number} */
function below(j, h_kv) {
  const own = range(HEADS).filter((i) => readers(h_kv)[i] === j);
  return (middle(own[0]) + middle(own.at(-1))) / 2;
}

/** @type {(x: number, y: number, width: number, words: string, given: object) => SVGElement} */
function box(x, y, width, words, given) {
  const rect = drawing("rect", { x: x - width / 2, y, width, height: HIGH, rx: 4 });
  const text = drawing("text", { x, y: HIGH / 2 + y + 4, "text-anchor": "middle" }, words);
  return drawing("g", given, rect, text);
}

// A cell of the cache: filled where it is kept, and dashed where nothing is.
/** @type {(x: number, y: number, width: number, words: string, given: object) => SVGElement} */
function cell(x, y, width, words, given) {
  const rect = drawing("rect", { x, y, width: width - 3, height: BOX, rx: 2 });
  const text = { x: x + (width - 3) / 2, y: y + BOX / 2 + 4, "text-anchor": "middle" };
  return drawing("g", given, rect, drawing("text", text, words));
}

// Keys that are shared are nobody's, and have no colour.
/** @type {(i: number, h_kv: number) => object} */
const colourOf = (i, h_kv) =>
  h_kv === HEADS
    ? { style: `--live-head: var(--live-${COLOURS[i]})` }
    : { style: "--live-head: currentcolor" };

/** @type {(h_kv: number) => SVGElement[]} */
function heads(h_kv) {
  const reads = readers(h_kv);
  const aside = (y, words) => drawing("text", { x: 0, y }, words);
  const half = SLOT / 2;
  return [
    aside(18, "queries"),
    aside(KEYS + 14, "keys and"),
    aside(KEYS + 27, "values"),
    drawing("text", { x: LEFT, y: KEPT - 8 }, "kept of a token"),
    ...range(LAYERS).map((layer) => aside(KEPT + (BOX + 3) * layer + 15, `layer ${layer}`)),
    ...reads.map((j, i) => {
      const line = { x1: middle(i), y1: HIGH + 1, x2: below(j, h_kv), y2: KEYS - 1 };
      return drawing("line", { ...line, style: `--live-head: var(--live-${COLOURS[i]})` });
    }),
    ...range(HEADS).map((i) => box(middle(i), 1, SLOT - GAP, String(i + 1), colourOf(i, HEADS))),
    ...range(h_kv).map((j) => box(below(j, h_kv), KEYS, SLOT - GAP, String(j + 1), colourOf(j, h_kv))),
    ...range(LAYERS).flatMap((layer) =>
      range(HEADS).flatMap((j) =>
        ["K", "V"].map((name, part) => {
          const kept = j < h_kv;
          const given = kept ? colourOf(j, h_kv) : { class: "live-not-kept" };
          const x = LEFT + half * (2 * j + part);
          return cell(x, KEPT + (BOX + 3) * layer, half, kept ? name : "", given);
        }),
      ),
    ),
  ];
}

// What is told of the choice.
function sentence({ h_kv, how, held, all, kl }) {
  const span = `KL ${show(kl[0], 4)} (${show(kl[1], 4)} to ${show(kl[2], 4)})`;
  if (h_kv === HEADS) {
    return `Each head has keys and values of its own, ${whole(all)} bytes a token. The model has ${span}.`;
  }
  const who = h_kv === 1 ? "All four heads read one head of keys" : "Heads read keys in pairs";
  const then = `${how[0].toUpperCase()}${how.slice(1)}`.replace(": ", " by ");
  return `${who}: ${whole(held)} bytes a token, not ${whole(all)}. ${then}, the model has ${span}.`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "let heads share");
  const [told, right] = [spoken([2, 3]), meters(4)];
  const [relations] = view.get("axes")["probability of the right word"];
  const high = KEPT + LAYERS * (BOX + 3);
  const size = { viewBox: `0 0 ${WIDE} ${high}`, width: WIDE, height: high };
  const who = drawing("svg", { ...size, role: "img", class: "live-readers" });
  const drawn = element("div", { class: "live-sharing" });
  drawn.append(who);

  function draw() {
    const [h_kv, how] = [view.get("h_kv"), view.get("how")];
    const measured = view.get("measured");
    const [held, kl, probabilities] = measured[how][h_kv];
    const { ablated } = measured;
    const [all] = measured[how][HEADS];
    const reads = readers(h_kv).map((j) => j + 1);
    who.replaceChildren(...heads(h_kv));
    const pairing = reads.map((j, i) => `${i + 1} reads ${j}`).join(", ");
    who.setAttribute(
      "aria-label",
      `Heads of queries and the head of keys of each: ${pairing}. Kept of a token, in each of two layers: ` +
        `keys and values of ${h_kv} of 4 heads.`,
    );
    const lines = relations.map((name, i) => ({
      name,
      share: probabilities[i],
      text: show(probabilities[i], 2),
      shade: "var(--live-weight)",
      mark: ablated[i],
    }));
    const said = relations.map((name, i) => `${name} ${show(probabilities[i], 2)}, ablated ${show(ablated[i], 2)}`);
    right.draw(lines, `Probability of the right word: ${said.join("; ")}.`);
    told.say(sentence({ h_kv, how, held, all, kl }));
    view.values({
      "head of keys that is read": reads,
      "bytes a token": held,
      "KL to the truth, in nats": kl,
      "probability of the right word": probabilities.map((p, i) => [p, ablated[i]]),
    });
  }

  view.add(
    row(
      choice(view, "h_kv", { label: "Heads of keys and values" }),
      choice(view, "how", { label: "How they came to share" }),
    ),
    told.node,
    row(
      drawn,
      element(
        "div",
        { class: "live-right" },
        element("p", { class: "live-side-title" }, "Probability of the right word"),
        right.node,
        element("p", { class: "live-marked" }, "▏ attention ablated to its mean"),
      ),
    ),
  );
  view.follow(["h_kv", "how", "measured"], draw);
  return view.close;
}

export default { render };
