// A picture that a model saw, and what a place looks at in it: that glows, the rest lies under a dark veil.

import type { Tensor } from '../trace/tensor';
import type { Site, Trace } from '../trace/trace';

export interface Grid {
  rows: number;
  columns: number;
  before: number; // tokens that are no place of the picture
  rises: boolean; // its first row is the lowest: a spectrogram, whose pitch rises
}

export type Mode = 'head' | 'mean' | 'rollout';

const DARKEST = 0.82;
const BRIGHT = [255, 176, 32]; // over black, brightness alone would not be seen
const GLOW = 0.5;

/** The picture's places, where the trace is one of a picture. */
export function gridOf(trace: Trace): Grid | null {
  const grid = trace.about.grid as [number, number, number] | undefined;
  return grid && trace.tensors.has('pixels') ? { rows: grid[0], columns: grid[1], before: grid[2], rises: Boolean(trace.about.rises) } : null;
}

/** Where a row is drawn, counted from the top; and which row is drawn there. */
export const drawn = (row: number, rows: number, rises: boolean): number => (rises ? rows - 1 - row : row);

/** Height × width × channels of bytes. */
export function pictureOf(pixels: Tensor, rises: boolean): HTMLCanvasElement {
  const [tall, wide, channels] = pixels.shape;
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [wide, tall];
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(wide, tall);
  for (let at = 0; at < tall * wide; at++) {
    const from = drawn(Math.floor(at / wide), tall, rises) * wide + (at % wide);
    for (let colour = 0; colour < 3; colour++) image.data[4 * at + colour] = pixels.raw[channels * from + (channels === 3 ? colour : 0)];
    image.data[4 * at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A veil of one pixel a place: dark over small numbers, none in the middle, a glow over large ones. It goes with the root
 *  of a number, as the colours of a matrix do. */
export function veil(values: Float32Array, grid: Grid): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [grid.columns, grid.rows];
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(grid.columns, grid.rows);
  const most = values.reduce((top, value) => Math.max(top, value), 0);
  values.forEach((value, place) => {
    const at = drawn(Math.floor(place / grid.columns), grid.rows, grid.rises) * grid.columns + (place % grid.columns);
    const share = Math.sqrt(most > 0 ? Math.max(value, 0) / most : 0);
    const glow = Math.max(0, 2 * share - 1);
    if (glow > 0) image.data.set(BRIGHT, 4 * at);
    image.data[4 * at + 3] = Math.round(255 * (glow > 0 ? GLOW * glow : DARKEST * (1 - 2 * share)));
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

/** What a place looks at in the picture: one head, the mean of a layer's, or all layers up to this one (rollout). `from`:
 *  the place; −1 is the mean of all. */
export function seen(site: Site, grid: Grid, mode: Mode, layer: number, head: number, from: number): Float32Array {
  const length = site.rows.labels.length;
  let shares: Float32Array = Float32Array.from({ length }, (_, place) => (from < 0 ? 1 / length : Number(place === from)));
  if (mode === 'head') shares = passed(shares, (place) => site.looks(layer, head).row(place));
  else if (mode === 'mean') shares = passed(shares, (place) => means(site, layer)[place]);
  else shares = rolled(site, layer, shares);
  return shares.subarray(grid.before, grid.before + grid.rows * grid.columns);
}

/** Π ½(A + I) over the layers up to this one, A the mean of a layer's heads, of these places: how much of each place is in
 *  their vectors, if attention and the residual count the same (Abnar and Zuidema 2020). From the last layer down, so that
 *  no matrices are multiplied. */
function rolled(site: Site, layer: number, shares: Float32Array): Float32Array {
  for (const below of site.layers.slice(0, site.layers.indexOf(layer) + 1).reverse()) {
    const attended = passed(shares, (place) => means(site, below)[place]);
    shares = shares.map((share, place) => (share + attended[place]) / 2);
  }
  return shares;
}

/** Σ_t share_t · row(t). */
function passed(shares: Float32Array, row: (place: number) => Float32Array): Float32Array {
  const result = new Float32Array(shares.length);
  shares.forEach((share, place) => {
    if (share) row(place).forEach((value, to) => (result[to] += share * value));
  });
  return result;
}

const known = new WeakMap<Site, Map<number, Float32Array[]>>();

/** The mean of a layer's heads: a row for each place. */
function means(site: Site, layer: number): Float32Array[] {
  const layers = known.get(site) ?? new Map<number, Float32Array[]>();
  known.set(site, layers);
  const found = layers.get(layer) ?? site.rows.labels.map((_, place) => mean(site, layer, place));
  layers.set(layer, found);
  return found;
}

function mean(site: Site, layer: number, place: number): Float32Array {
  const rows = site.heads.map((head) => site.looks(layer, head).row(place));
  return rows[0].map((_, to) => rows.reduce((sum, row) => sum + row[to], 0) / rows.length);
}
