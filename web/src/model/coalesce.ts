// Many events in, few changes out. At 2,000 events a second most of them are
// overwritten before anyone could read them: of one sim's states only the newest
// matters, of its log only the tail. The worker gathers here and hands a batch to
// the page a few times a second.
import type { RunEvent } from "../api/types";
import type { Kernel, RunWithSims, Sim } from "./entities";
import { toKernel, toRunDetail, toSim } from "./entities";
import type { Batch } from "./run-state";
import { LOG_TAIL_LINES } from "./run-state";

export class Gathering {
  private snapshot: { run: RunWithSims; kernels: Kernel[] } | null = null;
  private sims = new Map<string, Sim>();
  private logs = new Map<string, string[]>();
  private kernels: Kernel[] = [];
  /** Events since the last batch, for the page's rate display. */
  private events = 0;
  /** Log lines among them, shown or not. */
  private lines = 0;

  add(event: RunEvent): void {
    this.events += 1;
    switch (event.type) {
      case "snapshot":
        this.clear();
        this.snapshot = { run: toRunDetail(event.run), kernels: event.kernels.map(toKernel) };
        return;
      case "sim":
        this.sims.set(event.sim.id, toSim(event.sim));
        this.logs.delete(event.sim.id); // its log_tail holds these lines already
        return;
      case "log": {
        this.lines += event.lines.length;
        const lines = [...(this.logs.get(event.sim_id) ?? []), ...event.lines.slice(-LOG_TAIL_LINES)];
        this.logs.set(event.sim_id, lines.slice(-LOG_TAIL_LINES));
        return;
      }
      case "kernel":
        this.kernels.push(toKernel(event.stat));
        return;
      default:
        // A type of a newer server: nothing here depends on it.
        event satisfies never;
    }
  }

  /** The batch so far with its number of events and log lines, or null when nothing came; starts afresh. */
  take(): { batch: Batch; events: number; lines: number } | null {
    if (this.events === 0) return null;
    const batch: Batch = {
      snapshot: this.snapshot,
      sims: [...this.sims.values()],
      logs: [...this.logs].map(([simId, lines]) => ({ simId, lines })),
      kernels: this.kernels,
    };
    const { events, lines } = this;
    this.clear();
    this.snapshot = null;
    this.events = 0;
    this.lines = 0;
    return { batch, events, lines };
  }

  private clear(): void {
    this.sims = new Map();
    this.logs = new Map();
    this.kernels = [];
  }
}
