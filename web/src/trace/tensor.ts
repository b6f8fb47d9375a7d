// Numbers as a trace file stores them, and as the page shows them: float32, as Python reads them.

/** Every half-precision number. */
const HALVES = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else table[bits] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  }
  return table;
})();

type Raw = Uint8Array | Uint16Array | Int8Array | Int16Array | Int32Array | Float32Array | Float64Array;

type Kind = new (buffer: ArrayBuffer, offset: number, length: number) => Raw;
const KINDS: Record<string, { make: Kind; size: number }> = {
  BOOL: { make: Uint8Array, size: 1 },
  U8: { make: Uint8Array, size: 1 },
  I8: { make: Int8Array, size: 1 },
  F16: { make: Uint16Array, size: 2 },
  U16: { make: Uint16Array, size: 2 },
  I16: { make: Int16Array, size: 2 },
  I32: { make: Int32Array, size: 4 },
  F32: { make: Float32Array, size: 4 },
  F64: { make: Float64Array, size: 8 },
};

export class Tensor {
  readonly length: number;

  constructor(
    readonly name: string,
    readonly axes: string[],
    readonly shape: number[],
    readonly raw: Raw,
    readonly isHalf: boolean,
    readonly scale: number | Float32Array | null, // of all, or of each row
  ) {
    this.length = shape.reduce((product, size) => product * size, 1);
  }

  static of(
    name: string, axes: string[], dtype: string, shape: number[], bytes: Uint8Array, scale: number | Float32Array | null,
  ): Tensor {
    const kind = KINDS[dtype];
    if (!kind) throw new Error(`'${name}' is stored as ${dtype}, which this page does not read`);
    const count = shape.reduce((product, size) => product * size, 1);
    if (count * kind.size !== bytes.byteLength) throw new Error(`'${name}' has another size than its shape says`);
    const aligned = bytes.byteOffset % kind.size === 0 ? bytes : bytes.slice();
    const raw = new kind.make(aligned.buffer as ArrayBuffer, aligned.byteOffset, count);
    return new Tensor(name, axes, shape, raw, dtype === 'F16', scale);
  }

  /** Numbers that were computed here. */
  static made(name: string, axes: string[], shape: number[], values: Float32Array): Tensor {
    return new Tensor(name, axes, shape, values, false, null);
  }

  /** The number that a stored one of this row (by its flat number) stands for. */
  decode(stored: number, row: number): number {
    if (this.isHalf) return HALVES[stored];
    if (this.scale === null) return stored;
    return Math.fround(stored * Math.fround(typeof this.scale === 'number' ? this.scale : this.scale[row]));
  }

  get width(): number {
    return this.shape.at(-1) ?? 1;
  }

  at(flat: number): number {
    return this.decode(this.raw[flat], Math.floor(flat / this.width));
  }

  /** `count` numbers from the flat place `start` on. */
  floats(start = 0, count = this.length): Float32Array {
    const result = new Float32Array(count);
    for (let i = 0; i < count; i++) result[i] = this.at(start + i);
    return result;
  }

  /** Every `step`-th of `count` numbers. */
  strided(start: number, step: number, count: number): Float32Array {
    const result = new Float32Array(count);
    for (let i = 0; i < count; i++) result[i] = this.at(start + i * step);
    return result;
  }

  /** Where the last `depth` axes of these leading places begin: `tensor.start(head, row)`. */
  start(...places: number[]): number {
    let flat = 0;
    this.shape.forEach((size, axis) => (flat = flat * size + (places[axis] ?? 0)));
    return flat;
  }

  /** One of the first axis. */
  one(number: number): Tensor {
    const shape = this.shape.slice(1);
    const size = shape.reduce((product, long) => product * long, 1);
    return new Tensor(this.name, this.axes.slice(1), shape, this.raw.subarray(number * size, (number + 1) * size), this.isHalf, this.scale);
  }

  /** Smallest and largest number. */
  range(): [number, number] {
    let low = Infinity;
    let high = -Infinity;
    for (let i = 0; i < this.length; i++) {
      const value = this.at(i);
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 0];
  }
}
