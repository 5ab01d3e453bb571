// The request simulator: a workload on a profiled GPU config, answered by the
// request model and scheduler. Provenance and assumptions stand beside the numbers.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { runNamedBy } from "../api/client";
import type { GpuConfig, ScenarioCreate, ScenarioResult } from "../api/types";
import { Banner, ErrorNote, Loading, PageHead } from "../components/basics";
import type { Trace } from "../model/entities";
import { toRun, toTrace } from "../model/entities";
import type { FieldName, FormFields, Problems } from "../model/scenario";
import { configChoices, fromQuery, scenarioBody, toQuery } from "../model/scenario";
import { formatSpan } from "../model/units";
import { pathOf, query, setQuery } from "../router";
import { now } from "../state/clock";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";
import { ScenarioAnswer } from "./simulator-result";

export function SimulatorView() {
  const { data, error, loading, reload } = useLoaded("simulator", async (signal) => {
    const [traces, configs] = await Promise.all([client.traces(signal), client.gpuConfigs(signal)]);
    return { traces: traces.map(toTrace).filter((trace) => trace.state === "ready"), configs };
  });
  return (
    <>
      <PageHead title="Request simulator">
        <p class="muted">
          Predicts latency and throughput of a serving workload from a finished simulation's step timing, with a scheduler like vLLM's. Nothing is run on a GPU.
        </p>
      </PageHead>
      {loading && <Loading what="traces" />}
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {data !== null && !data.traces.some((trace) => trace.hasStepTimeline) && (
        <Banner tone="info" title="No trace has step timing yet" testid="no-step-timing">
          <p>
            A scenario needs a ready trace with <code>corrected_timeline.json</code> and <code>kernel_mapping.json</code>, as the profiler writes them. See <a href="/traces">Traces</a>.
          </p>
        </Banner>
      )}
      {data !== null && <Simulator traces={data.traces} configs={data.configs} />}
    </>
  );
}

type Outcome = { readonly kind: "idle" } | { readonly kind: "waiting"; readonly since: number; readonly body: ScenarioCreate } | { readonly kind: "done"; readonly result: ScenarioResult; readonly body: ScenarioCreate } | { readonly kind: "failed"; readonly error: Error };

function initialFields(traces: readonly Trace[]): FormFields {
  const fields = fromQuery(query.peek());
  const trace = traces.find((one) => one.id === fields.trace) ?? traces.find((one) => one.hasStepTimeline) ?? traces[0];
  return { ...fields, trace: fields.trace || (trace?.id ?? ""), config: fields.config || (trace?.suggestedConfig ?? "") };
}

function Simulator({ traces, configs }: { traces: readonly Trace[]; configs: readonly GpuConfig[] }) {
  const [fields, setFields] = useState(() => initialFields(traces));
  const [problems, setProblems] = useState<Problems>({});
  const [outcome, setOutcome] = useState<Outcome>({ kind: "idle" });
  const abort = useRef<AbortController | null>(null);
  const answer = useRef<HTMLDivElement>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const change = (changes: Partial<FormFields>) => {
    const next = { ...fields, ...changes };
    setFields(next);
    setQuery(toQuery(next));
    if (Object.keys(problems).length > 0) {
      const checked = scenarioBody(next);
      setProblems("problems" in checked ? checked.problems : {});
    }
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    const checked = scenarioBody(fields);
    if ("problems" in checked) {
      setProblems(checked.problems);
      return;
    }
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setOutcome({ kind: "waiting", since: Date.now(), body: checked.body });
    try {
      const result = await client.scenario(checked.body, controller.signal);
      setOutcome({ kind: "done", result, body: checked.body });
      answer.current?.scrollIntoView({ block: "start", behavior: "smooth" });
    } catch (error) {
      if (controller.signal.aborted) return;
      setOutcome({ kind: "failed", error: error instanceof Error ? error : new Error(String(error)) });
    }
  };
  const trace = traces.find((one) => one.id === fields.trace) ?? null;
  return (
    <>
      <form class="card" onSubmit={(event) => void submit(event)} noValidate data-testid="scenario-form">
        <div class="body stack-gap">
          <div class="form-grid">
            <TraceField traces={traces} value={fields.trace} problem={problems.trace} change={change} />
            <ConfigField configs={configs} trace={trace} value={fields.config} problem={problems.config} change={change} />
            <Field name="prompt" label="Prompt tokens" note="each request" fields={fields} problems={problems} change={change} />
            <Field name="output" label="Output tokens" note="each request" fields={fields} problems={problems} change={change} />
            <Field name="count" label="Requests" note="1 to 4,096" fields={fields} problems={problems} change={change} />
            <Field name="rate" label="Arrivals a second" note="evenly spaced; 0: all at once" fields={fields} problems={problems} change={change} />
          </div>
          <details>
            <summary>Scheduler assumptions and base run</summary>
            <div class="form-grid advanced">
              <Field name="max_num_seqs" label="Most sequences a step" note="empty: 256" fields={fields} problems={problems} change={change} />
              <Field name="max_num_batched_tokens" label="Token budget a step" note="empty: 8,192" fields={fields} problems={problems} change={change} />
              <Field name="block_size" label="KV block, tokens" note="empty: 16" fields={fields} problems={problems} change={change} />
              <Field name="gpu_memory_utilization" label="Memory utilization" note="empty: the profile's, else 0.8" fields={fields} problems={problems} change={change} />
              <Field name="num_kv_blocks" label="KV blocks" note="empty: estimated from memory" fields={fields} problems={problems} change={change} />
              <div class="field">
                <label class="check">
                  <input type="checkbox" checked={fields.chunked} onChange={(event) => change({ chunked: event.currentTarget.checked })} /> Chunked prefill
                </label>
                <label class="check">
                  <input type="checkbox" checked={fields.fresh} onChange={(event) => change({ fresh: event.currentTarget.checked })} /> New base run
                </label>
                <small>A new base run simulates the trace again; a sample replays its recorded results.</small>
              </div>
            </div>
          </details>
          <div class="row">
            <button class="primary" disabled={outcome.kind === "waiting"} data-testid="scenario-submit">
              {outcome.kind === "waiting" ? "Simulating…" : "Simulate requests"}
            </button>
            {outcome.kind === "waiting" && (
              <button type="button" onClick={() => (abort.current?.abort(), setOutcome({ kind: "idle" }))}>
                Stop waiting
              </button>
            )}
          </div>
        </div>
      </form>
      {outcome.kind === "waiting" && <Waiting since={outcome.since} body={outcome.body} />}
      <div ref={answer} class="stack-gap" aria-live="polite">
        {outcome.kind === "failed" && (
          <Banner tone="error" title="The scenario was not simulated" testid="scenario-error">
            <p>{outcome.error.message}</p>
            {runNamedBy(outcome.error) !== null && (
              <p>
                Base run: <a href={pathOf({ view: "run", runId: runNamedBy(outcome.error) ?? "" })}>{runNamedBy(outcome.error)}</a>
              </p>
            )}
          </Banner>
        )}
        {outcome.kind === "done" && <ScenarioAnswer result={outcome.result} trace={trace} />}
      </div>
    </>
  );
}

interface FieldProps {
  readonly name: Exclude<FieldName, "fresh" | "chunked">;
  readonly label: string;
  readonly note: string;
  readonly fields: FormFields;
  readonly problems: Problems;
  readonly change: (changes: Partial<FormFields>) => void;
}

function Field({ name, label, note, fields, problems, change }: FieldProps) {
  const problem = problems[name];
  return (
    <div class="field">
      <label for={`f-${name}`}>{label}</label>
      <input id={`f-${name}`} inputMode="decimal" value={fields[name]} aria-invalid={problem !== undefined} aria-describedby={`n-${name}`} onInput={(event) => change({ [name]: event.currentTarget.value })} data-testid={`field-${name}`} />
      <small id={`n-${name}`} class={problem === undefined ? "" : "problem"}>
        {problem ?? note}
      </small>
    </div>
  );
}

function TraceField({ traces, value, problem, change }: { traces: readonly Trace[]; value: string; problem: string | undefined; change: (changes: Partial<FormFields>) => void }) {
  const pick = (id: string) => {
    const trace = traces.find((one) => one.id === id);
    change({ trace: id, config: trace?.suggestedConfig ?? "" });
  };
  const usable = traces.filter((trace) => trace.hasStepTimeline);
  const others = traces.filter((trace) => !trace.hasStepTimeline);
  return (
    <div class="field wide">
      <label for="f-trace">Trace</label>
      <select id="f-trace" value={value} onChange={(event) => pick(event.currentTarget.value)} aria-describedby="n-trace">
        {value === "" && <option value="">Choose…</option>}
        {usable.map((trace) => (
          <option key={trace.id} value={trace.id}>
            {trace.id}
          </option>
        ))}
        {others.map((trace) => (
          <option key={trace.id} value={trace.id} disabled>
            {trace.id} (no step timing)
          </option>
        ))}
      </select>
      <small id="n-trace" class={problem === undefined ? "" : "problem"}>
        {problem ?? "ready traces with step timing"}
      </small>
    </div>
  );
}

function ConfigField({ configs, trace, value, problem, change }: { configs: readonly GpuConfig[]; trace: Trace | null; value: string; problem: string | undefined; change: (changes: Partial<FormFields>) => void }) {
  const choices = configChoices(configs, trace);
  return (
    <div class="field wide">
      <label for="f-config">GPU config</label>
      <select id="f-config" value={value} onChange={(event) => change({ config: event.currentTarget.value })} aria-describedby="n-config">
        {value === "" && <option value="">Choose…</option>}
        {choices.map((choice) => (
          <option key={choice.name} value={choice.name} disabled={choice.reason !== null}>
            {choice.name}
            {choice.reason === null ? "" : ` (${choice.reason})`}
          </option>
        ))}
      </select>
      <small id="n-config" class={problem === undefined ? "" : "problem"}>
        {problem ?? "those that the request model knows"}
      </small>
    </div>
  );
}

/** A base run may take long: says since when, and links the simulations it may be waiting for. */
function Waiting({ since, body }: { since: number; body: ScenarioCreate }) {
  const runs = useLoaded("waiting-runs", async (signal) => (await client.runs(signal)).map(toRun), 3000);
  const active = useMemo(() => (runs.data ?? []).filter((run) => run.state === "active" && run.traceId === body.trace_id && run.entries.some((entry) => entry.gpu_config === body.gpu_config)), [runs.data, body]);
  const waited = now.value > 0 ? Date.now() - since : 0;
  return (
    <div role="status" class="stack-gap">
      <p class="muted">Waiting {formatSpan(waited)}. With a finished base simulation this takes moments; without one it waits for its run.</p>
      {active.length > 0 && (
        <Banner tone="info" title="Matching simulations are under way">
          <ul>
            {active.map((run) => (
              <li key={run.id}>
                <a href={pathOf({ view: "run", runId: run.id })}>{run.id}</a>
              </li>
            ))}
          </ul>
        </Banner>
      )}
    </div>
  );
}
