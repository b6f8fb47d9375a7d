// Light or dark: as the system has it, until somebody chooses.

import { THEMES, type Theme } from './picture/colour';

const KEY = 'headway-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a frame without a memory of its own
  }
}

class Choice {
  own = $state<string | null>(remembered());
  systemIsDark = $state(system.matches);

  readonly isDark = $derived(this.own ? this.own === 'dark' : this.systemIsDark);
  readonly theme = $derived<Theme>(this.isDark ? THEMES.dark : THEMES.light);

  toggle(): void {
    this.own = this.isDark ? 'light' : 'dark';
    try {
      localStorage.setItem(KEY, this.own);
    } catch {
      // as above
    }
  }
}

export const colours = new Choice();
system.addEventListener('change', (event) => (colours.systemIsDark = event.matches));
