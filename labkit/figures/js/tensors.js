// Trained weights: how they are stored, and a layer that they make.

/** @type {(base64: string) => Uint8Array} */
export function decode(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

// A number of 16 bits: a sign, five bits of exponent, ten of fraction.
/** @type {(bits: number) => number} */
function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
  return bits >> 15 ? -size : size;
}

// A file of numbers of 16 bits in the format of safetensors: the length of a header, the header in
// JSON, which says where each tensor lies and may tell more about them, and the numbers.
/** @type {(file: DataView) => { about: Record<string, string>, at: Record<string, Tensor> }} */
export function readTensors(file) {
  const start = 8 + Number(file.getBigUint64(0, true));
  const letters = new Uint8Array(file.buffer, file.byteOffset + 8, start - 8);
  const { __metadata__: about, ...tensors } = JSON.parse(new TextDecoder().decode(letters));
  const at = {};
  for (const [name, { shape, data_offsets: ends }] of Object.entries(tensors)) {
    const numbers = new Float64Array((ends[1] - ends[0]) / 2);
    for (let i = 0; i < numbers.length; i += 1) {
      numbers[i] = half(file.getUint16(start + ends[0] + 2 * i, true));
    }
    at[name] = { shape, numbers };
  }
  return { about, at };
}

/** @type {(x: Rows, weight: Tensor, bias?: Tensor) => Rows} */
export function linear(x, { shape: [outputs, inputs], numbers }, bias) {
  return x.map((row) => {
    const y = new Float64Array(outputs);
    for (let i = 0; i < outputs; i += 1) {
      let sum = bias ? bias.numbers[i] : 0;
      for (let j = 0; j < inputs; j += 1) sum += numbers[i * inputs + j] * row[j];
      y[i] = sum;
    }
    return y;
  });
}
