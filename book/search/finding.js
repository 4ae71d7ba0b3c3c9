// What the book has, and what of it is found for the words that somebody types.

// A word in a title says more of what a page is about than one in its first paragraph, and that
// more than one in passing. The same of a section: its heading, its text, a name in its code.
const WEIGHTS = { title: 6, also: 4, heading: 4, name: 4, lead: 2, says: 2, text: 1, code: 1 };
// A section adds to its page, the second half as much as the first, and so on.
const SHARE = 0.5;
// What is worth less than this part of the best is not shown.
const WORTH = 0.05;
// How much more a text is worth that has the typed words in a row, for each after the first.
const IN_A_ROW = 2;
const ALIKE = 0.55; // of the best chapter's worth
const FIRST = 3; // results that stand before the others, of whatever kind
const MOST_OF = 0.75; // of a title's words
const CLAIMED = 0.5; // of what the typed words tell, which a claim must have: there are hundreds
export const GLOSSARY = "book/glossary.html";
const REFERENCE = "book/reference.html";
export const BIBLIOGRAPHY = "book/bibliography.html";
// Chapters are what the book is for; audits repeat their words, and lists have many.
const KIND = { chapter: 2, lab: 1, page: 1, audit: 0.5 };
const LISTS = {
  [GLOSSARY]: 0.6, [BIBLIOGRAPHY]: 0.6, [REFERENCE]: 0.2,
  "book/changelog.html": 0.3, "book/verdict-history.html": 0.3,
  "book/updating.html": 0.3, "book/recipes.html": 0.3, // for maintainers
};

/** @type {any} */
export let book; // what the index has, once it is there

const WORD = /[\p{L}\p{N}]+(?:[_-]+[\p{L}\p{N}]+)*/gu;
export const wordsOf = (text) => (
  text.normalize("NFKC").toLowerCase().replaceAll("√", " sqrt ").match(WORD) ?? []
);

// What the index has of a word: itself, for what is half typed, and its stem. What has several parts is
// found by each, and without what joins them; but a symbol such as h_kv is no mention of its index.
export function termsOf(word) {
  if (!book.terms.has(word)) {
    const pieces = word.split(/[_-]+/);
    const parts = /^\p{L}_/u.test(word) ? [] : pieces;
    const words = pieces.length === 1 ? pieces
      : [...(word.includes("_") ? [word] : []), pieces.join(""), ...parts];
    const telling = words.filter((one) => !book.stopwords.has(one));
    book.terms.set(word, [...new Set(telling.flatMap((one) => [book.stem(one), one]))]);
    for (const term of book.terms.get(word)) book.words.add(term);
  }
  return book.terms.get(word);
}

// Words that readers use, and what the book says.
const SAME = new Map(Object.entries({
  multiple: ["several", "multi"], complexity: ["cost"], pruning: ["removing"],
}));
// A question's words stand around what it is about: "what is a token", "how does masking work".
const ASKING = new Set(
  "what which who why how when where do does did can explain define describe".split(" "),
);
const ENDING = new Set(["do", "mean", "work"]);
const DEFINING = /^(what (is|are|does)|explain|define|describe)\b/;

function subject(typed) {
  const words = wordsOf(typed);
  if (!ASKING.has(words[0])) return typed;
  const begin = words.findIndex((word) => !ASKING.has(word) && !book.stopwords.has(word));
  const end = words.length - Number(ENDING.has(words.at(-1) ?? ""));
  return begin >= 0 && begin < end ? words.slice(begin, end).join(" ") : typed;
}

// A symbol is one word, and self-attention is two.
const splitWords = (text) => wordsOf(text).flatMap((word) => (word.includes("_") ? [word] : word.split("-")));

function typedWords(typed) {
  const words = splitWords(typed);
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
    pages: pages.map(([name, kind, title, lead, text, also], id) => (
      { id, kind, title, lead, text, also, address: `${name}.html`, number: number(name, kind) }
    )),
    sections: sections.map(([page, anchor, heading, text, code, introduced = {}, called = []], id) => (
      { id, page, anchor, heading, text, code, introduced, called }
    )),
    claims: claims.map(([name, says, verdict, page, isErratum], id) => (
      { id, kind: "claim", name, says, verdict, page, isErratum }
    )),
  };
  book.index = {
    pages: await makeIndex(["title", "also", "lead", "text"], book.pages),
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
    terms: isKnown ? [stem, ...(SAME.get(word) ?? []).map(book.stem)] : [word, ...swapped(word)],
    prefix: begins,
    fuzzy: !isKnown && !isBeginning && word.length > 3 ? 0.25 : false,
    word,
    taken: isKnown || isBeginning ? undefined : new Map(), // what it was taken for, and its worth
  };
}

// What each entry of an index is worth, and which of the typed words it has.
function score(index, words) {
  const found = new Map();
  words.forEach(({ terms, prefix, fuzzy, taken }, i) => {
    const options = {
      prefix, fuzzy, boost: WEIGHTS,
      tokenize: (text) => text.split(" "), processTerm: (term) => term,
    };
    for (const { id, score, match } of index.search(terms.join(" "), options)) {
      const entry = found.get(id) ?? { worth: 0, has: new Set(), match: new Set() };
      entry.worth += score;
      entry.has.add(i);
      for (const term of Object.keys(match)) {
        entry.match.add(term);
        taken?.set(term, (taken.get(term) ?? 0) + score);
      }
      found.set(id, entry);
    }
  });
  return found;
}

// The words that were not typed rightly, each with what it was taken for.
function corrected(words) {
  return words.flatMap(({ word, taken }) => {
    if (!taken?.size) return [];
    const [most] = [...taken].reduce((one, other) => (other[1] > one[1] ? other : one));
    const known = [...book.terms.keys()].filter((one) => (
      /^\p{L}+$/u.test(one) && book.stem(one) === book.stem(most)
    ));
    const meant = known.sort((one, other) => apart(one, word) - apart(other, word))[0];
    return meant ? [{ word, meant }] : [];
  });
}

function apart(one, other) {
  const strange = (letters, among) => [...letters].filter((letter) => !among.includes(letter)).length;
  return strange(one, other) + strange(other, one) + Math.abs(one.length - other.length);
}

// How much a word tells: one that many sections have tells little.
function rarities(found, words) {
  const counts = words.map(() => 0);
  for (const { has } of found.values()) for (const i of has) counts[i]++;
  return counts.map((count) => Math.log(1 + book.sections.length / (1 + count)));
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const best = (entries) => entries.sort((a, b) => b.worth - a.worth);
const stems = (text) => splitWords(text).filter((word) => !book.stopwords.has(word)).map(book.stem);
const stemmed = (text) => stems(text).join(""); // layer norm, LayerNorm
const joined = (text) => ` ${wordsOf(text).join(" ")} `;

export function search(question) {
  const typed = subject(question);
  const given = typedWords(typed);
  const words = given.map((word, i) => asked(word, i === given.length - 1));
  // What one writes as two words may be one: layer norm, LayerNorm.
  given.slice(1).forEach((word, i) => {
    const one = book.stem(given[i] + word);
    if (book.words.has(one)) for (const { terms } of words.slice(i, i + 2)) terms.push(one);
  });
  const inPages = score(book.index.pages, words);
  const inSections = score(book.index.sections, words);
  const telling = rarities(inSections, words);
  // What has all words stands before what has some, and what has them in a row before both.
  const share = ({ has }) => sum([...has].map((i) => telling[i])) / sum(telling);
  const weighed = (hit) => hit.worth * share(hit) ** 2;
  const phrase = joined(typed);
  const isPhrase = wordsOf(typed).length > 1;
  const worthInARow = IN_A_ROW ** (wordsOf(typed).length - 1);
  const inARow = (...texts) => (
    isPhrase && texts.some((text) => joined(text).includes(phrase)) ? worthInARow : 1
  );
  const below = book.pages.map(() => []);
  for (const [id, hit] of inSections) {
    const section = book.sections[id];
    const worth = weighed(hit) * inARow(section.heading, section.text);
    below[section.page].push({ ...section, ...hit, worth });
  }
  const pages = [];
  for (const page of book.pages) {
    const own = inPages.get(page.id);
    const sections = best(below[page.id]);
    if (!own && !sections.length) continue;
    const has = new Set([own, ...sections].flatMap((hit) => [...(hit?.has ?? [])]));
    const worth = sections.reduce(
      (total, section, i) => total + section.worth * SHARE ** i,
      (own?.worth ?? 0) * (own ? inARow(page.title, page.lead, page.text) : 1),
    );
    const counts = KIND[page.kind] * (LISTS[page.address] ?? 1);
    const match = own?.match ?? new Set();
    pages.push({ ...page, match, sections, share: share({ has }), worth: counts * weighed({ worth, has }) });
  }
  const claims = best([...score(book.index.claims, words)]
    .filter(([, hit]) => share(hit) >= CLAIMED)
    .map(([id, hit]) => ({ ...book.claims[id], ...hit, worth: weighed(hit) })));
  const found = inOrder(worthy(best(pages)));
  const slips = corrected(words);
  const meant = new Map(slips.map((slip) => [book.stem(slip.word), book.stem(slip.meant)]));
  const sought = stems(typed).map((stem) => meant.get(stem) ?? stem);
  return { slips, ...arranged(question.trim().toLowerCase(), sought, found, worthy(claims)) };
}

// Chapters that are worth about as much stand in the book's order: a reader needs the earlier first.
function inOrder(pages) {
  const most = pages.find(({ kind }) => kind === "chapter")?.worth;
  const isAlike = ({ kind, worth }) => kind === "chapter" && worth >= ALIKE * most;
  const alike = pages.filter(isAlike).sort((a, b) => a.id - b.id);
  return pages.map((page) => (isAlike(page) ? alike.shift() : page));
}

// First what bears this name, then the chapter, or else the page, with these words in its title, then
// what the glossary or the reference says of them (before it, where a definition is asked for), with
// the chapters that introduce the term, then what is worth most.
function arranged(typed, asked, pages, claims) {
  const named = [
    ...claims.filter((claim) => typed.includes("/") && `/${claim.name}`.endsWith(`/${typed}`)),
    ...pages.filter((page) => isNamed(page, typed, asked)),
  ];
  const byTitle = pages.filter(({ title, also }) => hasAll(stems(`${title} ${also}`), asked));
  const bearing = byTitle.find(({ kind }) => kind === "chapter") ?? byTitle[0];
  const isMeant = {
    [GLOSSARY]: ({ heading, called }) => [heading, ...called].some((name) => stemmed(name) === asked.join("")),
    [REFERENCE]: ({ heading }) => heading.toLowerCase() === typed,
    [BIBLIOGRAPHY]: ({ heading, anchor }) => [heading.toLowerCase(), anchor].includes(typed),
  };
  const said = pages.filter(({ address }) => address in isMeant).flatMap(({ address, sections }) => (
    sections.filter((section) => section.text && isMeant[address](section))
      .map((section) => ({ ...section, kind: "entry", address }))
  ));
  const introducing = pages.filter(({ id }) => said[0] && id in said[0].introduced)
    .sort((a, b) => a.id - b.id).slice(0, FIRST - 1);
  // The section that introduces it stands first below its page.
  for (const { id, sections } of introducing) {
    const at = sections.findIndex(({ anchor }) => anchor === said[0].introduced[id]);
    if (at > 0) sections.unshift({ ...sections.splice(at, 1)[0], worth: sections[0].worth });
  }
  const titled = introducing.length && !introducing.includes(bearing) ? [] : [bearing].filter(Boolean);
  const told = DEFINING.test(typed) ? [...said.slice(0, 1), ...titled] : [...titled, ...said.slice(0, 1)];
  const own = titled.length ? [...named, ...told] : [...told, ...introducing, ...named];
  // Of the audits, which repeat each other, one.
  const audit = own.concat(pages).find(({ kind }) => kind === "audit");
  const most = Math.max(...pages.map(({ share }) => share));
  const rest = pages.filter((page) => page.share > most / 2 && (
    own.every(({ address }) => address !== page.address) && (page.kind !== "audit" || page === audit)
  ));
  const first = [...new Set([...own, ...rest])].slice(0, Math.max(FIRST, named.length));
  return {
    first,
    entries: [...pages.flatMap((page) => without(first, page)), ...claims].filter((entry) => !first.includes(entry)),
  };
}

// A page without the entries that are shown by themselves.
function without(shown, page) {
  const isShown = ({ anchor }) => shown.some((one) => one.address === page.address && one.anchor === anchor);
  if (!page.sections.some(isShown)) return [page];
  const sections = page.sections.filter((section) => !isShown(section));
  return sections.length ? [{ ...page, sections }] : [];
}

const hasAll = (words, asked) => asked.length > 0 && asked.every((word) => words.includes(word));

// A page whose title begins with what was typed, or has all its words and little else.
function isNamed({ kind, title, number }, typed, asked) {
  const lower = title.toLowerCase();
  if (lower.startsWith(typed) && !/^[\p{L}\p{N}]/u.test(lower.slice(typed.length))) return true;
  if (typed === `${kind} ${number}`) return true;
  const words = stems(title);
  return asked.length > 1 && hasAll(words, asked) && asked.length >= MOST_OF * words.length;
}

function worthy(entries) {
  return entries.filter(({ worth }) => worth >= WORTH * entries[0].worth);
}
