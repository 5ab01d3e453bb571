// Kernel times side by side as bars: the median with its range over replicas, the
// real time as a mark where there is one, and the error against it.
import { useMemo, useState } from "preact/hooks";
import { seriesVariable } from "../charts/colours";
import type { Cell, ColumnSummary, Row, SortKey, Table } from "../model/comparison";
import type { Interval } from "../model/estimate";
import { filterRows, groupByName, sortRows } from "../model/comparison";
import { MISSING, formatExact, formatNs, formatPercent, formatSignedPercent, plural, significant } from "../model/units";
import { withoutSharedStart } from "../model/labels";
import { Badge, KernelName } from "./basics";
import { VirtualList } from "./virtual";

const LINE_PX = 20;
const NAME_PX = 26;
const ROW_PAD_PX = 12;

interface CardsProps {
  readonly table: Table;
  readonly comparable: boolean;
  /** By the columns' labels: what an estimated total may be off by. */
  readonly intervals?: ReadonlyMap<string, Interval>;
}

export function ColumnCards({ table, comparable, intervals }: CardsProps) {
  return (
    <ul class="columns" data-testid="columns">
      {table.columns.map((column, i) => (
        <li key={column.key} style={{ borderTopColor: `var(${seriesVariable(i)})` }}>
          <strong class="break">{column.label}</strong>
          <span class="big">{formatNs(column.total?.median)}</span>
          <span class="small muted">{totalNote(column)}</span>
          {column.word === "estimated" && <IntervalNote interval={intervals?.get(column.label)} />}
          {table.columns.length > 1 && <span class="small">{comparable ? ratioNote(column) : "not comparable: replayed numbers"}</span>}
          {table.hasErrors && (
            <span class="small" data-testid="mape">
              {column.mapePct === null ? "no error: no row has both times" : `MAPE ${formatPercent(column.mapePct)} over ${plural(column.mapeRows, "kernel")}`}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

function IntervalNote({ interval }: { interval: Interval | undefined }) {
  if (interval === undefined || interval.lowNs === interval.highNs) return null;
  return (
    <span class="small" data-testid="interval">
      interval {formatNs(interval.lowNs)} to {formatNs(interval.highNs)}
    </span>
  );
}

function totalNote(column: ColumnSummary): string {
  if (column.total === null) return "no replica succeeded yet";
  if (column.total.low === column.total.high && column.total.n > 1) return `${column.word}, ${column.total.n} equal replicas`;
  if (column.total.n === 1) return `${column.word}, 1 replica`;
  return `${column.word}, median of ${column.total.n}; ${formatNs(column.total.low)} to ${formatNs(column.total.high)}`;
}

function ratioNote(column: ColumnSummary): string {
  if (column.ratio === null) return MISSING;
  if (column.ties) return "ties for the fastest (within 1%)";
  return column.ratio === 1 ? "fastest" : `${significant(column.ratio)}× the fastest`;
}

const SORTS: ReadonlyArray<readonly [SortKey, string]> = [
  ["order", "Launch order"],
  ["time", "Longest"],
  ["error", "Largest error"],
  ["spread", "Widest spread"],
];

export function ComparisonTable({ table }: { table: Table }) {
  const [text, setText] = useState("");
  const [sort, setSort] = useState<SortKey>("order");
  const [grouped, setGrouped] = useState(false);
  const [rowScale, setRowScale] = useState(false);
  const base = useMemo(() => (grouped ? groupByName(table) : table), [table, grouped]);
  const rows = useMemo(() => sortRows(filterRows(base.rows, text), sort), [base, text, sort]);
  const labels = useMemo(() => withoutSharedStart(table.columns.map((column) => column.label)), [table]);
  const lines = table.columns.length + (table.hasReal ? 1 : 0);
  const rowPx = NAME_PX + lines * LINE_PX + ROW_PAD_PX;
  return (
    <div class="comparison">
      <div class="row">
        <input type="search" placeholder="Search kernels" aria-label="Search kernels" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <label class="inline">
          Sort{" "}
          <select value={sort} onChange={(event) => setSort(SORTS.find(([key]) => key === event.currentTarget.value)?.[0] ?? "order")} data-testid="comparison-sort">
            {SORTS.filter(([key]) => key !== "error" || table.hasErrors).map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={grouped} onChange={(event) => setGrouped(event.currentTarget.checked)} data-testid="group-by-name" /> Sum by name
        </label>
        <label class="check">
          <input type="checkbox" checked={rowScale} onChange={(event) => setRowScale(event.currentTarget.checked)} /> Scale each row
        </label>
        <span class="small muted" role="status">
          {plural(rows.length, grouped ? "name" : "kernel")}
        </span>
      </div>
      <VirtualList
        label="Kernel times by config"
        testid="comparison"
        count={rows.length}
        rowPx={rowPx}
        heightPx={Math.min(560, Math.max(rowPx, rows.length * rowPx))}
        row={(index) => {
          const row = rows[index];
          if (row === undefined) return null;
          return <CompareRow key={`${grouped}${row.index}`} row={row} at={index} table={base} labels={labels} rowPx={rowPx} scaleNs={rowScale ? longestOf(row) : base.longestNs} />;
        }}
      />
    </div>
  );
}

function longestOf(row: Row): number {
  return Math.max(row.realNs ?? 0, ...row.cells.map((cell) => Math.max(cell?.time.high ?? 0, cell?.realNs ?? 0)));
}

function CompareRow({ row, at, table, labels, rowPx, scaleNs }: { row: Row; at: number; table: Table; labels: readonly string[]; rowPx: number; scaleNs: number }) {
  const percent = (ns: number) => `${scaleNs === 0 ? 0 : (ns / scaleNs) * 100}%`;
  return (
    <div class="compare-row" role="row" aria-rowindex={at + 1} style={{ height: `${rowPx}px` }} data-testid="compare-row">
      <div role="cell" class="one-line compare-name" style={{ height: `${NAME_PX}px` }}>
        <span class="muted small">{row.count > 1 ? `${formatExact(row.count)}×` : `#${row.index + 1}`}</span> <KernelName name={row.name} />
        {row.overlapped && (
          <Badge tone="warn" title="Kernels overlapped: the time runs from the previous completion and is no duration">
            overlapped
          </Badge>
        )}
        {row.cut && (
          <Badge tone="warn" title="A simulation limit cut this kernel: its time is not whole">
            cut
          </Badge>
        )}
      </div>
      {table.hasReal && (
        <div role="cell" class="bar-line">
          <span class="bar-label">Real</span>
          <span class="bar-track" aria-hidden="true">
            <i class="real" style={{ width: row.realNs === null ? "0" : percent(row.realNs) }} />
          </span>
          <span class="num">{formatNs(row.realNs)}</span>
          <span class="num err" />
        </div>
      )}
      {table.columns.map((column, i) => (
        <BarLine key={column.key} label={labels[i] ?? column.label} title={column.label} cell={row.cells[i] ?? null} colour={`var(${seriesVariable(i)})`} percent={percent} />
      ))}
    </div>
  );
}

function BarLine({ label, title, cell, colour, percent }: { label: string; title: string; cell: Cell | null; colour: string; percent: (ns: number) => string }) {
  const realNs = cell?.realNs ?? null;
  const spread = cell !== null && cell.time.n > 1 && cell.time.high > cell.time.low;
  const value = cell === null ? "not finished" : cell.time.n > 1 ? `median of ${cell.time.n}: ${formatNs(cell.time.median)}, ${formatNs(cell.time.low)} to ${formatNs(cell.time.high)}` : formatNs(cell.time.median);
  return (
    <div role="cell" class="bar-line" title={`${title}: ${value}`}>
      <span class="bar-label">{label}</span>
      <span class="bar-track" aria-hidden="true">
        {cell !== null && <i style={{ width: percent(cell.time.median), background: colour }} />}
        {spread && <b class="whisker" style={{ left: percent(cell.time.low), width: `calc(${percent(cell.time.high)} - ${percent(cell.time.low)})` }} />}
        {realNs !== null && <b class="mark" style={{ left: percent(realNs) }} />}
      </span>
      <span class="num">{formatNs(cell?.time.median)}</span>
      <span class={`num err ${Math.abs(cell?.errorPct ?? 0) >= 50 ? "problem" : ""}`}>{realNs === null ? "" : formatSignedPercent(cell?.errorPct)}</span>
    </div>
  );
}
