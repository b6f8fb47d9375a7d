// The steps of one place in one head, from the numbers of the trace.
//
//   softmax(q · kᵀ / √d + bias, where visible) · v      (Vaswani et al. 2017, eq. 1)

import type { Site } from './trace';

export interface Steps {
  size: number; // d
  query: Float32Array;
  keys: Float32Array[];
  values: Float32Array[];
  products: Float32Array; // q · k, computed here
  scores: Float32Array; // of the trace: divided, with the bias of a position
  divisor: number;
  bias: Float32Array | null;
  visible: boolean[];
  weights: Float32Array;
  sum: Float32Array; // of the trace: what the head gives
  joined: { head: number; mixed: Float32Array }[];
  output: Float32Array | null;
}

const CLOSE = 0.02;

/** All steps, or null where the trace has no queries, keys and values. */
export function steps(site: Site, layer: number, head: number, row: number): Steps | null {
  const [queries, keys, values, scored, mixed] = ['queries', 'keys', 'values', 'scores', 'mixed'].map((name) => site.tensor(layer, name));
  if (!queries || !keys || !values || !scored || !mixed) return null;
  const at = site.heads.indexOf(head);
  const size = queries.shape[2];
  const places = site.columns.labels.length;
  const query = queries.floats(queries.start(at, row), size);
  const all = (tensor: typeof keys) => Array.from({ length: places }, (_, s) => tensor.floats(tensor.start(at, s), size));
  const keyRows = all(keys);
  const products = Float32Array.from(keyRows, (key) => key.reduce((sum, value, i) => sum + value * query[i], 0));
  const scores = scored.floats(scored.start(at, row), places);
  const mask = site.tensor(layer, 'mask');
  const visible = Array.from({ length: places }, (_, s) => (mask ? mask.at(mask.start(row, s)) > 0 : true));
  const divisor = divided(products, scores, size);
  const bias = scores.map((score, s) => score - products[s] / divisor);
  const rough = Math.max(...scores.map(Math.abs), 1) * CLOSE;
  const output = site.tensor(layer, 'output');
  return {
    size, query, keys: keyRows, values: all(values), products, scores, divisor,
    bias: bias.some((value) => Math.abs(value) > rough) ? bias : null,
    visible,
    weights: site.looks(layer, head).row(row),
    sum: mixed.floats(mixed.start(at, row), size),
    joined: site.heads.map((number, h) => ({ head: number, mixed: mixed.floats(mixed.start(h, row), size) })),
    output: output ? output.floats(output.start(row), output.shape[1]) : null,
  };
}

/** √d, or 1 in a model that does not divide: by the slope of the scores over the products. */
function divided(products: Float32Array, scores: Float32Array, size: number): number {
  const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [p, s] = [mean(products), mean(scores)];
  let both = 0;
  let own = 0;
  products.forEach((product, i) => {
    both += (product - p) * (scores[i] - s);
    own += (product - p) ** 2;
  });
  const root = Math.sqrt(size);
  const slope = own ? both / own : 1 / root;
  return Math.abs(slope - 1) < Math.abs(slope - 1 / root) ? 1 : root;
}
