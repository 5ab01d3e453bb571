"""Spans of what the projector did for each trace that its batch held a fact of."""

from collections.abc import Sequence

from cascade_core import telemetry
from cascade_core.facts import AnyFact
from cascade_core.record import Recorded

MOST_TRACES = 64
"""Of one batch. Beyond it spans would cost more than the projection."""


def record(
    records: Sequence[Recorded[AnyFact]], *, started_ns: int, committing_ns: int, ended_ns: int
) -> None:
    """Tell every trace in `records` of the batch and of the commit in it. Times since 1970. [ns]"""
    first_of_trace: dict[str, Recorded[AnyFact]] = {}
    for one in records:
        if one.traceparent is not None and len(first_of_trace) < MOST_TRACES:
            first_of_trace.setdefault(one.traceparent, one)
    for traceparent, one in first_of_trace.items():
        own = telemetry.record_span(
            "cascade.projector.project",
            traceparent,
            started_ns=started_ns,
            ended_ns=ended_ns,
            attributes={"cascade.position": one.position, "cascade.batch": len(records)},
        )
        if own is not None:
            telemetry.record_span(
                "cascade.postgres.commit",
                own,
                started_ns=committing_ns,
                ended_ns=ended_ns,
                attributes={"db.system": "postgresql"},
            )
