// Small pieces that every view uses. They draw what they are given and decide
// nothing.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { readableName } from "../model/demangle";
import type { RealWord, TimeWord } from "../model/engine";
import { WORD_MEANING } from "../model/engine";
import type { RunState, SimState, TraceState } from "../model/entities";
import { SIM_STATES } from "../model/entities";
import { formatAge, formatMoment } from "../model/units";
import { now } from "../state/clock";

type AnyState = SimState | RunState | TraceState;

const TONE: Record<AnyState, string> = {
  pending: "",
  launching: "info",
  running: "info",
  active: "info",
  uploading: "info",
  processing: "info",
  lost: "warn",
  partial: "warn",
  succeeded: "ok",
  ready: "ok",
  failed: "bad",
  cancelled: "",
};
const MOVING = new Set<AnyState>(["launching", "running", "active", "uploading", "processing"]);

export function StateBadge({ state }: { state: AnyState }) {
  return (
    <span class={`badge ${TONE[state]}`} data-testid="state" data-state={state}>
      <span class={`dot ${MOVING.has(state) ? "pulse" : ""}`} aria-hidden="true" />
      {state}
    </span>
  );
}

export function Badge({ tone = "", title, children }: { tone?: string; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** Where a number comes from: one word, one look, everywhere. */
export function WordBadge({ word }: { word: TimeWord | RealWord }) {
  return (
    <span class={`word w-${word}`} title={WORD_MEANING[word]} data-testid="word">
      <i aria-hidden="true" />
      {word}
    </span>
  );
}

/** An age that ticks, with the exact moment on hover. */
export function Age({ at, suffix = " ago" }: { at: number | null; suffix?: string }) {
  const text = formatAge(at, now.value);
  return (
    <time dateTime={at === null ? undefined : new Date(at).toISOString()} title={formatMoment(at)} class="nowrap">
      {at === null || text === "now" ? text : text + suffix}
    </time>
  );
}

/** A kernel's readable name; the mangled one on hover and for copying. */
export function KernelName({ name }: { name: string }) {
  const { full, short, hint } = readableName(name);
  const scope = full.slice(0, full.length - short.length);
  return (
    <span class="kname" title={name}>
      {scope !== "" && <span class="scope">{scope}</span>}
      {short}
      {hint !== "" && <span class="hint"> ‹{hint}›</span>}
    </span>
  );
}

export function Banner({ tone, title, children, testid }: { tone: "warn" | "info" | "error"; title: string; children?: ComponentChildren; testid?: string }) {
  return (
    <div class={`banner ${tone}`} role={tone === "error" ? "alert" : "note"} data-testid={testid}>
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function ErrorNote({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <Banner tone="error" title="This could not be loaded" testid="error">
      <p>{error.message}</p>
      {retry !== undefined && (
        <div>
          <button type="button" class="tiny" onClick={retry}>
            Try again
          </button>
        </div>
      )}
    </Banner>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="muted" role="status">
      Loading {what}…
    </p>
  );
}

/** Text to paste into a terminal, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre tabIndex={0} role="group" aria-label="Command">
        {text}
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    timer.current = window.setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="tiny" onClick={() => void copy()}>
      <span aria-live="polite">{done ? "Copied" : label}</span>
    </button>
  );
}

export function StateBar({ counts }: { counts: Readonly<Partial<Record<SimState, number>>> }) {
  const present = SIM_STATES.filter((state) => (counts[state] ?? 0) > 0);
  const total = present.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const text = present.map((state) => `${counts[state]} ${state}`).join(", ");
  return (
    <div class="statebar" role="img" aria-label={text} title={text}>
      {present.map((state) => (
        <i key={state} class={`s-${state}`} style={{ width: `${((counts[state] ?? 0) / total) * 100}%` }} />
      ))}
    </div>
  );
}

export function StateCounts({ counts }: { counts: Readonly<Partial<Record<SimState, number>>> }) {
  const present = SIM_STATES.filter((state) => (counts[state] ?? 0) > 0);
  return <span class="small muted">{present.map((state) => `${counts[state]} ${state}`).join(" · ")}</span>;
}

export function Meter({ done, total, state }: { done: number; total: number; state: SimState }) {
  // A stand-in may finish more kernels than the trace has: the bar stops at full, the numbers beside it do not.
  const percent = total === 0 ? 0 : Math.min(100, (done / total) * 100);
  return (
    <div class="meter" role="progressbar" aria-label="Kernels done" aria-valuemin={0} aria-valuemax={total} aria-valuenow={Math.min(done, total)}>
      <i class={`s-${state}`} style={{ width: `${percent}%` }} />
    </div>
  );
}

/** A wide table's own scroll area, reachable by keyboard. */
export function TableScroll({ label, flush = true, children }: { label: string; flush?: boolean; children: ComponentChildren }) {
  return (
    <div class={`table-wrap ${flush ? "flush" : ""}`} role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

export function Facts({ items }: { items: ReadonlyArray<readonly [string, ComponentChildren]> }) {
  return (
    <dl class="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export interface Crumb {
  readonly label: string;
  readonly href: string;
}

export function PageHead({ title, crumbs = [], badges, actions, children }: { title: string; crumbs?: readonly Crumb[]; badges?: ComponentChildren; actions?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Cascade`;
  }, [title]);
  return (
    <div class="head">
      <div>
        {crumbs.length > 0 && (
          <nav class="crumbs" aria-label="Breadcrumb">
            {crumbs.map((crumb) => (
              <span key={crumb.href}>
                <a href={crumb.href}>{crumb.label}</a> /
              </span>
            ))}
          </nav>
        )}
        <div class="row">
          <h1>{title}</h1>
          {badges}
        </div>
        {children}
      </div>
      {actions !== undefined && <div class="actions">{actions}</div>}
    </div>
  );
}
