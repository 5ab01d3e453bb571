// Every run, newest first, with what its sims are doing.
import { useState } from "preact/hooks";
import { Age, Badge, ErrorNote, Loading, PageHead, StateBadge, StateBar, StateCounts, TableScroll, WordBadge } from "../components/basics";
import { timeWord } from "../model/engine";
import type { Run } from "../model/entities";
import { toRun } from "../model/entities";
import { navigate, pathOf } from "../router";
import { useLoaded } from "../state/poll";
import { client } from "../state/session";

const POLL_MS = 2000;

export function RunsView() {
  const { data, error, loading, reload } = useLoaded("runs", async (signal) => (await client.runs(signal)).map(toRun), POLL_MS);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const compare = () => navigate(`/compare?${[...chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`);
  return (
    <>
      <PageHead
        title="Runs"
        actions={
          <>
            <button type="button" disabled={chosen.size === 0} onClick={compare} data-testid="compare-chosen">
              Compare {chosen.size > 0 ? chosen.size : ""}
            </button>
            <a class="button primary" href="/traces">
              New run
            </a>
          </>
        }
      >
        <p class="muted">A run simulates one trace on a list of GPU configs, each in as many replicas as you ask for.</p>
      </PageHead>
      {error !== null && data === null && <ErrorNote error={error} retry={reload} />}
      {loading && <Loading what="runs" />}
      {data !== null && data.length === 0 && (
        <section class="card">
          <div class="empty">
            <h2>No run yet</h2>
            <p>
              Open a ready trace in <a href="/traces">Traces</a> and choose New run.
            </p>
          </div>
        </section>
      )}
      {data !== null && data.length > 0 && <RunTable runs={data} chosen={chosen} toggle={toggle} />}
    </>
  );
}

function RunTable({ runs, chosen, toggle }: { runs: readonly Run[]; chosen: ReadonlySet<string>; toggle: (id: string) => void }) {
  return (
    <div class="card">
      <TableScroll label="Runs">
        <table class="stack" data-testid="runs">
          <thead>
            <tr>
              <th>
                <span class="visually-hidden">Choose to compare</span>
              </th>
              <th>Run</th>
              <th>State</th>
              <th>Sims</th>
              <th>Trace</th>
              <th>Configs</th>
              <th class="num">Started</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <tr key={run.id} data-testid="run-row">
                <td class="pick-cell">
                  <input type="checkbox" aria-label={`Compare ${run.id}`} checked={chosen.has(run.id)} onChange={() => toggle(run.id)} />
                </td>
                <td class="main-cell">
                  <a href={pathOf({ view: "run", runId: run.id })} class="strong break">
                    {run.id}
                  </a>
                </td>
                <td data-label="State">
                  <div class="row tight">
                    <StateBadge state={run.state} />
                    {run.sample && <Badge>Sample</Badge>}
                    {run.replay && <Badge tone="warn">Replayed</Badge>}
                    {run.engines.length > 0 && !run.sample && !run.replay && <WordBadge word={timeWord(run.engines)} />}
                  </div>
                </td>
                <td data-label="Sims" class="sims-cell">
                  <StateBar counts={run.simCounts} />
                  <StateCounts counts={run.simCounts} />
                </td>
                <td data-label="Trace" class="trace-cell">
                  <a href={pathOf({ view: "trace", traceId: run.traceId })} class="break">
                    {run.traceId}
                  </a>
                </td>
                <td data-label="Configs" class="small">
                  <div>
                  {run.entries.map((entry) => (
                    <div key={entry.gpu_config} class="nowrap">
                      {entry.gpu_config} <span class="muted">×{entry.count}</span>
                    </div>
                  ))}
                  </div>
                </td>
                <td data-label="Started" class="num">
                  <Age at={run.createdAt} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableScroll>
    </div>
  );
}
