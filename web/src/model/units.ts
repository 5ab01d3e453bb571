// Numbers as text: the largest unit that keeps the number above 1, three
// significant digits, and a dash where there is no number. Pure.

export const MISSING = "–";

interface Unit {
  readonly size: number;
  readonly name: string;
}

const TIME_NS: readonly Unit[] = [
  { size: 1, name: "ns" },
  { size: 1e3, name: "µs" },
  { size: 1e6, name: "ms" },
  { size: 1e9, name: "s" },
  { size: 60e9, name: "min" },
  { size: 3600e9, name: "h" },
  { size: 86_400e9, name: "d" },
];
const BYTES: readonly Unit[] = [
  { size: 1, name: "B" },
  { size: 1e3, name: "kB" },
  { size: 1e6, name: "MB" },
  { size: 1e9, name: "GB" },
  { size: 1e12, name: "TB" },
];
const COUNT: readonly Unit[] = [
  { size: 1, name: "" },
  { size: 1e3, name: "k" },
  { size: 1e6, name: "M" },
  { size: 1e9, name: "G" },
  { size: 1e12, name: "T" },
];

/** Three significant digits without an exponent: 0.123, 1.20, 12.3, 123, 1,234; a whole number has no zeros behind. */
export function significant(value: number, digits = 3): string {
  if (value === 0) return "0";
  // Of the rounded value, so that 0.99996 gives 1.00 and not 1.000.
  const magnitude = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits)))));
  const decimals = Math.max(0, Math.min(9, digits - 1 - magnitude));
  const fixed = Number.isInteger(value) ? 0 : decimals;
  return value.toLocaleString("en-US", { minimumFractionDigits: fixed, maximumFractionDigits: decimals });
}

function scaled(value: number | null | undefined, units: readonly Unit[], suffix = ""): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  // The unit is chosen after rounding, so that 999.96 becomes "1 µs" and not "1,000 ns".
  const fits = (unit: Unit) => Number(Math.abs(value / unit.size).toPrecision(3)) >= 1;
  const unit = units.findLast(fits) ?? units[0];
  if (unit === undefined) return MISSING;
  return `${significant(value / unit.size)} ${unit.name}${suffix}`.trimEnd();
}

const CLOCK_MHZ: readonly Unit[] = [
  { size: 1, name: "MHz" },
  { size: 1e3, name: "GHz" },
];

export const formatNs = (ns: number | null | undefined): string => scaled(ns, TIME_NS);
export const formatMs = (ms: number | null | undefined): string => scaled(ms === null || ms === undefined ? null : ms * 1e6, TIME_NS);
export const formatBytes = (bytes: number | null | undefined): string => scaled(bytes, BYTES);
export const formatMhz = (mhz: number | null | undefined): string => scaled(mhz, CLOCK_MHZ);
export const formatCount = (count: number | null | undefined): string => scaled(count, COUNT);
export const formatRate = (perSecond: number | null | undefined, what: string): string => scaled(perSecond, COUNT, `${what}/s`);

/** Every digit, grouped: for tables and titles, where the exact number matters. */
export function formatExact(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  return value.toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** A signed percentage such as +3.02% or −14.2%. */
export function formatSignedPercent(percent: number | null | undefined): string {
  if (percent === null || percent === undefined || !Number.isFinite(percent)) return MISSING;
  const size = Math.abs(percent);
  // Below a tenth of a percent further digits are noise, and would not fit their column.
  const text = size < 0.1 ? size.toFixed(2) : significant(size);
  if (Number(text) === 0) return "0%";
  return `${percent < 0 ? "−" : "+"}${text}%`;
}

export function formatPercent(percent: number | null | undefined): string {
  if (percent === null || percent === undefined || !Number.isFinite(percent)) return MISSING;
  return `${significant(percent)}%`;
}

export const formatDim = (dim: readonly number[]): string => dim.join("×");

/** "3 sims", "1 sim". */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

/**
 * The age of a moment in words that tick: "now", "12 s", "4 min", "3 h", "2 d".
 * Whole units, rounded down, so that the text changes no more often than it must.
 * A moment in the future (a clock that is ahead) counts as now.
 */
export function formatAge(fromMs: number | null, nowMs: number): string {
  if (fromMs === null) return MISSING;
  const seconds = Math.floor((nowMs - fromMs) / 1000);
  if (seconds < 1) return "now";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** How long something took or has taken, in at most two units: "42 s", "3 min 5 s", "2 h 10 min". */
export function formatSpan(ms: number | null): string {
  if (ms === null || !Number.isFinite(ms)) return MISSING;
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return joinUnits(Math.floor(seconds / 60), "min", seconds % 60, "s");
  if (seconds < 86_400) return joinUnits(Math.floor(seconds / 3600), "h", Math.floor((seconds % 3600) / 60), "min");
  return joinUnits(Math.floor(seconds / 86_400), "d", Math.floor((seconds % 86_400) / 3600), "h");
}

function joinUnits(big: number, bigName: string, small: number, smallName: string): string {
  return small === 0 ? `${big} ${bigName}` : `${big} ${bigName} ${small} ${smallName}`;
}

/** A local date and time for titles: 2026-11-08 09:05:34. */
export function formatMoment(ms: number | null): string {
  if (ms === null) return MISSING;
  const date = new Date(ms);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
