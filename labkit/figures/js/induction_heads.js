import { choice, pick } from "./controls.js";
import { shade } from "./drawings.js";
import { element, keepLines, row, spoken, write } from "./elements.js";
import { keptRuns, run } from "./gpt.js";
import { pairDrawing } from "./induction_drawing.js";
import { loan } from "./loan.js";
import { mean, range, sum } from "./mathematics.js";
import { steps } from "./steps.js";
import { coloured } from "./tables.js";
import { show } from "./text.js";
import { View } from "./view.js";

const STATE = ["example", "surname", "off"];
const ORDER = [
  "weights of the previous-word head", "weight on the word before", "scores by name",
  "weights from the last word", "next word", "mean over unseen stories",
];

const best = (line) => line.indexOf(Math.max(...line));

// The story with its surname put in, where surnames are, and whose is asked for.
function storyOf(view) {
  const { tales, surnames } = view.get("given");
  const words = tales[view.get("example")][0].split(" ");
  const asked = words.indexOf(words[words.length - 1]) + 1;
  words[asked] = view.get("surname");
  const places = range(words.length).filter((i) => surnames.includes(words[i]));
  return { words, places, asked };
}

// All that the figure shows: computed, or stored where it is the first state.
function outcomes(view, model) {
  const { words: known, names, surnames, heads, h, means } = view.get("given");
  const runs = keptRuns(model, known);
  const on = (off) => [range(h).map((i) => off !== `head ${i}`), range(h).map(() => true)];
  const chances = (next) => {
    const each = surnames.map((word) => next[known.indexOf(word)]);
    return [...each, 1 - sum(each)];
  };
  function compute() {
    const { words, places } = storyOf(view);
    const [off, last] = [view.get("off"), words.length - 1];
    const all = view.options("off")[0];
    const [whole, now] = [runs(words, on(all)), runs(words, on(off))];
    const [before, after] = [whole, now].map(({ next }) => chances(next[last]));
    const scores = names.map((name) => {
      // All but the last word is as before, and so are its keys.
      const { q, k } = run(model(), [known.indexOf(name)], on(off), "none", now, last);
      const [[query], keys] = [q[1][heads[1]], k[1][heads[1]]];
      return places.map((i) => sum(Array.from(query, (x, c) => x * keys[i][c])) / Math.sqrt(query.length));
    });
    return {
      "weights of the previous-word head": now.weights[0][heads[0]],
      "weight on the word before": now.weights[0].map((rows) => rows.map((line, i) => (i ? line[i - 1] : 0))),
      "scores by name": scores,
      "weights from the last word": now.weights[1].map((rows) => rows[last]),
      "next word": before.map((chance, i) => [chance, after[i]]),
      "mean over unseen stories": means[all].map((one, i) => [one, means[off][i]]),
    };
  }
  function stored() {
    const { state, values } = view.get("first");
    if (STATE.some((trait) => state[trait] !== view.get(trait))) return null;
    // A notebook keeps the order of what is stored by the alphabet.
    return Object.fromEntries(ORDER.map((name) => [name, values[name]]));
  }
  return () => (model() ? compute() : stored());
}

// What the values say of this story, in the words of the drawing.
function read(view, values) {
  const { names, surnames, heads } = view.get("given");
  const { words, places, asked } = storyOf(view);
  const fitting = places.map((_, k) => names[best(values["scores by name"].map((line) => line[k]))]);
  const now = values["next word"].map((line) => line[1]);
  const likeliest = best(now);
  return {
    words, places, asked, heads,
    back: values["weights of the previous-word head"],
    arcs: values["weights from the last word"][heads[1]],
    names: fitting,
    fits: places.map((i, k) => fitting[k] === words[i - 1]),
    predicted: surnames[likeliest] ?? "another word",
    chance: now[likeliest],
    ofRight: now[surnames.indexOf(words[asked])],
    right: surnames[likeliest] === words[asked],
    silent: view.get("off") === `head ${heads[0]}`,
    steps: view.options("step"),
    step: view.options("step").indexOf(view.get("step")),
  };
}

/** @type {((found: ReturnType<typeof read>) => string)[]} */
const TELL = [
  ({ words, places, back, heads, silent }) => {
    const looks = places.map((i) => `${show(back[i][i - 1], 2)} from “${words[i]}” to “${words[i - 1]}”`);
    const still = silent ? " It is switched off: it still looks there, but writes nothing." : "";
    return `Head ${heads[0]} of layer 0 looks one word back from each surname: it gives ${looks.join(", and ")}.${still}`;
  },
  ({ words, places, names, fits }) => {
    const each = places.map((i, k) => `that of “${names[k]}” at “${words[i]}”`);
    const count = fits.filter(Boolean).length;
    const keys = ["Neither key", "Only one key", "Each key"][count];
    return (
      `Which of the eight names has the query that fits a surname's key best? It is ${each.join(", and ")}. ` +
      `${keys} says which name is before it.`
    );
  },
  ({ words, asked, arcs, heads }) => {
    const most = best(arcs);
    const elsewhere = most === asked ? "" : `, and most, ${show(arcs[most], 2)}, to “${words[most]}”`;
    return (
      `The last word, “${words[words.length - 1]}”, asks. Head ${heads[1]} of layer 1 gives ` +
      `${show(arcs[asked], 2)} of its weight to “${words[asked]}”, which followed the first “${words[asked - 1]}”${elsewhere}.`
    );
  },
  ({ words, asked, predicted, chance, ofRight, right }) =>
    `The model predicts “${predicted}” with ${show(chance, 2)}. ` +
    (right ? "That is right." : `That is wrong: it is “${words[asked]}”, which gets ${show(ofRight, 2)}.`),
];

// Beside the drawing: for each step a table of this story, and what unseen stories say. All take their
// room at once, so that nothing moves.
function panels(view) {
  const { counts, names, surnames, h, heads } = view.get("given");
  const made = view.options("step").map(() => {
    const [table, note] = [coloured(), keepLines(element("p", { class: "pair-note" }), 3)];
    return { table, note, node: element("div", {}, table.node, note) };
  });
  const off = (i) => (view.get("off") === `head ${i}` ? ", off" : "");
  const named = (mark) => range(h).map((i) => `head ${i}${mark(i)}`);
  const shares = (at, label, rows, columns, matrix, colour) =>
    made[at].table.draw({
      label, rows, columns,
      text: (i, j) => show(matrix[i][j], 2),
      fill: (i, j) => shade(0.8 * matrix[i][j], colour),
    });

  function tables({ words, places }, values) {
    const keys = places.map((i) => `“${words[i]}”`);
    const others = range(words.length).filter((i) => i && !places.includes(i));
    const back = values["weight on the word before"];
    shares(
      0, "Layer 0: weight on the word before", named(off), [...keys, "others, mean"],
      back.map((line) => [...places.map((i) => line[i]), mean(others.map((i) => line[i]))]), "blue",
    );
    const scores = values["scores by name"];
    const most = Math.max(...scores.flat());
    made[1].table.draw({
      label: "Score of a name's query", rows: names, columns: keys.map((key) => `key of ${key}`),
      text: (i, j) => show(scores[i][j], 1),
      fill: (i, j) => shade(0.8 * Math.max(0, scores[i][j] / most), "weight"),
    });
    const found = values["weights from the last word"];
    shares(
      2, `Layer 1: weight from “${words[words.length - 1]}”`, named(() => ""), [...keys, "all others"],
      found.map((line) => [...places.map((i) => line[i]), 1 - sum(places.map((i) => line[i]))]), "orange",
    );
    shares(3, "Probability of the next word", [...surnames, "other words"], ["all heads", "now"], values["next word"], "weight");
  }

  function notes(means) {
    const [stories, asked, keys] = counts;
    const [surname, other, fits, found, right] = means;
    const now = ([before, after], say) =>
      view.get("off") === view.options("off")[0] ? say(before) : `${say(before)} with all heads, ${say(after)} now`;
    const two = (x) => show(x, 2);
    [
      `Head ${heads[0]}, mean over ${stories} unseen stories: ${two(surname[0])} from surnames, ${two(other[0])} from other words.`,
      `Keys that fit the name before them best, in all stories of this figure: ${now(fits, (x) => `${Math.round(x * keys)} of ${keys}`)}.`,
      `Head ${heads[1]}, mean weight on the right one of ${asked} surnames in ${stories} unseen stories: ${now(found, two)}.`,
      `The right one of ${asked} surnames in ${stories} unseen stories, mean probability: ${now(right, two)}.`,
    ].forEach((text, i) => write(made[i].note, text));
  }

  return {
    node: element("div", { class: "pair-panels" }, ...made.map(({ node }) => node)),
    draw(found, values) {
      made.forEach(({ node }, i) => node.classList.toggle("pair-now", i === found.step));
      tables(found, values);
      notes(values["mean over unseen stories"]);
    },
  };
}

// Which story is told: another one has a surname of its own.
function stories(view) {
  const { tales } = view.get("given");
  const name = ([text], i) => {
    const words = text.split(" ");
    return `${i ? `unseen ${i}` : "example"}: ${words[3]}, ${words[9]}`;
  };
  return pick(view, "example", {
    label: "Story",
    texts: () => tales.map(name),
    choose(i) {
      view.set("surname", tales[i][1]);
      view.set("example", i);
    },
  });
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "follow the steps, switch a head off");
  const lent = loan(view, (hadFocus) => {
    if (hadFocus) below.focus();
    draw();
  });
  const found = outcomes(view, lent.model);
  const [scene, side, told] = [pairDrawing(), panels(view), spoken([2, 4, 5])];
  const step = element("data", { hidden: "", "data-trait": "step" });
  const below = element("p", { class: "pair-loaded", tabindex: "-1" }, lent.loader);

  function draw() {
    const values = found();
    step.setAttribute("value", JSON.stringify(view.get("step")));
    body.classList.toggle("pair-waits", !values);
    if (!values) {
      lent.load(() => {});
      told.say("The drawing follows as soon as the model is loaded.");
      return;
    }
    if (lent.model()) below.textContent = "Computed here, from the model's weights.";
    const now = read(view, values);
    told.say(TELL[now.step](now));
    scene.draw(now, `${now.words.join(" ")}. ${TELL.slice(0, now.step + 1).map((tell) => tell(now)).join(" ")}`);
    side.draw(now, values);
    view.values(values);
  }

  const body = element("div", { class: "pair" }, scene.node, side.node);
  view.add(
    steps(view),
    row(
      choice(view, "off", { label: "Switch off in layer 0" }),
      stories(view),
      choice(view, "surname", { label: "Surname" }),
    ),
    told.node,
    body,
    below,
    step,
  );
  view.follow([...STATE, "step"], draw);
  return view.close;
}

export default { render };
