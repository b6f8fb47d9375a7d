// A box that scrolls sideways tells on which side there is more: its classes are `more-left` and `more-right`.

export function fading(box: HTMLElement): { destroy: () => void } {
  const tell = () => {
    box.classList.toggle('more-left', box.scrollLeft > 2);
    box.classList.toggle('more-right', box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  };
  const seen = new ResizeObserver(tell);
  seen.observe(box);
  if (box.firstElementChild) seen.observe(box.firstElementChild);
  box.addEventListener('scroll', tell, { passive: true });
  return {
    destroy: () => {
      seen.disconnect();
      box.removeEventListener('scroll', tell);
    },
  };
}
