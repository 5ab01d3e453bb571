// The request simulator's form and answer as data: what a body may hold, what is
// wrong with a field in words, and the series, pages and shares that are drawn.
// The limits are the service's own (spec: request-simulation, Scenario API).
import type { GpuConfig, ScenarioCreate, ScenarioRequestResult, ScenarioResult, ScenarioStep, SchedulerSettings } from "../api/types";
import type { Trace } from "./entities";

export const MAX_REQUESTS = 4096;
export const MAX_TOTAL_TOKENS = 1_000_000;

/** spec: request-simulation, Datasheet assumptions: the model knows these three. */
export const MODELLED_CONFIGS: ReadonlySet<string> = new Set(["SM90_H100", "SM90_H200", "SM80_A100"]);

export interface FormFields {
  readonly trace: string;
  readonly config: string;
  readonly prompt: string;
  readonly output: string;
  readonly count: string;
  readonly rate: string;
  readonly fresh: boolean;
  readonly max_num_seqs: string;
  readonly max_num_batched_tokens: string;
  readonly block_size: string;
  readonly gpu_memory_utilization: string;
  readonly num_kv_blocks: string;
  readonly chunked: boolean;
}

export const DEFAULT_FIELDS: FormFields = {
  trace: "",
  config: "",
  prompt: "512",
  output: "128",
  count: "8",
  rate: "0",
  fresh: false,
  max_num_seqs: "",
  max_num_batched_tokens: "",
  block_size: "",
  gpu_memory_utilization: "",
  num_kv_blocks: "",
  chunked: true,
};

export type FieldName = keyof FormFields;
export type Problems = Partial<Record<FieldName, string>>;

function whole(text: string, least: number, most: number): number | string {
  if (!/^\s*\d+\s*$/.test(text)) return `a whole number from ${least.toLocaleString("en-US")} to ${most.toLocaleString("en-US")}`;
  const value = Number(text);
  return value < least || value > most ? `from ${least.toLocaleString("en-US")} to ${most.toLocaleString("en-US")}` : value;
}

/** The body to send, or what is wrong with each field. */
export function scenarioBody(fields: FormFields): { readonly body: ScenarioCreate } | { readonly problems: Problems } {
  const problems: Problems = {};
  const number = (name: FieldName, value: number | string): number => {
    if (typeof value === "number") return value;
    problems[name] = `Needs ${value}.`;
    return 0;
  };
  if (fields.trace === "") problems.trace = "Choose a trace.";
  if (fields.config === "") problems.config = "Choose a GPU config.";
  const prompt = number("prompt", whole(fields.prompt, 1, MAX_TOTAL_TOKENS));
  const output = number("output", whole(fields.output, 0, MAX_TOTAL_TOKENS));
  const count = number("count", whole(fields.count, 1, MAX_REQUESTS));
  const rate = fields.rate.trim() === "" ? 0 : Number(fields.rate);
  if (!Number.isFinite(rate) || rate < 0) problems.rate = "Needs a number of requests a second, 0 for all at once.";
  if (Object.keys(problems).length === 0 && count * (prompt + output) > MAX_TOTAL_TOKENS) {
    problems.count = `${count.toLocaleString("en-US")} × (${prompt} + ${output}) tokens pass the limit of ${MAX_TOTAL_TOKENS.toLocaleString("en-US")}.`;
  }
  const scheduler: Partial<SchedulerSettings> = {};
  const optional = (name: "max_num_seqs" | "max_num_batched_tokens" | "block_size" | "num_kv_blocks") => {
    if (fields[name].trim() !== "") scheduler[name] = number(name, whole(fields[name], 1, 100_000_000));
  };
  optional("max_num_seqs");
  optional("max_num_batched_tokens");
  optional("block_size");
  optional("num_kv_blocks");
  if (fields.gpu_memory_utilization.trim() !== "") {
    const share = Number(fields.gpu_memory_utilization);
    if (share > 0 && share <= 1) scheduler.gpu_memory_utilization = share;
    else problems.gpu_memory_utilization = "Needs a share above 0 and up to 1.";
  }
  if (!fields.chunked) scheduler.enable_chunked_prefill = false;
  if (Object.keys(problems).length > 0) return { problems };
  return {
    body: {
      trace_id: fields.trace,
      gpu_config: fields.config,
      num_requests: count,
      prompt_tokens: prompt,
      output_tokens: output,
      arrival_rate_rps: rate,
      ...(fields.fresh ? { fresh: true } : {}),
      ...(Object.keys(scheduler).length > 0 ? { scheduler } : {}),
    },
  };
}

const TEXT_FIELDS = ["trace", "config", "prompt", "output", "count", "rate", "max_num_seqs", "max_num_batched_tokens", "block_size", "gpu_memory_utilization", "num_kv_blocks"] as const;
const FLAG_FIELDS = ["fresh", "chunked"] as const;

/** Every field in the address, defaults left out (null), so that a scenario is a link. */
export function toQuery(fields: FormFields): Record<string, string | null> {
  const query: Record<string, string | null> = {};
  for (const key of TEXT_FIELDS) query[key] = fields[key] === DEFAULT_FIELDS[key] ? null : fields[key];
  for (const key of FLAG_FIELDS) query[key] = fields[key] === DEFAULT_FIELDS[key] ? null : fields[key] ? "1" : "0";
  return query;
}

/** The fields of an address; `fromQuery` of what `toQuery` wrote is the same form. */
export function fromQuery(query: URLSearchParams): FormFields {
  const fields: { -readonly [K in FieldName]: FormFields[K] } = { ...DEFAULT_FIELDS };
  for (const key of TEXT_FIELDS) fields[key] = query.get(key) ?? DEFAULT_FIELDS[key];
  for (const key of FLAG_FIELDS) fields[key] = query.has(key) ? query.get(key) === "1" : DEFAULT_FIELDS[key];
  return fields;
}

export interface ConfigChoice {
  readonly name: string;
  /** Why it can't be chosen; null when it can. */
  readonly reason: string | null;
}

export function configChoices(configs: readonly GpuConfig[], trace: Trace | null): ConfigChoice[] {
  return configs
    .map((config) => ({
      name: config.name,
      reason:
        trace !== null && config.arch !== trace.arch
          ? `${config.arch}, the trace is ${trace.arch}`
          : MODELLED_CONFIGS.has(config.name)
            ? null
            : "no datasheet figures in the model",
    }))
    .sort((a, b) => Number(a.reason !== null) - Number(b.reason !== null));
}

export type RequestSort = "id" | "arrival_s" | "queue_ms" | "ttft_ms" | "itl_ms_mean" | "e2e_ms" | "emitted_tokens" | "preemptions";

/** Missing values sort last in both directions. */
export function sortRequests(requests: readonly ScenarioRequestResult[], key: RequestSort, descending: boolean): readonly ScenarioRequestResult[] {
  const direction = descending ? -1 : 1;
  return [...requests].sort((a, b) => {
    const left = a[key];
    const right = b[key];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    if (typeof left === "string" || typeof right === "string") return direction * String(left).localeCompare(String(right), "en", { numeric: true });
    return direction * (left - right);
  });
}

export const PAGE_ROWS = 25;

export function pageOf<T>(rows: readonly T[], page: number): { readonly rows: readonly T[]; readonly page: number; readonly pages: number } {
  const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
  const current = Math.min(Math.max(page, 0), pages - 1);
  return { rows: rows.slice(current * PAGE_ROWS, (current + 1) * PAGE_ROWS), page: current, pages };
}

/** A chart with more points than pixels shows no more; the first and the last are kept. */
export const CHART_POINTS = 2000;

export interface StepCharts {
  readonly startMs: readonly number[];
  readonly wallMs: readonly number[];
  readonly seqs: readonly number[];
  readonly tokens: readonly number[];
  readonly kvBlocks: readonly number[];
  readonly drawn: number;
}

export function stepCharts(steps: readonly ScenarioStep[]): StepCharts {
  const every = Math.max(1, Math.ceil(steps.length / CHART_POINTS));
  const drawn = steps.filter((_, i) => i % every === 0 || i === steps.length - 1);
  return {
    startMs: drawn.map((step) => step.start_ms),
    wallMs: drawn.map((step) => step.end_ms - step.start_ms),
    seqs: drawn.map((step) => step.num_seqs),
    tokens: drawn.map((step) => step.query_tokens),
    kvBlocks: drawn.map((step) => step.kv_blocks_used),
    drawn: drawn.length,
  };
}

export interface ProvenanceShare {
  readonly label: string;
  readonly meaning: string;
  readonly count: number;
  readonly percent: number;
}

const MEANING: Record<string, string> = {
  measured: "the step's shape is a stored simulated step",
  interpolated: "between two stored decode contexts",
  "extrapolated:roofline": "outside the profile: an unvalidated model prediction",
  "assumed-host": "host time held at the profiled median",
};

export function provenanceShares(result: ScenarioResult): ProvenanceShare[] {
  return Object.entries(result.provenance_counts).map(([label, count]) => ({
    label,
    meaning: MEANING[label] ?? "",
    count,
    percent: result.steps_total === 0 ? 0 : (count / result.steps_total) * 100,
  }));
}

/** True when any step lies outside the calibrated shapes. */
export function isExtrapolated(result: ScenarioResult): boolean {
  return Object.entries(result.provenance_counts).some(([label, count]) => label.startsWith("extrapolated") && count > 0);
}
