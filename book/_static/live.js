// Put the live figures of a page in place of their stored tables, as the page is read.
"use strict";

window.labkitLive = { shared: {}, figures: {}, mount };

// What a figure has for a model in Jupyter, without the Python behind it.
function standIn(state) {
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
  };
}

// The script that calls this stands at the figure's end, so nothing moves after it was shown.
function mount(figure) {
  const { name } = figure.dataset;
  const state = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
  const el = document.createElement("div");
  window.labkitLive.figures[name].render({ model: standIn(state), el });
  figure.querySelector(".live").replaceWith(el);
}
