"use strict";

window.make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// A link to a verdict shows what is folded in it, and what it is folded into.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (!(target instanceof HTMLDetailsElement)) return;
  /** @type {HTMLDetailsElement | null | undefined} */
  let fold = target;
  for (; fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  target.scrollIntoView();
}
document.addEventListener("DOMContentLoaded", unfold);
window.addEventListener("hashchange", unfold);

// On paper nothing can be opened, and ink is dark: print light, with verdicts and answers open.
const root = document.documentElement;
let before;
window.addEventListener("beforeprint", () => {
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const folds = document.querySelectorAll("article details:not([open], .hide)");
  before = { theme: root.dataset.theme, folds };
  root.dataset.theme = "light";
  folds.forEach((fold) => { fold.open = true; });
});
window.addEventListener("afterprint", () => {
  root.dataset.theme = before.theme;
  before.folds.forEach((fold) => { fold.open = false; });
});
