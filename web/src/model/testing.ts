// Builders of wire and view objects for tests: a whole object with a few fields
// changed. Not imported by the page.
import type { KernelStat, RunDetail, SimSummary, TraceSummary } from "../api/types";

export function wireSim(over: Partial<SimSummary> = {}): SimSummary {
  return {
    id: "sim-a",
    run_id: "run-1",
    gpu_config: "SM90_H100",
    replica: 0,
    state: "running",
    error: null,
    launcher_ref: "64418",
    created_at: "2026-11-08T08:59:03.024065Z",
    started_at: "2026-11-08T08:59:03.224424Z",
    finished_at: null,
    last_heartbeat_at: "2026-11-08T08:59:04Z",
    exit_code: null,
    kernels_done: 0,
    kernels_total: 20,
    current_kernel: null,
    latest: { gpu_tot_sim_cycle: null, gpu_tot_sim_insn: null, gpu_tot_ipc: null, sim_rate_ips: null },
    log_tail: [],
    ...over,
  };
}

export function wireTrace(over: Partial<TraceSummary> = {}): TraceSummary {
  return {
    id: "demo",
    state: "ready",
    error: null,
    created_at: "2026-11-08T08:59:02Z",
    updated_at: "2026-11-08T08:59:02Z",
    model: null,
    layers: [],
    source_gpu: null,
    trace_gpu_arch: "sm_90",
    suggested_sim_config: null,
    kernel_count: 20,
    bytes: 16_890_250,
    has_real_timing: false,
    has_step_timeline: false,
    sample: false,
    ...over,
  };
}

export function wireRun(sims: SimSummary[], over: Partial<RunDetail> = {}): RunDetail {
  return {
    id: "run-1",
    trace_id: "demo",
    created_at: "2026-11-08T08:59:03Z",
    state: "active",
    entries: [{ gpu_config: "SM90_H100", count: sims.length }],
    sim_counts: {},
    sample: false,
    trace: wireTrace(),
    sims,
    ...over,
  };
}

export function wireKernel(over: Partial<KernelStat> = {}): KernelStat {
  return {
    sim_id: "sim-a",
    kernel_index: 0,
    kernel_name: "_Z11copy_kernelIdEvPKT_PS0_",
    kernel_launch_uid: 1,
    gpu_sim_cycle: 6174,
    gpu_sim_insn: 19_456,
    gpu_ipc: 3.1513,
    sim_time_ns: 5454,
    stats: {},
    ...over,
  };
}
