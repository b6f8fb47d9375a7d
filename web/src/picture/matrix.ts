// The layout of a matrix with its places beside it and above it.

import type { Theme, Shades } from './colour';
import { css } from './colour';
import { cut, long, type Letters, type Pen } from './pen';
import { shown } from '../state.svelte';

export interface Frame {
  left: number;
  top: number;
  wide: number;
  tall: number;
  width: number;
  height: number;
  rows: number;
  columns: number;
  each: [number, number]; // every n-th row and column has its name
  letters: Letters;
}

const [LARGEST, FEW] = [30, 12]; // of a cell; of few places it may be larger
const LEGIBLE = 13; // pixels that a label needs
const TURNED = 18; // one that is turned, beside others that are left out
const LONGEST = 140;
const LEGEND = 40;
const TURN = -52; // degrees of a column's name
const LEAN = 1 / Math.tan((-TURN * Math.PI) / 180);
const ACROSS = Math.cos((TURN * Math.PI) / 180);
const RISE = -Math.sin((TURN * Math.PI) / 180);
const NARROWEST = 140;
const MANY = 40; // places; so many scroll rather than lose their names
const UNLIKE = 3;

const every = (cell: number, needed: number) => (cell > LEGIBLE - 0.01 ? 1 : Math.ceil(needed / cell));

/** As large as there is room for; of many places every n-th is named, so that names can be read. `small`: cells may be
 * smaller than letters also where places are few. */
export function frame(rows: string[], columns: string[], room: number, small = false): Frame {
  const most = Math.max(rows.length, columns.length, 1);
  const letters = { size: 12, width: LONGEST };
  const strong = { ...letters, strong: true }; // the chosen one is bold, and wider
  const isLarge = most <= MANY ? !small : room / most >= LEGIBLE;
  const longest = (labels: string[]) => {
    const n = isLarge ? 1 : Math.ceil((LEGIBLE * labels.length) / room);
    return Math.max(30, ...labels.filter((_, i) => i % n === 0).map((label) => long(cut(label, letters), strong)));
  };
  const [left, top] = [longest(rows) + 12, longest(columns) * RISE + 16];
  const last = columns.map((label, c) => long(cut(label, letters), strong) * ACROSS - (columns.length - 1 - c) * LEGIBLE);
  const overhang = Math.max(12, ...last);
  const space = Math.max(room - left - overhang, NARROWEST);
  const largest = most <= FEW ? 1.5 * LARGEST : LARGEST;
  let [high, across] = [Math.min(largest, space / rows.length), Math.min(largest, space / columns.length)];
  if (isLarge) high = across = Math.max(LEGIBLE, across);
  // Cells are square, but where the sides are very unlike the short one would be hard to see.
  else if (Math.max(high, across) < UNLIKE * Math.min(high, across)) high = across = Math.min(high, across);
  const [wide, tall] = [across * columns.length, high * rows.length];
  return {
    left, top, wide, tall, letters, each: [every(high, LEGIBLE), every(across, TURNED)],
    rows: rows.length, columns: columns.length,
    width: Math.ceil(Math.max(left + wide + overhang, 230)), height: Math.ceil(top + tall + LEGEND),
  };
}

export function cellAt(f: Frame, x: number, y: number): [number, number] | null {
  const row = Math.floor(((y - f.top) * f.rows) / f.tall);
  const column = Math.floor(((x - f.left) * f.columns) / f.wide);
  return row >= 0 && row < f.rows && column >= 0 && column < f.columns ? [row, column] : null;
}

/** The whole name of the row or column whose label is there: it may be cut. */
export function nameAt(f: Frame, rows: string[], columns: string[], x: number, y: number): string {
  const row = Math.floor(((y - f.top) * f.rows) / f.tall);
  if (x < f.left && row >= 0) return rows[row] ?? '';
  // A label above leans to the right.
  const column = Math.floor(((x - f.left - Math.max(0, f.top - 7 - y) * LEAN) * f.columns) / f.wide);
  return y < f.top && column >= 0 ? (columns[column] ?? '') : '';
}

export interface Marks {
  row: number;
  column: number;
}

/** Every n-th place, and the chosen one in place of those that it would cover. */
function named(count: number, n: number, chosen: number): number[] {
  const result = chosen >= 0 && chosen < count ? [chosen] : [];
  for (let i = 0; i < count; i += n) if (chosen < 0 || Math.abs(i - chosen) >= n) result.push(i);
  return result;
}

export function drawMatrix(
  pen: Pen, f: Frame, values: Float32Array, tall: number, wide: number, shades: Shades, theme: Theme,
  rows: string[], columns: string[], marks: Marks | null,
): void {
  pen.rect(f.left, f.top, f.wide, f.tall, css(shades, Math.max(0, shades.low)));
  pen.cells(values, tall, wide, shades, f.left, f.top, f.wide, f.tall);
  const [high, across] = [f.tall / f.rows, f.wide / f.columns];
  if (Math.min(high, across) >= 8) {
    for (let c = 1; c < f.columns; c++) pen.line([[f.left + c * across, f.top], [f.left + c * across, f.top + f.tall]], theme.paper, 1);
    for (let r = 1; r < f.rows; r++) pen.line([[f.left, f.top + r * high], [f.left + f.wide, f.top + r * high]], theme.paper, 1);
  }
  for (const r of named(f.rows, f.each[0], marks?.row ?? -1)) {
    const mine = marks?.row === r;
    pen.text(rows[r], f.left - 7, f.top + (r + 0.5) * high, mine ? theme.accent : theme.ink, { ...f.letters, anchor: 'right', strong: mine });
  }
  for (const c of named(f.columns, f.each[1], marks?.column ?? -1)) {
    const mine = marks?.column === c;
    pen.text(columns[c], f.left + (c + 0.5) * across, f.top - 7, mine ? theme.accent : theme.ink, { ...f.letters, turn: TURN, strong: mine });
  }
  if (marks) {
    if (marks.row >= 0) pen.rect(f.left, f.top + marks.row * high, f.wide, Math.max(high, 1), null, theme.accent, 1.5);
    if (marks.column >= 0) pen.rect(f.left + marks.column * across, f.top, Math.max(across, 1), f.tall, null, theme.accent, 1.5);
  }
  drawLegend(pen, shades, theme, f.left, f.top + f.tall + 12, Math.min(200, Math.max(120, f.wide)));
}

/** What the colours mean. */
export function drawLegend(pen: Pen, shades: Shades, theme: Theme, x: number, y: number, wide: number): void {
  const steps = 100;
  for (let i = 0; i < steps; i++) {
    const [r, g, b] = shades.table.subarray(Math.round((i * 255) / (steps - 1)) * 4);
    pen.rect(x + (i * wide) / steps, y, wide / steps + 0.5, 7, `rgb(${r},${g},${b})`);
  }
  for (const tick of shades.ticks) {
    const at = x + (wide * shades.at(tick)) / 255;
    const anchor = at > x + wide - 8 ? 'right' : tick === shades.low ? 'left' : 'center';
    const sign = !shades.clipped || tick === 0 ? '' : tick < 0 ? '≤ ' : '≥ ';
    pen.text(sign + shown(Number(tick.toPrecision(2))), at, y + 17, theme.quiet, { size: 10.5, anchor });
  }
}
