// Which rows of a very long list are on screen. Browsers cap an element's height
// (about 33 million pixels in Chromium), so past a limit the scrollbar stands for
// a proportion of the list and not for pixels. Pure.

/** Below every browser's cap, with room to spare. */
export const MAX_SCROLL_PX = 12_000_000;

export interface Slice {
  readonly first: number;
  readonly last: number;
  /** Where row `first` is drawn inside the scrolled content. */
  readonly offsetPx: number;
  readonly contentPx: number;
}

export function sliceOf(count: number, rowPx: number, viewPx: number, scrollPx: number, overscan = 8): Slice {
  const fullPx = count * rowPx;
  const contentPx = Math.min(fullPx, MAX_SCROLL_PX);
  const scrollable = Math.max(contentPx - viewPx, 1);
  const share = Math.min(Math.max(scrollPx, 0) / scrollable, 1);
  const topPx = contentPx === fullPx ? Math.min(Math.max(scrollPx, 0), Math.max(fullPx - viewPx, 0)) : share * (fullPx - viewPx);
  const first = Math.max(0, Math.floor(topPx / rowPx) - overscan);
  const last = Math.min(count, Math.ceil((topPx + viewPx) / rowPx) + overscan);
  return { first, last, offsetPx: Math.max(0, scrollPx) - (topPx - first * rowPx), contentPx };
}

/** The scroll position that puts a row in the middle of the view. */
export function scrollTo(index: number, count: number, rowPx: number, viewPx: number): number {
  const fullPx = count * rowPx;
  const contentPx = Math.min(fullPx, MAX_SCROLL_PX);
  const topPx = Math.min(Math.max(index * rowPx - viewPx / 2 + rowPx / 2, 0), Math.max(fullPx - viewPx, 0));
  if (contentPx === fullPx) return topPx;
  return (topPx / Math.max(fullPx - viewPx, 1)) * (contentPx - viewPx);
}
