"""`cascade results`: which files are saved where, with a bar for each."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_client import calls
from cascade_client.calls import Download
from cascade_client.client import CascadeClient
from cascade_client.wire.runs import RunDetail, SimSummary
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from cascade_cli.output import fail, stderr


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file to save."""

    download: Download
    target: Path
    size_bytes: int | None


def wanted(
    client: CascadeClient, run: RunDetail, *, results: Path | None, perfetto: Path | None, files: Path | None
) -> list[Wanted]:
    """The files that were asked for. Each sim's files get a folder of their own."""
    found = []
    if results is not None:
        found.append(Wanted(calls.download_run_results(run.id), results, None))
    if perfetto is not None:
        found.append(Wanted(calls.download_perfetto(run.id), perfetto, None))
    if files is not None:
        folders = {sim_id: files / name for sim_id, name in folder_names(run.sims).items()}
        found += [
            Wanted(calls.download_log(sim_id), folder / "sim.log", None) for sim_id, folder in folders.items()
        ]
        found += [
            # The app admits no name with a slash, so a file stays in its folder.
            Wanted(
                calls.download_file(file.sim_id, file.name),
                folders[file.sim_id] / "outputs" / file.name,
                file.size,
            )
            for file in client.run_files(run.id)
            if "/" not in file.name
        ]
    return found


def folder_names(sims: Sequence[SimSummary]) -> dict[str, str]:
    """A folder for each sim: its config and replica, and its id too where a run has the config in several entries."""
    plain = {sim.id: f"{sim.gpu_config}-{sim.replica}" for sim in sims}
    taken = Counter(plain.values())
    return {sim_id: name if taken[name] == 1 else f"{name}-{sim_id}" for sim_id, name in plain.items()}


def save(client: CascadeClient, files: list[Wanted]) -> list[str]:
    """Save them; their paths. Ends the command where a file cannot be written."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, console=stderr, transient=True, disable=not stderr.is_terminal or not files
    ) as progress:
        for file in files:
            bar = progress.add_task(file.target.name.replace("[", "\\["), total=file.size_bytes)
            try:
                file.target.parent.mkdir(parents=True, exist_ok=True)
                client.save(file.download, file.target, written=_filling(progress, bar))
            except OSError as error:
                fail(f"{file.target} cannot be written: {error.strerror or error}")
            progress.remove_task(bar)
    return [str(file.target) for file in files]


def _filling(progress: Progress, bar: TaskID) -> Callable[[int], None]:
    def written(size_bytes: int) -> None:
        progress.update(bar, completed=size_bytes)

    return written
