"""What one batch of facts changes: folded states and rows to write. Plain bookkeeping, no SQL, no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from cascade_core.facts import AnyFact
from cascade_core.ids import trace_token
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested, RunRequested
from cascade_core.runs.state import Run, run_of
from cascade_core.scenarios.facts import ScenarioFact
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import (
    SimFact,
    SimLogArchived,
    SimOutputStored,
    SimStepTimelineStored,
)
from cascade_core.sims.state import Sim
from cascade_core.traces import state as trace_state
from cascade_core.traces.facts import TraceFact
from cascade_core.traces.state import Trace

from cascade_api.read_models import codec
from cascade_api.wire.results import kernel_stat


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One finished kernel, ready to be written."""

    sim_id: str
    kernel_index: int
    kernel_name: str
    sim_time_ns: float | None
    head: bytes
    """KernelStat without its stats, JSON."""
    stats: bytes
    """The full stats map, zstd JSON."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One stored output file."""

    sim_id: str
    name: str
    size: int
    content_type: str
    created_at: datetime
    object_key: str


@dataclass(frozen=True, slots=True)
class StepTimelineRow:
    """One sim's step timing, zstd JSON."""

    simulated: bytes
    compare: bytes | None
    stored_at: datetime


@dataclass(slots=True)
class Batch:
    """The states that a batch touches, folded on, and the rows it adds.

    `sims` and `traces` hold what was known before; the fold replaces entries and notes them as changed.
    """

    sims: dict[str, Sim]
    sims_of_run: dict[str, list[str]]
    traces: dict[str, Trace]
    new_runs: dict[str, tuple[int, Run]] = field(default_factory=dict)
    changed_sims: set[str] = field(default_factory=set)
    changed_traces: set[str] = field(default_factory=set)
    kernels: dict[tuple[str, int], KernelRow] = field(default_factory=dict)
    chunks: dict[tuple[str, int], int] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    files: dict[tuple[str, str], FileRow] = field(default_factory=dict)
    step_timelines: dict[str, StepTimelineRow] = field(default_factory=dict)

    @property
    def is_usual(self) -> bool:
        """Whether it changes sims, kernels and chunks only, as nearly every batch does."""
        return not (
            self.new_runs or self.changed_traces or self.archived or self.files or self.step_timelines
        )

    def fold(self, record: Recorded[AnyFact]) -> None:
        """Take one fact in. Facts about unknown runs and sims change nothing."""
        fact = record.fact
        match fact:
            case RunRequested():
                self._new_run(record.position, fact)
            case RunCancelRequested():
                for sim_id in self.sims_of_run.get(fact.run_id, []):
                    self._moved(sim_id, sim_state.apply(self.sims[sim_id], fact))
            case SimFact():
                self._sim_fact(record.position, fact)
            case TraceFact():
                self._trace_fact(fact)
            case ScenarioFact():
                pass  # answers go to whoever waits for them, not into a view

    def _new_run(self, position: int, fact: RunRequested) -> None:
        if fact.run_id in self.new_runs or fact.run_id in self.sims_of_run:
            return
        self.new_runs[fact.run_id] = (position, run_of(fact))
        self.sims_of_run[fact.run_id] = []
        for sim in sim_state.sims_of(fact):
            self.sims[sim.sim_id] = sim
            self.sims_of_run[fact.run_id].append(sim.sim_id)
            self.changed_sims.add(sim.sim_id)

    def _sim_fact(self, position: int, fact: AnyFact) -> None:
        assert isinstance(fact, SimFact)
        sim = self.sims.get(fact.sim_id)
        if sim is None:
            return
        match fact:
            case KernelFinished():
                self._kernel(sim, fact)
                return
            case LogAppended():
                if sim_state.accepts_chunk(sim, fact):
                    self.chunks.setdefault((fact.sim_id, fact.seq), position)
            case SimLogArchived():
                if sim_state.apply(sim, fact).archive_key is not None:
                    self.archived.add(fact.sim_id)
            # Of several, the last in the log is the file: writers' clocks may differ, and the object of the one
            # before it is gone by then.
            case SimOutputStored():
                self.files[(fact.sim_id, fact.name)] = FileRow(
                    fact.sim_id, fact.name, fact.size, fact.content_type, fact.occurred_at, fact.object_key
                )
                return
            case SimStepTimelineStored():
                compare = codec.compress_json(fact.compare) if fact.compare is not None else None
                self.step_timelines[fact.sim_id] = StepTimelineRow(
                    codec.compress_json(fact.simulated), compare, fact.occurred_at
                )
                return
            case _:
                pass
        self._moved(fact.sim_id, sim_state.apply(sim, fact))

    def _kernel(self, sim: Sim, fact: KernelFinished) -> None:
        stat = kernel_stat(fact, sim.clock_mhz, with_stats=False)
        self.kernels.setdefault(
            (fact.sim_id, fact.index),
            KernelRow(
                fact.sim_id,
                fact.index,
                fact.kernel_name.replace("\x00", "\ufffd"),
                stat.sim_time_ns,
                stat.model_dump_json(exclude={"stats"}).encode(),
                codec.compress_stats(fact.stats),
            ),
        )

    def _trace_fact(self, fact: AnyFact) -> None:
        assert isinstance(fact, TraceFact)
        token = trace_token(fact.trace_id)
        before = self.traces.get(token)
        after = trace_state.apply(before, fact)
        if after is not None and after is not before:
            self.traces[token] = after
            self.changed_traces.add(token)

    def _moved(self, sim_id: str, after: Sim) -> None:
        if after is not self.sims[sim_id]:
            self.sims[sim_id] = after
            self.changed_sims.add(sim_id)


def sim_ids_in(records: Iterable[Recorded[AnyFact]]) -> set[str]:
    """The sims that a batch speaks of by id."""
    return {record.fact.sim_id for record in records if isinstance(record.fact, SimFact)}


def run_ids_in(records: Iterable[Recorded[AnyFact]]) -> set[str]:
    """The runs whose every sim a batch may change, or that it may create."""
    return {
        record.fact.run_id for record in records if isinstance(record.fact, RunRequested | RunCancelRequested)
    }


def trace_tokens_in(records: Iterable[Recorded[AnyFact]]) -> set[str]:
    """The traces that a batch speaks of."""
    return {trace_token(record.fact.trace_id) for record in records if isinstance(record.fact, TraceFact)}
