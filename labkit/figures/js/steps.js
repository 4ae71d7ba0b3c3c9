import { able, button } from "./controls.js";
import { element } from "./elements.js";

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
  const back = button("◀", () => go(at() - 1));
  const forth = button("Next ▶", () => go(at() + 1));
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
