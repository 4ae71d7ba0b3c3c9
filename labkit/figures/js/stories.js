// The rules of the stories: which words may come next, and how probable each is.

import { sum } from "./mathematics.js";

/** @type {(words: string[], weight?: number) => Record<string, number>} */
const equal = (words, weight = 1) =>
  Object.fromEntries(words.map((word) => [word, weight / words.length]));

// A story without end, as labkit/models/stories.py tells it: gives what may come, and takes what came.
function* tell(rules) {
  const people = new Map(); // the surname and the thing of each
  while (true) {
    const names = [...people.keys()];
    const owners = new Map(names.map((name) => [people.get(name).thing, name]));
    const { deed, ...kinds } = rules.kinds;
    if (names.length === 0) kinds.look = kinds.animals = 0;
    if (names.length === rules["most people"]) kinds.introduction = 0;
    const starts = sum(Object.values(kinds));
    const first = yield { the: starts, ...equal(names, deed) };
    if (people.has(first)) {
      yield { [people.get(first).surname]: 1 };
      yield equal(rules.deeds);
      yield { and: 1 };
      yield { [rules.people[first]]: 1 };
      yield { is: 1 };
      yield equal(rules.moods);
    } else {
      const noun = yield {
        ...equal(rules.things.filter((thing) => !owners.has(thing)), kinds.introduction),
        ...equal([...owners.keys()], kinds.look),
        ...equal(Object.keys(rules.animals), kinds.animals),
      };
      if (noun in rules.animals) {
        yield { near: 1 };
        yield { the: 1 };
        yield equal(Object.keys(rules.animals));
        yield equal(rules.animals[noun]);
      } else if (owners.has(noun)) {
        const owner = owners.get(noun);
        yield { [owner]: 1 };
        yield { [people.get(owner).surname]: 1 };
        yield { has: 1 };
        yield { is: 1 };
        yield equal(rules.looks);
      } else {
        yield { suits: 1 };
        const name = yield equal(Object.keys(rules.people).filter((one) => !people.has(one)));
        people.set(name, { thing: noun, surname: yield equal(rules.surnames) });
      }
    }
    yield { ".": 1 };
  }
}

// The probability of each word that may come after these; none where they broke the rules.
/** @type {(rules: object, words: string[]) => Record<string, number>} */
export function after(rules, words) {
  const teller = tell(rules);
  let options = teller.next("").value ?? {};
  for (const word of words) {
    if (!options[word]) return {};
    options = teller.next(word).value ?? {};
  }
  const total = sum(Object.values(options));
  return Object.fromEntries(Object.entries(options).map(([word, x]) => [word, x / total]));
}
