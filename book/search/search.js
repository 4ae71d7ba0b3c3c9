// The book's search: in its dialog and on its page, as one types. What it needs is loaded when
// somebody first asks for it, by scripts, so that it works from a disk as well.

import { open, search } from "./finding.js";
import { HERE, ROOT, plural, shownGroup } from "./results.js";

const GROUPS = [
  { kind: "chapter", name: "Chapters", shown: 5 },
  { kind: "lab", name: "Labs", shown: 3 },
  { kind: "page", name: "Other pages", shown: 3 },
  { kind: "audit", name: "Audits", shown: 3 },
  { kind: "claim", name: "Claims", shown: 5 },
];

const [RESTED, TOLD] = [1000, 5000]; // milliseconds

// A field, what it has found, and how many.
function attach(form) {
  const input = form.querySelector("input");
  const status = make("p", { class: "search-status" });
  const results = make("div", { class: "search-results" });
  const told = make("p", { class: "front-told", role: "status" });
  const place = make("div", { class: "search-found" }, status, results, told);
  form.after(place);

  function show() {
    const typed = input.value.trim();
    results.replaceChildren();
    if (!typed) {
      status.textContent = "Type words, a symbol such as d_k, or the name of a claim.";
      return;
    }
    if (state !== "loaded") {
      status.textContent = "Opening the index …";
      return;
    }
    const { slips, first, entries } = search(typed);
    if (first.length) results.append(shownGroup("Best results", first));
    const counts = [];
    for (const { kind, name, shown } of GROUPS) {
      const some = entries.filter((entry) => entry.kind === kind);
      if (!some.length) continue;
      counts.push(plural(some.length, kind));
      results.append(shownGroup(name, some, shown, kind));
    }
    const all = first.length + entries.length;
    if (all) {
      const taken = slips.map(({ word, meant }) => `No page has “${word}”; shown is “${meant}”. `).join("");
      status.textContent = `${taken}${plural(all, "result")}${
        counts.length ? `: the best ${first.length}, then ${counts.join(", ")}` : ""}.`;
      return;
    }
    status.replaceChildren(
      `Nothing found for “${typed}”. Try fewer words, or another; or look into the `,
      make("a", { href: `${ROOT}book/index.html` }, "contents"), " or the ",
      make("a", { href: `${ROOT}book/glossary.html` }, "glossary"), ".",
    );
  }

  function fail() {
    status.replaceChildren("The index could not be loaded. The ",
      make("a", { href: `${ROOT}book/index.html` }, "first page"), " leads to every chapter.");
    tell();
  }

  // Who listens hears it when typing has rested.
  let resting = 0;
  function tell() {
    clearTimeout(resting);
    told.textContent = "";
    resting = setTimeout(() => {
      told.textContent = status.textContent;
      resting = setTimeout(() => { told.textContent = ""; }, TOLD); // so that none reads it twice
    }, RESTED);
  }

  let waiting = 0;
  input.addEventListener("input", () => {
    load();
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(show);
    tell();
  });
  input.addEventListener("focus", () => {
    load();
    input.select(); // what is typed next takes the place of the old words
  });
  form.parentElement.addEventListener("keydown", (event) => walk(event, input, place));
  fields.push({ show, fail });
  show();
  return { input, show };
}

// The arrows go from the field through the results.
function walk(event, input, place) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const stops = [input, ...place.querySelectorAll("a, button")];
  const at = stops.indexOf(document.activeElement);
  if (at < 0 || !stops[at + step]) return;
  event.preventDefault();
  stops[at + step].focus();
}

let state = ""; // loading, or loaded
const fields = [];

function load() {
  if (state) return;
  state = "loading";
  const scripts = ["minisearch.js", "stemmer.js", "search-index.js"].map((name) => {
    const script = document.createElement("script");
    script.src = new URL(name, HERE).href;
    script.async = false; // in this order
    script.onerror = () => {
      for (const one of scripts) one.remove();
      settle("fail");
    };
    return script;
  });
  document.head.append(...scripts);
}

function settle(outcome) {
  state = outcome === "show" ? "loaded" : "";
  for (const field of fields) field[outcome]();
}

function start() {
  const dialog = document.getElementById("pst-search-dialog");
  const hidden = dialog?.querySelector("form");
  if (!(dialog instanceof HTMLDialogElement) || !hidden) return;
  dialog.setAttribute("aria-label", "Search");
  // Keys that scroll would move the page behind it.
  dialog.addEventListener("toggle", () => {
    document.documentElement.style.overflow = dialog.open ? "hidden" : "";
  });
  const close = make("button", { type: "button", class: "search-close" }, "Close");
  close.addEventListener("click", () => dialog.close());
  hidden.append(close);
  attach(hidden);
  // A section of this very page is reached without leaving it.
  dialog.addEventListener("click", ({ target }) => {
    if (target instanceof Element && target.closest("a")) dialog.close();
  });
  const form = document.querySelector(".bd-search-container form");
  if (!form) return; // another page
  const { input, show } = attach(form);
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  input.focus();
  show();
}

window.bookSearch = {
  async open(found) {
    await open(found);
    settle("show");
  },
};
document.addEventListener("DOMContentLoaded", start);
