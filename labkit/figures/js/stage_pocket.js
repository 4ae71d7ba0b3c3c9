// The stage, for a page that has no stories; stage.js adds these.

import { able, button } from "./controls.js";
import { editable } from "./editable.js";
import { element, report, spoken } from "./elements.js";
import { answers, breakIt, bugOf } from "./stage_answers.js";
import { chips } from "./stage_chips.js";
import { follow } from "./stage_follow.js";
import { LAST, attend, isAnswered, lookUp, rightAnswer } from "./stage_model.js";
import { plane } from "./stage_plane.js";
import { tell } from "./stage_words.js";
import { steps } from "./steps.js";
import { View } from "./view.js";

const PLAYED = ["sentence", "step", "bug", "vectors", "query"];

// All sentences of the model to choose from, by the question that they ask.
function examples(view, given, load) {
  const texts = given.sentences.map(([text]) => text);
  const group = (label, last) =>
    element(
      "optgroup", { label },
      ...texts.filter((text) => text.endsWith(` ${last}`)).map((text) => element("option", { value: text }, text)),
    );
  const own = element("option", {}, "your own"); // while it is
  const select = element(
    "select", { onchange: () => load(select.value) }, group("… and: who?", "and"), group("… a: what?", "a"),
  );
  view.follow(["sentence"], () => {
    const sentence = view.get("sentence");
    own.value = sentence;
    if (texts.includes(sentence)) own.remove();
    else select.append(own);
    select.value = sentence;
  });
  return element("label", { class: "live-control" }, "Sentence", select);
}

// What the state is, for those who drive the page from outside.
function told(view) {
  const marks = ["sentence", "step", "vectors", "query"].map((trait) => {
    const node = element("data", { hidden: "", "data-trait": trait });
    view.follow([trait], () => node.setAttribute("value", JSON.stringify(view.get(trait))));
    return node;
  });
  return element("div", { hidden: "" }, ...marks);
}

/** @type {(view: View) => void} */
function pocket(view) {
  /** @type {import("./stage_model.js").Pocket} */
  const given = view.get("given");
  const said = spoken([2, 4, 5]);

  // A query that was set by hand belongs to its asking word.
  function load(text) {
    const last = (one) => one.slice(one.lastIndexOf(" "));
    if (last(text) !== last(view.get("sentence"))) view.set("query", []);
    view.set("sentence", text);
  }

  const scene = chips(given, (place, word) => {
    const words = view.get("sentence").split(" ");
    words[place] = word;
    load(words.join(" "));
    report(scene.node, `The sentence is “${words.join(" ")}”.`);
    said.node.dispatchEvent(new Event("said", { bubbles: true })); // another word may change nothing in it
  });
  const drawn = plane(given, {
    word(word, to) {
      const at = given.words.indexOf(word);
      view.set("vectors", view.get("vectors").map((row, i) => (i === at ? to : row)));
    },
    query: (to) => view.set("query", to),
  });
  const list = answers(given);
  const broken = breakIt(view, given, (text) => {
    load(text);
    if (!isAnswered(view.options("step").indexOf(view.get("step")))) view.set("step", view.options("step")[LAST]);
  });
  const undo = button("Reset vectors", () => {
    view.set("vectors", given.vectors.map((row) => [...row]));
    view.set("query", []);
  });

  function draw() {
    const words = view.get("sentence").split(" ");
    const [bug, query, vectors] = [bugOf(view), view.get("query"), view.get("vectors")];
    const found = attend(given, lookUp(given, vectors, view.get("sentence")), bug, query);
    const step = view.options("step").indexOf(view.get("step"));
    const now = {
      words, found, step, bug, given, vectors, set: query.length > 0, right: rightAnswer(given, words.join(" ")),
    };
    scene.draw(now);
    drawn.draw({ ...now, step: step || 6 });
    list.draw(now);
    said.node.dataset.step = view.get("step");
    said.say(tell(view.get("step"), now));
    able(undo, query.length > 0 || JSON.stringify(vectors) !== JSON.stringify(given.vectors));
    const { x, query: asked, keys, scores, weights, values, output, answers: p } = found;
    const byWord = [words, ["first", "second"]];
    view.values({
      vectors: x, query: asked, keys, scores, weights, values, output, answers: p,
      "sentences that go wrong": broken.draw(),
    }, { vectors: byWord, keys: byWord, scores: [words], weights: [words], values: byWord });
  }

  const numbers = editable(view, "vectors", { label: "Word vectors: first and second number", axes: [given.words, ["first", "second"]] });
  const typed = element("details", { class: "stage-typed" }, element("summary", {}, "Type the vectors"), numbers.node);
  const root = element(
      "div", { class: "stage" },
      steps(view), said.node, scene.node,
      element(
        "div", { class: "stage-below" },
        element("div", { class: "stage-left" }, drawn.node),
        element(
          "div", { class: "stage-right" },
          list.node, element("div", { class: "live-row" }, examples(view, given, load), undo), broken.node, typed,
        ),
      ),
      told(view),
  );
  view.add(root);
  view.follow(PLAYED, draw);
}

// A figure that has the pocket model, and other scenes by the names of their models.
/** @type {(scenes: { stories?: (view: View) => void }) => { render: Render, follow: typeof follow }} */
export const stage = ({ stories }) => ({ render: (given) => render(given, stories), follow });

/** @type {(given: Given, stories?: (view: View) => void) => () => void} */
function render({ model, el }, stories) {
  const isStory = () => stories !== undefined && model.get("model") === "stories" && "stories" in model.get("given");
  const todo = isStory() ? "let another word ask, break the model" : "take the steps; in step 2, drag a word";
  const view = new View({ model, el }, todo);
  let shown = isStory();
  function build() {
    (shown && stories ? stories : pocket)(view);
    // Where a text leads there are buttons, and room for them from the start.
    if (!Object.keys(view.get("states")).length) return;
    const scene = view.body.querySelector(".stage");
    scene?.classList.add("stage-led");
    scene?.prepend(element("div", { class: "stage-follow" }));
  }
  // Another model has a scene of its own.
  function change() {
    if (shown === isStory()) return;
    shown = isStory();
    view.clear();
    build();
  }
  const heard = ["change:model", "change:given"];
  for (const event of heard) model.on(event, change);
  build();
  return () => {
    for (const event of heard) model.off(event, change);
    view.close();
  };
}

export default stage({});
