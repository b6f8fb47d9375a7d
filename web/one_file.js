// The build as one HTML file, with the licences of what is in it and a hash of what it was made from.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';

const LEFT_OUT = new Set(['node_modules', '.vite', 'README.md']);

/** Files under `folder` with their paths from there, in the order of the alphabet. */
function files(folder, root = folder) {
  return readdirSync(folder)
    .filter((name) => !LEFT_OUT.has(name))
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? files(path, root) : [relative(root, path).split(sep).join('/')];
    })
    .sort();
}

/** SHA-256 over each file's path and contents. A test in Python computes the same. */
export function sourceHash(folder) {
  const all = createHash('sha256');
  for (const path of files(folder)) {
    const own = createHash('sha256').update(readFileSync(join(folder, path))).digest('hex');
    all.update(`${path}\0${own}\n`);
  }
  return all.digest('hex');
}

function packageOf(id) {
  const [, inside] = id.split(`node_modules/`).slice(-2);
  if (!inside) return null;
  const parts = inside.split('/');
  return parts[0].startsWith('@') ? parts.slice(0, 2).join('/') : parts[0];
}

/** The licence of every package that has code in the bundle. */
function licences(root, packages) {
  const told = [...packages].sort().map((name) => {
    const folder = join(root, 'node_modules', name);
    const facts = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no licence file`);
    const text = readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${facts.version} (${facts.license})\n\n${text}\n`;
  });
  return `The page contains code of these packages.\n\n${told.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

export function oneFile(root) {
  const packages = new Set();
  return {
    name: 'one-file',
    apply: 'build',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = Object.values(bundle).find((file) => file.fileName.endsWith('.html'));
      let html = String(page.source);
      for (const file of Object.values(bundle)) {
        if (file.type === 'chunk') {
          for (const [id, module] of Object.entries(file.modules)) {
            const name = packageOf(id);
            if (name && module.renderedLength > 0) packages.add(name);
          }
          const code = file.code.trim().replaceAll('</script', '<\\/script');
          html = html.replace(/<script type="module"[^>]*><\/script>/, () => `<script type="module">${code}</script>`);
        } else if (file.fileName.endsWith('.css')) {
          html = html.replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${String(file.source).trim()}</style>`);
        } else continue;
        delete bundle[file.fileName];
      }
      page.source = html;
    },
    writeBundle(options) {
      writeFileSync(join(options.dir, 'LICENCES.txt'), licences(root, packages));
      writeFileSync(join(options.dir, 'source.sha256'), `${sourceHash(root)}\n`);
      if (existsSync(join(options.dir, 'assets'))) throw new Error('something was not put into the page');
    },
  };
}
