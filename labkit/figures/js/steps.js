import { able, button } from "./controls.js";
import { element, report } from "./elements.js";

// The steps as numbered buttons, of which one is pressed, with one back and one forth.
/** @type {(view: View) => HTMLElement} */
export function steps(view) {
  const names = view.options("step");
  const go = (i) => view.set("step", names[i]);
  const buttons = names.map((name, i) => {
    const made = button("", () => go(i));
    made.setAttribute("aria-label", `Step ${i + 1}: ${name}`);
    made.append(element("i", {}, String(i + 1)), element("span", {}, name));
    return made;
  });
  const at = () => names.indexOf(view.get("step"));
  // Unlike a step's own button, these two do not say which step they lead to.
  const turn = (by) => {
    const i = at() + by;
    report(bar, `Step ${i + 1} of ${names.length}: ${names[i]}.`);
    go(i);
  };
  const back = button("◀", () => turn(-1));
  const forth = button("Next ▶", () => turn(1));
  back.setAttribute("aria-label", "Step back");
  forth.setAttribute("aria-label", "Next step");
  view.follow(["step"], () => {
    buttons.forEach((one, i) => one.setAttribute("aria-pressed", String(i === at())));
    able(back, at() > 0);
    able(forth, at() < names.length - 1);
  });
  const bar = element("div", { class: "stage-steps", role: "group", "aria-label": "Steps" }, ...buttons);
  return element("div", { class: "stage-bar" }, back, bar, forth);
}
