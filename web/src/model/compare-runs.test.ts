import { expect, test } from "vitest";
import type { RunDetail, SimSummary, TraceSummary } from "../api/types";
import type { ComparedRun } from "./compare-runs";
import { compareColumns, evidenceOf, groupBySim } from "./compare-runs";
import { buildTable } from "./comparison";
import { isComparable } from "./engine";
import { toKernel, toRunDetail } from "./entities";
import { wireKernel, wireRun, wireSim, wireTrace } from "./testing";

function compared(sim: Partial<SimSummary>, trace: Partial<TraceSummary> = {}, run: Partial<RunDetail> = {}): ComparedRun {
  const detail = toRunDetail(wireRun([wireSim({ state: "succeeded", kernels_done: 20, engine: "accel-sim", ...sim })], { trace: wireTrace(trace), ...run }));
  const kernel = toKernel(wireKernel());
  return { run: detail, kernels: groupBySim([kernel]), real: new Map([[0, { ns: 100, name: kernel.name }]]) };
}

test("a sample's rebuilt baseline is not called measured because another run's was", () => {
  const runs = [compared({}, { sample: true }, { trace_id: "sample" }), compared({}, {}, { trace_id: "own" })];
  const table = buildTable(compareColumns(runs), new Map());
  expect(table.columns.map((column) => [column.realWord, column.mapeRows])).toEqual([
    ["reconstructed", 1],
    ["measured", 1],
  ]);
});

test("runs whose numbers are a replayed log's are not ranked, whether the log was declared or shows", () => {
  const comparable = (run: ComparedRun) => isComparable(evidenceOf(run));
  expect(comparable(compared({}))).toBe(true);
  expect(comparable(compared({ engine: "replay" }))).toBe(false);
  expect(comparable(compared({ engine: null, kernels_done: 6 }))).toBe(false); // fewer kernels than the trace has
  expect(comparable(compared({ engine: "replay" }, { sample: true }, { replay: true }))).toBe(true); // a sample's own results
});
