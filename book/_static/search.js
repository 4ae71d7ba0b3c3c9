// The book's search: in its dialog and on its page, as one types. What it needs is loaded when
// somebody first asks for it, by scripts, so that it works from a disk as well.
"use strict";

(() => {
  const HERE = /** @type {HTMLScriptElement} */ (document.currentScript).src;
  const ROOT = new URL("../", HERE).href;
  // A word in a title says more of what a page is about than one in its first paragraph, and that
  // more than one in passing. The same of a section: its heading, its text, a name in its code.
  const WEIGHTS = { title: 6, heading: 4, name: 4, lead: 2, says: 2, text: 1, code: 1 };
  // A section adds to its page, the second half as much as the first, and so on.
  const SHARE = 0.5;
  // What is worth less than this part of the best of its kind, or of all, is not shown.
  const WORTH = { kind: 0.1, all: 0.02 };
  const SECTIONS = 3;
  const GROUPS = [
    { kind: "chapter", name: "Chapters", shown: 5 },
    { kind: "lab", name: "Labs", shown: 3 },
    { kind: "page", name: "Other pages", shown: 3 },
    { kind: "claim", name: "Claims", shown: 4 },
    { kind: "audit", name: "Audits", shown: 3 },
  ];
  const EXCERPT = 170; // characters

  let book; // what the index has, once it is there

  // Words

  const WORD = /[\p{L}\p{N}]+(?:[_-]+[\p{L}\p{N}]+)*/gu;
  const wordsOf = (text) => (
    text.normalize("NFKC").toLowerCase().replaceAll("√", " sqrt ").match(WORD) ?? []
  );

  // What the index has of a word: itself, for what is half typed, and its stem. A symbol such as W_O
  // is one word; what has several parts is found by each, and without what joins them.
  function termsOf(word) {
    if (!book.terms.has(word)) {
      const pieces = word.split(/[_-]+/);
      const words = pieces.length === 1 ? pieces
        : [...(word.includes("_") ? [word] : []), pieces.join(""), ...pieces];
      const telling = words.filter((one) => !book.stopwords.has(one));
      book.terms.set(word, [...new Set(telling.flatMap((one) => [book.stem(one), one]))]);
      for (const term of book.terms.get(word)) book.words.add(term);
    }
    return book.terms.get(word);
  }

  function typedWords(typed) {
    const words = wordsOf(typed).flatMap((word) => (word.includes("_") ? [word] : word.split("-")));
    const telling = words.filter((word) => !book.stopwords.has(word));
    return [...new Set(telling.length ? telling : words)];
  }

  // Finding

  // In pieces, so that the field takes letters meanwhile.
  async function makeIndex(fields, entries) {
    const index = new MiniSearch({ fields, tokenize: wordsOf, processTerm: termsOf });
    await index.addAllAsync(entries, { chunkSize: 25 });
    return index;
  }

  async function open({ pages, sections, claims, stopwords }) {
    const stemmer = new Stemmer();
    book = {
      words: new Set(),
      terms: new Map(),
      stopwords: new Set(stopwords),
      stem: (word) => stemmer.stemWord(word),
      pages: pages.map(([name, kind, title, lead, text], id) => (
        { id, kind, title, lead, text, address: `${name}.html`, number: number(name, kind) }
      )),
      sections: sections.map(([page, anchor, heading, text, code], id) => (
        { id, page, anchor, heading, text, code }
      )),
      claims: claims.map(([name, says, verdict, page, isErratum], id) => (
        { id, kind: "claim", name, says, verdict, page, isErratum }
      )),
    };
    book.index = {
      pages: await makeIndex(["title", "lead", "text"], book.pages),
      sections: await makeIndex(["heading", "text", "code"], book.sections),
      claims: await makeIndex(["name", "says"], book.claims),
    };
    settle("show");
  }

  function number(name, kind) {
    return kind === "chapter" ? String(Number.parseInt(name.split("/").at(-1), 10)) : "";
  }

  // A slip of the finger: two letters that have changed places.
  function swapped(word) {
    return [...word].slice(1)
      .map((letter, i) => word.slice(0, i) + letter + word[i] + word.slice(i + 2))
      .map(book.stem)
      .filter((stem) => book.words.has(stem));
  }

  // What to look for in place of a typed word: only one that the book does not have is taken for
  // the beginning of another, or for a slip. The last word may still be in the typing.
  function asked(word, isLast) {
    const stem = book.stem(word);
    const isKnown = book.words.has(stem);
    const begins = word.length > 1 && (isLast || !isKnown);
    const isBeginning = begins && [...book.words].some((known) => known.startsWith(word));
    return {
      terms: isKnown ? [stem] : [word, ...swapped(word)],
      prefix: begins,
      fuzzy: !isKnown && !isBeginning && word.length > 3 ? 0.25 : false,
    };
  }

  // What each entry of an index is worth, and which of the typed words it has.
  function score(index, words) {
    const found = new Map();
    words.forEach(({ terms, prefix, fuzzy }, i) => {
      const options = {
        prefix, fuzzy, boost: WEIGHTS,
        tokenize: (text) => text.split(" "), processTerm: (term) => term,
      };
      for (const { id, score, match } of index.search(terms.join(" "), options)) {
        const entry = found.get(id) ?? { worth: 0, has: new Set(), match: new Set() };
        entry.worth += score;
        entry.has.add(i);
        for (const term of Object.keys(match)) entry.match.add(term);
        found.set(id, entry);
      }
    });
    return found;
  }

  // What has all words stands before what has some.
  const weighed = ({ worth, has }, words) => worth * (has.size / words.length) ** 2;
  const best = (entries) => entries.sort((a, b) => b.worth - a.worth);

  function search(typed) {
    const given = typedWords(typed);
    const words = given.map((word, i) => asked(word, i === given.length - 1));
    // What one writes as two words may be one: layer norm, LayerNorm.
    given.slice(1).forEach((word, i) => {
      const joined = book.stem(given[i] + word);
      if (book.words.has(joined)) for (const { terms } of words.slice(i, i + 2)) terms.push(joined);
    });
    const inPages = score(book.index.pages, words);
    const inSections = score(book.index.sections, words);
    const found = [];
    const below = book.pages.map(() => []);
    for (const [id, hit] of inSections) {
      const section = book.sections[id];
      below[section.page].push({ ...section, ...hit, worth: weighed(hit, words) });
    }
    for (const page of book.pages) {
      const own = inPages.get(page.id);
      const sections = best(below[page.id]);
      if (!own && !sections.length) continue;
      const has = new Set([own, ...sections].flatMap((hit) => [...(hit?.has ?? [])]));
      const worth = sections.reduce(
        (sum, section, i) => sum + section.worth * SHARE ** i, own?.worth ?? 0,
      );
      const match = own?.match ?? new Set();
      found.push({ ...page, match, sections, worth: weighed({ worth, has }, words) });
    }
    const claims = [...score(book.index.claims, words)].map(([id, hit]) => (
      { ...book.claims[id], ...hit, worth: weighed(hit, words) }
    ));
    const entries = best([...found, ...claims]);
    const named = entries.filter((entry) => isNamed(entry, typed.trim().toLowerCase()));
    return { named, entries: worthy(entries).filter((entry) => !named.includes(entry)) };
  }

  function worthy(entries) {
    const most = new Map();
    for (const { kind, worth } of entries) if (!most.has(kind)) most.set(kind, worth);
    return entries.filter(({ kind, worth }) => (
      worth >= WORTH.kind * most.get(kind) && worth >= WORTH.all * entries[0].worth
    ));
  }

  // A claim by its name, with or without its document's, and a page by how its title begins. Chapters
  // stand before all else anyway.
  function isNamed({ kind, name, title }, typed) {
    if (kind === "claim") return `/${name}`.endsWith(`/${typed}`);
    return kind === "page" && title.toLowerCase().startsWith(typed)
      && !/^\p{L}/u.test(title.slice(typed.length));
  }

  // Showing

  // A text, its found words marked.
  function marked(text, match) {
    const isFound = (piece) => (
      wordsOf(piece).some((word) => termsOf(word).some((term) => match.has(term)))
    );
    return text.split(/([\p{L}\p{N}]+(?:_[\p{L}\p{N}]+)*|√)/u).map((piece, i) => (
      i % 2 && isFound(piece) ? make("mark", {}, piece) : piece
    ));
  }

  // The piece of a text in which most of the found words stand.
  function excerpt(text, match) {
    const nodes = marked(text, match);
    const starts = [];
    let at = 0;
    for (const node of nodes) {
      const { length } = typeof node === "string" ? node : node.textContent;
      if (typeof node !== "string") starts.push({ at, word: node.textContent.toLowerCase() });
      at += length;
    }
    const near = (start) => new Set(
      starts.filter((one) => one.at >= start && one.at < start + EXCERPT).map((one) => one.word),
    ).size;
    const most = starts.reduce((most, { at }) => (near(at) > near(most) ? at : most), starts[0]?.at ?? 0);
    const from = most < EXCERPT / 3 ? 0 : text.lastIndexOf(" ", most - 40) + 1;
    const end = text.lastIndexOf(" ", from + EXCERPT);
    const to = text.length <= from + EXCERPT || end <= from ? text.length : end;
    const piece = `${from ? "… " : ""}${text.slice(from, to)}${to < text.length ? " …" : ""}`;
    return piece ? [make("p", {}, ...marked(piece, match))] : [];
  }

  function shownPage(page) {
    const href = ROOT + page.address;
    const number = page.number ? [make("span", { class: "search-number" }, page.number), " "] : [];
    const title = make("span", {}, ...marked(page.title, page.match));
    const texts = [page.lead, page.text];
    const text = texts.find((one) => marked(one, page.match).some((node) => typeof node !== "string"));
    const sections = page.sections.slice(0, SECTIONS).filter(({ worth }) => (
      worth >= page.sections[0].worth / 3
    ));
    const below = sections.map((section) => make("li", {},
      make("a", { href: `${href}#${section.anchor}` }, ...marked(section.heading, section.match)),
      ...excerpt(section.text, section.match),
    ));
    return make("li", {},
      make("a", { href }, ...number, title),
      ...(text || !below.length ? excerpt(text ?? page.lead, page.match) : []),
      ...(below.length ? [make("ul", {}, ...below)] : []),
    );
  }

  function shownClaim(claim) {
    const anchor = `claim-${claim.name.replaceAll(/[/.]/g, "-")}`;
    const erratum = `${ROOT}book/errata.html#${anchor}-erratum`;
    const page = book.pages[claim.page];
    const href = page ? `${ROOT}${page.address}#${anchor}` : erratum;
    const more = page && claim.isErratum
      ? [" ", make("a", { href: erratum, "aria-label": `erratum of ${claim.name}` }, "erratum")] : [];
    return make("li", {},
      make("a", { href }, make("code", {}, claim.name)),
      make("p", {}, make("b", {}, claim.verdict), " ", ...marked(claim.says, claim.match), ...more),
    );
  }

  const plural = (count, one) => `${count} ${count === 1 ? one : `${one}s`}`;

  function shownGroup(name, entries, shown) {
    const list = make("ul");
    const show = (some) => list.append(
      ...some.map((entry) => (entry.kind === "claim" ? shownClaim(entry) : shownPage(entry))),
    );
    show(entries.slice(0, shown));
    const group = make("section", {}, make("h2", {}, name), list);
    const rest = entries.slice(shown);
    if (rest.length) {
      const more = make("button", { type: "button", class: "search-more" }, `${rest.length} more`);
      more.setAttribute("aria-label", `${rest.length} more of: ${name}`);
      more.addEventListener("click", () => {
        show(rest);
        more.remove();
        list.children[shown].querySelector("a")?.focus();
      });
      group.append(more);
    }
    return group;
  }

  // A field, what it has found, and how many.
  function attach(form) {
    const input = form.querySelector("input");
    const status = make("p", { role: "status" });
    const results = make("div", { class: "search-results" });
    const place = make("div", { class: "search-found" }, status, results);
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
      const { named, entries } = search(typed);
      if (named.length) results.append(shownGroup("By this name", named, named.length));
      const counts = [];
      for (const { kind, name, shown } of GROUPS) {
        const some = entries.filter((entry) => entry.kind === kind);
        if (!some.length) continue;
        counts.push(plural(some.length, kind));
        results.append(shownGroup(name, some, shown));
      }
      const all = named.length + entries.length;
      if (all) {
        status.textContent = `${plural(all, "result")}: ${
          [...(named.length ? [`${named.length} by this name`] : []), ...counts].join(", ")}.`;
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
    }

    let waiting = 0;
    input.addEventListener("input", () => {
      load();
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(show);
    });
    input.addEventListener("focus", load);
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

  window.bookSearch = { open };
  document.addEventListener("DOMContentLoaded", start);
})();
