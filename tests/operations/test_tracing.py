"""One trace id, from a simulator's request through the log to the parser, Postgres and the event stream."""

import asyncio
import json
import secrets

import pytest
from cascade_cli.bench.stage import Stage, replay_lines, staged

from .otlp import ReceivedSpan, Receiver, receiving

DEADLINE_S = 60.0
POSTED = "POST /api/sims/{sim_id}/logs"
WANTED = {
    ("cascade-api", POSTED),
    ("cascade-parser", "cascade.parser.read"),
    ("cascade-api", "cascade.projector.project"),
    ("cascade-api", "cascade.postgres.commit"),
    ("cascade-api", "cascade.sse.frame"),
}

OF_PARSED = {"cascade.projector.project", "cascade.sse.frame"}
"""What the parser's own facts come to."""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_simulators_request_and_its_events_are_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("CASCADE_OTLP_ENDPOINT", receiver.endpoint)
        async with staged() as stage:
            run_id, sims = await stage.run_with(1)
            async with asyncio.timeout(DEADLINE_S):  # written to the log beside the gateway
                while (await stage.client.get(f"/api/runs/{run_id}")).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            trace_id, caller = secrets.token_hex(16), secrets.token_hex(8)
            seen = await events_after_a_post(stage, run_id, sims[0], f"00-{trace_id}-{caller}-01")
            assert {"log", "kernel", "sim"} <= seen
            spans = await spans_of(receiver, trace_id)
    by_id = {span.span_id: span for span in spans}
    posted = next(span for span in spans if span.name == POSTED)
    assert posted.parent_id == caller
    assert posted.attributes["sim_id"] == sims[0]
    for span in spans:
        if span.name == "cascade.postgres.commit":
            assert by_id[span.parent_id].name == "cascade.projector.project"
        if span.name == "cascade.parser.read":
            assert by_id[span.parent_id].name == POSTED
    # What the parser found in the chunk was stored within its span, and so reached Postgres and the stream.
    parsed = {span.span_id for span in spans if span.name == "cascade.parser.read"}
    assert {span.name for span in spans if span.parent_id in parsed} >= OF_PARSED


async def events_after_a_post(stage: Stage, run_id: str, sim_id: str, traceparent: str) -> set[str]:
    """Send a log with a few kernels; the types of the events that came of it."""
    lines = replay_lines()[:8000]
    seen: set[str] = set()
    async with (
        asyncio.timeout(DEADLINE_S),
        stage.client.stream("GET", f"/api/runs/{run_id}/events") as reply,
    ):
        async for line in reply.aiter_lines():
            if not line.startswith("data: "):
                continue
            kind = json.loads(line[len("data: ") :])["type"]
            if kind == "snapshot":
                answer = await stage.client.post(
                    f"/api/sims/{sim_id}/logs",
                    json={"seq": 0, "lines": lines},
                    headers={"traceparent": traceparent},
                )
                assert answer.status_code == 204
            seen.add(kind)
            if {"log", "kernel", "sim"} <= seen:
                return seen
    return seen


async def spans_of(receiver: Receiver, trace_id: str) -> list[ReceivedSpan]:
    """The trace, once it is whole: every kind of span is there, those of the parser's facts as well, and every parent.

    A span is exported once it has ended, so the ones within it come before it, in a batch of their own or not.
    """
    async with asyncio.timeout(DEADLINE_S):
        while True:
            spans = receiver.of_trace(trace_id)
            parsed = {span.span_id for span in spans if span.name == "cascade.parser.read"}
            delivered = {span.name for span in spans if span.parent_id in parsed}
            without_parent = {span.parent_id for span in spans} - {span.span_id for span in spans}
            if (
                {(span.service, span.name) for span in spans} >= WANTED
                and delivered >= OF_PARSED
                and len(without_parent) == 1  # the caller's, who exports nothing
            ):
                return spans
            await asyncio.sleep(0.1)
