// The Estimate card: what the analytical model expects of the trace on each config
// of the run, at once and with its interval; simulated kernels take their place in
// it as they finish.
import { useComputed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../../api/client";
import { ErrorNote, KernelName, Loading, TableScroll, WordBadge } from "../../components/basics";
import { VirtualList } from "../../components/virtual";
import type { ConfigEstimate, Estimate, Interval } from "../../model/estimate";
import { sourcesText, toEstimate } from "../../model/estimate";
import { MISSING, formatNs } from "../../model/units";
import type { RunStore } from "../../state/live-run";
import { useRenewed } from "../../state/poll";
import { client } from "../../state/session";

/** An answer lists every kernel of every config: it is asked again only when kernels landed, and not more often. */
const ASK_AGAIN_MS = 5000;
/** While the server still computes one. */
const COMPUTING_MS = 2000;
/** What the card will need, so that nothing below it moves when the answer comes. */
const ROW_GUESS_PX = 38;
const SUMMARY_GUESS_PX = 36;

export interface LoadedEstimate {
  readonly estimate: Estimate | null;
  readonly error: Error | null;
  /** A sample has nothing to estimate from, and a server from before the route does not know it. */
  readonly absent: boolean;
  readonly reload: () => void;
}

/** The run's estimate, renewed as kernels land. */
export function useEstimate(store: RunStore): LoadedEstimate {
  const [kept, setKept] = useState<Estimate | null>(null);
  const sample = useComputed(() => store.run.value === null || store.run.value.trace.sample || store.run.value.run.sample).value;
  const active = useComputed(() => store.run.value?.run.state === "active").value;
  const computing = kept?.computing === true;
  const version = () => (computing ? null : `${store.run.peek()?.kernelCount} ${active}`);
  const load = async (signal: AbortSignal) => (sample ? null : toEstimate(await client.estimate(store.runId, signal)));
  const everyMs = computing ? COMPUTING_MS : active ? ASK_AGAIN_MS : undefined;
  const { data, error, reload } = useRenewed(sample ? "no estimate" : `estimate ${store.runId}`, version, load, everyMs);
  useEffect(() => {
    if (data !== null) setKept(data);
  }, [data]);
  const unknownRoute = error instanceof ApiError && error.status === 404;
  return { estimate: kept, error: kept === null ? error : null, absent: sample || unknownRoute, reload };
}

export function EstimateSection({ store, loaded }: { store: RunStore; loaded: LoadedEstimate }) {
  const configs = useComputed(() => store.run.value?.run.entries.length ?? 0).value;
  const { estimate, error, absent, reload } = loaded;
  if (absent) return null;
  return (
    <section class="card" aria-labelledby="estimate" data-testid="estimate">
      <header>
        <h2 id="estimate">Estimate</h2>
        <span class="small muted">Total kernel time from the trace alone{estimate === null ? "" : `, by ${estimate.engine}`}; simulated kernels take their place as they finish</span>
      </header>
      <div class="body stack-gap">
        {estimate === null && error === null && (
          <div style={{ height: `${(configs + 1) * ROW_GUESS_PX + SUMMARY_GUESS_PX}px` }}>
            <Loading what="the estimate" />
          </div>
        )}
        {error !== null && <ErrorNote error={error} retry={reload} />}
        {estimate !== null && <Totals estimate={estimate} />}
        {estimate !== null && <Kernels estimate={estimate} />}
      </div>
    </section>
  );
}

function Totals({ estimate }: { estimate: Estimate }) {
  return (
    <TableScroll label="Estimated totals by config" flush={false}>
      <table data-testid="estimate-totals">
        <thead>
          <tr>
            <th>Config</th>
            <th class="num">Total</th>
            <th class="num" title="Sum of the kernels' 80% intervals: as if all kernels erred the same way, so wider than 80%">
              Interval
            </th>
            <th class="interval-cell">
              <span class="visually-hidden">Interval as a bar</span>
            </th>
            <th>Source</th>
          </tr>
        </thead>
        <tbody>
          {estimate.configs.map((one) => (
            <tr key={one.config}>
              <td class="nowrap strong">{one.config}</td>
              {one.total === null ? (
                <td colSpan={4} class={one.state === "failed" ? "problem" : "muted"}>
                  {one.state === "computing" ? <Loading what="the estimate" /> : (one.detail ?? "no estimate")}
                </td>
              ) : (
                <>
                  <td class="num strong">{formatNs(one.total.ns)}</td>
                  <td class="num">{intervalText(one.total)}</td>
                  <td class="interval-cell">
                    <IntervalBar interval={one.total} scaleNs={estimate.longestNs} />
                  </td>
                  <td class="source-cell">{sourcesText(one)}</td>
                </>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </TableScroll>
  );
}

export function intervalText(interval: Interval): string {
  return interval.lowNs === interval.highNs ? "none: simulated" : `${formatNs(interval.lowNs)} to ${formatNs(interval.highNs)}`;
}

function IntervalBar({ interval, scaleNs }: { interval: Interval; scaleNs: number }) {
  const percent = (ns: number) => `${scaleNs === 0 ? 0 : (ns / scaleNs) * 100}%`;
  return (
    <span class="bar-track" aria-hidden="true">
      <i class="interval" style={{ marginLeft: percent(interval.lowNs), width: percent(interval.highNs - interval.lowNs) }} />
      <b class="mark" style={{ left: percent(interval.ns) }} />
    </span>
  );
}

const ROW_PX = 30;

function Kernels({ estimate }: { estimate: Estimate }) {
  const ready = estimate.configs.filter((one) => one.kernels.length > 0);
  const [config, setConfig] = useState<string | null>(null);
  const shown = ready.find((one) => one.config === config) ?? ready[0];
  if (shown === undefined) return null;
  return (
    <details>
      <summary>Every kernel, estimated or simulated</summary>
      {ready.length > 1 && (
        <label class="inline estimate-config">
          Config{" "}
          <select value={shown.config} onChange={(event) => setConfig(event.currentTarget.value)}>
            {ready.map((one) => (
              <option key={one.config} value={one.config}>
                {one.config}
              </option>
            ))}
          </select>
        </label>
      )}
      <KernelRows config={shown} />
    </details>
  );
}

function KernelRows({ config }: { config: ConfigEstimate }) {
  return (
    <VirtualList
      class="estimate-grid"
      label={`Kernels on ${config.config}`}
      testid="estimate-kernels"
      count={config.kernels.length}
      rowPx={ROW_PX}
      heightPx={ROW_PX * 12}
      header={
        <div class="grid-row grid-head" role="row">
          {["#", "Kernel", "Source", "Time", "80% interval", "Bound by"].map((label) => (
            <div key={label} role="columnheader" class={label === "Time" || label === "#" || label === "80% interval" ? "num" : ""}>
              {label}
            </div>
          ))}
        </div>
      }
      row={(index) => {
        const kernel = config.kernels[index];
        if (kernel === undefined) return null;
        return (
          <div key={kernel.index} class="grid-row" role="row" aria-rowindex={index + 2} style={{ height: `${ROW_PX}px` }}>
            <div role="cell" class="num">
              {kernel.index + 1}
            </div>
            <div role="cell" class="cut">
              <KernelName name={kernel.name} />
            </div>
            <div role="cell">
              <WordBadge word={kernel.simulated ? "simulated" : "estimated"} />
            </div>
            <div role="cell" class="num">
              {formatNs(kernel.ns)}
            </div>
            <div role="cell" class="num">
              {kernel.simulated ? MISSING : intervalText(kernel)}
            </div>
            <div role="cell" class="cut" title={kernel.bottleneck ?? undefined}>
              {kernel.bottleneck ?? MISSING}
            </div>
          </div>
        );
      }}
    />
  );
}
