import { describe, expect, test } from "vitest";
import type { LineStatus } from "./sse";
import { EventLine, SILENCE_LIMIT_MS, SseParser, retryDelayMs } from "./sse";

describe("the event parser", () => {
  test("gives one payload an event, wherever the stream is cut", () => {
    const text = 'data: {"a":1}\n\n: keepalive\n\ndata: {"b":2}\n\n';
    for (let cut = 0; cut <= text.length; cut += 1) {
      const parser = new SseParser();
      expect([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]).toEqual(['{"a":1}', '{"b":2}']);
    }
  });

  test("takes CRLF and keeps odd separators inside a line", () => {
    expect(new SseParser().push('data: {"l":"a\u2028b"}\r\n\r\n')).toEqual(['{"l":"a\u2028b"}']);
  });

  test("an event without its blank line is not given yet", () => {
    expect(new SseParser().push("data: 1\n")).toEqual([]);
  });
});

test("pauses between tries grow and stop growing", () => {
  expect([0, 1, 2, 3, 4, 5, 50].map(retryDelayMs)).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
});

/** A line whose responses and timers the test holds. */
function lineWith(answers: Array<Response | Error>) {
  const statuses: LineStatus[] = [];
  const payloads: string[] = [];
  const timers = new Map<number, { run: () => void; ms: number }>();
  let next = 1;
  const line = new EventLine({
    open: async () => {
      const answer = answers.shift() ?? new Error("no more answers");
      if (answer instanceof Error) throw answer;
      return answer;
    },
    onEvent: (payload) => payloads.push(payload),
    onStatus: (status) => statuses.push(status),
    setTimer: (run, ms) => (timers.set(next, { run, ms }), next++),
    clearTimer: (timer) => void timers.delete(timer),
  });
  const settle = async () => {
    for (let i = 0; i < 20; i += 1) await Promise.resolve();
    await new Promise((resolve) => setTimeout(resolve, 0));
  };
  const fire = (ms: number) => {
    const found = [...timers].find(([, timer]) => timer.ms === ms);
    if (found === undefined) throw new Error(`no timer of ${ms} ms`);
    timers.delete(found[0]);
    found[1].run();
  };
  return { line, statuses, payloads, timers, settle, fire };
}

const stream = (text: string) => new Response(text, { status: 200 });

describe("the line", () => {
  test("is live with its first event and reconnects when the server ends the stream", async () => {
    const { line, statuses, payloads, settle, fire } = lineWith([stream("data: one\n\n"), stream("data: two\n\n")]);
    line.start();
    await settle();
    expect(statuses.map((status) => status.state)).toEqual(["connecting", "live", "waiting"]);
    fire(500);
    await settle();
    expect(payloads).toEqual(["one", "two"]);
    expect(statuses.map((status) => status.state)).toEqual(["connecting", "live", "waiting", "connecting", "live", "waiting"]);
  });

  test("waits longer after each failure and says why", async () => {
    const { line, statuses, settle, fire } = lineWith([new Error("refused"), new Response("", { status: 503 })]);
    line.start();
    await settle();
    expect(statuses.at(-1)).toEqual({ state: "waiting", retryInMs: 500, reason: "refused" });
    fire(500);
    await settle();
    expect(statuses.at(-1)).toEqual({ state: "waiting", retryInMs: 1000, reason: "the server answered 503" });
  });

  test.each([401, 404])("stops at %i: another try would not change it", async (status) => {
    const { line, statuses, timers, settle } = lineWith([new Response("", { status })]);
    line.start();
    await settle();
    expect(statuses.at(-1)).toEqual({ state: "refused", status });
    expect(timers.size).toBe(0);
  });

  test("a line that goes silent is given up and opened again", async () => {
    const silent = new ReadableStream<Uint8Array>();
    const abortable = new Response(silent);
    const { line, statuses, settle, fire, timers } = lineWith([abortable, stream("data: two\n\n")]);
    line.start();
    await settle();
    expect([...timers.values()].map((timer) => timer.ms)).toEqual([SILENCE_LIMIT_MS]);
    fire(SILENCE_LIMIT_MS);
    await settle();
    expect(statuses.at(-1)).toMatchObject({ state: "waiting", reason: "the stream went silent" });
  });

  test("a closed line neither reports nor retries", async () => {
    const { line, statuses, timers, settle } = lineWith([stream("data: one\n\n")]);
    line.start();
    line.close();
    await settle();
    expect(statuses.map((status) => status.state)).toEqual(["connecting"]);
    expect(timers.size).toBe(0);
  });
});
