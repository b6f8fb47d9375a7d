// Where traces come from: the file that the page itself is, or the server that sent it.

import { Trace } from './trace/trace';

export interface Card {
  name: string;
  family: string;
  size: Record<string, number>;
  vocabulary: number;
  context: number | null;
  takes: 'one' | 'pair' | 'target';
}

export interface Asked {
  text: string;
  second?: string | null;
  beam?: number | null;
  layers?: number[] | null;
  heads?: number[] | null;
}

interface Host {
  live: boolean;
  cards: Card[];
  asked: Asked | null;
}

const told = document.getElementById('headway-host')?.textContent;
export const host: Host = told ? JSON.parse(told) : { live: false, cards: [], asked: null };

type FromBase64 = { setFromBase64?: (text: string) => { written: number } };

/** Bytes of base64 that stands in a tag. The browser cuts a long text into many nodes: one after the other is read,
 * never all of it as one string. */
function decoded(tag: Element): Uint8Array {
  const nodes = [...tag.childNodes].map((node) => node as Text);
  const long = nodes.reduce((sum, node) => sum + node.length, 0);
  const bytes = new Uint8Array(Math.ceil((long * 3) / 4));
  let at = 0;
  let carried = '';
  for (const node of nodes) {
    const text = carried + node.data;
    const whole = text.length - (text.length % 4);
    carried = text.slice(whole);
    at += put(bytes.subarray(at), whole === text.length ? text : text.slice(0, whole));
  }
  return bytes.subarray(0, at);
}

function put(bytes: Uint8Array, base64: string): number {
  const quick = bytes as FromBase64;
  if (quick.setFromBase64) return quick.setFromBase64(base64).written;
  const text = atob(base64);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return text.length;
}

/** The traces that lie in the page itself. */
export async function embedded(): Promise<Trace[]> {
  const traces: Trace[] = [];
  for (const tag of document.querySelectorAll('script[type="application/octet-stream"]')) {
    const packed = decoded(tag);
    tag.remove();
    traces.push(new Trace(tag.getAttribute('data-packed') ? await unpacked(packed) : packed));
  }
  return traces;
}

async function unpacked(packed: Uint8Array): Promise<Uint8Array> {
  try {
    const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream('deflate'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Error('this file is broken: it was cut short or changed; write it again');
  }
}

async function post(path: string, body: unknown): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error('the server does not answer: is headway explore still running?');
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    throw new Error(said?.error ?? `the server answered ${answer.status}`);
  }
  return answer;
}

export async function asked(ask: Asked, model: number, more: Record<string, unknown> = {}): Promise<Trace> {
  const answer = await post('api/trace', { ...ask, model, ...more });
  return new Trace(new Uint8Array(await answer.arrayBuffer()));
}

/** The text of these tokens. */
export async function appended(ids: number[], model: number): Promise<{ text: string }> {
  return (await post('api/next', { ids, model })).json();
}
