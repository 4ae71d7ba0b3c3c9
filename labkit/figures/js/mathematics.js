// The mathematics of the figures: matrices, the softmax, and numbers drawn at random.

/** @type {<T>(a: T[][]) => T[][]} */
export function transpose(a) {
  return a[0].map((_, j) => a.map((row) => row[j]));
}

/** @type {(a: Matrix, b: Matrix) => Matrix} */
export function matmul(a, b) {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
}

/** @type {(a: number[], b: number[]) => number} */
export function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

// With the largest score subtracted, which changes no weight and keeps e^x finite.
/** @type {(row: number[]) => number[]} */
export function softmax(row) {
  const most = Math.max(...row);
  const exponentials = row.map((x) => Math.exp(x - most));
  const total = sum(exponentials);
  return exponentials.map((x) => x / total);
}

/** @type {(numbers: number[]) => number} */
export const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);

/** @type {(numbers: number[]) => number} */
export const mean = (numbers) => sum(numbers) / numbers.length;

/** @type {(count: number) => number[]} */
export const range = (count) => Array.from({ length: count }, (_, i) => i);

// Numbers start, start + 1, ... of a stream of standard normal ones; start and count are even.
// mulberry32 and Box and Muller's method: labkit/figures/saturation.py draws the same.
/** @type {(seed: number, start: number, count: number) => Float64Array} */
export function normals(seed, start, count) {
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform(seed, start + i)));
    const angle = 2 * Math.PI * uniform(seed, start + i + 1);
    numbers[i] = radius * Math.cos(angle);
    numbers[i + 1] = radius * Math.sin(angle);
  }
  return numbers;
}

/** @type {(seed: number, place: number) => number} */
function uniform(seed, place) {
  let x = (seed + Math.imul(place + 1, 0x6d2b79f5)) | 0;
  x = Math.imul(x ^ (x >>> 15), x | 1);
  x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
  return (((x ^ (x >>> 14)) >>> 0) + 0.5) / 2 ** 32;
}
