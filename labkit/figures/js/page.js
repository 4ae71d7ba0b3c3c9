// Put the live figures of a page in place of their stored tables, as the page is read.

import { decode } from "./tensors.js";

const HERE = /** @type {HTMLScriptElement} */ (document.currentScript).src;

// Bytes that are too many for a page lie in a script of their own: a page that is opened as a file
// can fetch nothing else. `done` takes them, or nothing where they did not come.
/** @type {Window["labkitLive"]["fetchParcel"]} */
function fetchParcel(name, done) {
  const { parcels } = window.labkitLive;
  const open = () => done(new DataView(decode(parcels[name]).buffer));
  if (name in parcels) {
    open();
    return;
  }
  const script = document.createElement("script");
  script.src = new URL(`${name}.parcel.js`, HERE).href;
  script.onload = open;
  script.onerror = () => {
    script.remove();
    done(null);
  };
  document.head.append(script);
}

// What a figure has for a model in Jupyter, without the Python behind it.
function standIn(name, state) {
  const listeners = new Map();
  const heard = (event) => listeners.get(event) ?? [];
  return {
    get: (trait) => state[trait],
    set(trait, value) {
      if (JSON.stringify(state[trait]) === JSON.stringify(value)) return;
      state[trait] = value;
      for (const listener of heard(`change:${trait}`)) listener();
    },
    on: (event, listener) => listeners.set(event, [...heard(event), listener]),
    off: (event, listener) => listeners.set(event, heard(event).filter((one) => one !== listener)),
    save_changes() {},
    send({ of = name }) {
      fetchParcel(of, (bytes) => {
        const buffers = bytes ? [bytes] : [];
        for (const listener of heard("msg:custom")) listener({ answer: "parcel" }, buffers);
      });
    },
  };
}

// In place of what is stored, with what the text around it needs.
function place(figure) {
  const name = figure.dataset.name ?? "";
  const stored = figure.querySelector('script[type="application/json"]')?.textContent ?? "";
  const el = document.createElement("div");
  const model = standIn(name, JSON.parse(stored));
  const { render, follow } = window.labkitLive.figures[name];
  render({ model, el });
  figure.querySelector(".live")?.replaceWith(el);
  follow?.(figure, model);
}

// A phone lays a section out as it nears the window, and a figure in it is made then: made earlier, it
// would have its section laid out as well, for browsers look at once for lists that they could fill in.
const phone = matchMedia("(max-width: 599px)");
const waiting = new Set();
const near = new IntersectionObserver(
  (seen) => seen.forEach(({ target, isIntersecting }) => isIntersecting && arrive(target)), { rootMargin: "150% 0px" },
);
function arrive(figure) {
  near.unobserve(figure);
  if (waiting.delete(figure)) place(figure);
}
phone.addEventListener("change", () => waiting.forEach(arrive));
addEventListener("beforeprint", () => waiting.forEach(arrive));

// The script that calls this stands at the figure's end, so nothing moves after it was shown.
/** @type {Window["labkitLive"]["mount"]} */
function mount(figure) {
  const isLed = window.labkitLive.figures[figure.dataset.name ?? ""].follow;
  const isFar = figure.closest("article > section > section:not(:first-of-type)");
  if (!phone.matches || isLed || !isFar) {
    place(figure);
    return;
  }
  waiting.add(figure);
  near.observe(figure);
}

/** @type {(figures: Window["labkitLive"]["figures"]) => void} */
export function offer(figures) {
  window.labkitLive = { figures, parcels: {}, fetchParcel, mount };
}
