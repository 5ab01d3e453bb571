// What the sims wrote, by config and replica, and the run's Perfetto trace.
import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import type { RunFile, SimFile } from "../../api/types";
import { ErrorNote } from "../../components/basics";
import { formatBytes, plural } from "../../model/units";
import type { Preview } from "../../state/download";
import { canPreview, download, previewFile } from "../../state/download";
import type { RunStore } from "../../state/live-run";
import { openInPerfetto } from "../../state/perfetto";
import { useRenewed } from "../../state/poll";
import { client } from "../../state/session";

/** Looks for files of sims that have ended since. */
const RENEW_MS = 2000;

export function OutputsSection({ store }: { store: RunStore }) {
  const ended = useComputed(() => [...(store.run.value?.sims.values() ?? [])].filter((sim) => sim.finishedAt !== null).length).value;
  const over = useComputed(() => store.run.value !== null && store.run.value.run.state !== "active").value;
  const anyKernel = useComputed(() => (store.run.value?.kernelCount ?? 0) > 0).value;
  const files = useRenewed(`outputs ${store.runId}`, () => String(ended), (signal) => client.runFiles(store.runId, signal), over ? undefined : RENEW_MS);
  const [failure, setFailure] = useState<Error | null>(null);
  const attempt = async (work: Promise<void>) => {
    setFailure(null);
    try {
      await work;
    } catch (error) {
      setFailure(error instanceof Error ? error : new Error(String(error)));
    }
  };
  const why = anyKernel ? undefined : "Enabled once a sim has finished a kernel";
  return (
    <section class="card" aria-labelledby="outputs" data-testid="outputs">
      <header>
        <h2 id="outputs">Outputs</h2>
        <div class="row tight">
          <button type="button" disabled={!anyKernel} title={why} onClick={() => void attempt(download(client.perfettoPath(store.runId), `${store.runId}-perfetto.json`))} data-testid="perfetto-json">
            Perfetto JSON
          </button>
          <button type="button" disabled={!anyKernel} title={why} onClick={() => void attempt(openInPerfetto(store.runId))} data-testid="perfetto-open">
            Open in Perfetto
          </button>
        </div>
      </header>
      <div class="body stack-gap">
        {failure !== null && <ErrorNote error={failure} />}
        {files.error !== null && <ErrorNote error={files.error} retry={files.reload} />}
        {files.data !== null && files.data.length === 0 && <p class="muted">{over ? "No sim uploaded a file." : "A sim uploads its files when it ends. None is here yet."}</p>}
        {files.data !== null && files.data.length > 0 && <FileGroups files={files.data} />}
      </div>
    </section>
  );
}

function FileGroups({ files }: { files: readonly RunFile[] }) {
  const byConfig = new Map<string, Map<string, RunFile[]>>();
  for (const file of files) {
    const config = byConfig.get(file.gpu_config) ?? new Map<string, RunFile[]>();
    byConfig.set(file.gpu_config, config);
    config.set(file.sim_id, [...(config.get(file.sim_id) ?? []), file]);
  }
  return (
    <>
      {[...byConfig].map(([config, sims]) => (
        <div key={config}>
          <h3>{config}</h3>
          {[...sims].map(([simId, list]) => (
            <details key={simId} class="replica" open={files.length <= 12}>
              <summary>
                Replica {list[0]?.replica} <span class="muted small">{plural(list.length, "file")}</span>
              </summary>
              <ul class="files">
                {list.map((file) => (
                  <FileRow key={file.name} simId={simId} file={file} />
                ))}
              </ul>
            </details>
          ))}
        </div>
      ))}
    </>
  );
}

export function FileRow({ simId, file }: { simId: string; file: SimFile }) {
  const [preview, setPreview] = useState<Preview | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const path = client.simFilePath(simId, file.name);
  const attempt = async (work: () => Promise<void>) => {
    setFailure(null);
    setBusy(true);
    try {
      await work();
    } catch (error) {
      setFailure(error instanceof Error ? error : new Error(String(error)));
    }
    setBusy(false);
  };
  const toggle = () => {
    if (preview !== null) setPreview(null);
    else void attempt(async () => setPreview(await previewFile(path, file.name)));
  };
  return (
    <li data-testid="file">
      <div class="row spread">
        <span class="mono break">
          {file.name} <span class="muted">{formatBytes(file.size)}</span>
        </span>
        <span class="row tight">
          {canPreview(file.name, file.size) && (
            <button type="button" class="tiny" disabled={busy} aria-expanded={preview !== null} onClick={toggle} aria-label={`Preview ${file.name}`}>
              {preview === null ? "Preview" : "Hide"}
            </button>
          )}
          <button type="button" class="tiny" disabled={busy} onClick={() => void attempt(() => download(path, file.name))} aria-label={`Download ${file.name}`}>
            Download
          </button>
        </span>
      </div>
      {failure !== null && <ErrorNote error={failure} />}
      {preview !== null && (
        <>
          <pre class="preview" tabIndex={0} role="group" aria-label={`Preview of ${file.name}`} data-testid="preview">
            {preview.lines.join("\n")}
          </pre>
          <p class="small muted">{preview.whole ? plural(preview.lines.length, "line") : `The beginning: ${plural(preview.lines.length, "line")}`}</p>
        </>
      )}
    </li>
  );
}
