"""Facts with the least typing: a test names what it is about, the rest has a plain default."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.runs.facts import PlannedSim, RunCancelRequested, RunEntry, RunRequested
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimLaunchStarted, SimMetrics, SimProgressed, SimReported
from cascade_core.sims.state import Sim, SimInput
from cascade_core.sims.transitions import SimState

START = datetime(2026, 11, 7, 12, 0, tzinfo=UTC)
RUN = "run-000000000001"
SIM = "sim-000000000001"
ATTEMPT = "a1"


def at(seconds: float) -> datetime:
    """`seconds` after the tests' first moment."""
    return START + timedelta(seconds=seconds)


def run_requested(
    *, run_id: str = RUN, sims: Iterable[str] = (SIM,), trace_id: str = "demo", kernels_total: int = 3
) -> RunRequested:
    """A run of `sims`, replicas of one config of 1132 MHz."""
    planned = [
        PlannedSim(sim_id=sim, gpu_config="SM86_RTX3070", replica=i, arch="sm_86", core_clock_mhz=1132.0)
        for i, sim in enumerate(sims)
    ]
    return RunRequested(
        run_id=run_id,
        occurred_at=at(0),
        trace_id=trace_id,
        entries=[RunEntry(gpu_config="SM86_RTX3070", count=len(planned))],
        sims=planned,
        kernels_total=kernels_total,
    )


def cancel_requested(seconds: float, *, run_id: str = RUN) -> RunCancelRequested:
    """Somebody cancelled the run."""
    return RunCancelRequested(run_id=run_id, occurred_at=at(seconds))


def launch_started(
    seconds: float = 1, *, attempt: str = ATTEMPT, run_id: str = RUN, sim_id: str = SIM
) -> SimLaunchStarted:
    """A launcher took the sim."""
    return SimLaunchStarted(run_id=run_id, sim_id=sim_id, occurred_at=at(seconds), attempt=attempt)


def reported(
    state: SimState,
    seconds: float,
    *,
    attempt: str | None = None,
    error: str | None = None,
    exit_code: int | None = None,
    run_id: str = RUN,
    sim_id: str = SIM,
) -> SimReported:
    """A heartbeat."""
    return SimReported.model_validate(
        {
            "run_id": run_id,
            "sim_id": sim_id,
            "occurred_at": at(seconds),
            "state": state,
            "attempt": attempt,
            "error": error,
            "exit_code": exit_code,
        }
    )


def chunk(
    seq: int,
    lines: Iterable[str],
    *,
    seconds: float = 2,
    attempt: str | None = None,
    run_id: str = RUN,
    sim_id: str = SIM,
) -> LogAppended:
    """A chunk of log."""
    return LogAppended(
        run_id=run_id, sim_id=sim_id, occurred_at=at(seconds), seq=seq, lines=list(lines), attempt=attempt
    )


def progressed(
    through_seq: int,
    *,
    kernels_done: int = 0,
    seconds: float = 3,
    final: bool = False,
    cycles: float | None = None,
    current_kernel: str | None = None,
    run_id: str = RUN,
    sim_id: str = SIM,
) -> SimProgressed:
    """The parser's progress."""
    return SimProgressed(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=at(seconds),
        through_seq=through_seq,
        kernels_done=kernels_done,
        current_kernel=current_kernel,
        latest=SimMetrics(gpu_tot_sim_cycle=cycles),
        final=final,
    )


def kernel(index: int, *, cycles: int = 100, run_id: str = RUN, sim_id: str = SIM) -> KernelFinished:
    """One finished kernel."""
    return KernelFinished(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=at(4),
        index=index,
        kernel_name=f"k{index}",
        gpu_sim_cycle=cycles,
        stats={"gpu_sim_cycle": float(cycles)},
    )


def folded(facts: Iterable[SimInput], sim: Sim | None = None) -> Sim:
    """The sim after `facts`; a pending one before them unless `sim` is given."""
    state = sim or sim_state.sims_of(run_requested())[0]
    for fact in facts:
        state = sim_state.apply(state, fact)
    return state
