import { describe, expect, test } from "vitest";
import type { ColumnInput } from "./comparison";
import { buildMetricTable, buildTable, errorPct, filterRows, groupByName, sortRows, spreadOf } from "./comparison";
import { toKernel } from "./entities";
import { wireKernel } from "./testing";

const COPY = "_Z11copy_kernelIdEvPKT_PS0_";
const DOT = "_Z10dot_kernelIdEvPKT_S2_PS0_i";
const kernels = (times: Array<number | null>, names: string[] = []) =>
  times.map((sim_time_ns, kernel_index) => toKernel(wireKernel({ kernel_index, sim_time_ns, kernel_name: names[kernel_index] ?? COPY })));
const column = (label: string, replicas: Array<Array<number | null>>, names?: string[]): ColumnInput => ({
  key: label,
  label,
  word: "simulated",
  realWord: "measured",
  replicas: replicas.map((times) => ({ kernels: kernels(times, names), succeeded: true })),
});
const real = (...times: Array<number | null>) => new Map(times.map((ns, i) => [i, { ns, name: COPY }]));

test("a spread is the median with its range", () => {
  expect(spreadOf([3, 1, 2])).toEqual({ median: 2, low: 1, high: 3, n: 3 });
  expect(spreadOf([4, 1])).toEqual({ median: 2.5, low: 1, high: 4, n: 2 });
  expect(spreadOf([7])).toEqual({ median: 7, low: 7, high: 7, n: 1 });
  expect(spreadOf([])).toBeNull();
});

test("errors are signed percent of the real time and absent without one", () => {
  expect(errorPct(103.02, 100)).toBeCloseTo(3.02);
  expect(errorPct(85, 100)).toBeCloseTo(-15);
  expect(errorPct(5, null)).toBeNull();
  expect(errorPct(5, 0)).toBeNull();
});

describe("a table", () => {
  test("takes the median over replicas, row by row", () => {
    const table = buildTable([column("A", [[10, 20], [12, 26], [11]])], new Map());
    expect(table.rows.map((row) => row.cells[0]?.time)).toEqual([
      { median: 11, low: 10, high: 12, n: 3 },
      { median: 23, low: 20, high: 26, n: 2 },
    ]);
    expect(table.hasReal).toBe(false);
    expect(table.columns[0]?.mapePct).toBeNull();
  });

  test("totals count only replicas that succeeded", () => {
    const input: ColumnInput = { key: "A", label: "A", word: "simulated", realWord: "measured", replicas: [{ kernels: kernels([10, 20]), succeeded: true }, { kernels: kernels([1]), succeeded: false }] };
    expect(buildTable([input], new Map()).columns[0]?.total).toEqual({ median: 30, low: 30, high: 30, n: 1 });
  });

  test("a sim without kernels never wins, and one with fewer is no median's half", () => {
    const table = buildTable([column("A", [[], [10, 20], [30]]), column("B", [[]])], new Map());
    expect(table.columns[0]).toMatchObject({ total: { median: 30, low: 30, high: 30, n: 1 }, kernels: 2, ratio: 1 });
    expect(table.columns[1]).toMatchObject({ total: null, ratio: null });
  });

  test("a column with fewer kernels of the same trace is not ranked; one of another trace is", () => {
    const [full, short] = [column("A", [[100, 100]]), column("B", [[50]])];
    expect(buildTable([full, short], new Map()).columns.map(({ fewer, ratio }) => [fewer, ratio])).toEqual([
      [false, 1],
      [true, null],
    ]);
    expect(buildTable([{ ...full, trace: "x" }, { ...short, trace: "y" }], new Map()).columns.map(({ fewer, ratio }) => [fewer, ratio])).toEqual([
      [false, 4],
      [false, 1],
    ]);
  });

  test("a measurement of one GPU is no error of another", () => {
    const table = buildTable([column("A", [[110]]), { ...column("B", [[150]]), measuredOn: "A" }], real(100));
    expect(table.columns.map(({ mapeRows, measuredOn }) => [mapeRows, measuredOn])).toEqual([
      [1, null],
      [0, "A"],
    ]);
    expect(table.rows[0]?.cells.map((cell) => cell?.errorPct)).toEqual([expect.closeTo(10), null]);
    expect(table.rows[0]?.realNs).toBe(100);
  });

  test("other numbers stand in the same rows, without a measured side", () => {
    const input = column("A", [[10, 20]]);
    const table = buildMetricTable([{ ...input, real: real(1, 2) }], "ipc");
    expect(table.rows.map((row) => row.cells[0]?.time.median)).toEqual([3.1513, 3.1513]);
    expect([table.hasReal, table.hasErrors]).toEqual([false, false]);
    expect(buildMetricTable([input], "cycles").rows[0]?.cells[0]?.time.median).toBe(6174);
  });

  test("names the fastest, the multiples of it, and ties within one percent", () => {
    const [a, b, c] = buildTable([column("A", [[100]]), column("B", [[100.9]]), column("C", [[150]])], new Map()).columns;
    expect([a?.ties, b?.ties, c?.ties]).toEqual([true, true, false]);
    expect(c?.ratio).toBe(1.5);
    expect(buildTable([column("A", [[100]]), column("B", [[102]])], new Map()).columns[0]).toMatchObject({ ratio: 1, ties: false });
  });

  test("MAPE is the mean of absolute errors over rows with both numbers", () => {
    const table = buildTable([column("A", [[110, 80, 7]])], real(100, 100, null));
    expect(table.columns[0]?.mapePct).toBeCloseTo(15);
    expect(table.columns[0]?.mapeRows).toBe(2);
    expect(table.hasReal).toBe(true);
  });

  test("a kernel without a time is a hole, not a zero", () => {
    const table = buildTable([column("A", [[null, 5]])], new Map());
    expect(table.rows[0]?.cells[0]).toBeNull();
    expect(table.rows).toHaveLength(2);
  });

  test("columns of different traces are held against their own real times", () => {
    const table = buildTable([{ ...column("A", [[110]]), real: real(100) }, { ...column("B", [[110]]), real: real(220) }], new Map());
    expect(table.rows[0]?.realNs).toBeNull();
    expect(table.rows[0]?.cells.map((cell) => cell?.errorPct)).toEqual([expect.closeTo(10), -50]);
    expect([table.hasReal, table.hasErrors]).toEqual([false, true]);
  });

  test("summed by name, a missing measurement does not count as fast hardware", () => {
    const table = groupByName(buildTable([column("A", [[10, 20, 30]], [COPY, DOT, COPY])], new Map([[0, { ns: 8, name: COPY }], [2, { ns: null, name: COPY }]])));
    expect(table.rows.map((row) => [row.count, row.cells[0]?.time.median, row.realNs])).toEqual([
      [2, 40, 8],
      [1, 20, null],
    ]);
    expect(table.rows[0]?.cells[0]?.errorPct).toBeCloseTo(25);
  });

  test("summed by name, a sum over fewer kernels says so and sets no scale", () => {
    const measured = new Map([[0, { ns: 8, name: COPY }], [1, { ns: 9, name: COPY }]]);
    const table = groupByName(buildTable([column("A", [[10, 20, 300]]), column("B", [[11]])], measured));
    const [row] = table.rows;
    expect([row?.count, row?.realKernels]).toEqual([3, 2]);
    expect(row?.cells.map((cell) => [cell?.kernels, cell?.time.median, cell?.realKernels, cell?.realNs])).toEqual([
      [3, 330, 2, 17],
      [1, 11, 1, 8],
    ]);
    expect(table.longestNs).toBe(330);
    expect(groupByName(buildTable([column("A", [[10]]), column("B", [[null, 500]])], new Map())).longestNs).toBe(0);
  });

  test("rows sort by time, error or spread, and search by readable name", () => {
    const table = buildTable([column("A", [[10, 30, 20], [10, 30, 26]], [COPY, DOT, COPY])], real(10, 60, 10));
    expect(sortRows(table.rows, "time").map((row) => row.index)).toEqual([1, 2, 0]);
    expect(sortRows(table.rows, "error").map((row) => row.index)).toEqual([2, 1, 0]);
    expect(sortRows(table.rows, "spread").map((row) => row.index)).toEqual([2, 0, 1]);
    expect(filterRows(buildTable([column("A", [[1, 2]], [COPY, DOT])], new Map()).rows, "DOT_k").map((row) => row.index)).toEqual([1]);
  });
});
