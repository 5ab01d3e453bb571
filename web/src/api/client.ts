// The HTTP client: one function a route, a bearer token on each, and one error
// type that carries the server's own `detail`. It keeps no state of its own: the
// session (state/session.ts) gives it the token and hears of a refused one.
import type {
  Comparison,
  GpuConfig,
  Health,
  KernelStat,
  RunCreate,
  RunDetail,
  RunEstimate,
  RunFile,
  RunSummary,
  ScenarioCreate,
  ScenarioResult,
  SimFile,
  SimStepTimeline,
  TraceDetail,
  TraceSummary,
} from "./types";

/** The server answered with an error status; `message` is its detail in words. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  constructor(
    readonly status: number,
    message: string,
    /** The whole answer, for the routes whose errors name more than a reason. */
    readonly body: unknown = null,
  ) {
    super(message);
  }
}

/** No answer at all: the server is down or the network is gone. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

export interface ClientHooks {
  token(): string | null;
  onUnauthorized(): void;
  /** Told after every exchange, so that the page can say when the server is away. */
  onReachable(reachable: boolean, serverDate: string | null): void;
}

interface ValidationProblem {
  loc?: unknown[];
  msg?: string;
}

/** Turns the two documented shapes of `detail` into one sentence. */
export function detailText(body: unknown, status: number): string {
  if (typeof body === "object" && body !== null && "detail" in body) {
    const detail: unknown = body.detail;
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) {
      return detail.map((item: ValidationProblem) => `${problemPath(item)}${item.msg ?? "is invalid"}`).join("; ");
    }
  }
  return `the server answered with status ${status}`;
}

function problemPath(item: ValidationProblem): string {
  const path = (item.loc ?? []).filter((part) => part !== "body").join(".");
  return path === "" ? "" : `${path}: `;
}

/** The run that an error names, such as the base run of a scenario that came too late. */
export function runNamedBy(error: Error): string | null {
  if (!(error instanceof ApiError) || typeof error.body !== "object" || error.body === null || !("run_id" in error.body)) return null;
  return typeof error.body.run_id === "string" ? error.body.run_id : null;
}

const segment = encodeURIComponent;

export class Client {
  constructor(
    private readonly hooks: ClientHooks,
    private readonly base = "",
  ) {}

  health = (signal?: AbortSignal) => this.json<Health>("/api/health", init(signal));
  traces = (signal?: AbortSignal) => this.json<TraceSummary[]>("/api/traces", init(signal));
  trace = (id: string, signal?: AbortSignal) => this.json<TraceDetail>(`/api/traces/${segment(id)}`, init(signal));
  gpuConfigs = (signal?: AbortSignal) => this.json<GpuConfig[]>("/api/gpu-configs", init(signal));
  runs = (signal?: AbortSignal) => this.json<RunSummary[]>("/api/runs", init(signal));
  run = (id: string, signal?: AbortSignal) => this.json<RunDetail>(`/api/runs/${segment(id)}`, init(signal));
  createRun = (body: RunCreate) => this.post<RunDetail>("/api/runs", body);
  cancelRun = (id: string) => this.post<RunDetail>(`/api/runs/${segment(id)}/cancel`, undefined);
  kernels = (id: string, signal?: AbortSignal) =>
    this.json<KernelStat[]>(`/api/runs/${segment(id)}/kernels`, init(signal));
  comparison = (id: string, signal?: AbortSignal) =>
    this.json<Comparison>(`/api/runs/${segment(id)}/comparison`, init(signal));
  estimate = (id: string, signal?: AbortSignal) =>
    this.json<RunEstimate>(`/api/runs/${segment(id)}/estimate`, init(signal));
  stepTimelines = (id: string, signal?: AbortSignal) =>
    this.json<SimStepTimeline[]>(`/api/runs/${segment(id)}/step-timelines`, init(signal));
  runFiles = (id: string, signal?: AbortSignal) => this.json<RunFile[]>(`/api/runs/${segment(id)}/files`, init(signal));
  simFiles = (id: string, signal?: AbortSignal) => this.json<SimFile[]>(`/api/sims/${segment(id)}/files`, init(signal));
  scenario = (body: ScenarioCreate, signal?: AbortSignal) => this.post<ScenarioResult>("/api/scenarios", body, signal);

  runEventsPath = (id: string) => `/api/runs/${segment(id)}/events`;
  runResultsPath = (id: string) => `/api/runs/${segment(id)}/results`;
  perfettoPath = (id: string) => `/api/runs/${segment(id)}/perfetto`;
  simResultsPath = (id: string) => `/api/sims/${segment(id)}/results`;
  simLogPath = (id: string) => `/api/sims/${segment(id)}/log`;
  simFilePath = (id: string, name: string) => `/api/sims/${segment(id)}/files/${segment(name)}`;

  /** A successful response whose body the caller reads as a stream or a blob. */
  async open(path: string, request: RequestInit = {}): Promise<Response> {
    const headers = new Headers(request.headers);
    const token = this.hooks.token();
    if (token !== null) headers.set("Authorization", `Bearer ${token}`);
    let response: Response;
    try {
      response = await fetch(this.base + path, { ...request, headers });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      this.hooks.onReachable(false, null);
      throw new ConnectionError("The server can't be reached.");
    }
    // A proxy in front of a dead server answers for it: 502 to 504 without our JSON.
    this.hooks.onReachable(!isGatewayFailure(response), response.headers.get("date"));
    if (response.ok) return response;
    if (response.status === 401) this.hooks.onUnauthorized();
    const body = await bodyOrNull(response);
    throw new ApiError(response.status, detailText(body, response.status), body);
  }

  private async json<T>(path: string, request: RequestInit): Promise<T> {
    const response = await this.open(path, request);
    // The one place where a wire type is asserted; the server owns its shape.
    return (await response.json()) as T;
  }

  private post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    const request: RequestInit = { ...init(signal), method: "POST" };
    if (body !== undefined) {
      request.body = JSON.stringify(body);
      request.headers = { "Content-Type": "application/json" };
    }
    return this.json<T>(path, request);
  }
}

function init(signal: AbortSignal | undefined): RequestInit {
  return signal === undefined ? {} : { signal };
}

function isGatewayFailure(response: Response): boolean {
  const json = response.headers.get("content-type")?.includes("json") ?? false;
  return response.status >= 502 && response.status <= 504 && !json;
}

async function bodyOrNull(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    return null; // an error page that is not ours; the status still tells
  }
}
