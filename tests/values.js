// What a live figure's module computes, without a page: of states that come as JSON, their values.

import { readFileSync } from "node:fs";

// Stands for every part of a page: it takes what is done to it, and has parts like itself.
const part = new Proxy(class {}, {
  get(_, key) {
    if (key === Symbol.toPrimitive) return () => "";
    if (key === Symbol.iterator) return () => Array(8).fill(part).values();
    return typeof key === "symbol" ? undefined : part;
  },
  set: () => true,
  apply: () => part,
  construct: () => part,
});
const page = { document: part, Element: class {}, ImageData: part, ResizeObserver: part, MutationObserver: part };
Object.assign(globalThis, page, { matchMedia: () => ({ matches: true }) });

const { scripts, figure, start, parcel, states } = JSON.parse(readFileSync(0, "utf8"));
const { View } = await import(`${scripts}/view.js`);
const { render } = (await import(`${scripts}/${figure}.js`)).default;

let values;
View.prototype.values = (found) => {
  values = found;
};
const heard = {};
const tell = (event, ...given) => (heard[event] ?? []).forEach((listen) => listen(...given));
const model = {
  get: (trait) => start[trait],
  set(trait, value) {
    start[trait] = value;
    tell(`change:${trait}`);
  },
  on(event, listen) {
    heard[event] = [...(heard[event] ?? []), listen];
  },
  off() {},
  save_changes() {},
  send() {
    tell("msg:custom", { answer: "parcel" }, [new DataView(Uint8Array.from(Buffer.from(parcel, "base64")).buffer)]);
  },
};
render({ model, el: part });

const told = states.map((state) => {
  Object.assign(start, state);
  for (const trait of Object.keys(state)) tell(`change:${trait}`);
  return values;
});
const text = (_, value) => {
  if (value instanceof Float64Array) return [...value];
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
};
console.log(JSON.stringify(told, text));
