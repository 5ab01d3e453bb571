// The answer of one scenario. The numbers and where they come from share one
// screen: percentiles beside provenance, then requests, then steps.
import { useMemo, useState } from "preact/hooks";
import type { ScenarioResult } from "../api/types";
import { LineChart } from "../charts/line-chart";
import { Banner, TableScroll } from "../components/basics";
import { Notices } from "../components/notices";
import { noticesFor } from "../model/engine";
import type { Trace } from "../model/entities";
import { toRunDetail } from "../model/entities";
import type { RequestSort } from "../model/scenario";
import { isExtrapolated, pageOf, provenanceShares, sortRequests, stepCharts } from "../model/scenario";
import { MISSING, formatCount, formatExact, formatMs, formatPercent, plural, significant } from "../model/units";
import { pathOf } from "../router";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";

export function ScenarioAnswer({ result, trace }: { result: ScenarioResult; trace: Trace | null }) {
  return (
    <>
      <BaseNotices result={result} trace={trace} />
      {isExtrapolated(result) && (
        <Banner tone="warn" title="Outside the calibrated range: unvalidated predictions" testid="extrapolated">
          <p>
            The profile holds prefills of {rangeText(result.calibration_range.prefill_tokens)} tokens and decode contexts of {rangeText(result.calibration_range.decode_context)}. Steps of another size or with several sequences are model predictions, not measurements.
          </p>
        </Banner>
      )}
      <div class="beside">
        <section class="card" aria-labelledby="latency">
          <header>
            <h2 id="latency">
              Latency and throughput <span class="badge info">estimated</span>
            </h2>
            <BaseLink result={result} />
          </header>
          <div class="body">
            <Percentiles result={result} />
          </div>
        </section>
        <Provenance result={result} />
        <Steps result={result} />
      </div>
      <Requests result={result} />
    </>
  );
}

/** The first and the last profiled size, once where they are the same. */
function rangeText(range: readonly number[]): string {
  return [...new Set(range)].join(" to ");
}

function BaseLink({ result }: { result: ScenarioResult }) {
  if (result.run_id === null) return null;
  return (
    <span class="small muted">
      from <a href={pathOf({ view: "run", runId: result.run_id })}>{result.run_id}</a> on {result.gpu_config}
      {result.cached ? ", profile reused" : ""}
    </span>
  );
}

function BaseNotices({ result, trace }: { result: ScenarioResult; trace: Trace | null }) {
  const runId = result.run_id;
  const base = useLoaded(`base ${runId ?? ""}`, async (signal) => (runId === null ? null : toRunDetail(await client.run(runId, signal))));
  if (base.data === null || trace === null) return null;
  const sims = base.data.sims.filter((sim) => sim.id === result.sim_id);
  return <Notices notices={noticesFor({ run: base.data, trace: base.data.trace, sims, kernelNames: new Set(), traceKernelNames: null })} />;
}

function Percentiles({ result }: { result: ScenarioResult }) {
  const { aggregate } = result;
  const cards: ReadonlyArray<readonly [string, string, string]> = [
    ["TTFT p50", formatMs(aggregate.p50_ttft_ms), "time to first token"],
    ["TTFT p99", formatMs(aggregate.p99_ttft_ms), "time to first token"],
    ["ITL p50", formatMs(aggregate.p50_itl_ms), "between tokens, all requests pooled"],
    ["End to end p50", formatMs(aggregate.p50_e2e_ms), "arrival to completion"],
    ["End to end p99", formatMs(aggregate.p99_e2e_ms), "arrival to completion"],
    ["Throughput", aggregate.throughput_output_tokens_s === null ? MISSING : `${significant(aggregate.throughput_output_tokens_s)} tok/s`, "output tokens, first arrival to last completion"],
  ];
  return (
    <dl class="percentiles" data-testid="percentiles">
      {cards.map(([name, value, note]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class="big">{value}</dd>
          <dd class="small muted">{note}</dd>
        </div>
      ))}
    </dl>
  );
}

function Provenance({ result }: { result: ScenarioResult }) {
  const shares = provenanceShares(result);
  const { scheduler } = result;
  return (
    <section class="card" aria-labelledby="provenance" data-testid="provenance">
      <header>
        <h2 id="provenance">Where these numbers come from</h2>
      </header>
      <div class="body stack-gap small">
        <ul class="shares">
          {shares.map((share) => (
            <li key={share.label}>
              <div class="row spread tight">
                <strong>{share.label}</strong>
                <span class="num">
                  {formatExact(share.count)} of {plural(result.steps_total, "step")} ({formatPercent(share.percent)})
                </span>
              </div>
              <div class="meter" aria-hidden="true">
                <i style={{ width: `${share.percent}%` }} class={share.label.startsWith("extrapolated") ? "s-lost" : "s-running"} />
              </div>
              <span class="muted">{share.meaning}</span>
            </li>
          ))}
        </ul>
        <p>
          <strong>Calibrated</strong> for prefills of {rangeText(result.calibration_range.prefill_tokens)} tokens and decode contexts {rangeText(result.calibration_range.decode_context)}.
        </p>
        <div>
          <strong>Assumptions</strong>
          <ul class="plain-list">
            <li>
              Scheduler: {formatExact(scheduler.max_num_seqs)} sequences, {formatExact(scheduler.max_num_batched_tokens)} tokens a step, blocks of {scheduler.block_size} tokens, {formatExact(scheduler.num_kv_blocks)} KV blocks, memory utilization {scheduler.gpu_memory_utilization}, chunked prefill {scheduler.enable_chunked_prefill ? "on" : "off"}
            </li>
            {result.assumptions.map((assumption, i) => (
              <li key={i}>{assumption}</li>
            ))}
          </ul>
        </div>
      </div>
    </section>
  );
}

const COLUMNS: ReadonlyArray<readonly [RequestSort, string]> = [
  ["id", "Request"],
  ["arrival_s", "Arrival"],
  ["queue_ms", "Queue"],
  ["ttft_ms", "TTFT"],
  ["itl_ms_mean", "Mean ITL"],
  ["e2e_ms", "End to end"],
  ["emitted_tokens", "Tokens"],
  ["preemptions", "Preemptions"],
];

function Requests({ result }: { result: ScenarioResult }) {
  const [sort, setSort] = useState<{ key: RequestSort; descending: boolean }>({ key: "id", descending: false });
  const [page, setPage] = useState(0);
  const sorted = useMemo(() => sortRequests(result.requests, sort.key, sort.descending), [result, sort]);
  const shown = pageOf(sorted, page);
  const by = (key: RequestSort) => {
    setSort({ key, descending: sort.key === key ? !sort.descending : key !== "id" && key !== "arrival_s" });
    setPage(0);
  };
  return (
    <section class="card" aria-labelledby="requests">
      <header>
        <h2 id="requests">{plural(result.requests.length, "request")}</h2>
        {shown.pages > 1 && (
          <div class="row tight" role="group" aria-label="Pages">
            <button type="button" class="tiny" disabled={shown.page === 0} onClick={() => setPage(shown.page - 1)}>
              Previous
            </button>
            <span class="small" role="status">
              Page {shown.page + 1} of {shown.pages}
            </span>
            <button type="button" class="tiny" disabled={shown.page === shown.pages - 1} onClick={() => setPage(shown.page + 1)}>
              Next
            </button>
          </div>
        )}
      </header>
      <TableScroll label="Requests" flush={false}>
        <table data-testid="scenario-requests">
          <thead>
            <tr>
              {COLUMNS.map(([key, label]) => (
                <th key={key} class={key === "id" ? "" : "num"} aria-sort={sort.key === key ? (sort.descending ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => by(key)}>
                    {label}
                    <span aria-hidden="true">{sort.key === key ? (sort.descending ? "▾" : "▴") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.rows.map((request) => (
              <tr key={request.id}>
                <td class="mono nowrap">{request.id}</td>
                <td class="num">{formatMs(request.arrival_s * 1000)}</td>
                <td class="num">{formatMs(request.queue_ms)}</td>
                <td class="num">{formatMs(request.ttft_ms)}</td>
                <td class="num">{formatMs(request.itl_ms_mean)}</td>
                <td class="num">{formatMs(request.e2e_ms)}</td>
                <td class="num">{formatExact(request.emitted_tokens)}</td>
                <td class="num">{formatExact(request.preemptions)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableScroll>
    </section>
  );
}

function Steps({ result }: { result: ScenarioResult }) {
  const charts = useMemo(() => stepCharts(result.steps), [result]);
  const lines = useMemo(
    () => ({
      seqs: [{ label: "Sequences in the batch", colour: "--c0", values: charts.seqs, stepped: true }],
      tokens: [{ label: "Query tokens", colour: "--c1", values: charts.tokens, stepped: true }],
      kv: [{ label: "KV blocks in use", colour: "--c2", values: charts.kvBlocks, stepped: true }],
      wall: [{ label: "Step wall time", colour: "--c3", values: charts.wallMs, stepped: true }],
    }),
    [charts],
  );
  const sampled = result.steps_downsampled || charts.drawn < result.steps_total;
  return (
    <section class="card" aria-labelledby="scenario-steps">
      <header>
        <h2 id="scenario-steps">{plural(result.steps_total, "step")}</h2>
        {sampled && (
          <span class="small muted">
            {formatExact(charts.drawn)} of {formatExact(result.steps_total)} drawn; every number above counts all of them
          </span>
        )}
      </header>
      <div class="body chart-grid">
        <StepChart title="Batch size" x={charts.startMs} lines={lines.seqs} format={formatExact} />
        <StepChart title="Tokens computed in a step" x={charts.startMs} lines={lines.tokens} format={formatCount} />
        <StepChart title="KV blocks in use" x={charts.startMs} lines={lines.kv} format={formatCount} />
        <StepChart title="Step wall time" x={charts.startMs} lines={lines.wall} format={formatMs} />
      </div>
    </section>
  );
}

function StepChart({ title, x, lines, format }: { title: string; x: readonly number[]; lines: Parameters<typeof LineChart>[0]["lines"]; format: (value: number) => string }) {
  return (
    <div>
      <h3>{title}</h3>
      <LineChart label={`${title} over simulated time`} x={x} lines={lines} formatX={formatMs} formatY={format} heightPx={170} />
    </div>
  );
}
