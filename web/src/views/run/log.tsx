// The full log of one sim: every line, only the visible ones in the page, with a
// search that counts and walks its hits. A running sim's log is read again while
// it is small; a large one on request.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Banner, ErrorNote, PageHead } from "../../components/basics";
import { VirtualList } from "../../components/virtual";
import type { LogLines } from "../../model/log-search";
import { LineCollector, MOST_LOG_CHARS, findLines, matcherFor } from "../../model/log-search";
import { formatBytes, formatExact, plural } from "../../model/units";
import { pathOf, query, setQuery } from "../../router";
import { download } from "../../state/download";
import { useLoaded } from "../../state/poll";
import { client } from "../../state/session";

const ROW_PX = 18;
/** A log below this size is read again every few seconds while its sim runs. */
const FOLLOW_LIMIT_BYTES = 8e6;
const FOLLOW_MS = 3000;

export function LogView({ runId, simId }: { runId: string; simId: string }) {
  const [size, setSize] = useState(0);
  const [progress, setProgress] = useState(0);
  const run = useLoaded(`log-run ${runId}`, (signal) => client.run(runId, signal), 5000);
  const sim = run.data?.sims.find((one) => one.id === simId) ?? null;
  const running = sim !== null && sim.finished_at === null;
  const log = useLoaded(
    `log ${simId} ${running ? "running" : "ended"}`,
    async (signal) => {
      const lines = await readLog(simId, signal, setProgress);
      setSize(lines.bytes);
      return lines;
    },
    running && size < FOLLOW_LIMIT_BYTES ? FOLLOW_MS : undefined,
  );
  const [kept, setKept] = useState<LogLines | null>(null);
  useEffect(() => {
    if (log.data !== null) setKept(log.data);
  }, [log.data]);
  return (
    <>
      <PageHead
        title="Log"
        crumbs={[
          { label: "Runs", href: "/runs" },
          { label: runId, href: pathOf({ view: "run", runId }) },
          { label: sim === null ? simId : `${sim.gpu_config} replica ${sim.replica}`, href: pathOf({ view: "sim", runId, simId }) },
        ]}
        actions={
          <>
            <button type="button" onClick={log.reload}>
              Read again
            </button>
            <button type="button" onClick={() => void download(client.simLogPath(simId), `${simId}.log`)}>
              Download
            </button>
          </>
        }
      />
      {log.error !== null && kept === null && <ErrorNote error={log.error} retry={log.reload} />}
      {kept === null && log.error === null && (
        <p class="muted" role="status">
          Reading the log… {progress > 0 ? formatBytes(progress) : ""}
        </p>
      )}
      {kept !== null && <LogBody log={kept} running={running} />}
    </>
  );
}

async function readLog(simId: string, signal: AbortSignal, onProgress: (bytes: number) => void): Promise<LogLines> {
  const response = await client.open(client.simLogPath(simId), { signal });
  const collector = new LineCollector();
  if (response.body === null) return collector.end();
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let read = 0;
  let shown = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      collector.push(decoder.decode(), 0);
      return collector.end();
    }
    collector.push(decoder.decode(value, { stream: true }), value.byteLength);
    read += value.byteLength;
    if (read - shown > 1e6) {
      shown = read;
      onProgress(read);
    }
  }
}

/** A line that is longer is drawn up to here: one without an end would stop the page. */
const MOST_DRAWN_CHARS = 10_000;

function drawn(line: string): string {
  if (line.length > MOST_DRAWN_CHARS) return `${line.slice(0, MOST_DRAWN_CHARS)}… ${plural(line.length - MOST_DRAWN_CHARS, "more character")}`;
  return line || " ";
}

function LogBody({ log, running }: { log: LogLines; running: boolean }) {
  const [text, setText] = useState(query.peek().get("q") ?? "");
  const [regex, setRegex] = useState(query.peek().get("re") === "1");
  const [only, setOnly] = useState(false);
  // Null until the sim is seen to run or the reader says: the log may be here before the run is. The last lines that
  // come when the sim ends are followed too.
  const [wanted, setFollow] = useState<boolean | null>(null);
  useEffect(() => {
    if (running) setFollow((known) => known ?? true);
  }, [running]);
  const follow = wanted ?? false;
  // A hit belongs to what was searched for when it was chosen: an effect would reset it after the next key already.
  const sought = `${regex ? "re" : "text"} ${text}`;
  const [chosen, setHit] = useState({ at: 0, turn: 0, sought });
  const hit = chosen.sought === sought ? chosen : { at: 0, turn: 0, sought };
  const matcher = useMemo(() => matcherFor(text, regex), [text, regex]);
  const problem = matcher !== null && typeof matcher === "object" ? matcher.problem : null;
  const matches = typeof matcher === "function" ? matcher : null;
  const hits = useMemo(() => (matches === null ? [] : findLines(log.lines, matches)), [log, matches]);
  useEffect(() => setQuery({ q: text === "" ? null : text, re: regex ? "1" : null }), [text, regex]);
  const position = hits.length === 0 ? 0 : Math.min(hit.at, hits.length - 1);
  const go = (by: number) => {
    if (hits.length === 0) return;
    setFollow(false);
    setHit({ at: (position + by + hits.length) % hits.length, turn: hit.turn + 1, sought });
  };
  const filtered = only && matches !== null;
  const count = filtered ? hits.length : log.lines.length;
  const current = hits[position] ?? -1;
  const reveal = hits.length === 0 || follow ? null : { index: filtered ? position : current, at: hit.turn };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") {
      event.preventDefault();
      go(event.shiftKey ? -1 : hit.turn === 0 ? 0 : 1);
    }
  };
  return (
    <section class="card log" aria-label="Log">
      <header>
        <div class="row">
          <input type="search" placeholder="Search the log" aria-label="Search the log" aria-invalid={problem !== null} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKey} data-testid="log-search" />
          <span class="row tight">
            <button type="button" class="tiny" disabled={hits.length === 0} onClick={() => go(-1)} aria-label="Previous hit">
              ↑
            </button>
            <button type="button" class="tiny" disabled={hits.length === 0} onClick={() => go(1)} aria-label="Next hit">
              ↓
            </button>
          </span>
          <span class="small muted" role="status" data-testid="log-hits">
            {problem ?? (text === "" ? "" : hits.length === 0 ? "no line matches" : `${formatExact(position + 1)} of ${plural(hits.length, "line")}`)}
          </span>
          <label class="check">
            <input type="checkbox" checked={regex} onChange={(event) => setRegex(event.currentTarget.checked)} /> Regular expression
          </label>
          <label class="check">
            <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> Only hits
          </label>
          {running && (
            <label class="check">
              <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> Follow the end
            </label>
          )}
        </div>
        <span class="small muted">
          {plural(log.dropped + log.lines.length, "line")}, {formatBytes(log.bytes)}
        </span>
      </header>
      {log.dropped > 0 && (
        <Banner tone="warn" title={`Only the end of this log is here, from line ${formatExact(log.dropped + 1)} on`} testid="log-end-only">
          <p>A page holds up to {formatBytes(MOST_LOG_CHARS)} of a log, and the search looks at what it holds. Download saves all of it.</p>
        </Banner>
      )}
      {running && log.bytes >= FOLLOW_LIMIT_BYTES && (
        <Banner tone="info" title="This log is large, so it is not followed">
          <p>Choose Read again for its newest lines.</p>
        </Banner>
      )}
      <VirtualList
        class="log-lines"
        role="log"
        label="Log lines"
        testid="log-lines"
        count={count}
        rowPx={ROW_PX}
        heightPx={Math.max(360, Math.min(900, innerHeight - 260))}
        reveal={reveal}
        follow={follow}
        row={(index) => {
          const at = filtered ? (hits[index] ?? 0) : index;
          const line = log.lines[at] ?? "";
          return (
            <div key={index} class={`log-line ${matches?.(line) === true ? "hit" : ""} ${at === current ? "current" : ""}`} style={{ height: `${ROW_PX}px` }}>
              <span class="log-no" aria-hidden="true">
                {log.dropped + at + 1}
              </span>
              <span>{drawn(line)}</span>
            </div>
          );
        }}
      />
    </section>
  );
}
