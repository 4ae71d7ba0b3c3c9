// The story of the small GPT as text that can be typed.

import { complaint } from "./controls.js";
import { element, keepLines, unique } from "./elements.js";

/** @type {(text: string) => string[]} */
const wordsOf = (text) => text.toLowerCase().replaceAll(".", " . ").split(/\s+/).filter(Boolean);

const cut = (word) => (word.length > 15 ? `${word.slice(0, 14)}…` : word);
export const list = (words) => words.map((word) => `“${word}”`).join(", ");

// What is no story is told beside it and left as it is; the old story stays. `places` are traits.
// `loader` stands, until it is pressed, where a fault would be told.
export function storyBox(view, { words: known, most }, loader, places = ["query", "key"]) {
  const id = unique();
  const error = complaint();
  const hint = element("p", { class: "live-loaded" }, "The model is loaded: type a story of your own.");
  const below = keepLines(element("div", { class: "live-below" }, error.line, loader, hint), 2);
  const label = element("label", { for: id }, "Story");
  const box = element("textarea", {
    id,
    rows: 3,
    "data-trait": "story",
    autocapitalize: "none",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => accept(false),
    onchange: () => accept(true),
  });

  function wrongWith(words, leaving) {
    const strange = [...new Set(words.filter((word) => !known.includes(word)))];
    // A word that is still being typed at the end may become one that is known.
    const unfinished = !leaving && !/[\s.]$/.test(box.value) ? words.at(-1) : undefined;
    const begun = strange.filter(
      (word) => word === unfinished && known.some((one) => one.startsWith(word)),
    );
    if (strange.length > begun.length) {
      const told = strange.filter((word) => !begun.includes(word)).slice(0, 2);
      return `${list(told.map(cut))}: not among the ${known.length} words it knows.`;
    }
    if (words.length > most) return `The model reads ${most} words, and here are ${words.length}.`;
    return words.length === 0 && leaving ? "A story needs a word." : "";
  }

  // Says whether what stands there is a story now.
  function accept(leaving) {
    const words = wordsOf(box.value);
    const told = wrongWith(words, leaving);
    error.tell(box, told && `${told} The story before stays.`);
    const whole = words.length > 0 && words.every((word) => known.includes(word));
    if (told || !whole) return false;
    if (words.join(" ") !== view.get("story")) change(words);
    return true;
  }

  // No place may lie outside the story, and a query at its end stays there.
  function change(words) {
    const [before, last] = [view.get("story").split(" ").length, words.length].map((n) => n - 1);
    const follows = places.includes("query") && view.get("query") === before;
    for (const trait of places) {
      if (view.get(trait) > last) view.set(trait, last);
    }
    view.set("story", words.join(" "));
    if (follows && last > before) view.set("query", last);
  }

  function put(words) {
    box.value = words.join(" ");
    return accept(true);
  }

  view.follow(["story"], () => {
    if (wordsOf(box.value).join(" ") !== view.get("story")) put(view.get("story").split(" "));
  });
  return {
    node: element("div", {}, label, box, below),
    label,
    box,
    accept,
    put,
    words: () => wordsOf(box.value),
  };
}

// Examples to choose from, and the story that the text tells; "your own" stands there while it is another.
/** @type {(view: View, examples: Record<string, string>, text: { put: (words: string[]) => boolean }, before?: () => void) => HTMLElement} */
export function exampleChoice(view, examples, text, before = () => {}) {
  const told = [...Object.values(examples), view.get("story")].filter((story, i, all) => all.indexOf(story) === i);
  const names = [...Object.keys(examples), "what the text says"];
  const own = element("option", {}, "your own");
  const select = element(
    "select",
    {
      onchange() {
        before();
        text.put(told[select.selectedIndex].split(" "));
      },
    },
    ...told.map((_, i) => element("option", {}, names[i])),
  );
  view.follow(["story"], () => {
    const at = told.indexOf(view.get("story"));
    if (at < 0) select.append(own);
    else own.remove();
    select.selectedIndex = at < 0 ? told.length : at;
  });
  return select;
}
