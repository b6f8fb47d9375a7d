// A trace: tracks of places, tensors along them, and what is told about the model. The file is safetensors with JSON in
// its header (docs/trace.md).

import { Looks } from './looks';
import { Tensor } from './tensor';

export interface Track {
  name: string;
  kind: string;
  labels: string[];
  ids: number[];
  words: number[] | null;
  spelled: string[];
  specials: number[];
  spans: [number, number][] | null;
  text: string | null;
}

export interface Nexts {
  ids: number[][];
  labels: string[][];
  logp: number[][];
  taken: (number | null)[];
}

export interface Node {
  parent: number;
  step: number;
  id: number;
  token: string;
  logp: number;
  score: number;
  kept: boolean;
  finished: boolean;
  chosen: boolean;
}

export interface Beam {
  size: number;
  length_penalty: number;
  nodes: Node[];
}

export interface About {
  family?: string;
  model?: string;
  size?: Record<string, number>;
  heads?: number[] | null;
  next?: Nexts;
  beam?: Beam;
  names?: Record<string, string>;
  told?: string[];
  first?: Record<string, [number, number]>; // of each kind of attention the layer and head that tell most
  [key: string]: unknown;
}

/** Layers of one kind of looking: `decoder.3.cross.weights` for 3 = 0 … n. A layer of −1 has no number. */
export interface Site {
  key: string;
  title: string;
  layers: number[];
  heads: number[];
  looks: (layer: number, head: number) => Looks;
  tensor: (layer: number, name: string) => Tensor | undefined;
  rows: Track;
  columns: Track;
  rowNames: string[]; // what a reader sees: of a target that is written, the word behind each place
  columnNames: string[];
  written: boolean;
  hidden: (layer: number, row: number, column: number) => boolean | null; // by the mask; null: the trace has none
}

const FORMAT = 1;
const LAYERED = /^(.+?)\.(\d+)\.(.+)$/;

const TITLES: Record<string, string> = {
  'encoder.attention': 'Encoder',
  'decoder.attention': 'Decoder',
  'look.attention': 'Seen → seen',
  'look.cross': 'Seen → words',
  'decoder.cross': 'Cross',
  saliency: 'Saliency',
};

export class Trace {
  readonly tracks = new Map<string, Track>();
  readonly tensors = new Map<string, Tensor>();
  readonly about: About;
  readonly precision: string;
  readonly sites: Site[];
  readonly watched: Site[]; // where a policy looks at each frame of an episode

  constructor(readonly bytes: Uint8Array) {
    const broken = new Error('this trace is broken: it was cut short or changed, or is no trace');
    if (bytes.byteLength < 8) throw broken;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const long = Number(view.getBigUint64(0, true));
    if (long > bytes.byteLength - 8) throw broken;
    const entries = parsed(bytes.subarray(8, 8 + long), broken);
    const told = entries.__metadata__?.['headway.trace'];
    if (!told) throw new Error('this file is no trace: it has no header of headway');
    const header = JSON.parse(told);
    if (!(header.format <= FORMAT)) {
      throw new Error(`this trace has format ${header.format}, this page reads up to ${FORMAT}: upgrade headway`);
    }
    for (const track of header.tracks) this.tracks.set(track.name, track);
    for (const name of Object.keys(header.axes)) {
      const { dtype, shape, data_offsets: at } = entries[name];
      const own = bytes.subarray(8 + long + at[0], 8 + long + at[1]);
      const scale = header.scales?.[name] ?? null;
      const rows = typeof scale === 'string' ? entries[scale] : null;
      const scales = rows && floats(bytes.subarray(8 + long + rows.data_offsets[0], 8 + long + rows.data_offsets[1]));
      this.tensors.set(name, Tensor.of(name, header.axes[name], dtype, shape, own, scales ?? scale));
    }
    this.about = header.about ?? {};
    this.precision = header.precision;
    const found = this.foundSites();
    this.sites = found.filter((site) => site.rows.kind !== 'frames');
    this.watched = found.filter((site) => site.rows.kind === 'frames');
  }

  site(key: string | null): Site | undefined {
    return this.sites.find((site) => site.key === key);
  }

  /** The one to begin with: where a translator looks at its source, else the only one. */
  get firstSite(): Site | undefined {
    return this.sites.findLast((site) => site.key !== 'saliency') ?? this.sites[0];
  }

  /** The head to begin with: the one that tells most, where that was measured. */
  firstHead(site: Site): { layer: number; head: number } {
    const [layer, head] = this.about.first?.[site.key] ?? [NaN, NaN];
    const isThere = site.layers.includes(layer) && site.heads.includes(head);
    return isThere ? { layer, head } : { layer: site.layers.at(-1)!, head: site.heads[0] };
  }

  /** The vectors that this layer reads along a track: the embeddings, or what the layer below it gave. */
  vectors(site: Site, layer: number, track: Track): Tensor | undefined {
    const [stack] = site.key.split('.');
    const fits = (tensor: Tensor | undefined) => tensor?.axes[0] === track.name && tensor.axes[1] === 'unit';
    if (track !== site.rows) return [...this.tensors.values()].findLast((one) => /^[^.]+\.hidden$/.test(one.name) && fits(one));
    const below = this.tensors.get(`${stack}.${layer - 1}.hidden`);
    if (layer > 0) return fits(below) ? below : undefined;
    return [...this.tensors.values()].find((one) => /^embed[^.]*\.hidden$/.test(one.name) && fits(one));
  }

  /** The numbers of the heads that were kept. */
  private heads(count: number): number[] {
    const kept = this.about.heads;
    return kept && kept.length === count ? kept : Array.from({ length: count }, (_, head) => head);
  }

  /** All that says of each place of one track how much it has to do with each of another. */
  private foundSites(): Site[] {
    const found = new Map<string, Map<number, Tensor>>();
    for (const tensor of this.tensors.values()) {
      const hit = LAYERED.exec(tensor.name);
      const tracks = tensor.axes.filter((axis) => this.tracks.has(axis)).length;
      const isSparse = tensor.axes.at(-1) === 'kept' && this.tensors.has(sparsePlaces(tensor.name));
      if (tensor.axes.length < 2 || (tracks !== 2 && !isSparse)) continue;
      if (hit && !hit[3].endsWith('.weights')) continue;
      const key = hit ? `${hit[1]}.${hit[3].slice(0, -'.weights'.length)}` : tensor.name;
      if (!found.has(key)) found.set(key, new Map());
      found.get(key)!.set(hit ? Number(hit[2]) : -1, tensor);
    }
    return [...found].map(([key, layers]) => this.makeSite(key, layers));
  }

  private makeSite(key: string, layers: Map<number, Tensor>): Site {
    const tensors = [...layers.values()];
    const heads = Math.max(...tensors.map((tensor) => (tensor.axes[0] === 'head' ? tensor.shape[0] : 1)));
    const numbers = this.heads(heads);
    const first = tensors[0];
    const named = first.axes.filter((axis) => this.tracks.has(axis));
    const rows = this.tracks.get(named[0])!;
    const columns = this.columnsOf(first, rows);
    // Who looks from a translator's target writes the word behind that place.
    const written = rows.name === 'target' && columns.name !== rows.name;
    const [stack, ...rest] = key.split('.');
    const cache = new Map<string, Looks>();
    return {
      key,
      title: TITLES[key] ?? capital(`${stack} ${rest.join(' ')}`.trim()),
      layers: [...layers.keys()].sort((a, b) => a - b),
      heads: numbers,
      rows,
      columns,
      rowNames: written ? [...rows.labels.slice(1), '(end)'] : rows.labels,
      columnNames: columns.labels,
      written,
      tensor: (layer, name) => this.tensors.get(layer < 0 ? name : `${stack}.${layer}.${rest.join('.')}.${name}`),
      hidden: (layer, row, column) => {
        const mask = layer < 0 ? undefined : this.tensors.get(`${stack}.${layer}.${rest.join('.')}.mask`);
        return mask ? mask.at(mask.start(row, column)) === 0 : null;
      },
      looks: (layer, head) => {
        const id = `${layer}.${head}`;
        if (!cache.has(id)) {
          const tensor = layers.get(layer)!;
          const places = this.tensors.get(sparsePlaces(tensor.name));
          cache.set(id, new Looks(tensor, Math.max(0, numbers.indexOf(head)), rows.labels.length,
            columns.labels.length, places));
        }
        return cache.get(id)!;
      },
    };
  }

  /** The track that is looked at: the second one of the axes; of the strongest weights alone, what `looked_at` says. */
  private columnsOf(tensor: Tensor, rows: Track): Track {
    const named = tensor.axes.filter((axis) => this.tracks.has(axis));
    if (named.length > 1) return this.tracks.get(named[1])!;
    const told = (this.about.looked_at as Record<string, string> | undefined)?.[tensor.name];
    return (told && this.tracks.get(told)) || rows;
  }
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** The name of the places of the strongest weights; of anything else nothing has that name. */
export function sparsePlaces(name: string): string {
  return name.endsWith('weights') ? name.replace(/weights$/, 'places') : '';
}

function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.slice().buffer);
}

function parsed(bytes: Uint8Array, broken: Error): Record<string, any> {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw broken;
  }
}
