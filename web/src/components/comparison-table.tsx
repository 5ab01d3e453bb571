// Kernel times side by side as bars: the median with its range over replicas, the
// real time as a mark where there is one, and the error against it.
import { useMemo, useState } from "preact/hooks";
import { seriesVariable } from "../charts/colours";
import type { Cell, ColumnSummary, Metric, Row, SortKey, Table } from "../model/comparison";
import type { RealWord, TimeWord } from "../model/engine";
import type { Interval } from "../model/estimate";
import { filterRows, groupByName, longestOf, sortRows } from "../model/comparison";
import { MISSING, formatCount, formatExact, formatNs, formatPercent, formatSignedPercent, plural, significant } from "../model/units";
import { withoutSharedStart } from "../model/labels";
import { Badge, KernelName, WordBadge } from "./basics";
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
          {column.total !== null && <WordBadge word={column.word} />}
          <span class="small muted">{totalNote(column)}</span>
          {column.word === "estimated" && <IntervalNote interval={intervals?.get(column.label)} />}
          {table.columns.length > 1 && column.total !== null && <span class="small">{comparable ? ratioNote(column) : "not comparable: replayed numbers"}</span>}
          {(table.hasErrors || (table.hasReal && column.measuredOn !== null)) && (
            <span class="small" data-testid="mape">
              {mapeNote(column)}
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
  if (column.total === null) return "no replica has succeeded";
  const { n, low, high } = column.total;
  const sum = `sum of ${plural(column.kernels, "kernel")}`;
  if (n === 1) return `${sum}, 1 replica`;
  if (low === high) return `${sum}, ${n} equal replicas`;
  return `${sum}, median of ${n} replicas: ${formatNs(low)} to ${formatNs(high)}`;
}

function mapeNote(column: ColumnSummary): string {
  if (column.measuredOn !== null) return `no error: the real times are ${column.measuredOn}'s`;
  return column.mapePct === null ? "no error: no row has both times" : `MAPE ${formatPercent(column.mapePct)} over ${plural(column.mapeRows, "kernel")}, against ${column.realWord} times`;
}

function ratioNote(column: ColumnSummary): string {
  if (column.fewer) return "not comparable: other configs finished more kernels";
  if (column.ratio === null) return MISSING;
  if (column.ties) return "ties for the fastest (within 1%)";
  return column.ratio === 1 ? "fastest" : `${significant(column.ratio)}× the fastest`;
}

const SORTS: ReadonlyArray<readonly [SortKey, string]> = [
  ["order", "Launch order"],
  ["time", "Largest"],
  ["error", "Largest error"],
  ["spread", "Widest spread"],
];

interface TableProps {
  /** Times, with the measured ones where there are any. */
  readonly table: Table;
  /** The same rows with another number. */
  readonly metricTable: (metric: Metric) => Table;
}

export function ComparisonTable({ table: times, metricTable }: TableProps) {
  const [metric, setMetric] = useState<Metric>("time");
  const [text, setText] = useState("");
  const [sort, setSort] = useState<SortKey>("order");
  const [byName, setByName] = useState(false);
  const grouped = byName && metric !== "ipc";
  const [rowScale, setRowScale] = useState(false);
  const table = useMemo(() => (metric === "time" ? times : metricTable(metric)), [times, metric]);
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
          Show{" "}
          <select value={metric} onChange={(event) => setMetric(METRICS.find((key) => key === event.currentTarget.value) ?? "time")} data-testid="comparison-metric">
            {METRICS.map((key) => (
              <option key={key} value={key}>
                {METRIC_LABEL[key]}
              </option>
            ))}
          </select>
        </label>
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
        <label class="check" title={metric === "ipc" ? "An IPC can't be summed" : undefined}>
          <input type="checkbox" checked={grouped} disabled={metric === "ipc"} onChange={(event) => setByName(event.currentTarget.checked)} data-testid="group-by-name" /> Sum by name
        </label>
        <label class="check">
          <input type="checkbox" checked={rowScale} onChange={(event) => setRowScale(event.currentTarget.checked)} /> Scale each row
        </label>
        <span class="small muted" role="status">
          {plural(rows.length, grouped ? "name" : "kernel")}
        </span>
      </div>
      <Legend table={base} />
      <VirtualList
        label={`${METRIC_LABEL[metric]} of each kernel by config`}
        testid="comparison"
        count={rows.length}
        rowPx={rowPx}
        heightPx={Math.min(560, Math.max(rowPx, rows.length * rowPx))}
        row={(index) => {
          const row = rows[index];
          if (row === undefined) return null;
          return <CompareRow key={`${grouped}${row.index}`} row={row} at={index} table={base} labels={labels} rowPx={rowPx} scaleNs={rowScale ? longestOf(row) : base.longestNs} format={FORMAT[metric]} />;
        }}
      />
    </div>
  );
}

type Format = (value: number | null | undefined) => string;

const METRICS: readonly Metric[] = ["time", "ipc", "cycles", "instructions"];
const METRIC_LABEL: Record<Metric, string> = { time: "Time", ipc: "IPC", cycles: "Cycles", instructions: "Instructions" };
const FORMAT: Record<Metric, Format> = {
  time: formatNs,
  ipc: (value) => (value === null || value === undefined ? MISSING : significant(value)),
  cycles: formatCount,
  instructions: formatCount,
};

/** What bars, whiskers and marks mean, for the columns that are there. */
function Legend({ table }: { table: Table }) {
  const measured = table.columns.filter((column) => table.hasReal || column.mapeRows > 0).map((column) => column.realWord);
  const words = [...new Set<TimeWord | RealWord>([...measured, ...table.columns.map((column) => column.word)])];
  const spread = table.rows.some((row) => row.cells.some((cell) => cell !== null && cell.time.high > cell.time.low));
  return (
    <p class="legend small muted" data-testid="legend">
      {words.map((word) => (
        <WordBadge key={word} word={word} />
      ))}
      {table.hasErrors && (
        <span>
          <b class="key-mark" aria-hidden="true" /> real time; the percentage is the error against it
        </span>
      )}
      {table.rows.some((row) => row.cells.some((cell) => cell !== null && isPartError(row, cell))) && <span>{PART_MARK} over those kernels of the row that have both times</span>}
      {spread && (
        <span>
          <b class="key-whisker" aria-hidden="true" /> range over replicas
        </span>
      )}
    </p>
  );
}

interface RowProps {
  readonly row: Row;
  readonly at: number;
  readonly table: Table;
  readonly labels: readonly string[];
  readonly rowPx: number;
  readonly scaleNs: number;
  readonly format: Format;
}

function CompareRow({ row, at, table, labels, rowPx, scaleNs, format }: RowProps) {
  const percent = (ns: number) => `${scaleNs === 0 ? 0 : (ns / scaleNs) * 100}%`;
  return (
    <div class="compare-row" role="row" aria-rowindex={at + 1} style={{ height: `${rowPx}px` }} data-testid="compare-row">
      <div role="cell" class="compare-name" style={{ height: `${NAME_PX}px` }}>
        <span class="muted small">{row.count > 1 ? `${formatExact(row.count)}×` : `#${row.index + 1}`}</span>
        <KernelName name={row.name} />
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
          {row.realNs !== null && row.realKernels < row.count ? (
            <Part kernels={row.realKernels} of={row.count} />
          ) : (
            <span class="bar-track" aria-hidden="true">
              <i class={`real w-${table.columns[0]?.realWord ?? "measured"}`} style={{ width: row.realNs === null ? "0" : percent(row.realNs) }} />
            </span>
          )}
          <span class="num">{formatNs(row.realNs)}</span>
          <span class="num err" />
        </div>
      )}
      {table.columns.map((column, i) => (
        <BarLine key={column.key} label={labels[i] ?? column.label} title={column.label} row={row} cell={row.cells[i] ?? null} word={column.word} colour={`var(${seriesVariable(i)})`} percent={percent} format={format} />
      ))}
    </div>
  );
}

interface BarProps {
  readonly label: string;
  readonly title: string;
  readonly row: Row;
  readonly cell: Cell | null;
  readonly word: TimeWord;
  readonly colour: string;
  readonly percent: (ns: number) => string;
  readonly format: Format;
}

/** A sum over some of the row's kernels: beside the others' it is no bar. */
function Part({ kernels, of }: { kernels: number; of: number }) {
  return (
    <span class="small muted one-line" data-testid="part">
      {formatExact(kernels)} of {plural(of, "kernel")}
    </span>
  );
}

const PART_MARK = "†";

function isPartError(row: Row, cell: Cell): boolean {
  return cell.realKernels > 0 && cell.realKernels < row.count;
}

function BarLine({ label, title, row, cell, word, colour, percent, format }: BarProps) {
  const realNs = cell?.realNs ?? null;
  const spread = cell !== null && cell.time.n > 1 && cell.time.high > cell.time.low;
  const value = cell === null ? "not finished" : cell.time.n > 1 ? `median of ${cell.time.n}: ${format(cell.time.median)}, ${format(cell.time.low)} to ${format(cell.time.high)}` : format(cell.time.median);
  return (
    <div role="cell" class="bar-line" title={`${title}, ${word}: ${value}`}>
      <span class="bar-label">{label}</span>
      {cell !== null && cell.kernels < row.count ? (
        <Part kernels={cell.kernels} of={row.count} />
      ) : (
        <span class="bar-track" aria-hidden="true">
          {cell !== null && <i class={`w-${word}`} style={{ width: percent(cell.time.median), backgroundColor: colour }} />}
          {spread && <b class="whisker" style={{ left: percent(cell.time.low), width: `calc(${percent(cell.time.high)} - ${percent(cell.time.low)})` }} />}
          {realNs !== null && cell?.realKernels === row.count && <b class="mark" style={{ left: percent(realNs) }} />}
        </span>
      )}
      <span class="num">{format(cell?.time.median)}</span>
      <span class={`num err ${Math.abs(cell?.errorPct ?? 0) >= 50 ? "problem" : ""}`}>{realNs === null ? "" : formatSignedPercent(cell?.errorPct)}
        {cell !== null && isPartError(row, cell) && <abbr title={`over ${plural(cell.realKernels, "kernel")} of ${formatExact(row.count)}: those with both times`}> {PART_MARK}</abbr>}
      </span>
    </div>
  );
}
