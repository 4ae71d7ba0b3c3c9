// How what was found is shown: pages with their sections, claims, the found words marked.

import { BIBLIOGRAPHY, GLOSSARY, book, termsOf, wordsOf } from "./finding.js";

const SECTIONS = 3;
const EXCERPT = 170; // characters
// Of the book, as seen from the script of the search.
export const HERE = /** @type {HTMLScriptElement} */ (document.currentScript).src;
export const ROOT = new URL("../", HERE).href;

// Words and symbols, these with what stands below and above them, and under a root: d_k, QK^T, W_Q^(1), √d_k.
const PIECES = /(√?[\p{L}\p{N}]+(?:_(?:[\p{L}\p{N}]+|\([^()]*\)))*(?:\^(?:[\p{L}\p{N}_]+|\([^()]*\)))?|√)/u;
// A name with two of these is a name in code.
const SYMBOL = /^(\p{L}|head|[\p{L}\p{N}]+(?=\^|_\())((?:_[^_^]+)?)(?:\^(.+))?$/u;

const isMatch = (piece, match) => wordsOf(piece).some((word) => termsOf(word).some((term) => match.has(term)));

function pieces(text, match) {
  return text.split(PIECES).map((piece, i) => ({ piece, isFound: i % 2 === 1 && isMatch(piece, match) }));
}

function typeset(piece) {
  const [root, symbol] = piece.startsWith("√") ? ["√", piece.slice(1)] : ["", piece];
  const [, base, below, above] = SYMBOL.exec(symbol) ?? [];
  if (!below && !above) return [piece];
  return [
    root + base,
    ...(below ? [make("sub", {}, below.slice(1).replace(/^\((.*)\)$/, "$1"))] : []),
    ...(above ? [make("sup", {}, above.replace(/^\((..+)\)$/, "$1").replace(/^-/, "−"))] : []),
  ];
}

// A text, its found words marked.
function marked(text, match) {
  return pieces(text, match).flatMap(({ piece, isFound }) => (
    isFound ? make("mark", {}, ...typeset(piece)) : typeset(piece)
  ));
}

// The piece of a text in which most of the found words stand.
function excerpt(text, match) {
  const starts = [];
  let at = 0;
  for (const { piece, isFound } of pieces(text, match)) {
    if (isFound) starts.push({ at, word: piece.toLowerCase() });
    at += piece.length;
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

// Of a section that has the found words in its code alone, these names.
function excerptOf({ text, code, match }) {
  const isInText = pieces(text, match).some(({ isFound }) => isFound);
  const names = isInText ? [] : code.split(" ").filter((name) => isMatch(name, match)).slice(0, 3);
  if (!names.length) return excerpt(text, match);
  return [make("p", {}, "in its code: ", ...names.flatMap((name, i) => (
    [i ? ", " : "", make("code", {}, name)]
  )))];
}

function shownPage(page) {
  const href = ROOT + page.address;
  const number = page.number ? [make("span", { class: "search-number" }, page.number), " "] : [];
  const title = make("span", {}, ...marked(page.title, page.match));
  const texts = [page.lead, page.text];
  const text = texts.find((one) => pieces(one, page.match).some(({ isFound }) => isFound));
  const sections = page.sections.slice(0, SECTIONS).filter(({ worth }) => (
    worth >= page.sections[0].worth / 3
  ));
  const below = sections.map((section) => make("li", {},
    make("a", { href: `${href}#${section.anchor}` }, ...marked(section.heading, section.match)),
    ...excerptOf(section),
  ));
  return make("li", {},
    make("a", { href }, ...number, title),
    ...(text || !below.length ? excerpt(text ?? page.lead, page.match) : []),
    ...(below.length ? [make("ul", {}, ...below)] : []),
  );
}

const LISTED_IN = { [GLOSSARY]: "Glossary", [BIBLIOGRAPHY]: "Bibliography" };

// What the glossary says of a word, the bibliography of a paper, or the reference of a name.
function shownEntry({ address, anchor, heading, text, match }) {
  const from = LISTED_IN[address] ?? "Reference";
  return make("li", {},
    make("a", { href: `${ROOT}${address}#${anchor}` }, ...marked(heading, match)),
    make("p", {}, make("b", {}, from), " ", ...marked(text, match)),
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

const LOOKS = { claim: shownClaim, entry: shownEntry };

export const plural = (count, one) => `${count} ${count === 1 ? one : `${one}s`}`;

export function shownGroup(name, entries, shown = entries.length, kind = "") {
  const list = make("ul");
  const show = (some) => list.append(
    ...some.map((entry) => (LOOKS[entry.kind] ?? shownPage)(entry)),
  );
  show(entries.slice(0, shown));
  const group = make("section", {}, make("h2", {}, name), list);
  const rest = entries.slice(shown);
  if (rest.length) {
    const more = make("button", { type: "button", class: "search-more" },
      `and ${plural(rest.length, `more ${kind}`)}`);
    more.addEventListener("click", () => {
      show(rest);
      more.remove();
      list.children[shown].querySelector("a")?.focus();
    });
    group.append(more);
  }
  return group;
}
