"""Who writes and reads which facts: from the writers' table, the permissions and the services' own sources."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from cascade_core.jetstream.permissions import SERVICES
from cascade_core.writers import WRITERS

from scripts.docs_reference.blocks import table

ROOT = Path(__file__).parents[2]
AGGREGATES = ("trace", "run", "sim", "beat", "log", "kernel", "scenario")
# What a name of `cascade_core.subjects` covers.
COVERS = {
    "ALL": AGGREGATES,
    "ALL_TRACES": ("trace",),
    "ALL_RUNS": ("run",),
    "ALL_SIMS": ("sim",),
    "ALL_BEATS": ("beat",),
    "ALL_LOGS": ("log",),
    "ALL_KERNELS": ("kernel",),
    "ALL_SCENARIOS": ("scenario",),
    "ALL_SCENARIO_REQUESTS": ("scenario",),
    "trace_filter": ("trace",),
    "run_filters": ("run", "sim", "beat", "log", "kernel"),
    "sim_filters": ("sim", "beat", "log", "kernel"),
    "sim_fact": ("sim",),
    "beats_of": ("beat",),
    "log_of": ("log",),
    "kernels_of": ("kernel",),
    "scenario_filter": ("scenario",),
    "scenario_fact": ("scenario",),
}
DOES = {
    "ingest": "Watches the bucket, decides when an upload is complete, post-processes it.",
    "api": "HTTP, live events, read models, dashboard; the only service with a public port and with Postgres.",
    "launcher": "Turns a run into sims on a backend, stops them, notices silence.",
    "parser": "Accel-Sim's text into kernels and progress.",
    "requestsim": "Answers scenarios from a finished sim's step timing.",
}


def writes(service: str) -> list[str]:
    """The facts of one service."""
    return [fact for fact, writer in WRITERS.items() if writer == service]


def reads(service: str) -> list[str]:
    """The aggregates that one service's source names in `subjects`."""
    found: set[str] = set()
    for path in (ROOT / "services" / service / "src").rglob("*.py"):
        if "testing" not in path.parts and path.name != "testing.py":
            for name in _subject_names(ast.parse(path.read_text())):
                found.update(COVERS.get(name, ()))
    return [name for name in AGGREGATES if name in found]


def _subject_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "subjects"
        ):
            yield node.attr


def services(_: Sequence[str]) -> str:
    """The services with what they write and read."""
    rows = [
        [
            f"`services/{service}`",
            DOES[service],
            ", ".join(f"[`{fact}`](events.md#{fact.replace('.', '')})" for fact in writes(service)),
            ", ".join(f"`{name}`" for name in reads(service)),
        ]
        for service in SERVICES
    ]
    return table(["service", "does", "writes", "reads"], rows)


def services_diagram(_: Sequence[str]) -> str:
    """Services around the log. An arrow to the log is labelled with the aggregates that a service writes."""
    lines = ["```mermaid", "flowchart LR", "    log[(CASCADE<br/>event log)]"]
    for service in SERVICES:
        written = sorted({fact.split(".", 1)[0] for fact in writes(service)}, key=AGGREGATES.index)
        lines.append(f"    {service}[{service}] -- {', '.join(written)} --> log")
        lines.append(f"    log -. {', '.join(reads(service))} .-> {service}")
    lines += [
        "    bucket[(S3 bucket)] -- files --> ingest",
        "    profiler([profiler, upload]) -- S3 --> bucket",
        "    worker([simulators]) -- HTTP --> api",
        "    launcher -- starts --> worker",
        "    api -- SSE, HTTP --> people([browsers, scripts, agents])",
        "    api --- views[(Postgres<br/>read models)]",
        "```",
    ]
    return "\n".join(lines)


def facts(_: Sequence[str]) -> str:
    """Every fact in a line."""
    rows = [[f"[`{fact}`](events.md#{fact.replace('.', '')})", writer] for fact, writer in WRITERS.items()]
    return table(["fact", "written by"], rows)
