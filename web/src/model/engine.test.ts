import { describe, expect, test } from "vitest";
import type { SimSummary, TraceSummary } from "../api/types";
import { measuredElsewhere, mergedNotices, noticesFor, realWordOf, timeWord, timeWordOf } from "./engine";
import { toRun, toSim, toTrace } from "./entities";
import { wireRun, wireSim, wireTrace } from "./testing";

interface Setup {
  sims?: Array<Partial<SimSummary>>;
  trace?: Partial<TraceSummary>;
  run?: { sample?: boolean; replay?: boolean };
  kernels?: string[];
  traceKernels?: string[] | null;
}

function kinds({ sims = [{}], trace = {}, run = {}, kernels = [], traceKernels = null }: Setup): string[] {
  return notices({ sims, trace, run, kernels, traceKernels }).map((notice) => notice.kind);
}

function notices({ sims = [{}], trace = {}, run = {}, kernels = [], traceKernels = null }: Setup) {
  return noticesFor({
    run: { sample: run.sample ?? false, replay: run.replay ?? false },
    trace: toTrace(wireTrace(trace)),
    sims: sims.map((sim) => toSim(wireSim(sim))),
    kernelNames: new Set(kernels),
    traceKernelNames: traceKernels === null ? null : new Set(traceKernels),
  });
}

const OPT = ["nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", "_ZN4vllm30reshape_and_cache_flash_kernelIttEEvv", "_ZN7cutlass13device_kernelIiEEvv", "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvv"];
const BABELSTREAM = ["_Z11init_kernelIdEvPT_", "_Z11copy_kernelIdEvPKT_PS0_", "_Z10dot_kernelIdEvPKT_S2_PS0_i"];
const DONE = { state: "succeeded", kernels_done: 20, kernels_total: 20 } as const;

describe("where the numbers come from", () => {
  test("a real simulation needs no notice", () => expect(kinds({ sims: [{ ...DONE, engine: "accel-sim" }], kernels: OPT })).toEqual([]));
  test("a bundled sample says that it was reconstructed", () => expect(kinds({ run: { sample: true }, trace: { sample: true } })).toEqual(["sample"]));
  test("a fresh run of a sample is both", () => expect(kinds({ run: { replay: true }, trace: { sample: true }, sims: [{ engine: "replay" }] })).toEqual(["sample", "replay"]));
  test("the bundled run's own recorded results need no second notice", () => expect(kinds({ run: { sample: true }, trace: { sample: true }, sims: [{ engine: "replay" }] })).toEqual(["sample"]));
  test("a replaying engine is named", () => expect(notices({ sims: [{ engine: "replay" }, { engine: "accel-sim" }] })[0]?.text).toContain("1 of 2 sims"));
  test("an estimate is named", () => expect(kinds({ sims: [{ engine: "estimate" }] })).toEqual(["estimate"]));
  test("a declared engine is believed, whatever the signs", () => expect(kinds({ sims: [{ ...DONE, engine: "accel-sim", kernels_done: 6 }], kernels: BABELSTREAM, traceKernels: ["_Z3foov"] })).toEqual([]));
});

describe("the stand-in that nobody declared", () => {
  test("more or fewer kernels than the trace has", () => {
    expect(kinds({ sims: [{ ...DONE, kernels_done: 6 }] })).toEqual(["stand-in"]);
    expect(kinds({ sims: [{ kernels_done: 21 }] })).toEqual(["stand-in"]);
  });
  test("a running sim with kernels to go is no sign", () => expect(kinds({ sims: [{ kernels_done: 6 }] })).toEqual([]));
  test("OPT-125m's kernels for a trace of another model", () => {
    expect(kinds({ sims: [DONE], kernels: OPT, trace: { model: "Qwen/Qwen3-0.6B" } })).toEqual(["stand-in"]);
    expect(kinds({ sims: [DONE], kernels: OPT, trace: { model: "facebook/opt-125m" } })).toEqual([]);
  });
  test("kernels that the trace does not have", () => {
    const found = notices({ sims: [DONE], kernels: BABELSTREAM, traceKernels: ["_Z5otherv"] })[0];
    expect(found?.signs).toHaveLength(2);
  });
  test("the trace's own kernels are no sign", () => expect(kinds({ sims: [DONE], kernels: BABELSTREAM, traceKernels: BABELSTREAM })).toEqual([]));
});

test("a run in a list is known by the engines of its sims", () => {
  expect(toRun({ ...wireRun([]), engines: ["estimate", "something-new"] }).engines).toEqual(["estimate", "unknown"]);
  expect(toRun(wireRun([])).engines).toEqual([]); // a server from before the field
});

test("a time is called simulated only where it was", () => {
  expect(timeWord(["accel-sim", "unknown"])).toBe("simulated");
  expect(timeWord(["estimate"])).toBe("estimated");
  expect(timeWord(["replay"])).toBe("replayed");
  expect(timeWord(["estimate", "accel-sim"])).toBe("mixed");
});

test("a sim without a kernel has no time, and so no word in it", () => {
  const sims = [wireSim({ engine: "replay", kernels_done: 2 }), wireSim({ engine: null, kernels_done: 0 })].map(toSim);
  expect(timeWordOf(sims, { run: { sample: false }, trace: { sample: false } })).toBe("replayed");
});

test("a bundled sample's numbers are reconstructed, its hardware's too; a user's replay stays one", () => {
  const sims = [wireSim({ engine: "replay", kernels_done: 2 })].map(toSim);
  const bundled = { run: { sample: true }, trace: { sample: true } };
  expect(timeWordOf(sims, bundled)).toBe("reconstructed");
  expect(timeWordOf(sims, { ...bundled, run: { sample: false } })).toBe("replayed");
  expect(timeWordOf(sims, { ...bundled, trace: { sample: false } })).toBe("replayed");
  expect([realWordOf({ sample: true }), realWordOf({ sample: false })]).toEqual(["reconstructed", "measured"]);
});

test("the real times belong to the traced GPU's config, if the trace names it", () => {
  expect(measuredElsewhere("SM90_H200", { realConfig: "SM90_H100" })).toBe("SM90_H100");
  expect(measuredElsewhere("SM90_H100", { realConfig: "SM90_H100" })).toBeNull();
  expect(measuredElsewhere("SM90_H200", { realConfig: null })).toBeNull();
});

test("what holds for several compared runs is said once", () => {
  const sample = { kind: "sample", title: "Reconstructed sample", text: "Same words.", signs: [] } as const;
  const estimate = { kind: "estimate", title: "Estimated", text: "Other words.", signs: [] } as const;
  const merged = mergedNotices([
    { letter: "A", notices: [sample, estimate] },
    { letter: "B", notices: [sample] },
  ]);
  expect(merged.map((notice) => notice.title)).toEqual(["A, B: Reconstructed sample", "A: Estimated"]);
});
