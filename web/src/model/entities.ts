// Wire types become view types here, one function each: dates become epoch
// milliseconds, optional fields of older servers become plain values. Everything
// behind this file works on view types only.
import type {
  KernelStat,
  RunDetail,
  RunEntry,
  RunState,
  RunSummary,
  SimMetrics,
  SimState,
  SimSummary,
  TraceDetail,
  TraceState,
  TraceSummary,
  KernelLaunch,
} from "../api/types";

export type { SimState, RunState, TraceState, RunEntry, KernelLaunch };

/** What produced a sim's numbers; `unknown` on servers that do not say. */
export type Engine = "accel-sim" | "replay" | "estimate" | "unknown";

export interface Sim {
  readonly id: string;
  readonly runId: string;
  readonly config: string;
  readonly replica: number;
  readonly state: SimState;
  readonly error: string | null;
  readonly launcherRef: string | null;
  readonly createdAt: number | null;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
  readonly heartbeatAt: number | null;
  readonly exitCode: number | null;
  readonly kernelsDone: number;
  readonly kernelsTotal: number;
  readonly currentKernel: string | null;
  readonly latest: Readonly<Required<SimMetrics>>;
  readonly logTail: readonly string[];
  readonly engine: Engine;
  /** The clock that the log states, where it differs from the config's. */
  readonly logClockMhz: number | null;
}

/** A finished kernel of one sim, without Accel-Sim's 950 raw keys. */
export interface Kernel {
  readonly simId: string;
  readonly index: number;
  readonly name: string;
  readonly uid: number | null;
  readonly cycles: number | null;
  readonly instructions: number | null;
  readonly ipc: number | null;
  readonly timeNs: number | null;
  /** Kernels overlapped: the time runs from the previous completion and is no duration. */
  readonly overlapped: boolean;
  /** A simulation limit cut the kernel. */
  readonly cut: boolean;
}

export interface Trace {
  readonly id: string;
  readonly state: TraceState;
  readonly error: string | null;
  readonly createdAt: number | null;
  readonly updatedAt: number | null;
  readonly model: string | null;
  readonly layers: readonly string[];
  readonly sourceGpu: string | null;
  readonly arch: string;
  readonly suggestedConfig: string | null;
  readonly realConfig: string | null;
  readonly sampleConfigs: readonly string[];
  readonly sampleSet: string | null;
  readonly kernelCount: number;
  readonly bytes: number;
  readonly hasRealTiming: boolean;
  readonly hasStepTimeline: boolean;
  readonly sample: boolean;
}

export interface TraceFile {
  readonly key: string;
  readonly bytes: number | null;
}

export interface TraceWithKernels extends Trace {
  readonly prompts: readonly string[];
  readonly files: readonly TraceFile[];
  /** The rest of metadata.json: whatever the lists above do not show. */
  readonly extra: ReadonlyArray<readonly [string, string]>;
  readonly kernels: readonly KernelLaunch[];
}

export interface Run {
  readonly id: string;
  readonly traceId: string;
  readonly createdAt: number | null;
  readonly state: RunState;
  readonly entries: readonly RunEntry[];
  readonly simCounts: Readonly<Partial<Record<SimState, number>>>;
  readonly sample: boolean;
  readonly replay: boolean;
  /** What made the numbers so far; empty while no sim says so. */
  readonly engines: readonly Engine[];
}

export interface RunWithSims extends Run {
  readonly trace: Trace;
  readonly sims: readonly Sim[];
}

export const TERMINAL: ReadonlySet<SimState> = new Set<SimState>(["succeeded", "failed", "cancelled"]);
export const SIM_STATES: readonly SimState[] = [
  "succeeded",
  "running",
  "launching",
  "pending",
  "lost",
  "failed",
  "cancelled",
];

function moment(text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : ms;
}

export function toEngine(text: string | null | undefined): Engine {
  return text === "accel-sim" || text === "replay" || text === "estimate" ? text : "unknown";
}

export function toSim(wire: SimSummary): Sim {
  return {
    id: wire.id,
    runId: wire.run_id,
    config: wire.gpu_config,
    replica: wire.replica,
    state: wire.state,
    error: wire.error,
    launcherRef: wire.launcher_ref,
    createdAt: moment(wire.created_at),
    startedAt: moment(wire.started_at),
    finishedAt: moment(wire.finished_at),
    heartbeatAt: moment(wire.last_heartbeat_at),
    exitCode: wire.exit_code,
    kernelsDone: wire.kernels_done,
    kernelsTotal: wire.kernels_total,
    currentKernel: wire.current_kernel,
    latest: {
      gpu_tot_sim_cycle: wire.latest.gpu_tot_sim_cycle ?? null,
      gpu_tot_sim_insn: wire.latest.gpu_tot_sim_insn ?? null,
      gpu_tot_ipc: wire.latest.gpu_tot_ipc ?? null,
      sim_rate_ips: wire.latest.sim_rate_ips ?? null,
    },
    logTail: wire.log_tail,
    engine: toEngine(wire.engine),
    logClockMhz: wire.log_clock_mhz ?? null,
  };
}

export function toKernel(wire: KernelStat): Kernel {
  return {
    simId: wire.sim_id,
    index: wire.kernel_index,
    name: wire.kernel_name,
    uid: wire.kernel_launch_uid,
    cycles: wire.gpu_sim_cycle,
    instructions: wire.gpu_sim_insn,
    ipc: wire.gpu_ipc,
    timeNs: wire.sim_time_ns,
    overlapped: wire.since_last_completion ?? false,
    cut: wire.partial ?? false,
  };
}

/**
 * The kernels with every name as one string: each kernel of a parsed or posted message brings its own copy, some 700
 * characters for a template, and a run has one for each kernel of each sim. `names` holds the strings so far.
 */
export function shareNames(kernels: readonly Kernel[], names: Map<string, string>): Kernel[] {
  return kernels.map((kernel) => {
    const known = names.get(kernel.name);
    if (known !== undefined) return { ...kernel, name: known };
    names.set(kernel.name, kernel.name);
    return kernel;
  });
}

export function toTrace(wire: TraceSummary): Trace {
  return {
    id: wire.id,
    state: wire.state,
    error: wire.error,
    createdAt: moment(wire.created_at),
    updatedAt: moment(wire.updated_at),
    model: wire.model,
    layers: wire.layers,
    sourceGpu: wire.source_gpu,
    arch: wire.trace_gpu_arch,
    suggestedConfig: wire.suggested_sim_config,
    realConfig: wire.real_gpu_config ?? null,
    sampleConfigs: wire.sample_sim_configs ?? [],
    sampleSet: wire.sample_set ?? null,
    kernelCount: wire.kernel_count,
    bytes: wire.bytes,
    hasRealTiming: wire.has_real_timing,
    hasStepTimeline: wire.has_step_timeline,
    sample: wire.sample,
  };
}

const SHOWN_ELSEWHERE = new Set(["files", "prompts", "layers", "model", "gpu", "trace_gpu_arch", "suggested_sim_config"]);

export function toTraceDetail(wire: TraceDetail): TraceWithKernels {
  const metadata = wire.metadata ?? {};
  const prompts = Array.isArray(metadata["prompts"]) ? metadata["prompts"].filter(isString) : [];
  const prompt = metadata["prompt"];
  return {
    ...toTrace(wire),
    prompts: prompts.length === 0 && isString(prompt) ? [prompt] : prompts,
    files: traceFiles(metadata["files"]),
    extra: Object.entries(metadata)
      .filter(([key]) => !SHOWN_ELSEWHERE.has(key))
      .map(([key, value]) => [key, isString(value) ? value : JSON.stringify(value)] as const),
    kernels: wire.kernels,
  };
}

function traceFiles(value: unknown): TraceFile[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown) => {
    if (typeof item !== "object" || item === null || !("key" in item) || !isString(item.key)) return [];
    const bytes = "bytes" in item && typeof item.bytes === "number" ? item.bytes : null;
    return [{ key: item.key, bytes }];
  });
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}

export function toRun(wire: RunSummary): Run {
  return {
    id: wire.id,
    traceId: wire.trace_id,
    createdAt: moment(wire.created_at),
    state: wire.state,
    entries: wire.entries,
    simCounts: wire.sim_counts,
    sample: wire.sample,
    replay: wire.replay ?? false,
    engines: (wire.engines ?? []).map(toEngine),
  };
}

export function toRunDetail(wire: RunDetail): RunWithSims {
  return { ...toRun(wire), trace: toTrace(wire.trace), sims: wire.sims.map(toSim) };
}

/** The run's state by the server's own rule, so that the page needs no second request. */
export function runStateOf(sims: Iterable<Sim>): RunState {
  let all = 0;
  const counts: Partial<Record<SimState, number>> = {};
  for (const sim of sims) {
    all += 1;
    counts[sim.state] = (counts[sim.state] ?? 0) + 1;
    if (!TERMINAL.has(sim.state)) return "active";
  }
  const succeeded = counts.succeeded ?? 0;
  if (succeeded === all) return "succeeded";
  if (succeeded > 0) return "partial";
  return (counts.cancelled ?? 0) > 0 ? "cancelled" : "failed";
}

export function countStates(sims: Iterable<Sim>): Partial<Record<SimState, number>> {
  const counts: Partial<Record<SimState, number>> = {};
  for (const sim of sims) counts[sim.state] = (counts[sim.state] ?? 0) + 1;
  return counts;
}
