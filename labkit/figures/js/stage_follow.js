// In a built page the text leads the stage: its links set states, its sections do so where a reader
// comes to them, and a word of the text and a part of the drawing light each other up.

import { button } from "./controls.js";
import { element } from "./elements.js";
import { keepInSight } from "./stage_pin.js";

const LINK = 'a[href^="#stage-"]';
const PLACED = ["model", "sentence", "step", "bug", "vectors", "query", "story", "layer", "head", "asking"];
const PLAYED = ["click", "input", "change", "keydown", "pointerdown"];
// What of the window the section has to reach that leads the stage.
const BAND = "-45% 0px -45% 0px";
const READ_ON = 0.3; // of the window, by which a reader scrolls on from a link

/** @type {(link: Element) => string} */
const nameOf = (link) => (link.getAttribute("href") ?? "").slice("#stage-".length);

// The state that a section asks for: by an element of its own, or by a link that it begins with.
function stateOf(section) {
  const own = [...section.querySelectorAll("[data-stage]")].find((one) => one.closest("section") === section);
  if (own) return own.dataset.stage ?? "";
  const first = section.querySelector(":scope > :is(h1, h2, h3, h4) + *");
  const begins = first?.matches(LINK) ? first : first?.firstElementChild;
  const leads = begins?.matches(LINK) && !begins.previousSibling?.textContent?.trim();
  return leads ? nameOf(begins) : "";
}

// What leads the stage: `set` a state by its name, and `follow` the text or not.
function leader(figure, model, links) {
  const states = model.get("states");
  const toggle = button("Follow the text", () => follow(!isOn));
  let [here, isOn] = ["", true];
  let held = Number.NEGATIVE_INFINITY;

  // What a link or a way to the figure has set stays until the reader has read on.
  function choose(name, link) {
    held = scrollY;
    figure.querySelector(".live")?.dispatchEvent(new Event("played"));
    set(name, link);
  }
  function set(name, by) {
    if (!(name in states)) return;
    for (const [trait, value] of Object.entries(states[name])) model.set(trait, structuredClone(value));
    model.save_changes();
    for (const link of links) {
      if (link === by || (!by && nameOf(link) === name)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
  function follow(on) {
    isOn = on;
    toggle.setAttribute("aria-pressed", String(on));
    if (on && here) set(here);
  }
  function reach(name) {
    if (name === here || Math.abs(scrollY - held) < READ_ON * innerHeight) return;
    here = name;
    if (isOn) set(name);
  }
  follow(true);
  // Who has played with the stage is not interrupted.
  const body = figure.querySelector(".live-body");
  for (const kind of PLAYED) {
    body.addEventListener(kind, (event) => {
      const target = /** @type {Element} */ (event.target);
      const isPlay = target.closest('button, select, input, [role="slider"]') && !target.closest(".stage-follow");
      if (isPlay && event.key !== "Tab") follow(false);
    });
  }
  return { choose, reach, toggle };
}

function watchSections(article, reach) {
  const led = [...article.querySelectorAll("section")].filter(stateOf);
  if (!led.length) return false;
  const seen = new Set();
  let scrolled = false;
  const tell = () => {
    const now = led.filter((section) => seen.has(section)).pop();
    if (scrolled && now) reach(stateOf(now));
  };
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) seen.add(target);
        else seen.delete(target);
      }
      tell();
    },
    { rootMargin: BAND },
  );
  for (const section of led) watch.observe(section);
  addEventListener("scroll", () => {
    scrolled = true;
    tell();
  }, { passive: true });
  return true;
}

// A word of the text is of all parts that its name begins: "key" is of "key:mia" too.
const covers = (word, part) => part === word || part.startsWith(`${word}:`);

function lightUp(figure, model, words) {
  const partOf = (word) => word.dataset.part ?? word.textContent.trim();
  let passing = "";

  // What a pointer is on is lit, and what has the focus, as a word has that was clicked. To the
  // keyboard a word is text: it has nothing to press.
  function light() {
    const held = words.find((word) => word === document.activeElement);
    for (const part of figure.querySelectorAll("[data-part]")) {
      const name = part.dataset.part;
      part.classList.toggle("stage-lit", [passing, held && partOf(held)].some((word) => word && covers(word, name)));
    }
  }
  for (const word of words) {
    word.tabIndex = -1;
    for (const kind of ["focus", "blur"]) word.addEventListener(kind, light);
    for (const kind of ["pointerenter", "pointerleave"]) {
      word.addEventListener(kind, () => {
        passing = kind === "pointerenter" ? partOf(word) : "";
        light();
      });
    }
  }
  function lightWords(part) {
    for (const word of words) word.classList.toggle("stage-lit", Boolean(part) && covers(partOf(word), part));
  }
  const under = (event) => event.target.closest("[data-part]")?.dataset.part ?? "";
  for (const kind of ["pointerover", "focusin"]) figure.addEventListener(kind, (event) => lightWords(under(event)));
  for (const kind of ["pointerleave", "focusout"]) figure.addEventListener(kind, () => lightWords(""));
  // What a change draws anew stays lit.
  for (const trait of PLACED) model.on(`change:${trait}`, light);
}

/** @type {(figure: HTMLElement, model: Model) => void} */
function lead(figure, model) {
  const article = figure.closest("article") ?? document.body;
  const all = /** @type {HTMLElement[]} */ ([...article.querySelectorAll(LINK)]);
  const links = all.filter((link) => nameOf(link) in model.get("states"));
  const words = /** @type {HTMLElement[]} */ ([...article.querySelectorAll(".stage-part")]);
  lightUp(figure, model, words);
  if (!links.length && !words.length && !article.querySelector("[data-stage]")) return;
  const { choose, reach, toggle } = leader(figure, model, links);
  for (const link of links) {
    link.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      choose(nameOf(link), link);
    });
  }
  const marks = /** @type {HTMLElement[]} */ ([...article.querySelectorAll("[data-stage]")]);
  for (const mark of marks) mark.addEventListener("click", () => choose(mark.dataset.stage));
  const sections = watchSections(article, reach);
  const speaking = [...links, ...words, ...marks];
  const keep = keepInSight(figure, [...new Set(speaking.map((part) => part.closest("section") ?? article))]);
  const title = element("b", { class: "stage-title", "aria-hidden": "true" }, model.get("title"));
  toggle.title = "The figure goes to the step that you read about";
  keep.title = "Where the text speaks of the figure";
  const bar = element("div", { class: "stage-follow" }, title, ...(sections ? [toggle] : []), keep);
  const place = () => {
    const stage = figure.querySelector(".stage");
    const room = stage?.querySelector(".stage-follow"); // kept for the buttons from the start
    if (room && room !== bar) room.replaceWith(bar);
    else if (!bar.isConnected) stage?.prepend(bar);
  };
  model.on("change:model", place); // which makes a new scene
  place();
}

// The script that places a figure stands before the text that follows it.
/** @type {(figure: HTMLElement, model: Model) => void} */
export function follow(figure, model) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => lead(figure, model));
  else lead(figure, model);
}
