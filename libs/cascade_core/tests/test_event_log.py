"""The contract of the event log, held by the one in memory and by the one on a real server."""

import pytest
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.ports import EventLog
from cascade_core.testing.builders import chunk
from cascade_core.testing.event_log_contract import EventLogContract
from cascade_core.testing.memory_log import MemoryLog


class TestMemoryLog(EventLogContract):
    @pytest.fixture
    def log(self) -> EventLog:
        return MemoryLog()


class TestJetStreamLog(EventLogContract):
    @pytest.fixture
    def log(self, jetstream_log: JetStreamLog) -> EventLog:
        return jetstream_log


async def test_a_log_in_memory_can_lose_answers_and_forget_event_ids() -> None:
    log = MemoryLog()
    log.lose_acks = 1
    with pytest.raises(LogUnavailable):
        await log.append(chunk(0, ["a"]), event_id="x")
    assert (await log.append(chunk(0, ["a"]), event_id="x")).duplicate
    log.forget_event_ids()
    assert not (await log.append(chunk(0, ["a"]), event_id="x")).duplicate
    assert len(log.facts) == 2


@pytest.mark.parametrize(
    ("subject_filter", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("a.b.c", "a.b", False),
    ],
)
def test_filters_match_as_the_server_says(subject_filter: str, subject: str, expected: bool) -> None:
    assert subjects.matches(subject_filter, subject) is expected
