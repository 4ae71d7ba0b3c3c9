// Draw the plotly figures of a page from the JSON stored in it, in the colours of its theme.
"use strict";

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--pst-color-text-base").trim();
  const lines = style.getPropertyValue("--pst-color-border").trim();
  const clear = "rgba(0,0,0,0)";
  const result = { ...layout, paper_bgcolor: clear, plot_bgcolor: clear, dragmode: false };
  result.font = { ...layout.font, color: text };
  for (const name of Object.keys(layout)) {
    if (!/^[xy]axis\d*$/.test(name)) continue;
    result[name] = { ...layout[name], gridcolor: lines, zerolinecolor: lines, linecolor: lines };
  }
  return result;
}

function choose(drawing, menu, select) {
  return Plotly.update(drawing, ...menu.buttons[select.selectedIndex].args);
}

// Plotly's own menus take no keyboard: each becomes a select above the drawing.
function selects(drawing, menus) {
  const there = [...drawing.parentElement.querySelectorAll("select")];
  if (there.length) return there;
  return menus.map((menu) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    label.append(menu.name, select);
    select.append(...menu.buttons.map((button) => new Option(button.label)));
    select.addEventListener("change", () => choose(drawing, menu, select));
    drawing.before(label);
    return select;
  });
}

async function draw(figure) {
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const { updatemenus: menus = [], ...rest } = layout;
  const drawing = figure.querySelector(".plotly-figure-drawing");
  // Plotly's menus want room above the plot; these do not.
  if (menus.length) rest.margin = { ...rest.margin, t: 60 };
  const options = { responsive: true, displayModeBar: false };
  const chosen = selects(drawing, menus);
  await Plotly.react(drawing, data, themed(rest), options);
  for (const [i, menu] of menus.entries()) await choose(drawing, menu, chosen[i]);
}

const figures = [...document.querySelectorAll("figure.plotly-figure")];

// A figure is drawn when it comes near the window: a page with many of them opens quickly.
const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      entry.target.dataset.drawn = "true";
      draw(entry.target);
    }
  },
  { rootMargin: "400px" },
);
figures.forEach((figure) => watcher.observe(figure));

new MutationObserver(() => {
  figures.filter((figure) => figure.dataset.drawn).forEach(draw);
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

// Printing shows every figure, also those that were never scrolled to.
window.addEventListener("beforeprint", () => {
  figures.filter((figure) => !figure.dataset.drawn).forEach(draw);
});
