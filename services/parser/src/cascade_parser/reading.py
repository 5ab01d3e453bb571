"""One sim's log being read: chunks in, kernel and progress facts out. Pure; the reactor fetches and appends."""

from collections.abc import Callable
from datetime import datetime

from cascade_accelsim.log import KernelBlock, LogParser
from cascade_core.kernels.facts import KernelFinished
from cascade_core.sims.facts import SimMetrics, SimProgressed

from cascade_parser.ordering import ChunkOrder

HERTZ_PER_MHZ = 1e6
ESTIMATE_ENGINE = "cascade-estimate"


class LogReading:
    """The parser of one sim and what it has told the log so far."""

    def __init__(self, run_id: str, sim_id: str, *, kernels_told: int = 0) -> None:
        """kernels_told: kernels that are in the event log already; reading again does not tell them again."""
        self.order = ChunkOrder()
        self._run_id = run_id
        self._sim_id = sim_id
        self._parser = LogParser()
        self._kernels_told = kernels_told
        self.finished = False
        self.parked: str | None = None
        """Why nothing more is read: a line that the parser or a fact could not take. No log has done that yet."""

    def read(self, lines: list[str], now: datetime) -> list[KernelFinished]:
        """The kernels that these lines finished and that were not told before."""
        return self._told(lambda: self._parser.feed(lines), now)

    def finish(self, now: datetime) -> list[KernelFinished]:
        """The sim has ended: a block still open is closed."""
        self.finished = True
        return self._told(self._parser.finish, now)

    def progress(self, now: datetime) -> SimProgressed:
        """The whole progress as it stands."""
        progress = self._parser.progress
        clock_hz = progress.core_clock_hz
        return SimProgressed(
            run_id=self._run_id,
            sim_id=self._sim_id,
            occurred_at=now,
            through_seq=self.order.next_seq - 1,
            kernels_done=progress.kernels_done,
            current_kernel=progress.current_kernel,
            latest=SimMetrics(
                gpu_tot_sim_cycle=progress.gpu_tot_sim_cycle,
                gpu_tot_sim_insn=progress.gpu_tot_sim_insn,
                gpu_tot_ipc=progress.gpu_tot_ipc,
                # The estimate's log states one second of simulation for form's sake; a rate of it would mean nothing.
                sim_rate_ips=None
                if (progress.engine or "").startswith(ESTIMATE_ENGINE)
                else progress.sim_rate_ips,
            ),
            log_clock_mhz=clock_hz / HERTZ_PER_MHZ if clock_hz else None,
            engine=progress.engine,
            partial_kernel=progress.partial_kernel,
            final=self.finished,
        )

    def _told(self, blocks: Callable[[], list[KernelBlock]], now: datetime) -> list[KernelFinished]:
        if self.parked is not None:
            return []
        try:
            return self._new(blocks(), now)
        except ValueError as error:  # pydantic's among them
            # One sim's log must not keep every other sim's waiting for ever.
            self.parked = f"{type(error).__name__}: {error}"
            return []

    def _new(self, blocks: list[KernelBlock], now: datetime) -> list[KernelFinished]:
        fresh = [block for block in blocks if block.index >= self._kernels_told]
        if fresh:
            self._kernels_told = fresh[-1].index + 1
        return [_fact(self._run_id, self._sim_id, block, now) for block in fresh]


def _fact(run_id: str, sim_id: str, block: KernelBlock, now: datetime) -> KernelFinished:
    name, uid = block.kernel_name, block.kernel_launch_uid
    if block.since_last_completion:
        # The block's own lines name the kernels that started; the line before it names the one that finished.
        name = block.finished_name or name
        uid = block.finished_uid if block.finished_uid is not None else uid
    return KernelFinished(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=now,
        index=block.index,
        kernel_name=name,
        kernel_launch_uid=uid,
        gpu_sim_cycle=block.gpu_sim_cycle,
        gpu_sim_insn=block.gpu_sim_insn,
        gpu_ipc=block.gpu_ipc,
        stats=block.stats,
        since_last_completion=block.since_last_completion,
    )
