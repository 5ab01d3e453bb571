// What Accel-Sim counted in each kernel of one sim: issue, stalls, caches, memory.
// Most of its counters run on from kernel to kernel, so a kernel's own number is
// the difference to the kernel before it; the few that start anew are taken as
// they are. A number that the log does not have, or has as nan, is missing. Pure.
import type { KernelStat } from "../api/types";
import { formatCount, formatExact, formatNs, formatPercent, significant } from "./units";

export interface MetricColumn {
  readonly key: string;
  readonly label: string;
  /** What it is and which lines of the log it comes from. */
  readonly title: string;
  readonly format: (value: number) => string;
}

export interface MetricRow {
  readonly index: number;
  readonly name: string;
  readonly values: ReadonlyArray<number | null>;
}

export interface MetricTable {
  readonly columns: readonly MetricColumn[];
  readonly rows: readonly MetricRow[];
}

type Counters = (key: string) => number | null;

interface Source extends MetricColumn {
  /** `own` counts in this kernel alone; `at` is the number as the kernel's block has it. */
  readonly read: (kernel: KernelStat, own: Counters, at: Counters) => number | null;
}

const share = (part: number | null, whole: number | null): number | null => (part === null || whole === null || whole <= 0 ? null : (part / whole) * 100);
const missRate = (cache: string) => (_: KernelStat, own: Counters) => share(own(`${cache}_total_cache_misses`), own(`${cache}_total_cache_accesses`));

const SOURCES: readonly Source[] = [
  { key: "time", label: "Time", title: "Cycles over the config's core clock", format: formatNs, read: (kernel) => kernel.sim_time_ns },
  { key: "cycles", label: "Cycles", title: "gpu_sim_cycle", format: formatExact, read: (kernel) => kernel.gpu_sim_cycle },
  { key: "instructions", label: "Instructions", title: "gpu_sim_insn: thread instructions", format: formatCount, read: (kernel) => kernel.gpu_sim_insn },
  { key: "ipc", label: "IPC", title: "gpu_ipc: thread instructions a cycle, the whole GPU", format: significant, read: (kernel) => kernel.gpu_ipc },
  { key: "occupancy", label: "Occupancy", title: "gpu_occupancy: warps in use of those that an SM holds", format: formatPercent, read: (_, __, at) => at("gpu_occupancy") },
  { key: "l1", label: "L1D miss rate", title: "L1D_total_cache_misses over L1D_total_cache_accesses, of this kernel", format: formatPercent, read: missRate("L1D") },
  { key: "l2", label: "L2 miss rate", title: "L2_total_cache_misses over L2_total_cache_accesses, of this kernel", format: formatPercent, read: missRate("L2") },
  { key: "l2bw", label: "L2 bandwidth", title: "L2_BW, of this kernel", format: (value) => `${significant(value)} GB/s`, read: (_, __, at) => at("L2_BW") },
  { key: "loads", label: "Global loads", title: "gpgpu_n_mem_read_global: requests that left the SMs, of this kernel", format: formatCount, read: (_, own) => own("gpgpu_n_mem_read_global") },
  { key: "stores", label: "Global stores", title: "gpgpu_n_mem_write_global: requests that left the SMs, of this kernel", format: formatCount, read: (_, own) => own("gpgpu_n_mem_write_global") },
  { key: "memstall", label: "Memory stalls", title: "gpgpu_n_stall_shd_mem: cycles in which an SM's memory stage stood still, summed over the SMs, of this kernel", format: formatCount, read: (_, own) => own("gpgpu_n_stall_shd_mem") },
  { key: "dramfull", label: "DRAM queue full", title: "gpu_stall_dramfull: cycles, of this kernel", format: formatCount, read: (_, own) => own("gpu_stall_dramfull") },
  { key: "icnt", label: "Interconnect stalls", title: "gpu_stall_icnt2sh: cycles, of this kernel", format: formatCount, read: (_, own) => own("gpu_stall_icnt2sh") },
  { key: "latency", label: "Memory latency", title: "averagemflatency: cycles, the mean since the first kernel", format: formatExact, read: (_, __, at) => at("averagemflatency") },
];

/** Of a kernel's 950 counters those that a column reads. */
const COUNTERS: ReadonlySet<string> = countersOf(SOURCES);

function countersOf(sources: readonly Source[]): Set<string> {
  const keys = new Set<string>();
  const note: Counters = (key) => {
    keys.add(key);
    return null;
  };
  const none: KernelStat = { sim_id: "", kernel_index: 0, kernel_name: "", kernel_launch_uid: null, gpu_sim_cycle: null, gpu_sim_insn: null, gpu_ipc: null, sim_time_ns: null, stats: {} };
  for (const source of sources) source.read(none, note, note);
  return keys;
}

/** The kernel with what the table is made of. */
export function withCounters(kernel: KernelStat): KernelStat {
  return { ...kernel, stats: Object.fromEntries(Object.entries(kernel.stats).filter(([key]) => COUNTERS.has(key))) };
}

/** Rows in launch order; columns that no kernel has a number for are left out. */
export function metricTable(kernels: readonly KernelStat[]): MetricTable {
  const sorted = [...kernels].sort((a, b) => a.kernel_index - b.kernel_index);
  const rows = sorted.map((kernel, i): MetricRow => {
    // A kernel whose predecessor is missing has no difference to take.
    const before = kernel.kernel_index === 0 ? {} : sorted[i - 1]?.kernel_index === kernel.kernel_index - 1 ? (sorted[i - 1]?.stats ?? null) : null;
    const at: Counters = (key) => numberOf(kernel.stats[key]);
    const own: Counters = (key) => difference(at(key), before === null ? null : (numberOf(before[key]) ?? 0));
    return { index: kernel.kernel_index, name: kernel.kernel_name, values: SOURCES.map((source) => source.read(kernel, own, at)) };
  });
  const kept = SOURCES.map((_, column) => rows.some((row) => row.values[column] !== null && row.values[column] !== undefined));
  return {
    columns: SOURCES.filter((_, column) => kept[column]),
    rows: rows.map((row) => ({ ...row, values: row.values.filter((_, column) => kept[column]) })),
  };
}

/** A counter that fell was started anew, by a simulator that clears its counters. */
function difference(now: number | null, before: number | null): number | null {
  if (now === null || before === null) return null;
  return now >= before ? now - before : now;
}

/** "36.5 GB/Sec" and "41%" are numbers with a unit behind; "-nan%" is none. */
function numberOf(value: number | string | undefined): number | null {
  if (value === undefined) return null;
  const number = typeof value === "number" ? value : Number.parseFloat(value);
  return Number.isFinite(number) ? number : null;
}

/** Rows by one column, missing numbers last in both directions; null is launch order. */
export function sortMetrics(rows: readonly MetricRow[], column: number | null, descending: boolean): readonly MetricRow[] {
  if (column === null) return descending ? [...rows].reverse() : rows;
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const left = a.values[column] ?? null;
    const right = b.values[column] ?? null;
    if (left === null || right === null) return Number(left === null) - Number(right === null) || a.index - b.index;
    return sign * (left - right) || a.index - b.index;
  });
}
