// New run: a row a config with its count, what fits preselected, what does not
// fit disabled with the reason, and one button that counts the sims.
import { useState } from "preact/hooks";
import { Badge, Banner, ErrorNote, Loading, PageHead, StateBadge } from "../components/basics";
import type { Trace } from "../model/entities";
import { toTrace } from "../model/entities";
import type { ConfigRow } from "../model/launch";
import { MAX_COUNT, MIN_COUNT, QUIET_SIMS, configRows, entriesOf, launchProblem, parseCount, preselected, totalSims } from "../model/launch";
import { formatMhz, plural } from "../model/units";
import { navigate, pathOf, query } from "../router";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";

export function NewRunView({ traceId }: { traceId: string }) {
  const { data, error, loading, reload } = useLoaded(`new-run ${traceId}`, async (signal) => {
    const [trace, configs] = await Promise.all([client.trace(traceId, signal), client.gpuConfigs(signal)]);
    return { trace: toTrace(trace), configs };
  });
  return (
    <>
      <PageHead
        title="New run"
        crumbs={[
          { label: "Traces", href: "/traces" },
          { label: traceId, href: pathOf({ view: "trace", traceId }) },
        ]}
        badges={data !== null && data.trace.state !== "ready" && <StateBadge state={data.trace.state} />}
      />
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {loading && <Loading what="the GPU configs" />}
      {data !== null && <Form trace={data.trace} rows={configRows(data.configs, data.trace)} first={preselected(data.configs, data.trace)} />}
    </>
  );
}

function initialChoice(first: readonly string[], rows: readonly ConfigRow[]): Map<string, string> {
  const wanted = query.peek().getAll("config"); // a link may name configs
  const fits = rows.filter((row) => row.reason === null).map((row) => row.config.name);
  const names = wanted.filter((name) => fits.includes(name));
  return new Map((names.length > 0 ? names : first).map((name) => [name, "1"]));
}

function Form({ trace, rows, first }: { trace: Trace; rows: readonly ConfigRow[]; first: readonly string[] }) {
  const [chosen, setChosen] = useState(() => initialChoice(first, rows));
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Error | null>(null);
  const problem = launchProblem(trace);
  const entries = entriesOf(chosen);
  const total = entries === null ? null : totalSims(entries);
  const change = (name: string, text: string | null) => {
    const next = new Map(chosen);
    if (text === null) next.delete(name);
    else next.set(name, text);
    setChosen(next);
  };
  const launch = async (event: Event) => {
    event.preventDefault();
    if (entries === null || entries.length === 0 || busy) return;
    setBusy(true);
    setFailure(null);
    try {
      const run = await client.createRun({ trace_id: trace.id, entries });
      navigate(pathOf({ view: "run", runId: run.id }));
    } catch (error) {
      setFailure(error instanceof Error ? error : new Error(String(error)));
      setBusy(false);
    }
  };
  const label = total === null || total === 0 ? "Launch simulations" : `Launch ${plural(total, "simulation")}`;
  return (
    <form onSubmit={(event) => void launch(event)} class="stack-gap">
      {problem !== null && (
        <Banner tone="warn" title="This trace can't run">
          <p>{problem}</p>
        </Banner>
      )}
      <fieldset class="card plain" disabled={problem !== null}>
        <legend class="visually-hidden">GPU configs</legend>
        <header>
          <h2>GPU configs</h2>
          <span class="small muted">
            The trace is {trace.arch}; a config of another architecture lacks its instructions.
          </span>
        </header>
        <ul class="configs" data-testid="configs">
          {rows.map((row) => (
            <ConfigLine key={row.config.name} row={row} text={chosen.get(row.config.name) ?? null} change={change} />
          ))}
          {rows.length === 0 && <li class="muted">The server found no GPU config. Check CASCADE_ACCELSIM_DIR.</li>}
        </ul>
      </fieldset>
      {total !== null && total > QUIET_SIMS && (
        <Banner tone="warn" title={`This starts ${plural(total, "simulator")}`} testid="many-sims">
          <p>Each sim is its own process or sandbox: it takes its own CPU and memory, may run for hours, and may cost money where sandboxes are billed.</p>
        </Banner>
      )}
      {failure !== null && (
        <Banner tone="error" title="The run was not launched" testid="launch-error">
          <p>{failure.message}</p>
        </Banner>
      )}
      <div class="row">
        <button class="primary" disabled={problem !== null || entries === null || total === 0 || busy} data-testid="launch">
          {busy ? "Launching…" : label}
        </button>
        {entries === null && <span class="problem small">Counts are whole numbers from {MIN_COUNT} to {MAX_COUNT}.</span>}
        {total === 0 && <span class="muted small">Choose at least one config.</span>}
      </div>
    </form>
  );
}

function ConfigLine({ row, text, change }: { row: ConfigRow; text: string | null; change: (name: string, text: string | null) => void }) {
  const { name, arch, core_clock_mhz } = row.config;
  const id = `config-${name}`;
  const bad = text !== null && parseCount(text) === null;
  const step = (by: number) => {
    const next = Math.min(MAX_COUNT, Math.max(MIN_COUNT, (parseCount(text ?? "") ?? 0) + by));
    change(name, String(next));
  };
  return (
    <li class={row.reason === null ? "" : "off"} data-testid="config-row">
      <input type="checkbox" id={id} checked={text !== null} disabled={row.reason !== null} aria-describedby={row.reason === null ? undefined : `${id}-why`} onChange={(event) => change(name, event.currentTarget.checked ? "1" : null)} />
      <label for={id}>
        {name} {row.suggested && <Badge tone="info">Suggested</Badge>}
        <small class="muted">
          {arch} · core clock {formatMhz(core_clock_mhz)}
        </small>
        {row.reason !== null && (
          <small id={`${id}-why`} class="muted">
            {row.reason}
          </small>
        )}
      </label>
      {text !== null && (
        <div class="stepper">
          <span class="small muted wide-only" aria-hidden="true">
            replicas
          </span>
          <button type="button" class="tiny" aria-label={`One ${name} sim less`} disabled={parseCount(text) === MIN_COUNT} onClick={() => step(-1)}>
            −
          </button>
          <input inputMode="numeric" aria-label={`Sims on ${name}`} aria-invalid={bad} value={text} onInput={(event) => change(name, event.currentTarget.value)} />
          <button type="button" class="tiny" aria-label={`One ${name} sim more`} disabled={parseCount(text) === MAX_COUNT} onClick={() => step(1)}>
            +
          </button>
        </div>
      )}
    </li>
  );
}
