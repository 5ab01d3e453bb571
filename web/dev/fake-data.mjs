// Invented but plausible data for the fake server: traces, runs, kernels, step
// timing and scenarios in the shapes of the API. Names and magnitudes follow the
// OPT-125m sample; every number is made here, none was measured.

export const KERNEL_NAMES = [
  "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT",
  "_ZN4vllm30reshape_and_cache_flash_kernelIttLNS_18Fp8KVCacheDataTypeE0EEEvPKT_S4_PT0_S6_PKlllllliiiPKfSA_i",
  "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90ILi2EN4cute5tupleIJNS5_1CILi1EEES8_S8_EEENS6_IJNS7_ILi64EEENS7_ILi192EEESA_EEELi64ENS_6half_tEfNS_4arch4Sm90ELb1ELb0ELb0ELb1ELb1ELb0ELb0ELb1ELb1ELb1ELb0ELb0ENS_10bfloat16_tELi1EEENS1_21CollectiveEpilogueFwdINS6_IJSA_SA_SB_EEES9_SD_SF_Li128ELb1ELb1ELb0ELb0ELi1EEENS1_36VarlenDynamicPersistentTileSchedulerILi64ELi192ELi128ELi128ELb0ELb1ELb1ELb1ELb0ELb1EEEEEEEEEvNT_6ParamsE",
  "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEESt5arrayIPcLm1EEEEviT0_T1_",
  "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_",
  "_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e8543distribution_elementwise_grid_stride_kernelIfLi4EEEvlNS_15PhiloxCudaStateE",
  "_ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif6__halffS1_Lb0EfS1_S1_Lb1ELb1ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_",
  "_ZN4vllm15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii",
];
const MEAN_CYCLES = [9786, 8073, 13589, 5345, 6397, 7000, 7269, 10103];
export const CONFIGS = [
  { name: "SM7_QV100", arch: "sm_70", core_clock_mhz: 1132 },
  { name: "SM75_RTX2060", arch: "sm_75", core_clock_mhz: 1365 },
  { name: "SM80_A100", arch: "sm_80", core_clock_mhz: 1410 },
  { name: "SM86_RTX3070", arch: "sm_86", core_clock_mhz: 1132 },
  { name: "SM90_H100", arch: "sm_90", core_clock_mhz: 1980 },
  { name: "SM90_H100_PCIE", arch: "sm_90", core_clock_mhz: 1755 },
  { name: "SM90_H100_HALF_L2", arch: "sm_90", core_clock_mhz: 1980 },
  { name: "SM90_H200", arch: "sm_90", core_clock_mhz: 1980 },
  { name: "SM90_H200_SLOW_HBM", arch: "sm_90", core_clock_mhz: 1980 },
];

/** A small seeded generator (mulberry32), so that each start shows the same numbers. */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const iso = (ms) => new Date(ms).toISOString();
const START = Date.now();

export function trace(id, over = {}) {
  return {
    id, state: "ready", error: null, created_at: iso(START - 3.1e6), updated_at: iso(START - 3e6),
    model: "facebook/opt-125m", layers: ["model.decoder.layers.10.self_attn", "model.decoder.layers.10.fc1"],
    source_gpu: "NVIDIA H100 80GB HBM3", trace_gpu_arch: "sm_90", suggested_sim_config: "SM90_H100",
    real_gpu_config: "SM90_H100", sample_sim_configs: [], sample_set: null, kernel_count: 96, bytes: 13_065_268,
    has_real_timing: true, has_step_timeline: true, sample: false, ...over,
  };
}

export const TRACES = [
  trace("20261107-120000__Qwen__Qwen3-0.6B__model.layers.10.self_attn", { model: "Qwen/Qwen3-0.6B", layers: ["model.layers.10.self_attn"], created_at: iso(START - 42e3), updated_at: iso(START - 2e3), state: "uploading", kernel_count: 31, bytes: 4.1e9, has_real_timing: false, has_step_timeline: false, suggested_sim_config: null }),
  trace("llama-decode-1", { model: "meta-llama/Llama-3.2-1B", layers: ["model.layers.0"], state: "processing", created_at: iso(START - 600e3), updated_at: iso(START - 9e3), bytes: 2.3e10, kernel_count: 412, has_real_timing: false, has_step_timeline: false }),
  trace("opt125m-h100 run 2", { created_at: iso(START - 1800e3) }),
  trace("demo", { model: null, layers: [], source_gpu: null, trace_gpu_arch: "sm_86", suggested_sim_config: "SM86_RTX3070", real_gpu_config: null, kernel_count: 20, bytes: 16_890_250, has_real_timing: false, has_step_timeline: false, created_at: iso(START - 7200e3) }),
  trace("demo-failed", { state: "failed", error: "post-processing exited 1: traces/kernel-12.trace.xz: unexpected end of input\nthe file is cut short; upload it again", kernel_count: 0, bytes: 16_650_759, has_real_timing: false, has_step_timeline: false, model: null, layers: [], source_gpu: null, created_at: iso(START - 9000e3) }),
  trace("sample__facebook_opt-125m__h100-e2e", { layers: ["step 0 (prefill)", "step 2 (decode)", "step 10 (decode)", "step 26 (decode)"], sample: true, sample_set: "opt125m-e2e", sample_sim_configs: ["SM90_H100", "SM90_H200"], kernel_count: 712, created_at: iso(START - 86400e3 * 3) }),
  trace("sample__facebook_opt-125m__a100-e2e", { source_gpu: "NVIDIA A100-SXM4-80GB", trace_gpu_arch: "sm_80", suggested_sim_config: "SM80_A100", real_gpu_config: "SM80_A100", layers: ["step 0 (prefill)"], sample: true, sample_set: "opt125m-e2e", sample_sim_configs: ["SM80_A100"], kernel_count: 624, created_at: iso(START - 86400e3 * 3) }),
];

export function traceDetail(summary) {
  const rand = random(summary.kernel_count + 1);
  const kernels = summary.state !== "ready" ? [] : Array.from({ length: summary.kernel_count }, (_, i) => ({
    kernel_id: i + 1,
    name: kernelName(summary.id, i),
    grid: [Math.ceil(rand() * 64), i % 3 === 0 ? 12 : 1, 1],
    block: [128 * Math.ceil(rand() * 8), 1, 1],
    instructions: i === summary.kernel_count - 1 ? null : Math.round(3000 + rand() * 5e6),
  }));
  const files = summary.state === "uploading" ? undefined : [
    { key: `accelsim-traces/${summary.id}/traces/kernelslist.g`, bytes: 1352 },
    ...kernels.slice(0, 24).map((k) => ({ key: `accelsim-traces/${summary.id}/traces/kernel-${k.kernel_id}.traceg.xz`, bytes: 120_000 + 931 * k.kernel_id })),
    { key: `accelsim-traces/${summary.id}/real_timing.json`, bytes: 138_913 },
  ];
  const metadata = summary.state === "uploading" ? null : {
    status: summary.state === "failed" ? "failed" : "ok", model: summary.model, layers: summary.layers, prompts: ["Hello, my name is"],
    gpu: summary.source_gpu, trace_gpu_arch: summary.trace_gpu_arch, vllm_version: "0.21.0", max_tokens: 32, files,
    ...(summary.sample ? { provenance: "Reconstructed from published statistics; not a raw capture." } : {}),
  };
  return { ...summary, metadata, kernels };
}

const BABELSTREAM = ["_Z11init_kernelIdEvPT_S1_S1_S0_S0_S0_", "_Z11copy_kernelIdEvPKT_PS0_", "_Z10mul_kernelIdEvPT_PKS0_", "_Z10add_kernelIdEvPKT_S2_PS0_", "_Z12triad_kernelIdEvPT_PKS0_S3_", "_Z10dot_kernelIdEvPKT_S2_PS0_i"];

export function kernelName(traceId, index) {
  if (traceId === "demo") return BABELSTREAM[index % 6];
  return KERNEL_NAMES[(index * 5 + (index >> 3)) % KERNEL_NAMES.length];
}

export function kernelStat(sim, index, traceId) {
  const config = CONFIGS.find((c) => c.name === sim.gpu_config) ?? CONFIGS[0];
  const kind = (index * 5 + (index >> 3)) % KERNEL_NAMES.length;
  const rand = random(index * 977 + sim.replica * 7 + sim.gpu_config.length * 131);
  const slow = sim.gpu_config.includes("SLOW") ? 1.18 : sim.gpu_config.includes("HALF") ? 1.07 : sim.gpu_config.includes("H200") ? 0.985 : 1;
  const big = index % 89 === 88 ? 6 : 1;
  const cycles = Math.round(MEAN_CYCLES[kind] * big * slow * (0.97 + 0.06 * rand()));
  const insn = Math.round(cycles * (20 + 400 * random(kind + 5)()));
  return {
    sim_id: sim.id, kernel_index: index, kernel_name: kernelName(traceId, index), kernel_launch_uid: index + 1,
    gpu_sim_cycle: cycles, gpu_sim_insn: insn, gpu_ipc: insn / cycles, sim_time_ns: (cycles / config.core_clock_mhz) * 1000, stats: {},
  };
}

export function realNs(traceId, index) {
  const kind = (index * 5 + (index >> 3)) % KERNEL_NAMES.length;
  const rand = random(index * 31 + 3);
  const ratio = [0.95, 0.51, 0.92, 0.43, 0.43, 0.6, 0.53, 0.67][kind];
  return (MEAN_CYCLES[kind] / 1980) * 1000 * ratio * (0.95 + 0.1 * rand()) * (index % 89 === 88 ? 7 : 1);
}

export function stepTimeline(sim, real) {
  const rand = random(sim.replica + sim.gpu_config.length);
  const steps = [];
  const compared = [];
  for (let repeat = 0; repeat < 4; repeat += 1) {
    for (let step = 0; step < 32; step += 1) {
      const kind = step === 0 ? "prefill" : "decode";
      const realWall = (kind === "prefill" ? 8.46e6 : 7.89e6) * (0.985 + 0.03 * rand());
      const busy = kind === "prefill" ? 615_527 : 575_611;
      const wall = realWall + 240e3;
      steps.push({ step, repeat, warmup: repeat === 0, kind, num_reqs: 1, num_scheduled_tokens: step === 0 ? 6 : 1, baseline_wall_ns: wall, gpu_busy_ns: busy + 240e3, kernels: [] });
      const pair = (r, s) => ({ real: r, simulated: s, error: s - r, error_pct: ((s - r) / r) * 100 });
      if (repeat > 0) compared.push({ repeat, step, kind, wall_ns: pair(realWall, wall), gpu_busy_ns: pair(busy, busy + 240e3) });
    }
  }
  const pair = (r, s) => ({ real: real ? r : null, simulated: s, error: real ? s - r : null, error_pct: real ? ((s - r) / r) * 100 : null });
  const requests = [1, 2, 3].map((repeat) => ({ repeat, ttft_ms: pair(8.63, 8.99), itl_ms_mean: pair(7.93, 8.17), itl_ms_p50: pair(null, 8.12), e2e_ms: pair(253.4 + repeat, 261.1 + repeat) }));
  return {
    sim_id: sim.id, gpu_config: sim.gpu_config, replica: sim.replica,
    simulated: {
      meta: {}, steps, requests: requests.map((r) => ({ repeat: r.repeat, warmup: false, ttft_ms: r.ttft_ms.simulated, itl_ms_mean: r.itl_ms_mean.simulated, e2e_ms: r.e2e_ms.simulated })),
      summary: {
        simulation: { coverage: { kernels: 17088, simulated_kernels: 17088, kernel_fraction: 1, gpu_time_fraction: 0.9813 }, request_assumption: "one request per repeat; queued + pre/steps/inter-step gaps/post" },
        per_kind: { prefill: { steps: 3, wall_ns_mean: 8_706_040, gpu_busy_ns_mean: 822_678 }, decode: { steps: 93, wall_ns_mean: 8_135_861, gpu_busy_ns_mean: 816_979 } },
      },
    },
    compare: real ? { steps: compared, requests, summary: { wall_ns: { count: 96, mean_error_pct: 3.04, mean_abs_error_pct: 3.04, p50_abs_error_pct: 3.07, p95_abs_error_pct: 3.15 }, gpu_busy_ns: { count: 96, mean_error_pct: 41.7, mean_abs_error_pct: 41.7, p50_abs_error_pct: 41.9, p95_abs_error_pct: 42.2 } } } : null,
  };
}

/** A scenario answer with the right shape: batches of decodes and prefills at fixed step times. */
export function scenario(body) {
  const n = body.num_requests;
  const rate = body.arrival_rate_rps || 0;
  const rand = random(n + body.prompt_tokens);
  const requests = [];
  let last = 0;
  for (let i = 0; i < n; i += 1) {
    const arrival = rate > 0 ? i / rate : 0;
    const ttft = 9 + rand() * (rate > 0 ? 12 : 0.8 * n);
    const itl = 8.1 + rand() * 0.6;
    const e2e = ttft + itl * Math.max(0, body.output_tokens - 1);
    last = Math.max(last, arrival * 1000 + e2e);
    requests.push({ id: `request-${i}`, arrival_s: arrival, prompt_tokens: body.prompt_tokens, output_tokens: body.output_tokens, queue_ms: 0.28 + rand(), ttft_ms: body.output_tokens > 0 ? ttft : null, itl_ms_mean: body.output_tokens > 1 ? itl : null, itl_ms_p50: body.output_tokens > 1 ? itl : null, e2e_ms: e2e, emitted_tokens: body.output_tokens, preemptions: i % 17 === 16 ? 1 : 0 });
  }
  const steps = [];
  for (let t = 0.28, i = 0; t < last && i < 5000; i += 1) {
    const wall = 8.1 + rand() * 0.9;
    const seqs = requests.filter((r) => r.arrival_s * 1000 <= t && r.arrival_s * 1000 + r.e2e_ms > t).length;
    steps.push({ step_index: i, kind: i % 7 === 0 ? "prefill" : "decode", start_ms: t, end_ms: t + wall, num_seqs: seqs, query_tokens: i % 7 === 0 ? body.prompt_tokens : seqs, context_tokens: seqs * body.prompt_tokens, kv_blocks_used: Math.ceil((seqs * body.prompt_tokens) / 16), provenance: "extrapolated:roofline" });
    t += wall;
  }
  const at = (values, p) => values.sort((a, b) => a - b)[Math.floor(p * (values.length - 1))] ?? null;
  const pick = (key) => requests.map((r) => r[key]).filter((v) => v !== null);
  return {
    trace_id: body.trace_id, gpu_config: body.gpu_config, run_id: "run-sample-opt125m-h100-e2e", sim_id: "sim-sample-opt125m-h100-e2e", cached: true,
    aggregate: { p50_ttft_ms: at(pick("ttft_ms"), 0.5), p99_ttft_ms: at(pick("ttft_ms"), 0.99), p50_itl_ms: at(pick("itl_ms_p50"), 0.5), p50_e2e_ms: at(pick("e2e_ms"), 0.5), p99_e2e_ms: at(pick("e2e_ms"), 0.99), throughput_output_tokens_s: (n * body.output_tokens) / (last / 1000) },
    steps_total: steps.length, steps_returned: steps.length, steps_downsampled: false, steps_sampling: null,
    provenance_counts: { measured: 0, interpolated: 0, "extrapolated:roofline": steps.length, "assumed-host": steps.length },
    calibration_range: { prefill_tokens: [6, 6], decode_context: [7, 37] },
    scheduler: { max_num_seqs: 256, max_num_batched_tokens: 8192, block_size: 16, enable_chunked_prefill: true, gpu_memory_utilization: 0.8, num_kv_blocks: 106267, ...body.scheduler },
    assumptions: ["FFN width missing: assumed 4 × hidden = 3072", "vocabulary missing: assumed 50,272 for OPT", "host time held at the profiled median of each step kind", "fixed activation reserve of 1 GiB; fragmentation ignored"],
    requests, steps,
  };
}
