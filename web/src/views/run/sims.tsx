// The sims of a run, a group a config. A folded group shows one square a sim, an
// open one a card a sim; both keep their size while events stream.
import type { Signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Age, KernelName, Meter, StateBadge, StateBar, StateCounts, WordBadge } from "../../components/basics";
import type { Sim } from "../../model/entities";
import type { Origin } from "../../model/engine";
import { timeWordOf } from "../../model/engine";
import type { SimGroup } from "../../model/sim-groups";
import { OPEN_SIMS, groupSims } from "../../model/sim-groups";
import { MISSING, formatCount, formatExact, formatRate, plural, significant } from "../../model/units";
import { pathOf } from "../../router";
import type { RunStore } from "../../state/live-run";

export function SimsSection({ store, selected }: { store: RunStore; selected: string | null }) {
  const live = store.run.value;
  const [folded, setFolded] = useState<ReadonlyMap<string, boolean>>(new Map());
  if (live === null) return null;
  const groups = groupSims(live);
  const foldAtFirst = live.sims.size > OPEN_SIMS;
  const isFolded = (group: SimGroup) => folded.get(group.config) ?? foldAtFirst;
  const foldAll = (value: boolean) => setFolded(new Map(groups.map((group) => [group.config, value])));
  return (
    <section aria-labelledby="sims" class="stack-gap">
      <div class="row spread">
        <h2 id="sims">{plural(live.sims.size, "sim")}</h2>
        {groups.length > 1 && (
          <div class="row tight">
            <button type="button" class="tiny" onClick={() => foldAll(false)}>
              Open all
            </button>
            <button type="button" class="tiny" onClick={() => foldAll(true)}>
              Fold all
            </button>
          </div>
        )}
      </div>
      {groups.map((group) => (
        <Group
          key={group.config}
          group={group}
          origin={live}
          store={store}
          selected={selected}
          folded={isFolded(group)}
          toggle={() => setFolded(new Map(folded).set(group.config, !isFolded(group)))}
        />
      ))}
    </section>
  );
}

interface GroupProps {
  readonly group: SimGroup;
  readonly origin: Origin;
  readonly store: RunStore;
  readonly selected: string | null;
  readonly folded: boolean;
  readonly toggle: () => void;
}

function Group({ group, origin, store, selected, folded, toggle }: GroupProps) {
  const id = `group-${group.config}`;
  return (
    <div class="card group" data-testid="sim-group" data-config={group.config}>
      <header>
        <h3>
          <button type="button" class="fold" aria-expanded={!folded} aria-controls={id} onClick={toggle}>
            <span aria-hidden="true">{folded ? "▸" : "▾"}</span> {group.config} <span class="muted">×{group.sims.length}</span>
          </button>
        </h3>
        <div class="group-bar">
          <StateBar counts={group.counts} />
          <StateCounts counts={group.counts} />
        </div>
        <dl class="group-numbers">
          <div>
            <dt>Kernels</dt>
            <dd>
              {formatExact(group.kernelsDone)} / {formatExact(group.kernelsTotal)}
            </dd>
          </div>
          <div>
            <dt>Median cycles</dt>
            <dd>{formatCount(group.medianCycles)}</dd>
          </div>
          <div>
            <dt>Median IPC</dt>
            <dd>{group.medianIpc === null ? MISSING : significant(group.medianIpc)}</dd>
          </div>
          <div>
            <dt title="Of the running sims together">Sim rate now</dt>
            <dd>{formatRate(group.rateIps, " inst")}</dd>
          </div>
        </dl>
      </header>
      <div class="body" id={id}>
        {folded ? (
          <ul class="squares">
            {group.sims.map((sim) => {
              const own = store.sim(sim.id);
              return own === undefined ? null : <Square key={sim.id} sim={own} selected={selected === sim.id} />;
            })}
          </ul>
        ) : (
          <ul class="cards">
            {group.sims.map((sim) => {
              const own = store.sim(sim.id);
              return own === undefined ? null : <SimCard key={sim.id} sim={own} selected={selected === sim.id} origin={origin} />;
            })}
          </ul>
        )}
      </div>
    </div>
  );
}

function Square({ sim: own, selected }: { sim: Signal<Sim>; selected: boolean }) {
  const sim = own.value;
  const percent = sim.kernelsTotal === 0 ? 0 : Math.min(100, (sim.kernelsDone / sim.kernelsTotal) * 100);
  const text = `${sim.config} replica ${sim.replica}: ${sim.state}, ${sim.kernelsDone} of ${sim.kernelsTotal} kernels`;
  return (
    <li>
      <a class={`square ${selected ? "selected" : ""}`} href={pathOf({ view: "sim", runId: sim.runId, simId: sim.id })} aria-label={text} title={text} data-state={sim.state}>
        <i class={`s-${sim.state}`} style={{ height: `${sim.state === "failed" || sim.state === "cancelled" || sim.state === "lost" ? 100 : Math.max(percent, 8)}%` }} />
      </a>
    </li>
  );
}

const TAIL_LINES = 3;

function SimCard({ sim: own, selected, origin }: { sim: Signal<Sim>; selected: boolean; origin: Origin }) {
  const sim = own.value;
  const hasWord = sim.kernelsDone > 0 || sim.engine === "replay" || sim.engine === "estimate";
  const href = pathOf({ view: "sim", runId: sim.runId, simId: sim.id });
  return (
    <li class={`sim ${selected ? "selected" : ""}`} data-testid="sim-card" data-sim={sim.id} data-state={sim.state}>
      <div class="row spread">
        <a href={href} class="strong">
          Replica {sim.replica}
        </a>
        <StateBadge state={sim.state} />
      </div>
      <div class="row spread tight small">
        <span class="muted">
          {sim.finishedAt === null ? "heartbeat" : "ended"} <Age at={sim.finishedAt ?? sim.heartbeatAt} />
        </span>
        {hasWord && <WordBadge word={timeWordOf([sim], origin)} />}
      </div>
      <Meter done={sim.kernelsDone} total={sim.kernelsTotal} state={sim.state} />
      <div class="sim-kernel small">
        <span class="one-line">
          <Doing sim={sim} />
        </span>
        <span class="num nowrap">
          {formatExact(sim.kernelsDone)} / {formatExact(sim.kernelsTotal)} kernels
        </span>
      </div>
      <dl class="metrics">
        <Metric name="Cycles" value={formatCount(sim.latest.gpu_tot_sim_cycle)} exact={formatExact(sim.latest.gpu_tot_sim_cycle)} />
        <Metric name="IPC" value={sim.latest.gpu_tot_ipc === null ? MISSING : significant(sim.latest.gpu_tot_ipc)} exact={formatExact(sim.latest.gpu_tot_ipc)} />
        <Metric name="Sim rate" value={formatRate(sim.latest.sim_rate_ips, " inst")} exact={`${formatExact(sim.latest.sim_rate_ips)} inst/s`} />
      </dl>
      <pre class="tail">
        {sim.logTail.slice(-TAIL_LINES).join("\n") || " "}
      </pre>
    </li>
  );
}

/** What the sim is at, or why it stopped. */
function Doing({ sim }: { sim: Sim }) {
  if (sim.error !== null) return <span class="problem">{sim.error}</span>;
  if (sim.currentKernel !== null) return <KernelName name={sim.currentKernel} />;
  if (sim.kernelsDone > 0) return <span class="muted">{MISSING}</span>;
  if (sim.state === "succeeded") return <span class="problem">no kernel finished</span>;
  return <span class="muted">{sim.finishedAt === null ? "no kernel yet" : "no kernel"}</span>;
}

function Metric({ name, value, exact }: { name: string; value: string; exact: string }) {
  return (
    <div title={exact}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
