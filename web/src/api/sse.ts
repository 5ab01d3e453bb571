// Server-sent events over fetch: unlike EventSource it can send the token in a
// header (so it never lands in an access log), it can tell a refused token from a
// lost line, and a silent line is noticed. This file runs in a worker; the clock
// and the network are passed in, so that the tests need neither.

/** What the page is told about the line itself. */
export type LineStatus =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "waiting"; retryInMs: number; reason: string }
  | { state: "refused"; status: number };

/** The server sends a comment after 15 s of silence; two missed ones and a margin mean a dead line. */
export const SILENCE_LIMIT_MS = 40_000;
const SILENT = "the stream went silent";
export const FIRST_RETRY_MS = 500;
export const LAST_RETRY_MS = 10_000;

/** 0.5, 1, 2, 4, 8, 10, 10 ... seconds. */
export function retryDelayMs(failures: number): number {
  return Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(failures, 10));
}

/** Splits a text/event-stream into the payloads of its events; comments are dropped. */
export class SseParser {
  /** Pieces of a line that has not ended yet: a snapshot may be tens of megabytes on one line. */
  private open: string[] = [];
  private data: string[] = [];

  /** Feeds a piece of the stream, cut anywhere; returns the events it completed. */
  push(chunk: string): string[] {
    if (!chunk.includes("\n")) {
      this.open.push(chunk);
      return [];
    }
    const done: string[] = [];
    const lines = (this.open.join("") + chunk).split("\n");
    this.open = [lines.pop() ?? ""];
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length > 0) done.push(this.data.join("\n"));
        this.data = [];
      } else if (line.startsWith("data:")) {
        this.data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      }
    }
    return done;
  }
}

export interface LineDeps {
  open(signal: AbortSignal): Promise<Response>;
  onEvent(payload: string): void;
  onStatus(status: LineStatus): void;
  setTimer(run: () => void, ms: number): number;
  clearTimer(timer: number): void;
}

/**
 * Keeps one event stream open until `close` is called: reconnects with a growing
 * pause after a lost or silent line, and gives up only on an answer that a retry
 * cannot change (401, 404). Each connection starts with a fresh snapshot.
 */
export class EventLine {
  private abort = new AbortController();
  private closed = false;
  private failures = 0;
  private timer = 0;
  private silence = 0;

  constructor(private readonly deps: LineDeps) {}

  start(): void {
    if (this.closed) return;
    this.deps.clearTimer(this.timer);
    this.abort.abort();
    this.abort = new AbortController();
    this.deps.onStatus({ state: "connecting" });
    void this.read(this.abort);
  }

  close(): void {
    this.closed = true;
    this.deps.clearTimer(this.timer);
    this.deps.clearTimer(this.silence);
    this.abort.abort();
  }

  private async read(abort: AbortController): Promise<void> {
    let reason = "the server closed the stream";
    try {
      this.watch(abort);
      const response = await this.deps.open(abort.signal);
      if (response.status === 401 || response.status === 404) {
        this.deps.clearTimer(this.silence);
        this.closed = true;
        this.deps.onStatus({ state: "refused", status: response.status });
        return;
      }
      if (!response.ok || response.body === null) throw new Error(`the server answered ${response.status}`);
      await this.consume(response.body, abort);
      if (abort.signal.aborted) reason = SILENT;
    } catch (error) {
      if (this.closed || abort !== this.abort) return; // closed or replaced on purpose
      reason = abort.signal.aborted ? SILENT : messageOf(error);
    }
    if (this.closed || abort !== this.abort) return;
    this.retry(reason);
  }

  private async consume(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    abort.signal.addEventListener("abort", () => void reader.cancel().catch(() => undefined));
    let live = false;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || abort.signal.aborted) return;
      this.watch(abort);
      for (const payload of parser.push(decoder.decode(value, { stream: true }))) {
        if (!live) {
          live = true;
          this.failures = 0;
          this.deps.onStatus({ state: "live" });
        }
        this.deps.onEvent(payload);
      }
    }
  }

  private watch(abort: AbortController): void {
    this.deps.clearTimer(this.silence);
    this.silence = this.deps.setTimer(() => abort.abort(), SILENCE_LIMIT_MS);
  }

  private retry(reason: string): void {
    this.deps.clearTimer(this.silence);
    const retryInMs = retryDelayMs(this.failures);
    this.failures += 1;
    this.deps.onStatus({ state: "waiting", retryInMs, reason });
    this.timer = this.deps.setTimer(() => this.start(), retryInMs);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
