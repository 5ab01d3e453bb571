"""`cascade watch`: a run's sims as live bars, from its event stream."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cascade_client.client import CascadeClient
from cascade_client.progress import TERMINAL_SIM_STATES, RunProgress
from cascade_client.wire.events import KernelEvent, LogEvent
from cascade_client.wire.runs import RunState, SimState, SimSummary
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cascade_cli.output import print_json

MOST_BARS = 24
"""A run of more sims gets one bar a config: more lines than a terminal has show nothing."""


class Bars:
    """One bar a sim, or one a config."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def show(self, sims: Iterable[SimSummary]) -> None:
        """Bring every bar up to date."""
        known = list(sims)
        if len(known) <= MOST_BARS:
            for sim in known:
                self._update(sim.id, f"{sim.gpu_config} · {sim.replica} · {sim.state.value}", [sim])
            return
        for config in dict.fromkeys(sim.gpu_config for sim in known):
            group = [sim for sim in known if sim.gpu_config == config]
            ended = sum(sim.state in TERMINAL_SIM_STATES for sim in group)
            self._update(config, f"{config} · {ended} of {len(group)} ended", group)

    def _update(self, key: str, description: str, sims: list[SimSummary]) -> None:
        done = sum(sim.kernels_done for sim in sims)
        # A stand-in may finish more kernels than the trace has, or fewer: the bar is full when the sim has succeeded.
        total = sum(
            sim.kernels_done if sim.state is SimState.SUCCEEDED else max(sim.kernels_total, sim.kernels_done)
            for sim in sims
        )
        bar = self._bars.get(key)
        if bar is None:
            bar = self._bars[key] = self._progress.add_task("", total=None)
        self._progress.update(
            bar, description=description.replace("[", "\\["), completed=done, total=total or None
        )


@contextmanager
def bars_on(console: Console, *, disable: bool = False) -> Iterator[Bars]:
    """Bars for the length of the block."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("kernels"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=disable) as progress:
        yield Bars(progress)


def watch(client: CascadeClient, run_id: str, *, as_json: bool, console: Console) -> RunState:
    """Follow the run to its end; its state then. Raises ClientError.

    as_json: one JSON object a line and event on stdout instead of bars, without the kernels' full stats.
    """
    known = RunProgress()
    with bars_on(console, disable=as_json) as bars:
        for event in client.events(run_id):
            known.take(event)
            if as_json:
                slim = event
                if isinstance(event, KernelEvent):
                    slim = event.model_copy(update={"stat": event.stat.model_copy(update={"stats": {}})})
                print_json(slim.model_dump(mode="json"))
            elif not isinstance(event, LogEvent):
                bars.show(known.sims.values())
    return known.state
