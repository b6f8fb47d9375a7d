// What is being looked at. All of it is in the page's address, so that a link shows the same.

import { type Asked, host } from './host';
import { episodeOf } from './picture/episode';
import { saidIn } from './picture/said';
import { graphOf } from './picture/graph';
import { gridOf, type Mode } from './picture/seen';
import type { Looks } from './trace/looks';
import type { Site, Trace } from './trace/trace';

export const VIEWS = ['episode', 'picture', 'graph', 'sound', 'attention', 'steps', 'next', 'beam', 'positions', 'states', 'compare'] as const;
export type View = (typeof VIEWS)[number];

export const TITLES: Record<View, string> = {
  episode: 'Episode',
  picture: 'Picture',
  graph: 'Graph',
  sound: 'Sound',
  attention: 'Attention',
  steps: 'Step by step',
  next: 'Next token',
  beam: 'Beam',
  positions: 'Positions',
  states: 'States',
  compare: 'Compare',
};

/** What a view shows, in a sentence, and the section of docs/explore.md that says more. */
export const HELP: Record<View, { text: string; section: string }> = {
  episode: { text: 'An episode that the policy played, frame by frame, with the return so far, and where it looks at each step: that glows in its picture; of words and earlier steps, the stronger the colour, the more of the attention. Use the slider or the arrow keys, or play it.', section: 'episode' },
  picture: { text: 'The picture as the model got it. What the chosen place looks at glows, the rest is dark: one head, the mean of a layer, or all layers together (rollout). Click a patch to look from there.', section: 'picture' },
  graph: { text: 'The graph as the model read it. The darker a node, the more of the chosen node’s attention it gets: from one head, the mean of a layer, or all layers together (rollout). Click a node to look from there.', section: 'graph' },
  sound: { text: 'The recording as the model got it, and each word below the time at which it is said. What the chosen word looks at while it is written glows, the rest is dark. Point at a word, or use the arrow keys.', section: 'sound' },
  attention: { text: 'Each row is a place of the text; the stronger the colour of a cell, the more of that place’s attention goes to the column. A row of attention adds up to 1. The small pictures choose a layer and a head.', section: 'attention' },
  steps: { text: 'One head at one place, with the model’s own numbers: from vectors to query, keys and values, to scores, weights and the weighted sum.', section: 'step-by-step' },
  next: { text: 'How likely the model finds each token behind the chosen place, and what temperature, top-k, top-p and min-p leave of that.', section: 'next-token' },
  beam: { text: 'Every partial translation that the beam search held, step by step; below it, where the chosen one looked in the source.', section: 'beam' },
  positions: { text: 'What the model adds to a token for its place in the text, and how much attention goes how far.', section: 'positions' },
  states: { text: 'The vectors inside the model: a row is a place of the text, a column one number (unit) of its vector.', section: 'states' },
  compare: { text: 'Two heads, or two models, on the same text side by side, and the difference of their weights.', section: 'compare' },
};

export interface Side {
  model: number;
  site: string | null;
  layer: number;
  head: number;
}

const LONGEST_LINK = 8000; // letters of a text that a link takes along

class Looking {
  view = $state<View | null>(null); // until there is a trace: its picture, or its attention
  site = $state<string | null>(null);
  heads = $state<string[]>([]); // "layer.head"
  row = $state(-1); // −1: the last place, or the first that is written
  column = $state(-1);
  lines = $state(false);
  words = $state(false); // the tokens of a word as one
  least = $state(0);
  place = $state(-1); // of the next token; −1 is the last
  temperature = $state(1);
  topK = $state(0);
  topP = $state(1);
  minP = $state(0);
  tensor = $state<string | null>(null);
  align = $state('mean');
  sides = $state<Side[]>([]);
  frame = $state(0); // of an episode
  from = $state<number | null>(null); // of a picture: the place that looks; −1 is the mean of all
  mode = $state<Mode>('rollout');
  bare = $state(false); // the picture without its veil
  ask = $state<Asked | null>(host.asked);

  readonly asLink = $derived.by(() => {
    const told = new URLSearchParams();
    const put = (key: string, value: string | number | null | undefined, usual?: string | number) => {
      if (value !== null && value !== undefined && value !== usual) told.set(key, String(value));
    };
    put('view', this.view);
    put('site', this.site);
    put('heads', this.heads.join(' ') || null);
    put('row', this.row, -1);
    put('column', this.column, -1);
    put('lines', this.lines ? 1 : null);
    put('words', this.words ? 1 : null);
    put('least', this.least, 0);
    put('place', this.place, -1);
    put('temperature', this.temperature, 1);
    put('top-k', this.topK, 0);
    put('top-p', this.topP, 1);
    put('min-p', this.minP, 0);
    put('tensor', this.tensor);
    put('frame', this.frame, 0);
    put('from', this.from);
    put('mode', this.mode, 'rollout');
    put('bare', this.bare ? 1 : null);
    put('align', this.align, 'mean');
    put('sides', this.sides.map((s) => [s.model, s.site, s.layer, s.head].join(',')).join(' ') || null);
    if (host.live && this.ask && this.ask.text.length + (this.ask.second?.length ?? 0) <= LONGEST_LINK) {
      put('text', this.ask.text);
      put('second', this.ask.second);
    }
    return `#${told}`;
  });

  follow(hash: string): void {
    const told = new URLSearchParams(hash.replace(/^#/, ''));
    const number = (key: string, usual: number) => {
      const value = Number(told.get(key) ?? usual);
      return Number.isFinite(value) ? value : usual;
    };
    const view = told.get('view') as View;
    if (VIEWS.includes(view)) this.view = view;
    this.site = told.get('site');
    this.heads = (told.get('heads') ?? '').split(' ').filter((name) => /^-?\d+\.\d+$/.test(name));
    this.row = number('row', -1);
    this.column = number('column', -1);
    this.lines = told.get('lines') === '1';
    this.words = told.get('words') === '1';
    this.least = number('least', 0);
    this.place = number('place', -1);
    this.temperature = number('temperature', 1);
    this.topK = number('top-k', 0);
    this.topP = number('top-p', 1);
    this.minP = number('min-p', 0);
    this.tensor = told.get('tensor');
    this.from = told.has('from') ? number('from', 0) : null;
    this.mode = (['head', 'mean', 'rollout'] as const).find((mode) => mode === told.get('mode')) ?? 'rollout';
    this.frame = number('frame', 0);
    this.bare = told.get('bare') === '1';
    this.align = told.get('align') ?? 'mean';
    this.sides = (told.get('sides') ?? '').split(' ').filter(Boolean).map((side) => {
      const [model, site, layer, head] = side.split(',');
      return { model: Number(model), site, layer: Number(layer), head: Number(head) };
    });
    const text = told.get('text');
    if (host.live && text !== null) this.ask = { ...this.ask, text, second: told.get('second') };
  }

  /** Makes every choice one that this trace has. */
  fit(trace: Trace): void {
    this.view ??= episodeOf(trace) ? 'episode' : gridOf(trace) ? 'picture' : graphOf(trace) ? 'graph' : saidIn(trace) ? 'sound' : 'attention';
    const site = trace.site(this.site) ?? trace.firstSite;
    this.site = site?.key ?? null;
    if (!site) return;
    const there = new Set(site.layers.flatMap((layer) => site.heads.map((head) => `${layer}.${head}`)));
    this.heads = this.heads.filter((name) => there.has(name));
    if (!this.heads.length) {
      const watched = this.view === 'episode' ? trace.watched[0] : undefined; // of a policy the last layer: its action follows
      const { layer, head } = watched ? { layer: watched.layers.at(-1)!, head: watched.heads[0] } : trace.firstHead(site);
      this.heads = [`${layer}.${head}`];
    }
    const last = site.rows.labels.length - 1;
    this.row = clamp(this.row < 0 ? (site.written ? 0 : last) : this.row, 0, last);
    this.column = clamp(this.column, -1, site.columns.labels.length - 1);
  }

  /** The layer and head of a view that shows one; where this kind of attention lacks the chosen ones, its last layer. */
  one(site: Site): [number, number] {
    const [layer, head] = (this.heads[0] ?? '0.0').split('.').map(Number);
    return site.layers.includes(layer) && site.heads.includes(head) ? [layer, head] : [site.layers.at(-1) ?? 0, site.heads[0] ?? 0];
  }

  take(mode: Mode, layer: number, head: number): void {
    this.mode = mode;
    this.heads = [`${layer}.${head}`];
  }

  chosen(site: Site): { layer: number; head: number }[] {
    const pairs = this.heads.map((name) => name.split('.').map(Number));
    return pairs
      .map(([layer, head]) => ({ layer, head }))
      .filter(({ layer, head }) => site.layers.includes(layer) && site.heads.includes(head));
  }
}

export const looking = new Looking();

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), Math.max(low, high));
}

/** Numbers as the trace stores them, to four digits that count. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? '∞' : value < 0 ? '−∞' : '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  const text = size >= 1000 ? value.toFixed(0) : size < 0.0001 ? value.toExponential(1) : Number(value.toPrecision(4)).toString();
  return text.replace('-', '−');
}

/** A weight of a softmax is never 0 unless it is masked: where 0 is stored, what it stands for. */
export function shownWeight(value: number, site: Site, layer: number, looks: Looks, row: number, column: number): string {
  const hidden = value === 0 && site.tensor(layer, 'scores') ? site.hidden(layer, row, column) : null;
  if (hidden === null) return shown(value);
  return hidden ? 'masked' : `< ${least(looks.least(row))}`;
}

const least = (value: number) => (value < 1e-4 ? value.toExponential(0).replace('-', '−') : shown(value));

export function headName(layer: number, head: number): string {
  return layer < 0 ? 'the whole model' : `layer ${layer}, head ${head}`;
}

export function modeName(mode: Mode, layer: number, head: number): string {
  return mode === 'head' ? headName(layer, head) : mode === 'mean' ? `layer ${layer}, mean of the heads` : `rollout up to layer ${layer}`;
}
