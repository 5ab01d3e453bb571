// What a run costs in memory: a test that asks Node, which no code of the page may.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import type { KernelStat, SimSummary } from "../api/types";
import { Gathering } from "./coalesce";
import { toRunDetail } from "./entities";
import type { LiveRun } from "./run-state";
import { applyBatch, applySnapshot, withSharedNames } from "./run-state";
import { wireKernel, wireRun, wireSim } from "./testing";

test("the kernels of all sims share the strings of their names", () => {
  const mebibyte = 2 ** 20;
  const sims = Array.from({ length: 100 }, (_, replica) => wireSim({ id: `sim-${replica}`, replica }));
  const names = new Map<string, string>();
  const told = (sim: SimSummary): string => JSON.stringify(Array.from({ length: 200 }, (_, i) => wireKernel({ sim_id: sim.id, kernel_index: i, kernel_name: `_Z${"k".repeat(2000)}${i}` })));
  let state: LiveRun | null = applySnapshot(null, toRunDetail(wireRun(sims)), []);
  const before = heapBytes();
  for (const sim of sims) {
    const gathering = new Gathering();
    for (const stat of JSON.parse(told(sim)) as KernelStat[]) gathering.add({ type: "kernel", stat });
    const batch = gathering.take()?.batch;
    if (batch !== undefined) state = applyBatch(state, withSharedNames(batch, names));
  }
  expect(state?.kernelCount).toBe(20_000);
  // 40 MB of names when each kernel keeps its own.
  expect(heapBytes() - before).toBeLessThan(15 * mebibyte);
});

/** What is in use after a collection. */
function heapBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  return process.memoryUsage().heapUsed;
}
