// One open run: the worker's batches become signals. A sim has a signal of its
// own, so that a change of one of 320 sims redraws one card.
import type { Signal } from "@preact/signals";
import { batch as together, signal } from "@preact/signals";
import type { FromWorker, ToWorker } from "../api/run-stream.worker";
import type { LineStatus } from "../api/sse";
import type { RunWithSims, Sim } from "../model/entities";
import type { LiveRun } from "../model/run-state";
import { applyBatch, applySnapshot, withSharedNames } from "../model/run-state";
import { access, client, currentToken, tokenProblem, logOut } from "./session";

export class RunStore {
  readonly run = signal<LiveRun | null>(null);
  readonly line = signal<LineStatus>({ state: "connecting" });
  /** Events a second over the last batch window. */
  readonly rate = signal(0);
  /** Events since the page was opened. */
  readonly events = signal(0);
  /** Log lines among them: what a test of the stream counts, as every one of them is told once. */
  readonly logLines = signal(0);
  /** When the page last heard from the server, by this browser's clock. */
  readonly heardAt = signal<number | null>(null);
  private readonly sims = new Map<string, Signal<Sim>>();
  private readonly names = new Map<string, string>();
  private worker: Worker | null = null;
  private windowStart = performance.now();
  private windowEvents = 0;

  constructor(readonly runId: string) {}

  open(): void {
    this.worker = new Worker(new URL("../api/run-stream.worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.receive(data);
    const url = new URL(client.runEventsPath(this.runId), location.href).href;
    const hello: ToWorker = { kind: "open", url, token: currentToken() };
    this.worker.postMessage(hello);
  }

  close(): void {
    this.worker?.terminate();
    this.worker = null;
  }

  /** A sim's own signal; views subscribe to it instead of the whole run. */
  sim(id: string): Signal<Sim> | undefined {
    return this.sims.get(id);
  }

  /** What a request answered (a cancel): newer than any event so far. */
  adopt(run: RunWithSims): void {
    const state = this.run.peek();
    const kernels = state === null ? [] : [...state.kernels.values()].flat();
    this.set(applySnapshot(state, run, kernels));
  }

  private receive(message: FromWorker): void {
    if (message.kind === "status") {
      this.line.value = message.status;
      if (message.status.state === "refused" && message.status.status === 401 && access.peek() === "open") {
        logOut();
        tokenProblem.value = "The server refused the token while it streamed this run.";
      }
      return;
    }
    this.heardAt.value = Date.now();
    this.countEvents(message.events);
    this.logLines.value += message.lines;
    const next = applyBatch(this.run.peek(), withSharedNames(message.batch, this.names));
    if (next !== null) this.set(next);
    afterDrawing(() => {
      const drawn: ToWorker = { kind: "drawn" };
      this.worker?.postMessage(drawn);
    });
  }

  private set(next: LiveRun): void {
    together(() => {
      for (const [id, sim] of next.sims) {
        const known = this.sims.get(id);
        if (known === undefined) this.sims.set(id, signal(sim));
        else known.value = sim; // the same object means no change, and no redraw
      }
      this.run.value = next;
    });
  }

  private countEvents(events: number): void {
    this.events.value += events;
    this.windowEvents += events;
    const elapsed = performance.now() - this.windowStart;
    if (elapsed < 1000) return;
    this.rate.value = Math.round((this.windowEvents / elapsed) * 1000);
    this.windowStart = performance.now();
    this.windowEvents = 0;
  }
}

/** Runs `then` once what has changed is on the screen; a hidden page draws nothing and does not wait. */
function afterDrawing(then: () => void): void {
  if (document.hidden) then();
  else requestAnimationFrame(() => setTimeout(then, 0));
}
