// What the built search finds, without a page: for texts that come as JSON, the best results.

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
const first = (typed) => found.search(typed).first.map(
  ({ address, page }) => address ?? found.book.pages[page]?.address ?? "",
);
console.log(JSON.stringify(texts.map(first)));
