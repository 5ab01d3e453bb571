// One sim's kernels with what Accel-Sim counted in each: a table of its own page,
// because its blocks are some 30 kB a kernel and the live page leaves them out.
import { useMemo, useState } from "preact/hooks";
import { ErrorNote, KernelName, Loading, PageHead, StateBadge, WordBadge } from "../../components/basics";
import { Notices } from "../../components/notices";
import { VirtualList } from "../../components/virtual";
import type { RunDetail, SimResults } from "../../api/types";
import { readableName } from "../../model/demangle";
import { noticesFor, timeWordOf } from "../../model/engine";
import { toRunDetail, toSim } from "../../model/entities";
import type { MetricTable } from "../../model/kernel-metrics";
import { metricTable, sortMetrics, withCounters } from "../../model/kernel-metrics";
import { ResultsReader } from "../../model/results-reader";
import { MISSING, formatExact, plural } from "../../model/units";
import { pathOf } from "../../router";
import { useLoaded } from "../../state/poll";
import { client } from "../../state/session";

export function KernelsView({ runId, simId }: { runId: string; simId: string }) {
  const { data, error, loading, reload } = useLoaded(`kernels ${simId}`, async (signal) => {
    const [run, results] = await Promise.all([client.run(runId, signal), readResults(simId, signal)]);
    return { run, results };
  });
  const label = data === null ? simId : `${data.results.sim.gpu_config} replica ${data.results.sim.replica}`;
  return (
    <>
      <PageHead
        title="Kernel metrics"
        crumbs={[
          { label: "Runs", href: "/runs" },
          { label: runId, href: pathOf({ view: "run", runId }) },
          { label, href: pathOf({ view: "sim", runId, simId }) },
        ]}
        badges={data !== null && <StateBadge state={data.results.sim.state} />}
        actions={
          <button type="button" onClick={reload}>
            Read again
          </button>
        }
      />
      {loading && <Loading what="the kernels" />}
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {data !== null && <Metrics wire={data.run} results={data.results} />}
    </>
  );
}

async function readResults(simId: string, signal: AbortSignal): Promise<SimResults> {
  const response = await client.open(client.simResultsPath(simId), { signal });
  const results = new ResultsReader(withCounters);
  if (response.body === null) return results.end();
  const bytes: ReadableStream<BufferSource> = response.body;
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return results.end();
    results.push(value);
  }
}

function Metrics({ wire, results }: { wire: RunDetail; results: SimResults }) {
  const table = useMemo(() => metricTable(results.kernels), [results]);
  const run = useMemo(() => toRunDetail(wire), [wire]);
  const sim = toSim(results.sim);
  const notices = noticesFor({ run, trace: run.trace, sims: [sim], kernelNames: new Set(results.kernels.slice(0, 64).map((kernel) => kernel.kernel_name)), traceKernelNames: null });
  return (
    <>
      <Notices notices={notices} />
      <section class="card" aria-labelledby="metrics">
        <header>
          <h2 id="metrics" class="row tight">
            {plural(table.rows.length, "kernel")} {table.rows.length > 0 && <WordBadge word={timeWordOf([sim], { run, trace: run.trace })} />}
          </h2>
          <span class="small muted">As Accel-Sim's log counts them, each kernel by itself; a column's title names its line of the log.</span>
        </header>
        {table.rows.length === 0 ? <p class="body muted">{sim.finishedAt === null ? "No kernel has finished yet." : "This sim finished no kernel. Its log tells how far it came."}</p> : <Rows table={table} />}
      </section>
    </>
  );
}

const ROW_PX = 32;
const NAME_COLUMNS = "44px minmax(var(--metric-name), 1fr)";
const NUMBER_PX = 96;
const GAP_PX = 12;

function Rows({ table }: { table: MetricTable }) {
  const [text, setText] = useState("");
  /** Null is launch order. */
  const [sort, setSort] = useState<{ column: number | null; descending: boolean }>({ column: null, descending: false });
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const found = wanted === "" ? table.rows : table.rows.filter((row) => row.name.toLowerCase().includes(wanted) || readableName(row.name).full.toLowerCase().includes(wanted));
    return sortMetrics(found, sort.column, sort.descending);
  }, [table, text, sort]);
  const by = (column: number | null) => setSort({ column, descending: sort.column === column ? !sort.descending : column !== null });
  const layout = { gridTemplateColumns: `${NAME_COLUMNS} repeat(${table.columns.length}, ${NUMBER_PX}px)`, minWidth: `calc(90px + var(--metric-name) + ${table.columns.length * (NUMBER_PX + GAP_PX)}px)` };
  const heading = (column: number | null, label: string, title: string) => (
    <div key={label} role="columnheader" class="num" title={title} aria-sort={sort.column === column ? (sort.descending ? "descending" : "ascending") : "none"}>
      <button type="button" class="sorter" onClick={() => by(column)}>
        {label}
        <span aria-hidden="true">{sort.column === column ? (sort.descending ? "▾" : "▴") : ""}</span>
      </button>
    </div>
  );
  return (
    <>
      <div class="body row">
        <input type="search" placeholder="Search kernels" aria-label="Search kernels" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="small muted" role="status">
          {shown.length === table.rows.length ? "" : `${formatExact(shown.length)} of ${plural(table.rows.length, "kernel")}`}
        </span>
      </div>
      <VirtualList
        class="metric-grid"
        label="Kernels of the sim"
        testid="kernel-metrics"
        count={shown.length}
        rowPx={ROW_PX}
        heightPx={ROW_PX * 20}
        header={
          <div class="grid-row grid-head" role="row" style={layout}>
            {heading(null, "#", "Launch order")}
            <div role="columnheader">Kernel</div>
            {table.columns.map((column, at) => heading(at, column.label, column.title))}
          </div>
        }
        row={(index) => {
          const row = shown[index];
          if (row === undefined) return null;
          return (
            <div key={row.index} class="grid-row" role="row" aria-rowindex={index + 2} style={{ ...layout, height: `${ROW_PX}px` }}>
              <div role="cell" class="num">
                {row.index + 1}
              </div>
              <div role="cell" class="cut">
                <KernelName name={row.name} />
              </div>
              {table.columns.map((column, at) => {
                const value = row.values[at] ?? null;
                return (
                  <div key={column.key} role="cell" class="num">
                    {value === null ? MISSING : column.format(value)}
                  </div>
                );
              })}
            </div>
          );
        }}
      />
    </>
  );
}
