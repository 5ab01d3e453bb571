// Geometry of the kernel timeline: each sim's kernels end to end on simulated
// time, as the Perfetto file lays them. Pure; the canvas only draws what this says.
import type { Kernel } from "./entities";

export interface Lane {
  readonly starts: Float64Array;
  readonly ends: Float64Array;
  /** The kernel behind each slice; kernels without a time are left out. */
  readonly kernels: readonly Kernel[];
  readonly endNs: number;
}

const lanes = new WeakMap<readonly Kernel[], Lane>();

/** The lane of a kernel list, computed once for each list object. */
export function laneOf(kernels: readonly Kernel[]): Lane {
  const known = lanes.get(kernels);
  if (known !== undefined) return known;
  const timed = kernels.filter((kernel) => kernel.timeNs !== null);
  const starts = new Float64Array(timed.length);
  const ends = new Float64Array(timed.length);
  let at = 0;
  timed.forEach((kernel, i) => {
    starts[i] = at;
    at += kernel.timeNs ?? 0;
    ends[i] = at;
  });
  const lane = { starts, ends, kernels: timed, endNs: at };
  lanes.set(kernels, lane);
  return lane;
}

/** The first slice that ends after `ns`: where drawing a window begins. */
export function firstVisible(lane: Lane, ns: number): number {
  let low = 0;
  let high = lane.ends.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((lane.ends[middle] ?? 0) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function kernelAt(lane: Lane, ns: number): Kernel | null {
  if (ns < 0 || ns >= lane.endNs) return null;
  return lane.kernels[firstVisible(lane, ns)] ?? null;
}

/** A window of simulated time, always inside [0, endNs] and never narrower than a nanosecond. */
export interface Window {
  readonly fromNs: number;
  readonly toNs: number;
}

export function clampWindow(window: Window, endNs: number): Window {
  const end = Math.max(endNs, 1);
  const width = Math.min(Math.max(window.toNs - window.fromNs, 1), end);
  const from = Math.min(Math.max(window.fromNs, 0), end - width);
  return { fromNs: from, toNs: from + width };
}

/** Zooms by `factor` (above 1: closer) around a fixed moment. */
export function zoomWindow(window: Window, factor: number, aroundNs: number, endNs: number): Window {
  const width = (window.toNs - window.fromNs) / factor;
  const share = (aroundNs - window.fromNs) / Math.max(window.toNs - window.fromNs, 1e-9);
  const from = aroundNs - width * share;
  return clampWindow({ fromNs: from, toNs: from + width }, endNs);
}

export function panWindow(window: Window, byNs: number, endNs: number): Window {
  return clampWindow({ fromNs: window.fromNs + byNs, toNs: window.toNs + byNs }, endNs);
}

/** Round tick positions (1, 2 or 5 times a power of ten) with about `count` of them. */
export function ticks(window: Window, count: number): number[] {
  const raw = (window.toNs - window.fromNs) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((candidate) => candidate >= raw) ?? power;
  const first = Math.ceil(window.fromNs / step) * step;
  const marks: number[] = [];
  for (let at = first; at <= window.toNs && marks.length < 100; at += step) marks.push(at);
  return marks;
}
