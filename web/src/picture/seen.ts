// A picture that a model saw, and what a place looks at in it: that glows, the rest lies under a dark veil.

import type { Tensor } from '../trace/tensor';
import type { Site, Trace } from '../trace/trace';

export interface Grid {
  rows: number;
  columns: number;
  before: number; // tokens that are no place of the picture
}

export type Mode = 'head' | 'mean' | 'rollout';

const DARKEST = 0.82;
const BRIGHT = [255, 176, 32]; // over black, brightness alone would not be seen
const GLOW = 0.5;

/** The picture's places, where the trace is one of a picture. */
export function gridOf(trace: Trace): Grid | null {
  const grid = trace.about.grid as [number, number, number] | undefined;
  return grid && trace.tensors.has('pixels') ? { rows: grid[0], columns: grid[1], before: grid[2] } : null;
}

/** Height × width × channels of bytes. */
export function pictureOf(pixels: Tensor): HTMLCanvasElement {
  const [tall, wide, channels] = pixels.shape;
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [wide, tall];
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(wide, tall);
  for (let at = 0; at < tall * wide; at++) {
    for (let colour = 0; colour < 3; colour++) image.data[4 * at + colour] = pixels.raw[channels * at + (channels === 3 ? colour : 0)];
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
  values.forEach((value, at) => {
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
  const rows = mode === 'rollout' ? rolled(site, layer) : mode === 'mean' ? mean(site, layer) : all(site, layer, head);
  const chosen = from >= 0 ? [rows[from]] : rows;
  const result = new Float32Array(grid.rows * grid.columns);
  for (const row of chosen) for (let at = 0; at < result.length; at++) result[at] += row[grid.before + at] / chosen.length;
  return result;
}

function all(site: Site, layer: number, head: number): Float32Array[] {
  const looks = site.looks(layer, head);
  return Array.from({ length: looks.rows }, (_, row) => looks.row(row));
}

function mean(site: Site, layer: number): Float32Array[] {
  const heads = site.heads.map((head) => all(site, layer, head));
  return heads[0].map((row, r) => row.map((_, c) => heads.reduce((sum, one) => sum + one[r][c], 0) / heads.length));
}

const rollouts = new WeakMap<Site, Map<number, Float32Array[]>>();

/** Π ½(A + I) over the layers up to this one, A the mean of a layer's heads: how much of each place is in each vector, if
 *  attention and the residual count the same (Abnar and Zuidema 2020). */
export function rolled(site: Site, layer: number): Float32Array[] {
  const known = rollouts.get(site) ?? new Map<number, Float32Array[]>();
  rollouts.set(site, known);
  const found = known.get(layer);
  if (found) return found;
  const at = site.layers.indexOf(layer);
  const half = mean(site, layer).map((row, r) => row.map((value, c) => (value + Number(r === c)) / 2));
  const below = at > 0 ? rolled(site, site.layers[at - 1]) : null;
  const result = below ? half.map((row) => product(row, below)) : half;
  known.set(layer, result);
  return result;
}

function product(row: Float32Array, matrix: Float32Array[]): Float32Array {
  const result = new Float32Array(row.length);
  row.forEach((share, r) => matrix[r].forEach((value, c) => (result[c] += share * value)));
  return result;
}
