// The colours of canvases come from the same custom properties as the page's.

export const SERIES_COLOURS = 8;

export function cssColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The custom property of the n-th column or series, repeating after eight. */
export function seriesVariable(index: number): string {
  return `--c${index % SERIES_COLOURS}`;
}
