"""Progress is told the less often the more sims there are; kernels and ends never wait, and nothing is lost by it."""

from cascade_core.sims import state as sim_state
from cascade_core.testing.builders import RUN, SIM, at, run_requested
from cascade_core.testing.memory_log import MemoryLog
from cascade_parser.reading import LogReading
from cascade_parser.telling import MOST_APART_S, PROGRESS_A_SECOND, LiveSim, News, Teller
from cascade_parser.testing import kernels_of, progress_of

CROWD = 2 * PROGRESS_A_SECOND


class Watch:
    """A teller, a clock that the test moves, and one sim's reading."""

    def __init__(self, sims: int) -> None:
        self.now = 100.0
        self.log = MemoryLog()
        self.live = LiveSim(sim_state.sims_of(run_requested())[0], reading=LogReading(RUN, SIM))
        self.sims = {SIM: self.live} | {f"sim-{number}": self.live for number in range(sims - 1)}
        self.teller = Teller(self.log, self.sims, clock=lambda: self.now)
        self._seq = 0

    async def read(self, *lines: str, end: bool = False) -> None:
        """Read a chunk, and the end of the log behind it, and tell."""
        assert self.live.reading is not None
        self.live.reading.order.arrived(self._seq, self._seq)
        self._seq += 1
        found = self.live.reading.read(list(lines), at(1)) + (self.live.reading.finish(at(2)) if end else [])
        kernels = [(kernel, f"kernel:{kernel.index}", None) for kernel in found]
        await self.teller.tell([self.live], News(kernels=list(kernels)))

    async def told(self) -> list[int]:
        """The `through_seq` of all progress that was told."""
        return [progress.through_seq for progress in await progress_of(self.log)]


async def test_progress_within_a_second_is_held_back_and_then_due() -> None:
    watch = Watch(CROWD)
    await watch.read("one")
    await watch.read("two")
    watch.now += MOST_APART_S / 2
    await watch.read("three")
    assert await watch.told() == [0]
    assert watch.teller.take_due() == []
    watch.now += MOST_APART_S / 2
    assert watch.teller.take_due() == [SIM]
    await watch.teller.tell([watch.live], News())
    assert await watch.told() == [0, 2]
    watch.now += 2 * MOST_APART_S
    assert watch.teller.take_due() == []


async def test_few_sims_tell_of_every_chunk() -> None:
    watch = Watch(10)
    for _ in range(5):
        await watch.read("a line")
        watch.now += 0.02
    assert await watch.told() == [0, 1, 2, 3, 4]


async def test_a_slow_sim_never_waits() -> None:
    watch = Watch(CROWD)
    for _ in range(3):
        await watch.read("a line")
        watch.now += MOST_APART_S
    assert await watch.told() == [0, 1, 2]


async def test_kernels_and_the_end_take_progress_along(three_kernels: list[str]) -> None:
    watch = Watch(CROWD)
    await watch.read(*three_kernels[:5])
    await watch.read(*three_kernels[5:160])
    assert len(await kernels_of(watch.log)) == 2
    assert await watch.told() == [0, 1]
    await watch.read("more")
    await watch.read("still more", end=True)
    assert await watch.told() == [0, 1, 3]
    assert SIM not in watch.sims
    assert (await progress_of(watch.log))[-1].final
    watch.now += 2 * MOST_APART_S
    assert watch.teller.take_due() == []
