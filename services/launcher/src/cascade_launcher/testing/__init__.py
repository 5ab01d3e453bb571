"""What the launcher's tests share: facts as the gateway writes them, waiting, and a simulator that can
misbehave."""

import asyncio
import os
import sys
import textwrap
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.ports import EventLog
from cascade_core.runs.facts import PlannedSim, RunCancelRequested, RunEntry, RunRequested
from cascade_core.sims.facts import SimReported
from cascade_core.sims.state import Sim, apply, sims_of
from cascade_core.sims.transitions import SimState

from cascade_launcher.fleet import FILTERS

TRACE_ID = "20261107-120000__facebook_opt-125m"
PREFIX = "accelsim-traces"
DEADLINE_S = 60.0


def some_attempt() -> str:
    """Names a launch of one test run: processes are found by it, and another run on this machine has its own."""
    return uuid.uuid4().hex[:12]


# What a test's sims run. The first argument says how it behaves; it leaves one line a start in `starts/<sim
# id>`.
SIMULATOR = textwrap.dedent("""
    import json, os, pathlib, signal, subprocess, sys, time

    here = pathlib.Path(__file__).parent
    starts = here / "starts"
    starts.mkdir(exist_ok=True)
    with open(starts / os.environ["CASCADE_SIM_ID"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "env": dict(os.environ)}) + "\\n")
    print("hello from the simulator", flush=True)
    how = sys.argv[1]
    if how == "exit":
        print("last words", file=sys.stderr, flush=True)
        sys.exit(int(sys.argv[2]))
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import signal, time; "
                          "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"], start_new_session=True)
    if how == "background":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        sys.exit(0)
    (starts / (os.environ["CASCADE_SIM_ID"] + ".up")).touch()
    told = here / ("tell-" + os.environ["CASCADE_SIM_ID"])
    while not (here / "may-exit").exists():
        if told.exists():
            print("last words", flush=True)
            sys.exit(int(told.read_text()))
        time.sleep(0.02)
""")


class Simulator:
    """The misbehaving simulator and what it left behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._script = directory / "simulator.py"
        self._script.write_text(SIMULATOR)

    def command(self, *arguments: str) -> str:
        """A CASCADE_SIM_CMD that runs it."""
        return " ".join([sys.executable, str(self._script), *arguments])

    def starts(self, sim_id: str) -> list[str]:
        """One line for each time the sim was started."""
        path = self._directory / "starts" / sim_id
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def is_up(self, sim_id: str) -> bool:
        """Whether it has come past its preparations."""
        return (self._directory / "starts" / f"{sim_id}.up").exists()

    def tell(self, sim_id: str, code: int) -> None:
        """One waiting simulator prints `last words` and exits with `code`."""
        waiting = self._directory / "told.tmp"
        waiting.write_text(str(code))
        waiting.replace(self._directory / f"tell-{sim_id}")

    def let_exit(self) -> None:
        """Every waiting simulator exits with 0."""
        (self._directory / "may-exit").touch()


class SteppingClock:
    """Each look at it moves it on by a step that the test chooses; the machine's speed is nothing to it."""

    def __init__(self) -> None:
        self.began_at = self.at = datetime.now(UTC)
        self.step = timedelta(0)
        self.stops_at: datetime | None = None
        """It goes no further, so that what is so by then stays so, however late the test comes to see it."""
        self.looks = 0

    def now(self) -> datetime:
        """UTC, aware."""
        self.looks += 1
        self.at += self.step
        if self.stops_at is not None:
            self.at = min(self.at, self.stops_at)
        return self.at

    def passed(self) -> float:
        """Since it was made. [s]"""
        return (self.at - self.began_at).total_seconds()


def run_requested(
    number: int = 1, sims: int = 1, *, trace_id: str = TRACE_ID, sample: bool = False
) -> RunRequested:
    """A run of so many sims of one config."""
    return RunRequested(
        occurred_at=datetime.now(UTC),
        run_id=f"run-{number:012x}",
        trace_id=trace_id,
        entries=[RunEntry(gpu_config="SM90_H100", count=max(sims, 1))],
        sims=[
            PlannedSim(sim_id=f"sim-{number:06x}{replica:06x}", gpu_config="SM90_H100", replica=replica)
            for replica in range(sims)
        ],
        kernels_total=1,
        sample=sample,
    )


def cancel(run: RunRequested) -> RunCancelRequested:
    """Somebody cancels the run."""
    return RunCancelRequested(occurred_at=datetime.now(UTC), run_id=run.run_id)


def heartbeat(
    sim: Sim | PlannedSim, run_id: str, state: SimState = SimState.RUNNING, *, at: datetime | None = None
) -> SimReported:
    """The sim says how it is, now unless it is told when."""
    assert state in (SimState.RUNNING, SimState.SUCCEEDED, SimState.FAILED)
    return SimReported.model_validate(
        {"occurred_at": at or datetime.now(UTC), "run_id": run_id, "sim_id": sim.sim_id, "state": state}
    )


async def facts_of(log: EventLog) -> list[AnyFact]:
    """Every fact that matters to the launcher, in order."""
    return [record.fact for record in await log.read(FILTERS)]


async def sims_in(log: EventLog) -> dict[str, Sim]:
    """Every sim as the log has it now."""
    sims: dict[str, Sim] = {}
    for fact in await facts_of(log):
        match fact:
            case RunRequested():
                # A repeat changes nothing.
                sims |= {sim.sim_id: sim for sim in sims_of(fact) if sim.sim_id not in sims}
            case RunCancelRequested():
                sims |= {sim.sim_id: apply(sim, fact) for sim in sims.values() if sim.run_id == fact.run_id}
            case _:
                sim_id = getattr(fact, "sim_id", "")
                if sim_id in sims:
                    sims[sim_id] = apply(sims[sim_id], fact)  # type: ignore[arg-type]
    return sims


async def until(
    log: EventLog, wanted: Callable[[Sequence[Sim]], bool], *, deadline_s: float = DEADLINE_S
) -> list[Sim]:
    """The sims once they are as wanted; fails with what they are at the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    sims: list[Sim] = []
    while True:
        with suppress(LogUnavailable):  # a server that was restarted takes a moment
            sims = list((await sims_in(log)).values())
            if wanted(sims):
                return sims
        assert loop.time() < end, f"not as wanted after {deadline_s} s: {sims}"
        await asyncio.sleep(0.05)


async def eventually_appended(
    log: EventLog, fact: AnyFact, *, liveness: bool = False, deadline_s: float = DEADLINE_S
) -> None:
    """Append, as soon as a log that was away takes it; once, also where the answer to an earlier try was lost."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    event_id = uuid.uuid4().hex
    while True:
        try:
            await log.append(fact, event_id=event_id, liveness=liveness)
        except LogUnavailable:
            assert loop.time() < end, f"the log took nothing for {deadline_s} s"
            await asyncio.sleep(0.05)
        else:
            return


async def eventually(wanted: Callable[[], bool], *, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not wanted():
        assert loop.time() < end, f"never came true in {deadline_s} s"
        await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes_with(marker: str) -> list[int]:
    """Running processes that hold `marker` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker.encode() in environ.split(b"\0") and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return found
