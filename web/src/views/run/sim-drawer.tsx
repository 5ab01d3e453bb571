// One sim in detail, beside the run: every number, its log tail, its files.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Age, Banner, ErrorNote, Facts, KernelName, Meter, StateBadge, WordBadge } from "../../components/basics";
import { ENGINE_LABEL, timeWordOf } from "../../model/engine";
import type { Sim, SimState } from "../../model/entities";
import { MISSING, formatExact, formatMhz, formatNs, formatRate, formatSpan } from "../../model/units";
import { navigate, pathOf } from "../../router";
import { now } from "../../state/clock";
import { download } from "../../state/download";
import type { RunStore } from "../../state/live-run";
import { useLoaded } from "../../state/poll";
import { client } from "../../state/session";
import { FileRow } from "./outputs";

export function SimDrawer({ store, simId }: { store: RunStore; simId: string }) {
  const own = store.sim(simId);
  const box = useRef<HTMLElement>(null);
  const close = () => navigate(pathOf({ view: "run", runId: store.runId }), { replace: true });
  // With the drawing, not after it: the next key may come before a busy page's next frame.
  useLayoutEffect(() => {
    const back = document.activeElement;
    box.current?.focus();
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape") close();
    };
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("keydown", onKey);
      if (back instanceof HTMLElement) back.focus({ preventScroll: true });
    };
  }, []);
  return (
    <aside class="drawer" aria-label="Sim details" ref={box} tabIndex={-1} data-testid="sim-drawer">
      <div class="row spread">
        <h2>{own === undefined ? "Sim" : `${own.value.config} · replica ${own.value.replica}`}</h2>
        <button type="button" class="tiny" onClick={close} aria-label="Close the sim's details">
          Close
        </button>
      </div>
      {own === undefined ? <ErrorNote error={new Error(`This run has no sim ${simId}.`)} /> : <Details sim={own.value} store={store} />}
    </aside>
  );
}

/** A sim that was lost and then cancelled keeps the word about its silence. */
const ERROR_TITLE: Partial<Record<SimState, string>> = { failed: "Failed", lost: "Lost", cancelled: "Before it was cancelled" };

function Details({ sim, store }: { sim: Sim; store: RunStore }) {
  const [failure, setFailure] = useState<Error | null>(null);
  const ended = sim.finishedAt !== null;
  const files = useLoaded(`files ${sim.id} ${ended}`, (signal) => client.simFiles(sim.id, signal));
  const kernels = store.run.value?.kernels.get(sim.id) ?? [];
  const simulatedNs = kernels.length === 0 ? null : kernels.reduce((sum, kernel) => sum + (kernel.timeNs ?? 0), 0);
  const live = store.run.value;
  const word = live === null ? "simulated" : timeWordOf([sim], live);
  const span = sim.startedAt === null ? null : (sim.finishedAt ?? now.value) - sim.startedAt;
  const save = async (path: string, name: string) => {
    setFailure(null);
    try {
      await download(path, name);
    } catch (error) {
      setFailure(error instanceof Error ? error : new Error(String(error)));
    }
  };
  return (
    <>
      <div class="row">
        <StateBadge state={sim.state} />
        <code>{sim.id}</code>
      </div>
      {sim.error !== null && (
        <Banner tone={sim.state === "failed" ? "error" : "warn"} title={ERROR_TITLE[sim.state] ?? "Reported"}>
          <p class="break">{sim.error}</p>
        </Banner>
      )}
      <div>
        <div class="row spread small">
          <span>
            {formatExact(sim.kernelsDone)} of {formatExact(sim.kernelsTotal)} kernels
          </span>
          <span class="muted">
            heartbeat <Age at={sim.heartbeatAt} />
          </span>
        </div>
        <Meter done={sim.kernelsDone} total={sim.kernelsTotal} state={sim.state} />
      </div>
      <Facts
        items={[
          [ended ? "Last kernel" : "Current kernel", sim.currentKernel === null ? MISSING : <KernelName name={sim.currentKernel} />],
          [`Kernel time, ${word}`, formatNs(simulatedNs)],
          ["Cycles", formatExact(sim.latest.gpu_tot_sim_cycle)],
          ["Instructions", formatExact(sim.latest.gpu_tot_sim_insn)],
          ["IPC", formatExact(sim.latest.gpu_tot_ipc)],
          ["Sim rate", formatRate(sim.latest.sim_rate_ips, " inst")],
          [ended ? "Took" : "Running for", formatSpan(span)],
          ["Exit code", sim.exitCode === null ? MISSING : String(sim.exitCode)],
          ...(sim.logClockMhz === null ? [] : [["Clock in the log", `${formatMhz(sim.logClockMhz)}, not the config's`] as const]),
          ["Engine", ENGINE_LABEL[sim.engine] || "not stated"],
          ["Numbers are", <WordBadge word={word} />],
          ["Launcher", sim.launcherRef === null ? MISSING : <code>{sim.launcherRef}</code>],
        ]}
      />
      <div class="row tight">
        <a class="button tiny" href={pathOf({ view: "kernels", runId: sim.runId, simId: sim.id })} data-testid="open-kernels">
          Kernel metrics
        </a>
        <a class="button tiny" href={pathOf({ view: "log", runId: sim.runId, simId: sim.id })} data-testid="open-log">
          Full log
        </a>
        <button type="button" class="tiny" onClick={() => void save(client.simLogPath(sim.id), `${sim.id}.log`)}>
          Download log
        </button>
        <button type="button" class="tiny" onClick={() => void save(client.simResultsPath(sim.id), `${sim.id}-results.json`)}>
          Results
        </button>
      </div>
      {failure !== null && <ErrorNote error={failure} />}
      <div>
        <h3>Last log lines</h3>
        <pre class="tail tall" tabIndex={0} role="group" aria-label="Last log lines">
          {sim.logTail.join("\n") || "no output yet"}
        </pre>
      </div>
      <div>
        <h3>Files</h3>
        {files.data === null || files.data.length === 0 ? (
          <p class="muted small">{ended ? "The simulator uploaded no file." : "Files arrive when the sim ends."}</p>
        ) : (
          <ul class="files">
            {files.data.map((file) => (
              <FileRow key={file.name} simId={sim.id} file={file} />
            ))}
          </ul>
        )}
      </div>
    </>
  );
}
