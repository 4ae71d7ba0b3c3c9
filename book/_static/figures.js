// Draw the plotly figures of a page from the JSON stored in it, in the colours of its theme. Plotly
// is 0.5 MB compressed: it comes when the first figure nears the window. Until then the figure has
// its final size, and its text.
"use strict";

const PLOTLY = new URL("plotly.min.js", /** @type {HTMLScriptElement} */ (document.currentScript).src);
const MISSING = "The drawing did not come. Reload the page to try again; below it is told in words.";

/** @type {Promise<Event> | undefined} */
let plotly;

function fetchPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = PLOTLY.href;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  return plotly;
}

// Colours are stored as the light theme has them; each is also the name of what the theme has.
function coloured(text, style) {
  return text.replace(/#[0-9A-F]{6}\b/gi, (colour) =>
    style.getPropertyValue(`--chart-${colour.slice(1).toLowerCase()}`).trim() || colour);
}

// Title and key stand above the drawing, as text of the page.
function themed(data, layout, style) {
  const text = style.getPropertyValue("--pst-color-text-base").trim();
  const lines = style.getPropertyValue("--pst-color-border").trim();
  const clear = "rgba(0,0,0,0)";
  const { sliders, title, ...rest } = layout;
  const result = { ...rest, paper_bgcolor: clear, plot_bgcolor: clear, dragmode: false, showlegend: false };
  result.margin = { ...layout.margin, t: 16, b: sliders ? 12 : 50 };
  result.font = { ...layout.font, size: 13, color: text };
  // Between the cells of a map a line of the grid would read as a minus sign before a number.
  const isMap = data.some(({ type }) => type === "heatmap");
  for (const name of Object.keys(layout)) {
    if (!/^[xy]axis\d*$/.test(name)) continue;
    // Fixed: a finger that points at a dot would move the axis.
    const title = layout[name].title && { ...layout[name].title, font: { size: 13 } };
    const own = {
      ...layout[name],
      ...(title && { title }),
      ...(isMap && { showgrid: false, zeroline: false }),
      fixedrange: true,
    };
    result[name] = { ...own, gridcolor: lines, zerolinecolor: lines, linecolor: lines };
  }
  return result;
}

// Plotly would write the numbers of a narrow matrix in 8 pixels, and slant the names of its columns.
function small(trace, layout) {
  trace.textfont = { size: 11 };
  layout.xaxis = { ...layout.xaxis, tickangle: 0, tickfont: { size: 11 } };
}

// Where there is room, curves have their names at their ends, and the style sheet hides the key.
const ROOMY = matchMedia("(min-width: 992px)");
const LETTER = 7; // pixels of width, at most, on average
const hasNamesAtEnds = (figure) => figure.classList.contains("plotly-figure-curves") && ROOMY.matches;

function nameEnds(drawing, data, colours) {
  const line = Number(drawing.closest("figure").dataset.line); // pixels from name to name
  const { yaxis } = drawing._fullLayout;
  const height = yaxis._length;
  const names = data.map(({ name, y, line: drawn }, i) => {
    const end = yaxis.d2p(y.at(-1));
    return { name, end, at: end, colour: drawn?.color ?? colours[i % colours.length] };
  }).sort((a, b) => a.at - b.at);
  names.forEach((one, i) => { if (i) one.at = Math.max(one.at, names[i - 1].at + line); });
  let lowest = height;
  for (const one of names.toReversed()) {
    one.at = Math.min(one.at, lowest);
    lowest = one.at - line;
  }
  // A line leads from a curve's end to its name, which others may have moved.
  const annotations = names.map(({ name, end, at, colour }) => ({
    text: name, align: "left", xref: "paper", x: 1, xanchor: "left", yref: "paper", y: 1 - end / height,
    yanchor: "middle", arrowhead: 0, arrowwidth: 1.5, arrowcolor: colour, ax: 16, ay: at - end,
  }));
  return Plotly.relayout(drawing, { annotations });
}

const NARROW = 480;
const FRAME_MILLISECONDS = 600;
const PAPER_WIDTH = 700; // of a figure that is printed out of a fold

// Plotly's own slider takes no keyboard: frames get a slider and a button below the drawing.
// Nothing moves unasked. Returns what shows the chosen frame.
function player(figure, drawing, frames) {
  const [button, slider, name] = figure.querySelector(".plotly-figure-player").children;
  const last = frames.length - 1;
  button.disabled = slider.disabled = false;
  let timer;

  function show() {
    name.textContent = slider.ariaValueText = frames[slider.value].name;
    const options = { mode: "immediate", frame: { duration: 0 }, transition: { duration: 0 } };
    return Plotly.animate(drawing, [name.textContent], options);
  }
  function rest() {
    timer = clearInterval(timer);
    button.textContent = "Play";
  }
  function next() {
    slider.stepUp();
    if (slider.valueAsNumber === last) rest();
    show();
  }
  button.addEventListener("click", () => {
    if (timer) return rest();
    if (slider.valueAsNumber === last) slider.value = "0";
    timer = setInterval(next, FRAME_MILLISECONDS);
    button.textContent = "Stop";
    show();
  });
  slider.addEventListener("input", () => {
    rest();
    show();
  });
  return show;
}

const players = new Map();
const widths = new Map();

async function draw(figure) {
  const drawing = figure.querySelector(".plotly-figure-drawing");
  try {
    await fetchPlotly();
  } catch {
    drawing.textContent = MISSING;
    return;
  }
  const style = getComputedStyle(document.documentElement);
  const stored = coloured(figure.querySelector("script").textContent, style);
  const { data, layout, frames } = JSON.parse(stored);
  const width = drawing.clientWidth || PAPER_WIDTH;
  widths.set(drawing, width);
  const height = parseFloat(getComputedStyle(drawing).minHeight);
  const fitting = { ...themed(data, layout, style), width, height };
  if (width < NARROW) data.filter((trace) => trace.texttemplate).forEach((trace) => small(trace, fitting));
  const isNamed = hasNamesAtEnds(figure);
  if (isNamed) fitting.margin.r = LETTER * (3 + Math.max(...data.map(({ name }) => name.length)));
  // To plotly a tap is two clicks, which would show another range.
  const config = { displayModeBar: false, doubleClick: false };
  await Plotly.react(drawing, { data, layout: fitting, config, frames });
  if (isNamed) await nameEnds(drawing, data, layout.colorway);
  figure.dataset.drawn = "true";
  drawing.setAttribute("aria-hidden", "true"); // its caption tells it
  resized.observe(drawing);
  if (!frames) return;
  if (!players.has(figure)) players.set(figure, player(figure, drawing, frames));
  await players.get(figure)();
}

/** @type {HTMLElement[]} */
const figures = Array.from(document.querySelectorAll("figure.plotly-figure"));
const drawn = (figure) => "drawn" in figure.dataset;
const undrawn = () => figures.filter((figure) => !drawn(figure));

const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const changed = contentRect.width > 0 && Math.round(contentRect.width) !== widths.get(target);
    if (changed) draw(target.closest("figure"));
  }
});

function watch(margin) {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: margin },
  );
  undrawn().forEach((figure) => watcher.observe(figure));
  return watcher;
}
// Who only looks at the first screen needs no figure below it. Who scrolls finds each one drawn if
// plotly comes while a screen is read.
const first = watch("0px");
addEventListener(
  "scroll",
  () => {
    first.disconnect();
    watch("100% 0px");
  },
  { once: true, passive: true },
);

new MutationObserver(() => {
  figures.filter(drawn).forEach(draw);
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

// Printing shows every figure, also those that were never scrolled to. The browser's own menu waits
// for nothing: it prints the text of those whose script has not come.
const printNow = window.print.bind(window);
window.print = () => {
  const missing = undrawn();
  if (missing.length) Promise.all(missing.map(draw)).then(printNow);
  else printNow();
};
addEventListener("keydown", (event) => {
  if (event.key !== "p" || !(event.ctrlKey || event.metaKey) || !undrawn().length) return;
  event.preventDefault();
  window.print();
});
addEventListener("beforeprint", () => undrawn().forEach(draw));
