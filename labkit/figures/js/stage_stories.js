// The story GPT on the stage: one head's arcs from the word that asks, its parts as strips, what
// the model says next, and the words that a bug takes from it.

import { choice, pick } from "./controls.js";
import { element, row, spoken, write } from "./elements.js";
import { keptRuns } from "./gpt.js";
import { loan } from "./loan.js";
import { after } from "./stories.js";
import { exampleChoice, list, storyBox } from "./story_box.js";
import { tale } from "./stage_tale.js";
import { sayNow, share } from "./stage_words.js";
import { numbered, plural } from "./text.js";

const FALL = 0.2; // of a probability, by which a word that the rules fix fails
const SHOWN = 6; // next words
const FOLLOWED = ["story", "bug", "layer", "head", "asking"];
const COLUMNS = ["word", "", "model", "rules"];

const wordsOf = (view) => view.get("story").split(" ");
const askingOf = (view) => Math.min(view.get("asking"), wordsOf(view).length - 1);

// A bug of the other model is none here.
const bugOf = (view, { bugs }) => (bugs.includes(view.get("bug")) ? view.get("bug") : "none");

// What the model makes of the story, computed, or stored where it is the first state.
function outcomes(view, given, model) {
  const { words: known, rules, shape } = given;
  const on = Array.from({ length: shape[0] }, () => new Array(shape[1]).fill(true));
  const runs = keptRuns(model, known);
  const runOf = (bug) => runs(wordsOf(view), on, bug);
  function compute() {
    const words = wordsOf(view);
    const [whole, broken] = [runOf("none"), runOf(bugOf(view, given))];
    const [allowed, fixed] = [after(rules, words), fixedOnes(rules, words)];
    const said = words.map((word, i) =>
      [whole, broken].map(({ next }) => (i ? next[i - 1][known.indexOf(word)] : 1)),
    );
    const [before, now] = [whole, broken].map(({ next }) => next[words.length - 1]);
    const own = (part) => broken[part][view.get("layer")][view.get("head")];
    const rows = (part) => Array.from(own(part), (one) => Array.from(one));
    return {
      weights: own("weights")[askingOf(view)],
      "queries of the head": rows("q"),
      "keys of the head": rows("k"),
      "values of the head": rows("v"),
      "next word": known.map((word, i) => [before[i], now[i], allowed[word] ?? 0]),
      "words of the story": said,
      "fixed words that fail": said.filter(([before, now], i) => fixed[i] && before - now > FALL).length,
    };
  }
  function stored() {
    const { state, values } = view.get("first");
    if (!state || Object.keys(state).some((trait) => state[trait] !== view.get(trait))) return null;
    // A notebook keeps the order of what is stored by the alphabet.
    return Object.fromEntries(ORDER.map((name) => [name, values[name]]));
  }
  return () => (model() ? compute() : stored());
}

const ORDER = [
  "weights", "queries of the head", "keys of the head", "values of the head", "next word",
  "words of the story", "fixed words that fail",
];

// Which words the rules allow no other word for.
/** @type {(rules: object, words: string[]) => boolean[]} */
const fixedOnes = (rules, words) =>
  words.map((word, i) => {
    const allowed = Object.keys(after(rules, words.slice(0, i)));
    return i > 0 && allowed.length === 1 && allowed[0] === word;
  });

// The likeliest next words, each with the share that the rules give it.
function nextWords(known) {
  const lines = Array.from({ length: SHOWN }, () =>
    element("tr", {}, element("th", { scope: "row" }), element("td", {}, element("i")), element("td"), element("td")),
  );
  const head = element("tr", {}, ...COLUMNS.map((name) => element(name ? "th" : "td", name ? { scope: "col" } : {}, name)));
  const node = element(
    "table", { class: "tale-next" },
    element("caption", {}, "Likeliest next words"), element("thead", {}, head), element("tbody", {}, ...lines),
  );
  return {
    node,
    draw(rows) {
      const places = known.map((_, i) => i).sort((i, j) => rows[j][1] - rows[i][1] || i - j).slice(0, SHOWN);
      lines.forEach((line, k) => {
        const [, p, allowed] = rows[places[k]];
        const [word, bar, mine, rules] = line.children;
        write(word, known[places[k]]);
        /** @type {HTMLElement} */ (bar.firstChild).style.setProperty("--share", String(p));
        write(mine, share(p));
        write(rules, allowed ? share(allowed) : "–");
      });
      return places[0];
    },
  };
}

// What the drawing shows, in words.
function sentence(view, given, values) {
  const words = wordsOf(view);
  const [word, most] = [words[askingOf(view)], values.weights.indexOf(Math.max(...values.weights))];
  const next = values["next word"];
  const best = next.reduce((i, line, j) => (line[1] > next[i][1] ? j : i), 0);
  const allowed = given.words.filter((_, i) => next[i][2] > 0);
  const rules = allowed.length > 4 ? `${allowed.length} words` : list(allowed);
  const law = allowed.length ? `the rules allow ${rules}` : "no story of the rules goes like this";
  return (
    `“${word}” asks, and this head gives the largest weight, ${share(values.weights[most])}, to “${words[most]}”. ` +
    `After the whole story the model predicts “${given.words[best]}” with ${share(next[best][1])}; ${law}.`
  );
}

// What a bug does to the words that the rules fix.
function verdict(bug, fixed, lost) {
  const fix = `The rules fix ${plural(fixed.filter(Boolean).length, "word")} of this story, underlined.`;
  if (bug === "none") return `${fix} Choose a bug to see which of them the model then fails at.`;
  if (!lost.length) return `${fix} Nothing breaks: the bug takes no more than ${FALL} off the probability of any.`;
  return `${fix} The bug takes more than ${FALL} off the probability of ${plural(lost.length, "word")}, marked ↓.`;
}

function controls(view, given, text) {
  const select = exampleChoice(view, given.examples, text);
  const place = (trait, label, count) =>
    pick(view, trait, {
      label, texts: () => numbered(count).map((_, i) => `${i}`), choose: (i) => view.set(trait, i),
    });
  const [layers, heads] = given.shape;
  const about = element("label", { class: "live-control" }, "A story about", select);
  return { heads: row(place("layer", "Layer", layers), place("head", "Head", heads)), about: row(about) };
}

/** @type {(view: View) => void} */
export function stories(view) {
  const given = view.get("given").stories;
  const lent = loan(
    view,
    (hadFocus) => {
      if (hadFocus) text.box.focus();
      draw();
    },
    given,
  );
  const found = outcomes(view, given, lent.model);
  const text = storyBox(view, given, lent.loader, []);
  const scene = tale((place) => view.set("asking", place));
  const [next, told, broken] = [nextWords(given.words), spoken([2, 4, 5]), spoken([3, 3, 4], "stage-verdict")];
  const asking = element("data", { hidden: "", "data-trait": "asking" });

  function draw() {
    const values = found();
    scene.node.classList.toggle("tale-waits", !values);
    asking.setAttribute("value", String(view.get("asking")));
    if (!values) {
      lent.load(() => {});
      told.say("The drawing follows as soon as the model is loaded.");
      return;
    }
    const bug = bugOf(view, given);
    sayNow(root, bug === "none" ? `layer ${view.get("layer")}, head ${view.get("head")}` : bug);
    const words = wordsOf(view);
    const fixed = fixedOnes(given.rules, words);
    const said = values["words of the story"];
    const fell = said.map(([before, now], i) => fixed[i] && before - now > FALL);
    scene.draw({ words, values, said, fixed, fell, asking: askingOf(view) });
    next.draw(values["next word"]);
    told.say(sentence(view, given, values));
    broken.say(verdict(bug, fixed, words.filter((_, i) => fell[i])));
    view.values(values);
  }

  const { heads, about } = controls(view, given, text);
  heads.classList.add("stage-heads");
  const breakIt = choice(view, "bug", { label: "Break it:", options: given.bugs });
  const root = element(
      "div", { class: "stage stage-told-stories" },
      heads, scene.node, told.node,
      element(
        "div", { class: "stage-below" },
        element("div", { class: "stage-left" }, next.node),
        element(
          "div", { class: "stage-right" },
          element("div", { class: "stage-break" }, breakIt, broken.node), about, text.node,
        ),
      ),
      asking,
  );
  view.add(root);
  view.follow(FOLLOWED, draw);
}
