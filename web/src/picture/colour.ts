// Colours that the colour-blind can tell apart: one hue from light to dark, or two that meet in the middle.

import { interpolateRgbBasis } from 'd3-interpolate';
import { scaleLinear, scalePow } from 'd3-scale';

export interface Theme {
  isDark: boolean;
  paper: string;
  ink: string;
  quiet: string;
  hairline: string;
  accent: string;
}

export const THEMES: Record<'light' | 'dark', Theme> = {
  light: { isDark: false, paper: '#ffffff', ink: '#22303c', quiet: '#5c6a77', hairline: '#d5dde4', accent: '#a8490a' },
  dark: { isDark: true, paper: '#14191f', ink: '#e3e9ee', quiet: '#9aa8b5', hairline: '#323d48', accent: '#f2995c' },
};

const ONE_HUE = {
  light: ['#f3f6f9', '#d6e4ef', '#a3c5dd', '#649cc4', '#2f6fa3', '#123a63'],
  dark: ['#1b222a', '#1e3a55', '#2a608f', '#4f92c4', '#9cc8e6', '#eef7fd'],
};
const TWO_HUES = {
  light: ['#8a3b00', '#e08a45', '#f8dcc3', '#f7f7f5', '#c8dcec', '#5592c0', '#123a63'],
  dark: ['#ffc490', '#c5702c', '#5c3a20', '#1b222a', '#22445f', '#4f92c4', '#d9eefb'],
};

/** For up to eight heads drawn over each other (after Okabe and Ito). */
export const HEADS = {
  light: ['#0072b2', '#d55e00', '#007d5a', '#a6508b', '#8a6d00', '#3b7fa8', '#6b4ea0', '#555555', '#c2185b', '#5d8a1f', '#7b5141', '#00838f'],
  dark: ['#56b4e9', '#f28e4b', '#2fc49a', '#e08fc4', '#e6c84b', '#9ad0f0', '#b39ddb', '#c0c0c0', '#ff8aa8', '#a5cf6c', '#c8ada2', '#4dd0e1'],
};

type Table = Uint8ClampedArray;
const tables = new Map<string, Table>();

function table(stops: string[]): Table {
  const key = stops.join();
  if (!tables.has(key)) {
    const mix = interpolateRgbBasis(stops);
    const bytes = new Uint8ClampedArray(256 * 4);
    for (let i = 0; i < 256; i++) {
      const [r, g, b] = mix(i / 255).match(/\d+/g)!.map(Number);
      bytes.set([r, g, b, 255], i * 4);
    }
    tables.set(key, bytes);
  }
  return tables.get(key)!;
}

const side = (theme: Theme) => (theme.isDark ? 'dark' : 'light');

/** From a number to one of 256 colours. */
export interface Shades {
  table: Table;
  low: number;
  high: number;
  at: (value: number) => number;
  ticks: number[];
  clipped?: boolean; // what is larger has the last colour
}

/** For what is never negative. By its root: of a long text most weights are small. */
export function weightShades(theme: Theme, high: number): Shades {
  const scale = scalePow().exponent(0.5).domain([0, high || 1]).range([0, 255]).clamp(true);
  const ticks = [0, 0.05, 0.25, 1].map((share) => share * (high || 1));
  return { table: table(ONE_HUE[side(theme)]), low: 0, high: high || 1, at: scale, ticks };
}

/** For numbers of both signs: zero is the paper. */
export function signedShades(theme: Theme, most: number, clipped = false): Shades {
  const scale = scaleLinear().domain([-(most || 1), most || 1]).range([0, 255]).clamp(true);
  const ticks = [-(most || 1), 0, most || 1];
  return { table: table(TWO_HUES[side(theme)]), low: -(most || 1), high: most || 1, at: scale, ticks, clipped };
}

/** For shares between 0 and 1. */
export function shareShades(theme: Theme): Shades {
  const scale = scaleLinear().domain([0, 1]).range([0, 255]).clamp(true);
  return { table: table(ONE_HUE[side(theme)]), low: 0, high: 1, at: scale, ticks: [0, 0.5, 1] };
}

export function css(shades: Shades, value: number): string {
  const at = Math.round(shades.at(value)) * 4;
  return `rgb(${shades.table[at]},${shades.table[at + 1]},${shades.table[at + 2]})`;
}

/** Dark ink on light cells and light ink on dark ones. */
export function inkOn(shades: Shades, value: number): string {
  const at = Math.round(shades.at(value)) * 4;
  const [r, g, b] = shades.table.subarray(at, at + 3);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? '#16202a' : '#ffffff';
}
