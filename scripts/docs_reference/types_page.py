"""Request and response bodies, from the app's schemas."""

from collections.abc import Sequence

from scripts.docs_reference.blocks import table
from scripts.docs_reference.schema_words import STATES, field_rows, schemas, type_words

GROUPS: dict[str, tuple[str, ...]] = {
    "traces": ("TraceSummary", "TraceDetail", "KernelLaunch", "GpuConfig"),
    "runs": ("RunCreate", "RunEntry", "RunSummary", "RunDetail", "SimSummary", "SimMetrics"),
    "results": (
        "KernelStat", "Comparison", "ComparisonRow", "SimStepTimeline", "SimFile", "RunFile", "SimResults",
        "RunResults", "ChromeTrace", "RunEstimate", "ConfigEstimate", "EstimateRow",
    ),
    "events": ("RunEvent", "SnapshotEvent", "SimEvent", "LogEvent", "KernelEvent"),
    "simulator": ("Heartbeat", "HeartbeatAck", "LogChunk", "StepTimelineUpload"),
    "health": ("Health", "Ready"),
    "errors": ("Problem", "InvalidRequest", "FieldProblem", "BaseProblem", "OpenAIProblem"),
}  # fmt: skip
"""The rest is about scenarios."""


def types(arguments: Sequence[str]) -> str:
    """The types of one group, or those that are named."""
    (group,) = arguments
    names = GROUPS[group] if group != "scenarios" else tuple(sorted(_others()))
    return "\n\n".join(_one(name) for name in names)


def _others() -> set[str]:
    return (
        set(schemas()) - set(STATES) - {"JsonValue"} - {name for group in GROUPS.values() for name in group}
    )


def _one(name: str) -> str:
    schema = schemas()[name]
    lines = [f"### {name}", ""]
    if said := " ".join(str(schema.get("description", "")).split()):
        lines += [said, ""]
    if rows := field_rows(name):
        lines.append(table(["field", "type", "meaning"], rows))
    elif "properties" not in schema:
        lines.append(f"{type_words(schema)}.")
    return "\n".join(lines).rstrip()
