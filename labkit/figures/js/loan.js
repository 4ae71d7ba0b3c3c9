// The small GPT's weights, which come when a figure is first played.

import { button } from "./controls.js";
import { report, write } from "./elements.js";
import { read } from "./gpt.js";

// The model, which is asked for when it is first needed; `come` runs as soon as it is there.
/** @typedef {import("./gpt.js").GPT} GPT */
/** @typedef {{ bytes: number, of?: string }} Lent */
/** @typedef {{ loader: HTMLElement, model(): GPT | null, load(then: () => void): void }} Loan */
// `of` names the figure whose parcel it is, where that is another one.
/** @type {(view: View, come: (hadFocus: boolean) => void, given?: Lent) => Loan} */
export function loan(view, come, given) {
  /** @type {Lent} */
  const { bytes, of } = given ?? view.get("given");
  /** @type {GPT | null} */
  let gpt = null;
  let [asked, played, isTouched] = [false, false, false];
  let waiting = () => {};
  const size = `${Math.round(bytes / 1000)} KB`;
  const loader = button(`Load the model, ${size}, to change the story`, () => load(() => {}));

  loader.addEventListener("pointerdown", ({ pointerType }) => { isTouched = pointerType === "touch"; });
  loader.addEventListener("keydown", () => { isTouched = false; });
  // What comes because the text leads the figure is no answer to a reader, and silent.
  for (const kind of ["click", "input", "played"]) {
    view.root.addEventListener(kind, () => { played = true; }, { capture: true });
  }
  const tell = (/** @type {string} */ text) => played && report(loader, text);

  function load(then) {
    waiting = then;
    if (asked) return;
    asked = true;
    write(loader, `Loading the model, ${size}`);
    tell(`Loading the model, ${size}.`);
    view.model.send({ ask: "parcel", ...(of ? { of } : {}) });
  }

  function hear(content, buffers) {
    if (content?.answer !== "parcel" || gpt) return;
    if (!buffers?.length) {
      asked = false;
      write(loader, "The model did not come: try again");
      tell("The model did not come.");
      return;
    }
    gpt = read(buffers[0]);
    tell("The model is ready.");
    const hadFocus = document.activeElement === loader;
    come(hadFocus && !isTouched);
    if (hadFocus && isTouched) {
      view.root.tabIndex = -1; // a field would raise a phone's keyboard over the figure
      view.root.focus({ preventScroll: true });
    }
    loader.remove();
    waiting();
  }
  view.model.on("msg:custom", hear);
  view.undo.push(() => view.model.off("msg:custom", hear));
  return { loader, model: () => gpt, load };
}
