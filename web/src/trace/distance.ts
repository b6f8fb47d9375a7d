// What distance does: how alike positions are, and how far heads look.

import type { Looks } from './looks';

const FARTHEST = 256;
const PAIRS = 3; // a mean of fewer says nothing

/** Cosines of all pairs of rows, and their mean by distance. */
export function similarity(values: Float32Array, rows: number, width: number): { matrix: Float32Array; byDistance: [number, number][] } {
  const lengths = Float64Array.from({ length: rows }, (_, r) => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += values[r * width + i] ** 2;
    return Math.sqrt(sum) || 1;
  });
  const matrix = new Float32Array(rows * rows);
  const sums = new Float64Array(rows);
  for (let a = 0; a < rows; a++) {
    for (let b = a; b < rows; b++) {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += values[a * width + i] * values[b * width + i];
      matrix[a * rows + b] = matrix[b * rows + a] = sum / (lengths[a] * lengths[b]);
      sums[b - a] += matrix[a * rows + b];
    }
  }
  return { matrix, byDistance: Array.from(sums, (sum, far) => [far, sum / (rows - far)]) };
}

/** The mean weight by where the place that is looked at stands: −1 is the one before. */
export function byDistance(looks: Looks): [number, number][] {
  const n = looks.rows;
  const sums = new Float64Array(2 * n - 1);
  for (let t = 0; t < n; t++) looks.row(t).forEach((value, s) => (sums[s - t + n - 1] += value));
  const all = Array.from(sums, (sum, i): [number, number] => [i - n + 1, sum / (n - Math.abs(i - n + 1))]);
  const seen = all.filter(([far, value]) => Math.abs(far) <= FARTHEST && (far <= 0 || value > 0) && n - Math.abs(far) >= PAIRS);
  return seen.length > 1 ? seen : all;
}
