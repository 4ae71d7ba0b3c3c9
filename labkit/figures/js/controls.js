// Controls that set a trait. Each is marked with it, for those who drive the page from outside.

import { element, phrase, report, row, still, unique, write } from "./elements.js";
import { whole } from "./text.js";

// A number beside what has told it already: an `output` would be announced besides.
/** @type {(attributes?: Record<string, string>) => HTMLElement} */
export const quiet = (attributes = {}) => element("span", { ...attributes, class: "live-number" });

/** @type {Control} */
export function slider(view, trait, { label }) {
  const id = unique();
  const steps = view.options(trait);
  const input = element("input", {
    id,
    type: "range",
    min: 0,
    max: steps.length - 1,
    "data-trait": trait,
    oninput: () => view.set(trait, steps[input.value]),
  });
  const shown = quiet();
  view.follow([trait], () => {
    input.value = String(steps.indexOf(view.get(trait)));
    input.setAttribute("aria-valuetext", view.get(trait));
    write(shown, whole(view.get(trait)));
  });
  const named = element("label", { for: id }, phrase(label));
  return element("div", { class: "live-control" }, named, input, shown);
}

// Sliders in columns: labels, tracks, and what they are set to.
/** @type {(...controls: HTMLElement[]) => HTMLElement} */
export const sliders = (...controls) => element("div", { class: "live-ranges" }, ...controls);

/** @type {Control} */
export function toggle(view, trait, { label }) {
  const input = element("input", {
    type: "checkbox",
    "data-trait": trait,
    onchange: () => view.set(trait, input.checked),
  });
  view.follow([trait], () => {
    input.checked = view.get(trait);
  });
  return element("label", { class: "live-control" }, input, phrase(label));
}

/** @type {Control} */
export function choice(view, trait, { label, options = view.options(trait) }) {
  const select = element(
    "select",
    { "data-trait": trait, onchange: () => view.set(trait, options[select.selectedIndex]) },
    ...options.map((option) =>
      element("option", { value: JSON.stringify(option) }, String(option)),
    ),
  );
  view.follow([trait], () => {
    select.selectedIndex = Math.max(0, options.indexOf(view.get(trait)));
  });
  return element("label", { class: "live-control" }, phrase(label), select);
}

// A list of texts of which one is chosen by its place.
/** @type {ByPlace} */
export function pick(view, trait, { label, texts, follow = [], choose }) {
  const select = element("select", { "data-trait": trait });
  select.addEventListener("change", () => choose(select.selectedIndex));
  let known = "";
  view.follow([trait, ...follow], () => {
    const now = texts();
    if (JSON.stringify(now) !== known) {
      known = JSON.stringify(now);
      select.replaceChildren(...now.map((text, i) => element("option", { value: i }, text)));
    }
    select.selectedIndex = view.get(trait);
  });
  return element("label", { class: "live-control" }, phrase(label), select);
}

/** @type {(label: string, action: () => void) => HTMLButtonElement} */
export function button(label, action) {
  const onclick = () => {
    if (isAble(made)) action();
  };
  const made = element("button", { type: "button", class: "live-button", onclick }, phrase(label));
  return made;
}

// A button that has nothing to do says so and keeps the focus, which `disabled` would drop.
/** @type {(made: HTMLButtonElement, can: boolean) => void} */
export function able(made, can) {
  made.setAttribute("aria-disabled", String(!can));
}

const isAble = (made) => made.getAttribute("aria-disabled") !== "true";

// A count that buttons change: it is read as text.
/** @type {Control} */
export function counter(view, trait, { label }) {
  const shown = quiet({ "data-trait": trait });
  view.follow([trait], () => write(shown, String(view.get(trait))));
  return element("span", { class: "live-control" }, phrase(label), shown);
}

// Which head is chosen: text, and no control.
/** @type {(view: View) => HTMLElement} */
export const chosenPlace = (view) =>
  element(
    "span", { class: "live-control live-place" },
    counter(view, "layer", { label: "Chosen: layer" }), counter(view, "head", { label: "head" }),
  );

// Says on the button that plays whether it does, and lets the figure be silent while it does.
/** @type {(play: HTMLButtonElement, isOn: boolean, news?: string) => void} */
export function plays(play, isOn, news = "Playing.") {
  const was = play.hasAttribute("data-playing");
  write(play, isOn ? "Pause" : "Play");
  play.toggleAttribute("data-playing", isOn);
  if (was === isOn) return;
  if (isOn) report(play, news);
  else play.dispatchEvent(new Event("played", { bubbles: true }));
}

// Buttons that go to the step before, to the next, and on by itself until pressed again or at the
// last. Who wants less motion gets steps alone.
/** @type {(steps: { go: (by: number) => void, begin: () => void, every: number, next?: string }) =>
 *   { nodes: HTMLElement[], draw: (before: boolean, after: boolean) => void, stop: () => void }} */
export function stepper({ go, begin, every, next = "Next step" }) {
  let timer = 0;
  function stop() {
    clearInterval(timer);
    timer = 0;
    plays(play, false);
  }
  const [back, forth] = [button("Step back", () => go(-1)), button(next, () => go(1))];
  const play = button("Play", () => {
    if (timer) return stop();
    if (!isAble(forth)) begin();
    timer = setInterval(() => go(1), every);
    plays(play, true, `Playing. “${next}” goes through the same and tells what happens.`);
  });
  return {
    nodes: [back, forth, ...(still() ? [] : [play])],
    // Whether there are steps before and after.
    draw(before, after) {
      able(back, before);
      able(forth, after);
      if (!after) stop();
    },
    stop,
  };
}

// What stands side by side, to compare; on a phone buttons show one of them in the same place.
/** @type {(names: string[], nodes: HTMLElement[]) => HTMLElement[]} */
export function beside(names, nodes) {
  const buttons = names.map((name, i) => button(name, () => show(i)));
  function show(chosen) {
    nodes.forEach((node, i) => node.toggleAttribute("data-away", i !== chosen));
    buttons.forEach((made, i) => made.setAttribute("aria-pressed", String(i === chosen)));
  }
  show(0);
  const all = row(...nodes);
  all.classList.add("live-turns");
  const group = { class: "live-row live-which", role: "group", "aria-label": "Shown below" };
  return [element("div", group, ...buttons), all];
}

// A line that tells what is wrong with what was typed; the control says so too, until all is well.
/** @type {() => Complaint} */
export function complaint() {
  const id = unique();
  const line = element("p", { class: "live-error", id });
  let known = "";
  function tell(control, fault) {
    write(line, fault);
    if (fault !== known) line.dispatchEvent(new CustomEvent("refused", { bubbles: true, detail: fault }));
    known = fault;
    const said = { "aria-invalid": "true", "aria-describedby": id };
    for (const [name, value] of Object.entries(said)) {
      if (fault) control.setAttribute(name, value);
      else control.removeAttribute(name);
    }
  }
  return { line, tell };
}
