"""What the commands print fits where it goes."""

import io
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from cascade_cli.app_tables import runs_table
from cascade_cli.main import app, speak
from cascade_cli.output import Output
from cascade_cli.watching import Bars
from cascade_client.wire.runs import RunEntry, RunState, RunSummary, SimMetrics, SimState, SimSummary
from rich.progress import Progress
from rich.table import Table

LONG = "demo/" + "x" * 300
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
A_RUN = RunSummary(
    id="run-0123456789ab",
    trace_id="20261130-120000__facebook_opt-125m",
    created_at=NOON,
    state=RunState.PARTIAL,
    entries=[RunEntry(gpu_config=name, count=2) for name in ("SM80_A100", "SM80_A100_40GB", "SM80_A30")],
    sim_counts={SimState.SUCCEEDED: 4, SimState.FAILED: 2},
    sample=False,
)


def a_sim(state: SimState, replica: int = 0) -> SimSummary:
    """Five of eight kernels done."""
    return SimSummary(
        id=f"sim-{replica}", run_id=A_RUN.id, gpu_config="SM80_A100", replica=replica, state=state, error=None,
        launcher_ref=None, created_at=NOON, started_at=NOON, finished_at=NOON, last_heartbeat_at=NOON, exit_code=None,
        kernels_done=5, kernels_total=8, current_kernel=None, latest=SimMetrics(), log_tail=[],
    )  # fmt: skip


def printed() -> str:
    file = io.StringIO()
    table = Table("trace")
    table.add_row(LONG)
    Output(file=file).print(table)
    return file.getvalue()


@pytest.mark.parametrize("term", ["dumb", "xterm", ""])
def test_a_pipe_cuts_nothing(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", term)
    assert LONG in printed()


def test_a_narrow_screen_takes_a_tables_lines_before_its_ids_and_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = io.StringIO()
    Output(file=file).print(runs_table([A_RUN]))
    text = file.getvalue()
    assert "run-0123456789ab " in text
    assert "2026-11-30" in text
    assert "┃" not in text
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_a_terminal_of_another_encoding_gets_marks_and_no_traceback() -> None:
    # The callback runs before each command.
    program = "from cascade_cli import main, output; main.speak(); output.console.print('6 × 6')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"6 ? 6\n", b"")
    assert app.registered_callback is not None
    assert app.registered_callback.callback is speak


def test_an_empty_table_fits_a_narrow_screen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    file = io.StringIO()
    Output(file=file).print(runs_table([]))
    heads = ["run", "state", "trace", "configs", "sims", "created", "engine", "origin"]
    assert file.getvalue().split() == heads


def test_a_wide_screen_keeps_a_tables_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = io.StringIO()
    Output(file=file).print(runs_table([A_RUN]))
    assert "┃" in file.getvalue()


@pytest.mark.parametrize(
    ("marks", "origin"), [({"sample": True}, "sample"), ({"replay": True}, "replay of a sample"), ({}, "–")]
)
def test_a_list_tells_runs_that_nobody_here_simulated(marks: dict[str, bool], origin: str) -> None:
    file = io.StringIO()
    Output(file=file).print(runs_table([A_RUN.model_copy(update=marks)]))
    assert file.getvalue().split("\n")[3].split("│")[-2].strip() == origin


def test_the_bar_of_a_sim_that_did_not_succeed_shows_how_far_it_came() -> None:
    progress = Progress()
    bars = Bars(progress)
    bars.show([a_sim(SimState.CANCELLED), a_sim(SimState.SUCCEEDED, replica=1)])
    assert [(task.completed, task.total) for task in progress.tasks] == [(5, 8), (5, 5)]


def test_columns_are_kept_also_when_set_after_the_console_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed().split("\n")
    assert max(map(len, lines)) <= 60
