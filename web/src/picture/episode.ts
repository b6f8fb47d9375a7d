// An episode that a policy played: some of its frames, what it got, and where it looked at each.

import type { Site, Trace } from '../trace/trace';
import { pictureOf } from './seen';

export interface Episode {
  asked: string;
  steps: number[]; // of each frame; the last frame is the end, where nothing is done any more
  every: number;
  rewards: number[]; // of every step
  actions: string[]; // of each frame
  at: number; // the step that the other views are of
  succeeded: boolean | null;
  tokens: string[]; // of a step
  wanted: number | null;
}

/** The episode of a trace, where it is one of a policy. */
export const episodeOf = (trace: Trace): Episode | null => (trace.about.episode as Episode | undefined) ?? null;

/** The sum of the rewards up to each step, its own included. */
export function returnsOf(episode: Episode): number[] {
  let sum = 0;
  return episode.rewards.map((reward) => (sum += reward));
}

/** A frame as a picture; null where the world draws none. */
export function frameOf(trace: Trace, number: number): HTMLCanvasElement | null {
  const frames = trace.tensors.get('frames');
  return frames ? pictureOf(frames.one(number), false) : null;
}

/** A picture that a camera took, enlarged without steps; what a policy sees itself keeps its pixels. */
export function smooth(picture: HTMLCanvasElement, width: number): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [Math.round(width), Math.round((width * picture.height) / picture.width)];
  canvas.getContext('2d')!.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Where the policy looks at a frame: one head, or the mean of a layer's. */
export function lookedAt(site: Site, frame: number, mode: 'head' | 'mean', layer: number, head: number): Float32Array {
  const rows = (mode === 'head' ? [head] : site.heads).map((one) => site.looks(layer, one).row(frame));
  return rows[0].map((_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
}

/** How the places that are looked at lie: a line for each token of a step, a column for each step; others in one line. */
export function linesOf(site: Site, episode: Episode): { lines: string[]; columns: string[] } {
  const { kind, labels } = site.columns;
  if (kind !== 'steps') return { lines: [''], columns: labels };
  const { tokens } = episode;
  return { lines: tokens, columns: labels.filter((_, place) => place % tokens.length === 0).map((label) => label.split(' ').at(-1)!) };
}
