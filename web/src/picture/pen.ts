// A picture is a function of a pen. One pen draws on a canvas, the other writes SVG: what is saved is what is shown.

import type { Shades } from './colour';

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";

export interface Letters {
  size?: number;
  anchor?: 'left' | 'center' | 'right';
  turn?: number; // degrees
  strong?: boolean;
  width?: number; // longer text is cut
}

export interface Pen {
  rect(x: number, y: number, w: number, h: number, fill: string | null, stroke?: string | null, line?: number): void;
  line(points: [number, number][], stroke: string, width?: number, opacity?: number): void;
  curve(x0: number, y0: number, x1: number, y1: number, stroke: string, width?: number, opacity?: number): void;
  dot(x: number, y: number, radius: number, fill: string, stroke?: string): void;
  text(text: string, x: number, y: number, fill: string, letters?: Letters): void;
  cells(values: Float32Array, tall: number, wide: number, shades: Shades, x: number, y: number, w: number, h: number): void;
  image(picture: HTMLCanvasElement, x: number, y: number, w: number, h: number): void;
}

const SPREAD = 0.5; // how far a curve runs level, as a share of its way

const measure = document.createElement('canvas').getContext('2d')!;
const lengths = new Map<string, number>();

export function font(letters: Letters): string {
  return `${letters.strong ? '600 ' : ''}${letters.size ?? 12}px ${FONT}`;
}

export function long(text: string, letters: Letters = {}): number {
  const key = `${font(letters)}|${text}`;
  let width = lengths.get(key);
  if (width === undefined) {
    if (lengths.size > 20000) lengths.clear();
    measure.font = font(letters);
    width = measure.measureText(text).width;
    lengths.set(key, width);
  }
  return width;
}

/** As much of a text as there is room for; never half of a letter with its marks. */
export function cut(text: string, letters: Letters): string {
  if (!letters.width || long(text, letters) <= letters.width) return text;
  const parts = [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(text)].map((s) => s.segment);
  while (parts.length > 1 && long(`${parts.join('')}…`, letters) > letters.width) parts.pop();
  return `${parts.join('')}…`;
}

const bitmaps = new WeakMap<Float32Array, { shades: Shades['table']; high: number; low: number; canvas: HTMLCanvasElement }>();

/** A picture of one pixel a number, kept as long as its numbers are. */
export function bitmap(values: Float32Array, tall: number, wide: number, shades: Shades): HTMLCanvasElement {
  const known = bitmaps.get(values);
  if (known && known.shades === shades.table && known.high === shades.high && known.low === shades.low) return known.canvas;
  const canvas = document.createElement('canvas');
  canvas.width = wide;
  canvas.height = tall;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(wide, tall);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = new Uint32Array(shades.table.buffer);
  const hidden = 0;
  for (let i = 0; i < pixels.length; i++) {
    pixels[i] = Number.isNaN(values[i]) ? hidden : colours[Math.round(shades.at(values[i]))];
  }
  context.putImageData(image, 0, 0);
  bitmaps.set(values, { shades: shades.table, high: shades.high, low: shades.low, canvas });
  return canvas;
}

export class CanvasPen implements Pen {
  constructor(private readonly to: CanvasRenderingContext2D) {}

  rect(x: number, y: number, w: number, h: number, fill: string | null, stroke: string | null = null, line = 1): void {
    if (fill) {
      this.to.fillStyle = fill;
      this.to.fillRect(x, y, w, h);
    }
    if (stroke) {
      this.to.strokeStyle = stroke;
      this.to.lineWidth = line;
      this.to.strokeRect(x, y, w, h);
    }
  }

  line(points: [number, number][], stroke: string, width = 1, opacity = 1): void {
    this.stroked(stroke, width, opacity, () => points.forEach(([x, y], i) => (i ? this.to.lineTo(x, y) : this.to.moveTo(x, y))));
  }

  curve(x0: number, y0: number, x1: number, y1: number, stroke: string, width = 1, opacity = 1): void {
    const level = (x1 - x0) * SPREAD;
    this.stroked(stroke, width, opacity, () => {
      this.to.moveTo(x0, y0);
      this.to.bezierCurveTo(x0 + level, y0, x1 - level, y1, x1, y1);
    });
  }

  private stroked(stroke: string, width: number, opacity: number, path: () => void): void {
    this.to.globalAlpha = opacity;
    this.to.strokeStyle = stroke;
    this.to.lineWidth = width;
    this.to.beginPath();
    path();
    this.to.stroke();
    this.to.globalAlpha = 1;
  }

  dot(x: number, y: number, radius: number, fill: string, stroke?: string): void {
    this.to.beginPath();
    this.to.arc(x, y, radius, 0, 2 * Math.PI);
    this.to.fillStyle = fill;
    this.to.fill();
    if (!stroke) return;
    this.to.strokeStyle = stroke;
    this.to.lineWidth = 1.5;
    this.to.stroke();
  }

  text(text: string, x: number, y: number, fill: string, letters: Letters = {}): void {
    this.to.font = font(letters);
    this.to.fillStyle = fill;
    this.to.textAlign = letters.anchor ?? 'left';
    this.to.textBaseline = 'middle';
    const shown = cut(text, letters);
    if (!letters.turn) return this.to.fillText(shown, x, y);
    this.to.save();
    this.to.translate(x, y);
    this.to.rotate((letters.turn * Math.PI) / 180);
    this.to.fillText(shown, 0, 0);
    this.to.restore();
  }

  cells(values: Float32Array, tall: number, wide: number, shades: Shades, x: number, y: number, w: number, h: number): void {
    this.to.imageSmoothingEnabled = w < wide || h < tall;
    this.to.drawImage(bitmap(values, tall, wide, shades), x, y, w, h);
  }

  image(picture: HTMLCanvasElement, x: number, y: number, w: number, h: number): void {
    this.to.imageSmoothingEnabled = w < picture.width;
    this.to.drawImage(picture, x, y, w, h);
  }
}

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
// XML has no way to write most control characters, nor half of a pair.
const UNWRITABLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;
const escaped = (text: string) => text.replace(UNWRITABLE, '\ufffd').replace(/[&<>"]/g, (sign) => ESCAPES[sign]);
const ANCHORS = { left: 'start', center: 'middle', right: 'end' };
const short = (value: number) => String(Math.round(value * 100) / 100);

export class SvgPen implements Pen {
  private readonly parts: string[] = [];

  constructor(private readonly width: number, private readonly height: number) {}

  private put(tag: string, given: Record<string, string | number | null | undefined>, inside = ''): void {
    const told = Object.entries(given)
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([key, value]) => ` ${key}="${typeof value === 'number' ? short(value) : escaped(value!)}"`);
    this.parts.push(`<${tag}${told.join('')}>${inside}</${tag}>`);
  }

  rect(x: number, y: number, width: number, height: number, fill: string | null, stroke: string | null = null, line = 1): void {
    this.put('rect', { x, y, width, height, fill: fill ?? 'none', stroke, 'stroke-width': stroke ? line : null });
  }

  line(points: [number, number][], stroke: string, width = 1, opacity = 1): void {
    const way = points.map(([x, y]) => `${short(x)},${short(y)}`).join(' ');
    this.put('polyline', { points: way, fill: 'none', stroke, 'stroke-width': width, opacity: opacity < 1 ? opacity : null });
  }

  curve(x0: number, y0: number, x1: number, y1: number, stroke: string, width = 1, opacity = 1): void {
    const level = (x1 - x0) * SPREAD;
    const [a, b, c, d, e, f] = [x0, y0, x0 + level, x1 - level, y1, x1].map(short);
    this.put('path', { d: `M${a} ${b}C${c} ${b} ${d} ${e} ${f} ${e}`, fill: 'none', stroke, 'stroke-width': width, opacity: opacity < 1 ? opacity : null });
  }

  dot(cx: number, cy: number, r: number, fill: string, stroke?: string): void {
    this.put('circle', { cx, cy, r, fill, stroke });
  }

  text(text: string, x: number, y: number, fill: string, letters: Letters = {}): void {
    this.put('text', {
      x, y, fill, 'font-size': letters.size ?? 12, 'font-weight': letters.strong ? 600 : null,
      'text-anchor': ANCHORS[letters.anchor ?? 'left'], 'dominant-baseline': 'central', 'xml:space': 'preserve',
      transform: letters.turn ? `rotate(${letters.turn} ${short(x)} ${short(y)})` : null,
    }, escaped(cut(text, letters)));
  }

  cells(values: Float32Array, tall: number, wide: number, shades: Shades, x: number, y: number, width: number, height: number): void {
    const href = bitmap(values, tall, wide, shades).toDataURL('image/png');
    this.put('image', { x, y, width, height, href, preserveAspectRatio: 'none', style: 'image-rendering:pixelated' });
  }

  image(picture: HTMLCanvasElement, x: number, y: number, width: number, height: number): void {
    this.put('image', { x, y, width, height, href: picture.toDataURL('image/png'), preserveAspectRatio: 'none', style: 'image-rendering:pixelated' });
  }

  /** The whole file, on paper of this colour. */
  file(paper: string, title: string): string {
    const size = `width="${short(this.width)}" height="${short(this.height)}" viewBox="0 0 ${short(this.width)} ${short(this.height)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escaped(FONT)}"><title>${escaped(title)}</title>` +
      `<rect width="100%" height="100%" fill="${paper}"/>${this.parts.join('')}</svg>\n`;
  }
}
