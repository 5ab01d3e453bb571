// Sims by config, for cards that stay readable at 64 x 5. Pure.
import type { Sim } from "./entities";
import { countStates } from "./entities";
import type { LiveRun } from "./run-state";
import type { SimState } from "./entities";

export interface SimGroup {
  readonly config: string;
  readonly sims: readonly Sim[];
  readonly counts: Partial<Record<SimState, number>>;
  readonly kernelsDone: number;
  readonly kernelsTotal: number;
  /** Over the sims that have a value; null when none has. */
  readonly medianCycles: number | null;
  readonly medianIpc: number | null;
  /** Simulated instructions a second, all sims of the group together. */
  readonly rateIps: number | null;
}

/** More sims than this and the groups start folded. */
export const OPEN_SIMS = 12;

export function groupSims(live: LiveRun): SimGroup[] {
  // In the order in which the reader asked for the configs, as the comparison has them.
  const byConfig = new Map<string, Sim[]>(live.run.entries.map((entry) => [entry.gpu_config, []]));
  for (const id of live.simIds) {
    const sim = live.sims.get(id);
    if (sim === undefined) continue;
    const group = byConfig.get(sim.config);
    if (group === undefined) byConfig.set(sim.config, [sim]);
    else group.push(sim);
  }
  const present = [...byConfig].filter(([, sims]) => sims.length > 0);
  return present.map(([config, sims]) => ({
    config,
    sims,
    counts: countStates(sims),
    kernelsDone: sims.reduce((sum, sim) => sum + sim.kernelsDone, 0),
    kernelsTotal: sims.reduce((sum, sim) => sum + sim.kernelsTotal, 0),
    medianCycles: median(sims.map((sim) => sim.latest.gpu_tot_sim_cycle)),
    medianIpc: median(sims.map((sim) => sim.latest.gpu_tot_ipc)),
    rateIps: total(sims.filter((sim) => sim.state === "running").map((sim) => sim.latest.sim_rate_ips)),
  }));
}

function median(values: ReadonlyArray<number | null>): number | null {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  const middle = (known.length - 1) / 2;
  const below = known[Math.floor(middle)];
  const above = known[Math.ceil(middle)];
  return below === undefined || above === undefined ? null : (below + above) / 2;
}

function total(values: ReadonlyArray<number | null>): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
}
