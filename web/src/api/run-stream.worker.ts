// The worker that holds a run's event stream. Parsing happens here, off the
// page's thread: a kernel event carries about 30 kB of raw statistics that no
// view shows live, and a busy stream must never delay a click.
import { Gathering } from "../model/coalesce";
import type { Batch } from "../model/run-state";
import type { LineStatus } from "./sse";
import { EventLine } from "./sse";
import type { RunEvent } from "./types";

export type ToWorker = { readonly kind: "open"; readonly url: string; readonly token: string | null } | { readonly kind: "drawn" };
export type FromWorker =
  | { readonly kind: "status"; readonly status: LineStatus }
  | { readonly kind: "batch"; readonly batch: Batch; readonly events: number; readonly lines: number };

/** Five changes a second read as live; more would only cost. */
const FLUSH_MS = 200;
/** Sooner than a flush, so that a page opens at once. */
const SNAPSHOT_FLUSH_MS = 10;

interface WorkerScope {
  onmessage: ((message: MessageEvent<ToWorker>) => void) | null;
  postMessage(message: FromWorker): void;
}
declare const self: WorkerScope;

const gathering = new Gathering();
let scheduled = false;
/** A batch is with the page, which has not drawn it. The next one waits, so that a slow page gets fewer, not a queue. */
let drawing = false;

function schedule(ms: number): void {
  if (scheduled || drawing) return;
  scheduled = true;
  setTimeout(flush, ms);
}

function flush(): void {
  scheduled = false;
  const taken = gathering.take();
  if (taken === null) return;
  drawing = true;
  self.postMessage({ kind: "batch", ...taken });
}

function receive(payload: string): void {
  // The one place where an event's type is asserted; the server owns its shape.
  const event = JSON.parse(payload) as RunEvent;
  gathering.add(event);
  schedule(event.type === "snapshot" ? SNAPSHOT_FLUSH_MS : FLUSH_MS);
}

self.onmessage = ({ data }) => {
  if (data.kind === "drawn") {
    drawing = false;
    schedule(FLUSH_MS);
    return;
  }
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (data.token !== null) headers["Authorization"] = `Bearer ${data.token}`;
  const line = new EventLine({
    open: (signal) => fetch(data.url, { headers, signal, cache: "no-store" }),
    onEvent: receive,
    onStatus: (status) => self.postMessage({ kind: "status", status }),
    setTimer: (run, ms) => Number(setTimeout(run, ms)),
    clearTimer: (timer) => clearTimeout(timer),
  });
  line.start();
};
