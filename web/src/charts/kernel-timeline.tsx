// The kernel timeline: a lane a sim, its kernels end to end on simulated time,
// drawn on one canvas that shows only the visible lanes and the visible window.
// Wheel scrolls lanes, Ctrl or Shift with the wheel zooms, a drag pans, a pinch
// zooms; with the keyboard, arrows pan and choose lanes, + and − zoom, 0 fits.
import type { TargetedPointerEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { readableName } from "../model/demangle";
import type { RealWord, TimeWord } from "../model/engine";
import type { Kernel } from "../model/entities";
import type { Lane, Window } from "../model/timeline";
import { clampWindow, firstVisible, kernelAt, laneOf, panWindow, ticks, zoomWindow } from "../model/timeline";
import { formatExact, formatNs, significant } from "../model/units";
import { themeVersion } from "../state/theme";
import { SERIES_COLOURS, cssColour } from "./colours";

export interface TimelineLane {
  readonly key: string;
  readonly label: string;
  readonly kernels: readonly Kernel[];
  /** Measured kernels are drawn apart from simulated ones. */
  readonly real: boolean;
  /** What its times are called: measured, simulated, estimated, replayed. */
  readonly word: TimeWord | RealWord;
}

const LANE_PX = 22;
const AXIS_PX = 24;
const MAX_HEIGHT_PX = 420;
const ZOOM_STEP = 1.5;

interface Hover {
  readonly x: number;
  readonly y: number;
  readonly lane: TimelineLane;
  readonly kernel: Kernel;
}

export function KernelTimeline({ lanes }: { lanes: readonly TimelineLane[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [view, setView] = useState<Window | null>(null);
  const [scrollPx, setScrollPx] = useState(0);
  const [hover, setHover] = useState<Hover | null>(null);
  const [focused, setFocused] = useState(0);
  const endNs = useMemo(() => Math.max(1, ...lanes.map((lane) => laneOf(lane.kernels).endNs)), [lanes]);
  const words = [...new Set(lanes.map((lane) => lane.word))];
  const tagged = words.length > 1 && width >= 560;
  const labelPx = width < 560 ? 84 : tagged ? 230 : 190;
  const plotPx = Math.max(width - labelPx, 50);
  const heightPx = Math.min(MAX_HEIGHT_PX, AXIS_PX + lanes.length * LANE_PX + 4);
  const maxScroll = Math.max(0, AXIS_PX + lanes.length * LANE_PX + 4 - heightPx);
  // Null means "everything": the window then grows with the run.
  const shown = view === null ? { fromNs: 0, toNs: endNs } : clampWindow(view, endNs);
  const scroll = Math.min(scrollPx, maxScroll);
  const version = themeVersion.value;

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const watcher = new ResizeObserver(() => setWidth(element.clientWidth));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const frame = requestAnimationFrame(() => draw(element, { lanes, shown, scroll, width, heightPx, labelPx, tagged, focused, hover: hover?.kernel ?? null }));
    return () => cancelAnimationFrame(frame);
  }, [lanes, shown.fromNs, shown.toNs, scroll, width, heightPx, labelPx, tagged, version, hover?.kernel, focused]);

  const nsAt = (x: number) => shown.fromNs + ((x - labelPx) / plotPx) * (shown.toNs - shown.fromNs);
  const zoom = (factor: number, aroundNs = (shown.fromNs + shown.toNs) / 2) => {
    const next = zoomWindow(shown, factor, aroundNs, endNs);
    setView(next.toNs - next.fromNs >= endNs ? null : next);
  };
  const pan = (byNs: number) => setView((old) => (old === null ? null : panWindow(clampWindow(old, endNs), byNs, endNs)));

  // Wheel must be able to stop the page from zooming, which a passive listener cannot.
  const wheel = useRef<(event: WheelEvent) => void>(() => undefined);
  wheel.current = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      const delta = event.deltaY === 0 ? event.deltaX : event.deltaY;
      zoom(Math.exp(-delta / 300), nsAt(event.offsetX));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && view !== null) {
      event.preventDefault();
      pan((event.deltaX / plotPx) * (shown.toNs - shown.fromNs));
    } else if (maxScroll > 0) {
      const next = Math.min(maxScroll, Math.max(0, scroll + event.deltaY));
      if (next === scroll) return; // at the end the page scrolls on
      event.preventDefault();
      setScrollPx(next);
    }
  };
  useEffect(() => {
    const element = canvas.current;
    const listen = (event: WheelEvent) => wheel.current(event);
    element?.addEventListener("wheel", listen, { passive: false });
    return () => element?.removeEventListener("wheel", listen);
  }, []);

  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const onDown = (event: TargetedPointerEvent<HTMLCanvasElement>) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  };
  const onMove = (event: TargetedPointerEvent<HTMLCanvasElement>) => {
    const at = { x: event.offsetX, y: event.offsetY };
    const before = pointers.current.get(event.pointerId);
    if (before === undefined) return setHover(hit(at.x, at.y));
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    if (other === undefined) {
      pan(-((at.x - before.x) / plotPx) * (shown.toNs - shown.fromNs));
      setScrollPx(Math.min(maxScroll, Math.max(0, scroll - (at.y - before.y))));
    } else {
      const was = Math.max(10, Math.abs(before.x - other.x));
      const is = Math.max(10, Math.abs(at.x - other.x));
      zoom(is / was, nsAt((at.x + other.x) / 2));
    }
    pointers.current.set(event.pointerId, at);
    setHover(null);
  };
  const onUp = (event: TargetedPointerEvent<HTMLCanvasElement>) => {
    pointers.current.delete(event.pointerId);
  };

  const laneAt = (y: number) => Math.floor((y - AXIS_PX + scroll) / LANE_PX);
  const hit = (x: number, y: number): Hover | null => {
    if (x < labelPx || y < AXIS_PX) return null;
    const lane = lanes[laneAt(y)];
    if (lane === undefined) return null;
    const kernel = kernelAt(laneOf(lane.kernels), nsAt(x));
    return kernel === null ? null : { x, y, lane, kernel };
  };

  const onKey = (event: KeyboardEvent) => {
    const width = shown.toNs - shown.fromNs;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => pan(-width / 8),
      ArrowRight: () => pan(width / 8),
      ArrowUp: () => chooseLane(focused - 1),
      ArrowDown: () => chooseLane(focused + 1),
      "+": () => zoom(ZOOM_STEP),
      "=": () => zoom(ZOOM_STEP),
      "-": () => zoom(1 / ZOOM_STEP),
      "0": () => setView(null),
      Escape: () => setHover(null),
    };
    const move = moves[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move();
  };
  const chooseLane = (index: number) => {
    const next = Math.min(Math.max(index, 0), lanes.length - 1);
    setFocused(next);
    const top = next * LANE_PX;
    const viewPx = heightPx - AXIS_PX;
    if (top < scroll) setScrollPx(top);
    else if (top + LANE_PX > scroll + viewPx) setScrollPx(top + LANE_PX - viewPx);
  };

  const firstLane = Math.floor(scroll / LANE_PX) + 1;
  const lastLane = Math.min(lanes.length, Math.floor((scroll + heightPx - AXIS_PX) / LANE_PX));
  const chosen = lanes[focused];
  return (
    <div class="timeline" data-testid="timeline">
      <div class="row spread">
        <p class="small muted">
          {formatNs(shown.fromNs)} to {formatNs(shown.toNs)} of {formatNs(endNs)}
          {words.length === 1 ? ` ${words[0]}` : ""}.{maxScroll > 0 ? ` Lanes ${firstLane} to ${lastLane} of ${lanes.length}: the wheel scrolls them.` : ""} Drag pans; a pinch, or Ctrl or Shift + wheel, zooms.
        </p>
        <div class="row tight" role="group" aria-label="Timeline zoom">
          <button type="button" class="tiny" onClick={() => zoom(1 / ZOOM_STEP)} aria-label="Zoom out">
            −
          </button>
          <button type="button" class="tiny" onClick={() => zoom(ZOOM_STEP)} aria-label="Zoom in">
            +
          </button>
          <button type="button" class="tiny" disabled={view === null} onClick={() => setView(null)}>
            Fit
          </button>
        </div>
      </div>
      <div class="timeline-box" ref={box} style={{ height: `${heightPx}px` }}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label={`Kernel timeline of ${lanes.length} lanes. Arrow keys pan and choose a lane, plus and minus zoom, 0 fits. Lane: ${chosen?.label ?? "none"}`}
          style={{ height: `${heightPx}px` }}
          onPointerDown={onDown}
          onPointerMove={onMove}
          onPointerUp={onUp}
          onPointerCancel={onUp}
          onPointerLeave={() => setHover(null)}
          onKeyDown={onKey}
        />
        {hover !== null && <Tip hover={hover} width={width} />}
      </div>
    </div>
  );
}

function Tip({ hover, width }: { hover: Hover; width: number }) {
  const { kernel, lane } = hover;
  const name = readableName(kernel.name);
  const left = Math.min(hover.x + 12, Math.max(0, width - 290));
  return (
    <div class="tip" style={{ left: `${left}px`, top: `${hover.y + 16}px` }}>
      <strong class="break">
        k{kernel.index + 1} {name.full}
      </strong>
      {name.hint !== "" && <div class="muted">‹{name.hint}›</div>}
      <div>{lane.label}</div>
      <div>
        {formatNs(kernel.timeNs)} {lane.word}
      </div>
      {kernel.overlapped && <div class="warn-text">overlapped: time since the previous completion</div>}
      {kernel.cut && <div class="warn-text">cut by a simulation limit</div>}
      {kernel.cycles !== null && (
        <div class="muted">
          {formatExact(kernel.cycles)} cycles{kernel.ipc === null ? "" : ` · ${significant(kernel.ipc)} IPC`}
        </div>
      )}
    </div>
  );
}

interface Scene {
  readonly lanes: readonly TimelineLane[];
  readonly shown: Window;
  readonly scroll: number;
  readonly width: number;
  readonly heightPx: number;
  readonly labelPx: number;
  /** Each lane says where its times come from. */
  readonly tagged: boolean;
  readonly focused: number;
  readonly hover: Kernel | null;
}

function draw(canvas: HTMLCanvasElement, scene: Scene): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(scene.width * ratio);
  canvas.height = Math.round(scene.heightPx * ratio);
  const g = canvas.getContext("2d");
  if (g === null) return;
  g.scale(ratio, ratio);
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  const text = cssColour("--text");
  const muted = cssColour("--muted");
  const border = cssColour("--border");
  const palette = Array.from({ length: SERIES_COLOURS }, (_, i) => cssColour(`--c${i}`));
  const { labelPx, shown } = scene;
  const plotPx = scene.width - labelPx;
  const xOf = (ns: number) => labelPx + ((ns - shown.fromNs) / (shown.toNs - shown.fromNs)) * plotPx;

  g.save();
  g.beginPath();
  g.rect(0, AXIS_PX, scene.width, scene.heightPx - AXIS_PX);
  g.clip();
  const first = Math.max(0, Math.floor(scene.scroll / LANE_PX));
  const last = Math.min(scene.lanes.length, Math.ceil((scene.scroll + scene.heightPx) / LANE_PX));
  for (let i = first; i < last; i += 1) {
    const lane = scene.lanes[i];
    if (lane === undefined) continue;
    const y = AXIS_PX + i * LANE_PX - scene.scroll;
    if (i === scene.focused) {
      g.fillStyle = cssColour("--sunken");
      g.fillRect(0, y, scene.width, LANE_PX);
    }
    drawSlices(g, laneOf(lane.kernels), y, scene, xOf, (kernel) => (lane.real ? cssColour("--real") : (palette[colourOf(kernel.name)] ?? text)));
    const tagPx = scene.tagged ? g.measureText(lane.word).width + 10 : 0;
    g.fillStyle = text;
    g.fillText(fit(g, lane.label, labelPx - 10 - tagPx), 2, y + LANE_PX / 2);
    if (scene.tagged) {
      g.fillStyle = muted;
      g.fillText(lane.word, labelPx - tagPx, y + LANE_PX / 2);
    }
  }
  g.restore();

  g.strokeStyle = border;
  g.fillStyle = muted;
  g.textAlign = "center";
  for (const at of ticks(shown, Math.max(2, plotPx / 110))) {
    const x = Math.round(xOf(at)) + 0.5;
    g.beginPath();
    g.moveTo(x, AXIS_PX - 5);
    g.lineTo(x, AXIS_PX);
    g.stroke();
    if (x > labelPx + 20 && x < scene.width - 24) g.fillText(formatNs(at), x, 9);
  }
  g.beginPath();
  g.moveTo(labelPx, AXIS_PX + 0.5);
  g.lineTo(scene.width, AXIS_PX + 0.5);
  g.stroke();
}

/** Slices narrower than a pixel are merged: a lane costs at most a rectangle a pixel. */
function drawSlices(g: CanvasRenderingContext2D, lane: Lane, y: number, scene: Scene, xOf: (ns: number) => number, colour: (kernel: Kernel) => string): void {
  let busyUntil = scene.labelPx;
  for (let i = firstVisible(lane, scene.shown.fromNs); i < lane.kernels.length; i += 1) {
    const start = lane.starts[i] ?? 0;
    if (start > scene.shown.toNs) break;
    const right = Math.min(xOf(lane.ends[i] ?? 0), scene.width);
    const left = Math.max(xOf(start), scene.labelPx);
    if (right < busyUntil) continue;
    const kernel = lane.kernels[i];
    if (kernel === undefined) continue;
    const wide = right - left;
    g.fillStyle = colour(kernel);
    g.fillRect(left, y + 3, Math.max(wide - (wide > 4 ? 1 : 0), 0.75), LANE_PX - 6);
    if (scene.hover === kernel) {
      g.strokeStyle = cssColour("--text");
      g.lineWidth = 2;
      g.strokeRect(left, y + 3, Math.max(wide - 1, 1), LANE_PX - 6);
      g.lineWidth = 1;
    }
    if (wide > 60) {
      g.fillStyle = cssColour("--surface");
      g.fillText(fit(g, readableName(kernel.name).short, wide - 8), left + 4, y + LANE_PX / 2);
    }
    busyUntil = Math.max(busyUntil, left + 0.75);
  }
}

/** The same colour for the same kernel name, in every lane and on every screen. */
function colourOf(name: string): number {
  const known = colours.get(name);
  if (known !== undefined) return known;
  const text = readableName(name).full;
  let hash = 7;
  for (let i = 0; i < text.length; i += 1) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
  const index = hash % SERIES_COLOURS;
  colours.set(name, index);
  return index;
}
const colours = new Map<string, number>();

function fit(g: CanvasRenderingContext2D, text: string, widthPx: number): string {
  if (g.measureText(text).width <= widthPx) return text;
  const perChar = g.measureText("n").width;
  const keep = Math.floor(widthPx / perChar) - 1;
  return keep <= 1 ? "" : `${text.slice(0, keep)}…`;
}
