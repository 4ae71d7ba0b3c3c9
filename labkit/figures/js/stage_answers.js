// The answers with their probabilities, and what a bug does to all sentences.

import { button, choice } from "./controls.js";
import { element, spoken, write } from "./elements.js";
import { LAST, isAnswered, largest, wrongOnes } from "./stage_model.js";
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
  const wait = element("li", { class: "stage-wait" }, `The answers come at step ${LAST + 1}.`);
  const node = element("ul", { class: "stage-answers", "aria-label": "Probability of each answer" }, ...lines, wait);
  return {
    node,
    draw({ found, step, right }) {
      const best = largest(found.answers);
      const answered = isAnswered(step);
      wait.classList.toggle("stage-gone", answered);
      lines.forEach((line, i) => {
        line.classList.toggle("stage-later", !answered);
        line.classList.toggle("stage-best", answered && i === best);
        /** @type {HTMLElement} */ (line.children[1]).style.setProperty("--share", String(answered ? found.answers[i] : 0));
        const mark = given.answers[i] === right ? " ✓" : "";
        write(line.children[2], answered ? `${share(found.answers[i])}${mark}` : "");
      });
    },
  };
}

// A bug of the other model is none here.
/** @type {(view: View) => string} */
export const bugOf = (view) => (view.options("bug").includes(view.get("bug")) ? view.get("bug") : "none");

// A switch puts a silent bug into the model; the sentences that then go wrong can be looked at.
/** @type {(view: View, given: import("./stage_model.js").Pocket, load: (text: string) => void) =>
 *   Part & { draw(): number }} */
export function breakIt(view, given, load) {
  const told = spoken([2, 2, 3], "stage-verdict");
  const shown = Array.from({ length: NAMED }, (_, i) => button("", () => load(wrong[i])));
  const select = choice(view, "bug", { label: "Break it:" });
  /** @type {string[]} */
  let wrong = [];
  return {
    node: element("div", { class: "stage-break" }, select, told.node, element("div", { class: "stage-wrong-ones" }, ...shown)),
    draw() {
      const [bug, vectors] = [bugOf(view), view.get("vectors")];
      wrong = wrongOnes(given, vectors, bug);
      // Of different kinds, rather than the first of them.
      const apart = Math.max(1, Math.floor(wrong.length / NAMED));
      wrong = wrong.filter((_, i) => i % apart === 0).slice(0, NAMED);
      const count = wrongOnes(given, vectors, bug).length;
      const changed = JSON.stringify(vectors) !== JSON.stringify(given.vectors);
      told.say(verdict(bug, count, given.sentences.length, changed));
      shown.forEach((one, i) => {
        write(one, wrong[i] ?? "");
        one.classList.toggle("stage-gone", i >= wrong.length);
        one.disabled = i >= wrong.length;
      });
      return count;
    },
  };
}
