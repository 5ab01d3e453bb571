import { expect, test } from "vitest";
import type { RunEstimate } from "../api/types";
import { sourcesText, toEstimate } from "./estimate";

const row = (kernel_index: number, source: "estimated" | "simulated", time_ns: number, low_ns: number, high_ns: number) => ({ kernel_index, kernel_name: "k", source, cycles: 0, low_cycles: 0, high_cycles: 0, time_ns, low_ns, high_ns, bottleneck: "DRAM" });

const WIRE: RunEstimate = {
  run_id: "run-1",
  trace_id: "demo",
  engine: "cascade-estimate 1",
  configs: [
    { gpu_config: "A", state: "ready", detail: null, simulated_kernels: 1, estimated_kernels: 1, total_ns: 3000, total_low_ns: 2600, total_high_ns: 3900, rows: [row(0, "simulated", 1000, 1000, 1000), row(1, "estimated", 2000, 1600, 2900)] },
    { gpu_config: "B", state: "computing", detail: "still computed" },
    { gpu_config: "C", state: "failed", detail: "kernel-3 cannot be read" },
  ],
};

test("a ready config has a total with its interval and says how much was simulated", () => {
  const [ready] = toEstimate(WIRE).configs;
  expect(ready?.total).toEqual({ ns: 3000, lowNs: 2600, highNs: 3900 });
  expect(ready?.kernels.map((kernel) => kernel.simulated)).toEqual([true, false]);
  expect(ready === undefined ? "" : sourcesText(ready)).toBe("1 of 2 kernels simulated, 1 estimated");
});

test("a config without an estimate has no total and keeps its reason", () => {
  const estimate = toEstimate(WIRE);
  expect(estimate.computing).toBe(true);
  expect(estimate.longestNs).toBe(3900);
  expect(estimate.configs[1]).toMatchObject({ total: null, state: "computing" });
  expect(estimate.configs[2]).toMatchObject({ total: null, detail: "kernel-3 cannot be read" });
});

test("all of one kind needs no two numbers", () => {
  const none = toEstimate({ ...WIRE, configs: [{ gpu_config: "A", state: "ready", rows: [row(0, "estimated", 1, 1, 1)], total_ns: 1 }] }).configs[0];
  expect(none === undefined ? "" : sourcesText(none)).toBe("the only kernel estimated");
  expect(none?.total).toEqual({ ns: 1, lowNs: 1, highNs: 1 });
});
