// What the book has, and what of it is found for the words that somebody types.

// A word in a title says more of what a page is about than one in its first paragraph, and that
// more than one in passing. The same of a section: its heading, its text, a name in its code.
const WEIGHTS = { title: 6, heading: 4, name: 4, lead: 2, says: 2, text: 1, code: 1 };
// A section adds to its page, the second half as much as the first, and so on.
const SHARE = 0.5;
// What is worth less than this part of the best of its kind, or of all, is not shown.
const WORTH = { kind: 0.1, all: 0.02 };

/** @type {any} */
export let book; // what the index has, once it is there

const WORD = /[\p{L}\p{N}]+(?:[_-]+[\p{L}\p{N}]+)*/gu;
export const wordsOf = (text) => (
  text.normalize("NFKC").toLowerCase().replaceAll("√", " sqrt ").match(WORD) ?? []
);

// What the index has of a word: itself, for what is half typed, and its stem. A symbol such as W_O
// is one word; what has several parts is found by each, and without what joins them.
export function termsOf(word) {
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

// In pieces, so that the field takes letters meanwhile.
async function makeIndex(fields, entries) {
  const index = new MiniSearch({ fields, tokenize: wordsOf, processTerm: termsOf });
  await index.addAllAsync(entries, { chunkSize: 25 });
  return index;
}

export async function open({ pages, sections, claims, stopwords }) {
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

export function search(typed) {
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
