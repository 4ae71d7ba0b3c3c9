import { able, button, choice, slider, toggle } from "./controls.js";
import { N, WIDTH, dealHeads, dealPositions, tellStage, tellStep } from "./dealing.js";
import { COLOURS, shade } from "./drawings.js";
import { drawing, element, row, spoken } from "./elements.js";
import { range } from "./mathematics.js";
import { coloured } from "./tables.js";
import { numbered, show, whole } from "./text.js";
import { View } from "./view.js";

const SIDE = 256; // of the grid, in units of its drawing
const ROOM = 30; // for the ranks beside it

// A grid of squares in the shades of ranks: full for the step's pairs, small for earlier ones,
// faint for those to come. Beside it the ranks of the queries, above it those that have the keys.
/** @typedef {{ node: SVGElement, draw(dealt: any, moves: number, world: number): void }} Pairs */
/** @type {() => Pairs} */
function pairGrid() {
  const wide = ROOM + SIDE;
  const size = { viewBox: `0 0 ${wide} ${wide}`, width: wide, height: wide };
  const node = drawing("svg", { ...size, role: "img" });
  const frame = { x: ROOM, y: ROOM, width: SIDE, height: SIDE, class: "live-frame" };

  function draw({ refused, steps, blocks, rank, values }, moves, world) {
    const told = values["pairs of a rank"].map(
      ([now, soFar], r) => `rank ${r} ${now} now, ${soFar} so far`,
    );
    node.setAttribute("aria-label", `Pairs: ${told.join("; ")}`);
    node.replaceChildren(drawing("rect", frame));
    if (refused) return;

    const cell = SIDE / steps.length;
    const ink = (r) => 0.3 + (0.65 * r) / Math.max(world - 1, 1);
    function squares(share, opacity, chosen, given = {}) {
      const side = (cell * share).toFixed(2);
      const at = (i) => (ROOM + cell * (i + (1 - share) / 2)).toFixed(2);
      const one = (i, j) => `M${at(j)} ${at(i)}h${side}v${side}h-${side}z`;
      const all = steps.flatMap((line, i) =>
        line.flatMap((step, j) => (step >= 0 && chosen(step, i) ? one(i, j) : [])),
      );
      node.append(drawing("path", { d: all.join(""), "fill-opacity": opacity, ...given }));
    }
    squares(0.9, 0.08, (step) => step > moves);
    for (const r of range(world)) {
      squares(0.4, ink(r), (step, i) => step < moves && rank(i) === r);
      squares(0.9, ink(r), (step, i) => step === moves && rank(i) === r, { "data-rank": r });
    }
    const long = SIDE / blocks.length;
    blocks.forEach((r, b) => {
      const [from, middle, has] = [ROOM + long * b, ROOM + long * (b + 0.5), (r + moves) % world];
      const left = { x: ROOM - 9, y: from, width: 6, height: long - 1, "fill-opacity": ink(r) };
      const above = { x: from, y: ROOM - 9, width: long - 1, height: 6, "fill-opacity": ink(has) };
      const [beside, over] = [{ x: ROOM - 16, y: middle + 4 }, { x: middle, y: ROOM - 14 }];
      node.append(
        drawing("rect", left),
        drawing("text", { ...beside, "text-anchor": "middle" }, String(r)),
        drawing("rect", above),
        drawing("text", { ...over, "text-anchor": "middle" }, String(has)),
      );
    });
  }
  return { node, draw };
}

// Two buttons that go to the trait's value before and to the next.
/** @typedef {{ nodes: HTMLElement[], end(last: number): void }} Steps */
/** @type {(view: View, trait: string, now: () => number) => Steps} */
function stepButtons(view, trait, now) {
  const go = (by) => () => view.set(trait, view.options(trait)[now() + by]);
  const [back, next] = [button("Step back", go(-1)), button("Next step", go(1))];
  return {
    nodes: [back, next],
    // What lies behind the last place is out of reach; where that is -1, all is.
    end(last) {
      able(back, last >= 0 && now() > 0);
      able(next, now() < last);
    },
  };
}

/** @type {(view: View, traits: string[]) => Record<string, number>} */
const read = (view, traits) => Object.fromEntries(traits.map((trait) => [trait, view.get(trait)]));

const width = (view) => slider(view, "d_model", { label: "Width d_model" });

const rankNames = (world) => range(world).map((r) => `rank ${r}`);

// Of either way to deal: its controls, what it shows, and a function that draws it and returns
// what is told and its values.
/** @typedef {{ tell: string, values: Quantities }} Told */
/** @typedef {{ controls: Child[], shown: Child[], draw(): Told }} Way */

/** @type {(view: View) => Way} */
function byHeads(view) {
  const stages = view.options("stage");
  const stage = () => stages.indexOf(view.get("stage"));
  const buttons = stepButtons(view, "stage", stage);
  const [headTable, keyTable, parts, counts] = [coloured(), coloured(), coloured(), coloured()];
  for (const { node } of [headTable, keyTable, parts]) node.classList.add("live-dealt");
  counts.node.classList.add("live-lines");
  const colour = (head) => shade(head < 4 ? 0.9 : 0.45, COLOURS[head % 4]);
  // A head of keys has the colours of all that read it.
  function stripes(heads) {
    if (!heads.length) return "none";
    const edge = (i) => `${(100 * i) / heads.length}%`;
    const stops = heads.map((head, i) => `${colour(head)} ${edge(i)} ${edge(i + 1)}`);
    return `linear-gradient(to right, ${stops.join(", ")})`;
  }

  function draw() {
    const sizes = read(view, ["world", "h", "h_kv", "n", "d_model"]);
    const { world, h, h_kv } = sizes;
    const at = stage();
    const { refused, readers, values, parameters } = dealHeads(sizes, at, view.options("world"));
    const [heads, keys] = [values["heads of a rank"], values["heads of keys and values of a rank"]];
    const [tensor, reduced, sent] = values["bytes, by heads"];
    const rows = rankNames(world);
    headTable.draw({
      label: "Heads",
      rows,
      columns: numbered(h),
      text: (r, head) => (heads[r][head] ? "●" : ""),
      fill: (r, head) => (heads[r][head] ? colour(head) : "none"),
    });
    keyTable.draw({
      label: "Heads of keys",
      rows,
      columns: numbered(h_kv),
      text: (r, j) => (keys[r][j] ? (world > h_kv ? "◐" : "●") : ""),
      fill: (r, j) => stripes(readers(r, j)),
    });
    const [back, done] = at < 3 ? [0, at] : [1, at - 2]; // of a pass: nothing, its parts, its sum
    const numbers = [...values[back ? "partial dx" : "partial outputs"], values.sums[back]];
    parts.draw({
      label: `Small layer: ${back ? "dx" : "output"} of position ${N}`,
      rows: [...rows, "sum"],
      columns: numbered(WIDTH),
      text: (r, j) => (!refused && done > Number(r === world) ? show(numbers[r][j], 2) : ""),
    });
    /** @type {[string, number][]} */
    const lines = [
      ["Parameters of the layer", parameters],
      ["of rank 0, with the bias of Wᴼ", values["parameters of a rank"][0]],
      ["of any other rank", values["parameters of a rank"][1] ?? 0],
      ["Bytes of a tensor (n, d_model)", tensor],
      ["sent by a rank in an all-reduce, 2(W − 1)/W of them", reduced],
      ["sent by a rank so far", sent],
    ];
    counts.draw({
      label: "A layer of your sizes, in float32",
      rows: lines.map(([what]) => what),
      columns: ["amount"],
      text: (i) => (refused ? "" : whole(lines[i][1])),
    });
    buttons.end(refused ? -1 : stages.length - 1);
    return { tell: refused || tellStage(at, sent, sizes), values };
  }

  return {
    controls: [
      row(
        slider(view, "h", { label: "Heads h" }),
        slider(view, "h_kv", { label: "Heads of keys h_kv" }),
      ),
      row(choice(view, "stage", { label: "Stage" }), ...buttons.nodes),
    ],
    shown: [
      row(headTable.node, keyTable.node, parts.node),
      element("p", {}, "● on one rank, ◐ a copy on each of several ranks"),
      // Beside what alone follows them.
      row(width(view), slider(view, "n", { label: "Positions n" })),
      counts.node,
    ],
    draw,
  };
}

/** @type {(view: View) => Way} */
function byPositions(view) {
  const moves = () => Math.min(view.get("step"), view.get("world")) - 1;
  const buttons = stepButtons(view, "step", moves);
  const [grid, work, bytes] = [pairGrid(), coloured(), coloured()];
  for (const { node } of [work, bytes]) node.classList.add("live-lines");

  function draw() {
    const sizes = read(view, ["world", "positions", "d_model"]);
    const { world } = sizes;
    const done = moves();
    const dealt = dealPositions(sizes, done, view.get("order"), view.get("causal"));
    const { refused, largest, moved, values } = dealt;
    const shares = values["pairs of a rank"];
    grid.draw(dealt, done, world);
    work.draw({
      label: "Pairs of query and key",
      rows: [...rankNames(world), "largest, added up"],
      columns: ["keys of", "this step", "so far", "in all"],
      text(r, j) {
        if (refused) return "";
        if (j) return whole((shares[r] ?? largest)[j - 1]);
        return r < world ? `rank ${(r - done + world) % world}` : "";
      },
    });
    const lines = [moved, ...values["bytes, by positions"]];
    bytes.draw({
      label: "Bytes of keys and values that a rank sends, in float32",
      rows: ["in a move, to the next rank", "so far", "in all, 2(W − 1)/W · n · d_model · 4"],
      columns: ["amount"],
      text: (i) => (refused ? "" : whole(lines[i])),
    });
    buttons.end(refused ? -1 : world - 1);
    return { tell: refused || tellStep(done, shares.map(([now]) => now)), values };
  }

  return {
    controls: [
      row(
        slider(view, "positions", { label: "Positions n" }),
        choice(view, "order", { label: "Dealt in" }),
        toggle(view, "causal", { label: "Causal" }),
      ),
      row(slider(view, "step", { label: "Step" }), ...buttons.nodes),
    ],
    shown: [
      row(
        element(
          "div",
          { class: "live-ring" },
          element("p", {}, "Left, the queries' ranks; above, the ranks that have the keys now"),
          grid.node,
          element("p", {}, "Full squares: this step; small ones: earlier; faint ones: to come"),
        ),
        element("div", { class: "live-chart" }, work.node, row(width(view)), bytes.node),
      ),
    ],
    draw,
  };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "go through the stages");
  const told = spoken();
  told.node.classList.add("live-two-lines");
  const ways = [byHeads(view), byPositions(view)].map(({ controls, shown, draw }, i) => {
    const name = view.options("dealt")[i];
    const part = (what, nodes) => element("fieldset", { "aria-label": `${what}: ${name}` }, ...nodes);
    return { name, parts: [part("Dealt", controls), part("What follows", shown)], draw };
  });

  // The page itself keeps the step inside the ring.
  view.body.addEventListener("input", () => {
    if (view.get("step") > view.get("world")) view.set("step", view.get("world"));
  });

  function draw() {
    /** @type {Quantities} */
    const values = {};
    for (const { name, parts, draw: drawWay } of ways) {
      const chosen = view.get("dealt") === name;
      // The other way's controls are out of reach.
      for (const part of parts) Object.assign(part, { disabled: !chosen, hidden: !chosen });
      const { tell, values: own } = drawWay();
      if (chosen) told.say(tell);
      Object.assign(values, own);
    }
    view.values(values);
  }

  view.add(
    row(
      choice(view, "dealt", { label: "Dealt to ranks:" }),
      slider(view, "world", { label: "Ranks W" }),
    ),
    ...ways.map(({ parts }) => parts[0]),
    told.node,
    ...ways.map(({ parts }) => parts[1]),
  );
  const ofHeads = ["h", "h_kv", "n", "stage"];
  const ofPositions = ["positions", "order", "causal", "step"];
  view.follow(["dealt", "world", "d_model", ...ofHeads, ...ofPositions], draw);
  return view.close;
}

export default { render };
