// What the reader has marked as read, and where they were: kept in this browser and nowhere else.
"use strict";

(() => {
  const KEY = "attention-executed";
  const ROOT = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const HERE = named(location.href);

  /** @type {(address: string) => string} */
  function named(address) {
    const { pathname } = new URL(address, location.href);
    return pathname.slice(ROOT.pathname.length).replace(/\.html$/, "");
  }

  const isChapter = (name) => /^chapters\/\d/.test(name);

  // A browser may refuse to keep anything: then the page is as it is without this script.
  /** @type {() => { read: string[], at?: { page: string, section: string } }} */
  function kept() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
      return { ...found, read: Array.isArray(found.read) ? found.read : [] };
    } catch {
      return { read: [] };
    }
  }

  function keep(state) {
    try {
      if (state) localStorage.setItem(KEY, JSON.stringify(state));
      else localStorage.removeItem(KEY);
      return true;
    } catch {
      return false;
    }
  }

  /** @type {(selector: string) => HTMLAnchorElement[]} */
  const links = (selector) => [...document.querySelectorAll(selector)].filter(
    /** @type {(link: Element) => link is HTMLAnchorElement} */ (
      (link) => link instanceof HTMLAnchorElement && isChapter(nameOf(link))
    ),
  );
  // The contents link the page that they stand on to "#".
  const nameOf = (link) => (link.getAttribute("href") === "#" ? HERE : named(link.href));

  // A tick for the eye, a word for the ear.
  function tick() {
    const { read } = kept();
    for (const link of links(".bd-links a, .front-chapters a")) {
      const done = read.includes(nameOf(link));
      link.classList.toggle("front-read", done);
      const told = link.querySelector(".front-told");
      if (done && !told) link.append(make("span", { class: "front-told" }, " (read)"));
      if (!done) told?.remove();
    }
    lead(read);
    forgettable(read);
  }

  // On the first page: where to go on.
  function lead(read) {
    const start = /** @type {HTMLAnchorElement | null} */ (document.querySelector(".front-start a"));
    if (!start) return;
    start.dataset.href ??= start.href;
    start.dataset.text ??= start.textContent ?? "";
    const { at } = kept();
    const chapters = links(".front-chapters a");
    const place = chapters.findIndex((link) => nameOf(link) === at?.page);
    const from = chapters[place];
    const open = from && read.includes(nameOf(from))
      ? [...chapters.slice(place), ...chapters.slice(0, place)].find((link) => !read.includes(nameOf(link)))
      : from;
    const hash = open === from && at?.section ? `#${at.section}` : "";
    start.href = open ? open.href + hash : start.dataset.href;
    start.textContent = open
      ? `Continue where you were: ${(open.firstChild?.textContent ?? "").trim()}`
      : start.dataset.text;
  }

  function forgettable(read) {
    const cards = document.querySelector(".front-chapters");
    if (!cards) return;
    const known = read.length > 0 || kept().at !== undefined;
    let line = document.querySelector(".front-forget");
    if (!line && known) {
      const forget = make("button", { type: "button", class: "front-button" }, "Forget my progress");
      forget.addEventListener("click", () => {
        keep(null);
        tick();
        const first = /** @type {HTMLElement | null} */ (document.querySelector(".front-chapters a"));
        first?.focus();
      });
      line = make("p", { class: "front-forget" }, make("span", { role: "status" }), " ", forget);
      cards.after(line);
    }
    if (!line) return;
    line.toggleAttribute("hidden", !known);
    const told = line.querySelector("span");
    const all = links(".front-chapters a").length;
    if (told) told.textContent = `${read.length} of ${all} chapters marked as read.`;
  }

  // At the end of a chapter: mark it, or take the mark back.
  function offer() {
    const article = document.querySelector("article");
    if (!article || !isChapter(HERE) || !keep(kept())) return;
    const button = make("button", { type: "button", class: "front-button" });
    const told = make("span", { role: "status" });
    const show = () => {
      const done = kept().read.includes(HERE);
      button.textContent = done ? "Undo" : "Mark as read";
      button.setAttribute("aria-label", done ? "Undo: this chapter is not read" : "Mark as read: this chapter");
      told.textContent = done ? "✓ You marked this chapter as read." : "";
    };
    button.addEventListener("click", () => {
      const state = kept();
      const done = state.read.includes(HERE);
      keep({ ...state, read: done ? state.read.filter((name) => name !== HERE) : [...state.read, HERE] });
      show();
      tick();
      if (done) announce("This chapter is no longer marked as read.");
    });
    show();
    article.append(make("div", { class: "front-mark" }, told, button));
  }

  // Where the reader leaves a chapter: the last section whose heading is above the middle.
  function remember() {
    if (!isChapter(HERE)) return;
    const sections = [...document.querySelectorAll("article section section[id]")];
    const above = sections.filter((one) => one.getBoundingClientRect().top < innerHeight / 2);
    keep({ ...kept(), at: { page: HERE, section: above.at(-1)?.id ?? "" } });
  }

  document.addEventListener("DOMContentLoaded", () => {
    offer();
    tick();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") remember();
  });
  window.addEventListener("pagehide", remember);
  // Another tab, or the way back to a page that the browser has kept.
  window.addEventListener("storage", tick);
  window.addEventListener("pageshow", (event) => { if (event.persisted) tick(); });
})();
