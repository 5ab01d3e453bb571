// Step timing of a run: what the simulated kernels make of the workload's steps
// and requests. A timeline is megabytes for each sim, so many of them are loaded
// only on request.
import { useComputed } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { LineChart } from "../../charts/line-chart";
import { seriesVariable } from "../../charts/colours";
import { Banner, ErrorNote, Loading, WordBadge } from "../../components/basics";
import type { SimStepTimeline } from "../../api/types";
import { RequestTable } from "../../components/request-table";
import { measuredElsewhere, realWordOf, timeWordOf } from "../../model/engine";
import type { StepMetric } from "../../model/step-timing";
import { firstOfConfig, labelOf, stepSeries, summarise } from "../../model/step-timing";
import { formatNs, plural } from "../../model/units";
import type { RunStore } from "../../state/live-run";
import { useRenewed } from "../../state/poll";
import { client } from "../../state/session";

/** About 4 MB a sim: past this many the reader decides. */
const LOAD_UNASKED = 6;
/** Looks for sims that have succeeded since. */
const RENEW_MS = 5000;

export function StepsSection({ store }: { store: RunStore }) {
  const has = useComputed(() => store.run.value?.trace.hasStepTimeline === true).value;
  const succeeded = useComputed(() => [...(store.run.value?.sims.values() ?? [])].filter((sim) => sim.state === "succeeded").length).value;
  const word = useComputed(() => (store.run.value === null ? null : timeWordOf([...store.run.value.sims.values()], store.run.value))).value;
  const realWord = useComputed(() => (store.run.value === null ? "measured" : realWordOf(store.run.value.trace))).value;
  const realConfig = useComputed(() => store.run.value?.trace.realConfig ?? null).value;
  const active = useComputed(() => store.run.value?.run.state === "active").value;
  const [asked, setAsked] = useState(false);
  const wanted = has && succeeded > 0 && (asked || succeeded <= LOAD_UNASKED);
  const { data, error, reload } = useRenewed(wanted ? `steps ${store.runId}` : "no steps", () => String(succeeded), async (signal) => (wanted ? client.stepTimelines(store.runId, signal) : null), active ? RENEW_MS : undefined);
  if (!has) return null;
  return (
    <section class="card" aria-labelledby="steps" data-testid="steps">
      <header>
        <h2 id="steps" class="row tight">
          Step timing {word !== null && <WordBadge word={word} />}
        </h2>
        <span class="small muted">The sims' kernel times inside the {realWord} host time, gaps and request envelopes</span>
      </header>
      <div class="body stack-gap">
        {succeeded === 0 && <p class="muted">A sim sends its step timing when it succeeds.</p>}
        {succeeded > 0 && !wanted && (
          <div class="row">
            <button type="button" onClick={() => setAsked(true)}>
              Load step timing of {plural(succeeded, "sim")}
            </button>
            <span class="small muted">Up to some 4 MB for each.</span>
          </div>
        )}
        {error !== null && <ErrorNote error={error} retry={reload} />}
        {wanted && data === null && error === null && <Loading what="step timing" />}
        {data !== null && data.length === 0 && <p class="muted">No sim has sent step timing.</p>}
        {data !== null && data.length > 0 && <StepTiming timelines={data} realConfig={realConfig} />}
      </div>
    </section>
  );
}

const METRICS: ReadonlyArray<readonly [StepMetric, string]> = [
  ["wall", "Step wall time"],
  ["busy", "GPU busy time"],
];

function StepTiming({ timelines, realConfig }: { timelines: readonly SimStepTimeline[]; realConfig: string | null }) {
  const [metric, setMetric] = useState<StepMetric>("wall");
  const shown = useMemo(() => firstOfConfig(timelines).map((timeline) => ({ timeline, label: labelOf(timeline, false) })), [timelines]);
  const summaries = useMemo(() => shown.map(({ timeline, label }) => summarise(timeline, label, measuredElsewhere(timeline.gpu_config, { realConfig }))), [shown]);
  const repeats = summaries[0]?.repeats ?? [];
  const [repeat, setRepeat] = useState<number | null>(null);
  const current = repeat ?? repeats[0] ?? 0;
  const series = useMemo(() => stepSeries(shown, current, metric), [shown, current, metric]);
  const lines = useMemo(
    () => [
      ...(series.hasReal ? [{ label: realConfig === null ? "Real" : `Real ${realConfig}`, colour: "--real", values: series.real, dashed: true }] : []),
      ...series.simulated.map((one, i) => ({ label: one.label, colour: seriesVariable(i), values: one.values })),
    ],
    [series],
  );
  return (
    <>
      <RequestTable summaries={summaries} />
      <div class="row">
        <div class="segmented" role="group" aria-label="What to draw">
          {METRICS.map(([key, label]) => (
            <button key={key} type="button" aria-pressed={metric === key} onClick={() => setMetric(key)}>
              {label}
            </button>
          ))}
        </div>
        {repeats.length > 1 && (
          <label class="inline">
            Repeat{" "}
            <select value={current} onChange={(event) => setRepeat(Number(event.currentTarget.value))}>
              {repeats.map((value) => (
                <option key={value} value={value}>
                  {value}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <LineChart label={`${metric === "wall" ? "Step wall time" : "GPU busy time"} of each step, repeat ${current}`} x={series.x} lines={lines} formatX={(step) => (Number.isInteger(step) ? `step ${step}` : "")} formatY={formatNs} />
      {summaries.some((one) => one.busyMapePct !== null) && (
        <Banner tone="info" title="A small request error is not a small GPU error">
          <p>
            Host time and gaps are kept as measured, so they dilute the error of the simulated kernels: compare the GPU-busy error with the wall error.
          </p>
        </Banner>
      )}
    </>
  );
}
