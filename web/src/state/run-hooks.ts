// Hooks that several sections of a run share: a slower copy of the live state,
// and the real timing that belongs to the run's trace.
import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Kernel } from "../model/entities";
import type { LiveRun } from "../model/run-state";
import { useLoaded } from "./poll";
import { client } from "./session";

/** The signal's value, renewed at most every `ms`; the last value always arrives. */
export function useThrottled<T>(source: ReadonlySignal<T>, ms: number): T {
  const [value, setValue] = useState(source.peek());
  useEffect(() => {
    let timer = 0;
    let due = 0;
    let first = true;
    const stop = source.subscribe((next) => {
      // Told at once of what the hook has read already; the first change after it must not wait.
      if (first) {
        first = false;
        setValue(() => next);
        return;
      }
      window.clearTimeout(timer);
      const wait = due - performance.now();
      const give = () => {
        due = performance.now() + ms;
        setValue(() => next);
      };
      if (wait <= 0) give();
      else timer = window.setTimeout(give, wait);
    });
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [source, ms]);
  return value;
}

export interface RealTiming {
  readonly byIndex: ReadonlyMap<number, { readonly ns: number | null; readonly name: string }>;
  /** The same as kernels, for a lane of the timeline. */
  readonly kernels: readonly Kernel[];
}

const NONE: RealTiming = { byIndex: new Map(), kernels: [] };

/**
 * The measured time of each kernel position, from the comparison route. It is
 * asked once there is a first kernel and again when the run ends: rows appear
 * as kernels finish.
 */
export function useRealTiming(live: LiveRun | null): RealTiming | null {
  const wanted = live !== null && live.trace.hasRealTiming && live.kernelCount > 0;
  const key = wanted ? `real ${live.run.id} ${live.run.state}` : "";
  const { data } = useLoaded(key, async (signal) => (live === null || key === "" ? null : client.comparison(live.run.id, signal)), wanted && live.run.state === "active" ? 15_000 : undefined);
  return useMemo(() => {
    if (!wanted) return live === null ? null : NONE;
    if (data === null) return null;
    const rows = data.rows.filter((row) => row.real_ns !== null);
    return {
      byIndex: new Map(rows.map((row) => [row.kernel_index, { ns: row.real_ns, name: row.kernel_name }])),
      kernels: rows.map((row) => ({ simId: "real", index: row.kernel_index, name: row.kernel_name, uid: null, cycles: null, instructions: null, ipc: null, timeNs: row.real_ns, overlapped: false, cut: false })),
    };
  }, [data, wanted]);
}
