import { describe, expect, test } from "vitest";
import { ApiError, detailText, runNamedBy } from "../api/client";
import type { Route } from "../router";
import { parsePath, pathOf } from "../router";
import { toKernel } from "./entities";
import { letterOf, withoutSharedStart } from "./labels";
import { LineCollector, findLines, matcherFor } from "./log-search";
import { wireKernel } from "./testing";
import { clampWindow, firstVisible, kernelAt, laneOf, panWindow, ticks, zoomWindow } from "./timeline";
import { MAX_SCROLL_PX, scrollTo, sliceOf } from "./windowing";

describe("addresses", () => {
  const routes: Route[] = [
    { view: "home" },
    { view: "traces" },
    { view: "trace", traceId: "20261107__facebook/opt 125m * > ünï.code?#" },
    { view: "new-run", traceId: "a%2Fb" },
    { view: "runs" },
    { view: "run", runId: "run-1" },
    { view: "sim", runId: "run-1", simId: "sim-1" },
    { view: "log", runId: "run-1", simId: "sim-1" },
    { view: "kernels", runId: "run-1", simId: "sim-1" },
    { view: "compare" },
    { view: "simulator" },
  ];
  test.each(routes)("$view survives its path", (route) => expect(parsePath(pathOf(route))).toEqual(route));
  test("anything else is not found", () => {
    for (const path of ["/nope", "/runs/a/b", "/traces/a/new-run/x", "/compare/x"]) expect(parsePath(path).view).toBe("not-found");
    expect(parsePath("/traces/%")).toEqual({ view: "trace", traceId: "%" });
  });
});

describe("server errors in words", () => {
  test("a sentence stays a sentence", () => expect(detailText({ detail: "run x not found" }, 404)).toBe("run x not found"));
  test("a list names field and reason", () => {
    expect(detailText({ detail: [{ loc: ["body", "entries", 0, "count"], msg: "Input should be greater than or equal to 1" }] }, 422)).toBe("entries.0.count: Input should be greater than or equal to 1");
  });
  test("no body leaves the status", () => expect(detailText(null, 502)).toBe("the server answered with status 502"));
  test("a late base run is named", () => {
    expect(runNamedBy(new ApiError(504, "late", { detail: "late", run_id: "run-1" }))).toBe("run-1");
    expect(runNamedBy(new Error("x"))).toBeNull();
  });
});

describe("the kernel timeline", () => {
  const lane = laneOf([10, null, 30].map((sim_time_ns, kernel_index) => toKernel(wireKernel({ kernel_index, sim_time_ns }))));
  test("lays kernels end to end and leaves out those without a time", () => {
    expect([...lane.starts]).toEqual([0, 10]);
    expect(lane.endNs).toBe(40);
    expect(lane.kernels.map((kernel) => kernel.index)).toEqual([0, 2]);
  });
  test("finds the kernel at a moment", () => {
    expect([kernelAt(lane, 9)?.index, kernelAt(lane, 10)?.index, kernelAt(lane, 40), kernelAt(lane, -1)]).toEqual([0, 2, null, null]);
    expect(firstVisible(lane, 25)).toBe(1);
  });
  test("zooms around the pointer and never leaves the run", () => {
    expect(zoomWindow({ fromNs: 0, toNs: 40 }, 2, 10, 40)).toEqual({ fromNs: 5, toNs: 25 });
    expect(zoomWindow({ fromNs: 5, toNs: 25 }, 0.1, 10, 40)).toEqual({ fromNs: 0, toNs: 40 });
    expect(panWindow({ fromNs: 20, toNs: 40 }, 100, 40)).toEqual({ fromNs: 20, toNs: 40 });
    expect(clampWindow({ fromNs: -5, toNs: 5 }, 40)).toEqual({ fromNs: 0, toNs: 10 });
  });
  test("marks round moments", () => expect(ticks({ fromNs: 0, toNs: 100 }, 5)).toEqual([0, 20, 40, 60, 80, 100]));
});

describe("long lists", () => {
  test("show the rows in view with a margin", () => expect(sliceOf(1000, 20, 200, 400, 2)).toEqual({ first: 18, last: 32, offsetPx: 360, contentPx: 20_000 }));
  test("reach their last row beyond the browser's height limit", () => {
    const count = 10_000_000;
    const bottom = MAX_SCROLL_PX - 400;
    expect(sliceOf(count, 18, 400, bottom, 0).last).toBe(count);
    expect(sliceOf(count, 18, 400, 0, 0).first).toBe(0);
  });
  test("scroll a row into the middle", () => {
    expect(scrollTo(50, 1000, 20, 200)).toBe(910);
    const at = scrollTo(5_000_000, 10_000_000, 18, 400);
    const slice = sliceOf(10_000_000, 18, 400, at, 0);
    expect(slice.first).toBeLessThanOrEqual(5_000_000);
    expect(slice.last).toBeGreaterThan(5_000_000);
  });
});

describe("the log", () => {
  test("is split on newlines only, wherever it is cut", () => {
    const collector = new LineCollector();
    for (const piece of ["one\ntw", "o\u2028still two\r", "\n\nlast"]) collector.push(piece, piece.length);
    expect(collector.end().lines).toEqual(["one", "two\u2028still two\r", "", "last"]);
  });
  test("is kept up to a limit, its end, and tells what it let go", () => {
    const collector = new LineCollector(100);
    for (let i = 0; i < 1000; i += 1) collector.push(`line ${i}\nli`.slice(i === 0 ? 0 : 2), 20);
    const { lines, dropped, bytes } = collector.end();
    expect(lines.slice(-2)).toEqual(["line 999", "li"]);
    expect(lines.join("").length).toBeLessThanOrEqual(100);
    expect([lines[0], dropped + lines.length, bytes]).toEqual([`line ${dropped}`, 1001, 20_000]);
  });
  test("keeps the end of a line that does not end", () => {
    const collector = new LineCollector(100);
    for (let i = 0; i < 1000; i += 1) collector.push(`${i} `, 1);
    const { lines } = collector.end();
    expect([lines.length, lines[0]?.endsWith("998 999 ")]).toEqual([1, true]);
    expect(lines[0]?.length).toBeLessThanOrEqual(125);
  });
  test("is searched as text or as an expression", () => {
    const lines = ["gpu_ipc = 3.1", "GPU_IPC = 4", "other"];
    const text = matcherFor("gpu_ipc", false);
    const regex = matcherFor("= \\d$", true);
    expect(typeof text === "function" && findLines(lines, text)).toEqual([0, 1]);
    expect(typeof regex === "function" && findLines(lines, regex)).toEqual([1]);
    expect(matcherFor("", false)).toBeNull();
    expect(matcherFor("(", true)).toHaveProperty("problem");
  });
});

test("labels lose the start that all share", () => {
  expect(withoutSharedStart(["SM90_H100", "SM90_H200"])).toEqual(["H100", "H200"]);
  expect(withoutSharedStart(["SM90_H100", "SM90_H100_HALF_L2"])).toEqual(["H100", "H100_HALF_L2"]);
  expect(withoutSharedStart(["SM90_H100"])).toEqual(["SM90_H100"]);
  expect(withoutSharedStart(["A", "B"])).toEqual(["A", "B"]);
  expect([0, 25, 26].map(letterOf)).toEqual(["A", "Z", "A2"]);
});
