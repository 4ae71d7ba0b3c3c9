// What the built search finds, without a page: for texts that come as JSON, the first of what a
// reader sees, what has this name and the chapters.

import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

const { finding, statics, texts } = JSON.parse(readFileSync(0, "utf8"));
const found = await import(finding);
let opened;
globalThis.bookSearch = { open: (given) => { opened = found.open(given); } };
for (const name of ["minisearch.js", "stemmer.js", "search-index.js"]) {
  runInThisContext(readFileSync(`${statics}/${name}`, "utf8"));
}
await opened;
const first = (typed) => {
  const { named, entries } = found.search(typed);
  const chapters = entries.filter(({ kind }) => kind === "chapter");
  const addressOf = ({ address, page }) => address ?? found.book.pages[page]?.address ?? "";
  return [...named, ...chapters].map(addressOf);
};
console.log(JSON.stringify(texts.map(first)));
