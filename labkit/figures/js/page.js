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

// The script that calls this stands at the figure's end, so nothing moves after it was shown.
/** @type {Window["labkitLive"]["mount"]} */
function mount(figure) {
  const name = figure.dataset.name ?? "";
  const stored = figure.querySelector('script[type="application/json"]')?.textContent ?? "";
  const el = document.createElement("div");
  const model = standIn(name, JSON.parse(stored));
  const { render, follow } = window.labkitLive.figures[name];
  render({ model, el });
  figure.querySelector(".live")?.replaceWith(el);
  follow?.(figure, model); // the text around it
}

/** @type {(figures: Window["labkitLive"]["figures"]) => void} */
export function offer(figures) {
  window.labkitLive = { figures, parcels: {}, fetchParcel, mount };
}
