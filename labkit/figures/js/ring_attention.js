import { choice } from "./controls.js";
import { drawing, element, keepLines, row, spoken, still, write } from "./elements.js";
import { appear, arrow, box, controls, steps, travel, word } from "./machines.js";
import { range, sum } from "./mathematics.js";
import { plural, whole } from "./text.js";
import { View } from "./view.js";

const [N, D_MODEL, BYTES] = [32, 64, 4]; // positions, width, bytes of a number

// The drawing of the ranks, in its units: two rows of boxes, or one, that make a ring.
const [WIDE, HIGH, BOX, CHIP] = [360, 256, 106, 50];
// And that of the pairs.
const [SIDE, ROOM] = [256, 38];

// ---------------------------------------------------------------- what is computed

// The rank of each position: blocks in a row, or one from the front and one as far from the end.
/** @type {(world: number, zigzag: boolean) => number[]} */
function ranksOf(world, zigzag) {
  const blocks = zigzag ? 2 * world : world;
  return range(N).map((i) => {
    const block = Math.floor((i * blocks) / N);
    return block < world ? block : blocks - 1 - block;
  });
}

// Which step, counted from 0, brings a rank's keys to the queries of another.
const meets = (r, of, world) => (r - of + world) % world;

/** @typedef {import("./machines.js").Point} Point */
/** @typedef {import("./machines.js").Frame} Frame */
/** @typedef {ReturnType<typeof compute>} Computed */
/** @param {number} world @param {boolean} zigzag @param {number} at */
function compute(world, zigzag, at) {
  const ranks = ranksOf(world, zigzag);
  const all = range(world);
  const pairs = all.map(() => all.map(() => 0));
  for (const i of range(N)) for (const j of range(i + 1)) pairs[ranks[i]][ranks[j]] += 1;
  const has = all.map((r) => (r - at + world) % world);
  const bySteps = all.map((r) => all.map((s) => pairs[r][(r - s + world) % world]));
  const slowest = all.map((s) => Math.max(...bySteps.map((line) => line[s])));
  const shares = bySteps.map((line) => [line[at], sum(line.slice(0, at + 1)), sum(line)]);
  const moved = ((2 * N) / world) * D_MODEL * BYTES;
  return { world, zigzag, at, ranks, has, pairs, shares, slowest, moved };
}

// ---------------------------------------------------------------- words

function tell({ world, at, shares, moved }) {
  const now = shares.map(([pairs]) => pairs);
  const [most, least] = [Math.max(...now), Math.min(...now)];
  const work = most === least
    ? `each rank computes ${plural(most, "pair")}`
    : `the busiest rank computes ${plural(most, "pair")} and the idlest ${least || "none"}`;
  const start = `Step ${at + 1} of ${world}: `;
  if (!at) return `${start}each rank has its own keys and values, and nothing has been sent; ${work}.`;
  const far = at > 1 ? `, ${whole(moved * at)} so far` : "";
  return `${start}each rank has sent on the keys and values that it had, ${whole(moved)} bytes${far}; now ${work}.`;
}

// ---------------------------------------------------------------- what is drawn

// Where the boxes are: clockwise, the first half above, the others below.
/** @type {(world: number) => any} */
function places(world) {
  const across = Math.max(world / 2, 2);
  const gap = across > 2 ? 16 : 76;
  const wide = (WIDE - 4 - gap * (across - 1)) / across;
  const left = (r) => 2 + (wide + gap) * (r < across ? r : world - 1 - r);
  const below = HIGH - BOX - 2;
  const top = (r) => (world === across ? below / 2 : r < across ? 2 : below);
  const chip = (r) => [left(r) + 5, top(r) + CHIP, wide - 10, 20];
  return { wide, left, top, chip };
}

// The way from a rank's box to the next one's.
/** @type {(place: any, r: number, to: number) => Point[]} */
function way({ wide, left, top }, r, to) {
  const [x, y, end] = [left(r), top(r), left(to)];
  const middle = x + wide / 2;
  if (x === end && y < top(to)) return [[middle, y + BOX], [middle, top(to)]];
  if (x === end) return [[middle, y], [middle, top(to) + BOX]];
  // Of two ranks, each sends to the other.
  const level = y + CHIP + (r === 1 && to === 0 ? 32 : 10);
  return x < end ? [[x + wide, level], [end, level]] : [[x, level], [end + wide, level]];
}

const shade = (r, world) => 0.08 + (0.3 * r) / (world - 1);

// What moves: the keys and values of a rank.
/** @type {(frame: Frame, of: number, world: number) => SVGElement} */
function chipOf([x, y, wide, high], of, world) {
  const ground = box("machines-chip", x, y, wide, high, 10);
  ground.style.setProperty("--shade", String(shade(of, world)));
  const said = world > 4 ? `K, V of ${of}` : `keys, values of ${of}`;
  return drawing("g", {}, ground, word(said, x + wide / 2, y + 14));
}

// The same on its way, small enough to cross no word.
/** @type {(at: Point, of: number, world: number) => SVGElement} */
function message([x, y], of, world) {
  const ground = drawing("circle", { class: "machines-chip", cx: x, cy: y, r: 8 });
  ground.style.setProperty("--shade", String(shade(of, world)));
  return drawing("g", {}, ground, word(String(of), x, y + 4));
}

// A rank's box.
/** @type {(place: any, r: number) => SVGElement} */
const frameOf = ({ wide, left, top }, r) => box("machines-box", left(r), top(r), wide, BOX, 5);

// What stands in it: its queries, and how much of its work is done.
/** @type {(place: any, r: number, found: Computed) => SVGElement[]} */
function machine({ wide, left, top }, r, { world, shares }) {
  const [x, y, inner] = [left(r), top(r), wide - 10];
  const middle = x + wide / 2;
  const [now, soFar, inAll] = shares[r];
  const unit = inner / Math.max(...shares.map((share) => share[2]));
  const queries = box("machines-piece", x + 5, y + 25, inner, 20, 2);
  queries.style.setProperty("--shade", String(shade(r, world)));
  return [
    word(`rank ${r}`, middle, y + 17, "machines-name"),
    queries,
    word(`queries of ${r}`, middle, y + 39),
    word(plural(now, "pair"), middle, y + 86),
    box("machines-done", x + 5, y + 93, unit * (soFar - now), 8, 0),
    box("machines-now", x + 5 + unit * (soFar - now), y + 93, unit * now, 8, 0),
    box("machines-frame", x + 5, y + 93, unit * inAll, 8, 0),
  ];
}

// The ranks in their ring.
function machines() {
  const node = drawing("svg", { class: "machines", role: "img", viewBox: `0 0 ${WIDE} ${HIGH}` });

  /** @type {(found: Computed, moves: boolean) => void} */
  function draw(found, moves) {
    const { world, at, has, shares } = found;
    const place = places(world);
    const told = shares.map(([now], r) => `rank ${r}, keys of ${has[r]}, ${plural(now, "pair")}`);
    node.setAttribute("aria-label", `A ring of ${world} ranks: ${told.join("; ")}`);
    const chips = has.map((of, r) => chipOf(place.chip(r), of, world));
    const next = (r) => (r + 1) % world;
    const inside = drawing("g", {}, ...has.flatMap((_, r) => machine(place, r, found)));
    node.replaceChildren(
      ...has.map((_, r) => frameOf(place, r)),
      inside,
      ...has.map((_, r) => arrow(way(place, r, next(r)))),
      ...chips,
    );
    node.classList.toggle("machines-quiet", !at);
    if (!moves) return;
    chips.forEach((chip) => appear(chip));
    has.forEach((_, r) => {
      const [start, end] = way(place, r, next(r));
      const sent = message(end, has[next(r)], world);
      node.append(sent);
      travel(sent, [start, end]);
    });
  }
  return { node, draw };
}

// Where the next block of positions with one rank begins, for each that there is.
/** @type {(ranks: number[], world: number, zigzag: boolean) => { r: number, from: number, size: number }[]} */
function blocksOf(ranks, world, zigzag) {
  const size = N / (zigzag ? 2 * world : world);
  return range(N / size).map((b) => ({ r: ranks[b * size], from: b * size, size }));
}

// The grid of queries and keys: what is computed now, what was before, what is to come.
function pairGrid() {
  const wide = ROOM + SIDE;
  const node = drawing("svg", { class: "machines", role: "img", viewBox: `0 0 ${wide} ${wide}` });
  const cell = SIDE / N;
  const at = (i) => ROOM + cell * i;

  /** @type {(found: Computed, moves: boolean) => void} */
  function draw({ world, zigzag, at: step, ranks, shares }, moves) {
    const told = shares.map(([now, soFar], r) => `rank ${r} ${now} now, ${soFar} so far`);
    node.setAttribute("aria-label", `Pairs: ${told.join("; ")}`);
    function squares(kind, chosen, given = {}) {
      const one = (i, j) => `M${at(j)} ${at(i)}h${cell - 0.8}v${cell - 0.8}h${0.8 - cell}z`;
      const all = range(N).flatMap((i) => range(i + 1).flatMap((j) => (chosen(i, j) ? one(i, j) : [])));
      return drawing("path", { class: kind, d: all.join(""), ...given });
    }
    const when = (i, j) => meets(ranks[i], ranks[j], world);
    const blocks = blocksOf(ranks, world, zigzag);
    const now = range(world).map((r) =>
      squares("machines-now", (i, j) => ranks[i] === r && when(i, j) === step, { "data-rank": r }),
    );
    const names = blocks.flatMap((query) =>
      blocks
        .filter((key) => key.from <= query.from && meets(query.r, key.r, world) === step)
        .map((key) => {
          // In a triangle the middle lies below.
          const [across, down] = key.from === query.from ? [0.34, 0.66] : [0.5, 0.5];
          const [x, y] = [at(key.from + across * key.size), at(query.from + down * query.size) + 4];
          return word(String(query.r), x, y, "machines-on");
        }),
    );
    const strips = blocks.flatMap(({ r, from, size }) => {
      const [start, long, middle] = [at(from), cell * size - 1, at(from + size / 2)];
      return [
        box("machines-strip", ROOM - 10, start, 7, long, 0),
        box("machines-strip", start, ROOM - 10, long, 7, 0),
        word(String(r), ROOM - 17, middle + 4),
        word(String(r), middle, ROOM - 13),
      ].map((part) => {
        part.style.setProperty("--shade", String(2 * shade(r, world)));
        return part;
      });
    });
    const turned = word("queries of rank", 0, 0);
    turned.setAttribute("transform", `translate(9 ${ROOM + SIDE / 2}) rotate(-90)`);
    node.replaceChildren(
      word("keys of rank", ROOM + SIDE / 2, 10),
      turned,
      ...strips,
      squares("machines-later", (i, j) => when(i, j) > step),
      squares("machines-done", (i, j) => when(i, j) < step),
      ...now,
      ...names,
      box("machines-frame", ROOM, ROOM, SIDE, SIDE, 0),
    );
    if (moves) for (const part of [...now, ...names]) appear(part);
  }
  return { node, draw };
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "take a step");
  const [told, time] = [spoken([2, 4]), keepLines(element("p"), 1, 2)];
  const [ring, grid] = [machines(), pairGrid()];
  const now = () => Math.min(view.get("step"), view.get("world"));
  const going = steps(view, { label: "Step", now, span: () => [1, view.get("world")] });
  let last = "";

  function draw() {
    const [world, zigzag] = [view.get("world"), view.get("order") === view.options("order")[1]];
    const found = compute(world, zigzag, now() - 1);
    const { at, has, pairs, shares, slowest, moved } = found;
    const moves = !still() && last === `${world} ${zigzag} ${at - 1}`;
    last = `${world} ${zigzag} ${at}`;
    told.say(tell(found));
    ring.draw(found, moves);
    grid.draw(found, moves);
    const soFar = slowest.slice(0, at + 1);
    const terms = at ? `${soFar.join(" + ")} = ` : "";
    write(time, `Busiest rank, step by step: ${terms}${sum(soFar)} of ${sum(slowest)} pairs.`);
    going.draw();
    view.values({
      pairs,
      "whose keys a rank has": has,
      "pairs of a rank": shares,
      "pairs of the slowest rank, added up": [sum(soFar), sum(slowest)],
      "bytes a rank sends": [moved, moved * at, moved * (world - 1)],
    });
  }

  view.add(
    controls(
      choice(view, "world", { label: "Ranks W" }),
      choice(view, "order", { label: "Positions" }),
      ...going.nodes,
    ),
    told.node,
    row(
      element("div", { class: "machines-ring" }, ring.node),
      element("div", { class: "machines-grid" }, grid.node),
    ),
    time,
  );
  view.follow(["world", "order", "step"], draw);
  return () => {
    going.stop();
    view.close();
  };
}

export default { render };
