// A picture as a file.

import { CanvasPen, type Pen, SvgPen } from './pen';

export interface Drawing {
  width: number;
  height: number;
  title: string;
  paper: string;
  draw: (pen: Pen) => void;
}

const SHARP = 2; // pixels of a saved picture for each of the page

export async function save(drawing: Drawing, kind: 'png' | 'svg'): Promise<void> {
  const { width, height, title, paper } = drawing;
  let blob: Blob;
  if (kind === 'svg') {
    const pen = new SvgPen(width, height);
    drawing.draw(pen);
    blob = new Blob([pen.file(paper, title)], { type: 'image/svg+xml' });
  } else {
    const canvas = document.createElement('canvas');
    canvas.width = width * SHARP;
    canvas.height = height * SHARP;
    const context = canvas.getContext('2d')!;
    context.scale(SHARP, SHARP);
    context.fillStyle = paper;
    context.fillRect(0, 0, width, height);
    drawing.draw(new CanvasPen(context));
    blob = await new Promise((done) => canvas.toBlob((made) => done(made!), 'image/png'));
  }
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = `${title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').toLowerCase() || 'headway'}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
