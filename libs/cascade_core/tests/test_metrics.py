"""What the log's adapter shows of writers and readers, and where."""

import asyncio
import urllib.request

import pytest
from cascade_core import subjects
from cascade_core.errors import LogUnavailable, Unavailable
from cascade_core.jetstream.connection import close
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.metrics import serve_metrics
from cascade_core.testing.builders import SIM, chunk, kernel
from cascade_core.testing.event_log_contract import DEADLINE_S, taken
from nats.aio.client import Client
from prometheus_client import REGISTRY


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_a_stored_fact_is_counted_once_however_often_it_is_sent(jetstream_log: JetStreamLog) -> None:
    chunks = value("cascade_facts_appended_total", type="log.appended")
    kernels = value("cascade_facts_appended_total", type="kernel.finished")
    for _ in range(3):
        await jetstream_log.append(chunk(0, ["x"]), event_id="log:x:0")
        await jetstream_log.append_all([(kernel(i), f"kernel:{SIM}:{i}") for i in range(5)])
    assert value("cascade_facts_appended_total", type="log.appended") - chunks == 1
    assert value("cascade_facts_appended_total", type="kernel.finished") - kernels == 5


async def test_an_append_that_the_log_did_not_take_is_counted(client: Client) -> None:
    before = value("cascade_appends_refused_total")
    log = JetStreamLog(client)
    await close(client)
    with pytest.raises(LogUnavailable):
        await log.append(chunk(0, ["x"]))
    assert value("cascade_appends_refused_total") - before == 1


async def test_a_reader_shows_its_position_and_what_it_was_not_given_yet(jetstream_log: JetStreamLog) -> None:
    await jetstream_log.append_all([(kernel(i), None) for i in range(40)])
    async with jetstream_log.follow([subjects.ALL_KERNELS], batch=10, reader="slow") as batches:
        first = await anext(batches)
        async with asyncio.timeout(DEADLINE_S):  # the next request is answered beside this reader
            while value("cascade_reader_lag_facts", reader="slow") != 40 - len(first):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await taken(batches, 40 - len(first))
        assert value("cascade_reader_lag_facts", reader="slow") == 0
        assert value("cascade_reader_position", reader="slow") == 40
        assert value("cascade_facts_read_total", reader="slow") == 40


def test_metrics_are_served_where_a_port_was_given(free_port: int) -> None:
    serve_metrics(None)
    serve_metrics(free_port, "127.0.0.1")
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=DEADLINE_S) as reply:
        assert b"cascade_reader_lag_facts" in reply.read()
    with pytest.raises(Unavailable, match="CASCADE_METRICS_PORT"):
        serve_metrics(free_port, "127.0.0.1")


@pytest.fixture
def free_port() -> int:
    from cascade_cli.embedded.process import free_ports

    return free_ports(1)[0]
