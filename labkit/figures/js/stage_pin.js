// The stage stays in sight while one reads on: a compact form lies over the top of the text column
// as soon as the figure itself has left the window.

import { button } from "./controls.js";

const LOWEST = 500; // of a window, in pixels, that has room for both

// A button that keeps the figure in sight, beside the parts of the text that speak of it, or lets it go.
/** @type {(figure: HTMLElement, speaking: Element[]) => HTMLButtonElement} */
export function keepInSight(figure, speaking) {
  const page = document.documentElement;
  const live = /** @type {HTMLElement} */ (figure.querySelector(".live"));
  const text = figure.closest("article")?.querySelector("section");
  const keep = button("Keep in sight", () => turn(keep.getAttribute("aria-pressed") !== "true"));
  let [on, asked] = [true, false];

  const header = () => {
    const sticky = document.querySelector(".bd-header-article");
    return Math.max(0, sticky?.getBoundingClientRect().bottom ?? 0);
  };
  function pin(pinned) {
    if (pinned === figure.classList.contains("stage-pinned")) return;
    // The place is kept, so that nothing moves.
    figure.style.minHeight = pinned ? `${figure.getBoundingClientRect().height}px` : "";
    figure.classList.toggle("stage-pinned", pinned);
  }
  function look() {
    asked = false;
    // As wide as the text, where the figure stands indented.
    const boxes = [figure, text ?? figure].map((one) => one.getBoundingClientRect());
    const left = Math.min(...boxes.map((box) => box.left));
    const width = Math.max(...boxes.map((box) => box.right)) - left;
    const { bottom } = boxes[0];
    const top = header();
    figure.style.setProperty("--stage-top", `${top}px`);
    figure.style.setProperty("--stage-left", `${left}px`);
    figure.style.setProperty("--stage-width", `${width}px`);
    const high = figure.classList.contains("stage-pinned") ? live.offsetHeight : 0.3 * innerHeight;
    const isSpokenOf = speaking.some((part) => {
      const box = part.getBoundingClientRect();
      return box.top < innerHeight && box.bottom > innerHeight / 2;
    });
    pin(on && isSpokenOf && innerHeight >= LOWEST && bottom < top + high);
    if (figure.classList.contains("stage-pinned")) page.style.setProperty("--stage-high", `${top + live.offsetHeight}px`);
  }
  function ask() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(look);
  }
  function turn(now) {
    on = now;
    keep.setAttribute("aria-pressed", String(on));
    page.classList.toggle("stage-in-sight", on);
    ask();
  }
  for (const kind of ["scroll", "resize"]) addEventListener(kind, ask, { passive: true });
  addEventListener("beforeprint", () => pin(false));
  addEventListener("afterprint", ask);
  turn(true);
  return keep;
}
