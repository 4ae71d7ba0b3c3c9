import { chosenPlace, slider } from "./controls.js";
import { shade } from "./drawings.js";
import { element, row, spoken, write } from "./elements.js";
import { sum } from "./mathematics.js";
import { buttonGrid } from "./tables.js";
import { plural, show } from "./text.js";
import { View } from "./view.js";

/** @typedef {{ name: string, sign: string, colour: Colour | "ink", shares: Matrix }} Target */
/** @typedef {{ name: string, layer: number, head: number }} Job */

// The deeper, the more: from no colour to half of it, on which words can be read.
/** @type {(share: number, colour: Colour | "ink") => string} */
const fill = (share, colour) =>
  colour === "ink"
    ? `color-mix(in srgb, currentcolor ${(45 * share ** 1.5).toFixed(1)}%, transparent)`
    : shade(share, colour);

const short = (share) => show(share, 2).replace(/^0/, "");

// For each head what it gives each target, and which gets most.
/** @type {(targets: Target[]) => { found: number[], best: number, most: number }[][]} */
function rank(targets) {
  return targets[0].shares.map((line, i) =>
    line.map((_, j) => {
      const found = targets.map(({ shares }) => shares[i][j]);
      const most = Math.max(...found);
      return { found, most, best: found.indexOf(most) };
    }),
  );
}

/** @type {(job: number) => HTMLElement} */
const ring = (job) => element("b", { class: "map-ring" }, String(job + 1));

// The map: a button for each head, where the figure of all heads has it.
function overview(targets, jobs, ranked, choose) {
  const { node, buttons } = buttonGrid({
    label: "Each cell is a head; deeper colour: larger share",
    rows: ranked.map((_, i) => String(i)),
    columns: ranked[0].map((_, j) => String(j)),
    press: choose,
  });
  node.classList.add("map-heads");
  const across = element("th", { colspan: ranked[0].length, "aria-hidden": "true" }, "head →");
  /** @type {HTMLTableElement} */ (node).tHead?.prepend(element("tr", {}, element("td", { "aria-hidden": "true" }, "layer ↓"), across));
  const jobOf = (i, j) => jobs.findIndex(({ layer, head }) => layer === i && head === j);
  const signs = buttons.map((line, i) =>
    line.map((made, j) => {
      const [sign, share] = [element("span"), element("span", {}, short(ranked[i][j].most))];
      const { best, most } = ranked[i][j];
      made.style.background = fill(most, targets[best].colour);
      made.append(sign, share, ...(jobOf(i, j) < 0 ? [] : [ring(jobOf(i, j))]));
      return sign;
    }),
  );
  return {
    node,
    draw(line, layer, head) {
      ranked.forEach((across, i) =>
        across.forEach(({ best, most }, j) => {
          const { sign, name } = targets[best];
          write(signs[i][j], most > line ? sign : "");
          const job = jobs[jobOf(i, j)];
          const told = `layer ${i}, head ${j}: ${show(most, 2)} to ${name}`;
          buttons[i][j].setAttribute("aria-label", job ? `${told}; ${job.name}` : told);
          buttons[i][j].setAttribute("aria-pressed", String(i === layer && j === head));
        }),
      );
    },
  };
}

// What colours, signs and rings say, and how many heads are above the line.
function legend(targets, jobs) {
  const counts = targets.map(() => element("span"));
  const strip = (...items) => element("ul", { class: "live-strip map-legend" }, ...items);
  const ofTargets = strip(
    ...targets.map(({ name, sign, colour }, i) => {
      const swatch = element("i", {}, sign);
      swatch.style.background = fill(1, colour);
      return element("li", {}, swatch, ` ${name}: `, counts[i]);
    }),
  );
  const ofJobs = strip(...jobs.map(({ name }, i) => element("li", {}, ring(i), ` ${name}`)));
  return { nodes: [ofTargets, ofJobs], draw: (above) => counts.forEach((count, i) => write(count, String(above[i]))) };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "move the line");
  /** @type {{ targets: Target[], jobs: Job[] }} */
  const { targets, jobs } = view.get("stored");
  const ranked = rank(targets);
  const map = overview(targets, jobs, ranked, (i, j) => {
    view.set("layer", i);
    view.set("head", j);
  });
  const key = legend(targets, jobs);
  const [told, chosen] = [spoken([2, 3]), spoken([2, 4], "map-chosen")];

  function draw() {
    const [line, layer, head] = ["line", "layer", "head"].map((trait) => view.get(trait));
    const each = ranked.flat();
    const over = targets.map((_, at) => sum(each.map(({ found }) => Number(found[at] > line))));
    const any = sum(each.map(({ most }) => Number(most > line)));
    map.draw(line, layer, head);
    key.draw(over);
    told.say(
      `${plural(any, "head")} of ${each.length} ${any === 1 ? "gives" : "give"} one of the targets ` +
        `more than ${line} of all weight${sum(over) > any ? ", and some give it to several; a cell shows the largest" : ""}.`,
    );
    const { found } = ranked[layer][head];
    const order = targets.map((_, at) => at).sort((a, b) => found[b] - found[a]);
    const shares = order.map((at) => `${show(found[at], 2)} to ${targets[at].name}`).join(", ");
    const own = jobs.filter((job) => job.layer === layer && job.head === head);
    const passed = own.map(({ name }) => ` It passed a test: ${name}.`).join("");
    chosen.say(`Head (${layer}, ${head}) gives ${shares}.${passed}`);
    view.values({
      "heads above the line": [...over, any],
      "largest share": ranked.map((across) => across.map(({ most }) => most)),
      "place of its target": ranked.map((across) => across.map(({ best }) => best + 1)),
    });
  }

  view.add(
    row(slider(view, "line", { label: "The line" }), chosenPlace(view)),
    told.node,
    ...key.nodes,
    map.node,
    chosen.node,
  );
  view.follow(["line", "layer", "head"], draw);
  return view.close;
}

export default { render };
