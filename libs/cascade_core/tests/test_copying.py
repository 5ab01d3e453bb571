"""Facts read for a copy, beside an app that goes on writing, archiving and purging."""

import pytest
from cascade_core import subjects
from cascade_core.jetstream import copying
from cascade_core.jetstream.copying import stored_facts
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.sims.facts import SimLogArchived
from cascade_core.testing.builders import RUN, SIM, at, chunk, kernel
from nats.aio.client import Client

OTHER = "sim-000000000001-2"


def archived(sim_id: str) -> SimLogArchived:
    return SimLogArchived(
        run_id=RUN,
        sim_id=sim_id,
        occurred_at=at(99),
        object_key="logs/x",
        chunk_count=3,
        line_count=3,
        size_bytes=3,
        log_tail=[],
    )


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PAGE", 4)


async def test_a_copy_ends_beside_an_app_that_never_rests(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    for index in range(10):
        await jetstream_log.append(kernel(index))
    read: list[int] = []
    async for page in stored_facts(client):
        for fact in page:
            read.append(fact.position)
            await jetstream_log.append(kernel(100 + len(read)))
    assert read == list(range(1, 21))


async def test_a_log_is_copied_whole_or_known_as_archived(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    for sim_id in (SIM, OTHER):
        for seq in range(3):
            await jetstream_log.append(chunk(seq, ["x"], sim_id=sim_id))
    found: list[str] = []
    async for page in stored_facts(client):
        found += [fact.subject for fact in page]
        if len(found) == 4:  # one log whole, the other begun
            await jetstream_log.append(kernel(0))
            await jetstream_log.append(archived(OTHER))
            await jetstream_log.purge(subjects.log_of(RUN, OTHER))
        elif found[-1] == subjects.sim_fact(RUN, OTHER, "log-archived"):
            # While the second pass is on: only the archiving of what comes now belongs to the copy.
            await jetstream_log.append(kernel(1))
            await jetstream_log.append(archived(SIM))
            await jetstream_log.purge(subjects.log_of(RUN, SIM))
    assert [subject for subject in found if subject == subjects.log_of(RUN, SIM)] == [
        subjects.log_of(RUN, SIM)
    ] * 3
    assert found[-3:] == [
        subjects.kernels_of(RUN, SIM),
        subjects.sim_fact(RUN, OTHER, "log-archived"),
        subjects.sim_fact(RUN, SIM, "log-archived"),
    ]


async def test_a_copy_leaves_out_a_claimed_chunk_that_is_purged_before_it_is_read(
    client: Client, jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cascade_core.jetstream.bodies.MOST_BYTES_AT_ONCE", 1)
    await jetstream_log.append(kernel(0))
    await jetstream_log.append(chunk(0, ["x" * 600_000], sim_id=OTHER))
    found: list[str] = []
    async for page in stored_facts(client):
        found += [fact.subject for fact in page]
        if len(found) == 1:
            await jetstream_log.append(archived(OTHER))
            await jetstream_log.purge(subjects.log_of(RUN, OTHER))
    assert found == [subjects.kernels_of(RUN, SIM), subjects.sim_fact(RUN, OTHER, "log-archived")]
