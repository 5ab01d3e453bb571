// The New run form as data: which configs fit the trace, what is preselected,
// and what a launch would start.
import type { GpuConfig } from "../api/types";
import type { Trace } from "./entities";
import type { RunEntry } from "./entities";

export const MIN_COUNT = 1;
export const MAX_COUNT = 64;
/** Above this many sims the form says plainly what they cost. */
export const QUIET_SIMS = 4;

export interface ConfigRow {
  readonly config: GpuConfig;
  /** Why this config can't run the trace; null when it can. */
  readonly reason: string | null;
  readonly suggested: boolean;
}

/** Configs that fit come first; the suggested one leads. */
export function configRows(configs: readonly GpuConfig[], trace: Trace): ConfigRow[] {
  const preferred = preselected(configs, trace);
  const rows = configs.map((config) => ({
    config,
    reason: config.arch === trace.arch ? null : `Needs an ${config.arch} trace; this one is ${trace.arch}.`,
    suggested: preferred.includes(config.name),
  }));
  const rank = (row: ConfigRow) => (row.suggested ? 0 : row.reason === null ? 1 : 2);
  return rows.sort((a, b) => rank(a) - rank(b) || a.config.name.localeCompare(b.config.name));
}

/** The suggested config, else the sample's list, else the first that fits. */
export function preselected(configs: readonly GpuConfig[], trace: Trace): string[] {
  const fits = configs.filter((config) => config.arch === trace.arch).map((config) => config.name);
  const suggested = [trace.suggestedConfig, ...trace.sampleConfigs].filter((name) => name !== null).filter((name) => fits.includes(name));
  const first = suggested[0] ?? fits.toSorted()[0];
  return first === undefined ? [] : [first];
}

/** Null where the text is not a whole number from 1 to 64. */
export function parseCount(text: string): number | null {
  if (!/^\s*\d+\s*$/.test(text)) return null;
  const count = Number(text);
  return count >= MIN_COUNT && count <= MAX_COUNT ? count : null;
}

export function entriesOf(chosen: ReadonlyMap<string, string>): RunEntry[] | null {
  const entries: RunEntry[] = [];
  for (const [gpu_config, text] of chosen) {
    const count = parseCount(text);
    if (count === null) return null;
    entries.push({ gpu_config, count });
  }
  return entries;
}

export function totalSims(entries: readonly RunEntry[]): number {
  return entries.reduce((sum, entry) => sum + entry.count, 0);
}

/** Why no run can start from this trace; null when one can. */
export function launchProblem(trace: Trace): string | null {
  if (trace.sample) return "This is the bundled sample: its instruction traces are not included, so it can't be simulated again. Upload a trace of your own to launch a run.";
  if (trace.state === "uploading") return "The trace is still uploading. It can run once it is ready.";
  if (trace.state === "processing") return "The trace is being processed. It can run once it is ready.";
  if (trace.state === "failed") return `The trace failed: ${trace.error ?? "no reason was given"}`;
  return null;
}
