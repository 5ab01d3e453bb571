import { describe, expect, test } from "vitest";
import type { SimResults } from "../api/types";
import { metricTable, withCounters } from "./kernel-metrics";
import { ResultsReader } from "./results-reader";
import { wireKernel, wireSim } from "./testing";

function results(kernels: number): SimResults {
  const stats = (at: number) => ({ L2_total_cache_accesses: 10 * at, L2_BW: "3.5 GB/Sec", gpu_occupancy: "-nan%", not_shown: "x".repeat(1000), 'odd "[{,\\': "}],\\" });
  return {
    sim: wireSim({ log_tail: ['a "quoted" line [', "}, {", "\\"] }),
    trace_id: 'dem"o],[',
    gpu_config: { name: "SM90_H100", arch: "sm_90", core_clock_mhz: 1132 },
    kernels: Array.from({ length: kernels }, (_, at) => wireKernel({ kernel_index: at, stats: stats(at) })),
    totals: { gpu_tot_sim_cycle: 5, gpu_tot_sim_insn: null, gpu_tot_ipc: null, sim_rate_ips: null },
  };
}

describe("results that are read while they arrive", () => {
  test("may hold another list beside the kernels", () => {
    const text = JSON.stringify({ notes: [1, { kernels: [] }, [2, 3]], ...results(2), more: ["a", "b"] });
    const reader = new ResultsReader((kernel) => kernel);
    reader.push(text);
    expect(reader.end()).toEqual(JSON.parse(text));
  });

  test.each([1, 2, 7, 1000, 1_000_000])("are the results, in pieces of %i", (size) => {
    for (const kernels of [0, 1, 3]) {
      for (const text of [JSON.stringify(results(kernels)), JSON.stringify(results(kernels), null, 2)]) {
        const reader = new ResultsReader((kernel) => kernel);
        for (let at = 0; at < text.length; at += size) reader.push(text.slice(at, at + size));
        expect(reader.end()).toEqual(results(kernels));
      }
    }
  });

  test("keep the counters that the table is made of, and no other", () => {
    const reader = new ResultsReader(withCounters);
    reader.push(JSON.stringify(results(3)));
    const read = reader.end();
    expect(metricTable(read.kernels)).toEqual(metricTable(results(3).kernels));
    expect(Object.keys(read.kernels[1]?.stats ?? {}).sort()).toEqual(["L2_BW", "L2_total_cache_accesses", "gpu_occupancy"]);
  });

  test("that broke off are no results", () => {
    const reader = new ResultsReader((kernel) => kernel);
    reader.push(JSON.stringify(results(3)).slice(0, -20));
    expect(() => reader.end()).toThrow(SyntaxError);
  });
});
