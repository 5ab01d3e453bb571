// The live run: snapshot + events = state. A pure reducer over batches, with
// structural sharing: a sim whose object is unchanged did not change, so views
// can compare by identity. It tolerates what the wire can do: a repeated event,
// an event of before the snapshot, and a snapshot that is older than what the
// page already knows (a reconnect that lands on a replica that lags behind).
import type { Kernel, Run, RunWithSims, Sim, SimState, Trace } from "./entities";
import { TERMINAL, countStates, runStateOf, shareNames } from "./entities";

/** As many log lines as a card shows; the full log is a request of its own. */
export const LOG_TAIL_LINES = 20;

export interface LiveRun {
  readonly run: Run;
  readonly trace: Trace;
  /** In the server's order: config, then replica. */
  readonly simIds: readonly string[];
  readonly sims: ReadonlyMap<string, Sim>;
  /** By sim, indexed by kernel; a hole is a kernel that has not been heard of. */
  readonly kernels: ReadonlyMap<string, readonly Kernel[]>;
  readonly kernelCount: number;
}

/** Why there is nothing to draw: a run that ended without a kernel has none to wait for. */
export function noKernelText(live: LiveRun | null): string {
  return live === null || live.run.state === "active" ? "No kernel has finished yet." : "No sim finished a kernel. The sims' logs tell how far they came.";
}

export interface Batch {
  readonly snapshot: { readonly run: RunWithSims; readonly kernels: readonly Kernel[] } | null;
  readonly sims: readonly Sim[];
  readonly logs: ReadonlyArray<{ readonly simId: string; readonly lines: readonly string[] }>;
  readonly kernels: readonly Kernel[];
}

const RANK: Record<SimState, number> = {
  pending: 0,
  launching: 1,
  running: 2,
  lost: 3, // lost follows the last heartbeat; only a later heartbeat leads back to running
  succeeded: 4,
  failed: 4,
  cancelled: 4,
};

/** True when `next` may replace `current`: it is not from an earlier moment of the same sim. */
export function isCurrent(current: Sim, next: Sim): boolean {
  const ended = Number(TERMINAL.has(next.state)) - Number(TERMINAL.has(current.state));
  if (ended !== 0) return ended > 0;
  const heartbeat = (next.heartbeatAt ?? 0) - (current.heartbeatAt ?? 0);
  if (heartbeat !== 0) return heartbeat > 0;
  const rank = RANK[next.state] - RANK[current.state];
  if (rank !== 0) return rank > 0;
  return next.kernelsDone >= current.kernelsDone && (next.latest.gpu_tot_sim_cycle ?? 0) >= (current.latest.gpu_tot_sim_cycle ?? 0);
}

/** The batch with one string for each kernel name; see `shareNames`. */
export function withSharedNames(batch: Batch, names: Map<string, string>): Batch {
  const snapshot = batch.snapshot === null ? null : { run: batch.snapshot.run, kernels: shareNames(batch.snapshot.kernels, names) };
  return { ...batch, snapshot, kernels: shareNames(batch.kernels, names) };
}

/** Null before the first snapshot: events without one have no run to belong to. */
export function applyBatch(state: LiveRun | null, batch: Batch): LiveRun | null {
  const base = batch.snapshot === null ? state : applySnapshot(state, batch.snapshot.run, batch.snapshot.kernels);
  return base === null ? null : applyEvents(base, batch);
}

export function applySnapshot(state: LiveRun | null, run: RunWithSims, kernels: readonly Kernel[]): LiveRun {
  const bySim = groupKernels(kernels);
  const sims = new Map<string, Sim>();
  const kept = new Map<string, readonly Kernel[]>();
  for (const sim of run.sims) {
    const known = state?.run.id === run.id ? state.sims.get(sim.id) : undefined;
    const stale = known !== undefined && !isCurrent(known, sim);
    sims.set(sim.id, stale ? known : sim);
    const incoming = bySim.get(sim.id) ?? [];
    // A stale snapshot still may hold kernels that the lost line never delivered.
    const ours = stale ? (state?.kernels.get(sim.id) ?? []) : [];
    const merged = ours.length > 0 ? mergeKernels(incoming, ours) : incoming;
    if (merged.length > 0) kept.set(sim.id, merged);
  }
  return summed({ run, trace: run.trace, simIds: run.sims.map((sim) => sim.id), sims, kernels: kept, kernelCount: 0 });
}

function applyEvents(state: LiveRun, batch: Batch): LiveRun {
  if (batch.sims.length + batch.logs.length + batch.kernels.length === 0) return state;
  const sims = new Map(state.sims);
  for (const sim of batch.sims) {
    const known = sims.get(sim.id);
    if (known !== undefined && isCurrent(known, sim)) sims.set(sim.id, sim);
  }
  // After the sims: a batch holds only the lines that its newest sim event does not know yet.
  for (const { simId, lines } of batch.logs) {
    const sim = sims.get(simId);
    if (sim === undefined || lines.length === 0) continue;
    sims.set(simId, { ...sim, logTail: [...sim.logTail, ...lines].slice(-LOG_TAIL_LINES) });
  }
  return summed({ ...state, sims, kernels: withKernels(state, batch.kernels) });
}

function withKernels(state: LiveRun, fresh: readonly Kernel[]): LiveRun["kernels"] {
  if (fresh.length === 0) return state.kernels;
  const kernels = new Map(state.kernels);
  for (const [simId, list] of groupKernels(fresh)) {
    if (state.sims.has(simId)) kernels.set(simId, mergeKernels(kernels.get(simId) ?? [], list));
  }
  return kernels;
}

function summed(state: LiveRun): LiveRun {
  const sims = [...state.sims.values()];
  let kernelCount = 0;
  for (const list of state.kernels.values()) kernelCount += list.length;
  return { ...state, kernelCount, run: { ...state.run, state: runStateOf(sims), simCounts: countStates(sims) } };
}

function groupKernels(kernels: readonly Kernel[]): Map<string, Kernel[]> {
  const groups = new Map<string, Kernel[]>();
  for (const kernel of kernels) {
    const group = groups.get(kernel.simId);
    if (group === undefined) groups.set(kernel.simId, [kernel]);
    else group.push(kernel);
  }
  return groups;
}

/** In kernel order, each index once; the later word wins. */
function mergeKernels(known: readonly Kernel[], fresh: readonly Kernel[]): readonly Kernel[] {
  const last = known.at(-1)?.index ?? -1;
  if (fresh.every((kernel, i) => kernel.index > (i === 0 ? last : (fresh[i - 1]?.index ?? last)))) {
    return [...known, ...fresh]; // the usual case: the next kernels in order
  }
  const byIndex = new Map<number, Kernel>();
  for (const kernel of known) byIndex.set(kernel.index, kernel);
  for (const kernel of fresh) byIndex.set(kernel.index, kernel);
  return [...byIndex.values()].sort((a, b) => a.index - b.index);
}
