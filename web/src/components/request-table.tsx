// Request latencies and step means of each config, real beside simulated.
import { TableScroll } from "./basics";
import type { Pair, StepSummary } from "../model/step-timing";
import { MISSING, formatMs, formatNs, formatPercent, formatSignedPercent } from "../model/units";

export function RequestTable({ summaries }: { summaries: readonly StepSummary[] }) {
  return (
    <TableScroll label="Request latencies by config">
      <table data-testid="step-table">
        <thead>
          <tr>
            <th>Config</th>
            <th class="num">TTFT</th>
            <th class="num">Mean ITL</th>
            <th class="num">End to end</th>
            <th class="num">Mean step</th>
            <th class="num" title="Mean absolute error over the steps">Step MAPE</th>
            <th class="num">Coverage</th>
          </tr>
        </thead>
        <tbody>
          {summaries.map((one) => (
            <tr key={one.key}>
              <td class="nowrap">{one.label}</td>
              <PairCell pair={one.requests.ttftMs} measuredOn={one.measuredOn} />
              <PairCell pair={one.requests.itlMs} measuredOn={one.measuredOn} />
              <PairCell pair={one.requests.e2eMs} measuredOn={one.measuredOn} />
              <td class="num">
                {one.kinds.map((kind) => (
                  <div key={kind.kind}>
                    <span class="small muted">{kind.kind}</span> {formatNs(kind.wallNs)}
                  </div>
                ))}
              </td>
              <td class="num">
                <div>
                  <span class="small muted">wall</span> {formatPercent(one.wallMapePct)}
                </div>
                <div>
                  <span class="small muted">GPU busy</span> {formatPercent(one.busyMapePct)}
                </div>
              </td>
              <td class="num" title="Kernels with a simulated duration; measured GPU time they cover">
                {one.kernelCoverage === null ? MISSING : formatPercent(one.kernelCoverage * 100)}
                <div class="small muted">{one.timeCoverage === null ? "" : `${formatPercent(one.timeCoverage * 100)} of GPU time`}</div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableScroll>
  );
}

function PairCell({ pair, measuredOn }: { pair: Pair; measuredOn: string | null }) {
  return (
    <td class="num">
      {formatMs(pair.simulated)}
      <div class="small muted">{realNote(pair, measuredOn)}</div>
    </td>
  );
}

/** A baseline of another GPU stands beside the number, but is no error of it. */
function realNote(pair: Pair, measuredOn: string | null): string {
  if (pair.real === null) return "no real baseline";
  return measuredOn === null ? `real ${formatMs(pair.real)}, ${formatSignedPercent(pair.errorPct)}` : `real ${formatMs(pair.real)} on ${measuredOn}`;
}
