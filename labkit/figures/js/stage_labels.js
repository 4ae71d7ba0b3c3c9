// Where names stand beside their points, clear of the points and of each other.

const WIDE = 7.4; // of a letter, in the drawing's units
const HIGH = 15;
const GAP = 5;

/** @typedef {{ spot: number[], radius: number }} Dot */
/** @typedef {{ node: SVGElement, spot: number[], words: string[], must: boolean }} Wanted */

// Places around a point, nearest ones first: where the name's middle would be.
/** @type {(spot: number[], half: number, side: number) => number[][]} */
function around([x, y], half, side) {
  const spots = [];
  for (const far of [14, 30, 46, 62])
    for (const [dx, dy] of [[0, -1], [0, 1], [1, 0], [-1, 0], [1, -1], [-1, -1], [1, 1], [-1, 1]]) {
      const across = dx * (half + GAP + far * 0.5);
      spots.push([x + across, y + dy * (far + 2)]);
    }
  return spots.map(([a, b]) => [
    Math.min(Math.max(a, half + 4), side - half - 4), Math.min(Math.max(b, 12), side - 12),
  ]);
}

const overlaps = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

/** @type {(wanted: any[], dots: Dot[], side: number, put: (one: any, spot: number[] | null) => void) => void} */
export function place(wanted, dots, side, put) {
  const taken = dots.map(({ spot: [x, y], radius: r }) => [x - r, y - r, x + r, y + r]);
  for (const one of wanted) {
    const half = (one.words.join(" ").length * (one.faint ? 6.5 : WIDE)) / 2 + 2;
    /** @type {(spot: number[]) => number[]} */
    const boxOf = ([x, y]) => [x - half, y - HIGH / 2, x + half, y + HIGH / 2];
    const spots = one.spots ?? around(one.spot, half, side);
    const free = spots.find((spot) => !taken.some((box) => overlaps(box, boxOf(spot))));
    const chosen = free ?? (one.must ? spots[0] : null);
    if (chosen) taken.push(boxOf(chosen));
    put(one, chosen);
  }
}
