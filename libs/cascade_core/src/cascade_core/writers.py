"""Which service writes which fact, once: the NATS permissions and the event page both come from here.

spec: design, the table of packages. `liveness` heartbeats of `sim.reported` have a subject of their own.
"""

from typing import Literal

Service = Literal["ingest", "api", "launcher", "parser", "requestsim"]

WRITERS: dict[str, Service] = {
    "trace.discovered": "ingest",
    "trace.observed": "ingest",
    "trace.upload-completed": "ingest",
    "trace.ready": "ingest",
    "trace.failed": "ingest",
    "trace.removed": "ingest",
    "run.requested": "api",
    "run.cancel-requested": "api",
    "sim.launch-started": "launcher",
    "sim.launched": "launcher",
    "sim.launch-failed": "launcher",
    "sim.went-silent": "launcher",
    "sim.given-up": "launcher",
    "sim.reported": "api",
    "sim.output-stored": "api",
    "sim.step-timeline-stored": "api",
    "sim.log-archived": "api",
    "sim.progressed": "parser",
    "log.appended": "api",
    "kernel.finished": "parser",
    "scenario.requested": "api",
    "scenario.completed": "requestsim",
    "scenario.failed": "requestsim",
}
"""Fact type -> the one service that may append it. The seeder of the bundled samples uses the operator's login."""
