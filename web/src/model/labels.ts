// Short names for lanes and bars. Config names share long beginnings ("SM90_..."),
// which a narrow column would show instead of what tells them apart.

/** The labels without the beginning that all of them share, cut after a "_"; unchanged where that would leave nothing. */
export function withoutSharedStart(labels: readonly string[]): string[] {
  const first = labels[0];
  if (first === undefined || new Set(labels).size < 2) return [...labels];
  let shared = first;
  for (const label of labels) {
    while (!label.startsWith(shared)) shared = shared.slice(0, -1);
  }
  const cut = shared.lastIndexOf("_") + 1;
  return labels.every((label) => label.length > cut) ? labels.map((label) => label.slice(cut)) : [...labels];
}

/** A, B, ... Z, A2, B2, ...: names for the runs of a comparison. */
export function letterOf(index: number): string {
  const letter = String.fromCharCode(65 + (index % 26));
  const round = Math.floor(index / 26);
  return round === 0 ? letter : `${letter}${round + 1}`;
}
