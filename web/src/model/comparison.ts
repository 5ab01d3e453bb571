// Kernel times side by side. A column is one config of one run with its
// replicas; a row is one kernel position. All aggregation happens here, so that
// tables and bars only draw. Times are simulated nanoseconds.
import { readableName } from "./demangle";
import type { RealWord, TimeWord } from "./engine";
import type { Kernel } from "./entities";

/** Median over replicas with its range; `n` is the number of replicas behind it. */
export interface Spread {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  readonly n: number;
}

export interface ColumnInput {
  readonly key: string;
  readonly label: string;
  readonly word: TimeWord;
  /** Kernels of each replica that finished any, in any order of replicas. */
  readonly replicas: ReadonlyArray<{ readonly kernels: readonly Kernel[]; readonly succeeded: boolean }>;
  /** The config that the real times were taken on, where this column is another one: the difference is then no error. */
  readonly measuredOn?: string | null;
  /** What this column's real times are. */
  readonly realWord: RealWord;
  /** Where columns come from several runs: the trace of this one's. */
  readonly trace?: string;
  /** Real times of this column's own trace, where columns come from different traces. */
  readonly real?: RealTimes;
}

/** Measured kernels by position. */
export type RealTimes = ReadonlyMap<number, { readonly ns: number | null; readonly name: string }>;

export interface Cell {
  readonly time: Spread;
  /** Kernels behind the time; fewer than the row's where this column has not finished all of them. */
  readonly kernels: number;
  /** Of those kernels that have both times. */
  readonly realNs: number | null;
  /** Kernels behind the real time and the error. */
  readonly realKernels: number;
  /** Against the real kernels, in percent; null without real timing. */
  readonly errorPct: number | null;
}

export interface Row {
  /** Position of the kernel, or of the first kernel of a group. */
  readonly index: number;
  /** Kernels behind the row: 1, or more when grouped by name. */
  readonly count: number;
  readonly name: string;
  /** The real time that all columns share; null where each has its own or none. */
  readonly realNs: number | null;
  /** Kernels behind the real time. */
  readonly realKernels: number;
  readonly cells: ReadonlyArray<Cell | null>;
  /** A replica's kernel overlapped another: its time is no duration. */
  readonly overlapped: boolean;
  /** A simulation limit cut a replica's kernel. */
  readonly cut: boolean;
}

export interface ColumnSummary {
  readonly key: string;
  readonly label: string;
  readonly word: TimeWord;
  /** Sum over kernels of each replica that succeeded with as many timed kernels as the fullest; null when none has any. */
  readonly total: Spread | null;
  /** Timed kernels behind the total. */
  readonly kernels: number;
  /** Fewer kernels than another column's total, which makes it no fair race. */
  readonly fewer: boolean;
  /** This column's total over the fastest one's; 1 for the fastest. */
  readonly ratio: number | null;
  /** Within 1% of the fastest, and not alone there. */
  readonly ties: boolean;
  /** As in the input: why there is no error. */
  readonly measuredOn: string | null;
  readonly realWord: RealWord;
  /** Mean absolute error over the rows with both numbers, in percent. */
  readonly mapePct: number | null;
  readonly mapeRows: number;
}

export interface Table {
  readonly columns: readonly ColumnSummary[];
  readonly rows: readonly Row[];
  /** One real time a row, shared by all columns. */
  readonly hasReal: boolean;
  readonly hasErrors: boolean;
  /** The largest time of any cell, for the bars' common scale. */
  readonly longestNs: number;
}

/** spec: agents.md, report step 1: configs within 1% tie. */
export const TIE_FRACTION = 0.01;

export function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  const below = sorted[Math.floor(middle)] ?? 0;
  const above = sorted[Math.ceil(middle)] ?? 0;
  return { median: (below + above) / 2, low: sorted[0] ?? 0, high: sorted.at(-1) ?? 0, n: sorted.length };
}

/** Relative error in percent; null where either side is missing or the real time is zero. */
export function errorPct(simulated: number | null, real: number | null): number | null {
  if (simulated === null || real === null || real === 0) return null;
  return ((simulated - real) / real) * 100;
}

/** What the bars show. Only times have a measured counterpart. */
export type Metric = "time" | "cycles" | "ipc" | "instructions";

const VALUE: Record<Metric, (kernel: Kernel) => number | null> = {
  time: (kernel) => kernel.timeNs,
  cycles: (kernel) => kernel.cycles,
  ipc: (kernel) => kernel.ipc,
  instructions: (kernel) => kernel.instructions,
};

/** The same columns and rows with another number in them. */
export function buildMetricTable(inputs: readonly ColumnInput[], metric: Metric): Table {
  const value = VALUE[metric];
  const swapped = inputs.map(
    ({ real: _, replicas, ...rest }): ColumnInput => ({
      ...rest,
      replicas: replicas.map(({ kernels, succeeded }) => ({ succeeded, kernels: kernels.map((kernel) => ({ ...kernel, timeNs: value(kernel) })) })),
    }),
  );
  return buildTable(swapped, new Map());
}

export function buildTable(inputs: readonly ColumnInput[], real: RealTimes): Table {
  const byColumn = inputs.map((input) => timesByIndex(input));
  const names = new Map<number, string>();
  const overlapped = new Set<number>();
  const cut = new Set<number>();
  for (const kernel of inputs.flatMap((input) => input.replicas.flatMap((replica) => replica.kernels))) {
    if (!names.has(kernel.index)) names.set(kernel.index, kernel.name);
    if (kernel.overlapped) overlapped.add(kernel.index);
    if (kernel.cut) cut.add(kernel.index);
  }
  for (const [index, row] of real) names.set(index, row.name);
  const rows = [...names].sort(([a], [b]) => a - b).map(([index, name]): Row => {
    const realNs = real.get(index)?.ns ?? null;
    const cells = byColumn.map((times, i): Cell | null => {
      const time = spreadOf(times.get(index) ?? []);
      const own = inputs[i]?.measuredOn ? null : (realNs ?? inputs[i]?.real?.get(index)?.ns ?? null);
      return time === null ? null : { time, kernels: 1, realNs: own, realKernels: Number(own !== null), errorPct: errorPct(time.median, own) };
    });
    return { index, count: 1, name, realNs, realKernels: Number(realNs !== null), cells, overlapped: overlapped.has(index), cut: cut.has(index) };
  });
  return finish(inputs, rows);
}

function timesByIndex(input: ColumnInput): Map<number, number[]> {
  const times = new Map<number, number[]>();
  for (const { kernels } of input.replicas) {
    for (const kernel of kernels) {
      if (kernel.timeNs === null) continue;
      const list = times.get(kernel.index);
      if (list === undefined) times.set(kernel.index, [kernel.timeNs]);
      else list.push(kernel.timeNs);
    }
  }
  return times;
}

function finish(inputs: readonly ColumnInput[], rows: readonly Row[]): Table {
  const fullest = inputs.map(fullestOf);
  const totals = fullest.map(({ replicas }) => spreadOf(replicas.map(sumTimes)));
  const most = Math.max(...fullest.map(({ count }) => count));
  // Columns of different traces hold different kernels anyway: the page says so, and their totals still compare.
  const oneTrace = new Set(inputs.map((input) => input.trace)).size === 1;
  const fewer = fullest.map(({ count }) => oneTrace && count < most);
  const medians = totals.flatMap((total, i) => (total === null || fewer[i] === true ? [] : [total.median]));
  const fastest = Math.min(...medians);
  const tied = medians.filter((median) => median <= fastest * (1 + TIE_FRACTION)).length > 1;
  const columns = inputs.map((input, i): ColumnSummary => {
    const total = totals[i] ?? null;
    const errors = rows.flatMap((row) => row.cells[i]?.errorPct ?? []);
    const ratio = total === null || fewer[i] === true || fastest === 0 ? null : total.median / fastest;
    return {
      key: input.key,
      label: input.label,
      word: input.word,
      measuredOn: input.measuredOn ?? null,
      realWord: input.realWord,
      total,
      kernels: fullest[i]?.count ?? 0,
      fewer: fewer[i] ?? false,
      ratio,
      ties: tied && ratio !== null && ratio <= 1 + TIE_FRACTION,
      mapePct: errors.length === 0 ? null : errors.reduce((sum, e) => sum + Math.abs(e), 0) / errors.length,
      mapeRows: errors.length,
    };
  });
  return { columns, rows, hasReal: rows.some((row) => row.realNs !== null), hasErrors: columns.some((column) => column.mapeRows > 0), longestNs: longest(rows) };
}

/** The succeeded replicas that timed the most kernels: a sum over fewer would look faster, and one over none would win. */
function fullestOf({ replicas }: ColumnInput): { count: number; replicas: ReadonlyArray<readonly Kernel[]> } {
  const counted = replicas.filter((replica) => replica.succeeded).map(({ kernels }) => ({ kernels, count: kernels.filter((kernel) => kernel.timeNs !== null).length }));
  const count = Math.max(0, ...counted.map((one) => one.count));
  return { count, replicas: count === 0 ? [] : counted.filter((one) => one.count === count).map((one) => one.kernels) };
}

export function sumTimes(kernels: readonly Kernel[]): number {
  let sum = 0;
  for (const kernel of kernels) sum += kernel.timeNs ?? 0;
  return sum;
}

function longest(rows: readonly Row[]): number {
  let max = 0;
  for (const row of rows) max = Math.max(max, longestOf(row));
  return max;
}

/** What a row's bars and marks need of their scale; a sum over some of its kernels has none. */
export function longestOf(row: Row): number {
  const whole = row.cells.filter((cell) => cell !== null && cell.kernels === row.count);
  return Math.max(row.realKernels === row.count ? (row.realNs ?? 0) : 0, ...whole.map((cell) => Math.max(cell?.time.high ?? 0, cell?.realNs ?? 0)));
}

/**
 * One row a kernel name: times are sums over its kernels. The error counts only
 * kernels that have both numbers, so that a missing measurement never looks like a
 * fast GPU, and each sum says over how many it is: one over fewer is no faster.
 */
export function groupByName(table: Table): Table {
  const groups = new Map<string, Row[]>();
  for (const row of table.rows) {
    const key = readableName(row.name).full;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  const rows = [...groups.values()].map((group): Row => {
    const first = group[0];
    const cells = table.columns.map((_, i) => sumCells(group, i));
    return {
      index: first?.index ?? 0,
      count: group.length,
      name: first?.name ?? "",
      realNs: group.every((row) => row.realNs === null) ? null : group.reduce((sum, row) => sum + (row.realNs ?? 0), 0),
      realKernels: group.filter((row) => row.realNs !== null).length,
      cells,
      overlapped: group.some((row) => row.overlapped),
      cut: group.some((row) => row.cut),
    };
  });
  return { ...table, rows, longestNs: longest(rows) };
}

function sumCells(group: readonly Row[], column: number): Cell | null {
  let median = 0;
  let low = 0;
  let high = 0;
  let n = 0;
  let kernels = 0;
  let simulated = 0;
  let real = 0;
  let realKernels = 0;
  for (const row of group) {
    const cell = row.cells[column];
    if (cell === null || cell === undefined) continue;
    median += cell.time.median;
    low += cell.time.low;
    high += cell.time.high;
    n = Math.max(n, cell.time.n);
    kernels += cell.kernels;
    if (cell.realNs === null) continue;
    simulated += cell.time.median;
    real += cell.realNs;
    realKernels += 1;
  }
  if (n === 0) return null;
  const realNs = realKernels === 0 ? null : real;
  return { time: { median, low, high, n }, kernels, realNs, realKernels, errorPct: errorPct(simulated, realNs) };
}

export type SortKey = "order" | "time" | "error" | "spread";

export function sortRows(rows: readonly Row[], key: SortKey): readonly Row[] {
  if (key === "order") return rows;
  const weight = (row: Row): number => {
    const cells = row.cells.filter((cell) => cell !== null);
    if (key === "time") return Math.max(0, ...cells.map((cell) => cell.time.median));
    if (key === "error") return Math.max(-1, ...cells.map((cell) => Math.abs(cell.errorPct ?? -1)));
    return Math.max(0, ...cells.map((cell) => (cell.time.median === 0 ? 0 : (cell.time.high - cell.time.low) / cell.time.median)));
  };
  return rows
    .map((row) => ({ row, weight: weight(row) }))
    .sort((a, b) => b.weight - a.weight || a.row.index - b.row.index)
    .map(({ row }) => row);
}

export function filterRows(rows: readonly Row[], text: string): readonly Row[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return rows;
  return rows.filter((row) => row.name.toLowerCase().includes(wanted) || readableName(row.name).full.toLowerCase().includes(wanted));
}
