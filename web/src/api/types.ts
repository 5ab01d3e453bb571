// The wire types of the HTTP API, field for field. Nothing here is derived and
// nothing here is used by components directly: model/entities.ts turns each one
// into a view type. Written by hand from the API's type reference; the generated
// ones of `npm run gen:types` replace them without a change elsewhere.

export type TraceState = "uploading" | "processing" | "ready" | "failed";
export type SimState =
  | "pending"
  | "launching"
  | "running"
  | "lost"
  | "succeeded"
  | "failed"
  | "cancelled";
export type RunState = "active" | "succeeded" | "partial" | "failed" | "cancelled";

export interface Health {
  ok: boolean;
  auth: boolean;
  workspace: string | null;
  s3_endpoint?: string | null;
}

export interface GpuConfig {
  name: string;
  arch: string;
  core_clock_mhz: number;
}

export type Dim3 = [number, number, number];

export interface KernelLaunch {
  kernel_id: number;
  name: string;
  grid: Dim3;
  block: Dim3;
  instructions: number | null;
}

export interface TraceSummary {
  id: string;
  state: TraceState;
  error: string | null;
  created_at: string;
  updated_at: string;
  model: string | null;
  layers: string[];
  source_gpu: string | null;
  trace_gpu_arch: string;
  suggested_sim_config: string | null;
  real_gpu_config?: string | null;
  sample_sim_configs?: string[];
  sample_set?: string | null;
  kernel_count: number;
  bytes: number;
  has_real_timing: boolean;
  has_step_timeline: boolean;
  sample: boolean;
}

export interface TraceDetail extends TraceSummary {
  metadata: Record<string, unknown> | null;
  kernels: KernelLaunch[];
}

export interface RunEntry {
  gpu_config: string;
  count: number;
}

export interface RunCreate {
  trace_id: string;
  entries: RunEntry[];
}

export interface RunSummary {
  id: string;
  trace_id: string;
  created_at: string;
  state: RunState;
  entries: RunEntry[];
  sim_counts: Partial<Record<SimState, number>>;
  sample: boolean;
  replay?: boolean;
}

export interface SimMetrics {
  gpu_tot_sim_cycle: number | null;
  gpu_tot_sim_insn: number | null;
  gpu_tot_ipc: number | null;
  sim_rate_ips: number | null;
}

export interface SimSummary {
  id: string;
  run_id: string;
  gpu_config: string;
  replica: number;
  state: SimState;
  error: string | null;
  launcher_ref: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  last_heartbeat_at: string | null;
  exit_code: number | null;
  kernels_done: number;
  kernels_total: number;
  current_kernel: string | null;
  latest: SimMetrics;
  log_tail: string[];
  /** Which engine made the numbers; absent in older responses. */
  engine?: string | null;
  provenance?: string | null;
  /** The core clock that the log states, where it is not the config's. */
  log_clock_mhz?: number | null;
}

export interface RunDetail extends RunSummary {
  trace: TraceSummary;
  sims: SimSummary[];
}

export interface KernelStat {
  sim_id: string;
  kernel_index: number;
  kernel_name: string;
  kernel_launch_uid: number | null;
  gpu_sim_cycle: number | null;
  gpu_sim_insn: number | null;
  gpu_ipc: number | null;
  sim_time_ns: number | null;
  stats: Record<string, number | string>;
  /** True where kernels overlapped: the cycles count from the previous completion. */
  since_last_completion?: boolean;
  /** True where a simulation limit cut the kernel. */
  partial?: boolean;
}

export interface ComparisonRow {
  kernel_index: number;
  kernel_name: string;
  real_ns: number | null;
  sim_ns: Record<string, number | null>;
}

export interface Comparison {
  has_real_timing: boolean;
  configs: string[];
  rows: ComparisonRow[];
}

export interface SimFile {
  name: string;
  size: number;
  content_type: string;
  created_at: string;
}

export interface RunFile extends SimFile {
  sim_id: string;
  gpu_config: string;
  replica: number;
}

export interface TimelineStep {
  step: number;
  repeat: number;
  warmup: boolean;
  kind: string;
  baseline_wall_ns: number | null;
  gpu_busy_ns: number | null;
}

export interface TimelineRequest {
  repeat: number;
  warmup: boolean;
  ttft_ms: number | null;
  itl_ms_mean: number | null;
  e2e_ms: number | null;
}

export interface KindSummary {
  steps: number;
  wall_ns_mean: number | null;
  gpu_busy_ns_mean: number | null;
}

export interface SimulatedTimeline {
  steps: TimelineStep[];
  requests?: TimelineRequest[];
  summary: {
    simulation?: {
      coverage?: {
        kernels?: number;
        simulated_kernels?: number;
        kernel_fraction?: number | null;
        gpu_time_fraction?: number | null;
      };
      request_assumption?: string;
    };
    per_kind?: Record<string, KindSummary>;
  };
  meta?: Record<string, unknown>;
}

export interface RealAndSimulated {
  real: number | null;
  simulated: number | null;
  error: number | null;
  error_pct: number | null;
}

export interface CompareStep {
  repeat: number;
  step: number;
  kind: string;
  wall_ns: RealAndSimulated;
  gpu_busy_ns: RealAndSimulated;
}

export interface CompareRequest {
  repeat: number;
  ttft_ms: RealAndSimulated;
  itl_ms_mean: RealAndSimulated;
  e2e_ms: RealAndSimulated;
}

export interface ErrorSummary {
  count: number;
  mean_error_pct: number | null;
  mean_abs_error_pct: number | null;
  p50_abs_error_pct: number | null;
  p95_abs_error_pct: number | null;
}

export interface StepCompare {
  steps: CompareStep[];
  requests: CompareRequest[];
  summary: { wall_ns?: ErrorSummary; gpu_busy_ns?: ErrorSummary };
}

export interface SimStepTimeline {
  sim_id: string;
  gpu_config: string;
  replica: number;
  simulated: SimulatedTimeline;
  compare: StepCompare | null;
}

export type RunEvent =
  | { type: "snapshot"; run: RunDetail; kernels: KernelStat[] }
  | { type: "sim"; sim: SimSummary }
  | { type: "log"; sim_id: string; lines: string[] }
  | { type: "kernel"; stat: KernelStat };

export interface SchedulerSettings {
  max_num_seqs: number;
  max_num_batched_tokens: number;
  block_size: number;
  enable_chunked_prefill: boolean;
  gpu_memory_utilization: number;
  num_kv_blocks: number;
}

export interface ScenarioCreate {
  trace_id: string;
  gpu_config: string;
  num_requests: number;
  prompt_tokens: number;
  output_tokens: number;
  arrival_rate_rps: number;
  fresh?: boolean;
  scheduler?: Partial<SchedulerSettings>;
}

export interface ScenarioRequestResult {
  id: string;
  arrival_s: number;
  prompt_tokens: number;
  output_tokens: number;
  queue_ms: number | null;
  ttft_ms: number | null;
  itl_ms_mean: number | null;
  itl_ms_p50: number | null;
  e2e_ms: number | null;
  emitted_tokens: number;
  preemptions: number;
}

export interface ScenarioStep {
  step_index: number;
  kind: string;
  start_ms: number;
  end_ms: number;
  num_seqs: number;
  query_tokens: number;
  context_tokens: number;
  kv_blocks_used: number;
  provenance: string;
}

export interface ScenarioResult {
  trace_id: string;
  gpu_config: string;
  run_id?: string | null;
  sim_id?: string | null;
  cached?: boolean;
  aggregate: {
    p50_ttft_ms: number | null;
    p99_ttft_ms: number | null;
    p50_itl_ms: number | null;
    p50_e2e_ms: number | null;
    p99_e2e_ms: number | null;
    throughput_output_tokens_s: number | null;
  };
  steps_total: number;
  steps_returned: number;
  steps_downsampled: boolean;
  steps_sampling?: string | null;
  provenance_counts: Record<string, number>;
  calibration_range: { prefill_tokens: [number, number]; decode_context: [number, number] };
  scheduler: SchedulerSettings;
  assumptions?: unknown[];
  requests: ScenarioRequestResult[];
  steps: ScenarioStep[];
  sample?: boolean;
  replay?: boolean;
  engine?: string | null;
}
