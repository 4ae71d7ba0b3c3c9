import { choice } from "./controls.js";
import { COLOURS } from "./drawings.js";
import { drawing, element, spoken, still } from "./elements.js";
import { arrow, box, controls, steps, travel, word } from "./machines.js";
import { range, sum } from "./mathematics.js";
import { View } from "./view.js";

const HEADS = COLOURS.length;
const BYTES = 4; // of a number

// The drawing, in its units: boxes in a row between two margins, and below them the way back.
const [WIDE, HIGH, MARGIN, GAP] = [360, 234, 17, 17];
const [TOP, CHIPS, ROWS, BOTTOM, RETURN] = [4, 28, 54, 214, 226];
const SMALL = 0.3; // how much of its size a piece keeps between two ranks
const LANE = 14; // under a piece, for the heads that are in it

// ---------------------------------------------------------------- what is computed

/** @typedef {import("./machines.js").Point} Point */
/** @typedef {import("./machines.js").Frame} Frame */
// What the ranks hold after so many messages: of each piece its numbers, and which heads are in it.
/** @typedef {{ numbers: number[], heads: number[] }} Piece */
/** @type {(parts: Matrix, world: number) => Piece[][]} */
function begin(parts, world) {
  const [own, size] = [HEADS / world, parts[0].length / world];
  return range(world).map((r) => {
    const heads = range(own).map((i) => own * r + i);
    return range(world).map((piece) => ({
      heads,
      numbers: range(size).map((i) => sum(heads.map((head) => parts[head][size * piece + i]))),
    }));
  });
}

const adds = (message, world) => message < world - 1;

// Which piece a rank sends in a message.
const sends = (r, message, world) => (r + 2 * world - 1 - message) % world;

/** @type {(held: Piece[][], message: number) => Piece[][]} */
function send(held, message) {
  const world = held.length;
  return held.map((pieces, r) => {
    const before = (r + world - 1) % world;
    const at = sends(before, message, world);
    const came = held[before][at];
    const joined = {
      heads: [...pieces[at].heads, ...came.heads].sort(),
      numbers: pieces[at].numbers.map((x, i) => x + came.numbers[i]),
    };
    const now = adds(message, world) ? joined : came;
    return pieces.map((piece, i) => (i === at ? now : piece));
  });
}

// Every state there is, by the messages sent.
/** @type {(parts: Matrix, world: number) => Piece[][][]} */
function walk(parts, world) {
  const all = [begin(parts, world)];
  for (const message of range(2 * (world - 1))) all.push(send(all[message], message));
  return all;
}

// ---------------------------------------------------------------- words

/** @type {(at: number, world: number, width: number, asking: string) => string} */
function tell(at, world, width, asking) {
  if (world === 1) return `One rank has all ${HEADS} heads: what they write for “${asking}” is the layer’s output, and nothing is sent.`;
  const writes = HEADS === world ? "its head writes" : `its ${HEADS / world} heads write`;
  if (!at) return `Each rank computes what ${writes} for “${asking}”, ${width} numbers: a partial output. Nothing has been sent yet.`;
  const [size, last] = [width / world, 2 * (world - 1)];
  const what = adds(at - 1, world)
    ? `hands a piece of ${size} numbers to the next, which adds its own`
    : "hands on a piece that is whole, and the next copies it";
  const bytes = at === 1 ? `${size * BYTES} bytes` : `${size * BYTES} bytes, ${at * size * BYTES} so far`;
  const end = {
    [world - 1]: " Each rank now has one piece of the output.",
    [last]: " Each rank now has the whole output.",
  };
  return `Message ${at} of ${last}: each rank ${what}; ${bytes}.${end[at] ?? ""}`;
}

// ---------------------------------------------------------------- what is drawn

// Where the boxes of so many ranks and their pieces are.
/** @type {(world: number) => any} */
function places(world) {
  const wide = (WIDE - 2 * MARGIN - GAP * (world - 1)) / world;
  const high = (BOTTOM - ROWS - 4 * world) / world;
  const left = (r) => MARGIN + (wide + GAP) * r;
  const top = (piece) => ROWS + (high + 4) * piece;
  return { wide, high, left, top, middle: (piece) => top(piece) + high / 2 };
}

// The way of a piece from a rank's edge to the next one's: from the last rank round below all boxes.
/** @type {(place: any, r: number, piece: number, world: number) => Point[]} */
function way(place, r, piece, world) {
  const y = place.middle(piece);
  const [from, to] = [place.left(r) + place.wide, place.left((r + 1) % world)];
  if (r < world - 1) return [[from, y], [to, y]];
  return [[from, y], [WIDE - 4, y], [WIDE - 4, RETURN], [4, RETURN], [4, y], [to, y]];
}

// A piece: its numbers as bars from the middle, below them the heads that are in it.
/** @type {(piece: Piece, frame: Frame, most: number) => SVGElement} */
function pieceOf({ numbers, heads }, [x, y, wide, high], most) {
  const [step, half] = [wide / numbers.length, (high - LANE) / 2 - 1];
  const middle = y + (high - LANE) / 2;
  const bars = numbers.map((value, i) => {
    const long = (half * value) / most;
    const start = (x + step * i + 0.1 * step).toFixed(2);
    return `M${start} ${middle.toFixed(2)}v${(-long).toFixed(2)}h${(0.8 * step).toFixed(2)}V${middle.toFixed(2)}z`;
  });
  const lane = wide / HEADS;
  const lanes = heads.flatMap((head) => {
    const from = x + lane * head;
    const ground = box("machines-lane", from, y + high - LANE, lane, LANE, 0);
    ground.style.setProperty("--head", `var(--live-${COLOURS[head]})`);
    return [ground, word(String(head), from + lane / 2, y + high - 3)];
  });
  return drawing(
    "g",
    {},
    box("machines-piece", x, y, wide, high, 2),
    drawing("path", { class: "machines-zero", d: `M${x} ${middle}h${wide}` }),
    drawing("path", { class: "machines-bars", d: bars.join("") }),
    ...lanes,
  );
}

// A rank's box with its name and its heads.
/** @type {(place: any, r: number, world: number) => SVGElement[]} */
function machine(place, r, world) {
  const [own, x] = [HEADS / world, place.left(r)];
  const wide = (place.wide - 8 - 4 * (own - 1)) / own;
  const chips = range(own).flatMap((i) => {
    const [head, from] = [own * r + i, x + 4 + (wide + 4) * i];
    const chip = box("machines-chip", from, CHIPS, wide, 20, 10);
    chip.style.setProperty("--head", `var(--live-${COLOURS[head]})`);
    return [chip, word(`head ${head}`, from + wide / 2, CHIPS + 14)];
  });
  return [
    box("machines-box", x, TOP, place.wide, BOTTOM - TOP, 5),
    word(`rank ${r}`, x + place.wide / 2, TOP + 16, "machines-name"),
    ...chips,
  ];
}

// The ranks and, where a message was just sent, its way.
function machines() {
  const node = drawing("svg", { class: "machines", role: "img", viewBox: `0 0 ${WIDE} ${HIGH}` });
  let last = { world: 0, at: 0 };

  // Draws the state after `at` messages; what the last of them sent moves if it was just sent.
  function draw(all, at, world) {
    const place = places(world);
    const most = Math.max(...all.flat(2).flatMap(({ numbers }) => numbers.map(Math.abs)));
    /** @type {(r: number, c: number) => Frame} */
    const frame = (r, c) => [place.left(r) + 4, place.top(c), place.wide - 8, place.high];
    const drawn = (piece, r, c) => pieceOf(piece, frame(r, c), most);
    const moves = !still() && last.world === world && at === last.at + 1;
    last = { world, at };
    const told = all[at].map((pieces, r) => {
      const each = pieces.map(({ heads }) => heads.join(" + "));
      return `rank ${r} ${each.join(", ")}`;
    });
    node.setAttribute("aria-label", `Heads in each piece: ${told.join("; ")}`);
    node.replaceChildren(
      ...range(world).flatMap((r) => machine(place, r, world)),
      ...all[at].flatMap((pieces, r) => pieces.map((piece, c) => drawn(piece, r, c))),
    );
    if (!at) return;
    const messages = range(world).map((r) => [r, (r + 1) % world, sends(r, at - 1, world)]);
    for (const [r, to, c] of messages) {
      const ends = [box("machines-left", ...frame(r, c)), box("machines-came", ...frame(to, c))];
      node.append(arrow(way(place, r, c, world)), ...ends);
    }
    if (!moves) return;
    // Until the message is there, its place looks as before.
    /** @type {(r: number, c: number) => Point} */
    const middle = (r, c) => [place.left(r) + place.wide / 2, place.middle(c)];
    // On its way below the boxes all of a piece stays inside the drawing.
    const [half, tall] = [(SMALL * place.wide) / 2, (SMALL * place.high) / 2];
    /** @type {(point: Point) => Point} */
    const inside = ([x, y]) => [Math.min(Math.max(x, half), WIDE - half), Math.min(y, HIGH - tall)];
    for (const [, to, c] of messages) {
      const old = drawn(all[at - 1][to][c], to, c);
      node.append(old);
      travel(old, [middle(to, c), middle(to, c)]);
    }
    for (const [r, to, c] of messages) {
      const sent = drawn(all[at - 1][r][c], to, c);
      node.append(sent);
      const between = to ? [] : way(place, r, c, world).slice(1, -1).map(inside);
      travel(sent, [middle(r, c), ...between, middle(to, c)], SMALL);
    }
  }
  return { node, draw };
}

// ---------------------------------------------------------------- the figure

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "send a message");
  const told = spoken([2, 4]);
  const drawn = machines();
  const messages = () => 2 * (view.get("world") - 1);
  const at = () => Math.min(view.get("step"), messages());
  const going = steps(view, { label: "Messages sent", now: at, span: () => [0, messages()] });

  function draw() {
    const { story, parts } = view.get("given");
    const [world, width] = [view.get("world"), parts[0].length];
    const all = walk(parts, world);
    const held = all[at()];
    told.say(tell(at(), world, width, story.split(" ").at(-1)));
    drawn.draw(all, at(), world);
    going.draw();
    const each = world > 1 ? (width / world) * BYTES : 0;
    view.values({
      "heads in a piece": held.map((pieces) => pieces.map(({ heads }) => heads.length)),
      "numbers of a rank": held.map((pieces) => pieces.flatMap(({ numbers }) => numbers)),
      "bytes a rank sends": [each, each * at(), each * messages()],
    });
  }

  view.add(
    controls(choice(view, "world", { label: "Ranks W" }), ...going.nodes),
    told.node,
    drawn.node,
    element("p", {}, "Under a piece: the heads that are in it, counted from 0 as in the GPT. Each bar is one of its numbers."),
  );
  view.follow(["world", "step"], draw);
  return () => {
    going.stop();
    view.close();
  };
}

export default { render };
