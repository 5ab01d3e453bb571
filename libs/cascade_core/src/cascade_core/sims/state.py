"""A sim as the fold of its facts. Pure and total: no clock, no I/O, no raise.

Every service folds the same facts and so agrees on every sim. A move that `SIM_TRANSITIONS` does not allow, a
repeated fact, however late, and a fact of a second start of the same sim change nothing.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, assert_never

from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.logs.tail import LogTail
from cascade_core.runs.facts import PlannedSim, RunCancelRequested, RunRequested
from cascade_core.sims.facts import (
    SimFactUnion,
    SimGivenUp,
    SimLaunched,
    SimLaunchFailed,
    SimLaunchStarted,
    SimLogArchived,
    SimMetrics,
    SimOutcome,
    SimOutputStored,
    SimProgressed,
    SimReported,
    SimStepTimelineStored,
    SimWentSilent,
)
from cascade_core.sims.transitions import TERMINAL_SIM_STATES, SimState, may_move

SimInput: TypeAlias = SimFactUnion | LogAppended | KernelFinished | RunCancelRequested

NO_METRICS = SimMetrics()
EMPTY_TAIL = LogTail()

SECOND_LOG_ERROR = (
    "a second start of this sim sent another log: its first chunk differs from the one that was stored. "
    "The two logs were not mixed. Launch a new run for a clean result."
)


@dataclass(frozen=True, slots=True)
class Sim:
    """Everything the product shows of a sim, and what the fold needs to decide."""

    sim_id: str
    run_id: str
    gpu_config: str
    replica: int
    created_at: datetime
    kernels_total: int
    arch: str = "unknown"
    core_clock_mhz: float = 0.0
    state: SimState = SimState.PENDING
    error: str | None = None
    launcher_ref: str | None = None
    launch_attempt: str | None = None
    launched_at: datetime | None = None
    """When the launcher took the sim; silence counts from here until the first heartbeat."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    exit_code: int | None = None
    attempt: str | None = None
    """The start that reported first. Facts of another start are set aside."""
    first_chunk_digest: str | None = None
    second_log: bool = False
    kernels_done: int = 0
    through_seq: int = -1
    current_kernel: str | None = None
    latest: SimMetrics = NO_METRICS
    log_clock_mhz: float | None = None
    engine: str | None = None
    partial_kernel: int | None = None
    tail: LogTail = EMPTY_TAIL
    archive_key: str | None = None
    parsed_to_end: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether nothing leaves this state."""
        return self.state in TERMINAL_SIM_STATES

    @property
    def clock_mhz(self) -> float | None:
        """The clock that turns this sim's cycles into time: the registry's, else the log's own, else None."""
        return self.core_clock_mhz or self.log_clock_mhz or None


def sims_of(fact: RunRequested) -> list[Sim]:
    """The pending sims that `fact` created, in the order of its plan."""
    return [_planned(fact, planned) for planned in fact.sims]


def _planned(fact: RunRequested, planned: PlannedSim) -> Sim:
    return Sim(
        sim_id=planned.sim_id,
        run_id=fact.run_id,
        gpu_config=planned.gpu_config,
        replica=planned.replica,
        created_at=fact.occurred_at,
        kernels_total=fact.kernels_total,
        arch=planned.arch,
        core_clock_mhz=planned.core_clock_mhz,
        engine="replay" if fact.replay else None,
    )


def chunk_digest(lines: list[str]) -> str:
    """A short fingerprint of a chunk's content."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update("\n".join(lines).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def is_fenced(sim: Sim, attempt: str | None) -> bool:
    """Whether a caller that names itself `attempt` is not the start that owns this sim."""
    if attempt is None:
        return False
    if sim.attempt is not None:
        return attempt != sim.attempt
    return sim.launch_attempt is not None and attempt.split(".", 1)[0] != sim.launch_attempt


def accepts_chunk(sim: Sim, fact: LogAppended) -> bool:
    """Whether this chunk belongs to the log of the start that owns the sim. Ask before `apply`."""
    if is_fenced(sim, fact.attempt) or sim.second_log or sim.archive_key is not None:
        return False
    return not (
        fact.seq == 0
        and sim.first_chunk_digest is not None
        and chunk_digest(fact.lines) != sim.first_chunk_digest
    )


def apply(sim: Sim, fact: SimInput) -> Sim:
    """Fold one fact that concerns this sim."""
    match fact:
        case SimLaunchStarted():
            if sim.state is not SimState.PENDING:
                return sim
            return replace(
                sim, state=SimState.LAUNCHING, launch_attempt=fact.attempt, launched_at=fact.occurred_at
            )
        case SimLaunched():
            return replace(sim, launcher_ref=sim.launcher_ref or fact.launcher_ref)
        case SimLaunchFailed():
            if sim.last_heartbeat_at is not None:
                return sim  # it was judged before the first heartbeat had come; the sim did start
            return _finished(sim, SimState.FAILED, fact.occurred_at, error=fact.error)
        case SimWentSilent():
            if _heard_since(sim, fact.heartbeat_seen_at) or not may_move(sim.state, SimState.LOST):
                return sim
            return replace(sim, state=SimState.LOST, error=fact.error)
        case SimGivenUp():
            if _heard_since(sim, fact.heartbeat_seen_at):
                return sim
            return _finished(sim, SimState.FAILED, fact.occurred_at, error=fact.error)
        case RunCancelRequested():
            return _finished(sim, SimState.CANCELLED, fact.occurred_at, error=sim.error)
        case SimReported():
            return _reported(sim, fact)
        case LogAppended():
            return _appended(sim, fact)
        case SimProgressed():
            return _progressed(sim, fact)
        case SimLogArchived():
            return _archived(sim, fact)
        case KernelFinished() | SimOutputStored() | SimStepTimelineStored():
            return sim
        case _:
            assert_never(fact)


def _reported(sim: Sim, fact: SimReported) -> Sim:
    if sim.is_terminal or is_fenced(sim, fact.attempt):
        return sim
    if sim.state is SimState.PENDING and fact.state is not SimState.FAILED:
        return sim  # nobody has started a pending sim; the table lets it fail and nothing else
    at = fact.occurred_at
    heard = at if sim.last_heartbeat_at is None else max(at, sim.last_heartbeat_at)
    fresh = sim.last_heartbeat_at is None or at > sim.last_heartbeat_at
    sim = replace(
        sim,
        last_heartbeat_at=heard,
        attempt=_owner(sim, fact.attempt),
        engine=sim.engine or fact.engine,
    )
    if fact.state is SimState.RUNNING:
        if sim.state is SimState.LOST and not fresh:
            return sim  # an old heartbeat, stored again, is no sign of life
        if sim.state is SimState.RUNNING or may_move(sim.state, SimState.RUNNING):
            return replace(sim, state=SimState.RUNNING, error=None, started_at=sim.started_at or at)
        return sim
    if not may_move(sim.state, fact.state):
        return sim
    if fact.state is SimState.SUCCEEDED and sim.second_log:
        return _finished(sim, SimState.FAILED, at, error=SECOND_LOG_ERROR, exit_code=fact.exit_code)
    return _finished(sim, fact.state, at, error=fact.error, exit_code=fact.exit_code)


def _appended(sim: Sim, fact: LogAppended) -> Sim:
    if not accepts_chunk(sim, fact):
        another_log = fact.seq == 0 and fact.attempt is None and not sim.is_terminal
        return replace(sim, second_log=True) if another_log and not sim.second_log else sim
    if fact.seq == 0 and sim.first_chunk_digest is None:
        sim = replace(sim, first_chunk_digest=chunk_digest(fact.lines))
    tail = sim.tail.add(fact.seq, fact.lines)
    return sim if tail == sim.tail else replace(sim, tail=tail, attempt=_owner(sim, fact.attempt))


def _owner(sim: Sim, attempt: str | None) -> str | None:
    """The start that owns the sim after a fact of `attempt`: the first that spoke since the launch."""
    return sim.attempt or (attempt if sim.launch_attempt is not None else None)


def _archived(sim: Sim, fact: SimLogArchived) -> Sim:
    outcome = fact.outcome
    told = outcome is not None and outcome.state in TERMINAL_SIM_STATES
    if sim.archive_key is not None or not (sim.is_terminal or told):
        return sim
    sim = replace(
        sim,
        archive_key=fact.object_key,
        last_heartbeat_at=fact.last_heartbeat_at or sim.last_heartbeat_at,
        tail=LogTail(((max(fact.chunk_count - 1, 0), tuple(fact.log_tail)),)),
        first_chunk_digest=None,
        second_log=False,
    )
    if outcome is None or not told:
        return sim
    # Once its chunks and heartbeats are purged, a replay of what is left may judge otherwise than the whole log did.
    return replace(
        sim,
        state=outcome.state,
        error=outcome.error,
        exit_code=outcome.exit_code,
        attempt=outcome.attempt,
        engine=outcome.engine,
        started_at=outcome.started_at,
        finished_at=outcome.finished_at,
        last_heartbeat_at=fact.last_heartbeat_at,
    )


def outcome_of(sim: Sim) -> SimOutcome:
    """What the archive keeps of an ended sim. `_archived` reads it back."""
    return SimOutcome(
        state=sim.state,
        error=sim.error,
        exit_code=sim.exit_code,
        attempt=sim.attempt,
        engine=sim.engine,
        started_at=sim.started_at,
        finished_at=sim.finished_at,
    )


def _progressed(sim: Sim, fact: SimProgressed) -> Sim:
    if sim.parsed_to_end or fact.through_seq < sim.through_seq or fact.kernels_done < sim.kernels_done:
        return sim
    return replace(
        sim,
        through_seq=fact.through_seq,
        kernels_done=fact.kernels_done,
        current_kernel=fact.current_kernel,
        latest=fact.latest,
        log_clock_mhz=fact.log_clock_mhz,
        engine=_log_engine(fact.engine) or sim.engine,
        partial_kernel=fact.partial_kernel,
        parsed_to_end=fact.final,
    )


def _log_engine(line: str | None) -> str | None:
    """The engine that the log itself names; `cascade-estimate 0.1` is the analytical estimate."""
    if line is None:
        return None
    return "estimate" if line.startswith("cascade-estimate") else "accel-sim"


def _finished(
    sim: Sim, state: SimState, at: datetime, *, error: str | None, exit_code: int | None = None
) -> Sim:
    if not may_move(sim.state, state):
        return sim
    return replace(sim, state=state, error=error, finished_at=at, exit_code=exit_code)


def _heard_since(sim: Sim, seen_at: datetime | None) -> bool:
    if sim.last_heartbeat_at is None:
        return False
    return seen_at is None or sim.last_heartbeat_at > seen_at
