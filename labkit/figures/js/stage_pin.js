// The stage stays in sight while one reads on, as soon as the figure itself has left the window: in the
// right margin where that has room. Elsewhere a compact form lies over the top of the text column, and
// gives way to what is read as a whole.

import { button } from "./controls.js";

const LOWEST = 650; // of a window, in pixels, that has room for both
const SHARE = 0.34; // of the lowest window, down to which the compact form lies
const [NARROWEST, WIDEST, GAP] = [300, 380, 24]; // of the form in the margin, and what is left beside it
const WHOLES = "table, figure, .cell_output, .predict";

const header = () => {
  const sticky = document.querySelector(".bd-header-article");
  return Math.max(0, sticky?.getBoundingClientRect().bottom ?? 0);
};

// Whether a part reaches the window's lower half, once the text has been scrolled by so much.
function isRead(part, by) {
  const box = part.getBoundingClientRect();
  return box.top - by < innerHeight && box.bottom - by > innerHeight / 2;
}

/** @type {(one: Element, other: Element) => boolean} */
function areOver(one, other) {
  const [a, b] = [one, other].map((node) => node.getBoundingClientRect());
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Calls back when a table, a drawing or an output comes to where the compact form lies, or leaves.
/** @type {(figure: HTMLElement, text: Element | null | undefined, changed: (any: boolean) => void) => void} */
function watchWholes(figure, text, changed) {
  const there = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) there[isIntersecting ? "add" : "delete"](target);
      changed(there.size > 0);
    },
    { rootMargin: `0px 0px -${100 * (1 - SHARE)}% 0px` },
  );
  for (const one of text?.querySelectorAll(WHOLES) ?? []) if (!figure.contains(one) && !one.contains(figure)) watch.observe(one);
}

// A button that keeps the figure in sight, beside the parts of the text that speak of it, or lets it go.
/** @type {(figure: HTMLElement, speaking: Element[]) => HTMLButtonElement} */
export function keepInSight(figure, speaking) {
  const page = document.documentElement;
  const live = /** @type {HTMLElement} */ (figure.querySelector(".live"));
  const text = figure.closest("article")?.querySelector("section");
  const keep = button("Keep in sight", () => turn(keep.getAttribute("aria-pressed") !== "true"));
  let [on, asked, isFocusNew, isFree, isBeside] = [true, false, false, true, false];
  // A section that is laid out only as it nears keeps what is fixed in it, and does not paint it.
  for (let around = figure.closest("section"); around; around = around.parentElement?.closest("section") ?? null)
    around.style.contentVisibility = "visible";

  function pin(pinned) {
    if (pinned === figure.classList.contains("stage-pinned")) return;
    // The place is kept, so that nothing moves.
    figure.style.minHeight = pinned ? `${figure.getBoundingClientRect().height}px` : "";
    figure.classList.toggle("stage-pinned", pinned);
    if (!pinned) page.style.removeProperty("--stage-beside");
  }
  // Whether the stage is kept in sight, once the text has been scrolled by so much.
  function isWanted(top, high, by = 0) {
    return on && speaking.some((part) => isRead(part, by)) && innerHeight >= LOWEST && figure.getBoundingClientRect().bottom - by < top + high;
  }
  // In the margin, or as wide as the text, where the figure stands indented.
  function place(top) {
    const boxes = [figure, text ?? figure].map((one) => one.getBoundingClientRect());
    const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    const room = page.clientWidth - right - GAP * 1.5;
    isBeside = room >= NARROWEST;
    figure.classList.toggle("stage-beside", isBeside);
    figure.style.setProperty("--stage-top", `${top}px`);
    figure.style.setProperty("--stage-left", `${isBeside ? right + GAP : left}px`);
    figure.style.setProperty("--stage-width", `${isBeside ? Math.min(room, WIDEST) : right - left}px`);
  }
  const keepClear = (top) => page.style.setProperty("--stage-high", `${top + live.offsetHeight}px`);
  // A jump ends below the header, and below the stage where that is going to lie over the place.
  function makeRoom(hash) {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    if (!target) return;
    const top = header();
    const was = figure.classList.contains("stage-pinned");
    place(top);
    const isPinned = !isBeside && isWanted(top, SHARE * innerHeight, target.getBoundingClientRect().top - top);
    page.style.removeProperty("--stage-high");
    if (!isPinned) return;
    pin(true);
    keepClear(top);
    pin(was);
  }
  function look() {
    asked = false;
    const top = header();
    place(top);
    const high = figure.classList.contains("stage-pinned") ? live.offsetHeight : SHARE * innerHeight;
    pin(isBeside ? isWanted(top, 0) : isFree && isWanted(top, high));
    const isPinned = figure.classList.contains("stage-pinned");
    if (isPinned && isBeside) page.style.setProperty("--stage-beside", `${live.offsetHeight}px`);
    const held = document.activeElement;
    const isHeldNew = isPinned && isFocusNew && held && text?.contains(held) && !figure.contains(held);
    if (isHeldNew && isBeside && areOver(held, live)) held.scrollIntoView({ block: "start" });
    if (isPinned && !isBeside) {
      keepClear(top);
      if (isHeldNew) held.scrollIntoView({ block: "nearest" });
    } else if (scrollY > 0) page.style.removeProperty("--stage-high"); // at 0 a jump may be still to come
    isFocusNew = false;
  }
  function ask() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(look);
  }
  function turn(now) {
    on = now;
    keep.setAttribute("aria-pressed", String(on));
    ask();
  }
  watchWholes(figure, text, (any) => {
    isFree = !any;
    ask();
  });
  for (const kind of ["scroll", "resize"]) addEventListener(kind, ask, { passive: true });
  document.addEventListener("focusin", () => {
    isFocusNew = true; // what has it is not covered by the stage that comes
    ask();
  });
  document.addEventListener("click", ({ target }) => {
    const link = /** @type {Element} */ (target).closest("a[href^='#']");
    if (link) makeRoom(/** @type {HTMLAnchorElement} */ (link).hash);
  }, { capture: true });
  addEventListener("beforeprint", () => pin(false));
  addEventListener("afterprint", ask);
  turn(true);
  queueMicrotask(() => makeRoom(location.hash)); // once the buttons have their place
  return keep;
}
