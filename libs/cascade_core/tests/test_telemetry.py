"""Trace context that travels with facts, and logs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from cascade_core import telemetry
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.settings import TelemetrySettings
from cascade_core.testing.builders import chunk
from opentelemetry.sdk.trace import TracerProvider

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_outside_a_trace_there_is_no_context() -> None:
    assert telemetry.current_traceparent() is None
    with telemetry.continued(None):
        assert telemetry.current_traceparent() is None


def test_work_goes_on_in_the_trace_of_its_cause() -> None:
    with telemetry.continued(PARENT):
        assert telemetry.current_traceparent() == PARENT
    assert telemetry.current_traceparent() is None


def test_a_context_that_is_none_is_passed_over() -> None:
    with telemetry.continued("rubbish"):
        assert telemetry.current_traceparent() is None


async def test_a_fact_keeps_the_trace_that_caused_it(jetstream_log: JetStreamLog) -> None:
    tracer = TracerProvider().get_tracer("test")
    with telemetry.continued(PARENT), tracer.start_as_current_span("request"):
        await jetstream_log.append(chunk(0, ["a"]))
    await jetstream_log.append(chunk(1, ["b"]))
    first, second = await jetstream_log.read(["cascade.v1.>"])
    assert first.traceparent is not None
    assert first.traceparent.split("-")[1] == PARENT.split("-")[1]
    assert second.traceparent is None


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What `configure` sets for a whole process, given back afterwards."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


@pytest.mark.usefixtures("own_logging")
def test_a_stderr_that_was_closed_meanwhile_ends_nobodys_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # the test runner's own stand in the way
    lent = io.StringIO()
    with monkeypatch.context() as lending:
        lending.setattr("sys.stderr", lent)
        telemetry.configure(TelemetrySettings(log_format="json"), service="test")
        structlog.get_logger("test").info("lent")
    lent.close()
    with monkeypatch.context() as closed:
        closed.setattr("sys.stderr", lent)
        structlog.get_logger("test").info("nobody hears this")
        logging.getLogger("somebody.else").warning("nor this")
    logging.getLogger("somebody.else").warning("cannot be %d", "formatted")
    structlog.get_logger("test").info("given back")
    logging.getLogger("somebody.else").warning("heard too")
    told = capsys.readouterr().err
    assert "given back" in told
    assert "heard too" in told
    assert "cannot be %d" in told
    assert "nobody" not in told


@pytest.mark.usefixtures("own_logging")
def test_json_logs_are_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure(TelemetrySettings(log_format="json", log_level="INFO"), service="test")
    structlog.get_logger("x").info("something", number=1)
    structlog.get_logger("x").debug("too little")
    lines = [line for line in capsys.readouterr().err.split("\n") if line]
    assert len(lines) == 1
    record = json.loads(lines[0])
    assert (record["event"], record["number"], record["service"], record["level"]) == (
        "something",
        1,
        "test",
        "info",
    )
