"""What the commands print fits where it goes."""

import io

import pytest
from cascade_cli.output import Output
from rich.table import Table

LONG = "demo/" + "x" * 300


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


def test_columns_are_kept_also_when_set_after_the_console_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed().split("\n")
    assert max(map(len, lines)) <= 60
