// A graph that a model read, drawn: where its nodes are, and what is between them.

import type { Trace } from '../trace/trace';
import type { Grid } from './seen';

export interface Graph {
  places: [number, number][];
  edges: [number, number, string][];
}

/** The graph of a trace, where it is one of a graph. */
export function graphOf(trace: Trace): Graph | null {
  const { places, edges } = trace.about as { places?: [number, number][]; edges?: [number, number, string][] };
  return places?.length && edges ? { places, edges } : null;
}

/** Its nodes as places of a picture of one row: `seen` then says what one looks at. */
export const rowOf = (graph: Graph): Grid => ({ rows: 1, columns: graph.places.length, before: 0, rises: false });

/** The places scaled into a box, with room around them. */
export function inside(graph: Graph, wide: number, tall: number, around: number): [number, number][] {
  const [xs, ys] = [0, 1].map((axis) => graph.places.map((place) => place[axis]));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((wide - 2 * around) / Math.max(right - left, 1e-6), (tall - 2 * around) / Math.max(bottom - top, 1e-6));
  const size = Math.min(scale, 90); // a small graph does not fill the box
  return graph.places.map(([x, y]) => [wide / 2 + (x - (left + right) / 2) * size, tall / 2 + (y - (top + bottom) / 2) * size]);
}

/** The lines of an edge: two for a double bond, three for a triple one. */
export function strokes(from: [number, number], to: [number, number], kind: string): [number, number][][] {
  const count = { double: 2, triple: 3, aromatic: 2 }[kind] ?? 1;
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy) || 1;
  return Array.from({ length: count }, (_, number) => {
    const away = (number - (count - 1) / 2) * 5;
    const [x, y] = [(-dy / length) * away, (dx / length) * away];
    return [[from[0] + x, from[1] + y], [to[0] + x, to[1] + y]];
  });
}
