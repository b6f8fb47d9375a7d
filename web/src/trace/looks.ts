// One head's weights: row t is where place t looks. Whole, or only the strongest of each row.

import { Tensor } from './tensor';

export class Looks {
  private largest: number | null = null;
  private pooled = new Map<string, Float32Array>();

  constructor(
    private readonly tensor: Tensor,
    private readonly head: number,
    readonly rows: number,
    readonly columns: number,
    private readonly places?: Tensor,
    private readonly floor?: number, // of numbers that were computed from stored ones
  ) {}

  get isSparse(): boolean {
    return this.places !== undefined;
  }

  private get width(): number {
    return this.places ? this.tensor.shape.at(-1)! : this.columns;
  }

  private get first(): number {
    return this.tensor.axes[0] === 'head' ? this.head * this.rows * this.width : 0;
  }

  /** Where place t looks. */
  row(t: number): Float32Array {
    const start = this.first + t * this.width;
    if (!this.places) return this.tensor.floats(start, this.columns);
    const result = new Float32Array(this.columns);
    for (let i = start; i < start + this.width; i++) result[this.places.raw[i]] += this.tensor.at(i);
    return result;
  }

  /** Who looks at place s. */
  column(s: number): Float32Array {
    if (!this.places) return this.tensor.strided(this.first + s, this.columns, this.rows);
    const result = new Float32Array(this.rows);
    const { raw } = this.places;
    for (let t = 0, i = this.first; t < this.rows; t++) {
      for (let k = 0; k < this.width; k++, i++) if (raw[i] === s) result[t] += this.tensor.at(i);
    }
    return result;
  }

  at(t: number, s: number): number {
    return this.places ? this.row(t)[s] : this.tensor.at(this.first + t * this.columns + s);
  }

  /** What is less in this row is stored as 0. */
  least(t: number): number {
    const { isHalf, scale } = this.tensor;
    if (this.floor !== undefined) return this.floor;
    return isHalf ? 1e-7 : typeof scale === 'object' && scale ? scale[this.first / this.width + t] : 1e-38;
  }

  max(): number {
    this.largest ??= this.grid(1, 1)[0];
    return this.largest;
  }

  /** The largest weight under each cell of a grid of `tall` × `wide` over this part of the matrix. */
  grid(tall: number, wide: number, r0 = 0, r1 = this.rows, c0 = 0, c1 = this.columns): Float32Array {
    const key = [tall, wide, r0, r1, c0, c1].join();
    let result = this.pooled.get(key);
    if (!result) {
      if (this.pooled.size > 3) this.pooled.clear();
      result = this.pool(tall, wide, r0, r1, c0, c1);
      this.pooled.set(key, result);
    }
    return result;
  }

  private pool(tall: number, wide: number, r0: number, r1: number, c0: number, c1: number): Float32Array {
    const most = new Float32Array(tall * wide);
    const inRow = new Float32Array(wide); // as stored: that grows with what it stands for, half precision too
    const { raw } = this.tensor;
    const { width } = this;
    const places = this.places?.raw;
    const across = new Int32Array(this.columns);
    for (let s = 0; s < this.columns; s++) across[s] = s < c0 || s >= c1 ? -1 : Math.floor(((s - c0) * wide) / (c1 - c0));
    for (let t = r0; t < r1; t++) {
      const start = this.first + t * width;
      inRow.fill(0);
      for (let k = 0; k < width; k++) {
        const stored = raw[start + k];
        if (stored === 0) continue;
        const x = across[places ? places[start + k] : k];
        if (x >= 0 && stored > inRow[x]) inRow[x] = stored;
      }
      const line = Math.floor(((t - r0) * tall) / (r1 - r0)) * wide;
      for (let x = 0; x < wide; x++) {
        const value = inRow[x] && this.tensor.decode(inRow[x], start / width);
        if (value > most[line + x]) most[line + x] = value;
      }
    }
    return most;
  }
}

/** The places of the `count` largest values, largest first, without those of no weight. */
export function strongest(values: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (!(values[i] > 0) || (best.length === count && values[i] <= values[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && values[best[at - 1]] < values[i]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}

/** The mean of several heads over the same places. */
export function mean(several: Looks[]): Looks {
  const { rows, columns } = several[0];
  const sum = new Float32Array(rows * columns);
  for (const looks of several) {
    for (let t = 0; t < rows; t++) looks.row(t).forEach((value, s) => (sum[t * columns + s] += value / several.length));
  }
  return new Looks(Tensor.made('mean', ['rows', 'columns'], [rows, columns], sum), 0, rows, columns, undefined, several[0].least(0));
}
