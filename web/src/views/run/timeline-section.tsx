// The kernel timeline of a run, redrawn at most once a second while it streams.
import { useMemo } from "preact/hooks";
import type { TimelineLane } from "../../charts/kernel-timeline";
import { KernelTimeline } from "../../charts/kernel-timeline";
import { realWordOf, timeWordOf } from "../../model/engine";
import { groupSims } from "../../model/sim-groups";
import { withoutSharedStart } from "../../model/labels";
import type { LiveRun } from "../../model/run-state";
import { noKernelText } from "../../model/run-state";
import type { RunStore } from "../../state/live-run";
import { useRealTiming, useThrottled } from "../../state/run-hooks";

export function TimelineSection({ store }: { store: RunStore }) {
  const live = useThrottled(store.run, 1000);
  const real = useRealTiming(live);
  const lanes = useMemo(() => (live === null ? [] : lanesOf(live, real)), [live, real]);
  return (
    <section class="card" aria-labelledby="timeline">
      <header>
        <h2 id="timeline">Kernel timeline</h2>
        <span class="small muted">Each sim's kernels end to end; host time, copies and overlap are left out.</span>
      </header>
      <div class="body">{lanes.length === 0 ? <p class="muted">{noKernelText(live)}</p> : <KernelTimeline lanes={lanes} />}</div>
    </section>
  );
}

function lanesOf(live: LiveRun, real: ReturnType<typeof useRealTiming>): TimelineLane[] {
  const lanes: TimelineLane[] = [];
  if (real !== null && real.kernels.length > 0) {
    lanes.push({ key: "real", label: `Real ${live.trace.sourceGpu?.replace(/^NVIDIA /, "") ?? "hardware"}`, kernels: real.kernels, real: true, word: realWordOf(live.trace) });
  }
  const groups = groupSims(live); // the order of the cards above
  const configs = groups.map((group) => group.config);
  const short = new Map(withoutSharedStart(configs).map((label, i) => [configs[i], label]));
  const many = configs.length < live.sims.size;
  for (const sim of groups.flatMap((group) => group.sims)) {
    const kernels = live.kernels.get(sim.id);
    if (kernels === undefined || kernels.length === 0) continue;
    lanes.push({ key: sim.id, label: `${short.get(sim.config) ?? sim.config}${many ? ` #${sim.replica}` : ""}`, kernels, real: false, word: timeWordOf([sim], live) });
  }
  return lanes;
}
