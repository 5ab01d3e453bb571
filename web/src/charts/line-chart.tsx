// Lines over a shared axis, drawn by uPlot. The data arrive aggregated: this file
// only sizes, colours and labels them.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { themeVersion } from "../state/theme";
import { cssColour } from "./colours";

export interface Line {
  readonly label: string;
  /** A custom property such as `--c0`. */
  readonly colour: string;
  readonly values: ReadonlyArray<number | null>;
  readonly dashed?: boolean;
  readonly stepped?: boolean;
}

interface Props {
  readonly label: string;
  readonly x: readonly number[];
  readonly lines: readonly Line[];
  readonly formatX: (value: number) => string;
  readonly formatY: (value: number) => string;
  readonly heightPx?: number;
  /** Start the vertical axis at zero, so that small differences look small. */
  readonly fromZero?: boolean;
}

export function LineChart({ label, x, lines, formatX, formatY, heightPx = 220, fromZero = true }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const version = themeVersion.value;
  useEffect(() => {
    const element = box.current;
    if (element === null || x.length === 0) return;
    const grid = { stroke: cssColour("--border"), width: 1 };
    const axis = { stroke: cssColour("--muted"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: heightPx,
        legend: { live: true },
        cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { range: (_, low, high) => yRange(low, high, fromZero) } },
        axes: [
          { ...axis, values: (_, splits) => splits.map(formatX) },
          { ...axis, size: 68, values: (_, splits) => splits.map(formatY) },
        ],
        series: [
          { label: "At", value: (_, value) => (value === null ? "–" : formatX(value)) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: cssColour(line.colour),
            width: 1.75,
            points: { show: x.length < 40, size: 5 },
            ...(line.dashed === true ? { dash: [5, 4] } : {}),
            ...(line.stepped === true && uPlot.paths.stepped !== undefined ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
            value: (_: uPlot, value: number | null) => (value === null ? "–" : formatY(value)),
          })),
        ],
      },
      [[...x], ...lines.map((line) => [...line.values])],
      element,
    );
    const watcher = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: heightPx }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      plot.destroy();
    };
  }, [x, lines, version, heightPx, fromZero]);
  return <div class="chart" ref={box} role="img" aria-label={label} style={{ minHeight: `${heightPx + 30}px` }} />;
}

function yRange(low: number, high: number, fromZero: boolean): [number, number] {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const pad = Math.max((high - low) * 0.08, high * 0.01, 1e-9);
  return [fromZero ? 0 : low - pad, high + pad];
}
