import { describe, expect, test } from "vitest";
import type { SimStepTimeline } from "../api/types";
import { toTraceDetail } from "./entities";
import { firstOfConfig, stepSeries, summarise } from "./step-timing";
import { wireTrace } from "./testing";

const pair = (real: number | null, simulated: number) => ({ real, simulated, error: null, error_pct: null });
const step = (repeat: number, number: number, wall: number, warmup = false) => ({ step: number, repeat, warmup, kind: number === 0 ? "prefill" : "decode", baseline_wall_ns: wall, gpu_busy_ns: wall / 10 });

function timeline(over: Partial<SimStepTimeline> = {}): SimStepTimeline {
  return {
    sim_id: "sim-a",
    gpu_config: "SM90_H100",
    replica: 0,
    simulated: {
      steps: [step(0, 0, 99, true), step(1, 0, 10), step(1, 1, 20), step(2, 0, 12)],
      requests: [
        { repeat: 0, warmup: true, ttft_ms: 500, itl_ms_mean: 500, e2e_ms: 500 },
        { repeat: 1, warmup: false, ttft_ms: 9, itl_ms_mean: 8, e2e_ms: 260 },
        { repeat: 2, warmup: false, ttft_ms: 11, itl_ms_mean: null, e2e_ms: 264 },
      ],
      summary: { simulation: { coverage: { kernel_fraction: 1, gpu_time_fraction: 0.98 } }, per_kind: { prefill: { steps: 2, wall_ns_mean: 11, gpu_busy_ns_mean: 1 } } },
    },
    compare: {
      steps: [{ repeat: 1, step: 0, kind: "prefill", wall_ns: pair(9, 10), gpu_busy_ns: pair(0.5, 1) }],
      requests: [{ repeat: 1, ttft_ms: pair(8, 9), itl_ms_mean: pair(8, 8), e2e_ms: pair(250, 260) }],
      summary: { wall_ns: { count: 1, mean_error_pct: 11, mean_abs_error_pct: 11, p50_abs_error_pct: 11, p95_abs_error_pct: 11 } },
    },
    ...over,
  };
}

describe("step timing", () => {
  test("means leave out the warm-up and missing values", () => {
    const summary = summarise(timeline(), "H100", null);
    expect(summary.requests.ttftMs).toEqual({ real: 8, simulated: 10, errorPct: 25 });
    expect(summary.requests.itlMs.simulated).toBe(8);
    expect(summary.repeats).toEqual([1, 2]);
    expect([summary.wallMapePct, summary.busyMapePct, summary.kernelCoverage]).toEqual([11, null, 1]);
  });

  test("without a real timeline there is no error", () => {
    const summary = summarise(timeline({ compare: null }), "H200", null);
    expect(summary.requests.e2eMs).toEqual({ real: null, simulated: 262, errorPct: null });
    expect(summary.wallMapePct).toBeNull();
  });

  test("the baseline of another GPU stands beside, and is no error", () => {
    const summary = summarise(timeline(), "H200", "SM90_H100");
    expect(summary.requests.ttftMs).toEqual({ real: 8, simulated: 10, errorPct: null });
    expect([summary.wallMapePct, summary.busyMapePct]).toEqual([null, null]);
  });

  test("a series holds one repeat, aligned by step, with holes where a line has no step", () => {
    const other = timeline({ gpu_config: "SM90_H200", compare: null, simulated: { ...timeline().simulated, steps: [step(1, 1, 30)] } });
    const series = stepSeries([{ timeline: timeline(), label: "a" }, { timeline: other, label: "b" }], 1, "wall");
    expect(series.x).toEqual([0, 1]);
    expect(series.real).toEqual([9, null]);
    expect(series.simulated).toEqual([
      { label: "a", values: [10, 20] },
      { label: "b", values: [null, 30] },
    ]);
  });

  test("one timeline a config", () => {
    expect(firstOfConfig([timeline(), timeline({ replica: 1 }), timeline({ gpu_config: "X" })]).map((one) => [one.gpu_config, one.replica])).toEqual([
      ["SM90_H100", 0],
      ["X", 0],
    ]);
  });
});

test("a trace's metadata becomes prompts, files and a rest, whatever is in it", () => {
  const detail = toTraceDetail({ ...wireTrace(), kernels: [], metadata: { prompts: ["Hello", 3], files: [{ key: "a", bytes: 2 }, "odd", { key: 4 }, { key: "b" }], vllm_version: "0.21.0", nested: { a: 1 }, model: "x" } });
  expect(detail.prompts).toEqual(["Hello"]);
  expect(detail.files).toEqual([{ key: "a", bytes: 2 }, { key: "b", bytes: null }]);
  expect(detail.extra).toEqual([["vllm_version", "0.21.0"], ["nested", '{"a":1}']]);
  expect(toTraceDetail({ ...wireTrace(), kernels: [], metadata: null }).files).toEqual([]);
  expect(toTraceDetail({ ...wireTrace(), kernels: [], metadata: { prompt: "Hi" } }).prompts).toEqual(["Hi"]);
});
