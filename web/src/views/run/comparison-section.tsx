// The run's configs compared, from the live kernels and the trace's real timing.
import { useMemo } from "preact/hooks";
import { ColumnCards, ComparisonTable } from "../../components/comparison-table";
import type { ColumnInput } from "../../model/comparison";
import { buildTable } from "../../model/comparison";
import type { LiveRun } from "../../model/run-state";
import type { RunStore } from "../../state/live-run";
import { useRealTiming, useThrottled } from "../../state/run-hooks";

export function ComparisonSection({ store }: { store: RunStore }) {
  const live = useThrottled(store.run, 1500);
  const real = useRealTiming(live);
  const table = useMemo(() => (live === null ? null : buildTable(columnsOf(live), real?.byIndex ?? new Map())), [live, real]);
  const replayed = live !== null && [...live.sims.values()].some((sim) => sim.engine === "replay") && !live.run.replay;
  return (
    <section class="card" aria-labelledby="comparison">
      <header>
        <h2 id="comparison">Configs compared</h2>
        <span class="small muted">{live?.trace.hasRealTiming === true ? "Simulated against measured kernel time" : "Simulated time only: the trace has no real kernel timing"}</span>
      </header>
      <div class="body stack-gap">
        {table === null || table.rows.length === 0 ? (
          <p class="muted">No kernel has finished yet.</p>
        ) : (
          <>
            <ColumnCards table={table} comparable={!replayed} />
            <ComparisonTable table={table} />
          </>
        )}
      </div>
    </section>
  );
}

export function columnsOf(live: LiveRun, prefix = ""): ColumnInput[] {
  const configs = [...new Set(live.run.entries.map((entry) => entry.gpu_config))];
  return configs.map((config) => ({
    key: `${live.run.id} ${config}`,
    label: prefix + config,
    replicas: live.simIds.flatMap((id) => {
      const sim = live.sims.get(id);
      if (sim === undefined || sim.config !== config) return [];
      return [{ kernels: live.kernels.get(id) ?? [], succeeded: sim.state === "succeeded" }];
    }),
  }));
}
