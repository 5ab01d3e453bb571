"""A second look at the error: real simulator logs of traces that are not in the table of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cascade_accelsim.log.files import log_pieces
from cascade_accelsim.log.whole import parse_log

from cascade_estimate.config import GpuSpec
from cascade_estimate.tracedir import iter_estimates

# Trace folder, config, log; all below the folder beside the table's. Kernels there ran one after the other.
_LOGS = (
    ("sm70/babelstream", "SM7_QV100", "qv100-babelstream"),
    ("sm70/mixed", "SM7_QV100", "qv100-mixed"),
    ("sm75/babelstream", "SM75_RTX2060", "rtx2060-babelstream"),
    ("sm80/babelstream", "SM80_A100", "a100-babelstream"),
    ("sm80/mixed", "SM80_A100", "a100-mixed"),
    ("sm86/babelstream", "SM86_RTX3070", "rtx3070-babelstream"),
    ("sm86/many-kernels", "SM86_RTX3070", "rtx3070-many-kernels"),
    ("sm86/mixed", "SM86_RTX3070", "rtx3070-mixed"),
    ("sm86/streams", "SM86_RTX3070", "rtx3070-streams-serial"),
)


@dataclass(frozen=True, slots=True)
class LoggedKernel:
    """One kernel of a log: cycles with launch latency, and the estimate's interval."""

    log: str
    simulated: int
    estimated: int
    low: int
    high: int
    launch: int

    @property
    def error(self) -> float:
        """Relative error of all cycles."""
        return self.estimated / self.simulated - 1.0

    @property
    def net_error(self) -> float:
        """Relative error without launch latency."""
        return (self.estimated - self.launch) / max(self.simulated - self.launch, 1) - 1.0


def logged_kernels(accelsim_dir: Path, specs: dict[str, GpuSpec]) -> list[LoggedKernel]:
    """Estimate the traces whose logs are there; folders or configs that are missing are left out."""
    found: list[LoggedKernel] = []
    for folder, config, log in _LOGS:
        path, traces, spec = (
            accelsim_dir / "logs" / f"{log}.log.gz",
            accelsim_dir / "traces" / folder,
            specs.get(config),
        )
        if spec is None or not path.is_file() or not traces.is_dir():
            continue
        blocks = parse_log(log_pieces(path)).blocks
        for block, estimate in zip(blocks, iter_estimates(traces, spec), strict=True):
            if block.gpu_sim_cycle is not None:
                cycles = int(block.gpu_sim_cycle)
                found.append(
                    LoggedKernel(
                        log, cycles, estimate.cycles, estimate.low, estimate.high, spec.launch_latency
                    )
                )
    return found
