// Step timing, real against simulated, ready to draw. A step is one engine
// iteration (a prefill or a decode); a request is one repeat of the workload.
// Warm-up repeats are left out: they have no profiled kernels. Times are ns, request
// latencies ms, as the files have them.
import type { CompareRequest, SimStepTimeline } from "../api/types";

export interface Pair {
  readonly real: number | null;
  readonly simulated: number | null;
  readonly errorPct: number | null;
}

export interface RequestMeans {
  readonly ttftMs: Pair;
  readonly itlMs: Pair;
  readonly e2eMs: Pair;
  readonly repeats: number;
}

export interface KindRow {
  readonly kind: string;
  readonly steps: number;
  readonly wallNs: number | null;
  readonly busyNs: number | null;
}

export interface StepSummary {
  readonly key: string;
  readonly label: string;
  /** The config that the real baseline was measured on, where this is another one: differences are then no errors. */
  readonly measuredOn: string | null;
  readonly kinds: readonly KindRow[];
  readonly requests: RequestMeans;
  /** Mean absolute error over steps, in percent; null without a real timeline. */
  readonly wallMapePct: number | null;
  readonly busyMapePct: number | null;
  readonly kernelCoverage: number | null;
  readonly timeCoverage: number | null;
  readonly assumption: string | null;
  readonly repeats: readonly number[];
}

export type StepMetric = "wall" | "busy";

export interface StepSeries {
  readonly x: readonly number[];
  readonly real: ReadonlyArray<number | null>;
  readonly simulated: ReadonlyArray<{ readonly label: string; readonly values: ReadonlyArray<number | null> }>;
  readonly hasReal: boolean;
}

export function labelOf(timeline: SimStepTimeline, many: boolean): string {
  return many ? `${timeline.gpu_config} #${timeline.replica}` : timeline.gpu_config;
}

/** One timeline a config: the first replica that sent one. Replicas of a deterministic simulator repeat it. */
export function firstOfConfig(timelines: readonly SimStepTimeline[]): SimStepTimeline[] {
  const seen = new Set<string>();
  return timelines.filter((timeline) => !seen.has(timeline.gpu_config) && seen.add(timeline.gpu_config));
}

export function summarise(timeline: SimStepTimeline, label: string, measuredOn: string | null): StepSummary {
  const { simulated, compare } = timeline;
  const coverage = simulated.summary.simulation?.coverage;
  const steady = simulated.steps.filter((step) => !step.warmup);
  return {
    key: timeline.sim_id,
    label,
    measuredOn,
    kinds: Object.entries(simulated.summary.per_kind ?? {}).map(([kind, row]) => ({ kind, steps: row.steps, wallNs: row.wall_ns_mean, busyNs: row.gpu_busy_ns_mean })),
    requests: requestMeans(timeline, measuredOn === null),
    wallMapePct: measuredOn === null ? (compare?.summary.wall_ns?.mean_abs_error_pct ?? null) : null,
    busyMapePct: measuredOn === null ? (compare?.summary.gpu_busy_ns?.mean_abs_error_pct ?? null) : null,
    kernelCoverage: coverage?.kernel_fraction ?? null,
    timeCoverage: coverage?.gpu_time_fraction ?? null,
    assumption: simulated.summary.simulation?.request_assumption ?? null,
    repeats: [...new Set(steady.map((step) => step.repeat))],
  };
}

function requestMeans({ simulated, compare }: SimStepTimeline, judged: boolean): RequestMeans {
  const steady = (simulated.requests ?? []).filter((request) => !request.warmup);
  const compared = compare?.requests ?? [];
  const pair = (real: (r: CompareRequest) => number | null, sim: (r: (typeof steady)[number]) => number | null): Pair => {
    const realMean = mean(compared.map(real));
    const simMean = mean(steady.map(sim));
    const errorPct = !judged || realMean === null || simMean === null || realMean === 0 ? null : ((simMean - realMean) / realMean) * 100;
    return { real: realMean, simulated: simMean, errorPct };
  };
  return {
    ttftMs: pair((r) => r.ttft_ms.real, (r) => r.ttft_ms),
    itlMs: pair((r) => r.itl_ms_mean.real, (r) => r.itl_ms_mean),
    e2eMs: pair((r) => r.e2e_ms.real, (r) => r.e2e_ms),
    repeats: steady.length,
  };
}

function mean(values: ReadonlyArray<number | null>): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

/** The steps of one repeat, aligned by step number, for every timeline. */
export function stepSeries(timelines: ReadonlyArray<{ timeline: SimStepTimeline; label: string }>, repeat: number, metric: StepMetric): StepSeries {
  const numbers = new Set<number>();
  const real = new Map<number, number | null>();
  const perTimeline = timelines.map(({ timeline, label }) => {
    const values = new Map<number, number | null>();
    for (const step of timeline.simulated.steps) {
      if (step.repeat !== repeat) continue;
      numbers.add(step.step);
      values.set(step.step, metric === "wall" ? step.baseline_wall_ns : step.gpu_busy_ns);
    }
    for (const step of timeline.compare?.steps ?? []) {
      if (step.repeat !== repeat) continue;
      const value = metric === "wall" ? step.wall_ns.real : step.gpu_busy_ns.real;
      if (value !== null) real.set(step.step, value);
    }
    return { label, values };
  });
  const x = [...numbers].sort((a, b) => a - b);
  return {
    x,
    real: x.map((step) => real.get(step) ?? null),
    simulated: perTimeline.map(({ label, values }) => ({ label, values: x.map((step) => values.get(step) ?? null) })),
    hasReal: real.size > 0,
  };
}
