"""Tasks that end together."""

import asyncio

import pytest
from cascade_core.tasks import TaskSet, end, passed, undisturbed

PATIENCE_S = 60.0


class Deaf:
    """A task that loses its first cancels, as a wait for a result that has just come does."""

    def __init__(self, losses: int) -> None:
        self.losses = losses

    async def run(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.losses == 0:
                    raise
                self.losses -= 1


async def test_a_cancel_that_gets_lost_is_asked_for_again() -> None:
    task = asyncio.create_task(Deaf(2).run())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await end(task)
    assert task.cancelled()


async def test_ending_what_has_ended_is_nothing_and_raises_nothing() -> None:
    async def failing() -> None:
        raise ValueError("x")

    task = asyncio.create_task(failing())
    await asyncio.wait([task])
    await end(task)
    await end()


async def test_the_first_failure_ends_all_and_is_raised() -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    together = TaskSet()
    deaf = together.create(Deaf(1).run())
    together.create(failing())
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ValueError, match="first"):
            await together.wait()
    assert deaf.cancelled()


async def test_a_task_may_end_by_itself_and_others_may_join_later() -> None:
    together = TaskSet()
    ran: list[str] = []
    stop = asyncio.Event()

    async def last() -> None:
        ran.append("last")
        stop.set()
        await asyncio.Event().wait()

    async def first() -> None:
        ran.append("first")
        together.create(last())

    together.create(first())
    async with asyncio.timeout(PATIENCE_S):
        await together.wait(stop)
    assert ran == ["first", "last"]


async def test_a_cancelled_wait_leaves_no_task() -> None:
    together = TaskSet()
    task = together.create(asyncio.Event().wait())  # type: ignore[arg-type]
    waiting = asyncio.create_task(together.wait())
    await asyncio.sleep(0)
    await end(waiting)
    assert waiting.cancelled()
    assert task.cancelled()


async def test_a_caller_who_is_cancelled_meanwhile_still_leaves_no_task() -> None:
    deaf = asyncio.create_task(Deaf(2).run())
    caller = asyncio.create_task(end(deaf))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await end(caller)
    assert deaf.cancelled()
    assert caller.cancelled()


async def test_work_that_must_not_be_disturbed_goes_on_through_any_number_of_cancels() -> None:
    go_on = asyncio.Event()

    async def work() -> str:
        await go_on.wait()
        return "done"

    assert await undisturbed(asyncio.sleep(0, "at once")) == "at once"
    done: list[str] = []

    async def caller() -> None:
        try:
            done.append(await undisturbed(work()))
        finally:
            done.append("after")

    calling = asyncio.create_task(caller())
    for _ in range(3):
        await asyncio.sleep(0)
        calling.cancel()
    await asyncio.sleep(0)
    assert not done
    go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([calling])
    assert calling.cancelled()
    assert done == ["after"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_undisturbed_work_raises_is_raised_unless_a_cancel_is(cancelled: bool) -> None:
    go_on = asyncio.Event()

    async def failing() -> None:
        await go_on.wait()
        raise ValueError("x")

    calling = asyncio.create_task(undisturbed(failing()))
    await asyncio.sleep(0)
    if cancelled:
        calling.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
        await calling


async def test_an_event_is_waited_for_no_longer_than_asked() -> None:
    event = asyncio.Event()
    assert not await passed(event, within_s=0.01)
    event.set()
    assert await passed(event, within_s=PATIENCE_S)
