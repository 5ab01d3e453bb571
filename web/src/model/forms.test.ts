import { describe, expect, test } from "vitest";
import type { ScenarioStep } from "../api/types";
import { toTrace } from "./entities";
import { configRows, entriesOf, launchProblem, parseCount, preselected, totalSims } from "./launch";
import type { FormFields } from "./scenario";
import { DEFAULT_FIELDS, configChoices, fromQuery, pageOf, scenarioBody, sortRequests, stepCharts, toQuery } from "./scenario";
import { wireTrace } from "./testing";

const CONFIGS = [
  { name: "SM80_A100", arch: "sm_80", core_clock_mhz: 1410 },
  { name: "SM90_H100", arch: "sm_90", core_clock_mhz: 1980 },
  { name: "SM90_H200", arch: "sm_90", core_clock_mhz: 1980 },
];
const trace = (over = {}) => toTrace(wireTrace(over));

describe("a new run", () => {
  test("the suggested config is preselected and first", () => {
    const suggested = trace({ suggested_sim_config: "SM90_H200" });
    expect(preselected(CONFIGS, suggested)).toEqual(["SM90_H200"]);
    expect(configRows(CONFIGS, suggested).map((row) => row.config.name)).toEqual(["SM90_H200", "SM90_H100", "SM80_A100"]);
  });
  test("without a suggestion, or with one that does not fit, the first that fits is", () => {
    expect(preselected(CONFIGS, trace())).toEqual(["SM90_H100"]);
    expect(preselected(CONFIGS, trace({ suggested_sim_config: "SM80_A100" }))).toEqual(["SM90_H100"]);
    expect(preselected(CONFIGS, trace({ trace_gpu_arch: "sm_75" }))).toEqual([]);
  });
  test("a config of another architecture says why it can't run", () => {
    expect(configRows(CONFIGS, trace()).at(-1)).toMatchObject({ reason: "Needs an sm_80 trace; this one is sm_90." });
  });
  test.each([
    ["1", 1],
    ["64", 64],
    [" 7 ", 7],
    ["0", null],
    ["65", null],
    ["1.5", null],
    ["", null],
    ["-1", null],
  ])("count %j is %s", (text, count) => expect(parseCount(text)).toBe(count));
  test("entries exist only when every count is right", () => {
    expect(entriesOf(new Map([["SM90_H100", "4"], ["SM90_H200", "2"]]))).toEqual([{ gpu_config: "SM90_H100", count: 4 }, { gpu_config: "SM90_H200", count: 2 }]);
    expect(entriesOf(new Map([["SM90_H100", "x"]]))).toBeNull();
    expect(totalSims([{ gpu_config: "a", count: 4 }, { gpu_config: "b", count: 2 }])).toBe(6);
  });
  test("samples and unready traces say why they can't run", () => {
    expect(launchProblem(trace())).toBeNull();
    expect(launchProblem(trace({ sample: true }))).toContain("bundled sample");
    expect(launchProblem(trace({ state: "failed", error: "cut short" }))).toContain("cut short");
  });
});

describe("a scenario", () => {
  const fields = (over: Partial<FormFields> = {}): FormFields => ({ ...DEFAULT_FIELDS, trace: "t", config: "SM90_H100", ...over });
  test("has the documented body", () => {
    expect(scenarioBody(fields({ num_kv_blocks: "24", block_size: "16", chunked: false, rate: "40" }))).toEqual({
      body: { trace_id: "t", gpu_config: "SM90_H100", num_requests: 8, prompt_tokens: 512, output_tokens: 128, arrival_rate_rps: 40, scheduler: { block_size: 16, num_kv_blocks: 24, enable_chunked_prefill: false } },
    });
  });
  test("leaves the scheduler out when nothing is assumed differently", () => {
    expect(scenarioBody(fields())).not.toHaveProperty("body.scheduler");
  });
  test("says what is wrong with each field", () => {
    expect(scenarioBody(fields({ trace: "", prompt: "0", rate: "-1", count: "4097", gpu_memory_utilization: "2" }))).toEqual({
      problems: {
        trace: "Choose a trace.",
        prompt: "Needs from 1 to 1,000,000.",
        count: "Needs from 1 to 4,096.",
        rate: "Needs a number of requests a second, 0 for all at once.",
        gpu_memory_utilization: "Needs a share above 0 and up to 1.",
      },
    });
    expect(scenarioBody(fields({ count: "4096" }))).toHaveProperty("problems.count");
  });
  test("zero output tokens are allowed: prefill only", () => expect(scenarioBody(fields({ output: "0" }))).toHaveProperty("body.output_tokens", 0));
  test("survives the address", () => {
    const form = fields({ prompt: "7", fresh: true, chunked: false, trace: "a b&c" });
    const query = new URLSearchParams(Object.entries(toQuery(form)).flatMap(([key, value]) => (value === null ? [] : [[key, value]])));
    expect(fromQuery(query)).toEqual(form);
    expect(fromQuery(new URLSearchParams())).toEqual(DEFAULT_FIELDS);
  });
  test("configs outside the model or the architecture are named with the reason", () => {
    expect(configChoices([...CONFIGS, { name: "SM90_X", arch: "sm_90", core_clock_mhz: 1 }], trace())).toEqual([
      { name: "SM90_H100", reason: null },
      { name: "SM90_H200", reason: null },
      { name: "SM80_A100", reason: "sm_80, the trace is sm_90" },
      { name: "SM90_X", reason: "no datasheet figures in the model" },
    ]);
  });
});

describe("a scenario's tables and charts", () => {
  const request = (id: string, ttft_ms: number | null) => ({ id, arrival_s: 0, prompt_tokens: 1, output_tokens: 1, queue_ms: 0, ttft_ms, itl_ms_mean: null, itl_ms_p50: null, e2e_ms: 1, emitted_tokens: 1, preemptions: 0 });
  test("requests sort by number, missing last, ids by their number", () => {
    const rows = [request("request-10", 3), request("request-2", null), request("request-1", 1)];
    expect(sortRequests(rows, "ttft_ms", true).map((row) => row.id)).toEqual(["request-10", "request-1", "request-2"]);
    expect(sortRequests(rows, "id", false).map((row) => row.id)).toEqual(["request-1", "request-2", "request-10"]);
  });
  test("pages hold 25 rows and never run past the end", () => {
    const rows = Array.from({ length: 60 }, (_, i) => i);
    expect(pageOf(rows, 9)).toEqual({ rows: [50, 51, 52, 53, 54, 55, 56, 57, 58, 59], page: 2, pages: 3 });
    expect(pageOf([], 0)).toEqual({ rows: [], page: 0, pages: 1 });
  });
  test("charts thin long series but keep their ends", () => {
    const steps = Array.from({ length: 5000 }, (_, i): ScenarioStep => ({ step_index: i, kind: "decode", start_ms: i, end_ms: i + 1, num_seqs: 1, query_tokens: 1, context_tokens: 1, kv_blocks_used: 1, provenance: "measured" }));
    const charts = stepCharts(steps);
    expect([charts.startMs[0], charts.startMs.at(-1)]).toEqual([0, 4999]);
    expect(charts.drawn).toBeLessThanOrEqual(2001);
  });
});
