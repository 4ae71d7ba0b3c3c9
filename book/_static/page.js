"use strict";

window.make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// What is folded has no size yet, and to measure what is in a section out of sight would lay it out,
// which book.css puts off on a phone.
const waiting = new WeakSet();
window.whenLaidOut = (element, act) => {
  const fold = element.closest("details:not([open])");
  const isNear = fold || element.checkVisibility({ contentVisibilityAuto: true });
  const awaited = isNear ? fold : element.closest("article > section > section");
  if (!awaited) {
    act();
    return;
  }
  if (waiting.has(element)) return;
  waiting.add(element);
  awaited.addEventListener(fold ? "toggle" : "contentvisibilityautostatechange", () => {
    waiting.delete(element);
    whenLaidOut(element, act);
  }, { once: true });
};

const root = document.documentElement;

// What a button has done, told once to who listens, and soon taken away again.
const heard = make("p", { class: "front-told", role: "status" });
let spoken = 0;
window.announce = (text) => {
  clearTimeout(spoken);
  heard.textContent = "";
  spoken = setTimeout(() => {
    heard.textContent = text;
    spoken = setTimeout(() => { heard.textContent = ""; }, 5000);
  }, 100);
};
document.addEventListener("DOMContentLoaded", () => document.body.append(heard));

// By Tab the page jumps: gliding, what has the focus would be out of sight for a while.
document.addEventListener("keydown", ({ key }) => { if (key === "Tab") root.style.scrollBehavior = "auto"; });
for (const kind of ["pointerdown", "click"]) {
  document.addEventListener(kind, () => { root.style.scrollBehavior = ""; }, { capture: true });
}

// A button's tooltip is its name, which is not told twice.
document.addEventListener("inserted.bs.tooltip", ({ target }) => {
  if (target instanceof Element) target.removeAttribute("aria-describedby");
});

// What the buttons above the text have set: the colours, the contents of the book, the whole screen.
document.addEventListener("DOMContentLoaded", () => {
  const modes = document.querySelectorAll(".theme-switch-button");
  const sidebar = document.getElementById("pst-primary-sidebar");
  const isOpen = () => sidebar?.checkVisibility({ visibilityProperty: true })
    && !sidebar.classList.contains("pst-sidebar-hidden");
  const toggle = document.querySelector(".primary-toggle");
  function show() {
    if (toggle) bootstrap.Tooltip.getInstance(toggle)?.update(); // the button moves with the text
    for (const one of modes) one.setAttribute("aria-label", `Color mode: ${root.dataset.mode}`);
    toggle?.setAttribute("aria-expanded", String(Boolean(isOpen())));
    document.querySelector(".btn-fullscreen-button")
      ?.setAttribute("aria-pressed", String(Boolean(document.fullscreenElement)));
  }
  const watched = new MutationObserver(show);
  watched.observe(root, { attributeFilter: ["data-mode"] });
  if (sidebar) watched.observe(sidebar, { attributeFilter: ["class"] });
  sidebar?.addEventListener("transitionend", show);
  document.addEventListener("fullscreenchange", show);
  addEventListener("resize", show);
  show();
});

// What lies over the text where the window is narrow has a button that closes it, and closes as one
// chooses a place in the page.
document.addEventListener("DOMContentLoaded", () => {
  for (const name of ["primary", "secondary"]) {
    const sidebar = document.getElementById(`pst-${name}-sidebar`);
    /** @type {HTMLDialogElement | null} */
    const drawer = document.querySelector(`#pst-${name}-sidebar-modal`);
    if (!sidebar || !drawer) continue;
    const close = make("button", { type: "button", class: "drawer-close" }, "Close");
    sidebar.prepend(make("div", { class: "drawer-bar" }, close));
    drawer.addEventListener("click", ({ target }) => {
      if (target instanceof Element && target.closest('.drawer-close, a[href^="#"]')) drawer.close();
    });
  }
});

// A link to a verdict shows what is folded in it, and what it is folded into.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (!(target instanceof HTMLDetailsElement)) return;
  if (target.closest(".verdicts")) delete root.dataset.verdicts;
  /** @type {HTMLDetailsElement | null | undefined} */
  let fold = target;
  for (; fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  target.scrollIntoView();
}
document.addEventListener("DOMContentLoaded", unfold);
window.addEventListener("hashchange", unfold);

// What a link shows on the stage may be screens away. The jump is a step of the browser's history: back
// leads to the link again, and so does a button as long as the stage is in sight.
const backToText = make("button", { type: "button", class: "stage-back", "aria-keyshortcuts": "Escape" }, "Back to the text");
backToText.addEventListener("click", () => history.back());
/** @type {(stage: HTMLElement) => void} */
function offerBack(stage) {
  stage.tabIndex = -1; // who is led to the stage goes on from there
  stage.focus({ preventScroll: true });
  stage.prepend(backToText);
}
const awayFrom = new IntersectionObserver(([{ isIntersecting }]) => {
  if (!isIntersecting) backToText.remove();
});
/** @type {{ link: HTMLElement, top: number }[]} */
const left = [];
/** @type {(link: HTMLElement, hash: string) => void} */
function leave(link, hash) {
  left.push({ link, top: link.getBoundingClientRect().top });
  history.replaceState({ left: left.length - 1 }, "");
  history.pushState(null, "", hash);
}
/** @type {(link: HTMLElement, hash: string, figure: Element, stage: HTMLElement) => void} */
function leadTo(link, hash, figure, stage) {
  leave(link, hash);
  figure.scrollIntoView({ block: "start", behavior: "instant" });
  offerBack(stage);
  awayFrom.disconnect();
  awayFrom.observe(figure);
}
/** @type {(stage: HTMLElement) => boolean} */
function isInSight(stage) {
  const { top, bottom } = stage.getBoundingClientRect(); // also where it is pinned
  return bottom >= 100 && top <= innerHeight - 100;
}
// Before the stage hears of it, which then holds the place that it finds.
document.addEventListener("click", ({ target, ctrlKey, metaKey, shiftKey }) => {
  /** @type {HTMLAnchorElement | null} */
  const link = target instanceof Element ? target.closest('a[href^="#stage-"]') : null;
  const figure = link && document.getElementById(link.hash.slice(1))?.closest("figure");
  /** @type {HTMLElement | null | undefined} */
  const stage = figure?.querySelector(".live");
  if (!link || !figure || !stage || ctrlKey || metaKey || shiftKey) return;
  if (!isInSight(stage)) leadTo(link, link.hash, figure, stage);
}, { capture: true });
// By keyboard each part of the text that speaks of the stage leads to it, where it stands beside it or not.
for (const mark of document.querySelectorAll("[data-stage]")) {
  const enter = make("button", { type: "button", class: "stage-enter" }, "To the figure");
  const heading = mark.closest("section")?.querySelector("h1, h2, h3")?.firstChild?.textContent ?? "";
  enter.append(make("span", { class: "front-told" }, `: ${heading}`));
  enter.addEventListener("click", () => {
    const figure = document.querySelector(".live-figure:has(.stage)");
    /** @type {HTMLElement | null | undefined} */
    const stage = figure?.querySelector(".live");
    if (!figure || !stage) return;
    if (!isInSight(stage)) {
      leadTo(enter, location.hash, figure, stage);
      return;
    }
    leave(enter, location.hash);
    awayFrom.disconnect();
    offerBack(stage);
    const watch = ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && stage.contains(relatedTarget)) return;
      stage.removeEventListener("focusout", watch);
      queueMicrotask(() => backToText.remove()); // it may be what is just being removed
    };
    stage.addEventListener("focusout", watch);
  });
  mark.append(enter);
}
document.addEventListener("keydown", ({ key, target, defaultPrevented }) => {
  const stage = backToText.parentElement;
  if (key === "Escape" && !defaultPrevented && target instanceof Node && stage?.contains(target)) history.back();
});
addEventListener("popstate", ({ state }) => {
  backToText.remove();
  const from = left[state?.left];
  if (!from) return;
  requestAnimationFrame(() => {
    from.link.focus({ preventScroll: true });
    scrollBy({ top: from.link.getBoundingClientRect().top - from.top, behavior: "instant" });
  });
});

// In the margin an opened verdict lies over what stands below: Escape closes it.
document.addEventListener("keydown", ({ key, target }) => {
  const verdict = key === "Escape" && target instanceof Element && target.closest("details.verdict[open]");
  if (!verdict) return;
  verdict.removeAttribute("open");
  verdict.querySelector("summary")?.focus();
});

// Where the page's contents are behind a button, the link that skips to them presses it.
document.addEventListener("DOMContentLoaded", () => {
  /** @type {HTMLElement | null} */
  const button = document.querySelector(".secondary-toggle");
  document.querySelector('.skip-link [href="#pst-page-toc-nav"]')?.addEventListener("click", (event) => {
    if (!button?.checkVisibility()) return;
    event.preventDefault();
    button.click();
  });
});

// On paper nothing can be opened, and ink is dark: print light, with verdicts and answers open.
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

// On a phone a long block shows its beginning, and the rest as long as one asks for it: book.css cuts it.
document.addEventListener("DOMContentLoaded", () => {
  /** @type {NodeListOf<HTMLElement>} */
  const tall = document.querySelectorAll(".cell_input code.tall");
  for (const code of tall) {
    const [pre, block] = [code.parentElement, code.closest(".highlight")];
    if (!pre || !block || code.closest('details, section[id^="lab-"]')) continue;
    const all = `Show all ${code.style.getPropertyValue("--lines").trim()} lines of code`;
    const more = make("button", { type: "button", class: "code-more" }, all);
    more.addEventListener("click", () => {
      const isWhole = block.classList.toggle("whole");
      more.textContent = isWhole ? "Show fewer lines" : all;
      if (!isWhole && block.getBoundingClientRect().top < 0) block.scrollIntoView({ block: "center" });
    });
    pre.after(more);
  }
});

// Which answer of a question is the right one: its reason begins with that word.
document.addEventListener("DOMContentLoaded", () => {
  for (const answer of document.querySelectorAll(".quiz details")) {
    const reason = answer.querySelector(":scope > :not(summary)")?.textContent ?? "";
    answer.toggleAttribute("data-right", reason.startsWith("Right."));
  }
});

// A reader who wants the text alone turns the verdicts off; this browser remembers it.
const VERDICTS = "attention-executed-verdicts";
const asked = () => {
  try {
    return localStorage.getItem(VERDICTS);
  } catch {
    return null;
  }
};
if (asked() === "hidden") root.dataset.verdicts = "hidden";
document.addEventListener("DOMContentLoaded", () => {
  const buttons = document.querySelector(".article-header-buttons");
  if (!buttons || !document.querySelector("article .verdicts")) return;
  const button = make("button", { type: "button", class: "btn btn-sm verdicts-switch" });
  const show = () => {
    const hidden = root.dataset.verdicts === "hidden";
    button.textContent = hidden ? "Show verdicts" : "Hide verdicts";
  };
  button.addEventListener("click", () => {
    const read = document.elementFromPoint(innerWidth / 2, innerHeight / 3);
    const was = read?.getBoundingClientRect().top ?? 0;
    if (root.dataset.verdicts === "hidden") delete root.dataset.verdicts;
    else root.dataset.verdicts = "hidden";
    scrollBy({ top: (read?.getBoundingClientRect().top ?? 0) - was, behavior: "instant" });
    try {
      localStorage.setItem(VERDICTS, root.dataset.verdicts ?? "shown");
    } catch {
      // Then it holds for this page.
    }
    show();
  });
  show();
  window.addEventListener("hashchange", show);
  buttons.prepend(button);
});

// The theme restores where the list of pages stood, which may be far from the page that is read.
addEventListener("load", () => {
  const here = document.querySelector(".bd-links a[aria-current]");
  const list = here?.closest(".bd-sidebar-primary");
  if (!here || !list) return;
  const [{ top, bottom }, { height }] = [here.getBoundingClientRect(), list.getBoundingClientRect()];
  if (top < 0.2 * height || bottom > height) list.scrollTop += top - height / 2;
});
