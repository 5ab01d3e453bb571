"""What `cascade launch` starts, and when it asks first."""

import sys
from collections.abc import Sequence

import typer
from cascade_client.client import CascadeClient
from cascade_client.launching import MOST_UNASKED_SIMS, described, total_sims
from cascade_client.wire.runs import MOST_REPLICAS, RunDetail, RunEntry

from cascade_cli.output import fail


def chosen_entries(client: CascadeClient, trace_id: str, given: Sequence[str]) -> list[RunEntry]:
    """The entries as given, else the trace's suggestion, else every config of its architecture."""
    if given:
        return [_entry(text) for text in given]
    trace = client.trace(trace_id)
    fitting = [config.name for config in client.gpu_configs() if config.arch == trace.trace_gpu_arch]
    if trace.suggested_sim_config in fitting:
        fitting = [trace.suggested_sim_config]
    if not fitting:
        fail(
            f"no GPU config is {trace.trace_gpu_arch}, as trace {trace_id} is",
            "cascade configs lists what there is",
        )
    return [RunEntry(gpu_config=name, count=1) for name in fitting]


def confirm(entries: Sequence[RunEntry], *, yes: bool) -> None:
    """Ask before more than a few sims start: each costs machine time, and money on a cloud."""
    total = total_sims(entries)
    if yes or total <= MOST_UNASKED_SIMS:
        return
    question = f"This launches {total} sims: {described(entries)}"
    if not sys.stdin.isatty():
        fail(question, "run it again with --yes")
    typer.confirm(f"{question}. Go on?", abort=True, err=True)


def launched_line(run: RunDetail, entries: Sequence[RunEntry]) -> str:
    """What was launched, in one line."""
    sims = "1 sim" if len(run.sims) == 1 else f"{len(run.sims)} sims"
    return f"{run.id}: {sims} on {', '.join(entry.gpu_config for entry in entries)}"


def _entry(text: str) -> RunEntry:
    name, equals, count = text.partition("=")
    if not name or (
        equals and not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST_REPLICAS)
    ):
        fail(
            f"{text!r} is no entry",
            f"write CONFIG or CONFIG=COUNT with a count from 1 to {MOST_REPLICAS}",
            code=2,
        )
    return RunEntry(gpu_config=name, count=int(count) if equals else 1)
