"""Prometheus metrics that every service shares. Names, labels and meaning once; the alerts in the runbook use them.

Metrics never decide anything. A service without HTTP shows them on CASCADE_METRICS_PORT; the api at `/api/metrics`.
"""

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from cascade_core.errors import Unavailable

FACTS_APPENDED = Counter(
    "cascade_facts_appended_total", "Facts that this process stored in the log.", ["type"]
)
APPENDS_REFUSED = Counter(
    "cascade_appends_refused_total",
    "Appends that the log did not take; their callers were told to try again.",
)
READER_POSITION = Gauge("cascade_reader_position", "Stream position that a reader has reached.", ["reader"])
READER_LAG = Gauge(
    "cascade_reader_lag_facts", "Facts that match a reader and that it has not been given yet.", ["reader"]
)
FACTS_READ = Counter("cascade_facts_read_total", "Facts that a reader was given.", ["reader"])
READER_RESTARTS = Counter(
    "cascade_reader_restarts_total",
    "Times that a reader had to ask the server for a new consumer.",
    ["reader"],
)
PROJECTION_DELAY = Histogram(
    "cascade_projection_delay_seconds",
    "Time from when the oldest fact of a batch happened, by its writer's clock, until the read models held the batch.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
SIMS = Gauge("cascade_sims", "Sims by state.", ["state"])
SSE_SUBSCRIBERS = Gauge("cascade_sse_subscribers", "Open event streams of this process.")
SSE_CUT_OFF = Counter(
    "cascade_sse_cut_off_total", "Event streams ended because their client fell too far behind."
)
HTTP_SECONDS = Histogram(
    "cascade_http_request_seconds",
    "Time to answer a request, by route template and status class. Event streams are left out.",
    ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)
LOG_LINES_PARSED = Counter("cascade_log_lines_parsed_total", "Log lines that the parser has read.")
KERNELS_PARSED = Counter("cascade_kernels_parsed_total", "Kernels that the parser has told the log of.")
LAUNCHES_IN_FLIGHT = Gauge("cascade_launches_in_flight", "Sims that the launcher is starting right now.")
LAUNCHES_FAILED = Counter("cascade_launches_failed_total", "Sims that could not be started.")
TRACES = Gauge("cascade_traces", "Traces by state, as ingest sees them.", ["state"])
SCANS_FAILED = Counter("cascade_scans_failed_total", "Bucket scans that a server's absence ended.")
SCENARIO_SECONDS = Histogram(
    "cascade_scenario_seconds",
    "CPU-bound time of one scenario in the request simulator.",
    buckets=(0.005, 0.025, 0.1, 0.5, 1, 5, 30),
)


def serve_metrics(port: int | None, host: str = "0.0.0.0") -> None:  # noqa: S104 - other pods scrape it
    """Show this process's metrics over HTTP; does nothing without a port. Raises Unavailable if it is taken."""
    if port is None:
        return
    try:
        start_http_server(port, host)
    except OSError as error:
        raise Unavailable(
            f"the metrics cannot be shown on {host}:{port} ({error.strerror}). "
            "Stop what uses it, or set CASCADE_METRICS_PORT."
        ) from error
