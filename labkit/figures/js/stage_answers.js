// The answers with their probabilities, and what a bug does to all sentences.

import { button, choice } from "./controls.js";
import { element, spoken, write } from "./elements.js";
import { isAnswered, largest, wrongOnes } from "./stage_model.js";
import { share, verdict } from "./stage_words.js";

const NAMED = 4; // sentences that go wrong

/** @type {(given: import("./stage_model.js").Pocket) => Part & { draw(scene: any): void }} */
export function answers(given) {
  const lines = given.answers.map((answer) =>
    element(
      "li", { class: "stage-said" },
      element("span", {}, answer), element("i", {}), element("b", {}),
    ),
  );
  const node = element("ul", { class: "stage-answers", "aria-label": "Probability of each answer" }, ...lines);
  return {
    node,
    draw({ found, step, right }) {
      const best = largest(found.answers);
      const answered = isAnswered(step);
      lines.forEach((line, i) => {
        line.classList.toggle("stage-best", answered && i === best);
        /** @type {HTMLElement} */ (line.children[1]).style.setProperty("--share", String(answered ? found.answers[i] : 0));
        const mark = given.answers[i] === right ? " ✓" : "";
        write(line.children[2], answered ? `${share(found.answers[i])}${mark}` : "?");
      });
    },
  };
}

// A bug of the other model is none here.
/** @type {(view: View) => string} */
export const bugOf = (view) => (view.options("bug").includes(view.get("bug")) ? view.get("bug") : "none");

// A switch puts a silent bug into the model; the sentences that then go wrong can be looked at, and
// where none does, some that are right.
/** @type {(view: View, given: import("./stage_model.js").Pocket, load: (text: string) => void) =>
 *   Part & { draw(): number }} */
export function breakIt(view, given, load) {
  const told = spoken([2, 2, 3], "stage-verdict");
  const shown = Array.from({ length: NAMED }, (_, i) => button("", () => load(named[i])));
  const select = choice(view, "bug", { label: "Break it:" });
  /** @type {string[]} */
  let named = [];
  return {
    node: element("div", { class: "stage-break" }, select, told.node, element("div", { class: "stage-named" }, ...shown)),
    draw() {
      const [bug, vectors] = [bugOf(view), view.get("vectors")];
      const wrong = wrongOnes(given, vectors, bug);
      named = wrong.length ? wrong : given.sentences.map(([text]) => text);
      // Of different kinds, rather than the first of them.
      const apart = Math.max(1, Math.floor(named.length / NAMED));
      named = named.filter((_, i) => i % apart === 0).slice(0, NAMED);
      const changed = JSON.stringify(vectors) !== JSON.stringify(given.vectors);
      told.say(verdict(bug, wrong.length, given.sentences.length, changed));
      shown.forEach((one, i) => {
        write(one, named[i] ?? "");
        one.classList.toggle("stage-gone", i >= named.length);
        one.disabled = i >= named.length;
      });
      return wrong.length;
    },
  };
}
