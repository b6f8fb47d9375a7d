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
  labelled: boolean;
  letters: Letters;
}

const [LARGEST, FEW] = [30, 12]; // of a cell; of few places it may be larger
const LEGIBLE = 13; // pixels that a label needs
const LONGEST = 110;
const LEGEND = 40;

/** As large as there is room for; places are named where their names can be read. */
export function frame(rows: string[], columns: string[], room: number, least = 140): Frame {
  const most = Math.max(rows.length, columns.length, 1);
  const letters = { size: 12, width: LONGEST };
  const labelled = room / most >= LEGIBLE || most <= 40;
  const left = labelled ? Math.max(30, ...rows.map((label) => long(cut(label, letters), letters))) + 12 : 10;
  const top = labelled ? Math.max(30, ...columns.map((label) => long(cut(label, letters), letters))) * 0.8 + 16 : 10;
  const space = Math.max(room - left - 12, least);
  const cell = Math.max(labelled ? LEGIBLE : 0, Math.min(most <= FEW ? 1.5 * LARGEST : LARGEST, space / columns.length, labelled ? Infinity : space / most));
  const [wide, tall] = [cell * columns.length, cell * rows.length];
  const overhang = labelled ? 40 : 12;
  return {
    left, top, wide, tall, letters, labelled, rows: rows.length, columns: columns.length,
    width: Math.ceil(Math.max(left + wide + overhang, 230)), height: Math.ceil(top + tall + LEGEND),
  };
}

export function cellAt(f: Frame, x: number, y: number): [number, number] | null {
  const row = Math.floor(((y - f.top) * f.rows) / f.tall);
  const column = Math.floor(((x - f.left) * f.columns) / f.wide);
  return row >= 0 && row < f.rows && column >= 0 && column < f.columns ? [row, column] : null;
}

export interface Marks {
  row: number;
  column: number;
}

export function drawMatrix(
  pen: Pen, f: Frame, values: Float32Array, tall: number, wide: number, shades: Shades, theme: Theme,
  rows: string[], columns: string[], marks: Marks | null,
): void {
  pen.rect(f.left, f.top, f.wide, f.tall, css(shades, Math.max(0, shades.low)));
  pen.cells(values, tall, wide, shades, f.left, f.top, f.wide, f.tall);
  const [high, across] = [f.tall / f.rows, f.wide / f.columns];
  if (f.labelled && across >= 8) {
    for (let c = 1; c < f.columns; c++) pen.line([[f.left + c * across, f.top], [f.left + c * across, f.top + f.tall]], theme.paper, 1);
    for (let r = 1; r < f.rows; r++) pen.line([[f.left, f.top + r * high], [f.left + f.wide, f.top + r * high]], theme.paper, 1);
  }
  if (f.labelled) {
    rows.forEach((label, r) => {
      const mine = marks?.row === r;
      pen.text(label, f.left - 7, f.top + (r + 0.5) * high, mine ? theme.accent : theme.ink, { ...f.letters, anchor: 'right', strong: mine });
    });
    columns.forEach((label, c) => {
      const mine = marks?.column === c;
      pen.text(label, f.left + (c + 0.5) * across, f.top - 7, mine ? theme.accent : theme.ink, { ...f.letters, turn: -52, strong: mine });
    });
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
