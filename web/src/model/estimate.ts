// The instant estimate of a run, which sharpens as kernels are simulated: per
// config a total with its interval, per kernel where its number comes from. Pure.
import type { RunEstimate } from "../api/types";

/** A time with the ends of its interval; the ends equal it where everything was simulated. */
export interface Interval {
  readonly ns: number;
  readonly lowNs: number;
  readonly highNs: number;
}

export interface EstimatedKernel extends Interval {
  readonly index: number;
  readonly name: string;
  readonly simulated: boolean;
  /** What bounds the kernel in the model, in words. */
  readonly bottleneck: string | null;
}

export interface ConfigEstimate {
  readonly config: string;
  readonly state: "ready" | "computing" | "failed";
  /** Why there is no estimate. */
  readonly detail: string | null;
  readonly simulated: number;
  readonly kernels: readonly EstimatedKernel[];
  /** Null until it is ready. */
  readonly total: Interval | null;
}

export interface Estimate {
  /** Model and version that made the estimated numbers. */
  readonly engine: string;
  readonly configs: readonly ConfigEstimate[];
  readonly computing: boolean;
  /** The largest upper end of a total, for the bars' common scale. */
  readonly longestNs: number;
}

export function toEstimate(wire: RunEstimate): Estimate {
  const configs = wire.configs.map(
    (one): ConfigEstimate => ({
      config: one.gpu_config,
      state: one.state,
      detail: one.detail ?? null,
      simulated: one.simulated_kernels ?? 0,
      kernels: (one.rows ?? []).map((row) => ({
        index: row.kernel_index,
        name: row.kernel_name,
        simulated: row.source === "simulated",
        bottleneck: row.bottleneck,
        ns: row.time_ns,
        lowNs: row.low_ns,
        highNs: row.high_ns,
      })),
      total: one.state === "ready" ? intervalOf(one.total_ns, one.total_low_ns, one.total_high_ns) : null,
    }),
  );
  return {
    engine: wire.engine,
    configs,
    computing: configs.some((config) => config.state === "computing"),
    longestNs: Math.max(0, ...configs.map((config) => config.total?.highNs ?? 0)),
  };
}

function intervalOf(ns: number | null | undefined, lowNs: number | null | undefined, highNs: number | null | undefined): Interval | null {
  return ns === null || ns === undefined ? null : { ns, lowNs: lowNs ?? ns, highNs: highNs ?? ns };
}

/** How much of a total was simulated, in words. */
export function sourcesText({ simulated, kernels }: ConfigEstimate): string {
  const estimated = kernels.length - simulated;
  if (simulated === 0) return `${allOf(kernels.length)} estimated`;
  if (estimated === 0) return `${allOf(kernels.length)} simulated`;
  return `${simulated} of ${kernels.length} kernels simulated, ${estimated} estimated`;
}

function allOf(kernels: number): string {
  return kernels === 1 ? "the only kernel" : `all ${kernels} kernels`;
}
