"""Every subject, filter, stream and durable name. Built and parsed here and nowhere else.

cascade.v1.trace.<token>.<fact>
cascade.v1.run.<run>.<fact>
cascade.v1.sim.<run>.<sim>.<fact>
cascade.v1.beat.<run>.<sim>            repeated liveness heartbeats, purged when the sim ends
cascade.v1.log.<run>.<sim>             log chunks, archived and purged when the sim ends
cascade.v1.kernel.<run>.<sim>
cascade.v1.scenario.<scenario>.<fact>
"""

from typing import assert_never

from cascade_core.facts import AnyFact, fact_type
from cascade_core.ids import trace_token
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.runs.facts import RunFact
from cascade_core.scenarios.facts import ScenarioFact
from cascade_core.sims.facts import SimFact
from cascade_core.traces.facts import TraceFact

STREAM = "CASCADE"
CLAIMS = "CASCADE_CLAIMS"
"""Object store for payloads that do not fit a message."""
LEASES = "CASCADE_LEASES"
"""Key-value bucket in which services say which one of them leads."""

ROOT = "cascade.v1"
ALL = f"{ROOT}.>"
ALL_TRACES = f"{ROOT}.trace.>"
ALL_RUNS = f"{ROOT}.run.>"
ALL_SIMS = f"{ROOT}.sim.>"
ALL_ARCHIVINGS = f"{ROOT}.sim.*.*.log-archived"
ALL_BEATS = f"{ROOT}.beat.>"
ALL_LOGS = f"{ROOT}.log.>"
ALL_KERNELS = f"{ROOT}.kernel.>"
ALL_SCENARIOS = f"{ROOT}.scenario.>"
ALL_SCENARIO_REQUESTS = f"{ROOT}.scenario.*.requested"


def is_family(subject_filter: str) -> bool:
    """Whether a filter is everything of one kind, such as `ALL_LOGS`."""
    tokens = subject_filter.removeprefix(ROOT + ".").split(".")
    return len(tokens) == 2 and tokens[0] not in ("*", ">") and tokens[1] == ">"


def subject_of(fact: AnyFact, *, liveness: bool = False) -> str:
    """Where `fact` is stored. `liveness` marks a heartbeat that only repeats the sim's state."""
    name = fact_type(fact).split(".", 1)[1]
    match fact:
        case TraceFact():
            return f"{ROOT}.trace.{trace_token(fact.trace_id)}.{name}"
        case RunFact():
            return f"{ROOT}.run.{fact.run_id}.{name}"
        case LogAppended():
            return log_of(fact.run_id, fact.sim_id)
        case KernelFinished():
            return kernels_of(fact.run_id, fact.sim_id)
        case SimFact():
            if liveness:
                return beats_of(fact.run_id, fact.sim_id)
            return sim_fact(fact.run_id, fact.sim_id, name)
        case ScenarioFact():
            return f"{ROOT}.scenario.{fact.scenario_id}.{name}"
        case _:
            assert_never(fact)


def sim_fact(run_id: str, sim_id: str, name: str) -> str:
    """The subject of one kind of fact about one sim, such as `launch-started`."""
    return f"{ROOT}.sim.{run_id}.{sim_id}.{name}"


def log_of(run_id: str, sim_id: str) -> str:
    """The log chunks of one sim."""
    return f"{ROOT}.log.{run_id}.{sim_id}"


def beats_of(run_id: str, sim_id: str) -> str:
    """The repeated heartbeats of one sim."""
    return f"{ROOT}.beat.{run_id}.{sim_id}"


def kernels_of(run_id: str, sim_id: str) -> str:
    """The kernels of one sim."""
    return f"{ROOT}.kernel.{run_id}.{sim_id}"


def trace_filter(trace_id: str) -> str:
    """Every fact about one trace."""
    return f"{ROOT}.trace.{trace_token(trace_id)}.>"


def run_filters(run_id: str) -> list[str]:
    """Every fact about one run, its sims, logs and kernels. One filter: several cost the server more a message."""
    return [f"{ROOT}.*.{run_id}.>"]


def sim_filters(run_id: str, sim_id: str) -> list[str]:
    """Every fact about one sim, its log and kernels included."""
    return [
        f"{ROOT}.sim.{run_id}.{sim_id}.>",
        beats_of(run_id, sim_id),
        log_of(run_id, sim_id),
        kernels_of(run_id, sim_id),
    ]


def scenario_filter(scenario: str) -> str:
    """Every fact about one scenario."""
    return f"{ROOT}.scenario.{scenario}.>"


def scenario_fact(scenario: str, name: str) -> str:
    """The subject of one kind of fact about one scenario: `requested`, `completed` or `failed`."""
    return f"{ROOT}.scenario.{scenario}.{name}"


def scenario_of_subject(subject: str) -> tuple[str, str] | None:
    """`(scenario_id, fact name)` of a scenario's subject, None for any other subject."""
    tokens = subject.split(".")
    if len(tokens) == 5 and tokens[2] == "scenario":
        return tokens[3], tokens[4]
    return None


def matches(subject_filter: str, subject: str) -> bool:
    """Whether the server delivers `subject` to who asks for `subject_filter`."""
    wanted, found = subject_filter.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(found) > index
        if index >= len(found) or part not in ("*", found[index]):
            return False
    return len(wanted) == len(found)


def sim_of_log_subject(subject: str) -> tuple[str, str] | None:
    """`(run_id, sim_id)` of a log subject, None for any other subject."""
    tokens = subject.split(".")
    if len(tokens) == 5 and tokens[2] == "log":
        return tokens[3], tokens[4]
    return None
