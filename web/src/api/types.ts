// The wire types of the HTTP API by the names that the page uses. Those in openapi.d.ts are generated from the
// server's own document (`npm run gen:types`), and a test fails when they differ from it. Written by hand are only
// the step timelines, documents that the server passes on as they are. Nothing here is used by components directly:
// model/entities.ts turns each one into a view type.
import type { components } from "./openapi";

type Schemas = components["schemas"];

export type TraceState = Schemas["TraceState"];
export type SimState = Schemas["SimState"];
export type RunState = Schemas["RunState"];
export type Health = Schemas["Health"];
export type GpuConfig = Schemas["GpuConfig"];
export type KernelLaunch = Schemas["KernelLaunch"];
export type Dim3 = KernelLaunch["grid"];
export type TraceSummary = Schemas["TraceSummary"];
export type TraceDetail = Schemas["TraceDetail"];
export type RunEntry = Schemas["RunEntry"];
export type RunCreate = Schemas["RunCreate"];
export type RunSummary = Schemas["RunSummary"];
export type RunDetail = Schemas["RunDetail"];
export type SimMetrics = Schemas["SimMetrics"];
export type SimSummary = Schemas["SimSummary"];
export type KernelStat = Schemas["KernelStat"];
export type Comparison = Schemas["Comparison"];
export type ComparisonRow = Schemas["ComparisonRow"];
export type SimFile = Schemas["SimFile"];
export type SimResults = Schemas["SimResults"];
export type RunFile = Schemas["RunFile"];
export type RunEvent = Schemas["RunEvent"];
export type RunEstimate = Schemas["RunEstimate"];
export type ConfigEstimate = Schemas["ConfigEstimate"];
export type ScenarioCreate = Schemas["ScenarioRequest"];
export type ScenarioResult = Schemas["ScenarioResponse"];
export type ScenarioRequestResult = Schemas["RequestRow"];
export type ScenarioStep = Schemas["StepRow"];
export type SchedulerSettings = Schemas["SchedulerRow"];

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

export interface SimStepTimeline extends Omit<Schemas["SimStepTimeline"], "simulated" | "compare"> {
  simulated: SimulatedTimeline;
  compare: StepCompare | null;
}
