// Two or more runs, or the configs of one, side by side. The address names the
// runs and the hidden columns, so that a comparison can be sent to someone.
import { useMemo } from "preact/hooks";
import type { TimelineLane } from "../charts/kernel-timeline";
import { KernelTimeline } from "../charts/kernel-timeline";
import { Banner, ErrorNote, Loading, PageHead, StateBadge } from "../components/basics";
import { ColumnCards, ComparisonTable } from "../components/comparison-table";
import { Notices } from "../components/notices";
import { RequestTable } from "../components/request-table";
import type { ComparedRun } from "../model/compare-runs";
import { compareColumns, differentTraces, evidenceOf, groupBySim, sharedReal } from "../model/compare-runs";
import { buildMetricTable, buildTable } from "../model/comparison";
import { isComparable, measuredElsewhere, mergedNotices, noticesFor } from "../model/engine";
import type { Run } from "../model/entities";
import { shareNames, toKernel, toRun, toRunDetail } from "../model/entities";
import { letterOf } from "../model/labels";
import { firstOfConfig, labelOf, summarise } from "../model/step-timing";
import { pathOf, query, setRepeated } from "../router";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";

export function CompareView() {
  const ids = query.value.getAll("run");
  const list = useLoaded("compare-runs", async (signal) => (await client.runs(signal)).map(toRun), 10_000);
  return (
    <>
      <PageHead title="Compare">
        <p class="muted">Runs and configs side by side, kernel by kernel. Kernels are matched by their position.</p>
      </PageHead>
      {list.data !== null && <Picker runs={list.data} ids={ids} />}
      {list.error !== null && list.data === null && <ErrorNote error={list.error} retry={list.reload} />}
      {ids.length > 0 && <Compared key={ids.join()} ids={ids} />}
    </>
  );
}

function Picker({ runs, ids }: { runs: readonly Run[]; ids: readonly string[] }) {
  const others = runs.filter((run) => !ids.includes(run.id));
  return (
    <section class="card" aria-label="Compared runs">
      <div class="body stack-gap">
        {ids.length > 0 && (
          <ul class="chips">
            {ids.map((id, at) => {
              const run = runs.find((one) => one.id === id);
              return (
                <li key={id} class="row tight">
                  {ids.length > 1 && <strong>{letterOf(at)}</strong>}
                  <a href={pathOf({ view: "run", runId: id })}>{id}</a>
                  {run !== undefined && <StateBadge state={run.state} />}
                  <button type="button" class="tiny quiet" aria-label={`Remove ${id}`} onClick={() => setRepeated("run", ids.filter((other) => other !== id))}>
                    ✕
                  </button>
                </li>
              );
            })}
          </ul>
        )}
        <label class="inline">
          {ids.length === 0 ? "Choose a run" : "Add a run"}{" "}
          <select
            value=""
            data-testid="add-run"
            onChange={(event) => {
              if (event.currentTarget.value !== "") setRepeated("run", [...ids, event.currentTarget.value]);
            }}
          >
            <option value="">{others.length === 0 ? "no other run" : "Choose…"}</option>
            {others.map((run) => (
              <option key={run.id} value={run.id}>
                {run.id} · {run.traceId} · {run.entries.map((entry) => entry.gpu_config).join(", ")}
              </option>
            ))}
          </select>
        </label>
        {ids.length === 0 && <p class="muted small">One run compares its own configs; more runs add theirs.</p>}
      </div>
    </section>
  );
}

async function loadRun(id: string, signal: AbortSignal): Promise<ComparedRun> {
  const [run, kernels] = await Promise.all([client.run(id, signal), client.kernels(id, signal)]);
  const comparison = run.trace.has_real_timing ? await client.comparison(id, signal) : null;
  const real = new Map((comparison?.rows ?? []).map((row) => [row.kernel_index, { ns: row.real_ns, name: row.kernel_name }]));
  return { run: toRunDetail(run), kernels: groupBySim(shareNames(kernels.map(toKernel), new Map())), real };
}

function Compared({ ids }: { ids: readonly string[] }) {
  const { data, error, loading, reload } = useLoaded(`compare ${ids.join()}`, (signal) => Promise.all(ids.map((id) => loadRun(id, signal))));
  const active = data?.some(({ run }) => run.state === "active") === true;
  return (
    <>
      {loading && <Loading what="the runs" />}
      {error !== null && <ErrorNote error={error} retry={reload} />}
      {data !== null && (
        <>
          {active && (
            <div class="row">
              <span class="muted">A compared run is still active; this page shows it as it was when loaded.</span>
              <button type="button" class="tiny" onClick={reload}>
                Load again
              </button>
            </div>
          )}
          <SideBySide runs={data} />
        </>
      )}
    </>
  );
}

function SideBySide({ runs }: { runs: readonly ComparedRun[] }) {
  const hidden = query.value.getAll("hide");
  const all = useMemo(() => compareColumns(runs), [runs]);
  const columns = useMemo(() => all.filter((column) => !hidden.includes(column.key)), [all, hidden.join()]);
  const table = useMemo(() => buildTable(columns, sharedReal(runs)), [columns, runs]);
  const traces = differentTraces(runs);
  const comparable = useMemo(() => runs.every((run) => isComparable(evidenceOf(run))), [runs]);
  const lanes = useMemo(
    () =>
      columns.flatMap((column): TimelineLane[] => {
        const shown = column.replicas.find((replica) => replica.succeeded) ?? column.replicas[0];
        return shown === undefined || shown.kernels.length === 0 ? [] : [{ key: column.key, label: column.label, kernels: shown.kernels, real: false, word: column.word }];
      }),
    [columns],
  );
  const toggle = (key: string) => setRepeated("hide", hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key]);
  return (
    <>
      <CompareNotices runs={runs} />
      {traces.length > 0 && (
        <Banner tone="warn" title="These runs are of different traces" testid="different-traces">
          <p>Row by row they hold different kernels: rows are matched by position only, and errors are against each trace's own real timing. Compare totals and requests first.</p>
        </Banner>
      )}
      <section class="card" aria-labelledby="kernels">
        <header>
          <h2 id="kernels">Kernel time</h2>
          {all.length > 2 && (
            <div class="row">
              {all.map((column) => (
                <label key={column.key} class="check small">
                  <input type="checkbox" checked={!hidden.includes(column.key)} onChange={() => toggle(column.key)} /> {column.label}
                </label>
              ))}
            </div>
          )}
        </header>
        <div class="body stack-gap">
          {table.rows.length === 0 ? (
            <p class="muted">No kernel to compare yet.</p>
          ) : (
            <>
              <ColumnCards table={table} comparable={comparable} />
              <ComparisonTable table={table} metricTable={(metric) => buildMetricTable(columns, metric)} />
            </>
          )}
        </div>
      </section>
      {lanes.length > 0 && (
        <section class="card" aria-labelledby="lanes">
          <header>
            <h2 id="lanes">Timelines</h2>
            <span class="small muted">The first successful replica of each column</span>
          </header>
          <div class="body">
            <KernelTimeline lanes={lanes} />
          </div>
        </section>
      )}
      <Requests runs={runs} />
    </>
  );
}

function CompareNotices({ runs }: { runs: readonly ComparedRun[] }) {
  const named = useMemo(() => runs.map((run, at) => ({ letter: letterOf(at), notices: noticesFor(evidenceOf(run)) })), [runs]);
  return <Notices notices={runs.length > 1 ? mergedNotices(named) : (named[0]?.notices ?? [])} />;
}

/** About 4 MB a sim: runs with more successful sims show their step timing on their own page. */
const MOST_SIMS = 8;

function Requests({ runs }: { runs: readonly ComparedRun[] }) {
  const fitting = runs.filter(({ run }) => run.trace.hasStepTimeline && run.sims.filter((sim) => sim.state === "succeeded").length <= MOST_SIMS);
  const ids = fitting.map(({ run }) => run.id);
  const { data } = useLoaded(`compare-steps ${ids.join()}`, (signal) => Promise.all(ids.map(async (id) => ({ id, timelines: await client.stepTimelines(id, signal) }))));
  const elsewhere = (id: string, config: string) => {
    const run = runs.find((one) => one.run.id === id)?.run;
    return run === undefined ? null : measuredElsewhere(config, run.trace);
  };
  const rows = useMemo(
    () => (data ?? []).flatMap(({ id, timelines }) => firstOfConfig(timelines).map((timeline) => summarise(timeline, `${runs.length > 1 ? `${letterOf(runs.findIndex(({ run }) => run.id === id))} · ` : ""}${labelOf(timeline, false)}`, elsewhere(id, timeline.gpu_config)))),
    [data, runs],
  );
  if (rows.length === 0) return null;
  return (
    <section class="card" aria-labelledby="requests">
      <header>
        <h2 id="requests">Requests and steps</h2>
        <span class="small muted">From step timing; host time and gaps as measured</span>
      </header>
      <RequestTable summaries={rows} />
    </section>
  );
}
