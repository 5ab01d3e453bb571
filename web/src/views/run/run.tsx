// A run: its sims live, their kernels on simulated time, configs compared, step
// timing and outputs. Everything live comes from one event stream.
import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Age, Badge, Banner, ErrorNote, Loading, PageHead, StateBadge, StateBar, StateCounts } from "../../components/basics";
import { Notices } from "../../components/notices";
import { kernelNamesOf, noticesFor } from "../../model/engine";
import type { LiveRun } from "../../model/run-state";
import { formatSpan, plural } from "../../model/units";
import { navigate, pathOf } from "../../router";
import { download } from "../../state/download";
import { RunStore } from "../../state/live-run";
import { client } from "../../state/session";
import { now } from "../../state/clock";
import { useLoaded } from "../../state/poll";
import { toRunDetail } from "../../model/entities";
import { ComparisonSection } from "./comparison-section";
import { EstimateSection, useEstimate } from "./estimate-section";
import { OutputsSection } from "./outputs";
import { SimDrawer } from "./sim-drawer";
import { SimsSection } from "./sims";
import { StepsSection } from "./steps";
import { TimelineSection } from "./timeline-section";

export function RunView({ runId, simId }: { runId: string; simId: string | null }) {
  const store = useMemo(() => new RunStore(runId), [runId]);
  useEffect(() => {
    store.open();
    return () => store.close();
  }, [store]);
  const estimate = useEstimate(store);
  const present = useComputed(() => store.run.value !== null).value;
  const refused = useComputed(() => (store.line.value.state === "refused" ? store.line.value.status : null)).value;
  if (refused === 404) {
    return (
      <>
        <PageHead title={runId} crumbs={[{ label: "Runs", href: "/runs" }]} />
        <ErrorNote error={new Error(`The server knows no run ${runId}. It may have been started on another server.`)} />
      </>
    );
  }
  return (
    <>
      <RunHead store={store} runId={runId} />
      <LineNote store={store} />
      {present ? (
        <>
          <Jumps store={store} estimate={!estimate.absent} />
          <RunNotices store={store} />
          <SimsSection store={store} selected={simId} />
          <EstimateSection store={store} loaded={estimate} />
          <TimelineSection store={store} />
          <ComparisonSection store={store} estimate={estimate.estimate} />
          <StepsSection store={store} />
          <OutputsSection store={store} />
          {simId !== null && <SimDrawer key={simId} store={store} simId={simId} />}
        </>
      ) : (
        <Loading what="the run" />
      )}
    </>
  );
}

function RunHead({ store, runId }: { store: RunStore; runId: string }) {
  const live = store.run.value;
  const [failure, setFailure] = useState<Error | null>(null);
  const saveResults = async () => {
    setFailure(null);
    try {
      await download(client.runResultsPath(runId), `${runId}-results.json`);
    } catch (error) {
      setFailure(error instanceof Error ? error : new Error(String(error)));
    }
  };
  return (
    <>
      <PageHead
        title={runId}
        crumbs={[{ label: "Runs", href: "/runs" }]}
        badges={
          live !== null && (
            <>
              <StateBadge state={live.run.state} />
              {live.run.sample && <Badge>Sample</Badge>}
              {live.run.replay && <Badge tone="warn">Replayed</Badge>}
            </>
          )
        }
        actions={
          live !== null && (
            <>
              <a class="button" href={`/compare?run=${encodeURIComponent(runId)}`}>
                Compare
              </a>
              {live.trace.hasStepTimeline && (
                <a class="button" href={`/simulator?trace=${encodeURIComponent(live.trace.id)}&config=${encodeURIComponent(live.run.entries[0]?.gpu_config ?? "")}`}>
                  Request simulator
                </a>
              )}
              <button type="button" onClick={() => void saveResults()} data-testid="download-results">
                Download results
              </button>
              {live.run.state === "active" && <CancelRun store={store} onFailure={setFailure} />}
            </>
          )
        }
      >
        {live !== null && <RunLine live={live} />}
      </PageHead>
      {failure !== null && <ErrorNote error={failure} />}
    </>
  );
}

function RunLine({ live }: { live: LiveRun }) {
  const sims = [...live.sims.values()];
  const ends = sims.map((sim) => sim.finishedAt);
  const end = ends.every((at) => at !== null) ? Math.max(...ends.map((at) => at ?? 0)) : now.value;
  const span = live.run.createdAt === null ? null : end - live.run.createdAt;
  return (
    <div class="run-line">
      <div class="row muted">
        <span>
          Trace <a href={pathOf({ view: "trace", traceId: live.trace.id })}>{live.trace.id}</a>
        </span>
        <span>
          started <Age at={live.run.createdAt} />
        </span>
        <span>
          {live.run.state === "active" ? "running for" : "took"} {formatSpan(span)}
        </span>
      </div>
      <div class="run-bar">
        <StateBar counts={live.run.simCounts} />
        <StateCounts counts={live.run.simCounts} />
      </div>
    </div>
  );
}

function CancelRun({ store, onFailure }: { store: RunStore; onFailure: (error: Error | null) => void }) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const confirm = useRef<HTMLButtonElement>(null);
  // Once, when the question appears: the page draws again with every batch of events, and the focus is the reader's.
  useLayoutEffect(() => confirm.current?.focus(), [asking]);
  const cancel = async () => {
    setBusy(true);
    onFailure(null);
    try {
      store.adopt(toRunDetail(await client.cancelRun(store.runId)));
    } catch (error) {
      onFailure(error instanceof Error ? error : new Error(String(error)));
    }
    setBusy(false);
    setAsking(false);
  };
  if (!asking) {
    return (
      <button type="button" class="danger" onClick={() => setAsking(true)} data-testid="cancel-run">
        Cancel run
      </button>
    );
  }
  const open = [...(store.run.value?.sims.values() ?? [])].filter((sim) => sim.finishedAt === null).length;
  return (
    <span class="row tight" role="group" aria-label={`Stop ${plural(open, "unfinished sim")}?`}>
      <span class="small">Stop {plural(open, "unfinished sim")}?</span>
      <button type="button" class="danger solid" disabled={busy} onClick={() => void cancel()} data-testid="confirm-cancel" ref={confirm}>
        Confirm cancel
      </button>
      <button type="button" onClick={() => setAsking(false)}>
        Keep running
      </button>
    </span>
  );
}

/** The page is long: where its parts are, for a reader who came for one of them. */
function Jumps({ store, estimate }: { store: RunStore; estimate: boolean }) {
  const steps = useComputed(() => store.run.value?.trace.hasStepTimeline === true).value;
  const parts: ReadonlyArray<readonly [id: string, label: string, present: boolean]> = [
    ["sims", "Sims", true],
    ["estimate", "Estimate", estimate],
    ["timeline", "Timeline", true],
    ["comparison", "Configs compared", true],
    ["steps", "Step timing", steps],
    ["outputs", "Outputs", true],
  ];
  const go = (event: Event, id: string) => {
    event.preventDefault();
    const heading = document.getElementById(id);
    if (heading === null) return;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    heading.scrollIntoView({ block: "start" });
  };
  return (
    <nav class="jumps small" aria-label="On this page">
      {parts
        .filter(([, , present]) => present)
        .map(([id, label]) => (
          <a key={id} href={`#${id}`} onClick={(event) => go(event, id)}>
            {label}
          </a>
        ))}
    </nav>
  );
}

/** Says that the stream reconnects, in a line that is always there so that nothing jumps. */
function LineNote({ store }: { store: RunStore }) {
  const line = store.line.value;
  const state = useComputed(() => store.run.value?.run.state ?? null).value;
  const rate = store.rate.value;
  let text: ComponentChildren = "Connecting…";
  let tone = "muted";
  if (line.state === "live") text = state === "active" ? <>Live{rate > 0 ? ` · ${rate.toLocaleString("en-US")} ${rate === 1 ? "event" : "events"} a second` : ""}</> : "Up to date";
  else if (line.state === "waiting") {
    tone = "warn-text";
    const heard = store.heardAt.value;
    text = `Connection lost (${line.reason}). Reconnecting by itself${heard === null ? "" : `; last heard ${formatSpan(Math.max(0, now.value - heard))} ago`}.`;
  } else if (line.state === "connecting" && store.heardAt.value !== null) {
    tone = "warn-text";
    text = "Reconnecting…";
  }
  return (
    <p class={`line-note small ${tone}`} data-testid="line" data-state={line.state} data-events={store.events.value} data-log-lines={store.logLines.value}>
      <span class={`dot ${line.state === "live" ? "ok-dot" : ""}`} aria-hidden="true" /> <span>{text}</span>
      <span class="visually-hidden" role="status">
        {line.state === "waiting" ? "Connection lost, reconnecting" : line.state === "live" ? "Connected" : ""}
      </span>
    </p>
  );
}

function RunNotices({ store }: { store: RunStore }) {
  // Names change rarely: the notices are computed again only when the facts behind them do.
  const facts = useComputed(() => {
    const live = store.run.value;
    if (live === null) return null;
    const names = kernelNamesOf(live.kernels.values());
    const sims = [...live.sims.values()];
    const key = [live.run.state, names.size, ...sims.map((sim) => `${sim.engine}${sim.state}${sim.kernelsDone > sim.kernelsTotal}`)].join();
    return { key, live, names, sims };
  });
  const undeclared = facts.value?.sims.some((sim) => sim.engine === "unknown") === true && !facts.value.live.run.sample;
  const traceId = facts.value?.live.trace.id ?? "";
  const trace = useLoaded(`names ${undeclared ? traceId : ""}`, async (signal) => {
    if (!undeclared) return null;
    return new Set((await client.trace(traceId, signal)).kernels.map((kernel) => kernel.name));
  });
  const notices = useMemo(() => {
    const known = facts.value;
    if (known === null) return [];
    return noticesFor({ run: known.live.run, trace: known.live.trace, sims: known.sims, kernelNames: known.names, traceKernelNames: trace.data });
  }, [facts.value?.key, trace.data]);
  const failed = facts.value?.sims.filter((sim) => sim.state === "failed" || sim.state === "lost") ?? [];
  return (
    <>
      <Notices notices={notices} />
      {failed.length > 0 && (
        <Banner tone="error" title={`${plural(failed.length, "sim")} did not go well`} testid="failed-sims">
          <ul>
            {failed.slice(0, 5).map((sim) => (
              <li key={sim.id}>
                <a href={pathOf({ view: "sim", runId: sim.runId, simId: sim.id })} onClick={(event) => (event.preventDefault(), navigate(pathOf({ view: "sim", runId: sim.runId, simId: sim.id })))}>
                  {sim.config} replica {sim.replica}
                </a>{" "}
                {sim.state}: {sim.error ?? (sim.state === "lost" ? "no heartbeat came for too long" : "no reason was given")}
              </li>
            ))}
            {failed.length > 5 && <li>and {failed.length - 5} more</li>}
          </ul>
        </Banner>
      )}
    </>
  );
}
