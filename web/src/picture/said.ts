// A recording that was transcribed: when each word is said, where it looked, and where it is written below its time.

import type { Site, Trace } from '../trace/trace';

export interface Said {
  text: string;
  start: number; // seconds
  end: number;
  places: number[]; // of its tokens, along the target
}

export interface Recording {
  seconds: number;
  words: Said[];
  site: Site; // words that look at moments
}

/** What a recording says, where the trace is one of a recording. */
export function saidIn(trace: Trace): Recording | null {
  const said = trace.about.said as { seconds: number; words: [string, number, number, number[]][] } | undefined;
  const site = trace.sites.find(({ rows, columns }) => columns.kind === 'moments' && rows !== columns);
  if (!said || !site || !trace.tensors.has('pixels')) return null;
  return { seconds: said.seconds, site, words: said.words.map(([text, start, end, places]) => ({ text, start, end, places })) };
}

/** The mean of what these heads look at while the tokens of a word are written: each from the place before it. */
export function attended(site: Site, word: Said, layer: number, heads: number[]): Float32Array {
  const rows = heads.flatMap((head) => word.places.map((place) => site.looks(layer, head).row(place - 1)));
  return rows[0].map((_, to) => rows.reduce((sum, row) => sum + row[to], 0) / rows.length);
}

/** Texts of these widths at these places, in the first line that has room; none leaves the picture on the right. */
export function lanes(starts: number[], widths: number[], wide: number): { line: number; left: number; width: number }[] {
  const ends: number[] = [];
  return starts.map((start, number) => {
    const width = widths[number];
    const left = Math.max(0, Math.min(start, wide - width));
    let line = ends.findIndex((end) => end <= left);
    if (line < 0) line = ends.length;
    ends[line] = left + width;
    return { line, left, width };
  });
}
