"""Tracer, structured logs and trace context. Nothing else configures logging.

A trace goes from a request through the facts that it caused to everybody who reads them. Without an exporter no span
is made; a caller's own trace context still travels with the facts. Work that belongs to no trace costs nothing.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer

from cascade_core.settings import TelemetrySettings

_PROPAGATOR = TraceContextTextMapPropagator()
EXPORT_TIMEOUT_S = 3
"""A collector that is away must not hold up the end of a process."""
LONGEST_TRACEPARENT = 128
"""Longer than any that the standard knows."""
tracer = trace.get_tracer("cascade")

Attributes = Mapping[str, str | int]


class _Stderr(logging.Handler):
    """Writes to what is the process's stderr at that moment: a caller may exchange it, and close what it was."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler does: a log line must not end what it tells of
            line = f"a log line of {record.name} cannot be shown: {record.msg!r}"
        _write_line(line)


class _StderrLogger:
    """What structlog writes with: the process's stderr of that moment. A reader who has gone ends nobody's work."""

    def msg(self, message: str) -> None:
        """Write one line."""
        _write_line(message)

    debug = info = warning = error = critical = exception = msg


def _write_line(line: str) -> None:
    with suppress(OSError, ValueError):  # ValueError is a closed file's
        print(line + "\n", end="", file=sys.stderr, flush=True)


class _Exporting:
    """Whether spans leave this process."""

    on = False


def configure(settings: TelemetrySettings, *, service: str) -> None:
    """Set up logs (and span export, where an endpoint is given) for this process. Call once, in `main`."""
    level = logging.getLevelNamesMapping()[settings.log_level]
    renderer: Any
    tracebacks: Any
    # Neither shows the variables of a traceback's frames: a token or a password may be among them.
    if settings.log_format == "json":
        renderer = structlog.processors.JSONRenderer()
        tracebacks = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        tracebacks = structlog.processors.StackInfoRenderer()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        tracebacks,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_names: _StderrLogger(),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
    # What libraries log, in the same shape.
    libraries = _Stderr()
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared[:-1], structlog.stdlib.add_logger_name, tracebacks],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[libraries])
    if settings.otlp_endpoint:
        _export_spans(settings.otlp_endpoint, service)


def _export_spans(endpoint: str, service: str) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"cascade-{service}"}))
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces", timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _Exporting.on = True


def exports_spans() -> bool:
    """Whether an exporter is configured."""
    return _Exporting.on


def current_traceparent() -> str | None:
    """The W3C trace context of the work under way, to be stored with a fact; None outside a trace."""
    if trace.get_current_span() is trace.INVALID_SPAN:
        return None
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def continued(traceparent: str | None) -> Iterator[None]:
    """Work inside the trace that a stored fact came from."""
    if traceparent is None:
        yield
        return
    token = otel_context.attach(_context_of(traceparent))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def request_span(name: str, traceparent: str | None) -> Iterator[Span | None]:
    """A request to this process: a span in its caller's trace, or in a new one. None where no span is made."""
    if not _Exporting.on:
        if traceparent is None:
            yield None
            return
        with continued(traceparent):
            yield None
        return
    context = _context_of(traceparent) if traceparent is not None else None
    with tracer.start_as_current_span(name, context=context, kind=SpanKind.SERVER) as span:
        yield span


@contextmanager
def fact_span(name: str, traceparent: str | None, attributes: Attributes | None = None) -> Iterator[None]:
    """Work on a stored fact, in the trace that the fact came from; no span for a fact without one."""
    if traceparent is None:
        yield
    elif not _Exporting.on:
        with continued(traceparent):
            yield
    else:
        context = _context_of(traceparent)
        with tracer.start_as_current_span(
            name, context=context, kind=SpanKind.CONSUMER, attributes=attributes
        ):
            yield


def record_span(
    name: str, parent: str, *, started_ns: int, ended_ns: int, attributes: Attributes | None = None
) -> str | None:
    """Tell of work that is done, for one of several traces that it was done for; returns the span's own context.

    parent: a W3C trace context. started_ns, ended_ns: since 1970. [ns]
    """
    if not _Exporting.on:
        return None
    context = _context_of(parent)
    span = tracer.start_span(name, context=context, start_time=started_ns, attributes=attributes)
    span.end(ended_ns)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent")


def _context_of(traceparent: str) -> otel_context.Context:
    if len(traceparent) > LONGEST_TRACEPARENT:
        return otel_context.Context()
    return _PROPAGATOR.extract({"traceparent": traceparent}, otel_context.Context())
