// Where a run's numbers come from, in words. Newer servers say it for each sim;
// for older ones the documented signs of the stand-in simulator decide. A screen
// that shows numbers shows these notices above them.
import { readableName } from "./demangle";
import type { Engine, Kernel, Run, Sim, Trace } from "./entities";

export type NoticeKind = "sample" | "replay" | "stand-in" | "estimate";

export interface Notice {
  readonly kind: NoticeKind;
  readonly title: string;
  readonly text: string;
  /** What was seen, for the stand-in that nobody declared. */
  readonly signs: readonly string[];
}

/** spec: agents.md, Rules: the kernels of the recorded OPT-125m log. */
const RECORDED_OPT = new Set([
  "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT",
  "vllm::reshape_and_cache_flash_kernel",
  "cutlass::device_kernel",
  "at::native::vectorized_elementwise_kernel",
]);
const RECORDED_BABELSTREAM = new Set(["init_kernel", "copy_kernel", "mul_kernel", "add_kernel", "triad_kernel", "dot_kernel"]);

export interface Evidence {
  readonly run: Pick<Run, "sample" | "replay">;
  readonly trace: Trace;
  readonly sims: readonly Sim[];
  /** Distinct mangled kernel names that the sims reported. */
  readonly kernelNames: ReadonlySet<string>;
  /** Mangled names of the trace's own kernels; null while they are not known. */
  readonly traceKernelNames: ReadonlySet<string> | null;
}

/** Kernels of each sim that are looked at: enough to tell whose they are, and a run has thousands. */
const TELLING_KERNELS = 64;

export function kernelNamesOf(lists: Iterable<readonly Kernel[]>): Set<string> {
  const names = new Set<string>();
  for (const kernels of lists) {
    for (const kernel of kernels.slice(0, TELLING_KERNELS)) names.add(kernel.name);
  }
  return names;
}

/** False when the numbers are a replayed log's: configs then differ by nothing. A sample's own replay keeps its meaning. */
export function isComparable(evidence: Evidence): boolean {
  return !noticesFor(evidence).some((notice) => notice.kind === "stand-in" || (notice.kind === "replay" && !evidence.run.replay));
}

export function noticesFor(evidence: Evidence): Notice[] {
  const { run, trace, sims } = evidence;
  const notices: Notice[] = [];
  if (run.sample || trace.sample) {
    notices.push({
      kind: "sample",
      title: "Reconstructed sample",
      text: run.sample
        ? "This run came with Cascade. Its data were rebuilt from published statistics, not captured, and its results were not computed in this workspace."
        : "This trace came with Cascade. Its data were rebuilt from published statistics, not captured.",
      signs: [],
    });
  }
  const count = (engine: Engine) => sims.filter((sim) => sim.engine === engine).length;
  const of = (n: number) => (n === sims.length ? "Every sim" : `${n} of ${sims.length} sims`);
  const replays = count("replay");
  // The bundled run's own results are recorded ones of its own trace: the first notice says so.
  if (run.replay || (replays > 0 && !(run.sample && trace.sample))) {
    notices.push({
      kind: "replay",
      title: "Replayed log",
      text: run.replay
        ? "This run replays a sample's recorded Accel-Sim results. Nothing was simulated anew."
        : `${of(replays)} replayed a recorded log. These numbers come from that log and do not describe the trace; configs cannot be compared from them.`,
      signs: [],
    });
  }
  const estimates = count("estimate");
  if (estimates > 0) {
    notices.push({
      kind: "estimate",
      title: "Estimated",
      text: `${of(estimates)} used the analytical estimate. These cycles were predicted from the trace and the config, not simulated by Accel-Sim.`,
      signs: [],
    });
  }
  const undeclared = sims.some((sim) => sim.engine === "unknown");
  if (undeclared && !run.sample && !run.replay) {
    const signs = standInSigns(evidence);
    if (signs.length > 0) {
      notices.push({
        kind: "stand-in",
        title: "These numbers look like the stand-in's",
        text: "They seem to come from a replayed log, not from a simulation of this trace. Configs cannot be compared from this run.",
        signs,
      });
    }
  }
  return notices;
}

/** spec: agents.md, Rules: "The signs are ...". */
export function standInSigns({ trace, sims, kernelNames, traceKernelNames }: Evidence): string[] {
  const signs: string[] = [];
  const odd = sims.find(
    (sim) => sim.engine === "unknown" && (sim.kernelsDone > sim.kernelsTotal || (sim.state === "succeeded" && sim.kernelsDone !== sim.kernelsTotal)),
  );
  if (odd !== undefined) signs.push(`a sim finished ${odd.kernelsDone} kernels where the trace has ${odd.kernelsTotal}`);
  const names = [...kernelNames].map((name) => readableName(name));
  if (names.length === 0) return signs;
  const recorded = names.filter((name) => RECORDED_OPT.has(name.full)).length;
  const otherModel = trace.model !== null && !trace.model.toLowerCase().includes("opt-125m");
  if (recorded >= 3 && otherModel) signs.push(`the kernels are those of OPT-125m, while the trace is of ${trace.model}`);
  const foreign = traceKernelNames !== null && traceKernelNames.size > 0 && ![...kernelNames].some((name) => traceKernelNames.has(name));
  if (foreign) signs.push("none of the simulated kernels is in the trace");
  if (names.every((name) => RECORDED_BABELSTREAM.has(name.short)) && (foreign || traceKernelNames?.size === 0 || otherModel)) {
    signs.push("the kernels are BabelStream's (init, copy, mul, add, triad, dot)");
  }
  return signs;
}

/** How a time of these sims is called: never "simulated" where nothing was. */
export type TimeWord = "simulated" | "estimated" | "replayed" | "reconstructed" | "mixed";

/** How a time of the traced hardware is called. */
export type RealWord = "measured" | "reconstructed";

/** What the words promise, for whoever sees one for the first time. */
export const WORD_MEANING: Record<TimeWord | RealWord, string> = {
  simulated: "Accel-Sim executed the trace's instructions on this config",
  estimated: "An analytical model predicted this from the trace and the config; no simulator ran",
  replayed: "A log that was recorded earlier was sent again; it does not describe this trace",
  reconstructed: "Rebuilt so that published statistics come out of it; not captured",
  measured: "Taken on the real GPU that was traced",
  mixed: "Some of these sims were simulated, others estimated or replayed",
};

/** Whether run and trace are bundled ones: the recorded results of both are rebuilt ones. A run of somebody who replays them says so. */
export interface Origin {
  readonly run: Pick<Run, "sample">;
  readonly trace: Pick<Trace, "sample">;
}

/** The word for the times of these sims. Only a sim with a finished kernel has any, and only such a one counts. */
export function timeWordOf(sims: readonly Sim[], { run, trace }: Origin): TimeWord {
  const telling = sims.filter((sim) => sim.kernelsDone > 0);
  const word = timeWord((telling.length > 0 ? telling : sims).map((sim) => sim.engine));
  return word === "replayed" && run.sample && trace.sample ? "reconstructed" : word;
}

/** The config that the real times belong to, where `config` is another one; a difference to them is then between two GPUs. */
export function measuredElsewhere(config: string, trace: Pick<Trace, "realConfig">): string | null {
  return trace.realConfig === config ? null : trace.realConfig;
}

/** The word for the traced hardware's times. */
export const realWordOf = (trace: Pick<Trace, "sample">): RealWord => (trace.sample ? "reconstructed" : "measured");

export function timeWord(engines: Iterable<Engine>): TimeWord {
  const words = new Set<TimeWord>();
  for (const engine of engines) words.add(engine === "estimate" ? "estimated" : engine === "replay" ? "replayed" : "simulated");
  const [first] = words;
  return words.size > 1 ? "mixed" : (first ?? "simulated");
}

export const ENGINE_LABEL: Record<Engine, string> = {
  "accel-sim": "Accel-Sim",
  replay: "replayed",
  estimate: "estimated",
  unknown: "",
};

/** The notices of several runs, each told once with the letters of the runs that it concerns. */
export function mergedNotices(runs: ReadonlyArray<{ readonly letter: string; readonly notices: readonly Notice[] }>): Notice[] {
  const merged = new Map<string, { letters: string[]; notice: Notice }>();
  for (const { letter, notices } of runs) {
    for (const notice of notices) {
      const key = JSON.stringify(notice);
      const known = merged.get(key);
      if (known === undefined) merged.set(key, { letters: [letter], notice });
      else known.letters.push(letter);
    }
  }
  return [...merged.values()].map(({ letters, notice }) => ({ ...notice, title: `${letters.join(", ")}: ${notice.title}` }));
}
