import { expect, test } from "vitest";
import { metricTable, sortMetrics } from "./kernel-metrics";
import { wireKernel } from "./testing";

const block = (kernel_index: number, stats: Record<string, number | string>) => wireKernel({ kernel_index, stats });
const column = (table: ReturnType<typeof metricTable>, key: string) => {
  const at = table.columns.findIndex((one) => one.key === key);
  return table.rows.map((row) => row.values[at]);
};

test("counters that run on are taken as the difference to the kernel before", () => {
  const table = metricTable([
    block(1, { L2_total_cache_accesses: 10_240, L2_total_cache_misses: 6144, gpgpu_n_stall_shd_mem: 6376 }),
    block(0, { L2_total_cache_accesses: 6144, L2_total_cache_misses: 6144, gpgpu_n_stall_shd_mem: 4512 }),
  ]);
  expect(table.rows.map((row) => row.index)).toEqual([0, 1]);
  expect(column(table, "l2")).toEqual([100, 0]);
  expect(column(table, "memstall")).toEqual([4512, 1864]);
});

test("a counter that fell was started anew, and a missing kernel leaves no difference", () => {
  expect(column(metricTable([block(0, { gpu_stall_dramfull: 9 }), block(1, { gpu_stall_dramfull: 4 })]), "dramfull")).toEqual([9, 4]);
  expect(column(metricTable([block(0, { gpu_stall_dramfull: 9 }), block(2, { gpu_stall_dramfull: 12 })]), "dramfull")).toEqual([9, null]);
});

test("numbers with a unit are read, nan is missing, and a column without a number is left out", () => {
  const table = metricTable([block(0, { L2_BW: "36.5092 GB/Sec", gpu_occupancy: "-nan%" }), block(1, { L2_BW: "nan GB/Sec", gpu_occupancy: "-nan%" })]);
  expect(column(table, "l2bw")).toEqual([36.5092, null]);
  expect(table.columns.map((one) => one.key)).toEqual(["time", "cycles", "instructions", "ipc", "l2bw"]);
  expect(column(metricTable([block(0, { gpu_occupancy: "41.2%" })]), "occupancy")).toEqual([41.2]);
});

test("an unused cache has no miss rate", () => {
  expect(metricTable([block(0, { L1D_total_cache_accesses: 0, L1D_total_cache_misses: 0 })]).columns.map((one) => one.key)).not.toContain("l1");
});

test("missing numbers sort last in both directions", () => {
  const table = metricTable([wireKernel({ kernel_index: 0, gpu_ipc: null }), wireKernel({ kernel_index: 1, gpu_ipc: 2 }), wireKernel({ kernel_index: 2, gpu_ipc: 5 })]);
  const ipc = table.columns.findIndex((one) => one.key === "ipc");
  expect(sortMetrics(table.rows, ipc, true).map((row) => row.index)).toEqual([2, 1, 0]);
  expect(sortMetrics(table.rows, ipc, false).map((row) => row.index)).toEqual([1, 2, 0]);
  expect(sortMetrics(table.rows, null, true).map((row) => row.index)).toEqual([2, 1, 0]);
});
