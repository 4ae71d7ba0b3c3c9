// How numbers and places are written, and what is typed is read.

export const LARGEST = 1e6;

// A number to some places, with a true minus sign. A count is written out; any other number is in
// powers of ten where it is very long.
/** @type {(x: number, places?: number) => string} */
export function show(x, places = 3) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const text = Math.abs(x) < (places ? 1e6 : 1e21) ? x.toFixed(places) : x.toExponential(places);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// As it was typed: no zeros after the point that nobody asked for.
/** @type {(x: number) => string} */
export function short(x) {
  return String(x).replace("-", "−");
}

// The browser's own way takes a tenth of a second when it is first asked, more on a phone.
/** @type {(x: number) => string} */
export const whole = (x) =>
  Number.isInteger(x) ? String(x).replace(/\B(?=(\d{3})+$)/g, ",") : x.toLocaleString("en");

/** @type {(share: number) => string} */
export const percent = (share) => `${Math.round(100 * share)}%`;

// A count and what is counted; `say` writes the count.
/** @type {(count: number, one: string, more?: string, say?: (x: number) => string) => string} */
export const plural = (count, one, more = `${one}s`, say = String) =>
  `${say(count)} ${count === 1 ? one : more}`;

const signed = (x, text) => (x < 0 ? `(${text})` : text);

// A dot product, term by term; `say` says how the first factors are written.
/** @type {(a: number[], b: number[], say: (x: number) => string) => string} */
export function terms(a, b, say) {
  const term = (x, i) => `${signed(x, say(x))} · ${signed(b[i], short(b[i]))}`;
  return a.map(term).join(" + ");
}

// A comma is a point, for the numeric keyboards of many phones have no other; not where it may
// part thousands.
const COMMA = /^(-?)(?:(0?),(\d+)|(\d+),(\d{1,2}|\d{4,}))$/;

/** @type {(text: string) => number | null} */
export function parse(text) {
  const typed = text.trim().replace("−", "-");
  const plain = COMMA.test(typed) ? typed.replace(",", ".") : typed;
  const x = Number(plain);
  return plain !== "" && Math.abs(x) <= LARGEST ? x : null;
}

// What stands at a place of an axis: `axis` is a word, to be numbered, or all the names.
/** @type {(axis: Axis, i: number) => string} */
export function name(axis, i) {
  if (Array.isArray(axis)) return axis[i];
  return axis ? `${axis} ${i + 1}` : "";
}

/** @type {(count: number) => string[]} */
export const numbered = (count) => Array.from({ length: count }, (_, i) => String(i + 1));
