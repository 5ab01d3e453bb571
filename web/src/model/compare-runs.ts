// Runs laid side by side: which columns a set of runs gives, and what a reader
// must know before trusting the comparison. Pure.
import type { ColumnInput, RealTimes } from "./comparison";
import type { Evidence } from "./engine";
import { kernelNamesOf, measuredElsewhere, realWordOf, timeWordOf } from "./engine";
import { letterOf } from "./labels";
import type { Kernel, RunWithSims } from "./entities";

export interface ComparedRun {
  readonly run: RunWithSims;
  /** By sim id. */
  readonly kernels: ReadonlyMap<string, readonly Kernel[]>;
  readonly real: RealTimes;
}

export function groupBySim(kernels: readonly Kernel[]): Map<string, Kernel[]> {
  const groups = new Map<string, Kernel[]>();
  for (const kernel of kernels) {
    const group = groups.get(kernel.simId);
    if (group === undefined) groups.set(kernel.simId, [kernel]);
    else group.push(kernel);
  }
  return groups;
}

/** What a compared run shows of where its numbers come from. */
export function evidenceOf({ run, kernels }: ComparedRun): Evidence {
  return { run, trace: run.trace, sims: run.sims, kernelNames: kernelNamesOf(kernels.values()), traceKernelNames: null };
}

export const columnKey = (runId: string, config: string): string => `${runId}:${config}`;

/** One column a run and config; where there are several runs a letter names each. */
export function compareColumns(runs: readonly ComparedRun[]): ColumnInput[] {
  return runs.flatMap(({ run, kernels, real }, at) =>
    [...new Set(run.entries.map((entry) => entry.gpu_config))].map((config) => ({
      key: columnKey(run.id, config),
      label: runs.length > 1 ? `${letterOf(at)} · ${config}` : config,
      word: timeWordOf(run.sims.filter((sim) => sim.config === config), { run, trace: run.trace }),
      replicas: run.sims.filter((sim) => sim.config === config).map((sim) => ({ kernels: kernels.get(sim.id) ?? [], succeeded: sim.state === "succeeded" })),
      real,
      trace: run.traceId,
      measuredOn: measuredElsewhere(config, run.trace),
      realWord: realWordOf(run.trace),
    })),
  );
}

/** The real times that every column shares; empty when the runs are of different traces. */
export function sharedReal(runs: readonly ComparedRun[]): RealTimes {
  const first = runs[0];
  if (first === undefined || runs.some(({ run }) => run.traceId !== first.run.traceId)) return new Map();
  return runs.find(({ real }) => real.size > 0)?.real ?? new Map();
}

export function differentTraces(runs: readonly ComparedRun[]): string[] {
  const ids = [...new Set(runs.map(({ run }) => run.traceId))];
  return ids.length > 1 ? ids : [];
}
