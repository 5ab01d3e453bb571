// One trace: what it came from, its kernels, its files, and the way to a run.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Age, Badge, Banner, ErrorNote, Facts, KernelName, Loading, PageHead, StateBadge } from "../components/basics";
import { VirtualList } from "../components/virtual";
import type { TraceWithKernels } from "../model/entities";
import { toTraceDetail } from "../model/entities";
import { launchProblem } from "../model/launch";
import type { KernelSort } from "../model/trace-kernels";
import { selectKernels } from "../model/trace-kernels";
import { MISSING, formatBytes, formatDim, formatExact, plural } from "../model/units";
import { pathOf } from "../router";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";

export function TraceView({ traceId }: { traceId: string }) {
  const [settled, setSettled] = useState(false);
  const { data, error, loading, reload } = useLoaded(
    `trace ${traceId}`,
    async (signal) => {
      const trace = toTraceDetail(await client.trace(traceId, signal));
      setSettled(trace.state === "ready" || trace.state === "failed");
      return trace;
    },
    settled ? undefined : 2000,
  );
  const problem = data === null ? "Loading" : launchProblem(data);
  return (
    <>
      <PageHead
        title={traceId}
        crumbs={[{ label: "Traces", href: "/traces" }]}
        badges={
          data !== null && (
            <>
              <StateBadge state={data.state} />
              {data.sample && <Badge>Sample</Badge>}
            </>
          )
        }
        actions={
          data !== null &&
          (problem === null ? (
            <a class="button primary" href={pathOf({ view: "new-run", traceId })} data-testid="new-run">
              New run
            </a>
          ) : (
            <>
              {!data.sample && data.state !== "failed" && <span class="small muted">{problem}</span>}
              <button type="button" disabled title={problem} data-testid="new-run">
                New run
              </button>
            </>
          ))
        }
      />
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {loading && <Loading what="the trace" />}
      {data !== null && <TraceBody trace={data} />}
    </>
  );
}

function TraceBody({ trace }: { trace: TraceWithKernels }) {
  return (
    <>
      {trace.state === "failed" && (
        <Banner tone="error" title="This trace failed">
          <pre class="wrap">{trace.error}</pre>
        </Banner>
      )}
      {trace.sample && (
        <Banner tone="info" title="Reconstructed sample">
          <p>This trace came with Cascade. Its data were rebuilt from published statistics, not captured, and it has no instruction traces, so it can't be simulated again.</p>
        </Banner>
      )}
      <section class="card" aria-labelledby="about">
        <header>
          <h2 id="about">Where it comes from</h2>
        </header>
        <div class="body stack-gap">
          <Facts
            items={[
              ["Model", trace.model ?? MISSING],
              ["Source GPU", trace.sourceGpu ?? MISSING],
              ["Architecture", trace.arch],
              ["Suggested config", trace.suggestedConfig ?? MISSING],
              ["Kernels", formatExact(trace.kernelCount)],
              ["Size", formatBytes(trace.bytes)],
              ["Real kernel timing", trace.hasRealTiming ? "yes" : "no"],
              ["Step timing", trace.hasStepTimeline ? "yes" : "no"],
              ["Added", <Age at={trace.createdAt} />],
              ["Changed", <Age at={trace.updatedAt} />],
            ]}
          />
          <TextList title="Prompts" items={trace.prompts} />
          <TextList title="Layers" items={trace.layers} />
          {trace.extra.length > 0 && (
            <details>
              <summary>Rest of metadata.json ({trace.extra.length})</summary>
              <Facts items={trace.extra.map(([key, value]) => [key, <code class="break">{value}</code>] as const)} />
            </details>
          )}
        </div>
      </section>
      <KernelTable trace={trace} />
      <Files trace={trace} />
    </>
  );
}

function TextList({ title, items }: { title: string; items: readonly string[] }) {
  if (items.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <ul class="chips">
        {items.map((item, i) => (
          <li key={i}>
            <code>{item}</code>
          </li>
        ))}
      </ul>
    </div>
  );
}

const COLUMNS: ReadonlyArray<{ key: KernelSort; label: string; num: boolean }> = [
  { key: "id", label: "#", num: true },
  { key: "name", label: "Kernel", num: false },
  { key: "grid", label: "Grid", num: true },
  { key: "block", label: "Block", num: true },
  { key: "instructions", label: "Instructions", num: true },
];
const ROW_PX = 34;

function KernelTable({ trace }: { trace: TraceWithKernels }) {
  const [text, setText] = useState("");
  const [sort, setSort] = useState<{ key: KernelSort; descending: boolean }>({ key: "id", descending: false });
  const shown = useMemo(() => selectKernels(trace.kernels, text, sort.key, sort.descending), [trace.kernels, text, sort]);
  const by = (key: KernelSort) => setSort({ key, descending: sort.key === key ? !sort.descending : key !== "id" && key !== "name" });
  return (
    <section class="card" aria-labelledby="kernels">
      <header>
        <h2 id="kernels">Kernels</h2>
        <div class="row">
          <span class="small muted" role="status">
            {shown.length === trace.kernels.length ? plural(shown.length, "kernel") : `${formatExact(shown.length)} of ${plural(trace.kernels.length, "kernel")}`}
          </span>
          <input type="search" placeholder="Search names" aria-label="Search kernels" value={text} onInput={(event) => setText(event.currentTarget.value)} data-testid="kernel-search" />
        </div>
      </header>
      {trace.kernels.length === 0 ? (
        <div class="body muted">
          {trace.state === "ready" ? "The trace lists no kernel statistics (no stats_ctx_* file)." : "The kernel list fills in when the trace is ready."}
        </div>
      ) : (
        <VirtualList
          class="kernel-grid"
          label="Kernels of the trace"
          testid="trace-kernels"
          count={shown.length}
          rowPx={ROW_PX}
          heightPx={ROW_PX * 16}
          header={
            <div class="grid-row grid-head" role="row">
              {COLUMNS.map((column) => (
                <div key={column.key} role="columnheader" class={column.num ? "num" : ""} aria-sort={sort.key === column.key ? (sort.descending ? "descending" : "ascending") : "none"}>
                  <button type="button" class="sorter" onClick={() => by(column.key)}>
                    {column.label}
                    <span aria-hidden="true">{sort.key === column.key ? (sort.descending ? "▾" : "▴") : ""}</span>
                  </button>
                </div>
              ))}
            </div>
          }
          row={(index) => {
            const kernel = shown[index];
            if (kernel === undefined) return null;
            return (
              <div key={kernel.kernel_id} class="grid-row" role="row" aria-rowindex={index + 2} style={{ height: `${ROW_PX}px` }}>
                <Cell num>{kernel.kernel_id}</Cell>
                <Cell>
                  <KernelName name={kernel.name} />
                </Cell>
                <Cell num>{formatDim(kernel.grid)}</Cell>
                <Cell num>{formatDim(kernel.block)}</Cell>
                <Cell num><Instructions trace={trace} count={kernel.instructions ?? null} /></Cell>
              </div>
            );
          }}
        />
      )}
    </section>
  );
}

function Instructions({ trace, count }: { trace: TraceWithKernels; count: number | null }) {
  if (count !== null) return <>{formatExact(count)}</>;
  if (trace.sample) return <span title="A sample has no instruction traces">{MISSING}</span>;
  return <span title="The kernel's trace was cut short">cut short</span>;
}

function Cell({ num = false, children }: { num?: boolean; children: ComponentChildren }) {
  return (
    <div role="cell" class={num ? "num" : "cut"}>
      {children}
    </div>
  );
}

function Files({ trace }: { trace: TraceWithKernels }) {
  const total = trace.files.reduce((sum, file) => sum + (file.bytes ?? 0), 0);
  return (
    <section class="card" aria-labelledby="files">
      <header>
        <h2 id="files">Files</h2>
        {trace.files.length > 0 && (
          <span class="small muted">
            {plural(trace.files.length, "file")}, {formatBytes(total)}
          </span>
        )}
      </header>
      {trace.files.length === 0 ? (
        <div class="body muted">metadata.json lists no files.</div>
      ) : (
        <VirtualList
          class="file-grid"
          label="Files of the trace"
          count={trace.files.length}
          rowPx={30}
          heightPx={300}
          row={(index) => {
            const file = trace.files[index];
            return (
              <div key={index} class="grid-row two" role="row" style={{ height: "30px" }}>
                <div role="cell" class="cut mono" title={file?.key}>
                  {file?.key}
                </div>
                <div role="cell" class="num">
                  {formatBytes(file?.bytes)}
                </div>
              </div>
            );
          }}
        />
      )}
    </section>
  );
}
