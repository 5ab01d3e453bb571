import asyncio

import pytest
from cascade_launcher import task_set
from cascade_launcher.task_set import TaskSet


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_the_first_failure_ends_every_task_and_is_raised() -> None:
    tasks = TaskSet()
    other = tasks.create(for_ever())

    async def fail() -> None:
        raise OSError("disk full")

    tasks.create(fail())
    with pytest.raises(OSError, match="disk full"):
        await tasks.wait()
    assert other.cancelled()


async def test_a_task_may_end_without_ending_the_others() -> None:
    tasks = TaskSet()
    other = tasks.create(for_ever())
    await tasks.create(asyncio.sleep(0))
    waiting = asyncio.create_task(tasks.wait())
    await asyncio.sleep(0)
    assert not other.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert other.cancelled()


async def test_a_task_that_lost_its_cancel_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_set, "ASK_AGAIN_S", 0.01)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost > 2:
                    raise

    tasks = TaskSet()
    tasks.create(deaf())
    waiting = asyncio.create_task(tasks.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(waiting, return_exceptions=True)
    assert lost == 3
