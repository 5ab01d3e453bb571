import { describe, expect, test } from "vitest";
import type { RunEvent, SimSummary } from "../api/types";
import { Gathering } from "./coalesce";
import type { LiveRun } from "./run-state";
import { applyBatch, noKernelText } from "./run-state";
import { groupSims } from "./sim-groups";
import { wireKernel, wireRun, wireSim } from "./testing";

function play(events: readonly RunEvent[], from: LiveRun | null = null): LiveRun {
  let state = from;
  for (const event of events) {
    const gathering = new Gathering();
    gathering.add(event);
    const taken = gathering.take();
    if (taken !== null) state = applyBatch(state, taken.batch);
  }
  if (state === null) throw new Error("no snapshot in the events");
  return state;
}

function playAtOnce(events: readonly RunEvent[]): LiveRun {
  const gathering = new Gathering();
  for (const event of events) gathering.add(event);
  const state = applyBatch(null, gathering.take()?.batch ?? { snapshot: null, sims: [], logs: [], kernels: [] });
  if (state === null) throw new Error("no snapshot in the events");
  return state;
}

const snapshot = (...sims: SimSummary[]): RunEvent => ({ type: "snapshot", run: wireRun(sims), kernels: [] });
const later = (over: Partial<SimSummary> = {}): SimSummary => wireSim({ last_heartbeat_at: "2026-11-08T08:59:09Z", ...over });

test("what an emptied batch counts is told once: events, and the log lines among them", () => {
  const gathering = new Gathering();
  const log = (lines: string[]): RunEvent => ({ type: "log", sim_id: "sim-a", lines });
  for (const event of [snapshot(wireSim()), log(Array.from({ length: 30 }, (_, i) => `line ${i}`)), log(["one more"])]) gathering.add(event);
  const taken = gathering.take();
  expect([taken?.events, taken?.lines]).toEqual([3, 31]);
  expect(gathering.take()).toBeNull();
});

test("groups come in the order in which the configs were asked for", () => {
  const sims = [wireSim({ gpu_config: "SM7_QV100" }), wireSim({ id: "sim-b", gpu_config: "SM80_A100" })];
  const entries = [
    { gpu_config: "SM80_A100", count: 1 },
    { gpu_config: "SM86_RTX3070", count: 1 },
    { gpu_config: "SM7_QV100", count: 1 },
  ];
  const state = play([{ type: "snapshot", run: wireRun(sims, { entries }), kernels: [] }]);
  expect(groupSims(state).map((group) => group.config)).toEqual(["SM80_A100", "SM7_QV100"]);
});

test("a run that ended without a kernel has none to wait for", () => {
  expect(noKernelText(play([snapshot(wireSim())]))).toContain("yet");
  const ended = play([{ type: "snapshot", run: wireRun([wireSim({ state: "failed", finished_at: "2026-11-08T09:00:00Z" })], { state: "failed" }), kernels: [] }]);
  expect(noKernelText(ended)).not.toContain("yet");
});

describe("snapshot + events = state", () => {
  test("a snapshot is the state", () => {
    const state = play([{ type: "snapshot", run: wireRun([wireSim(), wireSim({ id: "sim-b", replica: 1 })]), kernels: [wireKernel()] }]);
    expect(state.simIds).toEqual(["sim-a", "sim-b"]);
    expect(state.run.state).toBe("active");
    expect(state.run.simCounts).toEqual({ running: 2 });
    expect(state.kernels.get("sim-a")?.map((kernel) => kernel.timeNs)).toEqual([5454]);
  });

  test("events before a snapshot belong to no run", () => {
    const gathering = new Gathering();
    gathering.add({ type: "sim", sim: wireSim() });
    expect(applyBatch(null, gathering.take()?.batch ?? { snapshot: null, sims: [], logs: [], kernels: [] })).toBeNull();
  });

  test("a sim event replaces the sim and nothing else", () => {
    const before = play([snapshot(wireSim(), wireSim({ id: "sim-b", replica: 1 }))]);
    const after = play([{ type: "sim", sim: later({ kernels_done: 3 }) }], before);
    expect(after.sims.get("sim-a")?.kernelsDone).toBe(3);
    expect(after.sims.get("sim-b")).toBe(before.sims.get("sim-b"));
  });

  test("the run's state and counts follow the sims", () => {
    const end = (over: Partial<SimSummary>) => later({ finished_at: "2026-11-08T09:00:00Z", ...over });
    const state = play([
      snapshot(wireSim(), wireSim({ id: "sim-b", replica: 1 })),
      { type: "sim", sim: end({ state: "succeeded" }) },
      { type: "sim", sim: end({ id: "sim-b", replica: 1, state: "failed" }) },
    ]);
    expect(state.run.state).toBe("partial");
    expect(state.run.simCounts).toEqual({ succeeded: 1, failed: 1 });
  });

  test("kernels arrive in order and a repeated one changes nothing", () => {
    const kernel = (kernel_index: number): RunEvent => ({ type: "kernel", stat: wireKernel({ kernel_index }) });
    const state = play([snapshot(wireSim()), kernel(0), kernel(1), kernel(1), kernel(2)]);
    expect(state.kernels.get("sim-a")?.map((k) => k.index)).toEqual([0, 1, 2]);
    expect(state.kernelCount).toBe(3);
  });

  test("a kernel of a sim that the run does not have is ignored", () => {
    const state = play([snapshot(wireSim()), { type: "kernel", stat: wireKernel({ sim_id: "sim-other" }) }]);
    expect(state.kernelCount).toBe(0);
  });

  test("a log event extends the tail to its last 20 lines", () => {
    const lines = (from: number, count: number) => Array.from({ length: count }, (_, i) => `line ${from + i}`);
    const state = play([snapshot(wireSim()), { type: "log", sim_id: "sim-a", lines: lines(0, 15) }, { type: "log", sim_id: "sim-a", lines: lines(15, 15) }]);
    expect(state.sims.get("sim-a")?.logTail).toEqual(lines(10, 20));
  });

  test("one batch and many batches give the same state", () => {
    const events: RunEvent[] = [
      snapshot(wireSim(), wireSim({ id: "sim-b", replica: 1 })),
      { type: "log", sim_id: "sim-a", lines: ["one"] },
      { type: "kernel", stat: wireKernel() },
      { type: "sim", sim: later({ kernels_done: 1, log_tail: ["one"] }) },
      { type: "log", sim_id: "sim-a", lines: ["two"] },
      { type: "kernel", stat: wireKernel({ sim_id: "sim-b" }) },
    ];
    const together = playAtOnce(events);
    const apart = play(events);
    expect(together.sims).toEqual(apart.sims);
    expect(together.kernels).toEqual(apart.kernels);
    expect(together.sims.get("sim-a")?.logTail).toEqual(["one", "two"]);
  });
});

describe("reconnects", () => {
  test("a new snapshot replaces what the lost line had", () => {
    const before = play([snapshot(wireSim()), { type: "kernel", stat: wireKernel() }]);
    const after = play([{ type: "snapshot", run: wireRun([later({ kernels_done: 2 })]), kernels: [wireKernel(), wireKernel({ kernel_index: 1 })] }], before);
    expect(after.sims.get("sim-a")?.kernelsDone).toBe(2);
    expect(after.kernels.get("sim-a")?.length).toBe(2);
  });

  test("events gathered before a new snapshot do not survive it", () => {
    const state = playAtOnce([snapshot(wireSim()), { type: "kernel", stat: wireKernel({ kernel_index: 7 }) }, snapshot(wireSim({ kernels_done: 1 }))]);
    expect(state.kernelCount).toBe(0);
    expect(state.sims.get("sim-a")?.kernelsDone).toBe(1);
  });

  test("a second attempt of a sim starts its kernels afresh", () => {
    const before = play([{ type: "snapshot", run: wireRun([wireSim({ kernels_done: 2 })]), kernels: [wireKernel(), wireKernel({ kernel_index: 1 })] }]);
    const after = play([{ type: "snapshot", run: wireRun([later({ kernels_done: 1 })]), kernels: [wireKernel()] }], before);
    expect(after.kernels.get("sim-a")?.length).toBe(1);
  });
});

describe("an out-of-date snapshot", () => {
  test("does not bring an ended sim back to life", () => {
    const before = play([snapshot(later({ state: "succeeded", finished_at: "2026-11-08T09:00:00Z", kernels_done: 20 }))]);
    const after = play([snapshot(wireSim({ kernels_done: 12 }))], before);
    expect(after.sims.get("sim-a")?.state).toBe("succeeded");
    expect(after.run.state).toBe("succeeded");
  });

  test("keeps kernels that it does not know yet", () => {
    const before = play([snapshot(later({ kernels_done: 2 })), { type: "kernel", stat: wireKernel() }, { type: "kernel", stat: wireKernel({ kernel_index: 1 }) }]);
    const after = play([{ type: "snapshot", run: wireRun([wireSim({ kernels_done: 1 })]), kernels: [wireKernel()] }], before);
    expect(after.sims.get("sim-a")?.kernelsDone).toBe(2);
    expect(after.kernels.get("sim-a")?.map((k) => k.index)).toEqual([0, 1]);
  });

  test("the old events that follow it change nothing", () => {
    const before = play([snapshot(later({ kernels_done: 5 }))]);
    const after = play([snapshot(wireSim({ kernels_done: 1 })), { type: "sim", sim: wireSim({ kernels_done: 2 }) }], before);
    expect(after.sims.get("sim-a")?.kernelsDone).toBe(5);
  });

  test("a lost sim stays lost until a later heartbeat", () => {
    const lost = play([snapshot(wireSim()), { type: "sim", sim: wireSim({ state: "lost" }) }]);
    expect(play([{ type: "sim", sim: wireSim() }], lost).sims.get("sim-a")?.state).toBe("lost");
    expect(play([{ type: "sim", sim: later() }], lost).sims.get("sim-a")?.state).toBe("running");
  });
});
