// Where names stand beside their points, clear of the points and of each other.

// Of a letter, in its size.
const WIDE = 0.53;
const HIGH = 1.2;
const GAP = 5;
// What a name costs, beside what it covers: per unit between it and its point, and where another is nearer.
const [FAR, MISTAKEN] = [6, 400];

/** @typedef {{ spot: number[], radius: number }} Dot */
/** @typedef {{ node: SVGElement, spot: number[], words: string[], must: boolean }} Wanted */

// Places around a point, nearest ones first: where the name's middle would be.
/** @type {(spot: number[], half: number, side: number) => number[][]} */
function around([x, y], half, side) {
  const within = (z, edge) => Math.min(Math.max(z, edge), side - edge);
  return [14, 30, 46, 62, 78, 94].flatMap((far) =>
    [[0, -1], [0, 1], [1, 0], [-1, 0], [1, -1], [-1, -1], [1, 1], [-1, 1]].map(([dx, dy]) => [
      within(x + dx * (half + GAP + far / 2), half + 4), within(y + dy * (far + 2), 12),
    ]),
  );
}

// From a point to the nearest edge of a box, nothing within it.
/** @type {(spot: number[], box: number[]) => number} */
const apart = ([x, y], [left, top, right, bottom]) => Math.hypot(Math.max(left - x, x - right, 0), Math.max(top - y, y - bottom, 0));
/** @type {(a: number[], b: number[]) => number} */
const overlap = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));

// What must have a name has it where it covers least, other names above all, and near its point: a
// name that is nearer to another point would be read as that one's.
/** @type {(wanted: any[], dots: Dot[], side: number, size: number, put: (one: any, spot: number[] | null) => void) => void} */
export function place(wanted, dots, side, size, put) {
  const points = dots.map(({ spot: [x, y], radius: r }) => [x - r, y - r, x + r, y + r]);
  /** @type {number[][]} */
  const names = [];
  for (const one of wanted) {
    const half = (one.words.join(", ").length * size * WIDE * (one.faint ? 0.87 : 1)) / 2 + 2;
    /** @type {(spot: number[]) => number[]} */
    const boxOf = ([x, y]) => [x - half, y - (size * HIGH) / 2, x + half, y + (size * HIGH) / 2];
    const others = wanted.flatMap(({ spot }) => (spot && spot !== one.spot ? [spot] : []));
    const spots = one.spots ?? around(one.spot, half, side);
    const boxes = spots.map(boxOf);
    const covers = (all, box) => all.reduce((covered, other) => covered + overlap(other, box), 0);
    const strays = (box) => {
      const far = apart(one.spot, box);
      return FAR * far + MISTAKEN * others.filter((spot) => apart(spot, box) < far + GAP).length;
    };
    const covered = boxes.map((box) => 50 * covers(names, box) + covers(points, box));
    const costs = boxes.map((box, i) => covered[i] + (one.spot ? strays(box) : 0));
    const best = costs.indexOf(Math.min(...costs));
    const chosen = one.must || !covered[best] ? spots[best] : null;
    if (chosen) names.push(boxes[best]);
    put(one, chosen);
  }
}
