// Every trace, live; and, when there is none, how to send the first one.
import { Age, Badge, Command, ErrorNote, Loading, PageHead, StateBadge, TableScroll } from "../components/basics";
import type { Trace } from "../model/entities";
import { toTrace } from "../model/entities";
import { formatBytes, formatExact } from "../model/units";
import { demoCommand, profilerCommand, uploadCommand } from "../model/upload-commands";
import { pathOf } from "../router";
import { useLoaded } from "../state/poll";
import { client, health } from "../state/session";

/** The server rescans its bucket every 2 s; asking more often shows nothing new. */
const POLL_MS = 2000;

export function TracesView() {
  const { data, error, loading, reload } = useLoaded("traces", async (signal) => (await client.traces(signal)).map(toTrace), POLL_MS);
  return (
    <>
      <PageHead title="Traces">
        <p class="muted">What was captured once on a real GPU. A ready trace can run on any config of its architecture.</p>
      </PageHead>
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {loading && <Loading what="traces" />}
      {data !== null && (data.length === 0 ? <NoTraces /> : <TraceTable traces={data} />)}
      {data !== null && data.length > 0 && (
        <details class="card more">
          <summary>Send another trace</summary>
          <div class="body">
            <UploadHelp />
          </div>
        </details>
      )}
    </>
  );
}

function TraceTable({ traces }: { traces: readonly Trace[] }) {
  return (
    <div class="card">
      <TableScroll label="Traces">
        <table class="stack" data-testid="traces">
          <thead>
            <tr>
              <th>Trace</th>
              <th>State</th>
              <th>Model</th>
              <th>GPU</th>
              <th class="num">Kernels</th>
              <th class="num size-cell">Size</th>
              <th class="num">Added</th>
              <th>
                <span class="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {traces.map((trace) => (
              <tr key={trace.id} data-testid="trace-row">
                <td class="main-cell">
                  <a href={pathOf({ view: "trace", traceId: trace.id })} class="break strong">
                    {trace.id}
                  </a>
                  {trace.error !== null && <p class="problem small clamp">{trace.error}</p>}
                </td>
                <td data-label="State">
                  <div class="row tight">
                    <StateBadge state={trace.state} />
                    {trace.sample && <Badge title="Came with Cascade, rebuilt from published statistics">Sample</Badge>}
                  </div>
                </td>
                <td data-label="Model" class="model-cell">{trace.model ?? <span class="muted">not given</span>}</td>
                <td data-label="GPU">
                  <span>
                    {trace.sourceGpu === null ? trace.arch : <>{trace.sourceGpu.replace(/^NVIDIA /, "")} <span class="muted nowrap">{trace.arch}</span></>}
                  </span>
                </td>
                <td data-label="Kernels" class="num">
                  {formatExact(trace.kernelCount)}
                </td>
                <td data-label="Size" class="num size-cell">
                  {formatBytes(trace.bytes)}
                </td>
                <td data-label="Added" class="num">
                  <Age at={trace.createdAt} />
                </td>
                <td class="num">
                  {trace.state === "ready" && !trace.sample && (
                    <a class="button tiny" href={pathOf({ view: "new-run", traceId: trace.id })} aria-label={`New run of ${trace.id}`}>
                      New run
                    </a>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableScroll>
    </div>
  );
}

function NoTraces() {
  return (
    <section class="card" data-testid="no-traces">
      <div class="empty">
        <h2>No trace yet</h2>
        <p>Upload one and it appears here as soon as its first file lands.</p>
        <UploadHelp />
      </div>
    </section>
  );
}

function UploadHelp() {
  const endpoint = health.value?.s3_endpoint ?? "https://YOUR-S3-ENDPOINT";
  return (
    <div class="upload">
      <div>
        <h3>A trace directory that you have</h3>
        <p class="small muted">
          In a clone of Cascade. The directory holds <code>traces/kernelslist.g</code> and its kernels; <code>trace_gpu_arch</code> is the architecture of the GPU that it was traced on.
        </p>
        <Command text={uploadCommand(endpoint)} />
      </div>
      <div>
        <h3>None at hand: the small one that comes with Cascade</h3>
        <Command text={demoCommand(endpoint)} />
      </div>
      <div>
        <h3>A workload on a real GPU, streamed while it is traced</h3>
        <Command text={profilerCommand(endpoint)} />
      </div>
    </div>
  );
}
