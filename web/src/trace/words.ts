// Attention over words from attention over tokens: the weight of a word that is looked at is the sum over its tokens,
// that of a word that looks the mean over them. Specials stay what they are.

import { Looks } from './looks';
import { Tensor } from './tensor';
import type { Site } from './trace';

/** Places of a site in groups: `of` has the group of each place, `first` the first place of each group. */
interface Groups {
  names: string[];
  of: number[];
  first: number[];
}

export interface ByWord {
  site: Site;
  rows: Groups;
  columns: Groups;
}

const known = new WeakMap<Site, ByWord | null>();

/** The site over words; null where there are none, or each is one token. */
export function byWord(site: Site): ByWord | null {
  if (!known.has(site)) known.set(site, merged(site));
  return known.get(site)!;
}

function merged(site: Site): ByWord | null {
  const own = site.rows.words;
  const rows = grouped(site.rowNames, own && site.written ? [...own.slice(1), -1] : own, site.rows.spelled);
  const columns = grouped(site.columnNames, site.columns.words, site.columns.spelled);
  if (rows.names.length === site.rowNames.length && columns.names.length === site.columnNames.length) return null;
  const cache = new Map<string, Looks>();
  const places = (groups: Groups, one: number) => groups.of.flatMap((group, place) => (group === one ? [place] : []));
  return {
    rows,
    columns,
    site: {
      ...site,
      rowNames: rows.names,
      columnNames: columns.names,
      looks: (layer, head) => {
        const id = `${layer}.${head}`;
        if (!cache.has(id)) cache.set(id, sums(site.looks(layer, head), rows, columns));
        return cache.get(id)!;
      },
      hidden: (layer, row, column) => {
        const all = places(rows, row).flatMap((t) => places(columns, column).map((s) => site.hidden(layer, t, s)));
        return all.includes(null) ? null : all.every(Boolean);
      },
    },
  };
}

function grouped(names: string[], words: number[] | null, spelled: string[]): Groups {
  const groups: Groups = { names: [], of: [], first: [] };
  names.forEach((name, place) => {
    const word = words?.[place] ?? -1;
    if (word < 0 || place === 0 || word !== words![place - 1]) {
      groups.names.push(word < 0 ? name : (spelled[word] ?? name));
      groups.first.push(place);
    }
    groups.of.push(groups.names.length - 1);
  });
  return groups;
}

function sums(looks: Looks, rows: Groups, columns: Groups): Looks {
  const [tall, wide] = [rows.names.length, columns.names.length];
  const values = new Float32Array(tall * wide);
  const counts = rows.first.map((place, row) => (rows.first[row + 1] ?? rows.of.length) - place);
  rows.of.forEach((row, t) => {
    looks.row(t).forEach((value, s) => (values[row * wide + columns.of[s]] += value / counts[row]));
  });
  return new Looks(Tensor.made('words', ['rows', 'columns'], [tall, wide], values), 0, tall, wide, undefined, looks.least(0));
}
