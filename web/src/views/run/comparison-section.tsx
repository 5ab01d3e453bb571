// The run's configs compared, from the live kernels and the trace's real timing.
import { useMemo } from "preact/hooks";
import { ColumnCards, ComparisonTable } from "../../components/comparison-table";
import type { ColumnInput } from "../../model/comparison";
import { buildMetricTable, buildTable } from "../../model/comparison";
import type { Estimate } from "../../model/estimate";
import { isComparable, kernelNamesOf, measuredElsewhere, realWordOf, timeWordOf } from "../../model/engine";
import type { LiveRun } from "../../model/run-state";
import { noKernelText } from "../../model/run-state";
import type { RunStore } from "../../state/live-run";
import { useRealTiming, useThrottled } from "../../state/run-hooks";

export function ComparisonSection({ store, estimate }: { store: RunStore; estimate: Estimate | null }) {
  const live = useThrottled(store.run, 1500);
  const real = useRealTiming(live);
  const columns = useMemo(() => (live === null ? [] : columnsOf(live)), [live]);
  const table = useMemo(() => (live === null ? null : buildTable(columns, real?.byIndex ?? new Map())), [columns, real]);
  const comparable = useMemo(() => live === null || isComparable({ run: live.run, trace: live.trace, sims: [...live.sims.values()], kernelNames: kernelNamesOf(live.kernels.values()), traceKernelNames: null }), [live]);
  const intervals = useMemo(() => new Map((estimate?.configs ?? []).flatMap((one) => (one.total === null ? [] : [[one.config, one.total] as const]))), [estimate]);
  return (
    <section class="card" aria-labelledby="comparison">
      <header>
        <h2 id="comparison">Configs compared</h2>
        <span class="small muted">{live?.trace.hasRealTiming === true ? `Against the ${realWordOf(live.trace)} kernel time of ${live.trace.sourceGpu ?? "the traced GPU"}` : "No measured time to compare with: the trace has no real kernel timing"}</span>
      </header>
      <div class="body stack-gap">
        {table === null || table.rows.length === 0 ? (
          <p class="muted">{noKernelText(live)}</p>
        ) : (
          <>
            <ColumnCards table={table} comparable={comparable} intervals={intervals} />
            <ComparisonTable table={table} metricTable={(metric) => buildMetricTable(columns, metric)} />
          </>
        )}
      </div>
    </section>
  );
}

export function columnsOf(live: LiveRun): ColumnInput[] {
  const configs = [...new Set(live.run.entries.map((entry) => entry.gpu_config))];
  return configs.map((config) => ({
    key: `${live.run.id} ${config}`,
    label: config,
    measuredOn: measuredElsewhere(config, live.trace),
    realWord: realWordOf(live.trace),
    word: timeWordOf([...live.sims.values()].filter((sim) => sim.config === config), live),
    replicas: live.simIds.flatMap((id) => {
      const sim = live.sims.get(id);
      if (sim === undefined || sim.config !== config) return [];
      return [{ kernels: live.kernels.get(id) ?? [], succeeded: sim.state === "succeeded" }];
    }),
  }));
}
